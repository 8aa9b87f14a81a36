"""Small designs of the caching allocators: who holds a block, who frees it, who may get it next."""

from __future__ import annotations

import fencepost as fp
from fencepost.model import program as p

from mutation.declared import DESIGNS, Declared, declared
from program_writer import Writer, r, w


@declared(fp.PROVED)
def record_stream() -> fp.Design:
    """The block comes back only when the side stream is done with it (S64, S65)."""
    d = fp.Design("record stream")
    side = d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty("t")
        d.launch("produce", writes=[t])
        side.wait_stream(d.current_stream())
        d.launch("consume", reads=[t], stream=side)
        t.record_stream(side)

    return d


@declared(fp.REFUTED, "WAR t")
def no_record_stream() -> fp.Design:
    """Without it the next owner's kernel may run first (case of ATOM #2654)."""
    d = fp.Design("no record stream")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty("t")
        d.launch("produce", writes=[t])
        side.wait_stream(d.current_stream())
        d.launch("consume", reads=[t], stream=side)

    return d


@declared(fp.REFUTED, "WAR t")
def record_stream_of_the_owner() -> fp.Design:
    """Ignored for the stream that owns the block (S64): another stream must wait itself."""
    d = fp.Design("record stream of the owner")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty("t")
        d.launch("first", writes=[t], stream=side)
        d.current_stream().wait_stream(side)
        d.launch("then", reads=[t])
        t.record_stream(d.current_stream())

    return d


@declared(fp.PROVED)
def pinned_source_noted() -> fp.Design:
    """`copy_` tells the host allocator of the copy: the block comes back when it is done (S79, S80)."""
    d = fp.Design("pinned source noted")
    g = d.device("g")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t.write()
        g.copy_(t, non_blocking=True)

    return d


@declared(fp.PROVED)
def pinned_target_noted() -> fp.Design:
    """So does a copy into the block."""
    d = fp.Design("pinned target noted")
    g = d.device("g")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t.write()
        t.read()
        t.copy_(g, non_blocking=True)

    return d


@declared(fp.REFUTED, "WAR t")
def raw_copy_is_not_noted() -> fp.Design:
    """`memcpy_async` tells nobody (S83)."""
    d = fp.Design("raw copy is not noted")
    g, scratch = d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.memcpy_async(g, t)

    return d


@declared(fp.REFUTED, "WAR t")
def view_is_not_attributed() -> fp.Design:
    """A copy through a view that the host allocator cannot attribute (S84)."""
    d = fp.Design("view is not attributed")
    g, scratch = d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        g.copy_(t.view(attributed=False), non_blocking=True)

    return d


@declared(fp.REFUTED, "WAR t")
def device_note_on_a_pinned_block() -> fp.Design:
    """record_stream is of the device allocator: a pinned block does not hear it (S72)."""
    d = fp.Design("device note on a pinned block")
    g, scratch = d.device("g"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.memcpy_async(g, t)
        t.record_stream(d.current_stream())

    return d


@declared(fp.REFUTED, "WAR t")
def device_view_is_not_attributed() -> fp.Design:
    """record_stream of what came through DLPack is ignored (S72)."""
    d = fp.Design("device view is not attributed")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty("t")
        d.launch("produce", writes=[t])
        side.wait_stream(d.current_stream())
        d.launch("consume", reads=[t], stream=side)
        t.view(attributed=False).record_stream(side)

    return d


@declared(fp.PROVED)
def pinned_blocks_of_two_processes() -> fp.Design:
    """Each process has a host allocator of its own (S80)."""
    d = fp.Design("pinned blocks of two processes")

    @d.script("one", process=d.process("p"))
    def one() -> None:
        t = d.empty_pinned("t")
        t.write()
        d.launch("first", reads=[t])

    @d.script("other", process=d.process("q"))
    def other() -> None:
        u = d.empty_pinned("u")
        u.write()
        d.launch("second", reads=[u])

    return d


@declared(fp.PROVED)
def blocks_stay_with_their_stream() -> fp.Design:
    """Free lists are per stream (S62, S63): each stream's blocks come back to it alone."""
    d = fp.Design("blocks stay with their stream")
    s = d.stream("s", depth=2)

    @d.loop("thread")
    def thread(n: fp.Turn) -> None:
        with s[n]:
            t = d.empty("t")
            d.launch("produce", writes=[t])
            d.launch("consume", reads=[t])

    return d


@declared(fp.PROVED)
def two_allocators() -> fp.Design:
    """Blocks of two streams and of the host allocator never meet."""
    d = fp.Design("two allocators")
    one, two, g = d.stream("one"), d.stream("two"), d.device("g")

    @d.loop("first")
    def first() -> None:
        with one:
            t = d.empty("t")
            d.launch("produce", writes=[t])
            d.launch("consume", reads=[t])

    @d.loop("second", stream=two)
    def second() -> None:
        u = d.empty("u")
        d.launch("produce", writes=[u])
        d.launch("consume", reads=[u])

    @d.loop("third")
    def third() -> None:
        h = d.empty_pinned("h")
        h.write()
        g.copy_(h)

    return d


@declared(fp.PROVED)
def block_handed_over() -> fp.Design:
    """The consumer holds the block; its release frees it, and the next owner comes after that."""
    d = fp.Design("block handed over")
    q = d.queue("q", capacity=1, item=fp.MEMORY)

    @d.loop("producer")
    def producer() -> None:
        t = d.empty_pinned("t")
        t.write()
        q.put(t)

    @d.loop("consumer")
    def consumer() -> None:
        q.get().read()

    return d


@declared(fp.PROVED)
def block_in_a_cell() -> fp.Design:
    """A cell holds the block until it is set over or cleared; a get holds it once more."""
    d = fp.Design("block in a cell")
    cell, lock = d.cell("cell", item=fp.MEMORY), d.lock("lock")

    @d.loop("producer")
    def producer() -> None:
        t = d.empty_pinned("t")
        t.write()
        with lock:
            cell.set(t)
            with d.maybe("forget"):
                cell.clear()

    @d.loop("consumer")
    def consumer() -> None:
        with lock:
            if cell.empty():
                return
            t = cell.get()
        t.read()

    return d


@declared(fp.PROVED)
def block_taken_from_a_cell() -> fp.Design:
    """A take moves the reference."""
    d = fp.Design("block taken from a cell")
    cell = d.cell("cell", item=fp.MEMORY)

    @d.loop("producer")
    def producer() -> None:
        t = d.empty_pinned("t")
        t.write()
        if cell.empty():
            cell.set(t)

    @d.loop("consumer")
    def consumer() -> None:
        if not cell.empty():
            cell.take().read()

    return d


@declared(fp.REFUTED, "WAR t")
def cell_lets_go() -> fp.Design:
    """Setting over lets the old block go, though a kernel may still read it."""
    d = fp.Design("cell lets go")
    cell, scratch = d.cell("cell", item=fp.MEMORY), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.launch("in place", reads=[t])
        cell.set(t)

    return d


@declared(fp.REFUTED, "WAR t")
def cell_lets_go_when_cleared() -> fp.Design:
    """So does clearing."""
    d = fp.Design("cell lets go when cleared")
    cell, scratch = d.cell("cell", item=fp.MEMORY), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.launch("in place", reads=[t])
        cell.set(t)
        t.release()
        cell.clear()
        u = d.empty_pinned("u")
        u.write()
        d.current_stream().synchronize()

    return d


@declared(fp.REFUTED, "UNDEFINED t")
def raw_pointer() -> fp.Design:
    """A raw pointer holds nothing: the kernel reads through it after the free."""
    d = fp.Design("raw pointer")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        w = t.view("w", held=False)
        t.release()
        u = d.empty_pinned("u")
        d.launch("fill", writes=[u], stream=side)
        d.launch("use", reads=[w])
        side.synchronize()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def view_holds() -> fp.Design:
    """A view holds the block when the tensor is gone."""
    d = fp.Design("view holds")
    q = d.queue("q", capacity=1, item=fp.MEMORY)

    @d.loop("producer")
    def producer() -> None:
        t = d.empty_pinned("t")
        t.write()
        v = t.view("v")
        t.release()
        q.put(v)

    @d.loop("consumer")
    def consumer() -> None:
        q.get().read()

    return d


@declared(fp.REFUTED, "WAR t")
def released_early() -> fp.Design:
    """A release in the middle of the turn frees the block at once."""
    d = fp.Design("released early")
    scratch = d.pageable("scratch")

    @d.loop("thread")
    def thread() -> None:
        scratch.write()
        scratch.read()
        t = d.empty_pinned("t")
        t.write()
        d.launch("in place", reads=[t])
        t.release()
        u = d.empty_pinned("u")
        u.write()
        d.current_stream().synchronize()

    return d


@declared(fp.PROVED)
def both_threads_hold() -> fp.Design:
    """Whoever lets go last frees the block, after *both* let go."""
    d = fp.Design("both threads hold")
    q = d.queue("q", capacity=2, item=(fp.EVENT, fp.MEMORY))
    side = d.stream("side")

    @d.loop("worker")
    def worker() -> None:
        t = d.empty("t")
        d.launch("produce", writes=[t])
        side.wait_stream(d.current_stream())
        d.launch("consume", reads=[t], stream=side)
        done = d.event("done")
        done.record(side)
        q.put(done, t)

    @d.loop("output thread")
    def output() -> None:
        done, _ = q.get()
        done.synchronize()

    return d


@declared(fp.PROVED)
def kinds_of_memory_apart() -> fp.Design:
    """A pinned block never comes back as device memory."""
    d = fp.Design("kinds of memory apart")
    side, scratch = d.stream("side"), d.pageable("scratch")

    @d.script("once")
    def once() -> None:
        scratch.write()
        scratch.read()
        h = d.empty_pinned("h")
        h.write()
        d.launch("in place", reads=[h], stream=side)

    @d.loop("thread")
    def thread() -> None:
        t = d.empty("t")
        d.launch("produce", writes=[t])
        d.launch("consume", reads=[t])

    return d


def _two_owners(name: str, part: str | slice, next_part: str | slice, same_bytes: bool = False, bytes: int = 4096, owners: int = 1) -> fp.Design:
    """A read on another stream is pending when the block goes on, to one or more owners of so many bytes."""
    d = fp.Design(name)
    stream, side = d.stream("stream"), d.stream("side")

    @d.loop("thread", stream=stream)
    def thread() -> None:
        x = d.empty("x", bytes=4096)
        d.launch("fill", writes=[x])
        side.wait_stream(stream)
        d.launch("read", reads=[x[part]], stream=side)
        x.release()
        for k in range(owners):
            y = d.empty(f"y{k}", bytes=bytes)
            d.launch("fill y", writes=[fp.write(y[next_part], same_bytes=same_bytes)])
            if not same_bytes:
                d.launch("read y", reads=[y[next_part]])
        stream.wait_stream(side)

    return d


@declared(fp.REFUTED, "WAR x")
def names_of_two_owners() -> fp.Design:
    """Names are names of parts of one tensor."""
    return _two_owners("names of two owners", "a", "b")


@declared(fp.REFUTED, "WAR x")
def second_half_of_a_block() -> fp.Design:
    """The second of two smaller owners begins in the middle (S70)."""
    return _two_owners("second half of a block", slice(2048, 4096), slice(0, 64), bytes=2048, owners=2)


@declared(fp.REFUTED, "WAR x")
def same_bytes_of_another_owner() -> fp.Design:
    """What the next owner leaves as it is was written by that owner."""
    return _two_owners("same bytes of another owner", slice(0, 4096), slice(0, 4096), same_bytes=True)


@declared(fp.PROVED)
def names_of_one_owner() -> fp.Design:
    """Here they do tell."""
    d = fp.Design("names of one owner")
    stream, side = d.stream("stream"), d.stream("side")

    @d.loop("thread", stream=stream)
    def thread() -> None:
        x = d.empty("x")
        d.launch("fill", writes=[x])
        side.wait_stream(stream)
        d.launch("read", reads=[x["a"]], stream=side)
        d.launch("fill again", writes=[x["b"]])
        d.launch("read again", reads=[x["b"]])
        stream.wait_stream(side)

    return d


def _scope_ends() -> p.Program:
    """A block that no release lets go: the end of the turn does (written as data, the language releases itself)."""
    x = Writer()
    x.objects = [p.Stream("main"), p.Stream("side")]
    thread = x.thread()
    t = p.Local(thread.local("t", p.MEMORY))
    thread.body = [
        p.Alloc(t.id, "device", p.Obj(0)), p.Launch("produce", p.Obj(0), (w(t),)), p.WaitStream(p.Obj(1), p.Obj(0)),
        p.Launch("consume", p.Obj(1), (r(t),)),
    ]  # fmt: skip
    return x.program("scope ends")


DESIGNS["scope_ends_with_the_turn"] = Declared(_scope_ends, fp.REFUTED, ("WAR t",))
