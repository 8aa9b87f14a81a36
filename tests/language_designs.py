"""Designs that together use the whole language; the tracer and the plain-Python oracle must agree on each."""

from __future__ import annotations

from typing import Literal

import fencepost as fp


def input_prep(batch_queue_size: int = 2, guard: bool = False) -> fp.Design:
    """The example of the language's description."""
    d = fp.Design("input prep")
    lens_host = d.pinned("seq_lens")
    lens_dev = d.device("seq_lens_gpu")
    prep = d.event("prepare_inputs_event")
    results = d.queue("batch_queue", capacity=batch_queue_size, item=(fp.EVENT, fp.MEMORY, fp.MEMORY))
    output_stream = d.stream("output copy")

    @d.loop("worker")
    def step(n: fp.Turn) -> None:
        if guard:
            prep.synchronize()
        lens_host.write()
        lens_dev.copy_(lens_host, non_blocking=True)
        if guard:
            prep.record()
        tokens = d.empty("tokens")
        d.launch("forward", reads=[lens_dev], writes=[tokens])
        output_stream.wait_stream(d.current_stream())
        with output_stream:
            tokens_host = d.empty_pinned("tokens_cpu")
            tokens_host.copy_(tokens, non_blocking=True)
            copied = d.event("copied")
            copied.record()
        results.put(copied, tokens, tokens_host)
        if results.full():
            copied, tokens, tokens_host = results.get()
            copied.synchronize()
            tokens_host.read()

    return d


def turns(lead: int = 2) -> fp.Design:
    """The turn: ring slots around it, and comparisons with constants."""
    d = fp.Design("turns")
    slots = d.pinned("slot", depth=3)
    events = d.event("done", depth=3)
    streams = d.stream("work", depth=2)
    rows = d.device("rows")

    @d.loop("engine")
    def step(n: fp.Turn) -> None:
        if n == 0:
            d.memset(rows[n])
        if n >= lead:
            events[n - lead].synchronize()
        slots[n].write()
        with streams[n]:
            d.launch("forward", reads=[slots[n], slots[1]], writes=[rows[fp.ANY]])
            if n < 5:
                events[n].record()
        if n > 3 or n - 1 < 1:
            slots[n - 1]["head"].read()
            if n != 0:
                slots[n + 1].write(same_bytes=True)

    return d


def cursors() -> fp.Design:
    """Cursors that move several times a turn or not at all, and positions kept across an advance."""
    d = fp.Design("cursors")
    slots = d.pinned("slot", depth=4)
    done = d.event("done", depth=4)
    held = d.cell("held", depth=4, item=(fp.INDEX,))
    at = d.cursor("at", 4)
    scratch = d.pinned("scratch", depth=3)
    items = d.queue("items", capacity=2, item=(fp.INDEX, fp.INDEX))

    @d.loop("producer")
    def produce(n: fp.Turn) -> None:
        before = at.last()
        i = at.advance()
        slots[i].write()
        if d.choose("twice", [True, False]):
            i = at.advance()
            slots[before].read()
            slots[before + 2].write()
        held[i].set(i)
        done[i].record()
        slots[at.last()].read()
        scratch.take().write()
        scratch.take()[0:16].write()
        items.put(i, n)

    @d.loop("consumer")
    def consume() -> None:
        i, n = items.get()
        done[i].synchronize()
        slots[i - 1].read()
        scratch[n].read()
        if not held[i].empty():
            j = held[i].take()
            slots[j].read(harm="address")

    return d


def references() -> fp.Design:
    """Scopes, views, releases, cells and queues that hold tensors."""
    d = fp.Design("references")
    table = d.pinned("table")
    previous = d.cell("previous", item=(fp.EVENT, fp.MEMORY))
    side = d.stream("side")
    out = d.queue("out", capacity=3, item=fp.MEMORY)

    def compute() -> fp.Tensor:
        with d.scope("compute") as frame:
            scratch = d.empty("scratch", bytes=64)
            result = d.empty("result")
            d.launch("compute", reads=scratch, writes=[result, scratch["tail"]])
            frame.keep(result)
        return result

    @d.loop("worker")
    def step() -> None:
        result = compute()
        view = result.view()
        plain = table.view(attributed=False)
        plain.read()
        result.release()
        side.wait_stream(d.current_stream())
        host = view.to_cpu(non_blocking=True, stream=side)
        view.record_stream(side)
        copied = side.record_event(d.event("copied"))
        if not previous.empty():
            waited, old = previous.get()
            waited.synchronize()
            old.read()
        previous.set(copied, host)
        if not out.full():
            out.put(host)
        now = view.to_cpu()
        now.read()

    @d.loop("reader")
    def reader() -> None:
        first = out.get()
        first["rows"].read()
        if out.holds(1):
            out.get()

    return d


def optional_blocks() -> fp.Design:
    """Blocks that may not run, one in another, with questions and values in them."""
    d = fp.Design("optional blocks")
    buffer = d.pinned("buffer")
    copy = d.device("copy")
    ready = d.event("ready")
    other = d.stream("other")

    @d.loop("worker")
    def step() -> None:
        with d.maybe("new requests"):
            buffer["rows"].write()
            staged = d.empty_pinned("staged")
            staged.write()
            copy.copy_(staged, non_blocking=True)
            if ready.query():
                buffer["flags"].write()
            else:
                ready.synchronize()
            with d.maybe("grammar"):
                for part in ("a", "b"):
                    buffer[part].write()
            buffer["lens"].write()
        with other, d.maybe("on the other stream"):
            copy.copy_(buffer, non_blocking=True)
            ready.record()
        staged = d.empty_pinned("staged")
        staged.write()
        if d.choose("kind", ["full", "partial"]) == "full":
            with d.maybe("late"):
                buffer.write()
        copy.item(harm="shape")
        if d.choose("kind", ["full", "partial"]) == "partial":
            d.synchronize()

    return d


def drains() -> fp.Design:
    """Drain loops: with tags, questions, breaks, one in another, in and around optional blocks."""
    d = fp.Design("drains")
    jobs = d.queue("jobs", capacity=3, item={"copy": (fp.MEMORY, fp.EVENT), "stop": (), "slot": (fp.INDEX,)})
    acks = d.queue("acks", capacity=2, item=())
    slots = d.pinned("slot", depth=4)
    at = d.cursor("at", 4)

    @d.loop("producer")
    def produce() -> None:
        kind = d.choose("kind", ["copy", "stop", "slot"])
        if kind == "copy":
            block = d.empty_pinned("block")
            jobs.put("copy", block, d.event("filled"))
        elif kind == "slot":
            jobs.put(at.advance(), tag="slot")
        else:
            jobs.put(tag="stop")
        for _ in acks.drain():
            slots[at.last()].write()

    @d.loop("consumer")
    def consume() -> None:
        seen = slots[0]
        for job in jobs.drain():
            if job.tag == "stop":
                if d.choose("really", ["yes", "no"]) == "yes":
                    break
                continue
            with d.maybe("log"):
                seen.read()
            if job.tag == "slot":
                (i,) = job
                slots[i].read()
            else:
                block, filled = job
                with d.scope("copy"):
                    view = block.view()
                    filled.synchronize()
                    view.read()
                for _ in jobs.drain():
                    seen.write()
                    with d.maybe("inner"):
                        view = d.empty_pinned("tmp")
                        view.write()
            if not acks.full():
                acks.put()
        with d.maybe("idle"):
            for _ in jobs.drain():
                seen.read()
        seen.write()

    return d


def waits_of_threads() -> fp.Design:
    """Setup, scripts, locks, semaphores, flags, counters."""
    d = fp.Design("threads")
    shared = d.pageable("shared")
    managed = d.managed("unified")
    lock, free = d.lock("lock"), d.semaphore("free", 2)
    started, count = d.flag("started"), d.counter("steps")

    @d.setup
    def prepare() -> None:
        d.host("load", writes=[shared, managed], time=1e-3)

    @d.script("main")
    def main() -> None:
        started.set()
        if count >= 2:
            shared.read()
        started.clear()
        if not started.is_set():
            started.set()

    @d.loop("a")
    def a(n: fp.Turn) -> None:
        started.wait()
        free.acquire()
        with lock:
            shared.write()
        count.add()
        count.wait(n + 1)
        d.launch("in place", reads=[fp.read(managed, harm="quality")], writes=[fp.write(managed, same_bytes=True)])
        free.release()

    @d.loop("b")
    def b() -> None:
        if lock.try_acquire():
            shared.read()
            lock.release()
        count.wait(1)
        if d.current_stream().query():
            d.synchronize()
        d.current_stream().synchronize()

    return d


def pools(of: Literal["device", "row"] = "row") -> fp.Design:
    """Pools of rows and of memory, given back at once or behind an event."""
    d = fp.Design("pools")
    table = d.pinned("table")
    slots = d.pinned("slot", depth=3)
    pages = d.pool("pages", size=3, of=of)
    busy = d.queue("busy", capacity=3, item=(fp.HANDLE if of == "row" else fp.MEMORY, fp.EVENT))

    @d.loop("scheduler")
    def schedule() -> None:
        page = pages.take()
        done = d.event("done")
        if of == "row":
            table[page].write()
            slots[page].write()
            d.launch("gather", reads=[table[page]])
        else:
            d.launch("fill", writes=[page])
        done.record()
        busy.put(page, done)

    @d.loop("finisher")
    def finish() -> None:
        page, done = busy.get()
        if d.choose("wait", ["host", "device"]) == "host":
            done.synchronize()
            pages.give(page)
        else:
            pages.give(page, after=done)

    return d


def ranks(world: int = 2) -> fp.Design:
    """Processes on GPUs of their own, closures over ranks, a choice that all share."""
    d = fp.Design("ranks")
    inputs = []
    for r in range(world):
        with d.process(f"rank {r}", gpu=r):
            inputs.append(d.queue(f"input {r}", capacity=1, item=(fp.EVENT,)))

    def rank(r: int) -> None:
        own = d.device(f"activations {r}")

        @d.loop(f"rank {r}")
        def step() -> None:
            kind = d.choose("step kind", ["prefill", "decode"], agreed=True)
            if r > 0:
                arrived = inputs[r].get()
                arrived.wait()
            d.launch(kind, reads=[own], writes=[own[0:8]], time=2e-3)
            d.memcpy_async(own[8:16], own[0:8], stream=d.default_stream())
            if r + 1 < world:
                sent = d.event("sent", interprocess=True)
                sent.record()
                inputs[r + 1].put(sent)
            d.synchronize()

    for r in range(world):
        with d.process(f"rank {r}", gpu=r):
            rank(r)
    return d


def early_returns() -> fp.Design:
    """Returns from everywhere, and questions in expressions."""
    d = fp.Design("early returns")
    a, b = d.queue("a", capacity=2, item=()), d.queue("b", capacity=2, item=())
    buffer = d.pinned("buffer")

    @d.loop("left")
    def left() -> None:
        with d.scope("call"):
            tmp = d.empty_pinned("tmp")
            tmp.write()
            if a.full() or b.full():
                return
            a.put()
        if not (a.empty() and b.empty()) and d.choose("also", ["b", "c", "d"]) in ("b", "c"):
            b.put()
            buffer.write()
            return
        buffer.read()

    @d.loop("right")
    def right() -> None:
        for _ in a.drain():
            if d.choose("enough", [0, 1]):
                return
        for _ in b.drain():
            pass
        buffer.read()

    return d


def composites() -> fp.Design:
    """Calls that are several operations: blocking streams, cudaMemcpy, strided and peer copies, agents, graphs, barriers."""
    d = fp.Design("composites")
    a, b = d.device("a"), d.device("b", gpu=1)
    pinned, pageable = d.pinned("pinned", depth=2), d.pageable("pageable")
    blocking, pool = d.stream("blocking", blocking=True), d.torch_streams(size=2)
    one, two, again = pool.stream(), pool.stream(), pool.stream()
    third, fourth = d.stream("third"), d.stream("fourth")
    nic, group = d.agent("NIC", queues=2), d.communicator("tp", ["r0", "r1"])
    graph, plain = d.graph("g"), d.graph("h")
    blocks = d.pool("block", size=2, of="device")
    forked = d.event("forked")

    @d.setup
    def capture() -> None:
        block = blocks.take()
        with graph.capture(one):
            scratch = d.empty("scratch")
            d.launch("begin", reads=[block, pinned[1]], writes=[scratch])
            forked.record()
            two.wait_event(forked)
            d.launch("branch", reads=[scratch], writes=[block["rows"]], stream=two)
            pinned[0].copy_(block, non_blocking=True, stream=two)
            again.wait_stream(two)
            pageable.write()
        with plain.capture(two):
            d.memset(a)
        blocks.give(block)

    @d.loop("r0", stream=again)
    def first() -> None:
        d.memcpy(a, pageable)
        d.memcpy(pageable, a)
        d.memcpy(a, pinned[0])
        d.launch("K", reads=[a], stream=blocking)
        graph.replay()
        if d.choose("also", ["yes", "no"]) == "yes":
            graph.replay(two)
        a.copy_(pinned[1], non_blocking=True, strided=True)
        pinned[1].copy_(a, strided=True, stream=blocking)
        d.host_function("callback", reads=[pinned[0]])
        again.wait_stream(d.default_stream())
        group.host_barrier("r0")

    @d.loop("r1", stream=third)
    def second() -> None:
        plain.replay(fourth)
        d.peer_copy(b, a, source=fourth, target=third)
        sent = nic.post("send", reads=[b], after=fourth, queue=1)
        got = nic.post("receive", writes=[b], after=sent)
        fourth.wait_event(got)
        raw = a.view(held=False)
        raw.copy_(pinned[0], non_blocking=True)
        group.host_announce("r1")
        got.synchronize()
        group.host_wait("r1")

    return d


def kept_apart(concurrent: bool = False) -> fp.Design:
    """Managed memory of devices with and without concurrent access, host functions beside it, a graph, frees."""
    d = fp.Design("kept apart")
    m, ring = d.managed("m", concurrent=concurrent), d.managed("ring", depth=2)
    x, page = d.device("x"), d.pinned("page")
    nic, side, graph = d.agent("NIC"), d.stream("side"), d.graph("g")
    blocks = d.pool("block", size=2)

    @d.setup
    def capture() -> None:
        m.write()
        with graph.capture(side):
            d.launch("captured", reads=[x], writes=[m])
            d.host_function("captured function", reads=[page])

    @d.loop("main")
    def main(n: fp.Turn) -> None:
        ring[n].write()
        d.launch("K", reads=[ring[n]], writes=[x])
        d.host("look", reads=[m, page])
        page.read()
        d.host_function("callback", reads=[ring[n]], stream=side)
        d.host_function("nothing managed", writes=[page])
        nic.post("send", reads=[x])
        graph.replay()
        d.free(page)

    @d.loop("other", idle=True)
    def other() -> None:
        block = blocks.take()
        d.memset(block)
        blocks.free(block)
        m.read()

    return d


def sends(protocol: Literal["eager", "rendezvous"] = "eager") -> fp.Design:
    """Who gives data away, under either protocol, in exchanges too, and by two threads of a rank."""
    d = fp.Design("sends")
    names = ("r0", "r1")
    group = d.communicator("tp", names, protocol=protocol, several_threads=True, serial=True)

    def rank(me: str, other: str) -> None:
        x, y, turns = d.device(f"x {me}"), d.device(f"y {me}"), d.lock(f"turns {me}")

        @d.loop(me)
        def step() -> None:
            with turns:
                group.exchange([(x, other)], [(y, other)], async_op=True).wait()
                group.broadcast(x, root="r0")
                group.all_reduce(x)
                group.reduce(y, root="r1")
            if me == "r0":
                group.send(x, to=other)
            else:
                group.recv(y, source=other)
            if turns.try_acquire():
                turns.release()
            d.synchronize()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name, names[1 - number])

    other = d.device("x of another thread")

    @d.loop("another thread of r0", stream=d.stream("another stream"))
    def more() -> None:
        group.exchange(sends=[(other, "r1")], rank="r0")

    return d


def beside_the_legacy_stream() -> fp.Design:
    """Per-thread default streams of two threads, a third one in the legacy stream, a setup in front."""
    d = fp.Design("beside the legacy stream")
    x, page = d.device("x"), d.pinned("page")
    streams = [d.stream(f"stream {k}", blocking=True, several_threads=True) for k in range(2)]
    ready = d.event("ready")

    @d.setup
    def first() -> None:
        d.memset(x)
        d.memset(x, stream=streams[0])

    def thread(k: int) -> None:
        @d.loop(f"thread {k}", stream=streams[k])
        def step() -> None:
            d.launch("K", reads=[x], writes=[x])
            ready.record()
            page.copy_(x)
            if d.choose(f"of the other {k}", ["no", "yes"]) == "yes":
                streams[k].wait_stream(streams[1 - k])

    thread(0)
    thread(1)

    @d.loop("legacy")
    def legacy() -> None:
        ready.wait()
        d.launch("L", reads=[x], writes=[x])
        x.item()

    return d


def meetings(version: Literal["new", "old"] = "new") -> fp.Design:
    """Collectives of every kind, their works, device flags, callbacks."""
    d = fp.Design("meetings")
    names = ("r0", "r1", "r2")
    group = d.communicator("tp", names, version=version, serial=True)
    works = d.queue("works", capacity=2, item=(fp.EVENT, fp.MEMORY))
    ready = d.device_flag("ready")
    graph = d.graph("captured")
    state = d.pinned("state")

    def rank(me: str) -> None:
        x, out = d.device(f"x {me}"), d.device(f"out {me}", depth=2)
        side = d.stream(f"side {me}")

        @d.loop(me)
        def step(n: fp.Turn) -> None:
            group.all_reduce(x, match=4)
            group.all_gather(out[n], x)
            group.reduce_scatter([out[n]], [x])
            group.broadcast(x, root="r1", match="size")
            group.scatter(x, out[n] if me == "r0" else None, root="r0")
            group.reduce(x, root="r2")
            group.gather(x, out[n] if me == "r0" else None, root="r0")
            group.host_broadcast(root="r1")
            group.host_gather(root="r2")
            with d.scope("function"):
                fresh = d.empty("fresh")
                work = group.all_to_all(fresh, x, async_op=True)
            if me == "r0":
                group.send(x, to="r1", async_op=True)
                if work.is_completed():
                    x.record_stream(side)
                work.wait(blocking=True)
                notify.launch()
            elif me == "r1":
                group.recv(x, source="r0")
                if version == "new":
                    works.put(*group.all_reduce(d.empty("sent"), async_op=True).hand_over())
                    group.work(*works.get()).wait()
                side.write_value(ready, 2)
            else:
                with side:
                    group.rendezvous()
                side.wait_value(ready, 2, reset=True)
                ready.store(1)
            group.barrier()
            group.host_barrier()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            if number == 0:

                @d.callback("notify", d.stream("callbacks"))
                def notify() -> None:
                    with d.scope("in the callback"):
                        scratch = state.view()
                        scratch.read()

            rank(name)

    captured, reduced = d.stream("captured stream"), d.device("reduced")
    other = d.communicator("in a graph", names, version=version)

    @d.setup
    def capture() -> None:
        with graph.capture(captured):
            other.all_reduce(reduced, rank="r0")
            captured.write_value(ready, 1)

    @d.loop("replays", stream=d.stream("replay stream"))
    def replays() -> None:
        graph.replay()
        ready.wait(1)

    return d


def sharing() -> fp.Design:
    """Conditions, released locks, stream-ordered memory, a collector, memory between processes, records that fail."""
    d = fp.Design("sharing")
    lock, data, sent = d.lock("lock"), d.pageable("data"), d.ipc_queue("sent", capacity=2)
    go, done = d.condition("go", lock, waiters=2), d.event("done")
    main, side = d.stream("main"), d.stream("side")
    collector = d.collector("GC", stream=side, finaliser=lambda array: array.free_async())

    @d.loop("producer", stream=main)
    def produce() -> None:
        array = d.empty("array")
        d.launch("fill", writes=[array])
        sent.put(array, feeder=True)
        with lock:
            data.write()
            go.notify_all()
        other = d.malloc_async("other", stream=side)
        if d.choose("who", ["I", "GC"]) == "I":
            other.free_async(side)
        else:
            collector.unreachable(other)
        done.record(may_fail=True)

    with d.process("reader"):
        its = d.stream("reader's")

        @d.loop("consumer")
        def consume() -> None:
            with d.scope("batch"):
                batch = sent.get(opened=True)
                batch.record_stream(its)
                d.launch("read", reads=[batch], stream=its)
            again = sent.get()
            with lock:
                with lock.released():
                    data.read()
                if d.choose("wait", ["yes", "no"]) == "yes":
                    go.wait()
            done.synchronize()
            again.release()

    return d


def woken_in_order(way: str = "one") -> fp.Design:
    """A condition of several waiters that wakes who waits longest, one or all."""
    d = fp.Design("woken in order")
    lock, data = d.lock("lock"), d.pageable("data")
    go, alone = d.condition("go", lock, waiters=2, fifo=True), d.condition("alone", lock, fifo=True)
    first = d.flag("first")

    def waits() -> None:
        first.set()
        go.wait()
        data.read()
        alone.notify()

    @d.loop("one")
    def one() -> None:
        with lock:
            waits()

    @d.loop("two")
    def two() -> None:
        first.wait()
        with lock:
            waits()

    @d.loop("notifier")
    def notifies() -> None:
        with lock:
            data.write()
            go.notify_all() if way == "all" else go.notify()
            if d.choose("waits", ["yes", "no"]) == "yes":
                alone.wait()

    return d


CASES = [
    (input_prep, {}),
    (input_prep, {"guard": True, "batch_queue_size": 3}),
    (turns, {}),
    (cursors, {}),
    (references, {}),
    (optional_blocks, {}),
    (drains, {}),
    (waits_of_threads, {}),
    (pools, {}),
    (pools, {"of": "device"}),
    (ranks, {}),
    (ranks, {"world": 3}),
    (early_returns, {}),
    (composites, {}),
    (meetings, {}),
    (sharing, {}),
    (woken_in_order, {}),
    (woken_in_order, {"way": "all"}),
    (kept_apart, {}),
    (beside_the_legacy_stream, {}),
    (kept_apart, {"concurrent": True}),
    (sends, {}),
    (sends, {"protocol": "rendezvous"}),
]
