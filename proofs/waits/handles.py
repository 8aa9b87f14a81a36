"""What a local can stand for: the objects and allocations behind it, through views, queues and cells.

Read off the text, without exploring anything: a local that was received can be whatever any giver put there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fencepost.model import program as p

Node = tuple[int, int]
"""Thread and node number."""


class Origin(NamedTuple):
    """`thread` is None for an object that lives for ever (`id` its number), else `id` is a local made by that thread."""

    thread: int | None
    id: int


def following(node: p.Node) -> list[int]:
    """The nodes that a node leads to, without the end of the turn."""
    nexts = [node.next] if isinstance(node, p.Do) else [n for _, n in node.branches]
    return [n for n in nexts if n != p.END]


def later(thread: p.Thread, at: int) -> set[int]:
    """The nodes that can come after node `at` in the same turn."""
    seen: set[int] = set()
    todo = following(thread.nodes[at])
    while todo:
        n = todo.pop()
        if n not in seen:
            seen.add(n)
            todo += following(thread.nodes[n])
    return seen


def in_order(thread: p.Thread) -> list[int]:
    """The nodes as the body runs them: each before those that follow it, circles aside."""
    finished: list[int] = []
    seen: set[int] = set()
    stack: list[tuple[int, Iterator[int]]] = []
    if thread.nodes and thread.entry != p.END:
        seen.add(thread.entry)
        stack.append((thread.entry, iter(following(thread.nodes[thread.entry]))))
    while stack:
        at, rest = stack[-1]
        for n in rest:
            if n not in seen:
                seen.add(n)
                stack.append((n, iter(following(thread.nodes[n]))))
                break
        else:
            stack.pop()
            finished.append(at)
    return finished[::-1]


class Handles:
    """Origins of operands of one program."""

    def __init__(self, program: p.Program) -> None:
        self.program = program
        self._known: dict[tuple[int, int], frozenset[Origin]] = {}
        self._sources: dict[tuple[int, int], list[tuple[int, p.Operand]]] = {}
        """For each local that is a view or was received: (thread, operand) that it may be."""
        given: dict[tuple[str, int, str], list[tuple[int, tuple[p.Operand | p.Index, ...]]]] = {}
        for t, thread in enumerate(program.threads):
            for node in thread.nodes:
                op = node.operation if isinstance(node, p.Do) else None
                if isinstance(op, p.Put):
                    given.setdefault(("queue", op.queue, op.tag), []).append((t, op.values))
                elif isinstance(op, p.CellSet):
                    assert not isinstance(op.cell, p.Local)
                    given.setdefault(("cell", op.cell.id, ""), []).append((t, op.values))
        for t, thread in enumerate(program.threads):
            for node in thread.nodes:
                op = node.operation if isinstance(node, p.Do) else None
                if isinstance(op, p.View):
                    self._sources.setdefault((t, op.local), []).append((t, op.base))
                elif isinstance(op, (p.Get, p.CellGet)):
                    if isinstance(op, p.Get):
                        key = ("queue", op.queue, op.tag)
                    else:
                        assert not isinstance(op.cell, p.Local)
                        key = ("cell", op.cell.id, "")
                    for k, local in enumerate(op.locals):
                        into = self._sources.setdefault((t, local), [])
                        for giver, values in given.get(key, ()):
                            value = values[k] if k < len(values) else None
                            if isinstance(value, (p.Obj, p.Slot, p.Local)):
                                into.append((giver, value))

    def of(self, t: int, operand: p.Operand) -> frozenset[Origin]:
        """The objects and made locals that `operand` of thread `t` can stand for."""
        if not isinstance(operand, p.Local):
            return frozenset((Origin(None, operand.id),))
        found: set[Origin] = set()
        seen: set[tuple[int, int]] = set()
        todo: list[tuple[int, p.Operand]] = [(t, operand)]
        while todo:
            thread, one = todo.pop()
            if not isinstance(one, p.Local):
                found.add(Origin(None, one.id))
            elif (thread, one.id) not in seen:
                seen.add((thread, one.id))
                sources = self._sources.get((thread, one.id))
                if sources is None:
                    found.add(Origin(thread, one.id))
                else:
                    todo += sources
        return frozenset(found)

    def records(self, t: int, event: p.Operand) -> list[Node]:
        """The `record` nodes of the events that `event` of thread `t` can stand for."""
        ours = self.of(t, event)
        return [
            (u, i)
            for u, thread in enumerate(self.program.threads)
            for i, node in enumerate(thread.nodes)
            if isinstance(node, p.Do)
            and isinstance(node.operation, p.Record)
            and ours & self.of(u, node.operation.event)
        ]

    def name(self, origin: Origin) -> str:
        """The object's or the local's name."""
        if origin.thread is None:
            return self.program.objects[origin.id].name
        return self.program.threads[origin.thread].locals[origin.id].name
