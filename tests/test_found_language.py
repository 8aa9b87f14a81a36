"""Wrong answers of the language and its lowering that were found once: each design with the verdict that the platform's rules give.

All engines had them from the language, so that agreement did not show them. Three engines are asked: the explorer, the
relation of the certificates, and for some the bounded SMT engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fencepost as fp
import pytest
from fencepost.model import answer as a
from fencepost.model.language.build import program_of
from fencepost.model.language.errors import DesignError
from fencepost.model.platform import platform
from fencepost.proofs.certificates.writing import hazard
from fencepost.proofs.check import check
from fencepost.proofs.smt.engine import check as bounded

Make = Callable[..., fp.Design]
Row = tuple[Make, dict[str, Any], str]


def pinned_and_device(name: str) -> tuple[fp.Design, Any, Any]:
    d = fp.Design(name)
    return d, d.pinned("h"), d.device("g")


# ---------------------------------------------------------------- copies


def copy_within_the_device() -> fp.Design:
    """S49: a blocking `copy_` within the device does not hold the host. Was PROVED."""
    d, h, x = pinned_and_device("copy within the device")
    y = d.device("y")

    @d.loop("t")
    def t() -> None:
        h.write()
        x.copy_(h, non_blocking=True)
        y.copy_(x)

    return d


def copy_within_the_host(through: str = "copy_") -> fp.Design:
    """S49: nothing is enqueued, so that the legacy stream's rule (S11) orders nothing. Was PROVED."""
    d = fp.Design("copy within the host")
    s1, s2 = d.stream("s1", blocking=True), d.stream("s2", blocking=True)
    p, q, x = d.pinned("p"), d.pinned("q"), d.device("x")

    @d.loop("t")
    def t() -> None:
        d.launch("w", writes=[x], stream=s1)
        if through == "copy_":
            q.copy_(p)
        elif through == "memcpy":
            d.memcpy(q, p)
        else:
            d.memset(x["elsewhere"])
        d.launch("r", reads=[x], stream=s2)
        s2.synchronize()
        s1.synchronize()

    return d


def host_copy_in_a_capture() -> fp.Design:
    """S49, S91: a copy within the host runs once, at the capture. Was REFUTED: a replay had it as a node."""
    d = fp.Design("host copy in a capture")
    s, h, k, y, g = d.stream("s"), d.pinned("h"), d.pinned("k"), d.device("y"), d.graph("g")

    @d.setup(stream=s)
    def setup() -> None:
        with g.capture():
            k.copy_(h, non_blocking=True)
            d.launch("r", reads=[k, y], writes=[y])

    @d.loop("t", stream=s)
    def t() -> None:
        g.replay()
        h.write()

    return d


def item_of_host_memory(of: str = "pinned") -> fp.Design:
    """S33: `item()` waits for the stream of a GPU's tensor; of host memory it is a load. Was PROVED."""
    d, h, g = pinned_and_device("item of host memory")
    k = d.pinned("k") if of == "pinned" else d.device("k")

    @d.loop("t")
    def t() -> None:
        h.write()
        g.copy_(h, non_blocking=True)
        k.item()

    return d


def two_temporaries() -> fp.Design:
    """The second call's temporary may be the freed memory of the first (S55). Was PROVED where pageable sources are read late."""
    d = fp.Design("two temporaries")
    a, b, g1, g2, y = d.pinned("a"), d.pinned("b"), d.device("g1"), d.device("g2"), d.device("y")

    @d.script("t")
    def t() -> None:
        g1.copy_(a, strided=True, non_blocking=True)
        g2.copy_(b, strided=True, non_blocking=True)
        d.launch("r", reads=[g1, g2], writes=[y])

    return d


def no_kernel(what: str = "host function") -> fp.Design:
    """S113, S120: a kernel launch blocks; host functions, allocations and frees are none. Was MASKED."""
    d, h, g = pinned_and_device("no kernel")
    s = d.stream("s")

    @d.loop("t", stream=s)
    def t() -> None:
        x = d.malloc_async("x") if what == "free" else None
        h.write()
        g.copy_(h, non_blocking=True)
        if what == "host function":
            d.host_function("f")
        elif what == "kernel":
            d.launch("k")
        else:
            (d.malloc_async("x") if x is None else x).free_async()

    return d


# ---------------------------------------------------------------- parts


def part_of_a_part(of: str = "view") -> fp.Design:
    """A part of a view of a part lies within it. Was PROVED: it was taken as a part of the whole."""
    d = fp.Design("part of a part")
    q = d.queue("q", capacity=1, item=(fp.MEMORY,))
    s1, s2, x, y = d.stream("s1"), d.stream("s2"), d.device("x"), d.device("y")

    @d.loop("t")
    def t() -> None:
        if of == "queue":
            q.put(x["a"])
        v = q.get() if of == "queue" else x[64:128].view() if of == "span" else x["a"].view()
        d.launch("w", writes=[v[0:64] if of == "span" else v["b"]], stream=s1)
        d.launch("r", reads=[x[64:128] if of == "span" else x["b" if of == "other" else "a"]], writes=[y], stream=s2)
        s1.synchronize()
        s2.synchronize()

    return d


def an_unrelated_part() -> fp.Design:
    """Was UNKNOWN: a part in a queue anywhere made every read of a part of a block undefined."""
    d = fp.Design("an unrelated part")
    q, z, y = d.queue("q", capacity=1, item=(fp.MEMORY,)), d.device("z"), d.device("y")

    @d.loop("t")
    def t() -> None:
        x = d.empty("x")
        d.launch("w", writes=[x])
        d.launch("r", reads=[x[0:128]], writes=[y])
        q.put(z[0:64])
        q.get()

    return d


def bytes_that_nobody_wrote(upto: int = 0, named: bool = False) -> fp.Design:
    """The rest of a block of which a part was written is undefined. Was PROVED, or UNKNOWN where engines differed."""
    d = fp.Design("bytes that nobody wrote")
    y = d.device("y")

    @d.loop("t")
    def t() -> None:
        x = d.empty("x", bytes=4096)
        d.launch("w", writes=[x["a"] if named else x[0:64]])
        d.launch("r", reads=[x["b"] if named else x[0:upto] if upto else x], writes=[y])

    return d


# ---------------------------------------------------------------- devices


def branch_of_another_gpu(waits_for: int = 0) -> fp.Design:
    """S32: to wait for GPU 0 is no wait for a graph of GPU 1. Was PROVED: its branch was on the process's GPU."""
    d = fp.Design("branch of another gpu")
    s, s2, g = d.stream("s", gpu=1), d.stream("s2", gpu=1), d.graph("g")
    h, x, y = d.pinned("h"), d.device("x", gpu=1), d.device("y", gpu=1)

    @d.setup(stream=s)
    def setup() -> None:
        with g.capture():
            d.launch("k", writes=[x])
            s2.wait_stream(s)
            y.copy_(h, non_blocking=True, stream=s2)
            s.wait_stream(s2)

    @d.loop("t", stream=s)
    def t() -> None:
        h.write()
        g.replay()
        d.synchronize(waits_for)

    return d


def graph_memory_of_another_gpu() -> fp.Design:
    """What a graph allocates is of the captured stream's GPU, where an operation's current stream is then looked for (S16)."""
    d = fp.Design("graph memory of another gpu")
    s, g, h = d.stream("s", gpu=1), d.graph("g"), d.pinned("h")

    @d.setup(stream=s)
    def setup() -> None:
        with g.capture():
            x = d.empty("x")
            x.copy_(h, non_blocking=True)
            d.launch("r", reads=[x])

    @d.loop("t", stream=s)
    def t() -> None:
        h.write()
        g.replay()
        d.synchronize(1)

    return d


def group_of_another_gpu(waits_for: int = 0) -> fp.Design:
    """S121: the group's own stream is on the device of the call. Was PROVED, with a deadlock that cannot be."""
    d = fp.Design("group of another gpu")
    c = d.communicator("c", ["a", "b"])
    sa, sb = d.stream("sa", gpu=1), d.stream("sb", gpu=2)
    xa, xb, y = d.device("xa", gpu=1), d.device("xb", gpu=2), d.device("y", gpu=1)

    @d.loop("ta", stream=sa)
    def ta() -> None:
        d.launch("rd", reads=[xa], writes=[y])
        c.all_reduce(xa, rank="a", async_op=True)
        d.synchronize(waits_for)
        d.launch("w", writes=[xa])
        d.synchronize(1)

    @d.loop("tb", stream=sb)
    def tb() -> None:
        c.all_reduce(xb, rank="b", async_op=True).wait()
        sb.synchronize()

    return d


def serial_group_of_another_gpu() -> fp.Design:
    """Was refused for an event of the language's own that was on another GPU (S25)."""
    d = fp.Design("serial group of another gpu")
    c = d.communicator("c", ["a", "b"], serial=True)
    sa, sb = d.stream("sa", gpu=1), d.stream("sb", gpu=2)
    xa, xb = d.device("xa", gpu=1), d.device("xb", gpu=2)

    @d.loop("ta", stream=sa)
    def ta() -> None:
        c.all_reduce(xa, rank="a")
        sa.synchronize()

    @d.loop("tb", stream=sb)
    def tb() -> None:
        c.all_reduce(xb, rank="b")
        sb.synchronize()

    return d


# ---------------------------------------------------------------- allocators


def pinned_blocks_of_two_processes(apart: bool = True) -> fp.Design:
    """S80: the host allocator is the process's. Was REFUTED: one process got the block of the other."""
    d = fp.Design("pinned blocks of two processes")
    pa = d.process("pa")
    pb = d.process("pb") if apart else pa

    @d.script("a", process=pa)
    def a() -> None:
        t = d.empty_pinned("t")
        t.write()
        d.launch("r", reads=[t])

    @d.script("b", process=pb)
    def b() -> None:
        u = d.empty_pinned("u")
        u.write()
        d.launch("r2", reads=[u])

    return d


def noted_by_a_view(attributed: bool = False, held: bool = True) -> fp.Design:
    """S72: `record_stream` of memory that the allocator did not hand out (DLPack, from_blob) is ignored. Was PROVED."""
    d = fp.Design("noted by a view")
    s, y = d.stream("s"), d.device("y")

    @d.loop("t")
    def t() -> None:
        x = d.empty("x")
        d.launch("w", writes=[x])
        s.wait_stream(d.current_stream())
        d.launch("r", reads=[x], writes=[y], stream=s)
        x.view(attributed=attributed, held=held).record_stream(s)

    return d


def pools_apart() -> fp.Design:
    """S62, S76: a block of the caching allocator never goes to cudaMallocAsync. Was REFUTED."""
    d = fp.Design("pools apart")
    side, y = d.stream("side"), d.device("y")

    @d.script("a")
    def a() -> None:
        t = d.empty("t")
        d.launch("w", writes=[t])
        side.wait_stream(d.current_stream())
        d.launch("r", reads=[t], writes=[y], stream=side)
        t.release()
        u = d.malloc_async("u")
        d.launch("w2", writes=[u])
        u.free_async()

    return d


def token_used_after_it_was_given_back(after: bool = True) -> fp.Design:
    """Was PROVED: what named the token forgot it with the `give`."""
    d = fp.Design("token used after it was given back")
    p = d.pool("p", size=1, of="pinned")

    @d.loop("t")
    def t() -> None:
        x = p.take()
        x.write()
        if after:
            p.give(x)
        x.write()
        if not after:
            p.give(x)

    @d.loop("u")
    def u() -> None:
        x = p.take()
        x.write()
        x.read()
        p.give(x)

    return d


# ---------------------------------------------------------------- processes


def imported_view(view: bool = True) -> fp.Design:
    """S72: `record_stream` on memory of another process is ignored, through a view as well. Was PROVED."""
    d = fp.Design("imported view")
    pa, pb, ipc = d.process("pa"), d.process("pb"), d.ipc_queue("ipc")
    with pb:
        side, y = d.stream("side"), d.device("y")

    @d.loop("a", process=pa)
    def a() -> None:
        t = d.empty("t")
        d.launch("fill", writes=[t])
        ipc.put(t)

    @d.loop("b", process=pb)
    def b() -> None:
        t = ipc.get()
        side.wait_stream(d.current_stream())
        with side:
            d.launch("use", reads=[t], writes=[y])
        if view:
            w = t.view()
            w.record_stream(side)
            w.release()
        else:
            t.record_stream(side)

    return d


def imported_and_kept(how: str = "cell") -> fp.Design:
    """S138: only the last reference's end waits for the stream. Was PROVED for what is kept, REFUTED where a view is the last."""
    d = fp.Design("imported and kept")
    pa, pb, ipc = d.process("pa"), d.process("pb"), d.ipc_queue("ipc")
    with pb:
        y, h, cell = d.device("y"), d.pinned("h"), d.cell("cell")

    @d.loop("a", process=pa)
    def a() -> None:
        t = d.empty("t")
        d.launch("fill", writes=[t])
        ipc.put(t)

    @d.loop("b", process=pb)
    def b() -> None:
        h.write()
        t = ipc.get()
        v = t.view() if how in ("view", "last view") else None
        if v is not None and how == "last view":
            t.release()
        d.launch("use", reads=[t if v is None else v, h], writes=[y])
        if how == "cell":
            cell.set(t)
        elif how == "view":
            t.release()
            h.write()
            assert v is not None
            v.release()
        elif how == "last view":
            assert v is not None
            v.release()

    return d


def scatter_of_two(of: str = "out") -> fp.Design:
    """Theory section 2: that rank 1 is done says that its share was read, not that the root has its own. Was PROVED."""
    d = fp.Design("scatter of two")
    r0, r1 = d.process("r0"), d.process("r1", gpu=1)
    c = d.communicator("c", [r0, r1])
    with r0:
        x, out, side = d.device("x"), d.device("out"), d.stream("side")
    with r1:
        o1 = d.device("o1")
    q, back = d.queue("q", capacity=1, item=()), d.queue("back", capacity=1, item=())

    @d.loop("a", process=r0)
    def a() -> None:
        d.launch("fill", writes=[x])
        c.scatter(out, x, root="r0")
        back.get()

    @d.loop("a2", process=r0, stream=side)
    def a2() -> None:
        q.get()
        d.launch("use", reads=[out] if of == "out" else [], writes=[x] if of == "x" else [])
        side.synchronize()
        back.put()

    @d.loop("b", process=r1)
    def b() -> None:
        c.scatter(o1, root="r0")
        d.current_stream().synchronize()
        q.put()

    return d


PROVED, REFUTED, UNDEFINED = a.PROVED, a.REFUTED, "UNDEFINED"
QUICK: list[Row] = [
    (copy_within_the_device, {}, "WAR h"),
    (copy_within_the_host, {}, "RAW x"),
    (copy_within_the_host, {"through": "memcpy"}, "RAW x"),
    (copy_within_the_host, {"through": "memset"}, PROVED),
    (host_copy_in_a_capture, {}, PROVED),
    (item_of_host_memory, {}, "WAR h"),
    (item_of_host_memory, {"of": "device"}, PROVED),
    (part_of_a_part, {}, "RAW x"),
    (part_of_a_part, {"of": "span"}, "RAW x"),
    (part_of_a_part, {"of": "queue"}, "RAW x"),
    (part_of_a_part, {"of": "other"}, PROVED),
    (an_unrelated_part, {}, PROVED),
    (bytes_that_nobody_wrote, {}, "UNDEFINED x"),
    (bytes_that_nobody_wrote, {"upto": 128}, "UNDEFINED x"),
    (bytes_that_nobody_wrote, {"upto": 64}, PROVED),
    (bytes_that_nobody_wrote, {"named": True}, "UNDEFINED x"),
    (branch_of_another_gpu, {}, "WAR h"),
    (branch_of_another_gpu, {"waits_for": 1}, PROVED),
    (graph_memory_of_another_gpu, {}, PROVED),
    (serial_group_of_another_gpu, {}, PROVED),
    (pinned_blocks_of_two_processes, {}, PROVED),
    (pinned_blocks_of_two_processes, {"apart": False}, "WAR t"),
    (noted_by_a_view, {}, "WAR x"),
    (noted_by_a_view, {"attributed": True}, PROVED),
    (noted_by_a_view, {"attributed": True, "held": False}, "WAR x"),
    (pools_apart, {}, PROVED),
    (token_used_after_it_was_given_back, {}, "WAW p"),
    (token_used_after_it_was_given_back, {"after": False}, PROVED),
    (imported_view, {}, "WAR t"),
    (imported_view, {"view": False}, "WAR t"),
    (imported_and_kept, {}, "WAR h"),
    (imported_and_kept, {"how": "end"}, PROVED),
    (imported_and_kept, {"how": "view"}, "WAR h"),
    (imported_and_kept, {"how": "last view"}, PROVED),
    (scatter_of_two, {}, "RAW out"),
    (scatter_of_two, {"of": "x"}, "WAR x"),
    (group_of_another_gpu, {}, "WAW xa"),
]


def named(row: Row) -> str:
    """The test's id."""
    return " ".join([row[0].__name__, *(f"{k}={v}" for k, v in row[1].items())])


def decided(row: Row, **asked: Any) -> a.Answer:
    """The explorer's answer, which is the expected one."""
    answer = check(program_of(row[0], row[1]), explain=False, **asked)
    found = [one.name for one in answer.hazards]
    if row[2] in (PROVED, a.MASKED):
        assert answer.verdict == row[2], (answer.reason, found)
    else:
        assert answer.verdict == REFUTED and row[2] in found, (answer.verdict, answer.reason, found)
    return answer


@pytest.mark.parametrize("row", QUICK, ids=named)
def test_the_verdict_is_right(row: Row) -> None:
    """The explorer, and the relation of the certificates, which shares none of its code."""
    answer = decided(row)
    assert answer.hangs == ()
    broken = hazard(program_of(row[0], row[1]), platform(None))
    assert (broken is None) == (row[2] == PROVED), broken


SOLVED = (
    copy_within_the_device, item_of_host_memory, part_of_a_part, bytes_that_nobody_wrote, pinned_blocks_of_two_processes, noted_by_a_view,
    token_used_after_it_was_given_back,
)  # fmt: skip


@pytest.mark.parametrize("row", [row for row in QUICK if row[0] in SOLVED], ids=named)
def test_the_smt_engine_says_the_same(row: Row) -> None:
    """Within two turns: nothing found where it is proved, a hazard where it is not."""
    answer = bounded(program_of(row[0], row[1]), 2, seconds=60)
    assert answer.verdict == (a.BOUNDED if row[2] == PROVED else REFUTED), (answer.verdict, answer.reason)


def test_a_group_of_another_gpu_hangs_nobody() -> None:
    """Was told to hang: the host of one rank waited for the group's stream of another GPU."""
    assert decided((group_of_another_gpu, {"waits_for": 1}, PROVED)).stops == ()


@pytest.mark.parametrize("what", ["host function", "malloc", "free"])
def test_launch_blocking_is_of_kernels(what: str) -> None:
    """What is no kernel does not mask; a kernel does."""
    decided((no_kernel, {"what": what}, "WAR h"), environment="launch-blocking-kernels")
    decided((no_kernel, {"what": "kernel"}, a.MASKED), environment="launch-blocking-kernels")


def test_temporaries_share_memory_where_sources_are_read_late() -> None:
    """On a platform that reads a pageable source late, and only there."""
    answer = check(program_of(two_temporaries, {}), platform="cuda-late-pageable", explain=False)
    assert answer.verdict == REFUTED and {one.object for one in answer.hazards} == {"contiguous copy"}
    decided((two_temporaries, {}, PROVED))


# ---------------------------------------------------------------- refused


def event_on_two_gpus(through: str = "body") -> fp.Design:
    """S17, S25: the first record binds an event to its device; the second raises."""
    d = fp.Design("event on two gpus")
    s0, s1 = d.stream("s0"), d.stream("s1", gpu=1)
    q = d.queue("q", capacity=1, item=(fp.EVENT,))
    lasting = d.event("lasting", gpu=1)

    @d.loop("t")
    def t() -> None:
        e = d.event("e") if through in ("body", "queue of the body's") else lasting
        if e is not lasting:
            e.record(s1)
        if through != "body":
            q.put(e)
            e = q.get()
        e.record(s1 if through == "the same" else s0)
        e.synchronize()

    return d


def received(what: str) -> fp.Design:
    """Where received memory lives decides what happens, and is not known while a body is traced. Was PROVED."""
    d = fp.Design("received")
    q = d.queue("q", capacity=1, item=(fp.MEMORY,))
    h, g, pageable = d.pinned("h"), d.device("g"), d.pageable("pageable")

    @d.script("t")
    def t() -> None:
        q.put(pageable if what == "memcpy from the host" else g)
        x = q.get()
        if what == "strided copy":
            x.copy_(h, strided=True, non_blocking=True)
        elif what == "memcpy":
            d.memcpy(x, g)
        elif what == "memcpy from the host":
            d.memcpy(g, x)
        else:
            x.read()

    return d


def pinned_of_another_process() -> fp.Design:
    """Such memory is not mapped there. Was PROVED."""
    d = fp.Design("pinned of another process")
    pa, pb, q = d.process("pa"), d.process("pb"), d.queue("q", capacity=1, item=(fp.MEMORY,))
    with pb:
        g = d.device("g")

    @d.loop("a", process=pa)
    def a() -> None:
        x = d.empty_pinned("x")
        x.write()
        q.put(x)

    @d.loop("b", process=pb)
    def b() -> None:
        g.copy_(q.get(), non_blocking=True)

    return d


def stream_of_another_process() -> fp.Design:
    """A stream is of one process. Was accepted."""
    d = fp.Design("stream of another process")
    pa, pb = d.process("pa"), d.process("pb")
    with pb:
        s = d.stream("s")

    @d.loop("a", process=pa)
    def a() -> None:
        s.synchronize()

    return d


def freed_twice(how: str) -> fp.Design:
    """S38, S76: a free ends the bytes for all who refer to them. Was PROVED, or REFUTED for what is never freed."""
    d = fp.Design("freed twice")
    q, c, y = d.queue("q", capacity=2, item=(fp.MEMORY,)), d.cell("c"), d.device("y")

    @d.script("t")
    def t() -> None:
        x = d.malloc_async("x")
        d.launch("w", writes=[x])
        if how == "cell":
            c.set(x)
            c.take().free_async()
            d.launch("r", reads=[x], writes=[y])
            return
        q.put(x)
        if how == "lost":
            q.get()
            return
        q.put(x)
        one, other = q.get(), q.get()
        one.free_async()
        if how == "twice":
            other.free_async()
        else:
            d.launch("r", reads=[other], writes=[y])

    return d


def malloc_in_a_capture() -> fp.Design:
    """Was an internal error."""
    d = fp.Design("malloc in a capture")
    s, g = d.stream("s"), d.graph("g")

    @d.setup(stream=s)
    def setup() -> None:
        with g.capture():
            d.malloc_async("x").free_async()

    @d.loop("t", stream=s)
    def t() -> None:
        g.replay()

    return d


def callback_on_another_stream(branch: bool = False) -> fp.Design:
    """Two runs of one callback could overlap. Was a hang that cannot be."""
    d = fp.Design("callback on another stream")
    s1, s2, g = d.stream("s1"), d.stream("s2"), d.graph("g")
    q = d.queue("q", capacity=4, item=())

    @d.callback("cb", s2 if branch else s1)
    def cb() -> None:
        q.put()

    @d.script("a", stream=s1)
    def a() -> None:
        with g.capture():
            s2.wait_stream(s1)
            cb.launch()
            d.launch("k")
            s1.wait_stream(s2)
        g.replay(s2)

    return d


def graph_on_another_gpu() -> fp.Design:
    """S100: a replay is on the device of the capture."""
    d = fp.Design("graph on another gpu")
    s, s1, g, x = d.stream("s"), d.stream("s1", gpu=1), d.graph("g"), d.device("x")

    @d.setup(stream=s)
    def setup() -> None:
        with g.capture():
            d.launch("k", reads=[x], writes=[x])

    @d.loop("t")
    def t() -> None:
        g.replay(s1)

    return d


def rank_of_two_gpus() -> fp.Design:
    """S121: a communicator is of one device for each rank."""
    d = fp.Design("rank of two gpus")
    c = d.communicator("c", ["a", "b"])
    x, y = d.device("x"), d.device("y", gpu=1)

    @d.loop("t")
    def t() -> None:
        c.all_reduce(x, rank="a", async_op=True).wait()
        c.all_reduce(y, rank="a", async_op=True).wait()

    return d


def choice_in_a_helper(how: str) -> fp.Design:
    """What a block that may not run changes is not known behind it, however it changes it. Was PROVED."""
    d, h, g = pinned_and_device("choice in a helper")
    s0, s1 = d.stream("s0"), d.stream("s1")

    def within(change: Callable[[], None]) -> None:
        with d.maybe("m"):
            change()

    @d.loop("t")
    def t() -> None:
        h.write()
        s = s0
        chosen = [s0]

        def switch() -> None:
            nonlocal s
            with d.maybe("m"):
                s = s1

        if how == "nonlocal":
            switch()
        else:
            within(lambda: chosen.__setitem__(0, s1))
        g.copy_(h, non_blocking=True, stream=s if how == "nonlocal" else chosen[0])
        s1.synchronize()

    return d


def released_by_another() -> fp.Design:
    """A lock is given back by the turn that has taken it. Was UNKNOWN."""
    d = fp.Design("released by another")
    lock = d.lock("lock")

    @d.loop("t")
    def t() -> None:
        lock.release()

    return d


REFUSED: list[tuple[Make, dict[str, Any], str]] = [
    (event_on_two_gpus, {}, "to which its first record binds it (S17, S25)"),
    (event_on_two_gpus, {"through": "queue"}, "was handed over and may be of GPU 1"),
    (event_on_two_gpus, {"through": "queue of the body's"}, "was handed over and may be of GPU 1"),
    (received, {"what": "strided copy"}, "depends on where it lives (S55)"),
    (received, {"what": "memcpy"}, "depends on where it lives (S50)"),
    (received, {"what": "memcpy from the host"}, "depends on where it lives (S50)"),
    (received, {"what": "host read"}, "the host cannot access device memory"),
    (pinned_of_another_process, {}, "is pinned memory of process 'pa'"),
    (stream_of_another_process, {}, "a stream is of one process"),
    (freed_twice, {"how": "cell"}, "after it was freed or handed over"),
    (freed_twice, {"how": "two"}, "after it was freed or handed over"),
    (freed_twice, {"how": "twice"}, "after it was freed or handed over"),
    (freed_twice, {"how": "lost"}, "neither frees nor hands it over"),
    (malloc_in_a_capture, {}, "inside a capture, a memory node, is not in the language"),
    (callback_on_another_stream, {}, "is replayed on another stream than the captured one"),
    (callback_on_another_stream, {"branch": True}, "is captured on a branch"),
    (graph_on_another_gpu, {}, "is captured on GPU 0 and replayed on a stream of GPU 1"),
    (rank_of_two_gpus, {}, "a rank has one GPU (S121)"),
    (choice_in_a_helper, {"how": "nonlocal"}, "though the block may not have run"),
    (choice_in_a_helper, {"how": "list"}, "though the block may not have run"),
    (released_by_another, {}, "is released where this turn does not hold it"),
]


@pytest.mark.parametrize("row", REFUSED, ids=named)
def test_what_cannot_be_is_refused(row: tuple[Make, dict[str, Any], str]) -> None:
    """In one line that names it: while the design is traced, or lowered where it depends on what was handed over."""
    with pytest.raises((DesignError, ValueError)) as refused:
        check(program_of(row[0], row[1]), explain=False)
    assert row[2] in str(refused.value) and "\n" not in str(refused.value)


def test_an_event_that_was_handed_over_is_recorded_on_its_own_gpu() -> None:
    """Which is the declared one."""
    check(program_of(event_on_two_gpus, {"through": "the same"}), explain=False)


def token_given_back_twice(of: str) -> fp.Design:
    """Was UNKNOWN: a pool grew for ever, or nothing met."""
    d = fp.Design("token given back twice")
    p, h = d.pool("p", size=2, of=of), d.pinned("h")  # type: ignore[arg-type]
    q = d.queue("q", capacity=2, item=(fp.HANDLE if of == "row" else fp.MEMORY,))

    @d.loop("t")
    def t() -> None:
        x = p.take()
        (h[x] if of == "row" else x).write()
        q.put(x)
        p.give(x)

    @d.loop("u")
    def u() -> None:
        x = q.get()
        (h[x] if of == "row" else x).write()
        p.give(x)

    return d


@pytest.mark.parametrize("of", ["row", "pinned"])
def test_a_token_is_given_back_once(of: str) -> None:
    """The explorer names the place."""
    from fencepost.model.events import DesignError as Wrong

    with pytest.raises(Wrong, match="gives back a token that can be free there"):
        check(program_of(token_given_back_twice, {"of": of}), explain=False)


# ---------------------------------------------------------------- what commands say of it


def test_a_proof_that_its_certificate_contradicts_is_none(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check --certificate` where the certificate's relation has a hazard that the explorer did not find. Said proved."""
    from fencepost import engines
    from fencepost.cli import run

    ask = engines._ENGINES["explore"]

    def wrong(*asked: Any) -> a.Answer:
        import msgspec

        return msgspec.structs.replace(ask(*asked), verdict=PROVED, hazards=(), run=None)

    monkeypatch.setitem(engines._ENGINES, "explore", wrong)
    target = tmp_path / "design.py"
    target.write_text(
        "import fencepost as fp\n\n\ndef racy() -> fp.Design:\n"
        '    d = fp.Design("racy")\n    h, g = d.pinned("h"), d.device("g")\n\n    @d.loop("t")\n    def t() -> None:\n'
        "        h.write()\n        g.copy_(h, non_blocking=True)\n\n    return d\n"
    )
    assert run(["check", str(target), "--certificate", str(tmp_path / "proof")]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "engines disagree: explore proved, the certificate's relation" in said and "UNKNOWN" in said.upper()
    assert not (tmp_path / "proof").exists()


def test_a_comparison_tells_that_the_platform_changed(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A wait goes, and the variant is asked for a platform that needs none: a proof is lost on the other. Was fine, exit 0."""
    from fencepost.cli import run

    text = (
        'import fencepost as fp\n\n\n@fp.variant("good", fp.PROVED%s)\ndef r() -> fp.Design:\n    d = fp.Design("r")\n'
        '    h, g, y, s = d.pageable("h"), d.device("g"), d.device("y"), d.stream("s")\n\n    @d.loop("t")\n    def t() -> None:\n'
        "        h.write()\n        g.copy_(h, non_blocking=True)\n%s"
        '        d.launch("k", reads=[g], writes=[y], stream=s)\n        s.synchronize()\n\n    return d\n'
    )
    (tmp_path / "before.py").write_text(text % ("", "        s.wait_stream(d.current_stream())\n"))
    (tmp_path / "after.py").write_text(text % (', platform="rocm"', ""))
    assert run(["diff", str(tmp_path / "before.py"), str(tmp_path / "after.py")]) == 3
    assert "it is decided for platform rocm and was for cuda" in " ".join(capsys.readouterr().out.split())


# ---------------------------------------------------------------- what cannot be written is not offered


def offers(design: Make, **parameters: Any) -> list[str]:
    """The texts of all additions that close the design's hazards, and of the fixes that `check` names."""
    from fencepost.proofs.waits.repair import repair

    program = program_of(design, parameters)
    found = [one.text for plan in repair(program, seconds=20.0).repairs for one in plan.additions]
    return found + list(check(program).fixes)


def graph_beside_a_kernel() -> fp.Design:
    """A kernel that nothing orders behind the graph's nodes."""
    d = fp.Design("graph beside a kernel")
    s, s2, g = d.stream("s"), d.stream("s2"), d.graph("g")
    h, y, z, y2 = d.pinned("h"), d.device("y"), d.device("z"), d.device("y2")

    @d.setup(stream=s)
    def setup() -> None:
        with g.capture():
            y.copy_(h, non_blocking=True)
            d.launch("k", reads=[y], writes=[z])
            d.launch("k2", reads=[z], writes=[y2])

    @d.loop("t", stream=s)
    def t() -> None:
        g.replay()
        d.launch("r", reads=[y], writes=[z], stream=s2)
        s2.synchronize()

    return d


def posts_of_an_agent() -> fp.Design:
    """A NIC's queue is waited for by the handles of its posts."""
    d = fp.Design("posts of an agent")
    h, nic = d.pinned("h"), d.agent("nic")

    @d.loop("t")
    def t() -> None:
        h.write()
        nic.post("send", reads=[h])

    return d


@pytest.mark.parametrize(("design", "given", "never"), [
    (graph_beside_a_kernel, {}, ("launched", "edge")),
    (posts_of_an_agent, {}, ("nic.synchronize", "wait_stream(nic)")),
    (imported_view, {"view": False}, ("default pa.wait_stream(side)", "side.synchronize() before", "record_stream")),
])  # fmt: skip
def test_no_addition_says_what_nobody_can_write(design: Make, given: dict[str, Any], never: tuple[str, ...]) -> None:
    """An event of the language's own, a wait for an agent's queue or another process's stream, `record_stream` of its memory."""
    found = offers(design, **given)
    assert found and not [text for text in found for word in never if word in text]


def sides_of_calls(what: str) -> fp.Design:
    """Calls that wait on the side: the legacy stream's rule, a graph's launches, a copy between GPUs, a free, a received handle."""
    d = fp.Design("sides of calls")
    s1, s2, far = d.stream("s1", blocking=what == "legacy"), d.stream("s2"), d.stream("far", gpu=1)
    x, y, z, g = d.device("x"), d.device("y"), d.device("z", gpu=1), d.graph("g")

    @d.setup(stream=s1)
    def setup() -> None:
        with g.capture():
            d.launch("k", reads=[x], writes=[x])

    @d.loop("t")
    def t() -> None:
        if what == "legacy":
            d.launch("w", writes=[x], stream=s1)
            d.launch("r", reads=[x], writes=[y])
        elif what == "graph":
            g.replay(s1)
            g.replay(s2)
        elif what == "peer":
            d.launch("w", writes=[x], stream=s1)
            d.peer_copy(z, x, source=s1, target=far)
            d.launch("r", reads=[z], writes=[z], stream=far)
        else:
            m = d.malloc_async("m", stream=s1)
            d.launch("w", writes=[m], stream=s1)
            s2.wait_stream(s1)
            m.free_async(s2)

    return d


@pytest.mark.parametrize(("what", "written"), [("legacy", 0), ("graph", 0), ("peer", 0), ("free", 1)])
def test_what_a_call_does_on_the_side_is_no_synchronisation_that_may_go(what: str, written: int) -> None:
    """Was listed, as redundant or needed: nobody can take it away."""
    from fencepost.proofs.waits.catalogue import synchronisations

    program = program_of(sides_of_calls, {"what": what})
    assert len(synchronisations(program)) == written
    assert program.implied and program.bare() == program


class Slotted:
    """State that a body keeps from turn to turn, in an object without a dictionary."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def tick(self) -> bool:
        """Whether it is one of the first turns."""
        self.n += 1
        return self.n < 1000


@pytest.mark.parametrize("how", ["object", "bound method", "partial"])
def test_state_behind_a_callable_is_seen(how: str) -> None:
    """A body that counts its turns is refused, wherever the count is kept. Was PROVED."""
    import functools

    counter = Slotted()
    d, h, g = pinned_and_device("state behind a callable")
    tick = {"object": lambda: counter.tick(), "bound method": counter.tick, "partial": functools.partial(Slotted.tick, counter)}[how]

    with pytest.raises(DesignError, match="which lives on"):

        @d.loop("t")
        def t() -> None:
            h.write()
            g.copy_(h, non_blocking=True)
            if tick():
                d.current_stream().synchronize()
