"""Random designs of ranks that meet: explorer, machine, event structure and liveness never contradict each other.

The long campaign is tests/soak_random_designs.py, of which every fourth design is such a one.
"""

from __future__ import annotations

import collections
import random

import pytest
from fencepost.proofs.liveness.search import search
from fencepost.simulator import random_designs
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import Random
from fencepost.simulator.random_designs import NoDesigns, generate, stream

from meeting_compare import Runs, structured
from random_compare import compare, report, small
from random_oracle import random_world

PARTS, EACH = 3, 30
FAMILY = "meetings"


@pytest.mark.parametrize("part", range(PARTS))
def test_explorer_and_machine_agree(part: int) -> None:
    """Proved: no run is wrong. Value-changing: the machine shows the wrong value. Access-level only: it shows none."""
    count: collections.Counter[str] = collections.Counter()
    for design, program in stream(part * 1000, EACH, family=FAMILY):
        assert design.seed is not None
        got = compare(program, design.seed, count, runs=15, states=800, sliced=0.2)
        if got.wrong is not None:
            text = small(design.text, design.seed, got.wrong, got.world)
            pytest.fail(f"seed {design.seed}: " + report(text, got.world, got.wrong))
    print(dict(sorted(count.items())))
    assert count["proved"] >= EACH / 4 and count["refuted"] >= 2
    assert count["reproduced"] == count["value-changing hazards"]


@pytest.mark.parametrize("part", range(PARTS))
def test_machine_and_event_structure_agree(part: int) -> None:
    """A wrong read has a hazard in the machine's run, and a run without any is not wrong (`structured` raises)."""
    seen = Runs(0, 0, 0)
    for design, program in stream(100_000 + part * 1000, EACH, family=FAMILY):
        assert design.seed is not None
        found = structured(program, design.seed, random_world(random.Random(design.seed)))
        seen = Runs(*(a + b for a, b in zip(seen, found, strict=True)))
    assert seen.wrong >= 3 and seen.clean >= 80 and seen.blocked >= 30, seen


@pytest.mark.parametrize("part", range(2))
def test_a_run_of_the_machine_that_halts_is_a_hang(part: int) -> None:
    """Where liveness finds no hang, and has seen all states, no run of the machine ends with somebody waiting."""
    halts = hangs = 0
    for design, program in stream(200_000 + part * 1000, EACH, family=FAMILY):
        found = search(program, 3_000)
        hangs += found.hang is not None
        machine = Machine(program)
        for k in range(15):
            outcome = machine.run(Random(f"{design.seed} {k}"), turns=4, limit=250, stop=False)
            if outcome.ended == "blocked":
                halts += 1
                assert outcome.waiting and (found.hang is not None or found.bounded is not None), (design.seed, outcome.waiting)
                break
    assert halts >= EACH / 5 and hangs >= EACH / 4, (halts, hangs)


def test_a_family_is_known() -> None:
    """Another name is refused; a seed of a family is a text."""
    with pytest.raises(NoDesigns, match="no family is called 'ranks'"):
        generate(0, "ranks")
    assert generate(3, FAMILY) == generate(3, FAMILY) != generate(3)


def test_hypothesis_draws_meetings() -> None:
    """The strategy gives designs of the family."""
    from hypothesis import HealthCheck, Phase, find, settings

    quiet = settings(max_examples=60, database=None, derandomize=True, deadline=None, phases=(Phase.generate,),
                     suppress_health_check=list(HealthCheck))  # fmt: skip
    found = find(random_designs.designs(family=FAMILY), lambda d: "flag awaited by a stream" in d.features, settings=quiet)
    assert ".wait_value(" in found.text
