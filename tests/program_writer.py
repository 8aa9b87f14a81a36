"""Writing `fencepost.model.program` data by hand: bodies as trees, no language in between."""

from __future__ import annotations

from typing import Any

from fencepost.model import program as p
from fencepost.model.operations import Context, lower

Tree = list[Any]
"""A body: operations, and (question, {answer: body}) pairs; the branches of a question meet again behind it."""


class Writer:
    """Objects and threads of a program in the making."""

    def __init__(self) -> None:
        self.objects: list[p.Object] = []
        self.threads: list[ThreadWriter] = []

    def add(self, found: p.Object) -> int:
        """Enter an object; its id."""
        self.objects.append(found)
        return len(self.objects) - 1

    def thread(self, kind: str = "loop") -> ThreadWriter:
        """A new thread."""
        made = ThreadWriter(f"t{len(self.threads)}", kind)
        self.threads.append(made)
        return made

    def program(self, name: str) -> p.Program:
        """The finished program."""
        return p.Program(name, tuple(self.objects), tuple(t.finish() for t in self.threads if t.body))


class ThreadWriter:
    """One thread: its locals and the tree of its body."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.locals: list[p.LocalInfo] = []
        self.body: Tree = []

    def local(self, name: str, kind: str, depth: int | None = None, pool: int | None = None) -> int:
        """A new local; its id."""
        same = sum(1 for x in self.locals if x.name == name)
        self.locals.append(p.LocalInfo(name, kind, same, depth, pool))
        return len(self.locals) - 1

    def finish(self) -> p.Thread:
        """The node table."""
        nodes: list[p.Node] = []
        entry = flatten(self.body, nodes, p.END)
        return p.Thread(self.name, self.kind, tuple(nodes), entry, tuple(self.locals))


def accepted(program: p.Program) -> bool:
    """Whether the platform's rules take every operation: what is handed over may be memory that cannot be accessed there."""
    for thread in program.threads:
        context = Context(program, thread)
        try:
            for node in thread.nodes:
                if isinstance(node, p.Do):
                    lower(node.operation, context)
        except ValueError:
            return False
    return True


def flatten(tree: Tree, nodes: list[p.Node], following: int) -> int:
    """Append the nodes of `tree`; the entry node."""
    for one in reversed(tree):
        if isinstance(one, tuple):
            question, answers = one
            branches = tuple((a, flatten(body, nodes, following)) for a, body in answers.items())
            nodes.append(p.Ask(question, branches))
        else:
            nodes.append(p.Do(one, following))
        following = len(nodes) - 1
    return following


def r(target: p.Operand) -> p.Access:
    """A read."""
    return p.Access(target, "r")


def w(target: p.Operand, same_bytes: bool = False) -> p.Access:
    """A write."""
    return p.Access(target, "w", same_bytes)
