"""Random designs: what else looks at them beside explorer and machine, each compared with what was decided.

`CHECKS` are comparisons of their own; each takes a `Case` and returns what disagrees, or None, and counts what it saw.
"""

from __future__ import annotations

import collections
import linecache
import random
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events.structure import Structure
from fencepost.model.language.errors import DesignWarning
from fencepost.model.platform import BARE, PLATFORMS
from fencepost.proofs.certificates.invariant import Limits, TooLarge
from fencepost.proofs.certificates.world import Unsupported
from fencepost.proofs.certificates.writing import hazard
from fencepost.proofs.liveness.search import Hang
from fencepost.proofs.liveness.search import search as liveness
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import Random
from fencepost.simulator.random_designs_text import features_of

import oracle
from meeting_compare import structured
from random_compare import PROVED, REFUTED, Decided, Result, compare
from random_compare import small as smaller
from random_oracle import World, block_choices, random_run
from smt_agreement import disagreement
from walker import Walker

Count = collections.Counter


class Case(NamedTuple):
    """A design with what the explorer decided. `text` is its source."""

    text: str
    program: p.Program
    seed: int
    world: World
    decided: Decided


Hazards = set[tuple[str, frozenset[tuple[int, int]]]]
"""(object, the places of the two accesses in the text). Which accesses of two operations that both read and write give the
hazard its kind is no difference; nor is who is called the first owner of a block, or the slot of a ring."""


def _place(program: p.Program, thread: int, node: int) -> tuple[int, int]:
    site = program.threads[thread].nodes[node].site
    return (thread, node if site < 0 else -1 - site)


def hazards_of(player: events.Player, done: list[Step]) -> Hazards:
    """Everything that is wrong in a played run: hazards that change a value, undefined reads."""
    structure = Structure(player, Run(tuple(done)))
    undefined, pairs = events.undefined_reads(structure), events.conflicts(structure)
    if not undefined and not pairs:
        return set()
    if not events.feasible(structure):
        return set()
    found: Hazards = set()
    for accesses in [(one,) for one in undefined] + [pair for pair in pairs[:40] if events.value_change(structure, *pair)[0]]:
        places = set()
        for access in accesses:
            made = structure.nodes[structure.accesses[access].node]
            places.add(_place(structure.program, made.thread, structure.run.steps[made.step].node))
        touched = structure.accesses[accesses[0]].touched
        name = "a block" if touched.tenant is not None else structure.program.objects[touched.key.id].name
        found.add((name, frozenset(places)))
    return found


def _told(program: p.Program, decided: Decided) -> Hazards:
    """The hazards that the explorer replayed and that change a value."""
    told: Hazards = set()
    for one in decided.judged:
        if one.hazard.value_changing:
            ends = [one.found.second] if one.found.kind == "UNDEFINED" else [one.found.first, one.found.second]
            name = "a block" if one.location.kind == "block" else program.objects[one.location.id or 0].name
            told.add((name, frozenset(_place(program, *end) for end in ends if end is not None)))
    return told


def untold(found: Hazards, case: Case) -> Hazards:
    """What was found and not told. A path of the search ends at the first hazard of the access that it guessed, so behind a pair
    that was told others with one of its accesses may be left out, and behind an undefined read of blocks others of blocks."""
    told = _told(case.program, case.decided)
    undefined = any(len(places) == 1 for name, places in told if name == "a block")
    return {
        (name, places)
        for name, places in found
        if not any(name == other and places & its for other, its in told) and not (name == "a block" and undefined)
    }


def _complete(case: Case) -> bool:
    """Whether the explorer has looked at everything."""
    return case.decided.word == PROVED or (case.decided.word == REFUTED and bool(case.decided.pairs))


def in_events(case: Case, count: Count[str], runs: int = 15, steps: int = 45) -> str | None:
    """Random runs of the concrete event structure: nothing is wrong in a proved design, and what is wrong elsewhere was told."""
    if not _complete(case):
        return None
    rng = random.Random(f"events {case.seed}")
    for k in range(runs):
        try:
            player, done = random_run(case.program, rng, steps if k % 3 else steps // 2, case.world)
        except events.InvalidRun:
            continue
        found = hazards_of(player, done)
        count["runs of the event structure"] += 1
        count["runs of the event structure with a hazard"] += bool(found)
        if untold(found, case):
            told = _told(case.program, case.decided)
            return f"{case.decided.word.upper()}, but a run of the event structure has {_list(untold(found, case))}; told: {_list(told)}"
    return None


def in_all_short_runs(case: Case, count: Count[str], nodes: int = 14, depth: int = 16, limit: int = 1500) -> str | None:
    """All runs of a small design: the hazards are those that were told, when there are no more runs than `limit`."""
    if not _complete(case) or sum(len(thread.nodes) for thread in case.program.threads) > nodes:
        return None
    found, whole = every_hazard(case.program, depth, limit, case.world)
    count["designs with all short runs played"] += whole
    told = _told(case.program, case.decided)
    if untold(found, case):
        return f"{case.decided.word.upper()}, but a short run has {_list(untold(found, case))}; told: {_list(told)}"
    ends = all(thread.kind != "loop" for thread in case.program.threads)
    if whole and ends and told - found:
        return f"{case.decided.word.upper()} with {_list(told - found)}, which no run of the event structure has"
    return None


def steps_of(player: events.Player, t: int, label: int) -> list[Step]:
    """The steps that a thread can make next; `label` is for memory that nobody had before."""
    node, pc = player.node(t), player.pc(t)
    if isinstance(node, p.Ask):
        return [Step(t, pc, answer) for answer in player.possible_answers(t)]
    if isinstance(node.operation, (p.Alloc, p.Take)):
        free, fresh = block_choices(player, t)
        return [Step(t, pc, None, b) for b in (*free, *((label,) if fresh else ()))]
    return [Step(t, pc)]


def every_hazard(program: p.Program, depth: int, limit: int, world: World) -> tuple[Hazards, bool]:
    """What is wrong in the runs of at most `depth` steps, and whether these were all runs."""
    found: Hazards = set()
    stack: list[tuple[events.Player, list[Step]]] = [(events.Player(program, *world), [])]
    whole = True
    while stack:
        player, done = stack.pop()
        options: list[Step] = []
        for t in range(len(program.threads)):
            if not player.enabled(t):
                continue
            options += steps_of(player, t, len(done))
        options += player.device_steps()
        if not options or len(done) == depth:
            whole = whole and not options
            limit -= 1
            found |= hazards_of(player, done)
            if not limit:
                return found, False
            continue
        for step in options:
            after = player.copy()
            try:
                after.step(step)
            except events.InvalidRun:
                continue
            stack.append((after, [*done, step]))
    return found, whole


def by_certificates(case: Case, count: Count[str], states: int = 1500, seconds: float = 8.0) -> str | None:
    """The relation of the certificates, as an engine of its own."""
    platform, environment = case.world
    if environment != BARE or case.decided.word not in (PROVED, REFUTED):
        return None
    if case.decided.word == PROVED and any(one.hazard.value_changing is False for one in case.decided.judged):
        return None  # notes of pairs that change no value
    try:
        found = hazard(case.program, platform, Limits(states, seconds))
    except TooLarge:
        count["certificate too large"] += 1
        return None
    except Unsupported:
        count["certificate refuses by name"] += 1
        return None
    count["compared with the certificates' relation"] += 1
    if (found is None) == (case.decided.word == PROVED):
        return None
    return f"{case.decided.word.upper()}, but the certificates' relation has {'no hazard' if found is None else found[0]}"


def by_smt(case: Case, count: Count[str], turns: int = 2) -> str | None:
    """The bounded SMT engine, where it applies."""
    from fencepost.model.operations.meetings import first_meeting

    if case.world[1] != BARE or case.world[0].name != "cuda" or case.decided.word not in (PROVED, REFUTED):
        return None
    if first_meeting(case.program) is not None:
        count["SMT refuses by name"] += 1
        return None
    what, wrong = disagreement(case.program, turns)
    if "not encoded for SMT" in (wrong or ""):
        count["SMT refuses by name"] += 1
        return None
    count[f"SMT: {what}"] += 1
    return wrong and f"SMT: {wrong}"


def by_hangs(case: Case, count: Count[str], runs: int = 12) -> str | None:
    """A run of the machine in which somebody waits for ever is a hang that liveness finds."""
    if case.world[1] != BARE:
        return None
    found = liveness(case.program, 2_000)
    machine = Machine(case.program, *case.world)
    count["hangs"] += found.hang is not None
    ends = None if found.hang is None else goes_on(case.program, found.hang, case.seed)
    if ends is not None:
        return f"liveness finds a hang, but {ends}"
    for k in range(runs):
        outcome = machine.run(Random(f"hang {case.seed} {k}"), turns=4, limit=250, stop=False)
        if outcome.ended != "blocked":
            continue
        count["machine runs that halt"] += 1
        if found.hang is None and found.bounded is None:
            return f"liveness finds no hang, but in a run of the machine {outcome.waiting} wait for ever"
        return None
    return None


def goes_on(program: p.Program, hang: Hang, seed: int, tries: int = 8, steps: int = 60) -> str | None:
    """Which of a hang's threads does not wait at the end of its run, or goes on in some run that continues it on the event structure."""
    world = (PLATFORMS["cuda-synchronising-free"], BARE)  # a free may wait, and here it does
    waiters = [one for one in hang.waiters if one.thread < len(program.threads)]
    for k in range(tries):
        rng = random.Random(f"{seed} {k}")
        player = events.Player(program, *world)
        try:
            player.play(hang.run)
        except events.DesignError:
            return None  # behind a get from an empty cell, which is what is told
        for one in waiters:
            if player.pc(one.thread) == one.node and player.enabled(one.thread):
                player.step(Step(one.thread, one.node))  # the call that waits for device work
                if one.thread not in player.inside:
                    return f"{program.threads[one.thread].name} does not wait at the end of its run"
        for step in range(steps):
            for one in waiters:
                if player.enabled(one.thread) or (player.pc(one.thread) != one.node and one.thread not in player.inside):
                    return f"{program.threads[one.thread].name} goes on {step} steps behind its run"
            options: list[Step] = list(player.device_steps())
            for t in range(len(program.threads)):
                if not player.finished(t) and player.enabled(t):
                    options += steps_of(player, t, len(hang.run.steps) + step)
            if not options:
                break
            try:
                player.step(rng.choice(options))
            except events.DesignError:
                break  # a get from an empty cell
    return None


def in_structure(case: Case, count: Count[str], runs: int = 8) -> str | None:
    """Each wrong read of the machine has a hazard in its run, and each run is one of the event structure."""
    seen = structured(case.program, case.seed, case.world, runs)
    count["machine runs on the event structure"] += seen.wrong + seen.clean
    return None


def of_one_kind(case: Case, count: Count[str]) -> str | None:
    """The kind that the search gives a hazard, and that under which it is told, are kinds that the two operations have in its run."""
    for one in case.decided.judged:
        found, hazard = one.found, one.hazard
        if found.kind == "UNDEFINED" or hazard.kind == "UNDEFINED":
            if found.kind != hazard.kind:
                return f"the search says {found.kind}, and {hazard.name} is told"
            continue
        player = events.Player(case.program, *case.world)
        player.play(one.run)
        structure = Structure(player, one.run)
        ends = {found.first: "first", found.second: "second"}
        kinds: set[str] = set()
        for pair in events.conflicts(structure):
            made = [structure.nodes[structure.accesses[k].node] for k in sorted(pair)]
            places = [(node.thread, one.run.steps[node.step].node) for node in made]
            if set(places) == set(ends):
                letters = ["W" if structure.accesses[k].touched.write else "R" for k in sorted(pair)]
                kinds.add(f"{letters[1]}A{letters[0]}")
                if places != [found.first, found.second] and len(ends) == 2:
                    kinds.add(f"{letters[0]}A{letters[1]}")  # what one step lets go on may run in either order
        count["kinds of hazards"] += 1
        kind = hazard.kind if found.kind == "same bytes" else f"{found.kind[1]}A{found.kind[0]}"
        if not {hazard.kind, kind} <= kinds:
            return f"the search says {kind}, told is {hazard.name}, and the run has {sorted(kinds)} at {sorted(map(str, ends))}"
    return None


def in_plain_python(case: Case, count: Count[str], seeds: int = 3, turns: int = 4) -> str | None:
    """The bodies run as plain Python do what the traced program does."""
    features = set(features_of(case.text))
    if {"several threads", "cursor"} <= features:
        return None  # Python takes an index where it is written, the program where it is used
    if "stream of several threads" in features:
        return None  # which calls are several operations: not in the oracle
    if "waiters=2" in case.text:
        return None  # which place a thread waits at is named in the order of the text there
    setups = [thread.name for thread in case.program.threads if thread.kind == "setup"]
    name = "<random design in plain Python>"
    linecache.cache[name] = (len(case.text), None, case.text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": name}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DesignWarning)
            exec(compile(case.text, name, "exec"), namespace)
            for seed in range(seeds):
                walker = Walker(case.program)
                names: dict[str, str] = {}
                for number, entry in enumerate(oracle.run(namespace["design"], {}, seed, turns)):
                    if entry[0].startswith("setup") and entry[0] not in names:
                        if entry[1] == "end of turn":
                            continue  # what does nothing is no thread
                        names[entry[0]] = setups[len(names)]
                    try:
                        walker.follow(_renamed(entry, names))
                    except AssertionError as error:
                        return f"plain Python parts from the program at entry {number} of seed {seed}: {error}"
                count["runs of plain Python"] += 1
    finally:
        linecache.cache.pop(name, None)
    return None


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """With the names of threads replaced, also in those of values that they made."""
    if isinstance(value, tuple):
        return tuple(_renamed(one, names) for one in value)
    if isinstance(value, str) and (value.partition("#")[0] in names):
        head, mark, tail = value.partition("#")
        return names[head] + mark + tail
    return value


def examine(
    text: str, program: p.Program, seed: int, count: Count[str] | None = None, *, checks: Iterable[str] = (), states: int = 800,
    runs: int = 20, sliced: float = 0.3, world: World | None = None,
) -> Result:  # fmt: skip
    """`compare`, and then these of the `CHECKS`, up to the first that disagrees."""
    count = Count() if count is None else count
    result = compare(program, seed, count, runs=runs, states=states, sliced=sliced, world=world)
    for name in checks:
        if result.wrong is not None:
            break
        wrong = CHECKS[name](Case(text, program, seed, result.world, result.decided), count)
        result = result._replace(wrong=wrong and f"{name}: {wrong}")
    return result


def small(text: str, seed: int, result: Result) -> str:
    """The text without the lines that the disagreement does not need."""
    from fencepost.simulator.random_designs import minimise, trace

    assert result.wrong is not None
    name, colon, _ = result.wrong.partition(": ")
    if name not in CHECKS or not colon:
        return smaller(text, seed, result.wrong, result.world)

    def still(candidate: str) -> bool:
        try:
            got = examine(candidate, trace(candidate), seed, checks=[name], sliced=0.0, world=result.world)
        except Exception:
            return False
        return got.wrong is not None and got.wrong.startswith(f"{name}: ")

    return minimise(text, still)


CHECKS: dict[str, Callable[[Case, Count[str]], str | None]] = {
    "events": in_events, "all short runs": in_all_short_runs, "certificates": by_certificates, "SMT": by_smt, "hangs": by_hangs,
    "structure": in_structure, "plain Python": in_plain_python, "kinds": of_one_kind,
}  # fmt: skip


def _list(hazards: Hazards) -> str:
    return ", ".join(f"{name} at {sorted(places)}" for name, places in sorted(hazards, key=str)) or "nothing"
