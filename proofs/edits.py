"""Small changes to a program: an operation put in front of a node, a synchronisation taken away, a ring resized.

They serve the questions "what closes this hazard", "what protects this object" and "with which margin". An edited
program is a program like any other: the same engine decides it.
"""

from __future__ import annotations

import msgspec
from fencepost.model import program as p

SYNCHRONISATIONS = (p.EventSync, p.StreamWaitEvent, p.WaitStream, p.StreamSync, p.DeviceSync, p.RecordStream)
"""Operations that exist only for the edge that they make."""


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


def resized(program: p.Program, oid: int, depth: int) -> p.Program:
    """The program with ring `oid`, and the cursor and rings that move with it, at another depth."""
    objects = list(program.objects)
    group = {oid}
    cursors = set()
    for thread in program.threads:
        for slot in _slots(thread.nodes):
            if slot.id == oid and isinstance(slot.index, p.Last):
                cursors.add(slot.index.cursor)
    if cursors:
        for thread in program.threads:
            for slot in _slots(thread.nodes):
                if isinstance(slot.index, p.Last) and slot.index.cursor in cursors:
                    group.add(slot.id)
    for i in group | cursors:
        objects[i] = msgspec.structs.replace(objects[i], depth=depth)
    return msgspec.structs.replace(program, objects=tuple(objects))


def _slots(value: object) -> list[p.Slot]:
    if isinstance(value, p.Slot):
        return [value]
    if isinstance(value, p.Data):
        return [s for name in value.__struct_fields__ for s in _slots(getattr(value, name))]
    if isinstance(value, tuple):
        return [s for one in value for s in _slots(one)]
    return []


def resizable(program: p.Program, oid: int) -> bool:
    """Whether the ring is indexed by turns or by a cursor's last position only, so that its depth is a free number."""
    mine = [s for t in program.threads for s in _slots(t.nodes) if s.id == oid]
    return bool(mine) and all(isinstance(s.index, p.Turn) for s in mine)
