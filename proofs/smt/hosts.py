"""Queues, cells, pools, locks, flags, counters and tests of them: enabled or true by what happened before, in time.

A queue is counting: the k-th put meets the k-th get, a put waits until fewer than `capacity` items are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Union

from fencepost.model import program as p
from fencepost.proofs.smt.core import Env, Guarded, NotEncoded, Op, Step
from fencepost.proofs.smt.device import Device
from fencepost.proofs.smt.text import FALSE, TRUE, ZERO, Term, both, conj, disj, implies, neg
from fencepost.proofs.smt.values import EventName, Ref

CellStates = list[tuple[str, Hashable, Union[list[tuple[str, Op]], None]]]
"""(guard, cell, what it may hold where the thread alone uses it) for each cell that an operand may name."""


class Hosts(Device):
    """Operations through which host threads meet."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.empty_gets: list[tuple[Step, str]] = []
        """Steps that get from a cell, with the literal of its being empty."""

    def host_effect(self, env: Env, step: Step, o: Any) -> None:
        """One operation that is its own effect."""
        _HOST[type(o)](self, env, step, o)

    def _new_event(self, env: Env, step: Step, o: p.NewEvent) -> None:
        self.set_local(env, step, o.local, ((TRUE, EventName(True, step.key)),))

    def _view(self, env: Env, step: Step, o: p.View) -> None:
        refs = tuple(
            (g, ref._replace(attributed=ref.attributed and o.attributed, held=ref.held and o.held))
            for g, ref in self.used(env, step, o.base)
        )
        self.set_local(env, step, o.local, refs)

    def _drop(self, env: Env, step: Step, o: p.Drop) -> None:
        self.end_local(env, step.live, env["time"], o.local)

    def _advance(self, env: Env, step: Step, o: p.Advance) -> None:
        cursor = self.program.objects[o.cursor]
        assert isinstance(cursor, p.Cursor)
        before, after = self.ordinal(env, step, step.live, "advance", o.cursor)
        self.enter(("advance", o.cursor), Op(step, step.live, before, after))
        self.set_local(env, step, o.local, self.position(after, cursor.depth, -1))

    # ------------------------------------------------------------ queues

    def capacity(self, queue: int) -> int:
        """Most items that the queue holds."""
        found = self.program.objects[queue]
        assert isinstance(found, p.Queue)
        return found.capacity

    def _put(self, env: Env, step: Step, o: p.Put) -> None:
        if not o.edge:
            raise NotEncoded("a put that orders nothing")
        before, after = self.ordinal(env, step, step.live, "put", o.queue)
        self._room(env, step, o.queue, before)
        values = tuple(self.used(env, step, v) for v in o.values)
        holds = tuple(self.hold(step.live, v) for v in values)
        self.enter(("put", o.queue), Op(step, step.live, before, after, (o.tag, values, holds)))

    def _room(self, env: Env, step: Step, queue: int, before: Term) -> None:
        """The put waits for the get that makes room for it."""
        text, capacity = self.text, self.capacity(queue)
        if self.private(("get", queue), step.thread):
            text.add(implies(step.live, text.le(before.plus(1 - capacity), self.count(env, step, "get", queue))))
            return

        def define() -> None:
            ways = [text.lt(before, ZERO.plus(capacity))]
            for op in self.ops.get(("get", queue), []):
                ways.append(conj((op.live, text.eq(op.before.plus(capacity), before), self.before(op.step, step))))
            text.add(implies(step.live, disj(ways)))

        self.defer(define)

    def _items(self, queue: int, tag: str | None, step: Step, number: Term) -> list[tuple[str, Op]]:
        """The puts that may be the one of this number, each with its literal."""
        text = self.text
        return [
            (text.literal(conj((op.live, text.eq(op.before, number)))), op)
            for op in self.ops.get(("put", queue), [])
            if (tag is None or op.data[0] == tag) and text.eq(op.before, number) != FALSE
            and (op.step.thread != step.thread or op.step.seq < step.seq)
        ]  # fmt: skip

    def _get(self, env: Env, step: Step, o: p.Get) -> None:
        text = self.text
        number, after = self.ordinal(env, step, step.live, "get", o.queue)
        if self.private(("put", o.queue), step.thread):
            text.add(implies(step.live, text.lt(number, self.count(env, step, "put", o.queue))))
        self.enter(("get", o.queue), Op(step, step.live, number, after))
        cache: list[list[tuple[str, Op]]] = []

        def items() -> list[tuple[str, Op]]:
            if not cache:
                cache.append(self._items(o.queue, o.tag, step, number))
            return cache[0]

        def define() -> None:
            text.add(implies(step.live, disj(literal for literal, _ in items())))
            for literal, op in items():
                text.add(implies(both(step.live, literal), self.before(op.step, step)))
                for hold in op.data[2]:
                    if hold is not None:
                        hold.ends.append((text.literal(both(step.live, literal)), step.instant))

        self._receive(env, step, o.locals, items)
        self.defer(define)

    def _receive(self, env: Env, step: Step, locals_: tuple[int, ...], items: Callable[[], list[tuple[str, Op]]]) -> None:
        for pos, local in enumerate(locals_):

            def sources(pos: int = pos) -> list[tuple[str, Guarded]]:
                return [(literal, self.of_op(op, pos)) for literal, op in items() if pos < len(op.data[1])]

            self.set_local(env, step, local, self.receive(step, pos, sources))

    # ------------------------------------------------------------ cells

    def _cell_states(self, env: Env, step: Step, cell: p.Operand) -> CellStates:
        result: CellStates = []
        for guard, key in self.named(env, step, cell):
            mine = self.private(("cell", key[0]), step.thread)
            states = [(g, op) for g, op in env.get(("cell", key), ()) if op is not None] if mine else None
            result.append((guard, ("cell", key), states))
        return result

    def _contents(self, step: Step, states: CellStates) -> list[tuple[str, Op]]:
        """The stored items that the operation may see, when all threads are unrolled."""
        found: list[tuple[str, Op]] = []
        for guard, cell, mine in states:
            if mine is None:
                mine = [(lit, op) for lit, op in self.latest(step, self.ops.get(cell, [])) if op.data is not None]
            found += [(self.text.literal(both(guard, literal)), op) for literal, op in mine]
        return found

    def _change(self, env: Env, step: Step, states: CellStates, data: Any) -> None:
        """The cells hold `data` from now on; what they held loses that reference."""
        for guard, cell, mine in states:
            op = Op(step, self.text.literal(both(step.live, guard)), ZERO, ZERO, data)
            if mine is not None:
                assert isinstance(cell, tuple)
                old = tuple((self.text.literal(both(neg(guard), g)), was) for g, was in mine) if guard != TRUE else ()
                env[cell] = tuple((g, was) for g, was in (*old, (guard, op)) if g != FALSE and was.data is not None)
            else:
                self.enter(cell, op)

        def define() -> None:
            for literal, was in self._contents(step, states):
                for hold in was.data[2]:
                    if hold is not None:
                        hold.ends.append((self.text.literal(both(step.live, literal)), step.instant))

        self.defer(define)

    def _cell_set(self, env: Env, step: Step, o: p.CellSet) -> None:
        states = self._cell_states(env, step, o.cell)
        values = tuple(self.used(env, step, v) for v in o.values)
        holds = tuple(self.hold(step.live, v) for v in values)
        self._change(env, step, states, ("", values, holds))

    def _cell_clear(self, env: Env, step: Step, o: p.CellClear) -> None:
        self._change(env, step, self._cell_states(env, step, o.cell), None)

    def _cell_get(self, env: Env, step: Step, o: p.CellGet) -> None:
        text = self.text
        states = self._cell_states(env, step, o.cell)
        failed = text.boolean("x")
        self.empty_gets.append((step, failed))
        cache: list[list[tuple[str, Op]]] = []

        def items() -> list[tuple[str, Op]]:
            if not cache:
                cache.append(self._contents(step, states))
            return cache[0]

        def define() -> None:
            there = text.literal(disj(literal for literal, _ in items()))
            text.add(implies(step.live, f"(= {failed} {neg(there)})"))

        if o.take:
            self._change(env, step, states, None)
        if all(mine is not None for _, _, mine in states):
            for pos, local in enumerate(o.locals):
                ways = [(literal, self.of_op(op, pos)) for literal, op in items()]
                self.set_local(env, step, local, self.join_values(ways))
        else:
            self._receive(env, step, o.locals, items)
        self.defer(define)

    def cell_empty(self, env: Env, step: Step, cell: p.Operand) -> str:
        """Literal: the cell is empty."""
        states = self._cell_states(env, step, cell)
        if all(mine is not None for _, _, mine in states):
            return self.text.literal(neg(disj(literal for literal, _ in self._contents(step, states))))
        empty = self.text.boolean("y")

        def define() -> None:
            there = disj(literal for literal, _ in self._contents(step, states))
            self.text.add(implies(step.live, f"(= {empty} {neg(there)})"))

        self.defer(define)
        return empty

    # ------------------------------------------------------------ pools

    def _take(self, env: Env, step: Step, o: p.Take) -> None:
        text = self.text
        pool = self.program.objects[o.pool]
        assert isinstance(pool, p.Pool)
        names = [text.boolean("k") for _ in range(pool.size)]
        text.add(implies(step.live, disj(names)))
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                text.add(disj((neg(one), neg(other))))
            self.enter(("take", o.pool, i), Op(step, text.literal(both(step.live, one))))
        row = pool.of == "row"
        values = tuple((name, i if row else Ref(("token", o.pool, i))) for i, name in enumerate(names))
        self.set_local(env, step, o.local, values)

        def define() -> None:
            for i, name in enumerate(names):
                gives = self.ops.get(("give", o.pool, i), [])
                for give in gives:
                    back = conj((step.live, name, give.live, self.before(give.step, step)))
                    text.add(implies(back, text.le(give.after, step.instant)))
                for take in self.ops[("take", o.pool, i)]:
                    if take.step is step:
                        continue
                    earlier = conj((step.live, name, take.live, self.before(take.step, step)))
                    if earlier != FALSE:
                        between = [
                            conj((g.live, self.before(take.step, g.step), self.before(g.step, step))) for g in gives
                        ]
                        text.add(implies(earlier, disj(between)))

        self.defer(define)

    def _give(self, env: Env, step: Step, o: p.Give) -> None:
        free = ZERO if o.after is None else self.captured(env, step, o.after)
        for guard, value in self.used(env, step, o.token):
            number = value.key[2] if isinstance(value, Ref) else value
            live = self.text.literal(both(step.live, guard))
            self.enter(("give", o.pool, number), Op(step, live, ZERO, free))

    # ------------------------------------------------------------ locks, flags, counters

    def _free(self, env: Env, step: Step, lock: int, taken: Term) -> str:
        """Formula: the lock is free when `taken` acquisitions came before."""
        found = self.program.objects[lock]
        assert isinstance(found, p.Lock)
        return self.text.le(taken.plus(1 - found.count), self.count(env, step, "unlock", lock))

    def _acquire(self, env: Env, step: Step, o: p.Acquire) -> None:
        if not o.edge:
            raise NotEncoded("an acquire that orders nothing")
        before, after = self.ordinal(env, step, step.live, "acquire", o.lock)
        self.text.add(implies(step.live, self._free(env, step, o.lock, before)))
        self.enter(("acquire", o.lock), Op(step, step.live, before, after))

    def try_lock(self, env: Env, step: Step, o: p.TryLock) -> str:
        """Literal: the lock is free."""
        return self.text.literal(self._free(env, step, o.lock, self.count(env, step, "acquire", o.lock)))

    def locked(self, env: Env, step: Step, lock: int, live: str) -> None:
        """The "yes" of a try-lock."""
        before, after = self.ordinal(env, step, live, "acquire", lock)
        self.enter(("acquire", lock), Op(step, live, before, after))

    def _unlock(self, env: Env, step: Step, o: p.Unlock) -> None:
        before, after = self.ordinal(env, step, step.live, "unlock", o.lock)
        self.enter(("unlock", o.lock), Op(step, step.live, before, after))

    def flag(self, env: Env, step: Step, flag: int) -> str:
        """Literal: the flag is set."""
        what = ("flag", flag)
        if self.private(what, step.thread):
            found: str = env.get(what, FALSE)
            return found
        is_set = self.text.boolean("f")

        def define() -> None:
            stores = disj(literal for literal, op in self.latest(step, self.ops.get(what, [])) if op.data)
            self.text.add(implies(step.live, f"(= {is_set} {stores})"))

        self.defer(define)
        return is_set

    def _flag_set(self, env: Env, step: Step, o: p.FlagSet | p.FlagClear) -> None:
        value = isinstance(o, p.FlagSet)
        env[("flag", o.flag)] = TRUE if value else FALSE
        self.enter(("flag", o.flag), Op(step, step.live, ZERO, ZERO, value))

    def _flag_wait(self, env: Env, step: Step, o: p.FlagWait) -> None:
        if not o.edge:
            raise NotEncoded("a wait for a flag that orders nothing")
        self.text.add(implies(step.live, self.flag(env, step, o.flag)))

    def _counter_add(self, env: Env, step: Step, o: p.CounterAdd) -> None:
        before, after = self.ordinal(env, step, step.live, "add", o.counter, o.amount)
        self.enter(("add", o.counter), Op(step, step.live, before, after))

    def _counter_wait(self, env: Env, step: Step, o: p.CounterWait) -> None:
        if not o.edge:
            raise NotEncoded("a wait for a counter that orders nothing")
        goal = o.value + (step.turn if o.per_turn else 0)
        self.text.add(implies(step.live, self.at_least(env, step, o.counter, goal)))

    def at_least(self, env: Env, step: Step, counter: int, value: int) -> str:
        """Formula: the counter is at least `value`."""
        return self.text.le(ZERO.plus(value), self.count(env, step, "add", counter))


def _alloc(hosts: Hosts, env: Env, step: Step, o: p.Alloc) -> None:
    hosts.allocate(env, step, o)


_HOST: dict[type, Callable[[Any, Env, Step, Any], None]] = {
    p.Alloc: _alloc,
    p.View: Hosts._view,
    p.Drop: Hosts._drop,
    p.NewEvent: Hosts._new_event,
    p.Advance: Hosts._advance,
    p.Put: Hosts._put,
    p.Get: Hosts._get,
    p.CellSet: Hosts._cell_set,
    p.CellGet: Hosts._cell_get,
    p.CellClear: Hosts._cell_clear,
    p.Take: Hosts._take,
    p.Give: Hosts._give,
    p.Acquire: Hosts._acquire,
    p.Unlock: Hosts._unlock,
    p.FlagSet: Hosts._flag_set,
    p.FlagClear: Hosts._flag_set,
    p.FlagWait: Hosts._flag_wait,
    p.CounterAdd: Hosts._counter_add,
    p.CounterWait: Hosts._counter_wait,
}
