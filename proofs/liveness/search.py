"""The search for a wait that never ends: all states, then backwards from those in which the waiter can move."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.proofs.liveness.device import DeviceSemantics
from fencepost.proofs.liveness.helpers import gone, groups, mismatch, stuck
from fencepost.proofs.liveness.moves import Bounded, Move, State
from fencepost.proofs.liveness.pending import Item
from fencepost.proofs.liveness.reduce import asks, reduced, waited_on
from fencepost.proofs.liveness.states import Semantics
from fencepost.proofs.liveness.text import meets

STATES = 50_000
"""States that are looked at before the answer is bounded."""

LOOKS = 64
"""States between two looks at the clock."""

TIME_OVER = "the time of the check was over before all states were looked at"


class Waiter(NamedTuple):
    """An agent that waits for ever: at `node`, for object `obstacle`, in its turn `turn` (0-based).

    A thread, or with a number behind the threads a stream: then `item` is what waits there, enqueued at its node in
    that turn of its thread, and `stream` the stream's name.
    """

    thread: int
    node: int
    obstacle: int | str
    turn: int
    item: Item | None = None
    stream: str = ""


class Hang(NamedTuple):
    """Waiters of one state, each with the agents that could end its wait; `run` leads there.

    `moves` are its steps with what streams ran; `mismatched` are streams with another tag in front of them than theirs;
    `gone` are for each waiter the threads that could have ended its wait and are past that, each with whether it has ended.
    """

    waiters: tuple[Waiter, ...]
    sources: tuple[tuple[int, ...], ...]
    run: Run
    moves: tuple[Move, ...] = ()
    mismatched: tuple[tuple[int, str], ...] = ()
    gone: tuple[tuple[tuple[int, bool], ...], ...] = ()

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


def search(program: p.Program, limit: int = STATES, until: float = inf) -> Liveness:
    """Whether some thread, or some stream, can come to wait for ever.

    A wait for an item, flag, condition, token or room that some continuation provides is no hang. Looks at every state
    when the design has back-pressure, so that states repeat; otherwise at `limit` of them, or at what it comes to `until`
    then (`time.monotonic`), and says so. A reduced program is searched first; only a hang, which needs its run, is
    searched for in the program itself.
    """
    if follows_device(program):
        if len(program.threads) == 1 and not meets(program):
            # Nobody else could end its wait, so it hangs where it cannot move; and it comes to no more states than where
            # every query may go either way.
            small = reduced(program)
            free = _search(small, limit, True, Semantics(small, alone=True), until)
            if free.hang is None and free.bounded is None:
                return free
        found = _search(program, limit, alone=True, until=until)
        if found.hang is None:
            return found
        shortest = _search(program, min(limit, SHORTEST), until=until)
        for one in (shortest, found):
            if one.hang is not None and _happens(program, one.hang):
                return one
        return found._replace(hang=None, bounded="the hang that was found needs a query to say no of work that is complete")
    small = reduced(program)
    key = (limit, tuple((thread.kind, thread.entry, thread.nodes, thread.idle) for thread in small.threads), waited_on(small))
    known = _known.get(key)
    if known is None:
        known = _search(small, limit, alone=True, until=until)
        if len(_known) >= KNOWN:
            _known.clear()
        if known.bounded != TIME_OVER:
            _known[key] = known
    return known if known.hang is None else _search(program, limit, until=until)


def follows_device(program: p.Program) -> bool:
    """Whether it depends on what streams do who can move: something may be pending in one, or the answer to a query matters."""
    return meets(program) or (asks(program) and asks(reduced(program)))


def semantics_of(program: p.Program, alone: bool) -> Semantics:
    """What the states of a program are made of."""
    return DeviceSemantics(program, alone) if follows_device(program) else Semantics(program, alone)


def _happens(program: p.Program, hang: Hang) -> bool:
    """Whether the run can happen. What a query may say follows from more than is kept here: a "no" may be impossible."""
    from fencepost.model.events import InvalidRun, Player

    if not asks(program):
        return True
    try:
        Player(program).play(hang.run)
    except InvalidRun:
        return False
    return True


SHORTEST = 5_000
"""States of a program with meetings in which a shorter run to a hang is looked for."""

KNOWN = 256
"""Reduced programs whose answer is kept: variants of a design often differ in nothing that anybody waits for."""

_known: dict[object, Liveness] = {}


_latest: list[Graph] = []
"""All states of the program, reduced or with meetings, that was searched last: what else is asked need not look again."""


def graph_of(program: p.Program, limit: int, alone: bool, until: float = inf) -> Graph:
    """The states of a program, looked at once where the search for a hang has just done so."""
    if alone and _latest and _latest[0].semantics.program is program and (
        follows_device(program) or (_latest[0].bounded is None and len(_latest[0].states) <= limit)
    ):  # fmt: skip
        return _latest[0]
    semantics = semantics_of(program, alone)
    return explore(semantics, limit, alone, until=until)


class Graph(NamedTuple):
    """States and what leads from each to which: (state, moves)."""

    semantics: Semantics
    states: list[State]
    after: list[list[tuple[int, tuple[Move, ...]]]]
    parents: list[tuple[int, tuple[Move, ...]]]
    blocked: dict[int, list[int]]
    """For each agent the states in which it waits, all ways on from there being known."""
    bounded: str | None


def _search(
    program: p.Program, limit: int, alone: bool = False, semantics: Semantics | None = None, until: float = inf
) -> Liveness:
    """`alone` looks at fewer states: whether there is a hang stays, but its run is no shortest one."""
    semantics = semantics or semantics_of(program, alone)
    surely: tuple[int, set[int]] | None = None

    def ended(number: int, state: State) -> bool:
        """Whether a state with a hang was met, and nobody who could take part in it is still on its way there."""
        nonlocal surely
        if not isinstance(semantics, DeviceSemantics):
            return False
        lost = stuck(semantics, state)
        missed = {agent for agent in lost if not _idle(semantics, state, agent)}
        if not missed:
            return False
        surely = surely or (number, missed)
        if not _running(semantics, state, lost):
            surely = (number, missed)
            return True
        return False

    graph = explore(semantics, limit, alone, ended, until)
    if surely is None and alone:
        _latest[:] = [graph]
    if surely is not None:
        number, lost = surely
        return Liveness(_hang(graph, number, sorted(lost)), len(graph.after), graph.bounded)
    stuck_in: dict[int, list[int]] = {}
    for agent, waiting in graph.blocked.items():
        for number in _hopeless(graph, agent, waiting):
            stuck_in.setdefault(number, []).append(agent)
    first: Hang | None = None
    for number in sorted(stuck_in):
        lost_in = sorted(stuck_in[number])
        hang = _hang(graph, number, lost_in)
        first = first or hang
        # A thread may be lost before those that it waits for have stopped too: the report waits for the whole circle.
        if not _running(semantics, graph.states[number], set(lost_in)):
            return Liveness(hang, len(graph.after), graph.bounded)
    return Liveness(first, len(graph.after), graph.bounded)


def _idle(semantics: Semantics, state: State, agent: int) -> bool:
    """Whether the agent waits for work that nobody need give it."""
    if agent >= len(semantics.threads):
        return False
    return semantics.threads[agent].idle and semantics.begins(agent, state.at[agent])


def _running(semantics: Semantics, state: State, lost: set[int]) -> bool:
    """Whether somebody who could help one of the lost is not lost itself."""
    alive = set(semantics.ready(state)) - lost
    return any(helper.agent in alive for agent in lost for group in groups(semantics, state, agent) for helper in group)


def explore(
    semantics: Semantics, limit: int, alone: bool, ended: Callable[[int, State], bool] = lambda _n, _s: False, until: float = inf
) -> Graph:
    """All states, shortest first; not those behind one for which `ended` is true."""
    start = semantics.start()
    states = [start]
    numbers = {start: 0}
    parents: list[tuple[int, tuple[Move, ...]]] = [(-1, ())]
    after: list[list[tuple[int, tuple[Move, ...]]]] = []
    blocked: dict[int, list[int]] = {}
    bounded: str | None = None
    while len(after) < len(states):
        number = len(after)
        state = states[number]
        following: list[tuple[int, tuple[Move, ...]]] = []
        after.append(following)
        unknown = False
        if ended(number, state):
            break
        waits: list[int] = []
        able: list[int] = []
        for agent in semantics.ready(state):
            (able if semantics.obstacle(state, agent) is None else waits).append(agent)
        only = semantics.alone(state, able) if alone else None
        if only is not None:
            able.sort(key=lambda agent: agent != only)
        for agent in able:
            if only is not None and agent != only:
                # What goes first alone must lead on, whichever way: otherwise the others would be put off for ever, round a
                # circle of states. Of each circle the last state leads back, and there all go.
                if following and all(to > number for to, _ in following):
                    break
                only = None
            try:
                for moves, then in semantics.successors(state, agent):
                    to = numbers.setdefault(then, len(states))
                    if to == len(states):
                        states.append(then)
                        parents.append((number, moves))
                    following.append((to, moves))
            except Bounded as reason:
                bounded, unknown = str(reason), True
        if not unknown:  # what lies behind is unknown otherwise, so nothing here may be called stuck
            for agent in waits:
                if not _idle(semantics, state, agent):
                    blocked.setdefault(agent, []).append(number)
        if len(after) >= limit:
            bounded = f"{limit} states were looked at, and there are more"
            break
        if len(after) % LOOKS == 0 and time.monotonic() > until:
            bounded = TIME_OVER
            break
    return Graph(semantics, states, after, parents, blocked, bounded)


def _hopeless(graph: Graph, agent: int, waiting: list[int]) -> set[int]:
    """Those of the states in which an agent waits that lead to none in which it does not, or its wait has ended."""
    left = set(waiting)
    before: dict[int, list[int]] = {}
    todo: list[int] = []
    semantics = graph.semantics
    for number in waiting:
        steps = [to for to, _ in graph.after[number]]
        if all(to in left for to in steps) and not _ends_between(semantics, graph, number, steps, agent):
            for to in steps:
                before.setdefault(to, []).append(number)
        else:
            todo.append(number)
    while todo:
        number = todo.pop()
        if number in left:
            left.discard(number)
            todo += before.get(number, ())
    return left


def _ends_between(semantics: Semantics, graph: Graph, number: int, steps: list[int], agent: int) -> bool:
    """Whether a stream's wait ends on the way to one of the states, in which it waits again."""
    if not isinstance(semantics, DeviceSemantics) or agent < len(semantics.threads):
        return False
    return any(agent in semantics.popped(graph.states[number], graph.states[to]) for to in steps)


def path(graph: Graph, number: int) -> list[Move]:
    """The moves that lead to a state."""
    found: list[tuple[Move, ...]] = []
    while number > 0:
        number, done = graph.parents[number]
        found.append(done)
    return [move for done in reversed(found) for move in done]


def _hang(graph: Graph, number: int, lost: list[int]) -> Hang:
    semantics, state = graph.semantics, graph.states[number]
    moves = path(graph, number)
    program = semantics.program
    count = len(program.threads)
    turns = [0] * count
    ran: dict[tuple[int, int], list[int]] = {}
    """In which turns each node ran."""
    for move in moves:
        if move.thread < count:
            ran.setdefault((move.thread, move.node), []).append(turns[move.thread])
            node = program.threads[move.thread].nodes[move.node]
            following = node.next if isinstance(node, p.Do) else dict(node.branches)[str(move.answer)]
            turns[move.thread] += following == p.END
    waiters, sources, past = [], [], []
    whole = set(lost)
    for agent in lost:
        obstacle = semantics.obstacle(state, agent)
        assert obstacle is not None
        if agent < count:
            waiters.append(Waiter(agent, state.at[agent], obstacle, turns[agent]))
        else:
            assert isinstance(semantics, DeviceSemantics)
            row = state.device.fifos[agent - count]
            item = row[0]
            same = sum((x.thread, x.node) == (item.thread, item.node) for x in row)
            turn = ran[item.thread, item.node][-same]
            waiters.append(Waiter(agent, item.node, obstacle, turn, item, semantics.stream_name(agent - count)))
        sources.append(_sources(semantics, state, agent, whole))
        past.append(tuple((t, state.at[t] == p.END) for t in gone(semantics, state, agent)))
    steps = tuple(
        Step(m.thread, m.node, m.answer) if m.item is None
        else Step(m.item.thread, m.node, stream=semantics.streams[m.thread - count])  # type: ignore[attr-defined]
        for m in moves
    )
    return Hang(tuple(waiters), tuple(sources), Run(steps), tuple(moves), _mismatched(semantics, state, lost), tuple(past))


def _mismatched(semantics: Semantics, state: State, lost: list[int]) -> tuple[tuple[int, str], ...]:
    """Streams that await another tag than the one in front of them: (agent, that tag)."""
    if not isinstance(semantics, DeviceSemantics):
        return ()
    count = len(semantics.threads)
    found = []
    for agent in lost:
        if agent >= count and mismatch(semantics, state.device, state.device.fifos[agent - count][0]):
            channel = state.device.fifos[agent - count][0].thing
            found.append((agent, state.device.channels[semantics.channel[channel]][0]))
    return tuple(found)


def _sources(semantics: Semantics, state: State, agent: int, lost: set[int]) -> tuple[int, ...]:
    """Who could end the wait; where what it enqueues would wait in a lost stream, that stream."""
    count = len(semantics.program.threads)
    found: dict[int, None] = {}
    for group in groups(semantics, state, agent):
        for helper in group:
            via = None if helper.via is None else count + helper.via
            found[via if via is not None and via in lost else helper.agent] = None
    return tuple(found)
