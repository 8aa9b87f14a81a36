"""Small designs of signals and awaits: what a message orders and what it does not."""

from __future__ import annotations

import fencepost as fp
from fencepost.model import program as p

from mutation.declared import declared
from mutation.designs.ranks import Ranks
from program_writer import Writer, r, w


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
