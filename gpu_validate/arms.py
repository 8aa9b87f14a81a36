"""The arms of a replay: ungated, gated, and gated with the fixed design, each over many trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.gpu_validate.compile import compile_run
from fencepost.gpu_validate.plan import Plan, with_gates, without_gates
from fencepost.gpu_validate.schedule import Schedule, follow, overtake
from fencepost.gpu_validate.trial import Arm, Tally, Trial
from fencepost.model import program as p
from fencepost.model.answer import Hazard, Run
from fencepost.model.platform import PLATFORMS, Platform
from fencepost.model.program import Data


class Replay(Data, frozen=True):
    """What is run: the gated plan of the counterexample, and that of the fixed design if there is one."""

    gated: Plan
    fixed: Plan | None
    schedule_notes: tuple[str, ...]
    holds: str | None
    """Where the model says that the host waits in the fixed design, in words."""


def planned(program: p.Program, schedule: Schedule, platform: Platform) -> Plan:
    """The plan of a schedule, gates included."""
    plan = compile_run(program, schedule.run, platform, schedule.labels)
    numbers = dict(plan.stream_numbers)
    return with_gates(
        plan,
        [
            (gate.before, numbers[gate.stream], gate.after, None if gate.settle is None else numbers[gate.settle], gate.then)
            for gate in schedule.gates
        ],
    )


def prepare(program: p.Program, run: Run, hazard: Hazard, fixed: p.Program | None,
            platform: Platform = PLATFORMS["cuda"]) -> Replay:  # fmt: skip
    """Plans for a counterexample. Raises `Unforceable`, `Unsupported`, `InvalidRun`."""
    schedule = overtake(program, run, hazard, platform)
    gated = planned(program, schedule, platform)
    if fixed is None:
        return Replay(gated, None, schedule.notes, None)
    other = follow(fixed, program, schedule, platform)
    plan = planned(fixed, other, platform)
    holds = None
    if other.holds is not None:
        line = next((line for line in plan.lines if line.step == other.holds and line.op != "gate"), None)
        holds = None if line is None else f"{line.op} in step {line.turn} of {line.thread}"
    return Replay(gated, plan, schedule.notes + other.notes, holds)


def arm(name: str, plan: Plan, run: Any, trials: int, progress: Callable[[int], None] | None = None) -> Arm:
    """Trials of one plan. `run`: a `TorchRun` or `EmulatedRun` of it."""
    tally = Tally(name, plan)
    for number in range(trials):
        trial: Trial = run.trial()
        tally.add(trial)
        if progress is not None:
            progress(number)
    return tally.arm(plan.notes)


def arms(replay: Replay, make: Callable[[Plan], Any], trials: int) -> list[Arm]:
    """All arms. `make` turns a plan into something with `trial()`. Each plan is run once serially first: as a warm-up,
    and because a plan that is wrong when nothing overlaps proves nothing."""
    found: list[Arm] = []
    wanted = [("ungated", without_gates(replay.gated)), ("gated", replay.gated)]
    if replay.fixed is not None:
        wanted.append(("gated, fixed", replay.fixed))
    for name, plan in wanted:
        run = make(plan)
        serial: Trial = run.trial(serial=True)
        if serial.wrong:
            raise RuntimeError(f"the plan of arm {name!r} gives wrong values even when nothing overlaps")
        found.append(arm(name, plan, run, trials))
        del run
    return found
