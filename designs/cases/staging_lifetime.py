"""Class B: host staging memory is freed or recycled before the copy that reads it has run.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant("pageable original", fp.PROVED, staging="pageable")
@fp.variant(
    "pageable, under the reading that the source may be read later", fp.REFUTED, hazard="WAR staging",
    platform="cuda-late-pageable", staging="pageable",
)  # fmt: skip
@fp.variant(
    "before: pinned, async copy", fp.REFUTED, hazard="WAR staging", fix="after: blocking copy", staging="pinned"
)
@fp.variant(
    "before, under the same reading", fp.REFUTED, hazard="WAR staging", fix="after, under the same reading",
    platform="cuda-late-pageable", staging="pinned",
)  # fmt: skip
@fp.variant("after: blocking copy", fp.PROVED, staging="pinned", blocking=True)
@fp.variant("after, under the same reading", fp.PROVED, platform="cuda-late-pageable", staging="pinned", blocking=True)
def case_8_cudf_22284(staging: Literal["pageable", "pinned"] = "pageable", blocking: bool = False) -> fp.Design:
    """Case 8, NVIDIA/cudf#22284: a pageable local became a pinned one from a pool that other threads share.

    A model of the reported mechanism. It exists because the pageable copy stages its source before it returns, so that
    leaving the scope was safe until the memory kind changed. The pool is one chunk under a lock.
    """
    d = fp.Design("cudf#22284")
    chunk = d.pinned("staging") if staging == "pinned" else d.pageable("staging")
    pool = d.lock("staging pool")

    def caller(name: str) -> None:
        target, stream = d.device(f"{name} target"), d.stream(f"{name} stream")

        @d.loop(name, stream=stream)
        def call() -> None:
            with pool:
                chunk.write()
                target.copy_(chunk, non_blocking=not blocking)

    caller("H1")
    caller("H2")
    return d


@fp.variant("before: keyed by the view's pointer", fp.REFUTED, hazard="WAR block", fix="after: keyed by the storage")
@fp.variant("after: keyed by the storage", fp.PROVED, attributed=True)
def case_10_pytorch_68749(attributed: bool = False) -> fp.Design:
    """Case 10, pytorch/pytorch#68749: the host allocator looks up the view's pointer and finds no block.

    A model of the reported mechanism (S84). It exists because noting a use can fail in silence: a view at an offset has
    another pointer than the block.
    """
    d = fp.Design("pytorch#68749")
    target = d.device("target")

    @d.loop("loader")
    def step() -> None:
        block = d.empty_pinned("block")
        block.write()
        view = block.view(attributed=attributed)
        target.copy_(view, non_blocking=True)
        block.release()

    return d


@fp.variant("a stack local, staged by the driver", fp.PROVED)
@fp.variant(
    "before: a stack local, the source may be read later", fp.REFUTED, hazard="WAR constant", fix="after: a member",
    platform="cuda-late-pageable",
)  # fmt: skip
@fp.variant("after: a member", fp.PROVED, platform="cuda-late-pageable", member=True)
@fp.variant("after: a member, staged by the driver", fp.PROVED, member=True)
def case_11_opencv_9627(member: bool = False) -> fp.Design:
    """Case 11, opencv/opencv#9627: stack locals as the source of an asynchronous upload of constants.

    A model of the reported mechanism. It exists because it is right or wrong by which reading of the pageable rule holds
    (S47). The stack slot is one piece of pageable memory that later calls reuse; the member is written once.
    """
    d = fp.Design("opencv#9627")
    constant, on_device = d.pageable("constant"), d.device("constant on device")

    if member:

        @d.setup
        def construct() -> None:
            constant.write()

    @d.loop("caller")
    def call() -> None:
        if not member:
            constant.write()
        on_device.copy_(constant, non_blocking=True)
        d.launch("filter", reads=[on_device])

    return d


@fp.variant("before: no buffers, so no wait", fp.REFUTED, hazard="WAW result", fix="after: an unconditional wait")
@fp.variant("before, where a free waits for the device", fp.PROVED, platform="cuda-synchronising-free")
@fp.variant("after: an unconditional wait", fp.PROVED, wait=True)
@fp.variant("after, where a free waits for the device", fp.PROVED, platform="cuda-synchronising-free", wait=True)
def case_12_xla_46093(wait: bool = False) -> fp.Design:
    """Case 12, openxla/xla#46093: a pinned buffer is freed while an asynchronous memset targets it.

    A model of the reported mechanism. It exists because the wait stands in a loop over buffers that may run zero times,
    and whether freeing waits for the device is the platform's business (S40): the thread debates it, and the default is that it
    orders nothing. Unmapping is a host write to the block, and the next owner reads what it finds.
    """
    d = fp.Design("xla#46093")
    page = d.pinned("result")
    stream = d.stream("stream")

    @d.loop("test")
    def step() -> None:
        d.memset(page, stream=stream)
        with d.maybe("a buffer to check"):
            stream.synchronize()
        if wait:
            stream.synchronize()
        d.free(page)
        page.read()

    return d


@fp.variant(
    "before: a foreign buffer that its owner recycles",
    fp.REFUTED,
    hazard="WAR shared memory",
    fix="after: memory that the allocator manages",
)
@fp.variant("after: memory that the allocator manages", fp.PROVED, copy_first=True)
def case_c5_vllm_28706(copy_first: bool = False) -> fp.Design:
    """Case C-5, vllm-project/vllm#28706: the copy's source lies in a shared-memory buffer that a collector may recycle.

    A model of the reported mechanism. It exists because the host allocator knows nothing of foreign memory (S86); the
    sender thread stands for whoever fills the recycled buffer next.
    """
    d = fp.Design("vllm#28706")
    foreign, target = d.pinned("shared memory"), d.device("multimodal inputs")
    slots = d.queue("messages", capacity=1, item=())
    freed = d.semaphore("recycled", 1)

    @d.loop("sender")
    def send() -> None:
        freed.acquire()
        foreign.write()
        slots.put()

    @d.loop("worker")
    def receive() -> None:
        slots.get()
        if copy_first:
            own = d.empty_pinned("own copy")
            d.host("memcpy", reads=[foreign], writes=[own])
            target.copy_(own, non_blocking=True)
        else:
            target.copy_(foreign, non_blocking=True)
        freed.release()

    return d


@fp.variant("the source leaves its scope, read later", fp.REFUTED, hazard="WAR source", platform="cuda-late-pageable")
@fp.variant("the source leaves its scope, staged", fp.PROVED)
@fp.variant("the source is pinned", fp.REFUTED, hazard="WAR source", pinned=True)
@fp.variant(
    "the source is pinned, where pageable sources are read later", fp.REFUTED, hazard="WAR source", pinned=True,
    platform="cuda-late-pageable",
)  # fmt: skip
def case_c7_tensorflow_48474(pinned: bool = False) -> fp.Design:
    """Case C-7, tensorflow/tensorflow#48474: the CPU source leaves its scope right after the asynchronous copy call.

    A model of the reported mechanism. It exists because the call looks finished when it returns.
    """
    d = fp.Design("tensorflow#48474")
    source = d.pinned("source") if pinned else d.pageable("source")
    target = d.device("target")

    @d.loop("op")
    def compute() -> None:
        source.write()
        target.copy_(source, non_blocking=True)

    return d
