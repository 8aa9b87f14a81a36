"""What the host threads of the machine meet through: queues, cells, pools, locks, flags, counters, and all questions.

A blocking call is a step that is not ready yet; a test follows the state at the moment when it is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from fencepost.model import program as p
from fencepost.simulator.machine_allocators import Allocators
from fencepost.simulator.machine_operands import Get, Operands
from fencepost.simulator.machine_state import DesignFault, HostThread, Mark, Value, Work

Run = Callable[[HostThread], Any]
Ready = Callable[[HostThread], bool]


class Shared(Allocators, Operands):
    """State between host threads, and the operations and questions on it."""

    def _reset_host(self) -> None:
        objects = list(enumerate(self.program.objects))
        self.cursors = {i: o.depth - 1 for i, o in objects if isinstance(o, p.Cursor)}
        self.queues: dict[int, deque[tuple[str, tuple[Value, ...]]]] = {
            i: deque() for i, o in objects if isinstance(o, p.Queue)
        }
        self.cells: dict[tuple[int, int], tuple[Value, ...]] = {}
        self.locks = {i: o.count for i, o in objects if isinstance(o, p.Lock)}
        self.holders: dict[int, HostThread] = {}
        self.flags = {i: False for i, o in objects if isinstance(o, p.Flag)}
        self.counters = {i: 0 for i, o in objects if isinstance(o, p.Counter)}
        self.chosen: dict[Any, str] = {}
        self.free_tokens = {i: list(range(o.size)) for i, o in objects if isinstance(o, p.Pool)}
        self.later_tokens: dict[int, list[tuple[int, Mark]]] = {i: [] for i in self.free_tokens}
        for event in self.events.values():
            event.mark = None
        for buffer in self.buffers:
            buffer.reset()

    # ------------------------------------------------------------ hand-over

    def _put(self, t: p.Thread, o: p.Put) -> tuple[Run, Ready | None]:
        queue, tag = o.queue, o.tag
        values = [self.value(t, v) for v in o.values]
        found = self.program.objects[queue]
        assert isinstance(found, p.Queue)
        capacity = found.capacity

        def run(th: HostThread) -> None:
            item = tuple(get(th) for get in values)
            for value in item:
                self.hold(value)
            self.queues[queue].append((tag, item))

        return run, lambda th: len(self.queues[queue]) < capacity

    def _get(self, t: p.Thread, o: p.Get) -> tuple[Run, Ready | None]:
        queue, tag, locals_ = o.queue, o.tag, o.locals

        def run(th: HostThread) -> None:
            self.receive(th, locals_, self.queues[queue].popleft()[1])

        def ready(th: HostThread) -> bool:
            items = self.queues[queue]
            return bool(items) and items[0][0] == tag

        return run, ready

    def receive(self, th: HostThread, locals_: tuple[int, ...], values: tuple[Value, ...]) -> None:
        """References move into locals; those that no local names end."""
        for local, value in zip(locals_, values):  # noqa: B905
            self.bind(th, local, value)
        for value in values[len(locals_) :]:
            self.let_die(value)

    def _cell(self, t: p.Thread, operand: p.Operand) -> Get:
        table = {
            (i, slot): (i, slot)
            for i, o in enumerate(self.program.objects)
            if isinstance(o, p.Cell)
            for slot in range(o.depth or 1)
        }
        return self._slots(t, operand, table)

    def _cell_set(self, t: p.Thread, o: p.CellSet) -> tuple[Run, Ready | None]:
        cell, values = self._cell(t, o.cell), [self.value(t, v) for v in o.values]

        def run(th: HostThread) -> None:
            key = cell(th)
            item = tuple(get(th) for get in values)
            for value in item:
                self.hold(value)
            old = self.cells.get(key, ())
            self.cells[key] = item
            for value in old:
                self.let_die(value)

        return run, None

    def _cell_get(self, t: p.Thread, o: p.CellGet) -> tuple[Run, Ready | None]:
        cell, locals_, take = self._cell(t, o.cell), o.locals, o.take

        def run(th: HostThread) -> None:
            key = cell(th)
            item = self.cells.get(key)
            if item is None:
                raise DesignFault(f"get on the empty cell {self.program.objects[key[0]].name!r}; ask empty() first")
            if take:
                del self.cells[key]
            else:
                for value in item:
                    self.hold(value)
            self.receive(th, locals_, item)

        return run, None

    def _cell_clear(self, t: p.Thread, o: p.CellClear) -> tuple[Run, Ready | None]:
        cell = self._cell(t, o.cell)

        def run(th: HostThread) -> None:
            for value in self.cells.pop(cell(th), ()):
                self.let_die(value)

        return run, None

    # ------------------------------------------------------------ pools, locks, flags, counters

    def _take(self, t: p.Thread, o: p.Take) -> tuple[Run, Ready | None]:
        pool, local = o.pool, o.local
        tokens = self.tokens[pool]

        def run(th: HostThread) -> None:
            free = self.free_tokens[pool]
            which = 0
            if len(free) > 1:
                which = self.chooser.token(th, th.node.index, free)
                self.recorder.blocks.append(which)
            token = free.pop(which)
            self.block = token
            self.bind(th, local, tokens[token])

        def ready(th: HostThread) -> bool:
            later = self.later_tokens[pool]
            if later:
                self.free_tokens[pool] += [token for token, mark in later if mark.done]
                self.later_tokens[pool] = [(token, mark) for token, mark in later if not mark.done]
            return bool(self.free_tokens[pool])

        return run, ready

    def _give(self, t: p.Thread, o: p.Give) -> tuple[Run, Ready | None]:
        pool, token = o.pool, self.value(t, o.token)
        after = self.event(t, o.after) if o.after is not None else None
        found = self.program.objects[pool]
        assert isinstance(found, p.Pool)
        tokens, name = self.tokens[pool], found.name

        def run(th: HostThread) -> None:
            value = token(th)
            number = value if isinstance(value, int) else next(
                (k for k, ref in enumerate(tokens) if ref.buffer is getattr(value, "buffer", None)), -1
            )  # fmt: skip
            out = number in self.free_tokens[pool] or any(number == k for k, _ in self.later_tokens[pool])
            if out or not 0 <= number < len(tokens):
                raise DesignFault(f"the token given back is not a taken token of the pool {name!r}")
            mark = after(th).mark if after is not None else None
            if mark is None or mark.done:
                self.free_tokens[pool].append(number)
            else:
                self.later_tokens[pool].append((number, mark))

        return run, None

    def _acquire(self, t: p.Thread, o: p.Acquire) -> tuple[Run, Ready | None]:
        lock = o.lock
        return lambda th: self._locked(lock, th), lambda th: self.locks[lock] > 0

    def _locked(self, lock: int, th: HostThread) -> None:
        self.locks[lock] -= 1
        self.holders[lock] = th

    def _unlock(self, t: p.Thread, o: p.Unlock) -> tuple[Run, Ready | None]:
        lock = o.lock
        found = self.program.objects[lock]
        assert isinstance(found, p.Lock)
        mutex, name = found.count == 1 and not found.semaphore, found.name

        def run(th: HostThread) -> None:
            if mutex and (self.locks[lock] or self.holders.get(lock) is not th):
                raise DesignFault(f"unlock of {name!r}, which the thread does not hold")
            self.locks[lock] += 1

        return run, None

    def _flag_set(self, t: p.Thread, o: p.FlagSet) -> tuple[Run, Ready | None]:
        flag = o.flag
        return lambda th: self.flags.__setitem__(flag, True), None

    def _flag_clear(self, t: p.Thread, o: p.FlagClear) -> tuple[Run, Ready | None]:
        flag = o.flag
        return lambda th: self.flags.__setitem__(flag, False), None

    def _flag_wait(self, t: p.Thread, o: p.FlagWait) -> tuple[Run, Ready | None]:
        flag = o.flag
        return lambda th: None, lambda th: self.flags[flag]

    def _counter_add(self, t: p.Thread, o: p.CounterAdd) -> tuple[Run, Ready | None]:
        counter, amount = o.counter, o.amount

        def run(th: HostThread) -> None:
            self.counters[counter] += amount

        return run, None

    def _counter_wait(self, t: p.Thread, o: p.CounterWait) -> tuple[Run, Ready | None]:
        counter, value, per_turn = o.counter, o.value, o.per_turn
        return lambda th: None, lambda th: self.counters[counter] >= value + (th.turn if per_turn else 0)

    # ------------------------------------------------------------ questions

    def _choose(self, t: p.Thread, q: p.Choose) -> Any:
        def ask(th: HostThread, options: tuple[str, ...]) -> str:
            key = (q.name, th.turn) if q.agreed else (q.name, th.index, th.turn)
            answer = self.chosen.get(key)
            if answer is None:
                self.chosen[key] = answer = self.open(th, options)
            return answer

        return ask, None

    def open(self, th: HostThread, options: tuple[str, ...]) -> str:
        """An open choice."""
        if len(options) == 1:
            return options[0]
        which: int = self.chooser.answer(th, th.node.index, options)
        self.recorder.answers.append(which)
        return options[which]

    def _maybe(self, t: p.Thread, q: p.Maybe) -> Any:
        return self.open, None

    def _test(self, holds: Callable[[HostThread], bool]) -> Any:
        return (lambda th, options: "yes" if holds(th) else "no"), None

    def _queue_full(self, t: p.Thread, q: p.QueueFull) -> Any:
        found = self.program.objects[q.queue]
        assert isinstance(found, p.Queue)
        queue, capacity = q.queue, found.capacity
        return self._test(lambda th: len(self.queues[queue]) >= capacity)

    def _queue_holds(self, t: p.Thread, q: p.QueueHolds) -> Any:
        queue, count = q.queue, q.count
        return self._test(lambda th: len(self.queues[queue]) >= count)

    def _queue_tag(self, t: p.Thread, q: p.QueueTag) -> Any:
        queue = q.queue
        return (lambda th, options: self.queues[queue][0][0]), (lambda th: bool(self.queues[queue]))

    def _cell_empty(self, t: p.Thread, q: p.CellEmpty) -> Any:
        cell = self._cell(t, q.cell)
        return self._test(lambda th: cell(th) not in self.cells)

    def _event_query(self, t: p.Thread, q: p.EventQuery) -> Any:
        event = self.event(t, q.event)

        def done(th: HostThread) -> bool:
            mark = event(th).mark
            return mark is None or mark.done  # S18, S24

        return self._test(done)

    def _stream_query(self, t: p.Thread, q: p.StreamQuery) -> Any:
        stream = self.stream(t, q.stream)
        return self._test(lambda th: stream(th).pending == 0)  # S34

    def _event_tail(self, t: p.Thread, q: p.EventQuery) -> Callable[[HostThread], tuple[Work, ...]]:
        event = self.event(t, q.event)

        def tail(th: HostThread) -> tuple[Work, ...]:
            mark = event(th).mark
            return () if mark is None else mark.after

        return tail

    def _stream_tail(self, t: p.Thread, q: p.StreamQuery) -> Callable[[HostThread], tuple[Work, ...]]:
        stream = self.stream(t, q.stream)
        return lambda th: stream(th).tail

    def _flag_is_set(self, t: p.Thread, q: p.FlagIsSet) -> Any:
        flag = q.flag
        return self._test(lambda th: self.flags[flag])

    def _counter_at_least(self, t: p.Thread, q: p.CounterAtLeast) -> Any:
        counter, value = q.counter, q.value
        return self._test(lambda th: self.counters[counter] >= value)

    def _try_lock(self, t: p.Thread, q: p.TryLock) -> Any:
        lock = q.lock

        def ask(th: HostThread, options: tuple[str, ...]) -> str:
            if self.locks[lock] <= 0:
                return "no"
            self._locked(lock, th)
            return "yes"

        return ask, None

    def _turn_below(self, t: p.Thread, q: p.TurnBelow) -> Any:
        value = q.value
        return self._test(lambda th: th.turn < value)
