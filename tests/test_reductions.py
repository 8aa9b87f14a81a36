"""What keeps a search small must not change what it finds: threads that others keep going, merged witnesses, closed paths."""

from __future__ import annotations

import pytest
from fencepost.designs import vllm_v2
from fencepost.model import program as p
from fencepost.model.language.build import program_of
from fencepost.proofs.explore.locations import Location, locations
from fencepost.proofs.explore.reduction import driven
from fencepost.proofs.explore.search import Budget, Search
from fencepost.proofs.explore.setting import Setting

from program_writer import Writer, r, w
from random_oracle import decide

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
