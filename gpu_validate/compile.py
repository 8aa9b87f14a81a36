"""From a run of a design to its plan: the real calls, every operand resolved, and what each read must observe.

The run is played on concrete host state: queues, cells, cursors and pools disappear, buffers, streams and events remain.
Every write gets a value of its own; what a read must observe is the content that the same calls leave when each ends
before the next begins (val of the run, theory section 1).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fencepost.gpu_validate.layout import UNITS, Spans, place
from fencepost.gpu_validate.pending import Pending
from fencepost.gpu_validate.plan import (
    Alloc,
    Buffer,
    Call,
    Check,
    Copy,
    DeviceSync,
    EventSync,
    Fill,
    Free,
    Item,
    Kernel,
    Memset,
    NewEvent,
    Plan,
    Query,
    Range,
    Read,
    Record,
    RecordStream,
    Segment,
    Snapshot,
    StreamInfo,
    StreamSync,
    StreamWaitEvent,
    Unsupported,
    Values,
    WaitStream,
    Write,
    pack,
)  # fmt: skip
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events import Player
from fencepost.model.events.parts import EventKey, Key, Path, Ref
from fencepost.model.operations import RULES
from fencepost.model.platform import PLATFORMS, Platform

HOST_ONLY = (
    p.View, p.Drop, p.Advance, p.Put, p.Get, p.CellSet, p.CellGet, p.CellClear, p.Acquire, p.Unlock, p.FlagSet,
    p.FlagClear, p.FlagWait, p.CounterAdd, p.CounterWait,
)  # fmt: skip
"""Operations through which host threads meet: the one thread that drives a replay keeps the run's order instead."""


def compile_run(program: p.Program, run: Run, platform: Platform = PLATFORMS["cuda"],
                labels: Mapping[int, int] | None = None, graph_steps: frozenset[int] = frozenset()) -> Plan:  # fmt: skip
    """The plan of a run. `labels`: for steps that allocate, the block that the real allocator would hand out again were
    it free, where the run itself says it is not. `graph_steps`: steps that are nodes of a graph. Raises `InvalidRun` when the
    run is not one of the design, `Unsupported` naming what is not written for a real GPU."""
    return _Compiler(program, platform, labels or {}, graph_steps).compile(run)


class _Compiler(Pending):
    """Plays the run twice: once for the parts that each buffer is cut into, once for the calls."""

    def __init__(self, program: p.Program, platform: Platform, labels: Mapping[int, int], graph_steps: frozenset[int]) -> None:
        super().__init__(program)
        self.platform, self.labels, self.graph_steps = platform, labels, graph_steps
        self.buffers: list[Buffer] = []
        self.stream_infos: list[StreamInfo] = []
        self.events: dict[EventKey, int] = {}
        self.event_names: list[str] = []
        self.paths: dict[Key, set[Path]] = {}
        self.written: set[Key] = set()
        self.spans: dict[Key, dict[Path, Spans]] = {}
        self.content: dict[int, array[int]] = {}
        self.initial: dict[int, Values] = {}
        self.meaning: dict[int, str] = {0: "a memset"}
        self.checks = 0
        self.notes: set[str] = set()
        self.given: dict[tuple[int, int], int] = {}
        self.in_graph = False
        for id_, stream in enumerate(program.objects):
            if isinstance(stream, p.Stream):
                for slot in range(stream.depth or 1):
                    self.streams[(id_, slot)] = len(self.stream_infos)
                    name = stream.name if stream.depth is None else f"{stream.name}[{slot}]"
                    self.stream_infos.append(StreamInfo(name, stream.gpu, stream.default, stream.process))

    def compile(self, run: Run) -> Plan:
        player = Player(self.program, self.platform, keep=False)
        for step in run.steps:
            for ref, written in self._refs(player, step):
                self.paths.setdefault(ref.key, set()).add(ref.path)
                if written:
                    self.written.add(ref.key)
            player.step(step)
        for key, paths in self.paths.items():
            self.spans[key] = place(paths)
        player = Player(self.program, self.platform, keep=self.meetings_there)
        for number, step in enumerate(run.steps):
            busy, first = self._busy(player), len(self.lines)
            if step.stream is None:
                self._step(player, number, step)
            else:
                self._device_step(player, number, step)
            if self.meetings_there:
                self._ran(player, step, number, busy, first)
        self._finish(player, len(run.steps))
        return Plan(
            self.program.name, tuple(self.buffers), tuple(self.stream_infos), tuple(self.event_names), tuple(self.lines),
            self.checks, self.meaning, self.initial, tuple(self.streams.items()), tuple(sorted(self.notes)),
            tuple(self.meetings.words), self.meetings.marks, tuple(self.moved.items()),
        )  # fmt: skip

    # ------------------------------------------------------------ operands

    def _refs(self, player: Player, step: Step) -> Iterator[tuple[Ref, bool]]:
        """The memory that a step's operation names, in its state before the step, and whether it is written."""
        node = self.program.threads[step.thread].nodes[step.node]
        o = node.operation if isinstance(node, p.Do) and step.stream is None else None
        operands: list[tuple[p.Operand, bool]] = []
        if isinstance(o, (p.Host, p.Launch)):
            operands = [(access.target, access.mode == "w") for access in o.accesses]
        elif isinstance(o, p.Copy):
            operands = [(o.src, False), (o.dst, True)]
        elif isinstance(o, p.Memset):
            operands = [(o.dst, True)]
        elif isinstance(o, p.Item):
            operands = [(o.src, False)]
        for operand, written in operands:
            yield player._memory(step, operand), written

    def _buffer(self, ref: Ref) -> int:
        key = ref.key if ref.tenant is None else ("tenant", ref.tenant)
        found = self.by_key.get(key)
        if found is None:
            assert ref.tenant is None, "a tenant's buffer is made where it is allocated"
            found = self._new_fixed(ref.key)
        return found

    def _new_fixed(self, key: Key, version: str = "") -> int:
        thing = self.program.objects[key.id]
        if isinstance(thing, p.Pool):
            name, space, gpu, size = f"{thing.name}[{key.number}]", thing.of, 0, 4096
        else:
            assert isinstance(thing, p.Memory)
            name = thing.name if thing.depth is None else f"{thing.name}[{key.number}]"
            space, gpu, size = thing.space, thing.gpu, thing.bytes
        if space == "managed":
            self.notes.add("managed memory is stood for by page-locked memory that kernels use in place")
            space = "pinned"
        number = self._add_buffer(key, Buffer(name, space, gpu, bytes=size))
        values = array("i", bytes(4 * UNITS))
        for k, (start, stop) in enumerate(self._atoms(key)):
            part = "" if len(self._atoms(key)) == 1 else f", part {k + 1}"
            values[start:stop] = array("i", [self._value(f"the initial content of {name}{version}{part}")]) * (stop - start)
        self.content[number] = values
        self.initial[number] = pack(values)
        return number

    def _atoms(self, key: Key) -> list[tuple[int, int]]:
        ends = sorted({0, UNITS} | {end for spans in self.spans[key].values() for span in spans for end in span})
        return list(zip(ends, ends[1:], strict=False))

    def _add_buffer(self, key: Any, buffer: Buffer) -> int:
        self.by_key[key] = len(self.buffers)
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def _source(self, ref: Ref, where: str) -> Range:
        """What a copy reads. Memory that nothing in the run writes stands for data that come from elsewhere, other data
        each time: each copy gets a buffer of its own for it, or nobody could tell one copy's result from another's."""
        if ref.key.kind != "memory" or ref.key in self.written or self.in_graph:
            return self._range(ref)  # a graph has one address for all its launches
        shared = self._buffer(ref)
        kept = self.by_key.pop(ref.key)
        number = self._new_fixed(ref.key, f", for {where}")
        self.by_key[ref.key] = kept
        assert shared == kept
        return Range(number, self.spans[ref.key][ref.path], ref.attributed)

    def _range(self, ref: Ref) -> Range:
        return Range(self._buffer(ref), self.spans[ref.key][ref.path], ref.attributed)

    def _event(self, key: EventKey, player: Player) -> int:
        if key not in self.events:
            self.events[key] = len(self.event_names)
            if key.id >= 0:
                thing = self.program.objects[key.id]
                assert isinstance(thing, p.Event)
                self.event_names.append(thing.name if thing.depth is None else f"{thing.name}[{key.slot}]")
            else:
                self.event_names.append(f"event {key.slot}")
        return self.events[key]

    # ------------------------------------------------------------ values

    def _value(self, meaning: str) -> int:
        """A fresh value. Odd steps of a large stride, so that no value looks like a small integer or like poison."""
        value = (0x10000000 + 0x3001 * len(self.meaning)) & 0x7FFFFFFF
        self.meaning[value] = meaning
        return value

    def _look(self, range_: Range) -> Values | None:
        content = self.content.get(range_.buffer)
        if content is None:
            return None
        values = pack(v for start, stop in range_.spans for v in content[start:stop])
        return None if any(value == -1 for value, _ in values) else values

    def _check(self, range_: Range) -> Check:
        self.checks += 1
        return Check(self.checks - 1, range_, self._look(range_))

    def _fill(self, range_: Range, meaning: str, same_bytes: bool = False) -> Fill:
        content = self.content[range_.buffer]
        if same_bytes:
            values = self._look(range_)
            if values is not None:
                return Fill(range_, 0, values)
        value = self._value(meaning)
        for start, stop in range_.spans:
            content[start:stop] = array("i", [value]) * (stop - start)
        return Fill(range_, value)

    def _passes(self, dst: Range, src: Range, read: array[int]) -> tuple[tuple[tuple[Segment, ...], Check], ...]:
        """Memcpys from `src`, whose content is `read`, to `dst`, and the reference after each pass."""
        source, target = _offsets(src.spans), _offsets(dst.spans)
        passes: list[tuple[tuple[Segment, ...], Check]] = []
        done = 0
        written = self.content[dst.buffer]
        while done < max(len(source), len(target)):
            count = min(len(source), len(target), max(len(source), len(target)) - done)
            from_ = source[done : done + count] if len(source) > len(target) else source[:count]
            to = target[done : done + count] if len(target) > len(source) else target[:count]
            before = [read[a] for a in from_]
            for b, value in zip(to, before, strict=True):
                written[b] = value
            landed = Range(dst.buffer, tuple(_runs(to)), dst.attributed)
            passes.append((tuple(_segments(to, from_)), self._check(landed)))
            done += count
        return tuple(passes)

    # ------------------------------------------------------------ steps

    def _step(self, player: Player, number: int, step: Step) -> None:
        thread = self.program.threads[step.thread]
        if not 0 <= step.node < len(thread.nodes):
            player.step(step)  # refuses
        node = thread.nodes[step.node]
        turn = player.turn(step.thread)
        self._made_now(player, step.thread, number)
        calls: list[tuple[Call, str]] = []
        if isinstance(node, p.Do):
            o = node.operation
            self.in_graph = number in self.graph_steps
            word = f"{o.name!r}" if isinstance(o, (p.Host, p.Launch)) else RULES[type(o)].name
            where = f"{word} in step {turn} of {thread.name}"
            item: Callable[[], Call] | None = None
            if isinstance(o, (p.Launch, p.Copy, p.Memset, p.Item)):
                item = self._item(player, step, o, where)
                if not self.meetings_there or self._by_host(player, step, o):
                    calls, item = [(item(), word)], None
            elif not isinstance(o, (p.Alloc, p.Take)):
                calls = [(call, word) for call in self._calls(player, step, o, where, number)]
            live = {t for t, tenant in player.tenants.items() if tenant.refs > 0}
            count = len(player.tenants)
            player.step(step)
            if item is not None:
                self._enqueued(player, step, number, item, word, turn)
            if step.thread in player.inside and calls:
                self.delayed[step.thread] = (number, list(calls), turn)
                calls = []
            if isinstance(o, p.Alloc):
                calls.append((self._alloc(player, o, count, self.labels.get(number)), word))
            elif isinstance(o, p.Take):
                calls += [(call, word) for call in self._take(player, step, o)]
        else:
            word = "query"
            if isinstance(node.question, (p.EventQuery, p.StreamQuery)):
                calls.append((self._query(player, step, node.question), word))
            live = {t for t, tenant in player.tenants.items() if tenant.refs > 0}
            player.step(step)
        for tenant in sorted(live):
            if player.tenants[tenant].refs == 0:
                calls.append((Free(self.by_key[("tenant", tenant)]), "release"))
        self._add(player, calls, number, thread.name, turn)

    def _by_host(self, player: Player, step: Step, o: p.Operation) -> bool:
        """Whether the host makes the access itself, at the call: no stream knows of it (S33, S49)."""
        sides = (o.src, o.dst) if isinstance(o, p.Copy) else (o.src,) if isinstance(o, p.Item) else ()
        spaces = [self.buffers[self._buffer(player._memory(step, side))].space for side in sides]
        return bool(spaces) and "device" not in spaces

    def _item(self, player: Player, step: Step, o: p.Operation, where: str) -> Callable[[], Call]:
        """The call of a device item: operands as they are now, contents as they are when it runs."""
        t = step.thread
        if isinstance(o, p.Launch):
            ranges = [(self._range(player._memory(step, a.target)), a) for a in o.accesses]
            self._no_pageable(r for r, _ in ranges)
            stream = self._stream(player, t, o.stream)

            def kernel() -> Call:
                checks = tuple(self._check(r) for r, a in ranges if a.mode == "r")
                fills = tuple(self._fill(r, where, a.same_bytes) for r, a in ranges if a.mode == "w")
                return Kernel(stream, checks, fills)

            return kernel
        if isinstance(o, p.Copy):
            src, dst = self._source(player._memory(step, o.src), where), self._range(player._memory(step, o.dst))
            host = all(self.buffers[r.buffer].space != "device" for r in (src, dst))
            stream, how = self._stream(player, t, o.stream), (o.non_blocking, o.raw)
            # A pageable source is staged at the call, whenever the copy itself runs (S47).
            staged = self.buffers[src.buffer].space == "pageable" and self.platform.pageable_h2d != "late"
            read = self.content[src.buffer][:] if staged else self.content[src.buffer]
            return lambda: Copy(stream, dst, src, *how, self._passes(dst, src, read), host)
        if isinstance(o, p.Memset):
            range_, stream = self._range(player._memory(step, o.dst)), self._stream(player, t, o.stream)
            self._no_pageable([range_])

            def memset() -> Call:
                for start, stop in range_.spans:
                    self.content[range_.buffer][start:stop] = array("i", bytes(4 * (stop - start)))
                return Memset(stream, range_)

            return memset
        assert isinstance(o, p.Item)
        range_, stream = self._range(player._memory(step, o.src)), self._stream(player, t, o.stream)
        if self.buffers[range_.buffer].space != "device":  # a load; no stream knows of it
            return lambda: Read(self._check(range_))
        return lambda: Item(stream, self._check(range_))

    def _calls(self, player: Player, step: Step, o: p.Operation, where: str, number: int) -> list[Call]:
        if isinstance(o, HOST_ONLY):
            return []
        if isinstance(o, p.Host):
            ranges = [(self._range(player._memory(step, a.target)), a) for a in o.accesses]
            reads: list[Call] = [Read(self._check(r)) for r, a in ranges if a.mode == "r"]
            return reads + [Write(self._fill(r, where, a.same_bytes)) for r, a in ranges if a.mode == "w"]
        if isinstance(o, (p.Signal, p.Await, p.StoreFlag, p.WaitFlag)):
            return self._meeting(player, step, o, number)
        return self._sync_calls(player, step, o)

    def _sync_calls(self, player: Player, step: Step, o: p.Operation) -> list[Call]:
        t = step.thread
        if isinstance(o, p.RecordStream):
            ref = player._memory(step, o.block)
            return [] if ref.tenant is None else [RecordStream(self._buffer(ref), self._stream(player, t, o.stream))]
        if isinstance(o, p.NewEvent):
            return [NewEvent(self._event(EventKey(-1, player._fresh_events), player))]
        if isinstance(o, p.Record):
            return [Record(self._event(player._event(step, o.event), player), self._stream(player, t, o.stream))]
        if isinstance(o, p.EventSync):
            return [EventSync(self._event(player._event(step, o.event), player))]
        if isinstance(o, p.StreamWaitEvent):
            event = self._event(player._event(step, o.event), player)
            return [StreamWaitEvent(self._stream(player, t, o.stream), event)]
        if isinstance(o, p.WaitStream):
            return [WaitStream(self._stream(player, t, o.stream), self._stream(player, t, o.other))]
        if isinstance(o, p.StreamSync):
            return [StreamSync(self._stream(player, t, o.stream))]
        if isinstance(o, p.DeviceSync) and o.implied and self.platform.free != "synchronises":
            return []  # that it may wait is nothing to lean on (S38)
        if isinstance(o, p.DeviceSync):
            mine = [k for k, s in enumerate(self.stream_infos) if (s.gpu, s.process) == (o.gpu, o.process)]
            return [DeviceSync(tuple(mine))]
        if isinstance(o, p.Give):
            return self._give(player, step, o)
        name = RULES[type(o)].name if type(o) in RULES else type(o).__name__
        raise Unsupported(f"replay has no real call for {name!r} yet")

    def _no_pageable(self, ranges: Any) -> None:
        for range_ in ranges:
            if self.buffers[range_.buffer].space == "pageable":
                name = self.buffers[range_.buffer].name
                raise Unsupported(f"a kernel cannot use pageable memory in place ({name!r})")

    def _alloc(self, player: Player, o: p.Alloc, tenant: int, label: int | None) -> Call:
        info = player.tenants[tenant]
        if info.key.kind == "block":
            label = info.key.number
        self.spans.setdefault(info.key, {(): ((0, UNITS),)})
        gpu = 0 if isinstance(info.owner, str) else self.stream_infos[self.streams[info.owner]].gpu
        buffer = self._add_buffer(("tenant", tenant), Buffer(info.name, info.space, gpu, True, label, o.bytes))
        self.content[buffer] = array("i", [-1]) * UNITS
        return Alloc(buffer, None if isinstance(info.owner, str) else self.streams[info.owner])

    def _give(self, player: Player, step: Step, o: p.Give) -> list[Call]:
        if o.after is None:
            return []
        value = player._value(step, o.token)
        token = value.key.number if isinstance(value, Ref) else value
        assert isinstance(token, int)
        self.event_names.append(f"{self.event_names[self._event(player._event(step, o.after), player)]} at give")
        self.given[(o.pool, token)] = len(self.event_names) - 1
        return [Snapshot(self._event(player._event(step, o.after), player), len(self.event_names) - 1)]

    def _take(self, player: Player, step: Step, o: p.Take) -> list[Call]:
        value = player.locals[step.thread][o.local]
        token = value.key.number if isinstance(value, Ref) else value
        assert isinstance(token, int)
        given = self.given.pop((o.pool, token), None)
        return [] if given is None else [EventSync(given)]

    def _query(self, player: Player, step: Step, q: p.EventQuery | p.StreamQuery) -> Call:
        done = step.answer == "yes"
        if isinstance(q, p.EventQuery):
            return Query(self._event(player._event(step, q.event), player), None, done)
        return Query(None, self._stream(player, step.thread, q.stream), done)


def _offsets(spans: Spans) -> list[int]:
    return [k for start, stop in spans for k in range(start, stop)]


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    start = previous = offsets[0]
    for k in offsets[1:]:
        if k != previous + 1:
            yield (start, previous + 1)
            start = k
        previous = k
    yield (start, previous + 1)


def _segments(to: list[int], from_: list[int]) -> Iterator[Segment]:
    start = 0
    for k in range(1, len(to) + 1):
        if k == len(to) or to[k] != to[k - 1] + 1 or from_[k] != from_[k - 1] + 1:
            yield Segment(to[start], from_[start], k - start)
            start = k
