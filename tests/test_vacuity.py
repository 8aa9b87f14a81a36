"""A proof that says nothing is not called a proof."""

from __future__ import annotations

import fencepost as fp
import pytest
from fencepost.model import answer as a
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check


def decide(design: object, **parameters: object) -> a.Answer:
    """The answer for a design function, without the side questions."""
    never = parameters.pop("never", ())
    return check(program_of(design, parameters), explain=False, never=never)  # type: ignore[arg-type]


def waits_for_nobody() -> fp.Design:
    """The reader waits for an item that nobody puts: its thread never ends a turn."""
    d = fp.Design("waits for nobody")
    q = d.queue("q", capacity=1, item=())
    x = d.pinned("x")

    @d.loop("reader")
    def reader() -> None:
        q.get()
        x.write()

    @d.loop("other")
    def other() -> None:
        x.read()

    return d


def never_full() -> fp.Design:
    """A queue of capacity 2 that is emptied at once is never full, so the drain behind the test never runs."""
    d = fp.Design("never full")
    q = d.queue("q", capacity=2, item=())
    x = d.pinned("x")

    @d.loop("worker")
    def worker() -> None:
        q.put()
        if q.full():
            x.read()
        q.get()
        x.write()

    return d


def once() -> fp.Design:
    """One script writes one buffer once: there is no second access that could be unordered."""
    d = fp.Design("once")
    x = d.pinned("x")

    @d.script("main")
    def main() -> None:
        x.write()

    return d


def opposite_locks() -> fp.Design:
    """Two threads take two locks in opposite order: safe, but a state is reachable from which nobody moves."""
    d = fp.Design("opposite locks")
    a_lock, b_lock = d.lock("a"), d.lock("b")
    x = d.pinned("x")

    @d.loop("one")
    def one() -> None:
        with a_lock, b_lock:
            x.write()

    @d.loop("two")
    def two() -> None:
        with b_lock, a_lock:
            x.read()

    return d


def test_a_thread_that_never_ends_a_turn() -> None:
    """UNKNOWN, and the reason names the thread."""
    got = decide(waits_for_nobody)
    assert got.verdict == a.UNKNOWN
    assert "reader" in (got.reason or "")


def test_an_operation_that_is_never_reached() -> None:
    """UNKNOWN unless the caller says that it is meant, and then a note says it."""
    got = decide(never_full)
    assert got.verdict == a.UNKNOWN
    assert "never reached" in (got.reason or "")
    name = (got.reason or "").split("never reached: ")[1].split(" (say so")[0]
    declared = decide(never_full, never=tuple(name.split(", ")))
    assert declared.verdict == a.PROVED
    assert any("never runs, as declared" in note for note in declared.notes)


def test_nothing_is_ever_reused() -> None:
    """UNKNOWN: no order could protect anything here."""
    got = decide(once)
    assert got.verdict == a.UNKNOWN
    assert "no two conflicting accesses" in (got.reason or "")


def test_a_state_from_which_no_thread_moves_is_reported() -> None:
    """The proof stays, its note names the threads and where they stand."""
    got = decide(opposite_locks)
    assert got.verdict == a.PROVED
    assert any("no thread can move" in note and "one" in note and "two" in note for note in got.notes)


@pytest.mark.parametrize("budget", [1, 5])
def test_a_budget_that_ends_is_unknown(budget: int) -> None:
    """Never a stronger word than what was established, and it says how far it came."""
    from fencepost.designs import ring
    from fencepost.proofs.explore.search import Budget

    program = program_of(ring.ring, {"depth": 8, "outstanding": 8})
    got = check(program, explain=False, budget=Budget(states=budget))
    assert got.verdict == a.UNKNOWN
    assert f"{budget} states" in (got.reason or "")


def refills_what_it_drains() -> fp.Design:
    """Each item is put back while the queue is drained: the turn never ends."""
    d = fp.Design("refills what it drains")
    q = d.queue("q", capacity=2, item=())
    x = d.pinned("x")

    @d.loop("worker")
    def worker() -> None:
        q.put()
        for _ in q.drain():
            x.write()
            q.put()

    return d


def test_a_turn_that_goes_round_for_ever() -> None:
    """UNKNOWN, said as what it is, and the search ends."""
    got = decide(refills_what_it_drains)
    assert got.verdict == a.UNKNOWN
    assert "goes round within its turn" in (got.reason or "")


def test_a_budget_that_ends_while_a_reuse_is_looked_for_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last question before a proof spends from the same budget; its end once came out as an exception."""
    from fencepost.proofs import check as module
    from fencepost.proofs.explore.search import OutOfBudget

    def ends(self: object) -> bool:
        raise OutOfBudget("120 states stored, last at reuse")

    monkeypatch.setattr(module.Checker, "_reuse", ends)
    got = decide(once)
    assert got.verdict == a.UNKNOWN and got.reason == "budget ended: 120 states stored, last at reuse"
