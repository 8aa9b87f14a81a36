"""Small designs of queries: what a "yes" and a "no" of an event or a stream tell, and which "no" is impossible."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import DESIGNS, Declared, declared, in_the_run


@declared(fp.REFUTED, "WAR m")
def recorded_again_and_asked() -> fp.Design:
    """The same with a query, which keeps more of every event."""
    d = fp.Design("recorded again and asked")
    m, g, copied, side = d.pinned("m"), d.device("g"), d.event("copied"), d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        copied.record()
        copied.record(side)
        if not copied.query():
            copied.synchronize()

    return d


@declared(fp.PROVED)
def asked_then_waited_for() -> fp.Design:
    """Who is told "no" waits."""
    d = fp.Design("asked, then waited for")
    m, g, copied = d.pinned("m"), d.device("g"), d.event("copied")

    @d.loop("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        copied.record()
        if not copied.query():
            copied.synchronize()

    return d


@declared(fp.PROVED)
def event_between_streams_and_asked() -> fp.Design:
    """The same where an event is queried."""
    d = fp.Design("event between streams and asked")
    x, side, ready, y = d.device("x"), d.stream("side"), d.event("ready"), d.pinned("y")

    @d.loop("thread")
    def thread() -> None:
        d.launch("produce", writes=[x])
        ready.record()
        side.wait_event(ready)
        d.launch("consume", reads=[x], stream=side)
        d.current_stream().wait_stream(side)
        if ready.query():
            y.write()
        d.launch("late", reads=[y], stream=side)
        side.synchronize()

    return d


@declared(fp.PROVED)
def query_says_yes() -> fp.Design:
    """A "yes" is as good as a synchronize (S24); a "no" leaves the buffer alone."""
    d = fp.Design("query says yes")
    m, g, copied = d.pinned("m"), d.device("g"), d.event("copied")

    @d.loop("thread")
    def thread() -> None:
        if copied.query():
            m.write()
            g.copy_(m, non_blocking=True)
            copied.record()

    return d


@declared(fp.PROVED)
def stream_says_yes() -> fp.Design:
    """An idle stream has done everything (S34)."""
    d = fp.Design("stream says yes")
    m, g, side = d.pinned("m"), d.device("g"), d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        if side.query():
            m.write()
            g.copy_(m, non_blocking=True, stream=side)

    return d


@declared(fp.PROVED)
def no_comes_after_the_record() -> fp.Design:
    """Who is told "no" comes after the record call: a never recorded event says "yes" (S18, S24)."""
    d = fp.Design("no comes after the record")
    m, x, done, side = d.pinned("m"), d.device("x"), d.event("done"), d.stream("side")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x], stream=side)
        m.write()
        done.record(side)

    @d.loop("asks")
    def asks() -> None:
        if not done.query():
            m.read()

    return d


@declared(fp.PROVED)
def no_comes_after_the_enqueue() -> fp.Design:
    """An idle stream says "yes": who is told "no" comes after a call that put work there (S34)."""
    d = fp.Design("no comes after the enqueue")
    m, x, side = d.pinned("m"), d.device("x"), d.stream("side")

    @d.script("main")
    def main() -> None:
        m.write()
        d.launch("work", writes=[x], stream=side)

    @d.loop("asks")
    def asks() -> None:
        if not side.query():
            m.read()

    return d


@declared(fp.PROVED)
def no_comes_after_the_enqueue_where_streams_meet() -> fp.Design:
    """The same where another stream waits on the device, so that more than captures decides what a query may answer."""
    d = fp.Design("no comes after the enqueue, where streams meet")
    m, x, side, other, word = d.pinned("m"), d.device("x"), d.stream("side"), d.stream("other"), d.device_flag("word")

    @d.script("main")
    def main() -> None:
        m.write()
        d.launch("work", writes=[x], stream=side)
        other.write_value(word, 1)
        other.wait_value(word, 1)

    @d.loop("asks")
    def asks() -> None:
        if not side.query():
            m.read()

    return d


@declared(fp.REFUTED, "WAR m")
def no_of_an_event_that_was_handed_over() -> fp.Design:
    """Who is handed an event may be told "no" of what was recorded before."""
    d = fp.Design("no of an event that was handed over")
    m, side, q = d.pinned("m"), d.stream("side"), d.queue("q", capacity=1, item=fp.EVENT)

    @d.script("main")
    def main() -> None:
        d.launch("use", reads=[m], stream=side)
        done = d.event("done")
        done.record(side)
        q.put(done)

    @d.script("asks")
    def asks() -> None:
        if not q.get().query():
            m.write()

    return d


@declared(fp.REFUTED, "WAR m", environment="one-hardware-queue")
def no_of_an_event_behind_another_stream() -> fp.Design:
    """A record is behind what other streams have put into the hardware queue before (S116)."""
    d = fp.Design("no of an event behind another stream")
    m, one, two, mark = d.pinned("m"), d.stream("one"), d.stream("two"), d.event("mark")

    @d.script("main")
    def main() -> None:
        d.launch("use", reads=[m], stream=two)
        mark.record(one)
        if not mark.query():
            m.write()

    return d


@declared(fp.PROVED)
def no_comes_after_a_wait_on_the_other_stream() -> fp.Design:
    """A stream that waits for another one is busy while that one is."""
    d = fp.Design("no comes after a wait on the other stream")
    m, x, one, two = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x], stream=one)
        m.write()
        two.wait_stream(one)

    @d.loop("asks")
    def asks() -> None:
        if not two.query():
            m.read()

    return d


@declared(fp.PROVED)
def no_comes_after_a_wait_for_the_event() -> fp.Design:
    """The same through an event."""
    d = fp.Design("no comes after a wait for the event")
    m, x, one, two, e = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two"), d.event("e")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x], stream=one)
        e.record(one)
        m.write()
        two.wait_event(e)

    @d.loop("asks")
    def asks() -> None:
        if not two.query():
            m.read()

    return d


def _told_of_a_wait(by_event: bool) -> fp.Design:
    """A stream is busy because it waits: who is told so comes after what the wait is for was called (was UNKNOWN)."""
    d = fp.Design("told of a wait" + (" for an event" if by_event else ""))
    m, x, one, two, e = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two"), d.event("e")

    @d.script("main")
    def main() -> None:
        m.write()
        d.launch("work", writes=[x], stream=one)
        e.record(one)

    @d.script("waits")
    def waits() -> None:
        if by_event:
            two.wait_event(e)
        else:
            two.wait_stream(one)

    @d.loop("asks")
    def asks() -> None:
        if not two.query():
            m.read()

    return d


DESIGNS["told_of_a_wait"] = Declared(lambda: _told_of_a_wait(False), fp.PROVED)


DESIGNS["told_of_a_wait_for_an_event"] = Declared(lambda: _told_of_a_wait(True), fp.PROVED)


@declared(fp.REFUTED, "RAW m")
def no_of_a_waiting_stream() -> fp.Design:
    """A stream with nothing of its own can be busy: it waits for another one's work."""
    d = fp.Design("no of a waiting stream")
    m, x, one, two = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x, m], stream=one)
        two.wait_stream(one)
        if not two.query():
            m.read()

    return d


@declared(fp.REFUTED, "RAW m")
def no_of_a_stream_that_waits_for_an_event() -> fp.Design:
    """The same through an event."""
    d = fp.Design("no of a stream that waits for an event")
    m, x, one, two, e = d.pinned("m"), d.device("x"), d.stream("one"), d.stream("two"), d.event("e")

    @d.script("main")
    def main() -> None:
        d.launch("work", writes=[x, m], stream=one)
        e.record(one)
        two.wait_event(e)
        if not two.query():
            m.read()

    return d


def _known(how: str) -> fp.Design:
    """After a wait for the work no query says "no": what stands there never runs, and no proof says so."""
    d = fp.Design(f"known complete by {how}")
    m, e, side, scratch = d.pinned("m"), d.event("e"), d.stream("side"), d.pageable("scratch")
    other = d.stream("other")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        d.launch("work", writes=[m], stream=side)
        e.record(side)
        if how in ("event", "event, waited for"):
            e.synchronize()
        elif how == "stream":
            side.synchronize()
        elif how == "device":
            d.synchronize()
        elif how == "query":
            if not e.query():
                side.synchronize()
                return
        elif how == "stream query" and not side.query():
            side.synchronize()
            return
        asked = side if how in ("stream", "device", "stream query") else e
        if how == "event, waited for":
            other.wait_event(e)
            asked = other
        if not asked.query():
            scratch.read()
        side.synchronize()

    return d


for _how in ("event", "event, waited for", "stream", "device", "query", "stream query"):
    DESIGNS[f"known complete by {_how}"] = Declared(lambda how=_how: _known(how), fp.UNKNOWN)  # type: ignore[misc]


@declared(fp.UNKNOWN)
def no_is_impossible_on_an_idle_stream() -> fp.Design:
    """A record behind completed work is complete at once: "no" never comes, and what stands there never runs."""
    d = fp.Design("no is impossible on an idle stream")
    m, e, side, scratch = d.pinned("m"), d.event("e"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        d.launch("work", writes=[m], stream=side)
        side.synchronize()
        e.record(side)
        if not e.query():
            scratch.read()
        side.synchronize()

    return d


@declared(fp.UNKNOWN)
def never_recorded_says_yes() -> fp.Design:
    """An event that nobody records says "yes" (S18): what stands behind a "no" never runs."""
    d = fp.Design("never recorded says yes")
    m, e, side, scratch = d.pinned("m"), d.event("e"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        d.launch("work", writes=[m], stream=side)
        if not e.query():
            scratch.read()
        side.synchronize()

    return d


@declared(fp.UNKNOWN)
def waiting_for_a_never_recorded_event() -> fp.Design:
    """A wait for it does nothing, so that the stream stays idle (S18)."""
    d = fp.Design("waiting for a never recorded event")
    m, e, side, scratch = d.pinned("m"), d.event("e"), d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        side.wait_event(e)
        if not side.query():
            scratch.read()
        d.launch("other", writes=[m])

    return d


@declared(fp.UNKNOWN)
def both_say_no() -> fp.Design:
    """Each saw the other's event complete and its own not: impossible together, so the two accesses never meet."""
    d = fp.Design("both say no")
    m, x, one, two = d.pinned("m"), d.device("x", depth=2), d.stream("one"), d.stream("two")
    e, f, also_e, also_f = d.event("e"), d.event("f"), d.event("also e"), d.event("also f")

    @d.setup
    def setup() -> None:
        m.write()
        d.launch("one", writes=[x[0]], stream=one)
        e.record(one)
        also_e.record(one)
        d.launch("two", writes=[x[1]], stream=two)
        f.record(two)
        also_f.record(two)

    @d.script("writer")
    def writer() -> None:
        f.synchronize()
        if not e.query():
            m.write()

    @d.script("reader")
    def reader() -> None:
        also_e.synchronize()
        if not also_f.query():
            m.read()

    return d


@in_the_run("AABB")
def record_behind_a_write_where_one_asks() -> fp.Design:
    """The same where an event is queried."""
    d = fp.Design("record behind a write, where one asks")
    m, e, s = d.pinned("m"), d.event("e"), d.stream("s")

    @d.script("A")
    def first() -> None:
        m.write()
        e.record(s)

    @d.script("B")
    def second() -> None:
        d.launch("use", reads=[m], stream=s)
        if e.query():
            s.synchronize()

    return d


@in_the_run("CAABB")
def wait_behind_a_write_where_one_asks() -> fp.Design:
    """So is a wait for an event (S20)."""
    d = fp.Design("wait behind a write, where one asks")
    m, e, s, other = d.pinned("m"), d.event("e"), d.stream("s"), d.stream("other")

    @d.script("C")
    def third() -> None:
        e.record(other)

    @d.script("A")
    def first() -> None:
        m.write()
        s.wait_event(e)

    @d.script("B")
    def second() -> None:
        d.launch("use", reads=[m], stream=s)
        if e.query():
            s.synchronize()

    return d
