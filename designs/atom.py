"""ROCm/ATOM: side-stream device-to-host copies whose device source is dropped while the copy waits (ATOM #2654).

Everything is computed and allocated on the default stream; all device-to-host copies run on `async_copy_stream`. Output is
deferred: step N returns the tokens of step N-1, so the host schedules while one step runs. A copy's source that loses its
last reference goes back to the default stream's free list at once (S63), and the next tenant may be written before the copy
has read. The final fix holds each source beside the event that already ends its copy.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp

RUNNER = "atom/model_engine/model_runner.py"
VERIFY = "atom/spec_decode/dspark_verify.py"
REVISION = "ffdf3bb5"

IDS, LOGPROBS, STATUS, DRAFT, ELL = SOURCES = ("ids", "logprobs", "status", "draft", "ell")


def _but(*dropped: str) -> tuple[str, ...]:
    return tuple(source for source in SOURCES if source not in dropped)


class _Copies:
    """A list of pending copies `(event, landing buffers[, sources])`, at most one entry long, and how it is used.

    All the lists are filled by the first step that produces output and emptied by `clean()`, together with `prev_batch`;
    whether they hold anything is asked once per step, of `prev_token_ids`.
    """

    def __init__(self, d: fp.Design, name: str, sources: int, held: int) -> None:
        self.sources, self.held = sources, held
        self.queue = d.queue(name, capacity=1, item=(fp.EVENT,) + (fp.MEMORY,) * (sources + held))
        self.d = d

    def receive(self) -> None:
        """Pop the oldest, wait for its event, use what landed; what was held beside it goes when this returns."""
        with self.d.scope("recv_async_output"):
            copied, *tensors = self.queue.get()
            copied.synchronize()
            for landed in tensors[: self.sources]:
                landed.read()

    def forget(self) -> None:
        """Drop the entry and all its references without waiting."""
        with self.d.scope("clean"):
            self.queue.get()


@fp.variant("all sources held until their copy was waited for", fp.PROVED)
@fp.variant(
    "no holds, draft ids dropped at their use (main before #2654)",
    fp.REFUTED,
    hazard="WAR ids",
    fix="draft ids held, dropped at their use",
    held=(),
    draft_dropped="at its use",
)
@fp.variant(
    "ids not held",
    fp.REFUTED,
    hazard="WAR ids",
    fix="all sources held until their copy was waited for",
    held=_but(IDS),
)
@fp.variant(
    "logprobs not held",
    fp.REFUTED,
    hazard="WAR logprobs",
    fix="all sources held until their copy was waited for",
    held=_but(LOGPROBS),
)
@fp.variant(
    "status not held",
    fp.REFUTED,
    hazard="WAR verdict",
    fix="all sources held until their copy was waited for",
    held=_but(STATUS),
)
@fp.variant(
    "ell not held",
    fp.REFUTED,
    hazard="WAR ell",
    fix="all sources held until their copy was waited for",
    held=_but(ELL),
)
@fp.variant("draft ids not held, rebound next to the wait", fp.PROVED, held=_but(DRAFT))
@fp.variant(
    "draft ids not held, dropped at their use",
    fp.REFUTED,
    hazard="WAR draft",
    fix="draft ids held, dropped at their use",
    held=_but(DRAFT),
    draft_dropped="at its use",
)
@fp.variant("draft ids held, dropped at their use", fp.PROVED, draft_dropped="at its use")
@fp.variant("no spec decode: ids not held", fp.PROVED, spec=False, held=(LOGPROBS,))
@fp.variant(
    "no spec decode: logprobs not held",
    fp.REFUTED,
    hazard="WAR logprobs",
    fix="no spec decode: ids not held",
    spec=False,
    held=(IDS,),
)
@fp.variant("no holds, one hardware queue", fp.MASKED, environment="one-hardware-queue", held=())
@fp.variant("no holds, copies on the default stream", fp.PROVED, held=(), merged=True)
@fp.variant("record_stream on every source", fp.PROVED, held=(), recorded=SOURCES)
@fp.variant(
    "record_stream, first revision: ell missed",
    fp.REFUTED,
    hazard="WAR ell",
    fix="record_stream on every source",
    held=(),
    recorded=_but(ELL),
)
@fp.variant(
    "clean() forgets the handles",
    fp.REFUTED,
    hazard="WAR ids",
    fix="clean() waits for all, then drops",
    clean="forget",
    chunks=False,
)
@fp.variant("clean() waits for all, then drops", fp.PROVED, clean="drain", chunks=False)
@fp.variant(
    "no spec decode: clean() forgets the handles",
    fp.REFUTED,
    hazard="WAR ids",
    fix="no spec decode: clean() waits for all, then drops",
    spec=False,
    clean="forget",
)
@fp.variant("no spec decode: clean() waits for all, then drops", fp.PROVED, spec=False, clean="drain")
def deferred_output(
    spec: bool = True,
    held: tuple[str, ...] = SOURCES,
    recorded: tuple[str, ...] = (),
    draft_dropped: Literal["at the rebind", "at its use"] = "at the rebind",
    merged: bool = False,
    chunks: bool = True,
    clean: Literal["", "forget", "drain"] = "",
) -> fp.Design:
    """One step of `ModelRunner.forward` with its five sources of side-stream copies, each holdable and recordable.

    Where the last reference dies, and where the host waits for the copy:
    ids: with spec decode at the return of postprocess (the cell gets the gathered next ids), without it at the rebind in
    the next postprocess, just after the wait; logprobs: at the return, same wait; status: a view that keeps the whole
    verdict, at the return, waited for by the next step that produces output, so any number of middle chunks later; draft
    ids: at the rebind in the next step, immediately before the wait, with no allocation in between, or in a later form
    where the next input has been built from them (`draft_dropped`); ell: at the rebind in the next propose, one step
    before the wait.

    A step is a batch that produces output or (`chunks`) a chunk in the middle of a prefill, which returns behind the forward.
    `held` names the sources kept beside their copy's event, `recorded` those that get `record_stream`, `merged` issues the
    copies on the default stream, `clean` is `tokenIDProcessor.clean()` between two steps (decided without chunks, which
    only widen the windows that `clean` opens).
    """
    d = fp.Design("ATOM deferred output")
    d.models(RUNNER, "tokenIDProcessor", REVISION)
    side = d.stream("async_copy_stream")
    forward_done = d.event("forward_done")
    with_hold = {source: source in held for source in SOURCES}
    ids_copies = _Copies(d, "token_ids_cpu", 2, with_hold[IDS] + with_hold[LOGPROBS])
    prev_token_ids = d.cell("prev_token_ids", item=(fp.MEMORY,))
    if spec:
        status_copies = _Copies(d, "pending_mtp_status_copies", 1, with_hold[STATUS])
        draft_copies = _Copies(d, "draft_token_ids_cpu", 1, with_hold[DRAFT])
        draft_token_ids = d.cell("draft_token_ids", item=(fp.MEMORY,))
        last_ell = d.cell("_last_ell", item=(fp.MEMORY,))
        ell_item = (fp.EVENT, fp.MEMORY) + (fp.MEMORY,) * with_hold[ELL]
        newest_ell = d.cell("_ell_pending[-1]", item=ell_item)
        older_ell = d.cell("_ell_pending[-2]", item=ell_item)

    def to_host(sources: dict[str, fp.Tensor], ready: fp.Event | None) -> tuple[fp.Event | fp.Tensor, ...]:
        """Enqueue the copies of one entry; returns its event, landing buffers and held sources."""
        compute = d.current_stream()
        copies = compute if merged else side
        with copies:
            if ready is not None:
                copies.wait_event(ready)
            else:
                copies.wait_stream(compute)
            landed = []
            for name, source in sources.items():
                landed.append(source.to_cpu(non_blocking=True))
                if name in recorded:
                    source.record_stream(copies)
            copied = d.event("copy_done")
            copied.record()
        return (copied, *landed, *(source for name, source in sources.items() if with_hold[name]))

    def resolve_ell() -> None:
        """Adopt the ell of a fixed generation, two recordings back."""
        if not older_ell.empty():
            with d.scope("_resolve_ell"):
                copied, landed, *_ = older_ell.get()
                copied.synchronize()
                landed.read()

    def propose(next_ids: fp.Tensor, started: bool) -> None:
        ell = d.empty("ell")
        d.launch("compute_ell", reads=[next_ids], writes=[ell])
        last_ell.set(ell)  # set_last_ell: the previous ell loses this reference
        with d.scope("record_ell"):
            if not newest_ell.empty():
                older_ell.set(*newest_ell.get())
            newest_ell.set(*to_host({ELL: ell}, None))
        drafts = d.empty("draft")
        d.launch("propose", reads=[next_ids], writes=[drafts])
        draft_token_ids.set(drafts)  # prepare_draft_ids: rebinds, then pops and waits
        if started:
            draft_copies.receive()
        draft_copies.queue.put(*to_host({DRAFT: drafts}, None))

    def postprocess(hidden: fp.Tensor, started: bool) -> None:
        ids = d.empty("ids")
        if spec:
            verdict = d.empty("verdict")
            d.launch("rejection sampler", reads=[hidden], writes=[ids, verdict])
        else:
            d.launch("sampler", reads=[hidden], writes=[ids])
        logprobs = d.empty("logprobs")
        d.launch("logprobs", reads=[hidden, ids], writes=[logprobs])
        forward_done.record()
        if started:
            ids_copies.receive()
        ids_copies.queue.put(*to_host({IDS: ids, LOGPROBS: logprobs}, forward_done))
        prev_token_ids.set(ids)
        if spec:
            status_copies.queue.put(*to_host({STATUS: verdict.view()}, forward_done))
            next_ids = d.empty("next ids")
            d.launch("gather next ids", reads=[ids, verdict], writes=[next_ids])
            prev_token_ids.set(next_ids)
            propose(next_ids, started)

    def clean_up() -> None:
        if prev_token_ids.empty():
            return
        for copies in (ids_copies, status_copies, draft_copies) if spec else (ids_copies,):
            if clean == "drain":
                copies.receive()
            else:
                copies.forget()
        prev_token_ids.clear()
        if spec:
            draft_token_ids.clear()

    @d.loop("runner")
    def step() -> None:
        produces_output = not chunks or d.choose("batch", ["output", "middle chunk"]) == "output"
        if spec:
            resolve_ell()  # prepare_model: the q-bucket reads ell_by_req
        with d.scope("prepare_sample"):  # may allocate; a block that nothing had before is as good as none
            sampling = d.empty("sampling tensors")
            d.launch("fill sampling tensors", writes=[sampling])
        started = produces_output and not prev_token_ids.empty()
        if spec and started:
            status_copies.receive()
            if draft_dropped == "at its use":
                with d.scope("prepare_input_ids"):
                    d.launch("fill_deferred_decode_ids", reads=[draft_token_ids.take()])
        hidden = d.empty("hidden states")
        d.launch("forward", writes=[hidden])
        if produces_output:
            with d.scope("postprocess"):
                postprocess(hidden, started)
        hidden.release()
        if clean:
            with d.maybe("clean"):
                clean_up()

    return d


@fp.variant("pop, drop, synchronize adjacent", fp.PROVED)
@fp.variant(
    "an allocation between the drop and the synchronize",
    fp.REFUTED,
    hazard="WAR ids",
    fix="dropped after the synchronize",
    between="allocation",
)
@fp.variant(
    "another thread may allocate between them",
    fp.REFUTED,
    hazard="WAR ids",
    fix="dropped after the synchronize",
    between="another thread",
)
@fp.variant("dropped after the synchronize", fp.PROVED, drop="after synchronize", between="another thread")
@fp.variant(
    "dropped after the synchronize, an allocation before it",
    fp.PROVED,
    drop="after synchronize",
    between="allocation",
)
def release_at_pop(
    drop: Literal["at pop", "after synchronize"] = "at pop",
    between: Literal["nothing", "allocation", "another thread"] = "nothing",
) -> fp.Design:
    """The hold released when its handle is popped, before the wait for the copy: a fix without the waiting.

    Safe iff nothing can get the block between the drop and the wait. A second thread on the same default stream can.
    """
    d = fp.Design("ATOM release at pop")
    d.models(RUNNER, "tokenIDProcessor.recv_async_output", REVISION)
    compute, side = d.stream("default"), d.stream("async_copy_stream")
    handles = d.queue("token_ids_cpu", capacity=1, item=(fp.EVENT, fp.MEMORY))

    def allocate(name: str) -> None:
        with d.scope(name):
            block = d.empty(name)
            d.launch("fill " + name, writes=[block])

    @d.loop("runner", stream=compute)
    def step() -> None:
        allocate("hidden states")
        if not handles.empty():
            with d.scope("recv_async_output"):
                copied, source = handles.get()
                if drop == "at pop":
                    source.release()
                if between == "allocation":
                    allocate("scratch")
                copied.synchronize()
        with d.scope("postprocess"):
            ids = d.empty("ids")
            d.launch("sampler", writes=[ids])
            side.wait_stream(compute)
            with side:
                ids.to_cpu(non_blocking=True)
                copied = d.event("copy_done")
                copied.record()
            handles.put(copied, ids)

    if between == "another thread":

        @d.loop("other", stream=compute)
        def other() -> None:
            allocate("other tensor")

    return d


@fp.variant("every step resolves, 4 entries", fp.PROVED, resolves="every step")
@fp.variant("every step resolves, 2 entries", fp.PROVED, resolves="every step", entries=2)
@fp.variant(
    "every step resolves, 1 entry",
    fp.REFUTED,
    hazard="WAR ell",
    fix="every step resolves, 2 entries",
    resolves="every step",
    entries=1,
)
@fp.variant(
    "steps that do not resolve, evicted beyond 4 entries",
    fp.REFUTED,
    hazard="WAR ell",
    fix="steps that do not resolve, held beside the copy's event",
)
@fp.variant(
    "steps that do not resolve, evicted beyond 6 entries",
    fp.REFUTED,
    hazard="WAR ell",
    fix="steps that do not resolve, held beside the copy's event",
    entries=6,
)
@fp.variant(
    "every step resolves, but record_ell(None) clears the list",
    fp.REFUTED,
    hazard="WAR ell",
    fix="record_ell(None) clears the list, held beside the copy's event",
    resolves="every step",
    clears=True,
)
@fp.variant("steps that do not resolve, held beside the copy's event", fp.PROVED, evicts="after the wait")
@fp.variant(
    "record_ell(None) clears the list, held beside the copy's event", fp.PROVED, evicts="after the wait", clears=True
)
def ell_held_in_pending(
    entries: int = 4,
    resolves: Literal["every step", "some steps"] = "some steps",
    clears: bool = False,
    evicts: Literal["at once", "after the wait"] = "at once",
) -> fp.Design:
    """ell kept alive by its entry in `_ell_pending` only: dropping the entry does not cancel its copy.

    Entries are evicted beyond `entries`, and the setter or `record_ell(None)` clears the list (`clears`), both without a
    wait. If every step waits for the generation two back the copy lags by less than two steps and 2 entries are enough;
    once some kind of step does not, no number of entries is. The fix waits for an entry's event before it drops it.
    """
    d = fp.Design("ATOM _ell_pending")
    d.models(VERIFY, "VerifyScheduler.record_ell", REVISION)
    side = d.stream("async_copy_stream")
    last_ell = d.cell("_last_ell", item=(fp.MEMORY,))
    pending = d.queue("_ell_pending", capacity=entries + 1, item=(fp.EVENT, fp.MEMORY))
    newest = d.cell("_ell_pending[-1]", item=(fp.EVENT,))
    older = d.cell("_ell_pending[-2]", item=(fp.EVENT,))

    def drop_oldest() -> None:
        with d.scope("evict"):
            copied, _ = pending.get()
            if evicts == "after the wait":
                copied.synchronize()

    @d.loop("runner")
    def step() -> None:
        asks = resolves == "every step" or d.choose("step", ["resolves ell", "does not"]) == "resolves ell"
        if asks and not older.empty():
            older.get().synchronize()
        with d.scope("propose"):
            ell = d.empty("ell")
            d.launch("compute_ell", writes=[ell])
            last_ell.set(ell)
            compute = d.current_stream()
            side.wait_stream(compute)
            with side:
                ell.to_cpu(non_blocking=True)
                copied = d.event("ell copied")
                copied.record()
            if not newest.empty():
                older.set(newest.get())
            newest.set(copied)
            pending.put(copied, ell)
            if pending.full():
                drop_oldest()
            drafts = d.empty("draft")
            d.launch("propose", writes=[drafts])
        if clears:
            with d.maybe("record_ell(None)"):
                last_ell.clear()
                newest.clear()
                older.clear()
                for copied, _ in pending.drain():
                    if evicts == "after the wait":
                        copied.synchronize()

    return d


@fp.variant("the code: generation 2 of 4 slots, query and one-off buffer", fp.PROVED, depth=4, query=True)
@fp.variant("no query, every step resolves, 2 slots", fp.PROVED, depth=2, resolves="every step")
@fp.variant(
    "no query, every step resolves, 1 slot",
    fp.REFUTED,
    hazard="RAW ell_stage_ring",
    fix="no query, every step resolves, 2 slots",
    depth=1,
    resolves="every step",
)
@fp.variant("no query, steps that do not resolve, 2 slots, fixed generation", fp.PROVED, depth=2)
@fp.variant("no query, 4 entries outstanding in 4 slots, oldest adopted", fp.PROVED, depth=4, entries=4)
@fp.variant(
    "no query, 5 entries outstanding in 4 slots, oldest adopted",
    fp.REFUTED,
    hazard="RAW ell_stage_ring",
    fix="the code: generation 2 of 4 slots, query and one-off buffer",
    depth=4,
    entries=5,
)
@fp.variant(
    "no query, 7 entries outstanding in 6 slots, oldest adopted",
    fp.REFUTED,
    hazard="RAW ell_stage_ring",
    fix="the code: generation 2 of 4 slots, query and one-off buffer",
    depth=6,
    entries=7,
)
@fp.variant(
    "query and one-off buffer, 3 entries outstanding in 2 slots, oldest adopted",
    fp.REFUTED,
    hazard="RAW ell_stage_ring",
    fix="the code: generation 2 of 4 slots, query and one-off buffer",
    depth=2,
    entries=3,
    query=True,
)
def ell_landing_ring(
    depth: int = 4,
    entries: int = 2,
    query: bool = False,
    resolves: Literal["every step", "some steps"] = "some steps",
) -> fp.Design:
    """The pinned ring that ell lands in, its per-slot query and one-off buffer, and who reads which slot.

    All copies run on one stream, so two of them never write a slot at once; what can go wrong is that the host reads a
    slot into which a later copy was enqueued. Step kinds that do not resolve (`resolves`) matter only through the number
    of entries that may be outstanding when one is adopted: with `entries` kept, the oldest adopted, the slot is intact
    iff `depth` >= `entries`, so that a list without limit is unsafe at every depth. The code adopts a fixed
    generation, two recordings back (`entries` = 2), and needs two slots, with or without the query.

    Two statements about this ring that one meets are too coarse. "Unsafe at every depth without the query, as soon as some
    steps do not resolve": that holds for a list without limit; the fixed generation is safe with two slots. "Safe with the
    query": a query says that a slot's copy is done, not that the host has read it, so with more entries than slots the ring
    still races; the fixed generation is what makes it safe.
    """
    d = fp.Design("ATOM ell landing ring")
    d.models(VERIFY, "VerifyScheduler._ell_stage", REVISION)
    side = d.stream("async_copy_stream")
    ring = d.pinned("ell_stage_ring", depth=depth)
    index = d.cursor("_ell_stage_idx", depth)
    slot_event = d.cell("_ell_slot_event", depth=depth, item=(fp.EVENT,))
    kinds = {"slot": (fp.EVENT, fp.INDEX), "one-off": (fp.EVENT, fp.MEMORY)}
    if not query:
        del kinds["one-off"]
    pending = d.queue("_ell_pending", capacity=entries, item=kinds)

    def land(ell: fp.Tensor, target: fp.Tensor) -> fp.Event:
        side.wait_stream(d.current_stream())
        with side:
            target.copy_(ell, non_blocking=True)
            copied = d.event("ell copied")
            copied.record()
        ell.record_stream(side)
        return copied

    def adopt() -> None:
        with d.scope("_resolve_ell"):
            item = pending.get()
            if item.tag == "slot":
                copied, slot = item
                copied.synchronize()
                ring[slot].read()
            else:
                copied, buffer = item
                copied.synchronize()
                buffer.read()

    @d.loop("runner")
    def step() -> None:
        asks = resolves == "every step" or d.choose("step", ["resolves ell", "does not"]) == "resolves ell"
        if asks and pending.holds(2):
            adopt()
        with d.scope("record_ell"):
            ell = d.empty("ell")
            d.launch("compute_ell", writes=[ell])
            if resolves == "some steps" and pending.full():  # else one was adopted in this step
                pending.get()
            free = True
            if query:
                following = index.last() + 1
                free = slot_event[following].empty() or slot_event[following].get().query()
            if free:
                slot = index.advance()
                copied = land(ell, ring[slot])
                slot_event[slot].set(copied)
                pending.put(copied, slot, tag="slot")
            else:
                buffer = d.empty_pinned("one-off")
                pending.put(land(ell, buffer), buffer, tag="one-off")

    return d


@fp.variant(
    "no gate, middle chunks return without a wait",
    fp.REFUTED,
    hazard="WAR staging",
    fix="depth-1 gate",
)
@fp.variant(
    "no gate, middle chunks return without a wait, 8 sets",
    fp.REFUTED,
    hazard="WAR staging",
    fix="depth-1 gate",
    depth=8,
)
@fp.variant("depth-1 gate", fp.PROVED, gate=True)
@fp.variant("no gate, every step produces output, 2 sets", fp.PROVED, chunks=False, depth=2)
@fp.variant(
    "no gate, every step produces output, 1 set",
    fp.REFUTED,
    hazard="WAR staging",
    fix="no gate, every step produces output, 2 sets",
    chunks=False,
)
@fp.variant("no gate, every step waits for the last one's status first, 1 set", fp.PROVED, chunks=False, spec=True)
@fp.variant("pipeline: 4 sets, the slot's event waited for on rotation", fp.PROVED, depth=4, gate=True, pipeline=True)
@fp.variant(
    "depth-1 gate, dummy runs skip it", fp.REFUTED, hazard="WAR staging", fix="depth-1 gate", gate=True, dummies=True
)
def staging(
    depth: int = 1,
    gate: bool = False,
    pipeline: bool = False,
    chunks: bool = True,
    spec: bool = False,
    dummies: bool = False,
) -> fp.Design:
    """The pinned staging set of `prepare_model`, and the gate in front of it (`_gate_staging_reuse`).

    Steps that produce output wait in postprocess for the ids of the step before, by accident as far as staging goes; chunks
    in the middle of a prefill return before that, so the host's lead had no bound. The gate waits for the event recorded
    behind the previous preparation. Without chunks the deferred wait leaves two steps open, so 2 sets are needed, unless
    spec decode waits for the last step's status before it stages (`spec`). With pipeline parallelism (`pipeline`) there is
    a ring of sets with one event each, recorded at the end of the forward and waited for on rotation. Dummy runs
    skip gate and record; if they stage like any other step (`dummies`), they race with the chunk before.
    """
    d = fp.Design("ATOM staging")
    d.models(RUNNER, "ModelRunner._gate_staging_reuse", REVISION)
    side = d.stream("async_copy_stream")
    host = d.pinned("staging", depth=depth)
    on_device = d.device("forward_vars")
    enqueued = d.event("_stage_h2d_done", depth=depth)
    last_copy = d.cell("pending copy", item=(fp.EVENT,))
    kinds = ["output"] + ["middle chunk"] * chunks + ["dummy"] * dummies

    @d.loop("runner")
    def step(n: fp.Turn) -> None:
        kind = d.choose("batch", kinds) if len(kinds) > 1 else "output"
        real = kind != "dummy"
        if gate and real:
            enqueued[n].synchronize()
        if spec and kind == "output" and not last_copy.empty():
            last_copy.get().synchronize()
        host[n].write()
        on_device.copy_(host[n], non_blocking=True)
        if gate and real and not pipeline:
            enqueued[n].record()
        d.launch("forward", reads=[on_device])
        if gate and pipeline:
            enqueued[n].record()
        if kind == "output":
            with d.scope("postprocess"):
                copied = d.event("copy_done")
                side.wait_stream(d.current_stream())
                copied.record(side)
                if not last_copy.empty():
                    last_copy.get().synchronize()
                last_copy.set(copied)

    return d


@fp.variant("the code: a fixed generation, two recordings back", fp.PROVED)
@fp.variant("the code, 3 ranks", fp.PROVED, ranks=3)
@fp.variant(
    "whichever has landed",
    fp.PROVED,
    hang="collective mismatch tp rank 1 -> rank 0",
    fix="the code: a fixed generation, two recordings back",
    adopts="landed",
)
@fp.variant("rank 0 asks and tells the others", fp.PROVED, adopts="rank 0 says")
@fp.variant(
    "the fixed generation, adopted without waiting",
    fp.REFUTED,
    hazard="RAW ell 0",
    fix="the code: a fixed generation, two recordings back",
    waits=False,
)
def ell_across_ranks(
    ranks: int = 2, adopts: Literal["fixed", "landed", "rank 0 says"] = "fixed", waits: bool = True
) -> fp.Design:
    """Which ell a rank sizes its step by: a shape, on which the ranks of a tensor-parallel group must agree.

    Every rank copies the same ell, and a query of that copy is answered by each rank's own device (S24): where a step adopts
    whichever generation has landed, two ranks may adopt different ones, launch the forward with different shapes, and stand in
    its all-reduce for ever (seven ranks with 48 tokens and one with 24, says the comment in the code). The value of a step
    then depends on a query: the design is not determinate, and what decides it is `landed.query()`. A fixed generation
    whose copy is waited for is a decision that all ranks make alike; so is one rank's answer that it tells the others.
    The wait is what the determinacy costs: the fixed generation without it reads what may not have landed.
    """
    d = fp.Design("ATOM ell across ranks")
    d.models(VERIFY, "VerifyScheduler._resolve_ell", REVISION)
    names = [f"rank {r}" for r in range(ranks)]
    group = d.communicator("tp", names)
    told = {name: d.queue(f"generation for {name}", capacity=2, item={"newest": (), "older": ()}) for name in names[1:]}

    def rank(number: int, name: str) -> None:
        side = d.stream(f"async_copy_stream {number}")
        hidden, resolved = d.device(f"hidden states {number}"), d.event(f"resolved {number}", depth=2)
        landing, landed = d.pinned(f"ell {number}", depth=2), d.event(f"ell copied {number}", depth=2)
        device_ell = d.device(f"device ell {number}")

        @d.loop(f"runner {number}")
        def step(n: fp.Turn) -> None:
            generation = "older"  # recorded in step n - 2, in the slot that this step records into
            if adopts == "landed" or (adopts == "rank 0 says" and number == 0):
                generation = "newest" if landed[n - 1].query() else "older"
            if adopts == "rank 0 says":
                if number == 0:
                    for other in names[1:]:
                        told[other].put(tag=generation)
                else:
                    generation = told[name].get().tag
            if generation == "newest":
                if number > 0:
                    landed[n - 1].synchronize()  # another rank's query says nothing about this one's copy
                landing[n - 1].read(harm="shape")
            if waits:
                landed[n].synchronize()
            if generation == "older":
                landing[n].read(harm="shape")
            d.launch("forward", writes=[hidden])
            group.all_reduce(hidden, match=f"sized by the {generation} ell")
            d.current_stream().wait_stream(side)  # the source is held until its copy is done: another design's question
            d.launch("compute_ell", reads=[hidden], writes=[device_ell])
            side.wait_stream(d.current_stream())
            landing[n].copy_(device_ell, non_blocking=True, stream=side)
            landed[n].record(side)
            resolved[n - 1].synchronize()  # the deferred output of the step before
            resolved[n].record()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(number, name)
    return d
