"""Small designs that a search may get wrong: normal forms, slicing, reduction, covering."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.PROVED)
def results_outstanding() -> fp.Design:
    """Four slots behind four results: the queue's normal form at work."""
    d = fp.Design("results outstanding")
    m, g = d.pinned("m", depth=4), d.device("g")
    q = d.queue("q", capacity=4, item=fp.EVENT)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        m[n].write()
        g.copy_(m[n], non_blocking=True)
        copied = d.event("copied")
        copied.record()
        q.put(copied)
        if q.full():
            q.get().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def results_outstanding_without_a_wait() -> fp.Design:
    """One kind of step has nothing to wait for: its item hands nothing on."""
    d = fp.Design("results outstanding without a wait")
    m, g, scratch = d.pinned("m", depth=3), d.device("g"), d.pageable("scratch")
    q = d.queue("q", capacity=2, item={"copied": (fp.EVENT,), "nothing": ()})

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        scratch.write()
        scratch.read()
        m[n].write()
        g.copy_(m[n], non_blocking=True)
        if d.choose("kind", ["copied", "nothing"]) == "copied":
            copied = d.event("copied")
            copied.record()
            q.put("copied", copied)
        else:
            q.put("nothing")
        if q.full():
            item = q.get()
            if item.tag == "copied":
                (copied,) = item
                copied.synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def not_full_does_something() -> fp.Design:
    """The first turns, in which the queue is not yet full, read what a kernel may still write."""
    d = fp.Design("not full does something")
    m, x, side = d.pinned("m"), d.device("x"), d.stream("side")
    q = d.queue("q", capacity=2, item=fp.EVENT)

    @d.loop("thread")
    def thread() -> None:
        x.copy_(m, non_blocking=True, stream=side)
        done = d.event("done")
        done.record(side)
        q.put(done)
        if q.full():
            q.get().synchronize()
        else:
            m.write()

    return d


@declared(fp.REFUTED, "WAR b")
def pops_and_waits_elsewhere() -> fp.Design:
    """Popping a full queue also waits for a response here, so the queue may not start with dummies."""
    d = fp.Design("pops and waits elsewhere")
    rpc, batches = d.queue("rpc", capacity=3, item=()), d.queue("batches", capacity=2, item=())
    outputs, responses = d.queue("outputs", capacity=3, item=fp.EVENT), d.queue("responses", capacity=3, item=())
    b, g = d.pinned("b"), d.device("g")

    @d.loop("engine")
    def engine() -> None:
        rpc.put()
        batches.put()
        if batches.full():
            batches.get()
            responses.get()

    @d.loop("worker")
    def worker() -> None:
        rpc.get()
        b.write()
        g.copy_(b, non_blocking=True)
        copied = d.event("copied")
        copied.record()
        outputs.put(copied)

    @d.loop("output thread")
    def output() -> None:
        outputs.get().synchronize()
        responses.put()

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
def recorded_after_hand_over() -> fp.Design:
    """The event goes into the queue before its record: a wait that comes first waits for nothing (S21)."""
    d = fp.Design("recorded after hand-over")
    handed = d.queue("handed", capacity=1, item=fp.EVENT)
    x, side = d.device("x"), d.stream("side")

    @d.loop("producer")
    def producer() -> None:
        ready = d.event("ready")
        handed.put(ready)
        d.launch("produce", writes=[x])
        ready.record()

    @d.loop("consumer", stream=side)
    def consumer() -> None:
        ready = handed.get()
        side.wait_event(ready)
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def waited_for_after_the_record() -> fp.Design:
    """The handle was handed over before the record, and is used after it: what counts is the event, not the handle."""
    d = fp.Design("waited for after the record")
    handed, recorded, back = d.queue("handed", capacity=1, item=fp.EVENT), d.flag("recorded"), d.flag("back")
    x, side = d.device("x"), d.stream("side")

    @d.loop("producer")
    def producer() -> None:
        ready = d.event("ready")
        handed.put(ready)
        d.launch("produce", writes=[x])
        ready.record()
        recorded.set()
        back.wait()
        back.clear()

    @d.loop("consumer", stream=side)
    def consumer() -> None:
        ready = handed.get()
        recorded.wait()
        recorded.clear()
        side.wait_event(ready)
        d.launch("consume", reads=[x])
        side.synchronize()
        back.set()

    return d


@declared(fp.REFUTED, "WAR m")
def waits_by_choice() -> fp.Design:
    """Two ways through the turn, the longer one does not wait."""
    d = fp.Design("waits by choice")
    m, g, count, never = d.pinned("m"), d.device("g"), d.counter("count"), d.flag("never")

    @d.loop("waits for ever")
    def waits() -> None:
        never.wait()
        m.read()

    @d.loop("thread")
    def thread() -> None:
        g.copy_(m, non_blocking=True)
        if d.choose("wait", [True, False]):
            d.current_stream().synchronize()
        else:
            count.add()
            count.add()
        count.add()
        m.write()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def hop_by_stream_waits() -> fp.Design:
    """A stream without accesses carries the order, by stream waits."""
    d = fp.Design("hop by stream waits")
    x, one, hop, two = d.device("x"), d.stream("one"), d.stream("hop"), d.stream("two")

    @d.loop("thread")
    def thread() -> None:
        d.launch("produce", writes=[x], stream=one)
        hop.wait_stream(one)
        two.wait_stream(hop)
        d.launch("consume", reads=[x], stream=two)
        hop.wait_stream(two)
        one.wait_stream(hop)

    return d


@declared(fp.REFUTED, "WAR m")
@declared(fp.MASKED, environment="one-hardware-queue")
def recorded_elsewhere() -> fp.Design:
    """An event of a stream that shares the hardware queue of the copy (S115)."""
    d = fp.Design("recorded elsewhere")
    m, g, other, e, scratch = d.pinned("m"), d.device("g"), d.stream("other"), d.event("e"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(m, non_blocking=True)
        e.record(other)
        e.synchronize()
        m.write()
        e.record(other)
        e.synchronize()

    return d


@declared(fp.PROVED)
def event_of_another_thread() -> fp.Design:
    """Who waits for an event that another thread records: the streams behind it matter to both."""
    d = fp.Design("event of another thread")
    m, g, s = d.pinned("m"), d.device("g"), d.stream("s")
    there, back = d.queue("there", capacity=1, item=fp.EVENT), d.queue("back", capacity=1, item=())

    @d.loop("copier")
    def copier() -> None:
        m.write()
        g.copy_(m, non_blocking=True, stream=s)
        done = d.event("done")
        done.record(s)
        there.put(done)
        back.get()

    @d.loop("waiter")
    def waiter() -> None:
        there.get().synchronize()
        back.put()

    return d


@declared(fp.PROVED)
def hop_over_a_stream() -> fp.Design:
    """A stream on which nothing accesses the buffer carries the order between two that do."""
    d = fp.Design("hop over a stream")
    x, one, hop, two = d.device("x"), d.stream("one"), d.stream("hop"), d.stream("two")
    e, f, g = d.event("e"), d.event("f"), d.event("g")

    @d.loop("thread")
    def thread() -> None:
        d.launch("produce", writes=[x], stream=one)
        e.record(one)
        hop.wait_event(e)
        f.record(hop)
        two.wait_event(f)
        d.launch("consume", reads=[x], stream=two)
        g.record(two)
        hop.wait_event(g)
        one.wait_stream(hop)

    return d
