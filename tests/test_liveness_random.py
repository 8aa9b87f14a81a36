"""Random programs: hangs against concrete runs, and the reduced program against the whole one."""

from __future__ import annotations

import random

import pytest
from fencepost.model import program as p
from fencepost.model.answer import Step
from fencepost.model.events import Player
from fencepost.proofs.liveness.reduce import reduced
from fencepost.proofs.liveness.search import Hang, _search, search

from random_programs import generate

LIMIT = 3_000
STEPS = 120


def replayed(program: p.Program, hang: Hang) -> bool:
    """Play the hang's run; whether every waiter waits at its end."""
    player = Player(program)
    player.play(hang.run)
    return all(player.pc(w.thread) == w.node and not player.enabled(w.thread) for w in hang.waiters)


def stuck_by_chance(program: p.Program, rng: random.Random) -> bool:
    """Whether a random run ends where no thread can move although one has not ended."""
    player = Player(program)
    for _ in range(STEPS):
        able = [t for t in range(len(program.threads)) if not player.finished(t) and player.enabled(t)]
        if not able:
            return any(not player.finished(t) for t in range(len(program.threads)))
        thread = rng.choice(able)
        node = player.node(thread)
        answer = rng.choice(sorted(player.possible_answers(thread))) if isinstance(node, p.Ask) else None
        player.step(Step(thread, player.pc(thread), answer))
    return False


@pytest.mark.parametrize("block", range(8))
def test_hangs_are_real_and_none_is_missed(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        program = generate(random.Random(seed))
        found = search(program, LIMIT)
        if found.hang is not None:
            assert replayed(program, found.hang), seed
        elif found.bounded is None:
            for run in range(6):
                assert not stuck_by_chance(program, random.Random(1000 * seed + run)), seed


@pytest.mark.parametrize("block", range(4))
def test_the_reduced_program_hangs_iff_the_program_does(block: int) -> None:
    for seed in range(5000 + block * 25, 5000 + block * 25 + 25):
        program = generate(random.Random(seed))
        whole, small = _search(program, LIMIT), _search(reduced(program), LIMIT)
        if whole.bounded is None and small.bounded is None:
            assert (whole.hang is None) == (small.hang is None), seed
