"""What host threads meet through: queues, cells, cursors, pools, locks, flags and counters."""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Union

from fencepost.model import program as p
from fencepost.model.language.errors import Fixed, fail, question
from fencepost.model.language.fingerprints import Known, fingerprint
from fencepost.model.language.index import Handle, Index, LastPosition, Position, Turn
from fencepost.model.language.managed import handed_over
from fencepost.model.language.objects import Event, Referent, Tensor
from fencepost.model.language.tracer import Frame, Recording, user_frames
from fencepost.model.language.used_after import Loop, loop_at

if TYPE_CHECKING:
    from fencepost.model.language.design import Design
    from fencepost.model.language.sharing import Released

KINDS = (p.EVENT, p.MEMORY, p.INDEX, p.HANDLE)
Value = Union[Tensor, Event, Index, Handle]
"""What queues and cells carry."""


_FITS: dict[str, Any] = {p.EVENT: Event, p.MEMORY: Tensor, p.INDEX: Index, p.HANDLE: Handle}


def kinds(item: object, name: str) -> tuple[str, ...]:
    """The declared kinds of an item, checked."""
    given = (item,) if isinstance(item, str) else item
    if not isinstance(given, (tuple, list)) or any(kind not in KINDS for kind in given):
        fail(f"item={item!r} of {name!r}; an item is a tuple of fp.EVENT, fp.MEMORY, fp.INDEX and fp.HANDLE")
    return tuple(given)


class Item:
    """What `get` of a queue or cell returned: iterable in the order of the put, with the tag of a tagged queue."""

    def __init__(self, values: tuple[Any, ...], tag: str, frame: Frame) -> None:
        self._values, self._tag, self._frame = values, tag, frame

    @property
    def tag(self) -> str:
        """Which of the queue's kinds of items it is; "" of an untagged queue."""
        if self._frame.ended:
            fail(f"an item is used after the end of the {self._frame.kind} block that it was received in")
        return self._tag

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Any:
        return self._values[index]


def _lower(
    design: Design, values: tuple[Any, ...], wanted: tuple[str, ...], where: str, recording: Recording
) -> tuple[p.Operand | p.Index, ...]:
    """Values of a put or set as data; their kinds must be the declared ones."""
    if len(values) != len(wanted):
        fail(f"{where} takes {len(wanted)} values ({', '.join(wanted) or 'none'}), not {len(values)}")
    lowered: list[p.Operand | p.Index] = []
    given = (f"what {where} was given", None)
    for position, (value, kind) in enumerate(zip(values, wanted, strict=True)):
        if not isinstance(value, _FITS[kind]):
            fail(f"{where}: value {position + 1} is declared as {kind}, not {value!r}; correct the item or the value")
        design._own(value)
        if kind in (p.EVENT, p.MEMORY):
            lowered.append(value._operand(recording))
            if kind == p.MEMORY:
                if design._exclusive:
                    handed_over(design, value, where)
                if value._life is not None:
                    value._life.others += (given,)
            continue
        assert isinstance(value, (Index, Handle))
        depth = value._size if isinstance(value, Handle) else value._depth()
        if depth is not None and not design._unify(f"{where} {position}", depth):
            known = design._depth_of(f"{where} {position}")
            fail(f"{where}: an index of depth {design._depth_of(depth)} where others are of depth {known}; make them equal")
        lowered.append(value._resolve(recording))
    return tuple(lowered)


def _receive(
    design: Design, wanted: tuple[str, ...], where: str, recording: Recording
) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Locals for a received item: the values as the text sees them, and the locals' numbers."""
    values: list[Any] = []
    numbers = []
    for position, kind in enumerate(wanted):
        key = f"{where} {position}"
        name = where if len(wanted) == 1 else f"{where}.{position}"
        depth = key if kind in (p.INDEX, p.HANDLE) else None
        life = recording.local(name, kind, key, depth)
        life.received = True
        numbers.append(life.local)
        if kind == p.EVENT:
            values.append(Event(design, name, life=life))
        elif kind == p.MEMORY:
            values.append(Tensor(design, name, "", life=life))
        elif kind == p.INDEX:
            values.append(Position(design, life, key))
        else:
            values.append(Handle(design, life, None, key))
    return tuple(values), tuple(numbers)


def _lasting(recording: Recording) -> Frame:
    """The block that a received item lasts for."""
    return next(frame for frame in reversed(recording.frames) if frame.kind != "scope")


def _seen(recording: Recording, loop: Loop | None) -> dict[Any, Any]:
    """All that what follows could depend on: variables of the body and its helpers, positions of cursors, what is held. A variable
    that each iteration of the loop sets anew, and that nothing behind it reads, counts as not set; one that can no longer be used does
    not, as it can be asked whether it is set, and what else it is."""
    found: dict[Any, Any] = {
        "advances": dict(recording.advances), "streams": list(map(id, recording.streams)), "held": recording.alive(),
    }  # fmt: skip
    known: Known = {}
    contents: dict[tuple[int, str], Any] = {}
    for depth, frame in enumerate(user_frames()):
        for name, value in frame.f_locals.items():
            if not name.startswith(".") and not (loop is not None and _passive(value) and loop.forgets(frame, name)):
                found[depth, name] = fingerprint(value, known)
                contents[depth, name] = _content(value, known)
    found["outside"], found["contents"] = recording.tracer.state.current(), contents
    return found


def _passive(value: object) -> bool:
    """Whether it is plain or of the language, or a tuple or list of such: nothing runs when a variable lets go of it."""
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return all(map(_passive, value))
    return type(value) in (bool, int, float, str, bytes, type(None)) or type(value).__module__.startswith("fencepost.model.language")


def _content(value: Any, known: Known) -> Any:
    """What a body can tell of a variable but for which object of the language it is: that shows in what is done with it."""
    if type(value).__module__.startswith("fencepost.model.language"):
        return "an object"
    if type(value) in (list, tuple, set, frozenset):
        inner = [_content(one, known) for one in value]
        return (type(value), frozenset(inner) if type(value) in (set, frozenset) else tuple(inner))
    if type(value) is dict:
        return (dict, tuple((_content(key, known), _content(one, known)) for key, one in value.items()))
    return fingerprint(value, known)


@functools.lru_cache(maxsize=1024)
def _by_for(code: CodeType, last: int) -> bool:
    """Whether a call is what a `for` statement goes through, so that nothing hidden keeps count of what it gives; not in a loop of a
    generator that yields, for nobody can tell what goes through that."""
    behind = tuple(itertools.islice((step for step in _steps(code) if step.offset > last), 2))
    if [step.opname for step in behind] != ["GET_ITER", "FOR_ITER"]:
        return False
    loop = range(behind[1].offset, behind[1].argval)
    return not code.co_flags & inspect.CO_GENERATOR or not any(
        step.offset in loop and step.opname in ("YIELD_VALUE", "YIELD_FROM", "SEND") for step in _steps(code)
    )


@functools.lru_cache(maxsize=256)
def _steps(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG", "NOT_TAKEN", "NOP"))


class Queue(Fixed):
    """A bounded FIFO between host threads, or of one thread with itself; its items hold references."""

    _asked = "ask empty(), full() or holds(k)"

    def __init__(
        self, design: Design, name: str, number: int, capacity: int, items: dict[str, tuple[str, ...]], several_threads: bool = False
    ) -> None:
        self._design, self._name, self._id, self._capacity, self._items = design, name, number, capacity, items
        self._several_threads = several_threads
        self._getter: str | None = None
        self._processes: set[str] = set()
        """Who uses it, and an event that it carries and that no other process can use."""
        self._stays: Event | None = None

    def __repr__(self) -> str:
        return f"<queue {self._name!r}>"

    def __len__(self) -> int:
        fail(f"how many items {self!r} holds is not known; {self._asked}")

    @property
    def capacity(self) -> int:
        """Most items that it holds."""
        return self._capacity

    def _where(self, tag: str) -> str:
        return f"{self._name}[{tag}]" if tag else self._name

    def put(self, *values: Value | str, tag: str | None = None) -> None:
        """Append an item; waits while the queue is full.

        A queue with several tags takes one: `q.put("sampled", a, b)` or `q.put(a, b, tag="sampled")`.
        """
        recording = self._design._running()
        self._design._own(self)
        if tag is None and values and isinstance(values[0], str):
            tag, values = values[0], values[1:]
        if tag is None and len(self._items) == 1:
            (tag,) = self._items
        if tag not in self._items:
            known = ", ".join(repr(t) for t in self._items if t)
            fail(f"{self._name!r}.put(tag={tag!r}); " + (f"its tags are {known}" if known else "it has no tags"))
        lowered = _lower(self._design, values, self._items[tag], self._where(tag), recording)
        self._used(next((one for one in values if isinstance(one, Event) and one._stays()), None))
        recording.do(p.Put(self._id, tag, lowered))

    def get(self) -> Any:
        """Remove the oldest item; waits while there is none.

        An item of one value is that value; one of several (or of none, or with a tag) is an `Item`.
        """
        recording = self._design._running()
        self._design._own(self)
        tags = tuple(self._items)
        if len(tags) > 1 and not self._several_threads:
            if self._getter is None:
                self._getter = recording.tracer.name
            elif self._getter != recording.tracer.name:
                fail(
                    f"items of {self._name!r} are of several kinds, and the threads {self._getter!r} and {recording.tracer.name!r} take them; make it "
                    "with d.queue(..., several_threads=True)"
                )
        self._used(None)
        with recording.alone(f"getting from {self._name}" if self._several_threads and len(tags) > 1 else None):
            tag = tags[0] if len(tags) == 1 else recording.ask(p.QueueTag(self._id), tags)
            values, numbers = _receive(self._design, self._items[tag], self._where(tag), recording)
            recording.do(p.Get(self._id, tag, numbers))
        return values[0] if tags == ("",) and len(values) == 1 else Item(values, tag, _lasting(recording))

    def _used(self, event: Event | None) -> None:
        """Raise `DesignError` when an event that stays in its process goes to another one (S140)."""
        self._processes.add(self._design._process())
        if event is not None and self._stays is None:
            self._stays = event
        if self._stays is not None and len(self._processes) > 1:
            fail(f"event {self._stays._name!r} goes through {self._name!r} to another process; make it with interprocess=True (S140)")

    @question
    def full(self) -> bool:
        """Whether it holds `capacity` items."""
        return self._yes(p.QueueFull(self._id))

    @question
    def empty(self) -> bool:
        """Whether it holds none."""
        return not self._yes(p.QueueHolds(self._id, 1))

    @question
    def holds(self, count: int) -> bool:
        """Whether it holds at least `count` items."""
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= self._capacity:
            fail(f"{self._name!r}.holds({count!r}); the queue holds 1 to {self._capacity} items")
        return self._yes(p.QueueHolds(self._id, count))

    def _yes(self, question: p.Question) -> bool:
        self._design._own(self)
        return self._design._running().yes(question)

    def drain(self) -> Iterator[Any]:
        """Get items until there is none: `for item in q.drain():`. The loop becomes a cycle: neither a later iteration nor
        what follows may depend on what an iteration did.

        The look whether there is one and its get are two steps, as in `while not q.empty(): q.get()`: another thread's get may come
        between, and then this one waits."""
        head = sys._getframe(1)
        if not _by_for(head.f_code, head.f_lasti):
            fail(f"{self._name!r}.drain() is given to something that may keep count of its items; write `for item in {self._name}.drain():`")
        return self._drained(head)

    def _drained(self, head: FrameType) -> Iterator[Any]:
        recording = self._design._running()
        self._design._own(self)
        memory = (dict(recording.counts), dict(recording.choices), dict(recording.below))
        depth, visit = recording.drains, 0
        before: dict[Any, Any] = {}
        locks, kept = recording.locks(), recording.remembered()
        loop = loop_at(head)
        while True:
            recording.counts, recording.choices, recording.below = (dict(kept) for kept in memory)  # type: ignore[assignment]
            recording.same_memory(kept, f"an iteration of the drain loop over {self._name!r}")
            recording.same_locks(locks, f"an iteration of the drain loop over {self._name!r}", "or be held twice")
            seen = _seen(recording, loop) if visit < 2 or not recording.repeats else {}
            if visit == 2 and not recording.repeats:
                for (depth_of, name), value in seen["contents"].items():
                    if before["contents"].get((depth_of, name)) != value:
                        fail(
                            f"{name!r} changes in every iteration of the drain loop over {self._name!r}, and what follows may depend on "
                            "it; keep the outcome in a d.cell, or do not count"
                        )
            if not recording.drain_head(self._id, visit, same=visit == 1 and seen == before):
                return
            before = seen
            visit += 1
            recording.drains = depth + 1
            frame = Frame("drain", self._name)
            recording.frames.append(frame)
            item = self.get()
            try:
                yield item
            except GeneratorExit:  # the loop was left by break or return
                if not recording.over:
                    recording.leave(frame)
                    recording.drains = depth
                raise
            recording.leave(frame)
            recording.drains = depth


class Cell(Referent):
    """Holds at most one item, and its references; a ring of cells with `depth`."""

    _what = "cell"
    _asked = "ask empty()"

    def __init__(
        self, design: Design, name: str, number: int, item: tuple[str, ...], depth: int | None,
        index: int | Index | Handle | None = None,
    ) -> None:  # fmt: skip
        super().__init__(design, name, number, depth, index)
        self._item = item

    def __getitem__(self, key: int | Index | Handle) -> Cell:
        if self._depth is None or self._index is not None:
            fail(f"cell {self._name!r} is no ring; give it depth= to index it")
        assert self._id is not None
        return Cell(self._design, self._name, self._id, self._item, self._depth, self._slot(key))

    def _operand(self, recording: Recording) -> p.Operand:
        recording.tracer.design._own(self)
        return self._resolve(recording)

    def set(self, *values: Value) -> None:
        """Store an item; what the cell held loses that reference."""
        recording = self._design._running()
        operand = self._operand(recording)
        recording.do(p.CellSet(operand, _lower(self._design, values, self._item, self._name, recording)))

    def get(self) -> Any:
        """Copy the item out. When the cell can be empty here, that is an error with its run."""
        return self._get(False)

    def take(self) -> Any:
        """`get`, and empty the cell."""
        return self._get(True)

    def _get(self, take: bool) -> Any:
        recording = self._design._running()
        operand = self._operand(recording)
        values, numbers = _receive(self._design, self._item, self._name, recording)
        recording.do(p.CellGet(operand, numbers, take))
        for value in values:
            if not take and isinstance(value, Tensor) and value._life is not None:
                value._life.others += ((f"cell {self._name!r}", None),)
        return values[0] if len(values) == 1 else Item(values, "", _lasting(recording))

    def clear(self) -> None:
        """Empty the cell."""
        recording = self._design._running()
        recording.do(p.CellClear(self._operand(recording)))

    @question
    def empty(self) -> bool:
        """Whether the cell holds nothing."""
        recording = self._design._running()
        return recording.yes(p.CellEmpty(self._operand(recording)))


class Cursor(Fixed):
    """A position in rings of `depth`: slots, events and cells that move together."""

    _asked = "a position indexes rings"

    def __init__(self, design: Design, name: str, number: int, depth: int) -> None:
        self._design, self._name, self._id, self._depth = design, name, number, depth
        self._single = False
        self._threads: set[str] = set()

    def __repr__(self) -> str:
        return f"<cursor {self._name!r}>"

    def advance(self) -> Position:
        """Move one slot on; the new position."""
        recording = self._design._running()
        self._design._own(self)
        life = recording.local(self._name, p.INDEX, f"advance {self._id}", self._depth)
        recording.advances[self._id] = recording.advances.get(self._id, 0) + 1
        self._threads.add(recording.tracer.name)
        recording.do(p.Advance(self._id, life.local))
        return Position(self._design, life, self._depth)

    def last(self) -> LastPosition:
        """The position of the latest `advance`; slot `depth - 1` before the first."""
        recording = self._design._running()
        self._design._own(self)
        return LastPosition(self, recording)


class Pool(Fixed):
    """`size` interchangeable tokens: memory ("device", "pinned") or rows of a buffer ("row")."""

    _asked = "take() waits for a token"

    def __init__(self, design: Design, name: str, number: int, size: int, of: str) -> None:
        self._design, self._name, self._id, self._size, self._of = design, name, number, size, of

    def __repr__(self) -> str:
        return f"<pool {self._name!r}>"

    def take(self, name: str | None = None) -> Any:
        """Any free token; waits while there is none. A `Tensor`, or a `Handle` of a pool of rows."""
        recording = self._design._running()
        self._design._own(self)
        row = self._of == "row"
        life = recording.local(
            name or self._name, p.HANDLE if row else p.MEMORY, f"take {self._id}", self._size if row else None, self._id
        )
        recording.do(p.Take(self._id, life.local))
        if row:
            return Handle(self._design, life, self._id, self._size)
        return Tensor(self._design, life.name, self._of, life=life, pool=self._id)

    def give(self, token: Tensor | Handle, *, after: Event | None = None) -> None:
        """Return a token; with `after`, it is free only when the work captured by that event is done."""
        recording = self._design._running()
        self._design._own(self)
        if not isinstance(token, Handle if self._of == "row" else Tensor) or token._life is None:
            fail(f"{self._name!r}.give({token!r}); give back what take() of this pool returned")
        self._design._own(token)
        if token._pool is not None and token._pool != self._id:
            fail(f"{self._name!r}.give: the token is of another pool; give it back to its own")
        if after is not None and not isinstance(after, Event):
            fail(f"{self._name!r}.give(after={after!r}); after= is an event")
        local = p.Local(token._life.check(recording))
        recording.do(p.Give(self._id, local, None if after is None else after._operand(recording)))


    def free(self, token: Tensor | Handle) -> None:
        """`give` by a call that may wait for the device, as cudaFree does: an edge only where the platform's `free` says so (S38)."""
        recording = self._design._running()
        recording.do(p.DeviceSync(self._design._gpu(None), self._design._process(), None, True))
        self.give(token)


class Lock(Fixed):
    """A lock, or a counting semaphore; `with lock:`."""

    def __init__(self, design: Design, name: str, number: int, semaphore: bool = False) -> None:
        self._design, self._name, self._id, self._semaphore = design, name, number, semaphore

    def __repr__(self) -> str:
        return f"<lock {self._name!r}>"

    def acquire(self) -> Literal[True]:
        """Wait until it is available, and take it. True, as threading's says when it does not give up."""
        self._do(p.Acquire(self._id))
        self._count(1)
        return True

    def release(self) -> None:
        """Give it back. A lock is given back in the turn that has taken it; a semaphore by anybody at any time."""
        held = self._design._running().held
        if not self._semaphore and held.get(self._id, 0) < 1:
            fail(
                f"lock {self._name!r} is released where this turn does not hold it; acquire it before, or use "
                f"d.semaphore({self._name!r}) for what one thread or turn takes and another gives back"
            )
        self._do(p.Unlock(self._id))
        self._count(-1)

    @question
    def try_acquire(self) -> bool:
        """Take it if it is available; whether it was."""
        self._design._own(self)
        taken = self._design._running().yes(p.TryLock(self._id))
        self._count(int(taken))
        return taken

    def _count(self, change: int) -> None:
        held = self._design._running().held
        held[self._id] = held.get(self._id, 0) + change

    def released(self) -> Released:
        """`with gil.released():` gives it back for the block and takes it again behind it (S106)."""
        from fencepost.model.language.sharing import Released

        return Released(self)

    def _do(self, operation: p.Operation) -> None:
        self._design._own(self)
        self._design._running().do(operation)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        recording = self._design._recording
        if recording is not None and (error is None or recording.held.get(self._id, 0) > 0):
            self.release()  # where a block of it failed, that is what the user has to see


class Flag(Fixed):
    """A host boolean (threading.Event) that starts unset."""

    _asked = "ask is_set()"

    def __init__(self, design: Design, name: str, number: int) -> None:
        self._design, self._name, self._id = design, name, number

    def __repr__(self) -> str:
        return f"<flag {self._name!r}>"

    def set(self) -> None:
        """Set it."""
        self._do(p.FlagSet(self._id))

    def clear(self) -> None:
        """Unset it."""
        self._do(p.FlagClear(self._id))

    def wait(self) -> Literal[True]:
        """Wait until it is set. True, as threading.Event's says when it does not give up."""
        self._do(p.FlagWait(self._id))
        return True

    @question
    def is_set(self) -> bool:
        """Whether it is set."""
        self._design._own(self)
        return self._design._running().yes(p.FlagIsSet(self._id))

    def _do(self, operation: p.Operation) -> None:
        self._design._own(self)
        self._design._running().do(operation)


class Counter(Fixed):
    """A host integer that starts at 0 and never falls."""

    __hash__ = None  # type: ignore[assignment]
    _asked = "compare it with a constant: counter >= c"

    def __init__(self, design: Design, name: str, number: int) -> None:
        self._design, self._name, self._id = design, name, number

    def __repr__(self) -> str:
        return f"<counter {self._name!r}>"

    def add(self, amount: int = 1) -> None:
        """Add a positive constant."""
        self._design._own(self)
        if not isinstance(amount, int) or isinstance(amount, bool) or amount < 1:
            fail(f"{self._name!r}.add({amount!r}); a counter grows by a positive constant")
        self._design._running().do(p.CounterAdd(self._id, amount))

    def wait(self, value: int | Turn) -> None:
        """Wait until it is at least `value`: a constant, or the turn plus a constant."""
        self._design._own(self)
        recording = self._design._running()
        if isinstance(value, Turn):
            recording.do(p.CounterWait(self._id, value._offset, True))
            return
        recording.do(p.CounterWait(self._id, self._constant(value)))

    def __ge__(self, value: int) -> bool:
        self._design._own(self)
        return self._design._running().yes(p.CounterAtLeast(self._id, self._constant(value)))

    def __lt__(self, value: int) -> bool:
        return not self >= value

    def __gt__(self, value: int) -> bool:
        return self >= self._constant(value) + 1

    def __le__(self, value: int) -> bool:
        return not self > value

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        fail(f"counter {self._name!r} == {other!r}; it is compared with a constant by counter >= c: it may have moved on")

    def _constant(self, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            fail(f"counter {self._name!r} is compared with {value!r}; it is compared with a constant (counter >= c)")
        return value
