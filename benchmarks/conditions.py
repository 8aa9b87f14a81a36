"""Conditions for all values: CPU time of every theorem of docs/proofs.md, and of the ring "for every depth" by hand in Z3.

The comparison is what one would write without a periodic event graph: at a fixed depth, an invariant over integers with
`mod`, checked by Z3. It was measured once at 1.3 s for depth 2, 50 s for depth 4, and it gave up at depth 8.
"""

from __future__ import annotations

import os
import sys
import time

from fencepost.proofs_page import THEOREMS, prove, statement

DESIGNS = os.path.join(os.path.dirname(__file__), os.pardir, "designs")
LIMIT = 2.0
"""Most CPU seconds for one condition."""


def by_hand(depth: int, limit_ms: int = 10_000) -> tuple[str, float]:
    """The ring at one depth, with `outstanding` = `depth`: the slot that step n writes is read by no kernel in flight.

    State: the turn, the results known; a kernel of step k is in flight from its launch until the result of k is known.
    Asked: no state after which the slot n mod depth is still to be read. Gives Z3's answer and CPU seconds.
    """
    import z3

    n, known, k = z3.Ints("n known k")
    solver = z3.Solver()
    solver.set("timeout", limit_ms)
    inside = z3.And(n >= 0, known >= 0, known <= n, n - known < depth)
    in_flight = z3.And(k >= known, k < n)
    solver.add(inside, in_flight, k % depth == n % depth)
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
    for depth in (2, 8, 32):
        answer, seconds = by_hand(depth)
        print(f"by hand in Z3 with mod, invariant given, depth {depth} alone: {answer} in {seconds:.2f} s")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
