"""What the operations of a design do to a `World`, for one class of memory: the meaning of every effect, once more.

Written from the shared page of rules (model/effects.py, model/operations, theory section 2 and 3) and from nothing of
the explorer, so that a certificate is checked by other code than the code that found it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.certificates.footprint import device_streams
from fencepost.proofs.certificates.meetings import Meetings
from fencepost.proofs.certificates.world import DONE, Block, Queue, Step, Unsupported, Value, World

RECORDED, COMPLETE = 1, 2


class Machine(Meetings):
    """Runs single nodes. `ready` and `run` are all that the relation needs."""

    def start(self) -> World:
        """The state before the first step: nothing guessed, nothing carried."""
        w = World.__new__(World)
        threads = self.program.threads
        w.pc = [DONE if t.entry == p.END and t.kind != "loop" else t.entry for t in threads]
        w.turns = [0] * len(threads)
        w.pos = [depth - 1 if kind == "cursor" else 0 for kind, _, depth in self.positions]
        w.locals = [[None] * len(t.locals) for t in threads]
        w.tb = [0] * len(threads)
        w.events = [0] * len(self.event_slots)
        w.known = [0] * len(self.event_slots)
        w.called = [0] * len(self.event_slots) if self.track else []
        w.streams = [0] * len(self.stream_slots)
        w.calls = [0] * (len(self.stream_slots) if self.track else 0)
        w.busy = [False] * len(w.calls)
        w.queues = [Queue((), () if self.alone[i] else (0,) * self.object(i, p.Queue).capacity, 0, 0) for i in self.queue]
        w.cells = [(None, 0) for _ in self.cell_slots]
        w.locks = [(self.object(i, p.Lock).count, 0, 0) for i in self.lock]
        w.flags = [(False, 0, 0) for _ in self.flag]
        w.counters = [((0,) * len(self.counted[i]), 0) for i in self.counter]
        w.pools = [
            ((0,) * (self.object(i, p.Pool).size - (i in self.followed)), 0 if i in self.followed else None)
            for i in self.pool
        ]
        w.agreed = [((0,) * len(askers), ()) for askers in self.askers.values()]
        w.block = Block(0, 0, (), None, ()) if self.cls is not None and self.cls.kind == "block" else None
        w.witness, w.running, w.checks, w.chosen, w.met, w.path = None, -1, (), None, (), ()
        w.spared, w.reader = (), 0
        w.fifos, w.latest = [()] * len(self.stream_slots), [0] * len(self.event_slots)
        w.channels, w.words = [((), 0)] * len(self.channel), [(0, 0)] * len(self.word)
        w.inside, w.late = [()] * len(threads), [()] * len(self.pool)
        return w

    # ------------------------------------------------------------ one node

    def ready(self, w: World, t: int) -> bool:
        """Whether thread `t` can run its next node now."""
        n = w.pc[t]
        node = self.program.threads[t].nodes[n]
        what: Any = node.operation if isinstance(node, p.Do) else node.question
        if isinstance(what, p.Put):
            return len(w.queues[self.queue[what.queue]].items) < self.object(what.queue, p.Queue).capacity
        if isinstance(what, p.Get):
            items = w.queues[self.queue[what.queue]].items
            return bool(items) and items[0][0] == what.tag
        if isinstance(what, p.QueueTag):
            return bool(w.queues[self.queue[what.queue]].items)
        if isinstance(what, p.Acquire):
            return w.locks[self.lock[what.lock]][0] > 0
        if isinstance(what, p.FlagWait):
            return w.flags[self.flag[what.flag]][0]
        if isinstance(what, p.CounterWait):
            slot = self.counted[what.counter].index(t if what.per_turn else -1)
            return w.counters[self.counter[what.counter]][0][slot] >= what.value
        if isinstance(what, p.Take):
            free, guessed = w.pools[self.pool[what.pool]]
            return bool(free) or guessed is not None
        if isinstance(what, p.WaitFlag) and what.stream is None:
            return w.words[self.word[what.flag]][0] >= what.value
        return True

    def run(self, w: World, t: int) -> list[World]:
        """All states after thread `t` ran its next node; `w` may be changed. The pc may be END afterwards."""
        n = w.pc[t]
        node = self.program.threads[t].nodes[n]
        if isinstance(node, p.Ask):
            return self._answer(w, t, n, node)
        w.path = (*w.path, Step(t, n))
        worlds = [w]
        if (t, n) in self.kept:
            which = 0
            for effect in self.footprint.effects[t, n]:
                method = getattr(self, "_" + type(effect).__name__.lower())
                after: list[World] = []
                for one in worlds:
                    after += method(one, t, n, which, effect) or (one,)
                worlds = after
                if isinstance(effect, (e.Touch, e.Enqueue)):
                    which += len(effect.accesses)
        for one in worlds:
            one.pc[t] = node.next
        return [after for one in worlds for after in self.settle(one)] if self.meets else worlds

    def end_turn(self, w: World, t: int) -> None:
        """The body's scope ends, positions move on; a script is finished."""
        thread = self.program.threads[t]
        for k, value in enumerate(w.locals[t]):
            w.locals[t][k] = None
            self._let_go(w, t, value)
        w.path = (*w.path, Step(t, -1))
        w.pc[t] = thread.entry if thread.kind == "loop" else DONE
        w.turns[t] = min(w.turns[t] + 1, self.most_turns[t])
        for k, (kind, who, depth) in enumerate(self.positions):
            if kind == "turn" and who == t:
                w.pos[k] = (w.pos[k] + 1) % depth
        for i, k in self.counter.items():
            values, mask = w.counters[k]
            gone = w.pc[t] == DONE  # nobody compares with its turn any more
            left = tuple(0 if gone and who == t else v - (who == t) for v, who in zip(values, self.counted[i], strict=True))
            w.counters[k] = (left, mask)
        self._agreed_turn(w, t)
        setups = self.setups
        if t in setups and all(w.pc[u] == DONE for u in setups):
            carried = 0
            for u in setups:
                carried |= w.tb[u]
            w.tb = [m | carried for m in w.tb]

    # ------------------------------------------------------------ device work

    def _touch(self, w: World, t: int, n: int, which: int, effect: e.Touch) -> list[World]:
        self.happens(w, t, n, which, len(effect.accesses))
        return self.accessed_by_host(w, t, n, which, effect.accesses)

    def _enqueue(self, w: World, t: int, n: int, which: int, effect: e.Enqueue) -> list[World] | None:
        s = self.stream(w, t, effect.stream)
        if w.fifos[s]:
            self.pend(w, s, t, n, which, effect.accesses)
            return None
        w.streams[s] |= w.tb[t]
        if self.track:
            w.calls[s] |= w.tb[t]
            w.busy[s] = True
        self.happens(w, t, n, which, len(effect.accesses))
        return self.accessed_by_item(w, t, n, which, effect.accesses, s)

    def _recordevent(self, w: World, t: int, n: int, which: int, effect: e.RecordEvent) -> None:
        s, k = self.stream(w, t, effect.stream), self.event(w, t, effect.event)
        if w.fifos[s]:
            number = self.record(w, s, w.tb[t])
            if k is not None:
                w.latest[k] = number
                if self.track:
                    w.called[k], w.known[k] = w.tb[t], RECORDED
            return
        w.streams[s] |= w.tb[t]  # a record is an item of the stream (S2, S19)
        if k is None:
            return
        w.latest[k] = 0
        w.events[k] = w.streams[s]
        if self.track:
            w.called[k] = w.tb[t]
            w.known[k] = RECORDED | (0 if w.busy[s] else COMPLETE)

    def _joinevent(self, w: World, t: int, n: int, which: int, effect: e.JoinEvent) -> None:
        k = self.event(w, t, effect.event)
        if k is not None and w.latest[k]:
            w.inside[t] = (*w.inside[t], w.latest[k])
        elif k is not None:
            w.tb[t] |= w.events[k]
            if w.known[k]:
                w.known[k] |= COMPLETE

    def _joinstream(self, w: World, t: int, n: int, which: int, effect: e.JoinStream) -> None:
        self._join(w, t, self.stream(w, t, effect.stream))

    def _join(self, w: World, t: int, s: int) -> None:
        if w.fifos[s]:  # the call waits for what is there now
            last = w.fifos[s][-1].what
            w.inside[t] = (*w.inside[t], last[1] if last[0] == "record" else self.record(w, s, 0))
            return
        w.tb[t] |= w.streams[s]
        if self.track:
            w.busy[s] = False

    def _joindevice(self, w: World, t: int, n: int, which: int, effect: e.JoinDevice) -> None:
        for oid in device_streams(self.program, effect):
            for slot in range(self.depth(oid)):
                if (oid, slot) in self.stream_at:
                    self._join(w, t, self.stream_at[oid, slot])

    def _streamjoinsevent(self, w: World, t: int, n: int, which: int, effect: e.StreamJoinsEvent) -> None:
        s, k = self.stream(w, t, effect.stream), self.event(w, t, effect.event)
        if k is None:
            return
        if self.track and not w.known[k]:
            return  # never recorded: does nothing (S18), so a "no" of the stream tells nothing of this call
        called = w.called[k] if self.track else 0
        if w.latest[k]:
            self.called_on(w, t, s, called)
            self.append(w, s, ("join", w.latest[k]), 0)
            return
        if w.fifos[s]:  # only later items wait (S20)
            self.called_on(w, t, s, called)
            self.append(w, s, ("go",), w.events[k])
            return
        w.streams[s] |= w.events[k]
        if self.track:
            w.calls[s] |= w.tb[t] | called
            w.busy[s] = w.busy[s] or not w.known[k] & COMPLETE

    def _streamjoinsstream(self, w: World, t: int, n: int, which: int, effect: e.StreamJoinsStream) -> None:
        s, other = self.stream(w, t, effect.stream), self.stream(w, t, effect.other)
        called = w.calls[other] if self.track else 0  # while that one is busy, so is this
        if w.fifos[other]:
            self.called_on(w, t, s, called)
            self.append(w, s, ("join", self.record(w, other, w.tb[t])), 0)
            return
        w.streams[other] |= w.tb[t]  # the record there
        if w.fifos[s]:
            self.called_on(w, t, s, called)
            self.append(w, s, ("go",), w.streams[other])
            return
        w.streams[s] |= w.streams[other]
        if self.track:
            w.calls[s] |= w.tb[t] | called
            w.busy[s] = w.busy[s] or w.busy[other]

    # ------------------------------------------------------------ hand-over

    def _newevent(self, w: World, t: int, n: int, which: int, effect: p.NewEvent) -> None:
        w.events.append(0)
        w.known.append(0)
        w.latest.append(0)
        if self.track:
            w.called.append(0)
        self.set_local(w, t, effect.local, ("E", len(w.events) - 1))

    def _advance(self, w: World, t: int, n: int, which: int, effect: p.Advance) -> None:
        k = self.position_at["cursor", effect.cursor, self.depth(effect.cursor)]
        w.pos[k] = (w.pos[k] + 1) % self.depth(effect.cursor)
        self.set_local(w, t, effect.local, ("I", self.depth(effect.cursor), w.pos[k]))

    def _put(self, w: World, t: int, n: int, which: int, effect: p.Put) -> None:
        k = self.queue[effect.queue]
        q = w.queues[k]
        values = tuple(self.value(w, t, v) for v in effect.values)
        for value in values:
            self._hold(w, value)
        if self.alone[effect.queue]:
            w.queues[k] = q._replace(items=(*q.items, (effect.tag, None, values)))
            return
        if effect.edge:
            w.tb[t] |= q.frees[0]  # get i -> put i + capacity
        every = q.every | w.tb[t] if effect.queue in self.tested else 0
        w.queues[k] = Queue((*q.items, (effect.tag, w.tb[t], values)), q.frees[1:], q.last, every)

    def _get(self, w: World, t: int, n: int, which: int, effect: p.Get) -> None:
        k = self.queue[effect.queue]
        q = w.queues[k]
        _, mask, values = q.items[0]
        if mask is None:
            w.queues[k] = q._replace(items=q.items[1:])
        else:
            w.tb[t] |= mask | q.last
            every = q.every | w.tb[t] if effect.queue in self.tested else 0
            last = w.tb[t] if len(self.getters[effect.queue]) > 1 else 0
            w.queues[k] = Queue(q.items[1:], (*q.frees, w.tb[t]), last, every)
        self._receive(w, t, effect.locals, values)

    def _receive(self, w: World, t: int, targets: tuple[int, ...], values: tuple[Value, ...]) -> None:
        for target, value in zip(targets, values):  # noqa: B905  what no local names is let go
            self.set_local(w, t, target, value)
        for value in values[len(targets) :]:
            self._let_go(w, t, value)

    def _cell(self, w: World, t: int, operand: p.Operand) -> tuple[int, tuple[Value, ...] | None]:
        """Every operation on a cell comes after the earlier ones."""
        k = self.cell_at[self.named(w, t, operand)]
        values, mask = w.cells[k]
        w.tb[t] |= mask
        return k, values

    def _cellset(self, w: World, t: int, n: int, which: int, effect: p.CellSet) -> None:
        k, old = self._cell(w, t, effect.cell)
        values = tuple(self.value(w, t, v) for v in effect.values)
        for value in values:
            self._hold(w, value)
        w.cells[k] = (values, w.tb[t])
        for value in old or ():
            self._let_go(w, t, value)

    def _cellget(self, w: World, t: int, n: int, which: int, effect: p.CellGet) -> None:
        k, values = self._cell(w, t, effect.cell)
        if values is None:
            self.fault(w, "get on an empty cell", t, n)
            w.cells[k] = (None, w.tb[t])
            return
        w.cells[k] = (None if effect.take else values, w.tb[t])
        if not effect.take:
            for value in values:
                self._hold(w, value)
        self._receive(w, t, effect.locals, values)

    def _cellclear(self, w: World, t: int, n: int, which: int, effect: p.CellClear) -> None:
        k, old = self._cell(w, t, effect.cell)
        w.cells[k] = (None, w.tb[t])
        for value in old or ():
            self._let_go(w, t, value)

    def _take(self, w: World, t: int, n: int, which: int, effect: p.Take) -> list[World]:
        """Any free token; tokens that carry the same need not be told apart."""
        k = self.pool[effect.pool]
        rows = self.object(effect.pool, p.Pool).of == "row"
        free, guessed = w.pools[k]
        result = []
        for i in {mask: i for i, mask in reversed(list(enumerate(free)))}.values():
            one = w.copy()
            one.pools[k] = (free[:i] + free[i + 1 :], guessed)
            one.tb[t] |= free[i]
            self.set_local(one, t, effect.local, ("k", effect.pool) if rows else ("O",))
            result.append(one)
        if guessed is not None:
            one = w.copy()
            one.pools[k] = (free, None)
            one.tb[t] |= guessed
            self.set_local(one, t, effect.local, ("K", effect.pool) if rows else ("T", ()))
            one.path = (*one.path[:-1], one.path[-1]._replace(got=True))
            result.append(one)
        return result

    def _give(self, w: World, t: int, n: int, which: int, effect: p.Give) -> None:
        k = self.pool[effect.pool]
        free, guessed = w.pools[k]
        mask, number = w.tb[t], 0
        if effect.after is not None:
            event = self.event(w, t, effect.after)
            number = w.latest[event] if event is not None else 0
            mask |= w.events[event] if event is not None and not number else 0
        token = self.value(w, t, effect.token) if isinstance(effect.token, p.Local) else None
        if token is None:
            raise Unsupported(f"a token is given back to {self.program.objects[effect.pool].name!r} that was not taken in this turn")
        if token[0] in ("K", "T"):
            if guessed is not None or any(one.guessed for one in w.late[k]):
                self.fault(w, "a token is given back twice", t, n)
            if number:
                self.give_later(w, k, True, mask, number)
            else:
                w.pools[k] = (free, mask)
        elif number:
            self.give_later(w, k, False, mask, number)
        else:
            w.pools[k] = ((*free, mask), guessed)
        others = len(w.pools[k][0]) + sum(not one.guessed for one in w.late[k])
        if w.pools[k][0] and others + (effect.pool in self.followed) > self.object(effect.pool, p.Pool).size:
            self.fault(w, "a token is given back twice", t, n)
            w.pools[k] = (w.pools[k][0][:-1], w.pools[k][1])

    # ------------------------------------------------------------ locks, flags, counters

    def _acquire(self, w: World, t: int, n: int, which: int, effect: p.Acquire) -> None:
        k = self.lock[effect.lock]
        free, unlocked, every = w.locks[k]
        if effect.edge:
            w.tb[t] |= unlocked
        w.locks[k] = (free - 1, unlocked, every | w.tb[t])

    def _unlock(self, w: World, t: int, n: int, which: int, effect: p.Unlock) -> None:
        k = self.lock[effect.lock]
        free, unlocked, every = w.locks[k]
        w.locks[k] = (free + 1, unlocked | w.tb[t], every | w.tb[t])

    def _flagset(self, w: World, t: int, n: int, which: int, effect: p.FlagSet) -> None:
        k = self.flag[effect.flag]
        _, stores, every = w.flags[k]
        w.flags[k] = (True, stores | w.tb[t], every | w.tb[t])

    def _flagclear(self, w: World, t: int, n: int, which: int, effect: p.FlagClear) -> None:
        k = self.flag[effect.flag]
        _, stores, every = w.flags[k]
        w.tb[t] |= every
        w.flags[k] = (False, stores, every | w.tb[t])

    def _flagwait(self, w: World, t: int, n: int, which: int, effect: p.FlagWait) -> None:
        if effect.edge:
            w.tb[t] |= w.flags[self.flag[effect.flag]][1]

    def _counteradd(self, w: World, t: int, n: int, which: int, effect: p.CounterAdd) -> None:
        k, cap = self.counter[effect.counter], self.most[effect.counter]
        values, mask = w.counters[k]
        more = tuple(
            min(v + effect.amount, cap) if who < 0 else v if w.pc[who] == DONE else v + effect.amount
            for v, who in zip(values, self.counted[effect.counter], strict=True)
        )
        w.counters[k] = (more, mask | w.tb[t])

    def _counterwait(self, w: World, t: int, n: int, which: int, effect: p.CounterWait) -> None:
        if effect.edge:
            w.tb[t] |= w.counters[self.counter[effect.counter]][1]

    # ------------------------------------------------------------ questions

    def _answer(self, w: World, t: int, n: int, node: p.Ask) -> list[World]:
        branches = dict(node.branches)
        result = []
        for answer, effect in self._answers(w, t, node.question, tuple(branches)):
            if answer in branches:
                one = w.copy()
                if effect is not None:
                    effect(one)
                one.path = (*one.path, Step(t, n, answer))
                one.pc[t] = branches[answer]
                result.append(one)
        return result

    def _answers(
        self, w: World, t: int, q: p.Question, options: tuple[str, ...]
    ) -> list[tuple[str, Callable[[World], None] | None]]:
        """The answers that the state allows, each with what else it does."""
        if isinstance(q, p.Choose) and q.agreed:
            return self._agreed(w, t, q, options)
        if isinstance(q, (p.Choose, p.Maybe)):
            return [(option, None) for option in options]
        if isinstance(q, p.TurnBelow):
            return [("yes" if w.turns[t] < q.value else "no", None)]
        if isinstance(q, (p.EventQuery, p.StreamQuery)):
            return self._query(w, t, q)
        mask, answer = self._test(w, t, q)

        def joined(one: World) -> None:
            one.tb[t] |= mask
            if isinstance(q, p.TryLock) and answer == "yes":
                free, unlocked, every = one.locks[self.lock[q.lock]]
                one.locks[self.lock[q.lock]] = (free - 1, unlocked, every | one.tb[t])

        return [(answer, joined)]

    def _test(self, w: World, t: int, q: p.Question) -> tuple[int, str]:
        """(what the test comes after, its answer) for tests that follow the state: every earlier call on the object."""
        if isinstance(q, (p.QueueFull, p.QueueHolds, p.QueueTag)):
            queue = w.queues[self.queue[q.queue]]
            if isinstance(q, p.QueueTag):
                tag, mask, _ = queue.items[0]
                return (mask or 0) | queue.last, tag
            count = q.count if isinstance(q, p.QueueHolds) else self.object(q.queue, p.Queue).capacity
            yes, mask = len(queue.items) >= count, queue.every
        elif isinstance(q, p.CellEmpty):
            values, mask = w.cells[self.cell_at[self.named(w, t, q.cell)]]
            yes = values is None
        elif isinstance(q, p.FlagIsSet):
            yes, _, mask = w.flags[self.flag[q.flag]]
        elif isinstance(q, p.CounterAtLeast):
            values, mask = w.counters[self.counter[q.counter]]
            yes = values[self.counted[q.counter].index(-1)] >= q.value
        else:
            assert isinstance(q, p.TryLock)
            free, _, mask = w.locks[self.lock[q.lock]]
            yes = free > 0
        return mask or 0, "yes" if yes else "no"

    def _query(
        self, w: World, t: int, q: p.EventQuery | p.StreamQuery
    ) -> list[tuple[str, Callable[[World], None] | None]]:
        """ "yes" is a synchronize; "no" needs work that is not known done, and comes after the call that made it [T]."""
        if isinstance(q, p.StreamQuery):
            s = self.stream(w, t, q.stream)

            def idle(one: World) -> None:
                self._join(one, t, s)

            def busy(one: World) -> None:
                one.tb[t] |= one.calls[s]

            if w.fifos[s]:
                return [("no", busy)]
            return [("yes", idle), *([("no", busy)] if w.busy[s] else [])]
        k = self.event(w, t, q.event)
        if k is None or not w.known[k]:
            return [("yes", None)]

        def done(one: World) -> None:
            one.tb[t] |= one.events[k]
            one.known[k] |= COMPLETE

        def pending(one: World) -> None:
            one.tb[t] |= one.called[k]

        if w.latest[k]:
            return [("no", pending)]
        return [("yes", done), *([("no", pending)] if not w.known[k] & COMPLETE else [])]

    def _agreed(
        self, w: World, t: int, q: p.Choose, options: tuple[str, ...]
    ) -> list[tuple[str, Callable[[World], None] | None]]:
        """Turn k of every thread that asks gets one answer: the first to ask decides."""
        k, me = list(self.askers).index(q.name), self.askers[q.name].index(t)
        turns, log = w.agreed[k]
        known = dict(log)
        if turns[me] in known:
            return [(known[turns[me]], None)]

        def decided(option: str) -> Callable[[World], None]:
            def effect(one: World) -> None:
                one.agreed[k] = (turns, tuple(sorted({**known, turns[me]: option}.items())))

            return effect

        return [(option, decided(option)) for option in options]

    def _agreed_turn(self, w: World, t: int) -> None:
        """Count turns from the slowest asker that goes on; a script's only turn that loops left behind is -1."""
        for k, askers in enumerate(self.askers.values()):
            if t not in askers:
                continue
            turns, log = w.agreed[k]
            moved = [n + (a == t) for n, a in zip(turns, askers, strict=True)]
            going = [n for n, a in zip(moved, askers, strict=True) if w.pc[a] != DONE]
            loops = [n for n, a in zip(moved, askers, strict=True) if self.program.threads[a].kind == "loop"]
            base = min(loops or going, default=0)
            w.agreed[k] = (
                tuple(0 if w.pc[a] == DONE else max(n - base, -1) for n, a in zip(moved, askers, strict=True)),
                tuple((max(n - base, -1), answer) for n, answer in log if n >= base or n in going),
            )

