"""Gates and words without a GPU: what each kind asks its driver for, and that shut ones open."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.gpu_validate import gates
from fencepost.gpu_validate.gates import CAPTURED, MEETING, NEVER, WORDS, HipGates, NoGates, _Words

STREAM = SimpleNamespace(cuda_stream=7)


class _Memory(_Words):
    """Words in plain memory; what a stream waits for or stores is written down."""

    name = "plain"

    def __init__(self) -> None:
        self.words = (ctypes.c_int32 * (WORDS + CAPTURED + MEETING))()
        self.waits: list[tuple[int, int]] = []
        super().__init__(ctypes.addressof(self.words), 0)

    def _wait(self, stream: Any, address: int, value: int) -> None:
        self.waits.append((address // 4, value))

    def _write(self, stream: Any, address: int, value: int) -> None:
        self.words[address // 4] = value

    def passes(self) -> list[bool]:
        return [self.words[word] >= value for word, value in self.waits]


def test_a_gate_passes_when_it_is_opened_and_not_before() -> None:
    memory = _Memory()
    tickets = [memory.shut(STREAM) for _ in range(3)]
    assert memory.passes() == [False] * 3
    memory.open(tickets[1])
    assert memory.passes() == [False, True, False]
    memory.open_all()
    assert memory.passes() == [True] * 3


def test_words_are_used_again_with_higher_values() -> None:
    memory = _Memory()
    for _ in range(2 * WORDS + 5):
        ticket = memory.shut(STREAM)
        word, value = memory.waits[-1]
        assert memory.words[word] < value
        memory.open(ticket)
        assert memory.words[word] == value
    assert memory.waits[0] == (0, 1) and memory.waits[WORDS] == (0, 2)


def test_captured_gates_are_armed_and_opened_by_the_watchdog() -> None:
    memory = _Memory()
    keys = [memory.capture(STREAM) for _ in range(2)]
    assert memory.passes() == [True, True], "a captured gate is open until it is armed"
    memory.arm(keys[0], True)
    assert memory.passes() == [False, True]
    memory.open_all()
    assert memory.passes() == [True, True]


def test_words_of_meetings_are_no_gates() -> None:
    memory = _Memory()
    key = memory.word()
    memory.wait(key, 3, STREAM)
    memory.open_all()
    assert memory.passes() == [False], "opening gates must not let streams pass each other"
    memory.store(key, 3, STREAM)
    assert memory.passes() == [True] and memory.load(key) == 3
    memory.store(key, 0)
    memory.let_pass()
    assert memory.load(key) == NEVER
    regions = {0, WORDS, WORDS + CAPTURED}
    assert {memory.shut(STREAM) * 0, memory.capture(STREAM) + WORDS, key} == regions


class _Hip:
    """libamdhip64 as far as gates use it. `signal`: whether there is signal memory."""

    def __init__(self, signal: bool = True, can: int = 1) -> None:
        self.signal, self.can = signal, can
        self.kept: list[Any] = []
        self.calls: list[tuple[Any, ...]] = []

    def hipDeviceGetAttribute(self, value: Any, which: int, device: int) -> int:
        self.calls.append(("attribute", which))
        value._obj.value = self.can if which == 10013 else 304
        return 0

    def _allocate(self, pointer: Any) -> int:
        self.kept.append(ctypes.c_int64(-1))
        pointer._obj.value = ctypes.addressof(self.kept[-1])
        return 0

    def hipExtMallocWithFlags(self, pointer: Any, size: Any, flags: int) -> int:
        assert size.value == 8 and flags == 2
        return self._allocate(pointer) if self.signal else 1

    def hipHostMalloc(self, pointer: Any, size: Any, flags: int) -> int:
        return self._allocate(pointer)

    def hipHostGetDevicePointer(self, device: Any, host: Any, flags: int) -> int:
        device._obj.value = host.value
        return 0

    def hipStreamWaitValue32(self, stream: Any, pointer: Any, value: Any, flags: Any, mask: Any) -> int:
        assert stream.value == 7 and flags.value == 0 and mask.value == 0xFFFFFFFF
        self.calls.append(("wait", pointer.value, value.value))
        return 0

    def hipStreamWriteValue32(self, stream: Any, pointer: Any, value: Any, flags: Any) -> int:
        ctypes.c_int32.from_address(pointer.value).value = value.value
        return 0


def hip_gates(monkeypatch: pytest.MonkeyPatch, library: _Hip) -> HipGates:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(current_device=lambda: 0)))
    monkeypatch.setattr(gates.ctypes, "CDLL", lambda name: library)
    return HipGates()


@pytest.mark.parametrize("signal", [True, False])
def test_hip_gates_wait_on_words_of_their_own(monkeypatch: pytest.MonkeyPatch, signal: bool) -> None:
    library = _Hip(signal)
    made = hip_gates(monkeypatch, library)
    tickets = [made.shut(STREAM) for _ in range(3)]
    waits = [call for call in library.calls if call[0] == "wait"]
    assert len({address for _, address, _ in waits}) == 3

    def passes() -> list[bool]:
        return [ctypes.c_int32.from_address(address).value >= value for _, address, value in waits]

    assert passes() == [False] * 3
    made.open(tickets[2])
    assert passes() == [False, False, True]
    made.open_all()
    assert passes() == [True] * 3
    key = made.word()
    made.store(key, 5, STREAM)
    assert made.load(key) == 5


def test_hip_gates_ask_for_the_right_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    """hipDeviceAttributeCanUseStreamWaitValue is 10013; 10015 is the number of compute units, which is never 0."""
    with pytest.raises(NoGates, match="no hipStreamWaitValue32"):
        hip_gates(monkeypatch, _Hip(can=0))
