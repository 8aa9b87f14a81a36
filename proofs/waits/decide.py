"""The oracle of the wait questions: is a location safe once these edges are gone? Every hazard is replayed, as in `check`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec
from fencepost.model import program as p
from fencepost.model.effects import Effect
from fencepost.model.operations import Context, lower
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform
from fencepost.proofs.check import Checker
from fencepost.proofs.explore.compile import DoNode, Unsupported
from fencepost.proofs.explore.locations import Location, locations
from fencepost.proofs.explore.search import Budget, OutOfBudget, Search
from fencepost.proofs.explore.serial import sole_agent
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.slicing import dropped
from fencepost.proofs.judge import Judged
from fencepost.proofs.waits.beyond import Unordered, further, pairs, unordered
from fencepost.proofs.waits.catalogue import BOUND, COPY, HOLD, HOST, STREAM, USE, Sync, operation, without
from fencepost.proofs.waits.handles import Handles, Node, Origin
from fencepost.proofs.waits.switch import SWITCHED, Switch, watched

STATES, SECONDS = 60_000, 20.0
"""What one question about one location may store and take; beyond that it is open."""


ALONE = 300
"""States of a search that only tells what a redundant wait orders; where it does not end nothing is said."""


class Verdict(msgspec.Struct, frozen=True):
    """Of one location: `safe`, None when it is open (`why` says so), with the shortest replayed hazards when it is not."""

    safe: bool | None
    hazards: tuple[Judged, ...] = ()
    why: str = ""
    unbounded: bool = False
    """Open because work piles up beyond what the search looks at."""


def judge_location(
    program: p.Program, location: Location, platform: Platform, environment: Environment, seconds: float = SECONDS,
    first: bool = True, setting: Setting | None = None,
) -> Verdict:  # fmt: skip
    """Decide one location of one program, by the rules of `check`.

    `first`: end at the first hazard that refutes. The search goes by fewest steps, so that it is a shortest one.
    `setting`: that of the program, where it is there already.
    """
    budget = Budget(STATES, max(0.05, seconds), first=first)
    checker = Checker(program, platform, environment, budget, False, (), False, setting=setting)
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
        return judge_location(program, location, platform, environment, seconds, False, checker.setting)
    return Verdict(None, why=checker.unsure[0]) if checker.unsure else Verdict(True)


TIME_ENDED = "the time given ended"

MOST_SETTINGS = 40
"""Edited programs that an oracle keeps prepared."""

FEW_GONE = 2
"""Waits without which a program is explored in the slices of the whole one; without more of them its own are smaller."""

Marks = tuple[tuple[frozenset[int], "bool | None", str, bool], ...]
"""(taken away, safe, why it is open, unbounded) for each question about one location that is answered."""

Pairs = frozenset[tuple[str, Node, Node]]
"""(location, first access, second access)."""


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
        self._known: dict[Location, dict[frozenset[int], Verdict]] = {}
        self._relevant: dict[Location, frozenset[int]] = {}
        self._settings: dict[frozenset[int], Setting] = {}
        self._switches: dict[Location, Switch] = {}
        self._unsafe: dict[Location, list[frozenset[int]]] = {}
        """Without these there is a hazard, though its shortest run is not known."""
        self._extremes = (frozenset[int](), frozenset(range(len(syncs))))
        self.broken: dict[Location, Unordered] = {}
        """Locations that are refuted as they are, and what is unordered there: only what goes wrong beside that counts."""

    def edited(self, gone: frozenset[int]) -> p.Program:
        """The program without the edges of these synchronisations (numbers in `syncs`)."""
        program = self._programs.get(gone)
        if program is None:
            program = self._programs[gone] = without(self.program, [self.syncs[k] for k in sorted(gone)], self.platform)
        return program

    def setting(self, gone: frozenset[int]) -> Setting:
        """The setting of the program without these edges; the last ones asked for are kept."""
        found = self._settings.pop(gone, None)
        if found is None:
            found = self._like_whole(gone) or Setting(self.edited(gone), self.platform, self.environment)
        self._settings[gone] = found
        while len(self._settings) > MOST_SETTINGS:
            oldest = next(one for one in self._settings if one not in self._extremes)
            del self._settings[oldest]
            self._programs.pop(oldest, None)
        return found

    def _like_whole(self, gone: frozenset[int]) -> Setting | None:
        """The setting without a few waits, in the numbering and slices of the whole program: that costs nothing."""
        whole = self._settings.get(frozenset())
        if whole is None or not gone or (whole.meetings is None and len(gone) > FEW_GONE):
            return None
        if not all(self.syncs[k].kind in (SWITCHED if whole.meetings is not None else (HOST, STREAM)) for k in gone):
            return None
        program = self.edited(gone)
        return whole.edited(program, {at: self._lowered(program, at) for k in gone for at in self.syncs[k].nodes})

    def _lowered(self, program: p.Program, at: Node) -> tuple[Effect, ...]:
        """The effects of the operation at a node."""
        context = Context(program, program.threads[at[0]], self.platform, self.environment)
        return lower(operation(program, at), context)

    def relevant(self, location: Location) -> frozenset[int]:
        """The synchronisations that can change what an exploration of the location sees; the others never matter there."""
        known = self._relevant.get(location)
        if known is None and sole_agent(self.setting(frozenset()), location) is not None:
            self._enter(location, frozenset(), Verdict(True))
            known = self._relevant[location] = frozenset()
        if known is None:
            passed = [dropped(self.setting(gone), location) for gone in self._extremes]
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
        return self._known.get(location, {})

    def broken_anyway(self, location: Location) -> bool:
        """Ask from now on what goes wrong beside the hazards that the location has as it is; false where these hide that."""
        known = unordered(self.setting(frozenset()), location, self.left()) if self.left() > 0 else None
        if known is not None:
            self.breaks_anyway(location, known)
        return known is not None

    def breaks_anyway(self, location: Location, known: Unordered) -> None:
        """Enter what is unordered at the location as it is: beside that it is safe."""
        self.broken[location] = known
        self._known[location] = {frozenset(): Verdict(True)}
        self._unsafe.pop(location, None)

    def _beside(self, location: Location, gone: frozenset[int], left: float) -> Verdict:
        """What the location, refuted as it is, is without these: `safe` where no further pair goes wrong."""
        new, doubt = further(
            self.edited(gone), self.setting(gone), location, self.broken[location], left, self.platform, self.environment
        )
        if new:
            return Verdict(False, tuple(new))
        return Verdict(None, why=f"it is refuted as it is, and what would go wrong beside that is open: {doubt}") if doubt else Verdict(True)

    def learn(self, location: Location, known: dict[frozenset[int], Verdict]) -> None:
        """Take over what another oracle about the same program found."""
        self._known.setdefault(location, {}).update(known)

    def marks(self, location: Location) -> Marks:
        """What is known of a location, without its hazards: for another process."""
        known = [(gone, one.safe, one.why, one.unbounded) for gone, one in self.known(location).items()]
        return (*known, *((gone, False, "", False) for gone in self._unsafe.get(location, ())))

    def mark(self, location: Location, marks: Marks) -> None:
        """Enter what another process knows."""
        known = self.known(location)
        for gone, safe, why, unbounded in marks:
            if safe is False:
                self._unsafe.setdefault(location, []).append(gone)
            elif gone not in known:
                self._enter(location, gone, Verdict(safe, why=why, unbounded=unbounded))

    def verdict(self, location: Location, gone: Iterable[int], first: bool = True, shortest: bool = True) -> Verdict:
        """The location's verdict without the edges of `gone`; with `first` one hazard is enough.

        Without `shortest` a hazard that is known to show with fewer of these gone, or more, may stand for its own.
        """
        effective = self.relevant(location) & frozenset(gone)
        known = self.known(location).get(effective)
        if known is None:
            if effective and any(one.safe and effective <= gone for gone, one in self.known(location).items()):
                return Verdict(True)  # with more edges it is not less safe
            left = self.left()
            if left <= 0:
                return Verdict(None, why=TIME_ENDED)
            if self.progress is not None and time.monotonic() - self.begun > 2:
                self.progress(f"{location.label(self.program)}: {self.asked} edits decided")
            switched = self._switched_off(location, effective) if location not in self.broken else None
            if switched is not None:
                return switched
            if not shortest and self._shown(location, effective):
                self._unsafe.setdefault(location, []).append(effective)
                return Verdict(False)
            self.asked += 1
            if location in self.broken:
                known = self._beside(location, effective, left)
            else:
                known = judge_location(
                    self.edited(effective), location, self.platform, self.environment, min(left, SECONDS), first,
                    self.setting(effective),
                )  # fmt: skip
            self._enter(location, effective, known)
        return known

    def safe(self, location: Location, gone: Iterable[int]) -> bool | None:
        """Whether the location is safe without the edges of `gone`, None where that is open."""
        effective = self.relevant(location) & frozenset(gone)
        known = self.known(location)
        if any(one.safe is False and less <= effective for less, one in known.items()):
            return False  # with fewer edges it is not safer
        if any(less <= effective for less in self._unsafe.get(location, ())):
            return False
        if any(one.unbounded and less <= effective for less, one in known.items()):
            return None  # who runs ahead without end does so with fewer edges, too, but for the rarest designs
        return self.verdict(location, effective, shortest=False).safe

    def _shown(self, location: Location, gone: frozenset[int]) -> bool:
        """Whether streams meet and the last hazard that was found at the location shows without these, too."""
        setting = self.setting(frozenset())
        last = next((one for one in reversed(self.known(location).values()) if one.safe is False), None)
        if setting.meetings is None or last is None or self.left() <= 0:
            return False
        from fencepost.proofs.judge import judge

        found = last.hazards[0].found
        result = judge(self.edited(gone), location, found, self.platform, self.environment, self.setting(gone).lowered)
        return not isinstance(result, str) and result.hazard.value_changing is True

    def _switched_off(self, location: Location, gone: frozenset[int]) -> Verdict | None:
        """What a search that needs no compiling says without these, where streams meet: safe, or beyond its bounds.

        What told that search nothing new is then taken away, too, as long as that is safe: it answers further questions.
        """
        whole = self.setting(frozenset())
        if whole.meetings is None or not all(self.syncs[k].kind in SWITCHED for k in gone):
            return None
        relevant = frozenset(k for k in self.relevant(location) if self.syncs[k].kind in SWITCHED)
        switch = self._switches.get(location)
        if switch is None:
            bare = self.setting(frozenset(k for k, sync in enumerate(self.syncs) if sync.kind in SWITCHED))
            try:
                switch = self._switches[location] = Switch(whole, bare, self.syncs, location)
            except Unsupported:
                return None
        first: Verdict | None = None
        while not any(gone == other for other in self.known(location)):
            left = self.left()
            if left <= 0:
                break
            self.asked += 1
            safe = switch.safe(gone, self.setting(gone).forms, Budget(STATES, min(left, SECONDS) / 2))
            if not safe and not switch.beyond:
                break
            verdict = Verdict(True) if safe else Verdict(None, why=switch.beyond, unbounded=True)
            self._enter(location, gone, verdict)
            first = first or verdict
            if len(gone) * 3 > len(relevant) * 2:
                break  # the few that stay are asked about one by one
            gone |= relevant - switch.used
        return first

    def left(self) -> float:
        """Seconds until the deadline."""
        return SECONDS if self.deadline is None else self.deadline - time.monotonic()

    def _enter(self, location: Location, gone: frozenset[int], verdict: Verdict) -> None:
        self._known.setdefault(location, {})[gone] = verdict

    def core(self, location: Location) -> frozenset[int] | None:
        """The synchronisations that told an exploration of the location anything new; None where that is not known.

        Without all others the exploration goes the same way. The location's verdict as it is becomes known on the way,
        if it is safe.
        """
        setting = self.setting(frozenset())
        relevant = self.relevant(location)
        if setting.queries or setting.meetings is not None or not relevant or self.left() <= 0:
            return None  # what a synchronisation of pending work does shows only when that goes on
        try:
            search = Search(setting, location, proof=True)
        except Unsupported:
            return None
        used: set[int] = set()
        for k in relevant:
            sync = self.syncs[k]
            if sync.kind not in (HOST, STREAM, COPY, BOUND) or (sync.kind == COPY and location.kind == "block"):
                used.add(k)  # what it changes is no bit alone
                continue
            for t, i in sync.nodes:
                node = search.code[t][i]
                if isinstance(node, DoNode):
                    effects = tuple(watched(search, effect, sync.kind, (t, i), k, used) for effect in node.effects)
                    search.code[t][i] = msgspec.structs.replace(node, effects=effects)
        self.asked += 1
        try:
            reach = search.run(Budget(STATES, min(self.left(), SECONDS)))
        except (OutOfBudget, Unsupported):
            return None
        if reach.hazards:
            return None
        self._enter(location, frozenset(), Verdict(True))
        return frozenset(used)

    def pairs(self, location: Location, gone: Iterable[int]) -> Pairs | None:
        """(location, first access, second access) of all hazards that a search finds there; None when it does not end."""
        left = self.left()
        if left <= 0:
            return None
        label = location.label(self.program)
        setting = self.setting(self.relevant(location) & frozenset(gone))
        if setting.meetings is None:
            unordered_ = pairs(setting, location, ALONE, min(2.0, left))
            return None if unordered_ is None else frozenset((label, *pair) for pair in unordered_)
        try:
            reach = Search(setting, location).run(Budget(ALONE, min(2.0, max(0.05, left))))
        except (OutOfBudget, Unsupported):
            return None
        return frozenset(
            (label, found.first, found.second)
            for found in reach.hazards
            if found.first is not None and found.kind != "same bytes"
        )
