"""What a body may not name: clocks, random numbers, files, threads of Python: what does not depend on its questions alone."""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from fencepost.model.language.errors import fail, in_language, shown
from fencepost.model.language.fingerprints import (
    BY_TEXT,
    attributes_of,
    behind,
    class_of,
    inside,
    names_of,
    of_class,
    users,
)
from fencepost.model.language.purity import State

_BUILTINS = {"id", "hash", "open", "input", "globals", "exec", "eval", "__import__"}
_THREADS = {"threading", "_thread", "multiprocessing", "concurrent", "queue", "_queue"}
_MODULES = _THREADS | {
    "time", "timeit", "random", "secrets", "uuid", "subprocess", "socket", "gc", "tempfile", "shelve", "sqlite3", "importlib", "numpy.random",
    "asyncio", "sched", "select", "selectors", "signal", "atexit", "resource", "email.utils",
}  # fmt: skip
_KEEPERS = {"random", "asyncio", "sched", "select", "selectors", "socket", "subprocess", "tempfile", "shelve", "sqlite3"}
"""Modules whose objects are of that sort, too."""
_OF_MODULES = {
    "os": {
        "urandom", "getrandom", "getpid", "times", "open", "mkdir", "listdir", "scandir", "umask", "stat", "lstat", "fstat", "pipe",
        "getloadavg",
    },
    "io": {"open"},
    "sys": {
        "modules", "setrecursionlimit", "setswitchinterval", "set_int_max_str_digits", "set_asyncgen_hooks", "getallocatedblocks",
        "getrefcount", "getsizeof",
    },
    "datetime": {"now", "today", "utcnow"}, "decimal": {"getcontext", "setcontext", "localcontext"}, "locale": {"setlocale"},
    "logging": {"LogRecord", "makeLogRecord"},
}  # fmt: skip
"""Of modules that may be named otherwise."""
_WRITTEN_IN = {"posix": "os", "nt": "os", "_io": "io", "_decimal": "decimal", "_locale": "locale"}
"""Whose functions say the module that they are written in."""
_ATTRIBUTES = {
    "cache_info", "f_locals", "f_globals", "__globals__", "__subclasses__", "read_text", "read_bytes", "write_text", "write_bytes",
}  # fmt: skip
"""What tells how often something was called, what other variables hold than those that are named, or what a file does."""
_PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None)})
_HERE = "a thread of a design is @d.loop or @d.script; its locks are d.lock, its queues d.queue, its events d.flag"
_CURE = "a body may depend on nothing but the answers to its questions: ask with d.choose; durations are time="


def check(state: State, thread: str) -> None:
    """Raise `DesignError` where a body, by what it reaches, or a function of the user that it may call, uses any of these."""
    reach = _Reach(state)
    for function in reach.functions:
        for name, what, cure in _suspects(function):
            if _line(function.__code__, name) is not None:
                fail(f"the body of {thread!r} uses {what}; {cure}", reach.place(function, name))
    for way, value in reach.values:
        found = _forbidden(getattr(value, "__name__", way.name), value, reach.names)
        if found is not None:
            fail(f"the body of {thread!r} uses {found[0]}, by way of {way.name!r}; {found[1]}", reach.place(*way))


class _Way(NamedTuple):
    """By which variable of which function something is reached."""

    function: FunctionType
    name: str


_MADE_BY = {"__init__", "__new__", "__post_init__"}
"""Methods that are called where an object is made, which may be outside of the body."""


class _Reach:
    """What a body may call, or hand to what it calls: functions whose name is said, or that lie in what is reached; methods that Python
    calls by itself; elements of containers; attributes whose name is said."""

    def __init__(self, state: State) -> None:
        self.names = {"<lambda>"}
        self.functions: list[FunctionType] = []
        self.values: list[tuple[_Way, Any]] = []
        """What is not the user's, in the order in which it was found."""
        self._seen: dict[int, Any] = {}
        self._waiting: list[tuple[str, Any, _Way]] = []
        """Attributes whose name is not said yet."""
        body = state.body_function()
        if body is None:
            return
        self._call(body)
        known = [one for one, _ in state.known.values() if isinstance(one, FunctionType) and users(one.__module__)]
        while True:
            before = len(self._seen)
            for function in known:
                if function.__name__ in self.names:
                    self._call(function)
            said, waiting = self.names, self._waiting
            self._waiting = []
            for name, value, way in waiting:
                if name in said or said & BY_TEXT:
                    self._look(value, way)
                else:
                    self._waiting.append((name, value, way))
            if len(self._seen) == before:
                break

    def place(self, function: FunctionType, name: str) -> str:
        """Where the function loads the variable; of one that has no text, as the maker of a dataclass, where the body is."""
        code = function.__code__
        if code.co_filename.startswith("<") and self.functions:
            code = self.functions[0].__code__
        return shown(code.co_filename, _line(code, name) or code.co_firstlineno)

    def _call(self, function: FunctionType) -> None:
        if id(function) in self._seen or in_language(function.__code__.co_filename):
            return
        self._seen[id(function)] = function
        if users(function.__module__):
            self.functions.append(function)
            self.names |= names_of(function.__code__)
            self.names.update(function.__code__.co_freevars)
        for name, value in behind(function):
            if not name.startswith("@"):  # what pytest writes into assertions
                self._look(value, _Way(function, name.partition(".")[0]))

    def _look(self, value: Any, way: _Way) -> None:
        kind = type(value)
        if kind in _PLAIN or id(value) in self._seen or kind.__module__.partition(".")[0] == "fencepost":
            return
        if isinstance(value, FunctionType) and users(value.__module__):
            self._call(value)
            return
        self._seen[id(value)] = value
        if isinstance(value, type) and users(value.__module__):
            self._class(value, way, made=True)
            return
        self.values.append((way, value))
        if isinstance(value, ModuleType):
            if users(value.__name__):
                self._waiting += [(name, one, way) for name, one in list(vars(value).items())]
        elif isinstance(value, (list, tuple, set, frozenset, dict)) and value is not sys.modules:
            for one in list(value.items() if isinstance(value, dict) else value):
                for part in one if isinstance(value, dict) else (one,):
                    self._look(part, way)
        for one in inside(value):
            self._look(one, way)
        if not isinstance(value, (type, ModuleType)):
            self._attributes(value, kind, way)

    def _attributes(self, value: Any, kind: type, way: _Way) -> None:
        if users(class_of(kind)):
            self._class(kind, way, made=False)
            self._waiting += [(name, one, way) for name, one in attributes_of(value, kind)]
        elif class_of(kind).partition(".")[0] not in ("logging", "enum", "re", "typing"):
            for _, one in attributes_of(value, kind):
                self._look(one, way)

    def _class(self, kind: type, way: _Way, made: bool) -> None:
        """Its methods; those that Python calls by itself as if they were said."""
        if made and type(kind) is not type and users(class_of(type(kind))):
            self._class(type(kind), way, made=False)
        for name, one in of_class(kind):
            short = name.rpartition(".")[2]
            called = short.startswith("__") and short.endswith("__") and (made or short not in _MADE_BY)
            if called:
                self._look(one, way)
            else:
                self._waiting.append((short, one, way))


def _suspects(function: FunctionType) -> Iterator[tuple[str, str, str]]:
    """Names by which a function may use such a thing: the name, what it is, what to do."""
    code = function.__code__
    names, variables = names_of(code), function.__globals__
    for name in sorted(names):
        if name.startswith("@"):
            continue
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
            if callable(inner) and not isinstance(inner, type) and named not in _MODULES:
                found = _forbidden(below, inner, names)  # a clock under another name
                if found is not None:
                    return found
        if named == "datetime" and names & _OF_MODULES["datetime"]:
            return "the date", _CURE
        return _of(named, _said(named, value, names))
    if isinstance(value, type) and value.__module__ == "datetime":
        return ("the date", _CURE) if names & _OF_MODULES["datetime"] else None
    if any(value is getattr(builtins, one) for one in (*_BUILTINS, "locals", "vars")):
        return f"{name}()", _CURE
    if value is sys.modules:
        return "sys.modules", _CURE
    kind, home = type(value), type(value).__module__
    if home in _THREADS or (isinstance(home, str) and home.partition(".")[0] in _KEEPERS):
        return _of(home, f"a {home.lstrip('_')}.{kind.__name__}")
    module: object = getattr(value, "__module__", None) if isinstance(value, type) or callable(value) else None
    owner = getattr(value, "__self__", None)
    if module is None and owner is not None and not isinstance(owner, ModuleType):
        if isinstance(owner, type) and owner.__module__ == "datetime" and getattr(value, "__name__", "") in _OF_MODULES["datetime"]:
            return "the date", _CURE
        module = type(owner).__module__  # random.random is a method of an object that is there from the start
    if isinstance(module, str) and (isinstance(value, type) or kind.__name__ in ("builtin_function_or_method", "function", "method")):
        written, said = _WRITTEN_IN.get(module, module), getattr(value, "__name__", name)
        return (f"{written}.{said}", _CURE) if said in _OF_MODULES.get(written, ()) else _of(module, f"{module.lstrip('_')}.{said}")
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
