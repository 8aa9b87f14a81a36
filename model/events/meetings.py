"""Device work that has to wait on the device: channels, device flags, and what is pending behind them in its stream.

A stream's items run as soon as they can. An item behind an unsatisfied signal, await or flag wait, or behind a wait for a
record that is itself pending, stays in its stream's FIFO with the clock of its call (theory section 3, processing order); it
enters the structure when it runs. A host call that waits for a pending record is a step at once and returns when the
record is complete: the thread is *inside* the call until then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fencepost.model import program as p
from fencepost.model.answer import Step
from fencepost.model.events.clocks import Clock, merged
from fencepost.model.events.parts import EventKey, Key
from fencepost.model.events.questions import HostTests
from fencepost.model.events.references import Named
from fencepost.model.operations.meetings import open_channels
from fencepost.model.platform import Environment


class Capture(NamedTuple):
    """What a record captured: clock, the agent that handed it out, and the last items."""

    clock: Clock
    source: int
    items: dict[int, int]
    """Agent -> tick of the last item of each stream that must end first."""
    call: Clock
    """Of the record call and the calls that enqueued the captured work: a "no" comes after them, since an event
    that was never recorded, or that captured nothing, says "yes"."""


class Pending(NamedTuple):
    """An item of a stream that has not run yet, as its call left it.

    `what`: the accesses of an item, the number of a record (with `mark`: of a call that waits for the stream), the
    record or capture that a stream waits for, or the operation of a meeting.
    """

    kind: str
    """"item" | "record" | "mark" | "wait" | "meet"."""
    thread: int
    step: int
    node: int
    turn: int
    stream: Named
    caller: Clock
    what: Any
    call: Clock
    """For a record: as in `Capture`."""


class Freeing(NamedTuple):
    """A free, or a token given back, that takes effect when its records are complete."""

    records: frozenset[int]
    clock: Clock
    key: Key | None
    token: tuple[int, int] | None
    """Pool and number of a token; None for a block."""


class Meetings(HostTests):
    """The device half that waits: pending FIFOs, channels, device flags, and threads inside a call."""

    nodes: list[Any]
    captures: dict[EventKey, Capture]
    calls: list[Clock]
    environment: Environment
    tails: list[dict[int, int]]

    _MEETING_TABLES = ("pending", "messages", "taken", "words", "unfinished", "completed", "inside", "freeing", "_following")

    def _init_meetings(self, agents: int) -> None:
        objects = list(enumerate(self.program.objects))
        self.pending: list[tuple[Pending, ...]] = [()] * agents
        """For each agent what waits in its FIFO, oldest first (always empty for threads)."""
        self.meets = any(isinstance(o, (p.Channel, p.DeviceFlag)) for _, o in objects)
        self.open = open_channels(self.program) if self.meets else frozenset()
        self.messages: dict[int, tuple[tuple[str, Clock], ...]] = {i: () for i, o in objects if isinstance(o, p.Channel)}
        self.taken: dict[int, tuple[Clock, ...]] = dict.fromkeys(self.messages, ())
        """The clocks of the latest awaits of each channel, newest last."""
        self.words: dict[int, tuple[int, Clock | None]] = {i: (0, None) for i, o in objects if isinstance(o, p.DeviceFlag)}
        self.unfinished: dict[EventKey, tuple[int, Clock]] = {}
        """Events whose latest record is pending: its number, and what a "no" comes after."""
        self.completed: dict[int, Capture] = {}
        """The captures of records that were pending."""
        self.inside: dict[int, frozenset[int]] = {}
        """Threads inside a call: the records that it still waits for."""
        self.freeing: list[Freeing] = []
        self._following: dict[int, int] = {}
        self._records = 0

    def _copy_meetings(self, other: Meetings) -> None:
        for name in self._MEETING_TABLES:
            setattr(other, name, getattr(self, name).copy())

    # ------------------------------------------------------------ what may be asked

    def is_inside(self, thread: int) -> bool:
        """Whether the thread is inside a call that waits for pending device work; `pc` is the call's node."""
        return thread in self.inside

    def device_steps(self) -> tuple[Step, ...]:
        """The steps of the device that are possible now: stores, waits and open channels at the heads of their streams."""
        found = [fifo[0] for fifo in self.pending if fifo and self._is_step(fifo[0]) and self._can_run(fifo[0])]
        return tuple(Step(one.thread, one.node, stream=one.stream) for one in found)

    def waiting_heads(self) -> tuple[tuple[Named, p.Operation | None], ...]:
        """Stream and operation of every head that cannot run now (None: a wait for a record that is pending)."""
        heads = [fifo[0] for fifo in self.pending if fifo and not self._can_run(fifo[0])]
        return tuple((one.stream, one.what if one.kind == "meet" else None) for one in heads)

    def _is_step(self, item: Pending) -> bool:
        if item.kind != "meet":
            return False
        return isinstance(item.what, (p.StoreFlag, p.WaitFlag)) or item.what.channel in self.open

    def _can_run(self, item: Pending) -> bool:
        o = item.what
        if item.kind == "wait":
            return isinstance(o, Capture) or o in self.completed
        if item.kind != "meet" or isinstance(o, p.StoreFlag):
            return True
        if isinstance(o, p.WaitFlag):
            return self.words[o.flag][0] >= o.value
        messages = self.messages[o.channel]
        if isinstance(o, p.Await):
            return bool(messages) and messages[0][0] == o.tag
        capacity = self.program.objects[o.channel].capacity
        return capacity is None or len(messages) < capacity

    # ------------------------------------------------------------ calls

    def _new_record(self) -> int:
        self._records += 1
        return self._records

    def _append(self, fifo: int, kind: str, step: Step, stream: Named, what: Any, call: Clock | None = None) -> None:
        thread = step.thread
        caller = self.clocks.snapshot(thread)
        item = Pending(kind, thread, self.steps, step.node, self._turn[thread], stream, caller, what, call or caller)
        self.pending[fifo] = (*self.pending[fifo], item)

    def _mark(self, fifo: int, step: Step, stream: Named) -> int:
        """The record that a wait for everything in a pending stream waits for: right behind its own last item."""
        place = self._own_pending(stream)
        after = self.pending[fifo][place:]
        last = self.pending[fifo][place - 1]
        if last.kind in ("record", "mark"):
            return int(last.what)
        number = self._new_record()
        self.pending[fifo] = self.pending[fifo][:place]
        self._append(fifo, "mark", step, stream, number)
        self.pending[fifo] += after
        return number

    def _own_pending(self, stream: Named) -> int:
        """How far the stream's own items reach into what is pending in its FIFO; 0 if it has none there."""
        items = self.pending[self.fifos[stream]]
        if self.environment.one_queue:
            # A wait for what is over, or will be, is behind its own stream's items only (Player._waits_too).
            own = [k for k, item in enumerate(items, 1) if item.stream == stream and not isinstance(item.what, Capture)]
            return own[-1] if own else 0
        return len(items)

    def _waits_for(self, thread: int, record: int) -> None:
        self.inside[thread] = self.inside.get(thread, frozenset()) | {record}

    def _meeting(self, effect: p.Signal | p.Await | p.StoreFlag | p.WaitFlag, step: Step) -> None:
        """S118, S130. On a stream: an item. By the host: a step that has its word at once."""
        if effect.__class__ in (p.StoreFlag, p.WaitFlag) and effect.stream is None:
            self._order(("word", effect.flag), step.thread)
            self._word(effect, step.thread)
            return
        assert effect.stream is not None
        stream = self._named(step.thread, effect.stream)
        fifo = self.fifos[stream]
        self._order(("stream", fifo), step.thread)
        self._called(step.thread, stream)
        self._append(fifo, "meet", step, stream, effect)
        self._settle()

    # ------------------------------------------------------------ what runs

    def _settle(self) -> None:
        """Everything runs that can and is no step of its own."""
        moved = True
        while moved:
            moved = False
            for fifo in range(len(self.pending)):
                while self.pending[fifo]:
                    head = self.pending[fifo][0]
                    if self._is_step(head) or not self._can_run(head):
                        break
                    self._pop(fifo)
                    moved = True

    def _device_step(self, step: Step) -> None:
        assert step.stream is not None
        fifo = self.fifos.get(step.stream)
        head = self.pending[fifo][0] if fifo is not None and self.pending[fifo] else None
        if head is None or not self._is_step(head) or (head.thread, head.node, head.stream) != (step.thread, step.node, step.stream):
            self.refuse(step, "no such item is at the head of that stream")
        assert fifo is not None and head is not None
        if not self._can_run(head):
            self.refuse(step, "the item at the head of that stream still waits")
        self._pop(fifo)
        self._settle()
        self.steps += 1

    def _pop(self, fifo: int) -> None:
        item, self.pending[fifo] = self.pending[fifo][0], self.pending[fifo][1:]
        if item.kind == "meet":
            self._meet(fifo, item)
        elif item.kind == "item":
            self._run_item(fifo, item.thread, item.caller, item.step, item.turn, item.stream, item.what)
        elif item.kind == "wait":
            found = item.what if isinstance(item.what, Capture) else self.completed[item.what]
            self._stream_continues(item.thread, item.caller, fifo, found)
            if isinstance(item.what, Capture):
                self._waits_too(item.stream, found, item.caller)  # own items before it may have run since the call
            else:
                self._is_last(item.stream)
        elif item.kind == "record":
            clock = self.clocks.record(item.thread, fifo, item.caller)
            self._is_last(item.stream)
            self._complete(item.what, Capture(clock, fifo, self.tails[fifo], item.call))
        else:
            self._complete(item.what, Capture(self.clocks.snapshot(fifo), fifo, self.tails[fifo], item.call))

    def _meet(self, fifo: int, item: Pending) -> None:
        o = item.what
        if isinstance(o, (p.StoreFlag, p.WaitFlag)):
            if self.total_order:
                self._join(fifo, ("order", ("word", o.flag)))
            self.clocks.launch(item.thread, fifo, item.caller)
            self._word(o, fifo)
        elif isinstance(o, p.Await):
            (_tag, clock), *rest = self.messages[o.channel]
            self.messages[o.channel] = tuple(rest)
            self.clocks.absorb(fifo, clock)
            for before in self.taken[o.channel][-1:]:
                self.clocks.absorb(fifo, before)  # the oldest message is this one because earlier awaits took theirs
            self.clocks.launch(item.thread, fifo, item.caller)
            kept = getattr(self.program.objects[o.channel], "capacity", None) or 1
            self.taken[o.channel] = (*self.taken[o.channel], self.clocks.snapshot(fifo))[-kept:]
        else:
            self._make_room(fifo, o)
            self.clocks.launch(item.thread, fifo, item.caller)
            self.messages[o.channel] = (*self.messages[o.channel], (o.tag, self.clocks.snapshot(fifo)))
            if self.total_order and o.channel in self.open:
                self._add(fifo, ("order", ("channel", o.channel)))
        self.tails[fifo] = {fifo: self.clocks.now[fifo][fifo]}
        self._is_last(item.stream)

    def _make_room(self, fifo: int, o: p.Signal) -> None:
        """For the feasibility test only: a signal comes after the await that made room, and after earlier signals."""
        if not self.total_order:
            return
        capacity = self.program.objects[o.channel].capacity  # type: ignore[union-attr]
        room = None if capacity is None else capacity - len(self.messages[o.channel])
        if room is not None and room <= len(self.taken[o.channel]):
            self.clocks.absorb(fifo, self.taken[o.channel][-room])
        if o.channel in self.open:
            self._join(fifo, ("order", ("channel", o.channel)))

    def _word(self, o: p.StoreFlag | p.WaitFlag, agent: int) -> None:
        """A store to a device flag, or a wait for one that is satisfied, by a thread or a stream."""
        value, clock = self.words[o.flag]
        if isinstance(o, p.WaitFlag) and clock is not None:
            self.clocks.absorb(agent, clock)
        if isinstance(o, p.StoreFlag) or o.reset:
            value = o.value if isinstance(o, p.StoreFlag) else 0
            self.words[o.flag] = (value, self.clocks.snapshot(agent))
        if self.total_order:
            self._add(agent, ("order", ("word", o.flag)))

    def _complete(self, record: int, capture: Capture) -> None:
        """A record that was pending is complete: whoever waits for it goes on."""
        self.completed[record] = capture
        for event, (number, _call) in list(self.unfinished.items()):
            if number == record:
                del self.unfinished[event]
                self.captures[event] = capture
        for one in list(self.freeing):
            if record in one.records:
                self.freeing.remove(one)
                one = one._replace(records=one.records - {record}, clock=merged(one.clock, capture.clock))
                if one.records:
                    self.freeing.append(one)
                else:
                    self._freed(one)
        for thread, records in list(self.inside.items()):
            if record in records:
                self.clocks.sync(thread, capture.clock, capture.source)
                self.inside[thread] = records - {record}
                if not self.inside[thread]:
                    del self.inside[thread]
                    self._returned(thread, self._following.pop(thread))

    def _freed(self, one: Freeing) -> None:
        if one.token is not None:
            pool, token = one.token
            self.pools[pool] = self.pools[pool]._replace(free=(*self.pools[pool].free, (token, one.clock)))
        elif one.key in self.blocks:
            self.blocks[one.key] = self.blocks[one.key]._replace(free=one.clock)

    # provided by Player
    def _called(self, thread: int, stream: Named) -> None:
        raise NotImplementedError

    def _is_last(self, stream: Named) -> None:
        raise NotImplementedError

    def _waits_too(self, stream: Named, capture: Capture, caller: Clock) -> None:
        raise NotImplementedError

    def _run_item(self, fifo: int, thread: int, caller: Clock, step: int, turn: int, stream: Named, accesses: Any) -> None:
        raise NotImplementedError

    def _stream_continues(self, thread: int, caller: Clock, fifo: int, capture: Capture) -> None:
        raise NotImplementedError

    def _returned(self, thread: int, following: int) -> None:
        raise NotImplementedError
