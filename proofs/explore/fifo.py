"""Normal forms of queues: without them the results outstanding multiply the states (theory: normal forms).

For a queue that one thread alone fills, tests and empties, and whose items are only waited on and dropped:
- *inert* items (nothing carried, nothing held) are the same item whatever their tag, because handling them is no
  operation and every tag's handling ends at one node;
- items behind the first one that surely hands the witness to the consumer count as carrying it too: the consumer has
  it by then;
- without a location nothing is carried, so all items are the same; what one tag's handling reaches is then found by a
  search in which the oldest item of that tag is spared;
- the queue starts with capacity - 1 inert items when every put is followed by "if full: get": popping one is no
  operation, so the prologue is the same as the first steps behind such items.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from fencepost.model import program as p
from fencepost.proofs.explore.layout import MEMO, Layout, walk
from fencepost.proofs.explore.state import BIT, State

Item = tuple[str, int, tuple[Any, ...]]


class QueueForm:
    """The normal form of one queue; `applies` is False where its conditions do not hold."""

    def __init__(
        self, program: p.Program, layout: Layout, oid: int, spared: str | None = None,
        uses: Sequence[tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        """`uses`: the nodes (thread, node) that use the queue, where they are known already."""
        queue = program.objects[oid]
        assert isinstance(queue, p.Queue)
        self.oid = oid
        self.q = layout.queue[oid]
        self.spared = spared
        self.capacity = queue.capacity
        self.kinds = dict(queue.items)
        self.sure: dict[str, tuple[int, ...]] = {}
        if uses is None:
            uses = queue_uses(program).get(oid, ())
        users = {t for t, _ in uses}
        self.applies = len(users) == 1 and self._handling(program.threads[next(iter(users))], oid)
        self.prefilled = self.applies and self._guarded(oid)
        tags = list(self.kinds)
        self.canonical = tags[0] if tags else ""
        self._plain: tuple[Item, ...] = (self._item(0), self._item(BIT)) if tags else ()
        self._kept_carries: dict[Item, tuple[bool, bool]] = {}
        self.handled: dict[str, tuple[set[tuple[int, int]], set[tuple[int, int]]]] = {}
        """For each tag that the normal form forgets: the nodes that put it and the nodes that get it."""
        for t, i in uses:
            node = program.threads[t].nodes[i]
            if type(node) is p.Do and (type(node.operation) is p.Put or type(node.operation) is p.Get):
                nodes = self.handled.setdefault(node.operation.tag, (set(), set()))
                nodes[type(node.operation) is p.Get].add((t, i))
        self.handled.pop(self.canonical, None)
        self._normal: dict[tuple[Item, ...], tuple[Item, ...]] = {}

    def from_the_start(self) -> QueueForm:
        """The same form of a queue that starts empty."""
        other = copy.copy(self)
        other.prefilled = False
        return other

    def _handling(self, thread: p.Thread, oid: int) -> bool:
        """Whether each tag's handling only waits and drops, and all end at one node."""
        self.thread = thread
        ends: set[int] = set()
        gets = [(i, n) for i, n in enumerate(thread.nodes) if type(n) is p.Do and type(n.operation) is p.Get and n.operation.queue == oid]  # fmt: skip
        if not gets or len({n.operation.tag for _, n in gets}) != len(gets):  # type: ignore[union-attr]
            return False
        if not self._tags_follow(thread, oid, {n.operation.tag: i for i, n in gets}):  # type: ignore[union-attr]
            return False
        mentioned: dict[int, set[int]] = {}
        for _, node in gets:
            get = node.operation
            assert isinstance(get, p.Get)
            mine, waited, at = set(get.locals), [], node.next
            while at != p.END:
                after = thread.nodes[at]
                if type(after) is not p.Do or not self._no_operation(after.operation, mine):
                    break
                if type(after.operation) is p.EventSync and type(after.operation.event) is p.Local:
                    waited.append(get.locals.index(after.operation.event.id))
                at = after.next
            ends.add(at)
            self.sure[get.tag] = tuple(waited)
            # A value used beyond the handling is not inert.
            for k in _from(thread, at):
                if k not in mentioned:
                    mentioned[k] = _mentioned(thread.nodes[k])
                if not mentioned[k].isdisjoint(mine):
                    return False
        self.end = min(ends)
        return len(ends) == 1

    def _tags_follow(self, thread: p.Thread, oid: int, gets: dict[str, int]) -> bool:
        """Whether a tag decides nothing but which get runs: then an inert item may carry any of them."""
        puts = {n.operation.tag for n in thread.nodes if type(n) is p.Do and type(n.operation) is p.Put and n.operation.queue == oid}  # fmt: skip
        if not puts or not puts <= set(gets):
            return False
        if len(puts) < 2:
            self.kinds = {tag: kinds for tag, kinds in self.kinds.items() if tag in puts}
            return True
        asks = {i: dict(n.branches) for i, n in enumerate(thread.nodes) if type(n) is p.Ask and type(n.question) is p.QueueTag and n.question.queue == oid}  # fmt: skip
        if any({tag: b.get(tag) for tag in gets} != gets for b in asks.values()) or set(gets) != set(self.kinds):
            return False
        into = {i for i, n in enumerate(thread.nodes) for k in _next(n) if k in gets.values()}
        return into <= set(asks) and thread.entry not in gets.values()

    def _no_operation(self, operation: p.Operation, mine: set[int]) -> bool:
        """Whether the operation does nothing when what it got is inert."""
        if type(operation) is p.EventSync:
            return type(operation.event) is p.Local and operation.event.id in mine
        if type(operation) is p.Drop:
            return operation.local in mine
        return isinstance(operation, p.Host) and all(
            type(a.target) is p.Local and a.target.id in mine for a in operation.accesses
        )  # fmt: skip

    def _guarded(self, oid: int) -> bool:
        """Whether the queue is only popped right behind a `full` that said yes, one test behind every put."""
        nodes = self.thread.nodes
        tests = [i for i, n in enumerate(nodes) if type(n) is p.Ask and type(n.question) is p.QueueFull and n.question.queue == oid]  # fmt: skip
        if len(tests) != 1:
            return False
        test = nodes[tests[0]]
        assert isinstance(test, p.Ask)
        branches = dict(test.branches)
        if set(branches) != {"yes", "no"} or branches["no"] != self.end:
            return False  # popping a dummy must be the same as "no"
        popped = {branches["yes"]}
        first = nodes[branches["yes"]] if branches["yes"] >= 0 else None
        if type(first) is p.Ask and type(first.question) is p.QueueTag:
            popped |= {n for _, n in first.branches}
        for i, n in enumerate(nodes):
            if type(n) is p.Ask and type(n.question) is p.QueueTag and n.question.queue == oid and n is not first:
                return False
            if type(n) is p.Ask and type(n.question) is p.QueueHolds and n.question.queue == oid:
                return False
            if type(n) is p.Do and type(n.operation) is p.Get and n.operation.queue == oid and i not in popped:
                return False
            if type(n) is p.Do and type(n.operation) is p.Put and n.operation.queue == oid:
                at = n.next
                while at != tests[0]:  # straight from the put to the test
                    if at < 0 or not isinstance(nodes[at], p.Do) or _uses(nodes[at], oid):
                        return False
                    at = nodes[at].next  # type: ignore[union-attr]
        into = [i for i, n in enumerate(nodes) for k in _next(n) if k in popped and i not in (tests[0], branches["yes"])]
        return not into and self.thread.kind == "loop"

    def start(self, s: State) -> None:
        """Fill with inert items up to one below the capacity."""
        if self.prefilled and self.capacity > 1:
            items, free, last_get, every = s.queues[self.q]
            if not items:
                s.queues[self.q] = ((self._item(0),) * (self.capacity - 1), free[:1], last_get, every)

    def _item(self, bit: int) -> Item:
        kinds = self.kinds[self.canonical]
        sure = self.sure.get(self.canonical, ())
        return self.canonical, bit, tuple(bit if k == p.EVENT and i in sure else 0 for i, k in enumerate(kinds))

    def normalise(self, s: State) -> None:
        """Rewrite the items into their normal form."""
        items, free, last_get, every = s.queues[self.q]
        normal = self._normal.get(items)
        if normal is None:
            if len(self._normal) >= MEMO:
                self._normal.clear()
            normal = tuple(self._rewritten(items))
            normal = self._normal[items] = items if normal == items else normal
        if normal is not items:
            s.queues[self.q] = (normal, free, last_get, every)

    def _rewritten(self, items: tuple[Item, ...]) -> Iterator[Item]:
        carried = False
        inert, carrying = self._plain
        kinds = self._kept_carries
        spared = self.spared
        for item in items:
            if item[0] == spared:
                spared = None
                yield item
                continue
            kind = kinds.get(item) or self._kind(item)
            carried = carried or kind[1]
            yield item if kind[0] else carrying if carried else inert

    def _kind(self, item: Item) -> tuple[bool, bool]:
        """(whether the item stays as it is, whether what is behind it counts as carrying the witness)."""
        tag, bit, values = item
        kept = any(not isinstance(v, int) or (k != p.EVENT and v) or v > BIT for v, k in zip(values, self.kinds[tag], strict=True))  # fmt: skip
        carries = bool(bit) or (not kept and any(values[i] & BIT for i in self.sure.get(tag, ())))
        if len(self._kept_carries) >= MEMO:
            self._kept_carries.clear()
        result = self._kept_carries[item] = (kept, carries)
        return result


def queue_uses(program: p.Program) -> dict[int, list[tuple[int, int]]]:
    """For each queue the nodes (thread, node) that use it."""
    found: dict[int, list[tuple[int, int]]] = {}
    for t, thread in enumerate(program.threads):
        for i, node in enumerate(thread.nodes):
            queue = getattr(node.operation if isinstance(node, p.Do) else node.question, "queue", None)
            if queue is not None:
                found.setdefault(queue, []).append((t, i))
    return found


def _uses(node: p.Node, oid: int) -> bool:
    what = node.operation if isinstance(node, p.Do) else node.question
    return getattr(what, "queue", None) == oid


def _next(node: p.Node) -> list[int]:
    return [node.next] if isinstance(node, p.Do) else [n for _, n in node.branches]


def _from(thread: p.Thread, at: int) -> set[int]:
    """Nodes reachable from `at` within the turn."""
    seen: set[int] = set()
    todo = [at]
    while todo:
        n = todo.pop()
        if n >= 0 and n not in seen:
            seen.add(n)
            todo += _next(thread.nodes[n])
    return seen


def _mentioned(node: p.Node) -> set[int]:
    """The locals that a node names, other than to make them anew."""
    found = set()
    for one in walk(node):
        if type(one) is p.Local:
            found.add(one.id)
        elif type(one) is p.Drop or type(one) is p.Var:
            found.add(one.local)
    return found


def queue_forms(program: p.Program, layout: Layout, spared: tuple[int, str] | None = None) -> list[QueueForm]:
    """The forms that apply. `spared` is a queue's object number and the tag that its form does not forget."""
    uses = queue_uses(program)
    forms = [
        QueueForm(program, layout, i, spared[1] if spared and spared[0] == i else None, uses.get(i, ())) for i in layout.queue
    ]
    return [f for f in forms if f.applies]
