"""What engines and commands say of designs whose streams meet: refusals by name, reports, lanes, faults in a program's numbers."""

from __future__ import annotations

from pathlib import Path

import fencepost as fp
import msgspec
import pytest
from fencepost.cli import run
from fencepost.damaged import fault
from fencepost.model import program as p
from fencepost.model.answer import AccessInfo as Access
from fencepost.model.answer import Answer, Hazard, Run, Step
from fencepost.model.operations.meetings import first_meeting
from fencepost.proofs.check import check
from fencepost.proofs.liveness.search import search
from fencepost.proofs.waits.repair import repair
from fencepost.report.lanes import lanes

DESIGN = '''
import fencepost as fp


def ranks(depth: int = 2) -> fp.Design:
    d = fp.Design("ranks")
    group = d.communicator("tp", ranks=["rank 0", "rank 1"])

    def rank(name: str) -> None:
        x, host = d.device(f"x of {name}"), d.pinned(f"host of {name}", depth=depth)

        @d.loop(name)
        def step(n: fp.Turn) -> None:
            host[n].write()
            x.copy_(host[n], non_blocking=True)
            group.all_reduce(x)
            d.current_stream().synchronize()

    with d.process("rank 0", gpu=0):
        rank("rank 0")
    with d.process("rank 1", gpu=1):
        rank("rank 1")
    return d


def never_called() -> fp.Design:
    d = fp.Design("never called")
    group = d.communicator("tp", ranks=["rank 0", "rank 1"])
    with d.process("rank 0", gpu=0):
        x = d.device("x")

        @d.loop("rank 0")
        def calls() -> None:
            group.all_reduce(x)
            d.current_stream().synchronize()

    with d.process("rank 1", gpu=1):
        y = d.device("y")

        @d.loop("rank 1")
        def skips() -> None:
            d.launch("forward", reads=[y], writes=[y])
            d.current_stream().synchronize()

    return d


def flags() -> fp.Design:
    d = fp.Design("flags")
    flag, x, side = d.device_flag("ready"), d.device("x"), d.stream("side")

    @d.loop("main")
    def step() -> None:
        d.launch("write", writes=[x])
        d.current_stream().write_value(flag, 1)
        side.wait_value(flag, 1)
        d.launch("read", reads=[x], stream=side)
        side.synchronize()
        d.current_stream().synchronize()

    return d
'''


@pytest.fixture
def designs(tmp_path: Path) -> Path:
    """The file of designs."""
    path = tmp_path / "ranks.py"
    path.write_text(DESIGN)
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code, and all that was printed, in one line."""
    code = run(list(arguments))
    out, err = capsys.readouterr()
    return code, " ".join((out + err).split())


def test_ranks_are_proved_and_a_call_that_a_rank_never_makes_is_a_verdict(
    designs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, "check", f"{designs}::ranks")
    assert code == 0 and "1 proved" in text
    code, text = said(capsys, "check", f"{designs}::never_called")
    assert code == 1 and "collective mismatch tp rank 1 -> rank 0" in text
    assert "waits for the signal 'all_reduce' of tp rank 1 -> rank 0 since step 0 of rank 0 (ranks.py:" in text
    assert "internal error" not in text


@pytest.mark.parametrize("name", ["ranks", "flags"])
def test_what_knows_no_meetings_refuses_by_name(name: str, designs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{designs}::{name}"
    what = "collectives and send/recv (channel 'tp rank 0 -> rank 1')" if name == "ranks" else "device flags ('ready')"
    code, text = said(capsys, "check", target, "--engine", "smt", "--steps", "1")
    assert code == 3 and f"not encoded for SMT: {what}" in text
    code, text = said(capsys, "export", target, "--smt2")
    assert code != 0 and f"{what} cannot be written as SMT-LIB" in text
    code, text = said(capsys, "cost", target)
    if name == "flags":
        assert code == 2 and what in text
    else:  # what a step costs is known: there a channel is an edge like any other
        assert code == 0 and "tp all_reduce" in text
        code, text = said(capsys, "condition", target, "--over", "depth")
        assert code == 3 and what in text


def test_show_says_what_a_wait_on_the_device_orders(designs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", f"{designs}::ranks"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "for default rank 1 gpu 1 signals tp rank 1 -> rank 0 [all_reduce] in rank 1" in words
    assert "orders: copy reads host of rank 1[n]; writes x of rank 1" in words
    assert run(["show", f"{designs}::flags"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "for default.write_value(ready, 1) in main" in words and "orders: write writes x" in words


def small(*operations: p.Operation) -> p.Program:
    """One loop over a stream, a channel and a flag."""
    objects = (p.Stream("s"), p.Channel("c"), p.DeviceFlag("f"), p.Flag("host flag"), p.Memory("x", "device"))
    last = len(operations) - 1
    nodes = tuple(p.Do(one, n + 1 if n < last else p.END) for n, one in enumerate(operations))
    return p.Program("small", objects, (p.Thread("t", "loop", nodes, 0),))


S = p.Obj(0)


def test_a_step_of_the_device_stands_in_its_streams_lane() -> None:
    """It is no turn of its own, although its node is the thread's first."""
    program = small(p.StoreFlag(2, 1, S), p.Launch("k", S, (p.Access(p.Obj(4), "w"),)))
    run_ = Run((Step(0, 0), Step(0, 1), Step(0, 0, stream=(0, 0)), Step(0, 0), Step(0, 1)))
    access = Access(4, "t", "s", True, "w", "k", 1)
    drawn = lanes(program, Answer("small", "refuted", hazards=(Hazard("WAW", "x", access, access),), run=run_))
    assert [(row.turn, row.cells.get("s", "").removeprefix("[1] ")) for row in drawn.rows][:4] == [
        (0, "write_value(f, 1)"),
        (0, "launch k (writes x)"),
        (None, "now: write_value(f, 1)"),
        (1, "write_value(f, 1)"),
    ]


def test_numbers_of_a_program_that_lead_nowhere() -> None:
    assert fault(small(p.Signal(1, S), p.Await(1, S), p.StoreFlag(2, 1, S), p.WaitFlag(2, 1))) is None
    assert fault(small(p.Signal(2, S))) == "'f' is used as a channel"
    assert fault(small(p.Await(9, S))) == "object 9 of 5"
    assert fault(small(p.WaitFlag(3, 1, S))) == "'host flag' is used as a device flag"
    assert fault(small(p.FlagSet(2))) == "'f' is used as a flag"
    program = small(p.Signal(1, S))
    broken = msgspec.structs.replace(program, objects=(program.objects[0], p.Channel("c", 0), *program.objects[2:]))
    assert "capacity=0" in str(fault(broken))


def test_the_first_meeting_of_a_program_is_named() -> None:
    assert first_meeting(small(p.Launch("k", S, ()))) is None
    assert first_meeting(small(p.Launch("k", S, ()), p.WaitFlag(2, 1))) == "device flags ('f')"
    assert first_meeting(small(p.Await(1, S), p.WaitFlag(2, 1))) == "collectives and send/recv (channel 'c')"


def released_late() -> fp.Design:
    """Behind the copy the stream waits for a store that comes after the refill: to wait for the stream first would be for ever."""
    d = fp.Design("released late")
    host, x, gate = d.pinned("host"), d.device("x"), d.device_flag("gate")
    turns = d.queue("turns", capacity=1, item=())

    @d.loop("other")
    def other() -> None:
        turns.put()

    @d.loop("main")
    def step() -> None:
        turns.get()
        x.copy_(host, non_blocking=True)
        d.current_stream().wait_value(gate, 1, reset=True)
        host.write()
        gate.store(1)
        d.current_stream().synchronize()

    return d


def test_a_repair_does_not_trade_a_hazard_for_a_hang() -> None:
    program = released_late().build()
    assert check(program, explain=False).verdict == "refuted"
    found = repair(program, seconds=30.0)
    assert found.repairs
    for one in found.repairs:
        assert search(one.program).hang is None
        assert not any("default.synchronize() before write" in addition.text for addition in one.additions)
