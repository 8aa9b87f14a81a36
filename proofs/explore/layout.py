"""Where everything sits in a `State`, and the normal form that makes states comparable.

Slots of all rings of one depth are renamed together (a rotation is a symmetry of the design, because indices are only
`turn + c` or `cursor + c`): after the witness touched a ring slot, that slot is 0; otherwise the reference index is 0.
A `Fixed` slot breaks the symmetry: that depth is then not rotated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from operator import getitem
from typing import Any

from fencepost.model import program as p
from fencepost.model.operations.meetings import open_channels
from fencepost.model.platform import Environment
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.parts import narrowed
from fencepost.proofs.explore.state import BIT, CALLED, COMPLETE, PENDING, ROOT, State, Unsupported

DONE = -2
"""pc of a finished script."""

MEMO = 8192
"""Entries that a memo of queue contents keeps before it starts afresh: many states hold few different queues."""


_LEAVES = frozenset((str, int, bool, float, type(None)))
_LEAF_FIELDS = frozenset(("str", "int", "bool", "float | None", "int | None", "str | None"))
"""Annotations of fields that hold no data."""
_fields: dict[type, tuple[str, ...]] = {}
"""The fields of each class that may hold data, the last first."""


def walk(value: Any) -> list[Any]:
    """Every data node below `value`, itself included, in the order of the text."""
    result: list[Any] = []
    todo = [value]
    while todo:
        one = todo.pop()
        if one.__class__ is tuple:
            todo += one[::-1]
            continue
        names = _fields.get(one.__class__)
        if names is None and isinstance(one, p.Data):
            types: dict[str, Any] = {}
            for base in one.__class__.__mro__:
                types.update(getattr(base, "__annotations__", {}))
            names = tuple(name for name in one.__struct_fields__[::-1] if types.get(name) not in _LEAF_FIELDS)
            _fields[one.__class__] = names
        if names is not None:
            result.append(one)
            todo += [below for name in names if (below := getattr(one, name)).__class__ not in _LEAVES]
    return result


def _recorded_elsewhere(thread: p.Thread) -> bool:
    """Whether the thread records an event that it received, or one of its own after it handed it over.

    Otherwise a handle is never re-recorded behind a holder's back and may be replaced by its bit (theory: handles).
    """
    steps = [node for node in thread.nodes if type(node) is p.Do]
    recorded = {o.event.id for node in steps if isinstance(o := node.operation, p.Record) and type(o.event) is p.Local}
    if not recorded:
        return False
    if any((type(node.operation) is p.Get or type(node.operation) is p.CellGet) and not recorded.isdisjoint(node.operation.locals) for node in steps):
        return True
    for node in steps:
        if type(node.operation) is p.Put or type(node.operation) is p.CellSet:
            handed = {v.id for v in node.operation.values if type(v) is p.Local} & recorded
            if not handed:
                continue
            todo, seen = [node.next], set()
            while todo:
                at = todo.pop()
                if at < 0 or at in seen:
                    continue
                seen.add(at)
                after = thread.nodes[at]
                if isinstance(after, p.Do):
                    if type(after.operation) is p.Record and type(after.operation.event) is p.Local and after.operation.event.id in handed:  # fmt: skip
                        return True
                    todo.append(after.next)
                else:
                    todo += [n for _, n in after.branches]
    return False


class Content:
    """The control part of one object's content. Equal contents are one `Content`, so comparing and hashing cost nothing."""

    __slots__ = ("text", "values")

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self.text = ""

    def __repr__(self) -> str:
        self.text = self.text or repr(self.values)  # of a set's digest: few contents stand in many states
        return self.text


Entry = tuple["Content | None", int, int]
"""What a state's key says of one content: (control, bits, number of bits)."""


class Memo(dict[Any, Entry]):
    """Remembered entries; `make` finds those that are missing. It starts afresh when it is full."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Any], Entry]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, value: Any) -> Entry:
        if len(self) >= MEMO:
            self.clear()
        entry = self[value] = self.make(value)
        return entry


class Contents:
    """What keys say of the contents of locals, queues and cells. It knows nothing of the layout, which remembers the entries."""

    def __init__(self, event_items: dict[tuple[int, str], list[bool]]) -> None:
        self._event_items = event_items
        self._known: dict[tuple[Any, ...], Content] = {}
        self._items: dict[tuple[int, Any], tuple[Any, int, int]] = {}

    def queue(self, oid: int, queue: tuple[Any, ...]) -> Entry:
        """Of a queue's content, whose length thus costs once per content."""
        items, free, last_get, every = queue
        bits, width = last_get << 1 | every, 2 + len(free)
        for b in free:
            bits = bits << 1 | b
        control = []
        for item in items:
            one, value, more = self._items.get((oid, item)) or self._item(oid, item)
            control.append(one)
            bits = bits << more | value
            width += more
        return self._content(control), bits, width

    def _item(self, oid: int, item: tuple[str, int, tuple[Any, ...]]) -> tuple[Any, int, int]:
        tag, b, values = item
        control: list[Any] = [tag]
        bits = _values_key(values, self._event_items[oid, tag], control, 2 | b)
        if len(self._items) >= MEMO:
            self._items.clear()
        width = bits.bit_length() - 1  # the leading one only keeps the zeros behind it
        result = self._items[oid, item] = (tuple(control), bits ^ 1 << width, width)
        return result

    def row(self, events: list[bool], values: tuple[Any, ...], bits: int = 1) -> Entry:
        """Of one tuple of values, of which some are `events`."""
        control: list[Any] = []
        bits = _values_key(values, events, control, bits)
        width = bits.bit_length() - 1
        return self._content(control), bits ^ 1 << width, width

    def cell(self, events: list[bool], cell: tuple[tuple[Any, ...] | None, int]) -> Entry:
        """Of one slot of a cell."""
        values, b = cell
        return (None, b, 1) if values is None else self.row(events, values, 2 | b)

    def _content(self, control: list[Any]) -> Content:
        values = tuple(control)
        known = self._known.get(values)
        if known is None:
            known = self._known[values] = Content(values)
        return known


def _values_key(values: tuple[Any, ...], events: list[bool], control: list[Any], bits: int) -> int:
    for v, event in zip(values, events, strict=True):
        if event and not isinstance(v, tuple):
            bits = bits << 1 | (v & BIT)
            control.append(v & ~BIT)
        else:
            control.append(v)
    return bits


class Layout:
    """Numbering of the program's objects, index variables and value kinds."""

    def __init__(self, program: p.Program, environment: Environment) -> None:
        self.program = program
        self.one_queue = environment.one_queue
        self.raw_pointers = any(
            type(n) is p.Do and type(n.operation) is p.View and not n.operation.held
            for thread in program.threads
            for n in thread.nodes
        )
        self.stream: dict[int, int] = {}
        self.event: dict[int, int] = {}
        self.cell: dict[int, int] = {}
        self.queue: dict[int, int] = {}
        self.lock: dict[int, int] = {}
        self.flag: dict[int, int] = {}
        self.counter: dict[int, int] = {}
        self.pool: dict[int, int] = {}
        self.channel: dict[int, int] = {}
        self.word: dict[int, int] = {}
        self.stream_owner: list[int] = []
        self._rings: dict[str, list[tuple[int, int, int]]] = {"stream": [], "event": [], "cell": []}
        sizes = {"stream": 0, "event": 0, "cell": 0}
        streams: list[p.Stream] = []
        flat = {p.Stream: ("stream", self.stream), p.Event: ("event", self.event), p.Cell: ("cell", self.cell)}
        single: dict[type, dict[int, int]] = {
            p.Queue: self.queue, p.Lock: self.lock, p.Flag: self.flag, p.Counter: self.counter, p.Pool: self.pool,
            p.Channel: self.channel, p.DeviceFlag: self.word,
        }  # fmt: skip
        for i, o in enumerate(program.objects):
            if isinstance(o, (p.Stream, p.Event, p.Cell)):
                kind, table = flat[o.__class__]
                depth = o.depth or 1
                table[i] = sizes[kind]
                if depth > 1:
                    self._rings[kind].append((sizes[kind], depth, i))
                sizes[kind] += depth
                if type(o) is p.Stream:
                    self.stream_owner += [i] * depth
                    streams.append(o)
            elif o.__class__ in single:
                table = single[o.__class__]
                table[i] = len(table)
        self.sizes = sizes
        self.slots = sizes["stream"]
        """Slots of all streams. With one hardware queue the queues are numbered behind them: there the items are, and what
        is kept of a slot speaks of the stream's own last item (S116)."""
        self.queue_number: dict[tuple[int, str], int] = {}
        if self.one_queue:
            for one in streams:
                home = (one.gpu, one.process)
                if home not in self.queue_number:
                    self.queue_number[home] = sizes["stream"]
                    sizes["stream"] += 1
                    self.stream_owner.append(next(i for i, o in enumerate(program.objects) if o is one))
        self.carriers = [self.queue_of(oid) for oid in self.stream_owner] if self.one_queue else list(range(self.slots))
        """Where the items of each of these are: with one hardware queue its queue, else itself."""
        self._data: dict[type, list[tuple[int, Any]]] = {}
        """All data nodes of the threads by class, each with its thread."""
        for t, thread in enumerate(program.threads):
            for n in walk(thread.nodes):
                self._data.setdefault(n.__class__, []).append((t, n))
        self.has_same_bytes = any(n.same_bytes for _, n in self.data(p.Access, p.Copy))
        self.has_last = p.Last in self._data
        self._variables()
        self.fixed = {self.depth(n.id) for _, n in self.data(p.Slot) if type(n.index) is p.Fixed}
        self.meets = bool(self.channel or self.word)
        """Whether streams meet: then work may be pending."""
        if self.meets:
            # A step of the device names its stream, so the slots of such a ring keep their numbers.
            opened = open_channels(program)
            self.fixed |= {
                self.depth(n.stream.id) for _, n in self.data(p.Signal, p.Await, p.StoreFlag, p.WaitFlag)
                if n.stream is not None and ((type(n) is p.StoreFlag or type(n) is p.WaitFlag) or n.channel in opened)
            }  # fmt: skip
        self.turn_cap = [0] * len(program.threads)
        for t, n in self.data(p.TurnBelow):
            self.turn_cap[t] = max(self.turn_cap[t], n.value)
        self._counters()
        self._agreed()
        self.travelling_events: set[tuple[str, int | str]] = {
            ("event", v.id)
            for _, n in self.data(p.Put, p.CellSet)
            for v in n.values
            if (type(v) is p.Obj or type(v) is p.Slot) and isinstance(program.objects[v.id], p.Event)
        }
        self.narrowed = narrowed(program)
        self.heap_events = any(_recorded_elsewhere(thread) for thread in program.threads)
        if self.heap_events:
            self.travelling_events.add(("event", "made in a body"))
        self._fields()
        self.turns = bool(self.depths) or self.heap_events
        """Whether anything may have to be renamed to get a state's normal form."""

    def data(self, *classes: type) -> list[tuple[int, Any]]:
        """(thread, node) of all data nodes of these classes."""
        return [one for cls in classes for one in self._data.get(cls, ())]

    # ------------------------------------------------------------ index variables

    def _variables(self) -> None:
        self.var_depth: list[int] = []
        self._turn_var: dict[tuple[int, int], int] = {}
        self._cursor_var: dict[int, int] = {}
        for i, o in enumerate(self.program.objects):
            if type(o) is p.Cursor:
                self._cursor_var[i] = len(self.var_depth)
                self.var_depth.append(o.depth)
        for t, n in self.data(p.Slot):
            if type(n.index) is p.Turn:
                self.turn_var(t, self.depth(n.id))

    def depth(self, oid: int) -> int:
        """Slots of a ring; 1 for an object that exists once."""
        return getattr(self.program.objects[oid], "depth", None) or 1

    def turn_var(self, t: int, depth: int) -> int:
        """Position variable of thread `t`'s turn modulo `depth`."""
        key = (t, depth)
        if key not in self._turn_var:
            self._turn_var[key] = len(self.var_depth)
            self.var_depth.append(depth)
        return self._turn_var[key]

    def cursor_var(self, cursor: int) -> int:
        """Position variable of a cursor."""
        return self._cursor_var[cursor]

    def turn_vars(self, t: int) -> list[tuple[int, int]]:
        """(variable, depth) of thread `t`'s turn, of those that are kept."""
        return [(v, d) for (u, d), v in self._turn_var.items() if u == t and v in self._moving]

    def keeping(self, kept: frozenset[Any]) -> Layout:
        """The same numbering for a search that keeps only these positions (positions.py); all others stand still."""
        other = copy.copy(self)
        other._moving = {v for (t, d), v in self._turn_var.items() if ("turn", t, d) in kept}
        other._moving |= {v for cursor, v in self._cursor_var.items() if ("cursor", cursor, 0) in kept}
        other._index_locals = [
            tuple((i, depth) for i, depth in fields if ("local", t, i) in kept) for t, fields in enumerate(self._index_locals)
        ]
        other._item_depth = {
            key: tuple(
                depth if (("queue", *key, k) if key[0] in self.queue else ("cell", key[0], k)) in kept else None
                for k, depth in enumerate(depths)
            )
            for key, depths in self._item_depth.items()
        }  # fmt: skip
        other._turned = {}
        other._positions()
        return other

    def _positions(self) -> None:
        """What follows from the positions that are kept."""
        self._reference_var = {d: v for v, d in reversed(list(enumerate(self.var_depth))) if v in self._moving}
        self._turns = [self.turn_vars(t) for t in range(len(self.program.threads))]

    def index(self, t: int, index: p.Index, depth: int) -> Callable[[State], int]:
        """Slot number that `index` denotes in a ring of `depth`, when thread `t` evaluates it."""
        if isinstance(index, p.Fixed):
            slot = index.slot
            return lambda s: slot
        offset = index.offset
        if isinstance(index, p.Var):
            local = index.local
            if self.by_handle(t, index):
                raise Unsupported("a pool's handle chooses a slot of a ring; give the pool of=\"row\" a buffer with parts")
            return lambda s: (int(s.locals[t][local]) + offset) % depth
        var = self.turn_var(t, depth) if isinstance(index, p.Turn) else self.cursor_var(index.cursor)
        return lambda s: (s.pos[var] + offset) % depth

    def by_handle(self, t: int, index: p.Index) -> bool:
        """Whether a pool's handle is the index: tokens are guessed, not numbered."""
        return type(index) is p.Var and self.program.threads[t].locals[index.local].kind == p.HANDLE

    def index_depth(self, t: int, index: p.Index) -> int:
        """Depth of the rings that an index value is for."""
        if type(index) is p.Var:
            return self.program.threads[t].locals[index.local].depth or 1
        if type(index) is p.Last:
            return self.depth(index.cursor)
        return 1

    # ------------------------------------------------------------ streams

    def device_streams(self, gpu: int, process: str) -> list[int]:
        """Flat indices of the streams of one GPU and process, or of the one queue that they share."""
        result = []
        for flat, oid in enumerate(self.stream_owner):
            o = self.program.objects[oid]
            assert isinstance(o, p.Stream)
            if o.gpu == gpu and o.process == process:
                result.append(self.queue_of(oid) if self.one_queue else flat)
        return sorted(set(result))

    def queue_of(self, oid: int) -> int:
        """The one hardware queue that a stream maps to (environment one-hardware-queue)."""
        o = self.program.objects[oid]
        assert isinstance(o, p.Stream)
        return self.queue_number[o.gpu, o.process]

    def own_slots(self, queue: int) -> list[int]:
        """The slots of all streams that share a hardware queue."""
        return [k for k in range(self.slots) if self.carriers[k] == queue]

    def shared_stream(self, oid: int) -> int:
        """What two threads share when they use stream `oid`."""
        return self.queue_of(oid) if self.one_queue else oid

    # ------------------------------------------------------------ counters, agreed choices

    def _counters(self) -> None:
        self._slots: dict[int, list[int | None]] = {i: [] for i in self.counter}
        self._cap: dict[int, int] = dict.fromkeys(self.counter, 0)
        for t, n in self.data(p.CounterWait, p.CounterAtLeast):
            who = t if type(n) is p.CounterWait and n.per_turn else None
            if who not in self._slots[n.counter]:
                self._slots[n.counter].append(who)
            if who is None:
                self._cap[n.counter] = max(self._cap[n.counter], n.value)

    def counter_add(self, counter: int, values: tuple[int | None, ...], amount: int) -> tuple[int | None, ...]:
        """Add; absolute values stop at the largest constant that a test compares with, None is no longer asked for."""
        cap = self._cap[counter]
        return tuple(None if v is None else v + amount if who is not None else min(v + amount, cap) for v, who in zip(values, self._slots[counter], strict=True))  # fmt: skip

    def counter_test(self, counter: int, value: int, thread: int | None) -> Callable[[tuple[int, ...]], bool]:
        """Whether the counter reached `value` (plus the turn of `thread`, whose turns are subtracted as they pass)."""
        k = self._slots[counter].index(thread)
        return lambda values: values[k] >= value

    def _agreed(self) -> None:
        askers: dict[str, list[int]] = {}
        for t, n in self.data(p.Choose):
            if n.agreed and t not in askers.setdefault(n.name, []):
                askers[n.name].append(t)
        self.askers = list(askers.items())

    def agreed_answers(self, name: str, t: int, options: tuple[str, ...]) -> Callable[[State], list[tuple[str, State]]]:
        """Turn k of every asking thread gets one answer: decided by the first to ask, remembered for the others."""
        k = [n for n, _ in self.askers].index(name)
        me = self.askers[k][1].index(t)

        def answers(s: State) -> list[tuple[str, State]]:
            offsets, log = s.agreed[k]
            known = dict(log)
            if offsets[me] in known:
                return [(known[offsets[me]], s)]
            result = []
            for option in options:
                n = s.copy()
                n.agreed[k] = (offsets, tuple(sorted({**known, offsets[me]: option}.items())))
                result.append((option, n))
            return result

        return answers

    def end_turn(self, s: State, t: int, pc: int) -> None:
        """The thread's turn is over: positions move on, locals die, the thread goes on at `pc`."""
        s.pc[t] = pc
        if s.turns[t] < self.turn_cap[t]:
            s.turns = [*s.turns[:t], s.turns[t] + 1, *s.turns[t + 1 :]]
        for var, depth in self._turns[t]:
            s.pos[var] = (s.pos[var] + 1) % depth
        s.locals[t] = self._blank[t]
        for i, k in self.counter.items():
            slots = self._slots[i]
            if t in slots:
                values, bit = s.counters[k]
                s.counters[k] = (tuple(v if who != t else None if pc == DONE else v - 1 for v, who in zip(values, slots, strict=True)), bit)
        for k, (_, askers) in enumerate(self.askers):
            if t in askers:
                offsets, log = s.agreed[k]
                moved = [o + (a == t) for o, a in zip(offsets, askers, strict=True)]
                # A loop may leave a script's only turn behind for ever: that turn is -1 then. Who ended asks no more.
                loops = [o for o, a in zip(moved, askers, strict=True) if self.program.threads[a].kind == "loop"]
                live = {o for o, a in zip(moved, askers, strict=True) if s.pc[a] != DONE}
                base = min(loops or live, default=0)
                offsets = tuple(0 if s.pc[a] == DONE else max(o - base, -1) for o, a in zip(moved, askers, strict=True))
                s.agreed[k] = (offsets, tuple((max(i - base, -1), a) for i, a in log if i >= base or i in live))

    # ------------------------------------------------------------ references and value kinds

    def reference(self, oid: int, slot: int | None) -> Any:
        """The value of a reference to an object that lives for ever, as locals and items hold it."""
        o = self.program.objects[oid]
        if type(o) is p.Event:
            return ("E", self.event[oid] + (slot or 0))
        return ("M", oid, slot if self.depth(oid) > 1 else None)

    def _fields(self) -> None:
        """Depth of every INDEX field of queue items and cells, from what is stored there."""
        self._blank = [tuple(0 for _ in t.locals) for t in self.program.threads]
        self._index_locals = [
            tuple((i, info.depth) for i, info in enumerate(t.locals) if info.kind == p.INDEX and info.depth)
            for t in self.program.threads
        ]
        self._item_depth: dict[tuple[int, str], tuple[int | None, ...]] = {}
        for t, n in self.data(p.Put, p.CellSet):
            key = (n.queue, n.tag) if type(n) is p.Put else (n.cell.id, "")
            self._item_depth[key] = tuple(
                self.index_depth(t, v) if isinstance(v, (p.Turn, p.Var, p.Last, p.Fixed))
                else self.program.threads[t].locals[v.id].depth if type(v) is p.Local and self.program.threads[t].locals[v.id].kind == p.INDEX
                else None
                for v in n.values
            )  # fmt: skip
        self._event_ring = {start + k: (start, depth) for start, depth, _ in self._rings["event"] for k in range(depth)}
        self._stream_ring = {start + k: (start, depth) for start, depth, _ in self._rings["stream"] for k in range(depth)}
        depths = {d for rings in self._rings.values() for _, d, _ in rings} | set(self.var_depth)
        depths |= {self.depth(i) for i, o in enumerate(self.program.objects) if isinstance(o, p.Memory)}
        self.depths = sorted(d for d in depths if d > 1 and d not in self.fixed)
        self._moving = set(range(len(self.var_depth)))
        """The position variables that are kept."""
        self._positions()
        self.event_items: dict[tuple[int, str], list[bool]] = {}
        """By queue and tag, and by cell and "", which fields are events."""
        self._turning: dict[int, bool] = {}
        """Whether a queue's items may hold anything that a rotation renames."""
        for i in (*self.queue, *self.cell):
            o = self.program.objects[i]
            items = o.items if type(o) is p.Queue else (("", o.item),)  # type: ignore[union-attr]
            for tag, kinds in items:
                self.event_items[i, tag] = [kind == p.EVENT for kind in kinds]
            self._turning[i] = bool(self.travelling_events) or any(k != p.EVENT for _, kinds in items for k in kinds)
        self.event_locals = [[info.kind == p.EVENT for info in t.locals] for t in self.program.threads]
        """For each thread which of its locals are events."""
        contents = Contents(self.event_items)
        self._entries = [Memo(partial(contents.row, events)) for events in self.event_locals]
        """Of each thread's locals, each queue and each slot of each cell what a key says of it."""
        self._entries += [Memo(partial(contents.queue, i)) for i in self.queue]
        for i in self.cell:
            self._entries += [Memo(partial(contents.cell, self.event_items[i, ""]))] * self.depth(i)
        self._contents: dict[tuple[Any, ...], tuple[list[Content | None], int, int]] = {}
        """Of all of them together: states that differ in what is beside them are many."""
        # Of a shared queue, too, has to be known which waits are items: those for an event that was recorded.
        self.queries = bool(self.data(p.EventQuery, p.StreamQuery)) or self.one_queue
        self._rare = any(self.turn_cap) or bool(self.pool) or bool(self.askers)
        self._pairs = bool(self.lock) or bool(self.flag) or bool(self.counter)
        self._flat_bits: dict[tuple[int, ...], int] = {}
        self._split_flags: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...], int, int]] = {}
        """Remembered bits of threads, streams and events."""
        self._turned: dict[Any, tuple[Any, ...]] = {}

    # ------------------------------------------------------------ start and normal form

    def start(self, location: Location | None) -> State:
        """The state before the first step, with nothing guessed."""
        program = self.program
        s = State.__new__(State)
        s.pc = [t.entry for t in program.threads]
        s.tb = [0] * len(program.threads)
        s.turns = [0] * len(program.threads)
        s.pos = [0] * len(self.var_depth)
        for var in self._cursor_var.values():
            s.pos[var] = self.var_depth[var] - 1
        s.locals = list(self._blank)
        s.events = [0] * self.sizes["event"]
        s.streams = [0] * self.sizes["stream"]
        s.calls = [0] * self.sizes["stream"]
        s.cells = [(None, 0)] * self.sizes["cell"]
        s.queues = [((), (0,) * program.objects[i].capacity, 0, 0) for i in self.queue]  # type: ignore[union-attr,operator]
        s.locks = [(program.objects[i].count, 0) for i in self.lock]  # type: ignore[union-attr]
        s.flags = [(0, 0) for _ in self.flag]
        s.counters = [((0,) * len(self._slots[i]), 0) for i in self.counter]
        s.pools = []
        for i in self.pool:
            o = program.objects[i]
            assert isinstance(o, p.Pool)
            tracked = location is not None and (
                (location.kind == "pool" and location.id == i) or location.atom == ("token", i)
            )
            s.pools.append((o.size - 1, 0, 0) if tracked else (o.size, 0, 2))
        s.agreed = [((0,) * len(askers), ()) for _, askers in self.askers]
        s.block = (0, 0, (), 1, None) if location is not None and location.kind == "block" else None
        s.witness = s.slot = s.hazard = s.meet = s.edges = None
        s.trail = ROOT
        return s

    def location_depth(self, location: Location | None) -> int:
        """Depth of the ring that the location's slot counts in, 1 if it has none."""
        if location is None or location.kind != "memory" or location.id is None:
            return 1
        if location.atom and location.atom[0] == "index":
            return int(location.atom[1])
        return self.depth(location.id)

    def normalise(self, s: State, ring: int) -> None:
        """Rotate every group of rings to its reference; `ring` is the `location_depth` of what is explored."""
        for d in self.depths:
            if d == ring and s.slot is not None and s.slot >= 0:
                shift = s.slot
                s.slot = 0
            elif d in self._reference_var:
                shift = s.pos[self._reference_var[d]]
            else:
                continue
            if shift:
                self._rotate(s, d, shift)
                if s.meet is not None:
                    s.meet.rotate(self._rings["stream"], d, shift, d == ring)

        if self.heap_events:
            self._renumber(s)

    def _renumber(self, s: State) -> None:
        """Events made in bodies are known by who holds them: number them in that order, forget those nobody holds."""
        fixed = self.sizes["event"]
        names: dict[int, int] = {}

        def value(v: Any) -> Any:
            if isinstance(v, tuple) and v[0] == "E" and v[1] >= fixed:
                return ("E", names.setdefault(v[1], fixed + len(names)))
            return v

        s.locals = [tuple(map(value, row)) for row in s.locals]
        s.queues = [(tuple((tag, b, tuple(map(value, vs))) for tag, b, vs in q[0]), *q[1:]) for q in s.queues]
        s.cells = [(None if vs is None else tuple(map(value, vs)), b) for vs, b in s.cells]
        s.events = s.events[:fixed] + [s.events[old] for old in names]

    def _rotate(self, s: State, d: int, k: int) -> None:
        for v in self._moving:
            if self.var_depth[v] == d:
                s.pos[v] = (s.pos[v] - k) % d
        rows: tuple[tuple[str, list[Any]], ...] = (
            ("event", s.events), ("stream", s.streams), ("stream", s.calls), ("cell", s.cells),
        )  # fmt: skip
        for kind, row in rows:
            for start, depth, _ in self._rings[kind]:
                if depth == d:
                    part = row[start : start + d]
                    row[start : start + d] = part[k:] + part[:k]
        for t, fields in enumerate(self._index_locals):
            values = s.locals[t]
            if any(depth == d for _, depth in fields):
                values = tuple((v - k) % d if (i, d) in fields else v for i, v in enumerate(values))
            s.locals[t] = tuple(self._turn_value(v, d, k) for v in values)
        for i, q in self.queue.items():
            if self._turning[i]:
                items, *rest = s.queues[q]
                s.queues[q] = (self._turn_items(i, items, d, k), *rest)
        for i, c in self.cell.items():
            for slot in range(self.depth(i)):
                vs, b = s.cells[c + slot]
                if vs is not None:
                    s.cells[c + slot] = (self._turn_item((i, ""), vs, d, k), b)
        if s.block is not None:
            refs, free, uses, defined, owner = s.block
            s.block = (refs, free, tuple(sorted(self._turn_stream(u, d, k) for u in uses)), defined,
                       None if owner is None else self._turn_stream(owner, d, k))  # fmt: skip

    def _turn_items(self, oid: int, items: tuple[Any, ...], d: int, k: int) -> tuple[Any, ...]:
        turned = self._turned.get((oid, d, k, items))
        if turned is None:
            if len(self._turned) >= MEMO:
                self._turned.clear()
            turned = tuple((tag, b, self._turn_item((oid, tag), vs, d, k)) for tag, b, vs in items)
            self._turned[oid, d, k, items] = turned
        return turned

    def _turn_item(self, key: tuple[int, str], values: tuple[Any, ...], d: int, k: int) -> tuple[Any, ...]:
        depths = self._item_depth.get(key, (None,) * len(values))
        return tuple((v - k) % d if depth == d else self._turn_value(v, d, k) for v, depth in zip(values, depths, strict=True))  # fmt: skip

    def _turn_value(self, value: Any, d: int, k: int) -> Any:
        if not isinstance(value, tuple):
            return value
        if value[0] == "E":
            start, depth = self._event_ring.get(value[1], (0, 0))
            return ("E", start + (value[1] - start - k) % d) if depth == d else value
        oid, slot = value[1], value[2]
        return ("M", oid, (slot - k) % d) if slot is not None and self.depth(oid) == d else value

    def _turn_stream(self, flat: int, d: int, k: int) -> int:
        start, depth = self._stream_ring.get(flat, (0, 0))
        return start + (flat - start - k) % d if depth == d else flat

    def _split(self, s: State, merged: bool) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
        """Threads, streams, calls and events: the flags of calls and of events that are control, the bits, how many.

        `merged`: what is known complete or idle, and who a "no" comes after, are bits as well: a state that knows less
        gets every answer that one gets which knows more, and is told no more by it (theory: antichain).
        """
        calls = s.calls if self.queries else ()
        row = [*s.tb, *s.streams, *[b & BIT for b in calls], *[flags & BIT for flags in s.events]]
        bit, known = BIT, BIT
        if merged and self.queries:
            bit, known = BIT | PENDING, BIT | COMPLETE | CALLED
            row += [not b & PENDING for b in calls]
            row += [b for flags in s.events for b in (flags & COMPLETE > 0, flags & CALLED > 0)]
        bits = 0
        for b in row:
            bits = bits << 1 | b
        return tuple([b & ~bit for b in s.calls]), tuple([flags & ~known for flags in s.events]), bits, len(row)

    def _together(self, rows: tuple[Any, ...]) -> tuple[list[Content | None], int, int]:
        """The entries of all locals, queues and cells of a state, their bits, and how many they are."""
        control, bits, width = [], 0, 0
        for one, value, more in map(getitem, self._entries, rows):
            control.append(one)
            bits = bits << more | value
            width += more
        return control, bits, width

    def key(self, s: State, merged: bool = False) -> tuple[Any, int]:
        """(control, bits): states with equal control are ordered by their bits (fewer bits cover more).

        `merged` forgets which access the witness is: a write meets whatever a read meets, so reading is one more bit.
        Where streams meet it also orders states by what is known complete.
        """
        bits = 1
        w: Any = s.witness
        if merged and w is not None:
            bits = 2 | (not w.write)
            w = (w.same_bytes, w.epoch)
        control: list[Any] = [tuple(s.pc), w, s.slot, *s.pos]
        if self._rare:
            control += (*s.turns, *s.pools, *s.agreed)
        if self.meets:
            assert s.meet is not None
            bits = s.meet.key(control, bits)
        if self.queries or self.meets:
            # Some bits stand beside flags that belong to the control.
            covers = merged and self.meets
            mixed = (covers, *s.tb, *s.streams, *s.calls, *s.events)
            split = self._split_flags.get(mixed)
            if split is None:
                if len(self._split_flags) >= MEMO:
                    self._split_flags.clear()
                split = self._split_flags[mixed] = self._split(s, covers)
            control += split[:2]
            bits = bits << split[3] | split[2]
        else:
            flat = (*s.tb, *s.streams, *s.events)
            known = self._flat_bits.get(flat)
            if known is None:
                known = 0
                for b in flat:
                    known = known << 1 | b
                if len(self._flat_bits) >= MEMO:
                    self._flat_bits.clear()
                self._flat_bits[flat] = known
            bits = bits << len(flat) | known
        rows = (*s.locals, *s.queues, *s.cells)
        contents = self._contents.get(rows)
        if contents is None:
            if len(self._contents) >= MEMO:
                self._contents.clear()
            contents = self._contents[rows] = self._together(rows)
        control += contents[0]
        bits = bits << contents[2] | contents[1]
        if self._pairs:
            pairs: tuple[list[tuple[Any, ...]], ...] = (s.locks, s.flags, s.counters)
            for pair in pairs:
                for value, b in pair:
                    bits = bits << 1 | b
                    control.append(value)
        if s.block is not None:
            control.append((s.block[0], *s.block[2:]))
            bits = bits << 1 | s.block[1]
        return tuple(control), bits
