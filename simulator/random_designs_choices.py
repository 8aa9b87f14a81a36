"""Where a random design's choices come from: a seeded generator, or Hypothesis."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Source(Protocol):
    """Where choices come from: 0 is the simplest one, so that a shrinker knows which way to go."""

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""


class Seeded:
    """Choices of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        return self._random.randrange(count)


class Choices:
    """What the generator draws, out of a source."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def one(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""
        return options[self._source.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in so many of 100 cases; False is simpler."""
        return self._source.below(100) >= 100 - percent

    def weighted(self, options: Sequence[tuple[int, T]]) -> T:
        """One of the options by weight."""
        at = self._source.below(sum(weight for weight, _ in options))
        for weight, option in options:
            if at < weight:
                return option
            at -= weight
        raise AssertionError
