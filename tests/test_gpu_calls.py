"""The real calls of a plan, made on the CPU: PyTorch's CPU tensors stand for device memory, and streams for nothing.

Nothing overlaps here, so every trial must be right; what is tested is that each call is made with the right operands.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.gpu_validate import device as device_module
from fencepost.gpu_validate.arms import prepare
from fencepost.gpu_validate.compile import compile_run
from fencepost.gpu_validate.device import Device
from fencepost.gpu_validate.drive import attacks
from fencepost.gpu_validate.gates import Gates
from fencepost.gpu_validate.torchrun import TorchRun
from fencepost.model import program as p
from fencepost.model.answer import Run, Step

from test_gpu_plans import counterexample, query_design, recycled, refill

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")


class _Event:
    def __init__(self, **_: object) -> None:
        self.log: list[object] = []

    def record(self, stream: object = None) -> None:
        self.log.append(stream)

    def synchronize(self) -> None:
        """Everything has run already."""

    def query(self) -> bool:
        return True


class _Stream(_Event):
    cuda_stream = 0

    def wait_event(self, event: _Event) -> None:
        assert isinstance(event, _Event)

    def wait_stream(self, other: object) -> None:
        assert isinstance(other, _Stream)


class _Cuda:
    Event = _Event

    def __init__(self) -> None:
        self.default = _Stream()

    def Stream(self, device: int = 0) -> _Stream:
        return _Stream()

    def default_stream(self, gpu: int = 0) -> _Stream:
        return self.default

    def device(self, gpu: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def device_count(self) -> int:
        return 1

    def set_stream(self, stream: object) -> None:
        assert isinstance(stream, _Stream)

    def synchronize(self, gpu: int = 0) -> None:
        """Everything has run already."""

    empty_cache = synchronize


class _Torch:
    """torch, with every tensor on the CPU."""

    def __init__(self) -> None:
        self.cuda = _Cuda()

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        if name not in ("empty", "full", "ones", "zeros", "tensor"):
            return found

        def make(*arguments: Any, device: object = None, pin_memory: bool = False, **more: Any) -> Any:
            return found(*arguments, **more)

        return make

    def as_tensor(self, view: Any, device: object = None) -> Any:
        facts = view.__cuda_array_interface__
        raw = (ctypes.c_char * (4 * facts["shape"][0])).from_address(facts["data"][0])
        return torch.frombuffer(raw, dtype=torch.int32)


class _NoGates(Gates):
    name, exact = "none", True

    def __init__(self) -> None:
        self.shut_on: list[object] = []

    def shut(self, stream: Any) -> int:
        self.shut_on.append(stream)
        return len(self.shut_on)

    def open(self, ticket: int) -> None:
        assert 1 <= ticket <= len(self.shut_on)

    def open_all(self) -> None:
        """Nothing is shut."""

    def capture(self, stream: Any) -> int:
        return 0

    def arm(self, key: int, shut: bool) -> None:
        """Nothing is late here."""

    def word(self) -> int:
        self.values = [*getattr(self, "values", []), 0]
        return len(self.values) - 1

    def store(self, key: int, value: int, stream: Any = None) -> None:
        self.values[key] = value

    def wait(self, key: int, value: int, stream: Any) -> None:
        """A stream stands for nothing."""

    def load(self, key: int) -> int:
        return self.values[key]


@contextlib.contextmanager
def fake_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A `Device` on the CPU."""
    fake = _Torch()
    monkeypatch.setattr(device_module, "torch_or_error", lambda: fake)
    # `.to("cuda:0")` and views of int32 memory are all that touch tensors' own methods.
    original = torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, *a, **k: self.clone() if a and str(a[0]).startswith("cuda") else original(self, *a, **k)
    )
    opened = Device(_NoGates(), 5.0)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    with fake_device(monkeypatch) as opened:
        yield opened


def parts() -> p.Program:
    """Every kind of call on one buffer or another: parts, raw and host copies, memset, item, views, events, syncs."""
    dev, host, page = p.Obj(0), p.Obj(1), p.Obj(2)
    stream, side, event = p.Obj(3), p.Obj(4), p.Obj(5)
    operations: tuple[p.Operation, ...] = (
        p.Host("write", (p.Access(host, "w"), p.Access(page, "w"))),
        p.Copy(p.Obj(0, p.Named("a")), host, stream, True),
        p.Copy(p.Obj(0, p.Named("b")), page, stream, True),
        p.Memset(p.Obj(0, p.Named("c")), stream),
        p.Launch("mix", stream, (p.Access(dev, "r"), p.Access(host, "r"), p.Access(p.Obj(0, p.Named("a")), "w"))),
        p.Launch("again", stream, (p.Access(dev, "w", same_bytes=True),)),
        p.Record(event, stream), p.StreamWaitEvent(side, event), p.WaitStream(stream, side), p.EventSync(event),
        p.Copy(page, dev, side, True), p.Copy(host, dev, side, False), p.Copy(host, page, side, True),
        p.Host("read", (p.Access(host, "r"), p.Access(page, "r"))),
        p.Host("same", (p.Access(host, "w", same_bytes=True),)),
        p.Item(p.Obj(0, p.Named("a")), stream), p.StreamSync(stream), p.DeviceSync(),
        p.NewEvent(0), p.Record(p.Local(0), stream),
        p.Alloc(1, "pinned"), p.Host("fill", (p.Access(p.Local(1), "w"),)),
        p.View(2, p.Local(1), attributed=False), p.Copy(dev, p.Local(2), stream, True),
        p.Alloc(3, "device", side), p.Copy(p.Local(3), dev, side, True), p.RecordStream(p.Local(3), stream),
        p.Launch("use", stream, (p.Access(p.Local(3), "r"), p.Access(p.Local(1), "r"))),
        p.Drop(3), p.Drop(2), p.Drop(1),
    )  # fmt: skip
    nodes = tuple(p.Do(o, k + 1 if k + 1 < len(operations) else p.END) for k, o in enumerate(operations))
    objects = (
        p.Memory("dev", "device"), p.Memory("host", "pinned"), p.Memory("page", "pageable"), p.Stream("s", default=True),
        p.Stream("side"), p.Event("e"),
    )  # fmt: skip
    kinds = (p.EVENT, p.MEMORY, p.MEMORY, p.MEMORY)
    locals_ = tuple(p.LocalInfo(f"l{k}", kind) for k, kind in enumerate(kinds))
    return p.Program("parts", objects, (p.Thread("t", "script", nodes, 0, locals_),))


def test_every_kind_of_call(device: Device) -> None:
    program = parts()
    plan = compile_run(program, Run(tuple(Step(0, k) for k in range(len(program.threads[0].nodes)))))
    run = TorchRun(device, plan)
    for serial in (True, False, False):
        trial = run.trial(serial=serial)
        assert not trial.wrong and not trial.diverged and trial.held is None


def test_a_wrong_value_is_seen(device: Device) -> None:
    """The comparison can fail: a check whose expectation is made wrong is reported, and no other."""
    program = parts()
    plan = compile_run(program, Run(tuple(Step(0, k) for k in range(len(program.threads[0].nodes)))))
    for index in plan.check_lines():
        run = TorchRun(device, plan)
        expected = run.host_expected if index in run.on_host else run.expected_on[0]
        expected[index, 0] += 1
        assert [wrong.check for wrong in run.trial().wrong] == [index]


@pytest.mark.parametrize("program", [refill(), refill(depth=2), recycled(), query_design()])
def test_replays_and_attacks_make_their_calls(device: Device, program: p.Program) -> None:
    run, hazard = counterexample(program)
    plans = [prepare(program, run, hazard, None).gated, *(a.plan for a in attacks(program) if not isinstance(a, str))]
    for plan in plans:
        trial = TorchRun(device, plan).trial()
        assert not trial.wrong, "nothing is late here"
    gates = device.gates
    assert isinstance(gates, _NoGates) and len(gates.shut_on) >= len(plans)
