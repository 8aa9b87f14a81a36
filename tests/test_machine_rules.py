"""Each rule of the platform on a small design: what the machine does where the rule holds, and beside it.

Work is held back by name, everything else ends at once; so a wrong value shows exactly what the rule does not order.
"""

from __future__ import annotations

import typing

import fencepost as fp
import pytest
from fencepost.model import program as p
from fencepost.model.platform import environment, platform
from fencepost.simulator.machine import Hardware, Machine
from fencepost.simulator.machine_host import OPERATIONS, QUESTIONS
from fencepost.simulator.machine_script import DEFAULTS, Follow
from fencepost.simulator.machine_state import FOREVER


class Hold(Follow):
    """Holds back work by its operation's name (or kind), until nothing else moves or for so many ticks."""

    def __init__(self, *names, delay=FOREVER, length=0, order=(), answers=None, fresh=False):
        super().__init__(DEFAULTS)
        self.names, self.how, self.order, self.answers, self.fresh = names, (delay, length), list(order), answers, fresh

    def stall(self, work):
        name = getattr(work.operation, "name", type(work.operation).__name__)
        return self.how if name in self.names else None

    def thread(self, candidates):
        for name in self.order:
            for k, th in enumerate(candidates):
                if th.name == name:
                    return k
        return 0

    def answer(self, thread, node, options):
        return options.index(self.answers) if self.answers in options else 0

    def block(self, thread, node, options):
        return len(options) - 1 if self.fresh else 0


def wrongs(design, *held, turns=3, hardware=None, env=None, plat=None, stop=False, **how):
    """(object, kind) of the wrong reads."""
    machine = Machine(fp.program_of(lambda: design(), {}), platform(plat), environment(env), hardware)
    outcome = machine.run(Hold(*held, **how), turns=turns, stop=stop)
    assert outcome.fault is None, outcome.fault
    return [(o.object, o.kind) for o in outcome.observations]


def test_the_machine_knows_every_operation_and_question():
    assert set(OPERATIONS) == set(typing.get_args(p.Operation))
    assert set(QUESTIONS) == set(typing.get_args(p.Question))


# ---------------------------------------------------------------- streams, events (S2, S17-S24, S32-S34)


def two_streams(edge):
    def design():
        d = fp.Design("two streams")
        x = d.device("x")
        a, b = d.stream("a"), d.stream("b")
        e = d.event("e")

        @d.loop("t")
        def step():
            edge(d, a, b, e, lambda: d.launch("produce", writes=[x], stream=a), lambda: d.launch("consume", reads=[x], stream=b))

        return d

    return design


def no_edge(d, a, b, e, produce, consume):
    produce()
    consume()


def event_edge(d, a, b, e, produce, consume):
    produce()
    e.record(a)
    b.wait_event(e)
    consume()


def record_before(d, a, b, e, produce, consume):
    e.record(a)
    produce()
    b.wait_event(e)
    consume()


def never_recorded(d, a, b, e, produce, consume):
    produce()
    b.wait_event(e)
    consume()


def rerecorded_elsewhere(d, a, b, e, produce, consume):
    produce()
    e.record(a)
    e.record(b)
    b.wait_event(e)
    consume()


def rerecorded_after_the_wait(d, a, b, e, produce, consume):
    produce()
    e.record(a)
    b.wait_event(e)
    e.record(b)
    consume()


def wait_stream(d, a, b, e, produce, consume):
    produce()
    b.wait_stream(a)
    consume()


def wait_stream_too_early(d, a, b, e, produce, consume):
    b.wait_stream(a)
    produce()
    consume()


def host_waits_event(d, a, b, e, produce, consume):
    produce()
    e.record(a)
    e.synchronize()
    consume()


def host_waits_stream(d, a, b, e, produce, consume):
    produce()
    a.synchronize()
    consume()


def host_waits_other_stream(d, a, b, e, produce, consume):
    produce()
    b.synchronize()
    consume()


def host_waits_device(d, a, b, e, produce, consume):
    produce()
    d.synchronize()
    consume()


@pytest.mark.parametrize(
    "edge, orders",
    [
        (no_edge, False), (event_edge, True), (record_before, False), (never_recorded, False),
        (rerecorded_elsewhere, False), (rerecorded_after_the_wait, True), (wait_stream, True),
        (wait_stream_too_early, False), (host_waits_event, True), (host_waits_stream, True),
        (host_waits_other_stream, False), (host_waits_device, True),
    ],
)  # fmt: skip
def test_what_orders_two_streams(edge, orders):
    found = wrongs(two_streams(edge), "produce", turns=1)
    assert found == ([] if orders else [("x", "stale")])


def test_one_stream_is_a_fifo_and_so_is_one_hardware_queue():
    def same_stream(d, a, b, e, produce, consume):
        produce()
        d.launch("consume", reads=[], stream=a)

    assert wrongs(two_streams(same_stream), "produce", turns=1) == []
    assert wrongs(two_streams(no_edge), "produce", env="one-hardware-queue") == []
    assert wrongs(two_streams(no_edge), "produce", hardware=Hardware(queues=2))


def queried(stream):
    def design():
        d = fp.Design("query")
        x = d.device("x")
        a, b = d.stream("a"), d.stream("b")
        e = d.event("e")

        @d.loop("t")
        def step():
            d.launch("produce", writes=[x], stream=a)
            e.record(a)
            if (a if stream else e).query():
                d.launch("consume", reads=[x], stream=b)

        return d

    return design


@pytest.mark.parametrize("stream", [False, True])
def test_a_query_answers_by_what_has_ended(stream):
    machine = Machine(fp.program_of(lambda: queried(stream)(), {}))
    answers = [s.answer for s in machine.run(Hold("produce"), turns=2).run.steps if s.answer]
    assert answers == ["no", "no"]
    eager = machine.run(Hold(), turns=2)
    assert [s.answer for s in eager.run.steps if s.answer] == ["yes", "yes"] and not eager.observations


def test_a_never_recorded_event_says_yes_and_waits_for_nothing():
    def design():
        d = fp.Design("never recorded")
        x, e = d.device("x"), d.event("e")

        @d.script("t")
        def main():
            d.launch("produce", writes=[x])
            e.synchronize()
            if e.query():
                d.launch("consume", reads=[x])

        return d

    machine = Machine(fp.program_of(lambda: design(), {}))
    outcome = machine.run(Hold("produce"), turns=1)
    assert [s.answer for s in outcome.run.steps if s.answer] == ["yes"] and outcome.ended == "done"


# ---------------------------------------------------------------- copies (S33, S45-S49, S52)


def refill(space, to=None, blocking=False, raw=False):
    """A host buffer rewritten right after the copy from it."""

    def design():
        d = fp.Design("refill")
        x = getattr(d, space)("x")
        y = getattr(d, to or "device")("y")

        @d.loop("t")
        def step():
            x.write()
            if raw:
                d.memcpy_async(y, x)
            else:
                y.copy_(x, non_blocking=not blocking)

        return d

    return design


def test_a_pinned_source_is_read_when_the_copy_runs():
    assert ("x", "stale") in wrongs(refill("pinned"), "Copy")
    assert ("x", "stale") in wrongs(refill("pinned", raw=True), "Copy")
    assert wrongs(refill("pinned", blocking=True), "Copy") == []


def test_a_pageable_source_is_staged_or_read_late_by_platform():
    assert wrongs(refill("pageable"), "Copy") == []
    assert wrongs(refill("pageable"), "Copy", plat="rocm") == []
    assert ("x", "stale") in wrongs(refill("pageable"), "Copy", plat="cuda-late-pageable")


def test_a_staged_source_still_has_a_late_destination():
    def design():
        d = fp.Design("staged")
        x, y = d.pageable("x"), d.device("y")
        s = d.stream("s")

        @d.loop("t")
        def step():
            x.write()
            y.copy_(x, non_blocking=True, stream=s)
            d.launch("consume", reads=[y])

        return d

    assert ("y", "stale") in wrongs(design, "Copy")
    assert wrongs(design, "Copy", plat="rocm") == []  # S52: the call waits


def landing(space, blocking=False):
    def design():
        d = fp.Design("landing")
        x, y = d.device("x"), getattr(d, space)("y")

        @d.loop("t")
        def step():
            d.launch("produce", writes=[x])
            y.copy_(x, non_blocking=not blocking)
            y.read()

        return d

    return design


def test_where_a_copy_lands_decides_whether_the_call_waits():
    assert ("y", "stale") in wrongs(landing("pinned"), "Copy")
    assert wrongs(landing("pinned", blocking=True), "Copy") == []
    assert wrongs(landing("pageable"), "Copy") == []  # S48
    assert ("y", "stale") in wrongs(landing("pageable"), "Copy", plat="cuda-late-pageable")
    assert wrongs(landing("managed"), "Copy")


def test_host_to_host_is_done_at_the_call():
    assert wrongs(refill("pinned", "pageable"), "nothing") == []


def test_item_waits_for_its_own_stream_only():
    def design():
        d = fp.Design("item")
        x, y = d.device("x"), d.device("y")
        other = d.stream("other")

        @d.script("t")
        def main():
            d.launch("late", writes=[y], stream=other)
            d.launch("produce", writes=[x])
            x.item()
            d.launch("consume", reads=[x, y])

        return d

    assert wrongs(design, "produce") == []
    assert wrongs(design, "late") == [("y", "stale")]


def test_a_copy_under_way_is_torn():
    found = wrongs(refill("pinned"), "Copy", delay=0, length=3, turns=2)
    assert found and set(found) == {("x", "torn")}

    def reader():
        d = fp.Design("reader")
        x = d.device("x")
        a, b = d.stream("a"), d.stream("b")

        @d.script("t")
        def main():
            d.launch("produce", writes=[x], stream=a)
            d.launch("consume", reads=[x], stream=b)

        return d

    assert wrongs(reader, "produce", delay=0, length=2) == [("x", "torn")]


def test_a_kernel_that_updates_in_place_does_not_conflict_with_itself():
    def design():
        d = fp.Design("in place")
        x = d.device("x")

        @d.loop("t")
        def step():
            d.launch("update", reads=[x], writes=[x])

        return d

    assert wrongs(design, "update", delay=0, length=4) == []


def test_host_code_takes_its_time_too():
    """The swap of a host write with another thread's device read: the write has begun, and lands late."""

    def design():
        d = fp.Design("slow host")
        x = d.pinned("x")

        @d.script("writer")
        def write():
            x.write()

        @d.script("launcher")
        def launch():
            d.launch("read in place", reads=[x])

        return d

    assert wrongs(design, "write", order=("writer",)) == [("x", "stale")]
    assert wrongs(design, "write", delay=0, length=3, order=("writer",)) == [("x", "torn")]
    assert wrongs(design, order=("writer",)) == []


# ---------------------------------------------------------------- environments (S113, S115)


def test_launch_blocking_in_both_readings():
    assert wrongs(two_streams(no_edge), "produce", env="launch-blocking-kernels") == []
    assert wrongs(refill("pinned"), "Copy", env="launch-blocking-kernels")
    assert wrongs(refill("pinned"), "Copy", env="launch-blocking") == []


def test_a_serial_copy_engine_serves_one_copy_at_a_time():
    def design():
        d = fp.Design("engines")
        host = [d.pinned(f"host {k}") for k in range(2)]
        device = [d.device(f"device {k}") for k in range(2)]
        streams = [d.stream(f"s{k}") for k in range(2)]

        @d.script("t")
        def main():
            for k in range(2):
                device[k].copy_(host[k], non_blocking=True, stream=streams[k])

        return d

    def ends(hardware, env=None):
        machine = Machine(fp.program_of(lambda: design(), {}), environment=environment(env), hardware=hardware)
        outcome = machine.run(Hold("Copy", delay=0, length=10), turns=1)
        return outcome.time

    assert ends(Hardware(copies="free")) == 11
    assert ends(Hardware(copies="direction")) == ends(None, "serial-copy-engine") == 20


# ---------------------------------------------------------------- device allocator (S62-S67)


def dropped_source(record=False, alloc_stream=False, wait_back=False, drop_first=True, use_after=False):
    """A block is read on a side stream, dropped, and the next tensor is written on the owner stream."""

    def design():
        d = fp.Design("dropped source")
        side, other = d.stream("side"), d.stream("other")

        @d.loop("t")
        def step():
            x = d.empty("x")
            d.launch("produce", writes=[x])
            side.wait_stream(d.current_stream())
            if record:
                x.record_stream(d.current_stream() if record == "owner" else side)
            d.launch("late read", reads=[x], stream=side)
            if wait_back:
                d.current_stream().wait_stream(side)
            x.release()
            with other if alloc_stream else d.current_stream():
                y = d.empty("y")
                d.launch("overwrite", writes=[y])
            y.release()
            side.synchronize()

        return d

    return design


def test_a_freed_block_is_reused_on_its_own_stream_at_once():
    assert ("x", "stale") in wrongs(dropped_source(), "late read", turns=1)
    assert wrongs(dropped_source(), "late read", turns=1, fresh=True) == []  # new memory each time
    assert wrongs(dropped_source(alloc_stream=True), "late read", turns=1) == []  # S62: another stream's list
    assert wrongs(dropped_source(wait_back=True), "late read", turns=1) == []  # S68


def test_record_stream_holds_the_block_until_the_stream_has_passed_the_free():
    assert wrongs(dropped_source(record=True), "late read", turns=1) == []
    assert wrongs(dropped_source(record="owner"), "late read", turns=1)  # S64: ignored for the owner stream


def test_record_stream_covers_a_use_that_is_queued_after_it_and_before_the_free():
    def design(order):
        d = fp.Design("before the free")
        side = d.stream("side")

        @d.script("t")
        def main():
            x = d.empty("x")
            d.launch("produce", writes=[x])
            side.wait_stream(d.current_stream())
            for what in order:
                if what == "record":
                    x.record_stream(side)
                else:
                    d.launch("late read", reads=[x], stream=side)
            x.release()
            y = d.empty("y")
            d.launch("overwrite", writes=[y])

        return d

    assert wrongs(lambda: design(("read",)), "late read")
    for order in (("record", "read"), ("read", "record")):
        assert wrongs(lambda order=order: design(order), "late read") == [], order


def test_blocks_are_labelled_in_the_run():
    machine = Machine(fp.program_of(lambda: dropped_source()(), {}))
    blocks = [s.block for s in machine.run(Hold(), turns=2).run.steps if s.block is not None]
    assert blocks == [0, 0, 0, 0]
    fresh = [s.block for s in machine.run(Hold(fresh=True), turns=2).run.steps if s.block is not None]
    assert fresh == [0, 1, 2, 3]


def test_a_block_lives_as_long_as_somebody_refers_to_it():
    def design(holder):
        d = fp.Design("references")
        side = d.stream("side")
        queue = d.queue("q", capacity=4, item=(fp.MEMORY,))
        cell = d.cell("c", item=(fp.MEMORY,))

        @d.script("t")
        def main():
            x = d.empty("x")
            d.launch("produce", writes=[x])
            side.wait_stream(d.current_stream())
            d.launch("late read", reads=[x], stream=side)
            if holder == "queue":
                queue.put(x)
            elif holder == "cell":
                cell.set(x)
            elif holder == "view":
                x.view()
            x.release()
            y = d.empty("y")
            d.launch("overwrite", writes=[y])
            if holder == "queue":
                queue.get()
            elif holder == "cell":
                cell.take()

        return d

    assert wrongs(lambda: design(None), "late read")
    for holder in ("queue", "cell", "view"):
        assert wrongs(lambda holder=holder: design(holder), "late read") == [], holder


# ---------------------------------------------------------------- pinned allocator (S79-S84)


def dropped_pinned(raw=False, view=None):
    def design():
        d = fp.Design("dropped pinned")
        y = d.device("y")

        @d.loop("t")
        def step():
            x = d.empty_pinned("x")
            x.write()
            source = x if view is None else x.view(attributed=view)
            if raw:
                d.memcpy_async(y, source)
            else:
                y.copy_(source, non_blocking=True)
            if source is not x:
                source.release()
            x.release()
            again = d.empty_pinned("again")
            again.write()
            again.release()

        return d

    return design


def test_a_pinned_block_waits_for_the_copies_that_the_allocator_saw():
    assert wrongs(dropped_pinned(), "Copy", turns=1) == []  # S79, S80
    assert wrongs(dropped_pinned(view=True), "Copy", turns=1) == []
    assert ("x", "stale") in wrongs(dropped_pinned(raw=True), "Copy", turns=1)  # S83
    assert ("x", "stale") in wrongs(dropped_pinned(view=False), "Copy", turns=1)  # S84


def test_pinned_blocks_are_freed_oldest_first():
    """S81: a block whose stream is idle waits behind an older one whose stream is not."""

    def design():
        d = fp.Design("oldest first")
        y, z = d.device("y"), d.device("z")
        slow, fast = d.stream("slow"), d.stream("fast")

        @d.script("t")
        def main():
            one, two = d.empty_pinned("one"), d.empty_pinned("two")
            one.write()
            two.write()
            y.copy_(one, non_blocking=True, stream=slow)
            d.memcpy_async(z, two, stream=fast)
            z.copy_(two, non_blocking=True, stream=fast)
            one.release()
            two.release()
            d.empty_pinned("three")

        return d

    machine = Machine(fp.program_of(lambda: design(), {}))

    class HoldSlow(Hold):
        def stall(self, work):
            return (FOREVER, 0) if work.stream is not None and work.stream.name == "slow" else None

    assert [s.block for s in machine.run(HoldSlow(), turns=1).run.steps if s.block is not None] == [0, 1, 2]
    assert [s.block for s in machine.run(Hold(), turns=1).run.steps if s.block is not None][2] in (0, 1)


# ---------------------------------------------------------------- values


def test_same_bytes_continue_their_epoch_and_no_other():
    def design(between):
        d = fp.Design("same bytes")
        x = d.device("x")
        a, b = d.stream("a"), d.stream("b")

        @d.script("t")
        def main():
            d.launch("A", writes=[x], stream=a)
            a.synchronize()
            d.launch("A again", writes=[fp.write(x, same_bytes=True)], stream=b)
            if between:
                d.launch("B", writes=[x], stream=a)
            d.launch("reader", reads=[x], stream=a)

        return d

    assert wrongs(lambda: design(False), "A again") == []
    # The reader sees B in the reference; A's bytes land on top of it here only if somebody reads after that.

    def later():
        d = fp.Design("same bytes, then another")
        x = d.device("x")
        a, b = d.stream("a"), d.stream("b")

        @d.script("t")
        def main():
            d.launch("A", writes=[x], stream=a)
            a.synchronize()
            d.launch("A again", writes=[fp.write(x, same_bytes=True)], stream=b)
            d.launch("B", writes=[x], stream=a)
            b.synchronize()
            d.launch("reader", reads=[x], stream=a)

        return d

    assert wrongs(later, "A again") == [("x", "stale")]


def test_fresh_memory_is_undefined():
    def design():
        d = fp.Design("undefined")

        @d.script("t")
        def main():
            x = d.empty("x")
            d.launch("reader", reads=[x])

        return d

    assert wrongs(design) == [("x", "undefined")]


def test_wrong_inputs_give_wrong_results():
    def design():
        d = fp.Design("propagate")
        x, y = d.device("x"), d.device("y")
        a, b = d.stream("a"), d.stream("b")

        @d.script("t")
        def main():
            d.launch("produce", writes=[x], stream=a)
            d.launch("compute", reads=[x], writes=[y], stream=b)
            b.synchronize()
            y.item(stream=b)

        return d

    assert wrongs(design, "produce") == [("x", "stale"), ("y", "stale")]
    assert wrongs(design, "produce", stop=True) == [("x", "stale")]


@pytest.mark.parametrize(
    "one, two, overlap",
    [
        ("a", "a", True), ("a", "b", False), (slice(0, 4), slice(2, 6), True), (slice(0, 4), slice(4, 6), False),
        ("a", slice(0, 4), True), (0, 1, False), (0, slice(0, 1), True),
    ],
)  # fmt: skip
def test_parts_overlap_as_the_language_says(one, two, overlap):
    def design():
        d = fp.Design("parts")
        x = d.device("x")
        a, b = d.stream("a"), d.stream("b")

        @d.script("t")
        def main():
            d.launch("produce", writes=[x[one]], stream=a)
            d.launch("consume", reads=[x[two]], stream=b)

        return d

    assert bool(wrongs(design, "produce")) == overlap


# ---------------------------------------------------------------- what host threads meet through


def pool_give(after):
    def design():
        d = fp.Design("pool")
        pool = d.pool("staging", 1, of="pinned")
        y = d.device("y")
        copied = d.event("copied")

        @d.loop("t")
        def step():
            token = pool.take()
            token.write()
            y.copy_(token, non_blocking=True)
            copied.record()
            if after:
                pool.give(token, after=copied)
            else:
                pool.give(token)

        return d

    return design


def test_a_token_given_after_an_event_comes_back_when_its_work_is_done():
    assert wrongs(pool_give(True), "Copy") == []
    assert wrongs(pool_give(False), "Copy")


def test_hand_over_waits_for_room_and_for_items():
    def design():
        d = fp.Design("hand over")
        q = d.queue("q", capacity=2, item=(fp.INDEX,))
        c = d.cursor("c", 8)
        x = d.pinned("x", depth=8)

        @d.loop("producer")
        def produce():
            i = c.advance()
            x[i].write()
            q.put(i)

        @d.loop("consumer")
        def consume():
            i = q.get()
            x[i].read()

        return d

    machine = Machine(fp.program_of(lambda: design(), {}))
    outcome = machine.run(Hold(order=("producer",)), turns=6)
    assert outcome.ended == "done" and outcome.turns == [6, 6] and not outcome.observations
    threads = [s.thread for s in outcome.run.steps]
    assert threads[:9] == [0] * 8 + [1]  # three turns but for the put that waits for room


def test_locks_flags_counters_and_semaphores_hold_threads_up():
    def design():
        d = fp.Design("waits")
        lock, gate = d.lock("lock"), d.flag("gate")
        seen = d.counter("seen")
        x = d.pinned("x")

        @d.script("first")
        def first():
            with lock:
                x.write()
                gate.set()
            seen.wait(1)
            x.write()

        @d.script("second")
        def second():
            gate.wait()
            with lock:
                x.read()
            seen.add()

        return d

    machine = Machine(fp.program_of(lambda: design(), {}))
    for order in (("first",), ("second",)):
        outcome = machine.run(Hold("write", order=order), turns=1)
        assert outcome.ended == "done" and not outcome.observations, order


def test_who_waits_for_ever_is_named():
    def design():
        d = fp.Design("stuck")
        one, two = d.lock("one"), d.lock("two")

        @d.loop("a")
        def a():
            with one, two:
                d.host("work")

        @d.loop("b")
        def b():
            with two, one:
                d.host("work")

        return d

    machine = Machine(fp.program_of(lambda: design(), {}))

    class Alternate(Hold):
        def thread(self, candidates):
            return len(candidates) - 1

    outcome = machine.run(Alternate(), turns=3)
    assert outcome.ended == "blocked" and outcome.blocked == ["a", "b"]


def test_get_on_an_empty_cell_is_a_fault_of_the_design():
    def design():
        d = fp.Design("empty")
        c = d.cell("slot", item=(fp.INDEX,))

        @d.script("t")
        def main():
            c.get()

        return d

    outcome = Machine(fp.program_of(lambda: design(), {})).run(Hold())
    assert outcome.ended == "fault" and outcome.fault is not None and "empty cell 'slot'" in outcome.fault


def test_an_agreed_choice_falls_alike_for_all_threads():
    def design():
        d = fp.Design("agreed")

        for k in range(2):

            @d.loop(f"rank {k}")
            def rank():
                if d.choose("kind", ["x", "y"], agreed=True) == "y":
                    d.host("y")

        return d

    machine = Machine(fp.program_of(lambda: design(), {}))

    class Any(Hold):
        count = 0

        def answer(self, thread, node, options):
            self.count += 1
            return self.count % 2

    steps = [(s.thread, s.answer) for s in machine.run(Any(), turns=4).run.steps if s.answer]
    assert [a for t, a in steps if t == 0] == [a for t, a in steps if t == 1] == ["y", "x", "y", "x"]
