"""vLLM's V2 model runner: rings of pinned slots that kernels read in place (`UvaBufferPool`).

Read in vLLM 0.33.0 (`v1/worker/gpu/`). A pool has max(2, batches in flight) slots; each `copy_to_uva` advances its
index and writes the slot from the host, with no wait. So the depth equals the number of steps whose results may be
unresolved, and the margin is zero, as designed: anything that takes a slot more than once a step, reads it behind the
event that resolves the step, or resolves without waiting for the device breaks it.

Every pool of the runner moves as the ones written here. Left out, because no row turns on them: pools whose takes and
readers are those of another; the fresh pinned sources of `async_tensor_h2d`; the sampled ids and their copies, which
the output object holds until it has been waited for; the broadcast of sampled ids back to earlier pipeline stages (a
wait of one stream for another, which never holds a host back); every collective inside a stage, but for
`tensor_parallel`, which is about them. An edge that is left out can only add hazards.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp

GPU = "vllm/v1/worker/gpu"


def _engine(d: fp.Design, batch_queue_size: int, *kinds: str) -> tuple[fp.Queue, fp.Queue]:
    """The engine core and the worker's output thread, for one stage under async scheduling.

    Gives the queue of calls to the worker, tagged with the kind of step (`kinds`, an open choice in each step), and
    the queue of outputs from the worker: tag "output" with the event that its reply waits for, or "host" (no wait). A
    batch is dispatched while fewer than `batch_queue_size` are unresolved, itself included. Only the engine's own
    queue ever makes anybody wait: the others have room for one more than can be under way.
    """
    rpc = d.queue("rpc", capacity=batch_queue_size + 1, item={kind: () for kind in kinds})
    outputs = d.queue("async_output_queue", capacity=batch_queue_size + 1, item={"output": (fp.EVENT,), "host": ()})
    response = d.queue("response", capacity=batch_queue_size + 1, item=())
    batch_queue = d.queue("batch_queue", capacity=batch_queue_size, item=())

    @d.loop("engine core")
    def engine() -> None:
        rpc.put(tag=d.choose("kind", list(kinds)) if len(kinds) > 1 else kinds[0])
        batch_queue.put()
        if batch_queue.full():
            batch_queue.get()
            response.get()  # future.result() of the oldest batch

    @d.loop("output thread")
    def get_output() -> None:
        output = outputs.get()
        if output.tag == "output":
            (copy_event,) = output
            copy_event.synchronize()
        response.put()

    return rpc, outputs


def _output(d: fp.Design, outputs: fp.Queue, output_copy_stream: fp.Stream) -> None:
    """Hand the step over to the output thread: its event covers all that the main stream holds by now."""
    output_copy_stream.wait_stream(d.current_stream())
    copy_event = d.event("copy_event")
    copy_event.record(output_copy_stream)
    outputs.put(copy_event, tag="output")


@fp.variant("2 in flight, 2 slots: async scheduling, one stage", fp.PROVED)
@fp.variant("3 in flight, 3 slots", fp.PROVED, batch_queue_size=3, depth=3)
@fp.variant(
    "3 in flight, 2 slots",
    fp.REFUTED,
    hazard="WAR num_blocks pp0",
    fix="3 in flight, 3 slots",
    batch_queue_size=3,
    depth=2,
)
@fp.variant(
    "async pipeline of 2, default depth: the setter ran after the pools were built",
    fp.REFUTED,
    hazard="WAR num_blocks pp0",
    fix="async pipeline of 2, 3 in flight, 3 slots",
    stages=2,
    batch_queue_size=3,
    depth=2,
)
@fp.variant("async pipeline of 2, 3 in flight, 3 slots", fp.PROVED, stages=2, batch_queue_size=3, depth=3)
@fp.variant("pipeline of 2 without async scheduling, 2 in flight, 2 slots", fp.PROVED, stages=2, async_scheduling=False)
@fp.variant(
    "2 takes a step, 2 in flight, 2 slots",
    fp.REFUTED,
    hazard="WAR num_blocks pp0",
    fix="2 takes a step, 2 in flight, 4 slots",
    takes=2,
    depth=2,
)
@fp.variant(
    "2 takes a step, 2 in flight, 3 slots",
    fp.REFUTED,
    hazard="WAR num_blocks pp0",
    fix="2 takes a step, 2 in flight, 4 slots",
    takes=2,
    depth=3,
)
@fp.variant("2 takes a step, 2 in flight, 4 slots", fp.PROVED, takes=2, depth=4)
@fp.variant(
    "speculator behind the event, 2 in flight, 2 slots",
    fp.REFUTED,
    hazard="WAR temperature",
    fix="speculator behind the event, 2 in flight, 3 slots",
    speculator=True,
)
@fp.variant("speculator behind the event, 2 in flight, 3 slots", fp.PROVED, speculator=True, depth=3)
@fp.variant(
    "speculator behind the event, 3 in flight, 3 slots",
    fp.REFUTED,
    hazard="WAR temperature",
    fix="speculator behind the event, 3 in flight, 4 slots",
    speculator=True,
    batch_queue_size=3,
    depth=3,
)
@fp.variant(
    "speculator behind the event, 3 in flight, 4 slots", fp.PROVED, speculator=True, batch_queue_size=3, depth=4
)
@fp.variant("empty steps interleaved", fp.PROVED, empty_steps=True)
@fp.variant("empty steps interleaved, 3 in flight, 3 slots", fp.PROVED, empty_steps=True, batch_queue_size=3, depth=3)
@fp.variant(
    "empty steps interleaved, 3 in flight, 2 slots",
    fp.REFUTED,
    hazard="WAR num_blocks pp0",
    fix="empty steps interleaved, 3 in flight, 3 slots",
    empty_steps=True,
    batch_queue_size=3,
    depth=2,
)
@fp.variant(
    "speculator and empty steps, one slot more than in flight",
    fp.REFUTED,
    hazard="WAR temperature",
    speculator=True,
    empty_steps=True,
    depth=3,
)
@fp.variant(
    "speculator and empty steps, many more slots than in flight",
    fp.REFUTED,
    hazard="WAR temperature",
    speculator=True,
    empty_steps=True,
    depth=8,
)
@fp.variant("structured output deferred, 2 in flight, 2 slots", fp.PROVED, structured_output=True)
@fp.variant(
    "structured output deferred, 3 in flight, 3 slots",
    fp.PROVED,
    structured_output=True,
    batch_queue_size=3,
    depth=3,
)
@fp.variant(
    "structured output deferred, 3 in flight, 2 slots",
    fp.REFUTED,
    hazard="WAR num_blocks pp0",
    fix="structured output deferred, 3 in flight, 3 slots",
    structured_output=True,
    batch_queue_size=3,
    depth=2,
)
def uva_pool(
    stages: int = 1,
    batch_queue_size: int = 2,
    depth: int = 2,
    takes: int = 1,
    async_scheduling: bool = True,
    speculator: bool = False,
    empty_steps: bool = False,
    structured_output: bool = False,
) -> fp.Design:
    """Sampling steps of the multi-process engine; slot reuse is protected by the results alone.

    `stages` pipeline stages, `batch_queue_size` batches that may be unresolved (Q), `depth` slots per pool (D),
    `takes` slots of the block-table pool taken in one step (T). Safe iff D >= T * Q. The sampling parameters are
    taken once.

    `async_scheduling`: the last stage's output thread waits for the copy of the sampled ids; without it the worker
    does.

    `speculator`: the drafter reads the sampler's temperature slot *behind* the event that resolves the step, so only
    the next step's event covers it: safe iff D >= Q + 1. The claim in vLLM #53057 that the event follows every kernel
    of the step fails here. What a late draft kernel would read is a sampling parameter, not an address
    (`harm="quality"`).

    `empty_steps`: a step with no tokens writes its slots, launches no reader, and resolves at once; the results are
    taken in order, so the real steps in front of it are still waited for. With a speculator on top no depth is
    enough: empty steps move the ring on, and none of them covers the drafter's read. systems.md has no such row; it
    follows from its bounds (a reader behind the event needs a *waiting* step after it).

    `structured_output`: sampling is dispatched only after the oldest result was taken. The deferred batch is not in
    the queue meanwhile, which then holds at most Q - 1 others: the bound does not change (vLLM #53057 has a comment
    that says "3 in flight with 2 slots").
    """
    d = fp.Design("vLLM V2 UvaBufferPool")
    d.models(f"{GPU}/buffer_utils.py", "UvaBufferPool.copy_to_uva", "0.33.0")
    d.models(f"{GPU}/model_runner.py", "GPUModelRunner.execute_model", "0.33.0")
    last = stages - 1
    kinds: dict[str, tuple[str, ...]] = {"execute": ()}
    if empty_steps:
        kinds["empty"] = ()
    # Nothing but the engine's own queue ever makes anybody wait: one more than it can have under way.
    room = batch_queue_size + 1
    rpc = [d.queue(f"rpc pp{r}", capacity=room, item=kinds) for r in range(stages)]
    sample_rpc = d.queue("sample rpc", capacity=room, item=()) if structured_output else None
    hidden_states = [d.queue(f"hidden states pp{r}", capacity=room, item=(fp.EVENT,)) for r in range(last)]
    batch_queue = d.queue("batch_queue", capacity=batch_queue_size, item=())
    response = d.queue("response", capacity=room, item=())

    @d.loop("engine core")
    def engine() -> None:
        deferred = False
        if d.choose("scheduler", ["batch", "nothing"]) == "batch":
            empty = empty_steps and d.choose("tokens", ["some", "none"]) == "none"
            for worker_rpc in rpc:
                worker_rpc.put(tag="empty" if empty else "execute")
            if sample_rpc is not None and not empty:
                # Its grammar waits for tokens of a batch in flight, hence only when there is one.
                deferred = not batch_queue.empty() and d.choose("grammar", ["ready", "pending"]) == "pending"
                if not deferred:
                    sample_rpc.put()
            if not deferred:
                batch_queue.put()
                if not empty and not batch_queue.full():
                    return
        elif batch_queue.empty():
            return
        batch_queue.get()
        response.get()
        if deferred and sample_rpc is not None:
            sample_rpc.put()
            batch_queue.put()

    output_kinds: dict[str, tuple[str, ...]] = {"output": (fp.EVENT,)}
    if empty_steps:
        output_kinds["host"] = ()
    async_output_queue = d.queue("async_output_queue", capacity=room, item=output_kinds) if async_scheduling else None

    def worker(rank: int) -> None:
        main = d.stream(f"main pp{rank}")
        num_blocks = d.pinned(f"num_blocks pp{rank}", depth=depth)
        num_blocks_slot = d.cursor(f"num_blocks slot pp{rank}", depth)
        if rank == last:
            output_copy_stream = d.stream("output_copy_stream")
            temperature = d.pinned("temperature", depth=depth)
            temperature_slot = d.cursor("temperature slot", depth)

        @d.loop(f"worker pp{rank}", stream=main)
        def step() -> None:
            empty = rpc[rank].get().tag == "empty"
            if rank == last:
                at = temperature_slot.advance()
                temperature[at].write()  # sampler.apply_staged_writes(), in every step
            for _ in range(takes):
                block = num_blocks_slot.advance()
                num_blocks[block].write()  # block_tables.apply_staged_writes(), in every step
                if not empty:
                    d.launch("gather block tables", reads=[fp.read(num_blocks[block], harm="address")])
            if empty:
                if rank == last:
                    resolve_on_host()
                return
            if rank > 0:
                arrived = hidden_states[rank - 1].get()  # metadata over the CPU group
                main.wait_event(arrived)  # the receive, on the device
            d.launch("forward")
            if rank < last:
                sent = d.event("sent")
                sent.record()
                hidden_states[rank].put(sent)
                return
            if sample_rpc is not None:
                sample_rpc.get()
            d.launch("sample", reads=[fp.read(temperature[at], harm="quality")])
            output_copy_stream.wait_stream(main)
            copy_event = d.event("copy_event")
            copy_event.record(output_copy_stream)
            if speculator:
                d.launch("propose", reads=[fp.read(temperature[at], harm="quality")])  # into the drafter's own buffers
            if async_output_queue is not None:
                async_output_queue.put(copy_event, tag="output")
                return
            copy_event.synchronize()
            response.put()

    def resolve_on_host() -> None:
        if async_output_queue is not None:
            async_output_queue.put(tag="host")
        else:
            response.put()

    for r in range(stages):
        worker(r)

    if async_output_queue is not None:

        @d.loop("output thread")
        def get_output() -> None:
            output = async_output_queue.get()
            if output.tag == "output":
                (copy_event,) = output
                copy_event.synchronize()
            response.put()

    return d


@fp.variant(
    "encoder-only, no wait, 2 slots: vLLM #53057",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="vllm#53176: a ring of 2 events, 2 slots",
)
@fp.variant(
    "encoder-only, no wait, 16 slots",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="vllm#53176: a ring of 2 events, 2 slots",
    depth=16,
)
@fp.variant("vllm#53176: a ring of 2 events, 2 slots", fp.PROVED, events=2)
@fp.variant("vllm#53057: a single event, 2 slots", fp.PROVED, events=1)
@fp.variant("a single event, one slot", fp.PROVED, events=1, depth=1)
@fp.variant(
    "a ring of 3 events, 2 slots",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="vllm#53176: a ring of 2 events, 2 slots",
    events=3,
)
@fp.variant("2 takes, a ring of 2 events, 4 slots", fp.PROVED, takes=2, events=2, depth=4)
@fp.variant(
    "2 takes, a ring of 2 events, 3 slots",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="2 takes, a ring of 2 events, 4 slots",
    takes=2,
    events=2,
    depth=3,
)
@fp.variant("2 takes, a single event, 2 slots", fp.PROVED, takes=2, events=1, depth=2)
@fp.variant(
    "2 takes, a single event, one slot",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="2 takes, a single event, 2 slots",
    takes=2,
    events=1,
    depth=1,
)
def encoder_only(depth: int = 2, takes: int = 1, events: int = 0) -> fp.Design:
    """An instance that runs encoder-only steps and nothing else: the question of vLLM #53057, "exactly when?".

    A step stages its writes in a pinned slot, enqueues the kernel that reads the slot in place, runs the encoder, and
    returns an output that the host built: its future resolves at the launch. So the host meets no wait in the whole
    loop, and the race happens exactly when the kernel of step k has not run by the time the host takes the slot
    again, in step k + `depth` (with one take per step). No depth prevents it; only the launch queue bounds the host's
    lead.

    With a ring of `events` (E): the host waits for event k mod E before it takes a slot in step k, and records it
    after the readers; safe iff `depth` >= `takes` * E. The encoder's forward stays outside, as it reads no slot.
    """
    d = fp.Design("vLLM V2 encoder-only")
    d.models(f"{GPU}/mm/encoder_runner.py", "MMEncoderModelRunner", "0.33.0")
    d.models(f"{GPU}/buffer_utils.py", "StagedWriteTensor.apply_write", "0.33.0")
    in_flight = 2
    rpc = d.queue("rpc", capacity=in_flight, item=())
    response = d.queue("response", capacity=in_flight, item=())
    batch_queue = d.queue("batch_queue", capacity=in_flight, item=())
    write_indices = d.pinned("write_indices", depth=depth)
    slot = d.cursor("write_indices slot", depth)
    fence = d.event("fence", depth=events) if events else None

    @d.loop("engine core")
    def engine() -> None:
        rpc.put()
        batch_queue.put()
        if batch_queue.full():
            batch_queue.get()
            response.get()

    @d.loop("worker", stream=d.stream("main"))
    def step(n: fp.Turn) -> None:
        rpc.get()
        if fence is not None:
            fence[n].synchronize()
        for _ in range(takes):
            at = slot.advance()
            write_indices[at].write()
            d.launch("apply write", reads=[fp.read(write_indices[at], harm="address")])
        if fence is not None:
            fence[n].record()
        d.launch("multimodal encoder")
        response.put()

    return d


@fp.variant(
    "no guard",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="guard in every step, a single event",
)
@fp.variant(
    "guard in encoder-only steps, a single event",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="guard in every step, a single event",
    events=1,
    guarded="encoder-only steps",
)
@fp.variant(
    "guard in encoder-only steps, a ring of 2 events",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="guard in every step, a ring of 2 events",
    events=2,
    guarded="encoder-only steps",
)
@fp.variant("guard in every step, a single event", fp.PROVED, events=1, guarded="every step")
@fp.variant("guard in every step, a ring of 2 events", fp.PROVED, events=2, guarded="every step")
@fp.variant(
    "guard in every step, a ring of 3 events, 2 slots",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="guard in every step, a ring of 2 events",
    events=3,
    guarded="every step",
)
def mixed_steps(
    depth: int = 2,
    batch_queue_size: int = 2,
    events: int = 0,
    guarded: Literal["no step", "encoder-only steps", "every step"] = "no step",
) -> fp.Design:
    """A loop that samples and also runs encoder-only steps, with the guard of vLLM #53176 in some of its steps.

    A guard that only encoder-only steps take is not enough: an encoder-only step resolves at once, its reader not
    known done, and the sampling step that takes the slot next has no guard of its own. A guarded step waits for the
    event of the guarded step `events` before it and records it after its readers.
    """
    d = fp.Design("vLLM V2 mixed steps")
    d.models(f"{GPU}/mm/encoder_runner.py", "MMEncoderModelRunner", "0.33.0")
    rpc, outputs = _engine(d, batch_queue_size, "sampling", "encoder only")
    output_copy_stream = d.stream("output_copy_stream")
    write_indices = d.pinned("write_indices", depth=depth)
    slot = d.cursor("write_indices slot", depth)
    fence = d.event("fence", depth=events) if events else None
    fence_index = d.cursor("fence index", events) if events else None

    @d.loop("worker", stream=d.stream("main"))
    def step() -> None:
        sampling = rpc.get().tag == "sampling"
        guard = None
        if fence is not None and fence_index is not None and (guarded == "every step" or not sampling):
            guard = fence[fence_index.advance()]
            guard.synchronize()
        at = slot.advance()
        write_indices[at].write()
        d.launch("apply write", reads=[fp.read(write_indices[at], harm="address")])
        if guard is not None:
            guard.record()
        if not sampling:
            d.launch("multimodal encoder")
            outputs.put(tag="host")
            return
        d.launch("forward and sample")
        _output(d, outputs, output_copy_stream)

    return d


@fp.variant("as released: .item() between the two takes", fp.PROVED)
@fp.variant(
    "the .item() between the two takes removed",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="as released: .item() between the two takes",
    item_between=False,
)
@fp.variant(
    "the .item() removed, 3 slots",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="the .item() removed, 4 slots",
    item_between=False,
    depth=3,
)
@fp.variant("the .item() removed, 4 slots", fp.PROVED, item_between=False, depth=4)
@fp.variant(
    ".item() between the two takes, one slot",
    fp.REFUTED,
    hazard="WAR write_indices",
    fix="as released: .item() between the two takes",
    depth=1,
)
def pruned_video(depth: int = 2, batch_queue_size: int = 2, item_between: bool = True) -> fp.Design:
    """Video pruning (EVS): a step that adds multimodal requests takes two slots of one pool.

    The first take is `add_requests`, the second the recomputed positions in `prepare_inputs_embeds`. Between them the
    recomputation calls `.item()`, which waits for the main stream (S33): at the second take every earlier reader is
    done, and at the next step's first take the reader before that wait is. Nobody put it there for this purpose.
    Without it (`item_between` False) two slots for two batches in flight are too few, and the bound is `depth` >=
    2 * `batch_queue_size`; two steps are enough to show it (systems.md speaks of a trace of three).
    """
    d = fp.Design("vLLM V2 pruned video")
    d.models(f"{GPU}/mm/encoder_runner.py", "prepare_inputs_embeds", "0.33.0")
    rpc, outputs = _engine(d, batch_queue_size, "new multimodal requests", "running requests")
    output_copy_stream = d.stream("output_copy_stream")
    write_indices = d.pinned("write_indices", depth=depth)
    slot = d.cursor("write_indices slot", depth)
    mrope_positions = d.device("mrope_positions")

    def apply_staged_writes() -> None:
        at = slot.advance()
        write_indices[at].write()
        d.launch("apply write", reads=[fp.read(write_indices[at], harm="address")], writes=[mrope_positions])

    @d.loop("worker", stream=d.stream("main"))
    def step() -> None:
        if rpc.get().tag == "new multimodal requests":
            apply_staged_writes()
            if item_between:
                mrope_positions.item()
            apply_staged_writes()
        d.launch("forward and sample", reads=[mrope_positions])
        _output(d, outputs, output_copy_stream)

    return d


@fp.variant(
    "pinned, as it was",
    fp.REFUTED,
    hazard="WAR paged_kv_indptr_cpu",
    fix="vllm#32799: not pinned",
)
@fp.variant("vllm#32799: not pinned", fp.PROVED, pinned=False)
@fp.variant(
    "vllm#32799 on a platform that reads pageable memory after the call",
    fp.REFUTED,
    hazard="WAR paged_kv_indptr_cpu",
    platform="cuda-late-pageable",
    pinned=False,
)
def attention_metadata(batch_queue_size: int = 2, pinned: bool = True) -> fp.Design:
    """A persistent host buffer that no pool rotates, such as FlashInfer's, refilled every step (vLLM #32799).

    Pinned it is a ring of depth one. Upstream's mend was to leave it unpinned: a copy from pageable memory has read
    its source when the call returns (S47), which the proof assumes of the platform.
    """
    d = fp.Design("vLLM V2 attention metadata")
    d.models("vllm/v1/attention/backends/flashinfer.py", "FlashInferMetadataBuilder.build", "0.33.0")
    make = d.pinned if pinned else d.pageable
    indptr = make("paged_kv_indptr_cpu")
    indptr_gpu = d.device("paged_kv_indptr")
    output_copy_stream = d.stream("output_copy_stream")
    rpc, outputs = _engine(d, batch_queue_size, "sampling")

    @d.loop("worker", stream=d.stream("main"))
    def step() -> None:
        rpc.get()
        indptr.write()
        indptr_gpu.copy_(indptr, non_blocking=True)
        d.launch("forward", reads=[indptr_gpu])
        _output(d, outputs, output_copy_stream)

    return d


@fp.variant("2 slots: what a rank reads in front of the step's last collective", fp.PROVED, sampler="nobody else")
@fp.variant(
    "2 slots: what a rank's sampler reads behind it",
    fp.REFUTED,
    hazard="WAR temperature tp1",
    fix="3 slots: what a rank's sampler reads behind it",
)
@fp.variant("3 slots: what a rank's sampler reads behind it", fp.PROVED, depth=3)
@fp.variant("2 slots, a collective behind the sampler", fp.PROVED, behind=True)
@fp.variant("2 slots, every rank's copy is awaited", fp.PROVED, awaited="every rank")
@fp.variant("2 slots, logits gathered at the output rank alone", fp.PROVED, collective="gather", sampler="nobody else")
@fp.variant(
    "2 slots, the output rank broadcasts to the others",
    fp.REFUTED,
    hazard="WAR num_blocks tp1",
    fix="2 slots: what a rank reads in front of the step's last collective",
    collective="broadcast",
    sampler="nobody else",
)
@fp.variant(
    "3 slots, the output rank broadcasts to the others",
    fp.REFUTED,
    hazard="WAR num_blocks tp1",
    fix="2 slots: what a rank reads in front of the step's last collective",
    collective="broadcast",
    sampler="nobody else",
    depth=3,
)
@fp.variant(
    "2 slots, ranks that share no collective",
    fp.REFUTED,
    hazard="WAR num_blocks tp1",
    fix="2 slots: what a rank reads in front of the step's last collective",
    collective="none",
    sampler="nobody else",
)
@fp.variant(
    "3 ranks, 2 slots: what a rank reads in front of the step's last collective",
    fp.PROVED,
    ranks=3,
    sampler="nobody else",
)
@fp.variant(
    "3 ranks, 2 slots: what a rank's sampler reads behind it",
    fp.REFUTED,
    hazard="WAR temperature tp1",
    fix="3 slots: what a rank's sampler reads behind it",
    ranks=3,
)
def tensor_parallel(
    ranks: int = 2,
    depth: int = 2,
    batch_queue_size: int = 2,
    collective: Literal["all-gather", "gather", "broadcast", "none"] = "all-gather",
    sampler: Literal["every rank", "nobody else"] = "every rank",
    behind: bool = False,
    awaited: Literal["output rank", "every rank"] = "output rank",
) -> fp.Design:
    """Tensor parallelism: every rank fills and reads slots of its own, and nobody waits for any but the output rank.

    What protects the slots of the other ranks is the last collective of the step, the all-gather of the logits. The output rank's
    end of it comes after every rank's *start*, hence after everything that stands in front of the start in that rank's
    stream; the output rank's copy event comes after its end, the engine after the event, the next refill after the engine.
    So readers in front of the collective have the margin of the output rank: `depth` >= batches in flight. A reader behind it
    (each rank samples for itself: `sampler`) is only covered by the collective of the next step, and needs one slot more, or
    a collective behind the reader (`behind`), or a wait for that rank's own copy (`awaited`).

    It must be a collective whose result at the output rank needs the rank's data: all-gather, all-reduce, or a gather to the
    output rank. A broadcast *from* the output rank waits for nobody, and no depth helps.
    """
    d = fp.Design("vLLM V2 tensor parallel")
    d.models(f"{GPU}/model_runner.py", "GPUModelRunner.sample_tokens", "0.33.0")
    room = batch_queue_size + 1
    names = [f"tp{r}" for r in range(ranks)]
    group = d.communicator("tp", names, capacity=room if collective == "broadcast" else None)
    rpc = {name: d.queue(f"rpc {name}", capacity=room, item=()) for name in names}
    waiting = names if awaited == "every rank" else names[:1]
    outputs = {name: d.queue(f"async_output_queue {name}", capacity=room, item=(fp.EVENT,)) for name in waiting}
    response = {name: d.queue(f"response {name}", capacity=room, item=()) for name in waiting}
    batch_queue = d.queue("batch_queue", capacity=batch_queue_size, item=())

    @d.loop("engine core")
    def engine() -> None:
        for name in names:
            rpc[name].put()
        batch_queue.put()
        if batch_queue.full():
            batch_queue.get()
            for name in waiting:
                response[name].get()

    def worker(name: str) -> None:
        main = d.stream(f"main {name}")
        num_blocks, temperature = (
            d.pinned(f"num_blocks {name}", depth=depth),
            d.pinned(f"temperature {name}", depth=depth),
        )
        hidden, logits = d.device(f"hidden states {name}"), d.device(f"logits {name}")
        output_copy_stream = d.stream(f"output_copy_stream {name}") if name in waiting else None

        @d.loop(f"worker {name}", stream=main)
        def step(n: fp.Turn) -> None:
            rpc[name].get()
            temperature[n].write()
            num_blocks[n].write()
            d.launch("forward", reads=[fp.read(num_blocks[n], harm="address")], writes=[hidden])
            if collective == "all-gather":
                group.all_gather(logits, hidden)
            elif collective == "gather":
                group.gather(hidden, logits if name == names[0] else None, root=names[0])
            elif collective == "broadcast":
                group.broadcast(logits, root=names[0])
            if sampler == "every rank" or name == names[0]:
                d.launch("sample", reads=[logits, fp.read(temperature[n], harm="quality")])
            if behind:
                group.all_reduce(hidden)
            if output_copy_stream is not None:
                output_copy_stream.wait_stream(main)
                copy_event = d.event("copy_event")
                copy_event.record(output_copy_stream)
                outputs[name].put(copy_event)

        if name in waiting:

            @d.loop(f"output thread {name}")
            def get_output() -> None:
                outputs[name].get().synchronize()
                response[name].put()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            worker(name)
    return d
