"""Writes the additions of a repair into the text of a design, from what the report says alone: a line, and what to put before or behind it.

The design's file is compiled with a call at that line, and the call does what the addition says through the language, with
the objects that it names. So an addition that no body can say is an error of the language, as it would be for a reader.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fencepost.model import program as p
from fencepost.model.language import tracer
from fencepost.model.language.build import program_of
from fencepost.model.language.design import Design
from fencepost.model.language.errors import own_files
from fencepost.model.language.index import Position, Turn
from fencepost.model.language.objects import Event, Stream, Tensor
from fencepost.proofs.waits.repair import Addition

own_files[__file__] = True  # the calls below are no frames of the user's

CALL = "written_here_"

_NAME = r"([^()]+?)(?:\[([^\]]+)\])?"
_ORDER = re.compile(rf"{_NAME}\.(synchronize|wait_event|wait_stream|record_stream)\((?:{_NAME})?\) (before|behind) ([^,]+)(.*)$")
_NEW = re.compile(r", a new (?:ring of (\d+) events|event)(?: of GPU (\d+))? recorded behind .+ \(\S+:(\d+)\)$")
_AGAIN = re.compile(r"(?:, )?([^,()]+)\.record\(\) also behind .*?(?: \((\S+):(\d+)\))?$")
_SLOTS = re.compile(r"(.+): (\d+) slots instead of (\d+)(?:; (.+) as well)?$")
_HANDED = re.compile(r"a new queue of 1: get\(\)(?: and (.+?))? before (.+?), (a new event recorded and )?put\(\) behind .+ \(\S+:(\d+)\)$")
_KEPT = re.compile(r".+ not given back: ")
_WHOSE = re.compile(r" of ([^,()]+)$")


class Unreadable(Exception):
    """What this writer does not know how to write; another addition than a wait, a record or more slots."""


class Written:
    """What a set of additions says: calls at lines, new events, and rings that become deeper."""

    def __init__(self, additions: Sequence[Addition]) -> None:
        self.calls: list[tuple[int, str, Callable[[Design], None]]] = []
        """Line, "before" or "behind" it, and what to do there."""
        self.events: dict[str, tuple[int | None, int]] = {}
        """Name -> how many there are where it is a ring, and of which GPU."""
        self.depths: dict[str, int] = {}
        self.queues: list[str] = []
        """Queues of one item without content, which are new."""
        self.made: dict[str, Any] = {}
        """These queues in the design that is traced."""
        self.removed: list[int] = []
        """Lines whose statement goes."""
        for one in additions:
            line = one.place.rpartition(":")[2]
            if " < " in one.place or " < " in one.text or "on the same line" in one.text:
                raise Unreadable("it is meant of one call of several")
            self._read(one.text, int(line))

    def _read(self, text: str, line: int) -> None:
        slots = _SLOTS.match(text)
        if slots:
            self.depths.update(dict.fromkeys([slots[1], *(slots[4] or "").split(", ")], int(slots[2])))
            return
        if _KEPT.match(text):
            self.removed.append(line)
            return
        handed = _HANDED.match(text)
        if handed:
            self._hand(handed, line)
            return
        again = _AGAIN.match(text)
        if again:
            self._record(again[1], line, None, text)
            return
        order = _ORDER.match(text)
        if order is None:
            raise Unreadable(text)
        subject, index, call, object_, of, where, what, rest = order.groups()
        self._at(line, where, lambda d: self._do(d, call, (subject, index), (object_, of)), what)
        new = _NEW.match(rest)
        if new:
            event = subject if call == "synchronize" else object_
            depth = int(new[1]) if new[1] else None
            self.events[event] = (depth, int(new[2] or 0))
            self._record(event, int(new[3]), depth, rest.rpartition(" (")[0])
        elif rest:
            also = _AGAIN.match(rest)
            if also is None or also[3] is None:
                raise Unreadable(text)
            self._record(also[1], int(also[3]), None, rest.rpartition(" (")[0])

    def _hand(self, handed: re.Match[str], line: int) -> None:
        """A hand-over: the get in front of the wait that comes with it, the put behind the record."""
        name = f"handed over {len(self.queues)}"
        self.queues.append(name)

        wait, before, recorded, other = handed.groups()
        self._at(line, "before", lambda d: self.made[name].get(), before)
        if recorded:
            order = _ORDER.match(f"{wait} before it")
            assert order is not None
            subject, index, call, object_, of = order.groups()[:5]
            self._at(line, "before", lambda d: self._do(d, call, (subject, index), (object_, of)), before)
            event = subject if call == "synchronize" else object_
            self.events[event] = (None, 0)
            self._record(event, int(other), None, "")
        self._at(int(other), "behind", lambda d: self.made[name].put(), "")

    def _at(self, line: int, where: str, what: Callable[[Design], None], beside: str) -> None:
        """`beside`: the operation in words, which may end with the thread that is meant, where a body has several."""
        whose = _WHOSE.search(beside)

        def here(d: Design) -> None:
            assert d._recording is not None
            mine = d._recording.tracer.name
            if whose is None or whose[1] == mine or not any(whose[1] == t or _alike(whose[1], t) for t in (mine, *d._threads)):
                what(d)

        self.calls.append((line, where, here))

    def _record(self, event: str, line: int, depth: int | None, beside: str) -> None:
        def record(d: Design) -> None:
            done = last(d)
            made = named(d, event)
            if depth is not None:
                made = made[_index_of(d, done, depth)]
            made.record(Stream(d, d._objects[done.stream.id].name, done.stream.id))

        self._at(line, "behind", record, beside)

    @staticmethod
    def _do(d: Design, call: str, subject: tuple[str, str | None], object_: tuple[str | None, str | None]) -> None:
        thing = named(d, *subject)
        if call == "synchronize":
            thing.synchronize()
        else:
            assert object_[0] is not None
            getattr(thing, call)(named(d, object_[0], object_[1]))


def _alike(one: str, other: str) -> bool:
    """Names of threads of one body: they differ in numbers."""
    return re.sub(r"\d+", "#", one) == re.sub(r"\d+", "#", other)


def named(d: Design, name: str, index: str | None = None) -> Any:
    """The event, stream or tensor that a reader would take the name for: a value of this turn, else an object."""
    recording = d._recording
    assert recording is not None
    life = next((one for _, one in reversed(recording.alive()) if one.name == name.rpartition(".")[0] or one.name == name), None)
    if life is not None:
        return Event(d, life.name, life=life) if life.kind == p.EVENT else Tensor(d, life.name, "", life=life)
    number = next((k for k, one in enumerate(d._objects) if one.name == name), None)
    if number is None and name.split(" ")[0] == "default":
        return d.default_stream()  # made at its first use
    if number is None:
        raise LookupError(f"nothing is called {name!r} where the addition stands")
    thing = d._objects[number]
    found: Any = (Event if isinstance(thing, p.Event) else Stream)(d, name, number, getattr(thing, "depth", None))
    if index is None:
        return found
    if index == "n":
        return found[Turn(d)]
    position = next(one for _, one in reversed(recording.alive()) if one.name == index)
    return found[Position(d, position, thing.depth)]  # type: ignore[union-attr]


def last(d: Design) -> Any:
    """The last operation that went onto a stream."""
    recording = d._recording
    assert recording is not None
    for number in reversed(recording.entries):
        operation = getattr(recording.tracer.table[number], "operation", None)
        if isinstance(operation, (p.Launch, p.Copy, p.Memset)):
            return operation
    raise LookupError("nothing was enqueued in front of the record")


def _index_of(d: Design, operation: p.Operation, depth: int) -> Any:
    """The index of the slot that an operation uses of a ring of that depth."""
    from fencepost.proofs.edits import slots

    recording = d._recording
    assert recording is not None
    for slot in slots(operation):
        if getattr(d._objects[slot.id], "depth", None) != depth:
            continue
        if isinstance(slot.index, p.Turn):
            return Turn(d, slot.index.offset)
        if isinstance(slot.index, p.Var):
            life = next(one for _, one in recording.alive() if one.local == slot.index.local)
            return Position(d, life, depth, slot.index.offset)
    raise LookupError("the operation uses no slot of such a ring")


def program_with(function: Callable[..., Any], parameters: Mapping[str, Any], additions: Sequence[Addition]) -> p.Program:
    """The design with the additions, from its own text. Raises `Unreadable`, or what the language says of them."""
    written = Written(additions)
    plain = inspect.unwrap(function)
    file = plain.__code__.co_filename
    tree = ast.parse(inspect.getsource(sys.modules[plain.__module__]))
    for number, (line, where, _) in enumerate(written.calls):
        _insert(tree, line, where, number)
    for line in written.removed:
        _insert(tree, line, "instead", None)
    ast.fix_missing_locations(tree)
    module = types.ModuleType(plain.__module__)
    module.__file__, module.__package__ = file, plain.__module__.rpartition(".")[0]
    with _objects(written), _at_call(written):
        before = sys.modules[plain.__module__]
        sys.modules[plain.__module__] = module
        try:
            exec(compile(tree, file, "exec"), module.__dict__)
            return program_of(module.__dict__[plain.__name__], parameters)
        finally:
            sys.modules[plain.__module__] = before


def _insert(tree: ast.Module, line: int, where: str, number: int | None) -> None:
    """A call beside the innermost statement of the line, or nothing instead of it."""
    best: tuple[int, list[ast.stmt], int] | None = None
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            for k, one in enumerate(block if isinstance(block, list) else ()):
                if not hasattr(one, "written") and one.lineno <= line <= (one.end_lineno or 0):
                    size = (one.end_lineno or 0) - one.lineno
                    if best is None or size <= best[0]:
                        best = size, block, k
    assert best is not None, f"no statement stands at line {line}"
    _, block, k = best
    if where == "instead":
        block[k] = ast.copy_location(ast.Pass(), block[k])
        return
    call = ast.parse(f"{CALL}({number})").body[0]
    call.written = True  # type: ignore[attr-defined]
    for one in ast.walk(call):
        one.lineno = one.end_lineno = line  # type: ignore[attr-defined]
    while where == "behind" and k + 1 < len(block) and getattr(block[k + 1], "written", False):
        k += 1
    block.insert(k if where == "before" else k + 1, call)


@contextmanager
def _at_call(written: Written) -> Iterator[None]:
    def here(number: int) -> None:
        written.calls[number][2](tracer.running[-1])

    setattr(builtins, CALL, here)
    try:
        yield
    finally:
        delattr(builtins, CALL)


@contextmanager
def _objects(written: Written) -> Iterator[None]:
    """New events are made first, rings as deep as the additions say, whoever else is indexed by their cursor."""
    saved = {name: getattr(Design, name) for name in ("__init__", "pinned", "device", "pageable", "managed", "stream", "event", "cell", "cursor")}

    def deeper(name: str) -> Callable[..., Any]:
        def made(d: Design, called: str, *arguments: Any, **options: Any) -> Any:
            if called in written.depths and "depth" in inspect.signature(saved[name]).parameters and d._recording is None:
                options["depth"], arguments = written.depths[called], arguments[1:]
            return saved[name](d, called, *arguments, **options)

        return made

    def begun(d: Design, name: str) -> None:
        saved["__init__"](d, name)
        for event, (depth, gpu) in written.events.items():
            d.event(event, depth=depth, gpu=gpu)
        for queue in written.queues:
            written.made[queue] = d.queue(queue, capacity=1, item=())

    for name in saved:
        setattr(Design, name, begun if name == "__init__" else deeper(name))
    try:
        yield
    finally:
        for name, function in saved.items():
            setattr(Design, name, function)
