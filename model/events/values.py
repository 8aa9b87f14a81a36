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
    pair = (structure.accesses[first].touched, structure.accesses[second].touched)
    repeats = any(access.touched.same_bytes for access in structure.accesses)
    # What reads the same writes the same, so before the first read that differs only the buffers of these two can.
    keys = None if repeats else {touched.key for number in (a, b) for touched in nodes[number].accesses}
    others = sorted({n for n, touched in structure.accesses if keys is None or touched.key in keys} - {a, b})
    before = [n for n in others if happens_before(nodes[n], nodes[a]) or happens_before(nodes[n], nodes[b])]
    one = Contents(val(structure)[1].saved if repeats else {})
    run_nodes(structure, before, one, {})
    other = one.copy()
    changed = _first_change(structure, (one, other), ((a, b), (b, a)))
    leaves = pair[0].write and pair[1].write and any(one.observe(t) != other.observe(t) for t in pair)
    """Whether the two orders of two writes leave other bytes."""
    if changed is None and one.buffers != other.buffers:
        rest = sorted(set(others) - set(before))
        changes = (_first_change(structure, (one, other), ((n,), (n,))) for n in rest)
        changed = next((index for index in changes if index is not None), None)
    unclear = any(t.same_bytes and any(isinstance(piece, p.Anything) for piece in t.path) for t in pair)
    if changed is not None and unclear:
        return None, UNKNOWN_PART
    if changed is not None:
        step = nodes[structure.accesses[changed].node].step
        return True, f"the read in step {step} of the run observes other content when they swap"
    if not (pair[0].write and pair[1].write):
        return False, "the write leaves the bytes that the read observes"
    if not leaves:
        return False, "both orders leave the same bytes"
    if not any(_may_read(structure, t, pair) for t in _reads(structure.program, structure)):
        return False, "nothing in the design reads these bytes"
    if unclear:
        return None, UNKNOWN_PART
    return None, "no reader of this run tells the two orders apart, but the design has readers of these bytes"


def _first_change(structure: Structure, sides: tuple[Contents, Contents], orders: tuple[tuple[int, ...], ...]) -> int | None:
    """Run the same items on both sides, each in its order: the first access that does not observe the same on both."""
    seen: tuple[dict[int, Observation], ...] = ({}, {})
    for contents, order, got in zip(sides, orders, seen, strict=True):
        run_nodes(structure, order, contents, got)
    return next((index for index, got in seen[0].items() if seen[1][index] != got), None)


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
    key, todo, seen = pair[0].key, [read], set()
    while todo:
        thread, operand = todo.pop()
        if not isinstance(operand, p.Local):
            if key.kind == "memory" and key.id == operand.id:
                return True
            continue
        if (thread.name, operand.id) in seen:
            continue
        seen.add((thread.name, operand.id))
        pool = thread.locals[operand.id].pool
        if pool is not None and key.kind == "pool" and key.id == pool:
            return True
        for giver, made in _sources(structure.program, thread, operand.id):
            if not isinstance(made, p.Alloc):
                todo.append((giver, made))
            elif key.kind in ("block", "fresh") and _may_get(structure, giver, made, pair):
                return True
    return False


def _may_get(structure: Structure, thread: p.Thread, made: p.Alloc, pair: tuple[Touched, Touched]) -> bool:
    """Whether an allocation may get the block of the pair: any of its own allocator may (S62, S80), and its reader then sees what a late
    write of another owner left."""
    for touched in pair:
        if touched.tenant is None:
            return True
        tenant = structure.tenants[touched.tenant]
        if tenant.space != made.space:
            continue
        if made.stream is None:
            if tenant.owner == thread.process:
                return True
        elif isinstance(made.stream, p.Local) or tenant.owner[:1] == (made.stream.id,):
            return True
    return False


def _sources(program: p.Program, thread: p.Thread, local: int) -> Iterator[tuple[p.Thread, p.Alloc | p.Operand]]:
    """Where a local gets its value: an allocation, or the operand that it is a view of, or that is handed over to it."""
    for node in thread.nodes:
        o = node.operation if isinstance(node, p.Do) else None
        if isinstance(o, p.Alloc) and o.local == local:
            yield thread, o
        elif isinstance(o, p.View) and o.local == local:
            yield thread, o.base
        elif isinstance(o, (p.Get, p.CellGet)) and local in o.locals:
            at = o.locals.index(local)
            for giver in program.threads:
                for other in giver.nodes:
                    put = other.operation if isinstance(other, p.Do) else None
                    value = put.values[at] if _gives_to(put, o) else None  # type: ignore[union-attr]
                    if isinstance(value, (p.Obj, p.Slot, p.Local)):
                        yield giver, value


def _gives_to(put: p.Operation | None, got: p.Get | p.CellGet) -> bool:
    """Whether what a put or set hands over may be what a get receives."""
    if isinstance(got, p.Get):
        return isinstance(put, p.Put) and (put.queue, put.tag) == (got.queue, got.tag)
    if not isinstance(put, p.CellSet):
        return False
    return isinstance(put.cell, p.Local) or isinstance(got.cell, p.Local) or put.cell.id == got.cell.id
