"""Assertions about designs: plain functions that work in any test runner, and under pytest take its options.

A design is a design function, a `Design`, a `Program`, a target as the command line writes it ("file.py::function"), or a
pair (any of these, parameters). Heavy imports stay inside the functions: the pytest plugin loads this file on every start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.check import Outcome
    from fencepost.model.answer import Answer
    from fencepost.model.program import Program


class VerdictError(AssertionError):
    """The answer is another one than the test asserts. `outcomes`: what was decided, for reports."""

    def __init__(self, message: str, outcomes: tuple[Outcome, ...] = ()) -> None:
        super().__init__(message)
        self.outcomes = outcomes


class Inconclusive(VerdictError):
    """No engine established what the test asserts, and none refuted it either: unknown, bounded or masked."""


class Settings:
    """How designs are decided when an assertion does not say it itself. `budget` in seconds, None: without limit.

    Plain, because every start of pytest makes the class and a dataclass would take a millisecond of it.
    """

    __slots__ = ("budget", "engine", "examples", "outcomes", "replay", "seed", "steps")

    def __init__(
        self, engine: str = "explore", budget: float | None = None, steps: int | None = None, examples: int | None = None,
        seed: int | None = None, replay: str | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.budget, self.steps = engine, budget, steps
        self.examples, self.seed, self.replay = examples, seed, replay
        self.outcomes: list[Outcome] = []
        """Everything that was decided under these settings, in order."""


_settings: ContextVar[Settings | None] = ContextVar("fencepost settings", default=None)


@contextlib.contextmanager
def using(settings: Settings) -> Iterator[Settings]:
    """Decide under `settings` inside the block; the plugin does this around every test."""
    token = _settings.set(settings)
    try:
        yield settings
    finally:
        _settings.reset(token)


def current() -> Settings:
    """The settings in force."""
    return _settings.get() or Settings()


def answer_of(
    design: Any,
    *,
    engine: str | None = None,
    budget: float | None = None,
    environment: str | None = None,
    platform: str | None = None,
    strict: bool = False,
    never: tuple[str, ...] = (),
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> Outcome:
    """Decide one design and return the answer together with its program.

    Keywords that are not named here are parameters of the design; `parameters` takes those whose names collide. What is
    not given comes from the pytest options, else from the defaults (explorer, no budget). Raises `InputError` or
    `DesignError` (one line, with file and line) for what is no design.
    """
    __tracebackhide__ = True  # pytest then shows the test's own line
    from fencepost.check import Case, answer_program
    from fencepost.errors import InputError

    if isinstance(design, tuple) and len(design) == 2:
        design, own = design
        parameters = {**own, **(parameters or {})}
    given = {**(parameters or {}), **more}
    settings = current()
    target, name, program = _program(design, given)
    case = Case(
        target, name, given, environment=environment, platform=platform, strict=strict, never=never,
        budget=budget if budget is not None else settings.budget, engine=engine or settings.engine,
        steps=settings.steps, examples=settings.examples, seed=settings.seed, replay=settings.replay,
    )  # fmt: skip
    outcome = answer_program(case, program)
    if outcome.answer is None:
        raise (RuntimeError if outcome.crashed else InputError)(outcome.error or "no answer")
    settings.outcomes.append(outcome)
    return outcome


def assert_proved(design: Any, **asked: Any) -> Answer:
    """Assert that `design` is proved: for every number of steps and every schedule. Returns the answer.

    Takes what `answer_of` takes. Raises `VerdictError` with the run, and a regression test to paste, when it is refuted
    or hangs; `Inconclusive` when the answer is unknown, bounded or masked. Hazards that the design accepts do not count.
    """
    __tracebackhide__ = True
    from fencepost.check import open_hazards
    from fencepost.model.answer import PROVED, REFUTED

    outcome = answer_of(design, **asked)
    answer = outcome.answer
    assert answer is not None
    if answer.stops:
        raise VerdictError(f"{_title(outcome)} hangs: {answer.stops[0]}\n\n{report(outcome)}", (outcome,))
    if answer.verdict == REFUTED and (open_hazards(answer) or not answer.hazards):
        text = f"{_title(outcome)} is refuted: {_hazards(answer)}\n\n{report(outcome)}\n{regression_test(outcome)}"
        raise VerdictError(text, (outcome,))
    if answer.verdict not in (PROVED, REFUTED):
        raise Inconclusive(f"{_title(outcome)} is not proved but {_inconclusive(answer)}", (outcome,))
    return answer


def assert_refuted(design: Any, hazard: str | None = None, **asked: Any) -> Answer:
    """Assert that `design` is refuted, by `hazard` ("WAR seq_lens") when it is named. Returns the answer.

    Takes what `answer_of` takes. Raises `VerdictError` when it is proved or refuted for another reason, `Inconclusive`
    when the answer is unknown, bounded or masked.
    """
    __tracebackhide__ = True
    from fencepost.model.answer import PROVED, REFUTED

    outcome = answer_of(design, **asked)
    answer = outcome.answer
    assert answer is not None
    if answer.verdict == PROVED:
        expected = f"refuted by {hazard}" if hazard else "refuted"
        raise VerdictError(f"{_title(outcome)} is proved, not {expected}\n\n{report(outcome)}", (outcome,))
    if answer.verdict != REFUTED:
        raise Inconclusive(f"{_title(outcome)} is not refuted but {_inconclusive(answer)}", (outcome,))
    if hazard is not None and hazard not in [found.name for found in answer.hazards]:
        raise VerdictError(
            f"{_title(outcome)} is refuted by {_hazards(answer)}, not by {hazard}\n\n{report(outcome)}", (outcome,)
        )
    return answer


def assert_removal_safe(before: Any, after: Any, **asked: Any) -> Answer:
    """Assert that going from `before` to `after` (a synchronisation less, say) loses no proof. Returns the later answer.

    Both take what `answer_of` takes; `(design, parameters)` gives each its own parameters. Safe means that `after` has no
    hazard and no hang that `before` has not. Raises `VerdictError` when it has one, or when the two are the same design, so
    that nothing was removed; `Inconclusive` when either answer is unknown, bounded or masked.
    """
    __tracebackhide__ = True
    from fencepost.model.answer import PROVED, REFUTED

    old, new = answer_of(before, **asked), answer_of(after, **asked)
    assert old.answer is not None and new.answer is not None
    both = (old, new)
    if old.program == new.program:
        raise VerdictError(f"{_title(old)} and {_title(new)} are the same design: nothing was removed", both)
    for when, outcome in (("before", old), ("after", new)):
        assert outcome.answer is not None
        if outcome.answer.verdict not in (PROVED, REFUTED):
            raise Inconclusive(f"{when} the change, {_title(outcome)} is {_inconclusive(outcome.answer)}", both)
    known = {(hazard.name, hazard.harm) for hazard in old.answer.hazards}
    lost = list(dict.fromkeys(
        hazard.name for hazard in new.answer.hazards if hazard.name not in new.answer.accepted and (hazard.name, hazard.harm) not in known
    ))  # fmt: skip
    lost += [stop for stop in new.answer.stops if stop not in old.answer.stops]
    if lost:
        was = "proved" if old.answer.verdict == PROVED else f"refuted by {_hazards(old.answer)}"
        text = f"the change is not safe: {_title(new)} has {', '.join(lost)}; before it was {was}"
        raise VerdictError(f"{text}\n\n{report(new)}\n{regression_test(new)}", both)
    return new.answer


# ---------------------------------------------------------------- words


def report(outcome: Outcome, width: int = 100) -> str:
    """The report of one outcome as the command line prints it: the accesses, the lanes, what closes it."""
    import io

    from fencepost.report.text import console_for, write_answer

    out = io.StringIO()
    console = console_for(out)
    console.width = width
    write_answer(outcome, console)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip() + "\n"


def regression_test(outcome: Outcome) -> str:
    """A test to paste: red as long as the design has this hazard, green once it is mended."""
    import re

    answer, case = outcome.answer, outcome.case
    assert answer is not None
    hazard = answer.hazards[0].name if answer.hazards else "hazard"
    slug = re.sub(r"\W+", "_", f"{case.design.rpartition('::')[2]}_{hazard}").strip("_").lower()
    given = "".join(f", {name}={value!r}" for name, value in sorted(case.parameters.items()))
    for name, value in (("environment", case.environment), ("platform", case.platform)):
        given += f", {name}={value!r}" if value is not None else ""
    given += ", strict=True" if case.strict else ""
    design = repr(case.target) if "::" in case.target or ":" in case.target else case.target
    return (
        "A regression test to paste:\n\n"
        "    import fencepost as fp\n\n\n"
        f"    def test_{slug}():\n"
        f"        fp.assert_proved({design}{given})\n"
    )


def _title(outcome: Outcome) -> str:
    title = outcome.case.title
    return f"{outcome.case.design} [{title}]" if title else outcome.case.design


def _hazards(answer: Answer) -> str:
    return ", ".join(dict.fromkeys(hazard.name for hazard in answer.hazards)) or "a run without a named hazard"


def _inconclusive(answer: Answer) -> str:
    from fencepost.model.answer import BOUNDED, MASKED

    if answer.verdict == BOUNDED:
        return f"bounded({answer.bound}): engine {answer.engine} found nothing in so many steps, which proves nothing beyond"
    if answer.verdict == MASKED:
        return f"masked: the environment {answer.environment!r} hides what the bare platform may show"
    return f"unknown: {answer.reason or 'no reason given'}"


def _program(design: Any, parameters: Mapping[str, Any]) -> tuple[str, str, Program]:
    """(target, name, program) of whatever stands for a design."""
    from fencepost.check import build
    from fencepost.errors import InputError, relative
    from fencepost.loader import Target, load
    from fencepost.model.language import Design
    from fencepost.model.program import Program

    if isinstance(design, str):
        found = load([design])
        if len(found) != 1:
            raise InputError(f"{design}: one design is needed, and this names {len(found)}; write file.py::function")
        return found[0].spelling, found[0].design, build(found[0], dict(parameters))
    if isinstance(design, (Design, Program)):
        if parameters:
            raise InputError(f"a design that is built already takes no parameters, not {sorted(parameters)[0]!r}")
        program = design.build() if isinstance(design, Design) else design
        return program.name, program.name, program
    if callable(design) and hasattr(design, "__code__"):
        name = design.__qualname__
        # A function inside another has no target that leads to it.
        target = name.rpartition(".")[2] if "<locals>" in name else f"{relative(design.__code__.co_filename)}::{name}"
        return target, name.rpartition(".")[2], build(Target(target, name, function=design), dict(parameters))
    raise InputError(f"{design!r} is no design: give a design function, a Design, a Program or 'file.py::function'")
