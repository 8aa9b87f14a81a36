"""What waits in streams: signals, awaits, device flags, and the records behind them, as liveness looks at them.

Work that merely completes is not followed: it ends (theory: liveness). What stands behind a signal without room, an
await without its signal or an unsatisfied flag wait is pending, and is kept in order: one FIFO for each stream. Signals
and awaits of a channel between two streams run as soon as they can, because nobody else could tell; flags, and channels
with several ends at one side, are steps of the interleaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations import Context, lower_node
from fencepost.model.operations.meetings import open_channels
from fencepost.model.platform import Platform, platform
from fencepost.proofs.liveness.known import Knowledge, Order
from fencepost.proofs.liveness.moves import Bounded, Move, State
from fencepost.proofs.liveness.states import Semantics
from fencepost.proofs.liveness.text import live, operands, recorded_late, slots

AHEAD = 2
"""Whole turns of enqueuing that one stream may hold back before the answer is bounded; as many for a channel's messages."""

KNOWN, DONE = -1, 0
"""What an event captured: known complete (or never recorded); complete. A positive number is a pending record."""


class Item(NamedTuple):
    """A pending item of a stream: `kind` "signal" | "await" | "store" | "wait" | "record" | "join" (of another record).

    `thing` is the channel's, flag's or record's number; `value` the tag or the flag's value; enqueued at `node` of `thread`.
    """

    kind: str
    thing: int
    value: Any = None
    reset: bool = False
    thread: int = -1
    node: int = -1


class Device(NamedTuple):
    """`fifos`: per stream what is pending; `channels`: tags of the messages there; `words`: values of the device flags;
    `records`: per event what it captured; `held`, `carried`, `stored`: handles of events and indices in locals, queue items
    and cells; `deferred`: per pool the records behind which its tokens come back."""

    fifos: tuple[tuple[Item, ...], ...]
    channels: tuple[tuple[str, ...], ...]
    words: tuple[int, ...]
    records: tuple[int, ...]
    held: tuple[tuple[tuple[int, Handle], ...], ...]
    carried: tuple[tuple[tuple[Handle, ...], ...], ...]
    stored: tuple[tuple[Handle, ...], ...]
    deferred: tuple[tuple[int, ...], ...]
    order: Order = ()
    """What is not known to be complete, and what waiting for it would tell (known.py); followed where somebody asks."""
    heard: tuple[tuple[Any, Any], ...] = ()
    """Which records threads and what they hand over know of (overwaits.py); followed where over-waits are looked for."""

    @property
    def known(self) -> Knowledge:
        """The order as something to work with."""
        return Knowledge(self.order)


Handle = tuple[str, int, bool]
"""("event", number, whether it was recorded again since the handle was given) | ("index", position, False) | ("", 0, False)."""

NOTHING: Handle = ("", 0, False)


class Work:
    """A `Device` that is being changed; between the steps of one stretch a state holds it as it is."""

    def __init__(self, device: Device | Work) -> None:
        self.fifos: list[list[Item]] = [list(row) for row in device.fifos]
        self.channels: list[tuple[str, ...]] = list(device.channels)
        self.words: list[int] = list(device.words)
        self.records: list[int] = list(device.records)
        self.held: list[dict[int, Handle]] = [dict(row) for row in device.held]
        self.carried: list[tuple[tuple[Handle, ...], ...]] = list(device.carried)
        self.stored: list[tuple[Handle, ...]] = list(device.stored)
        self.deferred: list[tuple[int, ...]] = list(device.deferred)
        self.known: Knowledge = device.known if isinstance(device, Device) else device.known.copy()
        self.heard: dict[Any, Any] = dict(device.heard)
        self.popped: set[int] = set()
        """Streams of which an item has run."""


class Pending(Semantics):
    """Control, and what is pending in streams. Agents are the threads, then the streams."""

    def __init__(self, program: p.Program, alone: bool = False, platform_: Platform | None = None) -> None:
        self.program = program
        known: Platform = msgspec.structs.replace(platform_ or platform(None), free="synchronises")  # no edge, and yet it may wait (S38)
        self.effects: dict[tuple[int, int], tuple[e.Effect, ...]] = {}
        for t, thread in enumerate(program.threads):
            context = Context(program, thread, known)
            for n, node in enumerate(thread.nodes):
                if isinstance(node, p.Do):
                    self.effects[t, n] = lower_node(node, context)
        self.streams = slots(program, p.Stream)
        self.stream_at = {slot: k for k, slot in enumerate(self.streams)}
        self.fixed = slots(program, p.Event)
        self.event_at = {slot: k for k, slot in enumerate(self.fixed)}
        kinds = [(i, thing) for i, thing in enumerate(program.objects)]
        self.channel = {i: k for k, i in enumerate(i for i, thing in kinds if isinstance(thing, p.Channel))}
        self.word = {i: k for k, i in enumerate(i for i, thing in kinds if isinstance(thing, p.DeviceFlag))}
        self.queue = {i: k for k, i in enumerate(i for i, thing in kinds if isinstance(thing, p.Queue))}
        self.pool = {i: k for k, i in enumerate(i for i, thing in kinds if isinstance(thing, p.Pool))}
        self.cell_slots = slots(program, p.Cell)
        self.cell_at = {slot: k for k, slot in enumerate(self.cell_slots)}
        self.asks = any(
            isinstance(node, p.Ask) and isinstance(node.question, (p.EventQuery, p.StreamQuery))
            for thread in program.threads for node in thread.nodes
        )  # fmt: skip
        self.live = [live(thread) for thread in program.threads]
        self.eager = frozenset(self.channel) - open_channels(program)
        self._users()
        self._limits()
        self.waited_late: dict[tuple[int, int], State] = {}
        """Waits (thread, node) through a handle whose event was recorded again since, and a state in front of one."""
        super().__init__(program, alone)

    def _depths(self) -> list[int]:
        rings = [thing for thing in self.program.objects if isinstance(thing, (p.Stream, p.Event))]
        return super()._depths() + [thing.depth for thing in rings if thing.depth is not None]

    # ------------------------------------------------------------ who uses what

    def _limits(self) -> None:
        """What streams may hold back, and channels without capacity hold: some turns of all that enqueue there."""
        items = [0] * len(self.streams)
        signals = [0] * len(self.channel)
        for effects in self.effects.values():
            for effect in effects:
                stream = getattr(effect, "stream", None)
                if isinstance(effect, (*e.MEETINGS, e.RecordEvent, e.StreamJoinsEvent, e.StreamJoinsStream)) and stream is not None:
                    for k, slot in enumerate(self.streams):
                        items[k] += slot[0] == stream.id
                if isinstance(effect, p.Signal):
                    signals[self.channel[effect.channel]] += 1
        self.most_items = [8 + AHEAD * count for count in items]
        self.most_messages = [8 + AHEAD * count for count in signals]

    def _users(self) -> None:
        """Streams and events that several threads use; and whether a handle's event may be recorded by who did not make it."""
        users: dict[int, set[int]] = {}
        kinds: dict[int, set[int]] = {}
        for (t, n), effects in self.effects.items():
            for effect in effects:
                for operand in operands(self.program, effect):
                    users.setdefault(operand, set()).add(t)
            node = self.program.threads[t].nodes[n]
            assert isinstance(node, p.Do)
            if isinstance(node.operation, (p.Put, p.CellSet)):
                for value in node.operation.values:
                    if isinstance(value, (p.Obj, p.Slot)) and isinstance(self.program.objects[value.id], p.Event):
                        kinds.setdefault(value.id, set()).add(t)
        for t, thread in enumerate(self.program.threads):
            for node in thread.nodes:
                if isinstance(node, p.Ask) and isinstance(node.question, (p.EventQuery, p.StreamQuery)):
                    asked = node.question.event if isinstance(node.question, p.EventQuery) else node.question.stream
                    if not isinstance(asked, p.Local):
                        users.setdefault(asked.id, set()).add(t)
        self.shared = {number for number, threads in users.items() if len(threads) > 1} | set(kinds)
        for (t, _), effects in self.effects.items():
            for effect in effects:
                if isinstance(effect, e.Enqueue) and isinstance(effect.stream, (p.Obj, p.Slot)):
                    users.setdefault(effect.stream.id, set()).add(t)
        handed = any(
            info.kind == p.EVENT and any(isinstance(node, p.Do) and isinstance(node.operation, (p.Get, p.CellGet)) for node in thread.nodes)
            for thread in self.program.threads for info in thread.locals
        )  # fmt: skip
        self.asked_late = self.asks and (handed or any(len(threads) > 1 for threads in users.values()))
        """Whether threads tell each other what a query can say: then it matters where in between somebody asks."""
        self.loose = any(recorded_late(thread) for thread in self.program.threads) or bool(kinds)

    # ------------------------------------------------------------ start

    def start(self) -> State:
        """Nothing is pending."""
        device = Device(
            ((),) * len(self.streams), ((),) * len(self.channel), (0,) * len(self.word), (KNOWN,) * len(self.fixed),
            ((),) * len(self.threads), ((),) * len(self.queue), ((),) * len(self.cell_slots), ((),) * len(self.pool),
        )  # fmt: skip
        return super().start()._replace(device=device)

    # ------------------------------------------------------------ agents

    def ready(self, state: State) -> list[int]:
        """Threads that may run, then streams that hold something back."""
        found = super().ready(state)
        count = len(self.threads)
        return found + [count + k for k, row in enumerate(state.device.fifos) if row]

    def obstacle(self, state: State, agent: int) -> int | str | None:
        """What a thread waits for, or the first item of a stream."""
        if agent < len(self.threads):
            return super().obstacle(state, agent)
        stream = agent - len(self.threads)
        item = state.device.fifos[stream][0]
        if self._can_run(state.device, stream, item):
            return None
        if item.kind == "join":
            holder = self.holder(state.device, item.thing)
            return None if holder is None else self.streams[holder][0]
        return int(item.thing)

    def successors(self, state: State, agent: int) -> Iterator[tuple[tuple[Move, ...], State]]:
        """Steps of a thread, or the first item of a stream where that is a step of its own."""
        count = len(self.threads)
        if agent < count:
            for moves, then in super().successors(state, agent):
                yield moves, then._replace(device=self._still(then))
            return
        stream = agent - count
        item = state.device.fifos[stream][0]
        if not self._can_run(state.device, stream, item):
            return
        work = Work(state.device)
        self._execute(work, stream)
        then = self._settled(state, work)
        yield (Move(agent, item.node, None, item),), then._replace(device=self._frozen(then, work))

    def alone(self, state: State, able: list[int]) -> int | None:
        """As without a device, but at the start of a turn, too: the search sees to it that nobody is put off for ever."""
        for agent in able:
            if agent < len(self.threads) and self._commuting[agent][state.at[agent]]:
                return agent
        return None

    def popped(self, before: State, after: State) -> set[int]:
        """Agents among the streams whose first item has run between two states."""
        count, result = len(self.threads), set()
        for k, (old, new) in enumerate(zip(before.device.fifos, after.device.fifos, strict=True)):
            head = [x for x in old if x.kind != "record"]
            now = [x for x in new if x.kind != "record"]
            if head and (len(now) < len(head) or [_plain(x) for x in now[: len(head)]] != [_plain(x) for x in head]):
                result.add(count + k)
        return result

    def holder(self, device: Device, record: int) -> int | None:
        """The stream in which a record is pending."""
        for k, row in enumerate(device.fifos):
            if any(item.kind == "record" and item.thing == record for item in row):
                return k
        return None

    # ------------------------------------------------------------ the device

    def _can_run(self, device: Device | Work, stream: int, item: Item) -> bool:
        if item.kind == "signal":
            thing = self.program.objects[item.thing]
            assert isinstance(thing, p.Channel)
            return thing.capacity is None or len(device.channels[self.channel[item.thing]]) < thing.capacity
        if item.kind == "await":
            messages = device.channels[self.channel[item.thing]]
            return bool(messages) and messages[0] == item.value
        if item.kind == "wait":
            return bool(device.words[self.word[item.thing]] >= item.value)
        if item.kind == "join":
            return not any(x.kind == "record" and x.thing == item.thing for row in device.fifos for x in row)
        return True

    def _execute(self, work: Work, stream: int) -> None:
        """Run the first item of a stream, which can run."""
        item = work.fifos[stream].pop(0)
        work.popped.add(stream)
        if item.kind == "signal":
            k = self.channel[item.thing]
            work.channels[k] = (*work.channels[k], item.value)
            if len(work.channels[k]) > self.most_messages[k]:
                raise Bounded(f"channel {self.program.objects[item.thing].name} fills without bound: it has no capacity")
        elif item.kind == "await":
            k = self.channel[item.thing]
            work.channels[k] = work.channels[k][1:]
        elif item.kind == "store":
            work.words[self.word[item.thing]] = item.value
        elif item.kind == "wait":
            if item.reset:
                work.words[self.word[item.thing]] = 0
        elif item.kind == "record":
            work.records = [DONE if record == item.thing else record for record in work.records]

    def _settled(self, state: State, work: Work) -> State:
        """Everything that runs by itself has run; tokens whose records are complete are free."""
        moving = any(work.fifos)
        if not moving:
            return state._replace(device=work)  # nothing can be deferred either
        while moving:
            moving = False
            for stream, row in enumerate(work.fifos):
                while row and self._by_itself(row[0]) and self._can_run(work, stream, row[0]):
                    self._execute(work, stream)
                    moving = True
        objects = state.objects
        pending = {item.thing for row in work.fifos for item in row if item.kind == "record"} if any(work.deferred) else set()
        for oid, k in self.pool.items():
            if work.deferred[k]:
                left = tuple(record for record in work.deferred[k] if record in pending)
                back = len(work.deferred[k]) - len(left)
                if back:
                    work.deferred[k] = left
                    place = self._place[oid]
                    objects = (*objects[:place], objects[place] + back, *objects[place + 1 :])
        return state._replace(objects=objects, device=work)

    def _by_itself(self, item: Item) -> bool:
        if item.kind in ("signal", "await"):
            return item.thing in self.eager
        return item.kind in ("record", "join")

    def _still(self, state: State) -> Device:
        """The device of a state as a state between two stretches keeps it."""
        device = state.device
        if isinstance(device, Work):
            return self._frozen(state, device)
        # Nothing of it has changed; at most a thread is past what it held.
        for t, row in enumerate(device.held):
            if row:
                at = state.at[t]
                if at == p.END or not all(local in self.live[t][at] for local, _ in row):
                    return self._frozen(state, Work(device))
        kept: Device = device
        return kept

    def _frozen(self, state: State, work: Work) -> Device:
        """Records that nobody asks for are forgotten, records and events made in bodies are numbered afresh."""
        held = []
        for t, row in enumerate(work.held):
            at = state.at[t]
            live = self.live[t][at] if at != p.END else frozenset[int]()
            held.append(tuple(sorted((k, v) for k, v in row.items() if k in live)))
        order: dict[int, int] = {}
        fixed = len(self.fixed)

        def named(handle: Handle) -> Handle:
            if handle[0] == "event" and handle[1] >= fixed:
                return ("event", order.setdefault(handle[1], fixed + len(order)), handle[2])
            return handle

        carried, stored, records = tuple(work.carried), tuple(work.stored), work.records
        if len(records) > fixed:
            held = [tuple((k, named(v)) for k, v in row) for row in held]
            carried = tuple(tuple(tuple(map(named, item)) for item in row) for row in work.carried)
            stored = tuple(tuple(map(named, item)) for item in work.stored)
            records = [*work.records[:fixed], *(work.records[old] for old in order)]
        if not self.asks:
            records = [record if record > 0 else DONE for record in records]
        known = work.known.order(order, fixed) if self.asks else ()
        heard = tuple(sorted((key, value) for key, value in work.heard.items() if value))
        if not any(work.fifos):
            return Device(
                ((),) * len(work.fifos), tuple(work.channels), tuple(work.words), tuple(records), tuple(held), carried, stored,
                ((),) * len(work.deferred), known, heard,
            )  # fmt: skip
        asked = {r for r in records if r > 0} | {r for row in work.deferred for r in row}
        asked |= {item.thing for row in work.fifos for item in row if item.kind == "join"}
        fresh: dict[int, int] = {}
        fifos: list[list[Item]] = []
        for pending in work.fifos:
            kept: list[Item] = []
            for item in pending:
                if item.kind == "record":
                    if item.thing not in asked:
                        continue
                    number = fresh.setdefault(item.thing, len(fresh) + 1)
                    item = item if number == item.thing else Item("record", number)
                kept.append(item)
            fifos.append(kept)
        for stream, kept in enumerate(fifos):
            for k, item in enumerate(kept):
                if item.kind == "join" and fresh.get(item.thing, 0) != item.thing:
                    kept[k] = item._replace(thing=fresh.get(item.thing, 0))
            if len(kept) > self.most_items[stream]:
                raise Bounded(f"what is pending in stream {self.stream_name(stream)} grows without bound")
        return Device(
            tuple(map(tuple, fifos)), tuple(work.channels), tuple(work.words),
            tuple(fresh.get(record, DONE) if record > 0 else record for record in records), tuple(held), carried, stored,
            tuple(tuple(sorted(fresh[r] for r in row)) for row in work.deferred), known, heard,
        )  # fmt: skip

    def stream_name(self, stream: int) -> str:
        """`name` or `name[slot]`."""
        oid, slot = self.streams[stream]
        thing = self.program.objects[oid]
        assert isinstance(thing, p.Stream)
        return thing.name if thing.depth is None else f"{thing.name}[{slot}]"


def _plain(item: Item) -> Item:
    """Without the number of the record, which is given afresh in each state."""
    return item._replace(thing=0) if item.kind in ("record", "join") else item
