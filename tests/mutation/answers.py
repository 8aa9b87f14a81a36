"""What a design answers, with all rules in place or without one: by each engine in its own way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import fencepost as fp
from fencepost.model import answer as a
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.platform import environment, platform
from fencepost.proofs.check import check
from fencepost.proofs.explore.search import Budget

from mutation.designs import DESIGNS
from mutation.switching import CERTIFICATES, EVENTS, EXPLORER, LANGUAGE, MACHINE, VERIFY, Rule, switched_off

BOUNDS = Budget(3000, 60.0)
_PROGRAMS: dict[str, p.Program] = {}


def program(name: str) -> p.Program:
    """The design's program, traced once: only rules of the language take part in tracing."""
    if name not in _PROGRAMS:
        made = DESIGNS[name].function()
        _PROGRAMS[name] = made if isinstance(made, p.Program) else made.build()
    return _PROGRAMS[name]


def answer_of(name: str, home: str = EXPLORER) -> str:
    """Verdict and hazards, as `Declared.answer` writes them; "error ..." when an engine breaks down.

    A proof of the explorer never asks the concrete event structure: for a rule that lives there, its runs are judged.
    """
    declared = DESIGNS[name]
    if declared.order:
        return in_one_run(name, home)
    if home == MACHINE:
        return with_the_machine(name)
    if home == CERTIFICATES:
        return with_the_certificates(name)
    try:
        got = check(
            program(name), explain=False, strict=declared.strict, budget=Budget(BOUNDS.states, BOUNDS.seconds),
            environment=declared.environment, platform=declared.platform,
        )  # fmt: skip
        if home != EXPLORER and got.verdict in (a.PROVED, a.MASKED):
            bad = bad_run(name)
            if bad is not None:
                return f"{got.verdict}, but a run is bad: {bad}"
    except events.DesignError:
        return "design error"
    except Exception as error:  # the engine broke down: noticed, and said so
        return f"error {type(error).__name__}"
    if got.verdict == a.UNKNOWN != declared.verdict and "was found, but" in (got.reason or ""):
        return "unknown: the explorer finds a hazard, its replay does not"
    if got.verdict == a.REFUTED:
        return f"{got.verdict}: " + ", ".join(sorted({h.name for h in got.hazards}))
    return got.verdict


def bad_run(name: str) -> str | None:
    """The first hazard among random runs on the concrete event structure."""
    from random_oracle import find_bad_run

    declared = DESIGNS[name]
    world = (platform(declared.platform), environment(declared.environment))
    bad = find_bad_run(program(name), random.Random(0), 30, 40, world)
    return None if bad is None else bad[0]


def with_the_machine(name: str) -> str:
    """The declared answer while the machine agrees with the explorer, else what it shows."""
    from random_compare import compare

    declared = DESIGNS[name]
    world = (platform(declared.platform), environment(declared.environment))
    try:
        got = compare(program(name), 0, runs=40, states=BOUNDS.states, sliced=0.0, world=world)
    except Exception as error:
        return f"error {type(error).__name__}"
    return declared.answer if got.wrong is None else got.wrong


def with_the_certificates(name: str) -> str:
    """The declared answer while the obligations of a certificate hold or fail as declared, else which one does not.

    What is unknown because an operation never runs has obligations that hold.
    """
    from fencepost.proofs.certificates.invariant import Limits
    from fencepost.proofs.certificates.writing import hazard

    declared = DESIGNS[name]
    assert declared.environment is None and not declared.strict and declared.verdict in (a.PROVED, a.REFUTED, a.UNKNOWN), name
    try:
        found = hazard(program(name), platform(declared.platform), Limits(2000, 60.0))
    except Exception as error:
        return f"error {type(error).__name__}"
    if (found is None) == (declared.verdict != a.REFUTED):
        return declared.answer
    return "all obligations hold" if found is None else f"{found[0]}: {found[1].check.what} is not ordered"


def in_one_run(name: str, home: str) -> str:
    """The hazards of the run in which the threads move in the declared order, as one engine sees them."""
    made = program(name)
    player = events.Player(made)
    names = [thread.name for thread in made.threads]
    steps: list[a.Step] = []
    try:
        for moves in DESIGNS[name].order:
            t = names.index(moves)
            answers = player.possible_answers(t)
            steps.append(a.Step(t, player.pc(t), answers[0] if answers else None))
            player.step(steps[-1])
        kinds = _events_see(made, a.Run(tuple(steps))) if home == EVENTS else _explorer_sees(made, steps)
    except events.DesignError:
        return "design error"
    except Exception as error:
        return f"error {type(error).__name__}"
    return f"in this run: {', '.join(sorted(kinds)) or 'ordered'}"


def _events_see(made: p.Program, run: a.Run) -> set[str]:
    structure = events.execute(made, run)
    return {events.hazard_of(structure, *pair).name for pair in events.conflicts(structure)}


def _explorer_sees(made: p.Program, steps: Sequence[a.Step]) -> set[str]:
    """Follow the steps in the plain search of each location."""
    from fencepost.proofs.explore.locations import locations
    from fencepost.proofs.explore.search import Search
    from fencepost.proofs.explore.setting import Setting

    setting = Setting(made)
    found: set[str] = set()
    for location in locations(made):
        search = Search(setting, location, sliced=False, reduce=False)
        states = [search.start()]
        for step in steps:
            after = [n for s in states if s.pc[step.thread] == step.node for n in search._macro(s, step.thread)]
            kinds = {n.hazard[0] for n in after if n.hazard is not None}
            if "EMPTY" in kinds:
                raise events.DesignError("a get from an empty cell")
            found |= {f"{kind[1]}A{kind[0]} {location.label(made)}" for kind in kinds if len(kind) == 2}
            states = [n for n in after if n.hazard is None]
            ended = [n for n in states if n.pc[step.thread] < 0]
            states = [n for n in states if n.pc[step.thread] >= 0]
            states += [n for s in ended for n in search._macro(s, step.thread)]
    return found


REFUSED = "refused, and named"


def tampered(name: str) -> str:
    """What `verify` says of a certificate in which something was changed (tests/certificate_tampering.py)."""
    from certificate_tampering import TAMPERED, report_of

    try:
        failures = report_of(name).failures
    except Exception as error:
        return f"error {type(error).__name__}"
    named = any(TAMPERED[name][1] in failure for failure in failures)
    return REFUSED if named else f"refused: {failures[0]}" if failures else "verified"


class Seen(NamedTuple):
    """What one design answers with the rule and without it."""

    design: str
    declared: str
    without: str

    @property
    def red(self) -> bool:
        """Whether the design notices."""
        return self.without != self.declared


def look(rule: Rule, names: Sequence[str]) -> list[Seen]:
    """The answers of the designs without the rule."""
    if rule.home == LANGUAGE:
        return _traced_without(rule, names)
    if rule.home == VERIFY:
        with switched_off(*rule.changes):
            return [Seen(name, REFUSED, tampered(name)) for name in names]
    for name in names:
        program(name)
    with switched_off(*rule.changes):
        return [Seen(name, DESIGNS[name].answer, answer_of(name, rule.home)) for name in names]


def _traced_without(rule: Rule, names: Sequence[str]) -> list[Seen]:
    """The same for a rule of the language: what a trace without it writes down is decided with all other rules in place."""
    seen = []
    for name in names:
        before = _PROGRAMS.pop(name, None)
        try:
            with switched_off(*rule.changes):
                program(name)
            seen.append(Seen(name, DESIGNS[name].answer, answer_of(name)))
        except fp.DesignError as error:
            seen.append(Seen(name, DESIGNS[name].answer, f"error DesignError: {error}"))
        finally:
            _PROGRAMS.pop(name, None)
            if before is not None:
                _PROGRAMS[name] = before
    return seen


def both(rule: Rule, rules: Sequence[Rule]) -> list[Seen]:
    """For a rule of the explorer that the event structure has under the same name: the answers without either."""
    twin = next((x for x in rules if x.home == EVENTS and x.says == rule.says), None)
    if twin is None or rule.home != EXPLORER:
        return []
    with switched_off(*rule.changes, *twin.changes):
        return [Seen(name, DESIGNS[name].answer, answer_of(name)) for name in rule.red if not DESIGNS[name].order]
