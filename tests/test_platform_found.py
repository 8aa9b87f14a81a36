"""What engines disagreed about on random designs with the rest of the platform, each as the small design that showed it."""

from __future__ import annotations

import collections

import fencepost as fp
import pytest
from fencepost.engines import Question, ask
from fencepost.model.answer import PROVED, REFUTED
from fencepost.model.platform import BARE, PLATFORMS
from fencepost.simulate import hazard_of, sentences
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import Random
from fencepost.simulator.search import Found

from random_compare import FAULT, compare
from random_cross import examine
from random_oracle import BARE_CUDA


def used_after_free_async(mode: str) -> fp.Design:
    """A raw pointer behind its memory's free, in the same stream: nobody else has the bytes yet, and they are nobody's."""
    d = fp.Design("used after free_async")
    s = d.stream("s")

    @d.loop("t", stream=s)
    def t() -> None:
        block = d.malloc_async("block")
        raw = block.view("raw", held=False)
        block.free_async()
        if mode == "write":
            d.launch("late", writes=[raw])
        elif mode == "fill":
            d.memset(raw)
        else:
            d.launch("late", reads=[raw])

    return d


def baked_and_freed() -> fp.Design:
    """S89: a graph fills a pinned block that was freed when its capture was over."""
    d = fp.Design("baked and freed")
    s, graph = d.stream("s"), d.graph("graph")

    @d.setup
    def capture() -> None:
        block = d.empty_pinned("block")
        with graph.capture(s):
            d.memset(block, stream=s)

    @d.script("t", stream=s)
    def t() -> None:
        graph.replay(s)

    return d


@pytest.mark.parametrize(
    "design", [baked_and_freed(), *(used_after_free_async(mode) for mode in ("write", "fill", "read"))], ids=lambda d: d.name
)
def test_the_machine_sees_uses_of_freed_memory(design: fp.Design) -> None:
    """REFUTED by the explorer; the machine showed nothing, as no value is wrong while nobody else owns the bytes."""
    program = design.build()
    answer = ask(program, Question())
    assert answer.verdict == REFUTED and [hazard.kind for hazard in answer.hazards][:1] == ["UNDEFINED"]
    outcome = Machine(program).run(Random("1"), turns=2, limit=60)
    assert outcome.wrong is not None and outcome.wrong.kind == "freed"
    assert hazard_of(program, outcome, None, None).kind == "UNDEFINED"
    assert "was freed before that" in sentences(Found(outcome, "", "", 1, "random"))[0]


def given_work_now_and_then(finaliser: bool) -> fp.Design:
    """A collector and a callback that do all that they are given: nobody waits for ever."""
    d = fp.Design("given work now and then")
    s = d.stream("s")
    m = d.pinned("m")
    garbage = d.collector("garbage", finaliser=(lambda x: x.record_stream(s)) if finaliser else None)

    @d.callback("notify", s)
    def notify() -> None:
        m.write()

    @d.script("t", stream=s)
    def t() -> None:
        block = d.empty("block", stream=s)
        d.launch("fill", writes=[block])
        garbage.unreachable(block)
        notify.launch()
        s.synchronize()
        m.read()

    return d


@pytest.mark.parametrize("finaliser", [False, True])
def test_who_is_idle_does_not_wait_for_ever(finaliser: bool) -> None:
    """The machine told of driver threads and collectors that they wait for ever, where liveness has no hang."""
    program = given_work_now_and_then(finaliser).build()
    answer = ask(program, Question())
    assert answer.verdict == PROVED and not answer.hangs
    for k in range(10):
        outcome = Machine(program).run(Random(f"{k}"), turns=3, limit=200)
        assert outcome.ended == "done" and not outcome.waiting and not outcome.blocked


def late_capture() -> fp.Design:
    """A graph that a script captures, perhaps after another thread has come a long way to its first replay."""
    d = fp.Design("late capture")
    s, x = d.stream("s"), d.device("x")
    graph, q = d.graph("graph"), d.queue("q", capacity=1, item=())

    @d.script("capture")
    def capture() -> None:
        with graph.capture(s):
            d.launch("node", writes=[x], stream=s)

    @d.loop("far", stream=s)
    def far() -> None:
        for _ in range(12):
            q.put()
            q.get()
        graph.replay(s)

    return d


def test_a_design_error_is_played_and_not_only_found() -> None:
    """No machine run at random came to it; along the explorer's path the event structure and the machine do."""
    count: collections.Counter[str] = collections.Counter()
    got = compare(late_capture().build(), 1, count, world=BARE_CUDA)
    assert got.word == FAULT and got.wrong is None and got.decided.fault is not None
    assert count["design errors on the machine, along the explorer's path"] == 1


def test_a_root_of_two_ranks_that_writes_its_own_part_has_an_end() -> None:
    """Plain Python and the program parted there: the oracle wrote no end of a scatter at a root with one receiver."""
    text = '''import fencepost as fp


def design():
    d = fp.Design("scatter of two")
    x, y = d.device("x"), d.device("y")
    comm = d.communicator("comm", ["a", "b"], capacity=1, blocking_wait=True)

    @d.script("a", stream=d.stream("sa"))
    def a():
        comm.scatter(x, x, root="a", rank="a")

    @d.script("b", stream=d.stream("sb"))
    def b():
        comm.scatter(y, root="a", rank="b")

    return d
'''
    namespace: dict[str, object] = {"__name__": "found"}
    exec(text, namespace)
    program = fp.program_of(namespace["design"], {})  # type: ignore[arg-type]
    got = examine(text, program, 1, checks=["plain Python", "events", "certificates"], world=(PLATFORMS["cuda"], BARE))
    assert got.word == "proved" and got.wrong is None
