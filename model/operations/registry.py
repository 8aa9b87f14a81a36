"""The registry of operations and questions, and the context that a rule may look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.model.effects import Effect
from fencepost.model.platform import BARE, PLATFORMS, Environment, Platform


class Context(msgspec.Struct, frozen=True):
    """What a rule may depend on: the program, the thread that runs the operation, platform and environment."""

    program: p.Program
    thread: p.Thread
    platform: Platform = PLATFORMS["cuda"]
    environment: Environment = BARE
    _made: dict[int, dict[int, list[p.Operation]]] = msgspec.field(default_factory=dict)
    """For each thread that was asked about (by its identity): what makes or receives each of its locals."""

    def space(self, operand: p.Operand) -> str:
        """Where the bytes live: "pinned" | "pageable" | "device" | "managed"; "" for a received local that may be several."""
        spaces = self.spaces(operand)
        return next(iter(spaces)) if len(spaces) == 1 else ""

    def spaces(self, operand: p.Operand) -> frozenset[str]:
        """Everywhere that the bytes may live: more than one place only for what queues and cells hand over."""
        return self._spaces(self.thread, operand, set())

    def _spaces(self, thread: p.Thread, operand: p.Operand | p.Index, seen: set[tuple[int, int]]) -> frozenset[str]:
        if not isinstance(operand, p.Local):
            memory = self.program.objects[operand.id] if isinstance(operand, (p.Obj, p.Slot)) else None
            return frozenset((memory.space,)) if isinstance(memory, p.Memory) else frozenset()
        key = (id(thread), operand.id)
        if key in seen:
            return frozenset()
        seen.add(key)
        info = thread.locals[operand.id]
        if info.pool is not None:
            pool = self.program.objects[info.pool]
            assert isinstance(pool, p.Pool)
            return frozenset((pool.of,))
        found: frozenset[str] = frozenset()
        for made in self._makers(thread).get(operand.id, ()):
            if isinstance(made, p.Alloc):
                found |= {made.space}
            elif isinstance(made, p.View):
                found |= self._spaces(thread, made.base, seen)
            elif isinstance(made, (p.Get, p.CellGet)):
                for giver, value in self._handed_over(made, made.locals.index(operand.id)):
                    found |= self._spaces(giver, value, seen)
        return found

    def _makers(self, thread: p.Thread) -> dict[int, list[p.Operation]]:
        makers = self._made.get(id(thread))
        if makers is None:
            makers = self._made[id(thread)] = {}
            for node in thread.nodes:
                made = node.operation if isinstance(node, p.Do) else None
                if isinstance(made, (p.Alloc, p.View)):
                    makers.setdefault(made.local, []).append(made)
                elif isinstance(made, (p.Get, p.CellGet)):
                    for local in set(made.locals):
                        makers.setdefault(local, []).append(made)
        return makers

    def _handed_over(self, taken: p.Get | p.CellGet, position: int) -> list[tuple[p.Thread, p.Operand | p.Index]]:
        """What any thread puts where `taken` takes its value at `position` from."""
        found: list[tuple[p.Thread, p.Operand | p.Index]] = []
        for thread in self.program.threads:
            for node in thread.nodes:
                given = node.operation if isinstance(node, p.Do) else None
                if isinstance(taken, p.Get):
                    same = isinstance(given, p.Put) and (given.queue, given.tag) == (taken.queue, taken.tag)
                else:
                    same = isinstance(given, p.CellSet) and _id(given.cell) == _id(taken.cell)
                if same and isinstance(given, (p.Put, p.CellSet)) and position < len(given.values):
                    found.append((thread, given.values[position]))
        return found


def _id(operand: p.Operand) -> int:
    return operand.id


class Rule(msgspec.Struct, frozen=True):
    """The meaning of one operation class. `accesses`, `edges`, `enabled` are the sentences of the reference page."""

    name: str
    lower: Callable[[Any, Context], tuple[Effect, ...]]
    accesses: str
    edges: str
    enabled: str
    rules: tuple[str, ...]


RULES: dict[type, Rule] = {}
QUESTIONS: dict[type, Rule] = {}


def rule(
    operation: type, name: str, *, accesses: str = "none", edges: str = "program order only",
    enabled: str = "always", rules: tuple[str, ...] = (),
) -> Callable[[Callable[[Any, Context], tuple[Effect, ...]]], Callable[[Any, Context], tuple[Effect, ...]]]:  # fmt: skip
    """Enter the lowering of `operation` into the registry, with the sentences of the reference page."""

    def enter(function: Callable[[Any, Context], tuple[Effect, ...]]) -> Callable[[Any, Context], tuple[Effect, ...]]:
        RULES[operation] = Rule(name, function, accesses, edges, enabled, rules)
        return function

    return enter


def question_rule(question: type, name: str, *, edges: str, answers: str, rules: tuple[str, ...] = ()) -> None:
    """Enter a question: its edges, and which answers are possible in a state."""
    QUESTIONS[question] = Rule(name, lambda _q, _c: (), "none", edges, answers, rules)


def lower(operation: p.Operation, context: Context) -> tuple[Effect, ...]:
    """The effects of one operation, in order."""
    return RULES[type(operation)].lower(operation, context)
