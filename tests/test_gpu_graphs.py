"""CUDA graphs in replays: launches found in a run, made in one call, captured, and gated inside."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import fencepost as fp
import pytest
from fencepost.gpu_validate import graphs
from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.arms import prepare
from fencepost.gpu_validate.compile import compile_run
from fencepost.gpu_validate.device import Device
from fencepost.gpu_validate.drive import attacks
from fencepost.gpu_validate.emulated import EmulatedRun
from fencepost.gpu_validate.files import Subject
from fencepost.gpu_validate.script import script
from fencepost.gpu_validate.table import Row, attack, plan_attacks, replay
from fencepost.model import program as p
from fencepost.model.language.build import program_of
from fencepost.model.platform import PLATFORMS
from fencepost.proofs.check import check


def forked(wait: bool = False, middle: bool = False) -> fp.Design:
    """A graph of a copy, a fill and two kernels, one of them on a branch; its pinned source is rewritten every turn."""
    d = fp.Design("forked")
    source, a, b, out = d.pinned("source"), d.device("a"), d.device("b"), d.device("out")
    main, side = d.stream("main"), d.stream("side")
    graph = d.graph("step")

    @d.setup
    def capture() -> None:
        with graph.capture(main):
            d.memset(b)
            side.wait_stream(main)
            with side:
                b.copy_(source, non_blocking=True)
            d.launch("first", writes=[a])
            main.wait_stream(side)
            d.launch("both", reads=[a, b], writes=[out])

    @d.loop("engine", stream=main)
    def step(n: fp.Turn) -> None:
        if wait:
            main.synchronize()
        source.write()
        graph.replay()
        d.launch("after", reads=[out])

    return d


def baked(keep: bool = False) -> fp.Design:
    """A graph that holds the address of a tensor which is gone before the graph runs."""
    d = fp.Design("baked")
    stream, out = d.stream("stream"), d.device("out")
    graph = d.graph("step")
    held = d.cell("held", item=(fp.MEMORY,))

    @d.setup
    def capture() -> None:
        x = d.empty("x")
        d.launch("fill", writes=[x])
        d.synchronize()
        with graph.capture(stream):
            d.launch("use", reads=[x], writes=[out])
        if keep:
            held.set(x)

    @d.loop("engine", stream=stream)
    def step(n: fp.Turn) -> None:
        graph.replay()
        stream.synchronize()

    return d


def subject(design: Any, fix: dict[str, object], **parameters: object) -> Subject:
    broken, fixed = program_of(design, parameters), program_of(design, {**parameters, **fix})
    answer = check(broken)
    assert answer.verdict == "refuted" and answer.run is not None and check(fixed).verdict == "proved"
    return Subject("d", "v", broken, "refuted", None, answer.run, answer.hazards[0], "fix", fixed)


def wrong(row: Row) -> dict[str, int]:
    assert row.error is None, row.error
    return {arm.name: arm.wrong for arm in row.arms}


def plan_of(one: Subject) -> c.Plan:
    assert one.run is not None and one.hazard is not None
    return prepare(one.program, one.run, one.hazard, one.fixed).gated


def launches(plan: c.Plan) -> list[c.GraphLaunch]:
    return [line.call for line in plan.lines if isinstance(line.call, c.GraphLaunch)]


# ------------------------------------------------------------ plans


def test_a_launch_is_found_by_what_the_language_writes() -> None:
    program = program_of(forked, {})
    (site,) = graphs.sites(program)
    thread = program.threads[site.thread]
    assert site.graph == "step" and thread.name == "engine"
    first, last = (thread.nodes[site.nodes[k]] for k in (0, -1))
    assert isinstance(first, p.Do) and isinstance(first.operation, p.StreamWaitEvent)
    assert isinstance(last, p.Do) and isinstance(last.operation, p.Record)
    assert not graphs.sites(program_of(no_graph, {}))


def no_graph() -> fp.Design:
    """An event of a user that is named as the language names its own."""
    d = fp.Design("none")
    event, stream = d.event("step launched"), d.stream("s")
    memory = d.pinned("m")

    @d.loop("engine", stream=stream)
    def step(n: fp.Turn) -> None:
        stream.wait_event(event)
        memory.write()
        event.record(stream)

    return d


def test_the_gate_is_inside_the_graph_and_only_the_gated_arm_is_wrong() -> None:
    one = subject(forked, {"wait": True})
    plan = plan_of(one)
    assert any(isinstance(line.call, c.Shut) for launch in launches(plan) for line in launch.body)
    assert not any(isinstance(line.call, c.Shut) for line in plan.lines), "in front of the copy, not of the whole launch"
    assert not any("operation by operation" in note for note in plan.notes)
    row = replay(one, EmulatedRun, 2)
    assert wrong(row) == {"ungated": 0, "gated": 2, "gated, fixed": 0}
    assert row.model_holds == "stream.synchronize in step 1 of engine" == row.arms[2].held_at
    said = row.arms[1].first_wrong
    assert said is not None and said.startswith("copy_ in step 0 of engine: b held 'write' in step 1")


def test_nothing_comes_between_the_nodes_of_a_launch() -> None:
    one = subject(forked, {"wait": True})
    assert one.run is not None
    made = graphs.whole(one.program, one.run)
    assert isinstance(made, graphs.Whole)
    for start, site in made.launches:
        steps = made.run.steps[start : start + len(site.nodes)]
        assert tuple(step.node for step in steps) == site.nodes and {step.thread for step in steps} == {site.thread}
    for old, new in enumerate(made.moved):
        assert made.run.steps[new] == one.run.steps[old]


def test_launches_of_one_graph_are_alike_and_others_are_not() -> None:
    program = program_of(forked, {"wait": True})
    plans = [a.plan for a in attacks(program) if not isinstance(a, str)]
    shapes = {graphs.shape(x) for plan in plans for x in launches(plan) if not any(isinstance(n.call, c.Shut) for n in x.body)}
    assert len(shapes) == 1
    one = subject(baked, {"keep": True})
    assert graphs.shape(launches(plan_of(one))[0]) not in shapes


def test_a_run_that_leaves_a_launch_cannot_be_put_in_one_call() -> None:
    one = subject(forked, {"wait": True})
    assert one.run is not None
    site = graphs.sites(one.program)[0]
    at = next(k for k, s in enumerate(one.run.steps) if (s.thread, s.node) == (site.thread, site.nodes[0]))
    skipped = type(one.run)((*one.run.steps[: at + 1], *one.run.steps[at + 2 :]))
    assert isinstance(graphs.whole(one.program, skipped), str)


def test_attacks_on_a_graph_are_repelled_and_a_wrong_proof_shows() -> None:
    for wait, seen in ((True, False), (False, True)):
        one = Subject("d", "v", program_of(forked, {"wait": wait}), "proved")
        row = attack(one, plan_attacks(one), EmulatedRun)
        assert row.gates >= 3 and bool(row.wrong) == seen
        assert seen or not any(pair.unlike for pair in row.pairs)


def test_a_baked_address_outlives_its_tensor() -> None:
    one = subject(baked, {"keep": True})
    plan = plan_of(one)
    order = [type(line.call).__name__ for line in plan.lines]
    assert order.index("Alloc") < order.index("GraphCapture") < order.index("Free") < order.index("GraphLaunch")
    assert wrong(replay(one, EmulatedRun, 2)) == {"ungated": 0, "gated": 2, "gated, fixed": 0}


def test_the_script_launches_node_by_node() -> None:
    text = script(subject(forked, {"wait": True}))
    assert "# graph 'step', launched node by node" in text
    compile(text, "issue.py", "exec")


# ------------------------------------------------------------ the real calls, on the CPU


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
    import ctypes

    from fencepost.gpu_validate.torchgraph import TorchGraph
    from fencepost.gpu_validate.torchrun import TorchRun

    from test_gpu_calls import fake_device

    def capture(self: TorchGraph) -> None:
        self.graph = SimpleNamespace(replay=self.nodes)

    def memcpy(dst: Any, src: Any, size: int) -> None:
        ctypes.memmove(dst.data_ptr(), src.data_ptr(), size)

    monkeypatch.setattr(TorchGraph, "capture", capture)
    monkeypatch.setattr(TorchRun, "_memcpy_on", lambda self, stream: memcpy)
    with fake_device(monkeypatch) as opened:
        yield opened


@pytest.mark.parametrize("design", ["forked", "baked"])
def test_launches_make_their_calls(device: Device, design: str) -> None:
    from fencepost.gpu_validate.torchrun import TorchRun

    one = subject(forked, {"wait": True}) if design == "forked" else subject(baked, {"keep": True})
    plans = [plan_of(one)] if design == "forked" else []
    assert one.fixed is not None
    plans += [a.plan for a in attacks(one.fixed) if not isinstance(a, str)]
    if design == "baked":
        assert one.run is not None
        plans.append(graphs.planned(one.fixed, _long(one.fixed), PLATFORMS["cuda"])[0])
    for plan in plans:
        assert launches(plan)
        run = TorchRun(device, plan)
        for serial in (True, False):
            assert not run.trial(serial=serial).wrong, "nothing is late here"


def _long(program: p.Program) -> Any:
    from fencepost.gpu_validate.drive import base_run
    from fencepost.gpu_validate.schedule import Schedule
    from fencepost.model.answer import Run

    return Schedule(Run(tuple(base_run(program, 0).steps)), (), None, None, {})


def test_a_wrong_value_of_a_node_is_seen(device: Device) -> None:
    """Each launch has rows of its own: an expectation made wrong is reported for that launch and no other."""
    from fencepost.gpu_validate.torchrun import TorchRun

    program = program_of(forked, {"wait": True})
    plan = graphs.planned(program, _long(program), PLATFORMS["cuda"])[0]
    assert len(launches(plan)) >= 3
    for launch in launches(plan)[:3]:
        for line in launch.body:
            for one in c.checks_of(line.call):
                run = TorchRun(device, plan)
                run.expected_on[0][one.index, 0] += 1
                assert [mismatch.check for mismatch in run.trial().wrong] == [one.index]


def test_steps_outside_of_graphs_are_as_before() -> None:
    program = program_of(forked, {"wait": True})
    schedule = _long(program)
    eager = compile_run(program, schedule.run)
    plan = graphs.planned(program, schedule, PLATFORMS["cuda"])[0]
    assert sum(1 for line in c.flat(plan.lines) for _ in c.checks_of(line.call)) == plan.checks == eager.checks
