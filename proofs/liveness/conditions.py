"""Waiters on conditions that a `notify` never picks: each time another one waits, too, and goes on instead.

A condition is written down as two queues for each thread that waits, `waiting` and `woken` (model/language/sharing.py). A notify
begins at any of them, and wakes the first at which somebody waits; known here by that shape, not by names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fencepost.model import program as p
from fencepost.proofs.liveness.graphs import Edge, fair
from fencepost.proofs.liveness.search import Graph
from fencepost.proofs.liveness.text import Node, operations

WAITING, WOKEN = " waiting", " woken"
"""What the language adds to the name of a condition."""


class Place(NamedTuple):
    """Where one thread waits: the queue in which it says so, and the one through which it is woken."""

    waiting: int
    woken: int


class PassedOver(NamedTuple):
    """A wait at `place`, and the nodes at which a notify may wake somebody else instead."""

    wait: Node
    place: Place
    others: frozenset[Node]


def waits_on_conditions(program: p.Program) -> list[PassedOver]:
    """Waits of threads for a notify that may have another one to wake."""
    if not operations(program, p.QueueHolds):
        return []
    wakes: dict[Place, set[Node]] = {}
    beside: dict[Place, set[Place]] = {}
    for t, thread in enumerate(program.threads):
        for chain in _chains(thread):
            for n, place in chain.items():
                wakes.setdefault(place, set()).add((t, n))
                beside.setdefault(place, set()).update(chain.values())
    found = []
    for wait, x in operations(program, p.Get):
        for place in wakes:
            others = frozenset(n for other in beside[place] - {place} for n in wakes[other] if n[0] != wait[0])
            if place.woken == x.queue and others:
                found.append(PassedOver(wait, place, others))
    return found


def _chains(thread: p.Thread) -> Iterator[dict[int, Place]]:
    """Tests of places, each asked where the one before said no: the node that wakes -> its place."""
    probes = {n: found for n, node in enumerate(thread.nodes) if (found := _probe(thread, node)) is not None}
    linked = [(n, no) for n, (_, no, _) in probes.items() if no in probes]
    group = {n: n for n in probes}

    def root(n: int) -> int:
        while group[n] != n:
            n = group[n]
        return n

    for one, other in linked:
        group[root(one)] = root(other)
    chains: dict[int, dict[int, Place]] = {}
    for n, (wakes, _, place) in probes.items():
        chains.setdefault(root(n), {})[wakes] = place
    return iter(chain for chain in chains.values() if len(set(chain.values())) > 1)


def _probe(thread: p.Thread, node: p.Node) -> tuple[int, int, Place] | None:
    """(the node that takes who waits there, the node after no, the place), where a node asks whether somebody waits, to wake it."""
    if not isinstance(node, p.Ask) or not isinstance(node.question, p.QueueHolds) or node.question.count != 1:
        return None
    ways = dict(node.branches)
    if ways["yes"] == p.END:
        return None
    took = thread.nodes[ways["yes"]]
    if not isinstance(took, p.Do) or not isinstance(took.operation, p.Get) or took.operation.queue != node.question.queue or took.next == p.END:
        return None
    woke = thread.nodes[took.next]
    if not isinstance(woke, p.Do) or not isinstance(woke.operation, p.Put) or woke.operation.queue == took.operation.queue:
        return None
    return ways["yes"], ways["no"], Place(took.operation.queue, woke.operation.queue)


def never_picked(graph: Graph, edges: list[Edge], passed: PassedOver) -> tuple[int, Node] | None:
    """(a first state of a circle in which the wait lasts, who wakes another one) if there is one."""
    (t, n), semantics, states = passed.wait, graph.semantics, graph.states
    waiting = semantics.kept.index(passed.place.waiting)
    here = {
        number for number in range(len(graph.after))
        if states[number].at[t] == n and states[number].objects[waiting] and semantics.obstacle(states[number], t) is not None
    }  # fmt: skip
    kept = [edge for edge in edges if edge[0] in here and edge[1] in here]
    for part, within in fair(graph, here, kept):
        for _, _, moves in within:
            for move in moves:
                if move.item is None and (move.thread, move.node) in passed.others:
                    return min(part), (move.thread, move.node)
    return None


def condition_of(program: p.Program, woken: int) -> str | None:
    """What the condition is called whose waiters are woken through a queue; None if it is no such queue."""
    thing = program.objects[woken]
    name, found, place = thing.name.rpartition(WOKEN)
    if not isinstance(thing, p.Queue) or not found or not (place == "" or place[1:].isdigit()):
        return None
    names = {f"{name}{WAITING}", f"{name}{WAITING}{place}"}
    return name if any(isinstance(other, p.Queue) and other.name in names for other in program.objects) else None
