"""Additions that make nobody wait: references that live longer, record_stream, more slots, fresh staging."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
from fencepost.model import program as p
from fencepost.proofs import edits
from fencepost.proofs.explain import place
from fencepost.proofs.waits.catalogue import REMOVED, operation
from fencepost.proofs.waits.handles import Node, Origin, in_order, later
from fencepost.proofs.waits.offer import (
    FRESH,
    HOLD,
    PRICE,
    SLOT,
    USE,
    Change,
    Offer,
    locals_of,
)


class MemoryOffers(Offer):
    """Lifetimes and memory."""

    def _block(self) -> tuple[Node, p.Local] | None:
        """The first access and the local through which it touched a block that changed hands."""
        if self.judged.location.kind != "block" or self.first is None:
            return None
        wanted = self.judged.hazard.first.tenant if self.judged.hazard.first is not None else None
        locals_ = [x for x in locals_of(operation(self.program, self.first))]
        thread = self.program.threads[self.first[0]]
        named = [x for x in locals_ if self._stands_for(self.first[0], x, wanted)] or locals_
        assert thread.locals is not None
        return (self.first, named[0]) if named else None

    def _stands_for(self, t: int, local: p.Local, wanted: str | None) -> bool:
        return any(self.handles.name(origin) == wanted for origin in self.handles.of(t, local))

    def recorded(self) -> Iterator[Change]:
        """record_stream right behind the first access (S64, S65)."""
        block = self._block()
        if block is None or self.judged.location.id is None:
            return
        at, local = block
        stream = self._stream(at)
        if stream is None or (isinstance(stream, p.Obj) and stream.id == self.judged.location.id):
            return
        text = f"{self._name(at[0], local)}.record_stream({self._name(at[0], stream)}) behind {self._what(at)}"
        op = p.RecordStream(p.Local(local.id), stream)
        yield from self._behind(at, op, USE, PRICE[USE], text)

    def held(self) -> Iterator[Change]:
        """The block kept beside an event that ends its last use, in the item that carries the event."""
        block = self._block()
        if block is None:
            return
        (t, n), local = block
        thread = self.program.threads[t]
        wanted = thread.locals[local.id].name
        behind = later(thread, n)
        events: dict[Origin, int] = {}
        for i in behind:
            x = thread.nodes[i]
            if isinstance(x, p.Do) and isinstance(x.operation, p.Record):
                events.update(dict.fromkeys(self.handles.of(t, x.operation.event), i))
        order = {i: k for k, i in enumerate(in_order(thread))}
        offers: list[tuple[tuple[int, int], Change]] = []
        for i in behind:
            x = thread.nodes[i]
            op = x.operation if isinstance(x, p.Do) else None
            if not isinstance(op, (p.Put, p.CellSet)):
                continue
            carried = [v for v in op.values if isinstance(v, p.Local) and thread.locals[v.id].kind == p.EVENT]
            ends = [order.get(events[o], 0) for v in carried for o in self.handles.of(t, v) if o in events]
            if not ends:
                continue
            key = ("queue", op.queue, op.tag) if isinstance(op, p.Put) else ("cell", op.cell.id, "")
            change = self._keep(key, wanted)
            if change is not None:
                offers.append(((min(ends), order.get(i, 0)), change))
        for _, change in sorted(offers, key=lambda offer: offer[0]):
            yield change

    def _keep(self, key: tuple[str, int, str], wanted: str) -> Change | None:
        """Every hand-over of this queue's tag or cell carries one reference more; whoever receives it gets it, too."""
        puts: list[tuple[Node, int]] = []
        gets: list[Node] = []
        for t, thread in enumerate(self.program.threads):
            for i, node in enumerate(thread.nodes):
                op = node.operation if isinstance(node, p.Do) else None
                if _key(op) != key:
                    continue
                if isinstance(op, (p.Put, p.CellSet)):
                    source = self._made(t, i, wanted)
                    if source is None:
                        return None
                    puts.append(((t, i), source))
                else:
                    gets.append((t, i))
        if not puts:
            return None
        where = self.program.objects[key[1]].name

        def apply(program: p.Program) -> p.Program:
            return _kept(program, key, puts, gets)

        text = f"{wanted} held in {where} beside its event"
        return Change(HOLD, PRICE[HOLD], text, place(self.program, puts[0][0]), apply)

    def _made(self, t: int, put: int, wanted: str) -> int | None:
        """The local of that name whose block is there at the hand-over."""
        thread = self.program.threads[t]
        order = {n: k for k, n in enumerate(in_order(thread))}
        found = [
            (order.get(i, 0), x.operation.local)
            for i, x in enumerate(thread.nodes)
            if isinstance(x, p.Do)
            and isinstance(x.operation, (p.Alloc, p.View))
            and thread.locals[x.operation.local].name == wanted
            and put in later(thread, i)
        ]
        return max(found)[1] if found else None

    def deeper(self) -> Iterator[Change]:
        """One more slot (two, three), or two buffers by turns in place of one."""
        location = self.judged.location
        if location.kind != "memory" or location.id is None:
            return
        oid = location.id
        memory = self.program.objects[oid]
        depth = getattr(memory, "depth", None)
        spot = place(self.program, self.second)
        group = edits.ring_group(self.program, oid) if depth else None
        if depth and group is not None:
            too = self._too(group[0] - {oid})
            for more in (1, 2, 3):
                yield Change(
                    SLOT, PRICE[SLOT] + 2 * (more - 1), f"{memory.name}: {depth + more} slots instead of {depth}{too}", spot,
                    lambda program, to=depth + more: edits.resized(program, oid, to),  # type: ignore[misc]
                )  # fmt: skip
        elif depth and _one_cursor(self.program, oid, depth):
            too = self._too({k for k, one in enumerate(self.program.objects) if getattr(one, "depth", None) == depth} - {oid})
            for more in (1, 2):
                yield Change(
                    SLOT, PRICE[SLOT] + 2 * (more - 1), f"{memory.name}: {depth + more} slots instead of {depth}{too}", spot,
                    lambda program, was=depth, to=depth + more: _all_resized(program, was, to),  # type: ignore[misc]
                )  # fmt: skip
        elif not depth and getattr(memory, "space", "") in ("pinned", "pageable") and self._refilled(oid):
            for slots in (2, 3):
                yield Change(
                    SLOT, PRICE[SLOT] + 1 + 2 * (slots - 2), f"{memory.name}: {slots} buffers by turns instead of one", spot,
                    lambda program, to=slots: _rotated(program, oid, to),  # type: ignore[misc]
                )  # fmt: skip

    def _too(self, others: set[int]) -> str:
        """What moves with a ring, and becomes as deep."""
        own = set(self.program.own or ())
        names = [self.program.objects[k].name for k in sorted(others) if k not in own]
        named = [name for name in names if not name.endswith(" take")]  # the cursor of ring.take() is made with the ring
        return f"; {', '.join(named)} as well" if named else ""

    def _refilled(self, oid: int) -> bool:
        """Whether one loop alone uses the buffer and fills it anew in each turn before anything reads it."""
        users = set()
        for t, thread in enumerate(self.program.threads):
            for i, node in enumerate(thread.nodes):
                if isinstance(node, p.Do) and any(x.id == oid for x in _objects(node.operation)):
                    users.add((t, i))
        threads = {t for t, _ in users}
        if len(threads) != 1 or self.program.threads[next(iter(threads))].kind != "loop":
            return False
        t = next(iter(threads))
        thread = self.program.threads[t]
        fills = {i for _, i in users if any(x.mode == "w" and x.target == p.Obj(oid) for x in _accesses(thread.nodes[i]))}
        # Every path to another use passes a fill.
        seen: set[int] = set()
        todo = [thread.entry]
        while todo:
            at = todo.pop()
            if at == p.END or at in seen or at in fills:
                continue
            seen.add(at)
            if (t, at) in users:
                return False
            node = thread.nodes[at]
            todo += [node.next] if isinstance(node, p.Do) else [x for _, x in node.branches]
        return bool(fills)

    def staged(self) -> Iterator[Change]:
        """The pinned source copied to a fresh pinned block first, which the host allocator keeps for the copy (S54, S79)."""
        assert self.first is not None
        memory = self._source(self.first)
        location = self.judged.location
        if memory is None or location.kind != "memory" or location.id is None or self.program.objects[location.id] != memory:
            return
        line = self.text.on_line(self.first)
        ways = [self._spots(self.first)]
        if len(line) > len(ways[0][0]) and all(self._source(x) is not None for x in line):
            ways.insert(0, (line, place(self.program, self.first), ""))
        for nodes, where, note in ways:
            copied = list(dict.fromkeys(self._what(x) for x in nodes))
            sources = ", ".join(dict.fromkeys(m.name for x in nodes if (m := self._source(x)) is not None))
            text = f"{', '.join(copied)} {'reads' if len(copied) == 1 else 'each read'} a fresh pinned snapshot of {sources}{note}"
            yield Change(FRESH, PRICE[FRESH], text, where, partial(_staged, copies=nodes))

    def _source(self, at: Node) -> p.Memory | None:
        """The pinned buffer that an asynchronous copy reads, which could read a snapshot instead."""
        op = operation(self.program, at)
        if not isinstance(op, p.Copy) or not isinstance(op.src, (p.Obj, p.Slot)) or not op.non_blocking or op.raw:
            return None
        memory = self.program.objects[op.src.id]
        return memory if isinstance(memory, p.Memory) and memory.space == "pinned" else None


# ---------------------------------------------------------------- helpers


def _accesses(node: p.Node) -> list[p.Access]:
    op = node.operation if isinstance(node, p.Do) else None
    if isinstance(op, (p.Launch, p.Host)):
        return list(op.accesses)
    if isinstance(op, p.Copy):
        return [p.Access(op.src, "r"), p.Access(op.dst, "w")]
    return [p.Access(op.dst, "w")] if isinstance(op, p.Memset) else []


def _objects(value: object) -> list[p.Obj | p.Slot]:
    if isinstance(value, (p.Obj, p.Slot)):
        return [value]
    if isinstance(value, p.Data):
        return [x for field in value.__struct_fields__ for x in _objects(getattr(value, field))]
    if isinstance(value, tuple):
        return [x for one in value for x in _objects(one)]
    return []


def _one_cursor(program: p.Program, oid: int, depth: int) -> bool:
    """Whether one cursor alone moves through everything of that depth, so that its positions may travel anywhere."""
    cursors = [o for o in program.objects if isinstance(o, p.Cursor) and o.depth == depth]
    slots = [s for thread in program.threads for s in edits.slots(thread.nodes)]
    moved = [s for s in slots if getattr(program.objects[s.id], "depth", None) == depth]
    mine = [s for s in slots if s.id == oid]
    return len(cursors) == 1 and bool(mine) and all(isinstance(s.index, (p.Var, p.Last)) for s in moved)


def _all_resized(program: p.Program, was: int, to: int) -> p.Program:
    """The program with everything that the cursor of that depth moves through, and all its positions, at another depth."""
    objects = tuple(msgspec.structs.replace(o, depth=to) if getattr(o, "depth", None) == was else o for o in program.objects)
    threads = tuple(
        msgspec.structs.replace(
            thread, locals=tuple(msgspec.structs.replace(x, depth=to) if x.depth == was else x for x in thread.locals)
        )
        for thread in program.threads
    )
    return msgspec.structs.replace(program, objects=objects, threads=threads)


def _rotated(program: p.Program, oid: int, depth: int) -> p.Program:
    """The program with single buffer `oid` as a ring that moves on in each turn."""

    def moved(value: object) -> object:
        if isinstance(value, p.Obj) and value.id == oid:
            return p.Slot(oid, p.Turn(), value.part)
        if isinstance(value, p.Data):
            return msgspec.structs.replace(value, **{f: moved(getattr(value, f)) for f in value.__struct_fields__})
        if isinstance(value, tuple):
            return tuple(moved(x) for x in value)
        return value

    objects = tuple(msgspec.structs.replace(o, depth=depth) if i == oid else o for i, o in enumerate(program.objects))
    threads = tuple(msgspec.structs.replace(t, nodes=moved(t.nodes)) for t in program.threads)
    return msgspec.structs.replace(program, objects=objects, threads=threads)


def _key(op: p.Operation | None) -> tuple[str, int, str] | None:
    if isinstance(op, (p.Put, p.Get)):
        return ("queue", op.queue, op.tag)
    if isinstance(op, (p.CellSet, p.CellGet)) and not isinstance(op.cell, p.Local):
        return ("cell", op.cell.id, "")
    return None


def _staged(program: p.Program, copies: list[Node]) -> p.Program:
    """The program whose copies read a fresh pinned snapshot each."""
    for t, n in copies:
        copy = operation(program, (t, n))
        assert isinstance(copy, p.Copy) and isinstance(copy.src, (p.Obj, p.Slot))
        memory = program.objects[copy.src.id]
        assert isinstance(memory, p.Memory)
        program, local = edits.with_local(program, t, p.LocalInfo(f"{memory.name} snapshot", p.MEMORY))
        staged = p.Local(local)
        program = edits.insert_before(program, t, n, p.Alloc(local, "pinned", None, memory.bytes))
        program = edits.insert_before(program, t, n, p.Copy(staged, copy.src, copy.stream))
        program = edits.replaced(program, t, n, msgspec.structs.replace(copy, src=staged))
        program = edits.insert_after(program, t, n, p.Drop(local))
    return program


def _kept(
    program: p.Program, key: tuple[str, int, str], puts: list[tuple[Node, int]], gets: list[Node]
) -> p.Program:
    """The program whose items of `key` carry one memory reference more."""
    oid = key[1]
    old = program.objects[oid]
    if isinstance(old, p.Queue):
        items = tuple((tag, (*kinds, p.MEMORY) if tag == key[2] else kinds) for tag, kinds in old.items)
        new: p.Object = msgspec.structs.replace(old, items=items)
    else:
        assert isinstance(old, p.Cell)
        new = msgspec.structs.replace(old, item=(*old.item, p.MEMORY))
    program = msgspec.structs.replace(program, objects=(*program.objects[:oid], new, *program.objects[oid + 1 :]))
    dropped: list[tuple[Node, int]] = []
    for (t, i), local in puts:
        op = operation(program, (t, i))
        assert isinstance(op, (p.Put, p.CellSet))
        # A reference that the body let go in front of the hand-over is let go behind it instead.
        thread = program.threads[t]
        for k, node in enumerate(thread.nodes):
            if isinstance(node, p.Do) and node.operation == p.Drop(local) and i in later(thread, k):
                program = edits.replaced(program, t, k, p.Host(REMOVED, ()))
                dropped.append(((t, i), local))
        program = edits.replaced(program, t, i, msgspec.structs.replace(op, values=(*op.values, p.Local(local))))
    for at, local in dict.fromkeys(dropped):
        program = edits.insert_after(program, *at, p.Drop(local))
    for t, i in gets:
        op = operation(program, (t, i))
        assert isinstance(op, (p.Get, p.CellGet))
        program, local = edits.with_local(program, t, p.LocalInfo("held", p.MEMORY, i))
        program = edits.replaced(program, t, i, msgspec.structs.replace(op, locals=(*op.locals, local)))
        end = _scope_end(program.threads[t], i, op.locals)
        if end is not None:
            program = edits.insert_after(program, t, end, p.Drop(local))
    return program


def _scope_end(thread: p.Thread, get: int, locals_: tuple[int, ...]) -> int | None:
    """The last drop of what came with it, straight behind the get: where the scope that received it ends."""
    last = None
    at = thread.nodes[get].next  # type: ignore[union-attr]
    while at != p.END:
        node = thread.nodes[at]
        if not isinstance(node, p.Do):
            break
        if isinstance(node.operation, p.Drop) and node.operation.local in locals_:
            last = at
        at = node.next
    return last
