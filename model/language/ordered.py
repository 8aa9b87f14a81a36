"""Memory that is allocated and freed in the order of streams (cudaMallocAsync, S38, S76)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fencepost.model import program as p
from fencepost.model.language.errors import fail, here
from fencepost.model.language.objects import Stream, Tensor
from fencepost.model.language.tracer import Life

if TYPE_CHECKING:
    from fencepost.model.language.design import Design

_FREE = "free "
"""How the items that end ordered memory are called."""


class Ordered(Tensor):
    """Memory that is allocated and freed in the order of streams: its free is a call, whoever still refers to it."""

    def release(self) -> None:
        """Only for the reference that is left when another was handed over."""
        if self._life is not None and self._life.dead is None and not _handed_over(self._life):
            fail(f"{self._name!r} is from d.malloc_async; end it with {self._name}.free_async(stream), or hand it over first")
        super().release()


def _handed_over(life: Life) -> bool:
    return any(other is None for _, other in life.others)


def _must_end(life: Life, place: str) -> Callable[[int | None], None]:
    """At the end of its scope: the memory was freed, or handed to somebody who frees it. A leak is none that others may get."""

    def ending(site: int | None) -> None:
        held = any(life is one for frame in life.recording.frames for one in frame.held)  # the call may have kept it
        if life.dead is None and not held and not _handed_over(life):
            fail(f"{life.name!r} is neither freed nor handed over when its turn or scope ends; call free_async(stream)", place)

    return ending


def malloc_async(design: Design, name: str, size: int, stream: Stream | None) -> Ordered:
    """Memory of the device's own pool, which no caching allocator's blocks get into (S62, S76)."""
    recording = design._running()
    if recording.capturing is not None:
        fail(f"{name!r}: d.malloc_async inside a capture, a memory node, is not in the language; allocate before the capture")
    stream = stream or design.current_stream()
    where = design._stream(stream, recording)
    # One for each stream is enough: who is in order with allocation and free is so with the block's other owners.
    pool = f"memory pool of {stream.name}"
    number = design._made(p.Stream(pool, None, design._gpu_of(stream), False, design._process()))
    design._pools_of_streams.add(number)
    tensor = design.empty(name, bytes=size, stream=Stream(design, pool, number))
    recording.do(p.Launch(f"malloc {name}", where, (p.Access(tensor._operand(recording), "w"),), None, False))
    life = tensor._life
    assert life is not None
    frame = next(one for one in recording.frames if life in one.held)
    frame.endings.append(_must_end(life, here()))
    return Ordered(design, name, "device", tensor._id, life=life)


def free_async(tensor: Tensor, stream: Stream | None) -> None:
    """cudaFreeAsync: the block may have another owner from this point of the stream on (S38, S76).

    Allocation and free are items of their streams that access the bytes. So whoever uses them in front of the one or behind the
    other, or unordered with either, is in conflict, whether or not the block is handed out again; an allocation gets it behind
    the free. The content counts as defined from the allocation on (errs on missed bugs: reads of what nobody has written).
    It ends the bytes for all: it is refused while a view or a queue still refers to them, and who handed the memory over may not
    use it any more; raw pointers (`view(held=False)`) may be left over, and their use is a hazard. What is neither freed
    nor handed over is refused.
    """
    design = tensor._design
    recording = design._running()
    if tensor._life is None:
        fail(f"{tensor.name!r} lives for ever; free_async ends what d.malloc_async made")
    if tensor._pool is not None:
        fail(f"{tensor.name!r} is a token of a pool; give it back with pool.give(..., after=event)")
    if tensor._part is not None:
        fail(f"a part of {tensor.name!r} cannot be freed; free the whole")
    if tensor._space and not isinstance(tensor, Ordered):
        fail(f"{tensor.name!r} is not from d.malloc_async; let go of it with release()")
    for what, other in tensor._life.others:
        if tensor._life.dead is None and (other is None or other.dead is None):
            fail(
                f"{tensor.name!r} is freed while {what} refers to it, and its bytes end for all; "
                + ("make views of it with held=False" if other is not None else "free it where it is received, or taken out for good")
            )
    where = design._stream(stream, recording)
    operand = tensor._operand(recording)
    with recording.implied():
        recording.do(p.RecordStream(operand, where))
    recording.do(p.Launch(f"{_FREE}{tensor.name}", where, (p.Access(operand, "r"), p.Access(operand, "w")), None, False))
    recording.release(tensor._life)


# ------------------------------------------------------------ the whole design


def check(design: Design, threads: tuple[p.Thread, ...]) -> None:
    """Refuse ordered memory that is used after it was freed or handed over, freed by whom it is not, or lost.

    Each such local has one reference that counts, so a free ends the memory for all.
    """
    pools = design._pools_of_streams
    if not pools:
        return
    carried: set[tuple[Any, ...]] = set()
    while True:
        known = len(carried)
        for thread in threads:
            ordered = _ordered(thread, pools, carried)
            for _, operation in _operations(thread):
                for position, value in _given(operation):
                    if isinstance(value, p.Local) and value.id in ordered:
                        carried.add((*_place(operation), position))
        if len(carried) == known:
            break
    for thread in threads:
        ordered = _ordered(thread, pools, carried)
        for node, operation in _operations(thread):
            for position, value in _given(operation):
                if (*_place(operation), position) in carried and not (isinstance(value, p.Local) and value.id in ordered):
                    _fail(design, thread, node, "hands over other memory where memory of d.malloc_async is handed over too; use places of their own")
            if _frees(operation) is not None and _frees(operation) not in ordered:
                _fail(design, thread, node, "frees what is not from d.malloc_async; let go of it with release()")
        for root in ordered:
            _check(design, thread, root)


def _check(design: Design, thread: p.Thread, root: int) -> None:
    """The reference `root` of one thread: ended once on every path, and not used behind that."""
    group, makers = {root}, set()
    for _, operation in _operations(thread):
        if isinstance(operation, p.View) and operation.held and isinstance(operation.base, p.Local) and operation.base.id in group:
            group.add(operation.local)
    for node, operation in _operations(thread):
        if (isinstance(operation, p.Alloc) and operation.local == root) or root in _taken(operation):
            makers.add(node)
    name = thread.locals[root].name
    ends = {node for node, operation in _operations(thread) if _ends(operation, group)}
    behind = _reachable(thread, ends, makers)
    for node, operation in _operations(thread):
        if node in behind and not isinstance(operation, p.Drop) and _uses(operation) & group:
            _fail(
                design, thread, node,
                f"uses {name!r} after it was freed or handed over, when its bytes may have ended; use it before, or a raw pointer "
                f"made before: {name}.view(held=False)",
            )
    if p.END in _reachable(thread, makers, ends | makers):
        _fail(design, thread, min(makers), f"gets {name!r}, and on some path neither frees nor hands it over; call free_async(stream)")


def _fail(design: Design, thread: p.Thread, node: int, what: str) -> None:
    fail(f"thread {thread.name!r} {what}", design._sites.place(thread.nodes[node].site))


def _operations(thread: p.Thread) -> list[tuple[int, p.Operation]]:
    return [(i, node.operation) for i, node in enumerate(thread.nodes) if isinstance(node, p.Do)]


def _given(operation: p.Operation) -> Iterator[tuple[int, Any]]:
    if isinstance(operation, (p.Put, p.CellSet)):
        yield from enumerate(operation.values)


def _taken(operation: p.Operation) -> tuple[int, ...]:
    return operation.locals if isinstance(operation, (p.Get, p.CellGet)) else ()


def _place(operation: p.Operation) -> tuple[Any, ...]:
    """Where an item goes to or comes from."""
    if isinstance(operation, (p.Put, p.Get)):
        return ("queue", operation.queue, operation.tag)
    assert isinstance(operation, (p.CellSet, p.CellGet))
    return ("cell", operation.cell.id)


def _frees(operation: p.Operation) -> int | None:
    """The local whose memory it frees."""
    if isinstance(operation, p.Launch) and not operation.kernel and operation.name.startswith(_FREE) and len(operation.accesses) == 2:
        return operation.accesses[0].target.id
    return None


def _ends(operation: p.Operation, group: set[int]) -> bool:
    given = any(isinstance(value, p.Local) and value.id in group for _, value in _given(operation))
    return given or _frees(operation) in group


def _ordered(thread: p.Thread, pools: set[int], carried: set[tuple[Any, ...]]) -> set[int]:
    """The locals that are made by d.malloc_async or receive such memory."""
    found: set[int] = set()
    for _, operation in _operations(thread):
        if isinstance(operation, p.Alloc) and isinstance(operation.stream, p.Obj) and operation.stream.id in pools:
            found.add(operation.local)
        for position, local in enumerate(_taken(operation)):
            if (*_place(operation), position) in carried:
                found.add(local)
    return found


def _uses(value: Any) -> set[int]:
    """The locals that are named anywhere in an operation but for those that it makes."""
    if isinstance(value, p.Local):
        return {value.id}
    if isinstance(value, (p.Get, p.CellGet)):
        return set()
    if isinstance(value, tuple):
        return {one for x in value for one in _uses(x)}
    fields = getattr(value, "__struct_fields__", ())
    return {one for field in fields for one in _uses(getattr(value, field))}


def _reachable(thread: p.Thread, starts: set[int], stops: set[int]) -> set[int]:
    """The nodes (and `END`) behind `starts`, up to and without passing `stops`."""
    found: set[int] = set()
    todo = [after for start in starts for after in _after(thread, start)]
    while todo:
        node = todo.pop()
        if node in found:
            continue
        found.add(node)
        if node != p.END and node not in stops:
            todo += _after(thread, node)
    return found


def _after(thread: p.Thread, node: int) -> list[int]:
    at = thread.nodes[node]
    return [at.next] if isinstance(at, p.Do) else [n for _, n in at.branches]
