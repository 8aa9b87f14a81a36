"""What is known to be complete: a query of it can only say yes (theory section 7: both ways unless its record is known complete).

The work that an event captured, or that stands in a stream, includes other such work: whoever waited for the one has waited
for the other. Kept is which includes which, of what is not known to be complete yet.
"""

from __future__ import annotations

from collections.abc import Iterable

Order = tuple[tuple[int, tuple[int, ...]], ...]
"""(point, the points whose work it includes), of points that are not known complete. A point is an event's number, or -1 - k for stream k."""


class Knowledge:
    """An order that is being changed."""

    def __init__(self, order: Order) -> None:
        self.below: dict[int, set[int]] = {point: set(row) for point, row in order}

    def copy(self) -> Knowledge:
        """One that can be changed by itself."""
        made = Knowledge(())
        made.below = {point: set(row) for point, row in self.below.items()}
        return made

    def unsure(self, point: int) -> bool:
        """Whether the point's work may be there still."""
        return point in self.below

    def enqueued(self, stream: int) -> None:
        """Work has come to a stream: whoever waited for what stood there has not waited for it."""
        tail = -1 - stream
        for row in self.below.values():
            row.discard(tail)
        self.below.setdefault(tail, set())

    def recorded(self, event: int, stream: int) -> bool:
        """The event stands for what stands in the stream now; whether that is known complete."""
        tail = -1 - stream
        self.below.pop(event, None)
        for row in self.below.values():
            row.discard(event)
        if tail not in self.below:
            return True
        for row in self.below.values():
            if tail in row:
                row.add(event)
        self.below[event] = {*self.below[tail], tail}
        self.below[tail].add(event)
        return False

    def joined(self, stream: int, point: int) -> None:
        """What comes to the stream from now on comes after the point's work."""
        tail = -1 - stream
        if point not in self.below or point == tail or point in self.below.get(tail, ()):
            return
        known = tail not in self.below
        for other, row in self.below.items():
            if other == tail:
                continue
            if (known or tail in row) and (other == point or point in row):
                row.add(tail)
            else:
                row.discard(tail)
        self.below[tail] = {*self.below.get(tail, ()), point, *self.below[point]} - {tail}

    def waited(self, points: Iterable[int]) -> set[int]:
        """The points' work is complete; the events that are known complete with it."""
        found: set[int] = set()
        for point in points:
            if point in self.below:
                found |= {point, *self.below[point]}
        for point in found:
            self.below.pop(point, None)
        for row in self.below.values():
            row -= found
        return {point for point in found if point >= 0}

    def order(self, named: dict[int, int], fixed: int) -> Order:
        """The order with events made in bodies under new numbers; those that have none are left out."""
        if not self.below:
            return ()
        if max(self.below) < fixed and all(not row or max(row) < fixed for row in self.below.values()):
            return tuple(sorted([(point, tuple(sorted(row))) for point, row in self.below.items()]))

        def new(point: int) -> int | None:
            return point if point < fixed else named.get(point)

        result = []
        for point, row in self.below.items():
            name = new(point)
            if name is not None:
                result.append((name, tuple(sorted(n for n in map(new, row) if n is not None))))
        return tuple(sorted(result))
