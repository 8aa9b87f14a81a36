"""Wrong answers that were found once, each as the small design that showed it, with the right verdict."""

from __future__ import annotations

from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.model import answer as a
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check

from random_compare import BARE_CUDA, compare


def decide(design: object) -> a.Answer:
    """The answer, without the side questions."""
    return check(program_of(design, {}), explain=False)  # type: ignore[arg-type]


def pops_and_waits_elsewhere() -> fp.Design:
    """Popping a full queue also waits for a response here, so the queue may not start with dummies.

    Was PROVED: behind dummies the first steps waited for responses that a run from the start does not wait for.
    """
    d = fp.Design("pops and waits elsewhere")
    rpc = d.queue("rpc", capacity=3, item=())
    batches = d.queue("batches", capacity=2, item=())
    outputs = d.queue("outputs", capacity=3, item=(fp.EVENT,))
    responses = d.queue("responses", capacity=3, item=())
    b, g = d.pinned("b"), d.device("g")

    @d.loop("engine")
    def engine() -> None:
        rpc.put()
        batches.put()
        if batches.full():
            batches.get()
            responses.get()

    @d.loop("worker")
    def worker() -> None:
        rpc.get()
        b.write()
        g.copy_(b, non_blocking=True)
        copied = d.event("copied")
        copied.record()
        outputs.put(copied)

    @d.loop("output thread")
    def output() -> None:
        copied = outputs.get()
        copied.synchronize()
        responses.put()

    return d


def both_threads_hold() -> fp.Design:
    """Two threads hold a tensor; whoever lets go last frees it after *both* let go (a reference count).

    Was UNKNOWN: only the last holder's knowledge came before the free, so a false hazard was found.
    """
    d = fp.Design("both threads hold")
    outputs = d.queue("outputs", capacity=2, item=(fp.EVENT, fp.MEMORY))
    side = d.stream("side")

    @d.loop("worker")
    def worker() -> None:
        t = d.empty("t")
        d.launch("produce", writes=[t])
        side.wait_stream(d.current_stream())
        with side:
            d.launch("consume", reads=[t])
            done = d.event("done")
            done.record()
        outputs.put(done, t)

    @d.loop("output thread")
    def output() -> None:
        done, _ = outputs.get()
        done.synchronize()

    return d


def one_kernel_reads_two_blocks() -> fp.Design:
    """A kernel reads two pinned blocks that are dropped at once: two hazards, each with its own name.

    Only the first was listed, so accepting it would have hidden the other.
    """
    d = fp.Design("one kernel reads two blocks")

    @d.loop("thread")
    def thread() -> None:
        a_host, b_host = d.empty_pinned("a"), d.empty_pinned("b")
        a_host.write()
        b_host.write()
        d.launch("kernel", reads=[a_host, b_host])

    return d


def recorded_after_hand_over() -> fp.Design:
    """The event goes into the queue before its record: a wait that comes first waits for nothing (S21)."""
    d = fp.Design("recorded after hand-over")
    handed = d.queue("handed", capacity=1, item=(fp.EVENT,))
    x = d.device("x")
    side = d.stream("side")

    @d.loop("producer")
    def producer() -> None:
        ready = d.event("ready")
        handed.put(ready)
        d.launch("produce", writes=[x])
        ready.record()

    @d.loop("consumer", stream=side)
    def consumer() -> None:
        ready = handed.get()
        side.wait_event(ready)
        d.launch("consume", reads=[x])

    return d


def row_through_a_queue() -> fp.Design:
    """A row of a pool goes through a queue and is given back while a kernel may still read it.

    Was PROVED: the handle was lost in the queue (taken for a ring's index), so that no row was ever taken again.
    """
    d = fp.Design("row through a queue")
    table, rows = d.pinned("table"), d.pool("rows", size=1, of="row")
    q = d.queue("q", capacity=1, item=(fp.HANDLE,))

    @d.loop("worker")
    def worker() -> None:
        row = rows.take()
        table[row].write()
        d.launch("use", reads=[table[row]])
        q.put(row)
        rows.give(q.get())

    return d


def slot_by_a_handle() -> fp.Design:
    """A handle chooses the slot of a ring, the turn another one: they may be the same.

    The handle was taken for an index that never changes.
    """
    d = fp.Design("slot by a handle")
    slots, g, pages = d.pinned("slots", depth=2), d.device("g"), d.pool("pages", size=2, of="row")

    @d.loop("worker")
    def worker(n: fp.Turn) -> None:
        page = pages.take()
        slots[page].write()
        g.copy_(slots[n], non_blocking=True)
        pages.give(page)

    return d


def one_view_holds() -> fp.Design:
    """Two ways through the turn: the one view holds the block and the other is a raw pointer, or the other way round.

    Was PROVED: the two ways met, and the raw pointer looked like a reference, so that the second way was left out.
    """
    d = fp.Design("one view holds")
    side = d.stream("side")

    @d.loop("thread")
    def thread() -> None:
        t = d.empty_pinned("t")
        t.write()
        if d.choose("which", ["first", "second"]) == "first":
            v, w = t.view("v", held=False), t.view("w")
        else:
            v, w = t.view("v"), t.view("w", held=False)
        v.release()
        t.release()
        u = d.empty_pinned("u")
        d.launch("fill", writes=[u], stream=side)
        d.launch("use", reads=[w])
        side.synchronize()
        d.current_stream().synchronize()

    return d


def test_a_raw_pointer_is_no_reference() -> None:
    """REFUTED: behind the raw pointer the block has another owner."""
    assert decide(one_view_holds).verdict == a.REFUTED


def same_bytes_of_an_unknown_part() -> fp.Design:
    """A copy repeats the bytes of some part while another thread writes a part.

    Was REFUTED with no wrong value to show: the order of the two writes was taken for a difference in what they leave.
    """
    d = fp.Design("same bytes of an unknown part")
    m = d.pageable("m")

    @d.loop("writer")
    def writer() -> None:
        m["x"].write()

    @d.loop("copier")
    def copier() -> None:
        m[fp.ANY].copy_(m["y"], same_bytes=True)

    return d


def test_the_same_bytes_of_an_unknown_part_are_unknown() -> None:
    """Neither shown nor excluded: UNKNOWN, and why."""
    got = decide(same_bytes_of_an_unknown_part)
    assert got.verdict == a.UNKNOWN
    assert got.reason is not None and "unknown part" in got.reason


def cursor_of_two_threads() -> fp.Design:
    """Two threads move one cursor, and one waits for its copy before it does.

    Was REFUTED with no real run behind it: the slot that the second thread gets tells that the first one has moved on,
    hence that its copy has ended, and no edge said so.
    """
    d = fp.Design("cursor of two threads")
    s, m, c = d.stream("s", depth=3), d.device("m", depth=3), d.cursor("c", 3)

    @d.loop("copier")
    def copier(n: fp.Turn) -> None:
        m[c.last()].copy_(m[n], stream=s[n])
        c.advance()

    @d.script("kernel")
    def kernel() -> None:
        i = c.advance()
        d.launch("kernel", writes=[m[i]], stream=s[i])

    return d


def test_a_cursor_of_two_threads_is_not_decided() -> None:
    """UNKNOWN, naming the cursor and what to do."""
    got = decide(cursor_of_two_threads)
    assert got.verdict == a.UNKNOWN
    assert got.reason is not None and "cursor 'c'" in got.reason


def work_of_setup_is_late() -> fp.Design:
    """Setup enqueues a fill, which may still run when the thread reads. The machine let it end before any thread began."""
    d = fp.Design("work of setup is late")
    m, side = d.pinned("m"), d.stream("side")

    @d.setup
    def prepare() -> None:
        d.memset(m, stream=side)

    @d.loop("reader")
    def reader() -> None:
        m.read()

    return d


def host_access_of_setup_is_not() -> fp.Design:
    """What setup does itself has ended when the threads begin. The machine let its last access end later."""
    d = fp.Design("host access of setup is not")
    m, g = d.pinned("m"), d.device("g")

    @d.setup
    def prepare() -> None:
        m.write()

    @d.loop("copier")
    def copier() -> None:
        g.copy_(m, non_blocking=True)

    return d


@pytest.mark.parametrize(
    ("design", "verdict"), [(work_of_setup_is_late, a.REFUTED), (host_access_of_setup_is_not, a.PROVED)]
)
def test_the_machine_agrees(design: Callable[[], fp.Design], verdict: str) -> None:
    """The explorer was right, and the machine now shows it."""
    assert decide(design).verdict == verdict
    got = compare(program_of(design, {}), 0, runs=100, world=BARE_CUDA)
    assert (got.word, got.wrong) == (verdict, None)


def test_a_row_keeps_its_name_in_a_queue() -> None:
    """REFUTED with the table."""
    got = decide(row_through_a_queue)
    assert got.verdict == a.REFUTED
    assert got.hazards[0].name == "WAR table"


def test_a_handle_may_choose_any_slot() -> None:
    """Never PROVED: the copy of slot n may run after another turn's write of the slot that its page chose."""
    assert decide(slot_by_a_handle).verdict in (a.REFUTED, a.UNKNOWN)


def test_popping_may_wait_for_more_than_the_item() -> None:
    """REFUTED with the refilled buffer."""
    got = decide(pops_and_waits_elsewhere)
    assert got.verdict == a.REFUTED
    assert "WAR b" in [hazard.name for hazard in got.hazards]


def test_the_free_comes_after_every_holder() -> None:
    """PROVED."""
    assert decide(both_threads_hold).verdict == a.PROVED


def test_every_block_of_an_operation_has_its_hazard() -> None:
    """Both owners are named."""
    got = decide(one_kernel_reads_two_blocks)
    assert {"WAR a", "WAR b"} <= {hazard.name for hazard in got.hazards}


def test_a_wait_before_the_record_is_no_wait() -> None:
    """REFUTED: the consumer may get the handle before the record."""
    got = decide(recorded_after_hand_over)
    assert got.verdict == a.REFUTED
    assert got.hazards[0].object == "x"


def raw_pointer(again: bool, kind: str, release: bool = True) -> fp.Design:
    """A raw pointer is used after its block was freed (and handed on), all by one thread in program order."""
    d = fp.Design("raw pointer")
    target = d.device("target")

    @d.loop("worker")
    def step() -> None:
        block = d.empty_pinned("block")
        block.write()
        pointer = block.view(held=False)
        if release:
            block.release()
        if again:
            other = d.empty_pinned("other")
            other.write()
        if kind == "write":
            pointer.write()
        elif kind == "read":
            pointer.read()
        else:
            target.copy_(pointer)
        if again:
            other.read()

    return d


@pytest.mark.parametrize("kind", ["read", "write", "copy"])
@pytest.mark.parametrize("again", [True, False])
def test_use_after_free_through_a_raw_pointer_is_refuted_in_any_order(kind: str, again: bool) -> None:
    """No access is unordered, and yet the bytes are somebody else's: found by the machine, which has fresh memory."""
    answer = check(raw_pointer(again, kind).build(), explain=False)
    assert answer.verdict == a.REFUTED
    assert "UNDEFINED block" in [hazard.name for hazard in answer.hazards]
    assert check(raw_pointer(again, kind, release=False).build(), explain=False).verdict == a.PROVED


def post_before_device_sync() -> fp.Design:
    """A NIC writes a buffer, and the host waits for the GPU only. Was PROVED: the device sync waited for the NIC."""
    d = fp.Design("post before device sync")
    m, nic = d.pinned("m"), d.agent("NIC")

    @d.loop("worker")
    def worker() -> None:
        nic.post("receive", writes=[m])
        d.synchronize()
        m.read()

    return d


def test_a_device_sync_does_not_wait_for_an_agent() -> None:
    """REFUTED; and launch blocking, which holds the thread for kernels, does not hold it for a NIC's posts."""
    got = decide(post_before_device_sync)
    assert (got.verdict, got.hazards[0].name) == (a.REFUTED, "RAW m")
    blocking = check(program_of(post_before_device_sync, {}), environment="launch-blocking", explain=False)
    assert blocking.verdict == a.REFUTED


def wait_for_the_legacy_stream() -> fp.Design:
    """A stream waits for the legacy stream, whose record captures what is in blocking streams (S31).

    Was REFUTED: only calls *on* the legacy stream waited for the blocking ones.
    """
    d = fp.Design("wait for the legacy stream")
    m, side, blocking = d.device("m"), d.stream("side"), d.stream("blocking", blocking=True)

    @d.loop("worker")
    def worker() -> None:
        d.launch("write", writes=[m], stream=blocking)
        side.wait_stream(d.default_stream())
        d.launch("read", reads=[m], stream=side)
        side.synchronize()

    return d


def strided_in_two_threads() -> fp.Design:
    """Two threads make temporaries of one tensor at the same time. Was REFUTED: they shared one temporary."""
    d = fp.Design("strided in two threads")
    h, s = d.pageable("h"), d.stream("s", depth=2)
    targets = [d.device("g0"), d.device("g1")]

    def copier(k: int) -> None:
        @d.loop(f"copier {k}", stream=s[k])
        def copy() -> None:
            targets[k].copy_(h, non_blocking=True, strided=True)

    copier(0)
    copier(1)
    return d


def pointer_and_block_in_two_queues() -> fp.Design:
    """A raw pointer and the reference that holds its block travel apart; it is used while that is held.

    Was UNKNOWN: once a pointer was left from a freed block, later pointers looked like it.
    """
    d = fp.Design("pointer and block in two queues")
    pointers, blocks = (d.queue(name, capacity=1, item=(fp.MEMORY,)) for name in ("pointers", "blocks"))

    @d.loop("giver")
    def giver() -> None:
        t = d.empty_pinned("t")
        t.write()
        pointers.put(t.view(held=False))
        blocks.put(t)

    @d.loop("taker")
    def taker() -> None:
        pointers.get().read()
        blocks.get()

    return d


@pytest.mark.parametrize(
    "design", [wait_for_the_legacy_stream, strided_in_two_threads, pointer_and_block_in_two_queues]
)
def test_no_hazard_is_made_up(design: Callable[[], fp.Design]) -> None:
    """PROVED."""
    assert decide(design).verdict == a.PROVED


def pointer_used_while_the_block_is_freed() -> fp.Design:
    """Nobody but the pointer accesses the block, so only the free tells whether the write comes too late."""
    d = fp.Design("pointer used while the block is freed")
    pointers, asked = d.queue("pointers", capacity=1, item=(fp.MEMORY,)), d.queue("asked", capacity=1, item=())

    @d.loop("giver")
    def giver() -> None:
        t = d.empty_pinned("t")
        pointers.put(t.view(held=False))
        asked.get()
        t.release()

    @d.loop("taker")
    def taker() -> None:
        pointer = pointers.get()
        asked.put()
        pointer.write()

    return d


@pytest.mark.parametrize(
    "design", [pointer_used_while_the_block_is_freed, lambda: raw_pointer(False, "read"), lambda: raw_pointer(True, "write")]
)
def test_every_engine_knows_a_use_after_free(design: Callable[[], fp.Design]) -> None:
    """REFUTED by the explorer and by SMT; the certificates' relation is broken. The two latter said nothing was wrong."""
    from fencepost.engines import Question, ask
    from fencepost.model.platform import PLATFORMS
    from fencepost.proofs.certificates.writing import hazard

    program = program_of(design, {})
    for question in (Question(explain=False), Question(engine="smt", steps=2, explain=False)):
        got = ask(program, question)
        assert (got.verdict, got.hazards[0].kind) == (a.REFUTED, "UNDEFINED")
    broken = hazard(program, PLATFORMS["cuda"])
    assert broken is not None and broken[1].check.what == "UNDEFINED"


def test_the_machine_knows_whose_bytes_a_pointer_reached() -> None:
    """REFUTED with the use after free. Was an internal error: no two accesses of the run are unordered."""
    from fencepost.engines import Question, ask

    got = ask(raw_pointer(True, "read").build(), Question(engine="simulate", examples=50, seed=1, explain=False))
    assert (got.verdict, got.hazards[0].name) == (a.REFUTED, "UNDEFINED block")


def test_a_graph_is_replayed_after_its_capture() -> None:
    """A script captures it and a loop replays it: PROVED behind a flag, else an error. Was PROVED without the flag."""
    from fencepost.model.events import DesignError

    def made(waits: bool) -> fp.Design:
        d = fp.Design("captured by a script")
        m, s, graph, ready = d.device("m"), d.stream("s"), d.graph("g"), d.flag("ready")

        @d.script("capturer")
        def capturer() -> None:
            with graph.capture(s):
                d.launch("kernel", reads=[m], writes=[m])
            ready.set()

        @d.loop("replayer")
        def replayer() -> None:
            if waits:
                ready.wait()
            graph.replay(s)

        return d

    assert check(made(True).build(), explain=False).verdict == a.PROVED
    with pytest.raises(DesignError):
        check(made(False).build(), explain=False)


def test_what_the_composites_cannot_say_is_refused() -> None:
    """Announcing without waiting was PROVED through the mailbox's capacity; the legacy rule in two threads was REFUTED."""

    def announces(d: fp.Design) -> None:
        m, group = d.pageable("m", depth=4), d.communicator("tp", ["a", "b"])

        @d.loop("one")
        def one(n: fp.Turn) -> None:
            m[n].write()
            group.host_announce("a")

        @d.loop("other")
        def other(n: fp.Turn) -> None:
            group.host_wait("b")
            m[n].read()

    def two_threads(d: fp.Design) -> None:
        m, blocking = d.device("m"), d.stream("blocking", blocking=True)

        @d.loop("one")
        def one() -> None:
            d.launch("K1", reads=[m], writes=[m], stream=d.default_stream())

        @d.loop("other")
        def other() -> None:
            d.launch("K2", reads=[m], writes=[m], stream=blocking)

    def captured_memcpy(d: fp.Design) -> None:
        g, m, s, graph = d.device("g"), d.pageable("m"), d.stream("s"), d.graph("graph")

        @d.setup
        def capture() -> None:
            with graph.capture(s):
                d.memcpy(g, m)

    for build, text in ((announces, "does not wait"), (two_threads, "two threads"), (captured_memcpy, "S99")):
        with pytest.raises(fp.DesignError, match=text):
            build(fp.Design("refused"))
