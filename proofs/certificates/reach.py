"""Runs that reach every operation, outcome, access and pair of a certificate, replayed on the concrete event structure.

A proof about nothing is no proof: what the manifest lists has a run, or stands in the list of what never occurs, which
the relation decides over all controls.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator

from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import Run
from fencepost.model.answer import Step as RunStep
from fencepost.model.events.structure import overlap
from fencepost.model.platform import Platform
from fencepost.proofs.certificates.footprint import Footprint
from fencepost.proofs.certificates.relation import Edge, Relation
from fencepost.proofs.certificates.world import Step

RUNS, LENGTH = 24, 240
"""Runs that are tried at random before the relation is searched for what they missed, and their host steps."""
CONTROLS = 20_000
"""Controls that one search for a pair may visit."""


def goals(footprint: Footprint) -> list[str]:
    """Names of everything to reach: operations "t.n", outcomes "t.n=answer", accesses "t.n.w", pairs "t.n.w t.n.w"."""
    names = []
    for t, thread in enumerate(footprint.program.threads):
        for n, node in enumerate(thread.nodes):
            if isinstance(node, p.Do):
                names.append(f"{t}.{n}")
            else:
                names += [f"{t}.{n}={answer}" for answer, _ in node.branches]
    names += [access.name for access in footprint.accesses]
    return names + [f"{footprint.accesses[i].name} {footprint.accesses[j].name}" for i, j in footprint.pairs]


def reached(footprint: Footprint, run: Run, platform: Platform) -> set[str]:
    """What a run reaches. Raises `events.InvalidRun` when it cannot happen, or only with impossible query answers."""
    structure = events.execute(footprint.program, run, platform=platform)
    if not events.feasible(structure):
        raise events.InvalidRun("its query answers are impossible together")
    names = {
        f"{step.thread}.{step.node}" + ("" if step.answer is None else f"={step.answer}") for step in run.steps
    }
    numbers: dict[int, int] = {}
    made: dict[object, dict[str, list[tuple[int, object]]]] = {}
    for k, node in enumerate(structure.nodes):
        for touched in node.accesses:
            which = numbers.get(node.step, 0)
            numbers[node.step] = which + 1
            name = f"{node.thread}.{run.steps[node.step].node}.{which}"
            names.add(name)
            made.setdefault(touched.key, {}).setdefault(name, []).append((k, touched))
    for i, j in footprint.pairs:
        a, b = footprint.accesses[i].name, footprint.accesses[j].name
        if any(
            k != m and overlap(x, y)  # type: ignore[arg-type]
            for table in made.values()
            for k, x in table.get(a, ())
            for m, y in table.get(b, ())
        ):
            names.add(f"{a} {b}")
    return names


def wander(program: p.Program, platform: Platform, seed: int, missing: set[str]) -> Run:
    """A run by a seeded scheduler that prefers answers and operations which are still missing, and reuses blocks."""
    rng = random.Random(seed)
    player = events.Player(program, platform, keep=False)
    steps: list[RunStep] = []
    label, thread = 0, -1
    while len(steps) < LENGTH:
        enabled = [t for t in range(len(program.threads)) if player.enabled(t)]
        devices = player.device_steps()
        if devices and (not enabled or rng.random() < 0.5):
            steps.append(rng.choice(devices))
            player.step(steps[-1])
            continue
        if not enabled:
            break
        if thread not in enabled or rng.random() < 0.3:
            thread = rng.choice(enabled)
        n = player.pc(thread)
        node = player.node(thread)
        answer = block = None
        if isinstance(node, p.Ask):
            answers = player.possible_answers(thread)
            if not answers:
                break
            new = [one for one in answers if f"{thread}.{n}={one}" in missing]
            answer = rng.choice(new if new and rng.random() < 0.7 else list(answers))
        elif isinstance(node.operation, (p.Alloc, p.Take)):
            again = player.possible_blocks(thread)
            fresh = isinstance(node.operation, p.Alloc) or _has_new_token(program, player, node.operation)
            if again and (not fresh or rng.random() < 0.7):
                block = rng.choice(again)
            else:
                block, label = label, label + 1
        step = RunStep(thread, n, answer, block)
        attempt = player.copy()
        try:
            attempt.step(step)
        except events.InvalidRun:
            break
        player = attempt
        steps.append(step)
    return Run(tuple(steps))


def _has_new_token(program: p.Program, player: events.Player, operation: p.Take) -> bool:
    pool = program.objects[operation.pool]
    return isinstance(pool, p.Pool) and player.pools[operation.pool].made < pool.size


def as_run(path: Iterable[Step]) -> Run:
    """A path of the relation as host steps; the guessed block or token is number 0."""
    return Run(tuple(RunStep(s.thread, s.node, s.answer, 0 if s.got else None, s.stream) for s in path if s.node >= 0))


class Paths:
    """Shortest paths through the controls of a relation, whatever the bits: everything that can happen is on one."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.came: dict[str, tuple[str, Edge] | None] = {relation.start: None}
        self.before: list[tuple[str, Edge]] = []
        """Edges between controls without a witness, and those that choose one, in the order of their length."""
        self.complete = True
        todo = deque([relation.start])
        while todo:
            if len(self.came) > CONTROLS:
                self.complete = False
                return
            name = todo.popleft()
            for edge in relation.edges(name):
                self.before.append((name, edge))
                if not edge.chosen and edge.target not in self.came:
                    self.came[edge.target] = (name, edge)
                    todo.append(edge.target)

    def to(self, name: str) -> tuple[Step, ...]:
        """The steps to a control."""
        edges: list[Edge] = []
        while (before := self.came[name]) is not None:
            edges.append(before[1])
            name = before[0]
        return tuple(step for edge in reversed(edges) for step in edge.path)

    def steps(self) -> Iterator[tuple[str, tuple[str, Edge]]]:
        """(name of an operation or outcome, or of an access where control alone is followed, an edge that passes it)."""
        for source, edge in self.before:
            if not edge.chosen:
                for step in edge.path:
                    if step.node >= 0:
                        yield f"{step.thread}.{step.node}" + ("" if step.answer is None else f"={step.answer}"), (source, edge)
                if self.relation.cls is None:
                    for t, n, which in edge.met:
                        yield f"{t}.{n}.{which}", (source, edge)

    def pair(self, first: tuple[int, int, int], second: tuple[int, int, int]) -> tuple[Step, ...] | bool:
        """Steps of a run in which `first` and then `second` touch common bytes; False: there is none; True: unknown."""
        came: dict[str, tuple[str | None, str, Edge]] = {}
        todo: deque[str] = deque()
        for source, edge in self.before:
            if first in edge.chosen:
                if second in edge.met:
                    return (*self.to(source), *edge.path)
                if edge.target not in came:
                    came[edge.target] = (None, source, edge)
                    todo.append(edge.target)
        while todo:
            name = todo.popleft()
            for edge in self.relation.edges(name):
                if second in edge.met:
                    return (*self._back(came, name), *edge.path)
                if edge.target not in came:
                    came[edge.target] = (name, name, edge)
                    todo.append(edge.target)
            if len(came) > CONTROLS:
                return True
        return not self.complete

    def _back(self, came: dict[str, tuple[str | None, str, Edge]], name: str) -> tuple[Step, ...]:
        edges: list[Edge] = []
        while True:
            before, source, edge = came[name]
            edges.append(edge)
            if before is None:
                path = self.to(source)
                return (*path, *(step for one in reversed(edges) for step in one.path))
            name = before


class Search:
    """What the relations of a program say about a goal that no run reached."""

    def __init__(self, footprint: Footprint) -> None:
        self.footprint = footprint
        self._paths: dict[object, Paths] = {}
        self._passed: dict[str, tuple[str, Edge]] | None = None

    def paths(self, cls: object = None) -> Paths:
        """Paths of a class, made once."""
        if cls not in self._paths:
            self._paths[cls] = Paths(Relation(self.footprint, cls))  # type: ignore[arg-type]
        return self._paths[cls]

    def passed(self) -> dict[str, tuple[str, Edge]]:
        """Operations, outcomes and accesses that can occur, each with an edge of control that passes it."""
        if self._passed is None:
            self._passed = {}
            for name, at in self.paths().steps():
                self._passed.setdefault(name, at)
        return self._passed

    def find(self, goal: str) -> tuple[Step, ...] | bool:
        """Steps to a goal; False: it never occurs; True: unknown."""
        if " " not in goal:
            paths = self.paths()
            if goal in self.passed():
                source, edge = self.passed()[goal]
                return (*paths.to(source), *edge.path)
            return not paths.complete
        first, second = (tuple(map(int, one.split("."))) for one in goal.split())
        by_name = {access.name: access for access in self.footprint.accesses}
        open_ = False
        one, two = by_name[goal.split()[0]], by_name[goal.split()[1]]
        for cls in self.footprint.classes:
            label = cls.label(self.footprint.program)
            if label in one.classes and label in two.classes:
                for a, b in ((first, second), (second, first)):
                    found = self.paths(cls).pair(a, b)  # type: ignore[arg-type]
                    if isinstance(found, tuple):
                        return found
                    open_ = open_ or found
        return open_


def collect(footprint: Footprint, platform: Platform) -> tuple[list[Run], dict[str, int], list[str], list[str]]:
    """(runs, goal -> run that reaches it, goals that never occur, goals neither reached nor excluded)."""
    everything = goals(footprint)
    missing = set(everything)
    runs: list[Run] = []
    at: dict[str, int] = {}

    def enter(run: Run) -> None:
        try:
            new = reached(footprint, run, platform) & missing
        except events.InvalidRun:
            return
        if new:
            at.update(dict.fromkeys(sorted(new), len(runs)))
            runs.append(run)
            missing.difference_update(new)

    idle = 0
    for seed in range(RUNS):
        if not missing or idle >= 6:
            break
        left = len(missing)
        enter(wander(footprint.program, platform, seed, missing))
        idle = 0 if len(missing) < left else idle + 1
    search = Search(footprint)
    never: list[str] = []
    unsure: list[str] = []
    for goal in everything:
        if goal in missing:
            found = search.find(goal)
            if isinstance(found, tuple):
                enter(as_run(found))
            if goal in missing:
                (never if found is False else unsure).append(goal)
    return runs, at, never, unsure
