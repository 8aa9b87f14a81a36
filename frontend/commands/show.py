"""`fencepost show`: what was understood of a design, with no verdict."""

from __future__ import annotations

import click
from fencepost.errors import InputError
from fencepost.width import columns


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the one design; repeatable.")
@click.option("-k", "keyword", metavar="TEXT", help="With the parameters of the variants that contain TEXT.")
@click.option("--json", "as_json", is_flag=True, help="Write the one program as JSON, which every command reads.")
def show(targets: tuple[str, ...], sets: tuple[str, ...], keyword: str | None, as_json: bool) -> int:
    """Print what was understood, with no verdict: threads, streams, who holds what, what each wait orders."""
    from fencepost.check import Case, build, cases
    from fencepost.errors import one_line
    from fencepost.loader import load
    from fencepost.model.program import to_json
    from fencepost.parameters import combinations
    from fencepost.show import Shown

    width = columns(80)
    found = load(targets)
    by_name = {target.spelling: target for target in found}
    if keyword is not None:
        asked = cases(found, sets=sets, keyword=keyword)
    elif sets:
        asked = cases(found, sets=sets)
    else:
        asked = [
            Case(target.spelling, target.design, next(combinations(target, (), ())) if target.function else {})
            for target in found
        ]
    if as_json and len(asked) != 1:
        raise InputError(f"--json writes one program; the targets hold {len(asked)}")
    for number, case in enumerate(asked):
        try:
            program = build(by_name[case.target], case.parameters)
        except InputError:
            raise
        except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
            raise InputError(one_line(error)) from None
        if as_json:
            click.echo(to_json(program).decode())
            continue
        if len(asked) > 1:
            click.echo(("\n" if number else "") + f"# {case.target}" + (f" [{case.title}]" if case.title else ""))
        for line in Shown(program, width).lines():
            click.echo(line)
    return 0
