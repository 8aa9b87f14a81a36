"""Small designs of values: same bytes, reads of undefined bytes, hazards that change none."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.PROVED)
@declared(fp.REFUTED, "WAR m", strict=True)
def same_bytes_again() -> fp.Design:
    """A write of the same bytes in the same epoch changes nothing that a late copy reads."""
    d = fp.Design("same bytes again")
    m, g = d.pinned("m"), d.device("g")

    @d.script("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        m.write(same_bytes=True)

    return d


@declared(fp.REFUTED, "WAR m")
def other_bytes_between() -> fp.Design:
    """Another content in between ends the epoch."""
    d = fp.Design("other bytes between")
    m, g = d.pinned("m"), d.device("g")

    @d.script("thread")
    def thread() -> None:
        m.write()
        g.copy_(m, non_blocking=True)
        with d.maybe("other bytes"):
            d.launch("rewrite", writes=[m])
        m.write(same_bytes=True)

    return d


@declared(fp.PROVED)
@declared(fp.REFUTED, "WAW x", strict=True)
def nobody_reads() -> fp.Design:
    """Two late writes that nobody reads: access-level only, a note, and refuted with --strict."""
    d = fp.Design("nobody reads")
    x, side = d.device("x"), d.stream("side")

    @d.script("thread")
    def thread() -> None:
        d.launch("one", writes=[x])
        d.launch("two", writes=[x], stream=side)

    return d


@declared(fp.REFUTED, "UNDEFINED t")
def read_before_it_is_written() -> fp.Design:
    """A fresh block holds nothing."""
    d = fp.Design("read before it is written")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t.read()
        t.write()

    return d


@declared(fp.REFUTED, "UNDEFINED t")
def written_elsewhere() -> fp.Design:
    """Writing one part defines that part."""
    d = fp.Design("written elsewhere")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t["head"].write()
        t["tail"].read()

    return d


@declared(fp.REFUTED, "UNDEFINED t")
def view_of_a_part() -> fp.Design:
    """Writing through a view of one part defines that part only."""
    d = fp.Design("view of a part")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        v = t["head"].view("v")
        v.write()
        t["tail"].read()

    return d


@declared(fp.PROVED)
def unknown_part_read() -> fp.Design:
    """A read of an unknown part may be of what was written."""
    d = fp.Design("unknown part read")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t["head"].write()
        t[fp.ANY].read()
        t["tail"].write()

    return d


@declared(fp.PROVED)
def unknown_part_written() -> fp.Design:
    """Writing an unknown part may have written what is read."""
    d = fp.Design("unknown part written")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t[fp.ANY].write()
        t.read()

    return d
