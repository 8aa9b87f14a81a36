"""Class I: what an event object means: which record a wait is bound to, and what a failed or missing record leaves.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant(
    "before: one event, re-recorded each step",
    fp.PROVED,
    hang="over-wait output copied",
    fix="after: a new event per step",
    events="one",
)
@fp.variant("after: a new event per step", fp.PROVED, events="per step")
def case_52_vllm_39115(events: Literal["one", "per step"] = "one") -> fp.Design:
    """Case 52, vllm-project/vllm#39115: one event is recorded again for each step's output copy.

    A model of the reported mechanism. It exists because it is no race: a late wait is bound to a later record (S20, S23)
    and waits for more than it needs.
    """
    d = fp.Design("vllm#39115")
    ids, output = d.device("sampled ids"), d.pinned("output", depth=3)
    slots = d.cursor("output slot", 3)
    shared = d.event("output copied")
    copy = d.stream("copy")
    results = d.queue("results", capacity=1, item=(fp.EVENT, fp.INDEX))

    @d.loop("worker")
    def step() -> None:
        d.current_stream().wait_stream(copy)
        d.launch("sample", writes=[ids])
        copy.wait_stream(d.current_stream())
        slot = slots.advance()
        output[slot].copy_(ids, non_blocking=True, stream=copy)
        copied = shared if events == "one" else d.event("copied")
        copied.record(copy)
        results.put(copied, slot)

    @d.loop("output thread")
    def output_thread() -> None:
        done, ready = results.get()
        done.synchronize()  # when it comes late, the next step's record is the latest
        output[ready].read()

    return d


@fp.variant(
    "before: the record fails and is ignored",
    fp.REFUTED,
    hazard="WAR slab",
    fix="after: an event of the stream's device",
)
@fp.variant(
    "the record fails sometimes",
    fp.REFUTED,
    hazard="WAR slab",
    fix="after: an event of the stream's device",
    event_gpu=1,
    may_fail=True,
)
@fp.variant("after: an event of the stream's device", fp.PROVED, event_gpu=1, may_fail=False)
@fp.variant("after: fail closed, wait on the host", fp.PROVED, fail_closed=True)
def case_54_cucascade_189(event_gpu: int = 0, may_fail: bool = True, fail_closed: bool = False) -> fp.Design:
    """Case 54, NVIDIA/cuCascade#189: an event of another device cannot be recorded, and the slab counts as ordered.

    A model of the reported mechanism (S25). It exists because the error is ignored in release builds: the slab goes back
    with an event that was never recorded, on which every wait returns at once (S18). Without `may_fail` a record on another
    device is no design at all, but an error that names the rule.
    """
    d = fp.Design("cuCascade#189")
    slabs = d.pool("slab", size=1, of="device")
    streams = [d.stream("stream a", gpu=1), d.stream("stream b", gpu=1)]
    events = [d.event("used a", gpu=event_gpu), d.event("used b", gpu=event_gpu)]

    @d.loop("allocator user")
    def step() -> None:
        for stream, used in zip(streams, events, strict=True):
            slab = slabs.take()
            d.launch(f"fill on {stream.name}", writes=[slab], stream=stream)
            d.launch(f"use on {stream.name}", reads=[slab], stream=stream)
            used.record(stream, may_fail=may_fail)
            if fail_closed:
                stream.synchronize()
            slabs.give(slab, after=used)

    return d


@fp.variant(
    "before: the wait is enqueued before the record exists",
    fp.REFUTED,
    hazard="RAW kv rows",
    fix="after: the record is announced first",
)
@fp.variant("after: the record is announced first", fp.PROVED, announced=True)
@fp.variant("after: a wait for a value, whose store may come later", fp.PROVED, value=True)
def case_c27_sglang_14214(announced: bool = False, value: bool = False) -> fp.Design:
    """Case C-27, sgl-project/sglang#14214: a stream wait is enqueued before its event is recorded, so it waits for nothing.

    A model of the reported mechanism (S21). It exists because the order of the two host calls decides; one fix hands a
    value over that says that the record exists, another waits on the device for a value, which may be enqueued first.
    """
    d = fp.Design("sglang#14214")
    rows = d.device("kv rows")
    written = d.event("written")
    load, compute = d.stream("load"), d.stream("compute")
    layers = d.queue("layers", capacity=1, item=())
    recorded = d.queue("recorded", capacity=1, item=())
    loaded = d.device_flag("loaded") if value else None

    @d.loop("loader", stream=load)
    def loader() -> None:
        layers.get()
        d.launch("load layer", writes=[rows])
        if loaded is not None:
            load.write_value(loaded, 1)
        else:
            written.record()
        recorded.put()

    @d.loop("model", stream=compute)
    def model() -> None:
        layers.put()
        if announced:
            recorded.get()
        if loaded is not None:
            compute.wait_value(loaded, 1, reset=True)
        else:
            written.wait()
        d.launch("attention", reads=[rows])
        compute.synchronize()
        if not announced:
            recorded.get()

    return d


@fp.variant(
    "a never recorded event says done", fp.REFUTED, hazard="RAW result", fix="recorded before it is asked", record=False
)
@fp.variant("recorded before it is asked", fp.PROVED, record=True)
def case_54_cousin_query_of_a_never_recorded_event(record: bool = False) -> fp.Design:
    """Case 54's cousins, eyalroz/cuda-api-wrappers#226 and smol-machines/smolvm#932: a query that always says done.

    A model of the reported mechanism (S18). It exists because "done" and "never recorded" are one answer.
    """
    d = fp.Design("cuda-api-wrappers#226")
    output, result = d.device("output"), d.pinned("result")

    @d.loop("poller")
    def step() -> None:
        d.launch("kernel", writes=[output])
        result.copy_(output, non_blocking=True)
        done = d.event("done")
        if record:
            done.record()
        if done.query():
            result.read()
        d.synchronize()

    return d
