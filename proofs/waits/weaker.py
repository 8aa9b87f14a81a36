"""Wider than needed: a finer event, an earlier record or a later place that suffices in place of a needed wait.

Each suggestion is an edited program that was decided at every location that the wait protects and at every location
that another wait for a moved record can matter to. It was decided, too, once the synchronisations that may go are gone, or it
says which of them has to stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from fencepost.model import answer as a
from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs import edits
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.waits.catalogue import HOST_WAITS, REMOVED, STREAM_WAITS, operation
from fencepost.proofs.waits.decide import SECONDS, Oracle, judge_location
from fencepost.proofs.waits.handles import Node, in_order
from fencepost.proofs.waits.static import Text, captures

MOST_TRIES = 10
"""Places that are tried for one wait, the one that gives most first."""

MOST_BESIDE = 4
"""Synchronisations of which it is asked whether the weaker one suffices while they stay."""


class Weaker(msgspec.Struct, frozen=True):
    """A weaker synchronisation that suffices.

    `how` "later": the wait stands right before node `at`. "earlier record": its record stands right behind `at`.
    "finer event": it waits for the record at `at` instead. "new event": it waits for a record put right behind `at`.
    """

    how: str
    at: Node
    wait: Node
    """The synchronisation."""
    skips: tuple[Node, ...]
    """Operations that the wait no longer delays, or no longer waits for."""
    record: Node | None = None
    """The record that moves."""
    program: p.Program | None = None
    """The design with it, once it is known to be enough there."""
    stays: tuple[int, ...] = ()
    """Synchronisations that may go as long as this one is what it is, and may not beside the weaker one."""


class Together(msgspec.Struct, frozen=True):
    """Weaker ones that were proved at once: for each of these synchronisations its first one. `kept`: what else is there."""

    syncs: tuple[int, ...]
    kept: tuple[int, ...]
    answer: a.Answer | None = None
    """None: there are no two that are known to be enough at once."""


def applied(whole: p.Program, one: Weaker, program: p.Program) -> p.Program:
    """A program whose nodes are those of `whole`, with the weaker synchronisation."""
    op = operation(whole, one.wait)
    if one.how == "later":
        return edits.insert_before(edits.replaced(program, *one.wait, p.Host(REMOVED, ())), *one.at, op)
    if one.how == "finer event":
        event = getattr(operation(whole, one.at), "event", None)
        assert event is not None
        new = p.StreamWaitEvent(op.stream, event) if isinstance(op, STREAM_WAITS) else p.EventSync(event)
        return edits.replaced(program, *one.wait, new)
    if one.how == "earlier record":
        assert one.record is not None
        moved = operation(whole, one.record)
        return edits.insert_after(edits.replaced(program, *one.record, p.Host(REMOVED, ())), *one.at, moved)
    stream = op.other if isinstance(op, p.WaitStream) else getattr(op, "stream", None)
    assert stream is not None
    changed, number = edits.with_object(program, p.Event("new event"))
    mine = p.Obj(number)
    wait = p.StreamWaitEvent(op.stream, mine) if isinstance(op, p.WaitStream) else p.EventSync(mine)
    return edits.insert_after(edits.replaced(changed, *one.wait, wait), *one.at, p.Record(mine, stream))


def weaker(
    oracle: Oracle, text: Text, k: int, locations: Sequence[Location], pairs: Sequence[tuple[Node, Node]],
    sets: Sequence[frozenset[int]], others: Sequence[Location],
) -> Iterator[Weaker]:  # fmt: skip
    """At most one suggestion of each kind for the needed synchronisation `k`, which protects `locations`.

    `pairs`: (first, second access) of hazards without it. What is tried still stands in front of the second access and
    covers the first, where the text tells. `sets`: minimal sufficient sets, of which the first is preferred; at `others`
    one of them may need `k`, too.
    """
    sync = oracle.syncs[k]
    if not isinstance(operation(oracle.program, sync.at), (*HOST_WAITS, *STREAM_WAITS)) or len(sync.nodes) > 1:
        return
    search = _Search(oracle, text, k, locations, pairs, sets, others)
    for found in (search.later(), search.finer(), search.earlier()):
        if found is not None:
            yield found


class _Search:
    def __init__(
        self, oracle: Oracle, text: Text, k: int, locations: Sequence[Location], pairs: Sequence[tuple[Node, Node]],
        sets: Sequence[frozenset[int]], others: Sequence[Location],
    ) -> None:  # fmt: skip
        self.oracle, self.text, self.at, self.pairs = oracle, text, oracle.syncs[k].at, pairs
        self.k, self.sets, self.others = k, sets, others
        self.program = oracle.program
        self.op = operation(self.program, self.at)
        self.locations = locations
        t = self.at[0]
        self.order = {n: k for k, n in enumerate(in_order(self.program.threads[t]))}

    def _offered(self, one: Weaker) -> Weaker | None:
        """The suggestion where it suffices, with what has to stay beside it; other waits may be for a record that it moves."""
        oracle = self.oracle
        edit = partial(applied, self.program, one)
        changed = edit(self.program)
        if not self._safe(changed, self.locations):
            return None
        every: list[Location] = []
        if one.record is not None:
            every = [at for at in oracle.locations if at not in oracle.broken and oracle.verdict(at, ()).safe]
            if any(oracle.relevant(at) & self._waiting() for at in oracle.locations if at not in every):
                return None
        stays: set[int] = set()
        for number, kept in enumerate(self.sets):
            gone = frozenset(range(len(oracle.syncs))) - kept
            # Where nothing is needed in place of it, a weaker one is more than enough.
            wanted = every or [
                *self.locations, *(at for at in self.others if oracle.safe(at, gone | {self.k}) is not True)
            ]  # fmt: skip
            failing = self._failing(edit(oracle.edited(gone)), wanted)
            if failing is not None and number:
                stays |= self.sets[0] - kept
            elif failing is not None:
                first = [failing, *(at for at in wanted if at != failing)]
                beside = sorted(oracle.relevant(failing) & gone)[:MOST_BESIDE]
                other = next((j for j in beside if self._safe(edit(oracle.edited(gone - {j})), first)), None)
                if other is None:
                    return None
                stays.add(other)
        return msgspec.structs.replace(one, program=changed, stays=tuple(sorted(stays)))

    def _waiting(self) -> frozenset[int]:
        """The synchronisations that wait for this one's event."""
        syncs = self.oracle.syncs
        events = [
            (j, at[0], getattr(operation(self.program, at), "event", None)) for j, one in enumerate(syncs) for at in one.nodes
        ]
        own = getattr(self.op, "event", None)
        mine = self.text.handles.of(self.at[0], own) if own is not None else frozenset()
        return frozenset(j for j, t, event in events if event is not None and self.text.handles.of(t, event) & mine)

    def _safe(self, program: p.Program, locations: Sequence[Location]) -> bool:
        return self._failing(program, locations) is None

    def _failing(self, program: p.Program, locations: Sequence[Location]) -> Location | None:
        """The first of the locations that is not decided to be safe."""
        oracle = self.oracle
        setting = Setting(program, oracle.platform, oracle.environment)
        for at in locations:
            left = oracle.left()
            if left <= 0:
                return at
            if not judge_location(program, at, oracle.platform, oracle.environment, min(left, SECONDS), setting=setting).safe:
                return at
        return None

    def _work(self, t: int, nodes: set[int]) -> list[Node]:
        """Nodes that enqueue items or access memory, in the order of the body."""
        real = [n for n in nodes if any(isinstance(x, (e.Touch, e.Enqueue)) and x.accesses for x in self.text.effects.get((t, n), ()))]  # fmt: skip
        return [(t, n) for n in sorted(real, key=lambda n: self.order.get(n, 0))]

    def later(self) -> Weaker | None:
        """The latest place in the same turn: from it on the host work in between overlaps with the device."""
        if not isinstance(self.op, HOST_WAITS):
            return None
        t, n = self.at
        reach = self._straight(t, n)
        ends = [b for _, b in self.pairs if self.text.precedes(self.at, b)]
        places = [m for m in reach if self._work(t, {m}) and not any(self.text.precedes(b, (t, m)) for b in ends)]
        for place in list(reversed(places))[:MOST_TRIES]:
            skips = self._work(t, set(reach[: reach.index(place)]))
            if not skips:
                return None
            offered = self._offered(Weaker("later", (t, place), self.at, tuple(skips)))
            if offered is not None:
                return offered
        return None

    def _straight(self, t: int, n: int) -> list[int]:
        """The nodes behind `n` that every path passes, as long as the operand still means what it means at `n`."""
        thread = self.program.threads[t]
        result: list[int] = []
        moved = {x for x in edits.indices(self.op)}
        at = self._join(thread, n)
        while at is not None and at != p.END:
            node = thread.nodes[at]
            if isinstance(node, p.Do):
                op = node.operation
                if isinstance(op, p.Record) and self._same_event(t, op.event):
                    break
                if isinstance(op, p.Advance) and op.cursor in moved:
                    break
            result.append(at)
            at = self._join(thread, at)
        return result

    @staticmethod
    def _join(thread: p.Thread, n: int) -> int | None:
        """The next node that all paths from `n` meet at; None where they do not before the end."""
        node = thread.nodes[n]
        if isinstance(node, p.Do):
            return node.next
        chains = []
        for _, head in node.branches:
            chain = []
            at: int | None = head
            while at is not None and at != p.END and at not in chain:
                chain.append(at)
                step = thread.nodes[at]
                at = step.next if isinstance(step, p.Do) else _Search._join(thread, at)
            chains.append(chain)
        return next((x for x in chains[0] if all(x in other for other in chains[1:])), None)

    def _same_event(self, t: int, event: p.Operand) -> bool:
        mine = getattr(self.op, "event", None)
        return mine is not None and bool(self.text.handles.of(t, mine) & self.text.handles.of(t, event))

    def _captured(self) -> list[tuple[Node, list[Node]]]:
        """(record or wait, work of the waited stream in front of it in its turn) for a wait with one capture."""
        found = captures(self.text, self.at)
        if len({node for node, _ in found}) != 1 or len(found) != 1:
            return []
        capture, stream = found[0]
        t = capture[0]
        order = {n: k for k, n in enumerate(in_order(self.program.threads[t]))}
        work = [
            (u, i)
            for (u, i), effects in self.text.effects.items()
            if u == t and self.text.precedes((u, i), capture)
            for x in effects
            if isinstance(x, e.Enqueue) and (stream is None or stream in self.text.handles.of(u, x.stream))
        ]
        return [(capture, sorted(dict.fromkeys(work), key=lambda at: order.get(at[1], 0)))]

    def finer(self) -> Weaker | None:
        """An event that exists and captures less of the same stream."""
        for capture, _ in self._captured():
            (_, stream), *_ = captures(self.text, self.at)
            t = self.at[0]
            for (u, i) in self.text.effects:
                op = operation(self.program, (u, i))
                if not isinstance(op, p.Record) or (u, i) == capture or u != t:
                    continue
                if stream is not None and stream not in self.text.handles.of(u, op.stream):
                    continue
                own = getattr(self.op, "event", None)
                if own is not None and self._same_event(u, op.event):
                    continue
                # Both captures are of one turn: the event may not be recorded again between the two and the wait.
                if not self.text.precedes((u, i), capture) or not self._of_this_turn():
                    continue
                if not all(self.text.precedes(a, (u, i)) for a in self._covered(capture)):
                    continue
                if self.text.precedes((u, i), self.at) != (capture == self.at or self.text.precedes(capture, self.at)):
                    continue
                if isinstance(op.event, p.Local) and not self.text.precedes((u, i), self.at):
                    continue
                skipped = self._between((u, i), capture, stream)
                if not skipped:
                    continue
                offered = self._offered(Weaker("finer event", (u, i), self.at, tuple(skipped)))
                if offered is not None:
                    return offered
        return None

    def _covered(self, capture: Node) -> list[Node]:
        """First accesses of the pairs that the capture covers in its own turn."""
        return [a for a, _ in self.pairs if self.text.precedes(a, capture)]

    def _of_this_turn(self) -> bool:
        """Whether the wait's event is none that travelled: which turn recorded that one is not said by the text."""
        event = getattr(self.op, "event", None)
        return not isinstance(event, p.Local) or self.text.handles.of(self.at[0], event) == {(self.at[0], event.id)}

    def _between(self, record: Node, capture: Node, stream: object) -> list[Node]:
        return [
            at
            for at, effects in self.text.effects.items()
            if self.text.precedes(record, at)
            and self.text.precedes(at, capture)
            and any(
                isinstance(x, e.Enqueue) and (stream is None or stream in self.text.handles.of(at[0], x.stream))
                for x in effects
            )
        ]

    def earlier(self) -> Weaker | None:
        """The record right behind the last work that has to be covered."""
        for capture, work in self._captured():
            t = capture[0]
            first = [a for a in self._covered(capture) if a in work]
            places = [
                (number, place)
                for number, place in enumerate(work[:-1])
                if all(a == place or self.text.precedes(a, place) for a in first)
            ]
            for number, place in places[:MOST_TRIES]:
                if self.text.precedes(place, self.at) != (capture == self.at or self.text.precedes(capture, self.at)):
                    continue  # on the other side of the wait it would be the record of another turn
                offered = self._recorded_at(t, place, capture, work[number + 1 :])
                if offered is not None:
                    return offered
        return None

    def _recorded_at(self, t: int, place: Node, capture: Node, skips: Sequence[Node]) -> Weaker | None:
        """The record of `capture`, or a new one in its place, right behind `place`."""
        op = operation(self.program, capture)
        if capture != self.at:
            assert isinstance(op, p.Record)
            if isinstance(op.event, p.Local) and not self._made_before(t, op.event, place):
                return None
            return self._offered(Weaker("earlier record", place, self.at, tuple(skips), capture))
        if getattr(op, "other", None) is None and getattr(op, "stream", None) is None:
            return None
        return self._offered(Weaker("new event", place, self.at, tuple(skips)))

    def _made_before(self, t: int, event: p.Local, place: Node) -> bool:
        return any(
            isinstance(node, p.Do)
            and isinstance(node.operation, p.NewEvent)
            and node.operation.local == event.id
            and self.text.precedes((t, i), place)
            for i, node in enumerate(self.program.threads[t].nodes)
        )
