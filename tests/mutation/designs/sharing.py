"""Small designs of what threads and processes share: callbacks, memory in stream order, IPC, released locks, works that nobody awaits."""

from __future__ import annotations

import fencepost as fp

from mutation.declared import declared


@declared(fp.PROVED)
def callback_behind_a_copy() -> fp.Design:
    """The body of a callback reads what the stream copied before it was launched (S103)."""
    d = fp.Design("callback behind a copy")
    s, x, page = d.stream("s"), d.device("x"), d.pinned("page")

    @d.callback("notify", stream=s)
    def notify() -> None:
        page.read()

    @d.script("main")
    def main() -> None:
        page.copy_(x, non_blocking=True, stream=s)
        notify.launch()

    return d


@declared(fp.PROVED)
def copy_behind_a_callback() -> fp.Design:
    """What follows a callback in its stream comes after its body (S103)."""
    d = fp.Design("copy behind a callback")
    s, x, page = d.stream("s"), d.device("x"), d.pinned("page")

    @d.callback("fill", stream=s)
    def fill() -> None:
        page.write()

    @d.script("main")
    def main() -> None:
        fill.launch()
        x.copy_(page, non_blocking=True, stream=s)

    return d


def _ordered(d: fp.Design, *, before: bool = True, after: bool = True) -> None:
    s, u = d.stream("s"), d.stream("u")

    @d.script("main")
    def main() -> None:
        block = d.malloc_async("block", stream=s)
        if before:
            u.wait_stream(s)
        d.launch("use", writes=[block], stream=u)
        if after:
            s.wait_stream(u)
        block.free_async(s)


@declared(fp.REFUTED, "WAW block")
def used_while_it_is_freed() -> fp.Design:
    """Nothing orders the free with the use on another stream (S38)."""
    d = fp.Design("used while it is freed")
    _ordered(d, after=False)
    return d


@declared(fp.REFUTED, "WAW block")
def used_before_it_is_there() -> fp.Design:
    """Nothing orders the use on another stream with the allocation (S76)."""
    d = fp.Design("used before it is there")
    _ordered(d, before=False)
    return d


@declared(fp.PROVED)
def freed_on_another_stream() -> fp.Design:
    """The next owner of the memory comes after the free, whichever stream that was on (S76)."""
    d = fp.Design("freed on another stream")
    s, u = d.stream("s"), d.stream("u")

    @d.loop("main", stream=s)
    def main() -> None:
        block = d.malloc_async("block", stream=s)
        u.wait_stream(s)
        block.free_async(u)

    return d


def _processes(d: fp.Design, *, feeder: bool = False, opened: bool = False, again: bool = False) -> None:
    sender, receiver = d.process("sender"), d.process("receiver")
    with sender:
        s = d.stream("s")
    with receiver:
        u = d.stream("u")
    ipc = d.ipc_queue("ipc")
    kind = d.loop if again else d.script

    @kind("send", process=sender, stream=s)
    def send() -> None:
        block = d.empty("block")
        d.launch("fill", writes=[block])
        ipc.put(block, feeder=feeder)

    @kind("receive", process=receiver, stream=u)
    def receive() -> None:
        got = ipc.get(opened=opened)
        d.launch("use", reads=[got])


@declared(fp.PROVED)
def received_from_a_process() -> fp.Design:
    """The receiver's stream waits for the sender's event (S135), and the last reference for the receiver's stream (S138)."""
    d = fp.Design("received from a process")
    _processes(d, again=True)
    return d


@declared(fp.REFUTED, "RAW block")
def received_through_a_feeder() -> fp.Design:
    """The feeder thread's current stream is not the sender's (S136)."""
    d = fp.Design("received through a feeder")
    _processes(d, feeder=True)
    return d


@declared(fp.REFUTED, "RAW block")
def received_where_it_is_open() -> fp.Design:
    """A storage that is open already is waited for by nobody (S137)."""
    d = fp.Design("received where it is open")
    _processes(d, opened=True)
    return d


@declared(fp.PROVED)
def lock_let_go_inside() -> fp.Design:
    """Another thread gets the lock while its holder has let go of it, so its write comes to be."""
    d = fp.Design("lock let go inside")
    lock, inside, done, x = d.lock("lock"), d.flag("inside"), d.flag("done"), d.pinned("x")

    @d.script("holder")
    def holder() -> None:
        with lock:
            inside.set()
            with lock.released():
                done.wait()
        x.read()

    @d.script("other")
    def other() -> None:
        inside.wait()
        with lock:
            x.write()
            done.set()

    return d


@declared(fp.PROVED)
def work_that_nobody_awaits() -> fp.Design:
    """What it kept goes back when the group's stream has finished (S128)."""
    d = fp.Design("work that nobody awaits")
    comm = d.communicator("comm", ["a", "b"], capacity=1)
    s, u, x, ended = d.stream("s"), d.stream("u"), d.device("x"), d.event("ended", depth=2)

    @d.loop("one", stream=s)
    def one(n: fp.Turn) -> None:
        block = d.empty("block")
        d.launch("fill", writes=[block])
        comm.all_reduce(block, rank="a", async_op=True)
        ended[n].record(comm.stream("a"))
        ended[n - 1].synchronize()

    @d.loop("two", stream=u)
    def two() -> None:
        comm.all_reduce(x, rank="b")
        u.synchronize()

    return d


@declared(fp.REFUTED, "WAR z")
def exchange_beside_a_collective() -> fp.Design:
    """An exchange meets exchanges alone: a rank may make the two calls in the other order, and comes to what is behind them."""
    d = fp.Design("exchange beside a collective")
    comm = d.communicator("comm", ["a", "b"], capacity=2)
    s, u, v, x, y, z = d.stream("s"), d.stream("u"), d.stream("v"), d.device("x"), d.device("y"), d.device("z")

    @d.script("one", stream=s)
    def one() -> None:
        d.launch("read beside", reads=[z], stream=v)
        comm.exchange(sends=[(x, "b")], rank="a")
        comm.rendezvous(rank="a")

    @d.script("two", stream=u)
    def two() -> None:
        comm.rendezvous(rank="b")
        comm.exchange(recvs=[(y, "a")], rank="b")
        d.launch("update", reads=[z], writes=[z])

    return d


@declared(fp.REFUTED, "WAW pages")
@declared(fp.PROVED, platform="cuda-synchronising-free")
def token_freed_by_a_call() -> fp.Design:
    """A token comes back by a call that may wait for the device (S38)."""
    d = fp.Design("token freed by a call")
    pages, s = d.pool("pages", size=1, of="pinned"), d.stream("s")

    @d.script("main")
    def main() -> None:
        page = pages.take("page")
        d.memset(page, stream=s)
        pages.free(page)
        again = pages.take("again")
        again.write()
        again.read()
        pages.give(again)

    return d


@declared(fp.PROVED)
def kernel_of_another_gpus_memory() -> fp.Design:
    """A stream of another GPU says nothing to a kernel of this one, which goes to the default stream (S16)."""
    d = fp.Design("kernel of another GPU's memory")
    far, x = d.stream("far", gpu=1), d.device("x")

    @d.script("main")
    def main() -> None:
        with far:
            d.launch("fill", writes=[x])
        d.launch("use", reads=[x])

    return d


@declared(fp.REFUTED, "WAR ring", held=True)
def root_that_waits_for_room() -> fp.Design:
    """A root that is two broadcasts ahead has to wait, and orders nothing by that."""
    d = fp.Design("root that waits for room")
    comm = d.communicator("comm", ["a", "b"])
    ring = d.pinned("ring", depth=4)

    @d.loop("root")
    def root(n: fp.Turn) -> None:
        ring[n].write()
        comm.host_broadcast("a", "a")

    @d.loop("leaf")
    def leaf(n: fp.Turn) -> None:
        comm.host_broadcast("a", "b")
        ring[n].read()

    return d
