"""What a step costs: cycle ratios beside the machine on random periodic designs, break-even conditions, the command."""

from __future__ import annotations

import random
from pathlib import Path

import fencepost as fp
import pytest
from fencepost import cli
from fencepost.cost import Result, decide, durations
from fencepost.errors import InputError
from fencepost.model.language.build import program_of
from fencepost.proofs.periodic.cost import costs
from fencepost.proofs.periodic.symbols import Refused

import periodic_designs


def input_prep(outstanding: int = 2, guard: bool = True, times: bool = False) -> fp.Design:
    """One pinned buffer, refilled every step, and the guard in front of it."""
    d = fp.Design("input prep")
    host, dev, prep = d.pinned("lens"), d.device("lens_gpu"), d.event("prep")
    results = d.queue("results", capacity=outstanding, item=(fp.EVENT,))

    def time(seconds: float) -> float | None:
        return seconds if times else None

    @d.loop("worker")
    def step() -> None:
        if guard:
            prep.synchronize()
        host.write(time=time(0.002))
        dev.copy_(host, non_blocking=True, time=time(0.0005))
        if guard:
            prep.record()
        d.launch("forward", reads=[dev], time=time(0.003))
        done = d.event("done")
        done.record()
        results.put(done)
        if results.full():
            results.get().synchronize()

    return d


def the_cost(design: object, given: dict[str, float] | None = None, **parameters: object) -> Result:
    """The one strategy's cost."""
    (one,) = decide(program_of(design, parameters), given or {})  # type: ignore[arg-type]
    return one


def test_the_guard_is_free_while_the_forward_covers_the_preparation() -> None:
    """Symbolically, and by figures on both sides of the break-even."""
    cost = the_cost(input_prep).cost
    assert [(c.operations, c.steps) for c in cost.cycles if c.waits] == [(("write lens", "copy to lens_gpu"), 1)]
    assert cost.step is None and cost.threads == ()
    (guard,) = [wait for wait in cost.waits if wait.wait == "prep.synchronize()"]
    assert guard.free_while == ("forward >= write lens",)
    (results,) = [wait for wait in cost.waits if wait.wait == "results.synchronize()"]
    assert results.free_while == ()
    for write, step, without in ((0.002, 0.0035, 0.0035), (0.0034, 0.0039, 0.0035), (0.005, 0.0055, 0.005)):
        one = the_cost(input_prep, {"write lens": write, "copy to lens_gpu": 0.0005, "forward": 0.003})
        (guard,) = [wait for wait in one.cost.waits if wait.wait == "prep.synchronize()"]
        assert one.cost.step == pytest.approx(step) and guard.without == pytest.approx(without)
        assert guard.cost == pytest.approx(step - without)
        assert one.measured[0].seconds == pytest.approx(step, rel=0.01)
        again = the_cost(input_prep, {"write lens": write, "copy to lens_gpu": 0.0005, "forward": 0.003}, guard=False)
        assert again.cost.step == pytest.approx(without)


def test_declared_durations_and_the_critical_cycle() -> None:
    """`time=` of the design counts; `--time` overrides it; with one result outstanding everything is one cycle."""
    one = the_cost(input_prep, outstanding=1, times=True).cost
    assert one.step == pytest.approx(0.0055)
    assert one.cycles[0].operations == ("write lens", "copy to lens_gpu", "forward")
    assert one.cycles[0].waits == ("results.synchronize()",)
    assert the_cost(input_prep, {"forward": 0.001}, outstanding=1, times=True).cost.step == pytest.approx(0.0035)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_cycle_ratio_and_machine_agree_on_random_periodic_designs(first: int) -> None:
    """Within 1 % without shared engines; with shared copy engines no step is shorter than the bound."""
    compared = 0
    for seed in range(first, first + 10):
        rng = random.Random(seed)
        try:
            program = program_of(periodic_designs.design(seed), {"depth": rng.choice((2, 3)), "lag": rng.choice((1, 2, 3))})
            names = [operation.name for one in costs(program) for operation in one.operations]
            times = {name: rng.choice((0, 1, 2, 5, 10, 37)) * 1e-5 for name in names}
            results = decide(program, times, copies=rng.choice(("direction", "serial")))
        except (InputError, Refused):
            continue  # streams in rotation that wait for each other: no determinate distances
        for result in results:
            predicted = dict(result.cost.threads)
            for one in result.measured:
                assert one.period is not None
                assert one.seconds == pytest.approx(predicted[one.thread], rel=0.01, abs=1e-12), (seed, one, predicted)
                compared += 1
            for one in result.shared:
                assert one.seconds >= predicted[one.thread] * 0.99, (seed, one)
    assert compared >= 10


def two_copies(outstanding: int = 2) -> fp.Design:
    """Copies up on two streams, joined by the results: with one engine a direction they queue behind each other."""
    d = fp.Design("two copies")
    sides = [d.stream(f"side {i}") for i in range(2)]
    hosts = [d.pinned(f"host {i}") for i in range(2)]
    devs = [d.device(f"dev {i}") for i in range(2)]

    @d.loop("worker")
    def step() -> None:
        for side, host, dev in zip(sides, hosts, devs, strict=True):
            with side:
                dev.copy_(host, non_blocking=True, time=0.001)
        for side in sides:
            side.synchronize()

    return d


def test_shared_copy_engines_obey_the_bound_and_reach_it() -> None:
    """Free engines: 1 ms a step. One engine for the direction: 2 ms, which is its load."""
    program = program_of(two_copies, {})
    (free,) = decide(program, {}, copies="direction")
    assert free.cost.step == pytest.approx(0.001) and dict(free.cost.loads) == {"copies h2d": 0.002}
    assert free.measured[0].seconds == pytest.approx(0.001)
    assert free.bound == pytest.approx(0.002) and free.shared[0].seconds == pytest.approx(0.002)


def test_a_choice_is_one_cost_each() -> None:
    """The step kinds of a design stand beside each other."""
    from fencepost.designs import ring

    found = costs(program_of(ring.ring, {"encoder_only": True}))
    assert [one.strategy for one in found] == ["kind: sampling", "kind: encoder only"]


def test_durations_from_the_command_line() -> None:
    """Units, and what is no duration."""
    assert durations(["forward=3ms", "copy to x = 20us", "a=0.5", "b=7ns"]) == {
        "forward": 0.003, "copy to x": pytest.approx(2e-5), "a": 0.5, "b": pytest.approx(7e-9),
    }  # fmt: skip
    for text in ("forward", "forward=-1ms", "=3ms", "forward=nan", "forward=inf", "forward=fast"):
        with pytest.raises(InputError, match="not negative" if text == "forward=-1ms" else "write it as"):
            durations([text])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report; an unknown operation, an unknown engine and a design without distances are one line each."""
    assert cli.run(["cost", "designs/ring.py::ring", "--time", "forward=2ms"]) == 0
    out = capsys.readouterr().out
    assert "time per step  = 2 ms" in out and "<- critical" in out and "repeating every 1 turns" in out
    for arguments, wanted in (
        (["designs/ring.py::ring", "--time", "nothing=2ms"], "no operation is called 'nothing'"),
        (["designs/ring.py::ring", "--copies", "two"], "there are: free, direction, serial"),
        (["designs/ring.py"], "a cost is about one design"),
        (["designs/atom.py::ell_landing_ring", "--set", "query=true"], "no time per step"),
    ):
        assert cli.run(["cost", *arguments]) == 2
        got = capsys.readouterr()
        assert wanted in got.err and got.err.count("\n") == 1 and got.out == ""
