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

    _givers: dict[tuple[str, object], list[tuple[p.Thread, p.Put | p.CellSet]]] = msgspec.field(default_factory=dict)
    """What puts into each queue, by its tag, and sets each cell, once somebody asked."""

    _several: list[bool] = msgspec.field(default_factory=list)
    """Whether the program uses several GPUs, once somebody asked."""

    def space(self, operand: p.Operand) -> str:
        """Where the bytes live: "pinned" | "pageable" | "device" | "managed"; "" for a received local that may be several."""
        spaces = self.spaces(operand)
        return next(iter(spaces)) if len(spaces) == 1 else ""

    def spaces(self, operand: p.Operand) -> frozenset[str]:
        """Everywhere that the bytes may live: more than one place only for what queues and cells hand over."""
        return frozenset(space for space, _ in self._origins(self.thread, operand, set()))

    def homes(self, operand: p.Operand) -> frozenset[str]:
        """The processes of which one made or allocated the bytes: several only for what queues and cells hand over."""
        return frozenset(home for _, home in self._origins(self.thread, operand, set()))

    def reach(self, operand: p.Operand, by_host: bool) -> None:
        """Refuse what is handed over to where it cannot be accessed. Raises `ValueError`."""
        if not isinstance(operand, p.Local):
            return  # known while a body is traced
        origins = self._origins(self.thread, operand, set())
        name, mine = self.thread.locals[operand.id].name, self.thread.process
        if by_host and any(space == "device" for space, _ in origins):
            raise ValueError(f"thread {self.thread.name!r}: the host cannot access device memory, which {name!r} may be; copy it, or use d.managed")
        if origins and mine and all(space == "pinned" and home and home != mine for space, home in origins):
            home = min(home for _, home in origins)
            raise ValueError(
                f"thread {self.thread.name!r}: {name!r} is pinned memory of process {home!r}, which is not mapped in process {mine!r}; "
                "copy it, or make a buffer that both share: d.pinned(...).shared_with(...)"
            )

    def recordable(self, event: p.Operand, stream: p.Operand) -> None:
        """Refuse the record of a received event on another GPU than its own (S17, S25). Raises `ValueError`."""
        if not isinstance(event, p.Local):
            return  # known while a body is traced
        home = self.program.objects[stream.id] if isinstance(stream, (p.Obj, p.Slot)) else None
        if not isinstance(home, p.Stream) or home.is_agent:
            return
        if not self._several:
            gpus = {o.gpu for o in self.program.objects if isinstance(o, (p.Stream, p.Event)) and o.gpu >= 0}
            self._several.append(len(gpus) > 1)
        if not self._several[0]:
            return
        others = sorted(gpu for gpu in self._gpus(self.thread, event, set()) if 0 <= gpu != home.gpu)
        if others:
            raise ValueError(
                f"record in thread {self.thread.name!r}: event {self.thread.locals[event.id].name!r} was handed over and may be of GPU "
                f"{others[0]}, and stream {home.name!r} is of GPU {home.gpu}: a record must be on the event's own device (S25); use an event for each"
            )

    def _gpus(self, thread: p.Thread, event: p.Operand | p.Index, seen: set[tuple[int, int]]) -> frozenset[int]:
        """The GPUs that an event may be bound to: the declared one, or that of the records in the thread that made it."""
        if not isinstance(event, p.Local):
            known = self.program.objects[event.id] if isinstance(event, (p.Obj, p.Slot)) else None
            return frozenset((known.gpu,)) if isinstance(known, p.Event) else frozenset()
        if (id(thread), event.id) in seen:
            return frozenset()
        seen.add((id(thread), event.id))
        found: frozenset[int] = frozenset()
        for node in thread.nodes:
            made = node.operation if isinstance(node, p.Do) else None
            if isinstance(made, p.Record) and made.event == event and isinstance(made.stream, (p.Obj, p.Slot)):
                home = self.program.objects[made.stream.id]
                found |= {home.gpu} if isinstance(home, p.Stream) else frozenset()
            elif isinstance(made, (p.Get, p.CellGet)) and event.id in made.locals:
                for giver, value in self._handed_over(made, made.locals.index(event.id)):
                    found |= self._gpus(giver, value, seen)
        return found

    def _origins(
        self, thread: p.Thread, operand: p.Operand | p.Index, seen: set[tuple[int, int]]
    ) -> frozenset[tuple[str, str]]:
        """(space, process) of all that the operand may name."""
        if not isinstance(operand, p.Local):
            memory = self.program.objects[operand.id] if isinstance(operand, (p.Obj, p.Slot)) else None
            return frozenset(((memory.space, memory.process),)) if isinstance(memory, p.Memory) else frozenset()
        key = (id(thread), operand.id)
        if key in seen:
            return frozenset()
        seen.add(key)
        info = thread.locals[operand.id]
        if info.pool is not None:
            pool = self.program.objects[info.pool]
            assert isinstance(pool, p.Pool)
            return frozenset(((pool.of, pool.process),))
        found: frozenset[tuple[str, str]] = frozenset()
        for made in self._makers(thread).get(operand.id, ()):
            if isinstance(made, p.Alloc):
                found |= {(made.space, thread.process)}
            elif isinstance(made, p.View):
                found |= self._origins(thread, made.base, seen)
            elif isinstance(made, (p.Get, p.CellGet)):
                for giver, value in self._handed_over(made, made.locals.index(operand.id)):
                    found |= self._origins(giver, value, seen)
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
        if not self._givers:
            for thread in self.program.threads:
                for node in thread.nodes:
                    given = node.operation if isinstance(node, p.Do) else None
                    if isinstance(given, p.Put):
                        self._givers.setdefault(("queue", (given.queue, given.tag)), []).append((thread, given))
                    elif isinstance(given, p.CellSet):
                        self._givers.setdefault(("cell", given.cell.id), []).append((thread, given))
        key: tuple[str, object] = ("queue", (taken.queue, taken.tag)) if isinstance(taken, p.Get) else ("cell", taken.cell.id)
        return [(thread, given.values[position]) for thread, given in self._givers.get(key, ()) if position < len(given.values)]


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


def lower_node(node: p.Do, context: Context) -> tuple[Effect, ...]:
    """`lower` of the node's operation; what it refuses is told with the place in the text."""
    try:
        return RULES[type(node.operation)].lower(node.operation, context)
    except ValueError as error:
        frames = context.program.places[node.site] if 0 <= node.site < len(context.program.places) else ()
        if not frames:
            raise
        raise ValueError(f"{frames[-1].file}:{frames[-1].line}: {error}") from None


def lower(operation: p.Operation, context: Context) -> tuple[Effect, ...]:
    """The effects of one operation, in order."""
    return RULES[type(operation)].lower(operation, context)
