"""A hazard of the explorer is told only after its run was replayed on the concrete event structure of the whole design."""

from __future__ import annotations

import msgspec
from fencepost.model import answer as a
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.events.parts import Key
from fencepost.model.events.values import UNKNOWN_PART
from fencepost.model.platform import Environment, Platform
from fencepost.proofs.explore.complete import Completions, Lowered, complete
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.search import Found


class Judged(msgspec.Struct, frozen=True):
    """A replayed hazard: its run, the turns it needs, and in words why it does or does not change a value."""

    hazard: a.Hazard
    found: Found
    location: Location
    run: a.Run
    turns: int
    why: str


def judge(
    program: p.Program, location: Location, found: Found, platform: Platform, environment: Environment,
    lowered: Lowered | None = None, completions: Completions | None = None,
) -> Judged | str:  # fmt: skip
    """Replay `found`; a string says why it could not be reproduced. `completions`: of several hazards of the program, this among them."""
    label = f"{location.label(program)}: {found.kind} between {found.first} and {found.second}"
    if completions is not None:
        played = completions.complete(found.steps)
    else:
        played = complete(program, found.steps, platform, environment, lowered)
    if played is None:
        return f"{label} was found, but its run could not be completed on the whole design"
    run, player, turns = played.run, played.player, len(played.begun)
    structure = events.Structure(player, run)
    if not events.feasible(structure):
        queries = sorted({_query(program, s) for s in run.steps} - {""})
        return f"{label} was found only in a run whose query answers are impossible together ({', '.join(queries)})"
    if found.kind == "UNDEFINED":
        undefined = sorted(set(events.undefined_reads(structure)) & set(_accesses(structure, found.second, location)))
        if not undefined:
            return f"{label} was found, but the replay reads nothing undefined there"
        return Judged(events.undefined_hazard(structure, undefined[-1]), found, location, run, turns, "")
    one, other = _accesses(structure, found.first, location), _accesses(structure, found.second, location)
    pair = _last_conflict(structure, one, other)
    if pair is None and player.meets:
        pair = _last_conflict(structure, other, one)  # what one step lets go on may run in either order here
    if pair is None:
        return f"{label} was found, but the replay on the whole design orders the two accesses"
    first, second = pair
    changes, why = events.value_change(structure, first, second)
    hazard = events.hazard_of(structure, first, second, (changes, why))
    if changes is None and why != UNKNOWN_PART:
        run, changes, why = prolong(program, run, (first, second), platform, environment)
    return Judged(msgspec.structs.replace(hazard, value_changing=changes), found, location, run, turns, why)


def changing(
    program: p.Program, location: Location, found: Found, platform: Platform, environment: Environment, lowered: Lowered
) -> a.Run | None:  # fmt: skip
    """The run along the path of `found`, where its two accesses change a value on the whole design."""
    try:
        played = complete(program, found.steps, platform, environment, lowered)
    except events.DesignError:
        return None
    return played.run if played is not None and _changes(played.player, played.run, location, found) else None


def shows(
    program: p.Program, run: a.Run, location: Location, found: Found, platform: Platform, environment: Environment, lowered: Lowered
) -> bool:  # fmt: skip
    """Whether `run` is one of `program`, into which one operation was put, and the accesses of `found` change a value there, too.

    `lowered`: effects of the nodes that both programs have; more are entered.
    """
    player = events.Player(program, platform, environment, lowered=lowered)
    steps: list[a.Step] = []
    try:
        for step in run.steps:
            if step.stream is None and player.pc(step.thread) != step.node:
                steps.append(a.Step(step.thread, player.pc(step.thread)))
                player.step(steps[-1])
            steps.append(step)
            player.step(step)
    except events.InvalidRun:
        return False
    return _changes(player, a.Run(tuple(steps)), location, found)


def _changes(player: events.Player, run: a.Run, location: Location, found: Found) -> bool:
    """Whether two accesses that are those of `found` are a hazard of a run that was played, and change a value."""
    structure = events.Structure(player, run)
    pair = _last_conflict(structure, _accesses(structure, found.first, location), _accesses(structure, found.second, location))
    return pair is not None and events.feasible(structure) and events.value_change(structure, *pair)[0] is True


def _query(program: p.Program, step: a.Step) -> str:
    node = program.threads[step.thread].nodes[step.node]
    if isinstance(node, p.Ask) and isinstance(node.question, (p.EventQuery, p.StreamQuery)):
        return f"{type(node.question).__name__} of thread {program.threads[step.thread].name!r}"
    return ""


def _accesses(structure: events.Structure, at: tuple[int, int] | None, location: Location) -> list[int]:
    """The accesses of the structure, in val order, that belong to (thread, node) and may touch the location."""
    if at is None:
        return []
    thread, node = at
    steps = structure.run.steps
    return [
        index
        for made, by in enumerate(structure.nodes)
        if by.thread == thread and steps[by.step].node == node
        for index in structure.of_node[made]
        if _may_touch(structure.accesses[index].touched.key, location)
    ]


def _may_touch(key: Key, location: Location) -> bool:
    return key.kind == location.kind and (location.kind == "block" or key.id == location.id)


def _last_conflict(structure: events.Structure, firsts: list[int], seconds: list[int]) -> tuple[int, int] | None:
    """The last pair of `events.conflicts` that is one of `firsts` and, later in val order, one of `seconds`."""
    pairs = ((i, j) for i in reversed(firsts) for j in reversed(seconds) if i < j)
    return next((pair for pair in pairs if events.conflicting(structure, *pair)), None)


EXTRA_STEPS = 400
"""Host steps by which a run is prolonged in search of a reader that tells two orders of writes apart."""


VARIED, TRIES = 4, 24
"""Questions whose answers are varied when a run is prolonged, and how many ways of going on are tried."""


def prolong(
    program: p.Program, run: a.Run, pair: tuple[int, int], platform: Platform, environment: Environment
) -> tuple[a.Run, bool | None, str]:
    """Go on with the run until some reader sees who won the race: all threads in turn and choices in rotation, and when that shows
    nothing, with other answers to the first questions, nearest first (a reader may stand behind one answer only)."""
    ways: list[tuple[int, ...]] = [()]
    outcome: tuple[bool | None, str] = (None, "no reader within the steps tried")
    for tried, way in enumerate(ways):  # which grows meanwhile
        given: list[tuple[int, int]] = []
        longer, changes, why = _go_on(program, run, pair, platform, environment, way, given)
        if changes is not None:
            return longer, changes, why
        outcome = outcome if tried else (changes, why)
        if tried + 1 == TRIES:
            break
        ways += [
            (*(taken for taken, _ in given[:k]), other)
            for k in range(len(way), min(len(given), VARIED))
            for other in range(given[k][1])
            if other != given[k][0]
        ]
    return run, *outcome


def _go_on(
    program: p.Program, run: a.Run, pair: tuple[int, int], platform: Platform, environment: Environment,
    answered: tuple[int, ...], given: list[tuple[int, int]],
) -> tuple[a.Run, bool | None, str]:
    """One way of going on. `answered`: answers to the first questions with a choice, by number; `given` gets (answer, number of
    answers) of each such question."""
    player = events.Player(program, platform, environment)
    player.play(run)
    steps = list(run.steps)
    outcome: tuple[bool | None, str] = (None, "no reader within the steps tried")
    turns, due = 0, 1
    ended = [player.turn(t) for t in range(len(program.threads))]
    while len(steps) < len(run.steps) + EXTRA_STEPS:
        while possible := player.device_steps():
            player.step(possible[0])
            steps.append(possible[0])
        movable = [t for t in range(len(program.threads)) if player.enabled(t)]
        if not movable:
            break
        t = min(movable, key=player.turn)
        while player.enabled(t):
            node = player.pc(t)
            answers = player.possible_answers(t)
            chosen = 0
            if len(answers) > 1:
                asked = len(given)
                chosen = answered[asked] % len(answers) if asked < len(answered) else asked % len(answers)
                given.append((chosen, len(answers)))
            step = a.Step(t, node, answers[chosen] if answers else None)
            try:
                player.step(step)
            except events.InvalidRun:
                return run, *outcome
            steps.append(step)
            if player.turn(t) != ended[t] or len(steps) >= len(run.steps) + EXTRA_STEPS:
                break
        ended[t] = player.turn(t)
        turns += 1
        last = len(steps) >= len(run.steps) + EXTRA_STEPS or not any(map(player.enabled, range(len(program.threads))))
        if turns < due and not last:
            continue  # asking after every turn would make the work grow with the square of the run
        due = max(turns + 1, turns * 5 // 4)
        longer = a.Run(tuple(steps))
        structure = events.execute(program, longer, platform=platform, environment=environment)
        outcome = events.value_change(structure, *pair)
        if outcome[0] is not None:
            return longer, *outcome
    return run, *outcome
