"""Seeded random programs in which streams meet: channels, device flags, records behind them, tokens that come back behind records."""

from __future__ import annotations

import random

from fencepost.model import program as p

Segment = tuple[p.Operation, ...]
"""Operations that belong together; a branch skips whole ones."""


def meetings(rng: random.Random, blocks: bool = False) -> p.Program:
    """One to three threads. In about half of the programs every signal, store and wait has a partner in each turn.

    `blocks`: work on blocks of the caching allocator, freed while uses of them may be pending.
    """
    objects: list[p.Object] = []

    def add(thing: p.Object) -> int:
        objects.append(thing)
        return len(objects) - 1

    count = rng.choice((1, 2, 2, 3))
    streams = [add(p.Stream(f"stream {k}")) for k in range(rng.choice((2, 3, 4)))]
    channels = [add(p.Channel(f"channel {k}", rng.choice((None, 1, 2)))) for k in range(rng.choice((0, 1, 2, 3)))]
    flags = [add(p.DeviceFlag(f"flag {k}")) for k in range(rng.choice((0, 1, 1, 2)) if channels else 1)]
    events = [add(p.Event(f"event {k}")) for k in range(2)]
    queue = add(p.Queue("queue", rng.choice((1, 2)), (("", (p.EVENT,)),)))
    pool = add(p.Pool("pool", 2, "row"))
    memory = [add(p.Memory(f"memory {k}", "device")) for k in range(2)]
    tags = ("x",) if rng.random() < 0.7 else ("x", "y")
    own = [[s for k, s in enumerate(streams) if k % count == t] or streams for t in range(count)]
    bodies: list[list[Segment]] = [[] for _ in range(count)]

    def stream(t: int) -> p.Obj:
        return p.Obj(rng.choice(own[t] if rng.random() < 0.8 else streams))

    def put(t: int, segment: Segment) -> None:
        bodies[t].insert(rng.randrange(len(bodies[t]) + 1), segment)

    def work(t: int) -> Segment:
        mode = rng.choice("rw")
        if blocks and rng.random() < 0.6:
            return block(t)
        return (p.Launch(f"kernel {rng.randrange(3)}", stream(t), (p.Access(p.Obj(rng.choice(memory)), mode),)),)

    def block(t: int) -> Segment:
        owner, user = stream(t), stream(t)
        ops: list[p.Operation] = [p.Alloc(3, "device", owner), p.Launch("fill", owner, (p.Access(p.Local(3), "w"),))]
        if rng.random() < 0.7:
            ops.append(p.WaitStream(user, owner))
        ops.append(p.Launch("use", user, (p.Access(p.Local(3), "r"),)))
        if rng.random() < 0.6:
            ops.append(p.RecordStream(p.Local(3), user))
        return (*ops, p.Drop(3))

    def single(t: int) -> Segment:
        at, event = stream(t), p.Obj(rng.choice(events))
        pick = rng.randrange(14)
        if pick in (0, 1) and channels:
            return (rng.choice((p.Signal, p.Await))(rng.choice(channels), at, rng.choice(tags)),)
        if pick in (2, 3) and flags:
            return (p.StoreFlag(rng.choice(flags), rng.choice((1, 1, 2, 0)), at if rng.random() < 0.7 else None),)
        if pick in (4, 5) and flags:
            return (p.WaitFlag(rng.choice(flags), rng.choice((1, 1, 2)), at if rng.random() < 0.8 else None, rng.random() < 0.5),)
        if pick == 6:
            return (p.Record(event, at), p.EventSync(event))
        if pick == 7:
            return (p.Record(event, at), p.StreamWaitEvent(stream(t), event))
        if pick == 8:
            return (p.WaitStream(at, stream(t)),)
        if pick == 9:
            return (p.NewEvent(0), p.Record(p.Local(0), at), p.Put(queue, "", (p.Local(0),)))
        if pick == 10:
            wait = p.EventSync(p.Local(1)) if rng.random() < 0.6 else p.StreamWaitEvent(at, p.Local(1))
            return (p.Get(queue, "", (1,)), wait)
        if pick == 11:
            return (p.Take(pool, 2), p.Record(event, at), p.Give(pool, p.Local(2), event))
        return (p.DeviceSync(0, ""),) if pick == 12 else (p.StreamSync(at),)

    paired = rng.random() < 0.5
    if paired:
        for channel in channels:
            for kind in (p.Signal, p.Await):
                t = rng.randrange(count)
                put(t, (kind(channel, stream(t), "x"),))
        for flag in flags:
            t, other = rng.randrange(count), rng.randrange(count)
            put(t, (p.StoreFlag(flag, 1, stream(t) if rng.random() < 0.7 else None),))
            put(other, (p.WaitFlag(flag, 1, stream(other), True),))
    for t in range(count):
        put(t, work(t))
        for _ in range(rng.choice((0, 1)) if paired else rng.choice((1, 2, 3))):
            put(t, single(t))
        if paired:
            bodies[t] += [(p.StreamSync(p.Obj(s)),) for s in own[t]]
    kinds = ["loop"] * count if paired else [rng.choice(("loop", "loop", "script")) for _ in range(count)]
    threads = tuple(_thread(rng, t, kinds[t], bodies[t], events, pool, not paired) for t in range(count))
    return p.Program("random meetings", tuple(objects), threads)


def _thread(
    rng: random.Random, number: int, kind: str, body: list[Segment], events: list[int], pool: int, skips: bool
) -> p.Thread:  # fmt: skip
    """The segments in a row; in some threads a choice or a query in front of one skips some."""
    starts, nodes = [], list[p.Node]()
    for segment in body:
        starts.append(len(nodes))
        nodes += [p.Do(one, len(nodes) + k + 1) for k, one in enumerate(segment)]
    end = len(nodes)
    starts.append(end)
    entry = 0
    asks = skips and rng.random() < 0.5
    first = rng.randrange(len(body)) if asks else -1
    after = starts[rng.randrange(first + 1, len(body) + 1)] if asks else -1

    def target(n: int) -> int:
        if asks and n == starts[first]:
            return end  # the question stands behind the operations
        return p.END if n == end else n

    nodes = [p.Do(node.operation, target(node.next)) for node in nodes if isinstance(node, p.Do)]
    if asks:
        question: p.Question = p.Maybe(f"skip {number}")
        if rng.random() < 0.4:
            question = p.EventQuery(p.Obj(rng.choice(events)))
        nodes.append(p.Ask(question, (("yes", starts[first]), ("no", p.END if after == end else after))))
        entry = end if first == 0 else 0
    locals_ = (p.LocalInfo("fresh", p.EVENT), p.LocalInfo("got", p.EVENT), p.LocalInfo("row", p.HANDLE, 0, None, pool), p.LocalInfo("block", p.MEMORY))
    return p.Thread(f"thread {number}", kind, tuple(nodes), entry, locals_)
