"""Streams that meet, replayed: channels and device flags as words, calls that return late, and designs of several GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import fencepost as fp
import pytest
from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.arms import prepare
from fencepost.gpu_validate.compile import compile_run
from fencepost.gpu_validate.device import Device
from fencepost.gpu_validate.drive import attacks, base_run
from fencepost.gpu_validate.emulated import EmulatedRun
from fencepost.gpu_validate.files import Subject
from fencepost.gpu_validate.gates import NEVER, NoGates, SleepGates
from fencepost.gpu_validate.schedule import Recorder
from fencepost.gpu_validate.script import script
from fencepost.gpu_validate.table import Row, attack, plan_attacks, replay
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.language.build import program_of
from fencepost.model.platform import PLATFORMS
from fencepost.proofs.check import check


def ranks(guard: bool = False, capacity: int | None = None) -> fp.Design:
    """Two ranks on two GPUs that reduce together; each refills a pinned buffer that its copy may still be reading."""
    d = fp.Design("ranks")
    names = ["rank 0", "rank 1"]
    group = d.communicator("tp", names, capacity=capacity)

    def rank(name: str) -> None:
        host, device = d.pinned(f"host of {name}"), d.device(f"device of {name}")
        copied, done = d.event(f"copied of {name}"), d.event(f"done of {name}", depth=2)

        @d.loop(f"loop of {name}")
        def step(n: fp.Turn) -> None:
            if guard:
                copied.synchronize()
            host.write()
            device.copy_(host, non_blocking=True)
            if guard:
                copied.record()
            group.all_reduce(device)
            done[n - 1].synchronize()  # the step before is awaited, one is in flight
            done[n].record()

    for number, name in enumerate(names):
        with d.process(name, gpu=number):
            rank(name)
    return d


def flagged(wait: bool = True, reset: bool = True) -> fp.Design:
    """A consumer whose stream waits for a flag that the producer's stream stores; without the reset, for the first time only."""
    d = fp.Design("flagged")
    data, out = d.device("data"), d.device("out")
    peer, stream = d.stream("peer"), d.stream("stream")
    flag, used = d.device_flag("flag"), d.event("used")

    @d.loop("engine")
    def step(n: fp.Turn) -> None:
        d.launch("produce", writes=[data], stream=peer)
        peer.write_value(flag, 1)
        if wait:
            stream.wait_value(flag, 1, reset=reset)
        d.launch("consume", reads=[data], writes=[out], stream=stream)
        used.record(stream)
        used.synchronize()

    return d


def subject(broken: p.Program, fixed: p.Program) -> Subject:
    answer = check(broken)
    assert answer.verdict == "refuted" and answer.run is not None and check(fixed).verdict == "proved"
    return Subject("d", "v", broken, "refuted", None, answer.run, answer.hazards[0], "fix", fixed)


def of_ranks(capacity: int | None = None) -> Subject:
    return subject(program_of(ranks, {"capacity": capacity}), program_of(ranks, {"guard": True, "capacity": capacity}))


def of_flags(**broken: bool) -> Subject:
    return subject(program_of(flagged, broken), program_of(flagged, {}))


def wrong(row: Row) -> dict[str, int]:
    assert row.error is None, row.error
    return {arm.name: arm.wrong for arm in row.arms}


def long_plan(program: p.Program) -> c.Plan:
    return compile_run(program, Run(tuple(base_run(program, 0).steps)))


# ------------------------------------------------------------ plans


def test_ranks_that_reduce_together_are_replayed() -> None:
    row = replay(of_ranks(), EmulatedRun, 2)
    assert wrong(row) == {"ungated": 0, "gated": 2, "gated, fixed": 0}
    assert row.model_holds is not None and row.model_holds == row.arms[2].held_at


def test_signals_and_awaits_are_counted() -> None:
    plan = long_plan(program_of(ranks, {"guard": True}))
    for word in range(len(plan.words)):
        writes = [line.call.value for line in plan.lines if isinstance(line.call, c.WriteWord) and line.call.word == word]
        waits = [line.call.value for line in plan.lines if isinstance(line.call, c.WaitWord) and line.call.word == word]
        assert writes == list(range(1, len(writes) + 1)) and len(writes) >= 3
        assert [v for v in waits if v != NEVER] == list(range(1, sum(v != NEVER for v in waits) + 1))
    assert any(line.busy for line in plan.lines)


def test_a_capacity_is_a_second_word() -> None:
    program = program_of(ranks, {"guard": True, "capacity": 1})
    plan = long_plan(program)
    assert any(name.endswith(" taken") for name in plan.words)
    trial = EmulatedRun(plan).trial()
    assert not trial.wrong and not trial.hang
    assert wrong(replay(of_ranks(1), EmulatedRun, 2))["gated"] == 2


def test_a_call_that_a_thread_is_inside_is_made_where_it_returns() -> None:
    program = program_of(ranks, {"guard": True})
    state = Recorder(program, PLATFORMS["cuda"])
    for thread in (0, 1, 0, 1):  # each as far as it comes alone: rank 0 to the wait for a collective that rank 1 has not joined
        while state.player.enabled(thread) and state.player.turn(thread) < 4:
            state.step(Step(thread, state.player.pc(thread)))
    steps = state.steps
    plan = compile_run(program, Run(tuple(steps)))
    syncs = [k for k, s in enumerate(steps) if isinstance(op(program, s.thread, s.node), p.EventSync)]
    made = {line.step for line in plan.lines if isinstance(line.call, c.EventSync)}
    moved = dict(plan.moved)
    assert moved and set(moved) <= set(syncs)
    assert made <= {moved.get(k, k) for k in syncs}
    assert all(new > old for old, new in moved.items())
    late = [line for line in plan.lines if line.step in moved.values() and isinstance(line.call, c.EventSync)]
    assert late and any(line.busy for line in late), "other streams may still wait on the device"
    for serial in (True, False):
        trial = EmulatedRun(plan).trial(serial=serial)
        assert not trial.wrong and trial.held is None and not trial.hang


def op(program: p.Program, thread: int, node: int) -> p.Operation | None:
    found = program.threads[thread].nodes[node]
    return found.operation if isinstance(found, p.Do) else None


@pytest.mark.parametrize("broken", [{"wait": False}, {"reset": False}])
def test_a_flag_orders_what_its_wait_saw(broken: dict[str, bool]) -> None:
    row = replay(of_flags(**broken), EmulatedRun, 2)
    assert wrong(row) == {"ungated": 0, "gated": 2, "gated, fixed": 0}


def test_the_run_says_when_a_flag_is_stored() -> None:
    """What the run decides is behind a gate of its own, which opens at the run's step in the serial arm as well."""
    plan = long_plan(program_of(flagged, {}))
    shut = [line.call for line in plan.lines if isinstance(line.call, c.Shut)]
    opened = [line.call for line in plan.lines if isinstance(line.call, c.Open)]
    assert shut and all(call.run for call in shut) and {x.gate for x in opened} <= {x.gate for x in shut}
    for serial in (True, False):
        trial = EmulatedRun(plan).trial(serial=serial)
        assert not trial.wrong and not trial.device_held and not trial.hang


def test_attacks_go_through_meetings() -> None:
    for program, seen in (
        (program_of(ranks, {"guard": True}), False), (program_of(ranks, {}), True),
        (program_of(flagged, {}), False), (program_of(flagged, {"reset": False}), True),
    ):  # fmt: skip
        one = Subject("d", "v", program, "proved")
        row = attack(one, plan_attacks(one), EmulatedRun)
        assert row.gates >= 3 and bool(row.wrong) == seen, row


def test_what_never_runs_is_not_looked_at() -> None:
    """A rank alone: its reduce waits for ever, and what lies behind it has not happened."""
    program = program_of(ranks, {})
    steps = [s for s in base_run(program, 0).steps if s.thread == 0][:12]
    plan = compile_run(program, Run(tuple(steps)))
    assert any(isinstance(line.call, c.WaitWord) and line.call.value == NEVER for line in plan.lines)
    trial = EmulatedRun(plan).trial()
    assert not trial.wrong and not trial.hang


def test_scripts_of_meetings_are_python() -> None:
    for one in (of_ranks(), of_flags(reset=False)):
        text = script(one)
        assert "write_word(" in text and "wait_word(" in text
        compile(text, "issue.py", "exec")


def test_a_delay_kernel_is_no_word() -> None:
    gates = SleepGates.__new__(SleepGates)
    for call in (gates.word, lambda: gates.store(0, 1), lambda: gates.wait(0, 1, None)):
        with pytest.raises(NoGates, match=r"need stream memory operations; torch.cuda._sleep is none"):
            call()


# ------------------------------------------------------------ the real calls, on the CPU


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """Two GPUs, both the CPU: nothing overlaps, so words are only stored to."""
    pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
    from fencepost.gpu_validate.torchrun import TorchRun

    from test_gpu_calls import fake_device

    def memcpy(dst: Any, src: Any, size: int) -> None:
        ctypes.memmove(dst.data_ptr(), src.data_ptr(), size)

    monkeypatch.setattr(TorchRun, "_memcpy_on", lambda self, stream: memcpy)
    with fake_device(monkeypatch) as opened:
        opened.count = 2
        yield opened


def apart(wait: bool = True) -> fp.Design:
    """Two GPUs and memory of both: kernels on one use the other's, and pinned memory in place."""
    d = fp.Design("apart")
    here, there = d.device("here", gpu=0), d.device("there", gpu=1)
    pinned = d.pinned("pinned")
    near, far = d.stream("near", gpu=0), d.stream("far", gpu=1)

    @d.loop("engine")
    def step(n: fp.Turn) -> None:
        far.wait_stream(near)
        d.memset(there, stream=far)
        d.launch("far", reads=[here, pinned], writes=[there], stream=far)
        near.wait_stream(far)
        d.launch("near", reads=[there], writes=[here], stream=near)
        if wait:
            d.launch("back", reads=[here], writes=[pinned], stream=near)

    return d


def test_gpus_of_a_design_stand_on_gpus(two: Device) -> None:
    from fencepost.gpu_validate.torchrun import TorchRun

    run = TorchRun(two, long_plan(program_of(apart, {})))
    assert set(run.gpu) == {0, 1} and not run.notes and set(run.home) == {0, 1}
    for serial in (True, False):
        assert not run.trial(serial=serial).wrong
    two.count = 1
    folded = TorchRun(two, long_plan(program_of(apart, {})))
    assert set(folded.gpu) == {0} and folded.notes == ("2 GPUs of the design stand on fewer: there is 1",)
    assert not folded.trial().wrong


def test_a_wrong_value_on_another_gpu_is_seen(two: Device) -> None:
    from fencepost.gpu_validate.torchrun import TorchRun

    plan = long_plan(program_of(apart, {}))
    for index in list(plan.check_lines())[:12]:
        run = TorchRun(two, plan)
        run.expected_on[run.check_gpu[index]][index, 0] += 1
        assert [mismatch.check for mismatch in run.trial().wrong] == [index]


def test_meetings_make_their_calls(two: Device) -> None:
    from fencepost.gpu_validate.torchrun import TorchRun

    one = of_ranks()
    assert one.run is not None and one.hazard is not None
    plans = [prepare(one.program, one.run, one.hazard, one.fixed).gated]
    assert one.fixed is not None
    plans += [a.plan for a in attacks(one.fixed) if not isinstance(a, str)][:6]
    for plan in plans:
        run = TorchRun(two, plan)
        assert run.words and not run.trial(serial=True).diverged


def test_late_items_stand_behind_gates_in_a_serial_trial(two: Device) -> None:
    """One gate for each late item, on its stream, opened where it runs; in other trials none but the plan's own."""
    from fencepost.gpu_validate.torchrun import TorchRun

    one = of_ranks()
    assert one.run is not None and one.hazard is not None and one.fixed is not None
    plan = next(a.plan for a in attacks(one.fixed) if not isinstance(a, str) and any(x.late is not None for x in a.plan.lines))
    run = TorchRun(two, plan)
    gates: Any = two.gates
    streams = [run.streams[c.stream_of(line.call)] for line in plan.lines if line.late is not None]
    own = [line.call for line in plan.lines if isinstance(line.call, c.Shut)]
    for serial, wanted in ((True, streams), (False, [run.streams[call.stream] for call in own])):
        gates.shut_on.clear()
        trial = run.trial(serial=serial)
        assert gates.shut_on == wanted and not run.late and not trial.hang
