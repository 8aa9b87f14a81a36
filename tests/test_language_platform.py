"""Rules of the platform with a switch: who drives a communicator, whether a send waits, managed memory, frees, locks that are held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import fencepost as fp
import pytest
from fencepost.model import answer as a
from fencepost.model import program as p
from fencepost.model.language import program_of
from fencepost.proofs.check import check


def decided(function: Callable[..., fp.Design], platform: str | None = None, **parameters: Any) -> a.Answer:
    """The answer to a design."""
    return check(program_of(function, parameters), platform=platform, explain=False)


def hazards(answer: a.Answer) -> set[str]:
    return {hazard.name for hazard in answer.hazards}


# ---------------------------------------------------------------- one communicator, two threads (S133)


def driven(how: str = "unordered", several_threads: bool = True) -> fp.Design:
    """Two threads of rank r0 make the two calls that r1 makes in one thread."""
    d = fp.Design("driven")
    group = d.communicator("tp", ("r0", "r1"), several_threads=several_threads, capacity=2)
    first = d.flag("the first has called")
    with d.process("r0"):
        x, y = d.device("x"), d.device("y")
        stream = d.stream("stream of r0")

        @d.script("A", stream=stream)
        def one() -> None:
            group.send(x, to="r1")
            first.set()

        @d.script("B", stream=stream)
        def two() -> None:
            if how == "ordered":
                first.wait()
            group.send(y, to="r1")

    with d.process("r1", gpu=1):
        z = d.device("z")

        @d.script("r1")
        def receive() -> None:
            group.recv(z, source="r0")
            group.recv(z, source="r0")

    return d


def test_two_threads_that_drive_one_communicator_at_the_same_time_are_a_hazard() -> None:
    """S133; r1 drives it with one thread, so only r0's use of it is at stake."""
    answer = decided(driven)
    assert answer.verdict == fp.REFUTED
    assert hazards(answer) == {"WAW tp of r0 with r1"}


def test_two_threads_that_take_turns_are_none() -> None:
    assert decided(driven, how="ordered").verdict == fp.PROVED


def test_two_threads_are_refused_unless_they_are_to_be_checked() -> None:
    with pytest.raises(fp.DesignError, match=r"two may not drive one communicator at the same time \(S133\)") as caught:
        driven(several_threads=False)
    assert "test_language_platform.py:" in str(caught.value) and "\n" not in str(caught.value)


def test_a_setup_is_over_before_anybody_drives_the_communicator() -> None:
    d = fp.Design("setup")
    group = d.communicator("tp", ("r0", "r1"))
    x = d.device("x")

    @d.setup
    def warm_up() -> None:
        for rank in ("r0", "r1"):
            group.all_reduce(x, rank=rank)

    @d.script("r0")
    def run() -> None:
        group.all_reduce(x, rank="r0")

    assert [t.name for t in d.build().threads] == ["setup", "r0"]


# ---------------------------------------------------------------- eager and rendezvous sends (S131)


def facing(protocol: Literal["eager", "rendezvous"] = "eager", how: str = "send first") -> fp.Design:
    """Two ranks that each send to the other and receive from it."""
    d = fp.Design("facing")
    names = ("r0", "r1")
    group = d.communicator("pp", names, protocol=protocol)

    def rank(me: str, other: str) -> None:
        x, y = d.device(f"x of {me}"), d.device(f"y of {me}")

        @d.loop(me)
        def step() -> None:
            d.launch("make", writes=[x])
            if how == "exchange":
                group.exchange([(x, other)], [(y, other)])
            elif how == "one receives first" and me == "r1":
                group.recv(y, other)
                group.send(x, other)
            else:
                group.send(x, other)
                group.recv(y, other)
            d.launch("use", reads=[y])
            d.synchronize()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name, names[1 - number])
    return d


@pytest.mark.parametrize("how", ["send first", "one receives first", "exchange"])
def test_eager_sends_wait_for_nobody(how: str) -> None:
    answer = decided(facing, how=how)
    assert (answer.verdict, answer.hangs) == (fp.PROVED, ())


def test_two_sends_that_wait_for_their_receivers_wait_for_each_other() -> None:
    answer = decided(facing, protocol="rendezvous")
    (hang,) = answer.hangs
    assert hang.startswith("deadlock pp r0 -> r1 (send) - ")
    assert "waits for room in pp r0 -> r1 (send)" in hang


@pytest.mark.parametrize("how", ["one receives first", "exchange"])
def test_sends_in_the_right_order_or_as_one_call_go_on(how: str) -> None:
    answer = decided(facing, protocol="rendezvous", how=how)
    assert (answer.verdict, answer.hangs) == (fp.PROVED, ())


def announced(protocol: Literal["eager", "rendezvous"] = "eager") -> fp.Design:
    """A root that waits for its broadcast before it lets the receiver come."""
    d = fp.Design("announced")
    group = d.communicator("tp", ("r0", "r1"), protocol=protocol)
    go = d.queue("go", capacity=1, item=())
    with d.process("r0"):
        x = d.device("x")

        @d.loop("r0")
        def root() -> None:
            group.broadcast(x, root="r0")
            d.synchronize()
            go.put()

    with d.process("r1", gpu=1):
        y = d.device("y")

        @d.loop("r1")
        def other() -> None:
            go.get()
            group.broadcast(y, root="r0")
            d.synchronize()

    return d


def test_a_root_waits_for_its_receivers_under_a_rendezvous_only() -> None:
    """Eager: what makes it finish is that nobody has to come."""
    assert decided(announced).hangs == ()
    (hang,) = decided(announced, protocol="rendezvous").hangs
    assert hang.startswith("deadlock tp r0 -> r1 - ")


def test_that_a_sender_waited_is_no_edge() -> None:
    """The receiver's stream prefix is not before what follows the send: a rendezvous proves nothing that eager sends do not."""

    def design(protocol: Literal["eager", "rendezvous"] = "eager") -> fp.Design:
        d = fp.Design("no edge")
        group = d.communicator("pp", ("r0", "r1"), protocol=protocol)
        x, y, shared = d.device("x"), d.device("y"), d.device("shared")

        @d.script("r0", stream=d.stream("stream of r0"))
        def send() -> None:
            group.send(x, to="r1", rank="r0")
            d.launch("after the send", writes=[shared])

        @d.script("r1", stream=d.stream("stream of r1"))
        def recv() -> None:
            d.launch("before the receive", writes=[shared])
            group.recv(y, source="r0", rank="r1")
            d.launch("look", reads=[shared])

        return d

    for protocol in ("eager", "rendezvous"):
        answer = decided(design, protocol=protocol)
        assert answer.verdict == fp.REFUTED and "WAW shared" in hazards(answer), protocol


# ---------------------------------------------------------------- managed memory without concurrent access (S110, S111, S112)


def managed(concurrent: bool = False, host: str = "read", wait: bool = False) -> fp.Design:
    """The host uses managed memory that no kernel touches while a kernel of another stream may run."""
    d = fp.Design("managed")
    m, page, x = d.managed("m", concurrent=concurrent), d.pinned("page"), d.device("x")
    work, side = d.stream("work"), d.stream("side")

    @d.loop("worker")
    def step() -> None:
        d.launch("K", reads=[x], writes=[x], stream=work)
        if wait and host == "function":
            side.wait_stream(work)
        elif wait:
            work.synchronize()
        if host == "function":
            d.host_function("callback", reads=[m], stream=side)
            if wait:
                work.wait_stream(side)
        elif host == "pinned":
            page.read()
        else:
            m.read() if host == "read" else m.write()

    return d


@pytest.mark.parametrize("host", ["read", "write", "function"])
def test_the_host_stays_away_while_any_kernel_runs(host: str) -> None:
    """S111, also for host code on driver threads, whose own stream alone counts as idle (S112)."""
    answer = decided(managed, host=host)
    assert answer.verdict == fp.REFUTED and "WAR all managed memory" in hazards(answer)
    assert decided(managed, host=host, wait=True).verdict == fp.PROVED


@pytest.mark.parametrize("host", ["read", "write", "function"])
def test_with_concurrent_access_only_races_count(host: str) -> None:
    """S110, the default."""
    assert decided(managed, host=host, concurrent=True).verdict == fp.PROVED


def test_pinned_memory_is_no_managed_memory() -> None:
    assert decided(managed, host="pinned").verdict == fp.PROVED


def test_host_accesses_do_not_exclude_each_other() -> None:
    d = fp.Design("two hosts")
    ring = d.managed("ring", depth=2, concurrent=False)

    def thread(slot: int) -> None:
        @d.loop(f"thread {slot}")
        def step() -> None:
            ring[slot].write()
            ring[slot].read()

    thread(0)
    thread(1)
    assert check(d.build(), explain=False).verdict == fp.PROVED


def test_another_process_is_not_concerned() -> None:
    d = fp.Design("two processes")
    with d.process("one"):
        m = d.managed("m", concurrent=False)

        @d.loop("host")
        def host() -> None:
            m.read()

    with d.process("other"):
        x = d.device("x")

        @d.loop("kernels")
        def kernels() -> None:
            d.launch("K", reads=[x], writes=[x])

    assert check(d.build(), explain=False).verdict == fp.PROVED


def test_an_agent_runs_no_kernels() -> None:
    d = fp.Design("agent")
    m, x, nic = d.managed("m", concurrent=False), d.device("x"), d.agent("NIC")

    @d.loop("host")
    def host() -> None:
        nic.post("send", reads=[x])
        m.read()

    assert check(d.build(), explain=False).verdict == fp.PROVED


def test_managed_memory_without_concurrent_access_is_used_by_name() -> None:
    d = fp.Design("handed over")
    m = d.managed("m", concurrent=False)
    box = d.queue("box", capacity=1, item=(fp.MEMORY,))
    with pytest.raises(fp.DesignError, match=r"cannot be handed over \(S111\)"):

        @d.loop("giver")
        def give() -> None:
            box.put(m)


def test_the_rule_concerns_all_threads() -> None:
    d = fp.Design("late")
    x = d.device("x")

    @d.loop("worker")
    def step() -> None:
        d.launch("K", writes=[x])

    with pytest.raises(fp.DesignError, match="made after the first thread"):
        d.managed("m", concurrent=False)


# ---------------------------------------------------------------- frees (S38, S40)


def freed(memory: Literal["pinned", "token"] = "pinned") -> fp.Design:
    """Freed, and handed to another stream, while a kernel may still use it."""
    d = fp.Design("freed")
    page, blocks = d.pinned("page"), d.pool("block", size=1)
    stream, other = d.stream("stream"), d.stream("other")

    @d.loop("worker")
    def step() -> None:
        if memory == "pinned":
            d.memset(page, stream=stream)
            d.free(page)
            page.read()
        else:
            block = blocks.take()
            d.launch("K", reads=[block], writes=[block], stream=stream)
            blocks.free(block)
            block = blocks.take()
            d.memset(block, stream=other)
            other.synchronize()
            blocks.give(block)

    return d


@pytest.mark.parametrize(("memory", "hazard"), [("pinned", "WAW page"), ("token", "WAW block")])
def test_a_free_orders_nothing_unless_the_platform_says_so(memory: str, hazard: str) -> None:
    answer = decided(freed, memory=memory)
    assert answer.verdict == fp.REFUTED and hazard in hazards(answer)
    answer = decided(freed, "cuda-synchronising-free", memory=memory)
    assert answer.verdict == fp.PROVED
    assert any("a free waits for all work of its GPU (S38, S40" in text for text in answer.assumptions)


def test_a_free_may_wait_all_the_same() -> None:
    """No edge, and yet a hang: the device waits for a callback that waits for the lock that is held across the free."""

    def design(held: bool = True) -> fp.Design:
        d = fp.Design("held")
        lock, stream, scratch, state = d.lock("runtime lock"), d.stream("stream"), d.device("scratch"), d.pinned("state")

        @d.callback("callback", stream)
        def callback() -> None:
            with lock:
                state.read()

        @d.loop("main")
        def main() -> None:
            callback.launch()
            with lock:
                if held:
                    d.free(scratch)
            stream.synchronize()

        return d

    (hang,) = decided(design).hangs
    assert hang.startswith("deadlock callback returned - ")
    assert decided(design, held=False).hangs == ()


def test_what_can_be_freed() -> None:
    for what, text in (("part", "free the whole"), ("token", r"pool\.free"), ("block", r"release\(\)")):
        d = fp.Design("what")
        page, blocks = d.pinned("page"), d.pool("block", size=1)

        def body() -> None:
            d.free({"part": lambda: page["rows"], "token": blocks.take, "block": lambda: d.empty("fresh")}[what]())  # noqa: B023

        with pytest.raises(fp.DesignError, match=text):
            d.script("main")(body)


# ---------------------------------------------------------------- the private memory of graphs (S74, S96, S97)


def sharing_graphs(shared: bool = True, released: bool = True, streams: int = 2, apart: bool = False) -> fp.Design:
    """Two graphs with a scratch tensor each, replayed on one stream or two; captured on one stream or, `apart`, on two."""
    d = fp.Design("sharing graphs")
    first = d.graph("a")
    second = d.graph("b", pool=first if shared else None)
    captures, replays = [d.stream("capture"), d.stream("capture of b")], [d.stream("one"), d.stream("two")]
    x, y = d.device("x"), d.device("y")

    @d.setup
    def capture() -> None:
        for graph, data, stream in ((first, x, captures[0]), (second, y, captures[apart])):
            with graph.capture(stream):
                scratch = d.empty("scratch")
                d.launch("fill", reads=[data], writes=[scratch])
                d.launch("use", reads=[scratch], writes=[data])
                if released:
                    scratch.release()

    @d.loop("worker")
    def step() -> None:
        first.replay(replays[0])
        second.replay(replays[1 % streams])

    return d


def test_graphs_that_share_a_pool_may_not_run_at_the_same_time() -> None:
    """S96."""
    answer = decided(sharing_graphs)
    assert answer.verdict == fp.REFUTED and hazards(answer) == {"WAR scratch of a", "WAW scratch of a"}


@pytest.mark.parametrize("parameters", [{"shared": False}, {"released": False}, {"streams": 1}, {"apart": True}], ids=str)
def test_graphs_that_share_no_bytes_or_run_in_turn_are_safe(parameters: dict[str, Any]) -> None:
    """A pool of their own, outputs that live, one stream; and blocks of another stream's allocations (S62)."""
    assert decided(sharing_graphs, **parameters).verdict == fp.PROVED


@pytest.mark.parametrize(
    ("joined", "noted", "verdict"),
    [(True, False, fp.PROVED), (False, False, fp.REFUTED), (False, True, fp.PROVED), (True, True, fp.PROVED)],
)
def test_a_block_that_is_released_in_the_capture_is_reused_there(joined: bool, noted: bool, verdict: str) -> None:
    """By the next allocation of the stream: safe when a branch has joined, or was noted, which holds the block (S74)."""
    d = fp.Design("inside")
    graph, main, side = d.graph("g"), d.stream("main"), d.stream("side")
    x, y = d.device("x"), d.device("y")

    @d.setup
    def capture() -> None:
        with graph.capture(main):
            first = d.empty("first")
            d.launch("fill", reads=[x], writes=[first])
            side.wait_stream(main)
            d.launch("branch", reads=[first], writes=[y], stream=side)
            if noted:
                first.record_stream(side)
            if joined:
                main.wait_stream(side)
            first.release()
            second = d.empty("second")
            d.launch("next", reads=[x], writes=[second])
            d.launch("use", reads=[second], writes=[x])
            main.wait_stream(side)

    @d.loop("worker", stream=main)
    def step() -> None:
        graph.replay()

    assert check(d.build(), explain=False).verdict == verdict


@pytest.mark.parametrize(("how", "text"), [("outside", "released inside the capture"), ("twice", "released twice"), ("after", "used after its release")])
def test_misuse_of_a_graphs_memory(how: str, text: str) -> None:
    d = fp.Design("misuse")
    graph, stream, x = d.graph("g"), d.stream("s"), d.device("x")

    def body() -> None:
        with graph.capture(stream):
            scratch = d.empty("scratch")
            d.launch("K", reads=[x], writes=[scratch])
            if how != "outside":
                scratch.release()
            if how == "twice":
                scratch.release()
            if how == "after":
                d.launch("K", reads=[scratch])
        scratch.release()

    with pytest.raises(fp.DesignError, match=text):
        d.setup(body)
    with pytest.raises(fp.DesignError, match="is no graph"):
        d.graph("h", pool="g")  # type: ignore[arg-type]


# ---------------------------------------------------------------- records that are outstanding (S30)


def test_recording_again_is_said_where_it_is_undefined() -> None:
    def design(fresh: bool = False) -> fp.Design:
        d = fp.Design("again")
        x, event = d.device("x"), d.event("copied")

        @d.loop("worker")
        def step() -> None:
            d.launch("K", writes=[x])
            done = d.event("done") if fresh else event
            done.record()
            done.synchronize()

        return d

    assert any("(S30, platform rocm)" in text and text.endswith("copied") for text in decided(design, "rocm").assumptions)
    assert not any("S30" in text for text in decided(design, "rocm", fresh=True).assumptions)
    assert not any("S30" in text for text in decided(design).assumptions)


# ---------------------------------------------------------------- locks that are not held, threads that may idle


@pytest.mark.parametrize("how", ["never taken", "given back twice", "released block", "condition", "not taken when tried"])
def test_a_lock_is_given_back_by_the_turn_that_holds_it(how: str) -> None:
    d = fp.Design("lock")
    lock = d.lock("gate")
    condition = d.condition("ready", lock)

    def body() -> None:
        if how == "given back twice":
            with lock:
                pass
        if how == "released block":
            with lock.released():
                pass
        if how == "condition":
            condition.wait()
        if how == "not taken when tried" and lock.try_acquire():
            lock.release()
        lock.release()

    with pytest.raises(fp.DesignError, match=r"where this turn does not hold (it|lock 'gate')") as caught:
        d.loop("worker")(body)
    assert "test_language_platform.py:" in str(caught.value) and "\n" not in str(caught.value)


def test_what_others_give_back_is_a_semaphore() -> None:
    d = fp.Design("semaphore")
    free = d.semaphore("free", 0)

    @d.loop("giver")
    def give() -> None:
        free.release()

    @d.loop("taker")
    def take() -> None:
        free.acquire()

    kinds = [type(node.operation) for t in d.build().threads for node in t.nodes if isinstance(node, p.Do)]
    assert kinds == [p.Unlock, p.Acquire]


@pytest.mark.parametrize("idle", [False, True])
def test_a_thread_that_may_wait_for_work_for_ever(idle: bool) -> None:
    """What a script put in is all there ever is: a hang, unless the loop is said to idle."""
    d = fp.Design("idle")
    jobs, m = d.queue("jobs", capacity=2, item=()), d.pageable("m")

    @d.script("producer")
    def produce() -> None:
        m.write()
        jobs.put()

    @d.loop("consumer", idle=idle)
    def consume() -> None:
        jobs.get()
        m.read()

    answer = check(d.build(), explain=False)
    assert answer.verdict == fp.PROVED
    if idle:
        assert answer.hangs == ()
    else:
        (hang,) = answer.hangs
        assert hang.startswith("no source jobs - ") and "producer has ended" in hang
        assert "d.loop('consumer', idle=True)" in hang


# ---------------------------------------------------------------- current streams of several GPUs (S6, S16)


def test_operations_use_the_current_stream_of_their_tensors_gpu() -> None:
    """S16: not that of the current device, which is the one of the innermost stream."""
    d = fp.Design("two GPUs")
    x0, x1, page = d.device("x0"), d.device("x1", gpu=1), d.pinned("page")
    s1, t0 = d.stream("s1", gpu=1), d.stream("t0")

    @d.script("main", stream=t0)
    def main() -> None:
        with s1:
            d.launch("of x0", writes=[x0])
            d.launch("of x1", reads=[page], writes=[x1])
            d.launch("of both", reads=[x0], writes=[x1])
            x0.copy_(page, non_blocking=True)
            x1.copy_(page, non_blocking=True)
            fresh = d.empty("fresh")
            d.launch("of fresh", writes=[fresh.view()])
            d.event("done").record()
            with t0:
                d.launch("of x1 again", writes=[x1])
        d.launch("default of 1", writes=[x1])
        x1.item()

    names = {number: thing.name for number, thing in enumerate(d.build().objects)}
    found = [
        names[node.operation.stream.id]  # type: ignore[union-attr]
        for node in d.build().threads[0].nodes
        if isinstance(node, p.Do) and isinstance(node.operation, (p.Launch, p.Copy, p.Record, p.Item))
    ]
    assert found == ["t0", "s1", "s1", "t0", "s1", "s1", "s1", "s1", "default gpu 1", "default gpu 1"]
    with pytest.raises(fp.DesignError, match="GPUs are numbered from 0"):

        @d.script("other")
        def other() -> None:
            d.current_stream(gpu=-1)


def test_a_stream_of_another_gpu_orders_nothing() -> None:
    """The bug that comes of it: the block around the call names a stream, the tensor's GPU has another one."""

    def design(gpu: int = 1) -> fp.Design:
        d = fp.Design("wrong block")
        page, weights = d.pinned("page"), d.device("weights")
        onload = d.stream("onload", gpu=gpu)

        @d.loop("worker")
        def step() -> None:
            onload.synchronize()
            page.write()
            with onload:
                weights.copy_(page, non_blocking=True)

        return d

    assert decided(design, gpu=0).verdict == fp.PROVED
    assert hazards(decided(design, gpu=1)) == {"WAR page"}


# ---------------------------------------------------------------- the legacy stream and a blocking one in two threads (S11, S12)


def beside_the_legacy_stream(blocking: bool = True, threads: bool = True) -> fp.Design:
    """Thread A on its own per-thread default stream, thread B on the legacy one, and one buffer."""
    d = fp.Design("beside the legacy stream")
    x = d.device("x")
    mine = d.stream("per-thread stream of A", blocking=blocking, several_threads=blocking and threads)

    @d.loop("A", stream=mine)
    def one() -> None:
        d.launch("A's", reads=[x], writes=[x])

    @d.loop("B")
    def two() -> None:
        d.launch("B's", reads=[x], writes=[x])

    return d


def test_a_per_thread_stream_is_ordered_with_the_legacy_stream_of_another_thread() -> None:
    """In either order of the two calls; a non-blocking stream is not."""
    answer = decided(beside_the_legacy_stream)
    assert (answer.verdict, answer.hangs, answer.progress) == (fp.PROVED, (), ())
    assert hazards(decided(beside_the_legacy_stream, blocking=False)) == {"WAW x"}


def test_the_calls_of_both_threads_are_single_steps() -> None:
    """The lock around wait and launch orders nothing: what only it would order is a hazard."""
    program = beside_the_legacy_stream().build()
    for thread in program.threads:
        kinds = [type(node.operation) for node in thread.nodes if isinstance(node, p.Do)]
        assert kinds == [p.Acquire, p.WaitStream, p.Launch, p.Unlock]
    d = fp.Design("apart")
    x, y = d.pageable("x"), d.device("y")
    mine = d.stream("mine", blocking=True, several_threads=True)

    @d.script("A", stream=mine)
    def one() -> None:
        x.write()
        d.launch("A's", writes=[y])

    @d.script("B")
    def two() -> None:
        d.launch("B's", writes=[y])
        x.read()

    assert check(d.build(), explain=False).verdict == fp.REFUTED


def test_two_threads_beside_the_legacy_stream_are_said() -> None:
    with pytest.raises(fp.DesignError, match="several_threads=True"):
        beside_the_legacy_stream(threads=False)


# ---------------------------------------------------------------- what is refused in one line


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.communicator("tp", ("r0", "r1"), protocol="lazy"), 'it is "eager" or "rendezvous"'),
        (lambda d: d.communicator("tp", ("r0", "r1"), protocol="rendezvous", capacity=2), "leave capacity= out"),
    ],
)
def test_a_wrong_switch_is_one_line(make: Callable[[fp.Design], Any], message: str) -> None:
    with pytest.raises(fp.DesignError, match=message) as caught:
        make(fp.Design("d"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda group, x: group.exchange(rank="r0"), "an exchange of nothing"),
        (lambda group, x: group.exchange([(x, "r0")], rank="r0"), "sends to or receives from itself"),
        (lambda group, x: group.exchange([(x, "r2")], rank="r0"), "has no rank 'r2'"),
        (lambda group, x: group.exchange(recvs=[x], rank="r0"), "give a list of pairs"),
        (lambda group, x: group.exchange(sends=x, rank="r0"), "give a list of pairs"),
        (lambda group, x: group.exchange([("x", "r1")], rank="r0"), "is no memory"),
    ],
)
def test_a_wrong_exchange_is_one_line(call: Callable[[fp.Communicator, fp.Tensor], Any], message: str) -> None:
    d = fp.Design("d")
    group, x = d.communicator("tp", ("r0", "r1")), d.device("x")
    with pytest.raises(fp.DesignError, match=message) as caught:
        d.script("main")(lambda: call(group, x))
    assert "\n" not in str(caught.value)
