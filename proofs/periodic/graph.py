"""The periodic event graph of a program: every edge joins step n to step n + weight (theory: exact conditions).

Nodes are the host's calls and the items of streams; a step of a node is a turn of its thread (or an occurrence of its
class). In the reading "sure" an edge is there in every run, whatever is chosen, and whatever is not known is left out:
what is ordered then is ordered. In the reading "steady" choices are fixed, the design is determinate, and the graph has
exactly the edges of happens-before from the end of the prologue on: what is not ordered then is a hazard. What cannot
be said exactly is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fencepost.model import effects as fx
from fencepost.model import program as p
from fencepost.model.names import Names
from fencepost.model.operations import Context, lower
from fencepost.model.platform import PLATFORMS, Platform
from fencepost.proofs.periodic.plan import End, Key, Op, Plan, made_locals, plan
from fencepost.proofs.periodic.symbols import ONE, ZERO, Poly, Refused, Region, poly_of

Agent = tuple[Any, ...]


class Node:
    """A host call or an item of a stream. `period`: the stream is one of so many in rotation."""

    __slots__ = ("agent", "label", "loop", "number", "op", "optional", "order", "period", "start")

    def __init__(
        self, number: int, agent: Agent, op: Op, order: tuple[int, int], label: str, period: Poly | None = None,
    ) -> None:  # fmt: skip
        self.number, self.agent, self.op, self.order, self.label, self.period = number, agent, op, order, label, period
        self.start, self.optional, self.loop = op.start, op.optional, op.loop

    @property
    def serial(self) -> bool:
        """Whether each of its steps comes after the one before."""
        return self.period is None


class Where(NamedTuple):
    """Index in a ring at step n: stride * n + base (+ the number of the repetition of `loop`)."""

    stride: Poly
    base: Poly
    loop: int | None


class Taken(NamedTuple):
    """A slot taken from a cursor that moves on in some kinds of step only. By way through the turn: the how manieth take of
    its step it is (`place`), and how many there are (`totals`)."""

    cursor: int
    group: tuple[int, int]
    place: dict[int, int]
    totals: dict[int, int]


class Touch(NamedTuple):
    """One access: `memory` is an object, or the operation that allocates the block with the steps since (`lag`)."""

    node: Node
    memory: int | None
    where: Where | None
    block: Op | None
    lag: Poly
    mode: str
    part: p.Part | None
    same_bytes: bool
    harm: str
    taken: Taken | None = None


class Origin(NamedTuple):
    """Where a local's value was made: by `op`, `lag` steps ago; `via`: the put or set that handed it over last."""

    op: Op
    operand: Any
    lag: Poly
    via: Op | None
    parts: tuple[p.Part, ...] = ()
    """What narrowed it on the way, from the outside to the inside."""


def _narrowed(found: Origin, operand: Any) -> Origin:
    """The origin with the operand's part behind those that narrowed it before."""
    part = getattr(operand, "part", None)
    return found if part is None else found._replace(parts=(*found.parts, part))


def _innermost(parts: tuple[p.Part, ...]) -> p.Part | None:
    """A part of a part of ... as one; where they are not all spans it is somewhere."""
    if len(parts) < 2:
        return parts[0] if parts else None
    inner = parts[0]
    for part in parts[1:]:
        if not isinstance(inner, p.Span) or not isinstance(part, p.Span):
            return p.Anything()
        inner = inner.narrowed(part)
    return inner


class Graph:
    """A program read as a periodic event graph in one region of its parameters."""

    def __init__(
        self, program: p.Program, region: Region, answers: Mapping[Key, str] | None, platform: Platform = PLATFORMS["cuda"],
        timing: bool = False,
    ) -> None:  # fmt: skip
        """`timing`: who waits for whom, for what a step costs; then the k-th await of a channel waits for the k-th signal, and
        a signal of a bounded channel for room, which orders no accesses."""
        self.program, self.region, self.sure = program, region, answers is None
        self.names = Names(program)
        self.plans: list[Plan] = [plan(program, t, region, answers, timing) for t in range(len(program.threads))]
        self.contexts = [Context(program, thread, platform) for thread in program.threads]
        self.nodes: list[Node] = []
        self.out: list[list[tuple[int, Poly]]] = []
        self.touches: list[Touch] = []
        self.walked: dict[tuple[int, int], Any] = {}
        """Shortest walks from a node in a step of one kind, by node and way through the turn."""
        self.joined: set[int] = set()
        """Puts and gets: nodes that a queue makes wait."""
        self.effects: list[tuple[Op, list[fx.Effect]]] = [
            (op, list(lower(op.operation, self.contexts[op.thread]))) for one in self.plans for op in one.ops
        ]
        self.by_type: dict[type, list[Op]] = {}
        for op, _ in self.effects:
            self.by_type.setdefault(type(op.operation), []).append(op)
        self.makers: dict[tuple[int, int], list[Op]] = {}
        """(thread, local) -> the operations that give it a value."""
        for op, _ in self.effects:
            for local in dict.fromkeys(made_locals(op.operation)):
                self.makers.setdefault((op.thread, local), []).append(op)
        self._unsupported()
        self.enqueuers = self._enqueuers()
        self.records: dict[tuple[int, int], Node] = {}
        self.captures: list[tuple[Op, p.Operand, Node]] = []
        self.meetings: dict[int, list[Node]] = {}
        self.hosts: dict[tuple[int, int], Node] = {}
        for op, effects in self.effects:
            for number, effect in enumerate(effects):
                self._enter(op, number, effect)
        self.ends: dict[tuple[type, int], tuple[End, Node, Node]] = {}
        """Ends of queues that several operations share, with a node in front of the first and one behind the last."""
        for one in self.plans:
            for key, end in one.ends.items():
                agent = ("thread", end.op.thread, end.op.cls)
                what = f"{key[0].__name__.lower()} of {self.name(key[1])}"
                first, last = (
                    self._node(agent, end.op, (place, number), what)
                    for place, number in zip(end.places, (-1, 4_000), strict=True)
                )
                self.ends[key] = (end, first, last)
        for op, event, target in self.captures:
            for source, weight in self._capture(op, event):
                self._edge(source, target, weight)
        self._orders()
        self._queues()
        for channel, items in self.meetings.items():
            self._channel(channel, items)

    # ------------------------------------------------------------ help

    def unsure(self, why: str) -> None:
        """What is not known is left out of a sure graph and refused in a steady one."""
        if not self.sure:
            raise Refused(why)

    def name(self, oid: int) -> str:
        """An object's name."""
        return self.program.objects[oid].name

    def _unsupported(self) -> None:
        never = (p.Take, p.Give, p.Acquire, p.Unlock, p.FlagSet, p.FlagClear, p.FlagWait, p.CounterAdd, p.CounterWait)
        for kind in never:
            if kind in self.by_type:
                self.unsure(f"{kind.__name__} has no fixed distance in steps")
        cells: dict[int, set[int]] = {}
        for op in [o for kind in (p.CellSet, p.CellGet, p.CellClear) for o in self.by_type.get(kind, ())]:
            cell: Any = op.operation
            cells.setdefault(cell.cell.id, set()).add(op.thread)
        if any(len(threads) > 1 for threads in cells.values()):
            self.unsure("a cell is shared between threads, whose order on it is open")
        for op, effects in self.effects:
            if op.loop is not None and not all(isinstance(e, (fx.Touch, fx.Enqueue, fx.NoteUse, p.Advance)) for e in effects):
                raise Refused("a loop over a parameter does more than take slots, access memory and launch")

    def _enqueuers(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for op, effects in self.effects:
            for effect in effects:
                if isinstance(effect, (fx.Enqueue, fx.RecordEvent, fx.StreamJoinsEvent, fx.StreamJoinsStream, p.Signal, p.Await)):
                    if isinstance(effect.stream, p.Local):
                        raise Refused("a stream is handed around")
                    found.setdefault(effect.stream.id, set()).add(op.thread)
        for sid, threads in found.items():
            if len(threads) > 1:
                self.unsure(f"several threads enqueue on stream {self.name(sid)!r}, in an order that is open")
        return found

    # ------------------------------------------------------------ nodes

    def _node(self, agent: Agent, op: Op, order: tuple[int, int], label: str, period: Poly | None = None) -> Node:
        made = Node(len(self.nodes), agent, op, order, label, period)
        self.nodes.append(made)
        self.out.append([])
        return made

    def _edge(self, source: Node, target: Node, weight: Poly) -> None:
        if source.period is not None and target.period is not None and weight not in (ZERO, source.period):
            # Sums of this weight and of periods would be further exact distances.
            self.unsure("streams in rotation wait for each other across steps")
            return
        if source.period is not None and target.period not in (None, source.period):
            self.unsure("streams in rotation of different periods wait for each other")
            return
        self.out[source.number].append((target.number, weight))

    def _host(self, op: Op, number: int, label: str) -> Node:
        made = self._node(("thread", op.thread, op.cls), op, (op.place, number), label)
        self.hosts.setdefault((op.thread, op.node), made)
        return made

    def _item(self, op: Op, number: int, stream: p.Operand, label: str) -> Node:
        assert not isinstance(stream, p.Local)
        made: Any = self.program.objects[stream.id]
        period, shift = None, ZERO
        if isinstance(stream, p.Slot):
            where = self._index(op, stream.index)
            if where.stride != ONE or where.loop is not None:
                raise Refused(f"stream {made.name!r} is not taken in rotation by turns")
            period, shift = poly_of(made.depth), where.base
        agent = ("stream", stream.id, op.thread, op.cls, shift)
        return self._node(agent, op, (op.place, number), label, period)

    def _enter(self, op: Op, number: int, effect: fx.Effect) -> None:
        what = label(self.names, op)
        place = number * 4
        if isinstance(effect, fx.Touch):
            host = self._host(op, place, what)
            self._accesses(op, host, effect.accesses)
        elif isinstance(effect, fx.Enqueue):
            item = self._item(op, place + 1, effect.stream, what)
            self._edge(self._host(op, place, what), item, ZERO)
            self._accesses(op, item, effect.accesses)
        elif isinstance(effect, fx.RecordEvent):
            item = self._item(op, place + 1, effect.stream, what)
            self._edge(self._host(op, place, what), item, ZERO)
            self.records[op.thread, op.node] = item
        elif isinstance(effect, fx.JoinEvent):
            self.captures.append((op, effect.event, self._host(op, place, what)))
        elif isinstance(effect, fx.StreamJoinsEvent):
            item = self._item(op, place + 1, effect.stream, what)
            self._edge(self._host(op, place, what), item, ZERO)
            self.captures.append((op, effect.event, item))
        elif isinstance(effect, fx.JoinStream):
            self._tail(op, place, effect.stream, self._host(op, place + 2, what))
        elif isinstance(effect, fx.StreamJoinsStream):
            item = self._item(op, place + 2, effect.stream, what)
            self._edge(self._host(op, place + 1, what), item, ZERO)
            self._tail(op, place, effect.other, item)
        elif isinstance(effect, fx.JoinDevice):
            host = self._host(op, place + 2, what)
            for sid in sorted(self.enqueuers):
                stream: Any = self.program.objects[sid]
                if stream.gpu == effect.gpu and stream.process == effect.process:
                    self._tail(op, place, p.Obj(sid) if stream.depth is None else p.Slot(sid, p.Turn()), host)
        elif isinstance(effect, (p.Put, p.Get)):
            self._host(op, place, what)
        elif isinstance(effect, (p.Signal, p.Await)):
            item = self._item(op, place + 1, effect.stream, what)
            self._edge(self._host(op, place, what), item, ZERO)
            self.meetings.setdefault(effect.channel, []).append(item)

    def _tail(self, op: Op, place: int, stream: p.Operand, target: Node) -> None:
        """Everything in the stream by now -> `target`, by way of an empty item at the stream's tail."""
        assert not isinstance(stream, p.Local)
        threads = self.enqueuers.get(stream.id, set())
        if threads - {op.thread}:
            self.unsure(f"stream {self.name(stream.id)!r} is waited for by another thread than the one that enqueues on it")
        if op.thread not in threads:
            return
        mark = self._item(op, place + 1, stream, f"all of {self.name(stream.id)}")
        self._edge(self._host(op, place, target.label), mark, ZERO)
        self._edge(mark, target, ZERO)

    def _accesses(self, op: Op, node: Node, accesses: tuple[p.Access, ...]) -> None:
        for access in accesses:
            target = access.target
            memory, where, block, lag, taken = None, None, None, ZERO, None
            part = target.part
            if isinstance(target, p.Local):
                found = self._origin(op, target.id)
                lag = found.lag
                part = _innermost(_narrowed(found, target).parts)
                if isinstance(found.operand, (p.Obj, p.Slot)):
                    memory = found.operand.id
                    if isinstance(found.operand, p.Slot):
                        at = self._index(found.op, found.operand.index)
                        where = Where(at.stride, at.base - at.stride * lag, at.loop if found.op is op else None)
                elif isinstance(found.op.operation, p.Alloc):
                    block = found.op
                else:
                    raise Refused(f"memory of {label(self.names, op)!r} comes from {type(found.op.operation).__name__}")
            else:
                memory = target.id
                if isinstance(target, p.Slot):
                    taken = self._taken(op, target.index)
                    where = self._index(op, target.index) if taken is None else None
            self.touches.append(
                Touch(node, memory, where, block, lag, access.mode, part, access.same_bytes, access.harm, taken)
            )

    # ------------------------------------------------------------ where values come from

    def _one(self, kind: type, test: Any, what: str) -> Op:
        found = [op for op in self.by_type.get(kind, ()) if test(op.operation)]
        if len(found) != 1:
            raise Refused(f"{what} {len(found)} places in a turn, not one")
        return found[0]

    def _origin(self, user: Op, local: int) -> Origin:
        """Where the local's value was made, in steps before the step of `user`."""
        made = self.makers.get((user.thread, local), [])
        if len(made) != 1:
            raise Refused(f"{self.program.threads[user.thread].locals[local].name!r} is made at {len(made)} places")
        op, operation = made[0], made[0].operation
        if op.cls != user.cls:
            raise Refused(f"{self.program.threads[user.thread].locals[local].name!r} is used in other turns than it is made in")
        if isinstance(operation, p.Get):
            handed = self._tagged(op, operation, local)
            if handed is not None:
                return handed
            put = self._one(p.Put, lambda o: o.queue == operation.queue, f"queue {self.name(operation.queue)!r} is filled at")
            self._one(p.Get, lambda o: o.queue == operation.queue, f"queue {self.name(operation.queue)!r} is emptied at")
            assert isinstance(put.operation, p.Put)
            if put.optional or op.optional or put.operation.tag != operation.tag:
                raise Refused(f"queue {self.name(operation.queue)!r} gets items in some kinds of step only")
            value = put.operation.values[operation.locals.index(local)]
            return self._handed(put, value, op.start - put.start)
        if isinstance(operation, p.CellGet):
            cell = operation.cell
            assert not isinstance(cell, p.Local)
            got = self._one(p.CellSet, lambda o: o.cell.id == cell.id, f"cell {self.name(cell.id)!r} is set at")
            assert isinstance(got.operation, p.CellSet)
            if got.thread != op.thread or got.cls != op.cls or got.optional:
                raise Refused(f"cell {self.name(cell.id)!r} is not set in every step of the thread that reads it")
            value = got.operation.values[operation.locals.index(local)]
            least = ZERO if got.place < op.place else ONE
            if isinstance(cell, p.Slot):
                there, here = self._index(got, got.operation.cell.index), self._index(op, cell.index)  # type: ignore[union-attr]
                depth: Any = self.program.objects[cell.id]
                least = self.nearest(there.base - here.base, poly_of(depth.depth), least)
            return self._handed(got, value, least)
        if isinstance(operation, p.View):
            if isinstance(operation.base, p.Local):
                return _narrowed(self._origin(op, operation.base.id), operation.base)
            return _narrowed(Origin(op, operation.base, ZERO, None), operation.base)
        return Origin(op, None, ZERO, None)

    def _tagged(self, get: Op, operation: p.Get, local: int) -> Origin | None:
        """A value from a queue whose items differ by kind of step: from the put of the same tag, where that is one."""
        q = operation.queue
        puts = [op for op in self.by_type.get(p.Put, ()) if op.operation.queue == q]  # type: ignore[union-attr]
        gets = [op for op in self.by_type.get(p.Get, ()) if op.operation.queue == q]  # type: ignore[union-attr]
        if not self.sure or (len(puts) == 1 and len(gets) == 1):
            return None
        fills, empties = self._end(p.Put, q, puts), self._end(p.Get, q, gets)
        alike = [op for op in puts if op.operation.tag == operation.tag]  # type: ignore[union-attr]
        others = [op for op in gets if op is not get and op.operation.tag == operation.tag]  # type: ignore[union-attr]
        if fills is None or empties is None or len(alike) != 1 or others:
            return None
        (put,) = alike
        whole = self.plans[put.thread].whole and self.plans[get.thread].whole
        if not whole or put.group != fills[0].group or get.group != empties[0].group:
            return None
        assert isinstance(put.operation, p.Put)
        value = put.operation.values[operation.locals.index(local)]
        return self._handed(put, value, empties[0].start - fills[0].start)

    def _handed(self, giver: Op, value: Any, lag: Poly) -> Origin:
        local = value.id if isinstance(value, p.Local) else value.local if isinstance(value, p.Var) else None
        if local is None:
            return _narrowed(Origin(giver, value, lag, giver), value)
        found = self._origin(giver, local)
        offset = value.offset if isinstance(value, p.Var) else None
        return _narrowed(Origin(found.op, offset if found.operand is None else found.operand, found.lag + lag, giver, found.parts), value)

    def _index(self, user: Op, index: p.Index) -> Where:
        """The index as a polynomial in the step of `user`."""
        if isinstance(index, p.Turn):
            if user.cls:
                raise Refused("a ring is indexed by turns where the turn depends on choices")
            return Where(ONE, poly_of(index.offset), None)
        if isinstance(index, p.Fixed):
            raise Refused("a ring is used at a constant slot")
        if isinstance(index, p.Last):
            stride, advances = self._advances(index.cursor)
            if user.loop is not None or (user.thread, user.cls) != (advances[0][0].thread, advances[0][0].cls):
                raise Refused("the last position of a cursor is used where its advances cannot be counted")
            before = sum((count for op, count in advances if op.place < user.place), ZERO)
            return Where(stride, before - 1 + poly_of(index.offset), None)
        found = self._origin(user, index.local)
        offset = poly_of(index.offset)
        if isinstance(found.operand, (p.Turn, p.Last)):
            at = self._index(found.op, found.operand)
            return Where(at.stride, at.base + offset - at.stride * found.lag, None)
        if found.operand is not None:
            offset = offset + poly_of(found.operand)
        if not isinstance(found.op.operation, p.Advance):
            raise Refused(f"an index comes from {type(found.op.operation).__name__}")
        stride, advances = self._advances(found.op.operation.cursor)
        before = sum((count for op, count in advances if op.place < found.op.place), ZERO)
        loop = found.op.loop
        if loop is not None and (user.loop != loop or found.lag != ZERO):
            before, loop = before + self.region.loops[loop] - 1, None
        return Where(stride, before + offset - stride * found.lag, loop)

    def _advances(self, cursor: int) -> tuple[Poly, list[tuple[Op, Poly]]]:
        """How far a cursor moves in a step, and by which operations."""
        ops = [op for op in self.by_type.get(p.Advance, ()) if op.operation.cursor == cursor]  # type: ignore[union-attr]
        if not ops:
            raise Refused(f"cursor {self.name(cursor)!r} never advances")
        if any(op.optional or op.start != ZERO or op.group != ops[0].group for op in ops):
            raise Refused(f"cursor {self.name(cursor)!r} advances in some steps only")
        counted = [(op, self.region.loops[op.loop] if op.loop is not None else ONE) for op in ops]
        return sum((count for _, count in counted), ZERO), counted

    def _taken(self, user: Op, index: p.Index) -> Taken | None:
        """The take that an index comes from, where its cursor moves on in some kinds of step only and takes can be counted."""
        if not self.sure or not isinstance(index, p.Var) or index.offset:
            return None
        found = self._origin(user, index.local)
        take = found.op.operation
        if found.operand is not None or found.lag != ZERO or not isinstance(take, p.Advance) or not self.plans[found.op.thread].whole:
            return None
        ops = [op for op in self.by_type.get(p.Advance, ()) if op.operation.cursor == take.cursor]  # type: ignore[union-attr]
        if not any(op.optional for op in ops) or found.op.cls or user.group != found.op.group:
            return None
        if any(op.group != found.op.group or op.start != ZERO or op.loop is not None for op in ops):
            return None
        ways = self.plans[found.op.thread].ways
        totals = {way: sum(way in op.member for op in ops) for way in sorted(ways)}
        place = {way: sum(way in op.member and op.place <= found.op.place for op in ops) for way in sorted(user.member & found.op.member)}
        return Taken(take.cursor, found.op.group, place, totals)

    def nearest(self, difference: Poly, depth: Poly, least: Poly) -> Poly:
        """The smallest weight >= `least` that is `difference` modulo `depth`."""
        weight = difference
        for _ in range(16):
            if not self.region.decide(weight - least):
                weight = weight + depth
            elif self.region.decide(weight - depth - least):
                weight = weight - depth
            else:
                return weight
        raise Refused("a ring is indexed too far away from where it was filled")

    # ------------------------------------------------------------ edges

    def _capture(self, user: Op, event: p.Operand) -> list[tuple[Node, Poly]]:
        """The record that a wait of `user` sees, and how many steps ago it was; none: it returns at once (S18)."""
        try:
            return self._seen(user, event)
        except Refused as why:
            self.unsure(str(why))
            return []

    def _seen(self, user: Op, event: p.Operand) -> list[tuple[Node, Poly]]:
        every = self.by_type.get(p.Record, [])
        if isinstance(event, p.Local):
            found = self._origin(user, event.id)
            if not isinstance(found.op.operation, p.NewEvent):
                raise Refused("a wait is on an event that is re-recorded while it is handed around")
            records = []
            for op in every:
                target = op.operation.event  # type: ignore[union-attr]
                if isinstance(target, p.Local):
                    from_ = self._origin(op, target.id)
                    if from_.op is found.op:
                        records.append((op, from_.lag))
            via = found.via.place if found.via is not None and found.via.thread == found.op.thread else None
            limit = user.place if via is None else via
            if any(op.thread != found.op.thread or lag != ZERO or op.cls != found.op.cls for op, lag in records):
                raise Refused("an event is recorded by another than who made it, or in another step")
            if via is not None and any(op.place > limit for op, _ in records):
                raise Refused("an event is recorded after it was handed over")
            before = sorted((op for op, _ in records if op.place < limit), key=lambda op: op.place)
            if not before:
                return []
            through = user if found.via is None or found.via.thread != found.op.thread else found.via
            if any(not through.member <= op.member for op in before):
                raise Refused("an event is recorded in some kinds of step only")
            return [(self.records[before[-1].thread, before[-1].node], found.lag)]
        records_ = [op for op in every if not isinstance(op.operation.event, p.Local) and op.operation.event.id == event.id]  # type: ignore[union-attr]
        if not records_:
            return []
        if any(op.group != user.group for op in records_):
            raise Refused(f"event {self.name(event.id)!r} is recorded by another thread than the one that waits")
        if any(op.optional for op in records_):
            raise Refused(f"event {self.name(event.id)!r} is recorded in some kinds of step only")
        if isinstance(event, p.Slot):
            if len(records_) != 1:
                raise Refused(f"event {self.name(event.id)!r} is recorded at {len(records_)} places")
            (record,) = records_
            target = record.operation.event  # type: ignore[union-attr]
            assert isinstance(target, p.Slot)
            there, here = self._index(record, target.index), self._index(user, event.index)
            if there.stride != ONE or here.stride != ONE or there.loop is not None or here.loop is not None:
                raise Refused(f"event {self.name(event.id)!r} is taken several times a step")
            depth: Any = self.program.objects[event.id]
            least = ZERO if record.place < user.place else ONE
            return [(self.records[record.thread, record.node], self.nearest(there.base - here.base, poly_of(depth.depth), least))]
        earlier = [op for op in records_ if op.place < user.place]
        latest = max(earlier or records_, key=lambda op: op.place)
        return [(self.records[latest.thread, latest.node], ZERO if earlier else ONE)]

    def _orders(self) -> None:
        """Program order and stream order."""
        agents: dict[Agent, list[Node]] = {}
        for node in self.nodes:
            agents.setdefault(node.agent[:4], []).append(node)
        for nodes in agents.values():
            nodes.sort(key=lambda node: node.order)
            shifts = {node.agent[4:] for node in nodes}
            if len(shifts) > 1:
                self._rotating(nodes)
            else:
                self._chain(nodes, nodes[0].period or ONE)

    def _chain(self, nodes: list[Node], again: Poly) -> None:
        """Order of one agent's nodes; `again`: steps until the agent's next turn. What does not run in each step is
        linked around, so that the order of the others does not pass through it."""
        base = [node for node in nodes if not node.optional and node.start == ZERO]
        rest = [node for node in nodes if node not in base]
        for one, other in zip(base, base[1:], strict=False):
            self._edge(one, other, ZERO)
        if base:
            self._edge(base[-1], base[0], again)
        for node in rest:
            if base:
                before = [b for b in base if b.order < node.order]
                self._edge(*((before[-1], node, ZERO) if before else (base[-1], node, again)))
                after = [b for b in base if b.order > node.order]
                self._edge(*((node, after[0], ZERO) if after else (node, base[0], again)))
            for other in rest:
                self._edge(node, other, ZERO if node.order < other.order else again)

    def _rotating(self, nodes: list[Node]) -> None:
        """Streams in rotation that are used at different offsets."""
        for one in nodes:
            for other in nodes:
                assert one.period is not None
                least = ZERO if one.order < other.order else ONE
                self._edge(one, other, self.nearest(one.agent[4] - other.agent[4], one.period, least))

    def _queues(self) -> None:
        for q, found in enumerate(self.program.objects):
            if not isinstance(found, p.Queue):
                continue
            puts = [op for op in self.by_type.get(p.Put, ()) if op.operation.queue == q]  # type: ignore[union-attr]
            gets = [op for op in self.by_type.get(p.Get, ()) if op.operation.queue == q]  # type: ignore[union-attr]
            if not puts and not gets:
                continue
            if (len(puts) > 1 or len(gets) > 1) and self._shared(q, puts, gets, poly_of(found.capacity)):
                continue
            if len(puts) != 1 or len(gets) != 1 or puts[0].optional or gets[0].optional:
                if not (self.sure and puts and gets):
                    self.unsure(
                        f"queue {found.name!r} is filled at {len(puts)} places and emptied at {len(gets)} in a step; "
                        "only one each gives a fixed distance"
                    )
                continue
            put, get, capacity = puts[0], gets[0], poly_of(found.capacity)
            source, target = self.hosts[put.thread, put.node], self.hosts[get.thread, get.node]
            self.joined |= {source.number, target.number}
            self._edge(source, target, get.start - put.start)
            self._edge(target, source, capacity + put.start - get.start)
            if put.thread == get.thread and put.cls != get.cls:
                self._classes(put, get, capacity)

    def _end(self, kind: type, q: int, ops: list[Op]) -> tuple[Op, Node, Node] | None:
        """The end of a queue: what its steps are counted by, a node before its operations and one after them."""
        if len(ops) == 1 and not ops[0].optional and ops[0].loop is None:
            node = self.hosts[ops[0].thread, ops[0].node]
            return ops[0], node, node
        found = self.ends.get((kind, q))
        if found is None or found[0].op.optional or set(found[0].ops) != set(ops):
            return None
        return found[0].op, found[1], found[2]

    def _shared(self, q: int, puts: list[Op], gets: list[Op], capacity: Poly) -> bool:
        """A queue whose k-th item is put, or taken, by one of several operations: whatever is before the first of the puts is
        before whatever is behind the last of the gets. False where the k-th of each cannot be counted."""
        fills, empties = self._end(p.Put, q, puts), self._end(p.Get, q, gets)
        if fills is None or empties is None:
            return False
        (put, before_put, after_put), (get, before_get, after_get) = fills, empties
        self._edge(before_put, after_get, get.start - put.start)
        self._edge(before_get, after_put, capacity + put.start - get.start)
        if put.thread == get.thread and put.cls != get.cls:
            self._classes(put, get, capacity)
        return True

    def presence(self, source: Op, ways: frozenset[int]) -> dict[tuple[int, int], tuple[Poly, frozenset[int]]]:
        """Of which kind the step of `source` is, when its thread goes one of these `ways`, here and in the threads that its items go to or come from: for each thread
        the steps since, and the ways through the turn that are possible then."""
        found: dict[tuple[int, int], tuple[Poly, frozenset[int]]] = {}
        if not self.sure or not self.plans[source.thread].whole:
            return found
        found[source.group] = (ZERO, ways)
        work = [source.group]
        while work:
            group = work.pop()
            steps, ways = found[group]
            for q, made in enumerate(self.program.objects):
                puts = [op for op in self.by_type.get(p.Put, ()) if isinstance(made, p.Queue) and op.operation.queue == q]  # type: ignore[union-attr]
                gets = [op for op in self.by_type.get(p.Get, ()) if isinstance(made, p.Queue) and op.operation.queue == q]  # type: ignore[union-attr]
                fills, empties = self._end(p.Put, q, puts), self._end(p.Get, q, gets)
                if fills is None or empties is None:
                    continue
                lag = empties[0].start - fills[0].start
                for here, there, mine, theirs, more in (
                    (fills[0], empties[0], puts, gets, lag), (empties[0], fills[0], gets, puts, -lag),
                ):  # fmt: skip
                    if here.group != group or there.group in found or not self.plans[there.thread].whole:
                        continue
                    if any(op.group != here.group for op in mine) or any(op.group != there.group for op in theirs):
                        continue
                    tags = {op.operation.tag for op in mine if op.member & ways or len(mine) == 1}  # type: ignore[union-attr]
                    members = [op.member for op in theirs if op.operation.tag in tags]  # type: ignore[union-attr]
                    if len(theirs) > 1 and members:
                        found[there.group] = (steps + more, frozenset().union(*members))
                        work.append(there.group)
        return found

    def _channel(self, channel: int, items: list[Node]) -> None:
        """The k-th await of a channel waits for its k-th signal; a signal waits for room where there is a bound."""
        found: Any = self.program.objects[channel]
        signals, awaits = (
            sorted((item for item in items if isinstance(item.op.operation, kind)), key=lambda item: item.order)
            for kind in (p.Signal, p.Await)
        )
        steady = all(item.op.group == one[0].op.group and item.start == one[0].start and not item.optional for one in (signals, awaits) for item in one)
        if not steady or len(signals) != len(awaits):
            raise Refused(f"channel {found.name!r} is signalled and awaited in some steps only")
        if not signals:
            return
        lag = awaits[0].start - signals[0].start
        for signal, wait in zip(signals, awaits, strict=True):
            self._edge(signal, wait, lag)
        for number, wait in enumerate(awaits) if found.capacity is not None else ():
            steps, place = divmod(number + found.capacity, len(signals))
            self._edge(wait, signals[place], poly_of(steps) - lag)

    def _classes(self, put: Op, get: Op, capacity: Poly) -> None:
        """A queue of one thread between two classes of its operations, with the put in front of the get in the text:
        get i cannot run in the turn of put i + capacity, so its whole turn comes before."""
        if put.place > get.place:
            return
        mine = [node for node in self.nodes if node.agent[:2] == ("thread", put.thread)]
        for late in (node for node in mine if node.op.cls == get.cls):
            for early in (node for node in mine if node.op.cls == put.cls):
                self._edge(late, early, capacity)
                if early.order <= (put.place, 99) and late.order >= (get.place, 0):
                    self._edge(early, late, ZERO)


def local_name(names: Names, thread: int, local: int) -> str:
    """A local's name; of what came through a queue or a cell the name that other reports give it."""
    of = names.program.threads[thread]
    name = of.locals[local].name
    return names.local(local, of) if "." in name else name


def label(names: Names, op: Op) -> str:
    """An operation in a few words."""
    program = names.program
    operation: Any = op.operation
    name = getattr(operation, "name", "") or type(operation).__name__
    for field in ("event", "queue", "cell", "dst", "src"):
        target = getattr(operation, field, None)
        if isinstance(target, int):
            return f"{name} {program.objects[target].name}"
        if isinstance(target, (p.Obj, p.Slot)):
            return f"{name} {program.objects[target.id].name}"
        if isinstance(target, p.Local):
            return f"{name} {local_name(names, op.thread, target.id)}"
    accesses = getattr(operation, "accesses", ())
    if isinstance(operation, p.Host) and accesses:
        target = accesses[0].target
        if isinstance(target, p.Local):
            return f"{name} {local_name(names, op.thread, target.id)}"
        return f"{name} {program.objects[target.id].name}"
    return str(name)
