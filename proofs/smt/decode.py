"""From a model to a run of the whole design, and its replay on the concrete event structure: shown only when it holds there."""

from __future__ import annotations

from typing import Any

import msgspec
from fencepost.model import answer as a
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.events.values import unread
from fencepost.model.platform import Environment, Platform
from fencepost.proofs.smt.core import Step
from fencepost.proofs.smt.encode import Encoder
from fencepost.proofs.smt.goals import Goal
from fencepost.proofs.smt.text import TRUE, Term

UNREAD = "nothing in the design reads these bytes"


class Shown(msgspec.Struct, frozen=True):
    """A replayed hazard with its run; `why` in words whether it changes a value."""

    hazard: a.Hazard
    run: a.Run
    why: str


def run_of(encoder: Encoder, model: dict[str, Any], goal: Goal) -> tuple[a.Run, dict[tuple[int, int, int], int]]:
    """The host steps in the order of their instants, up to the goal's accesses; and where each step is in the run."""

    def holds(literal: str) -> bool:
        if literal.startswith("(not "):
            return not model.get(literal[5:-1], False)
        return literal == TRUE or bool(model.get(literal, False))

    def value(term: Term) -> int:
        return int(model.get(term.name, 0)) + term.offset

    zero = int(model.get("zero", 0))
    live: list[tuple[int, int, int, Step]] = []
    last: dict[int, int] = {}
    for step in encoder.steps:
        if holds(step.live):
            if step.c is not None:
                last[step.thread] = value(step.c)
            setup = 0 if encoder.is_setup(step.thread) else 1
            live.append((setup, last.get(step.thread, zero), step.thread, step))
    live.sort(key=lambda one: (one[0], one[1], one[2], one[3].seq))
    ends = [step for step in (goal.first, goal.second) if step is not None]
    stop = max(n for n, one in enumerate(live) if one[3] in ends)
    steps, where = [], {}
    for n, (_, _, _, step) in enumerate(live[: stop + 1]):
        answer = next((answer for answer, literal in step.answers if holds(literal)), None)
        block = None
        node = step.node
        if isinstance(node, p.Do) and isinstance(node.operation, p.Take):
            block = next((token for token, literal in _tokens(encoder, step, node.operation.pool) if holds(literal)), None)
        if goal.blocks is not None and step.key in goal.blocks:
            block = 0
        where[step.key] = n
        steps.append(a.Step(step.thread, step.at, answer, block))
    return a.Run(tuple(steps)), where


def _tokens(encoder: Encoder, step: Step, pool: int) -> list[tuple[int, str]]:
    """The tokens that a take may get, each with its literal."""
    found: list[tuple[int, str]] = []
    for key, ops in encoder.ops.items():
        if isinstance(key, tuple) and key[:2] == ("take", pool):
            found += [(key[2], op.live) for op in ops if op.step is step]
    return found


def replay(
    program: p.Program, run: a.Run, where: dict[tuple[int, int, int], int], goal: Goal, platform: Platform, environment: Environment
) -> Shown | str:
    """Judge the goal on the concrete event structure; a string says what does not hold there.

    Raises `events.DesignError` when the run gets from an empty cell.
    """
    try:
        structure = events.execute(program, run, platform=platform, environment=environment)
    except events.DesignError:
        raise
    except events.InvalidRun as error:
        return f"the decoded run cannot be played: {error}"
    if not events.feasible(structure):
        return "the decoded run has query answers that are impossible together"
    second = where[goal.second.key]
    if goal.kind == "undefined":
        found = [u for u in events.undefined_reads(structure) if structure.nodes[structure.accesses[u].node].step == second]
        if not found:
            return "the replay reads nothing undefined there"
        return Shown(events.undefined_hazard(structure, found[-1]), run, "")
    assert goal.first is not None
    wanted = {(where[goal.first.key], goal.writes[0]), (second, goal.writes[1])}

    def end(access: int) -> tuple[int, bool]:
        made, touched = structure.accesses[access]
        return structure.nodes[made].step, touched.write

    pairs = [(i, j) for i, j in events.conflicts(structure) if {end(i), end(j)} == wanted]
    if not pairs:
        return "the replay orders the two accesses"
    judged = []
    for pair in pairs:
        changes, why = events.value_change(structure, *pair)
        longer = run
        if changes is False and unread(structure, *pair):
            why = UNREAD  # of whatever run, and not of this one alone
        if changes is None:
            from fencepost.proofs.judge import prolong

            longer, changes, why = prolong(program, run, pair, platform, environment)
        hazard = msgspec.structs.replace(events.hazard_of(structure, *pair), value_changing=changes)
        judged.append(Shown(hazard, longer, why))
    return max(judged, key=lambda one: (one.hazard.value_changing is True, one.hazard.value_changing is None))


def shortened(
    program: p.Program, shown: Shown, platform: Platform, environment: Environment
) -> Shown:
    """Fewer host steps with the same hazard: each thread stops as early as it can."""
    best = shown
    for thread in range(len(program.threads)):
        while True:
            smaller = _without_last(best, thread)
            if smaller is None:
                break
            judged = _same_hazard(program, smaller, best, platform, environment)
            if judged is None:
                break
            best = judged
    return best


def _without_last(shown: Shown, thread: int) -> a.Run | None:
    """The run without the thread's last step; None when that step is one of the hazard's."""
    ends = [one.index for one in (shown.hazard.first, shown.hazard.second) if one is not None]
    for n in range(len(shown.run.steps) - 1, -1, -1):
        if shown.run.steps[n].thread == thread:
            if n in ends:
                return None
            return a.Run((*shown.run.steps[:n], *shown.run.steps[n + 1 :]))
    return None


def _same_hazard(
    program: p.Program, run: a.Run, shown: Shown, platform: Platform, environment: Environment
) -> Shown | None:
    try:
        structure = events.execute(program, run, platform=platform, environment=environment)
    except events.InvalidRun:
        return None
    if not events.feasible(structure):
        return None
    was = shown.hazard
    if was.kind == "UNDEFINED":
        for u in events.undefined_reads(structure):
            hazard = events.undefined_hazard(structure, u)
            if _place(hazard) == _place(was):
                return Shown(hazard, run, shown.why)
        return None
    for pair in events.conflicts(structure):
        hazard = events.hazard_of(structure, *pair)
        if _place(hazard) == _place(was) and hazard.value_changing == was.value_changing:
            return Shown(hazard, run, shown.why)
    return None


def _place(hazard: a.Hazard) -> tuple[Any, ...]:
    """What stays the same when steps before an access fall away."""
    return (
        hazard.name,
        *((one.thread, one.operation, one.step, one.mode) for one in (hazard.first, hazard.second) if one is not None),
    )
