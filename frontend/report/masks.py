"""Masks for readers: which debug runs hide which hazards."""

from __future__ import annotations

from typing import TextIO

from fencepost.check import Case
from fencepost.model.answer import REFUTED, UNKNOWN
from fencepost.proofs.waits.masks import Mask, Masks


def sentence(mask: Mask, any_hazard: bool) -> str:
    """What a run of that kind says of the hazards."""
    if mask.verdict == UNKNOWN:
        return f"unknown: {mask.reason}"
    if not any_hazard:
        return "nothing to hide" if mask.verdict != REFUTED else f"shows {', '.join(mask.shown)}"
    if not mask.hidden:
        return f"can show {'it' if len(mask.shown) == 1 else 'all of them'}"
    if not mask.shown:
        return "HIDES all: no run there can show a hazard"
    return f"HIDES {', '.join(mask.hidden)}; can show {', '.join(mask.shown)}"


def write_masks(case: Case, found: Masks, out: TextIO) -> None:
    """The table of one design as text."""
    from fencepost.report.text import console_for
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = console_for(out)
    names = list(dict.fromkeys(hazard.name for hazard in found.bare.hazards))
    title = f" [{case.title}]" if case.title else ""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for mask in found.masks:
        style = "bold yellow" if mask.hidden else ""
        table.add_row(mask.name, Text(sentence(mask, bool(names)), style=style), Text(mask.about, style="dim"))
    with console.capture() as captured:
        console.print(Text(f"{case.design}{title}: {found.bare.verdict}" + (f", {'; '.join(names)}" if names else ""), style="bold"))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
    out.writelines(line.rstrip(" ") + "\n" for line in captured.get().splitlines())
