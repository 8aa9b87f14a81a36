"""From a program and a location to closures over `State`: the explorer's reading of every effect.

Each `Do` node becomes (ready, effects); each `Ask` node a function from a state to its possible answers. An effect
changes the state in place and returns None, or returns the successor states where it branches.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.explore.flags import ALL
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.memory import FORKS, POOL, LocationRules, forks, put_outside
from fencepost.proofs.explore.positions import Source
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.state import BIT, CALLED, COMPLETE, PENDING, RECORDED, State
from fencepost.proofs.explore.state import Unsupported as Unsupported

if TYPE_CHECKING:
    from fencepost.proofs.explore.pending import Device

Apply = Callable[[State], "list[State] | None"]
Ready = Callable[[State], bool]
Answers = Callable[[State], "str | list[tuple[str, State]]"]
"""The answer where the state decides it (and changes in place), or each possible answer with its state."""
_WAITING = frozenset((p.Put, p.Get, p.Acquire, p.FlagWait, p.CounterWait, p.Take))
Counts = Callable[[State, "tuple[Any, ...]"], None]


class DoNode(msgspec.Struct, frozen=True):
    """A compiled operation. `touches` names the shared things it looks at or changes."""

    ready: Ready | None
    effects: tuple[Apply, ...]
    next: int
    touches: frozenset[Any]


class AskNode(msgspec.Struct, frozen=True):
    """A compiled question."""

    ready: Ready | None
    answers: Answers
    branches: dict[str, int]
    touches: frozenset[Any]


class Code(msgspec.Struct, frozen=True):
    """What a node is compiled to, without what comes next: effects of an operation, or answers of a question."""

    ready: Ready | None
    effects: tuple[Apply, ...]
    answers: Answers | None
    touches: frozenset[Any]
    named: frozenset[Any]
    """Locals, memory, cells and pools that were asked for: the code is the same for every location to which none of them matters."""
    positions: frozenset[Source] | None
    """Which positions are kept, where the code depends on that."""


class Compiler:
    """Compiles all threads of one program for one location (None: control only, no memory)."""

    def __init__(self, setting: Setting, location: Location | None, passed: list[set[int]]) -> None:
        """`passed`: for each thread the nodes that are passed over."""
        if setting.shared_cursor is not None:
            raise Unsupported(
                f"{setting.shared_cursor}: which slot it gives depends on their order, which no edge records; "
                "give each thread its own cursor, or hand the position through a queue"
            )
        self.setting = setting
        self.program = setting.program
        self.location = location
        self.layout, self.positions = setting.layout_for(location, passed)
        self.environment = setting.environment
        self.met: list[bool] = []
        self.accessors: set[tuple[int, int]] = set()
        places = setting.flow.places(location) if location is not None else frozenset()
        self.holders = frozenset((place[1], place[2]) for place in places if place[0] == "local")
        """(thread, local) of every local that may refer to the location's bytes."""
        self.cells = {place[1] for place in places if place[0] == "cell"}
        """Cells that may hold such a reference."""
        self.track = setting.queries  # what a query may answer
        self.flags = setting.flags
        self.noted = {
            effect.stream.id for effects in setting.lowered.values() for effect in effects
            if type(effect) is e.NoteUse and type(effect.stream) is not p.Local
        } if self.layout.one_queue else set()  # fmt: skip
        """Streams on which a block may be noted (kept only with one hardware queue)."""
        self.device: Device | None = setting.device()
        """What pending work does; None in designs without meetings."""
        own = {location.id} if location is not None and location.kind == "memory" else set()
        self.matters: frozenset[Any] = self.holders.union(self.cells, own, [POOL])
        """What makes a node's code depend on the location where the node names it (`LocationRules.named`)."""

    def thread(self, t: int, passed: set[int], skip: Callable[[int, int], int]) -> list[DoNode | AskNode | None]:
        """The nodes of thread `t`; None for those that are passed over, `skip` finds the next kept one."""
        compiler = (ThreadCompiler if self.device is None else meeting_compiler())(self, t, lambda node: skip(t, node))
        nodes = [None if i in passed else compiler.node(i) for i in range(len(self.program.threads[t].nodes))]
        del compiler.skip  # what it compiled may keep the compiler, and this keeps the search: no cycle, no garbage
        return nodes


def _nothing(s: State) -> int:
    return 0


def meeting_compiler() -> type[ThreadCompiler]:
    """The compiler for designs in which streams meet."""
    from fencepost.proofs.explore.pending_calls import MeetingCompiler

    return MeetingCompiler


class ThreadCompiler:
    """Compiles the nodes of one thread."""

    def __init__(self, owner: Compiler, t: int, skip: Callable[[int], int]) -> None:
        self.skip = skip
        self.o = owner
        self.t = t
        self.layout = owner.layout
        self.source = owner.program.threads[t]
        self.touches: set[Any] = set()
        self.memory = LocationRules(owner.location, owner.layout, t, self.touches, owner.met, owner.accessors, owner.holders)
        self.positioned = False
        """Whether the node that is being compiled depends on which positions are kept."""

    def node(self, i: int) -> DoNode | AskNode:
        """Compile node `i`; what names nothing that matters to the location is the same for all locations, and compiled once."""
        node, shared, matters, positions = self.source.nodes[i], self.o.setting.compiled, self.o.matters, self.o.positions
        known = shared.get((self.t, i)) if self.o.device is None else None
        if known is not None and known.named.isdisjoint(matters) and known.positions in (None, positions):
            code = known
        else:
            code = self._compiled(i, node)
            if known is None and self.o.device is None and code.named.isdisjoint(matters):
                shared[self.t, i] = code
        if isinstance(node, p.Ask):
            assert code.answers is not None
            return AskNode(code.ready, code.answers, {a: self.skip(n) for a, n in node.branches}, code.touches)
        return DoNode(code.ready, code.effects, self.skip(node.next), code.touches)

    def _compiled(self, i: int, node: p.Node) -> Code:
        self.touches.clear()
        self.memory.named.clear()
        self.positioned = False
        for what in self.o.setting.cursors.get((self.t, i), ()):
            if self._kept((*what, 0)):
                self.touches.add(what)
        self.memory.node = i
        answers: Answers | None = None
        effects: tuple[Apply, ...] = ()
        if isinstance(node, p.Ask):
            ready, answers = self._question(node.question, tuple(a for a, _ in node.branches))
        else:
            effects = tuple([f for effect in self.o.setting.lowered[self.t, i] for f in self._effect(effect)])
            ready = self._ready(node.operation)
        positions = self.o.positions if self.positioned else None
        return Code(ready, effects, answers, frozenset(self.touches), frozenset(self.memory.named), positions)

    # ------------------------------------------------------------ effects

    def _effect(self, effect: e.Effect) -> list[Apply]:
        method: Callable[[Any], list[Apply]] = getattr(self, "_" + type(effect).__name__.lower())
        return method(effect)

    def _touch(self, effect: e.Touch) -> list[Apply]:
        return self.memory.host(effect.accesses)

    def _enqueue(self, effect: e.Enqueue) -> list[Apply]:
        stream, t = self._stream(effect.stream), self.t

        def start(s: State) -> None:
            s.streams[stream(s)] |= s.tb[t]

        streams = self._streams(effect.stream)
        called = self._called(effect.stream)
        if len(streams) > 1 or called or self.layout.one_queue:
            return self._own([start, *called, *self.memory.item(effect.accesses, stream, streams)], effect.stream)
        item = self.memory.item(effect.accesses, stream, streams, starts=True)
        only = streams[0]

        def start_there(s: State) -> None:
            s.streams[only] |= s.tb[t]

        return item or [start_there]

    def _own(self, effects: list[Apply], operand: p.Operand) -> list[Apply]:
        """With one hardware queue: after the effects, what the queue has come to is the stream's own last item (S116)."""
        if not self.layout.one_queue:
            return effects
        *before, last = effects
        slot, queue = self._slot(operand), self._stream(operand)

        def run(s: State) -> list[State] | None:
            states = last(s)
            for x in states or (s,):
                x.streams[slot(x)] = x.streams[queue(x)]
            return states

        return [*before, forks(run) if getattr(last, FORKS, False) else run]

    def _kept_flags(self, event: p.Operand) -> int:
        """What the search keeps of the event: the bit, and the flags that somebody looks at (flags.py)."""
        if not self.o.track:
            return BIT
        return BIT | (self.o.flags.event(self.t, event) if self.o.flags is not None else ALL)

    def _calls(self, stream: p.Operand) -> bool:
        """Whether the search keeps what a query of the stream says."""
        return self.o.track and (self.o.flags is None or self.o.flags.calls(stream))

    def _called(self, operand: p.Operand) -> list[Apply]:
        """A "no" of `stream.query()` needs work there, and comes after the calls that put it there [T]."""
        t = self.t
        if not self._calls(operand):
            return []
        stream = self._slot(operand)

        def run(s: State) -> None:
            s.calls[stream(s)] |= s.tb[t] | PENDING

        return [run]

    def _recorded(self, operand: p.Operand) -> Callable[[State], bool]:
        """With one hardware queue: a record is an item of its stream, behind all that is in the queue; whether that may be busy."""
        slot, queue, t, calls = self._slot(operand), self._stream(operand), self.t, self._calls(operand)
        sharers = self.layout.own_slots(self._streams(operand)[0])

        def run(s: State) -> bool:
            i, k = queue(s), slot(s)
            s.streams[i] |= s.tb[t]
            s.streams[k] = s.streams[i]
            if not calls:
                return True
            busy = any([s.calls[one] & PENDING for one in sharers])
            s.calls[k] |= s.tb[t] | (PENDING if busy else 0)
            return busy

        return run

    def _recordevent(self, effect: e.RecordEvent) -> list[Apply]:
        stream = self._stream(effect.stream)
        write = self._event_write(effect.event)
        t, kept = self.t, self._kept_flags(effect.event)

        def run(s: State) -> None:
            i = stream(s)
            s.streams[i] |= s.tb[t]  # a record is an item: it starts after its call, and what follows after it (S2)
            write(s, s.streams[i] & BIT)

        def run_tracked(s: State) -> None:
            i = stream(s)
            s.streams[i] |= s.tb[t]
            known = 0 if s.calls[i] & PENDING else COMPLETE
            write(s, ((s.streams[i] & BIT) | RECORDED | (CALLED if s.tb[t] else 0) | known) & kept)

        if self.layout.one_queue:
            return self._record_shared(effect)
        if kept != BIT:
            return [run_tracked]
        only = self._only(effect.stream)
        if only is None or type(effect.event) is not p.Obj:
            return [run]
        event = self.layout.event[effect.event.id]

        def run_there(s: State, only: int = only) -> None:
            bit = s.streams[only] = s.streams[only] | s.tb[t]
            s.events[event] = bit & BIT

        return [run_there]

    def _joinevent(self, effect: e.JoinEvent) -> list[Apply]:
        read, t = self._event_read(effect.event), self.t
        if not self._kept_flags(effect.event) & COMPLETE:
            if type(effect.event) is p.Obj:
                event = self.layout.event[effect.event.id]

                def join_it(s: State) -> None:
                    s.tb[t] |= s.events[event] & BIT

                return [join_it]

            def join(s: State) -> None:
                s.tb[t] |= read(s) & BIT

            return [join]
        write = self._event_write(effect.event)

        def join_known(s: State) -> None:
            flags = read(s)
            s.tb[t] |= flags & BIT
            if flags & RECORDED:
                write(s, flags | COMPLETE)

        return [join_known]

    def _joinstream(self, effect: e.JoinStream) -> list[Apply]:
        stream, t = self._slot(effect.stream), self.t

        def run(s: State) -> None:
            i = stream(s)
            s.tb[t] |= s.streams[i]
            s.calls[i] &= ~PENDING

        return [run]

    def _joindevice(self, effect: e.JoinDevice) -> list[Apply]:
        streams = self.layout.device_streams(effect.gpu, effect.process)
        self.touches |= {("stream", self.layout.shared_stream(self.layout.stream_owner[i])) for i in streams}
        t, slots = self.t, self._slots_of(streams)

        def run(s: State) -> None:
            for i in streams:
                s.tb[t] |= s.streams[i]
            for i in slots:
                s.calls[i] &= ~PENDING

        return [run]

    def _slots_of(self, streams: list[int]) -> list[int]:
        """The slots whose items are in these streams, or shared queues."""
        return [k for i in streams for k in self.layout.own_slots(i)] if self.layout.one_queue else streams

    def _streamjoinsevent(self, effect: e.StreamJoinsEvent) -> list[Apply]:
        stream, read, t = self._stream(effect.stream), self._event_read(effect.event), self.t
        calls = self._calls(effect.stream)

        # Without tracking nobody knows whether the event was ever recorded. If not, the wait is no item (S18), so the
        # stream must not learn what the caller knows; items that the caller enqueues carry it anyhow.
        def run(s: State) -> None:
            s.streams[stream(s)] |= read(s) & BIT

        def run_tracked(s: State) -> None:
            flags = read(s)
            if flags & RECORDED:  # never recorded: does nothing (S18)
                i = stream(s)
                s.streams[i] |= (flags & BIT) | s.tb[t]
                if not calls:
                    return
                # Who is told that the stream is busy knows of the wait, and of the record that the wait is for.
                s.calls[i] |= s.tb[t] | (0 if flags & COMPLETE else PENDING) | (BIT if flags & CALLED else 0)

        if self.layout.one_queue:
            return self._join_event_shared(effect)
        if self.o.track:
            return [run_tracked]
        only = self._only(effect.stream)
        if only is None or type(effect.event) is not p.Obj:
            return [run]
        event = self.layout.event[effect.event.id]

        def run_there(s: State, only: int = only) -> None:
            s.streams[only] |= s.events[event] & BIT

        return [run_there]

    def _streamjoinsstream(self, effect: e.StreamJoinsStream) -> list[Apply]:
        stream, other, t = self._stream(effect.stream), self._stream(effect.other), self.t
        calls = self._calls(effect.stream)

        def run(s: State) -> None:
            behind = other(s)
            s.streams[behind] |= s.tb[t]  # the record is an item there
            i = stream(s)
            s.streams[i] |= s.streams[behind]
            if calls:
                s.calls[i] |= s.tb[t] | s.calls[behind]

        if self.layout.one_queue:
            return self._join_stream_shared(effect)
        return [run]

    # With one hardware queue; see `_own`.

    def _record_shared(self, effect: e.RecordEvent) -> list[Apply]:
        stream, write, t = self._stream(effect.stream), self._event_write(effect.event), self.t
        recorded, kept = self._recorded(effect.stream), self._kept_flags(effect.event)

        def run(s: State) -> None:
            known = 0 if recorded(s) else COMPLETE
            write(s, ((s.streams[stream(s)] & BIT) | RECORDED | (CALLED if s.tb[t] else 0) | known) & kept)

        return [run]

    def _join_event_shared(self, effect: e.StreamJoinsEvent) -> list[Apply]:
        """If the event is over by now the wait is no item, so the stream's own end is not behind all that is in the queue."""
        stream, slot, read, t = self._stream(effect.stream), self._slot(effect.stream), self._event_read(effect.event), self.t
        calls = self._calls(effect.stream)

        def run(s: State) -> None:
            flags = read(s)
            if flags & RECORDED:
                k, bit = slot(s), (flags & BIT) | s.tb[t]
                s.streams[stream(s)] |= bit
                s.streams[k] |= bit
                if not calls:
                    return
                s.calls[k] |= s.tb[t] | (0 if flags & COMPLETE else PENDING) | (BIT if flags & CALLED else 0)

        return [run]

    def _join_stream_shared(self, effect: e.StreamJoinsStream) -> list[Apply]:
        stream, slot, slot_behind = self._stream(effect.stream), self._slot(effect.stream), self._slot(effect.other)
        recorded, calls = self._recorded(effect.other), self._calls(effect.stream)

        def run(s: State) -> None:
            recorded(s)
            k, behind = slot(s), slot_behind(s)
            s.streams[stream(s)] |= s.streams[behind]
            s.streams[k] |= s.streams[behind]
            if calls:
                s.calls[k] |= s.calls[behind]  # which the record's call is one of

        return [run]

    def _noteuse(self, effect: e.NoteUse) -> list[Apply]:
        if type(effect.block) is p.Local and self._inert(effect.block.id):
            return []
        return self.memory.note_use(effect, self._slot(effect.stream))

    def _alloc(self, effect: p.Alloc) -> list[Apply]:
        if self._inert(effect.local):
            return []
        stream = self._slot(effect.stream) if effect.stream is not None else None
        return self.memory.alloc(effect, stream)

    def _view(self, effect: p.View) -> list[Apply]:
        return [] if self._inert(effect.local) else self.memory.view(effect)

    def _drop(self, effect: p.Drop) -> list[Apply]:
        return [] if self._inert(effect.local) else self.memory.drop(effect)

    def _newevent(self, effect: p.NewEvent) -> list[Apply]:
        if not self.layout.heap_events:
            return [self._set_local(effect.local, lambda s: 0)]

        def fresh(s: State) -> Any:
            s.events = [*s.events, 0]  # copies share a list that is empty
            return ("E", len(s.events) - 1)

        return [self._set_local(effect.local, fresh)]

    def _advance(self, effect: p.Advance) -> list[Apply]:
        if not self._kept(("cursor", effect.cursor, 0)):
            return []
        var = self.layout.cursor_var(effect.cursor)
        depth = self.layout.var_depth[var]
        self.touches.add(("cursor", effect.cursor))
        t, local = self.t, effect.local

        def move(s: State) -> None:
            s.pos[var] = (s.pos[var] + 1) % depth

        if self._inert(local):
            return [move]

        def run(s: State) -> None:
            s.pos[var] = i = (s.pos[var] + 1) % depth
            values = s.locals[t]
            s.locals[t] = (*values[:local], i, *values[local + 1 :])

        return [run]

    def _values(self, values: tuple[Any, ...], to: tuple[Any, ...]) -> Callable[[State], tuple[Any, ...]]:
        """What reads values that are handed over; `to` and a number name the place where each will be."""
        t = self.t
        lost = [self._is_index(v) and not self._kept((*to, k)) for k, v in enumerate(values)]
        if len(values) > 1 and not any(lost) and all(type(v) is p.Local for v in values):
            mine = itemgetter(*[v.id for v in values])
            return lambda s: mine(s.locals[t])
        readers = [_nothing if lost[k] else self._value(v) for k, v in enumerate(values)]
        if len(readers) == 1:
            (only,) = readers
            return lambda s: (only(s),)
        if all(r is _nothing for r in readers):
            nothing = (0,) * len(readers)
            return lambda s: nothing
        return lambda s: tuple([r(s) for r in readers])

    def _is_index(self, value: Any) -> bool:
        if isinstance(value, (p.Local, p.Var)):
            return self.source.locals[value.id if isinstance(value, p.Local) else value.local].kind == p.INDEX
        return type(value) is p.Last

    def _value(self, value: Any) -> Callable[[State], Any]:
        """A value as it travels: event flags or reference, memory reference, index."""
        if type(value) is p.Turn or type(value) is p.Fixed:
            raise Unsupported("a turn number or constant in a queue or cell has no ring that it is relative to; advance a d.cursor(name, depth) "
                              "once a turn and hand over its position")
        if type(value) is p.Local:
            t, i = self.t, value.id
            if self.memory.outside(value):
                return lambda s: put_outside(s.locals[t][i])
            of_token = self.memory.of_token(value)
            if of_token is not None:
                mine = of_token
                return lambda s: s.locals[t][i] if mine(s) else put_outside(s.locals[t][i])
            return lambda s: s.locals[t][i]
        if type(value) is p.Var and self.source.locals[value.local].kind == p.HANDLE:
            t, i = self.t, value.local
            return lambda s: s.locals[t][i]  # the token itself: which one is guessed, not numbered
        if (type(value) is p.Obj or type(value) is p.Slot) and isinstance(self.o.program.objects[value.id], p.Memory):
            location = self.o.location
            self.memory.named.add(value.id)
            if location is None or location.kind != "memory" or location.id != value.id or self.memory.outside(value):
                return _nothing  # a reference that never leads to the location
        if type(value) is p.Obj:
            ref = self.layout.reference(value.id, 0)
            row = self.memory.of_token(value)
            return (lambda s: ref) if row is None else lambda s: ref if row(s) else 0
        if type(value) is p.Slot:
            index, layout, oid = self._index(value.index, self.layout.depth(value.id)), self.layout, value.id
            return lambda s: layout.reference(oid, index(s))
        depth = self.layout.index_depth(self.t, value)
        return self._index(value, depth)

    def _inert(self, local: int) -> bool:
        """Whether the local's value matters to nobody, and is 0: a reference that never leads to the location, an index that
        never chooses a slot that matters."""
        kind = self.source.locals[local].kind
        if kind == p.MEMORY:
            self.memory.named.add((self.t, local))
            return (self.t, local) not in self.o.holders
        return kind == p.INDEX and not self._kept(("local", self.t, local))

    def _kept(self, source: Source) -> bool:
        """Whether the search keeps a position, or the index that a place may hold."""
        self.positioned = True
        return self.o.positions is None or source in self.o.positions

    def _hold(self, values: tuple[Any, ...]) -> Counts | None:
        """What counts the references to a block that are handed over, a step that other threads can see; None if none is."""
        self.memory.named |= {(self.t, v.id) for v in values if type(v) is p.Local}
        held = [k for k, v in enumerate(values) if type(v) is p.Local and (self.t, v.id) in self.o.holders]
        if not held:
            return None
        self.memory.mark_references()
        hold = self.memory.hold
        if len(held) > 1:
            return hold
        (only,) = held

        def one(s: State, values: tuple[Any, ...]) -> None:
            if values[only]:
                hold(s, values)

        return one

    def _loose(self, cell: p.Operand) -> Counts | None:
        """What ends the references that a cell held; None where it holds none to the location."""
        self.memory.named.add(cell.id)
        return self.memory.loose if cell.id in self.o.cells else None

    def _set_local(self, local: int, value: Callable[[State], Any]) -> Apply:
        t = self.t

        def run(s: State) -> None:
            v = value(s)
            values = s.locals[t]
            if values[local] is not v:
                s.locals[t] = (*values[:local], v, *values[local + 1 :])

        return run

    def _stores(self, targets: tuple[int, ...]) -> Callable[[State, tuple[Any, ...]], None] | None:
        """What keeps received values in the thread's locals; None where they matter to nobody."""
        t = self.t
        kept = [(k, target) for k, target in enumerate(targets) if not self._inert(target)]
        if not kept:
            return None

        def store(s: State, values: tuple[Any, ...]) -> None:
            row = list(s.locals[t])
            for k, target in kept:
                row[target] = values[k]
            s.locals[t] = tuple(row)

        return store

    def _put(self, effect: p.Put) -> list[Apply]:
        q, t, tag = self.layout.queue[effect.queue], self.t, effect.tag
        values, hold = self._values(effect.values, ("queue", effect.queue, tag)), self._hold(effect.values)
        self.touches.add(("put", effect.queue))
        bound = BIT if effect.edge else 0

        def run(s: State) -> None:
            items, free, last_get, every = s.queues[q]
            vs = values(s)
            if hold is not None:
                hold(s, vs)
            bit = s.tb[t] = s.tb[t] | (free[0] & bound)  # get i -> put i + capacity
            s.queues[q] = ((*items, (tag, bit, vs)), free[1:], last_get, every | bit)

        return [run]

    def _get(self, effect: p.Get) -> list[Apply]:
        q, t, store = self.layout.queue[effect.queue], self.t, self._stores(effect.locals)
        self.touches.add(("get", effect.queue))

        def run(s: State) -> None:
            items, free, last_get, every = s.queues[q]
            _tag, bit, vs = items[0]
            bit = s.tb[t] = s.tb[t] | bit | last_get
            s.queues[q] = (items[1:], (*free, bit), bit, every | bit)
            if store is not None:
                store(s, vs)

        return [run]

    def _cell(self, operand: p.Operand) -> Callable[[State], int]:
        assert not isinstance(operand, p.Local)
        self.touches.add(("cell", operand.id))
        self.memory.named.add(operand.id)
        if operand.id in self.o.cells:
            self.memory.mark_references()
        return self._flat(operand, self.layout.cell)

    def _cellset(self, effect: p.CellSet) -> list[Apply]:
        cell, values, t = self._cell(effect.cell), self._values(effect.values, ("cell", effect.cell.id)), self.t
        hold, loose = self._hold(effect.values), self._loose(effect.cell)

        def run(s: State) -> None:
            c = cell(s)
            old, bit = s.cells[c]
            vs = values(s)
            if hold is not None:
                hold(s, vs)
            bit = s.tb[t] = s.tb[t] | bit
            s.cells[c] = (vs, bit)
            if old is not None and loose is not None:
                loose(s, old)

        return [run]

    def _cellget(self, effect: p.CellGet) -> list[Apply]:
        cell, t, store, take = self._cell(effect.cell), self.t, self._stores(effect.locals), effect.take
        hold = self.memory.hold if not take and self._loose(effect.cell) is not None else None
        node = self.memory.node

        def run(s: State) -> None:
            c = cell(s)
            vs, bit = s.cells[c]
            bit = s.tb[t] = s.tb[t] | bit
            if vs is None:
                s.hazard = ("EMPTY", node)
                return
            if hold is not None:
                hold(s, vs)
            s.cells[c] = (None if take else vs, bit)
            if store is not None:
                store(s, vs)

        return [forks(run)]

    def _cellclear(self, effect: p.CellClear) -> list[Apply]:
        cell, t, loose = self._cell(effect.cell), self.t, self._loose(effect.cell)

        def run(s: State) -> None:
            c = cell(s)
            vs, bit = s.cells[c]
            bit = s.tb[t] = s.tb[t] | bit
            s.cells[c] = (None, bit)
            if vs is not None and loose is not None:
                loose(s, vs)

        return [run]

    def _take(self, effect: p.Take) -> list[Apply]:
        self.touches.add(("pool", effect.pool))
        self.memory.named.add(POOL)
        return self.memory.take(effect)

    def _give(self, effect: p.Give) -> list[Apply]:
        self.touches.add(("pool", effect.pool))
        self.memory.named.add(POOL)
        after = self._event_read(effect.after) if effect.after is not None else None
        return self.memory.give(effect, after)

    def _acquire(self, effect: p.Acquire) -> list[Apply]:
        k, t, edge = self.layout.lock[effect.lock], self.t, BIT if effect.edge else 0
        lock = self.layout.program.objects[effect.lock]
        assert isinstance(lock, p.Lock)
        # Of a semaphore several may be taken at once: who takes one is ordered behind those who gave, not who took.
        taken = 0 if lock.semaphore or lock.count > 1 else BIT
        self.touches.add(("lock", effect.lock))

        def run(s: State) -> None:
            free, bit = s.locks[k]
            s.tb[t] |= bit & edge
            s.locks[k] = (free - 1, bit | s.tb[t] & taken)

        return [run]

    def _unlock(self, effect: p.Unlock) -> list[Apply]:
        k, t = self.layout.lock[effect.lock], self.t
        self.touches.add(("lock", effect.lock))

        def run(s: State) -> None:
            free, bit = s.locks[k]
            s.locks[k] = (free + 1, bit | s.tb[t])

        return [run]

    def _flagset(self, effect: p.FlagSet) -> list[Apply]:
        return self._flag_store(effect.flag, 1)

    def _flagclear(self, effect: p.FlagClear) -> list[Apply]:
        return self._flag_store(effect.flag, 0)

    def _flag_store(self, flag: int, value: int) -> list[Apply]:
        k, t = self.layout.flag[flag], self.t
        self.touches.add(("flag", flag))

        def run(s: State) -> None:
            _, bit = s.flags[k]
            if not value:
                s.tb[t] |= bit
            s.flags[k] = (value, bit | s.tb[t])

        return [run]

    def _flagwait(self, effect: p.FlagWait) -> list[Apply]:
        k, t, edge = self.layout.flag[effect.flag], self.t, BIT if effect.edge else 0
        self.touches.add(("flag", effect.flag))

        def run(s: State) -> None:
            s.tb[t] |= s.flags[k][1] & edge

        return [run]

    def _counteradd(self, effect: p.CounterAdd) -> list[Apply]:
        k, t, add = self.layout.counter[effect.counter], self.t, self.layout.counter_add
        self.touches.add(("counter", effect.counter))
        amount, counter = effect.amount, effect.counter

        def run(s: State) -> None:
            values, bit = s.counters[k]
            s.counters[k] = (add(counter, values, amount), bit | s.tb[t])

        return [run]

    def _counterwait(self, effect: p.CounterWait) -> list[Apply]:
        k, t, edge = self.layout.counter[effect.counter], self.t, BIT if effect.edge else 0
        self.touches.add(("counter", effect.counter))

        def run(s: State) -> None:
            s.tb[t] |= s.counters[k][1] & edge

        return [run]

    # ------------------------------------------------------------ enabledness

    def _ready(self, operation: p.Operation) -> Ready | None:
        if operation.__class__ not in _WAITING:
            return None
        layout, t = self.layout, self.t
        if type(operation) is p.Put:
            q = layout.queue[operation.queue]
            return lambda s: bool(s.queues[q][1])
        if type(operation) is p.Get:
            q, tag = layout.queue[operation.queue], operation.tag
            return lambda s: bool(s.queues[q][0]) and s.queues[q][0][0][0] == tag
        if type(operation) is p.Acquire:
            k = layout.lock[operation.lock]
            return lambda s: s.locks[k][0] > 0
        if type(operation) is p.FlagWait:
            k = layout.flag[operation.flag]
            return lambda s: s.flags[k][0] == 1
        if type(operation) is p.CounterWait:
            k = layout.counter[operation.counter]
            test = layout.counter_test(operation.counter, operation.value, t if operation.per_turn else None)
            return lambda s: test(s.counters[k][0])
        if type(operation) is p.Take:
            return self.memory.can_take(operation)
        return None

    # ------------------------------------------------------------ questions

    def _question(self, q: p.Question, options: tuple[str, ...]) -> tuple[Ready | None, Answers]:
        t, layout = self.t, self.layout
        if isinstance(q, p.Choose) and q.agreed:
            self.touches.add(("agreed", q.name))
            return None, layout.agreed_answers(q.name, t, options)
        if type(q) is p.Choose or type(q) is p.Maybe:
            *others, last = options
            return None, lambda s: [*[(o, s.copy()) for o in others], (last, s)]
        if type(q) is p.TurnBelow:
            value = q.value
            return None, lambda s: "yes" if s.turns[t] < value else "no"
        if type(q) is p.EventQuery:
            return None, self._event_query(q)
        if type(q) is p.StreamQuery:
            return None, self._stream_query(q)
        if type(q) is p.QueueTag:
            k = layout.queue[q.queue]
            self.touches.add(("get", q.queue))

            def tag(s: State) -> str:
                items, _free, last_get, _every = s.queues[k]
                s.tb[t] |= items[0][1] | last_get
                return str(items[0][0])

            return (lambda s: bool(s.queues[k][0])), tag
        return None, self._state_test(q)

    def _state_test(self, q: p.Question) -> Answers:
        """Tests whose answer follows the state; each has an edge from every earlier operation on the object [T]."""
        t, layout = self.t, self.layout
        if type(q) is p.QueueFull or type(q) is p.QueueHolds:
            k = layout.queue[q.queue]
            self.touches.add(("test", q.queue))
            count = q.count if type(q) is p.QueueHolds else None

            def queue(s: State) -> str:
                items, free, last_get, every = s.queues[k]
                s.tb[t] |= every
                s.queues[k] = (items, free, last_get, every | s.tb[t])
                yes = not free if count is None else len(items) >= count
                return "yes" if yes else "no"

            return queue
        if type(q) is p.CellEmpty:
            cell = self._cell(q.cell)

            def empty(s: State) -> str:
                c = cell(s)
                values, bit = s.cells[c]
                s.tb[t] |= bit
                s.cells[c] = (values, s.tb[t])
                return "yes" if values is None else "no"

            return empty
        if type(q) is p.FlagIsSet:
            k = layout.flag[q.flag]
            self.touches.add(("flag", q.flag))

            def is_set(s: State) -> str:
                value, bit = s.flags[k]
                s.tb[t] |= bit
                s.flags[k] = (value, s.tb[t])
                return "yes" if value else "no"

            return is_set
        if type(q) is p.CounterAtLeast:
            k = layout.counter[q.counter]
            self.touches.add(("counter", q.counter))
            test = layout.counter_test(q.counter, q.value, None)

            def at_least(s: State) -> str:
                values, bit = s.counters[k]
                s.tb[t] |= bit
                s.counters[k] = (values, s.tb[t])
                return "yes" if test(values) else "no"

            return at_least
        assert isinstance(q, p.TryLock)
        k = layout.lock[q.lock]
        self.touches.add(("lock", q.lock))

        def try_lock(s: State) -> str:
            free, bit = s.locks[k]
            s.tb[t] |= bit
            s.locks[k] = (free - 1 if free else free, s.tb[t])
            return "yes" if free else "no"

        return try_lock

    def _event_query(self, q: p.EventQuery) -> Answers:
        read, write, t = self._event_read(q.event), self._event_write(q.event), self.t

        def query(s: State) -> list[tuple[str, State]]:
            flags = read(s)
            result = []
            if flags & RECORDED and not flags & COMPLETE:
                busy = s.copy()
                busy.tb[t] |= bool(flags & CALLED)  # the record call came before [T]
                result.append(("no", busy))
            s.tb[t] |= flags & BIT
            if flags & RECORDED:
                write(s, flags | COMPLETE)
            result.append(("yes", s))
            return result

        return query

    def _stream_query(self, q: p.StreamQuery) -> Answers:
        stream, t = self._slot(q.stream), self.t

        # A free records an event on each noted stream (S65): in a shared queue an item that may have to wait. Which blocks
        # are freed when is kept for one of them only, so such a stream may always say no.
        noted = self.layout.one_queue and q.stream.id in self.o.noted

        def query(s: State) -> list[tuple[str, State]]:
            i = stream(s)
            result = []
            if s.calls[i] & PENDING or noted:
                busy = s.copy()
                busy.tb[t] |= busy.calls[i] & BIT  # the calls came before [T]
                result.append(("no", busy))
            s.tb[t] |= s.streams[i]
            s.calls[i] &= ~PENDING
            return [*result, ("yes", s)]

        return query

    # ------------------------------------------------------------ operands

    def _index(self, index: p.Index, depth: int) -> Callable[[State], int]:
        return self.layout.index(self.t, index, depth)

    def _flat(self, operand: p.Operand, base: dict[int, int]) -> Callable[[State], int]:
        assert not isinstance(operand, p.Local)
        start = base[operand.id]
        if isinstance(operand, p.Obj):
            return lambda s: start
        index = self._index(operand.index, self.layout.depth(operand.id))
        return lambda s: start + index(s)

    def _stream(self, operand: p.Operand) -> Callable[[State], int]:
        assert not isinstance(operand, p.Local)
        self.touches.add(("stream", self.layout.shared_stream(operand.id)))
        if self.o.environment.one_queue:
            only = self.layout.queue_of(operand.id)
            return lambda s: only
        return self._flat(operand, self.layout.stream)

    def _slot(self, operand: p.Operand) -> Callable[[State], int]:
        """The stream itself, also where its items are in a shared queue."""
        assert not isinstance(operand, p.Local)
        self.touches.add(("stream", self.layout.shared_stream(operand.id)))
        return self._flat(operand, self.layout.stream)

    def _streams(self, operand: p.Operand) -> list[int]:
        """Every stream that the operand may be."""
        assert not isinstance(operand, p.Local)
        if self.o.environment.one_queue:
            return [self.layout.queue_of(operand.id)]
        start = self.layout.stream[operand.id]
        return list(range(start, start + self.layout.depth(operand.id)))

    def _only(self, operand: p.Operand) -> int | None:
        """The one stream that the operand is always; None if it may be several."""
        streams = self._streams(operand)
        return streams[0] if len(streams) == 1 else None

    def _event_read(self, operand: p.Operand) -> Callable[[State], int]:
        if type(operand) is p.Local:
            t, i = self.t, operand.id
            self.touches |= self.layout.travelling_events

            def read(s: State) -> int:
                value = s.locals[t][i]
                return s.events[value[1]] if isinstance(value, tuple) else int(value)

            return read
        self.touches.add(("event", operand.id))
        flat = self._flat(operand, self.layout.event)
        return lambda s: s.events[flat(s)]

    def _event_write(self, operand: p.Operand) -> Callable[[State, int], None]:
        if type(operand) is p.Local:
            t, i = self.t, operand.id
            self.touches |= self.layout.travelling_events

            def write(s: State, flags: int) -> None:
                values = s.locals[t]
                old = values[i]
                if isinstance(old, tuple):
                    s.events[old[1]] = flags
                elif old is not flags:
                    s.locals[t] = (*values[:i], flags, *values[i + 1 :])

            return write
        self.touches.add(("event", operand.id))
        flat = self._flat(operand, self.layout.event)

        def store(s: State, flags: int) -> None:
            s.events[flat(s)] = flags

        return store
