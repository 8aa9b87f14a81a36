"""The bounded SMT engine on every refuted variant of designs/: whole processes, the ten that take longest, in CPU seconds.

The target is the first counterexample of every published bug in under 2 s, with the start of the interpreter, the
tracing of the design, Z3's import and the report; the search for further hazards after the first is in the figure.

    python benchmarks/counterexamples.py [WORD]     exit 1 when the target is missed or a hazard is not the declared one

With a word only the variants that have it in their name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fencepost.check import Case, cases
from fencepost.loader import load
from fencepost.model.answer import REFUTED
from fencepost.model.language.build import program_of
from fencepost.model.operations.meetings import first_meeting
from fencepost.parameters import signature, spelled

ROOT = Path(__file__).resolve().parent.parent
STEPS = 18
"""Turns asked for: one more than the longest counterexample has."""
LIMIT = 2.0
"""Most CPU seconds of a process."""


def encoded(case: Case) -> bool:
    """Whether the engine takes the design: it refuses streams that meet on the device, by name."""
    (target,) = load([case.target])
    assert target.function is not None
    return first_meeting(program_of(target.function, case.parameters)) is None


def measure(case: Case) -> tuple[float, str, bool]:
    """CPU seconds of the command, the turns of the counterexample, and whether it shows the declared hazard."""
    command = [sys.executable, "-m", "fencepost", "check", case.target, "--engine", "smt", "--steps", str(STEPS), "--jobs", "1"]
    defaults = {name: default for name, (_, default) in signature(load([case.target])[0]).items()}
    for name, value in (case.parameters or defaults).items():
        command += ["--set", spelled({name: value})]
    if not case.parameters and not defaults:
        command += ["-k", case.title]
    for option, given in (("--environment", case.environment), ("--platform", case.platform)):
        command += [option, given] if given is not None else []
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    shown = "REFUTED" in said.upper() and (case.hazard is None or case.hazard in said)
    return used.ru_utime + used.ru_stime, said, shown


def main() -> int:
    """Print the table; 1 when a process takes longer than it may, or shows something else."""
    files = sorted(str(path) for path in (ROOT / "designs").glob("*.py") if path.name != "__init__.py")
    asked = [case for case in cases(load([*files, str(ROOT / "designs" / "cases")])) if case.expected == REFUTED]
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    asked = [case for case in asked if word in f"{case.design}: {case.title}"]
    known = [case for case in asked if encoded(case)]
    rows = []
    for case in known:
        seconds, said, shown = measure(case)
        rows.append((seconds, f"{case.design}: {case.title}", shown))
        if not shown:
            print(f"{case.design}: {case.title} does not show {case.hazard}:\n{said}", flush=True)
    rows.sort(reverse=True)
    print(f"{len(known)} refuted variants, {len(asked) - len(known)} more whose streams meet on the device (refused by name)")
    print(f"{'CPU s':>7}  variant")
    for seconds, name, _ in rows[:10]:
        print(f"{seconds:7.2f}  {name}")
    middle = rows[len(rows) // 2][0]
    good = rows[0][0] < LIMIT and all(shown for _, _, shown in rows)
    print(f"median {middle:.2f} s; target: each under {LIMIT:g} s: {'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
