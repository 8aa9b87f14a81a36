"""The simulated machine as an engine: guided by the explorer's run, its wrong value told as an answer.

The machine (fencepost.simulator) and the explorer (fencepost.proofs) know nothing of each other: the explorer's run is
passed to the machine as data, and the machine's run is played on the concrete event structure (fencepost.model.events),
which names the hazard. Both ways round two engines have to agree, or the answer is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from fencepost.engines import MOST_STEPS, Question
from fencepost.errors import InputError
from fencepost.model.answer import REFUTED, UNKNOWN, Answer, Hazard
from fencepost.model.program import Program

if TYPE_CHECKING:
    from fencepost.simulator.machine import Outcome
    from fencepost.simulator.search import Found, Searched, World

EXAMPLES, STEPS = 500, 8
"""Runs that are tried, and turns of each loop in a run, when nothing else is asked for."""
EXPLORE_SECONDS = 20.0
"""For the explorer's run that guides the search."""


class Disagreement(RuntimeError):
    """The machine's wrong read has no hazard on the concrete event structure: one of the two engines is wrong."""


class Simulated(msgspec.Struct, frozen=True):
    """An answer with what the search came to."""

    answer: Answer
    searched: Searched


def simulate(program: Program, question: Question, progress: Callable[[str], None] | None = None,
             parameters: dict[str, Any] | None = None, guided: bool = True, timing: str | None = None) -> Simulated:  # fmt: skip
    """Search the machine's runs of `program`, or replay one. `parameters` go into the replay string.

    Raises `InputError` for a replay string that cannot be used, an unknown timing, or when Hypothesis is missing.
    """
    world = _world(question, parameters or {}, timing)
    from fencepost.simulator.machine_host import Unsupported

    try:
        searched = _searched(program, question, world, progress, guided)
    except Unsupported as error:
        return Simulated(Answer(program.name, UNKNOWN, engine="simulate", reason=str(error)), _nothing())
    return Simulated(_answer(program, question, searched), searched)


def _nothing() -> Searched:
    from fencepost.simulator.search import Searched

    return Searched(None, 0, 0)


def check_numbers(examples: int | None, steps: int | None) -> None:
    """Raises `InputError` for a number of runs or steps below 1, and for more steps than any engine is asked for."""
    for name, number in (("--examples", examples), ("--steps", steps)):
        if number is not None and number < 1:
            raise InputError(f"{name} {number}: at least 1")
    if steps is not None and steps > MOST_STEPS:
        raise InputError(f"--steps {steps}: at most {MOST_STEPS}")


def check_timing(timing: str | None) -> None:
    """Raises `InputError` for a timing that there is not."""
    from fencepost.simulator.machine_timing import PROFILES

    if timing is not None and timing not in PROFILES:
        raise InputError(f"no timing {timing!r}; there are: {', '.join(PROFILES)}")


def _world(question: Question, parameters: dict[str, Any], timing: str | None) -> World:
    from fencepost.simulator.search import World

    check_timing(timing)
    return World(question.environment, question.platform, None, timing, parameters)


def _searched(program: Program, question: Question, world: World, progress: Callable[[str], None] | None,
              guided: bool) -> Searched:  # fmt: skip
    from fencepost.simulator.machine_script import ReplayError
    from fencepost.simulator.search import Searched, replay, search, sentence

    if question.replay is not None:
        try:
            found = replay(program, question.replay)
        except ReplayError as error:
            raise InputError(f"--replay: {error}") from None
        faults = () if found.outcome.fault is None else (found.outcome.fault,)
        waiting = tuple(sentence(one) for one in found.outcome.waiting)
        return Searched(found, 1, found.outcome.operations, faults, tuple(found.outcome.blocked), waiting)
    examples = EXAMPLES if question.examples is None else question.examples
    turns = STEPS if question.steps is None else question.steps
    check_numbers(examples, turns)
    guide = _explored(program, question, progress) if guided else None
    try:
        return search(
            program, world, examples=examples, turns=turns, seed=question.seed or 0,
            run=None if guide is None else guide.run, hazards=() if guide is None else guide.hazards, progress=progress,
        )  # fmt: skip
    except ImportError as error:
        raise _missing(error) from None


def _missing(error: ImportError) -> Exception:
    """What to tell when Hypothesis is not installed."""
    if (error.name or "").partition(".")[0] != "hypothesis":
        return error
    return InputError("the search needs Hypothesis; install it with: pip install 'fencepost[simulate]'")


def _explored(program: Program, question: Question, progress: Callable[[str], None] | None) -> Answer | None:
    """The explorer's refutation, to guide the search; None when it has none in the time it is given."""
    from fencepost.engines import ask
    from fencepost.model.events import DesignError

    budget = min(question.budget or EXPLORE_SECONDS, EXPLORE_SECONDS)
    asked = msgspec.structs.replace(question, engine="explore", explain=False, budget=budget, replay=None)
    try:
        answer = ask(program, asked, progress)
    except DesignError:
        return None
    return answer if answer.verdict == REFUTED and answer.run is not None else None


# ---------------------------------------------------------------- the answer


def _answer(program: Program, question: Question, searched: Searched) -> Answer:
    found = searched.found
    notes = [f"in some run the design does what it must not do: {fault}" for fault in searched.faults]
    notes += [f"in some run {text}" for text in searched.waiting]
    if found is None or found.outcome.wrong is None:
        runs = f"{searched.examples} run{'' if searched.examples == 1 else 's'}"
        reason = f"no wrong value in {runs} of the machine: simulation proves nothing"
        return Answer(program.name, UNKNOWN, engine="simulate", reason=reason, notes=tuple(notes))
    hazard = hazard_of(program, found.outcome, question.platform, question.environment)
    notes = [*sentences(found), *notes, f"replay: {found.text}"]
    return Answer(program.name, REFUTED, engine="simulate", hazards=(hazard,), run=found.outcome.run, notes=tuple(notes))


def hazard_of(program: Program, outcome: Outcome, platform: str | None, environment: str | None) -> Hazard:
    """The hazard behind the first wrong read, from the concrete event structure of the machine's run.

    Raises `Disagreement` when there is none, or when the run is not possible there.
    """
    from fencepost.model import events
    from fencepost.model.platform import environment as environment_named
    from fencepost.model.platform import platform as platform_named

    wrong = outcome.wrong
    assert wrong is not None
    where = f"step {wrong.step} of the machine's run"
    try:
        structure = events.execute(program, outcome.run, platform=platform_named(platform),
                                   environment=environment_named(environment))  # fmt: skip
    except events.InvalidRun as error:
        raise Disagreement(f"{where}: the concrete event structure refuses this run: {error}") from None
    # No test of feasibility: the machine has just shown it. `events.feasible` takes a waiting call and its return for one
    # instant, so it refuses some runs in which another thread goes on while a call waits.
    if wrong.kind in ("undefined", "freed"):
        reads = events.undefined_reads(structure)
        mine = [k for k in reads if structure.nodes[structure.accesses[k].node].step == wrong.step]
        if mine:
            return events.undefined_hazard(structure, mine[0])
        # Behind a meeting the reference comes later here than there, so a write that nothing orders may lie on the other side.
    steps = {wrong.step: 0}
    for value in (wrong.got, wrong.expected):
        step = outcome.origins[value].step
        if step is not None:
            steps.setdefault(step, len(steps))
    best: tuple[int, tuple[int, int]] | None = None
    for pair in events.conflicts(structure):
        found = [structure.nodes[structure.accesses[k].node].step for k in pair]
        score = sum(step in steps for step in found) * 2 + (wrong.step in found)
        if best is None or score > best[0]:
            best = (score, pair)
    if best is None:
        through = events.undefined_reads(structure)  # a raw pointer to a freed block: what it reaches is somebody else's
        if through:
            mine = [k for k in through if structure.nodes[structure.accesses[k].node].step == wrong.step]
            return events.undefined_hazard(structure, (mine or through)[0])
        raise Disagreement(f"{where} reads {wrong.object} wrongly, but the concrete event structure orders every access")
    hazard = events.hazard_of(structure, *best[1])
    return msgspec.structs.replace(hazard, value_changing=True)


def sentences(found: Found) -> list[str]:
    """The wrong value beside the right one, and what was held back, each in one sentence."""
    wrong = found.outcome.wrong
    if wrong is None:
        return []
    object_ = wrong.object + wrong.part
    reader = f"thread {wrong.thread} in step {wrong.turn}"
    if wrong.agent != wrong.thread:
        reader = f"stream {wrong.agent}, for step {wrong.turn} of {wrong.thread},"
    said = [f"{reader} reads {object_}: {_value(found, wrong.got)} instead of {_value(found, wrong.expected)}"]
    if wrong.kind == "freed":
        said = [f"{reader} accesses {object_} through a raw pointer, and its block was freed before that"]
    late = [f"{o.what}, step {o.turn} of {o.thread}" for o in found.outcome.stalled]
    if late:
        more = f" and {len(late) - 3} more" if len(late) > 3 else ""
        said.append(f"held back: {'; '.join(late[:3])}{more}")
    return said


def _value(found: Found, value: int) -> str:
    origin = found.outcome.origins[value]
    if origin.step is None:
        return origin.what
    text = f"what {origin.what} wrote in step {origin.turn} of {origin.thread}"
    if origin.wrong:
        text += " from wrong inputs"
    return f"a torn mix with {text}" if origin.partly else text


# ---------------------------------------------------------------- cases of a command line


def simulate_case(case: Any, guided: bool, timing: str | None) -> tuple[Any, Any]:
    """What the search came to, and the case's outcome. Whatever goes wrong becomes the outcome's error."""
    from fencepost.check import Outcome, matches

    program, error = _built(case)
    if program is None:
        return None, Outcome(case, error=error)
    try:
        simulated = simulate(program, case.question, None, case.parameters, guided, timing)
    except (InputError, ValueError) as bad:
        return None, Outcome(case, program=program, error=f"{bad} [{case.design}]")
    except Exception:  # our own fault; said as such, and never mistaken for a verdict
        import traceback

        return None, Outcome(case, program=program, error=f"{case.design}: {traceback.format_exc().rstrip()}", crashed=True)
    answer = _of_case(simulated.answer, case)
    return simulated, Outcome(case, msgspec.structs.replace(answer, matches=matches(answer, case)), program)


def _of_case(answer: Answer, case: Any) -> Answer:
    return msgspec.structs.replace(
        answer, design=case.design, variant=case.label, parameters=dict(case.parameters), environment=case.environment,
        platform=case.platform, expected=case.expected, expected_hazard=case.hazard,
    )  # fmt: skip


def _built(case: Any) -> tuple[Program | None, str]:
    import inspect
    import os

    from fencepost.check import build
    from fencepost.errors import one_line
    from fencepost.loader import load

    file = None
    try:
        (target,) = load([case.target])
        if target.function is not None:
            file = os.path.realpath(inspect.unwrap(target.function).__code__.co_filename)
        return build(target, case.parameters), ""
    except InputError as error:
        return None, str(error)
    except (Exception, SystemExit) as error:  # the body of a design is the user's code: it may raise anything
        return None, f"{one_line(error, file)} [{case.design}]"


def over_parameters(asked: list[Any], timing: str | None) -> tuple[Any, Any, Any]:
    """One search in which Hypothesis chooses among the cases, too: (case, what it came to, outcome)."""
    from fencepost.check import Outcome
    from fencepost.simulator.search import search_parameters

    designs: list[tuple[World, Program]] = []
    for case in asked:
        program, error = _built(case)
        if program is None:
            return case, None, Outcome(case, error=error)
        designs.append((_world(case.question, case.parameters, timing), program))
    question = asked[0].question
    try:
        number, searched = search_parameters(
            designs, examples=question.examples or EXAMPLES, turns=question.steps or STEPS, seed=question.seed or 0
        )
    except ImportError as bad:
        return asked[0], None, Outcome(asked[0], error=str(_missing(bad)))
    program = designs[number][1]
    simulated = Simulated(_of_case(_answer(program, question, searched), asked[number]), searched)
    return asked[number], simulated, Outcome(asked[number], simulated.answer, program)
