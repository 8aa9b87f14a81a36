"""Replays and attacks as the command line offers them: the machine is opened here, rows become text, JSON and evidence."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from fencepost.errors import InputError
from fencepost.gpu_validate.files import Subject
from fencepost.gpu_validate.plan import Plan
from fencepost.gpu_validate.table import AttackRow, Row
from fencepost.width import columns

EVIDENCE_VERSION = 1


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """What opens a GPU: none there, no gates, and no memory left on it are bad input, in one line."""
    from fencepost.gpu_validate.device import NoGpu, out_of_memory
    from fencepost.gpu_validate.gates import NoGates

    try:
        yield
    except (NoGpu, NoGates) as error:
        raise InputError(str(error)) from None
    except RuntimeError as error:
        text = out_of_memory(error)
        if text is None:
            raise
        raise InputError(text) from None


class Machine:
    """An open GPU, or the emulated one of a dry run. To be used in a `with` block."""

    def __init__(self, dry: bool, gate: str = "auto", watchdog_ms: float = 20.0) -> None:
        self.dry, self.gate, self.limit = dry, gate, watchdog_ms / 1e3
        self.device: Any = None

    def __enter__(self) -> Machine:
        if not self.dry:
            # Gated streams need hardware queues of their own (S115, S118). Read when CUDA starts (S114).
            os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
            from fencepost.gpu_validate.device import Device, torch_or_error
            from fencepost.gpu_validate.gates import make

            with usable():
                torch_or_error()
                self.device = Device(make(self.gate), self.limit)
        return self

    def __exit__(self, *_: object) -> None:
        if self.device is not None:
            self.device.close()

    def make(self, plan: Plan) -> Any:
        """A plan ready to run."""
        if self.device is None:
            from fencepost.gpu_validate.emulated import EmulatedRun

            return EmulatedRun(plan)
        from fencepost.gpu_validate.torchrun import TorchRun

        return TorchRun(self.device, plan)

    def about(self) -> dict[str, Any]:
        """What an evidence file says about the machine."""
        if self.device is None:
            return {"devices": ["none: emulated, which shows what the plan does and measures nothing"]}
        from fencepost.gpu_validate.files import machine

        return machine(self.device.gates.name, self.limit)


def evidence(machine: Machine, kind: str, rows: Sequence[Any], seconds: float, **more: Any) -> bytes:
    """The evidence file: machine, date, versions, and every row with its design's hash and counts."""
    content = {
        "fencepost_evidence": EVIDENCE_VERSION, "kind": kind, "fencepost": version(), "machine": machine.about(),
        "seconds": round(seconds, 1), **more, "rows": [msgspec.to_builtins(row) for row in rows],
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(content), indent=1)


def version() -> str:
    """The installed version, or "unknown" where the package runs from a copied folder."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("fencepost")
    except PackageNotFoundError:
        return "unknown"


def plan_all(subjects: Sequence[Subject], jobs: int | None) -> Iterator[tuple[Subject, Any]]:
    """The attacks on each subject, planned by worker processes (started before any GPU is opened)."""
    from fencepost.gpu_validate.table import plan_attacks

    workers = min(len(subjects), jobs or os.cpu_count() or 1)
    if workers <= 1:
        for subject in subjects:
            yield subject, plan_attacks(subject)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    with ProcessPoolExecutor(workers, multiprocessing.get_context(method)) as pool:
        yield from zip(subjects, pool.map(plan_attacks, subjects), strict=True)


def simulated(subject: Subject) -> str:
    """What the simulated machine, which shares no code with the emulated GPU, finds of a counterexample's design."""
    from fencepost.engines import Question, ask
    from fencepost.model.answer import REFUTED

    try:
        answer = ask(subject.program, Question("simulate", platform=subject.platform, budget=20.0, explain=False))
    except InputError as error:
        return f"not asked ({error})"
    found = ", ".join(hazard.name for hazard in answer.hazards)
    return f"a wrong value, too ({found})" if answer.verdict == REFUTED else f"{answer.verdict}: {answer.reason or ''}"


# ------------------------------------------------------------ text


def replay_text(row: Row) -> Iterator[str]:
    """One counterexample with its arms, for a reader at a terminal."""
    yield f"{row.design} [{row.variant}]" if row.variant else row.design
    if row.hazard:
        yield f"  hazard {row.hazard}" + (f"; fixed design: {row.fixed_variant}" if row.fixed_variant else "; no fixed design named")
    if row.error is not None:
        yield f"  not replayed: {row.error}"
        return
    for arm in row.arms:
        text = f"  {arm.name:<13} {arm.wrong:>4} of {arm.trials:<4} wrong  ({arm.low:.1%} to {arm.high:.1%})"
        yield text + _waits(arm)
    for arm in row.arms:
        if arm.first_wrong:
            yield from _wrapped(f"  first wrong value, {arm.name}: {arm.first_wrong}")
    held = next((arm.held_at for arm in row.arms if arm.held_at), None)
    if held is not None:
        same = "as the model says" if held == row.model_holds else f"the model says {row.model_holds or 'nowhere'}"
        yield f"  the host waited at {held} ({same})"
    for note in row.notes:
        yield f"  note: {note}"


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, min(120, columns()), subsequent_indent="      ", break_long_words=False, break_on_hyphens=False)


def _waits(arm: Any) -> str:
    if arm.held:
        return f"  host held {arm.held}" + (f", {arm.held_ms:.1f} ms" if arm.held_ms else "")
    if arm.device_held:
        return f"  stream held {arm.device_held}"
    return f"  {arm.diverged} not this run" if arm.diverged else ""


def replay_table(rows: Sequence[Row]) -> Iterator[str]:
    """Many counterexamples, one line each."""
    yield f"{'design':<46} {'ungated':>9} {'gated':>9} {'fixed':>9}  host"
    for row in rows:
        name = f"{row.design} [{row.variant}]"
        name = name if len(name) <= 46 else name[:45] + "…"
        if row.error is not None:
            yield f"{name:<46} {row.error}"
            continue
        cells = {arm.name: f"{arm.wrong}/{arm.trials}" for arm in row.arms}
        fixed = next((arm for arm in row.arms if arm.name == "gated, fixed"), None)
        held = f"about {row.platform}" if row.platform else "" if fixed is None else "held" if fixed.held else "stream held" if fixed.device_held else "free"
        yield f"{name:<46} {cells.get('ungated', '-'):>9} {cells.get('gated', '-'):>9} {cells.get('gated, fixed', '-'):>9}  {held}"


def attack_text(row: AttackRow, verbose: bool) -> Iterator[str]:
    """One proved design under attack."""
    name = f"{row.design} [{row.variant}]" if row.variant else row.design
    held = sum(pair.held for pair in row.pairs)
    device = sum(pair.device_held for pair in row.pairs)
    unlike = sum(pair.unlike for pair in row.pairs)
    text = f"{name}: {len(row.pairs)} pairs, {row.gates} gates, {row.wrong} wrong; host held {held}, stream held {device}"
    yield text + (f", median {row.held_ms:.1f} ms" if row.held_ms is not None else "")
    if unlike:
        yield f"  {unlike} times the host waited elsewhere than the model says"
    for pair in row.pairs:
        if pair.wrong or verbose or pair.unlike:
            where = f"; host waits at {pair.held_at}" if pair.held_at else ""
            yield f"  {pair.what}: {pair.wrong} of {pair.gates} wrong{where}"
            if pair.unlike:
                yield f"    the model says: {pair.model_holds or 'nowhere'}"
        if pair.first_wrong:
            yield f"    WRONG PROOF: {pair.first_wrong}"
            yield f"    the edge that did not hold is the one at {pair.model_holds or 'no host step: an order on the device or of the allocator'}"
    for text in row.skipped if verbose else row.skipped[:3]:
        yield f"  not attacked: {text}"
    if row.error:
        yield f"  {row.error}"


def finish(rows: Sequence[Any], write: str | None, content: Callable[[], bytes]) -> None:
    """Write the evidence file, if one is asked for."""
    if write is None:
        return
    try:
        with open(write, "wb") as stream:
            stream.write(content())
    except OSError as error:
        raise InputError(f"{write}: cannot write the evidence file ({error.strerror})") from None
