"""A hang in words: its name, and one line per waiter: who waits for what, where, since which step."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.proofs.liveness.search import Hang, Waiter


def name(program: p.Program, hang: Hang) -> str:
    """`deadlock OBJECT` when threads wait for each other in a circle, `no source OBJECT` when nobody is left to help."""
    circle = hang.cycle()
    waiter = hang.waiters[circle[0] if circle else 0]
    return f"{'deadlock' if circle else 'no source'} {program.objects[waiter.obstacle].name}"


def sentence(program: p.Program, hang: Hang) -> str:
    """The name, then every waiter."""
    lines = [_waits(program, waiter, sources) for waiter, sources in zip(hang.waiters, hang.sources, strict=True)]
    return f"{name(program, hang)} - " + "; ".join(lines)


def _waits(program: p.Program, waiter: Waiter, sources: tuple[int, ...]) -> str:
    thread = program.threads[waiter.thread]
    node = thread.nodes[waiter.node]
    what = node.operation if isinstance(node, p.Do) else node.question
    thing = program.objects[waiter.obstacle].name
    for_what = {
        p.Put: f"room in {thing}",
        p.Get: f"an item of {thing}",
        p.QueueTag: f"an item of {thing}",
        p.Take: f"a free token of {thing}",
        p.Acquire: f"lock {thing}" if not _semaphore(program, waiter.obstacle) else f"semaphore {thing}",
        p.FlagWait: f"flag {thing}",
        p.CounterWait: f"counter {thing}",
    }[type(what)]
    frames = program.places[node.site] if 0 <= node.site < len(program.places) else ()
    place = f" ({frames[0].file}:{frames[0].line})" if frames else ""
    helpers = [program.threads[t].name for t in sources if t != waiter.thread]
    by = f", which only {' or '.join(helpers)} can end" if helpers else ", which no other thread can end"
    return f"{thread.name} waits for {for_what} since step {waiter.turn}{place}{by}"


def _semaphore(program: p.Program, number: int) -> bool:
    thing = program.objects[number]
    return isinstance(thing, p.Lock) and thing.semaphore
