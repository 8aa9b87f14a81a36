"""The search for a wait that never ends: all states, then backwards from those in which the waiter can move."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.proofs.liveness.reduce import reduced, waited_on
from fencepost.proofs.liveness.states import Bounded, Move, Semantics, State

STATES = 50_000
"""States that are looked at before the answer is bounded."""


class Waiter(NamedTuple):
    """A thread that waits for ever: at `node`, for object `obstacle`, in its turn `turn` (0-based)."""

    thread: int
    node: int
    obstacle: int
    turn: int


class Hang(NamedTuple):
    """Waiters of one state, each with the threads that could end its wait; `run` leads there by host steps."""

    waiters: tuple[Waiter, ...]
    sources: tuple[tuple[int, ...], ...]
    run: Run

    def cycle(self) -> tuple[int, ...]:
        """Positions in `waiters` that wait for each other in a circle; empty when a source has ended or is missing."""
        place = {waiter.thread: number for number, waiter in enumerate(self.waiters)}
        for begin in range(len(self.waiters)):
            path = [begin]
            while True:
                me = self.waiters[path[-1]].thread
                following = [place[thread] for thread in self.sources[path[-1]] if thread in place and thread != me]
                if not following:
                    break
                if following[0] in path:
                    return tuple(path[path.index(following[0]) :])
                path.append(following[0])
        return ()


class Liveness(NamedTuple):
    """`hang`: a shortest one, or None. `bounded`: why not all states were looked at; None when they were."""

    hang: Hang | None
    states: int
    bounded: str | None = None


def search(program: p.Program, limit: int = STATES) -> Liveness:
    """Whether some thread can come to wait for ever.

    A wait for an item, flag, condition, token or room that some continuation provides is no hang. Looks at every state
    when the design has back-pressure, so that states repeat; otherwise at `limit` of them, and says so. A reduced program
    is searched first; only a hang, which needs its run, is searched for in the program itself.
    """
    small = reduced(program)
    key = (limit, tuple((thread.kind, thread.entry, thread.nodes) for thread in small.threads), waited_on(small))
    found = _known.get(key)
    if found is None:
        if len(_known) >= KNOWN:
            _known.clear()
        found = _known[key] = _search(small, limit, alone=True)
    return found if found.hang is None else _search(program, limit)


KNOWN = 256
"""Reduced programs whose answer is kept: variants of a design often differ in nothing that anybody waits for."""

_known: dict[object, Liveness] = {}


def _search(program: p.Program, limit: int, alone: bool = False) -> Liveness:
    """`alone` looks at fewer states: whether there is a hang stays, but its run is no shortest one."""
    semantics = Semantics(program, alone)
    start = semantics.start()
    states = [start]
    numbers = {start: 0}
    parents: list[tuple[int, tuple[Move, ...]]] = [(-1, ())]
    after: list[list[int]] = []
    blocked: dict[int, list[int]] = {thread: [] for thread in range(len(program.threads))}
    """For each thread the states in which it waits."""
    bounded: str | None = None
    while len(after) < len(states):
        number = len(after)
        state = states[number]
        following: list[int] = []
        after.append(following)
        waits, unknown = [], False
        ready = semantics.ready(state)
        only = semantics.alone(state, ready) if alone else None
        for thread in ready:
            if semantics.obstacle(state, thread) is not None:
                waits.append(thread)
                continue
            if only is not None and thread != only:
                continue
            try:
                for moves, then in semantics.successors(state, thread):
                    to = numbers.setdefault(then, len(states))
                    if to == len(states):
                        states.append(then)
                        parents.append((number, moves))
                    following.append(to)
            except Bounded as reason:
                bounded, unknown = str(reason), True
        if not unknown:  # what lies behind is unknown otherwise, so nothing here may be called stuck
            for thread in waits:
                blocked[thread].append(number)
        if len(after) >= limit:
            bounded = f"{limit} states were looked at, and there are more"
            break
    stuck_in: dict[int, list[int]] = {}
    for thread, waiting in blocked.items():
        for number in _hopeless(waiting, after):
            stuck_in.setdefault(number, []).append(thread)
    first: Hang | None = None
    for number in sorted(stuck_in):
        state, stuck = states[number], stuck_in[number]
        hang = _hang(semantics, states, number, stuck, parents)
        first = first or hang
        # A thread may be lost before those that it waits for have stopped too: the report waits for the whole circle.
        running = set(semantics.ready(state)) - set(stuck)
        if not any(running & set(sources) for sources in hang.sources):
            return Liveness(hang, len(after), bounded)
    return Liveness(first, len(after), bounded)


def _hopeless(waiting: list[int], after: list[list[int]]) -> set[int]:
    """Those of the states in which a thread waits that lead to none in which it does not."""
    left = set(waiting)
    before: dict[int, list[int]] = {}
    todo: list[int] = []
    for number in waiting:
        if all(to in left for to in after[number]):
            for to in after[number]:
                before.setdefault(to, []).append(number)
        else:
            todo.append(number)
    while todo:
        number = todo.pop()
        if number in left:
            left.discard(number)
            todo += before.get(number, ())
    return left


def _hang(
    semantics: Semantics, states: list[State], number: int, stuck: list[int], parents: list[tuple[int, tuple[Move, ...]]]
) -> Hang:
    state = states[number]
    path: list[tuple[Move, ...]] = []
    while number > 0:
        number, done = parents[number]
        path.append(done)
    moves = [move for done in reversed(path) for move in done]
    program = semantics.program
    turns = [0] * len(program.threads)
    for move in moves:
        node = program.threads[move.thread].nodes[move.node]
        following = node.next if isinstance(node, p.Do) else dict(node.branches)[str(move.answer)]
        turns[move.thread] += following == p.END
    waiters, sources = [], []
    for thread in stuck:
        obstacle = semantics.obstacle(state, thread)
        assert obstacle is not None
        waiters.append(Waiter(thread, state.at[thread], obstacle, turns[thread]))
        sources.append(tuple(_sources(program, thread, state.at[thread])))
    return Hang(tuple(waiters), tuple(sources), Run(tuple(Step(m.thread, m.node, m.answer) for m in moves)))


def _sources(program: p.Program, waiter: int, node_id: int) -> list[int]:
    """Threads with an operation that could end the wait at this node."""
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
