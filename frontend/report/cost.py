"""What a step costs, for readers: the greatest of which cycles, the break-even of each wait, figures beside the machine's."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from typing import TextIO

import msgspec
from fencepost.cost import Result
from fencepost.model.cost import Cycle, Measured, WaitCost


def time_text(seconds: float | None) -> str:
    """A duration with a fitting unit.

    >>> time_text(0.0035), time_text(2.5e-6), time_text(0.0), time_text(None)
    ('3.5 ms', '2.5 us', '0', '-')
    """
    if seconds is None:
        return "-"
    if seconds == 0:
        return "0"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if abs(seconds) >= size or unit == "ns":
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds} s"


def cycle_text(cycle: Cycle) -> str:
    """The operations of a cycle as a term: their sum over its steps.

    >>> cycle_text(Cycle(("copy", "forward"), 2))
    '(copy + forward) / 2'
    """
    count = Counter(cycle.operations)
    text = " + ".join((f"{k} * " if k > 1 else "") + name for name, k in count.items())
    if cycle.steps == 1:
        return text
    return f"({text}) / {cycle.steps}" if len(count) > 1 else f"{text} / {cycle.steps}"


LONG = 150
"""From this length on a condition is abridged; JSON has it in full."""


def wait_text(wait: WaitCost, long: int = LONG) -> str:
    """The break-even of one wait, conditions of more than `long` characters abridged.

    >>> wait_text(WaitCost("e", "", ("forward >= prep + copy",), ("prep + copy - forward",)))
    'free while forward >= prep + copy, otherwise + prep + copy - forward'
    """
    if not wait.free_while:
        return "free: other waits and orders allow no more without it"
    parts = []
    for free, more in zip(wait.free_while, wait.otherwise, strict=True):
        if free == "never":
            parts.append(f"always + {more}")
            continue
        ways = free.split(" or ")
        kept = [ways[0]]
        for way in ways[1:]:
            if len(" or ".join([*kept, way])) <= long:
                kept.append(way)
        text = "free while " + " or ".join(kept)
        left = len(ways) - len(kept)
        if left:
            text += f" or in {left} more case{'s' if left > 1 else ''} (--format json)"
        parts.append(f"{text}, otherwise + {more}" if len(more) <= long else text)
    return "; ".join(parts)


def _fill(text: str, width: int, first: str, rest: str) -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest) + "\n"


def write_text(results: list[Result], title: str, out: TextIO, width: int = 100) -> None:
    """One block per strategy."""
    out.write(_fill(title, width, "", "  "))
    for result in results:
        cost = result.cost
        out.write("\n" + (_fill(f"choosing {cost.strategy}", width, "", "  ") if cost.strategy else ""))
        figure = "" if cost.step is None else f"  = {time_text(cost.step)}"
        if not cost.cycles:
            out.write("  no operation with a duration comes round again\n")
            continue
        out.write(f"  time per step{figure}, the greatest of\n")
        for number, cycle in enumerate(cost.cycles):
            critical = "  <- critical" if number == 0 and cycle.ratio is not None else ""
            ratio = "" if cycle.ratio is None else f" = {time_text(cycle.ratio)}"
            through = f"   through {', '.join(cycle.waits)}" if cycle.waits else ""
            out.write(_fill(f"{cycle_text(cycle)}{ratio}{through}{critical}", width, "    ", "        "))
        for wait in cost.waits:
            place = f" ({wait.place})" if wait.place else ""
            text = wait_text(wait)
            if wait.cost is not None:
                text += f"; costs {time_text(wait.cost)}, the step takes {time_text(wait.without)} without it"
            out.write(_fill(f"{wait.wait}{place}: {text}", width, "  wait ", "         "))
        if cost.zero:
            out.write(_fill(f"no duration given, counted as 0: {'; '.join(cost.zero)}", width, "  ", "    "))
        for note in cost.notes:
            out.write(_fill(note, width, "  note ", "       "))
        predicted = dict(cost.threads)
        for one in result.measured:
            out.write(_fill(_measured(one, predicted.get(one.thread)), width, "  machine ", "          "))
        for one in result.shared:
            out.write(_fill(f"{one.thread}: {time_text(one.seconds)} a turn with shared copy engines, bound {time_text(result.bound)}", width, "  machine ", "          "))
    if all(result.cost.step is None for result in results):
        out.write("\nfigures need durations: time= in the design, or --time 'NAME=3ms'\n")


def _measured(one: Measured, predicted: float | None) -> str:
    text = f"{one.thread}: {time_text(one.seconds)} a turn"
    text += f", repeating every {one.period} turns" if one.period else f", over {one.turns} turns without repeating"
    if predicted:
        text += f" ({100 * (one.seconds - predicted) / predicted:+.2f} % beside the cycle ratio {time_text(predicted)})"
    return text


def write_json(results: list[Result], out: TextIO) -> None:
    """An object with `fencepost_costs` (version) and `costs`; times in seconds."""
    json.dump({"fencepost_costs": 1, "costs": msgspec.to_builtins(results)}, out, indent=2)
    out.write("\n")
