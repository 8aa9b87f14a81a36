"""The oracle of the wait questions: is a location safe once these edges are gone? Every hazard is replayed, as in `check`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec
from fencepost.model import program as p
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform
from fencepost.proofs.check import Checker
from fencepost.proofs.explore.compile import Unsupported
from fencepost.proofs.explore.locations import Location, locations
from fencepost.proofs.explore.search import Budget, OutOfBudget, Search
from fencepost.proofs.explore.serial import sole_agent
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.slicing import dropped
from fencepost.proofs.judge import Judged
from fencepost.proofs.waits.catalogue import COPY, HOLD, USE, Sync, operation, without
from fencepost.proofs.waits.handles import Handles, Node, Origin

STATES, SECONDS = 60_000, 20.0
"""What one question about one location may store and take; beyond that it is open."""


ALONE = 300
"""States of a search that only tells what a redundant wait orders; where it does not end nothing is said."""


class Verdict(msgspec.Struct, frozen=True):
    """Of one location: `safe`, None when it is open (`why` says so), with the shortest replayed hazards when it is not."""

    safe: bool | None
    hazards: tuple[Judged, ...] = ()
    why: str = ""


def judge_location(
    program: p.Program, location: Location, platform: Platform, environment: Environment, seconds: float = SECONDS,
    first: bool = True,
) -> Verdict:  # fmt: skip
    """Decide one location of one program, by the rules of `check`.

    `first`: end at the first hazard that refutes. The search goes by fewest steps, so that it is a shortest one.
    """
    budget = Budget(STATES, max(0.05, seconds), first=first)
    checker = Checker(program, platform, environment, budget, False, (), False)
    if sole_agent(checker.setting, location) is not None:
        return Verdict(True)
    try:
        checker._location(location)
    except (OutOfBudget, Unsupported) as stop:
        if not checker._refuting():
            return Verdict(None, why=str(stop))
    refuting = sorted(checker._refuting(), key=lambda j: (j.turns, len(j.run.steps)))
    if refuting:
        return Verdict(False, tuple(refuting))
    if first and (checker.judged or checker.unsure):
        # What was found first changes no value, or could not be reproduced; what comes behind it decides.
        return judge_location(program, location, platform, environment, seconds, first=False)
    return Verdict(None, why=checker.unsure[0]) if checker.unsure else Verdict(True)


class Oracle:
    """Verdicts of one program with some synchronisations taken away, each asked once."""

    def __init__(
        self, program: p.Program, syncs: list[Sync], platform: Platform = PLATFORMS["cuda"],
        environment: Environment = BARE, deadline: float | None = None, progress: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        """`deadline`: value of `time.monotonic()` after which every further answer is open."""
        self.program = program
        self.syncs = syncs
        self.platform = platform
        self.environment = environment
        self.deadline = deadline
        self.progress = progress
        self.locations = locations(program)
        self.handles = Handles(program)
        self.asked = 0
        self.begun = time.monotonic()
        self._programs: dict[frozenset[int], p.Program] = {frozenset(): program}
        self._known: dict[tuple[Location, frozenset[int]], Verdict] = {}
        self._relevant: dict[Location, frozenset[int]] = {}
        self._settings = [
            Setting(one, platform, environment) for one in (program, self.edited(frozenset(range(len(syncs)))))
        ]

    def edited(self, gone: frozenset[int]) -> p.Program:
        """The program without the edges of these synchronisations (numbers in `syncs`)."""
        program = self._programs.get(gone)
        if program is None:
            program = self._programs[gone] = without(self.program, [self.syncs[k] for k in sorted(gone)], self.platform)
        return program

    def relevant(self, location: Location) -> frozenset[int]:
        """The synchronisations that can change what an exploration of the location sees; the others never matter there."""
        known = self._relevant.get(location)
        if known is None and sole_agent(self._settings[0], location) is not None:
            known = self._relevant[location] = frozenset()
        if known is None:
            passed = [dropped(setting, location) for setting in self._settings]
            known = self._relevant[location] = frozenset(
                k for k, sync in enumerate(self.syncs) if self._matters(sync, location, passed)
            )
        return known

    def _matters(self, sync: Sync, location: Location, passed: list[list[set[int]]]) -> bool:
        blocks = location.kind == "block"
        if sync.kind in (HOLD, USE):
            return blocks and any(self.owner(origin) == (True, location.id) for origin in self.held(sync))
        if blocks and sync.kind == COPY:
            return True  # without its wait it is a copy that the host allocator takes note of
        return any(i not in skipped[t] for skipped in passed for t, i in sync.nodes)

    def held(self, sync: Sync) -> frozenset[Origin]:
        """What the reference or record_stream of `sync` may keep."""
        found: set[Origin] = set()
        for t, i in sync.nodes:
            op = operation(self.program, (t, i))
            if isinstance(op, p.RecordStream):
                found |= self.handles.of(t, op.block)
            elif isinstance(op, (p.Put, p.CellSet)) and sync.value is not None:
                value = op.values[sync.value]
                assert isinstance(value, p.Local)
                found |= self.handles.of(t, value)
        return frozenset(found)

    def owner(self, origin: Origin) -> tuple[bool, int | None]:
        """(whether it is a block of a caching allocator, its owner stream's object or None for pinned memory)."""
        for node in self.program.threads[origin.thread].nodes if origin.thread is not None else ():
            op = node.operation if isinstance(node, p.Do) else None
            if isinstance(op, p.Alloc) and op.local == origin.id:
                stream = op.stream
                return True, stream.id if op.space == "device" and isinstance(stream, (p.Obj, p.Slot)) else None
        return False, None

    def known(self, location: Location) -> dict[frozenset[int], Verdict]:
        """The verdicts of one location that were asked for, by the synchronisations that were gone."""
        return {gone: verdict for (at, gone), verdict in self._known.items() if at == location}

    def learn(self, location: Location, known: dict[frozenset[int], Verdict], asked: int) -> None:
        """Take over what another oracle about the same program found."""
        self._known.update({(location, gone): verdict for gone, verdict in known.items()})
        self.asked += asked

    def verdict(self, location: Location, gone: Iterable[int], first: bool = True) -> Verdict:
        """The location's verdict without the edges of `gone`; with `first` one hazard is enough."""
        effective = self.relevant(location) & frozenset(gone)
        known = self._known.get((location, effective))
        if known is None:
            left = SECONDS if self.deadline is None else self.deadline - time.monotonic()
            if left <= 0:
                return Verdict(None, why="the time given ended")
            if self.progress is not None and time.monotonic() - self.begun > 2:
                self.progress(f"{location.label(self.program)}: {self.asked} edits decided")
            self.asked += 1
            known = judge_location(
                self.edited(effective), location, self.platform, self.environment, min(left, SECONDS), first
            )
            self._known[location, effective] = known
        return known

    def pairs(self, location: Location, gone: Iterable[int]) -> frozenset[tuple[str, Node, Node]]:
        """(location, first access, second access) of all hazards that a search finds there; empty when it does not end."""
        setting = Setting(self.edited(self.relevant(location) & frozenset(gone)), self.platform, self.environment)
        left = SECONDS if self.deadline is None else self.deadline - time.monotonic()
        search = Search(setting, location)
        try:
            reach = search.run(Budget(ALONE, min(2.0, max(0.05, left))))
        except (OutOfBudget, Unsupported):
            return frozenset()
        label = location.label(self.program)
        return frozenset(
            (label, found.first, found.second)
            for found in reach.hazards
            if found.first is not None and found.kind != "same bytes"
        )
