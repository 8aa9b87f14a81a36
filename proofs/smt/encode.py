"""From a program and a number of turns to SMT-LIB text: threads unrolled, and the goals that a model must reach one of.

Every loop thread makes at most `bound` turns, scripts and setup make one. A thread may stop before a turn and before
every step that can wait for ever. Device work always ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations.meetings import first_meeting
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform
from fencepost.proofs.smt.core import COUNTED, Env, NotEncoded, Step
from fencepost.proofs.smt.goals import Goals
from fencepost.proofs.smt.text import FALSE, TRUE, ZERO, both, conj, disj, implies, neg

BLOCKING = (p.Put, p.Get, p.Take, p.Acquire, p.FlagWait, p.CounterWait, p.CellGet)
"""Operations before which a thread may stop for ever."""

WITHOUT_INSTANT = (p.NewEvent, p.Drop)
"""Operations that no other agent can see."""

ROUNDS = 3
"""How often a thread goes round each circle within a turn at most."""


def encode(
    program: p.Program, bound: int, platform: Platform = PLATFORMS["cuda"], environment: Environment = BARE
) -> Encoder:
    """The encoding of all runs with at most `bound` turns per loop thread. Raises `NotEncoded` naming the feature."""
    known: dict[Hashable, tuple[Any, ...]] = {}
    while True:
        encoder = Encoder(program, bound, platform, environment, known)
        encoder.unroll()
        if all(set(values) <= set(known.get(key, ())) for key, values in encoder.found.items()):
            encoder.goals_of_accesses()
            return encoder
        known = {
            key: tuple(dict.fromkeys((*known.get(key, ()), *encoder.found.get(key, ()))))
            for key in {**known, **encoder.found}
        }


class Encoder(Goals):
    """The threads' control flow."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.ended: dict[int, list[tuple[str, Env]]] = {}
        self.started: dict[int, list[str]] = {}
        """Turn -> literals: a loop thread has started that turn."""
        self.rounds: dict[int, None] = {}
        """Threads that can go round within a turn."""
        self.choices: dict[Hashable, dict[str, str]] = {}

    def unroll(self) -> None:
        """All threads, setup first."""
        meeting = first_meeting(self.program)
        if meeting is not None:
            raise NotEncoded(meeting)
        threads = list(enumerate(self.program.threads))
        for t, thread in sorted(threads, key=lambda one: one[1].kind != "setup"):
            self._thread(t, thread)
        for options in self.choices.values():
            literals = list(options.values())
            for i, one in enumerate(literals):
                for other in literals[i + 1 :]:
                    self.text.add(disj((neg(one), neg(other))))
        self.settle()

    def _thread(self, t: int, thread: p.Thread) -> None:
        start: Env = {"time": ZERO}
        ways: list[tuple[str, Env]] = [(TRUE, start)]
        if thread.kind != "setup":
            setups = [s for s, other in enumerate(self.program.threads) if other.kind == "setup"]
            ways = self._after_setup(setups)
        self._seq = 0
        order = _topological(thread)
        for turn in range(self.bound if thread.kind == "loop" else 1):
            if not ways or thread.entry == p.END:
                break
            begun = self.text.boolean(f"turn_{t}_{turn}_")
            self.text.add(implies(begun, disj(edge for edge, _ in ways)))
            if thread.kind == "loop":
                self.started.setdefault(turn, []).append(begun)
            env = self.join(ways)
            ways = self._turn(t, thread, turn, begun, env, order)
        self.ended[t] = ways

    def _after_setup(self, setups: list[int]) -> list[tuple[str, Env]]:
        done = [self.text.literal(disj(edge for edge, _ in self.ended[s])) for s in setups]
        time = ZERO
        if setups:
            time = self.text.integer("t")
            for s in setups:
                for edge, env in self.ended[s]:
                    self.text.add(implies(edge, self.text.le(env["time"], time)))
        return [(self.text.literal(conj(done)), {"time": time})]

    def _turn(self, t: int, thread: p.Thread, turn: int, begun: str, env: Env, order: list[int]) -> list[tuple[str, Env]]:
        """One turn; the ways out of it. An edge back starts the next round, the last round's lead nowhere."""
        place = {n: i for i, n in enumerate(order)}
        circles = any(x in place and place[x] <= place[n] for n in order for x in _following(thread.nodes[n]))
        if circles:
            self.rounds[t] = None
        ended: list[tuple[str, Env]] = []
        arriving: dict[int, list[tuple[str, Env]]] = {thread.entry: [(begun, env)]}
        for round_ in range(ROUNDS + 1 if circles else 1):
            here, arriving = arriving, {}
            for n in order:
                ways = [(edge, there) for edge, there in here.pop(n, []) if edge != FALSE]
                for edge, following, there in self._node(t, thread, turn, n, round_, ways, begun) if ways else ():
                    if following == p.END:
                        self.end_turn(there, edge)
                        ended.append((edge, there))
                    else:
                        onward = here if place[following] > place[n] else arriving
                        onward.setdefault(following, []).append((edge, there))
        return ended

    def _node(
        self, t: int, thread: p.Thread, turn: int, n: int, round_: int, ways: list[tuple[str, Env]], begun: str,
    ) -> list[tuple[str, int, Env]]:  # fmt: skip
        here = self.text.literal(disj(edge for edge, _ in ways))
        state = self.join(ways)
        node = thread.nodes[n]
        waits = isinstance(node, p.Do) and isinstance(node.operation, BLOCKING)
        if isinstance(node, p.Ask):
            question = node.question
            waits = isinstance(question, p.QueueTag) or (isinstance(question, p.Choose) and question.agreed)
        live = here
        if waits:
            live = self.text.boolean("a")
            self.text.add(implies(live, here))
        self.text.add(implies(live, begun))  # follows, but not from one clause at a time
        step = Step((t, turn, n + round_ * len(thread.nodes)), n, live, node, self._seq)
        self._seq += 1
        self.steps.append(step)
        self._instant(step, state)
        if isinstance(node, p.Do):
            self._do(step, node, state)
            return [(live, node.next, state)]
        return self._ask(step, node, state)

    def _instant(self, step: Step, env: Env) -> None:
        node = step.node
        if isinstance(node, p.Do) and isinstance(node.operation, WITHOUT_INSTANT):
            return
        if isinstance(node, p.Ask) and isinstance(node.question, (p.Maybe, p.TurnBelow, p.Choose)):
            return
        step.c = self.text.integer("c")
        self.text.add(self.text.lt(env["time"], step.c))
        step.done = env["time"] = step.c

    def _do(self, step: Step, node: p.Do, env: Env) -> None:
        for number, effect in enumerate(self.lowered[step.thread, step.at]):
            step.effect = number
            handler = _EFFECTS.get(type(effect))
            if handler is not None:
                handler(self, env, step, effect)
            else:
                self.host_effect(env, step, effect)

    def _ask(self, step: Step, node: p.Ask, env: Env) -> list[tuple[str, int, Env]]:
        answers = self._answers(step, node, env)
        leaving = []
        for answer, following in node.branches:
            edge = self.text.literal(both(step.live, answers.get(answer, FALSE)))
            if edge == FALSE:
                continue
            step.answers.append((answer, edge))
            there = dict(env)
            if isinstance(node.question, p.TryLock) and answer == "yes":
                self.locked(there, step, node.question.lock, edge)
            leaving.append((edge, following, there))
        return leaving

    def _answers(self, step: Step, node: p.Ask, env: Env) -> dict[str, str]:
        """Literal of each answer, given that the question is asked."""
        text, question = self.text, node.question
        if isinstance(question, p.Choose):
            key = (question.name, step.turn) if question.agreed else (question.name, step.thread, step.turn)
            options = self.choices.setdefault(key, {})
            for option in question.options:
                if option not in options:
                    options[option] = text.boolean("o")
            text.add(implies(step.live, disj(options[answer] for answer, _ in node.branches if answer in options)))
            return options
        if isinstance(question, p.Maybe):
            yes = text.boolean("y")
        elif isinstance(question, (p.EventQuery, p.StreamQuery)):
            yes = self.query(env, step, question)
        elif isinstance(question, p.QueueTag):
            return self._tags(step, node, question, env)
        elif isinstance(question, p.TryLock):
            yes = self.try_lock(env, step, question)
        else:
            yes = text.literal(self._test(step, question, env))
        return {"yes": yes, "no": neg(yes)}

    def _test(self, step: Step, question: p.Question, env: Env) -> str:
        """Formula of a test whose outcome the state decides."""
        if isinstance(question, (p.QueueFull, p.QueueHolds)):
            count = question.count if isinstance(question, p.QueueHolds) else self.capacity(question.queue)
            put, got = (self.count(env, step, kind, question.queue) for kind in ("put", "get"))
            return self.text.le(got.plus(count), put)
        if isinstance(question, p.CellEmpty):
            return self.cell_empty(env, step, question.cell)
        if isinstance(question, p.FlagIsSet):
            return self.flag(env, step, question.flag)
        if isinstance(question, p.CounterAtLeast):
            return self.at_least(env, step, question.counter, question.value)
        if isinstance(question, p.TurnBelow):
            return TRUE if step.turn < question.value else FALSE
        raise NotEncoded(f"the question {type(question).__name__}")

    def _tags(self, step: Step, node: p.Ask, question: p.QueueTag, env: Env) -> dict[str, str]:
        text = self.text
        got = self.count(env, step, "get", question.queue)
        names = {answer: text.boolean("q") for answer, _ in node.branches}
        text.add(implies(step.live, disj(names.values())))
        ordered = list(names.values())
        for i, one in enumerate(ordered):
            for other in ordered[i + 1 :]:
                text.add(disj((neg(one), neg(other))))

        def define() -> None:
            for answer, name in names.items():
                items = self._items(question.queue, answer, step, got)
                there = disj(both(literal, self.before(op.step, step)) for literal, op in items)
                text.add(implies(both(step.live, name), there))

        self.defer(define)
        return names


_EFFECTS: dict[type, Callable[[Any, Env, Step, Any], None]] = {
    e.Touch: Encoder.touch,
    e.Enqueue: Encoder.enqueue,
    e.RecordEvent: Encoder.record,
    e.JoinEvent: Encoder.join_event,
    e.JoinStream: Encoder.join_stream,
    e.JoinDevice: Encoder.join_device,
    e.StreamJoinsEvent: lambda self, env, step, x: self.stream_waits(env, step, x.stream, self.captured(env, step, x.event)),
    e.StreamJoinsStream: lambda self, env, step, x: self.stream_waits(env, step, x.stream, self.recorded(env, step, x.other)),
    e.NoteUse: lambda self, env, step, x: self.note_use(
        step, self.used(env, step, x.block), self.named(env, step, x.stream), x.space
    ),
}


def _following(node: p.Node) -> list[int]:
    return [node.next] if isinstance(node, p.Do) else [following for _, following in node.branches]


def _topological(thread: p.Thread) -> list[int]:
    """The thread's nodes in an order in which every edge goes forward, but for one in each circle."""
    order: list[int] = []
    seen: set[int] = set()
    stack: list[tuple[int, bool]] = [(thread.entry, False)]
    while stack:
        n, left = stack.pop()
        if left:
            order.append(n)
        elif n != p.END and n not in seen:
            seen.add(n)
            stack.append((n, True))
            stack += [(following, False) for following in _following(thread.nodes[n])]
    return order[::-1]


__all__ = ["COUNTED", "Encoder", "NotEncoded", "encode"]
