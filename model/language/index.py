"""Indices of rings and parts: the turn, a cursor's positions, handles of a pool."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Union

from fencepost.model import program as p
from fencepost.model.language.errors import fail
from fencepost.model.language.tracer import Life, Recording

if TYPE_CHECKING:
    from fencepost.model.language.design import Design
    from fencepost.model.language.hosts import Cursor

MAX_BELOW = 64
"""Greatest c that `n < c` may compare with: each makes the explorer tell c turns apart."""

ONLY = "the turn indexes rings (ring[n], ring[n - 1]) and is compared with a constant (n == 0, n < c), nothing else"


class Index(abc.ABC):
    """A position: the turn, what `cursor.advance()` or `last()` gave, or an index out of a queue or cell."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, design: Design, offset: int = 0) -> None:
        self._design, self._offset = design, offset

    def __eq__(self, other: object) -> bool:
        fail("an index cannot be compared; write choices as d.choose, or compare the turn with a constant")

    def __add__(self, other: int) -> Index:
        if not isinstance(other, int) or isinstance(other, bool):
            fail(f"an index plus {other!r}; only constants can be added")
        return self._moved(other)

    def __sub__(self, other: int) -> Index:
        if not isinstance(other, int) or isinstance(other, bool):
            fail(f"an index minus {other!r}; only constants can be subtracted")
        return self._moved(-other)

    __radd__ = __add__

    def __mod__(self, other: object) -> Any:
        fail("% of an index; a ring of that depth does it: ring[n] is slot n mod depth")

    def _arithmetic(self, *_: object) -> Any:
        fail("an index is moved by a constant (n + 1, n - 1), nothing else; take other strides with a d.cursor")

    __mul__ = __rmul__ = __floordiv__ = __truediv__ = __rsub__ = __neg__ = __divmod__ = __pow__ = _arithmetic

    def __lt__(self, other: Any) -> bool:
        fail("an index cannot be compared; write choices as d.choose, or compare the turn with a constant")

    __le__ = __gt__ = __ge__ = __lt__

    def __repr__(self) -> str:
        return f"<index {self._offset:+d}>" if self._offset else "<index>"

    def __str__(self) -> str:
        fail("an index is no text; names and messages cannot depend on it")

    def __format__(self, how: str) -> str:
        return str(self)

    def __bool__(self) -> bool:
        fail("an index has no truth value; compare the turn with a constant (n == 0, n < c)")

    def __index__(self) -> int:
        fail("an index is no number; make the container a ring (depth=) and write ring[n]")

    __int__ = __index__

    @abc.abstractmethod
    def _moved(self, by: int) -> Index:
        """The index `by` slots further on."""

    @abc.abstractmethod
    def _resolve(self, recording: Recording) -> p.Index:
        """The index as data, at its use."""

    def _depth(self) -> Any:
        """The depth of the rings that it indexes, the name of what decides it, or None when any will do."""
        return None


class Turn(Index):
    """The turn of the thread that runs the body, 0-based; the only argument that a body may take."""

    __hash__ = None

    def __init__(self, design: Design, offset: int = 0) -> None:
        super().__init__(design, offset)

    def __repr__(self) -> str:
        return f"<turn {self._offset:+d}>" if self._offset else "<turn>"

    def _moved(self, by: int) -> Turn:
        return Turn(self._design, self._offset + by)

    def _resolve(self, recording: Recording) -> p.Index:
        return p.Turn(self._offset)

    def _below(self, limit: object) -> bool:
        if not isinstance(limit, int) or isinstance(limit, bool):
            fail(f"the turn is compared with {limit!r}; {ONLY}")
        value = limit - self._offset
        if value <= 0:
            return False
        if value > MAX_BELOW:
            fail(f"the turn is compared with {limit}; the greatest constant is {MAX_BELOW}")
        recording = self._design._running()
        known = recording.below
        for asked, answer in known.items():
            if (answer and asked <= value) or (not answer and asked >= value):
                return answer
        known[value] = recording.yes(p.TurnBelow(value))
        return known[value]

    def __lt__(self, other: int) -> bool:
        return self._below(other)

    def __ge__(self, other: int) -> bool:
        return not self._below(other)

    def __le__(self, other: int) -> bool:
        return self._below(other + 1 if isinstance(other, int) else other)

    def __gt__(self, other: int) -> bool:
        return not self._below(other + 1 if isinstance(other, int) else other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int) or isinstance(other, bool) or other - self._offset != 0:
            fail(f"the turn == {other!r}; {ONLY}")
        return self._below(other + 1)

    def __ne__(self, other: object) -> bool:
        return not self == other


class Position(Index):
    """An index that a local of the turn holds: from `advance()`, a queue or a cell."""

    __hash__ = None

    def __init__(self, design: Design, life: Life, depth: Any, offset: int = 0) -> None:
        super().__init__(design, offset)
        self._life, self._of = life, depth

    def _moved(self, by: int) -> Position:
        return Position(self._design, self._life, self._of, self._offset + by)

    def _resolve(self, recording: Recording) -> p.Index:
        return p.Var(self._life.check(recording), self._offset)

    def _depth(self) -> Any:
        return self._of


class LastPosition(Index):
    """Where a cursor stood when `last()` was called: later advances of the same turn are subtracted at the use."""

    __hash__ = None

    def __init__(self, cursor: Cursor, recording: Recording, offset: int = 0) -> None:
        super().__init__(cursor._design, offset)
        self._cursor, self._recording = cursor, recording
        self._advances = recording.advances.get(cursor._id, 0)

    def _moved(self, by: int) -> LastPosition:
        moved = LastPosition(self._cursor, self._recording, self._offset + by)
        moved._advances = self._advances
        return moved

    def _resolve(self, recording: Recording) -> p.Index:
        if self._recording is not recording:
            fail(f"the position of cursor {self._cursor._name!r} is from an earlier turn; call last() in each turn")
        since = recording.advances.get(self._cursor._id, 0) - self._advances
        if (self._cursor._id, self._advances) in recording.uncertain:
            fail(
                f"cursor {self._cursor._name!r} may have advanced in a maybe block since this last(); call last() again, "
                "or ask with d.choose"
            )
        if since:
            self._cursor._single = True
        return p.Last(self._cursor._id, self._offset - since)

    def _depth(self) -> Any:
        return self._cursor._depth


class Handle:
    """A token of a pool of rows: it chooses a part (`buf[row]`), or a slot of a ring as deep as the pool is large."""

    def __init__(self, design: Design, life: Life, pool: int | None, size: Any) -> None:
        self._design, self._life, self._pool, self._size = design, life, pool, size

    def __repr__(self) -> str:
        return f"<handle {self._life.name!r}>"

    def __bool__(self) -> bool:
        fail(f"{self!r} has no truth value; compare it with None: `is not None`")

    def __eq__(self, other: object) -> bool:
        if other is not None and other is not self:
            fail(f"{self!r} cannot be compared with {other!r}; which token it is is not known: ask with d.choose")
        return self is other

    def __hash__(self) -> int:
        fail(f"{self!r} may be the same as another; it is no key and no element of a set")

    def _resolve(self, recording: Recording) -> p.Index:
        return p.Var(self._life.check(recording))


class _Any:
    """An unknown part."""

    def __repr__(self) -> str:
        return "fp.ANY"


ANY = _Any()
"""`buf[fp.ANY]`: a part that may overlap any other part of the buffer."""

Key = Union[int, str, slice, Index, Handle, _Any]
"""What may stand in brackets."""


class PartKey:
    """A part as it was written; `resolve` turns it into data at the use."""

    def __init__(self, design: Design, key: Key, name: str) -> None:
        self._key = key
        if isinstance(key, slice):
            ok = isinstance(key.start, (int, type(None))) and isinstance(key.stop, int) and key.step is None
            if not ok or not 0 <= (key.start or 0) < key.stop:
                fail(f"{name}[{key.start}:{key.stop}] is no range of elements; write {name}[start:stop]")
        elif isinstance(key, (Index, Handle)):
            design._own(key)
        elif isinstance(key, bool) or not isinstance(key, (int, str, _Any)):
            fail(f"{name}[{key!r}]: a part is a name, a range, an index, a pool handle or fp.ANY")
        elif isinstance(key, int) and key < 0:
            fail(f"{name}[{key}]: element numbers are not negative")

    def resolve(self, recording: Recording) -> p.Part:
        """The part as data."""
        key = self._key
        if isinstance(key, str):
            return p.Named(key)
        if isinstance(key, slice):
            return p.Span(key.start or 0, key.stop)
        if isinstance(key, (Index, Handle)):
            return p.At(key._resolve(recording))
        if isinstance(key, int):
            return p.Span(key, key + 1)
        return p.Anything()
