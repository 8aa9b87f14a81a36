"""Small designs of rings, cursors and parts: which accesses share bytes."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared, in_the_run


@declared(fp.PROVED)
def ring_of_two() -> fp.Design:
    """Slot n is guarded by the event of slot n; other slots do not matter."""
    d = fp.Design("ring of two")
    m, g, copied = d.pinned("m", depth=2), d.device("g"), d.event("copied", depth=2)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        copied[n].synchronize()
        m[n].write()
        g.copy_(m[n], non_blocking=True)
        copied[n].record()

    return d


@declared(fp.REFUTED, "WAR m")
def ring_of_three_events() -> fp.Design:
    """A ring of two slots behind one of three events: slot n was last used two steps ago, its event three."""
    d = fp.Design("ring of three events")
    m, g, copied, scratch = d.pinned("m", depth=2), d.device("g"), d.event("copied", depth=3), d.pageable("scratch")

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        scratch.write()
        scratch.read()
        copied[n].synchronize()
        m[n].write()
        g.copy_(m[n], non_blocking=True)
        copied[n].record()

    return d


@declared(fp.PROVED)
def ring_by_cursor() -> fp.Design:
    """Slots that a cursor gives, handed through a queue with their event."""
    d = fp.Design("ring by cursor")
    m, g, at = d.pinned("m", depth=3), d.device("g"), d.cursor("at", 3)
    q = d.queue("q", capacity=2, item=(fp.EVENT, fp.INDEX))

    @d.loop("thread")
    def thread() -> None:
        i = at.advance()
        m[i].write()
        g.copy_(m[i], non_blocking=True)
        copied = d.event("copied")
        copied.record()
        q.put(copied, i)
        if q.full():
            copied, j = q.get()
            copied.synchronize()
            m[j].read()
            m[at.last()].read()

    return d


@declared(fp.REFUTED, "WAR m")
def cursor_of_two_slots() -> fp.Design:
    """Two outstanding copies, two slots, and the wait behind the refill."""
    d = fp.Design("cursor of two slots")
    m, g, at, scratch = d.pinned("m", depth=2), d.device("g"), d.cursor("at", 2), d.pageable("scratch")
    q = d.queue("q", capacity=3, item=(fp.EVENT, fp.INDEX))

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        i = at.advance()
        m[i].write()
        g.copy_(m[i], non_blocking=True)
        copied = d.event("copied")
        copied.record()
        q.put(copied, i)
        if q.full():
            copied, _ = q.get()
            copied.synchronize()

    return d


@declared(fp.PROVED)
def fixed_slot() -> fp.Design:
    """A slot by number does not turn with the others."""
    d = fp.Design("fixed slot")
    m, g = d.pinned("m", depth=2), d.device("g")

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        m[0].write()
        g.copy_(m[0], non_blocking=True)
        m[1].write()
        d.current_stream().synchronize()
        m[n].read()

    return d


@declared(fp.UNKNOWN)
def cursor_of_two_threads() -> fp.Design:
    """Which slot it gives tells of the other thread's moves, and no edge says so: not decided, and said so."""
    d = fp.Design("cursor of two threads")
    s, m, c = d.stream("s", depth=3), d.device("m", depth=3), d.cursor("c", 3)

    @d.loop("copier")
    def copier(n: fp.Turn) -> None:
        m[c.last()].copy_(m[n], stream=s[n])
        c.advance()

    @d.script("kernel")
    def kernel() -> None:
        i = c.advance()
        d.launch("kernel", writes=[m[i]], stream=s[i])

    return d


@declared(fp.REFUTED, "WAR m")
def fixed_slot_and_turn() -> fp.Design:
    """Every second turn writes slot 0, whose copy may not have run."""
    d = fp.Design("fixed slot and turn")
    m, g, e = d.pinned("m", depth=2), d.device("g"), d.event("e")

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        e.synchronize()
        g.copy_(m[0], non_blocking=True)
        e.record()
        m[n].write()

    return d


@declared(fp.PROVED)
def streams_in_turn() -> fp.Design:
    """Two streams in rotation, each with its slot."""
    d = fp.Design("streams in turn")
    m, x, s = d.pinned("m", depth=2), d.device("x", depth=2), d.stream("s", depth=2)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        s[n].synchronize()
        m[n].write()
        x[n].copy_(m[n], non_blocking=True, stream=s[n])
        d.launch("use", reads=[x[n]], stream=s[n])

    return d


@declared(fp.REFUTED, "RAW x", "WAR x", "WAW x")
def streams_in_turn_share() -> fp.Design:
    """One target for both streams."""
    d = fp.Design("streams in turn share")
    m, x, s = d.pinned("m", depth=2), d.device("x"), d.stream("s", depth=2)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        s[n].synchronize()
        m[n].write()
        x.copy_(m[n], non_blocking=True, stream=s[n])

    @d.script("looks")
    def looks() -> None:
        s[0].synchronize()
        d.synchronize()
        x.item()

    return d


@declared(fp.PROVED)
def named_parts() -> fp.Design:
    """Parts of different names are disjoint."""
    d = fp.Design("named parts")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("thread")
    def thread() -> None:
        m["head"].write()
        g.copy_(m["head"], non_blocking=True)
        m["tail"].write()
        m["tail"].read()
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def same_named_part() -> fp.Design:
    """The same part is not."""
    d = fp.Design("same named part")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(m["head"], non_blocking=True)
        m["head"].write()
        m["tail"].write()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def spans() -> fp.Design:
    """Ranges without a common element are disjoint."""
    d = fp.Design("spans")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("thread")
    def thread() -> None:
        m[0:4].write()
        g.copy_(m[0:4], non_blocking=True)
        m[4:8].write()
        m[4:8].read()
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def overlapping_spans() -> fp.Design:
    """Ranges with one are not."""
    d = fp.Design("overlapping spans")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(m[0:4], non_blocking=True)
        m[2:6].write()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def rows_by_index() -> fp.Design:
    """Parts chosen by an index are disjoint iff the indices differ."""
    d = fp.Design("rows by index")
    m, g, at, copied = d.pinned("m"), d.device("g"), d.cursor("at", 2), d.event("copied", depth=2)

    @d.loop("thread")
    def thread() -> None:
        i = at.advance()
        copied[i].synchronize()
        m[i].write()
        g.copy_(m[i], non_blocking=True)
        copied[i].record()

    return d


@declared(fp.REFUTED, "WAR m")
def any_part() -> fp.Design:
    """An unknown part may be any."""
    d = fp.Design("any part")
    m, g, scratch = d.pinned("m"), d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        g.copy_(m["head"], non_blocking=True)
        m[fp.ANY].write()
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "WAR m")
def all_rows() -> fp.Design:
    """A copy of the whole reads every row."""
    d = fp.Design("all rows")
    m, g, at, scratch = d.pinned("m"), d.device("g"), d.cursor("at", 2), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        m[at.advance()].write()
        g.copy_(m, non_blocking=True)

    return d


@declared(fp.PROVED)
def fixed_slot_in_one_turn() -> fp.Design:
    """Slot 0 is copied in turn 1, when the turn's own slot is 1."""
    d = fp.Design("fixed slot in one turn")
    m, g, copied = d.pinned("m", depth=2), d.device("g"), d.stream("copied")

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        if n < 2 and n >= 1:
            g.copy_(m[0], non_blocking=True, stream=copied)
        m[n].write()
        copied.synchronize()

    return d


@in_the_run("AB")
def parts_in_a_run() -> fp.Design:
    """Parts that share no byte are no conflict, in whatever order."""
    d = fp.Design("parts in a run")
    m = d.pinned("m")

    @d.script("A")
    def first() -> None:
        m["head"].write()

    @d.script("B")
    def second() -> None:
        m["tail"].read()

    return d
