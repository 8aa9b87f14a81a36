"""What one trial of a plan gave, and k of n over many with a Wilson interval."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
from fencepost.gpu_validate.plan import Plan
from fencepost.model.program import Data


class Mismatch(NamedTuple):
    """A read that observed something else than the reference: the check's number, one value, what it should be."""

    check: int
    got: int
    want: int


class Trial(NamedTuple):
    """`held`: index of the call at which the host waited for a shut gate. `device_held`: the second access's stream did.
    `diverged`: a query answered otherwise than in the run, so this was not the run."""

    wrong: tuple[Mismatch, ...]
    held: int | None = None
    device_held: bool = False
    diverged: bool = False
    hang: bool = False
    held_ms: float = 0.0
    slow: bool = False
    """The gates were opened at a call that waits for nothing: the host was slow, and the trial says nothing."""


def wilson(k: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval for k successes in n trials (95 % by default); (0, 1) for no trials.

    >>> [round(x, 3) for x in wilson(200, 200)]
    [0.981, 1.0]
    >>> [round(x, 3) for x in wilson(0, 200)]
    [0.0, 0.019]
    """
    if n == 0:
        return (0.0, 1.0)
    rate = k / n
    middle = rate + z * z / (2 * n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale))


class Arm(Data, frozen=True):
    """Trials of one plan. `wrong` of `trials` had a wrong value; `diverged` ones are counted in neither."""

    name: str
    trials: int
    wrong: int
    low: float
    high: float
    held: int
    held_at: str | None = None
    held_ms: float | None = None
    """Median of the time that the host waited, milliseconds."""
    device_held: int = 0
    diverged: int = 0
    first_wrong: str | None = None
    notes: tuple[str, ...] = ()


class Tally(msgspec.Struct):
    """Counts trials of one arm."""

    name: str
    plan: Plan
    trials: int = 0
    wrong: int = 0
    held: int = 0
    device_held: int = 0
    diverged: int = 0
    held_at: str | None = None
    first_wrong: str | None = None
    waits: list[float] = msgspec.field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """Count one trial."""
        if trial.diverged:
            self.diverged += 1
            return
        self.trials += 1
        self.held += trial.held is not None
        self.device_held += trial.device_held
        if trial.held is not None:
            self.waits.append(trial.held_ms)
            if self.held_at is None:
                line = self.plan.lines[trial.held]
                self.held_at = f"{line.op} in step {line.turn} of {line.thread}"
        if trial.wrong:
            self.wrong += 1
            if self.first_wrong is None:
                self.first_wrong = explain(self.plan, trial.wrong[0])

    def arm(self, notes: tuple[str, ...] = ()) -> Arm:
        """The counts with their interval."""
        low, high = wilson(self.wrong, self.trials)
        waits = sorted(self.waits)
        return Arm(
            self.name, self.trials, self.wrong, low, high, self.held, self.held_at,
            waits[len(waits) // 2] if waits else None, self.device_held, self.diverged, self.first_wrong, notes,
        )  # fmt: skip


def explain(plan: Plan, wrong: Mismatch) -> str:
    """A wrong value in words: who read what, which write it saw and which it should have seen."""
    line, check = plan.check_lines()[wrong.check]
    buffer = plan.buffers[check.range.buffer]
    who = f"{line.op} in step {line.turn} of {line.thread}"
    if wrong.check in plan.undefined:
        return f"{who}: {buffer.name} held what an earlier owner of its block left there; nothing in this run wrote it before"
    got = plan.meaning.get(wrong.got, f"{wrong.got:#x}, which nothing in this run wrote")
    return (
        f"{who}: {buffer.name} held {got}; "
        f"it should have held {plan.meaning.get(wrong.want, hex(wrong.want))}"
    )
