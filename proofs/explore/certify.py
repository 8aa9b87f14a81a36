"""The separate checker of a reachable set: start covered, closed under every step, no hazard.

It knows nothing of how the set was found: no order, no covering decisions, only what each stored state is, and where its
steps lead. `check` takes the steps that the search recorded when it took them; `recompute` takes every step again.
"""

from __future__ import annotations

import hashlib

from fencepost.proofs.explore.search import Edge, Reach, Row, Search
from fencepost.proofs.explore.state import State


class Rejected(Exception):
    """The set is no invariant; `args[0]` says which obligation fails."""


def check(search: Search, reach: Reach) -> int:
    """Validate `reach` against the steps that `search` recorded; returns the number of stored states.

    Every stored state is still what it is stored as, and its steps were taken; every recorded step leads to what is covered by the
    set as it is in the end, or to where nothing can happen any more (which the search decides: such a step is not recorded).
    Hazards that `reach` lists itself are allowed: whoever calls this a proof has judged each of them.
    """
    _begins(search, reach)
    known = {(found.kind, found.first, found.second, found.which) for found in reach.hazards}
    for hazard in reach.noticed - known:
        if hazard[0] != "same bytes":
            raise Rejected(f"a hazard is reachable: {hazard}")
    held = {id(row) for row in reach.states.values()}
    for control, row in reach.states.items():
        for bits, state in row:
            if search.key(state) != (control, bits):
                raise Rejected("a state is not what it is stored as")
            if state.edges is None:
                raise Rejected("the steps of a state were not taken")
            for to, needed in state.edges:
                if id(to) not in held or not _covered(to, needed):
                    raise Rejected("a successor is not covered")
    return reach.size


def recompute(search: Search, reach: Reach) -> int:
    """Validate `reach` as `check`, with every step of every stored state taken again; returns the number of stored states.

    What `check` relies on is compared: the recorded steps are exactly those that the states have.
    """
    _begins(search, reach)
    known = {(found.kind, found.second) for found in reach.hazards}
    for row in reach.states.values():
        for _, state in row:
            edges: list[Edge] = []
            for after in _successors(search, state):
                if after.hazard is not None and after.hazard[0] != "same bytes":
                    kind, _, second, _ = search._pair(after)
                    if (kind, second) not in known:
                        raise Rejected(f"a hazard is reachable: {after.hazard}")
                    continue
                after.hazard = None
                if search.closed(after):
                    continue
                search.normalise(after)
                control, bits = search.key(after)
                to = reach.states.get(control, [])
                if not _covered(to, bits):
                    raise Rejected("a successor is not covered")
                edges.append((to, bits))
            recorded = state.edges or []
            if [(id(to), bits) for to, bits in edges] != [(id(to), bits) for to, bits in recorded]:
                raise Rejected("the recorded steps are not those of the state")
    return check(search, reach)


def _begins(search: Search, reach: Reach) -> None:
    """The set is one of this search, whole, and holds the start."""
    if reach.search is not search:
        raise Rejected("the set is one of another search")
    if search.beyond:
        raise Rejected(f"states were left out: {search.beyond}")
    control, bits = search.key(search.start())
    if not _covered(reach.states.get(control, []), bits):
        raise Rejected("the start state is not covered")


def _covered(row: Row, bits: int) -> bool:
    for stored, _ in row:  # noqa: SIM110 (asked of every step, and a generator costs)
        if stored & bits == stored:
            return True
    return False


def _successors(search: Search, state: State) -> list[State]:
    search.merged.clear()
    return list(search.successors(state))


def digest(search: Search, reach: Reach) -> str:
    """SHA-256 over the sorted minimal states; equal for equal sets."""
    h = hashlib.sha256(repr(search.location).encode())
    for line in sorted(repr((control, sorted(b for b, _ in row))) for control, row in reach.states.items()):
        h.update(line.encode())
    return h.hexdigest()
