"""The exact set of safe values of integer parameters, for all values (theory: exact conditions).

Per region of the parameters: what the sure graph orders is proved safe; what a steady graph of some strategy leaves
unordered is a hazard; where the two meet the condition is exact. Z3 proves both halves about the readable inequality:
it implies that no conflict is unordered, and its negation yields one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.model.platform import PLATFORMS, Platform
from fencepost.proofs.periodic import blocks
from fencepost.proofs.periodic.decide import (
    FALSE,
    TRUE,
    All,
    AtLeast,
    Equal,
    Formula,
    OutOfTime,
    Some,
    both,
    either,
    fact_z3,
    holds,
    limit,
    names_in,
    of_fact,
    quotient,
    satisfiable,
    spelled,
    term,
    z3_of,
)
from fencepost.proofs.periodic.graph import Graph
from fencepost.proofs.periodic.pairs import Instance, Pair, exact_part, instances, pairs, raw
from fencepost.proofs.periodic.plan import Key, NeedChoice
from fencepost.proofs.periodic.symbols import Fact, Poly, Refused
from fencepost.proofs.periodic.trace import Traced, regions
from fencepost.proofs.periodic.walks import Signs, walks

MOST_STRATEGIES = 64
SIMPLIFY = "a simplification"
REGIONS = "values in no region so far"

EXACT, OPEN, INVALID, HANGS, EMPTY = "exact", "open", "invalid", "hangs", "empty"


class Strategy(msgspec.Struct, frozen=True):
    """Fixed answers to all choices, the conflicts under them, or why they were passed over."""

    answers: tuple[tuple[Key, str], ...]
    pairs: tuple[Any, ...] = ()
    refused: str | None = None

    @property
    def name(self) -> str:
        """The answers in words; "" where nothing is chosen."""
        return ", ".join(f"{key[2] if len(key) > 2 else key[1]}: {answer}" for key, answer in self.answers)


class Part(msgspec.Struct, frozen=True):
    """One region. `kind`: "exact" (safe iff `safe`), "open" (safe if `safe`, a hazard unless `most`), "invalid" (the
    design refuses the values), "hangs" (it waits for ever), "empty" (no two accesses conflict)."""

    facts: tuple[Fact, ...]
    kind: str
    safe: Any = FALSE
    most: Any = TRUE
    reason: str | None = None
    pairs: tuple[Any, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    witness: tuple[tuple[str, int], ...] = ()


class Condition(msgspec.Struct, frozen=True):
    """The answer: `verdict` "exact" or "unknown"; `domain` the values that the design accepts, `safe` those of them that
    are safe; for "unknown" `safe` is what was proved and `most` what was not refuted. Times in seconds."""

    names: tuple[str, ...]
    verdict: str
    domain: Any
    safe: Any
    most: Any
    parts: tuple[Part, ...]
    elsewhere: tuple[tuple[Any, Any, Any], ...] = ()
    """Domain, safe and most of the regions in which some parameter is not positive."""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    solver_seconds: float = 0.0

    def is_safe(self, values: Mapping[str, int]) -> bool | None:
        """Whether these values are safe; None where the design does not take them or where that is open."""
        for part in self.parts:
            if all(fact.holds(values) for fact in part.facts):
                if part.kind in (INVALID, HANGS, EMPTY):
                    return None
                if holds(part.safe, values):
                    return True
                return None if part.kind == OPEN and holds(part.most, values) else False
        return None


class _Clock:
    """Time spent in Z3, and questions that it gave up on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.gave_up: list[str] = []

    def none(self, assertions: Sequence[Any], what: str) -> bool:
        """Whether the assertions have no model; False also when Z3 gives up, which is noted."""
        begin = time.perf_counter()
        try:
            return satisfiable(assertions, what) is None
        except OutOfTime:
            self.gave_up.append(what)
            return False
        finally:
            self.seconds += time.perf_counter() - begin


def condition(
    function: Callable[..., Any], names: Sequence[str], parameters: Mapping[str, Any] | None = None, *, timeout: float = 4.0
) -> Condition:
    """The condition on the integer parameters `names` of a design function, its other parameters fixed.

    `timeout`: seconds for one question to the solver. Gives "unknown" with reasons where the parameters change the structure and not the weights, where the design is
    outside of the fragment, or where the solver gives up.
    """
    begin = time.perf_counter()
    clock = _Clock()
    done: dict[int, Part] = {}
    limit.milliseconds = max(1, int(timeout * 1000))

    def inspect(one: Traced) -> None:
        done[id(one)] = _region(one, clock)

    try:
        found = regions(function, parameters or {}, names, inspect, clock.gave_up)
    except (Refused, OutOfTime) as why:
        return Condition(
            tuple(names), "unknown", TRUE, FALSE, TRUE, (), (), (str(why),), seconds=time.perf_counter() - begin,
            solver_seconds=clock.seconds,
        )  # fmt: skip
    parts = []
    for one in found:
        facts = tuple(one.region.facts)
        if one.program is None:
            parts.append(Part(facts, INVALID, reason=one.error))
        else:
            # What the graphs decided narrowed the region after its part was made; it holds in all of it.
            parts.append(msgspec.structs.replace(done[id(one)], facts=facts, witness=tuple(one.region.witness.items())))
    made = _merge(tuple(names), parts, clock)
    return msgspec.structs.replace(made, seconds=time.perf_counter() - begin, solver_seconds=clock.seconds)


# ---------------------------------------------------------------- one region


def strategies(
    program: Any, region: Any, platform: Platform = PLATFORMS["cuda"], timing: bool = False
) -> list[tuple[dict[Key, str], Graph | str]]:
    """Every way to fix the choices for good, with the steady graph or why there is none. `timing`: see `Graph`."""
    found: list[tuple[dict[Key, str], Graph | str]] = []
    work: list[dict[Key, str]] = [{}]
    while work:
        answers = work.pop()
        try:
            graph = Graph(program, region, answers, platform, timing)
            puts = [op.operation for one in graph.plans for op in one.ops if isinstance(op.operation, p.Put)]
            wrong = any(answers.get(("tag", program.objects[put.queue].name), put.tag) != put.tag for put in puts)
            found.append((answers, "an item of another tag than is put" if wrong else graph))
        except NeedChoice as need:
            work += [{**answers, need.key: option} for option in reversed(need.options)]
        except Refused as why:
            found.append((answers, str(why)))
        if len(found) + len(work) > MOST_STRATEGIES:
            break
    return found


def _region(one: Traced, clock: _Clock) -> Part:
    """The condition in one region."""
    program, region = one.program, one.region
    assert program is not None
    steady: list[Strategy] = []
    whole: list[tuple[Strategy, list[Pair]]] = []
    for answers, graph in strategies(program, region):
        said = tuple(answers.items())
        if isinstance(graph, str):
            steady.append(Strategy(said, refused=graph))
            continue
        signs = Signs(list(region.facts))
        hang = _hang(graph, signs)
        if hang is not None:
            if len(answers) == 0:
                return Part((), HANGS, reason=hang)
            steady.append(Strategy(said, refused=hang))
            continue
        try:
            mine = [*pairs(graph, signs), *blocks.pairs(graph, signs)]
        except Refused as why:
            steady.append(Strategy(said, refused=str(why)))
            continue
        steady.append(Strategy(said, tuple(mine)))
        whole.append((steady[-1], [pair for pair in mine if pair.certain and exact_part(pair.x.part, pair.y.part)]))
    try:
        graph = Graph(program, region, None)
        signs = Signs(list(region.facts))
        sure = [*pairs(graph, signs), *blocks.pairs(graph, signs)]
        reason = None
        if not any(touch.mode == "w" for touch in graph.touches):
            return Part((), EMPTY, TRUE, reason="no two accesses conflict")
    except Refused as why:
        sure, reason = None, str(why)
    facts = [fact_z3(fact) for fact in region.facts]
    hazards = [pair for _, found in whole for pair in found]
    proved: Formula = FALSE
    if sure is not None:
        proved = simplified(both(pair.safe for pair in sure), facts, clock)
        if not all(_orders(pair, proved, facts, clock) for pair in sure):
            proved, reason = FALSE, reason or "Z3 did not prove that the inequality orders every conflict"
    if proved != TRUE and not _refutes(proved, hazards, facts, clock):
        most = simplified(both(pair.safe for pair in hazards), facts, clock) if hazards else TRUE
        if not _refutes(most, hazards, facts, clock):
            most = TRUE
        if reason is None:
            refused = [one.refused for one in steady if one.refused]
            reason = "what holds under every order of choices and what one choice made for good breaks do not meet"
            reason = refused[0] if refused and not whole else reason
        return Part((), OPEN, proved, most, reason, tuple(sure or ()), tuple(steady))
    return Part((), EXACT, proved, proved, None, tuple(sure or ()), tuple(steady))


def _hang(graph: Graph, signs: Signs) -> str | None:
    """A cycle of weight <= 0: its operations wait for each other for ever. Narrows the region to what decides that."""
    waits = {target for n, edges in enumerate(graph.out) for target, _ in edges if graph.nodes[n].agent != graph.nodes[target].agent}
    for number in sorted(waits | graph.joined):
        node = graph.nodes[number]
        if node.agent[0] != "thread":
            continue
        every = walks(graph, node, signs).get(number)
        for weight in (*every[0].serial, *every[0].rotating) if every else ():
            if not signs.nonnegative(weight - 1) and not graph.region.decide(weight - 1):
                return f"{node.label} waits for itself: a circle of waits of {weight} steps"
    return None


def _lemmas(pair: Pair, at: Instance) -> list[Any]:
    """Instances of monotony of products, which hold for all integers; they spare the solver the search for them."""
    import z3

    if pair.window is not None:
        depth = term(pair.depth)
        return [z3.Implies(z3.And(depth >= 1, at.q >= 1), at.q * depth >= depth)]
    if pair.x.where is None or pair.lifetime is not None:
        return []
    stride, depth = term(pair.x.where.stride), term(pair.depth)
    found = [
        z3.Implies(z3.And(depth >= 1, at.q >= 1), at.q * depth >= depth),
        z3.Implies(z3.And(depth >= 1, at.q <= -1), at.q * depth <= -depth),
        z3.Implies(at.q == 0, at.q * depth == 0),
    ]
    for w, way in [(w, at.e) for w in pair.there.serial] + [(w, -at.e) for w in pair.back.serial]:
        bound = term(w)
        found.append(z3.Implies(z3.And(stride >= 0, way <= bound - 1), stride * way <= stride * (bound - 1)))
    for way in (at.e, -at.e):
        found.append(z3.Implies(z3.And(stride >= 0, way >= 1), stride * way >= stride))
    return found


def _orders(pair: Pair, readable: Formula, facts: list[Any], clock: _Clock) -> bool:
    """Z3: where the readable formula holds, every conflict of the pair is ordered."""
    import z3

    at = Instance(*z3.Ints("e! q! i! j!"))
    quotients, known = None, z3_of(readable)
    if pair.there.rotating or pair.back.rotating:
        assert pair.x.node.period is not None
        k = quotient(pair.depth, pair.x.node.period)
        known = z3_of(readable, assumed=True)
        quotients = [sign * at.q * k + more for sign in (1, -1) for more in (0, -1)]
    return clock.none(
        [*facts, known, raw(pair, at, quotients), *_lemmas(pair, at)], f"every conflict of {pair.label} is ordered"
    )


def _refutes(readable: Formula, hazards: Sequence[Pair], facts: list[Any], clock: _Clock) -> bool:
    """Z3: where the readable formula is false, some conflict is unordered."""
    import z3

    different: dict[Any, Pair] = {}
    for pair in hazards:
        key = (pair.safe, pair.there, pair.back, pair.counts, pair.inner, pair.depth, pair.x.where, pair.y.where, pair.lifetime)
        different.setdefault(key, pair)
    # Those that are ordered as the ones from which the readable formula came say it alone, as a rule.
    binding = _binding(readable, list(different.values()), facts, clock)
    for chosen in (binding, list(different.values())):
        assertions = [*facts, z3.Not(z3_of(readable))]
        e0, r0 = z3.Ints("e0! r0!")
        for pair in chosen:
            if pair.x.where is not None and (any(pair.counts) or pair.x.where.stride != Poly.of(1)):
                stride, depth = term(pair.x.where.stride), term(pair.depth)
                e0, r0 = z3.Ints(f"{pair.depth}//{pair.x.where.stride} {pair.depth}%{pair.x.where.stride}")
                assertions += [z3.Implies(stride >= 1, z3.And(depth == stride * e0 + r0, r0 >= 0, r0 < stride))]
                for w in map(term, (*pair.there.serial, *pair.back.serial)):
                    assertions.append(z3.Implies(z3.And(stride >= 1, e0 >= w), stride * e0 >= stride * w))
                    assertions.append(z3.Implies(z3.And(stride >= 1, e0 <= w - 1), stride * e0 <= stride * (w - 1)))
            assertions += [z3.Not(raw(pair, at)) for at in instances(pair, e0)]
        if chosen and clock.none(assertions, f"a conflict is unordered unless {readable}"):
            clock.gave_up = [what for what in clock.gave_up if not what.endswith(f"unless {readable}")]
            return True
        if len(chosen) == len(different):
            return False
    return False


def _binding(readable: Formula, hazards: list[Pair], facts: list[Any], clock: _Clock) -> list[Pair]:
    """The pairs that are ordered in the same way as a few whose closed forms imply the readable formula."""
    import z3

    kept = list(hazards)
    for one in hazards:
        rest = [other for other in kept if other is not one]
        if clock.none([*facts, *(z3_of(other.safe) for other in rest), z3.Not(z3_of(readable))], SIMPLIFY):
            kept = rest
    ways = {frozenset((pair.there, pair.back)) for pair in kept}
    return [pair for pair in hazards if frozenset((pair.there, pair.back)) in ways]


def simplified(formula: Formula, facts: list[Any], clock: _Clock) -> Formula:
    """Parts that the facts and the other parts imply are left out."""
    import z3

    if isinstance(formula, Some):
        kept = list(formula.parts)
        for one in list(kept):
            rest = [other for other in kept if other != one]
            if clock.none([*facts, z3_of(one), z3.Not(z3_of(either(rest)))], SIMPLIFY):
                kept = rest
        formula = either(simplified(one, facts, clock) if isinstance(one, All) else one for one in kept)
        if clock.none([*facts, z3.Not(z3_of(formula))], SIMPLIFY):
            return TRUE
        return formula
    parts = [simplified(one, facts, clock) if isinstance(one, Some) else one for one in _parts(formula)]
    kept = list(dict.fromkeys(parts))
    if FALSE in kept or clock.none([*facts, z3_of(both(kept))], SIMPLIFY):
        return FALSE
    for one in sorted(kept, key=lambda part: (not isinstance(part, Some), len(str(part))), reverse=False):
        rest = [other for other in kept if other != one]
        if clock.none([*facts, z3_of(both(rest)), z3.Not(z3_of(one))], SIMPLIFY):
            kept = rest
    for one in list(kept):
        back = AtLeast(one.right, one.left) if isinstance(one, AtLeast) else None
        if back in kept and one in kept:
            kept = [Equal(one.left, one.right) if other is one else other for other in kept if other != back]
    return both(kept)


def _parts(formula: Formula) -> tuple[Formula, ...]:
    return formula.parts if isinstance(formula, All) else (formula,)


# ---------------------------------------------------------------- all regions


def _merge(names: tuple[str, ...], parts: list[Part], clock: _Clock) -> Condition:
    """One readable formula for positive parameters, where there is one, and one for each of the other regions."""
    live = [part for part in parts if part.kind in (EXACT, OPEN)]
    notes = sorted(f"{spelled(_where(part, clock), names)}: {part.reason}" for part in parts if part.kind in (HANGS, EMPTY))
    reasons = list(dict.fromkeys(part.reason for part in live if part.kind == OPEN and part.reason))
    reasons += [
        f"the solver gave up after {limit.milliseconds / 1000:g} s on: {what}"
        for what in dict.fromkeys(clock.gave_up)
        if what != SIMPLIFY
    ]
    if not live:
        reason = reasons[0] if reasons else "no value of the parameters gives a design in which two accesses conflict"
        return Condition(names, "unknown", FALSE, FALSE, FALSE, tuple(parts), (), (reason,), tuple(notes))
    positive = [z3_of(of_fact(Fact(Poly.var(name) - 1, "ge"))) for name in names]
    main = [part for part in live if not clock.none([*positive, *map(fact_z3, part.facts)], SIMPLIFY)] or live
    others = [part for part in live if part not in main]
    if len(main) > 1 and _one_formula(main, clock) is None:
        # Where no formula says it for all, one may say it for positive values.
        above = [Fact(Poly.var(name) - 1, "ge") for name in names]
        split = [msgspec.structs.replace(part, facts=(*part.facts, *above)) for part in main]
        if _one_formula(split, clock) is not None:
            for part in main:
                for i, fact in enumerate(above):
                    rest = (*part.facts, *above[:i], Fact(-fact.poly - 1, "ge"))
                    if not clock.none([*map(fact_z3, rest)], SIMPLIFY):
                        others.append(msgspec.structs.replace(part, facts=rest))
            main = split
    domain, safe, most = _together(names, main, clock)
    elsewhere = tuple(_together(names, [part], clock) for part in others)
    exact = all(part.kind == EXACT for part in live) and REGIONS not in clock.gave_up
    return Condition(
        names, "exact" if exact else "unknown", domain, safe, most, tuple(parts), elsewhere, tuple(reasons), tuple(notes)
    )


def _together(names: tuple[str, ...], live: list[Part], clock: _Clock) -> tuple[Formula, Formula, Formula]:
    """Domain, what is proved safe and what is not refuted, over several regions."""
    import z3

    domain = either(_where(part, clock) for part in live)
    if len(live) > 1:
        bounds = []
        for name in names:
            for low in (2, 1, 0):
                bound = of_fact(Fact(Poly.var(name) - low, "ge"))
                if clock.none([z3_of(domain), z3.Not(z3_of(bound))], SIMPLIFY):
                    bounds.append(bound)
                    break
        if clock.none([*map(z3_of, bounds), z3.Not(z3_of(domain))], SIMPLIFY):
            domain = both(bounds)
    chosen: list[Formula] = []
    for pick in ("safe", "most"):
        mine: list[tuple[Part, Formula]] = [(part, getattr(part, pick)) for part in live]
        if pick == "most" and all(part.safe == part.most for part in live):
            chosen.append(chosen[0])
            continue
        found = _one_formula(live, clock, pick)
        if found is None:
            common = [z3_of(domain)]
            found = either(
                simplified(both([*map(of_fact, part.facts), formula]), common, clock)
                for part, formula in mine
                if formula != FALSE
            )
            found = _weakened(simplified(found, common, clock), common, clock)
        chosen.append(found)
    return domain, chosen[0], chosen[1]


def _weakened(formula: Formula, common: list[Any], clock: _Clock) -> Formula:
    """The same in the domain, with parts of each case left out where the other cases say what they would."""
    import z3

    cases = list(formula.parts) if isinstance(formula, Some) else []
    for i, case in enumerate(cases):
        for part in _parts(case):
            rest = both(other for other in _parts(cases[i]) if other != part)
            if rest != TRUE and clock.none([*common, z3_of(rest), z3.Not(z3_of(either(cases)))], SIMPLIFY):
                cases[i] = rest
    return simplified(either(cases), common, clock) if cases else formula


def _one_formula(live: list[Part], clock: _Clock, pick: str = "safe") -> Formula | None:
    """One of the parts' formulas that says the same as each other part's in the region of that part."""
    for one in live:
        candidate: Formula = getattr(one, pick)
        if all(_same(candidate, getattr(part, pick), part, clock) for part in live):
            return candidate
    return None


def _same(one: Formula, other: Formula, part: Part, clock: _Clock) -> bool:
    if one == other:
        return True
    return clock.none([*map(fact_z3, part.facts), z3_of(one) != z3_of(other)], SIMPLIFY)


def _where(part: Part, clock: _Clock) -> Formula:
    return simplified(both(map(of_fact, part.facts)), [], clock)


# ---------------------------------------------------------------- questions about a condition


def upward_closed(found: Condition, name: str) -> bool:
    """Whether a safe value of `name` stays safe when it grows, the others fixed: proved by Z3 over all regions."""
    import z3

    clock = _Clock()
    x = z3.Int(name)
    for low in found.parts:
        if low.kind in (INVALID, HANGS, EMPTY):
            continue
        for high in found.parts:
            if high.kind in (INVALID, HANGS, EMPTY):
                continue
            here = z3.And([*map(fact_z3, low.facts), z3_of(low.safe)])
            there = z3.And([*map(fact_z3, high.facts), z3.Not(z3_of(high.most))])
            if not clock.none([here, z3.substitute(there, (x, x + 1))], f"upward closure in {name}"):
                return False
    return True


def least(found: Condition, name: str) -> list[tuple[Formula, tuple[Poly, ...]]] | None:
    """The least safe value of `name` in the main domain: (provided that, the greatest of), the least of several; None
    where it is no simple expression. Only meaningful when the condition is exact and upward closed in `name`."""
    answers: list[tuple[Formula, tuple[Poly, ...]]] = []
    for case in found.safe.parts if isinstance(found.safe, Some) else (found.safe,):
        provided: list[Formula] = []
        bounds: list[Poly] = []
        for part in [*_parts(case), *_parts(found.domain)]:
            if name not in names_in(part):
                if part in _parts(case):
                    provided.append(part)
                continue
            if not isinstance(part, AtLeast):
                return None
            difference = part.left - part.right
            if difference.coefficient(name) != Poly.of(1):
                return None
            bounds.append(Poly.var(name) - difference)
        if not bounds:
            return None
        answers.append((both(provided), tuple(_greatest(bounds, found))))
    return answers


def _greatest(bounds: list[Poly], found: Condition) -> list[Poly]:
    """Bounds that no other bound exceeds in the whole domain."""
    import z3

    clock = _Clock()
    kept = list(dict.fromkeys(bounds))
    for one in list(kept):
        rest = [other for other in kept if other != one]
        for other in rest:
            if clock.none([z3_of(found.domain), z3.Not(term(other) >= term(one))], SIMPLIFY):
                kept = rest
                break
    return kept


def margin(found: Condition, values: Mapping[str, int], name: str) -> int | None:
    """How far `name` can be lowered from safe values with every value on the way safe; None where they are not safe.
    With one take per step this is the distance in the ring minus the shortest path."""
    if not found.is_safe(values):
        return None
    steps = 0
    while steps < 4096 and found.is_safe({**values, name: values[name] - steps - 1}):
        steps += 1
    return steps
