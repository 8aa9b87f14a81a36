"""Change of cost between two states of a design: time per step, the cycles that can decide it, break-even of each wait."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

from fencepost.model.cost import Cost, Cycle, WaitCost
from fencepost.model.platform import Platform
from fencepost.model.program import Program

Row = tuple[str, str, str]
"""(what, before, after), as text; "-" where a side has none."""

Found = tuple[Cost | None, str]
"""A cost, or None and why there is none."""

MOST_COMPARED = 3
"""Changed variants of one comparison whose costs are looked at: a pair takes up to a second, a whole comparison 3."""

MOST_CYCLES = 3
"""Cycles of a side that a row lists; `fencepost cost` has all."""


def cost_of(program: Program, platform: Platform) -> Found:
    """The cost of one program, or of its steady turns, or why it has none."""
    import msgspec
    from fencepost.proofs.waits.catalogue import synchronisations
    from fencepost.wait_costs import cost_model

    found, of, _ = cost_model(program, platform, synchronisations(program, platform))
    if found.cost is None:
        return None, found.why or "nothing in the design is periodic"
    return (msgspec.structs.replace(found.cost, strategy=of) if of else found.cost), ""


def costs_of(pairs: Iterable[tuple[Program, Program]], platform: Platform) -> list[tuple[Found, Found | None]]:
    """The costs of both programs of each pair; of the second None where the first has no cost to compare with."""
    known: dict[object, Found] = {}

    def cost(program: Program) -> Found:
        if _key(program) not in known:
            known[_key(program)] = cost_of(program, platform)
        return known[_key(program)]

    return [(cost(before), cost(after) if cost(before)[0] is not None else None) for before, after in pairs]


class Costs:
    """Compares costs of pairs of programs, at most `most` different pairs; each program's cost is found once."""

    def __init__(self, platform: Platform, most: int = MOST_COMPARED) -> None:
        self.platform, self._most = platform, most
        self._costs: dict[object, Found] = {}
        self._pairs: dict[object, tuple[tuple[Row, ...], str]] = {}

    def wanted(self, pairs: Iterable[tuple[Program | None, Program | None]]) -> list[tuple[Program, Program]]:
        """The first pairs, each once: those whose costs are looked at."""
        found: dict[object, tuple[Program, Program]] = {}
        for before, after in pairs:
            if before is not None and after is not None and len(found) < self._most:
                found.setdefault((_key(before), _key(after)), (before, after))
        return list(found.values())

    def enter(self, pair: tuple[Program, Program], costs: tuple[Found, Found | None]) -> None:
        """Take over what `costs_of` found elsewhere."""
        for program, cost in zip(pair, costs, strict=True):
            if cost is not None:
                self._costs[_key(program)] = cost

    def change(self, before: Program, after: Program) -> tuple[tuple[Row, ...], str]:
        """(what changed, why nothing can be said). Empty and "" where both cost the same.

        A side has no cost where it is not periodic under fixed choices, or without the extra `prove`.
        """
        key = _key(before), _key(after)
        if key not in self._pairs:
            if len(self._pairs) >= self._most:
                return (), "not compared, other variants that changed were; fencepost cost tells"
            self._pairs[key] = self._change(before, after)
        return self._pairs[key]

    def _change(self, before: Program, after: Program) -> tuple[tuple[Row, ...], str]:
        sides = []
        for name, program in (("before", before), ("after", after)):
            cost, why = self._cost(program)
            if cost is None:
                return (), f"{name}: {why}"
            sides.append(cost)
        if sides[0].strategy != sides[1].strategy:
            return (), f"the choices differ: {sides[0].strategy or 'none'}; {sides[1].strategy or 'none'}"
        return tuple(rows(*sides)), ""

    def _cost(self, program: Program) -> Found:
        key = _key(program)
        if key not in self._costs:
            self._costs[key] = cost_of(program, self.platform)
        return self._costs[key]


def _key(program: Program) -> object:
    return program.objects, program.threads


def rows(before: Cost, after: Cost) -> list[Row]:
    """What differs: the time per step, the cycle that decides it (all that can, without durations), waits one by one."""
    from fencepost.report.cost import time_text

    found: list[Row] = []
    if before.step is not None and after.step is not None:
        if before.step != after.step:
            found.append(("time per step", time_text(before.step), time_text(after.step)))
        what, olds, news = "critical cycle", _texts(before.cycles[:1]), _texts(after.cycles[:1])
    else:
        what, olds, news = "cycles that can decide", _texts(before.cycles), _texts(after.cycles)
    if olds != news:
        found.append((what, _listed(olds - news), _listed(news - olds)))
    return found + _waits(before, after)


def _texts(cycles: Iterable[Cycle]) -> Counter[str]:
    """Cycles as terms, wherever they begin."""
    from fencepost.report.cost import cycle_text

    return Counter(
        cycle_text(Cycle(tuple(sorted(cycle.operations)), cycle.steps)) for cycle in cycles
    )


def _listed(texts: Counter[str]) -> str:
    kept = list(texts)[:MOST_CYCLES]
    more = len(texts) - len(kept)
    return (", ".join(kept) or "-") + (f" and {more} more" if more else "")


def _waits(before: Cost, after: Cost) -> list[Row]:
    """Waits of one name are paired in the order of the text, those that cost the same on both sides left out."""
    from fencepost.report.cost import time_text, wait_text

    def text(wait: WaitCost) -> str:
        figure = "" if wait.cost is None else f"costs {time_text(wait.cost)}; "
        return figure + wait_text(wait, sys.maxsize)

    sides: list[dict[str, Counter[str]]] = [{}, {}]
    for side, cost in zip(sides, (before, after), strict=True):
        for wait in cost.waits:
            side.setdefault(wait.wait, Counter())[text(wait)] += 1
    found: list[Row] = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        olds, news = (side.get(name, Counter()) for side in sides)
        gone, came = list((olds - news).elements()), list((news - olds).elements())
        for i in range(max(len(gone), len(came))):
            found.append((name, gone[i] if i < len(gone) else "-", came[i] if i < len(came) else "-"))
    return found
