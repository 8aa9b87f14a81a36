"""The engines by name: one function that asks any of them about one program, for the command line and for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from fencepost.errors import InputError
from fencepost.model.answer import BOUNDED, MASKED, PROVED, REFUTED, UNKNOWN, Answer
from fencepost.model.program import Program

if TYPE_CHECKING:
    from fencepost.proofs.judge import Judged

ENGINES = ("explore", "smt", "simulate", "all")
"""What `--engine` takes, the default first."""

MOST_STEPS = 10_000
"""Most turns per loop thread that `--steps` asks a bounded engine for."""

SMT_SECONDS = 120.0
"""Seconds after which the SMT engine gives up when nobody says when; as long as the explorer's."""

ENGINES_NOT_BUILT: tuple[str, ...] = ()
"""Engines that are planned; they are refused by name."""


class Question(msgspec.Struct, frozen=True):
    """What to ask an engine. `budget` in seconds; `steps`, `examples` and `seed` are for bounded and random engines."""

    engine: str = "explore"
    environment: str | None = None
    platform: str | None = None
    strict: bool = False
    never: tuple[str, ...] = ()
    budget: float | None = None
    explain: bool = True
    steps: int | None = None
    examples: int | None = None
    seed: int | None = None
    replay: str | None = None
    """A run as the machine printed it; it is replayed instead of searched for."""
    masks: bool = True
    """With `explain`: also which environments mask a hazard."""


def known_engine(name: str) -> str:
    """The name, when there is such an engine. Raises `InputError`, which names those that there are."""
    if name in ENGINES_NOT_BUILT:
        raise InputError(f"engine {name!r} is not built yet; there are: {', '.join(ENGINES)}")
    if name not in ENGINES:
        raise InputError(f"no engine {name!r}; there are: {', '.join(ENGINES)}")
    return name


def ask(program: Program, question: Question, progress: Callable[[str], None] | None = None) -> Answer:
    """The answer of the named engine. Raises what the engine raises, and `InputError` for an unknown engine."""
    return _ENGINES[known_engine(question.engine)](program, question, progress)


def prepare(engine: str) -> None:
    """Import what the engine needs for nearly every question, so that processes that are forked share it."""
    if engine in ("explore", "all"):
        import fencepost.model.events
        import fencepost.model.language.build
        import fencepost.proofs.check
        import fencepost.proofs.judge  # noqa: F401


def explore(
    program: Program, question: Question, progress: Callable[[str], None] | None = None, best: list[Judged] | None = None
) -> Answer:
    """The explorer's answer; `best` as in `proofs.check.check`."""
    from fencepost.proofs.check import check
    from fencepost.proofs.explore.search import Budget

    return check(
        program,
        environment=question.environment,
        platform=question.platform,
        strict=question.strict,
        never=question.never,
        budget=Budget(seconds=question.budget) if question.budget is not None else None,
        progress=progress,
        explain=question.explain,
        masks=question.masks,
        best=best,
    )


def _simulate(program: Program, question: Question, progress: Callable[[str], None] | None) -> Answer:
    from fencepost.simulate import simulate

    return simulate(program, question, progress).answer


def _smt(program: Program, question: Question, progress: Callable[[str], None] | None) -> Answer:
    from fencepost.proofs.smt.engine import STEPS, MissingSolver, check

    try:
        return check(
            program,
            STEPS if question.steps is None else question.steps,
            environment=question.environment,
            platform=question.platform,
            strict=question.strict,
            seconds=SMT_SECONDS if question.budget is None else question.budget,
            progress=progress,
        )
    except MissingSolver as error:
        raise InputError(str(error)) from None


def _all(program: Program, question: Question, progress: Callable[[str], None] | None) -> Answer:
    """The explorer's answer, with what the others say as notes; unknown when one of them contradicts it."""
    exact = explore(program, question, progress)
    notes: list[str] = []
    contradicted: list[str] = []
    for name in ("smt", "simulate"):
        other = _ENGINES[name](program, question, progress)
        said = f"{other.verdict}({other.bound})" if other.verdict == BOUNDED else other.verdict
        reason = f", {other.reason}" if other.reason else ""
        notes.append(f"engine {name}: {said}{reason}")
        if other.verdict == REFUTED and exact.verdict in (PROVED, MASKED):
            contradicted.append(f"explore {exact.verdict}, {name} {said} ({', '.join(h.name for h in other.hazards)})")
    if contradicted:
        reason = f"engines disagree: {'; '.join(contradicted)}; please report this design"
        return msgspec.structs.replace(exact, verdict=UNKNOWN, reason=reason, engine="all", notes=(*exact.notes, *notes))
    return msgspec.structs.replace(exact, engine="all", notes=(*exact.notes, *notes))


_ENGINES: dict[str, Callable[[Program, Question, Any], Answer]] = {
    "explore": explore, "smt": _smt, "simulate": _simulate, "all": _all,
}  # fmt: skip
