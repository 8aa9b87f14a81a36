"""`fencepost replay`: force counterexamples on a real GPU, with gates, and the fixed design as the control."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from fencepost.commands.options import Real
from fencepost.errors import InputError

if TYPE_CHECKING:
    from fencepost.gpu_validate.files import Subject
    from fencepost.gpu_validate.table import Row


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("-k", "keyword", metavar="TEXT", help="Only variants whose target or label contains TEXT.")
@click.option("--fixed", metavar="NAME=VALUE", multiple=True, help="Parameters of the fixed design (default: fix=).")
@click.option("--trials", type=click.IntRange(1), default=200, help="Trials of each arm (200).")
@click.option("--gate", default="auto", help="auto, memory (stream memory operations) or sleep (a delay kernel).")
@click.option("--watchdog", type=Real(1, 1000), default=10.0, metavar="MS", help="Opens all gates after (10).")
@click.option("--json", "as_json", is_flag=True, help="Write the evidence to standard output.")
@click.option("--evidence", metavar="FILE", help="Write the evidence file: machine, versions, hashes, counts.")
@click.option("--dry-run", is_flag=True, help="No GPU: print the plan and run it on the emulated one.")
@click.option("--script", metavar="FILE", help="Write a standalone PyTorch script instead (- for standard output).")
@click.option("--save", metavar="FILE", help="Write a replay file that a machine with a GPU replays, instead.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes of the search for counterexamples.")
def replay(
    targets: tuple[str, ...],
    sets: tuple[str, ...],
    keyword: str | None,
    fixed: tuple[str, ...],
    trials: int,
    gate: str,
    watchdog: float,
    as_json: bool,
    evidence: str | None,
    dry_run: bool,
    script: str | None,
    save: str | None,
    jobs: int | None,
) -> int:
    """Force counterexamples on a real GPU. Three arms each: ungated, gated, and gated with the fixed design.

    TARGET is as for check, or a file that --save wrote. Exit code 0: every gated arm shows wrong values, no other arm
    does. 1: not so, or something could not be replayed. 2: usage or input error, no GPU, no gates, or the one
    counterexample that was asked for cannot be replayed.
    """
    from fencepost import gpu
    from fencepost.gpu_validate.files import dump
    from fencepost.gpu_validate.table import replays
    from fencepost.model.answer import REFUTED
    from fencepost.subjects import gather

    subjects = gather(targets, REFUTED, sets=sets, fixed=fixed, keyword=keyword, jobs=jobs)
    if save is not None:
        gpu.finish([], save, lambda: dump(subjects))
        click.echo(f"{save}: {len(subjects)} counterexamples; replay them with: fencepost replay {save}", err=True)
        return 0
    if script is not None:
        return _script(subjects, script)
    begin = time.perf_counter()
    rows = []
    with gpu.Machine(dry_run, gate, watchdog) as machine:
        if dry_run and len(subjects) == 1 and not as_json:
            _print_plan(subjects[0])
        for row in replays(subjects, machine.make, 1 if dry_run else trials):
            rows.append(row)
            if len(subjects) == 1 and row.error is not None:
                raise InputError(f"{subjects[0].title}: {row.error}")
            if not as_json and len(subjects) == 1:
                for line in gpu.replay_text(row):
                    click.echo(line)
                if dry_run:
                    click.echo(f"  the simulated machine: {gpu.simulated(subjects[0])}")
        seconds = time.perf_counter() - begin
        content = gpu.evidence(machine, "replay", rows, seconds, trials=trials)
    if as_json:
        click.echo(content.decode())
    elif len(subjects) > 1:
        for line in gpu.replay_table(rows):
            click.echo(line)
        good = sum(_good(row) for row in rows)
        click.echo(f"{good} of {len(rows)} as expected, {seconds:.1f} s" + (" (emulated)" if dry_run else ""))
    gpu.finish(rows, evidence, lambda: content)
    return 0 if all(_good(row) for row in rows) else 1


def _good(row: Row) -> bool:
    """At least 99 % of the gated trials wrong, none of the fixed ones; of another platform nothing is expected here."""
    if row.platform is not None:
        return row.error is None
    arms = {arm.name: arm for arm in row.arms}
    gated, fixed = arms.get("gated"), arms.get("gated, fixed")
    if gated is None or gated.trials == 0:
        return False
    return gated.wrong >= 0.99 * gated.trials and (fixed is None or fixed.wrong == 0)


def _print_plan(subject: Subject) -> None:
    from fencepost.gpu_validate.plan import Unsupported
    from fencepost.gpu_validate.schedule import Unforceable
    from fencepost.gpu_validate.script import listing
    from fencepost.model.events import InvalidRun

    try:
        for line in listing(subject):
            click.echo(line)
    except (Unsupported, Unforceable, InvalidRun) as error:
        raise InputError(f"{subject.title}: {error}") from None


def _script(subjects: Sequence[Subject], path: str) -> int:
    from fencepost import gpu
    from fencepost.gpu_validate.plan import Unsupported
    from fencepost.gpu_validate.schedule import Unforceable
    from fencepost.gpu_validate.script import script
    from fencepost.model.events import InvalidRun

    if len(subjects) != 1:
        raise InputError(f"--script writes one counterexample; the targets hold {len(subjects)} (choose one with -k)")
    (subject,) = subjects
    try:
        text = script(subject)
    except (Unsupported, Unforceable, InvalidRun) as error:
        raise InputError(f"{subject.title}: {error}") from None
    if path == "-":
        click.echo(text, nl=False)
    else:
        gpu.finish([], path, text.encode)
        click.echo(f"{path}: run it with a Python that has PyTorch with CUDA, and cuda-bindings", err=True)
    return 0
