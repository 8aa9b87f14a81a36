"""`fencepost condition`: the exact set of safe values of integer parameters, for all values."""

from __future__ import annotations

import sys

import click
from fencepost.commands.options import SECONDS
from fencepost.errors import InputError
from fencepost.width import columns


def _format(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value not in ("text", "json"):
        raise InputError(f"no format {value!r}; there are: text, json")
    return value


@click.command()
@click.argument("target", metavar="TARGET")
@click.option("--over", "overs", metavar="A,B", multiple=True, required=True, help="The integer parameters; all values.")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="The value of another parameter; repeatable.")
@click.option("--least", "least_of", metavar="NAME", help="The least safe value, if every greater one is proved safe.")
@click.option("--at", "ats", metavar="A=4,B=2", multiple=True, help="The margin of these values; repeatable.")
@click.option("--grid", type=click.IntRange(0), metavar="N", help="Ask the explorer up to N of each (0: not at all).")
@click.option("--timeout", type=SECONDS, default=4.0, metavar="SECONDS",
              help="For one question to the solver (default 4).")  # fmt: skip
@click.option("--format", "format_", default="text", callback=_format, help="text or json.")
def condition(
    target: str, overs: tuple[str, ...], sets: tuple[str, ...], least_of: str | None, ats: tuple[str, ...], grid: int | None,
    timeout: float, format_: str,
) -> int:  # fmt: skip
    """The exact set of safe values of the named integer parameters, proved for all values.

    Exit code 0: the condition is exact. 1: the explorer contradicts it on the grid. 2: usage or input error. 3: unknown,
    with the reason and with what was proved.
    """
    try:
        import z3  # noqa: F401
    except ImportError:
        raise InputError("fencepost condition needs z3; install it with: pip install 'fencepost[prove]'") from None
    from fencepost.commands.options import Progress
    from fencepost.condition import decide, fixed, integer_parameters, values_at
    from fencepost.loader import load
    from fencepost.report.condition import write_json, write_text

    found = load([target])
    if len(found) != 1:
        names = ", ".join(one.spelling for one in found[:5])
        raise InputError(f"a condition is about one design; the target holds {len(found)}: {names}")
    (one,) = found
    if one.function is None:
        raise InputError(f"{one.place}: a program read from JSON has no parameters; name the design function")
    over = integer_parameters(one, overs)
    progress = Progress()
    result = decide(
        one, over, fixed(one, over, sets), grid=grid, least_of=least_of, at=[values_at(one, over, text) for text in ats],
        timeout=timeout, progress=progress,
    )  # fmt: skip
    progress.clear()
    if format_ == "json":
        write_json([result], sys.stdout)
    else:
        write_text(result, sys.stdout, columns())
    if any(point.agrees is False for point in result.grid):
        return 1
    return 0 if result.condition.verdict == "exact" else 3
