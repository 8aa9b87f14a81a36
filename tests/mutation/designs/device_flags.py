"""Small designs of device flags: stores, waits and resets, of streams and of hosts."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared, in_the_run


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
