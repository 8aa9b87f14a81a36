"""What a body may not do with Python: state kept from turn to turn, clocks and chance, threads, errors caught, values that are none."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import queue
import random
import sys
import threading
import time
import types
import weakref
from collections import ChainMap, Counter, UserDict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import fencepost as fp
import pytest

from python_kit import Kit, bump


@pytest.fixture
def k() -> Kit:
    return Kit()


# ---------------------------------------------------------------- state


class Engine:
    """State in every place that a class has for it."""

    shared = 0

    def __init__(self) -> None:
        self.n = 0

    def tick(self) -> int:
        self.n += 1
        return self.n

    def counts(self) -> int:
        return bump()

    @property
    def asked(self) -> int:
        return bump()

    @staticmethod
    def alone() -> int:
        return bump()

    @classmethod
    def whole(cls) -> int:
        cls.shared += 1
        return cls.shared

    def __getitem__(self, key: int) -> int:
        return bump()

    def __enter__(self) -> int:
        return bump()

    def __exit__(self, *error: object) -> None:
        pass


class Slots:
    """Without a dictionary."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Attributed(list[int]):
    """A container that may have attributes."""


class Number(int):
    """A number that may have attributes."""


def _default(_kept: list[int] = []) -> int:  # noqa: B006  that is the bug
    _kept.append(1)
    return len(_kept)


def _named(*, _kept: list[int] = []) -> int:  # noqa: B006
    _kept.append(1)
    return len(_kept)


def _attribute() -> int:
    _attribute.n = getattr(_attribute, "n", 0) + 1  # type: ignore[attr-defined]
    return int(_attribute.n)  # type: ignore[attr-defined]


def _nested() -> Callable[[], int]:
    inner = [0]
    outer: Any = inner
    for _ in range(12):
        outer = [outer]

    def tick() -> int:
        found = outer
        while isinstance(found[0], list):
            found = found[0]
        found[0] += 1
        return int(found[0])

    return tick


def _wide() -> Callable[[], int]:
    numbers = [0] * 5_000

    def tick() -> int:
        numbers[4_999] += 1
        return numbers[4_999]

    return tick


def _on(thing: Any, name: str = "n") -> Callable[[], int]:
    """Counts in an attribute."""

    def tick() -> int:
        setattr(thing, name, getattr(thing, name, 0) + 1)
        return int(getattr(thing, name))

    return tick


def _in(thing: Any, key: Any) -> Callable[[], int]:
    """Counts in an element."""

    def tick() -> int:
        thing[key] = thing[key] + 1
        return int(thing[key])

    return tick


def _weakly() -> Callable[[], int]:
    weak = weakref.ref(KEPT)

    def tick() -> int:
        kept = weak()
        assert kept is not None
        return kept.tick()

    return tick


def _in_context() -> Callable[[], int]:
    variable = ContextVar("variable", default=0)

    def tick() -> int:
        variable.set(variable.get() + 1)
        return variable.get()

    return tick


def _generated() -> Callable[[], int]:
    numbers = (number for number in itertools.count())
    return lambda: next(numbers)


def _of_set() -> Callable[[], int]:
    several = {Engine()}
    return lambda: sum(one.tick() for one in several)


def _taken() -> Callable[[], int]:
    left = deque(range(100))
    take = left.popleft
    return lambda: take()


def _environment() -> int:
    os.environ["FENCEPOST_TEST"] = str(int(os.environ.get("FENCEPOST_TEST", "0")) + 1)
    return int(os.environ["FENCEPOST_TEST"])


def _on_module() -> int:
    os.fencepost_test = getattr(os, "fencepost_test", 0) + 1  # type: ignore[attr-defined]
    return int(os.fencepost_test)  # type: ignore[attr-defined]


KEPT = Engine()

STATE: dict[str, Callable[[], Callable[[], int]]] = {
    "a default": lambda: _default,
    "a keyword's default": lambda: _named,
    "an attribute of a function": lambda: _attribute,
    "an attribute of an object": lambda: Engine().tick,
    "a global behind a method": lambda: Engine().counts,
    "a global behind a property": lambda: (lambda engine: lambda: engine.asked)(Engine()),
    "a global behind a static method": lambda: Engine.alone,
    "an attribute of a class": lambda: Engine.whole,
    "a global behind brackets": lambda: (lambda engine: lambda: engine[0])(Engine()),
    "a global behind a table": lambda: (lambda table: lambda: table["bump"]())({"bump": bump}),
    "a global behind a partial call": lambda: functools.partial(bump),
    "slots": lambda: _on(Slots()),
    "a container's attribute": lambda: _on(Attributed()),
    "a number's attribute": lambda: _on(Number(3)),
    "a namespace": lambda: _on(types.SimpleNamespace()),
    "a module": lambda: _on_module,
    "far inside": _nested,
    "far behind": _wide,
    "a reference that holds nothing": _weakly,
    "a context variable": _in_context,
    "a number of C": lambda: _on(ctypes.c_int(0), "value"),
    "bytes": lambda: _in(memoryview(bytearray(4)), 0),
    "a dictionary of a library": lambda: _in(UserDict(n=0), "n"),
    "a counter of a library": lambda: _in(Counter(), "n"),
    "a chain of a library": lambda: _in(ChainMap({"n": 0}), "n"),
    "a bound method of C": _taken,
    "a bound method of an iterator": lambda: itertools.count().__next__,
    "a generator": _generated,
    "elements of a set": _of_set,
    "the environment": lambda: _environment,
}


@pytest.mark.parametrize("where", STATE)
def test_state_is_seen(k: Kit, where: str) -> None:
    """Each was PROVED, with the late turn left out."""
    tick = STATE[where]()
    k.refuses(lambda: k.turn(tick()), "changes '")


def test_state_of_a_helper_whose_variable_is_called_as_one_of_the_body(k: Kit) -> None:
    def made() -> Callable[[], int]:
        count = [0]

        def helper() -> int:
            count[0] += 1
            return count[0]

        return helper

    helper, count = made(), 1

    def body() -> None:
        for _ in range(count):
            k.turn(helper())

    k.refuses(body, "changes 'count', which lives on")


def test_state_in_the_second_of_two_defaults(k: Kit) -> None:
    def helper(none: list[int] = [], calls: list[int] = [0]) -> int:  # noqa: B006
        calls[0] += 1
        return calls[0] + len(none)

    k.refuses(lambda: k.turn(helper()), "changes 'a default of helper', which lives on")


def test_a_variable_that_a_body_takes_away(k: Kit) -> None:
    number = 1

    def body() -> None:
        nonlocal number
        k.turn(number)
        del number

    k.refuses(body, "changes 'number', which lives on")


def test_a_variable_that_a_body_sets_first(k: Kit) -> None:
    late: int

    def body() -> None:
        nonlocal late
        k.turn(1)
        late = 1

    k.refuses(body, "changes 'late', which lives on")


def test_state_of_the_object_whose_method_is_the_body(k: Kit) -> None:
    class Worker:
        n = 0

        def step(self) -> None:
            self.n += 1
            k.turn(self.n)

    k.refuses(Worker().step, "changes 'self'")


def test_what_is_read_only_may_be_read(k: Kit) -> None:
    """Constants of modules, cached helpers, tables, classes, loggers."""
    import logging

    table, log = {"safe": (True, [1, 2])}, logging.getLogger("fencepost tests")

    @functools.cache
    def doubled(number: int) -> int:
        return 2 * number

    @k.d.loop("worker")
    def body() -> None:
        log.info("turn")
        if table["safe"][0] and doubled(2) == 4 and os.sep and Engine.shared is not None and KEPT.n is not None:
            k.host.write()
        k.gpu.copy_(k.host)

    assert len(k.d.build().threads[0].nodes) == 2


# ---------------------------------------------------------------- what depends on more than the questions


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: time.time() > 0, "uses time.time"),
        (lambda: random.random() > 2, "uses random.random"),
        (lambda: id(object()) > 0, r"uses id\(\)"),
        (lambda: hash("a") % 2 == 0, r"uses hash\(\)"),
        (lambda: bool(globals().get("x")), r"uses globals\(\)"),
        (lambda: bool(os.urandom(1)), "uses os.urandom"),
        (lambda: "x" in sys.modules, "uses sys.modules|modules.* holds more than"),
        (lambda: bool(open(os.devnull).read()), r"uses open\(\)"),  # noqa: SIM115
        (lambda: threading.Thread(target=print).start(), "uses threading.Thread; a thread of a design is @d.loop"),
        (lambda: LOCK.acquire(), "uses a thread.lock; .* its locks are d.lock"),
        (lambda: WAITING.put(1), "uses a queue.Queue; .* its queues d.queue"),
    ],
)
def test_clocks_chance_and_threads(k: Kit, ask: Callable[[], Any], what: str) -> None:
    def body() -> None:
        k.host.write()
        if ask():
            k.gpu.copy_(k.host)

    k.refuses(body, what)


LOCK, WAITING = threading.Lock(), queue.Queue[int]()


def test_the_count_of_a_cache(k: Kit) -> None:
    cached = functools.lru_cache(maxsize=None)(lambda number: number)
    k.refuses(lambda: k.turn(cached(cached.cache_info().currsize)), r"uses cache_info\(\)")


def test_a_thread_of_pythons(k: Kit) -> None:
    """Also one that something else starts."""
    module = types.ModuleType("some_engine")
    started = __import__("concurrent.futures", fromlist=["x"])
    module.pool = started.ThreadPoolExecutor(1)  # type: ignore[attr-defined]
    submit = functools.partial(lambda run: module.pool.submit(run).result(), lambda: k.gpu.copy_(k.host, non_blocking=True))
    with pytest.raises(fp.DesignError):
        k.d.loop("worker")(lambda: submit())


# ---------------------------------------------------------------- errors that are caught


def test_a_refusal_cannot_be_caught(k: Kit) -> None:
    def tries() -> None:
        k.host.write()
        try:
            k.gpu.write()
        except Exception:
            k.d.host("log")

    def suppresses() -> None:
        with contextlib.suppress(Exception):
            k.host.release()
        k.gpu.copy_(k.host)

    k.refuses(tries, "the host cannot access device memory 'gpu'")
    k.refuses(suppresses, "'host' lives for ever")


def test_the_end_of_a_run_cannot_be_caught(k: Kit) -> None:
    def body() -> None:
        with contextlib.suppress(BaseException):
            for done in k.queue.drain():
                done.synchronize()

    k.refuses(body, "catches the exception by which a run ends")


def test_a_body_that_calls_itself(k: Kit) -> None:
    def body() -> None:
        k.host.read()
        body()

    k.refuses(body, "calls itself without end|changes|more than")


def test_errors_of_the_body_are_its_own(k: Kit) -> None:
    @k.d.loop("worker")
    def body() -> None:
        k.host.write()
        try:
            if k.d.choose("fails", ["yes", "no"]) == "yes":
                raise KeyError
        except KeyError:
            k.gpu.copy_(k.host)

    assert k.d.build().threads


# ---------------------------------------------------------------- arguments of a body


@pytest.mark.parametrize("body", [lambda n=0: None, lambda *, n=1: None, lambda *n: None, lambda **n: None, lambda a, b: None])
def test_a_body_takes_the_turn_or_nothing(k: Kit, body: Callable[..., Any]) -> None:
    """`def body(rank=rank)` got the turn as its rank."""
    k.refuses(body, "a body takes the turn n, or nothing")


# ---------------------------------------------------------------- values that are none


@pytest.mark.parametrize(
    ("use", "cure"),
    [
        (lambda k: bool(k.flag), r"ask is_set\(\)"),
        (lambda k: not k.queue, r"ask empty\(\), full\(\) or holds\(k\)"),
        (lambda k: len(k.queue) > 1, "how many items"),
        (lambda k: bool(k.cell), r"ask empty\(\)"),
        (lambda k: bool(k.counter), "counter >= c"),
        (lambda k: k.counter == 1, "by counter >= c"),
        (lambda k: k.counter != 1, "by counter >= c"),
        (lambda k: bool(k.host), "ask with d.choose"),
        (lambda k: k.host == 3, "cannot be compared with 3"),
        (lambda k: list(k.host), "cannot be iterated"),
        (lambda k: list(k.ring), r"is a ring; .* range\(3\)"),
        (lambda k: k.host.read() == 3, "is not modelled; ask with d.choose"),
        (lambda k: bool(k.d.maybe("m")), "with d.maybe"),
        (lambda k: bool(k.host.item()), "is not modelled; ask with d.choose"),
        (lambda k: k.host.item() > 3, "is not modelled; ask with d.choose"),
        (lambda k: bool(k.queue.full), r"is not asked; write full\(\)"),
        (lambda k: bool(k.event.query), r"is not asked; write query\(\)"),
        (lambda k: bool(k.flag.is_set), r"is not asked; write is_set\(\)"),
        (lambda k: bool(k.rows.take()), "is not None"),
    ],
)
def test_what_has_no_value(k: Kit, use: Callable[[Kit], Any], cure: str) -> None:
    """Each was taken as Python's truth or identity."""

    def body() -> None:
        k.host.write()
        if use(k):
            k.gpu.copy_(k.host)

    k.refuses(body, cure)


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda k, n: k.d.host(f"kernel {n}"), "an index is no text"),
        (lambda k, n: k.ring[2 * n].write(), "moved by a constant"),
        (lambda k, n: k.ring[3 - n].write(), "moved by a constant"),
        (lambda k, n: k.host.write() if n + 1 > n else None, "compared with"),
    ],
)
def test_what_the_turn_cannot(k: Kit, use: Callable[[Kit, Any], Any], what: str) -> None:
    def body(n: fp.Turn) -> None:
        use(k, n)

    k.refuses(body, what)


def test_optional_objects_and_answers_of_waits(k: Kit) -> None:
    """`if event:` of an optional event, `is not None`, `if lock.acquire():`, n + c from both sides, counters from both sides."""
    guard: fp.Event | None = k.event

    @k.d.loop("worker")
    def body(n: fp.Turn) -> None:
        if guard and k.host is not None and k.lock.acquire():
            k.lock.release()
            k.ring[1 + n].write()
        if k.counter > 0 and k.counter <= 4:
            k.host.read()

    names = [type(node).__name__ for node in k.d.build().threads[0].nodes]
    assert len(names) == 6 and names.count("Ask") == 2


# ---------------------------------------------------------------- drain loops


def finished(source: fp.Queue) -> Iterator[Any]:
    """What a queue holds, one by one."""
    for done in source.drain():
        if done is not None:
            yield done


@pytest.mark.parametrize("how", ["list", "comprehension", "sum", "any", "zip", "next", "deque", "through a generator", "for a part of a generator", "islice"])
def test_nothing_hidden_keeps_count_of_a_drain(k: Kit, how: str) -> None:
    """`got = list(q.drain())`: the fall-back behind `if not got` was traced for every number of items."""
    keep: dict[str, Callable[[], Any]] = {
        "list": lambda: list(k.queue.drain()),
        "comprehension": lambda: [1 for _ in k.queue.drain()],
        "sum": lambda: sum(1 for _ in k.queue.drain()),
        "any": lambda: any(True for _ in k.queue.drain()),
        "zip": lambda: dict(zip(range(1, 9), k.queue.drain())),  # noqa: B905
        "next": lambda: next(iter(k.queue.drain()), None),
        "deque": lambda: deque(k.queue.drain()),
        "through a generator": lambda: list(finished(k.queue)),
        "for a part of a generator": lambda: [1 for _ in itertools.islice(finished(k.queue), 2)],
        "islice": lambda: [1 for _ in itertools.islice(k.queue.drain(), 2)],
    }

    def body() -> None:
        if not keep[how]():
            k.host.write()

    k.refuses(body, "write `for item in queue.drain")


def test_a_count_of_a_drain_that_matters_from_the_third_item_on(k: Kit) -> None:
    def body() -> None:
        many = 0
        for _ in k.queue.drain():
            many += 1
        if many > 3:
            k.host.write()
        k.gpu.copy_(k.host, non_blocking=True)

    k.refuses(body, "'many' changes in every iteration of the drain loop")


def test_a_drain_in_a_context_manager(k: Kit) -> None:
    @contextlib.contextmanager
    def finished_before() -> Iterator[None]:
        for done in k.queue.drain():
            done.synchronize()
        yield

    @k.d.loop("worker")
    def body() -> None:
        with finished_before():
            k.host.write()

    assert len(k.d.build().threads[0].nodes) == 4


def test_variables_of_a_drain_that_say_nothing(k: Kit) -> None:
    """Slots, parts, tuples of handles, values that are not modelled, equal lists: new in every iteration, and the same to the body."""

    @k.d.loop("worker")
    def body(n: fp.Turn) -> None:
        for done in k.queue.drain():
            slot, part, sizes = k.ring[n + 1], k.gpu["rows"], [1, 2]
            both, table = (slot, part), {"slot": slot, "sizes": sizes}
            value, seen = both[1].item(), True  # noqa: F841
            done.synchronize()
            table["slot"].read()
        k.host.write()

    assert len(k.d.build().threads[0].nodes) == 6


# ---------------------------------------------------------------- variables that a maybe sets


def _copied(k: Kit, at: int) -> None:
    k.gpu.copy_(k.host, non_blocking=True, stream=k.streams[at])


def local_helper(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        at = 1

    def log(name: str) -> str:
        at = name.upper()
        return at

    _copied(k, at)
    log("x")


def helper_called_behind(k: Kit) -> None:
    at = 0

    def copy() -> None:
        _copied(k, at)

    with k.d.maybe("m"):
        at = 1
    copy()


def pattern_behind(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        at = 1
    match k.d.name:
        case "another":
            at = 0
    _copied(k, at)


def pattern_inside(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        match 1:
            case at:
                k.host.read()
    _copied(k, at)


def short_circuit(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        at = 1
    _ = k.d.name == "another" and (at := 0)
    _copied(k, at)


def by_text(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        at = 1
    _copied(k, locals()["at"])


def in_a_loop(k: Kit) -> None:
    at = 0
    for _ in range(2):
        _copied(k, at)
        with k.d.maybe("m"):
            at = 1


def deleted(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        del at
    try:
        _copied(k, at)
    except NameError:
        _copied(k, 1)


def imported(k: Kit) -> None:
    at: Any = 0
    with k.d.maybe("m"):
        import math as at
    _copied(k, 0 if at == 0 else 1)


def tried(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        at = 1
    try:
        at = int("x")
    except ValueError:
        k.host.read()
    _copied(k, at)


def broken_off(k: Kit) -> None:
    at = 0
    for turn in range(2):
        with k.d.maybe("m"):
            at = 1
        if turn == 0:
            break
        at = 0
    _copied(k, at)


def continued(k: Kit) -> None:
    at = 0
    for turn in range(2):
        if turn == 0:
            with k.d.maybe("m"):
                at = 1
            continue
        _copied(k, at)


def raised(k: Kit) -> None:
    at = 0
    try:
        with k.d.maybe("m"):
            at = 1
        if k.d.name:
            raise KeyError
        at = 0
    except KeyError:
        k.host.read()
    _copied(k, at)


class Swallows:
    """A context manager that ends its block early."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> bool:
        return True


def swallowed(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        at = 1
    with Swallows():
        at = int("x")
    _copied(k, at)


USES = [broken_off, continued, raised, swallowed, local_helper, helper_called_behind, pattern_behind, pattern_inside, short_circuit, by_text, in_a_loop, deleted, imported, tried]


@pytest.mark.parametrize("body", USES)
def test_a_variable_that_a_maybe_sets_and_what_follows_uses(k: Kit, body: Callable[[Kit], None]) -> None:
    """Each was traced as if the block always ran: PROVED."""
    k.streams = k.d.stream("streams", depth=2)
    k.refuses(lambda: body(k), "maybe 'm' changes '(at|copy)', and what follows uses it")


def set_again(k: Kit) -> None:
    at = 0
    with k.d.maybe("m"):
        at = 1
        _copied(k, at)
    for at in range(2):  # noqa: B007
        k.host.read()
    with k.d.current_stream():
        at = 1
        _copied(k, at)
    at = 0
    if k.event.query():
        at = 1
        k.host.read()
    else:
        at = 0
    _copied(k, sum(at for at in (0, 1)))


def of_its_own(k: Kit) -> None:
    with k.d.maybe("m"):
        at = 1
        _copied(k, at)

    def other(at: int) -> None:
        _copied(k, at)

    other(0)
    _copied(k, max((1, 0), key=lambda at: at))
    return


@pytest.mark.parametrize("body", [set_again, of_its_own])
def test_a_variable_that_a_maybe_sets_for_itself(k: Kit, body: Callable[[Kit], None]) -> None:
    k.streams = k.d.stream("streams", depth=2)
    k.d.loop("worker")(lambda: body(k))
    assert k.d.build().threads
