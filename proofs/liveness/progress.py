"""What is no wait that never ends, and still no progress as meant: over-waits, lost signals, starvation, livelock, in words.

Definitions (docs/answers.md): an *over-wait* is a wait through an event that may have been recorded again since the waiter was
told of the record that it waits for; a *lost signal* a store to a device flag that no wait has reset yet; *starvation* is a
circle of states in which a thread waits for what others get again and again; *livelock* is a set of states that nothing
leaves, in which a thread asks the same test for ever and gets the same answer, because the threads that could change it keep
asking too.
"""

from __future__ import annotations

from math import inf

from fencepost.model import program as p
from fencepost.proofs.liveness.livelock import livelocks
from fencepost.proofs.liveness.lost import lost_signals
from fencepost.proofs.liveness.overwaits import over_waits
from fencepost.proofs.liveness.starvation import starvation

STATES = 4_000
"""States that each of the four is looked for in."""


def findings(
    program: p.Program, limit: int = STATES, bounds: set[str] | None = None, until: float = inf
) -> tuple[str, ...]:
    """Name and sentence of each, over-waits first. Looks at `limit` states at most, or at those that it comes to `until` then
    (`time.monotonic`), and adds to `bounds` why it saw no more."""
    bounds = set() if bounds is None else bounds
    finders = (over_waits, lost_signals, starvation, livelocks)
    return tuple(told for find in finders for told in find(program, limit, bounds, until))
