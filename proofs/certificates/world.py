"""The state of a certificate's relation: control, and masks that stand for bits.

Every bit of the theory ("what this agent carries happens after the witness") is held as a *mask*: the set of bits of an
earlier state whose disjunction it is, with bit 0 for "true". Executing operations on masks gives what a whole stretch
of a thread does to the bits, once for all bit sets: control never looks at them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

TRUE = 1
"""The mask of a bit that is surely set."""
END, DONE = -1, -2
"""Program counters: the end of a turn when other threads can notice it; a finished script."""

Value = Any
"""None | ("E", event) | ("I", depth, position) | ("M", object, slot, path) memory that lives for ever | ("B",
attributed, path) the guessed block | ("b", attributed, path) a raw pointer to it, "d" once its block was freed | ("T", path) memory of the guessed token | ("K",
pool) the guessed row | ("k", pool) another row | ("O",) other memory."""

Path = tuple[Any, ...]
"""Pieces, each narrowing the one before: ("name", n) | ("span", a, b) | ("row", depth, position) | ("fix", n) | ("tok", pool,
guessed) | ("any",)."""


class Unsupported(Exception):
    """A construct for which no certificate can be written; `args[0]` says which."""


class Witness(NamedTuple):
    """The guessed access. `slot` None: no ring. `epoch`: what it saw or wrote is current. `tenant`: its block is.

    Whether it is a read is a bit (`World.reader`): a read conflicts with less, so a write covers it.
    """

    same: bool
    epoch: bool
    slot: int | None
    path: Path
    tenant: bool


class Queue(NamedTuple):
    """Items are (tag, mask, values); `frees` the masks of the gets that made room; `last` get; `every` operation.

    Where one thread alone uses the queue, what it carries is at most what that thread carries: no masks are kept.
    """

    items: tuple[tuple[str, int | None, tuple[Value, ...]], ...]
    frees: tuple[int, ...]
    last: int
    every: int


class Block(NamedTuple):
    """The guessed block. No references: free. `written`: parts known to have content, None once it is not asked.

    `waits`: records that must be reached before it is handed out; `former`: what its former owner had written, while work
    of that owner is pending.
    """

    refs: int
    free: int
    uses: tuple[tuple[int, int], ...]
    owner: tuple[int, int] | None
    written: tuple[Path, ...] | None
    waits: tuple[int, ...] = ()
    former: tuple[Path, ...] | None = None


class Where(NamedTuple):
    """Where an access touches the class. `owner`: "owner" of the block (or no block), "gone" after its free, "former" when the
    item was enqueued before the free and runs after it, "late" when the witness is the next owner's."""

    slot: int | None
    path: Path
    owner: str = "owner"


class Pending(NamedTuple):
    """An item of a stream that has not run, and what its call carries.

    `what`: ("work", thread, node, accesses) | ("record", number) | ("join", number) until that record is reached | ("go",) |
    ("signal" or "await", channel, tag, thread, node) | ("store", flag, value, ...) | ("wait", flag, value, reset, ...).
    """

    what: tuple[Any, ...]
    mask: int


class Late(NamedTuple):
    """A token that is free when a pending record is reached."""

    record: int
    guessed: bool
    mask: int


class Step(NamedTuple):
    """A host step of a path: `answer` of a question; `got`: the allocation or take got the guessed bytes. With `stream`
    (object, slot) the first item of that stream runs."""

    thread: int
    node: int
    answer: str | None = None
    got: bool = False
    stream: tuple[int, int] | None = None


class Check(NamedTuple):
    """An access of the class whose agent must carry the witness: one of `mask` is set. `what` "write", "read" or an error."""

    mask: int
    what: str
    thread: int
    node: int
    which: int


TABLES = (
    "pc", "turns", "pos", "locals", "tb", "events", "known", "called", "streams", "calls", "busy", "queues", "cells",
    "locks", "flags", "counters", "pools", "agreed", "fifos", "channels", "words", "latest", "inside", "late",
)  # fmt: skip


class World:
    """One state. Lists of immutable values, so that a copy is shallow. `checks`, `spared`, `chosen`, `met` and `path`
    tell what the stretch under way did; they are no part of the state."""

    __slots__ = (*TABLES, "block", "checks", "chosen", "met", "path", "reader", "running", "spared", "witness")

    pc: list[int]
    turns: list[int]
    pos: list[int]
    locals: list[list[Value]]
    tb: list[int]
    events: list[int]
    known: list[int]
    """For each event, only where something is queried: 1 recorded, 2 its capture known complete."""
    called: list[int]
    streams: list[int]
    calls: list[int]
    busy: list[bool]
    queues: list[Queue]
    cells: list[tuple[tuple[Value, ...] | None, int]]
    locks: list[tuple[int, int, int]]
    """(free, mask of the unlocks, mask of all operations)."""
    flags: list[tuple[bool, int, int]]
    """(set, mask of the sets, mask of all operations)."""
    counters: list[tuple[tuple[int, ...], int]]
    pools: list[tuple[tuple[int, ...], int | None]]
    """(masks of the other free tokens, mask of the guessed one: None taken or not followed)."""
    agreed: list[tuple[tuple[int, ...], tuple[tuple[int, str], ...]]]
    fifos: list[tuple[Pending, ...]]
    """What is pending in each stream."""
    channels: list[tuple[tuple[tuple[str, int], ...], int]]
    """(messages with their tags and masks, mask of the latest await)."""
    words: list[tuple[int, int]]
    """(value of a device flag, mask of the store that is in it)."""
    latest: list[int]
    """For each event the number of its latest record while that is pending; 0: it is not."""
    inside: list[tuple[int, ...]]
    """For each thread the records that the call which it is in waits for."""
    late: list[tuple[Late, ...]]
    """For each pool the tokens behind pending records."""
    block: Block | None
    witness: Witness | None
    reader: int
    """Mask of "the witness is a read"."""
    running: int
    """The thread in the middle of a stretch that nobody else can notice; -1: any may move."""
    checks: tuple[Check, ...]
    chosen: tuple[int, int, int] | None
    met: tuple[tuple[int, int, int], ...]
    """Accesses that may share bytes with the witness; for control alone every access that is made."""
    spared: tuple[Check, ...]
    """Checks that need not hold: the pair changes no value."""
    path: tuple[Step, ...]

    def copy(self) -> World:
        """An independent copy."""
        other = World.__new__(World)
        for name in TABLES:
            setattr(other, name, getattr(self, name).copy())
        other.locals = [row.copy() for row in self.locals]
        other.block, other.witness, other.running = self.block, self.witness, self.running
        other.checks, other.chosen, other.met, other.path = self.checks, self.chosen, self.met, self.path
        other.spared, other.reader = self.spared, self.reader
        return other

    def each_mask(self, f: Callable[[int], int]) -> None:
        """Replace every mask by `f(mask)`, always in the same order for equal control."""
        self.reader = f(self.reader)
        self.tb = [f(m) for m in self.tb]
        self.streams = [f(m) for m in self.streams]
        self.events = [f(m) for m in self.events]
        self.called = [f(m) for m in self.called]
        self.calls = [f(m) for m in self.calls]
        self.queues = [
            Queue(
                tuple((tag, None if m is None else f(m), vs) for tag, m, vs in q.items),
                tuple(f(m) for m in q.frees),
                f(q.last),
                f(q.every),
            )
            for q in self.queues
        ]
        self.cells = [(vs, f(m)) for vs, m in self.cells]
        self.locks = [(n, f(a), f(b)) for n, a, b in self.locks]
        self.flags = [(v, f(a), f(b)) for v, a, b in self.flags]
        self.counters = [(vs, f(m)) for vs, m in self.counters]
        self.pools = [(tuple(f(m) for m in free), None if g is None else f(g)) for free, g in self.pools]
        self.fifos = [tuple(Pending(what, f(m)) for what, m in row) for row in self.fifos]
        self.channels = [(tuple((tag, f(m)) for tag, m in row), f(last)) for row, last in self.channels]
        self.words = [(value, f(m)) for value, m in self.words]
        self.late = [tuple(token._replace(mask=f(token.mask)) for token in row) for row in self.late]
        if self.block is not None:
            self.block = self.block._replace(free=f(self.block.free))

    def masks(self) -> list[int]:
        """All masks in the order of `each_mask`."""
        result: list[int] = []

        def collect(mask: int) -> int:
            result.append(mask)
            return mask

        self.each_mask(collect)
        return result

    def control(self) -> tuple[Any, ...]:
        """Everything but the masks; equal control means the same bits in the same order."""
        block = self.block
        return (
            tuple(self.pc), self.running, tuple(self.turns), tuple(self.pos), tuple(map(tuple, self.locals)),
            tuple(self.known), tuple(self.busy),
            tuple((tuple((tag, vs) for tag, _, vs in q.items), len(q.frees)) for q in self.queues),
            tuple(vs for vs, _ in self.cells), tuple(n for n, _, _ in self.locks),
            tuple(v for v, _, _ in self.flags), tuple(vs for vs, _ in self.counters),
            tuple((len(free), g is None) for free, g in self.pools), tuple(self.agreed), len(self.events),
            tuple(tuple(what for what, _ in row) for row in self.fifos), tuple(self.latest), tuple(self.inside),
            tuple(tuple(tag for tag, _ in row) for row, _ in self.channels), tuple(value for value, _ in self.words),
            tuple(tuple((x.record, x.guessed) for x in row) for row in self.late),
            None if block is None else (block.refs, block.uses, block.owner, block.written, block.waits, block.former),
            None if self.witness is None else tuple(self.witness),
        )  # fmt: skip

    def map_values(self, f: Callable[[Value], Value]) -> None:
        """Replace every value by `f(value)`, always in the same order for equal control."""
        self.locals = [[f(v) for v in row] for row in self.locals]
        self.queues = [
            q._replace(items=tuple((tag, m, tuple(map(f, vs))) for tag, m, vs in q.items)) for q in self.queues
        ]
        self.cells = [(None if vs is None else tuple(map(f, vs)), m) for vs, m in self.cells]


def part_of(path: Path, piece: Any) -> Path:
    """A part of a part. A span of a span is counted from where the larger one starts, and ends with it at most."""
    if path and path[-1][0] == piece[0] == "span":
        _, start, stop = path[-1]
        return (*path[:-1], ("span", min(start + piece[1], stop), min(start + piece[2], stop)))
    return (*path, piece)


def pieces_disjoint(a: Any, b: Any) -> bool:
    """Whether two pieces of one buffer share no byte."""
    if a[0] != b[0]:
        return False  # two ways of cutting that cannot be compared
    if a[0] == "name":
        return bool(a[1] != b[1])
    if a[0] == "span":
        return bool(min(a[2], b[2]) <= max(a[1], b[1]))
    if a[0] == "row":
        return bool(a[1] == b[1] and a[2] != b[2])
    if a[0] == "fix":
        return bool(a[1] != b[1])
    # The guessed token is one of its kind; two others may be the same.
    return bool(a[0] == "tok" and a[1] == b[1] and a[2] != b[2])


def same_piece(a: Any, b: Any) -> bool:
    """Whether two pieces surely are the same bytes."""
    return bool(a == b and a[0] != "any" and not (a[0] == "tok" and not a[2]))


def may_overlap(a: Path, b: Path) -> bool:
    """Whether two parts of one buffer may share a byte."""
    for x, y in zip(a, b):  # noqa: B905  a shorter path is the larger part
        if pieces_disjoint(x, y):
            return False
        if not same_piece(x, y):
            return True
    return True


def surely_covers(a: Path, b: Path) -> bool:
    """Whether part `a` surely contains part `b`."""
    if len(a) > len(b):
        return False
    for k, (x, y) in enumerate(zip(a, b)):  # noqa: B905  `a` is not longer
        if same_piece(x, y):
            continue
        return bool(k == len(a) - 1 and x[0] == y[0] == "span" and x[1] <= y[1] and y[2] <= x[2])
    return True
