"""Small designs of streams that meet, each of which stands on few rules: without one of them its answer is another one.

Channels by `send` and `recv` of nothing (a signal and an await on the current streams), device flags, and what is pending
behind them. `scratch` as in mutation_designs.py.
"""

from __future__ import annotations

import fencepost as fp
import msgspec
from fencepost.model import program as p

from mutation_designs import declared, in_the_run
from program_writer import Writer, r, w


class Ranks:
    """A design with two ranks "a" and "b", a stream and a buffer for each, and one for both."""

    def __init__(self, name: str, capacity: int | None = 2) -> None:
        self.d = d = fp.Design(name)
        self.comm = d.communicator("comm", ["a", "b"], capacity=capacity)
        self.s, self.u, self.v = d.stream("s"), d.stream("u"), d.stream("v")
        self.x, self.scratch = d.device("x"), d.pageable("scratch")
        self.go, self.told = d.flag("go"), d.flag("told")

    def tell(self, match: str | None = None) -> None:
        """Rank a signals."""
        self.comm.send((), "b", rank="a", match=match)

    def hear(self, match: str | None = None) -> None:
        """Rank b awaits."""
        self.comm.recv((), "a", rank="b", match=match)

    def produce(self, stream: fp.Stream | None = None) -> None:
        self.d.launch("produce", writes=[self.x], stream=stream)

    def consume(self, stream: fp.Stream | None = None) -> None:
        self.d.launch("consume", reads=[self.x], stream=stream)

    def late(self) -> p.Program:
        """The design, in which "go" and "told" hold threads back and order nothing."""
        made = self.d.build()
        threads = [
            msgspec.structs.replace(t, nodes=tuple(
                msgspec.structs.replace(n, operation=msgspec.structs.replace(n.operation, edge=False))
                if isinstance(n, p.Do) and isinstance(n.operation, p.FlagWait) else n for n in t.nodes
            ))
            for t in made.threads
        ]  # fmt: skip
        return msgspec.structs.replace(made, threads=tuple(threads))

    def scratched(self) -> None:
        """A conflict that nothing here touches."""
        self.scratch.write()
        self.scratch.read()


# ---------------------------------------------------------------- channels


@declared(fp.PROVED)
def after_a_message() -> fp.Design:
    """What is before the signal in its stream is before what follows the await (S130, S131)."""
    m = Ranks("after a message")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.produce()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.consume()

    return m.d


@declared(fp.PROVED)
def call_before_a_message() -> fp.Design:
    """What the host did before it enqueued the signal is, too."""
    m = Ranks("call before a message")
    y = m.d.pinned("y")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        y.write()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.d.launch("consume", reads=[y])

    return m.d


@declared(fp.REFUTED, "RAW x", "WAR x")
def behind_a_message() -> fp.Design:
    """What is behind the signal is not."""
    m = Ranks("behind a message")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.tell()
        m.produce()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.consume()

    return m.d


@declared(fp.REFUTED, "RAW x")
def message_on_another_stream() -> fp.Design:
    """The signal is not behind the work."""
    m = Ranks("message on another stream")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.produce(m.v)
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.consume()

    return m.d


@declared(fp.REFUTED, "RAW x", "WAR x")
def a_message_is_no_way_back() -> fp.Design:
    """A sender waits for nobody: what the receiver did before is not before the sender's next work."""
    m = Ranks("a message is no way back")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.tell()
        m.produce()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.consume()
        m.hear()

    return m.d


@declared(fp.PROVED)
def messages_in_order() -> fp.Design:
    """The second await takes the second message."""
    m = Ranks("messages in order")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.tell()
        m.produce()
        m.tell()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.hear()
        m.consume()

    return m.d


@declared(fp.PROVED)
def another_match_never_meets() -> fp.Design:
    """The oldest message is not its own: the await never ends, and what is behind it never runs (S130)."""
    m = Ranks("another match never meets")

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.scratched()
        m.tell("one")
        m.produce()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.hear("two")
        m.consume()

    return m.d


@declared(fp.REFUTED, "WAR x")
def room_is_no_edge() -> fp.Design:
    """A signal that had to wait for room comes after the await that made it, but not after what is beside that (theory 2)."""
    m = Ranks("room is no edge", capacity=1)

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.tell()
        m.tell()
        m.produce()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.consume(m.v)
        m.hear()

    return m.d


@declared(fp.PROVED)
def no_room_holds_the_stream() -> fp.Design:
    """Nobody makes room: what is behind the second signal never runs."""
    m = Ranks("no room holds the stream", capacity=1)

    @m.d.script("a", stream=m.s)
    def a() -> None:
        m.scratched()
        m.tell()
        m.tell()
        m.produce()

    @m.d.script("b", stream=m.u)
    def b() -> None:
        m.consume()

    return m.d


@declared(fp.PROVED)
def there_and_back() -> fp.Design:
    """Step after step: a message there, one back, and the host waits once a turn."""
    m = Ranks("there and back")

    @m.d.loop("a", stream=m.s)
    def a() -> None:
        m.produce()
        m.tell()
        m.comm.recv((), "b", rank="a")
        m.s.synchronize()

    @m.d.loop("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.consume()
        m.comm.send((), "a", rank="b")
        m.u.synchronize()

    return m.d


@declared(fp.REFUTED, "RAW x", "WAR x")
def there_and_not_back() -> fp.Design:
    """Without the message back the next step overwrites what is being read."""
    m = Ranks("there and not back")

    @m.d.loop("a", stream=m.s)
    def a() -> None:
        m.produce()
        m.tell()
        m.s.synchronize()

    @m.d.loop("b", stream=m.u)
    def b() -> None:
        m.hear()
        m.consume()
        m.u.synchronize()

    return m.d


@declared(fp.PROVED)
def second_await_of_a_channel() -> p.Program:
    """Where two streams await one channel, the second message is there for who comes second: the first await is before it."""
    made = Writer()
    x, scratch = p.Obj(made.add(p.Memory("x", "device"))), p.Obj(made.add(p.Memory("scratch", "pageable")))
    s, u, v = (p.Obj(made.add(p.Stream(name))) for name in "suv")
    channel, taken = made.add(p.Channel("channel", 2)), made.add(p.Flag("taken"))
    made.thread("script").body = [p.Host("scratch", (w(scratch),)), p.Host("scratch", (r(scratch),)),
                                  p.Signal(channel, s), p.Signal(channel, s)]  # fmt: skip
    made.thread("script").body = [p.Launch("produce", u, (w(x),)), p.Await(channel, u), p.StreamSync(u), p.FlagSet(taken)]
    made.thread("script").body = [p.FlagWait(taken, False), p.Await(channel, v), p.Launch("consume", v, (r(x),))]
    return made.program("second await of a channel")


# ---------------------------------------------------------------- what is pending


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


# ---------------------------------------------------------------- device flags


@declared(fp.PROVED)
def store_then_wait() -> fp.Design:
    """A store of a stream is before what the wait lets through (S118)."""
    d = fp.Design("store then wait")
    x, word = d.device("x"), d.device_flag("word")
    s, u = d.stream("s"), d.stream("u")

    @d.script("a", stream=s)
    def a() -> None:
        d.launch("produce", writes=[x])
        s.write_value(word, 1)

    @d.script("b", stream=u)
    def b() -> None:
        u.wait_value(word, 1)
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def host_store_then_wait() -> fp.Design:
    """A store of a host is, too."""
    d = fp.Design("host store then wait")
    x, word, u = d.pinned("x"), d.device_flag("word"), d.stream("u")

    @d.script("a")
    def a() -> None:
        x.write()
        word.store(1)

    @d.script("b", stream=u)
    def b() -> None:
        u.wait_value(word, 1)
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def store_then_host_wait() -> fp.Design:
    """A host that spins continues after the stream's work."""
    d = fp.Design("store then host wait")
    x, word, s = d.pinned("x"), d.device_flag("word"), d.stream("s")

    @d.script("a", stream=s)
    def a() -> None:
        d.launch("produce", writes=[x])
        s.write_value(word, 1)

    @d.script("b")
    def b() -> None:
        word.wait(1)
        x.read()

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
def store_before_the_work() -> fp.Design:
    """What is behind the store is not before the wait's end."""
    d = fp.Design("store before the work")
    x, word = d.device("x"), d.device_flag("word")
    s, u = d.stream("s"), d.stream("u")

    @d.script("a", stream=s)
    def a() -> None:
        s.write_value(word, 1)
        d.launch("produce", writes=[x])

    @d.script("b", stream=u)
    def b() -> None:
        u.wait_value(word, 1)
        d.launch("consume", reads=[x])

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
def host_store_before_the_work() -> fp.Design:
    """The same with a host that stores."""
    d = fp.Design("host store before the work")
    x, word, u = d.pinned("x"), d.device_flag("word"), d.stream("u")

    @d.script("a")
    def a() -> None:
        word.store(1)
        x.write()

    @d.script("b", stream=u)
    def b() -> None:
        u.wait_value(word, 1)
        d.launch("consume", reads=[x])

    return d


@in_the_run("AACBB", "RAW x")
def only_the_latest_store_of_hosts() -> fp.Design:
    """The second store overwrites what the first one carried."""
    d = fp.Design("only the latest store of hosts")
    x, word = d.pinned("x"), d.device_flag("word")

    @d.script("A")
    def first() -> None:
        x.write()
        word.store(1)

    @d.script("B")
    def second() -> None:
        word.wait(1)
        x.read()

    @d.script("C")
    def third() -> None:
        word.store(1)

    return d


@declared(fp.REFUTED, "RAW x")
def only_the_latest_store() -> fp.Design:
    """Another store of the same value: the wait sees one of them, and is ordered with that one alone."""
    d = fp.Design("only the latest store")
    x, word = d.device("x"), d.device_flag("word")
    s, u, v = d.stream("s"), d.stream("u"), d.stream("v")

    @d.script("a", stream=s)
    def a() -> None:
        d.launch("produce", writes=[x])
        s.write_value(word, 1)
        v.write_value(word, 1)

    @d.script("b", stream=u)
    def b() -> None:
        u.wait_value(word, 1)
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def waits_for_the_higher_value() -> fp.Design:
    """The work is between the two stores."""
    d = fp.Design("waits for the higher value")
    x, word = d.device("x"), d.device_flag("word")
    s, u = d.stream("s"), d.stream("u")

    @d.script("a", stream=s)
    def a() -> None:
        s.write_value(word, 1)
        d.launch("produce", writes=[x])
        s.write_value(word, 2)

    @d.script("b", stream=u)
    def b() -> None:
        u.wait_value(word, 2)
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def higher_is_enough() -> fp.Design:
    """At least the value: a higher one lets through, and orders."""
    d = fp.Design("higher is enough")
    x, y, word = d.pinned("x"), d.pinned("y"), d.device_flag("word")
    u = d.stream("u")

    @d.script("a")
    def a() -> None:
        x.write()
        word.store(2)

    @d.script("b", stream=u)
    def b() -> None:
        u.wait_value(word, 1)
        d.launch("consume", reads=[x], writes=[y])

    return d


@declared(fp.PROVED)
def flags_there_and_back() -> fp.Design:
    """Each wait resets its flag, so that the next turn waits again."""
    return _flags("flags there and back", True)


@declared(fp.REFUTED, "RAW x", "WAR x")
def flags_without_reset() -> fp.Design:
    """From the second turn on nobody waits."""
    return _flags("flags without reset", False)


def _flags(name: str, reset: bool) -> fp.Design:
    d = fp.Design(name)
    x, there, back = d.device("x"), d.device_flag("there"), d.device_flag("back")
    s, u = d.stream("s"), d.stream("u")

    @d.loop("a", stream=s)
    def a() -> None:
        d.launch("produce", writes=[x])
        s.write_value(there, 1)
        s.wait_value(back, 1, reset=reset)
        s.synchronize()

    @d.loop("b", stream=u)
    def b() -> None:
        u.wait_value(there, 1, reset=reset)
        d.launch("consume", reads=[x])
        u.write_value(back, 1)
        u.synchronize()

    return d


@declared(fp.PROVED)
def host_resets_what_it_saw() -> fp.Design:
    """The same with hosts that spin and store (mapped memory)."""
    d = fp.Design("host resets what it saw")
    x, there, back = d.pinned("x"), d.device_flag("there"), d.device_flag("back")

    @d.loop("a")
    def a() -> None:
        x.write()
        there.store(1)
        back.wait(1, reset=True)

    @d.loop("b")
    def b() -> None:
        there.wait(1, reset=True)
        x.read()
        back.store(1)

    return d


@declared(fp.PROVED)
def a_reset_carries_its_wait() -> fp.Design:
    """A reset is a store of 0 of its own: whoever stores over it is not ordered, who waits for more is."""
    d = fp.Design("a reset carries its wait")
    x, word, scratch = d.device("x"), d.device_flag("word"), d.pageable("scratch")
    s, u, v = d.stream("s"), d.stream("u"), d.stream("v")

    @d.script("a", stream=s)
    def a() -> None:
        scratch.write()
        scratch.read()
        d.launch("produce", writes=[x])
        s.write_value(word, 1)

    @d.script("b", stream=u)
    def b() -> None:
        u.wait_value(word, 1, reset=True)
        d.launch("consume", reads=[x])

    @d.script("c", stream=v)
    def c() -> None:
        v.wait_value(word, 1, reset=True)
        d.launch("consume too", reads=[x])

    return d
