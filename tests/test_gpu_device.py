"""On a real GPU: gates, watchdog, the arms of a replay, attacks and the standalone script. Skipped where there is none."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.gpu_validate.device import Device, NoGpu, torch_or_error
from fencepost.gpu_validate.files import Subject
from fencepost.gpu_validate.gates import Gates, NoGates, SleepGates, Watchdog, make
from fencepost.gpu_validate.script import script
from fencepost.gpu_validate.skip import gpu_missing
from fencepost.gpu_validate.table import attack, on_gpu, plan_attacks, replay
from fencepost.gpu_validate.torchrun import TorchRun

from test_gpu_plans import recycled, refill, subject

REASON = gpu_missing()
needs_gpu = pytest.mark.fencepost_gpu


@pytest.fixture
def device() -> Iterator[Device]:
    opened = Device(make("auto"), 0.02)
    yield opened
    opened.close()


@needs_gpu
def test_a_gate_holds_and_opens(device: Device) -> None:
    stream = device.torch.cuda.Stream()
    ticket = device.gates.shut(stream)
    time.sleep(0.002)
    assert not stream.query()
    device.gates.open(ticket)
    stream.synchronize()


@needs_gpu
def test_more_gates_than_words_are_used_in_turn(device: Device) -> None:
    stream = device.torch.cuda.Stream()
    for _ in range(3000):
        device.gates.open(device.gates.shut(stream))
    stream.synchronize()


@needs_gpu
def test_the_watchdog_opens_a_gate_that_the_host_waits_for(device: Device) -> None:
    stream = device.torch.cuda.Stream()
    device.watchdog.begin()
    device.watchdog.reach(7)
    device.gates.shut(stream)
    stream.synchronize()
    assert device.watchdog.end() == 7


@needs_gpu
@pytest.mark.parametrize("which", ["refill", "recycled"])
def test_the_three_arms(device: Device, which: str) -> None:
    one = subject(refill(), refill(guard=True)) if which == "refill" else subject(recycled(), recycled(record=True))
    row = replay(one, on_gpu(device), 30)
    assert row.error is None
    assert {arm.name: (arm.wrong, arm.trials) for arm in row.arms if arm.name != "ungated"} == {
        "gated": (30, 30), "gated, fixed": (0, 30),
    }  # fmt: skip
    assert row.model_holds == next((arm.held_at for arm in row.arms if arm.held_at), None)


@needs_gpu
def test_a_delay_kernel_is_a_gate_too() -> None:
    opened = Device(SleepGates(5.0), 0.05)
    try:
        assert {arm.name: arm.wrong for arm in replay(subject(refill()), on_gpu(opened), 10).arms}["gated"] == 10
    finally:
        opened.close()


@needs_gpu
def test_attacks_on_a_proof_and_on_a_wrong_one(device: Device) -> None:
    for program, wrong in ((refill(guard=True), False), (recycled(record=True), False), (refill(), True)):
        one = Subject("d", "v", program, "proved")
        row = attack(one, plan_attacks(one), on_gpu(device))
        assert row.gates >= 3 and (row.wrong > 0) == wrong
        assert wrong or all(pair.unlike == 0 for pair in row.pairs)


@needs_gpu
def test_a_trial_leaves_nothing_behind(device: Device) -> None:
    from fencepost.gpu_validate.arms import prepare

    one = subject(recycled())
    assert one.run is not None and one.hazard is not None
    run = TorchRun(device, prepare(one.program, one.run, one.hazard, None).gated)
    run.trial()
    before = device.torch.cuda.memory_allocated()
    for _ in range(20):
        run.trial()
    assert device.torch.cuda.memory_allocated() == before


@needs_gpu
def test_the_script_shows_the_hazard_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "issue.py"
    path.write_text(script(subject(refill(), refill(guard=True)), trials=10))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=100, check=True)
    assert "as it is, gated: 10 of 10 wrong" in done.stdout
    assert "fixed, gated: 0 of 10 wrong; host held in 10" in done.stdout


# ------------------------------------------------------------ without a GPU


class _Counting(Gates):
    """Gates that are no hardware's, for the watchdog's own logic."""

    name, exact = "counting", True

    def __init__(self) -> None:
        self.opened = 0

    def open_all(self) -> None:
        self.opened += 1


def test_the_watchdog_opens_once_no_progress_is_made_and_says_where() -> None:
    gates = _Counting()
    watchdog = Watchdog(gates.open_all, 0.02)
    watchdog.begin()
    watchdog.reach(3)
    end = time.monotonic() + 10
    while watchdog.fired is None and time.monotonic() < end:
        time.sleep(0.005)
    assert watchdog.end() == 3 and gates.opened >= 1
    watchdog.begin()
    assert watchdog.fired is None, "what fired in an earlier round is over"
    assert watchdog.end() is None
    watchdog.close()


def test_missing_gpu_and_missing_packages_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NoGpu, match=r"PyTorch is not installed: pip install 'fencepost\[gpu\]'"):
        torch_or_error()


def test_an_unknown_kind_of_gate_is_refused() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
    with pytest.raises(NoGates, match="no kind of gate named 'iron'"):
        make("iron")


def test_gates_without_cuda_bindings_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    import torch

    if getattr(torch.version, "hip", None):
        pytest.skip("ROCm has gates of its own")
    with pytest.raises(NoGates, match="cuda-bindings"):
        make("memory")


def test_a_machine_without_a_gpu_is_said_in_one_line() -> None:
    if REASON is None:
        pytest.skip("there is a GPU")
    assert "\n" not in REASON and REASON


def test_the_marker_skips_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import pytest\n\n@pytest.mark.fencepost_gpu(gpus=1000)\ndef test_x():\n    assert False\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "test_x.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    if "PytestUnknownMarkWarning" in done.stdout:
        pytest.skip("the plugin is not installed here")
    assert done.returncode == 0 and "fencepost_gpu: " in done.stdout and "1 skipped" in done.stdout
