"""Streams that share one hardware queue (S115-S117): issue order holds back, but each stream tells of its own work only.

Explorer, SMT engine, SPIN, event structure and machine each have their own rules for it; here they give the same verdicts.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from pathlib import Path

import fencepost as fp
import pytest
from fencepost.model import program as p
from fencepost.model.answer import BOUNDED
from fencepost.model.platform import ENVIRONMENTS, PLATFORMS
from fencepost.proofs.check import check
from fencepost.proofs.foreign.promela import NotExported, promela
from fencepost.proofs.smt.engine import check as bounded
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import Random
from fencepost.simulator.random_designs import stream

from meeting_compare import Runs, structured
from random_compare import compare, report, small
from random_oracle import World, disagreement, minimise, show
from random_programs import generate
from smt_agreement import disagreement as smt_disagreement
from test_promela import TOOLS, verdict

NAME = "one-hardware-queue"
WORLD: World = (PLATFORMS["cuda"], ENVIRONMENTS[NAME])


class Two:
    """A kernel on `busy` writes `x`; `wait` may wait for `idle`, and answers whether `x` is read then; None: it is."""

    def __init__(self) -> None:
        self.d = fp.Design("shared queue")
        self.x = self.d.pinned("x")
        self.y = self.d.device("y")
        self.busy, self.idle, self.other = self.d.stream("busy"), self.d.stream("idle"), self.d.stream("other")
        self.elsewhere = self.d.stream("elsewhere", gpu=1)
        self.e, self.far = self.d.event("e"), self.d.event("far", gpu=1)

    def program(self, rest: Callable[[Two], None], before: Callable[[Two], None] | None = None) -> p.Program:
        """The design of one thread."""

        @self.d.script("thread")
        def thread() -> None:
            if before is not None:
                before(self)
            self.d.launch("write", writes=[self.x], stream=self.busy)
            rest(self)

        return self.d.build()


def _sync(o: Two) -> None:
    o.idle.synchronize()
    o.x.read()


def _query(o: Two) -> None:
    if o.idle.query():
        o.x.read()


def _both(*first: Callable[[Two], None]) -> Callable[[Two], None]:
    def rest(o: Two) -> None:
        for one in first:
            one(o)

    return rest


def _work(o: Two) -> None:
    o.d.launch("more", writes=[o.y], stream=o.idle)


def _record(o: Two) -> None:
    o.e.record(o.idle)


def _event(o: Two) -> None:
    o.e.synchronize()
    o.x.read()


def _device(o: Two) -> None:
    o.d.synchronize()
    o.x.read()


def _wait_event(o: Two) -> None:
    o.idle.wait_event(o.far)


def _record_elsewhere(o: Two) -> None:
    o.far.record(o.elsewhere)


def _wait_stream(o: Two) -> None:
    o.idle.wait_stream(o.other)


def _other_waits(o: Two) -> None:
    o.other.wait_stream(o.idle)


def _block(noted: bool) -> Callable[[Two], None]:
    def rest(o: Two) -> None:
        block = o.d.empty("block", stream=o.busy)
        if noted:
            block.record_stream(o.idle)
        block.release()

    return rest


HIDES, SHOWS = fp.MASKED, fp.REFUTED
ROWS: dict[str, tuple[str, Callable[[Two], None], Callable[[Two], None] | None]] = {
    "an idle stream is synchronised": (SHOWS, _sync, None),
    "an idle stream says yes": (SHOWS, _query, None),
    "its own work is older": (SHOWS, _sync, _work),
    "its own work is older, and it says yes": (SHOWS, _query, _work),
    "its own work is behind": (HIDES, _both(_work, _sync), None),
    "its own work is behind, and it says yes": (HIDES, _both(_work, _query), None),
    "a record is an item": (HIDES, _both(_record, _event), None),
    "a record is its stream's own item": (HIDES, _both(_record, _sync), None),
    "a record is what a query asks about": (HIDES, _both(_record, _query), None),
    "an older record is not": (SHOWS, _sync, _record),
    "a wait for an event that was never recorded is no item": (SHOWS, _both(_wait_event, _sync), None),
    "a wait for an event that may be over is no item for sure": (SHOWS, _both(_wait_event, _sync), _record_elsewhere),
    "a wait for a stream is for its record, an item": (HIDES, _both(_wait_stream, _sync), None),
    "a wait for a stream makes that stream's item": (HIDES, _both(_other_waits, _sync), None),
    "the device is everything": (HIDES, _device, None),
    "a freed block that was noted leaves an item": (HIDES, _both(_block(True), _sync), None),
    "a freed block that was not noted leaves none": (SHOWS, _both(_block(False), _sync), None),
}


@pytest.mark.parametrize("name", ROWS)
def test_explorer_and_machine(name: str) -> None:
    """The explorer's verdict is as declared; the machine shows a wrong value where and only where it is refuted."""
    expected, rest, before = ROWS[name]
    program = Two().program(rest, before)
    # Which frees come when is kept for one block only, so that this item is not known elsewhere.
    mine = fp.UNKNOWN if "was noted" in name else expected
    assert check(program, environment=NAME, explain=False).verdict == mine
    machine = Machine(program, *WORLD)
    assert any(machine.run(Random(f"{k}")).wrong is not None for k in range(150)) == (expected == SHOWS)


@pytest.mark.parametrize("name", ROWS)
def test_smt(name: str) -> None:
    """The SMT engine says the same, but for the item that a free leaves, which it refuses."""
    expected, rest, before = ROWS[name]
    got = bounded(Two().program(rest, before), 1, environment=NAME)
    if "was noted" in name:
        assert got.verdict == fp.UNKNOWN and "noted" in (got.reason or "")
    else:
        assert got.verdict == (fp.REFUTED if expected == SHOWS else BOUNDED)


@TOOLS
@pytest.mark.parametrize("name", ROWS)
def test_spin(name: str, tmp_path: Path) -> None:
    """SPIN says the same of what is exported."""
    expected, rest, before = ROWS[name]
    try:
        text = promela(Two().program(rest, before), 1, environment=NAME)
    except NotExported as reason:
        assert "block" in name, reason
        return
    assert verdict(text, tmp_path) == (fp.REFUTED if expected == SHOWS else BOUNDED)


@pytest.mark.parametrize("by", ["event", "stream"])
@pytest.mark.parametrize("then", ["synchronise", "launch"])
@pytest.mark.parametrize("ordered", [True, False])
def test_what_a_stream_waits_for_comes_before(by: str, then: str, ordered: bool) -> None:
    """Work of another GPU: what the stream itself tells of, and what its queue does later, is behind it."""
    d = fp.Design("waits")
    z, idle, elsewhere, far = d.pinned("z"), d.stream("idle"), d.stream("elsewhere", gpu=1), d.event("far", gpu=1)

    @d.script("thread")
    def thread() -> None:
        d.launch("write", writes=[z], stream=elsewhere)
        if by == "event":
            far.record(elsewhere)
            if ordered:
                idle.wait_event(far)
        elif ordered:
            idle.wait_stream(elsewhere)
        if then == "synchronise":
            idle.synchronize()
            z.read()
        else:
            d.launch("read", reads=[z], stream=idle)

    program = d.build()
    assert check(program, environment=NAME, explain=False).verdict == (HIDES if ordered else SHOWS)
    assert bounded(program, 1, environment=NAME).verdict == (BOUNDED if ordered else fp.REFUTED)


def test_rings_of_streams() -> None:
    """Each slot tells of its own work."""

    def design(offset: int) -> p.Program:
        d = fp.Design("ring")
        x, s = d.pinned("x", depth=2), d.stream("s", depth=2)

        @d.loop("thread")
        def thread(n: fp.Turn) -> None:
            d.launch("write", writes=[x[n]], stream=s[n])
            s[n + offset].synchronize()
            x[n].read()

        return d.build()

    assert check(design(0), environment=NAME, explain=False).verdict == fp.MASKED
    assert check(design(1), environment=NAME, explain=False).verdict == fp.REFUTED


@pytest.mark.parametrize("meets", [False, True], ids=["work that runs", "work that waits"])
def test_what_is_pending_is_its_own(meets: bool) -> None:
    """Behind an await of another stream an idle stream is still idle, and one with work there is not."""

    def program(own: bool) -> p.Program:
        d = fp.Design("pending")
        x, y, gate = d.pinned("x"), d.device("y"), d.device_flag("gate")
        busy, idle, far = d.stream("busy"), d.stream("idle"), d.stream("far", gpu=1)

        @d.script("thread")
        def thread() -> None:
            if meets:
                busy.wait_value(gate, 1)
            d.launch("write", writes=[x], stream=busy)
            if own:
                d.launch("more", writes=[y], stream=idle)
            idle.synchronize()
            x.read()

        @d.script("opens")
        def opens() -> None:
            far.write_value(gate, 1)

        return d.build()

    assert check(program(False), environment=NAME, explain=False).verdict == fp.REFUTED
    assert check(program(True), environment=NAME, explain=False).verdict == fp.MASKED
    for own in (False, True):
        machine = Machine(program(own), *WORLD)
        assert any(machine.run(Random(f"{k}")).wrong is not None for k in range(150)) != own


def test_random_programs() -> None:
    """Explorer and event structure; and the searches with and without reduction."""
    count: collections.Counter[str] = collections.Counter()
    for seed in range(700_000, 700_150):
        program = generate(random.Random(seed))
        what = disagreement(program, random.Random(seed), count, runs=20, states=400, world=WORLD)
        assert what is None or what.startswith("UNKNOWN"), f"seed {seed}: {what}\n{show(program)}"
    assert count["proved"] >= 50 and count["refuted"] >= 10 and count["unknown"] <= 10, count


def test_random_programs_by_smt() -> None:
    """Explorer and SMT engine."""
    count: collections.Counter[str] = collections.Counter()
    for seed in range(700_000, 700_060):
        program = generate(random.Random(seed))
        what, bad = smt_disagreement(program, 2, environment=NAME)
        count[what] += 1
        if bad is not None and "noted" not in bad:  # which the engine refuses by name
            found = minimise(program, lambda candidate: smt_disagreement(candidate, 2, environment=NAME)[1] is not None)
            pytest.fail(f"seed {seed}: {bad}\n{show(found)}")
    assert count["explorer refuted, smt refuted"] >= 5, count


@pytest.mark.parametrize("family", ["", "meetings"])
def test_random_designs(family: str) -> None:
    """Explorer, machine and event structure."""
    count: collections.Counter[str] = collections.Counter()
    seen = Runs(0, 0, 0)
    for design, program in stream(300_000, 60, **({"family": family} if family else {})):
        assert design.seed is not None
        got = compare(program, design.seed, count, runs=15, states=600, sliced=0.2, world=WORLD)
        if got.wrong is not None:
            pytest.fail(f"seed {design.seed}: " + report(small(design.text, design.seed, got.wrong, got.world), got.world, got.wrong))
        found = structured(program, design.seed, WORLD, 6)
        seen = Runs(*(a + b for a, b in zip(seen, found, strict=True)))
    assert count["reproduced"] == count["value-changing hazards"] and seen.clean >= 100, (count, seen)
