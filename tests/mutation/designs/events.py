"""Small designs of events and streams: records, waits, what one stream knows of another."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared, in_the_run


@declared(fp.PROVED)
def event_guard() -> fp.Design:
    """The event of the last turn's copy is waited for before the refill; in the first turn it says nothing (S18)."""
    d = fp.Design("event guard")
    m, g, copied = d.pinned("m"), d.device("g"), d.event("copied")

    @d.loop("thread")
    def thread() -> None:
        copied.synchronize()
        m.write()
        g.copy_(m, non_blocking=True)
        copied.record()

    return d


@declared(fp.REFUTED, "WAR m")
def recorded_again() -> fp.Design:
    """A record forgets the earlier capture (S19)."""
    d = fp.Design("recorded again")
    m, g, copied, side = d.pinned("m"), d.device("g"), d.event("copied"), d.stream("side")
    out, ran, scratch = d.device("out"), d.event("ran"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m.write()
        g.copy_(m, non_blocking=True)
        copied.record()
        d.launch("other", writes=[out], stream=side)
        ran.record(side)
        copied.record(side)
        copied.synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def fresh_event_says_nothing() -> fp.Design:
    """A wait for an event that was made after the record of another one (S17, S18)."""
    d = fp.Design("fresh event says nothing")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m.write()
        g.copy_(m, non_blocking=True)
        copied = d.event("copied")
        copied.record()
        other = d.event("other")
        with d.maybe("record it"):
            other.record()
        other.synchronize()

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
def recorded_once_after_hand_over() -> fp.Design:
    """The consumer may wait before the record, and launch before or after the producer does (S21)."""
    d = fp.Design("recorded once after hand-over")
    handed = d.queue("handed", capacity=1, item=fp.EVENT)
    x, side = d.device("x"), d.stream("side")

    @d.script("producer")
    def producer() -> None:
        ready = d.event("ready")
        handed.put(ready)
        d.launch("produce", writes=[x])
        ready.record()

    @d.script("consumer", stream=side)
    def consumer() -> None:
        ready = handed.get()
        side.wait_event(ready)
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def event_between_streams() -> fp.Design:
    """One stream waits for another's event, and the other way round by a stream wait (S20, S22)."""
    d = fp.Design("event between streams")
    x, side, ready = d.device("x"), d.stream("side"), d.event("ready")

    @d.loop("thread")
    def thread() -> None:
        d.launch("produce", writes=[x])
        ready.record()
        side.wait_event(ready)
        d.launch("consume", reads=[x], stream=side)
        d.current_stream().wait_stream(side)

    return d


@declared(fp.REFUTED, "WAR x")
def waits_before_the_record() -> fp.Design:
    """A wait takes the latest record at its call (S20, S21)."""
    d = fp.Design("waits before the record")
    x, side, ready, scratch = d.device("x"), d.stream("side"), d.event("ready"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        side.wait_event(ready)
        d.launch("consume", reads=[x], stream=side)
        d.launch("produce", writes=[x])
        ready.record()
        d.current_stream().wait_stream(side)

    return d


@declared(fp.PROVED)
def device_is_synchronized() -> fp.Design:
    """`torch.cuda.synchronize` waits for every stream of the GPU (S32)."""
    d = fp.Design("device is synchronized")
    m, g, side = d.pinned("m"), d.device("g"), d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True, stream=side)
        d.synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def other_device_is_synchronized() -> fp.Design:
    """... and of no other GPU."""
    d = fp.Design("other device is synchronized")
    m, g, side, scratch = d.pinned("m"), d.device("g"), d.stream("side", gpu=1), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m.write()
        g.copy_(m, non_blocking=True, stream=side)
        d.synchronize(gpu=0)

    return d


@in_the_run("AA")
def two_reads_in_a_run() -> fp.Design:
    """Two reads are no conflict."""
    d = fp.Design("two reads in a run")
    x, side = d.device("x"), d.stream("side")

    @d.script("A")
    def first() -> None:
        d.launch("one", reads=[x])
        d.launch("two", reads=[x], stream=side)

    return d


@in_the_run("AABB")
def record_behind_a_write() -> fp.Design:
    """A record is an item of its stream: it starts after its call, and what follows after it (S2)."""
    d = fp.Design("record behind a write")
    m, e, s, g = d.pinned("m"), d.event("e"), d.stream("s"), d.stream("other")

    @d.script("A")
    def first() -> None:
        m.write()
        e.record(s)

    @d.script("B")
    def second() -> None:
        d.launch("use", reads=[m], stream=s)
        g.wait_event(e)

    return d


@in_the_run("AABB")
def stream_wait_behind_a_write() -> fp.Design:
    """The record that a stream wait makes is an item of the other stream (S22)."""
    d = fp.Design("stream wait behind a write")
    m, s, other = d.pinned("m"), d.stream("s"), d.stream("other")

    @d.script("A")
    def first() -> None:
        m.write()
        other.wait_stream(s)

    @d.script("B")
    def second() -> None:
        d.launch("use", reads=[m], stream=s)
        s.synchronize()

    return d
