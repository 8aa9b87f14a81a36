"""From the runs of a body, one for each combination of answers, to the thread's graph of nodes.

Runs are lists of interned entries in the order in which the tracer explored the answers. The runs become hash-consed
terms, built from the end: equal suffixes are one term. Terms become nodes; a drain loop becomes a cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Union

from fencepost.model import program as p
from fencepost.model.program import Data


class Did(Data, frozen=True):
    """An operation was run."""

    operation: p.Operation
    site: int
    implied: bool = False
    """The call does it on the side."""


class Asked(Data, frozen=True):
    """A question got the answer `answer`, one of `options`."""

    question: p.Question
    options: tuple[str, ...]
    answer: str
    site: int


class MaybeBegan(Data, frozen=True):
    """The block of a `maybe` begins; the tracer always runs it."""

    question: p.Question
    site: int


class MaybeEnded(Data, frozen=True):
    """The block of the innermost `maybe` ended."""


class Drained(Data, frozen=True):
    """The head of a drain loop at nesting `depth`, for the `visit`-th time in this run; `more`: an item is there."""

    queue: int
    depth: int
    visit: int
    more: bool
    site: int


class Cut(Data, frozen=True):
    """The run was cut at the head of the drain loop at nesting `depth`: its third visit is like the others."""

    depth: int
    site: int


Entry = Union[Did, Asked, MaybeBegan, MaybeEnded, Drained, Cut]

_END = 0
"""The term of a finished turn."""
_NONE: frozenset[int] = frozenset()


class _Term:
    """One hash-consed term: `head` is the entry's content, `below` the terms that follow by answer."""

    __slots__ = ("below", "free", "head")

    def __init__(
        self, head: tuple[object, ...], below: tuple[tuple[str, int], ...], free: frozenset[int]
    ) -> None:
        self.head, self.below, self.free = head, below, free


class _Loop:
    """A drain loop while its first iteration is built: what the second visits of its head looked like."""

    def __init__(self) -> None:
        self.again: list[tuple[int, int, int]] = []


class Merger:
    """Builds one thread's nodes. `impure(site, other)` and `depends(site, what)` raise the tracer's errors."""

    def __init__(
        self,
        runs: list[list[int]],
        entries: list[Entry],
        impure: Callable[[int, int], NoReturn],
        depends: Callable[[int, str], NoReturn],
    ) -> None:
        self.runs, self.entries, self.impure, self.depends = runs, entries, impure, depends
        self.terms: list[_Term] = [_Term(("end",), (), _NONE)]
        self.known: dict[tuple[object, ...], int] = {}
        self._operations = [type(entry) is Did for entry in entries]
        self.implied: list[int] = []
        """The nodes of what calls do on the side."""

    def _term(self, head: tuple[object, ...], *below: tuple[str, int], binds: int | None = None) -> int:
        key = (head, below)
        known = self.known.get(key)
        if known is None:
            free = _NONE.union(*(self.terms[t].free for _, t in below))
            if head[0] == "back":
                free = frozenset([head[1]])  # type: ignore[list-item]
            if binds is not None:
                # What follows the loop (below[1]) is outside of it; a back in it belongs to an outer loop.
                free = (self.terms[below[0][1]].free - {binds}) | self.terms[below[1][1]].free
            known = self.known[key] = len(self.terms)
            self.terms.append(_Term(head, below, free))
        return known

    def _did(self, number: int, follows: int) -> int:
        """The term of an operation; equal ones have one number, which thus stands for all that they are."""
        key = (number, follows)
        known = self.known.get(key)
        if known is None:
            did = self.entries[number]
            assert isinstance(did, Did)
            known = self.known[key] = len(self.terms)
            self.terms.append(_Term(("do", did.operation, did.site, did.implied), (("", follows),), self.terms[follows].free))
        return known

    def _site(self, run: int, position: int) -> int:
        if position >= len(self.runs[run]):
            return -1
        return getattr(self.entries[self.runs[run][position]], "site", -1)

    def build(self) -> int:
        """Merge all runs; the root term."""
        return self._merge(0, len(self.runs), 0, (), {})

    def _merge(self, low: int, high: int, start: int, blocks: tuple[list[int], ...], loops: dict[int, _Loop]) -> int:
        """The term of the runs low..high from position `start` on, up to which they are equal.

        `blocks` collects for each open `maybe` the terms that follow it; `loops` has the drain loops that are open.
        """
        first, operations = self.runs[low], self._operations
        position, length = start, len(first)
        while position < length and operations[first[position]]:
            position += 1
        same = first[start:position]
        for run in range(low + 1, high):
            if self.runs[run][start:position] != same:
                end = next(i for i in range(start, position + 1) if self.runs[run][i : i + 1] != first[i : i + 1])
                self.impure(self._site(low, end), self._site(run, end))
        if position == length:
            for run in range(low + 1, high):
                if len(self.runs[run]) != position:
                    self.impure(self._site(low, position), self._site(run, position))
            term = _END
        else:
            term = self._branch(low, high, position, blocks, loops)
        for number in reversed(same):
            term = self._did(number, term)
        return term

    def _groups(self, low: int, high: int, position: int) -> list[tuple[Entry, int, int]]:
        """Runs low..high by their entry at `position`, in the order of the answers."""
        groups: list[tuple[Entry, int, int]] = []
        begin = low
        for run in range(low, high + 1):
            at = self.runs[run][position : position + 1] if run < high else None
            if at != self.runs[begin][position : position + 1]:
                groups.append((self.entries[self.runs[begin][position]], begin, run))
                begin = run
                if at == []:
                    self.impure(self._site(low, position), -1)
        return groups

    def _branch(self, low: int, high: int, position: int, blocks: tuple[list[int], ...], loops: dict[int, _Loop]) -> int:
        groups = self._groups(low, high, position)
        entry = groups[0][0]
        kinds = {_question(other) for other, _, _ in groups}
        if len(kinds) != 1:
            self.impure(self._site(low, position), self._site(groups[-1][1], position))
        if isinstance(entry, Asked):
            below = []
            for other, begin, end in groups:
                assert isinstance(other, Asked)
                below.append((other.answer, self._merge(begin, end, position + 1, blocks, loops)))
            if [answer for answer, _ in below] != list(entry.options):
                self.impure(entry.site, entry.site)
            return self._term(("ask", entry.question, entry.site), *below)
        if isinstance(entry, MaybeBegan):
            after: list[int] = []
            inside = self._merge(low, high, position + 1, (*blocks, after), loops)
            if len(set(after)) != 1:
                self.depends(entry.site, f"the block of maybe {getattr(entry.question, 'name', '')!r}")
            return self._term(("ask", entry.question, entry.site), ("yes", inside), ("no", after[0]))
        if isinstance(entry, MaybeEnded):
            follows = self._merge(low, high, position + 1, blocks[:-1], loops)
            blocks[-1].append(follows)
            return follows
        if isinstance(entry, Cut):
            return self._term(("back", entry.depth))
        assert isinstance(entry, Drained)
        return self._drain(entry, groups, position, blocks, loops)

    def _drain(
        self, entry: Drained, groups: list[tuple[Entry, int, int]], position: int, blocks: tuple[list[int], ...],
        loops: dict[int, _Loop],
    ) -> int:  # fmt: skip
        """A head of a drain loop. The first visit makes the cycle; the second must look the same and is the way back."""
        if [other.more for other, _, _ in groups if isinstance(other, Drained)] != [True, False]:
            self.impure(entry.site, entry.site)
        (_, begin, end), (_, begin_after, end_after) = groups
        inner = _Loop()
        body = self._merge(begin, end, position + 1, blocks, {**loops, entry.depth: inner} if entry.visit == 0 else loops)
        after = self._merge(begin_after, end_after, position + 1, blocks, loops)
        if entry.visit == 1:
            loops[entry.depth].again.append((body, after, entry.site))
            return self._term(("back", entry.depth))
        for body_again, after_again, site in inner.again:
            if body_again != body or after_again != after:
                self.depends(site, "an iteration of this drain loop")
        question = p.QueueHolds(entry.queue, 1)
        return self._term(
            ("loop", question, entry.site, entry.depth), ("yes", body), ("no", after), binds=entry.depth
        )

    def nodes(self, root: int) -> tuple[tuple[p.Node, ...], int]:
        """The flat table and its entry. A term that goes back to a loop is copied for each loop that it goes back to."""
        table: list[p.Node | None] = []
        ids: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        waiting: list[tuple[int, int, dict[int, int]]] = []

        def number(term: int, heads: dict[int, int]) -> int:
            if term == _END:
                return p.END
            what = self.terms[term]
            if what.head[0] == "back":
                depth = what.head[1]
                assert isinstance(depth, int)
                return heads[depth]
            key = (term, tuple(sorted((d, heads[d]) for d in what.free)) if what.free else ())
            known = ids.get(key)
            if known is None:
                known = ids[key] = len(table)
                table.append(None)
                waiting.append((known, term, heads))
            return known

        entry = number(root, {})
        while waiting:
            place, term, heads = waiting.pop()
            what = self.terms[term]
            if what.head[0] == "do":
                _, operation, at, implied = what.head
                table[place] = p.Do(operation, number(what.below[0][1], heads), at)  # type: ignore[arg-type]
                if implied:
                    self.implied.append(place)
                continue
            kind, content, site = what.head[:3]
            assert isinstance(site, int)
            inside = heads
            if kind == "loop":
                depth = what.head[3]
                assert isinstance(depth, int)
                inside = {**heads, depth: place}
            branches = []
            for index, (answer, child) in enumerate(what.below):
                branches.append((answer, number(child, inside if index == 0 else heads)))
            table[place] = p.Ask(content, tuple(branches), site)  # type: ignore[arg-type]
        done = tuple(node for node in table if node is not None)
        assert len(done) == len(table)
        return done, entry


def _question(entry: Entry) -> object:
    """The entry without its answer: what all runs that came here must share."""
    if isinstance(entry, Asked):
        return (entry.question, entry.options, entry.site)
    if isinstance(entry, Drained):
        return (entry.queue, entry.depth, entry.visit, entry.site)
    return entry
