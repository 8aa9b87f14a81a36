"""The search: host-level nondeterminism only, shortest first, with covering by fewer bits.

A macro step runs one thread from a stored state over nodes that no other thread can see, to the end of its turn at the
latest (so every cycle has a fully expanded state). `Reach` is what a search leaves: minimal states per control.
"""

from __future__ import annotations

import copy
import heapq
import math
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.model.idle import between_turns
from fencepost.proofs.explore.compile import Apply, AskNode, Compiler, DoNode, Ready
from fencepost.proofs.explore.fifo import queue_forms
from fencepost.proofs.explore.layout import DONE
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.memory import DROPS, FORKS, HOST, LocationRules
from fencepost.proofs.explore.reduction import visible
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.slicing import dropped
from fencepost.proofs.explore.state import ROOT, Beyond, State

Row = list[tuple[int, State]]
"""The minimal states of one control, each behind its bits."""
Edge = tuple[Row, int]
"""Where a step leads: the row of the control there, and the bits that a state of the row must cover."""
Straight = tuple[tuple[int, tuple[int, ...]], tuple[Apply, ...], int, int, bool]
"""A thread and its nodes that run at once, their effects, the node behind them, how many they are, and whether an effect may branch
or find a hazard."""

Order = tuple[Any, ...]
"""Where a path of a macro step comes among the others: (operations, order before its last block, number of the branch); () at the start."""

DEVICE_STEP = -2
"""In place of a node of a path: a step of the device, of the stream whose number stands in place of the thread."""


class OutOfBudget(Exception):
    """The stated budget of states or seconds ended; `args[0]` says how far the search came."""


class Budget(msgspec.Struct):
    """Limits of one check: stored states and seconds, over all its searches."""

    states: int = 400_000
    seconds: float = 120.0
    used: int = 0
    started: float = msgspec.field(default_factory=time.monotonic)
    progress: Callable[[str], None] | None = None
    first: bool = False
    """Whether a search ends at its first hazard (the question is only whether there is one)."""

    def spend(self, where: str) -> None:
        """Count one stored state; raises `OutOfBudget`."""
        self.used += 1
        if self.used > self.states:
            raise OutOfBudget(f"{self.states} states stored, last at {where}")
        if self.used % 256 == 0:
            elapsed = time.monotonic() - self.started
            if elapsed > self.seconds:
                raise OutOfBudget(f"{self.seconds:g} s spent, {self.used} states stored, last at {where}")
            if self.progress is not None and elapsed > 2:
                self.progress(f"{where}: {self.used} states, {elapsed:.0f} s")


Pair = tuple[str, "tuple[int, int] | None", tuple[int, int], tuple[int, int]]
"""What tells hazards apart: kind, the two nodes, and the number of each access within its operation."""


class Found(msgspec.Struct, frozen=True):
    """A hazard of the search: its kind, the two nodes, and the host steps (thread, node, answer, got the byte)."""

    kind: str
    first: tuple[int, int] | None
    second: tuple[int, int]
    steps: tuple[tuple[int, int, str | None, bool], ...]
    which: tuple[int, int] = (0, 0)
    """Number of each access within its operation."""

    @property
    def length(self) -> tuple[int, int]:
        """(turns begun, host operations) of the path."""
        turns = operations = 0
        within: set[int] = set()
        """Threads that are within a turn."""
        for t, node, _, _ in self.steps:
            if node == DEVICE_STEP:
                continue
            if t not in within:
                within.add(t)
                turns += 1
            if node < 0:
                within.discard(t)
            else:
                operations += 1
        return turns, operations


class Reach(msgspec.Struct):
    """Result of one search."""

    location: Location | None
    states: dict[Any, Row]
    hazards: list[Found]
    stuck: list[tuple[tuple[int, int, str | None, bool], ...]]
    """Paths to states from which no thread can move."""
    spinning: list[tuple[tuple[int, int, str | None, bool], ...]]
    """Paths to states whose every step goes round within a turn for ever."""
    nodes: set[tuple[int, int]]
    answers: set[tuple[int, int, str]]
    turns: set[int]
    search: Search
    """Whose transitions these are: what `key` says of a state is the search's own."""
    noticed: set[Pair]
    """Every hazard that a step ran into, listed or not."""

    @property
    def size(self) -> int:
        """Stored minimal states."""
        return sum(len(v) for v in self.states.values())


def _never(s: State) -> bool:
    return False


class Search:
    """Transition relation of one program for one location, and the search over it."""

    def __init__(
        self, setting: Setting, location: Location | None, sliced: bool = True, reduce: bool = True,
        spared: tuple[int, str] | None = None, proof: bool = False,
    ) -> None:  # fmt: skip
        """`sliced` passes over operations that cannot matter; `reduce` runs steps that no other thread can see at once.

        Both off is the plain search, for comparison. `spared`: a tag of a queue that no normal form forgets. `proof`
        only asks whether there is a hazard: it ends at the first one, runs threads that others keep going at once
        even at the start of a turn, and forgets which access the witness is. Its runs are no shortest ones.
        """
        self.setting = setting
        self.spared = spared
        self.proof = proof
        self.program = program = setting.program
        self.passed = dropped(setting, location) if sliced else [set() for _ in program.threads]
        compiler = Compiler(setting, location, self.passed)
        self.met = compiler.met
        """Not empty once two conflicting accesses of the location happened, ordered or not."""
        self.accessors = compiler.accessors
        """Who may access the location."""
        self.location = location
        self.reduce = reduce
        self.layout = compiler.layout
        self.entry = [self.skip(t, thread.entry) for t, thread in enumerate(program.threads)]
        self.idle_at = [
            {DONE, *(between_turns(program, t, self.passed[t]) if thread.idle else ())} for t, thread in enumerate(program.threads)
        ]
        """Where a thread has ended or waits for work that nobody need give it."""
        self.code: list[list[DoNode | AskNode | None]] = [
            compiler.thread(t, self.passed[t], self.skip) for t in range(len(program.threads))
        ]
        self.setups = [t for t, thread in enumerate(program.threads) if thread.kind == "setup"]
        self.loops = [thread.kind == "loop" for thread in program.threads]
        self.device = compiler.device
        self.visible = self._visible()
        self.eager = setting.driven if proof else [False] * len(program.threads)
        self.split = location is not None and location.kind != "memory"
        """Whether a macro step ends where paths through the turn meet: then all states share what lies behind."""
        self.covering = True
        """Whether a state with fewer bits stands for one with more."""
        self.prune = location is not None
        """Whether paths end as soon as nothing can happen any more."""
        self.rules = [self._rules(t) for t in range(len(program.threads))]
        self.forms = setting.forms if spared is None else queue_forms(program, self.layout, spared)
        if location is None and spared is None:
            # The first turns count here: which answers a test ever gets.
            self.forms = [form.from_the_start() for form in self.forms]
        self.blocks: list[dict[int, Straight]] = [{} for _ in program.threads]
        self.joins = [self._joins(t) for t in range(len(program.threads))]
        self.merged: list[State] = []
        """Paths that met another one within the last macro steps."""
        self.agents = [t for t, thread in enumerate(program.threads) if thread.kind != "setup"]
        self.endless = all(self.loops[t] for t in self.agents)
        self.tests = [[node.ready if node is not None else None for node in nodes] for nodes in self.code]
        """What each node waits for, if anything."""
        self.ring = self.layout.location_depth(location)
        self._expect()

    def _visible(self) -> list[list[bool]]:
        """For each thread and node whether its step is interleaved with those of others."""
        result = visible(self.code, self.device.users() if self.device is not None else None)
        if sum(thread.kind != "setup" for thread in self.program.threads) > 1:
            for t, heads in enumerate(self.setting.circles):
                for head in heads:
                    # A circle within a turn need not pass the start of one: here, too, all threads are expanded.
                    result[t][self.skip(t, head)] = True
        return result

    def _rules(self, t: int) -> LocationRules:
        """What ends references of thread `t`."""
        if self.device is None:
            return LocationRules(self.location, self.layout, t, set(), [], set(), frozenset())
        from fencepost.proofs.explore.pending_memory import MeetingRules

        return MeetingRules(self.device, self.location, self.layout, t, set(), [], set(), frozenset())

    @property
    def beyond(self) -> str:
        """Why states were left out; empty when none was."""
        return self.device.beyond if self.device is not None else ""

    def _expect(self) -> None:
        """Which nodes run at once, alone: no other thread can notice them, and a cycle of them passes the start of a turn.

        There all threads are expanded, so none starves. (Of threads that others keep going it need not be their own start:
        see reduction.py.)
        """
        self.alone: list[list[bool]] = []
        self.stops: list[list[Ready | None]] = []
        for t, (seen_at, tests, entry) in enumerate(zip(self.visible, self.tests, self.entry, strict=True)):
            alone = [self.reduce and not seen for seen in seen_at]
            if not self.eager[t] and entry >= 0:
                alone[entry] = False
            stops = [_never if seen or not self.reduce else test for seen, test in zip(seen_at, tests, strict=True)]
            for n in self.joins[t] if self.split else ():
                stops[n] = _never
            self.alone.append(alone)
            self.stops.append(stops)
        """When a macro step goes on at a node; None: always."""

    def listing(self) -> Search:
        """The same transitions for a search that finds every hazard; its runs are no shortest ones if `hurried`."""
        other = copy.copy(self)
        other.proof = False
        return other

    def without(self, t: int, node: int) -> Search:
        """The search for a proof of the program without the synchronisation at `node` of thread `t`, which is not passed over.

        All else that was compiled is shared.
        """
        setting = self.setting.without(t, node)
        if self.device is not None:  # what waits in the stream may wait for the synchronisation, too
            return Search(setting, self.location, proof=True)
        other = copy.copy(self)
        other.setting, other.program, other.forms, other.proof = setting, setting.program, setting.forms, True
        nodes = list(self.code[t])
        removed = nodes[node]
        assert isinstance(removed, DoNode)
        nodes[node] = DoNode(None, (), removed.next, frozenset())
        other.code = [*self.code[:t], nodes, *self.code[t + 1 :]]
        other.tests = [[one.ready if one is not None else None for one in code] for code in other.code]
        other.visible = other._visible()
        other._expect()
        other.blocks = [{} for _ in self.blocks]
        other.merged = []
        return other

    @property
    def hurried(self) -> bool:
        """Whether some threads run at once even at the start of a turn."""
        return any(self.eager[t] for t in self.agents)

    def shortest(self, covering: bool = True) -> Search:
        """The same transitions for a search that finds shortest runs; without `covering` equal states alone are one."""
        other = self.listing()
        other.eager = [False] * len(self.eager)
        other._expect()
        other.covering = covering
        return other

    def skip(self, t: int, node: int) -> int:
        """The first node from `node` on that is not passed over."""
        while node in self.passed[t]:
            at = self.program.threads[t].nodes[node]
            assert isinstance(at, p.Do)
            node = at.next
        return node

    def _joins(self, t: int) -> set[int]:
        """Nodes that more than one node leads to."""
        into: dict[int, int] = {}
        for node in self.code[t]:
            if type(node) is DoNode:
                into[node.next] = into.get(node.next, 0) + 1
            elif type(node) is AskNode:
                for n in set(node.branches.values()):
                    into[n] = into.get(n, 0) + 1
        # The entry too: a circle within a turn may lead back to it, and must not be walked for ever.
        return {n for n, count in into.items() if n >= 0 and (count > 1 or n == self.entry[t])}

    def start(self) -> State:
        """The normalised start state."""
        s = self.layout.start(self.location)
        s.meet = self.device.meetings.start() if self.device is not None else None
        s.pc = list(self.entry)
        for form in self.forms:
            form.start(s)
        self.normalise(s)
        return s

    def normalise(self, s: State) -> None:
        """Bring `s` into its normal form: rings rotated, queues rewritten."""
        if self.layout.turns:
            self.layout.normalise(s, self.ring)
        if self.device is not None:
            self.device.meetings.normalise(s)
        for form in self.forms:
            form.normalise(s)

    def key(self, s: State) -> tuple[Any, int]:
        """(control, bits) of `s`, as `Reach.states` enters it."""
        return self.layout.key(s, self.proof)

    # ------------------------------------------------------------ transitions

    def _runnable(self, s: State) -> list[int]:
        """Threads that may move next: setups first, then all others."""
        pc = s.pc
        setups = [t for t in self.setups if pc[t] != DONE]
        if setups:
            return setups
        return self.agents if self.endless else [t for t in self.agents if pc[t] != DONE]

    def ready(self, s: State, t: int) -> bool:
        """Whether thread `t` can run its next node."""
        pc = s.pc[t]
        if pc < 0:
            return s.meet is None or not s.meet.inside[t]
        test = self.tests[t][pc]
        return test is None or test(s)

    def _runs_ahead(self, s: State, t: int) -> bool:
        """Whether thread `t` begins a turn while an earlier one is pending: alone it might go on so up to the bound."""
        return s.meet is not None and s.pc[t] == self.entry[t] and s.meet.ahead(t)

    def successors(self, s: State) -> Iterator[State]:
        """All states that one macro step leads to; a state with a hazard ends its path."""
        runnable = self._runnable(s)
        for t in runnable:
            pc = s.pc[t]
            if pc >= 0 and self.alone[t][pc] and self.ready(s, t) and not self._runs_ahead(s, t):
                yield from self._macro(s, t)
                return
        for t in runnable:
            if self.ready(s, t):
                yield from self._macro(s, t)
        if self.device is not None:
            yield from self.device.steps(s)

    def _macro(self, s: State, t: int) -> list[State]:
        """Run thread `t` until another thread could notice, or to the end of its turn; paths that meet are merged."""
        one: State | None = s.copy()
        assert one is not None
        pc = one.pc[t]
        if pc < 0:
            if one.meet is None or not one.meet.inside[t]:
                self._end(one, t)
            return [one]
        code, blocks, stops, prune, closed = self.code[t], self.blocks[t], self.stops[t], self.prune, self.closed
        # Paths that may meet go on in the order of their operations. Otherwise one goes on to its end before the next, and what they
        # reach is sorted as if they had not: by `order`.
        apart = self.split or not self.joins[t]
        joins: set[int] = set() if apart else self.joins[t]
        turns, operations = one.trail[2] + (pc == self.entry[t]), one.trail[3]
        order: Order = ()
        reached: list[tuple[Order, int, State]] = []
        later: list[tuple[Order, State]] = []
        todo: list[tuple[int, int, State]] = []
        count = 0
        met: dict[Any, list[int]] = {}
        while True:
            node = code[pc]
            results: list[State] | None = None  # the one path goes on
            if type(node) is AskNode:
                operations += 1
                answers, branches, before = node.answers(one), node.branches, one.trail
                if isinstance(answers, str):  # the state decides
                    one.trail = ((t, pc, answers), before, turns, operations)
                    if answers in branches:
                        one.pc[t] = pc = branches[answers]
                    else:
                        results = []
                else:
                    results = []
                    for answer, n in answers:
                        if answer in branches:
                            n.trail = ((t, pc, answer), before, turns, operations)
                            n.pc[t] = branches[answer]
                            results.append(n)
            else:
                entry, effects, after, many, may_fork = blocks.get(pc) or self._straight(t, pc)
                operations += many
                one.trail = (entry, one.trail, turns, operations)
                one.pc[t] = pc = after
                if not may_fork:
                    for effect in effects:
                        if effect(one) is not None:
                            raise AssertionError("an effect that branches is not marked so")
                else:
                    left = iter(effects)
                    for effect in left:
                        states = effect(one)
                        if states is not None or one.hazard is not None:
                            results = self._branched(states or [one], tuple(left))
                            break
            if results is None and (apart or not todo):
                if prune and one.witness is not None and one.hazard is None and closed(one):
                    one = None
                elif apart:
                    order = (operations, order, 0)
            else:
                for k, n in enumerate([one] if results is None else results):
                    if n.hazard is not None and n.hazard[0] != "same bytes":
                        reached.append((order, k, n))
                    elif not (prune and n.witness is not None and n.hazard is None and closed(n)):
                        if apart:
                            later.append(((operations, order, k), n))
                        else:
                            count += 1
                            heapq.heappush(todo, (operations, count, n))
                one = None
            while True:
                if one is None:
                    if todo:
                        operations, _, one = heapq.heappop(todo)
                    elif later:
                        order, one = later.pop()
                        operations = order[0]
                    else:
                        if apart and len(reached) > 1:
                            reached.sort(key=_rank)
                        return [n for _, _, n in reached]
                    pc = one.pc[t]
                if pc < 0:
                    if one.meet is None or not one.meet.inside[t]:
                        self._end(one, t)
                    reached.append((order, 0, one))
                elif (go_on := stops[pc]) is not None and not go_on(one):
                    reached.append((order, 0, one))
                elif pc not in joins or not self._covered(met, one):
                    break
                one = None

    def _covered(self, met: dict[Any, list[int]], one: State) -> bool:
        """Whether a path with fewer bits was at the same node before; otherwise `one` is remembered there."""
        control, bits = self.key(one)
        row = met.get(control)
        if row is None:
            met[control] = [bits]
            return False
        if any(other & bits == other for other in row) if self.covering else bits in row:
            self.merged.append(one)
            return True
        row.append(bits)
        return False

    def _straight(self, t: int, pc: int) -> Straight:
        """The operations from `pc` on that run without another thread noticing."""
        code, visible = self.code[t], self.visible[t]
        nodes: list[int] = []
        effects: list[Apply] = []
        at = pc
        while at >= 0:
            node = code[at]
            if type(node) is not DoNode or at in nodes:
                break
            if nodes and (not self.reduce or visible[at] or node.ready is not None or at in self.joins[t]):
                break
            nodes.append(at)
            effects += node.effects
            at = node.next
        effects = self._joined(t, effects)
        forks = any([getattr(effect, FORKS, False) for effect in effects])
        straight = self.blocks[t][pc] = (t, tuple(nodes)), tuple(effects), at, len(nodes), forks
        return straight

    def _joined(self, t: int, effects: list[Apply]) -> list[Apply]:
        """The effects, of which drops in a row become one."""
        result: list[Apply] = []
        drops: list[int] = []
        for effect in effects:
            dropped_here = getattr(effect, DROPS, None)
            if dropped_here is not None:
                drops += dropped_here
                continue
            if drops:
                result.append(self.rules[t].drops(tuple(drops)))
                drops = []
            result.append(effect)
        if drops:
            result.append(self.rules[t].drops(tuple(drops)))
        return result

    def _branched(self, states: list[State], effects: tuple[Apply, ...]) -> list[State]:
        """Where the states lead to behind these effects, the rest of a block: first those with a hazard, in the order of the effects."""
        ended: list[tuple[int, State]] = []
        live: list[State] = []
        todo = [(0, s) for s in reversed(states)]
        while todo:
            at, s = todo.pop()
            if s.hazard is not None and s.hazard[0] != "same bytes":
                ended.append((at, s))
                continue
            for effect in effects[at:]:
                at += 1
                more = effect(s)
                if more is not None or (s.hazard is not None and s.hazard[0] != "same bytes"):
                    todo += [(at, n) for n in reversed(more or [s])]
                    break
            else:
                live.append(s)
        if len(ended) > 1:
            ended.sort(key=itemgetter(0))
        return [n for _, n in ended] + live

    def _end(self, s: State, t: int) -> None:
        if s.block is not None:
            self.rules[t].loose(s, s.locals[t])  # the turn's scope ends
        self.layout.end_turn(s, t, self.entry[t] if self.loops[t] else DONE)
        s.mark((t, -1), int(self.entry[t] < 0))
        if t in self.setups and all(s.pc[u] == DONE for u in self.setups) and any(s.tb[u] for u in self.setups):
            s.tb = [1] * len(s.tb)  # setup -> start of every thread

    def meets(self, budget: Budget) -> bool:
        """Whether some run has two conflicting accesses of the location, ordered or not: is it ever reused?

        A search that goes on past the point where the witness is known to everybody, and stops at the first meeting.
        """
        if not self.met and self.prune:
            whole = copy.copy(self)
            whole.prune = False
            return whole.meets(budget)
        met = self.met
        seen: dict[Any, list[int]] = {}
        todo = [self.start()]
        while todo and not met:
            for n in self.successors(todo.pop()):
                self.normalise(n)
                control, bits = self.key(n)
                row = seen.setdefault(control, [])
                if not any(other & bits == other for other in row):
                    row.append(bits)
                    budget.spend("reuse")
                    todo.append(n)
        return bool(met)

    def closed(self, s: State) -> bool:
        """Everything later is ordered after the witness: whoever may access the location carries it.

        A stream that carries it keeps it, and what a thread that carries it enqueues starts after the call.
        """
        if s.witness is None:
            return False
        for t, stream in self.accessors:
            if not (s.tb[t] or (stream != HOST and s.streams[stream]) or s.pc[t] == DONE):
                return False
        return s.meet is None or s.meet.closed()

    # ------------------------------------------------------------ search

    def run(self, budget: Budget, until: Callable[[Found], bool] | None = None, turns: float = math.inf) -> Reach:
        """Explore everything from the start, fewest turns and steps first.

        `until` gets the hazards from the shortest run on, and ends the search by returning true; runs of more than
        `turns` turns are left out.
        """
        seen: set[Pair] = set()
        reach = Reach(self.location, {}, [], [], [], set(), set(), set(), self, seen)
        where = self.location.label(self.program) if self.location is not None else "control"
        start = self.start()
        heap: list[tuple[int, int, int, State, Row | None]] = [(0, 0, 0, start, self._store(reach, start)[0])]
        count = 0
        while heap:
            _, _, _, s, row = heapq.heappop(heap)
            if until is not None and s.hazard is not None:
                kind, first, second, which = self._pair(s)
                if until(Found(kind, first, second, self._steps(s), which)):
                    return reach
                continue
            for _, x in row or ():
                if x is s:
                    break
            else:
                continue  # covered since it was queued
            moved = False
            edges: list[Edge] = []
            for n in self.successors(s):
                moved = True
                if n.trail[2] > turns:
                    continue
                if self.location is None:
                    self._note(reach, n, s)
                if n.hazard is not None:
                    pair = kind, first, second, which = self._pair(n)
                    if self.proof:
                        seen.add(pair)
                        reach.hazards.append(Found(kind, first, second, self._steps(n), which))
                        return reach
                    if until is not None or pair not in seen:
                        steps = self._steps(n)
                        if until is not None:
                            count += 1
                            heapq.heappush(heap, (n.trail[2], sum(at >= 0 for _, at, _, _ in steps), count, n.copy(), None))
                        if pair not in seen:
                            seen.add(pair)
                            reach.hazards.append(Found(kind, first, second, steps, which))
                    if kind != "same bytes":
                        if budget.first:
                            return reach
                        continue
                    n.hazard = None
                if (n.meet is not None and n.meet.beyond) or self.closed(n):
                    continue
                self.normalise(n)
                row, bits, new = self._store(reach, n)
                edges.append((row, bits))
                if new:
                    budget.spend(where)
                    count += 1
                    # Towards a hazard, if one is all that is asked for: first where a witness is chosen.
                    cost = (n.witness is None, n.trail[2]) if self.proof else (n.trail[2], n.trail[3])
                    heapq.heappush(heap, (*cost, count, n, row))
            s.edges = edges
            if self.location is None:
                for n in self.merged:
                    self._note(reach, n, s)
            self.merged.clear()
            if not moved and self.location is None and any(s.pc[t] not in self.idle_at[t] for t in self.agents):
                spins = any(self.ready(s, t) for t in self._runnable(s))
                (reach.spinning if spins else reach.stuck).append(self._steps(s))
        if self.beyond and all(found.kind == "same bytes" for found in reach.hazards):
            raise Beyond(self.beyond)
        if self.location is None:  # nobody asks the other searches what they reach
            self._other_tags(reach, budget)
            self._passed_over(reach)
        return reach

    def _other_tags(self, reach: Reach, budget: Budget) -> None:
        """What the handling of those tags reaches that the queues' normal forms forget."""
        for form in self.forms if self.spared is None else []:
            for tag, (puts, gets) in form.handled.items():
                if puts & reach.nodes and not gets <= reach.nodes:
                    more = Search(self.setting, None, spared=(form.oid, tag)).run(budget)
                    reach.nodes |= more.nodes
                    reach.answers |= more.answers

    def _passed_over(self, reach: Reach) -> None:
        """Nodes that were passed over count as reached when what leads to them was."""
        for t, thread in enumerate(self.program.threads):
            heads = [thread.entry]
            for i, node in enumerate(thread.nodes):
                if isinstance(node, p.Do):
                    heads += [node.next] if (t, i) in reach.nodes else []
                else:
                    heads += [n for answer, n in node.branches if (t, i, answer) in reach.answers]
            for head in heads:
                while head in self.passed[t]:
                    reach.nodes.add((t, head))
                    head = thread.nodes[head].next  # type: ignore[union-attr]

    def _store(self, reach: Reach, s: State) -> tuple[Row, int, bool]:
        """Enter `s` unless a stored state covers it; drop what it covers. Returns the row of its control, its bits, and whether it is new."""
        control, bits = self.key(s)
        row = reach.states.get(control)
        if row is None:
            row = reach.states[control] = [(bits, s)]
            return row, bits, True
        if not self.covering:
            if any(other == bits for other, _ in row):
                return row, bits, False
            row.append((bits, s))
            return row, bits, True
        for other, _ in row:
            if other & bits == other:
                return row, bits, False
        row[:] = [(o, x) for o, x in row if bits & o != bits]
        row.append((bits, s))
        return row, bits, True

    @staticmethod
    def _note(reach: Reach, n: State, s: State) -> None:
        """Enter what the steps from `s` to `n` reached."""
        at = n.trail
        while at is not s.trail:
            entry, at = at[0], at[1]
            if entry[0] in ("got", "device"):
                continue
            if len(entry) == 3:
                reach.nodes.add(entry[:2])
                reach.answers.add(entry)
            elif entry[1] == -1:
                reach.turns.add(entry[0])
            else:
                reach.nodes |= {(entry[0], node) for node in entry[1]}

    @staticmethod
    def _pair(n: State) -> Pair:
        """Kind, first and second access of the hazard of `n`, and their numbers: the last step of its path found it."""
        assert n.hazard is not None
        kind, node = n.hazard[:2]
        w = n.witness if kind not in ("EMPTY", "TWICE") else None
        at = n.trail
        while at[0][0] == "got":
            at = at[1]
        which = (w.which if w is not None else 0, n.hazard[2] if len(n.hazard) > 2 else 0)
        thread = n.hazard[3] if len(n.hazard) > 3 else at[0][0]
        return kind, (w.thread, w.node) if w is not None else None, (thread, node), which

    @staticmethod
    def _steps(s: State) -> tuple[tuple[int, int, str | None, bool], ...]:
        """Host steps of the path to `s`, oldest first; node -1 is the end of the thread's turn.

        A hazard ends the path: operations of its last run that stand behind it are left out.
        """
        result: list[tuple[int, int, str | None, bool]] = []
        at, got = s.trail, set()
        last = s.hazard[4 if len(s.hazard) > 3 else 1] if s.hazard is not None and s.hazard[0] != "same bytes" else None
        while at is not ROOT:
            entry, at = at[0], at[1]
            if entry[0] == "got":
                got.add(entry[1])
                continue
            if entry[0] == "device":
                result.append((entry[1], DEVICE_STEP, None, False))
            elif len(entry) == 3:
                result.append((*entry, entry[1] in got))
            elif entry[1] == -1:
                result.append((*entry, None, False))
            else:
                t, nodes = entry
                if last is not None:
                    nodes = nodes[: nodes.index(last) + 1]
                result += [(t, node, None, node in got) for node in reversed(nodes)]
            last = None
            got = set()
        return tuple(reversed(result))


def _rank(reached: tuple[Order, int, State]) -> tuple[int, ...]:
    """What orders of paths are sorted by: as they would compare, but not by recursion, for a turn may be long."""
    order, last, _ = reached
    operations: list[int] = []
    branches = [last]
    while order:
        operations.append(order[0])
        branches.append(order[2])
        order = order[1]
    return (*operations, -1, *reversed(branches))
