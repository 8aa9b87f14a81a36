"""What changed between two programs: objects and operations that went, came, moved or have other attributes."""

from __future__ import annotations

import difflib
from collections import Counter

import msgspec
from fencepost.model import program as p
from fencepost.report.words import Words

WAITS = (
    p.EventSync, p.StreamWaitEvent, p.WaitStream, p.StreamSync, p.DeviceSync, p.Item, p.FlagWait, p.CounterWait, p.Acquire,
    p.Get, p.Take,
)  # fmt: skip
"""Operations that wait, or make a stream wait."""

SYNCHRONISATIONS = (*WAITS, p.Record, p.RecordStream, p.Put, p.Give, p.Unlock, p.FlagSet, p.CounterAdd)
"""Operations that carry an edge to another thread or stream."""

ACCEPTANCE = "acceptance of "


class Change(msgspec.Struct, frozen=True):
    """`kind` "went" | "came" | "moved" | "changed"; `before` and `after` are `file:line` on the sides that have it."""

    kind: str
    thread: str
    text: str
    synchronisation: bool = False
    before: str = ""
    after: str = ""

    @property
    def edits(self) -> bool:
        """Whether it is one of what the design does, and not of what is accepted of it."""
        return bool(self.thread) or not self.text.startswith(ACCEPTANCE)


class _Line(msgspec.Struct, frozen=True):
    text: str
    place: str
    synchronisation: bool


def changes(before: p.Program, after: p.Program) -> list[Change]:
    """All changes, objects and acceptances first, then thread by thread in the order of the text."""
    found = [*_objects(before, after), *_acceptances(before, after)]
    olds = {thread.name: thread for thread in before.threads}
    news = {thread.name: thread for thread in after.threads}
    for name in [*olds, *(name for name in news if name not in olds)]:
        old = _lines(before, olds[name]) if name in olds else []
        new = _lines(after, news[name]) if name in news else []
        found += _thread(name, old, new)
    return found


def same_text(before: p.Program, after: p.Program) -> bool:
    """Whether two programs are one design, whatever they stand for and wherever they are written."""
    return (before.objects, before.threads, before.accepted) == (after.objects, after.threads, after.accepted)


def _objects(before: p.Program, after: p.Program) -> list[Change]:
    olds = {(type(thing), thing.name): thing for thing in before.objects}
    news = {(type(thing), thing.name): thing for thing in after.objects}
    found = []
    for key, thing in olds.items():
        kind = type(thing).__name__.lower()
        if key not in news:
            found.append(Change("went", "", f"{kind} {thing.name}"))
        elif news[key] != thing:
            was, now = msgspec.structs.asdict(thing), msgspec.structs.asdict(news[key])
            parts = [f"{name} {was[name]} -> {now[name]}" for name in was if was[name] != now[name]]
            found.append(Change("changed", "", f"{kind} {thing.name}: {', '.join(parts)}"))
    found += [Change("came", "", f"{type(t).__name__.lower()} {t.name}") for key, t in news.items() if key not in olds]
    return found


def _acceptances(before: p.Program, after: p.Program) -> list[Change]:
    """Hazards that only one side accepts, each with the reason that is given."""
    olds, news = ({one.hazard: one.because for one in program.accepted} for program in (before, after))
    return [
        *(Change("went", "", f"{ACCEPTANCE}{name}: {olds[name]}") for name in olds if name not in news),
        *(Change("came", "", f"{ACCEPTANCE}{name}: {news[name]}") for name in news if name not in olds),
        *(Change("changed", "", f"{ACCEPTANCE}{name}: {olds[name]} -> {news[name]}") for name in olds if news.get(name, olds[name]) != olds[name]),
    ]


def _lines(program: p.Program, thread: p.Thread) -> list[_Line]:
    """The thread's operations in the order of its text. One operation in several branches of the graph is one line."""
    words = Words(program)
    seen: dict[tuple[int, str], _Line] = {}
    order: list[int] = []
    todo, visited = [thread.entry], set()
    while todo:
        node_id = todo.pop()
        if node_id < 0 or node_id in visited:
            continue
        visited.add(node_id)
        order.append(node_id)
        node = thread.nodes[node_id]
        if isinstance(node, p.Do):
            todo.append(node.next)
        else:
            todo += [target for _, target in reversed(node.branches)]
    told: set[tuple[int, p.Operation | p.Question]] = set()
    for node_id in order:
        node = thread.nodes[node_id]
        if isinstance(node, p.Do) and isinstance(node.operation, (p.Drop, p.NewEvent)):
            continue  # bookkeeping of the tracer: the user wrote no such line
        what = node.operation if isinstance(node, p.Do) else node.question
        if (node.site, what) in told:
            continue
        told.add((node.site, what))
        text = words.node(node, thread)
        waits = isinstance(node, p.Do) and isinstance(node.operation, SYNCHRONISATIONS)
        waits = waits or (isinstance(node, p.Do) and isinstance(node.operation, p.Copy) and not node.operation.non_blocking)
        seen.setdefault((node.site, text), _Line(text, words.place(node.site), waits))
    return [line for _, line in sorted(seen.items(), key=lambda item: item[0][0])]


def _thread(name: str, old: list[_Line], new: list[_Line]) -> list[Change]:
    matcher = difflib.SequenceMatcher(None, [line.text for line in old], [line.text for line in new], autojunk=False)
    went: list[_Line] = []
    came: list[_Line] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            went += old[a:b]
            came += new[c:d]
    both = Counter(line.text for line in went) & Counter(line.text for line in came)
    found: list[Change] = []
    places: dict[str, list[str]] = {}
    left = Counter(both)
    for line in went:
        if left[line.text]:
            left[line.text] -= 1
            places.setdefault(line.text, []).append(line.place)
        else:
            found.append(Change("went", name, line.text, line.synchronisation, before=line.place))
    for line in came:
        if both[line.text]:
            both[line.text] -= 1
            origin = places[line.text].pop(0)
            found.append(Change("moved", name, line.text, line.synchronisation, origin, line.place))
        else:
            found.append(Change("came", name, line.text, line.synchronisation, after=line.place))
    return found
