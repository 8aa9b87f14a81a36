"""SMT-LIB text in the making: names, terms of difference logic and formulas, simplified where that costs nothing.

The text is the encoding: Z3 parses it for `check --engine smt`, and `export --smt2` writes it to a file. Arithmetic is
integer difference logic: a term is a variable plus a constant, and `ZERO` is the origin that constants are measured from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

TRUE, FALSE = "true", "false"


class Term(NamedTuple):
    """`name + offset`."""

    name: str
    offset: int = 0

    def plus(self, amount: int) -> Term:
        """This term and a constant."""
        return Term(self.name, self.offset + amount)


ZERO = Term("zero")


def constant(value: int) -> Term:
    """An integer as a term."""
    return Term("zero", value)


class Text:
    """Declarations and assertions so far."""

    def __init__(self) -> None:
        self.lines: list[str] = ["(declare-const zero Int)"]
        self.ranges: dict[str, tuple[int, int]] = {"zero": (0, 0)}
        """Least and greatest value of the integer variables that count something."""
        self._fresh = 0
        self._defined: dict[str, str] = {}

    def integer(self, hint: str, low: int | None = None, high: int | None = None) -> Term:
        """A fresh integer variable; with a range when it counts something."""
        self._fresh += 1
        name = f"{hint}{self._fresh}"
        self.lines.append(f"(declare-const {name} Int)")
        if low is not None and high is not None:
            self.ranges[name] = (low, high)
            self.lines.append(f"(assert (and (<= (- zero {name}) {_number(-low)}) (<= (- {name} zero) {_number(high)})))")
        return Term(name)

    def boolean(self, hint: str) -> str:
        """A fresh Boolean variable."""
        self._fresh += 1
        return self.named(f"{hint}{self._fresh}")

    def named(self, name: str) -> str:
        """A Boolean variable of this name."""
        self.lines.append(f"(declare-const {name} Bool)")
        return name

    def literal(self, formula: str, hint: str = "b") -> str:
        """A variable that equals `formula`; the formula itself when it is a literal already."""
        if not formula.startswith("(") or (formula.startswith("(not ") and formula[5] != "("):
            return formula
        known = self._defined.get(formula)
        if known is None:
            known = self._defined[formula] = self.boolean(hint)
            self.lines.append(f"(assert (= {known} {formula}))")
        return known

    def add(self, formula: str) -> None:
        """Assert a formula."""
        if formula != TRUE:
            self.lines.append(f"(assert {formula})")

    def bounds(self, term: Term) -> tuple[int, int]:
        """Least and greatest value of a counting term."""
        low, high = self.ranges[term.name]
        return low + term.offset, high + term.offset

    def le(self, a: Term, b: Term) -> str:
        """`a <= b`."""
        if a.name == b.name:
            return TRUE if a.offset <= b.offset else FALSE
        if a.name in self.ranges and b.name in self.ranges:
            (a_low, a_high), (b_low, b_high) = self.bounds(a), self.bounds(b)
            if a_high <= b_low:
                return TRUE
            if a_low > b_high:
                return FALSE
        return f"(<= (- {a.name} {b.name}) {_number(b.offset - a.offset)})"

    def lt(self, a: Term, b: Term) -> str:
        """`a < b`."""
        return self.le(a.plus(1), b)

    def eq(self, a: Term, b: Term) -> str:
        """`a = b`."""
        if a.name == b.name:
            return TRUE if a.offset == b.offset else FALSE
        if a.name in self.ranges and b.name in self.ranges:
            (a_low, a_high), (b_low, b_high) = self.bounds(a), self.bounds(b)
            if a_high < b_low or a_low > b_high:
                return FALSE
            if a_low == a_high == b_low == b_high:
                return TRUE
        return f"(= (- {a.name} {b.name}) {_number(b.offset - a.offset)})"


def _number(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


def conj(parts: Iterable[str]) -> str:
    """Conjunction."""
    kept: dict[str, None] = {}
    for part in parts:
        if part == FALSE:
            return FALSE
        if part != TRUE:
            kept[part] = None
    if not kept:
        return TRUE
    return next(iter(kept)) if len(kept) == 1 else f"(and {' '.join(kept)})"


def disj(parts: Iterable[str]) -> str:
    """Disjunction."""
    kept: dict[str, None] = {}
    for part in parts:
        if part == TRUE:
            return TRUE
        if part != FALSE:
            kept[part] = None
    if not kept:
        return FALSE
    return next(iter(kept)) if len(kept) == 1 else f"(or {' '.join(kept)})"


def both(a: str, b: str) -> str:
    """Conjunction of two."""
    if a in (TRUE, b):
        return b
    return conj((a, b))


def neg(a: str) -> str:
    """Negation."""
    if a == TRUE:
        return FALSE
    if a == FALSE:
        return TRUE
    return a[5:-1] if a.startswith("(not ") else f"(not {a})"


def implies(a: str, b: str) -> str:
    """Implication."""
    if a == FALSE or b == TRUE:
        return TRUE
    if a == TRUE:
        return b
    return neg(a) if b == FALSE else f"(=> {a} {b})"
