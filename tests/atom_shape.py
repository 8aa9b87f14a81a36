"""ATOM's micro-benchmark (ROCm/ATOM#2654) as a design: a side-stream copy whose source is dropped, in four situations."""

from __future__ import annotations

import functools

import fencepost as fp
from fencepost.simulator.machine import Hardware, Machine
from fencepost.simulator.machine_script import DEFAULTS, Follow
from fencepost.simulator.machine_timing import PROFILES

MIB = 1 << 20


def deferred_copy(ahead: bool = False, busy: int = 0, held: bool = False) -> fp.Design:
    """One step: sample, copy the ids on the side stream, drop them; the next tensor is filled on the default stream.

    `ahead` a 256 MiB copy is queued on the side stream before; `busy` so many other streams have matmuls queued;
    `held` the fix: the ids are dropped behind the wait for their copy.
    """
    d = fp.Design("deferred copy")
    compute, side = d.stream("default"), d.stream("async_copy_stream")
    others = [d.stream(f"busy {k}") for k in range(busy)]
    large, large_host = d.device("large", bytes=256 * MIB), d.pinned("large host", bytes=256 * MIB)

    @d.script("runner", stream=compute)
    def step() -> None:
        for other in others:
            for _ in range(4):
                d.launch("matmul", stream=other, time=1e-3)
        ids = d.empty("ids")
        d.launch("sampler", writes=[ids])
        side.wait_stream(compute)
        with side:
            if ahead:
                large_host.copy_(large, non_blocking=True)
            landed = ids.to_cpu(non_blocking=True)
            copied = d.event("copied")
            copied.record()
        if not held:
            ids.release()
        following = d.empty("next tensor")
        d.launch("fill", writes=[following])
        copied.synchronize()
        landed.read()

    return d


SITUATIONS = {
    "nothing queued": ({}, Hardware(0, "direction"), 0.0, 0.0),
    "256 MiB copy ahead": ({"ahead": True}, Hardware(0, "direction"), 1.0, 1.0),
    "16 busy streams, 4 hardware queues": ({"busy": 16}, Hardware(4, "direction"), 0.9, 1.0),
    "16 busy streams, 1 hardware queue": ({"busy": 16}, Hardware(1, "direction"), 0.0, 0.0),
    "256 MiB copy ahead, source held": ({"ahead": True, "held": True}, Hardware(0, "direction"), 0.0, 0.0),
    "16 busy streams, 4 hardware queues, source held": ({"busy": 16, "held": True}, Hardware(4, "direction"), 0.0, 0.0),
}
"""Name -> parameters, hardware, least and greatest share of stale trials."""


@functools.cache
def machine(name: str) -> Machine:
    parameters, hardware, _, _ = SITUATIONS[name]
    return Machine(fp.program_of(deferred_copy, parameters), hardware=hardware)


def stale(name: str, trials: int) -> int:
    """Trials in which the host reads something else than the sampler wrote, with durations that vary by 20 %."""
    bad = 0
    for seed in range(trials):
        outcome = machine(name).run(Follow(DEFAULTS), profile=PROFILES["typical"], seed=seed, stop=False)
        assert outcome.ended == "done"
        bad += any(seen.agent == "runner" for seen in outcome.observations)
    return bad
