"""`fencepost repair`: the cheapest sets of additions that mend a refuted design, each proved sufficient."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from fencepost.commands.options import SECONDS, known
from fencepost.errors import InputError

if TYPE_CHECKING:
    from fencepost.check import Case
    from fencepost.model.program import Program
    from fencepost.proofs.waits.repair import Repairs
    from fencepost.report.repair import Declared


def _format(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value not in ("text", "json"):
        raise InputError(f"no format {value!r} for repair; there are: text, json")
    return value


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("-k", "keyword", metavar="TEXT", help="The variants whose target or label contains TEXT.")
@click.option("--environment", callback=known("environment"), help="A constraint that the design may rely on.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--most", type=click.IntRange(1), default=5, help="How many sets to give (default 5).")
@click.option("--budget", type=SECONDS, default=60.0, metavar="SECONDS", help="For each design.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: the number of processors).")
@click.option("--format", "format_", default="text", callback=_format, help="text or json.")
def repair(
    targets: tuple[str, ...], sets: tuple[str, ...], keyword: str | None, environment: str | None, platform: str | None,
    most: int, budget: float, jobs: int | None, format_: str,
) -> int:  # fmt: skip
    """Find the cheapest sets of additions that mend a refuted design, with the line to put each at.

    Of a design with variants the first one that is declared refuted is asked; -k and --set choose another. Exit code 0:
    mended, or there was nothing to mend; 1: a refuted design for which nothing was found; 2: usage or input error;
    3: something is undecided.
    """
    from fencepost.chosen import chosen, program_of_case
    from fencepost.model.answer import REFUTED
    from fencepost.model.events import DesignError
    from fencepost.pool import Pool
    from fencepost.proofs.waits.repair import repair as mend
    from fencepost.report.repair import repairs_to_json, write_repairs

    asked = chosen(targets, sets, keyword, REFUTED, platform)
    programs = [program_of_case(case) for case in asked]
    answers: list[tuple[Case, Repairs, Declared | None]] = []
    codes = {0}
    with Pool(jobs) as pool:
        for number, (case, program) in enumerate(zip(asked, programs, strict=True)):
            try:
                found = mend(
                    program, environment=environment or case.environment, platform=case.platform, never=case.never,
                    seconds=budget, most=most, mapper=pool.map,
                )  # fmt: skip
            except DesignError as error:
                raise InputError(" ".join(str(error).split())) from None
            declared = _declared(case, program) if found.hazards and not found.repairs else None
            answers.append((case, found, declared))
            codes.add(3 if found.open else 1 if found.hazards and not found.repairs else 0)
            if format_ == "text":
                if number:
                    click.echo()
                write_repairs(case, found, sys.stdout, declared)
    if format_ == "json":
        click.echo(repairs_to_json(answers))
    return next(code for code in (1, 3, 0) if code in codes)


def _declared(case: Case, program: Program) -> Declared | None:
    """The variant that the design declares as the fix of this one, with what is different there."""
    from fencepost.check import cases
    from fencepost.chosen import program_of_case
    from fencepost.diff.changes import changes
    from fencepost.loader import load
    from fencepost.report.repair import Declared

    if case.fix is None:
        return None
    fixed = next((one for one in cases(load([case.target])) if one.label == case.fix and one.design == case.design), None)
    if fixed is None:
        return None
    found = changes(program, program_of_case(fixed))
    told = tuple(f"{one.kind}: {one.text}  {one.after or one.before}".rstrip() for one in found)
    return Declared(case.fix, dict(fixed.parameters), told)
