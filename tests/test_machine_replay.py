"""Scripts and replay strings: a run is its decisions; and what Hypothesis finds is small."""

from __future__ import annotations

import base64
import zlib

import fencepost as fp
import msgspec
import pytest
from fencepost.designs import atom, ring
from fencepost.simulator import search as s
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import (
    DEFAULTS,
    VERSION,
    Follow,
    Random,
    Replay,
    ReplayError,
    Script,
    design_hash,
    read_replay,
    replay_string,
)  # fmt: skip
from fencepost.simulator.machine_timing import PROFILES


def too_shallow():
    return fp.program_of(ring.ring, {"depth": 1, "outstanding": 2})


def no_holds():
    return fp.program_of(atom.deferred_output, {"held": (), "draft_dropped": "at its use"})


@pytest.mark.parametrize("made", [too_shallow, no_holds])
@pytest.mark.parametrize("profile", [None, "typical"])
def test_a_recorded_script_is_the_run(made, profile):
    machine = Machine(made())
    kept = 0
    for seed in range(60):
        how = {"turns": 5, "profile": profile and PROFILES[profile], "seed": seed}
        first = machine.run(Random(seed), **how)
        again = machine.run(Follow(first.script), **how)
        for part in ("ended", "observations", "run", "script", "operations", "time", "starts"):
            assert getattr(again, part) == getattr(first, part), (seed, part)
        kept += first.wrong is not None
    assert kept


def test_equal_seeds_are_equal_runs_and_machines_do_not_remember():
    one, two = Machine(no_holds()), Machine(no_holds())
    for seed in range(10):
        two.run(Random(seed + 100))
    for seed in range(10):
        assert one.run(Random(seed)).run == two.run(Random(seed)).run


def test_without_decisions_everything_ends_at_once_and_is_right():
    for made in (too_shallow, no_holds):
        outcome = Machine(made()).run(Follow(DEFAULTS), turns=5)
        assert outcome.ended == "done" and not outcome.observations
        assert outcome.script == DEFAULTS


def test_a_replay_string_carries_everything():
    program = no_holds()
    said = Replay(parameters={"held": [], "draft_dropped": "at its use"}, environment="bare", turns=3, limit=99, seed=4,
                  timing="typical", hardware=(4, "direction", "split"), script=Script(stalls=((2, -1, 1),), answers=(1, 0, 1)))  # fmt: skip
    text = replay_string(program, said)
    assert text.startswith(f"fencepost-run:{VERSION}:{design_hash(program)}:") and len(text.split()) == 1
    assert read_replay(text) == (design_hash(program), said)


def test_the_hash_is_of_the_design_and_not_of_its_place():
    program = too_shallow()
    assert design_hash(msgspec.structs.replace(program, places=())) == design_hash(program)
    assert design_hash(program) != design_hash(fp.program_of(ring.ring, {"depth": 2, "outstanding": 2}))


def packed(**changes):
    said = msgspec.to_builtins(Replay(**changes))
    return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(said))).decode().rstrip("=")


@pytest.mark.parametrize(
    "text, word",
    [
        ("", "not a replay string"),
        ("nonsense", "not a replay string"),
        ("fencepost-run:0:0123456789:eNpL", "version 0"),
        (f"fencepost-run:{VERSION}:0123456789:eNpL", "damaged"),
        (f"fencepost-run:{VERSION}:0123456789:####", "damaged"),
        (f"fencepost-run:{VERSION}:0123456789:" + packed(turns=0), "damaged"),
        (f"fencepost-run:{VERSION}:0123456789:" + packed(script=Script(stalls=((0, -7, 0),))), "damaged"),
        (f"fencepost-run:{VERSION}:0123456789:" + packed(script=Script(stalls=((0, 1, -1),))), "damaged"),
        (f"fencepost-run:{VERSION}:0123456789:" + packed(script=Script(threads=((0, 0),))), "damaged"),
        (f"fencepost-run:{VERSION}:0123456789:" + packed(), "another design"),
    ],
)  # fmt: skip
def test_strings_that_cannot_be_replayed_say_why(text, word):
    with pytest.raises(ReplayError, match=word) as caught:
        s.replay(too_shallow(), text)
    assert "\n" not in str(caught.value)


def test_a_string_from_a_world_that_is_not_known_says_so():
    program = too_shallow()
    for said in (Replay(environment="moon"), Replay(platform="abacus"), Replay(timing="sundial")):
        with pytest.raises(ReplayError, match="not known here"):
            s.replay(program, replay_string(program, said))


def test_hypothesis_finds_and_shrinks_to_one_stall():
    for made, stalls in ((too_shallow, 1), (no_holds, 1)):
        search = s.Search(made())
        found = search.hypothesis(400, 6, seed=2)
        assert found is not None and found.how == "hypothesis"
        assert len(found.replay.script.stalls) == stalls
        assert found.replay.turns == 2  # the second step overwrites what the first one still reads


def test_hypothesis_chooses_parameters_and_shrinks_them():
    designs = [
        (s.World(parameters={"depth": d}), fp.program_of(ring.ring, {"depth": d, "outstanding": 3})) for d in (4, 3, 2, 1)
    ]
    number, searched = s.search_parameters(designs, examples=400, turns=6, seed=1)
    assert searched.found is not None and searched.found.replay.parameters == {"depth": 2} and number == 2
    number, searched = s.search_parameters(designs[:2], examples=60, turns=6, seed=1)
    assert searched.found is None and 1 <= searched.examples <= 60


def test_searches_are_deterministic():
    def texts():
        search = s.Search(no_holds())
        return [search.hypothesis(200, 6, seed=3), s.Search(no_holds()).random(200, 6, seed=3)]

    one, two = texts(), texts()
    assert [f and f.text for f in one] == [f and f.text for f in two] and all(one)


def test_shrinking_keeps_the_wrong_read_and_leaves_nothing_out():
    search = s.Search(no_holds())
    found = search.random(100, 8, seed=5)
    assert found is not None and found.outcome.wrong is not None
    for smaller in s._smaller(found.replay):
        got = s._follow(search.machine, smaller).wrong
        assert got is None or got.object != found.outcome.wrong.object
