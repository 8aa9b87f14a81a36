"""Comparing the bounded SMT engine with the explorer on one program: what they disagree about, in one line, or None."""

from __future__ import annotations

from fencepost.model import answer as a
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform
from fencepost.proofs.check import Checker
from fencepost.proofs.explore.search import Budget
from fencepost.proofs.smt.engine import check as bounded

DESIGN_ERROR = "design error"


def turns_of(program: p.Program, run: a.Run) -> int:
    """Most turns that a loop thread begins in the run: the bound at which the SMT engine sees it."""
    begun = [0] * len(program.threads)
    for step in run.steps:
        begun[step.thread] += step.node == program.threads[step.thread].entry
    loops = [n for n, thread in zip(begun, program.threads, strict=True) if thread.kind == "loop"]
    return max(loops, default=0)


def disagreement(program: p.Program, steps: int, seconds: float = 10.0, states: int = 120,
                 environment: str | None = None) -> tuple[str, str | None]:  # fmt: skip
    """(what happened, the disagreement): the explorer decides, the SMT engine is asked for as many turns as it needs."""
    try:
        # Safety alone: hangs are compared elsewhere, and looking for them would take most of the time.
        budget, env = Budget(states, 2.0), environment_named(environment)
        exact = Checker(program, platform(None), env, budget, False, (), False).answer()
    except events.DesignError:
        exact = None
    needed = turns_of(program, exact.run) if exact is not None and exact.run is not None else 0
    if needed > 3 * steps:
        return "longer than tried", None
    try:
        got = bounded(program, max(steps, needed), seconds=seconds, environment=environment)
    except events.DesignError:
        if exact is None:
            return DESIGN_ERROR, None
        if exact.verdict == a.UNKNOWN:
            return "explorer unknown", None
        return DESIGN_ERROR, f"SMT: a get from an empty cell; explorer: {exact.verdict}"
    if exact is None:
        # It may lie behind more turns than were tried, and a hazard may come first.
        return DESIGN_ERROR + ", not met", None
    if got.verdict == a.UNKNOWN:
        excused = "gave up" in (got.reason or "") or exact.verdict == a.UNKNOWN
        return f"smt unknown: {got.reason}"[:60], None if excused else f"SMT unknown: {got.reason}; explorer: {exact.verdict}"
    if exact.verdict == a.PROVED and got.verdict == a.REFUTED:
        return "wrong", f"explorer proved, SMT refuted: {got.hazards[0].name}"
    if exact.verdict == a.REFUTED and got.verdict == a.BOUNDED:
        return "wrong", f"explorer refuted within {needed} turns ({exact.hazards[0].name}), SMT bounded({got.bound})"
    return f"explorer {exact.verdict}, smt {got.verdict}", None
