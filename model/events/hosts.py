"""Host-side operations on concrete state: queues, cells, cursors, pools, locks, flags, counters.

Each carries the edges of its rule in model/operations/host.py. Tests ("full", "empty", "is set") come after every
earlier call that changed the object, because a test's outcome must be the same when only what happens before it has run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.model import program as p
from fencepost.model.answer import Step
from fencepost.model.events.clocks import merged
from fencepost.model.events.parts import Key, Ref, Value
from fencepost.model.events.references import DesignError, QueueItem, References


class HostOperations(References):
    """What the host operations do to the state."""

    # ------------------------------------------------------------ hand-over

    def _advance(self, o: p.Advance, step: Step) -> None:
        self._order(("cursor", o.cursor), step.thread)
        cursor = self.program.objects[o.cursor]
        assert isinstance(cursor, p.Cursor)
        self.cursors[o.cursor] = (self.cursors[o.cursor] + 1) % cursor.depth
        self._set_local(step.thread, o.local, self.cursors[o.cursor])

    def _capacity(self, queue: int) -> int:
        found = self.program.objects[queue]
        assert isinstance(found, p.Queue)
        return found.capacity

    def _put(self, o: p.Put, step: Step) -> None:
        values = tuple(self._value(step, v) for v in o.values)
        items, gets = self.queues[o.queue], self.gets[o.queue]
        freed = self._capacity(o.queue) - len(items)  # how many gets ago this item's room was made
        if o.edge and freed <= len(gets):
            self.clocks.absorb(step.thread, gets[-freed])
        self._order(("queue", o.queue), step.thread)
        for value in values:
            self._hold(value)
        self.queues[o.queue] = (*items, QueueItem(o.tag, values, self.clocks.snapshot(step.thread)))
        self._add(step.thread, ("queue", o.queue))

    def _get(self, o: p.Get, step: Step) -> None:
        first, *rest = self.queues[o.queue]
        self.clocks.absorb(step.thread, first.clock)
        if self.gets[o.queue]:
            self.clocks.absorb(step.thread, self.gets[o.queue][-1])
        self._order(("queue", o.queue), step.thread)
        self.queues[o.queue] = tuple(rest)
        clocks = (*self.gets[o.queue], self.clocks.snapshot(step.thread))
        self.gets[o.queue] = clocks[-self._capacity(o.queue) :]
        self._add(step.thread, ("queue", o.queue))
        self._receive(step, o.locals, first.values)

    def _receive(self, step: Step, locals_: tuple[int, ...], values: tuple[Value, ...]) -> None:
        """References move from a queue item or cell into locals; what no local names is dropped."""
        for local, value in zip(locals_, values):  # noqa: B905
            self._set_local(step.thread, local, value)
        for value in values[len(locals_) :]:
            self._let_go(step.thread, value)

    def _cell(self, o: p.CellSet | p.CellGet | p.CellClear, step: Step) -> None:
        cell = self._named(step.thread, o.cell)
        self._join(step.thread, ("cell", cell))
        self._order(("cell", cell), step.thread)
        self._add(step.thread, ("cell", cell))
        old = self.cells.get(cell)
        if isinstance(o, p.CellGet):
            if old is None:
                name = getattr(self.program.objects[cell[0]], "name", "?")
                self.refuse(step, f"get on the empty cell {name!r}; ask empty() first", DesignError)
            assert old is not None
            if o.take:
                del self.cells[cell]
            else:
                for value in old:
                    self._hold(value)
            self._receive(step, o.locals, old)
            return
        new = tuple(self._value(step, v) for v in o.values) if isinstance(o, p.CellSet) else None
        for value in new or ():
            self._hold(value)
        if new is not None:
            self.cells[cell] = new
        else:
            self.cells.pop(cell, None)
        for value in old or ():
            self._let_go(step.thread, value)

    # ------------------------------------------------------------ pools, locks, flags, counters

    def _take(self, o: p.Take, step: Step) -> None:
        pool = self.program.objects[o.pool]
        assert isinstance(pool, p.Pool)
        state = self.pools[o.pool]
        labels, free = dict(state.labels), dict(state.free)
        if step.block is not None and step.block in labels:
            token = labels[step.block]
            if token not in free:
                self.refuse(step, f"token {step.block} of pool {pool.name!r} is taken")
        elif state.made < pool.size:
            token = state.made
            state = state._replace(made=token + 1)
        else:
            named = set(labels.values())
            candidates = [t for t, _ in state.free if t not in named] or ([] if step.block is not None else list(free))
            if not candidates:
                self.refuse(step, f"pool {pool.name!r} has no token left that the run has not numbered otherwise")
            token = candidates[0]
        if token in free:
            self.clocks.absorb(step.thread, free[token])
        self._order(("pool", o.pool), step.thread)
        if step.block is not None:
            labels[step.block] = token
        left = tuple(pair for pair in state.free if pair[0] != token)
        self.pools[o.pool] = state._replace(free=left, labels=tuple(labels.items()))
        self._set_local(step.thread, o.local, token if pool.of == "row" else Ref(Key("pool", o.pool, token)))

    def _give(self, o: p.Give, step: Step) -> None:
        value = self._value(step, o.token)
        token = value.key.number if isinstance(value, Ref) else value
        state = self.pools[o.pool]
        if not isinstance(token, int) or token >= state.made or token in dict(state.free):
            self.refuse(step, "the token given back is not a taken token of this pool", DesignError)
        assert isinstance(token, int)
        clock = self.clocks.snapshot(step.thread)
        captured = self._captured(self._event(step, o.after)) if o.after is not None else None
        self._order(("pool", o.pool), step.thread)
        if isinstance(captured, int):
            self._frees(frozenset((captured,)), clock, None, (o.pool, token))
            return
        if captured is not None:
            clock = merged(clock, captured)
        self.pools[o.pool] = state._replace(free=(*state.free, (token, clock)))

    def _acquire(self, o: p.Acquire, step: Step) -> None:
        if o.edge:
            self._join(step.thread, ("unlocked", o.lock))
        self._locked(o.lock, step.thread)

    def _locked(self, lock: int, thread: int) -> None:
        self._order(("lock", lock), thread)
        self.locks[lock] -= 1
        self.holders[lock] = thread
        self._add(thread, ("lock", lock))

    def _unlock(self, o: p.Unlock, step: Step) -> None:
        lock = self.program.objects[o.lock]
        assert isinstance(lock, p.Lock)
        mutex = lock.count == 1 and not lock.semaphore
        if mutex and (self.locks[o.lock] or self.holders.get(o.lock) != step.thread):
            self.refuse(step, f"unlock of {lock.name!r}, which the thread does not hold")
        self._order(("lock", o.lock), step.thread)
        self.locks[o.lock] += 1
        self._add(step.thread, ("unlocked", o.lock), ("lock", o.lock))

    def _flag(self, o: p.FlagSet | p.FlagClear | p.FlagWait, step: Step) -> None:
        if isinstance(o, p.FlagClear):
            self._join(step.thread, ("flag", o.flag))
        elif isinstance(o, p.FlagWait) and o.edge:
            self._join(step.thread, ("set", o.flag))
        self._order(("flag", o.flag), step.thread)
        if not isinstance(o, p.FlagWait):
            self.flags[o.flag] = isinstance(o, p.FlagSet)
            keys = (("set", o.flag), ("flag", o.flag)) if isinstance(o, p.FlagSet) else (("flag", o.flag),)
            self._add(step.thread, *keys)

    def _counter(self, o: p.CounterAdd | p.CounterWait, step: Step) -> None:
        if isinstance(o, p.CounterWait) and o.edge:
            self._join(step.thread, ("counter", o.counter))
        self._order(("counter", o.counter), step.thread)
        if isinstance(o, p.CounterAdd):
            self.counters[o.counter] = self.counters.get(o.counter, 0) + o.amount
            self._add(step.thread, ("counter", o.counter))


HOST: dict[type, Callable[[Any, Any, Step], None]] = {
    p.Alloc: HostOperations._alloc,
    p.View: HostOperations._view,
    p.Drop: HostOperations._drop,
    p.NewEvent: HostOperations._new_event,
    p.Advance: HostOperations._advance,
    p.Put: HostOperations._put,
    p.Get: HostOperations._get,
    p.CellSet: HostOperations._cell,
    p.CellGet: HostOperations._cell,
    p.CellClear: HostOperations._cell,
    p.Take: HostOperations._take,
    p.Give: HostOperations._give,
    p.Acquire: HostOperations._acquire,
    p.Unlock: HostOperations._unlock,
    p.FlagSet: HostOperations._flag,
    p.FlagClear: HostOperations._flag,
    p.FlagWait: HostOperations._flag,
    p.CounterAdd: HostOperations._counter,
    p.CounterWait: HostOperations._counter,
}
"""What runs each operation that is its own effect."""
