"""What a certificate costs: writing it, deriving it again from its files, each solver on its obligations, by ring depth.

The target is a ring of depth 64 with 64 results outstanding: each solver under 5 s. Processor time, so that other work on
the machine matters little. cvc5 absent: said so. Exit 1 when a solver takes longer than the target, or fails.

    python benchmarks/certificates.py [--depth 64]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

from fencepost.designs import ring
from fencepost.model.language.build import program_of
from fencepost.model.platform import platform
from fencepost.proofs.certificates import files, solvers, verifying, writing

TARGET = 5.0
"""Seconds of each solver at the greatest depth."""


def measure(depth: int, use: list[str]) -> dict[str, float]:
    """Seconds: "write", each solver, and "derive" for the rest of verify; "sets", "edges" and "bytes" of the files."""
    program = program_of(ring.ring, {"depth": depth, "outstanding": depth})
    with tempfile.TemporaryDirectory() as where:
        begin = time.process_time()
        writing.write_certificate(where, program, platform(None))
        wrote = time.process_time()
        manifest = files.load_manifest(where)
        report = verifying.verify(where, manifest, verifying.read_program(where, manifest), use=use)
        spent = {solver: sum(s.seconds for s in report.solved if s.solver == solver) for solver in use}
        size = sum(os.path.getsize(os.path.join(where, name)) for name in os.listdir(where))
        if not report.verified:
            print(f"depth {depth}: {(report.failures + report.open)[0]}")
            spent = dict.fromkeys(use, float("inf"))
        rest = time.process_time() - wrote - sum(s.seconds for s in report.solved)
    return {
        "write": wrote - begin, "derive": rest, **spent, "sets": report.states, "edges": report.edges, "bytes": size,
    }  # fmt: skip


def main() -> int:
    """Print the table; 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=64, help="the greatest depth (64)")
    greatest = parser.parse_args().depth
    use = [solver for solver in solvers.SOLVERS if solvers.installed(solver)]
    missing = set(solvers.SOLVERS) - set(use)
    if missing:
        print(f"not installed: {', '.join(sorted(missing))}")
    print(f"{'depth':>6}{'bit sets':>10}{'edges':>8}{'KiB':>8}{'write':>9}{'derive':>9}" + "".join(f"{s:>9}" for s in use))
    worst = 0.0
    for depth in sorted({d for d in (4, 8, 16, 32) if d < greatest} | {greatest}):
        got = measure(depth, use)
        times = "".join(f"{got[key]:7.2f} s" for key in ("write", "derive", *use))
        print(f"{depth:>6}{got['sets']:>10.0f}{got['edges']:>8.0f}{got['bytes'] / 1024:>8.0f}{times}", flush=True)
        worst = max(got[solver] for solver in use)
    print(f"target: each solver under {TARGET:g} s at depth {greatest}: {'met' if worst < TARGET else 'MISSED'} ({worst:.1f} s)")
    return 0 if worst < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
