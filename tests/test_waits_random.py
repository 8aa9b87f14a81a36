"""Random programs without some of their edges: the explorer against concrete runs, and monotone as the sets assume."""

from __future__ import annotations

import collections
import random
from functools import partial

import pytest
from fencepost.model import program as p
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.waits import decide as decide_waits
from fencepost.proofs.waits.catalogue import synchronisations, without
from fencepost.proofs.waits.classify import NEEDED, waits
from fencepost.proofs.waits.sufficient import joined, minimal_sufficient

from random_oracle import decide, find_bad_run
from random_programs import generate

COUNT = 30
"""Programs of each of the two parts."""


@pytest.mark.parametrize("part", range(2))
def test_edited_programs(part: int) -> None:
    """No proof of an edited program that a concrete run contradicts; and what is safe stays safe with more edges."""
    count: collections.Counter[str] = collections.Counter()
    removed: collections.Counter[str] = collections.Counter()
    for seed in range(900_000 + part * 10_000, 900_000 + part * 10_000 + COUNT):
        rng = random.Random(seed)
        program = generate(rng)
        gone = [sync for sync in synchronisations(program) if rng.random() < 0.5]
        if not gone:
            continue
        edited = without(program, gone)
        removed.update(sync.kind for sync in gone)
        less = decide(edited, states=250)
        count[less.word] += 1
        if less.word == "proved":
            assert find_bad_run(edited, rng, runs=12) is None, f"seed {seed}: a run contradicts the proof"
            more = decide(program, states=500)
            assert more.word != "refuted", f"seed {seed}: safe only without edges"
    assert count["proved"] >= 3 and count["refuted"] >= 3
    assert set(removed) >= {"host wait", "stream wait"}


def test_the_whole_answer_is_that_of_its_locations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What any location needs stays while the sets of the others are looked for; location by location gives the same."""
    monkeypatch.setattr(decide_waits, "STATES", 400)
    compared: collections.Counter[str] = collections.Counter()
    for seed in range(910_000, 910_070):
        program = generate(random.Random(seed))
        syncs = synchronisations(program)
        if not 2 <= len(syncs) <= 6:
            continue
        answer = waits(program, details=False)
        if answer.bad or answer.open or not answer.complete:
            continue
        oracle = decide_waits.Oracle(program, syncs)
        families = [minimal_sufficient(sorted(oracle.relevant(at)), partial(_safe, oracle, at)) for at in oracle.locations]
        if any(family.unsure for family in families):
            continue
        assert {frozenset(one) for one in answer.sets} == set(joined(families).sets), f"seed {seed}"
        compared["some may go while others stay" if len(answer.sets) > 1 else "one set"] += 1
        needed = [f.sync for f in answer.findings if f.kind == NEEDED]
        assert set(needed) == set.intersection(*(set(one) for one in answer.sets)), f"seed {seed}"
    assert compared["one set"] >= 10, compared


def _safe(oracle: decide_waits.Oracle, at: Location, gone: frozenset[int]) -> bool | None:
    return oracle.verdict(at, gone).safe


def test_a_raw_pointer_into_a_free_block() -> None:
    """Found by random programs: what the last owner never wrote is undefined, also once the block is free."""
    stream = p.Obj(0)
    nodes: tuple[p.Node, ...] = (
        p.Do(p.Alloc(0, "device", stream), 1),
        p.Do(p.View(1, p.Local(0), held=False), 2),
        p.Do(p.Drop(0), 3),
        p.Do(p.Launch("use", stream, (p.Access(p.Local(1), "r"),)), p.END),
    )
    locals_ = (p.LocalInfo("block", p.MEMORY), p.LocalInfo("pointer", p.MEMORY))
    program = p.Program("pointer", (p.Stream("main"),), (p.Thread("t", "loop", nodes, 0, locals_),))
    decision = decide(program)
    assert decision.word == "refuted" and find_bad_run(program, random.Random(0)) is not None
