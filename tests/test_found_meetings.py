"""Designs of streams that meet which two engines disagreed about once: the smallest of each, with the right verdict."""

from __future__ import annotations

from typing import Any

import fencepost as fp
import pytest
from fencepost.engines import Question, ask
from fencepost.model import events
from fencepost.model.answer import Run
from fencepost.model.platform import platform
from fencepost.proofs.certificates.writing import hazard
from fencepost.proofs.check import check
from fencepost.proofs.liveness.search import search
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import DEFAULTS, Follow, Random
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


@pytest.mark.parametrize("space", ["pinned", "device"])
@pytest.mark.parametrize("late", [True, False])
def test_work_of_an_earlier_owner_behind_that_of_the_next(space: str, late: bool) -> None:
    """A gate holds work on a block back until the block has its next owner, who has used it: happens-before orders the two the
    wrong way round. Explorer and event structure said proved, the machine saw the wrong value."""
    d = fp.Design("behind the next owner")
    gate, main, gated, x = d.device_flag("gate"), d.stream("main"), d.stream("gated"), d.device("x")

    @d.script("thread")
    def thread() -> None:
        gated.wait_value(gate, 1)
        if space == "pinned":
            old = d.empty_pinned("old")
            old.write()
            d.memcpy_async(x, old, stream=gated)  # of which the allocator knows nothing (S83)
        else:
            old = d.empty("old", stream=main)
            d.launch("fill old", writes=[old], stream=gated)
        if not late:
            gate.store(1)
            gated.synchronize()
        old.release()
        if space == "pinned":
            new = d.empty_pinned("new")
            new.write()
        else:
            new = d.empty("new", stream=main)
            d.launch("fill new", writes=[new], stream=main)
            main.synchronize()
        gate.store(1)
        gated.synchronize()
        d.launch("use", reads=[x if space == "pinned" else new], stream=main)

    program = d.build()
    answer = check(program, explain=False)
    if not late:
        assert answer.verdict == fp.PROVED
        return
    assert [h.name for h in answer.hazards] == ["RAW new" if space == "pinned" else "WAW new"]
    assert answer.verdict == fp.REFUTED and answer.hazards[0].held_back and answer.hazards[0].value_changing
    assert ask(program, Question(engine="simulate", seed=1)).verdict == fp.REFUTED


def test_late_work_that_nobody_reads_is_access_level_only() -> None:
    """As above, but what the late write spoils is never looked at again."""
    d = fp.Design("late, and unread")
    gate, main, gated = d.device_flag("gate"), d.stream("main"), d.stream("gated")

    @d.script("thread")
    def thread() -> None:
        gated.wait_value(gate, 1)
        old = d.empty("old", stream=main)
        d.launch("fill old", writes=[old], stream=gated)
        old.release()
        new = d.empty("new", stream=main)
        d.launch("fill new", writes=[new], stream=main)
        main.synchronize()
        gate.store(1)

    program = d.build()
    assert check(program, explain=False).verdict == fp.PROVED
    assert check(program, explain=False, strict=True).verdict == fp.REFUTED


def test_nobody_takes_what_woke_another() -> None:
    """A thread that began to wait after the notify took the wake-up of the one that it was for: a false hazard and a false hang."""
    d = fp.Design("stolen wake-up")
    lock, ready, told, x = d.lock("lock"), d.flag("ready"), d.flag("told"), d.pinned("x")
    go = d.condition("go", lock, waiters=2)

    @d.script("first")
    def first() -> None:
        with lock:
            ready.set()
            go.wait()
        x.write()

    @d.script("caller")
    def caller() -> None:
        ready.wait()
        with lock:
            x.read()
            go.notify()
        told.set()

    @d.script("later")
    def later() -> None:
        told.wait()
        with lock:
            go.wait()
        x.write()

    program = d.build()
    answer = check(program, explain=False)
    assert not answer.hazards
    found = search(program).hang
    assert found is not None and {program.threads[one.thread].name for one in found.waiters} == {"later"}


@pytest.mark.parametrize("calls", [1, 2])
def test_a_notify_wakes_any_of_those_that_wait(calls: int) -> None:
    """One call wakes either, so that the second may write beside the reader; two calls wake both."""
    d = fp.Design("either")
    lock, here, x = d.lock("lock"), d.counter("here"), d.pinned("x")
    go = d.condition("go", lock, waiters=2)

    @d.script("silent")
    def silent() -> None:
        with lock:
            here.add(1)
            go.wait()

    @d.script("writer")
    def writer() -> None:
        with lock:
            here.add(1)
            go.wait()
        x.write()

    @d.script("caller")
    def caller() -> None:
        here.wait(2)
        with lock:
            for _ in range(calls):
                go.notify()
        x.read()

    program = d.build()
    assert check(program, explain=False).verdict == fp.REFUTED
    assert (search(program).hang is None) == (calls == 2)


def test_drivers_and_collectors_without_work_are_no_hang() -> None:
    """A callback or a collector that a script uses: afterwards its thread has nothing to do, and that was called a hang."""
    d = fp.Design("nothing left to do")
    stream, h = d.stream("stream"), d.pinned("h")
    collector = d.collector("GC")

    @d.callback("fill", stream)
    def fill() -> None:
        h.write()

    @d.script("thread", stream=stream)
    def thread() -> None:
        x = d.empty("x")
        d.launch("write", writes=[x])
        collector.unreachable(x)
        fill.launch()
        d.launch("read", reads=[h])

    answer = check(d.build(), explain=False)
    assert (answer.verdict, answer.hangs) == (fp.PROVED, ())
    assert not any("no thread can move" in note for note in answer.notes)


def test_a_driver_that_is_never_given_work_is_a_note() -> None:
    """A callback that only other variants launch made the answer unknown."""
    d = fp.Design("only declared")
    stream, x = d.stream("stream"), d.device("x")
    d.callback("tell", stream)(lambda: None)

    @d.loop("thread", stream=stream)
    def thread() -> None:
        d.launch("write", writes=[x])
        d.launch("read", reads=[x])

    answer = check(d.build(), explain=False)
    assert (answer.verdict, answer.hangs, answer.notes) == (fp.PROVED, (), ("tell is never given work",))


def test_a_callback_that_is_never_launched_still_hangs_who_waits_for_it() -> None:
    """That its driver is idle is no excuse for the others."""
    d = fp.Design("never launched")
    stream, done = d.stream("stream"), d.queue("done", 1, item=())

    @d.callback("tell", stream)
    def tell() -> None:
        done.put()

    @d.script("thread")
    def thread() -> None:
        if d.choose("launch", ["yes", "no"]) == "yes":
            tell.launch()
        done.get()

    assert [one.partition(" - ")[0] for one in check(d.build(), explain=False).hangs] == ["no source done"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda held, x: (x.view("alias"), x.free_async()), "is freed while its view 'alias' refers to it"),
        (lambda held, x: (held.set(x), x.free_async()), "is freed while what held was given refers to it"),
        (lambda held, x: (held.set(x), held.get().free_async()), "is freed while cell 'held' refers to it"),
        (lambda held, x: None, "neither freed nor handed over when its turn or scope ends"),
        (lambda held, x: x.release(), "is from d.malloc_async; end it with x.free_async"),
    ],
)
def test_a_free_ends_the_bytes_for_all(body: Any, message: str) -> None:
    """The free of one reference left others that still reached the bytes, so that a use after it was proved; and the end of a
    reference that nobody freed let others have them, so that a leak was refuted."""
    d = fp.Design("stream-ordered memory")
    held = d.cell("held")
    with pytest.raises(fp.DesignError, match=message):
        d.script("thread")(lambda: body(held, d.malloc_async("x")))


def test_a_raw_view_of_stream_ordered_memory_ends_with_the_free() -> None:
    """A pointer may be left over, and its use is one of nobody's bytes."""
    d = fp.Design("use after the free")
    main = d.stream("main")

    @d.script("thread", stream=main)
    def thread() -> None:
        x = d.malloc_async("x")
        pointer = x.view("pointer", held=False)
        d.launch("fill", writes=[x])
        x.free_async()
        d.launch("use", reads=[pointer])

    assert {h.name for h in check(d.build(), explain=False).hazards} == {"UNDEFINED x"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.communicator("g", None), "ranks=None; give a list of the ranks' names"),
        (lambda d: d.communicator("g", ["a", 3]), "a rank is a name or a process"),
        (lambda d: d.condition("c", "lock"), "'lock' is no lock; make one with"),
        (lambda d: d.condition(3, d.lock("l")), "a condition is called 3; give it a name"),
        (lambda d: d.condition("c", d.lock("l"), waiters=0), "waiters=0; it is at least 1"),
        (lambda d: d.collector("gc", finaliser=3), "finaliser=3; give a function"),
        (lambda d: d.callback("c", d.stream("s"), process=4)(lambda: None), "process=4 is no process"),
    ],
)
def test_a_wrong_argument_is_one_line(make: Any, message: str) -> None:
    """These ended in a traceback, or were taken."""
    with pytest.raises(fp.DesignError, match=message):
        make(fp.Design("wrong"))


def test_a_use_of_freed_memory_that_never_happens_is_none() -> None:
    """Found by a random design: the certificates' relation blamed the read of a freed block when it was enqueued, behind a wait for a
    flag that nobody stores to."""
    d = fp.Design("never read")
    s, word = d.stream("s"), d.device_flag("word")
    mine, other, done = d.device("mine"), d.stream("other"), d.event("done")

    @d.script("thread")
    def thread() -> None:
        d.launch("write", writes=[mine], stream=s)
        done.record(s)
        other.wait_event(done)
        d.launch("read", reads=[mine], stream=other)
        s.wait_value(word, 1)
        block = d.malloc_async("block", stream=s)
        raw = block.view("raw", held=False)
        block.free_async(s)
        d.launch("late", reads=[raw], stream=s)

    program = d.build()
    assert check(program, explain=False).verdict == fp.PROVED
    assert hazard(program, platform(None)) is None


def test_a_free_may_wait() -> None:
    """A free that waits for the device hangs where only its caller could end what runs there (S38); one that does not goes on."""
    d = fp.Design("free that may wait")
    s, word, page = d.stream("s"), d.device_flag("word"), d.pinned("page")

    @d.script("thread")
    def thread() -> None:
        s.wait_value(word, 1)
        d.free(page)
        word.store(1)

    program = d.build()
    assert search(program).hang is not None
    machine = Machine(program)
    ended = {machine.run(Random(f"free {k}"), stop=False).ended for k in range(20)}
    assert ended == {"blocked", "done"}
