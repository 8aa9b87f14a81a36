"""What a body could keep between turns: the Python state that it can reach."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from fencepost.model.language.errors import fail, in_language
from fencepost.model.language.fingerprints import (
    EXACTLY,
    NOT_BOUND,
    Known,
    Unseen,
    behind,
    fingerprint,
    identities,
    imported,
    names_of,
    users,
)


class State:
    """What a body can reach from outside, as it is when this is made: its own and its helpers' closures, the variables of modules that
    they name, their defaults and attributes. Objects of the language count by identity.

    Whether that is still so is asked again and again. What a function reaches is decided by its code and by what its variables hold;
    most hold what cannot change in place, and then it is enough that they hold the same objects.
    """

    def __init__(self, body: Callable[..., Any]) -> None:
        self._body = body
        self._functions: dict[int, FunctionType] = {}
        """What is told variable by variable; elsewhere it counts by identity."""
        self._cells: list[tuple[CellType, Any]] = []
        self._empty: list[CellType] = []
        self._variables: list[tuple[dict[str, Any], str, Any]] = []
        self._without: list[tuple[dict[str, Any], set[str]]] = []
        """Variables of modules, and names that are none of theirs."""
        self._fixed: list[tuple[FunctionType, CodeType, Any]] = []
        self._sizes: list[tuple[Any, int]] = []
        """Objects of the language, each with how many attributes it has."""
        self._deep: list[tuple[Any, Any]] = []
        self._simple = isinstance(body, FunctionType)
        """Whether the lists above tell all that was looked at."""
        found: list[tuple[tuple[Any, ...], Any]] = []
        if isinstance(body, MethodType):
            found.append(((0, "self"), body.__self__))
        self._reach(body, found)
        self.known: Known = self._told()
        self._found = {}
        for key, value in found:
            try:
                self._found[key] = self._print(value)
            except Unseen as error:
                fail(f"{key[1]!r} {error}; whether a body changes it cannot be told: let the body reach what it needs alone")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, State) and self._found == other._found)

    __hash__ = None  # type: ignore[assignment]

    def changes(self) -> list[str]:
        """Names of what has changed since; a plain value that differs says more than what leads to it, so it comes first."""
        return [name for _, name in self.changed()]

    def changed(self) -> list[tuple[CodeType | None, str]]:
        """`changes`, each with the code of the function that reaches it; None of what is no function's."""
        if self._simple and self._same():
            return []
        current = State(self._body)
        now, before = current._found, self._found
        changed = [key for key, value in now.items() if key not in before or before[key] != value]
        changed.sort(key=lambda key: not (isinstance(now[key], tuple) and now[key][0] in EXACTLY))
        functions = {**self._functions, **current._functions}
        return [
            (functions[key[0]].__code__ if key[0] in functions else None, key[1])
            for key in (*changed, *(key for key in before if key not in now))
        ]

    def current(self) -> State:
        """The state now: this one where nothing has changed."""
        return self if self._simple and self._same() else State(self._body)

    def body_function(self) -> FunctionType | None:
        """The function below the body, where it has one."""
        return unbound(self._body)

    def _same(self) -> bool:
        """Whether every variable holds the same object, and each that could change in place looks the same."""
        try:
            for cell, value in self._cells:
                if cell.cell_contents is not value:
                    return False
        except ValueError:  # not bound any more
            return False
        if any(cell != NOT_BOUND for cell in self._empty):
            return False
        for variables, name, value in self._variables:
            if variables.get(name, State) is not value:
                return False
        for function, code, defaults in self._fixed:
            if function.__code__ is not code or function.__defaults__ is not defaults or function.__kwdefaults__ or function.__dict__:
                return False
        for value, size in self._sizes:
            if len(getattr(value, "__dict__", ())) != size:
                return False
        for variables, names in self._without:
            if not variables.keys().isdisjoint(names):
                return False
        known = self._told() if self._deep else {}
        return all(fingerprint(value, known) == seen for value, seen in self._deep)

    def _told(self) -> Known:
        return {number: (function, number) for number, function in self._functions.items()}

    def _reach(self, function: Any, found: list[tuple[tuple[Any, ...], Any]]) -> None:
        """Enter what a function can reach, and what the functions among that can reach."""
        function = unbound(function)
        if function is None or id(function) in self._functions or in_language(function.__code__.co_filename):
            return
        self._functions[id(function)] = function
        self._simple = self._simple and self._hold(function)
        told: set[str] = set()
        found.append(((id(function), "__code__"), function.__code__))
        for name, value in behind(function):
            if isinstance(value, FunctionType):
                self._reach(value, found)
            found.append(((id(function), name, *([len(found)] if name in told else [])), value))
            told.add(name)

    def _hold(self, function: FunctionType) -> bool:
        """Enter the variables of a function; False where it has others than those of closures and of its own module."""
        if function.__kwdefaults__ or function.__dict__ or imported(function.__code__) or not EXACTLY.issuperset(map(type, function.__defaults__ or ())):
            return False
        self._fixed.append((function, function.__code__, function.__defaults__))
        for cell in function.__closure__ or ():
            if cell == NOT_BOUND:
                self._empty.append(cell)
            elif _is_module(cell.cell_contents):
                return False
            else:
                self._cells.append((cell, cell.cell_contents))
        if users(function.__module__):
            variables, names = function.__globals__, names_of(function.__code__)
            held = names & variables.keys()
            if any(_is_module(variables[name]) for name in held):
                return False
            self._variables += [(variables, name, variables[name]) for name in held]
            self._without.append((variables, names - held))
        return True

    def _print(self, value: Any) -> Any:
        kind = type(value)
        seen = fingerprint(value, self.known)
        if kind in identities:
            self._sizes.append((value, len(getattr(value, "__dict__", ()))))
        elif kind not in EXACTLY and kind is not CodeType and id(value) not in self._functions:
            self._deep.append((value, seen))
        return seen


def _is_module(value: Any) -> bool:
    """Whether a variable holds a module whose own variables matter."""
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] != "fencepost"


def unbound(function: Any) -> FunctionType | None:
    """The function below a bound method or a partial call."""
    while isinstance(function, (MethodType, functools.partial)):
        function = function.__func__ if isinstance(function, MethodType) else function.func
    return function if isinstance(function, FunctionType) else None
