"""`fencepost why`: what one line of a design is there for."""

from __future__ import annotations

import sys

import click
from fencepost.commands.options import SECONDS, known


@click.command()
@click.argument("place", metavar="FILE:LINE")
@click.option("-k", "keyword", metavar="TEXT", help="The variants whose target or label contains TEXT.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--budget", type=SECONDS, default=120.0, metavar="SECONDS", help="For each design.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: the number of processors).")
def why(place: str, keyword: str | None, platform: str | None, budget: float, jobs: int | None) -> int:
    """Say what a line is there for: what a record covers and what it misses, which pairs rest on a wait, what would break.

    The first variant that has an operation at the line is asked, those that are declared proved before the others; -k
    chooses. Exit code 0, or 2 for usage and input errors.
    """
    from fencepost.chosen import chosen, program_of_case
    from fencepost.errors import InputError
    from fencepost.model.answer import PROVED
    from fencepost.model.events import DesignError
    from fencepost.pool import Pool
    from fencepost.report.why import write_why
    from fencepost.why import Why, choose, spot

    path, line = spot(place)
    asked = chosen([path], (), keyword, PROVED, platform, everything=True)
    asked.sort(key=lambda case: case.expected != PROVED)
    found = choose(path, line, [(case, program_of_case(case)) for case in asked])
    with Pool(jobs) as pool:
        for number, (case, program, nodes) in enumerate(found):
            try:
                answer = Why(case, program, nodes, budget, pool.map)
            except DesignError as error:
                raise InputError(" ".join(str(error).split())) from None
            if number:
                click.echo()
            write_why(answer, sys.stdout)
    return 0
