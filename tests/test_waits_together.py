"""Several waits that are wider than needed: which of them may be narrowed at once, against the same change written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import fencepost as fp
import pytest
from fencepost.cli import run
from fencepost.model.answer import PROVED, REFUTED
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check
from fencepost.proofs.waits.classify import NEEDED, Waits, waits
from fencepost.report.waits import Told


def shared(first_later: bool = False, second_later: bool = False) -> fp.Design:
    """Two waits for buffers of their own, at the top; a third buffer needs one of them to stay there."""
    d = fp.Design("shared")
    m, n, r, g = d.pinned("m"), d.pinned("n"), d.pinned("r"), d.device("g")
    a, b = d.event("a"), d.event("b")
    s, t = d.stream("s"), d.stream("t")

    @d.loop("worker")
    def step() -> None:
        if not first_later:
            a.synchronize()
        if not second_later:
            b.synchronize()
        r.write()
        g["r"].copy_(r, non_blocking=True, stream=s)
        t.wait_stream(s)
        if first_later:
            a.synchronize()
        m.write()
        g["m"].copy_(m, non_blocking=True, stream=s)
        if second_later:
            b.synchronize()
        n.write()
        g["n"].copy_(n, non_blocking=True, stream=t)
        a.record(s)
        b.record(t)

    return d


def apart(later: bool = False) -> fp.Design:
    """Two buffers with a stream and an event each: what is true of one is no matter of the other."""
    d = fp.Design("apart")
    sides = [(d.pinned(f"m{k}"), d.device(f"g{k}"), d.event(f"e{k}"), d.stream(f"s{k}")) for k in range(2)]
    o = d.device("o")

    @d.loop("worker")
    def step() -> None:
        if not later:
            for _, _, event, _ in sides:
                event.synchronize()
        d.launch("independent", writes=[o])
        for host, device, event, stream in sides:
            if later:
                event.synchronize()
            host.write()
            device.copy_(host, non_blocking=True, stream=stream)
            event.record(stream)

    return d


def closing(answer: Waits) -> list[str]:
    """What is said below the table of those that are wider than needed."""
    return [text for heading, text in Told(answer).closing() if heading == "wider"]


def test_all_at_once() -> None:
    """Both may stand later at the same time: proved, as it is when written by hand."""
    answer = waits(program_of(apart, {}))
    assert [f.kind for f in answer.findings] == [NEEDED, NEEDED] and all(f.weaker[0].how == "later" for f in answer.findings)
    assert answer.together is not None and answer.together.syncs == (0, 1) and answer.together.answer is not None
    assert answer.together.answer.verdict == PROVED and answer.together.answer.certificate.checked  # type: ignore[union-attr]
    (text,) = closing(answer)
    assert text.startswith("[1] [2] at once beside [1] [2] alone: proved, certificate")
    assert check(program_of(apart, {"later": True}), explain=False).verdict == PROVED


def test_not_at_once() -> None:
    """Each may stand later, as one of both does for the third buffer: whoever moves both loses it, and the report says so."""
    verdict = {
        (one, two): check(program_of(shared, {"first_later": one, "second_later": two}), explain=False).verdict
        for one in (False, True) for two in (False, True)
    }  # fmt: skip
    assert verdict == {(False, False): PROVED, (True, False): PROVED, (False, True): PROVED, (True, True): REFUTED}
    answer = waits(program_of(shared, {}))
    wide = [f for f in answer.findings if f.weaker]
    assert [f.sync for f in wide] == [0, 1] and {f.weaker[0].how for f in wide} == {"later"}
    assert answer.together is not None and answer.together.syncs == () and answer.together.answer is None
    (text,) = closing(answer)
    assert text == "[1] [2]: what is said of each holds by itself; no two of them are proved at once"


def test_one_wait_in_several_ways(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A later place or an earlier record are alternatives; JSON names what was proved at once."""
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "both.py"
    file.write_text('''
import fencepost as fp


def both() -> fp.Design:
    d = fp.Design("both")
    sides = [(d.pinned(f"m{k}"), d.device(f"g{k}"), d.event(f"e{k}"), d.stream(f"s{k}")) for k in range(2)]
    o = d.device("o")

    @d.loop("worker")
    def step() -> None:
        for _, _, event, _ in sides:
            event.synchronize()
        d.launch("independent", writes=[o])
        for host, device, event, stream in sides:
            host.write()
            device.copy_(host, non_blocking=True, stream=stream)
            d.launch(f"work on {stream.name}", reads=[device], stream=stream)
            event.record(stream)

    return d
''')
    assert run(["waits", f"{file}::both", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    flat = " ".join(text.split())
    assert flat.count("wider than needed: right before") == 2 and flat.count("or: a record right behind") == 2
    assert "wider [1] [2] at once, each as its first line says, beside [1] [2] alone: proved" in flat
    assert all(len(line) <= 80 for line in text.splitlines())
    assert run(["waits", f"{file}::both", "--jobs", "1", "--format", "json"]) == 0
    (design,) = json.loads(capsys.readouterr().out)["designs"]
    assert design["narrowed_together"]["synchronisations"] == [1, 2] and design["narrowed_together"]["verdict"] == PROVED
