"""The search: host-level nondeterminism only, shortest first, with covering by fewer bits.

A macro step runs one thread from a stored state over nodes that no other thread can see, to the end of its turn at the
latest (so every cycle has a fully expanded state). `Reach` is what a search leaves: minimal states per control.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.proofs.explore.compile import Apply, AskNode, Compiler, DoNode
from fencepost.proofs.explore.fifo import queue_forms
from fencepost.proofs.explore.layout import DONE
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.memory import LocationRules
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.slicing import dropped
from fencepost.proofs.explore.state import ROOT, State


class OutOfBudget(Exception):
    """The stated budget of states or seconds ended; `args[0]` says how far the search came."""


class Budget(msgspec.Struct):
    """Limits of one check: stored states and seconds, over all its searches."""

    states: int = 400_000
    seconds: float = 120.0
    used: int = 0
    started: float = msgspec.field(default_factory=time.monotonic)
    progress: Callable[[str], None] | None = None

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


class Found(msgspec.Struct, frozen=True):
    """A hazard of the search: its kind, the two nodes, and the host steps (thread, node, answer, got the byte)."""

    kind: str
    first: tuple[int, int] | None
    second: tuple[int, int]
    steps: tuple[tuple[int, int, str | None, bool], ...]


class Reach(msgspec.Struct):
    """Result of one search."""

    location: Location | None
    states: dict[Any, list[tuple[int, State]]]
    hazards: list[Found]
    stuck: list[tuple[tuple[int, int, str | None, bool], ...]]
    """Paths to states from which no thread can move."""
    spinning: list[tuple[tuple[int, int, str | None, bool], ...]]
    """Paths to states whose every step goes round within a turn for ever."""
    nodes: set[tuple[int, int]]
    answers: set[tuple[int, int, str]]
    turns: set[int]

    @property
    def size(self) -> int:
        """Stored minimal states."""
        return sum(len(v) for v in self.states.values())


def _seen(t: int, what: Any, users: dict[Any, set[int]]) -> bool:
    """Whether the order of a step of thread `t` that touches `what` and of other threads' steps can matter.

    The one putter and the one getter of a queue commute wherever both can move: they work at its two ends, and a put
    that waits for a slot is not enabled yet. Only a test by the other side, or a second putter or getter, tells.
    """
    if not isinstance(what, tuple) or what[0] not in ("put", "get", "test"):
        return len(users[what]) > 1
    put, get, test = (users.get((kind, what[1]), set()) for kind in ("put", "get", "test"))
    if what[0] == "test":
        return bool((put | get) - {t})
    return len(put if what[0] == "put" else get) > 1 or bool(test - {t})


class Search:
    """Transition relation of one program for one location, and the search over it."""

    def __init__(
        self, setting: Setting, location: Location | None, sliced: bool = True, reduce: bool = True,
        spared: tuple[int, str] | None = None,
    ) -> None:  # fmt: skip
        """`sliced` passes over operations that cannot matter; `reduce` runs steps that no other thread can see at once.

        Both off is the plain search, for comparison. `spared`: a tag of a queue that no normal form forgets.
        """
        self.setting = setting
        self.spared = spared
        compiler = Compiler(setting, location)
        self.program = program = setting.program
        self.met = compiler.met
        """Not empty once two conflicting accesses of the location happened, ordered or not."""
        self.location = location
        self.reduce = reduce
        self.layout = compiler.layout
        self.passed = dropped(setting, location) if sliced else [set() for _ in program.threads]
        self.entry = [self.skip(t, thread.entry) for t, thread in enumerate(program.threads)]
        self.code: list[list[DoNode | AskNode | None]] = [
            compiler.thread(t, self.passed[t], self.skip) for t in range(len(program.threads))
        ]
        self.setups = [t for t, thread in enumerate(program.threads) if thread.kind == "setup"]
        self.loops = [thread.kind == "loop" for thread in program.threads]
        seen: dict[Any, set[int]] = {}
        for t, nodes in enumerate(self.code):
            for node in nodes:
                for what in node.touches if node is not None else ():
                    seen.setdefault(what, set()).add(t)
        self.visible = [
            [node is not None and any(_seen(t, what, seen) for what in node.touches) for node in nodes]
            for t, nodes in enumerate(self.code)
        ]
        self.rules = [LocationRules(location, self.layout, t, set(), []) for t in range(len(program.threads))]
        self.forms = queue_forms(program, self.layout, spared)
        if location is None and spared is None:
            for form in self.forms:
                form.prefilled = False  # the first turns count here: which answers a test ever gets
        self.blocks: list[dict[int, tuple[tuple[int, ...], tuple[Apply, ...], int]]] = [{} for _ in program.threads]
        self.joins = [self._joins(t) for t in range(len(program.threads))]
        self.merged: list[State] = []
        """Paths that met another one within the last macro steps."""
        self.agents = [t for t, thread in enumerate(program.threads) if thread.kind != "setup"]

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
            for n in [node.next] if isinstance(node, DoNode) else set(node.branches.values()) if node is not None else ():
                into[n] = into.get(n, 0) + 1
        # The entry too: a circle within a turn may lead back to it, and must not be walked for ever.
        return {n for n, count in into.items() if n >= 0 and (count > 1 or n == self.entry[t])}

    def start(self) -> State:
        """The normalised start state."""
        s = self.layout.start(self.location)
        s.pc = list(self.entry)
        for form in self.forms:
            form.start(s)
        self.normalise(s)
        return s

    def normalise(self, s: State) -> None:
        """Bring `s` into its normal form: rings rotated, queues rewritten."""
        self.layout.normalise(s, self.location)
        for form in self.forms:
            form.normalise(s)

    # ------------------------------------------------------------ transitions

    def _runnable(self, s: State) -> list[int]:
        """Threads that may move next: setups first, then all others."""
        setups = [t for t in self.setups if s.pc[t] != DONE]
        if setups:
            return setups
        return [t for t in self.agents if s.pc[t] != DONE]

    def ready(self, s: State, t: int) -> bool:
        """Whether thread `t` can run its next node."""
        if s.pc[t] < 0:
            return True
        node = self.code[t][s.pc[t]]
        assert node is not None
        test = node.ready
        return test is None or test(s)

    def successors(self, s: State) -> Iterator[State]:
        """All states that one macro step leads to; a state with a hazard ends its path."""
        runnable = self._runnable(s)
        for t in runnable if self.reduce else ():
            # Not at the start of a turn: every cycle passes one, and there all threads are expanded, so none starves.
            pc = s.pc[t]
            if pc >= 0 and pc != self.entry[t] and not self.visible[t][pc] and self.ready(s, t):
                runnable = [t]
                break
        for t in runnable:
            if self.ready(s, t):
                yield from self._macro(s, t)

    def _macro(self, s: State, t: int) -> Iterator[State]:
        """Run thread `t` until another thread could notice, or to the end of its turn; paths that meet are merged."""
        code, visible, joins = self.code[t], self.visible[t], self.joins[t]
        count = 0
        todo = [(0, 0, s.copy())]
        met: dict[Any, list[int]] = {}
        while todo:
            _, number, one = heapq.heappop(todo)
            pc = one.pc[t]
            if pc < 0:
                self._end(one, t)
                yield one
                continue
            if number and (not self.reduce or visible[pc] or not self.ready(one, t)):
                yield one
                continue
            if pc in joins and number:
                control, bits = self.layout.key(one)
                row = met.setdefault(control, [])
                if any(other & bits == other for other in row):
                    self.merged.append(one)
                    continue
                row.append(bits)
            node = code[pc]
            for n in self._ask(one, t, pc, node) if isinstance(node, AskNode) else self._block(one, t, pc):
                if n.hazard is not None and n.hazard[0] != "same bytes":
                    yield n
                else:
                    count += 1
                    heapq.heappush(todo, (n.trail[3], count, n))

    def _ask(self, s: State, t: int, pc: int, node: AskNode) -> list[State]:
        result = []
        for answer, n in node.answers(s):
            if answer in node.branches:
                n.mark((t, pc, answer), 0, 1)
                n.pc[t] = node.branches[answer]
                result.append(n)
        return result

    def _straight(self, t: int, pc: int) -> tuple[tuple[int, ...], tuple[Apply, ...], int]:
        """The operations from `pc` on that run without another thread noticing: (nodes, their effects, next node)."""
        code, visible = self.code[t], self.visible[t]
        nodes: list[int] = []
        effects: list[Apply] = []
        at = pc
        while at >= 0:
            node = code[at]
            if not isinstance(node, DoNode) or at in nodes:
                break
            if nodes and (not self.reduce or visible[at] or node.ready is not None or at in self.joins[t]):
                break
            nodes.append(at)
            effects += node.effects
            at = node.next
        return tuple(nodes), tuple(effects), at

    def _block(self, s: State, t: int, pc: int) -> list[State]:
        straight = self.blocks[t].get(pc)
        if straight is None:
            straight = self.blocks[t][pc] = self._straight(t, pc)
        nodes, effects, s.pc[t] = straight
        s.mark((t, nodes), 0, len(nodes))
        states = [s]
        for effect in effects:
            if len(states) == 1:
                one = states[0]
                if one.hazard is not None and one.hazard[0] != "same bytes":
                    return states
                states = effect(one) or states
                continue
            done: list[State] = []
            for one in states:
                if one.hazard is not None and one.hazard[0] != "same bytes":
                    done.append(one)
                else:
                    done += effect(one) or (one,)
            states = done
        return states

    def _end(self, s: State, t: int) -> None:
        if s.block is not None:
            self.rules[t].loose(s, s.locals[t])  # the turn's scope ends
        self.layout.end_turn(s, t, self.entry[t] if self.loops[t] else DONE)
        s.mark((t, -1), 1)
        if t in self.setups and all(s.pc[u] == DONE for u in self.setups) and any(s.tb[u] for u in self.setups):
            s.tb = [1] * len(s.tb)  # setup -> start of every thread

    def meets(self, budget: Budget) -> bool:
        """Whether some run has two conflicting accesses of the location, ordered or not: is it ever reused?

        A search that goes on past the point where the witness is known to everybody, and stops at the first meeting.
        """
        met = self.met
        seen: dict[Any, list[int]] = {}
        todo = [self.start()]
        while todo and not met:
            for n in self.successors(todo.pop()):
                self.normalise(n)
                control, bits = self.layout.key(n)
                row = seen.setdefault(control, [])
                if not any(other & bits == other for other in row):
                    row.append(bits)
                    budget.spend("reuse")
                    todo.append(n)
        return bool(met)

    def closed(self, s: State) -> bool:
        """Everything later is ordered after the witness: all live threads carry it (later work is enqueued by them)."""
        return s.witness is not None and all(b or pc == DONE for b, pc in zip(s.tb, s.pc, strict=True))

    # ------------------------------------------------------------ search

    def run(self, budget: Budget) -> Reach:
        """Explore everything from the start, fewest turns and steps first."""
        reach = Reach(self.location, {}, [], [], [], set(), set(), set())
        where = self.location.label(self.program) if self.location is not None else "control"
        start = self.start()
        heap = [(0, 0, 0, start, self._store(reach, start))]
        seen: set[Any] = set()
        count = 0
        while heap:
            _, _, _, s, row = heapq.heappop(heap)
            if row is None or not any(x is s for _, x in row):
                continue  # covered since it was queued
            moved = False
            for n in self.successors(s):
                moved = True
                if self.location is None:
                    self._note(reach, n, s)
                if n.hazard is not None:
                    kind, node = n.hazard[:2]
                    w = n.witness if kind != "EMPTY" else None
                    steps = self._steps(n)
                    t = next(u for u, at, _, _ in reversed(steps) if at == node)
                    mark = (n.hazard, w and w[:-1], t)
                    if mark not in seen:
                        seen.add(mark)
                        first = (w.thread, w.node) if w is not None else None
                        reach.hazards.append(Found(kind, first, (t, node), steps))
                    if kind != "same bytes":
                        continue
                    n.hazard = None
                if self.closed(n):
                    continue
                self.normalise(n)
                row = self._store(reach, n)
                if row is not None:
                    budget.spend(where)
                    count += 1
                    heapq.heappush(heap, (n.trail[2], n.trail[3], count, n, row))
            if self.location is None:
                for n in self.merged:
                    self._note(reach, n, s)
            self.merged.clear()
            if not moved and any(s.pc[t] != DONE for t in self.agents):
                spins = any(self.ready(s, t) for t in self._runnable(s))
                (reach.spinning if spins else reach.stuck).append(self._steps(s))
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

    def _store(self, reach: Reach, s: State) -> list[tuple[int, State]] | None:
        """Enter `s` unless a stored state covers it; drop what it covers. Returns the row that `s` is in."""
        control, bits = self.layout.key(s)
        row = reach.states.setdefault(control, [])
        for other, _ in row:
            if other & bits == other:
                return None
        row[:] = [(o, x) for o, x in row if bits & o != bits]
        row.append((bits, s))
        return row

    @staticmethod
    def _note(reach: Reach, n: State, s: State) -> None:
        """Enter what the steps from `s` to `n` reached."""
        at = n.trail
        while at is not s.trail:
            entry, at = at[0], at[1]
            if entry[0] == "got":
                continue
            if len(entry) == 3:
                reach.nodes.add(entry[:2])
                reach.answers.add(entry)
            elif entry[1] == -1:
                reach.turns.add(entry[0])
            else:
                reach.nodes |= {(entry[0], node) for node in entry[1]}

    @staticmethod
    def _steps(s: State) -> tuple[tuple[int, int, str | None, bool], ...]:
        """Host steps of the path to `s`, oldest first; node -1 is the end of the thread's turn.

        A hazard ends the path: operations of its last run that stand behind it are left out.
        """
        result: list[tuple[int, int, str | None, bool]] = []
        at, got = s.trail, set()
        last = s.hazard[1] if s.hazard is not None and s.hazard[0] != "same bytes" else None
        while at is not ROOT:
            entry, at = at[0], at[1]
            if entry[0] == "got":
                got.add(entry[1])
                continue
            if len(entry) == 3:
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
