"""What an addition to a program is, and what every offer of one needs: names, places, nodes of one place in the text.

Prices order, they do not measure: what makes nobody wait comes first (keeping a reference, record_stream), then memory,
then waits of streams, then waits of the host, and among equals an event that exists already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from fencepost.model import program as p
from fencepost.model.names import Names
from fencepost.proofs import edits
from fencepost.proofs.explain import describe, name, place
from fencepost.proofs.judge import Judged
from fencepost.proofs.waits.catalogue import operation
from fencepost.proofs.waits.handles import Handles, Node, following, later
from fencepost.proofs.waits.lines import Lines

(
    HOLD, USE, GIVEN, AGAIN, GIVEN_NEW, SLOT, KEPT, FRESH, CHAIN, STREAM, STREAM_NEW, DRAIN, HOST, HOISTED, BOTH, HOST_RING, HOST_NEW, HANDED,
    SYNC,
) = (
    "hold until an existing event", "record_stream", "give back behind an event", "record an event once more",
    "give back behind a new event", "one more slot", "hold for ever", "fresh staging",
    "wait before an event is recorded again", "stream wait", "stream wait on a new event", "drain", "host wait", "host wait in front of a block",
    "host wait on an event recorded once more", "host wait on a new ring of events", "host wait on a new event",
    "hand-over between the hosts", "synchronise a stream",
)  # fmt: skip
"""Families of additions."""

PRICE = {
    HOLD: 2, USE: 3, GIVEN: 4, AGAIN: 5, GIVEN_NEW: 8, SLOT: 10, KEPT: 11, FRESH: 12, CHAIN: 19, STREAM: 20, STREAM_NEW: 24, DRAIN: 28, HOST: 30, HOISTED: 31,
    BOTH: 32, HOST_RING: 33, HOST_NEW: 34, HANDED: 44, SYNC: 60,
}  # fmt: skip


Insert = Callable[[p.Program, int, int, p.Operation], p.Program]


class Change(msgspec.Struct, frozen=True):
    """One addition: `apply` makes the program with it; `text` says what to write, `place` is `file:line` to put it at."""

    family: str
    price: int
    text: str
    place: str
    apply: Callable[[p.Program], p.Program]


class Spot(msgspec.Struct, frozen=True):
    """Where one operation of an addition goes: the place in the text, the nodes that stand there, and what else the line does."""

    place: str
    steps: tuple[tuple[Insert, Node, p.Operation], ...]
    others: tuple[str, ...] = ()


class Offer:
    """Common ground of all offers against one replayed hazard of one program.

    `written`: the design, where the program is one with additions already: these are named as it names them.
    """

    def __init__(self, program: p.Program, judged: Judged, written: p.Program | None = None) -> None:
        self.program = program
        self.written = written or program
        self.judged = judged
        self.handles = Handles(program)
        self.first = judged.found.first
        self.second = judged.found.second
        self.names = {o.name for o in program.objects}
        self.text = Lines(program, self.written)
        self._behind_of: dict[Node, set[int]] = {}

    def _later(self, at: Node) -> set[int]:
        """The nodes that can come after a node in the same turn."""
        found = self._behind_of.get(at)
        if found is None:
            found = self._behind_of[at] = later(self.program.threads[at[0]], at[1])
        return found

    def _name(self, t: int, operand: p.Operand) -> str:
        text = name(self.program, self.program.threads[t], operand)
        if isinstance(operand, p.Slot):
            thread = self.program.threads[t]
            index = operand.index
            if isinstance(index, p.Turn):
                text += "[n]" if not index.offset else f"[n{index.offset:+d}]"
            elif isinstance(index, p.Var):
                text += f"[{self._index(thread, index)}]"
            elif isinstance(index, p.Fixed):
                text += f"[{index.slot}]"
        return text

    def _index(self, thread: p.Thread, index: p.Var) -> str:
        """A position as the text calls it, the second of its name as the first: it is that of the line."""
        return Names(self.program).local(index.local, thread).partition("#")[0]

    def _what(self, at: Node) -> str:
        what = self._described(at)
        return f"{what} of {self.program.threads[at[0]].name}" if self.text.others(at) else what

    def _described(self, at: Node) -> str:
        t, n = at
        return describe(self.written if n < len(self.written.threads[t].nodes) else self.program, at)

    def _stream(self, at: Node) -> p.Operand | None:
        return getattr(operation(self.program, at), "stream", None)

    def _gpu_of(self, stream: p.Operand | None) -> int:
        """The GPU of a stream, 0 where that is not known."""
        thing = self.program.objects[stream.id] if isinstance(stream, (p.Obj, p.Slot)) else None
        return thing.gpu if isinstance(thing, p.Stream) and thing.gpu >= 0 else 0

    def _new(self, stem: str) -> str:
        return next(n for n in (stem, *(f"{stem} {k}" for k in range(2, 99))) if n not in self.names)

    def _on_device(self, at: Node) -> bool:
        return self._stream(at) is not None

    def _block_of(self, at: Node) -> Node | None:
        """The question whose answer leads straight to a node: the block that holds it starts there."""
        t, n = at
        thread = self.program.threads[t]
        for _ in range(len(thread.nodes)):
            into = [i for i, node in enumerate(thread.nodes) if n in following(node)]
            if len(into) != 1:
                return None
            n = into[0]
            node = thread.nodes[n]
            if isinstance(node, p.Ask):
                return (t, n) if isinstance(node.question, (p.Maybe, p.Choose)) else None
        return None

    def _question(self, at: Node) -> str:
        node = self.program.threads[at[0]].nodes[at[1]]
        assert isinstance(node, p.Ask)
        return repr(getattr(node.question, "name", type(node.question).__name__))

    def _alike(self, at: Node) -> list[Node]:
        """The nodes of one place in the text: the body may reach it on several paths."""
        t, n = at
        thread = self.program.threads[t]
        mine = thread.nodes[n]
        if mine.site < 0:
            return [at]
        same = [(t, i) for i, node in enumerate(thread.nodes) if node.site == mine.site and self._same(at, (t, i))]
        return same or [at]

    def _same(self, at: Node, other: Node) -> bool:
        a, b = self._node(at), self._node(other)
        if isinstance(a, p.Do) and isinstance(b, p.Do):
            return type(a.operation) is type(b.operation) and self._described(at) == self._described(other)
        return isinstance(a, p.Ask) and isinstance(b, p.Ask) and a.question == b.question

    def _events(self, at: Node) -> list[p.Operand]:
        """Events that are recorded somewhere and can be named at a node."""
        t, n = at
        seen: list[p.Operand] = []
        for u, thread in enumerate(self.program.threads):
            for i, node in enumerate(thread.nodes):
                if not isinstance(node, p.Do) or not isinstance(node.operation, p.Record):
                    continue
                event = node.operation.event
                if isinstance(event, p.Local):
                    options: list[p.Operand] = [event] if u == t and n in self._later((t, i)) else []
                elif isinstance(event, p.Slot):
                    mine = event if u == t and not isinstance(event.index, p.Var) else None
                    options = [x for x in (mine, p.Slot(event.id, p.Turn())) if x is not None]
                else:
                    options = [event]
                seen += [x for x in options if x not in seen]
        return seen

    def _before(self, at: Node, op: p.Operation, family: str, price: int, text: str) -> Iterator[Change]:
        yield from self._inserting(family, price, text, [(edits.insert_before, at, op)])

    def _behind(self, at: Node, op: p.Operation, family: str, price: int, text: str) -> Iterator[Change]:
        yield from self._inserting(family, price, text, [(edits.insert_after, at, op)])

    def _inserting(
        self, family: str, price: int, text: str, what: list[tuple[Insert, Node, p.Operation]], *new: p.Object
    ) -> Iterator[Change]:
        """Changes that insert operations; `new` are objects that they name. The place is that of the first one.

        `text` ends with the place of the second one, where there is one. A line that is reached from several calls, or several
        times in one, takes the operation wherever it runs; or the calls in question do, where these are told apart.
        """
        number = len(self.program.objects)
        seen: list[list[Spot]] = []
        for ways in ((self._everywhere, self._at_call, self._alone), (self._at_call, self._alone)):
            spots = [next(spot for way in ways if (spot := way(insert, at, op)) is not None) for insert, at, op in what]
            if spots in seen or not all(edits.writable(self.program, t, op) for spot in spots for _, (t, _), op in spot.steps):
                continue
            seen.append(spots)
            steps = list(dict.fromkeys(step for spot in spots for step in spot.steps))

            def apply(program: p.Program, steps: list[tuple[Insert, Node, p.Operation]] = steps) -> p.Program:
                to = len(program.objects)
                for one in new:
                    program, _ = edits.with_object(program, one)
                for insert, at, op in steps:
                    program = insert(program, *at, renumbered(op, number, to) if new else op)
                return program

            told = text if len(spots) == 1 else f"{text} ({spots[1].place})"
            others = tuple(dict.fromkeys(other for spot in spots for other in spot.others))
            yield Change(family, price, told + not_for(others), spots[0].place, apply)

    def _everywhere(self, insert: Insert, at: Node, op: p.Operation) -> Spot | None:
        """The operation on the line, wherever the line runs; None where that means something else there, or nothing."""
        steps: list[tuple[Insert, Node, p.Operation]] = []
        for other in self.text.on_line(at):
            mine = self._there(op, at, other) if self._same(at, other) else None
            if mine is None:
                return None
            steps.append((insert, self._beside_call(insert, other), mine))
        return Spot(place(self.program, at), tuple(dict.fromkeys(steps)))

    def _at_call(self, insert: Insert, at: Node, op: p.Operation) -> Spot | None:
        """The operation beside the call that leads to the line from here alone; None where the line is reached from here alone."""
        before = insert is edits.insert_before
        found = self.text.call(at, before)
        if found is None:
            return None
        where, nodes = found
        steps: list[tuple[Insert, Node, p.Operation]] = []
        for other in nodes:
            mine = self._there(op, at, other)
            if mine is None:
                return None
            steps.append((insert, other, mine))
        return Spot(where, tuple(steps))

    def _alone(self, insert: Insert, at: Node, op: p.Operation) -> Spot:
        """The operation where the line is reached like this, on all paths."""
        steps = [
            (insert, self._beside_call(insert, other), mine)
            for other in self._alike(at)
            if (mine := self._there(op, at, other)) is not None
        ]
        return Spot(self._place(at), tuple(dict.fromkeys(steps)), self._others(at))

    def _place(self, at: Node) -> str:
        """`file:line`, with ` < line` of the caller where the line is reached from several."""
        return self.text.where(at)

    def _others(self, at: Node) -> tuple[str, ...]:
        """What the line does, too, when it is reached in the same way."""
        same = self._alike(at)
        mine = self.text.chain(at)
        found: dict[str, None] = {}
        for other in self.text.on_line(at):
            if self.text.chain(other) == mine and other not in same:
                found.setdefault(self._what(other))
        return tuple(found)

    def _spots(self, at: Node) -> tuple[list[Node], str, str]:
        """The nodes of a line where all its runs are alike, else those that are reached like `at`; with place and note."""
        line = self.text.on_line(at)
        if all(self._same(at, other) for other in line):
            return line, place(self.program, at), ""
        return self._alike(at), self._place(at), not_for(self._others(at))

    def _there(self, op: p.Operation, home: Node, at: Node) -> p.Operation | None:
        """The operation as it reads at another node: locals by name, slots as the node has them; None where one is missing."""
        thread = self.program.threads[at[0]]
        here = thread.nodes[at[1]]
        doing = here.operation if isinstance(here, p.Do) else None
        fields: dict[str, p.Operand] = {}
        for field in op.__struct_fields__:
            value = getattr(op, field)
            known = isinstance(value, (p.Obj, p.Slot)) and value.id < len(self.program.objects)
            if known and at[0] != home[0] and value.id not in self.text.names(at[0]):
                return None  # an object of the other thread's own
            if isinstance(value, p.Slot) and at != home:
                moved = self._slot_there(value, home, at)
                if moved is None:
                    return None
                fields[field] = moved
            if not isinstance(value, p.Local):
                continue
            info = self.program.threads[home[0]].locals[value.id]
            if isinstance(doing, (p.Get, p.CellGet)):
                received = [x for x in doing.locals if thread.locals[x].name == info.name]
                if received and (at[0] != home[0] or value.id not in received):
                    fields[field] = p.Local(received[0])
                if received or at[0] == home[0]:
                    continue
            makers = [
                x.operation.local
                for i, x in enumerate(thread.nodes)
                if isinstance(x, p.Do)
                and isinstance(x.operation, (p.NewEvent, p.Alloc, p.View))
                and thread.locals[x.operation.local].name == info.name
                and at[1] in self._later((at[0], i))
            ]
            used = locals_of(doing) if doing is not None else []
            if at[0] == home[0] and (at == home or value.id in makers or value in used):
                continue
            mine = [x for x in used if thread.locals[x.id].name == info.name]
            if mine:
                fields[field] = mine[0]
            elif makers:
                fields[field] = p.Local(makers[-1])
            else:
                return None
        return msgspec.structs.replace(op, **fields) if fields else op

    def _slot_there(self, slot: p.Slot, home: Node, at: Node) -> p.Slot | None:
        """The slot whose index is the one that the node has where `home` has this slot's."""
        if not isinstance(slot.index, p.Var):
            return slot
        a, b = (edits.slots(node.operation) if isinstance(node := self._node(x), p.Do) else [] for x in (home, at))
        pairs = [y.index for x, y in zip(a, b, strict=False) if x.id == y.id and x.index == slot.index]
        if pairs:
            return msgspec.structs.replace(slot, index=pairs[0])
        return slot if at[0] == home[0] and self.text.chain(at) == self.text.chain(home) else None

    def _node(self, at: Node) -> p.Node:
        return self.program.threads[at[0]].nodes[at[1]]

    def _beside_call(self, insert: Insert, at: Node) -> Node:
        thread = self.program.threads[at[0]]
        if insert is edits.insert_before:
            return (at[0], edits.before_call(thread, at[1]))
        return (at[0], edits.behind_call(thread, at[1])) if insert is edits.insert_after else at


def not_for(others: tuple[str, ...]) -> str:
    return f"; not for {', '.join(others)} on the same line" if others else ""


def locals_of(op: p.Operation) -> list[p.Local]:
    """Locals that an operation accesses, sources of copies first."""
    if isinstance(op, p.Copy):
        return [x for x in (op.src, op.dst) if isinstance(x, p.Local)]
    if isinstance(op, (p.Launch, p.Host)):
        ordered = sorted(op.accesses, key=lambda a: a.mode)
        return [a.target for a in ordered if isinstance(a.target, p.Local)]
    target = getattr(op, "src", None) or getattr(op, "dst", None)
    return [target] if isinstance(target, p.Local) else []


def renumbered(op: p.Operation, old: int, new: int) -> p.Operation:
    """The operation with the objects from number `old` on, which are new ones, from `new` on."""
    if old == new:
        return op
    fields: dict[str, object] = {}
    for field in op.__struct_fields__:
        value = getattr(op, field)
        if isinstance(value, (p.Obj, p.Slot)) and value.id >= old:
            fields[field] = msgspec.structs.replace(value, id=value.id + new - old)
        elif field == "queue" and value >= old:
            fields[field] = value + new - old
    return msgspec.structs.replace(op, **fields)
