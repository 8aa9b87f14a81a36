"""vLLM's V1 model runner: pinned input buffers of depth one, refilled every step.

Read in vLLM 0.33.0 (`v1/worker/gpu_model_runner.py`, `v1/engine/core.py`, the executors). The worker's host thread
writes numpy views of persistent pinned buffers and enqueues one asynchronous copy per buffer on its main stream, so a
copy that has not run yet reads what the *next* step wrote (S45, S85). What may keep the host behind the device is
`prepare_inputs_event` (the guard) or, by accident, a wait that a step's return path makes for another reason.

The exact condition without the guard: safe iff one batch at most is in flight **and** every kind of step waits for
the device before it returns.

Left out, because no row turns on it: the fresh pinned sources of `async_tensor_h2d`; the buffers that the sampled ids
go through (under async scheduling the output object holds them until it has been waited for); the send of the ids back
to the first stage; every collective inside a stage. An edge that is left out can only add hazards.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp

RUNNER = "vllm/v1/worker/gpu_model_runner.py"


@fp.variant(
    "0.33.0 default with a pipeline: no guard without async scheduling",
    fp.REFUTED,
    hazard="WAR input_ids pp0",
    fix="vllm#47644: the guard exists whenever steps overlap",
    guard=False,
)
@fp.variant("vllm#47644: the guard exists whenever steps overlap", fp.PROVED, guard=True)
@fp.variant("guarded, 3 in flight on 2 stages", fp.PROVED, batch_queue_size=3, guard=True)
@fp.variant(
    "guard taken off the first of 2 stages",
    fp.REFUTED,
    hazard="WAR input_ids pp0",
    fix="vllm#47644: the guard exists whenever steps overlap",
    guard=True,
    unguarded=0,
)
@fp.variant("guard taken off the last of 2 stages", fp.PROVED, guard=True, unguarded=1)
@fp.variant("one batch in flight, one stage, no guard", fp.PROVED, stages=1, batch_queue_size=1, guard=False)
@fp.variant("one batch in flight, 2 stages, no guard", fp.PROVED, stages=2, batch_queue_size=1, guard=False)
@fp.variant(
    "no guard, launch blocking (kernels)",
    fp.MASKED,
    environment="launch-blocking-kernels",
    guard=False,
)
@fp.variant(
    "no guard, launch blocking (kernels and copies)",
    fp.MASKED,
    environment="launch-blocking",
    guard=False,
)
def pipeline(
    stages: int = 2, batch_queue_size: int = 2, guard: bool = False, unguarded: int | None = None
) -> fp.Design:
    """Pipeline stages behind the batch queue, without async scheduling: the loop of vLLM #47644.

    `stages` worker processes; at most `batch_queue_size` batches unresolved, the one being dispatched included.
    `guard`: `prepare_inputs_event` exists; `unguarded` names the one stage that has none all the same.

    Only the last stage waits for its device in a step, when it fetches the sampled ids; so the guard can go there,
    and nowhere else: a stage's host may run ahead by `batch_queue_size` steps. With one batch in flight the next is
    dispatched after the last stage's ids, and those depend on every stage through the activations. Their transfer is
    written as the event that the sending stream records and the receiving stream waits for: a receive ends after its
    send started, hence after everything in front of the send (the reverse edge does not exist).

    Launch blocking hides the hazard at every copy size: the forward is enqueued behind the copy on the same
    stream, so the launch returns after the copy, also where copies themselves do not block (S113).
    """
    d = fp.Design("vLLM V1 pipeline")
    d.models(RUNNER, "GPUModelRunner.execute_model", "0.33.0")
    d.models("vllm/v1/engine/core.py", "EngineCore.step_with_batch_queue", "0.33.0")
    if unguarded is not None and not 0 <= unguarded < stages:
        raise ValueError(f"unguarded={unguarded} names no stage of {stages}")
    last = stages - 1
    rpc = [d.queue(f"rpc pp{r}", capacity=batch_queue_size, item=()) for r in range(stages)]
    hidden_states = [d.queue(f"hidden states pp{r}", capacity=batch_queue_size, item=(fp.EVENT,)) for r in range(last)]
    batch_queue = d.queue("batch_queue", capacity=batch_queue_size, item=())
    response = d.queue("response", capacity=batch_queue_size, item=())

    @d.loop("engine core")
    def engine() -> None:
        if d.choose("scheduler", ["batch", "nothing"]) == "batch":
            for worker_rpc in rpc:
                worker_rpc.put()
            batch_queue.put()
            if not batch_queue.full():
                return
        elif batch_queue.empty():
            return
        batch_queue.get()
        response.get()  # future.result() of the oldest batch

    def worker(rank: int, guarded: bool) -> None:
        main = d.stream(f"main pp{rank}")
        input_ids = d.pinned(f"input_ids pp{rank}")
        input_ids_gpu = d.device(f"input_ids_gpu pp{rank}")
        prepare_inputs_event = d.event(f"prepare_inputs_event pp{rank}")
        if rank == last:
            transfer_event = d.event("transfer_event")

        @d.loop(f"worker pp{rank}", stream=main)
        def step() -> None:
            rpc[rank].get()
            if rank > 0:
                arrived = hidden_states[rank - 1].get()  # metadata over the CPU group: waits for the peer's host
            if guarded:
                prepare_inputs_event.synchronize()
            input_ids.write()
            input_ids_gpu.copy_(input_ids, non_blocking=True)
            if guarded:
                prepare_inputs_event.record()
            if rank > 0:
                main.wait_event(arrived)  # the receive, on the device
            if rank < last:
                d.launch("forward", reads=[input_ids_gpu])
                sent = d.event("sent")
                sent.record()
                hidden_states[rank].put(sent)
                return
            d.launch("forward, sample, copy of the ids", reads=[input_ids_gpu])
            transfer_event.record()
            transfer_event.synchronize()  # _to_list: the host has caught up with this stage's stream
            response.put()

    for r in range(stages):
        worker(r, guard and r != unguarded)
    return d


@fp.variant(
    "before vllm#48901: an unfinished chunk returns without a wait",
    fp.REFUTED,
    hazard="WAR query_start_loc",
    fix="vllm#48901: every chunk ends with a device synchronisation",
    sync_unfinished=False,
)
@fp.variant("vllm#48901: every chunk ends with a device synchronisation", fp.PROVED, sync_unfinished=True)
def pooling(sync_unfinished: bool = False) -> fp.Design:
    """Pooling model with chunked prefill, one batch in flight, no async scheduling: vLLM #48214.

    The engine takes each result before it schedules again, and still the host runs ahead: the result of a chunk that
    finishes no request is built on the host, and the step returns without having waited (`sync_unfinished` adds the
    wait). So one batch in flight is no protection by itself.
    """
    d = fp.Design("vLLM V1 pooling")
    d.models(RUNNER, "GPUModelRunner._pool", "0.33.0")
    rpc = d.queue("rpc", capacity=1, item={"last chunk": (), "unfinished chunk": ()})
    response = d.queue("response", capacity=1, item=())
    query_start_loc = d.pinned("query_start_loc")
    query_start_loc_gpu = d.device("query_start_loc_gpu")
    pooled = d.device("pooler_output")
    pooled_cpu = d.pinned("pooler_output_cpu")

    @d.loop("engine core")
    def engine() -> None:
        rpc.put(tag=d.choose("chunk", ["last chunk", "unfinished chunk"]))
        response.get()

    @d.loop("worker", stream=d.stream("main"))
    def step() -> None:
        request = rpc.get()
        query_start_loc.write()
        query_start_loc_gpu.copy_(query_start_loc, non_blocking=True)
        d.launch("forward and pool", reads=[query_start_loc_gpu], writes=[pooled])
        if request.tag == "last chunk":
            pooled_cpu.copy_(pooled, non_blocking=True)
            d.synchronize()
            pooled_cpu.read()
        elif sync_unfinished:
            d.synchronize()
        response.put()

    return d


@fp.variant("async scheduling, 2 batches in flight", fp.PROVED)
@fp.variant(
    "before vllm#34866: the dummy step of an idle data-parallel rank takes no part in the guard",
    fp.REFUTED,
    hazard="WAR query_start_loc",
    fix="vllm#34866: the dummy step takes part in both ends of the guard",
    dummy="unguarded",
)
@fp.variant("vllm#34866: the dummy step takes part in both ends of the guard", fp.PROVED, dummy="guarded")
@fp.variant(
    "vllm#24527: the guard covers _prepare_inputs only",
    fp.REFUTED,
    hazard="WAR block_table",
    fix="vllm#25279: the guard covers _update_states too",
    scope="prepare inputs",
)
@fp.variant("vllm#25279: the guard covers _update_states too", fp.PROVED, scope="update states")
@fp.variant(
    "EAGLE in 0.33.0: backup_next_token_ids is written outside the guard",
    fp.REFUTED,
    hazard="WAR backup_next_token_ids",
    fix="EAGLE with an event of its own around backup_next_token_ids",
    drafter="unguarded",
)
@fp.variant("EAGLE with an event of its own around backup_next_token_ids", fp.PROVED, drafter="guarded")
def async_scheduling(
    dummy: Literal["none", "unguarded", "guarded"] = "none",
    scope: Literal["prepare inputs", "update states"] = "update states",
    drafter: Literal["none", "unguarded", "guarded"] = "none",
) -> fp.Design:
    """Async scheduling on one stage: two batches in flight, an output thread in the worker, the guard on.

    `dummy`: an engine without requests runs dummy steps to keep its data-parallel peers company, a blocking call
    whose reply waits for no device work. An unguarded one neither waits for the event nor records it, so the next
    step's wait returns at once, and that step or the next dummy refills the buffer under the dummy's copy (vLLM
    #34866).

    `scope`: what the guard encloses. `_update_states` writes block-table rows that `_prepare_inputs` copies first; a
    guard around `_prepare_inputs` alone waits when the row has already been overwritten (vLLM #24527, #25279).

    `drafter`: EAGLE and MTP fill `backup_next_token_ids` and copy it in `sample_tokens`, behind the guard's record.
    The event that the next step waits for covers this step's preparation but not this copy (vLLM #29288). The mended
    variant has an event of its own around it, as nothing upstream mends it yet.
    """
    d = fp.Design("vLLM V1 async scheduling")
    d.models(RUNNER, "GPUModelRunner.execute_model", "0.33.0")
    d.models(RUNNER, "AsyncGPUModelRunnerOutput", "0.33.0")
    in_flight = 2
    kinds: dict[str, tuple[str, ...]] = {"execute": (), "dummy": ()} if dummy != "none" else {"execute": ()}
    output_kinds: dict[str, tuple[str, ...]] = {"output": (fp.EVENT,)} | ({"host": ()} if dummy != "none" else {})
    # At most two batches and a dummy are under way, so that no queue but the engine's own ever makes anybody wait.
    rpc = d.queue("rpc", capacity=in_flight + 1, item=kinds)
    async_output_queue = d.queue("async_output_queue", capacity=in_flight + 1, item=output_kinds)
    response = d.queue("response", capacity=in_flight + 1, item=())
    batch_queue = d.queue("batch_queue", capacity=in_flight, item=())

    @d.loop("engine core")
    def engine() -> None:
        if d.choose("scheduler", ["batch", "nothing"]) == "batch":
            rpc.put(tag="execute")
            batch_queue.put()
            if not batch_queue.full():
                return
            batch_queue.get()
            response.get()
            return
        if not batch_queue.empty():  # one batch at most: a second one would have been popped when it was dispatched
            batch_queue.get()
            response.get()
        if dummy != "none":
            rpc.put(tag="dummy")
            response.get()

    main = d.stream("main")
    output_copy_stream = d.stream("output_copy_stream")
    query_start_loc = d.pinned("query_start_loc")
    query_start_loc_gpu = d.device("query_start_loc_gpu")
    block_table = d.pinned("block_table")
    block_table_gpu = d.device("block_table_gpu")
    prepare_inputs_event = d.event("prepare_inputs_event")
    if drafter != "none":
        backup = d.pinned("backup_next_token_ids")
        backup_gpu = d.device("backup_next_token_ids_gpu")
        backup_event = d.event("backup_event")

    def dummy_run() -> None:
        if dummy == "guarded":
            prepare_inputs_event.synchronize()
        query_start_loc.write()
        query_start_loc_gpu.copy_(query_start_loc, non_blocking=True)
        if dummy == "guarded":
            prepare_inputs_event.record()
        d.launch("dummy forward", reads=[query_start_loc_gpu])
        async_output_queue.put(tag="host")

    def propose() -> None:
        if drafter == "guarded":
            backup_event.synchronize()
        backup.write()
        backup_gpu.copy_(backup, non_blocking=True)
        if drafter == "guarded":
            backup_event.record()
        d.launch("propose", reads=[backup_gpu])

    @d.loop("worker", stream=main)
    def step() -> None:
        if rpc.get().tag == "dummy":
            dummy_run()
            return
        if scope == "update states":
            prepare_inputs_event.synchronize()
        block_table.write()  # _update_states
        if scope == "prepare inputs":
            prepare_inputs_event.synchronize()
        block_table_gpu.copy_(block_table, non_blocking=True)
        query_start_loc.write()
        query_start_loc_gpu.copy_(query_start_loc, non_blocking=True)
        prepare_inputs_event.record()
        d.launch("forward and sample", reads=[block_table_gpu, query_start_loc_gpu])
        if drafter != "none":
            propose()
        output_copy_stream.wait_stream(main)
        async_copy_ready_event = d.event("async_copy_ready_event")
        async_copy_ready_event.record(output_copy_stream)
        async_output_queue.put(async_copy_ready_event, tag="output")

    @d.loop("output thread")
    def get_output() -> None:
        output = async_output_queue.get()
        if output.tag == "output":
            (async_copy_ready_event,) = output
            async_copy_ready_event.synchronize()
        response.put()

    return d
