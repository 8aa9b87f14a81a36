"""What mends a refuted design: sets of additions, each proved sufficient on the whole design, the cheapest first.

For each family of additions a set is built that prefers it: take the shortest hazard, add the cheapest offer that closes
it, go on until none is left. The sets are then proved by `check`, with a certificate.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec
from fencepost.model import answer as a
from fencepost.model import program as p
from fencepost.model.platform import Environment, Platform
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named
from fencepost.proofs.check import check
from fencepost.proofs.explain import place
from fencepost.proofs.explore.locations import Location, locations
from fencepost.proofs.explore.search import Budget
from fencepost.proofs.judge import Judged
from fencepost.proofs.liveness import search as liveness
from fencepost.proofs.liveness.report import hangs
from fencepost.proofs.waits.catalogue import Sync, operation, synchronisations, without
from fencepost.proofs.waits.changes import Offers
from fencepost.proofs.waits.classify import Mapper
from fencepost.proofs.waits.decide import judge_location
from fencepost.proofs.waits.offer import AGAIN, BOTH, PRICE, Change

MOST_CHANGES = 8
BATCH = 4
"""Families that are tried at a time."""

MOST_TRIES = 14
"""Offers that are tried against one hazard."""


class Addition(msgspec.Struct, frozen=True):
    """One change of a set, in words, and where to put it."""

    family: str
    text: str
    place: str


class Repair(msgspec.Struct, frozen=True):
    """A set of additions with the proof that it is enough. `price` orders sets, it measures nothing."""

    additions: tuple[Addition, ...]
    price: int
    answer: a.Answer
    program: p.Program
    spare: tuple[str, ...] = ()
    """Waits for the same event, by place, that may go once the set is in: the addition moves them."""


class Repairs(msgspec.Struct, frozen=True):
    """The hazards that were to be mended and the sets that were found, cheapest first."""

    hazards: tuple[a.Hazard, ...]
    repairs: tuple[Repair, ...]
    open: tuple[str, ...]
    tried: int
    seconds: float
    short: tuple[tuple[str, str], ...] = ()
    """Where nothing was found: (kind of addition, what goes wrong with it and whatever else was offered beside it)."""


class _Try(msgspec.Struct, frozen=True):
    """What became of the set that prefers one family: the set or why there is none; how many edits were decided."""

    made: Repair | None
    tried: int
    doubts: tuple[str, ...] = ()
    """Why additions on the way were not decided."""
    short: str = ""


def repair(
    program: p.Program,
    *,
    environment: str | None = None,
    platform: str | None = None,
    never: tuple[str, ...] = (),
    seconds: float = 60.0,
    most: int = 5,
    mapper: Mapper = map,
) -> Repairs:
    """The cheapest sets of additions that leave no hazard; none when the design has none.

    `seconds` bounds the whole answer. Raises `ValueError` on an unknown name.
    """
    begin = time.perf_counter()
    env, plat = environment_named(environment), platform_named(platform)
    deadline = time.monotonic() + seconds
    hazards: list[Judged] = []
    open_: list[str] = []
    for location in locations(program):
        verdict = judge_location(program, location, plat, env, deadline - time.monotonic())
        if verdict.safe is False:
            hazards.append(verdict.hazards[0])
        elif verdict.safe is None:
            open_.append(f"{location.label(program)}: {verdict.why}")
    hazards.sort(key=lambda j: (j.turns, len(j.run.steps)))
    families = {change.family for judged in hazards for change in Offers(program, judged).all()}
    ordered = sorted(families, key=lambda f: PRICE[f])
    unsafe = tuple(j.location for j in hazards)
    found: dict[frozenset[tuple[str, str]], Repair] = {}
    tried = 0
    doubts: dict[str, None] = {}
    short: dict[str, str] = {}
    while ordered:
        # A set that prefers a family costs at least as much as its one addition.
        if sum(r.price <= PRICE[ordered[0]] for r in found.values()) >= most:
            break
        batch, ordered = ordered[:BATCH], ordered[BATCH:]
        tasks = [(program, unsafe, family, plat, env, environment, platform, never, deadline) for family in batch]
        for family, one in zip(batch, mapper(_preferring, tasks), strict=True):
            tried += one.tried
            doubts.update(dict.fromkeys(one.doubts))
            if one.made is not None:
                found.setdefault(frozenset((x.text, x.place) for x in one.made.additions), one.made)
            elif one.short:
                short[family] = one.short
    smallest = [made for made in found.values() if not any(_within(other, made) for other in found.values())]
    sets = sorted(smallest, key=lambda r: (r.price, len(r.additions)))
    if hazards and not sets:
        open_ += [f"an addition that may be enough: {why}" for why in doubts]
    return Repairs(
        tuple(j.hazard for j in hazards), tuple(sets[:most]), tuple(open_), tried, time.perf_counter() - begin,
        tuple(short.items()) if hazards and not sets else (),
    )  # fmt: skip


def _within(less: Repair, more: Repair) -> bool:
    """Whether `more` has all additions of `less` and others, which it does not need then."""

    def has(wanted: Addition) -> bool:
        again = wanted.family == AGAIN  # the host wait on an event recorded once more records it once more
        return any(one == wanted or (again and one.family == BOTH and wanted.text in one.text) for one in more.additions)

    return less is not more and less.price < more.price and all(map(has, less.additions))


def _preferring(task: tuple[Any, ...]) -> _Try:
    """The set that prefers one family, without what it does not need."""
    program, unsafe, family, platform, environment, environment_name, platform_name, never, deadline = task
    builder = _Builder(program, list(unsafe), family, platform, environment, deadline)
    made = builder.build()
    if made is None or not any(change.family == family for change in builder.changes):
        return _Try(None, builder.tried, tuple(builder.doubts), builder.stuck)
    if deadline - time.monotonic() <= 0:
        return _Try(None, builder.tried, tuple(builder.doubts))

    hanging = {hang.partition(" - ")[0] for hang in hangs(program, liveness.search(program))}
    short = ""

    def proved(candidate: p.Program) -> a.Answer | None:
        """The answer, where the candidate has neither a hazard nor a hang that the design has not."""
        builder.tried += 1
        answer = check(
            candidate, environment=environment_name, platform=platform_name, never=never,
            budget=Budget(seconds=max(0.1, deadline - time.monotonic())), explain=False,
        )  # fmt: skip
        worse = {stop.partition(" - ")[0] for stop in answer.stops} - hanging
        if answer.verdict in (a.PROVED, a.MASKED) and not worse:
            return answer
        nonlocal short
        short = f"it hangs: {min(worse)}" if worse else f"{answer.hazards[0].name} comes up" if answer.hazards else ""
        return None

    answer = proved(made)
    if answer is None:
        return _Try(None, builder.tried, tuple(builder.doubts), short)
    k = 0
    while len(builder.changes) > 1 and k < len(builder.changes):
        if not builder.may_go(k):
            k += 1
            continue
        fewer = _Builder(program, list(unsafe), family, platform, environment, deadline)
        fewer.only = frozenset(map(_key, [*builder.changes[:k], *builder.changes[k + 1 :]]))
        without_one = fewer.build()
        builder.tried += fewer.tried
        less = proved(without_one) if without_one is not None and fewer.changes else None
        if less is None or without_one is None:
            k += 1
            continue
        fewer.tried, builder, made, answer, k = builder.tried, fewer, without_one, less, 0
    if not any(change.family == family for change in builder.changes):
        return _Try(None, builder.tried)  # another family's set, which is found there
    additions = tuple(Addition(c.family, c.text, c.place) for c in builder.changes)
    spare = tuple(place(program, sync.at) for sync in _same_waits(program, made) if proved(without(made, [sync], platform)))
    return _Try(Repair(additions, sum(c.price for c in builder.changes), answer, made, spare), builder.tried)


def _same_waits(program: p.Program, made: p.Program) -> list[Sync]:
    """Waits of the design that an added wait repeats."""
    added = [
        (t, node.operation)
        for t, thread in enumerate(made.threads)
        for node in thread.nodes[len(program.threads[t].nodes) :]
        if isinstance(node, p.Do) and isinstance(node.operation, (p.EventSync, p.StreamWaitEvent, p.WaitStream))
    ]
    return [s for s in synchronisations(program) if (s.at[0], operation(program, s.at)) in added]


class _Builder:
    """One set in the making."""

    def __init__(
        self, program: p.Program, unsafe: list[Location], family: str, platform: Platform, environment: Environment,
        deadline: float,
    ) -> None:  # fmt: skip
        self.program = program
        self.unsafe = unsafe
        self.family = family
        self.platform = platform
        self.environment = environment
        self.deadline = deadline
        self.changes: list[Change] = []
        self.steps: list[tuple[Location, p.Program, p.Program]] = []
        """Where each of the changes was made; the programs before and behind it."""
        self.tried = 0
        self.doubts: dict[str, None] = {}
        """Why offers were not decided."""
        self.stuck = ""
        """What no offer closed, beside those that were taken."""
        self.only: frozenset[tuple[str, str, str]] | None = None
        """Offers that may be taken; None: all."""

    def _ask(self, program: p.Program, location: Location) -> tuple[bool | None, Judged | None]:
        self.tried += 1
        left = self.deadline - time.monotonic()
        if left <= 0:
            return None, None
        verdict = judge_location(program, location, self.platform, self.environment, left)
        if verdict.safe is None:
            self.doubts.setdefault(verdict.why)
        return verdict.safe, verdict.hazards[0] if verdict.hazards else None

    def build(self) -> p.Program | None:
        """The program with the set; None when no set was found."""
        program = self.program
        for location in self.unsafe:
            safe, judged = self._ask(program, location)
            while not safe:
                if judged is None:
                    return None
                step = self._step(program, judged) if len(self.changes) < MOST_CHANGES else None
                if step is None:
                    self.stuck = f"{judged.hazard.name} stays"
                    return None
                before = program
                change, program, safe, judged = step
                self.changes.append(change)
                self.steps.append((location, before, program))
        return program

    def may_go(self, k: int) -> bool:
        """Whether the others seem to be enough where the k-th change was made: a guess, as they were made beside it."""
        location, before, behind = self.steps[k]
        known, named, last = map(_references, (before, behind, self.steps[-1][2]))
        if any(last[one] > count for one, count in named.items() if one not in known):
            return False  # another one uses its event or local
        program = self.program
        for change in (*self.changes[:k], *self.changes[k + 1 :]):
            try:
                program = change.apply(program)
            except (IndexError, AssertionError):
                return False  # it stands at what is gone
        return self._ask(program, location)[0] is True

    def _step(
        self, program: p.Program, judged: Judged
    ) -> tuple[Change, p.Program, bool | None, Judged | None] | None:
        """The first offer, the preferred family before the others, that makes the location safe, or moves on at least."""
        offers = sorted(Offers(program, judged, self.program).all(), key=lambda c: (c.family != self.family, c.price))
        if self.only is not None:
            offers = [change for change in offers if _key(change) in self.only]
        onward: tuple[Change, p.Program, bool | None, Judged | None] | None = None
        pair = _pair(judged)
        for change in offers[:MOST_TRIES]:
            if onward is not None and change.family != onward[0].family:
                break
            candidate = change.apply(program)
            safe, left = self._ask(candidate, judged.location)
            if safe:
                return change, candidate, safe, left
            if left is not None and _pair(left) != pair and onward is None:
                # Another hazard comes first now; this one may still be there behind it.
                every = judge_location(candidate, judged.location, self.platform, self.environment, first=False)
                if pair not in [_pair(j) for j in every.hazards]:
                    onward = (change, candidate, safe, left)
        return onward


def _references(program: p.Program) -> Counter[tuple[str, int, int]]:
    """How often objects and locals are named: ("object", -1, number) or ("local", thread, number)."""
    found: Counter[tuple[str, int, int]] = Counter()

    def look(t: int, value: object) -> None:
        if isinstance(value, p.Local):
            found["local", t, value.id] += 1
        elif isinstance(value, (p.Obj, p.Slot)):
            found["object", -1, value.id] += 1
        if isinstance(value, p.Data):
            for field in value.__struct_fields__:
                look(t, getattr(value, field))
        elif isinstance(value, tuple):
            for one in value:
                look(t, one)

    for t, thread in enumerate(program.threads):
        look(t, thread.nodes)
    return found


def _key(change: Change) -> tuple[str, str, str]:
    return change.family, change.text, change.place


def _pair(judged: Judged) -> tuple[object, ...]:
    return judged.found.first, judged.found.second, judged.hazard.object
