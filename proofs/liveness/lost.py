"""Lost signals that hang nobody: two stores to a device flag of which its waits see one."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from fencepost.model import program as p
from fencepost.proofs.liveness.device import DeviceSemantics
from fencepost.proofs.liveness.graphs import edges_of, place, turn_of
from fencepost.proofs.liveness.moves import Move
from fencepost.proofs.liveness.search import graph_of, path
from fencepost.proofs.liveness.text import Node, operations

LOST = "lost signal"


def lost_signals(program: p.Program, limit: int, bounds: set[str], until: float = inf) -> Iterator[str]:
    """Stores to a device flag that its waits reset, which can meet a store that no wait has seen: the set is unordered with
    the reset, and two signals become one. Whether somebody then waits for ever is another question."""
    resets: dict[int, bool] = {}
    for _, operation in operations(program, p.WaitFlag):
        resets[operation.flag] = resets.get(operation.flag, True) and operation.reset
    signals = {flag for flag, always in resets.items() if always}
    if not signals:
        return
    graph = graph_of(program, limit, True, until)
    if graph.bounded is not None:
        bounds.add(graph.bounded)
    assert isinstance(graph.semantics, DeviceSemantics)
    told: set[int] = set()
    for number, _, moves in edges_of(graph):
        for move in moves[:1]:  # a store is a step of its own
            store = _stored(program, move)
            if store is None or store[1] not in signals - told or store[2] < 1:
                continue
            node, flag, _ = store
            if graph.states[number].device.words[graph.semantics.word[flag]] >= 1:
                told.add(flag)
                name = program.objects[flag].name
                turn = turn_of(program, path(graph, number), node[0])
                yield (
                    f"{LOST} {name} - the store of {program.threads[node[0]].name}{place(program, node)} can come before the wait has "
                    f"reset {name}, first in step {turn}: nobody sees that there were two"
                )


def _stored(program: p.Program, move: Move) -> tuple[Node, int, int] | None:
    """(node, device flag, value) of a move that stores."""
    if move.item is not None:
        item = move.item
        return ((item.thread, item.node), item.thing, item.value) if item.kind == "store" else None
    node = program.threads[move.thread].nodes[move.node]
    if isinstance(node, p.Do) and isinstance(node.operation, p.StoreFlag) and node.operation.stream is None:
        return (move.thread, move.node), node.operation.flag, node.operation.value
    return None
