"""Probes of both caching allocators and of graphs (S62 to S102)."""

from __future__ import annotations

import ctypes
from typing import Any

from fencepost.gpu_validate.device import MEBI
from fencepost.gpu_validate.probes_sync import _driver
from fencepost.gpu_validate.probing import NO, YES, Bench, probe, yes

SIZE = 14 * MEBI
"""Bytes of a device block that gets a segment of its own, so that only an exact fit returns it."""
PINNED = 96 * 1024


def _block(m: Bench, stream: Any) -> Any:
    with m.torch.cuda.stream(stream):
        return m.torch.empty(SIZE, dtype=m.torch.uint8, device="cuda")


def _fresh(m: Bench) -> None:
    m.torch.cuda.synchronize()
    m.torch.cuda.empty_cache()


# ------------------------------------------------------------ device allocator


@probe("S62", "a freed block is handed out at once on its own stream; on another stream", "yes, no")
def same_stream(m: Bench) -> str:
    _fresh(m)
    x = _block(m, m.a)
    address = x.data_ptr()
    del x
    other = _block(m, m.b)
    own = _block(m, m.a)
    return f"{yes(own.data_ptr() == address)}, {yes(other.data_ptr() == address)}"


@probe("S63", "a block whose side-stream use is held is handed out again (no record_stream)", YES)
def early_reuse(m: Bench) -> str:
    _fresh(m)
    x = _block(m, m.default)
    address = x.data_ptr()
    m.gates.shut(m.a)
    with m.torch.cuda.stream(m.a):
        x[:64].add_(1)
    del x
    return yes(_block(m, m.default).data_ptr() == address)


@probe("S64", "record_stream on the allocation stream keeps the block while that stream is held", NO)
def own_stream(m: Bench) -> str:
    _fresh(m)
    x = _block(m, m.a)
    address = x.data_ptr()
    m.gates.shut(m.a)
    x.record_stream(m.a)
    del x
    return yes(_block(m, m.a).data_ptr() != address)


@probe("S65", "with record_stream: handed out while the side stream is held; after it ran", "no, yes")
def recorded(m: Bench) -> str:
    _fresh(m)
    x = _block(m, m.default)
    address = x.data_ptr()
    x.record_stream(m.a)
    m.gates.shut(m.a)
    del x
    y = _block(m, m.default)
    early = y.data_ptr() == address
    m.clean()
    return f"{yes(early)}, {yes(_block(m, m.default).data_ptr() == address)}"


@probe("S65", "record_stream covers a use enqueued after it but before the free", YES)
def recorded_late_use(m: Bench) -> str:
    _fresh(m)
    x = _block(m, m.default)
    address = x.data_ptr()
    x.record_stream(m.a)
    m.torch.cuda.synchronize()
    m.gates.shut(m.a)  # the event is recorded when the block is freed, so it lies behind this gate
    with m.torch.cuda.stream(m.a):
        x[:64].add_(1)
    del x
    return yes(_block(m, m.default).data_ptr() != address)


@probe("S66", "record_stream covers work enqueued on that stream after the free", NO, "inferred")
def after_free(m: Bench) -> str:
    _fresh(m)
    x = _block(m, m.default)
    address = x.data_ptr()
    x.record_stream(m.a)
    del x
    m.a.synchronize()
    m.gates.shut(m.a)
    return yes(_block(m, m.default).data_ptr() != address)


@probe("S67", "the events of recorded blocks are polled by an allocation of another size and stream", YES)
def polled(m: Bench) -> str:
    _fresh(m)
    x = _block(m, m.default)
    x.record_stream(m.a)
    m.gates.shut(m.a)
    del x
    held = m.torch.cuda.memory_stats()["inactive_split_bytes.all.current"]
    active = m.torch.cuda.memory_stats()["active_bytes.all.current"]
    m.clean()
    before = m.torch.cuda.memory_stats()["active_bytes.all.current"]
    with m.torch.cuda.stream(m.b):
        y = m.torch.empty(512, dtype=m.torch.uint8, device="cuda")
    after = m.torch.cuda.memory_stats()["active_bytes.all.current"]
    del y
    m.detail = f"active bytes held {active}, before the allocation {before}, after {after}; split {held}"
    return yes(before == active and after < before)


@probe("S68", "the allocation stream waits for the side stream before the drop: the next owner's write comes late", YES)
def synced_back(m: Bench) -> str:
    _fresh(m)
    torch = m.torch
    x = _block(m, m.default)
    address = x.data_ptr()
    x[:64].fill_(1)
    seen = torch.zeros(64, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    m.gates.shut(m.a)
    with torch.cuda.stream(m.a):
        torch.bitwise_or(x[:64], 0, out=seen)
    m.default.wait_stream(m.a)
    del x
    y = _block(m, m.default)
    same = y.data_ptr() == address
    y[:64].fill_(2)
    m.clean()
    m.detail = f"the same block: {yes(same)}"
    return yes(same and int(seen[0].item()) == 1)


@probe("S70", "a larger tensor overlaps two freed neighbours", YES)
def merged(m: Bench) -> str:
    _fresh(m)
    torch = m.torch
    both = [torch.empty(5 * MEBI, dtype=torch.uint8, device="cuda") for _ in range(2)]
    low = min(t.data_ptr() for t in both)
    neighbours = abs(both[0].data_ptr() - both[1].data_ptr()) == 5 * MEBI
    del both
    large = torch.empty(9 * MEBI, dtype=torch.uint8, device="cuda")
    m.detail = f"the two were neighbours: {yes(neighbours)}"
    return yes(large.data_ptr() == low)


@probe("S72", "record_stream on memory that the allocator did not hand out", "ignored")
def foreign(m: Bench) -> str:
    driver = _driver()
    _, pointer = driver.cuMemAlloc(4096)

    class View:
        __cuda_array_interface__ = {"shape": (1024,), "typestr": "<i4", "data": (int(pointer), False), "version": 3}

    tensor = m.torch.as_tensor(View(), device="cuda")
    try:
        tensor.record_stream(m.a)
        found = "ignored"
    except RuntimeError:
        found = "raises"
    del tensor
    driver.cuMemFree(pointer)
    return found


# ------------------------------------------------------------ pinned allocator


def _pinned(m: Bench, size: int = PINNED) -> Any:
    return m.torch.empty(size, dtype=m.torch.uint8, pin_memory=True)


@probe("S80", "a pinned block without noted uses is handed out again at once", YES)
def pinned_free(m: Bench) -> str:
    x = _pinned(m)
    address = x.data_ptr()
    del x
    return yes(_pinned(m).data_ptr() == address)


def _pinned_use(m: Bench, view: Any, use: Any) -> bool:
    """Whether a dropped pinned block is handed out again while a use of it is held. `view` makes what `use` copies."""
    m.torch.cuda.synchronize()
    x = _pinned(m)
    x.fill_(1)
    address = x.data_ptr()
    m.gates.shut(m.a)
    shown = view(x)
    use(shown)
    del shown, x
    again = bool(_pinned(m).data_ptr() == address)
    m.clean()
    return again


def _copy(m: Bench) -> Any:
    target = m.torch.zeros(PINNED, dtype=m.torch.uint8, device="cuda")
    m.torch.cuda.synchronize()

    def use(source: Any) -> None:
        with m.torch.cuda.stream(m.a):
            target[: len(source)].copy_(source, non_blocking=True)

    return use


@probe("S79", "a pinned block with a held non_blocking copy_ is handed out again: whole, torch slice", "no, no")
def pinned_noted(m: Bench) -> str:
    whole = _pinned_use(m, lambda x: x, _copy(m))
    part = _pinned_use(m, lambda x: x[4096:8192], _copy(m))
    return f"{yes(whole)}, {yes(part)}"


@probe("S84", "the same through a view torch cannot attribute: at offset 0, at offset 64", "no, yes", "inferred")
def pinned_foreign(m: Bench) -> str:
    def shown(offset: int) -> Any:
        def view(x: Any) -> Any:
            raw = (ctypes.c_char * 4096).from_address(x.data_ptr() + offset)
            return m.torch.frombuffer(raw, dtype=m.torch.uint8, count=4096)

        return view

    base = _pinned_use(m, shown(0), _copy(m))
    inside = _pinned_use(m, shown(64), _copy(m))
    return f"{yes(base)}, {yes(inside)}"


@probe("S83", "the same with a raw cuMemcpyAsync", YES, "inferred")
def pinned_raw(m: Bench) -> str:
    driver = _driver()
    target = m.torch.zeros(PINNED, dtype=m.torch.uint8, device="cuda")
    m.torch.cuda.synchronize()
    return yes(
        _pinned_use(m, lambda x: x, lambda x: driver.cuMemcpyAsync(target.data_ptr(), x.data_ptr(), 4096, m.a.cuda_stream))
    )


@probe("S83", "the same with a kernel that reads the block in place", YES, "inferred")
def pinned_kernel(m: Bench) -> str:
    from fencepost.gpu_validate.device import Mapped

    def use(x: Any) -> None:
        view = m.torch.as_tensor(Mapped(x.data_ptr(), 1024), device="cuda")
        with m.torch.cuda.stream(m.a):
            m.torch.bitwise_or(view, 0, out=m.other)

    return yes(_pinned_use(m, lambda x: x, use))


@probe("S81", "a younger block, its copy done, is reusable while an older block's copy is held", NO)
def pinned_order(m: Bench) -> str:
    torch = m.torch
    size = 24 * 1024 * 1024  # a size class of its own
    first, second = _pinned(m, size), _pinned(m, size)
    address = second.data_ptr()
    target = torch.zeros(64, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    m.gates.shut(m.a)
    with torch.cuda.stream(m.a):
        target.copy_(first[:64], non_blocking=True)
    with torch.cuda.stream(m.b):
        target.copy_(second[:64], non_blocking=True)
    del first
    del second
    m.b.synchronize()
    third = _pinned(m, size)
    return yes(third.data_ptr() == address)


@probe("S82", "pinned sizes share blocks up to the next power of two; the last freed comes first", "yes, yes")
def pinned_lifo(m: Bench) -> str:
    x, y = _pinned(m, 3 * MEBI), _pinned(m, 3 * MEBI)
    first, second = x.data_ptr(), y.data_ptr()
    del x
    del y
    one = _pinned(m, 4 * MEBI)
    two = _pinned(m, 4 * MEBI)
    return f"{yes({one.data_ptr(), two.data_ptr()} == {first, second})}, {yes(one.data_ptr() == second)}"


@probe("S85", "the allocator keeps the host from refilling a live block whose copy is held", NO, "inferred")
def pinned_refill(m: Bench) -> str:
    x = _pinned(m)
    x.fill_(1)
    target = m.torch.zeros(64, dtype=m.torch.uint8, device="cuda")
    m.torch.cuda.synchronize()
    m.gates.shut(m.a)
    with m.torch.cuda.stream(m.a):
        target.copy_(x[:64], non_blocking=True)
    x.fill_(2)
    m.clean()
    return yes(int(target[0].item()) == 1)


@probe("S86", "memory registered by the user is_pinned()", YES, "mem")
def registered(m: Bench) -> str:
    driver = _driver()
    memory = m.torch.ones(1 << 20, dtype=m.torch.uint8)
    driver.cuMemHostRegister(memory.data_ptr(), 1 << 20, 0)
    found = memory.is_pinned()
    driver.cuMemHostUnregister(memory.data_ptr())
    return yes(found)


# ------------------------------------------------------------ graphs


def _graph(m: Bench, body: Any) -> Any:
    torch = m.torch
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        body()
    torch.cuda.synchronize()
    return graph


@probe("S91", "captured work runs at capture", NO)
def capture_runs(m: Bench) -> str:
    m.device.fill_(5)
    _graph(m, lambda: m.device.fill_(6))
    return yes(int(m.device[0].item()) == 6)


@probe("S92", "a captured host-to-device copy reads its source at replay", YES)
def captured_copy(m: Bench) -> str:
    host = m.pinned()
    graph = _graph(m, lambda: m.device.copy_(host, non_blocking=True))
    host.fill_(9)
    graph.replay()
    m.torch.cuda.synchronize()
    return yes(int(m.device[0].item()) == 9)


@probe("S92", "a replay on a held stream reads what the host wrote after the launch", YES)
def replay_late(m: Bench) -> str:
    host = m.pinned()
    graph = _graph(m, lambda: m.device.copy_(host, non_blocking=True))
    m.gates.shut(m.a)
    with m.torch.cuda.stream(m.a):
        graph.replay()
    host.fill_(9)
    m.clean()
    return yes(int(m.device[0].item()) == 9)


@probe("S93", "a launch runs while an earlier launch of the same graph is held on another stream", NO)
def same_exec(m: Bench) -> str:
    graph = _graph(m, lambda: m.device.add_(1))
    m.gates.shut(m.a)
    with m.torch.cuda.stream(m.a):
        graph.replay()
    done = m.torch.cuda.Event()
    with m.torch.cuda.stream(m.b):
        graph.replay()
        done.record()
    return yes(m.ends(done))


@probe("S95", "a launch runs while another graph's launch is held on another stream", YES, "inferred")
def other_exec(m: Bench) -> str:
    graph, other = _graph(m, lambda: m.device.add_(1)), _graph(m, lambda: m.other.add_(1))
    m.gates.shut(m.a)
    with m.torch.cuda.stream(m.a):
        graph.replay()
    done = m.torch.cuda.Event()
    with m.torch.cuda.stream(m.b):
        other.replay()
        done.record()
    return yes(m.ends(done))


@probe("S96", "a replay overwrites the output of the replay before", YES)
def overwritten(m: Bench) -> str:
    torch = m.torch
    source = torch.ones(64, dtype=torch.int32, device="cuda")
    kept: list[Any] = []
    graph = _graph(m, lambda: kept.append(source + 1))
    graph.replay()
    torch.cuda.synchronize()
    first = kept[0]
    source.fill_(10)
    graph.replay()
    torch.cuda.synchronize()
    return yes(int(first[0].item()) == 11)


@probe("S89", "a pinned block from before capture, dropped after it, is handed out again; the replay copies the new "
       "owner's bytes", "yes, yes", "inferred")  # fmt: skip
def captured_pinned(m: Bench) -> str:
    size = 40 * 1024 * 1024
    target = m.torch.zeros(64, dtype=m.torch.uint8, device="cuda")
    x = _pinned(m, size)
    x.fill_(1)
    address = x.data_ptr()
    source = [x[:64]]
    graph = _graph(m, lambda: target.copy_(source[0], non_blocking=True))
    del x
    source.clear()
    y = _pinned(m, size)
    y.fill_(8)
    graph.replay()
    m.torch.cuda.synchronize()
    return f"{yes(y.data_ptr() == address)}, {yes(int(target[0].item()) == 8)}"


@probe("S98", "capture on the default stream", "raises")
def capture_default(m: Bench) -> str:
    graph = m.torch.cuda.CUDAGraph()
    m.torch.cuda.set_stream(m.default)
    try:
        graph.capture_begin()
    except RuntimeError:
        return "raises"
    graph.capture_end()
    return "works"


@probe("S99", "a host synchronisation, and a copy from unpinned memory, in a capture", "raises, raises")
def capture_sync(m: Bench) -> str:
    from fencepost.gpu_validate.probes_process import child

    return child("graph_sync") + ", " + child("graph_unpinned")


@probe("S100", "replay() launches on the caller's current stream", YES)
def replay_stream(m: Bench) -> str:
    graph = _graph(m, lambda: m.device.add_(1))
    m.gates.shut(m.a)
    with m.torch.cuda.stream(m.a):
        graph.replay()
    return yes(not m.a.query() and m.default.query())


@probe("S77", "with PYTORCH_NO_CUDA_MEMORY_CACHING=1, dropping a tensor while a stream is held", "blocks", "inferred")
def no_caching(m: Bench) -> str:
    from fencepost.gpu_validate.probes_process import child

    return child("no_caching", PYTORCH_NO_CUDA_MEMORY_CACHING="1")


@probe("S76", "with backend:cudaMallocAsync: memory of a held side-stream use is handed out at once (no record_stream)", YES)
def malloc_async(m: Bench) -> str:
    from fencepost.gpu_validate.probes_process import child

    setting = "backend:cudaMallocAsync"
    return child("malloc_async", PYTORCH_CUDA_ALLOC_CONF=setting, PYTORCH_ALLOC_CONF=setting)

