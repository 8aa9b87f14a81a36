"""What a body could keep between turns: the Python state that it can reach."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from fencepost.model.language.errors import is_own

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_DEPTH = 6
_WIDTH = 2_000
_identities: set[type] = set()
"""Classes of the language whose objects count by identity, as far as any was met."""


def state_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Fingerprints of the variables that a body can reach from outside: its own and its helpers' closures, the module's
    variables that they name, and their defaults. Objects of the language count by identity."""
    found: dict[str, Any] = {}
    _function(function, found, set())
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names whose fingerprint differs."""
    return [name for name, value in after.items() if name not in before or before[name] != value]


def _function(function: Any, found: dict[str, Any], seen: set[int]) -> None:
    if not isinstance(function, FunctionType) or id(function) in seen or is_own(function.__code__.co_filename):
        return
    seen.add(id(function))
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        found.setdefault(name, fingerprint(value))
        _function(value, found, seen)
    for default in function.__defaults__ or ():
        if not isinstance(default, _PLAIN):
            found.setdefault(f"a default of {function.__name__}", fingerprint(default))
    for name in _names(code):
        value = function.__globals__.get(name)
        if isinstance(value, FunctionType):
            if value.__globals__ is function.__globals__:
                _function(value, found, seen)
        elif value is not None and not isinstance(value, type) and not hasattr(value, "__spec__"):
            found.setdefault(name, fingerprint(value))


def _names(code: CodeType) -> set[str]:
    """Global names of a function and of the functions inside it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def fingerprint(value: Any, depth: int = _DEPTH) -> Any:
    """A value that differs when `value` was changed in place, as deep as it can be seen."""
    kind = type(value)
    if kind in _identities:
        return id(value)
    if isinstance(value, _PLAIN):
        return (kind.__name__, value)
    if depth == 0:
        return id(value)
    if isinstance(value, (list, tuple, deque)):
        return (id(value), len(value), [fingerprint(v, depth - 1) for v in itertools.islice(value, _WIDTH)])
    if isinstance(value, dict):
        items = itertools.islice(value.items(), _WIDTH)
        return (id(value), len(value), [(fingerprint(k, depth - 1), fingerprint(v, depth - 1)) for k, v in items])
    if isinstance(value, (set, frozenset)):
        return (id(value), len(value), {v if isinstance(v, _PLAIN) else id(v) for v in value})
    if hasattr(value, "__next__"):
        return object()  # how far an iterator is cannot be seen; what uses one from outside keeps state
    if kind.__module__.startswith("fencepost.model.language"):
        _identities.add(kind)
        return id(value)
    if callable(value):
        return id(value)
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        return (id(value), fingerprint(attributes, depth - 1)[1:])
    return id(value)
