"""What synchronisations cost beside the periodic event graph: steady turns, the machine, memory held, locks, bounds."""

from __future__ import annotations

from pathlib import Path

import fencepost as fp
import pytest
from fencepost import steady
from fencepost.check import build, cases
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.answer import PROVED
from fencepost.model.language.build import program_of
from fencepost.model.platform import PLATFORMS
from fencepost.proofs.waits import break_even
from fencepost.proofs.waits.break_even import MOST_OPERATIONS, BreakEven
from fencepost.proofs.waits.catalogue import BOUND, HOLD, HOST, LOCK, STREAM, USE, synchronisations, without
from fencepost.wait_costs import wait_costs

pytest.importorskip("networkx")
pytest.importorskip("z3")

ROOT = Path(__file__).resolve().parent.parent
CUDA = PLATFORMS["cuda"]


def variant(target: str, label: str) -> p.Program:
    """The program of a declared variant."""
    (found,) = load([str(ROOT / target)])
    (case,) = [case for case in cases([found]) if case.label == label]
    return build(found, case.parameters)


def costs(program: p.Program) -> tuple[list[tuple[str, str | None]], str, str]:
    """((kind, cost) of each synchronisation, why there is no break-even, which steps it is about)."""
    syncs = synchronisations(program)
    found = wait_costs(program, CUDA, syncs)
    return [(sync.kind, found.texts.get(k)) for k, sync in enumerate(syncs)], found.why, found.of


def test_first_turns_that_differ() -> None:
    """The V2 manager does things in its first turns only; its steady turns are periodic and have break-evens."""
    program = variant("designs/tensorrt_llm.py::v2_manager", "W1 + W2 + W3 (#14674)")
    assert "first turns" in BreakEven(program).why
    rows, why, of = costs(program)
    assert not why and "prep event.empty(): no" in of
    texts = [text for kind, text in rows if kind in (HOST, STREAM)]
    assert all(text is not None and "measured" not in text for text in texts)
    assert any(text.startswith("free while") for text in texts) and any("costs nothing" in text for text in texts)  # type: ignore[union-attr]


def test_the_steady_turns_are_those_of_the_periodic_design() -> None:
    """A design that is periodic but for a cell that starts empty has the same break-evens as its twin without the test."""

    def design(tested: bool) -> fp.Design:
        d = fp.Design("twin")
        staging, out = d.pinned("staging"), d.device("out")
        done = d.event("done")
        first = d.cell("first", item=(fp.EVENT,))

        @d.loop("worker")
        def step() -> None:
            if tested and first.empty():
                d.host("warm up", writes=[staging])
                first.set(done)
            done.synchronize()
            staging.write()
            out.copy_(staging, non_blocking=True)
            done.record()
            d.launch("forward", reads=[out])

        return d

    plain, _, nothing = costs(program_of(design, {"tested": False}))
    (rows, why, of) = costs(program_of(design, {"tested": True}))
    assert not why and not nothing and of == "first.empty(): no"
    assert [row for row in rows if row[0] == HOST] == [row for row in plain if row[0] == HOST]


def test_measured_where_no_turn_is_steady() -> None:
    """Turns that alternate are no steady turn: the machine says what each wait adds, with short device work and with long."""

    def design() -> fp.Design:
        d = fp.Design("alternating")
        staging, out, side = d.pinned("staging"), d.device("out"), d.stream("side")
        done, odd = d.event("done"), d.cell("odd", item=(fp.EVENT,))

        @d.loop("worker")
        def step() -> None:
            if odd.empty():
                odd.set(done)
            else:
                odd.clear()
            side.synchronize()
            staging.write()
            out.copy_(staging, non_blocking=True, stream=side)
            done.record(stream=side)

        return d

    program = program_of(design, {})
    outcome = steady.run(program, {})
    assert outcome is not None and steady.turns_of(program, outcome) is None
    rows, why, of = costs(program)
    assert why and not of
    # Nothing else makes the host wait: without it the copies pile up.
    ((_, text),) = [row for row in rows if row[0] == HOST]
    assert text is not None and text.startswith("measured: adds ") and "100 times the device work" in text


def test_what_keeps_memory() -> None:
    """References and record_stream: bytes, how many at once, and nobody waits."""

    def design() -> fp.Design:
        d = fp.Design("memory")
        out = d.device("out")
        side = d.stream("side")
        items = d.queue("items", capacity=3, item=(fp.EVENT, fp.MEMORY))
        last = d.cell("last", item=(fp.MEMORY,))

        @d.loop("worker")
        def step() -> None:
            x = d.empty("x", bytes=1 << 20)
            d.launch("fill", writes=[x])
            side.wait_stream(d.current_stream())
            out.copy_(x, non_blocking=True, stream=side)
            x.record_stream(side)
            done = d.event("done")
            done.record(stream=side)
            items.put(done, x)
            last.set(x)
            if items.full():
                done, x = items.get()
                done.synchronize()

        return d

    rows, _, _ = costs(program_of(design, {}))
    assert (HOLD, "keeps 1 MiB while the item is in items, at most 3 at once, 3 MiB; nobody waits") in rows
    assert (HOLD, "keeps 1 MiB until last is set anew or cleared; nobody waits") in rows
    (use,) = [text for kind, text in rows if kind == USE]
    assert use == "keeps 1 MiB from the last reference until side has done what it has then; nobody waits"


def test_locks_and_bounds() -> None:
    """A lock serialises its sections, which are named; the bound of a queue waits with and without its edge."""

    def design(threads: int) -> fp.Design:
        d = fp.Design("locked")
        staging, out = d.pinned("staging"), d.device("out")
        lock = d.lock("staging lock")
        handed = d.queue("handed", capacity=2, item=(fp.EVENT,))

        def body() -> None:
            with lock:
                staging.write()
                out.copy_(staging, non_blocking=True)
                d.synchronize()

        @d.loop("a")
        def a() -> None:
            body()
            done = d.event("done")
            done.record()
            handed.put(done)

        @d.loop("b")
        def b() -> None:
            if threads > 1:
                body()
            handed.get().synchronize()

        return d

    rows, _, _ = costs(program_of(design, {"threads": 2}))
    locks = [text for kind, text in rows if kind == LOCK]
    assert len(locks) == 2 and all("of a, write + copy" in text and "measured: " in text for text in locks if text is not None)
    (bound,) = [text for kind, text in rows if kind == BOUND]
    assert bound == "nothing by itself: the put waits for room with and without the edge"
    alone, _, _ = costs(program_of(design, {"threads": 1}))
    assert next(text for kind, text in alone if kind == LOCK).startswith("nothing: no other thread")  # type: ignore[union-attr]


def test_too_many_operations_are_said() -> None:
    """The number of cycles grows beyond all bounds; a large design is told so at once."""

    def design() -> fp.Design:
        d = fp.Design("many")
        buffers = [(d.pinned(f"b{i}"), d.device(f"g{i}"), d.event(f"e{i}")) for i in range(MOST_OPERATIONS)]

        @d.loop("worker")
        def step() -> None:
            for b, g, done in buffers:
                done.synchronize()
                b.write()
                g.copy_(b, non_blocking=True)
                done.record()

        return d

    found = BreakEven(program_of(design, {}))
    assert found.cost is None and f"more than {MOST_OPERATIONS} operations" in found.why


# ---------------------------------------------------------------- streams that meet


def test_break_even_of_ranks_that_meet() -> None:
    """Collectives are edges like any others in what a step costs: conditions, and what costs nothing beside others."""
    rows, why, of = costs(variant("designs/atom.py::ell_across_ranks", "the code: a fixed generation, two recordings back"))
    waits = [text for kind, text in rows if kind in (HOST, STREAM)]
    assert not why and not of and len(waits) == 8 and None not in waits
    free = [text for text in waits if text is not None and text.startswith("free while")]
    assert len(free) == 6 and all("tp all_reduce" in text or "copy to ell" in text for text in free)


@pytest.mark.parametrize("target", ["designs/atom.py::ell_across_ranks", "designs/vllm_v2.py::tensor_parallel"])
def test_the_graph_of_ranks_that_meet_beside_the_machine(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With typical durations and much to do for the device both take the same time, without any one wait, too."""
    monkeypatch.setattr(break_even, "MOST_CYCLES", 0)
    (found,) = load([str(ROOT / target)])
    program = build(found, next(case for case in cases([found]) if case.expected == PROVED).parameters)
    model = BreakEven(program)
    assert model.timed is not None and "conditions over all of them are too long" in model.why
    said = next(iter(steady.choices(program)))
    syncs = synchronisations(program)
    for scale in (10.0, 100.0):
        durations = steady.typical(program, CUDA, scale)
        for sync in [None, *(one for one in syncs if one.kind in (HOST, STREAM))]:
            edited = program if sync is None else without(program, [sync])
            ran, computed = steady.per_step(edited, said, CUDA, scale), model.per_step(sync, durations)
            assert ran is not None and computed == pytest.approx(ran, rel=0.01)


def test_too_many_cycles_to_tell() -> None:
    """Where no condition is short enough to read, what each wait adds is computed with typical durations."""
    rows, why, _ = costs(variant("designs/tensorrt_llm.py::attention_data_parallel", "as reported, with the event waits"))
    assert "conditions over all of them are too long to tell" in why
    waits = [text for kind, text in rows if kind in (HOST, STREAM)]
    assert len(waits) == 20 and all(text is not None and text.startswith("computed: ") for text in waits)


def test_waits_of_other_choices() -> None:
    """A wait that does not run under the first way to fix the choices has its break-even under another one."""
    rows, _, _ = costs(variant("designs/vllm_v1.py::pooling", "vllm#48901: every chunk ends with a device synchronisation"))
    last, unfinished = (text for kind, text in rows if kind == HOST)
    assert last is not None and last.startswith("in steps with chunk: unfinished chunk") and "never free" in last
    assert unfinished is not None and unfinished.startswith("never free")


def test_a_host_that_runs_ahead_is_no_faster() -> None:
    """Without its only wait a host races ahead of the device, which does no step sooner: nothing is gained."""

    def design() -> fp.Design:
        d = fp.Design("ahead")
        staging, out, done = d.pinned("staging"), d.device("out"), d.event("done")

        @d.loop("worker")
        def step() -> None:
            done.synchronize()
            staging.write()
            out.copy_(staging, non_blocking=True)
            d.launch("forward", writes=[out])
            done.record()

        return d

    program = program_of(design, {})
    (sync,) = synchronisations(program)
    whole, ahead = (steady.per_step(one, {}, CUDA, 100.0) for one in (program, without(program, [sync])))
    assert whole is not None and ahead is not None and 0.97 * whole < ahead < whole
