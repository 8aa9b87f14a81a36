"""Class H: an order between streams is missing, or goes to the wrong stream.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant(
    "before: waits for the default stream",
    fp.REFUTED,
    hazard="RAW gradient",
    fix="after: waits for the current stream",
    waits="default",
)
@fp.variant("after: waits for the current stream", fp.PROVED, waits="current")
@fp.variant(
    "#8061: waits for the current stream, several produce", fp.REFUTED, hazard="RAW gradient",
    fix="#8061: waits for every producer", waits="current", producers=2,
)  # fmt: skip
@fp.variant(
    "#8061: waits for the default stream, several produce", fp.REFUTED, hazard="RAW gradient",
    fix="#8061: waits for every producer", waits="default", producers=2,
)  # fmt: skip
@fp.variant("#8061: waits for every producer", fp.PROVED, waits="all", producers=2)
def case_46_deepspeed_7898(waits: Literal["default", "current", "all"] = "default", producers: int = 1) -> fp.Design:
    """Case 46, deepspeedai/DeepSpeed#7898 and #8061: the reduce stream waits for a stream that did not produce the gradient.

    A model of the reported mechanism. It exists because autograd runs an operation on the stream of its forward: one
    bucket may be filled from several streams, of which the current one is the last.
    """
    d = fp.Design("DeepSpeed#7898")
    sides = [d.stream(f"side {number}") for number in range(producers)]
    reduce = d.stream("reduce")
    gradient, bucket = d.device("gradient"), d.device("bucket")

    @d.loop("backward")
    def hook() -> None:
        for number, side in enumerate(sides):
            side.wait_stream(reduce)
            d.launch(f"backward {number}", writes=[gradient[f"part {number}"]], stream=side)
        if waits == "default":
            reduce.wait_stream(d.default_stream())
        elif waits == "current":
            reduce.wait_stream(sides[-1])
        else:
            for side in sides:
                reduce.wait_stream(side)
        bucket.copy_(gradient, non_blocking=True, stream=reduce)

    return d


@fp.variant(
    "#3727 before: the bucket is refilled under its reader",
    fp.REFUTED,
    hazard="WAR bucket",
    fix="#7371 after: the reader's event is awaited",
)
@fp.variant("#7371 after: the reader's event is awaited", fp.PROVED, wait=True)
def case_46_deepspeed_3727(wait: bool = False) -> fp.Design:
    """Case 46's sibling, deepspeedai/DeepSpeed#3727 and #7371: a double bucket is reused without a reader-done event.

    A model of the reported mechanism. It exists because two buckets look like enough, and the number of reductions in
    flight is not bounded by two.
    """
    d = fp.Design("DeepSpeed#3727")
    bucket, gradient = d.device("bucket", depth=2), d.device("gradient")
    reduced = d.event("reduced", depth=2)
    reduce = d.stream("reduce")

    @d.loop("backward")
    def bucket_full(n: fp.Turn) -> None:
        if wait:
            reduced[n].wait()
        d.launch("fill", reads=[gradient], writes=[bucket[n]])
        reduce.wait_stream(d.current_stream())
        d.launch("reduce", reads=[bucket[n]], stream=reduce)
        reduced[n].record(reduce)

    return d


@fp.variant(
    "before: ready by the compute stream's position", fp.REFUTED, hazard="RAW buffer", fix="after: the producer's event"
)
@fp.variant("after: the producer's event", fp.PROVED, event="producer")
def case_48_xla_964(event: Literal["compute", "producer"] = "compute") -> fp.Design:
    """Case 48, ROCm/xla#964: "buffer ready" is a position of the compute stream, though another stream produced it.

    A model of the reported mechanism. It exists because a position of a stream says nothing about a copy elsewhere.
    """
    d = fp.Design("xla#964")
    source, buffer, output = d.pinned("source"), d.device("buffer"), d.device("output")
    copy, compute = d.stream("h2d"), d.stream("compute")
    ready = d.event("ready")

    @d.loop("runtime")
    def step() -> None:
        copy.wait_stream(compute)
        buffer.copy_(source, non_blocking=True, stream=copy)
        ready.record(copy if event == "producer" else compute)
        compute.wait_event(ready)
        d.launch("kernel", reads=[buffer], writes=[output], stream=compute)

    return d


@fp.variant(
    "before: a thread starts on the default stream",
    fp.REFUTED,
    hazard="RAW weights",
    fix="after: the stream is handed over",
)
@fp.variant("after: the stream is handed over", fp.PROVED, handed=True)
def case_c24_current_stream_is_thread_local(handed: bool = False) -> fp.Design:
    """Case C-24, ROCm/pytorch#3612: a worker thread does not inherit the current stream (S6).

    A model of the reported mechanism. It exists because the work lands on the default stream, which nobody waits for.
    """
    d = fp.Design("pytorch#3612")
    weights, output = d.device("weights"), d.device("output")
    side = d.stream("side")
    jobs = d.queue("jobs", capacity=1, item=())
    done = d.queue("done", capacity=1, item=())

    @d.loop("worker", stream=side if handed else None)
    def worker() -> None:
        jobs.get()
        d.launch("load", writes=[weights])
        done.put()

    @d.loop("main", stream=side)
    def main() -> None:
        jobs.put()
        done.get()
        d.launch("forward", reads=[weights], writes=[output])
        if not handed:
            d.default_stream().wait_stream(side)

    return d


@fp.variant(
    "before: the onload copy is not awaited", fp.REFUTED, hazard="RAW parameter", fix="after: compute waits for it"
)
@fp.variant("after: compute waits for it", fp.PROVED, wait=True)
def case_c24_diffusers_13502(wait: bool = False) -> fp.Design:
    """Case C-24, huggingface/diffusers#13502: compute does not wait for the copy that brings the parameter back.

    A model of the reported mechanism. It exists because the copy runs on a stream of its own.
    """
    d = fp.Design("diffusers#13502")
    parameter, weights, onload = d.device("parameter"), d.pinned("weights"), d.stream("onload")

    @d.loop("pipeline")
    def group() -> None:
        onload.wait_stream(d.current_stream())
        parameter.copy_(weights, non_blocking=True, stream=onload)
        if wait:
            d.current_stream().wait_stream(onload)
        d.launch("forward", reads=[parameter])

    return d


@fp.variant(
    "before: the tail runs on the legacy stream",
    fp.REFUTED,
    hazard="RAW weights",
    fix="after: the legacy stream is awaited",
)
@fp.variant("the reader's stream is a blocking one", fp.PROVED, blocking=True)
@fp.variant("after: the legacy stream is awaited", fp.PROVED, wait=True)
def case_50_ninfer_44(wait: bool = False, blocking: bool = False) -> fp.Design:
    """Case 50, ashalliants/ninfer-3090#44: a blocking copy from pageable memory finishes on the legacy stream.

    A model of the reported mechanism (S11, S50). It exists because the call returns once the bytes are staged, and a
    non-blocking stream is exempt from the legacy stream's order. That small copies never showed it is a matter of size,
    not of order.
    """
    d = fp.Design("ninfer-3090#44")
    weights_host, weights, output = d.pageable("weights on host"), d.device("weights"), d.device("output")
    stream = d.stream("graph stream", blocking=blocking)

    @d.loop("loader")
    def load() -> None:
        weights_host.write()
        d.memcpy(weights, weights_host)
        if wait:
            d.default_stream().synchronize()
        d.launch("graph", reads=[weights], writes=[output], stream=stream)
        if not blocking:
            d.default_stream().wait_stream(stream)

    return d
