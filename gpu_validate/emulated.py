"""An emulated GPU for dry runs: streams, events, gates and both caching allocators in plain Python, as eager as can be.

It runs a plan's calls with real queues and real content, and knows nothing of happens-before. Work runs as soon as its
stream allows it, so nothing goes wrong unless a gate holds something back. It shows what a GPU would do with a plan; it
is no measurement.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.gates import NEVER
from fencepost.gpu_validate.layout import UNITS, Spans
from fencepost.gpu_validate.trial import Mismatch, Trial

POISON = -7


class Capture:
    """What a record captured; `done` once the stream got there."""

    def __init__(self) -> None:
        self.done = False

    def finish(self) -> None:
        """The stream got there."""
        self.done = True


class Work(NamedTuple):
    """An item of a stream."""

    ready: Callable[[], bool]
    run: Callable[[], None]


class Block:
    """Memory that an allocator hands out: its elements outlive its owners."""

    def __init__(self) -> None:
        self.elements = [POISON] * UNITS
        self.uses: set[int] = set()
        self.waits: list[Capture] = []


def _always() -> bool:
    return True


class EmulatedRun:
    """One plan on the emulated GPU. `trial()` runs it once. `seed`: streams that can go on do so in an order drawn at
    random, another one in each trial; without it, always in the plan's order of streams."""

    def __init__(self, plan: c.Plan, seed: int | None = None) -> None:
        self.plan = plan
        self.random = None if seed is None else random.Random(seed)
        self.free: dict[tuple[str, int | None, int | None], list[Block]] = {}

    def trial(self, *, serial: bool = False) -> Trial:
        """Run all calls once. `serial`: each ends before the next begins, and gates are left out."""
        self.memory: dict[int, Block] = {}
        for blocks in self.free.values():
            for block in blocks:
                block.elements = [POISON] * UNITS  # what an earlier trial left there must not pass for this one's
        for number, values in self.plan.initial.items():
            self.memory[number] = block = Block()
            block.elements = list(c.expand(values))
        self.queues: list[deque[Work]] = [deque() for _ in self.plan.streams]
        self.events: dict[int, Capture] = {}
        self.gates: dict[int, bool] = {}
        self.freed: dict[int, Block] = {}
        self.words = [0] * len(self.plan.words)
        self.marks: dict[int, Capture] = {}
        self.late: dict[int, bool] = {}
        self.seen: dict[int, list[int]] = {}
        self.held: int | None = None
        self.device_held = self.diverged = False
        self.serial = serial
        for number, line in enumerate(self.plan.lines):
            if serial and c.held_back(line.call):
                continue
            if serial and line.late is not None:
                self._hold(c.stream_of(line.call), line.late)
            self._call(number, line.call)
            self._pump()
        for gate in self.gates:
            self.gates[gate] = True
        self.late = dict.fromkeys(self.late, True)
        self._pump()
        while self.words and any(self.queues) and self._release():
            pass
        for buffer in [b for b in self.memory if self.plan.buffers[b].allocated]:
            self._free(buffer)
        self._pump()
        hang = any(self.queues)
        return Trial(self._wrong(), self.held, self.device_held, self.diverged, hang)

    def _wrong(self) -> tuple[Mismatch, ...]:
        found = []
        for line in c.flat(self.plan.lines):
            for check in c.checks_of(line.call):
                got = self.seen.get(check.index)
                if got is not None and check.index in self.plan.undefined and POISON in got:
                    found.append(Mismatch(check.index, POISON, 0))
                if check.expected is None or got is None:
                    continue
                want = list(c.expand(check.expected))[: len(got)]
                bad = next((k for k, (a, b) in enumerate(zip(got, want, strict=True)) if a != b), None)
                if bad is not None:
                    found.append(Mismatch(check.index, got[bad], want[bad]))
        return tuple(found)

    # ------------------------------------------------------------ device

    def _pump(self) -> None:
        if self.random is not None:
            while ready := [queue for queue in self.queues if queue and queue[0].ready()]:
                self.random.choice(ready).popleft().run()
            return
        moved = True
        while moved:
            moved = False
            for queue in self.queues:
                while queue and queue[0].ready():
                    queue.popleft().run()
                    moved = True

    def _release(self) -> bool:
        """Let everything pass that waits for a word; whether something did."""
        left = sum(map(len, self.queues))
        self.words = [NEVER] * len(self.words)
        self._pump()
        return sum(map(len, self.queues)) < left

    def _hold(self, stream: int, item: int) -> None:
        self.late[item] = False
        self._push(stream, lambda: None, lambda: self.late[item])

    def _push(self, stream: int, run: Callable[[], None], ready: Callable[[], bool] = _always) -> None:
        self.queues[stream].append(Work(ready, run))

    def _record(self, stream: int) -> Capture:
        capture = Capture()
        self._push(stream, capture.finish)
        return capture

    def _wait_host(self, number: int, done: Callable[[], bool]) -> None:
        self._pump()
        if not done():
            self.held = number if self.held is None else self.held
            for gate in self.gates:
                self.gates[gate] = True
            self._pump()

    # ------------------------------------------------------------ memory

    def _get(self, range_: c.Range) -> Block:
        found = self.memory.get(range_.buffer)
        return self.freed[range_.buffer] if found is None else found  # a raw pointer reaches freed memory, too

    def _load(self, block: Block, spans: Spans) -> list[int]:
        return [v for start, stop in spans for v in block.elements[start:stop]]

    def _store(self, block: Block, spans: Spans, values: list[int]) -> None:
        at = 0
        for start, stop in spans:
            block.elements[start:stop] = values[at : at + stop - start]
            at += stop - start

    def _fill(self, fill: c.Fill) -> Callable[[], None]:
        block, spans = self._get(fill.range), fill.range.spans
        size = sum(stop - start for start, stop in spans)
        values = [fill.value] * size if fill.values is None else list(c.expand(fill.values))
        return lambda: self._store(block, spans, values)

    def _observe(self, check: c.Check) -> Callable[[], None]:
        block = self._get(check.range)
        return lambda: self.seen.update({check.index: self._load(block, check.range.spans)})

    def _size(self, buffer: int, stream: int | None) -> tuple[str, int | None, int | None]:
        info = self.plan.buffers[buffer]
        return (info.space, stream, info.label)

    def _allocate(self, call: c.Alloc) -> None:
        key = self._size(call.buffer, call.stream)
        blocks = self.free.setdefault(key, [])
        found = next((b for b in reversed(blocks) if all(w.done for w in b.waits)), None)
        if found is None:
            found = Block()
        else:
            blocks.remove(found)
        found.uses, found.waits = set(), []
        self.memory[call.buffer] = found
        self.owner = {**getattr(self, "owner", {}), call.buffer: key}

    def _free(self, buffer: int) -> None:
        block = self.freed[buffer] = self.memory.pop(buffer)
        block.waits = [self._record(stream) for stream in sorted(block.uses)]
        self.free[self.owner[buffer]].append(block)

    def _note(self, range_: c.Range, stream: int) -> None:
        info = self.plan.buffers[range_.buffer]
        if info.allocated and info.space == "pinned" and range_.attributed:
            self._get(range_).uses.add(stream)

    # ------------------------------------------------------------ calls

    def _call(self, number: int, call: c.Call) -> None:
        getattr(self, "_do_" + type(call).__name__)(number, call)

    def _do_Write(self, number: int, call: c.Write) -> None:
        self._fill(call.fill)()

    def _do_Read(self, number: int, call: c.Read) -> None:
        self._observe(call.check)()

    def _do_Kernel(self, number: int, call: c.Kernel) -> None:
        for check in call.reads:
            self._push(call.stream, self._observe(check))
        for fill in call.fills:
            self._push(call.stream, self._fill(fill))

    def _do_Copy(self, number: int, call: c.Copy) -> None:
        source, target = self._get(call.src), self._get(call.dst)
        spaces = [self.plan.buffers[r.buffer].space for r in (call.dst, call.src)]
        for segments, check in call.passes:
            for s in segments:
                if call.host:
                    target.elements[s.dst : s.dst + s.count] = source.elements[s.src : s.src + s.count]
                elif spaces[1] == "pageable":  # staged at the call (S47)
                    staged = source.elements[s.src : s.src + s.count]
                    self._push(call.stream, self._paste(target, s, staged))
                else:
                    self._push(call.stream, self._memcpy(target, source, s))
            if call.host:
                self._observe(check)()
            else:
                self._push(call.stream, self._observe(check))
        if call.host:
            return
        if call.non_blocking and not call.raw:
            self._note(call.src, call.stream)
            self._note(call.dst, call.stream)
        if (not call.non_blocking and not call.raw) or spaces[0] == "pageable":
            capture = self._record(call.stream)
            self._wait_host(number, lambda: capture.done)

    def _paste(self, target: Block, s: c.Segment, staged: list[int]) -> Callable[[], None]:
        def run() -> None:
            target.elements[s.dst : s.dst + s.count] = staged

        return run

    def _memcpy(self, target: Block, source: Block, s: c.Segment) -> Callable[[], None]:
        def run() -> None:
            target.elements[s.dst : s.dst + s.count] = source.elements[s.src : s.src + s.count]

        return run

    def _do_Memset(self, number: int, call: c.Memset) -> None:
        block, spans = self._get(call.range), call.range.spans
        zeros = [0] * sum(stop - start for start, stop in spans)
        self._push(call.stream, lambda: self._store(block, spans, zeros))

    def _do_Item(self, number: int, call: c.Item) -> None:
        self._push(call.stream, self._observe(call.check))
        capture = self._record(call.stream)
        self._wait_host(number, lambda: capture.done)

    def _do_Alloc(self, number: int, call: c.Alloc) -> None:
        self._allocate(call)

    def _do_Free(self, number: int, call: c.Free) -> None:
        self._free(call.buffer)

    def _do_RecordStream(self, number: int, call: c.RecordStream) -> None:
        if self.plan.buffers[call.buffer].allocated and self.owner[call.buffer][1] != call.stream:
            self.memory[call.buffer].uses.add(call.stream)

    def _do_NewEvent(self, number: int, call: c.NewEvent) -> None:
        self.events.pop(call.event, None)

    def _do_Record(self, number: int, call: c.Record) -> None:
        self.events[call.event] = self._record(call.stream)

    def _do_EventSync(self, number: int, call: c.EventSync) -> None:
        capture = self.events.get(call.event)
        if capture is not None:
            self._wait_host(number, lambda: capture.done)

    def _do_StreamWaitEvent(self, number: int, call: c.StreamWaitEvent) -> None:
        capture = self.events.get(call.event)
        if capture is not None:
            self._push(call.stream, lambda: None, lambda: capture.done)

    def _do_WaitStream(self, number: int, call: c.WaitStream) -> None:
        capture = self._record(call.other)
        self._push(call.stream, lambda: None, lambda: capture.done)

    def _do_StreamSync(self, number: int, call: c.StreamSync) -> None:
        capture = self._record(call.stream)
        self._wait_host(number, lambda: capture.done)

    def _do_DeviceSync(self, number: int, call: c.DeviceSync) -> None:
        captures = [self._record(stream) for stream in call.streams]
        self._wait_host(number, lambda: all(x.done for x in captures))

    def _do_Query(self, number: int, call: c.Query) -> None:
        self._pump()
        if call.event is not None:
            capture = self.events.get(call.event)
            done = capture is None or capture.done
        else:
            assert call.stream is not None
            done = not self.queues[call.stream]
        if done != call.done:
            if call.done:
                self._wait_host(number, lambda: False)  # the driver waits for a "yes" that the run has
            else:
                self.diverged = True

    def _do_Snapshot(self, number: int, call: c.Snapshot) -> None:
        capture = self.events.get(call.event)
        if capture is not None:
            self.events[call.fresh] = capture

    def _do_WriteWord(self, number: int, call: c.WriteWord) -> None:
        def run() -> None:
            self.words[call.word] = call.value

        if call.stream is None:
            run()
        else:
            self._push(call.stream, run)

    def _do_WaitWord(self, number: int, call: c.WaitWord) -> None:
        if call.stream is None:
            self._wait_host(number, lambda: self.words[call.word] >= call.value)
        else:
            self._push(call.stream, lambda: None, lambda: self.words[call.word] >= call.value)

    def _do_Mark(self, number: int, call: c.Mark) -> None:
        self.marks[call.mark] = self._record(call.stream)

    def _do_Reach(self, number: int, call: c.Reach) -> None:
        self._pump()
        if not self.marks[call.mark].done:
            self.device_held = True
            for gate in self.gates:
                self.gates[gate] = True
            self._pump()

    def _do_Runs(self, number: int, call: c.Runs) -> None:
        if call.item in self.late:
            self.late[call.item] = True

    def _do_GraphCapture(self, number: int, call: c.GraphCapture) -> None:
        """Nothing: a buffer of the plan has its address from the start."""

    def _do_GraphLaunch(self, number: int, call: c.GraphLaunch) -> None:
        last = self.events.get(call.event)
        if last is not None:
            self._push(call.stream, lambda: None, lambda: last.done)
        for line in call.body:
            if not (self.serial and c.held_back(line.call)):
                self._call(number, line.call)
        self.events[call.event] = self._record(call.stream)

    def _do_Shut(self, number: int, call: c.Shut) -> None:
        self.gates[call.gate] = False
        self._push(call.stream, lambda: None, lambda: self.gates[call.gate])

    def _do_Open(self, number: int, call: c.Open) -> None:
        self.gates[call.gate] = True

    def _do_Settle(self, number: int, call: c.Settle) -> None:
        self._pump()
        if self.queues[call.stream]:
            self.device_held = True
            for gate in self.gates:
                self.gates[gate] = True
