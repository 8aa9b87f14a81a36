"""`fencepost masks`: under which debug runs a hazard cannot show, so that nobody trusts them."""

from __future__ import annotations

import sys

import click
from fencepost.commands.options import SECONDS, known
from fencepost.errors import InputError


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("-k", "keyword", metavar="TEXT", help="The variants whose target or label contains TEXT.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--budget", type=SECONDS, default=60.0, metavar="SECONDS", help="For each question.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: the number of processors).")
def masks(
    targets: tuple[str, ...], sets: tuple[str, ...], keyword: str | None, platform: str | None, budget: float,
    jobs: int | None,
) -> int:  # fmt: skip
    """Say under which environments a hazard cannot show: launch blocking, one hardware queue, a device sync, pageable.

    Of a design with variants the first one that is declared refuted is asked; -k and --set choose another. Exit code 0:
    decided; 2: usage or input error; 3: something is unknown.
    """
    from fencepost.chosen import chosen, program_of_case
    from fencepost.model.answer import REFUTED, UNKNOWN
    from fencepost.model.events import DesignError
    from fencepost.pool import Pool
    from fencepost.proofs.waits.masks import masks as find
    from fencepost.report.masks import write_masks

    asked = chosen(targets, sets, keyword, REFUTED, platform)
    programs = [program_of_case(case) for case in asked]
    code = 0
    with Pool(jobs) as pool:
        for number, (case, program) in enumerate(zip(asked, programs, strict=True)):
            try:
                found = find(program, platform=case.platform, never=case.never, seconds=budget, mapper=pool.map)
            except DesignError as error:
                raise InputError(" ".join(str(error).split())) from None
            if UNKNOWN in (found.bare.verdict, *(mask.verdict for mask in found.masks)):
                code = 3
            if number:
                click.echo()
            write_masks(case, found, sys.stdout)
    return code
