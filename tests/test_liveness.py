"""Waits that never end: each kind of wait, with a source and without one, and what is idle and no hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fencepost as fp
import pytest
from fencepost.model.events import Player
from fencepost.proofs.check import check
from fencepost.proofs.explore.search import Budget
from fencepost.proofs.liveness.report import name, sentence
from fencepost.proofs.liveness.search import LOOKS, TIME_OVER, search

Build = Callable[[fp.Design], None]


def found(build: Build) -> Any:
    """(program, result) for a design written by `build`."""
    d = fp.Design("test")
    build(d)
    program = d.build()
    return program, search(program)


def hang_of(build: Build) -> str | None:
    """Name of the shortest hang, whose run the concrete event structure can play; None when every wait can end."""
    program, result = found(build)
    assert result.bounded is None
    if result.hang is None:
        return None
    player = Player(program)
    player.play(result.hang.run)
    for waiter in result.hang.waiters:
        node = program.threads[waiter.thread].nodes[waiter.node]
        what = node.operation if hasattr(node, "operation") else node.question
        assert player._obstacle(waiter.thread, what)
    return name(program, result.hang)


def locks(opposite: bool) -> Build:
    def build(d: fp.Design) -> None:
        a, b = d.lock("a"), d.lock("b")

        @d.loop("one")
        def one() -> None:
            with a, b:
                pass

        @d.loop("two")
        def two() -> None:
            first, second = (b, a) if opposite else (a, b)
            with first, second:
                pass

    return build


def mutual_queues(prefilled: bool) -> Build:
    """Each thread gets before it puts: nobody begins, unless a setup does."""

    def build(d: fp.Design) -> None:
        there, back = d.queue("there", capacity=1, item=()), d.queue("back", capacity=1, item=())
        if prefilled:

            @d.setup
            def begin() -> None:
                there.put()

        @d.loop("one")
        def one() -> None:
            there.get()
            back.put()

        @d.loop("two")
        def two() -> None:
            back.get()
            there.put()

    return build


def bounded_hand_over(drains: bool) -> Build:
    """Both sides put into bounded queues before they get: it works until both are full."""

    def build(d: fp.Design) -> None:
        requests, answers = d.queue("requests", capacity=2, item=()), d.queue("answers", capacity=2, item=())

        @d.loop("client")
        def client() -> None:
            if drains:
                for _ in answers.drain():
                    pass
            with d.maybe("request"):
                requests.put()
            if not drains:
                with d.maybe("look"):
                    answers.get()

        @d.loop("server")
        def server() -> None:
            requests.get()
            answers.put()

    return build


def one_put(then: str) -> Build:
    """A script that puts one item and ends; a loop that gets two a turn, or one."""

    def build(d: fp.Design) -> None:
        items = d.queue("items", capacity=4, item=())

        @d.script("main")
        def main() -> None:
            items.put()

        @d.loop("reader")
        def reader() -> None:
            if then == "asks":
                if not items.empty():
                    items.get()
            else:
                items.get()

    return build


def pool(leak: bool) -> Build:
    def build(d: fp.Design) -> None:
        rows = d.pool("rows", size=2, of="row")

        @d.loop("worker")
        def worker() -> None:
            row = rows.take()
            if leak:
                with d.maybe("success"):
                    rows.give(row)
            else:
                rows.give(row)

    return build


def flag(cleared_by: str) -> Build:
    def build(d: fp.Design) -> None:
        go = d.flag("go")

        @d.script("starter")
        def starter() -> None:
            go.set()

        @d.loop("worker")
        def worker() -> None:
            go.wait()
            if cleared_by == "worker":
                go.clear()

    return build


def counters(behind: int) -> Build:
    """The waiter of turn n wants the count n + `behind`, of a thread that waits for it in turn."""

    def build(d: fp.Design) -> None:
        made, used = d.counter("made"), d.counter("used")

        @d.loop("producer")
        def producer(n: fp.Turn) -> None:
            used.wait(n - 1)
            made.add()

        @d.loop("consumer")
        def consumer(n: fp.Turn) -> None:
            made.wait(n + behind)
            used.add()

    return build


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (locks(opposite=True), "deadlock b"),
        (locks(opposite=False), None),
        (mutual_queues(prefilled=False), "deadlock there"),
        (mutual_queues(prefilled=True), None),
        (bounded_hand_over(drains=False), "deadlock answers"),  # it looks for an answer to nothing
        (bounded_hand_over(drains=True), None),
        (one_put("gets"), "no source items"),
        (one_put("asks"), None),
        (pool(leak=True), "no source rows"),
        (pool(leak=False), None),
        (flag("worker"), "no source go"),
        (flag("nobody"), None),
        (counters(behind=1), None),
        (counters(behind=3), "deadlock used"),
    ],
)
def test_waits(build: Build, expected: str | None) -> None:
    assert hang_of(build) == expected


def test_one_line_per_waiter() -> None:
    program, result = found(locks(opposite=True))
    text = sentence(program, result.hang)
    assert text.startswith("deadlock b - one waits for lock b since step 0 (test_liveness.py:")
    assert "; two waits for lock a since step 0" in text
    assert "which only two can end" in text and "which only one can end" in text


def test_part_of_a_design_may_hang_while_the_rest_goes_on() -> None:
    def build(d: fp.Design) -> None:
        locks(opposite=True)(d)
        buffer = d.pageable("buffer")

        @d.loop("busy")
        def busy() -> None:
            buffer.write()

    assert hang_of(build) == "deadlock b"


def test_agreed_choices_do_not_diverge() -> None:
    """Two ranks meet on the queues that their choice names: with one choice for both always, with two they may miss."""

    def build(agreed: bool) -> Build:
        def made(d: fp.Design) -> None:
            queues = {
                (kind, way): d.queue(f"{kind} {way}", capacity=1, item=())
                for kind in ("left", "right") for way in ("there", "back")
            }  # fmt: skip

            def rank(name: str, mine: str, other: str) -> None:
                @d.loop(name)
                def step() -> None:
                    kind = d.choose("kind" if agreed else f"kind of {name}", ["left", "right"], agreed=agreed)
                    queues[kind, mine].put()
                    queues[kind, other].get()

            rank("one", "there", "back")
            rank("two", "back", "there")

        return made

    assert hang_of(build(agreed=False)) == "deadlock left back"
    assert hang_of(build(agreed=True)) is None


def test_without_back_pressure_the_answer_is_bounded() -> None:
    def build(d: fp.Design) -> None:
        made, used = d.counter("made"), d.counter("used")

        @d.loop("producer")
        def producer() -> None:
            made.add()

        @d.loop("consumer")
        def consumer(n: fp.Turn) -> None:
            made.wait(n)
            used.add()

    _program, result = found(build)
    assert result.hang is None
    assert "runs ahead" in str(result.bounded)


def many_states(d: fp.Design) -> None:
    """Three independent pairs of threads, each with a queue: hundreds of states, no hang."""

    def pair(k: int) -> None:
        queue = d.queue(f"queue {k}", capacity=4, item=())

        @d.loop(f"put {k}")
        def put() -> None:
            queue.put()

        @d.loop(f"get {k}")
        def get() -> None:
            if queue.full():
                queue.get()

    for k in range(3):
        pair(k)


def test_what_a_budget_cut_is_not_kept_for_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.proofs.liveness.search._known", {})
    d = fp.Design("test")
    many_states(d)
    cut = search(d.build(), until=0.0)
    assert cut.bounded == TIME_OVER and cut.hang is None and cut.states == LOOKS
    assert search(d.build()).bounded is None


def test_the_budget_of_a_check_is_for_liveness_too() -> None:
    d = fp.Design("test")
    many_states(d)
    answer = check(d.build(), budget=Budget(seconds=-1.0))
    assert f"whether a wait can last for ever is bounded: {TIME_OVER}" in answer.notes
    assert not any(TIME_OVER in note for note in check(d.build()).notes)
