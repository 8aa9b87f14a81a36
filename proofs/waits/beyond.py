"""What goes wrong at a location beside the hazards that it has as it is: a search that goes on behind these.

A search ends a path at its first hazard. At a location that is refuted as it is, that hides whatever a synchronisation
orders behind it. Here pairs of operations that are unordered anyway are passed over, and only further ones count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.model.platform import Environment, Platform
from fencepost.proofs.explore.compile import Apply, DoNode, Unsupported
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.memory import FORKS, forks
from fencepost.proofs.explore.search import Budget, Found, OutOfBudget, Search
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.state import Beyond, State
from fencepost.proofs.judge import Judged, judge
from fencepost.proofs.waits.handles import Node

STATES, SECONDS = 20_000, 4.0
"""What one such search may store and take; beyond that it is open."""

Unordered = frozenset[tuple[Node, Node]]
"""(first, second operation): pairs with conflicting accesses that some run of the design as it is leaves unordered."""

UNREAD = "nothing in the design reads"
"""How the reason begins why two orders of accesses give nobody another value, whatever the run."""

_ENDS = ("same bytes", "UNDEFINED", "EMPTY", "TWICE")
"""Kinds of hazards that are no two accesses in either order; what is undefined is so however the others are ordered."""


def unordered(setting: Setting, location: Location, seconds: float) -> Unordered | None:
    """All pairs that the design as it is leaves unordered there; None where not all of them can be known.

    Reads of what nobody wrote are left out: behind these nothing is known.
    """
    seen: set[tuple[Node, Node]] = set()
    found = _explored(setting, location, None, seen, seconds)
    if isinstance(found, str) or any(one.kind in _ENDS[1:] for one in found):
        return None
    return frozenset(seen)


def further(
    program: p.Program, setting: Setting, location: Location, known: Unordered, seconds: float, platform: Platform,
    environment: Environment,
) -> tuple[list[Judged], str]:  # fmt: skip
    """The hazards of pairs that are not known, shortest run first, each replayed; and why it is open whether there are any.

    No hazard and no reason: there is none.
    """
    reach = _explored(setting, location, known, set(), seconds)
    if isinstance(reach, str):
        return [], reach
    new: list[Judged] = []
    doubt = ""
    for found in sorted(reach, key=lambda one: one.length):
        if found.first is not None and (found.first, found.second) in known:
            continue
        result = judge(program, location, found, platform, environment, setting.lowered)
        if isinstance(result, str):
            doubt = doubt or result
        elif result.hazard.value_changing:
            new.append(result)
        elif result.hazard.value_changing is None or not (found.kind == "same bytes" or result.why.startswith(UNREAD)):
            doubt = doubt or f"{result.hazard.name}: access-level only in the run that was found ({result.why})"
    return sorted(new, key=lambda one: (one.turns, len(one.run.steps))), doubt


def pairs(setting: Setting, location: Location, states: int, seconds: float) -> Unordered | None:
    """All pairs that a search finds unordered there, also behind others; None when it does not end."""
    seen: set[tuple[Node, Node]] = set()
    found = _explored(setting, location, None, seen, seconds, states)
    if isinstance(found, str):
        return None
    return frozenset(seen | {(one.first, one.second) for one in found if one.first is not None and one.kind != "same bytes"})


def _explored(
    setting: Setting, location: Location, passed: Unordered | None, seen: set[tuple[Node, Node]], seconds: float,
    states: int = STATES,
) -> list[Found] | str:  # fmt: skip
    """The hazards of a search that passes these pairs over (None: all, and enters them in `seen`), or why there is none."""
    try:
        search = Search(setting, location)
        for t, code in enumerate(search.code):
            for i, node in enumerate(code):
                if isinstance(node, DoNode) and any(getattr(one, FORKS, False) for one in node.effects):
                    effects = tuple(
                        _going_on(one, (t, i), passed, seen) if getattr(one, FORKS, False) else one for one in node.effects
                    )
                    code[i] = msgspec.structs.replace(node, effects=effects)
        if search.device is not None:
            search.device.judges[:] = [_judging(one, passed, seen) for one in search.device.judges]
        return search.run(Budget(states, max(0.05, min(seconds, SECONDS)))).hazards
    except (OutOfBudget, Unsupported, Beyond) as stop:
        return str(stop)


def _going_on(effect: Apply, at: Node, passed: Unordered | None, seen: set[tuple[Node, Node]]) -> Apply:
    """The effect, behind whose hazard the path goes on where its pair is passed over, as it does for equal bytes."""

    def run(s: State) -> list[State] | None:
        before = s.hazard
        states: list[State] | None = effect(s)
        _pass_over(states or (s,), before, at, passed, seen)
        return states

    return forks(run)


def _judging(judge: Callable[..., Any], passed: Unordered | None, seen: set[tuple[Node, Node]]) -> Callable[..., Any]:
    """As `_going_on`, for what judges the accesses of an item that had to wait in its stream."""

    def run(s: State, *arguments: Any) -> Any:
        before = s.hazard
        states = judge(s, *arguments)
        _pass_over(states or (s,), before, None, passed, seen)
        return states

    return run


def _pass_over(
    states: Iterable[State], before: object, at: Node | None, passed: Unordered | None, seen: set[tuple[Node, Node]]
) -> None:
    """New hazards of pairs that are passed over become none; what waited says itself whose item it is."""
    for one in states:
        hazard, witness = one.hazard, one.witness
        if witness is None or hazard is None or hazard is before or hazard[0] in _ENDS:
            continue
        second = (hazard[3], hazard[1]) if len(hazard) > 3 else at
        assert second is not None
        pair = ((witness.thread, witness.node), second)
        if passed is None or pair in passed:
            seen.add(pair)
            one.hazard = ("same bytes", *hazard[1:])
