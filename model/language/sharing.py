"""What threads and processes share beside streams: conditions, collectors of garbage, memory sent to other processes.

Like all composites these are written down as the operations that they are made of, so that every engine knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fencepost.model import program as p
from fencepost.model.idle import WAITING, WOKEN
from fencepost.model.language.errors import Fixed, fail
from fencepost.model.language.index import Key
from fencepost.model.language.objects import Event, Stream, Tensor, _memory
from fencepost.model.language.ordered import Ordered, malloc_async
from fencepost.model.language.tracer import Frame, Life

if TYPE_CHECKING:
    from fencepost.model.language.blocks import Process
    from fencepost.model.language.design import Design
    from fencepost.model.language.hosts import Lock, Queue


class Condition(Fixed):
    """A condition variable on a lock that the caller holds (threading.Condition).

    `wait` lets go of the lock, waits for a `notify` that comes later, and takes the lock again. A `notify` with nobody waiting is
    lost. Which of several waiting threads goes on is open, but with `fifo=True` it is the one that waits longest (as in CPython,
    which does not promise it). Nobody wakes up unless notified: bugs of a body that relies on that are missed on platforms with
    spurious wake-ups. But another thread may take, before the woken one has the lock again, what it was woken for. So
    it tests again: `while c.empty(): cv.wait()` is written `if c.empty(): cv.wait(); return`, and the next turn tests.
    """

    def __init__(self, design: Design, name: str, lock: Lock, places: tuple[tuple[Queue, Queue], ...], fifo: bool = False) -> None:
        self._design, self._name, self._lock, self._fifo = design, name, lock, fifo
        self._places = places
        """For each thread that waits: who waits there, and who was woken. Nobody that comes later can take what woke another.
        With `fifo` all say in one queue that they wait."""
        self._threads: list[str] = []

    def __repr__(self) -> str:
        return f"<condition {self._name!r}>"

    def _locked(self, call: str) -> None:
        """Raise `DesignError` where the turn does not hold the lock: threading's raises RuntimeError."""
        if self._design._running().held.get(self._lock._id, 0) < 1:
            fail(f"{self._name!r}.{call}() where this turn does not hold lock {self._lock._name!r}; write it inside `with {self._lock._name}:`")

    def wait(self) -> None:
        """Let go of the lock, wait until notified, take the lock."""
        self._locked("wait")
        thread = self._design._running().tracer.name
        if thread not in self._threads:
            self._threads.append(thread)
        if len(self._threads) > len(self._places):
            fail(
                f"condition {self._name!r}: {len(self._threads)} threads wait on it; write "
                f"d.condition({self._name!r}, lock, waiters={len(self._threads)})"
            )
        place = self._threads.index(thread)
        waiting, woken = self._places[place]
        waiting.put(tag=str(place) if self._fifo else "")
        self._lock.release()
        woken.get()
        self._lock.acquire()

    def notify(self) -> None:
        """Wake one waiting thread; lost when there is none."""
        self._locked("notify")
        if self._fifo:
            self._wake_oldest()
            return
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

    def _wake_oldest(self) -> bool:
        """Wake who waits longest; False when nobody does."""
        recording, waiting = self._design._running(), self._places[0][0]
        if not recording.yes(p.QueueHolds(waiting._id, 1)):
            return False
        waiting._getter = recording.tracer.name  # the condition's lock is held, so none comes between the look and the get
        place = int(waiting.get().tag)
        recording.do(p.Put(self._places[place][1]._id, "", (), False))
        return True

    def notify_all(self) -> None:
        """Wake all waiting threads."""
        self._locked("notify_all")
        if self._fifo:
            for _ in self._places:
                if not self._wake_oldest():
                    return
            return
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


class Collector(Fixed):
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
            x._life.others += ((f"collector {self._name!r}", None),)
        if x._life is not None:
            recording.release(x._life)


class Imported(Tensor):
    """Memory of another process, opened here. The end of its last reference in a turn waits for the thread's current stream (S138).

    Its views are references to it too. One that was handed over may be the last, and then nothing waits here.
    """

    _opened: _Opened

    def __getitem__(self, key: Key) -> Imported:
        return self._opened.tensor(super().__getitem__(key))

    def view(self, name: str | None = None, *, attributed: bool = True, held: bool = True) -> Tensor:
        """Another reference; the storage stays open as long as it lives."""
        made = super().view(name, attributed=attributed, held=held)
        return self._opened.reference(made) if held else self._opened.tensor(made)

    def release(self) -> None:
        """Wait for the current stream alone, and let the exporter have its block, when it was the last reference."""
        if self._life is not None and self._life.dead is None and self._opened.ends_with([self._life]):
            with self._design._running().implied():
                self._design.current_stream(self._opened._gpu).synchronize()
        super().release()


class _Opened:
    """A storage that a `get` opened: the references to it in this turn."""

    def __init__(self, design: Design, gpu: int | None) -> None:
        self._design, self._gpu = design, gpu
        self._lives: list[Life] = []
        self.shared = False
        """Whether others may have the same storage open."""
        design._running().kept.append(("imported memory", lambda: self.handed_over))

    def tensor(self, x: Tensor) -> Imported:
        """The same tensor, as one of this storage."""
        made = Imported(self._design, x.name, "device", life=x._life, part=x._part)
        made._opened = self
        return made

    def reference(self, x: Tensor) -> Imported:
        """A reference that keeps the storage open until it ends."""
        life = x._life
        assert life is not None
        self._lives.append(life)
        frame = next(f for f in reversed(self._design._running().frames) if life in f.held)
        frame.endings.append(lambda site: self._scope_ends(frame, life, site))
        return self.tensor(x)

    @property
    def handed_over(self) -> bool:
        """Whether a reference to it may live on elsewhere."""
        return self.shared or any(other is None for life in self._lives for _, other in life.others)

    def ends_with(self, ending: list[Life]) -> bool:
        """Whether these refer to the storage, and nothing does any more when they have ended."""
        if not set(ending) & set(self._lives):
            return False  # raw pointers
        return not self.handed_over and all(life.dead is not None or life in ending for life in self._lives)

    def _scope_ends(self, frame: Frame, life: Life, site: int | None) -> None:
        left = [one for one in self._lives if one.dead is None and one in frame.held]
        if left and left[-1] is life and self.ends_with(left):
            recording = self._design._running()
            with recording.implied():
                recording.at(p.StreamSync(self._design.current_stream(self._gpu)._operand(recording)), site)


class IpcQueue(Fixed):
    """CUDA tensors between processes (torch.multiprocessing, S135-S139).

    `put` records an event on the sending thread's current stream; with `feeder=True` pickling happens in a feeder thread, whose
    current stream is the default one (S136). `get` lets the current stream wait for that event, unless the storage is open
    already (`opened=True`, S137). Nothing orders later writes with the reader (S139). The block goes back to the exporter's
    allocator when both have let go; an imported tensor that is not released is so at the end of its scope, behind a
    wait for the thread's current stream (S138). The fall-back to a stream synchronisation is not modelled (errs on false alarms).
    """

    def __init__(self, design: Design, name: str, queue: Queue, gpu: int | None) -> None:
        self._design, self._name, self._queue, self._gpu = design, name, queue, gpu
        self._open: tuple[Any, list[_Opened]] = (None, [])
        """The storages that the turn that is traced has received."""

    def __repr__(self) -> str:
        return f"<IPC queue {self._name!r}>"

    def _of(self, gpu: int) -> None:
        """The GPU of what it carries: said, or that of the first tensor or process that uses it."""
        if self._gpu is None:
            self._gpu = gpu
        if self._gpu != gpu:
            fail(f"{self._name!r} carries memory of GPU {self._gpu}, and here it is GPU {gpu}; make it d.ipc_queue({self._name!r}, gpu=...)")

    def put(self, x: Tensor, *, feeder: bool = False) -> None:
        """Send a tensor; the sender keeps its own reference."""
        _memory(x, f"{self._name}.put")
        if isinstance(x, Ordered):
            fail(f"{x.name!r} is from d.malloc_async, whose memory has no handle that another process can open; use d.empty")
        home = self._design._home(x)
        self._of(self._design._gpu(None) if home is None else home)
        stream = self._design.default_stream(self._gpu) if feeder else self._design.current_stream(self._gpu)
        self._queue.put(stream.record_event(self._design.event(f"{x.name} sent", interprocess=True)), x)

    def get(self, *, opened: bool = False) -> Imported:
        """Receive a tensor and let the current stream wait for what the sender's event covers."""
        recording = self._design._running()
        sent, tensor = self._queue.get()
        assert isinstance(sent, Event) and isinstance(tensor, Tensor)
        if self._gpu is None:
            self._of(self._design._gpu(None))
        if not opened:
            with recording.implied():
                sent.wait(self._design.current_stream(self._gpu))
        storage = _Opened(self._design, self._gpu)
        if self._open[0] is not recording:
            self._open = (recording, [])
        if opened:
            # It may be any that is open, so none of these references is known to be its last.
            for one in (*self._open[1], storage):
                one.shared = True
        self._open[1].append(storage)
        return storage.reference(tensor)


class Sharing:
    """The methods of `Design` that this file stands for."""

    def condition(self: Any, name: str, lock: Lock, waiters: int = 1, fifo: bool = False) -> Condition:
        """A condition variable on `lock`; `waiters` is how many threads may wait on it, `fifo` that the first to wait is the first woken."""
        from fencepost.model.language.hosts import Lock

        if not isinstance(name, str) or not name:
            fail(f"a condition is called {name!r}; give it a name")
        if not isinstance(lock, Lock):
            fail(f"condition {name!r}: {lock!r} is no lock; make one with d.lock(name)")
        self._own(lock)
        many = self._positive(name, "waiters", waiters) or 1
        if not isinstance(fifo, bool):
            fail(f"condition {name!r}: fifo={fifo!r}; it is True or False")
        if fifo and many > 1:
            queue = self.queue(name + WAITING, capacity=many, item={str(k): () for k in range(many)})
            return Condition(
                self, name, lock, tuple((queue, self.queue(f"{name}{WOKEN} {k}", capacity=1, item=())) for k in range(many)), True
            )
        places = tuple(
            tuple(self.queue(f"{name}{what}{'' if many == 1 else f' {k}'}", capacity=1, item=()) for what in (WAITING, WOKEN))
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

    def ipc_queue(self: Any, name: str, capacity: int = 1, gpu: int | None = None) -> IpcQueue:
        """A queue that carries CUDA tensors of one GPU from one process to another; by default the GPU that both processes are on."""
        return IpcQueue(self, name, self.queue(name, capacity=capacity, item=(p.EVENT, p.MEMORY)), None if gpu is None else self._gpu(gpu))

    def malloc_async(self: Any, name: str, *, bytes: int = 4096, stream: Stream | None = None) -> Tensor:
        """cudaMallocAsync: memory in the order of a stream (S76), to be freed with `x.free_async(stream)`."""
        return malloc_async(self, name, bytes, stream)
