"""The explorer's state: control, and one bit per agent (theory: the witness theorem).

Bit = "what this agent carries is known to happen after the witness ended". Everything is relative: ring positions are
rotated to a reference, so a state is the same state whatever the step number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fencepost.proofs.explore.meet import Meet

Value = Any
"""A local's or item field's value: event flags, memory reference, index, or handle (see `compile`)."""

BIT, RECORDED, COMPLETE, CALLED = 1, 2, 4, 8
"""Event flags: carries the witness; and, kept only where events are queried: was ever recorded; its capture is known
complete; the call that recorded it came after the witness (what a "no" tells)."""


PENDING = 2
"""Stream call flags: BIT, the calls that put work or a wait there carry the witness; PENDING, it may still be busy."""


class Unsupported(Exception):
    """A construct that the explorer cannot decide; the answer is UNKNOWN with this text."""


class Beyond(Unsupported):
    """The search left out states beyond a stated bound and found no hazard before it."""


class Witness(NamedTuple):
    """The guessed access. `slot`: the ring slot (or index) it touched, 0 after normalisation."""

    write: bool
    same_bytes: bool
    thread: int
    node: int
    which: int
    """Number of the access within its operation."""
    epoch: bool
    """The content that the witness saw or wrote is still current, but for writes of the same bytes."""


ROOT: Any = (None, None, 0, 0)
"""The empty trail. A trail is (entry, trail before, turns ended, host operations); entries are (thread, nodes) for a
run of operations, (thread, node, answer), (thread, -1) for the end of a turn, ("got", node) where an allocation
or a take got the guessed byte, and ("device", stream) for a step of the device."""


_new = object.__new__


class State:
    """One state; mutable while a step runs, compared through `key()`."""

    __slots__ = (
        "agreed", "block", "calls", "cells", "counters", "edges", "events", "flags", "hazard", "locals", "locks", "meet", "pc", "pools",
        "pos", "queues", "slot", "streams", "tb", "trail", "turns", "witness",
    )  # fmt: skip

    pc: list[int]
    tb: list[int]
    turns: list[int]
    pos: list[int]
    locals: list[tuple[Value, ...]]
    events: list[int]
    streams: list[int]
    calls: list[int]
    """For each stream what a query there may say (kept only where something is queried)."""
    queues: list[tuple[Any, ...]]
    cells: list[tuple[Any, ...]]
    locks: list[tuple[int, int]]
    flags: list[tuple[int, int]]
    counters: list[tuple[Any, ...]]
    pools: list[tuple[int, ...]]
    agreed: list[tuple[Any, ...]]
    block: tuple[Any, ...] | None
    """Guessed byte of an allocator block: (references, free bit, noted streams, defined, owner slot); 0 references = free."""
    witness: Witness | None
    slot: int | None
    """Slot of the location's ring once the witness fixed it."""
    hazard: tuple[Any, ...] | None
    """(kind, node, number of the access); of an access that was pending also its thread, and the node of the host step
    that let it go on (None: a step of the device)."""
    meet: Meet | None
    """Where streams meet and what is pending; None in designs without meetings."""
    trail: Any
    edges: list[Any] | None
    """Where its steps lead (search.py: `Edge`), once the search has taken them; a copy has taken none."""

    def mark(self, entry: Any, turns: int = 0, operations: int = 0) -> None:
        """Extend the trail."""
        before = self.trail
        self.trail = (entry, before, before[2] + turns, before[3] + operations)

    def copy(self) -> State:
        """A copy that shares the immutable parts."""
        n = _new(State)
        n.pc = [*self.pc]
        n.tb = [*self.tb]
        n.turns = self.turns  # replaced, never changed in place
        n.pos = self.pos and [*self.pos]  # an empty list has nothing to change: copies share it
        n.locals = [*self.locals]
        n.events = self.events and [*self.events]
        n.streams = [*self.streams]
        n.calls = [*self.calls]
        n.queues = self.queues and [*self.queues]
        n.cells = self.cells and [*self.cells]
        n.locks = self.locks and [*self.locks]
        n.flags = self.flags and [*self.flags]
        n.counters = self.counters and [*self.counters]
        n.pools = self.pools and [*self.pools]
        n.agreed = self.agreed and [*self.agreed]
        n.block = self.block
        n.witness = self.witness
        n.slot = self.slot
        n.hazard = self.hazard
        n.trail = self.trail
        n.edges = None
        n.meet = self.meet and self.meet.copy()
        return n
