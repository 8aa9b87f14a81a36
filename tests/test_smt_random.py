"""Random designs: the bounded SMT engine and the explorer agree, outside of the differences that are so by definition.

Those are (theory section 4): a hazard that needs more turns than were tried, and an unknown that says why.
"""

from __future__ import annotations

import collections
import random

import pytest

from random_oracle import minimise, show
from random_programs import generate
from smt_agreement import disagreement

COUNT = 100
"""Programs of each of the five parts."""


@pytest.mark.parametrize("seed", [296])
def test_designs_that_were_open(seed: int) -> None:
    """296: a write that repeats what is there, of memory that nobody reads: access-level only, whatever the run."""
    assert disagreement(generate(random.Random(seed)), 3) == ("explorer proved, smt bounded", None)


@pytest.mark.parametrize("part", range(5))
def test_random_designs(part: int) -> None:
    """No proof that a replayed model contradicts, no refutation that is not found within the turns that it needs."""
    count: collections.Counter[str] = collections.Counter()
    for seed in range(part * 100_000, part * 100_000 + COUNT):
        program = generate(random.Random(seed))
        what, bad = disagreement(program, 3, seconds=5.0)
        count[what] += 1
        if bad is not None:
            small = minimise(program, lambda candidate: disagreement(candidate, 3)[1] is not None)
            pytest.fail(f"seed {seed}: {bad}\n{show(small)}")
    print(dict(sorted(count.items())))
    assert count["explorer proved, smt bounded"] >= COUNT / 10
    assert count["explorer refuted, smt refuted"] >= COUNT / 10
    assert sum(n for what, n in count.items() if what.startswith("smt unknown")) <= COUNT / 20
