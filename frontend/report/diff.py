"""A comparison for readers: terminal, JSON, Markdown (one comment on a pull request), annotations of a workflow run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import msgspec
from fencepost.check import Outcome
from fencepost.diff.compare import FINE, OPEN, WORSE, Pair
from fencepost.model.answer import Answer
from fencepost.report.github import annotation
from fencepost.report.summary import verdict_text
from fencepost.report.words import access_text, missing_edge

ANNOTATIONS = 10
"""GitHub shows so many annotations of each kind for a step; the rest are counted."""

_MARKS = {"went": "-", "came": "+", "moved": "~", "changed": "~"}


def write(
    found: Sequence[Pair], names: tuple[str, str], format: str, out: TextIO, seconds: float | None = None
) -> None:
    """Write the comparison to `out`; `names`: what the two sides are called."""
    if format == "json":
        out.write(to_json(found, names).decode() + "\n")
    elif format == "markdown":
        _markdown(found, names, out, seconds)
    else:
        if format == "github":
            _annotations(found, out)
        _text(found, names, out, seconds)


def to_json(found: Sequence[Pair], names: tuple[str, str]) -> bytes:
    """`{"fencepost_diff": 1, "before": ..., "after": ..., "pairs": [...]}` with both answers of every pair, explained as far as the text tells."""
    document = {"fencepost_diff": 1, "before": names[0], "after": names[1], "pairs": [_plain(pair) for pair in found]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def _plain(pair: Pair) -> dict[str, Any]:
    def answer(outcome: Outcome | None) -> Any:
        return None if outcome is None else outcome.answer

    return {
        "design": pair.design,
        "variant": pair.label,
        "judged": pair.judged,
        "because": pair.because,
        "changes": pair.changes,
        "lost": [{**msgspec.to_builtins(hazard), "name": hazard.name} for hazard in pair.lost],
        "passed": pair.passed,
        "accepts": pair.accepts,
        "rests": [{"object": name, "before": old, "after": new} for name, old, new in pair.rests],
        "rests_open": pair.rests_open,
        "cost": [{"what": what, "before": old, "after": new} for what, old, new in pair.cost],
        "cost_open": pair.cost_open,
        "before": answer(pair.before),
        "after": answer(pair.after),
    }


# ---------------------------------------------------------------- what all formats say


def verdict(outcome: Outcome | None) -> str:
    """The verdict of one side, "-" where it lacks the variant."""
    if outcome is None or outcome.answer is None:
        return "-"
    answer: Answer = outcome.answer
    names = ", ".join(dict.fromkeys(hazard.name for hazard in answer.hazards)) if answer.verdict == "refuted" else ""
    return verdict_text(answer) + (f" ({names})" if names else "")


def sentences(pair: Pair) -> Iterator[tuple[str, str]]:
    """(heading, sentence) for one pair: why it is judged so, what changed, which pair of accesses lost its order."""
    for text in pair.because:
        yield pair.judged, text
    for change in pair.changes:
        thread = f"{change.thread}: " if change.thread else ""
        place = change.after or change.before
        where = f" ({change.before} -> {change.after})" if change.kind == "moved" else f" ({place})" if place else ""
        yield change.kind, f"{_MARKS[change.kind]} {thread}{change.text}{where}"
    for hazard in pair.lost:
        yield "lost", f"{hazard.name}: {missing_edge(hazard, pair.after.program if pair.after else None)}"
        was = _protected(pair, hazard.object)
        if was:
            yield "was", f"ordered by {was}"
        for mark, access in (("[1]", hazard.first), ("[2]", hazard.second)):
            if access is not None:
                yield mark, access_text(access)
    for name, old, new in pair.rests:
        yield "rests on", f"{name}: {old}  ->  {new}"
    for row in pair.cost:
        yield "cost", cost_text(*row)
    for text in pair.passed:
        yield "passed", text
    if pair.after is not None and pair.after.answer is not None and pair.lost:
        for fix in pair.after.answer.fixes:
            yield "fix", fix


LONG = 90
"""From this length on a cost is abridged; JSON has it in full."""


def cost_text(what: str, before: str, after: str) -> str:
    """A change of cost in one sentence.

    >>> cost_text("copied.synchronize()", "free while forward >= copy", "-")
    'copied.synchronize(): free while forward >= copy  ->  -'
    """
    old, new = (text if len(text) <= LONG else text[: LONG - 4].rpartition(" ")[0] + " ..." for text in (before, after))
    return f"{what}: {old}  ->  {new}" if old != new else f"{what}: other conditions (fencepost cost has them)"


def _protected(pair: Pair, thing: str) -> str:
    """What protected an object before."""
    answer = pair.before.answer if pair.before is not None else None
    if answer is None:
        return ""
    return next((", ".join(p.by) for p in answer.protections if p.object == thing and p.by), "")


def closing(found: Sequence[Pair], seconds: float | None) -> str:
    """How many variants of which judgement."""
    counts = Counter(pair.judged for pair in found)
    words = {WORSE: "got worse", OPEN: "cannot be told", FINE: "not worse"}
    changed = sum(bool(pair.changes) for pair in found)
    text = f"{len(found)} variant{'' if len(found) == 1 else 's'}, {changed} changed: " + ", ".join(
        f"{counts[kind]} {words[kind]}" for kind in (WORSE, OPEN, FINE) if counts[kind]
    )
    accepted = dict.fromkeys(name for pair in found for name in pair.accepts)
    text += f"; accepted with this change: {', '.join(accepted)}" if accepted else ""
    return text + (f"; {seconds:.2f} s" if seconds is not None else "")


def _told(found: Sequence[Pair]) -> list[Pair]:
    """Pairs that are shown in full: the worse first, each set of changes once."""
    order = {WORSE: 0, OPEN: 1, FINE: 2}
    chosen: list[Pair] = []
    seen: set[Any] = set()
    for pair in sorted(found, key=lambda pair: order[pair.judged]):
        key = (pair.design, pair.judged, pair.changes, pair.because, tuple(h.name for h in pair.lost))
        if (pair.judged != FINE or pair.changes or pair.passed) and key not in seen:
            seen.add(key)
            chosen.append(pair)
    return chosen


# ---------------------------------------------------------------- formats


MOST_ROWS = 24
"""Variants up to which the table names those that are the same, too."""

LONG_NAME = 20
"""From this length on the sides are named above the table."""


def _text(found: Sequence[Pair], names: tuple[str, str], out: TextIO, seconds: float | None) -> None:
    from fencepost.report.text import console_for, sentence_table
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    styles = {WORSE: "bold red", OPEN: "yellow", FINE: ""}
    console = console_for(out)
    with console.capture() as captured:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        heads = names
        if max(map(len, names)) > LONG_NAME:  # a path would be broken in its column
            heads = ("before", "after")
            for head, name in zip(heads, names, strict=True):
                console.print(Text(f"{head:<7} {name}"))
            console.print()
        rows: list[tuple[tuple[str, str, str, str], str]] = []
        before = None
        shown = found if len(found) <= MOST_ROWS else [pair for pair in found if pair.changes or pair.judged != FINE]
        for pair in shown:
            if pair.design != before and pair.label:
                rows.append(((pair.design, "", "", ""), "bold"))
            before = pair.design
            judged = pair.judged if pair.changes or pair.judged != FINE else "same"
            sides = [verdict(side).replace(" (", "\n").replace(", ", "\n").rstrip(")") for side in (pair.before, pair.after)]
            name = f"  {pair.label}" if pair.label else pair.design
            rows.append(((name, sides[0], sides[1], judged), styles[pair.judged]))
        widths = [max(len(line) for row, _ in rows for line in row[k].split("\n")) if rows else 0 for k in range(4)]
        widths = [max(w, len(h)) for w, h in zip(widths, ("design and variant", *heads, "judged"), strict=True)]
        room = console.width - 3 * 3 - widths[3]
        if sum(widths[:3]) > room:  # the variants' labels take what the verdicts leave
            widths[1:3] = [min(w, room // 3) for w in widths[1:3]]
            widths[0] = room - sum(widths[1:3])
        for head, width in zip(("design and variant", *heads, "judged"), widths, strict=True):
            table.add_column(head, overflow="fold", width=width)
        for row, style in rows:
            first = row[0].replace("::", "::\n") if style == "bold" and len(row[0]) > widths[0] else row[0]
            cell = Text(first.strip(), "bold" if style == "bold" else "")
            table.add_row(Padding(cell, (0, 0, 0, 2)) if first.startswith("  ") else cell, *map(Text, row[1:3]), Text(row[3], style))
        if rows:
            console.print(table)
        if len(shown) < len(found):
            console.print(Text(f"{'' if not rows else 'and '}{len(found) - len(shown)} variants that are the same on both sides"))
        for pair in _told(found):
            console.print()
            label = f" [{pair.label}]" if pair.label else ""
            console.print(Text(f"{pair.design}{label}: {_headline(pair)}", style=styles[pair.judged] or "bold"))
            console.print(sentence_table(sentences(pair)))
        console.print()
        console.print(Text(closing(found, seconds)))
    out.writelines(line.rstrip(" ") + "\n" for line in captured.get().splitlines())


def _headline(pair: Pair) -> str:
    return f"{verdict(pair.before)} -> {verdict(pair.after)}"


def _markdown(found: Sequence[Pair], names: tuple[str, str], out: TextIO, seconds: float | None) -> None:
    from fencepost.report.markdown import cell, html

    judged = {pair.judged for pair in found}
    head = "a proof was lost" if WORSE in judged else "cannot be told" if OPEN in judged else "nothing got worse"
    head += ", and a hazard was accepted" if any(pair.accepts for pair in found) else ""
    out.write(f"### fencepost: {head}\n\n| design | variant | {cell(names[0])} | {cell(names[1])} | judged |\n")
    out.write("| --- | --- | --- | --- | --- |\n")
    shown = [pair for pair in found if pair.judged != FINE or pair.changes]
    for pair in shown:
        cells = (pair.design, pair.label, verdict(pair.before), verdict(pair.after), pair.judged)
        out.write("| " + " | ".join(cell(text) for text in cells) + " |\n")
    if len(shown) < len(found):
        out.write(f"\n{len(found) - len(shown)} variants are the same on both sides.\n")
    for pair in _told(found):
        label = f" [{pair.label}]" if pair.label else ""
        opened = " open" if pair.judged == WORSE else ""
        out.write(f"\n<details{opened}><summary>{html(pair.design + label)}: {html(_headline(pair))}</summary>\n\n")
        for heading, sentence in sentences(pair):
            out.write(f"- **{html(heading)}**: {html(sentence)}\n")
        out.write("\n</details>\n")
    out.write(f"\n{closing(found, seconds)}\n")


def _annotations(found: Sequence[Pair], out: TextIO) -> None:
    lines: dict[str, list[str]] = {"error": [], "warning": [], "notice": []}
    for pair in found:
        label = f" [{pair.label}]" if pair.label else ""
        title = f"fencepost: {pair.design}{label}"
        went = [c for c in pair.changes if c.kind in ("went", "moved") and c.synchronisation]
        gone = f" ({went[0].kind}: {went[0].text}, {went[0].before})" if went else ""
        for hazard in pair.lost:
            text = missing_edge(hazard, pair.after.program if pair.after else None)
            place = hazard.second.places[-1] if hazard.second.places else None
            lines["error"].append(annotation("error", place, f"{title}: {hazard.name}", text + gone))
        if pair.judged == WORSE and not pair.lost:
            lines["error"].append(annotation("error", None, title, "; ".join(pair.because)))
        if pair.judged == OPEN:
            lines["warning"].append(annotation("warning", None, title, "; ".join(pair.because)))
        for text in pair.passed:
            lines["notice"].append(annotation("notice", None, title, text))
    for kind, made in lines.items():
        unique = list(dict.fromkeys(made))
        kept = unique if len(unique) <= ANNOTATIONS else unique[: ANNOTATIONS - 1]
        out.writelines(kept)
        if len(kept) < len(unique):
            out.write(annotation(kind, None, "fencepost", f"and {len(unique) - len(kept)} more, in the log"))
