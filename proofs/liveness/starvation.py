"""Starvation: a waiter that can go on again and again, and is passed over each time by others that take what it waits for.

Assumed of schedulers (docs/answers.md): whoever can go on, and still can after somebody else's step, goes on sooner or later.
So a waiter is passed over only where the very next step takes away what would have let it go on.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.liveness.graphs import Edge, Node, components, edges_of, operations, place, turn_of
from fencepost.proofs.liveness.moves import SHARED, Move
from fencepost.proofs.liveness.search import Graph, graph_of, path

STARVATION = "starvation"

_AT_ONCE = (p.Drop, p.View, p.NewEvent)
"""Operations that take no time: the end of a reference, a name for something."""


def starvation(program: p.Program, limit: int, bounds: set[str]) -> Iterator[str]:
    """One sentence for each object for which a thread can wait for ever while others get it again and again."""
    contended = {}
    for thing, waits in sorted(_waits(program).items()):
        pairs = [(wait, takers) for wait in waits if (takers := _takers(program, thing, wait))]
        if pairs and _let_go_at_once(program, thing):
            contended[thing] = pairs
    if not contended:
        return
    graph = graph_of(program, limit, False)
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


def _waits(program: p.Program) -> dict[int, list[Node]]:
    """Object -> nodes at which a thread waits for what another one can take away."""
    found: dict[int, list[Node]] = {}
    for node, x in operations(program):
        thing = _waited(x)
        if thing is not None:
            found.setdefault(thing, []).append(node)
    return found


def _waited(x: p.Operation) -> int | None:
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
    for t, thread in enumerate(program.threads):
        if t == wait[0] or thread.kind != "loop":
            continue
        for n, node in enumerate(thread.nodes):
            what = node.operation if isinstance(node, p.Do) else node.question
            if isinstance(what, (p.Put, p.Get)):
                takes = what.queue == thing and isinstance(what, type(waiter.operation))
            elif isinstance(what, p.Take):
                takes = what.pool == thing
            elif isinstance(what, (p.Acquire, p.TryLock)):
                takes = what.lock == thing
            elif isinstance(what, (p.FlagClear, p.WaitFlag, p.StoreFlag)):
                takes = what.flag == thing
            else:
                takes = False
            if takes:
                found.add((t, n))
    return found


def _let_go_at_once(program: p.Program, thing: int) -> bool:
    """Whether somebody lets go of what is waited for and does nothing, before others have their turn, that takes time."""
    for (t, n), x in operations(program):
        if isinstance(x, (p.Put, p.Get)):
            lets_go = x.queue == thing
        elif isinstance(x, p.Give):
            lets_go = x.pool == thing
        elif isinstance(x, p.Unlock):
            lets_go = x.lock == thing
        else:
            lets_go = isinstance(x, (p.FlagSet, p.StoreFlag)) and x.flag == thing
        if lets_go:
            nodes = program.threads[t].nodes
            node: p.Node | None = nodes[n]
            assert isinstance(node, p.Do)
            node = None if node.next == p.END else nodes[node.next]
            while isinstance(node, p.Do) and isinstance(node.operation, _AT_ONCE):
                node = None if node.next == p.END else nodes[node.next]
            if not isinstance(node, p.Do) or isinstance(node.operation, (*SHARED, *e.MEETINGS)):
                return True
    return False


def _starved(graph: Graph, edges: list[Edge], wait: Node, takers: set[Node]) -> tuple[int, Node] | None:
    """(a first state of a circle in which the wait lasts, who takes) if there is one."""
    t, n = wait
    semantics, states, program = graph.semantics, graph.states, graph.semantics.program
    here = {number for number in range(len(graph.after)) if states[number].at[t] == n}
    free = {number for number in here if semantics.obstacle(states[number], t) is None and t in semantics.ready(states[number])}
    if not free or len(free) == len(here):
        return None
    kept = [
        (begin, to, moves) for begin, to, moves in edges
        if begin in here and to in here and all(move.thread != t for move in moves)
        and not (begin in free and (to in free or not _one_of(moves[0], takers)))  # it is taken at once
        and not (to in free and any(_takes_time(program, move) for move in moves[1:]))  # nobody does anything else first
    ]  # fmt: skip
    for part in components(here, kept):
        within = [one for one in kept if one[0] in part and one[1] in part]
        taken = [move for begin, _, moves in within for move in moves[:1] if begin in free and _one_of(move, takers)]
        if taken and _fair(graph, part, within):
            return min(part), (taken[0].thread, taken[0].node)
    return None


def _one_of(move: Move, nodes: set[Node]) -> bool:
    return move.item is None and (move.thread, move.node) in nodes


def _takes_time(program: p.Program, move: Move) -> bool:
    node = program.threads[move.thread].nodes[move.node] if move.item is None else None
    return node is None or (isinstance(node, p.Do) and not isinstance(node.operation, _AT_ONCE))


def _fair(graph: Graph, part: set[int], within: list[Edge]) -> bool:
    """Whether nobody who does not move on the circle could, and still could after another one's step."""
    semantics, states = graph.semantics, graph.states
    moved = {move.thread for _, _, moves in within for move in moves}

    def can(number: int, agent: int) -> bool:
        state = states[number]
        return agent in semantics.ready(state) and semantics.obstacle(state, agent) is None

    others = {agent for number in part for agent in semantics.ready(states[number])} - moved
    return not any(can(begin, agent) and can(to, agent) for agent in others for begin, to, _ in within)


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
