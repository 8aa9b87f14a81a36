"""Memory of the machine: buffers that hold values, cut into regions only where a program uses parts.

A value is an integer. `UNDEFINED` is fresh memory; any other value identifies the write that left it there. A buffer is
one value until somebody writes a part of it; from then on it is a list of (region, value) pairs that partition it.

A *region* says where a byte lies on every axis that some part cuts: its named part, its element (spans), its row. Axes
are independent, so parts that are cut in different ways overlap, as the language says they may, and named parts,
spans without a common element and rows of different index do not. Below a part lie axes of that part's own.
"""

from __future__ import annotations

from typing import Any, Union

UNDEFINED = 0
"""Content of fresh memory. No write has this value."""

Piece = tuple[str, Any]
"""One step of a path: ("n", name), ("s", (start, stop)), ("r", row) or ("a", alternative of an unknown part); before
them, for a tenant that has only a piece of a block, ("@", (start, stop)) in eighths of the block."""
Path = tuple[Piece, ...]
Region = dict[Any, Any]
"""Axis -> where on that axis; an axis that is missing is not constrained."""
Cells = list[tuple[Region, int]]
Content = Union[int, Cells]
"""What a read gets: one value for the whole buffer, or values by region."""


class Buffer:
    """Bytes with an address of their own. `name` is for reports; `undefined` fresh memory or a known start."""

    __slots__ = ("cells", "initial", "name", "value")

    def __init__(self, name: str, initial: int = UNDEFINED) -> None:
        self.name = name
        self.initial = initial
        self.value = initial
        self.cells: Cells | None = None

    def reset(self) -> None:
        """Back to the content at the start of a run."""
        self.value = self.initial
        self.cells = None

    def read(self, tenant: int, path: Path) -> Content:
        """The content of a part: the value when the whole buffer has one, else values by region."""
        if self.cells is None:
            return self.value
        region = region_of(tenant, path)
        found: Cells = []
        for where, value in self.cells:
            common = meet(where, region)
            if common is not None:
                found.append((common, value))
        return found

    def write(self, tenant: int, path: Path, content: Content) -> None:
        """Put one value, or values by region, into a part."""
        if not path and isinstance(content, int):
            self.value = content
            self.cells = None
            return
        new: Cells = [(region_of(tenant, path), content)] if isinstance(content, int) else content
        old: Cells = [({}, self.value)] if self.cells is None else self.cells
        for region, _ in new:
            kept: Cells = []
            for where, value in old:
                if meet(where, region) is None:
                    kept.append((where, value))
                else:
                    kept.extend((rest, value) for rest in without(where, region))
            old = kept
        self.cells = old + new


def difference(buffer: Buffer, tenant: int, path: Path, expected: Content) -> tuple[int, int] | None:
    """The first place where a part does not hold what it should: (expected, held); None when it does.

    Places where the expected content is undefined say nothing, unless all of it is: then (UNDEFINED, held).
    """
    if isinstance(expected, int):
        if buffer.cells is None:
            held = buffer.value
            return None if held == expected and expected else (expected, held)
        found = buffer.read(tenant, path)
        assert not isinstance(found, int)
        if not expected:
            return (UNDEFINED, found[0][1] if found else UNDEFINED)
        return next(((expected, value) for _, value in found if value != expected), None)
    defined = False
    for region, wanted in expected:
        if not wanted:
            continue
        defined = True
        for where, value in [({}, buffer.value)] if buffer.cells is None else buffer.cells:
            if value != wanted and meet(where, region) is not None:
                return wanted, value
    return None if defined else (UNDEFINED, buffer.value)


# ---------------------------------------------------------------- regions


def region_of(tenant: int, path: Path) -> Region:
    """The region of a path. Parts of different tenants of a block cannot be compared, so their axes differ."""
    region: Region = {}
    for depth, (style, what) in enumerate(path):
        if style == "@":
            region["@"] = [what]
        else:
            region[(tenant, path[:depth], style)] = [what] if style == "s" else (True, frozenset((what,)))
    return region


def meet(a: Region, b: Region) -> Region | None:
    """What two regions have in common, None when that is nothing."""
    result = dict(a)
    for axis, there in b.items():
        here = a.get(axis)
        if here is None:
            result[axis] = there
            continue
        common = _spans_meet(here, there) if isinstance(here, list) else _names_meet(here, there)
        if common is None:
            return None
        result[axis] = common
    return result


def without(a: Region, b: Region) -> list[Region]:
    """Disjoint regions that make up the part of `a` outside `b`."""
    result: list[Region] = []
    inside = dict(a)
    for axis, there in b.items():
        here = inside.get(axis)
        span = isinstance(there, list)
        outside = _spans_minus(here, there) if span else _names_minus(here, there)
        if outside is not None:
            result.append({**inside, axis: outside})
        common = there if here is None else (_spans_meet(here, there) if span else _names_meet(here, there))
        if common is None:
            return [dict(a)]  # they have nothing in common
        inside[axis] = common
    return result


def _names_meet(a: Any, b: Any) -> Any:
    """(True, names) is these names, (False, names) all others."""
    if a[0] and b[0]:
        common = a[1] & b[1]
    elif a[0]:
        common = a[1] - b[1]
    elif b[0]:
        common = b[1] - a[1]
    else:
        return (False, a[1] | b[1])
    return (True, common) if common else None


def _names_minus(a: Any, b: Any) -> Any:
    other = (not b[0], b[1])
    return other if a is None else _names_meet(a, other)


_END = 1 << 62


def _spans_meet(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> Any:
    common = [(max(x, u), min(y, v)) for x, y in a for u, v in b if max(x, u) < min(y, v)]
    return common or None


def _spans_minus(a: list[tuple[int, int]] | None, b: list[tuple[int, int]]) -> Any:
    left = [(0, _END)] if a is None else a
    for u, v in b:
        left = [piece for x, y in left for piece in ((x, min(y, u)), (max(x, v), y)) if piece[0] < piece[1]]
    return left or None
