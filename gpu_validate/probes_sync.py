"""Probes of streams, events, host synchronisation, implicit synchronisation and host functions (S1 to S44, S103 to S109)."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

from fencepost.gpu_validate.probing import BLOCKS, NO, RETURNS, YES, Bench, NotHere, probe, yes

# ------------------------------------------------------------ streams


@probe("S2", "work behind a held item of its stream runs", NO)
def fifo(m: Bench) -> str:
    m.gates.shut(m.a)
    done = m.torch.cuda.Event()
    with m.torch.cuda.stream(m.a):
        m.device.add_(1)
        done.record()
    return yes(m.ends(done))


@probe("S3", "work on another pool stream runs while one is held", YES)
def unordered(m: Bench) -> str:
    return yes(m.runs(m.b, m.a))


@probe("S4", "a kernel launch on a held stream", RETURNS)
def launch(m: Bench) -> str:
    def call() -> None:
        with m.torch.cuda.stream(m.a):
            m.device.add_(1)

    return m.word(call, m.a)


@probe("S6", "a new thread starts with the default stream, whatever its parent had set", YES)
def thread_stream(m: Bench) -> str:
    seen: list[int] = []
    with m.torch.cuda.stream(m.a):
        thread = threading.Thread(target=lambda: seen.append(m.torch.cuda.current_stream().cuda_stream))
        thread.start()
        thread.join()
    return yes(seen == [m.default.cuda_stream])


@probe("S7", "the default stream is the null handle", YES)
def null_handle(m: Bench) -> str:
    return yes(m.default.cuda_stream == 0)


@probe("S8", "distinct streams among 34 made", "32")
def pool(m: Bench) -> str:
    handles = [m.torch.cuda.Stream().cuda_stream for _ in range(34)]
    m.detail = f"the 33rd equals the 1st: {yes(handles[32] == handles[0])}"
    return str(len(set(handles)))


@probe("S9", "holding a stream holds the one made 32 later", YES, "inferred")
def aliased(m: Bench) -> str:
    streams = [m.torch.cuda.Stream() for _ in range(33)]
    m.gates.shut(streams[0])
    done = m.torch.cuda.Event()
    done.record(streams[32])
    return yes(not m.ends(done))


def _blocking_stream(m: Bench) -> Any:
    driver = _driver()
    error, stream = driver.cuStreamCreate(0)
    if int(error):
        raise NotHere(f"cuStreamCreate: {error!r}")
    return m.torch.cuda.ExternalStream(int(stream))


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError:
        raise NotHere("needs cuda-bindings") from None
    return driver


@probe("S11", "work on a blocking stream runs while the default stream is held", NO)
def legacy(m: Bench) -> str:
    return yes(m.runs(_blocking_stream(m), m.default))


@probe("S11", "work on the default stream runs while a blocking stream is held", NO)
def legacy_back(m: Bench) -> str:
    return yes(m.runs(m.default, _blocking_stream(m)))


@probe("S13", "work on a pool stream runs while the default stream is held", YES)
def pool_default(m: Bench) -> str:
    return yes(m.runs(m.a, m.default))


@probe("S13", "work on the default stream runs while a pool stream is held", YES)
def default_pool(m: Bench) -> str:
    return yes(m.runs(m.default, m.a))


@probe("S14", "an ExternalStream over a blocking handle obeys the legacy rule", YES, "inferred")
def external(m: Bench) -> str:
    return yes(not m.runs(_blocking_stream(m), m.default))


# ------------------------------------------------------------ events


@probe("S17", "a fresh event has a CUDA event behind it", NO)
def lazy_event(m: Bench) -> str:
    return yes(m.torch.cuda.Event().cuda_event != 0)


@probe("S18", "a never recorded event: query, and synchronize while all streams are held", "True, returns")
def never_recorded(m: Bench) -> str:
    event = m.torch.cuda.Event()
    return f"{event.query()}, {m.word(event.synchronize, m.a, m.b, m.default)}"


@probe("S18", "a stream that waits for a never recorded event is held by it", NO)
def wait_never(m: Bench) -> str:
    m.b.wait_event(m.torch.cuda.Event())
    return yes(not m.runs(m.b, m.a))


@probe("S19", "query after re-recording on an idle stream, the first record's stream held", "True")
def rerecord(m: Bench) -> str:
    event = m.torch.cuda.Event()
    m.gates.shut(m.a)
    event.record(m.a)
    event.record(m.b)
    m.ends(event)
    return str(event.query())


@probe("S19", "synchronize waits for work that came after the record", NO)
def after_record(m: Bench) -> str:
    event = m.torch.cuda.Event()
    event.record(m.a)
    return yes(m.blocks(event.synchronize, m.a))


@probe("S20", "re-recording on a held stream holds who waited before", NO)
def snapshot(m: Bench) -> str:
    event = m.torch.cuda.Event()
    event.record(m.b)
    m.default.wait_event(event)
    m.gates.shut(m.a)
    event.record(m.a)
    return yes(not m.runs(m.default))


@probe("S20", "wait_event on a held record", RETURNS)
def wait_returns(m: Bench) -> str:
    event = m.torch.cuda.Event()

    def call() -> None:
        event.record(m.a)
        m.b.wait_event(event)

    return m.word(call, m.a)


@probe("S20", "work behind wait_event runs while the record is held", NO)
def wait_holds(m: Bench) -> str:
    event = m.torch.cuda.Event()
    m.gates.shut(m.a)
    event.record(m.a)
    m.b.wait_event(event)
    return yes(m.runs(m.b))


@probe("S22", "wait_stream waits for work enqueued afterwards", NO)
def wait_stream(m: Bench) -> str:
    m.b.wait_stream(m.a)
    return yes(not m.runs(m.b, m.a))


@probe("S23", "event.synchronize on a held record", BLOCKS)
def event_sync(m: Bench) -> str:
    event = m.torch.cuda.Event()

    def call() -> None:
        event.record(m.a)
        event.synchronize()

    return m.word(call, m.a)


@probe("S24", "query on a held record, then once it ran", "False, True")
def query(m: Bench) -> str:
    event = m.torch.cuda.Event()
    m.gates.shut(m.a)
    event.record(m.a)
    before = event.query()
    m.gates.open_all()
    return f"{before}, {m.ends(event, 1.0)}"


@probe("S26", "synchronize of an event made with blocking=True, on a held record", BLOCKS, "mem")
def blocking_flag(m: Bench) -> str:
    event = m.torch.cuda.Event(blocking=True)

    def call() -> None:
        event.record(m.a)
        event.synchronize()

    return m.word(call, m.a)


@probe("S26", "wait on an event made with blocking=True blocks the host", NO, "mem")
def blocking_wait(m: Bench) -> str:
    event = m.torch.cuda.Event(blocking=True)

    def call() -> None:
        event.record(m.a)
        event.wait(m.b)

    return yes(m.blocks(call, m.a))


@probe("S27", "elapsed_time of events that have not both completed", "raises")
def elapsed(m: Bench) -> str:
    first, second = m.torch.cuda.Event(enable_timing=True), m.torch.cuda.Event(enable_timing=True)
    first.record(m.a)
    m.gates.shut(m.a)
    second.record(m.a)
    try:
        first.elapsed_time(second)
    except RuntimeError:
        return "raises"
    return "does not raise"


@probe("S29", "a wait holds although its event object is gone", YES)
def wait_survives(m: Bench) -> str:
    event = m.torch.cuda.Event()
    m.gates.shut(m.a)
    event.record(m.a)
    m.b.wait_event(event)
    del event
    return yes(not m.runs(m.b))


@probe("S31", "a record on the default stream captures earlier work of a blocking stream", YES, "mem")
def legacy_record(m: Bench) -> str:
    event = m.torch.cuda.Event()
    m.gates.shut(_blocking_stream(m))
    event.record(m.default)
    return yes(not m.ends(event))


# ------------------------------------------------------------ host synchronisation


@probe("S32", "stream.synchronize while another stream is held", RETURNS)
def stream_sync(m: Bench) -> str:
    return m.word(m.b.synchronize, m.a)


@probe("S32", "torch.cuda.synchronize while a stream is held", BLOCKS)
def device_sync(m: Bench) -> str:
    return m.word(m.torch.cuda.synchronize, m.a)


@probe("S33", "item() on the default stream while a side stream is held, and while its own is", "returns, blocks")
def item(m: Bench) -> str:
    return f"{m.word(m.device[0].item, m.a)}, {m.word(m.device[0].item, m.default)}"


@probe("S34", "stream.query on a held stream, then once it ran", "False, True")
def stream_query(m: Bench) -> str:
    m.gates.shut(m.a)
    before = m.a.query()
    m.gates.open_all()
    m.torch.cuda.synchronize()
    return f"{before}, {m.a.query()}"


@probe("S36", "set_sync_debug_mode flags item(); flags event.synchronize()", "yes, no")
def debug_mode(m: Bench) -> str:
    import warnings

    event = m.torch.cuda.Event()
    found = []
    m.torch.cuda.set_sync_debug_mode("warn")
    try:
        for call in (m.device[0].item, lambda: (event.record(), event.synchronize())):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call()
            found.append(any("synchroniz" in str(w.message) for w in caught))
    finally:
        m.torch.cuda.set_sync_debug_mode("default")
    return ", ".join(yes(x) for x in found)


# ------------------------------------------------------------ implicit synchronisation


@probe("S37", "cudaMalloc, a new 1 GiB tensor, a new pinned buffer, with a stream held", "returns, returns, returns")
def allocations(m: Bench) -> str:
    driver, torch = _driver(), m.torch
    kept: list[Any] = []
    torch.cuda.empty_cache()
    one = m.word(lambda: kept.append(driver.cuMemAlloc(64 << 20)), m.a)
    two = m.word(lambda: kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda")), m.a)
    limit, m.limit = m.limit, 0.2  # locking pages takes tens of milliseconds by itself
    three = m.word(lambda: kept.append(torch.empty(48 << 20, dtype=torch.uint8, pin_memory=True)), m.a)
    m.limit, m.detail = limit, f"the pinned allocation took {m.milliseconds:.0f} ms"
    driver.cuMemFree(kept[0][1])
    return f"{one}, {two}, {three}"


@probe("S37", "memset and a device-to-device copy on another stream, with a stream held", "returns, returns")
def memset(m: Bench) -> str:
    def fill() -> None:
        with m.torch.cuda.stream(m.b):
            m.device.zero_()

    def copy() -> None:
        with m.torch.cuda.stream(m.b):
            m.other.copy_(m.device)

    return f"{m.word(fill, m.a)}, {m.word(copy, m.a)}"


@probe("S38", "cudaFree with a stream held (may synchronise)", BLOCKS)
def free(m: Bench) -> str:
    driver = _driver()
    _, pointer = driver.cuMemAlloc(1 << 20)
    return m.word(lambda: driver.cuMemFree(pointer), m.a)


@probe("S38", "cudaFreeAsync on another stream, with a stream held", RETURNS)
def free_async(m: Bench) -> str:
    driver = _driver()
    error, pointer = driver.cuMemAllocAsync(1 << 20, m.b.cuda_stream)
    if int(error):
        raise NotHere(f"no stream-ordered allocator ({error!r})")
    m.torch.cuda.synchronize()
    return m.word(lambda: driver.cuMemFreeAsync(pointer, m.b.cuda_stream), m.a)


@probe("S40", "cudaFreeHost with a stream held (may wait for device work)", BLOCKS, "mem")
def free_host(m: Bench) -> str:
    driver = _driver()
    _, pointer = driver.cuMemHostAlloc(1 << 20, 0)
    return m.word(lambda: driver.cuMemFreeHost(pointer), m.a)


@probe("S40", "cudaHostRegister, cudaHostUnregister with a stream held", "returns, blocks", "mem")
def register(m: Bench) -> str:
    driver = _driver()
    memory = m.torch.ones(1 << 20, dtype=m.torch.uint8)
    one = m.word(lambda: driver.cuMemHostRegister(memory.data_ptr(), 1 << 20, 0), m.a)
    two = m.word(lambda: driver.cuMemHostUnregister(memory.data_ptr()), m.a)
    return f"{one}, {two}"


@probe("S41", "empty_cache with something to free and a stream held", BLOCKS)
def empty_cache(m: Bench) -> str:
    block = m.torch.empty(64 << 20, dtype=m.torch.uint8, device="cuda")
    del block
    return m.word(m.torch.cuda.empty_cache, m.a)


@probe("S43", "entering torch.cuda.graph() with a stream held", BLOCKS)
def enter_graph(m: Bench) -> str:
    graph = m.torch.cuda.CUDAGraph()
    context = m.torch.cuda.graph(graph)

    def enter() -> None:
        context.__enter__()
        m.device.add_(1)
        context.__exit__(None, None, None)

    return m.word(enter, m.a)


# ------------------------------------------------------------ host functions


def _host_function(m: Bench, stream: Any, function: Any) -> Any:
    """Enqueue a Python function as a host function. The caller keeps what is returned."""
    driver = _driver()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    callback = kind(lambda _data: function())
    address = ctypes.cast(callback, ctypes.c_void_p).value
    (error,) = driver.cuLaunchHostFunc(stream.cuda_stream, driver.CUhostFn(address), 0)
    if int(error):
        raise NotHere(f"cuLaunchHostFunc: {error!r}")
    return callback


@probe("S103", "a host function runs before the work in front of it has ended", NO)
def host_function_after(m: Bench) -> str:
    ran = threading.Event()
    m.gates.shut(m.a)
    kept = _host_function(m, m.a, ran.set)
    early = ran.wait(m.limit / 2)
    m.clean()
    ran.wait(1.0)
    del kept
    return yes(early)


@probe("S103", "work behind a host function that has not returned runs", NO)
def host_function_holds(m: Bench) -> str:
    go = threading.Event()
    kept = _host_function(m, m.a, lambda: go.wait(1.0))
    done = m.torch.cuda.Event()
    done.record(m.a)
    early = m.ends(done)
    go.set()
    m.clean()
    del kept
    return yes(early)


@probe("S104", "host functions of two streams run at the same time (may be serialised)", NO)
def host_functions(m: Bench) -> str:
    go, second = threading.Event(), threading.Event()
    kept = [_host_function(m, m.a, lambda: go.wait(1.0)), _host_function(m, m.b, second.set)]
    both = second.wait(m.limit)
    go.set()
    m.clean()
    second.wait(1.0)
    del kept
    return yes(both)


# ------------------------------------------------------------ mapped memory


@probe("S107", "a held kernel that reads pinned memory in place sees a host write made after its launch", YES)
def mapped_read(m: Bench) -> str:
    host = m.pinned()
    view = m.mapped(host)
    m.gates.shut(m.a)
    with m.torch.cuda.stream(m.a):
        m.torch.bitwise_or(view, 0, out=m.other)
    host.fill_(2)
    m.clean()
    return yes(int(m.other[0].item()) == 2)


@probe("S109", "a kernel's write to pinned memory is visible to the host after a synchronize", YES, "mem")
def mapped_write(m: Bench) -> str:
    host = m.pinned()
    view = m.mapped(host)
    for value in range(2, 52):
        with m.torch.cuda.stream(m.a):
            view.fill_(value)
        m.a.synchronize()
        if not bool((host == value).all()):
            return NO
    return YES


@probe("S10", "work of a high-priority stream that waits for a held low-priority record runs", NO, "mem")
def priority(m: Bench) -> str:
    low, high = m.torch.cuda.Stream(priority=0), m.torch.cuda.Stream(priority=-1)
    m.gates.shut(low)
    first = m.torch.cuda.Event()
    first.record(low)
    high.wait_event(first)
    return yes(m.runs(high))


@probe("S142", "a backward operation runs on the stream of its forward, while that stream is held", NO)
def backward(m: Bench) -> str:
    torch = m.torch
    x = torch.ones(64, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(m.a):
        y = (x * 2).sum()
    torch.cuda.synchronize()
    m.gates.shut(m.a)
    y.backward()
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream())
    ran = m.ends(done)
    m.detail = "the caller's stream after backward() waits for the forward's stream"
    return yes(ran)


@probe("S141", "CUDA in a forked child after the parent used it", "raises")
def fork(m: Bench) -> str:
    import os

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            m.torch.zeros(1, device="cuda")
            os.write(write, b"works")
        except RuntimeError:
            os.write(write, b"raises")
        finally:
            os._exit(0)
    os.close(write)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.01)
    answer = os.read(read, 16).decode()
    os.close(read)
    return answer
