"""Designs of a third round of searching that once got a wrong answer, each with the right one; and what is refused since."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import fencepost as fp
import pytest
from fencepost.damaged import fault
from fencepost.proofs.check import check

Make = Callable[..., fp.Design]


def refusal(make: Callable[[], Any]) -> str:
    """The one line that a design is refused with."""
    with pytest.raises(fp.DesignError) as caught:
        make().build()
    text = str(caught.value)
    assert "\n" not in text and re.match(r"\S*test_found_third\.py:\d+: ", text), text
    return text


# ---------------------------------------------------------------- one call on the platform, several steps here


def callback_beside_a_kernel(several: bool, apart: bool = False) -> fp.Design:
    """Another thread's kernel reads, in the callback's stream, what the callback writes (S2, S103). Was REFUTED."""
    d = fp.Design("callback beside a kernel")
    s, t, p, y = d.stream("s", several_threads=several), d.stream("t"), d.pinned("p"), d.device("y")

    @d.callback("cb", s)
    def cb() -> None:
        p.write()

    @d.loop("a")
    def a() -> None:
        cb.launch()
        s.synchronize()

    @d.loop("b")
    def b() -> None:
        d.launch("k", reads=[p], writes=[y], stream=t if apart else s)
        s.synchronize()

    return d


def graph_beside_a_kernel(several: bool, branch: bool = True) -> fp.Design:
    """Another thread's kernel in the stream that a graph with a branch is launched on (S93). Was REFUTED."""
    d = fp.Design("graph beside a kernel")
    s, t, x, y, g = d.stream("s", several_threads=several), d.stream("t"), d.device("x"), d.device("y"), d.graph("g")

    @d.setup(stream=s)
    def setup() -> None:
        with g.capture():
            if branch:
                t.wait_stream(s)
            d.launch("k1", writes=[x], stream=t if branch else s)
            d.launch("k2", writes=[y])
            if branch:
                s.wait_stream(t)

    @d.loop("a")
    def a() -> None:
        g.replay(s)
        s.synchronize()

    @d.loop("b")
    def b() -> None:
        d.launch("r", reads=[x, y], writes=[x], stream=s)
        s.synchronize()

    return d


def enqueues_while_another_waits(call: str) -> fp.Design:
    """A blocking call waits for a callback that waits for another thread's message, which enqueues on the same stream before."""
    d = fp.Design("enqueues while another waits")
    s, x, h, y = d.stream("s", several_threads=True), d.device("x"), d.pinned("h"), d.device("y")
    q = d.queue("q", capacity=1, item=())

    @d.callback("cb", s)
    def cb() -> None:
        q.get()

    @d.script("a")
    def a() -> None:
        cb.launch()
        d.launch("w", writes=[x], stream=s)
        if call == "item":
            x.item(stream=s)
        else:
            h.copy_(x, stream=s, non_blocking=call == "copy and sync")
        if call == "copy and sync":
            s.synchronize()
        h.read()

    @d.script("b")
    def b() -> None:
        d.launch("k", writes=[y], stream=s)
        q.put()

    return d


@pytest.mark.parametrize(
    ("make", "given", "verdict"),
    [
        (callback_beside_a_kernel, {}, fp.PROVED),
        (callback_beside_a_kernel, {"apart": True}, fp.REFUTED),
        (graph_beside_a_kernel, {}, fp.PROVED),
    ],
)
def test_one_call_is_one_step_where_it_is_said(make: Make, given: dict[str, Any], verdict: str) -> None:
    assert check(make(several=True, **given).build(), explain=False).verdict == verdict


def test_one_call_that_another_may_come_between_is_refused() -> None:
    found = "thread 'b' enqueues on stream 's', on which thread 'a' launches "
    cure = "make it with d.stream('s', several_threads=True)"
    for made, what in ((callback_beside_a_kernel, "callback 'cb'"), (graph_beside_a_kernel, "graph 'g'")):
        text = refusal(lambda made=made: made(several=False))  # type: ignore[misc]
        assert f"{found}{what}" in text and cure in text


def test_a_graph_on_one_stream_may_be_come_between() -> None:
    assert check(graph_beside_a_kernel(several=False, branch=False).build(), explain=False).verdict == fp.PROVED


@pytest.mark.parametrize("call", ["copy", "item", "copy and sync"])
def test_a_call_that_waits_keeps_nobody_from_enqueuing(call: str) -> None:
    answer = check(enqueues_while_another_waits(call).build(), explain=False)
    assert (answer.verdict, answer.hangs) == (fp.PROVED, ())


# ---------------------------------------------------------------- blocks that may not run


def lock_in_a_block(drain: bool) -> fp.Design:
    """A lock that is taken in a block and given back behind it. Was UNKNOWN."""
    d = fp.Design("lock in a block")
    lock, h, q = d.lock("lock"), d.pinned("h"), d.queue("q", capacity=1, item=())

    @d.loop("a")
    def a() -> None:
        if drain:
            for _ in q.drain():
                lock.acquire()
        else:
            with d.maybe("m"):
                lock.acquire()
        h.write()
        lock.release()

    return d


def work_handed_over_in_a_maybe() -> fp.Design:
    """Where the block does not run nobody waits (S128). Was REFUTED."""
    d = fp.Design("work in a maybe")
    r0, r1 = d.process("r0"), d.process("r1", gpu=1)
    c = d.communicator("c", [r0, r1])
    with r0:
        q = d.queue("q", capacity=1, item=(fp.EVENT, fp.MEMORY))

    @d.loop("a", process=r0)
    def a() -> None:
        t = d.empty("t")
        d.launch("f", writes=[t])
        w = c.all_reduce(t, async_op=True)
        with d.maybe("m"):
            q.put(*w.hand_over())

    return d


def test_what_a_block_takes_it_gives_back() -> None:
    assert "maybe 'm' takes lock 'lock' and gives it back outside of it" in refusal(lambda: lock_in_a_block(False))
    assert "drain loop over 'q' takes lock 'lock'" in refusal(lambda: lock_in_a_block(True))


def test_a_work_is_handed_over_in_every_run() -> None:
    assert "maybe 'm' hands over or ends the work of" in refusal(work_handed_over_in_a_maybe)


# ---------------------------------------------------------------- conditions, setups, processes


def notified(locked: bool) -> fp.Design:
    """Two threads notify; without the lock one took who the other had found waiting, and hung."""
    d = fp.Design("notified")
    lock, items, h = d.lock("lock"), d.semaphore("items", 0), d.pinned("h")
    ready = d.condition("ready", lock)

    def produce() -> None:
        with lock:
            h.write()
            items.release()
            if locked:
                ready.notify()
        if not locked:
            ready.notify()

    d.script("p1")(produce)
    d.script("p2")(produce)

    @d.script("c")
    def c() -> None:
        with lock:
            if not items.try_acquire():
                ready.wait()
            h.read()

    return d


def test_notify_needs_the_lock() -> None:
    assert "'ready'.notify() where this turn does not hold lock 'lock'" in refusal(lambda: notified(False))
    answer = check(notified(True).build(), explain=False)
    assert answer.verdict == fp.PROVED and not answer.hangs


def two_setups(processes: bool) -> fp.Design:
    """Setups of one process run one after the other; those of two may meet."""
    d = fp.Design("two setups")
    h, late = d.pinned("h"), d.device("late")

    @d.setup(process="one")
    def first() -> None:
        if d.choose("way", ["short", "long"]) == "long":
            h.write()
        h.write()

    @d.setup(process="two" if processes else "one")
    def second() -> None:
        h.read()

    @d.loop("worker", process="one")
    def worker() -> None:
        h.read()
        late.copy_(h)

    return d


@pytest.mark.parametrize(("processes", "verdict"), [(False, fp.PROVED), (True, fp.REFUTED)])
def test_setups_of_a_process_are_in_order(processes: bool, verdict: str) -> None:
    from fencepost.proofs.smt.engine import check as smt_check

    program = two_setups(processes).build()
    assert check(program, explain=False).verdict == verdict
    assert smt_check(program, steps=2).verdict == (fp.BOUNDED if verdict == fp.PROVED else verdict)
    assert two_setups(processes).build() == program


def event_of_another_process(how: str, interprocess: bool) -> fp.Design:
    """An event that another process uses: by its name, or as it came through a queue (S140)."""
    d = fp.Design("event of another process")
    with d.process("pa"):
        lasting, s = d.event("lasting", interprocess=interprocess), d.stream("s")
        x = d.device("x").shared_with("pb")
        q = d.queue("q", capacity=1, item=(fp.EVENT,))
    with d.process("pb"):
        t = d.stream("t")

    @d.script("a", process="pa", stream=s)
    def a() -> None:
        d.launch("w", writes=[x])
        made = lasting if how == "lasting" else d.event("made", interprocess=interprocess)
        made.record()
        q.put(made)

    @d.script("b", process="pb", stream=t)
    def b() -> None:
        got = q.get()
        (lasting if how == "lasting" else got).wait()
        d.launch("r", reads=[x])

    return d


@pytest.mark.parametrize("how", ["lasting", "received"])
def test_events_of_other_processes_are_made_for_it(how: str) -> None:
    assert "to another process; make it with interprocess=True (S140)" in refusal(lambda: event_of_another_process(how, False))
    assert check(event_of_another_process(how, True).build(), explain=False).verdict == fp.PROVED


def test_an_event_is_used_in_its_process() -> None:
    d = fp.Design("foreign event")
    with d.process("pa"):
        e = d.event("e")

    def body() -> None:
        e.synchronize()

    with pytest.raises(fp.DesignError, match=r"event 'e' belongs to process 'pa' and is used by process 'pb'; make it with interprocess=True"):
        d.loop("b", process="pb")(body)


def test_a_thread_is_of_one_process() -> None:
    d = fp.Design("two processes")
    other = d.process("other")

    def body() -> None:
        with other:
            d.synchronize()

    with pytest.raises(fp.DesignError, match="process 'other' is entered in a body; a thread is of one process"):
        d.loop("a")(body)


# ---------------------------------------------------------------- memory


def view_of_private_memory(view: str) -> fp.Design:
    """Memory of a capture that is released while a view refers to it. Was given to the next allocation: REFUTED."""
    d = fp.Design("view of private memory")
    s, t, g, o = d.stream("s"), d.stream("t"), d.graph("g"), d.device("o", depth=2)

    @d.setup(stream=s)
    def setup() -> None:
        with g.capture():
            x = d.empty("x")
            d.launch("w", writes=[x])
            v = x.view(held=view != "raw")
            if view == "of a view":
                v = v.view()
            if view == "noted":
                v.record_stream(t)
            if view in ("released", "noted"):
                t.wait_stream(s)
                d.launch("r", reads=[v], writes=[o[0]], stream=t)
                v.release()
            x.release()
            if view not in ("released", "noted"):
                t.wait_stream(s)
                d.launch("r", reads=[v], writes=[o[0]], stream=t)
            y = d.empty("y")
            d.launch("w2", writes=[y])
            d.launch("r2", reads=[y], writes=[o[1]])
            s.wait_stream(t)

    @d.loop("a", stream=s)
    def a() -> None:
        g.replay()

    return d


@pytest.mark.parametrize(("view", "verdict"), [("raw", fp.REFUTED), ("released", fp.REFUTED), ("noted", fp.PROVED)])
def test_the_block_of_a_capture_is_free_when_its_last_view_ended(view: str, verdict: str) -> None:
    assert check(view_of_private_memory(view).build(), explain=False).verdict == verdict


@pytest.mark.parametrize("view", ["held", "of a view"])
def test_the_block_of_a_capture_is_not_free_while_a_view_lives(view: str) -> None:
    assert "is released while 'x of g view" in refusal(lambda: view_of_private_memory(view))


def test_a_gpu_cannot_address_pageable_memory() -> None:
    for call in ("launch", "memset", "post"):
        d = fp.Design("pageable")
        m, nic = d.pageable("m"), d.agent("nic")

        def turn(d: fp.Design, m: fp.Tensor, nic: fp.Agent, call: str) -> Callable[[], None]:
            def inner() -> None:
                if call == "launch":
                    d.launch("k", reads=[m])
                elif call == "memset":
                    d.memset(m)
                else:
                    nic.post("send", reads=[m]).synchronize()

            return inner

        if call == "post":
            d.loop("a")(turn(d, m, nic, call))
            continue
        with pytest.raises(fp.DesignError, match=r"cannot access pageable memory 'm'; use d.pinned or d.managed, or a copy"):
            d.loop("a")(turn(d, m, nic, call))


# ---------------------------------------------------------------- damaged files


def test_a_get_of_more_than_the_item_holds() -> None:
    import msgspec
    from fencepost.model import program as p

    d = fp.Design("get")
    q, cell = d.queue("q", capacity=1, item=(fp.EVENT,)), d.cell("cell", item=(fp.EVENT,))

    @d.script("a")
    def a() -> None:
        made = d.event("made")
        q.put(made)
        cell.set(made)
        q.get().synchronize()
        cell.get().synchronize()

    program = d.build()
    assert fault(program) is None
    for kind in (p.Get, p.CellGet):
        (thread,) = program.threads
        nodes = tuple(
            msgspec.structs.replace(n, operation=msgspec.structs.replace(n.operation, locals=n.operation.locals * 2))
            if isinstance(n, p.Do) and isinstance(n.operation, kind) else n
            for n in thread.nodes
        )  # fmt: skip
        damaged = msgspec.structs.replace(program, threads=(msgspec.structs.replace(thread, nodes=nodes),))
        assert "gets (event, event) from" in (fault(damaged) or "")
