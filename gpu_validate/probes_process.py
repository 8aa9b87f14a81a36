"""Probes that need a process of their own: environment variables, broken captures, lazy loading, collectives.

`python -m fencepost.gpu_validate.probes_process NAME` runs one child and prints what it measured on its last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from fencepost.gpu_validate.probing import BLOCKS, NO, RETURNS, Bench, NotHere, probe, size_text, yes

TIMEOUT = 90


def child(name: str, **environment: str) -> str:
    """Run a child of this module; its last line of output. Raises `NotHere` with the reason."""
    path = os.pathsep.join(p for p in sys.path if p)
    full = {**os.environ, "PYTHONPATH": path, **environment}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fencepost.gpu_validate.probes_process", name],
            capture_output=True, text=True, timeout=TIMEOUT, env=full, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotHere(f"the process did not end within {TIMEOUT} s") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise NotHere(f"the process failed: {' '.join(done.stderr.split())[-200:]}")
    return lines[-1]


def _child_bench() -> tuple[Any, Bench]:
    from fencepost.gpu_validate.gates import make

    bench = Bench(make("auto"))
    return bench.torch, bench


# ------------------------------------------------------------ launch blocking

BLOCKING_SIZES = (1024, 64 * 1024, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)


def launch_blocking() -> None:
    """By size: does a pinned copy behind a delay kernel come back early, and is the source then free?"""
    import torch

    stream = torch.cuda.Stream()
    cycles = _cycles(torch, 10.0)
    rows = {}
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1000)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        torch.cuda._sleep(cycles)
        rows["kernel"] = {"launch_ms": 1e3 * (time.perf_counter() - begin)}
        torch.cuda.synchronize()
        for size in BLOCKING_SIZES:
            host = torch.ones(size // 4, dtype=torch.int32).pin_memory()
            back = torch.ones(size // 4, dtype=torch.int32).pin_memory()
            target = torch.zeros(size // 4, dtype=torch.int32, device="cuda")
            counts = []
            for source in ("h2d", "d2h"):
                wrong, call = 0, []
                for _ in range(10):
                    host.fill_(1)
                    target.fill_(3)
                    back.fill_(0)
                    torch.cuda.synchronize()
                    torch.cuda._sleep(cycles)
                    begin = time.perf_counter()
                    if source == "h2d":
                        target.copy_(host, non_blocking=True)
                        call.append(1e3 * (time.perf_counter() - begin))
                        host.fill_(2)
                        torch.cuda.synchronize()
                        wrong += bool((target != 1).any().item())
                    else:
                        back.copy_(target, non_blocking=True)
                        call.append(1e3 * (time.perf_counter() - begin))
                        wrong += bool((back != 3).any().item())
                        torch.cuda.synchronize()
                counts.append((wrong, sorted(call)[5]))
            (h2d, h2d_ms), (d2h, d2h_ms) = counts
            rows[size_text(size)] = {"h2d_wrong": h2d, "h2d_ms": h2d_ms, "d2h_wrong": d2h, "d2h_ms": d2h_ms, "of": 10}
            del host, back, target
    print(json.dumps(rows))


def _cycles(torch: Any, milliseconds: float) -> int:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1000)
    start.record()
    torch.cuda._sleep(5_000_000)
    end.record()
    end.synchronize()
    return int(5_000_000 * milliseconds / start.elapsed_time(end))


@probe("S113", "with CUDA_LAUNCH_BLOCKING=1: a kernel launch; pinned copies behind a kernel that read or arrived late", "blocks, by size")
def blocking(m: Bench) -> str:
    rows = json.loads(child("launch_blocking", CUDA_LAUNCH_BLOCKING="1"))
    plain = json.loads(child("launch_blocking"))
    kernel = BLOCKS if rows["kernel"]["launch_ms"] > 5 else RETURNS
    texts = []
    late = []
    for size, row in rows.items():
        if size == "kernel":
            continue
        late.append(row["h2d_wrong"] + row["d2h_wrong"])
        without = plain[size]
        texts.append(
            f"{size}: H2D {row['h2d_wrong']}/10 (without {without['h2d_wrong']}/10), "
            f"D2H {row['d2h_wrong']}/10 (without {without['d2h_wrong']}/10)"
        )
    m.detail = "wrong behind a 10 ms kernel: " + "; ".join(texts)
    return f"{kernel}, {'none' if not any(late) else 'by size' if not all(late) else 'all'}"


@probe("S114", "setting CUDA_LAUNCH_BLOCKING after CUDA started makes launches block", NO, "mem")
def blocking_late(m: Bench) -> str:
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    try:

        def call() -> None:
            with m.torch.cuda.stream(m.a):
                m.device.add_(1)

        return yes(m.blocks(call, m.a))
    finally:
        del os.environ["CUDA_LAUNCH_BLOCKING"]


# ------------------------------------------------------------ hardware queues


def queues() -> None:
    """How many of 23 streams wait when two delay kernels are queued on another stream."""
    import torch

    streams = [torch.cuda.Stream() for _ in range(24)]
    cell = torch.zeros(1, device="cuda")
    cycles = _cycles(torch, 20.0)
    for stream in streams:
        with torch.cuda.stream(stream):
            cell.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.stream(streams[0]):
        torch.cuda._sleep(cycles)
        torch.cuda._sleep(cycles)
    events = []
    for stream in streams[1:]:
        with torch.cuda.stream(stream):
            cell.add_(1)
            event = torch.cuda.Event()
            event.record()
            events.append(event)
    time.sleep(0.010)
    waiting = sum(not event.query() for event in events)
    torch.cuda.synchronize()
    print(waiting)


@probe("S115", "streams of 23 that wait for two kernels of another: 1 connection, 8, 32", "23, 0, 0")
def connections(m: Bench) -> str:
    return ", ".join(child("queues", CUDA_DEVICE_MAX_CONNECTIONS=n) for n in ("1", "8", "32"))


def gated_queues() -> None:
    """How many gated streams leave another stream free."""
    torch, bench = _child_bench()
    streams = [torch.cuda.Stream() for _ in range(32)]
    free = 0
    for count in range(1, 31):
        for stream in streams[:count]:
            bench.gates.shut(stream)
        done = torch.cuda.Event()
        with torch.cuda.stream(streams[31]):
            bench.other.add_(1)
            done.record()
        moved = bench.ends(done, 0.005)
        bench.clean()
        if not moved:
            break
        free = count
    print(free)


@probe("S116", "gated streams beside which another stream still runs, of 30: 32 connections; 8; 1", "30, 7, 0", "inferred")
def gated(m: Bench) -> str:
    return ", ".join(child("gated_queues", CUDA_DEVICE_MAX_CONNECTIONS=n) for n in ("32", "8", "1"))


# ------------------------------------------------------------ lazy loading


def lazy() -> None:
    """Whether the first launch of a kernel waits for a held stream."""
    import torch
    from fencepost.gpu_validate.gates import make

    gates = make("auto")
    held, other = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    opened = threading.Event()

    def open_late() -> None:
        opened.set()
        gates.open_all()

    gates.shut(held)
    threading.Timer(0.2, open_late).start()
    with torch.cuda.stream(other):
        torch.erfinv(x)
        torch.lgamma(x)
        torch.cuda._sleep(100)
    blocked = opened.is_set()
    torch.cuda.synchronize()
    print(BLOCKS if blocked else RETURNS)


@probe("S44", "the first launch of a kernel with another stream held (may wait)", BLOCKS, "mem")
def lazy_loading(m: Bench) -> str:
    return child("lazy")


# ------------------------------------------------------------ captures and other allocators


def graph_sync() -> None:
    """A host synchronisation inside a capture."""
    import torch

    torch.zeros(1, device="cuda")
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.cuda.synchronize()
        print("works")
    except Exception:
        print("raises")
    sys.stdout.flush()
    os._exit(0)


def graph_unpinned() -> None:
    """A copy from unpinned memory inside a capture."""
    import torch

    x = torch.zeros(64, device="cuda")
    host = torch.ones(64)
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.copy_(host, non_blocking=True)
        print("works")
    except Exception:
        print("raises")
    sys.stdout.flush()
    os._exit(0)


def no_caching() -> None:
    """Dropping a tensor with a stream held, without the caching allocator."""
    torch, bench = _child_bench()
    kept = [torch.empty(1 << 20, device="cuda")]
    print(bench.word(kept.clear, bench.a))


def malloc_async() -> None:
    """Whether memory comes back while a side stream's use is held."""
    torch, bench = _child_bench()
    x = torch.empty(14 << 20, dtype=torch.uint8, device="cuda")
    address = x.data_ptr()
    bench.gates.shut(bench.a)
    with torch.cuda.stream(bench.a):
        x[:64].add_(1)
    del x
    y = torch.empty(14 << 20, dtype=torch.uint8, device="cuda")
    print(yes(y.data_ptr() == address))
    bench.clean()


# ------------------------------------------------------------ collectives


def collective() -> None:
    """async_op on one rank: does the group's stream wait for ours, does wait() block the host, who is ordered?"""
    import torch
    import torch.distributed as dist

    _, bench = _child_bench()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("nccl", rank=0, world_size=1)
    x = torch.ones(1 << 20, device="cuda")
    for async_op in (True, False):
        work = dist.all_reduce(x, async_op=async_op)
        if work is not None:
            work.wait()
    torch.cuda.synchronize()
    found: list[str] = []
    bench.gates.shut(bench.a)
    with torch.cuda.stream(bench.a):
        work = dist.all_reduce(x, async_op=True)
    found.append(yes(not work.is_completed()))
    bench.clean()
    works: list[Any] = []

    def call() -> None:
        with torch.cuda.stream(bench.a):
            works.append(dist.all_reduce(x, async_op=True))
        with torch.cuda.stream(bench.b):
            works[0].wait()

    found.append(bench.word(call, bench.a))
    bench.gates.shut(bench.a)
    with torch.cuda.stream(bench.a):
        work = dist.all_reduce(x, async_op=True)
    with torch.cuda.stream(bench.b):
        work.wait()
    waited = not bench.runs(bench.b)
    found.append(yes(waited))
    bench.gates.shut(bench.a)
    with torch.cuda.stream(bench.a):
        work = dist.all_reduce(x, async_op=True)
    found.append(yes(bench.runs(bench.b)))
    print(", ".join(found))
    sys.stdout.flush()
    os._exit(0)


@probe(
    "S121, S123, S125, S126",
    "one rank, async all_reduce on a held stream: pending; wait() on another stream; holds that stream; "
    "a stream that does not wait runs",
    "yes, returns, yes, yes",
)
def collectives(m: Bench) -> str:
    return child("collective")


@probe("S131", "a collective completes on one rank before the other has started it", NO, "mem", gpus=2)
def rendezvous(m: Bench) -> str:
    return child("two_ranks")


def two_ranks() -> None:
    """Two ranks, one held in front of its all_reduce: does the other's complete? Needs two GPUs."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queue = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, queue)) for rank in range(2)]
    for process in ranks:
        process.start()
    print(queue.get(timeout=60))
    for process in ranks:
        process.join(timeout=30)


def _rank(rank: int, queue: Any) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29513")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    x = torch.ones(1024, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        torch.cuda._sleep(_cycles(torch, 200.0))
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        time.sleep(0.02)
        queue.put(yes(work.is_completed()))
    torch.cuda.synchronize()
    dist.destroy_process_group()


CHILDREN = {
    f.__name__: f
    for f in (launch_blocking, queues, gated_queues, lazy, graph_sync, graph_unpinned, no_caching, malloc_async,
              collective, two_ranks)
}  # fmt: skip

if __name__ == "__main__":
    CHILDREN[sys.argv[1]]()
