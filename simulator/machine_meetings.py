"""Where streams of the machine meet: channels with messages, flags with values, and the reference behind work that waits.

A signal appends a message to its channel, an await takes the oldest one if it is its own (S130, S131); a store overwrites a
flag, a wait lets its stream go on while the flag is high enough (S118). What cannot go on stays the first item of its
queue, and everything behind it with it, marks too: so records behind it are not complete, and calls that wait for them do not
return. Who comes first where several could is decided by who is held back.

The reference (theory section 1) has the same outcomes, so there, too, a meeting is over when it is over here: work behind it
is made in the reference then, and not at its call. A signal to the only receiver of a channel without bound is all that
nobody can wait for or come before.
"""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.simulator.machine_state import MEET, SET, WAIT, WORK, Fifo, Place, Work


class Meetings:
    """Part of the device half of `Machine`."""

    places: dict[int, Place]
    log: list[tuple[int, int, str | None, int | None, tuple[int, int] | None]]
    """The run so far: steps of hosts, and of the device where their order matters (`Step.stream`)."""
    open_channels: frozenset[int]
    """Channels of several senders or receivers."""

    def advance(self, first: Fifo) -> None:
        """Let everything start that can, from this queue on (provided by the device)."""
        raise NotImplementedError

    def make(self, work: Work) -> None:
        """Make the accesses of work in the reference (provided by the host half)."""
        raise NotImplementedError

    # ------------------------------------------------------------ what happens

    def meet(self, work: Work, todo: list[Fifo]) -> bool:
        """The work is the first of its queue: whether it could go on, and did. `todo`: queues to look at again."""
        o = work.operation
        assert work.stream is not None
        fifo = work.stream.fifo
        place = self.places[o.channel if isinstance(o, (p.Signal, p.Await)) else o.flag]
        if not _able(place, o):
            place.waiting.append(fifo)
            return False
        if isinstance(o, p.Signal):
            place.messages.append(o.tag)
        elif isinstance(o, p.Await):
            place.messages.popleft()
        elif isinstance(o, p.StoreFlag):
            place.value = o.value
        elif o.reset:
            place.value = 0
        work.begun = work.done = True
        if not isinstance(o, (p.Signal, p.Await)) or o.channel in self.open_channels:
            self.log.append((work.thread.index, work.node, None, None, work.stream.key))
        self.follow(fifo)
        todo.extend(_woken(place))
        return True

    def put_flag(self, flag: int, value: int) -> None:
        """The host stores."""
        place = self.places[flag]
        place.value = value
        for fifo in reversed(_woken(place)):
            self.advance(fifo)

    # ------------------------------------------------------------ the reference

    def await_in_reference(self, work: Work) -> None:
        """Called before the work is put into its queue: what follows there waits for it, in the reference too."""
        assert work.stream is not None
        o = work.operation
        if not isinstance(o, p.Signal) or self.places[o.channel].capacity is not None or o.channel in self.open_channels:
            work.stream.fifo.later.append((MEET, work))

    def follow(self, first: Fifo) -> None:
        """Let the reference go on, from this queue on."""
        todo = [first]
        while todo:
            fifo = todo.pop()
            later = fifo.later
            while later:
                kind, what = later[0]
                if kind == WORK:
                    self.make(what)
                elif kind == SET:
                    what.there = True
                    todo.extend(what.followers)
                elif kind == WAIT:
                    if not what.there:
                        if fifo not in what.followers:
                            what.followers.append(fifo)
                        break
                elif not what.done:
                    break
                later.popleft()


def _able(place: Place, o: p.Signal | p.Await | p.StoreFlag | p.WaitFlag) -> bool:
    if isinstance(o, p.Signal):
        return place.capacity is None or len(place.messages) < place.capacity
    if isinstance(o, p.Await):
        return bool(place.messages) and place.messages[0] == o.tag
    return isinstance(o, p.StoreFlag) or place.value >= o.value


def _woken(place: Place) -> list[Fifo]:
    """Queues that waited here, the first last: they are looked at from the end."""
    woken = place.waiting[::-1]
    place.waiting.clear()
    for fifo in woken:
        fifo.busy = False
    return woken


def what_it_waits_for(place: Place, o: p.Signal | p.Await | p.WaitFlag) -> str:
    """In words, for a report."""
    if isinstance(o, p.Signal):
        return f"room in {place.name!r}, which holds {len(place.messages)}"
    if isinstance(o, p.Await):
        wanted = f"{o.tag!r} on {place.name!r}" if o.tag else f"a signal on {place.name!r}"
        return f"{wanted}, where {place.messages[0]!r} comes first" if place.messages else wanted
    return f"{place.name!r} to be {o.value}; it is {place.value}"
