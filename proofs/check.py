"""`check`: one design in, one `Answer` out. Every location is explored; every hazard is replayed before it is told."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from fencepost.model import answer as a
from fencepost.model import program as p
from fencepost.model.platform import BARE, Environment, Platform
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named
from fencepost.proofs import explain
from fencepost.proofs.explore import certify
from fencepost.proofs.explore.compile import Unsupported
from fencepost.proofs.explore.locations import Location, locations, operands
from fencepost.proofs.explore.search import Budget, Found, OutOfBudget, Reach, Search
from fencepost.proofs.explore.serial import sole_agent
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.state import Beyond
from fencepost.proofs.liveness import search as liveness
from fencepost.proofs.liveness.progress import findings
from fencepost.proofs.liveness.report import hangs

if TYPE_CHECKING:
    from fencepost.proofs.explore.complete import Completions
    from fencepost.proofs.judge import Judged


def check(
    program: p.Program,
    *,
    environment: str | None = None,
    platform: str | None = None,
    strict: bool = False,
    never: tuple[str, ...] = (),
    budget: Budget | None = None,
    progress: Callable[[str], None] | None = None,
    explain: bool = True,
    masks: bool = True,
    best: list[Judged] | None = None,
) -> a.Answer:
    """Decide `program` for every number of steps and every schedule.

    Parameters: names of `environment` and `platform` (model/platform.py); `strict` refutes on access-level hazards too;
    `never` names operations that are declared never to run; `budget` bounds states and seconds; `progress` is
    called with one line at a time once the check has run for 2 s; `explain` also answers the side questions of a
    report (what protects each object and with which margin, what closes a hazard, what masks it, unless `masks` is false),
    each a search of its own; `best` gets the hazard that the run of a refutation shows, for `explain.closing`. Raises
    `ValueError` on an unknown name.
    """
    started = time.perf_counter()
    env, plat = environment_named(environment), platform_named(platform)
    budget = budget or Budget()
    budget.progress = progress
    checker = Checker(program, plat, env, budget, strict, never, explain, masks)
    answer = _with_liveness(checker.answer(), program, budget.started + budget.seconds)
    if best is not None and checker.best is not None:
        best.append(checker.best)
    return msgspec.structs.replace(answer, seconds=time.perf_counter() - started)


def _with_liveness(answer: a.Answer, program: p.Program, until: float) -> a.Answer:
    """The answer, with what hangs beside the safety verdict (theory: liveness), as far as it is known `until` then."""
    found = liveness.search(program, until=until)
    notes = []
    if found.bounded is not None and found.hang is None:
        notes.append(f"whether a wait can last for ever is bounded: {found.bounded}")
    if found.hang is not None and answer.verdict in (a.PROVED, a.MASKED):
        notes.append("the proof stands beside a reachable hang: what comes behind it never runs")
    told = hangs(program, found)
    names = {hang.partition(" - ")[0] for hang in told}
    bounds: set[str] = set()
    apart = tuple(one for one in findings(program, bounds=bounds, until=until) if one.partition(" - ")[0] not in names)
    notes += [f"over-waits, starvation and livelock were looked for within a bound: {bound}" for bound in sorted(bounds - {found.bounded})]
    return msgspec.structs.replace(answer, hangs=told, progress=apart, notes=(*answer.notes, *notes))


OTHER_RUNS = 50
"""Runs that are replayed in search of one that refutes, when the shortest ones show a hazard but no refutation."""


class Checker:
    """One check in progress."""

    def __init__(
        self, program: p.Program, platform: Platform, environment: Environment, budget: Budget, strict: bool,
        never: tuple[str, ...], explain: bool, masks: bool = True, setting: Setting | None = None,
    ) -> None:  # fmt: skip
        """`setting`: that of the same program, platform and environment, where it is there already."""
        self.program = program
        self.platform = platform
        self.environment = environment
        self.budget = budget
        self.setting = setting or Setting(program, platform, environment)
        self.strict = strict
        self.never = never
        self.explain = explain
        self.masks = masks and explain
        self.reached: list[tuple[Search, Reach]] = []
        self.serial: list[tuple[Location, str, bool]] = []
        """Locations that one agent alone accesses: (location, the agent, whether its accesses conflict)."""
        self.unbounded = False
        """Whether the design grows beyond a bound of the search: then it can only be refuted."""
        self.judged: list[Judged] = []
        self.best: Judged | None = None
        self.unsure: list[str] = []
        self.notes: list[str] = []

    def answer(self) -> a.Answer:
        """The verdict with its evidence."""
        control: Reach | None = None
        try:
            try:
                control = self._explore(None)
            except Beyond as stop:
                self.unsure.append(str(stop))  # a hazard may show before that, and one is enough
                self.unbounded = True
            for location in locations(self.program):
                sole = sole_agent(self.setting, location)
                if sole is None:
                    self._location(location)
                else:
                    self.serial.append((location, *sole))
        except OutOfBudget as stop:
            # What was refuted before the budget ended stays refuted.
            if not self._refuting():
                return self._make(a.UNKNOWN, reason=f"budget ended: {stop.args[0]}")
            return self._refuted()
        except Unsupported as stop:
            if not self._refuting():
                return self._make(a.UNKNOWN, reason=str(stop))
            return self._refuted()
        if self._refuting():
            return self._refuted()
        if self.unsure:
            return self._make(a.UNKNOWN, reason=self.unsure[0])
        assert control is not None
        try:
            vacuous = self._vacuity(control)
        except OutOfBudget as stop:
            vacuous = f"budget ended: {stop.args[0]}"
        if vacuous is not None:
            return self._make(a.UNKNOWN, reason=vacuous)
        return self._proved()

    # ------------------------------------------------------------ exploration

    def _explore(self, location: Location | None) -> Reach:
        search = Search(self.setting, location)
        return self._enter(search, search.run(self.budget))

    def _enter(self, search: Search, reach: Reach) -> Reach:
        """Keep what was reached. Raises `DesignError` where a cell is read that can be empty."""
        location = search.location
        self.reached.append((search, reach))
        for found in reach.hazards:
            if found.kind in ("EMPTY", "TWICE"):
                thread = self.program.threads[found.second[0]]
                place = explain.place(self.program, found.second)
                from fencepost.model import events

                wrong = "gets from a cell that can be empty there" if found.kind == "EMPTY" else "gives back a token that can be free there"
                cure = "test `cell.empty()` first" if found.kind == "EMPTY" else "give each token back once"
                raise events.DesignError(
                    f"{place}: thread {thread.name!r} {wrong} (after {len([s for s in found.steps if s[1] >= 0])} host steps); {cure}"
                )
        if location is None and reach.stuck:
            self.notes.append(explain.stuck(self.program, reach.stuck[0]))
        if location is None and reach.spinning:
            self.notes.append(explain.stuck(self.program, reach.spinning[0], "a thread goes round within its turn for ever"))
        return reach

    def _location(self, location: Location) -> None:
        """Is there a hazard at all? Only then: which ones, each with a shortest run."""
        search = Search(self.setting, location, proof=True)
        try:
            reach = search.run(self.budget)
        except Beyond as stop:
            self.unsure.append(str(stop))
            return
        if not reach.hazards:
            self.reached.append((search, reach))
            return
        if self.unbounded:
            search.shortest().run(self.budget, lambda found: self._replays(location, found))
            return
        listing = search.listing()
        reach = self._enter(listing, listing.run(self.budget))
        if listing.beyond:
            self.unsure.append(listing.beyond)
        from fencepost.proofs.explore.complete import Completions  # a proof needs no replay

        before, doubts = len(self._refuting()), len(self.unsure)
        known: set[object] = set()
        paths = [found.steps for found in reach.hazards]
        completions = Completions(self.program, self.platform, self.environment, self.setting.lowered, paths)
        for found in sorted(reach.hazards, key=lambda found: found.length):
            # The tracer makes a node of each context of one line; one pair that changes a value tells all about them.
            pair = (found.kind, self._line(found.first), self._line(found.second), found.which)
            if pair not in known and self._judge(location, found, completions):
                known.add(pair)
        if not self._refuting() and len(self.unsure) > doubts:
            self._other_runs(location, search)
        elif search.hurried and not self.budget.first and len(self._refuting()) > before:
            shortest = min(judged.turns for judged in self._refuting())
            search.shortest().run(self.budget, lambda found: self._replays(location, found), shortest)

    def _other_runs(self, location: Location, search: Search) -> None:
        """Look for a run that refutes where the runs that were found do not: their states may have covered it."""
        tries = iter(range(OTHER_RUNS))
        now = time.monotonic()
        seconds = max(0.05, min(2.0, self.budget.started + self.budget.seconds - now))

        def ends(found: Found) -> bool:
            over = next(tries, None) is None or time.monotonic() > now + seconds
            return over or self._replays(location, found)

        with contextlib.suppress(OutOfBudget):  # the doubt stays then, and is said
            search.shortest(covering=False).run(Budget(states=explain.SIDE_STATES, seconds=seconds), ends)

    def _replays(self, location: Location, found: Found) -> bool:
        """Enter the hazard if its run shows it and it refutes."""
        from fencepost.proofs.judge import judge

        result = judge(self.program, location, found, self.platform, self.environment, self.setting.lowered)
        if isinstance(result, str) or not self._refutes(result):
            return False
        self.judged.append(result)
        return True

    def _line(self, at: tuple[int, int] | None) -> object:
        """What a reader takes for the same operation: its line, and the names that it uses there."""
        if at is None:
            return None
        thread = self.program.threads[at[0]]
        node = thread.nodes[at[1]]
        if node.site < 0 or not isinstance(node, p.Do):
            return at
        return (at[0], node.site, type(node.operation), tuple(
            thread.locals[one.id].name if isinstance(one, p.Local) else one for one in operands(node.operation)
        ))  # fmt: skip

    def _judge(self, location: Location, found: Found, completions: Completions) -> bool:
        """Replay the hazard; returns whether it is real and changes a value."""
        from fencepost.proofs.judge import judge

        result = judge(self.program, location, found, self.platform, self.environment, completions=completions)
        if isinstance(result, str):
            # Not reproduced on the whole design: the state that found it may have covered a real one.
            self.unsure.append(result)
            return False
        self.judged.append(result)
        level = result.hazard.value_changing
        unread = result.why.startswith("nothing in the design reads")
        if level is False and found.kind != "same bytes" and not unread:
            # This run changes no value; another run of the same pair might.
            self.unsure.append(f"{result.hazard.name}: access-level only in the run that was found ({result.why})")
        if level is None:
            self.unsure.append(
                f"{result.hazard.name}: neither shown nor excluded that the two orders give a reader different content "
                f"({result.why})"
            )
        return bool(level)

    def _refuting(self) -> list[Judged]:
        return [j for j in self.judged if self._refutes(j)]

    def _refutes(self, judged: Judged) -> bool:
        return bool(judged.hazard.value_changing or (self.strict and judged.hazard.value_changing is False))

    # ------------------------------------------------------------ answers

    def _make(self, verdict: str, **more: object) -> a.Answer:
        notes = [*self.notes, *explain.access_level(self.judged)]
        return a.Answer(
            design=self.program.name,
            verdict=verdict,
            accepted=tuple(one.hazard for one in self.program.accepted),
            notes=tuple(dict.fromkeys([*more.pop("notes", ()), *notes])),  # type: ignore[misc]
            assumptions=tuple(explain.assumptions(self.program, self.platform)),
            lints=tuple(explain.lints(self.program)),
            environment=None if self.environment == BARE else self.environment.name,
            platform=None if self.platform.name == "cuda" else self.platform.name,
            **more,  # type: ignore[arg-type]
        )

    def _refuted(self) -> a.Answer:
        real = sorted(self._refuting(), key=lambda j: (j.turns, len(j.run.steps)))
        best = self.best = real[0]
        unique: dict[tuple[str, tuple[int, int] | None, tuple[int, int]], Judged] = {}
        for one in real:
            first = one.found.first if one.hazard.first is not None else None  # whoever came before an undefined read
            unique.setdefault((one.hazard.name, first, one.found.second), one)
        where = explain.Explainer(self.setting)
        return self._make(
            a.REFUTED,
            hazards=tuple(j.hazard for j in unique.values()),
            run=best.run,
            missing_edge=where.missing_edge(best),
            fixes=tuple(where.fixes(best)) if self.explain else (),
            masked_by=tuple(where.masks(best)) if self.masks else (),
        )

    def _vacuity(self, control: Reach) -> str | None:
        """Why a PROVED would say nothing, or None."""
        idle = {t for t, thread in enumerate(self.program.threads) if thread.idle and all(of != t for of, _ in control.nodes)}
        self.notes += [f"{self.program.threads[t].name} is never given work" for t in sorted(idle)]
        for t, thread in enumerate(self.program.threads):
            if t not in control.turns and t not in idle:
                return f"thread {thread.name!r} never ends a turn" + (f"; {self.notes[0]}" if self.notes else "")
        unreached = [one for one in explain.unreached(self.program, control.nodes) if one[1][0] not in idle]
        open_ = [name for name, _ in unreached if name not in self.never]
        if open_:
            return f"never reached: {', '.join(open_)} (say so with never=(...) if that is meant)"
        if not self._reuse():
            return "no two conflicting accesses ever happen, so there is nothing that an order could protect"
        never = [name for name, _ in unreached]
        self.notes += [f"{name} never runs, as declared" for name in never]
        self.notes += [f"{name} {a.RUNS}" for name in self.never if name not in never]
        self.notes += explain.one_sided(self.program, control.answers)
        return None

    def _reuse(self) -> bool:
        """Whether conflicting accesses happen at some location; true where nothing is written at all."""
        searches = [search for search, _ in self.reached if search.location is not None]
        if any(search.met for search in searches) or any(reused for _, _, reused in self.serial):
            return True
        if not explain.writes(self.program):
            return True
        return any(search.meets(self.budget) for search in searches)

    def _proved(self) -> a.Answer:
        total, h, checked = 0, hashlib.sha256(repr(self.program._key()).encode()), True
        h.update(repr(self.serial).encode())
        for search, reach in self.reached:
            total += certify.check(search, reach)
            h.update(certify.digest(search, reach).encode())
        certificate = a.Certificate(h.hexdigest()[:16], total, checked)
        where = explain.Explainer(self.setting)
        masked = self.environment != BARE
        return self._make(
            a.MASKED if masked else a.PROVED,
            certificate=certificate,
            protections=self._protections(where) if self.explain else (),
        )

    def _protections(self, where: explain.Explainer) -> tuple[a.Protection, ...]:
        serial = [explain.alone(location.label(self.program), agent) for location, agent, _ in self.serial]
        return (*where.protections([one for one in self.reached if one[1].location is not None]), *serial)
