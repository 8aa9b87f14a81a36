"""Designs that got UNKNOWN or a hang where there is an answer, each with the answer."""

from __future__ import annotations

import fencepost as fp
import pytest
from fencepost.proofs.check import check
from fencepost.proofs.smt.engine import check as smt_check


def third_write() -> fp.Design:
    """A reader tells who won the race only where the third write does not run."""
    d = fp.Design("third write")
    s, t, x, y = d.stream("s"), d.stream("t"), d.device("x"), d.device("y")

    @d.loop("a")
    def turn() -> None:
        d.launch("w1", writes=[x], stream=s)
        d.launch("w2", writes=[x], stream=t)
        s.wait_stream(t)
        with d.maybe("m"):
            d.launch("w3", writes=[x], stream=s)
        d.launch("r", reads=[x], writes=[y], stream=s)
        s.synchronize()

    return d


def reader_behind(first: str, second: str, query: bool = False) -> fp.Design:
    """A reader behind one answer of a question that a script asks once."""
    d = fp.Design("reader behind")
    s, t, u, x, y, z = d.stream("s"), d.stream("t"), d.stream("u"), d.device("x"), d.device("y"), d.device("z")

    @d.script("a")
    def body() -> None:
        d.launch("long", writes=[z], stream=u)
        d.launch("w1", writes=[x], stream=s)
        d.launch("w2", writes=[x], stream=t)
        s.wait_stream(t)
        if u.query() if query else d.choose("c", [first, second]) == "skip":
            return
        d.launch("r", reads=[x], writes=[y], stream=s)
        s.synchronize()

    return d


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (third_write, {}),
        (reader_behind, {"first": "skip", "second": "on"}),
        (reader_behind, {"first": "on", "second": "skip"}),
        (reader_behind, {"first": "on", "second": "skip", "query": True}),
    ],
)
def test_a_reader_behind_one_answer_is_found(function: object, parameters: dict[str, object]) -> None:
    """The order of the options, and what they are called, does not matter."""
    program = fp.program_of(function, parameters)  # type: ignore[arg-type]
    for answer in (check(program), smt_check(program, steps=2)):
        assert (answer.verdict, [h.name for h in answer.hazards][:1]) == (fp.REFUTED, ["WAW x"])
        assert answer.hazards[0].value_changing is True


def consumers(several_threads: bool) -> fp.Design:
    """Two threads that each take one item of a queue of two kinds."""
    d = fp.Design("consumers")
    q, h = d.queue("q", 2, item={"a": (), "b": ()}, several_threads=several_threads), d.pinned("h")

    @d.script("producer")
    def producer() -> None:
        h.write()
        q.put("a")
        q.put("b")

    @d.script("first")
    def first() -> None:
        if q.get().tag == "a":
            h.read()

    @d.script("second")
    def second() -> None:
        if q.get().tag == "a":
            h.read()

    return d


def test_a_get_of_several_kinds_is_one_step() -> None:
    """The kind is that of the item that is taken: nobody comes between."""
    answer = check(fp.program_of(consumers, {"several_threads": True}))
    assert (answer.verdict, answer.hangs) == (fp.PROVED, ())
    with pytest.raises(fp.DesignError, match="the threads 'first' and 'second' take them; make it with"):
        fp.program_of(consumers, {"several_threads": False})


def ring(depth: int, outstanding: int) -> fp.Design:
    """A slot for each turn, and results that are awaited `outstanding` turns later."""
    d = fp.Design("ring")
    slots, copy = d.pinned("slots", depth=depth), d.device("copy")
    pending = d.queue("pending", outstanding, item=(fp.EVENT,))

    @d.loop("worker")
    def turn(n: fp.Turn) -> None:
        slots[n].write()
        copy.copy_(slots[n], non_blocking=True)
        done = d.event("done")
        done.record()
        pending.put(done)
        if pending.full():
            pending.get().synchronize()

    return d


@pytest.mark.parametrize(("depth", "outstanding"), [(1, 1), (5, 1), (20, 13), (21, 13), (64, 2), (1_000_000, 2), (999_999, 3)])
def test_the_margin_of_any_ring(depth: int, outstanding: int) -> None:
    """Slots that can go, exactly, and without deciding every smaller ring."""
    answer = check(fp.program_of(ring, {"depth": depth, "outstanding": outstanding}))
    assert answer.verdict == fp.PROVED
    assert [one.margin for one in answer.protections if one.object == "slots"] == [depth - outstanding]


def parts(lasting: bool, part: str) -> fp.Design:
    """A kernel writes a part of memory, and another one reads a part that may be another."""
    d = fp.Design("parts")
    kept, y = d.device("kept", bytes=128), d.device("y")

    @d.loop("a")
    def turn() -> None:
        x = kept if lasting else d.empty("x", bytes=128)
        d.launch("w", writes=[x[0:64]])
        d.launch("r", reads=[x[fp.ANY] if part == "any" else x[0:64]], writes=[y])

    return d


@pytest.mark.parametrize(
    ("lasting", "part", "said"),
    [(False, "any", ["what is read by fp.ANY or by row was written before, whichever part that is: x"]), (False, "span", []), (True, "any", [])],
)
def test_what_is_taken_of_unknown_parts_is_said(lasting: bool, part: str, said: list[str]) -> None:
    """Content that an allocator hands out is undefined (S62), and which part is read is not known: the proof rests on it."""
    answer = check(fp.program_of(parts, {"lasting": lasting, "part": part}))
    assert (answer.verdict, [one for one in answer.assumptions if "fp.ANY" in one]) == (fp.PROVED, said)
