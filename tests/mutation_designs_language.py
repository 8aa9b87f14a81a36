"""Small designs whose answer stands on what the language writes down: the legacy default stream, graphs, composites."""

from __future__ import annotations

import fencepost as fp

from mutation_designs import declared

# ---------------------------------------------------------------- the legacy default stream (S11)


@declared(fp.PROVED)
def legacy_behind_blocking() -> fp.Design:
    """What is enqueued on the legacy stream waits for every blocking one."""
    d = fp.Design("legacy behind blocking")
    x, side = d.device("x"), d.stream("side", blocking=True)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        d.launch("read", reads=[x], stream=d.default_stream())

    return d


@declared(fp.PROVED)
def blocking_behind_legacy() -> fp.Design:
    """And what is enqueued on a blocking one waits for the legacy stream."""
    d = fp.Design("blocking behind legacy")
    x, side = d.device("x"), d.stream("side", blocking=True)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=d.default_stream())
        d.launch("read", reads=[x], stream=side)

    return d


@declared(fp.REFUTED, "RAW x")
def non_blocking_beside_legacy() -> fp.Design:
    """A stream of PyTorch's is not blocking (S9): another one that is changes nothing for it."""
    d = fp.Design("non-blocking beside legacy")
    x, side = d.device("x"), d.stream("side")
    d.stream("blocking", blocking=True)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        d.launch("read", reads=[x], stream=d.default_stream())

    return d


@declared(fp.REFUTED, "RAW x")
def legacy_of_another_gpu() -> fp.Design:
    """Each GPU has a legacy stream of its own."""
    d = fp.Design("legacy of another GPU")
    x, side = d.device("x"), d.stream("side", blocking=True, gpu=1)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        d.launch("read", reads=[x], stream=d.default_stream())

    return d


@declared(fp.PROVED)
def record_on_the_legacy_stream() -> fp.Design:
    """A record there captures what is in the blocking streams (S31)."""
    d = fp.Design("record on the legacy stream")
    x, side, done = d.pinned("x"), d.stream("side", blocking=True), d.event("done")

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        done.record(d.default_stream())
        done.synchronize()
        x.read()

    return d


@declared(fp.PROVED)
def waits_for_the_legacy_stream() -> fp.Design:
    """`wait_stream` records on the other stream (S22), and the legacy stream's record waits for the blocking ones."""
    d = fp.Design("waits for the legacy stream")
    x, side, third = d.device("x"), d.stream("side", blocking=True), d.stream("third")

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        third.wait_stream(d.default_stream())
        d.launch("read", reads=[x], stream=third)

    return d


@declared(fp.REFUTED, "RAW x")
def synchronize_enqueues_nothing() -> fp.Design:
    """A host wait for the legacy stream puts nothing there, so that it does not wait for the blocking ones."""
    d = fp.Design("synchronize enqueues nothing")
    x, side = d.pinned("x"), d.stream("side", blocking=True)

    @d.script("worker")
    def worker() -> None:
        d.launch("write", writes=[x], stream=side)
        d.default_stream().synchronize()
        x.read()

    return d


# ---------------------------------------------------------------- graphs


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


# ---------------------------------------------------------------- calls that are several operations


@declared(fp.PROVED)
def peer_copy_behind_the_target() -> fp.Design:
    """A copy between GPUs waits for the target's stream, too (S59)."""
    d = fp.Design("peer copy behind the target")
    a, b = d.device("a", gpu=0), d.device("b", gpu=1)
    on_a, on_b = d.stream("on a", gpu=0), d.stream("on b", gpu=1)

    @d.script("worker")
    def worker() -> None:
        d.launch("use before", reads=[b], stream=on_b)
        d.peer_copy(b, a, source=on_a, target=on_b)
        d.launch("use", reads=[b], stream=on_b)

    return d


@declared(fp.PROVED)
def strided_source_is_staged() -> fp.Design:
    """A temporary stands between a strided pinned source and the copy, so that it may be rewritten at once (S55)."""
    d = fp.Design("strided source is staged")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("worker")
    def worker() -> None:
        m.write()
        g.copy_(m, non_blocking=True, strided=True)

    return d


@declared(fp.PROVED)
@declared(fp.REFUTED, "RAW contiguous m", platform="cuda-late-pageable")
def strided_target_is_spread() -> fp.Design:
    """The temporary is spread over a strided target when the call returns (S56)."""
    d = fp.Design("strided target is spread")
    m, g = d.pinned("m"), d.device("g")

    @d.script("worker")
    def worker() -> None:
        d.launch("fill", writes=[g])
        m.copy_(g, non_blocking=True, strided=True)
        m.read()

    return d


@declared(fp.REFUTED, "RAW g")
def memcpy_has_a_pending_tail() -> fp.Design:
    """cudaMemcpy from pageable memory returns when the source is staged: the target is not there for other streams (S50)."""
    d = fp.Design("memcpy has a pending tail")
    m, g, side = d.pageable("m"), d.device("g"), d.stream("side")

    @d.script("worker")
    def worker() -> None:
        m.write()
        d.memcpy(g, m)
        m.write()
        d.launch("use", reads=[g], stream=side)

    return d


@declared(fp.PROVED)
def memcpy_to_the_host_is_complete() -> fp.Design:
    """To the host it returns when it is done, on the legacy stream (S50)."""
    d = fp.Design("memcpy to the host is complete")
    m, g = d.pinned("m"), d.device("g")

    @d.loop("worker")
    def worker() -> None:
        d.launch("fill", writes=[g], stream=d.default_stream())
        d.memcpy(m, g)
        m.read()

    return d


@declared(fp.PROVED)
def agent_after_a_stream() -> fp.Design:
    """A transfer with `after` waits for the stream; its handle tells of its end."""
    d = fp.Design("agent after a stream")
    x, stream, nic = d.pinned("x"), d.stream("stream"), d.agent("nic")

    @d.loop("worker")
    def worker() -> None:
        d.launch("fill", writes=[x], stream=stream)
        nic.post("send", reads=[x], after=stream).synchronize()

    return d


@declared(fp.REFUTED, "WAR x")
def device_does_not_know_the_agent() -> fp.Design:
    """No device synchronisation reaches an agent."""
    d = fp.Design("device does not know the agent")
    x, nic = d.pinned("x"), d.agent("nic")

    @d.loop("worker")
    def worker() -> None:
        x.write()
        nic.post("send", reads=[x])
        d.synchronize()

    return d


# ---------------------------------------------------------------- communicators: hosts


@declared(fp.PROVED)
def barrier_of_hosts() -> fp.Design:
    """Each rank's thread goes on when the other has come."""
    d = fp.Design("barrier of hosts")
    x, comm = d.pageable("x"), d.communicator("comm", ["a", "b"])

    @d.loop("one")
    def one() -> None:
        x.write()
        comm.host_barrier("a")
        comm.host_barrier("a")

    @d.loop("two")
    def two() -> None:
        comm.host_barrier("b")
        x.read()
        comm.host_barrier("b")

    return d


# ---------------------------------------------------------------- communicators: devices


def _two_ranks(d: fp.Design) -> tuple[fp.Stream, fp.Stream, fp.Tensor, fp.Tensor, fp.Tensor]:
    return d.stream("s"), d.stream("u"), d.device("x"), d.device("a's"), d.device("b's")


@declared(fp.PROVED)
def through_an_all_reduce() -> fp.Design:
    """What any rank did before a collective of all pairs is before what any rank does behind it (theory 2)."""
    d = fp.Design("through an all-reduce")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, x, mine, its = _two_ranks(d)

    @d.script("one", stream=s)
    def one() -> None:
        d.launch("produce", writes=[x])
        comm.all_reduce(mine, rank="a")

    @d.script("two", stream=u)
    def two() -> None:
        comm.all_reduce(its, rank="b")
        d.launch("consume", reads=[x])

    return d


@declared(fp.PROVED)
def through_a_broadcast() -> fp.Design:
    """From the root to the others."""
    d = fp.Design("through a broadcast")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, x, mine, its = _two_ranks(d)

    @d.script("one", stream=s)
    def one() -> None:
        d.launch("produce", writes=[x])
        comm.broadcast(mine, root="a", rank="a")

    @d.script("two", stream=u)
    def two() -> None:
        comm.broadcast(its, root="a", rank="b")
        d.launch("consume", reads=[x])

    return d


@declared(fp.REFUTED, "RAW x", "WAR x")
def back_through_a_broadcast() -> fp.Design:
    """And not from the others to the root, which waits for nobody."""
    d = fp.Design("back through a broadcast")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, x, mine, its = _two_ranks(d)

    @d.script("one", stream=s)
    def one() -> None:
        comm.broadcast(mine, root="a", rank="a")
        d.launch("consume", reads=[x])

    @d.script("two", stream=u)
    def two() -> None:
        d.launch("produce", writes=[x])
        comm.broadcast(its, root="a", rank="b")

    return d


@declared(fp.PROVED)
def through_a_reduce() -> fp.Design:
    """From the others to the root."""
    d = fp.Design("through a reduce")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, x, mine, its = _two_ranks(d)

    @d.script("one", stream=s)
    def one() -> None:
        comm.reduce(mine, root="a", rank="a")
        d.launch("consume", reads=[x])

    @d.script("two", stream=u)
    def two() -> None:
        d.launch("produce", writes=[x])
        comm.reduce(its, root="a", rank="b")

    return d


@declared(fp.PROVED)
def another_kind_never_meets() -> fp.Design:
    """Calls of different kinds do not match (S130): what is behind them never runs."""
    d = fp.Design("another kind never meets")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, x, mine, its = _two_ranks(d)
    scratch = d.pageable("scratch")

    @d.script("one", stream=s)
    def one() -> None:
        scratch.write()
        scratch.read()
        comm.all_reduce(mine, rank="a")
        d.launch("produce", writes=[x])

    @d.script("two", stream=u)
    def two() -> None:
        comm.all_to_all(its, its, rank="b")
        d.launch("consume", reads=[x])

    return d


@declared(fp.REFUTED, "RAW a's", "WAR a's", "WAW a's")
def peer_writes_what_still_runs() -> fp.Design:
    """That a peer has come tells that its part has begun, not that it has ended: the kernel still works on its buffer (S131)."""
    d = fp.Design("peer writes what still runs")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, _, mine, its = _two_ranks(d)

    @d.script("one", stream=s)
    def one() -> None:
        comm.all_reduce(mine, rank="a")
        d.launch("use", reads=[mine])

    @d.script("two", stream=u)
    def two() -> None:
        comm.all_reduce(its, rank="b")
        d.launch("write into the peer", writes=[mine])

    return d


@declared(fp.PROVED)
def asynchronous_behind_the_caller() -> fp.Design:
    """The group's stream waits for the caller's current one (S121), and `wait` makes the current stream wait for the end (S123)."""
    d = fp.Design("asynchronous, behind the caller")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, _, mine, its = _two_ranks(d)

    @d.script("one", stream=s)
    def one() -> None:
        d.launch("produce", writes=[mine])
        work = comm.all_reduce(mine, rank="a", async_op=True)
        work.wait()
        d.launch("use", reads=[mine])

    @d.script("two", stream=u)
    def two() -> None:
        comm.all_reduce(its, rank="b")

    return d


@declared(fp.REFUTED, "RAW a's", "WAR a's")
def asynchronous_and_not_awaited() -> fp.Design:
    """Without `wait` nobody is ordered (S126)."""
    d = fp.Design("asynchronous, and not awaited")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, _, mine, its = _two_ranks(d)

    @d.script("one", stream=s)
    def one() -> None:
        comm.all_reduce(mine, rank="a", async_op=True)
        d.launch("use", reads=[mine])

    @d.script("two", stream=u)
    def two() -> None:
        comm.all_reduce(its, rank="b")

    return d


@declared(fp.PROVED)
def blocking_wait_holds_the_host() -> fp.Design:
    """TORCH_NCCL_BLOCKING_WAIT: the host waits too (S124)."""
    d = fp.Design("blocking wait holds the host")
    comm = d.communicator("comm", ["a", "b"], capacity=2, blocking_wait=True)
    s, u, result = d.stream("s"), d.stream("u"), d.pinned("result")
    its = d.device("b's")

    @d.script("one", stream=s)
    def one() -> None:
        comm.all_reduce(result, rank="a", async_op=True).wait()
        result.read()

    @d.script("two", stream=u)
    def two() -> None:
        comm.all_reduce(its, rank="b")

    return d


@declared(fp.PROVED)
def work_keeps_its_memory() -> fp.Design:
    """An asynchronous call keeps its buffers until it is awaited (S127)."""
    return _kept("work keeps its memory", "new")


@declared(fp.PROVED)
def old_calls_note_their_memory() -> fp.Design:
    """The old version notes the group's stream instead (S127)."""
    return _kept("old calls note their memory", "old")


def _kept(name: str, version: str) -> fp.Design:
    d = fp.Design(name)
    comm = d.communicator("comm", ["a", "b"], capacity=2, version=version)  # type: ignore[arg-type]
    s, u, its = d.stream("s"), d.stream("u"), d.device("b's")

    @d.script("one", stream=s)
    def one() -> None:
        block = d.empty("block")
        d.launch("fill", writes=[block])
        work = comm.all_reduce(block, rank="a", async_op=True)
        block.release()
        again = d.empty("again")
        d.launch("fill again", writes=[again])
        d.launch("use again", reads=[again])
        work.wait()

    @d.script("two", stream=u)
    def two() -> None:
        comm.all_reduce(its, rank="b")

    return d
