"""Each rule of the semantics, switched off alone, turns every design red that is named beside it (tests/mutation)."""

from __future__ import annotations

import ast
import inspect
import itertools
import typing
from collections.abc import Iterator
from types import FunctionType

import pytest
from fencepost.model import effects, program
from fencepost.model.answer import PROVED, REFUTED
from fencepost.model.events.hosts import HostOperations
from fencepost.model.events.meetings import Meetings
from fencepost.model.events.questions import HostTests
from fencepost.model.events.references import References
from fencepost.model.events.state import Player
from fencepost.proofs.certificates.accessing import Accessing
from fencepost.proofs.certificates.machine import Machine
from fencepost.proofs.certificates.meetings import Meetings as CertificateMeetings
from fencepost.proofs.explore.compile import ThreadCompiler
from fencepost.proofs.explore.memory import LocationRules
from fencepost.proofs.explore.pending import Device
from fencepost.proofs.explore.pending_calls import MeetingCompiler
from fencepost.proofs.explore.pending_memory import MeetingRules

from certificate_tampering import TAMPERED
from mutation.answers import answer_of, both, look
from mutation.designs import DESIGNS
from mutation.rules import RULES
from mutation.switching import (
    CERTIFICATES,
    EVENTS,
    EXPLORER,
    LOWERING,
    MACHINE,
    VERIFY,
    Change,
    Stale,
    changed_code,
    switched_off,
)

EFFECTS = {cls.__name__ for cls in typing.get_args(effects.Effect)}
OPERATIONS = {cls.__name__ for cls in typing.get_args(program.Operation)}
QUESTIONS = {cls.__name__ for cls in typing.get_args(program.Question)}
COVERED = {name for rule in RULES for name in rule.covers}
PARTS = 6


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_gets_its_answer(name: str) -> None:
    """With all rules in place; for a proof also the concrete event structure is asked."""
    assert answer_of(name, EVENTS) == DESIGNS[name].answer


@pytest.mark.parametrize("part", range(PARTS))
def test_every_rule_is_missed(part: int) -> None:
    """Without the rule each named design gets another answer: none is named in vain, and no rule is untested."""
    unnoticed = [
        f"{rule.name}: {one.design} is still {one.without}"
        for rule in RULES[part::PARTS]
        for one in look(rule, rule.red)
        if not one.red
    ]
    assert not unnoticed, "\n".join(unnoticed)


def test_every_rule_names_one_to_three_designs() -> None:
    """All of the table, under names of their own."""
    assert all(1 <= len(rule.red) <= 3 for rule in RULES)
    assert all(name in (TAMPERED if rule.home == VERIFY else DESIGNS) for rule in RULES for name in rule.red)
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


def test_every_design_is_named() -> None:
    """A design that no rule needs is dead weight, except as the other half of a pair."""
    named = set(itertools.chain.from_iterable(rule.red for rule in RULES))
    assert len(set(DESIGNS) - named) <= len(DESIGNS) // 3, sorted(set(DESIGNS) - named)


@pytest.mark.parametrize("classes", [EFFECTS, OPERATIONS, QUESTIONS], ids=["effects", "operations", "questions"])
def test_every_class_has_a_rule(classes: set[str]) -> None:
    """A new effect, operation or question without a rule in the table fails here."""
    assert classes - COVERED == set()


@pytest.mark.parametrize("classes", [OPERATIONS, QUESTIONS], ids=["operations", "questions"])
def test_the_machine_has_a_rule_for_every_class(classes: set[str]) -> None:
    """The machine says itself what an operation does: each of its readings can be switched off, too."""
    mine = {name for rule in RULES if rule.home == MACHINE for name in rule.covers}
    assert classes - mine == set()


@pytest.mark.parametrize("name", [name for name, declared in DESIGNS.items() if not declared.held])
def test_the_machine_agrees_on_every_design(name: str) -> None:
    """Its wrong values are the explorer's hazards, and a proved design shows none."""
    assert answer_of(name, MACHINE) == DESIGNS[name].answer


CERTIFIED = [
    name for name, declared in DESIGNS.items()
    if declared.environment is None and not declared.order and not declared.strict and declared.verdict in (PROVED, REFUTED)
]  # fmt: skip


@pytest.mark.parametrize("name", CERTIFIED)
def test_the_certificates_agree_on_every_design(name: str) -> None:
    """Their relation, which shares no code with the explorer, has a hazard where and only where one is declared."""
    assert answer_of(name, CERTIFICATES) == DESIGNS[name].answer


def test_without_a_rule_in_both_engines_the_verdict_turns() -> None:
    """Without an edge in explorer and event structure a safe design is refuted, without an access an unsafe one proved."""
    seen = [(rule.says, one) for rule in RULES for one in both(rule, RULES)]
    refuted = {says for says, one in seen if one.declared in ("proved", "masked") and one.without.startswith("refuted")}
    proved = {says for says, one in seen if one.declared.startswith("refuted") and one.without in ("proved", "masked")}
    assert len(refuted) >= 20 and len(proved) >= 5, (sorted(refuted), sorted(proved))


@pytest.mark.parametrize("home", [EXPLORER, EVENTS])
def test_each_engine_has_a_rule_for_each_effect(home: str) -> None:
    """An effect is read by both engines, each in its own way."""
    mine = {name for rule in RULES if rule.home in (home, LOWERING) for name in rule.covers}
    assert EFFECTS - mine == set()


# ---------------------------------------------------------------- no line without a rule

BITS = ("tb[", "streams[", "calls[", "free |", "every |", "bit |")
MASKS = ("tb[", "streams[", "calls[", "events[", "free |", "| mask", "mask |", "block.free", "stored |", "every |", "carried |")
CLOCKS = ("self.clocks.sync(", "self.clocks.absorb(", "self._join(", "self._add(", "merged(")
HARMLESS = {
    'self._join(thread, ("order", key))': "the order of calls, for feasibility only",
    "self._add(thread, *self._ordered)": "the order of calls, for feasibility only",
    "self.clocks.absorb(thread, clock)": "of `_join`, which is switched off at its callers",
    "self.seen[key] = now if before is None else merged(before, now)": "of `_add`, which is switched off at its callers",
    "self.clocks.absorb(step.thread, clock)": "of `_join_fifo`, which is switched off at its callers",
    "self.clocks.sync(step.thread, clock, fifo)": "of `_join_fifo`, which is switched off at its callers",
    'self._join(fifo, ("order", ("word", o.flag)))': "the order of meetings, for feasibility only",
    'self._add(agent, ("order", ("word", o.flag)))': "the order of meetings, for feasibility only",
    'self._join(fifo, ("order", ("channel", o.channel)))': "the order of meetings, for feasibility only",
    'self._add(fifo, ("order", ("channel", o.channel)))': "the order of meetings, for feasibility only",
    "self.clocks.absorb(fifo, self.taken[o.channel][-room])": "room in a channel, for feasibility only",
    "s.queues[k] = (items, free, last_get, every | s.tb[t])": "a test before a test: they could come in the other order",
    "s.streams[stream] |= s.tb[self.t]": "at the free: whoever gets the block comes after the free itself",
    "s.streams[queue] |= s.tb[self.t]": "the same with one hardware queue",
}
"""Statements that no design can notice, and why."""


CHANGED: dict[str, list[str]] = {}
for _rule in RULES:
    for _change in _rule.changes:
        CHANGED.setdefault(_change.where, []).append(_change.old)


def _functions(cls: type) -> Iterator[tuple[str, FunctionType]]:
    for name, member in vars(cls).items():
        if isinstance(member, FunctionType):
            yield f"{cls.__module__}:{cls.__qualname__}.{name}", member


def _statements(function: FunctionType) -> Iterator[str]:
    """The simple statements of a function, nested ones included, as text."""
    import textwrap

    source = textwrap.dedent(inspect.getsource(function))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return)):
            text = ast.get_source_segment(source, node)
            if text is not None and '"""' not in text:
                yield text


def _touched(where: str, statement: str) -> bool:
    """Whether some rule changes (a part of) the statement."""
    flat = " ".join(statement.split())
    return any(old in statement or flat in " ".join(old.split()) for old in CHANGED.get(where, ()))


@pytest.mark.parametrize(("classes", "marks", "joins"), [
    ((ThreadCompiler, LocationRules, Device, MeetingCompiler, MeetingRules), BITS, "|"),
    ((Player, HostOperations, HostTests, References, Meetings), CLOCKS, "("),
    ((Machine, Accessing, CertificateMeetings), MASKS, "|"),
], ids=["explorer", "events", "certificates"])  # fmt: skip
def test_every_line_that_makes_an_edge_is_in_the_table(
    classes: tuple[type, ...], marks: tuple[str, ...], joins: str
) -> None:
    """A new line that joins bits or clocks needs a rule that switches it off."""
    bare = [
        f"{where}: {' '.join(statement.split())}"
        for cls in classes
        for where, function in _functions(cls)
        for statement in _statements(function)
        if joins in statement and any(mark in statement for mark in marks) and statement not in HARMLESS
        if not _touched(where, statement)
    ]
    assert not bare, "\n".join(bare)


# ---------------------------------------------------------------- the facility itself


def test_a_rule_comes_back() -> None:
    """Behind the block all is as before, also when something fails inside."""
    change = RULES[0].changes[0]
    function, _ = changed_code(change.where, [change])
    before = function.__code__
    with pytest.raises(KeyError), switched_off(change):
        assert function.__code__ is not before
        raise KeyError
    assert function.__code__ is before


def test_a_table_that_is_out_of_date_says_so() -> None:
    """A text that is not there, or more than once, is no silent pass."""
    where = RULES[0].changes[0].where
    with pytest.raises(Stale, match="occurs 0 times"):
        changed_code(where, [Change(where, "no such text", "")])
    with pytest.raises(Stale, match=r"occurs \d+ times"):
        changed_code(where, [Change(where, "e", "")])
