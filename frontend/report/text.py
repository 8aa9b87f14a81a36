"""Answers as text, for a terminal or a pipe. rich lays it out: COLUMNS and NO_COLOR honoured, no escapes in pipes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TextIO

from fencepost.check import OK, Outcome, code_of
from fencepost.model.answer import REFUTED
from fencepost.report.lanes import FIRST, SECOND, Lanes, Row, lanes
from fencepost.report.summary import closing_line, hazard_lines, headline, in_full, remark_lines, table_row
from fencepost.width import columns
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 120
"""Columns of a pipe that does not say how wide it is."""

NARROWEST_LANE = 16
"""Below this width lanes are printed as one list that names the lane in each line."""

_STYLES = {"proved": "green", "refuted": "red", "unknown": "yellow", "bounded": "yellow", "masked": "yellow"}


def console_for(out: TextIO) -> Console:
    """A console that writes plain text to a pipe and colours to a terminal (unless NO_COLOR is set)."""
    return Console(file=out, width=columns(PIPE_WIDTH, out), markup=False, emoji=False, highlight=False, soft_wrap=False)


def write_text(
    outcomes: Sequence[Outcome], out: TextIO, *, verbose: bool = False, seconds: float | None = None
) -> None:
    """The verdict table, then in full what `in_full` chooses, then one closing line."""
    console = console_for(out)
    plain = None if console.is_terminal else _plain_table(outcomes, console)
    out.writelines(plain or ())
    with console.capture() as captured:
        if plain is None:
            console.print(_table(outcomes))
        for outcome in in_full(outcomes, verbose):
            write_answer(outcome, console)
        console.print()
        console.print(Text(closing_line(outcomes, seconds)))
    # rich fills table rows up with blanks, which only get in the way of who reads a file or compares two.
    out.writelines(line.rstrip(" ") + "\n" for line in captured.get().splitlines())


HEADINGS = ("design and variant", "verdict", "declared", "hazard, hang or reason", "time")
DECLARED_WIDTH, BECAUSE_WIDTH = 24, 28
"""Most columns of what was declared, and of hazards, hangs and reasons."""


def _plain_table(outcomes: Sequence[Outcome], console: Console) -> list[str] | None:
    """The lines of the verdict table without colours, as rich draws it, only faster: it measures and frames each cell of
    each row. None where rich has to weigh the columns against each other, or a text is more than one line."""
    cells: list[tuple[str, ...]] = [HEADINGS]
    before = None
    for row in map(table_row, outcomes):
        if row.variant and row.design != before:
            cells.append((row.design, "", "", "", ""))
        before = row.design
        name = f"  {row.variant}" if row.variant else row.design
        cells.append((name, row.verdict, row.declared, row.because, row.time))
    if not all(text.isprintable() for line in cells for text in line):
        return None
    first, verdict, declared, because, time = (max(map(cell_len, column)) for column in zip(*cells, strict=True))
    declared, because = min(declared, DECLARED_WIDTH), min(because, BECAUSE_WIDTH)
    first = min(first, console.width - verdict - declared - because - time - 12)
    if first < max(declared, because):
        return None
    widths = (first, verdict, declared, because, time)
    lines: list[str] = []
    for line in cells:
        parts = [_wrapped(text, width, console) for text, width in zip(line, widths, strict=True)]
        for k in range(max(map(len, parts))):
            fields = [
                set_cell_size(part[k] if k < len(part) else "", width)
                for part, width in zip(parts, widths, strict=True)
            ]
            if k == 0:
                fields[-1] = line[-1].rjust(time)
            lines.append("   ".join(fields).rstrip() + "\n")
        if line is HEADINGS:
            lines.append("─" * (sum(widths) + 12) + "\n")
    return lines


def _wrapped(text: str, width: int, console: Console) -> list[str]:
    """The lines of a cell; what stands under a variant is indented like it."""
    if cell_len(text) <= width:
        return [text]
    indent = "  " if text.startswith("  ") else ""
    lines = Text(text[len(indent) :]).wrap(console, width - len(indent), overflow="fold")
    return [indent + line.plain for line in lines]


def _table(outcomes: Sequence[Outcome]) -> Table:
    rows = [table_row(outcome) for outcome in outcomes]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    # A design stands on a line of its own above its variants: their labels are sentences and need the room.
    table.add_column(HEADINGS[0], overflow="fold")
    table.add_column(HEADINGS[1], no_wrap=True)
    table.add_column(HEADINGS[2], overflow="fold", max_width=DECLARED_WIDTH)
    table.add_column(HEADINGS[3], overflow="fold", max_width=BECAUSE_WIDTH)
    table.add_column(HEADINGS[4], justify="right", no_wrap=True)
    before = None
    for row, outcome in zip(rows, outcomes, strict=True):
        style = _STYLES.get(outcome.answer.verdict, "") if outcome.answer is not None else "bold red"
        wrong = "bold red" if code_of(outcome) != OK and row.declared.startswith("DECLARED") else ""
        if row.variant and row.design != before:
            table.add_row(Text(row.design, style="bold"))
        before = row.design
        table.add_row(
            Padding(Text(row.variant), (0, 0, 0, 2)) if row.variant else Text(row.design),
            Text(row.verdict, style=style),
            Text(row.declared, style=wrong),
            Text(row.because),
            Text(row.time),
        )
    return table


def write_answer(outcome: Outcome, console: Console) -> None:
    """One answer in full: a refutation's hazards and lanes, a proof's protections, then the remarks."""
    answer = outcome.answer
    assert answer is not None
    console.print()
    console.print(Text(headline(outcome), style=f"bold {_STYLES.get(answer.verdict, '')}"))
    for hazard in answer.hazards:
        console.print(sentence_table(hazard_lines(hazard, outcome)))
    if answer.verdict == REFUTED and answer.run is not None and outcome.program is not None:
        _lanes(lanes(outcome.program, answer), console)
    if answer.protections:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("object", "protected by", "margin"):
            table.add_column(name, overflow="fold")
        for protection in answer.protections:
            margin = "-" if protection.margin is None else str(protection.margin)
            table.add_row(Text(protection.object), Text(", ".join(protection.by) or "-"), Text(margin))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
    console.print(sentence_table(remark_lines(outcome)))


def sentence_table(lines: Iterable[tuple[str, str]]) -> Padding:
    """(heading, sentence) pairs as two columns."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, min_width=11)
    table.add_column(overflow="fold")
    for heading, sentence in lines:
        table.add_row(Text(heading), Text(sentence))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _lanes(drawn: Lanes, console: Console) -> None:
    columns = drawn.threads + [name for name in drawn.streams if name not in drawn.threads]
    wide = (console.width - 8) // max(1, len(columns)) >= NARROWEST_LANE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("step", justify="right", no_wrap=True)
    if wide:
        for name in columns:
            kind = "stream" if name in drawn.streams else "thread"
            table.add_column(Text(f"{kind} {name}"), overflow="fold")
    else:
        table.add_column("lane", overflow="fold", max_width=NARROWEST_LANE)
        table.add_column("what it does", overflow="fold")
    for row in drawn.rows:
        _lane_row(table, row, columns, wide)
    console.print(Padding(table, (1, 0, 1, 2), expand=False))


def _lane_row(table: Table, row: Row, columns: list[str], wide: bool) -> None:
    step = "" if row.turn is None else str(row.turn)
    if row.folded:
        text = f"... {row.folded} more"
        table.add_row("...", *([text] + [""] * (len(columns) - 1) if wide else ["", text]))
    elif wide:
        table.add_row(step, *[_cell(row.cells.get(name, "")) for name in columns])
    else:
        for name in columns:
            if row.cells.get(name, "").rstrip() not in ("", "->"):
                table.add_row(step, Text(name), _cell(row.cells[name]))
                step = ""


def _cell(text: str) -> RenderableType:
    return _Code(text, "bold red" if text.startswith((FIRST, SECOND)) else "")


_PIECES = re.compile(r"\.?[^\s(\[.,]*(?:\(\)|[\s(\[,])*")
"""Text of a program falls apart before a dot and behind a blank, an opening bracket or a comma."""


class _Code:
    """An operation in a lane: broken where a reader would break it, not within a word, and indented from the second line on."""

    def __init__(self, text: str, style: str) -> None:
        self.text, self.style = text, style

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = max(map(cell_len, _PIECES.findall(self.text)), default=0)
        return Measurement(min(widest + 2, options.max_width), min(cell_len(self.text), options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [""]
        for piece in _PIECES.findall(self.text):
            # Within a name only where the whole line is too short for it.
            whole = cell_len("  " + piece.rstrip()) <= options.max_width
            for part in [piece] if whole else re.findall(r"[^_]*_?", piece):
                if lines[-1].strip() and cell_len(lines[-1] + part.rstrip()) > options.max_width:
                    lines.append("  ")
                lines[-1] += part
        for line in lines:
            yield Text(line.rstrip(), style=self.style, overflow="fold")
