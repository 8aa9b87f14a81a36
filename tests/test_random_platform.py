"""Random designs with the rest of the platform: every engine that knows a design agrees on it.

Callbacks, conditions, IPC, memory in stream order, collectors, graphs, several GPUs and processes, with the meetings of ranks
among them. The long campaign is tests/soak_random_designs.py.
"""

from __future__ import annotations

import collections

import pytest
from fencepost.simulator.random_designs import stream

from random_compare import report
from random_cross import CHECKS, examine, small

PARTS, EACH = 3, 20
NAMES = tuple(CHECKS)


@pytest.mark.parametrize("part", range(PARTS))
def test_engines_agree(part: int) -> None:
    """Explorer, machine, event structure, certificates, SMT, liveness and plain Python, each where it applies."""
    count: collections.Counter[str] = collections.Counter()
    for design, program in stream(part * 1000 + 500, EACH, family="platform"):
        assert design.seed is not None
        checks = [NAMES[(design.seed + k) % len(NAMES)] for k in range(3)]
        got = examine(design.text, program, design.seed, count, checks=checks, states=600, runs=12, sliced=0.2)
        if got.wrong is not None:
            pytest.fail(f"seed {design.seed}: " + report(small(design.text, design.seed, got), got.world, got.wrong))
    print(dict(sorted(count.items())))
    assert count["proved"] >= EACH / 5 and count["refuted"] >= 2
    assert count["reproduced"] == count["value-changing hazards"]
    assert count["runs of the event structure"] >= 40 and count["runs of plain Python"] >= 5
    assert count["compared with the certificates' relation"] >= 2 and count["machine runs that halt"] >= 1


@pytest.mark.parametrize("family", ["alone", "meetings"])
def test_the_other_families_too(family: str) -> None:
    """What is compared elsewhere with the machine alone, here with all others."""
    count: collections.Counter[str] = collections.Counter()
    for design, program in stream(500_000, 12, family=family):
        assert design.seed is not None
        checks = [name for k, name in enumerate(NAMES) if (design.seed + k) % 2]
        got = examine(design.text, program, design.seed, count, checks=checks, states=1200, runs=4, sliced=0.0)
        if got.wrong is not None:
            pytest.fail(f"seed {design.seed}: " + report(small(design.text, design.seed, got), got.world, got.wrong))
    print(dict(sorted(count.items())))
    assert count["runs of the event structure"] >= 30 and count["compared with the certificates' relation"] >= 2
