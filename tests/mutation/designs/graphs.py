"""Small designs of captured graphs: baked addresses, replays, what a capture does not do."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.PROVED)
def capture_runs_nothing() -> fp.Design:
    """A kernel inside a capture runs at the replays only (S91)."""
    d = fp.Design("capture runs nothing")
    x, stream, side, graph = d.device("x"), d.stream("stream"), d.stream("side"), d.graph("graph")

    @d.script("worker")
    def worker() -> None:
        with graph.capture(stream):
            d.launch("write", writes=[x])
        d.launch("read", reads=[x], stream=side)
        stream.wait_stream(side)
        graph.replay(stream)

    return d


@declared(fp.PROVED)
def launches_of_one_graph() -> fp.Design:
    """Launches of one graph are ordered, on whatever streams (S93)."""
    d = fp.Design("launches of one graph")
    x, one, two, graph = d.device("x"), d.stream("one"), d.stream("two"), d.graph("graph")

    @d.setup
    def capture() -> None:
        with graph.capture(one):
            d.launch("step", reads=[x], writes=[x])

    @d.loop("worker")
    def worker() -> None:
        graph.replay(one)
        graph.replay(two)

    return d


@declared(fp.REFUTED, "UNDEFINED block")
def freed_after_the_capture() -> fp.Design:
    """A graph keeps addresses and no references: the block that it reads is freed at the end of the capture (S92, S97)."""
    d = fp.Design("freed after the capture")
    stream, graph = d.stream("stream"), d.graph("graph")

    @d.script("worker")
    def worker() -> None:
        block = d.empty("block", stream=stream)
        d.launch("fill", writes=[block], stream=stream)
        with graph.capture(stream):
            d.launch("use", reads=[block])
        block.release()
        again = d.empty("again", stream=stream)
        d.launch("fill again", writes=[again], stream=stream)
        graph.replay(stream)

    return d


@declared(fp.PROVED)
def held_after_the_capture() -> fp.Design:
    """The same while somebody holds it: the replay reaches the block of the capture (S92)."""
    d = fp.Design("held after the capture")
    stream, graph = d.stream("stream"), d.graph("graph")

    @d.script("worker")
    def worker() -> None:
        block = d.empty("block", stream=stream)
        d.launch("fill", writes=[block], stream=stream)
        with graph.capture(stream):
            d.launch("use", reads=[block])
        graph.replay(stream)
        block.release()

    return d


@declared(fp.REFUTED, "WAR block")
def replayed_copy_is_not_noted() -> fp.Design:
    """No allocator sees what a replay does (S83): the pinned block goes to the next tenant while the copy may be running."""
    d = fp.Design("replayed copy is not noted")
    stream, graph, g = d.stream("stream"), d.graph("graph"), d.device("g")

    @d.script("worker")
    def worker() -> None:
        block = d.empty_pinned("block")
        block.write()
        with graph.capture(stream):
            g.copy_(block, non_blocking=True)
        graph.replay(stream)
        block.release()
        again = d.empty_pinned("again")
        again.write()

    return d


@declared(fp.REFUTED, "WAR block")
def note_in_a_capture_is_discarded() -> fp.Design:
    """`record_stream` during a capture says nothing to the allocator (S74)."""
    d = fp.Design("note in a capture is discarded")
    stream, owner, graph, scratch = d.stream("stream"), d.stream("owner"), d.graph("graph"), d.pageable("scratch")

    @d.script("worker")
    def worker() -> None:
        scratch.write()
        scratch.read()
        block = d.empty("block", stream=owner)
        d.launch("fill", writes=[block], stream=owner)
        stream.wait_stream(owner)
        with graph.capture(stream):
            d.launch("use", reads=[block])
            block.record_stream(stream)
        graph.replay(stream)
        block.release()
        again = d.empty("again", stream=owner)
        d.launch("fill again", writes=[again], stream=owner)

    return d


@declared(fp.PROVED)
def branches_of_a_graph() -> fp.Design:
    """A fork and a join are edges of the graph (S94, S98)."""
    d = fp.Design("branches of a graph")
    x, y, stream, side = d.device("x"), d.device("y"), d.stream("stream"), d.stream("side")
    graph = d.graph("graph")

    @d.setup
    def capture() -> None:
        with graph.capture(stream):
            d.launch("begin", writes=[x])
            side.wait_stream(stream)
            d.launch("branch", reads=[x], writes=[y], stream=side)
            stream.wait_stream(side)
            d.launch("end", reads=[y])

    @d.loop("worker")
    def worker() -> None:
        graph.replay(stream)

    return d


@declared(fp.PROVED)
def events_of_a_graph() -> fp.Design:
    """So are records and waits inside (S28), by events of the graph's own: one that is recorded outside is another matter."""
    d = fp.Design("events of a graph")
    x, y, stream, side = d.device("x"), d.device("y"), d.stream("stream"), d.stream("side")
    graph, fork, join = d.graph("graph"), d.event("fork"), d.event("join")

    @d.setup
    def capture() -> None:
        with graph.capture(stream):
            d.launch("begin", writes=[x])
            fork.record(stream)
            side.wait_event(fork)
            d.launch("branch", reads=[x], writes=[y], stream=side)
            join.record(side)
            stream.wait_event(join)
            d.launch("end", reads=[y])

    @d.loop("worker")
    def worker() -> None:
        graph.replay(stream)

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
def branch_is_not_the_captured_stream() -> fp.Design:
    """At a replay the branch runs in a stream of the graph's own, not behind what is in the stream that was captured."""
    d = fp.Design("branch is not the captured stream")
    x, stream, side = d.device("x"), d.stream("stream"), d.stream("side")
    graph = d.graph("graph")

    @d.setup
    def capture() -> None:
        with graph.capture(stream):
            d.launch("begin")
            side.wait_stream(stream)
            d.launch("branch", reads=[x], stream=side)
            stream.wait_stream(side)

    @d.loop("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        graph.replay(stream)

    return d


@declared(fp.PROVED)
def memory_of_the_capture() -> fp.Design:
    """What is allocated inside belongs to the graph, for ever, though the tensor is gone (S74, S88)."""
    d = fp.Design("memory of the capture")
    stream, graph = d.stream("stream"), d.graph("graph")

    @d.script("worker")
    def worker() -> None:
        with d.scope("warm up"), graph.capture(stream):
            inner = d.empty("inner", stream=stream)
            d.launch("fill", writes=[inner])
            d.launch("use", reads=[inner])
        graph.replay(stream)
        graph.replay(stream)

    return d


@declared("design error")
def replayed_before_it_is_captured() -> fp.Design:
    """Another thread may replay the graph before the script has captured it."""
    d = fp.Design("replayed before it is captured")
    x, stream, graph = d.device("x"), d.stream("stream"), d.graph("graph")

    @d.script("capturer")
    def capturer() -> None:
        with graph.capture(stream):
            d.launch("write", writes=[x])

    @d.script("worker")
    def worker() -> None:
        graph.replay(stream)

    return d


@declared(fp.REFUTED, "WAR h")
def branch_of_another_gpu() -> fp.Design:
    """A graph's branch is on the GPU of the captured stream, for which a wait for another GPU is none (S32)."""
    d = fp.Design("branch of another gpu")
    s, side, graph = d.stream("s", gpu=1), d.stream("side", gpu=1), d.graph("graph")
    h, x, y = d.pinned("h"), d.device("x", gpu=1), d.device("y", gpu=1)

    @d.setup(stream=s)
    def setup() -> None:
        with graph.capture():
            d.launch("k", writes=[x])
            side.wait_stream(s)
            y.copy_(h, non_blocking=True, stream=side)
            s.wait_stream(side)

    @d.loop("thread", stream=s)
    def thread() -> None:
        h.write()
        graph.replay()
        d.synchronize(0)

    return d


@declared(fp.PROVED)
def launch_beside_the_legacy_stream() -> fp.Design:
    """A launch of a graph is one item of its blocking stream (S93): what another thread enqueues on the legacy one waits for all of it (S11)."""
    d = fp.Design("launch beside the legacy stream")
    x, y = d.device("x"), d.device("y")
    blocking = d.stream("blocking", blocking=True, several_threads=True)
    side, graph = d.stream("side"), d.graph("graph")

    @d.setup(stream=blocking)
    def setup() -> None:
        with graph.capture():
            d.launch("root", writes=[x])
            side.wait_stream(blocking)
            d.launch("branch", writes=[y], stream=side)
            blocking.wait_stream(side)

    @d.loop("launches", stream=blocking)
    def launches() -> None:
        graph.replay()

    @d.loop("reads")
    def reads() -> None:
        d.launch("reader", reads=[x, y])

    return d
