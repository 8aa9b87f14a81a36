"""The theorems: each condition as it must be, exact and for all values; docs/proofs.md says nothing else; bad input."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec
import pytest
from fencepost import cli, proofs_page
from fencepost.check import cases, decide
from fencepost.condition import Result
from fencepost.loader import load
from fencepost.proofs.periodic import conditions
from fencepost.proofs.periodic.conditions import condition, least, margin, upward_closed
from fencepost.proofs.periodic.decide import spelled, spelled_poly
from fencepost.proofs_page import THEOREMS, Theorem, prove

PAGE = Path(__file__).parent.parent / "docs" / "proofs.md"

MUST_BE = {
    ("vllm_v2.py::uva_pool", "depth,batch_queue_size", ()): "depth >= batch_queue_size",
    ("vllm_v2.py::uva_pool", "depth,takes,batch_queue_size", ()): "depth >= takes * batch_queue_size",
    ("vllm_v2.py::uva_pool", "depth,batch_queue_size", ("empty_steps=true",)): "depth >= batch_queue_size",
    ("vllm_v2.py::uva_pool", "depth,takes,batch_queue_size", ("empty_steps=true",)): "depth >= takes * batch_queue_size",
    ("vllm_v2.py::pruned_video", "depth,batch_queue_size", ("item_between=false",)): "depth >= 2 * batch_queue_size",
    ("vllm_v2.py::pruned_video", "depth,batch_queue_size", ()): "depth >= 2 or batch_queue_size <= 1",
    ("vllm_v2.py::uva_pool", "depth,batch_queue_size", ("speculator=true",)): "depth >= batch_queue_size + 1",
    ("bounds.py::pool", "depth,takes,outstanding", ("late_reader=first take",)): "depth >= takes * (outstanding + 1)",
    ("bounds.py::pool", "depth,takes,outstanding", ("late_reader=last take",)): "depth >= takes * outstanding + 1",
    ("bounds.py::wait_between_takes", "depth,outstanding", ()): "depth >= 2 * outstanding - 2 or depth >= 2",
    ("bounds.py::wait_between_takes", "depth,outstanding", ("waits=false",)): "depth >= 2 * outstanding",
    ("vllm_v2.py::encoder_only", "depth,takes,events", ()): "depth >= takes * events",
    ("vllm_v2.py::encoder_only", "depth", ("events=0",)): "never",
    ("vllm_v2.py::mixed_steps", "depth,events", ("guarded=every step",)): "depth >= events",
    ("ring.py::ring", "depth,outstanding", ("encoder_only=true",)): "never",
    ("vllm_v1.py::pipeline", "batch_queue_size", ("stages=2",)): "batch_queue_size <= 1",
    ("bounds.py::unguarded", "outstanding", ()): "outstanding <= 1",
    ("bounds.py::unguarded", "outstanding", ("every_path_waits=false",)): "never",
    ("tensorrt_llm.py::v1_manager", "table_depth,prep_depth", ()): "prep_depth >= 2 and table_depth >= 2",
    ("tensorrt_llm.py::v1_manager", "prep_depth", ("snapshot=true",)): "prep_depth >= 2",
    ("bounds.py::page_table", "depth,lag", ()): "depth >= lag",
    ("bounds.py::page_table", "depth,lag", ("writes=in the tail",)): "depth >= lag + 1",
    ("tensorrt_llm.py::v2_manager", "prep_depth", ("w2=true", "w3=true")): "always",
    ("tensorrt_llm.py::v2_manager", "prep_depth", ("w1=true",)): "never",
    ("bounds.py::ell_ring", "depth,generation", ()): "depth >= generation",
    ("atom.py::staging", "depth", ("chunks=false",)): "depth >= 2",
    ("atom.py::staging", "depth", ()): "never",
    ("atom.py::staging", "depth", ("gate=true",)): "always",
    ("sglang.py::batch_records", "records,unprocessed", ()): "records >= unprocessed + 1",
    ("sglang.py::batch_records", "records,unprocessed", ("drop=after launch",)): "records >= unprocessed",
    ("bounds.py::rotation", "depth", ()): "depth is even",
    ("bounds.py::rotation", "depth,streams", ()): "depth is a multiple of streams",
    ("bounds.py::rotation_with_results", "depth,outstanding,streams", ()): "depth >= outstanding or depth is a multiple of streams",
    ("ring.py::hand_over", "depth,capacity", ()): "depth >= capacity + 2",
}  # fmt: skip


@functools.cache
def proved(theorem: Theorem) -> Result:
    """A theorem with the smallest grid, once."""
    return prove(theorem, "designs", 1)[0]


def test_every_theorem_has_an_expected_condition() -> None:
    """None is only generated."""
    assert {(t.target, t.over, t.given) for t in THEOREMS} == set(MUST_BE)


@pytest.mark.parametrize("theorem", THEOREMS, ids=lambda theorem: theorem.about)
def test_the_condition_is_exact_and_as_it_must_be(theorem: Theorem) -> None:
    """Exact for all values, the known inequality, and no value of the grid on which the explorer differs."""
    result = proved(theorem)
    found = result.condition
    assert found.verdict == "exact", found.reasons
    assert spelled(found.safe, found.names) == MUST_BE[theorem.target, theorem.over, theorem.given]
    assert not [point for point in result.grid if not point.agrees]


def test_the_page_says_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/proofs.md is the generator's output, but for the lines with times and grids."""
    monkeypatch.setattr(proofs_page, "prove", lambda theorem, designs, grid: (proved(theorem), 0.0))

    def text(lines: list[str]) -> list[str]:
        return [line for line in lines if not line.startswith("- agree: ")]

    page = PAGE.read_text().splitlines()
    assert text(page) == text(list(proofs_page.lines("designs")))
    grids = [re.fullmatch(r"- agree: (\d+) of (\d+) values; (\d+\.\d\d) s", line) for line in page if line.startswith("- agree")]
    assert len(grids) == len(THEOREMS)
    assert all(grid is not None and grid[1] == grid[2] and int(grid[1]) >= 10 and float(grid[3]) < 2 for grid in grids)


def test_every_variant_of_the_bounds_is_as_declared() -> None:
    """Both sides of each boundary, by the explorer."""
    asked = [msgspec.structs.replace(case, explain=False) for case in cases(load(["designs/bounds.py"]))]
    assert len(asked) > 25
    for case in asked:
        outcome = decide(case)
        assert outcome.answer is not None and outcome.answer.matches, (case.title, outcome.error, outcome.answer)


# ---------------------------------------------------------------- questions about a condition


def test_least_margin_and_upward_closure() -> None:
    """The least depth where more is always safe; no least where it is not; the margin is the distance to the boundary."""
    pool = proved(next(t for t in THEOREMS if t.over == "depth,takes,batch_queue_size" and not t.given)).condition
    assert upward_closed(pool, "depth")
    ((provided, bounds),) = least(pool, "depth") or []
    assert spelled(provided, pool.names) == "always"
    assert [spelled_poly(bound, pool.names) for bound in bounds] == ["takes * batch_queue_size"]
    assert margin(pool, {"depth": 9, "takes": 2, "batch_queue_size": 3}, "depth") == 3
    assert margin(pool, {"depth": 5, "takes": 2, "batch_queue_size": 3}, "depth") is None
    assert not upward_closed(pool, "takes")
    rotation = proved(next(t for t in THEOREMS if t.about == "two streams in rotation")).condition
    assert not upward_closed(rotation, "depth")
    assert margin(rotation, {"depth": 4}, "depth") == 0


def test_a_wrong_inequality_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both halves of Z3's proof can fail: a closed form that is too weak, and one that is too strong, are found out."""
    from fencepost.designs import ring
    from fencepost.proofs.periodic import pairs
    from fencepost.proofs.periodic.decide import AtLeast, both
    from fencepost.proofs.periodic.symbols import Poly

    closed = pairs._closed
    for more, proved_half in ((-1, False), (1, True)):

        def shifted(*arguments: object, more: int = more) -> object:
            formula = closed(*arguments)  # type: ignore[arg-type]
            parts = formula.parts if hasattr(formula, "parts") else (formula,)
            return both(AtLeast(p.left, p.right + more) if isinstance(p, AtLeast) and Poly.var("depth") == p.left else p for p in parts)

        monkeypatch.setattr(pairs, "_closed", shifted)
        found = condition(ring.ring, ["depth", "outstanding"])
        assert found.verdict == "unknown"
        assert (spelled(found.safe, found.names) != "never") == proved_half


# ---------------------------------------------------------------- the command


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line."""
    code = cli.run(["condition", *arguments])
    got = capsys.readouterr()
    return code, got.out, got.err


def test_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that was asked is on one screen."""
    code, out, _ = run(
        capsys, "designs/ring.py::ring", "--over", "depth,outstanding", "--least", "depth", "--at", "depth=5,outstanding=3",
        "--grid", "2",
    )  # fmt: skip
    assert code == 0
    text = " ".join(out.split())
    for wanted in (
        "safe iff depth >= outstanding", "for all depth >= 1, outstanding >= 1", "least depth = outstanding",
        "depth could be 2 less", "4 of 4 values agree with the explorer", "'forward' of step n is over before 'write slot'",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert max(map(len, out.splitlines())) <= 100


def test_where_no_value_helps_the_step_kind_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The kind of step without a wait, and what overtakes what."""
    code, out, _ = run(capsys, "designs/ring.py::ring", "--over", "depth", "--set", "encoder_only=true", "--grid", "0")
    assert code == 0
    assert "never safe" in out and "encoder only" in out and "nothing waits for 'forward'" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["designs/vllm_v1.py::pipeline", "--over", "guard"], "parameter 'guard' of vllm_v1::pipeline is bool, not an integer"),
        (["designs/vllm_v1.py::pipeline", "--over", "nothing"], "no parameter 'nothing'"),
        (["designs/vllm_v1.py::pipeline", "--over", "batch_queue_size=1..4"], "a condition is about all values"),
        (["designs/vllm_v1.py", "--over", "batch_queue_size"], "a condition is about one design; the target holds 3"),
        (["designs/vllm_v1.py::pipeline", "--over", "stages", "--set", "stages=2"], "it is one or the other"),
        (["designs/vllm_v1.py::pipeline", "--over", "stages", "--at", "stages=x"], "'x' is no integer"),
        (["designs/vllm_v1.py::pipeline", "--over", "stages", "--least", "depth"], "it is one of the parameters of --over"),
        (["designs/vllm_v1.py::pipeline"], "Missing option"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one line that says what and where."""
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "") and wanted in err and err.count("\n") == 1


def test_a_parameter_that_changes_the_structure_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """The number of pipeline stages is no weight; the reason names the place."""
    code, out, _ = run(capsys, "designs/vllm_v1.py::pipeline", "--over", "stages")
    assert code == 3
    assert "stages changes the structure of the design (range at designs/vllm_v1.py:" in " ".join(out.split())


def test_a_solver_that_gives_up_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As such, with what was proved before: nothing here, and no exact condition."""

    def none(self: conditions._Clock, assertions: object, what: str) -> bool:
        if what.startswith("a conflict is unordered unless"):
            self.gave_up.append(what)
            return False
        return ask(self, assertions, what)  # type: ignore[arg-type]

    from fencepost.designs import ring

    ask = conditions._Clock.none
    monkeypatch.setattr(conditions._Clock, "none", none)
    found = condition(ring.ring, ["depth", "outstanding"])
    assert found.verdict == "unknown"
    assert any("the solver gave up" in reason for reason in found.reasons)
    assert spelled(found.safe, found.names) == "depth >= outstanding"
