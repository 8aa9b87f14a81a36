"""`fencepost waits`: which synchronisations are needed, which may go, and which only while another one stays."""

from __future__ import annotations

import sys
import time

import click
from fencepost.commands.options import SECONDS, Progress, known
from fencepost.errors import InputError

OPEN_CODE = 3
MANY_NODES = 200
"""Operations and questions of the designs from which on worker processes pay for themselves."""


def _format(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value not in ("text", "json"):
        raise InputError(f"no format {value!r} for waits; there are: text, json")
    return value


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("-k", "keyword", metavar="TEXT", help="The variants whose target or label contains TEXT.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--budget", type=SECONDS, default=120.0, metavar="SECONDS", help="For each design.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: the number of processors).")
@click.option("--format", "format_", default="text", callback=_format, help="text or json.")
@click.option("-v", "--verbose", is_flag=True, help="Every row with all its sentences, and the runs that go wrong.")
def waits(
    targets: tuple[str, ...],
    sets: tuple[str, ...],
    keyword: str | None,
    platform: str | None,
    budget: float,
    jobs: int | None,
    format_: str,
    verbose: bool,
) -> int:
    """Classify every synchronisation by taking its edge away: needed, redundant, redundant while another one stays.

    Of a design with variants the first one that is declared proved is asked; -k and --set choose another. Exit code 0:
    all decided; 2: usage or input error; 3: some are not decided.
    """
    from fencepost.chosen import chosen, program_of_case
    from fencepost.model.answer import PROVED
    from fencepost.model.events import DesignError
    from fencepost.model.platform import platform as platform_named
    from fencepost.pool import Pool
    from fencepost.proofs.waits.classify import OPEN, Waits
    from fencepost.proofs.waits.classify import waits as classify
    from fencepost.report.waits import waits_to_json, write_waits
    from fencepost.wait_costs import costed

    asked = chosen(targets, sets, keyword, PROVED, platform)
    programs = [program_of_case(case) for case in asked]
    answers: list[tuple[object, Waits]] = []
    progress = Progress()
    code = 0
    with Pool(jobs) as pool:
        if sum(len(thread.nodes) for program in programs for thread in program.threads) > MANY_NODES:
            pool.expect()
        # What waits cost is asked about all designs at first, so that no processor is idle while a design ends.
        now = time.monotonic()
        costs = [
            pool.background(costed, (program, platform_named(case.platform), now + budget * (number + 1)))
            for number, (case, program) in enumerate(zip(asked, programs, strict=True))
        ]
        for number, (case, program, cost) in enumerate(zip(asked, programs, costs, strict=True)):
            try:
                answer = classify(
                    program, environment=case.environment, platform=case.platform, never=case.never, seconds=budget,
                    progress=progress if pool.jobs == 1 else None, mapper=pool.map, costs=cost,
                )  # fmt: skip
            except DesignError as error:
                raise InputError(" ".join(str(error).split())) from None
            progress.clear()
            if answer.open or any(finding.kind == OPEN for finding in answer.findings):
                code = OPEN_CODE
            answers.append((case, answer))
            if format_ == "text":
                if number:
                    click.echo()
                write_waits(case, answer, sys.stdout, verbose=verbose)
    if format_ == "json":
        click.echo(waits_to_json(answers))  # type: ignore[arg-type]
    return code
