"""Starvation: a waiter that can go on again and again, and is passed over each time by others that take what it waits for.

Assumed of schedulers (docs/answers.md): whoever can go on, and still can after somebody else's step, goes on sooner or later.
So a waiter is passed over only where the very next step takes away what would have let it go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.liveness.conditions import condition_of, never_picked, waits_on_conditions
from fencepost.proofs.liveness.graphs import Edge, edges_of, fair, place, turn_of
from fencepost.proofs.liveness.moves import SHARED, Move
from fencepost.proofs.liveness.search import Graph, graph_of, path
from fencepost.proofs.liveness.text import Node, following, operations

STARVATION = "starvation"

_WAITS = (p.Put, p.Get, p.Take, p.Acquire, p.FlagWait, p.WaitFlag)
_TAKES = (p.Put, p.Get, p.Take, p.Acquire, p.TryLock, p.FlagClear, p.WaitFlag, p.StoreFlag)
_LETS_GO = (p.Put, p.Get, p.Give, p.Unlock, p.FlagSet, p.StoreFlag)

_AT_ONCE = (p.Drop, p.View, p.NewEvent, p.Maybe, p.Choose, p.TurnBelow)
"""What takes no time: the end of a reference, a name for something, a choice."""


def starvation(program: p.Program, limit: int, bounds: set[str], until: float = inf) -> Iterator[str]:
    """One sentence for each object for which a thread can wait for ever while others get it again and again."""
    contended = {}
    for thing, waits in sorted(_waits(program).items()):
        pairs = [(wait, takers) for wait in waits if _may_starve(program, thing, wait, takers := _takers(program, thing, wait))]
        if pairs:
            contended[thing] = pairs
    notified = waits_on_conditions(program)
    if not contended and not notified:
        return
    graph = graph_of(program, limit, False, until)
    if graph.bounded is not None:
        bounds.add(graph.bounded)
    edges = edges_of(graph)
    for thing, pairs in contended.items():
        for wait, takers in pairs:
            found = _starved(graph, edges, wait, takers)
            if found is not None:
                state, taker = found
                turn = turn_of(program, path(graph, state), wait[0])
                name = program.objects[thing].name
                yield (
                    f"{STARVATION} {name} - {program.threads[wait[0]].name} waits for {_what(program, thing)} since step {turn}"
                    f"{place(program, wait)}, and can be passed over for ever: {program.threads[taker[0]].name} "
                    f"{_taken(program, taker)}{place(program, taker)}"
                )
                break
    told: set[str] = set()
    for passed in notified:
        woken = passed.place.woken
        name = condition_of(program, woken) or program.objects[woken].name
        found = None if name in told else never_picked(graph, edges, passed)
        if found is not None:
            told.add(name)
            state, waker = found
            turn = turn_of(program, path(graph, state), passed.wait[0])
            yield (
                f"{STARVATION} {name} - {program.threads[passed.wait[0]].name} waits for condition {name} since step {turn}"
                f"{place(program, passed.wait)}, and can be passed over for ever: {program.threads[waker[0]].name} "
                f"wakes another one each time{place(program, waker)}"
            )


def _waits(program: p.Program) -> dict[int, list[Node]]:
    """Object -> nodes at which a thread waits for what another one can take away."""
    found: dict[int, list[Node]] = {}
    for node, x in operations(program, *_WAITS):
        thing = _waited(x)
        if thing is not None:
            found.setdefault(thing, []).append(node)
    return found


def _waited(x: Any) -> int | None:
    """The object that an operation may wait for while others get it."""
    if isinstance(x, (p.Put, p.Get)):
        return x.queue
    if isinstance(x, p.Take):
        return x.pool
    if isinstance(x, p.Acquire):
        return x.lock if x.edge else None  # one that orders nothing stands for calls that are one step (S11)
    if isinstance(x, p.FlagWait):
        return x.flag
    if isinstance(x, p.WaitFlag) and x.stream is None:
        return x.flag
    return None


def _takers(program: p.Program, thing: int, wait: Node) -> set[Node]:
    """Nodes of other threads that take away what lets the waiter go on, and that come again and again."""
    found: set[Node] = set()
    waiter = program.threads[wait[0]].nodes[wait[1]]
    assert isinstance(waiter, p.Do)
    for node, what in operations(program, *_TAKES):
        if node[0] == wait[0] or program.threads[node[0]].kind != "loop":
            continue
        if isinstance(what, (p.Put, p.Get)):
            takes = what.queue == thing and isinstance(what, type(waiter.operation))
        elif isinstance(what, p.Take):
            takes = what.pool == thing
        elif isinstance(what, (p.Acquire, p.TryLock)):
            takes = what.lock == thing
        else:
            takes = what.flag == thing
        if takes:
            found.add(node)
    return found


def _may_starve(program: p.Program, thing: int, wait: Node, takers: set[Node]) -> bool:
    """Whether somebody lets go of what is waited for, and another thread takes it, or the same one before it does anything else."""
    threads = {t for t, _ in takers}
    if not threads:
        return False
    for (t, n), x in operations(program, *_LETS_GO):
        if t == wait[0]:
            continue
        if isinstance(x, (p.Put, p.Get)):
            lets_go = x.queue == thing
        elif isinstance(x, p.Give):
            lets_go = x.pool == thing
        elif isinstance(x, p.Unlock):
            lets_go = x.lock == thing
        else:
            lets_go = x.flag == thing
        if lets_go and (threads - {t} or _goes_on_sharing(program.threads[t].nodes, n)):
            return True
    return False


def _goes_on_sharing(nodes: tuple[p.Node, ...], n: int) -> bool:
    """Whether the thread may come from node `n` to something that others notice with no step of its own in between that takes time."""
    todo, seen = [n], {n}
    while todo:
        for target in following(nodes[todo.pop()]):
            if target == p.END:
                return True
            node = nodes[target]
            what = node.operation if isinstance(node, p.Do) else node.question
            if isinstance(what, (*SHARED, *e.MEETINGS)):
                return True
            if isinstance(what, _AT_ONCE) and target not in seen:
                seen.add(target)
                todo.append(target)
    return False


def _starved(graph: Graph, edges: list[Edge], wait: Node, takers: set[Node]) -> tuple[int, Node] | None:
    """(a first state of a circle in which the wait lasts, who takes) if there is one.

    Own steps of a thread are one with the step before them. Somebody else may take what it let go of before they begin;
    the thread itself comes back after them, and by then the waiter has gone on. So such states are kept apart, by thread.
    """
    t, n = wait
    semantics, states, program = graph.semantics, graph.states, graph.semantics.program
    count = len(states)
    here = {number for number in range(len(graph.after)) if states[number].at[t] == n}
    free = {number for number in here if semantics.obstacle(states[number], t) is None and t in semantics.ready(states[number])}
    if not free or len(free) == len(here):
        return None
    kept: list[Edge] = []
    late: dict[int, set[int]] = {}
    """State in which the waiter can go on -> threads that have work of their own to do first."""
    for begin, to, moves in edges:
        if begin in here and to in free - {begin} and begin not in free and all(move.thread != t for move in moves):
            busy = any(_takes_time(program, move) for move in moves[1:])
            if busy:
                late.setdefault(to, set()).add(moves[0].thread)
            kept.append((begin, to + count * (1 + moves[0].thread) if busy else to, moves))
    for begin, to, moves in edges:
        if begin in here and to in here and to not in free and all(move.thread != t for move in moves):
            if begin not in free:
                kept.append((begin, to, moves))
            elif _one_of(moves[0], takers):  # it is taken at once
                kept.append((begin, to, moves))
                kept += [(begin + count * (1 + other), to, moves) for other in late.get(begin, ()) if other != moves[0].thread]
    nodes = here | {number + count * (1 + other) for number, others in late.items() for other in others}
    for part, within in fair(graph, nodes, kept):
        taken = [move for begin, _, moves in within for move in moves[:1] if begin % count in free and _one_of(move, takers)]
        if taken:
            return min(number % count for number in part), (taken[0].thread, taken[0].node)
    return None


def _one_of(move: Move, nodes: set[Node]) -> bool:
    return move.item is None and (move.thread, move.node) in nodes


def _takes_time(program: p.Program, move: Move) -> bool:
    if move.item is not None:
        return True
    node = program.threads[move.thread].nodes[move.node]
    return not isinstance(node.operation if isinstance(node, p.Do) else node.question, _AT_ONCE)


def _what(program: p.Program, thing: int) -> str:
    """What a thread waits for, of an object."""
    o = program.objects[thing]
    if isinstance(o, p.Pool):
        return f"a free token of {o.name}"
    if isinstance(o, p.Lock):
        return f"{'semaphore' if o.semaphore else 'lock'} {o.name}"
    return f"queue {o.name}" if isinstance(o, p.Queue) else f"flag {o.name}"


def _taken(program: p.Program, taker: Node) -> str:
    """What another thread does each time."""
    node = program.threads[taker[0]].nodes[taker[1]]
    what = node.operation if isinstance(node, p.Do) else node.question
    if isinstance(what, p.Take):
        return "takes each that comes back"
    if isinstance(what, (p.Acquire, p.TryLock)):
        return "takes it again as soon as it is free"
    if isinstance(what, p.Get):
        return "gets each item as soon as it is there"
    if isinstance(what, p.Put):
        return "fills the room as soon as there is some"
    if isinstance(what, p.FlagClear):
        return "clears it as soon as it is set"
    return "resets it as soon as it is stored"
