"""Designs of streams that meet which two engines disagreed about once: the smallest of each, with the right verdict."""

from __future__ import annotations

from typing import Any

import fencepost as fp
import pytest
from fencepost.model import events
from fencepost.model.answer import Run
from fencepost.proofs.check import check
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import DEFAULTS, Follow
from fencepost.simulator.machine_state import FOREVER


class Late(Follow):
    """Holds back work of a class of operations until nothing else can move."""

    def __init__(self, *names: str) -> None:
        super().__init__(DEFAULTS)
        self.names = names

    def stall(self, work: Any) -> tuple[int, int] | None:
        return (FOREVER, 0) if type(work.operation).__name__ in self.names else None


def test_what_is_behind_a_store_has_not_happened_before_it() -> None:
    """Found by two random meetings: the machine's reference passed a store to a device flag that was still held back, and so
    made a write behind it that had not happened when the run ended at a read which it called wrong."""
    d = fp.Design("behind a store")
    x, word = d.device("x"), d.device_flag("word")
    s, u = d.stream("s"), d.stream("u")

    @d.script("thread")
    def thread() -> None:
        s.write_value(word, 1)
        d.launch("write", writes=[x], stream=s)
        d.launch("read", reads=[x], stream=u)

    program = d.build()
    late = Machine(program).run(Late("StoreFlag"))
    assert late.wrong is None and late.run.steps[-1].stream is not None  # the store came last, and the write behind it
    assert events.conflicts(events.execute(program, late.run))
    assert not events.conflicts(events.execute(program, Run(late.run.steps[:-1])))  # nothing has happened yet
    assert check(program, explain=False).verdict == fp.REFUTED


def test_an_error_inside_two_blocks_is_the_one_that_is_told() -> None:
    """Found by a random meeting: a scope around a maybe that an error left ended with an assertion of the tracer."""
    d = fp.Design("two blocks")
    there, elsewhere = d.event("there"), d.stream("elsewhere", gpu=1)

    def thread() -> None:
        with d.scope("call"), d.maybe("now and then"):
            there.record(elsewhere)

    with pytest.raises(fp.DesignError, match="own device"):
        d.loop("thread")(thread)


@pytest.mark.xfail(strict=True, reason="open: under one hardware queue the engines take a stream for the whole queue")
@pytest.mark.parametrize("how", ["query", "synchronize"])
def test_a_stream_of_a_shared_hardware_queue_tells_of_its_own_work_only(how: str) -> None:
    """Found by a random meeting, and no matter of meetings: another stream's kernel is behind in the same queue, and an idle stream
    says "yes", or returns at once. Explorer and event structure take it for the end of all that is in the queue."""
    d = fp.Design("own work only")
    x, busy, idle = d.pinned("x"), d.stream("busy"), d.stream("idle")

    @d.script("thread")
    def thread() -> None:
        d.launch("write", writes=[x], stream=busy)
        if how == "query":
            if idle.query():
                x.read()
        else:
            idle.synchronize()
            x.read()

    assert check(d.build(), environment="one-hardware-queue", explain=False).verdict == fp.REFUTED
