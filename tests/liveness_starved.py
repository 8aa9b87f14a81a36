"""Starvation by the plain reference: circles of its states in which a waiter is passed over each time it could go on.

Written from docs/answers.md alone. Objects of conditions are known by the names that the language gives them.
"""

from __future__ import annotations

import re
from typing import Any

import networkx as nx
from fencepost.model import program as p

from liveness_reference import Reference

NO_TIME = (p.Drop, p.View, p.NewEvent, p.Maybe, p.Choose, p.TurnBelow)


def contended(what: Any) -> tuple[str, int] | None:
    """(how, the object) of what a thread may wait for while others take it away."""
    if isinstance(what, (p.Put, p.Get)):
        return type(what).__name__, what.queue
    if isinstance(what, p.Take):
        return "Take", what.pool
    if isinstance(what, p.Acquire):
        return ("Acquire", what.lock) if what.edge else None
    if isinstance(what, p.FlagWait) or (isinstance(what, p.WaitFlag) and what.stream is None):
        return "Flag", what.flag
    return None


def takes(what: Any) -> tuple[str, int] | None:
    """The same of what takes it away."""
    if isinstance(what, p.TryLock):
        return "Acquire", what.lock
    if isinstance(what, (p.FlagClear, p.StoreFlag, p.WaitFlag)):
        return "Flag", what.flag
    return None if isinstance(what, p.FlagWait) else contended(what)


def starved(reference: Reference) -> set[str]:
    """Objects and conditions for which some thread can wait for ever while others get it again and again."""
    program = reference.program
    found = set()
    for t, thread in enumerate(program.threads):
        for n, node in enumerate(thread.nodes):
            what = node.operation if isinstance(node, p.Do) else None
            thing = contended(what)
            if thing is not None and _passed_over(reference, t, n, thing):
                found.add(program.objects[thing[1]].name)
            if isinstance(what, p.Get):
                place = re.fullmatch(r"(.*) woken( \d+)?", program.objects[what.queue].name)
                if place is not None and _never_picked(reference, t, n, place[1], place[2] or ""):
                    found.add(place[1])
    return found


def _what(reference: Reference, agent: Any, label: tuple[Any, ...]) -> Any:
    if isinstance(agent, tuple):
        return None
    node = reference.program.threads[agent].nodes[label[0]]
    return node.operation if isinstance(node, p.Do) else node.question


def _passed_over(reference: Reference, t: int, n: int, thing: tuple[str, int]) -> bool:
    can = [{agent for agent, _ in row} for row in reference.after]
    here = {k for k, key in enumerate(reference.states) if key[0][t] == n}
    graph = nx.MultiDiGraph()
    for k in here:
        for (agent, to), label in zip(reference.after[k], reference.labels[k], strict=True):
            if agent == t or to not in here:
                continue
            what = _what(reference, agent, label)
            took = t in can[k] and t not in can[to] and takes(what) == thing and reference.program.threads[agent].kind == "loop"
            if t in can[k] and not took and not (t in can[to] and isinstance(what, NO_TIME)):
                continue  # it goes on before anything else is done
            graph.add_edge(k, to, agent=agent, took=took, timeless=isinstance(what, NO_TIME))
    return _fair(graph, can, "took")


def _never_picked(reference: Reference, t: int, n: int, name: str, mark: str) -> bool:
    objects = {thing.name: k for k, thing in enumerate(reference.program.objects)}
    own = objects.get(f"{name} waiting{mark}")
    others = {k for text, k in objects.items() if re.fullmatch(rf"{re.escape(name)} waiting \d+", text)} - {own}
    if own is None or not others:
        return False
    can = [{agent for agent, _ in row} for row in reference.after]
    here = {k for k, key in enumerate(reference.states) if key[0][t] == n and dict(key[3])[own] and t not in can[k]}
    graph = nx.MultiDiGraph()
    for k in here:
        for (agent, to), label in zip(reference.after[k], reference.labels[k], strict=True):
            if to in here:
                what = _what(reference, agent, label)
                graph.add_edge(k, to, agent=agent, took=isinstance(what, p.Get) and what.queue in others, timeless=isinstance(what, NO_TIME))
    return _fair(graph, can, "took")


def _fair(graph: nx.MultiDiGraph, can: list[set[Any]], wanted: str) -> bool:
    """Whether a part of the graph has a wanted edge, and nobody stands still in it who can go on and still can one step later."""
    for part in nx.strongly_connected_components(graph):
        within = graph.subgraph(part)
        edges = [(a, b, key, data) for a, b, key, data in within.edges(keys=True, data=True)]
        if not any(data[wanted] for *_, data in edges):
            continue
        moved = {data["agent"] for *_, data in edges}
        late = [(a, b, key) for a, b, key, data in edges if not data["timeless"] and (can[a] & can[b]) - moved]
        if not late:
            return True
        left = nx.MultiDiGraph(within)
        left.remove_edges_from(late)
        if _fair(left, can, wanted):
            return True
    return False
