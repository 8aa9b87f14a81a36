"""Runs of other engines on the machine: the same host order, answers and blocks, with chosen work held back.

A run (`model.answer.Run`) is data. The guide makes the machine take its steps in its order as far as the machine lets
it, and tries in turn which work has to be late for a read to get something wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fencepost.model import program as p
from fencepost.model.answer import Run
from fencepost.simulator.machine_script import DEFAULTS, Follow, Script
from fencepost.simulator.machine_state import FOREVER, MEETING, Block, HostThread, Work


class Guide(Follow):
    """Follows a run. `held`: steps whose work is held back until the run is over; `until`: step -> the step after which
    its work is let go. `torn`: held work also takes some time once it starts, so that others come in between.

    `early` is what it found impossible: a query that should say "no" was complete, as (its step, steps whose work it
    needs pending).
    """

    def __init__(self, run: Run, held: Iterable[int] = (), until: dict[int, int] | None = None, torn: int = 0,
                 then: Script = DEFAULTS) -> None:  # fmt: skip
        super().__init__(then)
        self.run = run
        self.held, self.until, self.torn = frozenset(held), dict(until or {}), torn
        self.early: list[tuple[int, list[int]]] = []
        self.mine: dict[int, list[int]] = {}
        self.device: dict[tuple[int, int], list[int]] = {}
        """For each stream the run's steps of the device that are still to come, the next one last."""
        for number, step in enumerate(run.steps):
            if step.stream is None:
                self.mine.setdefault(step.thread, []).append(number)
            else:
                self.device.setdefault(step.stream, []).insert(0, number)
        self.at: dict[int, int] = dict.fromkeys(self.mine, 0)
        self.made: dict[int, int] = {}
        """Step of the machine -> step of the run."""
        self.taken: set[int] = set()
        self.labels: dict[int, int] = {}
        """Block or token number in the run -> in the machine."""
        self.open_channels: frozenset[int] = frozenset()
        self.lasting: set[int] = set()
        """Steps of the machine whose meeting the plan holds back."""
        self.seen = 0

    def _next(self, thread: int) -> int | None:
        """The thread's next step of the run."""
        mine = self.mine.get(thread)
        return mine[self.at[thread]] if mine is not None and self.at[thread] < len(mine) else None

    def _current(self, thread: HostThread) -> int | None:
        number = self._next(thread.index)
        return number if number is not None and self.run.steps[number].node == thread.node.index else None

    def before(self, machine: Any, able: list[HostThread]) -> bool:
        """Called before each step; True when it changed something."""
        log, self.open_channels = machine.log, machine.open_channels
        while self.seen < len(log):
            thread, node, answer, block, stream = log[self.seen]
            if stream is not None:
                if self.device.get(stream):
                    self.taken.add(self.device[stream].pop())
                self.seen += 1
                continue
            number = self._next(thread)
            if number is not None and self.run.steps[number].node == node:
                if answer == "yes" and self.run.steps[number].answer == "no":
                    self._complete(machine, machine.threads[thread], number)
                self.at[thread] += 1
                self.made[self.seen] = number
                self.taken.add(number)
                label = self.run.steps[number].block
                if label is not None and block is not None:
                    self.labels.setdefault(label, block)
            self.seen += 1
        position = min((self.mine[t][k] for t, k in self.at.items() if k < len(self.mine[t])), default=len(self.run.steps))
        if not machine.held:
            return False
        if position < len(self.run.steps) and self.run.steps[position].answer == "yes":
            asked = machine.threads[self.run.steps[position].thread]
            tail = asked.node.tail(asked) if asked.node.tail is not None and self._current(asked) == position else ()
            queues = {work.stream.fifo for work in tail if not work.done}
            due = [work for work in machine.held if work.stream is not None and work.stream.fifo in queues]
            for work in due:
                machine.let_go(work)
            if due:
                return True
        meets = self._meets(machine, position)
        if meets is not None:
            machine.let_go(meets)
            return True
        stuck = bool(able) and all(self._next(th.index) is None for th in able)
        if position == len(self.run.steps) or stuck:
            for work in list(machine.held):
                machine.let_go(work)
            return True
        due = [w for w in machine.held if self.until.get(self.made.get(w.step, -1), -1) in self.taken]
        for work in due:
            machine.let_go(work)
        return bool(due)

    def _told(self, work: Work) -> bool:
        """Whether the work is one that a run has steps of the device for."""
        if work.what != MEETING:
            return False
        o = work.operation
        return isinstance(o, (p.StoreFlag, p.WaitFlag)) or o.channel in self.open_channels

    def _meets(self, machine: Any, position: int) -> Work | None:
        """Held work of a meeting whose turn has come: the run has it before its next host step."""
        found = None
        for work in machine.held:
            there = self.device.get(work.stream.key) if self._told(work) else None
            if there and there[-1] < position and work.step not in self.lasting:
                position, found = there[-1], work
        return found

    def _complete(self, machine: Any, thread: HostThread, number: int) -> None:
        """A query said "yes", where the run says "no": note what has to be pending."""
        node = machine.nodes[thread.index][self.run.steps[number].node]
        if node.tail is not None:
            needs = [self.made[work.step] for work in node.tail(thread) if work.step in self.made]
            if needs:
                self.early.append((number, needs))

    def thread(self, candidates: list[HostThread]) -> int:
        """The one whose next step comes first in the run."""
        best, number = 0, len(self.run.steps)
        for k, th in enumerate(candidates):
            mine = self._next(th.index)
            if mine is not None and mine < number:
                best, number = k, mine
        return best if number < len(self.run.steps) else super().thread(candidates)

    def answer(self, thread: HostThread, node: int, options: tuple[str, ...]) -> int:
        """The run's."""
        number = self._current(thread)
        answer = None if number is None else self.run.steps[number].answer
        return options.index(answer) if answer in options else super().answer(thread, node, options)

    def block(self, thread: HostThread, node: int, options: list[Block | None]) -> int:
        """The block that the run names, when it is free; new memory when the run names none."""
        number = self._current(thread)
        if number is None:
            return super().block(thread, node, options)
        label = self.run.steps[number].block
        wanted = self.labels.get(label) if label is not None else None
        return next((k for k, b in enumerate(options) if b is not None and b.label == wanted), len(options) - 1)

    def token(self, thread: HostThread, node: int, options: list[int]) -> int:
        """The token that the run names, else one that it does not name."""
        number = self._current(thread)
        if number is None:
            return super().token(thread, node, options)
        label = self.run.steps[number].block
        if label is not None and self.labels.get(label) in options:
            return options.index(self.labels[label])
        named = set(self.labels.values())
        return next((k for k, token in enumerate(options) if token not in named), 0)

    def stall(self, work: Work) -> tuple[int, int] | None:
        """The work of the held steps."""
        number = self._current(work.thread)
        if number is None:
            return super().stall(work)
        if number in self.held or number in self.until:
            self.lasting.add(work.step)
            return FOREVER, self.torn
        return (FOREVER, 0) if self._told(work) else None  # until its step comes


class Plan(NamedTuple):
    """What to hold back: `held` until the run is over, `until` (step -> step) until another step was taken; `torn`: it
    then takes that many ticks."""

    held: tuple[int, ...]
    until: dict[int, int] = {}
    torn: int = 0


def works(program: p.Program, run: Run) -> list[int]:
    """The steps of a run that access memory, newest first."""
    found = []
    for number, step in enumerate(run.steps):
        node = program.threads[step.thread].nodes[step.node]
        if step.stream is None and isinstance(node, p.Do) and isinstance(node.operation, (p.Host, p.Launch, p.Copy, p.Memset, p.Item)):
            found.append(number)
    return found[::-1]


def plans(program: p.Program, run: Run, suspects: tuple[tuple[int | None, int], ...] = ()) -> Iterator[Plan]:
    """Plans in the order of promise.

    `suspects`: for each hazard the steps of its two accesses, in the run's order (None, step for a read of undefined
    bytes). The first has to be late for the second to come before it, and has to come before the next reader when both
    write; if the second stands behind other work, the first has to stay late for longer.
    """
    tried: set[tuple[int, ...]] = set()

    def fresh(*held: int) -> bool:
        new = held not in tried
        tried.add(held)
        return new

    if run.late and fresh(*run.late):
        yield Plan(run.late)
    for first, second in suspects:
        if first is None:
            if fresh():
                yield Plan(())
        elif fresh(first):
            yield Plan((), {first: second})
            yield Plan((first,))
            yield Plan((first,), {}, 3)
        if fresh(second):
            yield Plan((second,))
    for number in works(program, run):
        if fresh(number):
            yield Plan((number,))
    if fresh():
        yield Plan(())
