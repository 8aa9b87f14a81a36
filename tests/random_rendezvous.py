"""Seeded random programs in which streams meet, for the explorer: chains of synchronisations, collectives, a soup.

A quarter each are programs without meetings in which a stream now waits for another one, a chain from one access to
another, collectives of two or three ranks in which one thing may be broken, and a soup of meetings with everything that can wait for pending work. Campaign: `python tests/random_rendezvous.py --count N --seed S`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

from fencepost.model import program as p

from program_writer import Tree, Writer, accepted, r, w
from random_programs import PATTERNS
from random_soup import Soup as OldSoup


def needs(kind: str, n: int, root: int) -> list[tuple[int, int]]:
    """From whose start there is an edge to whose end (theory section 2, collectives)."""
    others = [k for k in range(n) if k != root]
    if kind == "broadcast":
        return [(root, k) for k in others]
    if kind == "reduce":
        return [(k, root) for k in others]
    if kind == "send":
        return [(root, others[0])]
    return [(a, b) for a in range(n) for b in range(n) if a != b]


def ranks(rng: random.Random) -> Writer:
    """Ranks with a thread each, one or two collectives a turn, shared memory, and a way in which the host waits."""
    x = Writer()
    n = rng.choice((2, 2, 2, 3))
    shared = [p.Obj(x.add(p.Memory(f"m{i}", rng.choice(("device", "device", "pinned"))))) for i in range(rng.choice((1, 2)))]
    ring = rng.random() < 0.15
    streams = [x.add(p.Stream(f"s{i}", 2 if ring else None, gpu=i, process=f"rank{i}")) for i in range(n)]
    capacity = rng.choice((None, 1, 2, 2))
    channels = {(a, b): x.add(p.Channel(f"{a}>{b}", capacity)) for a in range(n) for b in range(n) if a != b}
    rounds = [(rng.choice(("all", "all", "broadcast", "reduce", "send")), rng.randrange(n)) for _ in range(rng.choice((1, 1, 2)))]
    kind = rng.choice(("loop", "script", "script"))
    depth = rng.choice((1, 1, 2))
    at = rng.randrange(5)
    for me in range(n):
        t = x.thread(kind)
        stream: p.Operand = p.Slot(streams[me], p.Turn(0)) if ring else p.Obj(streams[me])
        mine, theirs = shared[me % len(shared)], shared[(me + 1) % len(shared)]
        body: Tree = []
        if rng.random() < 0.7:
            body.append(p.Launch("before", stream, (w(mine),)) if rng.random() < 0.8 else p.Host("fill", (w(mine),)))
        for number, (what, root) in enumerate(rounds):
            tag = "other" if rng.random() < 0.02 else ""
            body += [p.Signal(channels[a, b], stream, tag) for a, b in needs(what, n, root) if a == me]
            body += [p.Await(channels[a, b], stream) for a, b in needs(what, n, root) if b == me]
            if not number and rng.random() < 0.8:
                body.append(p.Launch("between", stream, (r(theirs),)))
        wait = ("stream", "event", "ring", "queue", "device", "none")[at if rng.random() < 0.85 else rng.randrange(6)]
        if wait == "stream":
            body.append(p.StreamSync(stream))
        elif wait == "device":
            body.append(p.DeviceSync(me, f"rank{me}"))
        elif wait in ("event", "ring"):
            e = x.add(p.Event(f"e{me}", depth if wait == "ring" and depth > 1 else None, gpu=me, process=f"rank{me}"))
            ev: p.Operand = p.Slot(e, p.Turn(0)) if wait == "ring" and depth > 1 else p.Obj(e)
            late = rng.random() < 0.5
            body = [p.EventSync(ev), *body, p.Record(ev, stream)] if late else [*body, p.Record(ev, stream), p.EventSync(ev)]
        elif wait == "queue":
            q = x.add(p.Queue(f"q{me}", depth, (("", (p.EVENT,)),)))
            made, got = t.local("made", p.EVENT), t.local("got", p.EVENT)
            body += [p.NewEvent(made), p.Record(p.Local(made), stream), p.Put(q, "", (p.Local(made),))]
            body.append((p.QueueFull(q), {"yes": [p.Get(q, "", (got,)), p.EventSync(p.Local(got))], "no": []}))
        if rng.random() < 0.3:
            body.append(p.Host("look", (r(mine),)))
        t.body = body
    return x


class Soup:
    """Few accesses, many meetings, and everything that can wait for pending work."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.w = x = Writer()
        self.streams = [x.add(p.Stream(f"s{i}", rng.choice((None, None, None, 2)))) for i in range(rng.choice((2, 2, 3)))]
        self.ring = rng.choice((None, None, 2))
        self.memory = x.add(p.Memory("m", rng.choice(("pinned", "device")), self.ring))
        self.events = [x.add(p.Event(f"e{i}", rng.choice((None, None, 2)))) for i in range(rng.choice((0, 1, 1, 2)))]
        self.channels = [x.add(p.Channel(f"c{i}", rng.choice((None, 1, 2)))) for i in range(rng.choice((0, 1, 1, 2)))]
        self.flags = [x.add(p.DeviceFlag(f"f{i}")) for i in range(rng.choice((0, 0, 1)) if self.channels else 1)]
        self.queue = x.add(p.Queue("q", rng.choice((1, 2)), (("", (p.EVENT,)),))) if rng.random() < 0.4 else None
        self.cell = x.add(p.Cell("cell", (p.EVENT,))) if rng.random() < 0.2 else None
        self.pool = x.add(p.Pool("rows", rng.choice((1, 2)), "row")) if rng.random() < 0.15 else None
        self.lock = x.add(p.Lock("lock")) if rng.random() < 0.15 else None
        self.alloc = rng.random() < 0.25
        self.queries = rng.random() < 0.3
        self.same = rng.random() < 0.1
        self.left = rng.choice((2, 2, 3))
        count = rng.choice((1, 2, 2, 2, 3))
        self.ends = [(rng.randrange(count), rng.choice(self.streams), rng.randrange(count), rng.choice(self.streams)) for _ in self.channels]
        self.one_to_one = rng.random() < 0.75
        for number in range(count):
            self.t = x.thread(rng.choice(("script", "script", "script", "loop")))
            self.number = number
            self.queried = False
            body = self.tree(rng.choice((3, 4, 5, 6)) if count < 3 else rng.choice((2, 3, 4)))
            if rng.random() < 0.5 or self.t.kind == "loop":
                body.append(p.StreamSync(self.stream()))
            self.t.body = body

    def depth(self, oid: int) -> int | None:
        return self.w.objects[oid].depth  # type: ignore[union-attr]

    def stream(self, oid: int | None = None) -> p.Operand:
        oid = self.rng.choice(self.streams) if oid is None else oid
        return p.Slot(oid, self.rng.choice((p.Turn(0), p.Turn(0), p.Fixed(0)))) if self.depth(oid) else p.Obj(oid)

    def event(self) -> p.Operand:
        oid = self.rng.choice(self.events)
        return p.Slot(oid, p.Turn(0)) if self.depth(oid) else p.Obj(oid)

    def access(self) -> p.Access:
        target: p.Operand = p.Obj(self.memory)
        if self.ring:
            target = p.Slot(self.memory, p.Turn(self.rng.choice((0, 0, 1))))
        found = self.rng.choice((r, w))(target)
        return p.Access(target, "w", same_bytes=True) if self.same and found.mode == "w" and self.rng.random() < 0.6 else found

    def meeting(self) -> Tree:
        rng = self.rng
        if self.flags and (not self.channels or rng.random() < 0.6):
            flag, value = rng.choice(self.flags), rng.choice((1, 1, 2))
            where = self.stream() if rng.random() < 0.75 else None
            if rng.random() < 0.5:
                return [p.StoreFlag(flag, rng.choice((value, value, 0)), where)]
            return [p.WaitFlag(flag, value, where, rng.random() < 0.5)]
        k = rng.randrange(len(self.channels))
        tag = "other" if rng.random() < 0.03 else ""
        signal, stream = rng.random() < 0.5, self.stream()
        if self.one_to_one:
            sender, s, receiver, a = self.ends[k]
            if self.number not in (sender, receiver):
                return []
            signal = self.number == sender if sender != receiver else signal
            oid = s if signal else a
            stream = p.Slot(oid, p.Fixed(0)) if self.depth(oid) else p.Obj(oid)
        return [p.Signal(self.channels[k], stream, tag) if signal else p.Await(self.channels[k], stream, tag)]

    def tree(self, size: int) -> Tree:
        return [one for _ in range(size) for one in self.one()]

    def one(self) -> Tree:
        rng = self.rng
        if rng.random() < 0.4:
            return self.meeting()
        if self.left and rng.random() < 0.55:
            self.left -= 1
            access = self.access()
            return [p.Launch("k", self.stream(), (access,)) if rng.random() < 0.75 else p.Host("h", (access,))]
        options: list[Callable[[], Tree]] = [
            lambda: [p.StreamSync(self.stream())],
            lambda: [p.WaitStream(self.stream(), self.stream())],
        ]
        if self.events:
            options += [
                lambda: [p.Record(self.event(), self.stream())], lambda: [p.Record(self.event(), self.stream())],
                lambda: [p.EventSync(self.event())], lambda: [p.StreamWaitEvent(self.stream(), self.event())],
            ]  # fmt: skip
        options += [self.put, self.get] if self.queue is not None else []
        options += [self.through_cell] if self.cell is not None else []
        options += [self.row] if self.pool is not None else []
        options += [self.locked] if self.lock is not None else []
        options += [self.block, self.block] if self.alloc else []
        options += [self.query, self.query] if self.queries else []
        return rng.choice(options)()

    def locked(self) -> Tree:
        assert self.lock is not None
        return [p.Acquire(self.lock), *self.one(), p.Unlock(self.lock)]

    def put(self) -> Tree:
        e = self.t.local("e", p.EVENT)
        assert self.queue is not None
        return [p.NewEvent(e), p.Record(p.Local(e), self.stream()), p.Put(self.queue, "", (p.Local(e),))]

    def get(self) -> Tree:
        g = self.t.local("g", p.EVENT)
        assert self.queue is not None
        use = self.rng.choice((p.EventSync(p.Local(g)), p.StreamWaitEvent(self.stream(), p.Local(g))))
        return [p.Get(self.queue, "", (g,)), use]

    def through_cell(self) -> Tree:
        e, g = self.t.local("e", p.EVENT), self.t.local("g", p.EVENT)
        assert self.cell is not None
        cell = p.Obj(self.cell)
        return [
            p.NewEvent(e), p.Record(p.Local(e), self.stream()), p.CellSet(cell, (p.Local(e),)),
            p.CellGet(cell, (g,)), p.EventSync(p.Local(g)),
        ]  # fmt: skip

    def row(self) -> Tree:
        assert self.pool is not None
        row = self.t.local("row", p.HANDLE, pool=self.pool)
        access = self.access() if self.ring else self.rng.choice((r, w))(p.Obj(self.memory, p.At(p.Var(row))))
        event, stream = self.event() if self.events else None, self.stream()
        use: Tree = [p.Launch("row", stream, (access,)), *([p.Record(event, stream)] if event else [])]
        return [p.Take(self.pool, row), *use, p.Give(self.pool, p.Local(row), event)]

    def block(self) -> Tree:
        b, rng = self.t.local("b", p.MEMORY), self.rng
        plain = [s for s in self.streams if not self.depth(s)]
        if not plain:
            return []
        owner, other = p.Obj(plain[0]), self.stream()
        if rng.random() < 0.3:
            used = [p.Copy(p.Obj(self.memory), p.Local(b), other, True)] if not self.ring and rng.random() < 0.7 else []
            if getattr(self.w.objects[self.memory], "space", "") != "device":
                used = []
            return [p.Alloc(b, "pinned"), p.Host("fill", (w(p.Local(b)),)), *used, p.Drop(b)]
        use: Tree = [p.Launch("first", owner, (w(p.Local(b)),))]
        if rng.random() < 0.6:
            use += [p.WaitStream(other, owner), p.Launch("second", other, (r(p.Local(b)),))]
            use += rng.choice(([p.RecordStream(p.Local(b), other)], [p.RecordStream(p.Local(b), other)], [p.WaitStream(owner, other)], []))
        return [p.Alloc(b, "device", owner), *use, *(self.meeting() if rng.random() < 0.3 else []), p.Drop(b)]

    def query(self) -> Tree:
        inner = self.one() if self.rng.random() < 0.6 and not self.queried else []
        self.queried = True
        question = p.EventQuery(self.event()) if self.events and self.rng.random() < 0.7 else p.StreamQuery(self.stream())
        return [(question, {"yes": inner, "no": []} if self.rng.random() < 0.5 else {"yes": [], "no": inner})]


class Chain:
    """Two conflicting accesses, a chain of synchronisations from the first to the second, and what may break it.

    Everything that a link can be stands for one rule of pending work, so that a wrong rule breaks or mends some chain.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.w = x = Writer()
        n = rng.choice((2, 2, 3))
        self.threads = [x.thread("script") for _ in range(n)]
        self.at: list[Tree] = [t.body for t in self.threads]
        self.streams = [p.Obj(x.add(p.Stream(f"s{i}"))) for i in range(rng.choice((2, 3)))]
        self.mem = p.Obj(x.add(p.Memory("m", "pinned")))
        self.owner = {s.id: rng.randrange(n) for s in self.streams}
        self.flag: int | None = None
        self.event: p.Obj | None = None
        self.channel: int | None = None
        first, second = rng.choice(((w, r), (r, w), (w, w)))
        self.where: p.Obj | int = rng.choice(self.streams) if rng.random() < 0.6 else rng.randrange(n)
        if rng.random() < 0.3:
            self.make_pending()
        self.access(first)
        for _ in range(rng.choice((1, 2, 2, 3))):
            if rng.random() < 0.3:
                self.make_pending()
            self.hop()
        self.access(second)
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            self.disturb()
        for t in self.threads:
            if not t.body:
                t.body.append(p.StreamSync(self.streams[0]))

    def driver(self, stream: p.Obj) -> int:
        """The thread that enqueues on a stream now: mostly its owner."""
        return self.owner[stream.id] if self.rng.random() < 0.85 else self.rng.randrange(len(self.threads))

    def put(self, thread: int, *operations: p.Operation) -> None:
        self.at[thread] += operations

    def access(self, mode: Callable[[p.Operand], p.Access]) -> None:
        if isinstance(self.where, int):
            self.put(self.where, p.Host("h", (mode(self.mem),)))
        else:
            self.put(self.driver(self.where), p.Launch("k", self.where, (mode(self.mem),)))

    def make_pending(self) -> None:
        """A stream waits for a message that another thread sends at some time."""
        c = self.w.add(p.Channel(f"c{len(self.w.objects)}", self.rng.choice((None, 1))))
        stream, other = self.rng.choice(self.streams), self.rng.choice(self.streams)
        a, b = self.driver(stream), self.rng.randrange(len(self.threads))
        self.put(a, p.Await(c, stream))
        self.put(b, p.Signal(c, other))

    def new_flag(self) -> int:
        if self.flag is None or self.rng.random() < 0.5:
            self.flag = self.w.add(p.DeviceFlag(f"f{len(self.w.objects)}"))
        return self.flag

    def new_event(self) -> p.Obj:
        if self.event is None or self.rng.random() < 0.5:
            self.event = p.Obj(self.w.add(p.Event(f"e{len(self.w.objects)}")))
        return self.event

    def hop(self) -> None:
        rng, there = self.rng, self.where
        goal, n = rng.choice(self.streams), len(self.threads)
        after = self.driver(goal)
        if isinstance(there, int):
            how = rng.choice(("enqueue", "flag", "queue"))
            if how == "flag":
                flag = self.new_flag()
                self.put(there, p.StoreFlag(flag, 1))
                self.wait_flag(flag, goal, after)
            elif how == "queue":
                q = self.w.add(p.Queue(f"q{len(self.w.objects)}", 1, (("", ()),)))
                self.put(there, p.Put(q, "", ()))
                self.where = rng.randrange(n)
                self.put(self.where, p.Get(q, "", ()))
            else:
                self.put(there, p.Launch("mark", goal, ()))
                self.where = goal
            return
        t = self.driver(there)
        how = rng.choice(("signal", "signal", "flag", "flag", "event", "event", "wait event", "wait stream", "stream", "queue", "query", "device"))
        if how == "signal":
            c = self.w.add(p.Channel(f"c{len(self.w.objects)}", rng.choice((None, 1))))
            self.put(t, p.Signal(c, there))
            self.put(after, p.Await(c, goal))
            self.where = goal
        elif how == "flag":
            flag = self.new_flag()
            self.put(t, p.StoreFlag(flag, 1, there))
            self.wait_flag(flag, goal, after)
        elif how == "event":
            event = self.new_event()
            self.put(t, p.Record(event, there), p.EventSync(event))
            self.where = t
        elif how == "query":
            event, inside = self.new_event(), []
            self.put(t, p.Record(event, there))
            self.at[t].append((p.EventQuery(event) if rng.random() < 0.6 else p.StreamQuery(there), {"yes": inside, "no": []}))
            self.at[t] = inside
            self.where = t
        elif how == "wait event":
            event = self.new_event()
            self.put(t, p.Record(event, there), p.StreamWaitEvent(goal, event))
            self.where = goal
        elif how == "wait stream":
            self.put(t, p.WaitStream(goal, there))
            self.where = goal
        elif how == "device":
            self.put(t, p.DeviceSync())
            self.where = t
        elif how == "stream":
            self.put(t, p.StreamSync(there))
            self.where = t
        else:
            q = self.w.add(p.Queue(f"q{len(self.w.objects)}", 1, (("", (p.EVENT,)),)))
            e, g = self.threads[t].local("e", p.EVENT), self.threads[after].local("g", p.EVENT)
            if rng.random() < 0.4:  # an event that lives for ever, which others may record again
                event = self.new_event()
                self.put(t, p.Record(event, there), p.Put(q, "", (event,)))
            else:
                self.put(t, p.NewEvent(e), p.Record(p.Local(e), there), p.Put(q, "", (p.Local(e),)))
            wait = rng.random() < 0.5
            self.put(after, p.Get(q, "", (g,)), p.EventSync(p.Local(g)) if wait else p.StreamWaitEvent(goal, p.Local(g)))
            self.where = after if wait else goal

    def wait_flag(self, flag: int, goal: p.Obj, after: int) -> None:
        host = self.rng.random() < 0.35
        self.put(after, p.WaitFlag(flag, 1, None if host else goal, self.rng.random() < 0.4))
        self.where = after if host else goal

    def disturb(self) -> None:
        """One thing too much, too little, or at another place."""
        rng = self.rng
        body = rng.choice(self.at)
        at = rng.randrange(len(body) + 1)
        how = rng.choice(("delete", "swap", "swap", "store", "record", "enqueue", "reset"))
        movable = [i for i, one in enumerate(body) if not isinstance(one, (p.Put, p.Get, p.NewEvent, tuple))]
        if how == "delete" and movable:
            del body[rng.choice(movable)]
        elif how == "swap" and len(body) > 1:
            i = rng.randrange(len(body) - 1)
            if not any(isinstance(one, (p.Put, p.Get, p.NewEvent, tuple)) for one in body[i : i + 2]):
                body[i], body[i + 1] = body[i + 1], body[i]
        elif how in ("store", "reset") and self.flag is not None:
            body.insert(at, p.StoreFlag(self.flag, int(how == "store"), rng.choice((None, rng.choice(self.streams)))))
        elif how == "record" and self.event is not None:
            body.insert(at, p.Record(self.event, rng.choice(self.streams)))
        elif how == "enqueue":
            body.insert(at, p.Launch("more", rng.choice(self.streams), (rng.choice((r, w))(self.mem),)))


def injected(rng: random.Random) -> Writer:
    """A program without meetings, in which some stream now waits for a message or a flag, and another one gives it."""
    x = OldSoup(rng).w if rng.random() < 0.4 else rng.choice(PATTERNS)(rng)
    streams = [i for i, o in enumerate(x.objects) if isinstance(o, p.Stream)]
    if not streams:
        streams = [x.add(p.Stream("more"))]
    threads = [t for t in x.threads if t.body and t.kind != "setup"] or x.threads

    def stream(oid: int) -> p.Operand:
        return p.Slot(oid, p.Turn(0)) if x.objects[oid].depth else p.Obj(oid)  # type: ignore[union-attr]

    for _ in range(rng.choice((1, 1, 2))):
        a, b, s, u = rng.choice(threads), rng.choice(threads), rng.choice(streams), rng.choice(streams)
        if rng.random() < 0.75:
            c = x.add(p.Channel(f"channel {len(x.objects)}", rng.choice((None, 1, 1))))
            wait, give = p.Await(c, stream(s)), p.Signal(c, stream(u))
        else:
            f = x.add(p.DeviceFlag(f"flag {len(x.objects)}"))
            wait, give = p.WaitFlag(f, 1, stream(s), True), p.StoreFlag(f, 1, rng.choice((None, stream(u))))  # type: ignore[assignment]
        a.body.insert(rng.randrange(len(a.body) + 1), wait)
        b.body.insert(rng.randrange(len(b.body) + 1), give)
    return x


def _deletions(tree: Tree) -> list[tuple[Tree, int]]:
    fixed = (p.Put, p.Get, p.NewEvent, p.Alloc, p.Take, p.Give, p.Acquire, p.Unlock, tuple)
    result = [(tree, i) for i, one in enumerate(tree) if not isinstance(one, fixed)]
    for one in tree:
        if isinstance(one, tuple):
            for body in one[1].values():
                result += _deletions(body)
    return result


def generate(rng: random.Random) -> p.Program:
    """A random program with meetings that the platform's rules accept."""
    while True:
        program = _generate(rng)
        if accepted(program):
            return program


def _generate(rng: random.Random) -> p.Program:
    kind = rng.random()
    if kind < 0.25:
        return injected(rng).program("injected")
    if kind < 0.5:
        return Chain(rng).w.program("chain")
    if kind < 0.75:
        return Soup(rng).w.program("soup of meetings")
    writer = ranks(rng)
    if rng.random() < 0.6:
        where, at = rng.choice([d for t in writer.threads for d in _deletions(t.body)])
        del where[at]
    return writer.program("ranks")


if __name__ == "__main__":
    from random_oracle import main

    sys.exit(main(generate))
