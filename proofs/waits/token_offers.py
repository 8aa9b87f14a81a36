"""Additions that keep what a pool or the start of a design gave away: tokens that come back later, or never."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
from fencepost.model import program as p
from fencepost.proofs import edits
from fencepost.proofs.explain import place
from fencepost.proofs.waits.catalogue import REMOVED, operation
from fencepost.proofs.waits.handles import Node
from fencepost.proofs.waits.offer import GIVEN, GIVEN_NEW, KEPT, PRICE, Change, Offer, not_for


class TokenOffers(Offer):
    """How long tokens and blocks are held."""

    def given_back(self) -> Iterator[Change]:
        """A token of a pool that comes back free only when the work that an event captured is done."""
        if self.first is None:
            return
        mine = {
            origin
            for local in _locals_in(operation(self.program, self.first))
            for origin in self.handles.of(self.first[0], local)
            if origin.thread is not None and self.program.threads[origin.thread].locals[origin.id].pool is not None
        }
        stream = self._stream(self.first)
        new = p.Event(self._new("reader done"), gpu=self._gpu_of(stream))
        for t, thread in enumerate(self.program.threads if mine else ()):
            for i, node in enumerate(thread.nodes):
                op = node.operation if isinstance(node, p.Do) else None
                if not isinstance(op, p.Give) or op.after is not None or not isinstance(op.token, p.Local):
                    continue
                if not mine & self.handles.of(t, op.token):
                    continue
                text = f"{self.program.objects[op.pool].name}.give({self._name(t, op.token)}, after="
                for event in self._events((t, i)):
                    yield from self._giving((t, i), GIVEN, f"{text}{self._name(t, event)})", event)
                if stream is not None:
                    at = p.Obj(len(self.program.objects))
                    of = f" of GPU {new.gpu}" if new.gpu else ""
                    where = f"{text}{new.name}), a new event{of} recorded behind {self._what(self.first)}"
                    yield from self._giving((t, i), GIVEN_NEW, where, at, (new, p.Record(at, stream)))

    def _giving(
        self, give: Node, family: str, text: str, event: p.Operand, new: tuple[p.Event, p.Record] | None = None
    ) -> Iterator[Change]:
        """A change of a give, wherever its line runs or from there alone; `new`: an event, and its record behind the first access."""
        assert self.first is not None
        line = self._spots(give)
        own = (self._alike(give), self._place(give), not_for(self._others(give)))
        for nodes, where, note in (line, own) if line[0] != own[0] else (line,):
            given: list[tuple[Node, p.Give]] = []
            for other in nodes:
                op = operation(self.program, other)
                there = self._there(p.EventSync(event), give, other)
                if isinstance(op, p.Give) and isinstance(there, p.EventSync):
                    given.append((other, msgspec.structs.replace(op, after=there.event)))
            if len(given) < len(nodes):
                continue
            apply = partial(_given, given=given, before=None)
            if new is None:
                yield Change(family, PRICE[family], f"{text}{note}", where, apply)
                return
            for change in self._inserting(family, PRICE[family], text, [(edits.insert_after, self.first, new[1])], new[0]):
                told = f"{change.text} ({change.place}){note}"
                yield Change(family, change.price, told, where, partial(_given, given=given, before=change))
            return

    def kept(self) -> Iterator[Change]:
        """What the start of the design made and let go is held as long as the design runs: a graph replays its address (S89, S92)."""
        mine = {
            origin
            for at in (self.first, self.second)
            if at is not None
            for local in _locals_in(operation(self.program, at))
            for origin in self.handles.of(at[0], local)
            if origin.thread is not None and self.program.threads[origin.thread].kind == "setup"
        }
        for origin in sorted(mine):
            t = origin.thread
            assert t is not None
            ends = [
                (t, i)
                for i, node in enumerate(self.program.threads[t].nodes)
                if isinstance(node, p.Do)
                and isinstance(node.operation, (p.Give, p.Drop))
                and self.handles.of(t, _let_go(node.operation)) == {origin}
            ]
            gives = [at for at in ends if isinstance(operation(self.program, at), p.Give)]
            taken = self.program.threads[t].locals[origin.id].pool is not None
            ends = gives if taken else ends
            if not ends:
                continue
            how = "not given back" if taken else "never let go"
            text = f"{self.handles.name(origin)} {how}: held as long as its address is replayed"
            yield Change(KEPT, PRICE[KEPT], text, place(self.program, ends[0]), partial(_not_let_go, ends=ends))


def _locals_in(value: object) -> list[p.Local]:
    """Locals that are named, and those that choose a slot or a part."""
    if isinstance(value, p.Local):
        return [value, *_locals_in(value.part)]
    if isinstance(value, p.Var):
        return [p.Local(value.local)]
    if isinstance(value, p.Data):
        return [x for field in value.__struct_fields__ for x in _locals_in(getattr(value, field))]
    if isinstance(value, tuple):
        return [x for one in value for x in _locals_in(one)]
    return []


def _let_go(op: p.Give | p.Drop) -> p.Operand:
    return op.token if isinstance(op, p.Give) else p.Local(op.local)


def _not_let_go(program: p.Program, ends: list[Node]) -> p.Program:
    """The program without these gives and drops."""
    for t, i in ends:
        program = edits.replaced(program, t, i, p.Host(REMOVED, ()))
    return program


def _given(program: p.Program, given: list[tuple[Node, p.Give]], before: Change | None) -> p.Program:
    """The program with other gives, after another change where their event is a new one."""
    made = program if before is None else before.apply(program)
    for (t, i), op in given:
        after = op.after if before is None else p.Obj(len(program.objects))
        made = edits.replaced(made, t, i, msgspec.structs.replace(op, after=after))
    return made
