"""Programs that were read from JSON: whether every number in them leads somewhere, before an engine follows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from fencepost.model import program as p

_BY_ID: dict[str, type[p.Data]] = {
    "cursor": p.Cursor, "queue": p.Queue, "pool": p.Pool, "lock": p.Lock, "flag": p.Flag, "counter": p.Counter,
    "channel": p.Channel,
}  # fmt: skip
"""Fields of operations and questions that hold the number of an object."""

_OPERANDS: dict[str, tuple[type[p.Data], str | None]] = {
    "stream": (p.Stream, None), "other": (p.Stream, None), "cell": (p.Cell, None),
    "event": (p.Event, p.EVENT), "after": (p.Event, p.EVENT),
    "target": (p.Memory, p.MEMORY), "dst": (p.Memory, p.MEMORY), "src": (p.Memory, p.MEMORY),
    "base": (p.Memory, p.MEMORY), "block": (p.Memory, p.MEMORY),
}  # fmt: skip
"""Fields that hold an operand: what it is when it lives for ever, and its kind when it is a local of the thread."""


def fault(program: p.Program) -> str | None:
    """What is wrong with the program in a few words, None when nothing is.

    The tracer makes no such program; a file that was cut, merged or written by hand can hold one.
    """
    return next(_faults(program), None)


def _faults(program: p.Program) -> Iterator[str]:
    for thing in program.objects:
        for name in ("depth", "capacity", "size", "count"):
            number = getattr(thing, name, None)
            least = 0 if isinstance(thing, p.Lock) and thing.semaphore else 1
            if number is not None and number < least:
                yield f"{thing.name!r}: {name}={number}; it is at least {least}"
            if number is not None and number > p.MOST_SLOTS:
                yield f"{thing.name!r}: {name}={number}; it is at most {p.MOST_SLOTS:,}"
    if not program.threads:
        yield "it has no threads"
    for thread in program.threads:
        if thread.kind not in ("setup", "script", "loop"):
            yield f"thread {thread.name!r} is of the unknown kind {thread.kind!r}"
        # -1 is the end of the turn.
        targets = [thread.entry]
        for node in thread.nodes:
            targets += [node.next] if isinstance(node, p.Do) else [to for _, to in node.branches]
        wrong = [to for to in targets if not -1 <= to < len(thread.nodes)]
        if wrong:
            yield f"thread {thread.name!r} goes on at node {wrong[0]} of {len(thread.nodes)}"
        if _endless(thread):
            yield f"a turn of thread {thread.name!r} never ends"
        for info in thread.locals:
            if info.pool is not None:
                yield from _object(program, info.pool, p.Pool)
        for node in thread.nodes:
            yield from _of_value(program, thread, node)


def _endless(thread: p.Thread) -> bool:
    """Whether operations follow each other in a circle that asks no question, and so can never be left."""
    left: set[int] = set()
    for begin in range(len(thread.nodes)):
        here: set[int] = set()
        at = begin
        while at != -1 and at not in left:
            node = thread.nodes[at]
            if at in here:
                return True
            here.add(at)
            if isinstance(node, p.Ask):
                break
            at = node.next
        left |= here
    return False


def _of_value(program: p.Program, thread: p.Thread, value: Any) -> Iterator[str]:
    """Faults of a node, an operation, a question or anything that these are made of."""
    if isinstance(value, tuple):
        for one in value:
            yield from _of_value(program, thread, one)
        return
    if not isinstance(value, p.Data):
        return
    if isinstance(value, (p.Obj, p.Slot)):
        yield from _object(program, value.id, p.Data)
    elif isinstance(value, p.Local):
        yield from _local(thread, value.id)
    yield from _handed_over(program, thread, value)
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if name in _BY_ID:
            flag = isinstance(value, (p.StoreFlag, p.WaitFlag)) and name == "flag"
            yield from _object(program, field, p.DeviceFlag if flag else _BY_ID[name])
        elif name == "local":
            yield from _local(thread, field)
        elif name == "locals":
            for number in field:
                yield from _local(thread, number)
        else:
            yield from _of_value(program, thread, field)
            if name in _OPERANDS and field is not None:
                yield from _operand(program, thread, field, *_OPERANDS[name])


def _object(program: p.Program, number: int, kind: type[p.Data]) -> Iterator[str]:
    if not 0 <= number < len(program.objects):
        yield f"object {number} of {len(program.objects)}"
    elif not isinstance(program.objects[number], kind):
        yield f"{program.objects[number].name!r} is used as {_article(kind)}"


def _local(thread: p.Thread, number: int) -> Iterator[str]:
    if not 0 <= number < len(thread.locals):
        yield f"thread {thread.name!r} uses local {number} of {len(thread.locals)}"


def _handed_over(program: p.Program, thread: p.Thread, value: Any) -> Iterator[str]:
    """A put or get whose values are not as many, or whose locals are not of the kinds, that the item has; a question of other tags."""
    if isinstance(value, p.Ask):
        source = _named(program, value.question.queue, p.Queue) if isinstance(value.question, p.QueueTag) else None
        if source is not None and {answer for answer, _ in value.branches} != {tag for tag, _ in source.items}:
            yield f"thread {thread.name!r} tells other items of {source.name!r} apart than it has"
        return
    if isinstance(value, (p.Put, p.Get)):
        queue = _named(program, value.queue, p.Queue)
        wanted = dict(queue.items).get(value.tag) if queue is not None else None
        name, tag = getattr(queue, "name", "?"), value.tag
        if queue is not None and wanted is None:
            yield f"thread {thread.name!r} names an item {tag!r} of {name!r}, which has none"
    elif isinstance(value, (p.CellSet, p.CellGet)) and isinstance(value.cell, (p.Obj, p.Slot)):
        cell = _named(program, value.cell.id, p.Cell)
        name, wanted = getattr(cell, "name", "?"), cell.item if cell is not None else None
    else:
        return
    if wanted is None:
        return
    if isinstance(value, (p.Put, p.CellSet)):
        if len(value.values) != len(wanted):
            yield f"thread {thread.name!r} puts {len(value.values)} values into {name!r}, whose items are ({', '.join(wanted)})"
        return
    given = tuple(thread.locals[number].kind for number in value.locals if 0 <= number < len(thread.locals))
    if given != tuple(wanted):
        yield f"thread {thread.name!r} gets ({', '.join(given)}) from {name!r}, whose items are ({', '.join(wanted)})"


_Named = TypeVar("_Named", bound=p.Data)


def _named(program: p.Program, number: int, kind: type[_Named]) -> _Named | None:
    """The object of that number if it is one of that kind; if it is not, that is told elsewhere."""
    thing = program.objects[number] if 0 <= number < len(program.objects) else None
    return thing if isinstance(thing, kind) else None


def _operand(
    program: p.Program, thread: p.Thread, operand: p.Operand, kind: type[p.Data], local: str | None
) -> Iterator[str]:
    if isinstance(operand, p.Local):
        info = thread.locals[operand.id]
        if info.kind != local:
            yield f"local {info.name!r} of thread {thread.name!r} is used as {_article(kind)}"
        return
    yield from _object(program, operand.id, kind)
    if isinstance(operand, p.Slot) and getattr(program.objects[operand.id], "depth", None) is None:
        yield f"{program.objects[operand.id].name!r} has no slots and is used with an index"


def _article(kind: type[p.Data]) -> str:
    name = "device flag" if kind is p.DeviceFlag else kind.__name__.lower()
    return f"{'an' if kind is p.Event else 'a'} {name}"
