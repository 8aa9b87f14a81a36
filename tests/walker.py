"""Walks the node graph of a traced program along the log of an oracle run, and says where the two part."""

from __future__ import annotations

from typing import Any

from fencepost.model import program as p

Entry = tuple[str, str, tuple[Any, ...]]


class Walker:
    """The concrete state of a program's host side: queues, cells, cursors, pools, and each thread's node and locals."""

    def __init__(self, program: p.Program) -> None:
        self.program = program
        self.threads = {thread.name: thread for thread in program.threads}
        self.node = {thread.name: thread.entry for thread in program.threads}
        self.turn = dict.fromkeys(self.threads, 0)
        self.serial = dict.fromkeys(self.threads, 0)
        self.locals: dict[str, dict[int, Any]] = {name: {} for name in self.threads}
        self.queues: dict[int, list[tuple[str, tuple[Any, ...]]]] = {}
        self.cells: dict[str, Any] = {}
        self.at: dict[int, int] = {}
        self.taken: dict[int, set[int]] = {}
        self.locks: dict[int, int] = {}
        self.flags: dict[int, bool] = {}
        self.counters: dict[int, int] = {}
        self.visited: set[tuple[str, int]] = set()

    # ------------------------------------------------------------ operands

    def name(self, number: int) -> str:
        return self.program.objects[number].name

    def index(self, thread: str, index: p.Index) -> int:
        if isinstance(index, p.Turn):
            return self.turn[thread] + index.offset
        if isinstance(index, p.Var):
            return int(self.locals[thread][index.local]) + index.offset
        if isinstance(index, p.Last):
            return self.at.get(index.cursor, -1) + index.offset
        return index.slot

    def text(self, thread: str, operand: Any) -> Any:
        if operand is None:
            return None
        if isinstance(operand, (p.Turn, p.Var, p.Last, p.Fixed)):
            return self.index(thread, operand)
        if isinstance(operand, p.Local):
            base = self.locals[thread][operand.id]
        elif isinstance(operand, p.Obj):
            base = self.name(operand.id)
        else:
            depth = self.program.objects[operand.id].depth  # type: ignore[union-attr]
            assert depth is not None
            base = f"{self.name(operand.id)}[{self.index(thread, operand.index) % depth}]"
        part = operand.part
        if part is None:
            return base
        if isinstance(part, p.Named):
            return f"{base}/'{part.name}'"
        if isinstance(part, p.Span):
            return f"{base}/{part.start}:{part.stop}"
        if isinstance(part, p.At):
            return f"{base}/@{self.index(thread, part.index)}"
        return f"{base}/?"

    def accesses(self, thread: str, accesses: tuple[p.Access, ...]) -> tuple[Any, ...]:
        return tuple((a.mode, self.text(thread, a.target), a.same_bytes, a.harm) for a in accesses)

    def fresh(self, thread: str, local: int) -> str:
        self.serial[thread] += 1
        self.locals[thread][local] = f"{thread}#{self.serial[thread]}"
        return str(self.locals[thread][local])

    # ------------------------------------------------------------ one node

    def question(self, t: str, q: p.Question) -> tuple[tuple[Any, ...], str | None]:
        """Operands as the oracle logs them, and the answer where the state decides it."""
        yes = {True: "yes", False: "no"}
        if isinstance(q, p.Choose):
            return (q.name, q.options, q.agreed), None
        if isinstance(q, p.Maybe):
            return (q.name,), None
        if isinstance(q, p.QueueFull):
            full = len(self.queues.get(q.queue, [])) == self.program.objects[q.queue].capacity  # type: ignore[union-attr]
            return (self.name(q.queue),), yes[full]
        if isinstance(q, p.QueueHolds):
            return (self.name(q.queue), q.count), yes[len(self.queues.get(q.queue, [])) >= q.count]
        if isinstance(q, p.CellEmpty):
            cell = self.text(t, q.cell)
            return (cell,), yes[self.cells.get(cell) is None]
        if isinstance(q, (p.EventQuery, p.StreamQuery)):
            return (self.text(t, q.event if isinstance(q, p.EventQuery) else q.stream),), None
        if isinstance(q, p.FlagIsSet):
            return (self.name(q.flag),), yes[self.flags.get(q.flag, False)]
        if isinstance(q, p.CounterAtLeast):
            return (self.name(q.counter), q.value), yes[self.counters.get(q.counter, 0) >= q.value]
        assert isinstance(q, p.TryLock)
        free = self._free(q.lock) > 0
        if free:
            self.locks[q.lock] = self.locks.get(q.lock, 0) + 1
        return (self.name(q.lock),), yes[free]

    def _free(self, lock: int) -> int:
        return self.program.objects[lock].count - self.locks.get(lock, 0)  # type: ignore[union-attr]

    def operation(self, t: str, o: p.Operation) -> tuple[Any, ...]:
        """Execute; the operands as the oracle logs them."""
        text = lambda operand: self.text(t, operand)  # noqa: E731
        mine = self.locals[t]
        if isinstance(o, p.Host):
            return (o.name, self.accesses(t, o.accesses), o.time)
        if isinstance(o, p.Launch):
            return (o.name, text(o.stream), self.accesses(t, o.accesses), o.time, o.kernel)
        if isinstance(o, p.Copy):
            return (
                text(o.dst), text(o.src), text(o.stream), o.non_blocking, o.raw, o.src_harm, o.same_bytes, o.time,
            )  # fmt: skip
        if isinstance(o, p.Memset):
            return (text(o.dst), text(o.stream), o.time)
        if isinstance(o, p.Item):
            return (text(o.src), text(o.stream), o.harm, o.time)
        if isinstance(o, p.Alloc):
            return (self.fresh(t, o.local), o.space, text(o.stream), o.bytes)
        if isinstance(o, p.View):
            base = text(o.base)
            return (self.fresh(t, o.local), base, o.attributed)
        if isinstance(o, p.Drop):
            return (mine.pop(o.local),)
        if isinstance(o, p.RecordStream):
            return (text(o.block), text(o.stream))
        if isinstance(o, p.NewEvent):
            return (self.fresh(t, o.local),)
        if isinstance(o, p.Record):
            return (text(o.event), text(o.stream))
        if isinstance(o, p.EventSync):
            return (text(o.event), o.time)
        if isinstance(o, p.StreamWaitEvent):
            return (text(o.stream), text(o.event))
        if isinstance(o, p.WaitStream):
            return (text(o.stream), text(o.other))
        if isinstance(o, p.StreamSync):
            return (text(o.stream), o.time)
        if isinstance(o, p.DeviceSync):
            return (o.gpu, o.process, o.time, o.implied)
        if isinstance(o, p.Advance):
            self.at[o.cursor] = mine[o.local] = self.at.get(o.cursor, -1) + 1
            return (self.name(o.cursor), mine[o.local])
        if isinstance(o, p.Put):
            values = tuple(text(v) for v in o.values)
            self.queues.setdefault(o.queue, []).append((o.tag, values))
            return (self.name(o.queue), o.tag, values)
        if isinstance(o, p.Get):
            tag, values = self.queues[o.queue].pop(0)
            mine.update(zip(o.locals, values, strict=True))
            assert tag == o.tag, (tag, o)
            return (self.name(o.queue), tag, values)
        if isinstance(o, p.CellSet):
            self.cells[text(o.cell)] = tuple(text(v) for v in o.values)
            return (text(o.cell), self.cells[text(o.cell)])
        if isinstance(o, p.CellGet):
            values = self.cells[text(o.cell)]
            mine.update(zip(o.locals, values, strict=True))
            if o.take:
                self.cells[text(o.cell)] = None
            return (text(o.cell), values, o.take)
        if isinstance(o, p.CellClear):
            self.cells[text(o.cell)] = None
            return (text(o.cell),)
        if isinstance(o, p.Take):
            pool = self.program.objects[o.pool]
            assert isinstance(pool, p.Pool)
            token = min(set(range(pool.size)) - self.taken.setdefault(o.pool, set()))
            self.taken[o.pool].add(token)
            mine[o.local] = token if pool.of == "row" else f"{pool.name}:{token}"
            return (pool.name, token)
        if isinstance(o, p.Give):
            token = int(str(text(o.token)).rpartition(":")[2])
            self.taken[o.pool].discard(token)
            return (self.name(o.pool), token, text(o.after))
        if isinstance(o, (p.Acquire, p.Unlock)):
            self.locks[o.lock] = self.locks.get(o.lock, 0) + (1 if isinstance(o, p.Acquire) else -1)
            return (self.name(o.lock),)
        if isinstance(o, (p.FlagSet, p.FlagClear)):
            self.flags[o.flag] = isinstance(o, p.FlagSet)
            return (self.name(o.flag),)
        if isinstance(o, p.FlagWait):
            return (self.name(o.flag),)
        if isinstance(o, p.CounterAdd):
            self.counters[o.counter] = self.counters.get(o.counter, 0) + o.amount
            return (self.name(o.counter), o.amount)
        if isinstance(o, (p.Signal, p.Await)):
            return (self.name(o.channel), text(o.stream), o.tag)
        if isinstance(o, p.StoreFlag):
            return (self.name(o.flag), o.value, text(o.stream))
        if isinstance(o, p.WaitFlag):
            return (self.name(o.flag), o.value, text(o.stream), o.reset)
        assert isinstance(o, p.CounterWait)
        return (self.name(o.counter), o.value + (self.turn[t] if o.per_turn else 0))

    def _silent(self, t: str) -> None:
        """Pass what the log leaves out: the turn, the tag of the oldest item, and that setups run one after the other."""
        while self.node[t] != p.END:
            node = self.threads[t].nodes[self.node[t]]
            if isinstance(node, p.Do):
                o = node.operation
                if not isinstance(o, (p.FlagSet, p.FlagWait)) or not self.name(o.flag).endswith(" has ended"):
                    return
                assert isinstance(o, p.FlagSet) or self.flags.get(o.flag), (t, "a setup begins before the one in front of it has ended")
                self.flags[o.flag] = True
                self.visited.add((t, self.node[t]))
                self.node[t] = node.next
                continue
            if isinstance(node.question, p.TurnBelow):
                answer = "yes" if self.turn[t] < node.question.value else "no"
            elif isinstance(node.question, p.QueueTag):
                answer = self.queues[node.question.queue][0][0]
            else:
                return
            self.visited.add((t, self.node[t]))
            self.node[t] = dict(node.branches)[answer]

    def follow(self, entry: Entry) -> None:
        """Take the step that the log names. Raises `AssertionError` where program and log part."""
        t, name, operands = entry
        if t not in self.threads:  # a body that only captures graphs runs nothing
            assert name == "end of turn", (entry, "the program has no such thread")
            return
        self._silent(t)
        if self.node[t] == p.END:
            assert name == "end of turn", (entry, "the program's turn is over")
            self.turn[t] += 1
            self.node[t] = self.threads[t].entry
            held = [k for k in self.locals[t] if self.threads[t].locals[k].kind == p.MEMORY]
            assert not held, (t, [self.threads[t].locals[k] for k in held], "still held at the end of the turn")
            self.locals[t] = {}
            return
        node = self.threads[t].nodes[self.node[t]]
        self.visited.add((t, self.node[t]))
        if isinstance(node, p.Ask):
            assert name == type(node.question).__name__, (entry, node)
            wanted, answer = self.question(t, node.question)
            assert operands[:-1] == wanted, (entry, wanted)
            assert answer is None or answer == operands[-1], (entry, answer)
            self.node[t] = dict(node.branches)[operands[-1]]
            return
        assert name == type(node.operation).__name__, (entry, node)
        done = self.operation(t, node.operation)
        assert done == operands, (entry, done)
        self.node[t] = node.next
