"""What liveness looks at: control, and of every shared object as much as decides who can move.

No bits, no antichain, no device: as long as no stream item can wait for a host, all enqueued work ends, so that event and
stream waits end too and a query can go either way (theory: liveness). A thread's own operations are run together up to
the next one that touches what another thread touches; only these interleave.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """One host step: `thread` at `node`, with the answer when it is a question."""

    thread: int
    node: int
    answer: str | None


class State(NamedTuple):
    """`at`: each thread's node (END: it has ended); `turns`: its turn, as far as it matters; `indices`: slots that index
    ring cells; `objects`: one value per shared object, in the order of `Semantics.kept`; `agreed`: answers that some thread has still to ask for."""

    at: tuple[int, ...]
    turns: tuple[int, ...]
    indices: tuple[tuple[tuple[int, int], ...], ...]
    objects: tuple[Value, ...]
    agreed: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = ()


class Bounded(Exception):
    """Something counts beyond what can be followed; `args[0]` says what."""


class Semantics:
    """Successors of states of one program. Reads the program alone; no engine's code is used."""

    def __init__(self, program: p.Program) -> None:
        self.program = program
        self.threads = program.threads
        self._cells = {i: c for i, c in enumerate(program.objects) if isinstance(c, p.Cell)}
        depths = [c.depth for c in self._cells.values() if c.depth is not None]
        self._period = lcm(*depths) if depths else 1
        self._tracked = bool(depths)
        self._below = max((q.value for t in self.threads for q in _questions(t) if isinstance(q, p.TurnBelow)), default=0)
        self._goals = self._counter_goals()
        self._counters = {i for i, thing in enumerate(program.objects) if isinstance(thing, p.Counter)}
        self._waiters = [number for number, thread in enumerate(self.threads) if _waits_by_turn(thread)]
        self.kept: list[int] = []
        """Objects that are followed, by their number in the program."""
        self._place: dict[int, int] = {}
        self._agreed = sorted(
            {q.name for t in self.threads for q in _questions(t) if isinstance(q, p.Choose) and q.agreed}
        )
        self._askers = {
            name: [i for i, t in enumerate(self.threads) if any(isinstance(q, p.Choose) and q.name == name for q in _questions(t))]
            for name in self._agreed
        }

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
        objects: dict[int, Value] = {}
        self.kept.clear()
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
        self.kept.extend(objects)
        self._place = {number: place for place, number in enumerate(objects)}
        count = len(self.threads)
        return State(
            tuple(thread.entry for thread in self.threads), (0,) * count, ((),) * count, tuple(objects.values()),
            tuple((name, (), (0,) * len(self._askers[name])) for name in self._agreed),
        )  # fmt: skip

    # ------------------------------------------------------------ successors

    def ready(self, state: State) -> Iterator[int]:
        """Threads that have not ended and may run: setups first, one after the other."""
        for number, thread in enumerate(self.threads):
            if thread.kind == "setup" and state.at[number] != p.END:
                yield number
                return
        for number, thread in enumerate(self.threads):
            if thread.kind != "setup" and state.at[number] != p.END:
                yield number

    def obstacle(self, state: State, thread: int) -> int | None:
        """The object that the thread waits for in this state; None when it can move."""
        node = self.threads[thread].nodes[state.at[thread]]
        what = node.operation if isinstance(node, p.Do) else node.question
        objects, place = state.objects, self._place
        if isinstance(what, p.Put):
            queue = self.program.objects[what.queue]
            assert isinstance(queue, p.Queue)
            return what.queue if len(_tags(objects[place[what.queue]])) >= queue.capacity else None
        if isinstance(what, p.Get):
            tags = _tags(objects[place[what.queue]])
            return what.queue if not tags or tags[0] != what.tag else None
        if isinstance(what, p.QueueTag):
            return what.queue if not objects[place[what.queue]] else None
        if isinstance(what, p.Take):
            return what.pool if objects[place[what.pool]] == 0 else None
        if isinstance(what, p.Acquire):
            return what.lock if objects[place[what.lock]] == 0 else None
        if isinstance(what, p.FlagWait):
            return what.flag if not objects[place[what.flag]] else None
        if isinstance(what, p.CounterWait):
            goal = what.value + (state.turns[thread] if what.per_turn else 0)
            return what.counter if int(objects[place[what.counter]]) < goal else None
        return None

    def successors(self, state: State, thread: int) -> Iterator[tuple[tuple[Move, ...], State]]:
        """What the thread can do next: one shared operation, then all of its own up to the next shared one.

        Each is the steps and the state after them. Empty when the thread waits.
        """
        if self.obstacle(state, thread) is not None:
            return
        todo: list[tuple[tuple[Move, ...], State]] = [((), state)]
        while todo:
            moves, now = todo.pop()
            node_id = now.at[thread]
            if moves and (node_id == p.END or self._visible(thread, node_id) or self._is_entry(thread, now, moves)):
                yield moves, now
                continue
            for answer, after in reversed(list(self._step(now, thread))):
                todo.append(((*moves, Move(thread, node_id, answer)), after))

    def _is_entry(self, thread: int, state: State, moves: tuple[Move, ...]) -> bool:
        """A whole turn without a shared operation ends the run of own steps: others get their chance."""
        return state.at[thread] == self.threads[thread].entry and len(moves) > 0

    def _visible(self, thread: int, node_id: int) -> bool:
        node = self.threads[thread].nodes[node_id]
        what = node.operation if isinstance(node, p.Do) else node.question
        return isinstance(what, SHARED) or (isinstance(what, p.Choose) and what.agreed) or (
            self._tracked and isinstance(what, p.Advance)
        )  # fmt: skip

    def _step(self, state: State, thread: int) -> Iterator[tuple[str | None, State]]:
        node = self.threads[thread].nodes[state.at[thread]]
        if isinstance(node, p.Do):
            yield None, self._goto(self._done(state, thread, node.operation), thread, node.next)
            return
        branches = dict(node.branches)
        for answer in self._answers(state, thread, node.question):
            if answer in branches:
                yield answer, self._goto(self._answered(state, thread, node.question, answer), thread, branches[answer])

    def _goto(self, state: State, thread: int, node: int) -> State:
        turns, indices = state.turns, state.indices
        if node == p.END:
            indices = _put(indices, thread, ())
            if self.threads[thread].kind == "loop":
                node = self.threads[thread].entry
                turns = _put(turns, thread, turns[thread] + 1)
        return self._normal(state._replace(at=_put(state.at, thread, node), turns=turns, indices=indices))

    def _normal(self, state: State) -> State:
        """Turns and counters without what no test can tell apart, so that states repeat."""
        turns = tuple(
            turn if number in self._waiters or turn < self._below else self._below + (turn - self._below) % self._period
            for number, turn in enumerate(state.turns)
        )
        objects = state.objects
        if self._counters:
            objects = tuple(
                min(value, self._goals.get(number, 0))
                if number in self._counters and self._goals.get(number, 0) >= 0
                else value
                for number, value in zip(self.kept, objects, strict=True)
            )
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

    def _done(self, state: State, thread: int, what: p.Operation) -> State:
        objects, place = list(state.objects), self._place
        if isinstance(what, p.Put):
            objects[place[what.queue]] = (*_tags(objects[place[what.queue]]), what.tag)
        elif isinstance(what, p.Get):
            objects[place[what.queue]] = _tags(objects[place[what.queue]])[1:]
        elif isinstance(what, (p.CellSet, p.CellGet, p.CellClear)):
            if isinstance(what, p.CellGet) and not what.take:
                return state
            flags = list(objects[place[what.cell.id]])
            flags[self._slot(state, thread, what.cell)] = isinstance(what, p.CellSet)
            objects[place[what.cell.id]] = tuple(flags)
        elif isinstance(what, p.Take):
            objects[place[what.pool]] = int(objects[place[what.pool]]) - 1
        elif isinstance(what, p.Give):
            # Given behind an event: the event's work ends, so the token is free sooner or later.
            pool = self.program.objects[what.pool]
            assert isinstance(pool, p.Pool)
            objects[place[what.pool]] = min(pool.size, int(objects[place[what.pool]]) + 1)
        elif isinstance(what, p.Acquire):
            objects[place[what.lock]] = int(objects[place[what.lock]]) - 1
        elif isinstance(what, p.Unlock):
            objects[place[what.lock]] = self._unlocked(objects[place[what.lock]], what.lock)
        elif isinstance(what, (p.FlagSet, p.FlagClear)):
            objects[place[what.flag]] = isinstance(what, p.FlagSet)
        elif isinstance(what, p.CounterAdd):
            objects[place[what.counter]] = int(objects[place[what.counter]]) + what.amount
        elif isinstance(what, p.Advance) and self._tracked:
            cursor = self.program.objects[what.cursor]
            assert isinstance(cursor, p.Cursor)
            position = (int(objects[place[what.cursor]]) + 1) % cursor.depth
            objects[place[what.cursor]] = position
            state = self._remember(state, thread, what.local, position)
        else:
            return state
        return state._replace(objects=tuple(objects))

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
        depth = self._cells[cell.id].depth or 1
        index = cell.index
        if isinstance(index, p.Fixed):
            return index.slot % depth
        if isinstance(index, p.Turn):
            return (state.turns[thread] + index.offset) % depth
        if isinstance(index, p.Last):
            return (int(state.objects[self._place[index.cursor]]) + index.offset) % depth
        known = dict(state.indices[thread])
        if index.local not in known:
            raise Bounded(f"cell {self._cells[cell.id].name} is indexed by a value that came through a queue or cell")
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


def _questions(thread: p.Thread) -> Iterator[p.Question]:
    return (node.question for node in thread.nodes if isinstance(node, p.Ask))


def _waits_by_turn(thread: p.Thread) -> bool:
    """Whether the thread compares a counter with its turn."""
    operations = (node.operation for node in thread.nodes if isinstance(node, p.Do))
    return any(isinstance(operation, p.CounterWait) and operation.per_turn for operation in operations)


def _tags(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


def _put(values: tuple[Any, ...], place: int, value: object) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
