"""`fencepost cost`: what a step costs, by cycle ratio and by the machine, which runs until its state repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fencepost.errors import InputError
from fencepost.model import program as p
from fencepost.model.cost import Cost, Measured
from fencepost.model.platform import PLATFORMS

TURNS = (200, 800, 3200)
"""Turns of the machine, one after the other until the starts of turns repeat."""

SECOND = 1e9
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class Result(msgspec.Struct, frozen=True):
    """One strategy's cost and what the machine did under it (empty where no duration is known)."""

    cost: Cost
    measured: tuple[Measured, ...] = ()
    shared: tuple[Measured, ...] = ()
    """The same with shared copy engines, when that was asked for."""
    bound: float | None = None
    """With shared copy engines: no step is shorter than this, in seconds."""


def durations(texts: Sequence[str]) -> dict[str, float]:
    """`--time forward=3ms`: durations by operation, in seconds. Raises `InputError` for what is none."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        unit = next((unit for unit in ("ms", "us", "ns", "s") if value.strip().endswith(unit)), "")
        try:
            number = float(value.strip()[: len(value.strip()) - len(unit)])
        except ValueError:
            number = float("nan")
        if equals and name.strip() and number < 0:
            raise InputError(f"--time {text}: a duration is not negative; give 0 or more")
        if not equals or not name.strip() or not 0 <= number < float("inf"):
            raise InputError(f"--time {text}: write it as --time 'forward=3ms' (s, ms, us, ns; seconds without a unit)")
        found[name.strip()] = number * UNITS[unit or "s"]
    return found


def timed_program(program: p.Program, cost: Cost) -> p.Program:
    """The program with the durations of `cost` written into its operations, so that the machine has the same ones."""
    seconds = {one.name: one.seconds for one in cost.operations}
    threads = []
    for t, thread in enumerate(program.threads):
        nodes: list[p.Node] = []
        for n, node in enumerate(thread.nodes):
            name = cost_name(cost, t, n)
            if isinstance(node, p.Do) and name is not None and hasattr(node.operation, "time"):
                value = seconds.get(name)
                node = msgspec.structs.replace(node, operation=msgspec.structs.replace(node.operation, time=value or 0.0))
            nodes.append(node)
        threads.append(msgspec.structs.replace(thread, nodes=tuple(nodes)))
    return msgspec.structs.replace(program, threads=tuple(threads))


def cost_name(cost: Cost, thread: int, node: int) -> str | None:
    """The name of the operation at a node, where it takes time."""
    return next((one.name for one in cost.operations if one.at == (thread, node)), None)


def measure(program: p.Program, cost: Cost, *, copies: str = "free") -> tuple[Measured, ...]:
    """Run the machine under the cost's strategy until the starts of each thread's turns repeat.

    Raises `InputError` when the machine does not know an operation or comes to a halt.
    """
    from fencepost.simulator.machine import Hardware, Machine, Unsupported
    from fencepost.simulator.machine_script import DEFAULTS, Follow
    from fencepost.simulator.machine_timing import PROFILES

    said = {(thread, question): answer for thread, question, answer in cost.answers}

    class Strategy(Follow):
        """Answers as the strategy says."""

        def answer(self, thread: Any, node: int, options: tuple[str, ...]) -> int:
            question: Any = program.threads[thread.index].nodes[node].question
            wanted = said.get((thread.name, question.name), said.get(("", question.name)))
            return options.index(wanted) if wanted in options else 0

    try:
        machine = Machine(program, PLATFORMS["cuda"], hardware=Hardware(copies=copies))
    except Unsupported as error:
        raise InputError(f"the machine cannot run this design: {error}") from None
    found: list[Measured] = []
    for turns in TURNS:
        outcome = machine.run(
            Strategy(DEFAULTS), turns=turns, limit=400 * turns, profile=PROFILES["declared"], stop=False
        )
        if outcome.ended in ("blocked", "fault"):
            raise InputError(f"the machine comes to a halt: {outcome.fault or ', '.join(outcome.blocked)}")
        found = [
            _rate(program.threads[t].name, starts)
            for t, starts in enumerate(outcome.starts)
            if program.threads[t].kind == "loop" and len(starts) > 1
        ]
        if all(one.period is not None for one in found):
            break
    return tuple(found)


def _rate(name: str, starts: list[int]) -> Measured:
    """Time per turn: exact when the last starts repeat with a period, else over the second half of the run."""
    steps = [b - a for a, b in zip(starts, starts[1:], strict=False)]
    for period in range(1, len(steps) // 4 + 1):
        window = steps[-3 * period :] if period > 8 else steps[-max(3 * period, 24) :]
        if len(window) >= 3 * period and all(a == b for a, b in zip(window, window[period:], strict=False)):
            return Measured(name, sum(steps[-period:]) / period / SECOND, period, len(starts))
    half = len(starts) // 2
    return Measured(name, (starts[-1] - starts[half]) / (len(starts) - 1 - half) / SECOND, None, len(starts))


def decide(
    program: p.Program, times: Mapping[str, float], *, machine: bool = True, copies: str = "free"
) -> list[Result]:
    """The cost of each strategy. Raises `InputError` where the design is no periodic event graph."""
    from fencepost.proofs.periodic.cost import costs
    from fencepost.proofs.periodic.symbols import Refused

    try:
        found = costs(program, times)
    except Refused as why:
        raise InputError(f"{program.name}: no time per step: {why}") from None
    except ValueError as error:
        raise InputError(f"--time: {error}") from None
    results = []
    for cost in found:
        measured: tuple[Measured, ...] = ()
        shared: tuple[Measured, ...] = ()
        bound = None
        if cost.step is not None and machine:
            timed = timed_program(program, cost)
            measured = measure(timed, cost)
            if copies != "free":
                shared = measure(timed, cost, copies=copies)
                bound = max(cost.step, _load(cost, copies))
        results.append(Result(cost, measured, shared, bound))
    return results


def _load(cost: Cost, copies: str) -> float:
    """Seconds per step that the busiest copy engine works."""
    loads = dict(cost.loads)
    if copies == "serial":
        return sum(value for name, value in loads.items() if name.startswith("copies "))
    return max([loads.get("copies h2d", 0.0), loads.get("copies d2h", 0.0)])
