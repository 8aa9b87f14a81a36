"""Host state, operands, references and the blocks of the caching allocators.

A clock that several calls contributed to is kept merged in `seen`.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from fencepost.model import program as p
from fencepost.model.answer import Step
from fencepost.model.events.clocks import Clock, VectorClocks, merged
from fencepost.model.events.parts import EventKey, Key, Path, Piece, Ref, Row, Value, narrowed

Named = tuple[int, int]
"""Object id and slot (0 where there is no ring)."""


class InvalidRun(ValueError):
    """A step that cannot happen in this state. The message names the step and why."""


class DesignError(InvalidRun):
    """A step that can happen but that the design must not take (`cell.get` on an empty cell, a token given back twice)."""


class QueueItem(NamedTuple):
    """An item in a queue, with the clock of its put."""

    tag: str
    values: tuple[Value, ...]
    clock: Clock


class Tenant(NamedTuple):
    """One allocation: who owns a block's bytes, and for how long. `owner`: the stream of a device block (S62), else the process (S80)."""

    key: Key
    name: str
    space: str
    owner: Named | str
    refs: int
    bytes: int
    noted: frozenset[Named] = frozenset()
    """Streams that the allocator was told of (S64, S79)."""
    dropped: Clock | None = None
    """Merged clocks of the references that ended."""


class Block(NamedTuple):
    """A block that the run names. `free` is the clock that the next owner's allocation comes after; None while live."""

    space: str
    owner: Named | str
    free: Clock | None


class PoolState(NamedTuple):
    """`free`: tokens that were given back, oldest first, each with what its next take comes after."""

    free: tuple[tuple[int, Clock], ...] = ()
    made: int = 0
    labels: tuple[tuple[int, int], ...] = ()
    """(number in the run, token) pairs."""


class References(abc.ABC):
    """State of the host half of `Player`. It is kept in dicts of immutable values, so that a copy is shallow."""

    program: p.Program
    clocks: VectorClocks
    fifos: dict[Named, int]
    total_order: bool
    steps: int
    _pc: list[int]
    _turn: list[int]

    _TABLES = ("cursors", "queues", "gets", "cells", "pools", "locks", "holders", "flags", "counters", "seen",
               "chosen", "blocks", "tenants")  # fmt: skip

    def _init_host(self) -> None:
        objects = list(enumerate(self.program.objects))
        self.locals: list[list[Value | None]] = [[None] * len(t.locals) for t in self.program.threads]
        self.cursors = {i: o.depth - 1 for i, o in objects if isinstance(o, p.Cursor)}
        self.queues: dict[int, tuple[QueueItem, ...]] = {i: () for i, o in objects if isinstance(o, p.Queue)}
        self.gets: dict[int, tuple[Clock, ...]] = dict.fromkeys(self.queues, ())
        self.cells: dict[Named, tuple[Value, ...]] = {}
        self.pools = {i: PoolState() for i, o in objects if isinstance(o, p.Pool)}
        self.locks = {i: o.count for i, o in objects if isinstance(o, p.Lock)}
        self.holders: dict[int, int] = {}
        self.flags: dict[int, bool] = {}
        self.counters: dict[int, int] = {}
        self.seen: dict[Any, Clock] = {}
        self.chosen: dict[Any, str] = {}
        self.blocks: dict[Key, Block] = {}
        self.tenants: dict[int, Tenant] = {}
        self._fresh_events = 0
        self._ordered: list[Any] = []

    def _copy_host(self, other: References) -> None:
        for name in self._TABLES:
            setattr(other, name, getattr(self, name).copy())
        other.locals = [values[:] for values in self.locals]
        other._ordered = []

    # provided by Player
    @abc.abstractmethod
    def refuse(self, step: Step, why: str, error: type[InvalidRun] = InvalidRun) -> None:
        """Raise `error`, naming the step and why it cannot happen."""

    @abc.abstractmethod
    def _captured(self, event: EventKey) -> Clock | int | None:
        """Clock of the event's latest capture, or the number of a record that is pending."""

    @abc.abstractmethod
    def _record_clock(self, thread: int, stream: Named) -> Clock | int:
        """Record a fresh event on a stream: what its completion comes after, or the number of a record that is pending."""

    @abc.abstractmethod
    def _frees(self, records: frozenset[int], clock: Clock, key: Key | None, token: tuple[int, int] | None = None) -> None:
        """A block or token is free when pending records are complete, and what they captured comes before."""

    @abc.abstractmethod
    def _query_answers(self, thread: int, question: p.EventQuery | p.StreamQuery) -> set[str]:
        """What a query may answer."""

    # ------------------------------------------------------------ clocks of objects

    def _join(self, thread: int, *keys: Any) -> None:
        """The thread continues after everything that was added under the keys."""
        for key in keys:
            clock = self.seen.get(key)
            if clock is not None:
                self.clocks.absorb(thread, clock)

    def _add(self, thread: int, *keys: Any) -> None:
        """What the thread did so far comes before whoever joins one of the keys."""
        now = self.clocks.snapshot(thread)
        for key in keys:
            before = self.seen.get(key)
            self.seen[key] = now if before is None else merged(before, now)

    def _order(self, key: Any, thread: int) -> None:
        """For the feasibility test only: host calls on one object keep the run's order (theory section 2).

        Later calls come after this one's *return*, so `_end_call` adds the thread's clock when the step is over.
        """
        if self.total_order:
            self._join(thread, ("order", key))
            self._ordered.append(("order", key))

    def _end_call(self, thread: int) -> None:
        if self._ordered:
            self._add(thread, *self._ordered)
            self._ordered = []

    # ------------------------------------------------------------ operands

    def _index(self, thread: int, index: p.Index) -> int:
        if isinstance(index, p.Turn):
            return self._turn[thread] + index.offset
        if isinstance(index, p.Last):
            cursor = self.program.objects[index.cursor]
            assert isinstance(cursor, p.Cursor)
            return (self.cursors[index.cursor] + index.offset) % cursor.depth
        if isinstance(index, p.Fixed):
            return index.slot
        value = self.locals[thread][index.local]
        if not isinstance(value, int):
            info = self.program.threads[thread].locals[index.local]
            self.refuse(Step(thread, self._pc[thread]), f"{info.name!r} holds no index or handle here")
        assert isinstance(value, int)
        depth = self.program.threads[thread].locals[index.local].depth
        return (value + index.offset) % depth if depth else value + index.offset

    def _named(self, thread: int, operand: p.Operand) -> Named:
        """Object and slot of an operand that names an object."""
        assert isinstance(operand, (p.Obj, p.Slot))
        if isinstance(operand, p.Obj):
            return (operand.id, 0)
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        return (operand.id, self._index(thread, operand.index) % depth)

    def _path(self, thread: int, part: p.Part | None) -> Path:
        if part is None:
            return ()
        piece: Piece = Row(self._index(thread, part.index)) if isinstance(part, p.At) else part
        return (piece,)

    def _value(self, step: Step, operand: p.Operand | p.Index) -> Value:
        """What an operand stands for now: a reference, an event or an index."""
        thread = step.thread
        if isinstance(operand, p.Local):
            value = self.locals[thread][operand.id]
            if value is None:
                info = self.program.threads[thread].locals[operand.id]
                self.refuse(step, f"{info.name!r} is used before it has a value or after its release")
            assert value is not None
            if isinstance(value, Ref) and operand.part is not None:
                return value._replace(path=narrowed(value.path, *self._path(thread, operand.part)))
            return value
        if isinstance(operand, (p.Obj, p.Slot)):
            named = self._named(thread, operand)
            if isinstance(self.program.objects[named[0]], p.Event):
                return EventKey(*named)
            return Ref(Key("memory", *named), self._path(thread, operand.part))
        return self._index(thread, operand)

    def _memory(self, step: Step, operand: p.Operand) -> Ref:
        value = self._value(step, operand)
        if not isinstance(value, Ref):
            self.refuse(step, f"{operand} is no memory")
        assert isinstance(value, Ref)
        return value

    def _event(self, step: Step, operand: p.Operand) -> EventKey:
        value = self._value(step, operand)
        if not isinstance(value, EventKey):
            self.refuse(step, f"{operand} is no event")
        assert isinstance(value, EventKey)
        return value

    # ------------------------------------------------------------ references and blocks

    def _hold(self, value: Value) -> None:
        if isinstance(value, Ref) and value.tenant is not None and value.held:
            tenant = self.tenants[value.tenant]
            self.tenants[value.tenant] = tenant._replace(refs=tenant.refs + 1)

    def _let_go(self, thread: int, value: Value | None) -> None:
        """A reference ends; the last one frees the block. The free comes after every reference's end (a decrement)."""
        if not isinstance(value, Ref) or value.tenant is None or not value.held:
            return
        tenant = self.tenants[value.tenant]
        now = self.clocks.snapshot(thread)
        dropped = now if tenant.dropped is None else merged(tenant.dropped, now)
        tenant = tenant._replace(refs=tenant.refs - 1, dropped=dropped)
        if tenant.refs == 0:
            free = dropped
            records: set[int] = set()
            for stream in sorted(tenant.noted):
                # S65, S80: an event is recorded now on each noted stream; a later owner has seen it complete.
                recorded = self._record_clock(thread, stream)
                if isinstance(recorded, int):
                    records.add(recorded)
                else:
                    free = merged(free, recorded)
            block = self.blocks.get(tenant.key)
            if block is not None and records:
                self._frees(frozenset(records), free, tenant.key)
            elif block is not None:
                self.blocks[tenant.key] = block._replace(free=free)
        self.tenants[value.tenant] = tenant

    def _owner(self, ref: Ref) -> int | None:
        """The allocation whose bytes a reference reaches: its own, or for a raw pointer the latest of that block."""
        if ref.held or ref.tenant is None:
            return ref.tenant
        return next(number for number in reversed(self.tenants) if self.tenants[number].key == ref.key)

    def _note(self, ref: Ref, stream: Named, space: str) -> None:
        """S64 (ignored for the owner stream), S79; what the allocator cannot attribute is ignored (S72, S84)."""
        if ref.tenant is None or not ref.held:
            return
        tenant = self.tenants[ref.tenant]
        if tenant.space == space and tenant.owner != stream and ref.attributed:
            self.tenants[ref.tenant] = tenant._replace(noted=tenant.noted | {stream})

    def _set_local(self, thread: int, local: int, value: Value) -> None:
        """Store a value whose reference the caller already holds."""
        old = self.locals[thread][local]
        self.locals[thread][local] = value
        self._let_go(thread, old)

    def _release_locals(self, thread: int) -> None:
        """The end of the turn ends the body's scope."""
        values = self.locals[thread]
        self.locals[thread] = [None] * len(values)
        for value in values:
            self._let_go(thread, value)

    def possible_blocks(self, thread: int) -> tuple[int, ...]:
        """Numbers of the blocks or tokens that the allocation or take at the thread's node may get again."""
        node = self.program.threads[thread].nodes[self._pc[thread]]
        operation = node.operation if isinstance(node, p.Do) else None
        if isinstance(operation, p.Alloc):
            owner = self._allocator(thread, operation)
            return tuple(
                key.number for key, block in self.blocks.items()
                if block.free is not None and block.space == operation.space and block.owner == owner
            )  # fmt: skip
        if isinstance(operation, p.Take):
            state = self.pools[operation.pool]
            free = {token for token, _ in state.free}
            return tuple(label for label, token in state.labels if token in free)
        return ()

    def _allocator(self, thread: int, o: p.Alloc) -> Named | str:
        """Whose blocks an allocation gets: free lists are per stream (S62), those of pinned memory per process (S80)."""
        return self.program.threads[thread].process if o.stream is None else self._named(thread, o.stream)

    def _alloc(self, o: p.Alloc, step: Step) -> None:
        owner = self._allocator(step.thread, o)
        number = len(self.tenants)
        key = Key("fresh", 0, number)
        if step.block is not None:
            key = Key("block", 0, step.block)
            block = self.blocks.get(key)
            if block is not None:
                if block.free is None:
                    self.refuse(step, f"block {step.block} still has references, or noted uses that are pending")
                if block.space != o.space:
                    self.refuse(step, f"block {step.block} is {block.space} memory, asked for is {o.space}")
                if block.owner != owner:
                    self.refuse(step, f"block {step.block} belongs to another {'process' if o.stream is None else 'stream'}")
                assert block.free is not None
                self.clocks.absorb(step.thread, block.free)
            self.blocks[key] = Block(o.space, owner, None)
        name = self.program.threads[step.thread].locals[o.local].name
        self.tenants[number] = Tenant(key, name, o.space, owner, 1, o.bytes)
        self._set_local(step.thread, o.local, Ref(key, (), number))

    def _view(self, o: p.View, step: Step) -> None:
        base = self._memory(step, o.base)
        base = base._replace(attributed=base.attributed and o.attributed, held=base.held and o.held)
        self._hold(base)
        self._set_local(step.thread, o.local, base)

    def _drop(self, o: p.Drop, step: Step) -> None:
        value = self.locals[step.thread][o.local]
        self.locals[step.thread][o.local] = None
        self._let_go(step.thread, value)

    def _new_event(self, o: p.NewEvent, step: Step) -> None:
        self._set_local(step.thread, o.local, EventKey(-1, self._fresh_events))
        self._fresh_events += 1
