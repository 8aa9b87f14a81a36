"""Operands of a program as Promela expressions: indices, slots, events, streams, references to memory and its parts."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.proofs.foreign.promela_instance import Instance


class Operands(Instance):
    """An instance whose operands can be spelled."""

    def _narrowed(self, reference: str, part: p.Part | None) -> str:
        """The reference to a part of what `reference` names."""
        if part is None:
            return reference
        number = {path: i for i, path in enumerate(self.paths)}
        at = "0"
        if isinstance(part, p.At):
            index = part.index
            at = f"n + {index.offset}" if isinstance(index, p.Turn) else self.index(index, self.rows.stop)
            at = f"({at} - {self.rows.start})".replace("- -", "+ ")
        first = self._pieces(part)[0]
        if not any(len(path) > 1 for path in self.paths):
            return f"({reference} + 4 * ({number[(first,)]} + {at}))"
        # The reference may name a part itself: what narrows it once more depends on which.
        moved = "0"
        for path, i in number.items():
            inner = number.get((*path, first))
            if inner is not None:
                moved = f"(({reference} / 4) % {len(self.paths)} == {i} -> {inner - i} + {at} : {moved})"
        return f"({reference} + 4 * {moved})"

    def index(self, index: p.Index, depth: int) -> str:
        """An index, modulo the ring's depth."""
        if isinstance(index, p.Turn):
            return f"((n + {index.offset + 64 * depth}) % {depth})"
        if isinstance(index, p.Fixed):
            return str(index.slot % depth)
        if isinstance(index, p.Last):
            own = getattr(self.program.objects[index.cursor], "depth", depth)
            return f"(((cursor_{index.cursor} + {index.offset + 64 * own}) % {own}) % {depth})"
        own = self.thread.locals[index.local].depth
        value = f"v{index.local}"
        if own:
            return f"((({value} + {index.offset + 64 * own}) % {own}) % {depth})"
        return f"(({value} + {index.offset + 64 * depth}) % {depth})"

    def slot(self, operand: p.Operand) -> str:
        """Number of an object's slot within all of its kind."""
        if isinstance(operand, p.Obj):
            return str(self.base[operand.id])
        assert isinstance(operand, p.Slot)
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        return f"({self.base[operand.id]} + {self.index(operand.index, depth)})"

    def memory(self, operand: p.Operand) -> str:
        """A reference: four times the place, plus 1 if the allocator cannot attribute it, plus 2 for a raw pointer. A place
        is the location times the number of parts, plus the part."""
        whole = f"v{operand.id}" if isinstance(operand, p.Local) else f"({4 * len(self.paths)} * {self.slot(operand)})"
        return self._narrowed(whole, operand.part)

    def event(self, operand: p.Operand) -> str:
        """Number of an event."""
        return f"event[v{operand.id}]" if isinstance(operand, p.Local) else f"event[{self.slot(operand)}]"

    def stream(self, operand: p.Operand) -> str:
        """Number of a stream's FIFO."""
        if isinstance(operand, p.Obj):
            return str(self.fifos[operand.id, 0])
        assert isinstance(operand, p.Slot)
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        if self.environment.one_queue:
            return str(self.fifos[operand.id, 0])
        return f"({self.fifos[operand.id, 0]} + {self.index(operand.index, depth)})"

    def _own(self, operand: p.Operand) -> str:
        """What must end before the stream itself has ended: in a shared hardware queue not what others have behind that."""
        if not self.lanes:
            return f"tail[{self.stream(operand)}]"
        assert isinstance(operand, (p.Obj, p.Slot))
        first = self.lanes[operand.id, 0]
        if isinstance(operand, p.Obj):
            return f"last[{first}]"
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        return f"last[{first} + {self.index(operand.index, depth)}]"

    def _is_last(self, operand: p.Operand, queue: str = "x") -> list[str]:
        """With one hardware queue: the stream's own last item is what the queue has come to."""
        return [f"copy_vec({self._own(operand)}, tail[{queue}])"] if self.lanes else []

    def value(self, operand: p.Operand | p.Index) -> str:
        """What an item holds of an operand."""
        if isinstance(operand, p.Local):
            return self._narrowed(f"v{operand.id}", operand.part)
        if isinstance(operand, (p.Obj, p.Slot)):
            if isinstance(self.program.objects[operand.id], p.Event):
                return self.slot(operand)
            return self.memory(operand)
        if isinstance(operand, p.Var):
            own = self.thread.locals[operand.local].depth
            return self.index(operand, own) if own else f"(v{operand.local} + {operand.offset})"
        if isinstance(operand, p.Last):
            return self.index(operand, getattr(self.program.objects[operand.cursor], "depth", 1))
        return f"(n + {operand.offset})" if isinstance(operand, p.Turn) else str(operand.slot)
