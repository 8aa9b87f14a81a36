"""Livelock: threads that ask for ever, and wait for each other to change the answer."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from fencepost.model import program as p
from fencepost.proofs.liveness.graphs import Edge, components, edges_of, place, turn_of
from fencepost.proofs.liveness.reduce import reduced, waited_on
from fencepost.proofs.liveness.search import KNOWN, Graph, follows_device, graph_of, path
from fencepost.proofs.liveness.text import Node, operations, reachable

LIVELOCK = "livelock"

_TESTS = (p.QueueFull, p.QueueHolds, p.CellEmpty, p.FlagIsSet, p.CounterAtLeast, p.TryLock)


_none: set[object] = set()
"""Reduced programs without livelock: variants of a design often differ in nothing that anybody asks about."""


def livelocks(program: p.Program, limit: int, bounds: set[str], until: float = inf) -> Iterator[str]:
    """As `_polling`, of the reduced program first: only one with a livelock needs its places."""
    if not follows_device(program):
        small = reduced(program)
        key = (limit, tuple((thread.kind, thread.entry, thread.nodes) for thread in small.threads), waited_on(small))
        if key in _none:
            return
        missed: set[str] = set()
        if not any(True for _ in _polling(small, limit, missed, until)):
            if len(_none) >= KNOWN:
                _none.clear()
            if not missed:
                _none.add(key)
            bounds |= missed
            return
    yield from _polling(program, limit, bounds, until)


def _polling(program: p.Program, limit: int, bounds: set[str], until: float) -> Iterator[str]:
    """Tests that are asked for ever, and whose answer only threads that ask for ever themselves could change."""
    asked = [(node, question) for node, question in operations(program, *_TESTS) if program.threads[node[0]].kind == "loop"]
    tests = [
        (node, question, answer, changing) for node, question in asked for answer in ("no", "yes")
        if (changing := _changing(program, question, answer)) and any(program.threads[t].kind == "loop" for t, _ in changing)
        and any(_guarded(program.threads[t], n) for t, n in changing)
    ]  # fmt: skip
    if not tests:
        return
    graph = graph_of(program, limit, True, until)
    if graph.bounded is not None:
        bounds.add(graph.bounded)
    edges = edges_of(graph)
    unknown = set(range(len(graph.after), len(graph.states)))
    told: set[int] = set()
    before: dict[int, list[int]] = {}
    made: dict[Node, list[int]] = {}
    for begin, to, moves in edges:
        before.setdefault(to, []).append(begin)
        for move in moves:
            if move.item is None:
                made.setdefault((move.thread, move.node), []).append(begin)
    for node, question, answer, changing in tests:
        closed = set(range(len(graph.states))) - _reaching(before, made, changing, unknown)
        found = _polled(program, graph, edges, closed, node, answer, changing)
        if found is not None and found[1] not in told:  # one set of states, one livelock
            name = program.objects[_tested(question)].name
            other, state = found
            told.add(state)
            turn = turn_of(program, path(graph, state), node[0])
            why = (
                f"what would change that it never comes to{place(program, other)}" if other[0] == node[0]
                else f"{program.threads[other[0]].name}, which could change that{place(program, other)}, asks for ever too"
            )  # fmt: skip
            yield (
                f"{LIVELOCK} {name} - from step {turn} on {program.threads[node[0]].name} asks about {name} for ever and is told "
                f"{answer!r}{place(program, node)}: {why}"
            )


def _guarded(thread: p.Thread, node: int) -> bool:
    """Whether a test of the thread decides if it comes to the node; else nobody asks for ever in front of it."""
    return any(
        target != p.END and (target == node or node in reachable(thread, target))
        for asks in thread.nodes if isinstance(asks, p.Ask) and isinstance(asks.question, _TESTS)
        for _, target in asks.branches
    )  # fmt: skip


def _tested(q: p.Question) -> int:
    """The object that a test is about."""
    if isinstance(q, (p.QueueFull, p.QueueHolds)):
        return q.queue
    if isinstance(q, p.CellEmpty):
        return q.cell.id
    if isinstance(q, p.FlagIsSet):
        return q.flag
    if isinstance(q, p.CounterAtLeast):
        return q.counter
    assert isinstance(q, p.TryLock)
    return q.lock


def _changing(program: p.Program, q: p.Question, answer: str) -> set[Node]:
    """The operations that can change the answer to a test."""
    thing = _tested(q)

    if isinstance(q, (p.QueueFull, p.QueueHolds)):
        return {node for node, x in operations(program, p.Put if answer == "no" else p.Get) if x.queue == thing}
    if isinstance(q, p.CellEmpty):
        if answer == "yes":
            return {node for node, x in operations(program, p.CellSet) if x.cell.id == thing}
        clears = operations(program, p.CellClear, p.CellGet)
        return {node for node, x in clears if x.cell.id == thing and (isinstance(x, p.CellClear) or x.take)}
    if isinstance(q, p.FlagIsSet):
        return {node for node, x in operations(program, p.FlagSet if answer == "no" else p.FlagClear) if x.flag == thing}
    if answer == "yes":
        return set()
    if isinstance(q, p.CounterAtLeast):
        return {node for node, x in operations(program, p.CounterAdd) if x.counter == thing}
    return {node for node, x in operations(program, p.Unlock) if x.lock == thing}


def _reaching(
    before: dict[int, list[int]], made: dict[Node, list[int]], changing: set[Node], unknown: set[int]
) -> set[int]:
    """States from which one of the operations can still run, or from which it is not known.

    `before`: what leads to each state; `made`: the states from which each operation runs.
    """
    todo = list(unknown)
    for node in changing:
        todo += made.get(node, ())
    found: set[int] = set()
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += before.get(number, ())
    return found


def _polled(
    program: p.Program, graph: Graph, edges: list[Edge], closed: set[int], node: Node, answer: str, changing: set[Node]
) -> tuple[Node, int] | None:
    """(an operation that would change the answer, a first state of it) where the test is asked for ever."""
    within = [one for one in edges if one[0] in closed and one[1] in closed]
    for part in components(closed, within):
        asked: dict[Node, set[str]] = {}
        for begin, to, moves in within:
            if begin in part and to in part:
                for move in moves:
                    asked.setdefault((move.thread, move.node), set()).add(str(move.answer))
        if asked.get(node) != {answer}:
            continue
        for other in sorted(changing):
            thread = program.threads[other[0]]
            for (t, n), got in asked.items():
                asks = thread.nodes[n] if t == other[0] else None
                if not isinstance(asks, p.Ask) or not isinstance(asks.question, _TESTS):
                    continue
                missed = [target for way, target in asks.branches if way not in got and target != p.END]
                if any(other[1] == target or other[1] in reachable(thread, target) for target in missed):
                    return other, min(part)
    return None
