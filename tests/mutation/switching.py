"""Rules and how one is switched off: a replacement of text in one function, found exactly once or refused.

The function's code is swapped in place, so that every name that is bound to it runs the changed one.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import importlib
import inspect
import textwrap
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

LANGUAGE, LOWERING, EXPLORER, EVENTS, MACHINE = "language", "lowering", "explorer", "events", "machine"
CERTIFICATES, VERIFY = "certificates", "verify"
"""Where a rule lives: model/language (designs are traced again without it), model/operations (explorer and event structure
read it), the explorer, the concrete event structure, the operational machine, the relation of certificates, `verify`."""


class Change(NamedTuple):
    """Replace `old`, which occurs once in the source of the function, by `new`. `where` is "module:Class.function"."""

    where: str
    old: str
    new: str


class Rule(NamedTuple):
    """One rule: what it says and where that is documented, the change that switches it off, who notices."""

    says: str
    source: str
    home: str
    changes: tuple[Change, ...]
    red: tuple[str, ...]
    """Names of one to three designs that do not get their declared answer without the rule."""
    covers: tuple[str, ...] = ()
    """Classes of effects, operations and questions that the rule is part of."""

    @property
    def name(self) -> str:
        """A short, unique name."""
        return f"{self.home}: {self.says}"


class Table(list[Rule]):
    """The rules of one file, in order."""

    def enter(self, home: str, says: str, source: str, covers: str, red: str, *changes: tuple[str, str, str]) -> None:
        """Enter a rule. `covers`: class names; `red`: names of designs; `changes`: where, text, what stands there instead."""
        made = tuple(Change(*change) for change in changes)
        self.append(Rule(says, source, home, made, tuple(red.split("; ")), tuple(covers.split())))


class Stale(Exception):
    """The table names a text that the source no longer has once."""


def _function(where: str) -> types.FunctionType:
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    if isinstance(found, property):
        found = found.fget
    if not isinstance(found, types.FunctionType):
        raise Stale(f"{where} is no function")
    return found


def changed_code(where: str, changes: Sequence[Change]) -> tuple[types.FunctionType, types.CodeType]:
    """The function and its code with the texts replaced. Raises `Stale` when one is not there exactly once."""
    function = _function(where)
    source = textwrap.dedent(inspect.getsource(function))
    for change in changes:
        if source.count(change.old) != 1:
            raise Stale(f"{where}: {change.old!r} occurs {source.count(change.old)} times; bring the table up to date")
        source = source.replace(change.old, change.new)
    tree = ast.parse(source)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    flags = __future__.annotations.compiler_flag
    made: dict[str, Any] = {}
    within = "__class__" in function.__code__.co_freevars  # super() without arguments looks there
    if within:
        tree.body = ast.parse("class Holder:\n    pass").body
        tree.body[0].body = [definition]  # type: ignore[attr-defined]
    exec(compile(tree, f"<{where} changed>", "exec", flags, True), function.__globals__, made)
    found = vars(made["Holder"])[definition.name] if within else made[definition.name]
    code: types.CodeType = found.__code__
    if code.co_freevars != function.__code__.co_freevars:
        raise Stale(f"{where}: a function with free variables cannot be swapped")
    return function, code


@contextlib.contextmanager
def switched_off(*changes: Change) -> Iterator[None]:
    """Run with the changes in place."""
    before: list[tuple[types.FunctionType, types.CodeType]] = []
    try:
        for where in dict.fromkeys(change.where for change in changes):
            function, code = changed_code(where, [change for change in changes if change.where == where])
            before.append((function, function.__code__))
            function.__code__ = code
        yield
    finally:
        for function, code in reversed(before):
            function.__code__ = code
