"""Starvation and over-waits: each kind in a small design, and its near miss, of which nothing may be told."""

from __future__ import annotations

from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.proofs.liveness.progress import findings
from fencepost.proofs.liveness.search import search

Build = Callable[[fp.Design], None]


def told(build: Build) -> list[str]:
    """What is reported apart, with its sentences; nobody waits for ever."""
    d = fp.Design("test")
    build(d)
    program = d.build()
    found = search(program)
    assert found.hang is None and found.bounded is None
    return list(findings(program))


def names(build: Build) -> list[str]:
    """Kind and object of each."""
    return [one.partition(" - ")[0] for one in told(build)]


# ---------------------------------------------------------------- starvation


def lock(first: str, second: str, semaphore: bool = False) -> Build:
    """Two threads take a lock again and again. In between they do nothing ("at once"), some host work, or take turns."""

    def build(d: fp.Design) -> None:
        guard = d.semaphore("guard", 1) if semaphore else d.lock("guard")
        data, turns = d.pageable("data"), d.queue("turns", capacity=1, item=())

        @d.loop("one")
        def one() -> None:
            with guard:
                data.write()
            if first == "work":
                data.read()
            elif first == "turns":
                turns.put()

        @d.loop("two")
        def two() -> None:
            if second == "turns":
                turns.get()
            with guard:
                data.read()
            if second == "work":
                data.read()

    return build


@pytest.mark.parametrize("semaphore", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "starves"),
    [
        ("at once", "at once", "one"),
        ("at once", "work", "two"),
        ("work", "at once", "one"),
        ("work", "work", None),
        ("turns", "turns", None),
    ],
)
def test_a_lock_is_taken_again_as_soon_as_it_is_free(first: str, second: str, starves: str | None, semaphore: bool) -> None:
    found = told(lock(first, second, semaphore))
    if starves is None:
        assert found == []
        return
    assert len(found) == 1
    other = "two" if starves == "one" else "one"
    assert found[0].startswith(f"starvation guard - {starves} waits for {'semaphore' if semaphore else 'lock'} guard since step ")
    assert f"and can be passed over for ever: {other} takes it again as soon as it is free (" in found[0]


def test_a_lock_that_is_tried_again_and_again() -> None:
    def build(tries: bool) -> Build:
        def made(d: fp.Design) -> None:
            guard, data = d.lock("guard"), d.pageable("data")

            @d.loop("poller")
            def poller() -> None:
                if guard.try_acquire():
                    data.write()
                    guard.release()
                if not tries:
                    data.read()

            @d.loop("waiter")
            def waiter() -> None:
                with guard:
                    data.read()
                data.read()

        return made

    assert names(build(tries=True)) == ["starvation guard"]
    assert names(build(tries=False)) == []


def consumers(work: bool, own: bool = False) -> Build:
    """One producer, two consumers of one queue, or of one each."""

    def build(d: fp.Design) -> None:
        items, data = d.queue("items", capacity=1, item=()), d.pageable("data")
        other = d.queue("other items", capacity=1, item=()) if own else items

        @d.loop("producer")
        def producer() -> None:
            items.put()
            if own:
                other.put()
            if work:
                data.write()

        @d.loop("first")
        def first() -> None:
            items.get()

        @d.loop("second")
        def second() -> None:
            other.get()

    return build


def test_a_consumer_that_gets_no_item() -> None:
    assert names(consumers(work=False)) == ["starvation items"]
    assert names(consumers(work=True)) == ["starvation items"]  # whatever the producer does next, only one gets the item
    assert names(consumers(work=False, own=True)) == []


def test_a_producer_that_finds_no_room() -> None:
    def build(room: int) -> Build:
        def made(d: fp.Design) -> None:
            items = d.queue("items", capacity=1, item=())
            more = d.queue("more", capacity=1, item=()) if room == 2 else items

            @d.loop("reader")
            def reader() -> None:
                items.get()
                if room == 2:
                    more.get()

            @d.loop("first")
            def first() -> None:
                items.put()

            @d.loop("second")
            def second() -> None:
                more.put()

        return made

    assert names(build(1)) == ["starvation items"]
    assert names(build(2)) == []


def pulse(holds: bool) -> Build:
    """A flag is set and cleared again: who waits may never find it set. Or it is cleared when it was seen."""

    def build(d: fp.Design) -> None:
        flag, seen = d.flag("go"), d.queue("seen", capacity=1, item=())

        @d.loop("pulser")
        def pulser() -> None:
            flag.set()
            if holds:
                seen.get()
            flag.clear()

        @d.loop("waiter")
        def waiter() -> None:
            flag.wait()
            if holds:
                seen.put()

    return build


def test_a_flag_that_is_set_for_a_moment() -> None:
    found = told(pulse(holds=False))
    assert len(found) == 1 and found[0].startswith("starvation go - waiter waits for flag go since step 0")
    assert "pulser clears it as soon as it is set" in found[0]
    assert names(pulse(holds=True)) == []


@pytest.mark.parametrize("takers", [1, 2])
def test_a_third_thread_changes_nothing(takers: int) -> None:
    """What others do that has nothing to do with it may come at any time, also only while the token is away."""

    def build(d: fp.Design) -> None:
        rows, data = d.pool("rows", size=1, of="row"), d.pageable("data")
        for number in range(takers):

            @d.loop(f"worker {number}")
            def worker() -> None:
                rows.give(rows.take())

        @d.loop("busy")
        def busy() -> None:
            data.write()

    assert names(build) == (["starvation rows"] if takers > 1 else [])


# ---------------------------------------------------------------- over-waits


def results(way: str, wait: str, answer: bool) -> Build:
    """A worker records one event each step and tells a reader, which waits for the event by its name. `answer`: the worker
    goes on when the reader has waited."""

    def build(d: fp.Design) -> None:
        ids, copy, other, copied = d.device("ids"), d.stream("copy"), d.stream("other"), d.event("copied")
        done, seen = d.queue("done", capacity=1, item=()), d.queue("seen", capacity=1, item=())
        flag, lock, count = d.flag("ready"), d.lock("lock"), d.counter("made")

        @d.loop("worker")
        def worker(n: fp.Turn) -> None:
            if way == "lock":
                lock.acquire()
            d.launch("sample", writes=[ids], stream=copy)
            copied.record(copy)
            if way == "queue":
                done.put()
            elif way == "flag":
                flag.set()
            elif way == "counter":
                count.add()
            elif way == "lock":
                lock.release()
            if answer:
                seen.get()

        @d.loop("reader")
        def reader(n: fp.Turn) -> None:
            if way == "queue":
                done.get()
            elif way == "flag":
                flag.wait()
            elif way == "counter":
                count.wait(1)
            elif way == "lock":
                lock.acquire()
            if wait == "host":
                copied.synchronize()
            else:
                other.wait_event(copied)
            if way == "lock":
                lock.release()
            if answer:
                seen.put()

    return build


def over_waits(build: Build) -> list[str]:
    d = fp.Design("test")
    build(d)
    return [one for one in findings(d.build()) if one.startswith("over-wait ")]


@pytest.mark.parametrize("wait", ["host", "stream"])
@pytest.mark.parametrize(
    ("way", "answer", "too_long"),
    [
        ("queue", False, True),
        ("queue", True, False),  # it is not recorded again before the reader has waited
        ("flag", False, True),
        ("flag", True, True),  # the flag stays set, and the reader does not wait for it anew
        ("counter", False, True),
        ("lock", False, False),  # the reader waits while it has the lock, and so for the record that it knows of
        ("nothing", False, False),  # it means whatever is recorded latest
    ],
)
def test_a_wait_by_name_covers_what_was_recorded_since(wait: str, way: str, answer: bool, too_long: bool) -> None:
    found = over_waits(results(way, wait, answer))
    assert [one.partition(" - ")[0] for one in found] == (["over-wait copied"] if too_long else [])
    if too_long:
        who = "reader" if wait == "host" else "stream other"
        assert f"- {who} waits for copied (" in found[0] and "recorded again since reader was told" in found[0]


@pytest.mark.parametrize("fresh", [True, False])
def test_a_stream_that_waits_through_a_handle(fresh: bool) -> None:
    """As a host: the wait is bound to the latest record at the call (S20)."""

    def build(d: fp.Design) -> None:
        ids, copy, other, shared = d.device("ids"), d.stream("copy"), d.stream("other"), d.event("copied")
        done = d.queue("done", capacity=1, item=(fp.EVENT,))

        @d.loop("worker")
        def worker() -> None:
            d.launch("sample", writes=[ids], stream=copy)
            copied = d.event("fresh") if fresh else shared
            copied.record(copy)
            done.put(copied)

        @d.loop("reader")
        def reader() -> None:
            other.wait_event(done.get())

    found = over_waits(build)
    assert [one.partition(" - ")[0] for one in found] == ([] if fresh else ["over-wait copied"])
    if found:
        assert "stream other waits for copied" in found[0] and "since its handle was given" in found[0]
