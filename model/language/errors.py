"""Errors of the language: one line with file and line, what is wrong, and what to do about it."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_OWN = os.path.dirname(os.path.realpath(__file__)) + os.sep
own_files: dict[str, bool] = {contextlib.__file__: True}
"""Source files seen so far, by whether they are the language's own; what calls a user's context manager is nobody's text either."""


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


def in_language(filename: str) -> bool:
    """Whether a source file is one of the language itself."""
    return is_own(filename) and filename != contextlib.__file__


def user_frame() -> FrameType | None:
    """The innermost frame that is not the language's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


Text = tuple[str, int, str]
"""File, line and function."""
_texts: dict[tuple[int, int], tuple[CodeType, Text]] = {}
_MANY = 100_000


def text_of(frame: FrameType) -> Text:
    """The text that a frame is at. It is found once for each instruction: all variants of a design share their code."""
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    known = _texts.get(key)
    if known is None:
        if len(_texts) >= _MANY:
            _texts.clear()
        # The code lives on with what is known of it, so that no other code gets its identity.
        known = _texts[key] = (code, (code.co_filename, frame.f_lineno, code.co_name))
    return known[1]


def end_of(code: CodeType) -> Text:
    """The last line of a function."""
    known = _texts.get((id(code), -1))
    if known is None:
        last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
        known = _texts[id(code), -1] = (code, (code.co_filename, last, code.co_name))
    return known[1]


_real = functools.cache(os.path.realpath)  # every object of a design asks, for the same few files


@functools.cache
def folder(filename: str) -> str:
    """The folder of a source file."""
    return os.path.dirname(os.path.realpath(filename))


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
    return "<unknown>:0" if frame is None else shown(*text_of(frame)[:2])


raised: list[DesignError] = []
"""The errors of the run that is going on: a body that catches one does not go on as if nothing had been wrong."""


def fail(what: str, place: str | None = None) -> NoReturn:
    """Raise `DesignError` at `place`, by default the user's innermost frame."""
    error = DesignError(f"{place or here()}: {what}")
    raised.append(error)
    raise error


class Fixed:
    """Objects of the language: what a user hung onto them would live on unseen from turn to turn."""

    _asked: str | None = None
    """Of what has a value that Python's `if x:` and `x == y` would mean: how to ask for it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name[0] != "_" or not is_own(sys._getframe(1).f_code.co_filename):
            fail(f"{self!r}.{name} is set, which would last from turn to turn; keep what lasts in a d.cell or d.cursor")
        object.__setattr__(self, name, value)

    def __bool__(self) -> bool:
        if self._asked is not None:
            fail(f"{self!r} has no truth value; {self._asked}, or compare it with None: `is not None`")
        return True

    def __eq__(self, other: object) -> bool:
        if self._asked is not None and self is not other and other is not None:
            fail(f"{self!r} cannot be compared with {other!r}; {self._asked}")
        return self is other

    __hash__ = object.__hash__


class NotModelled:
    """What `x.item()` returns: the value is not modelled, and whatever asks for it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<value of {self._name!r}>"

    def _refuse(self, *_: object) -> NoReturn:
        fail(f"the value of {self._name!r} is not modelled; ask with d.choose what it decides")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __int__ = __index__ = __float__ = __str__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __floordiv__ = __truediv__ = __neg__ = __iter__ = _refuse
    __format__ = _refuse


class _Bound:
    """A question of an object, to be called: `if q.full:` forgot that."""

    __slots__ = ("_function", "_owner")

    def __init__(self, function: Callable[..., Any], owner: object) -> None:
        self._function, self._owner = function, owner

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(self._owner, *arguments, **named)

    def __bool__(self) -> bool:
        name = self._function.__name__
        fail(f"{self._owner!r}.{name} is a question that is not asked; write {name}()")


class _Question:
    """A method that asks: called as any other, and an error as a truth value."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self._function if owner is None else _Bound(self._function, owner)


def question(method: F) -> F:
    """Decorates a method that answers yes or no."""
    made: Any = _Question(method)
    return cast("F", made)
