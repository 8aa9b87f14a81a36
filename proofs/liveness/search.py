"""The search for a wait that never ends: all states, then backwards from those in which the waiter can move."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.proofs.liveness.reduce import reduced
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
    small = _search(reduced(program), limit)
    return small if small.hang is None else _search(program, limit)


def _search(program: p.Program, limit: int) -> Liveness:
    semantics = Semantics(program)
    start = semantics.start()
    parents: dict[State, tuple[State, tuple[Move, ...]] | None] = {start: None}
    before: dict[State, list[State]] = {start: []}
    free: dict[int, list[State]] = {thread: [] for thread in range(len(program.threads))}
    """For each thread the states in which it is not blocked."""
    queue = deque([start])
    order: list[State] = []
    bounded: str | None = None
    while queue:
        state = queue.popleft()
        order.append(state)
        ready = set(semantics.ready(state))
        for thread in free:
            if thread not in ready or semantics.obstacle(state, thread) is None:
                free[thread].append(state)
        for thread in ready:
            try:
                for moves, after in semantics.successors(state, thread):
                    if after not in parents:
                        parents[after] = (state, moves)
                        before[after] = []
                        queue.append(after)
                    before[after].append(state)
            except Bounded as reason:
                bounded = str(reason)
                # What lies behind is unknown, so nothing here may be called stuck.
                for other in free:
                    free[other].append(state)
        if len(order) >= limit:
            bounded = f"{limit} states were looked at, and there are more"
            for rest in queue:
                for thread in free:
                    free[thread].append(rest)
            break
    hopeful = {thread: _backwards(states, before) for thread, states in free.items()}
    first: Hang | None = None
    for state in order:
        stuck = [t for t in semantics.ready(state) if state not in hopeful[t]]
        if not stuck:
            continue
        hang = _hang(semantics, state, stuck, parents)
        first = first or hang
        # A thread may be lost before those that it waits for have stopped too: the report waits for the whole circle.
        running = set(semantics.ready(state)) - set(stuck)
        if not any(running & set(sources) for sources in hang.sources):
            return Liveness(hang, len(order), bounded)
    return Liveness(first, len(order), bounded)


def _backwards(states: list[State], before: dict[State, list[State]]) -> set[State]:
    """States from which one of `states` can be reached."""
    seen = set(states)
    todo = list(states)
    while todo:
        for earlier in before.get(todo.pop(), ()):
            if earlier not in seen:
                seen.add(earlier)
                todo.append(earlier)
    return seen


def _hang(
    semantics: Semantics, state: State, stuck: list[int],
    parents: dict[State, tuple[State, tuple[Move, ...]] | None],
) -> Hang:  # fmt: skip
    moves: list[Move] = []
    now = state
    while True:
        origin = parents[now]
        if origin is None:
            break
        now, done = origin
        moves[:0] = done
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
