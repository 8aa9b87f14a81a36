"""Conditions over integer parameters as formulas, and what Z3 decides about them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from fencepost.model.program import Data
from fencepost.proofs.periodic.symbols import Fact, Poly


class _Limit:
    """Most time for one question to Z3."""

    milliseconds = 4_000


limit = _Limit()


class OutOfTime(Exception):
    """Z3 gave up; the text names the question."""


class AtLeast(Data, frozen=True):
    """`left >= right`."""

    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.left} >= {self.right}"


class Equal(Data, frozen=True):
    """`left == right`."""

    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


class Multiple(Data, frozen=True):
    """`what` is a multiple of `of`."""

    what: Any
    of: Any

    def __str__(self) -> str:
        if self.of == Poly.of(2):
            return f"{self.what} is even"
        return f"{self.what} is a multiple of {self.of}"


class All(Data, frozen=True):
    """Every one of the parts; nothing in it: true."""

    parts: tuple[Any, ...]

    def __str__(self) -> str:
        return " and ".join(_inside(one) for one in self.parts) if self.parts else "always"


class Some(Data, frozen=True):
    """At least one of the parts; nothing in it: false."""

    parts: tuple[Any, ...]

    def __str__(self) -> str:
        return " or ".join(_inside(one) for one in self.parts) if self.parts else "never"


Formula = Union[AtLeast, Equal, Multiple, All, Some]
TRUE, FALSE = All(()), Some(())


def _inside(one: Formula) -> str:
    return f"({one})" if isinstance(one, (All, Some)) and len(one.parts) > 1 else str(one)


def at_least(left: Poly, right: Poly) -> Formula:
    """`left >= right`, decided where no parameter is left in it."""
    known = (left - right).constant
    if known is not None:
        return TRUE if known >= 0 else FALSE
    return AtLeast(left, right)


def both(parts: Iterable[Formula]) -> Formula:
    """Conjunction, flattened."""
    found: dict[Formula, None] = {}
    for one in parts:
        for part in one.parts if isinstance(one, All) else (one,):
            if part == FALSE:
                return FALSE
            found.setdefault(part)
    return next(iter(found)) if len(found) == 1 else All(tuple(found))


def either(parts: Iterable[Formula]) -> Formula:
    """Disjunction, flattened."""
    found: dict[Formula, None] = {}
    for one in parts:
        for part in one.parts if isinstance(one, Some) else (one,):
            if part == TRUE:
                return TRUE
            found.setdefault(part)
    return next(iter(found)) if len(found) == 1 else Some(tuple(found))


def of_fact(fact: Fact) -> Formula:
    """A fact about a region, read so that no coefficient is negative."""
    poly = fact.poly
    common = math.gcd(*(c for m, c in poly.terms if m), 0)
    if common > 1 and fact.rel == "ge":  # rounded down, as the values are integers
        poly = Poly({m: c // common for m, c in poly.terms})
    plus = Poly({m: c for m, c in poly.terms if c > 0})
    minus = Poly({m: -c for m, c in poly.terms if c < 0})
    if fact.rel == "eq":
        return Equal(plus, minus)
    if fact.rel == "ne":
        return either([at_least(plus, minus + 1), at_least(minus, plus + 1)])
    return at_least(plus, minus)


def holds(formula: Formula, values: Mapping[str, int]) -> bool:
    """Whether the formula is true of these values."""
    if isinstance(formula, All):
        return all(holds(one, values) for one in formula.parts)
    if isinstance(formula, Some):
        return any(holds(one, values) for one in formula.parts)
    if isinstance(formula, Multiple):
        return bool(formula.what.at(values) % formula.of.at(values) == 0)
    left, right = formula.left.at(values), formula.right.at(values)
    return bool(left >= right if isinstance(formula, AtLeast) else left == right)


def names_in(formula: Formula) -> set[str]:
    """The parameters that occur."""
    if isinstance(formula, (All, Some)):
        return {name for one in formula.parts for name in names_in(one)}
    if isinstance(formula, Multiple):
        return set(formula.what.names() | formula.of.names())
    return set(formula.left.names() | formula.right.names())


def spelled_poly(poly: Poly, names: Sequence[str]) -> str:
    """A polynomial with its parameters in the order of `names`."""
    order = {name: i for i, name in enumerate(names)}
    shared = [name for name in poly.names() if all(name in m for m, _ in poly.terms)]
    if shared and len(poly.terms) > 1:
        factor = min(shared, key=lambda n: order.get(n, 99))
        rest = poly.coefficient(factor)
        if rest is not None:
            return f"{factor} * ({spelled_poly(rest, names)})"
    text = ""
    for m, c in sorted(poly.terms, key=lambda t: (t[1] < 0, -len(t[0]), [order.get(n, 99) for n in t[0]])):
        inside = sorted(m, key=lambda n: order.get(n, 99))
        size = " * ".join(([] if abs(c) == 1 and m else [str(abs(c))]) + inside)
        text += (" - " if c < 0 else " + ") + size if text else ("-" if c < 0 else "") + size
    return text or "0"


def spelled(formula: Formula, names: Sequence[str]) -> str:
    """A formula for readers: the first of `names` that stands alone on the left."""
    if isinstance(formula, All):
        return " and ".join(_bracketed(one, names) for one in formula.parts) if formula.parts else "always"
    if isinstance(formula, Some):
        return " or ".join(_bracketed(one, names) for one in formula.parts) if formula.parts else "never"
    if isinstance(formula, Multiple):
        what, of = spelled_poly(formula.what, names), spelled_poly(formula.of, names)
        return f"{what} is even" if of == "2" else f"{what} is a multiple of {of}"
    sign = ">=" if isinstance(formula, AtLeast) else "="
    difference = formula.left - formula.right
    for name in names:
        if difference.coefficient(name) == Poly.of(1):
            return f"{name} {sign} {spelled_poly(Poly.var(name) - difference, names)}"
        if difference.coefficient(name) == Poly.of(-1) and len(difference.terms) <= 2 and len(difference.names()) == 1:
            return f"{name} {'<=' if sign == '>=' else '='} {spelled_poly(Poly.var(name) + difference, names)}"
    return f"{spelled_poly(formula.left, names)} {sign} {spelled_poly(formula.right, names)}"


def _bracketed(one: Formula, names: Sequence[str]) -> str:
    text = spelled(one, names)
    return f"({text})" if isinstance(one, (All, Some)) and len(one.parts) > 1 else text


# ---------------------------------------------------------------- Z3


def term(poly: Poly) -> Any:
    """A polynomial as a Z3 term."""
    import z3

    total: Any = z3.IntVal(0)
    for m, c in poly.terms:
        product: Any = z3.IntVal(c)
        for name in m:
            product = product * z3.Int(name)
        total = total + product
    return total


def quotient(what: Poly, of: Poly) -> Any:
    """The fresh integer by which an assumed multiple is written as a product."""
    import z3

    return z3.Int(f"{what} / {of}")


def z3_of(formula: Formula, assumed: bool = False) -> Any:
    """A formula for Z3. `assumed`: "a multiple" is written as a product with a fresh integer, which as an assumption says
    the same."""
    import z3

    if isinstance(formula, All):
        return z3.And([z3_of(one, assumed) for one in formula.parts])
    if isinstance(formula, Some):
        return z3.Or([z3_of(one, assumed) for one in formula.parts])
    if isinstance(formula, Multiple):
        if assumed:
            return term(formula.what) == quotient(formula.what, formula.of) * term(formula.of)
        return term(formula.what) % term(formula.of) == 0
    if isinstance(formula, Equal):
        return term(formula.left) == term(formula.right)
    return term(formula.left) >= term(formula.right)


def fact_z3(fact: Fact) -> Any:
    """A fact for Z3."""
    value = term(fact.poly)
    return {"ge": value >= 0, "eq": value == 0, "ne": value != 0}[fact.rel]


def satisfiable(assertions: Sequence[Any], what: str) -> Any | None:
    """A model of the assertions, or None when there is none. Raises `OutOfTime` naming `what`."""
    import z3

    solver = z3.Solver()
    solver.set("timeout", limit.milliseconds)
    solver.add(*assertions)
    answer = solver.check()
    if answer == z3.unknown:
        raise OutOfTime(what)
    return solver.model() if answer == z3.sat else None


def implied(facts: Sequence[Fact], formula: Formula, what: str = "an implication") -> bool:
    """Whether the formula follows from the facts."""
    import z3

    return satisfiable([*map(fact_z3, facts), z3.Not(z3_of(formula))], what) is None


def values_of(model: Any, names: Sequence[str]) -> dict[str, int]:
    """Parameter values in a model; what it leaves open is 1."""
    import z3

    found = {}
    for name in names:
        value = model.eval(z3.Int(name))
        found[name] = value.as_long() if z3.is_int_value(value) else 1
    return found


def outside(regions: Sequence[Sequence[Fact]], names: Sequence[str]) -> dict[str, int] | None:
    """Parameter values in none of the regions, or None when they cover all; small positive values first."""
    import z3

    rest = [z3.Not(z3.And([fact_z3(fact) for fact in facts])) for facts in regions]
    what = "values in no region so far"
    for low, high in ((3, 12), (0, 40)):
        near = [z3.And(z3.Int(name) >= low, z3.Int(name) <= high) for name in names]
        model = satisfiable([*rest, *near], what)
        if model is not None:
            return values_of(model, names)
    model = satisfiable(rest, what)
    return None if model is None else values_of(model, names)
