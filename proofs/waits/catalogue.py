"""The synchronisations of a program, and the program without the edges of some of them.

Taking an edge away leaves control flow, capacities and every other effect as they are: a wait becomes no operation, a
blocking copy one that does not block, a bounded queue still makes its putter wait and a lock still excludes, but what
freed the room or the lock is not known to come before. A reference that a queue item or cell holds becomes a raw
pointer, so that the block dies with the other references, at the body's end or where the body lets go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from fencepost.model import program as p
from fencepost.model.effects import JoinStream
from fencepost.model.operations import Context, lower
from fencepost.model.platform import PLATFORMS, Platform

HOST, STREAM, COPY, BOUND, HOLD, USE, LOCK = (
    "host wait", "stream wait", "blocking copy", "queue bound", "reference", "record_stream", "lock",
)  # fmt: skip
"""Kinds of synchronisation."""

HOST_WAITS = (p.EventSync, p.StreamSync, p.DeviceSync)
STREAM_WAITS = (p.StreamWaitEvent, p.WaitStream)
REMOVED = "(taken away)"
"""Name of the empty host operation that stands where a wait was."""


class Sync(msgspec.Struct, frozen=True):
    """One synchronisation as the text has it: `nodes` are (thread, node); `value` numbers the held value of a hand-over.

    Several nodes are one synchronisation that the body reaches on several paths.
    """

    kind: str
    nodes: tuple[tuple[int, int], ...]
    value: int | None = None

    @property
    def at(self) -> tuple[int, int]:
        """The first of its nodes."""
        return self.nodes[0]


def operation(program: p.Program, at: tuple[int, int]) -> p.Operation:
    """The operation of a `Do` node."""
    node = program.threads[at[0]].nodes[at[1]]
    assert isinstance(node, p.Do)
    return node.operation


def synchronisations(program: p.Program, platform: Platform = PLATFORMS["cuda"]) -> list[Sync]:
    """Every synchronisation, in the order of the text.

    Host event, stream and device waits; stream waits; copies and `item` that block; puts on a queue that another thread
    empties; references that queue items and cells hold; record_stream; locks, flags, counters and pool tokens given
    back behind an event. Edges that a test or a hand-over makes by itself (put -> get, a cell's lock, a query that said
    yes) are part of the control flow and are not listed; nor is what a call does on the side (`Program.implied`).
    """
    found: dict[tuple[object, ...], tuple[str, int | None, list[tuple[int, int]]]] = {}
    emptied = _emptied_by(program)
    implied = set(program.implied or ())
    for t, thread in enumerate(program.threads):
        context = Context(program, thread, platform)
        for i, node in enumerate(thread.nodes):
            if not isinstance(node, p.Do) or (t, i) in implied:
                continue
            for kind, value in _kinds(node.operation, context, t, emptied):
                place = node.site if node.site >= 0 else -2 - i
                key = (t, place, kind, value, _what(thread, node.operation))
                found.setdefault(key, (kind, value, []))[2].append((t, i))
    return [Sync(kind, tuple(nodes), value) for kind, value, nodes in found.values()]


def _emptied_by(program: p.Program) -> dict[int, set[int]]:
    """For each queue the threads that take items out of it."""
    result: dict[int, set[int]] = {}
    for t, thread in enumerate(program.threads):
        for node in thread.nodes:
            if isinstance(node, p.Do) and isinstance(node.operation, p.Get):
                result.setdefault(node.operation.queue, set()).add(t)
    return result


def _kinds(op: p.Operation, context: Context, t: int, emptied: dict[int, set[int]]) -> Iterable[tuple[str, int | None]]:
    if isinstance(op, HOST_WAITS):
        if not (isinstance(op, p.DeviceSync) and op.implied):  # nobody wrote down what a free does on the side
            yield HOST, None
    elif isinstance(op, STREAM_WAITS):
        yield STREAM, None
    elif isinstance(op, p.RecordStream):
        yield USE, None
    elif isinstance(op, (p.Copy, p.Item)):
        if any(isinstance(effect, JoinStream) for effect in lower(op, context)):
            yield COPY, None
    elif isinstance(op, (p.Acquire, p.FlagWait, p.CounterWait)) or (isinstance(op, p.Give) and op.after is not None):
        yield LOCK, None
    elif isinstance(op, (p.Put, p.CellSet)):
        if isinstance(op, p.Put) and emptied.get(op.queue, set()) - {t}:
            yield BOUND, None
        for k, value in enumerate(op.values):
            if isinstance(value, p.Local) and context.thread.locals[value.id].kind == p.MEMORY:
                yield HOLD, k


def _what(thread: p.Thread, op: p.Operation) -> tuple[object, ...]:
    """What tells two synchronisations of one place apart: the operation with locals by name."""
    return tuple(_named(thread, getattr(op, name)) for name in op.__struct_fields__ if name not in ("local", "locals"))


def _named(thread: p.Thread, value: object) -> object:
    if isinstance(value, p.Local):
        return (thread.locals[value.id].name, str(value.part))
    if isinstance(value, p.Var):
        return (thread.locals[value.local].name, value.offset)
    if isinstance(value, p.Data):
        return (type(value).__name__, *(_named(thread, getattr(value, name)) for name in value.__struct_fields__))
    if isinstance(value, tuple):
        return tuple(_named(thread, one) for one in value)
    return value


# ---------------------------------------------------------------- taking edges away


def without(program: p.Program, gone: Iterable[Sync], platform: Platform = PLATFORMS["cuda"]) -> p.Program:
    """The program without the edges of these synchronisations."""
    threads = [list(thread.nodes) for thread in program.threads]
    entries = [thread.entry for thread in program.threads]
    locals_ = [list(thread.locals) for thread in program.threads]
    weak: dict[tuple[int, int], list[int]] = {}
    for sync in gone:
        for t, i in sync.nodes:
            if sync.kind == HOLD:
                assert sync.value is not None
                weak.setdefault((t, i), []).append(sync.value)
                continue
            node = threads[t][i]
            assert isinstance(node, p.Do)
            context = Context(program, program.threads[t], platform)
            threads[t][i] = msgspec.structs.replace(node, operation=_edgeless(node.operation, context))
    for (t, i), values in sorted(weak.items()):
        node = threads[t][i]
        assert isinstance(node, p.Do) and isinstance(node.operation, (p.Put, p.CellSet))
        handed = list(node.operation.values)
        views: list[p.View] = []
        for k in values:
            held = handed[k]
            assert isinstance(held, p.Local)
            info = program.threads[t].locals[held.id]
            locals_[t].append(p.LocalInfo(info.name, p.MEMORY, info.occurrence, info.depth, info.pool))
            pointer = len(locals_[t]) - 1
            views.append(p.View(pointer, held, held=False))
            handed[k] = p.Local(pointer)
        put = len(threads[t])
        threads[t].append(p.Do(msgspec.structs.replace(node.operation, values=tuple(handed)), node.next, node.site))
        # The views stand in front of the hand-over, which they replace at its node, so that nothing else moves.
        for number, view in enumerate(views):
            last = number == len(views) - 1
            here = p.Do(view, put if last else len(threads[t]) + (number > 0), node.site)
            if number == 0:
                threads[t][i] = here
            else:
                threads[t].append(here)
    return msgspec.structs.replace(
        program,
        threads=tuple(
            msgspec.structs.replace(thread, nodes=tuple(nodes), entry=entry, locals=tuple(infos))
            for thread, nodes, entry, infos in zip(program.threads, threads, entries, locals_, strict=True)
        ),
    )


def _edgeless(op: p.Operation, context: Context) -> p.Operation:
    """The operation with all that it does but its edge."""
    if isinstance(op, (*HOST_WAITS, *STREAM_WAITS, p.RecordStream)):
        return p.Host(REMOVED, ())
    if isinstance(op, (p.Put, p.Acquire, p.FlagWait, p.CounterWait)):
        return msgspec.structs.replace(op, edge=False)
    if isinstance(op, p.Give):
        return msgspec.structs.replace(op, after=None)
    if isinstance(op, p.Item):
        return p.Launch("item", op.stream, (p.Access(op.src, "r", harm=op.harm),), op.time)
    assert isinstance(op, p.Copy)
    free = msgspec.structs.replace(op, non_blocking=True)
    if not any(isinstance(effect, JoinStream) for effect in lower(free, context)):
        return free
    # The platform makes even the asynchronous call wait (S48, S52): what is left is an item of the stream.
    read = p.Access(op.src, "r", harm=op.src_harm)
    return p.Launch("copy", op.stream, (read, p.Access(op.dst, "w", same_bytes=op.same_bytes)), op.time)
