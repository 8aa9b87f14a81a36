"""Repairs for readers: sets of additions, cheapest first, each with its places and its proof."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TextIO

from fencepost.check import Case
from fencepost.proofs.waits.repair import Repairs
from fencepost.report.waits import overtaking


def write_repairs(case: Case, found: Repairs, out: TextIO) -> None:
    """The repairs of one design as text."""
    from fencepost.report.text import console_for
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = console_for(out)
    names = list(dict.fromkeys(hazard.name for hazard in found.hazards))
    title = f" [{case.title}]" if case.title else ""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, repair in enumerate(found.repairs, 1):
        for k, addition in enumerate(repair.additions):
            head = Text(f"{addition.family}: ", style="bold" if k == 0 else "")
            head.append(addition.text, style="not bold")
            head.append(f"  {addition.place}", style="dim")
            table.add_row(f"{number}." if k == 0 else "and", head)
        if repair.spare:
            table.add_row("", f"  then the wait at {', '.join(repair.spare)} may go: this moves it")
        certificate = repair.answer.certificate
        proof = f"certificate {certificate.hash}, {certificate.states} states" if certificate is not None else ""
        table.add_row("", Text(f"  {repair.answer.verdict}: {proof}", style="green"))
    with console.capture() as captured:
        state = f"refuted, {'; '.join(names)}" if names else "no hazard, nothing to repair"
        console.print(Text(f"{case.design}{title}: {state}", style="bold"))
        if found.hazards:
            console.print(Padding(Text(overtaking(found.hazards[0])), (0, 0, 0, 2)))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
        for text in found.open:
            console.print(Padding(Text(f"open: {text}"), (0, 0, 0, 2)))
        if found.hazards and not found.repairs:
            text = "no set of additions was found and proved; see `fencepost check` for the run"
            console.print(Padding(Text(text), (0, 0, 0, 2)))
        console.print(Padding(Text(f"{found.tried} edits decided in {found.seconds:.1f} s"), (0, 0, 0, 2)))
    out.writelines(line.rstrip(" ") + "\n" for line in captured.get().splitlines())


def repairs_to_json(answers: Sequence[tuple[Case, Repairs]]) -> str:
    """The repairs as one JSON document: `fencepost_repair` (version) and `designs`."""
    return json.dumps(
        {
            "fencepost_repair": 1,
            "designs": [
                {
                    "design": case.design,
                    "variant": case.label,
                    "parameters": case.parameters,
                    "hazards": [hazard.name for hazard in found.hazards],
                    "open": list(found.open),
                    "repairs": [
                        {
                            "price": repair.price,
                            "additions": [
                                {"family": one.family, "text": one.text, "place": one.place} for one in repair.additions
                            ],
                            "may_go": list(repair.spare),
                            "verdict": repair.answer.verdict,
                            "certificate": repair.answer.certificate and repair.answer.certificate.hash,
                        }
                        for repair in found.repairs
                    ],
                }
                for case, found in answers
            ],
        },
        indent=2,
    )
