"""Designs with graphs that were answered wrongly, each with its right answer."""

from __future__ import annotations

from typing import Any

import fencepost as fp
import pytest
from fencepost.proofs.check import check


def replayers(several_threads: bool = True, branch: bool = False, graphs: int = 1) -> fp.Design:
    """Two threads that replay the same graph, or one each, on streams of their own."""
    d = fp.Design("replayers")
    s, other, x = d.stream("s"), d.stream("other"), d.device("x")
    made = [d.graph(f"g{k}", several_threads=several_threads) for k in range(graphs)]

    @d.setup(stream=s)
    def setup() -> None:
        for graph in made:
            with graph.capture():
                if branch:
                    other.wait_stream(s)
                    d.launch("b", reads=[x], writes=[x], stream=other)
                    s.wait_stream(other)
                d.launch("k", reads=[x], writes=[x])

    def replays(name: str, graph: Any) -> None:
        own = d.stream(f"stream of {name}")

        @d.loop(name)
        def turn() -> None:
            graph.replay(own)
            own.synchronize()

    replays("t0", made[0])
    replays("t1", made[-1])
    return d


@pytest.mark.parametrize("branch", [False, True])
def test_a_launch_is_one_call_among_those_of_other_threads(branch: bool) -> None:
    """Launches of one exec follow each other on any streams (S93), also when two threads launch; two graphs do not (S95)."""
    assert check(fp.program_of(replayers, {"branch": branch})).verdict == fp.PROVED
    answer = check(fp.program_of(replayers, {"branch": branch, "graphs": 2}))
    assert (answer.verdict, answer.hazards[0].name) == (fp.REFUTED, "WAW x")


def test_two_threads_that_replay_have_to_be_told() -> None:
    with pytest.raises(fp.DesignError, match="replayed by the threads 't0' and 't1'; make it with"):
        fp.program_of(replayers, {"several_threads": False})


BLOCKS = ["a maybe in it", "a drain in it", "in a maybe", "in a drain"]


@pytest.mark.parametrize("where", BLOCKS)
def test_what_is_captured_is_always_the_same(where: str) -> None:
    """A graph that is captured with a block that may not run, or in one, would be one graph or another."""
    d = fp.Design("captured")
    s, t, q, x, g = d.stream("s"), d.stream("t"), d.queue("q", 2, item=(fp.INDEX,)), d.device("x"), d.graph("g")

    def capture(joins: Any) -> None:
        with g.capture():
            t.wait_stream(s)
            d.launch("w", writes=[x], stream=t)
            joins()
            s.wait_stream(t)

    def maybe() -> None:
        with d.maybe("join"):
            s.wait_stream(t)

    def drain() -> None:
        for _ in q.drain():
            s.wait_stream(t)

    def setup() -> None:
        if where == "a maybe in it":
            capture(maybe)
        elif where == "a drain in it":
            capture(drain)
        elif where == "in a maybe":
            with d.maybe("warm-up"):
                capture(lambda: None)
        else:
            for _ in q.drain():
                capture(lambda: None)

    with pytest.raises(fp.DesignError, match="captured once"):
        d.setup(setup, stream=s)
