"""`fencepost verify`: check certificates from their files alone; and what `check --certificate` writes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
from fencepost.commands.options import SECONDS, Progress
from fencepost.errors import InputError
from fencepost.width import columns

if TYPE_CHECKING:
    from fencepost.check import Outcome
    from fencepost.model.program import Program
    from fencepost.proofs.certificates.files import Manifest
    from fencepost.proofs.certificates.verifying import Report

SOLVERS = ("z3", "cvc5")


@click.command()
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option("--timeout", type=SECONDS, default=60.0, metavar="SECONDS",
              help="Each solver's limit for one query (60).")  # fmt: skip
@click.option("--solver", type=click.Choice(SOLVERS), help="Ask this solver alone (default: every one installed).")
@click.option("--against", metavar="TARGET", help="Also trace these designs, and compare: parameters and variant are labels without it.")
def verify(directories: tuple[str, ...], timeout: float, solver: str | None, against: str | None) -> int:
    """Check certificates that `fencepost check --certificate DIR` wrote, or all in the folders of DIR.

    Accesses, conflict pairs, classes, slices and the transition relation are derived from the program in the files and
    compared, the obligations are discharged by Z3 and, where it is installed, cvc5, and the runs are replayed.

    Exit code 0: verified. 1: something fails; it is named. 2: usage or input error. 3: a solver ran out of time.
    """
    from fencepost.damaged import fault
    from fencepost.proofs.certificates import files, solvers, verifying

    use = [solver] if solver is not None else [one for one in SOLVERS if one == "z3" or solvers.installed(one)]
    for one in use:
        if not solvers.installed(one):
            extra = "prove" if one == "z3" else "cvc5"
            raise InputError(f"verify needs {one}, which is not installed: pip install 'fencepost[{extra}]'")
    if solver is None and "cvc5" not in use:
        click.echo("fencepost: cvc5 is not installed; going on with z3 alone (pip install 'fencepost[cvc5]')", err=True)
    traced = None if against is None else _traced(against)
    worst = 0
    progress = Progress()
    for directory in _certificates(directories):
        try:
            manifest = files.load_manifest(directory)
            program = verifying.read_program(directory, manifest)
            wrong = fault(program)
            if wrong is not None:
                raise files.CertificateError(f"{directory}/{files.MANIFEST}: damaged program: {wrong}")
            report = verifying.verify(directory, manifest, program, seconds=timeout, use=use, progress=_late(progress))
            if traced is not None:
                report.failures += traced(manifest, program)
        except files.CertificateError as error:
            raise InputError(str(error)) from None
        progress.clear()
        _print(directory, report, use, against)
        code = 1 if report.failures else 3 if report.open else 0
        worst = next(c for c in (1, 3, 0) if c in (worst, code))
    for trusted in files.TRUSTED:
        _line("trusted", trusted)
    return worst


def _certificates(directories: Sequence[str]) -> list[str]:
    """The folders that hold a manifest: those given, or those in them."""
    found: list[str] = []
    for directory in directories:
        inner = []
        if os.path.isdir(directory) and not os.path.exists(os.path.join(directory, "manifest.json")):
            inner = sorted(
                os.path.join(directory, name)
                for name in os.listdir(directory)
                if os.path.exists(os.path.join(directory, name, "manifest.json"))
            )
        found += inner or [directory]
    return found


def _traced(against: str) -> Callable[[Manifest, Program], list[str]]:
    """What does not hold of a manifest's design, parameters and variant, by the designs of a target."""
    from fencepost.check import build, cases
    from fencepost.errors import one_line
    from fencepost.loader import load

    designs = load([against])
    declared = cases(designs)

    def compare(manifest: Manifest, program: Program) -> list[str]:
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in manifest.parameters.items()}
        said = ", ".join(f"{name}={value}" for name, value in given.items()) or "no parameters"
        another, none = [], []
        for one in designs:
            try:
                again = build(one, given)
            except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
                none.append(f"program: {one.spelling} with {said} cannot be traced: {one_line(error)}")
                continue
            if again.name != manifest.design:
                continue
            if again != program:
                another.append(f"program: {one.spelling} with {said} gives another one")
                continue
            labels = [case for case in declared if case.target == one.spelling and case.label == manifest.variant]
            if manifest.variant is not None and not any({**given, **case.parameters} == given for case in labels):
                return [f"variant: {one.spelling} declares no {manifest.variant!r} with {said}"]
            return []
        return another or none[: len(designs) == 1] or [f"program: {against} has no design {manifest.design!r}"]

    return compare


def _print(directory: str, report: Report, use: Sequence[str], against: str | None) -> None:
    from fencepost.proofs.certificates import solvers

    manifest = report.manifest
    title = f"{manifest.design}" + (f": {manifest.variant}" if manifest.variant else "")
    verdict = "FAILED" if report.failures else "NOT DECIDED" if report.open else "VERIFIED"
    click.echo(f"{verdict}  {title}  [{directory}]")
    set_to = ", ".join(f"{name}={value}" for name, value in manifest.parameters.items())
    _line("parameters", set_to or "none")
    labels = "not checked here (--against TARGET checks them)" if against is None else f"as {against} says"
    _line("labels", f"the parameters and the variant's name: {labels}")
    _line("platform", ", ".join(f"{k} {v}" for k, v in manifest.platform.items()) + f"; environment {manifest.environment}")
    proved = [c.label for c in manifest.classes if c.file is not None]
    idle = len(manifest.classes) - len(proved)
    _line(
        "derived",
        f"{_count(len(manifest.accesses), 'access', 'accesses')}, {_count(len(manifest.pairs), 'conflict pair')}, "
        f"{_count(len(manifest.classes), 'class', 'classes')}" + (f" ({idle} without a conflict)" if idle else "")
        + f"; relation of {_count(report.edges, 'edge')}",
    )  # fmt: skip
    _line("invariant", f"{_count(report.states, 'minimal bit set')} for {', '.join(proved) or 'no class'}")
    for solver in use:
        mine = [s for s in report.solved if s.solver == solver]
        said = sorted({s.status for s in mine}) or ["nothing to decide"]
        spent = sum(s.seconds for s in mine)
        _line(f"{solver} {solvers.version(solver)}", f"{', '.join(said)} ({spent:.1f} s)")
    reach = manifest.reach
    _line("replayed", f"{_count(len(reach.runs), 'run')}; reached: {len(reach.at)} operations, outcomes, accesses and pairs")
    stuck = _never_executes(manifest)
    for name in stuck:
        _line("never executes", name)
    accesses = {access.name for access in manifest.accesses}
    never = [name for name in reach.never if name not in accesses]
    if never:
        _line("never occurs", _some(never))
    for pair in manifest.spared:
        _line("changes nothing", pair)
    for note in report.notes:
        _line("note", note)
    for assumption in manifest.assumptions:
        _line("assumes", assumption)
    for failure in report.failures:
        _line("FAILS", failure)
    for undecided in report.open:
        _line("open", undecided)


def _never_executes(manifest: Manifest) -> list[str]:
    """Device items that are called and never run, one line for each: the proof says nothing about what they would do."""
    accesses = {access.name: access for access in manifest.accesses}
    found: dict[str, list[str]] = {}
    for name in manifest.reach.never:
        access = accesses.get(name)
        if access is not None and f"{access.thread}.{access.node}" in manifest.reach.at:
            mode = {"r": "read", "w": "write"}.get(access.mode, access.mode)
            found.setdefault(f"{access.thread}.{access.node} on {access.on}", []).append(f"{mode} of {access.operand} ({name})")
    return [f"{at}: called, and pending for ever: {_some(what, 4)}" for at, what in found.items()]


def _line(name: str, text: str) -> None:
    import textwrap

    click.echo(textwrap.fill(text, columns(), initial_indent=f"  {name:<16}", subsequent_indent=" " * 18))


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


# ---------------------------------------------------------------- writing


def check_folder(directory: str) -> None:
    """Refuse a folder that holds something else, before the exploration. Raises `InputError`."""
    if os.path.exists(directory) and not os.path.isdir(directory):
        raise InputError(f"--certificate {directory}: it is a file; name a folder")
    if os.path.isdir(directory) and not os.path.exists(os.path.join(directory, "manifest.json")):
        for name in os.listdir(directory):
            if not os.path.exists(os.path.join(directory, name, "manifest.json")):
                raise InputError(f"--certificate {directory}: the folder holds something else ({name}); name a new one")


def write_certificates(outcomes: Sequence[Outcome], directory: str, progress: Progress) -> tuple[list[Outcome], bool]:
    """Write the certificate of every proved answer: to `directory` itself for one, else to a folder in it for each.

    Says on standard error what was written and what was not. Returns the outcomes, of which those are unknown whose proof the
    certificate's relation contradicts, and whether every proof got its certificate.
    """
    from fencepost.check import doubted
    from fencepost.model.answer import PROVED
    from fencepost.model.platform import platform
    from fencepost.proofs.certificates.writing import Contradicted, NoCertificate, write_certificate

    complete = True
    taken: set[str] = set()
    found = list(outcomes)
    for number, outcome in enumerate(outcomes):
        answer, program = outcome.answer, outcome.program
        if answer is None or program is None:
            continue
        title = f"{answer.design} {outcome.case.title}".strip()
        if answer.verdict != PROVED:
            click.echo(f"fencepost: no certificate for {title}: the answer is {answer.verdict}", err=True)
            continue
        where = directory if len(outcomes) == 1 else os.path.join(directory, _slug(title, taken))
        try:
            manifest = write_certificate(
                where, program, platform(answer.platform), variant=answer.variant, parameters=answer.parameters,
                progress=_late(progress),
            )  # fmt: skip
        except NoCertificate as why:
            complete = False
            if isinstance(why, Contradicted):
                found[number] = doubted(outcome, f"engines disagree: explore proved, the certificate's relation: {why}")
            progress.clear()
            click.echo(f"fencepost: no certificate for {title}: {why}", err=True)
            continue
        except OSError as error:
            raise InputError(f"--certificate {where}: {error.strerror or error}") from None
        progress.clear()
        states = sum(entry.states for entry in manifest.classes)
        stuck = _never_executes(manifest)
        if stuck:
            click.echo(
                f"fencepost: {title}: {_count(len(stuck), 'device item')} called that {'never executes' if len(stuck) == 1 else 'never execute'}, "
                "being pending for ever; nothing is proved about what comes behind a hang", err=True,
            )  # fmt: skip
        click.echo(f"certificate: {where} ({_count(states, 'minimal bit set')}); check it with `fencepost verify`", err=True)
    return found, complete


def _late(progress: Progress) -> Callable[[str], None]:
    """Progress that says nothing in the first two seconds."""
    begin = time.monotonic()
    return lambda text: progress(text) if time.monotonic() - begin > 2 else None


def _slug(title: str, taken: set[str]) -> str:
    base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:80] or "design"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    return name
