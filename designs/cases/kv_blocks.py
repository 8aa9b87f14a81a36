"""Class G: KV blocks and scheduler tables are reused too early.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant(
    "before: freed on the scheduled counter",
    fp.REFUTED,
    hazard="WAR block",
    fix="after: freed on what is computed",
    frees="scheduled",
)
@fp.variant("after: freed on what is computed", fp.PROVED, frees="computed")
def case_40_vllm_47728(in_flight: int = 3, frees: Literal["scheduled", "computed"] = "scheduled") -> fp.Design:
    """Case 40, vllm-project/vllm#47728: a block leaves the window by the counter of scheduled tokens.

    A model of the reported mechanism. It exists because the counter runs ahead of the device by the steps in flight: the
    block that step n frees is still read by step n - 1. Counted on what is computed, it is freed with that step's result.
    """
    d = fp.Design("vllm#47728")
    blocks = d.pool("block", size=in_flight + 2, of="device")
    load = d.stream("load")
    host_kv = d.pinned("host kv")
    window = d.cell("window", item=(fp.MEMORY,))
    results = d.queue("results", capacity=in_flight, item=(fp.EVENT, fp.MEMORY))
    plain = d.queue("results without block", capacity=in_flight, item=(fp.EVENT,))

    @d.loop("scheduler")
    def step() -> None:
        block = blocks.take()
        block.copy_(host_kv, non_blocking=True, stream=load)
        d.current_stream().wait_stream(load)
        d.launch("attention", reads=[block])
        done = d.event("done")
        done.record()
        if frees == "scheduled":
            if not window.empty():
                old = window.take()
                blocks.give(old)
            window.set(block)
            plain.put(done)
            if plain.full():
                plain.get().synchronize()
        else:
            results.put(done, block)
            if results.full():
                finished, old = results.get()
                finished.synchronize()
                blocks.give(old)

    return d


@fp.variant(
    "before: no order between compute and store",
    fp.REFUTED,
    hazard="RAW block",
    fix="after: the store waits",
    order="nothing",
)
@fp.variant(
    "the copy's source attribute changed",
    fp.REFUTED,
    hazard="RAW block",
    fix="after: the store waits",
    order="attribute",
)
@fp.variant("after: the store waits", fp.PROVED, order="event")
def case_41_vllm_46278(order: Literal["nothing", "attribute", "event"] = "nothing") -> fp.Design:
    """Case 41, vllm-project/vllm#46278 (bug #45704): the KV store reads a block before the kernel wrote it.

    A model of the reported mechanism. It exists because marking a block as computed is bookkeeping of the host, which
    orders nothing, and because an attribute of the copy (how the source is accessed) is no edge either.
    """
    d = fp.Design("vllm#46278")
    block, saved = d.device("block"), d.pinned("saved")
    store = d.stream("store")
    computed = d.flag("block is computed")

    @d.loop("scheduler")
    def step() -> None:
        d.current_stream().wait_stream(store)
        d.launch("attention", writes=[block])
        computed.set()
        if order == "event":
            store.wait_stream(d.current_stream())
        if order == "attribute":
            d.memcpy_async(saved, block, stream=store)
        else:
            saved.copy_(block, non_blocking=True, stream=store)

    return d


@fp.variant(
    "before: the load waits for nothing",
    fp.REFUTED,
    hazard="WAR block",
    fix="after: the load waits on the device",
    order="nothing",
)
@fp.variant("after: the load waits on the device", fp.PROVED, order="device")
@fp.variant("after: the free waits on the host", fp.PROVED, order="host")
def case_42_vllm_47282(order: Literal["nothing", "device", "host"] = "nothing") -> fp.Design:
    """Case 42, vllm-project/vllm#47282: after case 41 the other direction, load over a block that is still read.

    A model of the reported mechanism. It exists because a fix of one direction leaves its mirror image; either a wait of
    the load stream or a deferred free suffices, and the first does not hold the host.
    """
    d = fp.Design("vllm#47282")
    blocks = d.pool("block", size=1, of="device")
    saved, load = d.pinned("saved"), d.stream("load")

    @d.loop("scheduler")
    def step() -> None:
        block = blocks.take()
        if order == "device":
            load.wait_stream(d.current_stream())
        block.copy_(saved, non_blocking=True, stream=load)
        d.current_stream().wait_stream(load)
        d.launch("attention", reads=[block])
        done = d.event("computed")
        done.record()
        if order == "host":
            done.synchronize()
        blocks.give(block)

    return d


@fp.variant(
    "before: the acknowledgement means received",
    fp.REFUTED,
    hazard="WAW block",
    fix="after: acknowledged when quiet",
    ack="received",
)
@fp.variant("after: acknowledged when quiet", fp.PROVED, ack="quiet")
def case_44_sglang_31357(ack: Literal["received", "quiet"] = "received") -> fp.Design:
    """Case 44, sgl-project/sglang#31357 (cf. #24580): an abort is acknowledged before the transfers are quiet.

    A model of the reported mechanism. It exists because a maintainer doubted that the race is real: the printed run is the
    interleaving. The network agent is a stream that nobody orders; prefill and decode are two threads here, for two
    processes that share nothing but messages and the block.
    """
    d = fp.Design("sglang#31357")
    block = d.device("block")
    nic = d.stream("NIC")
    requests = d.queue("requests", capacity=1, item=())
    acks = d.queue("acknowledgements", capacity=1, item=())

    @d.loop("prefill")
    def transfer() -> None:
        requests.get()
        d.launch("RDMA write", writes=[block], stream=nic)
        if ack == "quiet":
            nic.synchronize()
        acks.put()

    @d.loop("decode")
    def abort_and_reuse() -> None:
        requests.put()
        acks.get()
        d.launch("next request", writes=[block])
        d.launch("attention of the next request", reads=[block])
        d.synchronize()

    return d


@fp.variant(
    "before: load-back and forward unordered",
    fp.REFUTED,
    hazard="RAW block",
    fix="after: the forward waits",
    order=False,
)
@fp.variant("after: the forward waits", fp.PROVED, order=True)
def case_c18_sglang_36738(order: bool = False) -> fp.Design:
    """Case C-18, sgl-project/sglang#36738: a load-back of KV from the host is unordered with the forward that reads it.

    A model of the reported mechanism. It exists because the load runs on a stream of its own.
    """
    d = fp.Design("sglang#36738")
    block, host_kv, load = d.device("block"), d.pinned("host kv"), d.stream("load")

    @d.loop("scheduler")
    def step() -> None:
        load.wait_stream(d.current_stream())
        block.copy_(host_kv, non_blocking=True, stream=load)
        if order:
            d.current_stream().wait_stream(load)
        d.launch("forward", reads=[block])

    return d


@fp.variant(
    "#31427 before: evicted during the load-back",
    fp.REFUTED,
    hazard="WAR host kv",
    fix="#31427 after: locked until the copy is done",
)
@fp.variant("#31427 after: locked until the copy is done", fp.PROVED, locked=True)
def case_c18_sglang_31427(locked: bool = False) -> fp.Design:
    """Case C-18, sgl-project/sglang#31427: the host anchor of a KV block is evicted while it is loaded back.

    A model of the reported mechanism. It exists because eviction looks at reference counts of the host, and the copy is a
    reader that holds none.
    """
    d = fp.Design("sglang#31427")
    host_kv, block, load = d.pinned("host kv"), d.device("block"), d.stream("load")

    @d.loop("scheduler")
    def step() -> None:
        block.copy_(host_kv, non_blocking=True, stream=load)
        d.current_stream().wait_stream(load)
        d.launch("forward", reads=[block])
        if locked:
            load.synchronize()
        with d.maybe("evict and refill the host row"):
            host_kv.write()
        load.wait_stream(d.current_stream())

    return d


@fp.variant(
    "before: a time-out frees blocks", fp.REFUTED, hazard="WAW block", fix="after: freed on the acknowledgement"
)
@fp.variant("after: freed on the acknowledgement", fp.PROVED, ack=True)
def case_c22_vllm_20139(ack: bool = False) -> fp.Design:
    """Case C-22, vllm-project/vllm#20139, #41383, LMCache#4516: a time-out frees blocks that a peer may still touch.

    A model of the reported mechanism. It exists because a clock is no synchronisation: without an acknowledgement, a lease
    or a quarantine, the peer's write may come at any time later.
    """
    d = fp.Design("vllm#20139")
    block = d.device("block")
    peer = d.stream("peer")
    sends = d.queue("sends", capacity=1, item=())
    acks = d.queue("acknowledgements", capacity=1, item=())

    @d.loop("peer")
    def remote() -> None:
        sends.get()
        d.launch("remote write", writes=[block], stream=peer)
        if ack:
            peer.synchronize()
        acks.put()

    @d.loop("scheduler")
    def step() -> None:
        sends.put()
        if ack:
            acks.get()
        else:
            if not acks.empty():  # it came in time; otherwise the blocks are freed all the same
                acks.get()
        d.launch("next owner", writes=[block])
        d.launch("attention", reads=[block])
        d.current_stream().synchronize()

    return d


@fp.variant(
    "the event's handle is ignored on the load direction", fp.REFUTED, hazard="RAW shared block", load_waits=False
)
@fp.variant("both directions wait", fp.PROVED, load_waits=True)
def case_c20_rtx6kpro_47(load_waits: bool = False) -> fp.Design:
    """Case C-20, local-inference-lab/rtx6kpro#47: the receiver waits for the sender's event when it stores, not when it loads.

    A model of the reported mechanism. It exists because two processes share device memory and only an event's handle
    orders them (S135): a message that arrived orders the hosts, not the devices.
    """
    d = fp.Design("rtx6kpro#47")
    ready = d.queue("ready", capacity=1, item=(fp.EVENT,))
    stored = d.queue("stored", capacity=1, item=(fp.EVENT,))
    with d.process("sender"):
        produce = d.stream("produce")
        block = d.device("shared block").shared_with("receiver")
    with d.process("receiver"):
        load = d.stream("load")

    with d.process("sender"):

        @d.loop("sender", stream=produce)
        def send() -> None:
            d.launch("kernel", writes=[block])
            written = d.event("written", interprocess=True)
            written.record()
            ready.put(written)
            stored.get().wait()

    with d.process("receiver"):

        @d.loop("receiver", stream=load)
        def receive() -> None:
            written = ready.get()
            if load_waits:
                written.wait()
            d.launch("load", reads=[block])
            done = d.event("read", interprocess=True)
            done.record()
            stored.put(done)

    return d
