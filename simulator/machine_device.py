"""The device of the machine: hardware queues, streams, events and engines, moved on by a clock.

An item starts when it is the first of its queue, its time has come and its engine is free (S2, S61, S115-S117). Marks
(S19) are set, and waits for marks (S20) let through, as soon as they are first in their queue. Work that meets other
streams stays there until it is let through (simulator/machine_meetings.py).
"""

from __future__ import annotations

import heapq
from typing import Any

from fencepost.simulator.machine_meetings import Meetings
from fencepost.simulator.machine_memory import UNDEFINED, difference
from fencepost.simulator.machine_state import (
    FOREVER,
    MEETING,
    PARTLY,
    SET,
    WAIT,
    WORK,
    Engine,
    Fifo,
    Mark,
    Observation,
    Stream,
    Work,
    kind_of,
    part_text,
)


class Device(Meetings):
    """Device half of `Machine`, and the clock."""

    fifos: list[Fifo]
    streams: dict[tuple[int, int], Stream]
    engines: list[Engine]

    def _reset_device(self) -> None:
        self.now = 0
        self.heap: list[tuple[int, int, Work]] = []
        self.serial = 0
        self.held: list[Work] = []
        self.worked = 0
        self.observed: list[Observation] = []
        for fifo in self.fifos:
            fifo.reset()
        for stream in self.streams.values():
            stream.pending = 0
            stream.tail = ()
        for engine in self.engines:
            engine.reset()
        for place in self.places.values():
            place.reset()

    # ------------------------------------------------------------ queues

    def enqueue(self, work: Work) -> None:
        """Put work at the tail of its stream."""
        stream = work.stream
        assert stream is not None
        stream.pending += 1
        stream.tail = (work,)
        fifo = stream.fifo
        fifo.items.append((stream, WORK, work))
        if not fifo.busy:
            self.advance(fifo)

    def mark(self, stream: Stream) -> Mark:
        """A mark at the tail of a stream: what a record captures (S19)."""
        mark = Mark(stream.tail, stream.name)
        if stream.fifo.later:
            stream.fifo.later.append((SET, mark))
        else:
            mark.there = True
        if stream.fifo.items:
            stream.pending += 1
            stream.fifo.items.append((stream, SET, mark))
        else:
            mark.done = True
        return mark

    def last(self, stream: Stream) -> Mark:
        """A mark behind the last item of the stream itself, whatever other streams have behind that in the same queue (S116)."""
        mark = Mark(stream.tail, stream.name)
        mark.there = True  # nothing waits for it in the reference
        if not stream.pending:
            mark.done = True
            return mark
        items = stream.fifo.items
        place = next(len(items) - k for k, item in enumerate(reversed(items)) if item[0] is stream)
        stream.pending += 1
        items.insert(place, (stream, SET, mark))
        return mark

    def wait(self, stream: Stream, mark: Mark) -> None:
        """Items enqueued later on the stream start only when the mark is set (S20)."""
        if not mark.there:
            stream.fifo.later.append((WAIT, mark))
            self.follow(stream.fifo)
        if not mark.done:
            stream.pending += 1
            stream.tail = (*stream.tail, *mark.after)
            stream.fifo.items.append((stream, WAIT, mark))
            if not stream.fifo.busy:
                self.advance(stream.fifo)

    def advance(self, first: Fifo) -> None:
        """Let everything start that can, from this queue on."""
        todo = [first]
        while todo:
            fifo = todo.pop()
            items = fifo.items
            while items and not fifo.busy:
                stream, kind, what = items[0]
                if kind == WORK:
                    seen = len(todo)
                    if not self._start(fifo, what, todo):
                        break
                    if len(todo) > seen and what.what == MEETING:  # who was woken by it comes first
                        items.popleft()
                        stream.pending -= 1
                        todo.insert(seen, fifo)
                        break
                elif kind == SET:
                    what.done = True
                    if what.waiting is not None:
                        for waiter in what.waiting:
                            waiter.busy = False
                        todo.extend(what.waiting)
                elif not what.done:
                    fifo.busy = True
                    if what.waiting is None:
                        what.waiting = []
                    what.waiting.append(fifo)
                    break
                items.popleft()
                stream.pending -= 1

    def _start(self, fifo: Fifo, work: Work, todo: list[Fifo]) -> bool:
        """Start the first item of a queue, if it can; whether it has ended already."""
        if work.delay == FOREVER:
            fifo.busy = True
            self.held.append(work)
            return False
        if work.not_before > self.now:
            fifo.busy = True
            self._later(work.not_before, work)
            return False
        if work.what == MEETING:
            if not self.meet(work, todo):
                fifo.busy = True
                return False
            self.worked += 1
            return True
        engine = work.engine
        if engine is not None:
            if engine.running >= engine.capacity:
                fifo.busy = True
                engine.ready.append(fifo)
                return False
            engine.running += 1
        self.begin(work)
        if work.length:
            fifo.busy = True
            self._later(self.now + work.length, work)
            return False
        self.end(work)
        if engine is not None:
            self._served(engine, todo)
        return True

    def _served(self, engine: Engine, todo: list[Fifo]) -> None:
        """The engine serves the next item that waits for it."""
        engine.running -= 1
        if engine.ready:
            number = self.pick_engine(engine) if len(engine.ready) > 1 else 0
            fifo = engine.ready.pop(number)
            fifo.busy = False
            todo.append(fifo)

    def pick_engine(self, engine: Engine) -> int:
        """Which of the items that wait for an engine it serves next (provided by the machine)."""
        raise NotImplementedError

    def _later(self, time: int, work: Work) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (time, self.serial, work))

    # ------------------------------------------------------------ the clock

    def tick(self) -> None:
        """Everything whose time has come."""
        heap = self.heap
        while heap and heap[0][0] <= self.now:
            work = heapq.heappop(heap)[2]
            if not work.done:
                self._due(work)

    def _due(self, work: Work) -> None:
        stream = work.stream
        if stream is None:
            if not work.begun:
                self.begin(work)
                if work.length:
                    self._later(self.now + work.length, work)
                    return
            self.end(work)
            return
        fifo = stream.fifo
        fifo.busy = False
        if work.begun:
            self.end(work)
            fifo.items.popleft()
            stream.pending -= 1
            if work.engine is not None:
                todo: list[Fifo] = []
                self._served(work.engine, todo)
                for other in todo:
                    self.advance(other)
        self.advance(fifo)

    def let_go(self, work: Work) -> None:
        """Held work may start now."""
        self.held.remove(work)
        work.delay = self.now - work.enqueued
        work.not_before = self.now
        if work.entry is not None:
            work.entry[1] = work.delay
        self._due(work)

    # ------------------------------------------------------------ what work does to memory

    def begin(self, work: Work) -> None:
        """The start: reads are made, and what it writes is torn until it ends."""
        assert work.accesses is None, "the machine is ahead of its reference"
        work.begun = True
        self.worked += 1
        if work.freed is not None:
            self._observe(work, work.freed, UNDEFINED, work.freed.buffer.value, freed=True)
        for ref, expected in work.reads:
            bad = difference(ref.buffer, ref.scope, ref.path, expected)
            if bad is not None:
                self._observe(work, ref, *bad)
        if work.length:
            for ref, content, same in work.writes:
                if not same and isinstance(content, int):
                    ref.buffer.write(ref.scope, ref.path, content | PARTLY)

    def end(self, work: Work) -> None:
        """The end: reads are made once more, and what it writes is there.

        What an operation writes is a function of what it reads: wrong inputs give another value.
        """
        work.done = True
        if work.length:
            own = [ref.buffer for ref, _, _ in work.writes]
            for ref, expected in work.reads:
                if ref.buffer in own:
                    continue  # one operation never conflicts with itself (theory section 1)
                bad = difference(ref.buffer, ref.scope, ref.path, expected)
                if bad is not None and not work.wrong:
                    self._observe(work, ref, *bad, torn=True)
        wrong = work.wrong
        for ref, content, same in work.writes:
            if wrong and not same and isinstance(content, int):
                content |= wrong
            if ref.path or ref.buffer.cells is not None or not isinstance(content, int):
                ref.buffer.write(ref.scope, ref.path, content)
            else:
                ref.buffer.value = content

    def _observe(self, work: Work, ref: Any, expected: int, got: int, torn: bool = False, freed: bool = False) -> None:
        work.wrong = (hash((work.wrong, got)) & 0xFFFFFF | 1) << 61
        kind = "freed" if freed else "torn" if torn and expected else kind_of(expected, got)
        agent = work.thread.name if work.stream is None else work.stream.name
        self.observed.append(
            Observation(kind, work.step, work.thread.name, work.turn, work.node, agent, ref.name, part_text(ref.path),
                        expected, got, self.now)
        )  # fmt: skip
