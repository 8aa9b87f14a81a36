"""Answers for readers: a verdict table, a refutation on one screen, what a proof stands on.

Formats: text (terminal or pipe), json (docs/answers.md), markdown, github (annotations of a workflow run).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from fencepost.check import Outcome

FORMATS = ("text", "json", "markdown", "github")
"""What `--format` takes."""


def write(
    outcomes: Sequence[Outcome], format: str, out: TextIO, *, verbose: bool = False, seconds: float | None = None
) -> None:
    """Write the outcomes to `out`. `verbose`: every answer in full; `seconds`: wall time of the whole command."""
    if format == "json":
        from fencepost.model.answer import answers_to_json

        out.write(answers_to_json([o.answer for o in outcomes if o.answer is not None]).decode() + "\n")
    elif format == "markdown":
        from fencepost.report.markdown import write_markdown

        write_markdown(outcomes, out, seconds)
    else:
        if format == "github":
            from fencepost.report.github import write_annotations

            write_annotations(outcomes, out)
        from fencepost.report.text import write_text

        write_text(outcomes, out, verbose=verbose, seconds=seconds)
