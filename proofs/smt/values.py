"""What operands stand for at a place of a thread: guarded indices, events and references; and who holds allocated blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Union

from fencepost.model import program as p
from fencepost.proofs.smt.core import Core, Env, Guarded, NotEncoded, Op, Step, StepKey
from fencepost.proofs.smt.text import FALSE, TRUE, ZERO, Term, both, conj, disj, implies, neg


class Row(NamedTuple):
    """The part `buf[r]`, index known."""

    number: int


Path = tuple[Union[p.Named, p.Span, p.Anything, Row], ...]


def _part_of(path: Path, piece: Any) -> Path:
    """A part of a part; the elements of a span of a span are counted from the buffer's first one."""
    if path and isinstance(piece, p.Span) and isinstance(path[-1], p.Span):
        start, stop = path[-1].start, path[-1].stop
        return (*path[:-1], p.Span(min(start + piece.start, stop), min(start + piece.stop, stop)))
    return (*path, piece)


class Ref(NamedTuple):
    """A reference to memory. `key`: ("memory", object, slot) | ("token", pool, number) | ("block", allocating step)."""

    key: tuple[Any, ...]
    path: Path = ()
    attributed: bool = True
    held: bool = True
    """False: a raw pointer, which keeps no block alive."""


class EventName(NamedTuple):
    """A slot of an event object, or the event that a step made."""

    made: bool
    key: tuple[int, ...]


class Tenant(NamedTuple):
    """One allocation."""

    step: Step
    space: str
    owner: Guarded
    """Object and slot of the stream that owns a device block (S62)."""


class Hold:
    """One reference that keeps blocks alive, from a step until one of its ends."""

    __slots__ = ("blocks", "ends", "live")

    def __init__(self, live: str, blocks: tuple[tuple[str, StepKey], ...]) -> None:
        self.live = live
        self.blocks = blocks
        self.ends: list[tuple[str, Term]] = []
        """(literal, time) pairs, at most one of which holds."""


class Note(NamedTuple):
    """The allocator was told that a FIFO uses a block (S64, S79)."""

    live: str
    block: StepKey
    stream: tuple[int, int]


class Values(Core):
    """Operands, references and blocks."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.tenants: dict[StepKey, Tenant] = {}
        self.holds: list[Hold] = []
        self.notes: list[Note] = []

    # ------------------------------------------------------------ indices and names

    def index(self, env: Env, step: Step, index: p.Index) -> Guarded:
        """Value of an index."""
        thread = self.program.threads[step.thread]
        if isinstance(index, p.Turn):
            return ((TRUE, step.turn + index.offset),)
        if isinstance(index, p.Fixed):
            return ((TRUE, index.slot),)
        if isinstance(index, p.Last):
            cursor = self.program.objects[index.cursor]
            assert isinstance(cursor, p.Cursor)
            count = self.count(env, step, "advance", index.cursor)
            return self.position(count, cursor.depth, index.offset - 1)
        depth = thread.locals[index.local].depth
        values = env.get(("local", index.local), ())
        if any(not isinstance(value, int) for _, value in values):
            raise NotEncoded(f"{thread.locals[index.local].name!r} as an index")
        shifted = (
            (guard, (value + index.offset) % depth if depth else value + index.offset) for guard, value in values
        )
        return self.simplified(shifted)

    def position(self, count: Term, depth: int, offset: int) -> Guarded:
        """`(count + offset) mod depth`."""
        low, high = self.text.bounds(count)
        return self.simplified(
            (self.text.eq(count, ZERO.plus(n)), (n + offset) % depth) for n in range(low, high + 1)
        )

    def named(self, env: Env, step: Step, operand: p.Operand) -> Guarded:
        """Object and slot of an operand that names an object."""
        if isinstance(operand, p.Obj):
            return ((TRUE, (operand.id, 0)),)
        if not isinstance(operand, p.Slot):
            raise NotEncoded("an object that a local names")
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        return self.simplified(
            (guard, (operand.id, value % depth)) for guard, value in self.index(env, step, operand.index)
        )

    def _narrowed(self, env: Env, step: Step, values: Guarded, part: p.Part | None) -> Guarded:
        if part is None:
            return values
        pieces: Guarded = ((TRUE, part),)
        if isinstance(part, p.At):
            pieces = tuple((g, Row(n)) for g, n in self.index(env, step, part.index))
        return tuple(
            (self.text.literal(both(g, h)), ref._replace(path=_part_of(ref.path, piece)))
            for g, ref in values for h, piece in pieces
        )  # fmt: skip

    def value(self, env: Env, step: Step, operand: p.Operand | p.Index) -> Guarded:
        """What an operand stands for: references, events or indices."""
        if isinstance(operand, p.Local):
            values: Guarded = env.get(("local", operand.id), ())
            return self._narrowed(env, step, values, operand.part)
        if isinstance(operand, (p.Obj, p.Slot)):
            names = self.named(env, step, operand)
            if isinstance(self.program.objects[operand.id], p.Event):
                return tuple((g, EventName(False, key)) for g, key in names)
            refs = tuple((g, Ref(("memory", *key))) for g, key in names)
            return self._narrowed(env, step, refs, operand.part)
        return self.index(env, step, operand)

    def used(self, env: Env, step: Step, operand: p.Operand | p.Index) -> Guarded:
        """As `value`; the step cannot happen without one."""
        values = self.value(env, step, operand)
        if not any(guard == TRUE for guard, _ in values):
            self.text.add(implies(step.live, disj(guard for guard, _ in values)))
        return values

    # ------------------------------------------------------------ references

    def set_local(self, env: Env, step: Step, local: int, values: Guarded, live: str | None = None) -> None:
        """Store a value; the reference that was there ends."""
        self.end_local(env, step.live, env["time"], local)
        env[("local", local)] = values
        hold = self.hold(live or step.live, values)
        if hold is not None:
            env[("holds", local)] = ((TRUE, hold),)

    def hold(self, live: str, values: Guarded) -> Hold | None:
        """A reference to one of these values; None when no block can be among them."""
        blocks = tuple(
            (guard, value.key[1]) for guard, value in values
            if isinstance(value, Ref) and value.key[0] == "block" and value.held
        )  # fmt: skip
        if not blocks:
            return None
        found = Hold(live, blocks)
        self.holds.append(found)
        return found

    def end_local(self, env: Env, live: str, time: Term, local: int) -> None:
        """The local's reference ends at that time."""
        for guard, hold in env.pop(("holds", local), ()):
            hold.ends.append((self.text.literal(both(live, guard)), time))
        env.pop(("local", local), None)

    def end_turn(self, env: Env, live: str) -> None:
        """The end of the turn ends the body's scope."""
        for key in [key for key in env if isinstance(key, tuple) and key[0] in ("local", "holds")]:
            if key[0] == "holds":
                for guard, hold in env[key]:
                    hold.ends.append((self.text.literal(both(live, guard)), env["time"]))
            del env[key]

    def allocate(self, env: Env, step: Step, o: p.Alloc) -> None:
        """A block that nothing else shares, or the one that an earlier allocation gave up (`goals`)."""
        owner = () if o.stream is None else self.named(env, step, o.stream)
        self.tenants[step.key] = Tenant(step, o.space, owner)
        self.set_local(env, step, o.local, ((TRUE, Ref(("block", step.key))),))

    def note_use(self, step: Step, refs: Guarded, streams: Guarded, space: str) -> None:
        """S64 (not for the owner stream), S79; not for what the allocator cannot attribute (S72, S84)."""
        for guard, ref in refs:
            if ref.key[0] != "block" or not ref.held or not ref.attributed:
                continue
            tenant = self.tenants.get(ref.key[1])
            if tenant is not None and tenant.space != space:
                continue
            if self.lanes and self.asks_streams:
                # The free records an event there, which is the stream's last item then: behind all that is in the queue.
                raise NotEncoded("a wait for a stream on which a freed block was noted, under one hardware queue")
            for other, stream in streams:
                live = self.text.literal(conj((step.live, guard, other)))
                self.notes.append(Note(live, ref.key[1], stream))

    # ------------------------------------------------------------ values from another thread

    def receive(self, step: Step, pos: int, sources: Callable[[], list[tuple[str, Guarded]]]) -> Guarded:
        """What arrives at position `pos` of an item: one variable per value that the last pass saw arrive.

        `sources` gives, when all threads are unrolled, the items that may be received: literal and value.
        """
        key = ("received", step.key, pos)
        names = {v: self.text.boolean("v") for v in self.known.get(key, ())}
        if len(names) > 1:
            ordered = list(names.values())
            for i, one in enumerate(ordered):
                for other in ordered[i + 1 :]:
                    self.text.add(disj((neg(one), neg(other))))

        def define() -> None:
            seen: dict[Any, None] = dict.fromkeys(self.known.get(key, ()))
            for literal, values in sources():
                guards = {value: guard for guard, value in values if guard != FALSE}
                seen.update(dict.fromkeys(guards))
                for value, name in names.items():
                    guard = guards.get(value, FALSE)
                    self.text.add(implies(conj((step.live, literal)), f"(= {name} {guard})"))
            self.found[key] = tuple(seen)

        self.defer(define)
        return tuple((name, value) for value, name in names.items())

    def of_op(self, op: Op, pos: int) -> Guarded:
        """The value at a position of the item that an operation stored."""
        values: Guarded = op.data[1][pos]
        return values
