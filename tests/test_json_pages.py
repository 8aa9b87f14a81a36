"""The JSON of `waits`, `repair`, `plan` and `diff` has the fields that docs/waits.md names, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fencepost.cli import run

ROOT = Path(__file__).resolve().parent.parent
RING = "designs/ring.py::ring"
QUESTIONS = {
    "waits": [RING],
    "repair": [RING, "-k", "one buffer too few"],
    "plan": [RING, "--over", "depth=1..2,reader_after_event"],
    "diff": [RING, "--before", "depth=2", "--after", "depth=1"],
}
OWN = {"waits": ("synchronisations", "sufficient"), "repair": ("repairs",), "plan": ("combinations",), "diff": ("changes",)}
"""Lists of objects of the command's own."""


def documented(command: str) -> tuple[set[str], set[str]]:
    """Names in the second column of the command's rows, and all names in the third."""
    section = (ROOT / "docs" / "waits.md").read_text().partition("\n## JSON\n")[2].partition("\n## ")[0]
    fields: set[str] = set()
    inner: set[str] = set()
    current = ""
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 3 or cells[0] in ("command", "---"):
            continue
        current = cells[0].strip("`") or current
        if current == command:
            fields |= set(re.findall(r"`(\w+)`", cells[1]))
            inner |= set(re.findall(r"`(\w+)`", cells[2]))
    return fields, inner


@pytest.mark.parametrize("command", QUESTIONS)
def test_fields(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the document, and of the objects in its lists."""
    monkeypatch.chdir(ROOT)
    run([command, *QUESTIONS[command], "--format", "json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document[f"fencepost_{command}"] == 1
    fields, inner = documented(command)
    found: list[dict[str, Any]] = document["pairs" if command == "diff" else "designs"]
    assert found
    for one in found:
        assert set(one) == fields
        assert any(one[name] for name in OWN[command])
        for name in OWN[command]:
            assert {key for row in one[name] for key in row} <= inner
