"""What a wait costs, from the periodic event graph: while which durations it is free, and what it adds otherwise."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.cost import Cost, WaitCost
from fencepost.model.platform import PLATFORMS, Platform
from fencepost.proofs.waits.catalogue import COPY, HOST, STREAM, Sync

LONGEST = 220
"""Characters of a break-even that a table still shows; `fencepost cost` has the whole of it."""


MOST_OPERATIONS = 60
"""Operations that take time up to which break-evens are looked for: the number of cycles grows with them."""


class BreakEven:
    """Break-even of the waits of one program, under the first way to fix its choices that is periodic.

    `why` says why there is none. Needs networkx and z3 (the extra `prove`).
    """

    def __init__(self, program: p.Program, platform: Platform = PLATFORMS["cuda"]) -> None:
        self.cost: Cost | None = None
        self.why = ""
        self._waits: dict[tuple[int, int], WaitCost] = {}
        try:
            import networkx  # noqa: F401
            import z3  # noqa: F401
        except ImportError:
            self.why = "break-even costs need networkx and z3: pip install 'fencepost[prove]'"
            return
        from fencepost.proofs.periodic.conditions import strategies
        from fencepost.proofs.periodic.cost import CostGraph, _cost
        from fencepost.proofs.periodic.symbols import Refused, Region

        try:
            for answers, graph in strategies(program, Region({}), platform):
                if isinstance(graph, str):
                    self.why = self.why or graph
                    continue
                timed = CostGraph(graph, {})
                if len(timed.names) > MOST_OPERATIONS:
                    self.why = f"more than {MOST_OPERATIONS} operations take time; the cycles through them are too many to tell"
                    break
                self.cost = _cost(timed, answers)
                break
        except Refused as refused:
            self.why = str(refused)
        if self.cost is not None:
            self.why = ""
            self._waits = {one.at: one for one in self.cost.waits}

    def break_even(self, program: p.Program, without: p.Program, sync: Sync) -> str | None:
        """`free while A >= B, otherwise + C`; None where the graph has no such wait."""
        if self.cost is None or sync.kind not in (HOST, STREAM, COPY):
            return None
        found = next((self._waits[at] for at in sync.nodes if at in self._waits), None)
        if found is None:
            return None
        if not found.free_while:
            return "costs nothing: other waits allow no more without it"
        never = found.free_while[0] == "never"
        text = "never free" if never else f"free while {found.free_while[0]}"
        if found.otherwise:
            text += f", {'it adds' if never else 'otherwise +'} {found.otherwise[0]}"
        if len(found.free_while) > 1:
            text += f"; and {len(found.free_while) - 1} more condition{'s' if len(found.free_while) > 2 else ''}"
        return text if len(text) <= LONGEST else text[: LONGEST - 4].rpartition(" ")[0] + " ..."
