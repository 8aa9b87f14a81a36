"""Questions about the synchronisations of one program that stand by themselves, so that other processes can answer them."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from typing import Any

import msgspec
from fencepost.model import answer as a
from fencepost.proofs.check import Checker
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.search import Budget
from fencepost.proofs.judge import Judged
from fencepost.proofs.waits.beyond import Unordered
from fencepost.proofs.waits.decide import Marks, Oracle, Pairs, Verdict
from fencepost.proofs.waits.static import Text
from fencepost.proofs.waits.sufficient import Family, Narrowed, beyond_needed, narrowed
from fencepost.proofs.waits.weaker import Together, Weaker, applied, weaker

Task = tuple[str, bytes, float]
"""What another process needs to ask the same oracle: its name, its program in bytes (`packed`), the deadline."""

Question = tuple[str, int, Any]
"""("begun", 0, location), ("alone", 0, (location, synchronisations, marks)), ("family", 0, (location, narrowed, needed,
given, seeds, marks)), ("proof", 0, (kept, never)), ("together", 0, (kept, weaker ones by synchronisation, never)), ("both", 0, (location, taken away)), ("weaker",
synchronisation, (locations, pairs, minimal sets, other locations)) or ("pairs", 0, (location, alone, against))."""

NOBODY = -1
"""Stands for a synchronisation where there is none."""

LONG, SEVERAL = 0.03, 4
"""Seconds of the processor per search, and searches, from which on each further one about a location is a question of its own."""

_at_work: list[Any] = []
"""The last oracle of this process by name, and what the text says: questions about one program come one after the other."""

_numbers = itertools.count()

Known = dict[frozenset[int], Verdict]


class Begun(msgspec.Struct, frozen=True):
    """A location before its minimal sets are looked for: what is enough (None where it is not safe as it is), which of
    these were asked about alone, the verdicts met on the way, and how many searches that took.

    Where it is refuted as it is: `bad` has its hazards, `broken` all that is unordered there, and the rest is about what goes
    wrong beside that; without `broken` nothing is known of that."""

    narrow: Narrowed | None
    alone: dict[int, bool | None]
    known: Known
    asked: int
    bad: tuple[Judged, ...] = ()
    broken: Unordered | None = None


def asked(task: tuple[Any, ...]) -> Any:
    """The answer to one question (a `Task` and a `Question` in one tuple); None where no time is left for a side question."""
    oracle, text = _same(*task[:3])
    what, k, where = task[3:]
    if what == "begun":
        return _begun(oracle, where)
    if what == "alone":
        return _alone(oracle, *where)
    if what == "family":
        return _family(oracle, *where)
    if what == "proof":
        return _proof(oracle, *where)
    if oracle.left() <= 0:
        return None
    if what == "together":
        return _together(oracle, *where)
    if what == "both":
        return oracle.verdict(*where)
    if what == "weaker":
        return tuple(weaker(oracle, text, k, *where))
    return _pairs(oracle, *where)


def packed(oracle: Oracle, text: Text) -> tuple[str, bytes]:
    """The oracle's program as questions carry it: by a name that is this oracle's alone, and in bytes, which are read once."""
    name = f"{os.getpid()} {next(_numbers)}"
    _at_work[:] = [name, oracle, text]
    return name, pickle.dumps((oracle.program, tuple(oracle.syncs), oracle.platform, oracle.environment, oracle.broken))


def _same(name: str, data: bytes, deadline: float) -> tuple[Oracle, Text]:
    """The oracle of that name and its text, as they are where this process has them already."""
    if not _at_work or _at_work[0] != name:
        program, syncs, platform, environment, broken = pickle.loads(data)
        made = Oracle(program, list(syncs), platform, environment, deadline)
        for location, known in broken.items():
            made.breaks_anyway(location, known)
        _at_work[:] = [name, made, Text(program, platform, made.handles)]
    _, oracle, text = _at_work
    oracle.deadline = deadline
    return oracle, text


def _begun(oracle: Oracle, location: Location) -> Begun:
    """What the location is as it is, what is enough there, and, unless that takes long, which of these are needed."""
    before = oracle.asked
    narrow = None
    alone: dict[int, bool | None] = {}
    bad: tuple[Judged, ...] = ()
    if oracle.left() > 0:
        enough = oracle.core(location)
        begin = time.process_time()
        base = oracle.verdict(location, (), first=False)
        if base.safe is False:
            bad = base.hazards
        if base.safe is True or (bad and oracle.broken_anyway(location)):
            relevant = sorted(oracle.relevant(location))
            narrow = narrowed(relevant, lambda gone: oracle.safe(location, gone), enough)
            if len(narrow.few) < SEVERAL or time.process_time() - begin < LONG:
                alone = {k: _without(oracle, location, k) for k in sorted(narrow.few)}
    return Begun(narrow, alone, oracle.known(location), oracle.asked - before, bad, oracle.broken.get(location))


def _without(oracle: Oracle, location: Location, k: int) -> bool | None:
    """Whether the location is safe without `k` alone; its hazards are entered where it is not."""
    safe = oracle.safe(location, (k,))
    if safe is False:
        oracle.verdict(location, (k,))
    return safe


def _alone(
    oracle: Oracle, location: Location, each: tuple[int, ...], marks: Marks
) -> tuple[dict[int, bool | None], Known, int]:
    """For each whether the location is safe without it alone."""
    before = oracle.asked
    oracle.mark(location, marks)
    answers = {k: _without(oracle, location, k) for k in each}
    return answers, oracle.known(location), oracle.asked - before


def _family(
    oracle: Oracle, location: Location, narrow: Narrowed, needed: frozenset[int], given: frozenset[int],
    seeds: tuple[frozenset[int], ...], marks: Marks,
) -> tuple[Family, Known, int]:  # fmt: skip
    """The minimal sufficient sets of one location beside what is given, and the verdicts met on the way."""
    before = oracle.asked
    oracle.mark(location, marks)
    relevant = sorted(oracle.relevant(location))
    family = beyond_needed(relevant, lambda gone: oracle.safe(location, gone), narrow, needed, given, seeds)
    return family, oracle.known(location), oracle.asked - before


def _proof(oracle: Oracle, kept: tuple[int, ...], never: tuple[str, ...]) -> a.Answer:
    """The answer about the whole program with these synchronisations alone. Liveness is no question of edges."""
    gone = frozenset(range(len(oracle.syncs))) - frozenset(kept)
    budget = Budget(seconds=max(0.1, oracle.left()))
    program = oracle.edited(gone)
    setting = oracle.setting(gone)
    return Checker(program, oracle.platform, oracle.environment, budget, False, never, False, setting=setting).answer()


def _together(
    oracle: Oracle, kept: tuple[int, ...], every: tuple[tuple[int, Weaker], ...], never: tuple[str, ...]
) -> Together:  # fmt: skip
    """All weaker ones at once beside a minimal set and what they say has to stay; else as many, in their order, as are proved."""
    stays = frozenset(kept).union(*(one.stays for _, one in every))
    gone = frozenset(range(len(oracle.syncs))) - stays

    def proved(some: list[tuple[int, Weaker]]) -> a.Answer | None:
        records = [(one.record, one.at) for _, one in some if one.record is not None]
        if len({record for record, _ in records}) < len(set(records)):
            return None  # one record at two places
        program = oracle.edited(gone)
        for number, (_, one) in enumerate(some):
            if one.record is None or (one.record, one.at) not in [(other.record, other.at) for _, other in some[:number]]:
                program = applied(oracle.program, one, program)
        budget = Budget(seconds=max(0.1, oracle.left()))
        answer = Checker(program, oracle.platform, oracle.environment, budget, False, never, False).answer()
        return answer if answer.verdict in (a.PROVED, a.MASKED) else None

    chosen, answer = list(every), proved(list(every))
    if answer is None:
        chosen = []
        for one in every:
            if oracle.left() > 0 and (not chosen or (found := proved([*chosen, one])) is not None):
                chosen.append(one)
                answer = found if len(chosen) > 1 else None
    return Together(tuple(k for k, _ in chosen) if answer is not None else (), tuple(sorted(stays)), answer)


def _pairs(
    oracle: Oracle, location: Location, alone: tuple[int, ...], against: tuple[int, ...]
) -> dict[int, Pairs | None]:
    """The pairs of a location without any synchronisation, and with one of them alone; of `against` where that tells."""
    relevant = oracle.relevant(location)
    every = oracle.pairs(location, relevant)
    found: dict[int, Pairs | None] = {NOBODY: every}
    if every:
        for k in alone:
            found[k] = oracle.pairs(location, relevant - {k})
        if any(one is not None and every - one for one in (found[k] for k in alone)):
            for k in against:
                found[k] = oracle.pairs(location, relevant - {k})
    return found
