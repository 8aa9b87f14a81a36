"""Memory that captures allocate: its content is undefined until a node writes it (S74, S97), so no node may read it before."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from fencepost.model import program as p
from fencepost.model.language.errors import fail
from fencepost.model.operations.device import accesses

if TYPE_CHECKING:
    from fencepost.model.events.parts import Cuts, Path, Piece
    from fencepost.model.language.design import Design
    from fencepost.model.language.graphs import Graph


class Refers(NamedTuple):
    """A reference to such memory: the object's number, which tensor there (one block may be that of several, S96), and the part."""

    memory: int
    tensor: int
    path: Path
    held: bool = True
    """Whether it keeps the block from being given to the next tensor."""


class Used(NamedTuple):
    """An access of a captured node; `name` of the node, `place` in the text."""

    refers: Refers
    write: bool
    same_bytes: bool
    name: str
    place: str


class Private:
    """What the captures of a design allocated, and the views of it that were made in them."""

    def __init__(self) -> None:
        self.tensors: dict[int, list[tuple[str, Graph]]] = {}
        """Memory -> the names of the tensors that had it, and in whose capture they were made, the latest last."""
        self.views: dict[tuple[str, int], Refers] = {}
        """Thread and local."""

    def allocated(self, memory: int, name: str, graph: Graph) -> None:
        """A new tensor has the memory."""
        self.tensors.setdefault(memory, []).append((name, graph))

    def refers(self, operand: p.Operand, thread: str) -> Refers | None:
        """What an operand of the thread refers to, if it is such memory."""
        if isinstance(operand, p.Local):
            known = self.views.get((thread, operand.id))
        else:
            known = Refers(operand.id, len(self.tensors[operand.id]) - 1, ()) if operand.id in self.tensors else None
        if known is None or operand.part is None:
            return known
        from fencepost.model.events.parts import narrowed

        return known._replace(path=narrowed(known.path, _piece(operand.part)))


def _piece(part: p.Part) -> Piece:
    from fencepost.model.events.parts import Row

    if isinstance(part, p.At):
        return Row(part.index.slot) if isinstance(part.index, p.Fixed) else p.Anything()
    return part


class _Launches(NamedTuple):
    """The launches of a graph in a thread: their first nodes, and their last ones."""

    first: list[int]
    last: set[int]


class _Elsewhere:
    """What the threads do with such memory besides launching graphs, and where they launch which."""

    def __init__(self, design: Design, threads: tuple[p.Thread, ...]) -> None:
        self._design, self.threads = design, threads
        self.launches: dict[tuple[str, int], _Launches] = {}
        """Graph and thread."""
        self.uses: list[Refers] = []
        self.writes: list[tuple[int, int, Refers]] = []
        """Thread, node, and what it writes."""
        self.handed_over: set[int] = set()
        """Memory that may be written by what is not seen here: through a queue, a cell, or a view that was made outside of the captures."""
        for t, thread in enumerate(threads):
            launched = {n for graph in design._graphs for n in self._launched(graph, t)}
            for n, node in enumerate(thread.nodes):
                if isinstance(node, p.Do) and n not in launched:
                    self._look(t, n, node.operation)

    def _launched(self, graph: Graph, t: int) -> Iterator[int]:
        """The nodes of the graph's launches in a thread."""
        done, nodes = p.Obj(-1 if graph._done is None else graph._done), self.threads[t].nodes
        for n, node in enumerate(nodes):
            if isinstance(node, p.Do) and isinstance(node.operation, p.StreamWaitEvent) and node.operation.event == done:
                found = self.launches.setdefault((graph._name, t), _Launches([], set()))
                found.first.append(n)
                while isinstance(node, p.Do):
                    yield n
                    if isinstance(node.operation, p.Record) and node.operation.event == done:
                        found.last.add(n)
                        break
                    n, node = node.next, nodes[node.next]

    def _look(self, t: int, n: int, operation: p.Operation) -> None:
        private, name = self._design._private, self.threads[t].name
        touched = operation.accesses if isinstance(operation, p.Host) else accesses(operation)
        for access in touched:
            of = private.refers(access.target, name)
            if of is not None:
                self.uses.append(of)
                if access.mode == "w" and not access.same_bytes:
                    self.writes.append((t, n, of))
        if touched or isinstance(operation, p.RecordStream):
            return
        if isinstance(operation, p.View) and (name, operation.local) in private.views:
            return
        if isinstance(operation, p.CellSet) and any(operation.cell.id in graph._cells.values() for graph in self._design._graphs):
            return  # an address that a graph bakes
        for operand in _operands(operation):
            of = private.refers(operand, name)
            if of is not None:
                self.handed_over.add(of.memory)

    def written_before(self, t: int, n: int, sources: Collection[tuple[int, int]]) -> bool:
        """Whether one of the sources, thread and node, has surely run when thread `t` comes to its node `n`."""
        thread = self.threads[t]
        setups = [s for s, one in enumerate(self.threads) if one.kind == "setup"]
        if thread.kind == "setup":
            setups = [s for s in setups if s < t and self.threads[s].process == thread.process]
        return not self._reaches(t, n, sources) or any(not self._reaches(s, p.END, sources) for s in setups)

    def _reaches(self, t: int, goal: int, without: Collection[tuple[int, int]]) -> bool:
        """Whether a turn of the thread may come to the node, or its end, without one of the nodes."""
        thread, seen = self.threads[t], set()
        todo = [thread.entry]
        while todo:
            n = todo.pop()
            if n == goal:
                return True
            if n == p.END or n in seen or (t, n) in without:
                continue
            seen.add(n)
            node = thread.nodes[n]
            todo += [node.next] if isinstance(node, p.Do) else [to for _, to in node.branches]
        return False


def check(design: Design, threads: tuple[p.Thread, ...]) -> None:
    """Raise `DesignError` where a captured node reads what nothing may have written at a launch of the graph."""
    from fencepost.model.events.parts import asked, gives

    elsewhere = _Elsewhere(design, threads)
    pieces: dict[tuple[int, int], list[Piece]] = {}
    for of in (*elsewhere.uses, *(one.refers for graph in design._graphs for one in graph._used)):
        pieces.setdefault(of[:2], []).extend(of.path[:1])
    for graph in design._graphs:
        before: list[Used] = []
        for one in graph._used:
            of = one.refers
            before.append(one)
            if one.write or of.memory in elsewhere.handed_over:
                continue
            size: int = design._objects[of.memory].bytes  # type: ignore[union-attr]
            for piece in asked(of.path, _cuts(pieces[of[:2]], size), size):
                if not any(_gives(other, of, piece) for other in before):
                    sources = [(t, n) for t, n, to in elsewhere.writes if to[:2] == of[:2] and gives(to.path, of.path, piece)]
                    others = [other for other in design._graphs if other is not graph and any(_gives(node, of, piece) for node in other._used)]
                    _written_elsewhere(design, graph, one, piece, sources, others, elsewhere)


def _gives(node: Used, read: Refers, piece: Piece | None) -> bool:
    from fencepost.model.events.parts import gives

    return node.write and not node.same_bytes and node.refers[:2] == read[:2] and gives(node.refers.path, read.path, piece)


def _cuts(pieces: list[Piece], size: int) -> Cuts:
    """How its parts cut one tensor."""
    from fencepost.model.events.parts import Cuts

    edges = {end for one in pieces if isinstance(one, p.Span) for end in (one.start, one.stop)}
    ends = sorted(edges | {0, size}) if edges else []
    names = sorted({one.name for one in pieces if isinstance(one, p.Named)})
    return Cuts(tuple(names), tuple(p.Span(a, b) for a, b in zip(ends, ends[1:])))  # noqa: B905  neighbours


def _written_elsewhere(
    design: Design, graph: Graph, read: Used, piece: Piece | None, sources: list[tuple[int, int]], others: list[Graph], elsewhere: _Elsewhere
) -> None:
    """Raise `DesignError` where the piece of the read may not have been written at a launch, by `sources` or a launch of `others`."""
    name, maker = design._private.tensors[read.refers.memory][read.refers.tensor]
    part = f"[{piece.start}:{piece.stop}]" if isinstance(piece, p.Span) else f"[{piece.name!r}]" if isinstance(piece, p.Named) else ""
    what = f"graph {graph._name!r}: {read.name!r} reads {name!r}{part}, which is allocated in the capture{f' of {maker._name!r}' if maker is not graph else ''} and "
    if not sources and not others:
        fail(
            f"{what}which no node before it writes: its content is undefined; write it first, or make it outside of the capture",
            read.place,
        )
    threads = elsewhere.threads
    if any(threads[s].kind != "setup" and elsewhere.launches.get((graph._name, s)) is None for s, _ in sources):
        return  # how what several threads do follows each other is not told here
    launched = [(t, n) for (called, t), found in elsewhere.launches.items() if any(called == other._name for other in others) for n in found.last]
    for (called, t), found in elsewhere.launches.items():
        for n in found.first if called == graph._name else ():
            if not elsewhere.written_before(t, n, {*sources, *launched}):
                cure = " or ".join(f"launch graph {other._name!r}" for other in others) or "write it"
                fail(
                    f"{what}thread {threads[t].name!r} may launch the graph when nothing has written that yet: its content is undefined; "
                    f"{cure} before it in the same turn, or once in a @d.setup",
                    design._sites.place(threads[t].nodes[n].site),
                )


def _operands(value: object) -> Iterator[p.Operand]:
    """The memory that is named anywhere in an operation."""
    if isinstance(value, (p.Obj, p.Slot, p.Local)):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _operands(one)
    elif isinstance(value, p.Data):
        for name in value.__struct_fields__:
            yield from _operands(getattr(value, name))
