"""Class D: a destination is read, or written again, before the copy into it has finished.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant("before: copies into pageable memory return when done", fp.PROVED)
@fp.variant(
    "before: on hosts where they return early", fp.REFUTED, hazard="RAW result", fix="after: synchronise first",
    platform="cuda-late-pageable",
)  # fmt: skip
@fp.variant("after: synchronise first", fp.PROVED, platform="cuda-late-pageable", wait=True)
@fp.variant("after, where copies into pageable memory return when done", fp.PROVED, wait=True)
def case_24_cuda_quantum_5375(wait: bool = False) -> fp.Design:
    """Case 24, NVIDIA/cuda-quantum#5375 (cf. microsoft/onnxruntime#26512): an asynchronous copy into pageable memory is taken for a blocking one.

    A model of the reported mechanism (S48). It exists because it held on one class of hosts and not on the next.
    """
    d = fp.Design("cuda-quantum#5375")
    state, result = d.device("state"), d.pageable("result")
    stream = d.stream("simulator")

    @d.loop("caller")
    def call() -> None:
        d.launch("simulate", writes=[state], stream=stream)
        result.copy_(state, non_blocking=True, stream=stream)
        if wait:
            stream.synchronize()
        result.read()

    return d


@fp.variant(
    "before: the sync is skipped for device destinations",
    fp.REFUTED,
    hazard="RAW buffer",
    fix="after: always synchronise",
    wait="never",
)
@fp.variant("after: always synchronise", fp.PROVED, wait="stream")
@fp.variant("after: an event is handed over", fp.PROVED, wait="event")
def case_26_lmcache_5048(wait: Literal["never", "stream", "event"] = "never") -> fp.Design:
    """Case 26, LMCache/LMCache#5048: a device buffer is handed to the network before the copy into it has run.

    A model of the reported mechanism. It exists because the synchronisation depends on where the destination lies, as if
    the next reader were on the same stream. The NIC is an agent outside of all streams.
    """
    d = fp.Design("LMCache#5048")
    kv, buffer = d.device("kv cache"), d.device("buffer")
    transfer, nic = d.stream("transfer"), d.agent("NIC")
    jobs = d.queue("jobs", capacity=1, item=(fp.EVENT,))
    done = d.queue("done", capacity=1, item=())

    @d.loop("store")
    def store() -> None:
        buffer.copy_(kv, non_blocking=True, stream=transfer)
        copied = transfer.record_event(d.event("copied"))
        if wait == "stream":
            transfer.synchronize()
        jobs.put(copied)
        done.get()

    @d.loop("sender")
    def send() -> None:
        copied = jobs.get()
        if wait == "event":
            copied.synchronize()
        sent = nic.post("RDMA read", reads=[buffer])
        sent.synchronize()
        done.put()

    return d


@fp.variant(
    "before: the scalar is read at once", fp.REFUTED, hazard="RAW overflow flag", fix="after: wait for the copy"
)
@fp.variant("after: wait for the copy", fp.PROVED, wait=True)
def case_c12_deepspeed_501(wait: bool = False) -> fp.Design:
    """Case C-12, a review of deepspeedai/DeepSpeed#501: an asynchronous copy into a pinned scalar, read at once.

    A model of the reported mechanism. It exists because the saving (no blocking copy) removed the wait with it.
    """
    d = fp.Design("DeepSpeed#501")
    norm, flag = d.device("norm"), d.pinned("overflow flag")

    @d.loop("optimizer")
    def step() -> None:
        d.launch("norm", writes=[norm])
        flag.copy_(norm, non_blocking=True)
        if wait:
            d.current_stream().synchronize()
        flag.read()

    return d


@fp.variant(
    "before: the response is sent before the copy is done",
    fp.REFUTED,
    hazard="RAW response",
    fix="after: synchronise, then send",
)
@fp.variant("after: synchronise, then send", fp.PROVED, wait=True)
def case_c13_results_consumed_early(wait: bool = False) -> fp.Design:
    """Case C-13, ggml-org/llama.cpp#18310, facebookresearch/faiss#2437, triton fil_backend#131: a result is consumed early.

    A model of the reported mechanism. It exists because the consumer is another thread, which has no stream to wait on.
    """
    d = fp.Design("llama.cpp#18310")
    output, response = d.device("output"), d.pinned("response", depth=2)
    slots = d.cursor("response slot", 2)
    sent = d.queue("responses", capacity=1, item=(fp.INDEX,))
    free = d.semaphore("free responses", 2)

    @d.loop("model")
    def execute() -> None:
        free.acquire()
        slot = slots.advance()
        d.launch("infer", writes=[output])
        response[slot].copy_(output, non_blocking=True)
        if wait:
            d.current_stream().synchronize()
        sent.put(slot)

    @d.loop("server")
    def serve() -> None:
        slot = sent.get()
        response[slot].read()
        free.release()

    return d


@fp.variant("before, copies in the queue's order", fp.PROVED, engine="in order")
@fp.variant(
    "before, copies on an engine of their own",
    fp.REFUTED,
    hazard="RAW result",
    fix="after, copies on an engine of their own",
    engine="separate",
)
@fp.variant("after, copies in the queue's order", fp.PROVED, engine="in order", chained=True)
@fp.variant("after, copies on an engine of their own", fp.PROVED, engine="separate", chained=True)
def case_25_torch_xpu_ops_4349(
    engine: Literal["in order", "separate"] = "in order", chained: bool = False
) -> fp.Design:
    """Case 25, intel/torch-xpu-ops#4349: an event on the queue does not cover the copy engine.

    A model of the reported mechanism. It exists because one profile runs copies in the queue's order and the other on an
    engine with completion handles of its own; chaining the handle into the queue before the record is right on both.
    """
    d = fp.Design("torch-xpu-ops#4349")
    queue, output, result = d.stream("queue"), d.device("output"), d.pinned("result")
    copies = d.agent("copy engine") if engine == "separate" else None

    @d.loop("host")
    def step() -> None:
        d.launch("kernel", writes=[output], stream=queue)
        if copies is not None:
            copied = copies.post("d2h", reads=[output], writes=[result], after=queue)
            if chained:
                queue.wait_event(copied)
        else:
            result.copy_(output, non_blocking=True, stream=queue)
        done = queue.record_event(d.event("done"))
        done.synchronize()
        result.read()
        if copies is not None and not chained:
            queue.wait_event(copied)

    return d
