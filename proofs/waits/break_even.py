"""What a wait costs, from the periodic event graph: while which durations it is free, and what it adds otherwise."""

from __future__ import annotations

import graphlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

from fencepost.model import program as p
from fencepost.model.cost import Cost, WaitCost
from fencepost.model.platform import PLATFORMS, Platform
from fencepost.proofs.waits.catalogue import COPY, HOST, STREAM, Sync

if TYPE_CHECKING:
    from fencepost.proofs.periodic.cost import CostGraph

LONGEST = 220
"""Characters of a break-even that a table still shows; `fencepost cost` has the whole of it."""


MOST_OPERATIONS = 60
"""Operations that take time up to which break-evens are looked for: the number of cycles grows with them."""


MOST_CYCLES = 1_000
"""Cycles that can decide up to which break-evens are told; with more no condition is short enough to read."""

Entry = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]]
"""A node of the graph, those in front of it in the same step, and (those in earlier steps, by how many)."""

STEPS = 48
"""Steps that a graph runs; the second half tells the time per step."""


def _ways(condition: str) -> str:
    """The alternatives of a condition as far as a table has room for them, the shortest first; the others are counted."""
    ways = condition.split(" or ")
    shown = ways[:1]
    while len(shown) < len(ways) and len(" or ".join(ways[: len(shown) + 1])) <= LONGEST:
        shown = ways[: len(shown) + 1]
    left = len(ways) - len(shown)
    return " or ".join(shown) + (f" or one of {left} more" if left > 1 else " or one more" if left else "")


class BreakEven:
    """Break-even of the waits of one program, under the first way to fix its choices that is periodic; of waits that do not
    run then under the first one in which they do.

    `why` says why there is none; `timed` is the graph where only the conditions are missing, because they are too many.
    Needs networkx and z3 (the extra `prove`).
    """

    def __init__(self, program: p.Program, platform: Platform = PLATFORMS["cuda"]) -> None:
        self.cost: Cost | None = None
        self.timed: CostGraph | None = None
        self.why = ""
        self._orders: dict[tuple[tuple[int, int], ...], list[Entry] | None] = {}
        self._waits: dict[tuple[int, int], tuple[WaitCost, str]] = {}
        """The cost by node, and the choices under which that is so where they are not those of `cost`."""
        # Not imported yet: a design that is not periodic needs neither, and they take longer to load than it does to tell.
        if any(importlib.util.find_spec(name) is None for name in ("networkx", "z3")):
            self.why = "break-even costs need networkx and z3: pip install 'fencepost[prove]'"
            return
        from fencepost.proofs.periodic.conditions import strategies
        from fencepost.proofs.periodic.cost import CostGraph, _cost, _waits, plenty
        from fencepost.proofs.periodic.symbols import Refused, Region

        try:
            for answers, graph in strategies(program, Region({}), platform, timing=True):
                if isinstance(graph, str):
                    self.why = self.why or graph
                    continue
                if self.cost is not None and self._waits.keys() >= {(op.thread, op.node) for op in _waits(graph)}:
                    continue
                timed = CostGraph(graph, {})
                if len(timed.names) > MOST_OPERATIONS or plenty(timed, MOST_CYCLES):
                    if self.cost is not None:
                        continue
                    self.timed = timed
                    many = f"{MOST_OPERATIONS} operations take time" if len(timed.names) > MOST_OPERATIONS else f"{MOST_CYCLES} cycles can decide"
                    self.why = f"more than {many}; conditions over all of them are too long to tell"
                    break
                found = _cost(timed, answers)
                for one in found.waits:
                    self._waits.setdefault(one.at, (one, "" if self.cost is None else found.strategy))
                self.cost = self.cost or found
        except Refused as refused:
            self.why = str(refused)
        if self.cost is not None:
            self.why = ""

    def break_even(self, program: p.Program, without: p.Program, sync: Sync) -> str | None:
        """`free while A >= B, otherwise + C`; None where the graph has no such wait."""
        if self.cost is None or sync.kind not in (HOST, STREAM, COPY):
            return None
        known = next((self._waits[at] for at in sync.nodes if at in self._waits), None)
        if known is None:
            return None
        found, choices = known
        where = f"in steps with {choices}: " if choices else ""
        if not found.free_while:
            return f"{where}costs nothing: other waits allow no more without it"
        never = found.free_while[0] == "never"
        text = "never free" if never else f"free while {_ways(found.free_while[0])}"
        if found.otherwise:
            more = f", {'it adds' if never else 'otherwise +'} {found.otherwise[0]}"
            text += more if len(text + more) <= LONGEST else ""
        if len(found.free_while) > 1:
            text += f"; and {len(found.free_while) - 1} more condition{'s' if len(found.free_while) > 2 else ''}"
        return where + text

    def per_step(self, sync: Sync | None, duration: Callable[[int, bool, p.Operation], float]) -> float | None:
        """The time per step with given durations, without the waits of `sync`; None where the graph does not run.

        `duration` of (thread, whether it is the host's call and not the device's work, operation), in any unit.
        """
        assert self.timed is not None
        nodes = sync.nodes if sync is not None else ()
        if nodes not in self._orders:
            self._orders[nodes] = self._order(nodes)
        order = self._orders[nodes]
        if order is None:
            return None
        takes = self._takes(duration)
        each = [(n, same, others, takes.get(n, 0.0)) for n, same, others in order]
        ends: list[list[float]] = []
        for step in range(STEPS):
            row = [0.0] * len(self.timed.graph.nodes)
            for n, same, others, long in each:
                begin = 0.0
                for s in same:
                    if row[s] > begin:
                        begin = row[s]
                for s, w in others:
                    if w <= step and ends[step - w][s] > begin:
                        begin = ends[step - w][s]
                row[n] = begin + long
            ends.append(row)
        half = STEPS // 2
        return max((ends[-1][n] - ends[half - 1][n]) / half for n, _, _ in order) if order else None

    def _order(self, waits: tuple[tuple[int, int], ...]) -> list[Entry] | None:
        """The nodes of the graph without these waits, each with those in front of it in the same step and in earlier ones.

        None where the graph does not run.
        """
        assert self.timed is not None
        edges = self.timed.edges
        for at in waits:
            gone = self.timed.without(at)
            edges = {key: weight for key, weight in edges.items() if key in gone}
        before: dict[int, list[int]] = {}
        earlier: dict[int, list[tuple[int, int]]] = {}
        order: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
        for (source, target), weight in edges.items():
            if weight < 0:
                return None
            order.add(source)
            if weight == 0:
                order.add(target, source)
                before.setdefault(target, []).append(source)
            else:
                order.add(target)
                earlier.setdefault(target, []).append((source, weight))
        try:
            return [(n, tuple(before.get(n, ())), tuple(earlier.get(n, ()))) for n in order.static_order()]
        except graphlib.CycleError:
            return None

    def _takes(self, duration: Callable[[int, bool, p.Operation], float]) -> dict[int, float]:
        """Durations by node: of an operation's first host node its call, of its work what the device does."""
        assert self.timed is not None
        found: dict[int, float] = {}
        called: set[tuple[int, int]] = set()
        for node in self.timed.graph.nodes:
            op = node.op
            if node.agent[0] == "thread" and (op.thread, op.node) not in called:
                called.add((op.thread, op.node))
                found[node.number] = duration(op.thread, True, op.operation)
            elif node.agent[0] == "stream" and node.number in self.timed.names:
                found[node.number] = duration(op.thread, False, op.operation)
        return found
