"""Blocks of the caching allocators in a periodic design: how many steps a reference keeps a block from its next owner.

A block goes back when its last reference ends: a local's drop, the rewrite of the cell slot that holds it, the drop
of what a queue gave back. From then on any allocation on the same stream may receive it (S62, S63), so every access of
the old owner must be ordered before every access of the new one, at the least number of steps between the two.
"""

from __future__ import annotations

from typing import Any

from fencepost.model import effects as fx
from fencepost.model import program as p
from fencepost.proofs.periodic.decide import at_least, either
from fencepost.proofs.periodic.graph import Graph, Touch
from fencepost.proofs.periodic.pairs import Pair
from fencepost.proofs.periodic.plan import Op
from fencepost.proofs.periodic.symbols import ONE, ZERO, Poly, Refused, poly_of
from fencepost.proofs.periodic.walks import NONE, Signs, Walk, walks

End = tuple[Poly, int]
"""Steps after the allocation, and the place in the turn."""


def pairs(graph: Graph, signs: Signs) -> list[Pair]:
    """The pairs of accesses to blocks: of one owner, and of an owner and the next."""
    touches = [touch for touch in graph.touches if touch.block is not None]
    if not touches:
        return []
    owners = list(dict.fromkeys(touch.block for touch in touches if touch.block is not None))
    if any(op.optional or op.start != ZERO or op.loop is not None or op.cls for op in owners):
        raise Refused("memory is allocated in some kinds of step only")
    if any(touch.node.period is not None for touch in touches):
        raise Refused("blocks are used on streams in rotation")
    cache: dict[int, dict[int, tuple[Walk, Walk]]] = {}

    def between(a: Touch, b: Touch) -> Walk:
        if a.node.number not in cache:
            cache[a.node.number] = walks(graph, a.node, signs)
        return cache[a.node.number].get(b.node.number, (NONE, NONE))[0]

    found: list[Pair] = []
    for old in owners:
        mine = [touch for touch in touches if touch.block is old]
        _defined(old, mine, between, signs, graph)
        free = _free(graph, old)
        noted = _noted(graph, old)
        for i, x in enumerate(mine):
            for y in mine[i + 1 :]:
                if "w" in (x.mode, y.mode) and x.node is not y.node and x.node.agent != y.node.agent:
                    found.append(_pair(graph, old, x, y, y.lag - x.lag, between(x, y), between(y, x)))
        for new in owners:
            if not _shares(graph, old, new):
                continue
            steps = free[0] + (ONE if new.place < free[1] else ZERO)
            for x in mine:
                for y in touches:
                    if y.block is new and "w" in (x.mode, y.mode) and not _waits_for(graph, x, noted):
                        life = steps + y.lag - x.lag
                        found.append(_pair(graph, old, x, y, life, between(x, y), None))
    return found


def _pair(graph: Graph, owner: Op, x: Touch, y: Touch, steps: Poly, there: Walk, back: Walk | None) -> Pair:
    ways = [at_least(steps, w) for w in there.serial] + ([at_least(-steps, w) for w in back.serial] if back else [])
    name = _name(graph, owner)
    return Pair(name, x, y, ONE, there, back or NONE, (None, None), (None, None), either(ways), steps, back is not None)


def _name(graph: Graph, op: Op) -> str:
    local: Any = op.operation
    name: str = graph.program.threads[op.thread].locals[local.local].name
    return name


def _shares(graph: Graph, old: Op, new: Op) -> bool:
    """Whether the allocator may give the one's block to the other."""
    a, b = old.operation, new.operation
    assert isinstance(a, p.Alloc) and isinstance(b, p.Alloc)
    if a.space != b.space or a.stream != b.stream:
        return False
    if a.stream is None and len({graph.program.threads[op.thread].process for op in (old, new)}) > 1:
        return False  # each process has a host allocator of its own (S80)
    if old.thread != new.thread:
        raise Refused("several threads allocate from one pool, in an order that is open")
    return True


def _defined(old: Op, mine: list[Touch], between: Any, signs: Signs, graph: Graph) -> None:
    """Every read comes after a write of the same owner. Raises `Refused` where that is not so for all values."""
    for r in (touch for touch in mine if touch.mode == "r"):
        written = (
            signs.nonnegative(r.lag - w.lag - weight)
            for w in mine
            if w.mode == "w" and w.part is None and not w.same_bytes and not (w.node.optional and not r.node.optional)
            for weight in between(w, r).serial
        )
        if not any(written):
            raise Refused(f"{_name(graph, old)!r} is not surely written before {r.node.label} reads it")


def _later(graph: Graph, a: End, b: End) -> End:
    """The later of two ends."""
    if a[0] == b[0]:
        return a if a[1] >= b[1] else b
    return a if graph.region.decide(a[0] - b[0] - (ONE if a[1] < b[1] else ZERO)) else b


def _free(graph: Graph, old: Op) -> End:
    """When the last reference ends, at the earliest."""
    local: Any = old.operation
    ends = _ends(graph, old, local.local, (ZERO, old.place), 0)
    free = ends[0]
    for end in ends[1:]:
        free = _later(graph, free, end)
    return free


def _ends(graph: Graph, holder: Op, local: int, since: End, depth: int) -> list[End]:
    """The end of each reference that starts with `local`, made by `holder` at `since`."""
    if depth > 6:
        raise Refused("a block is handed around in a circle")
    plan = graph.plans[holder.thread].ops
    drops = [op for op in plan if isinstance(op.operation, p.Drop) and op.operation.local == local]
    if not drops:
        raise Refused(f"{graph.program.threads[holder.thread].locals[local].name!r} is never released")
    ends: list[End] = [(since[0], min(op.place for op in drops))]
    for op in plan:
        operation = op.operation
        if isinstance(operation, p.View) and isinstance(operation.base, p.Local) and operation.base.id == local:
            ends += _ends(graph, op, operation.local, (since[0], op.place), depth + 1)
        if isinstance(operation, p.CellSet) and p.Local(local) in operation.values:
            if op.optional or op.start != ZERO:
                continue  # a reference that may not be there keeps nothing
            ends += _cell_ends(graph, op, since, depth)
        if isinstance(operation, p.Put) and p.Local(local) in operation.values and not op.optional:
            gets = [o for o in graph.by_type.get(p.Get, ()) if o.operation.queue == operation.queue]  # type: ignore[union-attr]
            if len(gets) != 1 or gets[0].thread != op.thread or gets[0].optional:
                raise Refused("a block is handed to another thread, or received at several places")
            get = gets[0]
            assert isinstance(get.operation, p.Get)
            received = get.operation.locals[operation.values.index(p.Local(local))]
            ends += _ends(graph, get, received, (since[0] + get.start - op.start, get.place), depth + 1)
    return ends


def _cell_ends(graph: Graph, op: Op, since: End, depth: int) -> list[End]:
    """When the cell lets go of what `op` stored: at its next rewrite or clearing of that slot."""
    cell: Any = op.operation
    enders = [
        o
        for kind in (p.CellSet, p.CellClear, p.CellGet)
        for o in graph.by_type.get(kind, ())
        if o.operation.cell.id == cell.cell.id and (kind is not p.CellGet or o.operation.take)  # type: ignore[union-attr]
    ]
    made: Any = graph.program.objects[cell.cell.id]
    first: End | None = None
    for other in enders:
        target: Any = other.operation
        least = ZERO if op.place < other.place else ONE
        weight = least
        if made.depth is not None:
            here, there = graph._index(op, cell.cell.index), graph._index(other, target.cell.index)
            if here.stride != ONE or there.stride != ONE:
                raise Refused(f"cell {made.name!r} is not taken once a step")
            weight = graph.nearest(here.base - there.base, poly_of(made.depth), least)
        end = (since[0] + weight, other.place)
        if isinstance(target, p.CellGet):
            raise Refused("a block is taken out of a cell")
        first = end if first is None else (end if _later(graph, first, end) == first else first)
    assert first is not None
    return [first]


def _noted(graph: Graph, old: Op) -> list[tuple[Op, p.Operand]]:
    """Streams that the allocator waits for before it gives the block away (S64, S79)."""
    found = []
    for op, effects in graph.effects:
        for effect in effects:
            if isinstance(effect, fx.NoteUse) and isinstance(effect.block, p.Local):
                try:
                    origin = graph._origin(op, effect.block.id)
                except Refused:
                    continue
                if origin.op is old:
                    found.append((op, effect.stream))
    return found


def _waits_for(graph: Graph, x: Touch, noted: list[tuple[Op, p.Operand]]) -> bool:
    """Whether a noted use covers the access: work queued on that stream before the free."""
    if x.node.agent[0] != "stream":
        return False
    owner: Any = x.block.operation if x.block is not None else None
    for op, stream in noted:
        there = isinstance(stream, p.Obj) and stream.id == x.node.agent[1] and stream != owner.stream
        if there and op.thread == x.node.op.thread and x.node.op.member <= op.member and op.start == ZERO:
            return True
    return False
