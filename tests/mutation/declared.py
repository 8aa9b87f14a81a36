"""How a small design is entered with its answer: verdict, hazards by name, platform and environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import fencepost as fp
from fencepost.model import program as p


class Declared(NamedTuple):
    """A design and its answer."""

    function: Callable[[], fp.Design | p.Program]
    verdict: str
    hazards: tuple[str, ...] = ()
    environment: str | None = None
    platform: str | None = None
    strict: bool = False
    order: tuple[str, ...] = ()
    """Judge one run only: the threads in the order in which they move, a step each."""
    held: bool = False
    """A hazard that no machine shows: the two accesses always come in one order, and no edge says so."""

    @property
    def answer(self) -> str:
        """Verdict, and the names of all hazards."""
        if self.order and not self.verdict:
            return f"in this run: {', '.join(sorted(self.hazards)) or 'ordered'}"
        return f"{self.verdict}: {', '.join(sorted(self.hazards))}" if self.hazards else self.verdict


DESIGNS: dict[str, Declared] = {}


"""By name of the function, and of the world where a design is decided in several."""


def declared(
    verdict: str, *hazards: str, environment: str | None = None, platform: str | None = None, strict: bool = False,
    held: bool = False,
) -> Callable[[Callable[[], fp.Design | p.Program]], Callable[[], fp.Design | p.Program]]:  # fmt: skip
    """Enter a design. Every hazard is named: another one, or one more, is another answer."""

    def enter(function: Callable[[], fp.Design | p.Program]) -> Callable[[], fp.Design | p.Program]:
        world = [w for w in (platform, environment, "strict" if strict else None) if w]
        name = " ".join([function.__name__, *world])
        DESIGNS[name] = Declared(function, verdict, hazards, environment, platform, strict, held=held)
        return function

    return enter


def in_the_run(order: str, *hazards: str) -> Callable[[Callable[[], fp.Design]], Callable[[], fp.Design]]:
    """Enter a design of which one run is judged. `order`: initials of the threads, one for each step.

    For edges that no verdict shows: the two calls could come in the other order too, and there they are a hazard.
    """

    def enter(function: Callable[[], fp.Design]) -> Callable[[], fp.Design]:
        DESIGNS[function.__name__] = Declared(function, "", hazards, order=tuple(order))
        return function

    return enter
