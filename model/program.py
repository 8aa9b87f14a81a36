"""What a design is: frozen data, the only thing that engines exchange.

A `Program` has objects (memory, streams, events, queues, ...) and threads. A thread is a flat table of nodes that
form a graph: `Do` runs one operation, `Ask` branches on the answer to a question; `next == END` ends the turn.
Operands name an object (`Obj`), one slot of a ring (`Slot`), a thread's local of the current turn (`Local`), each
optionally narrowed to a `Part`. How a program was written down (traced, recorded, JSON) does not matter here.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

SCHEMA_VERSION = 1
END = -1
"""The `next` of a node after which the thread's turn is over."""


class Data(msgspec.Struct, frozen=True, tag=True):
    """Base of all program data: immutable, compared by value, tagged by class name in JSON."""


# ---------------------------------------------------------------- operands


class Turn(Data, frozen=True):
    """Ring index `turn + offset` of the thread that runs the operation (taken modulo the ring's depth)."""

    offset: int = 0


class Var(Data, frozen=True):
    """Index or handle held by a local of the thread (from `cursor.advance()`, `pool.take()` or a queue)."""

    local: int
    offset: int = 0


class Last(Data, frozen=True):
    """Index that a cursor gave at its latest `advance` (its initial position is slot `depth - 1`)."""

    cursor: int
    offset: int = 0


class Fixed(Data, frozen=True):
    """A constant slot of a ring."""

    slot: int


Index = Union[Turn, Var, Last, Fixed]


class Named(Data, frozen=True):
    """A named part; parts of different names are disjoint."""

    name: str


class Span(Data, frozen=True):
    """Elements `start <= i < stop`; overlaps spans that share an element, and every named or unknown part."""

    start: int
    stop: int

    def narrowed(self, inner: Span) -> Span:
        """A span of this span, counted as this one is; nothing of it lies behind this one's end."""
        return Span(min(self.start + inner.start, self.stop), min(self.start + inner.stop, self.stop))


class At(Data, frozen=True):
    """The part chosen by an index or a pool handle; two such parts are disjoint iff their indices differ."""

    index: Index


class Anything(Data, frozen=True):
    """An unknown part (`fp.ANY`): may overlap any other."""


Part = Union[Named, Span, At, Anything]


class Obj(Data, frozen=True):
    """An object that exists once: `id` indexes `Program.objects`."""

    id: int
    part: Part | None = None


class Slot(Data, frozen=True):
    """One slot of a ring."""

    id: int
    index: Index
    part: Part | None = None


class Local(Data, frozen=True):
    """A value made or received in this turn: `id` indexes `Thread.locals`."""

    id: int
    part: Part | None = None


Operand = Union[Obj, Slot, Local]

# ---------------------------------------------------------------- objects


class Memory(Data, frozen=True):
    """Memory that lives for ever. `space`: "pinned" | "pageable" | "device" | "managed"; `depth` makes a ring."""

    name: str
    space: str
    depth: int | None = None
    bytes: int = 4096
    gpu: int = 0
    process: str = ""


class Stream(Data, frozen=True):
    """A FIFO of device work (S2). `default` marks a thread's default stream. `gpu` < 0: an agent outside of all GPUs."""

    name: str
    depth: int | None = None
    gpu: int = 0
    default: bool = False
    process: str = ""

    @property
    def is_agent(self) -> bool:
        """A queue of a foreign agent (NIC, copy engine): launch blocking and device synchronisation do not reach it."""
        return self.gpu < 0


class Event(Data, frozen=True):
    """An event that lives for ever and may be re-recorded (S19)."""

    name: str
    depth: int | None = None
    gpu: int = 0
    process: str = ""


class Cursor(Data, frozen=True):
    """A host-side position in rings of `depth`; belongs to the threads that advance it."""

    name: str
    depth: int
    process: str = ""


class Cell(Data, frozen=True):
    """Holds at most one item (a tuple of values of the declared kinds)."""

    name: str
    item: tuple[str, ...]
    depth: int | None = None
    process: str = ""


class Queue(Data, frozen=True):
    """Bounded FIFO of tagged items. `items`: (tag, kinds) pairs; an untagged queue has the one tag ""."""

    name: str
    capacity: int
    items: tuple[tuple[str, tuple[str, ...]], ...]
    process: str = ""


class Pool(Data, frozen=True):
    """`size` interchangeable tokens. `of`: "device" | "pinned" (token is memory) or "row" (token is a handle)."""

    name: str
    size: int
    of: str
    process: str = ""


class Lock(Data, frozen=True):
    """Mutual exclusion between host threads (count 1) or a counting semaphore (count > 1 or `semaphore`)."""

    name: str
    count: int = 1
    semaphore: bool = False
    process: str = ""


class Flag(Data, frozen=True):
    """A host boolean that starts unset."""

    name: str
    process: str = ""


class Counter(Data, frozen=True):
    """A host integer that starts at 0 and never falls."""

    name: str
    process: str = ""


class Channel(Data, frozen=True):
    """Where streams meet: the k-th `Await` of the channel waits for the k-th `Signal`, whatever ranks they belong to (S130).

    `capacity`: signals that may lie there before their awaits come; the next one waits in its stream. None: no bound.
    """

    name: str
    capacity: int | None = None
    process: str = ""


class DeviceFlag(Data, frozen=True):
    """A word in memory that streams and host threads store to and wait for (S118); it starts as 0."""

    name: str
    process: str = ""


Object = Union[Memory, Stream, Event, Cursor, Cell, Queue, Pool, Lock, Flag, Counter, Channel, DeviceFlag]

MOST_SLOTS = 1_000_000
"""The deepest ring, queue or pool and the highest start of a semaphore: a state of the search holds every slot of a queue."""

EVENT, MEMORY, INDEX, HANDLE = "event", "memory", "index", "handle"
"""Kinds of the values that locals, queue items and cells hold."""

# ---------------------------------------------------------------- operations (meaning: model/operations/)


class Access(Data, frozen=True):
    """One access of an operation. `mode` "r" or "w"; `same_bytes`: the write repeats the current content."""

    target: Operand
    mode: str
    same_bytes: bool = False
    harm: str = "value"


class Host(Data, frozen=True):
    """Host code that reads and writes memory itself."""

    name: str
    accesses: tuple[Access, ...]
    time: float | None = None


class Launch(Data, frozen=True):
    """A kernel; with `kernel` false work that is no launch of its own: a host function, an allocation or a free (S38, S103), a
    node of a graph (S94)."""

    name: str
    stream: Operand
    accesses: tuple[Access, ...]
    time: float | None = None
    kernel: bool = True


class Copy(Data, frozen=True):
    """`dst.copy_(src)`; `raw` is cudaMemcpyAsync, which no allocator sees. `src_harm` as in `Access.harm`."""

    dst: Operand
    src: Operand
    stream: Operand
    non_blocking: bool = False
    raw: bool = False
    src_harm: str = "value"
    same_bytes: bool = False
    time: float | None = None


class Memset(Data, frozen=True):
    """Asynchronous fill of device or pinned memory."""

    dst: Operand
    stream: Operand
    time: float | None = None


class Item(Data, frozen=True):
    """`x.item()`: copy to the host and wait for the stream (S33)."""

    src: Operand
    stream: Operand
    harm: str = "value"
    time: float | None = None


class Alloc(Data, frozen=True):
    """A block from a caching allocator into `local`. `space` "device" (owned by `stream`) or "pinned" (`stream` None)."""

    local: int
    space: str
    stream: Operand | None = None
    bytes: int = 4096


class View(Data, frozen=True):
    """Another reference to the same bytes; `attributed=False`: the allocator cannot attribute it (S72, S84).

    `held=False` is a raw pointer: it keeps nothing alive.
    """

    local: int
    base: Operand
    attributed: bool = True
    held: bool = True


class Drop(Data, frozen=True):
    """A local's reference ends (scope exit, `.release()`, `del`). The last one frees the block."""

    local: int


class RecordStream(Data, frozen=True):
    """`x.record_stream(s)` (S64)."""

    block: Operand
    stream: Operand


class NewEvent(Data, frozen=True):
    """A fresh, never recorded event into `local`."""

    local: int


class Record(Data, frozen=True):
    """`event.record(stream)` (S19)."""

    event: Operand
    stream: Operand


class EventSync(Data, frozen=True):
    """`event.synchronize()` (S23)."""

    event: Operand
    time: float | None = None


class StreamWaitEvent(Data, frozen=True):
    """`stream.wait_event(event)` / `event.wait(stream)` (S20)."""

    stream: Operand
    event: Operand


class WaitStream(Data, frozen=True):
    """`stream.wait_stream(other)` (S22)."""

    stream: Operand
    other: Operand


class StreamSync(Data, frozen=True):
    """`stream.synchronize()` (S32)."""

    stream: Operand
    time: float | None = None


class DeviceSync(Data, frozen=True):
    """`torch.cuda.synchronize(gpu)` (S32). `implied`: what a free does on the side (S38, S40), an edge only where the platform says so."""

    gpu: int = 0
    process: str = ""
    time: float | None = None
    implied: bool = False


class Advance(Data, frozen=True):
    """The cursor moves one slot on and its new position goes into `local`."""

    cursor: int
    local: int


class Put(Data, frozen=True):
    """Append an item; waits while the queue is full. `edge=False`: it waits, but the get that made room orders nothing."""

    queue: int
    tag: str
    values: tuple[Operand | Index, ...]
    edge: bool = True


class Get(Data, frozen=True):
    """Remove the oldest item, whose tag is `tag`, into `locals`; waits while the queue is empty."""

    queue: int
    tag: str
    locals: tuple[int, ...]


class CellSet(Data, frozen=True):
    """Store an item; what the cell held loses that reference."""

    cell: Operand
    values: tuple[Operand | Index, ...]


class CellGet(Data, frozen=True):
    """Copy the item into locals (`take`: and empty the cell). A design error when it can be empty."""

    cell: Operand
    locals: tuple[int, ...]
    take: bool = False


class CellClear(Data, frozen=True):
    """Empty the cell."""

    cell: Operand


class Take(Data, frozen=True):
    """Any free token of the pool into `local`; waits while there is none."""

    pool: int
    local: int


class Give(Data, frozen=True):
    """Return a token; with `after`, it becomes free only when that event's captured work is done."""

    pool: int
    token: Operand
    after: Operand | None = None


class Acquire(Data, frozen=True):
    """Lock, or take one from a semaphore; waits while it is not available. `edge=False`: earlier unlocks order nothing."""

    lock: int
    edge: bool = True


class Unlock(Data, frozen=True):
    """Unlock, or give one back to a semaphore."""

    lock: int


class FlagSet(Data, frozen=True):
    """Set the flag."""

    flag: int


class FlagClear(Data, frozen=True):
    """Unset the flag."""

    flag: int


class FlagWait(Data, frozen=True):
    """Wait until the flag is set. `edge=False`: it waits, but the stores that it saw order nothing."""

    flag: int
    edge: bool = True


class CounterAdd(Data, frozen=True):
    """Add a positive constant."""

    counter: int
    amount: int = 1


class CounterWait(Data, frozen=True):
    """Wait until the counter is at least `value`, or at least this thread's turn + `value` (`per_turn`)."""

    counter: int
    value: int
    per_turn: bool = False
    edge: bool = True
    """False: it waits, but the adds that it saw order nothing."""


class Signal(Data, frozen=True):
    """A stream item: announce to the channel that the stream has come here (theory section 2, collectives: start on p).

    `tag`: what is announced; it meets an `Await` of the same tag, any other is a collective mismatch.
    """

    channel: int
    stream: Operand
    tag: str = ""


class Await(Data, frozen=True):
    """A stream item: wait for the next signal of the channel; later items start after the signal's stream prefix."""

    channel: int
    stream: Operand
    tag: str = ""


class StoreFlag(Data, frozen=True):
    """Store a constant into a device flag: a stream item (cuStreamWriteValue), or the host itself where `stream` is None."""

    flag: int
    value: int
    stream: Operand | None = None


class WaitFlag(Data, frozen=True):
    """Wait until a device flag is at least `value` (S118): a stream item, or the host spins where `stream` is None.

    The store that is in the flag when the wait ends is before whatever follows. `reset`: the wait then stores 0.
    """

    flag: int
    value: int
    stream: Operand | None = None
    reset: bool = False


Operation = Union[
    Host, Launch, Copy, Memset, Item, Alloc, View, Drop, RecordStream, NewEvent, Record, EventSync, StreamWaitEvent,
    WaitStream, StreamSync, DeviceSync, Advance, Put, Get, CellSet, CellGet, CellClear, Take, Give, Acquire, Unlock,
    FlagSet, FlagClear, FlagWait, CounterAdd, CounterWait, Signal, Await, StoreFlag, WaitFlag,
]  # fmt: skip

# ---------------------------------------------------------------- questions


class Choose(Data, frozen=True):
    """An open choice. Answers are the options. `agreed`: turn k of every thread that asks gets the same answer."""

    name: str
    options: tuple[str, ...]
    agreed: bool = False


class Maybe(Data, frozen=True):
    """Whether an optional block runs. Answers "yes" | "no"."""

    name: str


class QueueFull(Data, frozen=True):
    """`queue.full()`: "yes" | "no"."""

    queue: int


class QueueHolds(Data, frozen=True):
    """Whether the queue holds at least `count` items: "yes" | "no" (`empty()` asks for 1)."""

    queue: int
    count: int


class QueueTag(Data, frozen=True):
    """Tag of the oldest item; waits while the queue is empty."""

    queue: int


class CellEmpty(Data, frozen=True):
    """`cell.empty()`: "yes" | "no"."""

    cell: Operand


class EventQuery(Data, frozen=True):
    """`event.query()` (S24): "yes" = done | "no"."""

    event: Operand


class StreamQuery(Data, frozen=True):
    """`stream.query()` (S34): "yes" = idle | "no"."""

    stream: Operand


class FlagIsSet(Data, frozen=True):
    """`flag.is_set()`: "yes" | "no"."""

    flag: int


class CounterAtLeast(Data, frozen=True):
    """`counter >= value`: "yes" | "no"."""

    counter: int
    value: int


class TryLock(Data, frozen=True):
    """`lock.try_acquire()`: "yes" (now held) | "no"."""

    lock: int


class TurnBelow(Data, frozen=True):
    """`n < value`, value <= 64: "yes" | "no"."""

    value: int


Question = Union[
    Choose, Maybe, QueueFull, QueueHolds, QueueTag, CellEmpty, EventQuery, StreamQuery, FlagIsSet, CounterAtLeast,
    TryLock, TurnBelow,
]  # fmt: skip

# ---------------------------------------------------------------- threads


class Do(Data, frozen=True):
    """Run one operation, then go to node `next`. `site` numbers the place in the text (`Program.places`)."""

    operation: Operation
    next: int
    site: int = -1


class Ask(Data, frozen=True):
    """Go to the node of the answer that the question gets."""

    question: Question
    branches: tuple[tuple[str, int], ...]
    site: int = -1


Node = Union[Do, Ask]


class LocalInfo(Data, frozen=True):
    """A thread's local: the k-th value of that name in a turn. `kind` EVENT | MEMORY | INDEX | HANDLE."""

    name: str
    kind: str
    occurrence: int = 0
    depth: int | None = None
    """For an INDEX: the depth of the rings that it indexes."""
    pool: int | None = None
    """For a HANDLE or pool memory: the pool."""


class Thread(Data, frozen=True):
    """`kind`: "setup" (runs before all others) | "script" (one turn) | "loop" (turns for ever)."""

    name: str
    kind: str
    nodes: tuple[Node, ...]
    entry: int
    locals: tuple[LocalInfo, ...] = ()
    process: str = ""
    idle: bool = False
    """Between two turns it waits to be given work, and no hang is that it gets none: driver threads, collectors of garbage."""


class Place(Data, frozen=True):
    """A position in the user's source: file relative to the design's root, line, function."""

    file: str
    line: int
    function: str = ""


class Accept(Data, frozen=True):
    """A known hazard that does not fail a gate, and why."""

    hazard: str
    because: str


class Stands(Data, frozen=True):
    """What the design stands for in an engine's repository."""

    path: str
    name: str
    revision: str


class Program(Data, frozen=True, eq=False):
    """A whole design. Equality and hash leave `places` and what is said of the text out: one line lower it is the same design."""

    name: str
    objects: tuple[Object, ...]
    threads: tuple[Thread, ...]
    accepted: tuple[Accept, ...] = ()
    stands_for: tuple[Stands, ...] = ()
    places: tuple[tuple[Place, ...], ...] = ()
    """For each site the user's frames, from the body down."""
    implied: tuple[tuple[int, int], ...] | msgspec.UnsetType = msgspec.UNSET
    """(thread, node) of what calls do on the side: nobody wrote it down, and nobody can take it away."""
    own: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    """Events and streams of the language's own, which nobody can name."""

    def _key(self) -> tuple[Any, ...]:
        return (self.name, self.objects, self.threads, self.accepted, self.stands_for)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self._key() == other._key()

    def bare(self) -> Program:
        """The design alone, without what is said of its text."""
        return msgspec.structs.replace(self, places=(), implied=msgspec.UNSET, own=msgspec.UNSET)

    def __ne__(self, other: object) -> bool:
        return not self == other  # the base class has one of its own, which compares identities

    def __hash__(self) -> int:
        return hash(self._key())


class ProgramFile(msgspec.Struct, frozen=True):
    """The JSON document that carries a program."""

    fencepost_program: int
    program: Program


def to_json(program: Program) -> bytes:
    """Program -> versioned JSON text (UTF-8)."""
    return msgspec.json.encode(ProgramFile(SCHEMA_VERSION, program))


def from_json(data: bytes, source: str = "<json>") -> Program:
    """Versioned JSON text -> Program. Raises `ValueError` naming `source` when the version or shape is not ours."""

    class Head(msgspec.Struct):
        fencepost_program: int

    try:
        version = msgspec.json.decode(data, type=Head).fencepost_program
    except msgspec.DecodeError as error:
        raise ValueError(f"{source}: not a fencepost program ({error}); write one with `fencepost show --json`") from None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"{source}: program of schema version {version}, this fencepost reads version {SCHEMA_VERSION}; "
            "write the file again with this version"
        )
    try:
        return msgspec.json.decode(data, type=ProgramFile).program
    except msgspec.DecodeError as error:
        raise ValueError(f"{source}: damaged program ({error})") from None
