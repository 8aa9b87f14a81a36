"""Circles in the graph of states, and the words for where and when something in it happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.model import program as p
from fencepost.proofs.liveness.moves import Move
from fencepost.proofs.liveness.search import Graph
from fencepost.proofs.liveness.text import Node

Edge = tuple[int, int, tuple[Move, ...]]
"""(state, next state, what is done in between)."""


def place(program: p.Program, node: Node) -> str:
    """Where in the text, in brackets; empty when that is not known."""
    frames = _frames(program, node)
    return f" ({frames[0].file}:{frames[0].line})" if frames else ""


def _frames(program: p.Program, node: Node) -> tuple[p.Place, ...]:
    site = program.threads[node[0]].nodes[node[1]].site
    return program.places[site] if 0 <= site < len(program.places) else ()


def edges_of(graph: Graph) -> list[Edge]:
    """Everything that leads from one state to another."""
    return [(number, to, moves) for number, row in enumerate(graph.after) for to, moves in row]


def components(nodes: Iterable[int], edges: list[Edge]) -> list[set[int]]:
    """Strongly connected components that hold an edge."""
    inside = set(nodes)
    forward: dict[int, list[int]] = {}
    loops = set()
    for begin, to, _ in edges:
        if begin in inside and to in inside:
            forward.setdefault(begin, []).append(to)
            if begin == to:
                loops.add(begin)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on: set[int] = set()
    result: list[set[int]] = []
    for root in sorted(inside):
        if root in index:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(forward.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            number, ahead = work[-1]
            for to in ahead:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(forward.get(to, ()))))
                    break
                if to in on:
                    low[number] = min(low[number], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[number])
                if low[number] == index[number]:
                    part = set()
                    while True:
                        last = stack.pop()
                        on.discard(last)
                        part.add(last)
                        if last == number:
                            break
                    if len(part) > 1 or part & loops:
                        result.append(part)
    return result


def fair(graph: Graph, nodes: Iterable[int], edges: list[Edge]) -> Iterator[tuple[set[int], list[Edge]]]:
    """Components, each with its edges, on which nobody stands still who can go on and still can after another one's step.

    A node is a state, or stands for one: modulo their number.
    """
    semantics, states, count = graph.semantics, graph.states, len(graph.states)
    able: dict[int, set[int]] = {}

    def who(number: int) -> set[int]:
        if number not in able:
            state = states[number]
            able[number] = {agent for agent in semantics.ready(state) if semantics.obstacle(state, agent) is None}
        return able[number]

    todo = [(set(nodes), edges)]
    while todo:
        inside, kept = todo.pop()
        for part in components(inside, kept):
            within = [edge for edge in kept if edge[0] in part and edge[1] in part]
            moved = {move.thread for _, _, moves in within for move in moves}
            patient = [edge for edge in within if not (who(edge[0] % count) & who(edge[1] % count)) - moved]
            if len(patient) == len(within):
                yield part, within
            else:  # whoever does not move here moves in no part of it either
                todo.append((part, patient))


def turn_of(program: p.Program, moves: Iterable[Move], thread: int) -> int:
    """The turn in which a thread is after these moves."""
    turn = 0
    for move in moves:
        if move.thread == thread and move.item is None:
            node = program.threads[thread].nodes[move.node]
            turn += (node.next if isinstance(node, p.Do) else dict(node.branches)[str(move.answer)]) == p.END
    return turn
