"""Random designs: the explorer against the operational machine, and against its own searches without slicing.

`compare` decides a program and asks the machine. What theory.md section 4 expects to differ is counted, anything else is
a disagreement: the text of the design is printed, made small, and kept as a test.
"""

from __future__ import annotations

import collections
import random
from typing import NamedTuple

import msgspec
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.platform import BARE, PLATFORMS
from fencepost.proofs.check import Checker
from fencepost.proofs.explore import certify
from fencepost.proofs.explore.compile import Unsupported
from fencepost.proofs.explore.complete import complete
from fencepost.proofs.explore.locations import locations
from fencepost.proofs.explore.search import Budget, OutOfBudget
from fencepost.proofs.judge import Judged
from fencepost.simulator.guide import Guide
from fencepost.simulator.machine import Machine, Outcome
from fencepost.simulator.machine_script import Random
from fencepost.simulator.search import Found, Search
from fencepost.simulator.search import World as Named

from random_oracle import BARE_CUDA, OUT_OF_BUDGET, Pairs, World, other_search, pairs_of, random_world

PROVED, REFUTED, UNKNOWN, FAULT = "proved", "refuted", "unknown", "design error"
BUDGET, UNSUPPORTED = "out of budget", "not supported"


class Decided(NamedTuple):
    """What the explorer says: a word, the replayed hazards, why it is open, all hazards by location."""

    word: str
    judged: list[Judged]
    reason: str
    pairs: dict[str, Pairs]
    fault: Run | None = None
    """Of a design error: the run of the event structure that has it."""


class Result(NamedTuple):
    """`wrong`: what disagrees, or None. `tries`: machine runs until the first hazard's wrong value."""

    word: str
    wrong: str | None
    tries: int | None
    world: World
    decided: Decided


def decide(program: p.Program, world: World, states: int = 1500, seconds: float = 20.0) -> Decided:
    """As `check`, without explanations and without the test whether a proof says anything."""
    checker = Checker(program, *world, Budget(states, seconds), False, (), False)
    word, reason = PROVED, ""
    try:
        checker._explore(None)
        for location in locations(program):
            checker._location(location)
    except events.DesignError as error:
        return Decided(FAULT, [], str(error), {}, _fault(program, checker, world))
    except OutOfBudget as error:
        word, reason = BUDGET, str(error)
    except Unsupported as error:
        word, reason = UNSUPPORTED, str(error)
    pairs = {repr(s.location): pairs_of(program, reach) for s, reach in checker.reached}
    if checker._refuting():
        return Decided(REFUTED, checker.judged, "", pairs if word == PROVED else {})
    if word != PROVED:
        return Decided(word, [], reason, {})
    if checker.unsure:
        return Decided(UNKNOWN, checker.judged, checker.unsure[0], pairs)
    for search, reach in checker.reached:
        certify.recompute(search, reach)
    return Decided(PROVED, checker.judged, "", pairs)


def _fault(program: p.Program, checker: Checker, world: World) -> Run | None:
    """The explorer's path to a get from an empty cell or a token given back twice, played on the event structure; None when it is no such run there."""
    search, reach = checker.reached[-1]
    found = next(one for one in reach.hazards if one.kind in ("EMPTY", "TWICE"))
    played = complete(program, found.steps[:-1], *world, search.setting.lowered)
    if played is None:
        return None
    run, player = played.run, played.player
    thread, node = found.second
    try:
        while player.pc(thread) != node:
            run = Run((*run.steps, Step(thread, player.pc(thread))))
            player.step(run.steps[-1])
        player.step(Step(thread, node))
    except events.DesignError:
        return Run((*run.steps, Step(thread, node)))
    except events.InvalidRun:
        return None
    return None


def faults(search: Quick, run: Run | None) -> bool:
    """Whether the machine, guided along the run, has a design error too."""
    if run is None:
        return False
    return search.machine.run(Guide(run, ()), turns=len(run.steps), limit=len(run.steps) + 50, stop=False).fault is not None


def suspects(one: Judged) -> tuple[tuple[int | None, int], ...]:
    """The steps of the hazard's two accesses in its run."""
    hazard = one.hazard
    first = None if hazard.first is None else hazard.first.index
    return ((first, hazard.second.index),)


class Quick(Search):
    """A search that keeps a run as it is: making it small is not what is compared here."""

    def keep(self, outcome: Outcome, turns: int, limit: int, seed: int, how: str) -> Found | None:
        """The run that was found."""
        return Found(outcome, self.world.replay(turns, limit, outcome.script, seed), "", self.examples, how)


def shows(search: Quick, one: Judged, seed: int, extra: int = 100) -> int | None:
    """Machine runs until a read is wrong, first along the hazard's run, then adversarial ones; None when none is."""
    before = search.examples
    found = search.guided(one.run, suspects(one), 60)
    if found is not None:
        return found.examples - before
    for k in range(extra):
        if search.machine.run(Random(f"{seed} {k}"), turns=8, limit=400).wrong is not None:
            return search.examples - before + k + 1
    return None


def failure(machine: Machine, seed: int, runs: int) -> str | None:
    """What goes wrong in one of so many adversarial runs."""
    for k in range(runs):
        outcome = machine.run(Random(f"{seed} {k}"), turns=6, limit=250)
        if outcome.wrong is not None:
            seen = outcome.wrong
            return f"{seen.kind} read of {seen.object} by {seen.agent} (adversarial run {k})"
    return None


def along(search: Quick, one: Judged) -> str | None:
    """What goes wrong when the machine is guided along an access-level hazard's run."""
    found = search.guided(one.run, suspects(one), 60)
    if found is None or found.outcome.wrong is None:
        return None
    return f"{found.outcome.wrong.kind} read of {found.outcome.wrong.object} along the run of {one.hazard.name}"


def compare(
    program: p.Program, seed: int, count: collections.Counter[str] | None = None, *, runs: int = 30, states: int = 1500,
    sliced: float = 0.4, world: World | None = None,
) -> Result:  # fmt: skip
    """Decide, ask the machine, and search again without slicing or without reduction in a part `sliced` of the cases."""
    count = collections.Counter() if count is None else count
    rng = random.Random(seed)
    world = _world(program, rng) if world is None else world
    found = decide(program, world, states)
    count[found.word] += 1
    search = Quick(program, Named(world[1].name, world[0].name))
    machine = search.machine
    wrong: str | None = None
    tries: int | None = None
    quiet = [one for one in found.judged if one.hazard.value_changing is False]
    loud = [one for one in found.judged if one.hazard.value_changing]
    if found.word == PROVED:
        bad = failure(machine, seed, runs) or next(filter(None, (along(search, one) for one in quiet)), None)
        count["proved with access-level notes"] += bool(quiet)
        if bad is not None:
            wrong = f"PROVED, but the machine shows a {bad}"
    elif found.word == REFUTED:
        for one in loud[:3]:
            count["value-changing hazards"] += 1
            mine = shows(search, one, seed)
            if mine is None and shows(Quick(roomy(program), search.world), one, seed) is not None:
                count["shown only where a wait that orders nothing holds nobody up"] += 1
                continue
            if mine is None:
                wrong = f"REFUTED with {one.hazard.name}, but the machine shows no wrong value"
                break
            tries = mine if tries is None else tries
            count["reproduced"] += 1
            count["reproduced by the first guided run"] += mine == 1
    elif found.word == UNKNOWN:
        count["unknown, and the machine shows a wrong value"] += failure(machine, seed, runs) is not None
    elif found.word == FAULT:
        if not faults(search, found.fault):
            wrong = f"DESIGN ERROR, but neither the event structure nor the machine has it along the explorer's path: {found.reason}"
        count["design errors on the machine, along the explorer's path"] += wrong is None
    if wrong is None and found.pairs and rng.random() < sliced:
        wrong = _other_searches(program, found, world, rng, count)
    return Result(found.word, wrong, tries, world, found)


def roomy(program: p.Program) -> p.Program:
    """With room in every channel, and in queues whose puts order nothing: who waits for room is held up, and no edge says so."""
    puts = {o.queue for t in program.threads for n in t.nodes if isinstance(o := getattr(n, "operation", None), p.Put) and not o.edge}
    objects = tuple(
        msgspec.structs.replace(o, capacity=None) if isinstance(o, p.Channel)
        else msgspec.structs.replace(o, capacity=o.capacity + 50) if isinstance(o, p.Queue) and i in puts
        else o
        for i, o in enumerate(program.objects)
    )  # fmt: skip
    return msgspec.structs.replace(program, objects=objects)


def _world(program: p.Program, rng: random.Random) -> World:
    """A random one; where there are frees that may wait, often the platform on which that orders something."""
    frees = any(isinstance(o := getattr(n, "operation", None), p.DeviceSync) and o.implied for t in program.threads for n in t.nodes)
    return (PLATFORMS["cuda-synchronising-free"], BARE) if frees and rng.random() < 0.3 else random_world(rng)


def _other_searches(
    program: p.Program, found: Decided, world: World, rng: random.Random, count: collections.Counter[str]
) -> str | None:
    sliced, reduce = rng.choice(((False, True), (False, True), (True, False)))
    wrong = other_search(program, found.pairs, sliced, reduce, world)
    if wrong == OUT_OF_BUDGET:
        count["other search out of budget"] += 1
        return None
    count["compared with the unsliced search" if not sliced else "compared with the unreduced search"] += 1
    return wrong


def report(text: str, world: World, wrong: str) -> str:
    """A disagreement with the text that reproduces it."""
    platform, environment = world
    where = "" if world == BARE_CUDA else f" (platform {platform.name}, environment {environment.name})"
    return f"{wrong}{where}\n\n{text}"


def small(text: str, seed: int, wrong: str, world: World) -> str:
    """The text without the lines that the disagreement does not need."""
    from fencepost.simulator.random_designs import minimise, trace

    head = wrong.split(",")[0].split(" with ")[0].split(" at ")[0]

    def still(candidate: str) -> bool:
        try:
            got = compare(trace(candidate), seed, runs=60, sliced=1.0 if "DIFFERS" in head else 0.0, world=world)
        except Exception:
            return False
        return got.wrong is not None and got.wrong.startswith(head)

    return minimise(text, still)
