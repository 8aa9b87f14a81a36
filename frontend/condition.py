"""`fencepost condition`: the target and its parameters become a condition, and the explorer is asked about a grid of values."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from fencepost.errors import InputError, one_line
from fencepost.loader import Target
from fencepost.model.answer import PROVED, REFUTED
from fencepost.parameters import combinations, signature, type_name
from fencepost.proofs.periodic.conditions import Condition, condition, least, margin, upward_closed
from fencepost.proofs.periodic.decide import spelled, spelled_poly

GRID_POINTS = 48
"""Most values that the explorer is asked about when nothing is said."""

GRID_SECONDS = 20.0
"""Most time for the grid; what is left out is said."""


class Point(msgspec.Struct, frozen=True):
    """One value of the grid: what the condition says of it (None: nothing), and the explorer's verdict."""

    values: dict[str, int]
    safe: bool | None
    verdict: str
    reason: str | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the two say the same; None where one of them says nothing."""
        if self.safe is None or self.verdict not in (PROVED, REFUTED):
            return None
        return self.safe == (self.verdict == PROVED)


class Result(msgspec.Struct, frozen=True):
    """All that a report says. `least` and `margins` are sentences; `assumptions` come from the explorer's answers."""

    target: str
    design: str
    names: tuple[str, ...]
    parameters: dict[str, Any]
    condition: Condition
    grid: tuple[Point, ...] = ()
    grid_seconds: float = 0.0
    grid_left: int = 0
    """Values of the grid that the explorer was not asked about, for want of time."""
    least: str | None = None
    margins: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def integer_parameters(target: Target, overs: Sequence[str]) -> tuple[str, ...]:
    """The names that `--over a,b` asks for. Raises `InputError` where one is no integer parameter."""
    names = tuple(dict.fromkeys(name.strip() for text in overs for name in text.split(",") if name.strip()))
    if not names:
        raise InputError("--over names no parameter; write --over depth or --over depth,takes")
    known = signature(target)
    for name in names:
        if "=" in name:
            raise InputError(f"--over {name}: a condition is about all values; name the parameter alone, or use --set")
        if name not in known:
            raise InputError(
                f"{target.place}: {target.design} has no parameter {name!r}; it has: {', '.join(known) or 'none'}"
            )
        if known[name][0] is not int:
            raise InputError(
                f"{target.place}: parameter {name!r} of {target.design} is {type_name(known[name][0])}, not an integer; "
                "give it a value with --set, a condition is about integers"
            )
    return names


def fixed(target: Target, names: Sequence[str], sets: Sequence[str]) -> dict[str, Any]:
    """The other parameters' values. Raises `InputError` as `--set` does elsewhere."""
    for text in sets:
        if text.partition("=")[0].strip() in names:
            raise InputError(f"--set {text}: the parameter is also named by --over; it is one or the other")
    known = signature(target)
    missing = [f"{name}=1" for name in names if known[name][1] is inspect.Parameter.empty]
    (chosen,) = combinations(target, [*sets, *missing], ())
    return {name: value for name, value in chosen.items() if name not in names}


def values_at(target: Target, names: Sequence[str], text: str) -> dict[str, int]:
    """`--at depth=4,takes=2`. Raises `InputError` unless each named parameter gets one integer."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name.strip() not in names:
            raise InputError(f"--at {text}: write it as --at {','.join(f'{name}=4' for name in names)}")
        try:
            found[name.strip()] = int(value)
        except ValueError:
            raise InputError(f"--at {text}: {value.strip()!r} is no integer") from None
    if set(found) != set(names):
        raise InputError(f"--at {text}: give every parameter of --over a value: {', '.join(names)}")
    return found


def decide(
    target: Target, names: Sequence[str], parameters: dict[str, Any], *, grid: int | None = None, least_of: str | None = None,
    at: Sequence[dict[str, int]] = (), timeout: float = 4.0, progress: Callable[[str], None] | None = None,
) -> Result:  # fmt: skip
    """The condition, and what was asked about it. `grid`: the greatest value of each parameter on the grid (0: no grid);
    `timeout`: seconds for one question to the solver."""
    assert target.function is not None
    if least_of is not None and least_of not in names:
        raise InputError(f"--least {least_of}: it is one of the parameters of --over: {', '.join(names)}")
    try:
        found = condition(target.function, names, parameters, timeout=timeout)
    except InputError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise InputError(one_line(error)) from None
    begin = time.perf_counter()
    asked = grid_values(names, found, grid)
    points, assumptions = on_grid(target, parameters, found, asked, progress)
    return Result(
        target.spelling, target.design, tuple(names), parameters, found, tuple(points), time.perf_counter() - begin,
        len(asked) - len(points),
        None if least_of is None else _least(found, least_of, names),
        tuple(_margin(found, values, names) for values in at), assumptions,
    )  # fmt: skip


def _least(found: Condition, name: str, names: Sequence[str]) -> str:
    """The least safe value in words, only where greater values stay safe."""
    if found.verdict != "exact":
        return f"least {name}: not said, because the condition is not exact"
    if spelled(found.safe, names) == "never":
        return f"least {name}: there is none, no value is safe"
    if not upward_closed(found, name):
        return f"least {name}: there is none in the sense of 'this and more', as a greater {name} is not always safe"
    cases = least(found, name)
    if cases is None:
        return f"least {name}: any greater value of a safe one is safe (proved); the least is what the condition says"
    said = []
    for provided, bounds in cases:
        text = ", ".join(spelled_poly(bound, names) for bound in bounds)
        text = f"max({text})" if len(bounds) > 1 else text
        where = spelled(provided, names)
        said.append(text if where == "always" else f"{text} where {where}")
    whole = said[0] if len(said) == 1 else f"the least of {'; '.join(said)}"
    return f"least {name} = {whole} (every greater one is safe: proved)"


def _margin(found: Condition, values: dict[str, int], names: Sequence[str]) -> str:
    where = ", ".join(f"{name} = {value}" for name, value in values.items())
    safe = found.is_safe(values)
    if safe is None:
        return f"at {where}: the condition says nothing"
    if not safe:
        return f"at {where}: not safe"
    parts = []
    for name in names:
        steps = margin(found, values, name)
        assert steps is not None
        if found.is_safe({**values, name: values[name] - steps - 1}) is False:
            parts.append(f"{name} could be {steps} less" if steps else f"{name} cannot be less")
    return f"at {where}: safe" + (f"; {', '.join(parts)}" if parts else ", and stays so when a parameter is lowered")


# ---------------------------------------------------------------- the explorer's grid


def grid_values(names: Sequence[str], found: Condition, most: int | None) -> list[dict[str, int]]:
    """Values of the grid: small ones of each parameter, also those that are not positive where the design takes them."""
    if most == 0 or not found.parts:
        return []
    top = most or {1: 10, 2: 6, 3: 4}.get(len(names), 3)
    every = [dict(zip(names, values, strict=True)) for values in itertools.product(range(0, top + 1), repeat=len(names))]
    asked = [values for values in every if _accepted(found, values)]
    if most is None and len(asked) > GRID_POINTS:
        # Those at the boundary first: a neighbour with another answer.
        def near(values: dict[str, int]) -> bool:
            return any(
                found.is_safe({**values, name: values[name] + step}) not in (None, found.is_safe(values))
                for name in names
                for step in (1, -1)
            )

        asked = sorted(asked, key=lambda values: (not near(values), sum(values.values())))[:GRID_POINTS]
    return asked


def _accepted(found: Condition, values: dict[str, int]) -> bool:
    """Whether the values lie in a region with a condition."""
    return any(part.kind in ("exact", "open") and all(f.holds(values) for f in part.facts) for part in found.parts)


def on_grid(
    target: Target, parameters: dict[str, Any], found: Condition, asked: Sequence[dict[str, int]],
    progress: Callable[[str], None] | None = None,
) -> tuple[list[Point], tuple[str, ...]]:  # fmt: skip
    """The explorer's verdicts on the grid as far as time allows, and the assumptions of its proofs."""
    from fencepost.model.language.build import program_of
    from fencepost.proofs.check import check
    from fencepost.proofs.explore.search import Budget

    assert target.function is not None
    begin = time.perf_counter()
    points: list[Point] = []
    assumptions: dict[str, None] = {}
    for number, values in enumerate(asked):
        if progress is not None and time.perf_counter() - begin > 2:
            progress(f"grid: {number} of {len(asked)} decided")
        if time.perf_counter() - begin > GRID_SECONDS:
            break
        program = program_of(target.function, {**parameters, **values})
        answer = check(program, explain=False, budget=Budget(seconds=5))
        points.append(Point(values, found.is_safe(values), answer.verdict, answer.reason))
        assumptions.update(dict.fromkeys(answer.assumptions))
    return points, tuple(assumptions)
