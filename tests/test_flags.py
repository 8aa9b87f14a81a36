"""Flags that no query and no wait of a stream looks at are not kept: the answers stay, and results outstanding cost no states."""

from __future__ import annotations

import collections
import random

import pytest
from fencepost.model import program as p
from fencepost.model.platform import BARE, ENVIRONMENTS, PLATFORMS, Environment
from fencepost.proofs.explore.flags import ALL
from fencepost.proofs.explore.locations import Location, locations
from fencepost.proofs.explore.search import Budget, OutOfBudget, Reach, Search
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.state import RECORDED, Unsupported

from program_writer import Tree, Writer, r, w
from random_programs import generate

SHARED = ENVIRONMENTS["one-hardware-queue"]
CUDA = PLATFORMS["cuda"]


def outstanding(count: int, hands_over: bool, waits: bool = False) -> p.Program:
    """Two kinds of step and `count` results outstanding; the second kind fills a slot, too, and may hand nothing over.

    `waits`: another stream waits for each result.
    """
    x = Writer()
    slot, dev = x.add(p.Memory("slot", "pinned", count)), x.add(p.Memory("dev", "device"))
    s, side = p.Obj(x.add(p.Stream("s"))), p.Obj(x.add(p.Stream("side")))
    q = x.add(p.Queue("results", count, (("sample", (p.EVENT,)), ("other", (p.EVENT,)))))
    t = x.thread()
    done, oldest = t.local("done", p.EVENT), t.local("oldest", p.EVENT)
    at = p.Slot(slot, p.Turn(0))
    fill: Tree = [p.Host("fill", (w(at),)), p.Launch("forward", s, (r(at), w(p.Obj(dev))))]
    event: Tree = [p.NewEvent(done), p.Record(p.Local(done), s)]
    if waits:
        event.append(p.StreamWaitEvent(side, p.Local(done)))
    if not hands_over:
        event = [p.NewEvent(done)]
    take: Tree = [p.Get(q, "sample", (oldest,)), p.EventSync(p.Local(oldest))]
    also: Tree = [p.Get(q, "other", (oldest,)), p.EventSync(p.Local(oldest))]
    recorded: Tree = [p.NewEvent(done), p.Record(p.Local(done), s), *([p.StreamWaitEvent(side, p.Local(done))] if waits else [])]
    kinds = p.Choose("kind", ("sample", "other"))
    t.body = [
        (kinds, {
            "sample": [*fill, *recorded, p.Put(q, "sample", (p.Local(done),))],
            "other": [*fill, *event, p.Put(q, "other", (p.Local(done),))],
        }),
        (p.QueueFull(q), {"yes": [(p.QueueTag(q), {"sample": take, "other": also})], "no": []}),
    ]  # fmt: skip
    return x.program("outstanding")


def explored(
    program: p.Program, environment: Environment, location: Location | None, kept: bool, plain: bool = False, states: int = 6_000
) -> Reach:
    """The reach of one location. `kept`: with all flags; `plain`: with no reduction at all."""
    setting = Setting(program, CUDA, environment)
    if kept:
        setting.flags = None
    return Search(setting, location, sliced=not plain, reduce=not plain).run(Budget(states=states))


HOW = ((False, False), (True, False), (True, True))
"""Lean, with all flags, and with no reduction."""


def clean(reach: Reach) -> bool:
    """Whether nothing but writes of the same bytes was found."""
    return all(found.kind == "same bytes" for found in reach.hazards)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("hands_over", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_one_hardware_queue_masks_what_it_did(count: int, hands_over: bool, waits: bool) -> None:
    """The same answer with all flags and with no reduction, and never more states."""
    program = outstanding(count, hands_over, waits)
    for location in locations(program):
        lean, whole = explored(program, SHARED, location, False), explored(program, SHARED, location, True)
        plain = explored(program, SHARED, location, True, plain=True)
        assert clean(lean) == clean(whole) == clean(plain)
        assert lean.size <= whole.size


@pytest.mark.parametrize("hands_over", [True, False])
def test_results_outstanding_cost_what_they_cost_on_the_bare_platform(hands_over: bool) -> None:
    """A record is an item of its own in the shared queue; nobody can ask whether it is over."""
    program = outstanding(32, hands_over)
    slot = next(location for location in locations(program) if location.label(program) == "slot")
    shared, bare = explored(program, SHARED, slot, False), explored(program, BARE, slot, False)
    assert clean(shared) == clean(bare) == hands_over
    assert shared.size == bare.size <= 4 * 32


def test_what_is_kept() -> None:
    """What a query looks at, and what decides that: along handles, streams that wait, and streams that share a queue."""
    x = Writer()
    x.add(p.Memory("m", "pinned"))
    asked, told, other, plain = (x.add(p.Event(name)) for name in ("asked", "told", "other", "plain"))
    s, side, far = (x.add(p.Stream(name)) for name in ("s", "side", "far"))
    q = x.add(p.Queue("q", 1, (("", (p.EVENT,)),)))
    a, b = x.thread(), x.thread()
    got = b.local("got", p.EVENT)
    a.body = [
        p.Record(p.Obj(told), p.Obj(side)), p.StreamWaitEvent(p.Obj(s), p.Obj(told)), p.Record(p.Obj(asked), p.Obj(s)),
        p.StreamWaitEvent(p.Obj(far), p.Obj(other)), p.Record(p.Obj(plain), p.Obj(far)), p.Record(p.Obj(other), p.Obj(far)),
        p.Put(q, "", (p.Obj(asked),)), (p.EventQuery(p.Obj(asked)), {"yes": [], "no": []}),
    ]  # fmt: skip
    b.body = [p.Get(q, "", (got,)), p.EventSync(p.Local(got))]
    program = x.program("kept")
    flags = Setting(program).flags
    assert flags is not None
    assert [flags.event(0, p.Obj(event)) for event in (asked, told, other, plain)] == [ALL, ALL, RECORDED, 0]
    assert flags.event(1, p.Local(got)) == ALL  # a synchronise there makes a "no" impossible here
    assert [flags.calls(p.Obj(stream)) for stream in (s, side, far)] == [True, True, False]
    shared = Setting(program, CUDA, SHARED).flags
    assert shared is not None
    assert [shared.calls(p.Obj(stream)) for stream in (s, side, far)] == [True, True, True]
    assert [shared.event(0, p.Obj(event)) for event in (other, plain)] == [ALL, 0]
    assert Setting(outstanding(2, True)).flags is None  # nobody asks


def test_a_handle_that_another_thread_waits_for() -> None:
    """After that thread's synchronise a query can only say yes, so the write behind a "no" is never reached there."""
    x = Writer()
    m, dev = x.add(p.Memory("m", "pinned")), x.add(p.Memory("dev", "device"))
    event, s = x.add(p.Event("e")), x.add(p.Stream("s"))
    there, back = (x.add(p.Queue(name, 1, (("", (p.EVENT,) if name == "there" else ()),))) for name in ("there", "back"))
    a, b = x.thread(), x.thread()
    got = b.local("got", p.EVENT)
    unordered: Tree = [p.Host("write", (w(p.Obj(m)),))]
    a.body = [
        p.Launch("k", p.Obj(s), (r(p.Obj(m)), w(p.Obj(dev)))), p.Record(p.Obj(event), p.Obj(s)), p.Put(there, "", (p.Obj(event),)),
        p.Get(back, "", ()), (p.EventQuery(p.Obj(event)), {"yes": [], "no": unordered}),
    ]  # fmt: skip
    b.body = [p.Get(there, "", (got,)), p.EventSync(p.Local(got)), p.Put(back, "", ())]
    program = x.program("handle")
    for environment in (BARE, SHARED):
        reach = explored(program, environment, None, False)
        assert {answer for _, _, answer in reach.answers} == {"yes"}


@pytest.mark.parametrize("environment", [BARE, SHARED], ids=lambda one: one.name)
def test_random_programs(environment: Environment) -> None:
    """Lean, with all flags, and with no reduction: the same answer at each location; control reaches the same."""
    count: collections.Counter[str] = collections.Counter()
    seeds = range(30) if environment is SHARED else range(300)
    for seed in seeds:
        program = generate(random.Random(seed))
        asks = [node.question for thread in program.threads for node in thread.nodes if isinstance(node, p.Ask)]
        if environment is BARE and not any(isinstance(question, (p.EventQuery, p.StreamQuery)) for question in asks):
            continue
        for location in [None, *locations(program)]:
            try:
                lean, whole, plain = (explored(program, environment, location, *how, states=500) for how in HOW)
            except (OutOfBudget, Unsupported):
                count["open"] += 1
                continue
            assert clean(lean) == clean(whole) == clean(plain), f"seed {seed}, {location}"
            count["clean" if clean(lean) else "hazard"] += 1
            count["smaller"] += lean.size < whole.size
            if location is None:
                assert (lean.nodes, lean.answers, lean.turns) == (whole.nodes, whole.answers, whole.turns), f"seed {seed}"
    assert count["clean"] >= 25 and count["hazard"] >= 3 and count["smaller"] >= 3 and count["open"] <= 40, count
