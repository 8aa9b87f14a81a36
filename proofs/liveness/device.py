"""What waits in streams: signals, awaits, device flags, and the records behind them, as liveness looks at them.

Work that merely completes is not followed: it ends (theory: liveness). What stands behind a signal without room, an
await without its signal or an unsatisfied flag wait is pending, and is kept in order: one FIFO for each stream. Signals
and awaits of a channel between two streams run as soon as they can, because nobody else could tell; flags, and channels
with several ends at one side, are steps of the interleaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations import Context, lower
from fencepost.model.operations.meetings import open_channels
from fencepost.model.platform import Platform, platform
from fencepost.proofs.liveness.states import Block, Bounded, Move, Run, Semantics, State, turn_ends

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


Handle = tuple[str, int, bool]
"""("event", number, whether it was recorded again since the handle was given) | ("index", position, False) | ("", 0, False)."""

NOTHING: Handle = ("", 0, False)

_MEETINGS = {p.Signal: "signal", p.Await: "await", p.StoreFlag: "store", p.WaitFlag: "wait"}
_ON_STREAMS = (
    e.RecordEvent, e.JoinStream, e.StreamJoinsEvent, e.StreamJoinsStream, p.Signal, p.Await, p.StoreFlag, p.WaitFlag,
)  # fmt: skip

_PLAIN = (
    e.Touch, e.Enqueue, e.NoteUse, e.JoinStream, e.JoinDevice, p.Alloc, p.View, p.Drop, p.Acquire, p.Unlock, p.Take,
    p.FlagSet, p.FlagClear, p.FlagWait, p.CounterAdd, p.CounterWait,
)  # fmt: skip
"""Effects that change nothing of the device and hand nothing over."""


def meets(program: p.Program) -> bool:
    """Whether something of the program can be pending in a stream."""
    return any(
        isinstance(node, p.Do) and isinstance(node.operation, e.MEETINGS) for thread in program.threads for node in thread.nodes
    )


class _Work:
    """A `Device` that is being changed; between the steps of one stretch a state holds it as it is."""

    def __init__(self, device: Device | _Work) -> None:
        self.fifos: list[list[Item]] = [list(row) for row in device.fifos]
        self.channels: list[tuple[str, ...]] = list(device.channels)
        self.words: list[int] = list(device.words)
        self.records: list[int] = list(device.records)
        self.held: list[dict[int, Handle]] = [dict(row) for row in device.held]
        self.carried: list[tuple[tuple[Handle, ...], ...]] = list(device.carried)
        self.stored: list[tuple[Handle, ...]] = list(device.stored)
        self.deferred: list[tuple[int, ...]] = list(device.deferred)
        self.popped: set[int] = set()
        """Streams of which an item has run."""


class DeviceSemantics(Semantics):
    """Control, and what is pending in streams. Agents are the threads, then the streams."""

    def __init__(self, program: p.Program, alone: bool = False, platform_: Platform | None = None) -> None:
        self.program = program
        known = platform_ or platform(None)
        self.effects: dict[tuple[int, int], tuple[e.Effect, ...]] = {}
        for t, thread in enumerate(program.threads):
            context = Context(program, thread, known)
            for n, node in enumerate(thread.nodes):
                if isinstance(node, p.Do):
                    self.effects[t, n] = lower(node.operation, context)
        self.streams = _slots(program, p.Stream)
        self.stream_at = {slot: k for k, slot in enumerate(self.streams)}
        self.fixed = _slots(program, p.Event)
        self.event_at = {slot: k for k, slot in enumerate(self.fixed)}
        kinds = [(i, thing) for i, thing in enumerate(program.objects)]
        self.channel = {i: k for k, i in enumerate(i for i, thing in kinds if isinstance(thing, p.Channel))}
        self.word = {i: k for k, i in enumerate(i for i, thing in kinds if isinstance(thing, p.DeviceFlag))}
        self.queue = {i: k for k, i in enumerate(i for i, thing in kinds if isinstance(thing, p.Queue))}
        self.pool = {i: k for k, i in enumerate(i for i, thing in kinds if isinstance(thing, p.Pool))}
        self.cell_slots = _slots(program, p.Cell)
        self.cell_at = {slot: k for k, slot in enumerate(self.cell_slots)}
        self.asks = any(
            isinstance(node, p.Ask) and isinstance(node.question, (p.EventQuery, p.StreamQuery))
            for thread in program.threads for node in thread.nodes
        )  # fmt: skip
        self.live = [_live(thread) for thread in program.threads]
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
                for operand in _operands(self.program, effect):
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
        self.loose = any(_recorded_late(thread) for thread in self.program.threads) or bool(kinds)

    def _is_visible(self, what: p.Operation | p.Question) -> bool:
        if super()._is_visible(what):
            return True
        if isinstance(what, (p.EventQuery, p.StreamQuery)):
            operand = what.event if isinstance(what, p.EventQuery) else what.stream
            return self.loose if isinstance(operand, p.Local) else operand.id in self.shared
        return bool(isinstance(what, (p.StoreFlag, p.WaitFlag)) and what.stream is None)

    def _compile(self) -> None:
        super()._compile()
        touched: dict[int, set[int]] = {}
        rows = [
            [_host_objects(node.operation if isinstance(node, p.Do) else node.question) for node in thread.nodes]
            for thread in self.threads
        ]
        for t, row in enumerate(rows):
            for things in row:
                for thing in things:
                    touched.setdefault(thing, set()).add(t)
        for t, row in enumerate(rows):
            if not turn_ends(self.threads[t]):
                continue
            for n, things in enumerate(row):
                if things and all(len(touched[thing]) == 1 for thing in things):
                    self._visible[t][n] = False  # nobody else uses the object
        for (t, n), effects in self.effects.items():
            for effect in effects:
                if any(number in self.shared for number in _operands(self.program, effect)):
                    self._visible[t][n] = True
                event = getattr(effect, "event", None)
                if self.loose and isinstance(event, p.Local):
                    self._visible[t][n] = True

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
                yield moves, then._replace(device=self._frozen(then, _Work(then.device)))
            return
        stream = agent - count
        item = state.device.fifos[stream][0]
        if not self._can_run(state.device, stream, item):
            return
        work = _Work(state.device)
        self._execute(work, stream)
        then = self._settled(state, work)
        yield (Move(agent, item.node, None, item),), then._replace(device=self._frozen(then, work))

    def alone(self, state: State, ready: list[int]) -> int | None:
        """As without a device, but at the start of a turn, too: the search sees to it that nobody is put off for ever."""
        for agent in ready:
            if agent < len(self.threads) and self._commuting[agent][state.at[agent]] and self.obstacle(state, agent) is None:
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

    def _can_run(self, device: Device | _Work, stream: int, item: Item) -> bool:
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

    def _execute(self, work: _Work, stream: int) -> None:
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

    def _settled(self, state: State, work: _Work) -> State:
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

    def _frozen(self, state: State, work: _Work) -> Device:
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
        if not any(work.fifos):
            return Device(
                ((),) * len(work.fifos), tuple(work.channels), tuple(work.words), tuple(records), tuple(held), carried, stored,
                ((),) * len(work.deferred),
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
            tuple(tuple(sorted(fresh[r] for r in row)) for row in work.deferred),
        )  # fmt: skip

    def stream_name(self, stream: int) -> str:
        """`name` or `name[slot]`."""
        oid, slot = self.streams[stream]
        thing = self.program.objects[oid]
        assert isinstance(thing, p.Stream)
        return thing.name if thing.depth is None else f"{thing.name}[{slot}]"

    # ------------------------------------------------------------ operands

    def stream(self, state: State, t: int, operand: p.Operand) -> int:
        """Number of a stream."""
        return self.stream_at[self._named(state, t, operand)]

    def _named(self, state: State, t: int, operand: p.Operand) -> tuple[int, int]:
        assert not isinstance(operand, p.Local)
        if isinstance(operand, p.Obj):
            return operand.id, 0
        return operand.id, self._index(state, t, operand, getattr(self.program.objects[operand.id], "depth", None) or 1)

    def handle(self, state: State, t: int, operand: p.Operand) -> Handle:
        """The event that an operand names; nothing for a local without one."""
        if isinstance(operand, p.Local):
            known: dict[int, Handle] = dict(state.device.held[t])
            return known.get(operand.id, NOTHING)
        return ("event", self.event_at[self._named(state, t, operand)], False)

    def _given(self, state: State, t: int, value: p.Operand | p.Index) -> Handle:
        """A value as queues and cells hold it."""
        if isinstance(value, (p.Obj, p.Slot)) and isinstance(self.program.objects[value.id], p.Event):
            return self.handle(state, t, value)
        if isinstance(value, p.Local) and self.threads[t].locals[value.id].kind == p.EVENT:
            return self.handle(state, t, value)
        if not self._tracked:
            return NOTHING
        if isinstance(value, p.Turn):
            return ("index", (state.turns[t] + value.offset) % self._period, False)
        if isinstance(value, p.Last):
            return ("index", int(state.objects[self._place[value.cursor]]) + value.offset, False)
        local = value.local if isinstance(value, p.Var) else value.id if isinstance(value, p.Local) else None
        known = dict(state.indices[t])
        if local in known:
            return ("index", known[local] + (value.offset if isinstance(value, p.Var) else 0), False)
        return NOTHING

    # ------------------------------------------------------------ threads

    def _block(self, thread: int, number: int, what: p.Operation | p.Question) -> Block | None:
        before = super()._block(thread, number, what)
        waits = [x for x in self.effects.get((thread, number), ()) if _waits(x)]
        if not waits:
            return before

        def blocked(state: State) -> int | str | None:
            for effect in waits:
                found = self._waits_for(state, thread, effect)
                if found is not None:
                    return found
            return None

        return blocked

    def _waits_for(self, state: State, t: int, effect: e.Effect) -> int | str | None:
        device: Device = state.device
        if isinstance(effect, e.JoinEvent):
            kind, number, _ = self.handle(state, t, effect.event)
            if kind != "event" or device.records[number] <= 0:
                return None
            if number < len(self.fixed):
                return self.fixed[number][0]
            assert isinstance(effect.event, p.Local)
            return self.threads[t].locals[effect.event.id].name
        if isinstance(effect, p.WaitFlag):
            return effect.flag if device.words[self.word[effect.flag]] < effect.value else None
        for stream in self.joined(state, t, effect):
            if device.fifos[stream]:
                return self.streams[stream][0]
        return None

    def joined(self, state: State, t: int, effect: e.Effect) -> list[int]:
        """The streams that a host wait drains."""
        if isinstance(effect, e.JoinStream):
            return [self.stream(state, t, effect.stream)]
        assert isinstance(effect, e.JoinDevice)
        found = []
        for k, (oid, _) in enumerate(self.streams):
            thing = self.program.objects[oid]
            assert isinstance(thing, p.Stream)
            if (thing.gpu, thing.process) == (effect.gpu, effect.process):
                found.append(k)
        return found

    def _run(self, thread: int, number: int, node: p.Node) -> Run:
        plain = super()._run(thread, number, node)
        ends = node.next == p.END if isinstance(node, p.Do) else False
        if isinstance(node, p.Do) and not ends and all(isinstance(x, _PLAIN) for x in self.effects[thread, number]):
            return plain

        def run(state: State) -> list[tuple[str | None, State]]:
            if isinstance(node, p.Ask):
                ended = {answer for answer, target in node.branches if target == p.END}
                return [
                    (answer, self._asked(state, after, thread, node.question, str(answer), answer in ended))
                    for answer, after in plain(state)
                ]
            work = _Work(state.device)
            before = state
            for effect in self.effects[thread, number]:
                self._apply(before, work, thread, number, effect)
            result = []
            for answer, after in plain(self._indexed(state, thread, node.operation)):
                if ends:
                    work.held[thread] = {}
                if isinstance(node.operation, p.Give) and node.operation.after is not None:
                    after = self._deferred(state, after, work, thread, node.operation)
                result.append((answer, self._settled(after, work)))
            return result

        return run

    def _asked(self, state: State, after: State, t: int, q: p.Question, answer: str, ended: bool) -> State:
        if not ended and not isinstance(q, p.EventQuery):
            return after
        work = _Work(after.device)
        if isinstance(q, p.EventQuery) and answer == "yes":
            kind, number, _ = self.handle(state, t, q.event)
            if kind == "event":
                work.records[number] = KNOWN
        if ended:
            work.held[t] = {}
        return after._replace(device=work)

    def _answers(self, state: State, thread: int, q: p.Question) -> tuple[str, ...]:
        if isinstance(q, p.EventQuery):
            kind, number, _ = self.handle(state, thread, q.event)
            record = state.device.records[number] if kind == "event" else KNOWN
            return ("no",) if record > 0 else ("yes",) if record == KNOWN else ("yes", "no")
        if isinstance(q, p.StreamQuery) and state.device.fifos[self.stream(state, thread, q.stream)]:
            return ("no",)
        return super()._answers(state, thread, q)

    def _indexed(self, state: State, t: int, operation: p.Operation) -> State:
        """Indices that come through a queue or cell are indices of this turn."""
        if not self._tracked or not isinstance(operation, (p.Get, p.CellGet)):
            return state
        for local, handle in zip(operation.locals, self._taken(state, t, operation), strict=False):
            if handle[0] == "index":
                state = self._remember(state, t, local, handle[1])
        return state

    def _taken(self, state: State, t: int, operation: p.Get | p.CellGet) -> tuple[Handle, ...]:
        if isinstance(operation, p.Get):
            row = state.device.carried[self.queue[operation.queue]]
            return row[0] if row else ()
        return tuple(state.device.stored[self.cell_at[self._named(state, t, operation.cell)]])

    def _deferred(self, state: State, after: State, work: _Work, t: int, give: p.Give) -> State:
        """A token behind a pending record is not free yet."""
        assert give.after is not None
        kind, number, _ = self.handle(state, t, give.after)
        if kind != "event" or state.device.records[number] <= 0:
            return after
        work.deferred[self.pool[give.pool]] = (*work.deferred[self.pool[give.pool]], state.device.records[number])
        place = self._place[give.pool]
        return after._replace(objects=(*after.objects[:place], state.objects[place], *after.objects[place + 1 :]))

    def _apply(self, state: State, work: _Work, t: int, n: int, effect: e.Effect) -> None:
        """What one effect makes of the device; `state` is the state before the step."""
        if isinstance(effect, e.MEETINGS):
            self._meet(state, work, t, n, effect)
        elif isinstance(effect, e.RecordEvent):
            kind, number, _ = self.handle(state, t, effect.event)
            if kind == "event":
                self._outdate(work, t, number, effect.event)
                work.records[number] = self._record(work, self.stream(state, t, effect.stream), t, n)
        elif isinstance(effect, e.JoinEvent):
            kind, number, late = self.handle(state, t, effect.event)
            if kind == "event":
                work.records[number] = KNOWN
                if late:
                    self.waited_late.setdefault((t, n), state)
        elif isinstance(effect, e.StreamJoinsEvent):
            kind, number, _ = self.handle(state, t, effect.event)
            if kind == "event" and work.records[number] > 0:
                self._join(work, self.stream(state, t, effect.stream), work.records[number], t, n)
        elif isinstance(effect, e.StreamJoinsStream):
            record = self._record(work, self.stream(state, t, effect.other), t, n)
            if record > 0:
                self._join(work, self.stream(state, t, effect.stream), record, t, n)
        elif isinstance(effect, p.NewEvent):
            work.records.append(KNOWN)
            work.held[t][effect.local] = ("event", len(work.records) - 1, False)
        elif isinstance(effect, p.Put):
            k = self.queue[effect.queue]
            work.carried[k] = (*work.carried[k], tuple(self._given(state, t, value) for value in effect.values))
        elif isinstance(effect, p.Get):
            k = self.queue[effect.queue]
            self._take(work, t, effect.locals, work.carried[k][0])
            work.carried[k] = work.carried[k][1:]
        elif isinstance(effect, p.CellSet):
            k = self.cell_at[self._named(state, t, effect.cell)]
            work.stored[k] = tuple(self._given(state, t, value) for value in effect.values)
        elif isinstance(effect, p.CellGet):
            k = self.cell_at[self._named(state, t, effect.cell)]
            self._take(work, t, effect.locals, work.stored[k])
            if effect.take:
                work.stored[k] = ()
        elif isinstance(effect, p.CellClear):
            work.stored[self.cell_at[self._named(state, t, effect.cell)]] = ()

    @staticmethod
    def _take(work: _Work, t: int, targets: tuple[int, ...], values: tuple[Handle, ...]) -> None:
        for target, handle in zip(targets, values, strict=False):
            if handle[0] == "event":
                work.held[t][target] = handle

    def _meet(self, state: State, work: _Work, t: int, n: int, effect: e.Effect) -> None:
        assert isinstance(effect, (p.Signal, p.Await, p.StoreFlag, p.WaitFlag))
        if isinstance(effect, (p.Signal, p.Await)):
            item = Item(_MEETINGS[type(effect)], effect.channel, effect.tag, False, t, n)
        elif effect.stream is not None:
            reset = isinstance(effect, p.WaitFlag) and effect.reset
            item = Item(_MEETINGS[type(effect)], effect.flag, effect.value, reset, t, n)
        else:
            if isinstance(effect, p.StoreFlag):
                work.words[self.word[effect.flag]] = effect.value
            elif effect.reset:
                work.words[self.word[effect.flag]] = 0
            return
        assert effect.stream is not None
        work.fifos[self.stream(state, t, effect.stream)].append(item)

    def _record(self, work: _Work, stream: int, t: int, n: int) -> int:
        """What a record on the stream captures: nothing pending, or a pending record at its end."""
        row = work.fifos[stream]
        if not row:
            return DONE
        if row[-1].kind == "record":
            return row[-1].thing
        known = [item.thing for other in work.fifos for item in other if item.kind in ("record", "join")]
        number = max([*known, *(r for r in work.records if r > 0), *(r for row in work.deferred for r in row), 0]) + 1
        row.append(Item("record", number))
        return number

    @staticmethod
    def _join(work: _Work, stream: int, record: int, t: int, n: int) -> None:
        row = work.fifos[stream]
        own = any(item.kind == "record" and item.thing == record for item in row)
        if not own and not (row and row[-1].kind == "join" and row[-1].thing == record):
            row.append(Item("join", record, None, False, t, n))

    def _outdate(self, work: _Work, t: int, number: int, by: p.Operand) -> None:
        """Handles that were given before stand for an earlier record now; the one that is recorded through does not."""

        def late(handle: Handle) -> Handle:
            return ("event", number, True) if handle[0] == "event" and handle[1] == number else handle

        for other, row in enumerate(work.held):
            for local, handle in row.items():
                mine = other == t and isinstance(by, p.Local) and by.id == local
                row[local] = (handle[0], handle[1], False) if mine else late(handle)
        work.carried = [tuple(tuple(map(late, item)) for item in row) for row in work.carried]
        work.stored = [tuple(map(late, item)) for item in work.stored]


def _plain(item: Item) -> Item:
    """Without the number of the record, which is given afresh in each state."""
    return item._replace(thing=0) if item.kind in ("record", "join") else item


def _waits(effect: e.Effect) -> bool:
    if isinstance(effect, p.WaitFlag):
        return effect.stream is None
    return isinstance(effect, (e.JoinEvent, e.JoinStream, e.JoinDevice))


def _slots(program: p.Program, kind: type) -> list[tuple[int, int]]:
    return [
        (i, slot) for i, thing in enumerate(program.objects) if isinstance(thing, kind)
        for slot in range(getattr(thing, "depth", None) or 1)
    ]  # fmt: skip


def _operands(program: p.Program, effect: e.Effect) -> set[int]:
    """Streams and events that an effect names, where it decides who can move."""
    if isinstance(effect, e.JoinDevice):
        return {
            i for i, thing in enumerate(program.objects)
            if isinstance(thing, p.Stream) and (thing.gpu, thing.process) == (effect.gpu, effect.process)
        }  # fmt: skip
    result = set()
    if isinstance(effect, (*_ON_STREAMS, e.JoinEvent)):
        for name in ("stream", "event", "other"):
            operand = getattr(effect, name, None)
            if isinstance(operand, (p.Obj, p.Slot)):
                result.add(operand.id)
    if isinstance(effect, p.Give) and isinstance(effect.after, (p.Obj, p.Slot)):
        result.add(effect.after.id)
    return result


def _host_objects(what: p.Operation | p.Question) -> set[int]:
    """The queue, cell, pool, lock, flag, counter or cursor that something is done with or asked about."""
    if isinstance(what, e.MEETINGS):
        return set()  # streams use the flags, too
    found = {getattr(what, name) for name in ("queue", "pool", "lock", "flag", "counter", "cursor") if hasattr(what, name)}
    cell = getattr(what, "cell", None)
    if isinstance(cell, (p.Obj, p.Slot)):
        found.add(cell.id)
        if isinstance(cell, p.Slot) and isinstance(cell.index, p.Last):
            found.add(cell.index.cursor)
    return found


def _recorded_late(thread: p.Thread) -> bool:
    """Whether an event is recorded through a local that was received, or that was handed over before."""
    received = {
        local for node in thread.nodes if isinstance(node, p.Do) and isinstance(node.operation, (p.Get, p.CellGet))
        for local in node.operation.locals
    }  # fmt: skip
    given = {
        value.id for node in thread.nodes if isinstance(node, p.Do) and isinstance(node.operation, (p.Put, p.CellSet))
        for value in node.operation.values if isinstance(value, p.Local)
    }  # fmt: skip
    for n, node in enumerate(thread.nodes):
        if isinstance(node, p.Do) and isinstance(node.operation, p.Record) and isinstance(node.operation.event, p.Local):
            local = node.operation.event.id
            if local in received or (local in given and _given_before(thread, local, n)):
                return True
    return False


def _given_before(thread: p.Thread, local: int, record: int) -> bool:
    """Whether a hand-over of the local can come before node `record` in the turn."""
    begin = [
        n for n, node in enumerate(thread.nodes) if isinstance(node, p.Do) and isinstance(node.operation, (p.Put, p.CellSet))
        and any(isinstance(value, p.Local) and value.id == local for value in node.operation.values)
    ]  # fmt: skip
    return any(record in reachable(thread, n) for n in begin)


def following(node: p.Node) -> list[int]:
    """Nodes that may come next."""
    return [node.next] if isinstance(node, p.Do) else [target for _, target in node.branches]


def reachable(thread: p.Thread, start: int) -> set[int]:
    """Nodes of the turn that may come after node `start`; itself only on a circle."""
    seen: set[int] = set()
    todo = following(thread.nodes[start])
    while todo:
        n = todo.pop()
        if n != p.END and n not in seen:
            seen.add(n)
            todo += following(thread.nodes[n])
    return seen


def _live(thread: p.Thread) -> list[frozenset[int]]:
    """For each node the locals that it, or a later node of the turn, names."""
    named = []
    for node in thread.nodes:
        what = node.operation if isinstance(node, p.Do) else node.question
        named.append({operand.id for operand in _locals(what)})
    before: list[list[int]] = [[] for _ in thread.nodes]
    for n, node in enumerate(thread.nodes):
        for m in following(node):
            if m != p.END:
                before[m].append(n)
    todo = [n for n, row in enumerate(named) if row]
    while todo:
        m = todo.pop()
        for n in before[m]:
            if not named[m] <= named[n]:
                named[n] |= named[m]
                todo.append(n)
    return [frozenset(row) for row in named]


def _locals(value: Any) -> Iterator[p.Local]:
    if isinstance(value, p.Local):
        yield value
    elif isinstance(value, p.Data):
        for name in value.__struct_fields__:
            yield from _locals(getattr(value, name))
    elif isinstance(value, tuple):
        for one in value:
            yield from _locals(one)
