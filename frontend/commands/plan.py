"""`fencepost plan`: the minimal safe placements of waits and depths of a loop whose open points are parameters."""

from __future__ import annotations

import sys

import click
from fencepost.commands.options import Progress, known
from fencepost.errors import InputError


def _format(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value not in ("text", "json"):
        raise InputError(f"no format {value!r} for plan; there are: text, json")
    return value


@click.command()
@click.argument("target", metavar="TARGET")
@click.option("--over", "overs", metavar="W1,W2,depth=1..4", multiple=True, required=True, help="The open points.")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter that stays as it is; repeatable.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--budget", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="For each combination.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: chosen by the number of questions).")
@click.option("--format", "format_", default="text", callback=_format, help="text or json.")
def plan(
    target: str, overs: tuple[str, ...], sets: tuple[str, ...], platform: str | None, budget: float | None,
    jobs: int | None, format_: str,
) -> int:  # fmt: skip
    """Decide every combination of the open points, and name the minimal safe ones and those that nothing saves.

    Boolean parameters are the waits; integers and texts are columns. Exit code 0: some combination is safe; 1: none is;
    2: usage or input error; 3: none is known to be, and some are open.
    """
    from fencepost.loader import load
    from fencepost.model.answer import UNKNOWN
    from fencepost.plan import plan as make
    from fencepost.report.plan import plan_to_json, write_plan

    targets = load([target])
    if len(targets) != 1:
        raise InputError(f"plan needs one design; {target} holds {len(targets)}: {', '.join(t.spelling for t in targets[:5])}")
    progress = Progress()
    made = make(targets[0], overs, sets, platform=platform, budget=budget, jobs=jobs, progress=progress)
    progress.clear()
    errors = [c.outcome.error for c in made.table.values() if c.outcome.error is not None]
    for error in dict.fromkeys(errors):
        click.echo(f"fencepost: {error}", err=True)
    if format_ == "json":
        click.echo(plan_to_json(made))
    else:
        write_plan(made, sys.stdout)
    if errors:
        return 2
    if any(c.proved for c in made.table.values()):
        return 0
    return 3 if any(c.answer is not None and c.answer.verdict == UNKNOWN for c in made.table.values()) else 1
