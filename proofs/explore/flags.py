"""Which flags of events and streams a search has to keep: those that the answer of a query, or a wait of a stream, looks at.

Bits tell what is ordered; flags tell what a query may answer (state.py), and belong to a state's control. Results that
are outstanding have an event each, so flags that nobody looks at multiply the states: two for each result.

Exact: what is kept is closed under what changes it. Whether a capture is known complete follows from the calls of its
stream, these from the events and streams that the stream waits for, and with one hardware queue from all streams that
share it. All places that a handle may travel between keep the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.explore.state import CALLED, COMPLETE, RECORDED

Place = tuple[Any, ...]
"""("object", event), ("local", thread, local), ("queue", queue, tag, field) or ("cell", cell, field)."""
ALL = RECORDED | COMPLETE | CALLED


def place(t: int, operand: p.Operand) -> Place:
    """Where thread `t` finds the event."""
    return ("local", t, operand.id) if type(operand) is p.Local else ("object", operand.id)


class Flags:
    """The flags that matter in one program."""

    def __init__(self, program: p.Program, lowered: Mapping[tuple[int, int], tuple[e.Effect, ...]], one_queue: bool) -> None:
        self._program = program
        self._one_queue = one_queue
        self._near: dict[Place, set[Place]] = {}
        """The places that a handle travels to and from."""
        self._records: dict[Place, set[int]] = {}
        """For each event the streams that it is recorded on."""
        self._waits: dict[int, set[Place]] = {}
        """For each stream the events that it waits for."""
        self._behind: dict[int, set[int]] = {}
        """For each stream the streams that it waits for."""
        self._events: set[Place] = set()
        """Events of which all flags are kept."""
        self._calls: set[int] = set()
        """Streams of which is kept what a query says."""
        asked: list[tuple[str, Any]] = []
        joined: set[Place] = set()
        for (t, _), effects in lowered.items():
            for effect in effects:
                if type(effect) is e.RecordEvent:
                    self._records.setdefault(place(t, effect.event), set()).add(_id(effect.stream))
                elif type(effect) is e.StreamJoinsEvent:
                    joined.add(place(t, effect.event))
                    self._waits.setdefault(_id(effect.stream), set()).add(place(t, effect.event))
                elif type(effect) is e.StreamJoinsStream:
                    self._behind.setdefault(_id(effect.stream), set()).add(_id(effect.other))
                else:
                    self._travels(t, effect)
        for t, thread in enumerate(program.threads):
            for node in thread.nodes:
                if type(node) is p.Ask and type(node.question) is p.EventQuery:
                    asked.append(("event", place(t, node.question.event)))
                elif type(node) is p.Ask and type(node.question) is p.StreamQuery:
                    asked.append(("stream", _id(node.question.stream)))
        self._joined = self._along(joined)
        self._close(asked)

    def event(self, t: int, operand: p.Operand) -> int:
        """The flags that are kept of an event, as thread `t` names it."""
        at = place(t, operand)
        # Whether it was ever recorded decides whether a stream's wait for it is an item (S18).
        return ALL if at in self._events else RECORDED if at in self._joined else 0

    def calls(self, stream: p.Operand) -> bool:
        """Whether it is kept what a query of the stream says."""
        return _id(stream) in self._calls

    def asked(self) -> list[tuple[str, Any]]:
        """What decides the answers of queries, as slicing names it: ("stream", object) and ("event", place)."""
        return [*(("stream", stream) for stream in self._calls), *(("event", at) for at in self._events if at[0] in ("object", "local"))]

    # ------------------------------------------------------------ closing

    def _travels(self, t: int, effect: e.Effect) -> None:
        pairs: list[tuple[Place, Place]] = []
        if type(effect) is p.Put or type(effect) is p.CellSet:
            for k, value in enumerate(effect.values):
                if isinstance(value, (p.Obj, p.Slot, p.Local)):
                    to = ("queue", effect.queue, effect.tag, k) if isinstance(effect, p.Put) else ("cell", _id(effect.cell), k)
                    pairs.append((place(t, value), to))
        elif type(effect) is p.Get or type(effect) is p.CellGet:
            for k, local in enumerate(effect.locals):
                at = ("queue", effect.queue, effect.tag, k) if isinstance(effect, p.Get) else ("cell", _id(effect.cell), k)
                pairs.append((at, ("local", t, local)))
        for one, other in pairs:
            self._near.setdefault(one, set()).add(other)
            self._near.setdefault(other, set()).add(one)

    def _along(self, places: set[Place]) -> set[Place]:
        """All places that share handles with these."""
        todo, seen = list(places), set()
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += self._near.get(at, ())
        return seen

    def _close(self, todo: list[tuple[str, Any]]) -> None:
        """Everything that decides what queries answer."""
        streams = [(i, (o.gpu, o.process)) for i, o in enumerate(self._program.objects) if type(o) is p.Stream]
        homes = dict(streams)
        while todo:
            what, one = todo.pop()
            if what == "event":
                for at in self._along({one}) - self._events:
                    self._events.add(at)
                    todo += [("stream", stream) for stream in self._records.get(at, ())]
            elif one not in self._calls:
                self._calls.add(one)
                todo += [("event", at) for at in self._waits.get(one, ())]
                todo += [("stream", other) for other in self._behind.get(one, ())]
                if self._one_queue:  # a record may be busy with what the others have put there (S116)
                    todo += [("stream", other) for other, home in streams if home == homes[one]]


def _id(operand: p.Operand) -> int:
    assert type(operand) is not p.Local
    return operand.id
