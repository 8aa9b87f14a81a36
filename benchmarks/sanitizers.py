"""What PyTorch's CUDA sanitizer and compute-sanitizer find of five hazards, beside fencepost's verdict.

Each hazard runs gated, so that it gives wrong values for sure, and with its fix, in a process of its own: plain, under
TORCH_CUDA_SANITIZER=1, and under compute-sanitizer's memcheck, racecheck and initcheck where it is installed. Printed:
wrong values of ten, found or not (or masked: nothing goes wrong under the tool), and how much slower the fixed version's
step is. A tool that waits behind a shut gate
cannot hang the benchmark: the gates lie in memory that this process shares with its children, and opens. A process that
does not end in time is killed with all that it started, and the table says so.

    python benchmarks/sanitizers.py [FILE] [--timeout SECONDS] [--jobs N]
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import fencepost as fp

TRIALS = 10
STEPS = 200
"""Steps of the fixed version that are timed."""
HELD = 0.1
"""Seconds after which a shut gate is opened from outside."""
TOOLS = ("memcheck", "racecheck", "initcheck")


# ------------------------------------------------------------ gates in shared memory


class SharedGate:
    """One gate at a time, on a word of a file that both processes have mapped: opened by this one or by the parent.

    Bytes 0 to 3: the highest ticket that may pass. Bytes 64 to 67: the ticket that was shut last.
    """

    def __init__(self, path: str) -> None:
        import ctypes

        import torch
        from cuda.bindings import driver

        with open(path, "r+b") as stream:
            self.map = mmap.mmap(stream.fileno(), mmap.PAGESIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        torch.cuda.current_stream()
        (error,) = driver.cuMemHostRegister(address, mmap.PAGESIZE, 2)  # CU_MEMHOSTREGISTER_DEVICEMAP
        if int(error) != 0:
            raise RuntimeError(f"cuMemHostRegister: {error!r}")
        self.device = int(driver.cuMemHostGetDevicePointer(address, 0)[1])
        self.driver, self.ticket = driver, 0

    def shut(self, stream: Any) -> int:
        """Put the gate at the tail of the stream."""
        self.ticket += 1
        self.map[64:68] = struct.pack("<i", self.ticket)
        (error,) = self.driver.cuStreamWaitValue32(stream.cuda_stream, self.device, self.ticket, 0)
        if int(error) != 0:
            raise RuntimeError(f"cuStreamWaitValue32: {error!r}")
        return self.ticket

    def open(self, ticket: int) -> None:
        """Let everything up to the ticket pass."""
        self.map[0:4] = struct.pack("<i", ticket)


def opened_late(map_: mmap.mmap, seen: tuple[int, float]) -> tuple[int, float]:
    """What the parent does now and then: open a gate that has been shut for HELD seconds. `seen`: ticket and since when."""
    ticket, passed = struct.unpack("<i", map_[64:68])[0], struct.unpack("<i", map_[0:4])[0]
    now = time.monotonic()
    if ticket != seen[0]:
        return ticket, now
    if ticket > passed and now - seen[1] >= HELD:
        map_[0:4] = struct.pack("<i", ticket)
    return seen


# ------------------------------------------------------------ the hazards on a GPU


class State:
    """What the hazards share. `gate` None: nothing is held back, and each does what mends it."""

    def __init__(self, torch: Any, gate: SharedGate | None) -> None:
        self.torch, self.gate = torch, gate
        self.side = torch.cuda.Stream()
        self.main = torch.cuda.default_stream()
        self.done = torch.cuda.Event()
        self.host = torch.ones(1024, dtype=torch.int32).pin_memory()
        self.dev = torch.zeros(1024, dtype=torch.int32, device="cuda")
        self.out = torch.zeros(1024, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(self.side):  # every kernel once: the first launch loads its module
            self.dev.copy_(self.host, non_blocking=True)
            self.dev.fill_(1)
            self.out.copy_(self.dev)
        torch.cuda.synchronize()
        self.out.copy_(self.dev)
        bool((self.dev != 1).any().item())
        torch.cuda.synchronize()

    def shut(self) -> None:
        """Hold the side stream."""
        if self.gate is not None:
            self.gate.shut(self.side)

    def open(self) -> None:
        """Let it go on, and all of the device with it."""
        if self.gate is not None:
            self.gate.open(self.gate.ticket)
        self.torch.cuda.synchronize()

    def mend(self) -> None:
        """The host waits for the side stream: the fix, where nothing is held back."""
        if self.gate is None:
            self.done.record(self.side)
            self.done.synchronize()


def refill(s: State) -> bool:
    """A pinned source rewritten while its copy waits."""
    s.host.fill_(1)
    s.torch.cuda.synchronize()
    s.shut()
    with s.torch.cuda.stream(s.side):
        s.dev.copy_(s.host, non_blocking=True)
    s.mend()
    s.host.fill_(2)
    s.open()
    return bool((s.dev != 1).any().item())


def refill_by_address(s: State) -> bool:
    """The same, written through the address, as numpy or a C library does."""
    import ctypes

    s.host.fill_(1)
    s.torch.cuda.synchronize()
    s.shut()
    with s.torch.cuda.stream(s.side):
        s.dev.copy_(s.host, non_blocking=True)
    s.mend()
    ctypes.memset(s.host.data_ptr(), 2, 4096)
    s.open()
    return bool((s.dev != 1).any().item())


def early_read(s: State) -> bool:
    """A device-to-host copy read before it has run."""
    s.host.fill_(0)
    s.dev.fill_(5)
    s.torch.cuda.synchronize()
    s.shut()
    with s.torch.cuda.stream(s.side):
        s.host.copy_(s.dev, non_blocking=True)
    s.mend()
    wrong = bool((s.host != 5).any())
    s.open()
    return wrong


def freed_source(s: State) -> bool:
    """The source of a side-stream copy dropped, its block handed out again and written."""
    torch = s.torch
    x = torch.empty(14 << 18, dtype=torch.int32, device="cuda")
    x[:1024].fill_(5)
    torch.cuda.synchronize()
    s.shut()
    with torch.cuda.stream(s.side):
        s.out.copy_(x[:1024])
    if s.gate is None:
        x.record_stream(s.side)
    del x
    y = torch.empty(14 << 18, dtype=torch.int32, device="cuda")
    y[:1024].fill_(9)
    s.main.synchronize()
    s.open()
    return bool((s.out != 5).any().item())


def two_streams(s: State) -> bool:
    """A tensor written on one stream and read on another, with no event."""
    s.dev.fill_(0)
    s.torch.cuda.synchronize()
    s.shut()
    with s.torch.cuda.stream(s.side):
        s.dev.fill_(5)
    if s.gate is None:
        s.main.wait_stream(s.side)
    s.out.copy_(s.dev)
    s.main.synchronize()
    s.open()
    return bool((s.out != 5).any().item())


HAZARDS: dict[str, Callable[[State], bool]] = {
    f.__name__: f for f in (refill, refill_by_address, early_read, freed_source, two_streams)
}


def child(names: list[str], path: str) -> None:
    """Ten gated trials of each hazard, or (`path` empty) its fixed version, timed. One line of JSON for each."""
    import torch

    state = State(torch, SharedGate(path) if path else None)
    for name in names:
        print(json.dumps(_trials(name, state)), flush=True)


def _trials(name: str, state: State) -> dict[str, Any]:
    run = HAZARDS[name]
    wrong = raised = 0
    times: list[float] = []
    for _ in range(STEPS if state.gate is None else TRIALS):
        begin = time.perf_counter()
        try:
            wrong += run(state)
        except Exception as error:  # the sanitizer raises what it found
            if "anitiz" not in type(error).__name__:
                raise
            raised += 1
            state.open()
        times.append(time.perf_counter() - begin)
    times.sort()
    return {"hazard": name, "wrong": wrong, "raised": raised, "step_us": 1e6 * times[len(times) // 2]}


# ------------------------------------------------------------ the same as designs


def design(name: str) -> fp.Design:
    """The hazard as a design."""
    d = fp.Design(name)
    side = d.stream("side")
    host, dev, out = d.pinned("host"), d.device("dev"), d.device("out")

    @d.loop("worker")
    def step(n: fp.Turn) -> None:
        if name in ("refill", "refill_by_address"):
            host.write()
            with side:
                dev.copy_(host, non_blocking=True)
        elif name == "early_read":
            d.launch("compute", writes=[dev])
            side.wait_stream(d.current_stream())
            with side:
                host.copy_(dev, non_blocking=True)
            host.read()
        elif name == "freed_source":
            x = d.empty("x")
            d.launch("compute", writes=[x])
            side.wait_stream(d.current_stream())
            with side:
                out.copy_(x, non_blocking=True)
        else:
            with side:
                d.launch("produce", writes=[dev])
            d.launch("consume", reads=[dev], writes=[out])

    return d


# ------------------------------------------------------------ processes


class Outcome(NamedTuple):
    """What one process said: its rows, the errors that compute-sanitizer summed up, and why something is missing."""

    rows: dict[str, dict[str, Any]]
    errors: int | None
    why: str

    def reported(self, name: str) -> bool:
        """Whether the tool said anything of a hazard (compute-sanitizer: of any hazard of the process)."""
        return bool(self.errors) or (name in self.rows and bool(self.rows[name]["raised"]))


def start(command: list[str], limit: float, environment: dict[str, str], shared: str | None) -> Outcome:
    """Run a child; gates that stay shut are opened, and after `limit` seconds it is killed with all that it started."""
    path = os.pathsep.join(p for p in sys.path if p)
    map_ = None
    if shared is not None:
        with open(shared, "wb") as made:
            made.write(bytes(mmap.PAGESIZE))
        with open(shared, "r+b") as made:
            map_ = mmap.mmap(made.fileno(), mmap.PAGESIZE)
    with tempfile.TemporaryFile() as output:  # no pipe: whoever survives a kill would keep it open
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "CUDA_DEVICE_MAX_CONNECTIONS": "32", **environment},
        )  # fmt: skip
        end, seen = time.monotonic() + limit, (0, 0.0)
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
            if map_ is not None:
                seen = opened_late(map_, seen)
        late = process.poll() is None
        if late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    rows = {row["hazard"]: row for row in map(json.loads, (k for k in text.splitlines() if k.startswith('{"hazard"')))}
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    why = f"no answer in {limit:.0f} s" if late else "" if rows else f"failed: {' '.join(text.split())[-300:]}"
    return Outcome(rows, int(summaries[-1]) if summaries else None, why)


class Way(NamedTuple):
    """A way to run a hazard: plain or under a tool."""

    name: str
    prefix: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def ways() -> list[Way]:
    """Plain, and the tools that are there."""
    found = [Way("plain"), Way("CUDA sanitizer", (), (("TORCH_CUDA_SANITIZER", "1"),))]
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    for one in TOOLS if tool else ():
        more = ("--report-api-errors", "no") if one == "memcheck" else ()
        found.append(Way(one, (str(tool), "--tool", one, *more)))
    return found


def verdict(name: str) -> str:
    """fencepost's answer to the same hazard."""
    from fencepost.model.language.build import program_of
    from fencepost.proofs.check import check

    def design_of() -> fp.Design:
        return design(name)

    answer = check(program_of(design_of, {}))
    return f"{answer.verdict} {answer.hazards[0].name}" if answer.hazards else answer.verdict


def measure(names: list[str], limit: float, jobs: int, folder: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Way -> hazard -> cell. Gated processes run side by side; what is timed runs with nothing beside it."""

    def run(way: Way, names: list[str], gated: bool) -> Outcome:
        shared = os.path.join(folder, f"{way.name} {names[0]}") if gated else ""
        command = [*way.prefix, sys.executable, os.path.abspath(__file__), "--child", ",".join(names), "--shared", shared]
        return start(command, limit, dict(way.environment), shared or None)

    every = [(way, name) for way in ways() for name in names]
    with ThreadPoolExecutor(jobs) as pool:
        gated = dict(zip(every, pool.map(lambda one: run(one[0], [one[1]], True), every), strict=True))
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for way in ways():
        together = run(way, names, False)
        # What compute-sanitizer reports belongs to a process: if there is anything, each hazard gets one of its own.
        fixed = {name: run(way, [name], False) if together.errors else together for name in names}
        cells = found.setdefault(way.name, {})
        for name in names:
            one, other = gated[way, name], fixed[name]
            plain = None if way.name == "plain" else found["plain"][name]["step_us"]
            step = other.rows[name]["step_us"] if name in other.rows else None
            cells[name] = {
                "wrong": one.rows[name]["wrong"] if name in one.rows else None, "reported": one.reported(name),
                "reported_on_the_fixed_one": other.reported(name), "step_us": step,
                "slow_down": step / plain if step and plain else None, "why": one.why or other.why,
            }  # fmt: skip
    return found


def text(cell: dict[str, Any]) -> str:
    """A cell of the table."""
    if cell["why"] and cell["wrong"] is None:
        return str(cell["why"])[:19]
    said = "found" if cell["reported"] else "not found" if cell["wrong"] else "masked by the tool"
    if cell["reported_on_the_fixed_one"]:
        said = "alarm without fault" if not cell["reported"] else "found, alarm on fix"
    return said + (f" ({cell['slow_down']:.1f}x)" if cell["slow_down"] else "")


def main() -> int:
    """Run everything and print the table; also to FILE, as JSON."""
    parser = argparse.ArgumentParser(description="hazards under sanitizers")
    parser.add_argument("file", nargs="?", help="where the table goes as JSON")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for one process (90)")
    parser.add_argument("--jobs", type=int, default=8, help="processes side by side (8)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--shared", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child.split(","), arguments.shared)
        return 0
    from fencepost.gpu_validate.device import NoGpu, torch_or_error

    try:
        torch_or_error()
    except NoGpu as error:
        print(f"sanitizers: {error}", file=sys.stderr)
        return 2
    names = list(HAZARDS)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        found = measure(names, arguments.timeout, arguments.jobs, folder)
    tools = [way for way in found if way != "plain"]
    print(f"{'hazard':<18} {'wrong':>6} {'step':>8} " + " ".join(f"{c:<21}" for c in tools) + " fencepost")
    rows = []
    for name in names:
        plain, answer = found["plain"][name], verdict(name)
        wrong = f"{plain['wrong']}/{TRIALS}"
        step = f"{plain['step_us']:.0f} us" if plain["step_us"] else "-"
        print(f"{name:<18} {wrong:>6} {step:>8} " + " ".join(f"{text(found[t][name]):<21}" for t in tools) + f" {answer}")
        rows.append({"hazard": name, "fencepost": answer, **{way: found[way][name] for way in found}})
    for way, cells in found.items():
        for name, cell in cells.items():
            if cell["why"]:
                print(f"{name} under {way}: {cell['why']}", file=sys.stderr)
    if arguments.file:
        from fencepost.gpu_validate.files import machine

        about = machine("cuStreamWaitValue32, opened from outside", HELD)
        content = {"machine": about, "trials": TRIALS, "steps": STEPS, "seconds": time.perf_counter() - begin, "rows": rows}
        with open(arguments.file, "w") as stream:
            json.dump(content, stream, indent=1)
    return 0 if all(found["plain"][name]["wrong"] == TRIALS for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
