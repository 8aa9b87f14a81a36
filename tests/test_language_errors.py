"""What is no design is refused in one line with file and line; what keeps Python state between turns is no design."""

from __future__ import annotations

import enum
import functools
import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any, Literal

import fencepost as fp
import pytest

Body = Callable[..., None]


class Kit:
    """A design with one object of each kind, and a decorator for its only thread."""

    def __init__(self) -> None:
        self.d = d = fp.Design("kit")
        self.buffer, self.ring, self.gpu = d.pinned("buffer"), d.pinned("ring", depth=3), d.device("gpu")
        self.event, self.events = d.event("event"), d.event("events", depth=2)
        self.queue = d.queue("queue", 2, item=(fp.EVENT, fp.MEMORY))
        self.tagged = d.queue("tagged", 2, item={"a": (fp.INDEX,), "b": ()})
        self.cell = d.cell("cell", item=(fp.MEMORY,))
        self.cursor = d.cursor("cursor", 4)
        self.stream, self.counter = d.stream("stream"), d.counter("counter")

    def refuses(self, body: Body, match: str) -> str:
        with pytest.raises(fp.DesignError, match=match) as caught:
            self.d.loop("worker")(body)
        return one_line(caught.value)


def one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    assert re.match(r"\S*test_language_errors\.py:\d+: ", text), text
    return text


@pytest.fixture
def k() -> Kit:
    return Kit()


# ---------------------------------------------------------------- objects


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda d: d.queue("q", capacity=0), "capacity=0; it is at least 1"),
        (lambda d: d.pinned("p", depth=0), "depth=0; it is at least 1"),
        (lambda d: d.pinned("p", depth=-1), "depth=-1"),
        (lambda d: d.pinned("p", depth=True), "depth=True"),
        (lambda d: d.pinned("p", bytes=0), "bytes=0"),
        (lambda d: d.cursor("c", 0), "depth=0"),
        (lambda d: d.pool("p", 0), "size=0"),
        (lambda d: d.pool("p", 1, of="tape"), 'a pool is of "device"'),
        (lambda d: d.semaphore("s", -1), "starts at 0 or more"),
        (lambda d: (d.pinned("same"), d.device("same")), r"two objects are called 'same' \(the other at .*:\d+\)"),
        (lambda d: d.queue("q", 1, item=("tensor",)), "an item is a tuple of fp.EVENT"),
        (lambda d: d.queue("q", 1, item={"": ()}), "tags are names"),
        (lambda d: d.device("g", gpu=-1), "GPUs are numbered"),
        (lambda d: d.accept("race", because="x"), "write kind and object"),
        (lambda d: d.accept("WAR x", because=" "), "gives no reason"),
        (lambda d: d.pinned("p").write(), "outside of a body"),
        (lambda d: d.loop("t", stream="x"), "is no stream"),
        (lambda d: d.loop("t")(lambda a, b: None), "takes the turn n, or nothing"),
        (lambda d: d.build(), "has no threads"),
        (lambda d: fp.Design(""), "give the design a name"),
    ],
)
def test_objects(make: Callable[[fp.Design], Any], match: str) -> None:
    with pytest.raises(fp.DesignError, match=match) as caught:
        make(fp.Design("design"))
    one_line(caught.value)


def test_two_threads_of_one_name(k: Kit) -> None:
    k.d.loop("worker")(lambda: k.buffer.write())
    with pytest.raises(fp.DesignError, match="two threads are called 'worker'"):
        k.d.loop("worker")


# ---------------------------------------------------------------- operations


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (lambda k, n: k.ring.write(), "is a ring of 3 and is used without an index"),
        (lambda k, n: k.ring["rows"].write(), "its index is the turn"),
        (lambda k, n: k.ring[3].write(), "slots 0 to 2"),
        (lambda k, n: k.ring[k.cursor.advance()].write(), "ring of 3, the index is one of rings of 4"),
        (lambda k, n: k.events.record(), "without an index"),
        (lambda k, n: k.event[n].record(), "is no ring"),
        (lambda k, n: k.buffer[8:8].write(), "no range of elements"),
        (lambda k, n: k.buffer["a"]["b"].write(), "a part of a part"),
        (lambda k, n: k.gpu.write(), "the host cannot access device memory 'gpu'"),
        (lambda k, n: k.d.host("f", reads=[k.gpu]), "the host cannot access"),
        (lambda k, n: k.gpu.copy_(k.event), "is no memory"),
        (lambda k, n: k.stream.wait_event(k.stream), "is no event"),
        (lambda k, n: k.stream.wait_stream(k.event), "is no stream"),
        (lambda k, n: k.d.launch("f", reads=[k.event]), "is no memory"),
        (lambda k, n: k.d.launch("f", reads=[fp.write(k.gpu)]), "fp.write into writes="),
        (lambda k, n: k.buffer.read(harm="great"), "it is one of address"),
        (lambda k, n: k.buffer.read(time=-1), "a duration in seconds, 0 or more"),
        (lambda k, n: k.buffer.release(), "lives for ever"),
        (lambda k, n: k.queue.put(k.event), "takes 2 values"),
        (lambda k, n: k.queue.put(k.buffer, k.event), "value 1 is declared as event"),
        (lambda k, n: k.queue.put(k.event, k.ring), "without an index"),
        (lambda k, n: k.queue.put("c", k.event, k.buffer), "it has no tags"),
        (lambda k, n: k.tagged.put(n), "its tags are 'a', 'b'"),
        (lambda k, n: k.cell.set(k.event), "is declared as memory"),
        (lambda k, n: k.queue.holds(3), "holds 1 to 2"),
        (lambda k, n: k.counter.add(0), "positive constant"),
        (lambda k, n: k.counter >= n, "compared with a constant"),
        (lambda k, n: n % 3, "% of an index"),
        (lambda k, n: n == 3, "nothing else"),
        (lambda k, n: n < 65, "the greatest constant is 64"),
        (lambda k, n: range(n), "is no number"),
        (lambda k, n: bool(n), "no truth value"),
        (lambda k, n: k.cursor.advance() == 1, "cannot be compared"),
        (lambda k, n: k.d.pinned("late"), "made in a body and would live for ever"),
        (lambda k, n: k.d.loop("inner"), "is made in a body"),
        (lambda k, n: k.d.empty("gpu"), "also the name of an object"),
        (lambda k, n: k.d.choose("c", ["a", "a"]), "each once"),
        (lambda k, n: (k.d.choose("c", ["a", "b"]), k.d.choose("c", ["a"])), "another name for another question"),
        (lambda k, n: None, "does nothing"),
        (lambda k, n: (yield), "is a generator"),
    ],
)
def test_operations(k: Kit, body: Callable[..., Any], match: str) -> None:
    if match == "is a generator":
        k.refuses(lambda: (yield), match)  # type: ignore[arg-type]
    else:
        k.refuses(lambda n: body(k, n), match)


def test_use_after_release(k: Kit) -> None:
    def body() -> None:
        tensor = k.d.empty("tokens")
        view = tensor[0:4]
        tensor.release()
        k.d.launch("f", reads=[view])

    text = k.refuses(body, r"'tokens' is used after its release at \S+:\d+")
    line = body.__code__.co_firstlineno
    assert f":{line + 4}: " in text
    assert text.endswith(f":{line + 3}")


def test_released_twice(k: Kit) -> None:
    def body() -> None:
        tensor = k.d.empty("tokens")
        tensor.release()
        tensor.release()

    k.refuses(body, "is used after its release")


def test_use_after_scope(k: Kit) -> None:
    def body() -> None:
        with k.d.scope("call"):
            tensor = k.d.empty("tokens")
        k.d.launch("f", reads=[tensor])

    k.refuses(body, "after the end of scope 'call'")


def test_object_of_another_design(k: Kit) -> None:
    other = Kit()
    k.refuses(lambda: k.gpu.copy_(other.buffer) and None, r"belongs to another design \('kit'\)")
    k.refuses(lambda: k.event.record(other.stream), "belongs to another design")
    k.refuses(lambda: k.queue.put(k.event, other.buffer), "belongs to another design")
    k.refuses(lambda: other.buffer.write(), "belongs to another design than the body")
    k.refuses(lambda: k.ring[other.cursor.advance()].write(), "belongs to another design than the body")
    with pytest.raises(fp.DesignError, match="belongs to another design"):
        k.d.loop("worker", stream=other.stream)


def test_depths_are_compared_through_queues(k: Kit) -> None:
    items = k.d.queue("items", 1, item=fp.INDEX)

    @k.d.loop("consumer")
    def consume() -> None:
        k.ring[items.get()].read()

    k.refuses(lambda: items.put(k.cursor.advance()), "an index of depth 4 where others are of depth 3")


# ---------------------------------------------------------------- Python state


def test_a_list_kept_between_turns(k: Kit) -> None:
    pending: list[Any] = []

    def body() -> None:
        pending.append(k.d.event("done"))
        if len(pending) > 100:
            pending.pop(0).synchronize()

    assert "d.cell or d.cursor" in k.refuses(body, "changes 'pending', which lives on")


def test_a_counter(k: Kit) -> None:
    count = 0

    def body() -> None:
        nonlocal count
        count += 1
        k.buffer.write()

    k.refuses(body, "changes 'count'")


def test_an_iterator(k: Kit) -> None:
    numbers = itertools.count()

    def body() -> None:
        k.buffer[next(numbers)].write()

    k.refuses(body, "changes 'numbers'")


GLOBAL = 0


def test_a_global(k: Kit) -> None:
    def helper() -> None:
        global GLOBAL
        GLOBAL += 1

    def body() -> None:
        helper()
        k.buffer.write()

    k.refuses(body, "changes 'GLOBAL'")


def test_state_that_cannot_be_seen(k: Kit) -> None:
    sly: Any = enum.auto()  # of what enum makes nothing is looked at
    sly.values = [0]

    def body() -> None:
        sly.values[0] += 1
        if sly.values[0] % 2:
            k.buffer.write()
        k.buffer.read()

    k.refuses(body, "does not do the same when it runs again")


def test_a_handle_of_an_earlier_turn(k: Kit) -> None:
    box: Any = enum.auto()
    box.values = []

    def body() -> None:
        for value in box.values:
            value.synchronize()
        box.values = [k.d.event("done")]

    k.refuses(body, "'done' was made in an earlier turn")


def test_a_handle_of_another_thread(k: Kit) -> None:
    box: Any = enum.auto()

    @k.d.loop("other")
    def other() -> None:
        box.value = k.d.event("done")

    k.refuses(lambda: box.value.synchronize(), "was made in thread 'other'; hand it over")


@pytest.mark.parametrize("kind", ["attributes", "slots", "bytes", "a class"])
@pytest.mark.parametrize("through", ["it", "a method", "a partial call", "a list of functions"])
def test_state_behind_what_a_body_calls(k: Kit, kind: str, through: str) -> None:
    class Attributes:
        def tick(self) -> bool:
            self.count = getattr(self, "count", 0) + 1
            return self.count < 1000

    class Slots(Attributes):
        __slots__ = ("count",)

    class Bytes(Attributes):
        content = bytearray(1)

        def tick(self) -> bool:
            self.content[0] += 1
            return self.content[0] < 100

    class Class(Attributes):
        def tick(self) -> bool:
            type(self).count = getattr(type(self), "count", 0) + 1
            return type(self).count < 1000

    thing = {"attributes": Attributes, "slots": Slots, "bytes": Bytes, "a class": Class}[kind]()
    tick, partial, several = thing.tick, functools.partial(type(thing).tick, thing), [lambda: thing.tick()]

    def body() -> None:
        called = {"it": lambda: thing.tick(), "a method": tick, "a partial call": partial, "a list of functions": several[0]}[through]
        if called():
            k.buffer.write()
        k.buffer.read()

    k.refuses(body, "changes '")


# ---------------------------------------------------------------- questions


def test_endless_questions(k: Kit) -> None:
    def body() -> None:
        while not k.event.query():
            pass

    k.refuses(body, "more than 400 questions in one turn of 'worker'")


def test_endless_operations(k: Kit) -> None:
    def body() -> None:
        while k.d.choose("again", ["yes", "no"]) == "yes":
            k.buffer.write()

    k.refuses(body, "more than 20000 operations in one turn")


def test_many_independent_questions(k: Kit) -> None:
    def body() -> None:
        for number in range(13):
            if k.d.choose(f"question {number}", [True, False]):
                k.buffer[number].write()

    with pytest.warns(fp.DesignWarning, match="8192 combinations of answers.*use d.maybe"):
        k.d.loop("worker")(body)
    (thread,) = k.d.build().threads
    assert len(thread.nodes) == 26


def test_many_optional_blocks_are_cheap(k: Kit) -> None:
    def body() -> None:
        for number in range(40):
            with k.d.maybe(f"block {number}"):
                k.buffer[number].write()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        k.d.loop("worker")(body)
    assert len(k.d.build().threads[0].nodes) == 80


# ---------------------------------------------------------------- blocks that may not run


def test_return_from_maybe(k: Kit) -> None:
    def body() -> None:
        with k.d.maybe("idle"):
            return
        k.buffer.write()

    k.refuses(body, "return leaves a maybe block")


def test_break_from_maybe(k: Kit) -> None:
    def body() -> None:
        for _ in range(2):
            with k.d.maybe("idle"):
                k.buffer.write()
                break

    k.refuses(body, "break leaves a maybe block")


def test_value_of_maybe(k: Kit) -> None:
    def body() -> None:
        with k.d.maybe("new"):
            tensor = k.d.empty("tokens")
        k.d.launch("f", reads=[tensor])

    k.refuses(body, "maybe 'new' changes 'tensor', and what follows uses it")


def test_flag_set_in_maybe(k: Kit) -> None:
    def body() -> None:
        ran = False
        with k.d.maybe("new"):
            ran = True
        if ran:
            k.buffer.write()

    k.refuses(body, "maybe 'new' changes 'ran'")


def test_list_changed_in_maybe(k: Kit) -> None:
    def body() -> None:
        parts: list[int] = []
        with k.d.maybe("new"):
            parts.append(1)
        for part in parts:
            k.buffer[part].write()

    k.refuses(body, "maybe 'new' changes 'parts'")


def test_what_follows_depends_on_a_question_in_maybe(k: Kit) -> None:
    def body() -> None:
        with k.d.maybe("new"):
            if k.d.choose("kind", ["a", "b"]) == "a":
                k.buffer.write()
        if k.d.choose("kind", ["a", "b"]) == "a":
            k.buffer.read()

    k.refuses(body, "what follows depends on what happened in the block of maybe 'new'")


def test_position_across_maybe(k: Kit) -> None:
    ring = k.d.pinned("ring of 4", depth=4)

    def body() -> None:
        before = k.cursor.last()
        with k.d.maybe("new"):
            k.cursor.advance()
        ring[before].read()

    k.refuses(body, "may have advanced in a maybe block")


def test_release_in_maybe(k: Kit) -> None:
    def body() -> None:
        tensor = k.d.empty("tokens")
        with k.d.maybe("finished"):
            tensor.release()

    k.refuses(body, "maybe 'finished' releases 'tokens', which is made outside of the block")


def test_names_and_turns_in_maybe(k: Kit) -> None:
    def body(n: fp.Turn) -> None:
        with k.d.maybe("new"):
            if k.event.query():
                k.d.empty("tokens")
            if n < 2:
                k.buffer.write()
        k.d.empty("tokens")
        if n < 2:
            k.buffer.write()

    k.d.loop("worker")(body)
    assert len(k.d.build().threads[0].locals) == 1


# ---------------------------------------------------------------- drain loops


def test_release_in_drain(k: Kit) -> None:
    def body() -> None:
        live = [k.d.empty("tokens")]
        for _ in k.queue.drain():
            live[0].release()

    k.refuses(body, "'tokens' is used after its release")


def test_hidden_iterators_over_drain(k: Kit) -> None:
    def numbered() -> None:
        for number, _ in enumerate(k.queue.drain()):
            k.buffer[number].write()

    def zipped() -> None:
        for _, part in zip(k.queue.drain(), ["a", "b", "c", "d"], strict=False):
            k.buffer[part].write()

    k.refuses(numbered, "may keep count of its items")
    k.refuses(zipped, "may keep count of its items")


def test_flag_set_in_drain(k: Kit) -> None:
    def body() -> None:
        ran = False
        for _ in k.queue.drain():
            ran = True
        if ran:
            k.buffer.write()

    k.refuses(body, "what follows depends on what happened in an iteration of this drain loop")


def test_first_iteration_differs(k: Kit) -> None:
    def body() -> None:
        first = True
        for _ in k.queue.drain():
            if first:
                k.buffer.write()
            first = False

    k.refuses(body, "an iteration of this drain loop")


def test_item_after_drain(k: Kit) -> None:
    def body() -> None:
        item = None
        for item in k.queue.drain():  # noqa: B007
            pass
        if item is not None:
            item[0].synchronize()

    k.refuses(body, "is used after the end of its iteration")


def test_drain_loops_are_cheap(k: Kit) -> None:
    queues = [k.d.queue(f"queue {number}", 1, item=(fp.MEMORY,)) for number in range(12)]

    def body() -> None:
        for queue in queues:
            for block in queue.drain():
                block.read()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        k.d.loop("worker")(body)
    assert len(k.d.build().threads[0].nodes) == 12 * 4


def test_position_across_drain(k: Kit) -> None:
    ring = k.d.pinned("ring of 4", depth=4)

    def body() -> None:
        before = k.cursor.last()
        for _ in k.queue.drain():
            k.cursor.advance()
        ring[before].read()

    k.refuses(body, "an iteration of this drain loop")


def test_agreed_in_drain(k: Kit) -> None:
    def body() -> None:
        for _ in k.queue.drain():
            k.d.choose("kind", ["a", "b"], agreed=True)

    k.refuses(body, "ask before the loop")


# ---------------------------------------------------------------- functions, variants


@fp.accept("WAR sampling params", because="one step of quality at most")
@fp.variant("first", fp.REFUTED, hazard="WAR buffer", fix="second", depth=1)
@fp.variant("second", fp.PROVED, depth=2, kind="b")
def design(
    depth: int = 1, guard: bool = False, kind: Literal["a", "b"] = "a", path: str | None = None, parts: tuple[str, ...] = ()
) -> fp.Design:
    d = fp.Design("design")
    d.models("engine/runner.py", "Runner.step", "1.0")
    d.accept("WAW log", because="nobody reads it")
    buffer = d.pinned("buffer")

    @d.loop("worker")
    def step() -> None:
        buffer.write()

    return d


def test_variants() -> None:
    first, second = design.__fencepost_variants__  # type: ignore[attr-defined]
    assert (first.label, first.verdict, first.hazard, first.fix) == ("first", fp.REFUTED, "WAR buffer", "second")
    assert dict(second.parameters) == {"depth": 2, "kind": "b"}
    program = fp.program_of(design, {"depth": 2})
    assert [accept.hazard for accept in program.accepted] == ["WAR sampling params", "WAW log"]
    assert program.stands_for[0].name == "Runner.step"


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"deep": 1}, "design has no parameter 'deep'; it has: depth, guard"),
        ({"depth": "1"}, "parameter 'depth' of design is int, not '1'"),
        ({"depth": True}, "is int, not True"),
        ({"guard": 1}, "is bool, not 1"),
        ({"kind": "c"}, "is 'a' or 'b', not 'c'"),
        ({"path": 1}, "is str or None, not 1"),
        ({"parts": ("a", 1)}, r"is tuple\[str, ...\], not"),
        ({"parts": ["a"]}, r"is tuple\[str, ...\], not"),
    ],
)
def test_parameters(parameters: dict[str, Any], match: str) -> None:
    with pytest.raises(fp.DesignError, match=match) as caught:
        fp.program_of(design, parameters)
    one_line(caught.value)


def test_parameters_that_fit() -> None:
    assert fp.program_of(design, {"path": "x", "parts": ("a", "b"), "guard": True})


def test_variant_errors() -> None:
    with pytest.raises(fp.DesignError, match="no verdict 'fine'"):
        fp.variant("x", "fine")
    with pytest.raises(fp.DesignError, match="two variants are called 'first'"):
        fp.variant("first", fp.PROVED)(design)
    with pytest.raises(fp.DesignError, match="only a refutation has a hazard"):
        fp.variant("x", fp.PROVED, hazard="WAR x")
    with pytest.raises(fp.DesignError, match="name the environment"):
        fp.variant("x", fp.MASKED)

    def reserved(platform: str = "cuda") -> fp.Design:
        return fp.Design("reserved")

    with pytest.raises(fp.DesignError, match=r"has a parameter 'platform', which fp\.variant uses"):
        fp.variant("x", fp.PROVED)(reserved)


def test_not_a_design() -> None:
    with pytest.raises(fp.DesignError, match="returned NoneType, not a Design"):
        fp.program_of(lambda: None, {})


# ---------------------------------------------------------------- places


def test_places(k: Kit) -> None:
    def helper() -> None:
        k.buffer.write()
        k.buffer.read(), k.buffer.read()

    def body() -> None:
        helper()
        k.d.empty("tokens")

    k.d.loop("worker")(body)
    program = k.d.build()
    nodes = [program.threads[0].nodes[i] for i in range(len(program.threads[0].nodes))]
    assert [node.site for node in nodes] == [0, 1, 2, 4, 3] or [node.site for node in nodes] == [0, 1, 2, 3, 4]
    outer, inner = program.places[nodes[0].site]
    assert (outer.file, outer.function, outer.line) == ("test_language_errors.py", "body", body.__code__.co_firstlineno + 1)
    assert (inner.function, inner.line) == ("helper", helper.__code__.co_firstlineno + 1)
    end = program.places[nodes[-1].site]
    assert end[-1].line == body.__code__.co_firstlineno + 2


def test_the_same_text_one_line_lower() -> None:
    text = (
        "import fencepost as fp\n{}def f():\n    d = fp.Design('x')\n    b = d.pinned('b')\n\n    @d.loop('t')\n"
        "    def body():\n        b.write()\n\n    return d\n"
    )
    programs = []
    for blank in ("", "\n"):
        scope: dict[str, Any] = {}
        exec(compile(text.format(blank), "/somewhere/x.py", "exec"), scope)
        programs.append(fp.program_of(scope["f"], {}))
    assert programs[0] == programs[1]
    assert hash(programs[0]) == hash(programs[1])
    assert programs[0].places != programs[1].places
