"""Over-waits: a wait through an event that may have been recorded again covers the later work as well.

What a wait is meant for is the record that the waiter was told of: by the event's handle that it was given, or by the item, flag,
lock or counter through which it heard of a record of an event that it waits for by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.liveness.device import DeviceSemantics
from fencepost.proofs.liveness.graphs import place
from fencepost.proofs.liveness.moves import State
from fencepost.proofs.liveness.pending import Work
from fencepost.proofs.liveness.search import explore, follows_device, graph_of
from fencepost.proofs.liveness.text import operations

OVER_WAIT = "over-wait"

_EVENT_WAITS = (p.EventSync, p.StreamWaitEvent)

EARLIER, LATEST = 1, 2
"""What somebody knows of an event: a record that is not the latest any more; the latest one. 0: of none."""


def over_waits(program: p.Program, limit: int, bounds: set[str], until: float = inf) -> Iterator[str]:
    """Waits of hosts and streams for a later record than the one that they are meant for (S20, S23: bound to the latest at the call)."""
    by_name = _by_name(program)
    if not by_name and not _by_handle(program):
        return
    semantics: DeviceSemantics
    if by_name:
        semantics = Hearing(program, by_name)
        graph = explore(semantics, limit, True, until=until)
    elif follows_device(program):
        graph = graph_of(program, limit, True, until)
        assert isinstance(graph.semantics, DeviceSemantics)
        semantics = graph.semantics
    else:
        semantics = DeviceSemantics(program, alone=True)
        graph = explore(semantics, limit, True, until=until)
    if graph.bounded is not None:
        bounds.add(graph.bounded)
    told: set[str] = set()
    for (t, n), state in sorted(semantics.waited_late.items(), key=lambda found: found[0]):
        effect = next(x for x in semantics.effects[t, n] if isinstance(x, (e.JoinEvent, e.StreamJoinsEvent)))
        number = semantics.handle(state, t, effect.event)[1]
        event = program.objects[semantics.fixed[number][0]].name if number < len(semantics.fixed) else "event"
        if event in told:
            continue
        told.add(event)
        who = program.threads[t].name
        if isinstance(effect, e.StreamJoinsEvent):
            who = f"stream {semantics.stream_name(semantics.stream(state, t, effect.stream))}"
        given = "its handle was given" if isinstance(effect.event, p.Local) else f"{program.threads[t].name} was told"
        yield (
            f"{OVER_WAIT} {event} - {who} waits for {event}{place(program, (t, n))} when it may have been recorded "
            f"again since {given}: it then waits for the later work as well"
        )


def _by_handle(program: p.Program) -> bool:
    """Whether somebody waits through a handle of an event that is not made afresh for each."""
    given = any(
        isinstance(value, (p.Obj, p.Slot)) and isinstance(program.objects[value.id], p.Event)
        for _, operation in operations(program, p.Put, p.CellSet) for value in operation.values
    )  # fmt: skip
    return given and any(isinstance(x.event, p.Local) for _, x in operations(program, *_EVENT_WAITS))


def _by_name(program: p.Program) -> set[int]:
    """Events that one thread waits for by name and another one, a loop, records."""
    recorded: dict[int, set[int]] = {}
    for (t, _), x in operations(program, p.Record):
        if not isinstance(x.event, p.Local) and program.threads[t].kind == "loop":
            recorded.setdefault(x.event.id, set()).add(t)
    return {
        x.event.id for (t, _), x in operations(program, *_EVENT_WAITS)
        if not isinstance(x.event, p.Local) and recorded.get(x.event.id, set()) - {t}
    }  # fmt: skip


class Hearing(DeviceSemantics):
    """Follows besides which record of some events each thread, and what it hands over, knows of."""

    hears = True

    def __init__(self, program: p.Program, events: set[int]) -> None:
        """`events`: objects."""
        self.followed = events
        super().__init__(program, alone=True)

    def _apply(self, state: State, work: Work, t: int, n: int, effect: e.Effect) -> None:
        super()._apply(state, work, t, n, effect)
        heard = work.heard
        if isinstance(effect, e.RecordEvent) and not isinstance(effect.event, p.Local) and effect.event.id in self.followed:
            number = self.handle(state, t, effect.event)[1]
            for key, value in heard.items():
                heard[key] = _outdated(value, number)
            heard["thread", t] = _merged(heard.get(("thread", t), ()), ((number, LATEST),))
        elif isinstance(effect, (e.JoinEvent, e.StreamJoinsEvent)) and not isinstance(effect.event, p.Local):
            number = self.handle(state, t, effect.event)[1]
            if dict(heard.get(("thread", t), ())).get(number) == EARLIER:
                self.waited_late.setdefault((t, n), state)
            # What it was told of is waited for: a wait that follows means whatever it is told of next.
            heard["thread", t] = tuple(known for known in heard.get(("thread", t), ()) if known[0] != number)
        elif isinstance(effect, p.Put):
            heard["queue", effect.queue] = (*heard.get(("queue", effect.queue), ()), heard.get(("thread", t), ()))
        elif isinstance(effect, p.Get):
            first, *rest = heard[("queue", effect.queue)]
            heard["queue", effect.queue] = tuple(rest)
            heard["thread", t] = _merged(heard.get(("thread", t), ()), first)
        elif isinstance(effect, (p.CellSet, p.FlagSet, p.CounterAdd, p.Unlock, p.Give)):
            thing = self._told_by(state, t, effect)
            before = () if isinstance(effect, p.CellSet) else heard.get(thing, ())
            heard[thing] = _merged(before, heard.get(("thread", t), ()))
        else:
            self._told(state, work, t, effect)

    def _told(self, state: State, work: Work, t: int, what: e.Effect | p.Question) -> None:
        if isinstance(what, (p.CellGet, p.FlagWait, p.FlagIsSet, p.CounterWait, p.CounterAtLeast, p.Acquire, p.TryLock, p.Take)):
            heard = work.heard
            heard["thread", t] = _merged(heard.get(("thread", t), ()), heard.get(self._told_by(state, t, what), ()))

    def _told_by(self, state: State, t: int, what: Any) -> tuple[str, int]:
        if isinstance(what, (p.CellSet, p.CellGet)):
            return "cell", self.cell_at[self._named(state, t, what.cell)]
        return "object", next(getattr(what, name) for name in ("flag", "counter", "lock", "pool") if hasattr(what, name))


Known = tuple[tuple[int, int], ...]
"""(event's number, EARLIER or LATEST), sorted."""


def _merged(one: Known, other: Known) -> Known:
    """What both know together."""
    found = dict(one)
    for number, record in other:
        found[number] = max(record, found.get(number, 0))
    return tuple(sorted(found.items()))


def _outdated(value: Any, number: int) -> Any:
    """The event was recorded again."""
    if value and isinstance(value[0], tuple) and (not value[0] or isinstance(value[0][0], tuple)):
        return tuple(_outdated(one, number) for one in value)  # the items of a queue
    return tuple((event, EARLIER if event == number else record) for event, record in value)


