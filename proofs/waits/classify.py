"""Classes of synchronisations: needed, redundant, redundant while another one stays, useless.

The minimal sufficient sets of all locations decide (see sufficient.py): a wait in each of them is needed, one in none is
redundant, one in some is redundant only while the others of a set without it stay. Every minimal set is then proved on
the whole design, with a certificate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
from fencepost.model import answer as a
from fencepost.model import program as p
from fencepost.model.platform import Environment, Platform
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named
from fencepost.proofs.check import check
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.search import Budget
from fencepost.proofs.judge import Judged
from fencepost.proofs.waits.catalogue import BOUND, COPY, HOST, LOCK, STREAM, Sync, synchronisations
from fencepost.proofs.waits.decide import Oracle, Verdict
from fencepost.proofs.waits.handles import Node
from fencepost.proofs.waits.static import Missed, Text, idle, missed, unwaited
from fencepost.proofs.waits.sufficient import Family, joined, minimal, minimal_sufficient
from fencepost.proofs.waits.weaker import Weaker, weaker

NEEDED, REDUNDANT, CONDITIONAL, USELESS, OPEN = "needed", "redundant", "conditional", "useless", "open"
"""Classes. "conditional": redundant only while another one stays; "open": an answer on the way was not decided."""

MOST_SETS = 6
"""Minimal sets that are proved on the whole design, the smallest first."""


Mapper = Callable[..., Iterable[Any]]
"""`map`, or a `map` that works in several processes."""


class CostModel(Protocol):
    """What a wait costs, from whoever knows durations (proofs/periodic)."""

    def break_even(self, program: p.Program, without: p.Program, sync: Sync) -> str | None:
        """When the wait is free and what it costs otherwise, in one sentence; None when that is not known."""


_ORDER = (HOST, STREAM, COPY, BOUND, LOCK)
"""Kinds that order accesses by an edge, unlike a reference, which keeps a block."""

_NOBODY = -1


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
    """Minimal sufficient sets, smallest first."""
    complete: bool
    proofs: tuple[a.Answer, ...]
    """For each of the first sets the answer about the design with these alone."""
    unwaited: tuple[tuple[Node, ...], ...]
    bad: tuple[a.Hazard, ...]
    """Hazards that the design has as it is; their locations take no part."""
    open: tuple[str, ...]
    """Locations that were not decided, and why."""
    asked: int
    seconds: float
    cost_open: str = ""
    """Why no wait has a break-even, from whoever was asked for it."""


def waits(
    program: p.Program,
    *,
    environment: str | None = None,
    platform: str | None = None,
    never: tuple[str, ...] = (),
    seconds: float = 120.0,
    progress: Callable[[str], None] | None = None,
    cost: CostModel | None = None,
    details: bool = True,
    mapper: Mapper = map,
) -> Waits:
    """Classify every synchronisation of `program` by taking its edge away.

    `seconds` bounds the whole answer; `details` also looks for weaker ones, and for the pairs that each orders alone;
    `mapper` maps a function over independent questions, in processes if it likes; `cost` knows what waits cost.
    Raises `ValueError` on an unknown name.
    """
    begin = time.perf_counter()
    env, plat = environment_named(environment), platform_named(platform)
    syncs = synchronisations(program, plat)
    deadline = time.monotonic() + seconds
    oracle = Oracle(program, syncs, plat, env, deadline, progress)
    text = Text(program, plat, oracle.handles)
    bad: list[Judged] = []
    open_: list[str] = []
    families: dict[Location, Family] = {}
    tasks = [(program, tuple(syncs), plat, env, deadline, location) for location in oracle.locations]
    for location, (family, known, count) in zip(oracle.locations, mapper(_family, tasks), strict=True):
        oracle.learn(location, known, count)
        base = oracle.verdict(location, ())
        if base.safe is False:
            bad += base.hazards
        elif base.safe is None or family is None:
            open_.append(f"{location.label(program)}: {base.why}")
        else:
            families[location] = family
    whole = joined(list(families.values()))
    sorter = _Sorter(oracle, text, families, whole, details, cost, {j.hazard.object for j in bad}, mapper)
    findings = tuple(sorter.finding(k) for k in range(len(syncs)))
    sets = tuple(tuple(sorted(one)) for one in whole.sets)
    proofs: list[a.Answer] = []
    if not bad and not open_:
        everything = frozenset(range(len(syncs)))
        asked = [
            (oracle.edited(everything - frozenset(kept)), environment, platform, never, deadline)
            for kept in sets[:MOST_SETS]
        ]
        proofs += mapper(_proof, asked)
    return Waits(
        program, tuple(syncs), findings, sets, whole.complete and not whole.unsure, tuple(proofs),
        tuple(unwaited(text)), tuple(dict.fromkeys(j.hazard for j in bad)), tuple(open_), oracle.asked, time.perf_counter() - begin,
    )  # fmt: skip


Task = tuple[p.Program, tuple[Sync, ...], Platform, Environment, float]
"""What another process needs to ask the same oracle: program, synchronisations, platform, environment, deadline."""


def _family(task: tuple[Any, ...]) -> tuple[Family | None, dict[frozenset[int], Verdict], int]:
    """The minimal sufficient sets of one location, None when it is not safe as it is, and the verdicts met on the way."""
    *rest, location = task
    oracle = Oracle(rest[0], list(rest[1]), *rest[2:])
    family = None
    if oracle.verdict(location, (), first=False).safe is True:
        family = minimal_sufficient(
            sorted(oracle.relevant(location)), lambda gone: oracle.verdict(location, gone).safe
        )
    return family, oracle.known(location), oracle.asked


def _proof(task: tuple[Any, ...]) -> a.Answer:
    """The answer about a whole program."""
    program, environment, platform, never, deadline = task
    budget = Budget(seconds=max(0.1, deadline - time.monotonic()))
    return check(program, environment=environment, platform=platform, never=never, budget=budget, explain=False)


def _side(task: tuple[Any, ...]) -> Any:
    """One side question: the pairs of a location without some edges, or what is weaker than a needed wait."""
    *rest, what, k, where = task
    oracle = Oracle(rest[0], list(rest[1]), *rest[2:])
    if what == "pairs":
        return oracle.pairs(where, oracle.relevant(where) - {k})
    return tuple(weaker(oracle, Text(oracle.program, oracle.platform, oracle.handles), k, where))


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
        self, oracle: Oracle, text: Text, families: dict[Location, Family], whole: Family, details: bool,
        cost: CostModel | None, bad: set[str], mapper: Mapper,
    ) -> None:  # fmt: skip
        self.oracle = oracle
        self.text = text
        self.families = families
        self.details = details
        self.cost = cost
        self.bad = bad
        count = range(len(oracle.syncs))
        none: frozenset[int] = frozenset()
        self.union = none.union(*whole.sets)
        self.needed = frozenset.intersection(*whole.sets) if whole.sets else none
        self.unsure = none.union(*(oracle.relevant(at) for at, family in families.items() if family.unsure))
        self.unsure |= frozenset(count) if not whole.complete else none
        self.idle = {k: idle(text, oracle.syncs[k], oracle) for k in count}
        self.broken = {
            k: [at for at in families if k in oracle.relevant(at) and oracle.verdict(at, (k,)).safe is False]
            for k in sorted(self.needed)
        }
        self._pairs: dict[tuple[Location, int], frozenset[tuple[str, Node, Node]]] = {}
        self._weaker: dict[int, tuple[Weaker, ...]] = {}
        if details:
            self._ask_aside(mapper)

    def _ask_aside(self, mapper: Mapper) -> None:
        """Which pairs each wait orders alone, where that tells something, and what is weaker than the needed ones."""
        oracle, syncs = self.oracle, self.oracle.syncs
        alone = [k for k, sync in enumerate(syncs) if sync.kind in _ORDER and k not in self.needed and not self.idle[k]]
        against = [k for k in sorted(self.union) if syncs[k].kind in _ORDER] if alone else []
        asked: list[tuple[str, int, Any]] = []
        for at in self.families:
            here = [k for k in dict.fromkeys([*alone, *against]) if k in oracle.relevant(at)]
            if any(k in alone for k in here):
                asked += [("pairs", k, at) for k in (_NOBODY, *here)]
        asked += [("weaker", k, tuple(at)) for k, at in self.broken.items()]
        assert oracle.deadline is not None
        task = (oracle.program, tuple(syncs), oracle.platform, oracle.environment, oracle.deadline)
        for (what, k, where), result in zip(asked, mapper(_side, [(*task, *one) for one in asked]), strict=True):
            if what == "pairs":
                self._pairs[where, k] = result
            else:
                self._weaker[k] = result

    def finding(self, k: int) -> Finding:
        """All about synchronisation `k`."""
        oracle = self.oracle
        lost = tuple(m for m in missed(self.text, oracle.syncs[k]) if m.object in self.bad)
        reason = self.idle[k]
        if reason is not None and k not in self.union:
            return Finding(k, USELESS, why=reason)
        if self.broken.get(k):
            return self._needed(k, lost)
        alone = self._protects(k)
        cut = any(not family.complete and k in oracle.relevant(at) for at, family in self.families.items())
        if (k in self.union and k not in self.needed) or (cut and self._surely_spare(k)):
            return self._conditional(k, alone, lost)
        if k in self.needed or (k in self.unsure and not self._surely_spare(k)):
            return Finding(k, OPEN, why="not decided within the limits", missed=lost, protects=alone)
        kept = sorted(self.union)
        covered = tuple(j for j in kept if alone and set(alone) <= set(self._protects(j)))
        nothing = self.details and oracle.syncs[k].kind in _ORDER and not alone
        why = "orders no conflicting accesses by itself" if nothing else ""
        return Finding(k, REDUNDANT, protects=alone, covered_by=covered, why=why, missed=lost, cost=self._cost(k))

    def _surely_spare(self, k: int) -> bool:
        """Whether taking `k` alone away is decided to be safe at every location."""
        return all(
            any(k not in one for one in family.sets) or self.oracle.verdict(at, (k,)).safe is True
            for at, family in self.families.items()
        )

    def _cost(self, k: int) -> str | None:
        if self.cost is None:
            return None
        program = self.oracle.program
        return self.cost.break_even(program, self.oracle.edited(frozenset((k,))), self.oracle.syncs[k])

    def _needed(self, k: int, lost: tuple[Missed, ...]) -> Finding:
        judged = [self.oracle.verdict(at, (k,)).hazards[0] for at in self.broken[k]]
        judged.sort(key=lambda j: (j.turns, len(j.run.steps)))
        return Finding(
            k, NEEDED, tuple(j.hazard for j in judged), judged[0].run, self.oracle.edited(frozenset((k,))),
            weaker=self._weaker.get(k, ()), missed=lost, cost=self._cost(k),
        )  # fmt: skip

    def _conditional(self, k: int, alone: tuple[tuple[str, Node, Node], ...], lost: tuple[Missed, ...]) -> Finding:
        concerned = [
            family
            for at, family in self.families.items()
            if any(k in one for one in family.sets) or (not family.complete and k in self.oracle.relevant(at))
        ]
        alternatives = tuple(tuple(sorted(one)) for one in joined([_instead(k, f, self.needed) for f in concerned]).sets)
        # The bad run without it and without whatever could stand in for it.
        stand_in = frozenset(j for family in concerned for one in family.sets for j in one) - self.needed
        judged: Judged | None = None
        program = None
        for location, family in self.families.items():
            if not family.complete or k not in self.oracle.relevant(location):
                continue  # what else could stand in is not known, so that no run would show anything
            verdict = self.oracle.verdict(location, stand_in | {k})
            if verdict.safe is False and (judged is None or verdict.hazards[0].turns < judged.turns):
                judged = verdict.hazards[0]
                program = self.oracle.edited(self.oracle.relevant(location) & (stand_in | {k}))
        return Finding(
            k, CONDITIONAL, () if judged is None else (judged.hazard,), None if judged is None else judged.run, program,
            alternatives, alone, missed=lost, cost=self._cost(k),
        )  # fmt: skip

    def _protects(self, k: int) -> tuple[tuple[str, Node, Node], ...]:
        """Pairs that are hazards without any synchronisation and none with `k` alone."""
        found: set[tuple[str, Node, Node]] = set()
        for location in self.families:
            with_it = self._pairs.get((location, k))
            if with_it is not None:
                found |= self._pairs[location, _NOBODY] - with_it
        return tuple(sorted(found))
