"""What the text alone says of a synchronisation: why it orders nothing, and which accesses it looks meant for but misses."""

from __future__ import annotations

import msgspec
from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations import Context, lower_node
from fencepost.model.platform import PLATFORMS, Platform
from fencepost.proofs.waits.catalogue import HOLD, HOST, STREAM, USE, Sync, operation
from fencepost.proofs.waits.decide import Oracle
from fencepost.proofs.waits.handles import Handles, Node, Origin, following, in_order, later


class Missed(msgspec.Struct, frozen=True):
    """An access that the wait does not cover: of memory `object`, at node `access`; `why` "before" | "behind".

    "before": the waiting side's access comes before the wait. "behind": the device access is enqueued behind the record.
    """

    object: str
    access: Node
    other: Node
    why: str


def _reaches(thread: p.Thread) -> dict[int, int]:
    """For each node the nodes that can follow it in the same turn, as bits."""
    found: dict[int, int] = {}
    for n in reversed(in_order(thread)):
        nexts = following(thread.nodes[n])
        if any(m not in found for m in nexts):  # a circle leads back
            found[n] = sum(1 << m for m in later(thread, n))
            continue
        found[n] = 0
        for m in nexts:
            found[n] |= found[m] | 1 << m
    return found


class Text:
    """The accesses and captures of one program, by node."""

    def __init__(self, program: p.Program, platform: Platform = PLATFORMS["cuda"], handles: Handles | None = None) -> None:
        self.program = program
        self.handles = handles or Handles(program)
        self.effects: dict[Node, tuple[e.Effect, ...]] = {}
        for t, thread in enumerate(program.threads):
            context = Context(program, thread, platform)
            for i, node in enumerate(thread.nodes):
                if isinstance(node, p.Do):
                    self.effects[t, i] = lower_node(node, context)
        self._later = [_reaches(thread) for thread in program.threads]
        self.accesses: list[tuple[Node, p.Access, Origin | None]] = []
        """Every access with its node and its stream; None for the host thread."""
        for (t, i), effects in self.effects.items():
            for x in effects:
                if isinstance(x, e.Touch):
                    self.accesses += [((t, i), access, None) for access in x.accesses]
                elif isinstance(x, e.Enqueue):
                    stream = next(iter(self.handles.of(t, x.stream)))
                    self.accesses += [((t, i), access, stream) for access in x.accesses]
        self._device: dict[tuple[int, Origin | None], list[tuple[Node, p.Access]]] = {}
        self._at: dict[Origin, list[tuple[Node, p.Access, Origin | None]]] = {}
        for one in self.accesses:
            for origin in self.handles.of(one[0][0], one[1].target):
                self._at.setdefault(origin, []).append(one)

    def conflicting(self, node: Node, access: p.Access) -> list[tuple[Node, p.Access, Origin | None]]:
        """Accesses of other nodes to what `access` of `node` may touch, at least one of the two a write."""
        found: dict[int, tuple[Node, p.Access, Origin | None]] = {}
        for origin in self.handles.of(node[0], access.target):
            for one in self._at.get(origin, ()):
                if one[0] != node and _conflict(access, one[1]):
                    found[id(one)] = one
        return list(found.values())

    def precedes(self, a: Node, b: Node) -> bool:
        """Whether `b` can follow `a` in one turn of one thread."""
        return a[0] == b[0] and bool(self._later[a[0]].get(a[1], 0) >> b[1] & 1)

    def device(self, t: int, stream: Origin | None) -> list[tuple[Node, p.Access]]:
        """Device accesses that thread `t` enqueues on the stream (None: on any)."""
        known = self._device.get((t, stream))
        if known is None:
            known = self._device[t, stream] = [
                ((u, i), access)
                for (u, i), effects in self.effects.items()
                if u == t
                for x in effects
                if isinstance(x, e.Enqueue) and (stream is None or stream in self.handles.of(u, x.stream))
                for access in x.accesses
            ]
        return known

    def used(self, stream: int) -> bool:
        """Whether anything is ever put on the stream: an item or a wait of its own."""
        return any(
            isinstance(x, (e.Enqueue, e.StreamJoinsEvent, e.StreamJoinsStream)) and _id(x.stream) == stream
            for effects in self.effects.values()
            for x in effects
        )

    def observed(self, stream: int) -> bool:
        """Whether anything comes after the stream's work: a later item, a record, a wait for it, a use by the allocator."""
        for effects in self.effects.values():
            for x in effects:
                if isinstance(x, (e.Enqueue, e.RecordEvent, e.JoinStream, e.NoteUse)) and _id(x.stream) == stream:
                    return True
                if isinstance(x, e.StreamJoinsStream) and _id(x.other) == stream:
                    return True
                if isinstance(x, e.JoinDevice):
                    return True
        return False


def _id(operand: p.Operand) -> int:
    return -1 if isinstance(operand, p.Local) else operand.id


def idle(text: Text, sync: Sync, oracle: Oracle) -> str | None:
    """Why the synchronisation orders nothing in any run, as a sentence; None when the text does not show it."""
    reasons = {_idle_at(text, sync, at, oracle) for at in sync.nodes}
    return reasons.pop() if len(reasons) == 1 else None


def _idle_at(text: Text, sync: Sync, at: Node, oracle: Oracle) -> str | None:
    op = operation(text.program, at)
    objects = text.program.objects
    if isinstance(op, (p.EventSync, p.StreamWaitEvent)):
        records = text.handles.records(at[0], op.event)
        if not records:
            return "the event is never recorded, so the wait returns at once (S18)"
    if isinstance(op, p.StreamWaitEvent) and isinstance(op.stream, p.Obj):
        streams = {operation(text.program, r).stream for r in records}  # type: ignore[union-attr]
        if streams == {op.stream}:
            return f"the event is recorded on {objects[op.stream.id].name} itself, which runs in order (S2)"
    if isinstance(op, p.WaitStream):
        if op.stream == op.other and isinstance(op.stream, p.Obj):
            return "a stream that waits for itself (S2)"
        if not text.used(_id(op.other)):
            return f"nothing is ever put on {objects[_id(op.other)].name}"
    if isinstance(op, p.StreamSync) and not text.used(_id(op.stream)):
        return f"nothing is ever put on {objects[_id(op.stream)].name}"
    if isinstance(op, (p.StreamWaitEvent, p.WaitStream)) and not text.observed(_id(op.stream)):
        return f"nothing comes after it on {objects[_id(op.stream)].name}"
    if sync.kind == USE and isinstance(op, p.RecordStream):
        owners = {oracle.owner(origin) for origin in oracle.held(sync)}
        if owners and not any(block for block, _ in owners):
            return "no caching allocator handed this memory out, so record_stream is ignored (S72)"
        if isinstance(op.stream, p.Obj) and owners == {(True, op.stream.id)}:
            return "record_stream on the stream that owns the block is ignored (S64)"
    if sync.kind == HOLD and not any(oracle.owner(origin)[0] for origin in oracle.held(sync)):
        return "this memory lives for ever; no reference is needed"
    return None


def unwaited(text: Text) -> list[tuple[Node, ...]]:
    """`record` nodes of events that nobody waits for, tests, or hands back a token behind; one group for each place."""
    waited: set[Origin] = set()
    for t, thread in enumerate(text.program.threads):
        for node in thread.nodes:
            what = node.operation if isinstance(node, p.Do) else node.question
            if isinstance(what, (p.EventSync, p.StreamWaitEvent, p.EventQuery)):
                waited |= text.handles.of(t, what.event)
            elif isinstance(what, p.Give) and what.after is not None:
                waited |= text.handles.of(t, what.after)
    groups: dict[tuple[int, int], list[Node]] = {}
    for t, thread in enumerate(text.program.threads):
        for i, node in enumerate(thread.nodes):
            op = node.operation if isinstance(node, p.Do) else None
            if isinstance(op, p.Record) and not text.handles.of(t, op.event) & waited:
                groups.setdefault((t, node.site if node.site >= 0 else -2 - i), []).append((t, i))
    return [tuple(nodes) for nodes in groups.values()]


# ---------------------------------------------------------------- what a wait misses


def captures(text: Text, at: Node) -> list[tuple[Node, Origin | None]]:
    """Where the work that a wait waits for is captured: (node, stream); stream None is every stream of a device."""
    op = operation(text.program, at)
    if isinstance(op, (p.EventSync, p.StreamWaitEvent)):
        found: list[tuple[Node, Origin | None]] = []
        for record in text.handles.records(at[0], op.event):
            recorded = operation(text.program, record)
            assert isinstance(recorded, p.Record)
            found += [(record, origin) for origin in text.handles.of(record[0], recorded.stream)]
        return found
    if isinstance(op, p.DeviceSync):
        return [(at, None)]
    stream = op.other if isinstance(op, p.WaitStream) else getattr(op, "stream", None)
    return [] if stream is None else [(at, origin) for origin in text.handles.of(at[0], stream)]


def missed(text: Text, sync: Sync) -> list[Missed]:
    """Conflicting pairs that the wait looks meant for and does not order, read off one turn.

    A device access that is enqueued behind the record, in the same turn; and, where the wait comes first in the turn and the
    record later, an access of the waiting side in front of the wait.
    """
    if sync.kind not in (HOST, STREAM):
        return []
    found: dict[tuple[str, str], Missed] = {}
    for at in sync.nodes:
        op = operation(text.program, at)
        waiting = getattr(op, "stream", None) if isinstance(op, (p.StreamWaitEvent, p.WaitStream)) else None
        for capture, stream in captures(text, at):
            wait_first = capture != at and not text.precedes(capture, at) and capture[0] == at[0]
            for node, access in text.device(capture[0], stream):
                behind = text.precedes(capture, node) and not text.precedes(node, capture)
                if not behind and not wait_first:
                    continue
                for own, _, agent in text.conflicting(node, access):
                    if agent == stream:
                        continue
                    name = _name(text, node[0], access)
                    if behind:
                        found.setdefault((name, "behind"), Missed(name, node, own, "behind"))
                    elif wait_first and own[0] == at[0] and text.precedes(own, at) and not text.precedes(at, own):
                        side = None if waiting is None else next(iter(text.handles.of(at[0], waiting)))
                        if agent == side:
                            found.setdefault((name, "before"), Missed(name, own, node, "before"))
    return list(found.values())


def _conflict(a: p.Access, b: p.Access) -> bool:
    """Whether two accesses of one object conflict, as far as their parts tell."""
    if "w" not in (a.mode, b.mode):
        return False
    one, two = a.target.part, b.target.part
    return not (isinstance(one, p.Named) and isinstance(two, p.Named) and one != two)


def _name(text: Text, t: int, access: p.Access) -> str:
    return ", ".join(sorted(text.handles.name(origin) for origin in text.handles.of(t, access.target)))
