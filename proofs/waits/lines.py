"""Lines of a design's text and the operations that they stand for: a helper's line is reached from several calls."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.proofs.explain import place
from fencepost.proofs.waits.handles import Node, following

Line = tuple[str, int]
"""File and line."""


class Lines:
    """The places of one program's nodes; `written`: the program as it is written, without additions that stand behind its nodes."""

    def __init__(self, program: p.Program, written: p.Program | None = None) -> None:
        self.program = program
        self._written = [len(thread.nodes) for thread in (written or program).threads]
        self._names: dict[int, frozenset[int]] = {}
        self._chains = [tuple((f.file, f.line) for f in frames) for frames in program.places]
        used = {node.site for thread in program.threads for node in thread.nodes}
        self._used = [self._chains[site] for site in sorted(used) if 0 <= site < len(self._chains)]

    def chain(self, at: Node) -> tuple[Line, ...]:
        """The lines of the user's frames, from the body down; nothing without positions."""
        site = self.program.threads[at[0]].nodes[at[1]].site
        return self._chains[site] if 0 <= site < len(self._chains) else ()

    def on_line(self, at: Node) -> list[Node]:
        """All nodes of the line that are operations of the same kind, or questions, whoever calls.

        A body that several threads have counts as one text only where they name the same objects there: else each has its own.
        """
        mine = self.chain(at)
        if not mine:
            return [at]
        here = self.program.threads[at[0]].nodes[at[1]]
        return [
            (t, i)
            for t, thread in enumerate(self.program.threads)
            for i, node in enumerate(thread.nodes)
            if i < self._written[t] and _kind(node) == _kind(here) and self.chain((t, i))[-1:] == mine[-1:]
            and (t == at[0] or ((named := _objects(node)) and named == _objects(here)))
        ]  # fmt: skip

    def names(self, t: int) -> frozenset[int]:
        """The objects that thread `t` names."""
        if t not in self._names:
            self._names[t] = frozenset[int]().union(*map(_objects, self.program.threads[t].nodes))
        return self._names[t]

    def others(self, at: Node) -> bool:
        """Whether the line runs in other threads, too, with objects of their own."""
        line, mine = self.on_line(at), self.chain(at)
        threads = {t for t, _ in line}
        return any(
            self.chain((t, i))[-1:] == mine[-1:]
            for t, thread in enumerate(self.program.threads)
            if t not in threads and mine
            for i in range(min(self._written[t], len(thread.nodes)))
        )

    def where(self, at: Node) -> str:
        """`file:line`, with ` < line` of the caller that tells it apart where several lead there."""
        mine = self.chain(at)
        lines = place(self.program, at)
        if len({chain for chain in self._used if chain[-1:] == mine[-1:]}) < 2:
            return lines
        k = self._telling(mine)
        return lines if k is None else f"{lines} < {mine[k][1]}"

    def _telling(self, mine: tuple[Line, ...]) -> int | None:
        """The innermost of the callers whose line is reached in one way."""
        for k in range(len(mine) - 2, -1, -1):
            if all(chain[: k + 1] == mine[: k + 1] for chain in self._used if mine[k] in chain):
                return k
        return None

    def call(self, at: Node, before: bool) -> tuple[str, list[Node]] | None:
        """The call, in a caller, that leads to the node's line from there alone: its place, and the nodes to stand before or behind.

        None where the line is reached in one way, where no call tells these apart, or where the call begins or ends in a
        place of its own.
        """
        mine = self.chain(at)
        if len({chain for chain in self._used if chain[-1:] == mine[-1:]}) < 2:
            return None
        k = self._telling(mine)
        if k is None:
            return None
        file, line = mine[k]
        ends: list[Node] = []
        whose = {t for t, _ in self.on_line(at)}
        for t, thread in enumerate(self.program.threads):
            if t not in whose:
                continue
            inside = {i for i in range(len(thread.nodes)) if self.chain((t, i))[: k + 1] == mine[: k + 1]}
            if not inside:
                continue
            if any(isinstance(thread.nodes[i], p.Ask) for i in inside):
                return None  # its ways end in several places
            into: dict[int, set[int]] = {i: set() for i in inside}
            for i, node in enumerate(thread.nodes):
                for n in following(node):
                    if n in inside:
                        into[n].add(i)
            for i in sorted(inside):
                edge = into[i] - inside or i == thread.entry if before else any(n not in inside for n in _after(thread.nodes[i]))
                if edge and before and into[i] & inside:
                    return None
                if edge:
                    ends.append((t, i))
        return (f"{file}:{line}", ends) if ends else None


def _after(node: p.Node) -> list[int]:
    return [node.next] if isinstance(node, p.Do) else [n for _, n in node.branches]


def _kind(node: p.Node) -> type:
    return type(node.operation) if isinstance(node, p.Do) else type(node.question)


_NUMBERS = ("pool", "queue", "cursor", "lock", "flag", "counter", "channel")
"""Fields of operations that hold the number of an object."""


def _objects(value: object) -> frozenset[int]:
    """The objects that a node names."""
    if isinstance(value, (p.Obj, p.Slot)):
        return frozenset((value.id,))
    if isinstance(value, p.Do):
        return _objects(value.operation)
    if isinstance(value, p.Ask):
        return _objects(value.question)
    if isinstance(value, p.Data):
        numbers = {n for field in _NUMBERS if isinstance(n := getattr(value, field, None), int)}
        return frozenset(numbers).union(*(_objects(getattr(value, field)) for field in value.__struct_fields__))
    if isinstance(value, tuple):
        return frozenset[int]().union(*map(_objects, value))
    return frozenset()
