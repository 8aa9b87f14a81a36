"""Concrete host state, played one host step at a time, with the vector clocks of everything that carries an edge.

Device work has no state of its own while nothing waits on the device: an item's clock is fixed when it is enqueued, because
every edge into it comes from a host step or an item that is already there. So the run's host steps determine the
happens-before relation. What does wait on the device is in meetings.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events.clocks import Clock, VectorClocks, merged
from fencepost.model.events.hosts import HOST
from fencepost.model.events.meetings import Capture, Freeing, Meetings
from fencepost.model.events.parts import EventKey, Key, Path
from fencepost.model.events.questions import WAITING
from fencepost.model.events.references import DesignError, InvalidRun, Named
from fencepost.model.operations import Context, lower_node
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform

__all__ = ["DesignError", "FalseQuery", "InvalidRun", "Node", "Player", "Touched"]


class Touched(NamedTuple):
    """One access with its operand resolved."""

    key: Key
    path: Path
    tenant: int | None
    write: bool
    same_bytes: bool
    harm: str
    freed: int | None = None
    """For a raw pointer: the allocation that it was taken from, when that has been freed before the call."""


_WRITES = operator.attrgetter("write")


class Node(NamedTuple):
    """Something that accesses memory or runs on a stream: a host access or a device item.

    `agent` and `tick` place its end, `clock` is what its start comes after (its own component is `tick`).
    """

    step: int
    thread: int
    turn: int
    stream: tuple[int, int] | None
    """Object and slot of the stream; None for a host access."""
    agent: int
    tick: int
    clock: Clock
    accesses: tuple[Touched, ...]
    """Reads first."""


class FalseQuery(NamedTuple):
    """A query that said "no": at `clock` not all of `items` (agent, tick) had ended."""

    step: int
    clock: Clock
    items: tuple[tuple[int, int], ...]


class Player(Meetings):
    """Plays host steps from the start. After an `InvalidRun` the player is unusable: copy it before trying.

    `total_order` adds the order of host calls on every shared object, for the feasibility test (theory section 2).
    """

    def __init__(self, program: p.Program, platform: Platform = PLATFORMS["cuda"], environment: Environment = BARE,
                 *, keep: bool = True, total_order: bool = False,
                 lowered: dict[tuple[int, int], tuple[e.Effect, ...]] | None = None) -> None:  # fmt: skip
        """`lowered`: effects that are known already, by thread and node; more are entered as they are met."""
        self.program = program
        self.platform = platform
        self.environment = environment
        self.keep = keep
        self.total_order = total_order
        threads = program.threads
        self.fifos = _fifos(program, environment)
        self.lanes = _lanes(self.fifos, len(threads)) if environment.one_queue else self.fifos
        """For each stream slot where what is its own is kept: with one hardware queue not where its items are."""
        self.own: dict[int, tuple[Clock, dict[int, int]]] | None = {} if environment.one_queue else None
        """With one hardware queue, by lane: the clock at the stream's own last item, and the items that this is behind."""
        agents = len(threads) + len(set(self.fifos.values()))
        self.clocks = VectorClocks(agents)
        self.tails: list[dict[int, int]] = [{} for _ in range(agents)]
        # Of the enqueue calls of each stream so far.
        self.calls: list[Clock] = [[0] * agents] * max(agents, *(lane + 1 for lane in self.lanes.values()), 0)
        self.captures: dict[EventKey, Capture] = {}
        self.nodes: list[Node] = []
        self.false_queries: list[FalseQuery] = []
        self.steps = 0
        self._pc = [thread.entry for thread in threads]
        self._turn = [0] * len(threads)
        self._done = [thread.entry == p.END for thread in threads]
        self._started = [False] * len(threads)
        self._set_up = False
        """Whether all setup threads are known to have ended."""
        self._lowered = {} if lowered is None else lowered
        self._init_host()
        self._init_meetings(agents)

    def copy(self) -> Player:
        """An independent player in the same state."""
        other = Player.__new__(Player)
        other.__dict__.update(self.__dict__)
        other.clocks = self.clocks.copy()
        for name in ("calls", "captures", "nodes", "false_queries", "_pc", "_turn", "_done", "_started"):
            setattr(other, name, getattr(self, name).copy())
        other.tails = self.tails[:]
        other.own = None if self.own is None else self.own.copy()
        self._copy_host(other)
        if self.meets:
            self._copy_meetings(other)
        return other

    # ------------------------------------------------------------ where the threads are

    def pc(self, thread: int) -> int:
        """The node that the thread runs next (END when it is finished)."""
        return p.END if self._done[thread] else self._pc[thread]

    def turn(self, thread: int) -> int:
        """The thread's turn, from 0."""
        return self._turn[thread]

    def next_turn(self, thread: int) -> int:
        """The turn of the thread's next step, also when it is inside the last call of the one before."""
        return self._turn[thread] + (self._following.get(thread) == p.END)

    def finished(self, thread: int) -> bool:
        """Whether a setup thread or script has ended."""
        return self._done[thread]

    def node(self, thread: int) -> p.Node:
        """The node that the thread runs next."""
        return self.program.threads[thread].nodes[self._pc[thread]]

    def enabled(self, thread: int) -> bool:
        """Whether the thread can make its next step now."""
        return not self._done[thread] and not self._why_not(thread)

    def _why_not(self, thread: int) -> str:
        """Why a thread that has not ended cannot make its next step; empty when it can."""
        if thread in self.inside:
            return "the thread is inside a call that waits for device work, which is pending"
        source = self.program.threads[thread]
        if not self._set_up and source.kind != "setup" and not self._setup_done():
            return "setup has not ended"
        node = source.nodes[self._pc[thread]]
        what = node.operation if isinstance(node, p.Do) else node.question
        return self._obstacle(thread, what) if isinstance(what, WAITING) else ""

    def possible_answers(self, thread: int) -> tuple[str, ...]:
        """The branches that the state allows, in branch order; empty unless the thread is at a question."""
        node = self.node(thread)
        if self._done[thread] or not isinstance(node, p.Ask):
            return ()
        allowed = self._answers(thread, node.question)
        return tuple(answer for answer, _ in node.branches if answer in allowed)

    def _setup_done(self) -> bool:
        if not self._set_up:
            self._set_up = all(done or t.kind != "setup" for done, t in zip(self._done, self.program.threads, strict=True))
        return self._set_up

    # ------------------------------------------------------------ steps

    def step(self, step: Step) -> None:
        """Run one step. Raises `InvalidRun` when it is not possible in this state."""
        thread, threads = step.thread, self.program.threads
        if not 0 <= thread < len(threads):
            self.refuse(step, f"there is no thread {thread}")
        if step.stream is not None:
            self._device_step(step)
            return
        if self._done[thread]:
            self.refuse(step, "the thread has ended")
        if self._pc[thread] != step.node:
            self.refuse(step, f"the thread is at node {self._pc[thread]}")
        why = self._why_not(thread)
        if why:
            self.refuse(step, why)
        if not self._started[thread]:
            self._start(thread)
        node = threads[thread].nodes[step.node]
        if isinstance(node, p.Do):
            if step.answer is not None:
                self.refuse(step, "an operation takes no answer")
            for effect in self._effects(thread, step.node, node):
                _EFFECTS[type(effect)](self, effect, step)
            following = node.next
        else:
            following = self._ask(step, node)
        self.steps += 1
        if thread in self.inside:
            self._following[thread] = following
        else:
            self._returned(thread, following)
        if self._ordered:
            self._end_call(thread)

    def _returned(self, thread: int, following: int) -> None:
        if following == p.END:
            self._end_turn(thread)
        else:
            self._pc[thread] = following

    def play(self, run: Run) -> None:
        """All steps of a run."""
        for step in run.steps:
            self.step(step)

    def refuse(self, step: Step, why: str, error: type[InvalidRun] = InvalidRun) -> None:
        """Raise `error` for the current step."""
        threads = self.program.threads
        name = threads[step.thread].name if 0 <= step.thread < len(threads) else "?"
        what = "" if step.answer is None else f", answer {step.answer!r}"
        raise error(f"step {self.steps} ({name}, node {step.node}{what}): {why}")

    def _effects(self, thread: int, index: int, node: p.Do) -> tuple[e.Effect, ...]:
        found = self._lowered.get((thread, index))
        if found is None:
            context = Context(self.program, self.program.threads[thread], self.platform, self.environment)
            found = self._lowered[(thread, index)] = lower_node(node, context)
        return found

    def _start(self, thread: int) -> None:
        self._started[thread] = True
        if self.program.threads[thread].kind != "setup":
            for other, t in enumerate(self.program.threads):
                if t.kind == "setup":
                    self.clocks.sync(thread, self.clocks.snapshot(other), other)

    def _end_turn(self, thread: int) -> None:
        self._release_locals(thread)
        self._turn[thread] += 1
        self._pc[thread] = self.program.threads[thread].entry
        if self.program.threads[thread].kind != "loop":
            self._done[thread] = True

    def _ask(self, step: Step, node: p.Ask) -> int:
        branches = dict(node.branches)
        if step.answer not in branches:
            self.refuse(step, f"the question has no branch {step.answer!r}, only {', '.join(branches)}")
        assert step.answer is not None
        allowed = self._answers(step.thread, node.question)
        if step.answer not in allowed:
            self.refuse(step, f"in this state the answer can only be {' or '.join(sorted(allowed)) or 'none'}")
        question = node.question
        if isinstance(question, (p.EventQuery, p.StreamQuery)):
            self._query(step, question)
        else:
            self._answered(step.thread, question, step.answer)
        return branches[step.answer]

    # ------------------------------------------------------------ streams and events

    def stream(self, thread: int, operand: p.Operand) -> Named:
        """The object and slot of a stream."""
        return self._named(thread, operand)

    def _fifo(self, thread: int, operand: p.Operand) -> int:
        fifo = self.fifos[self.stream(thread, operand)]
        self._order(("stream", fifo), thread)
        return fifo

    def _touch(self, effect: e.Touch, step: Step) -> None:
        tick = self.clocks.touch(step.thread)
        if self.keep:
            accesses = self._resolved(step, effect.accesses)
            clock = self.clocks.snapshot(step.thread)
            turn = self._turn[step.thread]
            self.nodes.append(Node(self.steps, step.thread, turn, None, step.thread, tick, clock, accesses))

    def _enqueue(self, effect: e.Enqueue, step: Step) -> None:
        thread = step.thread
        stream = self.stream(thread, effect.stream)
        fifo = self.fifos[stream]
        self._order(("stream", fifo), thread)
        self._called(thread, stream)
        accesses = self._resolved(step, effect.accesses) if self.keep else ()
        if self.pending[fifo]:
            self._append(fifo, "item", step, stream, accesses)
        else:
            self._run_item(fifo, thread, None, self.steps, self._turn[thread], stream, accesses)

    def _run_item(self, fifo: int, thread: int, caller: Clock | None, step: int, turn: int, stream: Named,
                  accesses: tuple[Touched, ...]) -> None:  # fmt: skip
        """The item runs; `caller` is the clock of its call, None for now."""
        tick = self.clocks.launch(thread, fifo, caller)
        self.tails[fifo] = {fifo: tick}
        self._is_last(stream)
        if self.keep:
            self.nodes.append(Node(step, thread, turn, stream, fifo, tick, self.clocks.snapshot(fifo), accesses))

    def _called(self, thread: int, stream: Named) -> None:
        """A "no" of `stream.query()` comes after every call that put work or a wait there."""
        lane = self.lanes[stream]
        self.calls[lane] = merged(self.calls[lane], self.clocks.now[thread])

    def _is_last(self, stream: Named) -> None:
        """What its FIFO has come to is the stream's own last item (S116)."""
        if self.own is not None:
            fifo = self.fifos[stream]
            self.own[self.lanes[stream]] = (self.clocks.snapshot(fifo), self.tails[fifo])

    def _last(self, stream: Named) -> tuple[Clock, dict[int, int]]:
        """The clock at the stream's own last item, and the items that must end for it."""
        fifo = self.fifos[stream]
        if self.own is None:
            return self.clocks.snapshot(fifo), self.tails[fifo]
        return self.own.get(self.lanes[stream]) or ([0] * len(self.tails), {})

    def _waits_too(self, stream: Named, capture: Capture, caller: Clock) -> None:
        """With one hardware queue: what a stream waits for that is not known to be over may be behind others' items.

        If it is over the wait is no item, so that the stream's end is not behind the rest of the queue for sure.
        """
        if self.own is not None:
            clock, items = self._last(stream)
            if any(caller[agent] < tick for agent, tick in capture.items.items()):
                items = items.copy()
                for more in (self.tails[self.fifos[stream]], capture.items):
                    for agent, tick in more.items():
                        items[agent] = max(tick, items.get(agent, 0))
            self.own[self.lanes[stream]] = (merged(merged(clock, capture.clock), caller), items)

    def _resolved(self, step: Step, accesses: tuple[p.Access, ...]) -> tuple[Touched, ...]:
        return tuple(sorted([self._resolve(step, access) for access in accesses], key=_WRITES))

    def _resolve(self, step: Step, access: p.Access) -> Touched:
        ref = self._memory(step, access.target)
        freed = ref.tenant if not ref.held and ref.tenant is not None and not self.tenants[ref.tenant].refs else None
        return Touched(ref.key, ref.path, self._owner(ref), access.mode == "w", access.same_bytes, access.harm, freed)

    def _capture(self, thread: int, stream: Named) -> Capture:
        """A record at the tail of a stream. It is an item, so it also starts after its call (S2, S19)."""
        fifo, lane = self.fifos[stream], self.lanes[stream]
        clock = self.clocks.record(thread, fifo)
        call = merged(self.calls[lane], self.clocks.now[thread])
        self._is_last(stream)
        if self.own is not None:
            self.calls[lane] = call  # the record may wait behind other streams' items
        return Capture(clock, fifo, self.tails[fifo], call)

    def _record_clock(self, thread: int, stream: Named) -> Clock | int:
        fifo = self.fifos[stream]
        self._order(("stream", fifo), thread)
        return self._pending_record(thread, fifo, stream) if self.pending[fifo] else self._capture(thread, stream).clock

    def _pending_record(self, thread: int, fifo: int, stream: Named) -> int:
        """A record behind work that has not run."""
        number = self._new_record()
        lane = self.lanes[stream]
        call = merged(self.calls[lane], self.clocks.now[thread])
        if self.own is not None:
            self.calls[lane] = call
        self._append(fifo, "record", Step(thread, self._pc[thread]), stream, number, call)
        return number

    def _captured(self, event: EventKey) -> Clock | int | None:
        if event in self.unfinished:
            return self.unfinished[event][0]
        capture = self.captures.get(event)
        return None if capture is None else capture.clock

    def _frees(self, records: frozenset[int], clock: Clock, key: Key | None, token: tuple[int, int] | None = None) -> None:
        self.freeing.append(Freeing(records, clock, key, token))

    def _used_event(self, step: Step, operand: p.Operand) -> EventKey:
        event = self._event(step, operand)
        self._order(("event", event), step.thread)
        return event

    def _record_event(self, effect: e.RecordEvent, step: Step) -> None:
        event = self._used_event(step, effect.event)
        fifo = self._fifo(step.thread, effect.stream)
        stream = self.stream(step.thread, effect.stream)
        self.unfinished.pop(event, None)
        if self.pending[fifo]:
            self.captures.pop(event, None)
            number = self._pending_record(step.thread, fifo, stream)
            self.unfinished[event] = (number, self.pending[fifo][-1].call)
            return
        self.captures[event] = self._capture(step.thread, stream)

    def _join_event(self, effect: e.JoinEvent, step: Step) -> None:
        event = self._used_event(step, effect.event)
        if event in self.unfinished:
            self._waits_for(step.thread, self.unfinished[event][0])
            return
        capture = self.captures.get(event)
        if capture is not None:  # never recorded: returns at once (S18)
            self.clocks.sync(step.thread, capture.clock, capture.source)

    def _join_stream(self, effect: e.JoinStream, step: Step) -> None:
        self._join_fifo(step, self._fifo(step.thread, effect.stream), self.stream(step.thread, effect.stream))

    def _join_fifo(self, step: Step, fifo: int, stream: Named) -> None:
        clock, _ = self._last(stream)
        if self._own_pending(stream):
            self._waits_for(step.thread, self._mark(fifo, step, stream))
            if self.own is not None:
                self.clocks.absorb(step.thread, clock)
        elif self.own is None:
            self.clocks.sync(step.thread, clock, fifo)
        else:
            self.clocks.absorb(step.thread, clock)

    def _join_device(self, effect: e.JoinDevice, step: Step) -> None:
        for (id_, slot), fifo in self.fifos.items():
            stream = self.program.objects[id_]
            assert isinstance(stream, p.Stream)
            if stream.gpu == effect.gpu and stream.process == effect.process:
                self._order(("stream", fifo), step.thread)
                self._join_fifo(step, fifo, (id_, slot))

    def _stream_waits(self, step: Step, stream: Named, capture: Capture | int, call: Clock) -> None:
        """`capture` may be the number of a record that is pending."""
        thread, fifo, lane = step.thread, self.fifos[stream], self.lanes[stream]
        if not isinstance(capture, int):
            self._waits_too(stream, capture, self.clocks.now[thread])
        if self.pending[fifo] or isinstance(capture, int):
            self._append(fifo, "wait", step, stream, capture)
        else:
            self._stream_continues(thread, None, fifo, capture)
        self.calls[lane] = merged(self.calls[lane], call)
        self._called(thread, stream)

    def _stream_continues(self, thread: int, caller: Clock | None, fifo: int, capture: Capture) -> None:
        self.clocks.wait(thread, fifo, capture.clock, capture.source, caller)
        tail = dict(self.tails[fifo])
        for agent, tick in capture.items.items():
            tail[agent] = max(tick, tail.get(agent, 0))
        self.tails[fifo] = tail

    def _stream_joins_event(self, effect: e.StreamJoinsEvent, step: Step) -> None:
        event = self._used_event(step, effect.event)
        self._fifo(step.thread, effect.stream)
        stream = self.stream(step.thread, effect.stream)
        if event in self.unfinished:
            self._stream_waits(step, stream, *self.unfinished[event])
        elif event in self.captures:  # never recorded: does nothing (S18)
            self._stream_waits(step, stream, self.captures[event], self.captures[event].call)

    def _stream_joins_stream(self, effect: e.StreamJoinsStream, step: Step) -> None:
        thread = step.thread
        behind, stream = self._fifo(thread, effect.other), self.stream(thread, effect.stream)
        other = self.stream(thread, effect.other)
        self._fifo(thread, effect.stream)
        if self.pending[behind]:
            number = self._pending_record(thread, behind, other)
            self._stream_waits(step, stream, number, self.pending[behind][-1].call)
            return
        capture = self._capture(thread, other)
        self._stream_waits(step, stream, capture, capture.call)

    def _note_use(self, effect: e.NoteUse, step: Step) -> None:
        self._note(self._memory(step, effect.block), self.stream(step.thread, effect.stream), effect.space)

    def _pending(self, thread: int, items: dict[int, int]) -> tuple[tuple[int, int], ...]:
        """The items whose end the thread does not know of."""
        known = self.clocks.now[thread]
        return tuple((agent, tick) for agent, tick in items.items() if known[agent] < tick)

    def _query_items(self, thread: int, question: p.EventQuery | p.StreamQuery) -> dict[int, int]:
        if isinstance(question, p.StreamQuery):
            return self._last(self.stream(thread, question.stream))[1]
        capture = self.captures.get(self._event(Step(thread, self._pc[thread]), question.event))
        return {} if capture is None else capture.items

    def _waits_on_the_device(self, thread: int, question: p.EventQuery | p.StreamQuery) -> bool:
        if isinstance(question, p.StreamQuery):
            return bool(self._own_pending(self.stream(thread, question.stream)))
        return bool(self.unfinished) and self._event(Step(thread, self._pc[thread]), question.event) in self.unfinished

    def _query_answers(self, thread: int, question: p.EventQuery | p.StreamQuery) -> set[str]:
        if self._waits_on_the_device(thread, question):
            return {"no"}
        pending = self._pending(thread, self._query_items(thread, question))
        return {"yes", "no"} if pending else {"yes"}

    def _query(self, step: Step, question: p.EventQuery | p.StreamQuery) -> None:
        """S24, S34. "yes": as a synchronize. "no": after the record (or enqueue) call, and work is still pending."""
        thread = step.thread
        if self._waits_on_the_device(thread, question):
            # What it waits for runs later in the run: nothing that comes before this step can come after its end.
            if isinstance(question, p.StreamQuery):
                self._fifo(thread, question.stream)
                call = self.calls[self.lanes[self.stream(thread, question.stream)]]
            else:
                call = self.unfinished[self._used_event(step, question.event)][1]
            self.clocks.absorb(thread, call)
            return
        items = self._query_items(thread, question)
        if isinstance(question, p.StreamQuery):
            source, stream = self._fifo(thread, question.stream), self.stream(thread, question.stream)
            clock, call = self._last(stream)[0], self.calls[self.lanes[stream]]
        else:
            capture = self.captures.get(self._used_event(step, question.event))
            if capture is None:
                return
            clock, source, call = capture.clock, capture.source, capture.call
        if step.answer == "yes":
            if self.own is not None:
                self.clocks.absorb(thread, clock)
            else:
                self.clocks.sync(thread, clock, source)
            return
        self.clocks.absorb(thread, call)
        self.false_queries.append(FalseQuery(self.steps, self.clocks.snapshot(thread), tuple(items.items())))


def _fifos(program: p.Program, environment: Environment) -> dict[Named, int]:
    """The agent of each stream slot; with one hardware queue all streams of a GPU and process share one (S115)."""
    agents: dict[Any, int] = {}
    fifos: dict[Named, int] = {}
    for id_, stream in enumerate(program.objects):
        if isinstance(stream, p.Stream):
            for slot in range(stream.depth or 1):
                shared = ("queue", stream.gpu, stream.process) if environment.one_queue else (id_, slot)
                fifos[(id_, slot)] = agents.setdefault(shared, len(program.threads) + len(agents))
    return fifos


def _lanes(fifos: dict[Named, int], first: int) -> dict[Named, int]:
    """A number for each stream slot."""
    return {stream: first + k for k, stream in enumerate(fifos)}


_EFFECTS: dict[type, Callable[[Player, Any, Step], None]] = {
    e.Touch: Player._touch,
    e.Enqueue: Player._enqueue,
    e.RecordEvent: Player._record_event,
    e.JoinEvent: Player._join_event,
    e.JoinStream: Player._join_stream,
    e.JoinDevice: Player._join_device,
    e.StreamJoinsEvent: Player._stream_joins_event,
    e.StreamJoinsStream: Player._stream_joins_stream,
    e.NoteUse: Player._note_use,
    **HOST,
    **dict.fromkeys(e.MEETINGS, Player._meeting),
}
EVENT_EFFECTS = frozenset(_EFFECTS)
"""The effects that the concrete event structure covers (compared with the alphabet in a test)."""
