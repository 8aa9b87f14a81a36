"""All minimal sufficient sets of a monotone question: which smallest sets of synchronisations keep a location safe.

Keeping more synchronisations never makes a location unsafe. So the sets of removed ones that are safe are closed
downwards, and Reiter's hitting-set tree lists all minimal sufficient sets: a further one must lack a member of each
that is known (the idea of MARCO, Liffiton et al. 2016, on sets that are small enough for a plain tree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

Safe = Callable[[frozenset[int]], "bool | None"]
"""Whether the location is safe without these; None when that is not known (then they are kept)."""

FEW = 40
"""Synchronisations of one location up to which each is asked about alone."""

MOST = 24
"""Minimal sets of one location that are listed; what lies beyond is not claimed."""


class Family(msgspec.Struct, frozen=True):
    """`sets`: minimal sufficient sets; `complete`: whether these are all; `unsure`: an answer was open on the way."""

    sets: tuple[frozenset[int], ...]
    complete: bool = True
    unsure: bool = False


class Narrowed(msgspec.Struct, frozen=True):
    """Members that are enough, before each of them is asked about alone. `minimal`: none of them may go while all others
    of the universe are gone; `guessed`: whether all may go is not known yet; `unsure`: an answer was open on the way."""

    few: frozenset[int]
    minimal: bool = False
    guessed: bool = False
    unsure: bool = False


def minimal_sufficient(universe: Sequence[int], safe: Safe, enough: frozenset[int] | None = None) -> Family:
    """The minimal subsets of `universe` to keep such that `safe(universe - kept)`; `safe(frozenset())` is taken as true.

    `enough` is a guess: members that are probably enough. It only saves questions.
    """
    narrow = narrowed(universe, safe, enough)
    # What is needed is in every set that is enough.
    alone = {k: safe(frozenset((k,))) for k in universe if k in narrow.few}
    needed = frozenset(k for k, answer in alone.items() if answer is not True)
    family = beyond_needed(universe, safe, narrow, needed)
    return msgspec.structs.replace(family, unsure=family.unsure or None in alone.values())


def narrowed(universe: Sequence[int], safe: Safe, enough: frozenset[int] | None = None) -> Narrowed:
    """The guess where it is enough, else all; more than `FEW` are made a minimal set by halves."""
    everything = frozenset(universe)
    ask = _Ask(safe)
    guessed = enough is not None and frozenset() < (enough & everything) < everything
    if not guessed and (not everything or ask(everything)):
        return Narrowed(frozenset(), minimal=True, unsure=ask.unsure)
    few = enough & everything if guessed and enough is not None and ask(everything - enough) else everything
    if len(few) > FEW:
        few = _shrunk(sorted(few), everything - few, ask)
        return Narrowed(few, True, guessed, ask.unsure)
    return Narrowed(few, False, guessed, ask.unsure)


def beyond_needed(
    universe: Sequence[int], safe: Safe, narrow: Narrowed, needed: frozenset[int], given: frozenset[int] = frozenset(),
    seeds: Iterable[frozenset[int]] = (),
) -> Family:  # fmt: skip
    """All minimal sufficient sets, once it is known which members no set can do without.

    `given` stay in any case, for reasons of others: the sets are those that are minimal beside them, without them.
    `seeds`: sets that are probably enough; those that are save questions.
    """
    everything = frozenset(universe)
    ask = _Ask(safe, narrow.unsure)
    given = (given & everything) - needed
    if not narrow.few or (narrow.guessed and not needed and ask(everything - given)):
        return Family((frozenset(),), unsure=ask.unsure)
    base = needed | given
    if base >= narrow.few or ask(everything - base):
        return Family((needed,), unsure=ask.unsure)
    found = [narrow.few | given] if narrow.minimal else []
    found += [one for one in dict.fromkeys((seed & everything) | base for seed in seeds) if ask(everything - one)]
    spare = [k for k in universe if k not in base]
    most = MOST if len(everything) <= FEW else MOST // 4
    todo: list[frozenset[int]] = [frozenset()]
    seen: set[frozenset[int]] = set()
    complete = True
    while todo:
        without = todo.pop(0)
        if without in seen:
            continue
        seen.add(without)
        kept = next((one for one in found if not one & without), None)
        if kept is None:
            if without and not ask(without):
                continue
            most_away = without or everything - narrow.few - given
            kept = base | _shrunk([k for k in spare if k not in most_away], most_away, ask)
            found.append(kept)
            if len(found) >= most:
                complete = False
                break
        todo += [without | {k} for k in sorted(kept - base)]
    return Family(tuple(minimal([one - given for one in found])), complete=complete, unsure=ask.unsure)


class _Ask:
    """Whether it is known to be safe without these; takes note of open answers."""

    def __init__(self, safe: Safe, unsure: bool = False) -> None:
        self.safe = safe
        self.unsure = unsure

    def __call__(self, gone: frozenset[int]) -> bool:
        answer = self.safe(gone)
        self.unsure = self.unsure or answer is None
        return answer is True


def _shrunk(candidates: list[int], gone: frozenset[int], ask: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """A minimal part of `candidates` that must stay once `gone` is away, found by halves."""
    away = gone
    kept: list[int] = []
    stack = [candidates]
    while stack:
        group = stack.pop()
        if not group:
            continue
        if ask(away | frozenset(group)):
            away |= frozenset(group)
        elif len(group) == 1:
            kept += group
        else:
            half = len(group) // 2
            stack += [group[:half], group[half:]]
    return frozenset(kept)


def minimal(sets: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """The sets that contain no other one, smallest first."""
    result: list[frozenset[int]] = []
    for one in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        if not any(other <= one for other in result):
            result.append(one)
    return result


def joined(families: Sequence[Family], most: int = 200) -> Family:
    """The minimal sets that contain one set of each family: what keeps all locations safe at once."""
    sets: list[frozenset[int]] = [frozenset()]
    complete, unsure = True, False
    for family in families:
        sets = minimal([a | b for a in sets for b in family.sets])
        complete, unsure = complete and family.complete, unsure or family.unsure
        if len(sets) > most:
            sets, complete = sets[:most], False
    return Family(tuple(sets), complete, unsure)
