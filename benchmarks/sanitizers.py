"""What PyTorch's CUDA sanitizer and compute-sanitizer find of five hazards, beside fencepost's verdict.

Each hazard runs gated, so that it gives wrong values for sure, in a process of its own: plain, under
TORCH_CUDA_SANITIZER=1, and under compute-sanitizer's memcheck, racecheck and initcheck where it is installed. Printed:
wrong values of ten, found or not, and the slow-down of the process's work. `python benchmarks/sanitizers.py [FILE]`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import fencepost as fp

TRIALS = 10
TOOLS = ("memcheck", "racecheck", "initcheck")


# ------------------------------------------------------------ the hazards on a GPU


def _setup(torch: Any) -> dict[str, Any]:
    from fencepost.gpu_validate.gates import make

    side = torch.cuda.Stream()
    found = {
        "side": side, "gates": make("memory"), "host": torch.ones(1024, dtype=torch.int32).pin_memory(),
        "dev": torch.zeros(1024, dtype=torch.int32, device="cuda"), "out": torch.zeros(1024, dtype=torch.int32, device="cuda"),
    }  # fmt: skip
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        found["dev"].copy_(found["host"], non_blocking=True)
        found["dev"].fill_(1)
        found["out"].copy_(found["dev"])
    torch.cuda.synchronize()
    return found


def refill(torch: Any, s: dict[str, Any]) -> bool:
    """A pinned source rewritten while its copy waits."""
    s["host"].fill_(1)
    torch.cuda.synchronize()
    ticket = s["gates"].shut(s["side"])
    with torch.cuda.stream(s["side"]):
        s["dev"].copy_(s["host"], non_blocking=True)
    s["host"].fill_(2)
    s["gates"].open(ticket)
    torch.cuda.synchronize()
    return bool((s["dev"] != 1).any().item())


def refill_by_address(torch: Any, s: dict[str, Any]) -> bool:
    """The same, written through the address, as numpy or a C library does."""
    import ctypes

    s["host"].fill_(1)
    torch.cuda.synchronize()
    ticket = s["gates"].shut(s["side"])
    with torch.cuda.stream(s["side"]):
        s["dev"].copy_(s["host"], non_blocking=True)
    ctypes.memset(s["host"].data_ptr(), 2, 4096)
    s["gates"].open(ticket)
    torch.cuda.synchronize()
    return bool((s["dev"] != 1).any().item())


def early_read(torch: Any, s: dict[str, Any]) -> bool:
    """A device-to-host copy read before it has run."""
    s["host"].fill_(0)
    s["dev"].fill_(5)
    torch.cuda.synchronize()
    ticket = s["gates"].shut(s["side"])
    with torch.cuda.stream(s["side"]):
        s["host"].copy_(s["dev"], non_blocking=True)
    wrong = bool((s["host"] != 5).any())
    s["gates"].open(ticket)
    torch.cuda.synchronize()
    return wrong


def freed_source(torch: Any, s: dict[str, Any]) -> bool:
    """The source of a side-stream copy dropped, its block handed out again and written."""
    x = torch.empty(14 << 18, dtype=torch.int32, device="cuda")
    x[:1024].fill_(5)
    torch.cuda.synchronize()
    ticket = s["gates"].shut(s["side"])
    with torch.cuda.stream(s["side"]):
        s["out"].copy_(x[:1024])
    del x
    y = torch.empty(14 << 18, dtype=torch.int32, device="cuda")
    y[:1024].fill_(9)
    torch.cuda.default_stream().synchronize()
    s["gates"].open(ticket)
    torch.cuda.synchronize()
    return bool((s["out"] != 5).any().item())


def two_streams(torch: Any, s: dict[str, Any]) -> bool:
    """A tensor written on one stream and read on another, with no event."""
    s["dev"].fill_(0)
    torch.cuda.synchronize()
    ticket = s["gates"].shut(s["side"])
    with torch.cuda.stream(s["side"]):
        s["dev"].fill_(5)
    s["out"].copy_(s["dev"])
    torch.cuda.default_stream().synchronize()
    s["gates"].open(ticket)
    torch.cuda.synchronize()
    return bool((s["out"] != 5).any().item())


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


HAZARDS: dict[str, Callable[[Any, dict[str, Any]], bool]] = {
    f.__name__: f for f in (refill, refill_by_address, early_read, freed_source, two_streams)
}


def child(names: list[str]) -> None:
    """Ten trials of each hazard; one line of JSON for each."""
    import torch

    state = _setup(torch)
    for name in names:
        run = HAZARDS[name]
        begin = time.perf_counter()
        wrong = raised = 0
        for _ in range(TRIALS):
            # A tool that waits for each kernel would wait for ever behind a gate.
            timer = threading.Timer(0.1, state["gates"].open_all)
            timer.daemon = True
            timer.start()
            try:
                wrong += run(torch, state)
            except Exception as error:  # the sanitizer raises what it found
                if "anitiz" not in type(error).__name__:
                    raise
                raised += 1
                state["gates"].open_all()
                torch.cuda.synchronize()
            finally:
                timer.cancel()
        found = {"hazard": name, "wrong": wrong, "raised": raised, "seconds": time.perf_counter() - begin}
        print(json.dumps(found), flush=True)


def _run(names: list[str], prefix: list[str], **environment: str) -> tuple[dict[str, dict[str, Any]], int | None, str]:
    """What a process said of each hazard, the errors that compute-sanitizer summed up, and why there is nothing."""
    path = os.pathsep.join(p for p in sys.path if p)
    try:
        done = subprocess.run(
            [*prefix, sys.executable, os.path.abspath(__file__), "child", *names], capture_output=True, text=True,
            timeout=150, env={**os.environ, "PYTHONPATH": path, "CUDA_DEVICE_MAX_CONNECTIONS": "32", **environment},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {}, None, "did not end within 150 s"
    text = done.stdout + done.stderr
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"hazard"'):
            row = json.loads(line)
            found[row["hazard"]] = row
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    return found, int(summaries[-1]) if summaries else None, "" if found else " ".join(text.split())[-300:]


def verdict(name: str) -> str:
    """fencepost's answer to the same hazard."""
    from fencepost.proofs.check import check

    def design_of() -> fp.Design:
        return design(name)

    from fencepost.model.language.build import program_of

    answer = check(program_of(design_of, {}))
    return f"{answer.verdict} {answer.hazards[0].name}" if answer.hazards else answer.verdict


def main() -> int:
    """Run everything and print the table; also to the file named by the first argument, as JSON."""
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2:])
        return 0
    import torch

    if not torch.cuda.is_available():
        print("sanitizers: no GPU", file=sys.stderr)
        return 2
    names = list(HAZARDS)
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    plain, _, why = _run(names, [])
    if why:
        print(f"sanitizers: {why}", file=sys.stderr)
        return 1
    columns: dict[str, dict[str, str]] = {"CUDA sanitizer": _cells(names, plain, *_run(names, [], TORCH_CUDA_SANITIZER="1"))}
    for one in TOOLS if tool else ():
        command = [str(tool), "--tool", one, *(["--report-api-errors", "no"] if one == "memcheck" else [])]
        together = _run(names, command)
        if together[1]:  # something was reported: find out by which hazard
            columns[one] = {name: _cells([name], plain, *_run([name], command))[name] for name in names}
        else:
            columns[one] = _cells(names, plain, *together)
    rows = []
    print(f"{'hazard':<18} {'wrong':>6} " + " ".join(f"{c:<19}" for c in columns) + " fencepost")
    for name in names:
        answer = verdict(name)
        wrong = f"{plain[name]['wrong']}/{TRIALS}"
        rows.append({"hazard": name, "wrong": wrong, **{c: cells[name] for c, cells in columns.items()}, "fencepost": answer})
        print(f"{name:<18} {wrong:>6} " + " ".join(f"{cells[name]:<19}" for cells in columns.values()) + f" {answer}")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as stream:
            json.dump(rows, stream, indent=1)
    return 0


def _cells(names: list[str], plain: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]], errors: int | None,
           why: str) -> dict[str, str]:  # fmt: skip
    """For each hazard: found or not, and how much slower the same work was."""
    if why:
        print(f"sanitizers: {why}", file=sys.stderr)
    cells = {}
    for name in names:
        if name not in found:
            cells[name] = "failed"
            continue
        slower = found[name]["seconds"] / max(plain[name]["seconds"], 1e-6)
        cells[name] = f"{'found' if found[name]['raised'] or errors else 'not found'} ({slower:.1f}x)"
    return cells


if __name__ == "__main__":
    sys.exit(main())
