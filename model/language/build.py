"""From a design function and its parameters to the program."""

from __future__ import annotations

import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from fencepost.model import program as p
from fencepost.model.language import unwritten
from fencepost.model.language.design import Design
from fencepost.model.language.errors import Text, fail, folder, shown
from fencepost.model.language.tracer import NO_ITEM


def program_of(function: Callable[..., Any], parameters: Mapping[str, Any]) -> p.Program:
    """Call a design function and build what it returns.

    Raises `DesignError` for an unknown or missing parameter, a value of the wrong type, a result that is no design, and
    whatever is wrong in the design.
    """
    code = inspect.unwrap(function).__code__
    place = shown(code.co_filename, code.co_firstlineno)
    name = function.__name__
    known = _parameters(function)
    hints = _hints(function)
    for key, value in parameters.items():
        if key not in known:
            fail(f"{name} has no parameter {key!r}; it has: {', '.join(known) or 'none'}", place)
        declared = hints.get(key, Any)
        if not fits(value, declared):
            fail(f"parameter {key!r} of {name} is {spelled(declared)}, not {value!r}", place)
    for key, parameter in known.items():
        if key not in parameters and parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD,
        ):  # fmt: skip
            fail(f"parameter {key!r} of {name} has no default; give it a value", place)
    design = function(**parameters)
    if not isinstance(design, Design):
        fail(f"{name} returned {type(design).__name__}, not a Design; end it with `return d`", place)
    root = folder(code.co_filename)
    return assemble(design, root, getattr(function, "__fencepost_accepts__", ()), place)


@functools.cache  # once for all variants of a design, as the next
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.unwrap(function))
    except Exception:  # a name that exists for type checkers only; the values are then not judged
        return {}


def fits(value: Any, declared: Any) -> bool:
    """Whether a value is of a declared parameter type: int, bool, str, Literal, Optional and unions, tuples of these.

    >>> fits(3, int), fits(True, int), fits("a", Literal["a", "b"]), fits(("a",), tuple[str, ...]), fits(None, Union[int, None])
    (True, False, True, True, True)
    """
    origin = get_origin(declared)
    if declared is Any:
        return True
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in get_args(declared))
    if origin is Union or origin is types.UnionType:
        return any(fits(value, option) for option in get_args(declared))
    if origin is tuple or declared is tuple:
        inner = get_args(declared)
        if not isinstance(value, tuple):
            return False
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(fits(v, inner[0]) for v in value)
        return not inner or (len(inner) == len(value) and all(map(fits, value, inner)))
    if declared is None or declared is type(None):
        return value is None
    if declared is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if declared is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return not isinstance(declared, type) or isinstance(value, declared)


def spelled(declared: Any) -> str:
    """A type as the user wrote it."""
    origin = get_origin(declared)
    if origin is Literal:
        return " or ".join(repr(option) for option in get_args(declared))
    if origin is Union or origin is types.UnionType:
        return " or ".join("None" if a is type(None) else spelled(a) for a in get_args(declared))
    return str(declared) if origin is not None else getattr(declared, "__name__", str(declared))


def assemble(design: Design, root: str, accepts: tuple[p.Accept, ...], place: str | None = None) -> p.Program:
    """The program of a traced design. `root`: the folder that source places are relative to; `place`: for errors."""
    if not design._threads:
        fail(f"design {design.name!r} has no threads; write a body with @d.loop or @d.script", place)
    for cursor in (*design._cursors, *design._takes.values()):
        if cursor._single and len(cursor._threads) > 1:
            fail(
                f"design {design.name!r}: cursor {cursor._name!r} is advanced by several threads "
                f"({', '.join(sorted(cursor._threads))}), and a position of it is kept across an advance; give each its own",
                place,
            )
    objects = list(design._objects)
    threads = tuple(
        p.Thread(name, kind, nodes, entry, tuple(_local(design, key) for key in locals_), process, idle)
        for name, (kind, nodes, entry, locals_, process, idle) in design._threads.items()
    )
    _one_call(design, threads)
    if design._private.tensors:
        unwritten.check(design, threads)
    threads, chained = _in_order(threads, objects)
    if design._pools_of_streams:
        from fencepost.model.language import ordered

        ordered.check(design, threads)
    places = tuple(
        tuple([_place(frame, root) for frame in frames]) for frames in design._sites.frames
    )
    implied = tuple(sorted({*((t, n) for t, name in enumerate(design._threads) for n in design._implied.get(name, ())), *chained}))
    own = tuple(sorted(
        number for number in design._implicit.values()
        if isinstance(design._objects[number], (p.Event, p.Stream)) and number not in design._nameable
    ))  # fmt: skip
    return p.Program(
        design.name, tuple(objects), threads, (*accepts, *design._accepted), tuple(design._stands), places,
        implied or msgspec.UNSET, own or msgspec.UNSET,
    )  # fmt: skip


def _in_order(threads: tuple[p.Thread, ...], objects: list[p.Object]) -> tuple[tuple[p.Thread, ...], list[tuple[int, int]]]:
    """The setups of one process run one after the other, as they are written: each waits for a flag that the one before it sets.

    Also the nodes (thread, node) that this adds.
    """
    changed, added = list(threads), []
    latest: dict[str, int] = {}
    for t, thread in enumerate(threads):
        if thread.kind != "setup":
            continue
        before = latest.get(thread.process)
        latest[thread.process] = t
        if before is None:
            continue
        first = changed[before]
        objects.append(p.Flag(f"{first.name} has ended", thread.process))
        sets, waits = p.FlagSet(len(objects) - 1), p.FlagWait(len(objects) - 1)
        end = len(first.nodes)
        nodes = tuple(_redirected(node, end) for node in first.nodes)
        changed[before] = msgspec.structs.replace(first, nodes=(*nodes, p.Do(sets, p.END, nodes[-1].site)))
        begin = len(thread.nodes)
        changed[t] = msgspec.structs.replace(
            thread, nodes=(*thread.nodes, p.Do(waits, thread.entry, thread.nodes[thread.entry].site)), entry=begin
        )
        added += [(before, end), (t, begin)]
    return tuple(changed), added


def _one_call(design: Design, threads: tuple[p.Thread, ...]) -> None:
    """Raise `DesignError` where a thread enqueues on a stream on which another's call enqueues several items, which it could come between."""
    for thread in threads if design._long_calls else ():
        for node in thread.nodes:
            operation = node.operation if isinstance(node, p.Do) and thread.kind != "setup" else None
            stream = getattr(operation, "stream", None)
            if stream is None or isinstance(operation, NO_ITEM) or design._lock_of_calls(stream.id):
                continue
            for name, what in design._long_calls.get(stream.id, ()):
                if name != thread.name:
                    shared = design._objects[stream.id]
                    assert isinstance(shared, p.Stream)
                    own = "launch it on a stream of d.stream(name), and let the two streams wait for each other"
                    cure = own if shared.default else f"make it with d.stream({shared.name!r}, several_threads=True)"
                    fail(
                        f"thread {thread.name!r} enqueues on stream {shared.name!r}, on which thread {name!r} launches {what}, all of which is "
                        f"one call and several steps here; {cure}",
                        design._sites.place(node.site),
                    )


def _redirected(node: p.Node, end: int) -> p.Node:
    """The node with the end of the turn replaced by another node."""
    if isinstance(node, p.Do):
        return msgspec.structs.replace(node, next=end) if node.next == p.END else node
    return msgspec.structs.replace(node, branches=tuple((answer, end if to == p.END else to) for answer, to in node.branches))


def _local(design: Design, key: Any) -> p.LocalInfo:
    name, kind, occurrence, _origin, depth, pool = key
    known = design._depth_of(depth)
    return p.LocalInfo(name, kind, occurrence, known if isinstance(known, int) else None, pool)


@functools.lru_cache(maxsize=65_536)  # all variants of a design have the same text
def _place(text: Text, root: str) -> p.Place:
    file, line, function = text
    return p.Place(_relative(file, root), line, function)


@functools.cache  # for the same few files
def _relative(file: str, root: str) -> str:
    if file.startswith("<"):
        return file
    path = os.path.realpath(file)
    try:
        return os.path.relpath(path, root).replace(os.sep, "/")
    except ValueError:  # another drive
        return path
