"""Host code of the machine: what each operation and question does when a host thread reaches it.

Written from semantics.md, not from model/operations: this is the second place where a rule of the platform is said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.model import program as p
from fencepost.model.platform import Environment, Platform
from fencepost.simulator.machine_allocators import Allocators
from fencepost.simulator.machine_device import Device
from fencepost.simulator.machine_operands import Get, Operands
from fencepost.simulator.machine_state import (
    FOREVER,
    WRITES,
    DesignFault,
    Engine,
    EventState,
    HostThread,
    Mark,
    Marks,
    Node,
    Value,
    Work,
)

Run = Callable[[HostThread], Any]
Ready = Callable[[HostThread], bool]
HOST_SPACES = ("pinned", "pageable")


class Unsupported(Exception):
    """An operation or question that the machine does not know. The message names it."""


class Host(Device, Allocators, Operands):
    """Host half of `Machine`: compiles operations to functions and keeps what host threads share."""

    platform: Platform
    environment: Environment
    step: int
    given: str | None
    """The answer that the current step's question got."""
    clockwork: Any
    late: list[int]
    """Steps whose work was stalled."""

    def engine_of(self, what: str) -> Engine | None:
        """The engine that serves this kind of item (provided by the machine)."""
        raise NotImplementedError

    def _reset_host(self) -> None:
        objects = list(enumerate(self.program.objects))
        self.cursors = {i: o.depth - 1 for i, o in objects if isinstance(o, p.Cursor)}
        self.queues: dict[int, deque[tuple[str, tuple[Value, ...]]]] = {
            i: deque() for i, o in objects if isinstance(o, p.Queue)
        }
        self.cells: dict[tuple[int, int], tuple[Value, ...]] = {}
        self.locks = {i: o.count for i, o in objects if isinstance(o, p.Lock)}
        self.holders: dict[int, HostThread] = {}
        self.flags = {i: False for i, o in objects if isinstance(o, p.Flag)}
        self.counters = {i: 0 for i, o in objects if isinstance(o, p.Counter)}
        self.chosen: dict[Any, str] = {}
        self.free_tokens = {i: list(range(o.size)) for i, o in objects if isinstance(o, p.Pool)}
        self.later_tokens: dict[int, list[tuple[int, Mark]]] = {i: [] for i in self.free_tokens}
        for event in self.events.values():
            event.mark = None
        for buffer in self.buffers:
            buffer.reset()

    # ------------------------------------------------------------ accesses

    def accesses(self, thread: p.Thread, accesses: Sequence[p.Access]) -> tuple[list[Get], list[tuple[Get, bool]]]:
        """Reads and writes (with same_bytes) of an operation."""
        reads = [self.reference(thread, a.target) for a in accesses if a.mode == "r"]
        writes = [(self.reference(thread, a.target), a.same_bytes) for a in accesses if a.mode == "w"]
        return reads, writes

    def issue(self, work: Work, th: HostThread, reads: list[Get], writes: list[tuple[Get, bool]]) -> None:
        """Resolve the accesses of an operation at its call, and make them in the reference execution.

        There every operation completes as soon as it can start, which is now, in memory that is fresh for each
        allocation (theory section 1). What it reads there is what it has to read here.
        """
        for get in reads:
            ref = get(th)
            shadow = ref.shadow
            work.reads.append((ref, shadow.value if shadow.cells is None else shadow.read(ref.scope, ref.path)))
        number = (self.step + 1) << WRITES
        for get, same in writes:
            ref = get(th)
            shadow = ref.shadow
            if same:
                work.writes.append((ref, shadow.read(ref.scope, ref.path), True))
                continue
            if ref.path or shadow.cells is not None:
                shadow.write(ref.scope, ref.path, number)
            else:
                shadow.value = number
            work.writes.append((ref, number, False))
            number += 1

    def schedule(self, work: Work, engine: Engine | None = None) -> None:
        """When work starts and how long it takes: what the operation or the profile says, and the chooser's stall."""
        work.engine = engine
        recorder = self.recorder
        stall = self.chooser.stall(work)
        if stall is None:
            recorder.gap += 1
        else:
            delay, length = stall
            work.delay, work.length = delay, length
            if delay > 0:
                work.not_before = work.enqueued + delay
            entry = [recorder.gap, delay, length]
            work.entry = entry
            recorder.stalls.append(entry)
            recorder.gap = 0
            self.late.append(work.step)
        if self.clockwork is not None:
            work.length += self.clockwork.device(work) if work.stream is not None else self.clockwork.host(work)

    def touch(self, th: HostThread, work: Work) -> None:
        """Host code: the thread goes on when it is over."""
        self.schedule(work)
        if work.delay == FOREVER:
            self.held.append(work)
        elif work.delay:
            self._later(work.not_before, work)
        else:
            self.begin(work)
            if not work.length:
                self.end(work)
                return
            self._later(self.now + work.length, work)
        th.waits = work

    # ------------------------------------------------------------ compiling

    def compile(self, thread: p.Thread, node: p.Node, made: Node, nodes: list[Node], end: Node) -> None:
        """Fill a node."""
        if isinstance(node, p.Do):
            made.operation = node.operation
            made.next = end if node.next == p.END else nodes[node.next]
            rule = OPERATIONS.get(type(node.operation))
            if rule is None:
                raise Unsupported(f"the machine does not know the operation {type(node.operation).__name__}")
            made.run, made.ready = rule(self, thread, node.operation)
            return
        made.operation = node.question
        branches = {answer: end if target == p.END else nodes[target] for answer, target in node.branches}
        question = QUESTIONS.get(type(node.question))
        if question is None:
            raise Unsupported(f"the machine does not know the question {type(node.question).__name__}")
        ask, made.ready = question(self, thread, node.question)
        if isinstance(node.question, p.EventQuery):
            made.tail = self._event_tail(thread, node.question)
        elif isinstance(node.question, p.StreamQuery):
            made.tail = self._stream_tail(thread, node.question)
        options = tuple(branches)

        def run(th: HostThread) -> Node:
            answer = ask(th, options)
            self.given = answer
            if answer not in branches:
                raise DesignFault(f"the answer {answer!r} has no branch, only {', '.join(options)}")
            return branches[answer]

        made.run = run

    # ------------------------------------------------------------ memory operations

    def _host(self, t: p.Thread, o: p.Host) -> tuple[Run, Ready | None]:
        reads, writes = self.accesses(t, o.accesses)

        def run(th: HostThread) -> None:
            work = Work("host", self.step, th, None, self.now, o)
            self.issue(work, th, reads, writes)
            self.touch(th, work)

        return run, None

    def _item(self, t: p.Thread, o: Any, accesses: Sequence[p.Access], what: str, wait: bool) -> Run:
        """An asynchronous item; `wait`: the call returns when the stream has come that far."""
        reads, writes = self.accesses(t, accesses)
        stream = self.stream(t, o.stream)
        engine = self.engine_of(what)
        wait = wait or (self.environment.blocking_kernels if what == "kernel" else self.environment.blocking_copies)

        def run(th: HostThread) -> None:
            where = stream(th)
            work = Work(what, self.step, th, where, self.now, o)
            self.issue(work, th, reads, writes)
            self.schedule(work, engine)
            self.enqueue(work)
            if wait:
                th.waits = self.mark(where)

        return run

    def _launch(self, t: p.Thread, o: p.Launch) -> tuple[Run, Ready | None]:
        return self._item(t, o, o.accesses, "kernel", False), None

    def _memset(self, t: p.Thread, o: p.Memset) -> tuple[Run, Ready | None]:
        return self._item(t, o, (p.Access(o.dst, "w"),), "memset", False), None  # S39

    def _to_host(self, t: p.Thread, o: p.Item) -> tuple[Run, Ready | None]:
        return self._item(t, o, (p.Access(o.src, "r"),), "d2h", True), None  # S33

    def _copy(self, t: p.Thread, o: p.Copy) -> tuple[Run, Ready | None]:
        """Where the two sides live decides what happens; for a side that was handed over, that is known at the call."""
        source, target = self.reference(t, o.src), self.reference(t, o.dst)
        stream = self.stream(t, o.stream)
        same = o.same_bytes
        local = [side for side, operand in ((source, o.src), (target, o.dst)) if isinstance(operand, p.Local)]
        platform = self.platform
        note = o.non_blocking and not o.raw
        sync = not o.non_blocking and not o.raw
        blocking = self.environment.blocking_copies

        def run(th: HostThread) -> None:
            src, dst = source(th), target(th)
            reads, writes = [lambda _: src], [(lambda _: dst, same)]
            from_host, to_host = src.space in HOST_SPACES, dst.space in HOST_SPACES
            if from_host and to_host:  # S49
                work = Work("host", self.step, th, None, self.now, o)
                self.issue(work, th, reads, writes)
                self.touch(th, work)
                return
            where = stream(th)
            what = "h2d" if from_host else "d2h" if to_host else "d2d"
            work = Work(what, self.step, th, where, self.now, o)
            self.issue(work, th, reads, writes)
            wait = sync or blocking
            if src.space == "pageable" and platform.pageable_h2d != "late":
                # S47: the bytes are staged before the call returns.
                staged = Work("staging", self.step, th, None, self.now, o)
                staged.reads, work.reads = work.reads, []
                self.begin(staged)
                staged.done = True
                work.wrong = staged.wrong
                wait = wait or platform.pageable_h2d == "blocking"  # S52
            elif dst.space == "pageable" and platform.pageable_d2h == "blocking":  # S48
                wait = True
            self.schedule(work, self.engine_of(what))
            self.enqueue(work)
            if note:  # S54, S79: the host allocator is asked whose bytes these are
                for side in local:
                    ref = side(th)
                    if ref.space == "pinned" and ref.attributed:
                        self.note(ref, where)
            if wait:
                th.waits = self.mark(where)

        return run, None

    # ------------------------------------------------------------ references

    def _alloc(self, t: p.Thread, o: p.Alloc) -> tuple[Run, Ready | None]:
        owner = self.stream(t, o.stream) if o.stream is not None else None
        name, local, space, size = t.locals[o.local].name, o.local, o.space, o.bytes

        def run(th: HostThread) -> None:
            ref = self.allocate(th, space, owner(th) if owner is not None else None, size, name)
            self.bind(th, local, ref)

        return run, None

    def _view(self, t: p.Thread, o: p.View) -> tuple[Run, Ready | None]:
        base, local, attributed, held = self.reference(t, o.base), o.local, o.attributed, o.held

        def run(th: HostThread) -> None:
            ref = base(th).view(attributed, held)
            self.hold(ref)
            self.bind(th, local, ref)

        return run, None

    def _drop(self, t: p.Thread, o: p.Drop) -> tuple[Run, Ready | None]:
        local = o.local

        def run(th: HostThread) -> None:
            value, th.locals[local] = th.locals[local], None
            self.let_die(value)

        return run, None

    def _record_stream(self, t: p.Thread, o: p.RecordStream) -> tuple[Run, Ready | None]:
        block, stream = self.reference(t, o.block), self.stream(t, o.stream)

        def run(th: HostThread) -> None:
            ref = block(th)
            if ref.space == "device":
                self.note(ref, stream(th))

        return run, None

    def _advance(self, t: p.Thread, o: p.Advance) -> tuple[Run, Ready | None]:
        cursor = self.program.objects[o.cursor]
        assert isinstance(cursor, p.Cursor)
        id_, local, depth = o.cursor, o.local, cursor.depth

        def run(th: HostThread) -> None:
            self.cursors[id_] = at = (self.cursors[id_] + 1) % depth
            self.bind(th, local, at)

        return run, None

    # ------------------------------------------------------------ events and streams

    def _new_event(self, t: p.Thread, o: p.NewEvent) -> tuple[Run, Ready | None]:
        local = o.local
        return lambda th: self.bind(th, local, EventState()), None

    def _record(self, t: p.Thread, o: p.Record) -> tuple[Run, Ready | None]:
        event, stream = self.event(t, o.event), self.stream(t, o.stream)

        def run(th: HostThread) -> None:
            event(th).mark = self.mark(stream(th))  # S19: the earlier capture is forgotten

        return run, None

    def _event_sync(self, t: p.Thread, o: p.EventSync) -> tuple[Run, Ready | None]:
        event = self.event(t, o.event)

        def run(th: HostThread) -> None:
            th.waits = event(th).mark  # S23; never recorded: returns at once (S18)

        return run, None

    def _stream_wait_event(self, t: p.Thread, o: p.StreamWaitEvent) -> tuple[Run, Ready | None]:
        event, stream = self.event(t, o.event), self.stream(t, o.stream)

        def run(th: HostThread) -> None:
            mark = event(th).mark
            if mark is not None:  # S18
                self.wait(stream(th), mark)

        return run, None

    def _wait_stream(self, t: p.Thread, o: p.WaitStream) -> tuple[Run, Ready | None]:
        stream, other = self.stream(t, o.stream), self.stream(t, o.other)
        return lambda th: self.wait(stream(th), self.mark(other(th))), None  # S22

    def _stream_sync(self, t: p.Thread, o: p.StreamSync) -> tuple[Run, Ready | None]:
        stream = self.stream(t, o.stream)

        def run(th: HostThread) -> None:
            th.waits = self.mark(stream(th))  # S32

        return run, None

    def _device_sync(self, t: p.Thread, o: p.DeviceSync) -> tuple[Run, Ready | None]:
        streams = [s for s in self.streams.values() if s.gpu == o.gpu and s.process == o.process]

        def run(th: HostThread) -> None:
            th.waits = Marks([self.mark(s) for s in streams])  # S32

        return run, None

    # ------------------------------------------------------------ hand-over

    def _put(self, t: p.Thread, o: p.Put) -> tuple[Run, Ready | None]:
        queue, tag = o.queue, o.tag
        values = [self.value(t, v) for v in o.values]
        found = self.program.objects[queue]
        assert isinstance(found, p.Queue)
        capacity = found.capacity

        def run(th: HostThread) -> None:
            item = tuple(get(th) for get in values)
            for value in item:
                self.hold(value)
            self.queues[queue].append((tag, item))

        return run, lambda th: len(self.queues[queue]) < capacity

    def _get(self, t: p.Thread, o: p.Get) -> tuple[Run, Ready | None]:
        queue, tag, locals_ = o.queue, o.tag, o.locals

        def run(th: HostThread) -> None:
            self.receive(th, locals_, self.queues[queue].popleft()[1])

        def ready(th: HostThread) -> bool:
            items = self.queues[queue]
            return bool(items) and items[0][0] == tag

        return run, ready

    def receive(self, th: HostThread, locals_: tuple[int, ...], values: tuple[Value, ...]) -> None:
        """References move into locals; those that no local names end."""
        for local, value in zip(locals_, values):  # noqa: B905
            self.bind(th, local, value)
        for value in values[len(locals_) :]:
            self.let_die(value)

    def _cell(self, t: p.Thread, operand: p.Operand) -> Get:
        table = {
            (i, slot): (i, slot)
            for i, o in enumerate(self.program.objects)
            if isinstance(o, p.Cell)
            for slot in range(o.depth or 1)
        }
        return self._slots(t, operand, table)

    def _cell_set(self, t: p.Thread, o: p.CellSet) -> tuple[Run, Ready | None]:
        cell, values = self._cell(t, o.cell), [self.value(t, v) for v in o.values]

        def run(th: HostThread) -> None:
            key = cell(th)
            item = tuple(get(th) for get in values)
            for value in item:
                self.hold(value)
            old = self.cells.get(key, ())
            self.cells[key] = item
            for value in old:
                self.let_die(value)

        return run, None

    def _cell_get(self, t: p.Thread, o: p.CellGet) -> tuple[Run, Ready | None]:
        cell, locals_, take = self._cell(t, o.cell), o.locals, o.take

        def run(th: HostThread) -> None:
            key = cell(th)
            item = self.cells.get(key)
            if item is None:
                raise DesignFault(f"get on the empty cell {self.program.objects[key[0]].name!r}; ask empty() first")
            if take:
                del self.cells[key]
            else:
                for value in item:
                    self.hold(value)
            self.receive(th, locals_, item)

        return run, None

    def _cell_clear(self, t: p.Thread, o: p.CellClear) -> tuple[Run, Ready | None]:
        cell = self._cell(t, o.cell)

        def run(th: HostThread) -> None:
            for value in self.cells.pop(cell(th), ()):
                self.let_die(value)

        return run, None

    # ------------------------------------------------------------ pools, locks, flags, counters

    def _take(self, t: p.Thread, o: p.Take) -> tuple[Run, Ready | None]:
        pool, local = o.pool, o.local
        tokens = self.tokens[pool]

        def run(th: HostThread) -> None:
            free = self.free_tokens[pool]
            which = 0
            if len(free) > 1:
                which = self.chooser.token(th, th.node.index, free)
                self.recorder.blocks.append(which)
            token = free.pop(which)
            self.block = token
            self.bind(th, local, tokens[token])

        def ready(th: HostThread) -> bool:
            later = self.later_tokens[pool]
            if later:
                self.free_tokens[pool] += [token for token, mark in later if mark.done]
                self.later_tokens[pool] = [(token, mark) for token, mark in later if not mark.done]
            return bool(self.free_tokens[pool])

        return run, ready

    def _give(self, t: p.Thread, o: p.Give) -> tuple[Run, Ready | None]:
        pool, token = o.pool, self.value(t, o.token)
        after = self.event(t, o.after) if o.after is not None else None
        found = self.program.objects[pool]
        assert isinstance(found, p.Pool)
        tokens, name = self.tokens[pool], found.name

        def run(th: HostThread) -> None:
            value = token(th)
            number = value if isinstance(value, int) else next(
                (k for k, ref in enumerate(tokens) if ref.buffer is getattr(value, "buffer", None)), -1
            )  # fmt: skip
            out = number in self.free_tokens[pool] or any(number == k for k, _ in self.later_tokens[pool])
            if out or not 0 <= number < len(tokens):
                raise DesignFault(f"the token given back is not a taken token of the pool {name!r}")
            mark = after(th).mark if after is not None else None
            if mark is None or mark.done:
                self.free_tokens[pool].append(number)
            else:
                self.later_tokens[pool].append((number, mark))

        return run, None

    def _acquire(self, t: p.Thread, o: p.Acquire) -> tuple[Run, Ready | None]:
        lock = o.lock
        return lambda th: self._locked(lock, th), lambda th: self.locks[lock] > 0

    def _locked(self, lock: int, th: HostThread) -> None:
        self.locks[lock] -= 1
        self.holders[lock] = th

    def _unlock(self, t: p.Thread, o: p.Unlock) -> tuple[Run, Ready | None]:
        lock = o.lock
        found = self.program.objects[lock]
        assert isinstance(found, p.Lock)
        mutex, name = found.count == 1 and not found.semaphore, found.name

        def run(th: HostThread) -> None:
            if mutex and (self.locks[lock] or self.holders.get(lock) is not th):
                raise DesignFault(f"unlock of {name!r}, which the thread does not hold")
            self.locks[lock] += 1

        return run, None

    def _flag_set(self, t: p.Thread, o: p.FlagSet) -> tuple[Run, Ready | None]:
        flag = o.flag
        return lambda th: self.flags.__setitem__(flag, True), None

    def _flag_clear(self, t: p.Thread, o: p.FlagClear) -> tuple[Run, Ready | None]:
        flag = o.flag
        return lambda th: self.flags.__setitem__(flag, False), None

    def _flag_wait(self, t: p.Thread, o: p.FlagWait) -> tuple[Run, Ready | None]:
        flag = o.flag
        return lambda th: None, lambda th: self.flags[flag]

    def _counter_add(self, t: p.Thread, o: p.CounterAdd) -> tuple[Run, Ready | None]:
        counter, amount = o.counter, o.amount

        def run(th: HostThread) -> None:
            self.counters[counter] += amount

        return run, None

    def _counter_wait(self, t: p.Thread, o: p.CounterWait) -> tuple[Run, Ready | None]:
        counter, value, per_turn = o.counter, o.value, o.per_turn
        return lambda th: None, lambda th: self.counters[counter] >= value + (th.turn if per_turn else 0)

    # ------------------------------------------------------------ questions

    def _choose(self, t: p.Thread, q: p.Choose) -> Any:
        def ask(th: HostThread, options: tuple[str, ...]) -> str:
            key = (q.name, th.turn) if q.agreed else (q.name, th.index, th.turn)
            answer = self.chosen.get(key)
            if answer is None:
                self.chosen[key] = answer = self.open(th, options)
            return answer

        return ask, None

    def open(self, th: HostThread, options: tuple[str, ...]) -> str:
        """An open choice."""
        if len(options) == 1:
            return options[0]
        which: int = self.chooser.answer(th, th.node.index, options)
        self.recorder.answers.append(which)
        return options[which]

    def _maybe(self, t: p.Thread, q: p.Maybe) -> Any:
        return self.open, None

    def _test(self, holds: Callable[[HostThread], bool]) -> Any:
        return (lambda th, options: "yes" if holds(th) else "no"), None

    def _queue_full(self, t: p.Thread, q: p.QueueFull) -> Any:
        found = self.program.objects[q.queue]
        assert isinstance(found, p.Queue)
        queue, capacity = q.queue, found.capacity
        return self._test(lambda th: len(self.queues[queue]) >= capacity)

    def _queue_holds(self, t: p.Thread, q: p.QueueHolds) -> Any:
        queue, count = q.queue, q.count
        return self._test(lambda th: len(self.queues[queue]) >= count)

    def _queue_tag(self, t: p.Thread, q: p.QueueTag) -> Any:
        queue = q.queue
        return (lambda th, options: self.queues[queue][0][0]), (lambda th: bool(self.queues[queue]))

    def _cell_empty(self, t: p.Thread, q: p.CellEmpty) -> Any:
        cell = self._cell(t, q.cell)
        return self._test(lambda th: cell(th) not in self.cells)

    def _event_query(self, t: p.Thread, q: p.EventQuery) -> Any:
        event = self.event(t, q.event)

        def done(th: HostThread) -> bool:
            mark = event(th).mark
            return mark is None or mark.done  # S18, S24

        return self._test(done)

    def _stream_query(self, t: p.Thread, q: p.StreamQuery) -> Any:
        stream = self.stream(t, q.stream)
        return self._test(lambda th: stream(th).pending == 0)  # S34

    def _event_tail(self, t: p.Thread, q: p.EventQuery) -> Callable[[HostThread], tuple[Work, ...]]:
        event = self.event(t, q.event)

        def tail(th: HostThread) -> tuple[Work, ...]:
            mark = event(th).mark
            return () if mark is None else mark.after

        return tail

    def _stream_tail(self, t: p.Thread, q: p.StreamQuery) -> Callable[[HostThread], tuple[Work, ...]]:
        stream = self.stream(t, q.stream)
        return lambda th: stream(th).tail

    def _flag_is_set(self, t: p.Thread, q: p.FlagIsSet) -> Any:
        flag = q.flag
        return self._test(lambda th: self.flags[flag])

    def _counter_at_least(self, t: p.Thread, q: p.CounterAtLeast) -> Any:
        counter, value = q.counter, q.value
        return self._test(lambda th: self.counters[counter] >= value)

    def _try_lock(self, t: p.Thread, q: p.TryLock) -> Any:
        lock = q.lock

        def ask(th: HostThread, options: tuple[str, ...]) -> str:
            if self.locks[lock] <= 0:
                return "no"
            self._locked(lock, th)
            return "yes"

        return ask, None

    def _turn_below(self, t: p.Thread, q: p.TurnBelow) -> Any:
        value = q.value
        return self._test(lambda th: th.turn < value)


OPERATIONS: dict[type, Callable[[Any, p.Thread, Any], tuple[Run, Ready | None]]] = {
    p.Host: Host._host, p.Launch: Host._launch, p.Copy: Host._copy, p.Memset: Host._memset, p.Item: Host._to_host,
    p.Alloc: Host._alloc, p.View: Host._view, p.Drop: Host._drop, p.RecordStream: Host._record_stream,
    p.NewEvent: Host._new_event, p.Record: Host._record, p.EventSync: Host._event_sync,
    p.StreamWaitEvent: Host._stream_wait_event, p.WaitStream: Host._wait_stream, p.StreamSync: Host._stream_sync,
    p.DeviceSync: Host._device_sync, p.Advance: Host._advance, p.Put: Host._put, p.Get: Host._get,
    p.CellSet: Host._cell_set, p.CellGet: Host._cell_get, p.CellClear: Host._cell_clear, p.Take: Host._take,
    p.Give: Host._give, p.Acquire: Host._acquire, p.Unlock: Host._unlock, p.FlagSet: Host._flag_set,
    p.FlagClear: Host._flag_clear, p.FlagWait: Host._flag_wait, p.CounterAdd: Host._counter_add,
    p.CounterWait: Host._counter_wait,
}  # fmt: skip
"""What the machine knows, compared with `Program`'s operations in a test."""

QUESTIONS: dict[type, Callable[[Any, p.Thread, Any], Any]] = {
    p.Choose: Host._choose, p.Maybe: Host._maybe, p.QueueFull: Host._queue_full, p.QueueHolds: Host._queue_holds,
    p.QueueTag: Host._queue_tag, p.CellEmpty: Host._cell_empty, p.EventQuery: Host._event_query,
    p.StreamQuery: Host._stream_query, p.FlagIsSet: Host._flag_is_set, p.CounterAtLeast: Host._counter_at_least,
    p.TryLock: Host._try_lock, p.TurnBelow: Host._turn_below,
}  # fmt: skip
