"""The check of a reachable set can fail, and the shortcut for serial locations is taken only where one agent accesses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fencepost.check import build, cases
from fencepost.designs import atom, ring
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.events import DesignError
from fencepost.model.language.build import program_of
from fencepost.model.platform import BARE, PLATFORMS, environment, platform
from fencepost.proofs.check import Checker
from fencepost.proofs.explore import certify
from fencepost.proofs.explore.locations import locations
from fencepost.proofs.explore.search import Budget, Reach, Search
from fencepost.proofs.explore.serial import sole_agent
from fencepost.proofs.explore.setting import Setting

CHECKS = (certify.check, certify.recompute)
Check = Callable[[Search, Reach], int]


def searched(depth: int, proof: bool = True) -> tuple[Search, Reach]:
    """What is reached of the ring's slots with 3 results outstanding."""
    setting = Setting(program_of(ring.ring, {"depth": depth, "outstanding": 3}))
    (slots,) = [one for one in locations(setting.program) if one.label(setting.program) == "slot"]
    search = Search(setting, slots, proof=proof)
    return search, search.run(Budget())


def proof() -> tuple[Search, Reach]:
    """A proof of the ring's slots: depth 3."""
    return searched(3, proof=False)


@pytest.mark.parametrize("check", CHECKS)
def test_a_whole_set_is_accepted(check: Check) -> None:
    """With the number of its states, and a digest that does not depend on the run."""
    search, reach = proof()
    assert check(search, reach) == reach.size > 1
    assert certify.digest(search, reach) == certify.digest(*proof())


@pytest.mark.parametrize("check", CHECKS)
def test_any_control_removed_is_noticed(check: Check) -> None:
    """Start not covered, or a successor not covered."""
    search, reach = proof()
    for control in list(reach.states):
        row = reach.states.pop(control)
        with pytest.raises(certify.Rejected):
            check(search, reach)
        reach.states[control] = row


@pytest.mark.parametrize("check", CHECKS)
def test_any_state_removed_is_noticed(check: Check) -> None:
    """Of several under one control, too: none of them stands for another."""
    checker = Checker(
        program_of(atom.deferred_output, {"spec": False, "clean": "forget"}), PLATFORMS["cuda"], BARE, Budget(), False, (), False,
    )  # fmt: skip
    checker.answer()
    search, reach = max(checker.reached, key=lambda one: max(map(len, one[1].states.values())))
    assert any(len(row) > 1 for row in reach.states.values())
    assert check(search, reach) == reach.size
    for row in reach.states.values():
        for one in list(row):
            whole = row[:]
            row.remove(one)
            with pytest.raises(certify.Rejected, match="covered"):
                check(search, reach)
            row[:] = whole


@pytest.mark.parametrize("check", CHECKS)
def test_any_bits_changed_are_noticed(check: Check) -> None:
    """Fewer cover more and would let everything pass, so a state is compared with what it is stored as."""
    search, reach = proof()
    for row in reach.states.values():
        for k, (bits, state) in enumerate(row):
            for other in (bits ^ 1, bits | 1 << bits.bit_length(), 0):
                row[k] = (other, state)
                with pytest.raises(certify.Rejected):
                    check(search, reach)
            row[k] = (bits, state)


@pytest.mark.parametrize("check", CHECKS)
def test_any_state_changed_behind_the_search_is_noticed(check: Check) -> None:
    """A step that changed a stored state in place would make its record one of another state."""
    search, reach = proof()
    for row in reach.states.values():
        for _, state in row:
            state.tb[0] ^= 1
            with pytest.raises(certify.Rejected):
                check(search, reach)
            state.tb[0] ^= 1


@pytest.mark.parametrize("check", CHECKS)
def test_any_state_whose_steps_were_not_taken_is_noticed(check: Check) -> None:
    """What follows from it is unknown."""
    search, reach = proof()
    for row in reach.states.values():
        for _, state in row:
            state.edges, edges = None, state.edges
            with pytest.raises(certify.Rejected, match="steps"):
                check(search, reach)
            state.edges = edges


@pytest.mark.parametrize("check", CHECKS)
def test_a_start_that_is_missing_is_noticed(check: Check) -> None:
    """Nothing at all is closed under every step."""
    search, reach = proof()
    reach.states.clear()
    with pytest.raises(certify.Rejected, match="start"):
        check(search, reach)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("whole", [True, False])
def test_a_hazard_that_is_not_listed_is_noticed(check: Check, whole: bool) -> None:
    """One slot less: whoever calls it a proof has judged what is listed, and nothing else. A search for a proof ends at the first."""
    search, reach = searched(2, proof=not whole)
    assert reach.hazards
    if whole:
        assert check(search, reach) == reach.size
    reach.hazards.clear()
    with pytest.raises(certify.Rejected):
        check(search, reach)


@pytest.mark.parametrize("check", CHECKS)
def test_a_set_of_another_design_is_rejected(check: Check) -> None:
    """One slot less: a hazard is reachable from the stored states."""
    _, reach = proof()
    setting = Setting(program_of(ring.ring, {"depth": 2, "outstanding": 3}))
    search = Search(setting, reach.location)
    for of in (reach.search, search):  # also where the set claims to be this search's
        reach.search = of
        with pytest.raises(certify.Rejected):
            check(search, reach)


def test_the_record_is_compared_with_the_steps() -> None:
    """`check` believes what the search recorded, `recompute` does not: a step that is missing, and one that leads elsewhere."""
    search, reach = proof()
    for row in reach.states.values():
        for _, state in row:
            assert state.edges is not None
            for k, edge in enumerate(state.edges):
                state.edges.pop(k)
                assert certify.check(search, reach) == reach.size
                with pytest.raises(certify.Rejected, match="recorded"):
                    certify.recompute(search, reach)
                state.edges.insert(k, (edge[0], edge[1] | 1 << edge[1].bit_length()))
                with pytest.raises(certify.Rejected):
                    certify.recompute(search, reach)
                state.edges[k] = edge


EVERY = 4
"""Of the declared variants, those whose recorded steps are compared."""


def test_recorded_steps_are_those_of_the_states() -> None:
    """On declared designs, proved and refuted, with and without meetings: every search of a location."""
    searches = 0
    targets = load(["designs"])
    named = {target.spelling: target for target in targets}
    for case in cases(targets)[::EVERY]:
        program = build(named[case.target], case.parameters)
        checker = Checker(program, platform(case.platform), environment(case.environment), Budget(4_000), False, case.never, False)
        try:
            checker.answer()
        except DesignError:
            continue
        for search, reach in checker.reached:
            if reach.size <= 400 and not search.beyond:
                certify.recompute(search, reach)
                searches += 1
    assert searches > 150


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
