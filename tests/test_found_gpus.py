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
