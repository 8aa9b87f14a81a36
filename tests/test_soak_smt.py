"""The SMT campaign's book-keeping: it goes on where it ended, keeps what is open, and refuses evidence that is not its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import soak_smt as soak


def result(wrong: list[dict[str, Any]]) -> dict[str, Any]:
    """What a chunk gives back."""
    return {"first": soak.FIRST, "count": {"explorer proved, smt bounded": soak.CHUNK}, "wrong": wrong, "seconds": 1.5}


def test_it_goes_on_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next seed and every count are in the file; nothing is left to do when it holds enough."""
    path = tmp_path / "smt.json"
    state = soak.load(path)
    soak.enter(state, result([]), "abc")
    path.write_text(json.dumps(state))
    assert soak.main(["--evidence", str(path), "--at-least", str(soak.CHUNK)]) == 0
    assert f"{soak.CHUNK} designs" in capsys.readouterr().out
    again = soak.load(path)
    assert again["next_seed"] == soak.FIRST + soak.CHUNK and again["designs_by_sources"] == {"abc": soak.CHUNK}


def test_a_disagreement_is_open_until_it_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 with the design while the engines disagree about it; 0 when they no longer do."""
    import smt_agreement

    path = tmp_path / "smt.json"
    state = soak.load(path)
    soak.enter(state, result([{"seed": 7, "what": "explorer proved, SMT refuted", "program": "the program"}]), "abc")
    path.write_text(json.dumps(state))
    monkeypatch.setattr(smt_agreement, "disagreement", lambda program, steps: ("wrong", "explorer proved, SMT refuted"))
    assert soak.main(["--evidence", str(path), "--at-least", "1"]) == 1
    assert "seed 7: explorer proved, SMT refuted\nthe program" in capsys.readouterr().out
    monkeypatch.undo()
    assert soak.main(["--evidence", str(path), "--at-least", "1"]) == 0
    assert soak.load(path)["disagreements"][0]["resolved"]


@pytest.mark.parametrize("text", ["no json", "{}", '{"campaign": "another"}', "[1]"])
def test_other_evidence_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the file, exit code 2, and the file stays as it is."""
    path = tmp_path / "smt.json"
    path.write_text(text)
    assert soak.main(["--evidence", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert path.read_text() == text


def test_a_seed_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk counts every design once, and no disagreement is open on its first seeds."""
    monkeypatch.setattr(soak, "CHUNK", 5)
    got = soak.chunk(soak.FIRST)
    assert sum(got["count"].values()) == 5 and got["wrong"] == []
