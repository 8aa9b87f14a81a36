"""Meetings of streams in a plan: channels and device flags as words in memory that streams write and wait for.

A channel is a word that counts its signals: the k-th signal writes k, the k-th await waits until the word is at least k. With
a capacity a second word counts the awaits, and signal k waits until at most that many messages lie there. A flag is a word
of its own. What a run decides - in which order stores to flags, waits for them, and signals of a channel that several
streams share come - is made so by a gate in front of each of them, opened at the run's step.
"""

from __future__ import annotations

from fencepost.gpu_validate import plan as c
from fencepost.model import program as p

FIRST_GATE = 1000
"""Gates from this number on are opened by the run itself."""


def meets(program: p.Program) -> bool:
    """Whether streams of the design can wait for each other on the device."""
    return any(isinstance(o, (p.Channel, p.DeviceFlag)) for o in program.objects)


class Meetings:
    """Numbers the words and the signals of one run."""

    def __init__(self, program: p.Program) -> None:
        self.program = program
        self.words: list[str] = []
        self._of: dict[tuple[int, str], int] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self.marks = 0
        self.opens: dict[int, tuple[int, int]] = {}
        """Step that enqueued an item which the run releases -> its gate, its mark."""

    def _word(self, object_: int, what: str) -> int:
        if (object_, what) not in self._of:
            self._of[object_, what] = len(self.words)
            self.words.append(f"{self.program.objects[object_].name}{what}")
        return self._of[object_, what]

    def _next(self, object_: int, what: str) -> int:
        self._counts[object_, what] = self._counts.get((object_, what), 0) + 1
        return self._counts[object_, what]

    def calls(self, o: p.Signal | p.Await | p.StoreFlag | p.WaitFlag, stream: int | None) -> list[c.Call]:
        """The calls of one operation. `stream` None: the host itself."""
        if isinstance(o, p.StoreFlag):
            return [c.WriteWord(stream, self._word(o.flag, ""), o.value)]
        if isinstance(o, p.WaitFlag):
            word = self._word(o.flag, "")
            return [c.WaitWord(stream, word, o.value), *([c.WriteWord(stream, word, 0)] if o.reset else [])]
        channel = self.program.objects[o.channel]
        assert isinstance(channel, p.Channel)
        sent, taken = self._word(o.channel, ""), None if channel.capacity is None else self._word(o.channel, " taken")
        found: list[c.Call] = []
        if isinstance(o, p.Signal):
            k = self._next(o.channel, "")
            if taken is not None and channel.capacity is not None and k > channel.capacity:
                found.append(c.WaitWord(stream, taken, k - channel.capacity))
            return [*found, c.WriteWord(stream, sent, k)]
        k = self._next(o.channel, " taken")
        found.append(c.WaitWord(stream, sent, k))
        return [*found, *([c.WriteWord(stream, taken, k)] if taken is not None else [])]

    def held(self, step: int, stream: int, calls: list[c.Call]) -> list[c.Call]:
        """The calls behind a gate that the run opens."""
        gate, self.marks = FIRST_GATE + self.marks, self.marks + 1
        self.opens[step] = (gate, self.marks - 1)
        return [c.Shut(gate, stream, True), *calls, c.Mark(self.marks - 1, stream)]

    def released(self, step: int) -> list[c.Call]:
        """What the device step of an item is: its gate opens, and it has run."""
        gate, mark = self.opens[step]
        return [c.Open(gate, True), c.Reach(mark)]
