"""Programs and hazards in words: operands and operations as the user would write them, hazards as one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.model import program as p
from fencepost.model.answer import AccessInfo, Hazard
from fencepost.model.names import Names, plus


class Words(Names):
    """Text for the parts of one program. `turn` puts numbers where the text would say `n`."""

    def value(self, value: p.Operand | p.Index, thread: p.Thread, turn: int | None = None) -> str:
        """An item's value: an operand, or an index."""
        if isinstance(value, (p.Obj, p.Slot, p.Local)):
            return self.operand(value, thread, turn)
        return self.index(value, thread, None, turn)

    def accesses(self, accesses: tuple[p.Access, ...], thread: p.Thread, turn: int | None = None) -> str:
        """`reads a, b; writes c`."""
        reads = [self.operand(a.target, thread, turn) for a in accesses if a.mode == "r"]
        writes = [self.operand(a.target, thread, turn) for a in accesses if a.mode == "w"]
        return "; ".join(
            f"{verb} {', '.join(names)}" for verb, names in (("reads", reads), ("writes", writes)) if names
        )

    def operation(self, operation: p.Operation, thread: p.Thread, turn: int | None = None) -> str:
        """An operation as the user would write it."""
        return _OPERATIONS[type(operation)](self, operation, thread, turn)

    def question(self, question: p.Question, thread: p.Thread, turn: int | None = None) -> str:
        """A question as the user would write it."""
        return _QUESTIONS[type(question)](self, question, thread, turn)

    def node(self, node: p.Node, thread: p.Thread, turn: int | None = None) -> str:
        """The operation or question of a node."""
        if isinstance(node, p.Do):
            return self.operation(node.operation, thread, turn)
        return self.question(node.question, thread, turn)

    def place(self, site: int) -> str:
        """`file:line` of a site as in `spot`, "" when the program has none."""
        return spot(self.program.places[site] if 0 <= site < len(self.program.places) else ())


def _host(w: Words, o: p.Host, t: p.Thread, n: int | None) -> str:
    if len(o.accesses) == 1 and o.name in ("write", "read"):
        return f"{w.operand(o.accesses[0].target, t, n)}.{o.name}()"
    return f"{o.name} ({w.accesses(o.accesses, t, n)})" if o.accesses else o.name


def _copy(w: Words, o: p.Copy, t: p.Thread, n: int | None) -> str:
    dst, src = w.operand(o.dst, t, n), w.operand(o.src, t, n)
    if o.raw:
        return f"memcpy_async({dst}, {src})"
    return f"{dst}.copy_({src}{', non_blocking' if o.non_blocking else ''})"


def _put(w: Words, o: p.Put, t: p.Thread, n: int | None) -> str:
    values = [repr(o.tag)] if o.tag else []
    values += [w.value(v, t, n) for v in o.values]
    return f"{w.name(o.queue)}.put({', '.join(values)})"


def _into(w: Words, ids: tuple[int, ...], t: p.Thread) -> str:
    return f"{', '.join(w.local(i, t) for i in ids)} = " if ids else ""


def _tag(tag: str) -> str:
    return f" [{tag}]" if tag else ""


def _flag(w: Words, o: p.StoreFlag | p.WaitFlag, t: p.Thread, n: int | None) -> str:
    store, reset = isinstance(o, p.StoreFlag), ", reset" if isinstance(o, p.WaitFlag) and o.reset else ""
    if o.stream is None:
        return f"{w.name(o.flag)}.{'store' if store else 'wait'}({o.value}{reset})"
    return f"{w.operand(o.stream, t, n)}.{'write' if store else 'wait'}_value({w.name(o.flag)}, {o.value}{reset})"


_Say = Callable[[Words, Any, p.Thread, Any], str]

_OPERATIONS: dict[type, _Say] = {
    p.Host: _host,
    p.Launch: lambda w, o, t, n: f"launch {o.name} ({w.accesses(o.accesses, t, n)})" if o.accesses else f"launch {o.name}",
    p.Copy: _copy,
    p.Memset: lambda w, o, t, n: f"memset({w.operand(o.dst, t, n)})",
    p.Item: lambda w, o, t, n: f"{w.operand(o.src, t, n)}.item()",
    p.Alloc: lambda w, o, t, n: f"{w.local(o.local, t)} = empty{'_pinned' if o.space == 'pinned' else ''}()",
    p.View: lambda w, o, t, n: (
        f"{w.local(o.local, t)} = {w.operand(o.base, t, n)}.view()" if o.held else f"raw pointer to {w.operand(o.base, t, n)}"
    ),
    p.Drop: lambda w, o, t, n: f"del {w.local(o.local, t)}",
    p.RecordStream: lambda w, o, t, n: f"{w.operand(o.block, t, n)}.record_stream({w.operand(o.stream, t, n)})",
    p.NewEvent: lambda w, o, t, n: f"{w.local(o.local, t)} = Event()",
    p.Record: lambda w, o, t, n: f"{w.operand(o.event, t, n)}.record({w.operand(o.stream, t, n)})",
    p.EventSync: lambda w, o, t, n: f"{w.operand(o.event, t, n)}.synchronize()",
    p.StreamWaitEvent: lambda w, o, t, n: f"{w.operand(o.stream, t, n)}.wait_event({w.operand(o.event, t, n)})",
    p.WaitStream: lambda w, o, t, n: f"{w.operand(o.stream, t, n)}.wait_stream({w.operand(o.other, t, n)})",
    p.StreamSync: lambda w, o, t, n: f"{w.operand(o.stream, t, n)}.synchronize()",
    p.DeviceSync: lambda w, o, t, n: f"what a free waits for on gpu {o.gpu}" if o.implied else f"synchronize(gpu={o.gpu})",
    p.Advance: lambda w, o, t, n: f"{w.local(o.local, t)} = {w.name(o.cursor)}.advance()",
    p.Put: _put,
    p.Get: lambda w, o, t, n: f"{_into(w, o.locals, t)}{w.name(o.queue)}.get()",
    p.CellSet: lambda w, o, t, n: f"{w.operand(o.cell, t, n)}.set({', '.join(w.value(v, t, n) for v in o.values)})",
    p.CellGet: lambda w, o, t, n: (
        f"{_into(w, o.locals, t)}{w.operand(o.cell, t, n)}.{'take' if o.take else 'get'}()"
    ),
    p.CellClear: lambda w, o, t, n: f"{w.operand(o.cell, t, n)}.clear()",
    p.Take: lambda w, o, t, n: f"{w.local(o.local, t)} = {w.name(o.pool)}.take()",
    p.Give: lambda w, o, t, n: (
        f"{w.name(o.pool)}.give({w.operand(o.token, t, n)}"
        f"{f', after={w.operand(o.after, t, n)}' if o.after is not None else ''})"
    ),
    p.Acquire: lambda w, o, t, n: f"{w.name(o.lock)}.acquire()",
    p.Unlock: lambda w, o, t, n: f"{w.name(o.lock)}.release()",
    p.FlagSet: lambda w, o, t, n: f"{w.name(o.flag)}.set()",
    p.FlagClear: lambda w, o, t, n: f"{w.name(o.flag)}.clear()",
    p.FlagWait: lambda w, o, t, n: f"{w.name(o.flag)}.wait()",
    p.CounterAdd: lambda w, o, t, n: f"{w.name(o.counter)}.add({o.amount})",
    p.Signal: lambda w, o, t, n: f"{w.operand(o.stream, t, n)} signals {w.name(o.channel)}{_tag(o.tag)}",
    p.Await: lambda w, o, t, n: f"{w.operand(o.stream, t, n)} awaits {w.name(o.channel)}{_tag(o.tag)}",
    p.StoreFlag: _flag,
    p.WaitFlag: _flag,
    p.CounterWait: lambda w, o, t, n: f"{w.name(o.counter)}.wait({plus('n', o.value) if o.per_turn else o.value})",
}

_QUESTIONS: dict[type, _Say] = {
    p.Choose: lambda w, q, t, n: f"{q.name}?",
    p.Maybe: lambda w, q, t, n: f"{q.name}?",
    p.QueueFull: lambda w, q, t, n: f"{w.name(q.queue)}.full()?",
    p.QueueHolds: lambda w, q, t, n: f"{w.name(q.queue)}.holds({q.count})?",
    p.QueueTag: lambda w, q, t, n: f"tag of {w.name(q.queue)}'s oldest item?",
    p.CellEmpty: lambda w, q, t, n: f"{w.operand(q.cell, t, n)}.empty()?",
    p.EventQuery: lambda w, q, t, n: f"{w.operand(q.event, t, n)}.query()?",
    p.StreamQuery: lambda w, q, t, n: f"{w.operand(q.stream, t, n)}.query()?",
    p.FlagIsSet: lambda w, q, t, n: f"{w.name(q.flag)}.is_set()?",
    p.CounterAtLeast: lambda w, q, t, n: f"{w.name(q.counter)} >= {q.value}?",
    p.TryLock: lambda w, q, t, n: f"{w.name(q.lock)}.try_acquire()?",
    p.TurnBelow: lambda w, q, t, n: f"n < {q.value}?",
}


# ---------------------------------------------------------------- hazards


def place_of(access: AccessInfo) -> str:
    """`file:line` of an access as in `spot`, "" when the program has no positions."""
    return spot(access.places)


def spot(frames: tuple[p.Place, ...]) -> str:
    """`file:line` of the innermost of the user's frames, and behind "<" the line of the body that called it; "" without frames."""
    if not frames:
        return ""
    body, inner = frames[0], frames[-1]
    called = "" if len(frames) == 1 else f" < {body.line}" if body.file == inner.file else f" < {body.file}:{body.line}"
    return f"{inner.file}:{inner.line}{called}"


def access_text(access: AccessInfo) -> str:
    """Who accesses, by what, when: `copy_ of step 0 on stream main (engine.py:12)`."""
    where = f"on stream {access.agent}" if access.on_device else f"by host thread {access.thread}"
    place = place_of(access)
    return f"{access.operation} of step {access.step} {where}" + (f" ({place})" if place else "")


def missing_edge(hazard: Hazard, program: p.Program | None = None) -> str:
    """The edge that is not there, as one sentence: who overtakes whom, on what, in which steps."""
    second = hazard.second
    thing = _thing(hazard, program)
    who = f"stream {second.agent}" if second.on_device else f"host thread {second.thread}"
    verb = "writes" if second.mode == "w" else "reads"
    act = f"{who} {verb} {thing} in step {second.step} ({second.operation})"
    first = hazard.first
    if first is None:
        return f"{act}, and these bytes hold nothing of its own: never written, or freed before"
    if hazard.held_back:
        return (
            f"{who} {verb} {second.tenant} in step {second.step} ({second.operation}) when its block belongs to {first.tenant} already: "
            f"it is held back until after {first.operation} of step {first.step} ({place_of(first) or first.agent})"
        )
    still = "write" if first.mode == "w" else "read"
    owner = "stream" if first.on_device else "host thread"
    them = f"its bytes as {first.tenant}" if first.tenant and first.tenant != second.tenant else "it"
    return f"{act} while {first.operation} of step {first.step} on {owner} {first.agent} may still {still} {them}"


def _thing(hazard: Hazard, program: p.Program | None) -> str:
    tenant = hazard.second.tenant
    if tenant is not None and tenant != hazard.object:
        return f"{tenant} (in the block that {hazard.object} had)"
    if hazard.new_owner is not None and hazard.new_owner != hazard.object:
        return f"{hazard.object} (its block now belongs to {hazard.new_owner})"
    for thing in program.objects if program is not None else ():
        if isinstance(thing, p.Memory) and thing.name == hazard.object.partition("[")[0]:
            return f"{thing.space} {hazard.object}"
    return hazard.object
