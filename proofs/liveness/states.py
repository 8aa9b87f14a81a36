"""What liveness looks at: control, and of every shared object as much as decides who can move.

No bits, no antichain, no device: as long as no stream item can wait for a host, all enqueued work ends, so that event and
stream waits end too and a query can go either way (theory: liveness). A thread's own operations are run together up to
the next one that touches what another thread touches; only these interleave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import lcm
from typing import Any, NamedTuple

from fencepost.model import program as p

COUNTED_TO = 16
"""Counters, turns and agreed choices are followed this far beyond what any wait compares with; then the answer is bounded."""

SHARED = (
    p.Put, p.Get, p.CellSet, p.CellGet, p.CellClear, p.Take, p.Give, p.Acquire, p.Unlock, p.FlagSet, p.FlagClear,
    p.FlagWait, p.CounterAdd, p.CounterWait, p.QueueFull, p.QueueHolds, p.QueueTag, p.CellEmpty, p.FlagIsSet,
    p.CounterAtLeast, p.TryLock,
)  # fmt: skip
"""What touches state that other threads touch."""

Value = Any
"""Tags of a queue, flags of a cell's slots, a count of free tokens or of a lock, a boolean, a counter."""


class Move(NamedTuple):
    """One host step: `thread` at `node`, with the answer when it is a question. Or `item` of a stream, whose number is `thread`."""

    thread: int
    node: int
    answer: str | None
    item: Any = None


class State(NamedTuple):
    """`at`: each thread's node (END: it has ended); `turns`: its turn, as far as it matters; `indices`: slots that index
    ring cells; `objects`: one value per shared object, in the order of `Semantics.kept`; `agreed`: answers that some thread has still to ask for."""

    at: tuple[int, ...]
    turns: tuple[int, ...]
    indices: tuple[tuple[tuple[int, int], ...], ...]
    objects: tuple[Value, ...]
    agreed: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = ()
    device: Any = None
    """What waits in streams (device.py), where something can."""


Block = Callable[[State], "int | str | None"]
Run = Callable[[State], "list[tuple[str | None, State]]"]
Change = Callable[[State], "tuple[Value, ...]"]


class Bounded(Exception):
    """Something counts beyond what can be followed; `args[0]` says what."""


class Semantics:
    """Successors of states of one program. Reads the program alone; no engine's code is used."""

    def __init__(self, program: p.Program, alone: bool = False) -> None:
        """`alone`: what no order of other threads' steps can change is run without theirs in between (see `alone`)."""
        self.program = program
        self.threads = program.threads
        self.memo: dict[tuple[Any, ...], Any] = {}
        """What the text alone answers, once it was asked."""
        self._cells = {i: c for i, c in enumerate(program.objects) if isinstance(c, p.Cell)}
        depths = self._depths()
        self._period = lcm(*depths) if depths else 1
        self._tracked = bool(depths)
        self._below = max((q.value for t in self.threads for q in _questions(t) if isinstance(q, p.TurnBelow)), default=0)
        self._goals = self._counter_goals()
        self._counters = {i for i, thing in enumerate(program.objects) if isinstance(thing, p.Counter)}
        self._waiters = [number for number, thread in enumerate(self.threads) if _waits_by_turn(thread)]
        self._setups = [number for number, thread in enumerate(self.threads) if thread.kind == "setup"]
        self._others = [number for number, thread in enumerate(self.threads) if thread.kind != "setup"]
        self._counting = bool(self._below or self._waiters or self._counters) or self._period > 1
        """Whether turns or counters matter."""
        self._first = self._objects()
        self.kept = list(self._first)
        """Objects that are followed, by their number in the program."""
        self._place = {number: place for place, number in enumerate(self.kept)}
        self._agreed = sorted(
            {q.name for t in self.threads for q in _questions(t) if isinstance(q, p.Choose) and q.agreed}
        )
        self._askers = {
            name: [i for i, t in enumerate(self.threads) if any(isinstance(q, p.Choose) and q.name == name for q in _questions(t))]
            for name in self._agreed
        }
        self._visible: list[list[bool]] = []
        self._blocks: list[list[Block | None]] = []
        self._runs: list[list[Run]] = []
        self._compile()
        self._commuting: list[list[bool]] = [[False] * len(row) for row in self._visible]
        if alone:
            self._find_commuting()

    def _depths(self) -> list[int]:
        """Depths of the rings whose slots decide who can move."""
        return [c.depth for c in self._cells.values() if c.depth is not None]

    def _counter_goals(self) -> dict[int, int]:
        """Counter -> the greatest constant that a wait or test compares it with; -1 when a wait compares it with a turn."""
        goals: dict[int, int] = {}
        for thread in self.threads:
            for node in thread.nodes:
                what = node.operation if isinstance(node, p.Do) else node.question
                if isinstance(what, (p.CounterWait, p.CounterAtLeast)):
                    per_turn = isinstance(what, p.CounterWait) and what.per_turn
                    before = goals.get(what.counter, 0)
                    goals[what.counter] = -1 if per_turn or before < 0 else max(before, what.value)
        return goals

    # ------------------------------------------------------------ start

    def start(self) -> State:
        """All objects as they are made; loops and scripts wait until the setups are done."""
        count = len(self.threads)
        return State(
            tuple(thread.entry for thread in self.threads), (0,) * count, ((),) * count, tuple(self._first.values()),
            tuple((name, (), (0,) * len(self._askers[name])) for name in self._agreed),
        )  # fmt: skip

    def _objects(self) -> dict[int, Value]:
        objects: dict[int, Value] = {}
        for number, thing in enumerate(self.program.objects):
            if isinstance(thing, p.Queue):
                objects[number] = ()
            elif isinstance(thing, p.Cell):
                objects[number] = (False,) * (thing.depth or 1)
            elif isinstance(thing, p.Pool):
                objects[number] = thing.size
            elif isinstance(thing, p.Lock):
                objects[number] = thing.count
            elif isinstance(thing, p.Flag):
                objects[number] = False
            elif isinstance(thing, p.Counter):
                objects[number] = 0
            elif isinstance(thing, p.Cursor) and self._tracked:
                objects[number] = thing.depth - 1
        return objects

    # ------------------------------------------------------------ successors

    def ready(self, state: State) -> list[int]:
        """Threads that have not ended and may run: setups first, one after the other."""
        at = state.at
        for number in self._setups:
            if at[number] != p.END:
                return [number]
        return [number for number in self._others if at[number] != p.END]

    def obstacle(self, state: State, thread: int) -> int | str | None:
        """The object (or an event made in a body, by its local's name) that the thread waits for; None when it can move."""
        blocked = self._blocks[thread][state.at[thread]]
        return None if blocked is None else blocked(state)

    def successors(self, state: State, thread: int) -> Iterator[tuple[tuple[Move, ...], State]]:
        """What the thread can do next: one shared operation, then all of its own up to the next shared one.

        Each is the steps and the state after them. Empty when the thread waits.
        """
        blocks = self._blocks[thread]
        blocked = blocks[state.at[thread]]
        if blocked is not None and blocked(state) is not None:
            return
        entry, visible, runs = self.threads[thread].entry, self._visible[thread], self._runs[thread]
        todo: list[tuple[tuple[Move, ...], State]] = [((), state)]
        while todo:
            moves, now = todo.pop()
            number = now.at[thread]
            # A whole turn without a shared operation ends the run of own steps, too: others get their chance.
            if moves and (
                number == p.END or number == entry or visible[number]
                or (blocks[number] is not None and blocks[number](now) is not None)  # type: ignore[misc]
            ):  # fmt: skip
                yield moves, now
                continue
            for answer, after in reversed(runs[number](now)):
                todo.append(((*moves, Move(thread, number, answer)), after))

    def alone(self, state: State, ready: list[int]) -> int | None:
        """A thread whose next steps commute with whatever the others do, and which they cannot disable; None if there is none.

        A wait that can be lost, or ended, can be so with those steps done first. None at the start of its turn: each
        thread passes it on every cycle, so that every cycle has a state from which all threads move.
        """
        for thread in ready:
            number = state.at[thread]
            if self._commuting[thread][number] and number != self.threads[thread].entry:
                blocked = self._blocks[thread][number]
                if blocked is None or blocked(state) is None:
                    return thread
        return None

    def _find_commuting(self) -> None:
        """The one putter and the one getter of a queue commute where both can move: they work at its two ends. Only a
        test by the other side tells their order."""
        users: dict[tuple[str, int], set[int]] = {}
        whats = [[n.operation if isinstance(n, p.Do) else n.question for n in thread.nodes] for thread in self.threads]
        for thread, row in enumerate(whats):
            for what in row:
                users.setdefault((_end(what), getattr(what, "queue", -1)), set()).add(thread)
        for thread, row in enumerate(whats):
            if not turn_ends(self.threads[thread]):
                continue  # it need not pass the start of a turn
            for number, what in enumerate(row):
                end = _end(what)
                if end in ("put", "get"):
                    queue = what.queue  # type: ignore[union-attr]
                    others = users.get(("test", queue), set()) - {thread}
                    if len(users[end, queue]) == 1 and not others:
                        self._commuting[thread][number] = True
                        self._visible[thread][number] = False
                elif not self._visible[thread][number]:
                    self._commuting[thread][number] = True

    def _is_visible(self, what: p.Operation | p.Question) -> bool:
        return isinstance(what, SHARED) or (isinstance(what, p.Choose) and what.agreed) or (
            self._tracked and isinstance(what, p.Advance)
        )  # fmt: skip

    def _compile(self) -> None:
        """For each thread and node: whether others can notice it, what it waits for, and what it does."""
        for thread, source in enumerate(self.threads):
            what = [node.operation if isinstance(node, p.Do) else node.question for node in source.nodes]
            self._visible.append([self._is_visible(one) for one in what])
            self._blocks.append([self._block(thread, number, one) for number, one in enumerate(what)])
            self._runs.append([self._run(thread, number, node) for number, node in enumerate(source.nodes)])

    def _block(self, thread: int, number: int, what: p.Operation | p.Question) -> Block | None:
        """What says which object a node waits for; None for a node that never waits."""
        if isinstance(what, (p.Put, p.Get, p.QueueTag)):
            queue, at = what.queue, self._place[what.queue]
            if isinstance(what, p.Put):
                thing = self.program.objects[queue]
                assert isinstance(thing, p.Queue)
                capacity = thing.capacity
                return lambda s: queue if len(s.objects[at]) >= capacity else None
            if isinstance(what, p.Get):
                tag = what.tag
                return lambda s: queue if not s.objects[at] or s.objects[at][0] != tag else None
            return lambda s: queue if not s.objects[at] else None
        if isinstance(what, p.CounterWait):
            counter, at, value, per_turn = what.counter, self._place[what.counter], what.value, what.per_turn
            return lambda s: counter if s.objects[at] < value + (s.turns[thread] if per_turn else 0) else None
        if isinstance(what, (p.Take, p.Acquire, p.FlagWait)):
            oid = what.pool if isinstance(what, p.Take) else what.lock if isinstance(what, p.Acquire) else what.flag
            at = self._place[oid]
            return lambda s: None if s.objects[at] else oid
        return None

    def _run(self, thread: int, number: int, node: p.Node) -> Run:
        """What a node does: the answers and the states behind them."""
        if isinstance(node, p.Do):
            change, go = self._change(thread, node.operation), self._goto(thread, node.next)
            if change is None:
                return lambda s: [(None, go(s, s.objects))]
            if isinstance(node.operation, p.Advance):
                return lambda s: [(None, go(self._advanced(s, thread, node.operation), change(s)))]
            return lambda s: [(None, go(s, change(s)))]
        question = node.question
        ways = {answer: self._goto(thread, target) for answer, target in node.branches}
        if isinstance(question, p.TryLock) or (isinstance(question, p.Choose) and question.agreed):

            def asked(s: State) -> list[tuple[str | None, State]]:
                result: list[tuple[str | None, State]] = []
                for answer in self._answers(s, thread, question):
                    if answer in ways:
                        after = self._answered(s, thread, question, answer)
                        result.append((answer, ways[answer](after, after.objects)))
                return result

            return asked
        return lambda s: [(answer, ways[answer](s, s.objects)) for answer in self._answers(s, thread, question) if answer in ways]

    def _goto(self, thread: int, node: int) -> Callable[[State, tuple[Value, ...]], State]:
        """The thread goes on at `node`, with these objects."""
        ends, behind = node == p.END, thread + 1
        if ends and self.threads[thread].kind == "loop":
            node = self.threads[thread].entry
        here = (node,)
        if not self._counting and not self._tracked:

            def go(s: State, objects: tuple[Value, ...]) -> State:
                at = s.at
                return State(at[:thread] + here + at[behind:], s.turns, s.indices, objects, s.agreed, s.device)

            return go
        turned = ends and self.threads[thread].kind == "loop"

        def count(s: State, objects: tuple[Value, ...]) -> State:
            at, turns, indices = s.at, s.turns, s.indices
            if ends:
                indices = _put(indices, thread, ())
            if turned:
                turns = _put(turns, thread, turns[thread] + 1)
            return self._normal(State(at[:thread] + here + at[behind:], turns, indices, objects, s.agreed, s.device))

        return count

    def _normal(self, state: State) -> State:
        """Turns and counters without what no test can tell apart, so that states repeat."""
        turns = tuple([
            turn if number in self._waiters or turn < self._below else self._below + (turn - self._below) % self._period
            for number, turn in enumerate(state.turns)
        ])  # fmt: skip
        objects = state.objects
        if self._counters:
            objects = tuple([
                min(value, self._goals.get(number, 0))
                if number in self._counters and self._goals.get(number, 0) >= 0
                else value
                for number, value in zip(self.kept, objects, strict=True)
            ])  # fmt: skip
        if self._waiters:
            objects, turns = self._relative(objects, turns)
        return state._replace(objects=objects, turns=turns)

    def _relative(
        self, objects: tuple[Value, ...], turns: tuple[int, ...]
    ) -> tuple[tuple[Value, ...], tuple[int, ...]]:
        """Counters and the turns that wait for them: all fall by the same multiple of the period, when all are large."""
        named = list(zip(self.kept, objects, strict=True))
        levels = [value for number, value in named if self._goals.get(number, 0) < 0]
        levels += [turns[number] for number in self._waiters]
        floor = self._below + max((abs(node.operation.value) for t in self.threads for node in t.nodes
                                   if isinstance(node, p.Do) and isinstance(node.operation, p.CounterWait)), default=0)  # fmt: skip
        low = min(levels)
        if max(levels) - low > COUNTED_TO + floor:
            raise Bounded("a counter runs ahead of the turns that wait for it, or a turn of a counter, without bound")
        # Waits for constants see no difference above the greatest of them.
        fall = max(0, low - floor) // self._period * self._period
        if not fall:
            return objects, turns
        return (
            tuple(value - fall if self._goals.get(number, 0) < 0 else value for number, value in named),
            tuple(turn - fall if number in self._waiters else turn for number, turn in enumerate(turns)),
        )

    # ------------------------------------------------------------ operations and questions

    def _change(self, thread: int, what: p.Operation) -> Change | None:
        """What an operation makes of the objects; None when it changes none."""
        if isinstance(what, (p.CellSet, p.CellGet, p.CellClear)):
            if isinstance(what, p.CellGet) and not what.take:
                return None
            at, full, cell = self._place[what.cell.id], isinstance(what, p.CellSet), what.cell
            if not isinstance(cell, p.Slot) and (self._cells[cell.id].depth or 1) == 1:
                return _changed(at, lambda _: (full,))
            return lambda s: _put(s.objects, at, _put(s.objects[at], self._slot(s, thread, cell), full))
        if isinstance(what, p.Put):
            item = (what.tag,)
            return _changed(self._place[what.queue], lambda tags: tags + item)
        if isinstance(what, p.Get):
            return _changed(self._place[what.queue], lambda tags: tags[1:])
        if isinstance(what, p.Take):
            return _changed(self._place[what.pool], lambda free: free - 1)
        if isinstance(what, p.Give):
            # Given behind an event: the event's work ends, so the token is free sooner or later.
            pool = self.program.objects[what.pool]
            assert isinstance(pool, p.Pool)
            size = pool.size
            return _changed(self._place[what.pool], lambda free: min(size, free + 1))
        if isinstance(what, p.Acquire):
            return _changed(self._place[what.lock], lambda count: count - 1)
        if isinstance(what, p.Unlock):
            lock = what.lock
            return _changed(self._place[lock], lambda count: self._unlocked(count, lock))
        if isinstance(what, (p.FlagSet, p.FlagClear)):
            value = isinstance(what, p.FlagSet)
            return _changed(self._place[what.flag], lambda _: value)
        if isinstance(what, p.CounterAdd):
            amount = what.amount
            return _changed(self._place[what.counter], lambda count: count + amount)
        if isinstance(what, p.Advance) and self._tracked:
            depth = self._depth(what.cursor)
            return _changed(self._place[what.cursor], lambda position: (position + 1) % depth)
        return None

    def _depth(self, cursor: int) -> int:
        thing = self.program.objects[cursor]
        assert isinstance(thing, p.Cursor)
        return thing.depth

    def _advanced(self, state: State, thread: int, what: p.Operation) -> State:
        """The position that the cursor gets is an index of this turn."""
        assert isinstance(what, p.Advance)
        position = (int(state.objects[self._place[what.cursor]]) + 1) % self._depth(what.cursor)
        return self._remember(state, thread, what.local, position)

    def _unlocked(self, value: Value, lock: int) -> int:
        thing = self.program.objects[lock]
        assert isinstance(thing, p.Lock)
        if thing.semaphore and int(value) >= COUNTED_TO + thing.count:
            raise Bounded(f"semaphore {thing.name} is released without bound")
        return int(value) + 1

    def _remember(self, state: State, thread: int, local: int, value: int) -> State:
        kept = dict(state.indices[thread])
        kept[local] = value
        return state._replace(indices=_put(state.indices, thread, tuple(sorted(kept.items()))))

    def _slot(self, state: State, thread: int, cell: p.Operand) -> int:
        """The slot of a ring cell that an operand names; 0 for a single cell."""
        if not isinstance(cell, p.Slot):
            return 0
        return self._index(state, thread, cell, self._cells[cell.id].depth or 1)

    def _index(self, state: State, thread: int, operand: p.Slot, depth: int) -> int:
        """The slot that an index names in a ring of that depth."""
        index = operand.index
        if isinstance(index, p.Fixed):
            return index.slot % depth
        if isinstance(index, p.Turn):
            return (state.turns[thread] + index.offset) % depth
        if isinstance(index, p.Last):
            return (int(state.objects[self._place[index.cursor]]) + index.offset) % depth
        known = dict(state.indices[thread])
        if index.local not in known:
            name = self.program.objects[operand.id].name
            raise Bounded(f"{type(self.program.objects[operand.id]).__name__.lower()} {name} is indexed by a value that came through a queue or cell")
        return (known[index.local] + index.offset) % depth

    def _answers(self, state: State, thread: int, q: p.Question) -> tuple[str, ...]:
        if isinstance(q, p.Choose):
            if not q.agreed:
                return q.options
            name, answers, offsets = next(entry for entry in state.agreed if entry[0] == q.name)
            at = offsets[self._askers[name].index(thread)]
            return (answers[at],) if at < len(answers) else q.options
        if isinstance(q, (p.Maybe, p.EventQuery, p.StreamQuery)):
            return ("yes", "no")
        objects, place = state.objects, self._place
        if isinstance(q, p.QueueTag):
            return (_tags(objects[place[q.queue]])[0],)
        if isinstance(q, p.QueueFull):
            queue = self.program.objects[q.queue]
            assert isinstance(queue, p.Queue)
            holds = len(_tags(objects[place[q.queue]])) >= queue.capacity
        elif isinstance(q, p.QueueHolds):
            holds = len(_tags(objects[place[q.queue]])) >= q.count
        elif isinstance(q, p.CellEmpty):
            holds = not objects[place[q.cell.id]][self._slot(state, thread, q.cell)]
        elif isinstance(q, p.FlagIsSet):
            holds = bool(objects[place[q.flag]])
        elif isinstance(q, p.CounterAtLeast):
            holds = int(objects[place[q.counter]]) >= q.value
        elif isinstance(q, p.TryLock):
            holds = int(objects[place[q.lock]]) > 0
        else:
            assert isinstance(q, p.TurnBelow)
            holds = state.turns[thread] < q.value
        return ("yes" if holds else "no",)

    def _answered(self, state: State, thread: int, q: p.Question, answer: str) -> State:
        if isinstance(q, p.TryLock) and answer == "yes":
            place = self._place[q.lock]
            return state._replace(objects=_put(state.objects, place, int(state.objects[place]) - 1))
        if not isinstance(q, p.Choose) or not q.agreed:
            return state
        entries = []
        for name, answers, offsets in state.agreed:
            if name == q.name:
                place = self._askers[name].index(thread)
                answers = answers if offsets[place] < len(answers) else (*answers, answer)
                offsets = _put(offsets, place, offsets[place] + 1)
                asked = min(offsets)
                if len(answers) - asked > COUNTED_TO:
                    raise Bounded(f"one thread asks {name!r} without bound ahead of another")
                answers, offsets = answers[asked:], tuple(offset - asked for offset in offsets)
            entries.append((name, answers, offsets))
        return state._replace(agreed=tuple(entries))


def turn_ends(thread: p.Thread) -> bool:
    """Whether no circle of nodes lies within a turn: nodes without a way out are taken away until none is left."""
    into: dict[int, list[int]] = {}
    left: dict[int, int] = {}
    for number, node in enumerate(thread.nodes):
        targets = {node.next} if isinstance(node, p.Do) else {target for _, target in node.branches}
        targets.discard(p.END)
        left[number] = len(targets)
        for target in targets:
            into.setdefault(target, []).append(number)
    todo = [number for number, count in left.items() if count == 0]
    gone = 0
    while todo:
        gone += 1
        for number in into.get(todo.pop(), ()):
            left[number] -= 1
            if left[number] == 0:
                todo.append(number)
    return gone == len(thread.nodes)


def _end(what: p.Operation | p.Question) -> str:
    """At which end of a queue something works; "" if at none."""
    if isinstance(what, p.Put):
        return "put"
    if isinstance(what, (p.Get, p.QueueTag)):
        return "get"
    return "test" if isinstance(what, (p.QueueFull, p.QueueHolds)) else ""


def _questions(thread: p.Thread) -> Iterator[p.Question]:
    return (node.question for node in thread.nodes if isinstance(node, p.Ask))


def _waits_by_turn(thread: p.Thread) -> bool:
    """Whether the thread compares a counter with its turn."""
    operations = (node.operation for node in thread.nodes if isinstance(node, p.Do))
    return any(isinstance(operation, p.CounterWait) and operation.per_turn for operation in operations)


def _tags(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


def _changed(place: int, new: Callable[[Value], Value]) -> Change:
    """The objects with a new value of one of them."""
    behind = place + 1

    def change(s: State) -> tuple[Value, ...]:
        objects = s.objects
        return (*objects[:place], new(objects[place]), *objects[behind:])

    return change


def _put(values: tuple[Any, ...], place: int, value: object) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
