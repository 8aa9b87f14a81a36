"""Random programs: the explorer against random concrete runs, and against its own searches without slicing or reduction.

A program is proved only if no random run of the concrete event structure shows a value-changing hazard or an undefined
read; every refutation was replayed. Longer campaigns: `python tests/random_programs.py --count N --seed S`.
"""

from __future__ import annotations

import pytest

from random_oracle import campaign
from random_programs import generate

COUNT = 60
"""Programs of each of the four parts."""


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    """No proof that a run contradicts, and no search that finds something else."""
    count, found = campaign(generate, range(part * 100_000, part * 100_000 + COUNT))
    assert found is None, found
    print(dict(sorted(count.items())))
    assert count["proved"] >= COUNT / 4 and count["refuted"] >= COUNT / 8
    assert count["unknown"] + count["design error"] <= COUNT / 10
