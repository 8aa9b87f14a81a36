"""Ten more public bugs of the class, looked up to see how far the language reaches; each is a model of the reported mechanism."""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant(
    "before: the batch goes back at once",
    fp.REFUTED,
    hazard="WAR prefetched batch",
    fix="after: the null stream is awaited",
)
@fp.variant("after: the null stream is awaited", fp.PROVED, wait=True)
def caffe_2998(prefetch: int = 2, wait: bool = False) -> fp.Design:
    """Further, BVLC/caffe#2998: a prefetched batch goes back to the free queue when its copy is issued.

    A model of the reported mechanism. It exists because a copy within the device does not hold the host (S49), and the
    prefetch thread refills the batch on a non-blocking stream that the null stream does not order (S13).

    Source: https://github.com/BVLC/caffe/pull/2998
    """
    d = fp.Design("caffe#2998")
    batches = d.device("prefetched batch", depth=prefetch)
    host, top = d.pinned("batch on host"), d.device("top")
    fill = d.cursor("filled", prefetch)
    free = d.semaphore("free batches", prefetch)
    full = d.queue("full batches", capacity=prefetch, item=(fp.INDEX,))
    copies = d.stream("prefetch stream")

    @d.loop("prefetch", stream=copies)
    def prefetch_batch() -> None:
        free.acquire()
        slot = fill.advance()
        host.write()
        batches[slot].copy_(host, non_blocking=True)
        copies.synchronize()
        full.put(slot)

    @d.loop("solver")
    def forward() -> None:
        slot = full.get()
        top.copy_(batches[slot], non_blocking=True)
        d.launch("layers", reads=[top])
        if wait:
            d.default_stream().synchronize()
        free.release()

    return d


@fp.variant(
    "before: the call looks synchronous", fp.REFUTED, hazard="RAW buffer", fix="after: the default stream is awaited"
)
@fp.variant("after: the default stream is awaited", fp.PROVED, wait=True)
def intel_llvm_1798(wait: bool = False) -> fp.Design:
    """Further, intel/llvm#1798: a buffer is created with cuMemcpyHtoD, and the next command runs on another stream.

    A model of the reported mechanism (S50). It exists because a reviewer asked what there is to synchronise after a
    synchronous copy: its tail on the default stream.

    Source: https://github.com/intel/llvm/issues/1798
    """
    d = fp.Design("intel/llvm#1798")
    host, buffer = d.pageable("host pointer"), d.device("buffer")
    queue = d.stream("queue")

    @d.loop("runtime")
    def create_and_use() -> None:
        host.write()
        d.memcpy(buffer, host)
        if wait:
            d.default_stream().synchronize()
        d.launch("command", reads=[buffer], stream=queue)
        queue.synchronize()

    return d


@fp.variant(
    "before: the parent layer goes on",
    fp.REFUTED,
    hazard="WAR parent output",
    fix="after: layers wait for their children's events",
)
@fp.variant(
    "the event is awaited before the transfer only",
    fp.REFUTED,
    hazard="WAR parent output",
    fix="after: layers wait for their children's events",
    wait="before the transfer",
)
@fp.variant("after: layers wait for their children's events", fp.PROVED, wait="before the write")
def lbann_665(
    wait: Literal["nowhere", "before the transfer", "before the write"] = "nowhere",
) -> fp.Design:
    """Further, LBANN/lbann#665 (which reverts #548): a CPU layer overwrites its output while a GPU layer's copy reads it.

    A model of the reported mechanism. It exists because the event was awaited before the *transfer*, where it is too late:
    the parent has written by then.

    Source: https://github.com/LBANN/lbann/issues/665
    """
    d = fp.Design("lbann#665")
    output, inputs = d.pinned("parent output"), d.device("child input")
    copied = d.event("copied")

    @d.loop("model")
    def step() -> None:
        if wait == "before the write":
            copied.synchronize()
        output.write()
        if wait == "before the transfer":
            copied.synchronize()
        inputs.copy_(output, non_blocking=True)
        copied.record()
        d.launch("gpu layer", reads=[inputs])

    return d


@fp.variant(
    "before: the buffers are swapped too early",
    fp.REFUTED,
    hazard="WAR batch buffer",
    fix="after: the stream is awaited",
)
@fp.variant("after: the stream is awaited", fp.PROVED, wait=True)
def cuvs_1224(wait: bool = False) -> fp.Design:
    """Further, NVIDIA/cuvs#1224: a batch iterator overwrites one of its two device buffers before the kernel is done.

    A model of the reported mechanism. It exists because lower recall is all that showed: for larger clusters the kernel
    takes longer than the copy of the next batch.

    Source: https://github.com/NVIDIA/cuvs/pull/1224
    """
    d = fp.Design("cuvs#1224")
    buffers = d.device("batch buffer", depth=2)
    dataset, labels = d.pinned("dataset"), d.device("labels")
    copy, compute = d.stream("copy"), d.stream("compute")
    loaded = d.event("loaded", depth=2)

    @d.loop("build")
    def batch(n: fp.Turn) -> None:
        buffers[n].copy_(dataset, non_blocking=True, stream=copy)  # prefetch_next_batch
        loaded[n].record(copy)
        compute.wait_event(loaded[n])
        d.launch("kmeans predict", reads=[buffers[n]], writes=[labels], stream=compute)
        if wait:
            compute.synchronize()

    return d


@fp.variant(
    "before: events order the streams, nothing the allocator",
    fp.REFUTED,
    hazard="WAR topk indices",
    fix="after: record_stream",
)
@fp.variant("after: record_stream", fp.PROVED, record=True)
@fp.variant("launch blocking hides it", fp.MASKED, environment="launch-blocking-kernels", record=False)
def tensorrt_llm_15265(record: bool = False) -> fp.Design:
    """Further, NVIDIA/TensorRT-LLM#15265: an overlapped attention prologue hands tensors across streams.

    A model of the reported mechanism. It exists because event waits order execution and say nothing to the caching
    allocator; the report names launch blocking as a mask, which the third variant shows.

    Source: https://github.com/NVIDIA/TensorRT-LLM/pull/15265
    """
    d = fp.Design("TensorRT-LLM#15265")
    indexer = d.stream("indexer stream")

    @d.loop("attention")
    def prologue() -> None:
        caller = d.current_stream()
        indexer.wait_stream(caller)
        with indexer:
            indices = d.empty("topk indices")
            d.launch("indexer", writes=[indices])
        caller.wait_stream(indexer)
        if record:
            indices.record_stream(caller)
        d.launch("sparse attention", reads=[indices])
        indices.release()
        with indexer:
            workspace = d.empty("workspace")
            d.launch("compressor", writes=[workspace])

    return d


@fp.variant(
    "before: the default stream reads at once",
    fp.REFUTED,
    hazard="RAW parameter",
    fix="after: it waits for the transfer",
)
@fp.variant("after: it waits for the transfer", fp.PROVED, wait=True)
def rocm_pytorch_3194(wait: bool = False) -> fp.Design:
    """Further, ROCm/pytorch#3194: the default stream reads the state before an asynchronous copy of a transfer stream.

    A model of the reported mechanism (S13). It exists because it was reported as a bug of one GPU and is the contract of
    all: two streams are unordered until somebody orders them.

    Source: https://github.com/ROCm/pytorch/issues/3194
    """
    d = fp.Design("ROCm/pytorch#3194")
    weights, parameter = d.pinned("weights"), d.device("parameter")
    transfer = d.stream("transfer")

    @d.loop("offloader")
    def layer() -> None:
        transfer.wait_stream(d.current_stream())
        parameter.copy_(weights, non_blocking=True, stream=transfer)
        if wait:
            d.current_stream().wait_stream(transfer)
        d.launch("forward", reads=[parameter])

    return d


@fp.variant(
    "before: done when the call returns",
    fp.REFUTED,
    hazard="RAW kv on the decode side",
    fix="after: an event is awaited",
)
@fp.variant("after: an event is awaited", fp.PROVED, wait=True)
def mooncake_1918(wait: bool = False) -> fp.Design:
    """Further, kvcache-ai/Mooncake#1918: a transfer between devices is reported as finished when cudaMemcpy returns.

    A model of the reported mechanism (S49, S50). It exists because a copy within devices does not hold the host, so that
    the decode side is told too early; its own stream reads what has not arrived.

    Source: https://github.com/kvcache-ai/Mooncake/pull/1918
    """
    d = fp.Design("Mooncake#1918")
    source, target = d.device("kv on the prefill side"), d.device("kv on the decode side", gpu=0)
    finished = d.queue("finished transfers", capacity=1, item=())
    used = d.queue("used transfers", capacity=1, item=())
    decode_stream = d.stream("decode stream")

    @d.loop("transfer engine")
    def transfer() -> None:
        d.memcpy(target, source)
        if wait:
            done = d.event("transferred")
            done.record(d.default_stream())
            done.synchronize()
        finished.put()
        used.get()

    @d.loop("decode", stream=decode_stream)
    def decode() -> None:
        finished.get()
        d.launch("attention", reads=[target])
        decode_stream.synchronize()
        used.put()

    return d


@fp.variant("before: consumed at once", fp.REFUTED, hazard="RAW tensor on cpu", fix="after: synchronise first")
@fp.variant("after: synchronise first", fp.PROVED, wait=True)
def steptron_38(wait: bool = False) -> fp.Design:
    """Further, stepfun-ai/SteptronOss#38: a tensor is rebuilt on the CPU from a copy that may not have arrived.

    A model of the reported mechanism (S58). It exists because `non_blocking=True` is safe in one direction only.

    Source: https://github.com/stepfun-ai/SteptronOss/issues/38
    """
    d = fp.Design("SteptronOss#38")
    received = d.device("received bytes")

    @d.loop("rank")
    def tensor_to_dict() -> None:
        d.launch("broadcast", writes=[received])
        on_cpu = received.to_cpu("tensor on cpu", non_blocking=True)
        if wait:
            d.current_stream().synchronize()
        on_cpu.read()

    return d


@fp.variant(
    "before: freed when the call returns", fp.REFUTED, hazard="WAR buffer", fix="after: freed behind the streams"
)
@fp.variant("after: freed behind the streams", fp.PROVED, wait=True)
def freetensor_566(wait: bool = False) -> fp.Design:
    """Further, roastduck/FreeTensor#566: generated code frees its buffers while streams still use them.

    A model of the reported mechanism. It exists because the fix, a device synchronisation, is said to be more than needed;
    a wait for the two streams would do.

    Source: https://github.com/roastduck/FreeTensor/issues/566
    """
    d = fp.Design("FreeTensor#566")
    heap = d.pool("buffer", size=1, of="device")
    left, right = d.stream("left"), d.stream("right")

    @d.loop("generated code")
    def run() -> None:
        buffer = heap.take()
        d.launch("produce", writes=[buffer], stream=left)
        right.wait_stream(left)
        d.launch("consume", reads=[buffer], stream=right)
        if wait:
            d.synchronize()
        heap.give(buffer)

    return d


@fp.variant("before: the copy happened to be synchronous", fp.PROVED, memory="pageable")
@fp.variant(
    "the buffer is pinned, nothing else changes",
    fp.REFUTED,
    hazard="RAW search buffer",
    fix="after: the stream is awaited",
    memory="pinned",
)
@fp.variant("after: the stream is awaited", fp.PROVED, memory="pinned", wait=True)
def cpp_ethereum_2(memory: Literal["pageable", "pinned"] = "pageable", wait: bool = False) -> fp.Design:
    """Further, Genoil/cpp-ethereum#2: a missing wait that a copy to unpinned memory had supplied by accident.

    A model of the reported mechanism (S46, S48). It exists because the synchronisation was implicit in a memory kind: an
    asynchronous copy that is served synchronously.

    Source: https://github.com/Genoil/cpp-ethereum/issues/2
    """
    d = fp.Design("cpp-ethereum#2")
    found = d.device("found nonces")
    buffer = d.pageable("search buffer") if memory == "pageable" else d.pinned("search buffer")
    stream = d.stream("search stream")

    @d.loop("miner")
    def search() -> None:
        d.launch("search", writes=[found], stream=stream)
        buffer.copy_(found, non_blocking=True, stream=stream)
        if wait:
            stream.synchronize()
        buffer.read()

    return d
