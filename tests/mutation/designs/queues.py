"""Small designs of queues between host threads: put, get, tags, room."""

from __future__ import annotations

import fencepost as fp
from fencepost.model import program as p

from mutation.declared import DESIGNS, Declared, declared
from program_writer import Tree, Writer, r, w


@declared(fp.PROVED)
def tag_is_seen() -> fp.Design:
    """The tag of the oldest item tells of its put, before the get."""
    d = fp.Design("tag is seen")
    m = d.pinned("m")
    q, back = d.queue("q", capacity=1, item={"a": (), "b": ()}), d.queue("back", capacity=1, item=())

    @d.loop("writer")
    def writer() -> None:
        m.write()
        if d.choose("kind", ["a", "b"]) == "a":
            q.put("a")
        else:
            q.put("b")
        back.get()

    @d.loop("reader")
    def reader() -> None:
        q.get()
        m.read()
        back.put()

    return d


@declared(fp.PROVED)
def slots_behind_a_queue() -> fp.Design:
    """A ring of 3 behind a queue of 1: the put waits for room, and get i -> put i + 1, get i -> get i + 1."""
    d = fp.Design("slots behind a queue")
    m = d.pinned("m", depth=3)
    q = d.queue("q", capacity=1, item=fp.MEMORY)

    @d.loop("producer")
    def producer(n: fp.Turn) -> None:
        m[n].write()
        q.put(m[n])

    @d.loop("consumer")
    def consumer() -> None:
        q.get().read()

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def too_few_slots_behind_a_queue() -> fp.Design:
    """A ring of 2 there."""
    d = fp.Design("too few slots behind a queue")
    m, scratch = d.pinned("m", depth=2), d.pageable("scratch")
    q = d.queue("q", capacity=1, item=fp.MEMORY)

    @d.loop("producer")
    def producer(n: fp.Turn) -> None:
        scratch.write()
        scratch.read()
        m[n].write()
        q.put(m[n])

    @d.loop("consumer")
    def consumer() -> None:
        q.get().read()

    return d


@declared(fp.PROVED)
def second_item() -> fp.Design:
    """Who gets the second item comes after the get of the first."""
    d = fp.Design("second item")
    x, y, q = d.pinned("x"), d.pinned("y"), d.queue("q", capacity=2, item=fp.MEMORY)

    @d.setup
    def setup() -> None:
        x.write()

    @d.script("puts")
    def puts() -> None:
        q.put(x)
        q.put(y)

    @d.script("first")
    def first() -> None:
        y.write()
        q.get()

    @d.script("second")
    def second() -> None:
        q.get().read()

    return d


@declared(fp.PROVED)
def queue_is_emptied() -> fp.Design:
    """Seeing a queue empty that setup filled comes after the get."""
    d = fp.Design("queue is emptied")
    m, q = d.pinned("m"), d.queue("q", capacity=1, item=())

    @d.setup
    def setup() -> None:
        q.put()

    @d.script("writer")
    def writer() -> None:
        m.write()
        q.get()

    @d.loop("reader")
    def reader() -> None:
        if q.empty():
            m.read()

    return d


def _tag_tells(second: bool) -> p.Program:
    """Between the tag's test and the get a buffer is read (written as data: the language gets at once)."""
    x = Writer()
    m = p.Obj(x.add(p.Memory("m", "pinned")))
    q = x.add(p.Queue("q", 2, (("a", ()), ("b", ()))))
    puts, first, look = x.thread("script"), x.thread("script"), x.thread("script")
    write, read = p.Host("write", (w(m),)), p.Host("read", (r(m),))
    tell: Tree = [(p.QueueTag(q), {"a": [p.Get(q, "a", ())], "b": [read, p.Get(q, "b", ())]})]
    if second:
        puts.body = [p.Put(q, "a", ()), p.Put(q, "b", ())]
        first.body = [write, p.Get(q, "a", ())]
    else:
        puts.body = [write, p.Put(q, "b", ())]
        first.body = [p.Put(q, "a", ())]
    look.body = tell
    return x.program("tag tells")


DESIGNS["tag_tells_of_the_put"] = Declared(lambda: _tag_tells(False), fp.PROVED)


DESIGNS["tag_tells_of_the_get_before"] = Declared(lambda: _tag_tells(True), fp.PROVED)


@declared(fp.REFUTED, "RAW x", "WAR x")
def one_of_two_puts_is_seen() -> fp.Design:
    """Another thread may look between two puts: then there is one item, and not two."""
    d = fp.Design("one of two puts is seen")
    x, q = d.pinned("x"), d.queue("q", capacity=2, item=())

    @d.script("puts")
    def puts() -> None:
        q.put()
        q.put()

    @d.script("writes")
    def writes() -> None:
        x.write()

    @d.script("looks")
    def looks() -> None:
        if q.holds(1) and not q.holds(2):
            x.read()

    return d
