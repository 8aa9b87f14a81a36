"""Places where Python state was not looked for, and reads that were overlooked: what a body may not do, the rarer part."""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from python_kit import Kit


@pytest.fixture
def k() -> Kit:
    return Kit()


class Switch:
    """A mode that one command switches on and another one off."""

    def __init__(self) -> None:
        self.on = False


def test_state_that_another_answer_puts_back(k: Kit) -> None:
    """Runs of the body come one after the other, and each is looked at: the last one may leave everything as it was."""
    switch = Switch()

    def body() -> None:
        command = k.d.choose("command", ["step", "on", "off"])
        if command == "step":
            k.host.write()
            k.gpu.copy_(k.host, non_blocking=switch.on)
        else:
            switch.on = command == "on"

    k.refuses(body, "changes 'switch', which lives on")


def test_state_that_a_maybe_block_looks_at_later(k: Kit) -> None:
    switch = Switch()

    def body() -> None:
        overlap = True
        with k.d.maybe("prepare"):
            k.d.host("prepare")
            if switch.on:
                overlap = False
        command = k.d.choose("command", ["idle", "on", "step", "off"])
        if command in ("on", "off"):
            switch.on = command == "on"
        if command == "step":
            k.host.write()
            k.gpu.copy_(k.host, non_blocking=overlap)

    k.refuses(body, "changes 'switch', which lives on")


class PrivateSlot:
    __slots__ = ("__turns",)

    def __init__(self) -> None:
        self.__turns = 0

    def __call__(self) -> int:
        self.__turns += 1
        return self.__turns


class DunderAttribute:
    __turns__ = 0

    def __call__(self) -> int:
        type(self).__turns__ += 1
        return self.__turns__


@functools.cache
def cached_engine() -> dict[str, int]:
    return {"turns": 0}


@functools.lru_cache(maxsize=4)
def recent_engine(name: str) -> dict[str, int]:
    return {name: 0}


@functools.cache
def cached_size(layers: int) -> int:
    return 4096 * layers


def of_a_cache() -> int:
    cached_engine()["turns"] += 1
    return cached_engine()["turns"]


def of_a_small_cache() -> int:
    recent_engine("turns")["turns"] += 1
    return recent_engine("turns")["turns"]


def imported_in_it() -> int:
    import colorsys as state

    state.turns = getattr(state, "turns", 0) + 1  # type: ignore[attr-defined]
    return int(state.turns)  # type: ignore[attr-defined]


CALLS = [0]


def _count_calls() -> int:
    CALLS[0] += 1
    return CALLS[0]


FRESH: dict[str, int] = defaultdict(_count_calls)


def of_a_factory() -> int:
    number = FRESH["x"]
    del FRESH["x"]
    return number


def of_its_defaults(number: int = 0) -> int:
    of_its_defaults.__defaults__ = (number + 1,)
    return number


@pytest.mark.parametrize(
    "counts",
    [PrivateSlot(), DunderAttribute(), of_a_cache, of_a_small_cache, imported_in_it, of_a_factory, of_its_defaults],
    ids=lambda counts: getattr(counts, "__name__", type(counts).__name__),
)
def test_places_of_state(k: Kit, counts: Callable[[], int]) -> None:
    def body() -> None:
        k.turn(counts())

    k.refuses(body, "which lives on|when its body runs again|does not do the same")


def test_what_a_cache_answers_is_no_state(k: Kit) -> None:
    @k.d.loop("worker")
    def body() -> None:
        k.gpu.copy_(k.host, non_blocking=cached_size(2) > cached_size(1))


def test_variables_of_others_and_files(k: Kit) -> None:
    """By way of a frame, of `locals` under another name, and of a file."""
    mine = locals

    def frame() -> None:
        k.turn(len(sys._getframe().f_locals))

    def alias() -> None:
        k.turn(len(mine()))

    def file() -> None:
        k.turn(len(Path(__file__).read_text()))

    k.refuses(frame, r"uses f_locals\(\)")
    k.refuses(alias, r"uses mine\(\)")
    k.refuses(file, r"uses read_text\(\)")


def _pair() -> tuple[Callable[[], None], Callable[[], int], Callable[[], None]]:
    count = [0]

    def add() -> None:
        count[0] = 1

    def get() -> int:
        return count[0]

    def reset() -> None:
        count[0] = 0

    return add, get, reset


ADD, GET, RESET = _pair()


def test_a_maybe_that_changes_what_has_the_name_of_a_local(k: Kit) -> None:
    def body() -> None:
        count = 1
        with k.d.maybe("m"):
            ADD()
            k.d.host("prepare")
        k.host.write()
        k.gpu.copy_(k.host, non_blocking=not GET())
        RESET()
        k.d.host(f"{count}")

    k.refuses(body, "maybe 'm' changes 'count'")


class Kind:
    """What tells the first item from later ones."""

    def __init__(self, yes: bool) -> None:
        self.yes, self.error = yes, KeyError if yes else ValueError


def drains_that_read(k: Kit) -> dict[str, Callable[[], None]]:
    """Bodies whose drain sets `x` at the end of each iteration, and reads it at the start of the next in some way."""

    def copies(sync: bool) -> None:
        k.host.write()
        k.gpu.copy_(k.host, non_blocking=not sync)

    def deletes() -> None:
        x = 1
        del x
        for _ in k.queue.drain():
            try:
                del x
                sync = False
            except NameError:
                sync = True
            copies(sync)
            x = 1  # noqa: F841  which the next iteration deletes

    def catches() -> None:
        error: type[Exception] = KeyError
        for _ in k.queue.drain():
            sync = False
            try:
                raise KeyError
            except error:
                sync = True
            except Exception:
                pass
            copies(sync)
            error = ValueError

    def loops() -> None:
        x = 1
        for _ in k.queue.drain():
            while k.d.choose("more", ["no", "yes"]) == "yes":
                x = 2
                break
            else:
                copies(x == 1)
            x = 2

    def keys() -> None:
        x = 1
        for _ in k.queue.drain():
            sync = {0: x == 1, (x := 2): True}[0]
            copies(sync)

    def places() -> None:
        x, got = 1, [0, 0, 0]
        for _ in k.queue.drain():
            got[x] += (x := 2)
            copies(got[1] == 2)
            got = [0, 0, 0]

    def targets() -> None:
        x, got = 0, [None, None]
        for got[x] in k.queue.drain():
            copies(x == 0)
            x = 1

    def matches() -> None:
        x = KINDS[0]
        for _ in k.queue.drain():
            match True:
                case x.yes:
                    copies(True)
                case _:
                    copies(False)
            x = KINDS[1]

    return {
        "del": deletes, "except": catches, "while else": loops, "a key": keys, "a place": places, "a target": targets, "a pattern": matches,
    }  # fmt: skip


KINDS = (Kind(True), Kind(False))


@pytest.mark.parametrize("whole", [True, False])
def test_a_match_that_sets_a_variable_in_every_iteration(k: Kit, whole: bool) -> None:
    """`case _` fits whatever comes, so that one of the cases has set it; without it the iteration before may have."""

    def fits() -> None:
        for _ in k.queue.drain():
            match k.d.choose("kind", ["a", "b"]):
                case "a":
                    wait = True
                case _:
                    wait = False
            k.gpu.copy_(k.host, non_blocking=not wait)

    def may_not_fit() -> None:
        wait = False
        for _ in k.queue.drain():
            match k.d.choose("kind", ["a", "b", "c"]):
                case "a":
                    wait = True
                case "b":
                    wait = False
            k.gpu.copy_(k.host, non_blocking=not wait)

    if whole:
        k.d.loop("worker")(fits)
        assert k.d.build().threads
    else:
        k.refuses(may_not_fit, "in every iteration of the drain loop|what happened in an iteration")


@pytest.mark.parametrize("how", ["del", "except", "while else", "a key", "a place", "a target", "a pattern"])
def test_a_drain_that_reads_what_the_iteration_before_left(k: Kit, how: str) -> None:
    k.refuses(drains_that_read(k)[how], "in every iteration of the drain loop|what happened in an iteration")


def test_an_error_that_leaves_a_maybe_block(k: Kit) -> None:
    """The block's end would not be written down on that way."""

    def body() -> None:
        try:
            with k.d.maybe("m"):
                k.host.write()
                if k.d.choose("fails", ["yes", "no"]) == "yes":
                    raise KeyError("slot")
        except KeyError:
            k.host.read()

    k.refuses(body, r"KeyError \('slot'\) leaves maybe 'm'")
