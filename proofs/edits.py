"""Small changes to a program: an operation put in front of a node, a synchronisation taken away, a ring resized.

They serve the questions "what closes this hazard", "what protects this object" and "with which margin". An edited
program is a program like any other: the same engine decides it.
"""

from __future__ import annotations

import msgspec
from fencepost.model import program as p
from fencepost.model.operations import Context

SYNCHRONISATIONS = (p.EventSync, p.StreamWaitEvent, p.WaitStream, p.StreamSync, p.DeviceSync, p.RecordStream)
"""Operations that exist only for the edge that they make."""


def writable(program: p.Program, t: int, op: p.Operation) -> bool:
    """Whether a body of thread `t` could say this: not of what the language keeps to itself, nor of another process's streams."""
    thread = program.threads[t]
    own = set(program.own or ())
    named = [value for name in op.__struct_fields__ if isinstance(value := getattr(op, name), (p.Obj, p.Slot))]
    things = [program.objects[one.id] for one in named if one.id < len(program.objects)]
    if any(one.id in own for one in named):
        return False
    if any(isinstance(thing, p.Stream) and thing.process not in ("", thread.process) for thing in things):
        return False
    foreign = {
        one.id
        for one, thing in zip(named, things, strict=False)
        if isinstance(thing, p.Event) and thing.process not in ("", thread.process)
    }
    if foreign and foreign - {x.id for x in _named(thread.nodes)}:
        return False  # an event of another process is known here only where it was handed over (S140)
    waits = op.stream if isinstance(op, p.StreamSync) else op.other if isinstance(op, p.WaitStream) else None
    agent = program.objects[waits.id] if isinstance(waits, (p.Obj, p.Slot)) else None
    if isinstance(agent, p.Stream) and agent.is_agent:
        return False  # it is waited for by the handles of its posts
    if isinstance(op, p.Record):
        if any(isinstance(thing, p.Stream) and thing.is_agent for thing in things):
            return False  # nothing can be recorded there: its posts give the handles
        gpus = {thing.gpu for thing in things if isinstance(thing, (p.Event, p.Stream)) and thing.gpu >= 0}
        return len(gpus) < 2  # S25
    if isinstance(op, p.RecordStream):
        return Context(program, thread).homes(op.block) <= {thread.process}  # S72
    return True


def _named(value: object) -> list[p.Obj | p.Slot]:
    """The objects that operations name."""
    if isinstance(value, (p.Obj, p.Slot)):
        return [value]
    if isinstance(value, p.Data):
        return [x for field in value.__struct_fields__ for x in _named(getattr(value, field))]
    if isinstance(value, tuple):
        return [x for one in value for x in _named(one)]
    return []


def before_call(thread: p.Thread, n: int) -> int:
    """The first node of the call that node `n` is of: nothing can be put between the operations of one call."""
    before: dict[int, list[int]] = {i: [] for i in range(len(thread.nodes))}
    for k, node in enumerate(thread.nodes):
        for after in set(_following(node)) - {p.END}:
            before[after].append(k)
    return _end_of_call(thread, n, before)


def behind_call(thread: p.Thread, n: int) -> int:
    """The last node of the call that node `n` is of."""
    return _end_of_call(thread, n, {i: list(_following(node)) for i, node in enumerate(thread.nodes)})


def _end_of_call(thread: p.Thread, n: int, after: dict[int, list[int]]) -> int:
    seen = {_kind(thread.nodes[n])}
    while len(after[n]) == 1:
        other = thread.nodes[after[n][0]]
        if after[n][0] < 0 or not isinstance(other, p.Do) or other.site < 0 or other.site != getattr(thread.nodes[n], "site", -1):
            break
        if isinstance(other.operation, p.Drop) or _kind(other) in seen:
            break  # the call again, in a loop of the text
        n = after[n][0]
        seen.add(_kind(other))
    return n


def _kind(node: p.Node) -> tuple[object, ...]:
    """What tells the operations of one call apart, whatever slots they are of."""
    op = node.operation if isinstance(node, p.Do) else node.question
    ids = [getattr(value, "id", None) for name in op.__struct_fields__ if isinstance(value := getattr(op, name), (p.Obj, p.Slot, p.Local))]
    return (type(op), getattr(op, "name", None), *ids)


def _following(node: p.Node) -> tuple[int, ...]:
    return (node.next,) if isinstance(node, p.Do) else tuple(after for _, after in node.branches)


def _with_thread(program: p.Program, t: int, thread: p.Thread) -> p.Program:
    return msgspec.structs.replace(program, threads=(*program.threads[:t], thread, *program.threads[t + 1 :]))


def insert_before(program: p.Program, t: int, node: int, operation: p.Operation) -> p.Program:
    """The program with `operation` run right before `node` of thread `t`; the other nodes keep their numbers."""
    thread = program.threads[t]
    new = len(thread.nodes)

    def to(n: int) -> int:
        return new if n == node else n

    nodes: list[p.Node] = []
    for old in thread.nodes:
        if isinstance(old, p.Do):
            nodes.append(msgspec.structs.replace(old, next=to(old.next)))
        else:
            nodes.append(msgspec.structs.replace(old, branches=tuple((a, to(n)) for a, n in old.branches)))
    nodes.append(p.Do(operation, node, getattr(thread.nodes[node], "site", -1)))
    return _with_thread(program, t, msgspec.structs.replace(thread, nodes=tuple(nodes), entry=to(thread.entry)))


def without(program: p.Program, t: int, node: int) -> p.Program:
    """The program with the synchronisation at `node` replaced by host code that accesses nothing."""
    thread = program.threads[t]
    old = thread.nodes[node]
    assert isinstance(old, p.Do)
    nodes = list(thread.nodes)
    nodes[node] = msgspec.structs.replace(old, operation=p.Host("removed", ()))
    return _with_thread(program, t, msgspec.structs.replace(thread, nodes=tuple(nodes)))


def without_channel(program: p.Program, channel: int) -> p.Program:
    """The program in which nobody signals or awaits on a channel: without the edges that its meetings make."""
    for t, thread in enumerate(program.threads):
        for n, node in enumerate(thread.nodes):
            if isinstance(node, p.Do) and isinstance(node.operation, (p.Signal, p.Await)) and node.operation.channel == channel:
                program = without(program, t, n)
    return program


def ring_group(program: p.Program, oid: int) -> tuple[set[int], set[tuple[int, int]]] | None:
    """What has to change with the depth of ring `oid`: (objects, index locals as (thread, local)).

    A ring indexed by turns changes alone; one indexed by a cursor with the cursor and every ring that moves with it.
    None where the depth is no free number: an index that travelled through a queue or cell, or a constant slot.
    """
    sources: dict[tuple[int, int], int] = {}
    for t, thread in enumerate(program.threads):
        for node in thread.nodes:
            if isinstance(node, p.Do) and isinstance(node.operation, p.Advance):
                sources[t, node.operation.local] = node.operation.cursor
    slots = [(t, s) for t, thread in enumerate(program.threads) for s in _slots(thread.nodes)]
    objects = {oid}
    while True:
        before = len(objects)
        for t, slot in slots:
            index = slot.index
            if isinstance(index, p.Var):
                cursor = sources.get((t, index.local))
            elif isinstance(index, p.Last):
                cursor = index.cursor
            else:
                cursor = None
            if slot.id in objects:
                if isinstance(index, p.Fixed) or (isinstance(index, p.Var) and cursor is None):
                    return None
                objects |= {cursor} if cursor is not None else set()
            elif cursor in objects:
                objects.add(slot.id)
        if len(objects) == before:
            return objects, {at for at, cursor in sources.items() if cursor in objects}


def resized(program: p.Program, oid: int, depth: int) -> p.Program:
    """The program with ring `oid`, and what moves with it, at another depth (see `ring_group`)."""
    group = ring_group(program, oid)
    assert group is not None
    moved, locals_ = group
    objects = tuple(msgspec.structs.replace(o, depth=depth) if i in moved else o for i, o in enumerate(program.objects))
    threads = tuple(
        msgspec.structs.replace(
            thread,
            locals=tuple(
                msgspec.structs.replace(info, depth=depth) if (t, i) in locals_ else info
                for i, info in enumerate(thread.locals)
            ),
        )
        for t, thread in enumerate(program.threads)
    )
    return msgspec.structs.replace(program, objects=objects, threads=threads)


def _slots(value: object) -> list[p.Slot]:
    if isinstance(value, p.Slot):
        return [value]
    if isinstance(value, p.Data):
        return [s for name in value.__struct_fields__ for s in _slots(getattr(value, name))]
    if isinstance(value, tuple):
        return [s for one in value for s in _slots(one)]
    return []


def insert_after(program: p.Program, t: int, node: int, operation: p.Operation) -> p.Program:
    """The program with `operation` run right behind the operation at `node` of thread `t`, on that path alone."""
    thread = program.threads[t]
    old = thread.nodes[node]
    assert isinstance(old, p.Do)
    nodes = list(thread.nodes)
    nodes[node] = msgspec.structs.replace(old, next=len(nodes))
    nodes.append(p.Do(operation, old.next, old.site))
    return _with_thread(program, t, msgspec.structs.replace(thread, nodes=tuple(nodes)))


def replaced(program: p.Program, t: int, node: int, operation: p.Operation) -> p.Program:
    """The program with another operation at `node` of thread `t`."""
    thread = program.threads[t]
    old = thread.nodes[node]
    assert isinstance(old, p.Do)
    nodes = list(thread.nodes)
    nodes[node] = msgspec.structs.replace(old, operation=operation)
    return _with_thread(program, t, msgspec.structs.replace(thread, nodes=tuple(nodes)))


def with_object(program: p.Program, new: p.Object) -> tuple[p.Program, int]:
    """The program with one object more, and its number."""
    return msgspec.structs.replace(program, objects=(*program.objects, new)), len(program.objects)


def with_local(program: p.Program, t: int, info: p.LocalInfo) -> tuple[p.Program, int]:
    """The program with one local more in thread `t`, and its number."""
    thread = program.threads[t]
    changed = msgspec.structs.replace(thread, locals=(*thread.locals, info))
    return _with_thread(program, t, changed), len(thread.locals)


def indices(value: object) -> set[int]:
    """The cursors whose latest position an operation uses."""
    return {slot.index.cursor for slot in _slots(value) if isinstance(slot.index, p.Last)}


def slots(value: object) -> list[p.Slot]:
    """The ring slots that an operation, or a part of one, names."""
    return _slots(value)


def at_turn_end(program: p.Program, t: int, operation: p.Operation) -> p.Program:
    """The program with `operation` run at the end of every turn of thread `t`."""
    thread = program.threads[t]
    new = len(thread.nodes)
    nodes: list[p.Node] = []
    for old in thread.nodes:
        if isinstance(old, p.Do):
            nodes.append(msgspec.structs.replace(old, next=new) if old.next == p.END else old)
        else:
            branches = tuple((a, new if n == p.END else n) for a, n in old.branches)
            nodes.append(msgspec.structs.replace(old, branches=branches))
    nodes.append(p.Do(operation, p.END))
    return _with_thread(program, t, msgspec.structs.replace(thread, nodes=tuple(nodes)))
