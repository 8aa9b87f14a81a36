"""What protects an object where ranks meet: the collective without which its accesses are unordered is named."""

from __future__ import annotations

import fencepost as fp
from fencepost.designs.vllm_v2 import tensor_parallel
from fencepost.proofs.check import check


def protections(collective: str) -> dict[str, tuple[str, ...]]:
    """Object -> what protects it, in the design of ranks that nobody awaits."""
    answer = check(fp.program_of(tensor_parallel, {"collective": collective, "sampler": "nobody else"}))
    assert answer.verdict == "proved"
    return {protection.object: protection.by for protection in answer.protections}


def test_the_collective_that_protects_a_rank_which_nobody_awaits() -> None:
    """The output rank's copy is awaited, and its logits need the other rank's: that edge, and none back, protects the other rank's buffer."""
    found = protections("all-gather")
    meetings = {thing: [one for one in by if "all_gather on" in one] for thing, by in found.items()}
    assert len(meetings["num_blocks tp1"]) == 1 and meetings["num_blocks tp1"][0].startswith("all_gather on tp tp1 -> tp0 (")
    assert meetings["num_blocks tp0"] == []
    assert any("copy_event.synchronize()" in one for one in found["num_blocks tp1"])


def many_waits(waits: int) -> fp.Design:
    """Any one of the waits would do."""
    d = fp.Design("many waits")
    host, device = d.pinned("host"), d.device("device")
    events = [d.event(f"copied {k}") for k in range(waits)]

    @d.loop("worker")
    def step() -> None:
        for event in events:
            event.synchronize()
        host.write()
        device.copy_(host, non_blocking=True)
        for event in events:
            event.record()

    return d


def test_what_was_not_asked_is_not_answered() -> None:
    """Of more than twelve waits it is not asked whether one is needed alone, and nothing is said about it."""
    for waits, said in ((1, "copied 0.synchronize()"), (2, "no single synchronisation is needed alone"), (13, "was not decided")):
        answer = check(fp.program_of(many_waits, {"waits": waits}))
        assert answer.verdict == "proved"
        (by,) = next(protection.by for protection in answer.protections if protection.object == "host")
        assert said in by
