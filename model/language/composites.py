"""Calls that are several operations at once: what the platform documents as a sequence is written down as that sequence.

Every engine learns them through the operations that they are made of. Each docstring says on which side a limitation errs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.model import program as p
from fencepost.model.language import objects
from fencepost.model.language.errors import Fixed, fail
from fencepost.model.language.graphs import Graph
from fencepost.model.language.managed import by_host
from fencepost.model.language.objects import Accesses, Event, Stream, Tensor

if TYPE_CHECKING:
    from fencepost.model.language.blocks import Process
    from fencepost.model.language.design import Design
    from fencepost.model.language.tracer import Recording

TORCH_STREAMS = 32
"""Streams that PyTorch makes for each device and priority; the 33rd request gets the first again (S8)."""


class StreamPool(Fixed):
    """`torch.cuda.Stream()` as PyTorch serves it: round robin over 32 streams made in advance (S8, S9)."""

    def __init__(self, design: Design, name: str, size: int, several_threads: bool = False) -> None:
        self._design, self._name, self._size, self._several_threads = design, name, size, several_threads
        self._made: list[Stream] = []
        self._next = 0

    def stream(self) -> Stream:
        """The next stream; after `size` requests the first one again, under its first name."""
        if self._design._recording is not None:
            fail(f"{self._name!r}: ask for streams outside of bodies; a body's request in every turn is a ring: d.stream(depth=)")
        if len(self._made) < self._size:
            self._made.append(self._design.stream(f"{self._name} {len(self._made)}", several_threads=self._several_threads))
        self._next += 1
        return self._made[(self._next - 1) % self._size]


class Agent(Fixed):
    """Somebody who moves memory outside of all streams: a NIC, a copy engine with completion handles.

    It serves its posts in the order in which they were posted, like one queue pair; with `queues` > 1 each post of a turn
    names its queue. Posts of one queue are ordered: hazards between two of them are not found where the hardware
    reorders them (errs on missed bugs there). No GPU knows of it: `d.synchronize()` does not wait for its posts.
    """

    def __init__(self, design: Design, name: str, queues: int) -> None:
        self._design, self._name = design, name
        self._queues = [design._outside(name if queues == 1 else f"{name} queue {k}") for k in range(queues)]

    def post(
        self, name: str, reads: Accesses = (), writes: Accesses = (), *, after: Stream | Event | None = None, queue: int = 0,
        time: float | None = None,
    ) -> Event:  # fmt: skip
        """Post a transfer and return its completion handle, an event: `h.synchronize()`, `h.query()`, `s.wait_event(h)`.

        `after`: a stream (all that is in it) or an event that the transfer waits for; None: it may start at once.
        """
        design = self._design
        if not 0 <= queue < len(self._queues):
            fail(f"{self._name!r} has {len(self._queues)} queues, and no queue {queue}")
        stream = self._queues[queue]
        if isinstance(after, Event):
            stream.wait_event(after)
        elif after is not None:
            stream.wait_stream(after)
        design.launch(name, reads, writes, stream=stream, time=time)
        handle = design.event(f"{name} of {self._name} done")
        return stream.record_event(handle)


def memcpy(design: Design, dst: Tensor, src: Tensor, time: float | None) -> None:
    """cudaMemcpy, which is not `copy_` (S50): on the legacy default stream.

    A pageable source is staged, in a block of the pinned allocator, before the call returns, while the transfer may still be
    pending (so its bytes may be another owner's, where the driver's never are: errs on false alarms); a copy to the host, and
    from pinned memory, returns when it is complete; one within the device does not hold the host.
    """
    graph = design._running().capturing
    if graph is not None:
        fail(f"graph {graph._name!r}: cudaMemcpy uses the legacy stream, which a capture forbids (S99); use d.memcpy_async")
    legacy = design.default_stream(design._gpu_of(design.current_stream()))
    _known("d.memcpy", "S50", dst, src)
    if src._space == "pageable" and dst._space in ("device", "managed"):
        staging = design.empty_pinned(f"driver staging of {src.name}")
        design.host("stage", reads=[src], writes=[staging])
        dst.copy_(staging, non_blocking=True, stream=legacy, time=time)
        staging.release()
    elif src._space in ("device", "managed") and dst._space in ("device", "managed"):
        dst.copy_(src, non_blocking=True, stream=legacy, time=time)
    else:
        dst.copy_(src, stream=legacy, time=time)


def _known(what: str, rule: str, *sides: Tensor) -> None:
    """Refuse memory that was received: whether it is the host's, which decides what happens, is not known while a body is traced."""
    unknown = next((side for side in sides if not side._space), None)
    if unknown is not None:
        fail(
            f"{what}: {unknown.name!r} was received, and what happens depends on where it lives ({rule}), which is not known here; "
            "use copy_ or d.memcpy_async, or memory that the design names"
        )


def strided_copy(dst: Tensor, src: Tensor, non_blocking: bool, stream: Stream | None, time: float | None) -> None:
    """`dst.copy_(src)` where the host side is not contiguous, so that a temporary stands between (S55, S56).

    The temporary is fresh pageable memory even if the tensor is pinned. From the host: what happens to the bytes is the
    pageable rule's business (S47). To the host: the call copies temporary to tensor at once, which is right only if a
    copy to pageable memory returns when it is done (S48).
    """
    design = dst._design
    _known("a strided copy", "S55", dst, src)
    on_host = [side for side in (dst, src) if side._space not in ("device", "managed")]
    if len(on_host) != 1:  # within the device a kernel does it, within the host the call itself
        dst.copy_(src, True, stream=stream, time=time)
        return
    host = on_host[0]
    temporary = design._temporary("contiguous copy")
    if host is src:
        design.host("make contiguous", reads=[src], writes=[temporary])
        dst.copy_(temporary, non_blocking, stream=stream, time=time)
    else:
        temporary.copy_(src, non_blocking, stream=stream, time=time)
        design.host("spread", reads=[temporary], writes=[dst])


def peer_copy(dst: Tensor, src: Tensor, source: Stream, target: Stream, time: float | None) -> None:
    """A copy between GPUs (S59): the source's stream waits for the target's, copies, and the target's waits for it."""
    recording = dst._design._running()
    with recording.implied():
        source.wait_stream(target)
    where = dst._design._stream(source, recording)
    copy = p.Copy(dst._operand(recording), src._operand(recording), where, True, time=objects._time(time))
    recording.do(copy, enqueues=objects._enqueues("peer_copy", recording, dst, src))
    with recording.implied():
        target.wait_stream(source)


class Composites:
    """The methods of `Design` that this file stands for."""

    def torch_streams(self: Any, name: str = "pool stream", size: int = TORCH_STREAMS, *, several_threads: bool = False) -> StreamPool:
        """PyTorch's pool of streams: `.stream()` is `torch.cuda.Stream()`; the 33rd aliases the first (S8). `several_threads`: as of
        `d.stream`, for all of them."""
        return StreamPool(self, name, size, several_threads)

    def agent(self: Any, name: str, queues: int = 1) -> Agent:
        """A foreign agent with `queues` queues that are served in order."""
        if queues < 1:
            fail(f"agent {name!r} has {queues} queues; it needs one at least")
        return Agent(self, name, queues)

    def graph(self: Any, name: str, *, pool: Graph | None = None, several_threads: bool = False) -> Graph:
        """A CUDA graph: captured once, replayed with the addresses that it was captured with (S91-S102).

        `pool`: another graph, whose private memory this one shares (torch.cuda.graph(pool=), S96). `several_threads`: more than one
        thread replays it. Each launch is then one step among theirs, written down with a lock that orders nothing.
        """
        if pool is not None:
            if not isinstance(pool, Graph):
                fail(f"graph {name!r}: pool={pool!r} is no graph; share that of another graph of the design")
            self._own(pool)
        graph = Graph(self, self._fresh(name), pool, several_threads)
        self._graphs.append(graph)
        return graph

    def host_function(
        self: Any, name: str, reads: Accesses = (), writes: Accesses = (), *, stream: Stream | None = None,
        time: float | None = None,
    ) -> None:  # fmt: skip
        """Host code in stream order (cudaLaunchHostFunc, S103): after earlier work, before later work of the stream.

        It runs on a driver thread, so nothing orders it with the caller but the stream. It may not call CUDA (S104). That
        the driver may run several one after the other is no edge.
        """
        recording = self._running()
        reads, writes = objects.listed(reads), objects.listed(writes)
        found = objects.accesses(reads, writes, recording)
        for tensor in objects.tensors(reads, writes):
            if tensor._space == "device":
                fail(f"host function {name!r} cannot access device memory {tensor.name!r}; copy it, or use d.managed")
        where = stream or self.current_stream()
        found += by_host(self, objects.tensors(reads, writes), f"host functions of {where.name}")
        recording.do(p.Launch(name, self._stream(stream, recording), found, objects._time(time), False))

    def memcpy(self: Any, dst: Tensor, src: Tensor, *, time: float | None = None) -> None:
        """cudaMemcpy on the legacy default stream (S50)."""
        objects._memory(dst, "memcpy")
        objects._memory(src, "memcpy")
        memcpy(self, dst, src, time)

    def peer_copy(
        self: Any, dst: Tensor, src: Tensor, *, source: Stream, target: Stream, time: float | None = None
    ) -> None:
        """`dst.copy_(src)` between GPUs (S59); `source` and `target` are the current streams of the two."""
        objects._memory(dst, "peer_copy")
        objects._memory(src, "peer_copy")
        peer_copy(dst, src, source, target, time)

    def _temporary(self: Any, name: str) -> Tensor:
        """Pageable memory of the allocator's: one piece in one thread, because freed memory is the next call's."""
        thread = self._running().tracer.name
        if self._temporaries.setdefault(name, thread) != thread:
            name = f"{name} in {thread}"  # both calls hold theirs at the same time
        number = self._made(p.Memory(name, "pageable", None, 4096, 0, self._process()))
        return Tensor(self, name, "pageable", number)

    def _outside(self: Any, name: str) -> Stream:
        """A queue of an agent: a stream of a number that no GPU has, so that neither device syncs nor environments reach it."""
        self._gpus_named.add(-1)
        made = p.Stream(name, None, -1 - len(self._objects), False, self._process())
        return Stream(self, name, self._enter(made))

    def _made(self: Any, thing: p.Object) -> int:
        """The number of an object that the language itself makes during a trace; the same object when it is traced again."""
        known: dict[str, int] = self._implicit
        if thing.name not in known:
            self._unique(thing.name)
            self._objects.append(thing)
            known[thing.name] = len(self._objects) - 1
        return known[thing.name]

    # ------------------------------------------------------------ the legacy default stream

    def _legacy_edges(self: Any, operation: p.Operation, recording: Recording) -> int | None:
        """Write down the waits that the legacy default stream's rule puts in front of an enqueued operation (S11, S31).

        What is enqueued on it waits for all blocking streams of its context; what is enqueued on one of those waits for it. The
        lock that makes waits and operation one step, where several threads enqueue; None where there is none.
        """
        if isinstance(operation, (p.Alloc, p.RecordStream, p.StreamSync)):
            return None
        lock: int | None = None
        for stream in (getattr(operation, "other", None), getattr(operation, "stream", None)):  # S22: a record on the other
            if isinstance(stream, p.Obj):
                lock = self._legacy_waits(stream, recording, lock)
        return lock

    def _legacy_waits(self: Any, stream: p.Obj, recording: Recording, lock: int | None) -> int | None:
        thing = self._objects[stream.id]
        assert isinstance(thing, p.Stream)
        legacy = self._defaults.get((thing.process, thing.gpu))
        for number, blocking in self._blocking:
            other = self._objects[number]
            if (other.process, other.gpu) != (thing.process, thing.gpu):
                continue
            if legacy is not None and stream.id == legacy._id:
                self._legacy_user(stream, number, True, recording)
                lock = self._as_one_step(thing, lock, recording)
                recording.do(p.WaitStream(stream, p.Obj(number)))
            elif stream.id == number:
                home = legacy or self._default_of(blocking)
                self._legacy_user(stream, number, False, recording)
                lock = self._as_one_step(thing, lock, recording)
                recording.do(p.WaitStream(stream, home._operand(recording)))
        return lock

    def _as_one_step(self: Any, stream: p.Stream, lock: int | None, recording: Recording) -> int | None:
        """Take the lock of the context behind which several threads enqueue; it orders nothing, it keeps others from coming between."""
        name = self._beside_legacy(stream)
        if lock is not None or name is None or recording.tracer.kind == "setup" or recording.calling == name:
            return lock
        made: int = self._made(p.Lock(name))
        recording.do(p.Acquire(made, False))
        return made

    def _lock_of_calls(self: Any, number: int) -> str | None:
        """The lock that each call takes that enqueues on the stream; None where each is one step anyhow, or threads may come between."""
        stream = self._objects[number]
        assert isinstance(stream, p.Stream)
        if number in self._one_call:
            return f"enqueuing on {stream.name}"
        ruled = self._blocking and (stream.default or any(number == blocking for blocking, _ in self._blocking))
        lock: str | None = self._beside_legacy(stream) if ruled else None
        return lock

    def _beside_legacy(self: Any, stream: p.Stream) -> str | None:
        """The lock of what is enqueued beside the legacy stream of the stream's context; None where one thread alone does."""
        if not any((self._objects[n].process, self._objects[n].gpu) == (stream.process, stream.gpu) for n in self._several_threads):
            return None
        where = " of " + stream.process if stream.process else ""
        return f"enqueuing beside the legacy stream{where}" + (f" on gpu {stream.gpu}" if stream.gpu else "")

    def _legacy_user(self: Any, stream: p.Obj, blocking: int, legacy: bool, recording: Recording) -> None:
        """Refuse two threads of which one uses the legacy stream and the other a blocking one, unless that was said.

        A call's waits and its work are one step on the platform and several here, so another thread's calls could come
        between them.
        """
        tracer = recording.tracer
        if tracer.kind == "setup" or blocking in self._several_threads:
            return
        thing = self._objects[stream.id]
        users: dict[tuple[int, bool], str] = self._legacy_users.setdefault((thing.process, thing.gpu), {})
        for (other, its), thread in users.items():
            if other != stream.id and thread != tracer.name and (legacy or its):
                fail(
                    f"{thing.name!r} is used here and {self._objects[other].name!r} by thread {thread!r}: the legacy stream "
                    "and a blocking one (S11) in two threads; let one thread use both, or make the blocking one with "
                    "d.stream(..., blocking=True, several_threads=True)"
                )
        users.setdefault((stream.id, legacy), tracer.name)

    def _default_of(self: Any, stream: Stream) -> Stream:
        thing = self._objects[stream._id]
        process: Process = self._known_processes[thing.process]
        self._processes.append(process)
        try:
            return self.default_stream(thing.gpu)  # type: ignore[no-any-return]
        finally:
            self._processes.pop()
