"""What the meetings of a program are, for all locations: which streams, events and calls may have to wait on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations.meetings import open_channels
from fencepost.proofs.explore.layout import Layout
from fencepost.proofs.explore.meet import ITEM, NUMBER, RECORD, WAIT, Meet
from fencepost.proofs.explore.state import BIT, State

if TYPE_CHECKING:
    from fencepost.model.platform import Environment


def _positions(kinds: list[bool]) -> list[int]:
    return [k for k, is_event in enumerate(kinds) if is_event]


LIMIT = 1 << NUMBER
"""Flags from here on have a number of a pending record."""


def _changed(values: tuple[Any, ...], events: list[int], change: Callable[[int], int]) -> tuple[Any, ...]:
    """The values with the flags of pending records rewritten, at the positions of events."""
    for k in events:
        v = values[k]
        if v.__class__ is int and v >= LIMIT:
            break
    else:
        return values
    row = list(values)
    for k in events:
        v = row[k]
        if v.__class__ is int and v >= LIMIT:
            row[k] = change(v)
    return tuple(row)


class Meetings:
    """What a program's meetings are, once for all locations."""

    def __init__(self, program: p.Program, layout: Layout, lowered: dict[tuple[int, int], tuple[e.Effect, ...]],
                 environment: Environment) -> None:  # fmt: skip
        self.program = program
        self.layout = layout
        self.open = open_channels(program)
        self.operations = {at: effect for at, effects in lowered.items() for effect in effects if isinstance(effect, e.MEETINGS)}
        """By thread and node. Each stands for itself in a FIFO: what stands there often is too far behind."""
        self.takers: dict[int, set[int]] = {i: set() for i in layout.channel}
        self.makers: dict[int, set[int]] = {i: set() for i in layout.channel}
        """The streams that await each channel, and that signal to it."""
        for o in self.operations.values():
            if type(o) is p.Signal or type(o) is p.Await:
                (self.takers if type(o) is p.Await else self.makers)[o.channel].update(self.flats(o.stream))
        if environment.one_queue:
            for table in (self.takers, self.makers):
                for channel, streams in table.items():
                    table[channel] = {layout.queue_of(layout.stream_owner[flat]) for flat in streams}
        self.several = {channel for channel, streams in self.takers.items() if len(streams) > 1}
        """Channels that more than one stream awaits: there the previous await, too, comes before the next (theory: get -> get)."""
        self.steps = bool(self.open) or any((type(o) is p.StoreFlag or type(o) is p.WaitFlag) for o in self.operations.values())
        """Whether the device has steps of its own."""
        self._locals = [(t, _positions(kinds)) for t, kinds in enumerate(layout.event_locals) if any(kinds)]
        self._queues = [
            (q, {tag: _positions(kinds) for (i, tag), kinds in layout.event_items.items() if i == oid})
            for oid, q in layout.queue.items()
            if any(any(kinds) for (i, _), kinds in layout.event_items.items() if i == oid)
        ]
        self._cells = [
            (c + k, _positions(layout.event_items[oid, ""]))
            for oid, c in layout.cell.items() if any(layout.event_items[oid, ""])
            for k in range(layout.depth(oid))
        ]  # fmt: skip
        """Where handles of events are kept, and at which positions."""
        self._pendable(lowered, environment)
        self.looks: frozenset[Any] = frozenset([("meeting",), ("poll",), *(("pool", k) for k in self.pools)])
        """What steps look at that can do more once pending work went on: queries, polls, tokens. Going on early loses
        nothing (a query may still say no, an allocation may still get another block), so the other way round nobody notices."""
        self.serving = {t for (t, _), o in self.operations.items() if (type(o) is p.Signal or type(o) is p.Await) and o.channel not in self.open}
        """Threads whose own steps let pending work go on."""
        self.blocking = {at for at, effects in lowered.items() if any(self._may_block(effect) for effect in effects)}
        """Operations whose call may have to wait for pending work."""

    def _pendable(self, lowered: dict[tuple[int, int], tuple[e.Effect, ...]], environment: Environment) -> None:
        effects = [effect for found in lowered.values() for effect in found]
        self.streams: set[int] = set()
        """Flat indices of streams in which something may be pending."""
        self.events: set[int | None] = set()
        """Objects whose record may be pending; None stands for all events made in a body or handed over."""
        for o in self.operations.values():
            waits = type(o) is not p.Signal or o.channel in self.open or self.program.objects[o.channel].capacity is not None  # type: ignore[union-attr]
            if waits and o.stream is not None:
                self.streams |= self.flats(o.stream)
        travel = {what[1] for what in self.layout.travelling_events}
        before = -1
        while before != len(self.streams) + len(self.events):
            before = len(self.streams) + len(self.events)
            for effect in effects:
                if type(effect) is e.RecordEvent and self.streams & self.flats(effect.stream):
                    self.events.add(effect.event.id if type(effect.event) is not p.Local else None)
                elif (type(effect) is e.StreamJoinsEvent and self.may_be_pending(effect.event)) or (type(effect) is e.StreamJoinsStream and self.streams & self.flats(effect.other)):
                    self.streams |= self.flats(effect.stream)
            if self.events & travel:
                self.events.add(None)
            if environment.one_queue:
                self.streams = {flat for one in self.streams for flat in self._queue_of(one)}
        self.pools = {
            effect.pool for effect in effects
            if type(effect) is p.Give and effect.after is not None and self.may_be_pending(effect.after)
        }  # fmt: skip

    def _queue_of(self, flat: int) -> set[int]:
        owner = self.layout.queue_of(self.layout.stream_owner[flat])
        return {k for k, oid in enumerate(self.layout.stream_owner) if self.layout.queue_of(oid) == owner}

    def flats(self, operand: p.Operand) -> set[int]:
        """Every stream that the operand may be."""
        assert type(operand) is not p.Local
        start, depth = self.layout.stream[operand.id], self.layout.depth(operand.id)
        if type(operand) is p.Slot and type(operand.index) is p.Fixed:
            return {start + operand.index.slot % depth}
        return set(range(start, start + depth))

    def may_be_pending(self, event: p.Operand) -> bool:
        """Whether the event's latest record may be."""
        return (None if type(event) is p.Local else event.id) in self.events or (
            type(event) is p.Local and None in self.events
        )

    def _may_block(self, effect: e.Effect) -> bool:
        if type(effect) is e.JoinEvent:
            return self.may_be_pending(effect.event)
        if type(effect) is e.JoinStream:
            return bool(self.streams & self.flats(effect.stream))
        if type(effect) is e.JoinDevice:
            return bool(self.streams & self.on_device(effect))
        return False

    def on_device(self, effect: e.JoinDevice) -> set[int]:
        """Streams that a device synchronisation waits for."""
        found = set()
        for flat, oid in enumerate(self.layout.stream_owner):
            o = self.program.objects[oid]
            if type(o) is p.Stream and (o.gpu, o.process) == (effect.gpu, effect.process):
                found.add(flat)
        return found

    def start(self) -> Meet:
        """Nothing is pending, nothing signalled, all flags are 0."""
        n = Meet()
        streams = self.layout.sizes["stream"]
        n.pending, n.tails = [()] * streams, [0] * streams
        n.ends = [0] * self.layout.slots if self.layout.one_queue else []
        n.channels = [((), 0)] * len(self.layout.channel)
        n.words = [(0, 0)] * len(self.layout.word)
        n.inside = [()] * len(self.program.threads)
        n.deferred, n.olds, n.last, n.beyond = (), (), 0, False
        return n

    # ------------------------------------------------------------ handles

    def handles(self, s: State, change: Callable[[int], int]) -> None:
        """Rewrite the flags of every handle of a pending record, wherever it is kept."""
        for k, flags in enumerate(s.events):
            if flags >= LIMIT:
                s.events[k] = change(flags)
        for t, kinds in self._locals:
            row = s.locals[t]
            for k in kinds:
                v = row[k]
                if v.__class__ is int and v >= LIMIT:
                    s.locals[t] = _changed(row, kinds, change)
                    break
        for q, kinds_of in self._queues:
            items, *rest = s.queues[q]
            if items:
                s.queues[q] = (tuple([(tag, b, _changed(vs, kinds_of[tag], change)) for tag, b, vs in items]), *rest)
        for k, kinds in self._cells:
            vs, b = s.cells[k]
            if vs is not None:
                s.cells[k] = (_changed(vs, kinds, change), b)

    def normalise(self, s: State) -> None:
        """Number the pending records by their places, forget those that nobody asks for; bits grow along a FIFO."""
        m = s.meet
        assert m is not None
        busy = [i for i, fifo in enumerate(m.pending) if fifo]
        for i in busy:
            if s.streams[i]:
                m.pending[i] = tuple([(BIT, what) for _, what in m.pending[i]])
                m.tails[i] = BIT
        if m.olds:
            kept = max((place[1] for fifo in m.pending for _, what in fifo if what[0] == ITEM for place in what[2] if place), default=0)
            m.olds = m.olds[:kept]
        if not m.last:
            return
        records = [what[1] for i in busy for _, what in m.pending[i] if what[0] == RECORD]
        used = self._used(s) if records else set()
        if not used.issuperset(records):
            for i in busy:
                m.pending[i] = tuple([one for one in m.pending[i] if one[1][0] != RECORD or one[1][1] in used])
            records = [number for number in records if number in used]
        m.last = len(records)
        if records == list(range(1, m.last + 1)):
            return
        names = {old: new for new, old in enumerate(records, 1)}
        self.handles(s, lambda flags: flags & LIMIT - 1 | names[flags >> NUMBER] << NUMBER)
        m.inside = [tuple(sorted([names[number] for number in row])) if row else row for row in m.inside]
        m.ends = [number and names[number] for number in m.ends]
        m.deferred = tuple(sorted((names[number], *rest) for number, *rest in m.deferred))  # type: ignore[misc]
        for i in busy:
            m.pending[i] = tuple(
                [(bit, (what[0], names[what[1]])) if what[0] in (RECORD, WAIT) else (bit, what) for bit, what in m.pending[i]]
            )
        if s.block is not None and any(one < 0 for one in s.block[2]):
            refs, free, uses, defined, owner = s.block
            s.block = (refs, free, tuple(sorted(-names[-one] if one < 0 else one for one in uses)), defined, owner)

    def _used(self, s: State) -> set[int]:
        """The pending records that somebody asks for: holders of handles, calls, deferred tokens, frees, streams."""
        m = s.meet
        assert m is not None
        used: set[int] = set()

        def note(flags: int) -> int:
            used.add(flags >> NUMBER)
            return flags

        self.handles(s, note)
        used.update(*m.inside, m.ends, [one[0] for one in m.deferred])
        used.update([what[1] for fifo in m.pending for _, what in fifo if what[0] == WAIT])
        if s.block is not None:
            used.update([-one for one in s.block[2] if one < 0])
        return used
