"""Folders of designs as tests: one item for each declared variant, red when it is not answered as declared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fencepost import assertions
from fencepost.check import OK, OPEN, Case, cases, code_of, decide
from fencepost.errors import InputError
from fencepost.loader import Target, load
from fencepost.report.summary import closing_line, headline


class DesignFile(pytest.File):
    """A file of designs."""

    def collect(self) -> Iterator[VariantItem]:
        """One item for each declared variant; a design without variants is one item with its defaults."""
        try:
            for target in load([str(self.path)]):
                for case in cases([target]):
                    name = f"{target.design.rpartition('::')[2]}[{case.title or 'defaults'}]"
                    yield VariantItem.from_parent(self, name=name, target=target, case=case)
        except InputError as error:
            # Files below a folder of designs may be helpers that hold none.
            if "no design in this file" not in str(error):
                raise self.CollectError(str(error)) from None


class VariantItem(pytest.Item):
    """One variant of one design. Markers and options apply to it as to any test."""

    def __init__(self, *, target: Target, case: Case, **more: Any) -> None:
        super().__init__(**more)
        self.target = target
        self.case = case
        self.add_marker("fencepost")

    def runtest(self) -> None:
        """Decide the variant. Raises `VerdictError` or `Inconclusive` when it is not answered as declared."""
        settings = assertions.current()
        outcome = decide(
            msgspec.structs.replace(
                self.case, engine=settings.engine, budget=settings.budget, steps=settings.steps,
                examples=settings.examples, seed=settings.seed, replay=settings.replay,
            )
        )
        if outcome.answer is None:
            raise (RuntimeError if outcome.crashed else InputError)(outcome.error)
        settings.outcomes.append(outcome)
        code = code_of(outcome)
        if code != OK:
            kind = assertions.Inconclusive if code == OPEN else assertions.VerdictError
            text = f"{headline(outcome)}\n{closing_line([outcome], None)}\n\n{assertions.report(outcome)}"
            raise kind(text, (outcome,))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The report alone: the traceback would show this file."""
        if isinstance(excinfo.value, (assertions.VerdictError, InputError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The design function's place."""
        line = self.target.place.rpartition(":")[2]
        return self.path, int(line) - 1 if line.isdigit() else None, self.name
