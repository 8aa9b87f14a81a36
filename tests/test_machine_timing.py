"""Timed runs: durations decide who moves, and ATOM's micro-benchmark has the shape that was measured."""

from __future__ import annotations

import fencepost as fp
import pytest
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import DEFAULTS, Follow
from fencepost.simulator.machine_timing import PROFILES

from atom_shape import SITUATIONS, stale

TRIALS = 100


@pytest.mark.parametrize("name, least, most", [(n, lo, hi) for n, (_, _, lo, hi) in SITUATIONS.items()])
def test_how_often_the_copy_of_a_dropped_tensor_is_stale(name, least, most):
    """#2654: 0/200 with nothing queued, 200/200 behind a 256 MiB copy, 99/100 with 16 busy streams on 4 hardware queues,
    0/100 on one."""
    share = stale(name, TRIALS) / TRIALS
    assert least <= share <= most


def pipeline(host: float, kernel: float, waits: bool = False):
    d = fp.Design("pipeline")
    x = d.pinned("x", depth=2)
    done = d.event("done", depth=2)

    @d.loop("t")
    def step(n):
        if waits:
            done[n - 1].synchronize()
        x[n].write(time=host)
        d.launch("forward", reads=[x[n]], time=kernel)
        done[n].record()

    return d


def period(host: float, kernel: float, waits: bool) -> float:
    machine = Machine(fp.program_of(pipeline, {"host": host, "kernel": kernel, "waits": waits}))
    starts = machine.run(Follow(DEFAULTS), turns=40, profile=PROFILES["declared"], stop=False).starts[0]
    return (starts[30] - starts[20]) / 10 / 1e9


def test_a_loop_without_waits_runs_at_the_hosts_pace_and_one_with_them_at_the_sum():
    assert period(2e-3, 5e-3, False) == pytest.approx(2e-3)
    assert period(2e-3, 5e-3, True) == pytest.approx(7e-3)
    assert period(5e-3, 2e-3, True) == pytest.approx(7e-3)


def test_a_realistic_lead_shows_what_a_wait_prevents():
    machine = Machine(fp.program_of(pipeline, {"host": 1e-3, "kernel": 5e-3}))
    outcome = machine.run(Follow(DEFAULTS), turns=6, profile=PROFILES["declared"])
    assert outcome.wrong is not None and outcome.wrong.object.startswith("x[")
    slow_host = Machine(fp.program_of(pipeline, {"host": 9e-3, "kernel": 5e-3}))
    assert not slow_host.run(Follow(DEFAULTS), turns=6, profile=PROFILES["declared"]).observations


def test_a_duration_below_zero_is_refused():
    from fencepost.model import program as p

    with pytest.raises(fp.DesignError, match="time=-1"):
        fp.program_of(pipeline, {"host": -1.0, "kernel": 1.0})
    stream, memory = p.Stream("s"), p.Memory("m", "device")
    node = p.Do(p.Memset(p.Obj(1), p.Obj(0), time=-0.5), p.END)
    with pytest.raises(ValueError, match=r"thread 't', node 0: time=-0\.5; a duration is in seconds"):
        Machine(p.Program("bad", (stream, memory), (p.Thread("t", "script", (node,), 0),)))
