"""Answers as annotations of a GitHub workflow run: one command line for each answer that fails or stays open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from fencepost.check import FAILED, OK, Outcome, code_of
from fencepost.model.program import Place
from fencepost.report.summary import headline
from fencepost.report.words import missing_edge


def write_annotations(outcomes: Sequence[Outcome], out: TextIO) -> None:
    """`::error file=...,line=...,title=...::text`, at the hazard's second access where it has a place."""
    for outcome in outcomes:
        answer = outcome.answer
        if answer is None:
            out.write(f"::error title=fencepost::{_data(outcome.error or 'no answer')}\n")
            continue
        code = code_of(outcome)
        if code == OK:
            continue
        hazard = answer.hazards[0] if answer.hazards else None
        text = missing_edge(hazard, outcome.program) if hazard is not None else answer.reason or headline(outcome)
        place = hazard.second.places[-1] if hazard is not None and hazard.second.places else None
        out.write(annotation("error" if code == FAILED else "warning", place, headline(outcome), text))


def annotation(level: str, place: Place | None, title: str, text: str) -> str:
    """One workflow command: `level` is error, warning or notice; `place` the line that it is shown at."""
    where = f"file={_property(place.file)},line={place.line}," if place is not None else ""
    return f"::{level} {where}title={_property(title)}::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
