"""Random designs of ranks that meet: runs of the machine on the concrete event structure."""

from __future__ import annotations

import random
from typing import NamedTuple

from fencepost.model import events
from fencepost.model import program as p
from fencepost.simulate import hazard_of
from fencepost.simulator.machine import Hardware, Machine
from fencepost.simulator.machine_script import Random

from random_oracle import World


def expected(program: p.Program, error: str) -> bool:
    """Runs of the machine that the event structure refuses by what it is.

    It takes a call that waits and its return for one instant, so that another thread's query in between cannot say "no".
    """
    waiting = (p.EventSync, p.StreamSync, p.DeviceSync, p.Item, p.Copy)
    operations = [getattr(n, "operation", None) or getattr(n, "question", None) for t in program.threads for n in t.nodes]
    return "the answer can only be yes" in error and len(program.threads) > 1 and any(isinstance(o, waiting) for o in operations)


class Runs(NamedTuple):
    """Runs with a wrong read, without an unordered pair, and blocked ones."""

    wrong: int
    clean: int
    blocked: int


def structured(program: p.Program, seed: int, world: World, runs: int = 12) -> Runs:
    """Play runs of the machine on the concrete event structure.

    Raises `Disagreement` where a wrong read has no hazard there, `events.InvalidRun` where it cannot be played.
    """
    platform, environment = world
    rng = random.Random(seed)
    hardware = Hardware(rng.choice((1, 2, 3)), rng.choice(("free", "direction", "serial"))) if rng.random() < 0.3 else None
    machine = Machine(program, platform, environment, None if environment.one_queue else hardware)
    wrong = clean = blocked = 0
    for k in range(runs):
        outcome = machine.run(Random(f"{seed}/{k}"), turns=4, limit=120)
        blocked += outcome.ended == "blocked"
        if outcome.wrong is not None:
            hazard_of(program, outcome, platform.name, environment.name)
            wrong += 1
            continue
        if outcome.fault is not None:
            continue
        try:
            structure = events.execute(program, outcome.run, platform=platform, environment=environment)
        except events.InvalidRun as error:
            if expected(program, str(error)):
                continue
            raise
        clean += not events.conflicts(structure)
    return Runs(wrong, clean, blocked)
