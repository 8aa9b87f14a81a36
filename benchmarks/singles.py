"""Single designs as whole processes: the ten variants that take longest, and every one whose ranks are four, in CPU and wall seconds.

Each is what a user waits for who checks one variant: the start of the interpreter, tracing, exploration, the report's
questions, hangs, the replay of the counterexample and the check of the certificate, in one process.

    python benchmarks/singles.py [WORD]     exit 1 when one takes longer than it may, or is not as declared

With a word only the designs that have it in their name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from fencepost.check import Case, build, cases, decide
from fencepost.loader import load
from fencepost.model import program as p

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 3.0
"""Most seconds of a process."""
MEASURED = 16
"""Variants that are measured as whole processes: those that take longest without the start."""
SHOWN = 10
MEETING = ("tensor_parallel", "attention_data_parallel", "ell_across_ranks")
"""Designs whose ranks meet; some of their variants have four."""


class Row(NamedTuple):
    """One whole process."""

    cpu: float
    wall: float
    name: str
    good: bool


def measure(case: Case) -> Row:
    """`fencepost check TARGET -k VARIANT` in one process; the better of two runs, for the first may write bytecode."""
    command = [sys.executable, "-m", "fencepost", "check", case.target, "--jobs", "1", "-k", case.title]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    name, best = f"{case.design}: {case.title}", None
    for _ in range(2):
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        row = Row(used.ru_utime + used.ru_stime, time.perf_counter() - started, name, os.waitstatus_to_exitcode(status) == 0)
        if not row.good:
            print(f"{name}: not as declared:\n{said}", flush=True)
        best = row if best is None else min(best, row)
    assert best is not None
    return best


def ranks(case: Case) -> int:
    """Most ranks that meet in one communicator: threads that signal each other, by the process that they are of."""
    (target,) = load([case.target])
    program = build(target, dict(case.parameters))
    return len({
        thread.process for thread in program.threads
        if any(isinstance(node, p.Do) and isinstance(node.operation, (p.Signal, p.Await)) for node in thread.nodes)
    })  # fmt: skip


def table(rows: list[Row]) -> None:
    """CPU and wall seconds, longest first."""
    print(f"{'CPU s':>7} {'wall s':>7}  variant")
    for row in sorted(rows, reverse=True):
        print(f"{row.cpu:7.2f} {row.wall:7.2f}  {row.name}")


def main() -> int:
    """Print both tables; 1 when a process takes longer than it may, or a variant is not as declared."""
    files = sorted(str(path) for path in (ROOT / "designs").glob("*.py") if path.name != "__init__.py")
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    asked = [case for case in cases(load([*files, str(ROOT / "designs" / "cases")])) if word in f"{case.design}: {case.title}"]
    spent: list[tuple[float, int]] = []
    for number, case in enumerate(asked):
        started = time.process_time()
        decide(case)
        spent.append((time.process_time() - started, number))
    slowest = [asked[number] for _, number in sorted(spent, reverse=True)[:MEASURED]]
    four = [case for case in asked if case.design.rpartition("::")[2] in MEETING and ranks(case) == 4]
    rows = {case.design + case.title: measure(case) for case in [*slowest, *four]}
    first = sorted((rows[case.design + case.title] for case in slowest), reverse=True)[:SHOWN]
    fours = [rows[case.design + case.title] for case in four]
    print(f"{len(asked)} variants; the {len(first)} that take longest:")
    table(first)
    print(f"{len(fours)} variants with four ranks that meet:")
    table(fours)
    most = max((row.cpu for row in rows.values()), default=0.0)
    good = most < LIMIT and all(row.good for row in rows.values())
    print(f"most {most:.2f} s of CPU; target: each under {LIMIT:g} s: {'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
