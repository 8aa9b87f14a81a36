"""Starvation against the plain reference, of random programs; and waiters on conditions that a notify never picks."""

from __future__ import annotations

import random
from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.model import program as p
from fencepost.proofs.liveness.progress import findings
from fencepost.proofs.liveness.search import search
from fencepost.proofs.liveness.starvation import STARVATION, starvation

from liveness_reference import Reference, TooMany, Unknown
from liveness_starved import starved
from random_hangs import conditions, hangs
from random_programs import generate

KINDS: dict[str, tuple[Callable[[random.Random], p.Program], int, int]] = {
    "host": (hangs, 80, 500),
    "queries": (lambda rng: hangs(rng, "queries"), 40, 300),
    "meetings": (lambda rng: hangs(rng, "meetings"), 40, 300),
    "conditions": (conditions, 30, 500),
    "engines": (generate, 30, 600),
}
"""Kind -> (what makes a program, how many of them, states that the reference looks at)."""


@pytest.mark.parametrize("kind", list(KINDS))
def test_who_can_starve(kind: str) -> None:
    make, count, limit = KINDS[kind]
    outcomes = [0, 0, 0]
    for seed in range(count):
        program, bounds = make(random.Random(seed)), set[str]()
        try:
            expected = starved(Reference(program, limit))
        except (TooMany, Unknown):
            outcomes[2] += 1
            continue
        found = {one.partition(" - ")[0].removeprefix(f"{STARVATION} ") for one in starvation(program, 4_000, bounds)}
        assert bounds or found == expected, f"{kind} {seed}"
        outcomes[bool(expected)] += 1
    assert outcomes[0] >= count // 20 and (outcomes[1] >= count // 20 or kind == "engines"), outcomes


# ---------------------------------------------------------------- conditions


def told(build: Callable[[fp.Design], None]) -> dict[str, str]:
    """Object -> sentence of what starves; nobody waits for ever."""
    d = fp.Design("test")
    build(d)
    program = d.build()
    found = search(program)
    assert found.hang is None and found.bounded is None
    bounds = set[str]()
    pairs = [one.removeprefix(f"{STARVATION} ").partition(" - ") for one in findings(program, bounds=bounds) if one.startswith(STARVATION)]
    assert not bounds
    return {name: sentence for name, _, sentence in pairs}


def workers(notify: str, waiters: int = 2, fifo: bool = False, works: str = "answers") -> Callable[[fp.Design], None]:
    """Workers wait until one job is there for one of them, or for all; the scheduler goes on when as many have answered."""

    def build(d: fp.Design) -> None:
        lock, data, done = d.lock("lock"), d.pageable("data"), d.queue("done", capacity=waiters, item=())
        go = d.condition("go", lock, waiters=waiters, fifo=fifo)

        def work() -> None:
            with lock:
                go.wait()
            data.read()
            if works == "answers":
                done.put()

        for number in range(waiters):
            d.loop(f"worker {number}")(work)

        @d.loop("scheduler")
        def schedule() -> None:
            with lock:
                (go.notify_all if notify == "all" else go.notify)()
            if works == "answers" and notify == "one":
                done.get()
            else:
                data.read()

    return build


def test_a_waiter_that_notify_never_picks() -> None:
    found = told(workers("one", works="nothing"))["go"]
    assert found.startswith("worker 0 waits for condition go since step 0 (")
    assert "can be passed over for ever: scheduler wakes another one each time (" in found


@pytest.mark.parametrize("waiters", [2, 3])
@pytest.mark.parametrize(("notify", "fifo", "starves"), [("one", False, True), ("one", True, False), ("all", False, False), ("all", True, False)])
def test_who_is_woken(notify: str, fifo: bool, starves: bool, waiters: int) -> None:
    assert ("go" in told(workers(notify, waiters, fifo, works="nothing"))) == starves


def test_one_waiter_is_always_picked() -> None:
    assert "go" not in told(workers("one", waiters=1, works="nothing"))


def test_all_are_woken_now_and_then() -> None:
    """Who notifies one comes to where it wakes everybody, again and again."""

    def build(d: fp.Design) -> None:
        lock, data = d.lock("lock"), d.pageable("data")
        go = d.condition("go", lock, waiters=2)

        def work() -> None:
            with lock:
                go.wait()
            data.read()

        d.loop("one")(work)
        d.loop("two")(work)

        @d.loop("scheduler")
        def schedule() -> None:
            with lock:
                go.notify()
            data.read()
            with lock:
                go.notify_all()
            data.read()

    assert "go" not in told(build)


def test_by_turns_nobody_is_passed_over() -> None:
    """Each worker waits only when the other one has been woken: at most one waits."""

    def build(d: fp.Design) -> None:
        lock, turns = d.lock("lock"), [d.queue(f"turn {k}", capacity=1, item=()) for k in range(2)]
        go = d.condition("go", lock, waiters=2)

        def worker(number: int) -> None:
            @d.loop(f"worker {number}")
            def work() -> None:
                turns[number].get()
                with lock:
                    go.wait()
                turns[1 - number].put()

        worker(0)
        worker(1)

        @d.loop("scheduler")
        def schedule() -> None:
            with lock:
                go.notify()

        @d.setup
        def start() -> None:
            turns[0].put()

    assert "go" not in told(build)


@pytest.mark.parametrize(("threads", "works", "starves"), [(2, False, True), (2, True, False), (3, False, True), (3, True, True)])
def test_two_of_three_pass_a_lock_to_each_other(threads: int, works: bool, starves: bool) -> None:
    """While one works without the lock the next one takes it, at once, whoever else waits. Of two the other one goes on."""

    def build(d: fp.Design) -> None:
        guard, data = d.lock("guard"), d.pageable("data")

        def work() -> None:
            with guard:
                data.write()
            if works:
                data.read()

        for number in range(threads):
            d.loop(f"thread {number}")(work)

    assert ("guard" in told(build)) == starves


def test_an_option_that_is_no_boolean() -> None:
    d = fp.Design("condition")
    with pytest.raises(fp.DesignError, match=r"condition 'go': fifo=1; it is True or False"):
        d.condition("go", d.lock("lock"), waiters=2, fifo=1)  # type: ignore[arg-type]
