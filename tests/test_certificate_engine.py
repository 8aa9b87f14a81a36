"""The relation that certificates are checked with, as a proof engine of its own, against the explorer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fencepost.check import Case, build, cases
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.operations.meetings import first_meeting
from fencepost.model.platform import platform
from fencepost.proofs.certificates.footprint import Class, Footprint
from fencepost.proofs.certificates.invariant import Limits, TooLarge
from fencepost.proofs.certificates.world import Unsupported, may_overlap, surely_covers
from fencepost.proofs.certificates.writing import hazard, write_certificate
from fencepost.proofs.check import check
from fencepost.proofs.explore.search import Budget

from program_writer import r, w
from random_programs import generate

CUDA = platform(None)
ENGINES = ("ring", "vllm_v1", "vllm_v2", "tensorrt_llm", "atom", "sglang")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_variant_gets_its_declared_verdict(engine: str) -> None:
    """Proved and refuted ones alike: no variant is too large, but where ranks meet, which may be."""
    asked: list[Case] = [case for case in cases(load([f"designs/{engine}.py"])) if case.environment is None]
    assert asked
    wrong = []
    for case in asked:
        (target,) = load([case.target])
        program = build(target, case.parameters)
        if first_meeting(program) is not None:
            try:
                found = hazard(program, platform(case.platform), Limits(400, 60.0))
            except (Unsupported, TooLarge):
                continue
        else:
            found = hazard(program, platform(case.platform))
        if (found is None) != (case.expected == "proved"):
            wrong.append((case.design, case.title, case.expected, found and found[0]))
    assert not wrong


def test_random_programs_agree_with_the_explorer() -> None:
    """Another relation, another reduction, another normal form: the same answer."""
    decided = {"proved": 0, "refuted": 0}
    for seed in range(5000, 5045):
        program = generate(random.Random(seed))
        try:
            found = hazard(program, CUDA, Limits(2000, 60.0))
        except (Unsupported, TooLarge):
            continue
        answer = verdict(program)
        if answer in decided:
            decided[answer] += 1
            assert (found is None) == (answer == "proved"), (seed, answer, found)
    assert min(decided.values()) >= 6, decided


def test_stretches_lose_nothing() -> None:
    """Following every interleaving gives the same answer as stretches that no other thread notices."""
    decided = {True: 0, False: 0}
    for seed in range(7000, 7024):
        program = generate(random.Random(seed))
        if len(program.threads) < 2:
            continue
        try:
            plain = hazard(program, CUDA, Limits(4000, 60.0), reduce=False)
            found = hazard(program, CUDA, Limits(4000, 60.0))
        except (Unsupported, TooLarge):
            continue
        decided[found is None] += 1
        assert (found is None) == (plain is None), (seed, found, plain)
    assert min(decided.values()) >= 2, decided


def verdict(program: p.Program) -> str:
    """The explorer's, with a small budget; "design error" when it finds one."""
    try:
        return check(program, budget=Budget(2000, 60.0), explain=False).verdict
    except ValueError:
        return "design error"


def one_loop(*body: p.Operation) -> p.Program:
    """A pinned buffer, a device buffer, two streams and an event, and one loop over `body`, whose nodes are 0, 1, ..."""
    objects = (p.Memory("buf", "pinned"), p.Memory("dev", "device"), p.Stream("s"), p.Event("e"), p.Stream("other"))
    nodes = tuple(p.Do(one, n + 1 if n + 1 < len(body) else p.END) for n, one in enumerate(body))
    return p.Program("one loop", objects, (p.Thread("t", "loop", nodes, 0),))


BUF, DEV, S, E, OTHER = (p.Obj(k) for k in range(5))


def test_a_slice_keeps_every_overwrite_and_drops_what_nobody_reads() -> None:
    """A second record of a waited event stays, whatever is on its stream; an event that nobody waits for goes."""
    program = one_loop(
        p.EventSync(E),
        p.Host("fill", (w(BUF),)),
        p.Copy(DEV, BUF, S, True),
        p.Record(E, S),
        p.Record(E, OTHER),
    )
    footprint = Footprint(program, CUDA)
    assert footprint.slice(Class("memory", 0)) == tuple((0, n) for n in range(5))
    assert hazard(program, CUDA) is not None  # the capture that covered the copy is overwritten
    alone = one_loop(p.Host("fill", (w(BUF),)), p.Launch("k", S, (r(BUF),)), p.StreamSync(S), p.Record(E, OTHER))
    assert (0, 3) not in Footprint(alone, CUDA).slice(Class("memory", 0))
    assert hazard(alone, CUDA) is None


def test_a_missing_edge_is_a_hazard_and_its_path_is_named() -> None:
    """The path leads from the start to the access."""
    found = hazard(one_loop(p.Host("fill", (w(BUF),)), p.Launch("k", S, (r(BUF),))), CUDA)
    assert found is not None
    label, broken = found
    assert label == "buf"
    assert (broken.check.what, broken.first) == ("write", (0, 1, 0))
    assert [step.node for step in broken.path][:4] == [0, 1, -1, 0]


def test_pairs_and_classes() -> None:
    """Reads alone make no pair; an access conflicts with itself one turn later."""
    footprint = Footprint(one_loop(p.Host("fill", (w(BUF),)), p.Launch("k", S, (r(BUF), r(DEV)))), CUDA)
    assert [(footprint.accesses[i].name, footprint.accesses[j].name) for i, j in footprint.pairs] == [
        ("0.0.0", "0.0.0"),
        ("0.0.0", "0.1.0"),
    ]
    assert not footprint.conflicting(Class("memory", 1))


def test_parts() -> None:
    """Which parts of a buffer share bytes, and which surely contain another."""
    rows, cols = (("name", "rows"),), (("name", "cols"),)
    low, high = (("span", 0, 8),), (("span", 8, 16),)
    assert not may_overlap(rows, cols)
    assert may_overlap(rows, low)
    assert not may_overlap(low, high)
    assert may_overlap((), high)
    assert not may_overlap((("row", 3, 1),), (("row", 3, 2),))
    assert may_overlap((("row", 3, 1),), (("row", 4, 2),))
    assert not may_overlap((("tok", 5, True),), (("tok", 5, False),))
    assert may_overlap((("tok", 5, False),), (("tok", 5, False),))
    assert surely_covers((), rows)
    assert surely_covers((("span", 0, 16),), high)
    assert not surely_covers(high, (("span", 0, 16),))
    assert not surely_covers((("any",),), (("any",),))
    assert not surely_covers((("tok", 5, False),), (("tok", 5, False),))


def test_pairs_that_change_no_value_are_spared_and_listed(tmp_path: Path) -> None:
    """Two writes that nobody reads, and a write of the same bytes: no hazard, but named in the certificate."""
    unread = one_loop(p.Host("fill", (w(BUF),)), p.Memset(BUF, S), p.Launch("k", OTHER, (w(DEV),)))
    assert hazard(unread, CUDA) is None
    manifest = write_certificate(str(tmp_path / "unread"), unread, CUDA)
    assert any(pair.startswith("nothing reads: ") for pair in manifest.spared)
    same = one_loop(p.Launch("k", S, (r(BUF),)), p.Host("again", (w(BUF, same_bytes=True),)))
    manifest = write_certificate(str(tmp_path / "same"), same, CUDA)
    assert any(pair.startswith("same bytes: ") for pair in manifest.spared)
    other = one_loop(p.Launch("k", S, (r(BUF),)), p.Host("again", (w(BUF, same_bytes=True),)), p.Host("new", (w(BUF),)))
    assert hazard(other, CUDA) is not None


def test_an_undefined_read_and_a_shared_cursor() -> None:
    """Bytes that the owner never wrote; and a position whose order no edge records."""
    objects = (p.Stream("s"), p.Cursor("c", 2), p.Memory("ring", "pinned", 2))
    local = p.LocalInfo("x", p.MEMORY)
    stream = p.Obj(0)
    nodes = (p.Do(p.Alloc(0, "device", stream), 1), p.Do(p.Launch("k", stream, (r(p.Local(0)),)), p.END))
    found = hazard(p.Program("undefined", objects[:1], (p.Thread("t", "loop", nodes, 0, (local,)),)), CUDA)
    assert found is not None
    assert found[1].check.what == "UNDEFINED"
    index = p.LocalInfo("i", p.INDEX, 0, 2)
    steps = (p.Do(p.Advance(1, 0), 1), p.Do(p.Host("w", (w(p.Slot(2, p.Var(0))),)), p.END))
    threads = tuple(p.Thread(name, "loop", steps, 0, (index,)) for name in "ab")
    with pytest.raises(Unsupported, match="cursor 'c'"):
        hazard(p.Program("shared", objects, threads), CUDA)


def test_equal_programs_do_not_differ() -> None:
    """`!=` is the opposite of `==` (it once compared identities, so every certificate's program seemed another)."""
    one, two = one_loop(p.StreamSync(S)), one_loop(p.StreamSync(S))
    assert one == two
    assert not one != two  # noqa: SIM202
    assert one != one_loop(p.StreamSync(OTHER))
