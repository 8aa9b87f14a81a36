"""The terminal summary, from what the tests' reports carry: light, because it runs at the end of every pytest run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

VERDICT = "fencepost.verdict"
"""Name of the property that carries `verdict design [variant]`; it travels with the test's report, also under xdist."""


def summary(stats: Mapping[str, Sequence[Any]]) -> list[str]:
    """Lines of the terminal summary: how many designs were decided in how many tests, and which stayed open."""
    verdicts: Counter[str] = Counter()
    tests = 0
    undecided: list[str] = []
    for reports in stats.values():
        for test_report in reports:
            if getattr(test_report, "when", None) != "call":
                continue
            found = [text for name, text in getattr(test_report, "user_properties", ()) if name == VERDICT]
            tests += bool(found)
            for text in found:
                verdict, _, design = text.partition(" ")
                verdicts[verdict] += 1
                if verdict == "unknown":
                    undecided.append(f"unknown: {design} ({test_report.nodeid})")
    if not verdicts:
        return []
    counts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))
    return [f"{sum(verdicts.values())} answers in {tests} tests: {counts}", *undecided]
