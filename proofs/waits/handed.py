"""Additions that make one host thread wait for another: news that an access was enqueued or made, handed over in a queue.

A wait for an event orders nothing before the event is recorded (S18, S21). Where no order of the host calls is there,
one has to be made: the thread of the first access tells, the thread of the second one waits for that.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.model import program as p
from fencepost.proofs import edits
from fencepost.proofs.waits.catalogue import operation
from fencepost.proofs.waits.handles import Node
from fencepost.proofs.waits.offer import HANDED, PRICE, Change, Insert, Offer

_WAITS = (p.StreamWaitEvent, p.EventSync)


class HandOvers(Offer):
    """Hand-overs from the thread of the first access to that of the second."""

    def handed(self) -> Iterator[Change]:
        """A queue of one item without content, behind a record whose wait is there, or with an event of its own."""
        if self.first is None:
            return
        t, u = self.first[0], self.second[0]
        threads = self.program.threads
        if t == u or threads[t].kind != threads[u].kind or threads[t].process != threads[u].process:
            return  # one that runs once tells a loop once
        number = len(self.program.objects)
        queue = p.Queue(self._new("handed over"), 1, (("", ()),), threads[t].process)
        put, get = p.Put(number, "", ()), p.Get(number, "", ())
        stream = self._stream(self.first)
        if stream is None:
            text = f"a new queue of 1: get() before {self._what(self.second)}, put() behind {self._what(self.first)}"
            yield from self._told(text, [(edits.insert_before, self.second, get), (edits.insert_after, self.first, put)], queue)
            return
        for record, wait in self._recorded_and_awaited(stream):
            event = getattr(operation(self.program, record), "event", None)
            assert isinstance(event, (p.Obj, p.Slot, p.Local))
            label = self._name(t, event)
            text = f"a new queue of 1: get() before the wait for {label}, put() behind its record"
            yield from self._told(text, [(edits.insert_before, wait, get), (edits.insert_after, record, put)], queue)
        event_of = p.Event(self._new("access done"), gpu=self._gpu_of(stream), process=threads[t].process)
        mine = p.Obj(number + 1)
        own = self._stream(self.second)
        wait_op = p.EventSync(mine) if own is None else p.StreamWaitEvent(own, mine)
        waits = f"{event_of.name}.synchronize()" if own is None else f"{self._name(u, own)}.wait_event({event_of.name})"
        text = (
            f"a new queue of 1: get() and {waits} before {self._what(self.second)}, "
            f"a new event recorded and put() behind {self._what(self.first)}"
        )
        ends: list[tuple[Insert, Node, p.Operation]] = [
            (edits.insert_before, self.second, get), (edits.insert_after, self.first, put),
            (edits.insert_before, self.second, wait_op), (edits.insert_after, self.first, p.Record(mine, stream)),
        ]  # fmt: skip
        yield from self._told(text, ends, queue, event_of, more=2)

    def _told(self, text: str, ends: list[tuple[Insert, Node, p.Operation]], *new: p.Object, more: int = 0) -> Iterator[Change]:
        yield from self._inserting(HANDED, PRICE[HANDED] + more, text, ends, *new)

    def _recorded_and_awaited(self, stream: p.Operand) -> Iterator[tuple[Node, Node]]:
        """Records behind the first access, each with a wait for the same event in front of the second one."""
        assert self.first is not None
        t, u = self.first[0], self.second[0]
        behind = self._later(self.first)
        for i in sorted(behind):
            record = self.program.threads[t].nodes[i]
            op = record.operation if isinstance(record, p.Do) else None
            if not isinstance(op, p.Record) or op.stream != stream:
                continue
            for k, node in enumerate(self.program.threads[u].nodes):
                wait = node.operation if isinstance(node, p.Do) else None
                if not isinstance(wait, _WAITS) or self.second[1] not in self._later((u, k)):
                    continue
                if self.handles.of(u, wait.event) & self.handles.of(t, op.event):
                    yield (t, i), (u, k)
