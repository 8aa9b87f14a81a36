"""The shared objects of host threads as far as they decide who can move: what operations make of them, what tests are told."""

from __future__ import annotations

from math import lcm
from typing import Any

from fencepost.model import program as p
from fencepost.proofs.liveness.moves import COUNTED_TO, Bounded, Change, State, Value, changed, with_value
from fencepost.proofs.liveness.text import questions, waits_by_turn


class Hosts:
    """The objects of one program. Reads the program alone; no engine's code is used."""

    def __init__(self, program: p.Program) -> None:
        self.program = program
        self.threads = program.threads
        self.memo: dict[tuple[Any, ...], Any] = {}
        """What the text alone answers, once it was asked."""
        self._cells = {i: c for i, c in enumerate(program.objects) if isinstance(c, p.Cell)}
        depths = self._depths()
        self._period = lcm(*depths) if depths else 1
        self._tracked = bool(depths)
        self._below = max((q.value for t in self.threads for q in questions(t) if isinstance(q, p.TurnBelow)), default=0)
        self._goals = self._counter_goals()
        self._counters = {i for i, thing in enumerate(program.objects) if isinstance(thing, p.Counter)}
        self._waiters = [number for number, thread in enumerate(self.threads) if waits_by_turn(thread)]
        self._setups = [number for number, thread in enumerate(self.threads) if thread.kind == "setup"]
        self._others = [number for number, thread in enumerate(self.threads) if thread.kind != "setup"]
        self._counting = bool(self._below or self._waiters or self._counters) or self._period > 1
        """Whether turns or counters matter."""
        self._first = self._objects()
        self.kept = list(self._first)
        """Objects that are followed, by their number in the program."""
        self._place = {number: place for place, number in enumerate(self.kept)}
        self._agreed = sorted(
            {q.name for t in self.threads for q in questions(t) if isinstance(q, p.Choose) and q.agreed}
        )
        self._askers = {
            name: [i for i, t in enumerate(self.threads) if any(isinstance(q, p.Choose) and q.name == name for q in questions(t))]
            for name in self._agreed
        }

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

    def _change(self, thread: int, what: p.Operation) -> Change | None:
        """What an operation makes of the objects; None when it changes none."""
        if isinstance(what, (p.CellSet, p.CellGet, p.CellClear)):
            if isinstance(what, p.CellGet) and not what.take:
                return None
            at, full, cell = self._place[what.cell.id], isinstance(what, p.CellSet), what.cell
            if not isinstance(cell, p.Slot) and (self._cells[cell.id].depth or 1) == 1:
                return changed(at, lambda _: (full,))
            return lambda s: with_value(s.objects, at, with_value(s.objects[at], self._slot(s, thread, cell), full))
        if isinstance(what, p.Put):
            item = (what.tag,)
            return changed(self._place[what.queue], lambda tags: tags + item)
        if isinstance(what, p.Get):
            return changed(self._place[what.queue], lambda tags: tags[1:])
        if isinstance(what, p.Take):
            return changed(self._place[what.pool], lambda free: free - 1)
        if isinstance(what, p.Give):
            # Given behind an event: the event's work ends, so the token is free sooner or later.
            pool = self.program.objects[what.pool]
            assert isinstance(pool, p.Pool)
            size = pool.size
            return changed(self._place[what.pool], lambda free: min(size, free + 1))
        if isinstance(what, p.Acquire):
            return changed(self._place[what.lock], lambda count: count - 1)
        if isinstance(what, p.Unlock):
            lock = what.lock
            return changed(self._place[lock], lambda count: self._unlocked(count, lock))
        if isinstance(what, (p.FlagSet, p.FlagClear)):
            value = isinstance(what, p.FlagSet)
            return changed(self._place[what.flag], lambda _: value)
        if isinstance(what, p.CounterAdd):
            amount = what.amount
            return changed(self._place[what.counter], lambda count: count + amount)
        if isinstance(what, p.Advance) and self._tracked:
            depth = self._depth(what.cursor)
            return changed(self._place[what.cursor], lambda position: (position + 1) % depth)
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
        return state._replace(indices=with_value(state.indices, thread, tuple(sorted(kept.items()))))

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
            return state._replace(objects=with_value(state.objects, place, int(state.objects[place]) - 1))
        if not isinstance(q, p.Choose) or not q.agreed:
            return state
        entries = []
        for name, answers, offsets in state.agreed:
            if name == q.name:
                place = self._askers[name].index(thread)
                answers = answers if offsets[place] < len(answers) else (*answers, answer)
                offsets = with_value(offsets, place, offsets[place] + 1)
                asked = min(offsets)
                if len(answers) - asked > COUNTED_TO:
                    raise Bounded(f"one thread asks {name!r} without bound ahead of another")
                answers, offsets = answers[asked:], tuple(offset - asked for offset in offsets)
            entries.append((name, answers, offsets))
        return state._replace(agreed=tuple(entries))


def _tags(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value
