"""Collectives, device flags and callbacks in the language: what each call writes down, and what is refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fencepost as fp
import pytest
from fencepost.model import program as p
from fencepost.proofs.check import check
from fencepost.proofs.liveness.report import name as name_of
from fencepost.proofs.liveness.search import search

Body = Callable[[fp.Design, fp.Communicator, str, fp.Tensor, fp.Tensor], None]


def ranks(body: Body, names: tuple[str, ...] = ("r0", "r1", "r2"), **options: Any) -> p.Program:
    """A design with one loop thread per rank, each in a process and on a GPU of its own."""
    d = fp.Design("ranks")
    group = d.communicator("tp", names, **options)

    def rank(name: str) -> None:
        x, out = d.device(f"x {name}"), d.device(f"out {name}")

        @d.loop(name)
        def step() -> None:
            body(d, group, name, x, out)

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name)
    return d.build()


def did(program: p.Program, thread: str) -> list[str]:
    """The straight operations of a thread as short text."""
    (found,) = [one for one in program.threads if one.name == thread]
    texts, at = [], found.entry
    while at != p.END:
        node = found.nodes[at]
        assert isinstance(node, p.Do)
        texts.append(_text(program, node.operation))
        at = node.next
    return texts


def _text(program: p.Program, operation: p.Operation) -> str:
    def name(operand: Any) -> str:
        if operand is None:
            return "host"
        return "local" if isinstance(operand, p.Local) else program.objects[operand if isinstance(operand, int) else operand.id].name

    if isinstance(operation, p.Launch):
        accesses = " ".join(f"{a.mode}:{name(a.target)}" for a in operation.accesses)
        return f"{operation.name} on {name(operation.stream)} {accesses}".strip()
    if isinstance(operation, (p.Signal, p.Await)):
        return f"{type(operation).__name__} {name(operation.channel)} [{operation.tag}]"
    if isinstance(operation, (p.StoreFlag, p.WaitFlag)):
        reset = " reset" if isinstance(operation, p.WaitFlag) and operation.reset else ""
        return f"{type(operation).__name__} {name(operation.flag)} {operation.value} on {name(operation.stream)}{reset}"
    if isinstance(operation, p.WaitStream):
        return f"WaitStream {name(operation.stream)} {name(operation.other)}"
    if isinstance(operation, p.RecordStream):
        return f"RecordStream {name(operation.stream)}"
    return type(operation).__name__


def meets(program: p.Program, thread: str) -> tuple[list[str], list[str]]:
    """Whom a thread's stream tells, and for whom it waits."""
    texts = did(program, thread)
    return (
        [text.split(" -> ")[1].split(" ")[0] for text in texts if text.startswith("Signal")],
        [text.split(" -> ")[0].split(" ")[-1] for text in texts if text.startswith("Await")],
    )


# ---------------------------------------------------------------- which rank needs which (theory section 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda c, x, out: c.all_reduce(x),
        lambda c, x, out: c.all_gather(out, x),
        lambda c, x, out: c.reduce_scatter(out, x),
        lambda c, x, out: c.all_to_all(out, x),
        lambda c, x, out: c.barrier(),
        lambda c, x, out: c.rendezvous(),
    ],
)
def test_all_pairs(call: Callable[[fp.Communicator, fp.Tensor, fp.Tensor], Any]) -> None:
    program = ranks(lambda d, c, me, x, out: call(c, x, out))
    for name in ("r0", "r1", "r2"):
        others = [other for other in ("r0", "r1", "r2") if other != name]
        assert meets(program, name) == (others, others)


@pytest.mark.parametrize(
    "call",
    [
        lambda c, me, x, out: c.broadcast(x, root="r1"),
        lambda c, me, x, out: c.scatter(out, x if me == "r1" else None, root="r1"),
    ],
)
def test_from_the_root(call: Callable[[fp.Communicator, str, fp.Tensor, fp.Tensor], Any]) -> None:
    program = ranks(lambda d, c, me, x, out: call(c, me, x, out))
    assert meets(program, "r1") == (["r0", "r2"], [])
    assert meets(program, "r0") == ([], ["r1"])
    assert meets(program, "r2") == ([], ["r1"])


@pytest.mark.parametrize(
    "call",
    [
        lambda c, me, x, out: c.reduce(x, root="r1"),
        lambda c, me, x, out: c.gather(x, out if me == "r1" else None, root="r1"),
    ],
)
def test_to_the_root(call: Callable[[fp.Communicator, str, fp.Tensor, fp.Tensor], Any]) -> None:
    program = ranks(lambda d, c, me, x, out: call(c, me, x, out))
    assert meets(program, "r1") == ([], ["r0", "r2"])
    assert meets(program, "r0") == (["r1"], [])
    assert meets(program, "r2") == (["r1"], [])


def test_send_and_receive_meet_on_a_channel_of_their_own() -> None:
    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        if me == "r0":
            c.send(x, to="r1")
        elif me == "r1":
            c.recv(x, source="r0")
        c.all_reduce(out)

    program = ranks(body)
    assert did(program, "r0")[:2] == ["tp send on default r0 r:x r0", "Signal tp r0 -> r1 (send) [send]"]
    assert did(program, "r1")[:3] == [
        "tp recv on default r1 gpu 1 w:x r1",
        "Await tp r0 -> r1 (send) [send]",
        "tp recv ends on default r1 gpu 1 r:x r1 w:x r1",
    ]


def test_kind_root_and_match_are_the_tag() -> None:
    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        c.all_reduce(x, match=48)
        c.reduce(x, root="r0", match="fp16")

    program = ranks(body, ("r0", "r1"))
    tags = [text[text.index("[") :] for text in did(program, "r1") if text.startswith("Signal")]
    assert tags == ["[all_reduce 48]", "[reduce to r0 fp16]"]


# ---------------------------------------------------------------- accesses: the kernel lasts from its begin to its end


def test_a_collective_accesses_from_its_begin_to_its_end() -> None:
    program = ranks(lambda d, c, me, x, out: c.all_gather(out, x) and None, ("r0", "r1"))
    assert did(program, "r0") == [
        "tp all_gather on default r0 r:x r0 w:out r0",
        "Signal tp r0 -> r1 [all_gather]",
        "Await tp r1 -> r0 [all_gather]",
        "tp all_gather ends on default r0 r:out r0 r:x r0 w:out r0",
    ]


def test_a_root_with_several_receivers_reads_until_it_ends() -> None:
    """That one receiver has its data does not say that the root has read for the others."""
    texts = did(ranks(lambda d, c, me, x, out: c.broadcast(x, root="r0") and None), "r0")
    assert texts[0] == "tp broadcast from r0 on default r0 r:x r0"
    assert texts[-1] == "tp broadcast from r0 ends on default r0 r:x r0"
    two = did(ranks(lambda d, c, me, x, out: c.broadcast(x, root="r0") and None, ("r0", "r1")), "r0")
    assert [text.split(" ")[0] for text in two] == ["tp", "Signal"]


# ---------------------------------------------------------------- streams and works (S121-S129)


def asynchronous(wait: bool) -> Body:
    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        fresh = d.empty("fresh")
        work = c.all_reduce(fresh, async_op=True)
        if wait:
            work.wait()

    return body


def test_an_asynchronous_call_runs_on_the_groups_own_stream_and_keeps_references() -> None:
    assert did(ranks(asynchronous(True), ("r0", "r1")), "r0") == [
        "Alloc", "WaitStream tp stream of r0 default r0", "View",
        "tp all_reduce on tp stream of r0 r:local w:local", "Signal tp r0 -> r1 [all_reduce]",
        "Await tp r1 -> r0 [all_reduce]", "tp all_reduce ends on tp stream of r0 r:local w:local",
        "NewEvent", "Record", "StreamWaitEvent", "Drop", "Drop",
    ]  # fmt: skip


def test_a_work_that_is_never_awaited_lets_go_when_the_groups_stream_is_done() -> None:
    """S128: written down as a use of the group's stream and a release at the end of the turn."""
    assert did(ranks(asynchronous(False), ("r0", "r1")), "r0")[-4:] == ["Record", "RecordStream tp stream of r0", "Drop", "Drop"]


def test_the_old_version_waits_at_once_and_records_the_stream() -> None:
    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        c.all_reduce(d.empty("fresh"))

    old = did(ranks(body, ("r0", "r1"), version="old"), "r0")
    assert old[:3] == ["Alloc", "WaitStream tp stream of r0 default r0", "RecordStream tp stream of r0"]
    assert old[-4:] == ["NewEvent", "Record", "StreamWaitEvent", "Drop"]
    new = did(ranks(body, ("r0", "r1")), "r0")
    assert new[1] == "tp all_reduce on default r0 r:local w:local" and "StreamWaitEvent" not in new


def test_the_work_outlives_the_scope_of_the_call() -> None:
    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        with d.scope("function"):
            work = c.all_reduce(d.empty("fresh"), async_op=True)
        d.launch("other")
        work.wait()

    texts = did(ranks(body, ("r0", "r1")), "r0")
    assert texts[texts.index("Record") + 1 :] == ["Drop", "other on default r0", "StreamWaitEvent", "Drop"]


def test_a_blocking_wait_holds_the_host() -> None:
    for options, argument in (({"blocking_wait": True}, None), ({}, True)):

        def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor, how: bool | None = argument) -> None:
            c.all_reduce(x, async_op=True).wait(blocking=how)

        assert did(ranks(body, ("r0", "r1"), **options), "r0")[-2:] == ["StreamWaitEvent", "EventSync"]


def test_a_barrier_holds_the_host_until_the_stream_is_done() -> None:
    assert did(ranks(lambda d, c, me, x, out: c.barrier(), ("r0", "r1")), "r0")[-1] == "StreamSync"


def test_a_work_goes_through_a_queue() -> None:
    d = fp.Design("handed over")
    group = d.communicator("tp", ["r0", "r1"])
    works = d.queue("works", capacity=2, item=(fp.EVENT, fp.MEMORY))

    @d.loop("issues")
    def issue() -> None:
        works.put(*group.all_reduce(d.empty("fresh"), rank="r0", async_op=True).hand_over())

    @d.loop("waits")
    def wait() -> None:
        group.work(*works.get()).wait()

    program = d.build()
    assert "RecordStream" not in " ".join(did(program, "issues"))
    assert did(program, "waits") == ["Get", "StreamWaitEvent", "Drop"]


def test_calls_on_several_streams_are_serial_or_refused() -> None:
    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        c.all_reduce(x, async_op=True).wait()
        c.all_reduce(out)

    with pytest.raises(fp.DesignError, match=r"streams 'tp stream of r0' and 'default r0'.*serial=True"):
        ranks(body, ("r0", "r1"))
    texts = did(ranks(body, ("r0", "r1"), serial=True), "r0")
    assert texts[-6:] == [
        "StreamWaitEvent", "tp all_reduce on default r0 r:out r0 w:out r0", "Signal tp r0 -> r1 [all_reduce]",
        "Await tp r1 -> r0 [all_reduce]", "tp all_reduce ends on default r0 r:out r0 w:out r0", "Record",
    ]  # fmt: skip


def test_a_captured_collective_meets_at_every_replay() -> None:
    d = fp.Design("captured")
    group = d.communicator("tp", ["r0", "r1"])
    x, stream = d.device("x"), d.stream("stream")
    graph = d.graph("graph")

    @d.setup(stream=stream)
    def capture() -> None:
        with graph.capture():
            group.all_reduce(x, rank="r0")

    @d.loop("r0", stream=stream)
    def step() -> None:
        graph.replay()

    assert [text.split(" ")[0] for text in did(d.build(), "r0")] == [
        "StreamWaitEvent", "tp", "Signal", "Await", "tp", "Record",
    ]  # fmt: skip


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda d, c, me, x, out: c.all_reduce(x, rank="r9"), "has no rank 'r9'; it has: r0, r1, r2"),
        (lambda d, c, me, x, out: c.send(x, to=me), "sends to or receives from itself"),
        (lambda d, c, me, x, out: c.scatter(out, root="r1"), "scatter takes x at the root"),
        (lambda d, c, me, x, out: c.gather(x, root="r0"), "gather takes out at the root"),
        (lambda d, c, me, x, out: c.broadcast(x, root="r7"), "has no rank 'r7'"),
        (lambda d, c, me, x, out: c.all_reduce(x).is_completed(), "ran on the current stream"),
        (lambda d, c, me, x, out: c.all_reduce("x"), "is no memory"),
        (lambda d, c, me, x, out: c.all_reduce(None), "None is no memory; a collective takes a tensor"),
        (lambda d, c, me, x, out: c.all_reduce([x, "y"]), "is no memory"),
        (lambda d, c, me, x, out: d.default_stream().write_value("f", 1), "'f' is no device flag"),
        (lambda d, c, me, x, out: c.work(x), "is no event"),
    ],
)
def test_a_wrong_call_is_one_line(body: Body, message: str) -> None:
    with pytest.raises(fp.DesignError, match=message) as caught:
        ranks(body)
    assert "\n" not in str(caught.value) and "test_language_meetings.py" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.communicator("tp", "r0"), "give a list of the ranks' names"),
        (lambda d: d.communicator("tp", ["r0"]), "name two at least"),
        (lambda d: d.communicator("tp", ["r0", "r0"]), "each once"),
        (lambda d: d.communicator("tp", ["r0", "r1"], version="2.8"), 'it is "new" or "old"'),
        (lambda d: d.communicator("tp", ["r0", "r1"], capacity=0), "it is at least 1"),
        (lambda d: d.callback("notify", "s"), "is no stream"),
        (lambda d: d.callback("notify", d.stream("s", depth=2)), "is a ring of streams"),
    ],
)
def test_a_wrong_object_is_one_line(make: Callable[[fp.Design], Any], message: str) -> None:
    with pytest.raises(fp.DesignError, match=message) as caught:
        make(fp.Design("wrong"))
    assert "\n" not in str(caught.value)


def test_a_thread_of_no_rank_must_say_which_it_is() -> None:
    d = fp.Design("no process")
    group = d.communicator("tp", ["r0", "r1"])
    x = d.device("x")
    with pytest.raises(fp.DesignError, match="the thread's process is '', which is no rank; give rank="):

        @d.loop("worker")
        def step() -> None:
            group.all_reduce(x)


# ---------------------------------------------------------------- device flags and callbacks


def test_device_flags() -> None:
    d = fp.Design("flags")
    flag, stream = d.device_flag("ready"), d.stream("s")

    @d.loop("worker")
    def step() -> None:
        stream.write_value(flag, 1)
        stream.wait_value(flag, 1, reset=True)
        flag.store(2)
        flag.wait(2)

    assert did(d.build(), "worker") == [
        "StoreFlag ready 1 on s", "WaitFlag ready 1 on s reset", "StoreFlag ready 2 on host", "WaitFlag ready 2 on host",
    ]  # fmt: skip


@pytest.mark.parametrize("value", [-1, True, "1", 2**31])
def test_a_flag_holds_a_constant(value: Any) -> None:
    d = fp.Design("flags")
    flag = d.device_flag("ready")
    with pytest.raises(fp.DesignError, match="the value is a constant from 0"):

        @d.loop("worker")
        def step() -> None:
            flag.store(value)


def test_a_callback_runs_between_two_items_of_its_stream() -> None:
    d = fp.Design("callback")
    stream, state = d.stream("s"), d.pinned("state")

    @d.callback("notify", stream)
    def notify() -> None:
        state.write()

    @d.loop("worker")
    def step() -> None:
        notify.launch()

    program = d.build()
    assert did(program, "worker") == ["StoreFlag notify due 1 on s", "WaitFlag notify returned 1 on s reset"]
    assert did(program, "notify") == [
        "WaitFlag notify due 1 on host reset", "Host", "StoreFlag notify returned 1 on host",
    ]  # fmt: skip


def test_a_callback_may_not_call_cuda() -> None:
    d = fp.Design("callback")
    stream = d.stream("s")
    with pytest.raises(fp.DesignError, match=r"may not call CUDA \(S104\)"):

        @d.callback("notify", stream)
        def notify() -> None:
            stream.synchronize()


def test_a_callback_belongs_to_one_thread() -> None:
    d = fp.Design("callback")

    @d.callback("notify", d.stream("s"))
    def notify() -> None:
        d.host("body")

    @d.loop("one")
    def one() -> None:
        notify.launch()

    with pytest.raises(fp.DesignError, match="launched by the threads 'one' and 'two'"):

        @d.loop("two")
        def two() -> None:
            notify.launch()


# ---------------------------------------------------------------- what follows for hangs


def hang(program: p.Program) -> str | None:
    found = search(program).hang
    return None if found is None else name_of(program, found)


def in_step(calls: Callable[[fp.Communicator, str, fp.Tensor, fp.Tensor], Any]) -> p.Program:
    """Two ranks whose hosts wait for their streams in every step."""

    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        d.launch("forward", writes=[x])
        calls(c, me, x, out)
        x.item()

    return ranks(body, ("r0", "r1"), capacity=2)


def test_ranks_that_do_the_same_go_on() -> None:
    assert hang(in_step(lambda c, me, x, out: c.all_reduce(x))) is None


@pytest.mark.parametrize(
    "calls",
    [
        lambda c, me, x, out: c.all_reduce(x, match=me),
        lambda c, me, x, out: c.all_reduce(x) if me == "r0" else c.all_gather(out, x),
        lambda c, me, x, out: c.broadcast(x, root=me),
        lambda c, me, x, out: c.all_reduce(x) if me == "r0" else None,  # a collective that a rank never calls
    ],
)
def test_ranks_that_differ_are_a_collective_mismatch(calls: Callable[..., Any]) -> None:
    found = hang(in_step(calls))
    assert found is not None and found.startswith("collective mismatch tp r")


def test_a_receiver_waits_for_its_root_and_the_root_for_room_only() -> None:
    assert hang(in_step(lambda c, me, x, out: c.broadcast(x, root="r0"))) is None

    def twice_at_the_root(c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        c.broadcast(x, root="r0")
        if me == "r0":
            c.broadcast(x, root="r0")

    assert hang(in_step(twice_at_the_root)) is None  # the receiver comes to each of them, a step later


# ---------------------------------------------------------------- what follows for memory


def outcome(program: p.Program) -> str:
    """"proved", kind and object of the first hazard, or the reason of an unknown."""
    answer = check(program, explain=False)
    if answer.hazards:
        return f"{answer.hazards[0].kind} {answer.hazards[0].object}"
    return answer.reason or answer.verdict


def overlapped(how: str) -> Body:
    """A bucket is reduced while the next kernels run (S121-S129, S134)."""

    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        bucket = d.empty("bucket")
        d.launch("backward", writes=[bucket])
        work = c.all_reduce(bucket, async_op=True)
        d.launch("next layer", writes=[x])
        if how == "waits on another stream":
            with c.stream():
                work.wait()
        elif how != "never waits":
            work.wait(blocking=how == "host waits")
        if how != "waits on another stream":
            d.launch("optimizer", reads=[bucket])
        bucket.release()
        following = d.empty("following")
        d.launch("fill", writes=[following])
        d.launch("use", reads=[following])
        d.synchronize()

    return body


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("reads", "proved"),
        ("host waits", "proved"),
        ("never waits", "RAW bucket"),  # S126
        ("waits on another stream", "WAW bucket"),  # S129: let go at the wait, which did not order the owner's stream
    ],
)
def test_works(how: str, expected: str) -> None:
    assert outcome(ranks(overlapped(how), ("r0", "r1"))) == expected


def test_recorded_streams_need_no_wait_for_the_memory() -> None:
    """S127, the old default: the block comes back when the group's stream is done."""
    assert outcome(ranks(overlapped("waits on another stream"), ("r0", "r1"), version="old")) == "proved"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda c, me, x: c.all_reduce(x), "proved"),
        (lambda c, me, x: c.gather(x, x if me == "r0" else None, root="r0"), "proved"),
        (lambda c, me, x: c.broadcast(x, root="r1"), "proved"),
        (lambda c, me, x: c.broadcast(x, root="r0"), "WAR staging"),
        (lambda c, me, x: None, "WAR staging"),
    ],
)
def test_what_one_rank_knows_of_another(call: Callable[..., Any], expected: str) -> None:
    """r0's host tells r1's that it may refill; what it knows of r1's stream comes from the collective alone."""
    d = fp.Design("ranks")
    group = d.communicator("tp", ["r0", "r1"], capacity=2)
    refill, refilled = d.queue("refill", capacity=1, item=()), d.queue("refilled", capacity=1, item=())
    with d.process("r0", gpu=0):
        x = d.device("x")

        @d.loop("r0")
        def first() -> None:
            refilled.get()
            call(group, "r0", x)
            x.item()
            refill.put()

    with d.process("r1", gpu=1):
        staging, y = d.pinned("staging"), d.device("y")

        @d.loop("r1")
        def second() -> None:
            staging.write()
            y.copy_(staging, non_blocking=True)
            call(group, "r1", y)
            refilled.put()
            refill.get()

    assert outcome(d.build()) == expected


def test_a_mailbox_without_bound_is_one_line() -> None:
    def body(d: fp.Design, c: fp.Communicator, me: str, x: fp.Tensor, out: fp.Tensor) -> None:
        d.launch("forward", writes=[x])
        c.broadcast(x, root="r0")
        x.item()

    said = outcome(ranks(body, ("r0", "r1")))
    assert said.startswith("unbounded mailbox") and "'tp r0 -> r1'" in said and "capacity" in said and "\n" not in said
    assert outcome(ranks(body, ("r0", "r1"), capacity=1)) == "proved"


def test_a_callback_is_ordered_with_its_stream_and_with_nothing_else() -> None:
    def build(through: str) -> p.Program:
        d = fp.Design("callback")
        stream, other = d.stream("s"), d.stream("other")
        result, source = d.pinned("result"), d.device("source")

        @d.callback("consume", stream)
        def consume() -> None:
            result.read()

        @d.loop("worker")
        def step() -> None:
            result.copy_(source, non_blocking=True, stream=stream if through == "its stream" else other)
            consume.launch()
            stream.synchronize()
            other.synchronize()

        return d.build()

    assert outcome(build("its stream")) == "proved"
    assert outcome(build("another stream")) == "RAW result"
