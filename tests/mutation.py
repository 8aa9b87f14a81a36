"""Switch one rule of the semantics off: which small designs notice? `python tests/mutation.py` prints the table.

A rule is one place in the source, and switching it off is one replacement of text in one function, found exactly once
or refused. The function's code is swapped in place, so that every name that is bound to it runs the changed one.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import contextlib
import importlib
import inspect
import random
import sys
import textwrap
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import fencepost as fp
from fencepost.model import answer as a
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.platform import environment, platform
from fencepost.proofs.check import check
from fencepost.proofs.explore.search import Budget

import mutation_designs_language  # noqa: F401
import mutation_designs_meetings  # noqa: F401
from mutation_designs import DESIGNS, Declared

LANGUAGE, LOWERING, EXPLORER, EVENTS, MACHINE = "language", "lowering", "explorer", "events", "machine"
"""Where a rule lives: model/language (designs are traced again without it), model/operations (explorer and event structure
read it), the explorer, the concrete event structure, the operational machine."""

BOUNDS = Budget(20_000, 60.0)


class Change(NamedTuple):
    """Replace `old`, which occurs once in the source of the function, by `new`. `where` is "module:Class.function"."""

    where: str
    old: str
    new: str


class Rule(NamedTuple):
    """One rule: what it says and where that is documented, the change that switches it off, who notices."""

    says: str
    source: str
    home: str
    changes: tuple[Change, ...]
    red: tuple[str, ...]
    """Names of one to three designs that do not get their declared answer without the rule."""
    covers: tuple[str, ...] = ()
    """Classes of effects, operations and questions that the rule is part of."""

    @property
    def name(self) -> str:
        """A short, unique name."""
        return f"{self.home}: {self.says}"


class Stale(Exception):
    """The table names a text that the source no longer has once."""


def _function(where: str) -> types.FunctionType:
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    if isinstance(found, property):
        found = found.fget
    if not isinstance(found, types.FunctionType):
        raise Stale(f"{where} is no function")
    return found


def changed_code(where: str, changes: Sequence[Change]) -> tuple[types.FunctionType, types.CodeType]:
    """The function and its code with the texts replaced. Raises `Stale` when one is not there exactly once."""
    function = _function(where)
    source = textwrap.dedent(inspect.getsource(function))
    for change in changes:
        if source.count(change.old) != 1:
            raise Stale(f"{where}: {change.old!r} occurs {source.count(change.old)} times; bring the table up to date")
        source = source.replace(change.old, change.new)
    tree = ast.parse(source)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    flags = __future__.annotations.compiler_flag
    made: dict[str, Any] = {}
    within = "__class__" in function.__code__.co_freevars  # super() without arguments looks there
    if within:
        tree.body = ast.parse("class Holder:\n    pass").body
        tree.body[0].body = [definition]  # type: ignore[attr-defined]
    exec(compile(tree, f"<{where} changed>", "exec", flags, True), function.__globals__, made)
    found = vars(made["Holder"])[definition.name] if within else made[definition.name]
    code: types.CodeType = found.__code__
    if code.co_freevars != function.__code__.co_freevars:
        raise Stale(f"{where}: a function with free variables cannot be swapped")
    return function, code


@contextlib.contextmanager
def switched_off(*changes: Change) -> Iterator[None]:
    """Run with the changes in place."""
    before: list[tuple[types.FunctionType, types.CodeType]] = []
    try:
        for where in dict.fromkeys(change.where for change in changes):
            function, code = changed_code(where, [change for change in changes if change.where == where])
            before.append((function, function.__code__))
            function.__code__ = code
        yield
    finally:
        for function, code in reversed(before):
            function.__code__ = code


# ---------------------------------------------------------------- what a design answers


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


def covered() -> set[str]:
    """Names of the classes that some rule of the table is part of."""
    from mutation_rules import RULES

    return {name for rule in RULES for name in rule.covers}


# ---------------------------------------------------------------- the table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a rule is switched off and none of its designs notices."""
    from mutation_rules import RULES

    parser = argparse.ArgumentParser(description="Switch each rule off; which designs notice?")
    parser.add_argument("-k", default="", help="only rules whose name contains this")
    parser.add_argument("--all", action="store_true", help="try every design, not only those named beside the rule")
    options = parser.parse_args(arguments)
    chosen = [rule for rule in RULES if options.k in rule.name]
    if not chosen:
        print(f"no rule contains {options.k!r}; see tests/mutation_rules.py", file=sys.stderr)
        return 2
    caught = 0
    for rule in chosen:
        seen = look(rule, list(DESIGNS) if options.all else rule.red)
        reds = [one for one in seen if one.red]
        caught += bool(reds) and (options.all or len(reds) == len(seen))
        print(f"{'caught' if reds else 'MISSED'}  {rule.home:<9} {rule.says}  ({rule.source})")
        print(f"{'':8}{', '.join(c.where.removeprefix('fencepost.') for c in rule.changes)}")
        for one in reds if options.all else seen:
            print(f"{'':8}{one.design}: {one.declared} -> {one.without}")
        for one in both(rule, RULES):
            print(f"{'':8}{one.design}, without it in both engines: {one.declared} -> {one.without}")
        sys.stdout.flush()
    print(f"{caught} of {len(chosen)} rules: each named design notices ({100 * caught / len(chosen):.0f} %)")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["Change", "Declared", "Rule", "Seen", "Stale", "answer_of", "look", "program", "switched_off"]
