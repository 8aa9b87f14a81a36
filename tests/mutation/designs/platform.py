"""Small designs of switches: who drives a communicator, whether a sender waits, managed memory, what a free waits for."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.REFUTED, "WAW comm of a")
def two_threads_drive_one_communicator() -> fp.Design:
    """Two calls of one rank that nothing orders (S133)."""
    d = fp.Design("two threads drive one communicator")
    comm = d.communicator("comm", ["a", "b"], capacity=2, several_threads=True)
    s, x, y = d.stream("s"), d.device("x"), d.device("y")

    @d.script("one", stream=s)
    def one() -> None:
        comm.all_reduce(x, rank="a")

    @d.script("two", stream=s)
    def two() -> None:
        comm.all_reduce(y, rank="a")

    @d.script("peer", stream=d.stream("u"))
    def peer() -> None:
        for _ in range(2):
            comm.rendezvous(rank="b", match="never the same")

    return d


@declared(fp.PROVED)
def rendezvous_bounds_the_mailbox() -> fp.Design:
    """A root that is never ahead of its receivers, so that states repeat (S131)."""
    d = fp.Design("a rendezvous bounds the mailbox")
    comm = d.communicator("comm", ["a", "b"], protocol="rendezvous")
    s, u, x, y = d.stream("s"), d.stream("u"), d.device("x"), d.device("y")

    @d.loop("one", stream=s)
    def one() -> None:
        d.launch("fill", writes=[x])
        comm.broadcast(x, root="a", rank="a")
        s.synchronize()

    @d.loop("two", stream=u)
    def two() -> None:
        comm.broadcast(y, root="a", rank="b")
        u.synchronize()

    return d


@declared(fp.UNKNOWN)
def sender_waits_for_its_receiver() -> fp.Design:
    """Nobody receives, so nobody comes to what would be a hazard behind the send (S131)."""
    d = fp.Design("a sender waits for its receiver")
    comm = d.communicator("comm", ["a", "b"], protocol="rendezvous")
    s, u, x, shared = d.stream("s"), d.stream("u"), d.device("x"), d.device("shared")

    @d.loop("one", stream=s)
    def one() -> None:
        comm.send(x, to="b", rank="a")
        s.synchronize()
        d.launch("write", writes=[shared])
        d.launch("write beside", writes=[shared], stream=u)
        d.launch("read", reads=[shared], stream=u)

    return d


@declared(fp.REFUTED, "WAR all managed memory")
def host_beside_a_kernel() -> fp.Design:
    """The host reads managed memory that no kernel touches, while one may run (S111)."""
    d = fp.Design("host beside a kernel")
    m, x = d.managed("m", concurrent=False), d.device("x")

    @d.script("main")
    def main() -> None:
        d.launch("kernel", reads=[x], writes=[x])
        m.read()

    return d


@declared(fp.PROVED)
def hosts_beside_each_other() -> fp.Design:
    """Two threads in two slots of managed memory, and a kernel behind them (S110)."""
    d = fp.Design("hosts beside each other")
    ring, x = d.managed("ring", depth=2, concurrent=False), d.device("x")
    done = d.queue("done", capacity=2, item=())

    def thread(slot: int) -> None:
        @d.script(f"thread {slot}")
        def run() -> None:
            ring[slot].write()
            ring[slot].read()
            done.put()

    thread(0)
    thread(1)

    @d.script("main")
    def main() -> None:
        done.get()
        done.get()
        d.launch("kernel", writes=[x])

    return d


@declared(fp.REFUTED, "WAW page")
@declared(fp.PROVED, platform="cuda-synchronising-free")
def free_beside_a_fill() -> fp.Design:
    """Whether the host knows after a free that the device is done (S38, S40)."""
    d = fp.Design("free beside a fill")
    page, s = d.pinned("page"), d.stream("s")

    @d.script("main")
    def main() -> None:
        d.memset(page, stream=s)
        d.free(page)
        s.synchronize()
        page.read()

    return d


def _graphs_share(d: fp.Design, captures: list[fp.Stream]) -> None:
    graphs = [d.graph("a")]
    graphs.append(d.graph("b", pool=graphs[0]))
    data, replays = [d.device("x"), d.device("y")], [d.stream("one"), d.stream("two")]

    @d.setup
    def capture() -> None:
        for graph, at, stream in zip(graphs, data, captures, strict=True):
            with graph.capture(stream):
                scratch = d.empty("scratch")
                d.launch("fill", reads=[at], writes=[scratch])
                d.launch("use", reads=[scratch], writes=[at])
                scratch.release()

    @d.script("main")
    def main() -> None:
        for graph, stream in zip(graphs, replays, strict=True):
            graph.replay(stream)


@declared(fp.REFUTED, "WAR scratch of a", "WAW scratch of a")
def graphs_share_a_pool() -> fp.Design:
    """Two graphs with one pool at the same time (S96)."""
    d = fp.Design("graphs share a pool")
    stream = d.stream("capture")
    _graphs_share(d, [stream, stream])
    return d


@declared(fp.PROVED)
def graphs_share_a_pool_and_no_stream() -> fp.Design:
    """Their allocations were in two streams, so no block is shared (S62)."""
    d = fp.Design("graphs share a pool and no stream")
    _graphs_share(d, [d.stream("capture"), d.stream("capture of b")])
    return d


@declared(fp.PROVED)
def noted_block_of_a_graph() -> fp.Design:
    """A block that a branch still uses, noted and released in the capture (S74)."""
    d = fp.Design("noted block of a graph")
    graph, main, side = d.graph("g"), d.stream("main"), d.stream("side")
    x, y = d.device("x"), d.device("y")

    @d.setup
    def capture() -> None:
        with graph.capture(main):
            first = d.empty("first")
            d.launch("fill", reads=[x], writes=[first])
            side.wait_stream(main)
            d.launch("branch", reads=[first], writes=[y], stream=side)
            first.record_stream(side)
            first.release()
            second = d.empty("second")
            d.launch("next", reads=[x], writes=[second])
            d.launch("use", reads=[second], writes=[x])
            main.wait_stream(side)

    @d.script("replays", stream=main)
    def replays() -> None:
        graph.replay()

    return d


@declared(fp.REFUTED, "WAR page")
def block_of_another_gpus_stream() -> fp.Design:
    """The block names a stream of one GPU, the tensor is of another, so the copy is in that one's default stream (S16)."""
    d = fp.Design("block of another GPU's stream")
    page, weights = d.pinned("page"), d.device("weights")
    onload = d.stream("onload", gpu=1)

    @d.script("main")
    def main() -> None:
        page.write()
        with onload:
            weights.copy_(page, non_blocking=True)
        onload.synchronize()
        page.write()

    return d


@declared(fp.PROVED)
def per_thread_stream_beside_the_legacy_one() -> fp.Design:
    """One thread in its per-thread default stream, another in the legacy one (S11, S12)."""
    d = fp.Design("per-thread stream beside the legacy one")
    x = d.device("x")

    @d.script("one", stream=d.stream("per-thread stream", blocking=True, several_threads=True))
    def one() -> None:
        d.launch("one's", reads=[x], writes=[x])

    @d.script("two")
    def two() -> None:
        d.launch("two's", reads=[x], writes=[x])

    return d


@declared(fp.REFUTED, "WAR host")
def sync_of_another_device() -> fp.Design:
    """`with stream:` makes the stream's device the current one, and a device-wide wait is of that one (S16, S32)."""
    d = fp.Design("sync of another device")
    host, there = d.pinned("host"), d.device("there", gpu=0)
    first, second = d.stream("first", gpu=0), d.stream("second", gpu=1)

    @d.loop("worker")
    def step() -> None:
        host.write()
        there.copy_(host, non_blocking=True, stream=first)
        with second:
            d.synchronize()

    return d


@declared(fp.REFUTED, "WAR host")
def default_stream_of_another_device() -> fp.Design:
    """And so is its default stream."""
    d = fp.Design("default stream of another device")
    host, there, second = d.pinned("host"), d.device("there", gpu=0), d.stream("second", gpu=1)

    @d.loop("worker")
    def step() -> None:
        host.write()
        there.copy_(host, non_blocking=True, stream=d.default_stream(0))
        with second:
            d.default_stream().synchronize()

    return d


@declared(fp.PROVED)
def sync_of_the_thread_s_device() -> fp.Design:
    """The stream of a thread sets its device."""
    d = fp.Design("sync of the thread's device")
    host, there, stream = d.pinned("host"), d.device("there", gpu=1), d.stream("stream", gpu=1)

    @d.loop("worker", stream=stream)
    def step() -> None:
        host.write()
        there.copy_(host, non_blocking=True)
        d.synchronize()

    return d


@declared(fp.REFUTED, "WAR host")
def one_step_and_no_wait() -> fp.Design:
    """A copy within the device does not hold the host (S49), also where each call on the stream is one step."""
    d = fp.Design("one step and no wait")
    stream = d.stream("stream", several_threads=True)
    host, x, y = d.pinned("host"), d.device("x"), d.device("y")

    @d.loop("worker", stream=stream)
    def step() -> None:
        host.write()
        x.copy_(host, non_blocking=True)
        y.copy_(x)

    return d


@declared(fp.PROVED)
def one_step_and_its_wait() -> fp.Design:
    """One to the host does (S33)."""
    d = fp.Design("one step and its wait")
    stream = d.stream("stream", several_threads=True)
    host, x, landing = d.pinned("host"), d.device("x"), d.pinned("landing")

    @d.loop("worker", stream=stream)
    def step() -> None:
        host.write()
        x.copy_(host, non_blocking=True)
        landing.copy_(x)

    return d


@declared(fp.REFUTED, "WAR fresh")
def one_step_and_no_note() -> fp.Design:
    """A blocking copy tells the host's allocator nothing (S79), so the raw one behind it stays unknown (S83)."""
    d = fp.Design("one step and no note")
    stream, x, y = d.stream("stream", several_threads=True), d.device("x"), d.device("y")

    @d.loop("worker", stream=stream)
    def step() -> None:
        fresh = d.empty_pinned("fresh")
        fresh.write()
        x.copy_(fresh)
        d.memcpy_async(y, fresh)

    return d
