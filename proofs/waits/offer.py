"""What an addition to a program is, and what every offer of one needs: names, places, nodes of one place in the text.

Prices order, they do not measure: what makes nobody wait comes first (keeping a reference, record_stream), then memory,
then waits of streams, then waits of the host, and among equals an event that exists already.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from fencepost.model import program as p
from fencepost.proofs import edits
from fencepost.proofs.explain import describe, name, place
from fencepost.proofs.judge import Judged
from fencepost.proofs.waits.catalogue import operation
from fencepost.proofs.waits.handles import Handles, Node, following, later

HOLD, USE, AGAIN, SLOT, FRESH, CHAIN, STREAM, STREAM_NEW, DRAIN, HOST, HOISTED, BOTH, HOST_RING, HOST_NEW, SYNC = (
    "hold until an existing event", "record_stream", "record an event once more", "one more slot", "fresh staging",
    "wait before an event is recorded again", "stream wait", "stream wait on a new event", "drain", "host wait", "host wait in front of a block",
    "host wait on an event recorded once more", "host wait on a new ring of events", "host wait on a new event", "synchronise a stream",
)  # fmt: skip
"""Families of additions."""

PRICE = {
    HOLD: 2, USE: 3, AGAIN: 5, SLOT: 10, FRESH: 12, CHAIN: 19, STREAM: 20, STREAM_NEW: 24, DRAIN: 28, HOST: 30, HOISTED: 31,
    BOTH: 32, HOST_RING: 33, HOST_NEW: 34, SYNC: 60,
}  # fmt: skip


Insert = Callable[[p.Program, int, int, p.Operation], p.Program]


class Change(msgspec.Struct, frozen=True):
    """One addition: `apply` makes the program with it; `text` says what to write, `place` is `file:line` to put it at."""

    family: str
    price: int
    text: str
    place: str
    apply: Callable[[p.Program], p.Program]


class Offer:
    """Common ground of all offers against one replayed hazard of one program."""

    def __init__(self, program: p.Program, judged: Judged) -> None:
        self.program = program
        self.judged = judged
        self.handles = Handles(program)
        self.first = judged.found.first
        self.second = judged.found.second
        self.names = {o.name for o in program.objects}

    def _name(self, t: int, operand: p.Operand) -> str:
        text = name(self.program, self.program.threads[t], operand)
        if isinstance(operand, p.Slot):
            thread = self.program.threads[t]
            index = operand.index
            if isinstance(index, p.Turn):
                text += "[n]" if not index.offset else f"[n{index.offset:+d}]"
            elif isinstance(index, p.Var):
                text += f"[{thread.locals[index.local].name}]"
            elif isinstance(index, p.Fixed):
                text += f"[{index.slot}]"
        return text

    def _what(self, at: Node) -> str:
        return describe(self.program, at)

    def _stream(self, at: Node) -> p.Operand | None:
        return getattr(operation(self.program, at), "stream", None)

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
        same = [
            (t, i)
            for i, node in enumerate(thread.nodes)
            if node.site == mine.site and type(node) is type(mine) and self._same(node, mine, at, (t, i))
        ]
        return same or [at]

    def _same(self, a: p.Node, b: p.Node, at: Node, other: Node) -> bool:
        if isinstance(a, p.Do) and isinstance(b, p.Do):
            return type(a.operation) is type(b.operation) and self._what(at) == self._what(other)
        return isinstance(a, p.Ask) and isinstance(b, p.Ask) and a.question == b.question

    def _there(self, op: p.Operation, at: Node) -> p.Operation | None:
        """The operation as it reads at another node of the same place: locals by name; None where one is missing."""
        thread = self.program.threads[at[0]]
        fields: dict[str, p.Operand] = {}
        for field in op.__struct_fields__:
            value = getattr(op, field)
            if not isinstance(value, p.Local):
                continue
            info = thread.locals[value.id]
            here = operation(self.program, at)
            if isinstance(here, (p.Get, p.CellGet)):
                received = [x for x in here.locals if thread.locals[x].name == info.name]
                if value.id not in received and received:
                    fields[field] = p.Local(received[0])
                continue
            makers = [
                (i, x.operation.local)
                for i, x in enumerate(thread.nodes)
                if isinstance(x, p.Do)
                and isinstance(x.operation, (p.NewEvent, p.Alloc, p.View))
                and thread.locals[x.operation.local].name == info.name
                and at[1] in later(thread, i)
            ]
            if any(local == value.id for _, local in makers) or value in locals_of(operation(self.program, at)):
                continue
            mine = [x for x in locals_of(operation(self.program, at)) if thread.locals[x.id].name == info.name]
            if mine:
                fields[field] = mine[0]
            elif makers:
                fields[field] = p.Local(makers[-1][1])
            else:
                return None
        return msgspec.structs.replace(op, **fields) if fields else op

    def _before(self, at: Node, op: p.Operation, family: str, price: int, text: str) -> Change:
        return Change(family, price, text, place(self.program, at), self._inserting([(edits.insert_before, at, op)]))

    def _behind(self, at: Node, op: p.Operation, family: str, price: int, text: str) -> Change:
        return Change(family, price, text, place(self.program, at), self._inserting([(edits.insert_after, at, op)]))

    def _inserting(
        self, what: list[tuple[Insert, Node, p.Operation]], new: p.Object | None = None
    ) -> Callable[[p.Program], p.Program]:
        """A change that inserts operations at every node of their places; `new` is an object that they name."""
        number = len(self.program.objects)
        if not all(edits.writable(self.program, at[0], op) for _, at, op in what):
            return impossible
        steps = list(dict.fromkeys(
            (insert, self._beside_call(insert, other), mine)
            for insert, at, op in what
            for other in self._alike(at)
            if (mine := op if isinstance(self.program.threads[other[0]].nodes[other[1]], p.Ask) else self._there(op, other))
            is not None
        ))  # fmt: skip

        def apply(program: p.Program) -> p.Program:
            to = number
            if new is not None:
                program, to = edits.with_object(program, new)
            for insert, at, op in steps:
                program = insert(program, *at, renumbered(op, number, to) if new is not None else op)
            return program

        return apply


    def _beside_call(self, insert: Insert, at: Node) -> Node:
        thread = self.program.threads[at[0]]
        if insert is edits.insert_before:
            return (at[0], edits.before_call(thread, at[1]))
        return (at[0], edits.behind_call(thread, at[1])) if insert is edits.insert_after else at


def impossible(program: p.Program) -> p.Program:
    """What an addition does that no body can say: it is not offered."""
    raise NotImplementedError


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
    """The operation with object `old` under another number."""
    if old == new:
        return op
    fields = {}
    for field in op.__struct_fields__:
        value = getattr(op, field)
        if isinstance(value, (p.Obj, p.Slot)) and value.id == old:
            fields[field] = msgspec.structs.replace(value, id=new)
    return msgspec.structs.replace(op, **fields)
