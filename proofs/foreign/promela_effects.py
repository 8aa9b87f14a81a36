"""Effects of operations as Promela statements: what is atomic, then what waits or lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.foreign.promela_instance import PAD, NotExported, overlap
from fencepost.proofs.foreign.promela_operands import Operands
from fencepost.proofs.foreign.promela_words import counter_of, word_of


class Effects(Operands):
    """An instance whose effects can be spelled."""

    # ------------------------------------------------------------ device effects

    def _val(self, accesses: tuple[p.Access, ...]) -> list[str]:
        """In the order of the calls: a block is read only after some of what is read was written for its owner."""
        if not self.counts["block"]:
            return []
        result = []
        many = len(self.paths)
        first = many * (self.counts["location"] - self.counts["block"])
        for a in sorted(accesses, key=lambda a: a.mode == "w"):
            if isinstance(a.target, p.Local):
                v = self.memory(a.target)
                place = f"{v} / 4 - {first}"
                if a.mode == "w":
                    what = "skip" if a.same_bytes else f"written[{place}] = 1"
                elif many == 1:
                    what = f"assert(written[{place}])"
                else:
                    ways = []
                    for i, path in enumerate(self.paths):
                        near = [f"written[{place} + {k - i}]" for k, one in enumerate(self.paths) if overlap(path, one)]
                        ways.append(f":: ({v} / 4) % {many} == {i} -> assert({' || '.join(near)})".replace("+ -", "- "))
                    what = f"if {' '.join(ways)} fi"
                result.append(f"if :: {self.held(v)} -> {what} :: else fi")
        return result

    def touch(self, x: e.Touch) -> tuple[list[str], list[str]]:
        """A host access begins with the call and lasts."""
        locs = [f"({self.memory(a.target)} / 4)" for a in x.accesses]
        begin = [f"start_{word_of(a)}({loc})" for a, loc in zip(x.accesses, locs, strict=True)]
        enter = [f"{counter_of(a)}[{loc}]++" for a, loc in zip(x.accesses, locs, strict=True)]
        leave = [f"{counter_of(a)}[{loc}]--" for a, loc in zip(x.accesses, locs, strict=True)]
        return [*self._val(x.accesses), *begin, *enter], [f"atomic {{ {'; '.join(leave)} }}"] if leave else []

    def enqueue(self, x: e.Enqueue) -> tuple[list[str], list[str]]:
        """An item at the tail."""
        return self._item(x.stream, x.accesses), []

    def _item(self, stream: p.Operand, accesses: tuple[p.Access, ...], *meets: str) -> list[str]:
        number = len(self.sites)
        self.sites.append(accesses)
        if meets:
            self.meets[number] = list(meets)
        self.width = max(self.width, len(accesses))
        locs = [f"{self.memory(a.target)} / 4" for a in accesses]
        return [
            *self._val(accesses),
            f"x = {self.stream(stream)}",
            f"strm[x] ! {', '.join([str(number), *(f'tail[x].c[{s}]' for s in range(self.streams)), *locs])}{PAD}{len(locs)}>",
            "sent[x]++; zero_vec(tail[x]); tail[x].c[x] = sent[x]",
            *self._is_last(stream),
        ]

    def _tag_of(self, tag: str) -> int:
        return self.tags.setdefault(tag, len(self.tags))

    def signal(self, x: p.Signal) -> tuple[list[str], list[str]]:
        """An item that waits for room in the channel."""
        return self._item(x.stream, (), f"channel_{x.channel} ! {self._tag_of(x.tag)}"), []

    def wait_for_signal(self, x: p.Await) -> tuple[list[str], list[str]]:
        """An item that waits until the oldest signal is there and has its tag."""
        return self._item(x.stream, (), f"channel_{x.channel} ? {self._tag_of(x.tag)}"), []

    def store_flag(self, x: p.StoreFlag) -> tuple[list[str], list[str]]:
        """Overwrite the word."""
        store = f"word_{x.flag} = {x.value}"
        return ([store], []) if x.stream is None else (self._item(x.stream, (), store), [])

    def wait_flag(self, x: p.WaitFlag) -> tuple[list[str], list[str]]:
        """Wait until the word is high enough."""
        wait = [f"word_{x.flag} >= {x.value}", *([f"word_{x.flag} = 0"] if x.reset else [])]
        return (wait, []) if x.stream is None else (self._item(x.stream, (), *wait), [])

    def record(self, x: e.RecordEvent) -> tuple[list[str], list[str]]:
        """What must end before the event is complete: what the stream's tail needs."""
        return [f"x = {self.stream(x.stream)}; copy_vec({self.event(x.event)}, tail[x])", *self._is_last(x.stream)], []

    def join_event(self, x: e.JoinEvent) -> tuple[list[str], list[str]]:
        """Snapshot at the call, then wait."""
        return [f"copy_vec(w, {self.event(x.event)})"], ["READY(w)"]

    def join_stream(self, x: e.JoinStream) -> tuple[list[str], list[str]]:
        """Snapshot at the call, then wait."""
        return [f"copy_vec(w, {self._own(x.stream)})"], ["READY(w)"]

    def join_device(self, x: e.JoinDevice) -> tuple[list[str], list[str]]:
        """All streams of the process on that GPU."""
        found = []
        for (i, _), fifo in self.fifos.items():
            stream = self.program.objects[i]
            if isinstance(stream, p.Stream) and (stream.gpu, stream.process) == (x.gpu, x.process):
                found.append(f"join_vec(w, tail[{fifo}])")
        return ["zero_vec(w)", *dict.fromkeys(found)], ["READY(w)"]

    def stream_waits_event(self, x: e.StreamJoinsEvent) -> tuple[list[str], list[str]]:
        """Later items need what the event captured."""
        return [
            f"x = {self.stream(x.stream)}; join_vec(tail[x], {self.event(x.event)})",
            *([f"join_vec({self._own(x.stream)}, {self.event(x.event)})"] if self.lanes else []),
        ], []

    def stream_waits_stream(self, x: e.StreamJoinsStream) -> tuple[list[str], list[str]]:
        """Later items need what the other stream's tail needs."""
        return [
            f"x = {self.stream(x.stream)}; y = {self.stream(x.other)}; join_vec(tail[x], tail[y])",
            *self._is_last(x.other, "y"),
            *([f"join_vec({self._own(x.stream)}, {self._own(x.other)})"] if self.lanes else []),
        ], []

    def note_use(self, x: e.NoteUse) -> tuple[list[str], list[str]]:
        """S64, S79, S84: the allocator is told, unless the stream owns the block."""
        if not self.counts["block"] or not isinstance(x.block, p.Local):
            return ["skip"], []
        v = self.memory(x.block)
        block = self.block(v)
        right = f"owner[{block}] >= 0 && owner[{block}] != x" if x.space == "device" else f"owner[{block}] < 0"
        tell = f"noted[{block}] = noted[{block}] | (1 << x)"
        return [
            f"x = {self.stream(x.stream)}",
            f"if :: {self.held(v)} -> if :: ({right} && ({v} & 1) == 0) -> {tell} :: else fi :: else fi",
        ], []

    # ------------------------------------------------------------ host operations

    def set_local(self, local: int, value: str) -> str:
        """Assign; the old reference ends."""
        old = f"let_go(v{local}); " if self.thread.locals[local].kind == p.MEMORY else ""
        return f"{old}v{local} = {value}"

    def alloc(self, x: p.Alloc) -> tuple[list[str], list[str]]:
        """A fresh block, or one that was given up and whose noted streams have caught up."""
        if self.environment.one_queue and x.stream is not None and len(self.fifos) > self.streams:
            raise NotExported("allocations under one hardware queue")
        processes = list(dict.fromkeys(thread.process for thread in self.program.threads))
        mine = str(-1 - processes.index(self.thread.process)) if x.stream is None else self.stream(x.stream)  # S80, S62
        first = self.counts["location"] - self.counts["block"]
        again = " ".join(
            f":: (given_up[{i}] && owner[{i}] == y && READY(over[{i}])) -> x = {i}" for i in range(self.counts["block"])
        )
        return [
            f"y = {mine}; if :: true -> x = next_block; next_block++ {again} fi",
            "owner[x] = y; refs[x] = 1; noted[x] = 0; given_up[x] = 0",
            *(f"written[x * {len(self.paths)} + {i}] = 0" for i in range(len(self.paths))),
            self.set_local(x.local, f"{4 * len(self.paths)} * ({first} + x)"),
        ], []

    def view(self, x: p.View) -> tuple[list[str], list[str]]:
        """Another reference."""
        flags = (0 if x.attributed else 1) + (0 if x.held else 2)
        return [f"y = {self.memory(x.base)} | {flags}" if flags else f"y = {self.memory(x.base)}", "hold(y)",
                self.set_local(x.local, "y")], []  # fmt: skip

    def drop(self, x: p.Drop) -> tuple[list[str], list[str]]:
        """The reference ends."""
        return [self.set_local(x.local, "-1")], []

    def new_event(self, x: p.NewEvent) -> tuple[list[str], list[str]]:
        """A fresh event."""
        return [self.set_local(x.local, "next_event"), "next_event++"], []

    def advance(self, x: p.Advance) -> tuple[list[str], list[str]]:
        """The next position."""
        depth = getattr(self.program.objects[x.cursor], "depth", 1)
        return [f"cursor_{x.cursor} = (cursor_{x.cursor} + 1) % {depth}", self.set_local(x.local, f"cursor_{x.cursor}")], []

    def _tag(self, queue: int, tag: str) -> int:
        found = self.program.objects[queue]
        assert isinstance(found, p.Queue)
        return [name for name, _ in found.items].index(tag)

    def _held(self, values: tuple[p.Operand | p.Index, ...], kinds: tuple[str, ...]) -> list[str]:
        return [f"y{i} = {self.value(v)}" + (f"; hold(y{i})" if k == p.MEMORY else "")
                for i, (v, k) in enumerate(zip(values, kinds, strict=True))]  # fmt: skip

    def _item_kinds(self, queue: int, tag: str) -> tuple[str, ...]:
        found = self.program.objects[queue]
        assert isinstance(found, p.Queue)
        return dict(found.items)[tag]

    def put(self, x: p.Put) -> tuple[list[str], list[str]]:
        """Wait for room, then append."""
        if not x.edge:
            raise NotExported("a put that orders nothing")
        kinds = self._item_kinds(x.queue, x.tag)
        pad = ["-1"] * (self.values - len(kinds))
        message = ", ".join([str(self._tag(x.queue, x.tag)), *(f"y{i}" for i in range(len(kinds))), *pad])
        return [f"nfull(queue_{x.queue})", *self._held(x.values, kinds), f"queue_{x.queue} ! {message}"], []

    def _receive(self, locals_: tuple[int, ...], kinds: tuple[str, ...]) -> list[str]:
        result = []
        for i, kind in enumerate(kinds):
            if i < len(locals_):
                result.append(self.set_local(locals_[i], f"y{i}"))
            elif kind == p.MEMORY:
                result.append(f"let_go(y{i})")
        return result

    def get(self, x: p.Get) -> tuple[list[str], list[str]]:
        """Wait for the item of that tag at the head."""
        tag = self._tag(x.queue, x.tag)
        fields = "".join(f", y{i}" for i in range(self.values))
        return [f"queue_{x.queue} ? {tag}{fields}", *self._receive(x.locals, self._item_kinds(x.queue, x.tag))], []

    def _cell_kinds(self, cell: p.Operand) -> tuple[str, ...]:
        assert isinstance(cell, (p.Obj, p.Slot))
        found = self.program.objects[cell.id]
        assert isinstance(found, p.Cell)
        return found.item

    def _empty_cell(self, kinds: tuple[str, ...]) -> str:
        drops = [f"x = cell_{i}[y]; let_go(x)" for i, kind in enumerate(kinds) if kind == p.MEMORY]
        reset = [f"cell_{i}[y] = 0" for i in range(len(kinds))]
        return f"if :: cell_full[y] -> {'; '.join([*drops, *reset, 'cell_full[y] = 0'])} :: else fi"

    def cell_set(self, x: p.CellSet) -> tuple[list[str], list[str]]:
        """Store; the old item loses its references."""
        kinds = self._cell_kinds(x.cell)
        store = [f"cell_{i}[y] = y{i}" for i in range(len(kinds))]
        return [*self._held(x.values, kinds), f"y = {self.slot(x.cell)}", self._empty_cell(kinds), *store, "cell_full[y] = 1"], []

    def cell_get(self, x: p.CellGet) -> tuple[list[str], list[str]]:
        """Copy, or move, the item into locals."""
        kinds = self._cell_kinds(x.cell)
        load = [f"y{i} = cell_{i}[y]" for i in range(len(kinds))]
        keep = [f"hold(y{i})" for i, kind in enumerate(kinds) if kind == p.MEMORY]
        empty = [f"cell_{i}[y] = 0" for i in range(len(kinds))]
        move = [*empty, "cell_full[y] = 0"] if x.take else keep
        return [f"y = {self.slot(x.cell)}", "assert(cell_full[y])", *load, *move, *self._receive(x.locals, kinds)], []

    def cell_clear(self, x: p.CellClear) -> tuple[list[str], list[str]]:
        """Empty the cell."""
        return [f"y = {self.slot(x.cell)}", self._empty_cell(self._cell_kinds(x.cell))], []

    def take(self, x: p.Take) -> tuple[list[str], list[str]]:
        """Any free token, once the work that its return named is over."""
        pool = self.program.objects[x.pool]
        assert isinstance(pool, p.Pool)
        free = " ".join(
            f":: (!taken_{x.pool}[{i}] && READY(back_{x.pool}[{i}])) -> taken_{x.pool}[{i}] = 1; x = {i}"
            for i in range(pool.size)
        )
        token = "x" if pool.of == "row" else f"{4 * len(self.paths)} * ({self.base[x.pool]} + x)"
        return [f"if {free} fi", self.set_local(x.local, token)], []

    def give(self, x: p.Give) -> tuple[list[str], list[str]]:
        """The token is free."""
        after = f"zero_vec(back_{x.pool}[x])" if x.after is None else f"copy_vec(back_{x.pool}[x], {self.event(x.after)})"
        token = self.value(x.token)
        if x.pool in self.base:
            token = f"{token} / {4 * len(self.paths)} - {self.base[x.pool]}"
        return [f"x = {token}; taken_{x.pool}[x] = 0; {after}"], []

    def acquire(self, x: p.Acquire) -> tuple[list[str], list[str]]:
        """Wait until it is free."""
        if not x.edge:
            raise NotExported("an acquire that orders nothing")
        return [f"lock_{x.lock} > 0", f"lock_{x.lock}--"], []

    def flag_wait(self, x: p.FlagWait) -> tuple[list[str], list[str]]:
        """Wait until it is set."""
        if not x.edge:
            raise NotExported("a wait for a flag that orders nothing")
        return [f"flag_{x.flag}"], []

    def counter_wait(self, x: p.CounterWait) -> tuple[list[str], list[str]]:
        """Wait until it is high enough."""
        if not x.edge:
            raise NotExported("a wait for a counter that orders nothing")
        return [f"counter_{x.counter} >= {x.value}" + (" + n" if x.per_turn else "")], []


EFFECTS: dict[type, Callable[[Effects, Any], tuple[list[str], list[str]]]] = {
    e.Touch: Effects.touch,
    e.Enqueue: Effects.enqueue,
    e.RecordEvent: Effects.record,
    e.JoinEvent: Effects.join_event,
    e.JoinStream: Effects.join_stream,
    e.JoinDevice: Effects.join_device,
    e.StreamJoinsEvent: Effects.stream_waits_event,
    e.StreamJoinsStream: Effects.stream_waits_stream,
    e.NoteUse: Effects.note_use,
    p.Alloc: Effects.alloc,
    p.View: Effects.view,
    p.Drop: Effects.drop,
    p.NewEvent: Effects.new_event,
    p.Advance: Effects.advance,
    p.Put: Effects.put,
    p.Get: Effects.get,
    p.CellSet: Effects.cell_set,
    p.CellGet: Effects.cell_get,
    p.CellClear: Effects.cell_clear,
    p.Take: Effects.take,
    p.Give: Effects.give,
    p.Acquire: Effects.acquire,
    p.Unlock: lambda _m, x: ([f"lock_{x.lock}++"], []),
    p.FlagSet: lambda _m, x: ([f"flag_{x.flag} = 1"], []),
    p.FlagClear: lambda _m, x: ([f"flag_{x.flag} = 0"], []),
    p.FlagWait: Effects.flag_wait,
    p.CounterAdd: lambda _m, x: ([f"counter_{x.counter} = counter_{x.counter} + {x.amount}"], []),
    p.CounterWait: Effects.counter_wait,
    p.Signal: Effects.signal,
    p.Await: Effects.wait_for_signal,
    p.StoreFlag: Effects.store_flag,
    p.WaitFlag: Effects.wait_flag,
}
