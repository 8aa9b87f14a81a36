"""Plans for readers: a table of placements against depths, the minimal ones, and those that nothing saves."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from fencepost.model.answer import REFUTED, Answer
from fencepost.parameters import spelled
from fencepost.plan import Combination, Plan

if TYPE_CHECKING:
    from rich.console import Console

ALL_ROWS = 16
"""Up to so many placements each is a row; beyond only those that are minimal somewhere."""


Row = tuple[frozenset[str], tuple[tuple[str, Any], ...]]
"""Waits that are kept, and the settings that belong to the row."""


def name_of(row: Row, plan: Plan) -> str:
    """The waits that are kept, and the row's other settings."""
    kept, choice = row
    waits = " + ".join(wait for wait in plan.waits if wait in kept) or ("no wait" if plan.waits else "")
    return "  ".join(part for part in (waits, spelled(dict(choice))) if part) or "as it is"


def cell(combination: Combination, plan: Plan, letters: dict[str, str] | None = None) -> str:
    """The verdict, with the margin of a proof or the hazards of a refutation; with `letters` these stand for their names."""
    answer = combination.answer
    if answer is None:
        return "error"
    if answer.stops and answer.verdict != REFUTED:
        return f"hangs: {_stops(answer)[0]}"
    if combination.proved:
        margin = plan.margin(combination.rest, combination.kept)
        star = "*" if plan.waits and combination.kept in plan.minimal[combination.rest] else ""
        return f"proved{star}" + ("" if margin is None else f", margin {margin}")
    if answer.verdict == REFUTED:
        names = list(dict.fromkeys(hazard.name for hazard in answer.hazards))
        if letters is None:
            return "; ".join(names)
        return "refuted: " + ", ".join(sorted(letters.setdefault(name, _letter(len(letters))) for name in names))
    return answer.verdict


def _letter(number: int) -> str:
    """a, b, ... z, aa, ab, ..."""
    return (chr(96 + number // 26) if number >= 26 else "") + chr(97 + number % 26)


def rows_of(plan: Plan) -> list[Row]:
    """The placements that the table shows."""
    rows = list(dict.fromkeys((kept, plan.split(setting)[0]) for kept, setting in plan.table))
    rows.sort(key=lambda row: (len(row[0]), [wait not in row[0] for wait in plan.waits]))
    if len(rows) <= ALL_ROWS:
        return rows
    useful = {(kept, plan.split(setting)[0]) for setting, sets in plan.minimal.items() for kept in sets}
    return [row for row in rows if row in useful]


def columns_of(plan: Plan) -> list[Any]:
    """The values of the axis; one None without an axis."""
    return list(dict.fromkeys(plan.split(setting)[1] for setting in plan.settings))


def at(plan: Plan, row: Row, column: Any) -> Combination:
    """The combination of a row and a column."""
    kept, choice = row
    setting = next(s for s in plan.settings if plan.split(s) == (choice, column))
    return plan.table[kept, setting]


def notes(plan: Plan) -> list[tuple[str, str]]:
    """(heading, sentence): minimal placements, implications, what is lost, memory."""
    found: list[tuple[str, str]] = []
    for column in columns_of(plan):
        safe = [
            name_of((kept, plan.split(setting)[0]), plan)
            for setting, sets in plan.minimal.items()
            if plan.split(setting)[1] == column
            for kept in sets
        ]
        where = f"{plan.axis}={column}: " if plan.axis is not None else ""
        few = ", or ".join(safe[:4]) + (f", and {len(safe) - 4} more" if len(safe) > 4 else "")
        cells = [c for (_, setting), c in plan.table.items() if plan.split(setting)[1] == column]
        if not few and all(c.answer is None for c in cells):
            continue  # no design
        none = "no placement is safe" if all(c.known for c in cells if c.answer is not None) else "no placement is known to be safe"
        unknown = few and not all(c.known for c in cells if c.answer is not None)
        found.append(("minimal", where + (few or none) + (", of those that are decided" if unknown else "")))
    for a, b in plan.implies:
        found.append(("implies", f"{a} implies {b}: beside {a} it changes nothing"))
    if plan.axis is not None:
        for row in plan.lost[:6]:
            answers = [at(plan, row, column).answer for column in columns_of(plan)]
            told = [answer for answer in answers if answer is not None]
            names = dict.fromkeys(name for one in told for name in (*(h.name for h in one.hazards), *_stops(one)))
            found.append(("lost", f"no {plan.axis} saves {name_of(row, plan)}: {'; '.join(names)}"))
        if len(plan.lost) > 6:
            found.append(("lost", f"and {len(plan.lost) - 6} more placements"))
    for wait, text in _costs(plan):
        found.append(("cost", f"{wait}: {text}"))
    costs: dict[str, int] = {}
    for setting, sets in plan.minimal.items():
        for extra in (plan.memory(setting, kept) for kept in sets):
            if extra is not None and plan.axis is not None:
                where = f"{plan.axis}={plan.split(setting)[1]}"
                costs[where] = min(costs.get(where, extra), extra)
    costs = {where: extra for where, extra in sorted(costs.items(), key=lambda one: one[1]) if extra}
    if costs:
        found.append(("memory", "more than the least: " + ", ".join(f"{w} +{n} bytes" for w, n in costs.items())))
    return found + undecided(plan)


def _stops(answer: Answer) -> list[str]:
    return [stop.partition(" - ")[0] for stop in answer.stops]


MOST_NAMED = 3
"""Combinations without a verdict that are named for each reason."""


def undecided(plan: Plan) -> list[tuple[str, str]]:
    """("unknown" or "error", why and for which combinations): each reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (kept, setting), combination in plan.table.items():
        row, column = plan.split(setting)
        axis = spelled({plan.axis: column}) if plan.axis is not None else ""
        label = name_of((kept, row), plan)
        where = " ".join(part for part in (label if plan.waits or row else "", axis) if part)
        if combination.answer is None:
            why = str(combination.outcome.error).strip().splitlines()[-1]
            reasons.setdefault(("error", re.sub(r" \[[^\[\]]*\]$", "", why)), []).append(where)  # the combination's own name
        elif not combination.known:
            reasons.setdefault((combination.answer.verdict, combination.answer.reason or ""), []).append(where)
    return [
        (
            heading,
            f"{why or 'no reason is given'}: {', '.join(one[:MOST_NAMED])}"
            + (f", and {len(one) - MOST_NAMED} more" if len(one) > MOST_NAMED else ""),
        )
        for (heading, why), one in reasons.items()
    ]  # fmt: skip


def _costs(plan: Plan) -> list[tuple[str, str]]:
    """The break-even of each wait in the first minimal placements that hold it."""
    found: dict[str, str] = {}
    asked: set[frozenset[str]] = set()
    for setting, sets in plan.minimal.items():
        for kept in sets:
            if kept and kept not in asked and len(asked) < 4:
                asked.add(kept)
                for wait, text in plan.break_even(setting, kept):
                    found.setdefault(wait, text)
    return list(found.items())


def write_plans(plans: Sequence[Plan], out: TextIO) -> None:
    """The plans as one table, each design under its own line, and the notes of each."""
    from fencepost.report.text import console_for
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = console_for(out)
    with console.capture() as captured:
        if len(plans) == 1:
            console.print(Text(_title(plans[0]), style="bold"))
        _write_table(plans, console)
        for plan in plans:
            if len(plans) > 1:
                console.print(Text(plan.target, style="bold"))
            listed = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
            listed.add_column(no_wrap=True, min_width=8)
            listed.add_column(overflow="fold")
            for heading, sentence in notes(plan):
                listed.add_row(heading, Text(sentence))
            console.print(Padding(listed, (0, 0, 0, 2), expand=False))
    out.writelines(line.rstrip(" ") + "\n" for line in captured.get().splitlines())


GAP = 3
"""Columns of blanks between two columns of the table."""


def _write_table(plans: Sequence[Plan], console: Console) -> None:
    """One table of all plans; where the names of hazards do not fit, letters stand for them, and a list says which."""
    from rich.text import Text

    axes = {plan.axis for plan in plans if plan.axis is not None}
    axis = next(iter(axes)) if len(axes) == 1 else None
    columns: list[Any] = [None]
    if axis is not None:
        columns = list(dict.fromkeys(value for plan in plans if plan.axis is not None for value in columns_of(plan)))
    kept = "kept" if any(plan.waits for plan in plans) else "setting"
    if kept == "kept" and len(plans) > 1:
        kept += " (* no wait fewer is safe)"
    # The axis is named once where its name on every column would be folded.
    once = axis is not None and (len(axis) + 6) * len(columns) > console.width - 20
    heads = [f"{kept}; {axis}:" if once else kept]
    heads += ["verdict" if axis is None else str(column) if once else f"{axis}={column}" for column in columns]
    shift = 2 if len(plans) > 1 else 0
    room = console.width - 2
    letters: dict[str, str] = {}
    for short in (False, True):
        parts = [(plan, [_texts(plan, row, columns, axis, letters if short else None) for row in rows_of(plan)]) for plan in plans]
        lines = [texts for _, rows in parts for texts in rows]
        widths = [max(len(texts[k]) + (shift if k == 0 else 0) for texts in [heads, *lines]) for k in range(len(heads))]
        if sum(widths) + GAP * len(columns) <= room:
            break
    if sum(widths) + GAP * len(columns) > room:
        # Words are kept whole as far as that goes: no column is narrower than its longest one.
        words = [max(len(word) for texts in [heads, *lines] for word in [*texts[k].split(), ""]) for k in range(len(heads))]
        left = room - GAP * len(columns) - widths[0]
        fair = max(left // len(columns), 8)
        widths[1:] = [min(width, max(fair, word)) for width, word in zip(widths[1:], words[1:], strict=True)]
        widths[0] = min(widths[0], max(room - GAP * len(columns) - sum(widths[1:]), words[0] + shift, 12))
    console.print(Text("  " + _wrapped(heads, widths)[0], style="bold"))
    for line in _wrapped(heads, widths)[1:]:
        console.print(Text("  " + line, style="bold"))
    console.print(Text("  " + "\u2500" * min(room, sum(widths) + GAP * len(columns))))
    for plan, rows in parts:
        if len(plans) > 1:
            console.print(Text("  " + _title(plan).partition(": ")[0], style="bold"))
        for texts in rows:
            for line in _wrapped(texts, widths, shift):
                console.print(_coloured(line))
    for name, letter in letters.items():
        console.print(Text(f"  {letter}  {name}"))


def _texts(plan: Plan, row: Row, columns: list[Any], axis: str | None, letters: dict[str, str] | None) -> list[str]:
    """One row: its name, and a cell for each column."""
    cells = [cell(at(plan, row, value), plan, letters) for value in columns_of(plan)]
    if axis is None or plan.axis is None:
        # Without the shared axis each value of an axis of its own stands in one cell.
        one = ", ".join(f"{plan.axis}={v}: {c}" for v, c in zip(columns_of(plan), cells, strict=True)) if plan.axis else cells[0]
        return [name_of(row, plan), one, *[""] * (len(columns) - 1)]
    here = dict(zip(columns_of(plan), cells, strict=True))
    return [name_of(row, plan), *(here.get(column, "") for column in columns)]


def _wrapped(texts: Sequence[str], widths: Sequence[int], shift: int = 0) -> list[str]:
    """A row as lines: each cell in its column, broken between words."""
    import textwrap

    cells = [textwrap.wrap(text, max(1, width - (shift if k == 0 else 0)), break_on_hyphens=False) or [""]
             for k, (text, width) in enumerate(zip(texts, widths, strict=True))]  # fmt: skip
    lines = []
    for number in range(max(map(len, cells))):
        parts = [one[number] if number < len(one) else "" for one in cells]
        parts[0] = " " * shift + parts[0]
        lines.append((" " * GAP).join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return lines


def _title(plan: Plan) -> str:
    fixed = f" [{spelled(plan.fixed)}]" if plan.fixed else ""
    every = all(c.known for c in plan.table.values() if c.answer is not None)
    star = f"; * no wait fewer is {'' if every else 'known to be '}safe there" if plan.waits else ""
    return f"{plan.target}{fixed}: {len(plan.table)} combinations{star}"


def _coloured(line: str) -> Any:
    """A line of a row: proofs green, refutations red."""
    from rich.text import Text

    found = Text("  " + line)
    found.highlight_regex(r"proved\*?(, margin -?\d+)?", "green")
    found.highlight_regex(r"\b(refuted: [a-z, ]+|(WAR|RAW|WAW|UNDEFINED) \S+|hangs: .*)", "red")
    return found


def plans_to_json(plans: Sequence[Plan]) -> str:
    """The plans as one JSON document: `fencepost_plan` (version) and `designs`."""
    return json.dumps({"fencepost_plan": 1, "designs": [_one(plan) for plan in plans]}, indent=2)


def _one(plan: Plan) -> dict[str, Any]:
    def row(combination: Combination) -> dict[str, Any]:
        answer = combination.answer
        return {
            "waits": sorted(combination.kept),
            "parameters": dict(combination.rest),
            "verdict": None if answer is None else answer.verdict,
            "hazards": [] if answer is None else list(dict.fromkeys(h.name for h in answer.hazards)),
            "margin": plan.margin(combination.rest, combination.kept),
            "extra_bytes": plan.memory(combination.rest, combination.kept),
            "error": combination.outcome.error,
            "reason": answer.reason if answer is not None and not combination.known else None,
        }

    return {
        "design": plan.target,
        "fixed": plan.fixed,
        "break_even": dict(_costs(plan)),
        "combinations": [row(combination) for combination in plan.table.values()],
        "minimal": [
            {"parameters": dict(setting), "waits": [sorted(kept) for kept in sets]}
            for setting, sets in plan.minimal.items()
        ],
        "implies": [list(pair) for pair in plan.implies],
        "lost": [{"waits": sorted(kept), "parameters": dict(choice)} for kept, choice in plan.lost],
    }
