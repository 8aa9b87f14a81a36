"""What a body could keep between turns: the Python state that it can reach."""

from __future__ import annotations

import functools
import itertools
import sys
from array import array
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from types import CellType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
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
    _function(function, found, set(), {})
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names whose fingerprint differs."""
    return [name for name, value in after.items() if name not in before or before[name] != value]


def _function(function: Any, found: dict[str, Any], seen: set[int], known: Known) -> None:
    while isinstance(function, (MethodType, functools.partial)):
        function = function.__func__ if isinstance(function, MethodType) else function.func
    if not isinstance(function, FunctionType) or id(function) in seen or is_own(function.__code__.co_filename):
        return
    seen.add(id(function))
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        found.setdefault(name, fingerprint(value, known=known))
        _function(value, found, seen, known)
    for default in function.__defaults__ or ():
        if not isinstance(default, _PLAIN):
            found.setdefault(f"a default of {function.__name__}", fingerprint(default, known=known))
    names, variables = _names(code), function.__globals__
    for name in names & variables.keys():
        value = variables[name]
        if isinstance(value, ModuleType):
            if _users(value.__name__):
                for below in names & vars(value).keys():
                    _global(f"{name}.{below}", vars(value)[below], found, seen, known)
        elif value is not None:
            _global(name, value, found, seen, known)


def _global(name: str, value: Any, found: dict[str, Any], seen: set[int], known: Known) -> None:
    if isinstance(value, FunctionType):
        if _users(value.__module__):
            _function(value, found, seen, known)
    elif not isinstance(value, ModuleType):
        found.setdefault(name, fingerprint(value, known=known))


@functools.cache
def _users(module: str | None) -> bool:
    """Whether a module is neither of the standard library nor installed: its variables may be a design's."""
    top = (module or "").partition(".")[0]
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return top not in _OTHERS and "site-packages" not in file


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> set[str]:
    """Global names of a function and of the functions inside it."""
    return set(code.co_names).union(*(_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


Known = dict[tuple[int, int], tuple[Any, Any]]
"""Of what was looked at already, by identity and depth: the value, which thus lives on, and its fingerprint."""


def fingerprint(value: Any, depth: int = _DEPTH, known: Known | None = None) -> Any:
    """A value that differs when `value` was changed in place, as deep as it can be seen.

    `known`: shared by calls between which nothing runs that could change anything.
    """
    kind = type(value)
    if kind in _identities:
        return id(value)
    if isinstance(value, _PLAIN):
        return (kind.__name__, value)
    if depth == 0 or (kind is FunctionType and not value.__closure__):
        return id(value)
    known = {} if known is None else known
    found = known.get((id(value), depth))
    if found is None:
        found = known[id(value), depth] = value, _looked_at(value, kind, depth, known)
    return found[1]


def _looked_at(value: Any, kind: type, depth: int, known: Known) -> Any:
    if isinstance(value, (list, tuple, deque)):
        return (id(value), len(value), [fingerprint(v, depth - 1, known) for v in itertools.islice(value, _WIDTH)])
    if isinstance(value, dict):
        items = itertools.islice(value.items(), _WIDTH)
        return (id(value), len(value), [(fingerprint(k, depth - 1, known), fingerprint(v, depth - 1, known)) for k, v in items])
    if isinstance(value, (set, frozenset)):
        return (id(value), len(value), {v if isinstance(v, _PLAIN) else id(v) for v in value})
    if hasattr(value, "__next__"):
        return object()  # how far an iterator is cannot be seen; what uses one from outside keeps state
    if kind.__module__.startswith("fencepost.model.language"):
        _identities.add(kind)
        return id(value)
    kept = _kept(value)
    return (id(value), [(name, fingerprint(one, depth - 1, known)) for name, one in kept.items()]) if kept else id(value)


def _kept(value: Any) -> dict[str, Any]:
    """What an object keeps, by name: its attributes and slots; what a method is bound to, a partial call's arguments, and the
    variables that a function closes over."""
    if isinstance(value, MethodType):
        return {"self": value.__self__}
    if isinstance(value, functools.partial):
        return {"function": value.func, "arguments": value.args, **value.keywords}
    if isinstance(value, FunctionType):
        if is_own(value.__code__.co_filename):
            return {}
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return {name: cell.cell_contents for name, cell in cells if cell != _NOT_BOUND}
    if isinstance(value, ContextVar):
        return {"value": value.get(None)}
    if isinstance(value, (bytearray, array)):
        return {"content": bytes(value)}
    if isinstance(value, type):
        users = [kind for kind in value.__mro__ if kind.__module__.partition(".")[0] not in _OTHERS]
        return {f"{kind.__qualname__}.{name}": one for kind in users for name, one in vars(kind).items() if name[:2] != "__" and not _descriptor(one)}
    found = dict(getattr(value, "__dict__", None) or {})
    found.update(_kept(type(value)))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


_NOT_BOUND = CellType()
_OTHERS = sys.stdlib_module_names | {"builtins", "fencepost"}
"""Whose classes keep nothing that a body would change."""


def _descriptor(value: Any) -> bool:
    return isinstance(value, (FunctionType, staticmethod, classmethod, property, MemberDescriptorType, GetSetDescriptorType))
