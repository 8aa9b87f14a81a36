"""Which steps need not be interleaved: what no other thread can notice, and which threads another one keeps going.

Visible are the steps whose order with other threads' steps can matter. Invisible ones run at once, alone, provided that
every cycle of the search has a state at which all threads are expanded (theory: visible steps). The start of a turn is
such a state. A *driven* thread does not need it: in each of its turns it takes from a queue that one other thread alone
fills, or puts into one that one other thread alone empties. On a cycle the queue ends as it began, so the other thread
moves too and passes the start of a turn of its own; the drivers form no circle, so one of them is expanded there.
Or it awaits a channel to which one other thread alone signals: a state has messages and what is pending one by one, so on
a cycle as much is given to the streams as runs there, and as many signals run as awaits.
A script has one turn only, so no cycle has any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.model import program as p

DEVICE = -1
"""In place of a thread: the device moves by itself."""


def seen(t: int, what: Any, users: dict[Any, set[int]]) -> bool:
    """Whether the order of a step of thread `t` that touches `what` and of other threads' steps can matter.

    The one putter and the one getter of a queue commute wherever both can move: they work at its two ends, and a put
    that waits for a slot is not enabled yet. Only a test by the other side, or a second putter or getter, tells.
    """
    if not isinstance(what, tuple) or what[0] not in ("put", "get", "test"):
        return len(users[what]) > 1
    put, get, test = (users.get((kind, what[1]), set()) for kind in ("put", "get", "test"))
    if what[0] == "test":
        return bool((put | get) - {t})
    return len(put if what[0] == "put" else get) > 1 or bool(test - {t})


def after(node: p.Node) -> list[int]:
    """The nodes that may come next within the turn, END left out."""
    return [n for n in ([node.next] if isinstance(node, p.Do) else [n for _, n in node.branches]) if n >= 0]


def _rises(thread: p.Thread) -> bool:
    """Whether every node leads to later ones only, as most bodies are written down."""
    for i, node in enumerate(thread.nodes):
        for n in (node.next,) if isinstance(node, p.Do) else [n for _, n in node.branches]:
            if 0 <= n <= i:
                return False
    return True


def circles(thread: p.Thread) -> set[int]:
    """Nodes that cut every circle within a turn: where a walk through the nodes comes back to itself."""
    if _rises(thread):
        return set()
    state = [0] * len(thread.nodes)  # 1: on the walk, 2: done
    found: set[int] = set()
    for root in range(len(thread.nodes)):
        walk: list[tuple[int, list[int]]] = []
        at: int | None = root if not state[root] else None
        while True:
            if at is not None:
                state[at] = 1
                walk.append((at, after(thread.nodes[at])))
            if not walk:
                break
            node, left = walk[-1]
            at = None
            if left:
                n = left.pop()
                if state[n] == 1:
                    found.add(n)
                at = n if not state[n] else None
            else:
                state[node] = 2
                walk.pop()
    return found


def _always(thread: p.Thread, mark: set[int]) -> bool:
    """Whether every path through a turn passes a node of `mark`; the thread has no circle within a turn."""
    todo, known = [thread.entry], set()
    while todo:
        n = todo.pop()
        if n < 0:
            return False
        if n in known or n in mark:
            continue
        known.add(n)
        node = thread.nodes[n]
        todo += [node.next] if isinstance(node, p.Do) else [k for _, k in node.branches]
    return True


def driven(program: p.Program, circular: bool | None = None) -> list[bool]:
    """For each thread whether other threads keep it going: no cycle of the search has its turns alone.

    `circular`: whether a thread has a circle within a turn, where that is known already.
    """
    threads = program.threads
    result = [False] * len(threads)
    if len(threads) < 2 or (any(circles(thread) for thread in threads) if circular is None else circular):
        return result
    users: dict[type, dict[int, dict[int, set[int]]]] = {kind: {} for kind in (p.Put, p.Get, p.Signal, p.Await)}
    """Of each kind of operation, for each queue or channel and each thread its nodes."""
    for t, thread in enumerate(threads):
        for i, node in enumerate(thread.nodes):
            o = node.operation if type(node) is p.Do else None
            if type(o) is p.Put or type(o) is p.Get:
                users[type(o)].setdefault(o.queue, {}).setdefault(t, set()).add(i)
            elif type(o) is p.Signal or type(o) is p.Await:
                users[type(o)].setdefault(o.channel, {}).setdefault(t, set()).add(i)
    drivers: list[set[int]] = [set() for _ in threads]
    for mine, others in ((p.Get, p.Put), (p.Put, p.Get), (p.Await, p.Signal)):
        for thing, by in users[mine].items():
            partners = users[others].get(thing, {})
            if len(by) == len(partners) == 1 and set(by) != set(partners):
                ((t, nodes),) = by.items()
                if _always(threads[t], nodes):
                    drivers[t] |= set(partners)
    order = sorted(range(len(threads)), key=lambda t: (_choices(threads[t]), t))
    chosen: dict[int, int] = {}
    for t in order:
        result[t] = threads[t].kind != "loop"
        for u in sorted(drivers[t]):
            if not _leads(chosen, u, t):
                chosen[t] = u
                result[t] = True
                break
    return result


def _choices(thread: p.Thread) -> int:
    return sum(type(node) is p.Ask for node in thread.nodes)


def _leads(chosen: dict[int, int], start: int, to: int) -> bool:
    at: int | None = start
    while at is not None:
        if at == to:
            return True
        at = chosen.get(at)
    return False


def visible(code: Sequence[Sequence[Any]], others: Mapping[Any, set[int]] | None = None) -> list[list[bool]]:
    """For each thread and compiled node (None: passed over) whether other threads can notice it, or the device.

    `others`: who changes something without a node that touches it.
    """
    users: dict[Any, set[int]] = {what: set(who) for what, who in (others or {}).items()}
    for t, nodes in enumerate(code):
        for node in nodes:
            for what in node.touches if node is not None else ():
                users.setdefault(what, set()).add(t)
    noticed = [{what for what, who in users.items() if t in who and seen(t, what, users)} for t in range(len(code))]
    return [
        [node is not None and not noticed[t].isdisjoint(node.touches) for node in nodes] for t, nodes in enumerate(code)
    ]
