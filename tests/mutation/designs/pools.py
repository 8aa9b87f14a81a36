"""Small designs of pools: tokens, rows, and what comes back behind an event."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.PROVED)
def pool_as_a_lock() -> fp.Design:
    """One row: who takes it comes after the last give."""
    d = fp.Design("pool as a lock")
    m, rows = d.pinned("m"), d.pool("rows", size=1, of="row")

    @d.loop("writer")
    def writer() -> None:
        row = rows.take()
        m.write()
        rows.give(row)

    @d.loop("reader")
    def reader() -> None:
        row = rows.take()
        m.read()
        rows.give(row)

    return d


@declared(fp.PROVED)
def one_row() -> fp.Design:
    """With one row there is no other that lets somebody else in."""
    d = fp.Design("one row")
    table, rows = d.pinned("table"), d.pool("rows", size=1, of="row")

    @d.loop("writer")
    def writer() -> None:
        row = rows.take()
        table.write()
        rows.give(row)

    @d.loop("reader")
    def reader() -> None:
        row = rows.take()
        table[row].read()
        rows.give(row)

    return d


@declared(fp.PROVED)
def rows_come_back() -> fp.Design:
    """A row is taken again only after its give: the host waited for the kernel."""
    d = fp.Design("rows come back")
    table, rows = d.pinned("table"), d.pool("rows", size=2, of="row")
    q = d.queue("q", capacity=2, item=(fp.EVENT, fp.HANDLE))

    @d.loop("thread")
    def thread() -> None:
        row = rows.take()
        table[row].write()
        d.launch("gather", reads=[table[row]])
        done = d.event("done")
        done.record()
        q.put(done, row)

    @d.loop("finisher")
    def finisher() -> None:
        done, row = q.get()
        done.synchronize()
        rows.give(row)

    return d


@declared(fp.PROVED)
def rows_come_back_behind_an_event() -> fp.Design:
    """`give(after=event)`: the take waits for the captured work."""
    d = fp.Design("rows come back behind an event")
    table, rows = d.pinned("table"), d.pool("rows", size=2, of="row")

    @d.loop("thread")
    def thread() -> None:
        row = rows.take()
        table[row].write()
        d.launch("gather", reads=[table[row]])
        done = d.event("done")
        done.record()
        rows.give(row, after=done)

    return d


@declared(fp.REFUTED, "WAR table")
def rows_come_back_too_early() -> fp.Design:
    """A give that waits for nothing."""
    d = fp.Design("rows come back too early")
    table, rows, scratch = d.pinned("table"), d.pool("rows", size=2, of="row"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        row = rows.take()
        table[row].write()
        d.launch("gather", reads=[table[row]])
        rows.give(row)

    return d


@declared(fp.PROVED)
def pages_are_exclusive() -> fp.Design:
    """A page has one holder at a time; with one page the second taker waits for the give."""
    d = fp.Design("pages are exclusive")
    pages = d.pool("pages", size=1, of="pinned")

    @d.loop("one")
    def one() -> None:
        page = pages.take()
        page.write()
        page.read()
        pages.give(page)

    @d.loop("two")
    def two() -> None:
        page = pages.take("other")
        page.write()
        page.read()
        pages.give(page)

    return d


@declared(fp.REFUTED, "RAW p", "WAR p", "WAW p")
def token_used_after_it_was_given_back() -> fp.Design:
    """Its next taker has it already."""
    d = fp.Design("token used after it was given back")
    p = d.pool("p", size=1, of="pinned")

    @d.loop("late")
    def late() -> None:
        x = p.take()
        p.give(x)
        x.write()

    @d.loop("next")
    def next_() -> None:
        x = p.take()
        x.write()
        x.read()
        p.give(x)

    return d


@declared("design error")
def token_given_back_twice() -> fp.Design:
    """By who took it and by who got it from there."""
    d = fp.Design("token given back twice")
    p = d.pool("p", size=1, of="pinned")
    q = d.queue("q", capacity=1, item=(fp.MEMORY,))

    @d.loop("one")
    def one() -> None:
        x = p.take()
        x.write()
        q.put(x)
        p.give(x)

    @d.loop("other")
    def other() -> None:
        x = q.get()
        x.read()
        p.give(x)

    return d
