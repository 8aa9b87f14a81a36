"""Streams that wait on the device, once more and independently of the explorer: signals, awaits, device flags, pending work.

Each stream has a FIFO of what is pending. An item holds the mask of its call, and an access of the class where it goes, since
locals have changed when it runs. Items run as soon as they can; a store to a device flag, a wait for one, and the two sides of
a channel with several ends are steps of their own, because their order decides (theory section 3, processing order).
"""

from __future__ import annotations

from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations.meetings import open_channels
from fencepost.proofs.certificates.accessing import Accessing
from fencepost.proofs.certificates.footprint import Class, Footprint
from fencepost.proofs.certificates.world import Late, Pending, Step, Unsupported, Where, World

AHEAD = 2
"""Whole turns of all that is enqueued on a stream, or signalled to a channel, that may be pending at once."""


class Meetings(Accessing):
    """What is pending in streams, and what runs when. `Machine` says which operation does what."""

    def __init__(self, footprint: Footprint, cls: Class | None) -> None:
        super().__init__(footprint, cls)
        self.meets = footprint.meets
        objects = list(enumerate(self.program.objects))
        self.channel = {i: k for k, i in enumerate(i for i, o in objects if isinstance(o, p.Channel))}
        self.word = {i: k for k, i in enumerate(i for i, o in objects if isinstance(o, p.DeviceFlag))}
        self.open = open_channels(self.program) if self.meets else frozenset[int]()
        self.steps = bool(self.open or self.word)
        """Whether the device has steps of its own, which any host step may come before or behind."""
        self.most_pending, self.most_messages = 8, dict.fromkeys(self.channel, 8)
        for node in self.kept if self.meets else ():
            for effect in footprint.effects[node]:
                self.most_pending += AHEAD
                if isinstance(effect, p.Signal):
                    self.most_messages[effect.channel] += AHEAD
        for i, o in objects:
            rings = isinstance(o, p.Stream) and (o.depth or 1) > 1
            if rings and any(self._steps(effect, i) for effects in footprint.effects.values() for effect in effects):
                raise Unsupported(f"device flags, or channels with several ends, on the ring of streams {o.name!r}")

    def _steps(self, effect: e.Effect, stream: int) -> bool:
        """Whether an effect puts an item on a stream object that is a step of its own."""
        if isinstance(effect, (p.StoreFlag, p.WaitFlag)):
            return effect.stream is not None and effect.stream.id == stream
        return isinstance(effect, (p.Signal, p.Await)) and effect.stream.id == stream and effect.channel in self.open

    # ------------------------------------------------------------ what waits

    def append(self, w: World, s: int, what: tuple[Any, ...], mask: int) -> None:
        """One more item at the end of a stream."""
        w.fifos[s] = (*w.fifos[s], Pending(what, mask))
        if len(w.fifos[s]) > self.most_pending:
            name = self.program.objects[self.stream_slots[s][0]].name
            raise Unsupported(f"what is pending in stream {name!r} grows without bound; let the host wait, or give the channels a capacity")

    def called_on(self, w: World, t: int, s: int, before: int = 0) -> None:
        """A call of thread `t` put something on a stream: what a query of it comes after, when it says no."""
        if self.track:
            w.calls[s] |= w.tb[t] | before
            w.busy[s] = True

    def record(self, w: World, s: int, mask: int) -> int:
        """A record at the end of a pending stream; its number."""
        known: list[int] = [item.what[1] for row in w.fifos for item in row if item.what[0] in ("record", "join")]
        number = 1 + max([0, *known, *w.latest, *(one for waits in w.inside for one in waits)])
        self.append(w, s, ("record", number), mask)
        return number

    def pend(self, w: World, s: int, t: int, n: int, which: int, accesses: tuple[p.Access, ...]) -> None:
        """An item that makes accesses: those of the class, with where they go; for control all, wherever."""
        kept = []
        for k, access in enumerate(accesses):
            where = Where(None, ()) if self.cls is None else self.where(w, t, access.target)
            if where is not None:
                kept.append((which + k, access.mode == "w", access.same_bytes, where))
        self._put_on(w, t, s, ("work", t, n, tuple(kept)))

    def _put_on(self, w: World, t: int, s: int, what: tuple[Any, ...]) -> None:
        self.called_on(w, t, s)
        self.append(w, s, what, w.tb[t])

    # ------------------------------------------------------------ what runs

    def able(self, w: World, s: int) -> bool:
        """Whether the first item of a stream can run."""
        what = w.fifos[s][0].what
        kind = what[0]
        if kind == "signal":
            capacity = self.object(what[1], p.Channel).capacity
            return capacity is None or len(w.channels[self.channel[what[1]]][0]) < capacity
        if kind == "await":
            messages = w.channels[self.channel[what[1]]][0]
            return bool(messages) and messages[0][0] == what[2]
        if kind == "wait":
            return bool(w.words[self.word[what[1]]][0] >= what[2])
        return bool(kind != "join")

    def by_itself(self, what: tuple[Any, ...]) -> bool:
        """Whether nobody could tell when the item runs."""
        return what[1] not in self.open if what[0] in ("signal", "await") else what[0] not in ("store", "wait")

    def settle(self, w: World) -> list[World]:
        """Everything has run that runs by itself; one world for each access that may be chosen on the way."""
        todo, settled = [w], []
        while todo:
            one = todo.pop()
            s = next((k for k, row in enumerate(one.fifos) if row and self.by_itself(row[0].what) and self.able(one, k)), None)
            if s is None:
                settled.append(one)
            else:
                todo += self.execute(one, s)
        return settled

    def device_steps(self, w: World) -> list[int]:
        """Streams whose first item can run and is a step of its own."""
        return [k for k, row in enumerate(w.fifos) if row and not self.by_itself(row[0].what) and self.able(w, k)]

    def device_step(self, w: World, s: int) -> list[World]:
        """The states after such a step."""
        what = w.fifos[s][0].what
        w.path = (*w.path, Step(what[-2], what[-1], stream=self.stream_slots[s]))
        return [after for one in self.execute(w, s) for after in self.settle(one)]

    def execute(self, w: World, s: int) -> list[World]:
        """The first item of a stream runs."""
        (what, mask), w.fifos[s] = w.fifos[s][0], w.fifos[s][1:]
        kind = what[0]
        w.streams[s] |= mask
        if kind == "work" and self.cls is None:
            for which, _, _, _ in what[3]:
                self.happens(w, what[1], what[2], which, 1)
        elif kind == "work":
            return self.accessed_on(w, what[1], what[2], what[3], s)
        if kind == "record":
            self._complete(w, what[1], w.streams[s])
        elif kind == "signal":
            k = self.channel[what[1]]
            messages, last = w.channels[k]
            w.channels[k] = ((*messages, (what[2], w.streams[s])), last)
            if len(messages) >= self.most_messages[what[1]]:
                raise Unsupported(f"channel {self.program.objects[what[1]].name!r} fills without bound; give it a capacity")
        elif kind == "await":
            k = self.channel[what[1]]
            ((_, message), *left), last = w.channels[k]
            w.streams[s] |= message | last
            # Among several receivers the order of the awaits decides who got which message.
            w.channels[k] = (tuple(left), w.streams[s] if what[1] in self.open else 0)
        elif kind == "store":
            w.words[self.word[what[1]]] = (what[2], w.streams[s])
        elif kind == "wait":
            k = self.word[what[1]]
            value, stored = w.words[k]
            w.streams[s] |= stored
            w.words[k] = (0, w.streams[s]) if what[3] else (value, stored)
        return [w]

    def _complete(self, w: World, number: int, mask: int) -> None:
        """A record was reached: whoever waits for it goes on with what it captured."""
        for k, latest in enumerate(w.latest):
            if latest == number:
                w.latest[k] = 0
                w.events[k] = mask
        for s, row in enumerate(w.fifos):
            if any(item.what == ("join", number) for item in row):
                w.fifos[s] = tuple(Pending(("go",), item.mask | mask) if item.what == ("join", number) else item for item in row)
        for t, waits in enumerate(w.inside):
            if number in waits:
                w.inside[t] = tuple(one for one in waits if one != number)
                w.tb[t] |= mask
        if w.block is not None and number in w.block.waits:
            w.block = w.block._replace(waits=tuple(one for one in w.block.waits if one != number), free=w.block.free | mask)
        for k, tokens in enumerate(w.late):
            done = [token for token in tokens if token.record == number]
            if done:
                w.late[k] = tuple(token for token in tokens if token.record != number)
                for token in done:
                    free, guessed = w.pools[k]
                    w.pools[k] = (free, token.mask | mask) if token.guessed else ((*free, token.mask | mask), guessed)

    # ------------------------------------------------------------ the four operations

    def _signal(self, w: World, t: int, n: int, which: int, effect: p.Signal) -> None:
        self._put_on(w, t, self.stream(w, t, effect.stream), ("signal", effect.channel, effect.tag, t, n))

    def _await(self, w: World, t: int, n: int, which: int, effect: p.Await) -> None:
        self._put_on(w, t, self.stream(w, t, effect.stream), ("await", effect.channel, effect.tag, t, n))

    def _storeflag(self, w: World, t: int, n: int, which: int, effect: p.StoreFlag) -> None:
        if effect.stream is not None:
            self._put_on(w, t, self.stream(w, t, effect.stream), ("store", effect.flag, effect.value, t, n))
        else:
            w.words[self.word[effect.flag]] = (effect.value, w.tb[t])

    def _waitflag(self, w: World, t: int, n: int, which: int, effect: p.WaitFlag) -> None:
        if effect.stream is not None:
            self._put_on(w, t, self.stream(w, t, effect.stream), ("wait", effect.flag, effect.value, effect.reset, t, n))
            return
        k = self.word[effect.flag]
        w.tb[t] |= w.words[k][1]
        if effect.reset:
            w.words[k] = (0, w.tb[t])

    def give_later(self, w: World, k: int, guessed: bool, mask: int, record: int) -> None:
        """A token comes back behind a pending record."""
        w.late[k] = (*w.late[k], Late(record, guessed, mask))

    # ------------------------------------------------------------ normal form

    def normalise_pending(self, w: World) -> None:
        """Records that nobody asks for are mere items; records are numbered afresh; a mask alone joins the item behind it."""
        asked = set(w.latest) | {r for rows in w.inside for r in rows} | {token.record for row in w.late for token in row}
        asked |= {item.what[1] for row in w.fifos for item in row if item.what[0] == "join"}
        if w.block is not None:
            asked |= set(w.block.waits)
        fresh: dict[int, int] = {}
        for s, row in enumerate(w.fifos):
            kept: list[Pending] = []
            carried = 0
            for what, mask in row:
                if _plain(what, asked):
                    carried |= mask
                    continue
                if what[0] == "record":
                    what = ("record", fresh.setdefault(what[1], len(fresh) + 1))
                kept.append(Pending(what, mask | carried))
                carried = 0
            if row and _plain(row[-1].what, asked):
                kept.append(Pending(("go",), carried))
            w.fifos[s] = tuple(kept)
        for s, row in enumerate(w.fifos):
            w.fifos[s] = tuple(
                Pending(("join", fresh[item.what[1]]), item.mask) if item.what[0] == "join" else item for item in row
            )
        w.latest = [fresh[r] if r else 0 for r in w.latest]
        w.inside = [tuple(sorted(fresh[r] for r in rows)) for rows in w.inside]
        w.late = [tuple(sorted((token._replace(record=fresh[token.record]) for token in row), key=lambda x: x[:2])) for row in w.late]
        block = w.block
        if block is not None:
            former = block.former if any(_owned(item, "former") for row in w.fifos for item in row) else None
            w.block = block._replace(waits=tuple(sorted(fresh[r] for r in block.waits)), former=former)

    def leave_pending(self, w: World) -> None:
        """The block is freed: what is pending on it belongs to its former owner from now on."""
        block = w.block
        if block is None or not any(_owned(item, "owner") for row in w.fifos for item in row):
            return  # what is pending of an earlier owner stays that owner's
        if any(_owned(item, "former") for row in w.fifos for item in row):
            raise Unsupported("a block changes hands twice while work on it is pending")
        w.fifos = [tuple(_handed_on(item) for item in row) for row in w.fifos]
        w.block = block._replace(former=block.written)


    def come_late(self, w: World) -> None:
        """Theory section 1: each owner has fresh memory in val, so the former owner's work must be before all of the next."""
        w.fifos = [tuple(_handed_on(item, "former", "late") for item in row) for row in w.fifos]


def _plain(what: tuple[Any, ...], asked: set[int]) -> bool:
    """Whether an item only hands its mask on: no access of the class, and no record that anybody asks for."""
    return what[0] == "go" or (what[0] == "work" and not what[3]) or (what[0] == "record" and what[1] not in asked)


def _owned(item: Pending, owner: str) -> bool:
    """Whether an item accesses the block for its present, or for its former owner."""
    return item.what[0] == "work" and any(where.owner == owner for _, _, _, where in item.what[3])


def _handed_on(item: Pending, old: str = "owner", new: str = "former") -> Pending:
    if item.what[0] != "work":
        return item
    kind, t, n, accesses = item.what
    moved = tuple(
        (which, write, same, Where(where.slot, where.path, new if where.owner == old else where.owner))
        for which, write, same, where in accesses
    )
    return Pending((kind, t, n, moved), item.mask)
