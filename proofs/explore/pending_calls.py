"""The compiler for designs in which streams meet: what every effect does while something is pending in its stream."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.explore.compile import Answers, Apply, AskNode, Compiler, DoNode, Ready, ThreadCompiler
from fencepost.proofs.explore.meet import ITEM, JOINED, MEET, NUMBER, WAIT
from fencepost.proofs.explore.memory import forks
from fencepost.proofs.explore.pending import Device
from fencepost.proofs.explore.pending_memory import MeetingRules
from fencepost.proofs.explore.state import BIT, CALLED, COMPLETE, PENDING, RECORDED, State


def _sequence(effects: list[Apply]) -> Apply:
    """Effects in a row, of which only the last may branch."""
    *plain, last = effects

    def run(s: State) -> list[State] | None:
        for effect in plain:
            effect(s)
        return last(s)

    return run


class MeetingCompiler(ThreadCompiler):
    """Compiles the nodes of one thread of a design with meetings."""

    def __init__(self, owner: Compiler, t: int, skip: Callable[[int], int]) -> None:
        super().__init__(owner, t, skip)
        assert owner.device is not None
        self.device: Device = owner.device
        self.meetings = owner.device.meetings
        self.memory: MeetingRules = MeetingRules(
            self.device, owner.location, owner.layout, t, self.touches, owner.met, owner.accessors, owner.holders
        )
        nodes = self.source.nodes
        self.returns = {skip(n.next) for i, n in enumerate(nodes) if isinstance(n, p.Do) and (t, i) in self.meetings.blocking}
        """Nodes that a thread may reach inside a call."""

    def node(self, i: int) -> DoNode | AskNode:
        """As without meetings; behind a call that may wait, the node is ready only when the call has returned."""
        found = super().node(i)
        if i not in self.returns:
            return found
        test, t = found.ready, self.t

        def ready(s: State) -> bool:
            assert s.meet is not None
            return not s.meet.inside[t] and (test is None or test(s))

        return msgspec.structs.replace(found, ready=ready)

    def _may_wait(self, operand: p.Operand) -> bool:
        """Whether something may be pending in the stream."""
        return bool(self.meetings.streams.intersection(self._streams(operand)))

    # ------------------------------------------------------------ meetings

    def _meeting(self, effect: p.Signal | p.Await | p.StoreFlag | p.WaitFlag) -> list[Apply]:
        assert effect.stream is not None
        stream, t, device, what = self._stream(effect.stream), self.t, self.device, (MEET, (self.t, self.memory.node))
        if self.layout.has_same_bytes:
            self.touches.add("location")  # accesses of other streams may be made here, and their order tells
        at, last = self.memory.node, self._last(effect.stream)
        node = (t, at)
        plain = not self.layout.one_queue and not device.heads[node][3]
        """Whether it may run at its call, unless something is pending."""

        def run(s: State) -> list[State] | None:
            i = stream(s)
            if plain and device.can_run_at_once(s, i, node):
                return device.at_once(s, i, s.tb[t], node)
            device.append(s, i, s.tb[t], what)
            last(s)
            return device.settle(s, at, i)

        return [*self._called(effect.stream), forks(run)]

    _signal = _await = _meeting

    def _storeflag(self, effect: p.StoreFlag) -> list[Apply]:
        if effect.stream is not None:
            return self._meeting(effect)
        k, t, value = self.layout.word[effect.flag], self.t, effect.value
        self.touches.add(("word", effect.flag))

        def run(s: State) -> None:
            assert s.meet is not None
            s.meet.words[k] = (value, s.tb[t])

        return [run]

    def _waitflag(self, effect: p.WaitFlag) -> list[Apply]:
        if effect.stream is not None:
            return self._meeting(effect)
        k, t, reset = self.layout.word[effect.flag], self.t, effect.reset
        self.touches.add(("word", effect.flag))

        def run(s: State) -> None:
            assert s.meet is not None
            s.tb[t] |= s.meet.words[k][1]
            if reset:
                s.meet.words[k] = (0, s.tb[t])

        return [run]

    def _ready(self, operation: p.Operation) -> Ready | None:
        if isinstance(operation, p.WaitFlag) and operation.stream is None:
            k, value = self.layout.word[operation.flag], operation.value

            def there(s: State) -> bool:
                assert s.meet is not None
                return s.meet.words[k][0] >= value

            return there
        return super()._ready(operation)

    # ------------------------------------------------------------ streams and events

    def _last(self, operand: p.Operand) -> Callable[[State], None]:
        """With one hardware queue: what is pending in the queue now ends with the stream's own last item (S116)."""
        if not self.layout.one_queue:
            return lambda s: None
        slot, stream, device = self._slot(operand), self._stream(operand), self.device

        def run(s: State) -> None:
            assert s.meet is not None
            s.meet.ends[slot(s)] = device.record(s, stream(s), 0)

        return run

    def _enqueue(self, effect: e.Enqueue) -> list[Apply]:
        now = super()._enqueue(effect)
        if not self._may_wait(effect.stream):
            return now
        stream, t, device = self._stream(effect.stream), self.t, self.device
        later = self.memory.later(effect.accesses)
        called, at_once, last = self._called(effect.stream), _sequence(now), self._last(effect.stream)

        def run(s: State) -> list[State] | None:
            i = stream(s)
            assert s.meet is not None
            if not s.meet.pending[i]:
                return at_once(s)
            for note in called:
                note(s)
            places = later[0](s) if later is not None else None
            device.append(s, i, s.tb[t], (ITEM, later[1], places) if later is not None and places is not None else None)
            last(s)
            return None

        return [run if later is None else forks(run)]

    def _called(self, operand: p.Operand) -> list[Apply]:
        note, stream = super()._called(operand), self._slot(operand)
        if not note:
            return note

        def run(s: State) -> None:
            note[0](s)
            s.calls[stream(s)] &= ~JOINED

        return [run]

    def _recordevent(self, effect: e.RecordEvent) -> list[Apply]:
        now = super()._recordevent(effect)
        if not self._may_wait(effect.stream):
            return now
        stream, write, t, device = self._stream(effect.stream), self._event_write(effect.event), self.t, self.device
        track, at_once = self.o.track, _sequence(now)
        slot = self._slot(effect.stream) if self.layout.one_queue else None

        def run(s: State) -> None:
            i = stream(s)
            assert s.meet is not None
            if not s.meet.pending[i]:
                at_once(s)
                return
            flags = RECORDED | (CALLED if s.tb[t] else 0) if track else 0
            number = device.record(s, i, s.tb[t])
            write(s, number << NUMBER | flags)
            if slot is not None:
                device.record_is_last(s, slot(s), number, s.tb[t])

        return [run]

    def _joinevent(self, effect: e.JoinEvent) -> list[Apply]:
        now = super()._joinevent(effect)
        if not self.meetings.may_be_pending(effect.event):
            return now
        read, t, at_once = self._event_read(effect.event), self.t, _sequence(now)

        def run(s: State) -> None:
            number = read(s) >> NUMBER
            if number:
                assert s.meet is not None
                s.meet.inside[t] = (number,)
            else:
                at_once(s)

        return [run]

    def _waits(self, s: State, i: int) -> None:
        """The thread is inside a call until all that stream `i` was given so far is done."""
        assert s.meet is not None
        number = self.device.record(s, i, 0)
        s.meet.inside[self.t] = (*s.meet.inside[self.t], number)
        if self.o.track:
            for k in self._slots_of([i]):
                s.calls[k] |= JOINED

    def _joinstream(self, effect: e.JoinStream) -> list[Apply]:
        now = super()._joinstream(effect)
        if not self._may_wait(effect.stream):
            return now
        if self.layout.one_queue:
            return self._join_own(effect, _sequence(now))
        stream, at_once = self._stream(effect.stream), _sequence(now)

        def run(s: State) -> None:
            i = stream(s)
            assert s.meet is not None
            if s.meet.pending[i]:
                self._waits(s, i)
            else:
                at_once(s)

        return [run]

    def _join_own(self, effect: e.JoinStream, at_once: Apply) -> list[Apply]:
        """With one hardware queue the call waits for the stream's own last item."""
        slot, t = self._slot(effect.stream), self.t

        def run(s: State) -> None:
            k = slot(s)
            assert s.meet is not None
            if not s.meet.ends[k]:
                at_once(s)
                return
            s.tb[t] |= s.streams[k]
            s.meet.inside[t] = (*s.meet.inside[t], s.meet.ends[k])
            s.calls[k] |= JOINED

        return [run]

    def _joindevice(self, effect: e.JoinDevice) -> list[Apply]:
        now = super()._joindevice(effect)
        streams = self.layout.device_streams(effect.gpu, effect.process)
        if not self.meetings.streams.intersection(streams):
            return now
        t, slots = self.t, {i: self._slots_of([i]) for i in streams}

        def run(s: State) -> None:
            assert s.meet is not None
            for i in streams:
                if s.meet.pending[i]:
                    self._waits(s, i)
                else:
                    s.tb[t] |= s.streams[i]
                    for k in slots[i]:
                        s.calls[k] &= ~PENDING

        return [run]

    def _streamjoinsevent(self, effect: e.StreamJoinsEvent) -> list[Apply]:
        now = super()._streamjoinsevent(effect)
        if not self._may_wait(effect.stream):
            return now
        stream, read, t, device = self._stream(effect.stream), self._event_read(effect.event), self.t, self.device
        track, at_once, last = self.o.track, _sequence(now), self._last(effect.stream)
        slot, shared = self._slot(effect.stream), self.layout.one_queue

        def run(s: State) -> None:
            i, flags = stream(s), read(s)
            number = flags >> NUMBER
            assert s.meet is not None
            if not number and not s.meet.pending[i]:
                at_once(s)
                return
            if track:
                if not flags & RECORDED:
                    return  # does nothing (S18)
                k = slot(s)
                s.calls[k] |= s.tb[t] | (0 if flags & COMPLETE else PENDING) | (BIT if flags & CALLED else 0)
                s.calls[k] &= ~JOINED
            bit = s.tb[t] if number or track else 0
            device.append(s, i, bit | flags & BIT, (WAIT, number) if number else None)
            if number:
                last(s)
            elif shared:
                s.streams[slot(s)] |= bit | flags & BIT

        return [run]

    def _streamjoinsstream(self, effect: e.StreamJoinsStream) -> list[Apply]:
        now = super()._streamjoinsstream(effect)
        if not self._may_wait(effect.stream) and not self._may_wait(effect.other):
            return now
        stream, other, t, device = self._stream(effect.stream), self._stream(effect.other), self.t, self.device
        at_once = _sequence(now)
        if self.layout.one_queue:
            return self._join_shared(effect, at_once)

        def run(s: State) -> None:
            i, behind = stream(s), other(s)
            assert s.meet is not None
            if not s.meet.pending[i] and not s.meet.pending[behind]:
                at_once(s)
                return
            s.calls[i] = (s.calls[i] | s.tb[t] | s.calls[behind]) & ~JOINED
            if s.meet.pending[behind]:
                device.append(s, i, s.tb[t], (WAIT, device.record(s, behind, s.tb[t])))
            else:
                s.streams[behind] |= s.tb[t]
                device.append(s, i, s.streams[behind], None)

        return [run]

    def _join_shared(self, effect: e.StreamJoinsStream, at_once: Apply) -> list[Apply]:
        """With one hardware queue: a record, which is an item of its stream, and a wait for it."""
        stream, other, t, device = self._stream(effect.stream), self._stream(effect.other), self.t, self.device
        slot, slot_behind = self._slot(effect.stream), self._slot(effect.other)
        recorded, last = self._recorded(effect.other), self._last(effect.stream)

        def run(s: State) -> None:
            i, behind, k, k_behind = stream(s), other(s), slot(s), slot_behind(s)
            assert s.meet is not None
            if not s.meet.pending[i] and not s.meet.pending[behind]:
                at_once(s)
                return
            if s.meet.pending[behind]:
                number = device.record(s, behind, s.tb[t])
                device.record_is_last(s, k_behind, number, s.tb[t])
                device.append(s, i, s.tb[t], (WAIT, number))
                last(s)
            else:
                recorded(s)
                device.append(s, i, s.streams[behind], None)
                s.streams[k] |= s.streams[behind]
            s.calls[k] = (s.calls[k] | s.calls[k_behind]) & ~JOINED  # which the record's call is one of

        return [run]

    # ------------------------------------------------------------ questions

    def _event_query(self, q: p.EventQuery) -> Answers:
        now = super()._event_query(q)
        if not self.meetings.may_be_pending(q.event):
            return now
        self.touches.add(("meeting",))
        read, t = self._event_read(q.event), self.t

        def query(s: State) -> str | list[tuple[str, State]]:
            flags = read(s)
            if not flags >> NUMBER:
                return now(s)
            s.tb[t] |= bool(flags & CALLED)
            return [("no", s)]

        return query

    def _stream_query(self, q: p.StreamQuery) -> Answers:
        now = super()._stream_query(q)
        if not self._may_wait(q.stream):
            return now
        self.touches.add(("meeting",))
        stream, t, shared = self._slot(q.stream), self.t, self.layout.one_queue

        def query(s: State) -> str | list[tuple[str, State]]:
            i = stream(s)
            assert s.meet is not None
            if not (s.meet.ends[i] if shared else s.meet.pending[i]):
                return now(s)
            s.tb[t] |= s.calls[i] & BIT
            return [("no", s)]

        return query
