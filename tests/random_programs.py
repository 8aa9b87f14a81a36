"""Seeded random programs for the explorer and every other engine.

`generate(random.Random(seed))` writes program data directly. Half the programs are a working pattern in which one thing
may be broken, half are a soup with few accesses and much synchronisation, so that about half of all are safe.

A long campaign: `python tests/random_programs.py --count N --seed S` (prints every disagreement, minimised).
"""

from __future__ import annotations

import random
import sys
from typing import Any

from fencepost.model import program as p

from program_writer import Tree, Writer, accepted, r, w
from random_soup import Soup


def refill(rng: random.Random) -> Writer:
    """A host buffer that a loop refills while earlier copies may still read it, with one of many guards."""
    x = Writer()
    depth, capacity = rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 3))
    buf = x.add(p.Memory("buf", "pinned", depth))
    dev = x.add(p.Memory("dev", "device"))
    s = p.Obj(x.add(p.Stream("s")))
    side = p.Obj(x.add(p.Stream("side")))
    t = x.thread()
    by_cursor = rng.random() < 0.4
    slot = p.Slot(buf, p.Turn(0))
    body: Tree = []
    index = t.local("i", p.INDEX, depth)
    if by_cursor:
        cursor = x.add(p.Cursor("c", depth))
        body.append(p.Advance(cursor, index))
        slot = p.Slot(buf, p.Var(index))
    guard = rng.choice(("ring", "queue", "queue", "query", "stream", "wait"))
    event = x.add(p.Event("e", rng.choice((None, depth))))
    ev = p.Slot(event, slot.index) if x.objects[event].depth else p.Obj(event)  # type: ignore[union-attr]
    copy = p.Copy(p.Obj(dev), slot, s, True)
    kernel = p.Launch("k", side, (r(p.Obj(dev)),)) if rng.random() < 0.3 else p.Launch("k", s, (r(p.Obj(dev)),))
    write = p.Host("fill", (w(slot),))
    if guard == "ring":
        body += [p.EventSync(ev), write, copy, p.Record(ev, s), kernel]
    elif guard == "query":
        body += [(p.EventQuery(ev), {"yes": [write, copy, p.Record(ev, s), kernel], "no": []})]
    elif guard == "stream":
        body += [write, copy, kernel, p.StreamSync(s)]
    elif guard == "wait":
        body += [write, copy, p.WaitStream(side, s), kernel, p.Record(ev, side), p.EventSync(ev)]
    else:
        q = x.add(p.Queue("q", capacity, (("", (p.EVENT, p.INDEX)),)))
        e, got, i = t.local("e", p.EVENT), t.local("got", p.EVENT), t.local("gi", p.INDEX, depth)
        if not by_cursor:
            x.objects[q] = p.Queue("q", capacity, (("", (p.EVENT,)),))
        values: tuple[Any, ...] = (p.Local(e), p.Var(index)) if by_cursor else (p.Local(e),)
        take: Tree = [p.Get(q, "", (got, i) if by_cursor else (got,)), p.EventSync(p.Local(got))]
        if by_cursor and rng.random() < 0.5:
            take.append(p.Host("look", (r(p.Slot(buf, p.Var(i))),)))
        no: Tree = [p.Host("look", (r(p.Obj(dev)),))] if rng.random() < 0.1 else []
        body += [write, copy, p.NewEvent(e), p.Record(p.Local(e), s), *([kernel] if rng.random() < 0.5 else [])]
        body += [p.Put(q, "", values)]
        full = rng.choice((p.QueueFull(q), p.QueueFull(q), p.QueueHolds(q, capacity)))
        if rng.random() < 0.3:
            body = [(p.Maybe("work"), {"yes": body, "no": []})]
        body.append((full, {"yes": take, "no": no}))
    t.body = body
    return x


def handover(rng: random.Random) -> Writer:
    """A producer and a consumer thread with a queue between them, and one of many ways back."""
    x = Writer()
    depth, capacity = rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 3))
    buf = x.add(p.Memory("buf", rng.choice(("pinned", "device")), depth))
    one = p.Obj(x.add(p.Stream("s1", gpu=0)))
    two = p.Obj(x.add(p.Stream("s2", gpu=rng.choice((0, 1)))))
    a, b = x.thread(), x.thread()
    slot = p.Slot(buf, p.Turn(0))
    by = rng.choice(("turn", "turn", "reference"))
    kinds = (p.EVENT, p.MEMORY) if by == "reference" else (p.EVENT,)
    q = x.add(p.Queue("q", capacity, (("", kinds),)))
    e = a.local("e", p.EVENT)
    fill = p.Host("fill", (w(slot),)) if rng.random() < 0.4 else p.Launch("fill", one, (w(slot),))
    a.body = [fill, p.NewEvent(e), p.Record(p.Local(e), one)]
    a.body.append(p.Put(q, "", (p.Local(e), slot) if by == "reference" else (p.Local(e),)))
    got, ref = b.local("got", p.EVENT), b.local("ref", p.MEMORY)
    source: p.Operand = p.Local(ref) if by == "reference" else slot
    wait = rng.choice((p.EventSync(p.Local(got)), p.StreamWaitEvent(two, p.Local(got))))
    use = p.Launch("use", two, (r(source),)) if rng.random() < 0.6 else p.Host("use", (r(source),))
    b.body = [p.Get(q, "", (got, ref) if by == "reference" else (got,)), wait, use]
    back = rng.choice(("none", "queue", "counter", "stream", "flag", "lock", "event"))
    if back == "queue":
        ack = x.add(p.Queue("ack", 1 + capacity, (("", (p.EVENT,)),)))
        f, g = b.local("f", p.EVENT), a.local("g", p.EVENT)
        b.body += [p.NewEvent(f), p.Record(p.Local(f), two), p.Put(ack, "", (p.Local(f),))]
        first = rng.choice((0, 1, 2))
        waiting: Tree = [p.Get(ack, "", (g,)), rng.choice((p.EventSync(p.Local(g)), p.StreamWaitEvent(one, p.Local(g))))]
        a.body = [(p.TurnBelow(first), {"yes": [], "no": waiting}), *a.body] if first else [*a.body, *waiting]
    elif back == "counter":
        done = x.add(p.Counter("done"))
        b.body += [p.StreamSync(two), p.CounterAdd(done)]
        a.body = [p.CounterWait(done, rng.choice((-1, 0, 1)) + 1 - depth, True), *a.body]
    elif back == "stream":
        b.body += [p.StreamSync(two)]
    elif back == "flag":
        flag = x.add(p.Flag("flag"))
        b.body += [p.StreamSync(two), p.FlagSet(flag)]
        a.body += [p.FlagWait(flag), p.FlagClear(flag)]
    elif back == "lock":
        lock = x.add(p.Lock("lock"))
        a.body = [p.Acquire(lock), *a.body[:3], p.StreamSync(one), p.Unlock(lock), *a.body[3:]]
        b.body = [*b.body[:1], p.Acquire(lock), *b.body[1:], p.StreamSync(two), p.Unlock(lock)]
    elif back == "event":
        ring = x.add(p.Event("done", depth))
        b.body += [p.Record(p.Slot(ring, p.Turn(0)), two)]
        a.body = [rng.choice((p.EventSync(p.Slot(ring, p.Turn(0))), p.StreamWaitEvent(one, p.Slot(ring, p.Turn(0))))), *a.body]
    return x


def blocks(rng: random.Random) -> Writer:
    """A block of a caching allocator that another stream, or another thread, uses."""
    x = Writer()
    main, side = p.Obj(x.add(p.Stream("main"))), p.Obj(x.add(p.Stream("side")))
    host = p.Obj(x.add(p.Memory("host", rng.choice(("pinned", "pageable")))))
    pinned = rng.random() < 0.4
    a = x.thread()
    block = a.local("block", p.MEMORY)
    tensor = p.Local(block)
    body: Tree = [p.Alloc(block, "pinned" if pinned else "device", None if pinned else main)]
    body += [p.Host("fill", (w(tensor),)) if pinned else p.Launch("fill", main, (w(tensor),))]
    body += [p.WaitStream(side, main)]
    raw = rng.random() < 0.3
    dev = p.Obj(x.add(p.Memory("dev", "device")))
    used: p.Operation = p.Copy(dev, tensor, side, True, raw) if pinned or rng.random() < 0.5 else p.Launch("use", side, (r(tensor),))
    if not pinned and rng.random() < 0.3:
        used = p.Copy(host, tensor, side, rng.random() < 0.7)
    release: Tree = rng.choice(([], [p.RecordStream(tensor, side)], [p.WaitStream(main, side)], [p.StreamSync(side)]))
    if rng.random() < 0.5:
        kinds = (p.EVENT, p.MEMORY)
        capacity = rng.choice((1, 2))
        q = x.add(p.Queue("q", capacity, (("", kinds),)))
        b = x.thread() if rng.random() < 0.6 else a
        e, got, ref = a.local("e", p.EVENT), b.local("got", p.EVENT), b.local("ref", p.MEMORY)
        body += [p.NewEvent(e), p.Record(p.Local(e), main), p.Put(q, "", (p.Local(e), tensor)), p.Drop(block)]
        used = p.Launch("use", side, (r(p.Local(ref)),))
        release = [p.RecordStream(p.Local(ref), side)] if release else []
        take: Tree = [p.Get(q, "", (got, ref))]
        take += [rng.choice((p.StreamWaitEvent(side, p.Local(got)), p.EventSync(p.Local(got)))), used, *release]
        take += [p.Drop(ref)]
        if b is a:
            body.append((p.QueueFull(q), {"yes": take, "no": []}))
        else:
            b.body = take
    else:
        body += [used, *release, p.Drop(block)]
    a.body = body
    return x


def rows(rng: random.Random) -> Writer:
    """Rows of one buffer, handed out by a finite pool."""
    x = Writer()
    s, side = p.Obj(x.add(p.Stream("s"))), p.Obj(x.add(p.Stream("side")))
    table = x.add(p.Memory("table", "pinned"))
    pool = x.add(p.Pool("rows", rng.choice((1, 2, 3)), "row"))
    q = x.add(p.Queue("q", rng.choice((1, 2)), (("", (p.EVENT, p.HANDLE)),)))
    t = x.thread()
    b = x.thread() if rng.random() < 0.5 else t
    row, e = t.local("row", p.HANDLE, pool=pool), t.local("e", p.EVENT)
    got, back = b.local("got", p.EVENT), b.local("back", p.HANDLE, pool=pool)
    there = p.Obj(table, p.At(p.Var(row)))
    t.body = [p.Take(pool, row), p.Host("fill", (w(there),)), p.Launch("use", s, (r(there),))]
    t.body += [p.NewEvent(e), p.Record(p.Local(e), s)]
    if rng.random() < 0.3:
        t.body += [p.Give(pool, p.Local(row), p.Local(e) if rng.random() < 0.6 else None)]
        return x
    t.body += [p.Put(q, "", (p.Local(e), p.Local(row)))]
    give = rng.choice(([p.EventSync(p.Local(got)), p.Give(pool, p.Local(back))], [p.Give(pool, p.Local(back), p.Local(got))]))
    use = [p.Launch("late", side, (r(p.Obj(table, p.At(p.Var(back)))),))] if rng.random() < 0.2 else []
    take: Tree = [p.Get(q, "", (got, back)), *use, *give]
    if b is t:
        t.body.append((p.QueueFull(q), {"yes": take, "no": []}))
    else:
        b.body = take
    return x


def pointers(rng: random.Random) -> Writer:
    """A raw pointer to a block, used by its maker or by another thread, while somebody holds the block or not."""
    x = Writer()
    s = p.Obj(x.add(p.Stream("s")))
    pinned = rng.random() < 0.6
    a = x.thread()
    b = x.thread() if rng.random() < 0.6 else a

    def use(tensor: p.Operand, mode: Any) -> p.Operation:
        return p.Host("use", (mode(tensor),)) if pinned and rng.random() < 0.6 else p.Launch("use", s, (mode(tensor),))

    def made(name: str) -> tuple[int, p.Operation]:
        local = a.local(name, p.MEMORY)
        return local, p.Alloc(local, "pinned" if pinned else "device", None if pinned else s)

    block, allocated = made("block")
    raw = a.local("raw", p.MEMORY)
    held = rng.random() < 0.2
    body: Tree = [allocated, use(p.Local(block), w), p.View(raw, p.Local(block), True, held)]
    tail: Tree = [p.Drop(block)] if rng.random() < 0.7 else []
    if rng.random() < 0.5:
        other, again = made("other")
        tail += [again, use(p.Local(other), w), *([use(p.Local(other), r)] if rng.random() < 0.5 else []), p.Drop(other)]
    access = use(p.Local(raw), rng.choice((r, w)))
    if b is a and rng.random() < 0.5:
        body.insert(3, access) if rng.random() < 0.3 else tail.append(access)
        a.body = [*body, *tail, p.Drop(raw)]
        return x
    q = x.add(p.Queue("q", rng.choice((1, 2)), (("", (p.MEMORY,)),)))
    got = b.local("got", p.MEMORY)
    mode = rng.choice((r, w))
    uses: Tree = [p.Get(q, "", (got,)), use(p.Local(got), mode)]
    body.append(p.Put(q, "", (p.Local(raw),)))
    if b is a:
        a.body = [*body, *tail, *uses, p.Drop(got), p.Drop(raw)]
        return x
    done = x.add(p.Queue("done", rng.choice((1, 2)), (("", (p.MEMORY,) if rng.random() < 0.4 else ()),)))
    carries = bool(x.objects[done].items[0][1])  # type: ignore[union-attr]
    back = b.local("back", p.MEMORY)
    if carries:  # the block travels behind its pointer
        body.append(p.Put(done, "", (p.Local(block),)))
        uses.insert(rng.randrange(1, 3), p.Get(done, "", (back,)))
        uses.append(p.Drop(back))
    else:
        body.append(p.Get(done, "", ()))
        uses.insert(rng.randrange(1, 3), p.Put(done, "", ()))
    a.body = [*body, *tail, p.Drop(raw)]
    b.body = [*uses, p.Drop(got)]
    return x


PATTERNS = (refill, handover, blocks, rows, pointers)


def _deletions(tree: Tree) -> list[tuple[Tree, int]]:
    result = [(tree, i) for i, one in enumerate(tree) if not isinstance(one, (p.Put, p.Get, p.Alloc, p.NewEvent, p.Take, p.Advance, p.Unlock, p.Acquire, p.Give, p.View, tuple))]  # fmt: skip
    for one in tree:
        if isinstance(one, tuple):
            for body in one[1].values():
                result += _deletions(body)
    return result


def generate(rng: random.Random) -> p.Program:
    """A random program that the platform's rules accept."""
    while True:
        program = _generate(rng)
        if accepted(program):
            return program


def _generate(rng: random.Random) -> p.Program:
    if rng.random() < 0.5:
        return Soup(rng).w.program("soup")
    make = rng.choice(PATTERNS)
    writer = make(rng)
    if rng.random() < 0.5:
        where, at = rng.choice([d for t in writer.threads for d in _deletions(t.body)])
        del where[at]
    return writer.program(make.__name__)


if __name__ == "__main__":
    from random_oracle import main

    sys.exit(main())
