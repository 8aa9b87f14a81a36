"""Errors of the language: one line with file and line, what is wrong, and what to do about it."""

from __future__ import annotations

import functools
import os
import sys
from types import FrameType
from typing import NoReturn

_OWN = os.path.dirname(os.path.realpath(__file__)) + os.sep
own_files: dict[str, bool] = {}
"""Source files seen so far, by whether they are the language's own."""


class DesignError(ValueError):
    """A design that means nothing. The text is one line, `path:line: what is wrong; what to do`."""


class DesignWarning(UserWarning):
    """A design that is probably not written the way it should be."""


def is_own(filename: str) -> bool:
    """Whether a source file belongs to the language itself rather than to its user."""
    known = own_files.get(filename)
    if known is None:
        known = own_files[filename] = os.path.realpath(filename).startswith(_OWN)
    return known


def user_frame() -> FrameType | None:
    """The innermost frame that is not the language's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


_real = functools.cache(os.path.realpath)  # every object of a design asks, for the same few files


def shown(filename: str, line: int) -> str:
    """`path:line` as a reader at the current directory writes it: relative when the file lies below, else absolute."""
    if filename.startswith("<"):
        return f"{filename}:{line}"
    path = _real(filename)
    here = _real(os.getcwd()) + os.sep
    return f"{path[len(here):] if path.startswith(here) else path}:{line}"


def here() -> str:
    """`path:line` of the user's innermost frame."""
    frame = user_frame()
    return "<unknown>:0" if frame is None else shown(frame.f_code.co_filename, frame.f_lineno)


def fail(what: str, place: str | None = None) -> NoReturn:
    """Raise `DesignError` at `place`, by default the user's innermost frame."""
    raise DesignError(f"{place or here()}: {what}")


class Fixed:
    """Objects of the language: what a user hung onto them would live on unseen from turn to turn."""

    def __setattr__(self, name: str, value: object) -> None:
        if name[0] != "_":
            fail(f"{self!r}.{name} is set, which would last from turn to turn; keep what lasts in a d.cell or d.cursor")
        object.__setattr__(self, name, value)
