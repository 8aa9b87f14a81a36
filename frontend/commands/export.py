"""`fencepost export`: a bounded instance of a design for a foreign checker."""

from __future__ import annotations

import os
from typing import Any

import click
from fencepost.commands.options import known
from fencepost.engines import MOST_STEPS
from fencepost.errors import InputError

STEPS = 3
"""Turns per loop thread when nobody says how many."""


@click.command()
@click.argument("target", metavar="TARGET")
@click.option("--promela", is_flag=True, help="A Promela model for SPIN.")
@click.option("--smt2", is_flag=True, help="SMT-LIB for any solver: sat is a hazard.")
@click.option("--steps", type=click.IntRange(1, MOST_STEPS), default=STEPS, metavar="K", help=f"Turns per loop thread (default {STEPS}).")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the design; repeatable.")
@click.option("-k", "keyword", metavar="TEXT", help="With the parameters of the one variant that contains TEXT.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write there instead of to standard output.")
@click.option("--environment", callback=known("environment"), help="A constraint of a debug run; see docs/answers.md.")
@click.option("--platform", callback=known("platform"), help="What vendors disagree on: cuda (the default), rocm, ...")
def export(
    target: str, promela: bool, smt2: bool, steps: int, sets: tuple[str, ...], keyword: str | None, output: str | None,
    environment: str | None, platform: str | None,
) -> int:  # fmt: skip
    """Write a bounded instance of one design: Promela for SPIN, or the SMT engine's query as SMT-LIB.

    Both ask whether two conflicting accesses can overlap, or a read can be undefined, within K turns of every loop
    thread; also when the overlap changes no value. Neither says anything about more turns.
    """
    if promela == smt2:
        raise InputError(f"say what to write: --promela or --smt2{', not both' if smt2 else ''}")
    program, environment, platform = _one(target, sets, keyword, environment, platform)
    text = _text("promela" if promela else "smt2", program, steps, environment, platform)
    if output is None:
        click.echo(text, nl=False)
        return 0
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror})") from None
    click.echo(f"{os.path.relpath(output)}: {len(text.splitlines())} lines")
    return 0


def _one(
    target: str, sets: tuple[str, ...], keyword: str | None, environment: str | None, platform: str | None
) -> tuple[Any, str | None, str | None]:
    """The one program asked for, and the environment and platform that its variant declares."""
    from fencepost.check import build, cases
    from fencepost.errors import one_line
    from fencepost.loader import load
    from fencepost.parameters import combinations

    found = load((target,))
    if sets or keyword is not None:
        asked = cases(found, sets=sets, keyword=keyword, environment=environment, platform=platform)
        if len(asked) != 1:
            raise InputError(f"export writes one design; asked for are {len(asked)}: say more with -k or --set")
        case = asked[0]
        (chosen,) = (one for one in found if one.spelling == case.target)
        parameters, environment, platform = case.parameters, case.environment, case.platform
    else:
        if len(found) != 1:
            names = ", ".join(one.spelling for one in found[:5])
            raise InputError(f"export writes one design; the target holds {len(found)}: {names}")
        chosen = found[0]
        parameters = next(combinations(chosen, (), ())) if chosen.function is not None else {}
    try:
        return build(chosen, parameters), environment, platform
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
        raise InputError(one_line(error)) from None


def _text(kind: str, program: Any, steps: int, environment: str | None, platform: str | None) -> str:
    from fencepost.proofs.foreign.promela import NotExported, promela
    from fencepost.proofs.foreign.smtlib import smtlib
    from fencepost.proofs.smt.core import NotEncoded

    try:
        write = promela if kind == "promela" else smtlib
        return write(program, steps, environment=environment, platform=platform)
    except NotExported as error:
        raise InputError(f"{program.name}: {error} cannot be written as Promela") from None
    except NotEncoded as error:
        raise InputError(f"{program.name}: {error} cannot be written as SMT-LIB") from None
