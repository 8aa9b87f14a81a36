"""What a model must reach: two conflicting accesses that overlap in time, a read of undefined bytes, a get from an empty cell.

Two accesses that can overlap can also swap; so asking for the overlap asks for both (theory: feasible runs).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fencepost.model import program as p
from fencepost.model.events.parts import asked, cuts
from fencepost.proofs.smt.core import Guarded, Step, StepKey
from fencepost.proofs.smt.device import Access
from fencepost.proofs.smt.hosts import Hosts
from fencepost.proofs.smt.text import FALSE, TRUE, Term, both, conj, disj, implies, neg
from fencepost.proofs.smt.values import Path, Ref, Row

Touching = tuple[Access, str, Ref]
"""An access, the literal of its being to that reference, the reference."""


class Goal(NamedTuple):
    """`name` is the literal; `kind` "conflict" | "undefined" | "empty"; `blocks`: two allocations that got one block."""

    name: str
    kind: str
    first: Step | None
    second: Step
    blocks: tuple[StepKey, StepKey] | None = None
    writes: tuple[bool, bool] = (False, False)
    """Whether the first and the second access write."""
    harmless: bool = False
    """Each write of the two repeats what is there: another goal shows whatever value they change (theory section 1)."""
    what: tuple[Any, ...] = ()
    """The memory, or the place that allocates the first owner's block."""


class Goals(Hosts):
    """Conflicts between the accesses of all unrolled threads."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.goals: list[Goal] = []
        self._gone: dict[StepKey, tuple[str, Term, Term]] = {}
        self._cuts = cuts(self.program)
        self._following: dict[int, list[int]] = {}
        """Thread -> for each node what can follow it in a turn."""

    def goals_of_accesses(self) -> None:
        """All goals; the text then asks for one of them."""
        by_key: dict[tuple[Any, ...], list[Touching]] = {}
        for access in self.accesses:
            for guard, ref in access.targets:
                by_key.setdefault(ref.key, []).append((access, guard, ref))
        for key, touching in by_key.items():
            for j, (y, h, y_ref) in enumerate(touching):
                for x, g, x_ref in touching[:j]:
                    if self._may_overlap(x, y) and (
                        x_ref.held != y_ref.held or paths_overlap(x_ref.path, y_ref.path)
                    ):
                        self._conflict(x, g, y, h, None, key)
            if key[0] == "block":
                self._undefined(touching)
        self._reuses(by_key)
        for step, failed in self.empty_gets:
            self._goal("empty", None, step, both(step.live, failed), None)
        self.text.add(disj(goal.name for goal in self.goals))

    def _goal(self, kind: str, first: Step | None, second: Step, formula: str,
              blocks: tuple[StepKey, StepKey] | None, writes: tuple[bool, bool] = (False, False),
              harmless: bool = False, what: tuple[Any, ...] = ()) -> None:  # fmt: skip
        if formula == FALSE:
            return
        name = self.text.boolean("goal")
        self.text.add(implies(name, formula))
        if what and what[0] == "block":
            what = ("block", what[1][0], self.tenants[what[1]].step.at)
        self.goals.append(Goal(name, kind, first, second, blocks, writes, harmless, what))

    def _conflict(self, x: Access, g: str, y: Access, h: str, blocks: tuple[StepKey, StepKey] | None,
                  what: tuple[Any, ...], more: str = TRUE) -> None:  # fmt: skip
        """The goal that two accesses of common bytes overlap."""
        if not self._may_overlap(x, y):
            return
        overlap = (self.text.lt(x.start, y.end), self.text.lt(y.start, x.end))
        # Of two owners of a block neither continues the other's content.
        same = blocks is None and (x.same_bytes or not x.write) and (y.same_bytes or not y.write)
        formula = conj((x.step.live, y.step.live, g, h, more, *overlap))
        self._goal("conflict", x.step, y.step, formula, blocks, (x.write, y.write), same, what)

    def _may_overlap(self, x: Access, y: Access) -> bool:
        """Whether one of two accesses writes and nothing keeps them apart at first sight."""
        if not (x.write or y.write) or x.start == y.start or _apart(x, y):
            return False
        return x.step.thread != y.step.thread or x.step.turn != y.step.turn or self._one_way(x.step, y.step)

    def _one_way(self, x: Step, y: Step) -> bool:
        """Whether some way through the turn has both steps."""
        first, second = (x, y) if x.seq <= y.seq else (y, x)
        if first.thread not in self._following:
            self._following[first.thread] = _reachable(self.program.threads[first.thread])
        return bool(self._following[first.thread][first.at] >> second.at & 1)

    def _operation(self, step: Step) -> p.Alloc:
        """What allocated a block."""
        node = self.program.threads[step.thread].nodes[step.at]
        assert isinstance(node, p.Do) and isinstance(node.operation, p.Alloc)
        return node.operation

    def _undefined(self, touching: list[Touching]) -> None:
        """A read of an allocated block before anything was written there, a use after its free (in the order of the calls)."""
        for x, g, ref in touching:
            if not ref.held:
                # Through a raw pointer to a freed block any access is one: its bytes may be anybody's by then.
                gone, freed, _ = self._given_up(ref.key[1])
                used = conj((x.step.live, g, gone, self.text.lt(freed, x.step.instant)))
                self._goal("undefined", None, x.step, used, None)
            if x.write:
                continue
            made = self._operation(self.tenants[ref.key[1]].step)
            for piece in asked(ref.path, self._cuts, made.bytes):
                missing = [x.step.live, g]
                for y, h, other in touching:
                    if not y.write or y.same_bytes or not _gives(other.path, ref.path, piece):
                        continue
                    within = TRUE if y.effect < x.effect else FALSE
                    before = within if y.step is x.step else self.before(y.step, x.step)
                    missing.append(neg(self.text.literal(conj((y.step.live, h, before)))))
                if x.step.live not in [part[5:-1] for part in missing if part.startswith("(not ")]:
                    self._goal("undefined", None, x.step, conj(missing), None)

    # ------------------------------------------------------------ blocks that change hands

    def _reuses(self, by_key: dict[tuple[Any, ...], list[Touching]]) -> None:
        touched = {key[1]: found for key, found in by_key.items() if key[0] == "block"}
        for old, mine in touched.items():
            was = self.tenants[old]
            for new, theirs in touched.items():
                now = self.tenants[new]
                if old == new or was.space != now.space:
                    continue
                if was.step.thread == now.step.thread and was.step.seq > now.step.seq:
                    continue
                if not any(self._may_overlap(x, y) for x, _, _ in mine for y, _, _ in theirs):
                    continue
                if was.space == "device":
                    owner = self._same(was.owner, now.owner)
                else:  # the host allocator is the process's (S80)
                    homes = {self.program.threads[tenant.step.thread].process for tenant in (was, now)}
                    owner = TRUE if len(homes) == 1 else FALSE
                if owner == FALSE:
                    continue
                self._reuse(old, new, owner, mine, theirs)

    def _same(self, one: Guarded, other: Guarded) -> str:
        return disj(conj((g, h)) for g, a in one for h, b in other if a == b)

    def _reuse(self, old: StepKey, new: StepKey, owner: str, mine: list[Touching], theirs: list[Touching]) -> None:
        """The new allocation gets the block that the old one gave up."""
        text = self.text
        was, now = self.tenants[old].step, self.tenants[new].step
        gone, freed, over = self._given_up(old)
        reuse = text.boolean("reuse")
        enough = (text.lt(freed, now.instant), text.le(over, now.instant))
        text.add(implies(reuse, conj((was.live, now.live, owner, gone, *enough))))
        for x, g, _ in mine:
            for y, h, _ in theirs:
                self._conflict(x, g, y, h, (old, new), ("block", old), reuse)

    def _given_up(self, old: StepKey) -> tuple[str, Term, Term]:
        """Literal: every reference to the block has ended; when the last did; when the noted streams have caught up."""
        if old in self._gone:
            return self._gone[old]
        text = self.text
        gone, freed, over = text.boolean("gone"), text.integer("f"), text.integer("f")
        for hold in self.holds:
            for guard, block in hold.blocks:
                if block == old:
                    ended = [conj((literal, text.le(time, freed))) for literal, time in hold.ends]
                    text.add(implies(conj((gone, hold.live, guard)), disj(ended)))
        told: dict[Any, list[str]] = {}
        for note in self.notes:
            if note.block == old:
                other = neg(disj(g for g, stream in self.tenants[old].owner if stream == note.stream))
                told.setdefault(self.fifos[note.stream], []).append(both(note.live, other))
        for fifo, notes in told.items():
            noted = text.literal(disj(notes))
            for op in self.ops.get(fifo, []):
                # S65, S80: what was queued there when the last reference ended is over.
                queued = conj((gone, noted, op.live, text.le(op.step.instant, freed)))
                text.add(implies(queued, text.le(op.after, over)))
        self._gone[old] = gone, freed, over
        return self._gone[old]


def _reachable(thread: p.Thread) -> list[int]:
    """For each node the nodes that can follow it in the same turn, and itself, as bits."""
    found = [1 << n for n in range(len(thread.nodes))]
    changed = True
    while changed:
        changed = False
        for n in reversed(range(len(thread.nodes))):
            node, now = thread.nodes[n], found[n]
            for following in (node.next,) if isinstance(node, p.Do) else (target for _, target in node.branches):
                now |= found[following] if following != p.END else 0
            changed = changed or now != found[n]
            found[n] = now
    return found


def _apart(x: Access, y: Access) -> bool:
    """Whether the agents keep two accesses apart at first sight: they are those of one agent, or of one item."""
    if x.fifos is None or y.fifos is None:
        if x.fifos is None and y.fifos is None:
            return x.step.thread == y.step.thread
        # A call's own host access is over before its item starts, and so is what the thread did before the call.
        host, item = (x, y) if x.fifos is None else (y, x)
        return host.step.thread == item.step.thread and host.step.seq <= item.step.seq
    return len(x.fifos) == len(y.fifos) == 1 and x.fifos == y.fifos


def _pieces_overlap(a: Any, b: Any) -> bool:
    """Named parts of different names, spans without a common element and rows of different index are disjoint."""
    if isinstance(a, p.Named) and isinstance(b, p.Named):
        return a.name == b.name
    if isinstance(a, p.Span) and isinstance(b, p.Span):
        return max(a.start, b.start) < min(a.stop, b.stop)
    if isinstance(a, Row) and isinstance(b, Row):
        return a.number == b.number
    return True


def _gives(write: Path, read: Path, piece: Any) -> bool:
    """Whether a write may have given a piece of a read its content."""
    return paths_overlap(write[:1], read[:1]) if piece is None else not write or _pieces_overlap(write[0], piece)


def paths_overlap(a: Path, b: Path) -> bool:
    """Whether two parts of one buffer may share a byte. Below two different parts nothing can be compared."""
    for x, y in zip(a, b):  # noqa: B905  a shorter path is the larger part
        if not _pieces_overlap(x, y):
            return False
        if x != y or isinstance(x, p.Anything):
            return True
    return True
