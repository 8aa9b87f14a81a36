"""Streams and events in time: when a stream is drained, what a record captured, and who waits for it.

Nothing of happens-before is used: an item starts when its stream is drained, a wait returns when what it waits for has
ended, a query says "no" only while something runs (S2, S18-S24, S32-S34).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.smt.core import Env, Guarded, Op, Step
from fencepost.proofs.smt.text import FALSE, TRUE, ZERO, Term, both, conj, disj, implies, neg
from fencepost.proofs.smt.values import Values

PROMPT = "prompt"
"""A literal that may be assumed: waits take no time. Runs without a "no" of a query lose nothing by it."""


class Access(NamedTuple):
    """Accesses to memory in an interval of time, by the calling thread (`fifos` None) or by an item of a stream."""

    step: Step
    effect: int
    fifos: Guarded | None
    start: Term
    end: Term
    write: bool
    same_bytes: bool
    targets: Guarded


class Device(Values):
    """Effects on streams and events."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.accesses: list[Access] = []
        if self.queries:
            self.text.named(PROMPT)

    # ------------------------------------------------------------ streams

    def streams(self, env: Env, step: Step, operand: p.Operand) -> Guarded:
        """The FIFOs that a stream operand may name."""
        return self.simplified((g, self.fifos[key]) for g, key in self.named(env, step, operand))

    def _lanes(self, env: Env, step: Step, operand: p.Operand) -> Guarded:
        """With one hardware queue: what is noted of the streams themselves that an operand may name (S116)."""
        return self.simplified((g, self.lanes[key]) for g, key in self.named(env, step, operand))

    def last(self, env: Env, step: Step, operand: p.Operand) -> Term:
        """When the stream's own last item has ended: what a call that waits for the stream waits for."""
        if not self.lanes:
            return self.tail(env, step, operand)
        lanes = self._lanes(env, step, operand)
        if len(lanes) == 1:
            return self.drained(env, step, lanes[0][1])
        return self._chosen([(g, self.drained(env, step, lane)) for g, lane in lanes])

    def drained(self, env: Env, step: Step, fifo: Hashable) -> Term:
        """When everything that is in the FIFO at the call has ended."""
        own: Term = env.get(("drained", fifo), ZERO)
        if self.private(fifo, step.thread) or env.get(("touched", fifo)) == step.key:
            return own
        text = self.text
        found = text.integer("w")
        text.add(text.le(own, found))

        def define() -> None:
            reached = [text.le(found, own)]
            for op in self.ops.get(fifo, []):
                if op.step.thread != step.thread:
                    came = conj((op.live, self.before(op.step, step)))
                    text.add(implies(came, text.le(op.after, found)))
                    reached.append(conj((came, text.le(found, op.after))))
            if self.queries:
                text.add(implies(step.live, disj(reached)))

        self.defer(define)
        return found

    def _grow(self, env: Env, step: Step, fifos: Guarded, new: dict[Hashable, Term]) -> None:
        """The FIFOs are drained no earlier than `new` from now on."""
        text = self.text
        for guard, fifo in fifos:
            after = new[fifo]
            if guard != TRUE:
                old: Term = env.get(("drained", fifo), ZERO)
                met = text.integer("d")
                text.add(text.le(old, met))
                text.add(implies(guard, text.le(after, met)))
                if self.queries:
                    text.add(implies(guard, text.le(met, after)))
                    text.add(implies(neg(guard), text.le(met, old)))
                after = met
            env[("drained", fifo)] = after
            env[("touched", fifo)] = step.key
            self.enter(fifo, Op(step, text.literal(both(step.live, guard)), ZERO, new[fifo]))

    def enqueue(self, env: Env, step: Step, effect: e.Enqueue) -> None:
        """One item: it starts after its call and when its FIFO is drained (S2)."""
        text = self.text
        fifos = self.streams(env, step, effect.stream)
        start, end = text.integer("s"), text.integer("e")
        text.add(text.le(step.done, start))
        text.add(text.lt(start, end))
        for guard, fifo in fifos:
            text.add(implies(guard, text.le(self.drained(env, step, fifo), start)))
        self._grow(env, step, fifos, {fifo: end for _, fifo in fifos})
        self._is_last(env, step, effect.stream, end)
        for access in effect.accesses:
            self._access(env, step, access, fifos, start, end)

    def _is_last(self, env: Env, step: Step, operand: p.Operand, end: Term) -> None:
        """With one hardware queue: the stream's own last item ends at `end`, behind all that is in the queue."""
        if self.lanes:
            lanes = self._lanes(env, step, operand)
            self._grow(env, step, lanes, {lane: end for _, lane in lanes})

    def touch(self, env: Env, step: Step, effect: e.Touch) -> None:
        """Host accesses: they last for a while after the call."""
        end = self.text.integer("e")
        self.text.add(self.text.lt(step.instant, end))
        for access in effect.accesses:
            self._access(env, step, access, None, step.instant, end)
        step.done = end
        self._returns(env, end)

    def _access(self, env: Env, step: Step, access: p.Access, fifos: Guarded | None, start: Term, end: Term) -> None:
        targets = self.used(env, step, access.target)
        write = access.mode == "w"
        self.accesses.append(Access(step, step.effect, fifos, start, end, write, access.same_bytes, targets))

    def _returns(self, env: Env, *after: Term) -> None:
        """The call returns no earlier than these times."""
        text = self.text
        back = text.integer("r")
        for time in (env["time"], *after):
            text.add(text.le(time, back))
        env["time"] = back

    def _waits(self, env: Env, step: Step, *over: Term) -> None:
        """The call returns when these times are over. Under `PROMPT` it is made no earlier than it can return."""
        self._returns(env, *over)
        if self.queries:
            for time in over:
                self.text.add(implies(both(PROMPT, step.live), self.text.le(time, step.instant)))

    # ------------------------------------------------------------ events

    def tail(self, env: Env, step: Step, operand: p.Operand) -> Term:
        """When everything is over that is in the stream at the call: what a record captures (S19)."""
        fifos = self.streams(env, step, operand)
        if len(fifos) == 1:
            return self.drained(env, step, fifos[0][1])
        return self._chosen([(g, self.drained(env, step, fifo)) for g, fifo in fifos])

    def recorded(self, env: Env, step: Step, operand: p.Operand) -> Term:
        """A record: an item of its stream, which in a shared queue may be behind others' (S19, S116)."""
        captured = self.tail(env, step, operand)
        self._is_last(env, step, operand, captured)
        return captured

    def _chosen(self, cases: list[tuple[str, Term]]) -> Term:
        """The term whose guard holds."""
        found = self.text.integer("w")
        for guard, term in cases:
            self.text.add(implies(guard, self.text.le(term, found)))
            if self.queries:
                self.text.add(implies(guard, self.text.le(found, term)))
        return found

    def record(self, env: Env, step: Step, effect: e.RecordEvent) -> None:
        """The event's capture becomes the stream's tail."""
        text = self.text
        captured = self.recorded(env, step, effect.stream)
        for guard, event in self.used(env, step, effect.event):
            if self._alone(event, step):
                old: Term = env.get(("captured", event), ZERO)
                env[("captured", event)] = (
                    captured if guard == TRUE else self._chosen([(guard, captured), (neg(guard), old)])
                )
            else:
                self.enter(event, Op(step, text.literal(both(step.live, guard)), ZERO, captured))

    def _alone(self, event: Any, step: Step) -> bool:
        return not event.made and self.private(("event", event.key[0]), step.thread)

    def captured(self, env: Env, step: Step, operand: p.Operand) -> Term:
        """When the work of the event's latest record at the call has ended; never recorded: at once (S18)."""
        cases = []
        for guard, event in self.used(env, step, operand):
            if self._alone(event, step):
                cases.append((guard, env.get(("captured", event), ZERO)))
            else:
                cases.append((guard, self._latest_capture(step, event)))
        return cases[0][1] if len(cases) == 1 else self._chosen(cases)

    def _latest_capture(self, step: Step, event: Hashable) -> Term:
        text = self.text
        found = text.integer("w")

        def define() -> None:
            latest = self.latest(step, self.ops.get(event, []))
            for literal, op in latest:
                text.add(implies(literal, text.le(op.after, found)))
                if self.queries:
                    text.add(implies(literal, text.le(found, op.after)))
            if self.queries:
                never = conj(neg(literal) for literal, _ in latest)
                text.add(implies(conj((step.live, never)), text.eq(found, ZERO)))

        text.add(text.le(ZERO, found))
        self.defer(define)
        return found

    def join_event(self, env: Env, step: Step, effect: e.JoinEvent) -> None:
        """The call returns when the captured work has ended (S23)."""
        self._waits(env, step, self.captured(env, step, effect.event))

    def join_stream(self, env: Env, step: Step, effect: e.JoinStream) -> None:
        """The call returns when the stream is drained (S32)."""
        self._waits(env, step, self.last(env, step, effect.stream))

    def join_device(self, env: Env, step: Step, effect: e.JoinDevice) -> None:
        """The call returns when every stream of the process on that GPU is drained (S32)."""
        fifos: dict[Hashable, None] = {}
        for (number, _), fifo in self.fifos.items():
            stream = self.program.objects[number]
            if isinstance(stream, p.Stream) and (stream.gpu, stream.process) == (effect.gpu, effect.process):
                fifos[fifo] = None
        self._waits(env, step, *(self.drained(env, step, fifo) for fifo in fifos))

    def stream_waits(self, env: Env, step: Step, operand: p.Operand, time: Term) -> None:
        """Items that are enqueued later start no earlier than `time` (S20, S22)."""
        text = self.text
        fifos = self.streams(env, step, operand)
        new: dict[Hashable, Term] = {}
        for guard, fifo in fifos:
            old = self.drained(env, step, fifo)
            if time == ZERO or guard == FALSE:
                new[fifo] = old
                continue
            met = new[fifo] = text.integer("d")
            text.add(text.le(old, met))
            text.add(text.le(time, met))
            if self.queries:
                text.add(disj((text.le(met, old), text.le(met, time))))
        own: dict[Hashable, Term] = {}
        lanes = self._lanes(env, step, operand) if self.lanes else ()
        for guard, lane in lanes:
            # If the event is over by then the wait is no item; else it may be one behind all that is in the queue.
            old = self.drained(env, step, lane)
            if time == ZERO or guard == FALSE:
                own[lane] = old
                continue
            met = own[lane] = text.integer("d")
            text.add(text.le(old, met))
            text.add(text.le(time, met))
            if self.queries:
                text.add(disj((text.le(met, old), text.le(met, time), *(text.eq(met, new[fifo]) for _, fifo in fifos))))
        self._grow(env, step, fifos, new)
        self._grow(env, step, lanes, own)

    # ------------------------------------------------------------ queries

    def query(self, env: Env, step: Step, question: p.EventQuery | p.StreamQuery) -> str:
        """Literal: the answer is "yes", everything has ended; "no": something has not (S24, S34)."""
        text = self.text
        if isinstance(question, p.EventQuery):
            over = self.captured(env, step, question.event)
        else:
            over = self.last(env, step, question.stream)
        yes = text.boolean("y")
        text.add(implies(conj((step.live, yes)), text.le(over, step.instant)))
        text.add(implies(conj((step.live, neg(yes))), text.lt(step.instant, over)))
        return yes
