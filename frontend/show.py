"""What was understood of a design, with no verdict: threads, streams, who holds what, each wait and what it orders.

The waits are read off the text of one turn, without exploring anything: which accesses come before the record that a
wait waits for, and which come after it or on a path without one. What the streams' order adds from turn to turn is not
said.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import cached_property

from fencepost.model import program as p
from fencepost.model.effects import (
    Enqueue,
    JoinDevice,
    JoinEvent,
    JoinStream,
    RecordEvent,
    StreamJoinsEvent,
    StreamJoinsStream,
    Touch,
)  # fmt: skip
from fencepost.model.operations import Context, lower
from fencepost.report.words import Words

Key = tuple[str, int, str]
"""What an operand stands for: ("object", id, index) or ("local", local, thread)."""


_ON_STREAMS = (StreamJoinsEvent, StreamJoinsStream, p.Await, p.WaitFlag)
"""Waits of a stream; a flag's may be the host's."""

PLACE = "\t"
"""Between a line's text and its place in the source."""


class Item:
    """One effect of one node, with its place in the turn."""

    def __init__(self, turn: Turn, node: int, order: int, effect: object) -> None:
        self.turn, self.node, self.order, self.effect = turn, node, order, effect

    def before(self, other: Item) -> bool:
        """Whether this one comes before `other` on some path of one turn of one thread."""
        if self.turn is not other.turn:
            return False
        if self.node == other.node:
            return self.order < other.order
        return bool(self.turn.reach[self.node] >> other.node & 1)


class Turn:
    """One turn of a thread: its effects and which node can follow which."""

    def __init__(self, program: p.Program, thread: p.Thread) -> None:
        self.thread = thread
        context = Context(program, thread)
        self.items: list[Item] = []
        for number, node in enumerate(thread.nodes):
            effects: tuple[object, ...]
            if isinstance(node, p.Do):
                effects = lower(node.operation, context)
            elif isinstance(node.question, p.EventQuery):
                effects = (JoinEvent(node.question.event),)
            elif isinstance(node.question, p.StreamQuery):
                effects = (JoinStream(node.question.stream),)
            else:
                effects = ()
            self.items += [Item(self, number, order, effect) for order, effect in enumerate(effects)]

    @cached_property
    def nexts(self) -> list[list[int]]:
        """Per node the nodes that follow it directly."""
        return [
            [node.next] if isinstance(node, p.Do) else [target for _, target in node.branches]
            for node in self.thread.nodes
        ]

    def in_order(self) -> list[int]:
        """The nodes as the body runs them: each before those that follow it, loops aside."""
        seen: set[int] = {p.END}
        finished: list[int] = []
        stack: list[tuple[int, list[int]]] = [(self.thread.entry, [])] if self.thread.nodes else []
        while stack:
            number, left = stack[-1]
            if number not in seen:
                seen.add(number)
                left.extend(self.nexts[number])
            following = next((n for n in left if n not in seen), None)
            if following is None:
                stack.pop()
                finished.append(number)
            else:
                stack.append((following, []))
        return [n for n in dict.fromkeys(reversed(finished)) if n != p.END]

    @cached_property
    def reach(self) -> list[int]:
        """Per node the set (bits) of the nodes that can come after it in the turn."""
        nexts = self.nexts
        reach = [0] * len(nexts)
        changed = True
        while changed:  # loops within a turn need more than one pass
            changed = False
            for number in reversed(range(len(nexts))):
                bits = reach[number]
                for following in nexts[number]:
                    if following != p.END:
                        bits |= 1 << following | reach[following]
                if bits != reach[number]:
                    reach[number], changed = bits, True
        return reach


class Shown:
    """The text of `fencepost show` for one program."""

    def __init__(self, program: p.Program, width: int = 80) -> None:
        """`width`: columns that a line may take."""
        self.program, self.words, self.width = program, Words(program), width
        self.turns = [Turn(program, thread) for thread in program.threads]
        self.items = [item for turn in self.turns for item in turn.items]

    # ------------------------------------------------------------ who stands for what

    def origins(self, operand: p.Operand, thread: p.Thread) -> frozenset[Key]:
        """The objects and allocations that an operand can stand for, through queues and cells."""
        found: set[Key] = set()
        self._origins(operand, thread, found, set())
        return frozenset(found)

    def _origins(self, operand: p.Operand, thread: p.Thread, found: set[Key], seen: set[tuple[str, int]]) -> None:
        if not isinstance(operand, p.Local):
            index = self.words.index(operand.index, thread) if isinstance(operand, p.Slot) else ""
            stream = isinstance(self.program.objects[operand.id], p.Stream)
            # Slots of an event ring meet again in later turns; which stream of a ring it is, is kept.
            found.add(("object", operand.id, index if stream else ""))
            return
        if (thread.name, operand.id) in seen:
            return
        seen.add((thread.name, operand.id))
        received = False
        for node in thread.nodes:
            operation = node.operation if isinstance(node, p.Do) else None
            if isinstance(operation, p.View) and operation.local == operand.id:
                received = True
                self._origins(operation.base, thread, found, seen)
            elif isinstance(operation, (p.Get, p.CellGet)) and operand.id in operation.locals:
                received = True
                position = operation.locals.index(operand.id)
                for giver, values in self._givers(operation):
                    value = values[position]
                    if isinstance(value, (p.Obj, p.Slot, p.Local)):
                        self._origins(value, giver, found, seen)
        if not received:
            found.add(("local", operand.id, thread.name))

    def _givers(self, taker: p.Get | p.CellGet) -> Iterator[tuple[p.Thread, tuple[p.Operand | p.Index, ...]]]:
        for thread in self.program.threads:
            for node in thread.nodes:
                operation = node.operation if isinstance(node, p.Do) else None
                if isinstance(operation, p.Put) and isinstance(taker, p.Get):
                    same = (operation.queue, operation.tag) == (taker.queue, taker.tag)
                elif isinstance(operation, p.CellSet) and isinstance(taker, p.CellGet):
                    # Cells are never locals, so that the ids name objects; slots of one ring count as one cell.
                    same = operation.cell.id == taker.cell.id
                else:
                    continue
                if same:
                    yield thread, operation.values

    # ------------------------------------------------------------ text

    def lines(self) -> Iterator[str]:
        """All lines, none longer than the width unless one word is."""
        for line in self._lines():
            text, _, place = line.partition(PLACE)
            yield from self._fitted(text, place)

    def _fitted(self, text: str, place: str) -> Iterator[str]:
        """The text, wrapped where it is too long, with its place in a column of its own at the right."""
        indent = len(text) - len(text.lstrip())
        column = max(self.width - 24, indent + 20)
        lines = textwrap.wrap(
            text.strip(), self.width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4),
            break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip
        yield from lines[:-1]
        last = lines[-1]
        if not place:
            yield last
        elif max(len(last), column) + 1 + len(place) <= self.width:
            yield f"{last:<{column}} {place}"
        elif len(last) + 1 + len(place) <= self.width:
            yield last + place.rjust(self.width - len(last))
        else:
            yield last
            yield place.rjust(self.width)

    def _lines(self) -> Iterator[str]:
        yield f"design {self.program.name}"
        for stands in self.program.stands_for:
            yield f"  stands for {stands.path} {stands.name} at {stands.revision}"
        yield from self._objects()
        for turn in self.turns:
            yield from self._thread(turn)
        yield from self._holders()
        yield from self._waits()
        for accept in self.program.accepted:
            yield f"accepts {accept.hazard}, because {accept.because}"

    def _objects(self) -> Iterator[str]:
        for thing in self.program.objects:
            details: list[str] = []
            if isinstance(thing, p.Memory):
                kind, details = f"{thing.space} memory", [f"{thing.bytes} bytes"]
            else:
                kind = type(thing).__name__.lower()
            depth = getattr(thing, "depth", None)
            if depth is not None:
                details.append(f"ring of {depth}")
            if isinstance(thing, p.Queue):
                details.append(f"capacity {thing.capacity}")
                details += [f"{tag or 'items'}: ({', '.join(kinds)})" for tag, kinds in thing.items]
            elif isinstance(thing, p.Pool):
                details.append(f"{thing.size} of {thing.of}")
            elif isinstance(thing, p.Cell):
                details.append(f"({', '.join(thing.item)})")
            elif isinstance(thing, p.Lock) and (thing.semaphore or thing.count != 1):
                kind, details = "semaphore", [f"count {thing.count}"]
            elif isinstance(thing, p.Stream) and thing.default:
                details.append("default")
            elif isinstance(thing, p.DeviceFlag):
                kind = "device flag"
            elif isinstance(thing, p.Channel) and thing.capacity is not None:
                details.append(f"room for {thing.capacity}")
            if thing.process:
                details.append(f"process {thing.process}")
            yield f"  {kind} {thing.name}" + (f" ({', '.join(details)})" if details else "")

    def _thread(self, turn: Turn) -> Iterator[str]:
        thread = turn.thread
        operations = sum(isinstance(node, p.Do) for node in thread.nodes)
        questions = len(thread.nodes) - operations
        process = f", process {thread.process}" if thread.process else ""
        word = "question" if questions == 1 else "questions"
        yield f"thread {thread.name} ({thread.kind}, {operations} operations, {questions} {word}{process})"
        for number in turn.in_order():
            node = thread.nodes[number]
            text = self.words.node(node, thread)
            if isinstance(node, p.Ask):
                text += f" {' | '.join(answer for answer, _ in node.branches)}"
            if isinstance(node, p.Do) and isinstance(node.operation, (p.Launch, p.Copy, p.Memset, p.Item)):
                text += f"  on stream {self.words.operand(node.operation.stream, thread)}"
            yield self._placed(f"    {text}", node)

    def _placed(self, text: str, node: p.Node) -> str:
        return text + PLACE + self.words.place(node.site)

    def _holders(self) -> Iterator[str]:
        """References to blocks and events that are made in a body: who makes them and where they go."""
        lines: list[str] = []
        for thread in self.program.threads:
            made: dict[int, list[str]] = {}
            for node in thread.nodes:
                operation = node.operation if isinstance(node, p.Do) else None
                if isinstance(operation, (p.Alloc, p.View, p.NewEvent, p.Take)):
                    made.setdefault(operation.local, [])
                elif isinstance(operation, (p.Get, p.CellGet)):
                    for local in operation.locals:
                        made.setdefault(local, [])
                elif isinstance(operation, (p.Put, p.CellSet, p.Give)):
                    values = (operation.token,) if isinstance(operation, p.Give) else operation.values
                    where = self._where(operation, thread)
                    for value in values:
                        if isinstance(value, p.Local):
                            made.setdefault(value.id, []).append(where)
                elif isinstance(operation, p.Drop):
                    place = self.words.place(node.site) if isinstance(node, p.Do) else ""
                    made.setdefault(operation.local, []).append(f"let go{f' at {place}' if place else ''}")
            for local, goes in made.items():
                info = thread.locals[local]
                until = "; ".join(dict.fromkeys(goes)) or "the end of the turn"
                lines.append(f"  {thread.name} holds {self.words.local(local, thread)} ({info.kind}): {until}")
        if lines:
            yield "who holds what"
            yield from lines

    def _where(self, operation: p.Put | p.CellSet | p.Give, thread: p.Thread) -> str:
        if isinstance(operation, p.Put):
            return f"also held by queue {self.words.name(operation.queue)}"
        if isinstance(operation, p.CellSet):
            return f"also held by cell {self.words.operand(operation.cell, thread)}"
        return f"given back to pool {self.words.name(operation.pool)}"

    # ------------------------------------------------------------ waits

    def _waits(self) -> Iterator[str]:
        kinds = (JoinEvent, JoinStream, JoinDevice, StreamJoinsEvent, StreamJoinsStream, p.Await, p.WaitFlag)
        waits = [item for item in self.items if isinstance(item.effect, kinds)]
        yield f"waits ({len(waits)})"
        for wait in waits:
            yield from self._wait(wait)

    def _wait(self, wait: Item) -> Iterator[str]:
        thread, effect = wait.turn.thread, wait.effect
        node = thread.nodes[wait.node]
        yield self._placed(f"  {self.words.node(node, thread)}  by {thread.name}", node)
        if isinstance(effect, (JoinEvent, StreamJoinsEvent)):
            ours = self.origins(effect.event, thread)
            records = [
                item
                for item in self.items
                if isinstance(item.effect, RecordEvent) and ours & self.origins(item.effect.event, item.turn.thread)
            ]
            if not records:
                yield "      waits for nothing: the event is never recorded (S18)"
                return
            for record in records:
                where = record.turn.thread
                assert isinstance(record.effect, RecordEvent)
                yield self._placed(
                    f"      for {self.words.node(where.nodes[record.node], where)} in {where.name}",
                    where.nodes[record.node],
                )
            yield from self._ordered(records)
        elif isinstance(effect, (p.Await, p.WaitFlag)):
            yield from self._met(effect)
        else:
            yield from self._ordered([wait])
        yield from self._waiters(wait)

    def _met(self, effect: p.Await | p.WaitFlag) -> Iterator[str]:
        """The signals or stores that a wait on the device may see, and what comes before them."""

        def seen(other: object) -> bool:
            if isinstance(effect, p.Await):
                return isinstance(other, p.Signal) and (other.channel, other.tag) == (effect.channel, effect.tag)
            return isinstance(other, p.StoreFlag) and other.flag == effect.flag and other.value >= effect.value

        found = [item for item in self.items if seen(item.effect)]
        if not found:
            yield f"      waits for ever: nothing {'signals that' if isinstance(effect, p.Await) else 'stores that much'}"
        for item in found:
            where = item.turn.thread
            node = where.nodes[item.node]
            yield self._placed(f"      for {self.words.node(node, where)} in {where.name}", node)
        yield from self._ordered(found)

    def _ordered(self, captures: list[Item]) -> Iterator[str]:
        """Device accesses before and not before the places where a stream's work is captured."""
        inside: list[str] = []
        outside: list[str] = []
        for item in self.items:
            if not isinstance(item.effect, Enqueue):
                continue
            on_stream = [capture for capture in captures if self._captures(capture, item)]
            if not on_stream:
                continue
            text = self._access(item)
            if any(item.before(capture) for capture in on_stream):
                inside.append(text)
            elif any(item.turn is capture.turn for capture in on_stream):
                after = any(capture.before(item) for capture in on_stream)
                outside.append(f"{text}: {'enqueued after it' if after else 'on a path without it'}")
        yield from _listed("orders", inside)
        yield from _listed("does not order", outside)

    def _captures(self, capture: Item, item: Item) -> bool:
        """Whether `item` goes to a stream whose work `capture` waits for or records."""
        assert isinstance(item.effect, Enqueue)
        effect = capture.effect
        if isinstance(effect, JoinDevice):
            stream = self.program.objects[item.effect.stream.id]
            return isinstance(stream, p.Stream) and (stream.gpu, stream.process) == (effect.gpu, effect.process)
        target = effect.other if isinstance(effect, StreamJoinsStream) else getattr(effect, "stream", None)
        if target is None:
            return False
        theirs = self.origins(item.effect.stream, item.turn.thread)
        return bool(self.origins(target, capture.turn.thread) & theirs)

    def _waiters(self, wait: Item) -> Iterator[str]:
        """What is held back by the wait, and host accesses of the same turn that are not."""
        effect = wait.effect
        held: list[str] = []
        free: list[str] = []
        for item in wait.turn.items:
            on = getattr(effect, "stream", None) if isinstance(effect, _ON_STREAMS) else None
            if on is not None:
                if not isinstance(item.effect, Enqueue):
                    continue
                thread = wait.turn.thread
                if not self.origins(on, thread) & self.origins(item.effect.stream, thread):
                    continue
            elif not isinstance(item.effect, Touch):
                continue
            if wait.before(item):
                held.append(self._access(item))
            else:
                free.append(self._access(item))
        yield from _listed("before", held)
        yield from _listed("not before", free)

    def _access(self, item: Item) -> str:
        thread = item.turn.thread
        assert isinstance(item.effect, (Enqueue, Touch))
        node = thread.nodes[item.node]
        place = self.words.place(node.site)
        name = getattr(node.operation, "name", None) if isinstance(node, p.Do) else None
        kind = name or (item.effect.what if isinstance(item.effect, Enqueue) else "host")
        text = f"{kind} {self.words.accesses(item.effect.accesses, thread)}"
        return f"{text} ({place})" if place else text


def _listed(heading: str, texts: list[str]) -> Iterator[str]:
    for text in dict.fromkeys(texts):
        yield f"      {heading}: {text}"
