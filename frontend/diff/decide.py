"""Decides what a comparison asks, each question once, in processes that have the programs from this one.

Questions go by number: a forked process has them already, and hands over only what it finds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from fencepost.check import Case, Outcome, answer_program, matches
from fencepost.diff.costs import Found, costs_of
from fencepost.diff.places import moved
from fencepost.engines import explore
from fencepost.errors import InputError
from fencepost.model.answer import Answer, Protection, Run
from fencepost.model.platform import environment, platform
from fencepost.model.program import Ask, Channel, DeviceFlag, EventQuery, Program, StreamQuery
from fencepost.pool import Pool

if TYPE_CHECKING:
    from fencepost.proofs.judge import Judged

Asked = tuple[Case, Program]

AT_ONCE = 600
"""Operations and questions of all programs from which several processes are worth starting at once."""

_asked: list[Asked] = []
"""The questions of the comparison that is being made; a forked process has them from its parent."""


class Decided(NamedTuple):
    """An answer without explanations, and of a refutation the hazard that its run shows."""

    outcome: Outcome
    best: Judged | None = None

    def with_run(self) -> Judged | None:
        """That hazard, with its run."""
        run = self.outcome.answer.run if self.outcome.answer is not None else None
        return self.best if self.best is None or run is None else msgspec.structs.replace(self.best, run=run)


class Decisions:
    """The questions of one comparison, by number, and what is found.

    `twins`: id of a program -> the program of the other side that is asked in its place, because the two are one design.
    """

    def __init__(self, questions: Sequence[Asked], twins: Mapping[int, Program]) -> None:
        """Begins to decide, where that is worth several processes."""
        self.questions = questions
        asked = [(case, twins.get(id(program), program)) for case, program in questions]
        keys = [
            (program.objects, program.threads, program.accepted, case.environment, case.platform, case.never, program.places)
            for case, program in asked
        ]
        first: dict[object, int] = dict(zip(reversed(keys), reversed(range(len(keys))), strict=True))
        self._numbers = [first[key] for key in keys]
        """Of each question, the one that asks the same first."""
        # What takes longest is begun first, as far as the text tells.
        self._todo = sorted(first.values(), key=lambda number: -_weight(asked[number][1]))
        begin = functools.partial(_enter, asked)
        begin()
        self._pool = Pool(begin=begin)
        self._known: dict[int, Decided] = {}
        work = sum(len(thread.nodes) for number in self._todo for thread in asked[number][1].threads)
        self._found = self._pool.map(_decide, self._todo, work > AT_ONCE)

    def __enter__(self) -> Decisions:
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool.__exit__(*error)

    def outcomes(self) -> list[Outcome]:
        """The answers, in the order of the questions. Raises what was wrong with one that has none."""
        self._known = dict(zip(self._todo, self._found, strict=True))
        return [self._outcome(number) for number in range(len(self.questions))]

    def _outcome(self, number: int) -> Outcome:
        known = self._known[self._numbers[number]].outcome
        if known.answer is None:
            raise (RuntimeError if known.crashed else InputError)(known.error)
        return _for(*self.questions[number], known.answer, _asked[number][1])

    def explained(
        self, closing: Sequence[int], protecting: Mapping[int, Sequence[str] | None], costs: Sequence[tuple[int, int]]
    ) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[Protection, ...]], list[tuple[Found, Found | None]]]:
        """What closes the hazards of some answers, what protects the objects of others, and what some pairs of programs cost.

        By numbers of questions; `protecting` with the names of the objects, None for all of them.
        """
        tasks: list[tuple[Any, ...]] = [("costs", list(costs))] if costs else []  # which take longest
        tasks += [("protecting", number, objects) for number, objects in protecting.items()]
        tasks += [("closing", number, self._known[self._numbers[number]].with_run()) for number in closing]
        found = list(self._pool.map(_further, tasks))
        costed = found.pop(0) if costs else []
        return (
            dict(zip(closing, found[len(protecting) :], strict=True)),
            dict(zip(protecting, found, strict=False)),
            costed,
        )


def _enter(asked: list[Asked]) -> None:
    global _asked
    _asked = asked


def _decide(number: int) -> Decided:
    found = decided(*_asked[number])
    return found._replace(outcome=msgspec.structs.replace(found.outcome, program=None))


def decided(case: Case, program: Program) -> Decided:
    """The answer to one question; the hazard without its run, which the answer has."""
    best: list[Judged] = []
    outcome = answer_program(case, program, asking=functools.partial(explore, best=best))
    if not best:
        return Decided(outcome)
    found = msgspec.structs.replace(best[0].found, steps=())
    return Decided(outcome, msgspec.structs.replace(best[0], found=found, run=Run(())))


def _further(task: tuple[Any, ...]) -> Any:
    """A further question about a program that changed, or the costs of some: they need libraries that one process loads."""
    if task[0] == "costs":
        of = platform(_asked[task[1][0][0]][0].platform)
        return costs_of([(_asked[before][1], _asked[after][1]) for before, after in task[1]], of)
    number: int = task[1]
    return explained(*_asked[number], task[0], task[2])


def explained(case: Case, program: Program, what: str, about: Any) -> Any:
    """What closes a hazard, or what protects the objects of a name (None: all)."""
    from fencepost.proofs.explain import closing, protecting

    of, under = platform(case.platform), environment(case.environment)
    return closing(program, of, under, about) if what == "closing" else protecting(program, of, under, about)


def _weight(program: Program) -> int:
    """How long a program takes, as far as its text tells: where streams meet or are queried the states are many times as many."""
    asked = {type(node.question) for thread in program.threads for node in thread.nodes if isinstance(node, Ask)}
    times = 8 if any(isinstance(o, (Channel, DeviceFlag)) for o in program.objects) else 4 if asked & {EventQuery, StreamQuery} else 1
    return times * sum(len(thread.nodes) for thread in program.threads)


def _for(case: Case, program: Program, answer: Answer, asked: Program) -> Outcome:
    """The answer about `asked` as that to a case that asks the same of an equal program."""
    if asked.places != program.places:
        answer = moved(answer, asked, program)
    answer = msgspec.structs.replace(
        answer, design=case.design, variant=case.label, parameters=dict(case.parameters), expected=case.expected,
        expected_hazard=case.hazard,
    )  # fmt: skip
    answer = msgspec.structs.replace(answer, matches=matches(answer, case))
    return Outcome(case, answer, program)
