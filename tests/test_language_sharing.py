"""Conditions, released locks, stream-ordered memory, collectors, memory between processes, records that fail: what each means."""

from __future__ import annotations

from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.proofs.check import check
from fencepost.proofs.liveness.report import name
from fencepost.proofs.liveness.search import search

Build = Callable[[fp.Design], None]


def hazard(build: Build) -> str:
    """Kind and object of the first hazard of a refuted design; "" of a proved one."""
    d = fp.Design("test")
    build(d)
    answer = check(d.build(), explain=False)
    assert answer.verdict in (fp.PROVED, fp.REFUTED), answer.notes
    return f"{answer.hazards[0].kind} {answer.hazards[0].object}" if answer.verdict == fp.REFUTED else ""


def hang(build: Build) -> str | None:
    d = fp.Design("test")
    build(d)
    program = d.build()
    found = search(program).hang
    return None if found is None else name(program, found)


# ---------------------------------------------------------------- stream-ordered memory


@pytest.mark.parametrize(
    ("free", "expected"), [("own", ""), ("other", "WAR array"), ("other, behind the use", "")]
)
def test_a_free_is_an_item_of_its_stream(free: str, expected: str) -> None:
    def build(d: fp.Design) -> None:
        mine, other = d.stream("mine"), d.stream("other")

        @d.loop("task", stream=mine)
        def step() -> None:
            array = d.malloc_async("array")
            d.launch("fill", writes=[array])
            d.launch("use", reads=[array])
            if free == "other, behind the use":
                other.wait_stream(mine)
            array.free_async(mine if free == "own" else other)

    assert hazard(build) == expected


def test_the_next_owner_on_any_stream_comes_behind_the_free() -> None:
    def build(d: fp.Design) -> None:
        one, two = d.stream("one"), d.stream("two")

        @d.loop("task")
        def step() -> None:
            first = d.malloc_async("first", stream=one)
            d.launch("fill first", writes=[first], stream=one)
            two.wait_stream(one)
            d.launch("use first", reads=[first], stream=two)
            first.free_async(two)
            second = d.malloc_async("second", stream=one)
            d.launch("fill second", writes=[second], stream=one)
            second.free_async(one)

    assert hazard(build) == ""


def test_what_cannot_be_freed() -> None:
    d = fp.Design("free")
    forever, pool = d.device("forever"), d.pool("token", size=1)
    with pytest.raises(fp.DesignError, match="lives for ever"):

        @d.loop("one")
        def one() -> None:
            forever.free_async()

    with pytest.raises(fp.DesignError, match="is a token of a pool"):

        @d.loop("two")
        def two() -> None:
            pool.take().free_async()

    with pytest.raises(fp.DesignError, match="is used after its release"):

        @d.loop("three")
        def three() -> None:
            array = d.malloc_async("array")
            array.free_async()
            d.launch("use", reads=[array])


# ---------------------------------------------------------------- a collector


@pytest.mark.parametrize(("reader", "expected"), [("owner", ""), ("side", "WAR array")])
def test_a_collector_lets_go_at_any_time(reader: str, expected: str) -> None:
    def build(d: fp.Design) -> None:
        main, side = d.stream("main"), d.stream("side")
        collector = d.collector("GC")

        @d.loop("task", stream=main)
        def step() -> None:
            array = d.empty("array")
            d.launch("fill", writes=[array])
            side.wait_stream(main)
            d.launch("use", reads=[array], stream=main if reader == "owner" else side)
            collector.unreachable(array)

    assert hazard(build) == expected


def test_a_finaliser_runs_in_the_collectors_stream() -> None:
    def build(stream: str) -> Build:
        def made(d: fp.Design) -> None:
            main = d.stream("main")
            collector = d.collector(
                "GC", stream=main if stream == "main" else d.stream("idle"), finaliser=lambda array: array.free_async()
            )

            @d.loop("task", stream=main)
            def step() -> None:
                array = d.malloc_async("array")
                d.launch("fill", writes=[array])
                collector.unreachable(array)

        return made

    assert hazard(build("main")) == ""
    assert hazard(build("idle")) == "WAW array"


# ---------------------------------------------------------------- memory between processes (S135-S139)


def between(how: str) -> Build:
    """A trainer sends what a kernel wrote; another process reads it and lets go."""

    def build(d: fp.Design) -> None:
        sent = d.ipc_queue("sent", capacity=1)
        main, side = d.stream("trainer stream"), d.stream("side")
        with d.process("reader", gpu=0):
            reading, other = d.stream("reader stream"), d.stream("other stream of the reader")

        @d.loop("trainer", stream=main)
        def train() -> None:
            batch = d.empty("batch")
            with side if how == "written on a side stream" else main:
                if how == "written on a side stream":
                    side.wait_stream(main)
                d.launch("fill", writes=[batch])
                if how != "written on a side stream":
                    sent.put(batch, feeder=how == "feeder thread")
            if how == "written on a side stream":
                sent.put(batch)
            main.wait_stream(side)

        @d.loop("reader", stream=reading, process="reader")
        def read() -> None:
            batch = sent.get(opened=how == "already open")
            other.wait_stream(reading)
            d.launch("read", reads=[batch], stream=other if how == "read on another stream" else reading)
            if how != "not released":
                batch.release()

    return build


@pytest.mark.parametrize("how", ["current stream", "not released"])
def test_memory_is_sent_and_given_back_in_order(how: str) -> None:
    assert hazard(between(how)) == ""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("written on a side stream", "RAW batch"),  # S135: the event is of the sending thread's current stream
        ("feeder thread", "RAW batch"),  # S136: or of the default one
        ("already open", "RAW batch"),  # S137: nobody waits
        ("read on another stream", "WAR batch"),  # S138: the release waits for the current stream only
    ],
)
def test_what_an_ipc_event_does_not_cover(how: str, expected: str) -> None:
    assert hazard(between(how)) == expected


# ---------------------------------------------------------------- conditions and released locks


@pytest.mark.parametrize(("test", "expected"), [(True, None), (False, "no source go")])
def test_a_notify_with_nobody_waiting_is_lost(test: bool, expected: str | None) -> None:
    def build(d: fp.Design) -> None:
        lock, ready = d.lock("lock"), d.flag("ready")
        go, data = d.condition("go", lock), d.pageable("data")

        @d.script("consumer")
        def consume() -> None:
            with lock:
                if not test or not ready.is_set():
                    go.wait()
                data.read()

        @d.script("producer")
        def produce() -> None:
            with lock:
                data.write()
                ready.set()
                go.notify()

    found = hang(build)
    assert found == expected
    if test:
        assert hazard(build) == ""


def test_threads_beyond_the_waiters_are_refused() -> None:
    d = fp.Design("condition")
    lock = d.lock("lock")
    go = d.condition("go", lock)

    def waits(name: str) -> None:
        @d.loop(name)
        def step() -> None:
            with lock:
                go.wait()

    waits("one")
    with pytest.raises(fp.DesignError, match=r"2 threads wait on it; write d.condition\('go', lock, waiters=2\)"):
        waits("two")


@pytest.mark.parametrize("released", [False, True])
def test_a_released_lock(released: bool) -> None:
    """S106: a launch that waits for the callback in flight, whose body needs the interpreter lock."""

    def build(d: fp.Design) -> None:
        gil, room = d.lock("GIL"), d.queue("callbacks in flight", capacity=1, item=())

        @d.loop("python")
        def launch() -> None:
            with gil:
                if released:
                    with gil.released():
                        room.put()
                else:
                    room.put()

        @d.loop("driver")
        def callback() -> None:
            room.get()
            with gil:
                pass

    assert (hang(build) is None) is released


# ---------------------------------------------------------------- records that fail, and events of other devices (S25)


@pytest.mark.parametrize(("may_fail", "expected"), [(False, ""), (True, "RAW result")])
def test_a_record_that_may_fail_orders_nothing(may_fail: bool, expected: str) -> None:
    def build(d: fp.Design) -> None:
        output, result = d.device("output"), d.pinned("result")

        @d.loop("worker")
        def step() -> None:
            result.copy_(output, non_blocking=True)
            done = d.event("done")
            done.record(may_fail=may_fail)
            done.synchronize()
            result.read()

    assert hazard(build) == expected


def test_an_event_of_another_device_cannot_be_recorded() -> None:
    d = fp.Design("devices")
    event, stream = d.event("done"), d.stream("s", gpu=1)
    with pytest.raises(fp.DesignError, match=r"'done' is of GPU 0 and is recorded on stream 's' of GPU 1.*S25.*gpu=1") as caught:

        @d.loop("worker")
        def step() -> None:
            event.record(stream)

    assert "\n" not in str(caught.value)

    @d.loop("waits")
    def waits() -> None:
        fresh = d.event("fresh")  # of the device of its first record (S17)
        fresh.record(stream)
        stream.wait_event(event)  # any device's stream may wait
        event.record(stream, may_fail=True)  # the error is ignored: nothing is recorded

    assert sum(type(getattr(node, "operation", None)).__name__ == "Record" for node in d.build().threads[0].nodes) == 1


def test_memory_of_another_process_is_shared_or_refused() -> None:
    d = fp.Design("processes")
    with d.process("one"):
        x = d.device("x")
    with d.process("two"):
        with pytest.raises(fp.DesignError, match=r"'x' belongs to process 'one' and is used by process 'two'; say x.shared_with\('two'\)"):

            @d.loop("refused")
            def refused() -> None:
                d.memset(x)

        x.shared_with("two")

        @d.loop("worker")
        def step() -> None:
            d.memset(x)

    assert len(d.build().threads) == 1
