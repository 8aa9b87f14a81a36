"""Operands for the machine: each compiles once to a function of the host thread that gives the thing it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.model import program as p
from fencepost.model.operations.meetings import open_channels
from fencepost.simulator.machine_memory import Buffer
from fencepost.simulator.machine_state import DesignFault, EventState, HostThread, Place, Ref, Stream

Get = Callable[[HostThread], Any]


class Operands:
    """What the program's objects are in the machine, and how operands find them."""

    program: p.Program
    streams: dict[tuple[int, int], Stream]
    cursors: dict[int, int]
    chooser: Any
    recorder: Any

    def _make_objects(self) -> None:
        self.buffers: list[Buffer] = []
        self.memory: dict[tuple[int, int], Ref] = {}
        self.tokens: dict[int, list[Any]] = {}
        self.events: dict[tuple[int, int], EventState] = {}
        self.places: dict[int, Place] = {}
        self.open_channels = open_channels(self.program)
        for id_, found in enumerate(self.program.objects):
            depth = getattr(found, "depth", None)
            if isinstance(found, p.Memory):
                for slot in range(depth or 1):
                    name = found.name if depth is None else f"{found.name}[{slot}]"
                    self.memory[(id_, slot)] = self._known(name, found.space)
            elif isinstance(found, p.Event):
                for slot in range(depth or 1):
                    self.events[(id_, slot)] = EventState()
            elif isinstance(found, (p.Channel, p.DeviceFlag)):
                self.places[id_] = Place(found.name, getattr(found, "capacity", None))
            elif isinstance(found, p.Pool):
                rows = found.of == "row"
                self.tokens[id_] = [k if rows else self._known(f"{found.name}:{k}", found.of) for k in range(found.size)]

    def _known(self, name: str, space: str) -> Ref:
        """Memory made outside the bodies: it starts with known content."""
        initial = -1 - len(self.buffers)
        buffer, shadow = Buffer(name, initial), Buffer(name, initial)
        self.buffers += [buffer, shadow]
        return Ref(buffer, shadow, name, space)

    # ------------------------------------------------------------ operands

    def index(self, thread: p.Thread, index: p.Index) -> Get:
        """An index: a function that gives the number (not yet taken modulo a ring's depth, but for cursors)."""
        offset = index.offset if not isinstance(index, p.Fixed) else index.slot
        if isinstance(index, p.Turn):
            return lambda th: th.turn + offset
        if isinstance(index, p.Fixed):
            return lambda th: offset
        if isinstance(index, p.Last):
            id_ = index.cursor
            cursor = self.program.objects[id_]
            assert isinstance(cursor, p.Cursor)
            around = cursor.depth
            return lambda th: (self.cursors[id_] + offset) % around
        local, info = index.local, thread.locals[index.local]
        depth = info.depth

        def var(th: HostThread) -> int:
            value = th.locals[local]
            if not isinstance(value, int):
                raise DesignFault(f"{info.name!r} holds no index or handle here")
            return (value + offset) % depth if depth else value + offset

        return var

    def _slots(self, thread: p.Thread, operand: p.Operand, table: dict[tuple[int, int], Any]) -> Get:
        """One slot of an object, of `table`."""
        assert not isinstance(operand, p.Local)
        if isinstance(operand, p.Obj):
            found = table[(operand.id, 0)]
            return lambda th: found
        id_ = operand.id
        depth = getattr(self.program.objects[id_], "depth", None) or 1
        slots = [table[(id_, k)] for k in range(depth)]
        index = self.index(thread, operand.index)
        return lambda th: slots[index(th) % depth]

    def _local(self, thread: p.Thread, local: int) -> Get:
        name = thread.locals[local].name

        def get(th: HostThread) -> Any:
            value = th.locals[local]
            if value is None:
                raise DesignFault(f"{name!r} is used before it has a value or after its release")
            return value

        return get

    def reference(self, thread: p.Thread, operand: p.Operand) -> Get:
        """An operand that names memory."""
        base = self._local(thread, operand.id) if isinstance(operand, p.Local) else self._slots(thread, operand, self.memory)
        part = operand.part
        if part is None:
            return base
        if isinstance(part, p.Anything):
            return lambda th: self._unknown(th, base(th))
        if isinstance(part, p.At):
            index = self.index(thread, part.index)
            return lambda th: base(th).at(("r", index(th)))
        piece = ("n", part.name) if isinstance(part, p.Named) else ("s", (part.start, part.stop))
        if isinstance(operand, p.Obj):
            fixed = base(None).at(piece)  # type: ignore[arg-type]
            return lambda th: fixed
        return lambda th: base(th).at(piece)

    def _unknown(self, thread: HostThread, base: Ref) -> Ref:
        """`fp.ANY`: which part it is, is decided at the call."""
        which: int = self.chooser.part(thread, thread.node.index)
        self.recorder.parts.append(which)
        return base.at(("a", which)) if which else base

    def event(self, thread: p.Thread, operand: p.Operand) -> Get:
        """An operand that names an event."""
        return self._local(thread, operand.id) if isinstance(operand, p.Local) else self._slots(thread, operand, self.events)

    def stream(self, thread: p.Thread, operand: p.Operand) -> Get:
        """An operand that names a stream."""
        return self._slots(thread, operand, self.streams)

    def value(self, thread: p.Thread, operand: p.Operand | p.Index) -> Get:
        """What is put into a queue or cell."""
        if isinstance(operand, (p.Turn, p.Var, p.Last, p.Fixed)):
            return self.index(thread, operand)
        if not isinstance(operand, p.Local) and isinstance(self.program.objects[operand.id], p.Event):
            return self.event(thread, operand)
        return self.reference(thread, operand)
