"""State and clocks that a body reaches by way of values: modules in objects, metaclasses, views, functions that are passed on, methods that
Python calls by itself, objects of the language that carry an attribute."""

from __future__ import annotations

import abc
import contextvars
import dataclasses
import datetime
import functools
import hashlib
import logging
import os
import random
import sched
import sys
import time
import timeit
import types
import weakref
from collections.abc import Callable
from typing import Any

import fencepost as fp
import pytest

from python_kit import Kit, bump


@pytest.fixture
def k() -> Kit:
    return Kit()


class Engine:
    def __init__(self) -> None:
        self.turns = 0

    def tick(self) -> int:
        self.turns += 1
        return self.turns


def _own_module(**variables: Any) -> types.ModuleType:
    module = types.ModuleType("some_engine")
    vars(module).update(variables)
    return module


class Plugins(type):
    """A metaclass that keeps count."""

    turns = 0

    def __getitem__(cls, key: int) -> int:
        Plugins.turns += 1
        return Plugins.turns

    @property
    def asked(cls) -> int:
        return bump()


class Plugin(metaclass=Plugins):
    pass


class Partial(functools.partial):  # type: ignore[type-arg]
    """A class of its own."""


class Weak(weakref.ref):  # type: ignore[type-arg]
    """A class of its own."""


KEPT = Engine()


def module_in_an_object() -> Callable[[], int]:
    holder = types.SimpleNamespace(module=_own_module(turns=0))

    def tick() -> int:
        holder.module.turns += 1
        return int(holder.module.turns)

    return tick


def module_as_a_default() -> Callable[[], int]:
    def tick(module: Any = _own_module(turns=0)) -> int:  # noqa: B008
        module.turns += 1
        return int(module.turns)

    return tick


def module_that_answers() -> Callable[[], int]:
    module: Any = _own_module(__getattr__=lambda name: bump())
    return lambda: int(module.turns)


def class_of_a_class() -> Callable[[], int]:
    def tick() -> int:
        type(Plugin).turns += 1
        return type(Plugin).turns

    return tick


def property_of_a_class() -> Callable[[], int]:
    plugins: Any = [Plugin]
    return lambda: int(plugins[0].asked)


def partial_of_its_own() -> Callable[[], int]:
    call = Partial(bump)
    return lambda: int(call())


def weak_of_its_own() -> Callable[[], int]:
    weak = Weak(KEPT)
    return lambda: int(weak().tick())


def weak_method() -> Callable[[], int]:
    weak = weakref.WeakMethod(KEPT.tick)
    return lambda: int(weak()())  # type: ignore[misc]


def weak_values() -> Callable[[], int]:
    weak = weakref.WeakValueDictionary({"engine": KEPT})
    return lambda: weak["engine"].tick()


def view_of_a_dictionary() -> Callable[[], int]:
    values = {"engine": Engine()}.values()
    return lambda: next(iter(values)).tick()


def variable_with_a_default() -> Callable[[], int]:
    variable = contextvars.ContextVar("variable", default=Engine())  # noqa: B039  that is the bug
    return lambda: variable.get().tick()


def a_context() -> Callable[[], int]:
    variable, context = contextvars.ContextVar("variable", default=0), contextvars.Context()

    def count() -> int:
        variable.set(variable.get() + 1)
        return variable.get()

    return lambda: context.run(count)


def attribute_of_an_adapter() -> Callable[[], int]:
    log = logging.LoggerAdapter(logging.getLogger("fencepost tests"), {"turn": 0})

    def tick() -> int:
        log.extra["turn"] += 1  # type: ignore[index,operator]
        return int(log.extra["turn"])  # type: ignore[index,call-overload]

    return tick


def code_that_is_exchanged() -> Callable[[], int]:
    def first() -> int:
        return 1

    def late() -> int:
        return 9

    def tick() -> int:
        number = first()
        first.__code__ = late.__code__
        return number

    return tick


def sign_of_zero() -> Callable[[], int]:
    numbers = [0.0]

    def tick() -> int:
        numbers[0] = -numbers[0]
        return 9 if str(numbers[0]) == "-0.0" else 1

    return tick


def order_of_a_set() -> Callable[[], int]:
    numbers = {0, 8}

    def tick() -> int:
        first, second = numbers
        numbers.clear()
        numbers.update((second,))
        numbers.update((first,))
        return first + 1

    return tick


PLACES = [
    module_in_an_object, module_as_a_default, module_that_answers, class_of_a_class, property_of_a_class, partial_of_its_own, weak_of_its_own,
    weak_method, weak_values, view_of_a_dictionary, variable_with_a_default, a_context, attribute_of_an_adapter, code_that_is_exchanged,
    sign_of_zero, order_of_a_set,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_places_of_state(k: Kit, place: Callable[[], Callable[[], int]]) -> None:
    """Each was PROVED, with the late turn left out."""
    tick = place()
    k.refuses(lambda: k.turn(tick()), "changes '.*', which lives on")


def test_what_cannot_be_looked_at(k: Kit) -> None:
    """State that nobody can see, or that is too much to be looked at, was taken as none."""
    digest, wide, many = hashlib.md5(b"", usedforsecurity=False), [0] * 100_001, [[0] for _ in range(20_001)]
    deep: list[Any] = []
    for _ in range(101):
        deep = [deep]
    k.refuses(lambda: k.turn(digest.digest()[0]), "'digest' holds a HASH, whose content cannot be seen")
    k.refuses(lambda: k.turn(wide[-1]), "'wide' holds more than 100,000 elements")
    k.refuses(lambda: k.turn(many[-1][0]), "'many' holds more than 20,000 objects")
    k.refuses(lambda: k.turn(len(deep)), "'deep' is more than 100 levels deep")


def test_an_attribute_of_an_object_of_the_language(k: Kit) -> None:
    """Hung on before the trace, it counted turns unseen; and a body could exchange all attributes at once."""
    with pytest.raises(fp.DesignError, match=r"<memory 'host'>\._turns is set, which would last from turn to turn"):
        k.host._turns = 0  # type: ignore[attr-defined]
    with pytest.raises(fp.DesignError, match="_turns is set"):
        k.d._turns = []  # type: ignore[attr-defined]

    def exchanges() -> None:
        k.host.__dict__ = {**vars(k.host), "turns": len(vars(k.host))}
        k.turn(vars(k.host)["turns"])

    k.refuses(exchanges, r"changes|does not do the same|vars\(\)|is set")


class Timer:
    """Clocks in methods that Python calls by itself."""

    def __call__(self) -> int:
        return time.monotonic_ns()

    def __len__(self) -> int:
        return time.monotonic_ns()

    def stop(self) -> int:
        return time.monotonic_ns()


class Born:
    def __init__(self) -> None:
        self.at = time.monotonic_ns()


@dataclasses.dataclass
class Stamped:
    at: int = dataclasses.field(default_factory=time.monotonic_ns)


class Static:
    now = staticmethod(time.monotonic_ns)


def clock() -> int:
    return time.monotonic_ns()


def with_a_default(now: Callable[[], int] = time.monotonic_ns) -> int:
    return now()


def _later() -> Callable[[], int]:
    table: dict[str, Callable[[], int]] = {"t": time.monotonic_ns}
    return lambda: table["t"]()


CLOCKS: dict[str, tuple[Callable[[], Callable[[], Any]], str]] = {
    "a table": (_later, "time.monotonic_ns, by way of 'table'"),
    "a table of functions": (lambda: (lambda table: lambda: table["t"]())({"t": clock}), "time.monotonic_ns"),
    "a default": (lambda: with_a_default, "time.monotonic_ns"),
    "a partial call": (lambda: (lambda now: lambda: now())(functools.partial(time.monotonic_ns)), "time.monotonic_ns"),
    "an attribute": (lambda: (lambda holder: lambda: holder.now())(types.SimpleNamespace(now=time.monotonic_ns)), "time.monotonic_ns"),
    "an attribute of a class": (lambda: lambda: Static.now(), "time.monotonic_ns"),
    "a variable of a module": (lambda: (lambda module: lambda: module.now())(_own_module(now=time.monotonic_ns)), "time.monotonic_ns"),
    "a call of an object": (lambda: (lambda timer: lambda: timer())(Timer()), "time.monotonic_ns"),
    "a length": (lambda: (lambda timer: lambda: len(timer))(Timer()), "time.monotonic_ns"),
    "an object that is made": (lambda: lambda: Born().at, "time.monotonic_ns"),
    "a class in a table": (lambda: (lambda kinds: lambda: kinds["born"]().at)({"born": Born}), "time.monotonic_ns"),
    "a default factory": (lambda: lambda: Stamped().at, "time.monotonic_ns"),
    "a clock of timeit": (lambda: lambda: timeit.default_timer(), "uses time|uses timeit"),
    "a scheduler": (lambda: (lambda plan: lambda: plan.timefunc())(sched.scheduler()), "uses a sched.scheduler"),
    "chance": (lambda: (lambda chance: lambda: chance.randrange(99))(random.SystemRandom()), "uses a random.SystemRandom"),
    "the date": (lambda: (lambda now: lambda: now().second)(datetime.datetime.now), "uses the date"),
    "all modules": (lambda: (lambda modules: lambda: modules["time"].time())(sys.modules), "uses sys.modules|modules.* holds more than"),
    "a log record": (lambda: lambda: logging.LogRecord("a", 1, "p", 1, "m", (), None).created, "uses logging.LogRecord"),
    "a file's times": (lambda: lambda: os.stat("/").st_atime_ns, "uses os.stat"),
    "identities": (lambda: (lambda table: lambda: table["id"](object()))({"id": id}), r"uses id\(\)"),
}


@pytest.mark.parametrize("how", CLOCKS)
def test_clocks_and_chance_by_way_of_values(k: Kit, how: str) -> None:
    """Each was accepted: PROVED, of the few turns that were traced."""
    made, what = CLOCKS[how]
    ask = made()
    k.refuses(lambda: k.turn(ask()), what)


class Measured:
    """Has a clock, which only its maker and a method that nobody calls use."""

    def __init__(self) -> None:
        self.at, self.now, self.layers = time.monotonic_ns(), time.monotonic_ns, 2

    def elapsed(self) -> int:
        return self.now() - self.at


class Shape(abc.ABC):
    sizes = (1, 2)

    @abc.abstractmethod
    def area(self) -> int: ...


def test_clocks_that_no_body_reaches(k: Kit) -> None:
    measured, shapes = Measured(), [Shape]

    @k.d.loop("worker")
    def body() -> None:
        k.host.write()
        k.gpu.copy_(k.host, non_blocking=measured.layers > shapes[0].sizes[1])

    assert len(k.d.build().threads[0].nodes) == 2
