"""Which bytes an access touches: a key that names the buffer, and parts in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Union

from fencepost.model import program as p


class Row(NamedTuple):
    """`buf[r]` with the index or handle known."""

    number: int


Piece = Union[p.Named, p.Span, p.Anything, Row]
Path = tuple[Piece, ...]
"""A part of a part of ...; empty is the whole buffer. A view of a part narrows once more at every use (`narrowed`)."""


class Key(NamedTuple):
    """A buffer. `kind` "memory" (slot `number` of object `id`), "pool" (token of pool `id`), "block" (allocator's
    block `number` as the run names it) or "fresh" (a block that nothing else in the run shares)."""

    kind: str
    id: int
    number: int


class Ref(NamedTuple):
    """A reference to memory, as locals, queue items and cells hold it."""

    key: Key
    path: Path = ()
    tenant: int | None = None
    """The allocation that it belongs to; None for memory that no caching allocator handed out."""
    attributed: bool = True
    """Whether the host allocator can tell whose bytes a copy uses (S84)."""
    held: bool = True
    """Whether it keeps the allocation alive; a raw pointer does not, and reaches whoever has the bytes."""


class EventKey(NamedTuple):
    """An event: slot of an object, or (-1, n) for the n-th one made in a body."""

    id: int
    slot: int


Value = Union[Ref, EventKey, int]


def narrowed(path: Path, piece: Piece) -> Path:
    """A part of the part `path`; a span of a span is one span, so that it can be compared with others of the buffer."""
    if path and isinstance(piece, p.Span) and isinstance(path[-1], p.Span):
        return (*path[:-1], path[-1].narrowed(piece))
    return (*path, piece)


def pieces_overlap(a: Piece, b: Piece) -> bool:
    """Named parts of different names, spans without a common element and rows of different index are disjoint."""
    if isinstance(a, p.Named) and isinstance(b, p.Named):
        return a.name == b.name
    if isinstance(a, p.Span) and isinstance(b, p.Span):
        return max(a.start, b.start) < min(a.stop, b.stop)
    if isinstance(a, Row) and isinstance(b, Row):
        return a.number == b.number
    return True  # an unknown part, or two ways of cutting that cannot be compared


def paths_overlap(a: Path, b: Path) -> bool:
    """Whether two parts of one buffer may share a byte."""
    for x, y in zip(a, b):  # noqa: B905  a shorter path is the larger part
        if not pieces_overlap(x, y):
            return False
        if x != y or isinstance(x, p.Anything):
            return True  # they may share bytes here, and what lies below is measured differently
    return True


def covers(a: Path, b: Path) -> bool:
    """Whether part `a` surely contains part `b`."""
    for depth, x in enumerate(a):
        if depth >= len(b):
            return False
        y = b[depth]
        if isinstance(x, p.Anything):
            return False
        if x == y:
            continue
        inside = isinstance(x, p.Span) and isinstance(y, p.Span) and x.start <= y.start and y.stop <= x.stop
        return inside and depth == len(a) - 1
    return True


class Cuts(NamedTuple):
    """How a program's parts cut the blocks of its allocators: the names, and elementary spans from the first byte on."""

    names: tuple[str, ...]
    spans: tuple[p.Span, ...]


_NESTED = 2
"""How often a view of a part of a view of a part is taken into account."""


def cuts(program: p.Program) -> Cuts:
    """The cuts by all parts of what bodies make or receive. Names are taken to cover the whole."""
    names: set[str] = set()
    spans: set[p.Span] = set()
    kept: set[p.Span] = set()
    sizes: set[int] = set()
    for thread in program.threads:
        for node in thread.nodes:
            operation = node.operation if isinstance(node, p.Do) else None
            if isinstance(operation, p.Alloc):
                sizes.add(operation.bytes)
            for operand in _locals(operation):
                if isinstance(operand.part, p.Named):
                    names.add(operand.part.name)
                elif isinstance(operand.part, p.Span):
                    spans.add(operand.part)
                    if isinstance(operation, (p.View, p.Put, p.CellSet)):
                        kept.add(operand.part)
    for _ in range(_NESTED if kept else 0):
        spans |= {outer.narrowed(inner) for outer in kept for inner in spans}
        kept |= {outer.narrowed(inner) for outer in kept for inner in kept}
    edges = {end for span in spans for end in (span.start, span.stop)}
    if edges and sizes:
        edges |= {0, *sizes}
    ends = sorted(edges)
    return Cuts(tuple(sorted(names)), tuple(p.Span(a, b) for a, b in zip(ends, ends[1:])))  # noqa: B905  neighbours


def _locals(value: object) -> Iterator[p.Local]:
    """The locals that are named anywhere in an operation."""
    if isinstance(value, p.Local):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _locals(one)
    elif isinstance(value, p.Data):
        for name in value.__struct_fields__:
            yield from _locals(getattr(value, name))


def asked(read: tuple[object, ...], by: Cuts, size: int) -> tuple[p.Named | p.Span | None, ...]:
    """The pieces of a read that must each have been written before; None: the read as it is, whatever part of it was.

    A part of a part counts as the larger one here, but for spans of spans. `size`: of the allocation, in bytes.
    """
    if not read:
        return (*(p.Named(name) for name in by.names), *(span for span in by.spans if span.stop <= size)) or (None,)
    first = read[0]
    if isinstance(first, p.Span):
        inside = tuple(span for span in by.spans if first.start <= span.start and span.stop <= first.stop)
        return inside or ((None,) if first.start < first.stop else ())
    return (first,) if isinstance(first, p.Named) else (None,)


def gives(write: Path, read: Path, piece: Piece | None) -> bool:
    """Whether a write may have given a piece of a read its content; ways of cutting that cannot be compared may."""
    return paths_overlap(write[:1], read[:1]) if piece is None else not write or pieces_overlap(write[0], piece)
