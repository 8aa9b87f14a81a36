"""A condition for readers: the inequality, where it holds, what orders the accesses, how it was proved, the grid."""

from __future__ import annotations

import json
import textwrap
from typing import Any, TextIO

from fencepost.condition import Point, Result
from fencepost.parameters import spelled as spelled_parameters
from fencepost.proofs.periodic.conditions import EXACT, OPEN, Condition, Part
from fencepost.proofs.periodic.decide import All, Formula, spelled, spelled_poly
from fencepost.proofs.periodic.pairs import Pair
from fencepost.proofs.periodic.symbols import Poly

TRUSTED = (
    "trusted: the tracing of the design's body, the platform's rules (docs/semantics.md), the theorem that a periodic "
    "event graph orders what its walks order, Z3"
)


def domain_text(formula: Formula, names: tuple[str, ...]) -> str:
    """Where it holds, the bounds in the order of the names."""
    parts = formula.parts if isinstance(formula, All) else (formula,)
    texts = [spelled(part, names) for part in parts]
    order = {name: i for i, name in enumerate(names)}
    joined = len(parts) > 1 or not isinstance(formula, All)
    return ", ".join(sorted(texts, key=lambda text: order.get(text.split()[0], 99))) if joined else texts[0] if texts else "values"


def headline(found: Condition) -> list[str]:
    """The condition in one line, or what is known of it in two."""
    safe, most = spelled(found.safe, found.names), spelled(found.most, found.names)
    if found.verdict == "exact":
        if safe == "never":
            return ["never safe: no value of the parameters helps"]
        return ["always safe" if safe == "always" else f"safe iff  {safe}"]
    if not found.parts:
        return ["unknown"]
    if safe == "never" and most == "always":
        return ["unknown: neither proved nor refuted for any value"]
    lines = ["unknown: proof and refutation do not meet"]
    lines.append("  proved safe for no value" if safe == "never" else f"  proved safe if  {safe}")
    if most != "always":
        lines.append(f"  a hazard unless {most}" if most != "never" else "  a hazard for every value")
    return lines


def why_lines(found: Condition) -> list[str]:
    """Per memory what orders its accesses, at the distance from which on it does, in the first region."""
    part = next((part for part in found.parts if part.kind in (EXACT, OPEN)), None)
    if part is None:
        return []
    pairs = [pair for pair in part.pairs if "w" in (pair.x.mode, pair.y.mode)]
    for strategy in part.strategies:
        pairs += [pair for pair in strategy.pairs if pair.unbounded]
    lines: dict[str, None] = {}
    for pair in pairs:
        for first, second, walk in ((pair.x, pair.y, pair.there), (pair.y, pair.x, pair.back)):
            if first.mode == "r" and second.mode == "w" and (first.node.label, first.node.number) != (second.node.label, 0):
                text = _distance(pair, walk.serial, walk.rotating, found.names)
                if text is not None:
                    lines.setdefault(f"{pair.memory}: {first.node.label!r} of step n is over before {second.node.label!r} of {text}")
    return list(lines)


def _distance(pair: Pair, serial: tuple[Poly, ...], rotating: tuple[Poly, ...], names: tuple[str, ...]) -> str | None:
    if pair.lifetime is not None:
        return None
    ways = []
    for w in serial:
        if w.constant is not None and w.constant <= 0:
            return None
        ways.append(f"step n + {_in_sum(spelled_poly(w, names))} and later")
    if rotating and pair.x.node.period is not None:
        ways.append(f"every {spelled_poly(pair.x.node.period, names)}-th step after it")
    return " (or: ".join(ways) + ")" * (len(ways) - 1) if ways else "no step: nothing waits for it"


def _in_sum(text: str) -> str:
    return text if " - " not in text else f"({text})"


def never_lines(found: Condition) -> list[str]:
    """Where no value is safe: the step kind and the two accesses that no wait orders."""
    lines: dict[str, None] = {}
    for part in found.parts:
        if part.kind not in (EXACT, OPEN) or spelled(part.most, found.names) != "never":
            continue
        for strategy in part.strategies:
            for pair in strategy.pairs:
                if pair.certain and pair.unbounded and pair.lifetime is None:
                    kind = f"in steps of the kind {strategy.name!r} " if strategy.name else ""
                    first, second = (pair.x, pair.y) if not pair.there.serial else (pair.y, pair.x)
                    lines.setdefault(
                        f"{kind}nothing waits for {first.node.label!r}, so {second.node.label!r} of a later step may overtake "
                        f"it on {pair.memory}"
                    )
    return list(lines)[:3]


def grid_line(points: tuple[Point, ...], seconds: float) -> str:
    """Agreement with the explorer in one line."""
    agree = sum(1 for point in points if point.agrees)
    differ = sum(1 for point in points if point.agrees is False)
    silent = len(points) - agree - differ
    names = list(points[0].values)
    spans = ", ".join(f"{n} {min(p.values[n] for p in points)}..{max(p.values[n] for p in points)}" for n in names)
    text = f"{agree} of {len(points)} values agree with the explorer ({spans}; {seconds:.1f} s)"
    if silent:
        alone = {verdict: sum(1 for p in points if p.agrees is None and p.verdict == verdict) for verdict in ("proved", "refuted")}
        text += f"; {silent} without an answer on one side"
        if any(alone.values()):
            text += f", of which the explorer alone has {alone['proved']} proved and {alone['refuted']} refuted"
    return text + (f"; {differ} DISAGREE" if differ else "")


def lines_of(result: Result) -> list[tuple[str, str]]:
    """The report as (label, text) pairs; a label of "" continues the one before."""
    found = result.condition
    rows: list[tuple[str, str]] = []
    if found.domain != All(()) or found.parts:
        rows.append(("for all", domain_text(found.domain, found.names)))
    for domain, safe, most in found.elsewhere:
        text = spelled(safe, found.names)
        said = {"never": "never safe", "always": "always safe"}.get(text, f"safe iff {text}")
        if safe != most:
            said = f"proved safe if {text}, a hazard unless {spelled(most, found.names)}"
        rows.append(("elsewhere", f"{domain_text(domain, found.names)}: {said}"))
    rows += [("elsewhere", note) for note in found.notes]
    rows += [("reason", reason) for reason in found.reasons]
    rows += [("why", line) for line in never_lines(found) or why_lines(found)[:6]]
    if result.least is not None:
        rows.append(("least", result.least))
    rows += [("margin", line) for line in result.margins]
    if found.parts:
        live = [part for part in found.parts if part.kind in (EXACT, OPEN)]
        rows.append(("proof", _method(live, found)))
    if result.grid:
        rows.append(("grid", grid_line(result.grid, result.grid_seconds)))
        if result.grid_left:
            rows.append(("grid", f"{result.grid_left} values of the grid were left out for want of time"))
        for point in result.grid:
            if point.agrees is False:
                rows.append(("", f"{spelled_parameters(dict(point.values))}: the condition says "
                                 f"{'safe' if point.safe else 'a hazard'}, the explorer {point.verdict}"))  # fmt: skip
        rows += [("grid", line) for line in _silent(result.grid)]
    rows += [("assumes", text) for text in (*result.assumptions, TRUSTED)]
    return rows


def _silent(points: tuple[Point, ...]) -> list[str]:
    reasons: dict[str, int] = {}
    for point in points:
        if point.agrees is None and point.reason:
            reasons[point.reason] = reasons.get(point.reason, 0) + 1
    return [f"the explorer leaves {count} open: {reason}" for reason, count in list(reasons.items())[:3]]


def _method(live: list[Part], found: Condition) -> str:
    nodes = sum(len(part.pairs) for part in live)
    kinds = sum(1 for part in live for one in part.strategies if one.refused is None)
    both = "the inequality implies that every conflict is ordered, its negation yields one that is not"
    if found.verdict != "exact":
        both = "what is proved implies that every conflict is ordered"
    return (
        f"periodic event graph; {len(live)} region{'s' if len(live) > 1 else ''} of the parameters with {nodes} conflicting "
        f"pair{'s' if nodes != 1 else ''} and {kinds} fixed way{'s' if kinds != 1 else ''} to choose; Z3: {both} "
        f"({found.seconds:.2f} s, {found.solver_seconds:.2f} s of it in Z3)"
    )


def write_text(result: Result, out: TextIO, width: int = 100) -> None:
    """The report for a terminal or a pipe."""
    title = f"{result.design} over {', '.join(result.names)}"
    if result.parameters:
        title += f", with {spelled_parameters(result.parameters)}"
    for line in [*textwrap.wrap(title, width), ""]:
        out.write(line + "\n")
    for line in headline(result.condition):
        out.write(textwrap.fill(line, width, initial_indent="  ", subsequent_indent="      ") + "\n")
    before = None
    for name, text in lines_of(result):
        shown = name if name != before else ""
        before = name or before
        out.write(textwrap.fill(text, width, initial_indent=f"  {shown:<10}", subsequent_indent=" " * 12) + "\n")


def as_json(result: Result) -> dict[str, Any]:
    """The result as data; docs/answers.md names the fields."""
    found = result.condition
    return {
        "design": result.design,
        "over": list(result.names),
        "parameters": result.parameters,
        "verdict": found.verdict,
        "domain": spelled(found.domain, found.names),
        "safe": spelled(found.safe, found.names),
        "not_refuted": spelled(found.most, found.names),
        "elsewhere": [
            {"domain": spelled(d, found.names), "safe": spelled(s, found.names), "not_refuted": spelled(m, found.names)}
            for d, s, m in found.elsewhere
        ],
        "reasons": list(found.reasons),
        "notes": list(found.notes),
        "why": never_lines(found) or why_lines(found),
        "least": result.least,
        "margins": list(result.margins),
        "grid": [
            {"values": p.values, "safe": p.safe, "explorer": p.verdict, "agrees": p.agrees} for p in result.grid
        ],
        "assumptions": [*result.assumptions, TRUSTED],
        "seconds": round(found.seconds, 4),
        "solver_seconds": round(found.solver_seconds, 4),
    }


def write_json(results: list[Result], out: TextIO) -> None:
    """`fencepost condition --format json`: an object with `fencepost_conditions` (version) and `conditions`."""
    json.dump({"fencepost_conditions": 1, "conditions": [as_json(one) for one in results]}, out, indent=2)
    out.write("\n")
