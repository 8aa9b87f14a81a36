"""Designs that once got a wrong proof: which GPU's stream is current, and Python state that outlives a turn or a block."""

from __future__ import annotations

from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.proofs.check import check

Build = Callable[[fp.Design], None]


def verdict(build: Build) -> tuple[str, set[str]]:
    """Verdict and names of the hazards."""
    d = fp.Design("design")
    build(d)
    answer = check(d.build(), explain=False)
    return answer.verdict, {hazard.name for hazard in answer.hazards}


def refuses(build: Build, match: str) -> None:
    d = fp.Design("design")
    with pytest.raises(fp.DesignError, match=match):
        build(d)
        d.build()


def test_a_token_is_copied_to_on_its_own_gpus_stream() -> None:
    """S16: the pool is GPU 0's, and what is awaited is GPU 1's stream."""

    def build(d: fp.Design) -> None:
        h, pages, other = d.pinned("h"), d.pool("pages", 2, of="device"), d.stream("other", gpu=1)

        @d.loop("worker", stream=other)
        def step() -> None:
            page = pages.take()
            h.write()
            page.copy_(h, non_blocking=True)
            other.synchronize()
            pages.give(page)

    assert verdict(build) == (fp.REFUTED, {"WAR h"})


def test_a_received_tensor_of_an_unknown_gpu() -> None:
    def build(d: fp.Design) -> None:
        h, x = d.pinned("h"), d.device("x", gpu=1)
        mine, handed = d.stream("mine"), d.queue("handed", 1, item=(fp.MEMORY,))

        @d.loop("worker", stream=mine)
        def step() -> None:
            h.write()
            handed.put(x)
            handed.get().copy_(h, non_blocking=True)
            mine.synchronize()

    refuses(build, r"'handed' was received, and of which GPU it is.*GPUs 0, 1: say stream=")


@pytest.mark.parametrize("reader", ["the work's GPU", "another"])
def test_a_work_is_awaited_by_the_stream_of_its_own_gpu(reader: str) -> None:
    """S123: where another GPU's stream is current, that one is not ordered."""

    def build(d: fp.Design) -> None:
        comm, near, far = d.communicator("comm", ["a", "b"]), d.stream("near", gpu=1), d.stream("far", gpu=2)
        xa, xb, y, here = d.device("xa", gpu=1), d.device("xb", gpu=2), d.device("y"), d.stream("here")

        @d.loop("a", stream=here)
        def first() -> None:
            with near:
                work = comm.all_reduce(xa, rank="a", async_op=True)
            work.wait()
            d.launch("use", reads=[xa], writes=[y], stream=here if reader == "another" else d.default_stream(1))
            d.synchronize(0)
            d.synchronize(1)

        @d.loop("b", stream=far)
        def second() -> None:
            comm.all_reduce(xb, rank="b")
            far.synchronize()

    assert verdict(build) == ((fp.REFUTED, {"RAW xa", "WAR xa"}) if reader == "another" else (fp.PROVED, set()))


def test_cudamemcpy_uses_the_current_devices_legacy_stream() -> None:
    def build(d: fp.Design) -> None:
        x, y, other = d.device("x", gpu=1), d.device("y", gpu=1), d.stream("other", gpu=1)

        @d.loop("worker", stream=other)
        def step() -> None:
            d.memcpy(x, y)
            d.synchronize(0)
            d.launch("fill", writes=[y])
            other.synchronize()

    assert verdict(build) == (fp.REFUTED, {"WAR y"})


def test_a_copy_between_gpus_names_both_streams() -> None:
    def build(d: fp.Design) -> None:
        x, y = d.device("x"), d.device("y", gpu=1)
        d.loop("worker")(lambda: y.copy_(x, non_blocking=True))

    refuses(build, r"between GPUs 0 and 1 .*S59.*d\.peer_copy")


@pytest.mark.parametrize("shared", [False, True])
def test_exclusive_managed_memory_stays_in_its_process(shared: bool) -> None:
    """S111 speaks of one process's kernels."""

    def build(d: fp.Design) -> None:
        first, second = d.process("first"), d.process("second")
        if shared:
            with first:
                m = d.managed("m", concurrent=False).shared_with(second)
        else:
            m = d.managed("m", concurrent=False)

        @d.loop("worker", process=second)
        def step() -> None:
            d.launch("kernel")
            m.write()

    refuses(build, "concurrent=False speaks of one process's kernels")


CURRENT: dict[str, fp.Stream] = {}


def test_a_maybe_block_that_changes_a_variable_of_the_module() -> None:
    def build(d: fp.Design) -> None:
        h, x, one, two = d.pinned("h"), d.device("x"), d.stream("one"), d.stream("two")

        @d.loop("worker")
        def step() -> None:
            h.write()
            CURRENT["stream"] = one
            with d.maybe("switch"):
                CURRENT["stream"] = two
            x.copy_(h, non_blocking=True, stream=CURRENT["stream"])
            two.synchronize()
            CURRENT["stream"] = one

    refuses(build, "maybe 'switch' changes 'CURRENT'")


def test_attributes_hung_onto_objects_of_the_language() -> None:
    def build(d: fp.Design) -> None:
        h = d.pinned("h")

        @d.loop("worker")
        def step() -> None:
            h.count = 1  # type: ignore[attr-defined]
            h.write()

    refuses(build, r"<memory 'h'>\.count is set, which would last from turn to turn")


def test_the_nodes_of_one_graph_launch_do_not_wait_for_each_other_under_launch_blocking() -> None:
    """S94, S113: a launch that blocks is that of the graph."""
    d = fp.Design("design")
    origin, branch, x, y, graph = d.stream("origin"), d.stream("branch"), d.device("x"), d.device("y"), d.graph("graph")

    @d.setup(stream=origin)
    def setup() -> None:
        with graph.capture():
            branch.wait_stream(origin)
            d.launch("write", writes=[x])
            d.launch("read", reads=[x], writes=[y], stream=branch)
            origin.wait_stream(branch)

    d.loop("worker", stream=origin)(lambda: graph.replay())
    for environment in (None, "launch-blocking", "launch-blocking-kernels"):
        answer = check(d.build(), explain=False, environment=environment)
        assert (answer.verdict, {hazard.name for hazard in answer.hazards}) == (fp.REFUTED, {"RAW x"}), environment


@pytest.mark.parametrize("sizes", [(4096, 512, 512), (4096, None, 512), (512, 512, 1024)])
def test_which_released_block_a_capture_gets_is_not_guessed(sizes: tuple[int, int | None, int]) -> None:
    """S70: best fit, split and merge."""

    def build(d: fp.Design) -> None:
        stream, graph, y = d.stream("stream"), d.graph("graph"), d.device("y")

        @d.setup(stream=stream)
        def setup() -> None:
            with graph.capture():
                first = d.empty("first", bytes=sizes[0])
                d.launch("fill", writes=[first])
                second = d.empty("second", bytes=sizes[1]) if sizes[1] is not None else None
                first.release()
                if second is not None:
                    second.release()
                last = d.empty("last", bytes=sizes[2])
                d.launch("use", writes=[last, y])

        d.loop("worker", stream=stream)(lambda: graph.replay())

    refuses(build, "may lie in any of the released blocks .*S70")


def test_a_storage_that_is_received_twice_is_let_go_of_once() -> None:
    """S137, S138: the end of the first reference is not that of the storage."""

    def build(d: fp.Design) -> None:
        sender, receiver = d.process("sender"), d.process("receiver")
        sent = d.ipc_queue("sent", capacity=2)
        with receiver:
            y, h = d.device("y"), d.pinned("h")

        @d.loop("send", process=sender)
        def send() -> None:
            t = d.empty("t")
            d.launch("fill", writes=[t])
            sent.put(t)
            sent.put(t)

        @d.loop("receive", process=receiver)
        def receive() -> None:
            first, again = sent.get(), sent.get(opened=True)
            h.write()
            d.launch("use", reads=[first, h], writes=[y])
            first.release()
            h.write()
            again.release()

    got, hazards = verdict(build)
    assert got == fp.REFUTED and "WAR h" in hazards


def test_what_another_gpus_storage_waits_for() -> None:
    """S137: the current stream of the storage's GPU waits, and no other."""

    def build(d: fp.Design) -> None:
        sender, receiver = d.process("sender", gpu=1), d.process("receiver")
        sent = d.ipc_queue("sent")
        with receiver:
            y, mine = d.device("y"), d.stream("mine")

        @d.loop("send", process=sender)
        def send() -> None:
            t = d.empty("t")
            d.launch("fill", writes=[t])
            sent.put(t)

        @d.loop("receive", process=receiver, stream=mine)
        def receive() -> None:
            d.launch("use", reads=[sent.get()], writes=[y], stream=mine)
            mine.synchronize()

    got, hazards = verdict(build)
    assert got == fp.REFUTED and "RAW t" in hazards


def test_a_stream_is_of_one_process() -> None:
    def build(d: fp.Design) -> None:
        stream, x, process = d.stream("stream"), d.device("x"), d.process("one")
        d.loop("worker", stream=stream, process=process)(lambda: d.launch("write", writes=[x]))

    refuses(build, "stream 'stream' is made outside of all processes and is used by process 'one'")


def test_a_host_function_has_no_block_of_the_device() -> None:
    def build(d: fp.Design) -> None:
        @d.loop("worker")
        def step() -> None:
            x = d.empty("x")
            d.host_function("look", reads=[x])

    refuses(build, "host function 'look' cannot access device memory 'x'")


def test_a_span_behind_the_end() -> None:
    def build(d: fp.Design) -> None:
        @d.loop("worker")
        def step() -> None:
            d.launch("write", writes=[d.empty("x", bytes=64)[0:128]])

    refuses(build, r"'x' has 64 bytes, and x\[0:128\] ends behind them")


def test_collectives_in_a_graph_and_outside_of_it() -> None:
    """S130: which runs first is decided where the graph is replayed."""

    def build(d: fp.Design) -> None:
        group, graph, stream = d.communicator("group", ["a", "b"]), d.graph("graph"), d.stream("stream")
        x = d.device("x")

        @d.setup(stream=stream)
        def setup() -> None:
            with graph.capture():
                group.all_reduce(x, rank="a")

        @d.loop("worker")
        def step() -> None:
            graph.replay(stream)
            group.all_reduce(x, rank="a")

    refuses(build, "calls it in a graph and outside of that graph")


@pytest.mark.parametrize("small", [False, True])
def test_bytes_that_no_span_names(small: bool) -> None:
    """A smaller allocation elsewhere must not hide that the rest of this one was never written."""

    def build(d: fp.Design) -> None:
        y = d.device("y")

        @d.loop("worker")
        def step() -> None:
            x = d.empty("x", bytes=4096)
            d.launch("write", writes=[x[0:64]])
            d.launch("read", reads=[x], writes=[y])
            if small:
                z = d.empty("z", bytes=64)
                d.launch("write", writes=[z])
                d.launch("read", reads=[z], writes=[y])

    assert verdict(build) == (fp.REFUTED, {"UNDEFINED x"})
