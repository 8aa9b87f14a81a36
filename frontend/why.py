"""Why one line of a design is there: what a record covers and misses, which pairs rest on a wait, what breaks without it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from fencepost.check import Case
from fencepost.errors import InputError, relative
from fencepost.model import program as p
from fencepost.model.answer import REFUTED, Answer
from fencepost.model.effects import Enqueue, StreamJoinsEvent, StreamJoinsStream, Touch
from fencepost.model.platform import platform as platform_named
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.waits.catalogue import operation
from fencepost.proofs.waits.classify import CONDITIONAL, NEEDED, Finding, Waits, waits
from fencepost.proofs.waits.decide import Oracle
from fencepost.proofs.waits.handles import Node, Origin
from fencepost.proofs.waits.static import Text
from fencepost.report.waits import WORDS, Told

Line = tuple[str, str]
"""(heading, sentence); an empty heading goes on with the one before."""


def spot(text: str) -> tuple[str, int]:
    """`FILE:LINE` -> (path, line). Raises `InputError` when it is none."""
    path, colon, line = text.rpartition(":")
    if not colon or not line.isdigit() or not path:
        raise InputError(f"{text}: write the place as FILE:LINE, as reports do")
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file")
    return path, int(line)


def nodes_at(program: p.Program, path: str, line: int) -> list[Node]:
    """The nodes whose frames pass the line, the innermost frame first: those that stand there, else those called there."""
    base = os.path.basename(path)
    inner: list[Node] = []
    outer: list[Node] = []
    for t, thread in enumerate(program.threads):
        for i, node in enumerate(thread.nodes):
            frames = program.places[node.site] if 0 <= node.site < len(program.places) else ()
            here = [(os.path.basename(f.file), f.line) for f in frames]
            if here and here[-1] == (base, line):
                inner.append((t, i))
            elif (base, line) in here:
                outer.append((t, i))
    return inner or outer


def lines_of(program: p.Program, path: str) -> list[int]:
    """Lines of the file that operations stand at."""
    base = os.path.basename(path)
    used = {node.site for thread in program.threads for node in thread.nodes}
    return sorted({f.line for s in used if 0 <= s < len(program.places) for f in program.places[s] if os.path.basename(f.file) == base})


class Why:
    """Everything about the nodes of one line in one program."""

    def __init__(
        self, case: Case, program: p.Program, nodes: list[Node], seconds: float, mapper: Callable[..., Any]
    ) -> None:
        self.case = case
        self.program = program
        self.nodes = nodes
        self.answer: Waits = waits(
            program, environment=case.environment, platform=case.platform, never=case.never, seconds=seconds, mapper=mapper
        )
        self.told = Told(self.answer, numbered=False)
        platform = platform_named(case.platform)
        self.text = Text(program, platform)
        self.oracle = Oracle(program, list(self.answer.syncs), platform)
        self._rests: dict[int, list[tuple[str, Node, Node]]] = {}

    def lines(self) -> Iterator[Line]:
        """All that there is to say, one operation after the other."""
        seen: set[str] = set()
        for at in self.nodes:
            node = self.program.threads[at[0]].nodes[at[1]]
            what = self.told.operation(at)
            if self._key(at) in seen:
                continue
            seen.add(self._key(at))
            alike = [n for n in self.nodes if self._key(n) == self._key(at)]
            yield "", ""
            yield "here", f"{what}, by {self.program.threads[at[0]].name}"
            findings = [f for f in self.answer.findings if set(self.answer.syncs[f.sync].nodes) & set(alike)]
            for finding in findings:
                yield from self._synchronisation(finding)
            if isinstance(node, p.Ask):
                yield "is", "a question: it branches, and orders only what its object carries"
                continue
            if isinstance(node.operation, p.Record):
                yield from self._record(at, node.operation)
            if any(isinstance(x, (Touch, Enqueue)) and x.accesses for x in self.text.effects.get(at, ())):
                yield from self._access(alike)

    def _key(self, at: Node) -> str:
        """What a reader takes for one operation: the body may reach it on several paths, with locals numbered anew."""
        return f"{at[0]} {re.sub(r'#[0-9]+', '', self.told.operation(at))}"

    def rests(self, finding: Finding) -> list[tuple[str, Node, Node]]:
        """The pairs that are hazards once this one alone is gone."""
        if finding.sync not in self._rests:
            self._rests[finding.sync] = [
                pair
                for location in self.oracle.locations
                if finding.sync in self.oracle.relevant(location)
                for pair in sorted(self._lost(location, finding.sync))
            ]
        return self._rests[finding.sync]

    def _lost(self, location: Location, sync: int) -> frozenset[tuple[str, Node, Node]]:
        """Pairs of the location that are hazards without the synchronisation; the shortest where not all are found."""
        whole, without = self.oracle.pairs(location, ()), self.oracle.pairs(location, {sync})
        if whole is not None and without is not None:
            return without - whole
        label = location.label(self.program)
        found = (j.found for j in self.oracle.verdict(location, {sync}).hazards)
        return frozenset((label, one.first, one.second) for one in found if one.first is not None)

    def _synchronisation(self, finding: Finding) -> Iterator[Line]:
        sync = self.answer.syncs[finding.sync]
        kind = "redundant while another stays" if finding.kind == CONDITIONAL else WORDS.get(finding.kind, finding.kind)
        yield "class", f"{kind} ({sync.kind}: {self.told.text(sync)})"
        if finding.kind == NEEDED:
            pairs = self.rests(finding)
            said = list(dict.fromkeys(f"{name}: {self.told.operation(a)} before {self.told.operation(b)}" for name, a, b in pairs))
            for sentence in said[:6]:
                yield "rests", sentence
            if len(said) > 6:
                yield "rests", f"and {len(said) - 6} more pairs"
        for sentence in self.told.details(finding):
            yield "", sentence

    def _verdict(self, finding: Finding) -> str:
        """The class of a wait in a line: with what goes wrong without it, or what has to stay."""
        if finding.kind == NEEDED and finding.breaks:
            return f"needed, without it: {', '.join(dict.fromkeys(hazard.name for hazard in finding.breaks))}"
        if finding.kind == CONDITIONAL and finding.alternatives:
            stay = finding.alternatives[0]
            return f"redundant while {self.told.numbers(stay)} {'stays' if len(stay) == 1 else 'stay'}"
        return WORDS.get(finding.kind, finding.kind)

    def _record(self, at: Node, op: p.Record) -> Iterator[Line]:
        streams = self.text.handles.of(at[0], op.stream)
        covered = [
            self.told.operation(work) + "".join(f", through {self.told.operation(wait)}" for wait in waits[-1:])
            for work, waits in self._captured(at, streams, ())
        ]
        missed = [self.told.operation(other) for other in self._work(streams) if self.text.precedes(at, other)]
        yield from (("covers", text) for text in dict.fromkeys(covered))
        if not covered:
            yield "covers", "only what earlier turns, or other threads, put on the stream"
        yield from (("misses", f"{text}, enqueued behind it in the same turn") for text in dict.fromkeys(missed))
        mine = self.text.handles.of(at[0], op.event)
        waiting = []
        for finding in self.answer.findings:
            sync = self.answer.syncs[finding.sync]
            wait = operation(self.program, sync.at)
            if isinstance(wait, (p.EventSync, p.StreamWaitEvent)) and self.text.handles.of(sync.at[0], wait.event) & mine:
                waiting.append(f"{self.told.operation(sync.at)}: {self._verdict(finding)}")
        yield from (("waited", text) for text in waiting)
        if not waiting:
            yield "waited", "by nobody"

    def _work(self, streams: frozenset[Origin]) -> Iterator[Node]:
        """Operations whose accesses are items of one of the streams."""
        for node, effects in self.text.effects.items():
            if any(isinstance(x, Enqueue) and x.accesses and self.text.handles.of(node[0], x.stream) & streams for x in effects):
                yield node

    def _captured(
        self, at: Node, streams: frozenset[Origin], waits: tuple[Node, ...]
    ) -> Iterator[tuple[Node, tuple[Node, ...]]]:
        """What the streams have done in front of a node of the same turn: work, and the stream waits that bring it there."""
        for other in self._work(streams):
            if self.text.precedes(other, at):
                yield other, waits
        for other, effects in self.text.effects.items():
            if not self.text.precedes(other, at) or other in waits:
                continue
            for x in effects:
                if not isinstance(x, (StreamJoinsStream, StreamJoinsEvent)) or not self.text.handles.of(other[0], x.stream) & streams:
                    continue
                if isinstance(x, StreamJoinsStream):
                    yield from self._captured(other, self.text.handles.of(other[0], x.other), (*waits, other))
                    continue
                for record in self.text.handles.records(other[0], x.event):
                    op = operation(self.program, record)
                    if isinstance(op, p.Record) and self.text.precedes(record, other):
                        yield from self._captured(record, self.text.handles.of(record[0], op.stream), (*waits, other))

    def _access(self, alike: list[Node]) -> Iterator[Line]:
        found: dict[str, None] = {}
        for finding in self.answer.findings:
            if finding.kind != NEEDED:
                continue
            for name, a, b in self.rests(finding):
                if a in alike or b in alike:
                    other = b if a in alike else a
                    order = "before" if a in alike else "behind"
                    wait = self.answer.syncs[finding.sync]
                    found.setdefault(f"{name}: {order} {self.told.operation(other)} by {self.told.operation(wait.at)}")
        for text in list(found)[:8]:
            yield "ordered", text
        if len(found) > 8:
            yield "ordered", f"and {len(found) - 8} more"
        if not found:
            yield "ordered", "no pair of it rests on one synchronisation alone"

    def bad_run(self) -> tuple[p.Program, Answer] | None:
        """The program without the first needed synchronisation of the line, with the answer that holds its bad run."""
        for finding in self.answer.findings:
            here = set(self.answer.syncs[finding.sync].nodes) & set(self.nodes)
            if here and finding.run is not None and finding.program is not None:
                return finding.program, Answer(
                    self.case.design, REFUTED, hazards=finding.breaks[:1], run=finding.run
                )
        return None


def choose(path: str, line: int, asked: list[tuple[Case, p.Program]]) -> list[tuple[Case, p.Program, list[Node]]]:
    """The cases whose program has operations at the line, one for each design. Raises `InputError` when none has."""
    found: dict[str, tuple[Case, p.Program, list[Node]]] = {}
    nearest: list[int] = []
    for case, program in asked:
        nodes = nodes_at(program, path, line)
        nearest += lines_of(program, path)
        if nodes and case.target not in found:
            found[case.target] = (case, program, nodes)
    if not found:
        near = sorted(set(nearest), key=lambda n: (abs(n - line), n))[:3]
        hint = f"; the nearest line{'s are' if len(near) > 1 else ' is'} {', '.join(map(str, sorted(near)))}" if near else ""
        raise InputError(f"{relative(path)}:{line}: no operation of a design stands there{hint}")
    return list(found.values())
