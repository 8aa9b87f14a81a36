"""What a run of the machine consists of: references, work, streams, events, host threads, observations.

Nothing here knows of happens-before: a stream is a queue of work, an event holds a mark in such queues, and everything
has a time (ticks of the run's clock: host steps, or nanoseconds in a timed run).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Union

from fencepost.simulator.machine_memory import UNDEFINED, Buffer, Content, Path, Piece

FOREVER = -1
"""A delay that ends only when nothing else can move, or when the chooser lets the work go."""

PARTLY = 1 << 60
"""Added to a value while its write is under way: whoever reads it now sees a torn mix."""

ORIGIN = PARTLY - 1
"""Mask: what is left of a value says which step's which access wrote it."""

WRITES = 12
"""Bits for the number of the write within its step."""


WORK, SET, WAIT, MEET = 0, 1, 2, 3
"""Kinds of items in a queue; MEET: in the reference's queues, where work that has to wait for others is a kind of its own."""

MEETING = "meeting"
"""What work is that accesses nothing: a signal, an await, a store to a device flag, a wait for one."""


class DesignFault(Exception):
    """The design does what it must not do in some run (`get` on an empty cell). The message names the step."""


class Tenant:
    """One allocation: who owns a block's bytes, how many references there are, which streams the allocator knows of."""

    __slots__ = ("block", "name", "noted", "process", "refs", "serial")

    def __init__(self, serial: int, name: str, block: Block, process: str) -> None:
        self.serial, self.name, self.block, self.process = serial, name, block, process
        self.refs = 1
        self.noted: list[Stream] = []


class Ref:
    """A reference to bytes: `buffer` holds what is there, `shadow` what the reference execution has there."""

    __slots__ = ("attributed", "buffer", "counted", "name", "path", "scope", "shadow", "space", "tenant")

    def __init__(self, buffer: Buffer, shadow: Buffer, name: str, space: str, scope: int = 0, path: Path = (),
                 tenant: Tenant | None = None, counted: bool = True, attributed: bool = True) -> None:  # fmt: skip
        self.buffer, self.shadow, self.name, self.space = buffer, shadow, name, space
        self.scope, self.path, self.tenant = scope, path, tenant
        self.counted, self.attributed = counted, attributed

    def at(self, piece: Piece) -> Ref:
        """The part of these bytes."""
        path = (*self.path, piece)
        if piece[0] == "s" and self.path and self.path[-1][0] == "s":  # a span of a span is one on the same axis
            (start, stop), (first, last) = self.path[-1][1], piece[1]
            path = (*self.path[:-1], ("s", (min(start + first, stop), min(start + last, stop))))
        return Ref(self.buffer, self.shadow, self.name, self.space, self.scope, path, self.tenant, self.counted, self.attributed)

    def view(self, attributed: bool, held: bool) -> Ref:
        """Another reference to the same bytes."""
        return Ref(self.buffer, self.shadow, self.name, self.space, self.scope, self.path, self.tenant,
                   self.counted and held, self.attributed and attributed)  # fmt: skip


EIGHTHS = 8


class Block:
    """Memory of a caching allocator: bytes that one tenant after another gets. `label` numbers it in the run.

    `owner`: the stream of a device block, else the process. `size` in bytes; a piece of a block that was split has the eighths from `start` to `stop` of the block's buffer.
    """

    __slots__ = ("buffer", "label", "owner", "size", "space", "start", "stop")

    def __init__(self, label: int, space: str, owner: Stream | str, size: int) -> None:
        self.label, self.space, self.owner, self.size = label, space, owner, size
        self.buffer = Buffer(f"block {label}")
        self.start, self.stop = 0, EIGHTHS

    def piece(self, start: int, stop: int) -> Block:
        """A piece of this block."""
        made = Block(self.label, self.space, self.owner, self.size * (stop - start) // (self.stop - self.start))
        made.buffer, made.start, made.stop = self.buffer, start, stop
        return made

    @property
    def path(self) -> Path:
        """Where a tenant of this block lies in its buffer."""
        return () if self.stop - self.start == EIGHTHS else (("@", (self.start, self.stop)),)


class Mark:
    """A place in `stream`: done when everything before it there has ended, of which `after` is the last.

    `waiting`: queues whose first item waits for it. `there`: the reference has come to it; `followers`: queues of the
    reference whose first item waits for that.
    """

    __slots__ = ("after", "done", "followers", "stream", "there", "waiting")

    def __init__(self, after: tuple[Work, ...] = (), stream: str = "") -> None:
        self.after, self.stream = after, stream
        self.done = self.there = False
        self.waiting: list[Fifo] | None = None
        self.followers: list[Fifo] = []


class Marks:
    """Several marks that a host thread waits for together."""

    __slots__ = ("marks",)

    def __init__(self, marks: list[Mark]) -> None:
        self.marks = marks

    @property
    def done(self) -> bool:
        """Whether all are done."""
        return all(mark.done for mark in self.marks)


class EventState:
    """An event: the mark of its latest record, None when it was never recorded (S17, S19)."""

    __slots__ = ("mark",)

    def __init__(self) -> None:
        self.mark: Mark | None = None


Value = Union[Ref, EventState, int]


class Work:
    """Accesses with a time: a device item, or host code. `stream` is None for host code.

    It starts at `not_before` or later (`delay` FOREVER: when let go) and takes `length`. Reads are made at its start and
    once more at its end; its writes are torn in between. `wrong` is not 0 once it has read something wrong. `accesses`:
    what it will read and write, until the reference has come to it and said what that is.
    """

    __slots__ = ("accesses", "begun", "delay", "done", "engine", "enqueued", "entry", "freed", "length", "node", "not_before",
                 "operation", "reads", "step", "stream", "thread", "turn", "what", "writes", "wrong")  # fmt: skip

    def __init__(self, what: str, step: int, thread: HostThread, stream: Stream | None, enqueued: int, operation: Any) -> None:
        self.what, self.step, self.thread, self.stream, self.enqueued = what, step, thread, stream, enqueued
        self.operation = operation
        self.node, self.turn = thread.node.index, thread.turn
        self.accesses: tuple[list[Ref], list[tuple[Ref, bool]]] | None = None
        self.freed: Ref | None = None
        """A raw pointer among them whose block was freed before the call: its bytes may be anybody's by now."""
        self.reads: list[tuple[Ref, Content]] = []
        self.writes: list[tuple[Ref, Content, bool]] = []
        self.delay = self.length = 0
        self.not_before = enqueued
        self.begun = self.done = False
        self.wrong = 0
        self.engine: Engine | None = None
        self.entry: list[int] | None = None


class Fifo:
    """A hardware queue: (stream, kind, what) items in issue order: WORK, a mark to SET, or a mark to WAIT for.

    `busy`: its first item is under way, held back, or waits for an engine, a mark or another stream. `later`: what the
    reference has still to do of this queue, behind work that waits for others.
    """

    __slots__ = ("busy", "items", "later")

    def __init__(self) -> None:
        self.items: deque[tuple[Stream, int, Any]] = deque()
        self.busy = False
        self.later: deque[tuple[int, Any]] = deque()

    def reset(self) -> None:
        """Empty."""
        self.items.clear()
        self.busy = False
        self.later.clear()


class Place:
    """Where streams meet: a channel with its messages in order, or a device flag with its value.

    `waiting`: queues whose first item waits for something to happen here.
    """

    __slots__ = ("capacity", "messages", "name", "value", "waiting")

    def __init__(self, name: str, capacity: int | None) -> None:
        self.name, self.capacity = name, capacity
        self.messages: deque[str] = deque()
        self.value = 0
        self.waiting: list[Fifo] = []

    def reset(self) -> None:
        """As at the start."""
        self.messages.clear()
        self.waiting.clear()
        self.value = 0


class Stream:
    """A stream: where its items go, how many of them have not ended, and the last work that went there."""

    __slots__ = ("fifo", "gpu", "key", "name", "pending", "process", "tail")

    def __init__(self, name: str, key: tuple[int, int], fifo: Fifo, gpu: int, process: str) -> None:
        self.name, self.key, self.fifo, self.gpu, self.process = name, key, fifo, gpu, process
        self.pending = 0
        self.tail: tuple[Work, ...] = ()


class Engine:
    """Something that serves so many items at a time (copy engines, S61): `ready` waits in the order it became ready."""

    __slots__ = ("capacity", "ready", "running")

    def __init__(self, capacity: int) -> None:
        self.capacity, self.running = capacity, 0
        self.ready: list[Fifo] = []

    def reset(self) -> None:
        """Idle."""
        self.running = 0
        self.ready.clear()


class Node:
    """A compiled node. `run` makes the step; for a question it returns the next node. `ready`: whether it can.

    `tail`: for a query, the work that it asks about.
    """

    __slots__ = ("index", "next", "operation", "ready", "run", "tail")

    run: Callable[[HostThread], Any]
    ready: Callable[[HostThread], bool] | None
    next: Node

    def __init__(self, index: int) -> None:
        self.index = index
        self.ready = None
        self.operation: Any = None
        self.tail: Callable[[HostThread], tuple[Work, ...]] | None = None


class HostThread:
    """A host thread. `waits`: what its last call still waits for; `at`: when its next step can begin."""

    __slots__ = ("at", "done", "entry", "idle", "index", "locals", "loop", "name", "node", "setup", "starts", "turn", "waits")

    def __init__(self, index: int, name: str, kind: str, entry: Node, locals_: int, idle: frozenset[int] = frozenset()) -> None:
        """`idle`: nodes at which it waits for work that nobody need give it."""
        self.index, self.name, self.entry, self.idle = index, name, entry, idle
        self.setup, self.loop = kind == "setup", kind == "loop"
        self.locals: list[Value | None] = [None] * locals_
        self.node = entry
        self.turn = self.at = 0
        self.done = False
        self.waits: Any = None
        self.starts: list[int] = []

    @property
    def stuck(self) -> bool:
        """Whether it has still something to do, when nothing can move any more; who is only given work now and then has not."""
        waits = self.waits is not None and not self.waits.done
        return waits or not (self.done or self.node.index in self.idle)

    def reset(self, end: Node) -> None:
        """Before its first turn."""
        self.locals = [None] * len(self.locals)
        self.node = self.entry
        self.turn = self.at = 0
        self.done = self.entry is end
        self.waits = None
        self.starts = []


class Waiting(NamedTuple):
    """Who waits for ever, and for what. `who` a thread's or stream's name; `step` indexes the run's steps (None: a call
    that has not begun); `node` and `turn` of the operation that waits, `what` in words."""

    who: str
    on_device: bool
    thread: str
    step: int | None
    turn: int
    node: int
    what: str


class Origin(NamedTuple):
    """Where a value comes from. `step` indexes the run's steps; None for the content at the start or fresh memory."""

    step: int | None
    thread: str
    turn: int
    node: int
    what: str
    wrong: bool = False
    """Written by that step, but from inputs that were wrong already."""
    partly: bool = False
    """The write was still under way."""


class Observation(NamedTuple):
    """A read that got something else than in the reference, or an access to freed memory.

    `kind` "stale" | "torn" | "undefined" | "freed"; `time` in ticks.
    """

    kind: str
    step: int
    thread: str
    turn: int
    node: int
    agent: str
    """The host thread or stream that reads."""
    object: str
    part: str
    expected: int
    got: int
    time: int


def part_text(path: Path) -> str:
    """A part as the user writes it."""
    text = ""
    for style, what in path:
        if style == "@":
            continue
        if style == "s":
            text += f"[{what[0]}:{what[1]}]"
        elif style == "n":
            text += f"[{what!r}]"
        else:
            text += f"[{what}]" if style == "r" else "[ANY]"
    return text


def kind_of(expected: int, got: int) -> str:
    """The kind of a wrong observation, from the two values."""
    if expected == UNDEFINED:
        return "undefined"
    return "torn" if got > 0 and got & PARTLY else "stale"
