"""The bench that probes run on: hold a stream, call something, and see whether it returned, ran, or read early.

A probe is one small experiment for one or more rules of docs/semantics.md. It gives what was measured, as text that is
compared with what the rule says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from fencepost.gpu_validate.device import MEBI, Mapped, torch_or_error
from fencepost.gpu_validate.gates import Gates
from fencepost.model.program import Data

STUCK = 5.0
"""Seconds after which all gates are opened behind a probe's back."""
RETURNS, BLOCKS = "returns", "blocks"
YES, NO = "yes", "no"


class NotHere(RuntimeError):
    """The probe cannot be made on this machine; the text says why."""


class Probe(NamedTuple):
    """`rules`: as in docs/semantics.md. `tag`: the rule's status there ("seen", "mem", "inferred")."""

    rules: str
    what: str
    expected: str
    tag: str
    run: Callable[[Bench], str]
    gpus: int = 1


class Measured(Data, frozen=True):
    """What a probe gave. `agrees` is None where nothing was measured, and `why` says why."""

    rules: str
    what: str
    expected: str
    tag: str
    measured: str | None = None
    agrees: bool | None = None
    detail: str = ""
    why: str = ""


PROBES: list[Probe] = []


def probe(rules: str, what: str, expected: str, tag: str = "seen", gpus: int = 1) -> Callable[..., Callable[[Bench], str]]:
    """Enter an experiment into the list."""

    def enter(function: Callable[[Bench], str]) -> Callable[[Bench], str]:
        PROBES.append(Probe(rules, what, expected, tag, function, gpus))
        return function

    return enter


class Bench:
    """Streams, a gate with a timer, and small helpers. `limit`: after how many seconds a held gate opens."""

    def __init__(self, gates: Gates, limit: float = 0.02) -> None:
        self.torch = torch_or_error()
        self.gates, self.limit = gates, limit
        torch = self.torch
        self.a, self.b = torch.cuda.Stream(), torch.cuda.Stream()
        self.default = torch.cuda.default_stream()
        self.detail = ""
        self.n = 1024
        self.device = torch.zeros(self.n, dtype=torch.int32, device="cuda")
        self.other = torch.zeros_like(self.device)
        self.warm_up()

    def warm_up(self) -> None:
        """Every kernel that the probes launch, once."""
        torch = self.torch
        host = self.pinned()
        for stream in (self.default, self.a, self.b):
            with torch.cuda.stream(stream):
                self.device.fill_(1)
                self.device.zero_()
                self.other.copy_(self.device)
                self.device.copy_(host, non_blocking=True)
                host.copy_(self.device, non_blocking=True)
                self.device.add_(1)
                torch.bitwise_or(self.device, 0, out=self.other)
                self.device[0].item()
                x = torch.ones(64, device="cuda", requires_grad=True)
                (x * 2).sum().backward()
                self.device.to(torch.float32)
                self.device.view(32, 32).t().contiguous()
                torch.cuda._sleep(1000)
        torch.cuda.synchronize()

    def pinned(self, elements: int | None = None, value: int = 1) -> Any:
        """Page-locked int32 memory."""
        return self.torch.full((elements or self.n,), value, dtype=self.torch.int32).pin_memory()

    def mapped(self, host: Any) -> Any:
        """Pinned memory as kernels see it (S107)."""
        return self.torch.as_tensor(Mapped(host.data_ptr(), len(host)), device="cuda")

    def clean(self) -> None:
        """Open everything and come to rest."""
        self.gates.open_all()
        self.torch.cuda.synchronize()
        self.torch.cuda.set_stream(self.default)

    def blocks(self, call: Callable[[], object], *streams: Any) -> bool:
        """Whether the call came back only because the gates on the streams were opened after `limit` seconds."""
        opened = threading.Event()

        def open_late() -> None:
            opened.set()
            self.gates.open_all()

        for stream in streams:
            self.gates.shut(stream)
        timer = threading.Timer(self.limit, open_late)
        timer.start()
        begin = time.perf_counter()
        try:
            call()
            late = opened.is_set()
        finally:
            self.milliseconds = 1e3 * (time.perf_counter() - begin)
            timer.cancel()
            timer.join()
            self.clean()
        return late

    def word(self, call: Callable[[], object], *streams: Any) -> str:
        """`blocks` as text."""
        return BLOCKS if self.blocks(call, *streams) else RETURNS

    def runs(self, stream: Any, *held: Any) -> bool:
        """Whether a kernel put on `stream` now runs while gates on the other streams are shut."""
        torch = self.torch
        for other in held:
            self.gates.shut(other)
        done = torch.cuda.Event()
        with torch.cuda.stream(stream):
            self.other.add_(1)
            done.record()
        ran = self.ends(done)
        self.clean()
        return ran

    def ends(self, event: Any, within: float | None = None) -> bool:
        """Whether an event completes within the limit."""
        end = time.perf_counter() + (within or self.limit / 2)
        while time.perf_counter() < end:
            if event.query():
                return True
        return bool(event.query())


def yes(value: bool) -> str:
    """As text."""
    return YES if value else NO


def size_text(size: int) -> str:
    """Bytes in words.

    >>> size_text(4096), size_text(16 << 20), size_text(32)
    ('4 KiB', '16 MiB', '32 B')
    """
    if size >= MEBI:
        return f"{size // MEBI} MiB"
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def measure(bench: Bench, chosen: list[Probe], progress: Callable[[Measured], None] | None = None) -> list[Measured]:
    """Make the experiments one by one. One that fails says why and does not keep the others from running."""
    found: list[Measured] = []
    gpus = bench.torch.cuda.device_count()
    for one in chosen:
        head = (one.rules, one.what, one.expected, one.tag)
        bench.detail = ""
        if gpus < one.gpus:
            result = Measured(*head, why=f"needs {one.gpus} GPUs, there is {gpus}")
        else:
            # A probe that itself gets stuck behind its gate is opened, and then reports what it saw.
            stuck = threading.Timer(STUCK, bench.gates.open_all)
            stuck.daemon = True
            stuck.start()
            try:
                got = one.run(bench)
                result = Measured(*head, got, got == one.expected, bench.detail)
            except NotHere as error:
                result = Measured(*head, why=str(error))
            except Exception as error:  # a probe may meet any error of the driver; the others must still run
                result = Measured(*head, why=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            finally:
                stuck.cancel()
            try:
                bench.clean()
            except Exception as error:  # a sticky error of the context: nothing after it is a measurement
                why = f"left the GPU in error: {' '.join(str(error).split())[:120]}"
                found.append(msgspec.structs.replace(result, agrees=None, why=why))
                if progress is not None:
                    progress(found[-1])
                break
        found.append(result)
        if progress is not None:
            progress(result)
    return found
