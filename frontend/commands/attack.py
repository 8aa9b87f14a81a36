"""`fencepost attack`: shut a gate in front of the first access of every protected pair of a proved design, and drive on."""

from __future__ import annotations

import time

import click
from fencepost.commands.options import Real
from fencepost.errors import InputError


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("-k", "keyword", metavar="TEXT", help="Only variants whose target or label contains TEXT.")
@click.option("--gate", default="auto", help="auto, memory (stream memory operations) or sleep (a delay kernel).")
@click.option("--watchdog", type=Real(1, 100), default=20.0, metavar="MS", help="Opens all gates after (20).")
@click.option("--json", "as_json", is_flag=True, help="Write the evidence to standard output.")
@click.option("--evidence", metavar="FILE", help="Write the evidence file: machine, versions, hashes, counts.")
@click.option("--dry-run", is_flag=True, help="No GPU: run the attacks on the emulated one.")
@click.option("--save", metavar="FILE", help="Write a file that a machine with a GPU attacks, instead.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes that decide and plan.")
@click.option("-v", "--verbose", is_flag=True, help="Every pair, and where the host waited.")
def attack(
    targets: tuple[str, ...],
    sets: tuple[str, ...],
    keyword: str | None,
    gate: str,
    watchdog: float,
    as_json: bool,
    evidence: str | None,
    dry_run: bool,
    save: str | None,
    jobs: int | None,
    verbose: bool,
) -> int:
    """Attack proofs on a real GPU: for every protected pair, hold the first access back and drive on.

    Exit code 0: no wrong value, and the host waited where the model says. 1: a wrong value (a wrong proof), or a wait
    elsewhere. 2: usage or input error, no GPU, no gates, no memory left on the GPU.
    """
    from fencepost import gpu
    from fencepost.gpu_validate.files import dump
    from fencepost.gpu_validate.table import attack as run
    from fencepost.model.answer import PROVED
    from fencepost.subjects import gather

    subjects = gather(targets, PROVED, sets=sets, keyword=keyword, jobs=jobs)
    if save is not None:
        gpu.finish([], save, lambda: dump(subjects))
        click.echo(f"{save}: {len(subjects)} proofs; attack them with: fencepost attack {save}", err=True)
        return 0
    begin = time.perf_counter()
    rows = []
    planned = list(gpu.plan_all(subjects, jobs))
    with gpu.Machine(dry_run, gate, watchdog) as machine:
        for subject, plans in planned:
            row = run(subject, plans, machine.make)
            rows.append(row)
            if len(subjects) == 1 and row.error is not None:
                raise InputError(f"{subject.title}: {row.error}")
            if not as_json:
                for line in gpu.attack_text(row, verbose or len(subjects) == 1):
                    click.echo(line)
        seconds = time.perf_counter() - begin
        content = gpu.evidence(machine, "attack", rows, seconds)
    if as_json:
        click.echo(content.decode())
    else:
        pairs, gates = sum(len(row.pairs) for row in rows), sum(row.gates for row in rows)
        wrong = sum(row.wrong for row in rows)
        click.echo(
            f"{len(rows)} proofs, {pairs} pairs, {gates} gates shut: {wrong} wrong, {seconds:.1f} s"
            + (" (emulated)" if dry_run else "")
        )
    gpu.finish(rows, evidence, lambda: content)
    return 1 if any(row.wrong or row.error or any(pair.unlike for pair in row.pairs) for row in rows) else 0
