"""The oracle's side of the calls that are several operations at once: written for running, from the rules and not from the tracer.

Everything works on the text of the log: the hook sees an operation before it is logged, may put others in front of it
(the legacy default stream) or keep it for later (a graph's capture).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from oracle_meetings import Meetings, Stop

if TYPE_CHECKING:
    from oracle import Design
    from oracle_objects import Stream

STREAM_AT = {"Launch": 1, "Copy": 2, "Memset": 1, "Item": 1, "Record": 1, "StreamWaitEvent": 0, "WaitStream": 0,
             "Signal": 1, "Await": 1, "StoreFlag": 2, "WaitFlag": 2}  # fmt: skip
"""Operation -> which of its operands is the stream that it is enqueued on."""


class Hooks:
    """What happens in front of an operation."""

    def __init__(self, design: Design) -> None:
        self.d = design
        self.blocking: list[tuple[str, str]] = []
        """(stream, its legacy default stream)."""
        self.graphs: dict[str, Graph | None] = {}
        """What each thread captures."""
        self.threads: set[str] = set()
        """Threads that are putting implied operations in front of one: others may run meanwhile."""
        self.managed: set[str] = set()
        self.apart: dict[str, str] = {}
        """Processes whose kernels keep the host away from managed memory: what stands for all of it."""
        self.agents: set[str] = set()
        self.lock: Any = None
        """What makes the waits of the legacy stream's rule and the operation behind them one step for other threads."""
        self.holding: set[str] = set()
        self.enqueues: Any = True
        """Of the copy that comes next: empty where all of it is host memory, of which nothing is enqueued (S49)."""
        self.functions: set[str] = set()
        """Threads that are enqueuing a host function."""
        self.replaying: set[str] = set()

    @property
    def graph(self) -> Graph | None:
        return self.graphs.get(threading.current_thread().name)

    @graph.setter
    def graph(self, graph: Graph | None) -> None:
        self.graphs[threading.current_thread().name] = graph

    @property
    def busy(self) -> bool:
        return threading.current_thread().name in self.threads

    @busy.setter
    def busy(self, on: bool) -> None:
        (self.threads.add if on else self.threads.discard)(threading.current_thread().name)

    def kept_apart(self, operation: str, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Managed memory of a device without concurrent access: kernels read what host accesses write."""
        stands = self.apart.get(self.d._mine().process.name)
        if stands is None or operation not in ("Host", "Launch") or threading.current_thread().name in self.replaying:
            return operands
        at = 2 if operation == "Launch" else 1
        thread = threading.current_thread().name
        given = list(operands)
        if any(text.split("/")[0] == stands for _, text, *_ in operands[at]):
            return operands
        if operands[0].startswith("free ") or (operation == "Launch" and not operands[4] and thread not in self.functions):
            return operands  # neither touches managed memory, nor is it a kernel
        touched = any(text.split("/")[0].split("[")[0] in self.managed for _, text, *_ in operands[at])
        if operation == "Host" or thread in self.functions:
            who = thread if operation == "Host" else f"host functions of {operands[1]}"
            given[at] = (*operands[at], *([("w", f"{stands}/'{who}'", False, "value")] if touched else []))
        elif operands[1] not in self.agents:
            given[at] = (*operands[at], ("r", stands, False, "value"))
        return tuple(given)

    def _hold_others_back(self) -> None:
        thread = threading.current_thread().name
        if self.lock is not None and thread not in self.holding and self.d._bodies[thread][0] != "setup":
            self.holding.add(thread)
            self.lock.acquire()

    def done(self) -> None:
        """An operation is through: let others enqueue beside the legacy stream again."""
        thread = threading.current_thread().name
        if thread in self.holding and not self.busy:
            self.holding.discard(thread)
            self.lock.release()

    def __call__(self, operation: str, operands: tuple[Any, ...]) -> bool:
        """Whether the operation is kept for later instead of being run."""
        at = STREAM_AT.get(operation)
        if operation in ("Copy", "Item"):
            enqueues, self.enqueues = self.enqueues, True
            at = at if enqueues else None
        if at is None or self.busy:
            return operation == "RecordStream" and self.graph is not None
        if self.graph is not None:
            return self.graph.keeps(operation, operands, operands[at])
        self.busy = True
        for used in (*([operands[1]] if operation == "WaitStream" else []), operands[at]):
            for stream, legacy in self.blocking:
                if used in (stream, legacy):
                    self._hold_others_back()
                if used == legacy:
                    self.d.world.do("WaitStream", legacy, stream)
                elif used == stream:
                    self.d.world.do("WaitStream", stream, legacy)
        self.busy = False
        return False


class Graph:
    def __init__(self, design: Design, name: str, pool: Graph | None = None, several: bool = False) -> None:
        self.lock = design.lock(f"launching {name}") if several else None
        self.d, self.name = design, name
        self.free: list[tuple[str, str, str | None]] = [] if pool is None else pool.free
        """Memory that captures of the pool gave back: its name, space and stream."""
        self.late: list[tuple[str, str, str | None]] = []
        self.noted: set[str] = set()
        self.kept: list[tuple[str, list[Any]]] = []
        self.streams: list[str] = []
        self.events: list[str] = []
        self.addresses: dict[str, tuple[str, str]] = {}
        self.of: dict[str, tuple[str, str, str | None]] = {}
        self.script = ""
        """The script that has captured it."""
        self.done = False

    def capture(self, stream: Stream | None = None) -> Graph:
        self.kept, self.streams, self.events, self.addresses = [], [(stream or self.d.current_stream()).text], [], {}
        self.stream = stream or self.d.current_stream()
        self.noted = set()
        return self

    def private(self, name: str, space: str, stream: str | None) -> Any:
        """Memory of the pool: the one that was given back on that stream, or new."""
        made = next((one for one in self.free if one[1:] == (space, stream)), None)
        if made is not None:
            self.free.remove(made)
        tensor = self.d._of(space, f"{name} of {self.name}" if made is None else made[0], (), {})
        tensor.graph, self.of = self, {**self.of, tensor.text: (tensor.text, space, stream)}
        return tensor

    def take_back(self, tensor: Any) -> None:
        """What other streams were said to use comes back when the capture is over (S74)."""
        (self.late if tensor.text in self.noted else self.free).append(self.of[tensor.text])

    def __enter__(self) -> Graph:
        self.d._mine().streams.append(self.stream)
        self.d._hooks.graph = self
        return self

    def __exit__(self, *_: object) -> None:
        self.d._hooks.graph = None
        self.free += self.late
        self.late = []
        self.d._mine().streams.pop()
        thread = threading.current_thread().name
        if self.d._bodies[thread][0] == "script":
            self.d.world.do("CellSet", f"{self.name} captured", ())
            self.script = thread
        self.done = True

    def keeps(self, operation: str, operands: tuple[Any, ...], stream: str) -> bool:
        if operation == "WaitStream" and operands[1] in self.streams and stream not in self.streams:
            self.streams.append(stream)
        if operation == "StreamWaitEvent" and operands[1] in self.events and stream not in self.streams:
            self.streams.append(stream)
        if stream not in self.streams:
            return False
        given = list(operands)
        if operation == "Record":
            if operands[0] not in self.events:
                self.events.append(operands[0])
        elif operation == "Launch":
            given[2] = tuple((mode, self._baked(text), *more) for mode, text, *more in operands[2])
        elif operation == "Copy":
            given[0], given[1], given[4] = self._baked(operands[0]), self._baked(operands[1]), True
        elif operation == "Memset":
            given[0] = self._baked(operands[0])
        self.kept.append((operation, given))
        return True

    def _baked(self, text: str) -> str:
        """The address of a block that somebody holds; other memory has its own address."""
        whole, slash, part = text.partition("/")
        if "#" not in whole and ":" not in whole:
            return text
        if whole not in self.addresses:
            cell = f"{self.name} address {len(self.addresses)}"
            alias = self.d._hold(type(self.d._memory(""))(self.d, self.d._serial()))
            self.d._hooks.busy = True
            self.d.world.do("View", alias.text, whole, False)
            self.d.world.do("CellSet", cell, (alias.text,))
            self.d._hooks.busy = False
            self.addresses[whole] = (cell, alias.text)
        return self.addresses[whole][1] + slash + part

    def replay(self, stream: Stream | None = None) -> None:
        here = (stream or self.d.current_stream(self.stream.gpu)).text
        if not self.done:
            raise Stop  # before the capture: a design error in the run, which ends here
        if self.script not in ("", threading.current_thread().name):
            self.d.world.do("CellGet", f"{self.name} captured", (), False)
        streams = {self.streams[0]: here}
        streams |= {name: f"{self.name} branch {k}" for k, name in enumerate(self.streams[1:])}
        events = {name: f"{self.name} edge {k}" for k, name in enumerate(self.events)}
        world = self.d.world
        if self.lock is not None:
            self.lock.acquire()
        self.d._hooks.replaying.add(threading.current_thread().name)
        world.do("StreamWaitEvent", here, f"{self.name} launched")
        for cell, alias in self.addresses.values():
            self.d._hold(type(self.d._memory(""))(self.d, alias))
            world.do("CellGet", cell, (alias,), False)
        for operation, operands in self.kept:
            given = list(operands)
            at = STREAM_AT[operation]
            given[at] = streams[given[at]]
            if operation == "Record":
                given[0] = events[given[0]]
            elif operation == "StreamWaitEvent":
                given[1] = events[given[1]]
            elif operation == "WaitStream":
                given[1] = streams[given[1]]
            if operation == "Launch":
                given[-1] = False
            world.do(operation, *given)
        world.do("Record", f"{self.name} launched", here)
        if self.lock is not None:
            self.lock.release()
        self.d._hooks.replaying.discard(threading.current_thread().name)


class Agent:
    def __init__(self, design: Design, name: str, queues: int) -> None:
        self.d, self.name = design, name
        self.names = [name] if queues == 1 else [f"{name} queue {k}" for k in range(queues)]
        design._hooks.agents.update(self.names)

    def post(self, name, reads=(), writes=(), *, after=None, queue=0, time=None):  # type: ignore
        mine = self.names[queue]
        if after is not None:
            kind = "StreamWaitEvent" if type(after).__name__ == "Event" else "WaitStream"
            self.d.world.do(kind, mine, after.text)
        self.d.world.do("Launch", name, mine, self.d._accesses(reads, writes), time, True)
        handle = self.d.event(f"{name} of {self.name} done")
        self.d.world.do("Record", handle.text, mine)
        return handle


class Streams:
    def __init__(self, design: Design, name: str, size: int) -> None:
        self.d, self.name, self.size, self.asked = design, name, size, 0

    def stream(self) -> Stream:
        self.asked += 1
        return self.d.stream(f"{self.name} {(self.asked - 1) % self.size}")


class Composites(Meetings):
    """Methods of the executing `Design`."""

    def graph(self: Any, name: str, *, pool: Graph | None = None, several_threads: bool = False) -> Graph:
        return Graph(self, name, pool, several_threads)

    def agent(self: Any, name: str, queues: int = 1) -> Agent:
        return Agent(self, name, queues)

    def torch_streams(self: Any, name: str = "pool stream", size: int = 32) -> Streams:
        return Streams(self, name, size)

    def host_function(self: Any, name: str, reads: Any = (), writes: Any = (), *, stream: Any = None, time: Any = None) -> None:
        functions, thread = self._hooks.functions, threading.current_thread().name
        functions.add(thread)
        self.launch(name, reads, writes, stream=stream, time=time)
        functions.discard(thread)

    def memcpy(self: Any, dst: Any, src: Any, *, time: Any = None) -> None:
        legacy = self.default_stream(self.current_stream().gpu)
        device = ("device", "managed")
        if src.space == "pageable" and dst.space in device:
            staging = self.empty_pinned("staging")
            self.host("stage", reads=[src], writes=[staging])
            dst.copy_(staging, True, stream=legacy, time=time)
            staging.release()
        else:
            dst.copy_(src, src.space in device and dst.space in device, stream=legacy, time=time)

    def peer_copy(self: Any, dst: Any, src: Any, *, source: Any, target: Any, time: Any = None) -> None:
        self.world.do("WaitStream", source.text, target.text)
        dst.copy_(src, True, stream=source, time=time)
        self.world.do("WaitStream", target.text, source.text)
