"""The objects of the oracle: memory, events, streams, and what host threads meet through, all executing at once.

`World` schedules the threads, which are Python threads that hand a baton around, and keeps the log.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from oracle_meetings import Stop, free_async, released

if TYPE_CHECKING:
    from oracle import Design

Entry = tuple[str, str, tuple[Any, ...]]
"""Thread, name of the operation's class in fencepost.model.program, its operands in the order of that class."""


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
        operands = self.hook.kept_apart(operation, operands)
        if self.hook(operation, operands):
            return
        self.step()
        self.say(operation, *operands)
        self.hook.done()

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
        if hasattr(self, "gpu"):
            made.gpu = self.gpu
        return made

    def __getitem__(self, key: Any) -> Any:
        return self._at(key)


class Tensor(Thing):
    cursor = 0
    imported: Any = None
    """What opened the storage that it is in, where it is known to be its last reference."""
    name = ""
    gpu: int | None = None
    graph: Any = None
    """Whose own memory it is."""

    def __getitem__(self, key: Any) -> Any:
        if self.depth is not None:
            return self._at(key)
        made = Tensor(self.d, f"{self.text}/{part_text(key)}")
        made.space, made.gpu = self.space, self.gpu
        return made

    def write(self, *, same_bytes: bool = False, time: Any = None) -> None:
        self.d.world.do("Host", "write", (("w", self.text, same_bytes, "value"),), time)

    def read(self, *, harm: str = "value", time: Any = None) -> None:
        self.d.world.do("Host", "read", (("r", self.text, False, harm),), time)

    def copy_(  # type: ignore
        self, src, non_blocking=False, *, stream=None, harm="value", same_bytes=False, strided=False, time=None
    ):
        if strided:
            on_host = [side for side in (self, src) if side.space not in ("device", "managed")]
            if len(on_host) != 1:
                return self.copy_(src, True, stream=stream, time=time)
            host = on_host[0]
            temporary = Tensor(self.d, "contiguous copy")
            if host is src:
                self.d.host("make contiguous", reads=[src], writes=[temporary])
                self.copy_(temporary, non_blocking, stream=stream, time=time)
            else:
                temporary.copy_(src, non_blocking, stream=stream, time=time)
                self.d.host("spread", reads=[temporary], writes=[self])
            return self
        where = self.d._s(stream, self, src)
        self.d._hooks.enqueues = {self.space, src.space} - {"pinned", "pageable"}
        self.d.world.do("Copy", self.text, src.text, where, bool(non_blocking), False, harm, same_bytes, time)
        return self

    def to_cpu(self, name=None, non_blocking=False, *, stream=None, harm="value", bytes=4096, time=None):  # type: ignore
        return self.d.empty_pinned(name or "cpu", bytes=bytes).copy_(self, non_blocking, stream=stream, harm=harm, time=time)

    def item(self, *, stream=None, harm="value", time=None):  # type: ignore
        where = self.d._s(stream, self)
        self.d._hooks.enqueues = {self.space} - {"pinned", "pageable"}
        self.d.world.do("Item", self.text, where, harm, time)

    def view(self, name=None, *, attributed=True, held=True):  # type: ignore
        base = self.text
        made = self.d._hold(Tensor(self.d, self.d._serial()))
        made.space, made.gpu = self.space, self.gpu
        self.d.world.do("View", made.text, base, attributed)
        return made

    def release(self) -> None:
        if self.graph is not None:
            self.graph.take_back(self)
            return
        assert self.held
        self.held = False
        self.closes()
        self.d.world.do("Drop", self.text)

    def closes(self) -> None:
        """The storage of another process is closed with this reference: the host waits for its current stream (S138)."""
        if self.imported is not None:
            self.d.current_stream(self.imported.gpu).synchronize()
            self.imported = None

    def free_async(self, stream: Any = None) -> None:
        free_async(self, stream)

    def shared_with(self, *processes: Any) -> Tensor:
        return self

    def record_stream(self, stream: Thing) -> None:
        if self.graph is not None:
            self.graph.noted.add(self.text)
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
    def __init__(self, design: Design, name: str, capacity: int, items: Any, alone: Lock | None = None) -> None:
        self.d, self.name, self.capacity, self.alone = design, name, capacity, alone
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
        if self.alone is not None:
            self.alone.acquire()
        self.d.world.step(lambda: bool(self.line))
        tag, values = self.line.pop(0)
        self.d.world.say("Get", self.name, tag, texts(values))
        if self.alone is not None:
            self.alone.release()
        got = Item(self.d._received(values, f"{self.name}[{tag}]" if tag else self.name))
        got.tag = tag
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
        got = Item(self.d._received(values, self.text.partition("[")[0]))
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
        self.d, self.name, self.of, self.tokens = design, name, of, list(range(size))
        self.gpu = design._processes[-1].gpu

    def take(self, name: str | None = None) -> Any:
        self.d.world.step(lambda: bool(self.tokens))
        token = self.tokens.pop(0)
        made: Any = Row(token) if self.of == "row" else self.d._hold(Tensor(self.d, f"{self.name}:{token}"))
        if self.of != "row":
            made.space, made.gpu = self.of, self.gpu
        self.d.world.say("Take", self.name, token)
        return made

    def give(self, token: Any, *, after: Event | None = None) -> None:
        self.d.world.step()
        number = int(token) if self.of == "row" else int(token.text.rpartition(":")[2])
        self.tokens = sorted({*self.tokens, number})
        self.d.world.say("Give", self.name, number, after.text if after is not None else None)

    def free(self, token: Any) -> None:
        process = self.d._mine().process
        self.d.world.do("DeviceSync", process.gpu, process.name, None, True)
        self.give(token)


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
