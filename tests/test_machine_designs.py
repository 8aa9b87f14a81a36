"""The machine on the engines and the public bugs: a wrong value wherever a hazard changes one, and none elsewhere."""

from __future__ import annotations

import msgspec
import pytest
from fencepost.check import Case, build, cases, decide
from fencepost.loader import load
from fencepost.model.answer import REFUTED
from fencepost.simulate import hazard_of
from fencepost.simulator.machine_script import Follow, Script
from fencepost.simulator.search import Search, World, replay, suspects_of

ENGINES = ("designs/atom.py", "designs/ring.py", "designs/sglang.py", "designs/tensorrt_llm.py", "designs/vllm_v1.py",
           "designs/vllm_v2.py")  # fmt: skip
CASES = tuple(cases(load(ENGINES)))
SURVIVE = 500
"""Adversarial runs that each variant without a hazard survives here; `make soak` has more."""
TURNS = 5


def named(case: Case) -> str:
    return f"{case.design} {case.title}"


def program(case: Case):
    (target,) = load([case.target])
    return build(target, case.parameters)


def world(case: Case) -> World:
    return World(case.environment, case.platform, parameters=case.parameters)


WRONG = [case for case in CASES if case.expected == REFUTED]
RIGHT = [case for case in CASES if case.expected != REFUTED]


@pytest.mark.parametrize("case", WRONG, ids=map(named, WRONG))
def test_the_explorers_run_shows_a_wrong_value(case):
    """The explorer decides the variant; its run, as data, guides the machine."""
    outcome = decide(msgspec.structs.replace(case, explain=False))
    assert outcome.answer is not None and outcome.answer.run is not None, outcome.error
    search = Search(outcome.program, world(case))
    found = search.guided(outcome.answer.run, suspects_of(outcome.answer.hazards), 19)
    assert found is not None, "no wrong value in 19 guided runs"
    wrong = found.outcome.wrong
    assert wrong is not None and wrong.expected != wrong.got
    # The string replays the run exactly, from nothing but the design.
    again = replay(program(case), found.text)
    assert again.outcome.observations == found.outcome.observations and again.outcome.run == found.outcome.run
    # The concrete event structure knows a hazard in the machine's run (it raises `Disagreement` otherwise).
    hazard = hazard_of(outcome.program, found.outcome, case.platform, case.environment)
    assert hazard.kind in ("WAR", "RAW", "WAW", "UNDEFINED")
    # No stall can be left out.
    for k in range(len(found.replay.script.stalls)):
        without = search.machine.run(Follow(without_stall(found.replay.script, k)), turns=found.replay.turns,
                                     limit=found.replay.limit, seed=found.replay.seed)  # fmt: skip
        assert without.wrong is None or without.wrong.object != wrong.object


def without_stall(script: Script, number: int) -> Script:
    """The script with one stall less, the others where they were."""
    stalls = script.stalls
    after = stalls[number + 1 :]
    if after:
        after = ((after[0][0] + stalls[number][0] + 1, *after[0][1:]), *after[1:])
    return msgspec.structs.replace(script, stalls=(*stalls[:number], *after))


@pytest.mark.parametrize("case", RIGHT, ids=map(named, RIGHT))
def test_a_variant_without_a_hazard_survives(case):
    search = Search(program(case), world(case))
    found = search.random(SURVIVE, TURNS, seed=1)
    assert found is None, f"{found.outcome.wrong}\n{found.text}" if found else ""
    assert search.examples == SURVIVE and not search.faults and (case.hang is not None or not search.blocked)


def test_a_guard_taken_away_is_found_at_random_too():
    """Not only the explorer's run leads there."""
    for target, keyword in (("designs/ring.py::ring", "one buffer too few"), ("designs/atom.py", "ids not held")):
        for case in cases(load([target]), keyword=keyword):
            if case.expected == REFUTED:
                assert Search(program(case), world(case)).random(200, 6, seed=1) is not None, named(case)
