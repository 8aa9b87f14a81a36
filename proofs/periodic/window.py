"""Rings whose slots are taken in some kinds of step only: the most takes in any window of steps that nothing orders (theory: pools).

An access x of step k and one y of step k + e use the same slot iff the takes between theirs are a multiple of the depth.
So y cannot overtake x if the depth exceeds the most takes that lie between them in any run in which x is not ordered
before y. A step of kind p covers x for every y that is c(p) steps behind it, or more; so the steps between that are d
in front of y are of kinds with c(p) > d, each of which takes as often as its kind says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fencepost.proofs.periodic.graph import Graph, Node, Touch
from fencepost.proofs.periodic.symbols import ONE, ZERO, Poly, Refused, Region
from fencepost.proofs.periodic.walks import Signs, Walk, walks

MOST_WAYS = 8
"""Ways through a turn that are told apart."""


class Window(NamedTuple):
    """Most takes from x to a later y, and from y to a later x, that nothing orders; None: as many as one likes."""

    after: Poly | None
    before: Poly | None


Between = Callable[[Touch, Touch], tuple[Walk, Walk]]


def window(graph: Graph, signs: Signs, x: Touch, y: Touch, between: Between) -> Window:
    """Both directions for two accesses that take their slots by one cursor. Raises `Refused` where takes cannot be counted."""
    if x.taken is None or y.taken is None or x.taken.cursor != y.taken.cursor:
        raise Refused("a ring is indexed in two ways, of which one moves on in some kinds of step only")
    if len(x.taken.totals) > MOST_WAYS:
        raise Refused(f"a cursor moves on in some kinds of step only, of which there are more than {MOST_WAYS}")
    return Window(_most(graph, signs, x, y, between), _most(graph, signs, y, x, between))


def _most(graph: Graph, signs: Signs, x: Touch, y: Touch, between: Between) -> Poly | None:
    assert x.taken is not None and y.taken is not None
    region = graph.region
    alone = _least(region, between(x, y)[0].serial)
    covered = {way: _least(region, _covers(graph, signs, x, y.node, way, between)) for way in x.taken.totals}
    found = [ZERO]
    same = [y.taken.place[way] - at for way, at in x.taken.place.items() if y.taken.place.get(way, 0) > at]
    if same and (alone is None or region.decide(alone - 1)):
        found.append(Poly.of(max(same)))
    ends = [at for way, at in y.taken.place.items() if _at_least(region, covered[way], ONE)]
    if ends and _at_least(region, alone, Poly.of(2)):
        most = Poly.of(max(ends) + max(x.taken.totals[way] - at for way, at in x.taken.place.items()))
        nearest = ONE
        # The steps between, by their distance in front of y: as many takes as the kinds allow that cover nothing there.
        for takes, until in sorted(((x.taken.totals[way], covered[way]) for way in covered), key=lambda one: -one[0]):
            if takes == 0:
                break
            limits = [weight - less for weight, less in ((until, 1), (alone, 2)) if weight is not None]
            if not limits:
                return None
            last = _least_of(region, limits)
            if region.decide(last - nearest):
                most, nearest = most + (last - nearest + 1) * Poly.of(takes), last + 1
        found.append(most)
    return -_least_of(region, [-one for one in found])


def _covers(graph: Graph, signs: Signs, x: Touch, y: Node, way: int, between: Between) -> tuple[Poly, ...]:
    """Steps from a step of this kind, behind that of x, from which on y comes after x."""
    assert x.taken is not None
    found: list[Poly] = []
    for entry in graph.nodes:
        if not entry.optional or entry.op.group != x.taken.group or way not in entry.op.member or not entry.serial:
            continue
        reached = between(x, Touch(entry, None, None, None, ZERO, "r", None, False, ""))[0].serial
        if any(signs.nonnegative(ONE - weight) for weight in reached):
            onward = graph.walked.get((entry.number, way))
            if onward is None:
                onward = graph.walked[entry.number, way] = walks(graph, entry, signs, frozenset({way}))
            if y.number in onward:
                found += onward[y.number][0].serial
            if y.number == entry.number:
                found.append(ZERO)
    return tuple(found)


def _at_least(region: Region, weight: Poly | None, least: Poly) -> bool:
    """Whether the weight is so much; None: nothing orders the two at all."""
    return weight is None or region.decide(weight - least)


def _least(region: Region, weights: tuple[Poly, ...]) -> Poly | None:
    return _least_of(region, list(weights)) if weights else None


def _least_of(region: Region, weights: list[Poly]) -> Poly:
    """The least of the polynomials, which narrows the region to where it is."""
    least = weights[0]
    for other in weights[1:]:
        if other != least and region.decide(least - other):
            least = other
    return least
