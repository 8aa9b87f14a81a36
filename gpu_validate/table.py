"""Many subjects in one process: every counterexample's arms, or every proof's attacks, as rows of evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from fencepost.gpu_validate.arms import arms, prepare
from fencepost.gpu_validate.device import Device, out_of_memory
from fencepost.gpu_validate.drive import Attack, attacks
from fencepost.gpu_validate.emulated import EmulatedRun
from fencepost.gpu_validate.files import Subject
from fencepost.gpu_validate.plan import Plan, Unsupported
from fencepost.gpu_validate.schedule import Unforceable
from fencepost.gpu_validate.torchrun import TorchRun
from fencepost.gpu_validate.trial import Arm, Trial, explain
from fencepost.model.events import InvalidRun
from fencepost.model.platform import platform as platform_of
from fencepost.model.program import Data


class Row(Data, frozen=True):
    """What became of one counterexample. `error`: one line, when it could not be replayed."""

    design: str
    variant: str
    hash: str
    hazard: str | None
    fixed_variant: str | None
    arms: tuple[Arm, ...] = ()
    model_holds: str | None = None
    """Where the model says that the host waits in the fixed design."""
    notes: tuple[str, ...] = ()
    error: str | None = None
    seconds: float = 0.0
    platform: str | None = None
    """Another platform that the counterexample is about; a CUDA GPU need not show it."""


def replay(subject: Subject, make: Callable[[Plan], Any], trials: int) -> Row:
    """All arms of one counterexample. Never raises for what this subject alone cannot do."""
    begin = time.perf_counter()
    hazard = subject.hazard.name if subject.hazard is not None else None
    head = (subject.design, subject.variant, subject.design_hash, hazard, subject.fixed_variant)
    if subject.run is None or subject.hazard is None:
        return Row(*head, error="there is no counterexample to replay")
    try:
        ready = prepare(subject.program, subject.run, subject.hazard, subject.fixed, platform_of(subject.platform))
        done = arms(ready, make, trials)
    except (Unforceable, Unsupported, InvalidRun, ValueError) as error:
        return Row(*head, error=" ".join(str(error).split()), seconds=time.perf_counter() - begin)
    except Exception as error:
        text = out_of_memory(error) or f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return Row(*head, error=text, seconds=time.perf_counter() - begin)
    notes = list(ready.schedule_notes)
    other = None if subject.platform in (None, "cuda") else subject.platform
    if other is not None:
        notes.append(f"asked about the platform {subject.platform!r}, which this GPU may not be")
    return Row(*head, tuple(done), ready.holds, tuple(notes), None, time.perf_counter() - begin, other)


def replays(subjects: list[Subject], make: Callable[[Plan], Any], trials: int) -> Iterator[Row]:
    """Row after row."""
    for subject in subjects:
        yield replay(subject, make, trials)


def on_gpu(device: Device) -> Callable[[Plan], TorchRun]:
    """Plans are run on the GPU."""
    return lambda plan: TorchRun(device, plan)


def emulated() -> Callable[[Plan], EmulatedRun]:
    """Plans are run on the emulated GPU."""
    return EmulatedRun


# ------------------------------------------------------------ attacks


class PairResult(Data, frozen=True):
    """What became of one pair. `gates` were shut; in `held` the host waited, in `device_held` a stream did. `unlike`: how
    often the host waited elsewhere than the model says, or did not wait although it should."""

    what: str
    gates: int
    held: int
    device_held: int
    wrong: int
    unlike: int
    held_at: str | None = None
    first_wrong: str | None = None
    model_holds: str | None = None


class AttackRow(Data, frozen=True):
    """What became of one proved design under attack."""

    design: str
    variant: str
    hash: str
    pairs: tuple[PairResult, ...] = ()
    skipped: tuple[str, ...] = ()
    held_ms: float | None = None
    """Median time that the host waited for a shut gate."""
    error: str | None = None
    seconds: float = 0.0

    @property
    def gates(self) -> int:
        """Gates that were shut."""
        return sum(pair.gates for pair in self.pairs)

    @property
    def wrong(self) -> int:
        """Attacks with a wrong value: each is a wrong proof."""
        return sum(pair.wrong for pair in self.pairs)


def plan_attacks(subject: Subject) -> list[Attack | str]:
    """All attacks on a proved design, ready to run. For a worker process: needs no GPU."""
    return list(attacks(subject.program, platform_of(subject.platform)))


def attack(subject: Subject, planned: list[Attack | str], make: Callable[[Plan], Any]) -> AttackRow:
    """Run the attacks on one design."""
    begin = time.perf_counter()
    head = (subject.design, subject.variant, subject.design_hash)
    found: dict[str, list[tuple[Attack, Trial]]] = {}
    skipped: list[str] = []
    waits: list[float] = []
    for item in planned:
        if isinstance(item, str):
            skipped.append(item)
            continue
        try:
            run = make(item.plan)
            if run.trial(serial=True).wrong:
                skipped.append(f"{item.what}: wrong values even when nothing overlaps")
                continue
            trial: Trial = run.trial()
        except (Unsupported, ValueError) as error:
            skipped.append(f"{item.what}: {error}")
            continue
        except RuntimeError as error:
            lacking = out_of_memory(error)
            if lacking is None:
                raise
            return AttackRow(*head, skipped=tuple(skipped), error=lacking, seconds=time.perf_counter() - begin)
        if trial.diverged:
            skipped.append(f"{item.what}: a query answered otherwise than in the run")
            continue
        if trial.held is not None:
            waits.append(trial.held_ms)
        found.setdefault(item.what, []).append((item, trial))
    waits.sort()
    here = subject.platform in (None, "cuda")  # elsewhere the host may wait at other calls
    results = tuple(_pair_result(what, done, here) for what, done in found.items())
    middle = waits[len(waits) // 2] if waits else None
    return AttackRow(*head, results, tuple(skipped), middle, None, time.perf_counter() - begin)


def _pair_result(what: str, done: list[tuple[Attack, Trial]], compare: bool) -> PairResult:
    unlike = 0
    held_at = first_wrong = None
    for item, trial in done:
        step = None if trial.held is None else item.plan.lines[trial.held].step
        # Where streams meet, calls that threads stay in are made late, by the one thread that makes all of them.
        unlike += compare and not item.plan.words and step != item.schedule.holds
        if trial.held is not None and held_at is None:
            line = item.plan.lines[trial.held]
            held_at = f"{line.op} in step {line.turn} of {line.thread}"
        if trial.wrong and first_wrong is None:
            first_wrong = explain(item.plan, trial.wrong[0])
    return PairResult(
        what, len(done), sum(t.held is not None for _, t in done), sum(t.device_held for _, t in done),
        sum(bool(t.wrong) for _, t in done), unlike, held_at, first_wrong,
        next((item.holds for item, _ in done if item.holds is not None), None),
    )  # fmt: skip
