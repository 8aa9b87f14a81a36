"""Values of options that several commands take, and progress on standard error."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import click
from fencepost.errors import InputError


class Real(click.FloatRange):
    """A number in a range; `nan` is in none, though it passes every comparison that would refuse it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


SECONDS = Real(0, min_open=True)
"""What `--budget` and `--timeout` take."""


def known_format(_context: click.Context, _option: click.Parameter, value: str) -> str:
    from fencepost.report import FORMATS

    if value not in FORMATS:
        raise InputError(f"no format {value!r}; there are: {', '.join(FORMATS)}")
    return value


def known(kind: str) -> Any:
    def known(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        from fencepost.model import platform

        try:
            getattr(platform, kind)(value)
        except ValueError as error:
            raise InputError(str(error)) from None
        return value

    return known


class Progress:
    """Progress of a long exploration on standard error: once a second on a terminal, else every ten seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if self._last == 0.0 or now - self._last >= (1 if terminal else 10):
            self._last = now
            click.echo(f"\r{text[:78]:<78}\r" if terminal else text, err=True, nl=not terminal)

    def clear(self) -> None:
        """Wipe the line on a terminal, before the report."""
        if self._last and sys.stderr.isatty():
            click.echo("\r" + " " * 78 + "\r", err=True, nl=False)
