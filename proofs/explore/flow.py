"""Which locals may hold a reference to a location's bytes: where it is made, and along hand-overs."""

from __future__ import annotations

from typing import Any

from fencepost.model import program as p
from fencepost.proofs.explore.locations import Location, allocator, operations

Place = tuple[Any, ...]
"""("local", thread, local), ("queue", queue, tag, field) or ("cell", cell, field)."""


class Flow:
    """The hand-overs of references of one program, gathered once."""

    def __init__(self, program: p.Program) -> None:
        self.made: dict[tuple[Any, ...], set[Place]] = {}
        """Where references to a class of bytes come from: ("block", owner, process) | ("pool", pool, "") | ("memory", object, "")."""
        self.leads: dict[Place, set[Place]] = {}
        numbers = {id(thread): t for t, thread in enumerate(program.threads)}
        for thread, _, node in operations(program):
            t, o = numbers[id(thread)], node.operation
            if type(o) is p.Alloc:
                self.made.setdefault(("block", *allocator(o, thread)), set()).add(("local", t, o.local))
            elif type(o) is p.Take:
                self.made.setdefault(("pool", o.pool, ""), set()).add(("local", t, o.local))
            elif type(o) is p.View:
                self._moves(t, o.base, ("local", t, o.local))
            elif type(o) is p.Put:
                for k, value in enumerate(o.values):
                    self._moves(t, value, ("queue", o.queue, o.tag, k))
            elif type(o) is p.CellSet and type(o.cell) is not p.Local:
                for k, value in enumerate(o.values):
                    self._moves(t, value, ("cell", o.cell.id, k))
            elif type(o) is p.Get:
                for k, local in enumerate(o.locals):
                    self.leads.setdefault(("queue", o.queue, o.tag, k), set()).add(("local", t, local))
            elif type(o) is p.CellGet and type(o.cell) is not p.Local:
                for k, local in enumerate(o.locals):
                    self.leads.setdefault(("cell", o.cell.id, k), set()).add(("local", t, local))

    def _moves(self, t: int, value: p.Operand | p.Index, to: Place) -> None:
        if type(value) is p.Local:
            self.leads.setdefault(("local", t, value.id), set()).add(to)
        elif type(value) is p.Obj or type(value) is p.Slot:
            self.made.setdefault(("memory", value.id, ""), set()).add(to)

    def places(self, location: Location) -> frozenset[Place]:
        """Every place that may hold a reference to the location's bytes."""
        todo, seen = list(self.made.get((location.kind, location.id, location.process), ())), set()
        while todo:
            place = todo.pop()
            if place not in seen:
                seen.add(place)
                todo += self.leads.get(place, ())
        return frozenset(seen)

    def holders(self, location: Location) -> frozenset[tuple[int, int]]:
        """(thread, local) of every local that may refer to the location's bytes."""
        return frozenset((place[1], place[2]) for place in self.places(location) if place[0] == "local")
