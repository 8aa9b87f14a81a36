"""What a thread does in each turn: its operations, from which turn on each runs, and in which turns (theory: periodic).

`plan` reads a thread in one of two ways. With `answers` to its choices (a *strategy*) every turn after a prologue runs
the same operations: the design is determinate periodic. Without, every choice is open: an operation that only some
turns run is *optional*; where a test of a queue depends on choices, the operations that always run together are
counted by their own occurrences (a *class*) instead of by turns.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from fencepost.model import program as p
from fencepost.model.operations.meetings import first_meeting
from fencepost.proofs.periodic.symbols import ONE, ZERO, Poly, Refused, Region, poly_of
from fencepost.proofs.periodic.trace import MARK

MOST_PATHS = 2_048

Key = tuple[Any, ...]
"""A choice: ("choose", thread or "", name), ("maybe", thread, node) or ("tag", queue)."""


class NeedChoice(Exception):
    """A strategy says nothing about this choice."""

    def __init__(self, key: Key, options: tuple[str, ...]) -> None:
        super().__init__(key)
        self.key, self.options = key, options


class Op:
    """One operation of a thread. It runs in turns >= `start` (or occurrences, of a class other than 0)."""

    __slots__ = ("cls", "loop", "member", "node", "operation", "optional", "place", "start", "thread")

    def __init__(self, thread: int, node: int, place: int, operation: p.Operation, loop: int | None) -> None:
        self.thread, self.node, self.place, self.operation, self.loop = thread, node, place, operation, loop
        self.cls, self.start, self.optional = 0, ZERO, False
        self.member: frozenset[int] = frozenset()
        """In which of the thread's ways through a turn it runs."""

    @property
    def group(self) -> tuple[int, int]:
        """What its steps are counted by: the thread, and 0 for turns or a class of operations."""
        return (self.thread, self.cls)


class End(NamedTuple):
    """What a thread does with a queue where its puts, or its gets, differ by kind of step: exactly one of `ops` runs in each
    step of `op`, which is none of them and stands behind the last (a put) or in front of the first (a get)."""

    op: Op
    ops: tuple[Op, ...]
    places: tuple[int, int]
    """Of the first and the last of `ops`."""


class Plan:
    """The operations of one thread in the order of their text; `free`: tests depend on open choices."""

    def __init__(self, ops: list[Op], free: bool, ends: Mapping[tuple[type, int], End] | None = None, whole: bool = True) -> None:
        self.ops, self.free = ops, free
        self.ends = dict(ends or {})
        """(`Put` or `Get`, queue) -> the end of a queue that several operations share."""
        self.ways: frozenset[int] = frozenset()
        """All ways through a turn, as `Op.member` numbers them."""
        self.whole = whole
        """Whether the first turns go the same ways as all others, so that `Op.member` speaks of every turn."""


Path = list[tuple[int, "str | None"]]


def plan(program: p.Program, t: int, region: Region, answers: Mapping[Key, str] | None, timing: bool = False) -> Plan:
    """Read thread `t`. Raises `Refused`, or `NeedChoice` when `answers` leaves a choice open.

    `timing`: only who waits for whom is asked, where channels between streams are edges like any others.
    """
    thread = program.threads[t]
    meeting = first_meeting(program)
    if meeting is not None and not (timing and flagless(program)):
        raise Refused(f"{meeting}: what streams wait for on the device is no part of the periodic event graph yet")
    if thread.kind != "loop":
        raise Refused(f"thread {thread.name!r} runs once ({thread.kind}); only loops are periodic")
    reader = _Reader(program, t, region, answers)
    return reader.plan()


def flagless(program: p.Program) -> bool:
    """Whether no stream and no thread waits for a device flag, whose latest store alone counts."""
    nodes = (node for thread in program.threads for node in thread.nodes if isinstance(node, p.Do))
    return not any(isinstance(node.operation, (p.StoreFlag, p.WaitFlag)) for node in nodes)


class _Reader:
    def __init__(self, program: p.Program, t: int, region: Region, answers: Mapping[Key, str] | None) -> None:
        self.program, self.t, self.thread, self.region, self.answers = program, t, program.threads[t], region, answers
        self.place = self._order()
        self.paths = self._paths()
        self._merge()
        self.steady: dict[int, tuple[str, Poly]] = {}
        """Per test its answer in all later turns, and the first turn of that answer."""

    def _order(self) -> dict[int, int]:
        """A topological order of the nodes. Raises `Refused` for a loop within the turn."""
        done: list[int] = []
        state: dict[int, int] = {}

        def successors(n: int) -> list[int]:
            node = self.thread.nodes[n]
            after = [node.next] if isinstance(node, p.Do) else [m for _, m in node.branches]
            return [m for m in after if m != p.END]

        stack: list[tuple[int, int]] = [(self.thread.entry, 0)]
        state[self.thread.entry] = 1
        while stack:
            n, i = stack.pop()
            after = successors(n)
            if i == len(after):
                state[n] = 2
                done.append(n)
                continue
            stack.append((n, i + 1))
            if state.get(after[i]) == 1:
                raise Refused(f"thread {self.thread.name!r} goes round within a turn (a drain loop)")
            if after[i] not in state:
                state[after[i]] = 1
                stack.append((after[i], 0))
        return {n: i for i, n in enumerate(reversed(done))}

    def _key(self, n: int, question: p.Question) -> Key | None:
        if isinstance(question, p.Choose):
            return ("choose", "" if question.agreed else self.thread.name, question.name)
        if isinstance(question, p.Maybe):
            return ("maybe", self.thread.name, question.name, n)
        if isinstance(question, p.QueueTag):
            return ("tag", self.program.objects[question.queue].name)
        return None

    def _tags(self, queue: int) -> set[str]:
        """The tags of the items that anybody puts into the queue."""
        return {
            node.operation.tag
            for thread in self.program.threads
            for node in thread.nodes
            if isinstance(node, p.Do) and isinstance(node.operation, p.Put) and node.operation.queue == queue
        }

    def _paths(self) -> list[Path]:
        found: list[Path] = []
        work: list[tuple[int, Path, dict[Key, str]]] = [(self.thread.entry, [], {})]
        while work:
            n, path, said = work.pop()
            while n != p.END:
                node = self.thread.nodes[n]
                if isinstance(node, p.Do):
                    path.append((n, None))
                    n = node.next
                    continue
                key = self._key(n, node.question)
                branches = dict(node.branches)
                options = list(branches)
                if isinstance(node.question, p.QueueTag):
                    put = self._tags(node.question.queue)
                    options = [option for option in options if option in put] or options
                if key is not None and key[0] == "tag" and len(options) == 1:
                    key = None  # one kind of item is ever put: no choice
                elif key is not None and self.answers is not None:
                    if key not in self.answers:
                        raise NeedChoice(key, tuple(options))
                    options = [self.answers[key]]
                elif key is not None and key in said and key[0] == "choose":
                    options = [said[key]]
                elif self.answers is not None and not isinstance(
                    node.question, (p.QueueFull, p.QueueHolds, p.CellEmpty, p.TurnBelow)
                ):
                    raise Refused(f"{type(node.question).__name__} is answered by timing")
                for other in options[1:]:
                    work.append((branches[other], [*path, (n, other)], {**said, key: other} if key else dict(said)))
                if key is not None:
                    said = {**said, key: options[0]}
                path.append((n, options[0]))
                n = branches[options[0]]
            found.append(path)
            if len(found) + len(work) > MOST_PATHS:
                raise Refused(f"thread {self.thread.name!r} has more than {MOST_PATHS} combinations of answers in a turn")
        return found

    def _merge(self) -> None:
        """Equal operations of different ways through the turn become one, the k-th of each way with the k-th of the others.

        A way stays the same list of operations. It is done only where all ways then agree on the order of what they
        have in common; `place` becomes such an order.
        """
        if len(self.paths) == 1:
            return
        known: dict[tuple[p.Operation, int], int] = {}
        uses: dict[int, set[int]] = {}
        """Node -> as the how manieth of its kind it is met."""
        for path in self.paths:
            met: dict[p.Operation, int] = {}
            for n, answer in path:
                node = self.thread.nodes[n]
                if answer is None and isinstance(node, p.Do):
                    k = met[node.operation] = met.get(node.operation, 0) + 1
                    known.setdefault((node.operation, k), n)
                    uses.setdefault(n, set()).add(k)
        apart = {one.operation for n, ks in uses.items() if len(ks) > 1 and isinstance(one := self.thread.nodes[n], p.Do)}
        merged: list[Path] = []
        for path in self.paths:
            met = {}
            merged.append([])
            for n, answer in path:
                node = self.thread.nodes[n]
                if answer is None and isinstance(node, p.Do):
                    k = met[node.operation] = met.get(node.operation, 0) + 1
                    n = n if node.operation in apart else known[node.operation, k]
                merged[-1].append((n, answer))
        place = self._common_order(merged)
        if place is not None:
            self.paths, self.place = merged, place

    def _common_order(self, paths: list[Path]) -> dict[int, int] | None:
        """An order that every way follows, as close to that of the text as can be; None where two ways contradict."""
        after: dict[int, set[int]] = {n: set() for path in paths for n, _ in path}
        before = dict.fromkeys(after, 0)
        for path in paths:
            for (one, _), (other, _) in zip(path, path[1:], strict=False):
                if other not in after[one]:
                    after[one].add(other)
                    before[other] += 1
        ready = [(self.place[n], n) for n, count in before.items() if count == 0]
        heapq.heapify(ready)
        place: dict[int, int] = {}
        while ready:
            _, n = heapq.heappop(ready)
            place[n] = len(place)
            for other in after[n]:
                before[other] -= 1
                if before[other] == 0:
                    heapq.heappush(ready, (self.place[other], other))
        return place if len(place) == len(after) else None

    # ------------------------------------------------------------ tests of the thread's own state

    def _count(self, path: Path, kind: type, oid: int) -> int:
        return sum(1 for n, _ in path if self._touches(n, kind, oid))

    def _touches(self, n: int, kind: type, oid: int) -> bool:
        node = self.thread.nodes[n]
        if not isinstance(node, p.Do) or not isinstance(node.operation, kind):
            return False
        operation: Any = node.operation
        target = operation.queue if kind in (p.Put, p.Get) else operation.cell.id
        return bool(target == oid)

    def _private(self, oid: int) -> bool:
        """Whether no other thread touches the queue or cell."""
        for t, thread in enumerate(self.program.threads):
            for node in thread.nodes:
                if t == self.t or not isinstance(node, p.Do):
                    continue
                op: Any = node.operation
                if isinstance(op, (p.Put, p.Get)) and op.queue == oid:
                    return False
                if isinstance(op, (p.CellSet, p.CellGet, p.CellClear)) and op.cell.id == oid:
                    return False
        return True

    def _test(self, n: int, question: p.Question) -> tuple[str, Poly] | None:
        """The answer of a test in all later turns and the first such turn; None when choices or timing matter."""
        if isinstance(question, p.TurnBelow):
            return "no", poly_of(question.value)
        if isinstance(question, p.CellEmpty):
            return self._cell_test(n, question)
        if isinstance(question, (p.QueueFull, p.QueueHolds)) and self._private(question.queue):
            return self._queue_test(n, question)
        return None

    def _cell_test(self, n: int, question: p.CellEmpty) -> tuple[str, Poly] | None:
        cell = question.cell
        if isinstance(cell, p.Local) or not self._private(cell.id):
            return None
        sets = [[m for m, _ in path if self._touches(m, p.CellSet, cell.id)] for path in self.paths]
        if not any(sets):
            return "yes", ZERO
        if isinstance(cell, p.Slot) or not all(sets):
            return None
        for path in self.paths:
            for m, _ in path:
                node = self.thread.nodes[m]
                if isinstance(node, p.Do) and isinstance(node.operation, (p.CellClear, p.CellGet)):
                    taken = isinstance(node.operation, p.CellClear) or node.operation.take
                    if taken and node.operation.cell.id == cell.id:
                        return None
        before = [any(self.place[m] < self.place[n] for m in one) for one in sets]
        if any(before) and not all(before):
            return None
        return "no", ZERO if all(before) else ONE

    def _queue_test(self, n: int, question: p.QueueFull | p.QueueHolds) -> tuple[str, Poly] | None:
        queue = self.program.objects[question.queue]
        assert isinstance(queue, p.Queue)
        if not any(self._count(path, p.Put, question.queue) for path in self.paths):
            return "no", ZERO
        before: set[bool] = set()
        for path in self.paths:
            puts = [m for m, _ in path if self._touches(m, p.Put, question.queue)]
            gets = self._count(path, p.Get, question.queue)
            if len(puts) != 1 or dict(path).get(n) is None or gets != (dict(path)[n] == "yes"):
                return None
            before.add(self.place[puts[0]] < self.place[n])
        if len(before) != 1:
            return None
        threshold = poly_of(queue.capacity if isinstance(question, p.QueueFull) else question.count)
        return "yes", threshold - before.pop()

    # ------------------------------------------------------------ the plan

    def plan(self) -> Plan:
        free = False
        for n, node in enumerate(self.thread.nodes):
            if n in self.place and isinstance(node, p.Ask) and self._key(n, node.question) is None:
                if all(n not in dict(path) for path in self.paths):
                    continue
                found = self._test(n, node.question)
                if found is not None:
                    self.steady[n] = found
                elif self.answers is not None:
                    raise Refused(
                        f"a test in thread {self.thread.name!r} ({type(node.question).__name__}) does not come to one "
                        "answer for good by the thread's own doing"
                    )
                else:
                    free = True
        return self._free() if free else self._turns()

    def _ops(self, paths: list[Path]) -> dict[int, Op]:
        """The operations on the paths by node, repetitions folded into the third."""
        found: dict[int, Op] = {}
        for path in paths:
            loops = self._fold(path)
            for n, answer in path:
                if answer is None and n in loops:
                    node = self.thread.nodes[n]
                    assert isinstance(node, p.Do)
                    found.setdefault(n, Op(self.t, n, self.place[n], node.operation, loops[n]))
        return found

    def _fold(self, path: Path) -> dict[int, int | None]:
        """Which operations of a path count, each with the number of the loop that repeats it."""
        counted: dict[int, int | None] = {}
        loop: int | None = None
        rounds: list[list[int]] = []
        for n, answer in path:
            if answer is not None:
                if loop is not None:
                    raise Refused("a repetition of a loop over a parameter asks a question")
                continue
            node = self.thread.nodes[n]
            assert isinstance(node, p.Do)
            name = node.operation.name if isinstance(node.operation, p.Host) else ""
            if not name.startswith(MARK):
                if loop is None:
                    counted[n] = None
                else:
                    rounds[-1].append(n)
                continue
            what, number = name[len(MARK) :].split()
            if what == "begin":
                if loop is not None:
                    raise Refused("a loop over a parameter inside another one")
                loop, rounds = int(number), [[]]
            elif what == "next":
                rounds.append([])
            else:
                same = [[self._shape(m, one) for m in one] for one in rounds[:3]]
                if same[0] != same[1] or same[1] != same[2]:
                    raise Refused("the repetitions of a loop over a parameter do not do the same")
                counted.update({m: loop for m in rounds[2]})
                loop = None
        if loop is not None:
            raise Refused("a loop over a parameter is left early")
        return counted

    def _shape(self, n: int, mine: list[int]) -> Any:
        """An operation with the locals that its repetition makes renamed by their order."""
        made: list[int] = []
        for m in mine:
            node = self.thread.nodes[m]
            if isinstance(node, p.Do):
                made += made_locals(node.operation)
        names = {local: -1 - i for i, local in enumerate(made)}
        node = self.thread.nodes[n]
        assert isinstance(node, p.Do)
        return _renamed(node.operation, names)

    def _turns(self) -> Plan:
        """Turns count: the tests are answered for good, each from some turn on."""
        later = [
            path for path in self.paths if all(a is None or n not in self.steady or a == self.steady[n][0] for n, a in path)
        ]
        if not later:
            raise Refused(f"thread {self.thread.name!r} has tests that exclude each other")
        ops = self._ops(later)
        early = self._ops([path for path in self.paths if path not in later])
        for n, op in early.items():
            if n not in ops and not harmless(op.operation):
                what = type(op.operation).__name__
                raise Refused(
                    f"thread {self.thread.name!r} does something in its first turns that it does not do later ({what})"
                )
        for n, op in ops.items():
            op.member = frozenset(i for i, path in enumerate(later) if n in dict(path))
            op.optional = len(op.member) < len(later)
            where = [dict(path) for path in self.paths if n in dict(path)]
            for test, (answer, start) in self.steady.items():
                if all(path.get(test) == answer for path in where):
                    later_start = self.region.decide(start - op.start)
                    op.start = start if later_start else op.start
            for path in self.paths:
                if op.optional or path in later or n in dict(path):
                    continue
                others = [self.steady[m][1] for m, a in path if m in self.steady and a != self.steady[m][0]]
                if not any(self.region.decide(op.start - start) for start in others):
                    raise Refused(f"thread {self.thread.name!r} does something in some of its first turns only")
        whole = len(later) == len(self.paths)
        made = Plan(sorted(ops.values(), key=lambda op: op.place), False, self._ends(ops, self.paths), whole)
        made.ways = frozenset(range(len(later)))
        return made

    def _free(self) -> Plan:
        """Classes of operations that always run together are counted each by itself."""
        ops = self._ops(self.paths)
        classes: dict[frozenset[int], int] = {frozenset(range(len(self.paths))): 0}
        inside = [dict(path) for path in self.paths]
        for n, op in ops.items():
            member = frozenset(i for i, path in enumerate(inside) if n in path)
            op.cls, op.member = classes.setdefault(member, len(classes)), member
        ends = self._ends(ops, self.paths)
        for end in ends.values():
            end.op.cls, end.op.optional = classes.setdefault(end.op.member, len(classes)), False
        return Plan(sorted(ops.values(), key=lambda op: op.place), True, ends)

    def _ends(self, ops: dict[int, Op], paths: list[Path]) -> dict[tuple[type, int], End]:
        """Ends of queues that several operations share, at most one of them in each way through the turn."""
        if self.answers is not None:
            return {}
        found: dict[tuple[type, int], End] = {}
        for kind in (p.Put, p.Get):
            for q in {op.operation.queue for op in ops.values() if isinstance(op.operation, (p.Put, p.Get))}:
                mine = [op for op in ops.values() if isinstance(op.operation, kind) and op.operation.queue == q]
                inside = [frozenset(i for i, path in enumerate(paths) if op.node in dict(path)) for op in mine]
                union = frozenset().union(*inside)
                alike = all(op.loop is None and op.start == ZERO for op in mine)
                if len(mine) < 2 or not alike or len(union) < sum(map(len, inside)):
                    continue
                if any(sum(m == op.node for m, _ in path) > 1 for path in paths for op in mine):
                    continue
                places = [op.place for op in mine]
                late = max(places) if kind is p.Put else min(places)
                op = Op(self.t, -2 - len(found), late, mine[0].operation, None)
                op.member, op.optional = union, len(union) < len(paths)
                found[kind, q] = End(op, tuple(mine), (min(places), max(places)))
        return found


def harmless(operation: p.Operation) -> bool:
    """Whether the operation neither accesses memory nor makes an edge."""
    return isinstance(operation, (p.NewEvent, p.View, p.Drop)) or (
        isinstance(operation, p.Host) and not operation.accesses
    )


def made_locals(operation: p.Operation) -> list[int]:
    """Locals that the operation gives a value."""
    one: Any = operation
    if isinstance(operation, (p.Alloc, p.View, p.NewEvent, p.Advance, p.Take)):
        return [one.local]
    return list(one.locals) if isinstance(operation, (p.Get, p.CellGet)) else []


def _renamed(value: Any, names: dict[int, int]) -> Any:
    """A value with locals renamed, as something to compare."""
    if isinstance(value, p.Data):
        fields = {}
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            is_local = (isinstance(value, p.Local) and field.name == "id") or field.name == "local"
            fields[field.name] = names.get(inner, inner) if is_local else _renamed(inner, names)
        return (type(value).__name__, tuple(fields.items()))
    if isinstance(value, tuple):
        return tuple(_renamed(one, names) for one in value)
    return value
