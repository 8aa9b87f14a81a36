"""What a design accesses, derived afresh from its program: accesses, classes of memory, conflict pairs, slices.

A *class* is memory that can share bytes: one object made outside a body, whoever holds references to it; all blocks of
one owner of a caching allocator; all tokens of one pool. Nothing here is taken from the explorer: `verify` compares
what a certificate claims with what this file derives (theory: certificates).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations import Context, lower_node
from fencepost.model.platform import Platform

Node = tuple[int, int]
"""Thread and node."""


class Class(msgspec.Struct, frozen=True, order=True):
    """Memory that can share bytes. `kind` "memory" (object `id`) | "block" (owner stream `id`, < 0: pinned, for each process) | "pool"."""

    kind: str
    id: int

    def label(self, program: p.Program) -> str:
        """A name that is unique in the program."""
        if self.kind == "block":
            if self.id >= 0:
                return f"blocks of {program.objects[self.id].name}"
            homes = pinning(program)
            return "pinned blocks" if len(homes) < 2 else f"pinned blocks of process {homes[-1 - self.id]!r}"
        return program.objects[self.id].name


def pinning(program: p.Program) -> list[str]:
    """The processes that allocate pinned memory: each has an allocator of its own (S80)."""
    return sorted({
        thread.process for thread in program.threads for node in thread.nodes
        if isinstance(node, p.Do) and isinstance(node.operation, p.Alloc) and node.operation.space != "device"
    })  # fmt: skip


class Access(msgspec.Struct, frozen=True):
    """The `which`-th access of an operation, in the order of its effects. `on`: the stream's name, or "host"."""

    thread: int
    node: int
    which: int
    mode: str
    on: str
    operand: str
    classes: tuple[str, ...]

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.thread}.{self.node}.{self.which}"


class Footprint:
    """Accesses, classes, pairs and slices of one program on one platform."""

    def __init__(self, program: p.Program, platform: Platform) -> None:
        self.program = program
        self.effects: dict[Node, tuple[e.Effect, ...]] = {}
        for t, thread in enumerate(program.threads):
            context = Context(program, thread, platform)
            for n, node in enumerate(thread.nodes):
                if isinstance(node, p.Do):
                    self.effects[t, n] = lower_node(node, context)
        self.queries = any(
            isinstance(node, p.Ask) and isinstance(node.question, (p.EventQuery, p.StreamQuery))
            for thread in program.threads
            for node in thread.nodes
        )
        self.meets = any(isinstance(x, e.MEETINGS) for effects in self.effects.values() for x in effects)
        """Whether work of a stream can be pending."""
        self._pinning = pinning(program)
        self._origins()
        self.accesses = tuple(self._accesses())
        found = {cls for (t, *_), x in self._touched() for cls in self.classes_of(t, x.target)}
        self.classes = tuple(sorted(found))
        self.of_class = {cls: [a for a in self.accesses if cls.label(program) in a.classes] for cls in self.classes}
        self.pairs = tuple(self._pairs())

    # ------------------------------------------------------------ references

    def _origins(self) -> None:
        """Which classes the memory locals of each thread may refer to: the least solution over all hand-overs."""
        local: dict[Node, set[Class]] = {}
        item: dict[tuple[int, str, int], set[Class]] = {}

        def of(t: int, value: p.Operand | p.Index) -> set[Class]:
            if isinstance(value, p.Local):
                return local.get((t, value.id), set())
            if isinstance(value, (p.Obj, p.Slot)) and isinstance(self.program.objects[value.id], p.Memory):
                return {Class("memory", value.id)}
            return set()

        def step(t: int, op: p.Operation) -> Iterator[tuple[set[Class], set[Class]]]:
            """(what flows, where to)."""
            if isinstance(op, p.Alloc):
                yield {self.class_of(t, op)}, local.setdefault((t, op.local), set())
            elif isinstance(op, p.View):
                yield of(t, op.base), local.setdefault((t, op.local), set())
            elif isinstance(op, p.Take):
                pool = self.program.objects[op.pool]
                if isinstance(pool, p.Pool) and pool.of != "row":
                    yield {Class("pool", op.pool)}, local.setdefault((t, op.local), set())
            elif isinstance(op, (p.Put, p.CellSet)):
                holder = (op.queue, op.tag) if isinstance(op, p.Put) else (op.cell.id, "")
                for k, value in enumerate(op.values):
                    yield of(t, value), item.setdefault((*holder, k), set())
            elif isinstance(op, (p.Get, p.CellGet)):
                holder = (op.queue, op.tag) if isinstance(op, p.Get) else (op.cell.id, "")
                for k, target in enumerate(op.locals):
                    yield item.get((*holder, k), set()), local.setdefault((t, target), set())

        changed = True
        while changed:
            changed = False
            for t, thread in enumerate(self.program.threads):
                for node in thread.nodes:
                    for what, where in step(t, node.operation) if isinstance(node, p.Do) else ():
                        changed = changed or not what <= where
                        where |= what
        self.local_classes = local

    def class_of(self, t: int, op: p.Alloc) -> Class:
        """The blocks of which an allocation gets one: those of its stream (S62), or pinned ones of its process (S80)."""
        if op.space == "device":
            return Class("block", op.stream.id if isinstance(op.stream, (p.Obj, p.Slot)) else -1)
        return Class("block", -1 - self._pinning.index(self.program.threads[t].process))

    def classes_of(self, t: int, target: p.Operand) -> frozenset[Class]:
        """The classes that an operand of thread `t` may touch."""
        if isinstance(target, p.Local):
            return frozenset(self.local_classes.get((t, target.id), ()))
        return frozenset((Class("memory", target.id),))

    # ------------------------------------------------------------ accesses and pairs

    def _touched(self) -> Iterator[tuple[tuple[int, int, int, str], p.Access]]:
        for (t, n), effects in self.effects.items():
            which = 0
            for effect in effects:
                if isinstance(effect, (e.Touch, e.Enqueue)):
                    on = "host"
                    if isinstance(effect, e.Enqueue) and isinstance(effect.stream, (p.Obj, p.Slot)):
                        on = self.program.objects[effect.stream.id].name
                    for access in effect.accesses:
                        yield (t, n, which, on), access
                        which += 1

    def _accesses(self) -> Iterator[Access]:
        self.targets: dict[tuple[int, int, int], p.Access] = {}
        for (t, n, which, on), access in self._touched():
            self.targets[t, n, which] = access
            labels = tuple(cls.label(self.program) for cls in sorted(self.classes_of(t, access.target)))
            same = " same bytes" if access.same_bytes else ""
            yield Access(t, n, which, access.mode + same, on, self._words(t, access.target), labels)

    def _words(self, t: int, target: p.Operand) -> str:
        if isinstance(target, p.Local):
            name = self.program.threads[t].locals[target.id].name
        else:
            name = self.program.objects[target.id].name
        index = f"[{target.index}]" if isinstance(target, p.Slot) else ""
        return f"{name}{index}" + (f"[{target.part}]" if target.part is not None else "")

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of accesses (indices) of a common class, one a write, that may overlap; an access with itself, too,
        where its operation can run again. Two accesses of one operation meet only in different executions of it."""
        again = {(t, n) for t, thread in enumerate(self.program.threads) for n in _repeated(thread)}
        for i, a in enumerate(self.accesses):
            for j in range(i, len(self.accesses)):
                b = self.accesses[j]
                if "w" not in a.mode + b.mode or not set(a.classes) & set(b.classes):
                    continue
                if (a.thread, a.node) == (b.thread, b.node) and (a.thread, a.node) not in again:
                    continue
                if not self._disjoint(self.targets[a.thread, a.node, a.which], self.targets[b.thread, b.node, b.which]):
                    yield i, j

    @staticmethod
    def _disjoint(a: p.Access, b: p.Access) -> bool:
        """Whether two operands that name the same object can never share a byte. References may be narrowed: never sure."""
        x, y = a.target, b.target
        if isinstance(x, p.Local) or isinstance(y, p.Local):
            return False
        slots = [o.index.slot for o in (x, y) if isinstance(o, p.Slot) and isinstance(o.index, p.Fixed)]
        if len(set(slots)) == 2:
            return True
        if isinstance(x.part, p.Named) and isinstance(y.part, p.Named):
            return x.part.name != y.part.name
        if isinstance(x.part, p.Span) and isinstance(y.part, p.Span):
            return x.part.stop <= y.part.start or y.part.stop <= x.part.start
        return False

    def read(self, cls: Class) -> bool:
        """Whether any operation of the design reads memory of the class."""
        return any(not a.mode.startswith("w") for a in self.of_class[cls])

    def conflicting(self, cls: Class) -> bool:
        """Whether two accesses of the class may conflict at all, or one may read undefined bytes."""
        if cls.kind == "block":
            return True
        label = cls.label(self.program)
        return any(label in self.accesses[i].classes and label in self.accesses[j].classes for i, j in self.pairs)

    # ------------------------------------------------------------ slices

    def slice(self, cls: Class) -> tuple[Node, ...]:
        """The operations that matter to the class, backward closed from its accesses.

        Kept: every access of the class, every operation on host objects, and every operation that writes a bit which
        a kept one reads. What is left out writes only bits that nothing kept reads, so it changes neither what can
        happen nor any bit that is looked at; and no write to a bit that is read is ever left out.
        """
        if self.queries:
            return tuple(self.effects)  # what a query may answer depends on every capture
        label = cls.label(self.program)
        kept = {(a.thread, a.node) for a in self.accesses if label in a.classes}
        if self.meets:
            # Whatever a stream waits for decides what is pending: only work on other memory is left out, and that only where
            # what its thread puts there later carries all that its call did.
            users = self._stream_users()
            return tuple(
                node for node, effects in self.effects.items()
                if node in kept or not effects
                or not all(isinstance(x, e.Touch) or (isinstance(x, e.Enqueue) and len(users[x.stream.id]) == 1) for x in effects)
            )  # fmt: skip
        flows: dict[Node, list[tuple[set[object], set[object]]]] = {}
        for (t, n), effects in self.effects.items():
            flows[t, n] = [self._flow(t, effect) for effect in effects]
            if any(not isinstance(x, _ON_STREAMS) or (isinstance(x, e.NoteUse) and cls.kind == "block") for x in effects):
                kept.add((t, n))
        read: set[object] = {("thread", t) for t in range(len(self.program.threads))}
        changed = True
        while changed:
            changed = False
            for node, pairs in flows.items():
                if node not in kept and any(writes & read for _, writes in pairs):
                    kept.add(node)
                if node in kept:
                    more = {x for reads, _ in pairs for x in reads}
                    changed = changed or not more <= read
                    read |= more
        return tuple(node for node in flows if node in kept)

    def _stream_users(self) -> dict[int, set[int]]:
        """The threads that name each stream object, or synchronise its device."""
        users: dict[int, set[int]] = {}
        for (t, _), effects in self.effects.items():
            for effect in effects:
                named = [getattr(effect, field, None) for field in ("stream", "other")]
                streams = device_streams(self.program, effect) if isinstance(effect, e.JoinDevice) else []
                for stream in (*streams, *(x.id for x in named if isinstance(x, (p.Obj, p.Slot)))):
                    users.setdefault(stream, set()).add(t)
        return users

    def _flow(self, t: int, effect: e.Effect) -> tuple[set[object], set[object]]:
        """(bits read, bits written) by an effect, the accesses themselves aside."""
        me = ("thread", t)
        if isinstance(effect, (e.Enqueue, e.NoteUse)):
            return {me, ("stream", effect.stream.id)}, {("stream", effect.stream.id)}
        if isinstance(effect, e.RecordEvent):
            stream = ("stream", effect.stream.id)
            return {me, stream}, {stream, *self.events(t, effect.event)}
        if isinstance(effect, e.JoinEvent):
            return self.events(t, effect.event), {me}
        if isinstance(effect, e.JoinStream):
            return {("stream", effect.stream.id)}, {me}
        if isinstance(effect, e.JoinDevice):
            return {("stream", s) for s in device_streams(self.program, effect)}, {me}
        if isinstance(effect, e.StreamJoinsEvent):
            return {me, *self.events(t, effect.event)}, {("stream", effect.stream.id)}
        if isinstance(effect, e.StreamJoinsStream):
            return {me, ("stream", effect.other.id)}, {("stream", effect.stream.id), ("stream", effect.other.id)}
        if isinstance(effect, p.Give) and effect.after is not None:
            return self.events(t, effect.after), set()
        return set(), set()

    def events(self, t: int, operand: p.Operand) -> set[object]:
        """The events that an operand may name: an object, or for a local any made in a body or handed over."""
        if not isinstance(operand, p.Local):
            return {("event", operand.id)}
        return {("event", "made"), *(("event", o) for o in self.handed_over())}

    def handed_over(self) -> set[int]:
        """Events that live for ever and are put into queues or cells."""
        return {
            v.id
            for thread in self.program.threads
            for node in thread.nodes
            if isinstance(node, p.Do) and isinstance(node.operation, (p.Put, p.CellSet))
            for v in node.operation.values
            if isinstance(v, (p.Obj, p.Slot)) and isinstance(self.program.objects[v.id], p.Event)
        }


_ON_STREAMS = (
    e.Touch, e.Enqueue, e.RecordEvent, e.JoinEvent, e.JoinStream, e.JoinDevice, e.StreamJoinsEvent, e.StreamJoinsStream,
    e.NoteUse,
)  # fmt: skip
"""Effects that a slice may leave out; all others are operations on host objects."""


def device_streams(program: p.Program, effect: e.JoinDevice) -> list[int]:
    """Stream objects of that GPU and process."""
    return [
        i for i, o in enumerate(program.objects)
        if isinstance(o, p.Stream) and o.gpu == effect.gpu and o.process == effect.process
    ]  # fmt: skip


def successors(node: p.Node) -> list[int]:
    """Nodes that may come next in the turn (END is -1)."""
    return [node.next] if isinstance(node, p.Do) else [n for _, n in node.branches]


def _repeated(thread: p.Thread) -> set[int]:
    """Nodes that may run more than once: all of a loop, elsewhere those on a circle within the turn."""
    if thread.kind == "loop":
        return set(range(len(thread.nodes)))
    result = set()
    for start in range(len(thread.nodes)):
        todo, seen = successors(thread.nodes[start]), set()
        while todo:
            n = todo.pop()
            if n >= 0 and n not in seen:
                seen.add(n)
                todo += successors(thread.nodes[n])
        if start in seen:
            result.add(start)
    return result
