"""What a state holds where streams meet: pending FIFOs, channels, device flags, threads inside a call (theory section 3).

An operation behind an unsatisfied signal, await or flag wait sits in its stream's FIFO with the bit of its call. Its operands
are resolved at the call; its accesses are judged, and may be guessed as the witness, when it leaves the FIFO. A pending
record has a number, which stands in every handle of it above the event flags (`NUMBER`) until the record is complete.
Waiting for one is a call (the thread is *inside* it) and, later, the return.

Designs without these operations have `State.meet` None and run none of this code.
"""

from __future__ import annotations

from typing import Any

NUMBER = 4
"""Event flags above this many bits are the number of a pending record; the handle carries nothing while there is one."""
JOINED = 4
"""Stream call flag: a call waits for all that the stream was given, and nothing was given since."""
AHEAD = 16
"""How often one operation may stand in a stream's pending FIFO, or its signal in a channel, before the answer is unknown."""
ITEM, RECORD, WAIT, MEET = "item", "record", "wait", "meet"
Entry = tuple[int, tuple[Any, ...]]
"""(bit, what): ("item", number of its accesses' judge, places), ("record", number), ("wait", number) or ("meet", node).

The bit is what the item starts after for sure: that of its call, and of everything in the FIFO before it.
"""
Place = tuple[int, int, int]
"""Where a pending access goes: slot of the location, how many frees of the block ago, and `GONE`, `LATE` or 0."""
GONE, LATE = 1, 2
"""Through a pointer to a freed block; by an earlier owner than the witness, so that no order of the two is right."""


MEMO = 1 << 14
"""Contents of channels of which a key is remembered."""

_channels: dict[tuple[Any, ...], tuple[tuple[Any, ...], int, int]] = {}


def _channels_key(channels: tuple[tuple[tuple[tuple[str, int, Any], ...], int], ...]) -> tuple[tuple[Any, ...], int, int]:
    """Of the channels what is compared: control, bits, and how many bits."""
    control: list[Any] = []
    bits = width = 0
    for k, (messages, bit) in enumerate(channels):
        bits, width = bits << 1 | bit, width + 1
        if messages:
            control.append((k, *[(tag, who) for tag, _, who in messages]))
            for _, carried, _ in messages:
                bits, width = bits << 1 | carried, width + 1
    if len(_channels) >= MEMO:
        _channels.clear()
    _channels[channels] = known = (tuple(control), bits, width)
    return known


class Meet:
    """What `State.meet` holds."""

    __slots__ = ("beyond", "channels", "deferred", "ends", "inside", "last", "olds", "pending", "tails", "words")

    pending: list[tuple[Entry, ...]]
    """For each stream what has not run yet."""
    tails: list[int]
    """The bit of everything that such a stream was given; 0 where nothing is pending."""
    ends: list[int]
    """With one hardware queue, for each slot of a stream the pending record behind its own last item, 0 if there is none."""
    channels: list[tuple[tuple[tuple[str, int, Any], ...], int]]
    """Messages (tag, bit, who signalled), and the bit of the latest await."""
    words: list[tuple[int, int]]
    """Device flags: value, bit of the store that put it there."""
    inside: list[tuple[int, ...]]
    """For each thread the pending records that its call waits for."""
    deferred: tuple[tuple[int, int, int, bool], ...]
    """Tokens given back behind a pending record: (record, pool, bit, whether it is the guessed one)."""
    olds: tuple[int, ...]
    """Whether the guessed byte was defined for its earlier owners, latest first, while uses of theirs are pending."""
    beyond: bool
    """Something is longer than its bound: what comes later is left out."""
    last: int
    """The largest number of a pending record."""

    def copy(self) -> Meet:
        """A copy that shares the immutable parts."""
        n = Meet.__new__(Meet)
        n.pending = self.pending[:]
        n.tails = self.tails[:]
        n.ends = self.ends[:]
        n.channels = self.channels[:]
        n.words = self.words[:]
        n.inside = self.inside[:]
        n.deferred = self.deferred
        n.olds = self.olds
        n.last = self.last
        n.beyond = self.beyond
        return n

    def key(self, control: list[Any], bits: int) -> int:
        """Add what is compared: control, and bits (fewer cover more)."""
        for i, fifo in enumerate(self.pending):
            if fifo:
                control.append((i, *[what for _, what in fifo]))
                bits = bits << 1 | self.tails[i]
                for bit, _ in fifo:
                    bits = bits << 1 | bit
        known = _channels.get(channels := tuple(self.channels))
        if known is None:
            known = _channels_key(channels)
        control.append(known[0])
        bits = bits << known[2] | known[1]
        for value, bit in self.words:
            control.append(value)
            bits = bits << 1 | bit
        control += (*self.inside, self.olds, *self.ends)
        if self.deferred:
            control.append(tuple([(number, pool, guessed) for number, pool, _, guessed in self.deferred]))
            for _, _, bit, _ in self.deferred:
                bits = bits << 1 | bit
        return bits

    def ahead(self, t: int) -> bool:
        """Whether thread `t` is a turn ahead of its streams: one of its meetings is pending more than once."""
        nodes = [what[1] for fifo in self.pending for _, what in fifo if what[0] == MEET and what[1][0] == t]
        return len(nodes) > len(set(nodes))

    def closed(self) -> bool:
        """Whether every pending access comes after the witness."""
        for fifo in self.pending:
            for bit, what in fifo:
                if what[0] == ITEM and (not bit or any(place and place[2] == LATE for place in what[2])):
                    return False
        return True

    def rotate(self, rings: list[tuple[int, int, int]], d: int, k: int, slots: bool) -> None:
        """Rename the slots of rings of depth `d`; `slots`: the location's slot is one of them."""
        for start, depth, _ in rings:
            if depth == d:
                rows: tuple[list[Any], ...] = (self.pending, self.tails, *([self.ends] if self.ends else []))
                for row in rows:
                    part = row[start : start + d]
                    row[start : start + d] = part[k:] + part[:k]
        if slots:
            self.pending = [
                tuple((bit, (*what[:2], tuple(map(lambda x: _turned(x, d, k), what[2])))) if what[0] == ITEM else (bit, what) for bit, what in fifo)
                for fifo in self.pending
            ]  # fmt: skip


def _turned(place: Place | None, d: int, k: int) -> Place | None:
    return place if place is None or place[0] < 0 else ((place[0] - k) % d, *place[1:])
