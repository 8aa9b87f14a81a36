"""What threads and processes share beside streams: conditions, collectors of garbage, memory sent to other processes.

Like all composites these are written down as the operations that they are made of, so that every engine knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fencepost.model import program as p
from fencepost.model.language.errors import fail, here
from fencepost.model.language.objects import Event, Stream, Tensor, _memory
from fencepost.model.language.tracer import Life

if TYPE_CHECKING:
    from fencepost.model.language.blocks import Process
    from fencepost.model.language.design import Design
    from fencepost.model.language.hosts import Lock, Queue


class Condition:
    """A condition variable on a lock that the caller holds (threading.Condition).

    `wait` lets go of the lock, waits for a `notify` that comes later, and takes the lock again. A `notify` with nobody waiting is
    lost. Which of several waiting threads goes on is open. Nobody wakes up unless notified, so a body that tests before it
    waits (`if`) and one that tests again (`while`) are the same here: missed are the bugs of the first on platforms
    with spurious wake-ups.
    """

    def __init__(self, design: Design, name: str, lock: Lock, places: tuple[tuple[Queue, Queue], ...]) -> None:
        self._design, self._name, self._lock = design, name, lock
        self._places = places
        """For each thread that waits: who waits there, and who was woken. Nobody that comes later can take what woke another."""
        self._threads: list[str] = []

    def __repr__(self) -> str:
        return f"<condition {self._name!r}>"

    def wait(self) -> None:
        """Let go of the lock, wait until notified, take the lock."""
        thread = self._design._running().tracer.name
        if thread not in self._threads:
            self._threads.append(thread)
        if len(self._threads) > len(self._places):
            fail(
                f"condition {self._name!r}: {len(self._threads)} threads wait on it; write "
                f"d.condition({self._name!r}, lock, waiters={len(self._threads)})"
            )
        waiting, woken = self._places[self._threads.index(thread)]
        waiting.put()
        self._lock.release()
        woken.get()
        self._lock.acquire()

    def notify(self) -> None:
        """Wake one waiting thread; lost when there is none."""
        order = range(len(self._places))
        if len(order) > 1:
            # The first of a ring of places, begun anywhere, at which somebody waits: with two it may be either, as with more it
            # may be any of those that wait.
            recording = self._design._running()
            key = (f"{self._name} wakes", "notify")
            times = recording.counts[key] = recording.counts.get(key, 0) + 1
            names = tuple(str(k) for k in order)
            first = int(recording.ask(p.Choose(key[0] if times == 1 else f"{key[0]} ({times})", names), names))
            order = range(first, first + len(order))
        self._wake([k % len(self._places) for k in order])

    def _wake(self, places: list[int]) -> None:
        """Wake who waits at the first place at which somebody does."""
        recording = self._design._running()
        (waiting, woken), others = self._places[places[0]], places[1:]
        if not others:
            recording.begin_maybe(p.QueueHolds(waiting._id, 1))
        elif not recording.yes(p.QueueHolds(waiting._id, 1)):
            self._wake(others)
            return
        waiting.get()
        recording.do(p.Put(woken._id, "", (), False))  # never full: only who waits is woken
        if not others:
            recording.end_maybe()

    def notify_all(self) -> None:
        """Wake all waiting threads."""
        for place in range(len(self._places)):
            self._wake([place])


class Released:
    """`with lock.released():` gives the lock back for the block, as a call does that releases the interpreter lock (S106)."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.release()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._lock._design._recording is not None and error is None:
            self._lock.acquire()


class Collector:
    """A garbage collector: a thread that lets go of what is unreachable, at any time and in any order with the others.

    `unreachable(x)` hands it a reference. Its thread takes one and runs the finaliser, by default nothing but the end of the
    reference. That it comes to a reference late holds nobody up, unless `capacity` references wait.
    """

    def __init__(self, design: Design, name: str, garbage: Queue) -> None:
        self._design, self._name, self._garbage = design, name, garbage

    def __repr__(self) -> str:
        return f"<collector {self._name!r}>"

    def unreachable(self, x: Tensor) -> None:
        """The caller's reference becomes garbage."""
        recording = self._design._running()
        _memory(x, "unreachable")
        recording.do(p.Put(self._garbage._id, "", (x._operand(recording),), False))
        if x._life is not None:
            x._life.others.append((f"collector {self._name!r}", None))
        if x._life is not None:
            recording.release(x._life)


class Imported(Tensor):
    """Memory of another process, opened here: `release` waits for the thread's current stream, then gives the reference back (S138)."""

    def release(self) -> None:
        """Wait for the current stream alone, and let the exporter have its block when it was the last."""
        if self._life is not None and self._life.dead is None:
            self._design.current_stream().synchronize()
        super().release()

    def record_stream(self, stream: Stream) -> None:
        """Ignored: the memory is not of this process's allocator (S72)."""
        self._design._stream(stream, self._design._running())


class IpcQueue:
    """CUDA tensors between processes (torch.multiprocessing, S135-S139).

    `put` records an event on the sending thread's current stream; with `feeder=True` pickling happens in a feeder thread, whose
    current stream is the default one (S136). `get` lets the current stream wait for that event, unless the storage is open
    already (`opened=True`, S137). Nothing orders later writes with the reader (S139). The block goes back to the exporter's
    allocator when both have let go; an imported tensor that is not released is so at the end of its scope, behind a
    wait for the thread's current stream (S138). The fall-back to a stream synchronisation is not modelled (errs on false alarms).
    """

    def __init__(self, design: Design, name: str, queue: Queue) -> None:
        self._design, self._name, self._queue = design, name, queue

    def __repr__(self) -> str:
        return f"<IPC queue {self._name!r}>"

    def put(self, x: Tensor, *, feeder: bool = False) -> None:
        """Send a tensor; the sender keeps its own reference."""
        _memory(x, f"{self._name}.put")
        stream = self._design.default_stream() if feeder else self._design.current_stream()
        self._queue.put(stream.record_event(self._design.event(f"{x.name} sent")), x)

    def get(self, *, opened: bool = False) -> Imported:
        """Receive a tensor and let the current stream wait for what the sender's event covers."""
        sent, tensor = self._queue.get()
        assert isinstance(sent, Event) and isinstance(tensor, Tensor)
        if not opened:
            sent.wait()
        life = tensor._life
        assert life is not None
        recording = self._design._running()
        frame = next(f for f in reversed(recording.frames) if life in f.held)
        frame.endings.append(lambda site: self._end(life, life in frame.held, site))
        return Imported(self._design, tensor.name, "device", life=life)

    def _end(self, life: Life, held: bool, site: int | None) -> None:
        if held and life.dead is None:
            recording = self._design._running()
            recording.at(p.StreamSync(self._design.current_stream()._operand(recording)), site)


class Ordered(Tensor):
    """Memory that is allocated and freed in the order of streams: its free is a call, whoever still refers to it."""

    def release(self) -> None:
        """Only for the reference that is left when another was handed over."""
        if self._life is not None and self._life.dead is None and not _handed_over(self._life):
            fail(f"{self._name!r} is from d.malloc_async; end it with {self._name}.free_async(stream), or hand it over first")
        super().release()


def _handed_over(life: Life) -> bool:
    return any(other is None for _, other in life.others)


def _must_end(life: Life, place: str) -> Callable[[int | None], None]:
    """At the end of its scope: the memory was freed, or handed to somebody who frees it. A leak is none that others may get."""

    def ending(site: int | None) -> None:
        held = any(life is one for frame in life.recording.frames for one in frame.held)  # the call may have kept it
        if life.dead is None and not held and not _handed_over(life):
            fail(f"{life.name!r} is neither freed nor handed over when its turn or scope ends; call free_async(stream)", place)

    return ending


def free_async(tensor: Tensor, stream: Stream | None) -> None:
    """cudaFreeAsync: the block may have another owner from this point of the stream on (S38, S76).

    Allocation and free are items of their streams that access the bytes. So whoever uses them in front of the one or behind the
    other, or unordered with either, is in conflict, whether or not the block is handed out again; another stream's
    allocation gets it behind the free. The content counts as defined from the allocation on (errs on missed bugs: reads
    of what nobody has written). It ends the bytes for all, so it is refused while a view or a queue still refers to them; raw
    pointers (`view(held=False)`) may be left over, and their use is a hazard. What is neither freed nor handed over is refused.
    """
    design = tensor._design
    recording = design._running()
    if tensor._life is None:
        fail(f"{tensor.name!r} lives for ever; free_async ends what d.malloc_async made")
    if tensor._pool is not None:
        fail(f"{tensor.name!r} is a token of a pool; give it back with pool.give(..., after=event)")
    if tensor._part is not None:
        fail(f"a part of {tensor.name!r} cannot be freed; free the whole")
    if tensor._space and not isinstance(tensor, Ordered):
        fail(f"{tensor.name!r} is not from d.malloc_async; let go of it with release()")
    for what, other in tensor._life.others:
        if tensor._life.dead is None and (other is None or other.dead is None):
            fail(
                f"{tensor.name!r} is freed while {what} refers to it, and its bytes end for all; "
                + ("make views of it with held=False" if other is not None else "free it where it is received, or taken out for good")
            )
    where = design._stream(stream, recording)
    operand = tensor._operand(recording)
    recording.do(p.Launch(f"free {tensor.name}", where, (p.Access(operand, "r"), p.Access(operand, "w"))))
    recording.do(p.RecordStream(operand, where))
    recording.release(tensor._life)


class Sharing:
    """The methods of `Design` that this file stands for."""

    def condition(self: Any, name: str, lock: Lock, waiters: int = 1) -> Condition:
        """A condition variable on `lock`; `waiters` is how many threads may wait on it."""
        from fencepost.model.language.hosts import Lock

        if not isinstance(name, str) or not name:
            fail(f"a condition is called {name!r}; give it a name")
        if not isinstance(lock, Lock):
            fail(f"condition {name!r}: {lock!r} is no lock; make one with d.lock(name)")
        self._own(lock)
        many = self._positive(name, "waiters", waiters) or 1
        places = tuple(
            tuple(self.queue(f"{name} {what}{'' if many == 1 else f' {k}'}", capacity=1, item=()) for what in ("waiting", "woken"))
            for k in range(many)
        )
        return Condition(self, name, lock, places)

    def collector(
        self: Any, name: str, *, capacity: int = 1, stream: Stream | None = None, process: Process | str | None = None,
        finaliser: Callable[[Tensor], None] | None = None,
    ) -> Collector:  # fmt: skip
        """A thread that lets go of garbage at any time; `stream` is current in it, `finaliser` gets each reference."""
        if finaliser is not None and not callable(finaliser):
            fail(f"collector {name!r}: finaliser={finaliser!r}; give a function of one tensor")
        garbage = self.queue(f"{name} garbage", capacity=capacity, item=(p.MEMORY,))

        def collect() -> None:
            tensor = garbage.get()
            if finaliser is not None:
                finaliser(tensor)

        self._thread(name, "loop", stream, process, idle=True)(collect)
        return Collector(self, name, garbage)

    def ipc_queue(self: Any, name: str, capacity: int = 1) -> IpcQueue:
        """A queue that carries CUDA tensors from one process to another."""
        return IpcQueue(self, name, self.queue(name, capacity=capacity, item=(p.EVENT, p.MEMORY)))

    def malloc_async(self: Any, name: str, *, bytes: int = 4096, stream: Stream | None = None) -> Tensor:
        """cudaMallocAsync: memory in the order of a stream (S76), to be freed with `x.free_async(stream)`."""
        tensor = self.empty(name, bytes=bytes, stream=stream)
        self.launch(f"malloc {name}", writes=[tensor], stream=stream)
        life = tensor._life
        frame = next(one for one in self._running().frames if life in one.held)
        frame.endings.append(_must_end(life, here()))
        return Ordered(self, name, "device", tensor._id, life=tensor._life)
