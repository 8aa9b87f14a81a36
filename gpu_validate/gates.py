"""Gates: hold a stream at a point until the host opens it, with a watchdog that opens all of them and says so.

Three kinds behind one interface. `MemoryGates` are stream memory operations (cuStreamWaitValue32): exact, no kernel, no
SM. `SleepGates` are a delay kernel (`torch.cuda._sleep`): they open by themselves. `HipGates` are HIP's stream memory
operations, written after its documentation and untested. A gate must not be shut on a stream whose kernels have not run
once before: the first launch loads modules, and may wait for running work (S44).
"""

from __future__ import annotations

import ctypes
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

WORDS = 1024
"""Gates that can be shut at one time."""
CAPTURED = 256
"""Gates in captured graphs at one time."""
MEETING = 1024
"""Words through which the streams of a plan meet, at one time."""
NEVER = 0x3FFFFFFF
"""A word gets there only when a trial is over."""

GEQ = 0
"""CU_STREAM_WAIT_VALUE_GEQ and hipStreamWaitValueGte: go on when (int32)(word - value) >= 0."""


class NoGates(RuntimeError):
    """Gates of the asked kind cannot be had here. The text is one line: what is missing and what to do."""


class Gates(Protocol):
    """What a kind of gate offers. Streams are `torch.cuda.Stream`s."""

    name: str
    exact: bool
    """Whether a shut gate stays shut until it is opened."""

    def shut(self, stream: Any) -> int:
        """Put a gate at the tail of the stream; returns its ticket. Never blocks."""

    def open(self, ticket: int) -> None:
        """Open one gate. Opening twice does nothing."""

    def open_all(self) -> None:
        """Open every gate that was shut so far. Called by the watchdog from another thread."""

    def capture(self, stream: Any) -> int:
        """Put a gate into the graph that the stream is capturing; returns its key. It is open until it is armed."""

    def arm(self, key: int, shut: bool) -> None:
        """Shut or open a captured gate for the launches that have not come to it yet."""

    def word(self) -> int:
        """A word through which streams meet; returns its key. Raises `NoGates` where there are none."""
        raise NoGates(f"streams that wait for each other need stream memory operations; {self.name} is none")

    def let_pass(self) -> None:
        """Let everything pass that waits for a word: the trial is lost. Called by the watchdog from another thread."""

    def store(self, key: int, value: int, stream: Any = None) -> None:
        """Store to a word: as an item of the stream, or now."""
        self.word()

    def wait(self, key: int, value: int, stream: Any) -> None:
        """Let the stream wait until a word is at least the value."""
        self.word()

    def load(self, key: int) -> int:
        """What is in a word now."""
        return 0


class _Words(Gates):
    """Gates on a ring of 32-bit words in pinned memory. A ticket is the value that its word must reach.

    Ticket t uses word t mod WORDS and value t // WORDS + 1, so a word never has to be reset. Captured gates have words of
    their own behind those: their value is captured with them, so they are reset instead.
    """

    exact = True

    def __init__(self, host: int, device: int) -> None:
        self._host, self._device = host, device
        self._next = 0
        self._opened = 0
        self._captured = 0
        self._meeting = 0

    def shut(self, stream: Any) -> int:
        ticket = self._next
        self._next += 1
        word, value = ticket % WORDS, ticket // WORDS + 1
        self._wait(stream, self._device + 4 * word, value)
        return ticket

    def open(self, ticket: int) -> None:
        word = self._word(ticket % WORDS)
        word.value = max(word.value, ticket // WORDS + 1)

    def open_all(self) -> None:
        last = self._next
        for ticket in range(max(self._opened, last - WORDS), last):
            self.open(ticket)
        self._opened = last
        for key in range(min(self._captured, CAPTURED)):
            self.arm(key, False)

    def capture(self, stream: Any) -> int:
        key = self._captured % CAPTURED  # graphs of earlier plans are gone by the time their words come round again
        self._captured += 1
        self.arm(key, False)
        self._wait(stream, self._device + 4 * (WORDS + key), 1)
        return key

    def arm(self, key: int, shut: bool) -> None:
        self._word(WORDS + key).value = 0 if shut else 1

    def word(self) -> int:
        key = WORDS + CAPTURED + self._meeting % MEETING  # those of earlier plans are in use no more
        self._meeting += 1
        return key

    def let_pass(self) -> None:
        for key in range(min(self._meeting, MEETING)):
            self.store(WORDS + CAPTURED + key, NEVER)

    def store(self, key: int, value: int, stream: Any = None) -> None:
        if stream is None:
            self._word(key).value = value
        else:
            self._write(stream, self._device + 4 * key, value)

    def wait(self, key: int, value: int, stream: Any) -> None:
        self._wait(stream, self._device + 4 * key, value)

    def load(self, key: int) -> int:
        return self._word(key).value

    def _word(self, index: int) -> ctypes.c_int32:
        """The host's view of a word."""
        return ctypes.c_int32.from_address(self._host + 4 * index)

    @abstractmethod
    def _wait(self, stream: Any, address: int, value: int) -> None:
        """Let the stream wait until the word at a device address is at least `value`."""

    @abstractmethod
    def _write(self, stream: Any, address: int, value: int) -> None:
        """Let the stream store to the word at a device address."""


class MemoryGates(_Words):
    """cuStreamWaitValue32 through cuda-bindings, on a page-locked word."""

    name = "cuStreamWaitValue32"

    def __init__(self) -> None:
        import torch

        try:
            from cuda.bindings import driver
        except ImportError:
            raise NoGates(
                "gates need the package cuda-bindings (pip install 'fencepost[gpu]'); without it: --gate sleep"
            ) from None
        self._driver = driver
        self._words = torch.zeros(WORDS + CAPTURED + MEETING, dtype=torch.int32, pin_memory=True)
        torch.cuda.current_stream()
        self._checked(*driver.cuMemHostGetDevicePointer(self._words.data_ptr(), 0)[:1])
        super().__init__(self._words.data_ptr(), int(driver.cuMemHostGetDevicePointer(self._words.data_ptr(), 0)[1]))

    def _checked(self, result: Any) -> None:
        if int(result) != 0:
            raise NoGates(f"the driver refuses stream memory operations ({result!r}); use --gate sleep")

    def _wait(self, stream: Any, address: int, value: int) -> None:
        self._checked(self._driver.cuStreamWaitValue32(stream.cuda_stream, address, value, GEQ)[0])

    def _write(self, stream: Any, address: int, value: int) -> None:
        self._checked(self._driver.cuStreamWriteValue32(stream.cuda_stream, address, value, 0)[0])


class HipGates(_Words):
    """hipStreamWaitValue32 on signal memory, through libamdhip64. Untested until somebody runs it on an AMD GPU.

    Numbers are those of hip_runtime_api.h (ROCm 6). Where a GPU gives no signal memory (some APUs) mapped, coherent host
    memory is used.
    """

    name = "hipStreamWaitValue32 (untested)"
    SIGNAL = 0x2  # hipMallocSignalMemory: 8 bytes for each allocation
    HOST = 0x2 | 0x40000000  # hipHostMallocMapped | hipHostMallocCoherent
    CAN_WAIT = 10013  # hipDeviceAttributeCanUseStreamWaitValue

    def __init__(self) -> None:
        import torch

        try:
            self._hip = ctypes.CDLL("libamdhip64.so")
        except OSError:
            raise NoGates("gates on ROCm need libamdhip64.so on the loader's path; without it: --gate sleep") from None
        can = ctypes.c_int(0)
        self._hip.hipDeviceGetAttribute(ctypes.byref(can), self.CAN_WAIT, torch.cuda.current_device())
        if not can.value:
            raise NoGates("this GPU has no hipStreamWaitValue32; use --gate sleep")
        self._signals: list[tuple[int, int]] = []  # addresses for the host and for the GPU
        super().__init__(0, 0)

    def _signal(self, word: int) -> tuple[int, int]:
        """Signal memory comes in single words, so each word of the ring is an allocation."""
        while len(self._signals) <= word:
            host, device = ctypes.c_void_p(), ctypes.c_void_p()
            if self._hip.hipExtMallocWithFlags(ctypes.byref(host), ctypes.c_size_t(8), self.SIGNAL) == 0:
                device = host
            elif (
                self._hip.hipHostMalloc(ctypes.byref(host), ctypes.c_size_t(8), self.HOST) != 0
                or self._hip.hipHostGetDevicePointer(ctypes.byref(device), host, 0) != 0
            ):
                raise NoGates("HIP gives neither signal memory nor mapped host memory; use --gate sleep")
            assert host.value and device.value
            ctypes.c_int64.from_address(host.value).value = 0
            self._signals.append((host.value, device.value))
        return self._signals[word]

    def _word(self, index: int) -> ctypes.c_int32:
        return ctypes.c_int32.from_address(self._signal(index)[0])

    def _wait(self, stream: Any, address: int, value: int) -> None:
        pointer = ctypes.c_void_p(self._signal(address // 4)[1])
        mask = ctypes.c_uint32(0xFFFFFFFF)
        handle = ctypes.c_void_p(stream.cuda_stream)
        if self._hip.hipStreamWaitValue32(handle, pointer, ctypes.c_int32(value), ctypes.c_uint(GEQ), mask) != 0:
            raise NoGates("hipStreamWaitValue32 failed; use --gate sleep")

    def _write(self, stream: Any, address: int, value: int) -> None:
        pointer = ctypes.c_void_p(self._signal(address // 4)[1])
        handle = ctypes.c_void_p(stream.cuda_stream)
        if self._hip.hipStreamWriteValue32(handle, pointer, ctypes.c_uint32(value), ctypes.c_uint(0)) != 0:
            raise NoGates("hipStreamWriteValue32 failed; use --gate sleep")


class SleepGates(Gates):
    """A delay kernel: holds its stream for about `milliseconds`, and opens by itself. `open` does nothing."""

    name = "torch.cuda._sleep"
    exact = False

    def __init__(self, milliseconds: float = 5.0) -> None:
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1000)
        start.record()
        torch.cuda._sleep(1_000_000)
        end.record()
        end.synchronize()
        self._sleep = torch.cuda._sleep
        self._stream = torch.cuda.stream
        self._cycles = max(1, int(1_000_000 * milliseconds / max(start.elapsed_time(end), 1e-3)))

    def shut(self, stream: Any) -> int:
        with self._stream(stream):
            self._sleep(self._cycles)
        return 0

    def open(self, ticket: int) -> None:
        """Nothing: the kernel ends when its time is over."""

    def open_all(self) -> None:
        """Nothing: the kernels end when their time is over."""

    def let_pass(self) -> None:
        """Nothing: there are no words."""

    def capture(self, stream: Any) -> int:
        return self.shut(stream)

    def arm(self, key: int, shut: bool) -> None:
        """Nothing: the kernel is in the graph."""


def make(kind: str = "auto") -> Gates:
    """Gates by name: "auto" | "memory" | "sleep". Raises `NoGates`."""
    import torch

    if kind == "sleep":
        return SleepGates()
    if kind not in ("auto", "memory"):
        raise NoGates(f"no kind of gate named {kind!r}; there are: auto, memory, sleep")
    return HipGates() if getattr(torch.version, "hip", None) else MemoryGates()


class Watchdog:
    """Opens all gates when the guarded thread makes no progress for `limit` seconds, so that nothing ever hangs.

    The guarded thread calls `begin`, says with `reach(index)` what it is about to do, and calls `end`, which gives the
    index at which the watchdog had to open the gates, or None.
    """

    _SPAN = 1 << 24

    STUCK = 40
    """Limits without progress after which even what the streams themselves wait for is let pass."""

    def __init__(self, open_all: Callable[[], None], limit: float = 0.02, let_pass: Callable[[], None] | None = None) -> None:
        self.limit = limit
        self._let_pass = let_pass
        self._open_all = open_all
        self._base = 0  # makes `_at` unique over all rounds, so that an old observation never fires in a new round
        self._at = 0
        self._fired: int | None = None
        self._running = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="gate watchdog", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Watch from now on."""
        self._base += self._SPAN
        self._at = self._base
        self._fired = None
        self._running.set()

    def reach(self, index: int) -> None:
        """The guarded thread is about to do number `index`."""
        self._at = self._base + index

    @property
    def fired(self) -> int | None:
        """The index at which the gates were opened in this round."""
        return None if self._fired is None or self._fired < self._base else self._fired - self._base

    def end(self) -> int | None:
        """Stop watching; gives `fired`."""
        self._running.clear()
        return self.fired

    def close(self) -> None:
        """End the watchdog's thread."""
        self._closed = True
        self._running.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._running.wait()
            if self._closed:
                return
            seen, since, fires = self._at, time.monotonic(), 0
            while self._running.is_set() and not self._closed:
                time.sleep(self.limit / 8)
                now = time.monotonic()
                if self._at != seen:
                    seen, since, fires = self._at, now, 0
                elif now - since >= self.limit and self._running.is_set():
                    if self._fired is None or self._fired < self._base:
                        self._fired = seen
                    self._open_all()
                    since, fires = now, fires + 1
                    if fires >= self.STUCK and self._let_pass is not None:
                        self._let_pass()
