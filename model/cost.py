"""What a step costs: cycles of operations, the time per step, break-even conditions: data that engines and reports exchange."""

from __future__ import annotations

from fencepost.model.program import Data


class Timed(Data, frozen=True):
    """An operation that takes time. `name` is unique in the design; `seconds` None where no duration is known."""

    name: str
    agent: str
    seconds: float | None = None
    at: tuple[int, int] = (-1, -1)
    """Thread and node of the program."""


class Cycle(Data, frozen=True):
    """Operations that follow one another in a circle which comes round once every `steps` steps.

    `operations` are names of `Timed`, in order; `waits` the host and stream waits that the circle passes through.
    `ratio` is the time per step that it forces, in seconds.
    """

    operations: tuple[str, ...]
    steps: int
    waits: tuple[str, ...] = ()
    ratio: float | None = None


class WaitCost(Data, frozen=True):
    """One wait: `free_while` are conditions that must all hold for it to cost nothing (none: it is always free);
    `otherwise` what each of them adds where it does not hold.

    `without` is the time per step without it, in seconds, where durations are known; `cost` the difference.
    """

    wait: str
    place: str
    free_while: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    without: float | None = None
    cost: float | None = None
    at: tuple[int, int] = (-1, -1)
    """Thread and node of the program."""


class Cost(Data, frozen=True):
    """The cost of one step under fixed choices (`strategy`, "" where nothing is chosen). Times in seconds.

    `cycles` are those that decide under some durations, the critical one first where figures are known; `threads` the
    predicted time per turn of each thread; `loads` the time per step that each kind of engine is busy: when one of a
    kind serves all, no step is shorter. `zero` names operations without a duration that were counted as none.
    """

    design: str
    strategy: str
    operations: tuple[Timed, ...]
    cycles: tuple[Cycle, ...]
    step: float | None = None
    threads: tuple[tuple[str, float], ...] = ()
    loads: tuple[tuple[str, float], ...] = ()
    waits: tuple[WaitCost, ...] = ()
    zero: tuple[str, ...] = ()
    answers: tuple[tuple[str, str, str], ...] = ()
    """(thread or "", question, answer) of each choice."""
    notes: tuple[str, ...] = ()


class Measured(Data, frozen=True):
    """What the machine did: seconds per turn of a thread, exact where its state repeated every `period` turns."""

    thread: str
    seconds: float
    period: int | None
    turns: int
