"""Which debug runs hide which hazards, on the engines whose users met it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fencepost.check import build, cases
from fencepost.cli import run
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.answer import MASKED, PROVED, REFUTED
from fencepost.proofs.waits.masks import Masks, masks, pageable, with_step_syncs

ROOT = Path(__file__).resolve().parent.parent


def variant(target: str, label: str) -> p.Program:
    """The program of the first declared variant whose label contains the text."""
    (found,) = load([str(ROOT / target)])
    case = next(case for case in cases([found]) if case.label is not None and label in case.label)
    return build(found, case.parameters)


def verdicts(found: Masks) -> dict[str, str]:
    """Name of the debug run -> verdict."""
    return {mask.name: mask.verdict for mask in found.masks}


def test_vllm_v1_hides_under_launch_blocking() -> None:
    """The forward behind the copy makes both readings hide it; one hardware queue does not: the host is no stream."""
    found = masks(variant("designs/vllm_v1.py::pipeline", "no guard without async"))
    assert found.bare.verdict == REFUTED
    assert verdicts(found) == {
        "launch-blocking-kernels": MASKED, "launch-blocking": MASKED, "one-hardware-queue": REFUTED,
        "device sync after each step": PROVED, "pageable instead of pinned": PROVED,
    }  # fmt: skip
    assert all(mask.hidden == ("WAR input_ids pp0",) for mask in found.masks if mask.verdict != REFUTED)


def test_atom_shows_when_only_kernels_block() -> None:
    """A copy on a side stream is no kernel: blocking kernels do not hide it, one hardware queue does (99 of 100, 0 of 100)."""
    found = masks(variant("designs/atom.py::deferred_output", "no spec decode: logprobs not held"))
    assert verdicts(found) == {
        "launch-blocking-kernels": REFUTED, "launch-blocking": MASKED, "one-hardware-queue": MASKED,
        "device sync after each step": PROVED,
    }  # fmt: skip


def test_kernels_that_read_in_place_stay_pinned() -> None:
    """A kernel cannot read pageable memory, so that nothing is claimed about it; a design that nothing hides says so."""
    assert pageable(variant("designs/vllm_v2.py::encoder_only", "no wait, 2 slots")) is None
    step = with_step_syncs(variant("designs/vllm_v2.py::encoder_only", "no wait, 2 slots"))
    assert step is not None and step.threads[0] == variant("designs/vllm_v2.py::encoder_only", "no wait, 2 slots").threads[0]


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A table; the hidden ones stand out."""
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.chdir(ROOT)
    assert run(["masks", "designs/sglang.py::shared_rows", "-k", "no barrier", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "refuted, WAR req_to_token" in text and "one-hardware-queue" in text and "HIDES" in text
    assert run(["masks", "nowhere.py"]) == 2
    assert capsys.readouterr().err.strip() == "fencepost: nowhere.py: no such file"
