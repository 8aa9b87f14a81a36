"""Names of a program's parts as the user would write them: objects, locals, what a queue or cell gave, slots and parts."""

from __future__ import annotations

from functools import cached_property

from fencepost.model import program as p


class Names:
    """Names for the parts of one program. `turn` puts numbers where the text would say `n`."""

    def __init__(self, program: p.Program) -> None:
        self.program = program

    def name(self, object_id: int) -> str:
        """Name of an object."""
        return self.program.objects[object_id].name

    def index(self, index: p.Index, thread: p.Thread, depth: int | None = None, turn: int | None = None) -> str:
        """An index: `n+1`, or the slot's number when turn and depth are known; a local, a cursor, a constant."""
        if isinstance(index, p.Fixed):
            return str(index.slot)
        if isinstance(index, p.Turn):
            if turn is not None and depth is not None:
                return str((turn + index.offset) % depth)
            return plus("n", index.offset)
        if isinstance(index, p.Var):
            return plus(self.local(index.local, thread), index.offset)
        return plus(f"{self.name(index.cursor)}.last()", index.offset)

    def local(self, local_id: int, thread: p.Thread) -> str:
        """A local's name; the k-th of one name in a turn is `name#k`; what came through a queue is `queue.name`."""
        info = thread.locals[local_id]
        name = self._received.get((thread.name, local_id), info.name)
        return name if info.occurrence == 0 else f"{name}#{info.occurrence + 1}"

    @cached_property
    def _received(self) -> dict[tuple[str, int], str]:
        """Names of received values, by thread and local: where from, and what the giver calls it if all say the same."""
        # Each once: an operation is a node of its own in every branch of the text.
        given: dict[tuple[int, str], dict[tuple[str, tuple[p.Operand | p.Index, ...]], p.Thread]] = {}
        taken: dict[tuple[str, tuple[int, str], tuple[int, ...]], None] = {}
        for thread in self.program.threads:
            for node in thread.nodes:
                o = node.operation if isinstance(node, p.Do) else None
                if isinstance(o, p.Put):
                    given.setdefault((o.queue, o.tag), {})[thread.name, o.values] = thread
                elif isinstance(o, p.CellSet) and not isinstance(o.cell, p.Local):
                    given.setdefault((o.cell.id, ""), {})[thread.name, o.values] = thread
                elif isinstance(o, p.Get):
                    taken[thread.name, (o.queue, o.tag), o.locals] = None
                elif isinstance(o, p.CellGet) and not isinstance(o.cell, p.Local):
                    taken[thread.name, (o.cell.id, ""), o.locals] = None
        received = {(name, local): (key, k) for name, key, locals_ in taken for k, local in enumerate(locals_)}

        def called(thread: p.Thread, value: p.Operand | p.Index, seen: frozenset[tuple[tuple[int, str], int]]) -> set[str]:
            if isinstance(value, (p.Local, p.Var)):
                local = value.id if isinstance(value, p.Local) else value.local
                field = received.get((thread.name, local))
                if field is None:
                    return {thread.locals[local].name}
                if field in seen:
                    return set()
                return {
                    name
                    for (_, values), giver in given.get(field[0], {}).items()
                    for name in called(giver, values[field[1]], seen | {field})
                }
            if isinstance(value, (p.Obj, p.Slot)):
                return {self.name(value.id)}
            return {self.name(value.cursor)} if isinstance(value, p.Last) else set()

        result: dict[tuple[str, int], str] = {}
        for name, key, locals_ in taken:
            fields = [
                {one for (_, values), giver in given.get(key, {}).items() for one in called(giver, values[k], frozenset({(key, k)}))}
                for k in range(len(locals_))
            ]
            for k, local in enumerate(locals_):
                if len(fields[k]) == 1 and fields.count(fields[k]) == 1:
                    result[name, local] = f"{self.name(key[0])}.{next(iter(fields[k]))}"
                elif len(locals_) > 1:
                    result[name, local] = f"{self.name(key[0])}[{k}]"
        return result

    def operand(self, operand: p.Operand, thread: p.Thread, turn: int | None = None) -> str:
        """`seq_lens`, `ring[n]`, `ids["rows"]`."""
        if isinstance(operand, p.Local):
            text = self.local(operand.id, thread)
        elif isinstance(operand, p.Slot):
            depth = getattr(self.program.objects[operand.id], "depth", None)
            text = f"{self.name(operand.id)}[{self.index(operand.index, thread, depth, turn)}]"
        else:
            text = self.name(operand.id)
        return text + self._part(operand.part, thread, turn)

    def _part(self, part: p.Part | None, thread: p.Thread, turn: int | None) -> str:
        if part is None:
            return ""
        if isinstance(part, p.Named):
            return f'["{part.name}"]'
        if isinstance(part, p.Span):
            return f"[{part.start}:{part.stop}]"
        if isinstance(part, p.At):
            return f"[{self.index(part.index, thread, None, turn)}]"
        return "[ANY]"


def plus(text: str, offset: int) -> str:
    """`n`, `n+1` or `n-1`.

    >>> plus("n", 0), plus("n", 1), plus("n", -1)
    ('n', 'n+1', 'n-1')
    """
    return text if offset == 0 else f"{text}{offset:+d}"
