"""Values: what every reader observes when the items run in a given order, and whether a swap changes it.

Content is a hash of the operation instance that wrote it and of all that this instance read. A buffer holds a list of
entries (part, owner, content), oldest first; a later entry that surely covers an earlier one replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.events.parts import Key, Path, covers, paths_overlap
from fencepost.model.events.state import Touched
from fencepost.model.events.structure import Structure, happens_before, late
from fencepost.model.operations import Context, lower_node


class Entry(NamedTuple):
    """What one write left in a buffer."""

    path: Path
    tenant: int | None
    content: Any


Observation = frozenset[Any]

UNKNOWN_PART = "a write repeats the bytes of an unknown part, so nobody can say which bytes those are"
"""Why a pair stays open whatever run follows."""


class Contents:
    """The content of all buffers. `saved` is what same-bytes writes continue: their place's content in val order.

    `apart`: each owner of a block has memory of its own.
    """

    def __init__(self, saved: dict[int, tuple[Observation, list[Entry]]] | None = None, apart: bool = False) -> None:
        self.buffers: dict[tuple[Key, int | None], list[Entry]] = {}
        self.apart = apart
        self.saved = {} if saved is None else saved
        self.replaying = saved is not None

    def copy(self) -> Contents:
        """The same content, to go on with apart."""
        other = Contents(self.saved.copy(), self.apart)
        other.replaying = self.replaying
        other.buffers = self.buffers.copy()  # the lists in it are never changed
        return other

    def visible(self, t: Touched) -> list[Entry]:
        """The entries that an access can see, oldest first, from the last one that covers it.

        What an earlier owner of the block left there before the present owner's first write is undefined content.
        """
        entries = self.buffers.get(self._place(t), [])
        if t.tenant is not None:
            own = next((k for k, entry in enumerate(entries) if entry.tenant == t.tenant), len(entries))
            entries = [x for k, x in enumerate(entries) if k > own or (x.tenant or 0) >= t.tenant]
        seen: list[Entry] = []
        for entry in reversed(entries):
            foreign = entry.tenant != t.tenant
            if foreign or paths_overlap(entry.path, t.path):
                seen.append(entry)
                if not entry.path or (not foreign and covers(entry.path, t.path)):
                    break
        return seen[::-1]

    def observe(self, t: Touched) -> Observation:
        """What a read of that part gets: equal exactly when the same writes determine the same bytes of it."""
        seen = self.visible(t)
        covered = bool(seen) and self._covers(seen[0], t)
        start: list[Any] = [] if covered else [("*", _initial(t), frozenset())]
        return frozenset(
            start
            + [
                (
                    "*" if self._covers(x, t) else (x.path, x.tenant),
                    x.content,
                    frozenset(y.content for y in seen[:k] if _share(x, y) and not self._covers(x, t)),
                )
                for k, x in enumerate(seen)
            ]
        )

    @staticmethod
    def _covers(entry: Entry, t: Touched) -> bool:
        return not entry.path or (entry.tenant == t.tenant and covers(entry.path, t.path))

    def write(self, index: int, t: Touched, content: Any) -> None:
        """Access `index` writes; a same-bytes write leaves the content that its place has in val order.

        Where its owner has written nothing there, that is undefined content of its own, and not what an earlier owner left.
        """
        if not t.same_bytes:
            self._put(t, Entry(t.path, t.tenant, content))
            return
        if not self.replaying:
            self.saved[index] = (self.observe(t), self.visible(t))
        observation, entries = self.saved[index]
        if t.tenant is not None and all(entry.tenant != t.tenant for entry in entries):
            self._put(t, Entry(t.path, t.tenant, _initial(t)))
        elif self.replaying and self.observe(t) != observation:
            self._put(t, Entry(t.path, t.tenant, _initial(t)))
            for entry in entries:
                inside = entry.tenant == t.tenant and not self._covers(entry, t)
                self._put(t, entry if inside else Entry(t.path, t.tenant, entry.content))

    def _put(self, t: Touched, new: Entry) -> None:
        kept = [
            x for x in self.buffers.get(self._place(t), [])
            if new.path and not (x.tenant == new.tenant and covers(new.path, x.path))
        ]  # fmt: skip
        self.buffers[self._place(t)] = [*kept, new]

    def _place(self, t: Touched) -> tuple[Key, int | None]:
        return (t.key, t.tenant if self.apart else None)


def _initial(t: Touched) -> Any:
    return ("initial", t.key) if t.tenant is None else ("undefined", t.tenant)


def _share(a: Entry, b: Entry) -> bool:
    return a.tenant != b.tenant or paths_overlap(a.path, b.path)


def run_nodes(structure: Structure, order: Iterable[int], contents: Contents,
              seen: dict[int, Observation]) -> None:  # fmt: skip
    """Run items one by one; `seen` gets what each reading access observes."""
    for number in order:
        read: list[Observation] = []
        for index in structure.of_node[number]:
            t = structure.accesses[index].touched
            if t.write:
                contents.write(index, t, hash((number, index, tuple(read))))
            else:
                seen[index] = contents.observe(t)
                read.append(seen[index])


def val(structure: Structure) -> tuple[dict[int, Observation], Contents]:
    """The reference execution: items one by one in the run's order."""
    seen: dict[int, Observation] = {}
    contents = Contents()
    run_nodes(structure, range(len(structure.nodes)), contents, seen)
    return seen, contents


def value_change(structure: Structure, first: int, second: int) -> tuple[bool | None, str]:
    """Whether swapping two unordered accesses (indices) changes what some reader observes, and a sentence why.

    True: shown. False: shown impossible, the pair is access-level only. None: neither (a WAW whose loser nobody reads
    in this run, though the design has readers).
    """
    nodes = structure.nodes
    if late(structure, first, second):
        return _late_change(structure, first, second)
    a, b = structure.accesses[first].node, structure.accesses[second].node
    repeats = any(access.touched.same_bytes for access in structure.accesses)
    saved = val(structure)[1].saved if repeats else {}
    before = [n for n, x in enumerate(nodes) if happens_before(x, nodes[a]) or happens_before(x, nodes[b])]
    rest = sorted(set(range(len(nodes))) - set(before) - {a, b})
    outcomes: list[dict[int, Observation]] = []
    left: list[tuple[Observation, ...]] = []
    pair = (structure.accesses[first].touched, structure.accesses[second].touched)
    start, observed = Contents(saved), dict[int, Observation]()
    run_nodes(structure, before, start, observed)
    for middle in ((a, b), (b, a)):
        contents, seen = start.copy(), observed.copy()
        run_nodes(structure, middle, contents, seen)
        left.append(tuple(contents.observe(t) for t in pair))
        run_nodes(structure, rest, contents, seen)
        outcomes.append(seen)
    changed = [index for index, got in outcomes[0].items() if outcomes[1][index] != got]
    unclear = any(t.same_bytes and any(isinstance(piece, p.Anything) for piece in t.path) for t in pair)
    if changed and unclear:
        return None, UNKNOWN_PART
    if changed:
        reader = structure.accesses[changed[0]]
        return True, f"the read in step {nodes[reader.node].step} of the run observes other content when they swap"
    if not (pair[0].write and pair[1].write):
        return False, "the write leaves the bytes that the read observes"
    if left[0] == left[1]:
        return False, "both orders leave the same bytes"
    if not any(_may_read(structure, t, pair) for t in _reads(structure.program, structure)):
        return False, "nothing in the design reads these bytes"
    if unclear:
        return None, UNKNOWN_PART
    return None, "no reader of this run tells the two orders apart, but the design has readers of these bytes"


def unread(structure: Structure, first: int, second: int) -> bool:
    """Whether nothing in the design reads the bytes of the two accesses (indices), so that no run tells their orders apart."""
    pair = (structure.accesses[first].touched, structure.accesses[second].touched)
    return not any(_may_read(structure, t, pair) for t in _reads(structure.program, structure))


def _late_change(structure: Structure, first: int, second: int) -> tuple[bool | None, str]:
    """`value_change` for an access of an earlier owner that comes after one of a later owner."""
    nodes = range(len(structure.nodes))
    outcomes: list[dict[int, Observation]] = []
    for apart in (False, True):
        contents = Contents(apart=apart)
        outcomes.append({})
        run_nodes(structure, nodes, contents, outcomes[-1])
    owners = {structure.accesses[index].touched.tenant for index in (first, second)}
    for index, got in outcomes[0].items():
        if outcomes[1][index] != got and structure.accesses[index].touched.tenant in owners:
            reader = structure.nodes[structure.accesses[index].node]
            return True, f"the read in step {reader.step} of the run observes what another owner wrote"
    pair = (structure.accesses[first].touched, structure.accesses[second].touched)
    if not any(_may_read(structure, t, pair) for t in _reads(structure.program, structure)):
        return False, "nothing in the design reads these bytes"
    return None, "no reader of this run sees what another owner wrote, but the design has readers of these bytes"


def _reads(program: p.Program, structure: Structure) -> Iterator[tuple[p.Thread, p.Operand]]:
    """Every operand that some operation of the design reads."""
    for thread in program.threads:
        context = Context(program, thread, structure.platform, structure.environment)
        for node in thread.nodes:
            if isinstance(node, p.Do):
                for effect in lower_node(node, context):
                    if isinstance(effect, (e.Touch, e.Enqueue)):
                        for access in effect.accesses:
                            if access.mode == "r":
                                yield thread, access.target


def _may_read(structure: Structure, read: tuple[p.Thread, p.Operand], pair: tuple[Touched, Touched]) -> bool:
    """Whether an operand may name the bytes of the pair in some run."""
    thread, operand = read
    key = pair[0].key
    if isinstance(operand, p.Local):
        allocated, base, received = _origin(thread, operand.id)
        if allocated:
            # Any allocation may get any block: its reader sees what a late write of another owner left.
            return key.kind in ("block", "fresh")
        if base is not None:
            return _may_read(structure, (thread, base), pair)
        pool = thread.locals[operand.id].pool
        return received or (pool is not None and key.kind == "pool" and key.id == pool)
    return key.kind == "memory" and key.id == operand.id


def _origin(thread: p.Thread, local: int) -> tuple[bool, p.Operand | None, bool]:
    """How a local gets its value: allocated here, a view of another operand, or received from a queue or cell."""
    for node in thread.nodes:
        if isinstance(node, p.Do):
            o = node.operation
            if isinstance(o, p.Alloc) and o.local == local:
                return True, None, False
            if isinstance(o, p.View) and o.local == local:
                return False, o.base, False
            if isinstance(o, (p.Get, p.CellGet)) and local in o.locals:
                return False, None, True
    return False, None, False
