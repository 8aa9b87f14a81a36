"""TensorRT-LLM's PyTorch backend: the overlap executor and the KV block-offset tables that it copies from.

One executor thread per rank. Sampling runs on the thread's default stream, everything of the forward on
`execution_stream`; the two wait for each other by turns, so that on the device prep(N), forward(N), sample(N), prep(N+1)
is one chain. On the host, iteration N launches forward(N) before it waits for the sampler of iteration N-1. Three waits
for the event recorded after the preparation of a forward were added one after the other: W1 at the top of the loop, W2
and W3 in its tail (NVIDIA/TensorRT-LLM #14128, #14674). #15849 proposes to remove them all.

Which of them may go depends on who writes the host's page table. The V1 manager fills it during the preparation; the V2
managers let C++ caches write rows of the live table at any time. Whether the waits can hang is `attention_data_parallel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import fencepost as fp

EXECUTOR = "tensorrt_llm/_torch/pyexecutor/py_executor.py"
REVISION = "0004396"
TABLE = "WAR host_kv_cache_block_offsets"


class _Executor:
    """What `_executor_loop_overlap` does for every manager: events, streams, forward, sampler."""

    def __init__(self, d: fp.Design, prep_depth: int) -> None:
        self.d = d
        self.execution = d.stream("execution_stream")
        self.prepared = d.cell("prep event", item=(fp.EVENT,))
        self.previous = d.cell("previous_batch", item=(fp.EVENT,))
        self.offsets = d.device("kv_cache_block_offsets")
        self.prep_depth = prep_depth
        if prep_depth:
            self.prep = d.pinned("prep buffers", depth=prep_depth)
            self.inputs = d.device("inputs")
        d.models(EXECUTOR, "PyExecutor._executor_loop_overlap", REVISION)

    def wait_last_prepared(self) -> None:
        """W1: the host waits for the previous iteration's preparation; in the first iteration there is no event."""
        if not self.prepared.empty():
            self.prepared.get().synchronize()

    def wait_prepared(self) -> None:
        """W2, W3: the host waits for the preparation of the forward that this iteration has launched."""
        self.prepared.get().synchronize()

    def forward_step(self, n: fp.Turn, copy_block_offsets: Callable[[], None]) -> None:
        """Step 5: `_prepare_inputs` fills host buffers and enqueues their copies, then the forward is launched."""
        d = self.d
        sampling = d.current_stream()
        self.execution.wait_stream(sampling)
        with self.execution:
            if self.prep_depth:
                self.prep[n].write()
                self.inputs.copy_(self.prep[n], non_blocking=True)
            copy_block_offsets()
            event = d.event("prepare_inputs")  # a new event object for every forward
            event.record()
            self.prepared.set(event)
            reads = [self.offsets, self.inputs] if self.prep_depth else [self.offsets]
            d.launch("forward", reads=reads)
        sampling.wait_stream(self.execution)

    def update_requests(self) -> None:
        """Step 6: the host waits until the previous iteration's sampler has copied its result."""
        if not self.previous.empty():
            self.previous.get().synchronize()

    def sample(self) -> fp.Event:
        """Step 9: `_sample_async` on the default stream."""
        self.d.launch("sample")
        sampled = self.d.event("sampler_event")
        sampled.record()
        return sampled


@fp.variant(
    "no event, table filled in place (before #14128 and #15546)",
    fp.REFUTED,
    hazard=TABLE,
    fix="W1 alone (#14128)",
)
@fp.variant("W1 alone (#14128)", fp.PROVED, w1=True, prep_depth=1)
@fp.variant("fresh snapshot, no waits (#15546 + #15849), the table only", fp.PROVED, snapshot=True, prep_depth=0)
@fp.variant(
    "fresh snapshot, no waits (#15546 + #15849), prep buffers not double buffered",
    fp.REFUTED,
    hazard="WAR prep buffers",
    fix="fresh snapshot, no waits (#15546 + #15849), prep buffers double buffered",
    snapshot=True,
    prep_depth=1,
)
@fp.variant(
    "fresh snapshot, no waits (#15546 + #15849), prep buffers double buffered", fp.PROVED, snapshot=True, prep_depth=2
)
@fp.variant(
    "one table in place, no waits",
    fp.REFUTED,
    hazard=TABLE,
    fix="two tables by turns instead of a snapshot, no waits",
    table_depth=1,
)
@fp.variant("two tables by turns instead of a snapshot, no waits", fp.PROVED, table_depth=2)
@fp.variant("three tables by turns instead of a snapshot, no waits", fp.PROVED, table_depth=3)
def v1_manager(w1: bool = False, snapshot: bool = False, table_depth: int = 1, prep_depth: int = 2) -> fp.Design:
    """`KVCacheManager` (V1): the persistent pinned table is written only inside the preparation.

    So W1 alone orders each refill behind the copy that still reads. Since #15546 the copy reads a fresh pinned snapshot:
    the caching host allocator hands its block out again only after the copy, as torch's `copy_` tells it (S54, S79, S80).
    That argument is about the table; any other persistent source of the preparation (`prep_depth` = 1) needs a wait, or
    two buffers by turns: the wait for the sampler of iteration N-1, in every iteration, proves preparation N-1 done
    before preparation N+1 starts. The same holds for two tables in place of the snapshot. `prep_depth` = 0 leaves the
    other preparation buffers out.
    """
    d = fp.Design("TensorRT-LLM, V1 KV cache manager")
    executor = _Executor(d, prep_depth)
    table = d.pinned("host_kv_cache_block_offsets", depth=table_depth)

    @d.loop("executor")
    def iteration(n: fp.Turn) -> None:
        if w1:
            executor.wait_last_prepared()

        def copy_batch_block_offsets() -> None:
            table[n].write()
            if not snapshot:
                executor.offsets.copy_(table[n], non_blocking=True)
                return
            with d.scope("_stage_block_offsets_for_copy"):
                staged = d.empty_pinned("block offsets snapshot")
                staged.copy_(table[n])  # host to host: done when the call returns (S49)
                executor.offsets.copy_(staged, non_blocking=True)

        executor.forward_step(n, copy_batch_block_offsets)
        executor.update_requests()
        executor.previous.set(executor.sample())

    return d


@fp.variant("W1 alone (#14128)", fp.REFUTED, hazard=TABLE, fix="W1 + W2 + W3 (#14674)", w1=True)
@fp.variant("W1 + W2 + W3 (#14674)", fp.PROVED, w1=True, w2=True, w3=True, prep_depth=1)
@fp.variant(
    "W2 dropped, iterations with an ADP dummy",
    fp.REFUTED,
    hazard=TABLE,
    fix="W1 + W2 + W3 (#14674)",
    w1=True,
    w3=True,
    context_update=False,
)
@fp.variant(
    "W2 dropped, iterations with a context update",
    fp.REFUTED,
    hazard=TABLE,
    fix="W1 + W2 + W3 (#14674)",
    w1=True,
    w3=True,
    adp_dummy=False,
)
@fp.variant(
    "W2 dropped, neither ADP dummy nor context update",
    fp.PROVED,
    w1=True,
    w3=True,
    adp_dummy=False,
    context_update=False,
)
@fp.variant("W3 dropped, nothing enqueued since W2", fp.PROVED, w1=True, w2=True)
@fp.variant(
    "W3 dropped, another preparation enqueued since W2",
    fp.REFUTED,
    hazard=TABLE,
    fix="W1 + W2 + W3, another preparation enqueued between W2 and W3",
    w1=True,
    w2=True,
    second_preparation=True,
)
@fp.variant(
    "W1 + W2 + W3, another preparation enqueued between W2 and W3",
    fp.PROVED,
    w1=True,
    w2=True,
    w3=True,
    second_preparation=True,
)
@fp.variant("W1 dropped beside W2 and W3", fp.PROVED, w2=True, w3=True, prep_depth=1)
@fp.variant("no waits (#15849)", fp.REFUTED, hazard=TABLE, fix="W1 + W2 + W3 (#14674)")
@fp.variant(
    "snapshots read by a raw gather kernel and dropped at return",
    fp.REFUTED,
    hazard="WAR block offsets snapshot",
    fix="snapshots held until the batch's sampler event",
    snapshot="raw kernel",
)
@fp.variant("snapshots held until the batch's sampler event", fp.PROVED, snapshot="raw kernel", hold="sampler event")
@fp.variant("snapshots copied by torch before the gather", fp.PROVED, snapshot="torch copy")
@fp.variant(
    "snapshots held to the prep event, one wait at the start of _prepare_inputs",
    fp.PROVED,
    snapshot="raw kernel",
    hold="prep event",
    wait_in_prepare=True,
    prep_depth=1,
)
@fp.variant(
    "snapshots held, no wait at all, prep buffers not double buffered",
    fp.REFUTED,
    hazard="WAR prep buffers",
    fix="snapshots held to the prep event, one wait at the start of _prepare_inputs",
    snapshot="raw kernel",
    hold="sampler event",
    prep_depth=1,
)
def v2_manager(
    w1: bool = False,
    w2: bool = False,
    w3: bool = False,
    wait_in_prepare: bool = False,
    snapshot: Literal["", "raw kernel", "torch copy"] = "",
    hold: Literal["", "sampler event", "prep event"] = "",
    adp_dummy: bool = True,
    context_update: bool = True,
    second_preparation: bool = False,
    prep_depth: int = 2,
) -> fp.Design:
    """`KVCacheManagerV2`: C++ caches write rows of the live pinned table whenever the host schedules or frees.

    A gather kernel reads the table and `copy_idx`, both persistent and pinned, in place (S107). W1 orders the rows that
    iteration N+1 schedules, W2 and W3 those that iteration N itself writes after it has launched forward(N): W2 the
    termination of the attention-DP dummy and context updates (`adp_dummy`, `context_update`), W3 the rows of requests
    that finished in iteration N-1. All three wait for the same event, so W3 is implied by W2 unless another preparation
    was enqueued in between (`second_preparation`, which nothing at this revision does), and W1 by W3.

    Per-row staging (`snapshot`: fresh pinned copies of the rows and of `copy_idx`) takes the table out of the race, but
    the host allocator does not see a raw kernel (S83): blocks dropped at return are handed out while the kernel reads.
    They must be held until an event behind the kernel has been waited for, or torch must copy them to the device first.
    The end state proposed in #15849: snapshots held, no wait in the loop, one at the start of `_prepare_inputs`.
    """
    d = fp.Design("TensorRT-LLM, V2 KV cache manager")
    executor = _Executor(d, prep_depth)
    table = d.pinned("host_kv_cache_block_offsets")
    copy_index = d.pinned("copy_idx")
    if snapshot == "torch copy":
        rows_on_device = d.device("staged block offsets")
        index_on_device = d.device("staged copy_idx")
    if hold == "prep event":
        held = d.cell("held snapshots", item=(fp.MEMORY, fp.MEMORY))
    if hold == "sampler event":
        batch = d.cell("snapshots of previous_batch", item=(fp.MEMORY, fp.MEMORY))

    @d.loop("executor")
    def iteration(n: fp.Turn) -> None:
        if w1:
            executor.wait_last_prepared()
        with d.maybe("schedule allocates, evicts or resumes"):
            table["request rows"].write()
        if adp_dummy:
            with d.maybe("pad with an ADP dummy"):
                table["dummy row"].write()
        kept: list[fp.Tensor] = []

        def copy_batch_block_offsets() -> None:
            copy_index.write()  # get_copy_index: one persistent slice, overwritten by the next call
            if not snapshot:
                d.launch("gather block offsets", reads=[table, copy_index], writes=[executor.offsets])
                return
            rows = d.empty_pinned("block offsets snapshot")
            index = d.empty_pinned("copy_idx snapshot")
            rows.copy_(table)
            index.copy_(copy_index)
            if snapshot == "torch copy":
                rows_on_device.copy_(rows, non_blocking=True)
                index_on_device.copy_(index, non_blocking=True)
                d.launch("gather block offsets", reads=[rows_on_device, index_on_device], writes=[executor.offsets])
            else:
                d.launch("gather block offsets", reads=[rows, index], writes=[executor.offsets])
            if hold == "prep event":
                held.set(rows, index)
            if hold == "sampler event":
                kept.extend((rows, index))
            else:
                rows.release()
                index.release()

        if wait_in_prepare:
            executor.wait_last_prepared()
            if hold == "prep event":
                held.clear()
        executor.forward_step(n, copy_batch_block_offsets)
        executor.update_requests()
        sampled = executor.sample()

        if w2:
            executor.wait_prepared()
        if adp_dummy:
            with d.maybe("terminate the ADP dummy"):
                table["dummy row"].write()  # BAD_PAGE_INDEX
        if context_update:
            with d.maybe("update context resources"):
                table["request rows"].write()
        if second_preparation:
            with executor.execution:
                d.launch("gather again", reads=[table, copy_index], writes=[executor.offsets])
                again = d.event("second prepare_inputs")
                again.record()
                executor.prepared.set(again)
        if w3:
            executor.wait_prepared()
        with d.maybe("requests of the previous iteration finished"):
            table["request rows"].write()
        executor.previous.set(sampled)
        if hold == "sampler event":
            batch.set(*kept)  # the previous batch's snapshots go: its sampler event was waited for in step 6

    return d


@fp.variant("no waits (#15849)", fp.REFUTED, hazard=TABLE, fix="W1 + W2 + W3 (#14674)")
@fp.variant("W1 alone (#14128)", fp.REFUTED, hazard=TABLE, fix="W1 + W2 + W3 (#14674)", w1=True)
@fp.variant("W1 + W2 + W3 (#14674)", fp.PROVED, w1=True, w2=True, w3=True)
def dsv4_manager(w1: bool = False, w2: bool = False, w3: bool = False) -> fp.Design:
    """DSv4's manager in its newer form: asynchronous copies of the whole live table, of `copy_idx` and of scratch slots.

    `get_copy_index` runs several times per step, always for the same requests, so that rewriting `copy_idx` behind the
    first copy of a step repeats its bytes: an overlap that no reader can see, unlike that with the next step's.
    """
    d = fp.Design("TensorRT-LLM, DSv4 KV cache manager")
    executor = _Executor(d, prep_depth=0)
    table = d.pinned("host_kv_cache_block_offsets")
    copy_index = d.pinned("copy_idx")
    scratch = d.pinned("scratch begin, end, slot")
    table_on_device = d.device("staged block offsets")
    sliding_on_device = d.device("staged copy_idx, sliding")
    compress_on_device = d.device("staged copy_idx, compress")
    scratch_on_device = d.device("staged scratch")

    @d.loop("executor")
    def iteration(n: fp.Turn) -> None:
        if w1:
            executor.wait_last_prepared()
        with d.maybe("schedule allocates, evicts or resumes"):
            table["request rows"].write()

        def copy_batch_block_offsets() -> None:
            copy_index.write()
            sliding_on_device.copy_(copy_index, non_blocking=True)
            table_on_device.copy_(table, non_blocking=True)
            scratch.write()  # zeroed and refilled per call
            scratch_on_device.copy_(scratch, non_blocking=True)
            copy_index.write(same_bytes=True)
            compress_on_device.copy_(copy_index, non_blocking=True)
            d.launch(
                "compute block tables",
                reads=[table_on_device, sliding_on_device, compress_on_device, scratch_on_device],
                writes=[executor.offsets],
            )

        executor.forward_step(n, copy_batch_block_offsets)
        executor.update_requests()
        sampled = executor.sample()
        if w2:
            executor.wait_prepared()
        with d.maybe("terminate the ADP dummy"):
            table["dummy row"].write()
        if w3:
            executor.wait_prepared()
        with d.maybe("requests of the previous iteration finished"):
            table["request rows"].write()
        executor.previous.set(sampled)

    return d


@fp.variant("as reported, with the event waits", fp.PROVED)
@fp.variant("as reported, without the event waits", fp.PROVED, waits=False)
@fp.variant(
    "a rank skips launches by itself, with the event waits",
    fp.PROVED,
    hang="deadlock experts rank 0 -> rank 1",
    ranks=2,
    skip="each rank",
)
@fp.variant(
    "a rank skips launches by itself, without the event waits",
    fp.PROVED,
    hang="deadlock experts rank 0 -> rank 1",
    ranks=2,
    skip="each rank",
    waits=False,
)
@fp.variant("a rank skips one launch by itself, with the event waits", fp.PROVED, ranks=2, skip="once")
@fp.variant("the ranks skip a launch together", fp.PROVED, ranks=2, skip="together")
@fp.variant(
    "another order inside the graph, with the event waits",
    fp.PROVED,
    hang="deadlock experts rank 1 -> rank 0",
    ranks=2,
    order="differs",
)
@fp.variant(
    "another order inside the graph, without the event waits",
    fp.PROVED,
    hang="deadlock experts rank 1 -> rank 0",
    ranks=2,
    order="differs",
    waits=False,
)
@fp.variant("the forward waits for the end of its own iteration", fp.PROVED, ranks=2, device_wait="forward")
@fp.variant(
    "the forward waits for the end of the next iteration, with the event waits",
    fp.PROVED,
    hang="deadlock released rank 0",
    never=("cellclear", "released rank 0.store", "released rank 1.store"),
    ranks=2,
    device_wait="forward, released late",
)
@fp.variant(
    "the forward waits for the end of the next iteration, without the event waits",
    fp.PROVED,
    hang="deadlock released rank 0",
    never=("cellclear", "released rank 0.store", "released rank 1.store"),
    ranks=2,
    device_wait="forward, released late",
    waits=False,
)
@fp.variant(
    "the preparation waits for the end of its own iteration, with the event waits",
    fp.PROVED,
    hang="deadlock released rank 1",
    never=("released rank 0.store", "released rank 1.store"),
    fix="the preparation waits for the end of its own iteration, without the event waits",
    ranks=2,
    device_wait="preparation",
)
@fp.variant(
    "the preparation waits for the end of its own iteration, without the event waits",
    fp.PROVED,
    ranks=2,
    device_wait="preparation",
    waits=False,
)
def attention_data_parallel(
    ranks: int = 4,
    waits: bool = True,
    skip: Literal["", "together", "once", "each rank"] = "",
    order: Literal["same", "differs"] = "same",
    device_wait: Literal["", "forward", "forward, released late", "preparation"] = "",
) -> fp.Design:
    """The claim that the event waits hang (nvbug 6402058): ranks with attention data parallelism, graphs, and the overlap loop.

    Each iteration rank 0 broadcasts requests on the host, batch sizes are gathered on the host, the forward holds
    collectives, responses are gathered on the host. `waits` are W1 to W3. No cycle: W2 and W3 of iteration N wait for
    preparation N, which stands behind sample N-1 and in front of forward N; the wait for the sampler of N-1, which every
    iteration makes anyway, stands between them. So what they wait for and that wait does not is preparation N alone, and all
    ranks have launched forward N-1 before any of them comes out of the gathering of iteration N.

    The ingredients that one might add, each with and without the waits: a rank that skips launches by itself (two: with
    one its peers are a launch ahead for ever, and go on); another order of collectives inside one rank's graph; a forward that
    waits for what its host releases in the next iteration. These hang without the event waits too, in the wait for the
    sampler. Only in the last one is it the event wait that completes the cycle: something in the *preparation* that the
    same host releases later in the iteration, as a transfer would be that the tail of the loop starts.
    """
    d = fp.Design("TensorRT-LLM, attention data parallelism")
    d.models(EXECUTOR, "PyExecutor._executor_loop_overlap", REVISION)
    names = [f"rank {r}" for r in range(ranks)]
    world, experts = d.communicator("world", names), d.communicator("experts", names)

    def rank(name: str) -> None:
        execution = d.stream(f"execution_stream {name}")
        table, offsets = d.pinned(f"block offsets {name}", depth=2), d.device(f"block offsets on {name}")
        hidden = d.device(f"hidden states {name}")
        prepared, previous = (
            d.cell(f"prep event {name}", item=(fp.EVENT,)),
            d.cell(f"previous_batch {name}", item=(fp.EVENT,)),
        )
        signal = d.device_flag(f"released {name}") if device_wait else None
        late = d.cell(f"to be released by {name}", item=()) if device_wait == "forward, released late" else None

        def forward(moves: bool) -> None:
            if signal is not None and moves and device_wait != "preparation":
                execution.wait_value(signal, 1, reset=True)
            d.launch("attention", reads=[offsets], writes=[hidden])
            groups = (experts, world) if order == "same" or name != names[-1] else (world, experts)
            for group in groups:
                group.all_reduce(hidden)

        def forward_step(n: fp.Turn, moves: bool) -> None:
            sampling = d.current_stream()
            execution.wait_stream(sampling)
            with execution:
                table[n].write()
                if signal is not None and moves and device_wait == "preparation":
                    execution.wait_value(signal, 1, reset=True)
                offsets.copy_(table[n], non_blocking=True)
                event = d.event("prepare_inputs")
                event.record()
                prepared.set(event)
                forward(moves)
            sampling.wait_stream(execution)

        def wait_prepared(sure: bool) -> None:
            if waits and (sure or not prepared.empty()):
                prepared.get().synchronize()

        @d.loop(name)
        def iteration(n: fp.Turn) -> None:
            wait_prepared(False)  # W1
            world.host_broadcast(root=names[0])
            can_queue = True
            if skip == "together":
                can_queue = d.choose("can_queue", ["yes", "no"], agreed=True) == "yes"
            elif skip == "once" and name == names[-1]:
                can_queue = n != 0
            elif skip == "each rank":
                can_queue = d.choose(f"can_queue of {name}", ["yes", "no"]) == "yes"
            world.host_barrier()  # the gathering of batch sizes
            moves = bool(device_wait) and d.choose("experts move", ["no", "yes"], agreed=True) == "yes"
            if can_queue:
                forward_step(n, moves)
            if not previous.empty():
                previous.take().synchronize()  # _update_requests
            world.host_gather(root=names[0])
            if can_queue:
                d.launch("sample", reads=[hidden])
                sampled = d.event("sampler_event")
                sampled.record()
                previous.set(sampled)
            wait_prepared(can_queue)  # W2, W3
            if signal is not None and late is not None:
                if not late.empty():
                    late.clear()
                    signal.store(1)
                if moves:
                    late.set()
            elif signal is not None and moves:
                signal.store(1)

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name)
    return d
