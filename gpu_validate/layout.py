"""Where the parts of a buffer lie: parts that are disjoint in the model get disjoint elements, others share some.

Every buffer has UNITS units of SCALE 32-bit elements. Parts that are cut in different ways (a named part and a row) may overlap in
the model, so here they cross: each combination gets elements of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.model import program as p
from fencepost.model.events.parts import Path, Piece, Row

UNITS = 128
"""Units of a buffer: what plans count in."""
SCALE = 8
"""Elements of a unit on a real GPU: a buffer is 4 KiB, small enough that nothing but a gate makes a copy late."""
ELEMENTS = UNITS * SCALE

Spans = tuple[tuple[int, int], ...]
"""Ranges of units (start, stop), ascending."""


def place(paths: Iterable[Path]) -> dict[Path, Spans]:
    """Ranges of each path used in one buffer. Raises `ValueError` when it is cut into too many parts."""
    wanted = sorted(set(paths), key=repr)
    cells: list[set[Path]] = []
    _cut(wanted, {path: path for path in wanted}, cells)
    if len(cells) > UNITS:
        raise ValueError(f"a buffer is cut into {len(cells)} parts; there are {UNITS} units")
    bounds = [UNITS * k // len(cells) for k in range(len(cells) + 1)]
    return {path: _spans(path, cells, bounds) for path in wanted}


def _spans(path: Path, cells: list[set[Path]], bounds: list[int]) -> Spans:
    found: list[tuple[int, int]] = []
    for number, members in enumerate(cells):
        if path in members:
            if found and found[-1][1] == bounds[number]:
                found[-1] = (found[-1][0], bounds[number + 1])
            else:
                found.append((bounds[number], bounds[number + 1]))
    return tuple(found)


def _cut(whole: list[Path], rest: dict[Path, Path], cells: list[set[Path]]) -> None:
    """Append the cells of a region. `rest`: for each path that meets the region, what is left of it inside."""
    heads = {left[0] for left in rest.values() if left}
    if not heads:
        cells.append({path for path in whole if path in rest})
        return
    for region in _regions(heads):
        inside = {path: left[1:] for path, left in rest.items() if not left or _meets(left[0], region)}
        _cut(whole, inside, cells)


Region = tuple[str | None, int | None, tuple[int, int] | None]
"""A named part, a row and a span; None is what no part of that kind names."""


def _regions(heads: set[Piece]) -> list[Region]:
    names: list[str | None] = [*sorted({h.name for h in heads if isinstance(h, p.Named)}), None]
    rows: list[int | None] = [*sorted({h.number for h in heads if isinstance(h, Row)}), None]
    ends = sorted({end for h in heads if isinstance(h, p.Span) for end in (h.start, h.stop)})
    spans: list[tuple[int, int] | None] = [*zip(ends, ends[1:], strict=False), None]
    return [(name, row, span) for name in names for row in rows for span in spans]


def _meets(piece: Piece, region: Region) -> bool:
    name, row, span = region
    if isinstance(piece, p.Named):
        return name == piece.name
    if isinstance(piece, Row):
        return row == piece.number
    if isinstance(piece, p.Span):
        return span is not None and piece.start <= span[0] and span[1] <= piece.stop
    return True  # any part
