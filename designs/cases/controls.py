"""Class K: controls. Code that is safe, or a synchronisation that is not needed.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant("pageable, staged before the call returns", fp.PROVED)
@fp.variant("pageable, read later", fp.REFUTED, hazard="WAR reused tensor", platform="cuda-late-pageable")
@fp.variant("pinned", fp.REFUTED, hazard="WAR reused tensor", memory="pinned")
@fp.variant(
    "pinned, where pageable sources are read later", fp.REFUTED, hazard="WAR reused tensor", memory="pinned",
    platform="cuda-late-pageable",
)  # fmt: skip
@fp.variant("TensorRT-LLM#16757: a fresh pinned buffer per step", fp.PROVED, memory="fresh pinned")
@fp.variant(
    "TensorRT-LLM#16757, where pageable sources are read later", fp.PROVED, memory="fresh pinned", platform="cuda-late-pageable"
)
def case_63_vllm_32799(memory: Literal["pageable", "pinned", "fresh pinned"] = "pageable") -> fp.Design:
    """Case 63, vllm-project/vllm#32799: reused tensors are deliberately left unpinned.

    A model of the reported mechanism. It exists because the proof stands on the staging rule (S47), which the report says
    as an assumption. The other side of the coin is TensorRT-LLM#16757: the pageable copy holds the host for a decode
    step, and fresh pinned staging is safe too.
    """
    d = fp.Design("vllm#32799")
    target = d.device("target")
    reused = d.pinned("reused tensor") if memory == "pinned" else d.pageable("reused tensor")

    @d.loop("worker")
    def step() -> None:
        reused_or_fresh = d.empty_pinned("staging") if memory == "fresh pinned" else reused
        reused_or_fresh.write()
        target.copy_(reused_or_fresh, non_blocking=True)
        d.launch("forward", reads=[target])

    return d


@fp.variant("K2 on a blocking stream, no syncs", fp.PROVED, blocking=True)
@fp.variant(
    "K2 on a non-blocking stream, no syncs", fp.REFUTED, hazard="WAW array", fix="K2 on a blocking stream, no syncs"
)
@fp.variant("K2 on a non-blocking stream, with the syncs", fp.PROVED, syncs=True)
def case_65_chai_277(blocking: bool = False, syncs: bool = False) -> fp.Design:
    """Case 65, llnl/CHAI#277: extra synchronisations around kernels on stream 0, closed as unnecessary.

    A model of the reported mechanism (S11). It exists because the reviewer is right about blocking streams and would be
    wrong about others: which kind the streams are is the whole question.
    """
    d = fp.Design("CHAI#277")
    array = d.device("array")
    stream = d.stream("other stream", blocking=blocking)

    @d.loop("application")
    def step() -> None:
        d.launch("K1", writes=[array], stream=d.default_stream())
        if syncs:
            d.synchronize()
        d.launch("K2", reads=[array], writes=[array], stream=stream)
        if syncs:
            d.synchronize()

    return d
