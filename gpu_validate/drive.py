"""Attacks on a proved design: for every pair of accesses that something protects, hold the first back and drive on.

A pair is two operations of the design that touch common bytes in some turn, one of them writing, performed by different
threads or streams, the first on the device. The gate is shut in front of the first; then every thread goes on as far as
it can without waiting for it. Either the second access comes (on other bytes, or behind the first in a stream), or all
threads wait: what they wait for is the edge that protects the pair, and the GPU must hold the host there too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.gpu_validate.graphs import planned
from fencepost.gpu_validate.plan import Plan, Unsupported
from fencepost.gpu_validate.schedule import Gate, Recorder, Schedule, Where, covers, joins, may_join
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events import InvalidRun
from fencepost.model.events.state import Node, Touched
from fencepost.model.events.structure import overlap
from fencepost.model.operations import RULES
from fencepost.model.platform import PLATFORMS, Platform

ATTEMPTS = 3
"""Gates shut for each pair, at different instances of it."""
SEEDS = 4
"""Base runs for each design; open choices fall differently in each."""
MAX_TURNS = 40
MAX_STEPS = 2500
DRIVE_STEPS = 400
"""Host steps that are driven behind a shut gate."""


class Pair(NamedTuple):
    """Two static operations, and one instance of the pair in a base run."""

    first: tuple[int, int]
    second: tuple[int, int]
    new_owner: bool
    base: int
    first_step: int
    second_step: int
    stream: tuple[int, int]
    object: str


class Attack(NamedTuple):
    """One pair made ready. `attempt`: 0 goes on as the base run did, later ones fall into open choices at random. `holds`: where the model says that the host waits, in words; `ordered`: whether the second
    access came, and behind the first by an order on the device."""

    pair: Pair
    what: str
    attempt: int
    plan: Plan
    schedule: Schedule
    holds: str | None
    came: bool
    ordered: bool


# ------------------------------------------------------------ base runs


def base_run(program: p.Program, seed: int, platform: Platform = PLATFORMS["cuda"]) -> Recorder:
    """A run of enough turns that every ring, queue and block is used again. Open choices: by turns with seed 0, drawn
    from the seed otherwise."""
    state = Recorder(program, platform)
    depth = max([getattr(o, "depth", None) or getattr(o, "capacity", None) or 1 for o in program.objects], default=1)
    turns = min(MAX_TURNS, 5 + 2 * depth)
    draw = random.Random(seed)
    asked = 0
    while len(state.steps) < MAX_STEPS:
        player = state.player
        movable = [t for t in range(len(program.threads)) if player.enabled(t) and player.turn(t) < turns]
        if not movable:
            break
        thread = min(movable, key=player.turn)
        turn = player.turn(thread)
        while player.enabled(thread) and player.turn(thread) == turn and len(state.steps) < MAX_STEPS:
            possible = player.possible_answers(thread)
            answer = None
            if possible:
                node = player.node(thread)
                assert isinstance(node, p.Ask)
                if isinstance(node.question, (p.EventQuery, p.StreamQuery)):
                    answer = "yes"
                else:
                    answer = possible[asked % len(possible)] if seed == 0 else draw.choice(possible)
                    asked += len(possible) > 1
            state.step(Step(thread, player.pc(thread), answer, _any_block(state, thread)))
            state.eager()
            player = state.player
    return state


def _any_block(state: Recorder, thread: int) -> int | None:
    """A block to hand out again if there is one, else a new number."""
    node = state.player.node(thread)
    if not isinstance(node, p.Do) or not isinstance(node.operation, p.Alloc):
        return None
    possible = state.player.possible_blocks(thread)
    return possible[0] if possible else _new_label(state)


def _new_label(state: Recorder) -> int:
    return max((key.number for key in state.player.blocks), default=-1) + 1


# ------------------------------------------------------------ pairs


def pairs(program: p.Program, bases: list[Recorder]) -> list[list[Pair]]:
    """The protected pairs of the base runs, each with its nearest instances (at most ATTEMPTS)."""
    best: dict[tuple[tuple[int, int], tuple[int, int], bool], list[Pair]] = {}
    for number, base in enumerate(bases):
        earlier: dict[object, list[tuple[Node, Touched]]] = {}
        for node in base.player.nodes:
            for touched in sorted(node.accesses, key=lambda t: t.write):
                seen = earlier.setdefault(touched.key, [])
                for other, before in reversed(seen[-64:]):
                    if other.stream is None or other.agent == node.agent or not (before.write or touched.write):
                        continue
                    if not overlap(before, touched) or joins(program, base.steps[other.step]):
                        continue
                    pair = _pair(program, base, number, other, before, node, touched)
                    known = best.setdefault((pair.first, pair.second, pair.new_owner), [])
                    if all((x.base, x.first_step) != (pair.base, pair.first_step) for x in known):
                        known.append(pair)
                        known.sort(key=lambda x: x.second_step - x.first_step)
                        del known[ATTEMPTS:]
                seen.append((node, touched))
    return [best[key] for key in sorted(best)]


def _pair(program: p.Program, base: Recorder, number: int, first: Node, before: Touched, second: Node,
          after: Touched) -> Pair:  # fmt: skip
    tenants = base.player.tenants
    name = program.objects[before.key.id].name if before.tenant is None else tenants[before.tenant].name
    assert first.stream is not None
    return Pair(
        (first.thread, base.steps[first.step].node), (second.thread, base.steps[second.step].node),
        before.tenant != after.tenant, number, first.step, second.step, first.stream, name,
    )  # fmt: skip


# ------------------------------------------------------------ one attack


def attacks(program: p.Program, platform: Platform = PLATFORMS["cuda"]) -> Iterator[Attack | str]:
    """The attacks on a design; a text where a pair cannot be attacked, saying why."""
    bases = [base_run(program, seed, platform) for seed in range(SEEDS)]
    learnt = [_learn(program, base, platform) for base in bases]
    for instances in pairs(program, bases):
        for attempt in range(ATTEMPTS):
            pair = instances[attempt % len(instances)]
            try:
                yield _Driver(program, platform, bases[pair.base], learnt[pair.base], pair, attempt).attack()
            except (InvalidRun, Unsupported) as error:
                yield f"{describe(program, pair)}: {error}"


def describe(program: p.Program, pair: Pair) -> str:
    """A pair in words."""

    def one(place: tuple[int, int]) -> str:
        thread = program.threads[place[0]]
        node = thread.nodes[place[1]]
        assert isinstance(node, p.Do)
        o = node.operation
        word = repr(o.name) if isinstance(o, (p.Host, p.Launch)) else RULES[type(o)].name
        return f"{word} of {thread.name}"

    owner = ", next owner of its block" if pair.new_owner else ""
    return f"{pair.object}: {one(pair.first)}, then {one(pair.second)}{owner}"


Learnt = tuple[dict[Where, str], dict[Where, int]]


def _learn(program: p.Program, base: Recorder, platform: Platform) -> Learnt:
    """What a base run answered, and which block each allocation got."""
    replay = Recorder(program, platform)
    answers: dict[Where, str] = {}
    blocks: dict[Where, int] = {}
    for step in base.steps:
        if step.stream is not None:
            replay.step(step)
            continue
        where = replay.where(step.thread)
        if step.answer is not None:
            answers[where] = step.answer
        if step.block is not None:
            blocks[where] = step.block
        replay.step(step)
    return answers, blocks


class _Driver:
    def __init__(self, program: p.Program, platform: Platform, base: Recorder, learnt: Learnt, pair: Pair,
                 attempt: int) -> None:  # fmt: skip
        self.attempt = attempt
        self.draw = random.Random(attempt)
        self.program, self.platform, self.base, self.pair = program, platform, base, pair
        self.state = Recorder(program, platform)
        self.answers, self.blocks = learnt
        self.labels: dict[int, int] = {}
        self.second: int | None = None
        self.holds: int | None = None
        self.late: Node | None = None
        self.turns: list[int] = []
        self.decided = False

    def attack(self) -> Attack:
        for step in self.base.steps[: self.pair.first_step + 1]:
            self.state.step(step)
        at = self.pair.first_step
        done = self.pair.first_step + 1
        while at not in self.state.ran and done < len(self.base.steps):
            self.state.step(self.base.steps[done])  # the first access waits on the device for others
            done += 1
        self.late = next(n for n in self.state.player.nodes if n.step == at and n.stream == self.pair.stream)
        self.bytes = list(self.late.accesses)
        if covers(self.state.after[-1], self.late):
            self.holds = at  # the call itself waits: a copy into pageable memory (S48)
        self.turns = [self.state.player.turn(t) for t in range(len(self.program.threads))]
        self._drive(joining=False)
        shut_until = len(self.state.steps) - 1
        if self.second is None:
            self._drive(joining=True)
        settle, ordered = None, False
        if self.second is not None:
            opens = self.second
            item = next((n for n in self.state.player.nodes if n.step == opens and n.stream is not None), None)
            if item is not None:
                settle, ordered = item.stream, covers(item.clock, self.late)
        else:
            opens = self.holds if self.holds is not None else shut_until
            # Where threads stay in calls, the gate opens when the first of them holds the host that makes all calls.
            opens = max([opens, *self.state.stopped.values()])
        self.decided = True
        self._drive(joining=True, more=True)
        gate = Gate(self.pair.first_step, self.pair.stream, max(opens, self.pair.first_step), settle)
        run = Run(tuple(self.state.steps))
        stays = tuple(sorted(self.state.stopped.values())) if self.second is None else ()
        schedule = Schedule(run, (gate,), self.pair.first_step, self.second, self.labels, self.holds, (), stays)
        plan, schedule = planned(self.program, schedule, self.platform)
        holds = None
        if schedule.holds is not None:
            line = next((line for line in plan.lines if line.step == schedule.holds and line.op != "gate"), None)
            holds = None if line is None else f"{line.op} in step {line.turn} of {line.thread}"
        what = describe(self.program, self.pair)
        return Attack(self.pair, what, self.attempt, plan, schedule, holds, self.second is not None, ordered)

    def _drive(self, *, joining: bool, more: bool = False) -> None:
        """Let all threads go on. `joining`: steps that wait for the late access are allowed. `more`: another turn each,
        so that what was written is read."""
        if more:
            self.turns = [self.state.player.turn(t) for t in range(len(self.program.threads))]
        horizon = 2 if more else 3 + max(0, self._base_turns())
        end = len(self.state.steps) + DRIVE_STEPS
        while len(self.state.steps) < end and (more or self.second is None):
            player = self.state.player
            movable = [
                t for t in range(len(self.program.threads))
                if player.enabled(t) and player.turn(t) < self.turns[t] + horizon and (joining or t not in self.state.stopped)
            ]  # fmt: skip
            if not any(self._advance(t, joining) for t in sorted(movable, key=player.turn)):
                return

    def _base_turns(self) -> int:
        """Turns of the second access's thread between the two accesses in the base run."""
        thread = self.pair.second[0]
        nodes = self.base.player.nodes
        turn = next((n.turn for n in nodes if n.step == self.pair.second_step), 0)
        return turn - self.turns[thread]

    def _advance(self, thread: int, joining: bool) -> bool:
        """One step of the thread; False when it would wait for the late access and may not."""
        player = self.state.player
        node = player.node(thread)
        where = self.state.where(thread)
        assert self.late is not None
        if isinstance(node, p.Ask):
            possible = player.possible_answers(thread)
            wanted = self.answers.get(where)
            if isinstance(node.question, (p.EventQuery, p.StreamQuery)) and len(possible) > 1:
                answers = ["yes", "no"] if self.holds is None else ["yes"]
            else:
                guided = wanted is not None and wanted in possible and self.attempt == 0
                answers = [wanted if guided and wanted is not None else self.draw.choice(possible)]
            steps = [Step(thread, player.pc(thread), answer) for answer in answers]
        elif isinstance(node.operation, p.Alloc):
            return self._allocate(thread, where, joining)
        else:
            steps = [Step(thread, player.pc(thread))]
        return any(self._make(step, joining) for step in steps)

    def _make(self, step: Step, joining: bool) -> bool:
        assert self.late is not None
        node = self.program.threads[step.thread].nodes[step.node]
        known = covers(self.state.player.clocks.now[step.thread], self.late)
        if not joining and may_join(node):
            after = self.state.tried(step)
            if after is None or (not known and covers(after.after[-1], self.late)):
                return False
            self.state = after
        else:
            self.state.step(step)
        number = len(self.state.steps) - 1
        self._settled(joining)
        if not known and not self.decided and self.second is None and self.holds is None and covers(self.state.after[-1], self.late):
            self.holds = number if may_join(node) else None
        self._look(number)
        return True

    def _settled(self, joining: bool) -> None:
        """The device goes on as far as it can, and who comes back from a call that only the late access ends stays in it."""
        assert self.late is not None
        self.state.eager(None if joining else self.late)
        for thread, entered in self.state.back.items():
            if covers(self.state.player.clocks.now[thread], self.late) and not self.decided:
                self.state.stopped.setdefault(thread, entered)
        self.state.back.clear()

    def _allocate(self, thread: int, where: Where, joining: bool) -> bool:
        """Memory for an allocation: a block whose last users are known to have ended, else new memory of that size."""
        player = self.state.player
        possible = player.possible_blocks(thread)
        first = self.blocks.get(where)
        order = sorted(possible, key=lambda label: (label != first, label))
        assert self.late is not None
        known = covers(player.clocks.now[thread], self.late)
        for label in order:
            step = Step(thread, player.pc(thread), None, label)
            after = self.state.tried(step)
            if after is None or (self.holds is None and not known and covers(after.after[-1], self.late)):
                # The allocator sees that the block is in use. A design that no wait protects gets no further than this.
                self.labels.setdefault(len(self.state.steps), label)
                continue
            self.state = after
            self.labels.pop(len(self.state.steps) - 1, None)
            self._settled(joining)
            return True
        fresh = None if len(self.state.steps) in self.labels else _new_label(self.state)
        self.state.step(Step(thread, player.pc(thread), None, fresh))
        self._settled(joining)
        return True

    def _look(self, number: int) -> None:
        """Whether the step made the second access, on bytes of the first."""
        if self.decided or self.second is not None or (self.state.steps[number].thread, self.state.steps[number].node) != self.pair.second:
            return
        for node in reversed(self.state.player.nodes):
            if node.step != number:
                break
            if any(overlap(a, b) and (a.write or b.write) for a in self.bytes for b in node.accesses):
                self.second = number

