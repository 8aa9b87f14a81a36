"""Conditions for all values: CPU time of every theorem of docs/proofs.md, and the ring one depth at a time, naive in Z3.

The comparison is what one would write without a periodic event graph: the ring at a fixed depth as a transition system
over integers, the slot of step n being `n mod depth`, proved for every number of steps by Z3's own engine for such
systems (Spacer). It is asked in the same run, one depth after the other, until it does not answer in a minute.
"""

from __future__ import annotations

import os
import sys
import time

from fencepost.proofs_page import THEOREMS, prove, statement

DESIGNS = os.path.join(os.path.dirname(__file__), os.pardir, "designs")
RING = "vLLM V2: depth of a slot pool"
LIMIT = 2.0
"""Most CPU seconds for one condition."""


NAIVE_SECONDS = 60.0
"""When the naive proof of one depth is given up."""


def naive(depth: int, seconds: float = NAIVE_SECONDS) -> tuple[str, float]:
    """The ring at one depth with as many results outstanding: Z3's answer ("sat": an invariant was found) and CPU seconds.

    State: the turn, how many results are known, and for each slot whether a kernel that reads it is in flight and of
    which step it is. Step n writes slot n mod depth, launches the reader, and waits for the oldest result.
    """
    import z3

    solver = z3.SolverFor("HORN")
    solver.set("timeout", int(seconds * 1000))
    turn, known = z3.Ints("turn known")
    busy = [z3.Bool(f"busy{d}") for d in range(depth)]
    step = [z3.Int(f"step{d}") for d in range(depth)]
    integer, boolean = z3.IntSort(), z3.BoolSort()
    reachable = z3.Function("reachable", *[integer] * 2, *[boolean] * depth, *[integer] * depth, boolean)
    state = [turn, known, *busy, *step]
    solver.add(reachable(*[z3.IntVal(0)] * 2, *[z3.BoolVal(False)] * depth, *[z3.IntVal(0)] * depth))
    slot = turn % depth
    after = z3.If(turn + 1 - known >= depth, known + 1, known)
    steps = [z3.If(slot == d, turn, step[d]) for d in range(depth)]
    still = [z3.And(z3.Or(busy[d], slot == d), steps[d] >= after) for d in range(depth)]
    solver.add(z3.ForAll(state, z3.Implies(reachable(*state), reachable(turn + 1, after, *still, *steps))))
    race = z3.Or(*[z3.And(slot == d, busy[d]) for d in range(depth)])
    solver.add(z3.ForAll(state, z3.Implies(z3.And(reachable(*state), race), z3.BoolVal(False))))
    begin = time.process_time()
    answer = solver.check()
    return str(answer), time.process_time() - begin


def main() -> int:
    """Print the figures; 1 when a condition takes longer than it may."""
    late = 0
    prove(THEOREMS[0], DESIGNS)  # imports are not what is measured
    print(f"{'CPU s':>7}  theorem")
    for theorem in THEOREMS:
        result, seconds = prove(theorem, DESIGNS)
        late += seconds > LIMIT
        print(f"{seconds:7.2f}  {theorem.about}: {statement(result)}")
    print(f"\neach below {LIMIT:g} s for all values: {'no' if late else 'yes'}")
    (ring,) = [one for one in THEOREMS if one.about == RING]
    _, ours = prove(ring, DESIGNS)
    print(f"\nthe ring for every number of steps: here {ours:.2f} s for all depths together; naive in Z3 with mod:")
    for depth in (1, 2, 4, 8):
        answer, seconds = naive(depth)
        found = "proved" if answer == "sat" else f"no answer within {NAIVE_SECONDS:g} s of wall time"
        print(f"{seconds:7.2f}  depth {depth} alone: {found}, {seconds / ours:.1f} times as long")
        if answer != "sat":
            break
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
