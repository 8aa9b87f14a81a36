"""Plans with combinations that have no verdict, cannot be built or hang: nothing is claimed of these, and each reason is said once."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from fencepost.cli import run
from fencepost.loader import load
from fencepost.plan import Plan, plan

MAIL = """
import fencepost as fp


def mail(sync: bool = False, extra: bool = False, capacity: int = 1) -> fp.Design:
    d = fp.Design("mail")
    group = d.communicator("tp", ("r0", "r1"), capacity=capacity or None)

    def rank(me: str) -> None:
        x, host = d.device(f"x of {me}"), d.pinned(f"host of {me}")
        stream = d.stream(f"stream of {me}")

        @d.loop(me, stream=stream)
        def step() -> None:
            group.broadcast(x, root="r0")
            if sync:
                stream.synchronize()
            if extra:
                stream.synchronize()
            host.write()
            x.copy_(host, non_blocking=True)

    for number, name in enumerate(("r0", "r1")):
        with d.process(name, gpu=number):
            rank(name)
    return d
"""
"""Without a capacity the root can run ahead of its receiver without end; no design has a capacity of -1."""


LATE = """
import fencepost as fp


def late(news: bool = False, wait: bool = False) -> fp.Design:
    d = fp.Design("late")
    host, device, done = d.pinned("host"), d.device("device"), d.event("done")
    told = d.queue("told", capacity=1, item=())

    @d.loop("worker")
    def step() -> None:
        if news:
            told.get()  # nobody tells
        if wait:
            done.synchronize()
        host.write()
        device.copy_(host, non_blocking=True)
        done.record()

    return d
"""
"""A wait for news that never come is safe: nothing happens."""


def made(folder: Path, name: str, text: str, *overs: str, sets: tuple[str, ...] = ()) -> Plan:
    """The plan of the one design of a file of this text."""
    file = folder / f"{name}.py"
    file.write_text(textwrap.dedent(text))
    (target,) = load([f"{file}::{name}"])
    return plan(target, overs, sets, jobs=1)


def test_reasons_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the table: each reason with the combinations that it is of; one line of errors; exit 2 as the design cannot be built."""
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "mail.py"
    file.write_text(MAIL)
    assert run(["plan", f"{file}::mail", "--over", "sync,extra,capacity=-1..1", "--jobs", "1"]) == 2
    out, err = capsys.readouterr()
    flat = " ".join(out.split())
    assert flat.count("unbounded mailbox") == 1 and "extra capacity=0, sync capacity=0, sync + extra capacity=0" in flat
    assert flat.count("it is at least 1") == 1 and "no wait capacity=-1" in flat and "and 1 more" in flat
    assert "capacity=0: no placement is known to be safe" in flat and "capacity=1: extra, or sync" in flat
    assert "capacity=-1:" not in flat and "* no wait fewer is known to be safe there" in flat
    assert len(err.strip().splitlines()) == 1 and "and 3 more of 12 combinations" in err
    assert run(["plan", f"{file}::mail", "--over", "sync,extra", "--set", "capacity=0", "--jobs", "1", "--format", "json"]) == 3
    (design,) = json.loads(capsys.readouterr().out)["designs"]
    assert [one["reason"] is None for one in design["combinations"]].count(False) == 3


def test_what_is_not_known_is_not_claimed(tmp_path: Path) -> None:
    """Where cells are unknown no wait is said to imply another one, no depth to save nothing, and no margin is given."""
    found = made(tmp_path, "mail", MAIL, "sync,extra,capacity=0..1")
    assert found.implies == () and found.lost == ((frozenset(), ()),)
    assert found.margin((("capacity", 1),), frozenset({"sync"})) is None
    known = made(tmp_path, "mail", MAIL, "sync,extra,capacity=1..2")
    assert set(known.implies) == {("sync", "extra"), ("extra", "sync")}
    open_ = made(tmp_path, "mail", MAIL, "sync,extra", sets=("capacity=0",))
    assert open_.implies == () and open_.minimal == {(): ()}


def test_a_placement_that_hangs_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Safe because nothing ever happens is not safe: the cell says so, and no placement counts that hangs."""
    found = made(tmp_path, "late", LATE, "news,wait")
    assert found.minimal[()] == (frozenset({"wait"}),)
    assert not found.table[frozenset({"news"}), ()].proved and found.table[frozenset({"news"}), ()].known
    assert run(["plan", f"{tmp_path}/late.py::late", "--over", "news", "--jobs", "1"]) == 1
    assert "hangs: no source told" in capsys.readouterr().out
