"""Parameters of a design from the command line: text -> values of the declared types.

Types are int, bool, str, Literal, Optional (and unions) of these, and tuples of them.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from fencepost.errors import InputError
from fencepost.loader import Target

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
MAX_RANGE = 100_000
"""Most values that one `--over` may name: more is a slip of the finger."""


def _types(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that exists for type checkers only; the parameters are then judged without types
        return {}


def signature(target: Target) -> dict[str, tuple[Any, Any]]:
    """Name -> (type, default) of the design's parameters; `inspect.Parameter.empty` where one is missing.

    Raises `InputError` for a JSON program, which has no parameters.
    """
    if target.function is None:
        raise InputError(f"{target.place}: a program read from JSON has no parameters")
    return dict(_signature(target.function))


@functools.lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    hints = _types(function)
    found: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        declared = hints.get(name, parameter.empty)
        if declared is parameter.empty and parameter.default is not parameter.empty and parameter.default is not None:
            declared = type(parameter.default)
        found[name] = (declared, parameter.default)
    return found


def type_name(declared: Any) -> str:
    """A type as the user wrote it.

    >>> type_name(int), type_name(Literal["a", "b"]), type_name(Union[int, None]), type_name(tuple[str, ...])
    ('int', "'a' | 'b'", 'int | None', 'tuple[str, ...]')
    """
    if declared is inspect.Parameter.empty:
        return "any"
    origin = get_origin(declared)
    if origin is Literal:
        return " | ".join(repr(value) for value in get_args(declared))
    if origin is Union or origin is types.UnionType:
        return " | ".join("None" if a is type(None) else type_name(a) for a in get_args(declared))
    if origin is tuple:
        return f"tuple[{', '.join('...' if a is Ellipsis else type_name(a) for a in get_args(declared))}]"
    return getattr(declared, "__name__", str(declared))


def parse(text: str, declared: Any) -> Any:
    """The value that `text` spells in the declared type. Raises `ValueError` when it spells none.

    >>> parse("3", int), parse("true", bool), parse("none", Union[int, None]), parse("a,b", tuple[str, ...])
    (3, True, None, ('a', 'b'))
    >>> parse("2e-3", Union[float, None])
    0.002
    """
    origin = get_origin(declared)
    if declared is bool:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[_known(text)]
    if declared is int:
        return int(text)
    if declared is float:
        if not math.isfinite(value := float(text)):
            raise ValueError(text)
        return value
    if declared is type(None):
        if text.lower() != "none":
            raise ValueError(text)
        return None
    if origin is Literal:
        for value in get_args(declared):
            if str(value) == text:
                return value
        raise ValueError(text)
    if origin is Union or origin is types.UnionType:
        # None first: "none" for Optional[str] is None, as in Python's own spelling.
        for choice in sorted(get_args(declared), key=lambda a: (a is not type(None), a is str)):
            try:
                return parse(text, choice)
            except ValueError:
                continue
        raise ValueError(text)
    if origin is tuple:
        inner = get_args(declared)
        parts = [part.strip() for part in text.strip("()").split(",") if part.strip()]
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(parse(part, inner[0]) for part in parts)
        if len(parts) != len(inner):
            raise ValueError(text)
        return tuple(parse(part, kind) for part, kind in zip(parts, inner, strict=True))
    if declared is inspect.Parameter.empty:
        return int(text) if re.fullmatch(r"-?\d+", text) else text
    return text


def _known(text: str) -> str:
    lowered = text.lower()
    if lowered not in ("true", "1", "yes", "false", "0", "no"):
        raise ValueError(text)
    return lowered


def _split(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{option} {text}: write it as {option} name=value")
    return name.strip(), value.strip()


def _value(target: Target, name: str, text: str) -> Any:
    known = signature(target)
    if name not in known:
        raise InputError(
            f"{target.place}: {target.design} has no parameter {name!r}; it has: {', '.join(known) or 'none'}"
        )
    try:
        return parse(text, known[name][0])
    except ValueError:
        raise InputError(
            f"{target.place}: parameter {name!r} of {target.design} is {type_name(known[name][0])}, not {text!r}"
        ) from None


def combinations(target: Target, sets: Sequence[str], overs: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every combination of parameters that `--set name=value` and `--over name=1..8` (or `=a,b,c`) ask for.

    Raises `InputError` for an unknown or doubly given name, a value of the wrong type, an empty range, or a parameter
    that has no default and is not given.
    """
    axes: dict[str, list[Any]] = {}
    for option, texts in (("--set", sets), ("--over", overs)):
        for text in texts:
            name, value = _split(option, text)
            if name in axes:
                raise InputError(f"{option} {text}: parameter {name!r} is given twice")
            axes[name] = [_value(target, name, part) for part in _parts(option, text, value)]
    for name, (declared, default) in signature(target).items():
        if default is inspect.Parameter.empty and name not in axes:
            raise InputError(
                f"{target.place}: parameter {name!r} ({type_name(declared)}) of {target.design} has no default; "
                f"give one with --set {name}=..."
            )
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _parts(option: str, text: str, value: str) -> list[str]:
    if option == "--set":
        return [value]
    match = _RANGE.fullmatch(value)
    if match is None:
        parts = [part.strip() for part in value.split(",") if part.strip()]
    else:
        low, high = int(match[1]), int(match[2])
        if high - low >= MAX_RANGE:
            raise InputError(f"--over {text}: more than {MAX_RANGE} values")
        parts = [str(number) for number in range(low, high + 1)]
    if not parts:
        raise InputError(f"--over {text}: an empty range")
    return parts


def spelled(parameters: dict[str, Any]) -> str:
    """Parameters as `--set` takes them.

    >>> spelled({"depth": 2, "guard": True, "path": None, "kinds": ("a", "b")})
    'depth=2 guard=true path=none kinds=a,b'
    """
    return " ".join(f"{name}={_text(value)}" for name, value in parameters.items())


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(_text(part) for part in value)
    return str(value)
