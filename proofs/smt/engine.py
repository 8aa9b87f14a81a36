"""`check`: no hazard within K turns per loop thread, or a replayed run that has one. Shortest first, Z3 does the search."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fencepost.model import answer as a
from fencepost.model import program as p
from fencepost.model.platform import BARE, Environment, Platform
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named
from fencepost.proofs.smt.decode import UNREAD, Shown, replay, run_of, shortened
from fencepost.proofs.smt.device import PROMPT
from fencepost.proofs.smt.encode import ROUNDS, Encoder, NotEncoded, encode
from fencepost.proofs.smt.goals import Goal

MISSING = "the SMT engine needs Z3: pip install 'fencepost[prove]'"
STEPS = 4
"""Turns per loop thread when nobody says how many."""
OTHERS, OTHERS_EFFORT = 24, 300_000
"""After the first hazard: how many more are looked for, each with how much effort (Z3's resource units)."""
LEVELS = 60
"""Models of access-level hazards that are looked at before the answer is unknown."""


class MissingSolver(ImportError):
    """Z3 is not installed; the text says which extra has it."""


def check(
    program: p.Program,
    steps: int = STEPS,
    *,
    environment: str | None = None,
    platform: str | None = None,
    strict: bool = False,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> a.Answer:
    """Decide `program` for runs in which every loop thread makes at most `steps` turns (theory section 4, engine 2a).

    REFUTED with a run that was replayed on the concrete event structure; BOUNDED otherwise; UNKNOWN when the solver
    gives up after `seconds` (`bound` then says how many turns are done), when a feature is not encoded, or when it is
    neither shown nor excluded that a hazard changes a value. `strict` refutes on access-level hazards too.
    Raises `MissingSolver`, `ValueError` on an unknown name, `events.DesignError` for a get from an empty cell.
    """
    started = time.perf_counter()
    search = Search(
        program, platform_named(platform), environment_named(environment), strict, seconds, progress or (lambda _: None)
    )
    verdict, more = search.answer(steps)
    env, plat = search.environment, search.platform
    return a.Answer(
        design=program.name,
        verdict=verdict,
        accepted=tuple(one.hazard for one in program.accepted),
        notes=tuple(search.notes),
        assumptions=tuple(search.assumptions()),
        environment=None if env == BARE else env.name,
        platform=None if plat.name == "cuda" else plat.name,
        engine="smt",
        seconds=time.perf_counter() - started,
        **more,
    )


class Found(NamedTuple):
    """A goal that was reached, and its replay."""

    goal: Goal
    shown: Shown


class Search:
    """One bounded check in progress."""

    def __init__(
        self, program: p.Program, platform: Platform, environment: Environment, strict: bool, seconds: float | None,
        progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.program = program
        self.platform = platform
        self.environment = environment
        self.strict = strict
        self.deadline = None if seconds is None else time.perf_counter() + seconds
        self.seconds = seconds
        self.progress = progress
        self.started = time.perf_counter()
        self.notes: list[str] = []
        self.harmless: dict[tuple[Any, ...], str] = {}
        """Pairs of operations that nothing in the design can tell apart."""
        self.unsure: str | None = None
        self.levels = 0

    def assumptions(self) -> list[str]:
        """What the verdict stands on."""
        from fencepost.proofs.explain import assumptions

        return assumptions(self.program, self.platform)

    def answer(self, steps: int) -> tuple[str, dict[str, Any]]:
        """Verdict and the fields that go with it."""
        asked = steps
        if not any(thread.kind == "loop" for thread in self.program.threads):
            steps = 1
        done = 0
        chunk, hard = 2, False
        while done < steps:
            chunk = min(chunk, steps)
            try:
                encoder = encode(self.program, chunk, self.platform, self.environment)
            except NotEncoded as error:
                reason = f"not encoded for SMT: {error}; the default engine decides it"
                return a.UNKNOWN, {"reason": reason, "bound": done or None}
            # Turns without a pair of accesses that could conflict need no solver.
            first = min((turns for turns in map(_turns_of, encoder.goals)), default=chunk + 1)
            done = max(done, first - 1)
            if done < chunk:
                solver = Solver(encoder, hard)
            hard = False
            for turns in range(done + 1, chunk + 1):
                if time.perf_counter() - self.started > 2:
                    size = f"{len(encoder.steps)} host steps, {len(encoder.goals)} goals"
                    self.progress(f"smt: {turns} of {steps} turns, {size}")
                try:
                    shown = self._turns(solver, turns)
                except Hard:
                    hard = True
                    break
                if isinstance(shown, str):
                    return a.UNKNOWN, {"reason": shown, "bound": done or None}
                if shown is not None:
                    return a.REFUTED, self._refuted(solver, turns, shown)
                done = turns
            if hard:  # the turns that are encoded beyond these cost more than to encode these alone
                chunk = done + 1
                continue
            chunk = chunk * 2 if chunk < 4 else chunk + max(3, chunk // 2)
        if encoder.rounds:
            names = ", ".join(repr(self.program.threads[t].name) for t in encoder.rounds)
            self.notes.append(f"at most {ROUNDS} rounds of each circle within a turn of thread {names}")
        self.notes += [f"access-level only: {why}" for why in dict.fromkeys(self.harmless.values())]
        if self.unsure is not None:
            return a.UNKNOWN, {"reason": self.unsure, "bound": None}
        return a.BOUNDED, {"bound": asked}

    def _refuted(self, solver: Solver, turns: int, first: Found) -> dict[str, Any]:
        """The shortest run found, and the other hazards that so many turns, or one more, have."""
        found = [first]
        self._exclude_pair(solver, first.goal)
        named = {first.shown.hazard.name}
        for tried in (turns, turns + 1):
            while len(found) <= OTHERS and tried <= solver.encoder.bound:
                more = self._turns(solver, tried, OTHERS_EFFORT)
                if not isinstance(more, Found):
                    break
                found.append(more)
                self._exclude_pair(solver, more.goal)
                if more.shown.hazard.name in named:  # two runs of a name, of which the shorter is told
                    solver.exclude([one for one in solver.encoder.goals if _named(one) == _named(more.goal)])
                named.add(more.shown.hazard.name)
        best: dict[str, Shown] = {}
        for one in found:
            short = shortened(self.program, one.shown, self.platform, self.environment)
            name = short.hazard.name
            if name not in best or len(short.run.steps) < len(best[name].run.steps):
                best[name] = short
        ordered = sorted(best.values(), key=lambda shown: len(shown.run.steps))
        return {"hazards": tuple(shown.hazard for shown in ordered), "run": ordered[0].run, "bound": turns}

    def _exclude_pair(self, solver: Solver, goal: Goal) -> None:
        solver.exclude([other for other in solver.encoder.goals if _pair(other) == _pair(goal)])

    def _turns(self, solver: Solver, turns: int, effort: int = 0) -> Found | str | None:
        """A hazard within `turns` turns that refutes; a string when the solver gave up; None when there is none."""
        if solver.encoder.started and turns > 1:
            solver.at_least(turns)
        prompt = solver.encoder.queries
        while True:
            left = None if self.deadline is None else self.deadline - time.perf_counter()
            status = solver.check(turns, left, effort, prompt)
            if status == "unsat" and prompt:
                prompt = False
                continue
            if status == "unknown":
                spent = "" if self.seconds is None else f" after {self.seconds:g} s"
                done = f"; runs of at most {turns - 1} have none" if turns > 1 and self.unsure is None else ""
                return f"the solver gave up{spent} at {turns} turns ({solver.why()}){done}"
            if status == "unsat":
                return None
            model = solver.model()
            goal = next(goal for goal in solver.encoder.goals if model.get(goal.name))
            run, where = run_of(solver.encoder, model, goal)
            shown = replay(self.program, run, where, goal, self.platform, self.environment)
            if isinstance(shown, str) and solver.encoder.queries:
                # The replay lets no other thread call into a stream that is being waited for.
                self.unsure = self.unsure or f"a model was found at {turns} turns, but {shown}"
                solver.exclude([goal])
                continue
            if isinstance(shown, str):
                return f"a model was found at {turns} turns, but {shown}"
            if shown.hazard.value_changing or (self.strict and shown.hazard.value_changing is False):
                return Found(goal, shown)
            stop = self._level(solver, goal, shown)
            if stop is not None:
                return stop

    def _level(self, solver: Solver, goal: Goal, shown: Shown) -> str | None:
        """A hazard that was not shown to change a value: look for others."""
        self.levels += 1
        sentence = f"{shown.hazard.name}: {shown.why}"
        if shown.hazard.value_changing is False and (shown.why == UNREAD or goal.harmless):
            self.harmless[_pair(goal)] = sentence
            self._exclude_pair(solver, goal)
            return None
        if self.unsure is None:
            self.unsure = (
                f"{shown.hazard.name}: neither shown nor excluded that the two orders give a reader different content "
                f"({shown.why})"
            )
        if self.levels > LEVELS:
            return self.unsure
        solver.exclude([goal])
        return None


def _turns_of(goal: Goal) -> int:
    """Turns of a loop thread that its run has at least."""
    return 1 + max(goal.second.turn, goal.first.turn if goal.first is not None else 0)


def _pair(goal: Goal) -> tuple[Any, ...]:
    """What a goal has in common with the same operations on the same memory in other turns."""
    first = goal.first or goal.second
    later = (goal.second.turn > first.turn) - (goal.second.turn < first.turn)
    places = (first.thread, first.at, goal.second.thread, goal.second.at)
    return (goal.kind, goal.blocks is None, goal.writes, goal.harmless, goal.what, later, *places)


def _named(goal: Goal) -> tuple[Any, ...]:
    """What goals have in common whose hazards have the same name."""
    return (goal.kind, goal.blocks is None, goal.writes, goal.what)


class Hard(Exception):
    """The first try was not enough, and more turns are encoded than are asked about."""


class Solver:
    """Z3 with the encoding's text, asked under a bound on the turns.

    Difference logic decides most questions, and all without a run, soonest. Where it takes long, Z3's older simplex gets
    a try on the same assertions: on runs of many turns it is often faster by far, on questions without a run it is not.
    """

    FIRST, OTHER, MORE = 500_000, 6_000_000, 5
    """Effort of the first try and of the other solver's: a quarter of a second each; and how much more when both gave up."""

    def __init__(self, encoder: Encoder, hard: bool = False) -> None:
        try:
            import z3
        except ImportError:
            raise MissingSolver(MISSING) from None
        self.encoder = encoder
        self._hard = hard
        """The first try of the same question was not enough."""
        self._z3: Any = z3
        lines = [*encoder.text.lines]
        for turn, literals in encoder.started.items():
            lines.append(f"(declare-const within{turn} Bool)")
            lines += [f"(assert (=> within{turn} (not {literal})))" for literal in literals]
        self._text = "\n".join(lines)
        self._more: list[tuple[str, ...]] = []
        """Clauses added since, as literals."""
        self._main = self._made(1)
        self._other: Any = None
        self._passed = 0
        """How many of the clauses the other solver has."""
        self._asked = self._main

    def _made(self, arithmetic: int) -> Any:
        solver = self._z3.SimpleSolver(ctx=self._z3.Context())
        solver.set("arith.solver", arithmetic)  # 1: difference logic: every atom is one (text.py)
        solver.from_string(self._text)
        return solver

    def _clause(self, solver: Any, literals: tuple[str, ...]) -> None:
        """Literals are names, or `(not NAME)`."""
        made = []
        for one in literals:
            name = self._z3.Bool(one[5:-1] if one.startswith("(not ") else one, solver.ctx)
            made.append(self._z3.Not(name) if one.startswith("(not ") else name)
        solver.add(made[0] if len(made) == 1 else self._z3.Or(*made, solver.ctx))

    def _add(self, *literals: str) -> None:
        self._more.append(literals)
        self._clause(self._main, literals)

    def at_least(self, turns: int) -> None:
        """Some thread makes its last turn: fewer turns were tried before."""
        literals = self.encoder.started.get(turns - 1, [])
        if literals:
            self._add(*literals)

    def check(self, turns: int, seconds: float | None, effort: int = 0, prompt: bool = False) -> str:
        """ "sat" | "unsat" | "unknown"; `effort` bounds the search in Z3's resource units (0: no bound). Raises `Hard`."""
        deadline = None if seconds is None else time.perf_counter() + seconds
        limit = [f"within{turns}"] if turns in self.encoder.started else []
        if prompt:
            limit.append(PROMPT)
        if effort:
            return self._check(self._main, limit, deadline, effort)
        first = self.FIRST
        if not self._hard:
            status = self._check(self._main, limit, deadline, first)
            if status != "unknown":
                return status
            if self.encoder.bound > turns:
                raise Hard
        self._hard = False
        for more in (1, self.MORE):
            status = self._check(self._second(), limit, deadline, self.OTHER * more)
            if status == "unknown" and more == 1:
                status = self._check(self._main, limit, deadline, first * self.MORE)
            if status != "unknown":
                return status
        return self._check(self._main, limit, deadline, 0)

    def _second(self) -> Any:
        """The other solver, with all clauses."""
        if self._other is None:
            self._other = self._made(2)
        for literals in self._more[self._passed :]:
            self._clause(self._other, literals)
        self._passed = len(self._more)
        return self._other

    def _check(self, solver: Any, limit: list[str], deadline: float | None, effort: int) -> str:
        self._asked = solver
        solver.set("rlimit", effort)
        if deadline is not None:
            left = deadline - time.perf_counter()
            if left <= 0:
                return "unknown"
            solver.set("timeout", max(1, int(left * 1000)))
        return str(solver.check(*(self._z3.Bool(name, solver.ctx) for name in limit)))

    def why(self) -> str:
        """Why the solver gave up."""
        return str(self._asked.reason_unknown())

    def model(self) -> dict[str, Any]:
        """Values of all variables. Read from the model's text: asking for each by Z3's interface takes ten times as long."""
        found = _DEFINED.findall(self._asked.model().sexpr())
        return {name: value == "true" if sort == "Bool" else _integer(value) for name, sort, value in found}

    def exclude(self, goals: list[Goal]) -> None:
        """These goals are not asked for again."""
        for goal in goals:
            self._add(f"(not {goal.name})")


_DEFINED = re.compile(r"\(define-fun (\S+) \(\) (Bool|Int)\s+(true|false|\d+|\(- \d+\))\)")


def _integer(text: str) -> int:
    return -int(text[3:-1]) if text.startswith("(") else int(text)
