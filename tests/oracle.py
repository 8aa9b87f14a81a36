"""Runs the bodies of a design as plain Python, with no tracing: the oracle that the tracer is compared with.

`run` puts its own `Design` in the place of `fencepost.Design` while the design function runs. Its objects
(oracle_objects.py) execute the host-level effects at once: queues hold items, cursors are integers, the turn is an integer, a
`maybe` block that does not run is really skipped. The order of threads and the open choices come from a seed. The outcome is a
log of (thread, operation, operands) in the order of execution.

Nothing of fencepost.model.language is used here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import fencepost

from oracle_composites import Composites, Hooks
from oracle_objects import (
    Cell,
    Counter,
    Cursor,
    Entry,
    Event,
    Flag,
    Lock,
    Pool,
    Pos,
    Queue,
    Skip,
    Stream,
    Tensor,
    World,
)


class Mine:
    """What one thread has: its streams, scopes, choices."""

    def __init__(self, default: Stream | None, process: Process) -> None:
        self.default, self.process = default, process
        self.streams: list[Stream] = []
        self.frames: list[list[Tensor]] = []
        self.choices: dict[str, Any] = {}
        self.works: list[Any] = []
        self.serial = 0
        self.turn = 0


class Scope:
    def __init__(self, design: Design) -> None:
        self.d = design

    def __enter__(self) -> Scope:
        self.frame: list[Tensor] = []
        self.d._mine().frames.append(self.frame)
        return self

    def keep(self, *tensors: Tensor) -> None:
        frames = self.d._mine().frames
        for tensor in tensors:
            self.frame.remove(tensor)
            frames[frames.index(self.frame) - 1].append(tensor)

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            frames = self.d._mine().frames
            assert frames.pop() is self.frame
            self.d._drop(self.frame)


class Maybe(Scope):
    """A block that is really skipped: the tracing hook raises at its first line, and the exit swallows that."""

    def __init__(self, design: Design, name: str) -> None:
        super().__init__(design)
        self.name = name

    def __enter__(self) -> Scope:
        self.runs = self.d._open("Maybe", (self.name,))
        if self.runs:
            return super().__enter__()
        self.frame_of = sys._getframe(1)

        def leave(*_: object) -> None:
            raise Skip

        sys.settrace(lambda *_: None)
        self.frame_of.f_trace = leave
        return self

    def __exit__(self, kind: Any, *rest: object) -> bool | None:  # type: ignore[override]
        if self.runs:
            super().__exit__(kind, *rest)
            return None
        sys.settrace(None)
        self.frame_of.f_trace = None
        return kind is Skip


class Process:
    def __init__(self, design: Design, name: str, gpu: int) -> None:
        self.d, self.name, self.gpu = design, name, gpu

    def __enter__(self) -> Process:
        self.d._processes.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.d._processes.pop()


class Design(Composites):
    """The language again, executing."""

    world: World

    def __init__(self, name: str) -> None:
        self.name = name
        self._processes = [Process(self, "", 0)]
        self._bodies: dict[str, tuple[str, Callable[..., Any], Mine]] = {}
        self._cells: Any = _Empty()
        self._takes: dict[str, Cursor] = {}
        self._agreed: dict[tuple[str, int], Any] = {}
        self._hooks = self.world.hook = Hooks(self)

    def _mine(self) -> Mine:
        return self._bodies[threading.current_thread().name][2]

    def _inside(self) -> bool:
        return threading.current_thread().name in self._bodies

    def _serial(self) -> str:
        mine = self._mine()
        mine.serial += 1
        return f"{threading.current_thread().name}#{mine.serial}"

    def _hold(self, tensor: Tensor) -> Tensor:
        tensor.held = True
        self._mine().frames[-1].append(tensor)
        return tensor

    def _received(self, values: Any, where: str) -> tuple[Any, ...]:
        """What comes out of a queue or cell: references of its own, and events of which the text does not say which they are."""
        got: list[Any] = []
        for position, value in enumerate(values):
            if isinstance(value, Tensor):
                value = self._hold(Tensor(self, value.text))
            elif isinstance(value, Event):
                value = Event(self, value.text)
            if isinstance(value, (Tensor, Event)):
                value.name = where if len(values) == 1 else f"{where}.{position}"
            got.append(value)
        return tuple(got)

    def _drop(self, frame: list[Tensor]) -> None:
        for tensor in frame:
            if tensor.held:
                tensor.closes()
        for tensor in reversed(frame):
            if tensor.held:
                tensor.release()

    def _s(self, stream: Stream | None, *tensors: Tensor) -> str:
        """Where a call runs: on the stream that it names, else on the current one of the GPU that its device memory is of (S16)."""
        if stream is not None:
            return stream.text
        homes = {one.gpu for one in tensors if one.space in ("device", "")}
        return self.current_stream(homes.pop() if len(homes) == 1 else None).text

    def _open(self, question: str, operands: tuple[Any, ...]) -> bool:
        return self.world.ask(question, operands, lambda: self.world.random.choice(["yes", "no"])) == "yes"

    def _memory(self, name: str, depth: int | None = None, bytes: int = 4096, gpu: int | None = None) -> Tensor:
        made = Tensor(self, name, depth)
        made.gpu = self._processes[-1].gpu if gpu is None else gpu
        return made

    def _of(self, space: str, name: str, given: tuple[Any, ...], more: dict[str, Any]) -> Tensor:
        made = self._memory(name, *given, **more)
        made.space = space
        return made

    def pinned(self, name: str, *given: Any, **more: Any) -> Tensor:
        return self._of("pinned", name, given, more)

    def pageable(self, name: str, *given: Any, **more: Any) -> Tensor:
        return self._of("pageable", name, given, more)

    def device(self, name: str, *given: Any, **more: Any) -> Tensor:
        return self._of("device", name, given, more)

    def managed(self, name: str, *given: Any, concurrent: bool = True, **more: Any) -> Tensor:
        process = self._processes[-1].name
        self._hooks.managed.add(name)
        if not concurrent:
            self._hooks.apart[process] = "all managed memory" + (f" of {process}" if process else "")
        return self._of("managed", name, given, more)

    def stream(
        self, name: str, depth: int | None = None, gpu: int | None = None, *, blocking: bool = False, several_threads: bool = False
    ) -> Stream:
        if several_threads and blocking:
            self._hooks.lock = self.lock("enqueuing beside the legacy stream")
        if blocking:
            self._hooks.blocking.append((name, self.default_stream(gpu).text))
        made = Stream(self, name, depth)
        made.gpu = self._processes[-1].gpu if gpu is None else gpu
        return made

    def event(self, name: str, depth: int | None = None, gpu: int | None = None, *, interprocess: bool = False) -> Event:
        if not self._inside():
            made = Event(self, name, depth)
            made.gpu = self._processes[-1].gpu if gpu is None else gpu
            return made
        made = Event(self, self._serial())
        made.name = name
        self.world.do("NewEvent", made.text)
        return made

    def cell(self, name: str, depth: int | None = None, item: Any = ("memory",)) -> Cell:
        return Cell(self, name, depth, item)

    def cursor(self, name: str, depth: int) -> Cursor:
        return Cursor(self, name, depth)

    def queue(self, name: str, capacity: int, item: Any = (), several_threads: bool = False) -> Queue:
        return Queue(self, name, capacity, item, self.lock(f"getting from {name}") if several_threads else None)

    def pool(self, name: str, size: int, of: str = "device") -> Pool:
        return Pool(self, name, size, of)

    def lock(self, name: str) -> Lock:
        return Lock(self, name, 1)

    def semaphore(self, name: str, count: int = 1) -> Lock:
        return Lock(self, name, count)

    def flag(self, name: str) -> Flag:
        return Flag(self, name)

    def counter(self, name: str) -> Counter:
        return Counter(self, name)

    def process(self, name: str, gpu: int = 0) -> Process:
        return Process(self, name, gpu)

    def _thread(self, name: str, kind: str, stream: Stream | None, process: Process | None) -> Any:
        def enter(body: Any) -> Any:
            self._bodies[name] = (kind, body, Mine(stream, process or self._processes[-1]))
            return body

        return enter

    def loop(self, name: str, *, stream: Stream | None = None, process: Any = None, idle: bool = False) -> Any:
        return self._thread(name, "loop", stream, process)

    def script(self, name: str, *, stream: Stream | None = None, process: Any = None) -> Any:
        return self._thread(name, "script", stream, process)

    def setup(self, body: Any = None, *, stream: Stream | None = None, process: Any = None) -> Any:
        name = "setup" if "setup" not in self._bodies else f"setup {len(self._bodies)}"
        enter = self._thread(name, "setup", stream, process)
        return enter if body is None else enter(body)

    def current_stream(self, gpu: int | None = None) -> Stream:
        mine = self._mine()
        chosen = [*([mine.default] if mine.default else []), *mine.streams]
        fitting = [one for one in chosen if gpu is None or one.gpu == gpu]
        return fitting[-1] if fitting else self.default_stream(gpu)

    def default_stream(self, gpu: int | None = None) -> Stream:
        process = self._mine().process if self._inside() else self._processes[-1]
        number = process.gpu if gpu is None else gpu
        made = Stream(self, "default" + (process.name and f" {process.name}") + (f" gpu {number}" if number else ""))
        made.gpu = number
        return made

    def empty(self, name: str, *, bytes: int = 4096, stream: Stream | None = None) -> Tensor:
        if self._hooks.graph is not None:
            return self._hooks.graph.private(name, "device", self._s(stream))
        made = self._hold(Tensor(self, self._serial()))
        made.space, made.gpu = "device", (stream or self.current_stream()).gpu
        self.world.do("Alloc", made.text, "device", self._s(stream), bytes)
        return made

    def empty_pinned(self, name: str, *, bytes: int = 4096) -> Tensor:
        if self._hooks.graph is not None:
            return self._hooks.graph.private(name, "pinned", None)
        made = self._hold(Tensor(self, self._serial()))
        made.space = "pinned"
        self.world.do("Alloc", made.text, "pinned", None, bytes)
        return made

    def _said(self, given: Any) -> list[Said]:
        return [one if isinstance(one, Said) else Said(one) for one in ([given] if isinstance(given, (Tensor, Said)) else given)]

    def _accesses(self, reads: Any, writes: Any) -> tuple[Any, ...]:
        given = [("r", one) for one in self._said(reads)] + [("w", one) for one in self._said(writes)]
        return tuple((mode, one.tensor.text, one.same_bytes, one.harm) for mode, one in given)

    def launch(self, name: str, reads: Any = (), writes: Any = (), *, stream: Any = None, time: Any = None) -> None:
        kernel = threading.current_thread().name not in self._hooks.functions
        tensors = [one.tensor for one in (*self._said(reads), *self._said(writes))] if kernel else []
        self.world.do("Launch", name, self._s(stream, *tensors), self._accesses(reads, writes), time, kernel)

    def host(self, name: str, reads: Any = (), writes: Any = (), *, time: Any = None) -> None:
        self.world.do("Host", name, self._accesses(reads, writes), time)

    def memcpy_async(self, dst, src, *, stream=None, harm="value", same_bytes=False, time=None):  # type: ignore
        self._hooks.enqueues = {dst.space, src.space} - {"pinned", "pageable"}
        self.world.do("Copy", dst.text, src.text, self._s(stream), True, True, harm, same_bytes, time)

    def memset(self, dst: Tensor, *, stream: Any = None, time: Any = None) -> None:
        self.world.do("Memset", dst.text, self._s(stream), time)

    def synchronize(self, gpu: int | None = None, *, time: Any = None) -> None:
        process = self._mine().process
        self.world.do("DeviceSync", process.gpu if gpu is None else gpu, process.name, time, False)

    def free(self, x: Tensor, *, time: Any = None) -> None:
        self.world.do("DeviceSync", x.gpu, self._mine().process.name, None, True)
        self.world.do("Host", f"free {x.text.partition('[')[0]}", (("w", x.text, False, "value"),), time)

    def choose(self, name: str, options: Any, *, agreed: bool = False) -> Any:
        mine = self._mine()
        if name in mine.choices:
            return mine.choices[name]

        def answer() -> str:
            key = (name, mine.turn)
            chosen = self._agreed.get(key) if agreed else None
            if chosen is None:
                chosen = str(self.world.random.choice(list(options)))
            if agreed:
                self._agreed[key] = chosen
            return chosen

        got = self.world.ask("Choose", (name, tuple(str(o) for o in options), agreed), answer)
        mine.choices[name] = next(option for option in options if str(option) == got)
        return mine.choices[name]

    def maybe(self, name: str) -> Maybe:
        return Maybe(self, name)

    def scope(self, name: str) -> Scope:
        return Scope(self)

    def accept(self, hazard: str, *, because: str) -> None: ...

    def models(self, path: str, name: str, revision: str) -> None: ...

    def execute(self) -> None:
        """Setups first, one after the other, then all other threads; loops run `world.turns` turns."""
        setups = [name for name, (kind, _, _) in self._bodies.items() if kind == "setup"]
        for group in (*([name] for name in setups), [name for name in self._bodies if name not in setups]):
            if group:
                self.world.run({name: self._main(name) for name in group})

    def _main(self, name: str) -> Callable[[], None]:
        kind, body, mine = self._bodies[name]

        def main() -> None:
            for turn in range(self.world.turns if kind == "loop" else 1):
                mine.frames, mine.choices, mine.streams, mine.turn = [[]], {}, [], turn
                mine.works = []
                body(*([Pos(turn)] if body.__code__.co_argcount else []))
                for work in mine.works:
                    for tensor in work.held if work.open else ():
                        tensor.record_stream(work.stream)
                self._drop(mine.frames[0])
                self.world.do("end of turn")

        return main


class _Empty(dict):  # type: ignore[type-arg]
    def __missing__(self, key: str) -> None:
        return None


class Said:
    def __init__(self, tensor: Tensor, harm: str = "value", same_bytes: bool = False) -> None:
        self.tensor, self.harm, self.same_bytes = tensor, harm, same_bytes


def run(function: Callable[..., Any], parameters: dict[str, Any], seed: int, turns: int = 4) -> list[Entry]:
    """The log of one run of a design. Raises what a body raises."""
    world = World(seed, turns)
    mine = type("Design", (Design,), {"world": world})
    saved = {name: getattr(fencepost, name) for name in ("Design", "read", "write")}
    fencepost.Design = mine  # type: ignore[misc]
    fencepost.read = lambda x, harm="value": Said(x, harm)  # type: ignore[assignment]
    fencepost.write = lambda x, same_bytes=False: Said(x, "value", same_bytes)  # type: ignore[assignment]
    try:
        design = function(**parameters)
        design.execute()
    finally:
        for name, value in saved.items():
            setattr(fencepost, name, value)
    return world.log
