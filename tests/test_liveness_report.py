"""Hangs as a user reads them: the name, one line per waiter, who could end it, within 80 and 100 columns; the same as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fencepost.cli import run

DESIGNS = '''
import fencepost as fp


@fp.variant("circle", fp.PROVED, hang="deadlock lock of the worker")
def circle() -> fp.Design:
    d = fp.Design("circle")
    first, second = d.lock("lock of the scheduler"), d.lock("lock of the worker")

    @d.loop("scheduler thread")
    def scheduler():
        with first, second:
            pass

    @d.loop("worker thread")
    def worker():
        with second, first:
            pass

    return d


@fp.variant("ended", fp.PROVED, hang="no source items")
def ended() -> fp.Design:
    d = fp.Design("ended")
    items = d.queue("items", capacity=4, item=())

    @d.script("main")
    def first():
        items.put()

    @d.loop("reader")
    def reader():
        items.get()

    return d


@fp.variant("past it", fp.PROVED, hang="no source items")
def past() -> fp.Design:
    d = fp.Design("past")
    items, go = d.queue("items", capacity=4, item=()), d.flag("go")

    @d.script("main")
    def first():
        items.put()
        go.wait()

    @d.script("reader")
    def reader():
        items.get()
        items.get()
        go.set()

    return d


@fp.variant("kinds", fp.PROVED, hang="collective mismatch ranks rank 1 -> rank 0")
def mismatch() -> fp.Design:
    d = fp.Design("mismatch")
    ranks = [d.process(f"rank {k}", gpu=k) for k in range(2)]
    group = d.communicator("ranks", [rank.name for rank in ranks])
    for k, rank in enumerate(ranks):
        with rank:
            x = d.device(f"x {k}")

            @d.loop(f"host {k}")
            def step():
                if k == 0:
                    group.all_reduce(x)
                else:
                    group.reduce_scatter(x, x)
                d.synchronize(gpu=k)

    return d


@fp.variant("flag", fp.PROVED, hang="lost signal ready")
def lost() -> fp.Design:
    d = fp.Design("lost")
    ready, go = d.flag("ready"), d.queue("go", capacity=2, item=())

    @d.script("sender")
    def sender():
        for _ in range(2):
            go.put()
            ready.set()

    @d.loop("receiver")
    def receiver():
        go.get()
        ready.wait()
        ready.clear()

    return d
'''

SAID = {
    "circle": [
        "deadlock lock of the worker",
        "scheduler thread waits for lock lock of the worker since step 0 (hangs.py:12), which only worker thread can end",
        "worker thread waits for lock lock of the scheduler since step 0 (hangs.py:17), which only scheduler thread can end",
    ],
    "ended": [
        "no source items",
        "reader waits for an item of items since step 1 (hangs.py:34), which nobody can end any more: main has ended (if reader "
        "may wait for work for ever, say d.loop('reader', idle=True))",
    ],
    "past": [
        "no source items",
        "main waits for flag go since step 0 (hangs.py:47), which only reader can end",
        "reader waits for an item of items since step 0 (hangs.py:52), which nobody can end any more: main is past it",
    ],
    "lost": [
        "lost signal ready",
        "receiver waits for flag ready since step 1 (hangs.py:92), which nobody can end any more: sender has ended",
    ],
}


@pytest.fixture
def designs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "hangs.py"
    path.write_text(DESIGNS)
    monkeypatch.chdir(tmp_path)
    return "hangs.py"


def hangs_in(text: str) -> list[str]:
    """The lines that stand beside and under "hangs", up to the next heading."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  hangs "))
    found = [lines[first][14:]]
    for line in lines[first + 1 :]:
        if not line.startswith(" " * 14):
            break
        found.append(line[14:])
    return found


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("name", list(SAID))
def test_one_line_per_waiter(
    designs: str, name: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    run(["check", f"{designs}::{name}"])
    text = capsys.readouterr().out
    assert all(len(line) <= columns for line in text.splitlines())
    lines = hangs_in(text)
    assert lines[0] == SAID[name][0]
    assert " ".join(lines) == " ".join(SAID[name])
    for waiter in SAID[name][1:]:  # each begins a line of its own
        assert any(waiter.startswith(line) for line in lines[1:]), waiter


def test_a_mismatch_says_what_came_instead(designs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    run(["check", f"{designs}::mismatch"])
    text = " ".join(capsys.readouterr().out.split())
    assert "hangs collective mismatch ranks rank 1 -> rank 0" in text
    assert "waits for the signal 'all_reduce' of ranks rank 1 -> rank 0 since step 0 of host 0 (hangs.py:70), where the signal 'reduce_scatter' came instead" in text
    assert "waits for the signal 'reduce_scatter' of ranks rank 0 -> rank 1 since step 0 of host 1 (hangs.py:72), where the signal 'all_reduce' came instead" in text


def test_json_has_the_name_and_every_waiter(designs: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", designs, "--format", "json"])
    answers = {answer["design"].partition("::")[2]: answer for answer in json.loads(capsys.readouterr().out)["answers"]}
    for name, said in SAID.items():
        assert answers[name]["hangs"] == [said[0] + " - " + "; ".join(said[1:])]
        assert answers[name]["progress"] == []
