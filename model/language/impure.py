"""What a body may not name: clocks, random numbers, files, threads of Python: what does not depend on its questions alone."""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fencepost.model.language.errors import fail, shown
from fencepost.model.language.purity import State, names_of

_BUILTINS = {"id", "hash", "open", "input", "globals", "exec", "eval", "__import__"}
_THREADS = {"threading", "_thread", "multiprocessing", "concurrent", "queue", "_queue"}
_MODULES = _THREADS | {
    "time", "random", "secrets", "uuid", "subprocess", "socket", "gc", "tempfile", "shelve", "sqlite3", "importlib", "numpy.random",
}  # fmt: skip
_OF_MODULES = {"os": {"urandom", "getrandom", "getpid", "times", "open", "mkdir", "listdir", "umask"}, "io": {"open"}, "sys": {"modules"}, "datetime": {"now", "today", "utcnow"}}
"""Of modules that may be named otherwise."""
_ATTRIBUTES = {
    "cache_info", "f_locals", "f_globals", "read_text", "read_bytes", "write_text", "write_bytes",
}  # fmt: skip
"""What tells how often something was called, what other variables hold than those that are named, or what a file does."""
_HERE = "a thread of a design is @d.loop or @d.script; its locks are d.lock, its queues d.queue, its events d.flag"
_CURE = "a body may depend on nothing but the answers to its questions: ask with d.choose; durations are time="


def check(state: State, thread: str) -> None:
    """Raise `DesignError` where a body, by what it reaches, or a function of the user that it names, uses any of these."""
    for function in state.reached():
        for name, what, cure in _suspects(function):
            line = _line(function.__code__, name)
            if line is not None:
                fail(f"the body of {thread!r} uses {what}; {cure}", shown(function.__code__.co_filename, line))


def _suspects(function: FunctionType) -> Iterator[tuple[str, str, str]]:
    """Names by which a function may use such a thing: the name, what it is, what to do."""
    code = function.__code__
    names, variables = names_of(code), function.__globals__
    for name in sorted(names):
        if name in variables:
            found = _forbidden(name, variables[name], names)
        elif name in _BUILTINS or name in _ATTRIBUTES:
            found = (f"{name}()", _CURE)
        else:
            found = _forbidden(name, sys.modules.get(name), names) if name in _MODULES or name in _OF_MODULES else None  # imported in it
        if found is not None:
            yield (name, *found)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found = _forbidden(name, cell.cell_contents, names)
        except ValueError:  # not bound yet
            continue
        if found is not None:
            yield (name, *found)


def _forbidden(name: str, value: Any, names: set[str]) -> tuple[str, str] | None:
    if isinstance(value, ModuleType):
        named = value.__name__
        for below in sorted(names & vars(value).keys()):
            inner = vars(value)[below]
            if below in _OF_MODULES.get(named, ()) or (isinstance(inner, ModuleType) and inner.__name__ in _MODULES):
                return f"{named}.{below}", _CURE
        if named == "datetime" and names & _OF_MODULES["datetime"]:
            return "the date", _CURE
        return _of(named, _said(named, value, names))
    if isinstance(value, type) and value.__module__ == "datetime":
        return ("the date", _CURE) if names & _OF_MODULES["datetime"] else None
    if any(value is getattr(builtins, one) for one in (*_BUILTINS, "locals", "vars")):
        return f"{name}()", _CURE
    kind, home = type(value), type(value).__module__
    if home in _THREADS:
        return _of(home, f"a {home.lstrip('_')}.{kind.__name__}")
    module: object = getattr(value, "__module__", None) if isinstance(value, type) or callable(value) else None
    owner = getattr(value, "__self__", None)
    if module is None and owner is not None and not isinstance(owner, ModuleType):
        module = type(owner).__module__  # random.random is a method of an object that is there from the start
    if isinstance(module, str) and (isinstance(value, type) or kind.__name__ in ("builtin_function_or_method", "function", "method")):
        return _of(module, f"{module.lstrip('_')}.{getattr(value, '__name__', name)}")
    return None


def _said(module: str, value: ModuleType, names: set[str]) -> str:
    said = sorted(name for name in names & vars(value).keys() if callable(vars(value)[name]))
    return f"{module}.{said[0]}" if said else module


def _of(module: str, what: str) -> tuple[str, str] | None:
    top = module.partition(".")[0]
    if top in _THREADS:
        return what, _HERE
    return (what, _CURE) if top in _MODULES or module in _MODULES or what.rpartition(".")[0] in _MODULES else None


def _line(code: CodeType, name: str) -> int | None:
    """Where a variable or module of that name is loaded; None: it is said as an attribute only."""
    line = code.co_firstlineno
    loads = ("LOAD_ATTR", "LOAD_METHOD") if name in _ATTRIBUTES else ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "IMPORT_NAME")
    for step in dis.get_instructions(code):
        if isinstance(step.starts_line, int) and not isinstance(step.starts_line, bool):
            line = step.starts_line
        line = getattr(step, "line_number", None) or line  # from 3.13 on `starts_line` only says whether
        if step.argval == name and step.opname in loads:
            return line
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found = _line(inner, name)
            if found is not None:
                return found
    return None
