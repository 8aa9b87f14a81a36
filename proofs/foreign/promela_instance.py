"""A bounded instance of a program for SPIN: how many of everything there are, and the parts of memory that can be named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Union

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named

PAD = "<pad "
"""Stands for the unused locations of a stream item until the widest item is known."""

LARGEST = 250
"""Most slots, events or items of one kind: SPIN counts them in bytes."""

REFERENCES = 8000
"""Most pairs of a location and a part: a reference to one is a short."""

Piece = Union[p.Named, p.Span, p.Anything, int]
"""A part with its index known; an int is the row `buf[r]`."""


class NotExported(ValueError):
    """A feature that the Promela model does not have; the text names it."""


class Instance:
    """What there is of everything."""

    thread: p.Thread
    """The thread that is being written."""

    def __init__(self, program: p.Program, steps: int, environment: str | None, platform: str | None) -> None:
        self.program = program
        self.steps = steps
        self.environment = environment_named(environment)
        self.platform = platform_named(platform)
        self.fifos = self._fifos()
        self.streams = max(len(set(self.fifos.values())), 1)
        self.lanes = {key: k for k, key in enumerate(self.fifos)} if self.environment.one_queue else {}
        """With one hardware queue, for each stream slot the number of what is kept of its own last item (S116)."""
        self.base: dict[int, int] = {}
        """First location, event or cell of an object; of a pool of memory the first location."""
        self.sites: list[tuple[p.Access, ...]] = []
        """Accesses of each kind of stream item."""
        self.meets: dict[int, list[str]] = {}
        """Kinds of items at which a stream may have to wait for others: what it does when it can."""
        self.tags: dict[str, int] = {}
        self.agreed: dict[str, int] = {}
        self.options: dict[str, int] = {}
        self.counts = self._count()
        self.rows = self._rows()
        self.paths = self._paths()
        """All parts of memory that a reference may name, as tuples of pieces; the whole is the first."""
        if self.counts["location"] * len(self.paths) > REFERENCES:
            raise NotExported(f"more than {REFERENCES} parts of memory within {self.steps} turns")
        self.width = 1
        """Most locations in one stream item."""
        self.values = max([len(kinds) for o in program.objects for kinds in kinds_of(o)], default=0)

    def _fifos(self) -> dict[tuple[int, int], int]:
        numbers: dict[Any, int] = {}
        result = {}
        for i, o in enumerate(self.program.objects):
            if isinstance(o, p.Stream):
                for slot in range(o.depth or 1):
                    shared: Any = (o.gpu, o.process) if self.environment.one_queue else (i, slot)
                    result[i, slot] = numbers.setdefault(shared, len(numbers))
        return result

    def _count(self) -> dict[str, int]:
        """How many of everything there are at most; and where each object begins."""
        many = {"location": 0, "event": 0, "cell": 0, "token": 0, "block": 0, "item": 1}
        for i, o in enumerate(self.program.objects):
            depth = getattr(o, "depth", None) or 1
            if isinstance(o, p.Pool):
                many["token"] += o.size
                if o.of != "row":
                    self.base[i] = many["location"]
                    many["location"] += o.size
                continue
            kind = {p.Memory: "location", p.Event: "event", p.Cell: "cell"}.get(type(o))
            if kind is not None:
                self.base[i] = many[kind]
                many[kind] += depth
        for thread in self.program.threads:
            turns = self.steps if thread.kind == "loop" else 1
            for node in thread.nodes:
                if isinstance(node, p.Do):
                    many["event"] += turns * isinstance(node.operation, p.NewEvent)
                    many["block"] += turns * isinstance(node.operation, p.Alloc)
                    many["item"] += turns * isinstance(node.operation, (p.Launch, p.Copy, p.Memset, p.Item, *e.MEETINGS))
        many["location"] += many["block"]
        for kind, number in many.items():
            if number > LARGEST:
                raise NotExported(f"more than {LARGEST} {kind}s within {self.steps} turns")
        return many

    # ------------------------------------------------------------ parts of memory

    def _rows(self) -> range:
        """The rows `buf[r]` that there are at most: an index of a cursor or pool is below its size, a turn below the bound."""
        least, most = 0, 1
        for o in self.program.objects:
            most = max(most, o.size if isinstance(o, p.Pool) else o.depth if isinstance(o, p.Cursor) else 1)
        for found in parts_of(self.program.threads):
            if isinstance(found, p.At):
                index = found.index
                offset = index.slot if isinstance(index, p.Fixed) else index.offset
                least = min(least, offset)
                most = max(most, offset + (self.steps if isinstance(index, p.Turn) else most))
        return range(least, most)

    def _pieces(self, part: p.Part) -> list[Piece]:
        return list(self.rows) if isinstance(part, p.At) else [part]

    def _paths(self) -> list[tuple[Piece, ...]]:
        """Views may narrow, and every use of one may narrow once more."""
        views: dict[Piece, None] = {}
        uses: dict[Piece, None] = {}
        for part in parts_of(self.program.threads):
            uses.update(dict.fromkeys(self._pieces(part)))
        for thread in self.program.threads:
            for node in thread.nodes:
                if isinstance(node, p.Do) and isinstance(node.operation, (p.View, p.Put, p.CellSet)):
                    for part in parts_of(node.operation):
                        views.update(dict.fromkeys(self._pieces(part)))
        paths: dict[tuple[Piece, ...], None] = {(): None}
        paths.update(dict.fromkeys((piece,) for piece in uses))
        paths.update(dict.fromkeys((view, piece) for view in views for piece in uses))
        return list(paths)

    def block(self, reference: str) -> str:
        """Number of the block that a reference names."""
        return f"{reference} / {4 * len(self.paths)} - {self.counts['location'] - self.counts['block']}"

    def held(self, reference: str) -> str:
        """Whether the reference keeps a block alive."""
        first = 4 * len(self.paths) * (self.counts["location"] - self.counts["block"])
        return f"({reference} >= {first} && ({reference} & 2) == 0)"

    def steps_of(self, kind: type) -> int:
        """How often operations of a kind run at most."""
        return sum(
            (self.steps if t.kind == "loop" else 1)
            for t in self.program.threads for node in t.nodes
            if isinstance(node, p.Do) and isinstance(node.operation, kind)
        )  # fmt: skip

    def signals_of(self, channel: int) -> int:
        """How many signals a channel gets at most."""
        return sum(
            (self.steps if t.kind == "loop" else 1)
            for t in self.program.threads for node in t.nodes
            if isinstance(node, p.Do) and isinstance(node.operation, p.Signal) and node.operation.channel == channel
        )  # fmt: skip


def parts_of(found: object) -> Iterator[p.Part]:
    """All parts that data mentions."""
    if isinstance(found, (p.Obj, p.Slot, p.Local)):
        if found.part is not None:
            yield found.part
    elif isinstance(found, p.Data):
        for name in type(found).__struct_fields__:
            yield from parts_of(getattr(found, name))
    elif isinstance(found, tuple):
        for one in found:
            yield from parts_of(one)


def overlap(a: tuple[Piece, ...], b: tuple[Piece, ...]) -> bool:
    """Whether two parts may share a byte: names, rows and spans keep apart among themselves, all else may overlap."""
    for x, y in zip(_measured(a), _measured(b)):  # noqa: B905  a shorter path is the larger part
        if isinstance(x, p.Named) and isinstance(y, p.Named):
            apart = x != y
        elif isinstance(x, p.Span) and isinstance(y, p.Span):
            apart = min(x.stop, y.stop) <= max(x.start, y.start)
        else:
            apart = isinstance(x, int) and isinstance(y, int) and x != y
        if apart:
            return False
        if x != y or isinstance(x, p.Anything):
            return True
    return True


def _measured(path: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The path with spans of spans counted from the first element of what is cut."""
    for k, (x, y) in enumerate(zip(path, path[1:])):  # noqa: B905  neighbours
        if isinstance(x, p.Span) and isinstance(y, p.Span):
            inner = p.Span(min(x.start + y.start, x.stop), min(x.start + y.stop, x.stop))
            return _measured((*path[:k], inner, *path[k + 2 :]))
    return path


def spelled(path: tuple[Piece, ...]) -> str:
    return ".".join(
        f"[{x}]" if isinstance(x, int) else x.name if isinstance(x, p.Named)
        else f"[{x.start}:{x.stop}]" if isinstance(x, p.Span) else "any" for x in path
    ) or "whole"  # fmt: skip


def kinds_of(found: p.Object) -> list[tuple[str, ...]]:
    if isinstance(found, p.Queue):
        return [kinds for _, kinds in found.items]
    return [found.item] if isinstance(found, p.Cell) else []
