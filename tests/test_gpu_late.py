"""Device items that are late because streams meet: replayed serially, and beside what the host does itself."""

from __future__ import annotations

import fencepost as fp
import msgspec
from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.arms import prepare
from fencepost.gpu_validate.compile import compile_run
from fencepost.gpu_validate.emulated import EmulatedRun
from fencepost.gpu_validate.files import Subject
from fencepost.gpu_validate.schedule import Recorder
from fencepost.gpu_validate.script import script
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.language.build import program_of
from fencepost.model.platform import PLATFORMS
from fencepost.proofs.check import check

from test_gpu_meetings import flagged, long_plan, ranks, subject


def dropped(hold: bool = False) -> fp.Design:
    """Two ranks that reduce and scatter twice. Nobody awaits the copy of the first result, whose block the second takes: all
    of that waits for the other rank, and one signal lets it run."""
    d = fp.Design("dropped")
    names = ("rank 0", "rank 1")
    group = d.communicator("group", names)

    def rank(name: str) -> None:
        scatter, offload = d.stream(f"scatter of {name}"), d.stream(f"offload of {name}")
        full, host = d.device(f"full of {name}"), d.pinned(f"host of {name}", depth=2)

        @d.loop(name)
        def backward() -> None:
            for layer in range(2):
                if hold and layer:
                    scatter.wait_stream(offload)
                d.launch(f"layer {layer}", writes=[full])
                scatter.wait_stream(d.current_stream())
                with scatter:
                    shard = d.empty("shard")
                    group.reduce_scatter(shard, full)
                d.current_stream().wait_stream(scatter)
                offload.wait_stream(scatter)
                host[layer].copy_(shard, non_blocking=True, stream=offload)
                shard.release()
            offload.synchronize()
            if hold:
                scatter.wait_stream(offload)
            host[0].read()
            host[1].read()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name)
    return d


def of_dropped() -> Subject:
    return subject(program_of(dropped, {}), program_of(dropped, {"hold": True}))


def without_late(plan: c.Plan) -> c.Plan:
    return msgspec.structs.replace(plan, lines=tuple(msgspec.structs.replace(x, late=None) for x in plan.lines))


def test_nothing_overlaps_in_a_serial_trial_of_late_items() -> None:
    """What one signal lets run overlaps on a GPU, whoever makes the calls, unless each late item is held back until its turn."""
    one = of_dropped()
    assert one.run is not None and one.hazard is not None
    ready = prepare(one.program, one.run, one.hazard, one.fixed)
    assert ready.fixed is not None
    assert sum(line.late is not None for line in ready.gated.lines) >= 3
    for plan in (ready.gated, c.without_gates(ready.gated), ready.fixed):
        for seed in range(40):
            trial = EmulatedRun(plan, seed).trial(serial=True)
            assert not trial.wrong and not trial.hang
    assert any(EmulatedRun(without_late(ready.gated), seed).trial(serial=True).wrong for seed in range(40))
    assert {len(EmulatedRun(ready.gated, seed).trial().wrong) > 0 for seed in range(40)} == {True}
    assert not any(EmulatedRun(ready.fixed, seed).trial().wrong for seed in range(40))


def lazy_plan(program: p.Program) -> c.Plan:
    """Of a run of one thread in which the device goes on only when the host cannot."""
    state = Recorder(program, PLATFORMS["cuda"])
    while state.player.turn(0) < 3:
        while state.player.enabled(0):
            state.step(Step(0, state.player.pc(0)))
        state.eager()
    return compile_run(program, Run(tuple(state.steps)))


def test_every_late_item_runs_once_and_behind_its_call() -> None:
    plans = [long_plan(program_of(dropped, {"hold": True})), long_plan(program_of(ranks, {"guard": True, "capacity": 1}))]
    plans.append(lazy_plan(program_of(flagged, {})))
    for plan in plans:
        called = {line.late: k for k, line in enumerate(plan.lines) if line.late is not None}
        runs = {line.call.item: k for k, line in enumerate(plan.lines) if isinstance(line.call, c.Runs)}
        assert called and called.keys() == runs.keys() == set(range(len(called)))
        assert all(called[item] < runs[item] for item in called)
        for item, at in runs.items():  # until then its stream must not be waited for
            stream = c.stream_of(plan.lines[called[item]].call)
            assert all(stream in line.busy for line in plan.lines[called[item] : at])
        for seed in range(5):
            trial = EmulatedRun(plan, seed).trial(serial=True)
            assert not trial.wrong and not trial.device_held and not trial.hang


def test_a_script_says_nothing_of_late_items() -> None:
    text = script(of_dropped())
    compile(text, "issue.py", "exec")
    assert "Runs" not in text and ": late" not in text


def staged() -> fp.Design:
    """What the host does itself, beside a rank that may wait for its peer: a copy within the host, and a pageable source."""
    d = fp.Design("staged")
    names = ("rank 0", "rank 1")
    group = d.communicator("group", names)

    def rank(name: str) -> None:
        first, second = d.pinned(f"first of {name}"), d.pinned(f"second of {name}")
        source, reduced = d.pageable(f"source of {name}"), d.device(f"reduced of {name}")
        target = d.device(f"target of {name}")

        @d.loop(name)
        def step() -> None:
            first.write()
            second.copy_(first)
            second.read()
            group.all_reduce(reduced)
            source.write()
            target.copy_(source, non_blocking=True)
            source.write()
            d.launch("use", reads=[target])
            d.current_stream().synchronize()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name)
    return d


def test_what_the_host_does_itself_is_done_at_the_call() -> None:
    """Copies within the host are no stream's (S49); a pageable source is read at the call, also where the copy is late (S47)."""
    program = program_of(staged, {})
    assert check(program).verdict == "proved"
    plan = long_plan(program)
    copies = [line.call for line in plan.lines if isinstance(line.call, c.Copy)]
    assert {call.host for call in copies} == {True, False}
    assert any(isinstance(line.call, c.Copy) and line.late is not None for line in plan.lines)
    read = {check.expected for line in plan.lines for check in c.checks_of(line.call) if isinstance(line.call, c.Read)}
    assert len(read) >= 3 and None not in read, "each turn reads what it copied"
    for seed in range(10):
        for serial in (True, False):
            trial = EmulatedRun(plan, seed).trial(serial=serial)
            assert not trial.wrong and not trial.hang
