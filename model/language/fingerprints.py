"""What can be seen of a value: a fingerprint that differs when the value was changed in place, and what a function or class reaches."""

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
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar
from types import (
    BuiltinMethodType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)  # fmt: skip
from typing import Any
from weakref import ReferenceType, WeakMethod

from fencepost.model.language.errors import in_language

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
EXACTLY = frozenset(_PLAIN)
_DEPTH = 100
"""How deep is looked; what lies deeper is refused, as is what is larger than the next two."""
_WIDTH = 100_000
"""How many elements of a container are looked at."""
_MANY = 20_000
"""How many objects are looked at."""
identities: set[type] = set()
"""Classes of the language whose objects count by identity, as far as any was met."""
NOT_BOUND = CellType()
_tokens: dict[Any, int] = {}
"""What was looked at, by number: two fingerprints are equal when these are."""
_numbers = itertools.count()


def behind(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function can reach, by name: the variables that it closes over, its defaults and attributes, and of its module what it
    names. Of functions that are not the user's only what they close over: that may be the user's."""
    code = function.__code__
    names = names_of(code)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if cell == NOT_BOUND:
            continue
        if isinstance(cell.cell_contents, ModuleType):
            yield from _module(name, cell.cell_contents, names, 3)
        else:
            yield name, cell.cell_contents
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {function.__name__}", default
    for name in imported(code):
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
    if type(module) is not ModuleType:
        yield f"the class of {name}", type(module)
    wanted = set(variables) if mine and names & BY_TEXT else names & variables.keys()
    if mine and "__getattr__" in variables:
        wanted.add("__getattr__")  # which says what others are
    for below in sorted(wanted):
        value = variables[below]
        if isinstance(value, ModuleType):
            if depth and value is not module and (mine or value.__name__.startswith(f"{module.__name__}.")):
                yield from _module(f"{name}.{below}", value, names, depth - 1)
        elif mine or not isinstance(value, (FunctionType, type)):
            yield f"{name}.{below}", value


BY_TEXT = {"getattr", "setattr", "vars", "__dict__", "__getattribute__", "__setattr__", "attrgetter"}


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
def imported(code: CodeType) -> tuple[str, ...]:
    """The modules that a function and the functions inside it import by their whole names; but for what nobody's body can change."""
    imports = dis.opmap["IMPORT_NAME"] in code.co_code[::2]  # else spare the long way
    found = [step.argval for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME"] if imports else []
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in imported(constant)]
    return tuple(dict.fromkeys(name for name in (*found, *inner) if name and name.partition(".")[0] != "fencepost"))


class Unseen(Exception):
    """What is reached cannot be looked at, or is too much; the text says how it is."""


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
    if kind in identities:
        return (id(value), len(getattr(value, "__dict__", ())))  # what a user hangs onto it shows in the number
    if kind in EXACTLY:
        return (kind, repr(value) if kind is float else value)  # a number that is none equals nothing, and zero has a sign
    if class_of(kind).startswith(("fencepost.model.language", "fencepost.proofs")):  # the latter: a parameter that stands for all values
        identities.add(kind)
        return fingerprint(value)
    known = {} if known is None else known
    found = known.get(id(value))
    if found is None:
        known[id(value)] = (value, id(value))  # what leads back to itself
        if not depth or len(known) >= _MANY:
            raise Unseen(f"holds more than {_MANY:,} objects" if depth else f"is more than {_DEPTH} levels deep")
        found = known[id(value)] = (value, _token(_looked_at(value, kind, known, depth - 1)))
    return found[1]


def class_of(kind: type) -> str:
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
    if isinstance(value, _WIDE) and len(value) > _WIDTH:
        raise Unseen(f"holds more than {_WIDTH:,} elements")
    if isinstance(value, (list, tuple, deque)):
        content = (len(value), *map(below, list(value)))
    elif isinstance(value, (dict, MappingProxyType)):
        content = (len(value), *((below(key), below(one)) for key, one in list(value.items())))
        if isinstance(value, defaultdict):
            content = (*content, below(value.default_factory))
    elif isinstance(value, (set, frozenset)):
        content = tuple(map(below, list(value)))  # in its order, which a body can tell
    elif isinstance(value, _PLAIN):
        content = repr(value)
    elif isinstance(value, FunctionType):
        if in_language(value.__code__.co_filename):
            return id(value)
        return (id(value), id(value.__code__), *((name, below(one)) for name, one in behind(value)))
    elif isinstance(value, type):
        of = (("its class", below(kind)),) if users(class_of(kind)) else ()
        return (id(value), *of, *((name, below(one)) for name, one in of_class(value)))
    elif class_of(kind).partition(".")[0] == "logging":
        return (id(value), *((name, below(one)) for name, one in _of_logging(value)))
    elif class_of(kind).partition(".")[0] in _CONSTANT or any(value is file for file in (sys.stdin, sys.stdout, sys.stderr)):
        return id(value)
    elif hasattr(value, "__next__"):
        return object()  # how far an iterator is cannot be seen; what uses one from outside keeps state
    else:
        within = inside(value)
        content = below(within[0]) if within else _content(value, kind)
    if kind in _BUILT_IN or kind is ModuleType:
        return (kind, content) if kind is tuple else (id(value), content)
    return (id(value), content, *((name, below(one)) for name, one in attributes_of(value, kind)))


_BUILT_IN = {list, tuple, deque, dict, set, frozenset}
_WIDE = (*_BUILT_IN, MappingProxyType)
_CONSTANT = {"enum", "re", "typing", "_abc", "_struct"}
"""Modules of objects that are constant."""
_STILL = {
    object, CodeType, GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType,
    type(NotImplemented),
}  # fmt: skip
"""Kinds of C code that keep nothing."""
_DICTIONARIES: tuple[dict[Any, Any], ...] = ({}, OrderedDict())
_INSIDE: dict[Any, Callable[[Any], Any]] = {
    ModuleType: lambda value: _kept(value),
    MethodType: lambda value: (value.__self__, value.__func__),
    MethodWrapperType: lambda value: value.__self__,
    BuiltinMethodType: lambda value: None if isinstance(value.__self__, ModuleType) else value.__self__,
    functools.partial: lambda value: (value.func, value.args, value.keywords),
    ContextVar: lambda value: _of_variable(value),
    Context: lambda value: tuple(value.items()),
    CellType: lambda value: None if value == NOT_BOUND else value.cell_contents,
    WeakMethod: lambda value: (getattr(value(), "__self__", None), getattr(value(), "__func__", None)),
    ReferenceType: lambda value: value(),
    property: lambda value: (value.fget, value.fset, value.fdel),
    staticmethod: lambda value: value.__func__,
    classmethod: lambda value: value.__func__,
    super: lambda value: (value.__self__, value.__self_class__),
    GenericAlias: lambda value: (value.__origin__, value.__args__),
    **{type(view): tuple for of in _DICTIONARIES for view in (of.keys(), of.values(), of.items())},
    type(users): lambda value: _cached(value),
}
"""What objects without attributes keep, by their class."""


def _of_variable(variable: ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:  # neither set nor with a default
        return None


def _kept(module: ModuleType) -> tuple[Any, ...]:
    """The variables of a user's module that something refers to by its value: any may be meant."""
    if not users(module.__name__) or module.__name__.partition(".")[0] == "fencepost":
        return ()
    return tuple((name, one) for name, one in list(vars(module).items()) if name not in _OF_ANY_MODULE)


def _of_logging(value: Any) -> Iterator[tuple[str, Any]]:
    """What a user hung onto a logger, adapter or handler; what it notes for itself is no state."""
    for name, one in list(vars(value).items()):
        if type(one) in EXACTLY or name == "extra" or users(class_of(type(one))):
            yield name, one
        elif name in ("handlers", "filters"):
            yield name, tuple(each if class_of(type(each)).partition(".")[0] == "logging" or users(class_of(type(each))) else id(each) for each in one)
        elif type(value).__name__ in ("Logger", "RootLogger", "LoggerAdapter") and name not in _OF_LOGGERS:
            yield name, one


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
    return all(map(_is_plain, value)) if type(value) in (tuple, frozenset) else type(value) in EXACTLY


def inside(value: Any) -> tuple[Any, ...]:
    """What an object of C code keeps, where its class is one that is known to."""
    for one in type(value).__mro__:
        if one in _INSIDE:
            return (_INSIDE[one](value),)
    return ()


def _content(value: Any, kind: type) -> Any:
    """What an object of C code keeps, as its bytes or as what would be saved of it; its length or whether it is locked, else nothing."""
    for how in (_bytes_of, pickle.dumps) if _saves_itself(kind) else (_bytes_of,):
        try:
            kept = how(value)
        except Exception:  # of whatever kind: then it cannot be seen that way
            continue
        return kept if len(kept) < 1_000 else hashlib.blake2b(kept).digest()
    if class_of(kind) in ("_queue", "_thread"):
        for name in ("qsize", "locked"):
            if callable(getattr(kind, name, None)):
                return getattr(value, name)()
    if _blind(kind):
        raise Unseen(f"holds a {kind.__name__}, whose content cannot be seen")
    return ()


@functools.cache
def _blind(kind: type) -> bool:
    """Whether a class of C code of the standard library keeps what nobody can look at."""
    home = class_of(kind).partition(".")[0]
    if kind in _STILL or home not in {*sys.stdlib_module_names, "builtins"} - _CONSTANT - {"_thread", "select", "_socket"}:
        return False  # the last three are refused where they are used
    return not kind.__dictoffset__ and not any("__slots__" in vars(one) for one in kind.__mro__)


def _bytes_of(value: Any) -> bytes:
    return memoryview(value).tobytes()


@functools.cache
def _saves_itself(kind: type) -> bool:
    """Whether a class of C code, or of the standard library, says itself how its objects are saved."""
    return not users(class_of(kind)) and any(getattr(kind, name) is not getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))


def attributes_of(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """An object's attributes and slots, and its class."""
    yield from list((getattr(value, "__dict__", None) or {}).items())
    for one in kind.__mro__:
        if "__slots__" not in vars(one) and not users(class_of(one)):
            continue
        for name, slot in list(vars(one).items()):  # a private slot has another name than `__slots__` says
            if isinstance(slot, MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # not set
                    yield name, slot.__get__(value)
    if users(class_of(kind)):
        yield "its class", kind


def of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """What a user's class keeps, and what its methods reach."""
    for one in kind.__mro__:
        if not users(class_of(one)):
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
_OF_ANY_MODULE = {*vars(ModuleType("")), "__builtins__", "__file__", "__cached__", "__path__", "__annotations__"}
_OF_LOGGERS = {"parent", "manager", "root", "logger", "_cache"}
_OTHERS = sys.stdlib_module_names | {"builtins", "fencepost"}
"""Whose classes keep nothing that a body would change."""
