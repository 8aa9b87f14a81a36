"""Memory that goes from one owner to the next, and what a capture allocates: designs that were answered wrongly."""

from __future__ import annotations

from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.engines import Question, ask
from fencepost.proofs.check import check


def answered(build: Callable[..., fp.Design], **parameters: object) -> tuple[str, set[str]]:
    answer = check(fp.program_of(build, parameters))
    return answer.verdict, {hazard.name for hazard in answer.hazards}


# ---------------------------------------------------------------- parts of the tensors of one block


def two_owners(space: str = "device", first: str = "a", second: str = "b", waits: bool = False) -> fp.Design:
    """A read of a part is pending when the block goes to its next owner, whose parts are parts of another tensor."""
    d = fp.Design("two_owners")
    stream, other, there = d.stream("stream"), d.stream("other"), d.device("there")
    parts = {"a": "a", "b": "b", "low": slice(0, 64), "high": slice(2048, 4096), "all": slice(0, 4096)}

    @d.loop("worker", stream=stream)
    def step() -> None:
        x = d.empty("x") if space == "device" else d.empty_pinned("x")
        d.launch("init", writes=[x])
        other.wait_stream(stream)
        d.launch("read", reads=[x[parts[first]]], writes=[there], stream=other)
        if waits:
            stream.wait_stream(other)
            stream.synchronize()
        x.release()
        y = d.empty("y") if space == "device" else d.empty_pinned("y")
        d.launch("fill", writes=[y[parts[second]]])
        d.launch("use", reads=[y[parts[second]]])
        stream.wait_stream(other)
        stream.synchronize()

    return d


@pytest.mark.parametrize("space", ["device", "pinned"])
@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", "a"), ("a", "low"), ("high", "low"), ("high", "b"), ("all", "b")])
def test_parts_of_two_owners_of_one_block(space: str, first: str, second: str) -> None:
    """Names are those of parts of one tensor, and the next owner may begin anywhere in the block (S70).

    Pinned blocks are not split (S82), so that the spans of two of their owners would tell; they count as overlapping all the same.
    """
    assert answered(two_owners, space=space, first=first, second=second)[0] == fp.REFUTED
    assert answered(two_owners, space=space, first=first, second=second, waits=True) == (fp.PROVED, set())


def second_half(bytes: int = 2048) -> fp.Design:
    """Two smaller tensors split the block of a larger one: the second is its second half."""
    d = fp.Design("second_half")
    stream, other = d.stream("stream"), d.stream("other")

    @d.loop("worker", stream=stream)
    def step() -> None:
        x = d.empty("x", bytes=4096)
        d.launch("init", writes=[x])
        other.wait_stream(stream)
        d.launch("read", reads=[x[2048:4096]], stream=other)
        x.release()
        for name in ("y", "z"):
            half = d.empty(name, bytes=bytes)
            d.launch("fill", writes=[half[0:64]])
            d.launch("use", reads=[half[0:64]])
        stream.wait_stream(other)

    return d


@pytest.mark.parametrize("bytes", [2048, 4096])
def test_a_block_that_is_split(bytes: int) -> None:
    assert answered(second_half, bytes=bytes)[0] == fp.REFUTED


def one_owner(second: str) -> fp.Design:
    """Parts of one tensor: here names and spans do tell."""
    d = fp.Design("one_owner")
    stream, other = d.stream("stream"), d.stream("other")

    @d.loop("worker", stream=stream)
    def step() -> None:
        x = d.empty("x")
        d.launch("init", writes=[x])
        other.wait_stream(stream)
        d.launch("read", reads=[x["a"]], stream=other)
        d.launch("fill", writes=[x[second]])
        d.launch("use", reads=[x[second]])
        stream.wait_stream(other)

    return d


def test_parts_of_one_owner() -> None:
    assert answered(one_owner, second="b") == (fp.PROVED, set())
    assert answered(one_owner, second="a")[0] == fp.REFUTED


def pool_of_two_graphs(second: str | slice = "b", waits: bool = False) -> fp.Design:
    """Two graphs that share a pool: the second one's tensor lies where the first one's did."""
    d = fp.Design("pool_of_two_graphs")
    stream, other = d.stream("stream"), d.stream("other")
    out, graph = d.device("out", depth=2), d.graph("graph")
    shares = d.graph("shares", pool=graph)

    @d.setup(stream=stream)
    def setup() -> None:
        with graph.capture():
            x = d.empty("x")
            part = x["a"] if isinstance(second, str) else x[64:128]
            d.launch("fill x", writes=[part])
            d.launch("use x", reads=[part], writes=[out[0]])
            x.release()
        with shares.capture():
            y = d.empty("y")
            d.launch("fill y", writes=[y[second]])
            d.launch("use y", reads=[y[second]], writes=[out[1]])
            y.release()

    @d.loop("worker")
    def step() -> None:
        graph.replay(stream)
        if waits:
            other.wait_stream(stream)
        shares.replay(other)
        if waits:
            stream.wait_stream(other)

    return d


def test_parts_of_two_tensors_in_a_graphs_pool() -> None:
    """S96. Spans count from the same address; names are refused."""
    with pytest.raises(fp.DesignError, match=r"'y of shares' has the block that 'x of graph' had \(S96\)"):
        fp.program_of(pool_of_two_graphs, {})
    assert answered(pool_of_two_graphs, second=slice(96, 160))[0] == fp.REFUTED
    assert answered(pool_of_two_graphs, second=slice(0, 64)) == (fp.PROVED, set())
    assert answered(pool_of_two_graphs, second=slice(96, 160), waits=True) == (fp.PROVED, set())


def scratch(writes: str = "", reuses: bool = False) -> fp.Design:
    """A graph's scratch memory, which is allocated in the capture."""
    d = fp.Design("scratch")
    stream, graph, out = d.stream("stream"), d.graph("graph"), d.device("out")

    @d.setup(stream=stream)
    def setup() -> None:
        with graph.capture():
            if reuses:
                before = d.empty("before")
                d.launch("fill", writes=[before])
                before.release()
            mine = d.empty("mine")
            if writes == "before":
                d.memset(mine)
            d.launch("use", reads=[mine], writes=[out])
            if writes == "behind":
                d.memset(mine)
        if writes == "outside":
            d.memset(mine)
            stream.synchronize()

    @d.loop("worker", stream=stream)
    def step() -> None:
        graph.replay()

    return d


@pytest.mark.parametrize("reuses", [False, True])
def test_what_a_capture_allocates_is_undefined(reuses: bool) -> None:
    """S74, S97: also in a block that another tensor of the graph has written, and where only the node behind writes it."""
    for writes in ("before", "outside"):
        assert answered(scratch, writes=writes, reuses=reuses) == (fp.PROVED, set())
    for writes in ("", "behind"):
        with pytest.raises(fp.DesignError, match=r"test_found_owners\.py:\d+: graph 'graph': 'use' reads 'mine', which is allocated in the capture"):
            fp.program_of(scratch, {"writes": writes, "reuses": reuses})


def rewritten(space: str = "device", same_bytes: bool = True, read: bool = False, waits: bool = False) -> fp.Design:
    """The next owner of a block says of its first write that it leaves the bytes as they are; they are not its own."""
    d = fp.Design("rewritten")
    stream, other, there = d.stream("stream"), d.stream("other"), d.device("there")

    @d.loop("worker", stream=stream)
    def step() -> None:
        x = d.empty("x") if space == "device" else d.empty_pinned("x")
        d.launch("fill x", writes=[x])
        other.wait_stream(stream)
        d.launch("read x", reads=[x], writes=[there], stream=other)
        if waits:
            stream.wait_stream(other)
        if space == "pinned":
            (other if waits else stream).synchronize()
        x.release()
        y = d.empty("y") if space == "device" else d.empty_pinned("y")
        d.launch("fill y", writes=[fp.write(y, same_bytes=same_bytes)])
        stream.wait_stream(other)
        if read:
            d.launch("fill y again", writes=[y])
            d.launch("read y", reads=[y])
        stream.synchronize()

    return d


@pytest.mark.parametrize("space", ["device", "pinned"])
@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("same_bytes", [False, True])
def test_same_bytes_of_another_owner(space: str, read: bool, same_bytes: bool) -> None:
    """What a write leaves as it is was written by the same owner (theory 1: a pair is exempt only if both belong to one epoch)."""
    given: dict[str, object] = {"space": space, "read": read, "same_bytes": same_bytes}
    assert answered(rewritten, **given) == (fp.REFUTED, {"WAR x"})
    assert answered(rewritten, waits=True, **given) == (fp.PROVED, set())
    bounded = ask(fp.program_of(rewritten, given), Question("smt", steps=2))
    assert (bounded.verdict, bounded.hazards[0].name) == (fp.REFUTED, "WAR x")
