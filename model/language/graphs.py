"""CUDA graphs: what is captured once and runs again at every replay, with the addresses that were baked in (S91-S102)."""

from __future__ import annotations

import itertools
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from fencepost.model import program as p
from fencepost.model.effects import MEETINGS
from fencepost.model.language.errors import Fixed, fail, here
from fencepost.model.language.index import ANY
from fencepost.model.language.objects import Stream, Tensor
from fencepost.model.language.unwritten import Used
from fencepost.model.operations.device import accesses

if TYPE_CHECKING:
    from fencepost.model.language.design import Design
    from fencepost.model.language.tracer import Recording, Tracer

_SYNCHRONISING = (p.EventSync, p.StreamSync, p.DeviceSync, p.Item)
_NODES = (p.Launch, p.Copy, p.Memset, *MEETINGS)
_ORDER = (p.Record, p.StreamWaitEvent, p.WaitStream)


class _Baked(NamedTuple):
    """The address of a block: what a cell keeps from the capture on, without keeping the block alive."""

    cell: int
    part: p.Part | None


class _Block(NamedTuple):
    """That a graph took a block of its pool, or gave it back: of `bytes`, at the address of the memory `number`."""

    run: Recording
    """Of the body that captures the graph."""
    free: bool
    number: int
    home: object
    """Space and stream: a block goes to allocations of its own stream (S62)."""
    bytes: int
    name: str
    """Of the tensor."""


class Graph(Fixed):
    """A captured graph. `with g.capture():` in a setup or script, `g.replay()` wherever it is launched.

    Kernels, copies and fills inside the capture do not run there (S91); host code does, once. Host memory, device memory
    and blocks are baked by address (S92): a block that is freed afterwards is used all the same (S89, S97, S101). What is
    allocated inside the capture belongs to the graph for ever (S74, S88), unless it is released there: then later allocations
    of the same stream get it, inside the capture and in later captures of graphs that share the pool (`pool=`, S96, S97);
    what `record_stream` noted is held until the capture ends (S74). Any released block that is large enough is taken, the first
    one first. A launch comes after earlier launches of the same graph (S93); graphs are not ordered with each other (S95).
    """

    def __init__(self, design: Design, name: str, pool: Graph | None = None, several_threads: bool = False) -> None:
        self._design, self._name, self._several_threads = design, name, several_threads
        self._blocks: list[_Block] = [] if pool is None else pool._blocks
        """What happened to the pool's memory: of this graph, and of those that share the pool."""
        self._cut: dict[int, str] = {} if pool is None else pool._cut
        """The pool's memory, by its number -> whose tensor there has parts that are no spans."""
        self._used: list[Used] = []
        """What the nodes read and write of the memory of captures."""
        self._late: list[_Block] = []
        self._noted: set[int] = set()
        self._nodes: list[Any] | None = None
        self._origin: p.Operand | None = None
        self._branches: dict[p.Operand, int] = {}
        """Captured streams besides the origin -> the graph's own stream that stands for each at replay."""
        self._events: dict[p.Operand, int] = {}
        self._cells: dict[p.Operand, int] = {}
        self._known: dict[p.Operand, dict[p.Operand, int]] = {}
        self._length: dict[p.Operand, int] = {}
        self._recorded: dict[p.Operand, dict[p.Operand, int]] = {}
        self._homes: dict[p.Operand, int] = {}
        """The GPU of each event that is recorded in the capture."""
        self._callbacks: list[str] = []
        self._done: int | None = None
        self._replayer: str | None = None
        self._captured_by: tuple[Tracer, Recording] | None = None
        """The body that captures it, which runs several times, and its latest run that does."""
        self._captured: tuple[int, str] | None = None
        """A cell that is filled when a script has captured the graph, and that script."""

    # ------------------------------------------------------------ capture

    def capture(self, stream: Stream | None = None) -> Capture:
        """`with g.capture():` records what is enqueued on `stream` (default: the current one) and on streams that join it."""
        return Capture(self, stream)

    def _begin(self, origin: p.Operand, recording: Recording) -> None:
        self._nodes, self._origin = [], origin
        self._branches, self._events, self._cells = {}, {}, {}
        self._known, self._length, self._recorded = {origin: {}}, {origin: 0}, {}
        # When the body runs again, nothing is left of what it captured before.
        self._blocks[:] = [one for one in self._blocks if one.run is recording or one.run.tracer is not recording.tracer]
        self._late, self._noted, self._used = [], set(), []
        self._homes, self._callbacks = {}, []

    def _home_of(self, stream: p.Operand) -> int:
        """The GPU of a captured stream, whose nodes stay there (S16)."""
        return self._design._gpu_of_operand(stream)

    def _calls_back(self, name: str, stream: p.Operand) -> None:
        """A callback is captured: its flags say how far its stream is, so it stays on it."""
        if stream != self._origin:
            fail(f"graph {self._name!r}: callback {name!r} is captured on a branch; make it for the stream that is captured")
        self._callbacks.append(name)

    def _take(self, operation: p.Operation, recording: Recording) -> bool:
        """Whether the graph takes the operation, so that it does not run now."""
        stream = getattr(operation, "stream", None)
        if isinstance(operation, p.WaitFlag) and stream is None:
            return False  # the host's own wait on a word in memory is no CUDA call
        if isinstance(operation, _SYNCHRONISING) or (isinstance(operation, p.Copy) and recording.may_hold_host(operation)):
            fail(f"graph {self._name!r}: the host cannot wait during a capture (S99); move the wait out of `with capture()`")
        if isinstance(operation, p.View):
            of = self._design._private.refers(operation.base, recording.tracer.name)
            if of is not None:
                self._design._private.views[recording.tracer.name, operation.local] = of._replace(held=of.held and operation.held)
        if isinstance(operation, p.RecordStream):
            of = self._design._private.refers(operation.block, recording.tracer.name)
            if of is not None:
                self._noted.add(of.memory)
            return True  # uses recorded during a capture are discarded (S74)
        if isinstance(operation, (p.StreamWaitEvent, p.WaitStream)):
            return self._order(operation)
        if stream not in self._known or not isinstance(operation, (*_NODES, p.Record)):
            return False
        assert self._nodes is not None
        self._length[stream] += 1
        if isinstance(operation, p.Record):
            self._recorded[operation.event] = {**self._known[stream], stream: self._length[stream]}
            self._homes[operation.event] = self._home_of(stream)
            self._nodes.append(operation)
            return True
        if isinstance(operation, p.Copy) and any(self._unpinned(x) for x in (operation.src, operation.dst)):
            fail(f"graph {self._name!r}: a copy from or to unpinned memory cannot be captured (S99); pin it")
        self._notice(operation, recording)
        changed = {name: self._bake(value, recording) for name, value in _operands(operation)}
        if isinstance(operation, p.Copy):
            changed["raw"] = True  # no allocator sees what a replay does (S83)
        self._nodes.append((operation, changed))
        return True

    def _notice(self, operation: p.Operation, recording: Recording) -> None:
        """What the node reads and writes of the memory of captures; it writes when it has read."""
        private = self._design._private
        for access in sorted(accesses(operation), key=lambda one: one.mode == "w"):
            of = private.refers(access.target, recording.tracer.name)
            if of is None:
                continue
            name = getattr(operation, "name", "copy_")
            (mine, _), (latest, _) = private.tensors[of.memory][of.tensor], private.tensors[of.memory][-1]
            if of.tensor != len(private.tensors[of.memory]) - 1:
                fail(
                    f"graph {self._name!r}: {name!r} uses {mine!r} by a raw pointer when {latest!r} has its block, so that the bytes are another "
                    "tensor's (S97); use it before that is made, or keep a view that holds it"
                )
            self._used.append(Used(of, access.mode == "w", access.same_bytes, name, here() if access.mode != "w" else ""))

    def _order(self, operation: p.StreamWaitEvent | p.WaitStream) -> bool:
        """Forks and joins: they are edges of the graph, and spread the capture to other streams (S28, S94, S98)."""
        if isinstance(operation, p.StreamWaitEvent):
            if operation.event not in self._recorded:
                if operation.stream in self._known:
                    fail(
                        f"graph {self._name!r}: a captured stream waits for an event that was not recorded in the capture; "
                        "wait before it, or record the event inside (S28)"
                    )
                return False
            known = self._recorded[operation.event]
        else:
            if operation.other not in self._known:
                if operation.stream in self._known:
                    fail(f"graph {self._name!r}: a captured stream waits for one that is not captured (S98); wait before it")
                return False
            known = {**self._known[operation.other], operation.other: self._length[operation.other]}
        mine = self._known.setdefault(operation.stream, {})
        self._length.setdefault(operation.stream, 0)
        for stream, count in known.items():
            mine[stream] = max(mine.get(stream, 0), count)
        assert self._nodes is not None
        self._nodes.append(operation)
        return True

    def _unpinned(self, operand: Any) -> bool:
        thing = self._design._objects[operand.id] if isinstance(operand, (p.Obj, p.Slot)) else None
        return isinstance(thing, p.Memory) and thing.space == "pageable"

    def _bake(self, operand: Any, recording: Recording) -> Any:
        if isinstance(operand, tuple):
            return tuple(self._bake(one, recording) for one in operand)
        if isinstance(operand, p.Access):
            return (operand, self._bake(operand.target, recording))
        index = operand.index if isinstance(operand, p.Slot) else None
        part = operand.part.index if isinstance(operand.part, p.At) else None
        if any(one is not None and not isinstance(one, p.Fixed) for one in (index, part)):
            fail(f"graph {self._name!r} bakes addresses (S92): index the ring by a constant, or capture one graph for each slot")
        if not isinstance(operand, p.Local):
            return operand
        whole = p.Local(operand.id)
        if whole not in self._cells:
            cell = self._design._made(p.Cell(f"{self._name} address {len(self._cells)}", (p.MEMORY,)))
            self._cells[whole] = cell
            alias = recording.local(f"{self._name} address", p.MEMORY, f"view {whole}")
            recording.capturing = None
            recording.do(p.View(alias.local, whole, False, False))
            of = self._design._private.refers(whole, recording.tracer.name)
            if of is not None:
                self._design._private.views[recording.tracer.name, alias.local] = of._replace(held=False)
            recording.do(p.CellSet(p.Obj(cell), (p.Local(alias.local),)))
            recording.capturing = self
        return _Baked(self._cells[whole], operand.part)

    def _end(self, recording: Recording) -> None:
        assert self._origin is not None and self._nodes is not None
        if not self._nodes:
            fail(f"graph {self._name!r} captures nothing; enqueue on the captured stream inside `with capture()`")
        joined = self._known[self._origin]
        for number, stream in enumerate(s for s in self._known if s != self._origin):
            if joined.get(stream, 0) < self._length[stream]:
                name = getattr(self._design._objects[getattr(stream, "id", 0)], "name", "?")
                fail(f"graph {self._name!r}: stream {name!r} does not rejoin the capturing stream before the end (S98)")
            home = p.Stream(f"{self._name} branch {number}", None, self._home_of(stream), False, self._design._process())
            self._branches[stream] = self._design._made(home)
        for number, event in enumerate(self._recorded):
            self._events[event] = self._design._made(p.Event(f"{self._name} edge {number}", None, self._homes[event]))
        self._blocks += self._late
        self._done = self._design._made(p.Event(f"{self._name} launched", None, self._home_of(self._origin)))
        if recording.tracer.kind != "setup":
            self._captured = self._design._made(p.Cell(f"{self._name} captured", ())), recording.tracer.name
            recording.do(p.CellSet(p.Obj(self._captured[0]), ()))

    # ------------------------------------------------------------ replay

    def replay(self, stream: Stream | None = None) -> None:
        """Launch the graph on `stream` (default: the caller's current one of the GPU that it was captured on, S100)."""
        recording = self._design._running()
        if self._nodes is None or self._done is None:
            fail(f"graph {self._name!r} is replayed before it is captured; write the capture, in a setup, in front")
        if recording.capturing is not None:
            fail(f"graph {self._name!r} is replayed inside a capture; replay it outside")
        if self._cells and self._replayer not in (None, recording.tracer.name):
            fail(
                f"graph {self._name!r} has blocks baked in and is replayed by the threads {self._replayer!r} and "
                f"{recording.tracer.name!r}; let one thread replay it, or capture one graph for each"
            )
        if not self._several_threads and self._replayer not in (None, recording.tracer.name):
            fail(
                f"graph {self._name!r} is replayed by the threads {self._replayer!r} and {recording.tracer.name!r}; make it with "
                "d.graph(..., several_threads=True)"
            )
        self._replayer = recording.tracer.name
        assert self._origin is not None
        home = self._home_of(self._origin)
        target = self._design._stream(stream or self._design.current_stream(home), recording)
        if self._home_of(target) != home:
            fail(
                f"graph {self._name!r} is captured on GPU {home} and replayed on a stream of GPU {self._home_of(target)}; replay it on a "
                f"stream of GPU {home}"
            )
        if self._callbacks and target != self._origin:
            fail(
                f"graph {self._name!r} holds callback {self._callbacks[0]!r} and is replayed on another stream than the captured one, where "
                "runs of one callback could overlap, which is not in the language; replay it there, or make a callback for each"
            )
        if self._captured is not None and self._captured[1] != recording.tracer.name:
            recording.do(p.CellGet(p.Obj(self._captured[0]), ()))  # a design error where the capture may come later
        streams: dict[p.Operand, p.Operand] = {s: p.Obj(number) for s, number in self._branches.items()}
        streams[self._origin] = target
        # A launch is one call, and its waits, nodes and record are several steps here (S93). On one stream alone, what another thread
        # enqueues between the nodes is ordered with all of them in any case.
        launch = recording.alone(f"launching {self._name}" if self._several_threads else None)
        branched = self._branches or self._callbacks
        with launch, recording.as_one_call(f"graph {self._name!r}", target) if branched else recording.alone(None):
            self._enqueue(recording, target, streams)

    def _enqueue(self, recording: Recording, target: p.Operand, streams: dict[p.Operand, p.Operand]) -> None:
        """All that one launch enqueues."""
        assert self._nodes is not None and self._done is not None
        with recording.implied():
            recording.do(p.StreamWaitEvent(target, p.Obj(self._done)))
        addresses: dict[int, int] = {}
        for cell in self._cells.values():
            life = recording.local(f"{self._name} address", p.MEMORY, "cell")
            recording.do(p.CellGet(p.Obj(cell), (life.local,)))
            addresses[cell] = life.local
        for node in self._nodes:
            recording.do(self._again(node, streams, addresses), again=True)
        with recording.implied():
            recording.do(p.Record(p.Obj(self._done), target))

    def _again(self, node: Any, streams: dict[p.Operand, p.Operand], addresses: dict[int, int]) -> p.Operation:
        if isinstance(node, p.Record):
            return p.Record(p.Obj(self._events[node.event]), streams[node.stream])
        if isinstance(node, p.StreamWaitEvent):
            return p.StreamWaitEvent(streams[node.stream], p.Obj(self._events[node.event]))
        if isinstance(node, p.WaitStream):
            return p.WaitStream(streams[node.stream], streams[node.other])

        def address(value: Any) -> Any:
            if isinstance(value, _Baked):
                return p.Local(addresses[value.cell], value.part)
            if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], p.Access):
                return msgspec.structs.replace(value[0], target=address(value[1]))
            return tuple(address(one) for one in value) if isinstance(value, tuple) else value

        operation, changed = node
        given = {name: address(value) for name, value in changed.items()}
        if isinstance(operation, p.Launch):
            given["kernel"] = False  # a launch that blocks is that of the graph, not of its nodes (S94, S113)
        return msgspec.structs.replace(operation, stream=streams[operation.stream], **given)  # type: ignore[no-any-return]


def _operands(operation: p.Operation) -> list[tuple[str, Any]]:
    """Fields of a node that name memory."""
    names = ("accesses",) if isinstance(operation, p.Launch) else ("dst", "src")
    return [(name, getattr(operation, name)) for name in names if hasattr(operation, name)]


class Capture:
    """The `with` block of a capture."""

    def __init__(self, graph: Graph, stream: Stream | None) -> None:
        self._graph, self._stream = graph, stream

    def __enter__(self) -> Graph:
        graph, design = self._graph, self._graph._design
        recording = design._running()
        if recording.capturing is not None:
            fail(f"graph {graph._name!r} is captured inside another capture")
        if recording.tracer.kind == "loop" or recording.path or recording.drains or any(f.kind == "maybe" for f in recording.frames):
            fail(f"graph {graph._name!r} is captured once: in a @d.setup or @d.script, before any question and in no maybe or drain")
        if graph._captured_by is not None and (graph._captured_by[0] is not recording.tracer or graph._captured_by[1] is recording):
            fail(f"graph {graph._name!r} is captured a second time; a CUDAGraph captures once: make another d.graph")
        graph._captured_by = (recording.tracer, recording)
        stream = self._stream or design.current_stream()
        origin = stream._operand(recording)
        thing = design._objects[stream._id] if stream._id is not None else None
        if isinstance(thing, p.Stream) and thing.default:
            fail(f"graph {graph._name!r}: the default stream cannot be captured (S98); capture on d.stream()")
        recording.streams.append(stream)
        graph._begin(origin, recording)
        recording.capturing = graph
        recording.tracer.captures = True
        return graph

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        recording = self._graph._design._recording
        if recording is None:
            return
        recording.capturing = None
        recording.streams.pop()
        if error is None:
            self._graph._end(recording)


class PrivateMemory(Tensor):
    """What is allocated inside a capture: the graph's own memory, at one address for ever (S74, S88)."""

    def __init__(self, design: Design, name: str, space: str, number: int, graph: Graph, block: _Block) -> None:
        super().__init__(design, name, space, number)
        self._graph, self._block = graph, block
        self._released = False

    def __getitem__(self, key: Any) -> Tensor:
        """A part. Names tell nothing of the parts of another tensor at the same address; spans do, the block being one of its size."""
        if not isinstance(key, slice) and key is not ANY:
            other = self._graph._cut.setdefault(self._block.number, self._name)
            if other != self._name:
                fail(
                    f"{self._name!r} has the block that {other!r} had (S96), and which parts of the two share bytes cannot be told by {key!r}; "
                    "use spans, as in x[0:64]"
                )
        return _PrivatePart(self, super().__getitem__(key))

    def release(self) -> None:
        """Give the block back to the graph's pool, inside the capture (`del`); later allocations may get it (S96, S97)."""
        graph, recording = self._graph, self._design._running()
        if recording.capturing is not graph:
            fail(f"{self._name!r} is memory of graph {graph._name!r}; it is released inside the capture, or stays the graph's for ever")
        if self._released:
            fail(f"{self._name!r} is released twice; release it once")
        for _, life in recording.alive():
            view = self._design._private.views.get((recording.tracer.name, life.local))
            if view is not None and view.memory == self._id and view.held:
                fail(f"{self._name!r} is released while {life.name!r} refers to it too, so its block is not free; release that first")
        self._released = True
        held = self._id in graph._noted
        (graph._late if held else graph._blocks).append(self._block._replace(free=True))

    def _operand(self, recording: Recording) -> p.Operand:
        if self._released:
            fail(f"{self._name!r} is used after its release; use it before, or keep a raw pointer: {self._name}.view(held=False)")
        return super()._operand(recording)


class _PrivatePart(Tensor):
    """A part of it, which ends with the whole."""

    def __init__(self, whole: PrivateMemory, part: Tensor) -> None:
        super().__init__(whole._design, whole._name, whole._space, whole._id, part=part._part)
        self._whole = whole

    def _operand(self, recording: Recording) -> p.Operand:
        self._whole._operand(recording)
        return super()._operand(recording)


def private_memory(graph: Graph, name: str, space: str, bytes_: int, stream: p.Operand | None) -> Tensor:
    """A block of the graph's pool: one that was released there, of this stream, or a new one."""
    design = graph._design
    home = (space, stream)
    run = design._running()
    free: dict[int, _Block] = {}
    for one in graph._blocks:
        if one.free:
            free[one.number] = one
        else:
            free.pop(one.number, None)
    fitting = [one for one in free.values() if one.home == home]
    if len(fitting) > 1 or any(one.bytes != bytes_ for one in fitting):
        fail(
            f"{name!r} of {bytes_} bytes may lie in any of the released blocks ({', '.join(str(one.bytes) for one in fitting)} bytes; best fit, "
            "split and merge, S70), which is not in the language; release one block of that size before it, or allocate before the release"
        )
    if fitting:
        block = fitting[0]._replace(run=run, free=False, name=name)
    else:
        gpu = design._gpu(None) if stream is None else graph._home_of(stream)
        made = p.Memory(_unused(graph, name), space, None, bytes_, gpu, design._process())
        block = _Block(run, False, design._made(made), home, bytes_, name)
    graph._blocks.append(block)
    design._private.allocated(block.number, name, graph)
    return PrivateMemory(design, f"{name} of {graph._name}", space, block.number, graph, block)


def _unused(graph: Graph, name: str) -> str:
    """What the memory of a tensor is called: two of one name in a capture, neither released, are two."""
    known, own = graph._design._implicit, {one.number for one in graph._blocks}
    names = (f"{name}{f' {k}' if k > 1 else ''} of {graph._name}" for k in itertools.count(1))
    return next(one for one in names if known.get(one) not in own)
