"""Small designs in which a flag holds a thread back and orders nothing, so that one edge alone makes or breaks the proof.

What tests/mutation/designs judges in one run of its own elsewhere (`in_the_run`) is here a verdict: engines that judge no
single run, as the relation of certificates, notice it, too.
"""

from __future__ import annotations

import functools

import fencepost as fp
from fencepost.model import program as p

from mutation.declared import DESIGNS, Declared, declared
from mutation.designs.ranks import without_edges


class Held:
    """Two streams, two buffers, and a flag "told" that orders nothing."""

    def __init__(self, name: str) -> None:
        self.d = d = fp.Design(name)
        self.m, self.x, self.s, self.u, self.v = d.pinned("m"), d.device("x"), d.stream("s"), d.stream("u"), d.stream("v")
        self.e, self.told, self.word = d.event("e"), d.flag("told"), d.device_flag("word")

    def build(self) -> p.Program:
        """The program."""
        return without_edges(self.d.build())


@declared(fp.PROVED)
def record_starts_after_its_call() -> p.Program:
    """What another thread puts behind a record comes after the record's call (S2)."""
    o = Held("record starts after its call")

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.e.record(o.s)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.d.launch("use", reads=[o.m], stream=o.s)

    return o.build()


@declared(fp.PROVED)
def stream_wait_starts_after_its_call() -> p.Program:
    """So does the record that a stream wait makes on the other stream (S22)."""
    o = Held("stream wait starts after its call")

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.u.wait_stream(o.s)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.d.launch("use", reads=[o.m], stream=o.s)

    return o.build()


@declared(fp.PROVED)
def set_comes_after_a_set() -> p.Program:
    """An operation on a cell comes after every earlier one."""
    o = Held("set comes after a set")
    cell = o.d.cell("cell", item=())

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        cell.set()
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        cell.set()
        o.m.read()

    return o.build()


@declared(fp.PROVED)
def clear_comes_after_the_stores() -> p.Program:
    """The clear of a flag comes after the stores before it."""
    o = Held("clear comes after the stores")
    flag = o.d.flag("flag")

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        flag.set()
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        flag.clear()
        o.m.read()

    return o.build()


@declared(fp.REFUTED, "RAW m", held=True)
def wait_for_nothing_in_a_pending_stream() -> p.Program:
    """A wait for a never recorded event does nothing (S18): a "no" of the stream does not tell of its call."""
    o = Held("wait for nothing in a pending stream")
    gate = o.d.device_flag("gate")

    @o.d.setup
    def setup() -> None:
        o.s.wait_value(gate, 1)

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.s.wait_event(o.e)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        if not o.s.query():
            o.m.read()
        o.u.write_value(gate, 1)

    return o.build()


@declared(fp.REFUTED, "RAW x")
def no_of_a_busy_stream() -> fp.Design:
    """A stream with work may say no, and then its work may not be done."""
    d = fp.Design("no of a busy stream")
    x, s, scratch = d.pinned("x"), d.stream("s"), d.pageable("scratch")

    @d.script("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        d.launch("write", writes=[x], stream=s)
        if not s.query():
            x.read()

    return d


@declared(fp.REFUTED, "RAW x")
def no_of_a_recorded_event() -> fp.Design:
    """So may an event behind that work."""
    d = fp.Design("no of a recorded event")
    x, s, e, scratch = d.pinned("x"), d.stream("s"), d.event("e"), d.pageable("scratch")

    @d.script("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        d.launch("write", writes=[x], stream=s)
        e.record(s)
        if not e.query():
            x.read()

    return d


@declared(fp.PROVED)
def two_readers() -> fp.Design:
    """Two reads are no conflict, in whatever order."""
    d = fp.Design("two readers")
    m = d.pinned("m")

    @d.setup
    def setup() -> None:
        m.write()

    @d.loop("one")
    def one() -> None:
        m.read()

    @d.loop("two")
    def two() -> None:
        m.read()

    return d


@declared(fp.REFUTED, "RAW m", held=True)
def only_the_latest_store_of_two_hosts() -> p.Program:
    """The second store overwrites what the first one carried (S118)."""
    o = Held("only the latest store of two hosts")

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.word.store(1)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.word.store(2)

    @o.d.script("C")
    def third() -> None:
        o.s.wait_value(o.word, 2)
        o.d.launch("use", reads=[o.m], stream=o.s)

    return o.build()


@declared(fp.REFUTED, "RAW x", held=True)
def only_the_latest_store_of_two_streams() -> p.Program:
    """So does that of another stream."""
    o = Held("only the latest store of two streams")

    @o.d.script("A")
    def first() -> None:
        o.d.launch("write", writes=[o.x], stream=o.s)
        o.s.write_value(o.word, 1)
        o.s.synchronize()
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.u.write_value(o.word, 2)

    @o.d.script("C")
    def third() -> None:
        o.v.wait_value(o.word, 2)
        o.d.launch("use", reads=[o.x], stream=o.v)

    return o.build()


@declared(fp.REFUTED, "RAW again")
def pending_use_of_a_former_owner() -> fp.Design:
    """A use that is pending when the block changes hands is late, though what holds it back comes after the next owner."""
    d = fp.Design("pending use of a former owner")
    s, u, gate, scratch = d.stream("s"), d.stream("u"), d.device_flag("gate"), d.pageable("scratch")

    @d.script("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        block = d.empty("block", stream=s)
        d.launch("fill", writes=[block], stream=s)
        u.wait_stream(s)
        u.wait_value(gate, 1)
        d.launch("late", reads=[block], stream=u)  # no record_stream
        block.release()
        again = d.empty("again", stream=s)
        d.launch("fill again", writes=[again], stream=s)
        s.write_value(gate, 1)

    return d


@declared(fp.REFUTED, "WAR m")
def pending_work_is_work() -> fp.Design:
    """What is pending at its call is done later, unordered with what the host does meanwhile."""
    d = fp.Design("pending work is work")
    m, s, u, gate, scratch = d.pinned("m"), d.stream("s"), d.stream("u"), d.device_flag("gate"), d.pageable("scratch")

    @d.script("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        s.wait_value(gate, 1)
        d.launch("write", writes=[m], stream=s)
        u.write_value(gate, 1)
        m.read()

    return d


@declared(fp.PROVED)
def call_handed_on_in_a_pending_stream() -> p.Program:
    """An item starts after the calls of all that is before it in its stream, of other threads too, and of what touches nothing (S2)."""
    o = Held("call handed on in a pending stream")
    gate = o.d.device_flag("gate")

    @o.d.setup
    def setup() -> None:
        o.s.wait_value(gate, 1)

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.d.launch("nothing", stream=o.s)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.d.launch("use", reads=[o.m], stream=o.s)
        o.u.write_value(gate, 1)

    return o.build()


def _never_no(how: str) -> fp.Design:
    """In front of a "no" that is impossible stands what would be a hazard."""
    d = fp.Design(f"never no, {how}")
    y, s, v, e, scratch = d.pinned("y"), d.stream("s"), d.stream("v"), d.event("e"), d.pageable("scratch")

    @d.script("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        d.launch("write", writes=[y], stream=v)
        if how != "idle":
            d.launch("work", stream=s)
        e.record(s)
        if how == "event":
            e.synchronize()
        if how == "stream":
            s.synchronize()
        if not (s.query() if how == "stream" else e.query()):
            y.read()

    return d


for _how in ("event", "stream", "idle"):
    DESIGNS[f"never no, {_how}"] = Declared(functools.partial(_never_no, _how), fp.UNKNOWN)


@declared(fp.PROVED)
def reuse_behind_a_pending_use() -> fp.Design:
    """Whoever gets a block whose noted use was pending comes after that use (S65, S67)."""
    d = fp.Design("reuse behind a pending use")
    s, u, w, gate = d.stream("s"), d.stream("u"), d.stream("w"), d.device_flag("gate")

    @d.script("thread")
    def thread() -> None:
        block = d.empty("block", stream=s)
        d.launch("fill", writes=[block], stream=s)
        u.wait_stream(s)
        u.wait_value(gate, 1)
        d.launch("use", reads=[block], stream=u)
        block.record_stream(u)
        block.release()
        w.write_value(gate, 1)
        again = d.empty("again", stream=s)
        d.launch("fill again", writes=[again], stream=s)
        again.release()

    return d
