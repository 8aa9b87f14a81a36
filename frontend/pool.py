"""Independent questions in several processes: a `map` that starts workers only when there is enough to do."""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from fencepost.check import COLLECT_FROM, _end_workers, _ignore_interrupts

T = TypeVar("T")
R = TypeVar("R")

ALONE_SECONDS = 0.4
"""Seconds of work from which worker processes pay for themselves."""


class Pool:
    """`with Pool(jobs) as pool: pool.map(function, items)`; `jobs` None is the number of processors."""

    def __init__(self, jobs: int | None = None, begin: Callable[[], None] | None = None) -> None:
        """`begin` is called first in each worker."""
        self._begin = begin
        self.jobs = jobs if jobs is not None else os.cpu_count() or 1
        self._executor: Any = None
        self._worked = 0.0

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            if kind is not None:
                _end_workers()
            self._executor.shutdown(wait=True, cancel_futures=True)

    def map(self, function: Callable[[T], R], items: Sequence[T], at_once: bool = False) -> Iterator[R]:
        """The results in the order of the items. The function and the items must be picklable.

        `at_once`: there is enough to do, workers begin with the first item, and before a result is asked for.
        """
        left = list(items)
        if at_once:
            self.expect()
            if self.jobs > 1 and len(left) > 1:
                return self._workers().map(functools.partial(_collecting, function), left)  # type: ignore[no-any-return]
        return self._gradually(function, left)

    def _gradually(self, function: Callable[[T], R], left: list[T]) -> Iterator[R]:
        while left and (self.jobs == 1 or len(left) == 1 or self._worked < ALONE_SECONDS):
            begin = time.perf_counter()
            yield function(left.pop(0))
            self._worked += time.perf_counter() - begin
        if left:
            yield from self._workers().map(functools.partial(_collecting, function), left)

    def expect(self) -> None:
        """There is enough to do: workers begin with the next item."""
        self._worked = max(self._worked, ALONE_SECONDS)

    def background(self, function: Callable[[T], R], item: T) -> Callable[[], R]:
        """Begin a question whose answer is wanted later, by a call of what is returned; without workers it begins then."""
        if self.jobs == 1 or self._worked < ALONE_SECONDS:
            return lambda: function(item)
        future = self._workers().submit(function, item)
        return lambda: future.result()

    def _workers(self) -> Any:
        if self._executor is None:
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
            context = multiprocessing.get_context(method)
            gc.freeze()  # what is there by now is there to stay, and forked workers need not copy it
            self._executor = ProcessPoolExecutor(self.jobs, context, initializer=_begin, initargs=(self._begin,))
        return self._executor


def _begin(further: Callable[[], None] | None) -> None:
    """What a worker does first. An exploration makes much that is no garbage, so it is collected between two items."""
    _ignore_interrupts()
    gc.disable()
    if further is not None:
        further()


def _collecting(function: Callable[[T], R], item: T) -> R:
    if gc.get_count()[0] >= COLLECT_FROM:
        gc.collect()
    return function(item)
