"""`fencepost check`: decide designs."""

from __future__ import annotations

import sys
import time

import click
from fencepost.commands.options import SECONDS, Progress, known, known_format
from fencepost.engines import MOST_STEPS, known_engine
from fencepost.errors import InputError


def _engine(_context: click.Context, _option: click.Parameter, value: str) -> str:
    return known_engine(value)


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("--over", "overs", metavar="NAME=1..8", multiple=True, help="A parameter over a range or a,b,c.")
@click.option("-k", "keyword", metavar="TEXT", help="Only variants whose target or label contains TEXT.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: chosen by the number of questions).")
@click.option("--format", "format_", default="text", callback=known_format, help="text, json, markdown or github.")
@click.option("--engine", default="explore", callback=_engine, help="explore (the default, exact), smt, simulate, all.")
@click.option("--steps", type=click.IntRange(1, MOST_STEPS), metavar="K", help="Turns per loop thread, for a bounded engine.")
@click.option("--strict", is_flag=True, help="Refute also on hazards that change no value.")
@click.option("--environment", callback=known("environment"), help="A constraint of a debug run; see docs/answers.md.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
@click.option("--budget", type=SECONDS, metavar="SECONDS", help="Give up as unknown after (120).")
@click.option("--certificate", metavar="DIR", help="Write the proof of every proved answer to this folder; see verify.")
@click.option("-v", "--verbose", is_flag=True, help="Every answer in full, also when it is as declared.")
def check(
    targets: tuple[str, ...],
    sets: tuple[str, ...],
    overs: tuple[str, ...],
    keyword: str | None,
    jobs: int | None,
    format_: str,
    engine: str,
    steps: int | None,
    strict: bool,
    environment: str | None,
    platform: str | None,
    budget: float | None,
    certificate: str | None,
    verbose: bool,
) -> int:
    """Decide designs: every declared variant, or one design with --set and --over.

    Exit code 0: as declared, or proved. 1: refuted, hanging, or not as declared. 2: usage or input error. 3: unknown,
    bounded or masked. 130: Ctrl-C, with the table so far.
    """
    import msgspec
    from fencepost.check import INTERRUPTED, OK, OPEN, Outcome, cases, decide_all, exit_code, unused_acceptances
    from fencepost.loader import load

    if steps is not None and engine == "explore":
        raise InputError("--steps bounds the engines smt and simulate; explore decides every number of steps")
    if certificate is not None:
        from fencepost.commands.verify import check_folder

        if engine != "explore":
            raise InputError(f"--certificate needs the engine explore, not {engine!r}")
        check_folder(certificate)
    begin = time.perf_counter()
    asked = cases(
        load(targets), sets=sets, overs=overs, keyword=keyword, environment=environment, platform=platform,
        strict=strict, budget=budget,
    )  # fmt: skip
    asked = [msgspec.structs.replace(case, engine=engine, steps=steps) for case in asked]
    if len(asked) > 1 and not verbose:
        # A table shows none of it, and each explanation is a search of its own.
        whole = format_ != "text" or certificate is not None
        asked = [msgspec.structs.replace(case, explain=False, whole=whole) for case in asked]
    outcomes: list[Outcome] = []
    interrupted = False
    progress = Progress()
    try:
        for outcome in decide_all(asked, jobs, progress):
            if outcome.error is not None and outcome.error not in {one.error for one in outcomes}:  # a missing extra: once
                click.echo(f"fencepost: {'internal error: ' if outcome.crashed else ''}{outcome.error}", err=True)
            outcomes.append(outcome)
    except KeyboardInterrupt:
        interrupted = True
    progress.clear()
    complete = True
    if certificate is not None and not interrupted:
        from fencepost.commands.verify import write_certificates

        outcomes, complete = write_certificates(outcomes, certificate, progress)
    from fencepost.report import write

    errors = [] if interrupted or keyword is not None else unused_acceptances(outcomes)
    write(outcomes, format_, sys.stdout, verbose=verbose, seconds=time.perf_counter() - begin)
    for error in errors:
        click.echo(f"fencepost: {error}", err=True)
    if interrupted:
        click.echo(f"fencepost: interrupted; {len(outcomes)} of {len(asked)} answered", err=True)
        return INTERRUPTED
    code = exit_code(outcomes, errors)
    return code or (OK if complete else OPEN)
