"""The transition relation of one class: finite control, and for each stretch of a thread what it does to the bits.

A *stretch* runs one thread from a control to the next point where another thread could notice it. What lies between
touches nothing that other threads touch, so it commutes with all that they do, and so does the one side of a queue
that has a single putter and a single getter, while it can move. Stretches end in front of every operation that others
can notice, once in every circle, and where the thread has to wait. Paths that meet within a stretch are joined: control
then says which thread is under way. An edge holds, besides where it leads, one mask for each bit of its target and the
accesses that it checks.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from fencepost.model import program as p
from fencepost.proofs.certificates.accessing import inside
from fencepost.proofs.certificates.footprint import Class, Footprint, successors
from fencepost.proofs.certificates.machine import Machine
from fencepost.proofs.certificates.world import DONE, END, Check, Pending, Step, Value, Where, World


class Edge(NamedTuple):
    """One stretch. `update[k]`: the bits of the source whose disjunction is bit k + 1 of the target (bit 0 is true)."""
    path: tuple[Step, ...]
    checks: tuple[Check, ...]
    chosen: tuple[tuple[int, int, int], ...]
    met: tuple[tuple[int, int, int], ...]
    spared: tuple[Check, ...]
    update: tuple[int, ...]
    target: str


class Control(NamedTuple):
    """A control with a representative in which bit k is the mask 1 << k."""

    name: str
    world: World
    width: int


class Relation:
    """The relation of one class (None: control alone), made where it is asked for."""

    def __init__(self, footprint: Footprint, cls: Class | None, reduce: bool = True) -> None:
        """Without `reduce` every operation is a stretch: all interleavings, for comparison."""
        self.footprint = footprint
        self.program = footprint.program
        self.cls = cls
        self.machine = Machine(footprint, cls)
        self.controls: dict[str, Control] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._edges: dict[str, tuple[Edge, ...]] = {}
        self.stops = self._stops() if reduce else [{END, *range(len(t.nodes))} for t in self.program.threads]
        self.joins = [_joins(thread) for thread in self.program.threads]
        first = self.machine.start()
        self.start = self._enter(first)[0]
        self.threads = [t for t, thread in enumerate(self.program.threads) if thread.kind != "setup"]

    # ------------------------------------------------------------ what others can notice

    def _stops(self) -> list[set[int]]:
        """For each thread the nodes (and END) in front of which a stretch ends."""
        touched = [
            {n: self._touches(t, n) for n in (*range(len(thread.nodes)), END)}
            for t, thread in enumerate(self.program.threads)
        ]
        users: dict[Any, set[int]] = {}
        for t, nodes in enumerate(touched):
            for what in nodes.values():
                for one in what:
                    users.setdefault(one, set()).add(t)

        def noticed(t: int, what: tuple[str, Any]) -> bool:
            kind, oid = what
            if kind == "device" or (kind == "class" and self.machine.steps):
                return True  # streams use it, too
            if kind not in ("put", "get", "test"):
                return len(users[what]) > 1
            put, get, test = (users.get((side, oid), set()) for side in ("put", "get", "test"))
            if kind == "test":
                return bool((put | get) - {t})
            return len(put if kind == "put" else get) > 1 or bool(test - {t})

        result = []
        for t, thread in enumerate(self.program.threads):
            stops = {n for n, what in touched[t].items() if any(noticed(t, one) for one in what)}
            result.append(stops | _one_in_every_circle(thread, stops))
        return result

    def _touches(self, t: int, n: int) -> set[tuple[str, Any]]:
        """The shared things that node `n` of thread `t` looks at or changes."""
        thread, cls, m = self.program.threads[t], self.cls, self.machine
        block = cls is not None and cls.kind == "block"
        if n == END:
            ends = block and any(info.kind == p.MEMORY for info in thread.locals)
            counted = {("counter", i) for i, who in m.counted.items() if t in who}
            agreed = {("agreed", name) for name, askers in m.askers.items() if t in askers}
            return counted | agreed | ({("class", None)} if ends else set())
        node = thread.nodes[n]
        result: set[tuple[str, Any]] = set()
        if isinstance(node, p.Do) and (t, n) not in m.kept:
            return result
        what: Any = node.operation if isinstance(node, p.Do) else node.question
        effects = self.footprint.effects.get((t, n), ())
        for x in [*inside(what), *inside(effects)]:
            if isinstance(x, (p.Obj, p.Slot)) and not isinstance(self.program.objects[x.id], p.Memory):
                result.add(("object", x.id))
            if isinstance(x, (p.Last, p.Advance)):
                result.add(("object", x.cursor))
            for name in ("lock", "flag", "counter", "pool"):
                if isinstance(x, p.Data) and not isinstance(x, (p.StoreFlag, p.WaitFlag)) and name in x.__struct_fields__:
                    result.add(("object", getattr(x, name)))
            if isinstance(x, p.Local) and thread.locals[x.id].kind == p.EVENT and not isinstance(what, (p.Put, p.CellSet)):
                result |= self._handles()
            if isinstance(x, (p.Put, p.Get, p.QueueTag)):
                result.add(("put" if isinstance(x, p.Put) else "get", x.queue))
            if isinstance(x, (p.QueueFull, p.QueueHolds)):
                result.add(("test", x.queue))
            if isinstance(x, (p.Signal, p.Await)) and x.channel in m.open:
                result.add(("object", x.channel))
            if isinstance(x, (p.StoreFlag, p.WaitFlag)) and x.stream is None:
                result |= {("object", x.flag), ("device", x.flag)}
            if isinstance(x, (p.Take, p.Give)) and m.steps:
                result.add(("device", x.pool))  # tokens that come back behind pending records
            if isinstance(x, (p.EventQuery, p.StreamQuery)) and m.steps:
                result.add(("device", None))  # what is pending says only "no"
            if isinstance(x, p.Choose) and x.agreed:
                result.add(("agreed", x.name))
            if type(x).__name__ == "JoinDevice":
                result |= {("object", oid) for oid, _ in m.stream_slots if self._on(oid, x)}
            if block and isinstance(x, (p.Alloc, p.View, p.Drop)):
                result.add(("class", None))
            if block and isinstance(x, (p.Put, p.Get, p.CellSet, p.CellGet, p.CellClear)) and self._moves_memory(x):
                result.add(("class", None))
            if block and type(x).__name__ == "NoteUse":
                result.add(("class", None))
        if cls is not None and any((a.thread, a.node) == (t, n) for a in self.footprint.of_class[cls]):
            result.add(("class", None))
        if isinstance(what, (p.Put, p.CellSet)):
            # Naming an event to hand it over neither reads nor changes it.
            events = {v.id for v in what.values if isinstance(v, (p.Obj, p.Slot))}
            result -= {("object", o) for o in events if isinstance(self.program.objects[o], p.Event)}
        return result

    def _on(self, oid: int, device: Any) -> bool:
        stream = self.program.objects[oid]
        return isinstance(stream, p.Stream) and stream.gpu == device.gpu and stream.process == device.process

    def _moves_memory(self, x: Any) -> bool:
        """Whether an operation on a queue or cell may move references to memory."""
        if isinstance(x, (p.Put, p.Get)):
            queue = self.machine.object(x.queue, p.Queue)
            return any(p.MEMORY in kinds for tag, kinds in queue.items if tag == x.tag)
        return p.MEMORY in self.machine.object(x.cell.id, p.Cell).item

    def _handles(self) -> set[tuple[str, Any]]:
        """What an operation on an event through a local may share with other threads.

        An event that was made in a body and is not recorded again behind its holder's back does not change after it
        was handed over; then only the hand-over matters.
        """
        result: set[tuple[str, Any]] = {("object", o) for o in self.footprint.handed_over()}
        if self.footprint.queries or any(_recorded_elsewhere(thread) for thread in self.program.threads):
            result.add(("handles", None))
        return result

    # ------------------------------------------------------------ controls

    def _enter(self, w: World) -> tuple[str, tuple[int, ...]]:
        """The name of the world's control, known from now on, and its masks in order."""
        self._normalise(w)
        control = w.control()
        masks = w.masks() if w.witness is not None else []
        name = self._names.get(control)
        if name is None:
            name = self._names[control] = hashlib.sha256(repr(control).encode()).hexdigest()[:12]
            if name in self.controls:
                raise AssertionError("two controls of one name")  # 48 bits of SHA-256
            kept = w.copy()
            kept.checks, kept.chosen, kept.met, kept.path, kept.spared = (), None, (), (), ()
            if masks:
                numbers = iter(range(1, len(masks) + 1))
                kept.each_mask(lambda _m: 1 << next(numbers))
            else:
                kept.each_mask(lambda _m: 0)
            self.controls[name] = Control(name, kept, len(masks))
        return name, tuple(masks)

    def _normalise(self, w: World) -> None:
        m = self.machine
        for t, pc in enumerate(w.pc):
            live = m.live[t][pc] if pc >= 0 else frozenset[int]()
            for k, value in enumerate(w.locals[t]):
                if value is not None and value[0] != "B" and k not in live:
                    w.locals[t][k] = None
        for depth in m.turning:
            shift = self._reference(w, depth)
            if shift:
                self._turn(w, depth, shift)
        self._renumber(w)
        if m.meets:
            m.normalise_pending(w)

    def _reference(self, w: World, depth: int) -> int:
        """The slot that is called 0: the witness's where it has one of that depth, else the first position."""
        m, wit = self.machine, w.witness
        if wit is not None:
            if wit.slot is not None and self.cls is not None and m.depth(self.cls.id) == depth:
                return wit.slot
            for piece in wit.path:
                if piece[0] == "row" and piece[1] == depth:
                    return int(piece[2])
        return next((w.pos[k] for k, (_, _, d) in enumerate(m.positions) if d == depth), 0)

    def _turn(self, w: World, depth: int, shift: int) -> None:
        """Rename slot s of every ring of that depth s - shift."""
        m = self.machine
        w.pos = [(x - shift) % depth if d == depth else x for x, (_, _, d) in zip(w.pos, m.positions, strict=True)]

        def turned(slots: list[tuple[int, int]], *tables: list[Any]) -> None:
            for k, (oid, slot) in enumerate(slots):
                if slot == 0 and m.depth(oid) == depth:
                    for table in tables:
                        if table:
                            ring = table[k : k + depth]
                            table[k : k + depth] = ring[shift:] + ring[:shift]

        turned(m.stream_slots, w.streams, w.calls, w.busy, w.fifos)
        turned(m.event_slots, w.events, w.known, w.called, w.latest)
        turned(m.cell_slots, w.cells)

        def path(pieces: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(
                ("row", depth, (x[2] - shift) % depth) if x[0] == "row" and x[1] == depth else x for x in pieces
            )

        def named(one: tuple[int, int]) -> tuple[int, int]:
            return (one[0], (one[1] - shift) % depth) if m.depth(one[0]) == depth else one

        def value(v: Value) -> Value:
            if v is None:
                return v
            if v[0] == "I":
                return ("I", depth, (v[2] - shift) % depth) if v[1] == depth else v
            if v[0] == "E" and v[1] < len(m.event_slots):
                return ("E", m.event_at[named(m.event_slots[v[1]])])
            if v[0] == "M":
                slot = v[2]
                if slot is not None and m.depth(v[1]) == depth:
                    slot = (slot - shift) % depth
                return ("M", v[1], slot, path(v[3]))
            return (*v[:-1], path(v[-1])) if v[0] in "BbdT" else v

        def pending(item: Pending) -> Pending:
            if item.what[0] != "work":
                return item
            accesses = []
            for which, write, same, (slot, pieces, owner) in item.what[3]:
                if slot is not None and self.cls is not None and m.depth(self.cls.id) == depth:
                    slot = (slot - shift) % depth
                accesses.append((which, write, same, Where(slot, path(pieces), owner)))
            return Pending((*item.what[:3], tuple(accesses)), item.mask)

        w.map_values(value)
        w.fifos = [tuple(map(pending, row)) for row in w.fifos]
        if w.block is not None:
            block = w.block
            former = None if block.former is None else tuple(sorted((path(x) for x in block.former), key=repr))
            written = None if block.written is None else tuple(sorted((path(x) for x in block.written), key=repr))
            owner = None if block.owner is None else named(block.owner)
            w.block = block._replace(uses=tuple(sorted(map(named, block.uses))), owner=owner, written=written, former=former)
        if w.witness is not None:
            slot = w.witness.slot
            if slot is not None and self.cls is not None and m.depth(self.cls.id) == depth:
                slot = (slot - shift) % depth
            w.witness = w.witness._replace(slot=slot, path=path(w.witness.path))

    def _renumber(self, w: World) -> None:
        """Events made in bodies are known by who holds them; those that nobody holds are forgotten."""
        fixed = len(self.machine.event_slots)
        if len(w.events) == fixed:
            return
        order: dict[int, int] = {}

        def value(v: Value) -> Value:
            if v is not None and v[0] == "E" and v[1] >= fixed:
                return ("E", order.setdefault(v[1], fixed + len(order)))
            return v

        w.map_values(value)
        for table in (w.events, w.known, w.called, w.latest):
            if table:
                table[:] = table[:fixed] + [table[old] for old in order]

    # ------------------------------------------------------------ edges

    def edges(self, name: str) -> tuple[Edge, ...]:
        """Every stretch that starts in a control."""
        found = self._edges.get(name)
        if found is None:
            found = self._edges[name] = tuple(self._stretches(self.controls[name].world))
        return found

    def _movers(self, w: World) -> list[int]:
        """Threads that may move: the one under way; setups before all others; one alone where nobody can notice it."""
        if w.running >= 0:
            return [w.running]
        m = self.machine
        agents = [t for t in m.setups if w.pc[t] != DONE] or [t for t in self.threads if w.pc[t] != DONE]
        able = [t for t in agents if not w.inside[t] and (w.pc[t] == END or m.ready(w, t))]
        for t in able:
            if w.pc[t] not in self.stops[t]:
                return [t]
        return able + [len(w.pc) + s for s in m.device_steps(w)] if m.meets else able

    def _stretches(self, world: World) -> list[Edge]:
        result = []
        for t in self._movers(world):
            of_device = t >= len(world.pc)
            for w in self.machine.device_step(world.copy(), t - len(world.pc)) if of_device else self._stretch(world.copy(), t):
                path, checks, chosen, met, spared = w.path, w.checks, w.chosen, w.met, w.spared
                name, masks = self._enter(w)
                result.append(Edge(path, checks, () if chosen is None else (chosen,), met, spared, masks, name))
        return result

    def _stretch(self, w: World, t: int) -> list[World]:
        """Run thread `t` to the end of its stretch, or to a node where paths meet."""
        m = self.machine
        w.running = -1
        todo, ended = [w], []
        while todo:
            one = todo.pop()
            if one.pc[t] == END:
                m.end_turn(one, t)
                moved = [one]
            else:
                moved = m.run(one, t)
            for after in moved:
                pc = after.pc[t]
                if after.inside[t] or pc == DONE or pc in self.stops[t] or (pc >= 0 and not m.ready(after, t)):
                    ended.append(after)
                elif pc in self.joins[t]:
                    after.running = t
                    ended.append(after)
                else:
                    todo.append(after)
        return ended


def _turn_graph(thread: p.Thread) -> dict[int, list[int]]:
    """Nodes and END, with what may come next; a loop goes on at its entry."""
    graph = {n: sorted(set(successors(node))) for n, node in enumerate(thread.nodes)}
    graph[END] = [thread.entry] if thread.kind == "loop" else []
    return graph


def _joins(thread: p.Thread) -> set[int]:
    """Nodes that more than one node leads to."""
    into: dict[int, int] = {}
    for after in _turn_graph(thread).values():
        for n in after:
            into[n] = into.get(n, 0) + 1
    return {n for n, count in into.items() if count > 1}


def _one_in_every_circle(thread: p.Thread, stops: set[int]) -> set[int]:
    """Nodes that cut every circle which has no stop: the targets of a depth-first search's back edges."""
    graph = _turn_graph(thread)
    found: set[int] = set()
    done: set[int] = set()
    for root in (thread.entry, *graph):
        if root in done or root in stops or root not in graph:
            continue
        on_path = [root]
        branches = [iter(graph[root])]
        while on_path:
            after = next(branches[-1], None)
            if after is None:
                done.add(on_path.pop())
                branches.pop()
            elif after in on_path:
                found.add(after)
            elif after not in done and after not in stops:
                on_path.append(after)
                branches.append(iter(graph[after]))
    return found


def _recorded_elsewhere(thread: p.Thread) -> bool:
    """Whether the thread may record an event that it received, or one of its own after it handed it over."""
    graph = _turn_graph(thread)
    for n, node in enumerate(thread.nodes):
        op = node.operation if isinstance(node, p.Do) else None
        given: set[int] = set()
        if isinstance(op, (p.Get, p.CellGet)):
            given = set(op.locals)
        elif isinstance(op, (p.Put, p.CellSet)):
            given = {v.id for v in op.values if isinstance(v, p.Local)}
        todo, seen = list(graph[n]) if given else [], {END}
        while todo:
            after = todo.pop()
            if after in seen:
                continue
            seen.add(after)
            todo += graph[after]
            at = thread.nodes[after]
            if isinstance(at, p.Do) and isinstance(at.operation, p.Record):
                event = at.operation.event
                if isinstance(event, p.Local) and event.id in given:
                    return True
    return False
