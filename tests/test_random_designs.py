"""Random designs over the whole language: the explorer and the machine never contradict each other.

2,000 designs by seed, and a few that Hypothesis draws and could shrink. The long campaign is tests/soak_random_designs.py.
"""

from __future__ import annotations

import collections

import pytest
from fencepost.simulator import random_designs
from fencepost.simulator.random_designs import NoDesigns, RandomDesign, generate, stream, trace

from random_compare import BARE_CUDA, compare, report, small

PARTS, EACH = 20, 100
RUNS = 20
"""Adversarial machine runs of each proved design."""


@pytest.mark.parametrize("part", range(PARTS))
def test_explorer_and_machine_agree(part: int) -> None:
    """Proved: no run is wrong. Value-changing: the machine shows the wrong value. Access-level only: it shows none."""
    count: collections.Counter[str] = collections.Counter()
    designs: list[RandomDesign] = []
    for design, program in stream(part * 1000, EACH):
        assert design.seed is not None
        designs.append(design)
        got = compare(program, design.seed, count, runs=RUNS, states=600, sliced=0.25)
        if got.wrong is not None:
            text = small(design.text, design.seed, got.wrong, got.world)
            pytest.fail(f"seed {design.seed}: " + report(text, got.world, got.wrong))
    print(dict(sorted(count.items())))
    print(random_designs.distribution(designs))
    assert count["proved"] >= EACH / 4 and count["refuted"] >= EACH / 10
    assert count["unknown"] + count["design error"] <= EACH / 10
    assert count["reproduced"] == count["value-changing hazards"]
    assert count["compared with the unsliced search"] >= EACH / 20


def test_every_feature_is_used() -> None:
    """No part of the language is left out, and no design is the only one of its kind."""
    made = [generate(seed, family) for family, count in (("alone", 1500), ("meetings", 600), ("platform", 900)) for seed in range(count)]
    used = random_designs.distribution(made)
    assert min(used.values()) >= 2, {name: number for name, number in used.items() if number < 2}


def test_a_seed_is_a_text() -> None:
    """The same seed gives the same text, and the text alone gives the program."""
    for seed in range(30):
        design = generate(seed)
        assert design == generate(seed)
        try:
            program = design.program()
        except ValueError:
            continue
        assert program == trace(design.text)


def test_hypothesis_draws_designs() -> None:
    """The strategy gives designs that both engines agree on."""
    from hypothesis import HealthCheck, given, settings

    @settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(random_designs.designs())
    def agree(design: RandomDesign) -> None:
        got = compare(design.program(), 0, runs=10, states=300, sliced=0.0, world=BARE_CUDA)
        assert got.wrong is None, report(design.text, got.world, got.wrong or "")

    agree()


def test_hypothesis_shrinks_a_design() -> None:
    """What is found is small: a refuted design with a few lines."""
    from hypothesis import HealthCheck, Phase, find, settings

    def refuted(design: RandomDesign) -> bool:
        return compare(design.program(), 0, runs=0, states=300, sliced=0.0, world=BARE_CUDA).word == "refuted"

    quiet = settings(max_examples=400, database=None, derandomize=True, deadline=None, phases=(Phase.generate, Phase.shrink),
                     suppress_health_check=list(HealthCheck))  # fmt: skip
    found = find(random_designs.designs(), refuted, settings=quiet)
    assert len(found.text.splitlines()) <= 24, found.text


def test_lines_are_left_out_one_by_one() -> None:
    """`minimise` keeps what the condition needs, and only designs."""
    design = next(d for d, _ in stream(0, 50) if "record" in d.features and "queue" in d.features)
    text = random_designs.minimise(design.text, lambda candidate: "d.queue(" in candidate)
    assert "d.queue(" in text and len(text.splitlines()) < len(design.text.splitlines())
    trace(text)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"needs": ["collective"]}, "no feature is called 'collective'"),
        ({"needs": ["lock"], "without": ["lock"]}, "no design has both"),
    ],
)
def test_a_strategy_that_can_give_nothing_says_so(asked: dict[str, list[str]], says: str) -> None:
    """At once, and not after many draws."""
    with pytest.raises(NoDesigns, match=says):
        random_designs.designs(**asked)


def test_seeds_that_give_nothing_say_so() -> None:
    """With the seeds that were tried and what stood against most of them."""
    with pytest.raises(NoDesigns, match="seeds 0 to 39 give no design"):
        list(stream(0, 1, needs=["lock"], without=["lock"], tries=40))
