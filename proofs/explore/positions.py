"""Which positions of rings an exploration has to keep: those that choose a slot that matters to its location.

A cursor, a turn or an index that travels through a queue is part of a state's control, so one that nobody uses there
multiplies the states by its depth. An index matters where it chooses a slot of a stream, event or cell of a node that is
kept, or of the location's own ring; and wherever it is handed on to a place that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.model import program as p
from fencepost.model.effects import Effect
from fencepost.proofs.explore.flow import Place
from fencepost.proofs.explore.layout import Layout, walk
from fencepost.proofs.explore.locations import Location

Variable = tuple[str, int, int]
"""("turn", thread, depth) or ("cursor", cursor, 0): a position that moves by itself."""
Source = Any
"""A `Place` that holds an index, or a `Variable`."""


class Positions:
    """Where a program uses indices and where they come from, gathered once."""

    def __init__(self, program: p.Program, layout: Layout, lowered: Mapping[tuple[int, int], tuple[Effect, ...]]) -> None:
        self.layout = layout
        self.used: list[tuple[tuple[int, int], int | None, Source]] = []
        """(node, the memory whose slot is chosen or None for anything else, where the index comes from)."""
        self.parts: list[Source] = []
        """Where the indices of parts come from."""
        self.comes: dict[Place, set[Source]] = {}
        """For each place that may hold an index what may be stored there."""
        for t, thread in enumerate(program.threads):
            for i, node in enumerate(thread.nodes):
                if isinstance(node, p.Do):
                    for effect in lowered[t, i]:
                        self._node(program, t, i, effect)
                else:
                    self._node(program, t, i, node.question)

    def _node(self, program: p.Program, t: int, i: int, what: Effect | p.Question) -> None:
        for one in walk(what):
            if type(one) is p.Slot:
                memory = one.id if isinstance(program.objects[one.id], p.Memory) else None
                self._use((t, i), memory, self._source(t, one.index, self.layout.depth(one.id)))
            elif type(one) is p.At:
                source = self._source(t, one.index, 1)
                if source is not None:
                    self.parts.append(source)
        if type(what) is p.Advance:
            self._stored(("local", t, what.local), ("cursor", what.cursor, 0))
        elif type(what) is p.Get:
            for k, local in enumerate(what.locals):
                self._stored(("local", t, local), ("queue", what.queue, what.tag, k))
        elif type(what) is p.CellGet:
            for k, local in enumerate(what.locals):
                self._stored(("local", t, local), ("cell", what.cell.id, k))
        elif type(what) is p.Put or type(what) is p.CellSet:
            for k, value in enumerate(what.values):
                to = ("queue", what.queue, what.tag, k) if isinstance(what, p.Put) else ("cell", what.cell.id, k)
                if type(value) is p.Local:
                    self._stored(to, ("local", t, value.id))
                elif isinstance(value, (p.Turn, p.Var, p.Last)):
                    self._stored(to, self._source(t, value, self.layout.index_depth(t, value)))

    def _source(self, t: int, index: p.Index, depth: int) -> Source:
        if type(index) is p.Turn:
            return ("turn", t, depth)
        if type(index) is p.Var:
            return ("local", t, index.local)
        return ("cursor", index.cursor, 0) if type(index) is p.Last else None

    def _use(self, node: tuple[int, int], memory: int | None, source: Source) -> None:
        if source is not None:
            self.used.append((node, memory, source))

    def _stored(self, to: Place, source: Source) -> None:
        self.comes.setdefault(to, set()).add(source)

    def kept(self, location: Location | None, passed: list[set[int]]) -> frozenset[Source]:
        """The places and variables whose index matters; `passed`: the nodes that are passed over."""
        mine = location.id if location is not None and location.kind == "memory" else None
        todo = [
            source for (t, i), memory, source in self.used
            if i not in passed[t] and (memory is None or memory == mine)
        ]  # fmt: skip
        if location is not None and location.atom[:1] == ("index",):
            todo += self.parts
        return self._closed(todo)

    def _closed(self, todo: Iterable[Source]) -> frozenset[Source]:
        work, seen = list(todo), set()
        while work:
            source = work.pop()
            if source not in seen:
                seen.add(source)
                work += self.comes.get(source, ())
        return frozenset(seen)
