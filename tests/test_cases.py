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
FULL = (
    1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 19, 21, 23, 24, 25, 26, 29, 30, 31, 32, 34, 36, 38, 40, 41, 42, 44, 46, 48,
    50, 52, 54, 55, 57, 59, 61, 62, 63, 65,
)  # fmt: skip
ONE_LINERS = (1, 2, 3, 5, 7, 8, 10, 11, 12, 13, 16, 17, 18, 20, 22, 24, 25, 27)
NUMBERS = (*(str(n) for n in FULL), *(f"C-{n}" for n in ONE_LINERS))
"""The list's entries, with its gaps; C-26, a defect of a platform, is a limitation of the reference page and no design."""
NO_CURE = {
    "case_1_vllm_25279": "vllm#24527: guard around the input preparation only",
    "case_2_vllm_34866": "ATOM#1993: the streams wait for each other, the host for nothing",
    "case_41_vllm_46278": "the copy's source attribute changed",
    "case_42_vllm_47282": "before: the load waits for nothing",
    "case_46_deepspeed_7898": "#8061: waits for the current stream, several produce; #8061: waits for the default stream, several produce",
}
"""Wrong and partial fixes, which must still be refuted. That of 41 leaves 42 as it was: the store waits, the load does not."""


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
    if text.startswith("Further, "):
        owner, number = re.search(r"([\w.-]+/[\w.-]+)#(\d+)", text).groups()  # type: ignore[union-attr]
        assert re.search(rf"Source: https://github\.com/{re.escape(owner)}/(pull|issues)/{number}$", text), text
    verdicts = {variant.verdict for variant in target.variants}
    assert "proved" in verdicts
    labels = {variant.label for variant in target.variants}
    for variant in target.variants:
        if variant.verdict == "refuted":
            assert variant.hazard is not None, variant.label
            if target.design.rpartition("::")[2] not in ONE_HALF and variant.platform is None:
                assert variant.fix in labels or "read later" in variant.label or variant.label == "pinned", variant.label


def test_every_entry_of_the_list_is_there() -> None:
    """By number, and nothing else but the ten further ones."""
    texts = [inspect.getdoc(target.function) or "" for target in designs()]
    found = [m.group(1) for m in (re.match(r"Case (\d+|C-\d+)\b", text) for text in texts) if m]
    assert set(found) == set(NUMBERS)
    assert sum(text.startswith("Further, ") for text in texts) == 10 == len(texts) - len(found)


def test_fixes_that_are_none_are_refuted() -> None:
    variants = {target.design.rpartition("::")[2]: {v.label: v.verdict for v in target.variants} for target in designs()}
    for design, labels in NO_CURE.items():
        for label in labels.split("; "):
            assert variants[design][label] == "refuted", (design, label)


@pytest.mark.parametrize("target", [t for t in designs() if any(v.platform for v in t.variants)], ids=lambda target: target.design)
def test_cases_with_a_platform_rule_run_under_both_profiles(target: Target) -> None:
    """Every half, whatever it takes: the same parameters on the default platform and on the other one."""
    halves: dict[str, list[dict[str, object]]] = {}
    for variant in target.variants:
        halves.setdefault(variant.platform or "cuda", []).append(dict(variant.parameters))
    assert len(halves) == 2
    (first, one), (second, other) = halves.items()
    assert all(half in other for half in one) and all(half in one for half in other), (first, one, second, other)
