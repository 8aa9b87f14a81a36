"""The theorems about depths as small designs, each with its parameters free: what `fencepost condition` decides for all values.

The engines beside this file hold the loops as they are in the systems; where a theorem needs a parameter that no engine
has (how many takes a step, which take the late reader uses, how far back a wait looks), the loop is written here with
nothing else around it. docs/proofs.md lists the conditions as they were proved.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant("one take, 2 outstanding, 2 slots", fp.PROVED, depth=2, takes=1, outstanding=2)
@fp.variant("3 takes, 2 outstanding, 6 slots", fp.PROVED, depth=6, takes=3, outstanding=2)
@fp.variant(
    "3 takes, 2 outstanding, 5 slots",
    fp.REFUTED,
    hazard="WAR slot",
    fix="3 takes, 2 outstanding, 6 slots",
    depth=5,
    takes=3,
    outstanding=2,
)
@fp.variant("3 takes, 2 outstanding, reader of the first take behind the event, 9 slots", fp.PROVED, depth=9, takes=3, outstanding=2, late_reader="first take")
@fp.variant(
    "3 takes, 2 outstanding, reader of the first take behind the event, 8 slots",
    fp.REFUTED,
    hazard="WAR slot",
    fix="3 takes, 2 outstanding, reader of the first take behind the event, 9 slots",
    depth=8,
    takes=3,
    outstanding=2,
    late_reader="first take",
)
@fp.variant("3 takes, 2 outstanding, reader of the last take behind the event, 7 slots", fp.PROVED, depth=7, takes=3, outstanding=2, late_reader="last take")
@fp.variant(
    "3 takes, 2 outstanding, reader of the last take behind the event, 6 slots",
    fp.REFUTED,
    hazard="WAR slot",
    fix="3 takes, 2 outstanding, reader of the last take behind the event, 7 slots",
    depth=6,
    takes=3,
    outstanding=2,
    late_reader="last take",
)
def pool(
    depth: int = 2, takes: int = 1, outstanding: int = 2,
    late_reader: Literal["none", "first take", "last take"] = "none",
) -> fp.Design:  # fmt: skip
    """A pool of `depth` pinned slots of which a step takes `takes`, with `outstanding` results that may be unknown.

    Safe iff `depth` >= `takes` * `outstanding`. A kernel behind the event that resolves the step, which reads a slot once
    more, is only covered by the next step's event: safe iff `depth` >= `takes` * (`outstanding` + 1) when that is the
    step's first slot, and iff `depth` >= `takes` * `outstanding` + 1 when it is its last.
    """
    d = fp.Design("pool")
    slots = d.pinned("slot", depth=depth)
    position = d.cursor("position", depth)
    results = d.queue("results", capacity=outstanding, item=(fp.EVENT,))

    @d.loop("engine")
    def step() -> None:
        first = last = position.advance()
        slots[first].write()
        d.launch("gather", reads=[slots[first]])
        for _ in range(takes - 1):
            last = position.advance()
            slots[last].write()
            d.launch("gather", reads=[slots[last]])
        done = d.event("done")
        done.record()
        if late_reader != "none":
            d.launch("propose", reads=[slots[first if late_reader == "first take" else last]])
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant("2 takes with a wait between them, 2 outstanding, 2 slots", fp.PROVED, depth=2)
@fp.variant(
    "2 takes with a wait between them, 2 outstanding, 1 slot",
    fp.REFUTED,
    hazard="WAR slot",
    fix="2 takes with a wait between them, 2 outstanding, 2 slots",
    depth=1,
)
@fp.variant("2 takes with a wait between them, 5 outstanding, 2 slots", fp.PROVED, depth=2, outstanding=5)
@fp.variant("2 takes without a wait between them, 2 outstanding, 4 slots", fp.PROVED, depth=4, waits=False)
@fp.variant(
    "2 takes without a wait between them, 2 outstanding, 3 slots",
    fp.REFUTED,
    hazard="WAR slot",
    fix="2 takes without a wait between them, 2 outstanding, 4 slots",
    depth=3,
    waits=False,
)
def wait_between_takes(depth: int = 2, outstanding: int = 2, waits: bool = True) -> fp.Design:
    """Two takes a step with a wait for the stream between them (video pruning in vLLM's V2 runner): 2 slots are enough."""
    d = fp.Design("wait between takes")
    slots = d.pinned("slot", depth=depth)
    position = d.cursor("position", depth)
    results = d.queue("results", capacity=outstanding, item=(fp.EVENT,))

    @d.loop("engine")
    def step() -> None:
        one = position.advance()
        slots[one].write()
        d.launch("gather", reads=[slots[one]])
        if waits:
            d.current_stream().synchronize()
        other = position.advance()
        slots[other].write()
        d.launch("gather", reads=[slots[other]])
        done = d.event("done")
        done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant("one outstanding, every return path waits", fp.PROVED)
@fp.variant(
    "2 outstanding, every return path waits",
    fp.REFUTED,
    hazard="WAR input_ids",
    fix="one outstanding, every return path waits",
    outstanding=2,
)
@fp.variant(
    "one outstanding, one return path does not wait",
    fp.REFUTED,
    hazard="WAR input_ids",
    fix="one outstanding, every return path waits",
    every_path_waits=False,
)
def unguarded(outstanding: int = 1, every_path_waits: bool = True) -> fp.Design:
    """vLLM's V1 runner without its guard: one pinned buffer, refilled every step, with the results as the only wait.

    Safe iff one result at most is outstanding *and* every kind of step waits for the device before it returns.
    """
    d = fp.Design("unguarded")
    input_ids = d.pinned("input_ids")
    input_ids_gpu = d.device("input_ids_gpu")
    results = d.queue("batch_queue", capacity=outstanding, item=(fp.EVENT,))

    @d.loop("worker")
    def step() -> None:
        input_ids.write()
        input_ids_gpu.copy_(input_ids, non_blocking=True)
        d.launch("forward", reads=[input_ids_gpu])
        done = d.event("done")
        if every_path_waits or d.choose("step", ["sampling", "returns early"]) == "sampling":
            done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant("2 streams, 2 slots", fp.PROVED, depth=2)
@fp.variant("2 streams, 3 slots", fp.REFUTED, hazard="WAW batch", fix="2 streams, 4 slots", depth=3)
@fp.variant("2 streams, 4 slots", fp.PROVED, depth=4)
@fp.variant("3 streams, 6 slots", fp.PROVED, depth=6, streams=3)
@fp.variant("3 streams, 4 slots", fp.REFUTED, hazard="WAR batch", fix="3 streams, 6 slots", depth=4, streams=3)
def rotation(depth: int = 2, streams: int = 2) -> fp.Design:
    """Streams in rotation, S[n % `streams`], and nothing that orders one with another.

    A slot's next writer must be on the stream of its last reader: safe iff `depth` is a multiple of `streams`. More is
    not better: 3 slots race where 2 do not.
    """
    d = fp.Design("rotation")
    batch = d.device("batch", depth=depth)
    lanes = d.stream("lane", depth=streams)

    @d.loop("engine")
    def step(n: fp.Turn) -> None:
        with lanes[n]:
            d.launch("fill", writes=[batch[n]])
            d.launch("use", reads=[batch[n]])

    return d


@fp.variant("2 streams, 3 outstanding, 3 slots", fp.PROVED, depth=3, outstanding=3)
@fp.variant("2 streams, 4 outstanding, 2 slots", fp.PROVED, depth=2, outstanding=4)
@fp.variant(
    "2 streams, 4 outstanding, 3 slots",
    fp.REFUTED,
    hazard="WAR batch",
    fix="2 streams, 3 outstanding, 3 slots",
    depth=3,
    outstanding=4,
)
def rotation_with_results(depth: int = 2, outstanding: int = 2, streams: int = 2) -> fp.Design:
    """Streams in rotation whose results are waited for: `depth` >= `outstanding`, or a multiple of `streams`."""
    d = fp.Design("rotation with results")
    batch = d.device("batch", depth=depth)
    lanes = d.stream("lane", depth=streams)
    results = d.queue("results", capacity=outstanding, item=(fp.EVENT,))

    @d.loop("engine")
    def step(n: fp.Turn) -> None:
        with lanes[n]:
            d.launch("fill", writes=[batch[n]])
            d.launch("use", reads=[batch[n]])
            done = d.event("done")
            done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant("generation 2, 2 slots", fp.PROVED, depth=2, generation=2)
@fp.variant("generation 2, 1 slot", fp.REFUTED, hazard="RAW ell", fix="generation 2, 2 slots", depth=1, generation=2)
@fp.variant("generation 3, 4 slots", fp.PROVED, depth=4, generation=3)
def ell_ring(depth: int = 4, generation: int = 2) -> fp.Design:
    """ATOM's landing ring for ell: the host adopts the copy of `generation` steps before, whose event it waits for.

    It reads the slot before this step's copy is enqueued, so the ring is safe iff `depth` >= `generation`.
    """
    d = fp.Design("ell ring")
    ell = d.device("ell on the device")
    ring = d.pinned("ell", depth=depth)
    copied = d.event("ell copied", depth=generation)
    side = d.stream("async_copy_stream")

    @d.loop("runner")
    def step(n: fp.Turn) -> None:
        copied[n].synchronize()  # recorded `generation` steps ago
        ring[n - generation].read()
        d.launch("compute ell", writes=[ell])
        side.wait_stream(d.current_stream())
        with side:
            ring[n].copy_(ell, non_blocking=True)
            copied[n].record()
        d.current_stream().wait_stream(side)

    return d


@fp.variant("W1: at the top, the last iteration's event", fp.PROVED)
@fp.variant(
    "at the top, the event of two iterations before",
    fp.REFUTED,
    hazard="WAR page table",
    fix="W1: at the top, the last iteration's event",
    lag=2,
)
@fp.variant("W2, W3: in the tail, this iteration's event", fp.PROVED, lag=0, writes="in the tail")
@fp.variant(
    "W1 alone: writes in the tail, the last iteration's event",
    fp.REFUTED,
    hazard="WAR page table",
    fix="W2, W3: in the tail, this iteration's event",
    writes="in the tail",
)
@fp.variant("writes in the tail, the last iteration's event, two tables", fp.PROVED, depth=2, writes="in the tail")
def page_table(depth: int = 1, lag: int = 1, writes: Literal["at the top", "in the tail"] = "at the top") -> fp.Design:
    """The waits W1, W2 and W3 of TensorRT-LLM: before the host writes the table it waits for the preparation event of
    `lag` iterations before.

    Writes at the top of an iteration (the schedule): safe iff `depth` >= `lag`, so W1 (`lag` = 1) protects one live table.
    Writes in the tail, after this iteration's gather was launched (requests that finished): safe iff `depth` >= `lag` + 1,
    so one live table needs the event of this very iteration (W2, W3: `lag` = 0), and W1 does not help.
    """
    d = fp.Design("page table")
    table = d.pinned("page table", depth=depth)
    offsets = d.device("block offsets")
    prepared = d.event("prepared", depth=lag + 1)

    @d.loop("executor")
    def iteration(n: fp.Turn) -> None:
        if writes == "at the top":
            prepared[n - lag].synchronize()
            table[n].write()
        d.launch("gather block offsets", reads=[table[n]], writes=[offsets])
        prepared[n].record()
        d.launch("forward", reads=[offsets])
        if writes == "in the tail":
            prepared[n - lag].synchronize()
            table[n + 1].write()

    return d
