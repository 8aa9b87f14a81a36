"""Calls that are several operations at once: what each writes down, and what follows for a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fencepost as fp
import pytest
from fencepost.model import program as p
from fencepost.proofs.check import check

Build = Callable[[fp.Design], None]


def program(build: Build) -> p.Program:
    """The program of a design written by `build`."""
    d = fp.Design("test")
    build(d)
    return d.build()


def verdict(build: Build) -> str:
    return check(program(build), explain=False).verdict


def operations(build: Build, thread: str = "worker") -> list[str]:
    """Names of a straight thread's operations, in order."""
    made = program(build)
    (found,) = [one for one in made.threads if one.name == thread]
    names, at = [], found.entry
    while at != p.END:
        node = found.nodes[at]
        assert isinstance(node, p.Do)
        names.append(type(node.operation).__name__)
        at = node.next
    return names


# ---------------------------------------------------------------- the legacy default stream (S11)


def legacy(blocking: bool, writer: str) -> Build:
    """K1 on one stream, K2 on the other, in both orders of who writes; nothing else orders them."""

    def build(d: fp.Design) -> None:
        array, other = d.device("array"), d.stream("other", blocking=blocking)

        @d.loop("worker")
        def step() -> None:
            first, second = (d.default_stream(), other) if writer == "legacy" else (other, d.default_stream())
            d.launch("K1", writes=[array], stream=first)
            d.launch("K2", reads=[array], stream=second)

    return build


@pytest.mark.parametrize("writer", ["legacy", "other"])
def test_blocking_streams_are_ordered_with_the_legacy_stream_both_ways(writer: str) -> None:
    assert verdict(legacy(True, writer)) == fp.PROVED
    assert verdict(legacy(False, writer)) == fp.REFUTED


def test_two_blocking_streams_are_ordered_through_the_legacy_stream_only() -> None:
    def build(between: bool) -> Build:
        def made(d: fp.Design) -> None:
            array = d.device("array")
            a, b = d.stream("a", blocking=True), d.stream("b", blocking=True)

            @d.loop("worker")
            def step() -> None:
                d.launch("write", writes=[array], stream=a)
                if between:
                    d.launch("anything", stream=d.default_stream())
                d.launch("read", reads=[array], stream=b)
                d.synchronize()

        return made

    assert verdict(build(True)) == fp.PROVED
    assert verdict(build(False)) == fp.REFUTED


def test_a_record_on_the_legacy_stream_captures_the_blocking_ones() -> None:
    def build(d: fp.Design) -> None:
        result, other, done = d.pinned("result"), d.stream("other", blocking=True), d.event("done")
        source = d.device("source")

        @d.loop("worker")
        def step() -> None:
            result.copy_(source, non_blocking=True, stream=other)
            done.record(d.default_stream())  # S31
            done.synchronize()
            result.read()

    assert verdict(build) == fp.PROVED


def test_another_process_has_a_legacy_stream_of_its_own() -> None:
    def build(d: fp.Design) -> None:
        with d.process("one"):
            d.stream("a", blocking=True)
        with d.process("two"):

            @d.loop("worker")
            def step() -> None:
                d.launch("K", stream=d.default_stream())

    assert operations(build) == ["Launch"]


# ---------------------------------------------------------------- copies


def test_cudamemcpy_from_pageable_memory_returns_with_its_tail_pending() -> None:
    """S50: the source may be rewritten at once; another stream may not read the destination."""

    def build(reader: str) -> Build:
        def made(d: fp.Design) -> None:
            source, target, side = d.pageable("source"), d.device("target"), d.stream("side")

            @d.loop("worker")
            def step() -> None:
                source.write()
                d.memcpy(target, source)
                d.launch("use", reads=[target], stream=side if reader == "side" else d.default_stream())
                d.synchronize()

        return made

    assert verdict(build("legacy")) == fp.PROVED
    assert verdict(build("side")) == fp.REFUTED


def test_cudamemcpy_to_the_host_is_complete_when_it_returns() -> None:
    def build(d: fp.Design) -> None:
        source, target = d.device("source"), d.pageable("target")

        @d.loop("worker")
        def step() -> None:
            d.launch("K", writes=[source])
            d.memcpy(target, source)
            target.read()

    assert verdict(build) == fp.PROVED


def test_a_strided_source_is_pageable_even_when_it_is_pinned() -> None:
    """S55: the pinned buffer may be rewritten at once, on platforms that stage pageable sources in the call."""

    def build(strided: bool) -> Build:
        def made(d: fp.Design) -> None:
            source, target = d.pinned("source"), d.device("target")

            @d.loop("worker")
            def step() -> None:
                source.write()
                target.copy_(source, non_blocking=True, strided=strided)

        return made

    assert verdict(build(True)) == fp.PROVED
    assert verdict(build(False)) == fp.REFUTED
    late = check(program(build(True)), platform="cuda-late-pageable", explain=False)
    assert [hazard.name for hazard in late.hazards] == ["WAR contiguous copy"]


def test_a_strided_destination_is_right_only_where_copies_to_pageable_memory_block() -> None:
    """S56: the temporary is spread over the destination at once."""

    def build(d: fp.Design) -> None:
        source, target = d.device("source"), d.pinned("target")

        @d.loop("worker")
        def step() -> None:
            d.launch("K", writes=[source])
            target.copy_(source, non_blocking=True, strided=True)
            target.read()

    assert verdict(build) == fp.PROVED
    late = check(program(build), platform="cuda-late-pageable", explain=False)
    assert "RAW contiguous copy" in [hazard.name for hazard in late.hazards]


def test_a_peer_copy_orders_the_two_current_streams_and_no_others() -> None:
    """S59."""

    def build(reader: str) -> Build:
        def made(d: fp.Design) -> None:
            a, b = d.device("a", gpu=0), d.device("b", gpu=1)
            on_a, on_b, third = d.stream("on a", gpu=0), d.stream("on b", gpu=1), d.stream("third", gpu=1)

            @d.loop("worker")
            def step() -> None:
                d.launch("fill", writes=[a], stream=on_a)
                d.peer_copy(b, a, source=on_a, target=on_b)
                d.launch("use", reads=[b], stream=on_b if reader == "current" else third)
                if reader != "current":
                    on_a.wait_stream(third)

        return made

    assert verdict(build("current")) == fp.PROVED
    assert verdict(build("third")) == fp.REFUTED


# ---------------------------------------------------------------- streams, agents, host functions


def test_the_33rd_stream_is_the_first() -> None:
    """S8, S9: a race vanishes when the program asked for more streams earlier."""

    def build(asked_before: int) -> Build:
        def made(d: fp.Design) -> None:
            array, pool = d.device("array"), d.torch_streams()
            first = pool.stream()
            for _ in range(asked_before):
                pool.stream()
            second = pool.stream()

            @d.loop("worker")
            def step() -> None:
                d.launch("write", writes=[array], stream=first)
                d.launch("read", reads=[array], stream=second)

        return made

    assert verdict(build(0)) == fp.REFUTED
    assert verdict(build(31)) == fp.PROVED


def test_an_agent_is_outside_of_all_streams() -> None:
    def build(after: bool, waits: bool) -> Build:
        def made(d: fp.Design) -> None:
            buffer, stream, nic = d.device("buffer"), d.stream("stream"), d.agent("NIC")

            @d.loop("worker")
            def step() -> None:
                d.launch("fill", writes=[buffer], stream=stream)
                sent = nic.post("send", reads=[buffer], after=stream if after else None)
                if waits:
                    sent.synchronize()

        return made

    assert verdict(build(True, True)) == fp.PROVED
    assert check(program(build(False, True)), explain=False).hazards[0].name == "RAW buffer"
    assert check(program(build(True, False)), explain=False).hazards[0].name == "WAR buffer"


def test_a_host_function_is_ordered_by_its_stream_alone() -> None:
    """S103."""

    def build(waits: bool) -> Build:
        def made(d: fp.Design) -> None:
            log, output, stream = d.pageable("log"), d.device("output"), d.stream("stream")

            @d.loop("worker")
            def step() -> None:
                d.launch("K", writes=[output], stream=stream)
                d.host_function("append", writes=[log], stream=stream)
                if waits:
                    stream.synchronize()
                log.read()

        return made

    assert verdict(build(True)) == fp.PROVED
    assert verdict(build(False)) == fp.REFUTED


# ---------------------------------------------------------------- graphs


def captured(d: fp.Design, graph: Any, stream: fp.Stream, body: Callable[[], None]) -> None:
    @d.setup
    def capture() -> None:
        with graph.capture(stream):
            body()


def test_a_capture_runs_nothing_on_the_device_and_host_code_once() -> None:
    """S91."""

    def build(d: fp.Design) -> None:
        source, target, stream, graph = d.pinned("source"), d.device("target"), d.stream("stream"), d.graph("g")

        def body() -> None:
            source.write()
            target.copy_(source, non_blocking=True)

        captured(d, graph, stream, body)

        @d.loop("worker", stream=stream)
        def step() -> None:
            graph.replay()
            d.launch("use", reads=[target])

    assert operations(build, "setup") == ["Host"]
    assert operations(build) == ["StreamWaitEvent", "Copy", "Record", "Launch"]
    assert verdict(build) == fp.PROVED  # the host writes before the first replay, and never again


@pytest.mark.parametrize("joined", [True, False])
def test_branches_of_a_graph_are_ordered_by_its_edges_alone(joined: bool) -> None:
    """S94, S98: the branch must rejoin; what only the capture's streams ordered is not ordered."""

    def build(d: fp.Design) -> None:
        a, b, out = d.device("a"), d.device("b"), d.device("out")
        stream, side, graph = d.stream("stream"), d.stream("side"), d.graph("g")

        def body() -> None:
            d.launch("begin", writes=[a])
            side.wait_stream(stream)
            d.launch("branch", reads=[a], writes=[b], stream=side)
            if not joined:
                d.launch("too early", reads=[b], writes=[out])
            stream.wait_stream(side)
            if joined:
                d.launch("end", reads=[b], writes=[out])

        captured(d, graph, stream, body)

        @d.loop("worker", stream=stream)
        def step() -> None:
            graph.replay()

    assert verdict(build) == (fp.PROVED if joined else fp.REFUTED)


def test_launches_of_one_graph_are_ordered_and_of_two_graphs_are_not() -> None:
    """S93, S95."""

    def build(graphs: int) -> Build:
        def made(d: fp.Design) -> None:
            state = d.device("state")
            streams = [d.stream("one"), d.stream("two")]
            all_graphs = [d.graph(f"g{k}") for k in range(graphs)]
            for graph in all_graphs:
                captured(d, graph, streams[0], lambda: d.launch("step", reads=[state], writes=[state]))

            @d.loop("worker")
            def step() -> None:
                for k, stream in enumerate(streams):
                    all_graphs[k % graphs].replay(stream)

        return made

    assert verdict(build(1)) == fp.PROVED
    assert verdict(build(2)) == fp.REFUTED


def test_memory_of_the_capture_belongs_to_the_graph() -> None:
    """S74: a replay overwrites what an earlier one left (S96)."""

    def build(d: fp.Design) -> None:
        stream, reader, graph = d.stream("stream"), d.stream("reader"), d.graph("g")
        kept: list[fp.Tensor] = []

        @d.setup
        def capture() -> None:
            with graph.capture(stream):
                output = d.empty("output")
                d.launch("K", writes=[output])
                kept[:] = [output]

        @d.loop("worker", stream=stream)
        def step() -> None:
            graph.replay()
            reader.wait_stream(stream)
            d.launch("use", reads=[kept[0]], stream=reader)

    with pytest.raises(fp.DesignError, match="lives on"):
        program(build)  # a Python list that the body fills is state; the tensor is reached through the graph instead

    def public(d: fp.Design) -> None:
        output, stream, reader, graph = d.device("output"), d.stream("stream"), d.stream("reader"), d.graph("g")
        captured(d, graph, stream, lambda: d.launch("K", writes=[output]))

        @d.loop("worker", stream=stream)
        def step() -> None:
            graph.replay()
            reader.wait_stream(stream)
            d.launch("use", reads=[output], stream=reader)

    assert check(program(public), explain=False).hazards[0].name == "WAR output"


def bad(build: Build) -> str:
    """The one line that says what is wrong."""
    with pytest.raises(fp.DesignError) as raised:
        program(build)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (lambda d, x: x["event"].synchronize(), "the host cannot wait during a capture (S99)"),
        (lambda d, x: d.synchronize(), "the host cannot wait during a capture (S99)"),
        (lambda d, x: x["host"].copy_(x["device"]), "the host cannot wait during a capture (S99)"),
        (lambda d, x: x["device"].copy_(x["pageable"], non_blocking=True), "unpinned memory cannot be captured (S99)"),
        (lambda d, x: x["event"].query(), "illegal (S99)"),
        (lambda d, x: x["event"].wait(), "not recorded in the capture"),
        (lambda d, x: x["side"].wait_stream(d.current_stream()), None),
        (lambda d, x: None, "captures nothing"),
        (lambda d, x: d.current_stream().wait_stream(x["side"]), "one that is not captured (S98)"),
    ],
)
def test_what_cannot_be_captured(body: Callable[[fp.Design, Any], Any], text: str | None) -> None:
    def build(d: fp.Design) -> None:
        stream, graph = d.stream("stream"), d.graph("g")
        things = {
            "event": d.event("event"), "host": d.pinned("host"), "device": d.device("device"),
            "pageable": d.pageable("pageable"), "side": d.stream("side"),
        }  # fmt: skip

        def inside() -> None:
            body(d, things)
            if text is None:
                d.launch("branch", stream=things["side"])

        captured(d, graph, stream, inside)

    message = bad(build)
    assert (text or "does not rejoin the capturing stream before the end (S98)") in message
    assert "test_composites.py:" in message


def test_misuse_of_graphs() -> None:
    def on_default(d: fp.Design) -> None:
        captured(d, d.graph("g"), d.default_stream(), lambda: d.launch("K"))

    def in_a_loop(d: fp.Design) -> None:
        stream, graph = d.stream("stream"), d.graph("g")

        @d.loop("worker")
        def step() -> None:
            with graph.capture(stream):
                d.launch("K")

    def too_early(d: fp.Design) -> None:
        graph = d.graph("g")

        @d.loop("worker")
        def step() -> None:
            graph.replay()

    def by_two_threads(d: fp.Design) -> None:
        stream, graph, pool = d.stream("stream"), d.graph("g"), d.pool("p", 1)

        @d.setup
        def capture() -> None:
            block = pool.take()
            with graph.capture(stream):
                d.launch("K", writes=[block])

        for name in ("one", "two"):

            @d.loop(name, stream=stream)
            def step() -> None:
                graph.replay()

    assert "the default stream cannot be captured (S98)" in bad(on_default)
    assert "is captured once" in bad(in_a_loop)
    assert "replayed before it is captured" in bad(too_early)
    assert "replayed by the threads 'one' and 'two'" in bad(by_two_threads)


def test_communicators_meet_call_by_call() -> None:
    def build(skips: bool) -> Build:
        def made(d: fp.Design) -> None:
            group = d.communicator("tp", ["r0", "r1"])
            for name in ("r0", "r1"):
                data = d.pageable(f"data of {name}")

                def rank(name: str = name, data: fp.Tensor = data) -> None:
                    @d.loop(name)
                    def step() -> None:
                        data.write()
                        if skips and name == "r0" and d.choose("work", ["yes", "no"]) == "no":
                            return
                        group.host_barrier(name)

                rank()

        return made

    assert check(program(build(False)), explain=False).hangs == ()
    assert check(program(build(True)), explain=False).hangs == ()  # the other waits for its next call
    with pytest.raises(fp.DesignError, match="has no rank 'r2'"):
        d = fp.Design("x")
        d.communicator("tp", ["r0", "r1"]).host_barrier("r2")
