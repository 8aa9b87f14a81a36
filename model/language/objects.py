"""Memory, events and streams as a design's text handles them: torch-shaped objects that record operations."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union

from fencepost.model import program as p
from fencepost.model.language.errors import Fixed, NotModelled, fail, question
from fencepost.model.language.index import Handle, Index, Key, PartKey
from fencepost.model.language.managed import by_host, stays
from fencepost.model.language.tracer import Life, Recording

if TYPE_CHECKING:
    from fencepost.model.language.blocks import Process
    from fencepost.model.language.design import Design
    from fencepost.model.language.meetings import DeviceFlag

HARMS = ("address", "value", "shape", "quality")
"""What a stale read does: out of range, wrong value, ranks disagree, worse quality only."""


_set = object.__setattr__


class Referent(Fixed):
    """An object of the design, one slot of a ring, or a value made in the turn."""

    _what = "object"
    _design: Design
    _name: str
    _id: int | None
    _depth: int | None
    _index: int | Index | Handle | None
    _life: Life | None

    def __init__(
        self, design: Design, name: str, number: int | None = None, depth: int | None = None,
        index: int | Index | Handle | None = None, life: Life | None = None,
    ) -> None:  # fmt: skip
        # Set at once: `Fixed` looks at each attribute that is set, and these are many.
        _set(self, "__dict__", {"_design": design, "_name": name, "_id": number, "_depth": depth, "_index": index, "_life": life})

    def __repr__(self) -> str:
        return f"<{self._what} {self._name!r}>"

    @property
    def name(self) -> str:
        """The name that the design gives it."""
        return self._name

    def __iter__(self) -> Iterator[Any]:
        if self._depth is not None and self._index is None:
            fail(f"{self._name!r} is a ring; go through its slots by number: for i in range({self._depth})")
        if self._what == "memory" and (self._life is None or not self._life.received):
            fail(f"memory {self._name!r} cannot be iterated; name its parts: {self._name}[0:64]")
        fail(f"{self!r} is one value; use it without * and without a loop")

    def __eq__(self, other: object) -> bool:
        if other is not self and other is not None and self._unknown(other):
            fail(f"whether {self!r} is {other!r} is not known, as it came out of a queue or cell; ask with d.choose")
        return super().__eq__(other)

    def __hash__(self) -> int:
        if self._unknown(None):
            fail(f"{self!r} came out of a queue or cell and may be the same as another; it is no key and no element of a set")
        return object.__hash__(self)

    def _unknown(self, other: object) -> bool:
        """Whether one of two was received."""
        return any(isinstance(x, Referent) and x._life is not None and x._life.received for x in (self, other))

    def _slot(self, key: Any) -> int | Index | Handle:
        """The checked index of one slot of this ring."""
        depth = self._depth
        assert depth is not None
        if isinstance(key, bool) or not isinstance(key, (int, Index, Handle)):
            fail(f"{self._name}[{key!r}]: {self._name!r} is a ring; its index is the turn, a cursor's position or a number")
        if isinstance(key, int):
            if not 0 <= key < depth:
                fail(f"{self._name}[{key}]: the ring has slots 0 to {depth - 1}")
            return key
        self._design._own(key)
        of = key._size if isinstance(key, Handle) else key._depth()
        if of is not None and not self._design._unify(of, depth):
            other = self._design._depth_of(of)
            fail(f"{self._name!r} is a ring of {depth}, the index is one of rings of {other}; make the depths equal")
        return key

    def _resolve(self, recording: Recording, part: p.Part | None = None) -> p.Operand:
        """The operand at its use. Raises `DesignError` for what cannot be used here."""
        life = self._life
        if life is not None:
            if life.recording is not recording or life.dead is not None:
                life.check(recording)
            return life.operand if part is None else p.Local(life.local, part)
        assert self._id is not None
        if self._depth is None:
            return _whole(self._id) if part is None else p.Obj(self._id, part)
        if self._index is None:
            fail(f"{self._name!r} is a ring of {self._depth} and is used without an index; write {self._name}[n]")
        index = p.Fixed(self._index) if isinstance(self._index, int) else self._index._resolve(recording)
        return p.Slot(self._id, index, part)


_whole = functools.lru_cache(maxsize=4096)(p.Obj)
"""An object as an operand; the same in all operations, which makes them cheap to compare."""


class Tensor(Referent):
    """Memory: a buffer that lives for ever, a slot of a ring of them, a tensor made or received in the turn, or a part.

    `buf["rows"]`, `buf[0:64]`, `buf[row]`, `buf[fp.ANY]` are parts; parts of different names are disjoint, any other two
    may overlap. Operations that enqueue use the current stream unless `stream=` is given; `time=` is seconds.
    """

    _what = "memory"
    _asked = "values of memory are not modelled: ask with d.choose what they decide"
    _space: str
    _part: PartKey | None
    _pool: int | None

    def __init__(
        self, design: Design, name: str, space: str, number: int | None = None, depth: int | None = None,
        index: int | Index | Handle | None = None, life: Life | None = None, part: PartKey | None = None,
        pool: int | None = None,
    ) -> None:  # fmt: skip
        _set(self, "__dict__", {  # what `Referent.__init__` sets, too: tensors are the most of what a body makes
            "_design": design, "_name": name, "_id": number, "_depth": depth, "_index": index, "_life": life, "_space": space, "_part": part,
            "_pool": pool,
        })  # fmt: skip

    def __getitem__(self, key: Key) -> Tensor:
        """A slot of a ring, or a part of a buffer or slot."""
        if self._depth is not None and self._index is None:
            slot = self._slot(key)
            return Tensor(self._design, self._name, self._space, self._id, self._depth, slot)
        if self._part is not None:
            fail(f"{self._name!r}: a part of a part; name one part")
        size = self._bytes()
        if isinstance(key, slice) and size is not None and isinstance(key.stop, int) and key.stop > size:
            fail(f"{self._name!r} has {size} bytes, and {self._name}[{key.start or 0}:{key.stop}] ends behind them; make it bytes={key.stop}")
        part = PartKey(self._design, key, self._name)
        return Tensor(
            self._design, self._name, self._space, self._id, self._depth, self._index, self._life, part, self._pool
        )

    def __len__(self) -> int:
        if self._depth is not None and self._index is None:
            return self._depth
        fail(f"the length of memory {self._name!r} is not modelled")

    def _operand(self, recording: Recording) -> p.Operand:
        if self._design is not recording.design:
            recording.design._own(self)
        if self._id is not None and len(self._design._known_processes) > 1:
            self._known_here(self._id)
            if self._design._exclusive:
                stays(self._design, self, self._design._process())
        return self._resolve(recording, None if self._part is None else self._part.resolve(recording))

    def _bytes(self) -> int | None:
        """Its size, unless it was received."""
        known = self._design._objects[self._id] if self._id is not None else None
        return known.bytes if isinstance(known, p.Memory) else self._life.bytes if self._life is not None else None

    def _known_here(self, number: int) -> None:
        owner, mine = self._design._objects[number].process, self._design._process()
        if owner and mine != owner and mine not in self._design._shared.get(number, ()):
            who = f"process {mine!r}" if mine else "a thread outside of all processes"
            fail(
                f"memory {self._name!r} belongs to process {owner!r} and is used by {who}; say {self._name}.shared_with({mine!r}) where "
                "it is made, or hand it over through a queue"
            )

    def shared_with(self, *processes: str | Process) -> Tensor:
        """The same memory is mapped in these processes too (IPC, peer access, shared memory); nothing is ordered by that (S139)."""
        if self._id is None:
            fail(f"{self._name!r} is made in a body; hand it over through a queue or d.ipc_queue")
        if not self._design._objects[self._id].process:
            fail(f"{self._name!r} belongs to no process, so all may use it; make it in `with d.process(...)`")
        for process in processes:
            self._design._shared.setdefault(self._id, set()).add(process if isinstance(process, str) else process.name)
        return self

    def _access(self, recording: Recording, mode: str, harm: str = "value", same_bytes: bool = False) -> p.Access:
        if harm != "value":
            _check_harm(harm)
        return p.Access(self._operand(recording), mode, same_bytes, harm)

    def _host(self, name: str, access: p.Access, recording: Recording, time: float | None) -> None:
        if self._space == "device":
            fail(f"the host cannot access device memory {self._name!r}; copy it, or use d.managed")
        recording.do(p.Host(name, (access, *by_host(self._design, (self,), recording.tracer.name)), _time(time)))

    # ------------------------------------------------------------ host accesses

    def write(self, *, same_bytes: bool = False, time: float | None = None) -> None:
        """Host stores, now. `same_bytes`: the content continues that of the write before it (theory: epochs)."""
        recording = self._design._running()
        self._host("write", self._access(recording, "w", same_bytes=same_bytes), recording, time)

    def read(self, *, harm: str = "value", time: float | None = None) -> NotModelled:
        """Host loads, now. `harm`: what a stale value does ("address", "value", "shape", "quality"). The value is not modelled."""
        recording = self._design._running()
        self._host("read", self._access(recording, "r", harm), recording, time)
        return NotModelled(self._name)

    # ------------------------------------------------------------ copies

    def copy_(
        self, src: Tensor, non_blocking: bool = False, *, stream: Stream | None = None, harm: str = "value",
        same_bytes: bool = False, strided: bool = False, time: float | None = None,
    ) -> Tensor:  # fmt: skip
        """Copy `src` here (S33, S45-S49). `harm` is that of the read of the source. Returns self, as torch does.

        `strided`: the host side is not contiguous, so that a pageable temporary stands between (S55, S56). A conversion of
        the type needs no word: with non_blocking it happens on the GPU, in the same stream (S57).
        """
        if strided:
            from fencepost.model.language.composites import strided_copy

            _memory(src, "copy_")
            strided_copy(self, src, non_blocking, stream, time)
            return self
        recording = self._design._running()
        _memory(src, "copy_")
        _check_harm(harm)
        if self._space == src._space == "device" and self._design._home(self) != self._design._home(src):
            homes = {self._design._home(x) for x in (self, src)}
            fail(
                f"copy_ from {src.name!r} to {self.name!r} between GPUs {' and '.join(map(str, sorted(homes, key=str)))} runs on the source's current "
                "stream, with waits on both sides (S59); write d.peer_copy(dst, src, source=, target=)"
            )
        copy = p.Copy(
            self._operand(recording), src._operand(recording), self._design._stream(stream or self._design._current(recording, self, src), recording),
            bool(non_blocking), False, harm, same_bytes, _time(time),
        )  # fmt: skip
        recording.do(copy, enqueues=_enqueues("copy_", recording, self, src))
        return self

    def to_cpu(
        self, name: str | None = None, non_blocking: bool = False, *, stream: Stream | None = None, harm: str = "value",
        bytes: int = 4096, time: float | None = None,
    ) -> Tensor:  # fmt: skip
        """A fresh host copy: pinned, and returned before it is filled when `non_blocking` (S58).

        A blocking one lands in pageable memory that nothing else can see before it is filled; it is written down as a fresh
        pinned block and a blocking copy (S33). So a later copy from it counts as asynchronous, and its bytes as the pinned
        allocator's (both err on false alarms).
        """
        fresh = self._design.empty_pinned(name or f"{self._name} on cpu", bytes=bytes)
        return fresh.copy_(self, non_blocking, stream=stream, harm=harm, time=time)

    def item(self, *, stream: Stream | None = None, harm: str = "value", time: float | None = None) -> NotModelled:
        """Copy to the host and wait for the stream (S33); of host memory a plain load. The value is not modelled: ask with `d.choose`."""
        recording = self._design._running()
        _check_harm(harm)
        where = self._design._stream(stream or self._design._current(recording, self), recording)
        item = p.Item(self._operand(recording), where, harm, _time(time))
        recording.do(item, enqueues=_enqueues("item", recording, self))
        return NotModelled(self._name)

    # ------------------------------------------------------------ references

    def view(self, name: str | None = None, *, attributed: bool = True, held: bool = True) -> Tensor:
        """Another reference to the same bytes; no access. `attributed=False`: the allocator cannot tell whose, as through DLPack or
        an inner pointer, so that neither `record_stream` nor a copy tells it of a use (S72, S84).

        `held=False` is a raw pointer: it keeps nothing alive.
        """
        recording = self._design._running()
        base = self._operand(recording)
        life = recording.local(name or f"{self._name} view", p.MEMORY, f"view {base}", None, self._pool)
        known = self._design._objects[self._id] if self._id is not None else None
        life.bytes = self._bytes() if self._part is None else None
        life.gpu = known.gpu if isinstance(known, p.Memory) else self._life.gpu if self._life is not None else None
        recording.do(p.View(life.local, base, bool(attributed), bool(held)))
        if held and self._life is not None:
            life.others += ((f"{self.name!r}", self._life),)
            self._life.others += ((f"its view {life.name!r}", life),)
        return Tensor(self._design, life.name, self._space, life=life, pool=self._pool)

    def release(self) -> None:
        """The reference ends (`del`). Raises `DesignError` for memory that lives for ever."""
        recording = self._design._running()
        if self._life is None:
            fail(f"{self._name!r} lives for ever; only what a body makes or receives can be released")
        if self._part is not None:
            fail(f"a part of {self._name!r} is no reference; release the tensor or a view of it")
        recording.release(self._life)

    def take(self) -> Tensor:
        """The next slot of this ring, by a cursor of its own."""
        self._design._running()
        self._design._own(self)
        if self._depth is None or self._index is not None:
            fail(f"{self._name!r} is no ring; give it depth= to take slots")
        return self[self._design._take_cursor(self).advance()]

    def free_async(self, stream: Stream | None = None) -> None:
        """cudaFreeAsync on a stream (default: the current one): what `d.malloc_async` made ends there."""
        from fencepost.model.language.ordered import free_async

        free_async(self, stream)

    def record_stream(self, stream: Stream) -> None:
        """Tell the caching allocator that `stream` uses the block (S64)."""
        recording = self._design._running()
        recording.do(p.RecordStream(self._operand(recording), self._design._stream(stream, recording)))


class Spec:
    """A tensor in a list of accesses, with what else is said about the access."""

    def __init__(self, tensor: Tensor, mode: str, harm: str = "value", same_bytes: bool = False) -> None:
        self.tensor, self.mode, self.harm, self.same_bytes = tensor, mode, harm, same_bytes


def read(x: Tensor, harm: str = "value") -> Spec:
    """A read in a list of accesses: `reads=[fp.read(x, harm="address")]`. `harm` is what a stale value does."""
    _memory(x, "fp.read")
    _check_harm(harm)
    return Spec(x, "r", harm)


def write(x: Tensor, same_bytes: bool = False) -> Spec:
    """A write in a list of accesses: `writes=[fp.write(x, same_bytes=True)]`."""
    _memory(x, "fp.write")
    return Spec(x, "w", same_bytes=same_bytes)


Accesses = Union[Tensor, Spec, Iterable[Union[Tensor, Spec]]]
"""What `reads=` and `writes=` take."""


def accesses(reads: Accesses, writes: Accesses, recording: Recording) -> tuple[p.Access, ...]:
    """The accesses of a kernel or of host code, reads first."""
    found = []
    for mode, given in (("r", listed(reads)), ("w", listed(writes))):
        for entry in given:
            if isinstance(entry, Tensor):
                found.append(p.Access(entry._operand(recording), mode))
            elif isinstance(entry, Spec):
                if entry.mode != mode:
                    fail(f"{entry.tensor.name!r}: fp.read belongs into reads=, fp.write into writes=")
                found.append(entry.tensor._access(recording, mode, entry.harm, entry.same_bytes))
            else:
                fail(f"{entry!r} is no memory; reads= and writes= list buffers, tensors, slots and parts")
    return tuple(found)


def listed(given: Accesses) -> tuple[Tensor | Spec, ...]:
    """What `reads=` or `writes=` lists, so that it can be looked at twice."""
    return given if type(given) is tuple else (given,) if isinstance(given, (Tensor, Spec)) else tuple(given)


def tensors(reads: Accesses, writes: Accesses) -> list[Tensor]:
    """The memory in lists of accesses; what is none is left to `accesses`, which says so."""
    found = []
    for one in (*listed(reads), *listed(writes)):
        x = one.tensor if isinstance(one, Spec) else one
        if isinstance(x, Tensor):
            found.append(x)
    return found


class Event(Referent):
    """A CUDA event: one for ever, a slot of a ring, or a fresh one of the turn."""

    _what = "event"

    def __getitem__(self, key: int | Index | Handle) -> Event:
        if self._depth is None or self._index is not None:
            fail(f"event {self._name!r} is no ring; give it depth= to index it")
        return Event(self._design, self._name, self._id, self._depth, self._slot(key))

    def _operand(self, recording: Recording) -> p.Operand:
        design = recording.design
        if self._design is not design:
            design._own(self)
        if self._id is not None and len(design._known_processes) > 1 and self._id not in design._interprocess:
            owner, mine = design._objects[self._id].process, design._process()
            if owner and mine and mine != owner:
                fail(f"event {self._name!r} belongs to process {owner!r} and is used by process {mine!r}; make it with interprocess=True (S140)")
        return self._resolve(recording)

    def _stays(self) -> bool:
        """Whether no other process can use it (S140)."""
        if self._id is not None:
            return bool(self._design._objects[self._id].process) and self._id not in self._design._interprocess
        return self._life is not None and not self._life.interprocess

    def record(self, stream: Stream | None = None, *, may_fail: bool = False) -> None:
        """Capture the stream's work so far, forgetting an earlier capture (S19).

        It must be a stream of the event's own device (S25); an event made in a body has that of its first record (S17).
        `may_fail`: the call may fail and nobody looks, so that the event keeps what it had; on another device it always does.
        """
        recording = self._design._running()
        operand, where = self._operand(recording), self._design._stream(stream, recording)
        wrong = self._elsewhere(where)
        if wrong is None and self._life is not None and isinstance(where, (p.Obj, p.Slot)):
            self._life.gpu = self._design._gpu_of_operand(where)
        if wrong is not None and not may_fail:
            fail(wrong)
        if wrong is not None:
            recording.step()
        elif may_fail:
            if recording.capturing is not None:
                fail(f"event {self._name!r}: a record that may fail cannot be captured; record it outside of the capture")
            recording.begin_maybe(p.Maybe(f"record of {self._name} succeeds"))
            recording.do(p.Record(operand, where))
            recording.end_maybe()
        else:
            recording.do(p.Record(operand, where))

    def _elsewhere(self, where: p.Operand) -> str | None:
        """What is wrong when the stream is of another device than the event (S25)."""
        event = self._design._objects[self._id] if self._id is not None else None
        stream = self._design._objects[where.id] if isinstance(where, (p.Obj, p.Slot)) else None
        gpu = event.gpu if isinstance(event, p.Event) else self._life.gpu if self._life is not None else None
        if gpu is None or gpu < 0 or not isinstance(stream, p.Stream) or stream.is_agent or gpu == stream.gpu:
            return None
        if not isinstance(event, p.Event):
            return (
                f"event {self._name!r} is recorded on stream {stream.name!r} of GPU {stream.gpu} and before on GPU {gpu}, to which its first "
                "record binds it (S17, S25); use an event for each"
            )
        return (
            f"event {self._name!r} is of GPU {event.gpu} and is recorded on stream {stream.name!r} of GPU {stream.gpu}: a record must be "
            f"on the event's own device (S25); make it with d.event({self._name!r}, gpu={stream.gpu})"
        )

    def synchronize(self, *, time: float | None = None) -> None:
        """The host waits for the latest capture; never recorded: returns at once (S18, S23)."""
        recording = self._design._running()
        recording.do(p.EventSync(self._operand(recording), _time(time)))

    def wait(self, stream: Stream | None = None) -> None:
        """The stream waits for the latest capture (S20)."""
        recording = self._design._running()
        recording.do(p.StreamWaitEvent(self._design._stream(stream, recording), self._operand(recording)))

    @question
    def query(self) -> bool:
        """Whether the captured work is done (S24); never recorded: yes (S18)."""
        recording = self._design._running()
        return recording.yes(p.EventQuery(self._operand(recording)))


class Stream(Referent):
    """A stream, a slot of a ring of streams, or a default stream; `with stream:` makes it current."""

    _what = "stream"

    def __getitem__(self, key: int | Index | Handle) -> Stream:
        if self._depth is None or self._index is not None:
            fail(f"stream {self._name!r} is no ring; give it depth= to index it")
        return Stream(self._design, self._name, self._id, self._depth, self._slot(key))

    def _operand(self, recording: Recording) -> p.Operand:
        design = recording.design
        if self._design is not design:
            design._own(self)
        if self._id is not None and len(design._known_processes) > 1:
            owner, mine = design._objects[self._id].process, design._process()
            if mine != owner:
                who = f"process {mine!r}" if mine else "a thread outside of all processes"
                whose = f"belongs to process {owner!r}" if owner else "is made outside of all processes"
                fail(f"stream {self._name!r} {whose} and is used by {who}; a stream is of one process: make one there")
        return self._resolve(recording)

    def __enter__(self) -> Stream:
        recording = self._design._running()
        self._operand(recording)
        recording.streams.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._design._recording is not None:
            self._design._recording.streams.pop()

    def wait_event(self, event: Event) -> None:
        """Later work waits for the event's latest capture (S20)."""
        recording = self._design._running()
        _event(event, "wait_event")
        recording.do(p.StreamWaitEvent(self._operand(recording), event._operand(recording)))

    def wait_stream(self, other: Stream) -> None:
        """Later work waits for everything in the other stream (S22)."""
        recording = self._design._running()
        recording.do(p.WaitStream(self._operand(recording), self._design._stream(other, recording)))

    def record_event(self, event: Event) -> Event:
        """`event.record(self)` (S19)."""
        _event(event, "record_event")
        event.record(self)
        return event

    def write_value(self, flag: DeviceFlag, value: int) -> None:
        """Store a constant into a device flag when the stream comes here (cuStreamWriteValue32)."""
        _device_flag(flag, "write_value")._do("write_value", value, p.StoreFlag, self)

    def wait_value(self, flag: DeviceFlag, value: int, reset: bool = False) -> None:
        """Later work waits until a device flag is at least `value` (cuStreamWaitValue32, S118); `reset`: it then stores 0."""
        _device_flag(flag, "wait_value")._do("wait_value", value, p.WaitFlag, self, reset=reset)

    def synchronize(self, *, time: float | None = None) -> None:
        """The host waits for everything in the stream (S32)."""
        recording = self._design._running()
        recording.do(p.StreamSync(self._operand(recording), _time(time)))

    @question
    def query(self) -> bool:
        """Whether everything in the stream is done (S34)."""
        recording = self._design._running()
        return recording.yes(p.StreamQuery(self._operand(recording)))


def _enqueues(what: str, recording: Recording, *sides: Tensor) -> bool:
    """Whether a copy of these puts anything on a stream: not where all of it is host memory (S49).

    Received memory may be either. Raises `DesignError` where that matters while the body is traced.
    """
    spaces = [side._space for side in sides]
    if "device" in spaces or "managed" in spaces:
        return True
    if "" in spaces and (recording.capturing is not None or recording.tracer.design._blocking):
        name = next(side.name for side in sides if not side._space)
        fail(
            f"{what}: {name!r} was received, and whether it is host memory, of which nothing is enqueued (S49), is not known here, "
            "where a capture or a blocking stream (S11) makes it matter; copy between it and memory that the design names"
        )
    return "" in spaces


def reachable(given: Iterable[Tensor], what: str, name: str | None = None) -> None:
    """Refuse what a GPU cannot address: pageable memory."""
    for x in given:
        if x._space == "pageable":
            fail(f"{what if name is None else f'{what} {name!r}'} cannot access pageable memory {x.name!r}; use d.pinned or d.managed, or a copy")


def _memory(x: object, where: str) -> None:
    if not isinstance(x, Tensor):
        fail(f"{where}: {x!r} is no memory")


def _event(x: object, where: str) -> None:
    if not isinstance(x, Event):
        fail(f"{where}: {x!r} is no event")


def _device_flag(x: Any, where: str) -> DeviceFlag:
    from fencepost.model.language.meetings import DeviceFlag

    if not isinstance(x, DeviceFlag):
        fail(f"{where}: {x!r} is no device flag; make it with d.device_flag(name)")
    return x


def _check_harm(harm: str) -> None:
    if harm not in HARMS:
        fail(f"harm={harm!r}; it is one of {', '.join(HARMS)}")


def _time(time: float | None) -> float | None:
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not 0 <= time < float("inf"):
        fail(f"time={time!r}; it is a duration in seconds, 0 or more")
    return float(time)


__all__ = ["Accesses", "Event", "Spec", "Stream", "Tensor", "accesses", "read", "write"]
