"""Runs, hazards and answers: what engines give back and what reports, replay and certificates read."""

from __future__ import annotations

from typing import Any

import msgspec
from fencepost.model.program import Data, Place

PROVED = "proved"
BOUNDED = "bounded"
REFUTED = "refuted"
UNKNOWN = "unknown"
MASKED = "masked"
RUNS = "runs, though it is declared never to run"
"""What a note says of an operation that `never=` names, and that a proof reaches; such an answer is not as declared."""
VERDICTS = (PROVED, BOUNDED, REFUTED, UNKNOWN, MASKED)


class Step(Data, frozen=True):
    """One host step of a run: `thread` executes node `node`; `answer` is the branch taken when it is a question.

    `block` names, for an allocation or a pool take, the block that it gets: blocks with equal numbers share bytes.
    None is a block that nothing else in the run shares. `stream` (object, slot) makes it a step of the device: the item
    at the head of that stream, which `thread` enqueued with `node`, runs now. Only items whose order can matter have
    such steps (model/operations/meetings.py, `open_channels`); all others run as soon as they can.
    """

    thread: int
    node: int
    answer: str | None = None
    block: int | None = None
    stream: tuple[int, int] | None = None


class Run(Data, frozen=True):
    """A finite run of the whole design: host steps in order. `late` indexes the steps whose device work is held back."""

    steps: tuple[Step, ...]
    late: tuple[int, ...] = ()


class AccessInfo(Data, frozen=True):
    """One of a hazard's two accesses. `step` is the thread's turn (0-based); `agent` a thread's or stream's name."""

    index: int
    thread: str
    agent: str
    on_device: bool
    mode: str
    operation: str
    step: int
    places: tuple[Place, ...] = ()
    harm: str = "value"
    tenant: str | None = None
    """For a caching-allocator block: the name of the tensor that owned the bytes at this access."""


class Hazard(Data, frozen=True):
    """`kind` "WAR" | "RAW" | "WAW" | "UNDEFINED"; `object` the memory's name (first owner for a recycled block)."""

    kind: str
    object: str
    first: AccessInfo | None
    second: AccessInfo
    value_changing: bool | None = None
    """None: neither shown nor excluded."""
    harm: str = "value"
    new_owner: str | None = None
    held_back: bool = False
    """`second` is by an earlier owner of the block than `first`, and surely comes after it: it was held back on the device."""

    @property
    def name(self) -> str:
        """Kind and object, as variants and `accept` write it: "WAR seq_lens"."""
        return f"{self.kind} {self.object}"


class Protection(Data, frozen=True):
    """What orders the conflicting accesses of one reused object, for a proof's report."""

    object: str
    by: tuple[str, ...]
    margin: int | None = None


class Certificate(Data, frozen=True):
    """Hash over the reachable sets, their size, and whether the separate checker (proofs/explore/certify.py) accepted them."""

    hash: str
    states: int
    checked: bool


class Answer(Data, frozen=True):
    """The answer to one question about one design.

    `expected` is the declared verdict, None when none was declared; `matches` whether verdict, hazard and hang are the
    declared ones. `notes`, `assumptions`, `lints` are sentences. `seconds` is wall time.
    """

    design: str
    verdict: str
    variant: str | None = None
    parameters: dict[str, Any] = {}
    expected: str | None = None
    expected_hazard: str | None = None
    matches: bool | None = None
    bound: int | None = None
    hazards: tuple[Hazard, ...] = ()
    accepted: tuple[str, ...] = ()
    hangs: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()
    """Over-waits, starvation and livelock: reported apart, because every single wait in them can end."""
    run: Run | None = None
    missing_edge: str | None = None
    """For a refutation: what its run lacks, in one sentence."""
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    lints: tuple[str, ...] = ()
    protections: tuple[Protection, ...] = ()
    fixes: tuple[str, ...] = ()
    masked_by: tuple[str, ...] = ()
    environment: str | None = None
    platform: str | None = None
    engine: str = "explore"
    certificate: Certificate | None = None
    reason: str | None = None
    """Why the answer is unknown, in one sentence."""
    seconds: float = 0.0

    @property
    def stops(self) -> tuple[str, ...]:
        """Hangs and livelocks: what a design that is fine has none of."""
        return (*self.hangs, *(one for one in self.progress if one.startswith("livelock ")))


def answers_to_json(answers: list[Answer]) -> bytes:
    """The documented output of `check --format json`: an object with `fencepost_answers` (version) and `answers`."""
    return msgspec.json.format(
        msgspec.json.encode({"fencepost_answers": 1, "answers": [_plain(a) for a in answers]}), indent=2
    )


def _plain(answer: Answer) -> dict[str, Any]:
    return dict(msgspec.to_builtins(answer))
