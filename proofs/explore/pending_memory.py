"""Accesses to the location by items that may have to wait, and frees of its block behind pending uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.model import program as p
from fencepost.proofs.explore.meet import GONE, ITEM, LATE, NUMBER, Place
from fencepost.proofs.explore.memory import FORKS, FREED, OTHERS, Apply, Judge, LocationRules, Token, forks
from fencepost.proofs.explore.pending import Device
from fencepost.proofs.explore.state import BIT, State


class MeetingRules(LocationRules):
    """Accesses to the location whose item may have to wait, and what frees its block."""

    def __init__(self, device: Device, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.device = device
        self.old = 0
        """How many owners ago the one was whose access is judged now."""

    def _judge(self, which: int, access: p.Access, later: list[int] | None = None) -> Judge | None:
        """As without meetings; where it is chosen, what earlier owners have pending comes too late (val: fresh memory for each)."""
        judge = super()._judge(which, access, later)
        if judge is None or self.location is None or self.location.kind != "block":
            return judge
        plain = judge

        def run(s: State, bit: int) -> list[State] | None:
            states = plain(s, bit)
            if states:
                m = states[1].meet
                assert m is not None
                m.pending = [tuple((b, _late(what, self.old)) for b, what in fifo) for fifo in m.pending]
            return states

        return run

    def later(self, accesses: tuple[p.Access, ...]) -> tuple[Callable[[State], tuple[Place | None, ...] | None], int] | None:
        """For an item that waits: where its accesses go, found at the call; and the number of what judges them then."""
        resolve: list[Callable[[State], Place | None]] = []
        judges: list[Any] = []
        modes: list[bool] = []
        slot_of: list[int] = [0]
        for which, access in sorted(enumerate(accesses), key=lambda one: one[1].mode == "w"):
            match = self._match(access.target)
            judge = self._judge(which, access, slot_of)
            if match is None or judge is None:
                continue
            pointer = access.target.id if isinstance(access.target, p.Local) else None
            resolve.append(self._resolver(match, pointer))
            judges.append((judge, which))
            modes.append(access.mode == "w")
        if not judges:
            return None
        self.device.judges.append(self._judged(judges, modes, slot_of))

        def places(s: State) -> tuple[Place | None, ...] | None:
            found = tuple([one(s) for one in resolve])
            return found if any(found) else None

        return places, len(self.device.judges) - 1

    def _resolver(self, match: Callable[[State], int | None], pointer: int | None) -> Callable[[State], Place | None]:
        t = self.t

        def resolve(s: State) -> Place | None:
            slot = match(s)
            return None if slot is None else (slot, 0, GONE if pointer is not None and s.locals[t][pointer] == FREED else 0)

        return resolve

    def _judged(
        self, judges: list[tuple[Judge, int]], modes: list[bool], slot_of: list[int]
    ) -> Callable[[State, int, tuple[Place | None, ...], int | None], list[State] | None]:
        t, node = self.t, self.node

        def one(s: State, bit: int, k: int, place: Place | None) -> list[State] | None:
            """As `LocationRules.item` judges; for an earlier owner by what was defined for that owner."""
            if place is None:
                return None
            judge, which = judges[k]
            slot_of[0], old, how = place
            if how == GONE:
                s.hazard = ("UNDEFINED", node, which)
                return None
            if how == LATE:
                w, write = s.witness, modes[k]
                assert w is not None
                if w.write or write:
                    if not self.met:
                        self.met.append(True)
                    s.hazard = (("W" if w.write else "R") + ("W" if write else "R"), node, which)
                return None
            if not old or s.block is None:
                return judge(s, bit)
            m, kept = s.meet, s.block
            assert m is not None
            s.block = (*kept[:3], m.olds[old - 1], kept[4])
            self.old = old
            states = judge(s, bit)
            self.old = 0
            for number, x in enumerate(states or (s,)):
                assert x.meet is not None and x.block is not None
                newer = OTHERS if number else 0  # where it is chosen
                x.meet.olds = (*(flags | newer for flags in m.olds[: old - 1]), x.block[3], *m.olds[old:])
                x.block = (*kept[:3], kept[3] | newer, kept[4])
            s.block = kept
            return states

        def item(s: State, i: int, places: tuple[Place | None, ...]) -> list[State] | None:
            if s.witness is not None:
                for k, place in enumerate(places):
                    one(s, s.streams[i], k, place)
                    if s.hazard is not None and s.hazard[0] != "same bytes":
                        break
                return None
            chosen: list[State] = []
            for k, place in enumerate(places):
                states = one(s, 0, k, place)
                if s.hazard is not None:
                    break
                if states:
                    new = states[1]
                    new.streams[i] = BIT
                    for other in range(k + 1, len(places)):
                        one(new, BIT, other, places[other])
                    chosen.append(new)
            return [s, *chosen]

        def judged(s: State, i: int, places: tuple[Place | None, ...], at: int | None) -> list[State] | None:
            before = s.hazard
            results = item(s, i, places)
            for x in results or (s,):
                if x.hazard is not None and x.hazard is not before and len(x.hazard) == 3:
                    x.hazard = (*x.hazard, t, at)
            return results

        return judged

    def _loosened(self, s: State, n: int) -> None:
        """As without meetings, but that a noted stream may be pending, and so its record; and uses of the block itself."""
        m = s.meet
        assert m is not None and s.block is not None
        refs, free, uses, defined, owner = s.block
        carriers = self.device.carriers
        waiting = tuple(u for u in uses if m.pending[carriers[u]]) if refs == n else ()
        if waiting:
            s.block = (refs, free, tuple(u for u in uses if u not in waiting), defined, owner)
        super()._loosened(s, n)
        if refs != n:
            return
        numbers = sorted(-self.device.record(s, carriers[u], s.tb[self.t]) for u in waiting)
        if self.layout.one_queue:
            for u, number in zip(waiting, reversed(numbers), strict=True):
                self.device.record_is_last(s, u, -number, s.tb[self.t])
        s.block = (*s.block[:2], tuple(numbers), *s.block[3:])
        if any(what[0] == ITEM for fifo in m.pending for _, what in fifo):
            m.olds = (defined, *m.olds)
            m.pending = [tuple((bit, _older(what)) for bit, what in fifo) for fifo in m.pending]

    def alloc(self, effect: p.Alloc, stream: Callable[[State], int] | None) -> list[Apply]:
        """While the record of a noted use is pending the poll cannot succeed."""
        found = super().alloc(effect, stream)
        if not getattr(found[0], FORKS, False):
            return found
        poll, local = found[0], effect.local
        self.touches.add(("poll",))

        def run(s: State) -> list[State] | None:
            assert s.block is not None
            if not s.block[0] and s.block[2]:
                self._set(s, local, 0)
                return None
            return poll(s)

        return [forks(run)]

    def give(self, effect: p.Give, after: Callable[[State], int] | None) -> list[Apply]:
        """A token behind a pending record is free when that is complete."""
        found = super().give(effect, after)
        if after is None:
            return found
        k, t, now = self.layout.pool[effect.pool], self.t, found[0]
        assert isinstance(effect.token, p.Local)
        local, node, others, forgets = effect.token.id, self.node, self._others(effect.pool), not self._used_behind(effect.token.id)

        def run(s: State) -> None:
            number = after(s) >> NUMBER
            if not number:
                now(s)
                return
            m = s.meet
            assert m is not None
            guessed = s.locals[t][local].__class__ is Token
            zeros, ones, mark = s.pools[k]
            waiting = sum(one[1:4:2] == (k, guessed) for one in m.deferred)
            if (mark != 2 or waiting) if guessed else zeros + ones + waiting >= others:
                s.hazard = ("TWICE", node)
                return
            m.deferred = tuple(sorted((*m.deferred, (number, k, s.tb[t], guessed))))
            if forgets:
                self._set(s, local, 0)

        return [forks(run)]


def _older(what: tuple[Any, ...]) -> tuple[Any, ...]:
    if what[0] != ITEM:
        return what
    return (*what[:2], tuple(place and (place[0], place[1] + 1, place[2]) for place in what[2]))


def _late(what: tuple[Any, ...], old: int) -> tuple[Any, ...]:
    """The witness belongs to the owner `old` owners ago."""
    if what[0] != ITEM:
        return what
    return (*what[:2], tuple((*place[:2], LATE) if place and place[1] > old and not place[2] else place for place in what[2]))
