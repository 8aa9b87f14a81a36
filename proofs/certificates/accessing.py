"""Accesses to one class, references to the guessed block, and the numbering of everything that a `World` holds."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.certificates.footprint import Class, Footprint, successors
from fencepost.proofs.certificates.world import (
    TRUE,
    Block,
    Check,
    Path,
    Unsupported,
    Value,
    Where,
    Witness,
    World,
    may_overlap,
    part_of,
    pieces_disjoint,
    surely_covers,
)

Kind = TypeVar("Kind", bound=p.Data)
_END = 1 << 62
"""In bytes: behind the end of every allocation."""


def inside(value: Any) -> list[Any]:
    """Every data node below `value`, itself included."""
    found = [value]
    if isinstance(value, p.Data):
        for name in value.__struct_fields__:
            found += inside(getattr(value, name))
    elif isinstance(value, tuple):
        for one in value:
            found += inside(one)
    return found


class Accessing:
    """Numbering, operands, accesses and references; what the operations do is in `Machine`."""

    def __init__(self, footprint: Footprint, cls: Class | None) -> None:
        self.footprint = footprint
        self.program = program = footprint.program
        self.cls = cls
        self.kept = frozenset(footprint.effects if cls is None else footprint.slice(cls))
        self.unread = cls is not None and not footprint.read(cls)
        self.track = footprint.queries
        self.setups = [t for t, thread in enumerate(program.threads) if thread.kind == "setup"]
        self._number()
        self.live = [_live(thread) for thread in program.threads]

    def object(self, oid: int, kind: type[Kind]) -> Kind:
        """The object `oid`, which is of that kind."""
        found = self.program.objects[oid]
        assert isinstance(found, kind)
        return found

    def depth(self, oid: int) -> int:
        """Slots of a ring, 1 for an object that exists once."""
        return getattr(self.program.objects[oid], "depth", None) or 1

    # ------------------------------------------------------------ numbering

    def _number(self) -> None:
        program = self.program
        parts: list[tuple[int, Any]] = []
        for t, thread in enumerate(program.threads):
            for n, node in enumerate(thread.nodes):
                if isinstance(node, p.Ask) or (t, n) in self.kept:
                    what = node.question if isinstance(node, p.Ask) else node.operation
                    parts += [(t, x) for x in inside(what)]
                    parts += [(t, x) for x in inside(self.footprint.effects.get((t, n), ()))]
        named = {x.id for _, x in parts if isinstance(x, (p.Obj, p.Slot))}
        devices = [x for _, x in parts if isinstance(x, e.JoinDevice)]

        def used(i: int, o: Any) -> bool:
            if isinstance(o, p.Stream):
                return i in named or any(o.gpu == d.gpu and o.process == d.process for d in devices)
            return i in named or not isinstance(o, p.Event)

        def slots(kind: type) -> list[tuple[int, int]]:
            return [
                (i, slot) for i, o in enumerate(program.objects) if isinstance(o, kind) and used(i, o)
                for slot in range(self.depth(i))
            ]  # fmt: skip

        def table(kind: type) -> dict[int, int]:
            return {i: k for k, i in enumerate(i for i, o in enumerate(program.objects) if isinstance(o, kind))}

        self.stream_slots, self.event_slots, self.cell_slots = slots(p.Stream), slots(p.Event), slots(p.Cell)
        self.stream_at = {named: k for k, named in enumerate(self.stream_slots)}
        self.event_at = {named: k for k, named in enumerate(self.event_slots)}
        self.cell_at = {named: k for k, named in enumerate(self.cell_slots)}
        self.queue, self.lock, self.flag = table(p.Queue), table(p.Lock), table(p.Flag)
        self.counter, self.pool = table(p.Counter), table(p.Pool)
        self._users(parts)
        self._positions(parts)
        self._counting(parts)
        self.askers: dict[str, list[int]] = {}
        for t, x in parts:
            if isinstance(x, p.Choose) and x.agreed and t not in self.askers.setdefault(x.name, []):
                self.askers[x.name].append(t)
        self.followed = self._followed()
        self.epochs = any(getattr(x, "same_bytes", False) for _, x in parts)

    def _users(self, parts: list[tuple[int, Any]]) -> None:
        users: dict[int, set[int]] = {i: set() for i in self.queue}
        self.getters: dict[int, set[int]] = {i: set() for i in self.queue}
        self.tested: set[int] = set()
        for t, x in parts:
            if isinstance(x, (p.Put, p.Get, p.QueueFull, p.QueueHolds, p.QueueTag)):
                users[x.queue].add(t)
            if isinstance(x, (p.Get, p.QueueTag)):
                self.getters[x.queue].add(t)
            if isinstance(x, (p.QueueFull, p.QueueHolds)):
                self.tested.add(x.queue)
        steered: dict[int, set[int]] = {}
        for t, x in parts:
            if isinstance(x, (p.Advance, p.Last)) and t not in self.setups:
                steered.setdefault(x.cursor, set()).add(t)
        shared = [self.program.objects[i].name for i, threads in steered.items() if len(threads) > 1]
        if shared:
            raise Unsupported(f"cursor {shared[0]!r} is used by several threads, whose order no edge records")
        self.alone = {i: len(threads) <= 1 for i, threads in users.items()}

    def _positions(self, parts: list[tuple[int, Any]]) -> None:
        """Positions: of each cursor, and of each thread's turn modulo each depth that it indexes."""
        self.positions: list[tuple[str, int, int]] = [
            ("cursor", i, o.depth) for i, o in enumerate(self.program.objects) if isinstance(o, p.Cursor)
        ]
        fixed: set[int] = set()
        for t, x in parts:
            if isinstance(x, p.Slot):
                if isinstance(x.index, p.Turn) and ("turn", t, self.depth(x.id)) not in self.positions:
                    self.positions.append(("turn", t, self.depth(x.id)))
                if isinstance(x.index, p.Fixed):
                    fixed.add(self.depth(x.id))
        self.position_at = {key: k for k, key in enumerate(self.positions)}
        depths = {depth for _, _, depth in self.positions}
        depths |= {self.depth(i) for i in range(len(self.program.objects))}
        self.turning = sorted(d for d in depths if d > 1 and d not in fixed)
        """Depths whose rings may all be renamed together: every index is a position plus a constant."""

    def _counting(self, parts: list[tuple[int, Any]]) -> None:
        self.counted: dict[int, list[int]] = {i: [] for i in self.counter}
        """For each counter who compares it: a thread with its turn, -1 with a constant."""
        self.most: dict[int, int] = dict.fromkeys(self.counter, 0)
        self.most_turns = [0] * len(self.program.threads)
        for t, x in parts:
            if isinstance(x, (p.CounterWait, p.CounterAtLeast)):
                who = t if isinstance(x, p.CounterWait) and x.per_turn else -1
                if who not in self.counted[x.counter]:
                    self.counted[x.counter].append(who)
                if who < 0:
                    self.most[x.counter] = max(self.most[x.counter], x.value)
            if isinstance(x, p.TurnBelow):
                self.most_turns[t] = max(self.most_turns[t], x.value)

    def _followed(self) -> set[int]:
        """Pools of which one token is guessed: the class itself, and pools whose rows are parts of the class."""
        cls = self.cls
        if cls is None:
            return set()
        result = {cls.id} if cls.kind == "pool" else set()
        for access in self.footprint.of_class[cls]:
            result |= self._rows(access.thread, self.footprint.targets[access.thread, access.node, access.which])
        for t, thread in enumerate(self.program.threads):
            for node in thread.nodes:
                if isinstance(node, p.Do) and isinstance(node.operation, (p.View, p.Put, p.CellSet)):
                    result |= self._rows(t, node.operation)
        return result

    def _rows(self, t: int, what: Any) -> set[int]:
        locals_ = self.program.threads[t].locals
        rows = [x.index.local for x in inside(what) if isinstance(x, p.At) and isinstance(x.index, p.Var)]
        return {pool for k in rows if (pool := locals_[k].pool) is not None}

    # ------------------------------------------------------------ operands

    def index(self, w: World, t: int, index: p.Index, depth: int) -> int:
        """Slot of a ring of that depth. Raises `Unsupported` where the index is measured in another one."""
        if isinstance(index, p.Fixed):
            return index.slot % depth
        if isinstance(index, p.Turn):
            return (w.pos[self.position_at["turn", t, depth]] + index.offset) % depth
        if isinstance(index, p.Last):
            own, position = self.depth(index.cursor), w.pos[self.position_at["cursor", index.cursor, self.depth(index.cursor)]]
        else:
            value = w.locals[t][index.local]
            if value is None or value[0] != "I":
                raise Unsupported("an index is used before it has a value")
            own, position = value[1], value[2]
        if own != depth:
            raise Unsupported(f"an index of a ring of depth {own} is used for a ring of depth {depth}")
        return int(position + index.offset) % depth

    def named(self, w: World, t: int, operand: p.Operand) -> tuple[int, int]:
        """(object, slot) of an operand that names an object."""
        assert not isinstance(operand, p.Local)
        if isinstance(operand, p.Obj):
            return operand.id, 0
        return operand.id, self.index(w, t, operand.index, self.depth(operand.id))

    def stream(self, w: World, t: int, operand: p.Operand) -> int:
        """Number of a stream."""
        return self.stream_at[self.named(w, t, operand)]

    def event(self, w: World, t: int, operand: p.Operand) -> int | None:
        """Number of an event; None for a local without one."""
        if not isinstance(operand, p.Local):
            return self.event_at[self.named(w, t, operand)]
        value = w.locals[t][operand.id]
        return int(value[1]) if value is not None and value[0] == "E" else None

    def value(self, w: World, t: int, operand: p.Operand | p.Index) -> Value:
        """What an operand or index stands for, as locals and items hold it."""
        if isinstance(operand, p.Local):
            value = w.locals[t][operand.id]
            if value is not None and value[0] in "MBbdT" and operand.part is not None:
                return (*value[:-1], part_of(value[-1], self.piece(w, t, operand.part)))
            return value
        if isinstance(operand, (p.Obj, p.Slot)):
            named = self.named(w, t, operand)
            if isinstance(self.program.objects[operand.id], p.Event):
                return ("E", self.event_at[named]) if named in self.event_at else None
            if self.cls is None or self.cls.kind != "memory" or self.cls.id != operand.id:
                return ("O",)
            slot = named[1] if self.depth(operand.id) > 1 else None
            return ("M", operand.id, slot, () if operand.part is None else (self.piece(w, t, operand.part),))
        if isinstance(operand, p.Last):
            depth = self.depth(operand.cursor)
            return ("I", depth, self.index(w, t, operand, depth))
        if isinstance(operand, p.Var):
            value = w.locals[t][operand.local]
            if value is not None and value[0] == "I":
                return ("I", value[1], (value[2] + operand.offset) % value[1])
            return value
        raise Unsupported("a turn number or a constant is handed over: there is no ring that it is relative to")

    def piece(self, w: World, t: int, part: p.Part) -> Any:
        """A part, with its index known where that can be."""
        if isinstance(part, p.Named):
            return ("name", part.name)
        if isinstance(part, p.Span):
            return ("span", part.start, part.stop)
        if isinstance(part, p.At):
            index = part.index
            if isinstance(index, p.Fixed):
                return ("fix", index.slot)
            if isinstance(index, p.Last):
                depth = self.depth(index.cursor)
                return ("row", depth, self.index(w, t, index, depth))
            if isinstance(index, p.Var):
                value = w.locals[t][index.local]
                if value is not None and value[0] == "I":
                    return ("row", value[1], (value[2] + index.offset) % value[1])
                if value is not None and value[0] in "Kk" and not index.offset and value[1] in self.followed:
                    return ("tok", value[1], value[0] == "K")
        return ("any",)

    def set_local(self, w: World, t: int, local: int, value: Value) -> None:
        """Store a value whose reference is held already; what the local held is let go."""
        old = w.locals[t][local]
        w.locals[t][local] = value
        self._let_go(w, t, old)

    # ------------------------------------------------------------ accesses

    def fault(self, w: World, what: str, t: int, n: int, which: int = 0) -> None:
        """Something that must never happen: an obligation that no bit can meet."""
        w.checks = (*w.checks, Check(0, what, t, n, which))

    def where(self, w: World, t: int, target: p.Operand) -> Where | None:
        """Where an access touches the class, as its call sees it; None where it does not."""
        cls = self.cls
        if cls is None:
            return None
        part: Path = () if target.part is None else (self.piece(w, t, target.part),)

        def of(path: Path) -> Path:
            return part_of(path, *part) if part else path

        if not isinstance(target, p.Local):
            if cls.kind != "memory" or target.id != cls.id:
                return None
            return Where(self.named(w, t, target)[1] if self.depth(target.id) > 1 else None, part)
        value = w.locals[t][target.id]
        if value is None:
            return None
        if value[0] == "M" and cls.kind == "memory" and value[1] == cls.id:
            return Where(value[2], of(value[3]))
        if value[0] in "Bbd" and cls.kind == "block":
            return Where(None, of(value[2]), "gone" if value[0] == "d" else "owner")
        if value[0] == "T" and cls.kind == "pool":
            return Where(None, of(value[1]))
        return None

    def judge(self, w: World, t: int, n: int, which: int, access: p.Access, mask: int) -> Witness | None:
        """One access by an agent that carries `mask`. Gives the witness that it would be, while none is chosen."""
        where = self.where(w, t, access.target)
        return None if where is None else self.judge_at(w, t, n, which, access.mode == "w", access.same_bytes, where, mask)

    def judge_at(
        self, w: World, t: int, n: int, which: int, write: bool, same: bool, where: Where, mask: int
    ) -> Witness | None:  # fmt: skip
        """`judge` for an access whose place is known."""
        if where.owner == "gone":
            self.fault(w, "UNDEFINED", t, n, which)  # a use after the free, in whatever order
            return None
        slot, path = where.slot, where.path
        counted = where.owner == "owner"
        wit = w.witness
        if wit is None:
            self._defined(w, t, n, which, write, same, where)
            if any(piece[0] == "tok" and not piece[2] for piece in path):
                return None  # chosen where its own token is the guessed one
            return Witness(same, self.epochs and counted, slot, path, counted)
        if slot is not None and wit.slot is not None and slot != wit.slot:
            return None
        if wit.tenant and counted and not may_overlap(wit.path, path):
            return None
        w.met = (*w.met, (t, n, which))
        if where.owner == "late":
            mask = 0  # that it comes later is what is wrong
        if not write:
            mask |= w.reader  # two reads do not conflict
        check = Check(mask, "write" if write else "read", t, n, which)
        if wit.epoch and (same or (wit.same and not write)):
            w.spared = (*w.spared, check._replace(what="same bytes"))
        elif self.unread:  # then every access is a write whose content nobody looks at
            w.spared = (*w.spared, check._replace(what="nothing reads"))
        elif not mask & TRUE:
            w.checks = (*w.checks, check)
        if write and not same and wit.epoch:
            w.witness = wit._replace(epoch=False)
        return None

    def _defined(self, w: World, t: int, n: int, which: int, write: bool, same: bool, where: Where) -> None:
        """A read of a block before its owner wrote each piece of it reads undefined bytes."""
        path, former = where.path, where.owner == "former"
        if w.block is None:
            return
        written = w.block.former if former else w.block.written
        if written is None:
            return
        if not write:
            if not all(any(may_give(done, path, piece) for done in written) for piece in self.pieces(path)):
                self.fault(w, "UNDEFINED", t, n, which)
        elif not same and not any(surely_covers(done, path) for done in written):
            left = tuple(done for done in written if not surely_covers(path, done))
            now = tuple(sorted((*left, path), key=repr))
            w.block = w.block._replace(former=now) if former else w.block._replace(written=now)

    def pieces(self, read: Path) -> tuple[Any, ...]:
        """What of a read of a block must have been written: each name and span that the program cuts blocks into. None: any part of it."""
        names, spans = self.cuts
        if not read:
            return (*names, *spans) or (None,)
        first = read[0]
        if first[0] == "span":
            within = tuple(one for one in spans if first[1] <= one[1] and one[2] <= first[2])
            return within or ((None,) if first[1] < first[2] else ())
        return (first,) if first[0] == "name" else (None,)

    @functools.cached_property
    def cuts(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The names, and the elementary spans that the ends of allocations and of named spans cut."""
        named: set[str] = set()
        spans: set[Any] = set()
        views: set[Any] = set()
        sizes = [o.bytes for o in self._operations() if isinstance(o, p.Alloc)]
        for operation, part in ((o, x.part) for o in self._operations() for x in inside(o) if isinstance(x, p.Local)):
            if isinstance(part, p.Named):
                named.add(part.name)
            elif isinstance(part, p.Span):
                spans.add(("span", part.start, part.stop))
                if isinstance(operation, (p.View, p.Put, p.CellSet)):
                    views.add(("span", part.start, part.stop))
        for _ in range(2 if views else 0):  # views of parts, and views of parts of those
            spans |= {part_of((view,), span)[0] for view in views for span in spans}
            views |= {part_of((view,), span)[0] for view in views for span in views}
        ends = {end for span in spans for end in span[1:]}
        if ends and sizes:
            ends.update((0, *sizes))
        row = sorted(ends)
        return tuple(("name", one) for one in sorted(named)), tuple(("span", row[k], row[k + 1]) for k in range(len(row) - 1))

    def _operations(self) -> list[p.Operation]:
        return [node.operation for thread in self.program.threads for node in thread.nodes if isinstance(node, p.Do)]

    def _choose(self, w: World, wit: Witness, write: bool, t: int, n: int, which: int) -> World:
        chosen = w.copy()
        chosen.witness = wit
        chosen.reader = 0 if write else TRUE
        chosen.chosen = (t, n, which)
        if chosen.block is not None:
            chosen.block = chosen.block._replace(written=None, former=None)
            if wit.tenant:
                self.come_late(chosen)
        return chosen

    def come_late(self, w: World) -> None:
        """What its former owner has pending on the block comes after its next owner's access."""
        raise NotImplementedError

    def happens(self, w: World, t: int, n: int, first: int, count: int) -> None:
        """Control alone meets every access that is made, whatever it touches."""
        if self.cls is None:
            w.met = (*w.met, *((t, n, first + k) for k in range(count)))

    def accessed_by_host(
        self, w: World, t: int, n: int, first: int, accesses: tuple[p.Access, ...]
    ) -> list[World]:
        """Accesses of the thread itself: after a chosen one it carries the witness (program order)."""
        worlds, met = [w], w.met
        for k, access in enumerate(accesses):
            for one in worlds[:]:
                wit = self.judge(one, t, n, first + k, access, one.tb[t])
                if wit is not None:
                    chosen = self._choose(one, wit, access.mode == "w", t, n, first + k)
                    chosen.tb[t] = TRUE
                    worlds.append(chosen)
        for one in worlds[1:]:
            one.met = met  # one call does not meet itself
        return worlds

    def accessed_by_item(
        self, w: World, t: int, n: int, first: int, accesses: tuple[p.Access, ...], stream: int
    ) -> list[World]:
        """Accesses of one device item that runs now."""
        found = []
        for k, access in enumerate(accesses):
            where = self.where(w, t, access.target)
            if where is not None:
                found.append((first + k, access.mode == "w", access.same_bytes, where))
        return self.accessed_on(w, t, n, tuple(found), stream)

    def accessed_on(
        self, w: World, t: int, n: int, accesses: tuple[tuple[int, bool, bool, Where], ...], stream: int
    ) -> list[World]:  # fmt: skip
        """(number, whether it writes, the same bytes, where) of an item: reads first, as they never conflict with each
        other and end with the item."""
        had = w.witness is not None
        worlds, met = [w], w.met
        for which, write, same, where in sorted(accesses, key=lambda one: one[1]):
            for one in worlds[:]:
                mask = one.streams[stream] if had else TRUE  # of the same item: in order, but it may end an epoch
                wit = self.judge_at(one, t, n, which, write, same, where, mask)
                if wit is not None:
                    chosen = self._choose(one, wit, write, t, n, which)
                    chosen.streams[stream] = TRUE
                    worlds.append(chosen)
        for one in worlds[1:]:
            one.met = met  # one item does not meet itself
        return worlds

    # ------------------------------------------------------------ references and blocks

    def _hold(self, w: World, value: Value) -> None:
        if value is not None and value[0] == "B" and w.block is not None:
            w.block = w.block._replace(refs=w.block.refs + 1)

    def _let_go(self, w: World, t: int, value: Value) -> None:
        """A reference ends; the last one frees the block: noted streams record an event now (S63, S65, S80)."""
        block = w.block
        if value is None or value[0] != "B" or block is None:
            return
        free, uses, written, waits = block.free | w.tb[t], block.uses, block.written, block.waits
        if block.refs == 1:
            for named in uses:
                s = self.stream_at[named]
                if w.fifos[s]:
                    waits = (*waits, self.record(w, s, w.tb[t]))
                else:
                    free |= w.streams[s]  # the record starts after its call, and so does whoever gets the block
            self.leave_pending(w)
            uses, written = (), None if written is None else ()
            if w.witness is not None and w.witness.tenant:
                w.witness = w.witness._replace(tenant=False, epoch=False)
            w.map_values(lambda v: ("d", *v[1:]) if v is not None and v[0] == "b" else v)
        assert w.block is not None
        w.block = w.block._replace(refs=block.refs - 1, free=free, uses=uses, written=written, waits=waits)

    def record(self, w: World, s: int, mask: int) -> int:
        """A record at the end of a pending stream (`Meetings`)."""
        raise NotImplementedError

    def leave_pending(self, w: World) -> None:
        """What is pending on a block when it is freed (`Meetings`)."""
        raise NotImplementedError

    def _alloc(self, w: World, t: int, n: int, which: int, effect: p.Alloc) -> list[World] | None:
        """Whether the allocation gets the guessed block is open when that is free and of the same owner (S62, S63)."""
        cls = self.cls
        device = effect.space == "device"
        if cls is None or cls != self.footprint.class_of(t, effect) or w.block is None:
            self.set_local(w, t, effect.local, ("O",))
            return None
        mine = self.named(w, t, effect.stream) if device and effect.stream is not None else None
        self.set_local(w, t, effect.local, ("O",))
        block = w.block
        if block.refs or block.waits or (block.owner is not None and block.owner != mine):
            return None
        got = w.copy()
        got.tb[t] |= block.free
        behind: tuple[Path, ...] = ((("span", effect.bytes, _END),),) if self.cuts[1] else ()  # what it has not need not be written
        got.block = Block(1, 0, (), mine, behind if w.witness is None else None, (), block.former)
        self.set_local(got, t, effect.local, ("B", True, ()))
        got.path = (*got.path[:-1], got.path[-1]._replace(got=True))
        return [w, got]

    def _view(self, w: World, t: int, n: int, which: int, effect: p.View) -> None:
        value = self.value(w, t, effect.base)
        if value is not None and value[0] in "Bb":
            value = ("B" if value[0] == "B" and effect.held else "b", value[1] and effect.attributed, value[2])
        self._hold(w, value)
        self.set_local(w, t, effect.local, value)

    def _drop(self, w: World, t: int, n: int, which: int, effect: p.Drop) -> None:
        self.set_local(w, t, effect.local, None)

    def _noteuse(self, w: World, t: int, n: int, which: int, effect: e.NoteUse) -> None:
        """The allocator learns of a use (S64, S79), unless it cannot attribute it (S72, S84)."""
        cls, block = self.cls, w.block
        if cls is None or block is None or not isinstance(effect.block, p.Local):
            return
        value = w.locals[t][effect.block.id]
        pinned = cls.id < 0
        if value is None or value[0] != "B" or effect.space != ("pinned" if pinned else "device") or not value[1]:
            return
        used = self.named(w, t, effect.stream)
        if used != block.owner and used not in block.uses:
            w.block = block._replace(uses=tuple(sorted((*block.uses, used))))


def _live(thread: p.Thread) -> list[frozenset[int]]:
    """For each node the locals that it or a later node of the turn reads."""
    read: list[frozenset[int]] = []
    made: list[frozenset[int]] = []
    for node in thread.nodes:
        what: Any = node.operation if isinstance(node, p.Do) else node.question
        names = {x.id for x in inside(what) if isinstance(x, p.Local)} | {x.local for x in inside(what) if isinstance(x, p.Var)}
        read.append(frozenset(names))
        new: tuple[int, ...] = ()
        if isinstance(what, (p.Alloc, p.View, p.NewEvent, p.Advance, p.Take, p.Drop)):
            new = (what.local,)
        elif isinstance(what, (p.Get, p.CellGet)):
            new = what.locals
        made.append(frozenset(new))
    live = [frozenset[int]() for _ in thread.nodes]
    changed = True
    while changed:
        changed = False
        for n in range(len(thread.nodes) - 1, -1, -1):
            later: set[int] = set()
            for after in successors(thread.nodes[n]):
                later |= live[after] if after >= 0 else set()
            now = read[n] | (later - made[n])
            changed = changed or now != live[n]
            live[n] = frozenset(now)
    return live


def may_give(write: Path, read: Path, piece: Any) -> bool:
    """Whether a write may have given a piece of a read its content; what is a part of a part counts as the larger one."""
    if piece is None:
        return may_overlap(write[:1], read[:1])
    return not write or not pieces_disjoint(write[0], piece)

