"""Random designs over the whole language, as Python text: seeded, or drawn and shrunk by Hypothesis.

A design is a text that any user could have written, so that one which two engines disagree about can be printed, run
again and kept. Half of them are *soups* (few accesses, much synchronisation of every kind), half are *idioms* of real
engines (refilled buffers, hand-overs, blocks, rows), each as it should be or with one line left out or moved: so that
safe and unsafe ones are both common. What a text uses is counted in `RandomDesign.features`. A family of its own are ranks
that meet (collectives, send and receive, device flags); another adds the rest of the platform (callbacks, conditions, IPC,
ordered memory, collectors, graphs, several GPUs and processes).
"""

from __future__ import annotations

import collections
import linecache
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.model import program as p
from fencepost.model.language.build import program_of
from fencepost.model.language.errors import DesignWarning
from fencepost.model.operations import Context, lower
from fencepost.simulator.random_designs_choices import Choices, Seeded
from fencepost.simulator.random_designs_idioms import idiom
from fencepost.simulator.random_designs_meetings import meeting
from fencepost.simulator.random_designs_platform import whole
from fencepost.simulator.random_designs_soup import soup
from fencepost.simulator.random_designs_text import FEATURES, features_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

VERSION = 5
"""Of the seeds: a seed stands for the same text as long as this is the same number."""


class NoDesigns(ValueError):
    """A strategy or a range of seeds that produces nothing. The text says what was asked for and what stood against it."""


class RandomDesign(NamedTuple):
    """A design as text. `function` is always called `design` and takes nothing."""

    text: str
    features: tuple[str, ...]
    seed: int | None = None

    def program(self) -> p.Program:
        """Trace the text. Raises `ValueError` (`DesignError`) when the language refuses it, or when a copy means nothing."""
        program = trace(self.text)
        for thread in program.threads:
            context = Context(program, thread)
            for node in thread.nodes:
                if isinstance(node, p.Do):
                    lower(node.operation, context)
        return program


# ---------------------------------------------------------------- producing


FAMILIES = ("alone", "meetings", "platform")
"""What designs are about: host threads and their streams; ranks whose streams meet; ranks with the rest of the platform."""


def generate(seed: int, family: str = "alone") -> RandomDesign:
    """The design of one seed (the language may still refuse it: `stream` leaves those out)."""
    return _design(Choices(Seeded(seed)), seed, family)


def _design(choices: Choices, seed: int | None, family: str) -> RandomDesign:
    if family not in FAMILIES:
        raise NoDesigns(f"no family is called {family!r}; there are: {', '.join(FAMILIES)}")
    alone = family == "alone" and (soup if choices.chance(50) else idiom)
    text = (alone or {"meetings": meeting, "platform": whole}[family])(choices)
    what = {"alone": "random design", "meetings": "random meeting", "platform": "random platform"}[family]
    written = text.render(what if seed is None else f"{what} {seed}")
    return RandomDesign(written, features_of(written), seed)


def trace(text: str, name: str = "<random design>") -> p.Program:
    """The program of a design's text. Raises `DesignError` when the language refuses it."""
    lines = text.splitlines(keepends=True)
    linecache.cache[name] = (len(text), None, lines, name)
    namespace: dict[str, Any] = {"__name__": name}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DesignWarning)
            exec(compile(text, name, "exec"), namespace)
            return program_of(namespace["design"], {})
    finally:
        linecache.cache.pop(name, None)


def stream(
    first: int, count: int, *, needs: Iterable[str] = (), without: Iterable[str] = (), tries: int = 400,
    family: str = "alone",
) -> Iterator[tuple[RandomDesign, p.Program]]:  # fmt: skip
    """`count` designs with their programs, from seed `first` on; seeds that the language refuses are passed over.

    `needs` and `without` name features (`FEATURES`) that every design must or must not have. Raises `NoDesigns` when
    `tries` seeds in a row give none.
    """
    needed, barred = _known(needs), _known(without)
    seed, found, fruitless = first, 0, 0
    refused: collections.Counter[str] = collections.Counter()
    while found < count:
        design = generate(seed, family)
        seed += 1
        why = _unfit(design, needed, barred)
        if why is None:
            try:
                program = design.program()
            except ValueError as error:
                why = "it is refused: " + str(error).partition(": ")[2]
            else:
                found, fruitless = found + 1, 0
                yield design, program
                continue
        refused[why] += 1
        fruitless += 1
        if fruitless >= tries:
            raise NoDesigns(
                f"seeds {seed - fruitless} to {seed - 1} give no design ({refused.most_common(1)[0][0]}); "
                "ask for fewer features"
            )


def _known(features: Iterable[str]) -> frozenset[str]:
    wanted = frozenset(features)
    unknown = wanted - set(FEATURES)
    if unknown:
        raise NoDesigns(f"no feature is called {sorted(unknown)[0]!r}; there are: {', '.join(sorted(FEATURES))}")
    return wanted


def _unfit(design: RandomDesign, needed: frozenset[str], barred: frozenset[str]) -> str | None:
    missing, present = needed - set(design.features), barred & set(design.features)
    if missing:
        return f"without {sorted(missing)[0]!r}, which was asked for"
    if present:
        return f"with {sorted(present)[0]!r}, which was barred"
    return None


def designs(
    *, needs: Iterable[str] = (), without: Iterable[str] = (), family: str = "alone"
) -> SearchStrategy[RandomDesign]:
    """A Hypothesis strategy over designs that the language accepts; it shrinks towards fewer and simpler lines.

    `needs`, `without`: as for `stream`. Raises `NoDesigns` at once when the two contradict each other; a strategy that
    turns out to give nothing ends with Hypothesis's own `Unsatisfiable`.
    """
    from hypothesis import assume
    from hypothesis import strategies as st

    needed, barred = _known(needs), _known(without)
    if needed & barred:
        raise NoDesigns(f"{sorted(needed & barred)[0]!r} is asked for and barred: no design has both")

    class Drawn:
        def __init__(self, draw: Callable[[SearchStrategy[int]], int]) -> None:
            self._draw = draw

        def below(self, count: int) -> int:
            return self._draw(st.integers(0, count - 1)) if count > 1 else 0

    @st.composite
    def build(draw: Callable[[SearchStrategy[int]], int]) -> RandomDesign:
        design = _design(Choices(Drawn(draw)), None, family)
        assume(_unfit(design, needed, barred) is None)
        try:
            design.program()
        except ValueError:
            assume(False)
        return design

    return build()


# ---------------------------------------------------------------- making small


def smaller(text: str) -> Iterator[str]:
    """Texts with one line, or one block of lines, less; larger pieces first. Not all of them are designs."""
    lines = text.splitlines()
    pieces: list[tuple[int, int]] = []
    for at, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if not line.strip() or line.startswith(("import", "def ", '"""')) or line.strip().startswith("return d"):
            continue
        start = at
        if line.strip().startswith("@"):
            at += 1  # the decorated body goes with its decorator
        end = at + 1
        while end < len(lines) and lines[end].strip() and len(lines[end]) - len(lines[end].lstrip()) > indent:
            end += 1
        pieces.append((start, end))
    for start, end in sorted(pieces, key=lambda piece: piece[0] - piece[1]):
        yield _filled([*lines[:start], *lines[end:]])
    for start, end in pieces:
        head = lines[start].strip()
        if end - start > 1 and not head.startswith(("@", "def ")):
            inner = [line[4:] for line in lines[start + 1 : end]]
            yield _filled([*lines[:start], *inner, *lines[end:]])


def _filled(lines: list[str]) -> str:
    """`pass` where a block lost its last line; `else` without `if` goes."""
    result: list[str] = []
    for at, line in enumerate(lines):
        result.append(line)
        if line.rstrip().endswith(":"):
            indent = len(line) - len(line.lstrip())
            after = next((x for x in lines[at + 1 :] if x.strip()), "")
            if len(after) - len(after.lstrip()) <= indent:
                result.append(" " * (indent + 4) + "pass")
    return "\n".join(result) + "\n"


def minimise(text: str, still: Callable[[str], bool]) -> str:
    """Leave out lines as long as `still` holds. `still` gets texts that trace only."""
    shrunk = True
    while shrunk:
        shrunk = False
        for candidate in smaller(text):
            try:
                trace(candidate)
            except Exception:  # not a design any more: NameError, SyntaxError, DesignError
                continue
            if still(candidate):
                text, shrunk = candidate, True
                break
    return text


# ---------------------------------------------------------------- what there is


def distribution(designs: Iterable[RandomDesign]) -> dict[str, int]:
    """How many of the designs use each feature, most common first; features that none uses are there with 0."""
    count: collections.Counter[str] = collections.Counter(dict.fromkeys(FEATURES, 0))
    for design in designs:
        count.update(design.features)
    return dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))


__all__ = [
    "FAMILIES", "FEATURES", "VERSION", "NoDesigns", "RandomDesign", "designs", "distribution", "generate", "minimise", "smaller",
    "stream", "trace",
]  # fmt: skip
