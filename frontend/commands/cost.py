"""`fencepost cost`: what a step costs, and while which wait is free."""

from __future__ import annotations

import sys

import click
from fencepost.errors import InputError
from fencepost.width import columns


def _one_of(*names: str) -> object:
    def chosen(_context: click.Context, option: click.Parameter, value: str) -> str:
        if value not in names:
            raise InputError(f"--{option.name}: no {value!r}; there are: {', '.join(names)}")
        return value

    return chosen


@click.command()
@click.argument("target", metavar="TARGET")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A parameter of the design; repeatable.")
@click.option("--time", "times", metavar="NAME=3ms", multiple=True, help="The duration of an operation; repeatable.")
@click.option("--copies", default="free", callback=_one_of("free", "direction", "serial"),
              help="Copy engines of the machine: free (one each), direction (one a direction), serial (one for all).")  # fmt: skip
@click.option("--no-machine", is_flag=True, help="Cycle ratios only.")
@click.option("--format", "format", default="text", callback=_one_of("text", "json"), help="text or json.")
def cost(
    target: str, sets: tuple[str, ...], times: tuple[str, ...], copies: str, no_machine: bool, format: str
) -> int:
    """What a step costs: the critical cycles, the break-even of each wait, and figures under given durations.

    The figures come from the greatest cycle ratio and from the machine, which runs until its state repeats.
    """
    try:
        import networkx  # noqa: F401
        import z3  # noqa: F401
    except ImportError:
        raise InputError("fencepost cost needs networkx and z3; install them with: pip install 'fencepost[prove]'") from None
    from fencepost.check import build
    from fencepost.cost import decide, durations
    from fencepost.errors import one_line
    from fencepost.loader import load
    from fencepost.parameters import combinations, spelled
    from fencepost.report.cost import write_json, write_text

    found = load([target])
    if len(found) != 1:
        raise InputError(f"a cost is about one design; the target holds {len(found)}: {', '.join(t.spelling for t in found[:5])}")
    (one,) = found
    parameters = next(combinations(one, sets, ())) if one.function is not None else {}
    given = durations(times)
    try:
        program = build(one, parameters)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
        raise InputError(one_line(error)) from None
    results = decide(program, given, machine=not no_machine, copies=copies)
    if format == "json":
        write_json(results, sys.stdout)
        return 0
    title = one.design + (f", with {spelled(parameters)}" if parameters else "")
    write_text(results, title, sys.stdout, columns())
    return 0
