"""`Design`: a function's notepad. It makes objects, traces the bodies of threads and gives the program."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal, TypeVar

from fencepost.model import program as p
from fencepost.model.language import hosts, objects
from fencepost.model.language.blocks import MaybeBlock, Process, Scope
from fencepost.model.language.communicators import Communicators
from fencepost.model.language.composites import Composites
from fencepost.model.language.errors import DesignWarning, Fixed, Text, fail, folder, shown, text_of, user_frame
from fencepost.model.language.graphs import Graph, private_memory
from fencepost.model.language.index import Turn
from fencepost.model.language.managed import by_host, exclusive
from fencepost.model.language.meetings import Meetings
from fencepost.model.language.objects import Accesses, Event, Stream, Tensor
from fencepost.model.language.sharing import Sharing
from fencepost.model.language.tracer import LocalKey, Recording, Sites, Tracer, running
from fencepost.model.language.unwritten import Private
from fencepost.model.language.variants import accepted

Body = TypeVar("Body", bound=Callable[..., Any])


class Design(Composites, Communicators, Meetings, Sharing, Fixed):
    """A design being written down. Names of objects are unique in it; so are names of threads.

    Everything raises `DesignError` (one line with file and line) when it is used wrongly.
    """

    name: str

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            fail(f"Design({name!r}); give the design a name")
        object.__setattr__(self, "name", name)  # the one public attribute
        user = user_frame()
        self._root = folder(user.f_code.co_filename) if user is not None else os.getcwd()
        self._sites = Sites()
        self._recording: Recording | None = None
        self._processes: list[Process] = [Process(self, "", 0)]
        self._known_processes: dict[str, Process] = {"": self._processes[0]}
        self._gpus_named: set[int] = {0}
        """The GPUs that anything may be on: with one alone, nobody needs to ask which."""
        self._objects: list[p.Object] = []
        self._names: dict[str, Text | None] = {}
        self._threads: dict[str, tuple[str, tuple[p.Node, ...], int, tuple[LocalKey, ...], str, bool]] = {}
        self._defaults: dict[tuple[str, int], Stream] = {}
        self._takes: dict[int, hosts.Cursor] = {}
        self._cursors: list[hosts.Cursor] = []
        self._agreed: dict[str, tuple[str, ...]] = {}
        self._depths: dict[Any, Any] = {}
        self._blocking: list[tuple[int, Stream]] = []
        """Streams that the legacy default stream's rule applies to (S11)."""
        self._several_threads: set[int] = set()
        """Those of them that one thread may use beside another that uses the legacy stream."""
        self._graphs: list[Graph] = []
        self._private = Private()
        """What captures allocated."""
        self._one_call: set[int] = set()
        """Streams on which each call is one step, however many items it enqueues."""
        self._long_calls: dict[int, list[tuple[str, str]]] = {}
        """Stream -> thread and name of the calls that enqueue several items on it."""
        self._legacy_users: dict[tuple[str, int], dict[tuple[int, bool], str]] = {}
        self._temporaries: dict[str, str] = {}
        self._pools_of_streams: set[int] = set()
        """Streams that stand for the pools of d.malloc_async."""
        self._interprocess: set[int] = set()
        """Events that other processes may use (S140)."""
        self._shared: dict[int, set[str]] = {}
        """Memory -> the processes, besides its own, that it is mapped in."""
        self._exclusive: dict[str, int] = {}
        """Processes whose kernels keep the host away from managed memory (S111) -> the memory that stands for all of theirs."""
        self._implicit: dict[str, int] = {}
        """Objects that the language made while tracing, by name."""
        self._implied: dict[str, tuple[int, ...]] = {}
        """For each thread the nodes of what its calls do on the side."""
        self._nameable: set[int] = set()
        """Of the objects that the language made, those that a body can name."""
        self._accepted: list[p.Accept] = []
        self._stands: list[p.Stands] = []

    def __repr__(self) -> str:
        return f"<design {self.name!r}>"

    # ------------------------------------------------------------ objects that live for ever

    def pinned(self, name: str, depth: int | None = None, bytes: int = 4096, gpu: int | None = None) -> Tensor:
        """Page-locked host memory; `depth` makes a ring of that many slots. Sizes in bytes."""
        return self._memory(name, "pinned", depth, bytes, gpu)

    def pageable(self, name: str, depth: int | None = None, bytes: int = 4096, gpu: int | None = None) -> Tensor:
        """Ordinary host memory."""
        return self._memory(name, "pageable", depth, bytes, gpu)

    def device(self, name: str, depth: int | None = None, bytes: int = 4096, gpu: int | None = None) -> Tensor:
        """Memory of a GPU."""
        return self._memory(name, "device", depth, bytes, gpu)

    def managed(
        self, name: str, depth: int | None = None, bytes: int = 4096, gpu: int | None = None, *, concurrent: bool = True
    ) -> Tensor:
        """Unified memory: the host and kernels access it in place.

        `concurrent` is the device attribute concurrentManagedAccess. 1, the default: both may access it at once, and races are
        the program's (S110). 0: a host access to any managed memory of the process while any of its kernels runs is a
        fault (S111), found as a hazard of "all managed memory"; then it is so for all of the process's managed memory.
        """
        if not concurrent:
            exclusive(self, name)
        return self._memory(name, "managed", depth, bytes, gpu)

    def _memory(self, name: str, space: str, depth: int | None, bytes: int, gpu: int | None) -> Tensor:
        if not isinstance(bytes, int) or isinstance(bytes, bool) or bytes <= 0:
            fail(f"{name!r}: bytes={bytes!r}; a size is a positive number of bytes")
        made = p.Memory(name, space, self._positive(name, "depth", depth), bytes, self._gpu(gpu), self._process())
        return Tensor(self, name, space, self._enter(made), depth)

    def stream(
        self, name: str, depth: int | None = None, gpu: int | None = None, *, blocking: bool = False, several_threads: bool = False
    ) -> Stream:
        """A stream; `depth` makes a ring (`streams[n]` is stream n mod depth).

        PyTorch's streams are non-blocking (S8). A `blocking` one is ordered with the legacy default stream of its process
        and GPU in both directions (S11); so is a per-thread default stream (S12), which is a blocking stream of its own.
        `several_threads`: one thread enqueues on the blocking stream and another on the legacy one, or one launches a callback or a
        graph with branches and another enqueues, too. Each such call, with the waits that the rule puts in front of it, is then one
        step, written down with a lock that orders nothing.
        """
        made = p.Stream(name, self._positive(name, "depth", depth), self._gpu(gpu), False, self._process())
        stream = Stream(self, name, self._enter(made), depth)
        if blocking:
            if depth is not None:
                fail(f"stream {name!r}: a ring of blocking streams is not in the language; make them one by one")
            if self._threads:
                fail(f"blocking stream {name!r} is made after the first thread; make it before, its rule applies to all")
            assert stream._id is not None
            self._blocking.append((stream._id, stream))
            if several_threads:
                self._several_threads.add(stream._id)
        elif several_threads:
            assert stream._id is not None
            self._one_call.add(stream._id)
        return stream

    def event(self, name: str, depth: int | None = None, gpu: int | None = None, *, interprocess: bool = False) -> Event:
        """Outside a body an event that lives for ever, or a ring of them; in a body a fresh one, never recorded (S18).

        `interprocess`: other processes may use it too, through its handle (S139, S140).
        """
        recording = self._recording
        if recording is None:
            made = p.Event(name, self._positive(name, "depth", depth), self._gpu(gpu), self._process())
            number = self._enter(made)
            if interprocess:
                self._interprocess.add(number)
            return Event(self, name, number, depth)
        if depth is not None:
            fail(f"event {name!r} is made in a body; a ring is made outside of the bodies")
        life = recording.local(self._fresh(name), p.EVENT, "event")
        life.interprocess = bool(interprocess)
        recording.do(p.NewEvent(life.local))
        return Event(self, name, life=life)

    def cell(self, name: str, depth: int | None = None, item: Sequence[str] | str = (p.MEMORY,)) -> hosts.Cell:
        """Holds at most one item of the declared kinds (by default one tensor; kinds as in `queue`): an attribute `self.last`."""
        wanted = hosts.kinds(item, name)
        made = p.Cell(name, wanted, self._positive(name, "depth", depth), self._process())
        return hosts.Cell(self, name, self._enter(made), wanted, depth)

    def cursor(self, name: str, depth: int) -> hosts.Cursor:
        """A position in rings of `depth`: `slot = cursor.advance()`, then `buffers[slot]`, `events[slot]`."""
        if depth is None:
            fail(f"cursor {name!r} needs the depth of the rings that it indexes")
        made = p.Cursor(name, self._positive(name, "depth", depth) or 1, self._process())
        self._cursors.append(hosts.Cursor(self, name, self._enter(made), depth))
        return self._cursors[-1]

    def queue(
        self, name: str, capacity: int, item: Sequence[str] | str | dict[str, Sequence[str] | str] | Any = (), *,
        several_threads: bool = False,
    ) -> hosts.Queue:
        """A bounded FIFO. `item`: a tuple of kinds, or tag -> tuple for a queue of several kinds of items.

        A kind is `fp.MEMORY` (a tensor), `fp.EVENT`, `fp.INDEX` (a position or number) or `fp.HANDLE` (a row of a pool), one for each
        value of a `put`; `()` is an item without values. `item={"decode": (fp.EVENT,), "stop": ()}` has tags.
        `several_threads`: more than one thread takes items, which are of several kinds. A get is then one step among theirs, written
        down with a lock that orders nothing.
        """
        if capacity is None:
            fail(f"queue {name!r} needs a capacity; an unbounded queue cannot be decided")
        if isinstance(item, dict):
            if not item or not all(isinstance(tag, str) and tag for tag in item):
                fail(f"item={item!r} of queue {name!r}; tags are names")
            items = {tag: hosts.kinds(wanted, name) for tag, wanted in item.items()}
        else:
            items = {"": hosts.kinds(item, name)}
        made = p.Queue(name, self._positive(name, "capacity", capacity) or 1, tuple(items.items()), self._process())
        return hosts.Queue(self, name, self._enter(made), capacity, items, several_threads)

    def pool(self, name: str, size: int, of: Literal["device", "pinned", "row"] = "device") -> hosts.Pool:
        """`size` interchangeable blocks of memory or rows of a buffer."""
        if of not in ("device", "pinned", "row"):
            fail(f'pool {name!r}: of={of!r}; a pool is of "device", "pinned" or "row"')
        if size is None:
            fail(f"pool {name!r} needs a size")
        made = p.Pool(name, self._positive(name, "size", size) or 1, of, self._process())
        return hosts.Pool(self, name, self._enter(made), size, of)

    def lock(self, name: str) -> hosts.Lock:
        """Mutual exclusion between host threads."""
        return hosts.Lock(self, name, self._enter(p.Lock(name, 1, False, self._process())))

    def semaphore(self, name: str, count: int = 1) -> hosts.Lock:
        """A counting semaphore that starts at `count` (0: somebody must release first)."""
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            fail(f"semaphore {name!r}: count={count!r}; it starts at 0 or more")
        if type(count) is int and count > p.MOST_SLOTS:
            fail(f"semaphore {name!r}: count={count}; it is at most {p.MOST_SLOTS:,}")
        return hosts.Lock(self, name, self._enter(p.Lock(name, count, True, self._process())), True)

    def flag(self, name: str) -> hosts.Flag:
        """A host boolean that starts unset."""
        return hosts.Flag(self, name, self._enter(p.Flag(name, self._process())))

    def counter(self, name: str) -> hosts.Counter:
        """A host integer that starts at 0."""
        return hosts.Counter(self, name, self._enter(p.Counter(name, self._process())))

    def process(self, name: str, gpu: int = 0) -> Process:
        """`with d.process("rank 1", gpu=1):` owns what is made inside it; the object may also be a thread's `process=`."""
        if self._recording is not None:
            fail(f"process {name!r} is made in a body; make it outside")
        self._gpus_named.add(gpu)
        known = self._known_processes.setdefault(name, Process(self, name, gpu))
        if known.gpu != gpu:
            fail(f"process {name!r} is on GPU {known.gpu} and on GPU {gpu}; name two processes")
        return known

    # ------------------------------------------------------------ threads

    def loop(
        self, name: str, *, stream: Stream | None = None, process: Process | str | None = None, idle: bool = False
    ) -> Callable[[Body], Body]:
        """The decorated body is one turn of a thread that runs for ever. It may take the turn `n`.

        `idle`: between two turns it waits to be given work, as a daemon does, and no hang is that it gets none any more.
        """
        return self._thread(name, "loop", stream, process, idle=bool(idle))

    def script(
        self, name: str, *, stream: Stream | None = None, process: Process | str | None = None
    ) -> Callable[[Body], Body]:
        """The decorated body is run once by a thread of its own."""
        return self._thread(name, "script", stream, process)

    def setup(self, body: Any = None, *, stream: Stream | None = None, process: Process | str | None = None) -> Any:
        """The decorated body runs before all threads start: `@d.setup` or `@d.setup(stream=...)`.

        Several of one process run one after the other, as they are written; those of different processes beside each other.
        """
        name = "setup" if "setup" not in self._threads else f"setup {len(self._threads)}"
        decorate = self._thread(name, "setup", stream, process)
        return decorate if body is None else decorate(body)

    def _thread(
        self, name: str, kind: str, stream: Stream | None, process: Process | str | None,
        around: tuple[p.Operation, p.Operation] | None = None, calls_cuda: bool = True,
        idle: bool = False,
    ) -> Callable[[Body], Body]:  # fmt: skip
        if self._recording is not None:
            fail(f"thread {name!r} is made in a body; make it outside")
        if not isinstance(name, str) or not name:
            fail(f"d.{kind}({name!r}); give the thread a name: @d.{kind}(\"worker\")")
        if name in self._threads:
            fail(f"two threads are called {name!r}; names of threads are unique")
        if stream is not None:
            if not isinstance(stream, Stream):
                fail(f"thread {name!r}: stream={stream!r} is no stream")
            self._own(stream)
        if isinstance(process, str):
            process = self._known_processes.get(process) or self.process(process)
        if process is not None and not isinstance(process, Process):
            fail(f"thread {name!r}: process={process!r} is no process; make it with d.process(name)")
        owner = process or self._processes[-1]

        def trace(body: Body) -> Body:
            code = getattr(body, "__code__", None)
            if code is None:
                fail(f"the body of {name!r} is {body!r}; write a function")
            parameters = _parameters(body, code)
            if len(parameters) > 1:
                fail(f"the body of {name!r} takes {', '.join(parameters)}; a body takes the turn n, or nothing")
            for one in parameters.values():
                if one.default is not one.empty:
                    fail(
                        f"the body of {name!r} takes {one}; a body takes the turn n, or nothing: it is traced at once, so use the "
                        "variable around it itself"
                    )
                if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
                    fail(f"the body of {name!r} takes {one}; a body takes the turn n, or nothing")
            self._processes.append(owner)
            try:
                tracer = Tracer(self, name, kind, body, stream, around)
                tracer.calls_cuda = calls_cuda
                nodes, entry = tracer.trace((Turn(self),) if parameters else ())
            finally:
                self._processes.pop()
            if nodes:  # what only captures a graph runs nothing
                self._implied[name] = tracer.implied
                self._threads[name] = (kind, nodes, entry, tuple(tracer.locals), owner.name, idle)
            return body

        return trace

    # ------------------------------------------------------------ operations

    def current_stream(self, gpu: int | None = None) -> Stream:
        """The stream of the innermost `with stream:`, else the thread's `stream=`, else the GPU's default stream (S6).

        `gpu`: the current stream of that GPU, to which a stream of another one says nothing. Without it, that of the current device,
        which is the device of the innermost stream. Operations on tensors of one GPU use that GPU's (S16).
        """
        return self._stream_now(self._running(), gpu)

    def _stream_now(self, recording: Recording, gpu: int | None) -> Stream:
        if recording.streams and (gpu is None or len(self._gpus_named) == 1):
            return recording.streams[-1]
        if gpu is None:
            if recording.usual is None:
                recording.usual = self.default_stream()
            return recording.usual
        wanted = self._gpu(gpu)
        for stream in (*recording.streams[::-1], *([recording.tracer.default] if recording.tracer.default is not None else [])):
            if self._gpu_of(stream) == wanted:
                return stream
        return self.default_stream(wanted)

    def _current_device(self) -> int:
        """The device of the innermost `with stream:`, else of the thread's `stream=`, else the process's (S16)."""
        recording = self._recording
        if recording is None:
            return self._gpu(None)
        stream = recording.streams[-1] if recording.streams else recording.tracer.default
        return self._gpu(None) if stream is None else self._gpu_of(stream)

    def _gpu_of(self, stream: Stream) -> int:
        thing = self._objects[stream._id] if stream._id is not None else None
        assert isinstance(thing, p.Stream)
        return thing.gpu

    def _gpu_of_operand(self, stream: p.Operand) -> int:
        thing = self._objects[stream.id]
        assert isinstance(thing, p.Stream)
        return thing.gpu

    def _current(self, recording: Recording, *tensors: Tensor) -> Stream:
        """The current stream of the GPU that the device memory among these is of; of the current device where that is not one (S16).

        Raises `DesignError` where received memory may be of several GPUs.
        """
        if len(self._gpus_named) == 1:
            return self._stream_now(recording, None)
        homes = {self._home(tensor) for tensor in tensors if tensor._space not in ("pinned", "pageable", "managed")}
        if None in homes and len(self._gpus()) > 1:
            hosts_ = ("pinned", "pageable", "managed")
            name = next(tensor.name for tensor in tensors if tensor._space not in hosts_ and self._home(tensor) is None)
            fail(
                f"{name!r} was received, and of which GPU it is, whose current stream is used (S16), is not known here; this process uses "
                f"GPUs {', '.join(map(str, sorted(self._gpus())))}: say stream="
            )
        return self._stream_now(recording, homes.pop() if len(homes) == 1 else None)

    def _home(self, tensor: Tensor) -> int | None:
        """The GPU of device memory; None for memory that was received."""
        if tensor._pool is not None:
            pool = self._objects[tensor._pool]
            assert isinstance(pool, p.Pool)
            return self._known_processes[pool.process].gpu
        thing = self._objects[tensor._id] if tensor._id is not None else None
        return thing.gpu if isinstance(thing, p.Memory) else tensor._life.gpu if tensor._life is not None else None

    def _gpus(self) -> set[int]:
        """The GPUs that the process has streams or device memory on, as far as they are made."""
        mine = self._process()
        return {self._processes[-1].gpu} | {
            one.gpu for one in self._objects
            if one.process == mine and ((isinstance(one, p.Stream) and not one.is_agent) or (isinstance(one, p.Memory) and one.space == "device"))
        }  # fmt: skip

    def default_stream(self, gpu: int | None = None) -> Stream:
        """The default stream of the process on a GPU, which all of its threads share; without `gpu` on the current device."""
        key = (self._process(), self._current_device() if gpu is None else self._gpu(gpu))
        if key not in self._defaults:
            process, number = key
            name = "default" if key == ("", 0) else " ".join(filter(None, ["default", process, f"gpu {number}" if number else ""]))
            self._unique(name)
            self._objects.append(p.Stream(name, None, number, True, process))
            self._defaults[key] = Stream(self, name, len(self._objects) - 1)
        return self._defaults[key]

    def empty(self, name: str, *, bytes: int = 4096, stream: Stream | None = None) -> Tensor:
        """A tensor from the device's caching allocator, owned by the stream (S62); its content is undefined."""
        recording = self._running()
        if recording.capturing is not None:
            return private_memory(recording.capturing, name, "device", bytes, self._stream(stream, recording))
        stream = stream or self._stream_now(recording, None)
        owner = self._stream(stream, recording)
        life = recording.local(self._fresh(name), p.MEMORY, "device")
        life.gpu, life.bytes = self._gpu_of(stream), bytes
        recording.do(p.Alloc(life.local, "device", owner, bytes))
        return Tensor(self, name, "device", life=life)

    def empty_pinned(self, name: str, *, bytes: int = 4096) -> Tensor:
        """A tensor from the caching host allocator (S79); its content is undefined."""
        recording = self._running()
        if recording.capturing is not None:
            return private_memory(recording.capturing, name, "pinned", bytes, None)
        life = recording.local(self._fresh(name), p.MEMORY, "pinned")
        life.bytes = bytes
        recording.do(p.Alloc(life.local, "pinned", None, bytes))
        return Tensor(self, name, "pinned", life=life)

    def launch(
        self, name: str, reads: Accesses = (), writes: Accesses = (), *, stream: Stream | None = None,
        time: float | None = None,
    ) -> None:  # fmt: skip
        """A kernel; it may read pinned memory in place (S107). `time` in seconds."""
        recording = self._running()
        reads, writes = objects.listed(reads), objects.listed(writes)
        found = objects.accesses(reads, writes, recording)
        tensors = objects.tensors(reads, writes)
        where = self._stream(stream or self._current(recording, *tensors), recording)
        thing = self._objects[where.id]
        if not isinstance(thing, p.Stream) or not thing.is_agent:
            objects.reachable(tensors, "kernel", name)
        recording.do(p.Launch(name, where, found, objects._time(time)))

    def host(self, name: str, reads: Accesses = (), writes: Accesses = (), *, time: float | None = None) -> None:
        """Host code that reads and writes memory itself, now."""
        recording = self._running()
        reads, writes = objects.listed(reads), objects.listed(writes)
        tensors = objects.tensors(reads, writes)
        for tensor in tensors:
            if tensor._space == "device":
                fail(f"the host cannot access device memory {tensor.name!r}; copy it, or use d.managed")
        found = objects.accesses(reads, writes, recording) + by_host(self, tensors, recording.tracer.name)
        recording.do(p.Host(name, found, objects._time(time)))

    def memcpy_async(
        self, dst: Tensor, src: Tensor, *, stream: Stream | None = None, harm: str = "value", same_bytes: bool = False,
        time: float | None = None,
    ) -> None:  # fmt: skip
        """cudaMemcpyAsync: a copy that no allocator sees (S83). `harm` is that of the read of the source."""
        recording = self._running()
        objects._memory(dst, "memcpy_async")
        objects._memory(src, "memcpy_async")
        objects._check_harm(harm)
        copy = p.Copy(
            dst._operand(recording), src._operand(recording), self._stream(stream, recording), True, True, harm,
            same_bytes, objects._time(time),
        )  # fmt: skip
        recording.do(copy, enqueues=objects._enqueues("memcpy_async", recording, dst, src))

    def memset(self, dst: Tensor, *, stream: Stream | None = None, time: float | None = None) -> None:
        """cudaMemsetAsync (S39)."""
        recording = self._running()
        objects._memory(dst, "memset")
        objects.reachable((dst,), "memset")
        recording.do(p.Memset(dst._operand(recording), self._stream(stream, recording), objects._time(time)))

    def synchronize(self, gpu: int | None = None, *, time: float | None = None) -> None:
        """The host waits for everything that the process enqueued on the GPU (S32): without `gpu` on the current device."""
        recording = self._running()
        recording.do(p.DeviceSync(self._current_device() if gpu is None else self._gpu(gpu), self._process(), objects._time(time)))

    def free(self, x: Tensor, *, time: float | None = None) -> None:
        """cudaFree, cudaFreeHost or cudaHostUnregister of memory that no caching allocator keeps: unmapping is a host write to it.

        Whether the call waits for the device is the platform's business (`free`, S38, S40): it may wait, which a hang can come
        from, and orders nothing unless the platform says so. The same memory may be used again: by its next owner.
        """
        recording = self._running()
        objects._memory(x, "free")
        if x._part is not None:
            fail(f"a part of {x.name!r} cannot be freed; free the whole")
        if x._pool is not None:
            fail(f"{x.name!r} is a token of a pool; give it back with pool.free(...)")
        if x._life is not None:
            fail(f"{x.name!r} is of a caching allocator; let go of it with release(), or end d.malloc_async with free_async()")
        written = x._access(recording, "w")
        thing = self._objects[written.target.id]
        assert isinstance(thing, p.Memory)
        recording.do(p.DeviceSync(thing.gpu, self._process(), None, True))
        recording.do(p.Host(f"free {x.name}", (written,), objects._time(time)))

    # ------------------------------------------------------------ questions and blocks

    def choose(self, name: str, options: Sequence[Any], *, agreed: bool = False) -> Any:
        """One of the options, any one in any turn: what the engine decides by its data.

        Asked again in the same turn: the same answer (in a drain loop: the same iteration).

        `agreed`: turn k of every thread that asks it gets one answer.
        """
        recording = self._running()
        recording.step()
        texts = tuple(str(option) for option in options)
        if not texts or len(set(texts)) != len(texts):
            fail(f"choose({name!r}, {list(options)!r}); give one option at least, each once")
        if agreed or name in self._agreed:
            if not agreed or self._agreed.setdefault(name, texts) != texts:
                fail(f"choose({name!r}) is agreed elsewhere, with {list(self._agreed[name])}; ask it the same way everywhere")
            if recording.drains:
                fail(f"choose({name!r}, agreed=True) in a drain loop; the threads agree once a turn: ask before the loop")
        known = recording.choices.get(name)
        if known is None:
            answer = recording.ask(p.Choose(name, texts, agreed), texts)
            known = recording.choices[name] = (texts, texts.index(answer))
        elif known[0] != texts:
            fail(f"choose({name!r}) was asked with {list(known[0])} in this turn; use another name for another question")
        return options[known[1]]

    def maybe(self, name: str) -> MaybeBlock:
        """`with d.maybe("new requests"):` is a block that may not run; it is traced once, and it is a scope."""
        return MaybeBlock(self, name)

    def scope(self, name: str) -> Scope:
        """`with d.scope("postprocess"):` holds what is made in it until its end, like the frame of a Python call."""
        return Scope(self, name)

    # ------------------------------------------------------------ what is said about the design

    def accept(self, hazard: str, *, because: str) -> None:
        """Keep a known harmless hazard ("WAR sampling params") from failing a gate; every report lists it."""
        self._accepted.append(accepted(hazard, because))

    def models(self, path: str, name: str, revision: str) -> None:
        """What the design stands for: a file of the engine's repository, a class or function in it, a revision."""
        self._stands.append(p.Stands(str(path), str(name), str(revision)))

    def build(self) -> p.Program:
        """The program. Raises `DesignError` for a design without threads."""
        from fencepost.model.language.build import assemble

        return assemble(self, self._root, ())

    # ------------------------------------------------------------ for the objects of the language

    def _running(self) -> Recording:
        if self._recording is None:
            if running:
                fail(f"an object of design {self.name!r} belongs to another design than the body; make it in this one")
            fail("an operation outside of a body; put it into @d.setup, @d.script or @d.loop")
        if self._recording.thread != get_ident():
            fail("an operation in a thread of Python's that a body started; make it a thread of the design: @d.loop or @d.script")
        return self._recording

    def _own(self, thing: Any) -> None:
        if thing._design is not self:
            fail(f"{thing!r} belongs to another design ({thing._design.name!r}); make it in this one")

    def _stream(self, stream: Stream | None, recording: Recording) -> p.Operand:
        if stream is None:
            return self._stream_now(recording, None)._operand(recording)
        if not isinstance(stream, Stream):
            fail(f"{stream!r} is no stream")
        self._own(stream)
        return stream._operand(recording)

    def _process(self) -> str:
        return self._processes[-1].name

    def _gpu(self, gpu: int | None) -> int:
        if gpu is None:
            return self._processes[-1].gpu
        if not isinstance(gpu, int) or isinstance(gpu, bool) or gpu < 0:
            fail(f"gpu={gpu!r}; GPUs are numbered from 0")
        self._gpus_named.add(gpu)
        return gpu

    def _positive(self, name: str, what: str, value: int | None) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            fail(f"{name!r}: {what}={value!r}; it is at least 1")
        if type(value) is int and value > p.MOST_SLOTS:  # no limit to a parameter that stands for all values
            fail(f"{name!r}: {what}={value}; it is at most {p.MOST_SLOTS:,}")
        return value

    def _unique(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            fail(f"an object is called {name!r}; give it a name")
        if name in self._names:
            fail(f"two objects are called {name!r} (the other at {self._named(name)}); names are unique in a design")
        user = user_frame()
        self._names[name] = None if user is None else text_of(user)

    def _named(self, name: str) -> str:
        """Where the object of that name was made."""
        text = self._names[name]
        return "<unknown>:0" if text is None else shown(*text[:2])

    def _enter(self, made: p.Object) -> int:
        if self._recording is not None:
            fail(f"{made.name!r} is made in a body and would live for ever; make it outside of the bodies")
        self._unique(made.name)
        self._objects.append(made)
        return len(self._objects) - 1

    def _fresh(self, name: str) -> str:
        """The checked name of a value made in a body."""
        if not isinstance(name, str) or not name:
            fail(f"a value is called {name!r}; give it a name")
        if name in self._names:
            fail(f"{name!r} is also the name of an object (at {self._named(name)}); names are unique in a design")
        return name

    def _take_cursor(self, ring: Tensor) -> hosts.Cursor:
        """The cursor of `ring.take()`, made at its first use."""
        assert ring._id is not None and ring._depth is not None
        if ring._id not in self._takes:
            name = f"{ring.name} take"
            self._unique(name)
            self._objects.append(p.Cursor(name, ring._depth, self._process()))
            self._takes[ring._id] = hosts.Cursor(self, name, len(self._objects) - 1, ring._depth)
        return self._takes[ring._id]

    def _depth_of(self, key: Any) -> Any:
        """What is known of a depth: a number, or the name of the position in a queue or cell that decides it."""
        while key in self._depths:
            key = self._depths[key]
        return key

    def _unify(self, one: Any, other: Any) -> bool:
        """Two depths are equal; False when they are known to differ."""
        a, b = self._depth_of(one), self._depth_of(other)
        if a == b:
            return True
        if isinstance(a, int) and isinstance(b, int):
            return False
        if isinstance(a, int):
            a, b = b, a
        self._depths[a] = b
        return True

    def _warn(self, text: str) -> None:
        warnings.warn(text, DesignWarning, stacklevel=_level())


def _parameters(body: Any, code: CodeType) -> Mapping[str, inspect.Parameter]:
    """The parameters of a body; most take the turn alone, or nothing."""
    least = not body.__defaults__ if isinstance(body, FunctionType) else False
    if least and code.co_argcount <= 1 and not code.co_kwonlyargcount and not code.co_flags & _VARIADIC and not body.__dict__:
        return {name: _turn(name) for name in code.co_varnames[: code.co_argcount]}
    return inspect.signature(body, follow_wrapped=False).parameters


_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


@functools.cache
def _turn(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _level() -> int:
    """How far up the user's innermost frame is, for `warnings.warn` in the caller."""
    wanted, level = user_frame(), 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not wanted:
        frame, level = frame.f_back, level + 1
    return level + 1
