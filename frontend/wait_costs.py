"""What each synchronisation of a design costs: a break-even, memory that it keeps, or what the machine measures.

Waits first get the break-even of the periodic event graph, of the design as it is or of its steady turns; those that
neither has are measured on the machine. References and record_stream keep memory and make nobody wait. A queue's bound
waits for room whether its edge is there or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from fencepost import steady
from fencepost.model import program as p
from fencepost.model.effects import Enqueue, Touch
from fencepost.model.operations import Context, lower
from fencepost.model.platform import Platform
from fencepost.proofs.waits.break_even import BreakEven
from fencepost.proofs.waits.catalogue import (
    BOUND,
    COPY,
    HOLD,
    HOST,
    LOCK,
    REMOVED,
    STREAM,
    USE,
    Sync,
    operation,
    synchronisations,
    without,
)
from fencepost.proofs.waits.handles import Handles, Node, following, later

if TYPE_CHECKING:
    from fencepost.simulator.machine import Outcome

MOST_NODES = 600
"""Operations and questions of a design up to which the machine is asked."""

MEASURED_SECONDS = 5.0
"""Seconds of the processor after which no further wait is measured."""

SCALES = (1.0, 10.0, 100.0)
"""How long the device's work takes, in units of its typical duration."""

WAITS = (HOST, STREAM, COPY, LOCK)


class Until(NamedTuple):
    """When no further wait is measured: at this time of the clock, or of the process, which a busy machine does not slow."""

    wall: float
    cpu: float


class WaitCosts(msgspec.Struct, frozen=True):
    """`texts`: number of a synchronisation -> what it costs. `why`: why there is no symbolic break-even. `of`: the steps
    that the break-evens are about, where they are not about all."""

    texts: dict[int, str]
    why: str = ""
    of: str = ""


def wait_costs(
    program: p.Program, platform: Platform, syncs: Sequence[Sync], seconds: float = MEASURED_SECONDS
) -> WaitCosts:
    """The costs of all synchronisations of one program; nothing is measured once `seconds` are over."""
    until = Until(time.monotonic() + seconds, time.process_time() + MEASURED_SECONDS)
    texts: dict[int, str] = {}
    for k, sync in enumerate(syncs):
        text = _kept(program, sync) if sync.kind in (HOLD, USE) else _bound(sync) if sync.kind == BOUND else _lock(program, sync)
        if text is not None:
            texts[k] = text
    model, of, ran = cost_model(program, platform, syncs)
    if model.timed is not None and sum(len(thread.nodes) for thread in program.threads) > MOST_NODES:
        return WaitCosts(texts, model.why, of)
    if model.timed is not None:
        durations = {scale: steady.typical(program, platform, scale) for scale in SCALES}
        asked = [k for k, sync in enumerate(syncs) if sync.kind in (HOST, STREAM, COPY)]

        def computed(k: int | None, scale: float) -> float | None:
            return model.per_step(None if k is None else syncs[k], durations[scale])

        texts.update(_compared("computed", asked, computed, until))
        return WaitCosts(texts, model.why, of)
    for k, sync in enumerate(syncs):
        text = model.break_even(program, program, sync)
        if text is not None:
            texts[k] = text
    if ran is not None:
        said, nodes = ran
        missing = [
            k
            for k, sync in enumerate(syncs)
            if sync.kind in WAITS and nodes & set(sync.nodes) and (k not in texts or sync.kind == LOCK)
        ]
        for k, text in _measured(program, platform, syncs, missing, said, until).items():
            texts[k] = f"{texts[k]}; {text}" if k in texts else text
        for k, sync in enumerate(syncs):
            if k not in texts and sync.kind in WAITS and not nodes & set(sync.nodes):
                texts[k] = "not known: with typical durations the steps do not come here"
    return WaitCosts(texts, model.why, of)


def costed(task: tuple[p.Program, Platform, float]) -> WaitCosts:
    """`wait_costs` of (program, platform, `time.monotonic()` at the end of its time), for another process."""
    program, platform, until = task
    left = until - time.monotonic()
    if left <= 0:
        return WaitCosts({}, "the time given ended")
    return wait_costs(program, platform, synchronisations(program, platform), left)


def cost_model(
    program: p.Program, platform: Platform, syncs: Sequence[Sync]
) -> tuple[BreakEven, str, tuple[steady.Said, set[Node]] | None]:
    """(break-evens of the design, else of its steady turns; which these are; the machine's choices and what it ran).

    The last is None where the design is periodic as it is, or the machine does not know it.
    """
    model = BreakEven(program, platform)
    if model.cost is not None or model.timed is not None or sum(len(thread.nodes) for thread in program.threads) > MOST_NODES:
        return model, "", None
    found = _likely(program, platform, syncs)
    if found is None:
        return model, "", None
    said, outcome = found
    of = ""
    turns = steady.turns_of(program, outcome)
    if turns is not None:
        projected = BreakEven(steady.straight(program, turns), platform)
        if projected.cost is not None or projected.timed is not None:
            model, of = projected, steady.told(program, said, turns)
    return model, of, (said, {(step.thread, step.node) for step in outcome.run.steps})


# ---------------------------------------------------------------- memory


def _kept(program: p.Program, sync: Sync) -> str | None:
    """How much memory a reference or a record_stream keeps, and for how long."""
    t = sync.at[0]
    op = operation(program, sync.at)
    held = op.block if isinstance(op, p.RecordStream) else None
    if isinstance(op, (p.Put, p.CellSet)) and sync.value is not None:
        value = op.values[sync.value]
        held = value if isinstance(value, p.Local) else None
    if held is None:
        return None
    sizes = {
        node.operation.bytes
        for origin in Handles(program).of(t, held)
        if origin.thread is not None
        for node in program.threads[origin.thread].nodes
        if isinstance(node, p.Do) and isinstance(node.operation, p.Alloc) and node.operation.local == origin.id
    }
    if not sizes:
        return None
    size = max(sizes)
    if isinstance(op, p.RecordStream):
        assert isinstance(op.stream, (p.Obj, p.Slot))
        stream = program.objects[op.stream.id].name
        return f"keeps {_bytes(size)} from the last reference until {stream} has done what it has then; nobody waits"
    if isinstance(op, p.Put):
        queue = program.objects[op.queue]
        assert isinstance(queue, p.Queue)
        many = f"at most {queue.capacity} at once, {_bytes(size * queue.capacity)}" if queue.capacity > 1 else "one at once"
        return f"keeps {_bytes(size)} while the item is in {queue.name}, {many}; nobody waits"
    assert isinstance(op, p.CellSet) and not isinstance(op.cell, p.Local)
    cell = program.objects[op.cell.id]
    slots = getattr(cell, "depth", None) or 1
    many = f", {slots} slots, {_bytes(size * slots)}" if slots > 1 else ""
    return f"keeps {_bytes(size)} until {cell.name} is set anew or cleared{many}; nobody waits"


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} bytes"


# ---------------------------------------------------------------- other threads


def _bound(sync: Sync) -> str:
    return "nothing by itself: the put waits for room with and without the edge"


def _lock(program: p.Program, sync: Sync) -> str | None:
    """What a lock serialises, thread by thread."""
    op = operation(program, sync.at) if sync.kind == LOCK else None
    if not isinstance(op, p.Acquire):
        return None
    lock = program.objects[op.lock]
    assert isinstance(lock, p.Lock)
    if lock.semaphore or lock.count != 1:
        return None
    sections: list[str] = []
    for thread in program.threads:
        inside = _section(program, thread, op.lock)
        if inside is not None:
            sections.append(f"{' + '.join(inside) or 'nothing that takes time'} of {thread.name}")
    if len(sections) < 2:
        return "nothing: no other thread takes the lock"
    return f"serialises {', '.join(sections)}: free at best while these together take no longer than a turn"


def _section(program: p.Program, thread: p.Thread, lock: int) -> list[str] | None:
    """What takes time between the lock's acquire and unlock in a thread; None where it does not take the lock."""
    from fencepost.proofs.explain import describe

    t = program.threads.index(thread)
    context = Context(program, thread)
    ops = {i: node.operation for i, node in enumerate(thread.nodes) if isinstance(node, p.Do)}
    taken = [i for i, op in ops.items() if isinstance(op, p.Acquire) and op.lock == lock]
    if not taken:
        return None
    inside: dict[str, None] = {}
    for i in taken:
        todo, seen = following(thread.nodes[i]), set()
        while todo:
            n = todo.pop()
            op = ops.get(n)
            if n in seen or (isinstance(op, p.Unlock) and op.lock == lock):
                continue
            seen.add(n)
            todo += following(thread.nodes[n])
        for n in sorted(seen & (later(thread, i) | {i})):
            op = ops.get(n)
            if op is None:
                continue
            works = any(isinstance(x, Touch) or (isinstance(x, Enqueue) and x.accesses) for x in lower(op, context))
            if works or isinstance(op, (p.EventSync, p.StreamSync, p.DeviceSync)):
                inside.setdefault(describe(program, (t, n)))
    return list(inside)


# ---------------------------------------------------------------- the machine


def _likely(
    program: p.Program, platform: Platform, syncs: Sequence[Sync]
) -> tuple[steady.Said, Outcome] | None:
    """The choices under which most synchronisations run, with the run."""
    best: tuple[int, steady.Said, Outcome] | None = None
    for said in steady.choices(program):
        outcome = steady.run(program, said, platform)
        if outcome is None:
            continue
        ran = {(step.thread, step.node) for step in outcome.run.steps}
        count = sum(bool(ran & set(sync.nodes)) for sync in syncs)
        if best is None or count > best[0]:
            best = count, said, outcome
        if count == len(syncs):
            break
    return None if best is None else best[1:]


def _measured(
    program: p.Program, platform: Platform, syncs: Sequence[Sync], asked: Sequence[int], said: steady.Said,
    until: Until,
) -> dict[int, str]:  # fmt: skip
    """What the machine says: the time per turn with and without each, the device's work short and long."""
    edited: dict[int, p.Program] = {}

    def measured(k: int | None, scale: float) -> float | None:
        if k is not None and k not in edited:
            edited[k] = _gone(program, syncs[k], platform)
        return steady.per_step(program if k is None else edited[k], said, platform, scale)

    return _compared("measured", asked, measured, until)


def _compared(
    how: str, asked: Sequence[int], per_step: Callable[[int | None, float], float | None], until: Until
) -> dict[int, str]:
    """What each wait adds to the time per step (nanoseconds, of the number of the wait that is gone), work of the device short and long."""
    found: dict[int, str] = {}
    whole = {scale: per_step(None, scale) for scale in SCALES} if asked else {}
    for k in asked:
        if time.monotonic() > until.wall or time.process_time() > until.cpu:
            break
        added: dict[float, float] = {}
        for scale, before in whole.items():
            after = per_step(k, scale)
            if before is not None and after is not None:
                added[scale] = before - after
        if len(added) < len(SCALES):
            continue
        if all(abs(value) < 1 for value in added.values()):
            found[k] = f"{how}: free with typical durations, and with 10 and 100 times the device work"
        else:
            typical, *longer = (_added(added[scale], whole[scale] or 0) for scale in SCALES)
            more = " and ".join(f"{text} with {scale:g} times" for text, scale in zip(longer, SCALES[1:], strict=True))
            found[k] = f"{how}: {typical} with typical durations, {more} the device work"
    return found


def _gone(program: p.Program, sync: Sync, platform: Platform) -> p.Program:
    """The program that does not wait there: of a lock, without the thread's part in it."""
    op = operation(program, sync.at)
    if sync.kind != LOCK or isinstance(op, p.Give):
        return without(program, [sync], platform)
    t = sync.at[0]
    nodes = list(program.threads[t].nodes)
    for i, node in enumerate(nodes):
        if not isinstance(node, p.Do):
            continue
        mine = node.operation
        of_lock = isinstance(op, p.Acquire) and isinstance(mine, (p.Acquire, p.Unlock)) and mine.lock == op.lock
        if of_lock or (not isinstance(op, p.Acquire) and (t, i) in sync.nodes):
            nodes[i] = msgspec.structs.replace(node, operation=p.Host(REMOVED, ()))
    threads = list(program.threads)
    threads[t] = msgspec.structs.replace(threads[t], nodes=tuple(nodes))
    return msgspec.structs.replace(program, threads=tuple(threads))


def _added(nanoseconds: float, whole: float) -> str:
    """What a wait adds to a step, or takes off it: who waits leaves the device, or a lock, to others."""
    if nanoseconds <= -1:
        return f"takes {_time(-nanoseconds)} off a step of {_time(whole - nanoseconds)}"
    return f"adds {_time(nanoseconds) if nanoseconds >= 1 else 'nothing'} to a step of {_time(whole)}"


def _time(value: float) -> str:
    return f"{value / 1e6:.2f} ms" if value >= 1e6 else f"{value / 1e3:.1f} us" if value >= 1e3 else f"{value:.0f} ns"
