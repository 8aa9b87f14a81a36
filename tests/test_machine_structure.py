"""Random runs of the machine on the concrete event structure: neither knows how the other works.

A wrong read has to have an unordered pair of accesses behind it, in a run that the event structure can play and calls
feasible; and a run without any such pair must not have gone wrong.
"""

from __future__ import annotations

import random

import pytest
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.platform import BARE, ENVIRONMENTS, PLATFORMS
from fencepost.simulate import hazard_of
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import Random

import random_programs

BLOCK = 25


def compare(seed: int, runs: int = 12) -> tuple[int, int]:
    """Runs with a wrong read, and runs without an unordered pair."""
    rng = random.Random(seed)
    program = random_programs.generate(rng)
    platform = PLATFORMS["cuda"] if rng.random() < 0.7 else rng.choice(list(PLATFORMS.values()))
    environment = BARE if rng.random() < 0.7 else rng.choice(list(ENVIRONMENTS.values()))
    try:
        machine = Machine(program, platform, environment)
    except ValueError:
        return 0, 0
    wrong = clean = 0
    for k in range(runs):
        outcome = machine.run(Random(f"{seed}/{k}"), turns=4, limit=120)
        if outcome.wrong is not None:
            hazard_of(program, outcome, platform.name, environment.name)  # raises `Disagreement`
            wrong += 1
            continue
        if outcome.fault is not None:
            continue
        structure = events.execute(program, outcome.run, platform=platform, environment=environment)
        clean += not events.conflicts(structure)
        if not waits(program):
            assert events.feasible(structure)
    return wrong, clean


def waits(program: p.Program) -> bool:
    """Whether a call may wait for the device while other threads go on. The event structure takes such a call and its
    return for one instant, and calls some runs infeasible that are not (the machine logs the call)."""
    waiting = (p.EventSync, p.StreamSync, p.DeviceSync, p.Item, p.Copy)
    found = any(isinstance(n, p.Do) and isinstance(n.operation, waiting) for t in program.threads for n in t.nodes)
    return found and len(program.threads) > 1


@pytest.mark.parametrize("block", range(6))
def test_wrong_reads_have_a_hazard_and_runs_are_feasible(block):
    counts = []
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        try:
            counts.append(compare(seed))
        except ValueError as error:
            assert "copies differently" in str(error), (seed, error)
    assert sum(w for w, _ in counts) > 10 and sum(c for _, c in counts) > 10
