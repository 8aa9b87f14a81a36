"""Every operation has its one place, and every engine and the reference page know it."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest
from fencepost.model import effects, program
from fencepost.model.events import state as concrete
from fencepost.model.language import Design
from fencepost.model.language import reference as language
from fencepost.model.operations import RULES
from fencepost.model.operations.reference import render
from fencepost.model.operations.registry import QUESTIONS
from fencepost.proofs.explore.pending_calls import MeetingCompiler

ROOT = Path(__file__).resolve().parent.parent
OPERATIONS = typing.get_args(program.Operation)
EFFECTS = typing.get_args(effects.Effect)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_a_rule(operation: type) -> None:
    """The registry covers the whole language."""
    assert operation in RULES


def test_every_question_has_a_rule() -> None:
    """So do the questions."""
    assert set(typing.get_args(program.Question)) == set(QUESTIONS)


@pytest.mark.parametrize("effect", EFFECTS)
def test_the_explorer_reads_every_effect(effect: type) -> None:
    """One method per effect."""
    assert callable(getattr(MeetingCompiler, "_" + effect.__name__.lower(), None))


@pytest.mark.parametrize("effect", EFFECTS)
def test_the_event_structure_reads_every_effect(effect: type) -> None:
    """One entry per effect."""
    assert effect in concrete._EFFECTS


def test_the_reference_page_is_up_to_date() -> None:
    """docs/reference.md is what the registry renders."""
    assert (ROOT / "docs" / "reference.md").read_text() == render()


def test_the_page_of_the_language_is_up_to_date() -> None:
    """docs/language.md is what signatures and docstrings say; `make reference` writes both pages."""
    assert (ROOT / "docs" / "language.md").read_text() == language.render()


def test_the_page_of_the_language_leaves_nothing_out() -> None:
    """Every public call of a design is on it, and each has a text."""
    page = language.render()
    calls = [name for name in dir(Design) if not name.startswith("_") and callable(getattr(Design, name))]
    assert len(calls) > 40
    assert [name for name in calls if f"**`d.{name}(" not in page] == []
    assert re.findall(r"\*\*`[^\n]*\n\n\*\*", page) == []  # a signature with no text below it


def test_cited_rules_exist() -> None:
    """Every S-number cited by the registry is a rule of docs/semantics.md."""
    known = set(re.findall(r"\bS\d+\b", (ROOT / "docs" / "semantics.md").read_text()))
    cited = {number for rule in [*RULES.values(), *QUESTIONS.values()] for number in rule.rules}
    assert cited <= known, sorted(cited - known)


def test_switches_have_the_defaults_that_the_page_says() -> None:
    """The table of switches against the profiles and the signatures that it speaks of."""
    import inspect

    from fencepost.model.language import communicators, composites, design, meetings, objects, sharing
    from fencepost.model.operations.switches import IN_DESIGNS, PROFILE
    from fencepost.model.platform import PLATFORMS, SWITCHES, Platform

    assert {s.where: s.values for s in PROFILE} == SWITCHES
    plain = Platform("plain")
    assert {s.where: s.values[0] for s in PROFILE} == {name: getattr(plain, name) for name in SWITCHES}
    assert all(getattr(profile, name) in known for profile in PLATFORMS.values() for name, known in SWITCHES.items())
    calls = {
        "d.stream": design.Design.stream, "d.event": design.Design.event, "d.queue": design.Design.queue,
        "d.graph": composites.Composites.graph, "d.managed": design.Design.managed, "y.copy_": objects.Tensor.copy_,
        "d.communicator": communicators.Communicators.communicator, "d.ipc_queue().put": sharing.IpcQueue.put,
        "d.ipc_queue().get": sharing.IpcQueue.get, "d.callback": meetings.Meetings.callback, "e.record": objects.Event.record,
        "x.view": objects.Tensor.view, "wait_value": objects.Stream.wait_value,
    }  # fmt: skip
    for switch in IN_DESIGNS:
        if not switch.where.endswith("=)"):
            assert switch.where == "d.agent(name) for copies"
            continue
        call, _, argument = switch.where.removesuffix("=)").rpartition("(")
        default = inspect.signature(calls[call]).parameters[argument.rpartition(" ")[2]].default
        said = {"as the version": "None"}.get(switch.values[0], switch.values[0])
        assert str(default) == said, switch.where


def test_every_rule_has_its_place() -> None:
    """Each rule of the semantics page is cited where it is implemented, or said to be left out and on which side that errs."""
    text = (ROOT / "docs" / "semantics.md").read_text()
    rules = set(re.findall(r"^- \*\*(S\d+)\.", text, re.M))
    cited: set[str] = set()
    for file in (ROOT / "model").rglob("*.py"):
        source = file.read_text()
        cited |= set(re.findall(r"\bS\d+\b", source))
        for first, last in re.findall(r"\bS(\d+)(?:-| to )S(\d+)\b", source):
            cited |= {f"S{number}" for number in range(int(first), int(last) + 1)}
    assert len(rules) > 140 and rules <= cited, sorted(rules - cited)


def test_limitations_and_switches_cite_rules_that_exist() -> None:
    from fencepost.model.operations.limitations import LIMITATIONS, WITHOUT_WORDS
    from fencepost.model.operations.switches import IN_DESIGNS, PROFILE

    known = set(re.findall(r"\bS\d+\b", (ROOT / "docs" / "semantics.md").read_text()))
    cited = {number for entry in (*LIMITATIONS, *PROFILE, *IN_DESIGNS) for number in entry.rules} | {rule for rule, _ in WITHOUT_WORDS}
    assert cited <= known, sorted(cited - known)
