"""Which operations an exploration of one location may pass over without changing any of its bits.

Only operations that neither wait, nor test, nor hand anything over are dropped, and only where that is exact. The
argument: let `s` be a stream that one thread T alone uses, on which nothing accesses the location, and whose events T
alone waits on. Every bit that `s` or such an event ever carries came from T at an earlier call, so it is at most T's
own bit, and joining it into T, or into a stream through a call of T, adds nothing. An event that is recorded on a
stream that matters keeps *all* its records: dropping an overwrite would keep a stale capture alive.
"""

from __future__ import annotations

from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.setting import Setting

Key = Any


def dropped(setting: Setting, location: Location | None) -> list[set[int]]:
    """For each thread the `Do` nodes that may be passed over."""
    result: list[set[int]] = [set() for _ in setting.program.threads]
    if setting.environment.one_queue:
        return result  # streams that share a queue carry each other's bits
    if setting.queries:
        return result  # what a query may answer depends on every capture
    slicer = _Slicer(setting.program, location, setting.lowered)
    for (t, i), effects in setting.lowered.items():
        if all(slicer.idle(t, effect) for effect in effects):
            result[t].add(i)
    return result


class _Slicer:
    def __init__(
        self, program: p.Program, location: Location | None, lowered: dict[tuple[int, int], tuple[e.Effect, ...]]
    ) -> None:
        self.program = program
        self.location = location
        self.blocks = location is not None and location.kind == "block"
        self.streams: set[int] = set()
        self.events: set[Key] = set()
        self._close([(t, effect) for (t, _), effects in lowered.items() for effect in effects])

    def may(self, access: p.Access) -> bool:
        """Whether the access may touch the location."""
        if self.location is None:
            return False
        target = access.target
        if isinstance(target, p.Local):
            return True
        return self.location.kind == "memory" and target.id == self.location.id

    @staticmethod
    def _event(t: int, operand: p.Operand) -> Key:
        return ("local", t, operand.id) if isinstance(operand, p.Local) else ("object", operand.id)

    def _close(self, effects: list[tuple[int, e.Effect]]) -> None:
        users: dict[int, set[int]] = {}
        waiters: dict[Key, set[int]] = {}
        travelling: set[Key] = set()
        records: list[tuple[Key, int, int]] = []
        joins: list[tuple[int, Key]] = []
        chains: list[tuple[int, int]] = []
        for t, effect in effects:
            for stream in _streams(effect):
                users.setdefault(stream, set()).add(t)
            if isinstance(effect, e.Enqueue) and any(map(self.may, effect.accesses)):
                self.streams.add(effect.stream.id)
            if isinstance(effect, e.NoteUse) and self.blocks:
                self.streams.add(effect.stream.id)
            if isinstance(effect, e.RecordEvent):
                records.append((self._event(t, effect.event), effect.stream.id, t))
            if isinstance(effect, (e.JoinEvent, e.StreamJoinsEvent)):
                waiters.setdefault(self._event(t, effect.event), set()).add(t)
            if isinstance(effect, e.StreamJoinsEvent):
                joins.append((effect.stream.id, self._event(t, effect.event)))
            if isinstance(effect, e.StreamJoinsStream):
                chains.append((effect.stream.id, effect.other.id))
            if isinstance(effect, (p.Put, p.CellSet)):
                travelling |= {self._event(t, v) for v in effect.values if isinstance(v, (p.Obj, p.Slot, p.Local))}
            if isinstance(effect, p.Give) and effect.after is not None:
                travelling.add(self._event(t, effect.after))
            if isinstance(effect, (p.Get, p.CellGet)):
                # What arrives may be any event that travels: waits on it stay.
                self.events |= {("local", t, local) for local in effect.locals}
        self.streams |= {s for s, threads in users.items() if len(threads) > 1}
        alone = len(self.program.threads) == 1
        for event, stream, t in records:
            if (event in travelling and not (alone and event[0] == "local")) or waiters.get(event, {t}) != {t}:
                self.streams.add(stream)
        while True:
            before = (len(self.streams), len(self.events))
            for event, stream, _ in records:
                if stream in self.streams:
                    self.events.add(event)
                if event in self.events:
                    self.streams.add(stream)
            for stream, event in joins:
                if event in self.events:
                    self.streams.add(stream)
            for stream, other in chains:
                if other in self.streams:
                    self.streams.add(stream)
            if (len(self.streams), len(self.events)) == before:
                return

    def idle(self, t: int, effect: e.Effect) -> bool:
        """Whether the effect changes nothing that this exploration looks at."""
        if isinstance(effect, e.Touch):
            return not any(map(self.may, effect.accesses))
        if isinstance(effect, e.Enqueue):
            return effect.stream.id not in self.streams and not any(map(self.may, effect.accesses))
        if isinstance(effect, (e.RecordEvent, e.JoinEvent)):
            return self._event(t, effect.event) not in self.events
        if isinstance(effect, e.JoinStream):
            return effect.stream.id not in self.streams
        if isinstance(effect, e.StreamJoinsEvent):
            return self._event(t, effect.event) not in self.events
        if isinstance(effect, e.StreamJoinsStream):
            return effect.other.id not in self.streams
        if isinstance(effect, (p.Alloc, p.Drop, e.NoteUse)):
            return not self.blocks
        return False


def _streams(effect: e.Effect) -> list[int]:
    """Stream objects that the effect uses."""
    result = [getattr(effect, name).id for name in ("stream", "other") if isinstance(getattr(effect, name, None), (p.Obj, p.Slot))]  # fmt: skip
    return result if not isinstance(effect, p.Alloc) else []
