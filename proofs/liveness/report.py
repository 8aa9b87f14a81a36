"""A hang in words: its name, and one line per waiter: who waits for what, where, since which step."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.proofs.liveness.conditions import condition_of
from fencepost.proofs.liveness.graphs import place as place_of
from fencepost.proofs.liveness.moves import Move
from fencepost.proofs.liveness.search import Hang, Liveness, Waiter
from fencepost.proofs.liveness.text import Node, operations

DEADLOCK, NO_SOURCE, MISMATCH, LOST = "deadlock", "no source", "collective mismatch", "lost signal"


def name(program: p.Program, hang: Hang) -> str:
    """The kind of the hang and the object that it is about (docs/answers.md has the definitions).

    `collective mismatch`: a stream awaits a signal, and another one came, or none ever comes. `lost signal`: somebody
    waits for a flag that was set, and reset or set again before anybody saw it. `deadlock`: waiters wait for each other
    in a circle. `no source`: nobody is left to help.
    """
    wrong = {agent for agent, _ in hang.mismatched}
    for waiter in hang.waiters:
        if waiter.thread in wrong:
            return f"{MISMATCH} {_object(program, waiter)}"
    gone = lost_signals(program, hang)
    for waiter in hang.waiters:
        if waiter.obstacle in gone and _waits_for_flag(program, waiter):
            return f"{LOST} {_object(program, waiter)}"
    circle = hang.cycle()
    if circle:
        # What the devices wait for says more than that a host waits for its stream.
        meeting = [k for k in circle if hang.waiters[k].item is not None and hang.waiters[k].item.kind != "join"]  # type: ignore[union-attr]
        return f"{DEADLOCK} {_object(program, hang.waiters[(meeting or list(circle))[0]])}"
    without = [w for w, sources in zip(hang.waiters, hang.sources, strict=True) if not set(sources) - {w.thread}]
    waiter = next((w for w in without if w.item is not None), (without or list(hang.waiters))[0])
    meets = waiter.item is not None and waiter.item.kind in ("signal", "await")
    return f"{MISMATCH if meets else NO_SOURCE} {_object(program, waiter)}"


def hangs(program: p.Program, found: Liveness) -> tuple[str, ...]:
    """The hang that was found, and collectives that a rank never calls although nobody waits for it."""
    told = () if found.hang is None else (sentence(program, found.hang),)
    return (*told, *(one for one in never_awaited(program) if not told or one.partition(" - ")[0] != name(program, found.hang)))  # type: ignore[arg-type]


def never_awaited(program: p.Program) -> tuple[str, ...]:
    """Signals that no operation of the design awaits: the other rank never makes the call (S130)."""
    awaited = {operation.channel for _, operation in operations(program, p.Await)}
    signals: dict[int, Node] = {}
    for node, operation in operations(program, p.Signal):
        signals.setdefault(operation.channel, node)
    return tuple(
        f"{MISMATCH} {program.objects[channel].name} - {program.threads[t].name} comes to it{place_of(program, (t, n))}, and nobody ever awaits it"
        for channel, (t, n) in signals.items() if channel not in awaited
    )


def sentence(program: p.Program, hang: Hang) -> str:
    """The name, then every waiter."""
    came = dict(hang.mismatched)
    lines = [
        _waits(program, hang, waiter, sources, came.get(waiter.thread))
        for waiter, sources in zip(hang.waiters, hang.sources, strict=True)
    ]
    return f"{name(program, hang)} - " + "; ".join(lines)


def lost_signals(program: p.Program, hang: Hang) -> set[int]:
    """Flags of which a store was overwritten, by a reset or by another store, before any wait had seen it."""
    unseen: set[int] = set()
    found: set[int] = set()
    for move in hang.moves:
        kind, flag, value = _flag_step(program, move)
        if kind == "store":
            if flag in unseen:
                found.add(flag)
            unseen.discard(flag)
            if value > 0:
                unseen.add(flag)
        elif kind == "wait":
            unseen.discard(flag)
    return found


def _flag_step(program: p.Program, move: Move) -> tuple[str, int, int]:
    """What a move did to a flag: ("store" | "wait" | "", flag, value)."""
    if move.item is not None:
        return (move.item.kind, move.item.thing, move.item.value) if move.item.kind in ("store", "wait") else ("", -1, 0)
    node = program.threads[move.thread].nodes[move.node]
    operation = node.operation if isinstance(node, p.Do) else node.question
    if isinstance(operation, p.StoreFlag) and operation.stream is None:
        return "store", operation.flag, operation.value
    if isinstance(operation, (p.FlagSet, p.FlagClear)):
        return "store", operation.flag, int(isinstance(operation, p.FlagSet))
    if isinstance(operation, p.FlagWait) or (isinstance(operation, p.WaitFlag) and operation.stream is None):
        return "wait", operation.flag, 0
    if isinstance(operation, p.FlagIsSet) and move.answer == "yes":
        return "wait", operation.flag, 0
    return "", -1, 0


def _waits_for_flag(program: p.Program, waiter: Waiter) -> bool:
    return isinstance(waiter.obstacle, int) and isinstance(program.objects[waiter.obstacle], (p.Flag, p.DeviceFlag))


def _object(program: p.Program, waiter: Waiter) -> str:
    if isinstance(waiter.obstacle, str):
        return waiter.obstacle
    return condition_of(program, waiter.obstacle) or program.objects[waiter.obstacle].name


def _waits(program: p.Program, hang: Hang, waiter: Waiter, sources: tuple[int, ...], came: str | None) -> str:
    count = len(program.threads)
    thing = _object(program, waiter)
    if waiter.item is not None:
        item = waiter.item
        place = place_of(program, (item.thread, item.node))
        who = _stream(waiter.stream)
        for_what = {
            "signal": f"room in {thing}",
            "await": f"{_tag(item.value)} of {thing}",
            "wait": f"{thing} >= {item.value}",
            "join": f"a record in {_stream(thing)}",
        }[item.kind]
        since = f"step {waiter.turn} of {program.threads[item.thread].name}"
    else:
        thread = program.threads[waiter.thread]
        place = place_of(program, (waiter.thread, waiter.node))
        who, for_what, since = thread.name, _for_what(program, waiter, thing), f"step {waiter.turn}"
    streams = {other.thread: _stream(other.stream) for other in hang.waiters if other.item is not None}
    helpers = [
        program.threads[agent].name if agent < count else streams.get(agent, "another stream")
        for agent in sources if agent != waiter.thread
    ]  # fmt: skip
    helpers = list(dict.fromkeys(helpers))
    nobody = "no other thread" if waiter.item is None else "nothing"
    by = f", which only {' or '.join(helpers)} can end" if helpers else f", which {nobody} can end"
    past = hang.gone[hang.waiters.index(waiter)] if hang.gone else ()
    if past and not helpers:
        told = [f"{program.threads[t].name} {'has ended' if ended else 'is past it'}" for t, ended in past]
        by = f", which nobody can end any more: {' and '.join(told)}"
        first = waiter.item is None and waiter.node == program.threads[waiter.thread].entry
        if first and all(ended for _, ended in past) and program.threads[waiter.thread].kind == "loop":
            by += f" (if {who} may wait for work for ever, say d.loop({who!r}, idle=True))"
    instead = "" if came is None else f", where {_tag(came)} came instead"
    return f"{who} waits for {for_what} since {since}{place}{instead}{by}"


def _stream(name: str) -> str:
    """A stream by its name, which may say itself that it is one."""
    return name if "stream" in name.lower().split() and len(name.split()) > 1 else f"stream {name}"


def _tag(tag: str) -> str:
    return f"the signal {tag!r}" if tag else "the signal"


def _for_what(program: p.Program, waiter: Waiter, thing: str) -> str:
    node = program.threads[waiter.thread].nodes[waiter.node]
    what = node.operation if isinstance(node, p.Do) else node.question
    if isinstance(what, p.Acquire):
        lock = program.objects[what.lock]
        return f"semaphore {thing}" if isinstance(lock, p.Lock) and lock.semaphore else f"lock {thing}"
    if isinstance(what, p.WaitFlag):
        return f"{thing} >= {what.value}"
    if isinstance(what, p.Get) and condition_of(program, what.queue) is not None:
        return f"a notify of condition {thing}"
    words = {
        p.Put: "room in {}", p.Get: "an item of {}", p.QueueTag: "an item of {}", p.Take: "a free token of {}",
        p.FlagWait: "flag {}", p.CounterWait: "counter {}", p.EventSync: "event {}",
    }  # fmt: skip
    if isinstance(what, p.DeviceSync):
        return f"the device, whose {_stream(thing)} waits"
    return words[type(what)].format(thing) if type(what) in words else _stream(thing)
