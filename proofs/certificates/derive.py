"""What a program alone determines of its certificate: all of the manifest but the invariant and the runs."""

from __future__ import annotations

import msgspec
from fencepost.model import program as p
from fencepost.model.platform import Platform
from fencepost.proofs import explain
from fencepost.proofs.certificates.files import ClassEntry
from fencepost.proofs.certificates.footprint import Access, Class, Footprint
from fencepost.proofs.certificates.invariant import Sets
from fencepost.proofs.certificates.obligations import Derived


def switches(platform: Platform) -> dict[str, str]:
    """Every switch of a platform profile by name."""
    return {name: getattr(platform, name) for name in platform.__struct_fields__}


def assumptions(program: p.Program, platform: Platform) -> tuple[str, ...]:
    """What a verdict about the program assumes of platform and library."""
    return tuple(explain.assumptions(program, platform))


def named_pairs(footprint: Footprint) -> tuple[tuple[str, str], ...]:
    """The conflict pairs by the names of their accesses."""
    return tuple((footprint.accesses[i].name, footprint.accesses[j].name) for i, j in footprint.pairs)


def entry(footprint: Footprint, cls: Class, number: int) -> ClassEntry:
    """The manifest's entry of a class, without its number of states."""
    return ClassEntry(
        cls.label(footprint.program),
        cls.kind,
        cls.id,
        tuple(access.name for access in footprint.of_class[cls]),
        tuple(f"{t}.{n}" for t, n in footprint.slice(cls)),
        f"class-{number}.smt2" if footprint.conflicting(cls) else None,
    )


def entries(footprint: Footprint) -> tuple[ClassEntry, ...]:
    """All classes, without their numbers of states."""
    return tuple(entry(footprint, cls, k) for k, cls in enumerate(footprint.classes))


def spared(footprint: Footprint, derived: Derived, sets: Sets) -> set[str]:
    """Pairs that are unordered in some state of the invariant and change no value, in words."""
    names: dict[tuple[int, int, int], Access] = {(a.thread, a.node, a.which): a for a in footprint.accesses}
    found = set()
    for source, _, edge in derived.edges:
        for check in edge.spared:
            if any(not check.mask & bits for bits in sets.get(source, ())):
                access = names[check.thread, check.node, check.which]
                found.add(f"{check.what}: {access.mode} of {access.operand} on {access.on} at {access.name}")
    return found


def same(a: object, b: object) -> bool:
    """Equality of data that may come from JSON."""
    return bool(msgspec.to_builtins(a) == msgspec.to_builtins(b))
