"""A run as lanes: one column per thread and stream, one row per host step. Data only; text.py prints it."""

from __future__ import annotations

import msgspec
from fencepost.model import program as p
from fencepost.model.answer import AccessInfo, Answer, Hazard, Run
from fencepost.model.effects import MEETINGS, Enqueue, RecordEvent, StreamJoinsEvent, StreamJoinsStream
from fencepost.model.operations import Context, lower
from fencepost.report.words import Words

MOST_ROWS = 28
"""Rows that still fit on one screen beside the sentences of a refutation."""

FIRST, SECOND = "[1]", "[2]"
"""Marks of the two accesses of a hazard."""


class Row(msgspec.Struct):
    """One host step. `cells` by lane name; `marks` the accesses it holds; `folded` counts steps that are not shown."""

    turn: int | None
    cells: dict[str, str] = msgspec.field(default_factory=dict)
    marks: tuple[str, ...] = ()
    folded: int = 0


class Lanes(msgspec.Struct):
    """`threads` and `streams` name the columns, in the order of their first step."""

    threads: list[str]
    streams: list[str]
    rows: list[Row]


def lanes(program: p.Program, answer: Answer, most_rows: int = MOST_ROWS) -> Lanes:
    """The lanes of a refutation's run, folded to `most_rows` rows. The answer must have a run."""
    assert answer.run is not None
    hazard = answer.hazards[0] if answer.hazards else None
    drawn = _Drawing(program, answer.run, hazard)
    return Lanes(drawn.threads, drawn.streams, _fold(drawn.rows, most_rows))


class _Drawing:
    """The rows of one run, in host order."""

    def __init__(self, program: p.Program, run: Run, hazard: Hazard | None) -> None:
        self.program, self.words = program, Words(program)
        self.threads: list[str] = []
        self.streams: list[str] = []
        self.rows: list[Row] = []
        self._turns: dict[int, int] = {}
        self._hazard = hazard
        shown = {hazard.object, hazard.new_owner, hazard.second.tenant} if hazard is not None else set()
        self._tenants = shown | ({hazard.first.tenant} if hazard is not None and hazard.first is not None else set())
        marks = _marks(program, run, hazard)
        hidden = 0
        for number, step in enumerate(run.steps):
            thread = program.threads[step.thread]
            if not 0 <= step.node < len(thread.nodes):
                continue
            if step.stream is not None:
                self._device_step(thread, step.node, step.stream)
                continue
            if step.node == thread.entry:
                self._turns[step.thread] = self._turns.get(step.thread, -1) + 1
            found = tuple(mark for mark, at in marks.items() if at == number)
            if not found and self._bookkeeping(thread.nodes[step.node], thread):
                hidden += 1
                continue
            self._row(thread, step.node, self._turns.get(step.thread, 0), step.answer, found, number in run.late)

    def _device_step(self, thread: p.Thread, node: int, stream: tuple[int, int]) -> None:
        """A flag or an open channel at the head of a stream: when it runs is a step of its own."""
        thing = self.program.objects[stream[0]]
        ring = getattr(thing, "depth", None) is not None
        name = f"{thing.name}[{stream[1]}]" if ring else thing.name
        self._lane(self.streams, name)
        text = self.words.node(thread.nodes[node], thread)
        self.rows.append(Row(None, cells={name: f"now: {_without(text, name)}"}))

    def _bookkeeping(self, node: p.Node, thread: p.Thread) -> bool:
        """Whether a step only moves references about that have nothing to do with the hazard."""
        operation = node.operation if isinstance(node, p.Do) else None
        if isinstance(operation, (p.Alloc, p.View, p.Drop)):
            return thread.locals[operation.local].name not in self._tenants
        return isinstance(operation, p.NewEvent)

    def _row(
        self, thread: p.Thread, number: int, turn: int, answer: str | None, marks: tuple[str, ...], late: bool
    ) -> None:
        node = thread.nodes[number]
        row = Row(turn if thread.kind == "loop" else None, marks=marks)
        self._lane(self.threads, thread.name)
        text = self.words.node(node, thread, turn)
        if isinstance(node, p.Ask):
            row.cells[thread.name] = f"{text} {answer}"
        else:
            self._operation(node.operation, thread, turn, text, row, late)
        self._mark(row, thread)
        self.rows.append(row)

    def _operation(
        self, operation: p.Operation, thread: p.Thread, turn: int, text: str, row: Row, late: bool
    ) -> None:
        effects = lower(operation, Context(self.program, thread))
        streams = [
            self._stream(effect.stream, thread, turn)
            for effect in effects
            if isinstance(effect, (Enqueue, RecordEvent, StreamJoinsEvent, StreamJoinsStream, *MEETINGS))
            and effect.stream is not None
        ]
        if not streams:
            row.cells[thread.name] = text
            return
        waits = any(type(effect).__name__.startswith("Join") for effect in effects)
        row.cells[thread.name] = "-> and waits" if waits else "->"
        for stream in dict.fromkeys(streams):
            text = _without(text, stream) if isinstance(operation, MEETINGS) else text
            row.cells[stream] = text + (" (held back)" if late and row.marks else "")

    def _stream(self, operand: p.Operand, thread: p.Thread, turn: int) -> str:
        name = self.words.operand(operand, thread, turn)
        self._lane(self.streams, name)
        return name

    def _lane(self, lanes: list[str], name: str) -> None:
        if name not in lanes:
            lanes.append(name)

    def _mark(self, row: Row, thread: p.Thread) -> None:
        """Put the marks before the cell that accesses, and beside the second say that the first may still run."""
        hazard = self._hazard
        if hazard is None:
            return
        for mark, access in ((FIRST, hazard.first), (SECOND, hazard.second)):
            if access is None or mark not in row.marks:
                continue
            lane = self._lane_of(access, row, thread)
            row.cells[lane] = f"{mark} {row.cells.get(lane, '')}"
            if mark == SECOND and hazard.first is not None and hazard.first.on_device and FIRST not in row.marks:
                waiting = [name for r in self.rows for name, text in r.cells.items() if text.startswith(FIRST)]
                if waiting and waiting[0] not in row.cells:
                    row.cells[waiting[0]] = f"{FIRST} may still run"

    def _lane_of(self, access: AccessInfo, row: Row, thread: p.Thread) -> str:
        if not access.on_device:
            return thread.name
        return next((name for name in row.cells if name in self.streams), thread.name)


def _without(text: str, stream: str) -> str:
    """What the stream does, without its name, which stands over the lane."""
    return text.removeprefix(f"{stream} ").removeprefix(f"{stream}.")


def _marks(program: p.Program, run: Run, hazard: Hazard | None) -> dict[str, int]:
    """Mark -> index of the run's step that makes the access."""
    if hazard is None:
        return {}
    turns: dict[int, int] = {}
    at: list[tuple[str, int]] = []
    for step in run.steps:
        if step.stream is None and step.node == program.threads[step.thread].entry:
            turns[step.thread] = turns.get(step.thread, -1) + 1
        at.append((program.threads[step.thread].name, turns.get(step.thread, 0)))
    found: dict[str, int] = {}
    for mark, access in ((FIRST, hazard.first), (SECOND, hazard.second)):
        if access is None:
            continue
        same = [number for number, place in enumerate(at) if place == (access.thread, access.step)]
        # The index counts the run's steps; an answer from elsewhere may count otherwise, then the place decides.
        if access.index in same:
            found[mark] = access.index
        else:
            placed = [number for number in same if _places(program, run, number) == access.places]
            if placed or same:
                found[mark] = (placed or same)[-1]
    return found


def _places(program: p.Program, run: Run, number: int) -> tuple[p.Place, ...]:
    step = run.steps[number]
    site = program.threads[step.thread].nodes[step.node].site
    return program.places[site] if 0 <= site < len(program.places) else ()


def _fold(rows: list[Row], most: int) -> list[Row]:
    """Leave rows out until `most` are left: those before the first access, then the middle between the two."""
    if len(rows) <= most:
        return rows
    marked = [number for number, row in enumerate(rows) if row.marks]
    first, last = (marked[0], marked[-1]) if marked else (len(rows) - 1, len(rows) - 1)
    start = max(0, min(first - 3, len(rows) - most + 1))
    kept = rows[start : last + 1]
    before = [Row(None, folded=start)] if start else []
    room = most - len(before)
    if len(kept) <= room:
        return before + kept
    head = room // 2
    tail = room - head - 1
    left_out = len(kept) - head - tail
    return [*before, *kept[:head], Row(None, folded=left_out), *kept[len(kept) - tail :]]
