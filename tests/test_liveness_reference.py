"""The search for hangs against a plain reference that interleaves every step and keeps every state: hang found iff there is one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from fencepost.model import program as p
from fencepost.proofs.liveness.search import Hang, search
from fencepost.simulator.random_designs import stream

from liveness_reference import Reference, TooMany, Unknown
from random_hangs import conditions, hangs
from random_meetings import meetings
from random_programs import generate


def platform(rng: random.Random) -> p.Program:
    """A random design of the whole platform."""
    return next(stream(rng.randrange(1_000_000), 1, family="platform"))[1]


KINDS: dict[str, tuple[Callable[[random.Random], p.Program], int, int]] = {
    "host": (hangs, 120, 1_500),
    "queries": (lambda rng: hangs(rng, "queries"), 60, 400),
    "meetings": (lambda rng: hangs(rng, "meetings"), 40, 400),
    "ranks": (meetings, 30, 400),
    "engines": (generate, 40, 600),
    "conditions": (conditions, 20, 400),
    "platform": (platform, 25, 300),
}
"""Kind -> (what makes a program, how many of them, states that the reference looks at)."""


def agrees(program: p.Program, limit: int) -> tuple[bool, bool] | None:
    """(whether the reference has a hang, whether the search finds one); None where one of them does not know."""
    try:
        reference = Reference(program, limit)
    except (TooMany, Unknown):
        return None
    lost = reference.hopeless()
    found = search(program, 20_000)
    if found.hang is not None:
        assert ends_in(reference, found.hang)
    elif found.bounded is not None:
        return None
    return bool(lost), found.hang is not None


def ends_in(reference: Reference, hang: Hang) -> bool:
    """Whether the run of a hang leads the reference to a state from which all its waiters are lost. Streams' own steps come as they like."""
    lost = reference.hopeless()
    count = len(reference.program.threads)
    now = {0}
    for move in hang.moves:
        now = settled(reference, now)
        if move.item is None:
            now = {
                to for number in now for (agent, to), label in zip(reference.after[number], reference.labels[number], strict=True)
                if agent == move.thread and label == (move.node, move.answer)
            }  # fmt: skip
    now = settled(reference, now)
    waiting = [waiter.thread for waiter in hang.waiters if waiter.thread < count]
    return any(all(number in lost.get(agent, ()) for agent in waiting) for number in now)


def settled(reference: Reference, now: set[int]) -> set[int]:
    """States that streams alone can lead to."""
    todo, seen = list(now), set(now)
    while todo:
        for agent, to in reference.after[todo.pop()]:
            if isinstance(agent, tuple) and to not in seen:
                seen.add(to)
                todo.append(to)
    return seen


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_hang_is_found_iff_there_is_one(kind: str) -> None:
    make, count, limit = KINDS[kind]
    outcomes = [0, 0, 0]
    for seed in range(count):
        found = agrees(make(random.Random(seed)), limit)
        if found is None:
            outcomes[2] += 1
            continue
        assert found[0] == found[1], f"{kind} {seed}: the reference {'has a hang' if found[0] else 'has none'}"
        outcomes[found[0]] += 1
    assert outcomes[0] >= count // 10 and outcomes[1] >= count // 20, outcomes


# ---------------------------------------------------------------- what a query can say


def asked(what: str, *operations: p.Operation, question: p.Question | None = None) -> bool:
    """Whether a loop that does this and then asks can get the answer `what`: with it, and only with it, it waits for ever."""
    objects: tuple[p.Object, ...] = (p.Stream("s"), p.Stream("t"), p.Event("e"), p.Event("f"), p.Flag("never"))
    nodes: list[p.Node] = [p.Do(one, n + 1) for n, one in enumerate(operations)]
    n = len(nodes)
    other = "no" if what == "yes" else "yes"
    nodes += [p.Ask(question or p.EventQuery(p.Obj(2)), ((what, n + 1), (other, p.END))), p.Do(p.FlagWait(4), p.END)]
    program = p.Program("asks", objects, (p.Thread("host", "loop", tuple(nodes), 0),))
    found = search(program)
    assert found.bounded is None
    assert agrees(program, 2_000) == (found.hang is not None, found.hang is not None)
    return found.hang is not None


S, T, E, F = p.Obj(0), p.Obj(1), p.Obj(2), p.Obj(3)
KERNEL, ELSEWHERE = p.Launch("kernel", S, ()), p.Launch("kernel", T, ())


@pytest.mark.parametrize(
    ("operations", "possible"),
    [
        ((), False),  # never recorded (S18)
        ((p.Record(E, S),), False),  # nothing to wait for
        ((KERNEL, p.Record(E, S)), True),
        ((KERNEL, p.Record(E, S), p.EventSync(E)), False),
        ((KERNEL, p.Record(E, S), p.StreamSync(S)), False),
        ((KERNEL, p.Record(E, S), p.StreamSync(T)), True),
        ((KERNEL, p.Record(E, S), p.DeviceSync(0, "")), False),
        ((KERNEL, p.Record(E, S), KERNEL, p.Record(F, S), p.EventSync(F)), False),  # what came first in the stream
        ((KERNEL, p.Record(F, S), KERNEL, p.Record(E, S), p.EventSync(F)), True),
        ((KERNEL, p.Record(E, S), p.StreamWaitEvent(T, E), p.StreamSync(T)), False),
        ((KERNEL, p.WaitStream(T, S), p.Record(E, S), p.StreamSync(T)), False),
        ((p.WaitStream(T, S), KERNEL, p.Record(E, S), p.StreamSync(T)), True),
        ((KERNEL, p.Record(E, S), p.EventSync(E), KERNEL, p.Record(E, S)), True),
        ((KERNEL, p.Record(E, S), p.EventSync(E), p.Record(E, S)), False),
        ((ELSEWHERE, p.StreamWaitEvent(S, F), p.Record(E, S)), False),  # F was never recorded
        ((ELSEWHERE, p.Record(F, T), p.StreamWaitEvent(S, F), p.Record(E, S)), True),
    ],
)  # fmt: skip
def test_a_query_says_no_unless_its_record_is_known_complete(operations: tuple[p.Operation, ...], possible: bool) -> None:
    # The loop comes round: what an earlier turn left behind is waited for first.
    assert asked("no", p.DeviceSync(0, ""), *operations) == possible
    assert asked("yes", p.DeviceSync(0, ""), *operations)


def test_a_stream_query() -> None:
    question = p.StreamQuery(S)
    assert not asked("no", question=question)
    assert asked("no", KERNEL, question=question)
    assert not asked("no", KERNEL, p.StreamSync(S), question=question)
    assert not asked("no", p.Record(F, S), p.EventSync(F), question=question)
    assert asked("no", KERNEL, p.Record(F, S), KERNEL, p.EventSync(F), question=question)


# ---------------------------------------------------------------- found by the comparison


def test_nobody_is_put_off_round_a_circle_of_states() -> None:
    """A busy thread whose steps change nothing was let go first alone, and one of two streams that could take a flag never came."""
    flag, streams = 3, [p.Obj(k) for k in range(3)]
    objects: tuple[p.Object, ...] = (*(p.Stream(f"stream {k}") for k in range(3)), p.DeviceFlag("flag"))

    def thread(number: int, *row: p.Operation) -> p.Thread:
        nodes = tuple(p.Do(one, n + 1 if n + 1 < len(row) else p.END) for n, one in enumerate(row))
        return p.Thread(f"thread {number}", "loop", nodes, 0)

    first, busy, last = streams
    program = p.Program("two waits for one flag", objects, (
        thread(0, p.WaitFlag(flag, 1, first, True), p.StoreFlag(flag, 1), p.StreamSync(first)),
        thread(1, p.Launch("kernel", busy, ()), p.StreamSync(busy)),
        thread(2, p.WaitFlag(flag, 1, last, True), p.StoreFlag(flag, 1, last), p.StreamSync(last)),
    ))  # fmt: skip
    assert agrees(program, 2_000) == (False, False)
