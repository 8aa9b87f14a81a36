"""The check of a reachable set can fail, and the shortcut for serial locations is taken only where one agent accesses."""

from __future__ import annotations

import pytest
from fencepost.designs import ring
from fencepost.model import program as p
from fencepost.model.language.build import program_of
from fencepost.proofs.explore import certify
from fencepost.proofs.explore.locations import locations
from fencepost.proofs.explore.search import Budget, Reach, Search
from fencepost.proofs.explore.serial import sole_agent
from fencepost.proofs.explore.setting import Setting


def proof() -> tuple[Search, Reach]:
    """A proof of the ring's slots: depth 3, 3 results outstanding."""
    setting = Setting(program_of(ring.ring, {"depth": 3, "outstanding": 3}))
    (slots,) = [one for one in locations(setting.program) if one.label(setting.program) == "slot"]
    search = Search(setting, slots)
    return search, search.run(Budget())


def test_a_whole_set_is_accepted() -> None:
    """With the number of its states, and a digest that does not depend on the run."""
    search, reach = proof()
    assert certify.check(search, reach) == reach.size > 1
    assert certify.digest(search, reach) == certify.digest(*proof())


def test_any_state_removed_is_noticed() -> None:
    """Start not covered, or a successor not covered."""
    search, reach = proof()
    for control in list(reach.states):
        row = reach.states.pop(control)
        with pytest.raises(certify.Rejected):
            certify.check(search, reach)
        reach.states[control] = row


def test_a_set_of_another_design_is_rejected() -> None:
    """One slot less: a hazard is reachable from the stored states."""
    _, reach = proof()
    setting = Setting(program_of(ring.ring, {"depth": 2, "outstanding": 3}))
    search = Search(setting, reach.location)
    with pytest.raises(certify.Rejected):
        certify.check(search, reach)


def design(*streams: int, handed: bool = False) -> Setting:
    """A loop that launches a writer of one buffer on each of these streams; `handed`: a reference goes into a queue."""
    objects = (
        p.Memory("m", "device"), p.Stream("a"), p.Stream("b"), p.Queue("q", 4, (("", (p.MEMORY,)),)),
    )  # fmt: skip
    operations: list[p.Operation] = [p.Launch("write", p.Obj(s), (p.Access(p.Obj(0), "w"),)) for s in streams]
    operations += [p.Put(3, "", (p.Obj(0),))] if handed else []
    nodes = tuple(p.Do(o, i + 1 if i + 1 < len(operations) else p.END) for i, o in enumerate(operations))
    return Setting(p.Program("d", objects, (p.Thread("t", "loop", nodes, 0),)))


@pytest.mark.parametrize(
    ("setting", "agent"),
    [(design(1, 1), "stream a"), (design(1, 2), None), (design(1, handed=True), None)],
    ids=["one stream", "two streams", "a reference travels"],
)
def test_one_agent_alone(setting: Setting, agent: str | None) -> None:
    """Two streams, or a reference that may be used elsewhere, are searched."""
    found = sole_agent(setting, locations(setting.program)[0])
    assert (found and found[0]) == agent
