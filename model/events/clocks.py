"""Vector clocks over threads and streams, kept lean: lists of integers, copied only when somebody holds them.

Agents are numbered: first the host threads, then the streams (or the hardware queue that several streams share).
`now[a][b]` is the last tick of agent `b` that everything `a` does next comes after; `now[a][a]` is `a`'s own tick.
A tick stands for all that its agent had done *and knew* when it had that tick. So whoever knows tick `n` of an agent
knows everything below it, and a join whose source tick is already known costs one comparison.

A stream's items run one after the other, so one clock per item is enough: the clock when it starts, in which its own
component is its tick. Its end is known exactly to those whose clock has that tick.
"""

from __future__ import annotations

Clock = list[int]
"""A clock that was handed out; never changed afterwards."""


def merged(a: Clock, b: Clock) -> Clock:
    """The least clock that is after both."""
    return [x if x > y else y for x, y in zip(a, b)]  # noqa: B905  equal lengths by construction; strict= costs time


class VectorClocks:
    """The clocks of `agents` agents. All handlers take agent numbers; streams are agents like threads."""

    __slots__ = ("held", "now")

    def __init__(self, agents: int) -> None:
        self.now: list[Clock] = [[0] * agents for _ in range(agents)]
        self.held = [False] * agents  # somebody else refers to now[a]: copy it before the next change

    def copy(self) -> VectorClocks:
        """An independent copy; the lists are shared until one side changes them."""
        other = VectorClocks.__new__(VectorClocks)
        self.held = [True] * len(self.now)
        other.now = self.now[:]
        other.held = self.held[:]
        return other

    def snapshot(self, agent: int) -> Clock:
        """The agent's clock as it is, to be kept by the caller."""
        self.held[agent] = True
        return self.now[agent]

    def touch(self, agent: int) -> int:
        """The agent accesses memory: the tick of that access."""
        mine = self.now[agent]
        if self.held[agent]:
            mine = self.now[agent] = mine[:]
            self.held[agent] = False
        tick = mine[agent] = mine[agent] + 1
        return tick

    def launch(self, thread: int, stream: int, caller: Clock | None = None) -> int:
        """`thread` puts an item at the tail of `stream` (S2): the tick of that item. `caller`: its clock at the call."""
        now = self.now
        mine, caller = now[stream], caller or now[thread]
        if mine[thread] < caller[thread]:
            mine = now[stream] = [x if x > y else y for x, y in zip(mine, caller)]  # noqa: B905
            self.held[stream] = False
        elif self.held[stream]:
            mine = now[stream] = mine[:]
            self.held[stream] = False
        tick = mine[stream] = mine[stream] + 1
        return tick

    def record(self, thread: int, stream: int, caller: Clock | None = None) -> Clock:
        """An event record, itself an item of the stream (S2, S19): what a wait on that event comes after.

        It accesses nothing, so it needs a tick of its own only when its caller adds to what the stream knows.
        """
        now = self.now
        mine, caller = now[stream], caller or now[thread]
        if mine[thread] < caller[thread]:
            mine = now[stream] = [x if x > y else y for x, y in zip(mine, caller)]  # noqa: B905
            mine[stream] += 1
        self.held[stream] = True
        return mine

    def wait(self, thread: int, stream: int, clock: Clock, source: int, caller: Clock | None = None) -> None:
        """A stream waits for `clock`, recorded on agent `source` (S20): an item of the stream, too.

        As with a record, a wait that tells the stream nothing new needs no tick.
        """
        now = self.now
        mine, caller = now[stream], caller or now[thread]
        if mine[source] < clock[source]:
            after = [x if x > y else y for x, y in zip(mine, clock)]  # noqa: B905
            if after[thread] < caller[thread]:
                after = [x if x > y else y for x, y in zip(after, caller)]  # noqa: B905
        elif mine[thread] < caller[thread]:
            after = [x if x > y else y for x, y in zip(mine, caller)]  # noqa: B905
        else:
            return
        after[stream] += 1
        now[stream] = after
        self.held[stream] = False

    def sync(self, thread: int, clock: Clock, source: int) -> None:
        """The thread continues after `clock`, which agent `source` handed out (S23, S32, and every host hand-over)."""
        mine = self.now[thread]
        if mine[source] < clock[source]:
            mine = self.now[thread] = [x if x > y else y for x, y in zip(mine, clock)]  # noqa: B905
            self.held[thread] = False
            mine[thread] += 1  # knows more: a new tick, so that knowing the old one does not stand for this

    def absorb(self, thread: int, clock: Clock) -> None:
        """As `sync` for a clock merged from several agents: no single tick says whether it is known."""
        mine = self.now[thread]
        after = [x if x > y else y for x, y in zip(mine, clock)]  # noqa: B905
        if after != mine:
            after[thread] += 1
            self.now[thread] = after
            self.held[thread] = False


class RaceDetector:
    """Checks a stream of events on line: per location the last write and the reads since (epochs, not clocks).

    Reports (location, agent, tick, agent, tick) of unordered conflicting accesses. It sees what a recorder sees, no
    parts, blocks or feasibility: the judge of runs is `structure.conflicts`.
    """

    __slots__ = ("_launch", "_now", "_reads", "_writes", "clocks", "races")

    def __init__(self, agents: int) -> None:
        self.clocks = VectorClocks(agents)
        self._launch = self.clocks.launch
        self._now = self.clocks.now
        self._writes: dict[int, tuple[int, int]] = {}
        self._reads: dict[int, dict[int, int]] = {}
        self.races: list[tuple[int, int, int, int, int]] = []

    def launch(self, thread: int, stream: int, reads: tuple[int, ...] | list[int],
               writes: tuple[int, ...] | list[int]) -> None:  # fmt: skip
        """A kernel on `stream` that reads and writes the locations."""
        tick = self._launch(thread, stream)
        known = self._now[stream]
        last = self._writes
        for place in reads:
            write = last.get(place)
            if write is not None and known[write[0]] < write[1]:
                self.races.append((place, *write, stream, tick))
            seen = self._reads.get(place)
            if seen is None:
                self._reads[place] = {stream: tick}
            else:
                seen[stream] = tick
        for place in writes:
            write = last.get(place)
            if write is not None and known[write[0]] < write[1]:
                self.races.append((place, *write, stream, tick))
            seen = self._reads.get(place)
            if seen:
                for agent, read in seen.items():
                    if known[agent] < read:
                        self.races.append((place, agent, read, stream, tick))
                seen.clear()
            last[place] = (stream, tick)
