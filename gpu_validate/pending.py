"""Device items whose turn comes later: what a compiled run makes of calls that wait for other streams on the device.

A device item behind an unsatisfied wait runs later than its call, so its call is in the plan where it was made, with the
contents of the moment at which it runs. A host call that a thread is inside is made in front of that thread's next call:
one thread makes all calls here, and must not stand in one that only another thread's calls can end.

One call can let items of several streams run at once, which then overlap whoever makes the calls. So that a serial trial
is one all the same, each late item is numbered: there it stays behind a gate until the plan says that it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fencepost.gpu_validate.gates import NEVER
from fencepost.gpu_validate.meetings import Meetings, meets
from fencepost.gpu_validate.plan import Call, Free, Line, Reach, Runs, WaitWord
from fencepost.model import program as p
from fencepost.model.answer import Step
from fencepost.model.events import Player


class Pending:
    """Lines of a plan, and the device items that have not run."""

    def __init__(self, program: p.Program) -> None:
        self.program = program
        self.lines: list[Line] = []
        self.by_key: dict[Any, int] = {}
        self.streams: dict[tuple[int, int], int] = {}
        self.meetings_there = meets(program)
        self.meetings = Meetings(program)
        self.waiting: dict[int, tuple[Callable[[], Call], int | None]] = {}
        """Step of a device item that has not run -> what gives its call, and the line that the call goes to."""
        self.delayed: dict[int, tuple[int, list[tuple[Call | None, str]], int]] = {}
        """Thread inside a call -> the call's step, its calls (None: of an item that has not run) and turn."""
        self.moved: dict[int, int] = {}
        self.seen = 0
        self.late_items = 0

    def _stream(self, player: Player, thread: int, operand: p.Operand) -> int:
        return self.streams[player.stream(thread, operand)]

    def _add(self, player: Player, calls: list[tuple[Call, str]], number: int, thread: str, turn: int) -> None:
        busy = self._busy(player)
        self.lines += [Line(call, number, thread, turn, op, busy) for call, op in calls]

    def _busy(self, player: Player) -> tuple[int, ...]:
        """The streams that wait on the device."""
        if not self.meetings_there:
            return ()
        return tuple(sorted(self.streams[stream] for stream, fifo in player.fifos.items() if player.pending[fifo]))

    def _enqueued(self, player: Player, step: Step, number: int, item: Callable[[], Call], word: str, turn: int) -> None:
        """A device item whose call is known once it has run; the thread may be inside the call until then."""
        if step.thread in player.inside:
            self.delayed[step.thread] = (number, [(None, word)], turn)
            self.waiting[number] = (item, None)
            return
        self.waiting[number] = (item, len(self.lines))
        name = self.program.threads[step.thread].name
        self.lines.append(Line(Reach(-1), number, name, turn, word, self._busy(player)))

    def _ran(self, player: Player, step: Step, number: int, busy: tuple[int, ...], first: int) -> None:
        """The calls of the items that have run in a step. `busy`: the streams that waited before; `first`: its first line."""
        late: list[int] = []
        for node in player.nodes[self.seen :]:
            found = None if node.stream is None else self.waiting.pop(node.step, None)
            if found is None:
                continue
            call, at = found[0](), found[1]
            if at is not None:
                item = None
                if node.step != number:
                    item, self.late_items = self.late_items, self.late_items + 1
                    late.append(item)
                self.lines[at] = msgspec.structs.replace(self.lines[at], call=call, late=item)
            else:
                for thread, (number, calls, turn) in self.delayed.items():
                    if number == node.step:
                        self.delayed[thread] = (number, [(call, word) for _, word in calls], turn)
        self.seen = len(player.nodes)
        if not late:
            return
        now = self._busy(player)
        held = tuple(sorted({*busy, *now}))  # in a serial trial they still wait for items that come in the lines below
        self.lines[first:] = [msgspec.structs.replace(line, busy=held) for line in self.lines[first:]]
        name, turn = self.program.threads[step.thread].name, player.turn(step.thread)
        for item in late:
            self.lines.append(Line(Runs(item), number, name, turn, "late", now if item == late[-1] else held))

    def _made_now(self, player: Player, thread: int, number: int) -> None:
        """The call that the thread was inside is made here, where it returns at once in the run."""
        if thread in self.delayed:
            old, calls, turn = self.delayed.pop(thread)
            self.moved[old] = number
            name = self.program.threads[thread].name
            self._add(player, [(call, word) for call, word in calls if call is not None], number, name, turn)

    def _device_step(self, player: Player, number: int, step: Step) -> None:
        assert step.stream is not None
        fifo = player.pending[player.fifos[step.stream]] if step.stream in player.fifos else ()
        made = fifo[0].step if fifo else None
        live = {t for t, tenant in player.tenants.items() if tenant.refs > 0}
        player.step(step)
        calls = self.meetings.released(made) if made in self.meetings.opens else []
        lines: list[tuple[Call, str]] = [(call, "a step of the device") for call in calls]
        lines += [(Free(self.by_key[("tenant", t)]), "release") for t in sorted(live) if player.tenants[t].refs == 0]
        self._add(player, lines, number, self.program.threads[step.thread].name, player.turn(step.thread))

    def _finish(self, player: Player, end: int) -> None:
        """What the run leaves pending never runs, and calls that never return are not made."""
        for thread in [t for t in self.delayed if t not in player.inside]:
            self._made_now(player, thread, end)
        if not self.meetings_there:
            return
        left = {item.step for fifo in player.pending for item in fifo if item.kind == "meet"}
        kept = []
        for line in self.lines:
            if line.call == Reach(-1):
                continue
            if line.step in left and isinstance(line.call, WaitWord):
                line = msgspec.structs.replace(line, call=msgspec.structs.replace(line.call, value=NEVER))
            kept.append(line)
        self.lines = kept

    def _meeting(self, player: Player, step: Step, o: Any, number: int) -> list[Call]:
        stream = None if o.stream is None else self._stream(player, step.thread, o.stream)
        calls = self.meetings.calls(o, stream)
        if stream is not None and (isinstance(o, (p.StoreFlag, p.WaitFlag)) or o.channel in player.open):
            return self.meetings.held(number, stream, calls)
        return calls
