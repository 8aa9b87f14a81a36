"""On a real GPU: gates, watchdog, the arms of a replay, attacks and the standalone script. Skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.gpu_validate.device import Device, NoGpu, out_of_memory, torch_or_error
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


# ------------------------------------------------------------ no memory left

LACKING = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.72 GiB of which 4.31 MiB is free. "
    "Process 1 has 139.7 GiB memory in use."
)


class OutOfMemoryError(RuntimeError):
    """As PyTorch's own is named."""


def test_errors_of_missing_memory_are_told_from_others() -> None:
    said = out_of_memory(OutOfMemoryError(LACKING))
    assert said is not None and said.startswith("the GPU is out of memory (20.00 MiB asked for, 4.31 MiB free); end what")
    assert "\n" not in said
    at_start = out_of_memory(RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"))
    assert at_start is not None and at_start.startswith("the GPU is out of memory; ")
    assert out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered")) is None
    assert out_of_memory(ValueError("out of memory")) is None


class _Full:
    """A GPU with no memory left for a plan."""

    def __init__(self, plan: object) -> None:
        raise OutOfMemoryError(LACKING)


def test_a_full_gpu_is_an_error_of_the_row() -> None:
    assert "out of memory (20.00 MiB asked for" in (replay(subject(refill()), _Full, 1).error or "")
    proof = Subject("d", "v", refill(guard=True), "proved")
    row = attack(proof, plan_attacks(proof), _Full)
    assert row.error is not None and "out of memory" in row.error and not row.pairs


DESIGN = """
import fencepost as fp


@fp.variant("guarded", fp.PROVED, guard=True)
@fp.variant("free", fp.REFUTED, hazard="WAR lens", fix="guarded", guard=False)
def full(guard: bool = False) -> fp.Design:
    d = fp.Design("full")
    lens, device, event = d.pinned("lens"), d.device("lens_gpu"), d.event("prep")

    @d.loop("worker")
    def step(n: fp.Turn) -> None:
        if guard:
            event.synchronize()
        lens.write()
        device.copy_(lens, non_blocking=True)
        if guard:
            event.record()

    return d
"""


@pytest.mark.parametrize("command", [["replay", "-k", "free"], ["attack", "-k", "guarded"], ["probe"]])
@pytest.mark.parametrize("where", ["start", "plan"])
def test_a_full_gpu_is_one_line_and_exit_code_2(
    command: list[str], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fencepost import gpu
    from fencepost.cli import run
    from fencepost.gpu_validate import device as device_module
    from fencepost.gpu_validate import gates as gates_module

    def full(*_: object, **__: object) -> None:
        raise OutOfMemoryError(LACKING) if where == "plan" else RuntimeError("CUDA error: out of memory")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "full_gpu.py").write_text(DESIGN)
    monkeypatch.setattr(device_module, "torch_or_error", lambda: None)
    monkeypatch.setattr(gates_module, "make", full if where == "start" else lambda kind: None)
    monkeypatch.setattr(device_module, "Device", lambda gates, limit: None)
    monkeypatch.setattr(gpu.Machine, "make", full)
    monkeypatch.setattr("fencepost.gpu_validate.probes.run", full)
    name, *rest = command
    assert run([name, *(["full_gpu.py"] if name != "probe" else []), *rest]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
    assert "the GPU is out of memory" in captured.err


@needs_gpu
def test_a_gpu_that_somebody_else_fills(tmp_path: Path) -> None:
    """All of the GPU's memory but little is taken: too little for another process to start on, so it says so."""
    import torch

    (tmp_path / "full_gpu.py").write_text(DESIGN)
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(free - (100 << 20), dtype=torch.uint8, device="cuda")
    try:
        for command in (["replay", "full_gpu.py", "-k", "free"], ["attack", "full_gpu.py", "-k", "guarded"], ["probe"]):
            done = subprocess.run(
                [sys.executable, "-m", "fencepost", *command], cwd=tmp_path, capture_output=True, text=True, timeout=100,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(x) for x in sys.path if x)}, check=False,
            )  # fmt: skip
            lines = done.stderr.strip().splitlines()
            assert done.returncode == 2 and len(lines) == 1 and "out of memory" in lines[0], done
    finally:
        del held
        torch.cuda.empty_cache()


@needs_gpu
def test_a_gpu_that_fills_up_under_way(device: Device) -> None:
    torch = device.torch
    held = []
    torch.cuda.empty_cache()
    for size in (1 << 30, 64 << 20, 10 << 20):  # smaller ones come out of segments of 20 MiB
        while True:
            try:
                held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                break
    try:
        row = replay(subject(recycled(), recycled(record=True)), on_gpu(device), 3)
        assert row.error is not None and "the GPU is out of memory" in row.error
    finally:
        held.clear()
        torch.cuda.empty_cache()
    assert replay(subject(recycled()), on_gpu(device), 3).error is None, "afterwards it works again"


# ------------------------------------------------------------ graphs and undefined bytes on a real GPU


@needs_gpu
@pytest.mark.parametrize("design", ["forked", "baked"])
def test_a_captured_graph_is_launched_and_held_inside(device: Device, design: str) -> None:
    import test_gpu_graphs as graphs

    one = graphs.subject(graphs.forked, {"wait": True}) if design == "forked" else graphs.subject(graphs.baked, {"keep": True})
    row = replay(one, on_gpu(device), 30)
    assert row.error is None
    arms = {arm.name: arm for arm in row.arms}
    assert (arms["gated"].wrong, arms["gated, fixed"].wrong) == (30, 0), row
    assert not any("operation by operation" in note for arm in row.arms for note in arm.notes)
    assert row.model_holds == next((arm.held_at for arm in row.arms if arm.held_at), None)


@needs_gpu
def test_attacks_on_a_captured_graph(device: Device) -> None:
    from fencepost.model.language.build import program_of

    import test_gpu_graphs as graphs

    for wait, seen in ((True, False), (False, True)):
        one = Subject("d", "v", program_of(graphs.forked, {"wait": wait}), "proved")
        row = attack(one, plan_attacks(one), on_gpu(device))
        assert row.gates >= 3 and bool(row.wrong) == seen, row
        assert seen or not any(pair.unlike for pair in row.pairs), row


@needs_gpu
@pytest.mark.parametrize("space", ["device", "pinned"])
def test_undefined_bytes_are_an_earlier_owners(device: Device, space: str) -> None:
    import test_gpu_undefined as undefined

    row = replay(undefined.fresh_subject(space), on_gpu(device), 20)
    assert undefined.wrong(row) == {"ungated": 20, "gated": 20, "gated, fixed": 0}


@needs_gpu
@pytest.mark.parametrize("access", ["kernel", "copy", "host", "in place", "written"])
def test_freed_memory_is_the_next_owners(device: Device, access: str) -> None:
    import test_gpu_undefined as undefined

    row = replay(undefined.pointer_subject(access), on_gpu(device), 20)
    assert undefined.wrong(row) == {"ungated": 0, "gated": 20, "gated, fixed": 0}


@needs_gpu
@pytest.mark.parametrize("which", ["ranks", "capacity", "flags"])
def test_streams_that_meet_are_replayed(device: Device, which: str) -> None:
    import test_gpu_meetings as meetings

    one = meetings.of_flags(reset=False) if which == "flags" else meetings.of_ranks(1 if which == "capacity" else None)
    row = replay(one, on_gpu(device), 20)
    found = meetings.wrong(row)
    assert (found["gated"], found["gated, fixed"]) == (20, 0), row
    proof = Subject("d", "v", one.fixed, "proved") if one.fixed is not None else one
    attacked = attack(proof, plan_attacks(proof), on_gpu(device))
    assert attacked.gates >= 3 and attacked.wrong == 0, attacked


@needs_gpu
def test_a_delay_kernel_refuses_meetings_by_name() -> None:
    import test_gpu_meetings as meetings

    opened = Device(SleepGates(5.0), 0.05)
    try:
        row = replay(meetings.of_ranks(), on_gpu(opened), 2)
        assert row.error is not None and "need stream memory operations" in row.error
    finally:
        opened.close()
