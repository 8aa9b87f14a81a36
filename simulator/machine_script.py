"""Who decides in the machine: choosers, the script of a run's decisions, and the one string that replays a run.

Every decision has a default (0): the thread that moved last goes on, the first branch, the block that was freed last, no
stall. A `Script` holds the decisions of one run in the order in which they were asked for, so equal scripts are equal
runs, and a shorter script is a simpler run.
"""

from __future__ import annotations

import base64
import hashlib
import random
import zlib
from typing import Any, Protocol

import msgspec
from fencepost.model.program import Program
from fencepost.simulator.machine_state import FOREVER, Block, Engine, HostThread, Work

VERSION = 1
"""Of the machine: grows whenever an old replay string would give another run."""


class Script(msgspec.Struct, frozen=True, array_like=True):
    """All decisions of a run. What a list does not reach gets the default.

    `threads`: (which, how often) pairs; `answers`, `blocks`, `parts`, `engines`, `releases`: one number each;
    `stalls`: (work that is not stalled before it, delay in ticks or FOREVER, length in ticks).
    """

    threads: tuple[tuple[int, int], ...] = ()
    answers: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    stalls: tuple[tuple[int, int, int], ...] = ()
    parts: tuple[int, ...] = ()
    engines: tuple[int, ...] = ()
    releases: tuple[int, ...] = ()

    def trimmed(self) -> Script:
        """Without defaults at the ends: the same run."""
        threads = list(self.threads)
        while threads and threads[-1][0] == 0:
            threads.pop()
        return Script(
            tuple(threads), _trim(self.answers), _trim(self.blocks), self.stalls, _trim(self.parts), _trim(self.engines),
            _trim(self.releases),
        )  # fmt: skip


DEFAULTS = Script()
"""No decision: one thread after the other, and all work ends at once."""


def _trim(numbers: tuple[int, ...]) -> tuple[int, ...]:
    end = len(numbers)
    while end and numbers[end - 1] == 0:
        end -= 1
    return numbers[:end]


class Chooser(Protocol):
    """Decides what the platform and the design leave open. Each answer is an index into what it is offered.

    Asked only where there is more than one possibility, but `stall`, which is asked for every device item and host
    access: None, or (delay, length) in ticks, where a delay of FOREVER is "when nothing else can move".
    """

    def thread(self, candidates: list[HostThread]) -> int:
        """Which thread moves; the first is the one that moved last, when it can."""

    def answer(self, thread: HostThread, node: int, options: tuple[str, ...]) -> int:
        """How an open choice falls."""

    def block(self, thread: HostThread, node: int, options: list[Block | None]) -> int:
        """Which free block an allocation gets; None is new memory. The first is the allocator's own choice."""

    def token(self, thread: HostThread, node: int, options: list[int]) -> int:
        """Which free token of a pool a take gets."""

    def part(self, thread: HostThread, node: int) -> int:
        """Which part an unknown part (`fp.ANY`) is: 0 the whole, else one of the others."""

    def stall(self, work: Work) -> tuple[int, int] | None:
        """Whether and how long work is held back, and how long it takes."""

    def engine(self, engine: Engine) -> int:
        """Which of the waiting items an engine serves next."""

    def release(self, held: list[Work]) -> int:
        """Which held work starts when nothing else can move."""


class Follow:
    """Follows a script; defaults where it ends."""

    def __init__(self, script: Script) -> None:
        self._threads = iter(script.threads)
        self._which = self._left = 0
        self._answers, self._blocks = iter(script.answers), iter(script.blocks)
        self._stalls = iter(script.stalls)
        self._gap: int | None = None
        self._stall = (0, 0)
        self._parts, self._engines, self._releases = iter(script.parts), iter(script.engines), iter(script.releases)
        self._next_stall()

    def _next_stall(self) -> None:
        found = next(self._stalls, None)
        self._gap = None
        if found is not None:
            self._gap, self._stall = found[0], (found[1], found[2])

    def thread(self, candidates: list[HostThread]) -> int:
        """The script's, modulo the number of candidates."""
        while self._left == 0:
            found = next(self._threads, None)
            if found is None:
                self._which, self._left = 0, -1
            else:
                self._which, self._left = found
        if self._left > 0:
            self._left -= 1
        return self._which % len(candidates)

    def answer(self, thread: HostThread, node: int, options: tuple[str, ...]) -> int:
        """The script's."""
        return next(self._answers, 0) % len(options)

    def block(self, thread: HostThread, node: int, options: list[Block | None]) -> int:
        """The script's."""
        return next(self._blocks, 0) % len(options)

    def token(self, thread: HostThread, node: int, options: list[int]) -> int:
        """The script's."""
        return next(self._blocks, 0) % len(options)

    def part(self, thread: HostThread, node: int) -> int:
        """The script's."""
        return next(self._parts, 0)

    def stall(self, work: Work) -> tuple[int, int] | None:
        """The script's."""
        if self._gap is None:
            return None
        if self._gap:
            self._gap -= 1
            return None
        stall = self._stall
        self._next_stall()
        return stall

    def engine(self, engine: Engine) -> int:
        """The script's."""
        return next(self._engines, 0) % len(engine.ready)

    def release(self, held: list[Work]) -> int:
        """The script's."""
        return next(self._releases, 0) % len(held)


class Recorder:
    """Writes down what a run decided, as a script that replays it."""

    __slots__ = ("answers", "blocks", "engines", "gap", "parts", "releases", "stalls", "threads")

    def __init__(self) -> None:
        self.threads: list[list[int]] = []
        self.answers: list[int] = []
        self.blocks: list[int] = []
        self.stalls: list[list[int]] = []
        self.gap = 0
        self.parts: list[int] = []
        self.engines: list[int] = []
        self.releases: list[int] = []

    def thread(self, which: int) -> None:
        """Enter a thread's move."""
        if self.threads and self.threads[-1][0] == which:
            self.threads[-1][1] += 1
        else:
            self.threads.append([which, 1])

    def script(self) -> Script:
        """The script of the run so far."""
        return Script(
            tuple((a, b) for a, b in self.threads), tuple(self.answers), tuple(self.blocks),
            tuple((a, b, c) for a, b, c in self.stalls), tuple(self.parts), tuple(self.engines), tuple(self.releases),
        ).trimmed()  # fmt: skip


class Random:
    """Adversarial decisions from a seed: `wild` in 0..1 is how often work is stalled and threads change."""

    def __init__(self, seed: int | str, wild: float | None = None) -> None:
        self.random = rng = random.Random(seed)
        self.wild = rng.choice((0.05, 0.2, 0.5)) if wild is None else wild
        self.stay = rng.choice((0.0, 0.6, 0.9, 0.97))
        self.reuse = rng.choice((0.5, 0.9, 1.0))
        self.long = rng.choice((3, 20, 200))
        self.forever = rng.choice((0.1, 0.5, 1.0))

    def thread(self, candidates: list[HostThread]) -> int:
        """Mostly the one that moved last."""
        return 0 if self.random.random() < self.stay else int(self.random.random() * len(candidates))

    def answer(self, thread: HostThread, node: int, options: tuple[str, ...]) -> int:
        """Any."""
        return int(self.random.random() * len(options))

    def block(self, thread: HostThread, node: int, options: list[Block | None]) -> int:
        """Mostly a block that was used before."""
        if self.random.random() >= self.reuse:
            return len(options) - 1
        return 0 if self.random.random() < 0.5 else int(self.random.random() * len(options))

    def token(self, thread: HostThread, node: int, options: list[int]) -> int:
        """Any."""
        return int(self.random.random() * len(options))

    def part(self, thread: HostThread, node: int) -> int:
        """Any of three."""
        return int(self.random.random() * 3)

    def stall(self, work: Work) -> tuple[int, int] | None:
        """Now and then, briefly, long or until nothing else moves; sometimes in the middle."""
        rng = self.random
        if rng.random() >= self.wild:
            return None
        length = int(rng.random() * self.long) if rng.random() < 0.3 else 0
        if rng.random() < self.forever:
            return FOREVER, length
        return int(rng.random() * self.long), length

    def engine(self, engine: Engine) -> int:
        """Any."""
        return int(self.random.random() * len(engine.ready))

    def release(self, held: list[Work]) -> int:
        """Any."""
        return int(self.random.random() * len(held))


# ---------------------------------------------------------------- replay strings


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run depends on, beside the design: parameters, world, limits, timing, decisions."""

    parameters: dict[str, Any] = {}
    environment: str | None = None
    platform: str | None = None
    hardware: tuple[int, str, str] | None = None
    turns: int = 8
    limit: int = 20000
    timing: str | None = None
    seed: int = 0
    script: Script = Script()


class ReplayError(ValueError):
    """A replay string that cannot be used here. The message is one line: what is wrong and what to do."""


PREFIX = "fencepost-run"


def design_hash(program: Program) -> str:
    """Ten hexadecimal digits that depend on the design alone, not on where its text stands."""
    return hashlib.sha256(msgspec.json.encode(program.bare())).hexdigest()[:10]


def replay_string(program: Program, replay: Replay) -> str:
    """`fencepost-run:VERSION:DESIGN:DECISIONS`, all on one line and without blanks."""
    packed = base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(replay), 9)).decode().rstrip("=")
    return f"{PREFIX}:{VERSION}:{design_hash(program)}:{packed}"


def read_replay(text: str) -> tuple[str, Replay]:
    """The design's hash and the run of a replay string.

    Raises `ReplayError` when it is none, was damaged, or belongs to another version of the machine.
    """
    parts = text.strip().split(":")
    if len(parts) != 4 or parts[0] != PREFIX:
        raise ReplayError(f"not a replay string: it starts with {PREFIX}:{VERSION}: and `fencepost simulate` prints it")
    if parts[1] != str(VERSION):
        raise ReplayError(
            f"replay string of version {parts[1]}, this fencepost replays version {VERSION}; search again without --replay"
        )
    try:
        packed = zlib.decompress(base64.urlsafe_b64decode(parts[3] + "=" * (-len(parts[3]) % 4)))
        said = msgspec.json.decode(packed, type=Replay)
        _sound(said)
        return parts[2], said
    except (ValueError, zlib.error, msgspec.DecodeError):
        raise ReplayError("damaged replay string; copy the whole line that `fencepost simulate` printed") from None


def _sound(said: Replay) -> None:
    """Raises `ValueError` for numbers that no run has."""
    script = said.script
    counts = [which for which, _ in script.threads] + [gap for gap, _, _ in script.stalls]
    counts += [length for _, _, length in script.stalls] + [delay - FOREVER for _, delay, _ in script.stalls]
    counts += [times - 1 for _, times in script.threads] + [said.turns - 1, said.limit - 1]
    for numbers in (script.answers, script.blocks, script.parts, script.engines, script.releases):
        counts += numbers
    if min(counts) < 0:
        raise ValueError("a negative number")


def check_design(program: Program, found: str) -> None:
    """Raises `ReplayError` when a replay string's hash is not this design's."""
    if found != design_hash(program):
        raise ReplayError(
            f"replay string of another design (hash {found}, this one has {design_hash(program)}): the text or a parameter "
            "changed since; search again without --replay"
        )
