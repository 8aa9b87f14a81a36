"""The engines by name: one function that asks any of them about one program, for the command line and for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fencepost.errors import InputError
from fencepost.model.answer import Answer
from fencepost.model.program import Program

ENGINES = ("explore",)
"""What `--engine` takes, the default first."""

ENGINES_NOT_BUILT = ("smt", "simulate", "all")
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


def known_engine(name: str) -> str:
    """The name, when there is such an engine. Raises `InputError`, which names those that there are."""
    if name in ENGINES_NOT_BUILT:
        raise InputError(f"engine {name!r} is not built yet; there is: {', '.join(ENGINES)}")
    if name not in ENGINES:
        raise InputError(f"no engine {name!r}; there is: {', '.join(ENGINES)}")
    return name


def ask(program: Program, question: Question, progress: Callable[[str], None] | None = None) -> Answer:
    """The answer of the named engine. Raises what the engine raises, and `InputError` for an unknown engine."""
    return _ENGINES[known_engine(question.engine)](program, question, progress)


def _explore(program: Program, question: Question, progress: Callable[[str], None] | None) -> Answer:
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
    )


_ENGINES: dict[str, Callable[[Program, Question, Any], Answer]] = {"explore": _explore}
