"""The device of the exploration: what goes into a stream's pending FIFO, what leaves it and when, and what that changes.

Channels of one sender and one receiver are served as soon as they can be: every order gives the same messages to the same
awaits (they are a Kahn network), and being early never disables anything. All other meetings are steps of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fencepost.model import program as p
from fencepost.proofs.explore.meet import AHEAD, ITEM, JOINED, MEET, NUMBER, RECORD, WAIT, Entry, Meet, Place
from fencepost.proofs.explore.meetings import Meetings
from fencepost.proofs.explore.reduction import DEVICE
from fencepost.proofs.explore.state import CALLED, COMPLETE, PENDING, RECORDED, State

SIGNAL, AWAIT, STORE, FLAG = "signal", "await", "store", "flag"


class Device:
    """What leaves a FIFO, and when: one for each location."""

    def __init__(self, meetings: Meetings, track: bool) -> None:
        self.meetings = meetings
        self.track = track
        self.judges: list[Callable[[State, int, tuple[Place | None, ...], int | None], list[State] | None]] = []
        """How the accesses of pending items are judged."""
        self.beyond = ""
        """Why states were left out, once some were."""
        layout = meetings.layout
        self.slots = layout.slots
        self.sharers = {i: layout.own_slots(i) for i in range(layout.slots, layout.sizes["stream"])}
        """The slots of the streams that share each hardware queue (none but under one-hardware-queue)."""
        self.carriers = layout.carriers
        self.word = layout.word
        self.objects = list(layout.channel)
        self.heads: dict[tuple[int, int], tuple[str, int, Any, bool]] = {}
        """By thread and node: what kind of meeting, number of its channel or flag, what it needs, whether it is a step."""
        for at, o in meetings.operations.items():
            if isinstance(o, p.Await):
                self.heads[at] = (AWAIT, layout.channel[o.channel], o.tag, o.channel in meetings.open)
            elif isinstance(o, p.Signal):
                capacity = meetings.program.objects[o.channel].capacity  # type: ignore[union-attr]
                self.heads[at] = (SIGNAL, layout.channel[o.channel], capacity, o.channel in meetings.open)
            else:
                self.heads[at] = (STORE if isinstance(o, p.StoreFlag) else FLAG, layout.word[o.flag], o.value, True)

    def users(self) -> dict[Any, set[int]]:
        """Who changes what other threads look at without touching it by a node of its own: threads, and the device."""
        device = {DEVICE} if self.meetings.steps else set()
        found = {what: self.meetings.serving | device for what in self.meetings.looks}
        if device:
            found |= {("word", i): set(device) for i in self.word}
            if self.meetings.layout.has_same_bytes:
                found["location"] = set(device)
        return found

    # ------------------------------------------------------------ into a FIFO

    def append(self, s: State, i: int, bit: int, what: tuple[Any, ...] | None) -> None:
        """Behind everything that stream `i` was given; None only makes what comes later start after the bit."""
        m = s.meet
        assert m is not None
        if not m.pending[i]:
            m.tails[i] = s.streams[i]
        m.tails[i] |= bit
        if what is None:
            return
        m.pending[i] = (*m.pending[i], (m.tails[i], what))
        if len(m.pending[i]) > AHEAD and what[0] == MEET and sum(one[1] == what for one in m.pending[i]) > AHEAD:
            m.beyond = True
            name = self.meetings.program.objects[self.meetings.layout.stream_owner[i]].name
            self.beyond = self.beyond or (
                f"unbounded pending work: more than {AHEAD} turns of it may wait on stream {name!r}; let a host thread wait "
                "for it (an event, a stream), or hand the work over through a queue of bounded capacity"
            )

    def record(self, s: State, i: int, bit: int) -> int:
        """A record at the end of stream `i`, in which something is pending: its number."""
        m = s.meet
        assert m is not None
        m.last += 1
        self.append(s, i, bit, (RECORD, m.last))
        return m.last

    def record_is_last(self, s: State, slot: int, number: int, bit: int) -> None:
        """With one hardware queue: a pending record is the stream's own last item, called by who carries `bit` (S116)."""
        m = s.meet
        assert m is not None
        m.ends[slot] = number
        s.calls[slot] |= bit | PENDING

    # ------------------------------------------------------------ out of it

    def _enabled(self, m: Meet, node: tuple[int, int]) -> bool:
        """Whether the meeting of a node can run, once it is at the head of its stream."""
        kind, k, wanted, _ = self.heads[node]
        if kind == AWAIT:
            messages = m.channels[k][0]
            return bool(messages) and messages[0][0] == wanted
        if kind == SIGNAL:
            return wanted is None or len(m.channels[k][0]) < int(wanted)
        return kind == STORE or m.words[k][0] >= int(wanted)

    def _stays(self, m: Meet, what: tuple[Any, ...]) -> bool:
        """Whether the head of a stream stays there, but for steps of the device."""
        if what[0] == MEET:
            return self.heads[what[1]][3] or not self._enabled(m, what[1])
        return bool(what[0] == WAIT)  # that one is gone as soon as its record is complete

    def steps(self, s: State) -> Iterator[State]:
        """The states after one step of the device."""
        m = s.meet
        assert m is not None
        for i, fifo in enumerate(m.pending if self.meetings.steps else ()):
            what = fifo[0][1] if fifo else (ITEM,)
            if what[0] == MEET and self.heads[what[1]][3] and self._enabled(m, what[1]):
                n = s.copy()
                n.mark(("device", i if i < self.slots else self.sharers[i][0]))
                yield from self.settle(n, None, i, True) or (n,)

    def settle(self, s: State, at: int | None, i: int, step: bool = False) -> list[State] | None:
        """Everything leaves its FIFO that can, now that stream `i` has a new item; with `step`, its head is a device step.

        `at`: the node of the host step that this belongs to. Returns the states where it branches.
        """
        return self._go_on(s, at, [i], step)

    def at_once(self, s: State, i: int, bit: int, node: tuple[int, int]) -> list[State] | None:
        """The meeting of a node runs at its call if it can: nothing is pending in stream `i`, and it is no step of its own."""
        m = s.meet
        assert m is not None
        s.streams[i] |= bit
        streams: list[int] = []
        self._meet(s, i, node, streams)
        for k in streams:
            if m.pending[k]:
                return self._go_on(s, node[1], streams, False)
        return None

    def can_run_at_once(self, s: State, i: int, node: tuple[int, int]) -> bool:
        """Whether `at_once` may run the meeting of a node, in stream `i`."""
        m = s.meet
        assert m is not None
        return not m.pending[i] and self._enabled(m, node)

    def _go_on(self, s: State, at: int | None, streams: list[int], step: bool) -> list[State] | None:
        """As `settle`, for several streams that may go on."""
        done: list[State] = []
        todo = [(s, streams, step)]
        branched = False
        while todo:
            n, streams, step = todo.pop()
            while streams:
                i = streams[-1]
                m = n.meet
                assert m is not None
                fifo = m.pending[i]
                if not fifo or (not step and self._stays(m, fifo[0][1])):
                    streams.pop()
                    continue
                step = False
                results = self._pop(n, i, at, streams)
                if results is not None:
                    branched = True
                    for x in results:
                        if x.hazard is not None and x.hazard[0] != "same bytes":
                            done.append(x)
                        else:
                            todo.append((x, streams[:], False))
                    break
                if n.hazard is not None and n.hazard[0] != "same bytes":
                    streams.clear()
            else:
                done.append(n)
        return done if branched else None

    def _pop(self, s: State, i: int, at: int | None, streams: list[int]) -> list[State] | None:
        """The head of stream `i` leaves its FIFO; `streams` gets those that may go on now."""
        m = s.meet
        assert m is not None
        bit, what = m.pending[i][0]
        m.pending[i] = m.pending[i][1:]
        s.streams[i] |= bit
        results = None
        if what[0] == ITEM:
            results = self.judges[what[1]](s, i, what[2], at)
        elif what[0] == RECORD:
            self._complete(s, i, what[1], streams)
        else:
            self._meet(s, i, what[1], streams)
        for x in results or (s,):
            self._emptied(x, i)
        return results

    def _emptied(self, s: State, i: int) -> None:
        m = s.meet
        assert m is not None
        if not m.pending[i]:
            s.streams[i] |= m.tails[i]
            m.tails[i] = 0

    def _meet(self, s: State, i: int, node: tuple[int, int], streams: list[int]) -> None:
        m = s.meet
        assert m is not None
        kind, k = self.heads[node][:2]
        if kind in (STORE, FLAG):
            o = self.meetings.operations[node]
            if kind == FLAG:
                s.streams[i] |= m.words[k][1]
            if isinstance(o, p.StoreFlag) or (isinstance(o, p.WaitFlag) and o.reset):
                m.words[k] = (o.value if isinstance(o, p.StoreFlag) else 0, s.streams[i])
            return
        channel = self.objects[k]
        messages, last = m.channels[k]
        if kind == AWAIT:
            s.streams[i] |= messages[0][1] | last
            m.channels[k] = (messages[1:], s.streams[i] if channel in self.meetings.several else 0)
            streams += self.meetings.makers[channel]
            return
        streams += self.meetings.takers[channel]
        messages = (*messages, (self.meetings.operations[node].tag, s.streams[i], node))  # type: ignore[union-attr]
        m.channels[k] = (messages, last)
        if len(messages) > AHEAD and sum(who == node for _, _, who in messages) > AHEAD:
            m.beyond = True
            self.beyond = self.beyond or (
                f"unbounded mailbox: more than {AHEAD} signals of one place may lie in channel "
                f"{self.meetings.program.objects[channel].name!r} before they are awaited; give it a capacity"
            )

    def _complete(self, s: State, i: int, number: int, streams: list[int]) -> None:
        """A pending record is complete: its handles carry what it captured, and whoever waits for it goes on."""
        m, bit = s.meet, s.streams[i]
        assert m is not None
        waited = False
        for t, numbers in enumerate(m.inside):
            if number in numbers:
                waited = True
                s.tb[t] |= bit
                m.inside[t] = tuple(one for one in numbers if one != number)
        if i in self.sharers:
            for k in self.sharers[i]:
                if m.ends[k] == number:
                    m.ends[k] = 0
                    s.streams[k] |= bit
                if waited and not m.ends[k] and s.calls[k] & JOINED:
                    s.calls[k] &= ~(PENDING | JOINED)
        elif waited and self.track and not m.pending[i] and s.calls[i] & JOINED:
            s.calls[i] &= ~(PENDING | JOINED)
        known = COMPLETE if waited else 0

        def completed(flags: int) -> int:
            if flags >> NUMBER != number:
                return flags
            return bit | (flags & (RECORDED | CALLED)) | (known if flags & RECORDED else 0)

        self.meetings.handles(s, completed)
        waits = (WAIT, number)
        for k, fifo in enumerate(m.pending):
            if fifo and waits in [what for _, what in fifo]:
                new: list[Entry] = []
                carried = 0
                for b, what in fifo:
                    if what == waits:
                        carried |= b | bit
                    else:
                        new.append((b | carried, what))
                m.pending[k] = tuple(new)
                streams.append(k)
                m.tails[k] |= carried
                self._emptied(s, k)
        if m.deferred:
            self._given_back(s, number, bit)
        if s.block is not None and -number in s.block[2]:
            refs, free, uses, defined, owner = s.block
            s.block = (refs, free | bit, tuple(one for one in uses if one != -number), defined, owner)

    def _given_back(self, s: State, number: int, bit: int) -> None:
        m = s.meet
        assert m is not None
        kept = []
        for one in m.deferred:
            if one[0] != number:
                kept.append(one)
                continue
            _, k, given, guessed = one
            give_token(s, k, given | bit, guessed)
        m.deferred = tuple(kept)


def give_token(s: State, k: int, bit: int, guessed: bool) -> None:
    """A token is free, with what comes before its next take."""
    zeros, ones, mark = s.pools[k]
    if guessed:
        s.pools[k] = (zeros, ones, bit)
    else:
        s.pools[k] = (zeros, ones + 1, mark) if bit else (zeros + 1, ones, mark)
