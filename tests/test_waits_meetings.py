"""Waits of designs in which streams meet: a search with waits switched off says what the edited program says."""

from __future__ import annotations

import collections
import random
from functools import partial

import pytest
from fencepost.model import program as p
from fencepost.proofs.explore.compile import Unsupported
from fencepost.proofs.explore.locations import Location, locations
from fencepost.proofs.explore.search import Budget, OutOfBudget, Search
from fencepost.proofs.explore.serial import sole_agent
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.waits import decide
from fencepost.proofs.waits.catalogue import synchronisations
from fencepost.proofs.waits.decide import Oracle
from fencepost.proofs.waits.sufficient import minimal_sufficient
from fencepost.proofs.waits.switch import SWITCHED, Switch

from random_rendezvous import generate

STATES = 1_000


def hazardous(program: p.Program, location: object) -> bool | None:
    """Whether a search of the program by itself finds a hazard; None where it does not end."""
    try:
        return bool(Search(Setting(program), location, proof=True).run(Budget(STATES)).hazards)  # type: ignore[arg-type]
    except (OutOfBudget, Unsupported):
        return None


def whole(oracle: Oracle) -> tuple[Setting, Setting]:
    """The settings of the program as it is, and without all that can be switched off."""
    switched = frozenset(k for k, sync in enumerate(oracle.syncs) if sync.kind in SWITCHED)
    return oracle.setting(frozenset()), oracle.setting(switched)


@pytest.mark.parametrize("part", range(3))
def test_a_switched_search_says_what_the_edited_program_says(part: int) -> None:
    """Random programs, random edits, one compiled search for all edits of a location."""
    count: collections.Counter[str] = collections.Counter()
    for seed in range(part * 100_000 + 7, part * 100_000 + 37):
        rng = random.Random(seed)
        program = generate(rng)
        oracle = Oracle(program, synchronisations(program))
        setting, bare = whole(oracle)
        numbers = [k for k, sync in enumerate(oracle.syncs) if sync.kind in SWITCHED]
        if setting.meetings is None or not numbers:
            continue
        for location in locations(program)[:4]:
            if sole_agent(setting, location) is not None:
                continue
            try:
                switch = Switch(setting, bare, oracle.syncs, location)
            except Unsupported:
                continue
            for _ in range(4):
                gone = frozenset(k for k in numbers if rng.random() < 0.4)
                expected = hazardous(oracle.edited(gone), location)
                if expected is None:
                    continue
                safe = switch.safe(gone, oracle.setting(gone).forms, Budget(10 * STATES))
                assert safe is not expected, f"seed {seed}, {location.label(program)} without {sorted(gone)}"
                count["safe" if safe else "hazard"] += 1
    assert count["safe"] >= 15 and count["hazard"] >= 15, count


def _verdict(oracle: Oracle, location: Location, gone: frozenset[int]) -> bool | None:
    return oracle.verdict(location, gone).safe


def test_minimal_sets_are_those_of_the_edited_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortcuts (switched searches, hazards replayed without their own search) leave the minimal sets as they are."""
    monkeypatch.setattr(decide, "STATES", 300)
    compared = 0
    for seed in range(300, 330):
        program = generate(random.Random(seed))
        oracle, plain = Oracle(program, synchronisations(program)), Oracle(program, synchronisations(program))
        plain._switched_off = lambda location, gone: None  # type: ignore[method-assign]
        if oracle.setting(frozenset()).meetings is None or not 0 < len(oracle.syncs) <= 4:
            continue
        for location in oracle.locations[:2]:
            base = plain.verdict(location, ())
            if base.safe is not True:
                continue
            assert oracle.verdict(location, ()).safe is True, f"seed {seed}, {location.label(program)}"
            relevant = sorted(plain.relevant(location))
            expected = minimal_sufficient(relevant, partial(_verdict, plain, location))
            found = minimal_sufficient(relevant, partial(oracle.safe, location))
            if not expected.unsure and not found.unsure:
                assert set(found.sets) == set(expected.sets), f"seed {seed}, {location.label(program)}"
                compared += 1
    assert compared >= 5
