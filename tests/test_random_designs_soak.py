"""The campaign's book-keeping: it goes on where it ended, and refuses evidence that is not its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import soak_random_designs as soak


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls of one chunk each are one campaign of two chunks."""
    monkeypatch.setattr(soak, "CHUNK", 4)
    path = tmp_path / "evidence.json"
    state = soak.load(path)
    for _ in range(2):
        first = state["next_seed"]
        soak.enter(state, first, soak.chunk(first), "abc")
        soak.save(path, state)
        state = soak.load(path)
    assert state["next_seed"] == soak.FIRST + 8
    assert state["designs"] + state["counts"].get("refused by the language", 0) == 8
    assert state["designs_by_sources"] == {"abc": state["designs"]}
    assert state["disagreements"] == []
    assert f"designs: {state['designs']}" in path.with_suffix(".md").read_text()


@pytest.mark.parametrize("text", ["no json", "{}", json.dumps({"generator": -1}), "[1]"])
def test_other_evidence_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the file, exit code 2, and the file stays as it is."""
    path = tmp_path / "evidence.json"
    path.write_text(text)
    assert soak.main(["--evidence", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert path.read_text() == text


def test_a_disagreement_is_shown_with_its_text(tmp_path: Path) -> None:
    """The page prints the design that reproduces it."""
    state = soak.empty()
    found = {"seed": 7, "what": "PROVED, but", "text": "def design(): ...", "world": None}
    result = {"designs": 1, "count": {"proved": 1}, "uses": {"copy": 1}, "tries": {}, "wrong": [found], "families": {"alone": 1}, "seconds": 0.5}
    soak.enter(state, soak.FIRST, result, "abc")
    page = soak.page(state)
    assert "Open: seed 7" in page and "def design(): ..." in page and "disagreements open: 1" in page
    assert soak.rate(state) == 2.0


def test_the_sources_are_known() -> None:
    """The same tree gives the same digits."""
    assert soak.sources() == soak.sources() and len(soak.sources()) == 10
