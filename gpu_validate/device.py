"""The GPU at hand: PyTorch, gates, watchdog and streams, made once and shared by all plans."""

from __future__ import annotations

import re
import warnings
from typing import Any

from fencepost.gpu_validate.gates import Gates, Watchdog
from fencepost.gpu_validate.layout import ELEMENTS

MEBI = 1 << 20


class NoGpu(RuntimeError):
    """No GPU can be used here. The text is one line."""


def torch_or_error() -> Any:
    """The torch module with a GPU. Raises `NoGpu`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns on import where numpy is missing
            import torch
    except ImportError:
        raise NoGpu("PyTorch is not installed: pip install 'fencepost[gpu]'") from None
    if not torch.cuda.is_available():
        raise NoGpu(f"no GPU: PyTorch {torch.__version__} sees none; --dry-run needs none")
    return torch


def out_of_memory(error: BaseException) -> str | None:
    """One line when an error says that there is no memory left on the GPU, or none that can be page-locked; else None.

    PyTorch has a type of its own for its allocator's; where CUDA starts or locks pages it is a plain RuntimeError.
    """
    text = " ".join(str(error).split())
    if type(error).__name__ != "OutOfMemoryError" and not (isinstance(error, RuntimeError) and "out of memory" in text):
        return None
    asked = re.search(r"Tried to allocate ([0-9.]+ \w+)", text)
    free = re.search(r"of which ([0-9.]+ \w+) is free", text)
    found = ", ".join(
        f"{match.group(1)} {what}" for match, what in ((asked, "asked for"), (free, "free")) if match is not None
    )
    return (
        "the GPU is out of memory" + (f" ({found})" if found else "")
        + "; end what else uses it, or name another one in CUDA_VISIBLE_DEVICES"
    )  # fmt: skip


class Mapped:
    """Page-locked memory shown to torch as device memory (S107)."""

    def __init__(self, address: int, elements: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (elements,), "typestr": "<i4", "data": (address, False), "version": 3,
        }  # fmt: skip


class Device:
    """What plans share on the machine: torch, gates, watchdog, streams. `limit`: the watchdog's, seconds."""

    def __init__(self, gates: Gates, limit: float = 0.02) -> None:
        self.torch = torch_or_error()
        self.gates = gates
        self.watchdog = Watchdog(gates.open_all, limit, gates.let_pass)
        self.count = self.torch.cuda.device_count()
        self._streams: dict[tuple[int, int], Any] = {}
        self.warm_up()

    def warm_up(self) -> None:
        """Run each kernel once on every GPU, so that no module is loaded behind a shut gate (S44)."""
        torch = self.torch
        for gpu in range(self.count):
            with torch.cuda.device(gpu):
                a = torch.ones(ELEMENTS, dtype=torch.int32, device=f"cuda:{gpu}")
                b = torch.zeros_like(a)
                host = torch.ones(ELEMENTS, dtype=torch.int32, pin_memory=True)
                torch.bitwise_or(a, 0, out=b)
                b.fill_(3)
                b.zero_()
                b.copy_(a)
                b.copy_(host, non_blocking=True)
                host.copy_(b, non_blocking=True)
                int(b[0].item())
                bool((a != b).any().item())
                (a != b).view(1, -1).any(1).nonzero().tolist()
                torch.cuda.synchronize(gpu)
        for gpu in range(1, self.count):  # peer access is switched on at the first copy
            torch.zeros(8, dtype=torch.int32, device=f"cuda:{gpu}").to("cuda:0")
            torch.zeros(8, dtype=torch.int32, device="cuda:0").to(f"cuda:{gpu}")
            torch.cuda.synchronize(gpu)

    def stand_in(self, gpu: int) -> int:
        """The GPU that stands for one of a design: that of its number, where there is one. Agents outside have GPU 0."""
        return gpu % self.count if gpu >= 0 else 0

    def stream(self, gpu: int, number: int) -> Any:
        """The number-th stream of a GPU that is not the default one; streams are made once and kept."""
        key = (gpu, number)
        if key not in self._streams:
            self._streams[key] = self.torch.cuda.Stream(device=gpu)
        return self._streams[key]

    def close(self) -> None:
        """End the watchdog."""
        self.watchdog.close()
