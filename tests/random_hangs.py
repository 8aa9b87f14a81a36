"""Seeded random programs about waiting: locks, semaphores, queues, conditions, flags, counters, pools, cells, events, device flags."""

from __future__ import annotations

import random

from fencepost.model import program as p

from program_writer import ThreadWriter, Tree, Writer


class Waits:
    """One program in the making: two or three short threads that share little, so that they often get in each other's way."""

    def __init__(self, rng: random.Random, device: str) -> None:
        """`device`: "queries" has kernels, events and tests of them besides, "meetings" a device flag and a channel, too."""
        self.rng, self.w = rng, Writer()
        add, pick = self.w.add, rng.choice
        self.locks = [add(p.Lock(f"lock {k}")) for k in range(2)]
        self.semaphore = add(p.Lock("semaphore", pick((1, 2)), True))
        self.queues = [add(p.Queue(f"queue {k}", pick((1, 1, 2)), (("", ()),))) for k in range(2)]
        self.tagged = add(p.Queue("tagged", pick((1, 2)), (("a", ()), ("b", ()))))
        self.waiting, self.woken = (add(p.Queue(name, 1, (("", ()),))) for name in ("waiting", "woken"))
        self.flags = [add(p.Flag(f"flag {k}")) for k in range(2)]
        self.counter = add(p.Counter("counter"))
        self.pool = add(p.Pool("pool", pick((1, 1, 2)), "row"))
        self.cell = add(p.Cell("cell", ()))
        self.ring = add(p.Cell("ring cell", (), 2))
        self.device, self.meet = device, device == "meetings"
        self.streams = [add(p.Stream(f"stream {k}")) for k in range(2)] if device else []
        self.events = [add(p.Event(f"event {k}")) for k in range(1 if self.meet else 2)] if device else []
        self.word = add(p.DeviceFlag("word")) if self.meet else -1
        self.channel = add(p.Channel("channel", pick((None, 1)))) if self.meet else -1
        count = pick((2, 2, 3))
        if device == "queries" and rng.random() < 0.6:
            self._answered()
            return
        if rng.random() < 0.6:
            self._paired(count)
            return
        kinds = [pick(("loop", "loop", "loop", "script")) for _ in range(count)]
        if rng.random() < 0.15:
            self._thread("setup", 1)
        for kind in kinds:
            self._thread(kind, pick((1, 2, 3)) if count == 2 else pick((1, 2)))

    def _answered(self) -> None:
        """Nobody waits for ever but where a query gets one of its answers, which may be impossible."""
        pick = self.rng.choice
        count = pick((1, 1, 2))
        turns = [self.w.add(p.Queue(f"turn {k}", 1, (("", ()),))) for k in range(2)] if count == 2 else []
        for number in range(count):
            self._thread("loop" if count == 2 or self.rng.random() < 0.7 else "script", 0)
            body = self.w.threads[-1].body
            for _ in range(pick((2, 3, 4, 5))):
                stream, other, event = p.Obj(pick(self.streams)), p.Obj(pick(self.streams)), p.Obj(pick(self.events))
                body.append(pick((
                    p.Launch("kernel", stream, ()), p.Launch("kernel", stream, ()), p.Record(event, stream), p.Record(event, stream),
                    p.StreamWaitEvent(stream, event), p.WaitStream(stream, other), p.EventSync(event), p.StreamSync(stream),
                )))  # fmt: skip
            if number == 0 or self.rng.random() < 0.3:
                question = p.EventQuery(p.Obj(pick(self.events))) if self.rng.random() < 0.7 else p.StreamQuery(p.Obj(pick(self.streams)))
                hang = pick(("yes", "no", "no"))
                body.append((question, {answer: [p.FlagWait(self.flags[1])] if answer == hang else [] for answer in ("yes", "no")}))
            if turns and self.rng.random() < 0.5:  # one after the other, or each as it likes
                body.insert(0, p.Put(turns[number], "", ()))
                body.append(p.Get(turns[number], "", ()))
                if number:
                    body[0] = p.Put(turns[0], "", ())
                    body[-1] = p.Get(turns[0], "", ())

    def _paired(self, count: int) -> None:
        """Loops in which whatever waits has a partner somewhere, in some place of its turn; and seldom something else."""
        rng, pick = self.rng, self.rng.choice
        for _ in range(count):
            self._thread("loop", 0)
        bodies = [thread.body for thread in self.w.threads]

        def put(*pieces: p.Operation) -> None:
            body = pick(bodies)
            at = rng.randrange(len(body) + 1)
            body[at:at] = pieces

        for _ in range(pick((1, 2, 2, 3))):
            kind = rng.randrange(10 if self.meet else 6)
            queue, flag, first, other = pick(self.queues), pick(self.flags), *rng.sample(self.streams or [0, 0], 2)
            if kind == 0:
                put(p.Put(queue, "", ()))
                put(p.Get(queue, "", ()))
            elif kind == 1:
                put(p.FlagSet(flag))
                put(p.FlagWait(flag), p.FlagClear(flag))
            elif kind == 2:
                put(p.CounterAdd(self.counter))
                put(p.CounterWait(self.counter, pick((1, 2))))
            elif kind in (3, 4):
                lock = pick([*self.locks, self.semaphore])
                for body in bodies:
                    at = sorted(rng.randrange(len(body) + 1) for _ in range(2))
                    body[at[1] : at[1]] = [p.Unlock(lock)]
                    body[at[0] : at[0]] = [p.Acquire(lock)]
            elif kind == 5:
                body = pick(bodies)
                body.insert(0, p.Take(self.pool, self.row))
                body.append(p.Give(self.pool, p.Local(self.row)))
            elif kind in (6, 7):
                put(p.Signal(self.channel, p.Obj(first), "x"), p.StreamSync(p.Obj(first)))
                put(p.Await(self.channel, p.Obj(other), "x"), p.StreamSync(p.Obj(other)))
            else:
                put(p.StoreFlag(self.word, 1, p.Obj(first) if rng.random() < 0.6 else None))
                put(p.WaitFlag(self.word, 1, p.Obj(other), True), p.StreamSync(p.Obj(other)))
        for _ in range(pick((1, 2, 3)) if self.device == "queries" else rng.random() < 0.35):
            thread = pick(self.w.threads)
            at = rng.randrange(len(thread.body) + 1)
            thread.body[at:at] = self._piece(thread, 1)

    def _thread(self, kind: str, size: int) -> None:
        thread = self.w.thread(kind)
        self.row = thread.local("row", p.HANDLE, None, self.pool)
        thread.body = self._body(thread, size, 0)

    def _body(self, thread: ThreadWriter, size: int, depth: int) -> Tree:
        return [one for _ in range(size) for one in self._piece(thread, depth)]

    def _inner(self, thread: ThreadWriter, depth: int) -> Tree:
        return self._body(thread, self.rng.choice((0, 0, 1, 1, 2)), depth + 1) if depth < 2 else []

    def _piece(self, thread: ThreadWriter, depth: int) -> Tree:
        pick, inner = self.rng.choice, lambda: self._inner(thread, depth)
        if self.device and self.rng.random() < 0.45:
            return self._meets(depth) if self.meet and self.rng.random() < 0.8 else self._asks(thread, depth)
        lock, queue, flag = pick(self.locks), pick(self.queues), pick(self.flags)
        kind = self.rng.randrange(17)
        if kind == 0:
            return [p.Acquire(lock), *inner(), p.Unlock(lock)]
        if kind == 1:
            return [p.Acquire(self.semaphore), *inner(), *([p.Unlock(self.semaphore)] if self.rng.random() < 0.8 else [])]
        if kind == 2:
            return [p.Put(queue, "", ())]
        if kind == 3:
            return [p.Get(queue, "", ())]
        if kind == 4:
            return [(p.QueueHolds(queue, 1), {"yes": [p.Get(queue, "", ())], "no": inner()})]
        if kind == 5:
            return [(p.QueueFull(queue), {"yes": [p.Get(queue, "", ())], "no": [p.Put(queue, "", ())]})]
        if kind == 6:
            return [p.Put(self.tagged, pick("ab"), ())]
        if kind == 7:
            if self.rng.random() < 0.5:
                return [p.Get(self.tagged, pick("ab"), ())]
            return [(p.QueueTag(self.tagged), {tag: [p.Get(self.tagged, tag, ()), *inner()] for tag in "ab"})]
        if kind == 8:
            return [pick((p.FlagSet, p.FlagSet, p.FlagClear))(flag)]
        if kind == 9:
            return [p.FlagWait(flag), *([p.FlagClear(flag)] if self.rng.random() < 0.5 else [])]
        if kind == 10:
            return [(p.FlagIsSet(flag), {"yes": inner(), "no": inner()})]
        if kind == 11:
            return [p.CounterAdd(self.counter)] if self.rng.random() < 0.6 else [p.CounterWait(self.counter, pick((1, 2)))]
        if kind == 12:
            return [p.Take(self.pool, self.row), *inner(), *([p.Give(self.pool, p.Local(self.row))] if self.rng.random() < 0.85 else [])]
        if kind == 13:
            cell: p.Operand = p.Slot(self.ring, p.Turn(pick((0, 1)))) if self.rng.random() < 0.4 else p.Obj(self.cell)
            return [(p.CellEmpty(cell), {"yes": [p.CellSet(cell, ()), *inner()], "no": [p.CellGet(cell, (), True), *inner()]})]
        if kind == 14:
            return [(p.TryLock(lock), {"yes": [*inner(), p.Unlock(lock)], "no": inner()})]
        if kind == 15:
            if self.rng.random() < 0.5:  # a condition
                return [p.Acquire(lock), p.Put(self.waiting, "", ()), p.Unlock(lock), p.Get(self.woken, "", ()), p.Acquire(lock), p.Unlock(lock)]
            wake: Tree = [(p.QueueHolds(self.waiting, 1), {"yes": [p.Get(self.waiting, "", ()), p.Put(self.woken, "", ())], "no": []})]
            return [p.Acquire(lock), *wake, p.Unlock(lock)]
        asked = pick((p.Maybe("maybe"), p.Choose("agreed", ("yes", "no"), True), p.TurnBelow(1)))
        return [(asked, {"yes": inner(), "no": inner()})]

    def _meets(self, depth: int) -> Tree:
        pick = self.rng.choice
        stream, event = p.Obj(pick(self.streams)), p.Obj(pick(self.events))
        host = self.rng.random() < 0.4
        kind = self.rng.randrange(9)
        if kind == 0:
            return [p.StoreFlag(self.word, pick((1, 1, 2, 0)), None if host else stream)]
        if kind in (1, 2):
            return [p.WaitFlag(self.word, pick((1, 1, 2)), None if host else stream, self.rng.random() < 0.5)]
        if kind == 3:
            return [p.Signal(self.channel, stream, pick("xxy"))]
        if kind == 4:
            return [p.Await(self.channel, stream, pick("xxy"))]
        if kind == 5:
            return [p.Record(event, stream)]
        if kind == 6:
            return [pick((p.EventSync(event), p.StreamWaitEvent(stream, event)))]
        if kind == 7:
            return [pick((p.StreamSync(stream), p.StreamSync(stream), p.DeviceSync(0, ""), p.WaitStream(stream, p.Obj(pick(self.streams)))))]
        return [(p.EventQuery(event), {"yes": [], "no": [p.StoreFlag(self.word, 1)] if depth else [p.FlagSet(self.flags[0])]})]

    def _asks(self, thread: ThreadWriter, depth: int) -> Tree:
        """Work, what it is recorded by, who waits for it, and whether it is complete."""
        pick = self.rng.choice
        stream, other, event = p.Obj(pick(self.streams)), p.Obj(pick(self.streams)), p.Obj(pick(self.events))
        kind = self.rng.randrange(9)
        if kind < 2:
            return [p.Launch("kernel", stream, ()), *([p.Record(event, stream)] if self.rng.random() < 0.6 else [])]
        if kind == 2:
            return [pick((p.Record(event, stream), p.StreamWaitEvent(stream, event), p.WaitStream(stream, other)))]
        if kind in (3, 4):
            return [pick((p.EventSync(event), p.EventSync(event), p.StreamSync(stream), p.DeviceSync(0, "")))]
        question = p.EventQuery(event) if self.rng.random() < 0.7 else p.StreamQuery(stream)
        return [(question, {answer: self._inner(thread, depth) for answer in ("yes", "no")})]


def hangs(rng: random.Random, device: str = "") -> p.Program:
    """A random program in which somebody may wait for ever."""
    made = Waits(rng, device).w.program("random waits")
    return made if rng.random() < 0.7 else _drains(made)


def _drains(program: p.Program) -> p.Program:
    """`if it holds one: get` becomes `while it holds one: get`."""
    threads = []
    for thread in program.threads:
        nodes = list(thread.nodes)
        for number, node in enumerate(thread.nodes):
            if isinstance(node, p.Ask) and isinstance(node.question, p.QueueHolds):
                target = dict(node.branches)["yes"]
                got = nodes[target] if target != p.END else None
                if isinstance(got, p.Do) and isinstance(got.operation, p.Get) and got.operation.queue == node.question.queue:
                    nodes[target] = p.Do(got.operation, number)
        threads.append(p.Thread(thread.name, thread.kind, tuple(nodes), thread.entry, thread.locals))
    return p.Program(program.name, program.objects, tuple(threads))


def conditions(rng: random.Random) -> p.Program:
    """Threads that wait on one condition and threads that notify, with whatever else they do in between, by the language."""
    import fencepost as fp

    d = fp.Design("random conditions")
    pick, count = rng.choice, rng.choice((2, 2, 2, 3))
    lock, data = d.lock("lock"), d.pageable("data")
    go = d.condition("go", lock, waiters=count, fifo=rng.random() < 0.25)
    done, turn = d.queue("done", capacity=pick((1, 2)), item=()), d.queue("turn", capacity=1, item=())
    asked, rows = d.flag("asked"), d.pool("rows", size=1, of="row")

    def other() -> list[str]:
        return [pick(("work", "work", "done", "done", "got", "turn", "turned", "flag", "flagged", "row", "maybe work", "maybe done"))]

    def act(what: str) -> None:
        if what == "work":
            data.read()
        elif what == "done":
            done.put()
        elif what == "got":
            done.get()
        elif what == "turn":
            turn.put()
        elif what == "turned":
            turn.get()
        elif what == "flag":
            asked.set()
        elif what == "flagged":
            asked.wait()
            asked.clear()
        elif what == "row":
            rows.give(rows.take())
        elif what == "maybe work":
            with d.maybe("works"):
                data.read()
        elif what == "maybe done":
            with d.maybe("is done"):
                done.put()
        elif what in ("wait", "wait if asked", "notify", "notify all", "set and notify"):
            with lock:
                if what == "wait":
                    go.wait()
                elif what == "wait if asked":
                    if not asked.is_set():
                        go.wait()
                elif what == "notify all":
                    go.notify_all()
                else:
                    if what == "set and notify":
                        asked.set()
                    go.notify()

    def thread(name: str, row: list[str]) -> None:
        def body() -> None:
            for what in row:
                act(what)

        d.loop(name)(body)

    waits = "wait if asked" if rng.random() < 0.2 else "wait"
    answers = rng.random() < 0.5
    for number in range(count):
        row = [waits]
        if answers:
            row.append("done")
        elif rng.random() < 0.4:
            row += other()
        thread(f"waiter {number}", row)
    for number in range(1 if count == 3 else pick((1, 1, 2))):
        row = [pick(("notify", "notify", "notify", "notify all", "set and notify"))]
        if answers and number == 0:
            row.append("got")
        elif rng.random() < 0.4:
            row += other()
        thread(f"notifier {number}", row)
    return d.build()
