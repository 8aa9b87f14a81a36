"""Small designs of what is pending behind a meeting: records, waits, work, blocks and rows."""

from __future__ import annotations

import fencepost as fp
from fencepost.model import program as p

from mutation.declared import declared, in_the_run
from mutation.designs.ranks import Ranks
from program_writer import Writer, r, w


@declared(fp.PROVED)
def record_behind_an_await() -> fp.Design:
    """A record behind an await is pending until it has come: the host waits, too (S23)."""
    m = Ranks("record behind an await")
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
        done.synchronize()
        y.read()

    return m.d


@declared(fp.PROVED)
def stream_behind_an_await() -> fp.Design:
    """The same by `synchronize` on the stream (S32)."""
    m = Ranks("stream behind an await")
    y = m.d.pinned("y")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.d.launch("produce", writes=[y])
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.u.synchronize()
        y.read()

    return m.d


@declared(fp.PROVED)
def device_behind_an_await() -> fp.Design:
    """And on the device."""
    m = Ranks("device behind an await")
    y = m.d.pinned("y")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.d.launch("produce", writes=[y])
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.d.synchronize()
        y.read()

    return m.d


@declared(fp.PROVED)
def waits_for_a_pending_record() -> fp.Design:
    """A stream waits for the record that was there at the call, though it is recorded again elsewhere before it is done (S20)."""
    m = Ranks("waits for a pending record")
    done = m.d.event("done")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.produce()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        done.record()
        m.v.wait_event(done)
        done.record(m.s)
        m.consume(m.v)

    return m.d


@declared(fp.PROVED)
def stream_waits_for_a_pending_stream() -> fp.Design:
    """`wait_stream` on a stream whose head waits (S22)."""
    m = Ranks("stream waits for a pending stream")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.produce()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.v.wait_stream(m.u)
        m.consume(m.v)

    return m.d


@declared(fp.PROVED)
def pending_use_of_a_noted_block() -> p.Program:
    """A block whose noted use is pending is not handed out (S65, S67)."""
    m = Ranks("pending use of a noted block")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.go.wait()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        block = m.d.empty("block", stream=m.v)
        m.d.launch("fill", writes=[block], stream=m.v)
        m.u.wait_stream(m.v)
        m.hear()
        m.d.launch("use", reads=[block])
        block.record_stream(m.u)
        block.release()
        m.go.set()
        again = m.d.empty("again", stream=m.v)
        m.d.launch("fill again", writes=[again], stream=m.v)

    return m.late()


@declared(fp.PROVED)
def pending_in_the_same_stream() -> fp.Design:
    """A block whose use is pending may go to a tenant on the same stream: its uses queue behind (S63)."""
    m = Ranks("pending in the same stream")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        block = m.d.empty("block")
        m.hear()
        m.d.launch("fill", writes=[block])
        m.d.launch("use", reads=[block])
        block.release()
        again = m.d.empty("again")
        m.d.launch("fill again", writes=[again])
        m.d.launch("use again", reads=[again])

    return m.d


@declared(fp.PROVED)
def rows_behind_a_pending_record() -> p.Program:
    """A row that is given back behind a pending record is not taken before that is complete."""
    m = Ranks("rows behind a pending record")
    rows, table, done = m.d.pool("rows", size=1, of="row"), m.d.pinned("table"), m.d.event("done")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.go.wait()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        row = rows.take()
        m.hear()
        m.d.launch("use", reads=[table[row]], writes=[table[row]])
        done.record()
        rows.give(row, after=done)
        m.go.set()
        again = rows.take()
        table[again].write()
        rows.give(again)

    return m.late()


@declared(fp.PROVED)
def device_with_a_pending_stream() -> fp.Design:
    """A device synchronisation waits for the other streams, too."""
    m = Ranks("device with a pending stream")
    y = m.d.pinned("y")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.d.launch("produce", writes=[y], stream=m.v)
        m.d.synchronize()
        y.read()

    return m.d


@in_the_run("BBBA")
def stream_wait_of_a_pending_stream_behind_a_write() -> fp.Design:
    """The record that a stream wait makes is an item of the other stream (S22), though the waiting one is pending."""
    m = Ranks("stream wait of a pending stream, behind a write")
    y = m.d.pinned("y")

    @m.d.script("A")
    def first() -> None:
        m.d.launch("use", reads=[y], stream=m.s)

    @m.d.script("B", stream=m.u)
    def second() -> None:
        m.hear()
        y.write()
        m.u.wait_stream(m.s)

    return m.d


@declared(fp.PROVED)
def handle_of_a_record_that_was_pending() -> p.Program:
    """Who waits for a record later finds in its handle what it captured when it was complete."""
    m = Ranks("handle of a record that was pending")
    y, handed = m.d.pinned("y"), m.d.queue("handed", capacity=1, item=fp.EVENT)

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.go.wait()
        m.d.launch("produce", writes=[y])
        m.tell()
        m.told.set()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        done = m.d.event("done")
        done.record()
        handed.put(done)
        m.go.set()

    @m.d.script("c")
    def c() -> None:
        m.told.wait()
        handed.get().synchronize()
        y.read()

    return m.late()


@declared(fp.PROVED)
def waits_for_the_call_of_a_pending_record() -> p.Program:
    """A record is an item: who waits for it comes after its call, too (S2)."""
    m = Ranks("waits for the call of a pending record")
    y, done = m.d.pinned("y"), m.d.event("done")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.go.wait()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        y.write()
        done.record()
        m.go.set()

    @m.d.script("c")
    def c() -> None:
        m.go.wait()
        done.synchronize()
        y.read()

    return m.late()


@declared(fp.PROVED)
def pending_stream_waits_for_another() -> p.Program:
    """`wait_stream` of a pending stream on one that is not."""
    m = Ranks("pending stream waits for another")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.go.wait()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.produce(m.v)
        m.u.wait_stream(m.v)
        m.go.set()
        m.consume()

    return m.late()


@declared(fp.PROVED)
def item_behind_an_await_and_an_event() -> p.Program:
    """Work of a pending stream waits for what its own `wait_event` says as well, though that was complete at the call."""
    m = Ranks("item behind an await and an event")
    done = m.d.event("done")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.go.wait()
        m.tell()
        m.told.set()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.produce(m.v)
        done.record(m.v)
        m.u.wait_event(done)
        m.go.set()
        m.told.wait()
        m.consume()

    return m.late()


@declared(fp.PROVED)
def call_of_what_is_pending() -> p.Program:
    """Pending work starts after its call, too: what the host did before is there (S2)."""
    m = Ranks("call of what is pending")
    y, after = m.d.pinned("y"), m.d.queue("after", capacity=1, item=())

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.go.wait()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        y.write()
        m.d.launch("use", reads=[y])
        m.go.set()
        m.u.synchronize()
        after.put()

    @m.d.script("c", stream=m.v)
    def c() -> None:
        after.get()
        m.d.launch("use too", reads=[y])

    return m.late()


@declared(fp.PROVED)
def record_call_of_what_is_pending() -> fp.Design:
    """A record is an item: whoever waits for it comes after the record's call (S2)."""
    m = Ranks("record call of what is pending")
    y, done = m.d.pinned("y"), m.d.event("done")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        y.write()
        done.record()
        m.v.wait_event(done)

    @m.d.script("c")
    def c() -> None:
        m.v.synchronize()
        if not m.v.query():
            y.read()

    return m.d


@declared(fp.REFUTED, "WAR block")
def reuse_behind_a_pending_use_and_beside_another() -> fp.Design:
    """The device may be done with the noted use before the next allocation: then the use that nobody noted is raced."""
    d = fp.Design("reuse behind a pending use, beside another")
    s, u, v, w, gate = d.stream("s"), d.stream("u"), d.stream("v"), d.stream("w"), d.device_flag("gate")

    @d.script("thread")
    def thread() -> None:
        block = d.empty("block", stream=s)
        d.launch("fill", writes=[block], stream=s)
        u.wait_stream(s)
        v.wait_stream(s)
        u.wait_value(gate, 1)
        d.launch("use", reads=[block], stream=u)
        d.launch("unnoted", reads=[block], stream=v)
        block.record_stream(u)
        block.release()
        w.write_value(gate, 1)
        again = d.empty("again", stream=s)
        d.launch("fill again", writes=[again], stream=s)
        again.release()

    return d


@declared(fp.REFUTED, "WAW table")
def row_behind_a_pending_record() -> p.Program:
    """A row that came back behind a pending record may be taken again as soon as the device is there."""
    x = Writer()
    s, u, v = (p.Obj(x.add(p.Stream(name))) for name in "suv")
    gate, e = x.add(p.DeviceFlag("gate")), p.Obj(x.add(p.Event("e")))
    pool, table = x.add(p.Pool("rows", 2, "row")), x.add(p.Memory("table", "device"))
    t = x.thread("script")
    one, two = t.local("one", p.INDEX, pool=pool), t.local("two", p.INDEX, pool=pool)
    row = p.Obj(table, p.At(p.Var(two)))
    t.body = [
        p.Take(pool, one), p.Launch("one", v, (w(p.Obj(table, p.At(p.Var(one)))),)), p.WaitFlag(gate, 1, s, False),
        p.Record(e, s), p.Give(pool, p.Local(one), e), p.StoreFlag(gate, 1, u), p.Take(pool, two),
        p.Launch("two", u, (w(row),)), p.Launch("look", u, (r(row),)),
    ]  # fmt: skip
    return x.program("row behind a pending record")
