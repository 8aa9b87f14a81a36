"""Conditions against the explorer on random designs, walks against networkx, and what the tracer must refuse."""

from __future__ import annotations

import random

import fencepost as fp
import pytest
from fencepost.designs import bounds, ring, vllm_v2
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check
from fencepost.proofs.periodic.conditions import condition
from fencepost.proofs.periodic.decide import spelled
from fencepost.proofs.periodic.graph import Graph
from fencepost.proofs.periodic.symbols import Poly, Refused, Region, Symbolic
from fencepost.proofs.periodic.trace import regions
from fencepost.proofs.periodic.walks import Signs, walks
from fencepost.report.condition import headline

from periodic_designs import compare


@pytest.mark.parametrize("first", range(0, 32, 8))
def test_conditions_agree_with_the_explorer_on_random_designs(first: int) -> None:
    """On a grid of depth and lag; most designs must have an exact condition, or the test says little."""
    kinds = []
    for seed in range(first, first + 8):
        kind, wrong = compare(seed, top=2)
        kinds.append(kind)
        assert not wrong
    assert kinds.count("exact") >= 5


@pytest.mark.parametrize("first", range(0, 16, 8))
def test_conditions_agree_where_every_turn_is_of_one_of_two_kinds(first: int) -> None:
    """Both kinds have operations of their own, most of them equal, now and then in another order."""
    found = []
    for seed in range(first, first + 8):
        kind, wrong = compare(seed, top=2, kinds=True)
        found.append(kind)
        assert not wrong
    assert found.count("exact") >= 3


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_conditions_agree_where_items_and_takes_differ_by_kind_of_step(first: int) -> None:
    """An engine, a worker and an output thread: results, waits, reads and takes in some kinds of step only."""
    found = []
    for seed in range(first, first + 8):
        kind, wrong = compare(seed, top=2, of_engines=True)
        found.append(kind)
        assert not wrong
    assert found.count("exact") >= 3


@pytest.mark.parametrize("seed", [1173])
def test_disagreements_that_were_found(seed: int) -> None:
    """1173: streams in rotation that wait for each other across steps have more exact distances than their periods."""
    assert compare(seed)[1] == []


@pytest.mark.parametrize("design", [ring.ring, ring.hand_over, bounds.rotation_with_results, vllm_v2.uva_pool])
def test_symbolic_walks_are_shortest_at_every_value(design: object) -> None:
    """The least of the polynomials is what Bellman and Ford find in the same graph with numbers."""
    import networkx as nx

    names = {"ring": ["depth", "outstanding"], "hand_over": ["depth", "capacity"], "uva_pool": ["depth", "batch_queue_size"],
             "rotation_with_results": ["depth", "outstanding", "streams"]}[design.__name__]  # type: ignore[attr-defined]  # fmt: skip
    answers = {("choose", "engine core", "scheduler"): "batch"}
    (traced,) = [one for one in regions(design, {}, names) if one.program is not None]  # type: ignore[arg-type]
    assert traced.program is not None
    graph = Graph(traced.program, traced.region, answers)
    signs = Signs(list(traced.region.facts))
    rng = random.Random(1)
    compared = 0
    for _ in range(3):
        values = {name: rng.randrange(1, 9) for name in names}
        concrete = nx.DiGraph()
        for source, out in enumerate(graph.out):
            for target, weight in out:
                known = concrete.get_edge_data(source, target, {"weight": 10**6})["weight"]
                concrete.add_edge(source, target, weight=min(known, weight.at(values)))
        for touch in graph.touches:
            lengths = nx.single_source_bellman_ford_path_length(concrete, touch.node.number)
            for number, (every, _) in walks(graph, touch.node, signs).items():
                if number != touch.node.number:
                    assert min(w.at(values) for w in (*every.serial, *every.rotating)) == lengths[number]
                    compared += 1
    assert compared > 20


# ---------------------------------------------------------------- stand-ins for integers


def test_a_symbolic_integer_takes_down_what_it_decides() -> None:
    """Sums stay polynomials, comparisons become facts, and what needs the value pins it."""
    region = Region({"a": 3, "b": 4})
    a, b = (Symbolic(Poly.var(name), region) for name in ("a", "b"))
    assert isinstance(a, int) and not isinstance(a, bool)
    assert str((2 * a + b - 1).poly) == "2 * a + b - 1" and (a - a) == 0
    assert a < b and bool(a) and a != b and region.pinned is None
    assert {str(fact) for fact in region.facts} == {"-a + b - 1 >= 0", "a != 0", "a - b != 0"} or len(region.facts) == 3
    assert list(range(a)) == [0, 1, 2] and region.pinned is not None


def loops(depth: int = 2, takes: int = 1, kind: str = "plain") -> fp.Design:
    """Loops over a parameter that cannot be summarised, by kind."""
    d = fp.Design("loops")
    buf = d.pinned("buf", depth=depth)
    position = d.cursor("position", depth)

    @d.loop("host")
    def step() -> None:
        count, at = 0, position.advance()
        for i in range(takes):
            count += takes  # what a repetition leaves behind
            if kind == "index":
                buf[at + i].write()
            elif kind == "waits":
                d.current_stream().synchronize()
            else:
                buf[at].write()
                d.launch("use", reads=[buf[at]])

    return d


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("index", "the number of a repetition is used"),
        ("plain", "a repetition of a loop over a parameter depends on the repetitions before it"),
        ("waits", "a loop over a parameter"),
    ],
)
def test_what_a_repetition_must_not_do(kind: str, why: str) -> None:
    """A repetition that counts, that uses its number, or that waits, is not summarised: unknown, with the reason."""
    found = condition(loops, ["depth", "takes"], {"kind": kind})
    assert found.verdict == "unknown"
    assert any(why in reason for reason in found.reasons), found.reasons


def by_value(depth: int = 2) -> fp.Design:
    """The number of copies is the parameter: structure, not weight."""
    d = fp.Design("by value")
    buffers = [d.pinned(f"buf {i}") for i in range(depth)]

    @d.loop("host")
    def step() -> None:
        for buffer in buffers:
            buffer.write()

    return d


def branches(depth: int = 2) -> fp.Design:
    """A parameter that decides by comparisons: each side is a region of its own."""
    d = fp.Design("branches")
    buf = d.pinned("buf", depth=depth)
    dev = d.device("dev")
    done = d.event("done", depth=2)

    @d.loop("host")
    def step(n: fp.Turn) -> None:
        if depth < 4:
            d.current_stream().synchronize()
        else:
            done[n].synchronize()
        buf[n].write()
        dev.copy_(buf[n], non_blocking=True)
        done[n].record()

    return d


def test_structure_and_regions() -> None:
    """A pinned parameter is unknown with its place; a comparison splits the values."""
    found = condition(by_value, ["depth"])
    assert found.verdict == "unknown" and "changes the structure" in found.reasons[0] and "test_condition.py" in found.reasons[0]
    found = condition(branches, ["depth"])
    assert found.verdict == "exact" and spelled(found.safe, found.names) == "always"
    with pytest.raises(Refused):
        regions(by_value, {}, ["depth"])


def late_first_get(depth: int = 2, outstanding: int = 2) -> fp.Design:
    """The test of the queue comes before the put: one result more is outstanding."""
    d = fp.Design("late first get")
    buf = d.pinned("buf", depth=depth)
    results = d.queue("results", capacity=outstanding, item=(fp.EVENT,))

    @d.loop("host")
    def step(n: fp.Turn) -> None:
        buf[n].write()
        if results.full():
            results.get().synchronize()
        d.launch("use", reads=[buf[n]])
        done = d.event("done")
        done.record()
        results.put(done)

    return d


def reads_ahead(depth: int = 2, outstanding: int = 2) -> fp.Design:
    """A kernel reads the slot of the step before as well."""
    d = fp.Design("reads ahead")
    buf = d.pinned("buf", depth=depth)
    results = d.queue("results", capacity=outstanding, item=(fp.EVENT,))

    @d.loop("host")
    def step(n: fp.Turn) -> None:
        buf[n].write()
        d.launch("use", reads=[buf[n], buf[n - 1]])
        done = d.event("done")
        done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


@pytest.mark.parametrize(
    ("design", "wanted"),
    [(late_first_get, "depth >= outstanding + 1"), (reads_ahead, "depth >= outstanding + 1 or (depth <= 1 and outstanding <= 1)")],
)
def test_small_designs(design: object, wanted: str) -> None:
    """Each with the inequality it must have, on both sides of which the explorer is asked."""
    found = condition(design, ["depth", "outstanding"])  # type: ignore[arg-type]
    assert found.verdict == "exact" and spelled(found.safe, found.names) == wanted
    for outstanding in (1, 2, 4):
        for depth in (outstanding, outstanding + 1):
            values = {"depth": depth, "outstanding": outstanding}
            verdict = check(program_of(design, values), explain=False).verdict  # type: ignore[arg-type]
            assert verdict == ("proved" if found.is_safe(values) else "refuted"), values


def test_an_engine_with_kinds_of_items_that_are_never_put() -> None:
    """A tag that nobody puts is no choice: vLLM V2's persistent host buffer, safe with one batch in flight only."""
    found = condition(vllm_v2.attention_metadata, ["batch_queue_size"])
    assert found.verdict == "exact" and spelled(found.safe, found.names) == "batch_queue_size <= 1"


def stuck(depth: int = 2, capacity: int = 2) -> fp.Design:
    """It wants three results in a queue before it takes one: with less room it waits for ever."""
    d = fp.Design("stuck")
    buf = d.pinned("buf", depth=depth)
    results = d.queue("results", capacity=capacity, item=(fp.EVENT,))
    other = d.queue("other", capacity=3, item=())

    @d.loop("host")
    def step(n: fp.Turn) -> None:
        buf[n].write()
        d.launch("use", reads=[buf[n]])
        done = d.event("done")
        done.record()
        results.put(done)
        other.put()
        if other.full():
            other.get()
            results.get().synchronize()

    return d


def test_values_that_hang_are_no_condition() -> None:
    """A circle of waits of no steps: said, and no claim about safety made."""
    found = condition(stuck, ["depth", "capacity"])
    assert found.verdict == "exact" and spelled(found.safe, found.names) == "depth >= 3"
    assert found.is_safe({"depth": 9, "capacity": 2}) is None and found.is_safe({"depth": 3, "capacity": 3}) is True
    assert any("waits for itself" in note for note in found.notes)


def prepared(depth: int = 2) -> fp.Design:
    """A thread that runs once: no periodic event graph."""
    d = fp.Design("prepared")
    slots, rows, stream = d.pinned("slots", depth=depth), d.device("rows"), d.stream("stream")

    @d.setup
    def prepare() -> None:
        slots[0].write()

    @d.loop("worker", stream=stream)
    def step(n: fp.Turn) -> None:
        slots[n].write()
        rows.copy_(slots[n], non_blocking=True)
        stream.synchronize()

    return d


def test_what_the_method_says_nothing_about_is_no_gap_between_proof_and_refutation() -> None:
    found = condition(prepared, ["depth"])
    assert headline(found) == ["unknown: neither proved nor refuted for any value"]
    assert found.reasons == ("thread 'setup' runs once (setup); only loops are periodic",)
