"""ATOM's micro-benchmark (#2654) on the GPU at hand: side-stream copies whose device source is dropped while they wait.

Rows: what lies in front of the copy (nothing, a 256 MiB copy, 16 busy streams, the same with one hardware queue, a
gate); columns: no protection, held by reference, record_stream. Then the five sources of the design and `clean()`,
without and with their fix. Wrong of 200 each. `python benchmarks/atom.py` needs a GPU; it starts one process for each
setting of CUDA_DEVICE_MAX_CONNECTIONS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

TRIALS = 200
SIZE = 14 << 20
"""Bytes of the block: a segment of its own, so that the next tensor of that size gets it."""
COUNT = 32
"""Elements that are copied: batch size 32."""


def _trial(torch: Any, ahead: str, protect: str, state: dict[str, Any]) -> bool:
    """One step: ids computed, copied on the side stream, dropped; the next step's tensor is written. Wrong?"""
    side, main = state["side"], torch.cuda.default_stream()
    ids = torch.empty(SIZE // 4, dtype=torch.int32, device="cuda")
    ids[:COUNT].fill_(7)
    side.wait_stream(main)
    ticket = None
    if ahead == "gate":
        ticket = state["gates"].shut(side)
    elif ahead == "copy":
        with torch.cuda.stream(side):
            state["big_host"].copy_(state["big"], non_blocking=True)
    elif ahead == "busy":
        for stream in state["streams"]:
            with torch.cuda.stream(stream):
                for _ in range(4):
                    torch.mm(state["a"], state["a"], out=state["out"])
    landed = state["landed"]
    landed.zero_()
    with torch.cuda.stream(side):
        landed.copy_(ids[:COUNT], non_blocking=True)
        done = torch.cuda.Event()
        done.record()
    held = ids if protect == "held" else None
    if protect == "record_stream":
        ids.record_stream(side)
    del ids
    following = torch.empty(SIZE // 4, dtype=torch.int32, device="cuda")
    following[:COUNT].fill_(9)
    if ticket is not None:
        marker = torch.cuda.Event()
        marker.record(main)
        while not marker.query():
            pass
        state["gates"].open(ticket)
    done.synchronize()
    wrong = bool((landed != 7).any())
    torch.cuda.synchronize()
    del held, following
    return wrong


def child() -> None:
    """All rows that one setting of the connections allows; JSON on standard output."""
    import torch
    from fencepost.gpu_validate.gates import make

    only_busy = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"
    state: dict[str, Any] = {
        "side": torch.cuda.Stream(), "gates": make("auto"), "landed": torch.zeros(COUNT, dtype=torch.int32, pin_memory=True),
        "big": torch.zeros(64 << 20, dtype=torch.int32, device="cuda"),
        "big_host": torch.zeros(64 << 20, dtype=torch.int32, pin_memory=True),
        "streams": [torch.cuda.Stream() for _ in range(16)], "a": torch.ones(2048, 2048, device="cuda"),
        "out": torch.ones(2048, 2048, device="cuda"),
    }  # fmt: skip
    found = {}
    for ahead in ("busy",) if only_busy else ("nothing", "copy", "busy", "gate"):
        for protect in ("none", "held", "record_stream"):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            for _ in range(3):
                _trial(torch, "busy" if ahead == "busy" else "nothing", protect, state)
            found[f"{ahead},{protect}"] = sum(_trial(torch, ahead, protect, state) for _ in range(TRIALS))
    print(json.dumps(found))


def run(connections: str) -> dict[str, int]:
    """The child's counts under a setting."""
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "child"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": path, "CUDA_DEVICE_MAX_CONNECTIONS": connections},
    )  # fmt: skip
    found: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> int:
    """Print the table, and write it as JSON to the file named by the first argument."""
    if sys.argv[1:] == ["child"]:
        child()
        return 0
    import torch

    if not torch.cuda.is_available():
        print("atom: no GPU", file=sys.stderr)
        return 2
    tables = {"8": run("8"), "4": run("4"), "1": run("1")}
    print(f"{'in front of the copy':<34} {'nothing done':>13} {'held':>8} {'record_stream':>14}")
    for label, connections, ahead in (
        ("nothing", "8", "nothing"), ("a 256 MiB copy", "8", "copy"), ("16 busy streams", "8", "busy"),
        ("16 busy streams, 4 connections", "4", "busy"), ("16 busy streams, 1 connection", "1", "busy"),
        ("a shut gate", "8", "gate"),
    ):  # fmt: skip
        cells = [f"{tables[connections][f'{ahead},{p}']}/{TRIALS}" for p in ("none", "held", "record_stream")]
        print(f"{label:<34} {cells[0]:>13} {cells[1]:>8} {cells[2]:>14}")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as stream:
            json.dump({"trials": TRIALS, "by_connections": tables}, stream, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
