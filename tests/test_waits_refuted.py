"""Waits of designs that are refuted as they are, and weaker waits beside others that may go: nothing that is said leads to a loss."""

from __future__ import annotations

import collections
import random

import fencepost as fp
import pytest
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import PROVED, REFUTED, Run
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check
from fencepost.proofs.waits import beyond, decide
from fencepost.proofs.waits.beyond import unordered
from fencepost.proofs.waits.catalogue import synchronisations, without
from fencepost.proofs.waits.classify import CONDITIONAL, NEEDED, OPEN, REDUNDANT, USELESS, Waits, waits
from fencepost.proofs.waits.decide import Oracle
from fencepost.report.waits import Told

from random_oracle import random_run
from random_programs import generate
from random_rendezvous import generate as meetings


def kinds(answer: Waits) -> dict[str, str]:
    """Classes by what is written."""
    told = Told(answer)
    return {told.text(answer.syncs[f.sync]): f.kind for f in answer.findings}


SEEDS = 60
"""Random designs of each test."""

# ---------------------------------------------------------------- refuted as they are


def held(go: bool = True, second: bool = False) -> fp.Design:
    """A block that a queue holds until it is full, whatever the copy does: WAR in any case."""
    d = fp.Design("held")
    s, o = d.stream("s"), d.device("o")
    q = d.queue("q", capacity=2, item=(fp.EVENT, fp.MEMORY))

    @d.loop("t")
    def step() -> None:
        x = d.empty("x")
        d.launch("k", writes=[x])
        if go:
            s.wait_stream(d.current_stream())
        if second:
            s.wait_stream(d.current_stream())
        with s:
            o.copy_(x, non_blocking=True)
            e = d.event("e")
            e.record()
        q.put(e, x)
        if q.full():
            q.get()

    return d


def test_what_orders_the_refuted_object_is_needed() -> None:
    """Without the stream wait the copy reads too early: new beside the hazard that the design has."""
    answer = waits(program_of(held, {}))
    assert kinds(answer) == {"s.wait_stream(default)": NEEDED, "x held by queue q": REDUNDANT}
    assert {h.name for h in answer.bad} == {"WAR x"} and not answer.proofs
    (needed,) = (f for f in answer.findings if f.kind == NEEDED)
    assert [h.name for h in needed.breaks] == ["RAW x"] and needed.program is not None and needed.run is not None
    structure = events.execute(needed.program, needed.run)
    assert any(events.value_change(structure, *pair)[0] for pair in events.conflicts(structure))
    assert "RAW x" not in {h.name for h in check(program_of(held, {}), explain=False).hazards}
    assert "RAW x" in {h.name for h in check(program_of(held, {"go": False}), explain=False).hazards}


def test_two_that_order_the_refuted_object_replace_each_other() -> None:
    """Written twice, each of the two may go while the other stays."""
    answer = waits(program_of(held, {"second": True}))
    assert [f.kind for f in answer.findings] == [CONDITIONAL, CONDITIONAL, REDUNDANT]
    assert [f.alternatives for f in answer.findings[:2]] == [((1,),), ((0,),)]
    assert {h.name for f in answer.findings[:2] for h in f.breaks} == {"RAW x"}


def hides(go: bool = True) -> fp.Design:
    """What the wait orders stands behind a hazard in the same turn."""
    d = fp.Design("hides")
    m, g, o = d.device("m"), d.device("g"), d.device("o")
    s = d.stream("s")

    @d.loop("t")
    def step() -> None:
        main = d.current_stream()
        main.wait_stream(s)
        d.launch("fill", writes=[m])
        with s:
            d.launch("too early", reads=[m], writes=[g])
            if go:
                s.wait_stream(main)
            d.launch("in time", reads=[m], writes=[o])

    return d


def test_what_stands_behind_a_hazard_of_the_same_turn() -> None:
    """A search ends at a hazard; what it hides counts all the same."""
    answer = waits(program_of(hides, {}))
    assert {h.object for h in answer.bad} == {"m"}
    assert kinds(answer) == {"default.wait_stream(s)": NEEDED, "s.wait_stream(default)": NEEDED}
    told = [(h.name, h.first.operation, h.second.operation) for f in answer.findings for h in f.breaks if h.first is not None]
    assert ("RAW m", "fill", "in time") in told


def hides_twice() -> fp.Design:
    """One wait orders both readers; a second one stands between them."""
    d = fp.Design("hides twice")
    m, g, o, s = d.device("m"), d.device("g"), d.device("o"), d.stream("s")

    @d.loop("t")
    def step() -> None:
        main = d.current_stream()
        main.wait_stream(s)
        d.launch("fill", writes=[m])
        with s:
            s.wait_stream(main)
            d.launch("first", reads=[m], writes=[g])
            s.wait_stream(main)
            d.launch("second", reads=[m], writes=[o])

    return d


def test_a_redundant_wait_orders_what_stands_behind_another_pair() -> None:
    """It orders the second reader, which a search that ends at the first reader does not see."""
    answer = waits(program_of(hides_twice, {}))
    (spare,) = (f for f in answer.findings if f.kind == REDUNDANT)
    assert not answer.bad and not spare.why and {name for name, _, _ in spare.protects} == {"m"}
    assert spare.covered_by and "alone it orders m" in next(iter(Told(answer).details(spare)))


def unwritten() -> fp.Design:
    """A block that is read before anything is in it: what comes behind that is not looked at."""
    d = fp.Design("unwritten")
    s, o, m = d.stream("s"), d.device("o"), d.device("m")

    @d.loop("t")
    def step() -> None:
        x = d.empty("x")
        d.launch("early", reads=[x], writes=[m])
        d.launch("fill", writes=[x])
        s.wait_stream(d.current_stream())
        d.launch("use", reads=[x], writes=[o], stream=s)
        x.record_stream(s)
        d.current_stream().wait_stream(s)

    return d


def test_what_a_hazard_hides_is_not_decided() -> None:
    """Behind a read of what nobody wrote nothing is known: not decided, with the object, and never redundant."""
    answer = waits(program_of(unwritten, {}))
    assert "UNDEFINED" in {h.kind for h in answer.bad}
    assert {f.kind for f in answer.findings} == {OPEN}
    assert {f.why for f in answer.findings} == {
        "x, which it may order, is refuted as it is", "x, which it may keep, is refuted as it is",
    }  # fmt: skip


def conflicting(program: p.Program, rng: random.Random, runs: int) -> set[object]:
    """Pairs of operations that change a value in some random run."""
    found: set[object] = set()
    for _ in range(runs):
        try:
            player, done = random_run(program, rng, 30)
        except (events.InvalidRun, events.DesignError):
            continue
        structure = events.Structure(player, Run(tuple(done)))
        pairs = events.conflicts(structure)
        if not pairs or not events.feasible(structure):
            continue
        nodes = [structure.nodes[made] for made, _ in structure.accesses]
        places = [(by.thread, done[by.step].node) for by in nodes]
        found |= {(places[i], places[j]) for i, j in pairs[:60] if events.value_change(structure, i, j)[0]}
    return found


@pytest.mark.parametrize("meeting", [False, True])
def test_random_refuted_programs_against_concrete_runs(meeting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong in a run without a wait that is called redundant goes wrong in some run with it.

    And what is told of a needed one is no pair that the design leaves unordered as it is. Also where streams meet.
    """
    compared: collections.Counter[str] = collections.Counter()
    if meeting:
        monkeypatch.setattr(beyond, "STATES", 1_500)
        monkeypatch.setattr(decide, "STATES", 1_500)
    for seed in range(930_044, 930_048) if meeting else range(930_000, 930_000 + SEEDS):
        rng = random.Random(seed)
        program = meetings(rng) if meeting else generate(rng)
        if meeting and not Oracle(program, []).setting(frozenset()).meetings:
            continue
        if not 1 <= len(synchronisations(program)) <= 6:
            continue
        try:
            answer = waits(program, details=False, seconds=10.0)
        except events.DesignError:
            continue
        if not answer.bad or answer.open:
            continue
        oracle = Oracle(program, list(answer.syncs))
        anyway: set[object] = set()
        for at in oracle.locations:
            if oracle.verdict(at, ()).safe is False:
                anyway |= unordered(oracle.setting(frozenset()), at, 4.0) or set()
        if all(f.kind == OPEN for f in answer.findings):
            compared["open"] += 1
            continue
        for finding in answer.findings:
            compared[finding.kind] += 1
            if finding.kind in (REDUNDANT, USELESS):
                edited = without(program, [answer.syncs[finding.sync]])
                new = conflicting(edited, rng, 4 if meeting else 12) - anyway
                assert not new, f"seed {seed}: {finding.sync} is called {finding.kind}, and without it {new}"
                compared["runs"] += 1
            elif finding.kind == NEEDED:
                assert finding.program is not None and finding.run is not None
                structure = events.execute(finding.program, finding.run)
                changed = any(events.value_change(structure, *pair)[0] for pair in events.conflicts(structure))
                assert changed or events.undefined_reads(structure), f"seed {seed}"
                assert check(finding.program, explain=False).verdict == REFUTED
    assert compared[NEEDED] >= (2 if meeting else 5) and compared["runs"] >= (4 if meeting else 10), compared


def ranks(order: bool = True, twice: bool = False, early: bool = True) -> fp.Design:
    """A kernel reads too early in the stream of a collective; behind it a wait orders the collective itself."""
    d = fp.Design("ranks")
    group = d.communicator("tp", ("r0", "r1"))

    def rank(me: str) -> None:
        x, o = d.device(f"x {me}"), d.device(f"o {me}")
        comm = d.stream(f"comm {me}")

        @d.loop(me)
        def step() -> None:
            main = d.current_stream()
            d.launch("forward", writes=[x])
            with comm:
                if early and me == "r0":
                    d.launch("peek", reads=[x], writes=[o])
                if order:
                    comm.wait_stream(main)
                if twice:
                    comm.wait_stream(main)
                group.all_reduce(x)
            comm.synchronize()

    for number, name in enumerate(("r0", "r1")):
        with d.process(name, gpu=number):
            rank(name)
    return d


def test_where_streams_meet() -> None:
    """The object of one rank is refuted as it is; what orders the collective is decided all the same, and by hand it is so."""
    answer = waits(program_of(ranks, {}))
    assert {h.name for h in answer.bad} == {"RAW x r0"} and not answer.open
    assert [f.kind for f in answer.findings] == [NEEDED] * len(answer.findings) and len(answer.findings) == 4
    first = next(f for f in answer.findings if Told(answer).text(answer.syncs[f.sync]).startswith("comm r0.wait_stream"))
    assert {h.name for h in first.breaks} == {"WAW x r0"}
    without_it = check(program_of(ranks, {"order": False, "early": False}), explain=False)
    assert {h.name for h in without_it.hazards} == {"WAW x r0", "WAW x r1"}
    assert check(program_of(ranks, {"early": False}), explain=False).verdict == PROVED
    again = waits(program_of(ranks, {"twice": True}))
    kinds_of = [f.kind for f in again.findings]
    assert kinds_of.count(CONDITIONAL) == 4 and kinds_of.count(NEEDED) == 2 and OPEN not in kinds_of


# ---------------------------------------------------------------- weaker ones beside what may go


def rare(move: bool = False, keep: bool = True) -> fp.Design:
    """A wait at the top does the work of one in a branch, as long as its record stands at the end."""
    d = fp.Design("rare")
    m, g, r = d.pinned("m"), d.device("g"), d.pinned("rare")
    done, other = d.event("done"), d.event("other")

    @d.loop("t")
    def step() -> None:
        done.synchronize()
        m.write()
        g.copy_(m, non_blocking=True)
        if move:
            done.record()
        with d.maybe("rare"):
            if keep:
                other.synchronize()
            r.write()
            g.copy_(r, non_blocking=True)
            other.record()
        if not move:
            done.record()

    return d


def test_an_earlier_record_names_what_has_to_stay() -> None:
    """The record may stand earlier, and the other wait may go, and not both: the report says so."""
    answer = waits(program_of(rare, {}))
    first, second = answer.findings
    assert (first.kind, second.kind) == (NEEDED, REDUNDANT)
    assert [(one.how, one.stays) for one in first.weaker] == [("earlier record", (1,))]
    assert any("is enough while [2] stays" in line for line in Told(answer).details(first))
    assert check(program_of(rare, {"move": True}), explain=False).verdict == PROVED
    assert check(program_of(rare, {"move": True, "keep": False}), explain=False).verdict == REFUTED


def test_nothing_has_to_stay_where_nothing_else_stands() -> None:
    """Without the other buffer the same record may stand earlier for nothing."""
    answer = waits(program_of(late, {}))
    (finding,) = [f for f in answer.findings if f.kind == NEEDED]
    assert {(one.how, one.stays) for one in finding.weaker} == {("earlier record", ())}
    assert check(finding.weaker[0].program, explain=False).verdict == PROVED


def late() -> fp.Design:
    """The record stands behind work that nobody waits for, and a second wait repeats the first."""
    d = fp.Design("late")
    m, g, o = d.pinned("m"), d.device("g"), d.device("o")
    done = d.event("done")

    @d.loop("t")
    def step() -> None:
        done.synchronize()
        m.write()
        g.copy_(m, non_blocking=True)
        d.launch("forward", reads=[g], writes=[o])
        done.record()

    return d


def mixed(seed: int = 0) -> fp.Design:
    """Buffers that are filled and copied in turn, some in a branch; waits for and records of a few events anywhere between."""
    rng = random.Random(seed)
    d = fp.Design("mixed")
    buffers = [d.pinned(f"m{k}") for k in range(2)]
    g, o = d.device("g"), d.device("o")
    done = [d.event(f"e{k}") for k in range(2)]
    plan: list[tuple[str, int]] = [("fill", k) for k in range(2)]
    plan += [(rng.choice(("wait", "wait", "record", "work")), rng.randrange(2)) for _ in range(rng.randrange(2, 5))]
    rng.shuffle(plan)
    plan = [("wait", 0), *plan, ("record", 0), ("record", 1)]
    branch = rng.choice((True, False))

    def fill(k: int) -> None:
        if branch and k:
            done[1].synchronize()
        buffers[k].write()
        g.copy_(buffers[k], non_blocking=True)
        if branch and k:
            done[1].record()

    @d.loop("t")
    def step() -> None:
        for what, k in plan:
            if what == "wait":
                done[k].synchronize()
            elif what == "record":
                done[k].record()
            elif what == "work":
                d.launch("work", reads=[g], writes=[o])
            elif branch and k:
                with d.maybe("rare"):
                    fill(k)
            else:
                fill(k)

    return d


def test_random_weaker_ones_hold_beside_the_minimal_set() -> None:
    """Each weaker wait, with the minimal set alone and what it says has to stay, is proved as a design of its own."""
    count: collections.Counter[str] = collections.Counter()
    for seed in range(SEEDS):
        answer = waits(program_of(mixed, {"seed": seed}), seconds=10.0)
        if answer.bad or answer.open or not answer.complete:
            continue
        for finding in answer.findings:
            for one in finding.weaker:
                kept = {*answer.sets[0], *one.stays, finding.sync}
                gone = [sync for k, sync in enumerate(answer.syncs) if k not in kept]
                # The nodes of the whole program keep their numbers, and so does what stands at them.
                verdict = check(without(one.program, gone), explain=False).verdict
                assert verdict == PROVED, f"seed {seed}: {one.how} of {finding.sync}"
                count[f"{one.how}{', another stays' if one.stays else ''}"] += 1
    assert min(count["earlier record"], count["later"], count["earlier record, another stays"]) >= 2, count
