"""`fencepost plan`: the minimal safe placements of waits and depths of a loop whose open points are parameters."""

from __future__ import annotations

import sys

import click
from fencepost.commands.options import SECONDS, Progress, known
from fencepost.errors import InputError


def _format(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value not in ("text", "json"):
        raise InputError(f"no format {value!r} for plan; there are: text, json")
    return value


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--over", "overs", metavar="W1,W2,depth=1..4", multiple=True, required=True, help="The open points.")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter that stays as it is; repeatable.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--budget", type=SECONDS, metavar="SECONDS", help="For each combination.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: chosen by the number of questions).")
@click.option("--format", "format_", default="text", callback=_format, help="text or json.")
def plan(
    targets: tuple[str, ...], overs: tuple[str, ...], sets: tuple[str, ...], platform: str | None, budget: float | None,
    jobs: int | None, format_: str,
) -> int:  # fmt: skip
    """Decide every combination of the open points, and name the minimal safe ones and those that nothing saves.

    Boolean parameters are the waits, the last integer makes the columns, the others belong to the rows. Several designs
    become one table; each takes those of the open points and settings that it has. Exit code 0: every design has a
    combination that is safe; 1: one has none; 2: usage or input error; 3: one has none that is known, and some are open.
    """
    from fencepost.loader import load
    from fencepost.plan import plan as make
    from fencepost.plan import shared
    from fencepost.report.plan import plans_to_json, write_plans

    found = load(targets)
    progress = Progress()
    made = []
    for one, own_overs, own_sets in shared(found, overs, sets):
        made.append(make(one, own_overs, own_sets, platform=platform, budget=budget, jobs=jobs, progress=progress))
    progress.clear()
    combinations = [c for one in made for c in one.table.values()]
    errors = [c.outcome.error for c in combinations if c.outcome.error is not None]
    if errors:
        rest = f" (and {len(errors) - 1} more of {len(combinations)} combinations)" if len(errors) > 1 else ""
        click.echo(f"fencepost: {errors[0]}{rest}", err=True)
    if format_ == "json":
        click.echo(plans_to_json(made))
    else:
        write_plans(made, sys.stdout)
    if errors:
        return 2
    unsafe = [one for one in made if not any(c.proved for c in one.table.values())]
    if not unsafe:
        return 0
    open_ = [one for one in unsafe if any(c.answer is not None and not c.known for c in one.table.values())]
    return 3 if len(open_) == len(unsafe) else 1
