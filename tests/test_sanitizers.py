"""The sanitizer benchmark's processes: one that hangs is killed with its children, and gates are opened from outside."""

from __future__ import annotations

import importlib.util
import mmap
import struct
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "sanitizers.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sanitizers_benchmark", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_process_that_hangs_is_killed_with_what_it_started(bench: ModuleType) -> None:
    """A grandchild that keeps the output open must not keep the benchmark waiting."""
    text = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    begin = time.monotonic()
    found = bench.start([sys.executable, "-c", text], 1.0, {}, None)
    assert found.rows == {} and found.why == "no answer in 1 s" and time.monotonic() - begin < 60


def test_a_gate_that_stays_shut_is_opened_from_outside(bench: ModuleType, tmp_path: Path) -> None:
    """The child shuts gate 1 and waits for it in a loop that lets no other thread of its own run a call."""
    path = tmp_path / "gate"
    text = (
        "import json, mmap, struct, sys\n"
        "f = open(sys.argv[1], 'r+b')\n"
        "m = mmap.mmap(f.fileno(), mmap.PAGESIZE)\n"
        "m[64:68] = struct.pack('<i', 1)\n"
        "while struct.unpack('<i', m[0:4])[0] < 1: pass\n"
        "print(json.dumps({'hazard': 'x', 'wrong': 1, 'raised': 0, 'step_us': 1.0}))\n"
    )
    found = bench.start([sys.executable, "-c", text, str(path)], 60.0, {}, str(path))
    assert found.why == "" and found.rows["x"]["wrong"] == 1 and not found.reported("x")


def test_only_gates_that_are_shut_for_long_are_opened(bench: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "gate"
    path.write_bytes(bytes(mmap.PAGESIZE))
    with open(path, "r+b") as stream:
        memory = mmap.mmap(stream.fileno(), mmap.PAGESIZE)
    memory[64:68] = struct.pack("<i", 4)
    seen = bench.opened_late(memory, (0, 0.0))
    assert seen[0] == 4 and memory[0:4] == struct.pack("<i", 0)
    bench.opened_late(memory, (4, time.monotonic() - bench.HELD))
    assert memory[0:4] == struct.pack("<i", 4)


def test_what_a_tool_says_is_read(bench: ModuleType) -> None:
    text = "print('{\"hazard\": \"x\", \"wrong\": 10, \"raised\": 0, \"step_us\": 2.0}'); print('= ERROR SUMMARY: 3 errors')"
    found = bench.start([sys.executable, "-c", text], 60.0, {}, None)
    assert found.errors == 3 and found.reported("x")
    failed = bench.start([sys.executable, "-c", "raise SystemExit('no such device')"], 60.0, {}, None)
    assert failed.why == "failed: no such device"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ({"wrong": 10, "reported": False}, "not found (2.0x)"),
        ({"wrong": 0, "reported": False}, "masked by the tool (2.0x)"),
        ({"wrong": 0, "reported": True}, "found (2.0x)"),
        ({"wrong": None, "reported": False, "why": "no answer in 90 s"}, "no answer in 90 s"),
        ({"wrong": 10, "reported": True, "reported_on_the_fixed_one": True}, "found, alarm on fix (2.0x)"),
    ],
)
def test_cells(bench: ModuleType, cell: dict[str, object], said: str) -> None:
    assert bench.text({"reported_on_the_fixed_one": False, "slow_down": 2.0, "why": "", **cell}) == said


def test_every_hazard_is_refuted_by_its_name(bench: ModuleType) -> None:
    found = {name: bench.verdict(name) for name in bench.HAZARDS}
    assert found == {
        "refill": "refuted WAR host", "refill_by_address": "refuted WAR host", "early_read": "refuted RAW host",
        "freed_source": "refuted WAR x", "two_streams": "refuted RAW dev",
    }  # fmt: skip
