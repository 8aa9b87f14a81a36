"""Programs that were read from JSON: whether every number in them leads somewhere, before an engine follows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
            yield from _received(program, thread, value)
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


def _received(program: p.Program, thread: p.Thread, value: Any) -> Iterator[str]:
    """A get whose locals are not of the kinds that the item has."""
    if isinstance(value, p.Get) and 0 <= value.queue < len(program.objects):
        source, items = program.objects[value.queue], dict(getattr(program.objects[value.queue], "items", ()))
        wanted = items.get(value.tag)
        if wanted is None and isinstance(source, p.Queue):
            yield f"thread {thread.name!r} gets an item {value.tag!r} from {source.name!r}, which has none"
    elif isinstance(value, p.CellGet) and 0 <= value.cell.id < len(program.objects):
        source = program.objects[value.cell.id]
        wanted = getattr(source, "item", None)
    else:
        return
    given = tuple(thread.locals[number].kind for number in value.locals if 0 <= number < len(thread.locals))
    if wanted is not None and given != wanted:
        yield f"thread {thread.name!r} gets ({', '.join(given)}) from {source.name!r}, whose items are ({', '.join(wanted)})"


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
