"""When a host step can run, and which answers a question can get, in a concrete state."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.events.clocks import Clock
from fencepost.model.events.hosts import HostOperations

WAITING = (p.Put, p.Get, p.QueueTag, p.Take, p.Acquire, p.FlagWait, p.CounterWait, p.WaitFlag)
"""What may have to wait for another thread."""


class HostTests(HostOperations):
    """Enabledness and answers, which follow the state; and the edges that an answer makes."""

    words: dict[int, tuple[int, Clock | None]]
    """Of each device flag its value, and the clock of the store that put it there."""

    def _obstacle(self, thread: int, what: p.Operation | p.Question) -> str:
        """Why the step, one of `WAITING`, cannot run now; empty when it can."""
        if isinstance(what, p.Put) and len(self.queues[what.queue]) >= self._capacity(what.queue):
            return f"put on the full queue {self._name(what.queue)}"
        if isinstance(what, (p.Get, p.QueueTag)):
            items = self.queues[what.queue]
            if not items:
                return f"the queue {self._name(what.queue)} is empty"
            if isinstance(what, p.Get) and items[0].tag != what.tag:
                return f"the oldest item of {self._name(what.queue)} has tag {items[0].tag!r}, not {what.tag!r}"
        if isinstance(what, p.Take):
            pool = self.program.objects[what.pool]
            assert isinstance(pool, p.Pool)
            state = self.pools[what.pool]
            if not state.free and state.made >= pool.size:
                return f"the pool {self._name(what.pool)} has no free token"
        if isinstance(what, p.Acquire) and self.locks[what.lock] <= 0:
            return f"the lock {self._name(what.lock)} is held"
        if isinstance(what, p.FlagWait) and not self.flags.get(what.flag, False):
            return f"the flag {self._name(what.flag)} is not set"
        if isinstance(what, p.CounterWait):
            goal = what.value + (self._turn[thread] if what.per_turn else 0)
            if self.counters.get(what.counter, 0) < goal:
                return f"the counter {self._name(what.counter)} is below {goal}"
        if isinstance(what, p.WaitFlag) and what.stream is None and self.words[what.flag][0] < what.value:
            return f"the device flag {self._name(what.flag)} is {self.words[what.flag][0]}, below {what.value}"
        return ""

    def _name(self, id_: int) -> str:
        return repr(self.program.objects[id_].name)

    def _answers(self, thread: int, q: p.Question) -> set[str]:
        """The answers that are possible in this state."""
        if isinstance(q, p.Choose):
            turn = self._turn[thread]
            for key in ((q.name, thread, turn), (q.name, turn)):
                if key in self.chosen:
                    return {self.chosen[key]}
            return set(q.options)
        if isinstance(q, p.Maybe):
            return {"yes", "no"}
        if isinstance(q, p.QueueTag):
            items = self.queues[q.queue]
            return {items[0].tag} if items else set()
        if isinstance(q, (p.EventQuery, p.StreamQuery)):
            return self._query_answers(thread, q)
        return {"yes" if self._holds(thread, q) else "no"}

    def _holds(self, thread: int, q: p.Question) -> bool:
        """A test whose outcome the state decides."""
        if isinstance(q, p.QueueFull):
            return len(self.queues[q.queue]) >= self._capacity(q.queue)
        if isinstance(q, p.QueueHolds):
            return len(self.queues[q.queue]) >= q.count
        if isinstance(q, p.CellEmpty):
            return self._named(thread, q.cell) not in self.cells
        if isinstance(q, p.FlagIsSet):
            return self.flags.get(q.flag, False)
        if isinstance(q, p.CounterAtLeast):
            return self.counters.get(q.counter, 0) >= q.value
        if isinstance(q, p.TryLock):
            return self.locks[q.lock] > 0
        assert isinstance(q, p.TurnBelow)
        return self._turn[thread] < q.value

    def _answered(self, thread: int, q: p.Question, answer: str) -> None:
        """The edges of a test, from every earlier change of its object, and what else the answer does."""
        if isinstance(q, p.Choose):
            turn = self._turn[thread]
            self.chosen[(q.name, turn) if q.agreed else (q.name, thread, turn)] = answer
        elif isinstance(q, p.QueueTag):
            self.clocks.absorb(thread, self.queues[q.queue][0].clock)
            if self.gets[q.queue]:  # the items before it are gone
                self.clocks.absorb(thread, self.gets[q.queue][-1])
            self._order(("queue", q.queue), thread)
        elif isinstance(q, (p.QueueFull, p.QueueHolds)):
            self._test(("queue", q.queue), thread)
        elif isinstance(q, p.CellEmpty):
            self._test(("cell", self._named(thread, q.cell)), thread)
        elif isinstance(q, p.FlagIsSet):
            self._test(("flag", q.flag), thread)
        elif isinstance(q, p.CounterAtLeast):
            self._test(("counter", q.counter), thread)
        elif isinstance(q, p.TryLock):
            self._test(("lock", q.lock), thread)
            if answer == "yes":
                self._locked(q.lock, thread)

    def _test(self, key: tuple[str, object], thread: int) -> None:
        self._join(thread, key)
        self._order(key, thread)
