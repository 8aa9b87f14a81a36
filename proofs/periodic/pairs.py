"""Conflicting pairs of accesses: for which parameter values every conflict is ordered, as formulas and for Z3.

For accesses x, y of one ring of depth D in steps n and n + e the slots are equal iff index_y - index_x is a multiple
of D. `Pair.raw` says literally that a conflict is unordered for some e; `Pair.safe` is the closed form that a reader
sees. Neither is believed to follow from the other: conditions.py has Z3 prove that they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fencepost.model import program as p
from fencepost.proofs.periodic.decide import FALSE, TRUE, Formula, Multiple, at_least, both, either, term
from fencepost.proofs.periodic.graph import Graph, Touch, Where
from fencepost.proofs.periodic.symbols import ONE, ZERO, Poly, Refused, poly_of
from fencepost.proofs.periodic.walks import NONE, Signs, Walk, walks
from fencepost.proofs.periodic.window import Between, Window, window

FIXED = Where(ZERO, ZERO, None)


class Pair(NamedTuple):
    """Two accesses of one memory, at least one a write. `there`: what orders x before y, `back`: y before x."""

    memory: str
    x: Touch
    y: Touch
    depth: Poly
    there: Walk
    back: Walk
    inner: tuple[int | None, int | None]
    """Within a loop of repetitions: repetitions from x to y and from y to x after which one is ordered before the other."""
    counts: tuple[Poly | None, Poly | None]
    """How often x and y are repeated in a step."""
    safe: Formula
    lifetime: Poly | None = None
    """For blocks of an allocator: steps from the access x to the access y, of the next owner at the earliest."""
    one_owner: bool = False
    """For blocks: both accesses are of one owner, so that either may come first."""
    window: Window | None = None
    """For slots that are taken in some kinds of step only."""

    @property
    def label(self) -> str:
        """Who is to be ordered before whom."""
        return f"{self.x.node.label} ({self.x.mode}) and {self.y.node.label} ({self.y.mode}) on {self.memory}"

    @property
    def certain(self) -> bool:
        """Whether an unordered conflict surely changes what somebody reads."""
        return {self.x.mode, self.y.mode} == {"r", "w"} and not (self.x.same_bytes or self.y.same_bytes)

    @property
    def unbounded(self) -> bool:
        """Whether no distance at all orders the two in one of the directions."""
        return not (self.there.serial or self.there.rotating) or not (self.back.serial or self.back.rotating)


def pairs(graph: Graph, signs: Signs) -> list[Pair]:
    """All pairs of accesses that can conflict and that one agent does not order by itself."""
    by_memory: dict[int, list[Touch]] = {}
    for touch in graph.touches:
        if touch.memory is not None:
            by_memory.setdefault(touch.memory, []).append(touch)
    read = {memory for memory, touches in by_memory.items() if any(t.mode == "r" for t in touches)}
    cache: dict[int, dict[int, tuple[Walk, Walk]]] = {}

    def between(a: Touch, b: Touch) -> tuple[Walk, Walk]:
        if a.node.number not in cache:
            cache[a.node.number] = walks(graph, a.node, signs)
        return cache[a.node.number].get(b.node.number, (NONE, NONE))

    found: list[Pair] = []
    for memory, touches in by_memory.items():
        made: Any = graph.program.objects[memory]
        depth = ONE if made.depth is None else poly_of(made.depth)
        for i, x in enumerate(touches):
            for y in touches[i:]:
                if "w" not in (x.mode, y.mode) or memory not in read or not _meet(x.part, y.part):
                    continue
                if x.node.agent == y.node.agent and x.node.serial:
                    continue
                if x.node is y.node and x is not y:
                    continue  # one kernel or copy never conflicts with itself in the same step; the self pair is there
                if x.taken is not None or y.taken is not None:
                    found.append(_windowed(graph, signs, made.name, x, y, depth, between))
                    continue
                found.append(_pair(graph, made.name, x, y, depth, between(x, y), between(y, x)))
    return found


def _meet(a: p.Part | None, b: p.Part | None) -> bool:
    """Whether two parts may share a byte."""
    if isinstance(a, p.Named) and isinstance(b, p.Named):
        return a.name == b.name
    if isinstance(a, p.Span) and isinstance(b, p.Span):
        return max(a.start, b.start) < min(a.stop, b.stop)
    return True


def exact_part(a: p.Part | None, b: p.Part | None) -> bool:
    """Whether two parts that may meet surely do."""
    return not isinstance(a, (p.At, p.Anything)) and not isinstance(b, (p.At, p.Anything)) and (
        a is None or b is None or type(a) is type(b)
    )


def _pair(
    graph: Graph, name: str, x: Touch, y: Touch, depth: Poly, there: tuple[Walk, Walk], back: tuple[Walk, Walk]
) -> Pair:
    wx, wy = x.where or FIXED, y.where or FIXED
    loops = graph.region.loops
    repeated = [t.node.loop if t.where is None else t.where.loop for t in (x, y)]
    counts = tuple(None if loop is None else loops[loop] for loop in repeated)
    inside = x.node.loop is not None and x.node.loop == y.node.loop
    if wx.stride != wy.stride:
        raise Refused(f"{name!r} is indexed in two ways that advance at different rates")
    inner: tuple[int | None, int | None] = (None, None)
    if inside:
        inner = (_inner(x, y), _inner(y, x))
        if wx.loop is None and x.where is not None:
            raise Refused(f"{name!r}: a slot of an earlier repetition is used in a later one")
    forth, again = (there[1], back[1]) if inside else (there[0], back[0])
    made = Pair(name, x, y, depth, forth, again, inner, (counts[0], counts[1]), TRUE)
    plain = wx.stride in (ZERO, ONE) and not any(counts) and not inside
    if x.where is None and not plain:
        return made._replace(safe=_one_place(made, inside))
    return made._replace(safe=_closed(made, wx, wy) if plain else _several(made, wx, wy))


def _windowed(
    graph: Graph, signs: Signs, name: str, x: Touch, y: Touch, depth: Poly, between: Between
) -> Pair:
    """Slots that are taken in some kinds of step only: the depth is to exceed the most takes in a window without order."""
    found = window(graph, signs, x, y, between)
    there, back = between(x, y)[0], between(y, x)[0]
    made = Pair(name, x, y, depth, there, back, (None, None), (None, None), TRUE, window=found)
    parts = [FALSE if most is None else at_least(depth, most + 1) for most in found]
    if _one_take(made):
        parts.append(either(at_least(ZERO, w) for w in (*there.serial, *back.serial)))
    return made._replace(safe=both(parts))


def _one_take(pair: Pair) -> bool:
    """Whether two different accesses may be to one slot as it was taken once."""
    x, y = pair.x.taken, pair.y.taken
    assert x is not None and y is not None
    return pair.x is not pair.y and any(y.place.get(way) == at for way, at in x.place.items())


def _inner(a: Touch, b: Touch) -> int | None:
    """Repetitions after which `a` comes before `b` without leaving the loop; None: never."""
    same_agent = a.node.agent == b.node.agent
    issued = a.node.agent[0] == "thread" and b.node.agent[0] == "stream" and a.node.op.thread == b.node.op.thread
    if not same_agent and not issued:
        return None
    return 0 if a.node.order < b.node.order else 1


def _closed(pair: Pair, wx: Where, wy: Where) -> Formula:
    """One take a step: a multiple of D must not lie strictly between lo and hi, where nothing orders the two."""
    shift = wy.base - wx.base
    highs = [shift + w for w in pair.there.serial]
    lows = [shift - w for w in pair.back.serial]
    d = pair.depth
    rotating = pair.x.node.period
    turns = [shift == ZERO and any(w in (ZERO, rotating) for w in walk.rotating) for walk in (pair.there, pair.back)]
    alike = [Multiple(d, rotating) if rotating is not None and turn else FALSE for turn in turns]
    zero: Formula = TRUE
    if pair.x is not pair.y:
        zero = either([at_least(ZERO, h) for h in highs] + [at_least(low, ZERO) for low in lows])
        if any(turns):
            zero = TRUE
    after = either([_multiples(d, lows, highs), *alike[:1]])
    before = either([_multiples(d, [-h for h in highs], [-low for low in lows]), *alike[1:]])
    return both([zero, after] if pair.x is pair.y else [zero, after, before])


def _multiples(d: Poly, lows: list[Poly], highs: list[Poly]) -> Formula:
    """No positive multiple of `d` lies above all `lows` and below all `highs`."""
    none = [at_least(d, h) for h in highs]
    first = [low.constant for low in lows if low.constant is not None and low.constant > 0]
    if first:  # ordered up to there: for a small ring the first multiple behind it decides
        least = max(first)
        for k in range(1, least + 1):
            behind = either(at_least(Poly.of(k * (least // k + 1)), h) for h in highs)
            none.append(both([at_least(Poly.of(k), d), at_least(d, Poly.of(k)), behind]))
    return either(none)


def _one_place(pair: Pair, inside: bool) -> Formula:
    """Memory without slots that a loop of repetitions accesses: everything is to be ordered."""
    if inside and None in pair.inner:
        return FALSE
    return either(at_least(ONE, one + other) for one in pair.there.serial for other in pair.back.serial)


def _several(pair: Pair, wx: Where, wy: Where) -> Formula:
    """Several takes a step: the differences of indices that nothing orders are bounded by the last step without order."""
    a = wx.stride
    last_x = wx.base + (pair.counts[0] - 1 if pair.counts[0] is not None else ZERO)
    last_y = wy.base + (pair.counts[1] - 1 if pair.counts[1] is not None else ZERO)
    most, least = last_y - wx.base, wy.base - last_x
    d = pair.depth
    after: Formula = TRUE
    before: Formula = TRUE
    zero: Formula = TRUE
    if pair.inner[0] is None:
        after = either([at_least(d, a * (w - 1) + most + 1) for w in pair.there.serial])
    if pair.inner[1] is None:
        before = either([at_least(d, a * (w - 1) - least + 1) for w in pair.back.serial])
    if pair.x is not pair.y and 0 not in pair.inner:
        inside = pair.inner != (None, None)
        ordered = any(w.constant is not None and w.constant <= 0 for w in (*pair.there.serial, *pair.back.serial))
        if inside or not ordered:
            zero = FALSE if inside else either([at_least(least, ONE), at_least(Poly.of(-1), most)])
    return both([zero, after, before])


# ---------------------------------------------------------------- for Z3


class Instance(NamedTuple):
    """One conflict: e steps apart, q slots-modulo-depth apart, in repetitions i of x and j of y (Z3 terms)."""

    e: Any
    q: Any
    i: Any
    j: Any


def raw(pair: Pair, at: Instance, quotients: Sequence[Any] | None = None) -> Any:
    """Z3: the accesses conflict at this instance, and neither is ordered before the other.

    Streams in rotation order two steps when their distance is a multiple of the period. With `quotients` that is only
    denied for these multiples, which is less than what holds, and enough for a proof that nothing conflicts.
    """
    import z3

    if pair.lifetime is not None:
        ways = [term(pair.lifetime) >= term(w) for w in pair.there.serial]
        if pair.one_owner:
            ways += [-term(pair.lifetime) >= term(w) for w in pair.back.serial]
        return z3.Not(z3.Or(ways))
    if pair.window is not None:
        ways = [
            z3.And(at.q >= 1, *([] if most is None else [at.q * term(pair.depth) <= term(most)])) for most in pair.window
        ]
        if _one_take(pair):
            ways.append(z3.Not(z3.Or([z3.IntVal(0) >= term(w) for w in (*pair.there.serial, *pair.back.serial)])))
        return z3.Or(ways)
    wx, wy = pair.x.where or FIXED, pair.y.where or FIXED
    e, q, i, j = at
    parts = [term(wx.stride) * e + (term(wy.base) + j) - (term(wx.base) + i) == q * term(pair.depth)]
    if pair.x.where is None:
        parts = []
    for number, count in ((i, pair.counts[0]), (j, pair.counts[1])):
        parts += [number >= 0, number < term(count)] if count is not None else [number == 0]
    parts += [e < term(w) for w in pair.there.serial]
    parts += [-e < term(w) for w in pair.back.serial]
    for walk, way in ((pair.there, e), (pair.back, -e)):
        for w in walk.rotating:
            assert pair.x.node.period is not None
            period = term(pair.x.node.period)
            if quotients is None:
                parts.append(z3.Not(z3.And(way >= term(w), (way - term(w)) % period == 0)))
            else:
                parts += [z3.Not(z3.And(way >= term(w), way - term(w) == k * period)) for k in quotients]
    there, back = pair.inner
    if there is not None:
        parts.append(z3.Not(z3.Or(e > 0, z3.And(e == 0, j - i >= there))))
    if back is not None:
        parts.append(z3.Not(z3.Or(e < 0, z3.And(e == 0, i - j >= back))))
    if pair.x is pair.y or pair.x.node is pair.y.node:
        parts.append(z3.Or(e != 0, i != j))
    return z3.And(parts)


def instances(pair: Pair, e0: Any) -> list[Instance]:
    """Conflicts to look at when a violation is to be shown: neighbours in the ring, and the same slot."""
    import z3

    wx, wy = pair.x.where or FIXED, pair.y.where or FIXED
    if pair.x.where is None or pair.lifetime is not None:
        return [Instance(z3.IntVal(e), z3.IntVal(0), z3.IntVal(0), z3.IntVal(0)) for e in (1, -1, 0, 2, -2)]
    zero = z3.IntVal(0)
    found = []
    several = any(pair.counts) or wx.stride != ONE
    shift = term(wy.base) - term(wx.base)
    for q in (1, -1, 0, 2):
        if not several:
            found.append(Instance(q * term(pair.depth) - shift, z3.IntVal(q), zero, zero))
            continue
        if q == 2:
            continue
        for e in (q * e0, q * e0 + q) if q else (z3.IntVal(0),):
            s = q * term(pair.depth) - term(wx.stride) * e - shift
            if pair.counts[0] is not None and pair.counts[1] is not None:
                found.append(Instance(e, z3.IntVal(q), z3.If(s < 0, -s, zero), z3.If(s > 0, s, zero)))
            elif pair.counts[0] is not None:
                found.append(Instance(e, z3.IntVal(q), -s, zero))
            elif pair.counts[1] is not None:
                found.append(Instance(e, z3.IntVal(q), zero, s))
            else:
                found.append(Instance(e, z3.IntVal(q), zero, zero))
    return found
