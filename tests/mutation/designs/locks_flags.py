"""Small designs of locks, flags, counters, setups, turns and choices; and of each test beside the wait."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import DESIGNS, Declared, declared, in_the_run


def _meeting(name: str, verdict: str, before: bool) -> None:
    """Enter a design in which one thread writes and another reads after having seen what the first did."""

    def build() -> fp.Design:
        d = fp.Design(f"{name}, written {'before' if before else 'after'}")
        m, scratch = d.pinned("m"), d.pageable("scratch")
        q = d.queue("q", capacity=1, item=())
        tagged = d.queue("tagged", capacity=1, item={"a": (), "b": ()})
        cell, flag, counter, lock = d.cell("cell", item=()), d.flag("flag"), d.counter("counter"), d.lock("lock")

        def call() -> None:
            if name in ("get", "full", "holds"):
                q.put()
            elif name == "tag":
                tagged.put("a")
            elif name in ("cell empty", "cell take"):
                cell.set()
            elif name in ("flag wait", "flag is set"):
                flag.set()
            elif name in ("counter wait", "counter at least"):
                counter.add()
            else:
                lock.acquire()

        @d.script("writer")
        def writer() -> None:
            scratch.write()
            scratch.read()
            if before:
                m.write()
            call()
            if not before:
                m.write()

        @d.script("reader")
        def reader() -> None:
            if name == "get":
                q.get()
            elif name == "tag":
                tagged.get()
            elif name == "flag wait":
                flag.wait()
            elif name == "counter wait":
                counter.wait(1)
            elif name == "cell take":
                if cell.empty():
                    return
                cell.take()
            elif name == "full":
                if not q.full():
                    return
            elif name == "holds":
                if not q.holds(1):
                    return
            elif name == "cell empty":
                if cell.empty():
                    return
            elif name == "flag is set":
                if not flag.is_set():
                    return
            elif name == "counter at least":
                if not counter >= 1:
                    return
            elif lock.try_acquire():
                return
            m.read()

        return d

    hazards = () if verdict == fp.PROVED else ("RAW m", "WAR m")
    DESIGNS[f"{name}, written {'before' if before else 'after'}"] = Declared(build, verdict, hazards)


for _name in ("get", "full", "holds", "cell empty", "cell take", "flag wait", "flag is set", "counter wait",
              "counter at least", "try lock"):  # fmt: skip
    _meeting(_name, fp.PROVED, True)
    _meeting(_name, fp.REFUTED, False)


@in_the_run("AABB")
def clear_behind_a_flag_set() -> fp.Design:
    """A clear comes after the stores before it."""
    d = fp.Design("clear behind a flag set")
    m, flag = d.pinned("m"), d.flag("flag")

    @d.script("A")
    def first() -> None:
        m.write()
        flag.set()

    @d.script("B")
    def second() -> None:
        flag.clear()
        m.read()

    return d


@declared(fp.PROVED)
def locked() -> fp.Design:
    """A lock excludes and orders: unlock -> acquire."""
    d = fp.Design("locked")
    m, lock = d.pinned("m"), d.lock("lock")

    @d.loop("writer")
    def writer() -> None:
        with lock:
            m.write()

    @d.loop("reader")
    def reader() -> None:
        with lock:
            m.read()

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def two_may_enter() -> fp.Design:
    """A semaphore of 2 lets both in."""
    d = fp.Design("two may enter")
    m, room, scratch = d.pinned("m"), d.semaphore("room", 2), d.pageable("scratch")

    @d.loop("writer")
    def writer() -> None:
        scratch.write()
        scratch.read()
        room.acquire()
        m.write()
        room.release()

    @d.loop("reader")
    def reader() -> None:
        room.acquire()
        m.read()
        room.release()

    return d


@declared(fp.PROVED)
def try_lock_takes() -> fp.Design:
    """A try-lock that says yes holds the lock, and comes after the unlocks."""
    d = fp.Design("try lock takes")
    m, lock = d.pinned("m"), d.lock("lock")

    @d.loop("writer")
    def writer() -> None:
        if lock.try_acquire():
            m.write()
            lock.release()

    @d.loop("reader")
    def reader() -> None:
        with lock:
            m.read()

    return d


@declared(fp.PROVED)
def flag_is_cleared() -> fp.Design:
    """Reading "unset" of a flag that setup had set comes after the clear."""
    d = fp.Design("flag is cleared")
    m, flag = d.pinned("m"), d.flag("flag")

    @d.setup
    def setup() -> None:
        flag.set()

    @d.script("writer")
    def writer() -> None:
        m.write()
        flag.clear()

    @d.loop("reader")
    def reader() -> None:
        if not flag.is_set():
            m.read()

    return d


@declared(fp.PROVED)
def flag_there_and_back() -> fp.Design:
    """Set, wait and clear hand a buffer back and forth: the clear comes after the set."""
    d = fp.Design("flag there and back")
    m, full, free = d.pinned("m"), d.flag("full"), d.flag("free")

    @d.setup
    def setup() -> None:
        free.set()

    @d.loop("writer")
    def writer() -> None:
        free.wait()
        free.clear()
        m.write()
        full.set()

    @d.loop("reader")
    def reader() -> None:
        full.wait()
        full.clear()
        m.read()
        free.set()

    return d


@declared(fp.PROVED)
def clear_comes_after_the_set() -> fp.Design:
    """A clear stores after every earlier store, so the thread that clears knows of them."""
    d = fp.Design("clear comes after the set")
    m, flag = d.pinned("m"), d.flag("flag")

    @d.script("writer")
    def writer() -> None:
        m.write()
        flag.set()

    @d.script("reader")
    def reader() -> None:
        if flag.is_set():
            m.read()
        flag.clear()

    return d


@declared(fp.PROVED)
def counter_per_turn() -> fp.Design:
    """The reader's turn n waits for n + 1 adds, and the writer for n reads."""
    d = fp.Design("counter per turn")
    m, written, read = d.pinned("m"), d.counter("written"), d.counter("read")

    @d.loop("writer")
    def writer(n: fp.Turn) -> None:
        read.wait(n)
        m.write()
        written.add()

    @d.loop("reader")
    def reader(n: fp.Turn) -> None:
        written.wait(n + 1)
        m.read()
        read.add()

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def counter_one_short() -> fp.Design:
    """The writer waits for one read less."""
    d = fp.Design("counter one short")
    m, written, read, scratch = d.pinned("m"), d.counter("written"), d.counter("read"), d.pageable("scratch")

    @d.loop("writer")
    def writer(n: fp.Turn) -> None:
        scratch.write()
        scratch.read()
        read.wait(n - 1)
        m.write()
        written.add()

    @d.loop("reader")
    def reader(n: fp.Turn) -> None:
        written.wait(n + 1)
        m.read()
        read.add()

    return d


@declared(fp.PROVED)
def setup_comes_first() -> fp.Design:
    """What setup did comes before every thread."""
    d = fp.Design("setup comes first")
    m = d.pinned("m")

    @d.setup
    def setup() -> None:
        m.write()

    @d.loop("thread")
    def thread() -> None:
        m.read()

    return d


@declared(fp.PROVED)
def first_turn() -> fp.Design:
    """`n < c` follows the turn: only the first turn writes, before a queue hands over for ever after."""
    d = fp.Design("first turn")
    m, q = d.pinned("m"), d.queue("q", capacity=1, item=())

    @d.loop("writer")
    def writer(n: fp.Turn) -> None:
        if n == 0:
            m.write()
        q.put()

    @d.loop("reader")
    def reader() -> None:
        q.get()
        m.read()

    return d


@declared(fp.PROVED)
def agreed_choice() -> fp.Design:
    """Both threads get one answer per turn: when one writes, the other does not read."""
    d = fp.Design("agreed choice")
    m, there, back = d.pinned("m"), d.queue("there", capacity=1, item=()), d.queue("back", capacity=1, item=())

    @d.loop("writer")
    def writer() -> None:
        if d.choose("kind", ["write", "read"], agreed=True) == "write":
            m.write()
        there.put()
        back.get()

    @d.loop("reader")
    def reader() -> None:
        if d.choose("kind", ["write", "read"], agreed=True) == "read":
            m.read()
        back.put()
        there.get()

    return d


@declared(fp.REFUTED, "RAW m", "WAR m")
def open_choice() -> fp.Design:
    """Choices that are not agreed fall apart."""
    d = fp.Design("open choice")
    m, there, back = d.pinned("m"), d.queue("there", capacity=1, item=()), d.queue("back", capacity=1, item=())

    @d.loop("writer")
    def writer() -> None:
        if d.choose("my kind", ["write", "read"]) == "write":
            m.write()
        there.put()
        back.get()

    @d.loop("reader")
    def reader() -> None:
        with d.maybe("my block"):
            m.read()
        back.put()
        there.get()

    return d
