"""Random programs: the explorer against random concrete runs, and against its own searches without slicing or reduction.

A program is proved only if no random run of the concrete event structure shows a value-changing hazard or an undefined
read; every refutation was replayed. Longer campaigns: `python tests/random_programs.py --count N --seed S`.
"""

from __future__ import annotations

import collections
import random

import pytest

from random_oracle import disagreement, minimise, show
from random_programs import generate

COUNT = 60
"""Programs of each of the four parts."""


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    """No proof that a run contradicts, and no search that finds something else."""
    count: collections.Counter[str] = collections.Counter()
    for seed in range(part * 100_000, part * 100_000 + COUNT):
        program = generate(random.Random(seed))
        what = disagreement(program, random.Random(seed), count, runs=25, states=600)
        if what is None or what.startswith("UNKNOWN"):
            continue

        def still(candidate: object, head: str = what.split(":")[0].split(" at ")[0], seed: int = seed) -> bool:
            found = disagreement(candidate, random.Random(seed), collections.Counter())  # type: ignore[arg-type]
            return found is not None and found.startswith(head)

        pytest.fail(f"seed {seed}: {what}\n{show(minimise(program, still))}")
    print(dict(sorted(count.items())))
    assert count["proved"] >= COUNT / 4 and count["refuted"] >= COUNT / 8
    assert count["unknown"] + count["design error"] <= COUNT / 10
