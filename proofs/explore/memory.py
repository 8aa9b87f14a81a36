"""Accesses to the guessed location, and the blocks and tokens that may carry it.

Memory values that locals and items hold: 0 = other bytes; 1 = the guessed byte's tenant; 2 = the same through a view
that the allocator cannot attribute (S72, S84); 3 = a raw pointer to it, 4 = one whose block was freed since; ("M", object, slot) = a reference to memory that lives for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.explore.layout import Layout, walk
from fencepost.proofs.explore.locations import Location, allocator, row_pool
from fencepost.proofs.explore.state import BIT, State, Witness

Apply = Callable[[State], "list[State] | None"]
Judge = Callable[[State, int], "list[State] | None"]
FORKS, DROPS = "forks", "drops"
"""Attributes of an `Apply`: it may return several states or find a hazard; the locals that it drops."""


def forks(apply: Apply) -> Apply:
    """Mark an effect that may return several states or find a hazard."""
    setattr(apply, FORKS, True)
    return apply


POOL = "pool"
"""In place of what a node names: a pool, whose tokens may be the location."""
HOST = -1
"""In place of a stream: the thread accesses memory itself."""
DEFINED, OTHERS = 1, 2
"""Of a block: the byte holds what its owner wrote; the witness is an access of an earlier owner."""


class Pointer(int):
    """A raw pointer to the guessed byte."""

    __slots__ = ()


RAW, FREED = Pointer(3), Pointer(4)
"""A raw pointer to the guessed byte: it reaches the byte and counts as no reference; and one that is left from an owner that
has freed it. No tenant equals them, or states that differ in which local holds the block would be taken for one."""
OUTSIDE = 5
"""From here on: references to a part of the block or token that does not cover the guessed byte."""
ANY_SLOT = -1
"""Slot of an access that covers every slot or index of the location's object."""
ELSEWHERE = -2
"""Slot of an access to another piece of the block. It may meet what another owner accesses: names are those of parts of one tensor, and
where in a block its owner begins is open (S70)."""


class LocationRules:
    """How one thread's operations touch the location."""

    def __init__(
        self, location: Location | None, layout: Layout, t: int, touches: set[Any], met: list[bool],
        accessors: set[tuple[int, int]], holders: frozenset[tuple[int, int]],
    ) -> None:  # fmt: skip
        """`accessors` collects who may access the location: (thread, stream), or (thread, HOST) for the thread itself.

        `holders`: the locals that may refer to it, with their threads.
        """
        self.accessors = accessors
        self.holders = holders
        self.location = location
        self.layout = layout
        self.t = t
        self.touches = touches
        self.met = met
        self.named: set[Any] = set()
        """What of the current node the location was compared with: locals (thread, local), numbers of objects, `POOL`."""
        self.node = -1

    # ------------------------------------------------------------ accesses

    def _match(self, target: p.Operand) -> Callable[[State], int | None] | None:
        """A function from a state to the slot of the location that `target` covers there, or None if it never can."""
        location = self.location
        self.named.add((self.t, target.id) if isinstance(target, p.Local) else target.id)
        if location is None:
            return None
        if isinstance(target, p.Local):
            # A part of what may be a part of the location's object already lies somewhere in it.
            inside = self._part(self.layout.narrowed.absolute(self.t, target))
            if (self.t, target.id) not in self.holders:
                return None
            t, i, kind, oid = self.t, target.id, location.kind, location.id
            if kind == "block":
                return _of_block(t, i, inside)
            if inside is None:
                return None
            covers = inside

            def local(s: State) -> int | None:
                value = s.locals[t][i]
                if isinstance(value, tuple):
                    if kind != "memory" or value[1] != oid:
                        return None
                    found = covers(s)
                    return found if found is None or value[2] is None else int(value[2])
                return covers(s) if value and value < OUTSIDE and kind == "pool" else None

            return local
        if location.kind != "memory" or target.id != location.id:
            return None
        part = self._part(target.part)
        if part is None or isinstance(target, p.Obj):
            return part
        inner = part
        if self.layout.by_handle(self.t, target.index):
            return lambda s: None if inner(s) is None else ANY_SLOT
        index = self.layout.index(self.t, target.index, self.layout.depth(target.id))
        return lambda s: None if inner(s) is None else index(s)

    def _part(self, part: p.Part | None) -> Callable[[State], int | None] | None:
        """As `_match`, for the part alone: 0 or the index, ANY_SLOT where the location is indexed and all is covered."""
        assert self.location is not None
        atom = self.location.atom
        kind = atom[0] if atom else ""
        whole = ANY_SLOT if kind == "index" else 0
        if type(part) is p.Named and kind in ("name", "both"):
            return (lambda s: 0) if part.name == atom[1] else None
        if type(part) is p.Span and kind in ("span", "both"):
            lo, hi = int(atom[-2]), int(atom[-1])
            return (lambda s: 0) if part.start <= lo and hi <= part.stop and lo < hi else None
        if type(part) is p.At and type(part.index) is p.Var:
            info = self.layout.program.threads[self.t].locals[part.index.local]
            t, local = self.t, part.index.local
            if kind == "token" and row_pool(self.layout.program, info) == atom[1]:
                return lambda s: 0 if s.locals[t][local] else None
            if kind == "index" and info.kind == p.INDEX and info.depth == atom[1]:
                return self.layout.index(t, part.index, info.depth or 1)
        return lambda s: whole

    def _asks(self, target: p.Operand) -> bool:
        """Whether a read of `target` surely covers the location's piece of a block, so that it must have been written."""
        assert self.location is not None
        return not (isinstance(target.part, (p.Anything, p.At)) and self.location.atom[:1] in (("name",), ("span",)))

    def _judge(self, which: int, access: p.Access, later: list[int] | None = None) -> Judge | None:
        """What the access does where it meets the location; `later` holds its slot, if it was found at an earlier call."""
        match = self._match(access.target)
        if match is None:
            return None
        assert self.location is not None
        t, node, write, same = self.t, self.node, access.mode == "w", access.same_bytes
        blocks = self.location.kind == "block"
        defines, asks = write and not same, self._asks(access.target)
        this = Witness(write, same, t, node, which, self.layout.has_same_bytes)
        met = self.met
        pointer = access.target.id if blocks and self.layout.raw_pointers and type(access.target) is p.Local else None
        self.touches.add("location")
        if pointer is not None:
            self.touches.add("block")  # whoever frees the block first decides whether the pointer still reaches it
        if later is not None:
            match, pointer = (lambda s: later[0]), None

        def judge(s: State, bit: int) -> list[State] | None:
            slot = match(s)
            if slot is None:
                return None
            w = s.witness
            if slot == ELSEWHERE and (w is None or s.block is None or not s.block[3] & OTHERS):
                return None
            if pointer is not None and s.locals[t][pointer] == FREED:
                s.hazard = ("UNDEFINED", node, which)  # a use after the free, in whatever order
                return None
            if blocks and asks and slot != ELSEWHERE and s.block is not None and not s.block[3] & DEFINED:
                if not write:
                    s.hazard = ("UNDEFINED", node, which)
                    return None
                if defines:
                    s.block = (*s.block[:3], s.block[3] | DEFINED, s.block[4])
            if w is None:
                chosen = s.copy()
                chosen.witness = this
                chosen.slot = slot
                if blocks and chosen.block is not None:
                    chosen.block = (*chosen.block[:3], chosen.block[3] | DEFINED, chosen.block[4])
                return [s, chosen]
            if slot != s.slot and slot not in (ANY_SLOT, ELSEWHERE) and s.slot != ANY_SLOT:
                return None
            if not met and (write or w.write):
                met.append(True)
            if not bit and (write or w.write):
                exempt = w.epoch and (same or (w.same_bytes and not write))
                s.hazard = ("same bytes" if exempt else ("W" if w.write else "R") + ("W" if write else "R"), node, which)
                if not exempt:
                    return None
            if write and not same and w.epoch:
                s.witness = w._replace(epoch=False)
            return None

        return judge

    def host(self, accesses: tuple[p.Access, ...]) -> list[Apply]:
        """Accesses by the thread itself: after a chosen one, the thread carries the witness (program order)."""
        t = self.t
        result: list[Apply] = []
        for which, access in enumerate(accesses):
            judge = self._judge(which, access)
            if judge is None:
                continue
            self.accessors.add((t, HOST))

            def run(s: State, judge: Judge = judge) -> list[State] | None:
                states = judge(s, s.tb[t])
                if states:
                    states[1].tb[t] = BIT
                return states

            result.append(forks(run))
        return result

    def item(
        self, accesses: tuple[p.Access, ...], stream: Callable[[State], int], streams: Iterable[int], starts: bool = False
    ) -> list[Apply]:
        """Accesses by one device item: they never conflict with each other, and the item's end is the stream's tail.

        `streams`: every stream that `stream` may say. `starts`: of the one stream, also that the item starts after the call.
        """
        ordered = sorted(enumerate(accesses), key=lambda item: item[1].mode == "w")
        judged = [(j, access.target) for which, access in ordered if (j := self._judge(which, access)) is not None]
        if not judged:
            return []
        self.accessors |= {(self.t, flat) for flat in streams}
        judges = [j for j, _ in judged]
        locals_ = [target.id for _, target in judged if type(target) is p.Local]
        t, only = self.t, locals_ if len(locals_) == len(judged) else None
        known = list(streams)
        single = known[0] if len(known) == 1 else None
        sole = locals_[0] if len(judged) == 1 and locals_ else None

        def run(s: State) -> list[State] | None:
            if starts:
                s.streams[known[0]] |= s.tb[t]
            if sole is not None:
                if not s.locals[t][sole]:
                    return None  # other bytes
            elif only is not None:
                row = s.locals[t]
                for i in only:
                    if row[i]:
                        break
                else:
                    return None  # other bytes
            if s.witness is not None:
                bit = s.streams[single if single is not None else stream(s)]
                for judge in judges:
                    judge(s, bit)
                    if s.hazard is not None and s.hazard[0] != "same bytes":
                        break
                return None
            chosen: list[State] = []
            for k, judge in enumerate(judges):
                states = judge(s, 0)
                if s.hazard is not None:
                    break
                if states:
                    new = states[1]
                    new.streams[stream(new)] = BIT
                    for other in judges[k + 1 :]:  # its own write may end the epoch of its read
                        other(new, BIT)
                    chosen.append(new)
            return [s, *chosen]

        return [forks(run)]

    # ------------------------------------------------------------ references

    def mark_references(self) -> None:
        """Moving references may free a block: a step that other threads can see."""
        if self.location is not None and self.location.kind == "block":
            self.touches.add("block")

    def hold(self, s: State, values: tuple[Any, ...]) -> None:
        """One more reference to the tenant for each value that is one."""
        if s.block is not None and any(values):
            n = sum([v.__class__ is Tenant for v in values])
            if n:
                s.block = (s.block[0] + n, *s.block[1:])

    def loose(self, s: State, values: tuple[Any, ...]) -> None:
        """References end; the last one frees the block (S63, S65, S80)."""
        if s.block is None or not any(values):
            return
        n = sum([v.__class__ is Tenant for v in values])
        if n:
            self._loosened(s, n)

    def _loosened(self, s: State, n: int) -> None:
        assert s.block is not None
        refs, free, uses, defined, owner = s.block
        refs -= n
        free |= s.tb[self.t]  # every decrement comes before the free
        if refs == 0:
            for stream in uses:  # an event is recorded there now: an item of the stream (S2)
                s.streams[stream] |= s.tb[self.t]
                if self.layout.one_queue:
                    self._record_shared(s, stream)
                free |= s.streams[stream]
            # Nobody reaches a free block, but for raw pointers.
            uses, defined = (), DEFINED
            if self.layout.raw_pointers:
                self._dangle(s)
        s.block = (refs, free, uses, defined, owner)

    def _record_shared(self, s: State, slot: int) -> None:
        """A record is an item of its stream, behind all that is in the hardware queue (S116).

        What a "no" of the stream comes after is not kept: such a stream may always say no (`Compiler.noted`), and whoever
        may access the block from now on comes after the free.
        """
        queue = self.layout.carriers[slot]
        s.streams[queue] |= s.tb[self.t]
        s.streams[slot] = s.streams[queue]

    def _dangle(self, s: State) -> None:
        """The raw pointers that are left, wherever they are kept, point to what was freed."""

        def freed(values: tuple[Any, ...]) -> tuple[Any, ...]:
            if not any(v.__class__ is Pointer for v in values):
                return values
            return tuple(FREED if v.__class__ is Pointer else v for v in values)

        s.locals = [freed(row) for row in s.locals]
        s.cells = [(values if values is None else freed(values), bit) for values, bit in s.cells]
        s.queues = [
            (tuple((tag, bit, freed(values)) for tag, bit, values in items), *rest) for items, *rest in s.queues
        ]

    def _set(self, s: State, local: int, value: Any) -> None:
        values = s.locals[self.t]
        if values[local] is value:
            return
        s.locals[self.t] = (*values[:local], value, *values[local + 1 :])

    def alloc(self, effect: p.Alloc, stream: Callable[[State], int] | None) -> list[Apply]:
        """The byte is handed out when it is free and the owner fits (S62, S63); whether it is, is a branch."""
        location, t, local = self.location, self.t, effect.local
        home = allocator(effect, self.layout.program.threads[t])
        if location is None or location.kind != "block" or (location.id, location.process) != home:
            return [lambda s: self._set(s, local, 0)]
        behind = location.behind(effect.bytes)
        if behind and location.id is None:
            return [lambda s: self._set(s, local, 0)]  # pinned blocks are not split (S82)
        self.touches.add("block")
        queue, node = stream if effect.space == "device" else None, self.node

        def run(s: State) -> list[State] | None:
            assert s.block is not None
            refs, free, _uses, _defined, owner = s.block
            mine = queue(s) if queue is not None else None
            if s.locals[t][local]:
                self._set(s, local, 0)
            if refs or (owner is not None and owner != mine) or (behind and s.witness is None):
                return None
            got = s.copy()
            got.tb[t] |= free
            got.block = (1, 0, (), DEFINED | OTHERS if s.witness is not None else 0, mine)
            self._set(got, local, Tenant(1))
            got.mark(("got", node))
            return [s, got]

        return [forks(run)]

    def view(self, effect: p.View) -> list[Apply]:
        """A view holds the block too."""
        base, t, local = effect.base, self.t, effect.local
        attributed, held = effect.attributed, effect.held
        self.mark_references()
        location = self.location
        elsewhere = type(base) is not p.Local and (location is None or location.kind != "memory" or location.id != base.id)
        outside, of_token = self.outside(base), self.of_token(base)

        def run(s: State) -> None:
            value: Any
            if elsewhere:
                value = 0
            elif type(base) is p.Local:
                value = s.locals[t][base.id]
            else:
                slot = None
                if type(base) is p.Slot:
                    slot = self.layout.index(t, base.index, self.layout.depth(base.id))(s)
                value = self.layout.reference(base.id, slot)
            if outside or (of_token is not None and not of_token(s)):
                value = put_outside(value)
            if value.__class__ is Tenant and held:
                self.hold(s, (value,))
                if not attributed:
                    value = Tenant(2 if value < OUTSIDE else OUTSIDE + 1)
            elif value.__class__ is Tenant:
                value = RAW
            self._set(s, local, value)

        return [run]

    def outside(self, operand: Any) -> bool:
        """Whether what is kept or handed over is a part that surely does not cover the location."""
        part = self.layout.narrowed.absolute(self.t, operand)
        return self.location is not None and part is not None and self._part(part) is None

    def of_token(self, operand: Any) -> Callable[[State], bool] | None:
        """Whether what is kept or handed over is the row of the guessed token, where the location is one and a row is meant."""
        part = self.layout.narrowed.absolute(self.t, operand)
        if type(part) is not p.At or self.location is None or self.location.atom[:1] != ("token",):
            return None
        inside = self._part(part)
        return None if inside is None else lambda s: inside(s) is not None

    def drop(self, effect: p.Drop) -> list[Apply]:
        """The reference of a local ends."""
        self.mark_references()
        return [self.drops((effect.local,))]

    def drops(self, locals_: tuple[int, ...]) -> Apply:
        """The references of several locals end, one right behind the other."""
        t = self.t

        def run(s: State) -> None:
            row, n = s.locals[t], 0
            new: list[Any] | None = None
            for i in locals_:
                value = row[i]
                if value:
                    if new is None:
                        new = list(row)
                    new[i] = 0
                    n += value.__class__ is Tenant
            if new is not None:
                s.locals[t] = tuple(new)
                if n:
                    self._loosened(s, n)

        setattr(run, DROPS, locals_)
        return run

    def note_use(self, effect: e.NoteUse, stream: Callable[[State], int]) -> list[Apply]:
        """The allocator learns of a use: record_stream, or a copy_ from or to a pinned block it can attribute."""
        location, block, t = self.location, effect.block, self.t
        space = "pinned" if location is not None and location.id is None else "device"
        if location is None or location.kind != "block" or space != effect.space or type(block) is not p.Local:
            return []
        self.touches.add("block")
        local = block.id

        def run(s: State) -> None:
            value = s.locals[t][local]
            if value.__class__ is not Tenant or value in (2, OUTSIDE + 1):
                return
            assert s.block is not None
            refs, free, uses, defined, owner = s.block
            used = stream(s)
            if used != owner and used not in uses:
                s.block = (refs, free, tuple(sorted((*uses, used))), defined, owner)

        return [run]

    # ------------------------------------------------------------ finite pools

    def tracked(self, pool: int) -> bool:
        """Whether one token of this pool is the guessed one."""
        location = self.location
        if location is None:
            return False
        return (location.kind == "pool" and location.id == pool) or location.atom == ("token", pool)

    def can_take(self, operation: p.Take) -> Callable[[State], bool]:
        """Any token free, the guessed one included."""
        k = self.layout.pool[operation.pool]
        return lambda s: s.pools[k][0] + s.pools[k][1] > 0 or s.pools[k][2] in (0, 1)

    def take(self, effect: p.Take) -> list[Apply]:
        """Pools: (free tokens without the bit, with it, guessed token: 0/1 free with that bit, 2 taken or untracked)."""
        k, t, local, node = self.layout.pool[effect.pool], self.t, effect.local, self.node

        def run(s: State) -> list[State] | None:
            zeros, ones, guessed = s.pools[k]
            result = []
            if zeros:
                n = s.copy()
                n.pools[k] = (zeros - 1, ones, guessed)
                self._set(n, local, 0)
                result.append(n)
            if ones:
                n = s.copy()
                n.pools[k] = (zeros, ones - 1, guessed)
                n.tb[t] |= BIT
                self._set(n, local, 0)
                result.append(n)
            if guessed != 2:
                n = s.copy()
                n.pools[k] = (zeros, ones, 2)
                n.tb[t] |= guessed
                self._set(n, local, Token(1))
                n.mark(("got", node))
                result.append(n)
            return result

        return [forks(run)]

    def give(self, effect: p.Give, after: Callable[[State], int] | None) -> list[Apply]:
        """A token goes back with what its giver and its event carry."""
        k, t, node = self.layout.pool[effect.pool], self.t, self.node
        assert isinstance(effect.token, p.Local)
        local = effect.token.id
        others = self._others(effect.pool)
        forgets = not self._used_behind(local)

        def run(s: State) -> None:
            zeros, ones, guessed = s.pools[k]
            bit = s.tb[t] | ((after(s) & BIT) if after is not None else 0)
            mine = s.locals[t][local].__class__ is Token
            if guessed != 2 if mine else zeros + ones >= others:
                s.hazard = ("TWICE", node)
                return
            if mine:
                s.pools[k] = (zeros, ones, bit)
            else:
                s.pools[k] = (zeros, ones + 1, guessed) if bit else (zeros + 1, ones, guessed)
            if forgets:
                self._set(s, local, 0)

        return [forks(run)]


    def _others(self, number: int) -> int:
        """How many tokens of the pool are not the guessed one."""
        pool = self.layout.program.objects[number]
        assert isinstance(pool, p.Pool)
        return pool.size - int(self.tracked(number))

    def _used_behind(self, local: int) -> bool:
        """Whether the thread may still use the local behind this node, in the same turn."""
        nodes = self.layout.program.threads[self.t].nodes
        todo, seen = [*successors(nodes[self.node])], set()
        while todo:
            at = todo.pop()
            if at < 0 or at in seen:
                continue
            seen.add(at)
            node = nodes[at]
            what = node.operation if isinstance(node, p.Do) else node.question
            if (type(what) is p.Take or type(what) is p.Drop) and what.local == local:
                continue
            if any((type(x) is p.Local and x.id == local) or (type(x) is p.Var and x.local == local) for x in walk(what)):
                return True
            todo += successors(node)
        return False


def _of_block(t: int, i: int, covers: Callable[[State], int | None] | None) -> Callable[[State], int | None]:
    """`_match` for a local that may refer to the block; `covers`: what its part says, None if it never covers the piece."""

    def local(s: State) -> int | None:
        value = s.locals[t][i]
        if not value or isinstance(value, tuple):
            return None
        found = covers(s) if covers is not None and value < OUTSIDE else None
        return ELSEWHERE if found is None else found

    return local


def successors(node: p.Node) -> tuple[int, ...]:
    """The nodes behind a node."""
    return (node.next,) if isinstance(node, p.Do) else tuple(after for _, after in node.branches)


class Tenant(int):
    """A reference to the guessed byte's block: 1, or 2 through a view that cannot be attributed; `OUTSIDE` more than that less one
    where it is to a part without the byte, which keeps the block all the same."""

    __slots__ = ()


class Token(int):
    """The guessed token of a pool: 1, or `OUTSIDE` where it is a reference to a part of it without the byte."""

    __slots__ = ()


def put_outside(value: Any) -> Any:
    """The reference, to a part that does not cover the location's byte."""
    if value.__class__ is Tenant:
        return Tenant(value if value >= OUTSIDE else OUTSIDE + value - 1)
    return Token(OUTSIDE) if value.__class__ is Token else 0
