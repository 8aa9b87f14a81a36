"""What the text of a program says before anything runs: who names what, what may come after what, which locals are still needed."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p

_ON_STREAMS = (
    e.RecordEvent, e.JoinStream, e.StreamJoinsEvent, e.StreamJoinsStream, p.Signal, p.Await, p.StoreFlag, p.WaitFlag,
)  # fmt: skip


Node = tuple[int, int]
"""(thread, its node)."""

_read: list[tuple[p.Program, dict[type, list[tuple[Node, Any]]]]] = []
"""The programs that were read last, and what is in them: much is asked of one, and of what it was reduced to."""


def operations(program: p.Program, *kinds: type) -> list[tuple[Node, Any]]:
    """Every operation and question of these kinds, in the order of the text."""
    known = next((rows for one, rows in _read if one is program), None)
    if known is None:
        known = {}
        for t, thread in enumerate(program.threads):
            for n, node in enumerate(thread.nodes):
                what = node.operation if isinstance(node, p.Do) else node.question
                known.setdefault(type(what), []).append(((t, n), what))
        _read[:] = [(program, known), *_read[:1]]
    found = [known[kind] for kind in kinds if kind in known]
    if len(found) <= 1:
        return found[0] if found else []
    return sorted([one for row in found for one in row], key=itemgetter(0))


def meets(program: p.Program) -> bool:
    """Whether something of the program can be pending in a stream."""
    return bool(operations(program, *e.MEETINGS))


def turn_ends(thread: p.Thread) -> bool:
    """Whether no circle of nodes lies within a turn: nodes without a way out are taken away until none is left."""
    into: dict[int, list[int]] = {}
    left: dict[int, int] = {}
    for number, node in enumerate(thread.nodes):
        targets = {node.next} if isinstance(node, p.Do) else {target for _, target in node.branches}
        targets.discard(p.END)
        left[number] = len(targets)
        for target in targets:
            into.setdefault(target, []).append(number)
    todo = [number for number, count in left.items() if count == 0]
    gone = 0
    while todo:
        gone += 1
        for number in into.get(todo.pop(), ()):
            left[number] -= 1
            if left[number] == 0:
                todo.append(number)
    return gone == len(thread.nodes)


def end_of(what: p.Operation | p.Question) -> str:
    """At which end of a queue something works; "" if at none."""
    if isinstance(what, p.Put):
        return "put"
    if isinstance(what, (p.Get, p.QueueTag)):
        return "get"
    return "test" if isinstance(what, (p.QueueFull, p.QueueHolds)) else ""


def questions(thread: p.Thread) -> Iterator[p.Question]:
    return (node.question for node in thread.nodes if isinstance(node, p.Ask))


def waits_by_turn(thread: p.Thread) -> bool:
    """Whether the thread compares a counter with its turn."""
    operations = (node.operation for node in thread.nodes if isinstance(node, p.Do))
    return any(isinstance(operation, p.CounterWait) and operation.per_turn for operation in operations)


def slots(program: p.Program, kind: type) -> list[tuple[int, int]]:
    return [
        (i, slot) for i, thing in enumerate(program.objects) if isinstance(thing, kind)
        for slot in range(getattr(thing, "depth", None) or 1)
    ]  # fmt: skip


def operands(program: p.Program, effect: e.Effect) -> set[int]:
    """Streams and events that an effect names, where it decides who can move."""
    if isinstance(effect, e.JoinDevice):
        return {
            i for i, thing in enumerate(program.objects)
            if isinstance(thing, p.Stream) and (thing.gpu, thing.process) == (effect.gpu, effect.process)
        }  # fmt: skip
    result = set()
    if isinstance(effect, (*_ON_STREAMS, e.JoinEvent)):
        for name in ("stream", "event", "other"):
            operand = getattr(effect, name, None)
            if isinstance(operand, (p.Obj, p.Slot)):
                result.add(operand.id)
    if isinstance(effect, p.Give) and isinstance(effect.after, (p.Obj, p.Slot)):
        result.add(effect.after.id)
    return result


def host_objects(what: p.Operation | p.Question) -> set[int]:
    """The queue, cell, pool, lock, flag, counter or cursor that something is done with or asked about."""
    if isinstance(what, e.MEETINGS):
        return set()  # streams use the flags, too
    found = {getattr(what, name) for name in ("queue", "pool", "lock", "flag", "counter", "cursor") if hasattr(what, name)}
    cell = getattr(what, "cell", None)
    if isinstance(cell, (p.Obj, p.Slot)):
        found.add(cell.id)
        if isinstance(cell, p.Slot) and isinstance(cell.index, p.Last):
            found.add(cell.index.cursor)
    return found


def recorded_late(thread: p.Thread) -> bool:
    """Whether an event is recorded through a local that was received, or that was handed over before."""
    received = {
        local for node in thread.nodes if isinstance(node, p.Do) and isinstance(node.operation, (p.Get, p.CellGet))
        for local in node.operation.locals
    }  # fmt: skip
    given = {
        value.id for node in thread.nodes if isinstance(node, p.Do) and isinstance(node.operation, (p.Put, p.CellSet))
        for value in node.operation.values if isinstance(value, p.Local)
    }  # fmt: skip
    for n, node in enumerate(thread.nodes):
        if isinstance(node, p.Do) and isinstance(node.operation, p.Record) and isinstance(node.operation.event, p.Local):
            local = node.operation.event.id
            if local in received or (local in given and _given_before(thread, local, n)):
                return True
    return False


def _given_before(thread: p.Thread, local: int, record: int) -> bool:
    """Whether a hand-over of the local can come before node `record` in the turn."""
    begin = [
        n for n, node in enumerate(thread.nodes) if isinstance(node, p.Do) and isinstance(node.operation, (p.Put, p.CellSet))
        and any(isinstance(value, p.Local) and value.id == local for value in node.operation.values)
    ]  # fmt: skip
    return any(record in reachable(thread, n) for n in begin)


def following(node: p.Node) -> list[int]:
    """Nodes that may come next."""
    return [node.next] if isinstance(node, p.Do) else [target for _, target in node.branches]


def reachable(thread: p.Thread, start: int) -> set[int]:
    """Nodes of the turn that may come after node `start`; itself only on a circle."""
    seen: set[int] = set()
    todo = following(thread.nodes[start])
    while todo:
        n = todo.pop()
        if n != p.END and n not in seen:
            seen.add(n)
            todo += following(thread.nodes[n])
    return seen


def live(thread: p.Thread) -> list[frozenset[int]]:
    """For each node the locals that it, or a later node of the turn, names."""
    named = []
    for node in thread.nodes:
        what = node.operation if isinstance(node, p.Do) else node.question
        named.append({operand.id for operand in _locals(what)})
    before: list[list[int]] = [[] for _ in thread.nodes]
    for n, node in enumerate(thread.nodes):
        for m in following(node):
            if m != p.END:
                before[m].append(n)
    todo = [n for n, row in enumerate(named) if row]
    while todo:
        m = todo.pop()
        for n in before[m]:
            if not named[m] <= named[n]:
                named[n] |= named[m]
                todo.append(n)
    return [frozenset(row) for row in named]


def _locals(value: Any) -> Iterator[p.Local]:
    if isinstance(value, p.Local):
        yield value
    elif isinstance(value, p.Data):
        for name in value.__struct_fields__:
            yield from _locals(getattr(value, name))
    elif isinstance(value, tuple):
        for one in value:
            yield from _locals(one)
