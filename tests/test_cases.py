"""The public bugs: each half has its verdict for the declared reason, and each says what it is a model of."""

from __future__ import annotations

import inspect
import re

import msgspec
import pytest
from fencepost.check import Case, build, cases, decide
from fencepost.loader import Target, load
from fencepost.model.platform import environment, platform
from fencepost.proofs.explore.locations import locations
from fencepost.proofs.explore.search import Budget, Search
from fencepost.proofs.explore.setting import Setting

FOLDER = "designs/cases"
ONE_HALF = ("case_c3_1bit_monster_2344", "case_c7_tensorflow_48474", "case_c20_rtx6kpro_47")
"""Cases without a published fix: what else they show is ours."""


def declared() -> list[Case]:
    """Every declared variant of the cases."""
    return [msgspec.structs.replace(case, explain=False) for case in cases(load([FOLDER]))]


def designs() -> list[Target]:
    """Every case's design."""
    return load([FOLDER])


@pytest.mark.parametrize("case", declared(), ids=lambda case: f"{case.design}-{case.title}")
def test_every_half_is_as_declared(case: Case) -> None:
    """Verdict and hazard are the ones that the design declares, on the whole and on the sliced design."""
    outcome = decide(case)
    assert outcome.answer is not None, outcome.error
    assert outcome.answer.matches, (outcome.answer.verdict, outcome.answer.reason, outcome.answer.hazards)
    (target,) = load([case.target])
    program = build(target, case.parameters)
    setting = Setting(program, platform(case.platform), environment(case.environment))
    for location in locations(program):
        sliced, whole = (Search(setting, location, sliced=on).run(Budget()) for on in (True, False))
        found = [{(h.kind, h.first, h.second) for h in reach.hazards} for reach in (sliced, whole)]
        assert found[0] == found[1], (case.title, location)


@pytest.mark.parametrize("target", designs(), ids=lambda target: target.design)
def test_every_case_says_what_it_is(target: Target) -> None:
    """Number, thread, that it is a model, why it exists; a refuted half, a safe half, and a fix that is a variant."""
    assert target.function is not None
    text = " ".join((inspect.getdoc(target.function) or "").split())
    assert re.match(r"(Further|Case (\d+|C-\d+))('s (sibling|cousins))?, ", text), text
    assert re.search(r"[\w.-]+/[\w.-]+#\d+", text), text
    assert "A model of the reported mechanism" in text and "It exists because" in text
    verdicts = {variant.verdict for variant in target.variants}
    assert "proved" in verdicts
    labels = {variant.label for variant in target.variants}
    for variant in target.variants:
        if variant.verdict == "refuted":
            assert variant.hazard is not None, variant.label
            if target.design.rpartition("::")[2] not in ONE_HALF and variant.platform is None:
                assert variant.fix in labels or "read later" in variant.label or variant.label == "pinned", variant.label
