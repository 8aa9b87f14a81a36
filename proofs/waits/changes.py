"""Additions that the platform offers against one hazard: waits for events that exist, new ones, whole streams, drains."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from fencepost.model import program as p
from fencepost.proofs import edits
from fencepost.proofs.explain import describe, name
from fencepost.proofs.waits.catalogue import REMOVED, operation
from fencepost.proofs.waits.handed import HandOvers
from fencepost.proofs.waits.handles import Node, later
from fencepost.proofs.waits.memory_offers import MemoryOffers
from fencepost.proofs.waits.offer import (
    AGAIN,
    BOTH,
    CHAIN,
    DRAIN,
    HOISTED,
    HOST,
    HOST_NEW,
    HOST_RING,
    PRICE,
    STREAM,
    STREAM_NEW,
    SYNC,
    Change,
    Insert,
)
from fencepost.proofs.waits.token_offers import TokenOffers


class Offers(MemoryOffers, TokenOffers, HandOvers):
    """The additions that close one replayed hazard of one program."""

    def all(self) -> list[Change]:
        """Every offer, cheapest first."""
        if self.first is None:
            return []
        found = [
            *self.held(), *self.recorded(), *self.given_back(), *self.once_more(), *self.chained(), *self.drained(), *self.existing(),
            *self.behind_record(), *self.posted(), *self.fresh_event(), *self.deeper(), *self.kept(), *self.staged(),
            *self.handed(), *self.whole_streams(),
        ]  # fmt: skip
        unique: dict[str, Change] = {}
        for change in sorted(found, key=lambda c: c.price):
            unique.setdefault(f"{change.text} {change.place}", change)
        return list(unique.values())

    def _wait(self, event: p.Operand) -> Iterator[tuple[str, p.Operation, str]]:
        """Ways of making the second access wait for an event: (family, operation, text)."""
        t, _ = self.second
        label = self._name(t, event)
        stream = self._stream(self.second)
        if stream is not None:
            yield STREAM, p.StreamWaitEvent(stream, event), f"{self._name(t, stream)}.wait_event({label})"
        yield HOST, p.EventSync(event), f"{label}.synchronize()"

    def existing(self) -> Iterator[Change]:
        """A wait for an event that is recorded already, right before the second access or in front of its block."""
        yield from self._cells()
        block = self._block_of(self.second)
        for event in self._events(self.second):
            for family, wait, text in self._wait(event):
                yield from self._before(self.second, wait, family, PRICE[family], f"{text} before {self._what(self.second)}")
                if block is not None and family == HOST:
                    where = f"{text} before the block {self._question(block)}"
                    yield from self._before(block, wait, HOISTED, PRICE[HOISTED], where)

    def behind_record(self) -> Iterator[Change]:
        """The second access's stream waits right behind a record: one wait in front of whatever that stream gets later."""
        stream = self._stream(self.second)
        if not isinstance(stream, p.Obj):
            return
        for t, thread in enumerate(self.program.threads):
            for i, node in enumerate(thread.nodes):
                op = node.operation if isinstance(node, p.Do) else None
                if not isinstance(op, p.Record) or op.stream == stream or stream.id not in self.text.names(t):
                    continue
                text = f"{self._name(t, stream)}.wait_event({self._name(t, op.event)}) behind its record"
                yield from self._behind((t, i), p.StreamWaitEvent(stream, op.event), STREAM, PRICE[STREAM] + 1, text)

    def _cells(self) -> Iterator[Change]:
        """An event that a cell keeps: asked for, and waited for where there is one."""
        t, n = self.second
        for oid, found in enumerate(self.program.objects):
            if not isinstance(found, p.Cell) or p.EVENT not in found.item or found.depth is not None:
                continue
            if not self._set_somewhere(oid):
                continue
            k = found.item.index(p.EVENT)

            nodes, where, note = self._spots((t, n))

            def apply(
                program: p.Program, oid: int = oid, k: int = k, kinds: tuple[str, ...] = found.item, nodes: list[Node] = nodes
            ) -> p.Program:
                for at in nodes:
                    program = _waiting_for_cell(program, at, oid, k, kinds)
                return program

            text = f"if not {found.name}.empty(): {found.name}.get().synchronize() before {self._what(self.second)}{note}"
            yield Change(HOST, PRICE[HOST] + 1, text, where, apply)

    def _set_somewhere(self, cell: int) -> bool:
        return any(
            isinstance(node, p.Do) and isinstance(node.operation, p.CellSet) and node.operation.cell == p.Obj(cell)
            for thread in self.program.threads
            for node in thread.nodes
        )

    def posted(self) -> Iterator[Change]:
        """The completion handle of an agent's post, waited for right behind the post: nothing else can be recorded on its queue."""
        assert self.first is not None
        stream = self._stream(self.first)
        t, n = self.first
        thing = self.program.objects[stream.id] if isinstance(stream, (p.Obj, p.Slot)) else None
        if not isinstance(thing, p.Stream) or not thing.is_agent:
            return
        for i in sorted(later(self.program.threads[t], n)):
            record = self.program.threads[t].nodes[i]
            if isinstance(record, p.Do) and isinstance(record.operation, p.Record) and record.operation.stream == stream:
                text = f"{self._name(t, record.operation.event)}.synchronize() behind {self._what(self.first)}"
                yield from self._behind((t, i), p.EventSync(record.operation.event), HOST, PRICE[HOST], text)
                return

    def fresh_event(self) -> Iterator[Change]:
        """A new event recorded right behind the first access, waited for right before the second."""
        assert self.first is not None
        stream = self._stream(self.first)
        if stream is None:
            return
        operands: list[tuple[p.Operand, p.Operand, int | None]] = []
        new = len(self.program.objects)
        operands.append((p.Obj(new), p.Obj(new), None))
        ring = self._ring()
        if ring is not None:
            operands.append((p.Slot(new, ring[1]), p.Slot(new, ring[2]), ring[0]))
        for recorded, awaited, depth in operands:
            event = p.Event(self._new("reader done"), depth=depth, gpu=self._gpu_of(stream))
            t, _ = self.second
            ways: list[tuple[str, p.Operation, str]] = []
            own = self._stream(self.second)
            index = self._name_of_ring(t, awaited, event.name)
            if own is not None:
                ways.append((STREAM_NEW, p.StreamWaitEvent(own, awaited), f"{self._name(t, own)}.wait_event({index})"))
            ways.append((HOST_NEW if depth is None else HOST_RING, p.EventSync(awaited), f"{index}.synchronize()"))
            for family, wait, text in ways:
                kind = "a new event" if depth is None else f"a new ring of {depth} events"
                kind += f" of GPU {event.gpu}" if event.gpu else ""
                where = f"{text} before {self._what(self.second)}, {kind} recorded behind {self._what(self.first)}"
                ends: list[tuple[Insert, Node, p.Operation]] = [
                    (edits.insert_before, self.second, wait), (edits.insert_after, self.first, p.Record(recorded, stream))
                ]  # fmt: skip
                yield from self._inserting(family, PRICE[family], where, ends, event)

    def _name_of_ring(self, t: int, operand: p.Operand, label: str) -> str:
        if not isinstance(operand, p.Slot):
            return label
        index = operand.index
        thread = self.program.threads[t]
        return f"{label}[{self._index(thread, index) if isinstance(index, p.Var) else 'n'}]"

    def _ring(self) -> tuple[int, p.Index, p.Index] | None:
        """Depth and the two accesses' indices, where both touch one ring of more than one slot."""
        location = self.judged.location
        if location.kind != "memory" or location.id is None or self.first is None:
            return None
        depth = getattr(self.program.objects[location.id], "depth", None)
        if not depth or depth < 2:
            return None
        found: list[p.Index] = []
        for at in (self.first, self.second):
            slots = [s for s in edits.slots(operation(self.program, at)) if s.id == location.id]
            if not slots or isinstance(slots[0].index, p.Fixed):
                return None
            found.append(slots[0].index)
        return depth, found[0], found[1]

    def whole_streams(self) -> Iterator[Change]:
        """A wait for everything on the first access's stream."""
        assert self.first is not None
        stream = self._stream(self.first)
        if not isinstance(stream, p.Obj):
            return
        t, _ = self.second
        label = self._name(t, stream)
        own = self._stream(self.second)
        spot = self._what(self.second)
        if own is not None and own != stream:
            yield from self._before(
                self.second, p.WaitStream(own, stream), STREAM, PRICE[STREAM] + 2,
                f"{self._name(t, own)}.wait_stream({label}) before {spot}",
            )  # fmt: skip
            if isinstance(own, p.Obj) and own.id in self.text.names(self.first[0]):
                yield from self._behind(
                    self.first, p.WaitStream(own, stream), STREAM, PRICE[STREAM] + 3,
                    f"{self._name(self.first[0], own)}.wait_stream({label}) behind {self._what(self.first)}",
                )  # fmt: skip
        yield from self._before(
            self.second, p.StreamSync(stream), SYNC, PRICE[SYNC], f"{label}.synchronize() before {spot}"
        )
        yield from self._behind(
            self.first, p.StreamSync(stream), SYNC, PRICE[SYNC] + 1,
            f"{label}.synchronize() behind {self._what(self.first)}",
        )  # fmt: skip

    def once_more(self) -> Iterator[Change]:
        """An event that is waited for already, recorded once more right behind the first access."""
        assert self.first is not None
        stream = self._stream(self.first)
        t = self.first[0]
        if stream is None:
            return
        for oid, found in enumerate(self.program.objects):
            if not isinstance(found, p.Event) or found.depth is not None:
                continue
            uses = [x.operation for x in self.program.threads[t].nodes if isinstance(x, p.Do)]
            if any(isinstance(x, p.Record) and x.event == p.Obj(oid) for x in uses):
                yield from self._behind(
                    self.first, p.Record(p.Obj(oid), stream), AGAIN, PRICE[AGAIN],
                    f"{found.name}.record() also behind {self._what(self.first)}",
                )  # fmt: skip
                event = p.Obj(oid)
                ends: list[tuple[Insert, Node, p.Operation]] = [
                    (edits.insert_before, self.second, p.EventSync(event)),
                    (edits.insert_after, self.first, p.Record(event, stream)),
                ]
                text = (
                    f"{found.name}.synchronize() before {self._what(self.second)}, "
                    f"{found.name}.record() also behind {self._what(self.first)}"
                )
                yield from self._inserting(BOTH, PRICE[BOTH], text, ends)

    def chained(self) -> Iterator[Change]:
        """A stream that records an event which another stream recorded before waits for the old capture first (S19)."""
        records: dict[int, list[tuple[Node, p.Record]]] = {}
        for t, thread in enumerate(self.program.threads):
            for i, node in enumerate(thread.nodes):
                op = node.operation if isinstance(node, p.Do) else None
                if isinstance(op, p.Record) and isinstance(op.event, p.Obj):
                    records.setdefault(op.event.id, []).append(((t, i), op))
        for found in records.values():
            if len({op.stream for _, op in found}) < 2:
                continue
            for at, op in found:
                text = f"{self._name(at[0], op.stream)}.wait_event({self._name(at[0], op.event)}) before its record"
                yield from self._before(at, p.StreamWaitEvent(op.stream, op.event), CHAIN, PRICE[CHAIN], text)

    def drained(self) -> Iterator[Change]:
        """An event that was received and is let go without a wait: wait for it where it arrives."""
        for t, thread in enumerate(self.program.threads):
            for i, node in enumerate(thread.nodes):
                op = node.operation if isinstance(node, p.Do) else None
                if not isinstance(op, (p.Get, p.CellGet)):
                    continue
                for local in op.locals:
                    info = thread.locals[local]
                    if info.kind != p.EVENT or self._waited(thread, i, local):
                        continue
                    source = describe(self.program, (t, i))
                    if isinstance(op, p.CellGet):
                        source = f"{name(self.program, thread, op.cell)}.get"
                    at = (t, i)
                    wait = p.EventSync(p.Local(local))
                    text = f"wait for the event that {source} gives, before it is dropped"
                    yield from self._behind(at, wait, DRAIN, PRICE[DRAIN], text)

    @staticmethod
    def _waited(thread: p.Thread, get: int, local: int) -> bool:
        return any(
            isinstance(x, p.Do) and isinstance(x.operation, p.EventSync) and x.operation.event == p.Local(local)
            for x in (thread.nodes[n] for n in later(thread, get))
        )


def _waiting_for_cell(program: p.Program, at: Node, cell: int, k: int, kinds: tuple[str, ...]) -> p.Program:
    """The program with `if not cell.empty(): cell.get()[k].synchronize()` in front of a node."""
    t, n = at
    locals_: list[int] = []
    for kind in kinds:
        program, local = edits.with_local(program, t, p.LocalInfo(program.objects[cell].name, kind, 90))
        locals_.append(local)
    base = len(program.threads[t].nodes)
    site = program.threads[t].nodes[n].site
    drops = [local for local, kind in zip(locals_, kinds, strict=True) if kind == p.MEMORY]
    chain: list[p.Operation] = [
        p.CellGet(p.Obj(cell), tuple(locals_)), p.EventSync(p.Local(locals_[k])), *(p.Drop(x) for x in drops)
    ]  # fmt: skip
    program = edits.insert_before(program, t, n, p.Host(REMOVED, ()))  # gives the branch its own node
    thread = program.threads[t]
    assert len(thread.nodes) == base + 1
    nodes = list(thread.nodes)
    first = base + 1
    nodes[base] = p.Ask(p.CellEmpty(p.Obj(cell)), (("yes", n), ("no", first)), site)
    for j, op in enumerate(chain):
        nodes.append(p.Do(op, first + j + 1 if j + 1 < len(chain) else n, site))
    changed = msgspec.structs.replace(thread, nodes=tuple(nodes))
    return msgspec.structs.replace(program, threads=(*program.threads[:t], changed, *program.threads[t + 1 :]))
