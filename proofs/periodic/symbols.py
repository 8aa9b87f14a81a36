"""Polynomials over integer parameters, and stand-ins for integers that take down how a design uses them.

A design function is called with a `Symbolic` in place of an integer. The stand-in goes wherever the integer would go
(`depth=`, `capacity=`, an offset, sums and products of these), so the program that is traced holds polynomials in the
parameters. What the parameter *decides* (a comparison, its truth) is taken down as a fact about the region of values
in which the program has this shape; what needs its value (an index of Python, `range` outside of a body) pins it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Union

from fencepost.model.language.errors import is_own, shown

Monomial = tuple[str, ...]
_HERE = os.path.dirname(__file__)


class Poly:
    """A polynomial with integer coefficients; immutable, compared by value."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: tuple[tuple[Monomial, int], ...] = tuple(sorted((m, c) for m, c in terms.items() if c))
        self._hash = hash(self.terms)

    @staticmethod
    def of(value: Scalar) -> Poly:
        """An integer or a polynomial as a polynomial."""
        if isinstance(value, Poly):
            return value
        return Poly({(): value})

    @staticmethod
    def var(name: str) -> Poly:
        """One parameter."""
        return Poly({(name,): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Scalar) -> Poly:
        found = dict(self.terms)
        for m, c in Poly.of(other).terms:
            found[m] = found.get(m, 0) + c
        return Poly(found)

    def __sub__(self, other: Scalar) -> Poly:
        return self + Poly.of(other) * -1

    def __mul__(self, other: Scalar) -> Poly:
        found: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, k in Poly.of(other).terms:
                key = tuple(sorted(m + n))
                found[key] = found.get(key, 0) + c * k
        return Poly(found)

    def __neg__(self) -> Poly:
        return self * -1

    @property
    def constant(self) -> int | None:
        """Its value when no parameter occurs in it."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    def names(self) -> set[str]:
        """The parameters that occur."""
        return {name for m, _ in self.terms for name in m}

    def coefficient(self, name: str) -> Poly | None:
        """What `name` is multiplied with; None where it occurs squared."""
        found: dict[Monomial, int] = {}
        for m, c in self.terms:
            if m.count(name) > 1:
                return None
            if name in m:
                found[tuple(n for n in m if n != name)] = c
        return Poly(found)

    def at(self, values: Mapping[str, int]) -> int:
        """Its value."""
        total = 0
        for m, c in self.terms:
            for name in m:
                c *= values[name]
            total += c
        return total

    def put(self, values: Mapping[str, Scalar]) -> Poly:
        """With some parameters replaced by values or polynomials."""
        total = Poly({})
        for m, c in self.terms:
            product = Poly.of(c)
            for name in m:
                product = product * (values[name] if name in values else Poly.var(name))
            total = total + product
        return total

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for m, c in sorted(self.terms, key=lambda term: (term[1] < 0, -len(term[0]), term[0])):
            size = " * ".join(([] if abs(c) == 1 and m else [str(abs(c))]) + list(m))
            text += (" - " if c < 0 else " + ") + size if text else ("-" if c < 0 else "") + size
        return text

    def __repr__(self) -> str:
        return f"Poly({self})"


Scalar = Union[int, Poly]
ZERO, ONE = Poly({}), Poly({(): 1})


class Fact:
    """Something about the parameters that is true in a region: `poly` "ge" (>= 0), "eq" or "ne" 0."""

    __slots__ = ("poly", "rel")

    def __init__(self, poly: Poly, rel: str) -> None:
        self.poly, self.rel = poly, rel

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fact) and (self.poly, self.rel) == (other.poly, other.rel)

    def __hash__(self) -> int:
        return hash((self.poly, self.rel))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it is true of these values."""
        got = self.poly.at(values)
        return {"ge": got >= 0, "eq": got == 0, "ne": got != 0}[self.rel]

    def __repr__(self) -> str:
        return f"{self.poly} {({'ge': '>=', 'eq': '==', 'ne': '!='})[self.rel]} 0"


class Refused(Exception):
    """The design is no periodic event graph whose weights alone depend on the parameters; the text says why."""


class Region:
    """The facts that one way through the design function decided, with the `witness` that led there.

    `decide` answers a question about the parameters as the witness does, and takes the answer down. `loops` are the
    numbers of repetitions of `for _ in range(parameter)` in bodies, in the order in which they were met.
    """

    def __init__(self, witness: Mapping[str, int]) -> None:
        self.witness = dict(witness)
        self.facts: dict[Fact, None] = {}
        self.pinned: str | None = None
        self.loops: list[Poly] = []
        self._loop_keys: list[tuple[Any, ...]] = []

    def loop(self, key: tuple[Any, ...], count: Poly, taken: Callable[[int], bool]) -> int:
        """The number of a loop with that place in the text and that many repetitions, one that is not `taken` yet."""
        for number, known in enumerate(self._loop_keys):
            if known == key and self.loops[number] == count and not taken(number):
                return number
        self._loop_keys.append(key)
        self.loops.append(count)
        return len(self.loops) - 1

    def decide(self, poly: Poly, rel: str = "ge") -> bool:
        """Whether `poly` is >= 0 ("ge") or == 0 ("eq") here."""
        if poly.constant is not None:
            return poly.constant >= 0 if rel == "ge" else poly.constant == 0
        value = poly.at(self.witness)
        true = value >= 0 if rel == "ge" else value == 0
        fact = Fact(poly, rel) if true else Fact(-poly - 1, "ge") if rel == "ge" else Fact(poly, "ne")
        self.facts.setdefault(fact)
        return true

    def pin(self, poly: Poly, why: str) -> int:
        """The value of `poly`, because something needs it."""
        value = poly.at(self.witness)
        if poly.constant is None:
            self.pinned = self.pinned or why
            self.facts.setdefault(Fact(poly - value, "eq"))
        return value


def _place() -> str:
    frame = sys._getframe(1)
    while frame is not None and (os.path.dirname(frame.f_code.co_filename) == _HERE or is_own(frame.f_code.co_filename)):
        assert frame.f_back is not None
        frame = frame.f_back
    return shown(frame.f_code.co_filename, frame.f_lineno)


class Symbolic:
    """An integer of which only the polynomial is known. `isinstance(x, int)` is true of it, as designs test for that."""

    __slots__ = ("poly", "region")

    def __init__(self, poly: Poly, region: Region) -> None:
        self.poly, self.region = poly, region

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            return int

    def _pin(self, what: str) -> int:
        return self.region.pin(self.poly, f"{self.poly} changes the structure of the design ({what} at {_place()})")

    def _made(self, poly: Poly) -> Any:
        return Symbolic(poly, self.region) if poly.constant is None else poly.constant

    # ------------------------------------------------------------ arithmetic that stays a polynomial

    def __add__(self, other: Any) -> Any:
        return NotImplemented if _no_integer(other) else self._made(self.poly + poly_of(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if _no_integer(other) else self._made(self.poly - poly_of(other))

    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if _no_integer(other) else self._made(poly_of(other) - self.poly)

    def __mul__(self, other: Any) -> Any:
        return NotImplemented if _no_integer(other) else self._made(self.poly * poly_of(other))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._made(-self.poly)

    def __pos__(self) -> Any:
        return self

    # ------------------------------------------------------------ what it decides

    def __bool__(self) -> bool:
        return not self.region.decide(self.poly, "eq")

    def __eq__(self, other: object) -> bool:
        return not _no_integer(other) and self.region.decide(self.poly - poly_of(other), "eq")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.poly)

    def __ge__(self, other: Any) -> bool:
        return self.region.decide(self.poly - poly_of(other))

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __le__(self, other: Any) -> bool:
        return self.region.decide(poly_of(other) - self.poly)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    # ------------------------------------------------------------ what needs its value

    def __index__(self) -> int:
        return self._pin("an integer is needed")

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._pin("a number is needed"))

    def __floordiv__(self, other: Any) -> Any:
        return self._pin("//") // other

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self._pin("//")

    def __mod__(self, other: Any) -> Any:
        return self._pin("%") % other

    def __rmod__(self, other: Any) -> Any:
        return other % self._pin("%")

    def __pow__(self, other: Any) -> Any:
        return self._pin("**") ** other

    # Names and messages may show a value; names only tell objects apart.

    def __repr__(self) -> str:
        return str(self.poly)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return str(self.poly)


def _no_integer(value: object) -> bool:
    return not isinstance(value, int) or isinstance(value, bool)


def poly_of(value: Any) -> Poly:
    """The polynomial of an integer of the traced program."""
    if type(value) is Symbolic:
        return value.poly
    if isinstance(value, Poly):
        return value
    if _no_integer(value):
        raise TypeError(f"{value!r} is no integer")
    return Poly.of(int(value))
