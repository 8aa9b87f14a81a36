"""SGLang's overlap scheduler: shared device rows, batch tensors, and one event that is recorded twice.

One scheduler thread and three streams: `schedule` (kernels that build batches and write rows of shared tables), `forward`
and `copy` (a leaf: forward never waits for it). Iteration N launches batch N and then processes the result of batch N-1,
so one launch is unprocessed while the next batch is built. Inputs go up from fresh pinned tensors, so the reused-source
race of the other engines is absent, but every structure that two of the streams share needs an order of its own.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp

SCHEDULER = "python/sglang/srt/managers/scheduler.py"
REVISION = "0.5.23"


@fp.variant(
    "no barrier (#26380, #18803)", fp.REFUTED, hazard="WAR req_to_token", fix="barrier after the launch (#31687)"
)
@fp.variant(
    "barrier at the loop top only (#26380)",
    fp.REFUTED,
    hazard="WAR req_to_token",
    fix="barrier after the launch (#31687)",
    barrier="loop top",
)
@fp.variant("barrier after the launch (#31687)", fp.PROVED, barrier="after launch")
@fp.variant("barrier on all of forward", fp.PROVED, barrier="after launch", covers="all of forward", late_read=True)
@fp.variant(
    "barrier on the reads-done event, one shared read behind it",
    fp.REFUTED,
    hazard="WAR req_to_token",
    fix="barrier on all of forward",
    barrier="after launch",
    late_read=True,
)
@fp.variant(
    "barrier at the loop top only, on all of forward",
    fp.REFUTED,
    hazard="WAR req_to_token",
    fix="barrier on all of forward",
    barrier="loop top",
    covers="all of forward",
)
def shared_rows(
    barrier: Literal["none", "loop top", "after launch"] = "none",
    covers: Literal["reads", "all of forward"] = "reads",
    late_read: bool = False,
) -> fp.Design:
    """Rows of `req_to_token`: written on the schedule stream, read by the forward that was launched before.

    Rows are rewritten at two places: when the next batch is built, and when the result of the previous one is processed,
    which comes *after* the launch of the current one. A barrier at the loop top covers the first place only. The barrier
    waits for the event behind the forward's shared reads (`covers` = "reads"), which is enough iff every shared read
    is in front of it (`late_read` puts one behind), or for the whole forward stream, which gives up the overlap of the
    next batch's kernels with this forward.
    """
    d = fp.Design("SGLang shared rows")
    d.models(SCHEDULER, "Scheduler.event_loop_overlap", REVISION)
    schedule, forward, copy = d.stream("schedule"), d.stream("forward"), d.stream("copy")
    rows = d.device("req_to_token")
    metadata = d.device("forward metadata")
    future_map = d.device("FutureMap")
    reads_done = d.event("reads done")
    results = d.queue("result_queue", capacity=2, item=(fp.EVENT, fp.MEMORY))

    def wait_barrier() -> None:
        if covers == "reads":
            schedule.wait_event(reads_done)  # never recorded before the first launch: no wait (S18)
        else:
            schedule.wait_stream(forward)

    @d.loop("scheduler")
    def iteration() -> None:
        if barrier == "loop top":
            wait_barrier()
        with schedule:
            d.launch("allocate rows", writes=[rows])
        forward.wait_stream(schedule)
        with forward:
            d.launch("resolve inputs", reads=[future_map, rows], writes=[metadata])
            reads_done.record()
            tokens = d.empty("next_token_ids")
            d.launch("model", reads=[metadata, rows] if late_read else [metadata], writes=[tokens])
            d.launch("publish", reads=[tokens], writes=[future_map])
        copy.wait_stream(forward)
        with copy:
            tokens_host = tokens.to_cpu(non_blocking=True)  # a fresh pinned block (S58)
            tokens.record_stream(copy)
            copy_done = d.event("copy_done")
            copy_done.record()
        if barrier == "after launch":
            wait_barrier()
        results.put(copy_done, tokens_host)
        if results.full():
            copied, previous_tokens = results.get()
            copied.synchronize()
            previous_tokens.read()
            with schedule, d.maybe("requests of the previous batch finished"):
                d.launch("rewrite rows of finished requests", writes=[rows])

    return d


@fp.variant("2 records, one unprocessed launch", fp.PROVED, records=2)
@fp.variant(
    "2 records, two unprocessed launches",
    fp.REFUTED,
    hazard="WAR batch tensors",
    fix="3 records, two unprocessed launches",
    records=2,
    unprocessed=2,
)
@fp.variant("3 records, two unprocessed launches", fp.PROVED, records=3, unprocessed=2)
@fp.variant(
    "1 record, old entry dropped before the next allocations",
    fp.REFUTED,
    hazard="WAR batch tensors",
    fix="2 records, one unprocessed launch",
    records=1,
)
@fp.variant("1 record, old entry dropped after the launch", fp.PROVED, records=1, drop="after launch")
@fp.variant(
    "1 record, old entry dropped after the launch, two unprocessed launches",
    fp.REFUTED,
    hazard="WAR batch tensors",
    fix="3 records, two unprocessed launches",
    records=1,
    drop="after launch",
    unprocessed=2,
)
@fp.variant("no records", fp.REFUTED, hazard="WAR batch tensors", fix="2 records, one unprocessed launch", records=0)
def batch_records(
    records: int = 2,
    unprocessed: int = 1,
    drop: Literal["before allocations", "after launch"] = "before allocations",
) -> fp.Design:
    """`batch_record_buf`: a ring that keeps the tensors of launched batches alive (#36661).

    Batch tensors are allocated and filled on the schedule stream and read by the forward; without a reference their
    blocks go back to the schedule stream's free list, whose next tenant is written while the forward still reads (S63).
    With `unprocessed` launches whose result is not known when the next batch is built, `records` >= `unprocessed` + 1 is
    needed when the old entry goes before the next batch is allocated; when it goes after the launch, it is one that the
    result processed at the end of the last iteration covers, and `records` >= `unprocessed` is enough.
    """
    d = fp.Design("SGLang batch records")
    d.models(SCHEDULER, "Scheduler.record_batch_in_overlap", REVISION)
    schedule, forward, copy = d.stream("schedule"), d.stream("forward"), d.stream("copy")
    results = d.queue("result_queue", capacity=unprocessed + 1, item=(fp.EVENT,))
    if records:
        ring = d.cell("batch_record_buf", depth=records, item=(fp.MEMORY,))

    @d.loop("scheduler")
    def iteration(n: fp.Turn) -> None:
        if records and drop == "before allocations":
            ring[n].clear()
        with schedule:
            batch = d.empty("batch tensors")
            d.launch("prepare", writes=[batch])
        forward.wait_stream(schedule)
        with forward:
            d.launch("forward", reads=[batch])
        copy.wait_stream(forward)
        with copy:
            copy_done = d.event("copy_done")
            copy_done.record()
        if records:
            ring[n].set(batch)
        batch.release()
        results.put(copy_done)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant(
    "the gather's indices live as long as the record ring",
    fp.REFUTED,
    hazard="WAR req_pool_indices",
    fix="record_stream on the gather's indices (#34076)",
)
@fp.variant("record_stream on the gather's indices (#34076)", fp.PROVED, record_stream=True)
@fp.variant("every batch is mixed, so the ring always holds what the gather reads", fp.PROVED, prefills=False)
def mixed_chunk(record_stream: bool = False, prefills: bool = True) -> fp.Design:
    """`mix_running_indices`: a mixed batch reads the running batch's `req_pool_indices` by an alias (#34076).

    The two-slot record ring holds batches that were launched, and the running batch was launched some time ago: prefills in
    between push it out of the ring, and when the running batch is then merged, its indices die while the relay gather on
    the forward stream may still read them. Reuse of the block is the allocator's free choice (0 of 40 runs with the default
    configuration, 19 of 20 with expandable segments or cudaMallocAsync), so the model lets every free block be handed out.
    """
    d = fp.Design("SGLang mixed chunk")
    d.models("python/sglang/srt/managers/schedule_batch.py", "ScheduleBatch.mix_with_running", REVISION)
    schedule, forward = d.stream("schedule"), d.stream("forward")
    running = d.cell("running_batch", item=(fp.MEMORY,))
    ring = d.cell("batch_record_buf", depth=2, item=(fp.MEMORY,))
    results = d.queue("result_queue", capacity=2, item=(fp.EVENT,))

    @d.loop("scheduler")
    def iteration(n: fp.Turn) -> None:
        mixed = not prefills or d.choose("batch", ["prefill", "mixed"]) == "mixed"
        with schedule:
            indices = d.empty("req_pool_indices")
            d.launch("build indices", writes=[indices])
        forward.wait_stream(schedule)
        with forward:
            if mixed and not running.empty():
                mix_running_indices = running.get()
                d.launch("relay gather", reads=[mix_running_indices])
                if record_stream:
                    mix_running_indices.record_stream(forward)
            d.launch("forward", reads=[indices])
            launched = d.event("copy_done")
            launched.record()
        ring[n].set(indices)
        if mixed:
            running.set(indices)  # merged: the running batch gets new indices, the old ones lose this reference
        results.put(launched)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant(
    "re-recorded on the schedule stream before it is consumed",
    fp.REFUTED,
    hazard="RAW new_seq_lens",
    fix="the recording stream waits for the old capture first (#30435)",
)
@fp.variant("the recording stream waits for the old capture first (#30435)", fp.PROVED, chained=True)
@fp.variant("recorded by forwards alone", fp.PROVED, prebuilt=False)
def publish_ready(prebuilt: bool = True, chained: bool = False) -> fp.Design:
    """`FutureMap.publish` writes the new sequence lengths and records `publish_ready`, from two streams (#30435).

    The next iteration copies the lengths to one pinned buffer on a private stream behind that event, and the host
    waits before it reads them; that wait alone protects the pinned buffer. Requests that arrive prebuilt from a prefill
    instance are published on the schedule stream: the event's one capture moves there and the forward's write is no longer
    waited for (S19). The write-after-read barrier hides this on CUDA; it is off here, as it is on ROCm. The two publishers
    write rows of different requests, so they do not conflict with each other.
    """
    d = fp.Design("SGLang publish_ready")
    d.models("python/sglang/srt/managers/overlap_utils.py", "FutureMap.publish", REVISION)
    schedule, forward, private = d.stream("schedule"), d.stream("forward"), d.stream("seq_lens copy")
    lens = d.device("new_seq_lens")
    lens_host = d.pinned("seq_lens_cpu")
    ready = d.event("publish_ready")

    def publish(rows: str) -> None:
        if chained:
            d.current_stream().wait_event(ready)
        d.launch("publish " + rows, writes=[lens[rows]])
        ready.record()

    @d.loop("scheduler")
    def iteration() -> None:
        private.wait_event(ready)
        with private:
            lens_host.copy_(lens, non_blocking=True)
            private.synchronize()
        lens_host.read()
        forward.wait_stream(schedule)
        with forward:
            d.launch("verify")
            publish("running rows")
        if prebuilt:
            with d.maybe("prebuilt requests arrive"), schedule:
                publish("new rows")

    return d


@fp.variant(
    "one pinned buffer, refilled for every batch",
    fp.REFUTED,
    hazard="WAR sampling parameters",
    fix="a fresh pinned buffer for every fill",
)
@fp.variant("a fresh pinned buffer for every fill", fp.PROVED, fresh=True)
def sampling_parameters(fresh: bool = False) -> fp.Design:
    """lightseekorg/tokenspeed #376: sampling parameters staged through one reused pinned buffer.

    The result wait of the previous batch says nothing of the copy that the current launch has enqueued. A fresh buffer is
    handed out again by the caching host allocator only when the copy is done (S54, S80).
    """
    d = fp.Design("tokenspeed sampling parameters")
    on_device = d.device("sampling parameters on the device")
    persistent = None if fresh else d.pinned("sampling parameters")
    results = d.queue("result_queue", capacity=2, item=(fp.EVENT,))

    @d.loop("scheduler")
    def iteration() -> None:
        host = d.empty_pinned("sampling parameters") if persistent is None else persistent
        host.write()
        on_device.copy_(host, non_blocking=True)
        d.launch("forward", reads=[on_device])
        done = d.event("copy_done")
        done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d
