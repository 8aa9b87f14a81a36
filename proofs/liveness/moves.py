"""States and the moves between them: what a search for waits that never end looks at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fencepost.model import program as p

COUNTED_TO = 16
"""Counters, turns and agreed choices are followed this far beyond what any wait compares with; then the answer is bounded."""

SHARED = (
    p.Put, p.Get, p.CellSet, p.CellGet, p.CellClear, p.Take, p.Give, p.Acquire, p.Unlock, p.FlagSet, p.FlagClear,
    p.FlagWait, p.CounterAdd, p.CounterWait, p.QueueFull, p.QueueHolds, p.QueueTag, p.CellEmpty, p.FlagIsSet,
    p.CounterAtLeast, p.TryLock,
)  # fmt: skip
"""What touches state that other threads touch."""

Value = Any
"""Tags of a queue, flags of a cell's slots, a count of free tokens or of a lock, a boolean, a counter."""


class Move(NamedTuple):
    """One host step: `thread` at `node`, with the answer when it is a question. Or `item` of a stream, whose number is `thread`."""

    thread: int
    node: int
    answer: str | None
    item: Any = None


class State(NamedTuple):
    """`at`: each thread's node (END: it has ended); `turns`: its turn, as far as it matters; `indices`: slots that index
    ring cells; `objects`: one value per shared object, in the order of `Semantics.kept`; `agreed`: answers that some thread has still to ask for."""

    at: tuple[int, ...]
    turns: tuple[int, ...]
    indices: tuple[tuple[tuple[int, int], ...], ...]
    objects: tuple[Value, ...]
    agreed: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = ()
    device: Any = None
    """What waits in streams (device.py), where something can."""


Block = Callable[[State], "int | str | None"]
Run = Callable[[State], "list[tuple[str | None, State]]"]
Change = Callable[[State], "tuple[Value, ...]"]


class Bounded(Exception):
    """Something counts beyond what can be followed; `args[0]` says what."""


def changed(place: int, new: Callable[[Value], Value]) -> Change:
    """The objects with a new value of one of them."""
    behind = place + 1

    def change(s: State) -> tuple[Value, ...]:
        objects = s.objects
        return (*objects[:place], new(objects[place]), *objects[behind:])

    return change


def with_value(values: tuple[Any, ...], place: int, value: object) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
