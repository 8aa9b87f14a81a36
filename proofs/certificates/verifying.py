"""`verify`: a certificate checked from its files alone, with none of the explorer's code.

(i) accesses, pairs, classes, slices and the relation are derived from the program's JSON and compared; (ii) every access
that happens can be guessed as the witness; (iii) the obligations are discharged by Z3, and by cvc5 where it is installed; (iv) the
runs are replayed. What the solvers get is the text that the program and the file's bit sets give, never the file's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.platform import SWITCHES, Platform
from fencepost.proofs.certificates import derive, files, obligations, reach, solvers
from fencepost.proofs.certificates.files import ClassEntry, Manifest
from fencepost.proofs.certificates.footprint import Class, Footprint
from fencepost.proofs.certificates.invariant import Broken, Limits, Sets, TooLarge, fixpoint
from fencepost.proofs.certificates.obligations import Derived, Text
from fencepost.proofs.certificates.relation import Relation
from fencepost.proofs.certificates.world import Unsupported


class Solved(msgspec.Struct, frozen=True):
    """What one solver said about the obligations of one class. `seconds`: processor time."""

    solver: str
    label: str
    status: str
    seconds: float


class Report(msgspec.Struct):
    """What became of a certificate: `failures` name what is wrong, `open` what a solver did not decide in time."""

    manifest: Manifest
    failures: list[str] = []
    open: list[str] = []
    solved: list[Solved] = []
    notes: list[str] = []
    states: int = 0
    edges: int = 0

    @property
    def verified(self) -> bool:
        """Whether everything was checked and nothing failed."""
        return not self.failures and not self.open


def read_program(directory: str, manifest: Manifest) -> p.Program:
    """The manifest's program. Raises `CertificateError`."""
    where = f"{directory}/{files.MANIFEST}"
    if manifest.program_schema != p.SCHEMA_VERSION:
        raise files.CertificateError(
            f"{where}: program of schema version {manifest.program_schema}, this fencepost reads version "
            f"{p.SCHEMA_VERSION}; write the certificate again"
        )
    try:
        return p.from_json(bytes(manifest.program), where)
    except ValueError as error:
        raise files.CertificateError(str(error)) from None


def verify(
    directory: str,
    manifest: Manifest,
    program: p.Program,
    *,
    seconds: float = 60.0,
    use: Sequence[str] = solvers.SOLVERS,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Check everything; `seconds` is each solver's limit for one query, `use` the solvers that are asked."""
    report = Report(manifest)
    texts = {c.file: files.load_text(directory, c.file) for c in manifest.classes if c.file is not None}
    try:
        stored = p.from_json(files.load_file(directory, files.PROGRAM), f"{directory}/{files.PROGRAM}")
    except ValueError as error:
        raise files.CertificateError(str(error)) from None
    if stored != program:
        report.failures.append("program: program.json is not the manifest's program")
    if manifest.design != program.name:
        report.failures.append(f"design: the manifest says {manifest.design!r}, the program is {program.name!r}")
    platform = _environment(report)
    try:
        footprint = Footprint(program, platform)
    except ValueError as error:  # a copy between places that no rule covers
        raise files.CertificateError(f"{directory}/{files.MANIFEST}: {error}") from None
    _claims(report, footprint, platform)
    search = reach.Search(footprint)
    chosen: set[tuple[int, int, int]] = set()
    spared: set[str] = set()
    try:
        sets = fixpoint(search.paths().relation, Limits())
        if isinstance(sets, Broken):
            report.failures.append(f"control: {sets.check.what} at {sets.check.thread}.{sets.check.node}")
        for cls, entry in zip(footprint.classes, derive.entries(footprint), strict=True):
            if entry.file is None:
                continue
            claimed = next((c for c in manifest.classes if c.label == entry.label), None)
            if claimed is None or claimed.file is None:
                report.failures.append(f"class {entry.label}: it has conflicting accesses and no obligations")
                continue
            if progress is not None:
                progress(f"verify: {entry.label}")
            found = _class(report, footprint, cls, claimed, texts[claimed.file], seconds, use)
            if found is not None:
                derived, class_sets = found
                chosen |= {one for _, _, edge in derived.edges for one in edge.chosen}
                spared |= derive.spared(footprint, derived, class_sets)
    except (Unsupported, TooLarge) as stop:
        report.failures.append(f"relation: it cannot be derived: {stop}")
        return report
    made = _reach(report, footprint, platform, search)
    _guessed(report, footprint, chosen, made | set(search.passed()), search.paths().complete)
    if spared != set(manifest.spared):
        report.failures.append(f"spared pairs: {_difference(sorted(spared), manifest.spared)}")
    return report


# ---------------------------------------------------------------- what the program alone determines


def _environment(report: Report) -> Platform:
    manifest = report.manifest
    if manifest.environment != "bare":
        report.failures.append(f"environment: {manifest.environment!r}; a certificate is about the bare environment")
    if manifest.rules != files.rules_version():
        report.failures.append(
            f"rules: written under rule set {manifest.rules}, this fencepost has {files.rules_version()}; write it again"
        )
    try:
        platform = msgspec.convert(manifest.platform, Platform)
    except msgspec.ValidationError as error:
        raise files.CertificateError(f"platform switches: {error}") from None
    if derive.switches(platform) != manifest.platform:
        report.failures.append(f"platform: switches {manifest.platform}, this fencepost has {derive.switches(platform)}")
    if any(getattr(platform, switch) not in known for switch, known in SWITCHES.items()):
        raise files.CertificateError(f"platform switches: no profile has {manifest.platform}")
    return platform


def _difference(derived: Sequence[object], claimed: Sequence[object]) -> str:
    """The first difference between what the program gives and what the manifest says."""
    for one in derived:
        if one not in claimed:
            return f"the manifest lacks {_plain(one)}"
    for one in claimed:
        if one not in derived:
            return f"the manifest has {_plain(one)}, the program does not"
    return "the manifest has another order or repeats itself"


def _plain(one: object) -> str:
    return " ".join(map(str, one)) if isinstance(one, tuple) else getattr(one, "name", None) or str(one)


def _claims(report: Report, footprint: Footprint, platform: Platform) -> None:
    manifest = report.manifest
    derived: list[tuple[str, Sequence[object], Sequence[object]]] = [
        ("assumptions", derive.assumptions(footprint.program, platform), manifest.assumptions),
        ("accesses", footprint.accesses, manifest.accesses),
        ("conflict pairs", derive.named_pairs(footprint), manifest.pairs),
    ]
    entries = derive.entries(footprint)
    derived.append(("classes", [e.label for e in entries], [c.label for c in manifest.classes]))
    for entry in entries:
        for claimed in manifest.classes:
            if claimed.label == entry.label:
                derived.append((f"class {entry.label}, accesses", entry.accesses, claimed.accesses))
                derived.append((f"class {entry.label}, slice", entry.slice, claimed.slice))
                kinds = ([entry.kind, entry.id, entry.file], [claimed.kind, claimed.id, claimed.file])
                derived.append((f"class {entry.label}, kind and file", *kinds))
    for what, here, there in derived:
        if not derive.same(tuple(here), tuple(there)):
            report.failures.append(f"{what}: {_difference(tuple(here), tuple(there))}")


# ---------------------------------------------------------------- one class


def _class(
    report: Report, footprint: Footprint, cls: Class, claimed: ClassEntry, lines: list[str], seconds: float,
    use: Sequence[str],
) -> tuple[Derived, Sets] | None:  # fmt: skip
    label = claimed.label
    try:
        sets = obligations.read_sets("\n".join(lines))
    except ValueError as error:
        report.failures.append(f"class {label}, invariant: {error}")
        return None
    relation = Relation(footprint, cls)
    derived = obligations.derive(relation, sets)
    if any(mask >> derived.width for row in sets.values() for mask in row):
        report.failures.append(f"class {label}, invariant: a set has bits that no state has")
        sets = {name: left for name, row in sets.items() if (left := tuple(m for m in row if not m >> derived.width))}
        derived = obligations.derive(relation, sets)
        sets = {name: left for name, row in sets.items() if (left := tuple(m for m in row if not m >> derived.width))}
    text = obligations.write(relation, sets, derived, label)
    states = sum(map(len, sets.values()))
    report.states += states
    report.edges += len(derived.edges)
    if states != claimed.states:
        report.failures.append(f"class {label}, invariant: {states} states in {claimed.file}, the manifest says {claimed.states}")
    if derived.missing:
        report.failures.append(f"class {label}, invariant: nothing leads to control {derived.missing[0]}")
    report.failures += [f"class {label}, {claimed.file} {what}" for what in itertools.islice(_changed(text, lines), 3)]
    for solver in use:
        _solve(report, solver, label, relation, derived, sets, text, seconds)
    return derived, sets


def _changed(text: Text, lines: list[str]) -> Iterator[str]:
    """Where the file is not what the program gives: first lines that are missing, then lines that are too many."""
    right = text.lines()
    if right == lines:
        return
    have, want = set(lines), set(right)
    part = "line"
    for number, line in enumerate(right):
        if line not in have:
            yield f"{_part(line)}: the program gives {_short(line)}; the file lacks it (line {number + 1})"
    for number, line in enumerate(lines):
        if line not in want:
            yield f"{_part(line)}: line {number + 1} is not what the program gives: {_short(line)}"
    if have == want:
        at = next((k for k, (a, b) in enumerate(zip(right, lines)) if a != b), min(len(right), len(lines)))  # noqa: B905
        yield f"{part} {at + 1}: lines are repeated, missing or in another order"


def _part(line: str) -> str:
    """Which part of the file a line belongs to."""
    for start, name in (
        ("(define-fun inv_", "invariant"), ("(define-fun u", "relation (update)"),
        ("(and (inv_", "relation (edge)" if "(not " in line else "hazard check"),
    ):  # fmt: skip
        if line.startswith(start):
            return name
    return "obligations"


def _short(line: str) -> str:
    return line if len(line) <= 100 else f"{line[:60]} ... {line[-36:]}"


def _solve(
    report: Report, solver: str, label: str, relation: Relation, derived: Derived, sets: Sets, text: Text,
    seconds: float,
) -> None:  # fmt: skip
    spent, status = 0.0, solvers.UNSAT
    for block in text.blocks:
        result = solvers.solve(solver, text.one(block), seconds)
        spent += result.seconds
        name = obligations.OBLIGATIONS[block.obligation]
        if result.status == solvers.SAT:
            status = solvers.SAT
            why = obligations.failures(sets, derived, relation, block.obligation, result.bits or 0)
            report.failures.append(f"class {label}, {name}, {solver}: {why[0] if why else 'the obligation does not hold'}")
            break
        if result.status != solvers.UNSAT:
            status = result.status
            report.open.append(f"class {label}, {name}, {solver}: {result.status} after {seconds:g} s")
    report.solved.append(Solved(solver, label, status, spent))


def _guessed(report: Report, footprint: Footprint, chosen: set[tuple[int, int, int]], made: set[str], complete: bool) -> None:
    """Every access that happens, of a class with conflicts, is the witness on some edge, and no other one is.

    `made`: the accesses that control makes, and those of the runs; `complete`: control was followed to its end.
    """
    proved = {entry.label for entry in derive.entries(footprint) if entry.file is not None}
    for access in footprint.accesses:
        if not proved & set(access.classes):
            continue
        guessed = (access.thread, access.node, access.which) in chosen
        if access.name in made and not guessed:
            report.failures.append(f"class {access.classes[0]}: access {access.name} can never be the witness")
        if guessed and complete and access.name not in made:
            report.failures.append(f"class {access.classes[0]}: access {access.name} is the witness, and control never makes it")


# ---------------------------------------------------------------- runs


def _reach(report: Report, footprint: Footprint, platform: Platform, search: reach.Search) -> set[str]:
    """Replay the runs and decide what is said never to occur. Gives everything that the runs reach."""
    entry = report.manifest.reach
    found: set[str] = set()
    goals = set(reach.goals(footprint))
    listed = [*entry.at, *entry.never, *entry.unsure]
    for name in sorted(goals - set(listed)):
        report.failures.append(f"reach: {name} has no run and is not in the list of what never occurs")
    for name in sorted(set(listed) - goals):
        report.failures.append(f"reach: {name} is nothing of the program")
    if len(set(listed)) != len(listed):
        report.failures.append("reach: something is listed twice")
    for number, run in enumerate(entry.runs):
        claimed = {name for name, at in entry.at.items() if at == number}
        try:
            got = reach.reached(footprint, run, platform)
        except (events.InvalidRun, IndexError) as error:
            report.failures.append(f"reach: run {number} cannot happen: {error}")
            continue
        found |= got
        for name in sorted(claimed - got):
            report.failures.append(f"reach: run {number} does not reach {name}")
    for name, at in entry.at.items():
        if not 0 <= at < len(entry.runs):
            report.failures.append(f"reach: {name} names run {at}, there are {len(entry.runs)}")
    for name in entry.never:
        if name in goals and search.find(name) is not False:
            report.failures.append(f"reach: {name} is listed as never occurring, and it can occur")
    report.notes += [f"{name}: neither reached nor excluded" for name in entry.unsure]
    return found
