"""What every part of the encoding shares: steps of the unrolled threads, states at a place of a thread, who uses what.

A thread's own state (locals, streams that it alone uses, ...) is carried along its control flow as guarded values and
joined where branches meet. State that several threads touch is settled when all threads are unrolled, by the times of
the steps that changed it (`defer`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations import Context, lower_node
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform
from fencepost.proofs.smt.text import FALSE, TRUE, ZERO, Term, Text, both, conj, disj, implies, neg

Env = dict[Hashable, Any]
"""State at a place of a thread. Times and counts are terms, conditions are literals, all else is guarded values."""
Guarded = tuple[tuple[str, Any], ...]
"""(literal, value) pairs; where the thread is at that place, exactly one literal holds (none: there is no value)."""
StepKey = tuple[int, int, int]
"""Thread, turn, position in the turn."""


class NotEncoded(Exception):
    """A feature that this engine does not handle; the text names it."""


class Step:
    """One host step of the unrolled program."""

    __slots__ = ("answers", "at", "c", "done", "effect", "key", "live", "node", "seq", "thread", "turn")

    def __init__(self, key: StepKey, at: int, live: str, node: p.Node, seq: int) -> None:
        self.key = key
        self.thread, self.turn, _ = key
        self.at = at
        """Its node."""
        self.live = live
        """Literal: the step happens."""
        self.node = node
        self.seq = seq
        """Position among the thread's steps in unrolling order."""
        self.c: Term | None = None
        """Its instant; None for a step that touches nothing which another agent could see."""
        self.done: Term = ZERO
        """Device work that it enqueues starts no earlier."""
        self.answers: list[tuple[str, str]] = []
        self.effect = 0
        """Number of the effect that is being encoded."""

    @property
    def instant(self) -> Term:
        """Its instant, which it must have."""
        assert self.c is not None
        return self.c


class Op(NamedTuple):
    """One change of a shared object: by which step, under which literal; counters before and after it; what it stores."""

    step: Step
    live: str
    before: Term = ZERO
    after: Term = ZERO
    data: Any = None


class Core:
    """Text, steps, operations on shared objects, and deferred constraints."""

    def __init__(self, program: p.Program, bound: int, platform: Platform = PLATFORMS["cuda"],
                 environment: Environment = BARE, known: dict[Hashable, tuple[Any, ...]] | None = None) -> None:  # fmt: skip
        self.program = program
        self.bound = bound
        self.platform = platform
        self.environment = environment
        self.known = known or {}
        """Values that a step may receive from another thread, as the pass before this one found them."""
        self.found: dict[Hashable, tuple[Any, ...]] = {}
        self.text = Text()
        self.steps: list[Step] = []
        self.ops: dict[Hashable, list[Op]] = {}
        self._deferred: list[Callable[[], None]] = []
        self.lowered: dict[tuple[int, int], tuple[e.Effect, ...]] = {}
        self.queries = False
        for t, thread in enumerate(program.threads):
            context = Context(program, thread, platform, environment)
            for n, node in enumerate(thread.nodes):
                if isinstance(node, p.Do):
                    self.lowered[t, n] = lower_node(node, context)
                elif isinstance(node.question, (p.EventQuery, p.StreamQuery)):
                    self.queries = True
        self.fifos = _fifos(program, environment)
        self.lanes: dict[tuple[int, int], tuple[Any, ...]] = {}
        """With one hardware queue, for each stream slot what its own last item is noted under; else its FIFO says that."""
        if environment.one_queue:
            self.lanes = {key: ("stream", *key) for key in self.fifos}
        self.asks_streams = any(isinstance(x, e.JoinStream) for effects in self.lowered.values() for x in effects) or any(
            isinstance(n, p.Ask) and isinstance(n.question, p.StreamQuery) for thread in program.threads for n in thread.nodes
        )
        """Whether anything waits for a stream or asks about it."""
        self.amounts: dict[Hashable, int] = {}
        """Greatest amount that one `add` adds to a counter."""
        self.users = _users(self)

    def defer(self, action: Callable[[], None]) -> None:
        """Run `action` when all threads are unrolled."""
        self._deferred.append(action)

    def settle(self) -> None:
        """Run what was deferred."""
        while self._deferred:
            actions, self._deferred = self._deferred, []
            for action in actions:
                action()

    def is_setup(self, thread: int) -> bool:
        """Whether the thread runs before all others."""
        return self.program.threads[thread].kind == "setup"

    def private(self, what: Hashable, thread: int) -> bool:
        """Whether no other thread does `what` or touches it."""
        return self.users.get(what, set()) <= {thread}

    def enter(self, what: Hashable, op: Op) -> None:
        """Note a change of a shared object."""
        self.ops.setdefault(what, []).append(op)

    # ------------------------------------------------------------ order

    def before(self, x: Step, y: Step) -> str:
        """Formula: step `x` comes before step `y` in the host order, given that both happen."""
        if x.thread == y.thread:
            return TRUE if x.seq < y.seq else FALSE
        if self.is_setup(x.thread) != self.is_setup(y.thread):
            return TRUE if self.is_setup(x.thread) else FALSE
        if x.thread < y.thread:
            return self.text.le(x.instant, y.instant)
        return self.text.lt(x.instant, y.instant)

    def latest(self, step: Step, ops: list[Op]) -> list[tuple[str, Op]]:
        """For each operation the literal: it is the last of them before `step`."""
        mine = [(op, both(op.live, self.before(op.step, step))) for op in ops]
        came = [(op, self.text.literal(b)) for op, b in mine if b != FALSE]
        result = []
        for op, b in came:
            parts = [b]
            for other, other_b in came:
                if other is not op:
                    between = self._later(op, other)
                    parts.append(neg(both(other_b, between)) if between != FALSE else TRUE)
            result.append((self.text.literal(conj(parts)), op))
        return [(literal, op) for literal, op in result if literal != FALSE]

    def _later(self, x: Op, y: Op) -> str:
        """Formula: `y` comes after `x`."""
        if x.step is y.step:
            return FALSE  # two possible targets of one operation exclude each other
        return self.before(x.step, y.step)

    def ordinal(self, env: Env, step: Step, live: str, kind: str, obj: int, amount: int = 1) -> tuple[Term, Term]:
        """How many operations of this kind the object has seen when this one happens, before and after it."""
        what = (kind, obj)
        if self.private(what, step.thread):
            before: Term = env.get(what, ZERO)
            env[what] = before.plus(amount)
        else:
            before = self.text.integer("n", 0, amount * self._most(what))
            self.defer(lambda: self._ordinal_of(what, step, live, before, amount))
        after = before.plus(amount)
        return before, after

    def _most(self, what: Hashable) -> int:
        """An upper bound of how many operations of a kind there are."""
        total = 0
        for t, thread in enumerate(self.program.threads):
            if t in self.users[what]:
                total += len(thread.nodes) * (self.bound if thread.kind == "loop" else 1)
        return total

    def _ordinal_of(self, what: Hashable, step: Step, live: str, before: Term, amount: int) -> None:
        others = [op for op in self.ops[what] if op.step is not step]
        if any(op.after != op.before.plus(amount) for op in others):
            raise NotEncoded("a counter to which several threads add different amounts")
        self._count_of(step, live, before, others)

    def count(self, env: Env, step: Step, kind: str, obj: int) -> Term:
        """How many operations of this kind happened before the step."""
        what = (kind, obj)
        if self.private(what, step.thread):
            found: Term = env.get(what, ZERO)
            return found
        most = self._most(what) * max(self.amounts.get(what, 1), 1)
        before = self.text.integer("n", 0, most)
        self.defer(lambda: self._count_of(step, step.live, before, self.ops.get(what, [])))
        return before



    def _count_of(self, step: Step, live: str, count: Term, ops: list[Op]) -> None:
        text = self.text
        reached = [text.eq(count, ZERO)]
        for op in ops:
            if op.step is step:
                continue
            earlier = self.before(op.step, step)
            text.add(implies(conj((live, op.live, earlier)), text.le(op.after, count)))
            text.add(implies(conj((live, op.live, neg(earlier))), text.le(count, op.before)))
            reached.append(conj((op.live, earlier, text.eq(count, op.after))))
        text.add(implies(live, disj(reached)))

    # ------------------------------------------------------------ joining states

    def join(self, ways: list[tuple[str, Env]]) -> Env:
        """The state where several ways meet, exactly one of which was gone."""
        if len(ways) == 1:
            return dict(ways[0][1])
        result: Env = {}
        for key in dict.fromkeys(key for _, env in ways for key in env):
            if isinstance(key, tuple) and key[0] == "touched":
                continue
            values = [env.get(key) for _, env in ways]
            first = values[0]
            if all(value == first for value in values):
                result[key] = first
                continue
            sample = next(value for value in values if value is not None)
            if isinstance(sample, Term):
                result[key] = self._join_terms(key, [(edge, env.get(key, ZERO)) for edge, env in ways])
            elif isinstance(sample, str):
                parts = [both(edge, env.get(key, FALSE)) for edge, env in ways]
                result[key] = self.text.literal(disj(parts))
            else:
                result[key] = self.join_values([(edge, env.get(key, ())) for edge, env in ways])
        return result

    def _join_terms(self, key: Hashable, ways: list[tuple[str, Term]]) -> Term:
        text = self.text
        counts = all(term.name in text.ranges for _, term in ways) and isinstance(key, tuple) and key[0] in COUNTED
        if counts:
            bounds = [text.bounds(term) for _, term in ways]
            met = text.integer("m", min(low for low, _ in bounds), max(high for _, high in bounds))
        else:
            met = text.integer("t")
        for edge, term in ways:
            text.add(implies(edge, text.le(term, met)))
            if counts or (self.queries and key != "time"):
                text.add(implies(edge, text.le(met, term)))
        return met

    def join_values(self, ways: Iterable[tuple[str, Guarded]]) -> Guarded:
        """Guarded values where several ways meet."""
        ways = list(ways)
        collected: dict[Any, list[tuple[str, str]]] = {}
        for edge, values in ways:
            for guard, value in values:
                collected.setdefault(value, []).append((edge, guard))
        result = []
        for value, found in collected.items():
            if len({edge for edge, _ in found}) == len(ways) and len({guard for _, guard in found}) == 1:
                result.append((found[0][1], value))
            else:
                result.append((self.text.literal(disj(both(edge, guard) for edge, guard in found)), value))
        return tuple(result)

    def simplified(self, values: Iterable[tuple[str, Any]]) -> Guarded:
        """Guarded values with equal values put together."""
        collected: dict[Any, list[str]] = {}
        for guard, value in values:
            if guard != FALSE:
                collected.setdefault(value, []).append(guard)
        return tuple((self.text.literal(disj(guards)), value) for value, guards in collected.items())


COUNTED = ("put", "get", "acquire", "unlock", "add", "advance")
"""Kinds of operations that are counted."""


def _fifos(program: p.Program, environment: Environment) -> dict[tuple[int, int], tuple[Any, ...]]:
    """The FIFO of each stream slot; with one hardware queue all streams of a GPU and process share one (S115)."""
    result: dict[tuple[int, int], tuple[Any, ...]] = {}
    for number, found in enumerate(program.objects):
        if isinstance(found, p.Stream):
            for slot in range(found.depth or 1):
                one = ("queue", found.gpu, found.process) if environment.one_queue else ("stream", number, slot)
                result[number, slot] = one
    return result


def _users(core: Core) -> dict[Hashable, set[int]]:
    """Which threads touch each FIFO, event, cell, flag, cursor, and which do each kind of counted operation."""
    program, users = core.program, dict[Hashable, set[int]]()

    def use(thread: int, *keys: Hashable) -> None:
        for key in keys:
            users.setdefault(key, set()).add(thread)

    def operand(thread: int, found: object) -> None:
        if not isinstance(found, (p.Obj, p.Slot)):
            return
        what = program.objects[found.id]
        if isinstance(what, p.Stream):
            use(thread, *(core.fifos[found.id, slot] for slot in range(what.depth or 1)))
            if core.lanes:
                use(thread, *(core.lanes[found.id, slot] for slot in range(what.depth or 1)))
        elif isinstance(what, p.Event):
            use(thread, ("event", found.id))
        elif isinstance(what, p.Cell):
            use(thread, ("cell", found.id))

    def indices(thread: int, data: object) -> None:
        if isinstance(data, p.Last):
            use(thread, ("cursor", data.cursor))
        elif isinstance(data, p.Data):
            operand(thread, data)
            for name in type(data).__struct_fields__:
                indices(thread, getattr(data, name))
        elif isinstance(data, tuple):
            for one in data:
                indices(thread, one)

    for t, thread in enumerate(program.threads):
        for n, node in enumerate(thread.nodes):
            if isinstance(node, p.Ask):
                indices(t, node.question)
                question = node.question
                if isinstance(question, p.FlagIsSet):
                    use(t, ("flag", question.flag))
                elif isinstance(question, p.TryLock):
                    use(t, ("acquire", question.lock))
                continue
            for effect in core.lowered[t, n]:
                indices(t, effect)
                if isinstance(effect, e.JoinDevice):
                    for (number, _), fifo in core.fifos.items():
                        stream = program.objects[number]
                        if isinstance(stream, p.Stream) and (stream.gpu, stream.process) == (effect.gpu, effect.process):
                            use(t, fifo)
                elif isinstance(effect, p.Put):
                    use(t, ("put", effect.queue))
                    _handed_over(program, effect.values, use)
                elif isinstance(effect, p.CellSet):
                    _handed_over(program, effect.values, use)
                elif isinstance(effect, p.Get):
                    use(t, ("get", effect.queue))
                elif isinstance(effect, (p.Acquire, p.Unlock)):
                    use(t, ("acquire" if isinstance(effect, p.Acquire) else "unlock", effect.lock))
                elif isinstance(effect, (p.FlagSet, p.FlagClear, p.FlagWait)):
                    use(t, ("flag", effect.flag))
                elif isinstance(effect, p.CounterAdd):
                    use(t, ("add", effect.counter))
                    core.amounts[("add", effect.counter)] = max(
                        effect.amount, core.amounts.get(("add", effect.counter), 1)
                    )
                elif isinstance(effect, p.Advance):
                    use(t, ("cursor", effect.cursor), ("advance", effect.cursor))
    return users


def _handed_over(program: p.Program, values: tuple[object, ...], use: Callable[..., None]) -> None:
    """An event that travels as a value may be used wherever it arrives."""
    for value in values:
        if isinstance(value, (p.Obj, p.Slot)) and isinstance(program.objects[value.id], p.Event):
            use(-1, ("event", value.id))
