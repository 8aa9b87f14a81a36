"""Random programs without some of their edges: the explorer against concrete runs, and monotone as the sets assume."""

from __future__ import annotations

import collections
import random

import pytest
from fencepost.model import events
from fencepost.model.answer import PROVED, REFUTED
from fencepost.proofs.check import check
from fencepost.proofs.explore.search import Budget
from fencepost.proofs.waits.catalogue import synchronisations, without

from random_oracle import disagreement
from random_programs import generate

COUNT = 14
"""Programs of each of the two parts."""


@pytest.mark.parametrize("part", range(2))
def test_edited_programs(part: int) -> None:
    """No proof of an edited program that a concrete run contradicts; and what is safe stays safe with more edges."""
    count: collections.Counter[str] = collections.Counter()
    removed: collections.Counter[str] = collections.Counter()
    for seed in range(900_000 + part * 10_000, 900_000 + part * 10_000 + COUNT):
        rng = random.Random(seed)
        program = generate(rng)
        syncs = synchronisations(program)
        gone = [sync for sync in syncs if rng.random() < 0.5]
        if not gone:
            continue
        edited = without(program, gone)
        removed.update(sync.kind for sync in gone)
        what = disagreement(edited, random.Random(seed), count, runs=12, states=250)
        assert what is None or what.startswith("UNKNOWN"), f"seed {seed}: {what}"
        try:
            more = check(program, budget=Budget(seconds=5), explain=False)
            less = check(edited, budget=Budget(seconds=5), explain=False)
        except events.DesignError:
            continue
        assert not (more.verdict == REFUTED and less.verdict == PROVED), f"seed {seed}: safe only without edges"
    assert count["proved"] >= 3 and count["refuted"] >= 2
    assert set(removed) >= {"host wait", "stream wait"}
