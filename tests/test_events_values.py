"""Allocators, pools, feasibility and value change on the concrete event structure. Every test says why."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events import (
    InvalidRun,
    Player,
    conflicts,
    execute,
    feasible,
    happens_before,
    hazard_of,
    undefined_hazard,
    undefined_reads,
    value_change,
)
from fencepost.model.events.clocks import RaceDetector, VectorClocks
from fencepost.model.events.parts import covers


def _helpers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("events_helpers", Path(__file__).with_name("test_events.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


h = _helpers()
BASE, HOST, DEV, S, T, EV, X, Y, E = h.BASE, h.HOST, h.DEV, h.S, h.T, h.EV, h.X, h.Y, h.E
thread, ask, design, played, reads, writes, names = h.thread, h.ask, h.design, h.played, h.reads, h.writes, h.names
LX, LY = p.Local(X), p.Local(Y)

# ---------------------------------------------------------------- device and pinned allocator


def alloc(local: int = X, stream: p.Operand = S) -> p.Alloc:
    return p.Alloc(local, "device", stream)


def pinned(local: int = X) -> p.Alloc:
    return p.Alloc(local, "pinned")


def kernel(stream: p.Operand, *, r: tuple[p.Operand, ...] = (), w: tuple[p.Operand, ...] = ()) -> p.Launch:
    return p.Launch("k", stream, reads(*r) + writes(*w))


SIDE = [alloc(), kernel(S, w=(LX,)), p.WaitStream(T, S), kernel(T, r=(LX,))]
"""A tensor made on s and read on t."""
NEXT = [alloc(Y), kernel(S, w=(LY,))]
"""The next owner of the bytes writes them on s."""


def test_block_reused_under_a_side_stream_reader() -> None:
    """S63: the free waits for nothing, so the next owner's write races with the read on the other stream."""
    program = design(BASE, thread("w", *SIDE, p.Drop(X), *NEXT))
    s = played(program, "0" * 7, blocks={0: 1, 5: 1})
    (pair,) = conflicts(s)
    hazard = hazard_of(s, *pair)
    assert (hazard.name, hazard.new_owner, hazard.value_changing) == ("WAR x", "y", True)
    assert hazard.first is not None
    assert (hazard.first.tenant, hazard.second.tenant) == ("x", "y")
    assert names(played(program, "0" * 7)) == []  # without numbers the two share nothing


def test_record_stream_protects_the_block() -> None:
    """S65: the next owner's allocation has seen the event that the free recorded on the noted stream."""
    program = design(BASE, thread("w", *SIDE, p.RecordStream(LX, T), p.Drop(X), *NEXT))
    assert names(played(program, "0" * 8, blocks={0: 1, 6: 1})) == []


def test_record_stream_covers_its_stream_only() -> None:
    """S66: a use by a stream that was never noted is not waited for."""
    program = design([*BASE, p.Stream("u")], thread("w", *SIDE, p.RecordStream(LX, p.Obj(5)), p.Drop(X), *NEXT))
    assert names(played(program, "0" * 8, blocks={0: 1, 6: 1})) == ["WAR x"]


def test_record_stream_covers_uses_between_it_and_the_free() -> None:
    """S65: the event is recorded at the free, so a use enqueued after record_stream is covered, too."""
    program = design(BASE, thread("w", *SIDE[:3], p.RecordStream(LX, T), SIDE[3], p.Drop(X), *NEXT))
    assert names(played(program, "0" * 8, blocks={0: 1, 6: 1})) == []


def test_use_after_release_is_refused() -> None:
    """A released local names nothing any more."""
    with pytest.raises(InvalidRun, match="'x' is used before it has a value or after its release"):
        played(design(BASE, thread("w", alloc(), p.Drop(X), kernel(S, w=(LX,)))), "000")


def test_record_stream_of_the_owner_is_ignored() -> None:
    """S64: noting the owner stream adds nothing, and no edge to the allocating host thread."""
    body = [alloc(), kernel(S, w=(LX, HOST)), p.RecordStream(LX, S), p.Drop(X), alloc(Y), h.LOOK]
    assert names(played(design(BASE, thread("w", *body)), "0" * 6, blocks={0: 1, 4: 1})) == ["RAW host"]


def test_the_poll_is_an_edge_to_the_allocating_thread() -> None:
    """S65: whoever got the block has seen the noted stream's work up to the free complete."""
    body = [alloc(), kernel(T, w=(LX, HOST)), p.RecordStream(LX, T), p.Drop(X), alloc(Y), h.LOOK]
    assert names(played(design(BASE, thread("w", *body)), "0" * 6, blocks={0: 1, 4: 1})) == []


def test_pinned_blocks_wait_for_copies_that_the_allocator_saw() -> None:
    """S79, S80, S83, S84: copy_ is noted; a raw memcpy and an unattributed view are not."""
    copy = p.Copy(DEV, LX, S, non_blocking=True)
    raw = p.Copy(DEV, LX, S, non_blocking=True, raw=True)
    view = p.Copy(DEV, LY, S, non_blocking=True)
    for body, expected in (
        ([copy], []),
        ([raw], ["WAR x"]),
        ([p.View(Y, LX, attributed=False), view, p.Drop(Y)], ["WAR x"]),
        ([p.View(Y, LX), view, p.Drop(Y)], []),
    ):
        full = [pinned(), p.Host("f", writes(LX)), *body, p.Drop(X), pinned(Y), p.Host("f", writes(LY))]
        s = played(design(BASE, thread("w", *full)), "0" * len(full), blocks={0: 1, len(full) - 2: 1})
        assert names(s) == expected


def test_blocks_are_handed_out_by_the_allocators_rules() -> None:
    """S63, S71, S80: not while referenced (a view counts), not to another stream, not across kinds of memory."""
    for second, message in (
        ([alloc(Y)], "still has references"),
        ([p.View(Y, LX), p.Drop(X), alloc(X)], "still has references"),
        ([p.Drop(X), alloc(Y, T)], "belongs to another stream"),
        ([p.Drop(X), pinned(Y)], "is device memory"),
    ):
        program = design(BASE, thread("w", alloc(), *second))
        with pytest.raises(InvalidRun, match=message):
            played(program, "0" * (1 + len(second)), blocks={0: 1, len(second): 1})
    player = Player(design(BASE, thread("w", alloc(), p.Drop(X), alloc(Y))))
    player.step(Step(0, 0, block=7))
    player.step(Step(0, 1))
    assert player.possible_blocks(0) == (7,)


def test_a_queue_item_holds_its_references() -> None:
    """A block in a queue is not free; the getter's local takes the reference over, and its turn's end drops it."""
    queue = p.Queue("q", 1, (("", (p.MEMORY,)),))
    a = thread("a", alloc(), p.Put(5, "", (LX,)), p.Drop(X), alloc(Y))
    b = thread("b", p.Get(5, "", (X,)), kernel(T, r=(LX,)))
    program = design([*BASE, queue], a, b)
    with pytest.raises(InvalidRun, match="still has references"):
        played(program, "0000", blocks={0: 1, 3: 1})
    with pytest.raises(InvalidRun, match="still has references"):
        played(program, "00010", blocks={0: 1, 4: 1})
    played(program, "000110", blocks={0: 1, 5: 1})


def test_free_comes_before_the_allocation_that_gets_the_bytes() -> None:
    """Theory section 2: the allocator's lock joins them, also for references that other threads dropped before."""
    queue = p.Queue("q", 1, (("", (p.MEMORY,)),))
    a = thread("a", pinned(), p.Host("f", writes(LX)), p.Put(5, "", (LX,)), p.Host("r", reads(LX)), p.Drop(X))
    b = thread("b", p.Get(5, "", (X,)), p.Drop(X), pinned(Y), p.Host("f", writes(LY)))
    s = played(design([*BASE, queue], a, b), "000100111", blocks={0: 1, 7: 1})
    assert names(s) == []


def test_undefined_reads() -> None:
    """Allocation makes bytes undefined, whatever the last owner left there; memory made outside starts defined."""
    body = [alloc(), kernel(S, w=(LX,)), p.Drop(X), alloc(Y), kernel(S, r=(LY, DEV)), kernel(S, w=(LY,)), kernel(S, r=(LY,))]
    s = played(design(BASE, thread("w", *body)), "0" * 7, blocks={0: 1, 3: 1})
    assert [undefined_hazard(s, k).name for k in undefined_reads(s)] == ["UNDEFINED y"]
    assert conflicts(s) == []


# ---------------------------------------------------------------- pools


def pool_design(size: int, give: p.Give) -> p.Program:
    pool = p.Pool("pool", size, "pinned")
    copy = p.Copy(DEV, LX, S, non_blocking=True)
    fill = p.Host("f", writes(LX))
    return design([*BASE, pool], thread("w", p.Take(5, X), fill, copy, p.Record(EV, S), give, p.Take(5, X), fill))


def test_pool_give_after_an_event_waits_for_it() -> None:
    """The token is free when the event's work is done; without `after` the next take races with the copy."""
    assert names(played(pool_design(1, p.Give(5, LX)), "0" * 7)) == ["WAR pool"]
    assert names(played(pool_design(1, p.Give(5, LX, EV)), "0" * 7)) == []
    assert names(played(pool_design(2, p.Give(5, LX)), "0" * 7)) == []  # another token
    assert names(played(pool_design(2, p.Give(5, LX)), "0" * 7, blocks={0: 3, 5: 3})) == ["WAR pool"]


def test_pool_tokens_are_finite() -> None:
    """A take waits when all tokens are out; a token cannot be given back twice."""
    pool = p.Pool("pool", 1, "row")
    with pytest.raises(InvalidRun, match="has no free token"):
        played(design([*BASE, pool], thread("w", p.Take(5, 3), p.Take(5, 3))), "00")
    with pytest.raises(InvalidRun, match="not a taken token"):
        played(design([*BASE, pool], thread("w", p.Take(5, 3), p.Give(5, p.Local(3)), p.Give(5, p.Local(3)))), "000")


def test_pool_rows_are_parts() -> None:
    """`buf[r]` of two rows that are out at the same time are disjoint; the same row again is not."""
    pool = p.Pool("rows", 2, "row")
    row = p.Obj(0, p.At(p.Var(3)))
    body = [p.Take(5, 3), p.Launch("k", S, reads(row)), p.Give(5, p.Local(3)), p.Take(5, 3), p.Host("f", writes(row))]
    program = design([*BASE, pool], thread("w", *body))
    assert names(played(program, "00000")) == []
    assert names(played(program, "00000", blocks={0: 1, 3: 1})) == ["WAR host"]


# ---------------------------------------------------------------- queries and feasibility


def test_query_true_is_a_wait_and_false_is_not() -> None:
    """S24: "yes" gives the edge of a synchronize."""
    program = design(BASE, thread("w", h.UP, h.RECORD, ask(p.EventQuery(EV)), h.FILL))
    assert names(played(program, "0000", "y")) == []
    assert names(played(program, "0000", "n")) == ["WAR host"]
    program = design(BASE, thread("w", h.UP, ask(p.StreamQuery(S)), h.FILL))
    assert names(played(program, "000", "y")) == []
    assert names(played(program, "000", "n")) == ["WAR host"]


def test_false_query_comes_after_the_record_call() -> None:
    """[T] a never recorded event says yes (S18), so "no" proves that the record call has happened."""
    program = design(BASE, thread("a", h.FILL, h.UP, h.RECORD), thread("b", ask(p.EventQuery(EV)), h.LOOK))
    assert names(played(program, "00011", "n")) == []
    assert names(played(program, "01100", "y")) == ["RAW host"]
    program = design(BASE, thread("a", h.FILL, h.UP), thread("b", ask(p.StreamQuery(S)), h.LOOK))
    assert names(played(program, "0011", "n")) == []


def test_false_query_comes_after_the_calls_that_enqueued_its_work() -> None:
    """An event that captured nothing says yes, too: "no" proves that another thread's launch on the recorded stream
    has been called, and what that thread did before it is over."""
    program = design(BASE, thread("a", h.FILL, h.UP), thread("b", h.RECORD, ask(p.EventQuery(EV)), h.LOOK))
    assert names(played(program, "00111", "n")) == []
    assert names(played(program, "0111", "y")) == ["RAW host"]
    two = p.Obj(5)  # the captured work sits behind a wait on another stream
    body = [p.StreamWaitEvent(T, EV), p.Record(two, T), ask(p.EventQuery(two)), h.LOOK]
    program = design([*BASE, p.Event("two")], thread("a", h.FILL, h.UP), thread("c", h.RECORD), thread("b", *body))
    assert names(played(program, "0012222", "n")) == []


def test_false_is_impossible_once_the_work_is_known_complete() -> None:
    """S24: after a wait for later work of the stream the capture is complete."""
    program = design(BASE, thread("w", h.UP, h.RECORD, p.StreamSync(S), ask(p.EventQuery(EV))))
    with pytest.raises(InvalidRun, match="answer can only be yes"):
        played(program, "0000", "n")
    assert feasible(played(program, "0000", "y"))


def test_feasibility_counts_the_order_of_host_calls() -> None:
    """[T] b's wait returns, then b and then a call `synchronize` on an event that nobody records. That is no HB edge,
    but the calls were made in this order, so a's query comes after the work that b waited for."""
    other = p.Obj(5)
    objects = [*BASE, p.Event("other"), p.Memory("z", "pinned")]
    a = thread("a", p.EventSync(other), ask(p.EventQuery(EV)))
    b = thread("b", h.UP, h.RECORD, p.StreamSync(S), p.EventSync(other))
    program = design(objects, a, b)
    assert not feasible(played(program, "111100", "n"))
    assert feasible(played(program, "111100", "y"))
    assert feasible(played(program, "110011", "n"))  # asked before b's wait returned


def test_two_queries_can_contradict_each_other() -> None:
    """a knows s complete and sees t pending, b knows t complete and sees s pending: whoever's wait returned last saw
    both complete. Each "no" alone is possible."""
    two = p.Obj(5)
    objects = [*BASE, p.Event("two")]
    a = thread("a", p.StreamSync(S), ask(p.EventQuery(two)))
    b = thread("b", p.StreamSync(T), ask(p.EventQuery(EV)))
    start = thread("i", kernel(S), h.RECORD, kernel(T), p.Record(two, T), kind="setup")
    program = design(objects, a, b, start)
    s = played(program, "2222" + "0101", "nn")
    assert not feasible(s)
    assert feasible(played(program, "2222" + "0101", "ny"))


def test_a_query_of_a_joined_record_needs_one_pending_item() -> None:
    """A record after a wait completes with the last of its items: one of them known complete does not make it so."""
    two = p.Obj(5)
    body = [kernel(S), h.RECORD, kernel(T), p.StreamWaitEvent(T, EV), p.Record(two, T), p.StreamSync(S), ask(p.EventQuery(two))]
    program = design([*BASE, p.Event("two")], thread("w", *body))
    assert feasible(played(program, "0" * 7, "n"))


# ---------------------------------------------------------------- value change


def changes(program: p.Program, order: str) -> list[bool | None]:
    s = played(program, order)
    return [value_change(s, i, j)[0] for i, j in conflicts(s)]


def test_same_bytes_in_the_same_epoch_change_nothing() -> None:
    """A, read, A again: the read gets A either way. The second A racing with B does not leave B's bytes."""
    again = p.Host("again", writes(HOST, same=True))
    assert changes(design(BASE, thread("w", h.FILL, h.UP, again)), "000") == [False]
    b = kernel(S, w=(HOST,))
    look = p.Copy(DEV, HOST, S, non_blocking=True)
    assert changes(design(BASE, thread("w", h.FILL, h.FILL, b, look)), "0000") == []
    racing = design(BASE, thread("w", h.FILL, b, again, p.StreamSync(S), h.LOOK))
    assert changes(racing, "00000") == [False]  # val order: `again` continues B's content, one epoch
    racing = design(BASE, thread("w", h.FILL, b, p.StreamSync(S), h.LOOK), thread("v", again))
    # Val order A, A again, B. The two As are one epoch; B racing with the second is not: swapped, A comes back over B.
    assert changes(racing, "01000") == [False, True, True]
    zero = design(BASE, thread("w", h.FILL, h.UP, p.Host("zero", writes(HOST)), h.FILL))
    assert changes(zero, "0000") == [True, True]  # zero, then refill, is not the same bytes


def test_waw_whose_loser_nobody_reads() -> None:
    """No reader in the design: access-level only. Readers elsewhere, none in this run: neither shown nor excluded."""
    pair = [kernel(S, w=(DEV,)), kernel(T, w=(DEV,))]
    assert changes(design(BASE, thread("w", *pair)), "00") == [False]
    reader = thread("r", ask(p.Maybe("m"), "yes"), kernel(S, r=(DEV,)))
    assert changes(design(BASE, thread("w", *pair), reader), "00") == [None]
    joined = [*pair, p.StreamSync(S), p.StreamSync(T), p.Item(DEV, S)]
    assert changes(design(BASE, thread("w", *joined)), "00000") == [True]


def test_disjoint_later_writes_do_not_count_as_a_change() -> None:
    """Reading the whole after writes to two named parts gives the same bytes in either order."""
    one, two = p.Obj(1, p.Named("a")), p.Obj(1, p.Named("b"))
    body = [kernel(S, w=(one, HOST)), kernel(T, w=(two, HOST)), p.StreamSync(S), p.StreamSync(T), p.Item(DEV, S)]
    s = played(design(BASE, thread("w", *body)), "0" * 5)
    assert [(hazard_of(s, i, j).name, value_change(s, i, j)[0]) for i, j in conflicts(s)] == [("WAW host", False)]


def test_covers() -> None:
    """A later write replaces an earlier one only where it surely covers it."""
    named, span = (p.Named("a"),), (p.Span(0, 8),)
    assert covers((), named)
    assert covers(named, (*named, p.Span(0, 1)))
    assert covers(span, (p.Span(2, 4),))
    assert not covers((p.Span(2, 4),), span)
    assert not covers((p.Anything(),), (p.Anything(),))
    assert not covers(named, ())


# ---------------------------------------------------------------- clocks


def test_clocks_agree_with_reachability() -> None:
    """Lists, skipped joins and copy-on-write give what a search in the graph of edges gives, on random event lists."""
    rng = random.Random(7)
    for _ in range(60):
        objects: list[p.Object] = [*BASE, p.Event("two"), p.Flag("f")]
        bodies: list[list[p.Operation]] = [[], []]
        for body in bodies:
            for _ in range(10):
                stream, event = rng.choice([S, T]), rng.choice([EV, p.Obj(5)])
                body.append(rng.choice([
                    kernel(stream, w=(DEV,)), p.Record(event, stream), p.StreamWaitEvent(stream, event),
                    p.EventSync(event), p.StreamSync(stream), p.Host("w", writes(HOST)), p.FlagSet(6),
                    p.WaitStream(S, T), kernel(stream, r=(DEV, HOST)),
                ]))  # fmt: skip
        program = design(objects, thread("a", *bodies[0]), thread("b", *bodies[1]))
        order = [0] * 10 + [1] * 10
        rng.shuffle(order)
        pcs, steps = [0, 0], []
        for t in order:
            steps.append(Step(t, pcs[t]))
            pcs[t] += 1
        s = execute(program, Run(tuple(steps)))
        edges = reachability(program, steps)
        for i, a in enumerate(s.nodes):
            for b in s.nodes[i + 1 :]:
                assert happens_before(a, b) == (("end", a.step) in edges[("start", b.step)])
        expected = [
            (i, j) for j, y in enumerate(s.accesses) for i, x in enumerate(s.accesses[:j])
            if x.node != y.node and x.touched.key == y.touched.key and (x.touched.write or y.touched.write)
            and not happens_before(s.nodes[x.node], s.nodes[y.node])
        ]  # fmt: skip
        assert conflicts(s) == sorted(expected)


def reachability(program: p.Program, steps: list[Step]) -> dict[tuple[str, int], set[tuple[str, int]]]:
    """Predecessor sets of start and end points, one by one from theory section 2, with no clocks."""
    before: dict[tuple[str, int], set[tuple[str, int]]] = {}
    host: dict[int, set[tuple[str, int]]] = {}
    tail: dict[p.Operand, set[tuple[str, int]]] = {}
    capture: dict[p.Operand, set[tuple[str, int]]] = {}
    for number, step in enumerate(steps):
        node = program.threads[step.thread].nodes[step.node]
        assert isinstance(node, p.Do)
        o = node.operation
        now = host.setdefault(step.thread, set())
        if isinstance(o, p.Launch):
            start = now | tail.get(o.stream, set())
            before[("start", number)] = start
            tail[o.stream] = start | {("end", number)}
        elif isinstance(o, p.Record):
            tail[o.stream] = tail.get(o.stream, set()) | now
            capture[o.event] = tail[o.stream]
        elif isinstance(o, p.StreamWaitEvent) and o.event in capture:
            tail[o.stream] = tail.get(o.stream, set()) | now | capture[o.event]
        elif isinstance(o, p.WaitStream):
            tail[o.other] = tail.get(o.other, set()) | now
            tail[o.stream] = tail.get(o.stream, set()) | now | tail[o.other]
        elif isinstance(o, p.EventSync):
            host[step.thread] = now | capture.get(o.event, set())
        elif isinstance(o, p.StreamSync):
            host[step.thread] = now | tail.get(o.stream, set())
        elif isinstance(o, p.Host):
            before[("start", number)] = now
            host[step.thread] = now | {("end", number)}
    return before


def test_race_detector_on_line() -> None:
    """The recorder's handler: a write on another stream races until a wait orders it."""
    races = RaceDetector(3)
    races.launch(0, 1, (), (5,))
    races.launch(0, 2, (5,), ())
    assert races.races == [(5, 1, 1, 2, 1)]
    races = RaceDetector(3)
    races.launch(0, 1, (), (5,))
    races.clocks.wait(0, 2, races.clocks.record(0, 1), 1)
    races.launch(0, 2, (5,), (5,))
    assert races.races == []


def test_snapshots_do_not_change() -> None:
    """Copy on write: a clock that was handed out stays as it was."""
    clocks = VectorClocks(2)
    clocks.touch(0)
    kept = clocks.snapshot(0)
    other = clocks.copy()
    clocks.touch(0)
    other.touch(0)
    other.touch(0)
    assert (kept, clocks.now[0], other.now[0]) == ([1, 0], [2, 0], [3, 0])
