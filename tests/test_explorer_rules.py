"""One small design per rule of happens-before that a proof needs, and per disagreement that random programs found.

Each is written as program data, so that only the explorer and the concrete replay stand between it and its verdict.
"""

from __future__ import annotations

import random

import pytest
from fencepost.model import program as p

from program_writer import Tree, Writer, r, w
from random_oracle import decide, find_bad_run

ITEM: tuple[tuple[str, tuple[str, ...]], ...] = (("", (p.EVENT,)),)


def design(objects: list[p.Object], *bodies: tuple[str, list[p.LocalInfo], Tree]) -> p.Program:
    """A program of the objects, numbered from 0, and (kind, locals, body) threads."""
    x = Writer()
    x.objects = list(objects)
    for kind, locals_, body in bodies:
        thread = x.thread(kind)
        thread.locals = locals_
        thread.body = body
    return x.program("rule")


def verdict(program: p.Program) -> str:
    """The explorer's verdict; a proof must also survive random runs, and a refutation is replayed by construction."""
    found = decide(program, 20000, 30.0)
    if found.word == "proved":
        assert find_bad_run(program, random.Random(0), 60, 40) is None
    assert found.word in ("proved", "refuted"), found.reason
    return found.word


E = lambda name: p.LocalInfo(name, p.EVENT)  # noqa: E731
M = p.Memory("m", "pinned")
m = p.Obj(0)
WRITE, READ = p.Host("write", (w(m),)), p.Host("read", (r(m),))
S = p.Stream("s")


def kernel(stream: int, *accesses: p.Access) -> p.Launch:
    """A kernel on the stream with that object number."""
    return p.Launch("kernel", p.Obj(stream), accesses)


# ---------------------------------------------------------------- edges that a proof needs


@pytest.mark.parametrize(("depth", "expected"), [(1, "refuted"), (2, "refuted"), (3, "proved"), (4, "proved")])
def test_get_to_put(depth: int, expected: str) -> None:
    """A ring behind a queue of capacity 1: the put waits for room, and get i -> put i + 1 orders slot n - 3 before n.

    The consumer reads the slot of item i until it takes item i + 1; when put i + 2 returns, it has taken item i + 1.
    """
    objects: list[p.Object] = [p.Memory("m", "pinned", depth), p.Queue("q", 1, (("", (p.MEMORY,)),))]
    slot = p.Slot(0, p.Turn(0))
    producer: Tree = [p.Host("write", (w(slot),)), p.Put(1, "", (slot,))]
    consumer: Tree = [p.Get(1, "", (0,)), p.Host("read", (r(p.Local(0)),))]
    assert verdict(design(objects, ("loop", [], producer), ("loop", [p.LocalInfo("got", p.MEMORY)], consumer))) == expected


def test_get_to_next_get() -> None:
    """The second get comes after the first one, whoever makes it: the first getter's write is seen by the second."""
    objects: list[p.Object] = [M, p.Queue("q", 2, (("a", ()), ("b", ())))]
    first: Tree = [WRITE, p.Get(1, "a", ())]
    second: Tree = [p.Get(1, "b", ()), READ]
    puts: Tree = [p.Put(1, "a", ()), p.Put(1, "b", ())]
    threads = [("script", [], puts), ("script", [], first), ("script", [], second)]
    assert verdict(design(objects, *threads)) == "proved"
    late: Tree = [p.Get(1, "a", ()), WRITE]
    assert verdict(design(objects, threads[0], ("script", [], late), threads[2])) == "refuted"


TESTS: dict[str, tuple[p.Object, p.Operation, p.Question, str]] = {
    "full": (p.Queue("q", 1, (("", ()),)), p.Put(1, "", ()), p.QueueFull(1), "yes"),
    "holds": (p.Queue("q", 2, (("", ()),)), p.Put(1, "", ()), p.QueueHolds(1, 1), "yes"),
    "cell": (p.Cell("c", ()), p.CellSet(p.Obj(1), ()), p.CellEmpty(p.Obj(1)), "no"),
    "flag": (p.Flag("f"), p.FlagSet(1), p.FlagIsSet(1), "yes"),
    "counter": (p.Counter("k"), p.CounterAdd(1), p.CounterAtLeast(1, 1), "yes"),
    "try lock": (p.Lock("l"), p.Acquire(1), p.TryLock(1), "no"),
}


@pytest.mark.parametrize("name", TESTS)
def test_a_test_comes_after_what_it_sees(name: str) -> None:
    """The answer that tells of the other thread's call tells of what that thread did before; after, it tells nothing."""
    found, change, question, answer = TESTS[name]
    tells: Tree = [(question, {answer: [READ], {"yes": "no", "no": "yes"}[answer]: []})]
    for change_last, expected in ((True, "proved"), (False, "refuted")):
        body: Tree = [WRITE, change] if change_last else [change, WRITE]
        assert verdict(design([M, found], ("script", [], body), ("script", [], tells))) == expected


def test_flag_that_was_cleared() -> None:
    """Reading "unset" of a flag that setup had set comes after the clear."""
    objects: list[p.Object] = [M, p.Flag("f")]
    look: Tree = [(p.FlagIsSet(1), {"no": [READ], "yes": []})]
    for body, expected in (([WRITE, p.FlagClear(1)], "proved"), ([p.FlagClear(1), WRITE], "refuted")):
        threads = [("setup", [], [p.FlagSet(1)]), ("script", [], body), ("loop", [], look)]
        assert verdict(design(objects, *threads)) == expected  # type: ignore[arg-type]


def test_query_that_says_no() -> None:
    """A "no" comes after the record call: a never recorded event says "yes" (S18). It was missing from the explorer."""
    objects: list[p.Object] = [M, S, p.Event("e"), p.Memory("d", "device")]
    busy = kernel(1, w(p.Obj(3)))
    ask: Tree = [(p.EventQuery(p.Obj(2)), {"no": [READ], "yes": []})]
    for body, expected in (
        ([WRITE, busy, p.Record(p.Obj(2), p.Obj(1))], "proved"),
        ([busy, p.Record(p.Obj(2), p.Obj(1)), WRITE], "refuted"),
    ):
        assert verdict(design(objects, ("script", [], body), ("loop", [], ask))) == expected  # type: ignore[arg-type]


def test_stream_query_that_says_no() -> None:
    """As for an event: an idle stream says "yes", so "no" comes after an enqueue call. It was missing."""
    objects: list[p.Object] = [M, S, p.Memory("d", "device")]
    busy = kernel(1, w(p.Obj(2)))
    ask: Tree = [(p.StreamQuery(p.Obj(1)), {"no": [READ], "yes": []})]
    assert verdict(design(objects, ("script", [], [WRITE, busy]), ("loop", [], ask))) == "proved"
    assert verdict(design(objects, ("script", [], [busy, WRITE]), ("loop", [], ask))) == "refuted"


def test_query_of_completed_work() -> None:
    """After a synchronize on the event a query cannot say "no": what stands there never runs."""
    objects: list[p.Object] = [p.Memory("m", "pinned"), S, p.Event("e")]
    write = kernel(1, w(m))
    after: Tree = [(p.EventQuery(p.Obj(2)), {"no": [kernel(1, r(m)), p.StreamSync(p.Obj(1))], "yes": []})]
    body: Tree = [write, p.Record(p.Obj(2), p.Obj(1)), p.EventSync(p.Obj(2)), *after]
    assert verdict(design(objects, ("loop", [], body))) == "proved"


def test_record_forgets_the_earlier_capture() -> None:
    """An event recorded again on another stream no longer tells of the first one (S19)."""
    objects: list[p.Object] = [M, S, p.Event("e"), p.Stream("other")]
    again = p.Record(p.Obj(2), p.Obj(3))
    for extra, expected in (([], "proved"), ([again], "refuted")):
        body: Tree = [WRITE, kernel(1, r(m)), p.Record(p.Obj(2), p.Obj(1)), *extra, p.EventSync(p.Obj(2))]
        assert verdict(design(objects, ("loop", [], body))) == expected


# ---------------------------------------------------------------- disagreements, each once wrong or unknown


def test_queue_not_full_is_explored() -> None:
    """Was proved: the queue began with dummies though the "no" branch of `full` does something of its own."""
    objects: list[p.Object] = [M, S, p.Queue("q", 2, ITEM)]
    body: Tree = [kernel(1, w(m)), p.NewEvent(0), p.Record(p.Local(0), p.Obj(1)), p.Put(2, "", (p.Local(0),))]
    body.append((p.QueueFull(2), {"yes": [p.Get(2, "", (1,)), p.EventSync(p.Local(1))], "no": [READ]}))
    assert verdict(design(objects, ("loop", [E("e"), E("got")], body))) == "refuted"


def test_tag_that_nobody_uses() -> None:
    """Was proved: dummies got the first declared tag, which no get takes, so that nothing ever moved."""
    objects: list[p.Object] = [M, S, p.Queue("q", 2, (("a", ()), ("b", (p.EVENT,))))]
    body: Tree = [WRITE, kernel(1, r(m)), p.NewEvent(0), p.Record(p.Local(0), p.Obj(1)), p.Put(2, "b", (p.Local(0),))]
    body.append((p.QueueFull(2), {"yes": [p.Get(2, "b", (1,)), p.EventSync(p.Local(1))], "no": []}))
    assert verdict(design(objects, ("loop", [E("e"), E("got")], body))) == "refuted"


@pytest.mark.parametrize(("wait", "expected"), [(True, "proved"), (False, "refuted")])
def test_scope_ends_with_the_turn(wait: bool, expected: str) -> None:
    """Was proved: a block whose local is never dropped stayed allocated, so nothing could reuse it."""
    objects: list[p.Object] = [p.Stream("main"), p.Stream("side")]
    t = p.Local(0)
    body: Tree = [p.Alloc(0, "device", p.Obj(0)), kernel(0, w(t)), p.WaitStream(p.Obj(1), p.Obj(0)), kernel(1, r(t))]
    body += [p.WaitStream(p.Obj(0), p.Obj(1))] if wait else []
    assert verdict(design(objects, ("loop", [p.LocalInfo("t", p.MEMORY)], body))) == expected


def test_setup_alone() -> None:
    """Was proved: with no thread after the setup, every witness counted as known to all threads."""
    assert verdict(design([M, S], ("setup", [], [kernel(1, w(m)), READ]))) == "refuted"


def test_setups_run_side_by_side() -> None:
    """A setup may wait for another one, whichever is written first (the explorer ran them one after the other)."""
    objects: list[p.Object] = [M, p.Flag("f"), S]
    waits, sets = ("setup", [], [p.FlagWait(1)]), ("setup", [], [p.FlagSet(1)])
    racy: tuple[str, list[p.LocalInfo], Tree] = ("loop", [], [WRITE, kernel(2, r(m))])
    assert verdict(design(objects, waits, sets, racy)) == "refuted"


def test_every_setup_comes_before_the_threads() -> None:
    """Was unknown: only the setup that ended last handed on what it knew."""
    assert verdict(design([M], ("setup", [], [WRITE]), ("setup", [], []), ("loop", [], [READ]))) == "proved"


def test_own_write_ends_the_epoch() -> None:
    """Was proved: a kernel reads, then writes; a repetition of *its* bytes is no repetition of what it read."""
    objects: list[p.Object] = [p.Memory("m", "device"), S, p.Stream("other")]
    body: Tree = [kernel(1, r(m), w(m)), kernel(2, w(m, same_bytes=True))]
    assert verdict(design(objects, ("script", [], body))) == "refuted"


def test_view_of_a_part_defines_that_part_only() -> None:
    """Was proved: writing through a view of one part made all of the block count as written."""
    t, view = p.Local(0, p.Named("read")), p.Local(1)
    body: Tree = [p.Alloc(0, "device", p.Obj(0)), p.View(1, p.Local(0, p.Named("written"))), kernel(0, w(view)), kernel(0, r(t))]
    locals_ = [p.LocalInfo("t", p.MEMORY), p.LocalInfo("view", p.MEMORY)]
    assert verdict(design([S], ("loop", locals_, [*body, p.Drop(1), p.Drop(0)]))) == "refuted"


def test_parts_by_index_in_a_ring() -> None:
    """A state has one position: a ring's slot takes it, parts by index then overlap. It compared unlike positions."""
    objects: list[p.Object] = [p.Memory("m", "pinned", 2), S, p.Cursor("c", 3)]
    there = p.Slot(0, p.Turn(0), p.At(p.Var(0)))
    body: Tree = [p.Advance(2, 0), p.Host("write", (w(there),)), kernel(1, r(there))]
    found = decide(design(objects, ("loop", [p.LocalInfo("i", p.INDEX, depth=3)], body)))
    assert found.word != "proved"


def test_every_reference_ends_before_the_free() -> None:
    """Was unknown: the block is free when both threads let go, and the free comes after both."""
    objects: list[p.Object] = [p.Queue("q", 1, (("", (p.MEMORY,)),))]
    t = p.Local(0)
    a: Tree = [p.Alloc(0, "pinned"), p.Host("write", (w(t),)), p.Put(0, "", (t,)), p.Host("read", (r(t),)), p.Drop(0)]
    b: Tree = [p.Get(0, "", (0,)), p.Host("look", (r(t),)), p.Drop(0)]
    locals_ = [p.LocalInfo("t", p.MEMORY)]
    assert verdict(design(objects, ("loop", locals_, a), ("loop", locals_, b))) == "proved"


def test_agreed_choice_of_a_script() -> None:
    """Was out of budget: a finished thread's turns were still subtracted, so that the others' grew for ever."""
    objects: list[p.Object] = [M]
    ask = lambda body: [(p.Choose("kind", ("x", "y"), True), {"x": body, "y": []})]  # noqa: E731
    assert verdict(design(objects, ("script", [], ask([])), ("loop", [], ask([WRITE, READ])))) == "proved"


def test_index_of_a_cursor_that_another_thread_moves() -> None:
    """Which slot it is tells of the other thread's moves, and no edge says so: not decided, and said so (was refuted)."""
    objects: list[p.Object] = [p.Memory("m", "pinned", 2), S, p.Cursor("c", 2)]
    there = p.Slot(0, p.Last(2))
    mover: Tree = [p.Host("write", (w(p.Slot(0, p.Fixed(0))),)), p.Advance(2, 0)]
    user: Tree = [p.Maybe("other"), p.Host("read", (r(there),))]
    user = [(user[0], {"yes": [user[1]], "no": []})]
    found = decide(design(objects, ("script", [p.LocalInfo("i", p.INDEX, depth=2)], mover), ("loop", [], user)))
    assert found.word == "unsupported" and "cursor 'c'" in found.reason


@pytest.mark.parametrize("by", ["queue", "cell", "view"])
def test_memory_that_is_only_accessed_by_reference(by: str) -> None:
    """Was proved: memory that no operation names, because all use what a queue, cell or view gave them, was not looked at."""
    objects: list[p.Object] = [M, S, p.Queue("q", 1, (("", (p.MEMORY,)),)), p.Cell("c", (p.MEMORY,))]
    got = p.Local(0)
    ways: dict[str, Tree] = {
        "queue": [p.Put(2, "", (m,)), p.Get(2, "", (0,))],
        "cell": [p.CellSet(p.Obj(3), (m,)), p.CellGet(p.Obj(3), (0,))],
        "view": [p.View(0, m)],
    }
    body: Tree = [*ways[by], p.Host("write", (w(got),)), kernel(1, r(got)), p.Drop(0)]
    assert verdict(design(objects, ("loop", [p.LocalInfo("got", p.MEMORY)], body))) == "refuted"
