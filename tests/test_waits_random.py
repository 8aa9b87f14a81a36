"""Random programs without some of their edges: the explorer against concrete runs, and monotone as the sets assume."""

from __future__ import annotations

import collections
import itertools
import random
from functools import partial

import msgspec
import pytest
from fencepost.engines import Question, ask
from fencepost.model import program as p
from fencepost.model.answer import PROVED, REFUTED, UNKNOWN
from fencepost.model.events import DesignError
from fencepost.proofs import edits
from fencepost.proofs.check import check
from fencepost.proofs.explore.locations import Location
from fencepost.proofs.explore.search import Budget
from fencepost.proofs.waits import decide as decide_waits
from fencepost.proofs.waits.catalogue import Sync, operation, synchronisations, without
from fencepost.proofs.waits.classify import CONDITIONAL, NEEDED, REDUNDANT, USELESS, waits
from fencepost.proofs.waits.sufficient import joined, minimal_sufficient
from fencepost.simulator import random_designs

from random_oracle import decide, find_bad_run
from random_programs import generate

COUNT = 30
"""Programs of each of the two parts."""

FEW = Budget(states=4_000, seconds=4.0)


@pytest.mark.parametrize("part", range(2))
def test_edited_programs(part: int) -> None:
    """No proof of an edited program that a concrete run contradicts; and what is safe stays safe with more edges."""
    count: collections.Counter[str] = collections.Counter()
    removed: collections.Counter[str] = collections.Counter()
    for seed in range(900_000 + part * 10_000, 900_000 + part * 10_000 + COUNT):
        rng = random.Random(seed)
        program = generate(rng)
        gone = [sync for sync in synchronisations(program) if rng.random() < 0.5]
        if not gone:
            continue
        edited = without(program, gone)
        removed.update(sync.kind for sync in gone)
        less = decide(edited, states=250)
        count[less.word] += 1
        if less.word == "proved":
            assert find_bad_run(edited, rng, runs=12) is None, f"seed {seed}: a run contradicts the proof"
            more = decide(program, states=500)
            assert more.word != "refuted", f"seed {seed}: safe only without edges"
    assert count["proved"] >= 3 and count["refuted"] >= 3
    assert set(removed) >= {"host wait", "stream wait"}


def test_the_whole_answer_is_that_of_its_locations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What any location needs stays while the sets of the others are looked for; location by location gives the same."""
    monkeypatch.setattr(decide_waits, "STATES", 400)
    compared: collections.Counter[str] = collections.Counter()
    for seed in range(910_000, 910_070):
        program = generate(random.Random(seed))
        syncs = synchronisations(program)
        if not 2 <= len(syncs) <= 6:
            continue
        answer = waits(program, details=False)
        if answer.bad or answer.open or not answer.complete:
            continue
        oracle = decide_waits.Oracle(program, syncs)
        families = [minimal_sufficient(sorted(oracle.relevant(at)), partial(_safe, oracle, at)) for at in oracle.locations]
        if any(family.unsure for family in families):
            continue
        assert {frozenset(one) for one in answer.sets} == set(joined(families).sets), f"seed {seed}"
        compared["some may go while others stay" if len(answer.sets) > 1 else "one set"] += 1
        needed = [f.sync for f in answer.findings if f.kind == NEEDED]
        assert set(needed) == set.intersection(*(set(one) for one in answer.sets)), f"seed {seed}"
    assert compared["one set"] >= 10, compared


FAMILIES = {"alone": (610_740, 60), "platform": (610_020, 25)}
"""Random designs: host threads and streams; IPC, graphs, callbacks, device flags. With the first seed of each and how many there are."""


@pytest.mark.parametrize("family", FAMILIES)
def test_classes_against_every_subset(family: str) -> None:
    """Each subset of the edges taken away and checked as a design of its own gives the sets and classes that `waits` gives.

    Some waits are written twice, so that one can stand in for the other.
    """
    compared: collections.Counter[str] = collections.Counter()
    first, count = FAMILIES[family]
    for seed in range(first, first + count):
        try:
            program = doubled(random_designs.generate(seed, family).program(), random.Random(seed))
        except ValueError:
            continue  # the language refuses it
        syncs = synchronisations(program)
        if not 2 <= len(syncs) <= 4:
            continue
        try:
            answer = waits(program, details=False, seconds=20.0)
        except DesignError:
            continue
        if answer.bad or answer.open or not answer.complete:
            continue
        verdicts = {gone: check(without(program, gone), explain=False, budget=FEW).verdict for gone in subsets(syncs)}
        if UNKNOWN in verdicts.values():
            continue
        enough = [frozenset(range(len(syncs))) - {syncs.index(one) for one in gone} for gone, v in verdicts.items() if v == PROVED]
        least = {one for one in enough if not any(other < one for other in enough)}
        assert {frozenset(one) for one in answer.sets} == least, f"seed {seed}"
        needed, some = frozenset.intersection(*least), frozenset[int]().union(*least)
        for finding in answer.findings:
            k = finding.sync
            wanted = (NEEDED,) if k in needed else (CONDITIONAL,) if k in some else (REDUNDANT, USELESS)
            assert finding.kind in wanted, f"seed {seed}"
            compared[finding.kind] += 1
            for other in finding.alternatives:
                left = [(one - {k}) | set(other) for one in least if k in one]
                assert all(any(fewer <= kept for fewer in least) for kept in left), f"seed {seed}"
    assert family != "alone" or min(compared[kind] for kind in (NEEDED, CONDITIONAL, REDUNDANT, USELESS)) >= 5, compared


PLAIN = ("host wait", "stream wait", "record_stream")
"""Kinds that exist for their edge alone: without it the line could as well not be there."""


def test_sets_against_the_machine() -> None:
    """Each subset of the lines deleted, and run on the machine, which knows of no edges: it shows just what no set covers."""
    count: collections.Counter[str] = collections.Counter()
    for seed in (2_015, 2_029, 2_082, 2_158, 2_177, 2_223, 2_275, 2_309):
        program = doubled(generate(random.Random(seed)), random.Random(seed))
        syncs = [one for one in synchronisations(program) if one.kind in PLAIN]
        if not 1 <= len(syncs) <= 4 or len(syncs) < len(synchronisations(program)):
            continue
        answer = waits(program, details=False, seconds=20.0)
        if answer.bad or answer.open or not answer.complete:
            continue
        for gone in subsets(syncs):
            kept = {k for k, one in enumerate(syncs) if one not in gone}
            safe = any(kept.issuperset(one) for one in answer.sets)
            question = Question(engine="simulate", examples=25, seed=seed, explain=False)
            found = ask(deleted(program, gone), question).verdict
            assert (found == REFUTED) is not safe, f"seed {seed} without {[one.at for one in gone]}: {found}"
            count["safe" if safe else "refuted"] += 1
    assert count["safe"] >= 30 and count["refuted"] >= 40, count


def deleted(program: p.Program, gone: tuple[Sync, ...]) -> p.Program:
    """The program without these lines: no node is left of them."""
    threads = []
    for t, thread in enumerate(program.threads):
        away = {n for one in gone for u, n in one.nodes if u == t}
        left = [n for n in range(len(thread.nodes)) if n not in away]
        numbers = {n: k for k, n in enumerate(left)}

        def to(n: int, thread: p.Thread = thread, away: set[int] = away, numbers: dict[int, int] = numbers) -> int:
            while n in away:
                n = thread.nodes[n].next  # type: ignore[union-attr]
            return n if n == p.END else numbers[n]

        nodes: list[p.Node] = []
        for n in left:
            node = thread.nodes[n]
            if isinstance(node, p.Do):
                nodes.append(msgspec.structs.replace(node, next=to(node.next)))
            else:
                nodes.append(msgspec.structs.replace(node, branches=tuple((answer, to(after)) for answer, after in node.branches)))
        threads.append(msgspec.structs.replace(thread, nodes=tuple(nodes), entry=to(thread.entry)))
    return msgspec.structs.replace(program, threads=tuple(threads), implied=msgspec.UNSET)


def subsets(syncs: list[Sync]) -> list[tuple[Sync, ...]]:
    """All subsets, as what is taken away."""
    return [gone for count in range(len(syncs) + 1) for gone in itertools.combinations(syncs, count)]


def doubled(program: p.Program, rng: random.Random) -> p.Program:
    """The program with one or two of its waits once more: at the same place, or elsewhere in the thread. Each node is a place."""
    for _ in range(rng.choice((1, 2))):
        waits_ = [s for s in synchronisations(program) if s.kind in ("host wait", "stream wait", "record_stream")]
        if not waits_:
            break
        t, n = rng.choice(waits_).at
        op = operation(program, (t, n))
        named = [getattr(op, field) for field in op.__struct_fields__]
        here = any(isinstance(x, p.Local) or (isinstance(x, p.Slot) and isinstance(x.index, p.Var)) for x in named)
        others = [i for i, node in enumerate(program.threads[t].nodes) if isinstance(node, p.Do)]
        program = edits.insert_after(program, t, n if here else rng.choice(others), op)
    threads = [
        msgspec.structs.replace(thread, nodes=tuple(msgspec.structs.replace(node, site=-1) for node in thread.nodes))
        for thread in program.threads
    ]
    return msgspec.structs.replace(program, threads=tuple(threads), places=())


def _safe(oracle: decide_waits.Oracle, at: Location, gone: frozenset[int]) -> bool | None:
    return oracle.verdict(at, gone).safe


def test_a_raw_pointer_into_a_free_block() -> None:
    """Found by random programs: what the last owner never wrote is undefined, also once the block is free."""
    stream = p.Obj(0)
    nodes: tuple[p.Node, ...] = (
        p.Do(p.Alloc(0, "device", stream), 1),
        p.Do(p.View(1, p.Local(0), held=False), 2),
        p.Do(p.Drop(0), 3),
        p.Do(p.Launch("use", stream, (p.Access(p.Local(1), "r"),)), p.END),
    )
    locals_ = (p.LocalInfo("block", p.MEMORY), p.LocalInfo("pointer", p.MEMORY))
    program = p.Program("pointer", (p.Stream("main"),), (p.Thread("t", "loop", nodes, 0, locals_),))
    decision = decide(program)
    assert decision.word == "refuted" and find_bad_run(program, random.Random(0)) is not None
