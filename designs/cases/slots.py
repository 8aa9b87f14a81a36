"""Class E: a slot of a ring or pool is recycled while the device still uses it.

Each design is a model of the reported mechanism, with the number that it has in the list of cases.
"""

from __future__ import annotations

from typing import Literal

import fencepost as fp


@fp.variant(
    "before: the kernel reads the host tables in place",
    fp.REFUTED,
    hazard="WAR table",
    fix="after: both inputs staged",
    stage="nothing",
)
@fp.variant("only the indices staged", fp.REFUTED, hazard="WAR table", fix="after: both inputs staged", stage="indices")
@fp.variant(
    "the V1 fix: a copy behind a kernel that reads in place",
    fp.REFUTED,
    hazard="WAR table",
    fix="after: both inputs staged",
    stage="copy only",
)
@fp.variant("after: both inputs staged", fp.PROVED, stage="both")
def case_29_tensorrt_llm_16088(stage: Literal["nothing", "indices", "copy only", "both"] = "nothing") -> fp.Design:
    """Case 29, NVIDIA/TensorRT-LLM#16088: a gather kernel reads pinned tables when it runs, not when it is launched.

    A model of the reported mechanism. It exists because the fix of the copied table (case 4) does not transfer: here a
    kernel dereferences the table, a slot of which native code rebinds through a raw pointer.
    """
    d = fp.Design("TensorRT-LLM#16088")
    table, indices = d.pinned("table"), d.pinned("indices")
    rows_gpu, offsets = d.device("rows gpu"), d.device("offsets")
    results = d.queue("previous batch", capacity=2, item=(fp.EVENT,))

    @d.loop("executor")
    def iteration() -> None:
        with d.maybe("a request ends: its slot is rebound"):
            d.host("native rebind", writes=[table[fp.ANY]])
        if stage == "both":
            rows = d.empty_pinned("rows of the call")
            d.host("snapshot rows", reads=[table], writes=[rows])
            index = d.empty_pinned("indices of the call")
            index.write()
            rows_gpu.copy_(rows, non_blocking=True)
            rows_gpu["indices"].copy_(index, non_blocking=True)
            d.launch("gather", reads=[rows_gpu], writes=[offsets])
        elif stage == "indices":
            index = d.empty_pinned("indices of the call")
            index.write()
            rows_gpu["indices"].copy_(index, non_blocking=True)
            d.launch("gather", reads=[table, rows_gpu], writes=[offsets])
        elif stage == "copy only":
            indices.write()
            rows_gpu.copy_(table, non_blocking=True)
            d.launch("gather", reads=[indices, rows_gpu], writes=[offsets])
        else:
            indices.write()
            d.launch("gather", reads=[fp.read(table, harm="address"), indices], writes=[offsets])
        done = d.event("done")
        done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


@fp.variant(
    "before: released after the copy was queued",
    fp.REFUTED,
    hazard="WAR output",
    fix="after: the producer waits for the copy",
)
@fp.variant("after: the producer waits for the copy", fp.PROVED, back_edge=True)
def case_30_dali_3950(back_edge: bool = False) -> fp.Design:
    """Case 30, NVIDIA/DALI#3950: an output slot is released while the consumer's copy waits on the consumer's stream.

    A model of the reported mechanism. It exists because the release is a host operation and the reader is a device: the
    edge back must go from stream to stream.
    """
    d = fp.Design("DALI#3950")
    outputs = d.device("output", depth=2)
    slots = d.cursor("output slot", 2)
    producer, user = d.stream("producer"), d.stream("user")
    target = d.device("user tensor")

    @d.loop("pipeline")
    def iteration() -> None:
        slot = slots.advance()
        d.launch("operators", writes=[outputs[slot]], stream=producer)
        user.wait_stream(producer)
        target.copy_(outputs[slot], non_blocking=True, stream=user)
        if back_edge:
            producer.wait_stream(user)

    return d


@fp.variant(
    "before: the chunk goes back under a running kernel",
    fp.REFUTED,
    hazard="WAR chunk",
    fix="after: wait before the chunk goes back",
)
@fp.variant("after: wait before the chunk goes back", fp.PROVED, wait=True)
@fp.variant(
    "#226: a kernel still writes the chunk",
    fp.REFUTED,
    hazard="WAW chunk",
    fix="after: wait before the chunk goes back",
    kernel="writes",
)
def case_31_cumo_177(kernel: Literal["reads", "writes"] = "reads", wait: bool = False) -> fp.Design:
    """Case 31, sonots/cumo#177 and #226: a managed staging chunk returns to its pool under a running kernel.

    A model of the reported mechanism. It exists because the host writes managed memory directly: no stream orders it
    (S110). The pool is one chunk, last in and first out.
    """
    d = fp.Design("cumo#177")
    chunk, array = d.managed("chunk"), d.device("array")

    @d.loop("interpreter")
    def operation() -> None:
        d.host("memcpy into the chunk", writes=[chunk])
        if kernel == "reads":
            d.launch("scatter", reads=[chunk], writes=[array])
        else:
            d.launch("reduce", reads=[chunk], writes=[chunk])
            d.launch("use", reads=[chunk], writes=[array])
        if wait:
            d.current_stream().synchronize()

    return d


@fp.variant(
    "#87 before: one buffer, two frames in flight",
    fp.REFUTED,
    hazard="WAR uniforms",
    fix="#87 after: a buffer per frame",
)
@fp.variant("#87 after: a buffer per frame", fp.PROVED, buffers="per frame")
@fp.variant("three frames in flight, a buffer per frame", fp.PROVED, buffers="per frame", frames=3)
def case_32_vulkan_tutorial_87(frames: int = 2, buffers: Literal["one", "per frame"] = "one") -> fp.Design:
    """Case 32, Overv/VulkanTutorial#87: one uniform buffer and several frames in flight.

    A model of the reported mechanism. It exists because the fence of frame n mod N protects what belongs to that frame
    only.
    """
    d = fp.Design("VulkanTutorial#87")
    uniforms = d.managed("uniforms", depth=1 if buffers == "one" else frames)
    image = d.device("image")
    fences = d.event("fence", depth=frames)

    @d.loop("renderer")
    def frame(n: fp.Turn) -> None:
        fences[n].synchronize()
        uniforms[n].write()
        d.launch("draw", reads=[uniforms[n]], writes=[image])
        fences[n].record()

    return d


@fp.variant(
    "#221 before: written, then the image's fence is awaited",
    fp.REFUTED,
    hazard="WAR uniforms of image 0",
    fix="#221 after: waited, then written",
)
@fp.variant("#221 after: waited, then written", fp.PROVED, wait_first=True)
def case_32_vulkan_tutorial_221(images: int = 2, frames: int = 2, wait_first: bool = False) -> fp.Design:
    """Case 32, Overv/VulkanTutorial#221: a buffer per image, written before the fence of the image's last user is awaited.

    A model of the reported mechanism. It exists because the swap chain chooses the image: image and frame rotate apart.
    """
    d = fp.Design("VulkanTutorial#221")
    uniforms = [d.managed(f"uniforms of image {image}") for image in range(images)]
    in_flight = [d.event(f"fence of image {image}") for image in range(images)]
    fences = d.event("fence", depth=frames)

    @d.loop("renderer")
    def frame(n: fp.Turn) -> None:
        fences[n].synchronize()
        image = d.choose("acquired image", list(range(images)))
        if wait_first:
            in_flight[image].synchronize()
            uniforms[image].write()
        else:
            uniforms[image].write()
            in_flight[image].synchronize()
        d.launch("draw", reads=[uniforms[image]])
        in_flight[image].record()
        fences[n].record()

    return d


@fp.variant(
    "before: one uniform buffer",
    fp.REFUTED,
    hazard="WAR uniform buffer",
    fix="after: triple buffer with a semaphore",
    buffers=1,
)
@fp.variant(
    "three buffers and nothing that counts the frames",
    fp.REFUTED,
    hazard="WAR uniform buffer",
    fix="after: triple buffer with a semaphore",
    buffers=3,
)
@fp.variant("after: triple buffer with a semaphore", fp.PROVED, buffers=3, counted=True)
def case_c16_bgfx_609(buffers: int = 1, counted: bool = False) -> fp.Design:
    """Case C-16, bkaradzic/bgfx#609 and google/filament#1053: Metal uniform buffers that the GPU reads in place.

    A model of the reported mechanism. It exists because three buffers suffice only together with the completion handler
    that counts the frames: here a thread that waits for each frame and releases the semaphore.
    """
    d = fp.Design("bgfx#609")
    uniforms = d.managed("uniform buffer", depth=buffers)
    slots = d.cursor("frame", buffers)
    free = d.semaphore("frames", buffers)
    submitted = d.queue("command buffers", capacity=buffers, item=(fp.EVENT,))

    @d.loop("renderer")
    def frame() -> None:
        if counted:
            free.acquire()
        slot = slots.advance()
        uniforms[slot].write()
        d.launch("draw", reads=[uniforms[slot]])
        done = d.event("completed")
        done.record()
        submitted.put(done)

    @d.loop("completion handler")
    def handler() -> None:
        done = submitted.get()
        done.synchronize()
        if counted:
            free.release()

    return d
