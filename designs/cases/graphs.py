"""Class F: what a CUDA graph replays: addresses that were baked in, and host code that does not run again.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant(
    "before: the source goes back to the pool", fp.REFUTED, hazard="WAR source", fix="after: kept while the graph lives"
)
@fp.variant("after: kept while the graph lives", fp.PROVED, keep=True)
def case_34_onnxruntime_32121(keep: bool = False) -> fp.Design:
    """Case 34, microsoft/onnxruntime#32121: a captured copy keeps the host address of a buffer that is recycled.

    A model of the reported mechanism (S89, S92). It exists because the copy node reads its source at every replay, long
    after the pool handed it to another inference. PaddlePaddle/Paddle#78568 has the same in 33 files.
    """
    d = fp.Design("onnxruntime#32121")
    pool = d.pool("source", size=2, of="pinned")
    pointers, output = d.device("pointer array"), d.device("output")
    stream = d.stream("stream")
    decode = d.graph("decode")

    @d.setup
    def capture() -> None:
        source = pool.take()
        source.write()
        with decode.capture(stream):
            pointers.copy_(source, non_blocking=True, harm="address")
            d.launch("kernel", reads=[fp.read(pointers, harm="address")], writes=[output])
        if not keep:
            pool.give(source)

    @d.loop("another inference")
    def other() -> None:
        mine = pool.take()
        mine.write()
        mine.read()
        pool.give(mine)

    @d.loop("inference", stream=stream)
    def replay() -> None:
        decode.replay()

    return d


@fp.variant(
    "invergent-ai/surogate#124 before: the source is rewritten after the launch",
    fp.REFUTED,
    hazard="WAR admitted requests",
    fix="after: the host waits for the replay",
)
@fp.variant("after: the host waits for the replay", fp.PROVED, wait=True)
def case_34_surogate_124(wait: bool = False) -> fp.Design:
    """Case 34's sibling, invergent-ai/surogate#124: the source of a captured copy is rewritten between launch and execution.

    A model of the reported mechanism. It exists because a launched graph is as far in the future as any other work.
    """
    d = fp.Design("surogate#124")
    requests, requests_gpu = d.pinned("admitted requests"), d.device("requests gpu")
    stream, step_graph = d.stream("stream"), d.graph("step")

    @d.setup
    def capture() -> None:
        with step_graph.capture(stream):
            requests_gpu.copy_(requests, non_blocking=True)
            d.launch("step", reads=[requests_gpu])

    @d.loop("engine", stream=stream)
    def step() -> None:
        if wait:
            stream.synchronize()
        requests.write()
        step_graph.replay()

    return d


@fp.variant(
    "before: the graphs share the stream's workspace",
    fp.REFUTED,
    hazard="WAR workspace",
    fix="each graph keeps its workspace",
)
@fp.variant("each graph keeps its workspace", fp.PROVED, own=True)
def case_36_pytorch_193402(own: bool = False) -> fp.Design:
    """Case 36, pytorch/pytorch#193402: two graphs captured on one stream share a library's workspace.

    A model of the reported mechanism (S78, S101). It exists because the workspace belongs to the stream: destroying one
    graph frees what the other has baked in.
    """
    d = fp.Design("pytorch#193402")
    memory = d.pool("workspace", size=3, of="device")
    stream, other_stream = d.stream("capture stream"), d.stream("other stream")
    graph_a, graph_b = d.graph("graph a"), d.graph("graph b")

    @d.setup
    def capture() -> None:
        workspace = memory.take()
        mine = memory.take() if own else workspace
        with graph_a.capture(stream):
            d.launch("gemm of a", writes=[workspace])
            d.launch("reduce of a", reads=[workspace])
        with graph_b.capture(stream):
            d.launch("gemm of b", writes=[mine])
            d.launch("reduce of b", reads=[mine])
        memory.give(mine)  # graph b is destroyed

    @d.loop("replayer", stream=stream)
    def replay() -> None:
        graph_a.replay()

    @d.loop("somebody else", stream=other_stream)
    def other() -> None:
        block = memory.take()
        d.launch("fill", writes=[block])
        d.launch("use", reads=[block])
        other_stream.synchronize()
        memory.give(block)

    return d


@fp.variant(
    "before: the round is baked into the arguments",
    fp.REFUTED,
    hazard="RAW peer data",
    fix="after: a counter in device memory",
)
@fp.variant("after: a counter in device memory", fp.PROVED, counter="device memory")
def case_38_aiter_3928(counter: Literal["baked", "device memory"] = "baked") -> fp.Design:
    """Case 38, ROCm/aiter#3928 (and microsoft/mscclpp#502): the round's number is baked into a captured kernel.

    A model of the reported mechanism (S118). It exists because host arithmetic does not run at replay: the waiter compares with
    the first round's number for ever, and the flag has that value from the first round on, so from the second replay
    on it waits for nothing. With a counter in device memory each round consumes its own signal: here, a wait that resets.
    """
    d = fp.Design("aiter#3928")
    data, result = d.device("peer data"), d.device("result")
    peer, stream = d.stream("peer"), d.stream("stream")
    flag, used = d.device_flag("round"), d.event("used")
    reduce = d.graph("all-reduce")

    @d.setup
    def capture() -> None:
        with reduce.capture(stream):
            stream.wait_value(flag, 1, reset=counter == "device memory")
            d.launch("all-reduce", reads=[data], writes=[result])

    @d.loop("rank", stream=stream)
    def step() -> None:
        peer.wait_event(used)
        d.launch("peer writes", writes=[data], stream=peer)
        peer.write_value(flag, 1)
        reduce.replay()
        used.record()
        used.synchronize()
        peer.synchronize()

    return d
