"""Who could end a wait: threads with an operation that would, and streams that hold one back."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.liveness.device import DeviceSemantics
from fencepost.proofs.liveness.moves import State
from fencepost.proofs.liveness.pending import Device, Item
from fencepost.proofs.liveness.states import Semantics
from fencepost.proofs.liveness.text import reachable


class Helper(NamedTuple):
    """An agent that could end a wait, and the stream on which what it enqueues would have to run (None: none)."""

    agent: int
    via: int | None = None


def static(semantics: Semantics, waiter: int, node_id: int) -> list[int]:
    """Threads with an operation that could end a thread's wait at this node for another thread."""
    known: list[int] | None = semantics.memo.get(("static", waiter, node_id))
    if known is None:
        known = semantics.memo["static", waiter, node_id] = _static(semantics.program, waiter, node_id)
    return known


def _static(program: p.Program, waiter: int, node_id: int) -> list[int]:
    node = program.threads[waiter].nodes[node_id]
    what = node.operation if isinstance(node, p.Do) else node.question
    found = []
    for number, thread in enumerate(program.threads):
        for other in thread.nodes:
            if isinstance(other, p.Do) and _ends(other.operation, what):
                found.append(number)
                break
    return found


def _ends(operation: p.Operation, wait: p.Operation | p.Question) -> bool:
    if isinstance(wait, p.Put):
        return isinstance(operation, p.Get) and operation.queue == wait.queue
    if isinstance(wait, p.Get):
        # The wrong tag in front is somebody else's to take; the right one somebody else's to put.
        return isinstance(operation, (p.Put, p.Get)) and operation.queue == wait.queue and operation != wait
    if isinstance(wait, p.QueueTag):
        return isinstance(operation, p.Put) and operation.queue == wait.queue
    if isinstance(wait, p.Take):
        return isinstance(operation, p.Give) and operation.pool == wait.pool
    if isinstance(wait, p.Acquire):
        return isinstance(operation, p.Unlock) and operation.lock == wait.lock
    if isinstance(wait, p.FlagWait):
        return isinstance(operation, p.FlagSet) and operation.flag == wait.flag
    if isinstance(wait, p.CounterWait):
        return isinstance(operation, p.CounterAdd) and operation.counter == wait.counter
    return False


def groups(semantics: Semantics, state: State, agent: int) -> list[list[Helper]]:
    """What a waiting agent needs: of each group somebody. A group without anybody is a wait without source."""
    program = semantics.program
    if not isinstance(semantics, DeviceSemantics):
        return [[Helper(t) for t in _threads(semantics, state, agent)]]
    count = len(program.threads)
    if agent >= count:
        return _stream(semantics, state, agent - count)
    n = state.at[agent]
    effects = semantics.effects.get((agent, n), ())
    found = []
    for effect in effects:
        found += _host(semantics, state, agent, effect)
    if found:
        return found
    node = program.threads[agent].nodes[n]
    what = node.operation if isinstance(node, p.Do) else node.question
    threads = [Helper(t) for t in _threads(semantics, state, agent) if t != agent]
    if isinstance(what, p.Take):
        device: Device = state.device
        holders = {semantics.holder(device, record) for record in device.deferred[semantics.pool[what.pool]]}
        threads += [Helper(count + k) for k in sorted(k for k in holders if k is not None)]
    return [threads]


def _threads(semantics: Semantics, state: State, agent: int) -> list[int]:
    """Threads that may still come to an operation that would end a thread's wait for another thread."""
    node = semantics.program.threads[agent].nodes[state.at[agent]]
    what = node.operation if isinstance(node, p.Do) else node.question
    return [t for t in static(semantics, agent, state.at[agent]) if _may_run(semantics, state, t, what)]


def gone(semantics: Semantics, state: State, agent: int) -> list[int]:
    """Threads that have such an operation, and are past it."""
    if agent >= len(semantics.program.threads):
        return []
    left = _threads(semantics, state, agent)
    return [t for t in static(semantics, agent, state.at[agent]) if t not in left and t != agent]


def _may_run(semantics: Semantics, state: State, t: int, wait: p.Operation | p.Question) -> bool:
    thread = semantics.program.threads[t]
    if thread.kind == "loop":
        return True  # it has an operation that would, and every node lies ahead
    for n in ahead(semantics, state, t):
        node = thread.nodes[n]
        if isinstance(node, p.Do) and _ends(node.operation, wait):
            return True
    return False


def ahead(semantics: Semantics, state: State, t: int) -> set[int]:
    """Nodes that a thread may still run."""
    thread, at = semantics.program.threads[t], state.at[t]
    if thread.kind == "loop":
        return set(range(len(thread.nodes)))
    return set() if at == p.END else {at, *reachable(thread, at)}


def _host(semantics: DeviceSemantics, state: State, t: int, effect: e.Effect) -> list[list[Helper]]:
    device: Device = state.device
    count = len(semantics.threads)
    if isinstance(effect, e.JoinEvent):
        kind, number, _ = semantics.handle(state, t, effect.event)
        record = device.records[number] if kind == "event" else 0
        if record <= 0:
            return []
        holder = semantics.holder(device, record)
        # Before the call is made the event may be recorded once more: then it is that record that counts.
        again = [
            Helper(other) for other in range(count)
            if other != t and any(
                isinstance(x, e.RecordEvent) and _same_event(semantics, x.event, number)
                for n in ahead(semantics, state, other) for x in semantics.effects.get((other, n), ())
            )
        ]  # fmt: skip
        return [([] if holder is None else [Helper(count + holder)]) + again]
    if isinstance(effect, (e.JoinStream, e.JoinDevice)):
        return [[Helper(count + k)] for k in semantics.joined(state, t, effect) if device.fifos[k]]
    if isinstance(effect, p.WaitFlag) and effect.stream is None and semantics.obstacle(state, t) is not None:
        return [_stores(semantics, state, t, effect.flag, effect.value)]
    return []


def _same_event(semantics: DeviceSemantics, operand: p.Operand, number: int) -> bool:
    if isinstance(operand, p.Local):
        return semantics.loose
    return number < len(semantics.fixed) and semantics.fixed[number][0] == operand.id


def _stream(semantics: DeviceSemantics, state: State, stream: int) -> list[list[Helper]]:
    device: Device = state.device
    item = device.fifos[stream][0]
    me = len(semantics.threads) + stream
    if item.kind == "join":
        holder = semantics.holder(device, item.thing)
        return [[] if holder is None else [Helper(len(semantics.threads) + holder)]]
    if item.kind == "wait":
        return [_stores(semantics, state, me, item.thing, item.value)]
    if item.kind == "signal" or mismatch(semantics, device, item):
        return [_meeting(semantics, state, me, p.Await, "await", item.thing)]
    return [_meeting(semantics, state, me, p.Signal, "signal", item.thing)]


def mismatch(semantics: DeviceSemantics, device: Device, item: Item) -> bool:
    """Whether an await has a signal of another tag in front of it."""
    messages = device.channels[semantics.channel[item.thing]] if item.kind == "await" else ()
    return bool(messages) and messages[0] != item.value


def _meeting(semantics: DeviceSemantics, state: State, me: int, kind: type, word: str, channel: int) -> list[Helper]:
    """Streams that hold back the other side of a meeting, and threads that may enqueue it."""
    count = len(semantics.threads)
    found = [
        Helper(count + k) for k, row in enumerate(state.device.fifos)
        if count + k != me and any(item.kind == word and item.thing == channel for item in row)
    ]  # fmt: skip
    for t in range(count):
        if t == me:
            continue
        loop = semantics.program.threads[t].kind == "loop"
        asked = ("meeting", t, -1 if loop else state.at[t], word, channel)
        streams: list[int] | None = semantics.memo.get(asked)
        if streams is None:
            streams = semantics.memo[asked] = sorted({
                k for n in ahead(semantics, state, t) for x in semantics.effects.get((t, n), ())
                if isinstance(x, (p.Signal, p.Await)) and isinstance(x, kind) and x.channel == channel and not isinstance(x.stream, p.Local)
                for k, slot in enumerate(semantics.streams) if slot[0] == x.stream.id
            })  # fmt: skip
        found += [Helper(t, k) for k in streams if count + k != me]
    return found


def _stores(semantics: DeviceSemantics, state: State, me: int, flag: int, value: int) -> list[Helper]:
    """Who may store enough into a device flag."""
    count = len(semantics.threads)
    found = [
        Helper(count + k) for k, row in enumerate(state.device.fifos)
        if count + k != me and any(x.kind == "store" and x.thing == flag and x.value >= value for x in row)
    ]  # fmt: skip
    for t in range(count):
        if t == me:
            continue
        loop = semantics.program.threads[t].kind == "loop"
        asked = ("stores", t, -1 if loop else state.at[t], flag, value)
        ways: list[int | None] | None = semantics.memo.get(asked)
        if ways is None:
            ways = semantics.memo[asked] = _ways(semantics, state, t, flag, value)
        found += [Helper(t, k) for k in ways if k is None or count + k != me]
    return found


def _ways(semantics: DeviceSemantics, state: State, t: int, flag: int, value: int) -> list[int | None]:
    """Streams on which a thread may still store enough into a device flag; None stands for the thread itself."""
    ways: set[int | None] = set()
    for n in ahead(semantics, state, t):
        for x in semantics.effects.get((t, n), ()):
            if isinstance(x, p.StoreFlag) and x.flag == flag and x.value >= value:
                stream = x.stream
                if stream is None:
                    ways.add(None)
                elif not isinstance(stream, p.Local):
                    ways |= {k for k, slot in enumerate(semantics.streams) if slot[0] == stream.id}
    return sorted(ways, key=lambda k: -1 if k is None else k)


def stuck(semantics: DeviceSemantics, state: State) -> set[int]:
    """Agents that surely wait for ever: whoever could end their wait is one of them, whatever lies ahead of the others."""
    count = len(semantics.threads)
    needs = {agent: groups(semantics, state, agent) for agent in semantics.ready(state) if semantics.obstacle(state, agent) is not None}
    found = set(needs)
    changed = True
    while changed:
        changed = False
        for agent in sorted(found):
            if all(
                any(h.agent not in found and (h.via is None or count + h.via not in found) for h in group)
                for group in needs[agent]
            ):  # fmt: skip
                found.discard(agent)
                changed = True
    return found
