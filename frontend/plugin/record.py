"""What a test decided, kept where people look: report sections, JUnit properties, JSON files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fencepost.assertions import Inconclusive, VerdictError, report
from fencepost.check import Outcome
from fencepost.model.answer import REFUTED, answers_to_json
from fencepost.plugin import options
from fencepost.plugin.summary import VERDICT


def record(
    item: pytest.Item, call: pytest.CallInfo[None], test_report: Any, decided: Sequence[Outcome], folder: Path | None
) -> None:
    """Attach the answers to the report of a test, and make an inconclusive one a skip where that was asked for."""
    raised = call.excinfo.value if call.excinfo is not None else None
    for outcome in decided:
        answer = outcome.answer
        assert answer is not None
        title = f" [{outcome.case.title}]" if outcome.case.title else ""
        properties = [(VERDICT, f"{answer.verdict} {answer.design}{title}")]
        properties += [("fencepost.hazard", hazard.name) for hazard in answer.hazards]
        properties += [("fencepost.hang", hang) for hang in (*answer.hangs, *answer.progress)]
        item.user_properties.extend(properties)
        # A collected variant that is refuted as declared shows its lanes too, where reports of passed tests are read.
        shown = isinstance(raised, VerdictError) and outcome in raised.outcomes
        if answer.verdict == REFUTED and not shown:
            test_report.sections.append((f"fencepost: {answer.design}{title}", report(outcome)))
    test_report.user_properties = list(item.user_properties)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        answers = [outcome.answer for outcome in decided if outcome.answer is not None]
        (folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', item.nodeid)}.json").write_bytes(answers_to_json(answers))
    marker = item.get_closest_marker("fencepost")
    if isinstance(raised, Inconclusive) and options.inconclusive(item.config, marker) == "skip":
        path, line, _ = item.reportinfo()
        test_report.outcome = "skipped"
        test_report.longrepr = (str(path), (line or 0) + 1, f"inconclusive: {str(raised).partition(chr(10))[0]}")
