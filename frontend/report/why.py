"""One line of a design for readers: its sentences, and the run that goes wrong without it as lanes."""

from __future__ import annotations

from typing import TextIO

from fencepost.report.lanes import lanes
from fencepost.report.text import _lanes, console_for
from fencepost.why import Why
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


def write_why(found: Why, out: TextIO) -> None:
    """The answer about one design as text."""
    console = console_for(out)
    title = f" [{found.case.title}]" if found.case.title else ""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, min_width=8)
    table.add_column(overflow="fold")
    for heading, sentence in found.lines():
        table.add_row(heading, Text(sentence, style="bold" if heading == "here" else ""))
    with console.capture() as captured:
        console.print(Text(f"{found.case.design}{title}", style="bold"))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
        bad = found.bad_run()
        if bad is not None:
            program, answer = bad
            console.print("  a shortest run that goes wrong without it:")
            _lanes(lanes(program, answer), console)
    out.writelines(line.rstrip(" ") + "\n" for line in captured.get().splitlines())
