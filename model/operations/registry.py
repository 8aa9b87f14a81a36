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

    def space(self, operand: p.Operand) -> str:
        """Where the bytes live: "pinned" | "pageable" | "device" | "managed"; "" for a received local."""
        if isinstance(operand, p.Local):
            return self._local_space(operand.id)
        memory = self.program.objects[operand.id]
        assert isinstance(memory, p.Memory)
        return memory.space

    def _local_space(self, local: int) -> str:
        info = self.thread.locals[local]
        if info.pool is not None:
            pool = self.program.objects[info.pool]
            assert isinstance(pool, p.Pool)
            return pool.of
        for node in self.thread.nodes:
            if isinstance(node, p.Do):
                operation = node.operation
                if isinstance(operation, p.Alloc) and operation.local == local:
                    return operation.space
                if isinstance(operation, p.View) and operation.local == local:
                    return self.space(operation.base)
        return ""


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
