"""Probes of copies between host and device, by direction, size, layout and kind of host memory (S45 to S61)."""

from __future__ import annotations

from typing import Any

from fencepost.gpu_validate.device import MEBI
from fencepost.gpu_validate.probes_sync import _driver
from fencepost.gpu_validate.probing import BLOCKS, NO, RETURNS, YES, Bench, probe, size_text, yes

SIZES = (1024, 64 * 1024, MEBI, 4 * MEBI, 16 * MEBI, 64 * MEBI)


def _refill(m: Bench, host: Any, elements: int, non_blocking: bool = True) -> tuple[bool, float]:
    """Copy host -> device on a held stream, refill the source when the call is back: (call blocked, share of wrong)."""
    torch = m.torch
    target = torch.zeros(elements, dtype=host.dtype, device="cuda")
    torch.cuda.synchronize()
    host.fill_(1)

    def call() -> None:
        with torch.cuda.stream(m.a):
            target.copy_(host, non_blocking=non_blocking)
        host.fill_(2)

    limit, m.limit = m.limit, 0.1  # refilling 64 MiB takes a while by itself
    blocked = m.blocks(call, m.a)
    m.limit = limit
    return blocked, float((target != 1).sum().item()) / elements


@probe("S45", "pinned host to device, source refilled when the call is back: returns, elements wrong", "returns, all")
def pinned_h2d(m: Bench) -> str:
    texts, blocked, shares = [], [], []
    for size in SIZES:
        late, wrong = _refill(m, m.pinned(size // 4), size // 4)
        blocked.append(late)
        shares.append(wrong)
        texts.append(f"{size_text(size)}: {BLOCKS if late else RETURNS}, {wrong:.0%} wrong")
    m.detail = "; ".join(texts)
    return f"{_all(blocked)}, {'all' if min(shares) == 1 else 'none' if max(shares) == 0 else 'some'}"


def _all(blocked: list[bool]) -> str:
    return BLOCKS if all(blocked) else RETURNS if not any(blocked) else "by size"


@probe("S46", "device to pinned host on a held stream: returns, elements there at once", "returns, none")
def pinned_d2h(m: Bench) -> str:
    torch = m.torch
    texts, blocked, right = [], [], []
    for size in SIZES:
        source = torch.full((size // 4,), 7, dtype=torch.int32, device="cuda")
        host = m.pinned(size // 4)
        torch.cuda.synchronize()
        seen: list[float] = []

        def call(host: Any = host, source: Any = source, seen: list[float] = seen) -> None:
            with torch.cuda.stream(m.a):
                host.copy_(source, non_blocking=True)
            seen.append(float((host == 7).sum().item()) / len(host))

        limit, m.limit = m.limit, 0.1  # looking at 64 MiB takes a while by itself
        blocked.append(m.blocks(call, m.a))
        m.limit = limit
        right.append(seen[0])
        texts.append(f"{size_text(size)}: {BLOCKS if blocked[-1] else RETURNS}, {seen[0]:.0%} there")
    m.detail = "; ".join(texts)
    return f"{_all(blocked)}, {'all' if min(right) == 1 else 'none' if max(right) == 0 else 'some'}"


@probe("S47", "pageable host to device with non_blocking: elements wrong after a refill of the source", "none", "mem")
def pageable_h2d(m: Bench) -> str:
    texts, shares = [], []
    for size in (32, *SIZES):
        late, wrong = _refill(m, m.torch.ones(size // 4, dtype=m.torch.int32), size // 4)
        shares.append(wrong)
        texts.append(f"{size_text(size)}: {BLOCKS if late else RETURNS}, {wrong:.0%} wrong")
    m.detail = "; ".join(texts)
    return "none" if max(shares) == 0 else "some"


@probe("S48", "device to pageable host with non_blocking, on a held stream", BLOCKS)
def pageable_d2h(m: Bench) -> str:
    torch = m.torch
    texts, blocked = [], []
    for size in SIZES:
        source = torch.full((size // 4,), 7, dtype=torch.int32, device="cuda")
        host = torch.zeros(size // 4, dtype=torch.int32)
        torch.cuda.synchronize()

        def call(host: Any = host, source: Any = source) -> None:
            with torch.cuda.stream(m.a):
                host.copy_(source, non_blocking=True)

        blocked.append(m.blocks(call, m.a))
        texts.append(f"{size_text(size)}: {BLOCKS if blocked[-1] else RETURNS}")
    m.detail = "; ".join(texts)
    return _all(blocked)


@probe("S49", "host to host, and device to device, on a held stream", "returns, returns")
def same_side(m: Bench) -> str:
    first, second = m.pinned(), m.pinned()

    def host() -> None:
        with m.torch.cuda.stream(m.a):
            first.copy_(second, non_blocking=True)

    def device() -> None:
        with m.torch.cuda.stream(m.a):
            m.other.copy_(m.device)

    return f"{m.word(host, m.a)}, {m.word(device, m.a)}"


@probe("S50", "synchronous cudaMemcpy device to host waits for a held non-blocking stream", NO)
def sync_memcpy(m: Bench) -> str:
    driver = _driver()
    host = m.torch.zeros(1024, dtype=m.torch.int32)
    return yes(m.blocks(lambda: driver.cuMemcpyDtoH(host.data_ptr(), m.device.data_ptr(), 4096), m.a))


@probe("S53", "copy_ with non_blocking=False: its own stream held; another stream held", "blocks, returns")
def blocking_copy(m: Bench) -> str:
    host = m.pinned()

    def call() -> None:
        with m.torch.cuda.stream(m.a):
            m.device.copy_(host)

    return f"{m.word(call, m.a)}, {m.word(call, m.b)}"


@probe("S55", "strided pinned source with non_blocking: returns, elements wrong after a refill", "returns, none", "inferred")
def strided_source(m: Bench) -> str:
    torch = m.torch
    host = m.pinned(2048).view(32, 64).t()
    target = torch.zeros(64, 32, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()

    def call() -> None:
        with torch.cuda.stream(m.a):
            target.copy_(host, non_blocking=True)
        host.fill_(2)

    late = m.blocks(call, m.a)
    wrong = int((target != 1).sum().item())
    return f"{BLOCKS if late else RETURNS}, {'none' if wrong == 0 else f'{wrong} of 2048'}"


@probe("S56", "strided pinned target with non_blocking: returns or blocks, elements wrong at once", "blocks, none", "inferred")
def strided_target(m: Bench) -> str:
    torch = m.torch
    host = m.pinned(2048).view(32, 64).t()
    source = torch.full((64, 32), 7, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    seen: list[int] = []

    def call() -> None:
        with torch.cuda.stream(m.a):
            host.copy_(source, non_blocking=True)
        seen.append(int((host != 7).sum().item()))

    late = m.blocks(call, m.a)
    return f"{BLOCKS if late else RETURNS}, {'none' if seen[0] == 0 else f'{seen[0]} of 2048'}"


@probe("S57", "pinned source of another dtype with non_blocking: elements wrong after a refill", "all")
def converting(m: Bench) -> str:
    torch = m.torch
    host = m.pinned()
    target = torch.zeros(m.n, dtype=torch.float32, device="cuda")
    target.copy_(host, non_blocking=True)
    torch.cuda.synchronize()

    def call() -> None:
        with torch.cuda.stream(m.a):
            target.copy_(host, non_blocking=True)
        host.fill_(2)

    m.detail = m.word(call, m.a)
    wrong = int((target != 1).sum().item())
    return "all" if wrong == m.n else "none" if wrong == 0 else "some"


@probe("S57", "a blocking copy of another dtype on a held stream", BLOCKS)
def converting_blocking(m: Bench) -> str:
    torch = m.torch
    host = m.pinned()
    target = torch.zeros(m.n, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()

    def call() -> None:
        with torch.cuda.stream(m.a):
            target.copy_(host)

    return m.word(call, m.a)


@probe("S58", ".to('cpu', non_blocking=True): result pinned, filled when the call is back", "yes, no")
def to_cpu(m: Bench) -> str:
    torch = m.torch
    source = torch.full((m.n,), 7, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    m.gates.shut(m.a)
    with torch.cuda.stream(m.a):
        host = source.to("cpu", non_blocking=True)
    filled = bool((host == 7).all())
    m.clean()
    return f"{yes(host.is_pinned())}, {yes(filled)}"


@probe("S60", "pin_memory() while every stream is held", RETURNS, "mem")
def pin_memory(m: Bench) -> str:
    memory = m.torch.ones(m.n, dtype=m.torch.int32)
    return m.word(memory.pin_memory, m.a, m.b, m.default)


@probe("S59", "copy_ between GPUs: waits for the source's current stream; the target's later work waits", "yes, yes", gpus=2)
def peer_copy(m: Bench) -> str:
    torch = m.torch
    there = torch.zeros(m.n, dtype=torch.int32, device="cuda:1")
    done = torch.cuda.Event()
    m.gates.shut(m.default)
    there.copy_(m.device, non_blocking=True)
    with torch.cuda.device(1):
        done.record(torch.cuda.current_stream(1))
        held = not m.ends(done)
    m.clean()
    with torch.cuda.device(1):
        m.gates.shut(torch.cuda.current_stream(1))
    there.copy_(m.device, non_blocking=True)
    after = torch.cuda.Event()
    after.record(torch.cuda.current_stream(0))
    waits = not m.ends(after)
    m.clean()
    torch.cuda.synchronize(1)
    return f"{yes(held)}, {yes(waits)}"


@probe("S16", "an operation on another GPU's tensor uses the thread's current stream of that GPU", YES, "mem", gpus=2)
def other_gpu_stream(m: Bench) -> str:
    torch = m.torch
    there = torch.zeros(m.n, dtype=torch.int32, device="cuda:1")
    side = torch.cuda.Stream(device=1)
    with torch.cuda.stream(side):
        there.add_(1)  # loads the kernel on that GPU (S44)
    torch.cuda.synchronize(1)
    with torch.cuda.device(1):
        m.gates.shut(side)
    with torch.cuda.stream(side), torch.cuda.device(0):
        there.add_(1)
    held = not side.query()
    m.clean()
    torch.cuda.synchronize(1)
    return yes(held)
