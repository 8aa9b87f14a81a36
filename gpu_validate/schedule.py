"""Schedules: which host step comes when and where gates are shut, so that a hazard must show, or a fix must hold.

`overtake` reorders a counterexample so that everything the two accesses need runs first, then the second access while
the first is late, then the rest (theory section 2: in a feasible run nothing outside has to move). `follow` takes the
same schedule to a fixed design. Both play every step on concrete host state, so a gate at which the host itself would
wait for ever is found before anything is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fencepost.model import program as p
from fencepost.model.answer import Hazard, Run, Step
from fencepost.model.effects import JoinStream
from fencepost.model.events import InvalidRun, Player
from fencepost.model.events.clocks import Clock
from fencepost.model.events.references import Named
from fencepost.model.events.state import Node
from fencepost.model.operations import RULES, Context, lower
from fencepost.model.platform import PLATFORMS, Platform


class Unforceable(ValueError):
    """No schedule shows the hazard on a real GPU: a gate would deadlock, or nothing can be held back. One line."""


class Gate(NamedTuple):
    """Shut in front of host step `before` on `stream`, open behind host step `after`.

    `settle`: the stream of the access that must have run before the gate opens, when that access is on the device.
    `then`: wait until the late access has run, before the run goes on (two writes: who comes last is read later).
    """

    before: int
    stream: Named
    after: int
    settle: Named | None = None
    then: bool = False


class Schedule(NamedTuple):
    """A run in the order that is driven, its gates, and where the two accesses are in it.

    `labels`: for an allocation's step, the block that it would get again were it free (the model may say it is not).
    `holds`: the first step at which the model says the host waits for the shut gate, None where it never does.
    """

    run: Run
    gates: tuple[Gate, ...]
    first: int | None
    second: int | None
    labels: dict[int, int]
    holds: int | None = None
    notes: tuple[str, ...] = ()
    stays: tuple[int, ...] = ()
    """Steps of calls that threads stay in because of the gate; where one thread makes all calls, the first holds the host."""


Where = tuple[str, int, str, int]
"""Thread's name, its turn, an operation's signature, and which one of that signature in the turn."""


class Recorder:
    """A player that remembers its steps and each step's knowledge afterwards."""

    def __init__(self, program: p.Program, platform: Platform) -> None:
        self.program = program
        self.player = Player(program, platform)
        self.steps: list[Step] = []
        self.after: list[Clock] = []
        """What the step's thread knows when the call returns."""
        self.ran: dict[int, int] = {}
        """Step of a device item -> the step at which it runs."""
        self.inside: dict[int, int] = {}
        """Thread inside a call that waits on the device -> the step of the call."""
        self.back: dict[int, int] = {}
        """Threads that came back from such a call, and its step, since somebody looked."""
        self.stopped: dict[int, int] = {}
        """Threads that an attack leaves in such a call."""
        self._seen = 0
        self._counts: list[dict[str, int]] = [{} for _ in program.threads]  # signatures in each thread's present turn

    def copy(self) -> Recorder:
        """An independent recorder in the same state."""
        other = Recorder.__new__(Recorder)
        other.program, other.player = self.program, self.player.copy()
        other.steps, other.after = self.steps[:], self.after[:]
        other.ran, other.inside, other._seen = self.ran.copy(), self.inside.copy(), self._seen
        other.back, other.stopped = self.back.copy(), self.stopped.copy()
        other._counts = [counts.copy() for counts in self._counts]
        return other

    def where(self, thread: int) -> Where:
        """Names the step that the thread makes next, so that it can be found in a similar design."""
        text = signature(self.program, self.program.threads[thread], self.player.node(thread))
        return (self.program.threads[thread].name, self.player.turn(thread), text, self._counts[thread].get(text, 0))

    def step(self, step: Step) -> None:
        """Play one step. Raises `InvalidRun`."""
        there = 0 <= step.thread < len(self._counts) and step.stream is None and not self.player.finished(step.thread)
        where = self.where(step.thread) if there else None
        number = len(self.steps)
        self.player.step(step)
        if where is not None:
            counts = self._counts[step.thread]
            counts[where[2]] = where[3] + 1
            if self.player.turn(step.thread) != where[1]:
                counts.clear()
        self.steps.append(step)
        self.after.append(self.player.clocks.snapshot(step.thread))
        for node in self.player.nodes[self._seen :]:
            self.ran.setdefault(node.step, number)
        self._seen = len(self.player.nodes)
        if step.stream is None and self.player.is_inside(step.thread):
            self.inside[step.thread] = number
        for thread, entered in [x for x in self.inside.items() if not self.player.is_inside(x[0])]:
            del self.inside[thread]
            self.after[entered] = self.player.clocks.snapshot(thread)
            self.back[thread] = entered

    def eager(self, late: Node | None = None) -> None:
        """Make all steps of the device that are possible, but those behind an item that is held back."""
        made = True
        while made:
            made = False
            for step in self.player.device_steps():
                assert step.stream is not None
                clock = self.player.clocks.now[self.player.fifos[step.stream]]
                if late is None or not covers(clock, late):
                    self.step(step)
                    made = True
                    break

    def tried(self, step: Step) -> Recorder | None:
        """A copy that has made the step; None when it is not possible in this state."""
        after = self.copy()
        try:
            after.step(step)
        except InvalidRun:
            return None
        return after

    def item(self, step: int) -> Node | None:
        """The device item that a step put on a stream (the last one, if several); None while it has not run."""
        return next((n for n in reversed(self.player.nodes) if n.step == step and n.stream is not None), None)


def covers(clock: Clock, item: Node) -> bool:
    """Whether who has this clock knows that the item has ended."""
    return clock[item.agent] >= item.tick


def joins(program: p.Program, step: Step, platform: Platform = PLATFORMS["cuda"]) -> bool:
    """Whether the step's operation itself waits for device work that it enqueued (S33, S48; not within the device, S49)."""
    operation = _operation(program, step)
    if not isinstance(operation, (p.Item, p.Copy)):
        return False
    return any(isinstance(effect, JoinStream) for effect in lower(operation, Context(program, program.threads[step.thread], platform)))


def may_join(node: p.Node) -> bool:
    """Whether a step of this kind can wait for device work."""
    if isinstance(node, p.Ask):
        return isinstance(node.question, (p.EventQuery, p.StreamQuery))
    if isinstance(node.operation, p.WaitFlag):
        return node.operation.stream is None
    return isinstance(node.operation, (p.EventSync, p.StreamSync, p.DeviceSync, p.Item, p.Copy, p.Take))


def overtake(program: p.Program, run: Run, hazard: Hazard, platform: Platform = PLATFORMS["cuda"]) -> Schedule:
    """The schedule under which the hazard's second access comes before its first. Raises `Unforceable`, `InvalidRun`."""
    Player(program, platform, keep=False).play(run)  # a run of another version or design is refused here
    if hazard.first is None:
        return _as_it_is(program, run, hazard.second.index, platform)
    i, j = hazard.first.index, hazard.second.index
    if not (0 <= i < len(run.steps) and 0 <= j < len(run.steps) and i != j):
        raise Unforceable(f"the hazard's accesses are steps {i} and {j} of a run of {len(run.steps)} steps")
    held_by_gate = hazard.first.on_device and not joins(program, run.steps[i], platform)
    state = Recorder(program, platform)
    for step in run.steps[:i]:
        state.step(step)
    late: Node | None = None  # None too while it waits on the device itself
    waiting: dict[int, None] = {}  # threads that must not go on before the second access
    left: list[Step] = []
    first = None
    if held_by_gate:
        state.step(run.steps[i])
        late, first = state.item(i), i
        if late is None and not state.player.meets:
            raise Unforceable(f"step {i} puts nothing on a stream: it is not the run of this hazard")
    else:
        waiting[run.steps[i].thread] = None
        left.append(run.steps[i])
    second: int | None = None
    number = i + 1
    while number < len(run.steps) and (second is None or second not in state.ran):
        step = run.steps[number]
        after = None if step.stream is None and step.thread in waiting else state.tried(step)
        if held_by_gate and late is None:
            late = state.item(i)
        if after is not None and step.stream is None and late is not None and covers(after.after[-1], late):
            after = None  # the step waits for the gate
        if after is None:
            if number == j:
                raise Unforceable("the gate would deadlock: the second access waits for the first in every order tried")
            if step.stream is None:
                waiting[step.thread] = None
            left.append(step)
        else:
            state = after
            if number == j:
                second = len(state.steps) - 1
        number += 1
    if second is None or second not in state.ran:
        raise Unforceable("the gate would deadlock: the second access waits on the device for what waits for the first")
    opens = state.ran[second]
    settle = next((n.stream for n in reversed(state.player.nodes) if n.step == second), None)
    late = state.item(i) if held_by_gate else state.item(second)
    # Where the host came first in the run it comes last in this order, so what is held back is the other access.
    if not held_by_gate and (late is None or joins(program, run.steps[j], platform)):
        raise Unforceable("neither access is device work that a gate could hold back")
    if late is None:
        raise Unforceable("the first access waits on the device for what comes behind the second")
    dropped: dict[int, None] = {}
    for step in [*left, *run.steps[number:]]:
        after = None if step.stream is None and step.thread in dropped else state.tried(step)
        if after is None:
            if step.stream is None:
                dropped[step.thread] = None
            continue
        if step is run.steps[i]:
            first = len(state.steps)
        state = after
    if first is None:
        raise Unforceable("the first access cannot run any more once the second has")
    if not held_by_gate:
        first, second, settle, opens = second, first, None, first
    gate = Gate(first, _stream(late), opens, settle, hazard.kind == "WAW")
    if gate.then:
        _go_on(state)
    gates = (gate, *_query_gates(state, gate, late))
    return Schedule(Run(tuple(state.steps)), gates, first, second, {})


def _as_it_is(program: p.Program, run: Run, second: int, platform: Platform) -> Schedule:
    """The run in its own order, with gates for its queries only: an access of undefined bytes needs nothing to be late."""
    if not 0 <= second < len(run.steps):
        raise Unforceable(f"the hazard's access is step {second} of a run of {len(run.steps)} steps")
    state = Recorder(program, platform)
    for step in run.steps:
        state.step(step)
    return Schedule(run, tuple(_query_gates(state, None, None)), None, second, {})


def _go_on(state: Recorder) -> None:
    """Another turn of every thread, so that somebody reads what the two writes left."""
    goal = [state.player.turn(t) + 2 for t in range(len(state.program.threads))]
    for _ in range(200):
        player = state.player
        state.eager()
        movable = [t for t, turn in enumerate(goal) if player.enabled(t) and player.turn(t) < turn]
        if not movable:
            return
        thread = min(movable, key=player.turn)
        possible = player.possible_answers(thread)
        after = state.tried(Step(thread, player.pc(thread), possible[0] if possible else None))
        if after is None:
            return
        state.__dict__.update(after.__dict__)


def _stream(item: Node) -> Named:
    """The stream of a device item."""
    assert item.stream is not None
    return item.stream


def _operation(program: p.Program, step: Step) -> p.Operation:
    node = program.threads[step.thread].nodes[step.node]
    if not isinstance(node, p.Do):
        raise Unforceable("the hazard points at a question, not at an access: it is not the hazard of this run")
    return node.operation


def _query_gates(state: Recorder, gate: Gate | None, late: Node | None) -> Iterator[Gate]:
    """A gate for each query that the run answers with "no" though the main gate holds nothing that it tests."""
    for query in state.player.false_queries:
        items = [n for n in state.player.nodes if (n.agent, n.tick) in query.items]
        held = gate is not None and gate.before < query.step <= gate.after
        if held and late is not None and any(n is late or covers(n.clock, late) for n in items):
            continue
        for item in reversed(items):
            between = range(item.step + 1, query.step)
            if not any(covers(state.after[k], item) for k in between):
                yield Gate(item.step, _stream(item), query.step)
                break
        else:
            raise Unforceable(f"step {query.step}: nothing can be held back so that the query says no")


# ------------------------------------------------------------ the same schedule on another design


ACCESSES = (p.Host, p.Launch, p.Copy, p.Memset, p.Item, p.Alloc)
"""Operations that a schedule is made of."""


def follow(fixed: p.Program, program: p.Program, schedule: Schedule, platform: Platform = PLATFORMS["cuda"]) -> Schedule:
    """The schedule for a design that differs a little, by the places of its operations. Raises `Unforceable`."""
    return _Follower(fixed, program, schedule, platform).run()


class _Follower:
    def __init__(self, fixed: p.Program, program: p.Program, schedule: Schedule, platform: Platform) -> None:
        self.fixed, self.schedule = fixed, schedule
        self.state = Recorder(fixed, platform)
        self.threads = {t.name: k for k, t in enumerate(fixed.threads)}
        self.answers: dict[Where, str] = {}
        self.blocks: dict[Where, int] = {}
        self.labels: dict[int, int] = {}
        self.late: Node | None = None
        self.first: int | None = None
        self.opened = False
        self.holds: int | None = None
        self.goals: list[Where | None] = []
        self.done: dict[Where, int] = {}
        original = Recorder(program, platform)
        for step in schedule.run.steps:
            where = original.where(step.thread) if step.stream is None else ("", 0, "", 0)
            node = program.threads[step.thread].nodes[step.node]
            if step.stream is not None:
                self.goals.append(None)
                original.step(step)
                continue
            # Only accesses are looked for: a fix moves synchronisation, and passing it would run past them.
            self.goals.append(where if isinstance(node, p.Do) and isinstance(node.operation, ACCESSES) else None)
            if step.answer is not None:
                self.answers[where] = step.answer
            if step.block is not None:
                self.blocks[where] = step.block
            original.step(step)

    def run(self) -> Schedule:
        first = second = None
        settle = None
        for number, goal in enumerate(self.goals):
            if goal is None:
                continue
            if goal not in self.done and not self._reach(goal):
                if number == self.schedule.second:
                    self._reach(goal, whole_turn=True)
                continue
            at = self.done[goal]
            if number == self.schedule.first:
                first = self.first = at
            if number == self.schedule.second:
                second, self.opened = at, at in self.state.ran
            self._look()
        notes = []
        gates: tuple[Gate, ...] = ()
        if self.schedule.first is None:
            pass  # nothing is held back
        elif first is None or self.late is None:
            notes.append("the fixed design has no counterpart of the late operation: driven without a gate")
        else:
            end = len(self.state.steps) - 1
            if second is not None:
                end = self.state.ran.get(second, end)
                item = self.state.item(second)
                settle = None if item is None else item.stream
            else:
                notes.append("the fixed design has no counterpart of the second access: the gate opens at the end")
            gate = Gate(first, _stream(self.late), max(end, first), settle, self.schedule.gates[0].then)
            gates = (gate, *self._query_gates(gate))
            self.holds = next((k for k in range(first, gate.after + 1) if self._waits_at(k)), None)
        run = Run(tuple(self.state.steps))
        return Schedule(run, gates, first, second, self.labels, self.holds, tuple(notes))

    def _look(self) -> None:
        """The late item is known once it has run: it may have to wait on the device itself."""
        if self.late is None and self.first is not None:
            self.late = self.state.item(self.first)

    def _waits_at(self, step: int) -> bool:
        """Whether the host waits for the late operation at a step."""
        assert self.late is not None
        node = self.fixed.threads[self.state.steps[step].thread].nodes[self.state.steps[step].node]
        return may_join(node) and covers(self.state.after[step], self.late)

    def _query_gates(self, gate: Gate) -> list[Gate]:
        assert self.late is not None
        try:
            return list(_query_gates(self.state, gate, self.late))
        except Unforceable:
            return []

    def _reach(self, goal: Where, whole_turn: bool = False) -> bool:
        """Let the goal's thread run up to and including the goal, or to the end of that turn; False when it cannot."""
        thread = self.threads.get(goal[0])
        if thread is None or self.state.player.turn(thread) > goal[1]:
            return False
        before = self.state.copy()
        kept = (dict(self.labels), self.holds, dict(self.done))
        for _ in range(2000):
            player = self.state.player
            if player.finished(thread) or player.turn(thread) > goal[1]:
                break
            if not player.enabled(thread):
                if not self._help(thread):
                    break
                continue
            self._advance(thread)
            if goal in self.done:
                return True
        if whole_turn:
            return False
        self.state = before  # the thread must not run past its turn for a step that is not there
        self.labels, self.holds, self.done = kept
        return False

    def _help(self, stuck: int) -> bool:
        """One step of another thread that can move, the one furthest behind first."""
        player = self.state.player
        others = [t for t in range(len(self.fixed.threads)) if t != stuck and player.enabled(t)]
        for thread in sorted(others, key=player.turn):
            before = len(self.state.steps)
            self._advance(thread)
            return len(self.state.steps) > before
        return False

    def _advance(self, thread: int) -> None:
        player = self.state.player
        where = self.state.where(thread)
        node = player.node(thread)
        answer = None
        if isinstance(node, p.Ask):
            answer = self._answer(thread, node, where)
        number = len(self.state.steps)
        step = Step(thread, player.pc(thread), answer, self._block(thread, where, number))
        self.state.step(step)
        self.state.eager(self.late if self._shut() else None)
        self.done[where] = number
        if self._shut() and self.holds is None and self.late is not None and covers(self.state.after[-1], self.late):
            self.holds = number

    def _shut(self) -> bool:
        self._look()
        return self.late is not None and not self.opened and self.holds is None

    def _answer(self, thread: int, node: p.Ask, where: Where) -> str:
        possible = self.state.player.possible_answers(thread)
        if not possible:
            raise Unforceable(f"the fixed design cannot go on at a question of {where[0]!r}")
        wanted = self.answers.get(where)
        if isinstance(node.question, (p.EventQuery, p.StreamQuery)) and len(possible) > 1:
            # "yes" where the work is not held back: a real query says so a moment later.
            if not self._shut():
                return wanted or "yes"
            after = self.state.tried(Step(thread, self.state.player.pc(thread), "yes"))
            assert self.late is not None
            return "no" if after is None or covers(after.after[-1], self.late) else "yes"
        return wanted if wanted in possible else possible[0]

    def _block(self, thread: int, where: Where, number: int) -> int | None:
        """The block that the counterexample's allocation got, if the model lets it be handed out here."""
        label = self.blocks.get(where)
        node = self.state.player.node(thread)
        if label is None or not isinstance(node, p.Do) or not isinstance(node.operation, (p.Alloc, p.Take)):
            return None
        self.labels[number] = label
        after = self.state.tried(Step(thread, self.state.player.pc(thread), None, label))
        if after is None:
            return None
        if self._shut() and self.late is not None and covers(after.after[-1], self.late):
            return None  # the allocator sees that the block is in use
        return label


def signature(program: p.Program, thread: p.Thread, node: p.Node) -> str:
    """What a node does, in names only."""
    if isinstance(node, p.Ask):
        q = node.question
        return f"?{type(q).__name__} {getattr(q, 'name', '')}"
    o = node.operation
    parts = [RULES[type(o)].name if type(o) in RULES else type(o).__name__]
    for field in o.__struct_fields__:
        value = getattr(o, field)
        if field == "name":
            parts.append(value)
        elif field in ("local", "locals"):
            parts.append(",".join(thread.locals[k].name for k in ([value] if isinstance(value, int) else value)))
        elif isinstance(value, (p.Obj, p.Slot)):
            parts.append(program.objects[value.id].name)
        elif isinstance(value, p.Local):
            parts.append(thread.locals[value.id].name)
        elif field in ("queue", "pool", "lock", "flag", "counter", "cursor"):
            parts.append(program.objects[value].name)
    return " ".join(parts)
