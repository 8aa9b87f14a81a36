"""How the explorer's time grows: results outstanding, two kinds of step, and S copies of one guarded buffer beside SPIN.

Measured is the whole `proofs.check.check`, report questions and certificate check included, the best of a few runs.
SPIN runs on `spin/copies.pml`, the same family by hand; without spin or gcc that part is skipped and says so.

    python benchmarks/growth.py [--spin S]     exit 1 when a target is missed
"""

from __future__ import annotations

import argparse
import math
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import designs  # beside this file
from fencepost.model import program as p
from fencepost.model.answer import PROVED, REFUTED, Answer
from fencepost.proofs.check import check

SECONDS = 2.0
MEGABYTES = 300
SPIN_MODEL = Path(__file__).with_name("spin") / "copies.pml"


def measure(program: p.Program, runs: int = 3) -> tuple[float, Answer]:
    """The least wall time of `runs` checks in seconds, and the answer."""
    best, answer = math.inf, None
    for _ in range(runs):
        started = time.perf_counter()
        answer = check(program)
        best = min(best, time.perf_counter() - started)
    assert answer is not None
    return best, answer


def exponent(points: list[tuple[int, float]]) -> float:
    """The least-squares slope of log time over log size: time grows as size to this power."""
    xs = [math.log(n) for n, _ in points]
    ys = [math.log(seconds) for _, seconds in points]
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / sum((x - x0) ** 2 for x in xs)


class Report:
    """Prints figures and remembers which targets are missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def target(self, name: str, value: float, limit: float, unit: str) -> None:
        """One figure against its limit."""
        ok = value <= limit
        print(f"  {name}: {value:.2f}{unit} (target <= {limit:g}{unit}){'' if ok else '   MISSED'}")
        if not ok:
            self.missed.append(name)

    def verdict(self, name: str, answer: Answer, expected: str) -> None:
        """A figure counts only with the right answer."""
        if answer.verdict != expected:
            print(f"  {name}: {answer.verdict}, expected {expected}: {answer.reason}   WRONG")
            self.missed.append(name)


def series(report: Report, title: str, sizes: list[int], make: object, limit: float) -> None:
    """Time of a family over its sizes, its exponent over all and over the upper half, and the time at the last."""
    assert callable(make)
    print(title)
    points: list[tuple[int, float]] = []
    for size in sizes:
        seconds, answer = measure(make(size))
        report.verdict(f"{title} {size}", answer, PROVED)
        states = answer.certificate.states if answer.certificate else 0
        print(f"  {size:4d}  {seconds * 1000:9.1f} ms  {states:6d} states", flush=True)
        points.append((size, seconds))
    report.target("exponent, all sizes", exponent(points), limit, "")
    print(f"  exponent, upper half: {exponent(points[len(points) // 2 :]):.2f}")
    report.target(f"seconds at {sizes[-1]}", points[-1][1], SECONDS, " s")


def kinds(report: Report) -> None:
    """Two kinds of step with 128 results outstanding."""
    print("two kinds of step, depth = results outstanding = 128")
    for second, expected in (("waits", PROVED), ("idle", PROVED), ("encoder", REFUTED)):
        seconds, answer = measure(designs.kinds(128, 128, second))
        report.verdict(second, answer, expected)
        report.target(f"second kind {second!r}, {answer.verdict}", seconds, SECONDS, " s")


def spin(size: int) -> tuple[int, float] | str:
    """(stored states, seconds) of SPIN's full search on `size` copies; a string says why there is no figure."""
    if not shutil.which("spin") or not shutil.which("gcc"):
        return "SKIPPED: spin and gcc are needed (apt-get install spin gcc)"
    with tempfile.TemporaryDirectory() as folder:
        for command in (["spin", "-a", f"-DS={size}", str(SPIN_MODEL)], ["gcc", "-O2", "-DSAFETY", "-o", "pan", "pan.c"]):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                return f"FAILED: {' '.join(command)}: {done.stderr or done.stdout}"
        out = subprocess.run(["./pan", "-m10000000"], cwd=folder, capture_output=True, text=True).stdout
    elapsed = re.search(r"elapsed time ([0-9.e+-]+) seconds", out)  # its own figure: without the stack's allocation
    stored, errors = re.search(r"(\d+) states, stored", out), re.search(r"errors: (\d+)", out)
    if stored is None or errors is None or elapsed is None or errors[1] != "0" or "max search depth too small" in out:
        return f"FAILED: {out[-400:]}"
    return int(stored[1]), float(elapsed[1])


def beside_spin(report: Report, most: int) -> None:
    """The family of copies by both."""
    version = subprocess.run(["spin", "-V"], capture_output=True, text=True).stdout.strip() if shutil.which("spin") else ""
    print(f"S copies, every step, beside SPIN ({version or 'not installed'})")
    print("     S   fencepost                   SPIN                            SPIN / fencepost")
    for size in range(1, most + 1):
        seconds, answer = measure(designs.copies(size))
        states = answer.certificate.states if answer.certificate else 0
        other = spin(size)
        if isinstance(other, str):
            print(f"  {other}")
            if other.startswith("FAILED"):
                report.missed.append("SPIN")
            return
        # pan counts in hundredths of a second: below a tenth there is no ratio.
        faster = f"{other[1] / seconds:8.1f} x time" if other[1] >= 0.1 else ""
        print(f"  {size:4d} {states:6d} states {seconds:8.4f} s {other[0]:11,d} states {other[1]:9.3f} s"
              f"  {other[0] / max(states, 1):10.0f} x states {faster}", flush=True)  # fmt: skip


def main() -> int:
    """Print every figure; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spin", type=int, default=4, metavar="S", help="largest S that SPIN is run on")
    arguments = parser.parse_args()
    report = Report()
    series(report, "depth = results outstanding", [4, 8, 16, 32, 64, 128, 256], lambda n: designs.ring(n, n), 2.0)
    kinds(report)
    series(report, "S copies of one guarded buffer", [1, 2, 4, 8, 16, 32, 64], designs.copies, 1.5)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.target("peak memory of this process", peak, MEGABYTES, " MB")
    beside_spin(report, arguments.spin)
    if report.missed:
        print("MISSED:", ", ".join(report.missed))
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
