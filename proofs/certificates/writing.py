"""From a proved program to the files of its certificate. The invariant is found here, not taken from the explorer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.model.platform import Platform
from fencepost.proofs.certificates import derive, obligations, reach
from fencepost.proofs.certificates.files import CERTIFICATE_VERSION, TRUSTED, Manifest, ReachEntry, rules_version, save
from fencepost.proofs.certificates.footprint import Footprint
from fencepost.proofs.certificates.invariant import Broken, Limits, TooLarge, fixpoint
from fencepost.proofs.certificates.relation import Relation
from fencepost.proofs.certificates.world import Unsupported


class NoCertificate(Exception):
    """Why none was written; `args[0]` is one line."""


class Contradicted(NoCertificate):
    """The certificate's relation has what the explorer did not find: one of them is wrong."""


def write_certificate(
    directory: str,
    program: p.Program,
    platform: Platform,
    *,
    variant: str | None = None,
    parameters: dict[str, Any] | None = None,
    limits: Limits | None = None,
    progress: Callable[[str], None] | None = None,
) -> Manifest:
    """Prove `program` once more, by the certificate's own relation, and write the proof to `directory`.

    Raises `NoCertificate` when the program is too large or uses what certificates do not cover, `Contradicted` when it has a hazard.
    """
    limits = limits or Limits()
    footprint = Footprint(program, platform)
    texts: dict[str, list[str]] = {}
    entries = []
    spared: set[str] = set()
    try:
        _control(footprint, limits)
        for cls, entry in zip(footprint.classes, derive.entries(footprint), strict=True):
            if entry.file is not None:
                if progress is not None:
                    progress(f"certificate: {entry.label}")
                relation = Relation(footprint, cls)
                sets = fixpoint(relation, limits)
                if isinstance(sets, Broken):
                    raise Contradicted(f"{entry.label}: {_words(sets)}; the explorer found no such hazard: please report it")
                derived = obligations.derive(relation, sets)
                texts[entry.file] = obligations.write(relation, sets, derived, entry.label).lines()
                spared |= derive.spared(footprint, derived, sets)
                entry = msgspec.structs.replace(entry, states=sum(map(len, sets.values())))
            entries.append(entry)
        runs, at, never, unsure = reach.collect(footprint, platform)
    except Unsupported as stop:
        raise NoCertificate(f"certificates do not cover this: {stop}") from None
    except TooLarge as stop:
        raise NoCertificate(f"too large for a certificate: {stop}") from None
    manifest = Manifest(
        CERTIFICATE_VERSION, program.name, variant, parameters or {}, p.SCHEMA_VERSION, rules_version(),
        derive.switches(platform), "bare", derive.assumptions(program, platform), TRUSTED, footprint.accesses,
        derive.named_pairs(footprint), tuple(entries), tuple(sorted(spared)),
        ReachEntry(tuple(runs), at, tuple(never), tuple(unsure)), msgspec.Raw(p.to_json(program)),
    )  # fmt: skip
    save(directory, manifest, program, texts)
    return manifest


def hazard(
    program: p.Program, platform: Platform, limits: Limits | None = None, reduce: bool = True
) -> tuple[str, Broken] | None:
    """A second opinion: the first (class, hazard) of the program by the certificates' own relation, None when it has none.

    Pairs that change no value are none; without `reduce` all interleavings are followed. Raises `Unsupported` and `TooLarge`.
    """
    limits = limits or Limits()
    footprint = Footprint(program, platform)
    broken = fixpoint(Relation(footprint, None, reduce), limits)
    if isinstance(broken, Broken):
        return "control", broken
    for cls in footprint.classes:
        if footprint.conflicting(cls):
            broken = fixpoint(Relation(footprint, cls, reduce), limits)
            if isinstance(broken, Broken):
                return cls.label(program), broken
    return None


def _control(footprint: Footprint, limits: Limits) -> None:
    """No step that a design must not take is reachable, whatever the classes."""
    broken = fixpoint(Relation(footprint, None), limits)
    if isinstance(broken, Broken):
        raise Contradicted(f"{_words(broken)}; the explorer found no such step: please report it")


def _words(broken: Broken) -> str:
    check = broken.check
    first = "" if broken.first is None else f" is not ordered after {'.'.join(map(str, broken.first))}"
    return f"{check.what} at {check.thread}.{check.node}.{check.which}{first}"
