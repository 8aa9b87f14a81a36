"""Designs of a fourth round that were answered wrongly, or refused, each with its right answer."""

from __future__ import annotations

from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.model import program as p
from fencepost.proofs.check import check
from fencepost.steady import run


def answered(build: Callable[..., fp.Design], **parameters: object) -> tuple[str, set[str]]:
    answer = check(fp.program_of(build, parameters))
    return answer.verdict, {hazard.name for hazard in answer.hazards}


# ---------------------------------------------------------------- the current device


def waits_beside(how: str = "device") -> fp.Design:
    """Waits on the current device, GPU 1, for a copy that GPU 0 makes."""
    d = fp.Design("waits_beside")
    host, there = d.pinned("host"), d.device("there", gpu=0)
    first, second = d.stream("first", gpu=0), d.stream("second", gpu=1)

    @d.loop("worker")
    def step() -> None:
        host.write()
        there.copy_(host, non_blocking=True, stream=d.default_stream(0) if "default" in how else first)
        with second:
            if how == "device":
                d.synchronize()
            elif how == "device, named":
                d.synchronize(gpu=0)
            elif how == "default":
                d.default_stream().synchronize()
            elif how == "default, named":
                d.default_stream(0).synchronize()

    return d


@pytest.mark.parametrize("how", ["device", "default"])
def test_a_wait_on_the_current_device(how: str) -> None:
    """torch.cuda.synchronize() and default_stream() are of the current device, which `with stream:` sets (S16, S32)."""
    assert answered(waits_beside, how=how) == (fp.REFUTED, {"WAR host"})
    assert answered(waits_beside, how=f"{how}, named") == (fp.PROVED, set())


def waits_on_its_own(named: bool = False) -> fp.Design:
    d = fp.Design("waits_on_its_own")
    host, there, stream = d.pinned("host"), d.device("there", gpu=1), d.stream("stream", gpu=1)

    @d.loop("worker", stream=stream)
    def step() -> None:
        host.write()
        there.copy_(host, non_blocking=True)
        if named:
            d.synchronize(gpu=0)
        else:
            d.synchronize()

    return d


def test_the_stream_of_a_thread_sets_its_device() -> None:
    assert answered(waits_on_its_own) == (fp.PROVED, set())
    assert answered(waits_on_its_own, named=True) == (fp.REFUTED, {"WAR host"})


# ---------------------------------------------------------------- one call beside the legacy stream


def callback_beside_legacy(waits: bool = True) -> fp.Design:
    """One thread's callback on a blocking stream, and another's copies on the legacy one."""
    d = fp.Design("callback_beside_legacy")
    host, there = d.pinned("host"), d.device("there")
    blocking = d.stream("blocking", blocking=waits, several_threads=True)

    @d.callback("fill", blocking)
    def fill() -> None:
        host.write()

    @d.loop("launches", stream=blocking)
    def launches() -> None:
        fill.launch()
        blocking.synchronize()

    @d.loop("copies")
    def copies() -> None:
        there.copy_(host, non_blocking=True)
        d.default_stream().synchronize()

    return d


def test_a_callback_is_one_item_of_its_stream_beside_the_legacy_one() -> None:
    """What the legacy stream enqueues comes before or after all of it (S11, S103); of a non-blocking stream nothing does."""
    assert answered(callback_beside_legacy) == (fp.PROVED, set())
    assert answered(callback_beside_legacy, waits=False) == (fp.REFUTED, {"WAR host", "RAW host"})


def graph_beside_legacy(reader: str = "legacy", several_threads: bool = True) -> fp.Design:
    """One thread launches a graph with a branch on a blocking stream, another reads what it writes."""
    d = fp.Design("graph_beside_legacy")
    x, y = d.device("x"), d.device("y")
    blocking = d.stream("blocking", blocking=True, several_threads=several_threads)
    side, apart, graph = d.stream("side"), d.stream("apart"), d.graph("graph")

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

    @d.loop("reads", stream={"legacy": None, "blocking": blocking, "apart": apart}[reader])
    def reads() -> None:
        d.launch("reader", reads=[x, y])

    return d


def test_a_launch_of_a_graph_is_one_item_beside_the_legacy_stream() -> None:
    """S11, S93; a second thread on the blocking stream itself comes before or after it, too."""
    for reader in ("legacy", "blocking"):
        assert answered(graph_beside_legacy, reader=reader) == (fp.PROVED, set())
    assert answered(graph_beside_legacy, reader="apart")[0] == fp.REFUTED
    with pytest.raises(fp.DesignError, match=r"make it with d\.stream\('blocking', several_threads=True\)"):
        fp.program_of(graph_beside_legacy, {"reader": "blocking", "several_threads": False})


# ---------------------------------------------------------------- variables of a drain


def drains(how: str) -> fp.Design:
    """Waits for the copy of every result, in the ways in which result loops are written."""
    d = fp.Design("drains")
    results = d.queue("results", 2, item={"token": (fp.EVENT,), "abort": (fp.EVENT,)})
    host, there, stream = d.pinned("host"), d.device("there"), d.stream("stream")

    @d.loop("worker", stream=stream)
    def step() -> None:
        host.write()
        there.copy_(host, non_blocking=True)
        copied = d.event("copied")
        copied.record()
        results.put(d.choose("kind", ["token", "abort"]), copied)
        for result in results.drain():
            kind = result.tag
            if how == "a query":
                done = result[0].query()
                if done:
                    continue
            if how == "leaves":
                if kind == "abort":
                    break
                result[0].synchronize()
            elif kind == "token" or how != "forgets one":
                result[0].synchronize()
        if how == "leaves":
            stream.synchronize()
        kind = "" if how == "leaves" else "all"
        d.launch(kind, stream=stream)

    return d


@pytest.mark.parametrize("how", ["all", "a query", "leaves"])
def test_a_variable_that_each_iteration_sets_first(how: str) -> None:
    assert answered(drains, how=how) == (fp.PROVED, set())


def test_a_variable_that_each_iteration_sets_first_still_decides() -> None:
    assert answered(drains, how="forgets one") == (fp.REFUTED, {"WAR host"})


def test_a_variable_that_an_iteration_leaves_to_the_next() -> None:
    d = fp.Design("next")
    results, stream = d.queue("results", 2, item={"token": (), "abort": ()}), d.stream("stream")

    def step() -> None:
        kind = ""
        for result in results.drain():
            if kind == "abort":
                stream.synchronize()
            kind = result.tag

    with pytest.raises(fp.DesignError, match="'kind' changes in every iteration of the drain loop"):
        d.loop("worker", stream=stream)(step)


@pytest.mark.parametrize("where", ["behind", "else", "around", "a closure", "by its name"])
def test_a_variable_that_is_read_behind_the_loop(where: str) -> None:
    d = fp.Design("behind")
    results, stream = d.queue("results", 2, item={"token": (), "abort": ()}), d.stream("stream")

    def uses(kind: str) -> None:
        if kind == "abort":
            stream.synchronize()

    def behind() -> None:
        kind = ""
        for result in results.drain():
            kind = result.tag
        uses(kind)

    def otherwise() -> None:
        kind = ""
        for result in results.drain():
            kind = result.tag
        else:
            uses(kind)

    def around() -> None:
        kind = ""
        for _ in range(2):
            uses(kind)
            for result in results.drain():
                kind = result.tag

    def closure() -> None:
        kind = ""

        def late() -> None:
            uses(kind)

        for result in results.drain():
            kind = result.tag
        late()

    def by_its_name() -> None:
        kind = ""
        for result in results.drain():
            kind = result.tag
        uses(locals()["kind"])

    bodies = {"behind": behind, "else": otherwise, "around": around, "a closure": closure, "by its name": by_its_name}
    with pytest.raises(fp.DesignError, match=r"'(kind|late)' changes in every iteration of the drain loop"):
        d.loop("worker", stream=stream)(bodies[where])


# ---------------------------------------------------------------- each call is one step


def calls(how: str, several_threads: bool) -> fp.Design:
    """Copies from pinned memory that is refilled in the next turn, with a call behind that does not wait for them, or does."""
    d = fp.Design("calls")
    stream, item = d.stream("stream", several_threads=several_threads), d.queue("item", 1, item=(fp.MEMORY,))
    host, x, y = d.pinned("host"), d.device("x"), d.device("y")
    landing, pageable = d.pinned("landing"), d.pageable("pageable")

    @d.loop("worker", stream=stream)
    def step() -> None:
        host.write()
        if how == "freed":
            fresh = d.empty_pinned("fresh")
            fresh.write()
            x.copy_(fresh)
            d.memcpy_async(y, fresh)
        else:
            x.copy_(host, non_blocking=True)
        if how == "within the device":
            y.copy_(x)
        elif how == "a view":
            y.copy_(x[0:64])
        elif how == "within the host":
            landing.copy_(pageable)
        elif how == "of the host":
            pageable.item()
        elif how in ("received", "received item"):
            mine = d.empty("mine") if how == "received" else d.empty_pinned("mine")
            mine.copy_(x, non_blocking=True) if how == "received" else mine.write()
            item.put(mine)
            got = item.get()
            y.copy_(got) if how == "received" else got.item()
        elif how == "to the host":
            landing.copy_(x)
        elif how == "an item":
            x.item()

    return d


@pytest.mark.parametrize("several_threads", [False, True])
@pytest.mark.parametrize("how", ["within the device", "a view", "within the host", "of the host", "received", "received item", "freed"])
def test_a_call_that_does_not_wait(how: str, several_threads: bool) -> None:
    """S49, S79, S83: that each call on the stream is one step among those of other threads makes none of them wait, and tells no allocator."""
    verdict, hazards = answered(calls, how=how, several_threads=several_threads)
    assert verdict == fp.REFUTED
    assert {name.partition(" ")[2].rstrip("'") for name in hazards} == {"fresh" if how == "freed" else "host"}


@pytest.mark.parametrize("several_threads", [False, True])
@pytest.mark.parametrize("how", ["to the host", "an item"])
def test_a_call_that_waits(how: str, several_threads: bool) -> None:
    """S33."""
    assert answered(calls, how=how, several_threads=several_threads) == (fp.PROVED, set())


# ---------------------------------------------------------------- copies that do not wait, where nothing may


def captures(non_blocking: bool = False, waits: bool = True) -> fp.Design:
    """The usual first line of a captured forward: the static input is filled by a copy."""
    d = fp.Design("captures")
    stream, graph = d.stream("stream"), d.graph("graph")
    host, x, y = d.pinned("host"), d.device("x"), d.device("y")

    @d.setup(stream=stream)
    def setup() -> None:
        with graph.capture():
            y.copy_(x, non_blocking)
            d.launch("forward", reads=[y])

    @d.loop("worker", stream=stream)
    def step() -> None:
        host.write()
        x.copy_(host, non_blocking=True)
        graph.replay()
        if waits:
            stream.synchronize()

    return d


@pytest.mark.parametrize("non_blocking", [False, True])
def test_a_copy_within_the_device_is_captured(non_blocking: bool) -> None:
    """S49, S99: it never waits, with or without non_blocking."""
    assert answered(captures, non_blocking=non_blocking) == (fp.PROVED, set())
    assert answered(captures, non_blocking=non_blocking, waits=False) == (fp.REFUTED, {"WAR host"})


def in_callback(call: str, waits: bool = True) -> fp.Design:
    """A host function copies what has landed to where another thread reads it, or looks at it."""
    d = fp.Design("in_callback")
    stream, landed, kept, x = d.stream("stream"), d.pinned("landed"), d.pageable("kept"), d.device("x")

    @d.callback("take", stream)
    def take() -> None:
        if call == "copy_":
            kept.copy_(landed)
        elif call == "item":
            landed.item()
        else:
            kept.copy_(x)

    @d.loop("worker", stream=stream)
    def step() -> None:
        d.launch("forward", writes=[x])
        landed.copy_(x, non_blocking=True)
        take.launch()
        if waits:
            stream.synchronize()
        kept.read()

    return d


def test_what_stays_on_the_host_is_no_cuda_call() -> None:
    """S49, S104."""
    for call in ("copy_", "item"):
        assert answered(in_callback, call=call) == (fp.PROVED, set())
    assert answered(in_callback, call="copy_", waits=False)[0] == fp.REFUTED
    with pytest.raises(fp.DesignError, match="a host function may not call CUDA"):
        fp.program_of(in_callback, {"call": "from the device"})


def captured_again(where: str) -> fp.Design:
    d = fp.Design("captured_again")
    stream, graph, x, y = d.stream("stream"), d.graph("graph"), d.device("x"), d.device("y")
    more = d.graph("more")

    @d.setup(stream=stream)
    def setup() -> None:
        with graph.capture():
            d.launch("first", writes=[x])
        if where != "another body":
            with (more if where == "another graph" else graph).capture():
                d.launch("second", writes=[y])

    if where == "another body":

        @d.script("again", stream=stream)
        def again() -> None:
            with graph.capture():
                d.launch("second", writes=[y])

    @d.loop("worker", stream=stream)
    def step() -> None:
        if d.choose("ready", ["yes", "no"]) == "yes":
            graph.replay()

    return d


@pytest.mark.parametrize("where", ["the same body", "another body"])
def test_a_graph_is_captured_once(where: str) -> None:
    """As torch.cuda.CUDAGraph says. Which capture a replay means would depend on the order of the bodies in the text."""
    assert fp.program_of(captured_again, {"where": "another graph"})
    with pytest.raises(fp.DesignError, match="graph 'graph' is captured a second time"):
        fp.program_of(captured_again, {"where": where})


# ---------------------------------------------------------------- loops that are given work


def consumers(several: int = 1, first: str = "get", idle: bool = True) -> fp.Design:
    """Workers that take items of two kinds, whose get is one step behind a lock."""
    d = fp.Design("consumers")
    work = d.queue("work", 2, item={"a": (), "b": ()}, several_threads=True)
    enough, done = d.semaphore("enough", 3), d.flag("done")

    def take() -> None:
        if first == "permit":
            enough.acquire()
        elif first == "flag":
            done.set()
        if work.get().tag == "a":
            d.host("handle a")
        else:
            d.host("handle b")

    for k in range(several):
        d.loop(f"consumer {k}", idle=idle)(take)

    @d.script("producer")
    def producer() -> None:
        work.put("a")
        work.put("b")

    return d


@pytest.mark.parametrize("several", [1, 2])
def test_an_idle_loop_waits_behind_the_lock_of_its_get(several: int) -> None:
    """Between two turns it waits for work: the lock that makes its get one step is the language's own."""
    assert not check(fp.program_of(consumers, {"several": several})).hangs
    assert check(fp.program_of(consumers, {"several": several, "idle": False})).hangs


@pytest.mark.parametrize("first", ["permit", "flag"])
def test_an_idle_loop_that_has_begun_to_work_can_hang(first: str) -> None:
    assert check(fp.program_of(consumers, {"first": first})).hangs


def pool_worker(idle: bool = True, holds: str = "") -> fp.Design:
    """The usual worker of a pool: it waits on a condition until there is work."""
    d = fp.Design("pool_worker")
    lock, work, other = d.lock("lock"), d.queue("work", 2), d.lock("other")
    news = d.condition("news", lock)

    @d.loop("worker", idle=idle)
    def worker() -> None:
        if holds:
            other.acquire()
        with lock:
            if work.empty():
                news.wait()
                if holds:
                    other.release()
                return
            work.get()
        d.host("handle")
        if holds:
            other.release()

    @d.script("producer")
    def producer() -> None:
        with lock:
            work.put()
            news.notify()
        if holds:
            other.acquire()
            other.release()

    return d


def test_an_idle_loop_waits_on_its_condition() -> None:
    answer = check(fp.program_of(pool_worker, {}))
    assert not answer.hangs and not any("no thread can move" in note for note in answer.notes)
    assert check(fp.program_of(pool_worker, {"idle": False})).hangs


def test_who_waits_for_the_lock_of_an_idle_loop_hangs() -> None:
    hangs = check(fp.program_of(pool_worker, {"holds": "other"})).hangs
    assert hangs and "producer waits for lock other" in hangs[0] and "which only worker can end" in hangs[0]


def frees_beside_work() -> fp.Design:
    """d.free may wait for the device (S38), and one thread has work there."""
    d = fp.Design("frees_beside_work")
    stream, other, done = d.stream("stream"), d.stream("other"), d.queue("done", 1, item=(fp.EVENT,))
    x, y = d.device("x"), d.device("y")

    @d.script("fills", stream=stream)
    def fills() -> None:
        d.launch("fill", writes=[y])
        event = d.event("event")
        event.record()
        done.put(event)

    @d.script("frees", stream=other)
    def frees() -> None:
        done.get().synchronize()
        d.launch("use", reads=[y])
        d.free(x)

    return d


def test_a_free_that_may_wait_is_timed() -> None:
    """The only wait of the design is needed, and its cost is measured on the machine."""
    program = fp.program_of(frees_beside_work, {})
    assert run(program, {}) is not None


def test_a_stream_of_one_step_that_waits_for_the_legacy_stream() -> None:
    """Its own lock is not the one behind which the legacy stream is used: a record there is a call of that context, too (S11, S22)."""
    d = fp.Design("waits for the legacy stream")
    d.stream("blocking", blocking=True, several_threads=True)
    own, x = d.stream("own", several_threads=True), d.device("x")

    @d.loop("waits", stream=own)
    def waits() -> None:
        own.wait_stream(d.default_stream())
        d.launch("read", reads=[x])

    program = d.build()
    locks = {thing.name: number for number, thing in enumerate(program.objects) if isinstance(thing, p.Lock)}
    taken = [node.operation.lock for node in program.threads[0].nodes if isinstance(node, p.Do) and isinstance(node.operation, p.Acquire)]
    assert taken[:2] == [locks["enqueuing on own"], locks["enqueuing beside the legacy stream"]]


def test_a_long_turn_behind_a_branch() -> None:
    """Paths that branched hundreds of questions ago are put in order without going down to where they did."""
    x = p.Obj(0)
    nodes: list[p.Node] = [
        p.Ask(p.Maybe("x"), (("yes", 1), ("no", 2))),
        p.Do(p.Launch("k", p.Obj(1), (p.Access(x, "r"),)), 3),
        p.Do(p.Host("h", (p.Access(x, "r"),)), 3),
    ]
    for _ in range(550):
        at = len(nodes)
        nodes.append(p.Ask(p.TurnBelow(1), (("yes", at + 1), ("no", at + 2))))
        nodes.append(p.Do(p.Host("a", (p.Access(x, "r"),)), at + 2))
    nodes.append(p.Do(p.Host("fill", (p.Access(x, "w"),)), p.END))
    program = p.Program("long", (p.Memory("m", "pinned"), p.Stream("s")), (p.Thread("t", "loop", tuple(nodes), 0, ()),))
    answer = check(program, explain=False)
    assert (answer.verdict, answer.hazards[0].name) == (fp.REFUTED, "WAR m")
