"""Runs the bodies of a design as plain Python, with no tracing: the oracle that the tracer is compared with.

`run` puts its own `Design` in the place of `fencepost.Design` while the design function runs. Its objects execute the
host-level effects at once: queues hold items, cursors are integers, the turn is an integer, a `maybe` block that does not
run is really skipped. Threads are Python threads that hand a baton around; the order and the open choices come from a
seed. The outcome is a log of (thread, operation, operands) in the order of execution.

Nothing of fencepost.model.language is used here.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import fencepost

from oracle_composites import Composites, Hooks
from oracle_meetings import free_async, released

Entry = tuple[str, str, tuple[Any, ...]]
"""Thread, name of the operation's class in fencepost.model.program, its operands in the order of that class."""


class Stop(BaseException):
    """Ends a thread when the run is over."""


class Skip(BaseException):
    """Leaves a `maybe` block before its first line."""


class Pos(int):
    """A ring index: an integer that remembers that it is one."""

    def __add__(self, other: int) -> Pos:
        return Pos(int(self) + other)

    def __sub__(self, other: int) -> Pos:
        return Pos(int(self) - other)


class World:
    """The scheduler: who may move, who moves, what was logged."""

    def __init__(self, seed: int, turns: int) -> None:
        self.random, self.turns = random.Random(seed), turns
        self.log: list[Entry] = []
        self.waiting: dict[str, Callable[[], bool]] = {}
        self.baton = threading.Condition()
        self.turn_of: str | None = None
        self.stopping = False
        self.error: BaseException | None = None
        self.hook: Callable[[str, tuple[Any, ...]], bool] = lambda _operation, _operands: False

    def step(self, ready: Callable[[], bool] = lambda: True) -> None:
        """Called by a thread before an operation: wait for the baton, with `ready` as the enabling condition."""
        name = threading.current_thread().name
        with self.baton:
            self.waiting[name] = ready
            self.turn_of = None
            self.baton.notify_all()
            while self.turn_of != name:
                if self.stopping:
                    raise Stop
                self.baton.wait()
            del self.waiting[name]

    def run(self, threads: dict[str, Callable[[], None]]) -> None:
        """Run these threads until all are done or none can move."""
        alive = set(threads)
        started = []

        def main(name: str) -> None:
            try:
                self.step()
                threads[name]()
            except Stop:
                pass
            except BaseException as error:
                self.error = error
            with self.baton:
                alive.discard(name)
                self.turn_of = None
                self.baton.notify_all()

        for name in threads:
            thread = threading.Thread(target=main, args=(name,), name=name, daemon=True)
            started.append(thread)
            thread.start()
        with self.baton:
            while True:
                while self.turn_of is not None or set(self.waiting) != alive:
                    self.baton.wait(10)
                able = sorted(name for name, ready in self.waiting.items() if ready())
                if not able or self.error is not None:
                    break
                self.turn_of = self.random.choice(able)
                self.baton.notify_all()
            self.stopping = True
            self.baton.notify_all()
        for thread in started:
            thread.join()
        self.stopping = False
        self.waiting.clear()
        if self.error is not None:
            raise self.error

    def say(self, operation: str, *operands: Any) -> None:
        self.log.append((threading.current_thread().name, operation, operands))

    def do(self, operation: str, *operands: Any) -> None:
        if self.hook(operation, operands):
            return
        self.step()
        self.say(operation, *operands)

    def ask(self, question: str, operands: tuple[Any, ...], answer: Callable[[], str]) -> str:
        self.step()
        got = answer()
        self.say(question, *operands, got)
        return got


def part_text(key: Any) -> str:
    if isinstance(key, str):
        return f"'{key}'"
    if isinstance(key, slice):
        return f"{key.start or 0}:{key.stop}"
    if isinstance(key, (Pos, Row)):
        return f"@{int(key)}"
    if isinstance(key, int):
        return f"{key}:{key + 1}"
    return "?"


class Row(int):
    """A token of a pool of rows."""


class Thing:
    """An object, a slot or a value, by its text."""

    space = ""

    def __init__(self, design: Design, text: str, depth: int | None = None, item: Any = None) -> None:
        self.d, self.text, self.depth, self.item_kinds = design, text, depth, item
        self.held = False

    def _at(self, key: Any) -> Any:
        assert self.depth is not None
        made = type(self)(self.d, f"{self.text}[{int(key) % self.depth}]", None, self.item_kinds)
        made.space = self.space
        return made

    def __getitem__(self, key: Any) -> Any:
        return self._at(key)


class Tensor(Thing):
    cursor = 0
    imported = False
    name = ""

    def __getitem__(self, key: Any) -> Any:
        return self._at(key) if self.depth is not None else Tensor(self.d, f"{self.text}/{part_text(key)}")

    def write(self, *, same_bytes: bool = False, time: Any = None) -> None:
        self.d.world.do("Host", "write", (("w", self.text, same_bytes, "value"),), time)

    def read(self, *, harm: str = "value", time: Any = None) -> None:
        self.d.world.do("Host", "read", (("r", self.text, False, harm),), time)

    def copy_(  # type: ignore
        self, src, non_blocking=False, *, stream=None, harm="value", same_bytes=False, strided=False, time=None
    ):
        if strided:
            host = src if self.space in ("device", "managed") else self
            temporary = Tensor(self.d, f"contiguous {host.text.partition('[')[0]}")
            if host is src:
                self.d.host("make contiguous", reads=[src], writes=[temporary])
                self.copy_(temporary, non_blocking, stream=stream, time=time)
            else:
                temporary.copy_(src, non_blocking, stream=stream, time=time)
                self.d.host("spread", reads=[temporary], writes=[self])
            return self
        self.d.world.do(
            "Copy", self.text, src.text, self.d._s(stream), bool(non_blocking), False, harm, same_bytes, time
        )
        return self

    def to_cpu(self, name=None, non_blocking=False, *, stream=None, harm="value", bytes=4096, time=None):  # type: ignore
        return self.d.empty_pinned(name or "cpu", bytes=bytes).copy_(self, non_blocking, stream=stream, harm=harm, time=time)

    def item(self, *, stream=None, harm="value", time=None):  # type: ignore
        self.d.world.do("Item", self.text, self.d._s(stream), harm, time)

    def view(self, name=None, *, attributed=True, held=True):  # type: ignore
        base = self.text
        made = self.d._hold(Tensor(self.d, self.d._serial()))
        self.d.world.do("View", made.text, base, attributed)
        return made

    def release(self) -> None:
        assert self.held
        self.held = False
        if self.imported:
            self.d.current_stream().synchronize()
        self.d.world.do("Drop", self.text)

    def free_async(self, stream: Any = None) -> None:
        free_async(self, stream)

    def shared_with(self, *processes: Any) -> Tensor:
        return self

    def record_stream(self, stream: Thing) -> None:
        if self.imported:
            return
        self.d.world.do("RecordStream", self.text, stream.text)

    def take(self) -> Tensor:
        if self.text not in self.d._takes:
            self.d._takes[self.text] = Cursor(self.d, f"{self.text} take", self.depth)
        return self[self.d._takes[self.text].advance()]


class Event(Thing):
    name = ""
    gpu: int | None = None

    def record(self, stream: Any = None, *, may_fail: bool = False) -> None:
        where = stream or self.d.current_stream()
        if may_fail and None not in (self.gpu, where.gpu) and self.gpu != where.gpu:
            return  # S25
        if may_fail and not self.d._open("Maybe", (f"record of {self.name or self.text.partition(chr(91))[0]} succeeds",)):
            return
        self.d.world.do("Record", self.text, self.d._s(stream))

    def synchronize(self, *, time: Any = None) -> None:
        self.d.world.do("EventSync", self.text, time)

    def wait(self, stream: Any = None) -> None:
        self.d.world.do("StreamWaitEvent", self.d._s(stream), self.text)

    def query(self) -> bool:
        return self.d._open("EventQuery", (self.text,))


class Stream(Thing):
    gpu: int | None = None

    @property
    def name(self) -> str:
        return self.text

    def __enter__(self) -> Stream:
        self.d._mine().streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.d._mine().streams.pop()

    def wait_event(self, event: Event) -> None:
        self.d.world.do("StreamWaitEvent", self.text, event.text)

    def wait_stream(self, other: Stream) -> None:
        self.d.world.do("WaitStream", self.text, other.text)

    def record_event(self, event: Event) -> Event:
        event.record(self)
        return event

    def write_value(self, flag: Any, value: int) -> None:
        self.d.world.do("StoreFlag", flag.name, value, self.text)

    def wait_value(self, flag: Any, value: int, reset: bool = False) -> None:
        self.d.world.do("WaitFlag", flag.name, value, self.text, reset)

    def synchronize(self, *, time: Any = None) -> None:
        self.d.world.do("StreamSync", self.text, time)

    def query(self) -> bool:
        return self.d._open("StreamQuery", (self.text,))


class Item(tuple):  # type: ignore[type-arg]
    tag = ""


def texts(values: Any) -> tuple[Any, ...]:
    return tuple(v.text if isinstance(v, Thing) else int(v) for v in values)


class Queue:
    def __init__(self, design: Design, name: str, capacity: int, items: Any) -> None:
        self.d, self.name, self.capacity = design, name, capacity
        self.tagged = isinstance(items, dict)
        self.items = items if self.tagged else {"": (items,) if isinstance(items, str) else tuple(items)}
        self.line: list[tuple[str, tuple[Any, ...]]] = []

    def put(self, *values: Any, tag: str | None = None) -> None:
        if tag is None and values and isinstance(values[0], str):
            tag, *rest = values
            values = tuple(rest)
        tag = next(iter(self.items)) if tag is None else tag
        self.d.world.step(lambda: len(self.line) < self.capacity)
        self.line.append((tag, values))
        self.d.world.say("Put", self.name, tag, texts(values))

    def get(self) -> Any:
        self.d.world.step(lambda: bool(self.line))
        tag, values = self.line.pop(0)
        self.d.world.say("Get", self.name, tag, texts(values))
        got = Item(self.d._received(values))
        got.tag = tag
        where = f"{self.name}[{tag}]" if tag else self.name
        for position, value in enumerate(got):
            if isinstance(value, Tensor):
                value.name = where if len(got) == 1 else f"{where}.{position}"
        return got[0] if not self.tagged and len(got) == 1 else got

    def _ask(self, what: str, operands: tuple[Any, ...], test: Callable[[], bool]) -> bool:
        return self.d.world.ask(what, operands, lambda: "yes" if test() else "no") == "yes"

    def full(self) -> bool:
        return self._ask("QueueFull", (self.name,), lambda: len(self.line) == self.capacity)

    def holds(self, count: int) -> bool:
        return self._ask("QueueHolds", (self.name, count), lambda: len(self.line) >= count)

    def empty(self) -> bool:
        return not self.holds(1)

    def drain(self) -> Iterator[Any]:
        mine = self.d._mine()
        before = dict(mine.choices)
        while self.holds(1):
            mine.frames.append([])
            item = self.get()
            try:
                yield item
            except GeneratorExit:
                self.d._drop(mine.frames.pop())
                raise
            self.d._drop(mine.frames.pop())
            mine.choices = dict(before)


class Cell(Thing):
    def __init__(self, design: Design, text: str, depth: int | None, item: Any) -> None:
        super().__init__(design, text, depth, (item,) if isinstance(item, str) else tuple(item))

    def set(self, *values: Any) -> None:
        self.d.world.do("CellSet", self.text, texts(values))
        self.d._cells[self.text] = values

    def get(self, take: bool = False) -> Any:
        self.d.world.step()
        values = self.d._cells[self.text]
        if values is None:
            raise Stop  # an empty cell: a design error in the run, which ends here
        if take:
            self.d._cells[self.text] = None
        self.d.world.say("CellGet", self.text, texts(values), take)
        got = Item(self.d._received(values))
        return got[0] if len(got) == 1 else got

    def take(self) -> Any:
        return self.get(True)

    def clear(self) -> None:
        self.d.world.do("CellClear", self.text)
        self.d._cells[self.text] = None

    def empty(self) -> bool:
        test = lambda: "yes" if self.d._cells[self.text] is None else "no"  # noqa: E731
        return self.d.world.ask("CellEmpty", (self.text,), test) == "yes"


class Cursor:
    def __init__(self, design: Design, name: str, depth: int | None) -> None:
        self.d, self.name, self.depth, self.at = design, name, depth, -1

    def advance(self) -> Pos:
        self.d.world.step()
        self.at += 1
        self.d.world.say("Advance", self.name, self.at)
        return Pos(self.at)

    def last(self) -> Pos:
        return Pos(self.at)


class Pool:
    def __init__(self, design: Design, name: str, size: int, of: str) -> None:
        self.d, self.name, self.of, self.free = design, name, of, list(range(size))

    def take(self, name: str | None = None) -> Any:
        self.d.world.step(lambda: bool(self.free))
        token = self.free.pop(0)
        made: Any = Row(token) if self.of == "row" else self.d._hold(Tensor(self.d, f"{self.name}:{token}"))
        self.d.world.say("Take", self.name, token)
        return made

    def give(self, token: Any, *, after: Event | None = None) -> None:
        self.d.world.step()
        number = int(token) if self.of == "row" else int(token.text.rpartition(":")[2])
        self.free = sorted({*self.free, number})
        self.d.world.say("Give", self.name, number, after.text if after is not None else None)


class Lock:
    def __init__(self, design: Design, name: str, count: int) -> None:
        self.d, self.name, self.count = design, name, count

    def acquire(self) -> None:
        self.d.world.step(lambda: self.count > 0)
        self.count -= 1
        self.d.world.say("Acquire", self.name)

    def release(self) -> None:
        self.d.world.do("Unlock", self.name)
        self.count += 1

    def try_acquire(self) -> bool:
        got = self.d.world.ask("TryLock", (self.name,), lambda: "yes" if self.count > 0 else "no") == "yes"
        self.count -= got
        return got

    def released(self) -> Any:
        return released(self)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Flag:
    def __init__(self, design: Design, name: str) -> None:
        self.d, self.name, self.on = design, name, False

    def set(self) -> None:
        self.d.world.do("FlagSet", self.name)
        self.on = True

    def clear(self) -> None:
        self.d.world.do("FlagClear", self.name)
        self.on = False

    def wait(self) -> None:
        self.d.world.step(lambda: self.on)
        self.d.world.say("FlagWait", self.name)

    def is_set(self) -> bool:
        return self.d.world.ask("FlagIsSet", (self.name,), lambda: "yes" if self.on else "no") == "yes"


class Counter:
    def __init__(self, design: Design, name: str) -> None:
        self.d, self.name, self.value = design, name, 0

    def add(self, amount: int = 1) -> None:
        self.d.world.do("CounterAdd", self.name, amount)
        self.value += amount

    def wait(self, value: int) -> None:
        self.d.world.step(lambda: self.value >= value)
        self.d.world.say("CounterWait", self.name, int(value))

    def __ge__(self, value: int) -> bool:
        test = lambda: "yes" if self.value >= value else "no"  # noqa: E731
        return self.d.world.ask("CounterAtLeast", (self.name, value), test) == "yes"


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

    def _received(self, values: Any) -> tuple[Any, ...]:
        return tuple(self._hold(Tensor(self, v.text)) if isinstance(v, Tensor) else v for v in values)

    def _drop(self, frame: list[Tensor]) -> None:
        for tensor in reversed(frame):
            if tensor.held:
                tensor.release()

    def _s(self, stream: Stream | None) -> str:
        return (stream or self.current_stream()).text

    def _open(self, question: str, operands: tuple[Any, ...]) -> bool:
        return self.world.ask(question, operands, lambda: self.world.random.choice(["yes", "no"])) == "yes"

    def _memory(self, name: str, depth: int | None = None, bytes: int = 4096, gpu: int | None = None) -> Tensor:
        return Tensor(self, name, depth)

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

    def managed(self, name: str, *given: Any, **more: Any) -> Tensor:
        return self._of("managed", name, given, more)

    def stream(
        self, name: str, depth: int | None = None, gpu: int | None = None, *, blocking: bool = False
    ) -> Stream:
        if blocking:
            self._hooks.blocking.append((name, self.default_stream(gpu).text))
        made = Stream(self, name, depth)
        made.gpu = self._processes[-1].gpu if gpu is None else gpu
        return made

    def event(self, name: str, depth: int | None = None, gpu: int | None = None) -> Event:
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

    def queue(self, name: str, capacity: int, item: Any = ()) -> Queue:
        return Queue(self, name, capacity, item)

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

    def loop(self, name: str, *, stream: Stream | None = None, process: Any = None) -> Any:
        return self._thread(name, "loop", stream, process)

    def script(self, name: str, *, stream: Stream | None = None, process: Any = None) -> Any:
        return self._thread(name, "script", stream, process)

    def setup(self, body: Any) -> Any:
        return self._thread("setup", "setup", None, None)(body)

    def current_stream(self) -> Stream:
        mine = self._mine()
        return mine.streams[-1] if mine.streams else mine.default or self.default_stream()

    def default_stream(self, gpu: int | None = None) -> Stream:
        process = self._mine().process if self._inside() else self._processes[-1]
        number = process.gpu if gpu is None else gpu
        if (process.name, number) == ("", 0):
            return Stream(self, "default")
        return Stream(self, "default" + (process.name and f" {process.name}") + (f" gpu {number}" if number else ""))

    def empty(self, name: str, *, bytes: int = 4096, stream: Stream | None = None) -> Tensor:
        if self._hooks.graph is not None:
            return self.device(f"{name} of {self._hooks.graph.name}")
        made = self._hold(Tensor(self, self._serial()))
        self.world.do("Alloc", made.text, "device", self._s(stream), bytes)
        return made

    def empty_pinned(self, name: str, *, bytes: int = 4096) -> Tensor:
        if self._hooks.graph is not None:
            return self.pinned(f"{name} of {self._hooks.graph.name}")
        made = self._hold(Tensor(self, self._serial()))
        self.world.do("Alloc", made.text, "pinned", None, bytes)
        return made

    def _accesses(self, reads: Any, writes: Any) -> tuple[Any, ...]:
        found: list[Any] = []
        for mode, given in (("r", reads), ("w", writes)):
            for entry in [given] if isinstance(given, (Tensor, Said)) else given:
                said = entry if isinstance(entry, Said) else Said(entry)
                found.append((mode, said.tensor.text, said.same_bytes, said.harm))
        return tuple(found)

    def launch(self, name: str, reads: Any = (), writes: Any = (), *, stream: Any = None, time: Any = None) -> None:
        self.world.do("Launch", name, self._s(stream), self._accesses(reads, writes), time)

    def host(self, name: str, reads: Any = (), writes: Any = (), *, time: Any = None) -> None:
        self.world.do("Host", name, self._accesses(reads, writes), time)

    def memcpy_async(self, dst, src, *, stream=None, harm="value", same_bytes=False, time=None):  # type: ignore
        self.world.do("Copy", dst.text, src.text, self._s(stream), True, True, harm, same_bytes, time)

    def memset(self, dst: Tensor, *, stream: Any = None, time: Any = None) -> None:
        self.world.do("Memset", dst.text, self._s(stream), time)

    def synchronize(self, gpu: int | None = None, *, time: Any = None) -> None:
        process = self._mine().process
        self.world.do("DeviceSync", process.gpu if gpu is None else gpu, process.name, time)

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
        """Setup first, then all other threads; loops run `world.turns` turns."""
        for wanted in (("setup",), ("script", "loop")):
            threads = {name: self._main(name) for name, (kind, _, _) in self._bodies.items() if kind in wanted}
            if threads:
                self.world.run(threads)

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
