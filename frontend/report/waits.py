"""Synchronisations for readers: a table of classes, and beside each what it protects, what replaces it, what it misses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

import msgspec
from fencepost.check import Case
from fencepost.model import program as p
from fencepost.model.answer import MASKED, PROVED, REFUTED, Answer, Hazard
from fencepost.proofs.waits.catalogue import BOUND, HOLD, Sync
from fencepost.proofs.waits.classify import CONDITIONAL, NEEDED, OPEN, REDUNDANT, USELESS, Finding, Waits
from fencepost.proofs.waits.handles import Node
from fencepost.report.words import Words

ORDER = (NEEDED, CONDITIONAL, REDUNDANT, USELESS, OPEN)

MOST_ROWS = 40
"""Redundant and useless ones that are listed; the others are counted."""

WORDS = {CONDITIONAL: "redundant if", OPEN: "not decided"}
"""What a class is called in a table, where that is not its name."""


class Where:
    """Places of nodes: the innermost line of the user's frames, and outer ones where several nodes share it."""

    def __init__(self, program: p.Program, nodes: Iterable[Node]) -> None:
        self.program = program
        sites = {program.threads[t].nodes[i].site for t, i in nodes}
        self._lines: dict[int, str] = {}
        frames = {s: [f"{f.file}:{f.line}" for f in reversed(program.places[s])] for s in sites if self._known(s)}
        for site, lines in frames.items():
            chain = lines[:1]
            for depth in range(1, len(lines)):
                if sum(other[:depth] == lines[:depth] for other in frames.values()) == 1:
                    break
                chain.append(lines[depth])
            self._lines[site] = chain[0] + ("" if len(chain) == 1 else f" < {chain[-1].rpartition(':')[2]}")

    def _known(self, site: int) -> bool:
        return 0 <= site < len(self.program.places) and bool(self.program.places[site])

    def __call__(self, at: Node) -> str:
        """`file:line`, with ` < line` for the caller that tells it apart; thread and node without positions."""
        site = self.program.threads[at[0]].nodes[at[1]].site
        if site in self._lines:
            return self._lines[site]
        if self._known(site):
            frame = self.program.places[site][-1]
            return f"{frame.file}:{frame.line}"
        return f"{self.program.threads[at[0]].name} node {at[1]}"


class Told:
    """Sentences about one answer."""

    def __init__(self, answer: Waits, *, numbered: bool = True) -> None:
        """`numbered`: beside a table that says which synchronisation has which number; else each is named with its line."""
        self.answer = answer
        self.numbered = numbered
        self.words = Words(answer.program)
        self.where = Where(answer.program, (at for sync in answer.syncs for at in sync.nodes))

    def text(self, sync: Sync) -> str:
        """The synchronisation as the user would write it."""
        thread = self.answer.program.threads[sync.at[0]]
        node = thread.nodes[sync.at[1]]
        if sync.kind == HOLD and isinstance(node, p.Do) and isinstance(node.operation, (p.Put, p.CellSet)):
            assert sync.value is not None
            value = self.words.value(node.operation.values[sync.value], thread)
            if isinstance(node.operation, p.Put):
                return f"{value} held by queue {self.words.name(node.operation.queue)}"
            return f"{value} held by cell {self.words.operand(node.operation.cell, thread)}"
        text = self.words.node(node, thread)
        return f"{text}: waits for room" if sync.kind == BOUND else text

    def operation(self, at: Node) -> str:
        """An operation and its place."""
        thread = self.answer.program.threads[at[0]]
        return f"{self.words.node(thread.nodes[at[1]], thread)} ({self.where(at)})"

    def numbers(self, numbers: Sequence[int]) -> str:
        """`[3] [5]`, or what these are where no table says so."""
        if not self.numbered:
            syncs = [self.answer.syncs[k] for k in numbers]
            return " and ".join(f"{self.text(sync)} ({self.where(sync.at)})" for sync in syncs)
        return " ".join(f"[{k + 1}]" for k in numbers)

    def details(self, finding: Finding) -> Iterator[str]:
        """Sentences under one row of the table."""
        if finding.kind == CONDITIONAL:
            told = finding.alternatives[:4]
            verb = "stays" if not told or len(told[-1]) == 1 else "stay"
            yield "it may go while " + ", or while ".join(self.numbers(one) for one in told) + f" {verb}"
        head = "without it" if finding.kind == NEEDED else "without both"
        distinct = _distinct(finding.breaks)
        for number, hazard in enumerate(distinct[:2]):
            more = f", and {len(distinct) - 2} more" if number == 1 and len(distinct) > 2 else ""
            yield f"{head}: {overtaking(hazard)}{more}"
        if finding.kind == REDUNDANT and finding.protects:
            objects = ", ".join(dict.fromkeys(name.partition("[")[0] for name, _, _ in finding.protects))
            covered = f"; {self.numbers(finding.covered_by[:3])} {_do(finding.covered_by)} the same" if finding.covered_by else ""
            yield f"alone it orders {objects}{covered}"
        elif finding.why:
            yield finding.why
        for number, one in enumerate(finding.weaker):
            skipped = "; ".join(self.operation(at) for at in one.skips[:2]) + ("; ..." if len(one.skips) > 2 else "")
            enough = "is enough" + (f" while {self.numbers(one.stays)} {'stays' if len(one.stays) == 1 else 'stay'}" if one.stays else "")
            either = "wider than needed" if number == 0 else "or"
            yield {
                "later": f"{either}: right before {self.operation(one.at)} {enough}, behind {skipped}",
                "earlier record": f"{either}: a record right behind {self.operation(one.at)} {enough}; it covers {skipped} for nothing",
                "finer event": f"{either}: the event of {self.operation(one.at)} {enough}; it waits for {skipped} for nothing",
                "new event": f"{either}: an event recorded right behind {self.operation(one.at)} {enough}; it waits for {skipped} for nothing",
            }[one.how]  # fmt: skip
        yield from self._missed(finding)
        if finding.cost is not None:
            yield f"cost: {finding.cost.removeprefix('costs ')}"

    def _missed(self, finding: Finding) -> Iterator[str]:
        """What the wait looks meant for and does not order: hazards one by one, what others order in one sentence."""
        bad = {hazard.object for hazard in self.answer.bad}
        for lost in [one for one in finding.missed if one.object in bad][:3]:
            what = "comes before it" if lost.why == "before" else "is enqueued behind its record"
            yield f"does not cover {lost.object}: {self.operation(lost.access)} {what}"
        for why, what in (("before", "comes before it"), ("behind", "is enqueued behind its record")):
            others = [one for one in finding.missed if one.object not in bad and one.why == why]
            named = [f"{one.object} ({self.where(one.access)})" for one in others[:3]]
            if named:
                more = f" and {len(others) - 3} more" if len(others) > 3 else ""
                yield f"does not cover {', '.join(named)}{more}, which {what}; others order that"

    def summary(self) -> str:
        """`6 synchronisations: 1 needed, 5 redundant`."""
        counts = Counter(finding.kind for finding in self.answer.findings)
        total = len(self.answer.findings)
        parts = [f"{counts[kind]} {_CLASS[kind]}" for kind in ORDER if counts[kind]]
        return f"{total} synchronisation{'' if total == 1 else 's'}" + (f": {', '.join(parts)}" if parts else "")

    def closing(self) -> Iterator[tuple[str, str]]:
        """(heading, sentence): what is bad already, what is open, which sets suffice with their proofs, unused records, costs."""
        answer = self.answer
        for hazard in _distinct(answer.bad):
            yield "refuted", f"as it is: {hazard.name}; what is said above is about what goes wrong beside that"
        reasons: dict[str, list[str]] = {}
        for text in answer.open:
            name, _, why = text.partition(": ")
            reasons.setdefault(why, []).append(name)
        for why, open_ in reasons.items():
            more = f" and {len(open_) - 5} more" if len(open_) > 5 else ""
            yield "open", f"{', '.join(open_[:5])}{more}: {why}"
        for text in answer.cut:
            yield "open", f"{text}: the time given ended before it was looked at"
        for number, kept in enumerate(answer.sets[: max(1, len(answer.proofs))] if not answer.open else ()):
            names = f"{self.numbers(kept)} alone" if kept else "no synchronisation at all"
            proof = answer.proofs[number] if number < len(answer.proofs) else None
            if proof is None:
                yield "enough", f"{names}, for what the design does not break already"
            elif proof.verdict in (PROVED, MASKED) and proof.certificate is not None:
                states = f"{proof.certificate.states} states, checked"
                yield "enough", f"{names}: {proof.verdict}, certificate {proof.certificate.hash} ({states})"
            else:
                yield "enough", f"{names}, each location by itself; the whole: {proof.verdict} ({proof.reason})"
        if len(answer.sets) > len(answer.proofs) > 0:
            yield "enough", self._more_sets()
        wide = [finding.sync for finding in answer.findings if finding.weaker]
        if len(wide) > 1:
            yield "wider", self._together(wide)
        if not answer.complete:
            yield "note", "not every minimal set is known: an answer was open or there are too many"
        for nodes in answer.unwaited:
            yield "useless", f"{self.operation(nodes[0])}: recorded, and nobody waits for it"
        if answer.cost_open:
            yield "cost", f"no break-even of waits: {answer.cost_open}"
        if answer.cost_of:
            which = "computed figures" if answer.cost_open else "break-evens"
            yield "cost", f"{which} are those of steady steps with {answer.cost_of}"


    def _together(self, wide: Sequence[int]) -> str:
        """Which of those that are wider than needed may be narrowed at once."""
        found = self.answer.together
        if found is None or found.answer is None:
            why = "whether several may be narrowed at once was not decided" if found is None else "no two of them are proved at once"
            return f"{self.numbers(wide)}: what is said of each holds by itself; {why}"
        certificate = found.answer.certificate
        proof = f", certificate {certificate.hash} ({certificate.states} states, checked)" if certificate is not None else ""
        left = [k for k in wide if k not in found.syncs]
        rest = f"; {self.numbers(left)} {'is' if len(left) == 1 else 'are'} not among them: by itself only" if left else ""
        first = ", each as its first line says," if any(len(f.weaker) > 1 for f in self.answer.findings) else ""
        return (
            f"{self.numbers(found.syncs)} at once{first} beside {self.numbers(found.kept)} alone: {found.answer.verdict}{proof}{rest}"
        )

    def _more_sets(self) -> str:
        """The minimal sets that are not proved one by one, by what they have beside what all have."""
        answer = self.answer
        common = set(answer.sets[0]).intersection(*answer.sets)
        others = [[k for k in kept if k not in common] for kept in answer.sets[len(answer.proofs) :]]
        told = ", or ".join(self.numbers(one) for one in others[:8]) + (", or ..." if len(others) > 8 else "")
        beside = f"{self.numbers(sorted(common))} with " if common else ""
        return f"and {len(others)} more minimal set{'' if len(others) == 1 else 's'}: {beside}{told}"


_CLASS = {NEEDED: "needed", CONDITIONAL: "redundant while another stays", REDUNDANT: "redundant", USELESS: "useless", OPEN: "not decided"}  # fmt: skip


def overtaking(hazard: Hazard) -> str:
    """A hazard in one line: who overtakes whom, in which steps."""
    second, first = hazard.second, hazard.first
    what = f"{second.operation} of step {second.step} on {second.agent}"
    if first is None:
        return f"{hazard.name}: {what} reads what nobody wrote"
    to = f" into {second.tenant}" if second.tenant and second.tenant != first.tenant else ""
    still = "read" if first.mode == "r" else "write"
    verb = "writes" if second.mode == "w" else "reads"
    if hazard.held_back:
        return f"{hazard.name}: {what} {verb}{to} held back until after {first.operation} of step {first.step} on {first.agent}"
    return (
        f"{hazard.name}: {what} {verb}{to} while {first.operation} of step {first.step} on {first.agent} "
        f"may still {still}"
    )


def bad_run(finding: Finding) -> tuple[p.Program, Answer] | None:
    """The edited design and its shortest bad run, where there is one."""
    if finding.run is None or finding.program is None:
        return None
    return finding.program, Answer(finding.program.name, REFUTED, hazards=finding.breaks[:1], run=finding.run)


def _do(numbers: Sequence[int]) -> str:
    return "does" if len(numbers) == 1 else "do"


def _distinct(hazards: Iterable[Hazard]) -> list[Hazard]:
    seen: dict[tuple[Any, ...], Hazard] = {}
    for hazard in hazards:
        seen.setdefault((hazard.name, hazard.first and hazard.first.operation, hazard.second.operation), hazard)
    return list(seen.values())


def _groups(told: Told, verbose: bool) -> Iterator[tuple[list[Finding], list[str]]]:
    """Findings in the order of the table, those that the same is said about together, and what is said."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    said: dict[int, list[str]] = {}
    alike = _alike(told.answer.findings)
    for finding in sorted(told.answer.findings, key=lambda f: (ORDER.index(f.kind), f.sync)):
        details = list(told.details(finding))
        if finding.kind == REDUNDANT and finding.why and not finding.missed and not verbose:
            costs = [line for line in details if line.startswith("cost: ")]
            bound = told.answer.syncs[finding.sync].kind == BOUND
            details = costs or details if bound else [finding.why, *costs]
        said[finding.sync] = details
        key: tuple[object, ...] = (finding.sync,)
        if finding.kind in (REDUNDANT, USELESS) and details and not verbose:
            key = (finding.kind, *details)
        elif finding.sync in alike and not verbose:
            key = (alike[finding.sync], *details[1:])
        groups.setdefault(key, []).append(finding)
    for group in groups.values():
        details = said[group[0].sync]
        if len(group) > 1 and group[0].kind == CONDITIONAL:
            members = alike[group[0].sync]
            which = f"these {len(members)}" if len(members) == len(group) else told.numbers(sorted(members))
            each = [line.replace("without both: ", "without all of them: ") for line in details[1:]]
            yield group, [f"any one of {which} is enough, the others may go", *each]
        else:
            yield group, [f"each: {line}" for line in details] if len(group) > 1 else details


FEW = 3
"""Synchronisations that can stand in for each other up to which each is told for itself."""


def _alike(findings: Sequence[Finding]) -> dict[int, frozenset[int]]:
    """Of those that may go while another one stays: many of which any one is enough, by number."""
    sets = {
        f.sync: frozenset((f.sync, *(one[0] for one in f.alternatives)))
        for f in findings
        if f.kind == CONDITIONAL and all(len(one) == 1 for one in f.alternatives)
    }
    return {k: one for k, one in sets.items() if len(one) > FEW and all(sets.get(j) == one for j in one)}


def write_waits(case: Case, answer: Waits, out: TextIO, *, verbose: bool = False) -> None:
    """One design's synchronisations as text."""
    from fencepost.report.lanes import lanes
    from fencepost.report.text import _lanes, console_for
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    told = Told(answer)
    console = console_for(out)
    title = f" [{case.title}]" if case.title else ""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    styles = {NEEDED: "bold", USELESS: "yellow", OPEN: "yellow", CONDITIONAL: "cyan"}
    listed = 0
    left_out: Counter[str] = Counter()
    for group, sentences in _groups(told, verbose):
        for finding in group:
            if finding.kind in (REDUNDANT, USELESS):
                listed += 1
                if listed > MOST_ROWS and not verbose:
                    left_out[finding.kind] += 1
                    continue
            sync = answer.syncs[finding.sync]
            head = Text(f"{told.text(sync)}  ")
            head.append(told.where(sync.at), style="dim")
            style = styles.get(finding.kind, "")
            table.add_row(f"[{finding.sync + 1}]", Text(WORDS.get(finding.kind, finding.kind), style=style), head)
        if group[0].kind not in left_out:
            for sentence in sentences:
                table.add_row("", "", Padding(Text(sentence), (0, 0, 0, 2)))
    with console.capture() as captured:
        console.print(Text(f"{case.design}{title}: {told.summary()}", style="bold"))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))
        for kind, count in left_out.items():
            console.print(Text(f"  and {count} more {kind}; -v lists them"))
        closing = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
        closing.add_column(no_wrap=True, min_width=8)
        closing.add_column(overflow="fold")
        for heading, sentence in told.closing():
            closing.add_row(Text(heading), Text(sentence))
        closing.add_row(Text("edits"), Text(f"{answer.asked} decided in {answer.seconds:.1f} s"))
        console.print(Padding(closing, (0, 0, 0, 2), expand=False))
        for finding in answer.findings if verbose else ():
            shown = bad_run(finding)
            if shown is not None:
                gone = "without it" if finding.kind == NEEDED else "without it and what can stand in for it"
                console.print(Text(f"\n  [{finding.sync + 1}] a shortest run {gone}, {finding.breaks[0].name}:"))
                _lanes(lanes(*shown), console)
    out.writelines(line.rstrip(" ") + "\n" for line in captured.get().splitlines())


def waits_to_json(answers: Sequence[tuple[Case, Waits]]) -> str:
    """The answers as one JSON document: `fencepost_waits` (version) and `designs`."""
    designs = []
    for case, answer in answers:
        told = Told(answer)
        designs.append(
            {
                "design": case.design,
                "variant": case.label,
                "parameters": case.parameters,
                "synchronisations": [
                    {
                        "number": finding.sync + 1,
                        "class": finding.kind,
                        "kind": answer.syncs[finding.sync].kind,
                        "operation": told.text(answer.syncs[finding.sync]),
                        "place": told.where(answer.syncs[finding.sync].at),
                        "thread": answer.program.threads[answer.syncs[finding.sync].at[0]].name,
                        "hazards": list(dict.fromkeys(h.name for h in finding.breaks)),
                        "run": None if finding.run is None else msgspec.to_builtins(finding.run),
                        "while": [[k + 1 for k in one] for one in finding.alternatives],
                        "covered_by": [k + 1 for k in finding.covered_by],
                        "weaker": [
                            {"how": one.how, "at": told.where(one.at), "while": [k + 1 for k in one.stays]}
                            for one in finding.weaker
                        ],
                        "misses": [{"object": m.object, "why": m.why, "at": told.where(m.access)} for m in finding.missed],
                        "why": finding.why or None,
                        "cost": finding.cost,
                        "details": list(told.details(finding)),
                    }
                    for finding in answer.findings
                ],
                "sufficient": [
                    {
                        "keep": [k + 1 for k in kept],
                        "verdict": answer.proofs[n].verdict if n < len(answer.proofs) else None,
                        "certificate": c.hash if n < len(answer.proofs) and (c := answer.proofs[n].certificate) else None,
                    }
                    for n, kept in enumerate(answer.sets)
                ],
                "complete": answer.complete,
                "narrowed_together": None if (t := answer.together) is None else {
                    "synchronisations": [k + 1 for k in t.syncs],
                    "keep": [k + 1 for k in t.kept],
                    "verdict": t.answer and t.answer.verdict,
                    "certificate": t.answer and t.answer.certificate and t.answer.certificate.hash,
                },
                "refuted": list(dict.fromkeys(h.name for h in answer.bad)),
                "open": list(answer.open),
                "cost_open": answer.cost_open or None,
                "cost_of": answer.cost_of or None,
                "cut": list(answer.cut),
                "unwaited_records": [told.where(nodes[0]) for nodes in answer.unwaited],
            }
        )
    return json.dumps({"fencepost_waits": 1, "designs": designs}, indent=2)
