"""Which bytes an exploration is about: one guessed location per exploration.

A witness is an access to *some* byte. Instead of tracking all memory, one exploration fixes a location: an atom of a
memory object (of one ring slot, found by symmetry), or one byte of a block that a caching allocator or a pool hands
out. Two accesses conflict at the location iff both cover it, so judging every location judges every pair
(shared theory: "Guess the block ... then a witness among its accesses"; a byte has one tenant at a time).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from fencepost.model import program as p
from fencepost.proofs.explore.parts import narrowed


class Location(msgspec.Struct, frozen=True):
    """A guessed byte.

    `kind` "memory": byte `atom` of object `id` | "block": of a block of the caching allocator (`id` = owner stream's
    object, None for pinned, of which each `process` has an allocator of its own, S80) | "pool": of a token of memory pool `id`.
    """

    kind: str
    id: int | None
    atom: tuple[str | int, ...] = ()
    process: str = ""

    def behind(self, size: int) -> bool:
        """Whether the byte lies behind an allocation of so many bytes."""
        return self.atom[:1] == ("span",) and int(self.atom[1]) >= size

    def label(self, program: p.Program) -> str:
        """A short name for progress lines and certificates."""
        shown = self.atom[1:] if self.atom[:1] == ("both",) else self.atom
        atom = "" if not shown else f"[{' '.join(map(str, shown))}]"
        if self.kind == "block":
            owner = "pinned" if self.id is None else program.objects[self.id].name
            if self.process and len(_pinning(program)) > 1:
                owner += f" of {self.process}"
            return f"blocks of {owner}{atom}"
        assert self.id is not None
        return program.objects[self.id].name + atom


def _pinning(program: p.Program) -> set[str]:
    """The processes that allocate pinned memory."""
    return {t.process for t, _, node in operations(program) if type(node.operation) is p.Alloc and node.operation.space != "device"}


def allocator(operation: p.Alloc, thread: p.Thread) -> tuple[int | None, str]:
    """`Location.id` and `Location.process` of the blocks that an allocation may get."""
    if operation.space != "device":
        return None, thread.process
    return operation.stream.id if (type(operation.stream) is p.Obj or type(operation.stream) is p.Slot) else None, ""


def operations(program: p.Program) -> list[tuple[p.Thread, int, p.Do]]:
    """Every operation node with its thread and node number."""
    return [(t, i, n) for t in program.threads for i, n in enumerate(t.nodes) if type(n) is p.Do]


def operands(operation: p.Operation) -> list[p.Operand]:
    """The memory operands that an operation may access."""
    if type(operation) is p.Host or type(operation) is p.Launch:
        return [a.target for a in operation.accesses]
    if type(operation) is p.Copy:
        return [operation.dst, operation.src]
    if type(operation) is p.Memset:
        return [operation.dst]
    if type(operation) is p.Item:
        return [operation.src]
    return []


def references(operation: p.Operation) -> tuple[p.Operand | p.Index, ...]:
    """What an operation makes a reference to: it may be accessed through that reference only."""
    if type(operation) is p.View:
        return (operation.base,)
    return operation.values if (type(operation) is p.Put or type(operation) is p.CellSet) else ()


def _atoms(
    program: p.Program, parts: list[tuple[p.Thread, p.Part | None]], one_slot: bool, defined: bool = False,
    sizes: Iterable[int] = (),
) -> list[tuple[str | int, ...]]:
    """Elementary pieces that the parts in use cut an object into; [()] when it is only used whole.

    A state has one position of the location. Where a ring's slot takes it, or nothing rotates it (blocks and tokens),
    parts by index count as overlapping: `one_slot` is False. `defined`: the bytes start with known content, so that
    nobody asks whether a write by name covers a read by span. `sizes`: of the allocations, if it is a block; what no span
    names is a piece, too.
    """
    atoms: set[tuple[str | int, ...]] = set()
    edges: set[int] = set()
    for thread, part in parts:
        if type(part) is p.Named:
            atoms.add(("name", part.name))
        elif type(part) is p.Span:
            edges |= {part.start, part.stop}
        elif type(part) is p.At:
            atom = _at_atom(program, thread, part)
            atoms.add(atom if one_slot or atom[0] != "index" else ("any",))
    if edges and sizes:
        edges |= {0, *sizes}
    cuts = sorted(edges)
    spans = list(zip(cuts, cuts[1:], strict=False))
    names = sorted(str(atom[1]) for atom in atoms if atom[0] == "name")
    if not (defined and names and spans):
        return sorted([*atoms, *(("span", a, b) for a, b in spans)], key=str) or [()]
    # A byte has its place among the names and its place among the spans, and may lie outside of either.
    both: list[tuple[str | int, ...]] = [("both", n, a, b) for n in ("", *names) for a, b in ((-1, -1), *spans)]
    return [*sorted((atom for atom in atoms if atom[0] != "name"), key=str), *both]


def row_pool(program: p.Program, info: p.LocalInfo) -> int | None:
    """The pool that a handle is of. Of one that a queue or cell gave it is known when there is one pool of rows."""
    if info.pool is not None or info.kind != p.HANDLE:
        return info.pool
    pools = [i for i, o in enumerate(program.objects) if type(o) is p.Pool and o.of == "row"]
    return pools[0] if len(pools) == 1 else None


def _at_atom(program: p.Program, thread: p.Thread, part: p.At) -> tuple[str | int, ...]:
    if type(part.index) is p.Var:
        info = thread.locals[part.index.local]
        pool = row_pool(program, info)
        if pool is not None:
            return ("token", pool)
        if info.kind != p.HANDLE:
            return ("index", info.depth or 0)
    return ("any",)


def locations(program: p.Program) -> list[Location]:
    """Every location that some pair of accesses of the program can meet at."""
    memory: dict[int, list[tuple[p.Thread, p.Part | None]]] = {}
    loose: list[tuple[p.Thread, p.Part | None]] = []
    owners: dict[tuple[int | None, str], None] = {}
    pools: dict[int, None] = {}
    sizes: set[int] = set()
    narrow, numbers = narrowed(program), {id(thread): t for t, thread in enumerate(program.threads)}
    for thread, _, node in operations(program):
        operation = node.operation
        if type(operation) is p.Alloc:
            owners[allocator(operation, thread)] = None
            sizes.add(operation.bytes)
        if type(operation) is p.Take:
            pool = program.objects[operation.pool]
            if type(pool) is p.Pool and pool.of != "row":
                pools[operation.pool] = None
        for operand in operands(operation):
            if type(operand) is p.Local:
                loose.append((thread, narrow.absolute(numbers[id(thread)], operand)))
            else:
                memory.setdefault(operand.id, []).append((thread, operand.part))
        for kept in references(operation):
            if (type(kept) is p.Obj or type(kept) is p.Slot) and isinstance(program.objects[kept.id], p.Memory):
                memory.setdefault(kept.id, []).append((thread, kept.part))
            elif type(kept) is p.Local and kept.part is not None:
                loose.append((thread, narrow.absolute(numbers[id(thread)], kept)))
    for operand_id in list(memory):
        # A reference that travelled through a queue may be narrowed where it arrives.
        memory[operand_id] += loose
    result: list[Location] = []
    for o, parts in memory.items():
        ring = getattr(program.objects[o], "depth", None)
        result += [Location("memory", o, a) for a in _atoms(program, parts, not ring or ring == 1, defined=True)]
    result += [Location("block", o, a, home) for o, home in owners for a in _atoms(program, loose, one_slot=False, sizes=sizes)]
    result += [Location("pool", o, a) for o in pools for a in _atoms(program, loose, one_slot=False)]
    return result
