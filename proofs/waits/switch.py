"""One compiled search of a location in which waits are switched off, for designs in which streams meet.

There an exploration is a few dozen states, and preparing an edited program costs more than exploring it. So the whole
design is compiled once, and once more without any edge that can be switched; an edit takes each node from one of the
two. Slices and visible steps are those of the whole design: without an edge fewer operations may matter, never more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.proofs.explore.compile import AskNode, DoNode, Unsupported
from fencepost.proofs.explore.fifo import QueueForm
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.memory import DROPS, FORKS
from fencepost.proofs.explore.search import Budget, OutOfBudget, Search, Straight
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.state import BIT, Beyond, State
from fencepost.proofs.waits.catalogue import BOUND, HOST, LOCK, STREAM, Sync, operation

SWITCHED = (HOST, STREAM, BOUND, LOCK)
"""Kinds whose edge goes away by another effect of the same node, and changes nothing else of the program."""


class Switch:
    """The search of one location, with some synchronisations switched off."""

    def __init__(self, whole: Setting, bare: Setting, syncs: list[Sync], location: Location) -> None:
        """`bare`: the setting of the program without any synchronisation that is switched, in the numbering of `whole`."""
        self.syncs = syncs
        self.search = Search(whole, location, proof=True)
        off = Search(bare, location, proof=True)
        if off.passed != self.search.passed:
            raise AssertionError("a search with waits switched off has to pass over what the whole design's passes over, and no more")
        self.used: set[int] = set()
        """The synchronisations that told the last search anything new."""
        self.beyond = ""
        """Why the last search is open, where it left out what lies beyond its bounds."""
        self.off: dict[int, list[tuple[int, int, DoNode | AskNode | None]]] = {}
        self._blocks: list[dict[int, Straight]] = [{} for _ in self.search.code]
        """Straight runs of nodes that no switch changes."""
        self._switched: list[set[int]] = [set() for _ in self.search.code]
        for k, sync in enumerate(syncs):
            if sync.kind not in SWITCHED:
                continue
            self.off[k] = [(t, i, off.code[t][i]) for t, i in sync.nodes]
            for t, i in sync.nodes:
                self._switched[t].add(i)
                node = self.search.code[t][i]
                if isinstance(node, DoNode):
                    effects = tuple(watched(self.search, effect, sync.kind, (t, i), k, self.used) for effect in node.effects)
                    self.search.code[t][i] = msgspec.structs.replace(node, effects=effects)

    def safe(self, gone: frozenset[int], forms: list[QueueForm], budget: Budget) -> bool:
        """Whether the location has no hazard at all without these; False also where the search does not end.

        `forms`: the normal forms of the queues of the edited program.
        """
        search = copy.copy(self.search)
        search.code = [row[:] for row in search.code]
        for k in gone:
            for t, i, node in self.off[k]:
                search.code[t][i] = node
        search.tests = [[node.ready if node is not None else None for node in row] for row in search.code]
        search.stops = [
            [test if stop is before else stop for stop, before, test in zip(*row, strict=True)]
            for row in zip(self.search.stops, self.search.tests, search.tests, strict=True)
        ]  # fmt: skip
        search.blocks = [row.copy() for row in self._blocks]
        search.merged = []
        search.forms = forms
        search.met.clear()
        self.used.clear()
        assert search.device is not None
        search.device.beyond = self.beyond = ""
        try:
            return not search.run(budget).hazards
        except Beyond as stop:
            self.beyond = str(stop)
            return False
        except (OutOfBudget, Unsupported):
            return False
        finally:
            for kept, now, switched in zip(self._blocks, search.blocks, self._switched, strict=True):
                for pc, straight in now.items():
                    if pc not in kept and straight[2] not in switched and switched.isdisjoint(straight[0][1]):
                        kept[pc] = straight


def watched(
    search: Search, effect: Callable[[State], Any], kind: str, at: tuple[int, int], number: int, used: set[int]
) -> Callable[[State], Any]:
    """The effect of a synchronisation, which enters its number in `used` when its edge tells anybody anything new.

    What pending work will be told is taken for new: whoever asks takes `used` for a guess there.
    """
    if getattr(effect, FORKS, False) or getattr(effect, DROPS, None) is not None:
        return effect  # of a copy: its accesses
    t = at[0]
    op = operation(search.program, at)
    if kind == BOUND:
        assert isinstance(op, p.Put)
        queue = search.layout.queue[op.queue]

        def put(s: State) -> Any:
            if s.queues[queue][1][0] & BIT and not s.tb[t]:
                used.add(number)
            return effect(s)

        return put
    if kind == STREAM:

        def order(s: State) -> Any:
            before = s.streams[:]
            pending = s.meet.pending[:] if s.meet is not None else None
            tails = s.meet.tails[:] if s.meet is not None else None
            result = effect(s)
            if s.streams != before or (s.meet is not None and (s.meet.tails != tails or s.meet.pending != pending)):
                used.add(number)
            return result

        return order

    def wait(s: State) -> Any:
        before = s.tb[t]
        result = effect(s)
        if s.tb[t] != before or (s.meet is not None and s.meet.inside[t]):
            used.add(number)
        return result

    return wait
