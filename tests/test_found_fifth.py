"""Designs of a fifth round that were answered wrongly, each with its right answer."""

from __future__ import annotations

from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.model import program as p
from fencepost.proofs.check import check


def answered(build: Callable[..., fp.Design], **parameters: object) -> tuple[str, set[str]]:
    answer = check(fp.program_of(build, parameters))
    return answer.verdict, {hazard.name for hazard in answer.hazards}


def refused(build: Callable[..., fp.Design], text: str, **parameters: object) -> None:
    with pytest.raises(fp.DesignError, match=text) as caught:
        fp.program_of(build, parameters)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("tests/test_found_fifth.py:")


# ---------------------------------------------------------------- what captures allocate (S74, S97)

Body = Callable[[fp.Design, fp.Tensor], None]


def other_span(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t[0:64]])
    d.launch("r", reads=[t[64:128]], writes=[out])


def other_name(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t["a"]])
    d.launch("r", reads=[t["b"]], writes=[out])


def whole_behind_a_span(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t[0:64]])
    d.launch("r", reads=[t], writes=[out])


def whole_behind_a_name(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t["a"]])
    d.launch("r", reads=[t], writes=[out])
    d.launch("w, too", writes=[t["b"]])


def by_a_view(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("r", reads=[t.view()], writes=[out])


def part_of_a_view(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t[64:128].view()[0:32]])
    d.launch("r", reads=[t[64:128]], writes=[out])


def same_bytes(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[fp.write(t, same_bytes=True)])
    d.launch("r", reads=[t], writes=[out])


def part_of_a_reused_block(d: fp.Design, out: fp.Tensor) -> None:
    before = d.empty("before")
    d.launch("w0", writes=[before])
    before.release()
    t = d.empty("t")
    d.launch("w", writes=[t[0:64]])
    d.launch("r", reads=[t[64:128]], writes=[out])


def raw_pointer_to_a_reused_block(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    raw = t.view(held=False)
    d.launch("w", writes=[t])
    t.release()
    following = d.empty("following")
    d.launch("w", writes=[following])
    d.launch("r", reads=[raw], writes=[out])


UNDEFINED: dict[Body, str] = {
    other_span: r"'t'\[64:128\], which", other_name: r"'t'\['b'\], which", whole_behind_a_span: r"'t'\[64:4096\], which",
    whole_behind_a_name: r"'t'\['b'\], which", by_a_view: "'t', which", part_of_a_view: r"'t'\[96:128\], which", same_bytes: "'t', which",
    part_of_a_reused_block: r"'t'\[64:128\], which", raw_pointer_to_a_reused_block: "'t' by a raw pointer when 'following' has its block",
}  # fmt: skip


def all_spans(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t", bytes=128)
    d.launch("w", writes=[t[0:96]])
    d.launch("w2", writes=[t[64:128]])
    d.launch("r", reads=[t], writes=[out])


def all_names(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t["a"], t["b"]])
    d.launch("r", reads=[t], writes=[out])


def written_by_a_view(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t[64:128].view()])
    d.launch("r", reads=[t[64:96], t[96:128].view()], writes=[out])


def same_bytes_behind(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t])
    d.launch("again", writes=[fp.write(t, same_bytes=True)])
    d.launch("r", reads=[t], writes=[out])


def an_unknown_part(d: fp.Design, out: fp.Tensor) -> None:
    t = d.empty("t")
    d.launch("w", writes=[t[fp.ANY]])
    d.launch("r", reads=[t[fp.ANY]], writes=[out])


DEFINED: list[Body] = [all_spans, all_names, written_by_a_view, same_bytes_behind, an_unknown_part]


def text(body: Body, captured: bool = True) -> fp.Design:
    """The same text in a graph, and without one."""
    d = fp.Design("text")
    stream, out, graph = d.stream("stream"), d.device("out"), d.graph("graph")
    if captured:

        @d.setup(stream=stream)
        def setup() -> None:
            with graph.capture():
                body(d, out)

    @d.loop("worker", stream=stream)
    def step() -> None:
        if captured:
            graph.replay()
        else:
            body(d, out)

    return d


@pytest.mark.parametrize("body", UNDEFINED)
def test_what_is_undefined_without_a_graph_is_refused_in_one(body: Body) -> None:
    """`d.empty` is undefined in a capture as elsewhere, each part of it until that very part was written for this tensor."""
    assert answered(lambda: text(body, False)) == (fp.REFUTED, {"UNDEFINED t"})
    refused(lambda: text(body), UNDEFINED[body])


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("body", DEFINED)
def test_what_is_defined_without_a_graph_is_proved_in_one(body: Body, captured: bool) -> None:
    assert answered(lambda: text(body, captured)) == (fp.PROVED, set())


def test_a_part_ends_with_its_tensor() -> None:
    def body(d: fp.Design, out: fp.Tensor) -> None:
        t = d.empty("t")
        part = t[0:64]
        d.launch("w", writes=[t])
        t.release()
        d.launch("r", reads=[part], writes=[out])

    refused(lambda: text(body), "'t of graph' is used after its release")
    refused(lambda: text(body, False), "'t' is used after its release")


def two_of_one_name(released: bool = False) -> fp.Design:
    """A helper that allocates, called twice in a capture."""
    d = fp.Design("two_of_one_name")
    stream, side, out, graph = d.stream("stream"), d.stream("side"), d.device("out", depth=2), d.graph("graph")

    @d.setup(stream=stream)
    def setup() -> None:
        def layer() -> fp.Tensor:
            t = d.empty("t")
            d.launch("w", writes=[t])
            return t

        with graph.capture():
            first = layer()
            side.wait_stream(stream)
            d.launch("r", reads=[first], writes=[out[0]], stream=side)
            if released:
                first.release()
            second = layer()
            d.launch("r", reads=[second], writes=[out[1]])
            stream.wait_stream(side)

    @d.loop("worker", stream=stream)
    def step() -> None:
        graph.replay()

    return d


def test_two_tensors_of_one_name_in_a_capture() -> None:
    """They are two, unless the first is released."""
    program = fp.program_of(two_of_one_name, {})
    assert {one.name for one in program.objects if isinstance(one, p.Memory)} == {"out", "t of graph", "t 2 of graph"}
    assert answered(two_of_one_name) == (fp.PROVED, set())
    assert answered(two_of_one_name, released=True)[0] == fp.REFUTED


def releases_in_the_second(noted: bool = False) -> fp.Design:
    """Two graphs of one pool: the first keeps its tensor, the second gives its own back."""
    d = fp.Design("releases_in_the_second")
    own, out = [d.stream("a"), d.stream("b")], d.device("out", depth=2)
    first = d.graph("first")
    second = d.graph("second", pool=first)

    @d.setup(stream=own[0])
    def setup() -> None:
        with first.capture():
            x = d.empty("x")
            d.launch("w", writes=[x])
            d.launch("r", reads=[x], writes=[out[0]])
        with second.capture():
            y = d.empty("y")
            d.launch("w", writes=[y])
            d.launch("r", reads=[y], writes=[out[1]])
            if noted:
                y.record_stream(own[1])
            y.release()

    @d.loop("worker")
    def step() -> None:
        first.replay(own[0])
        second.replay(own[1])

    return d


@pytest.mark.parametrize("noted", [False, True])
def test_a_body_that_runs_again_captures_into_an_empty_pool(noted: bool) -> None:
    """Was REFUTED: the first graph was given what the second one had released when the body ran before."""
    assert answered(releases_in_the_second, noted=noted) == (fp.PROVED, set())


def producer_and_consumer(order: str = "in turn", pool: bool = True, part: int = 0, threads: int = 1, setup_does: str = "") -> fp.Design:
    """What one graph allocates and writes, another one reads."""
    d = fp.Design("producer_and_consumer")
    stream, out, queue = d.stream("stream"), d.device("out"), d.queue("queue", 1)
    produce = d.graph("produce", several_threads=True)
    consume = d.graph("consume", pool=produce if pool else None)

    @d.setup(stream=stream)
    def setup() -> None:
        with produce.capture():
            t = d.empty("t")
            d.launch("w", writes=[t[0:64]])
        with consume.capture():
            d.launch("r", reads=[t[part : part + 64]], writes=[out])
        if setup_does == "launches":
            produce.replay()
        elif setup_does == "writes":
            d.memset(t)
        elif setup_does == "may launch" and d.choose("warm up", ["no", "yes"]) == "yes":
            produce.replay()

    if threads == 2:

        @d.loop("producer", stream=stream)
        def producer() -> None:
            produce.replay()
            queue.put()

        @d.loop("consumer", stream=stream)
        def consumer() -> None:
            queue.get()
            consume.replay()

        return d

    @d.loop("worker", stream=stream)
    def step() -> None:
        if order == "in turn":
            produce.replay()
        elif order == "either way":
            if d.choose("which", ["a", "b"]) == "a":
                produce.replay()
            else:
                produce.replay()
        elif order == "perhaps" and d.choose("which", ["a", "b"]) == "a":
            produce.replay()
        consume.replay()
        if order == "behind":
            produce.replay()

    return d


@pytest.mark.parametrize("pool", [False, True])
def test_what_a_launch_of_another_graph_writes(pool: bool) -> None:
    """At the first launch of the reader that one must have been launched."""
    for order in ("in turn", "either way"):
        assert answered(producer_and_consumer, order=order, pool=pool) == (fp.PROVED, set())
    for order in ("behind", "perhaps"):
        refused(producer_and_consumer, "thread 'worker' may launch the graph when nothing has written that yet: .*launch graph 'produce'", order=order, pool=pool)
        assert answered(producer_and_consumer, order=order, pool=pool, setup_does="launches") == (fp.PROVED, set())
        assert answered(producer_and_consumer, order=order, pool=pool, setup_does="writes") == (fp.PROVED, set())
        refused(producer_and_consumer, "may launch the graph when", order=order, pool=pool, setup_does="may launch")
    refused(producer_and_consumer, r"'t'\[64:128\], which is allocated in the capture of 'produce' and which no node before it writes", part=64, pool=pool)


def test_what_a_launch_of_another_thread_writes() -> None:
    """That it comes first is not told: it is asked for in a setup."""
    refused(producer_and_consumer, "thread 'consumer' may launch the graph when nothing has written", threads=2)
    for does in ("launches", "writes"):
        assert answered(producer_and_consumer, threads=2, setup_does=does) == (fp.PROVED, set())


# ---------------------------------------------------------------- what a drain leaves behind


def left_behind(how: str) -> fp.Design:
    """Waits only if no item came, which a variable tells that holds what can no longer be used."""
    d = fp.Design("left_behind")
    host, there, stream = d.pinned("host"), d.device("there"), d.stream("stream")
    queue = d.queue("queue", 4, item=(fp.MEMORY,))

    @d.loop("sender", stream=stream)
    def sender() -> None:
        mine = d.empty("mine")
        d.launch("fill", writes=[mine])
        queue.put(mine)

    def caught() -> None:
        for y in queue.drain():  # noqa: B007
            pass
        try:
            z = y  # noqa: F841
        except UnboundLocalError:
            stream.synchronize()

    def named() -> None:
        for y in queue.drain():  # noqa: B007
            pass
        if "y" not in dir():
            stream.synchronize()

    def same() -> None:
        before = d.empty("before")
        before.release()
        y = before
        for y in queue.drain():  # noqa: B007
            pass
        if y is before:
            stream.synchronize()

    def value() -> None:
        for y in queue.drain():
            z = y.item()
        try:
            z  # noqa: B018
        except NameError:
            stream.synchronize()

    def closed_over() -> None:
        for y in queue.drain():  # noqa: B007
            pass

        def look() -> None:
            try:
                y  # noqa: B018
            except NameError:
                stream.synchronize()

        look()

    def pair() -> None:
        z = None
        for y in queue.drain():
            z = (y, y)
        if z is None:
            stream.synchronize()

    def unread() -> None:
        for y in queue.drain():
            z = y
        stream.synchronize()
        z = None  # noqa: F841

    def read_within() -> None:
        for y in queue.drain():
            d.launch("use", reads=[y])
        stream.synchronize()

    bodies = {one.__name__: one for one in (caught, named, same, value, closed_over, pair, unread, read_within)}

    @d.loop("worker", stream=stream)
    def worker() -> None:
        host.write()
        there.copy_(host, non_blocking=True)
        bodies[how]()

    return d


@pytest.mark.parametrize("how", ["caught", "named", "same", "value", "closed_over", "pair"])
def test_whether_a_drain_set_a_variable_is_what_happened_in_it(how: str) -> None:
    """Also where the variable holds what can no longer be used: it can be asked whether it is set, and whether it is another."""
    refused(left_behind, "what follows depends on what happened in an iteration of this drain loop", how=how)


@pytest.mark.parametrize("how", ["unread", "read_within"])
def test_a_variable_that_nothing_behind_a_drain_reads(how: str) -> None:
    assert answered(left_behind, how=how) == (fp.PROVED, set())


# ---------------------------------------------------------------- what a maybe sets, and is asked of behind it


def set_in_a_maybe(made: str, asked: str) -> fp.Design:
    d = fp.Design("prefill")
    h, x, s, rows, cursor = d.pinned("h"), d.device("x"), d.stream("s"), d.pool("rows", 2, of="row"), d.cursor("cursor", 4)

    @d.loop("t", stream=s)
    def t() -> None:
        h.write()
        x.copy_(h, non_blocking=True)
        if asked == "is not None":
            extra: object = None
        with d.maybe("new requests"):
            if made == "tensor":
                extra = d.empty("extra")
            elif made == "event":
                extra = d.event("extra")
            elif made == "row":
                extra = rows.take()
                rows.give(extra)
            elif made == "position":
                extra = cursor.advance()
        if extra is not None if asked == "is not None" else "extra" in dir():
            s.synchronize()

    return d


@pytest.mark.parametrize("asked", ["is not None", "in dir()"])
@pytest.mark.parametrize("made", ["tensor", "event", "row", "position"])
def test_what_a_maybe_sets_tells_whether_it_ran(made: str, asked: str) -> None:
    refused(set_in_a_maybe, "maybe 'new requests' changes 'extra'", made=made, asked=asked)


def set_in_a_maybe_for_itself() -> fp.Design:
    d = fp.Design("prefill alone")
    h, x, s = d.pinned("h"), d.device("x"), d.stream("s")

    @d.loop("t", stream=s)
    def t() -> None:
        h.write()
        x.copy_(h, non_blocking=True)
        with d.maybe("new requests"):
            extra = d.empty("extra")
            d.launch("w", writes=[extra])
        s.synchronize()

    return d


def test_what_a_maybe_sets_for_itself_alone() -> None:
    assert answered(set_in_a_maybe_for_itself) == (fp.PROVED, set())


# ---------------------------------------------------------------- a request and its answer is no wait of a condition


def asks_a_server(between: bool) -> fp.Design:
    d = fp.Design("request")
    gil, req, resp, h, asked = d.lock("GIL"), d.queue("req", 4), d.queue("resp", 4), d.pinned("h"), d.counter("asked")

    @d.loop("worker", idle=True)
    def worker() -> None:
        with gil:
            req.put()
            if between:
                asked.add()
            with gil.released():
                resp.get()  # the second answer never comes
            h.write()

    @d.script("server")
    def server() -> None:
        req.get()
        resp.put()
        if between:
            asked.wait(3)

    return d


@pytest.mark.parametrize("between", [False, True])
def test_who_sent_a_request_does_not_wait_for_work(between: bool) -> None:
    answer = check(fp.program_of(asks_a_server, {"between": between}))
    assert any("resp" in hang.partition(" - ")[0] for hang in answer.hangs), answer.hangs
