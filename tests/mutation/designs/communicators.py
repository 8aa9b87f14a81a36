"""Small designs of communicators: collectives on devices, barriers on hosts, works that keep their memory."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


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
