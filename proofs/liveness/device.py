"""Threads and streams of a design together: what each operation of a thread makes of what waits in streams."""

from __future__ import annotations

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.liveness.moves import Block, Run, State
from fencepost.proofs.liveness.pending import DONE, KNOWN, NOTHING, Device, Handle, Item, Pending, Work
from fencepost.proofs.liveness.text import host_objects, operands, turn_ends

_MEETINGS = {p.Signal: "signal", p.Await: "await", p.StoreFlag: "store", p.WaitFlag: "wait"}

_TELLING = (e.Enqueue, e.RecordEvent, e.JoinEvent, e.JoinStream, e.JoinDevice, e.StreamJoinsEvent, e.StreamJoinsStream)
"""Effects that decide what a query can say."""

_PLAIN = (
    e.Touch, e.Enqueue, e.NoteUse, e.JoinStream, e.JoinDevice, p.Alloc, p.View, p.Drop, p.Acquire, p.Unlock, p.Take,
    p.FlagSet, p.FlagClear, p.FlagWait, p.CounterAdd, p.CounterWait,
)  # fmt: skip
"""Effects that change nothing of the device and hand nothing over."""


class DeviceSemantics(Pending):
    """Control, and what is pending in streams. Agents are the threads, then the streams."""

    hears = False
    """Whether what threads tell each other of records is followed, too."""

    def _is_visible(self, what: p.Operation | p.Question) -> bool:
        if super()._is_visible(what):
            return True
        if isinstance(what, (p.EventQuery, p.StreamQuery)):
            if self.asked_late:
                return True
            operand = what.event if isinstance(what, p.EventQuery) else what.stream
            return self.loose if isinstance(operand, p.Local) else operand.id in self.shared
        return bool(isinstance(what, (p.StoreFlag, p.WaitFlag)) and what.stream is None)

    def _compile(self) -> None:
        super()._compile()
        touched: dict[int, set[int]] = {}
        rows = [
            [host_objects(node.operation if isinstance(node, p.Do) else node.question) for node in thread.nodes]
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
                if any(number in self.shared for number in operands(self.program, effect)):
                    self._visible[t][n] = True
                event = getattr(effect, "event", None)
                if self.loose and isinstance(event, p.Local):
                    self._visible[t][n] = True
                if self.asked_late and isinstance(effect, _TELLING):
                    self._visible[t][n] = True

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
        if isinstance(node, p.Do) and not ends and not self.hears and all(
            isinstance(x, _PLAIN) and not (self.asks and isinstance(x, _TELLING)) for x in self.effects[thread, number]
        ):  # fmt: skip
            return plain

        def run(state: State) -> list[tuple[str | None, State]]:
            if isinstance(node, p.Ask):
                ended = {answer for answer, target in node.branches if target == p.END}
                return [
                    (answer, self._asked(state, after, thread, node.question, str(answer), answer in ended))
                    for answer, after in plain(state)
                ]
            work = Work(state.device)
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
        if not ended and not self.hears and not isinstance(q, (p.EventQuery, p.StreamQuery)):
            return after
        work = Work(after.device)
        if answer == "yes":
            self._told(state, work, t, q)
        if isinstance(q, p.EventQuery) and answer == "yes":
            kind, number, _ = self.handle(state, t, q.event)
            if kind == "event":
                self._learn(work, number)
        elif isinstance(q, p.StreamQuery) and answer == "yes":
            self._learn(work, -1 - self.stream(state, t, q.stream))
        if ended:
            work.held[t] = {}
        return after._replace(device=work)

    def _answers(self, state: State, thread: int, q: p.Question) -> tuple[str, ...]:
        if isinstance(q, p.EventQuery):
            kind, number, _ = self.handle(state, thread, q.event)
            record = state.device.records[number] if kind == "event" else KNOWN
            return ("no",) if record > 0 else ("yes",) if record == KNOWN else ("yes", "no")
        if isinstance(q, p.StreamQuery):
            stream = self.stream(state, thread, q.stream)
            if state.device.fifos[stream]:
                return ("no",)
            return ("yes", "no") if state.device.known.unsure(-1 - stream) else ("yes",)
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

    def _deferred(self, state: State, after: State, work: Work, t: int, give: p.Give) -> State:
        """A token behind a pending record is not free yet."""
        assert give.after is not None
        kind, number, _ = self.handle(state, t, give.after)
        if kind != "event" or state.device.records[number] <= 0:
            return after
        work.deferred[self.pool[give.pool]] = (*work.deferred[self.pool[give.pool]], state.device.records[number])
        place = self._place[give.pool]
        return after._replace(objects=(*after.objects[:place], state.objects[place], *after.objects[place + 1 :]))

    def _apply(self, state: State, work: Work, t: int, n: int, effect: e.Effect) -> None:
        """What one effect makes of the device; `state` is the state before the step."""
        if isinstance(effect, e.MEETINGS):
            self._meet(state, work, t, n, effect)
        elif isinstance(effect, e.RecordEvent):
            kind, number, _ = self.handle(state, t, effect.event)
            if kind == "event":
                self._outdate(work, t, number, effect.event)
                stream = self.stream(state, t, effect.stream)
                work.records[number] = self._record(work, stream, t, n)
                if self.asks and work.known.recorded(number, stream) and work.records[number] == DONE:
                    work.records[number] = KNOWN
        elif isinstance(effect, e.JoinEvent):
            kind, number, late = self.handle(state, t, effect.event)
            if kind == "event":
                self._learn(work, number)
                if late:
                    self.waited_late.setdefault((t, n), state)
        elif isinstance(effect, e.StreamJoinsEvent):
            kind, number, late = self.handle(state, t, effect.event)
            if kind == "event":
                if late:
                    self.waited_late.setdefault((t, n), state)
                if work.records[number] > 0:
                    self._join(work, self.stream(state, t, effect.stream), work.records[number], t, n)
                work.known.joined(self.stream(state, t, effect.stream), number)
        elif isinstance(effect, e.StreamJoinsStream):
            other = self.stream(state, t, effect.other)
            record = self._record(work, other, t, n)
            if record > 0:
                self._join(work, self.stream(state, t, effect.stream), record, t, n)
            work.known.joined(self.stream(state, t, effect.stream), -1 - other)
        elif isinstance(effect, (e.JoinStream, e.JoinDevice)):
            self._learn(work, *(-1 - stream for stream in self.joined(state, t, effect)))
        elif isinstance(effect, e.Enqueue):
            work.known.enqueued(self.stream(state, t, effect.stream))
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

    def _told(self, state: State, work: Work, t: int, what: e.Effect | p.Question) -> None:
        """A thread hears what others knew when they changed an object."""

    @staticmethod
    def _learn(work: Work, *points: int) -> None:
        """The work of these points, events or streams, is complete, and all that it includes."""
        for number in {*work.known.waited(points), *(point for point in points if point >= 0)}:
            if work.records[number] == DONE:
                work.records[number] = KNOWN

    @staticmethod
    def _take(work: Work, t: int, targets: tuple[int, ...], values: tuple[Handle, ...]) -> None:
        for target, handle in zip(targets, values, strict=False):
            if handle[0] == "event":
                work.held[t][target] = handle

    def _meet(self, state: State, work: Work, t: int, n: int, effect: e.Effect) -> None:
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
        work.known.enqueued(self.stream(state, t, effect.stream))
        work.fifos[self.stream(state, t, effect.stream)].append(item)

    def _record(self, work: Work, stream: int, t: int, n: int) -> int:
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
    def _join(work: Work, stream: int, record: int, t: int, n: int) -> None:
        row = work.fifos[stream]
        own = any(item.kind == "record" and item.thing == record for item in row)
        if not own and not (row and row[-1].kind == "join" and row[-1].thing == record):
            row.append(Item("join", record, None, False, t, n))

    def _outdate(self, work: Work, t: int, number: int, by: p.Operand) -> None:
        """Handles that were given before stand for an earlier record now; the one that is recorded through does not."""

        def late(handle: Handle) -> Handle:
            return ("event", number, True) if handle[0] == "event" and handle[1] == number else handle

        for other, row in enumerate(work.held):
            for local, handle in row.items():
                mine = other == t and isinstance(by, p.Local) and by.id == local
                row[local] = (handle[0], handle[1], False) if mine else late(handle)
        work.carried = [tuple(tuple(map(late, item)) for item in row) for row in work.carried]
        work.stored = [tuple(map(late, item)) for item in work.stored]


def _waits(effect: e.Effect) -> bool:
    if isinstance(effect, p.WaitFlag):
        return effect.stream is None
    return isinstance(effect, (e.JoinEvent, e.JoinStream, e.JoinDevice))
