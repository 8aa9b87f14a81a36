"""Which operations a search does without: those that left every state as it was that they ran in.

Without such an operation the same states are reachable, so a proof stands without it, and nobody need search again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from fencepost.model import program as p
from fencepost.proofs.explore.compile import Apply, DoNode
from fencepost.proofs.explore.memory import DROPS, FORKS
from fencepost.proofs.explore.search import Search
from fencepost.proofs.explore.state import State

Node = tuple[int, int]

_CHANGING = tuple(name for name in State.__slots__ if name not in ("pc", "trail"))


def watching(search: Search, nodes: Iterable[Node]) -> tuple[Search, set[Node]]:
    """The same search, and those of `nodes` (thread, node) that its proof needs, complete once it ran.

    Needed for sure counts a wait on an event that comes with an item of a queue, which the normal form of the queue relies on
    (fifo.py), and every node where streams meet: what is pending is no part of the comparison.
    """
    nodes = list(nodes)
    if search.device is not None:
        return search, set(nodes)
    needed: set[Node] = set()
    other = copy.copy(search)
    other.code = [row[:] for row in search.code]
    for t, i in nodes:
        node = other.code[t][i]
        assert isinstance(node, DoNode)
        whole = any(getattr(effect, FORKS, False) or getattr(effect, DROPS, None) is not None for effect in node.effects)
        if whole or node.ready is not None or _awaited(search, t, i):
            needed.add((t, i))
        else:
            effects = tuple(_watched(effect, (t, i), needed) for effect in node.effects)
            other.code[t][i] = DoNode(node.ready, effects, node.next, node.touches)
    other.blocks = [{} for _ in search.blocks]
    other.merged = []
    return other, needed


def _watched(effect: Apply, at: Node, needed: set[Node]) -> Apply:
    def run(s: State) -> list[State] | None:
        if at in needed:
            return effect(s)
        before = s.copy()
        after = effect(s)
        if after is not None or any(getattr(s, name) != getattr(before, name) for name in _CHANGING):
            needed.add(at)
        return after

    return run


def _awaited(search: Search, t: int, i: int) -> bool:
    """Whether the operation waits on an event of a queue's item, and the queue's normal form counts on that."""
    thread = search.program.threads[t]
    node = thread.nodes[i]
    operation = node.operation if isinstance(node, p.Do) else None
    if not isinstance(operation, p.EventSync) or not isinstance(operation.event, p.Local):
        return False
    gets = [n.operation for n in thread.nodes if isinstance(n, p.Do) and isinstance(n.operation, p.Get)]
    return any(
        form.oid == get.queue and operation.event.id in [get.locals[k] for k in form.sure.get(get.tag, ())]
        for form in search.forms for get in gets
    )  # fmt: skip
