"""Which part of an object a local refers to, as far as what narrowed it on the way is the same every time."""

from __future__ import annotations

from typing import Any, Union

from fencepost.model import program as p

_Part = Union[p.Span, str, None]
"""The span that a reference is narrowed to; `_WHOLE`; None: to some part, nobody knows where in it a further part lies."""
_WHOLE = "whole"


class Narrowed(dict[tuple[int, int], "p.Span | None"]):
    """By (thread, local), of every local that may refer to a part of what it names, kept or handed over as a part somewhere: the span
    that it surely is, None where that is not known."""

    def absolute(self, t: int, operand: Any) -> p.Part | None:
        """The part of an operand, counted from the first element of the object; None: of a narrowed local all that it refers to."""
        part: p.Part | None = getattr(operand, "part", None)
        if not self or part is None or type(operand) is not p.Local or (t, operand.id) not in self:
            return part
        of = self[t, operand.id]
        return of.narrowed(part) if of is not None and type(part) is p.Span else None


def narrowed(program: p.Program) -> Narrowed:
    """What the views, puts and cells of the program narrow."""
    if not any(_keeps_part(node) for thread in program.threads for node in thread.nodes):
        return Narrowed()
    moves: list[tuple[tuple[Any, ...] | None, p.Part | None, tuple[Any, ...]]] = []
    for t, thread in enumerate(program.threads):
        for node in thread.nodes:
            if type(node) is p.Do:
                moves += _moves(t, node.operation)
    found: dict[tuple[Any, ...], _Part] = {}
    changed = True
    while changed:
        changed = False
        for source, part, to in moves:
            if source is not None and source not in found:
                continue
            now = _narrow(_WHOLE if source is None else found[source], part)
            if to in found and found[to] != now:
                now = None
            if to not in found or found[to] != now:
                found[to] = now
                changed = True
    return Narrowed({
        (place[1], place[2]): None if isinstance(part, str) else part
        for place, part in found.items() if place[0] == "local" and part != _WHOLE
    })  # fmt: skip


def _keeps_part(node: p.Node) -> bool:
    return type(node) is p.Do and any(getattr(value, "part", None) is not None for _, value in _kept(node.operation))


def _kept(operation: p.Operation) -> list[tuple[tuple[Any, ...], Any]]:
    """What an operation makes a reference to, with the place of that but for the thread."""
    if type(operation) is p.View:
        return [(("local", operation.local), operation.base)]
    if type(operation) is p.Put:
        return [(("queue", operation.queue, operation.tag, k), value) for k, value in enumerate(operation.values)]
    if type(operation) is p.CellSet and type(operation.cell) is not p.Local:
        return [(("cell", operation.cell.id, k), value) for k, value in enumerate(operation.values)]
    return []


def _moves(t: int, operation: p.Operation) -> list[tuple[tuple[Any, ...] | None, p.Part | None, tuple[Any, ...]]]:
    """Hand-overs of references: from where, None for what is made; narrowed to what part; to where."""
    if type(operation) is p.Alloc or type(operation) is p.Take:
        return [(None, None, ("local", t, operation.local))]
    if type(operation) is p.Get:
        return [(("queue", operation.queue, operation.tag, k), None, ("local", t, one)) for k, one in enumerate(operation.locals)]
    if type(operation) is p.CellGet and type(operation.cell) is not p.Local:
        return [(("cell", operation.cell.id, k), None, ("local", t, one)) for k, one in enumerate(operation.locals)]
    result: list[tuple[tuple[Any, ...] | None, p.Part | None, tuple[Any, ...]]] = []
    for place, value in _kept(operation):
        to = ("local", t, place[1]) if place[0] == "local" else place
        source = ("local", t, value.id) if type(value) is p.Local else None
        result.append((source, getattr(value, "part", None), to))
    return result


def _narrow(of: _Part, part: p.Part | None) -> _Part:
    if part is None:
        return of
    if type(part) is not p.Span:
        return None
    return part if of == _WHOLE else of.narrowed(part) if isinstance(of, p.Span) else None
