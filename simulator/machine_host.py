"""Host code of the machine: what each operation and question does when a host thread reaches it.

Written from semantics.md, not from model/operations: this is the second place where a rule of the platform is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.model import program as p
from fencepost.model.platform import Environment, Platform
from fencepost.simulator.machine_device import Device
from fencepost.simulator.machine_operands import Get
from fencepost.simulator.machine_shared import Ready, Run, Shared
from fencepost.simulator.machine_state import (
    FOREVER,
    MEETING,
    WORK,
    WRITES,
    DesignFault,
    Engine,
    EventState,
    HostThread,
    Marks,
    Node,
    Work,
)

HOST_SPACES = ("pinned", "pageable")


class Unsupported(Exception):
    """An operation or question that the machine does not know. The message names it."""


class Host(Device, Shared):
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

    # ------------------------------------------------------------ accesses

    def accesses(self, thread: p.Thread, accesses: Sequence[p.Access]) -> tuple[list[Get], list[tuple[Get, bool]]]:
        """Reads and writes (with same_bytes) of an operation."""
        reads = [self.reference(thread, a.target) for a in accesses if a.mode == "r"]
        writes = [(self.reference(thread, a.target), a.same_bytes) for a in accesses if a.mode == "w"]
        return reads, writes

    def issue(self, work: Work, th: HostThread, reads: list[Get], writes: list[tuple[Get, bool]]) -> None:
        """Resolve the accesses of an operation at its call, and make them in the reference execution.

        There every operation completes as soon as it can start, in memory that is fresh for each allocation (theory
        section 1): that is now, unless its stream waits there for others.
        """
        sources, targets = [get(th) for get in reads], [(get(th), same) for get, same in writes]
        work.accesses = sources, targets
        for ref in (*sources, *(ref for ref, _ in targets)):
            if not ref.counted and ref.tenant is not None and not ref.tenant.refs:
                work.freed = work.freed or ref
        if work.stream is None or not work.stream.fifo.later:
            self.make(work)
        else:
            work.stream.fifo.later.append((WORK, work))

    def make(self, work: Work) -> None:
        """Make the accesses in the reference. What is read there is what has to be read here."""
        assert work.accesses is not None
        (sources, targets), work.accesses = work.accesses, None
        for ref in sources:
            shadow = ref.shadow
            work.reads.append((ref, shadow.value if shadow.cells is None else shadow.read(ref.scope, ref.path)))
        number = (work.step + 1) << WRITES
        for ref, same in targets:
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
        if self.clockwork is not None and work.what != MEETING:
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
        home = self.program.objects[o.stream.id] if isinstance(o.stream, (p.Obj, p.Slot)) else None
        if not (isinstance(home, p.Stream) and home.is_agent):  # launch blocking does not reach a foreign agent
            reached = {"kernel": self.environment.blocking_kernels, "call": False}
            wait = wait or reached.get(what, self.environment.blocking_copies)

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
        return self._item(t, o, o.accesses, "kernel" if o.kernel else "call", False), None

    def _memset(self, t: p.Thread, o: p.Memset) -> tuple[Run, Ready | None]:
        return self._item(t, o, (p.Access(o.dst, "w"),), "memset", False), None  # S39

    def _to_host(self, t: p.Thread, o: p.Item) -> tuple[Run, Ready | None]:
        source = self.reference(t, o.src)
        access = (p.Access(o.src, "r"),)
        reads, writes = self.accesses(t, access)
        fetch = self._item(t, o, access, "d2h", True)  # S33

        def run(th: HostThread) -> None:
            if source(th).space not in HOST_SPACES:
                fetch(th)
                return
            work = Work("host", self.step, th, None, self.now, o)  # a load, and no call of CUDA
            self.issue(work, th, reads, writes)
            self.touch(th, work)

        return run, None

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
            wait = (sync and (from_host or to_host)) or blocking  # within the device the call returns (S49)
            if src.space == "pageable" and platform.pageable_h2d != "late":
                # S47: the bytes are staged before the call returns.
                staged = Work("staging", self.step, th, None, self.now, o)
                self.issue(staged, th, reads, [])
                self.issue(work, th, [], writes)
                self.begin(staged)
                staged.done = True
                work.wrong = staged.wrong
                wait = wait or platform.pageable_h2d == "blocking"  # S52
            else:
                self.issue(work, th, reads, writes)
                wait = wait or (dst.space == "pageable" and platform.pageable_d2h == "blocking")  # S48
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
            if ref.space == "device" and ref.attributed and ref.tenant is not None and ref.tenant.process == t.process:  # S72
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
            th.waits = self.last(stream(th))  # S32

        return run, None

    # ------------------------------------------------------------ where streams meet

    def _meeting(self, t: p.Thread, o: Any) -> tuple[Run, Ready | None]:
        """An item of a stream that may have to wait there for other streams or for the host."""
        stream = self.stream(t, o.stream)

        def run(th: HostThread) -> None:
            work = Work(MEETING, self.step, th, stream(th), self.now, o)
            self.schedule(work)
            work.length = 0
            self.await_in_reference(work)
            self.enqueue(work)

        return run, None

    def _store_flag(self, t: p.Thread, o: p.StoreFlag) -> tuple[Run, Ready | None]:
        """By the host: a store to mapped memory, which is there at once."""
        if o.stream is not None:
            return self._meeting(t, o)
        return lambda th: self.put_flag(o.flag, o.value), None

    def _wait_flag(self, t: p.Thread, o: p.WaitFlag) -> tuple[Run, Ready | None]:
        """By the host: it spins."""
        if o.stream is not None:
            return self._meeting(t, o)
        run = (lambda th: self.put_flag(o.flag, 0)) if o.reset else (lambda th: None)
        return run, lambda th: self.places[o.flag].value >= o.value

    def _device_sync(self, t: p.Thread, o: p.DeviceSync) -> tuple[Run, Ready | None]:
        streams = [s for s in self.streams.values() if s.gpu == o.gpu and s.process == o.process]
        may = o.implied and self.platform.free != "synchronises"  # S38, S40: it may wait, and need not

        def run(th: HostThread) -> None:
            marks = Marks([self.last(s) for s in streams])  # S32
            if not may or (not marks.done and self.open(th, ("goes on", "waits")) == "waits"):
                th.waits = marks

        return run, None


OPERATIONS: dict[type, Callable[[Any, p.Thread, Any], tuple[Run, Ready | None]]] = {
    p.Host: Host._host, p.Launch: Host._launch, p.Copy: Host._copy, p.Memset: Host._memset, p.Item: Host._to_host,
    p.Alloc: Host._alloc, p.View: Host._view, p.Drop: Host._drop, p.RecordStream: Host._record_stream,
    p.NewEvent: Host._new_event, p.Record: Host._record, p.EventSync: Host._event_sync,
    p.StreamWaitEvent: Host._stream_wait_event, p.WaitStream: Host._wait_stream, p.StreamSync: Host._stream_sync,
    p.DeviceSync: Host._device_sync, p.Advance: Host._advance, p.Put: Host._put, p.Get: Host._get,
    p.CellSet: Host._cell_set, p.CellGet: Host._cell_get, p.CellClear: Host._cell_clear, p.Take: Host._take,
    p.Give: Host._give, p.Acquire: Host._acquire, p.Unlock: Host._unlock, p.FlagSet: Host._flag_set,
    p.FlagClear: Host._flag_clear, p.FlagWait: Host._flag_wait, p.CounterAdd: Host._counter_add,
    p.CounterWait: Host._counter_wait, p.Signal: Host._meeting, p.Await: Host._meeting, p.StoreFlag: Host._store_flag,
    p.WaitFlag: Host._wait_flag,
}  # fmt: skip
"""What the machine knows, compared with `Program`'s operations in a test."""

QUESTIONS: dict[type, Callable[[Any, p.Thread, Any], Any]] = {
    p.Choose: Host._choose, p.Maybe: Host._maybe, p.QueueFull: Host._queue_full, p.QueueHolds: Host._queue_holds,
    p.QueueTag: Host._queue_tag, p.CellEmpty: Host._cell_empty, p.EventQuery: Host._event_query,
    p.StreamQuery: Host._stream_query, p.FlagIsSet: Host._flag_is_set, p.CounterAtLeast: Host._counter_at_least,
    p.TryLock: Host._try_lock, p.TurnBelow: Host._turn_below,
}  # fmt: skip
