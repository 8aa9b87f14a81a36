"""Shortest walks of a periodic event graph, with polynomials as weights.

A walk x -> y of weight w says: the end of x in step n comes before the start of y in step n + w. Where it touches an
agent that is serial from step to step, it says so of every step from n + w on; otherwise (streams in rotation) only of
steps n + w + k * period. A shortest walk is a set of polynomials, as which one is least depends on the parameters.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fencepost.proofs.periodic.decide import OutOfTime, at_least, implied
from fencepost.proofs.periodic.graph import Graph, Node
from fencepost.proofs.periodic.symbols import ZERO, Fact, Poly, Refused

MOST_LABELS = 4_000


class Walk(NamedTuple):
    """Weights of the shortest walks: `serial` through a serial agent, `rotating` not; none: nothing orders the two."""

    serial: tuple[Poly, ...]
    rotating: tuple[Poly, ...]


NONE = Walk((), ())


class Signs:
    """What is known about the sign of polynomials in a region: cheaply from lower bounds, else by Z3, remembered."""

    def __init__(self, facts: list[Fact]) -> None:
        self.facts = facts
        self.low: dict[str, int] = {}
        for fact in facts:
            names = fact.poly.names()
            if fact.rel != "ne" and len(names) == 1 and len(fact.poly.terms) <= 2:
                (name,) = names
                if fact.poly.coefficient(name) == Poly.of(1):
                    bound = -fact.poly.put({name: 0}).at({})
                    self.low[name] = max(bound, self.low.get(name, bound))
        self.shift = {name: Poly.var(name) + low for name, low in self.low.items()}
        self.known: dict[Poly, bool] = {}

    def cheap(self, poly: Poly) -> bool:
        """Whether it is >= 0, seen from its coefficients alone."""
        moved = poly.put(self.shift)
        return all(c >= 0 for _, c in moved.terms) and moved.names() <= set(self.low)

    def nonnegative(self, poly: Poly) -> bool:
        """Whether it is >= 0 everywhere in the region; False also where that is not known."""
        if poly.constant is not None:
            return poly.constant >= 0
        if poly not in self.known:
            try:
                self.known[poly] = self.cheap(poly) or implied(self.facts, at_least(poly, ZERO))
            except OutOfTime:
                self.known[poly] = False
        return self.known[poly]


def walks(
    graph: Graph, source: Node, signs: Signs, ways: frozenset[int] | None = None
) -> dict[int, tuple[Walk, Walk]]:
    """Per node the shortest walks from `source`: any, and those that leave the loop of repetitions that source is in.

    `ways`: those through the turn that the step of `source` goes, where that is known.
    In a sure graph only walks count that exist from the first step on: no node is passed in a step before its first.
    """
    labels: dict[tuple[int, bool, bool], list[Poly]] = {}
    # A walk that comes back to where it was is no shorter, as every cycle has a weight of at least one; where it was is the
    # node and what it has touched so far. `passed` are these, as bits; the start may be the end of a walk from itself.
    start = (source.number, source.serial, source.loop is None)
    # What runs in some kinds of step only is passed in the step that is of the source's own kind.
    kind = graph.presence(source.op, source.op.member if ways is None else ways) if graph.sure and source.optional else {}
    work = deque([(*start, ZERO, 0)])
    total = 0
    while work:
        number, serial, outer, weight, passed = work.popleft()
        node = graph.nodes[number]
        if passed and weight not in labels.get((number, serial, outer), ()):
            continue  # overtaken meanwhile
        if passed and (number, serial, outer) == start:
            continue
        sides: list[tuple[int, Poly]] | None = None
        if passed and node.optional:
            steps, ways = kind.get(node.op.group, (ZERO, frozenset()))
            if ways and ways <= node.op.member and (weight == steps or (serial and signs.cheap(steps - weight))):
                weight = steps
            else:  # it is passed on the way to what runs in the same step and never without it
                sides = [(n, more) for n, more in graph.out[number] if more == ZERO and _never_without(graph, node, graph.nodes[n])]
        passed |= 1 << (4 * number + 2 * serial + outer)
        for target, more in graph.out[number] if sides is None else sides:
            to = graph.nodes[target]
            key = (target, serial or to.serial, outer or to.loop is None)
            if key != start and passed >> (4 * target + 2 * key[1] + key[2]) & 1:
                continue
            new = weight + more
            if graph.sure and not to.optional and not signs.nonnegative(new + source.start - to.start):
                continue
            mine = labels.setdefault(key, [])
            if any(signs.cheap(new - other) for other in mine):
                continue
            mine[:] = [other for other in mine if not signs.cheap(other - new)]
            mine.append(new)
            work.append((*key, new, passed))
            total += 1
            if total > MOST_LABELS:
                raise Refused("the shortest walks depend on the parameters in too many ways")
    found: dict[int, tuple[Walk, Walk]] = {}
    for number in range(len(graph.nodes)):
        of = [[tuple(labels.get((number, serial, outer), ())) for outer in (False, True)] for serial in (False, True)]
        if any(one for row in of for one in row):
            every = Walk(_least([*of[1][0], *of[1][1]], signs), (*of[0][0], *of[0][1]))
            found[number] = (every, Walk(_least(list(of[1][1]), signs), of[0][1]))
    return found


def _never_without(graph: Graph, one: Node, other: Node) -> bool:
    """Whether `one` runs in each step in which `other` does, as an operation that only some steps run."""
    if one.op is other.op:
        return True
    return other.optional and one.op.group == other.op.group and graph.plans[one.op.thread].whole and other.op.member <= one.op.member


def _least(weights: list[Poly], signs: Signs) -> tuple[Poly, ...]:
    kept: list[Poly] = []
    for weight in weights:
        if not any(signs.cheap(weight - other) for other in kept):
            kept = [other for other in kept if not signs.cheap(other - weight)] + [weight]
    return tuple(kept)
