"""Small designs of queries where something is pending: who is told "no" of what."""

from __future__ import annotations

import fencepost as fp
from fencepost.model import program as p

from mutation.declared import DESIGNS, Declared, declared
from mutation.designs.ranks import Ranks


@declared(fp.PROVED)
def asked_behind_an_await() -> fp.Design:
    """A query of a pending record says only "no", so a "yes" tells of the message (S24)."""
    m = Ranks("asked behind an await")
    done = m.d.event("done")
    y = m.d.pinned("y")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.d.launch("produce", writes=[y])
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        done.record()
        if done.query():
            y.read()

    return m.d


@declared(fp.PROVED)
def stream_asked_behind_an_await() -> fp.Design:
    """And a query of the stream (S34)."""
    m = Ranks("stream asked behind an await")
    y = m.d.pinned("y")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.d.launch("produce", writes=[y])
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        if m.u.query():
            y.read()

    return m.d


@declared(fp.PROVED)
def no_of_a_pending_stream_comes_after_the_call() -> fp.Design:
    """A "no" of a stream in which only an await stands tells that the await was enqueued (S34)."""
    m = Ranks("no of a pending stream comes after the call")
    y = m.d.pinned("y")

    @m.d.script("b", stream=m.u)
    def b() -> None:
        y.write()
        m.hear()

    @m.d.script("c")
    def c() -> None:
        if not m.u.query():
            y.read()

    return m.d


@declared(fp.PROVED)
def no_of_a_pending_record_comes_after_the_call() -> fp.Design:
    """And a "no" of an event whose record is pending, that it was recorded (S24)."""
    m = Ranks("no of a pending record comes after the call")
    y, done = m.d.pinned("y"), m.d.event("done")

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        y.write()
        done.record()

    @m.d.script("c")
    def c() -> None:
        if not done.query():
            y.read()

    return m.d


@declared(fp.PROVED)
def no_of_a_stream_that_waits_for_a_pending_record() -> fp.Design:
    """A "no" of a stream in which only a wait for a pending record stands comes after the wait's call (S34)."""
    m = Ranks("no of a stream that waits for a pending record")
    y, done = m.d.pinned("y"), m.d.event("done")

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        done.record()
        y.write()
        m.v.wait_event(done)

    @m.d.script("c")
    def c() -> None:
        if not m.v.query():
            y.read()

    return m.d


@declared(fp.PROVED)
def told_of_a_wait_for_a_pending_record() -> fp.Design:
    """And after the record's call, which another thread made: never recorded, the wait would have done nothing (S18)."""
    m = Ranks("told of a wait for a pending record")
    y, done = m.d.pinned("y"), m.d.event("done")

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        y.write()
        done.record()

    @m.d.script("w")
    def waits() -> None:
        m.v.wait_event(done)

    @m.d.script("c")
    def c() -> None:
        if not m.v.query():
            y.read()

    return m.d


@declared(fp.PROVED)
def no_of_a_stream_that_waits_for_a_pending_stream() -> fp.Design:
    """The same for `wait_stream`: after its call, and after the calls that filled the other stream."""
    m = Ranks("no of a stream that waits for a pending stream")
    y, z = m.d.pinned("y"), m.d.pinned("z")

    @m.d.script("b", stream=m.u)
    def b() -> None:
        z.write()
        m.hear()

    @m.d.script("w")
    def waits() -> None:
        y.write()
        m.v.wait_stream(m.u)

    @m.d.script("c")
    def c() -> None:
        if not m.v.query():
            y.read()
            z.read()

    return m.d


@declared(fp.UNKNOWN)
def known_complete_behind_an_await() -> fp.Design:
    """A record that was waited for while it was pending is known complete: a "no" is impossible, and what it leads to never runs."""
    m = Ranks("known complete behind an await")
    done = m.d.event("done")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.scratched()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        done.record()
        done.synchronize()
        if not done.query():
            m.produce(m.v)
            m.consume(m.u)

    return m.d


@declared(fp.UNKNOWN)
def idle_behind_an_await() -> fp.Design:
    """So is a stream."""
    m = Ranks("idle behind an await")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.scratched()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.u.synchronize()
        if not m.u.query():
            m.produce(m.v)
            m.consume(m.u)

    return m.d


@declared(fp.REFUTED, "RAW x")
def not_idle_when_more_was_given() -> p.Program:
    """What came into the stream during the call that waits for it is not covered by the call."""
    m = Ranks("not idle when more was given")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.told.wait()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.go.set()
        m.u.synchronize()
        if not m.u.query():
            m.produce(m.v)
            m.consume()

    @m.d.script("c", stream=m.u)
    def c() -> None:
        m.go.wait()
        m.d.launch("something else")
        m.told.set()

    return m.late()


def _asked_behind_a_gate(by_event: bool) -> fp.Design:
    """The device may have passed the gate before the query, so that "yes" can come; it says nothing of `other`'s work."""
    d = fp.Design("asked behind a gate" + (", the event" if by_event else ""))
    m, y, s, other, w = d.pinned("m"), d.pinned("y"), d.stream("s"), d.stream("other"), d.stream("w")
    e, gate = d.event("e"), d.device_flag("gate")

    @d.script("thread")
    def thread() -> None:
        m.write()
        m.read()
        d.launch("other", writes=[y], stream=other)
        s.wait_value(gate, 1)
        d.launch("work", stream=s)
        e.record(s)
        w.write_value(gate, 1)
        if e.query() if by_event else s.query():
            y.read()

    return d


DESIGNS["asked_behind_a_gate"] = Declared(lambda: _asked_behind_a_gate(False), fp.REFUTED, ("RAW y",))
DESIGNS["event_asked_behind_a_gate"] = Declared(lambda: _asked_behind_a_gate(True), fp.REFUTED, ("RAW y",))
