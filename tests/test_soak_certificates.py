"""The certificates' campaign: its book-keeping, its evidence, and what it makes of a certificate that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fencepost.proofs.certificates import verifying

import soak_certificates as soak

RING = "designs/ring.py::hand_over"


def test_each_proved_variant_is_verified_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By every solver; what is verified is not done again."""
    path = tmp_path / "certificates.json"
    assert soak.main([RING, "--evidence", str(path)]) == 0
    assert "2 proved variants, 2 to do" in capsys.readouterr().out
    state = soak.load(path)
    rows = list(state["variants"].values())
    assert [row["status"] for row in rows] == [soak.VERIFIED] * 2
    assert all(row[solver] == ["unsat"] for row in rows for solver in state["solvers"])
    assert state["totals"]["verified"] == 2 and state["totals"]["minimal bit sets"] == sum(row["states"] for row in rows)
    assert soak.main([RING, "--evidence", str(path)]) == 0
    assert "2 proved variants, 0 to do" in capsys.readouterr().out


def test_what_fails_is_open(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, with exit code 1, and tried again the next time."""
    path = tmp_path / "certificates.json"
    real = verifying.verify

    def broken(*args: Any, **more: Any) -> verifying.Report:
        report = real(*args, **more)
        report.failures.append("slot: an edge is missing")
        return report

    monkeypatch.setattr(verifying, "verify", broken)
    assert soak.main([RING, "--evidence", str(path)]) == 1
    assert "slot: an edge is missing" in capsys.readouterr().out
    monkeypatch.undo()
    assert soak.main([RING, "--evidence", str(path)]) == 0
    assert "2 to do" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["no json", "{}", '{"campaign": "another"}', "[1]"])
def test_other_evidence_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the file, exit code 2, and the file stays as it is."""
    path = tmp_path / "certificates.json"
    path.write_text(text)
    assert soak.main(["--evidence", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert path.read_text() == text


def test_the_evidence_at_hand() -> None:
    """Every variant in it was verified, or is named as not covered; both solvers said so, and when."""
    state = soak.load(soak.EVIDENCE)
    rows = state["variants"]
    assert set(state["solvers"]) == {"z3", "cvc5"} and len(rows) >= 200
    for name, row in rows.items():
        assert row["status"] == soak.VERIFIED or soak.refused(row), (name, row["status"])
        assert row["date"] and row["program"] and row["sources"]
    assert state["totals"]["verified"] + state["totals"]["not covered"] == state["totals"]["variants"] == len(rows)
    assert json.loads(soak.EVIDENCE.read_text()) == state
