"""Small designs of streams that share one hardware queue (S115-S117): what is masked there, and what each stream tells of.

A kernel on `busy` writes `x`; `idle` and `other` share its queue, `far` is a stream of another GPU. Where threads have to come
in an order, "told" holds them back and orders nothing. `gate` keeps a queue pending until it is opened.
"""

from __future__ import annotations

from collections.abc import Callable

import fencepost as fp
from fencepost.model import program as p

from mutation.declared import declared
from mutation.designs.ranks import without_edges

WORLD = "one-hardware-queue"


class Shared:
    """Streams of one queue, one elsewhere, and what they work on."""

    def __init__(self, name: str) -> None:
        self.d = d = fp.Design(name)
        self.x, self.m, self.z = d.pinned("x"), d.pinned("m"), d.pinned("z")
        self.scratch = d.pageable("scratch")
        self.busy, self.idle, self.other = d.stream("busy"), d.stream("idle"), d.stream("other")
        self.far = d.stream("far", gpu=1)
        self.e, self.g = d.event("e"), d.event("g", gpu=1)
        self.told, self.opened = d.flag("told"), d.flag("opened")
        self.gate = d.device_flag("gate")

    def write(self) -> None:
        """The kernel that the queue is busy with."""
        self.d.launch("write", writes=[self.x], stream=self.busy)

    def more(self, stream: fp.Stream) -> None:
        """Some work that touches nothing."""
        self.d.launch("more", stream=stream)

    def write_far(self) -> None:
        """A kernel of the other GPU, and its event."""
        self.d.launch("write far", writes=[self.z], stream=self.far)
        self.g.record(self.far)

    def shut(self) -> None:
        """What is put into the queue from now on is pending."""
        self.busy.wait_value(self.gate, 1)

    def scratched(self) -> None:
        """A conflict that nothing here touches."""
        self.scratch.write()
        self.scratch.read()

    def opens(self) -> None:
        """A thread that opens the gate and says so."""

        @self.d.script("opens")
        def opens() -> None:
            self.far.write_value(self.gate, 1)
            self.opened.set()

    def build(self) -> p.Program:
        """The program, in which no flag orders anything."""
        return without_edges(self.d.build())


def entered(verdict: str, *hazards: str) -> Callable[[Callable[[Shared], None]], None]:
    """Enter a design under one hardware queue: the function puts its threads into a `Shared`."""

    def enter(function: Callable[[Shared], None]) -> None:
        def build() -> p.Program:
            o = Shared(function.__name__.replace("_", " "))
            function(o)
            return o.build()

        build.__name__ = function.__name__
        declared(verdict, *hazards, environment=WORLD)(build)

    return enter


# ---------------------------------------------------------------- records


@entered(fp.MASKED)
def record_of_an_idle_stream(o: Shared) -> None:
    """A record is an item behind all that is in the queue, for who waits for the event."""

    @o.d.script("thread")
    def thread() -> None:
        o.write()
        o.e.record(o.idle)
        o.e.synchronize()
        o.x.read()


@entered(fp.MASKED)
def record_is_the_own_item(o: Shared) -> None:
    """And for who waits for the stream."""

    @o.d.script("thread")
    def thread() -> None:
        o.write()
        o.e.record(o.idle)
        o.idle.synchronize()
        o.x.read()


@entered(fp.MASKED)
def record_starts_after_its_call(o: Shared) -> None:
    """What is put into the queue behind the record comes after what its caller did before."""

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.e.record(o.idle)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.d.launch("use", reads=[o.m], stream=o.busy)


@entered(fp.REFUTED, "RAW x")
def no_of_a_stream_with_a_record(o: Shared) -> None:
    """A stream whose record is behind others' work may say no."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.write()
        o.e.record(o.idle)
        if not o.idle.query():
            o.x.read()


@entered(fp.REFUTED, "RAW x")
def no_of_an_event_behind_others(o: Shared) -> None:
    """And so may its event."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.write()
        o.e.record(o.idle)
        if not o.e.query():
            o.x.read()


@entered(fp.UNKNOWN)
def no_of_an_idle_queue(o: Shared) -> None:
    """A record in an idle queue is complete at once: "no" never comes, and what stands there never runs."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.e.record(o.idle)
        if not o.idle.query():
            o.scratch.read()


@entered(fp.UNKNOWN)
def no_of_an_event_in_an_idle_queue(o: Shared) -> None:
    """So is its event."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.e.record(o.idle)
        if not o.e.query():
            o.scratch.read()


@entered(fp.MASKED)
def no_comes_after_the_record_call(o: Shared) -> None:
    """Who is told that a stream with nothing but a record is busy comes after the record's call."""

    @o.d.setup
    def setup() -> None:
        o.write()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.e.record(o.idle)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        if not o.idle.query():
            o.m.read()


@entered(fp.MASKED)
def no_of_the_event_comes_after_the_record_call(o: Shared) -> None:
    """The same for the event."""

    @o.d.setup
    def setup() -> None:
        o.write()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.e.record(o.idle)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        if not o.e.query():
            o.m.read()


@entered(fp.MASKED)
def own_work_is_behind(o: Shared) -> None:
    """A stream's own item is behind all that was in the queue before."""

    @o.d.script("thread")
    def thread() -> None:
        o.write()
        o.more(o.idle)
        o.idle.synchronize()
        o.x.read()


@entered(fp.REFUTED, "RAW x")
def own_work_is_older(o: Shared) -> None:
    """But not behind what comes later."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.more(o.idle)
        o.write()
        o.idle.synchronize()
        o.x.read()


@entered(fp.MASKED)
def free_records_behind_others(o: Shared) -> None:
    """A free records an event on the noted stream, behind all that is in the queue: the block's next owner comes after it."""
    target = o.d.device("target")

    @o.d.loop("thread")
    def thread() -> None:
        block = o.d.empty_pinned("block")
        block.write()
        target.copy_(block, non_blocking=True, stream=o.idle)
        o.d.launch("use", reads=[block], stream=o.busy)  # of which the allocator learns nothing
        block.release()


@entered(fp.REFUTED, "RAW x")
def free_leaves_an_item(o: Shared) -> None:
    """So the noted stream may say no, though nothing else was put there."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        block = o.d.empty("block", stream=o.other)
        block.record_stream(o.idle)
        o.write()
        block.release()
        if not o.idle.query():
            o.x.read()


# ---------------------------------------------------------------- waits for events and streams


@entered(fp.MASKED)
def event_of_another_gpu_then_the_queue(o: Shared) -> None:
    """What a stream waits for is before what comes later in its queue."""

    @o.d.script("thread")
    def thread() -> None:
        o.write_far()
        o.idle.wait_event(o.g)
        o.d.launch("use", reads=[o.z], stream=o.busy)


@entered(fp.MASKED)
def event_of_another_gpu_then_the_stream(o: Shared) -> None:
    """And before what the stream itself tells."""

    @o.d.script("thread")
    def thread() -> None:
        o.write_far()
        o.idle.wait_event(o.g)
        o.idle.synchronize()
        o.z.read()


@entered(fp.MASKED)
def wait_for_an_event_starts_after_its_call(o: Shared) -> None:
    """The wait is an item that starts after its call."""

    @o.d.setup
    def setup() -> None:
        o.write_far()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.idle.wait_event(o.g)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.d.launch("use", reads=[o.m], stream=o.busy)


@entered(fp.REFUTED, "RAW x")
def wait_that_may_be_over_is_no_item(o: Shared) -> None:
    """The event may be over: then the stream's own end is not behind the rest of the queue."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.g.record(o.far)
        o.write()
        o.idle.wait_event(o.g)
        o.idle.synchronize()
        o.x.read()


@entered(fp.REFUTED, "RAW x")
def wait_for_a_stream_that_may_be_over_is_no_item(o: Shared) -> None:
    """Nor behind it because it waits for a stream of another queue."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.write()
        o.idle.wait_stream(o.far)
        o.idle.synchronize()
        o.x.read()


@entered(fp.UNKNOWN)
def wait_for_a_never_recorded_event_is_no_item(o: Shared) -> None:
    """A wait for an event that nobody recorded leaves the stream idle (S18)."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.idle.wait_event(o.g)
        if not o.idle.query():
            o.scratch.read()


@entered(fp.UNKNOWN)
def wait_for_what_is_complete_is_no_item(o: Shared) -> None:
    """So does a wait for an event that is known complete."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.write_far()
        o.g.synchronize()
        o.idle.wait_event(o.g)
        if not o.idle.query():
            o.scratch.read()


@entered(fp.REFUTED, "RAW z")
def no_of_a_stream_that_waits_for_another_gpu(o: Shared) -> None:
    """A stream that waits for an event may be busy."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.write_far()
        o.idle.wait_event(o.g)
        if not o.idle.query():
            o.z.read()


@entered(fp.MASKED)
def no_comes_after_the_wait_call(o: Shared) -> None:
    """Who is told so comes after the wait's call."""

    @o.d.setup
    def setup() -> None:
        o.write_far()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.idle.wait_event(o.g)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        if not o.idle.query():
            o.m.read()


@entered(fp.MASKED)
def no_comes_after_the_call_of_what_is_waited_for(o: Shared) -> None:
    """And after the record's call: never recorded, the wait would have been nothing."""

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.write_far()

    @o.d.script("B")
    def second() -> None:
        o.idle.wait_event(o.g)

    @o.d.script("C")
    def third() -> None:
        if not o.idle.query():
            o.m.read()


@entered(fp.MASKED)
def stream_wait_makes_an_item_of_the_waiting_stream(o: Shared) -> None:
    """A wait for a stream of the same queue is for its record, which is an item behind all others."""

    @o.d.script("thread")
    def thread() -> None:
        o.write()
        o.idle.wait_stream(o.other)
        o.idle.synchronize()
        o.x.read()


@entered(fp.MASKED)
def stream_of_another_gpu_then_the_queue(o: Shared) -> None:
    """What another GPU's stream did is before what comes later in the queue of the stream that waits for it."""

    @o.d.script("thread")
    def thread() -> None:
        o.write_far()
        o.idle.wait_stream(o.far)
        o.d.launch("use", reads=[o.z], stream=o.busy)


@entered(fp.MASKED)
def stream_of_another_gpu_then_the_stream(o: Shared) -> None:
    """And before what the waiting stream itself tells."""

    @o.d.script("thread")
    def thread() -> None:
        o.write_far()
        o.idle.wait_stream(o.far)
        o.idle.synchronize()
        o.z.read()


@entered(fp.MASKED)
def no_comes_after_the_stream_wait_call(o: Shared) -> None:
    """Who is told that a stream is busy that only waits for another one comes after the wait's call."""

    @o.d.setup
    def setup() -> None:
        o.write_far()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.idle.wait_stream(o.far)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        if not o.idle.query():
            o.m.read()


@entered(fp.MASKED)
def no_comes_after_the_calls_of_the_other_stream(o: Shared) -> None:
    """And after the calls that filled the other one."""

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.write_far()
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.idle.wait_stream(o.far)
        o.opened.set()

    @o.d.script("C")
    def third() -> None:
        o.opened.wait()
        if not o.idle.query():
            o.m.read()


# ---------------------------------------------------------------- a queue in which something is pending


@entered(fp.MASKED)
def pending_record_comes_after_its_call(o: Shared) -> None:
    """A "no" of a stream with nothing but a pending record comes after the record's call."""

    @o.d.setup
    def setup() -> None:
        o.shut()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.e.record(o.idle)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        if not o.idle.query():
            o.m.read()

    o.opens()


@entered(fp.REFUTED, "RAW x", "WAR x")
def no_of_a_record_that_was_pending(o: Shared) -> None:
    """When the gate is open the record may still be behind the kernel: "no" can come."""

    @o.d.setup
    def setup() -> None:
        o.shut()
        o.write()
        o.e.record(o.idle)

    o.opens()

    @o.d.script("asks")
    def asks() -> None:
        o.scratched()
        o.opened.wait()
        if not o.idle.query():
            o.x.read()


@entered(fp.MASKED)
def own_work_that_was_pending(o: Shared) -> None:
    """A stream whose item was pending tells, when it has run, of all that was before it in the queue."""

    @o.d.setup
    def setup() -> None:
        o.shut()
        o.write()
        o.more(o.idle)

    o.opens()

    @o.d.script("waits")
    def waits() -> None:
        o.opened.wait()
        o.idle.synchronize()
        o.x.read()


@entered(fp.MASKED)
def own_record_that_was_pending(o: Shared) -> None:
    """So does one whose record was."""

    @o.d.setup
    def setup() -> None:
        o.shut()
        o.write()
        o.e.record(o.idle)

    o.opens()

    @o.d.script("waits")
    def waits() -> None:
        o.opened.wait()
        o.idle.synchronize()
        o.x.read()


@entered(fp.UNKNOWN)
def no_behind_a_wait_for_pending_work(o: Shared) -> None:
    """Who waited for a stream while its work was pending is not told "no" of it: what stands there never runs."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.shut()
        o.more(o.idle)
        o.idle.synchronize()
        if not o.idle.query():
            o.scratch.read()

    o.opens()


@entered(fp.MASKED)
def event_of_another_gpu_behind_pending_work(o: Shared) -> None:
    """A stream that waits for an event besides its pending work tells of both."""

    @o.d.script("thread")
    def thread() -> None:
        o.write_far()
        o.shut()
        o.more(o.idle)
        o.idle.wait_event(o.g)
        o.idle.synchronize()
        o.z.read()

    o.opens()


@entered(fp.MASKED)
def stream_of_another_gpu_behind_pending_work(o: Shared) -> None:
    """The same for a stream of another queue."""

    @o.d.script("thread")
    def thread() -> None:
        o.write_far()
        o.shut()
        o.more(o.idle)
        o.idle.wait_stream(o.far)
        o.idle.synchronize()
        o.z.read()

    o.opens()


@entered(fp.MASKED)
def stream_of_another_gpu_then_the_pending_queue(o: Shared) -> None:
    """What comes later in the pending queue is behind it, too."""

    @o.d.script("thread")
    def thread() -> None:
        o.write_far()
        o.shut()
        o.idle.wait_stream(o.far)
        o.d.launch("use", reads=[o.z], stream=o.busy)

    o.opens()


@entered(fp.MASKED)
def wait_of_a_pending_stream_makes_an_item_elsewhere(o: Shared) -> None:
    """The record that a pending stream waits for is an item of the other stream, after its call (S22)."""

    @o.d.setup
    def setup() -> None:
        o.shut()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.idle.wait_stream(o.far)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.d.launch("use", reads=[o.m], stream=o.far)
        o.far.write_value(o.gate, 1)


@entered(fp.MASKED)
def pending_record_of_a_stream_wait_is_an_item(o: Shared) -> None:
    """In a pending queue the record that a stream wait makes is the other stream's last item."""

    @o.d.script("thread")
    def thread() -> None:
        o.shut()
        o.write()
        o.idle.wait_stream(o.other)
        o.other.synchronize()
        o.x.read()

    o.opens()


@entered(fp.MASKED)
def pending_stream_wait_is_an_item(o: Shared) -> None:
    """And the wait for it that of the waiting one."""

    @o.d.script("thread")
    def thread() -> None:
        o.shut()
        o.write()
        o.idle.wait_stream(o.other)
        o.idle.synchronize()
        o.x.read()

    o.opens()


@entered(fp.MASKED)
def pending_record_of_a_stream_wait_comes_after_its_call(o: Shared) -> None:
    """Whoever waits for that record comes after the call that made it."""

    @o.d.setup
    def setup() -> None:
        o.shut()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.idle.wait_stream(o.other)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.other.synchronize()
        o.m.read()

    o.opens()


@entered(fp.MASKED)
def no_comes_after_the_call_of_a_pending_stream_wait(o: Shared) -> None:
    """A "no" of a stream with nothing but a pending wait comes after the wait's call."""

    @o.d.setup
    def setup() -> None:
        o.shut()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.idle.wait_stream(o.other)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        if not o.idle.query():
            o.m.read()

    o.opens()


@entered(fp.MASKED)
def no_comes_after_the_calls_of_a_pending_stream(o: Shared) -> None:
    """And after the calls that filled the stream that it waits for."""

    @o.d.setup
    def setup() -> None:
        o.shut()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.more(o.other)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.idle.wait_stream(o.other)
        o.opened.set()

    @o.d.script("C")
    def third() -> None:
        o.opened.wait()
        if not o.idle.query():
            o.m.read()
        o.far.write_value(o.gate, 1)


@entered(fp.MASKED)
def stream_with_pending_work_says_no(o: Shared) -> None:
    """A stream says "yes" only when its own last item has run, which is behind the kernel."""

    @o.d.script("thread")
    def thread() -> None:
        o.shut()
        o.write()
        o.more(o.idle)
        if o.idle.query():
            o.x.read()

    o.opens()


@entered(fp.MASKED)
def wait_for_an_event_behind_pending_work_starts_after_its_call(o: Shared) -> None:
    """Who waits for a stream that itself waits for an event comes after that wait's call, where something is queried."""

    @o.d.setup
    def setup() -> None:
        o.write_far()
        o.shut()

    @o.d.script("A")
    def first() -> None:
        o.m.write()
        o.idle.wait_event(o.g)
        o.told.set()

    @o.d.script("B")
    def second() -> None:
        o.told.wait()
        o.idle.synchronize()
        o.m.read()
        if o.g.query():
            o.far.write_value(o.gate, 1)

    o.opens()


@entered(fp.REFUTED, "RAW x")
def no_of_a_record_behind_a_store_that_was_seen(o: Shared) -> None:
    """The gate has let the store through, so that nothing is pending any more; the record may still wait for the kernel."""
    seen = o.d.device_flag("seen")

    @o.d.setup
    def setup() -> None:
        o.shut()
        o.busy.write_value(seen, 1)
        o.write()
        o.e.record(o.idle)

    o.opens()

    @o.d.script("asks")
    def asks() -> None:
        o.scratched()
        seen.wait(1)
        if not o.idle.query():
            o.x.read()


@entered(fp.REFUTED, "RAW z")
def no_behind_a_stream_wait_that_came_during_the_call(o: Shared) -> None:
    """What a stream was given during the call that waits for it is not covered by that call."""

    @o.d.setup
    def setup() -> None:
        o.write_far()
        o.shut()
        o.more(o.idle)

    @o.d.script("A")
    def first() -> None:
        o.scratched()
        o.idle.synchronize()
        if not o.idle.query():
            o.z.read()

    @o.d.script("B")
    def second() -> None:
        o.idle.wait_stream(o.far)
        o.gate.store(1)


@entered(fp.REFUTED, "RAW x")
def no_behind_a_record_that_came_during_the_call(o: Shared) -> None:
    """Nor is a record that is behind a kernel of another stream."""

    @o.d.setup
    def setup() -> None:
        o.shut()
        o.more(o.idle)

    @o.d.script("A")
    def first() -> None:
        o.scratched()
        o.idle.synchronize()
        if not o.idle.query():
            o.x.read()

    @o.d.script("B")
    def second() -> None:
        o.write()
        o.e.record(o.idle)
        o.gate.store(1)


@entered(fp.UNKNOWN)
def no_behind_a_synchronised_device(o: Shared) -> None:
    """A synchronised device has no busy stream: what stands behind a "no" never runs."""

    @o.d.script("thread")
    def thread() -> None:
        o.scratched()
        o.more(o.busy)
        o.more(o.idle)
        o.d.synchronize()
        if not o.idle.query():
            o.scratch.read()
