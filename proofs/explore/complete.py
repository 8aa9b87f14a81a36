"""From a path of the explorer to a run of the whole design, played step by step on concrete state.

The explorer's path fixes which thread moves and how open choices fall. Test answers follow the concrete state, so a
path that starts from a normal form (a queue that begins with dummies) finds its own way back: steps that the concrete
run does not take are passed over until both are at the same node again.
"""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.effects import Effect
from fencepost.model.events import DesignError, InvalidRun, Player
from fencepost.model.platform import Environment, Platform
from fencepost.proofs.explore.search import DEVICE_STEP

Path = tuple[tuple[int, int, "str | None", bool], ...]
Lowered = dict[tuple[int, int], tuple[Effect, ...]]


def complete(
    program: p.Program, path: Path, platform: Platform, environment: Environment, lowered: Lowered | None = None
) -> tuple[Run, Player] | None:
    """The run of the whole design along `path` and the player that played it, or None when it cannot be played.

    `lowered`: the effects of the program's nodes, where they are known.
    """
    player = Player(program, platform, environment, lowered=lowered)
    steps: list[Step] = []
    skipping: set[int] = set()
    turn = [0] * len(program.threads)
    for thread, node, answer, got in path:
        if node == DEVICE_STEP:
            found = _device(program, player, thread)
            if found is None:
                return None
            player.step(found)
            steps.append(found)
            continue
        if node < 0:
            skipping.discard(thread)
            if not _finish(program, player, thread, turn[thread], steps):
                return None
            turn[thread] += 1
            continue
        if thread in skipping:
            if player.pc(thread) != node:
                continue
            skipping.discard(thread)
        if not _reach(program, player, thread, node, steps):
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
    return Run(tuple(steps)), player


def _device(program: p.Program, player: Player, stream: int) -> Step | None:
    """The step of the device that is possible in the stream of that number (all slots of all streams counted)."""
    slots = [
        (i, slot) for i, o in enumerate(program.objects) if isinstance(o, p.Stream) for slot in range(o.depth or 1)
    ]  # fmt: skip
    wanted = player.fifos[slots[stream]]
    return next((step for step in player.device_steps() if step.stream and player.fifos[step.stream] == wanted), None)


def _reach(program: p.Program, player: Player, thread: int, node: int, steps: list[Step]) -> bool:
    """Run the operations that the exploration passed over, up to `node`."""
    while player.pc(thread) != node:
        if not _passed_over(program, player, thread, steps):
            return False
    return True


def _finish(program: p.Program, player: Player, thread: int, turn: int, steps: list[Step]) -> bool:
    """Run what is left of the thread's turn, which the exploration passed over."""
    while not player.finished(thread) and player.turn(thread) == turn:
        if not _passed_over(program, player, thread, steps):
            return False
    return True


def _passed_over(program: p.Program, player: Player, thread: int, steps: list[Step]) -> bool:
    """Run the thread's next operation, if it is one and can run. Raises `DesignError` where the design must not take it."""
    at = player.pc(thread)
    if at < 0 or not isinstance(program.threads[thread].nodes[at], p.Do):
        return False
    step = Step(thread, at)
    try:
        player.step(step)
    except DesignError:
        raise
    except InvalidRun:
        return False
    steps.append(step)
    return True
