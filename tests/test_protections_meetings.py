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
