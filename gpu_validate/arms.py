"""The arms of a replay: ungated, gated, and gated with the fixed design, each over many trials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.gpu_validate import undefined
from fencepost.gpu_validate.graphs import in_one_call, planned
from fencepost.gpu_validate.plan import Plan, without_gates
from fencepost.gpu_validate.schedule import follow, overtake
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
    ungated: Plan | None = None
    """Another plan than the gated one without its gates: for undefined bytes, where nothing is held back."""


def prepare(program: p.Program, run: Run, hazard: Hazard, fixed: p.Program | None,
            platform: Platform = PLATFORMS["cuda"]) -> Replay:  # fmt: skip
    """Plans for a counterexample. Raises `Unforceable`, `Unsupported`, `InvalidRun`."""
    schedule = overtake(program, *in_one_call(program, run, hazard, platform), platform)
    gated, driven = planned(program, schedule, platform)
    ungated = None
    if hazard.first is None:
        assert driven.second is not None
        ungated, gated = undefined.shown(gated, driven.second)
    if fixed is None:
        return Replay(gated, None, schedule.notes, None, ungated)
    other = follow(fixed, program, schedule, platform)
    plan, other = planned(fixed, other, platform)
    holds = None
    if other.holds is not None:
        line = next((line for line in plan.lines if line.step == other.holds and line.op != "gate"), None)
        holds = None if line is None else f"{line.op} in step {line.turn} of {line.thread}"
    return Replay(gated, plan, schedule.notes + other.notes, holds, ungated)


def arm(name: str, plan: Plan, run: Any, trials: int, progress: Callable[[int], None] | None = None) -> Arm:
    """Trials of one plan. `run`: a `TorchRun` or `EmulatedRun` of it."""
    tally = Tally(name, plan)
    for number in range(trials):
        trial: Trial = run.trial()
        tally.add(trial)
        if progress is not None:
            progress(number)
    return tally.arm((*plan.notes, *getattr(run, "notes", ())))


def arms(replay: Replay, make: Callable[[Plan], Any], trials: int) -> list[Arm]:
    """All arms. `make` turns a plan into something with `trial()`. Each plan is run once serially first: as a warm-up,
    and because a plan that is wrong when nothing overlaps proves nothing (undefined bytes are wrong then, too)."""
    found: list[Arm] = []
    first = without_gates(replay.gated) if replay.ungated is None else replay.ungated
    wanted = [("ungated", first), ("gated", replay.gated)]
    if replay.fixed is not None:
        wanted.append(("gated, fixed", replay.fixed))
    for name, plan in wanted:
        run = make(plan)
        serial: Trial = run.trial(serial=True)
        if serial.wrong and (replay.ungated is None or plan is replay.fixed):
            raise RuntimeError(f"the plan of arm {name!r} gives wrong values even when nothing overlaps")
        found.append(arm(name, plan, run, trials))
        del run
    return found
