"""Answers as GitHub-flavoured Markdown, for a pull request or a job summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from fencepost.check import Outcome
from fencepost.report.summary import closing_line, hazard_lines, headline, in_full, remark_lines, table_row


def write_markdown(outcomes: Sequence[Outcome], out: TextIO, seconds: float | None = None) -> None:
    """The verdict table, a folded section for each answer that is given in full, the closing line."""
    out.write("| design | variant | verdict | declared | hazard, hang or reason | time |\n")
    out.write("| --- | --- | --- | --- | --- | ---: |\n")
    for outcome in outcomes:
        row = table_row(outcome)
        cells = (row.design, row.variant, row.verdict, row.declared, row.because, row.time)
        out.write("| " + " | ".join(cell(text) for text in cells) + " |\n")
    for outcome in in_full(outcomes, verbose=False):
        assert outcome.answer is not None
        out.write(f"\n<details><summary>{html(headline(outcome))}</summary>\n\n")
        lines = [line for hazard in outcome.answer.hazards for line in hazard_lines(hazard, outcome)]
        lines += [
            ("protected", f"{p.object} by {', '.join(p.by) or '-'}; margin {'-' if p.margin is None else p.margin}")
            for p in outcome.answer.protections
        ]
        for heading, sentence in [*lines, *remark_lines(outcome)]:
            out.write(f"- **{html(heading)}**: {html(sentence)}\n" if heading else f"  - {html(sentence)}\n")
        out.write("\n</details>\n")
    out.write(f"\n{closing_line(outcomes, seconds)}\n")


def html(text: str) -> str:
    """Text that Markdown and HTML show as it is."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in ("*", "_", "`"):
        escaped = escaped.replace(mark, "\\" + mark)
    return escaped


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return html(text).replace("|", "\\|").replace("\n", " ")
