"""The separate checker of a reachable set: start covered, closed under every step, no hazard.

It knows nothing of how the set was found: no order, no covering decisions, only the transition relation.
"""

from __future__ import annotations

import hashlib
from typing import Any

from fencepost.proofs.explore.search import Reach, Search


class Rejected(Exception):
    """The set is no invariant; `args[0]` says which obligation fails."""


def check(search: Search, reach: Reach) -> int:
    """Validate `reach` against the transition relation of `search`; returns the number of stored states.

    Hazards that `reach` lists itself are allowed: whoever calls this a proof has judged each of them.
    """
    known = {(found.kind, found.second[1]) for found in reach.hazards}

    def covered(s: Any) -> bool:
        control, bits = search.key(s)
        for stored, _ in reach.states.get(control, ()):  # noqa: SIM110 (asked of every state, and a generator costs)
            if stored & bits == stored:
                return True
        return False

    if not covered(search.start()):
        raise Rejected("the start state is not covered")
    for row in reach.states.values():
        for _, state in row:
            search.merged.clear()
            for after in search.successors(state):
                if after.hazard is not None and after.hazard[0] != "same bytes":
                    if after.hazard[:2] in known:
                        continue
                    raise Rejected(f"a hazard is reachable: {after.hazard}")
                after.hazard = None
                if search.closed(after):
                    continue
                search.normalise(after)
                if not covered(after):
                    raise Rejected("a successor is not covered")
    return reach.size


def digest(search: Search, reach: Reach) -> str:
    """SHA-256 over the sorted minimal states; equal for equal sets."""
    h = hashlib.sha256(repr(search.location).encode())
    for line in sorted(repr((control, sorted(b for b, _ in row))) for control, row in reach.states.items()):
        h.update(line.encode())
    return h.hexdigest()
