"""Which operations an exploration of one location may pass over without changing any of its bits.

Only operations that neither wait, nor test, nor hand anything over are dropped, and only where that is exact. The
argument: let `s` be a stream that one thread T alone uses, on which nothing accesses the location, and whose events T
alone waits on. Every bit that `s` or such an event ever carries came from T at an earlier call, so it is at most T's
own bit, and joining it into T, or into a stream through a call of T, adds nothing. An event that is recorded on a
stream that matters keeps *all* its records: dropping an overwrite would keep a stale capture alive.

What a query may answer follows from the flags of some events and streams (flags.py), which all matter, location or not.

An operation on a local matters only where the local may refer to the location's bytes (flow.py). Without a location nothing is
ever guessed, so no bit is ever set: of control alone is left what waits, tests and hands over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.explore.locations import Location

if TYPE_CHECKING:
    from fencepost.proofs.explore.flags import Flags
    from fencepost.proofs.explore.setting import Setting

Key = Any
Node = tuple[int, int]
Source = tuple[str, Any]
"""What may matter: ("stream", object), ("event", key), ("memory", object); of the locals that may refer to the location
("local", (thread, local)), and where it is in a block ("noted", (thread, local))."""


def dropped(setting: Setting, location: Location | None) -> list[set[int]]:
    """For each thread the `Do` nodes that may be passed over."""
    result: list[set[int]] = [set() for _ in setting.program.threads]
    if setting.environment.one_queue or (setting.queries and setting.flags is None):
        return result  # streams that share a queue carry each other's bits; what is pending may decide what a query answers
    return setting.slicer.dropped(location, setting.flow.holders(location) if location is not None else ())


def _event(t: int, operand: p.Operand) -> Key:
    return ("local", t, operand.id) if type(operand) is p.Local else ("object", operand.id)


def _touched(t: int, accesses: Iterable[p.Access]) -> Iterator[Source]:
    for access in accesses:
        target = access.target
        yield ("local", (t, target.id)) if type(target) is p.Local else ("memory", target.id)


class Slicer:
    """What each operation depends on, gathered once per program; a location then costs only what it keeps."""

    def __init__(self, program: p.Program, lowered: dict[Node, tuple[e.Effect, ...]], flags: Flags | None = None) -> None:
        """`flags`: what decides the answers of queries, if there are any."""
        self.threads: list[set[int]] = [set() for _ in program.threads]
        """The `Do` nodes of each thread."""
        self.always: set[Node] = set()
        self.kept_by: dict[Source, set[Node]] = {}
        self.leads: dict[Source, set[Source]] = {}
        """What matters as soon as the key does."""
        self.roots: set[Source] = set()
        self.meets = any(isinstance(effect, e.MEETINGS) for effects in lowered.values() for effect in effects)
        """Whether streams meet: then what is pending decides who can go on, with or without a location."""
        for (t, i), effects in lowered.items():
            self.threads[t].add(i)
            for effect in effects:
                self._needs((t, i), t, effect)
        self._relations(program, [(t, effect) for (t, _), effects in lowered.items() for effect in effects])
        asked = set(flags.asked()) if flags is not None else set()
        self.control = self._closed(asked)
        """What matters without a location."""
        self.base = self._closed(self.roots | asked)

    def _needs(self, node: Node, t: int, effect: e.Effect) -> None:
        """An effect changes something that is looked at iff one of its sources matters."""
        needs: list[Source]
        if type(effect) is e.Touch:
            needs = list(_touched(t, effect.accesses))
        elif type(effect) is e.Enqueue:
            needs = [("stream", effect.stream.id), *_touched(t, effect.accesses)]
        elif isinstance(effect, (e.RecordEvent, e.JoinEvent, e.StreamJoinsEvent)):
            needs = [("event", _event(t, effect.event))]
        elif type(effect) is e.JoinStream:
            needs = [("stream", effect.stream.id)]
        elif type(effect) is e.StreamJoinsStream:
            needs = [("stream", effect.other.id)]
        elif isinstance(effect, (p.Alloc, p.Drop, p.View)):
            needs = [("local", (t, effect.local))]
        elif type(effect) is p.NewEvent:
            needs = [("event", ("local", t, effect.local))]
        elif type(effect) is e.NoteUse:
            needs = [("noted", (t, effect.block.id))] if type(effect.block) is p.Local else []
        else:
            self.always.add(node)
            return
        for source in needs:
            self.kept_by.setdefault(source, set()).add(node)

    def _lead(self, source: Source, to: Source) -> None:
        self.leads.setdefault(source, set()).add(to)

    def _relations(self, program: p.Program, effects: list[tuple[int, e.Effect]]) -> None:
        users: dict[int, set[int]] = {}
        waiters: dict[Key, set[int]] = {}
        travelling: set[Key] = set()
        records: list[tuple[Key, int, int]] = []
        for t, effect in effects:
            for stream in _streams(effect):
                users.setdefault(stream, set()).add(t)
            if type(effect) is e.Enqueue:
                for source in _touched(t, effect.accesses):
                    self._lead(source, ("stream", effect.stream.id))
            if type(effect) is e.NoteUse and type(effect.block) is p.Local:
                self._lead(("noted", (t, effect.block.id)), ("stream", effect.stream.id))
            if type(effect) is e.RecordEvent:
                key = _event(t, effect.event)
                records.append((key, effect.stream.id, t))
                self._lead(("stream", effect.stream.id), ("event", key))
                self._lead(("event", key), ("stream", effect.stream.id))
            if isinstance(effect, e.MEETINGS) and effect.stream is not None:
                self.roots.add(("stream", effect.stream.id))  # it hears from other streams, and what is there may wait
            if type(effect) is e.JoinEvent or type(effect) is e.StreamJoinsEvent:
                waiters.setdefault(_event(t, effect.event), set()).add(t)
            if type(effect) is e.StreamJoinsEvent:
                self._lead(("event", _event(t, effect.event)), ("stream", effect.stream.id))
            if type(effect) is e.StreamJoinsStream:
                self._lead(("stream", effect.other.id), ("stream", effect.stream.id))
            if type(effect) is p.Put or type(effect) is p.CellSet:
                travelling |= {_event(t, v) for v in effect.values if isinstance(v, (p.Obj, p.Slot, p.Local))}
            if type(effect) is p.Give and effect.after is not None:
                travelling.add(_event(t, effect.after))
            if type(effect) is p.Get or type(effect) is p.CellGet:
                # What arrives may be any event that travels: waits on it stay.
                self.roots |= {("event", ("local", t, local)) for local in effect.locals}
        self.roots |= {("stream", s) for s, threads in users.items() if len(threads) > 1}
        alone = len(program.threads) == 1
        for event, stream, t in records:
            if (event in travelling and not (alone and event[0] == "local")) or waiters.get(event, {t}) != {t}:
                self.roots.add(("stream", stream))

    def _closed(self, start: set[Source], known: frozenset[Source] = frozenset()) -> frozenset[Source]:
        """Everything that matters once `start` does; `known` is closed already."""
        seen = set(known)
        work = list(start)
        while work:
            source = work.pop()
            if source not in seen:
                seen.add(source)
                work += self.leads.get(source, ())
        return frozenset(seen)

    def dropped(self, location: Location | None, holders: Iterable[Node]) -> list[set[int]]:
        """For each thread the `Do` nodes that change nothing that an exploration of `location` looks at.

        `holders`: the locals (thread, local) that may refer to its bytes. Without a location nothing ever carries a bit.
        """
        start: set[Source] = set()
        for local in holders:
            start.add(("local", local))
            if location is not None and location.kind == "block":
                start.add(("noted", local))
        if location is not None and location.kind == "memory":
            start.add(("memory", location.id))
        kept = set(self.always)
        for source in self._closed(start, self.base) if location is not None or self.meets else self.control:
            kept |= self.kept_by.get(source, set())
        result = [nodes.copy() for nodes in self.threads]
        for t, i in kept:
            result[t].discard(i)
        return result


def _streams(effect: e.Effect) -> list[int]:
    """Stream objects that the effect uses."""
    if type(effect) is p.Alloc:
        return []
    names = _named.get(effect.__class__)
    if names is None:
        names = _named[effect.__class__] = [name for name in ("stream", "other") if name in effect.__struct_fields__]
    return [one.id for name in names if isinstance(one := getattr(effect, name), (p.Obj, p.Slot))]


_named: dict[type, list[str]] = {}
"""The fields of each class of effects that name a stream."""
