"""Repairs for readers: sets of additions, cheapest first, each with its places and its proof."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TextIO

import msgspec
from fencepost.check import Case
from fencepost.proofs.waits.repair import Repairs
from fencepost.report.waits import overtaking


class Declared(msgspec.Struct, frozen=True):
    """The variant that a design declares as the fix of another one, and what is different there, in words."""

    label: str
    parameters: dict[str, Any]
    changes: tuple[str, ...]


MOST_CHANGES = 8
"""Changes of a declared fix that are listed as text."""


def write_repairs(case: Case, found: Repairs, out: TextIO, declared: Declared | None = None) -> None:
    """The repairs of one design as text; where there is none, why, and what the fix is that it declares."""
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
            for text in _nothing(found, declared):
                console.print(Padding(Text(text), (0, 0, 0, 2 if text[0] != "-" else 4)))
        console.print(Padding(Text(f"{found.tried} edits decided in {found.seconds:.1f} s"), (0, 0, 0, 2)))
    out.writelines(line.rstrip(" ") + "\n" for line in captured.get().splitlines())


def _nothing(found: Repairs, declared: Declared | None) -> list[str]:
    """Why no set was found, and of what kind the declared fix is."""
    lines = ["no set of additions was found and proved; see `fencepost check` for the run"]
    reasons: dict[str, list[str]] = {}
    for family, why in found.short:
        reasons.setdefault(why, []).append(family)
    lines += [f"not enough, with all that is offered beside it: {', '.join(families)}: {why}" for why, families in reasons.items()]
    if not found.short and not found.open:
        lines.append("nothing that the platform offers as an addition fits these two accesses")
    if declared is not None:
        lines.append(f"the design declares as its fix {declared.label!r}: the text changes, not a synchronisation alone")
        lines += [f"- {one}" for one in declared.changes[:MOST_CHANGES]]
        if len(declared.changes) > MOST_CHANGES:
            lines.append(f"- and {len(declared.changes) - MOST_CHANGES} more: see `fencepost diff`")
    return lines


def repairs_to_json(answers: Sequence[tuple[Case, Repairs, Declared | None]]) -> str:
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
                    "not_enough": [{"family": family, "why": why} for family, why in found.short],
                    "declared_fix": None if declared is None else msgspec.to_builtins(declared),
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
                for case, found, declared in answers
            ],
        },
        indent=2,
    )
