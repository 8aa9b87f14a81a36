"""From a path of the explorer to a run of the whole design, played step by step on concrete state.

The explorer's path fixes which thread moves and how open choices fall. Test answers follow the concrete state, so a
path that starts from a normal form (a queue that begins with dummies) finds its own way back: steps that the concrete
run does not take are passed over until both are at the same node again.
"""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events import InvalidRun, Player
from fencepost.model.platform import Environment, Platform

Path = tuple[tuple[int, int, "str | None", bool], ...]


def complete(program: p.Program, path: Path, platform: Platform, environment: Environment) -> Run | None:
    """The run of the whole design along `path`, or None when it cannot be played."""
    player = Player(program, platform, environment)
    steps: list[Step] = []
    skipping: set[int] = set()
    for thread, node, answer, got in path:
        if node < 0:
            skipping.discard(thread)
            continue
        if thread in skipping:
            if player.pc(thread) != node:
                continue
            skipping.discard(thread)
        if player.pc(thread) != node:
            return None
        step = Step(thread, node, answer, 0 if got else None)
        if answer is not None:
            possible = player.possible_answers(thread)
            if answer not in possible:
                if len(possible) != 1:
                    return None
                step = Step(thread, node, possible[0])
                skipping.add(thread)
        try:
            player.step(step)
        except InvalidRun:
            return None
        steps.append(step)
    return Run(tuple(steps))
