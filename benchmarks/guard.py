"""What the guard of vLLM V1's input preparation costs on the GPU at hand, beside what the cost model says.

The loop is one engine step: the host prepares for a given time and fills one pinned buffer, a copy takes it to the GPU,
a kernel computes for a given time, a side stream brings the result back, and the host waits for the step before (two
batches in flight). With the guard the host first waits for the copy of the step before. Three workloads: the GPU lags
behind, keeps up, and idles. Needs a GPU, networkx and z3 for the prediction (`--measure-only` leaves that out and
`--predict FILE` adds it on another machine).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import fencepost as fp

WORKLOADS = {"GPU lags": (1.0, 4.0), "GPU keeps up": (2.5, 2.5), "GPU idles": (4.0, 1.0)}
"""Name -> (preparation, forward) in milliseconds."""
BYTES = 16 << 20
STEPS = 120


def guard_loop(guard: bool = False, redundant: bool = False) -> fp.Design:
    """One pinned buffer refilled every step, two batches in flight; `redundant` adds a wait that nothing needs."""
    d = fp.Design("guard loop")
    host, device = d.pinned("inputs"), d.device("inputs_gpu")
    ready = d.event("prepare_inputs_event")
    side = d.stream("output copy")
    results = d.queue("results", capacity=2, item=(fp.EVENT,))

    @d.loop("worker")
    def step(n: fp.Turn) -> None:
        if guard:
            ready.synchronize()
        host.write()
        device.copy_(host, non_blocking=True)
        if guard:
            ready.record()
        d.launch("forward", reads=[device])
        side.wait_stream(d.current_stream())
        done = d.event("done")
        done.record(side)
        if redundant:
            done.synchronize()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


def measure(prep_ms: float, forward_ms: float, guard: bool, redundant: bool) -> dict[str, float]:
    """Milliseconds per step of the real loop, and the durations of its parts."""
    import torch

    main, side = torch.cuda.default_stream(), torch.cuda.Stream()
    host = torch.empty(BYTES // 4, dtype=torch.int32, pin_memory=True)
    device = torch.empty(BYTES // 4, dtype=torch.int32, device="cuda")
    cycles = _cycles(torch, forward_ms)
    part = host[:1024]

    def prepare() -> None:
        part.fill_(1)
        end = time.perf_counter() + prep_ms / 1e3
        while time.perf_counter() < end:
            pass

    ready = torch.cuda.Event()
    queue: list[Any] = []

    def step() -> None:
        if guard:
            ready.synchronize()
        prepare()
        device.copy_(host, non_blocking=True)
        if guard:
            ready.record()
        torch.cuda._sleep(cycles)
        side.wait_stream(main)
        done = torch.cuda.Event()
        done.record(side)
        if redundant:
            done.synchronize()
        queue.append(done)
        if len(queue) == 2:
            queue.pop(0).synchronize()

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    queue.clear()
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    per_step = 1e3 * (time.perf_counter() - begin) / STEPS
    copy_start, copy_end, forward_end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    times = []
    for _ in range(9):
        copy_start.record()
        device.copy_(host, non_blocking=True)
        copy_end.record()
        torch.cuda._sleep(cycles)
        forward_end.record()
        forward_end.synchronize()
        times.append((copy_start.elapsed_time(copy_end), copy_end.elapsed_time(forward_end)))
    copies, forwards = zip(*times, strict=True)
    return {"step_ms": per_step, "prep_ms": prep_ms, "copy_ms": sorted(copies)[4], "forward_ms": sorted(forwards)[4]}


def _cycles(torch: Any, milliseconds: float) -> int:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1000)
    start.record()
    torch.cuda._sleep(5_000_000)
    end.record()
    end.synchronize()
    return int(5_000_000 * milliseconds / start.elapsed_time(end))


LOOPS = (("no guard", False, False), ("guard", True, False), ("guard, redundant wait", True, True))


def rows() -> list[dict[str, Any]]:
    """All workloads and loops, measured."""
    found: list[dict[str, Any]] = []
    for name, (prep, forward) in WORKLOADS.items():
        for loop, guard, redundant in LOOPS:
            best = min((measure(prep, forward, guard, redundant) for _ in range(3)), key=lambda row: row["step_ms"])
            found.append({"workload": name, "loop": loop, "guard": guard, "redundant": redundant, **best})
    return found


def predict(row: dict[str, Any]) -> float:
    """Milliseconds per step by the greatest cycle ratio, from the durations measured one by one."""
    from fencepost.cost import decide
    from fencepost.model.language.build import program_of

    program = program_of(guard_loop, {"guard": row["guard"], "redundant": row["redundant"]})
    given = {
        "write inputs": row["prep_ms"] / 1e3, "copy to inputs_gpu": row["copy_ms"] / 1e3, "forward": row["forward_ms"] / 1e3,
    }  # fmt: skip
    (result,) = decide(program, given, machine=False, copies="free")
    assert result.cost.step is not None
    return 1e3 * result.cost.step


def table(measured: list[dict[str, Any]]) -> None:
    """Measured beside predicted."""
    print(f"{'workload':<14} {'loop':<22} {'measured':>9} {'predicted':>10} {'error':>7}")
    for row in measured:
        predicted = row.get("predicted_ms")
        error = "" if predicted is None else f"{100 * (predicted - row['step_ms']) / row['step_ms']:+.1f} %"
        text = "" if predicted is None else f"{predicted:.2f} ms"
        print(f"{row['workload']:<14} {row['loop']:<22} {row['step_ms']:>6.2f} ms {text:>10} {error:>7}")
    for name in WORKLOADS:
        by_loop = {row["loop"]: row for row in measured if row["workload"] == name}
        kept, gone = by_loop["guard, redundant wait"], by_loop["guard"]
        text = f"{name}: removing the redundant wait gains {kept['step_ms'] - gone['step_ms']:.2f} ms a step"
        if "predicted_ms" in kept:
            text += f"; predicted {kept['predicted_ms'] - gone['predicted_ms']:.2f} ms"
        print(text)


def main() -> int:
    """Measure, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure-only", metavar="FILE", help="write the measurements, without prediction")
    parser.add_argument("--predict", metavar="FILE", help="read measurements and add the predictions")
    arguments = parser.parse_args()
    if arguments.predict:
        with open(arguments.predict) as stream:
            measured = json.load(stream)
    else:
        import torch

        if not torch.cuda.is_available():
            print("guard: no GPU; read measurements with --predict FILE", file=sys.stderr)
            return 2
        measured = rows()
    if arguments.measure_only:
        with open(arguments.measure_only, "w") as stream:
            json.dump(measured, stream, indent=1)
    else:
        for row in measured:
            row["predicted_ms"] = predict(row)
    table(measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
