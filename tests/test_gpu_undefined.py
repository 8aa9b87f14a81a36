"""Reads of undefined bytes replayed: what an earlier owner left, and freed memory that somebody else takes."""

from __future__ import annotations

import fencepost as fp
import pytest
from fencepost.gpu_validate.arms import prepare
from fencepost.gpu_validate.emulated import EmulatedRun
from fencepost.gpu_validate.files import Subject
from fencepost.gpu_validate.plan import Alloc
from fencepost.gpu_validate.table import Row, replay
from fencepost.model import program as p
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check


def fresh(space: str = "device", fill: bool = False) -> fp.Design:
    """A tensor that is read before anything was written into it."""
    d = fp.Design("fresh")
    out = d.device("out")

    @d.loop("worker")
    def step(n: fp.Turn) -> None:
        x = d.empty("x") if space == "device" else d.empty_pinned("x")
        if fill:
            if space == "device":
                d.memset(x)
            else:
                x.write()
        if space == "device":
            d.launch("use", reads=[x], writes=[out])
        else:
            x.read()

    return d


def pointer(access: str = "kernel", keep: bool = False) -> fp.Design:
    """A raw pointer to a tensor, used after the tensor is gone."""
    d = fp.Design("pointer")
    out = d.device("out")

    @d.loop("worker")
    def step(n: fp.Turn) -> None:
        pinned = access in ("host", "in place")
        x = d.empty_pinned("x") if pinned else d.empty("x")
        if pinned:
            x.write()
        else:
            d.launch("fill", writes=[x])
        raw = x.view(held=False)
        if not keep:
            x.release()
        if access == "host":
            raw.read()
        elif access == "copy":
            d.memcpy_async(out, raw)
        elif access == "written":
            d.launch("spoil", writes=[raw])
        else:
            d.launch("use", reads=[raw], writes=[out])
        d.synchronize()

    return d


def subject(broken: p.Program, fixed: p.Program) -> Subject:
    answer = check(broken)
    assert answer.verdict == "refuted" and answer.run is not None and check(fixed).verdict == "proved"
    assert answer.hazards[0].kind == "UNDEFINED" and answer.hazards[0].first is None
    return Subject("d", "v", broken, "refuted", None, answer.run, answer.hazards[0], "fix", fixed)


def fresh_subject(space: str) -> Subject:
    return subject(program_of(fresh, {"space": space}), program_of(fresh, {"space": space, "fill": True}))


def pointer_subject(access: str) -> Subject:
    return subject(program_of(pointer, {"access": access}), program_of(pointer, {"access": access, "keep": True}))


def wrong(row: Row) -> dict[str, int]:
    assert row.error is None, row.error
    return {arm.name: arm.wrong for arm in row.arms}


@pytest.mark.parametrize("space", ["device", "pinned"])
def test_a_fresh_block_shows_what_an_earlier_owner_left(space: str) -> None:
    row = replay(fresh_subject(space), EmulatedRun, 2)
    assert wrong(row) == {"ungated": 2, "gated": 2, "gated, fixed": 0}
    said = row.arms[1].first_wrong
    assert said is not None and "x held what an earlier owner of its block left there" in said


@pytest.mark.parametrize("access", ["kernel", "copy", "host", "in place"])
def test_a_freed_block_belongs_to_whoever_takes_it(access: str) -> None:
    row = replay(pointer_subject(access), EmulatedRun, 2)
    assert wrong(row) == {"ungated": 0, "gated": 2, "gated, fixed": 0}, "as long as nobody takes it, the bytes are still there"
    said = row.arms[1].first_wrong
    assert said is not None and "held what the block's new owner wrote; it should have held 'fill'" in said.replace("'write'", "'fill'")
    assert any("takes the freed memory of x" in note for arm in row.arms for note in arm.notes)


def test_a_write_through_a_pointer_spoils_the_new_owner() -> None:
    row = replay(pointer_subject("written"), EmulatedRun, 2)
    assert wrong(row) == {"ungated": 0, "gated": 2, "gated, fixed": 0}
    said = row.arms[1].first_wrong
    assert said is not None and said.startswith("another tensor's reader") and "it should have held what the block's new owner" in said


def test_the_new_owner_gets_a_size_of_its_own() -> None:
    one = pointer_subject("kernel")
    assert one.run is not None and one.hazard is not None
    gated = prepare(one.program, one.run, one.hazard, None).gated
    added = [line.call.buffer for line in gated.lines if isinstance(line.call, Alloc) and line.op == "another tensor"]
    assert len(added) == 1
    label = gated.buffers[added[0]].label
    assert label is not None and sum(b.label == label for b in gated.buffers) == 2


@pytest.mark.parametrize("kind", ["read", "write", "copy"])
def test_a_design_that_hands_the_block_on(kind: str) -> None:
    from test_found import raw_pointer

    program = raw_pointer(True, kind).build()
    answer = check(program)
    hazard = next(h for h in answer.hazards if h.kind == "UNDEFINED")
    assert answer.run is not None
    assert wrong(replay(Subject("d", "v", program, "refuted", None, answer.run, hazard), EmulatedRun, 2))["gated"] == 2
