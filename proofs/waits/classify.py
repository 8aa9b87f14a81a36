"""Classes of synchronisations: needed, redundant, redundant while another one stays, useless.

The minimal sufficient sets of all locations decide (see sufficient.py): a wait in each of them is needed, one in none is
redundant, one in some is redundant only while the others of a set without it stay. Every minimal set is then proved on
the whole design, with a certificate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec
from fencepost.model import answer as a
from fencepost.model import program as p
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.judge import Judged
from fencepost.proofs.waits.catalogue import BOUND, COPY, HOST, LOCK, STREAM, Sync, synchronisations
from fencepost.proofs.waits.decide import TIME_ENDED, Oracle, Pairs, Verdict
from fencepost.proofs.waits.handles import Node
from fencepost.proofs.waits.questions import NOBODY, Begun, Question, asked, packed
from fencepost.proofs.waits.static import Missed, Text, idle, missed, unwaited
from fencepost.proofs.waits.sufficient import Family, joined, minimal
from fencepost.proofs.waits.weaker import Together, Weaker

NEEDED, REDUNDANT, CONDITIONAL, USELESS, OPEN = "needed", "redundant", "conditional", "useless", "open"
"""Classes. "conditional": redundant only while another one stays; "open": an answer on the way was not decided."""

MOST_SETS = 6
"""Minimal sets that are proved on the whole design: as many as it takes that each wait which may go is gone in one."""

MOST_OPEN = 40
"""Undecided locations up to which it is told which synchronisations may matter to them."""

MANY_PARTS = 16
"""Questions that all locations together are split into where single synchronisations are asked about: whoever answers several of
a location learns from one for the others."""

FOR_SETS = 0.8
"""Part of the time given after which no further location is begun: the rest is for proofs and side questions."""


Mapper = Callable[..., Iterable[Any]]
"""`map`, or a `map` that works in several processes."""


class Costs(Protocol):
    """What the synchronisations of a program cost, from whoever knows durations: `texts` by number, `why` there is no
    break-even, `of` which steps there is one."""

    @property
    def texts(self) -> dict[int, str]: ...

    @property
    def why(self) -> str: ...

    @property
    def of(self) -> str: ...


_ORDER = (HOST, STREAM, COPY, BOUND, LOCK)
"""Kinds that order accesses by an edge, unlike a reference, which keeps a block."""


class Finding(msgspec.Struct, frozen=True):
    """What is known of one synchronisation; numbers are positions in `Waits.syncs`."""

    sync: int
    kind: str
    breaks: tuple[a.Hazard, ...] = ()
    """Hazards once its edge alone is gone (needed), or its edge and those it can replace (conditional); one a location."""
    run: a.Run | None = None
    """The run of the first of them, on `program`."""
    program: p.Program | None = None
    alternatives: tuple[tuple[int, ...], ...] = ()
    """Conditional: it may go while all of one of these stay."""
    protects: tuple[tuple[str, Node, Node], ...] = ()
    """(location, first access, second access): pairs that it orders when it is the only one there."""
    covered_by: tuple[int, ...] = ()
    """Redundant: kept ones that order every pair that it orders."""
    why: str = ""
    weaker: tuple[Weaker, ...] = ()
    missed: tuple[Missed, ...] = ()
    cost: str | None = None


class Waits(msgspec.Struct, frozen=True):
    """The answer for one program."""

    program: p.Program
    syncs: tuple[Sync, ...]
    findings: tuple[Finding, ...]
    sets: tuple[tuple[int, ...], ...]
    """Minimal sufficient sets, those that are proved first."""
    complete: bool
    proofs: tuple[a.Answer, ...]
    """For each of the first sets the answer about the design with these alone."""
    unwaited: tuple[tuple[Node, ...], ...]
    bad: tuple[a.Hazard, ...]
    """Hazards that the design has as it is; at their locations counts what goes wrong beside these."""
    open: tuple[str, ...]
    """Locations that were not decided, and why."""
    asked: int
    seconds: float
    cost_open: str = ""
    """Why no wait has a break-even, from whoever was asked for it."""
    cost_of: str = ""
    """The steps that the break-evens are about, where not all are."""
    cut: tuple[str, ...] = ()
    """What was left out because the time given ended."""
    together: Together | None = None
    """Where several are wider than needed: which of them may be narrowed at once; None where that was not asked."""


def waits(
    program: p.Program,
    *,
    environment: str | None = None,
    platform: str | None = None,
    never: tuple[str, ...] = (),
    seconds: float = 120.0,
    progress: Callable[[str], None] | None = None,
    costs: Callable[[], Costs] | None = None,
    details: bool = True,
    mapper: Mapper = map,
) -> Waits:
    """Classify every synchronisation of `program` by taking its edge away.

    `seconds` bounds the whole answer; `details` also looks for weaker ones, and for the pairs that each orders alone;
    `mapper` maps a function over independent questions, in processes if it likes; `costs` gives what waits cost once that
    is wanted, and may have begun before. Raises `ValueError` on an unknown name.
    """
    begin = time.perf_counter()
    env, plat = environment_named(environment), platform_named(platform)
    syncs = synchronisations(program, plat)
    deadline = time.monotonic() + seconds
    oracle = Oracle(program, syncs, plat, env, deadline, progress)
    text = Text(program, plat, oracle.handles)
    task = packed(oracle, text)
    bad: list[Judged] = []
    open_: dict[Location, str] = {}
    hidden: dict[Location, str] = {}
    until = deadline - (1 - FOR_SETS) * seconds

    def ask(wanted: list[Question], end: float) -> list[Any]:
        return list(mapper(asked, [(*task, end, *question) for question in wanted]))

    # What takes longest is begun first: a block is whatever the allocator handed out, a ring is rotated.
    ordered = sorted(oracle.locations, key=lambda at: (at.kind == "memory", at.kind == "memory" and not _ring(program, at)))
    answers = ask([("begun", 0, location) for location in ordered], until)
    begun: dict[Location, Begun] = {}
    for location, one in zip(ordered, answers, strict=True):
        bad += one.bad
        if one.broken is not None:
            oracle.breaks_anyway(location, one.broken)
        oracle.learn(location, one.known)
        base = one.known.get(frozenset(), Verdict(None, why=TIME_ENDED))
        if base.safe is False:
            hidden[location] = one.bad[0].hazard.object
        elif base.safe is None or one.narrow is None:
            open_[location] = base.why
        else:
            begun[location] = one
    if oracle.broken:
        task = packed(oracle, text)
    families, searches = _families(oracle, begun, lambda wanted: ask(wanted, until))
    oracle.deadline, oracle.asked = deadline, sum(one.asked for one in answers) + searches
    families = {at: families[at] for at in oracle.locations if at in families}
    whole = joined(list(families.values()))
    telling = _telling(whole.sets)
    sorter = _Sorter(oracle, text, families, whole, {j.hazard.object for j in bad}, list(open_), hidden, telling)
    sets = tuple(tuple(sorted(one)) for one in (*telling, *(one for one in whole.sets if one not in telling)))
    wanted: list[Question] = []
    if not bad and not open_:
        wanted += [("proof", 0, (kept, never)) for kept in sets[: len(telling)]]
    number = len(wanted)
    wanted += sorter.questions() if details else []
    results = ask(wanted, deadline)
    sorter.learn(wanted[number:], results[number:])
    sorter.costs = known = costs() if costs is not None else None
    findings = tuple(sorter.finding(k) for k in range(len(syncs)))
    wide = tuple((one.sync, one.weaker[0]) for one in findings if one.weaker)
    together = None
    if len(wide) > 1 and not bad and not open_:
        (together,) = ask([("together", 0, (sets[0], wide, never))], deadline)
    cut = ["what is wider than needed, and what redundant waits order"] if None in results[number:] else []
    forced = len(sets) == 1 and all(findings[k].kind == NEEDED for k in sets[0])
    return Waits(
        program, tuple(syncs), findings, sets, forced or (whole.complete and not whole.unsure), tuple(results[:number]),
        tuple(unwaited(text)), tuple(dict.fromkeys(j.hazard for j in bad)),
        tuple(f"{at.label(program)}: {why}" for at, why in open_.items()), oracle.asked, time.perf_counter() - begin,
        "" if known is None else known.why, "" if known is None else known.of, tuple(cut), together,
    )  # fmt: skip


def _ring(program: p.Program, location: Location) -> bool:
    return location.id is not None and bool(getattr(program.objects[location.id], "depth", None))


def _telling(sets: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Some of the sets, such that what is missing in one of all is missing in one of them."""
    chosen = list(sets[:1])
    always = frozenset.intersection(*sets) if sets else frozenset[int]()
    while chosen and len(chosen) < MOST_SETS and (left := frozenset.intersection(*chosen) - always):
        chosen.append(max(sets, key=lambda one: len(left - one)))
    return chosen


def _families(
    oracle: Oracle, begun: dict[Location, Begun], ask: Callable[[list[Question]], list[Any]]
) -> tuple[dict[Location, Family], int]:  # fmt: skip
    """The minimal sufficient sets of each location, beside what any location needs: that stays in any case.

    Also how many searches that took.
    """
    searches = 0
    alone: dict[Location, dict[int, bool | None]] = {at: dict(one.alone) for at, one in begun.items()}
    wanted: list[Question] = []
    for at, one in begun.items():
        left = [k for k in sorted(one.narrow.few if one.narrow is not None else ()) if k not in one.alone]
        parts = min(len(left), max(1, MANY_PARTS // len(begun)))
        wanted += [("alone", 0, (at, tuple(left[n::parts]), oracle.marks(at))) for n in range(parts)]
    for (_, _, (at, _, _)), (answers, known, count) in zip(wanted, ask(wanted), strict=True):
        alone[at].update(answers)
        oracle.learn(at, known)
        searches += count
    needed = {at: frozenset(k for k, safe in answers.items() if safe is not True) for at, answers in alone.items()}
    given = frozenset[int]().union(*needed.values())
    found: dict[Location, Family] = {}
    # Locations in which the same may matter often need the same: the first of them is looked at first.
    shapes: dict[frozenset[int], list[Location]] = {}
    for at in begun:
        shapes.setdefault(oracle.relevant(at) - given, []).append(at)
    heads = [group[0] for group in shapes.values()]
    for chosen in (heads, [at for at in begun if at not in heads]):
        wanted = []
        for at in chosen:
            narrow = begun[at].narrow
            assert narrow is not None
            seeds = next((found[group[0]].sets for group in shapes.values() if at in group[1:]), ())
            wanted.append(("family", 0, (at, narrow, needed[at], given, seeds, oracle.marks(at))))
        for at, (family, known, count) in zip(chosen, ask(wanted), strict=True):
            oracle.learn(at, known)
            searches += count
            found[at] = msgspec.structs.replace(family, unsure=family.unsure or None in alone[at].values())
    return found, searches


def _instead(k: int, family: Family, needed: frozenset[int]) -> Family:
    """The minimal sets that can stand in for `k` wherever a minimal set of the family holds it."""
    others = [one for one in family.sets if k not in one]
    holding = [one for one in family.sets if k in one] or [needed | {k}]
    return joined(
        [Family(tuple(minimal([other - (one - {k}) - needed for other in others]))) for one in holding if others]
    )


class _Sorter:
    """From families of minimal sets to findings."""

    def __init__(
        self, oracle: Oracle, text: Text, families: dict[Location, Family], whole: Family, bad: set[str],
        open_: list[Location], hidden: dict[Location, str], telling: list[frozenset[int]],
    ) -> None:  # fmt: skip
        self.oracle = oracle
        self.text = text
        self.families = families
        self.costs: Costs | None = None
        self.bad = bad
        count = range(len(oracle.syncs))
        none: frozenset[int] = frozenset()
        self.union = none.union(*whole.sets)
        self.needed = frozenset.intersection(*whole.sets) if whole.sets else none
        self.unsure = none.union(*(oracle.relevant(at) for at, family in families.items() if family.unsure))
        self.unsure |= frozenset(count) if not whole.complete else none
        self.open = frozenset(count) if len(open_) > MOST_OPEN else none.union(*(oracle.relevant(at) for at in open_))
        """Those that an undecided location may need."""
        self.hidden: dict[int, str] = {}
        """Those that may order accesses of an object that is refuted as it is, where it is not known what for."""
        for at, name in hidden.items():
            self.hidden.update({k: name for k in oracle.relevant(at) if k not in self.hidden})
        undecided = self.open | self.unsure | frozenset(self.hidden)
        self.kept = tuple(one | undecided for one in telling)
        """Minimal sets beside which a weaker synchronisation is looked for: what is not decided stays in them."""
        self.idle = {k: idle(text, oracle.syncs[k], oracle) for k in count}
        self.broken: dict[int, list[Location]] = {k: [] for k in sorted(self.needed)}
        for at, family in families.items():
            for k in frozenset.intersection(*family.sets) & self.needed:
                if oracle.verdict(at, (k,)).safe is False:
                    self.broken[k].append(at)
        self.missed = {k: missed(text, oracle.syncs[k]) for k in count}
        self._bare: set[frozenset[Node]] = set()
        """Pairs that are hazards without any synchronisation."""
        self._pairs: dict[tuple[Location, int], Pairs | None] = {}
        self._weaker: dict[int, tuple[Weaker, ...]] = {}
        self.asked_aside = False

    def questions(self) -> list[Question]:
        """Which pairs each wait orders alone, where that tells something, and what is weaker than the needed ones."""
        oracle, syncs = self.oracle, self.oracle.syncs
        self.asked_aside = True
        found: list[Question] = [("both", 0, one) for one in self._both()]
        for k, at in self.broken.items():
            judged = [oracle.verdict(one, (k,)).hazards[0] for one in at]
            pairs = tuple((j.found.first, j.found.second) for j in judged if j.found.first is not None)
            if k not in self.hidden and not any(one in oracle.broken for one in at):
                found.append(("weaker", k, (tuple(at), pairs, self.kept, self._more_needed(k))))
        alone = [k for k, sync in enumerate(syncs) if sync.kind in _ORDER and k not in self.needed and not self.idle[k]]
        against = [k for k in sorted(self.union) if syncs[k].kind in _ORDER]
        names = {m.object for lost in self.missed.values() for m in lost}
        for location in self.families if alone or names else ():
            relevant = oracle.relevant(location)
            mine = tuple(k for k in alone if k in relevant)
            meant = location.kind != "memory" or oracle.program.objects[location.id or 0].name in names
            if mine or (relevant and names and meant):
                others = tuple(k for k in against if k in relevant and k not in mine)
                found.append(("pairs", 0, (location, mine, others)))
        return found

    def learn(self, asked: list[Question], results: list[Any]) -> None:
        """Enter the answers to `questions`."""
        for (what, k, where), result in zip(asked, results, strict=True):
            if what == "weaker":
                self._weaker[k] = result or ()
            elif what == "both":
                self.oracle.learn(where[0], {where[1]: result} if result is not None else {})
            elif result is not None:
                self._pairs.update({(where[0], one): pairs for one, pairs in result.items()})
                self._bare |= {frozenset((a, b)) for _, a, b in result[NOBODY] or ()}

    def finding(self, k: int) -> Finding:
        """All about synchronisation `k`."""
        oracle = self.oracle
        lost = tuple(m for m in self.missed[k] if m.object in self.bad)
        reason = self.idle[k]
        if reason is not None and k not in self.union:
            return Finding(k, USELESS, why=reason)
        if self.broken.get(k):
            return self._needed(k, lost)
        alone = self._protects(k)
        mine = {frozenset((a, b)) for _, a, b in alone}
        lost = tuple(
            m for m in self.missed[k] if m in lost or frozenset((m.access, m.other)) in self._bare - mine
        )
        if k in self.open:
            return Finding(k, OPEN, why="an object that it may protect is open", missed=lost, protects=alone)
        if k in self.hidden:
            orders = "order" if oracle.syncs[k].kind in _ORDER else "keep"
            why = f"{self.hidden[k]}, which it may {orders}, is refuted as it is"
            return Finding(k, OPEN, why=why, missed=lost, protects=alone)
        cut = any(not family.complete and k in oracle.relevant(at) for at, family in self.families.items())
        if (k in self.union and k not in self.needed) or (cut and self._surely_spare(k)):
            return self._conditional(k, alone, lost)
        if k in self.needed or (k in self.unsure and not self._surely_spare(k)):
            return Finding(k, OPEN, why=self._doubt(k), missed=lost, protects=alone)
        kept = sorted(self.union)
        covered = tuple(j for j in kept if alone and set(alone) <= set(self._protects(j)))
        nothing = self._orders_nothing(k)
        why = "orders no conflicting accesses by itself" if nothing else ""
        return Finding(k, REDUNDANT, protects=alone, covered_by=covered, why=why, missed=lost, cost=self._cost(k))

    def _doubt(self, k: int) -> str:
        """Why `k` was not decided: the first answer without it that is open."""
        for at in self.families:
            for gone, verdict in self.oracle.known(at).items():
                if k in gone and verdict.safe is None:
                    return f"without {'it' if len(gone) == 1 else 'it and others'}, {at.label(self.oracle.program)}: {verdict.why}"
        return "too many sets to look at"

    def _surely_spare(self, k: int) -> bool:
        """Whether taking `k` alone away is decided to be safe at every location."""
        return all(
            any(k not in one for one in family.sets) or self.oracle.verdict(at, (k,)).safe is True
            for at, family in self.families.items()
        )

    def _cost(self, k: int) -> str | None:
        return None if self.costs is None else self.costs.texts.get(k)

    def _needed(self, k: int, lost: tuple[Missed, ...]) -> Finding:
        judged = [self.oracle.verdict(at, (k,)).hazards[0] for at in self.broken[k]]
        judged.sort(key=lambda j: (j.turns, len(j.run.steps)))
        return Finding(
            k, NEEDED, tuple(j.hazard for j in judged), judged[0].run, self.oracle.edited(frozenset((k,))),
            weaker=self._weaker.get(k, ()), missed=lost, cost=self._cost(k),
        )  # fmt: skip

    def _more_needed(self, k: int) -> tuple[Location, ...]:
        """Where it is not known that each of the minimal sets that are proved is enough without `k`."""
        away = [frozenset(range(len(self.oracle.syncs))) - kept | {k} for kept in self.kept]
        return tuple(
            at
            for at in self.families
            if at not in self.broken[k] and k in (relevant := self.oracle.relevant(at))
            and not all(
                any(one.safe and relevant & gone <= more for more, one in self.oracle.known(at).items()) for gone in away
            )
        )  # fmt: skip

    def _both(self) -> list[tuple[Location, frozenset[int]]]:
        """What is asked about those that may go while others stay: the locations without them and without these."""
        spare = sorted(self.union - self.needed)
        asked = [(at, gone) for k in spare for at, gone in self._stand_ins(k)[1]]
        return [one for one in dict.fromkeys(asked) if one[1] not in self.oracle.known(one[0])]

    def _stand_ins(self, k: int) -> tuple[list[Family], list[tuple[Location, frozenset[int]]]]:
        """The families in which `k` can be replaced; and where a bad run without it and its stand-ins would show."""
        concerned = [
            family
            for at, family in self.families.items()
            if any(k in one for one in family.sets) or (not family.complete and k in self.oracle.relevant(at))
        ]
        stand_in = frozenset(j for family in concerned for one in family.sets for j in one) - self.needed
        places = [
            (at, self.oracle.relevant(at) & (stand_in | {k}))
            for at, family in self.families.items()
            if family.complete and k in self.oracle.relevant(at)  # else it is not known what else could stand in
        ]
        return concerned, places

    def _conditional(self, k: int, alone: tuple[tuple[str, Node, Node], ...], lost: tuple[Missed, ...]) -> Finding:
        concerned, places = self._stand_ins(k)
        alternatives = tuple(tuple(sorted(one)) for one in joined([_instead(k, f, self.needed) for f in concerned]).sets)
        # The bad run without it and without whatever could stand in for it.
        judged: Judged | None = None
        program = None
        for location, gone in places:
            verdict = self.oracle.verdict(location, gone)
            if verdict.safe is False and (judged is None or verdict.hazards[0].turns < judged.turns):
                judged = verdict.hazards[0]
                program = self.oracle.edited(gone)
        return Finding(
            k, CONDITIONAL, () if judged is None else (judged.hazard,), None if judged is None else judged.run, program,
            alternatives, alone, missed=lost, cost=self._cost(k),
        )  # fmt: skip

    def _protects(self, k: int) -> tuple[tuple[str, Node, Node], ...]:
        """Pairs that are hazards without any synchronisation and none with `k` alone."""
        found: set[tuple[str, Node, Node]] = set()
        for location in self.families:
            every, with_it = self._pairs.get((location, NOBODY)), self._pairs.get((location, k))
            if every is not None and with_it is not None:
                found |= every - with_it
        return tuple(sorted(found))

    def _orders_nothing(self, k: int) -> bool:
        """Whether it is decided that `k` alone orders no pair at any location."""
        if self.oracle.syncs[k].kind not in _ORDER or not self.asked_aside:
            return False
        for location in self.families:
            if k in self.oracle.relevant(location):
                every = self._pairs.get((location, NOBODY))
                if every is None or (every and self._pairs.get((location, k)) != every):
                    return False
        return True
