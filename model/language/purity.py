"""What a body could keep between turns: the Python state that it can reach."""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import hashlib
import importlib
import itertools
import pickle
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)  # fmt: skip
from typing import Any
from weakref import ReferenceType

from fencepost.model.language.errors import in_language

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_EXACTLY = frozenset(_PLAIN)
_DEPTH = 100
"""How deep is looked."""
_WIDTH = 100_000
"""How many elements of a container are looked at."""
_MANY = 20_000
"""How many objects are looked at."""
_identities: set[type] = set()
"""Classes of the language whose objects count by identity, as far as any was met."""
_NOT_BOUND = CellType()
_tokens: dict[Any, int] = {}
"""What was looked at, by number: two fingerprints are equal when these are."""
_numbers = itertools.count()


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
        self._deep: list[tuple[Any, Any]] = []
        self._simple = isinstance(body, FunctionType)
        """Whether the lists above tell all that was looked at."""
        found: list[tuple[tuple[Any, ...], Any]] = []
        if isinstance(body, MethodType):
            found.append(((0, "self"), body.__self__))
        self._reach(body, found)
        self.known: Known = self._told()
        self._found = {key: self._print(value) for key, value in found}

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
        changed.sort(key=lambda key: not (isinstance(now[key], tuple) and now[key][0] in _EXACTLY))
        functions = {**self._functions, **current._functions}
        return [
            (functions[key[0]].__code__ if key[0] in functions else None, key[1])
            for key in (*changed, *(key for key in before if key not in now))
        ]

    def current(self) -> State:
        """The state now: this one where nothing has changed."""
        return self if self._simple and self._same() else State(self._body)

    def reached(self) -> list[FunctionType]:
        """The user's functions that the body may call, as far as what it names tells: itself first."""
        waiting = [value for value, _ in self.known.values() if isinstance(value, FunctionType) and users(value.__module__)]
        called: list[FunctionType] = []
        names: set[str] = {"<lambda>"}
        found: FunctionType | None = unbound(self._body)
        while found is not None:
            called.append(found)
            names |= names_of(found.__code__) | set(found.__code__.co_freevars)
            waiting = [one for one in waiting if one is not found]
            found = next((one for one in waiting if one.__name__ in names), None)
        return called

    def _same(self) -> bool:
        """Whether every variable holds the same object, and each that could change in place looks the same."""
        try:
            for cell, value in self._cells:
                if cell.cell_contents is not value:
                    return False
        except ValueError:  # not bound any more
            return False
        if any(cell != _NOT_BOUND for cell in self._empty):
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
        for name, value in _behind(function):
            if isinstance(value, FunctionType):
                self._reach(value, found)
            found.append(((id(function), name, *([len(found)] if name in told else [])), value))
            told.add(name)

    def _hold(self, function: FunctionType) -> bool:
        """Enter the variables of a function; False where it has others than those of closures and of its own module."""
        if function.__kwdefaults__ or function.__dict__ or _imported(function.__code__) or not _EXACTLY.issuperset(map(type, function.__defaults__ or ())):
            return False
        self._fixed.append((function, function.__code__, function.__defaults__))
        for cell in function.__closure__ or ():
            if cell == _NOT_BOUND:
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
        if kind in _identities:
            attributes = getattr(value, "__dict__", ())
            self._sizes.append((value, len(attributes)))
        elif kind not in _EXACTLY and id(value) not in self._functions:
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


def _behind(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function can reach, by name: the variables that it closes over, its defaults and attributes, and of its module what it
    names. Of functions that are not the user's only what they close over: that may be the user's."""
    code = function.__code__
    names = names_of(code)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if cell == _NOT_BOUND:
            continue
        if isinstance(cell.cell_contents, ModuleType):
            yield from _module(name, cell.cell_contents, names, 3)
        else:
            yield name, cell.cell_contents
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {function.__name__}", default
    for name in _imported(code):
        with contextlib.suppress(Exception):  # whatever keeps it from being imported, the body will tell
            yield from _module(name, importlib.import_module(name), names, 3)
    for name, value in list(function.__dict__.items()):
        if not name.startswith("__fencepost"):
            yield f"{function.__name__}.{name}", value
    if users(function.__module__):
        variables = function.__globals__
        for name in sorted(names & variables.keys()):
            value = variables[name]
            if isinstance(value, ModuleType):
                yield from _module(name, value, names, 3)
            elif value is not None and not (isinstance(value, (FunctionType, type)) and not users(value.__module__)):
                yield name, value


def _module(name: str, module: ModuleType, names: set[str], depth: int) -> Iterator[tuple[str, Any]]:
    """The variables of a module that a function may mean: those whose name it says, or all of a user's if it asks by text."""
    if module.__name__.partition(".")[0] == "fencepost":
        return
    mine, variables = users(module.__name__), vars(module)
    wanted = set(variables) if mine and names & _BY_TEXT else names & variables.keys()
    for below in sorted(wanted):
        value = variables[below]
        if isinstance(value, ModuleType):
            if depth and value is not module and (mine or value.__name__.startswith(f"{module.__name__}.")):
                yield from _module(f"{name}.{below}", value, names, depth - 1)
        elif mine or not isinstance(value, (FunctionType, type)):
            yield f"{name}.{below}", value


_BY_TEXT = {"getattr", "setattr", "vars", "__dict__"}


@functools.cache
def users(module: str | None) -> bool:
    """Whether a module is neither of the standard library nor installed: its variables may be a design's."""
    top = (module or "").partition(".")[0]
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return top not in _OTHERS and "site-packages" not in file


@functools.lru_cache(maxsize=4096)
def names_of(code: CodeType) -> set[str]:
    """Global names and attributes that a function and the functions inside it say."""
    return set(code.co_names).union(*(names_of(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


@functools.lru_cache(maxsize=4096)
def _imported(code: CodeType) -> tuple[str, ...]:
    """The modules that a function and the functions inside it import by their whole names; but for what nobody's body can change."""
    found = [step.argval for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME"]
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _imported(constant)]
    return tuple(dict.fromkeys(name for name in (*found, *inner) if name and name.partition(".")[0] != "fencepost"))


Known = dict[int, tuple[Any, Any]]
"""Of what was looked at already, by identity: the value, which thus lives on, and its fingerprint."""


def forget() -> None:
    """Fingerprints of before are compared with none of later: free what they are made of."""
    _tokens.clear()


def fingerprint(value: Any, known: Known | None = None, depth: int = _DEPTH) -> Any:
    """A value that differs when `value` was changed in place, as deep as it can be seen.

    `known`: shared by calls between which nothing runs that could change anything.
    """
    kind = type(value)
    if kind in _identities:
        return (id(value), len(getattr(value, "__dict__", ())))  # what a user hangs onto it shows in the number
    if kind in _EXACTLY:
        return (kind, value if value == value else "not a number")
    if _home(kind).startswith(("fencepost.model.language", "fencepost.proofs")):  # the latter: a parameter that stands for all values
        _identities.add(kind)
        return fingerprint(value)
    known = {} if known is None else known
    found = known.get(id(value))
    if found is None:
        known[id(value)] = (value, id(value))  # what leads back to itself
        looked = _looked_at(value, kind, known, depth - 1) if depth and len(known) < _MANY else id(value)
        found = known[id(value)] = (value, _token(looked))
    return found[1]


def _home(kind: type) -> str:
    """The module of a class; some of C code have none."""
    module: object = kind.__module__
    return module if isinstance(module, str) else "builtins"


def _token(looked: Any) -> int:
    number = _tokens.get(looked)
    if number is None:
        number = _tokens[looked] = next(_numbers)
    return number


def _looked_at(value: Any, kind: type, known: Known, depth: int) -> Any:
    """What is seen of a value: hashable, and equal as long as nothing was changed."""

    def below(one: Any) -> Any:
        return fingerprint(one, known, depth)

    content: Any = ()
    if isinstance(value, (list, tuple, deque)):
        content = (len(value), *map(below, list(itertools.islice(value, _WIDTH))))
    elif isinstance(value, (dict, MappingProxyType)):
        content = (len(value), *((below(key), below(one)) for key, one in itertools.islice(list(value.items()), _WIDTH)))
        if isinstance(value, defaultdict):
            content = (*content, below(value.default_factory))
    elif isinstance(value, (set, frozenset)):
        content = frozenset(map(below, list(value)[:_WIDTH]))
    elif isinstance(value, _PLAIN):
        content = repr(value)
    elif isinstance(value, FunctionType):
        return (id(value), () if in_language(value.__code__.co_filename) else tuple((name, below(one)) for name, one in _behind(value)))
    elif isinstance(value, type):
        return (id(value), *((name, below(one)) for name, one in _of_class(value)))
    elif _home(kind).partition(".")[0] == "logging":
        return (id(value), *(below(one) for one in list(vars(value).values()) if type(one) in _EXACTLY))  # what it notes for itself is no state
    elif _home(kind).partition(".")[0] in _CONSTANT or any(value is file for file in (sys.stdin, sys.stdout, sys.stderr)):
        return id(value)
    elif hasattr(value, "__next__"):
        return object()  # how far an iterator is cannot be seen; what uses one from outside keeps state
    elif kind in _INSIDE:
        content = below(_INSIDE[kind](value))
    else:
        content = _inside(value, kind)
    if kind in _BUILT_IN or isinstance(value, ModuleType):
        return (kind, content) if kind is tuple else (id(value), content)
    return (id(value), content, *((name, below(one)) for name, one in _attributes(value, kind)))


_BUILT_IN = {list, tuple, deque, dict, set, frozenset}
_CONSTANT = {"enum", "re", "typing"}
"""Modules of objects that are constant."""
_INSIDE: dict[Any, Callable[[Any], Any]] = {
    ModuleType: lambda value: None,
    MethodType: lambda value: (value.__self__, value.__func__),
    MethodWrapperType: lambda value: value.__self__,
    BuiltinMethodType: lambda value: None if isinstance(value.__self__, ModuleType) else value.__self__,
    functools.partial: lambda value: (value.func, value.args, value.keywords),
    ContextVar: lambda value: value.get(None),
    CellType: lambda value: None if value == _NOT_BOUND else value.cell_contents,
    ReferenceType: lambda value: value(),
    type(users): lambda value: _cached(value),
}
"""What objects without attributes keep, by their class."""


def _cached(cache: Any) -> tuple[Any, ...]:
    """What a cache calls, and of what it keeps that which can change in place; the rest shows in what it answers."""
    whole = cache.cache_parameters()["maxsize"] is None
    kept: list[Any] = []
    for one in gc.get_referents(cache):
        if type(one) is not dict:
            kept.append(one)
        elif one is not vars(cache) and not any(type(inner).__name__ == "_lru_list_elem" for inner in one.values()):
            # One without a limit has a dictionary of what it keeps, any other refers to that itself.
            kept += one.values() if whole else [one]
    keys = type(functools._make_key((), {"": 0}, False))
    still = (FunctionType, type, ModuleType, keys)
    return (cache.__wrapped__, *(one for one in kept if not (isinstance(one, still) or type(one) is object or _is_plain(one))))


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) in (tuple, frozenset) else type(value) in _EXACTLY


def _inside(value: Any, kind: type) -> Any:
    """What an object of C code keeps, as its bytes or as what would be saved of it; its length or whether it is locked, else nothing."""
    for how in (_bytes_of, pickle.dumps) if _saves_itself(kind) else (_bytes_of,):
        try:
            kept = how(value)
        except Exception:  # of whatever kind: then it cannot be seen that way
            continue
        return kept if len(kept) < 1_000 else hashlib.blake2b(kept).digest()
    for name in ("qsize", "locked"):
        if callable(getattr(kind, name, None)) and _home(kind) in ("_queue", "_thread"):
            return getattr(value, name)()
    return ()


def _bytes_of(value: Any) -> bytes:
    return memoryview(value).tobytes()


def _saves_itself(kind: type) -> bool:
    """Whether a class of C code, or of the standard library, says itself how its objects are saved."""
    return not users(_home(kind)) and any(getattr(kind, name) is not getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))


def _attributes(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """An object's attributes and slots, and its class."""
    yield from list((getattr(value, "__dict__", None) or {}).items())
    for one in kind.__mro__:
        if "__slots__" not in vars(one) and not users(_home(one)):
            continue
        for name, slot in list(vars(one).items()):  # a private slot has another name than `__slots__` says
            if isinstance(slot, MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # not set
                    yield name, slot.__get__(value)
    if users(_home(kind)):
        yield "its class", kind


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """What a user's class keeps, and what its methods reach."""
    for one in kind.__mro__:
        if not users(_home(one)):
            continue
        for name, value in list(vars(one).items()):
            if isinstance(value, (staticmethod, classmethod)):
                yield name, value.__func__
            elif isinstance(value, property):
                yield name, (value.fget, value.fset, value.fdel)
            elif isinstance(value, functools.cached_property):
                yield name, value.func
            elif isinstance(value, FunctionType) or not (name in _OF_ANY_CLASS or isinstance(value, (MemberDescriptorType, GetSetDescriptorType))):
                yield f"{one.__qualname__}.{name}", value


_OF_ANY_CLASS = {
    "__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__annotations__", "__slots__", "__hash__", "__match_args__",
    "__abstractmethods__", "__parameters__", "__orig_bases__", "__dataclass_fields__", "__dataclass_params__", "__firstlineno__",
    "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__",
}  # fmt: skip
"""What Python itself and its decorators keep in a class."""
_OTHERS = sys.stdlib_module_names | {"builtins", "fencepost"}
"""Whose classes keep nothing that a body would change."""
