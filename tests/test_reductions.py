"""What keeps a search small must not change what it finds: threads that others keep going, merged witnesses, closed paths."""

from __future__ import annotations

import collections
import random

import pytest
from fencepost.designs import atom, vllm_v2
from fencepost.model import program as p
from fencepost.model.language.build import program_of
from fencepost.model.platform import ENVIRONMENTS, PLATFORMS
from fencepost.proofs.check import Checker
from fencepost.proofs.edits import SYNCHRONISATIONS
from fencepost.proofs.explain import Explainer
from fencepost.proofs.explore.locations import Location, locations
from fencepost.proofs.explore.reduction import driven
from fencepost.proofs.explore.search import Budget, OutOfBudget, Search
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.state import Unsupported
from fencepost.proofs.liveness import search as liveness

from program_writer import Writer, r, w
from random_meetings import meetings
from random_oracle import decide
from random_programs import generate
from random_rendezvous import generate as rendezvous

ITEM: tuple[tuple[str, tuple[str, ...]], ...] = (("", ()),)


def chain(*, skips: bool = False, back: bool = False) -> p.Program:
    """An engine that feeds a worker. `skips`: the worker may have a turn without a get; `back`: the worker answers."""
    x = Writer()
    down, up = x.add(p.Queue("down", 1, ITEM)), x.add(p.Queue("up", 1, ITEM))
    engine, worker = x.thread(), x.thread()
    get: p.Operation = p.Get(down, "", ())
    engine.body = [p.Put(down, "", ())]
    worker.body = [(p.Maybe("m"), {"yes": [get], "no": []}), *([] if skips else [get])]
    if back:
        engine.body.append(p.Get(up, "", ()))
        worker.body.append(p.Put(up, "", ()))
    return x.program("chain")


def test_a_worker_that_must_take_is_driven() -> None:
    """The engine is not: something has to move on every cycle."""
    assert driven(chain()) == [True, False] or driven(chain()) == [False, True]
    assert sum(driven(chain(back=True))) == 1


def test_a_worker_that_may_go_on_alone_is_not_driven_by_its_gets() -> None:
    """Its turns without a get are a cycle of their own; only the engine, whose puts it must take, is driven."""
    assert driven(chain(skips=True)) == [True, False]


def test_a_script_is_never_waited_for() -> None:
    """It has one turn, so no cycle has any."""
    x = Writer()
    x.add(p.Memory("m", "pinned"))
    x.thread("script").body = [p.Host("write", (w(p.Obj(0)),))]
    x.thread().body = [p.Host("read", (r(p.Obj(0)),))]
    assert driven(x.program("script")) == [True, False]


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_proof_search_finds_a_hazard_where_the_plain_search_does(stages: int, depth: int) -> None:
    """And stores far fewer states where there is none."""
    program = program_of(vllm_v2.uva_pool, {"stages": stages, "batch_queue_size": 2, "depth": depth})
    setting = Setting(program)
    for location in locations(program):
        proof, plain = Search(setting, location, proof=True), Search(setting, location)
        quick, full = proof.run(Budget()), plain.run(Budget())
        assert bool(quick.hazards) == bool(full.hazards)
        if not full.hazards:
            assert quick.size <= full.size


@pytest.mark.parametrize("parameters", [{}, {"ranks": 3}, {"adopts": "landed"}, {"adopts": "rank 0 says"}, {"waits": False}])
def test_ranks_that_await_each_other_keep_each_other_going(parameters: dict[str, object]) -> None:
    """All but one are driven; a proof search, which also orders states by what they know, finds what the plain one does."""
    program = program_of(atom.ell_across_ranks, parameters)
    setting = Setting(program)
    assert sum(setting.driven) == len(program.threads) - 1
    for location in locations(program):
        proof, plain = Search(setting, location, proof=True), Search(setting, location)
        quick, full = proof.run(Budget()), plain.run(Budget())
        assert bool(quick.hazards) == bool(full.hazards)
        if not full.hazards:
            assert quick.size < full.size


def test_ranks_that_meet_at_random() -> None:
    """A proof search finds a hazard iff the search does that interleaves everything."""
    count: collections.Counter[bool] = collections.Counter()
    for seed in range(150):
        program = meetings(random.Random(seed)) if seed % 2 else rendezvous(random.Random(seed))
        setting = Setting(program)
        for location in locations(program):
            try:
                plain = Search(setting, location, sliced=False, reduce=False).run(Budget(states=600))
                proof = Search(setting, location, proof=True).run(Budget(states=600))
            except (OutOfBudget, Unsupported):
                continue
            assert bool(proof.hazards) == bool(plain.hazards), (seed, location)
            count[bool(plain.hazards)] += 1
    assert count[True] >= 20 and count[False] >= 80, count


@pytest.mark.parametrize(("written", "expected"), [((2, 4), "proved"), ((1, 3), "refuted")])
def test_names_and_spans_of_one_buffer(written: tuple[int, int], expected: str) -> None:
    """A name may overlap any span, and yet two spans that share no element do not meet in it."""
    x = Writer()
    s, side, m = p.Obj(x.add(p.Stream("s"))), p.Obj(x.add(p.Stream("side"))), x.add(p.Memory("m", "device"))
    x.thread().body = [
        p.Launch("read", side, (r(p.Obj(m, p.Span(0, 2))),)),
        p.Launch("write", s, (r(p.Obj(m, p.Named("y"))), w(p.Obj(m, p.Span(*written))))),
    ]
    assert decide(x.program("parts")).word == expected
    named = [one for one in locations(x.program("parts")) if one.atom[:1] == ("both",)]
    assert Location("memory", m, ("both", "y", -1, -1)) in named


@pytest.mark.parametrize(("design", "parameters"), [
    (atom.deferred_output, {}), (atom.ell_landing_ring, {}), (vllm_v2.uva_pool, {"stages": 2, "batch_queue_size": 2, "depth": 3}),
])  # fmt: skip
def test_a_search_without_a_synchronisation_shares_what_was_compiled(design: object, parameters: dict[str, object]) -> None:
    """It finds a hazard where the search of the edited program does."""
    program = program_of(design, parameters)  # type: ignore[arg-type]
    setting = Setting(program)
    syncs = [(t, i) for t, thread in enumerate(program.threads) for i, n in enumerate(thread.nodes)
             if isinstance(n, p.Do) and isinstance(n.operation, SYNCHRONISATIONS)]  # fmt: skip
    found = []
    for location in locations(program):
        search = Search(setting, location, proof=True)
        for t, i in [at for at in syncs if at[1] not in search.passed[at[0]]][:6]:
            shared, fresh = search.without(t, i).run(Budget()), Search(Setting(program).without(t, i), location).run(Budget())
            assert bool(shared.hazards) == bool(fresh.hazards), (location, t, i)
            found.append(bool(shared.hazards))
        assert not search.run(Budget()).hazards  # it is as it was
    assert True in found


def test_masks_that_follow_from_others() -> None:
    """Of the environments some are decided by another one's answer: each says what a search of its own says."""
    told = 0
    for seed in range(90):
        program = generate(random.Random(seed))
        checker = Checker(program, PLATFORMS["cuda"], ENVIRONMENTS["bare"], Budget(states=500), False, (), explain=False)
        if checker.answer().verdict != "refuted":
            continue
        where, judged = Explainer(checker.setting), checker.judged[0]
        own = [name for name, environment in ENVIRONMENTS.items() if name != "bare" and where._clean(
            Search(Setting(program, PLATFORMS["cuda"], environment), judged.location, proof=True))]  # fmt: skip
        assert where.masks(judged) == own
        told += bool(own)
    assert told >= 5


def asking(rng: random.Random) -> p.Program:
    """A thread alone that puts and gets as queries of an event, and tests of the queue, say."""
    x = Writer()
    s, e = x.add(p.Stream("s")), x.add(p.Event("e"))
    q = x.add(p.Queue("q", rng.choice((1, 2, 3)), ITEM))

    def some(deep: int) -> list[object]:
        kinds = [p.Put(q, "", ()), p.Get(q, "", ()), p.Record(p.Obj(e), p.Obj(s)), p.EventSync(p.Obj(e))]
        tests = [p.EventQuery(p.Obj(e)), p.QueueFull(q), p.QueueHolds(q, 1), p.StreamQuery(p.Obj(s))]
        return [
            (rng.choice(tests), {"yes": some(deep - 1), "no": some(deep - 1)}) if deep and rng.random() < 0.6 else rng.choice(kinds)
            for _ in range(rng.choice((1, 2, 3)))
        ]

    x.thread().body = [p.Launch("work", p.Obj(s), ()), *some(2)]
    return x.program("asking")


def test_a_thread_alone_that_queries() -> None:
    """It hangs iff the search that follows the device says so."""
    hangs = free = 0
    for seed in range(250):
        program = asking(random.Random(seed))
        if not liveness.follows_device(program):
            continue
        whole, got = liveness._search(program, liveness.STATES, alone=True), liveness.search(program)
        assert got.bounded is None and (got.hang is None) == (whole.hang is None), seed
        hangs, free = hangs + (whole.hang is not None), free + (whole.hang is None)
    assert hangs >= 10 and free >= 10, (hangs, free)
