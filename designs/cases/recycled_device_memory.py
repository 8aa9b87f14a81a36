"""Class C: device memory is recycled by an allocator while another stream still uses it.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant("before", fp.REFUTED, hazard="WAR activations", fix="after: record_stream")
@fp.variant("after: record_stream", fp.PROVED, record=True)
def case_13_torchrec_4231(record: bool = False) -> fp.Design:
    """Case 13, meta-pytorch/torchrec#4231: memory stashing releases a storage while its copy waits on a side stream.

    A model of the reported mechanism. It exists because releasing early is the whole point of stashing.
    """
    d = fp.Design("torchrec#4231")
    side, stash = d.stream("side"), d.pinned("stash", depth=2)

    @d.loop("trainer")
    def step(n: fp.Turn) -> None:
        activations = d.empty("activations")
        d.launch("forward", writes=[activations])
        side.wait_stream(d.current_stream())
        if record:
            activations.record_stream(side)
        stash[n].copy_(activations, non_blocking=True, stream=side)
        activations.release()
        following = d.empty("following")
        d.launch("next layer", writes=[following])
        side.synchronize()
        stash[n].read()

    return d


@fp.variant(
    "before: dropped at the function's return", fp.REFUTED, hazard="WAR gradient", fix="after: held until the event"
)
@fp.variant("after: held until the event", fp.PROVED, hold=True)
def case_14_pytorch_180665(hold: bool = False) -> fp.Design:
    """Case 14, pytorch/pytorch#180665: a gradient owned by one communication stream is offloaded on another.

    A model of the reported mechanism. It exists because the block goes back to the stream that owns it, which is not the
    one that reads it. Two ranks reduce and scatter the gradients of two layers; a backward ends when the copies have arrived.
    """
    d = fp.Design("pytorch#180665")
    names = ("rank 0", "rank 1")
    group = d.communicator("shard group", names)

    def rank(name: str) -> None:
        scatter, offload = d.stream(f"reduce-scatter stream of {name}"), d.stream(f"all-reduce stream of {name}")
        unsharded = d.device(f"unsharded gradient of {name}")
        gradient_cpu = d.pinned(f"gradient cpu of {name}", depth=2)
        held = d.cell(f"comm context of {name}", item=(fp.EVENT, fp.MEMORY))

        def post_backward(layer: int) -> None:
            d.launch(f"backward of layer {layer}", writes=[unsharded])
            if hold and layer == 0:
                with d.scope("comm context"):
                    done, _gradient = held.take()
                    scatter.wait_event(done)
            scatter.wait_stream(d.current_stream())
            with d.scope("post backward"):
                with scatter:
                    gradient = d.empty("gradient")
                    group.reduce_scatter(gradient, unsharded)
                d.current_stream().wait_stream(scatter)
                offload.wait_stream(scatter)
                with offload:
                    gradient_cpu[layer].copy_(gradient, non_blocking=True)
                    copied = d.event("copied")
                    copied.record()
                if hold:
                    held.set(copied, gradient)

        @d.loop(name)
        def backward() -> None:
            post_backward(1)
            post_backward(0)
            offload.synchronize()
            if hold:
                held.clear()
            gradient_cpu[1].read()
            gradient_cpu[0].read()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name)
    return d


@fp.variant("before: the send is not awaited", fp.REFUTED, hazard="WAR output", fix="after: wait, then deallocate")
@fp.variant("without deallocation", fp.PROVED, deallocate=False)
@fp.variant("after: wait, then deallocate", fp.PROVED, wait=True)
def case_16_megatron_4047(deallocate: bool = True, wait: bool = False) -> fp.Design:
    """Case 16, NVIDIA/Megatron-LM#4047: an asynchronous send, and then the output buffer is deallocated.

    A model of the reported mechanism. It exists because the option that deallocates outputs lives far from the one that
    overlaps sends. Deallocation takes the storage away from everybody, so what the work refers to is no more than an address.
    """
    d = fp.Design("Megatron-LM#4047")
    names = ("stage 0", "stage 1")
    pipeline = d.communicator("pipeline", names)

    with d.process("stage 0", gpu=0):
        gradient = d.device("gradient of the output")

        @d.loop("stage 0")
        def first() -> None:
            output = d.empty("output")
            d.launch("forward", writes=[output])
            sent = pipeline.send(output.view("data of the output", held=False), "stage 1", async_op=True)
            if wait:
                sent.wait()
            if deallocate:
                output.release()
            following = d.empty("following")
            d.launch("next layer", writes=[following])
            pipeline.recv(gradient, "stage 1", async_op=True).wait()
            sent.wait()
            d.launch("backward", reads=[gradient])
            d.current_stream().synchronize()

    with d.process("stage 1", gpu=1):
        received = d.device("input")

        @d.loop("stage 1")
        def last() -> None:
            pipeline.recv(received, "stage 0", async_op=True).wait()
            d.launch("forward and backward", reads=[received], writes=[received])
            pipeline.send(received, "stage 0", async_op=True).wait()
            d.current_stream().synchronize()

    return d


@fp.variant(
    "before: the tracked reference goes, a view stays", fp.REFUTED, hazard="WAR activations", fix="after: record_stream"
)
@fp.variant("after: record_stream", fp.PROVED, record=True)
def case_17_torchtune_1867(record: bool = False) -> fp.Design:
    """Case 17, meta-pytorch/torchtune#1867 (fix #1936): an alias of an offloaded activation outlives the tensor that is tracked.

    A model of the reported mechanism. It exists because the offloader deletes its reference at what it takes for the last
    use. The kernel that reads through the view comes behind that, and nothing makes the prefetch stream, which owns the
    block, wait for it: the block is free for the next prefetch while the compute stream reads through the view.
    """
    d = fp.Design("torchtune#1867")
    prefetch = d.stream("prefetch")
    saved = d.pinned("saved")

    @d.loop("backward")
    def node() -> None:
        with prefetch:
            activations = d.empty("activations")
            activations.copy_(saved, non_blocking=True)
        d.current_stream().wait_stream(prefetch)
        d.launch("first use", reads=[activations])
        if record:
            activations.record_stream(d.current_stream())
        d.launch("use through the view", reads=[activations])
        activations.release()

    return d


@fp.variant(
    "before: recorded on the owner itself",
    fp.REFUTED,
    hazard="WAR parameter",
    fix="after: recorded on the compute stream",
    on="owner",
)
@fp.variant(
    "#14657: no guard at all",
    fp.REFUTED,
    hazard="WAR parameter",
    fix="after: recorded on the compute stream",
    on="nothing",
)
@fp.variant("after: recorded on the compute stream", fp.PROVED, on="compute")
def case_18_diffusers_12721(on: Literal["owner", "nothing", "compute"] = "owner") -> fp.Design:
    """Case 18, huggingface/diffusers#12721 (bug #12673): record_stream is called with the stream that owns the block.

    A model of the reported mechanism (S64). It exists because "the current stream" means another one inside the `with`
    block of the side stream, where the call does nothing.
    """
    d = fp.Design("diffusers#12721")
    onload, weights = d.stream("onload"), d.pinned("weights")

    @d.loop("pipeline")
    def group() -> None:
        compute = d.current_stream()
        with onload:
            parameter = d.empty("parameter")
            parameter.copy_(weights, non_blocking=True)
            if on != "nothing":
                parameter.record_stream(compute if on == "compute" else d.current_stream())
        compute.wait_stream(onload)
        d.launch("forward", reads=[parameter])
        parameter.release()

    return d


@fp.variant("before: no tag, so idle", fp.REFUTED, hazard="WAW chunk", fix="after: tagged with its stream")
@fp.variant("after: tagged with its stream", fp.PROVED, tagged=True)
def case_19_onnxruntime_32342(tagged: bool = False) -> fp.Design:
    """Case 19, microsoft/onnxruntime#32342: an arena takes a chunk without a stream tag for idle.

    A model of the reported mechanism. It exists because the allocator's policy decides: a chunk that carries its last
    use is handed out when that is done, one that carries nothing at once, also to another Run call.
    """
    d = fp.Design("onnxruntime#32342")
    arena = d.pool("chunk", size=1, of="device")

    def run(name: str) -> None:
        @d.loop(name, stream=d.stream(f"{name} stream"))
        def call() -> None:
            chunk = arena.take()
            d.memset(chunk)
            d.launch("node", reads=[chunk], writes=[chunk])
            used = d.event("used")
            used.record()
            if tagged:
                arena.give(chunk, after=used)
            else:
                arena.give(chunk)

    run("Run 1")
    run("Run 2")
    return d


@fp.variant(
    "before: freed in the order of an idle stream", fp.REFUTED, hazard="WAW array", fix="after: a blocking free"
)
@fp.variant("after: a blocking free", fp.PROVED, free="blocking")
@fp.variant("#783: freed on a stream that waits for all others", fp.PROVED, free="waits for all")
@fp.variant("an early free on the task's own stream", fp.PROVED, free="own stream")
def case_21_cuda_jl_778(
    free: Literal["idle stream", "blocking", "waits for all", "own stream"] = "idle stream",
) -> fp.Design:
    """Case 21, JuliaGPU/CUDA.jl#778: a finaliser frees an array in the order of an unrelated stream.

    A model of the reported mechanism. It exists because the collector runs at any time in any task: here a thread of its
    own, which frees what is garbage in the order of its stream. Two tasks share the allocator.
    """
    d = fp.Design("CUDA.jl#778")
    garbage = d.queue("unreachable", capacity=1, item=(fp.MEMORY,))
    tasks = [d.stream("stream of task 1"), d.stream("stream of task 2")]
    idle = d.stream("finaliser stream")

    def task(name: str, stream: fp.Stream) -> None:
        @d.loop(name, stream=stream)
        def compute() -> None:
            array = d.malloc_async("array")
            d.launch("fill", writes=[array])
            d.launch("kernel", reads=[array], writes=[array])
            if free == "own stream":
                array.free_async()
            else:
                garbage.put(array)

    for number, stream in enumerate(tasks, 1):
        task(f"task {number}", stream)

    if free != "own stream":

        @d.loop("collector", stream=idle)
        def finalise() -> None:
            array = garbage.get()
            if free == "blocking":
                d.synchronize()
            if free == "waits for all":
                for stream in tasks:
                    idle.wait_stream(stream)
            array.free_async()

    return d


@fp.variant("before: free at enqueue time", fp.REFUTED, hazard="WAR buffer", fix="after: free behind the last use")
@fp.variant("after: free behind the last use", fp.PROVED, deferred=True)
def case_23_xla_979(deferred: bool = False) -> fp.Design:
    """Case 23, ROCm/xla#979: a buffer goes back to the pool when its last use is enqueued.

    A model of the reported mechanism. It exists because the pool is shared by streams and the autotuner takes scratch from
    it on another stream.
    """
    d = fp.Design("xla#979")
    pool = d.pool("buffer", size=1, of="device")
    compute, tuning = d.stream("compute"), d.stream("autotuner")

    def use(stream: fp.Stream, name: str) -> None:
        buffer = pool.take()
        d.launch(name, writes=[buffer], stream=stream)
        d.launch(f"use of {name}", reads=[buffer], stream=stream)
        used = stream.record_event(d.event(f"{name} done"))
        if deferred:
            pool.give(buffer, after=used)
        else:
            pool.give(buffer)

    @d.loop("executor")
    def step() -> None:
        use(compute, "kernel")
        with d.maybe("autotune"):
            use(tuning, "scratch memset")

    return d


@fp.variant(
    "before: result and target unrecorded", fp.REFUTED, hazard="WAR bucket", fix="after: recorded on the reduce stream"
)
@fp.variant("after: recorded on the reduce stream", fp.PROVED, record=True)
def case_c8_deepspeed_7965(record: bool = False) -> fp.Design:
    """Case C-8, deepspeedai/DeepSpeed#7965: the reduction's tensors are used on the reduce stream and not recorded there.

    A model of the reported mechanism. It exists because the tensors are made on the compute stream, to which they return.
    """
    d = fp.Design("DeepSpeed#7965")
    reduce, gradient = d.stream("reduce"), d.device("gradient partition")

    @d.loop("backward")
    def bucket_full() -> None:
        bucket = d.empty("bucket")
        d.launch("flatten", writes=[bucket])
        reduce.wait_stream(d.current_stream())
        if record:
            bucket.record_stream(reduce)
        with reduce:
            d.launch("reduce", reads=[bucket], writes=[bucket])
            gradient.copy_(bucket, non_blocking=True)
        bucket.release()

    return d


@fp.variant(
    "before: the source dies while its copy waits", fp.REFUTED, hazard="WAR sampled ids", fix="after: held by reference"
)
@fp.variant("after: held by reference", fp.PROVED, keep="reference")
@fp.variant("after: record_stream", fp.PROVED, keep="record_stream")
def case_c10_vllm_29623(keep: Literal["nothing", "reference", "record_stream"] = "nothing") -> fp.Design:
    """Case C-10, vllm-project/vllm#29623 (and the review of #23569): the source of the sampled tokens' copy to the host.

    A model of the reported mechanism. It exists because of its review: both remedies suffice, and the reference costs
    nothing, while record_stream defers reuse by events that later allocations poll.
    """
    d = fp.Design("vllm#29623")
    copy = d.stream("copy")
    output = d.queue("async output", capacity=2, item=(fp.EVENT, fp.MEMORY, fp.MEMORY))
    bare = d.queue("async output without source", capacity=2, item=(fp.EVENT, fp.MEMORY))

    @d.loop("worker")
    def step() -> None:
        ids = d.empty("sampled ids")
        d.launch("sample", writes=[ids])
        copy.wait_stream(d.current_stream())
        with copy:
            ids_cpu = d.empty_pinned("sampled ids cpu")
            ids_cpu.copy_(ids, non_blocking=True)
            if keep == "record_stream":
                ids.record_stream(copy)
            copied = d.event("copied")
            copied.record()
        if keep == "reference":
            output.put(copied, ids_cpu, ids)
            if output.full():
                done, tokens, _ = output.get()
                done.synchronize()
                tokens.read()
        else:
            bare.put(copied, ids_cpu)
            if bare.full():
                done, tokens = bare.get()
                done.synchronize()
                tokens.read()

    return d


@fp.variant("before: the free no longer waits", fp.REFUTED, hazard="WAW memory", fix="after: synchronise first")
@fp.variant("before, where a free waits for the device", fp.PROVED, platform="cuda-synchronising-free")
@fp.variant("after: synchronise first", fp.PROVED, wait=True)
@fp.variant("after, where a free waits for the device", fp.PROVED, platform="cuda-synchronising-free", wait=True)
def case_c11_rmm_1655(wait: bool = False) -> fp.Design:
    """Case C-11, rapidsai/rmm#1655 and kokkos/kokkos#9307: a free that used to synchronise no longer does.

    A model of the reported mechanism. It exists because cudaFree may synchronise, and another allocator's free does not
    (S38): code leaned on what was never promised.
    """
    d = fp.Design("rmm#1655")
    memory = d.pool("memory", size=1, of="device")
    user, other = d.stream("user"), d.stream("other")

    @d.loop("caller")
    def call() -> None:
        buffer = memory.take()
        d.launch("kernel", reads=[buffer], writes=[buffer], stream=user)
        if wait:
            user.synchronize()
        memory.free(buffer)
        following = memory.take()
        d.launch("next kernel", writes=[following], stream=other)
        other.synchronize()
        memory.free(following)

    return d
