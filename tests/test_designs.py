"""The engines' verdicts, and the conditions of the ring over a grid, each decided exactly."""

from __future__ import annotations

import msgspec
import pytest
from fencepost.check import Case, build, cases, decide
from fencepost.designs import ring, vllm_v1, vllm_v2
from fencepost.loader import load
from fencepost.model.language.build import program_of
from fencepost.model.platform import environment, platform
from fencepost.proofs.check import check
from fencepost.proofs.explore.locations import locations
from fencepost.proofs.explore.search import Budget, Search
from fencepost.proofs.explore.setting import Setting

ENGINES = ("ring", "vllm_v1", "vllm_v2", "tensorrt_llm", "atom", "sglang")


def declared() -> list[Case]:
    """Every declared variant of the engines."""
    asked = cases(load([f"designs/{engine}.py" for engine in ENGINES]))
    return [msgspec.structs.replace(case, explain=False) for case in asked]


@pytest.mark.parametrize("case", declared(), ids=lambda case: f"{case.design}-{case.title}")
def test_every_variant_is_as_declared(case: Case) -> None:
    """Verdict and hazard are the ones that the design declares."""
    outcome = decide(case)
    assert outcome.answer is not None, outcome.error
    assert outcome.answer.matches, (outcome.answer.verdict, outcome.answer.reason, outcome.answer.hazards)


def test_every_refuted_variant_names_its_hazard_and_every_fix_exists() -> None:
    """Refuted for the wrong reason is a failure, so the reason is declared; `fix=` names a variant of the same design."""
    asked = declared()
    labels = {(case.target, case.label) for case in asked}
    assert not [case.title for case in asked if case.expected == "refuted" and case.hazard is None]
    assert not [case.title for case in asked if case.fix is not None and (case.target, case.fix) not in labels]


def verdict(**parameters: object) -> str:
    """Verdict of the ring under these parameters."""
    return check(program_of(ring.ring, parameters), explain=False).verdict


@pytest.mark.parametrize("outstanding", range(1, 9))
@pytest.mark.parametrize("reader_behind", [False, True])
def test_the_ring_is_safe_iff_it_is_deep_enough(outstanding: int, reader_behind: bool) -> None:
    """Depth >= results outstanding; one more when a reader is enqueued behind the resolving event."""
    for depth in range(1, 9):
        safe = depth >= outstanding + reader_behind
        got = verdict(depth=depth, outstanding=outstanding, reader_after_event=reader_behind)
        assert got == ("proved" if safe else "refuted"), (depth, outstanding)


@pytest.mark.parametrize("depth", range(1, 17))
def test_no_depth_saves_encoder_only_steps(depth: int) -> None:
    """One step kind without a wait lets the host run ahead without bound."""
    assert verdict(depth=depth, outstanding=2, encoder_only=True) == "refuted"


@pytest.mark.parametrize("engine", ENGINES)
def test_sliced_and_whole_searches_agree(engine: str) -> None:
    """On every variant, at every location: the same hazards with and without passing operations over."""
    for case in cases(load([f"designs/{engine}.py"])):
        (target,) = load([case.target])
        program = build(target, case.parameters)
        setting = Setting(program, platform(case.platform), environment(case.environment))
        for location in locations(program):
            sliced, whole = (Search(setting, location, sliced=on).run(Budget()) for on in (True, False))
            found = [{(h.kind, h.first, h.second) for h in reach.hazards} for reach in (sliced, whole)]
            assert found[0] == found[1], (case.title, location)


@pytest.mark.parametrize(("stage", "expected"), [(0, "refuted"), (1, "refuted"), (2, "proved")])
def test_the_guard_may_go_on_the_last_of_three_stages_only(stage: int, expected: str) -> None:
    """The last stage samples, so it waits for its device anyway; the others do not."""
    parameters = {"stages": 3, "batch_queue_size": 3, "guard": True, "unguarded": stage}
    got = check(program_of(vllm_v1.pipeline, parameters), explain=False)
    assert got.verdict == expected
    if expected == "refuted":
        assert f"WAR input_ids pp{stage}" in [hazard.name for hazard in got.hazards]


def margins(design: object, **parameters: object) -> dict[str, int | None]:
    """Margin of each reused object in a proof's report."""
    got = check(program_of(design, parameters))  # type: ignore[arg-type]
    assert got.verdict == "proved"
    return {one.object: one.margin for one in got.protections}


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_margin_is_what_the_ring_could_lose(depth: int) -> None:
    """Decided at smaller depths; also for rings that a cursor moves through."""
    assert margins(ring.ring, depth=depth, outstanding=2)["slot"] == depth - 2
    assert margins(vllm_v2.encoder_only, events=1, depth=depth)["write_indices"] == depth - 1
