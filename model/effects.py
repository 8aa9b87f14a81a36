"""The effects that operations are made of: the alphabet which every engine interprets.

An operation (model/operations/) lowers to a short sequence of effects that run atomically in one host step; device
work that it enqueues runs later. What an effect *means* for happens-before is said here once:

- `Touch`: the calling thread accesses memory now (program order).
- `Enqueue`: one item at the tail of a stream; it starts after the call and after the stream's previous item (S2).
- `RecordEvent`: the event's capture becomes the stream's current tail (S19).
- `JoinEvent` / `JoinStream` / `JoinDevice`: the calling thread continues after the captured work / everything
  enqueued before the call (S23, S32).
- `StreamJoinsEvent` / `StreamJoinsStream`: items enqueued later on the stream start after it (S20, S22).
- `NoteUse`: the caching allocator learns that a stream uses the block (S64 `device`, S79 `pinned`).

Host-side operations (queues, cells, locks, cursors, references) are their own effect.
"""

from __future__ import annotations

from typing import Union

from fencepost.model import program as p
from fencepost.model.program import Access, Data, Operand


class Touch(Data, frozen=True):
    """Host accesses, now."""

    accesses: tuple[Access, ...]


class Enqueue(Data, frozen=True):
    """A device item. `what`: "kernel" | "copy" | "memset"."""

    stream: Operand
    accesses: tuple[Access, ...]
    what: str


class RecordEvent(Data, frozen=True):
    """S19."""

    event: Operand
    stream: Operand


class JoinEvent(Data, frozen=True):
    """S23; a never recorded event joins nothing (S18)."""

    event: Operand


class JoinStream(Data, frozen=True):
    """S32, S33."""

    stream: Operand


class JoinDevice(Data, frozen=True):
    """S32: every stream of the process on that GPU."""

    gpu: int
    process: str


class StreamJoinsEvent(Data, frozen=True):
    """S20: binds to the latest record at the call; never recorded: nothing (S18)."""

    stream: Operand
    event: Operand


class StreamJoinsStream(Data, frozen=True):
    """S22."""

    stream: Operand
    other: Operand


class NoteUse(Data, frozen=True):
    """`space` "device": record_stream (S64, ignored for the owner stream). "pinned": copy_ (S79, S84)."""

    block: Operand
    stream: Operand
    space: str


HOST_EFFECTS = (
    p.Alloc, p.View, p.Drop, p.NewEvent, p.Advance, p.Put, p.Get, p.CellSet, p.CellGet, p.CellClear, p.Take, p.Give,
    p.Acquire, p.Unlock, p.FlagSet, p.FlagClear, p.FlagWait, p.CounterAdd, p.CounterWait,
)  # fmt: skip
"""Host operations that are their own effect."""

MEETINGS = (p.Signal, p.Await, p.StoreFlag, p.WaitFlag)
"""Operations of streams (the flag's also of hosts) that may have to wait on the device: their own effect too.

What stands behind one in its stream is *pending* until it is satisfied: it has not started, its accesses have not been
made, records behind it are pending, a host wait on such a record waits, and a query of it says no (theory section 3,
processing order).
"""

Effect = Union[
    Touch, Enqueue, RecordEvent, JoinEvent, JoinStream, JoinDevice, StreamJoinsEvent, StreamJoinsStream, NoteUse,
    p.Alloc, p.View, p.Drop, p.NewEvent, p.Advance, p.Put, p.Get, p.CellSet, p.CellGet, p.CellClear, p.Take, p.Give,
    p.Acquire, p.Unlock, p.FlagSet, p.FlagClear, p.FlagWait, p.CounterAdd, p.CounterWait,
    p.Signal, p.Await, p.StoreFlag, p.WaitFlag,
]  # fmt: skip
