"""Class A: a pinned host source is overwritten before the asynchronous copy, or the kernel in place, has read it.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant("before: no guard", fp.REFUTED, hazard="WAR state", fix="after: both buffers guarded", guard="none")
@fp.variant(
    "vllm#24527: guard around the input preparation only", fp.REFUTED, hazard="WAR state",
    fix="after: both buffers guarded", guard="inputs",
)  # fmt: skip
@fp.variant("after: both buffers guarded", fp.PROVED, guard="all")
def case_1_vllm_25279(guard: Literal["none", "inputs", "all"] = "none") -> fp.Design:
    """Case 1, vllm-project/vllm#25279: the region between the event's wait and its record leaves one buffer out.

    A model of the reported mechanism. It exists because the guard covered the input buffers and not the state that is
    updated before them; the first attempt (#24527) was as narrow.
    """
    d = fp.Design("vllm#25279")
    d.models("vllm/v1/worker/gpu_model_runner.py", "GPUModelRunner._update_states", "#25279")
    state, inputs = d.pinned("state"), d.pinned("inputs")
    state_gpu, inputs_gpu, tokens = d.device("state_gpu"), d.device("inputs_gpu"), d.device("tokens")
    prepared = d.event("prepare_inputs_event")

    @d.loop("worker")
    def step() -> None:
        if guard == "all":
            prepared.synchronize()
        state.write()
        state_gpu.copy_(state, non_blocking=True)
        if guard == "inputs":
            prepared.synchronize()
        inputs.write()
        inputs_gpu.copy_(inputs, non_blocking=True)
        d.launch("forward", reads=[state_gpu, inputs_gpu], writes=[tokens])
        if guard != "none":
            prepared.record()

    return d


@fp.variant("before: the dummy step takes no part", fp.REFUTED, hazard="WAR inputs", fix="after: both kinds take part")
@fp.variant(
    "ATOM#1993: the streams wait for each other, the host for nothing", fp.REFUTED, hazard="WAR inputs",
    fix="after: both kinds take part", dummy="stream waits",
)  # fmt: skip
@fp.variant(
    "the dummy step waits and records nothing", fp.REFUTED, hazard="WAR inputs", fix="after: both kinds take part",
    dummy="waits",
)  # fmt: skip
@fp.variant("after: both kinds take part", fp.PROVED, dummy="takes part")
def case_2_vllm_34866(dummy: Literal["nothing", "stream waits", "waits", "takes part"] = "nothing") -> fp.Design:
    """Case 2, vllm-project/vllm#34866 and ROCm/ATOM#1993: an idle rank's dummy step skips the reuse protocol.

    A model of the reported mechanism. It exists because a step kind that is rare was written on another path: the next
    step's wait returns on an old record, and waits between streams order no host store.
    """
    d = fp.Design("vllm#34866")
    inputs, inputs_gpu, tokens = d.pinned("inputs"), d.device("inputs_gpu"), d.device("tokens")
    prepared, copied, computed = d.event("prepare_inputs_event"), d.event("copied"), d.event("computed")
    copy, compute = d.stream("copy"), d.stream("compute")

    def refill() -> None:
        inputs.write()
        copy.wait_event(computed)
        with copy:
            inputs_gpu.copy_(inputs, non_blocking=True)
            copied.record()
        compute.wait_event(copied)
        with compute:
            d.launch("forward", reads=[inputs_gpu], writes=[tokens])
            computed.record()

    @d.loop("rank")
    def step() -> None:
        kind = d.choose("step kind", ["real", "dummy"])
        if kind == "real":
            if dummy != "stream waits":
                prepared.synchronize()
            refill()
            with compute:
                prepared.record()
        else:
            if dummy in ("waits", "takes part"):
                prepared.synchronize()
            refill()
            if dummy == "takes part":
                with compute:
                    prepared.record()

    return d


@fp.variant(
    "before: one table, refilled in place", fp.REFUTED, hazard="WAR block offsets", fix="after: a fresh buffer per call"
)
@fp.variant("after: a fresh buffer per call", fp.PROVED, fresh=True)
def case_4_tensorrt_llm_15546(fresh: bool = False) -> fp.Design:
    """Case 4, NVIDIA/TensorRT-LLM#15546: the KV block-offset table is refilled while the stream stalls.

    A model of the reported mechanism. It exists because the host runs one iteration ahead, and a wait for offload
    transfers holds the stream back longer than usual. The fix leans on the host allocator, which keeps a block until the
    copies that it saw are done (S80).
    """
    d = fp.Design("TensorRT-LLM#15546")
    table = d.pinned("block offsets")
    table_gpu, blocks = d.device("block offsets gpu"), d.device("kv blocks")
    offload = d.stream("offload")
    results = d.queue("previous batch", capacity=2, item=(fp.EVENT,))

    @d.loop("executor")
    def iteration() -> None:
        with offload:
            d.launch("offload blocks", reads=[blocks["offloaded"]])
        d.current_stream().wait_stream(offload)
        if fresh:
            rows = d.empty_pinned("rows")
            rows.write()
            table_gpu.copy_(rows, non_blocking=True)
            rows.release()
        else:
            table.write()
            table_gpu.copy_(table, non_blocking=True)
        d.launch("attention", reads=[table_gpu], writes=[blocks["decoded"]])
        done = d.event("done")
        done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant(
    "before: the library's plan buffer under overlap",
    fp.REFUTED,
    hazard="WAR plan buffer",
    fix="after: a plan buffer per step in flight",
)
@fp.variant("without overlap", fp.PROVED, overlap=False)
@fp.variant("after: a plan buffer per step in flight", fp.PROVED, buffers=2)
def case_5_mini_sglang_103(overlap: bool = True, buffers: int = 1) -> fp.Design:
    """Case 5, sgl-project/mini-sglang#103: an attention library keeps one hidden pinned plan buffer.

    A model of the reported mechanism. It exists because the library's `plan` fills a pinned buffer and copies it
    asynchronously, which its signature does not say; only overlap exposes it. The merged change is not visible; a buffer
    for each step in flight is one that suffices.
    """
    d = fp.Design("mini-sglang#103")
    plan_host, plan_gpu = d.pinned("plan buffer", depth=buffers), d.device("plan")
    tokens = d.device("tokens")
    results = d.queue("results", capacity=2 if overlap else 1, item=(fp.EVENT,))

    def plan(n: fp.Turn) -> None:
        """The contract of the third-party call: a hidden write and a hidden copy."""
        plan_host[n].write()
        plan_gpu.copy_(plan_host[n], non_blocking=True)

    @d.loop("scheduler")
    def step(n: fp.Turn) -> None:
        plan(n)
        d.launch("attention", reads=[plan_gpu], writes=[tokens])
        done = d.event("done")
        done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant("before", fp.REFUTED, hazard="WAR operator buffer", fix="after: the stage waits for its previous iteration")
@fp.variant("after: the stage waits for its previous iteration", fp.PROVED, wait=True)
def case_6_dali_1475(wait: bool = False) -> fp.Design:
    """Case 6, NVIDIA/DALI#1475: buffers inside an operator across iterations of a pipeline of stage threads.

    A model of the reported mechanism. It exists because queues between the stages bound the outputs, while the buffer
    inside the operator is nobody's output.
    """
    d = fp.Design("DALI#1475")
    buffer, output = d.pinned("operator buffer"), d.device("output", depth=3)
    ready = d.queue("cpu to gpu stage", capacity=1, item=(fp.EVENT, fp.INDEX))
    slots = d.cursor("output slot", 3)
    done = d.event("stage done")
    consumer = d.stream("consumer")

    @d.loop("mixed stage", stream=d.stream("mixed stage stream"))
    def mixed() -> None:
        if wait:
            done.synchronize()
        buffer.write()
        slot = slots.advance()
        output[slot].copy_(buffer, non_blocking=True)
        done.record()
        copied = d.event("copied")
        copied.record()
        ready.put(copied, slot)

    @d.loop("gpu stage", stream=consumer)
    def gpu() -> None:
        copied, slot = ready.get()
        copied.wait()
        d.launch("operator", reads=[output[slot]])
        consumer.synchronize()

    return d


@fp.variant("before: one path lacks the wait", fp.REFUTED, hazard="WAR backend input", fix="after: every path waits")
@fp.variant("after: every path waits", fp.PROVED, fallback="event")
@fp.variant("after: the fallback copies blocking", fp.PROVED, fallback="blocking")
def case_7_llama_cpp_8897(copies: int = 4, fallback: Literal["none", "event", "blocking"] = "none") -> fp.Design:
    """Case 7, ggml-org/llama.cpp#8897 (bug #8685): the CPU backend overwrites an input that a GPU copy still reads.

    A model of the reported mechanism. It exists because the host is itself a compute backend, its result X is copied to
    one of N rotating inputs, and one of the two copy paths lacks the wait for that input's event.
    """
    d = fp.Design("llama.cpp#8897")
    x = d.pinned("backend input")
    rotating = d.device("input copy", depth=copies)
    copied, used = d.event("copied", depth=copies), d.event("used", depth=copies)
    gpu = d.stream("gpu backend")

    @d.loop("scheduler")
    def graph(n: fp.Turn) -> None:
        copied[n - 1].synchronize()
        x.write()
        path = d.choose("copy path", ["async", "fallback"])
        with gpu:
            if path == "async" or fallback == "event":
                used[n].wait()
                rotating[n].copy_(x, non_blocking=True)
                copied[n].record()
            else:
                rotating[n].copy_(x, non_blocking=fallback != "blocking")
            d.launch("compute", reads=[rotating[n]])
            used[n].record()

    return d


@fp.variant(
    "before: refill between launch and copy",
    fp.REFUTED,
    hazard="WAR staging",
    fix="after: a fresh host buffer per step",
)
@fp.variant("after: a fresh host buffer per step", fp.PROVED, fresh=True)
def case_c1_tokenspeed_376(fresh: bool = False) -> fp.Design:
    """Case C-1, lightseekorg/tokenspeed#376: the host refills between the launch and the device's read of the buffer.

    A model of the reported mechanism. It exists because a launch that returned looks like a buffer that is free.
    """
    d = fp.Design("tokenspeed#376")
    staging, target = d.pinned("staging"), d.device("target")

    @d.loop("engine")
    def step() -> None:
        source = d.empty_pinned("staging of the step") if fresh else staging
        source.write()
        target.copy_(source, non_blocking=True)
        d.launch("forward", reads=[target])

    return d


@fp.variant(
    "before: the buffer is shared by all requests",
    fp.REFUTED,
    hazard="WAR zeroing ids",
    fix="after: wait for the last copy",
)
@fp.variant("after: wait for the last copy", fp.PROVED, guard=True)
def case_c2_1cat_vllm_406(guard: bool = False) -> fp.Design:
    """Case C-2, 1CatAI/1Cat-vLLM#406: the list of KV blocks to zero is reused, so the wrong pages are cleared.

    A model of the reported mechanism. It exists because the fix of the race was lost when branches were merged.
    """
    d = fp.Design("1Cat-vLLM#406")
    ids, ids_gpu, pages = d.pinned("zeroing ids"), d.device("zeroing ids gpu"), d.device("pages")
    copied = d.event("copied")

    @d.loop("worker")
    def step() -> None:
        with d.maybe("new blocks"):
            if guard:
                copied.synchronize()
            ids.write()
            ids_gpu.copy_(ids, non_blocking=True)
            copied.record()
            d.launch("zero pages", reads=[fp.read(ids_gpu, harm="address")], writes=[pages[fp.ANY]])
        d.launch("forward", reads=[pages], writes=[pages])

    return d


@fp.variant("before: K and V share the staging buffer", fp.REFUTED, hazard="WAR staging")
@fp.variant("a staging buffer for each", fp.REFUTED, hazard="WAR staging v", separate=True)
@fp.variant("K copied before V is filled", fp.PROVED, guard=True)
def case_c3_1bit_monster_2344(separate: bool = False, guard: bool = False) -> fp.Design:
    """Case C-3, 1bit-MONSTER/1bit-MONSTER#2344: staging filled with K, copied, and refilled with V at once.

    A model of the reported mechanism. It exists because the window is a few microseconds wide. Two buffers move the
    race to the next layer and do not end it; waiting for the copy does.
    """
    d = fp.Design("1bit-MONSTER#2344")
    staging = d.pinned("staging")
    staging_v = d.pinned("staging v") if separate else staging
    k, v = d.device("k"), d.device("v")
    copied = d.event("copied")

    @d.loop("loader")
    def layer() -> None:
        for host, device in ((staging, k), (staging_v, v)):
            if guard:
                copied.synchronize()
            host.write()
            device.copy_(host, non_blocking=True)
            copied.record()

    return d


@fp.variant("before: no guard", fp.REFUTED, hazard="WAR inputs", fix="after: guard", ranks=2)
@fp.variant("after: guard", fp.PROVED, ranks=2, guard=True)
def case_c25_vllm_54269(ranks: int = 2, guard: bool = False) -> fp.Design:
    """Case C-25, vllm-project/vllm#54269: a missing reuse guard that shows up as a hang of several ranks.

    A model of the reported mechanism. It exists because the stale input is a shape on which the ranks must agree; the
    symptom is a hang without an error text, the cause is this race.
    """
    d = fp.Design("vllm#54269")
    group = d.communicator("dp", [f"rank {r}" for r in range(ranks)])

    def rank(r: int) -> None:
        inputs, inputs_gpu = d.pinned(f"inputs of rank {r}" if r else "inputs"), d.device(f"inputs gpu {r}")
        hidden = d.device(f"hidden states {r}")
        prepared, resolved = d.event(f"prepared {r}"), d.event(f"resolved {r}", depth=2)

        @d.loop(f"rank {r}")
        def step(n: fp.Turn) -> None:
            if guard:
                prepared.synchronize()
            inputs.write()
            inputs_gpu.copy_(inputs, non_blocking=True)
            prepared.record()
            d.launch("forward", reads=[fp.read(inputs_gpu, harm="shape")], writes=[hidden])
            group.all_reduce(hidden)
            resolved[n - 1].synchronize()  # the step before is awaited, one is in flight
            resolved[n].record()

    for r in range(ranks):
        with d.process(f"rank {r}", gpu=r):
            rank(r)
    return d
