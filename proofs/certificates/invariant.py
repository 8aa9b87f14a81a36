"""The invariant of one class: for each control the minimal bit sets that reach it; a proof engine of its own.

A state is covered when its bits include one of the minimal sets of its control. There are no other normal forms:
states in which everybody carries the witness are followed like all others.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from fencepost.proofs.certificates.relation import Relation
from fencepost.proofs.certificates.world import TRUE, Check, Step


class TooLarge(Exception):
    """The budget ended; `args[0]` says where."""


class Limits:
    """How much a certificate may cost: stored bit sets and seconds, over all classes."""

    def __init__(self, sets: int = 200_000, seconds: float = 120.0) -> None:
        self.sets, self.seconds = sets, seconds
        self.used, self.started = 0, time.monotonic()

    def spend(self, where: str) -> None:
        """Count one stored set; raises `TooLarge`."""
        self.used += 1
        if self.used > self.sets:
            raise TooLarge(f"{self.sets} bit sets stored, last of {where}")
        if self.used % 64 == 0 and time.monotonic() - self.started > self.seconds:
            raise TooLarge(f"{self.seconds:g} s spent, {self.used} bit sets stored, last of {where}")


class Broken(NamedTuple):
    """A check that fails: the access that was chosen before, and the path from the start."""

    check: Check
    first: tuple[int, int, int] | None
    path: tuple[Step, ...]


Sets = dict[str, tuple[int, ...]]
"""Control -> its minimal bit sets, ascending."""


def image(update: tuple[int, ...], bits: int) -> int:
    """The bits after an edge."""
    result, position = TRUE, 2
    for mask in update:
        if mask & bits:
            result |= position
        position <<= 1
    return result


def fixpoint(relation: Relation, limits: Limits) -> Sets | Broken:
    """The least upward closed set that holds the start and is closed under the relation, or a hazard in it."""
    where = relation.cls.label(relation.program) if relation.cls is not None else "control"
    rows: dict[str, list[int]] = {relation.start: [TRUE]}
    came: dict[tuple[str, int], tuple[tuple[str, int], int] | None] = {(relation.start, TRUE): None}
    todo = deque([(relation.start, TRUE)])
    while todo:
        name, bits = todo.popleft()
        if bits not in rows[name]:
            continue
        for number, edge in enumerate(relation.edges(name)):
            for check in edge.checks:
                if not check.mask & bits:
                    return _broken(relation, came, (name, bits), number, check)
            after = image(edge.update, bits)
            row = rows.setdefault(edge.target, [])
            if any(other & after == other for other in row):
                continue
            row[:] = [other for other in row if after & other != after]
            row.append(after)
            came.setdefault((edge.target, after), ((name, bits), number))
            limits.spend(where)
            todo.append((edge.target, after))
    return {name: tuple(sorted(row)) for name, row in rows.items() if row}


def _broken(
    relation: Relation, came: dict[tuple[str, int], tuple[tuple[str, int], int] | None], at: tuple[str, int],
    number: int, check: Check,
) -> Broken:  # fmt: skip
    edges = [relation.edges(at[0])[number]]
    here: tuple[str, int] = at
    while (before := came[here]) is not None:
        here = before[0]
        edges.append(relation.edges(here[0])[before[1]])
    edges.reverse()
    chosen = [one for edge in edges for one in edge.chosen]
    return Broken(check, chosen[0] if chosen else None, tuple(step for edge in edges for step in edge.path))
