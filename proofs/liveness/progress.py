"""What is no wait that never ends, and still no progress as meant: over-waits, lost signals, starvation, livelock, in words.

Definitions (docs/answers.md): an *over-wait* is a host wait through a handle whose event was recorded again since the
handle was given; a *lost signal* a store to a device flag that no wait has reset yet; *starvation* is a cycle of states, fair to every thread that could move all the way round, in which a
thread waits for a token of a pool while others take tokens; *livelock* is a set of states that nothing leaves, in which
a thread asks the same test for ever and gets the same answer, because the threads that could change it keep asking too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.liveness.device import DeviceSemantics, meets, reachable
from fencepost.proofs.liveness.reduce import reduced, waited_on
from fencepost.proofs.liveness.search import KNOWN, Graph, explore, graph_of, path
from fencepost.proofs.liveness.states import Move

STATES = 4_000
"""States that each of the three is looked for in."""

OVER_WAIT, LOST, STARVATION, LIVELOCK = "over-wait", "lost signal", "starvation", "livelock"

_TESTS = (p.QueueFull, p.QueueHolds, p.CellEmpty, p.FlagIsSet, p.CounterAtLeast, p.TryLock)
Node = tuple[int, int]
Edge = tuple[int, int, tuple[Move, ...]]


def findings(program: p.Program, limit: int = STATES) -> tuple[str, ...]:
    """Name and sentence of each, over-waits first. Looks at `limit` states at most."""
    return (
        *_over_waits(program, limit), *_lost_signals(program, limit), *_starvation(program, limit), *_livelocks(program, limit),
    )  # fmt: skip


def _place(program: p.Program, node: Node) -> str:
    frames = _frames(program, node)
    return f" ({frames[0].file}:{frames[0].line})" if frames else ""


def _frames(program: p.Program, node: Node) -> tuple[p.Place, ...]:
    site = program.threads[node[0]].nodes[node[1]].site
    return program.places[site] if 0 <= site < len(program.places) else ()


def _do(program: p.Program) -> Iterator[tuple[Node, p.Operation]]:
    for t, thread in enumerate(program.threads):
        for n, node in enumerate(thread.nodes):
            if isinstance(node, p.Do):
                yield (t, n), node.operation


# ---------------------------------------------------------------- over-waits


def _over_waits(program: p.Program, limit: int) -> Iterator[str]:
    """Host waits for a later record than the one that the handle was given for (S23: bound to the latest at the call)."""
    given = any(
        isinstance(value, (p.Obj, p.Slot)) and isinstance(program.objects[value.id], p.Event)
        for _, operation in _do(program) if isinstance(operation, (p.Put, p.CellSet)) for value in operation.values
    )  # fmt: skip
    waited = any(isinstance(x, p.EventSync) and isinstance(x.event, p.Local) for _, x in _do(program))
    if not waited or not given:
        return
    semantics = graph_of(program, limit, True).semantics if meets(program) else DeviceSemantics(program, alone=True)
    assert isinstance(semantics, DeviceSemantics)
    if not meets(program):
        explore(semantics, limit, True)
    told: set[str] = set()
    for (t, n), state in sorted(semantics.waited_late.items(), key=lambda found: found[0]):
        effect = next(x for x in semantics.effects[t, n] if isinstance(x, e.JoinEvent))
        number = semantics.handle(state, t, effect.event)[1]
        event = program.objects[semantics.fixed[number][0]].name if number < len(semantics.fixed) else "event"
        if event in told:
            continue
        told.add(event)
        yield (
            f"{OVER_WAIT} {event} - {program.threads[t].name} waits for {event}{_place(program, (t, n))} when it may have been recorded "
            "again since its handle was given: it then waits for the later work as well"
        )


# ---------------------------------------------------------------- lost signals


def _lost_signals(program: p.Program, limit: int) -> Iterator[str]:
    """Stores to a device flag that its waits reset, which can meet a store that no wait has seen: the set is unordered with
    the reset, and two signals become one. Whether somebody then waits for ever is another question."""
    resets: dict[int, bool] = {}
    for _, operation in _do(program):
        if isinstance(operation, p.WaitFlag):
            resets[operation.flag] = resets.get(operation.flag, True) and operation.reset
    signals = {flag for flag, always in resets.items() if always}
    if not signals:
        return
    graph = graph_of(program, limit, True)
    assert isinstance(graph.semantics, DeviceSemantics)
    told: set[int] = set()
    for number, _, moves in _edges(graph):
        for move in moves[:1]:  # a store is a step of its own
            store = _stored(program, move)
            if store is None or store[1] not in signals - told or store[2] < 1:
                continue
            node, flag, _ = store
            if graph.states[number].device.words[graph.semantics.word[flag]] >= 1:
                told.add(flag)
                name = program.objects[flag].name
                turn = _turn(program, path(graph, number), node[0])
                yield (
                    f"{LOST} {name} - the store of {program.threads[node[0]].name}{_place(program, node)} can come before the wait has "
                    f"reset {name}, first in step {turn}: nobody sees that there were two"
                )


def _stored(program: p.Program, move: Move) -> tuple[Node, int, int] | None:
    """(node, device flag, value) of a move that stores."""
    if move.item is not None:
        item = move.item
        return ((item.thread, item.node), item.thing, item.value) if item.kind == "store" else None
    node = program.threads[move.thread].nodes[move.node]
    if isinstance(node, p.Do) and isinstance(node.operation, p.StoreFlag) and node.operation.stream is None:
        return (move.thread, move.node), node.operation.flag, node.operation.value
    return None


# ---------------------------------------------------------------- graphs


def _edges(graph: Graph) -> list[Edge]:
    return [(number, to, moves) for number, row in enumerate(graph.after) for to, moves in row]


def _components(nodes: Iterable[int], edges: list[Edge]) -> list[set[int]]:
    """Strongly connected components that hold an edge."""
    inside = set(nodes)
    forward: dict[int, list[int]] = {}
    loops = set()
    for begin, to, _ in edges:
        if begin in inside and to in inside:
            forward.setdefault(begin, []).append(to)
            if begin == to:
                loops.add(begin)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on: set[int] = set()
    result: list[set[int]] = []
    for root in sorted(inside):
        if root in index:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(forward.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            number, ahead = work[-1]
            for to in ahead:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(forward.get(to, ()))))
                    break
                if to in on:
                    low[number] = min(low[number], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[number])
                if low[number] == index[number]:
                    part = set()
                    while True:
                        last = stack.pop()
                        on.discard(last)
                        part.add(last)
                        if last == number:
                            break
                    if len(part) > 1 or part & loops:
                        result.append(part)
    return result


def _turn(program: p.Program, moves: Iterable[Move], thread: int) -> int:
    """The turn in which a thread is after these moves."""
    turn = 0
    for move in moves:
        if move.thread == thread and move.item is None:
            node = program.threads[thread].nodes[move.node]
            turn += (node.next if isinstance(node, p.Do) else dict(node.branches)[str(move.answer)]) == p.END
    return turn


# ---------------------------------------------------------------- starvation


def _starvation(program: p.Program, limit: int) -> Iterator[str]:
    """Waits for a pool's tokens that others take for ever, as they come back."""
    takers: dict[int, set[int]] = {}
    for (t, _), operation in _do(program):
        if isinstance(operation, p.Take) and program.threads[t].kind == "loop":
            takers.setdefault(operation.pool, set()).add(t)
    contended = {pool for pool, threads in takers.items() if len(threads) > 1}
    if not contended:
        return
    graph = graph_of(program, limit, False)
    edges = _edges(graph)
    for pool in sorted(contended):
        found = _starved(program, graph, edges, pool)
        if found is not None:
            yield found


def _starved(program: p.Program, graph: Graph, edges: list[Edge], pool: int) -> str | None:
    states, semantics = graph.states, graph.semantics
    for (t, n), operation in _do(program):
        if not isinstance(operation, p.Take) or operation.pool != pool or program.threads[t].kind != "loop":
            continue
        here = [number for number in range(len(graph.after)) if states[number].at[t] == n]
        for part in _components(here, [one for one in edges if all(move.thread != t for move in one[2])]):
            within = [one for one in edges if one[0] in part and one[1] in part]
            moved = {move.thread for one in within for move in one[2]}
            if t in moved:
                within = [one for one in within if all(move.thread != t for move in one[2])]
                moved = {move.thread for one in within for move in one[2]}
            takes = [
                (move.thread, move.node) for one in within for move in one[2]
                if move.item is None and _takes(program, move, pool)
            ]  # fmt: skip
            # Weakly fair: who could move all the way round does move.
            fair = all(
                agent in moved or any(agent not in semantics.ready(states[s]) or semantics.obstacle(states[s], agent) is not None for s in part)
                for agent in {agent for s in part for agent in semantics.ready(states[s])}
            )
            if takes and fair:
                turn = _turn(program, path(graph, min(part)), t)
                other = takes[0]
                name = program.objects[pool].name
                return (
                    f"{STARVATION} {name} - {program.threads[t].name} waits for a free token of {name} since step {turn}"
                    f"{_place(program, (t, n))}, and can be passed over for ever: {program.threads[other[0]].name} takes "
                    f"each that comes back{_place(program, other)}"
                )
    return None


def _takes(program: p.Program, move: Move, pool: int) -> bool:
    node = program.threads[move.thread].nodes[move.node]
    return isinstance(node, p.Do) and isinstance(node.operation, p.Take) and node.operation.pool == pool


# ---------------------------------------------------------------- livelock


_none: set[object] = set()
"""Reduced programs without livelock: variants of a design often differ in nothing that anybody asks about."""


def _livelocks(program: p.Program, limit: int) -> Iterator[str]:
    """As `_polling`, of the reduced program first: only one with a livelock needs its places."""
    if not meets(program):
        small = reduced(program)
        key = (limit, tuple((thread.kind, thread.entry, thread.nodes) for thread in small.threads), waited_on(small))
        if key in _none:
            return
        if not any(True for _ in _polling(small, limit)):
            if len(_none) >= KNOWN:
                _none.clear()
            _none.add(key)
            return
    yield from _polling(program, limit)


def _polling(program: p.Program, limit: int) -> Iterator[str]:
    """Tests that are asked for ever, and whose answer only threads that ask for ever themselves could change."""
    asked = [
        ((t, n), node.question) for t, thread in enumerate(program.threads) for n, node in enumerate(thread.nodes)
        if isinstance(node, p.Ask) and isinstance(node.question, _TESTS) and thread.kind == "loop"
    ]  # fmt: skip
    tests = [
        (node, question, answer, changing) for node, question in asked for answer in ("no", "yes")
        if (changing := _changing(program, question, answer)) and any(program.threads[t].kind == "loop" for t, _ in changing)
    ]  # fmt: skip
    if not tests:
        return
    graph = graph_of(program, limit, True)
    edges = _edges(graph)
    unknown = set(range(len(graph.after), len(graph.states)))
    told: set[int] = set()
    for node, question, answer, changing in tests:
        closed = set(range(len(graph.states))) - _reaching(edges, changing, unknown)
        found = _polled(program, graph, edges, closed, node, answer, changing)
        if found is not None and found[1] not in told:  # one set of states, one livelock
            name = program.objects[_tested(question)].name
            other, state = found
            told.add(state)
            turn = _turn(program, path(graph, state), node[0])
            yield (
                f"{LIVELOCK} {name} - from step {turn} on {program.threads[node[0]].name} asks about {name} for ever and is told "
                f"{answer!r}{_place(program, node)}: {program.threads[other[0]].name}, which could change that"
                f"{_place(program, other)}, asks for ever too"
            )


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

    def changes(x: p.Operation) -> bool:
        if isinstance(q, (p.QueueFull, p.QueueHolds)):
            return isinstance(x, p.Put if answer == "no" else p.Get) and x.queue == thing
        if isinstance(q, p.CellEmpty):
            if answer == "yes":
                return isinstance(x, p.CellSet) and x.cell.id == thing
            return (isinstance(x, p.CellClear) or (isinstance(x, p.CellGet) and x.take)) and x.cell.id == thing
        if isinstance(q, p.FlagIsSet):
            return isinstance(x, p.FlagSet if answer == "no" else p.FlagClear) and x.flag == thing
        if isinstance(q, p.CounterAtLeast):
            return answer == "no" and isinstance(x, p.CounterAdd) and x.counter == thing
        return answer == "no" and isinstance(x, p.Unlock) and x.lock == thing

    return {node for node, operation in _do(program) if changes(operation)}


def _reaching(edges: list[Edge], changing: set[Node], unknown: set[int]) -> set[int]:
    """States from which one of the operations can still run, or from which it is not known."""
    before: dict[int, list[int]] = {}
    todo = list(unknown)
    for begin, to, moves in edges:
        before.setdefault(to, []).append(begin)
        if any((move.thread, move.node) in changing for move in moves if move.item is None):
            todo.append(begin)
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
    for part in _components(closed, within):
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
