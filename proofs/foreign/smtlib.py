"""The bounded query of the SMT engine as an SMT-LIB file: any solver for integer difference logic can check it."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named
from fencepost.proofs.smt.encode import encode


def smtlib(program: p.Program, steps: int, *, environment: str | None = None, platform: str | None = None) -> str:
    """SMT-LIB 2.6 text: `sat` iff within `steps` turns per loop thread two conflicting accesses can overlap, a read is
    undefined or a get finds an empty cell. Raises `NotEncoded`, and `ValueError` on an unknown name."""
    encoder = encode(program, steps, platform_named(platform), environment_named(environment))
    goals = [
        f"; {goal.name}: {goal.kind} "
        + " and ".join(_step(program, step.thread, step.turn, step.at) for step in (goal.first, goal.second) if step)
        for goal in encoder.goals
    ]
    head = [
        f"; {program.name}: at most {steps} turns of every loop thread.",
        "; sat: a hazard, and the times of its run; unsat: none within these turns. c: instants of host steps, s and e:",
        "; starts and ends of device items. What the goals stand for is at the end.",
        "(set-logic QF_IDL)",
        "(set-option :produce-models true)",
    ]
    return "\n".join([*head, *encoder.text.lines, "(check-sat)", *goals]) + "\n"


def _step(program: p.Program, thread: int, turn: int, node: int) -> str:
    found = program.threads[thread].nodes[node]
    what = found.operation if isinstance(found, p.Do) else found.question
    name = getattr(what, "name", None) or type(what).__name__
    return f"{name} (thread {program.threads[thread].name}, turn {turn}, node {node})"
