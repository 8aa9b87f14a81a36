"""Bad input that the rest of the platform brings, through the command line: one line with file and line, or a verdict with its reason."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from fencepost.cli import run

RANKS = """
import fencepost as fp


def ranks() -> fp.Design:
    d = fp.Design("ranks")
    group = d.communicator("tp", ("r0", "r1"))

    def rank(me: str) -> None:
        x = d.device(f"x of {me}")

        @d.loop(me)
        def step() -> None:
            d.launch("forward", writes=[x])
            CALL
            x.item()

    for number, name in enumerate(("r0", "r1")):
        with d.process(name, gpu=number):
            rank(name)
    return d
"""

ONE = """
import fencepost as fp


def one() -> fp.Design:
    d = fp.Design("one")
    x, page, stream, graph = d.device("x"), d.pinned("page"), d.stream("stream"), d.graph("g")
    event, lock = d.event("other device's", gpu=1), d.lock("gate")
    group = d.communicator("tp", ("r0", "r1"))

    @d.script("main")
    def main() -> None:
        BODY

    @d.script("other")
    def other() -> None:
        group.all_reduce(x, rank="r1", match="first")
        d.synchronize()

    return d
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def asked(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code and what was printed by `check` of a file of this text."""
    Path(f"{name}.py").write_text(textwrap.dedent(text))
    code = run(["check", f"{name}.py"])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_collective_that_a_rank_never_calls_is_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """The design is no error: its answer says who waits for whom, for ever."""
    code, out, err = asked("never_called", RANKS.replace("CALL", 'group.all_reduce(x) if me == "r0" else None'), capsys)
    assert code == 1 and "hangs" in out.lower() and "collective mismatch tp r" in out
    assert "never_called.py:15" in out and not err


def test_an_unbounded_mailbox_without_capacity_is_an_answer_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A root that runs ahead of its receivers: unknown, with the channel and the way out; decided with a capacity."""
    text = RANKS.replace("CALL", 'group.broadcast(x, root="r0")')
    code, out, _ = asked("mailbox", text, capsys)
    assert code == 3 and "unbounded mailbox" in out and "'tp r0 -> r1'" in out and "capacity" in out
    code, out, _ = asked("mailbox_bounded", text.replace('("r0", "r1"))\n', '("r0", "r1"), capacity=1)\n', 1), capsys)
    assert code == 0 and "unbounded" not in out


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("captured_sync", "with graph.capture(stream):\n            d.launch('K', writes=[x])\n            stream.synchronize()",
         "the host cannot wait during a capture (S99)"),
        ("captured_item", "with graph.capture(stream):\n            d.launch('K', writes=[x])\n            x.item()",
         "the host cannot wait during a capture (S99)"),
        ("captured_free", "with graph.capture(stream):\n            d.launch('K', writes=[x])\n            d.free(page)",
         "the host cannot wait during a capture (S99)"),
        ("wrong_device", "event.record(stream)", "a record must be on the event's own device (S25)"),
        ("two_drivers", "group.all_reduce(x, rank='r1', match='second')", "may not drive one communicator at the same time (S133)"),
        ("not_held", "lock.release()", "is released where this turn does not hold it"),
    ],
)  # fmt: skip
def test_what_the_platform_forbids_is_one_line(name: str, body: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = asked(name, ONE.replace("BODY", body), capsys)
    assert code == 2 and message in err, err
    assert len(err.strip().splitlines()) == 1 and err.startswith(f"fencepost: {name}.py:") and "Traceback" not in out + err


def test_memory_of_another_process_whose_gpu_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Found by random designs: a process of two GPUs launches on what it received, and names no stream (S16): one line."""
    text = '''
        import fencepost as fp

        def received() -> fp.Design:
            d = fp.Design("received")
            handles = d.ipc_queue("handles", capacity=1)
            with d.process("a"):
                d.stream("a stream")
            with d.process("b", gpu=1):
                stream, other = d.stream("b stream"), d.stream("other", gpu=0)

            @d.script("a", process="a")
            def a() -> None:
                block = d.empty("block")
                d.launch("fill", writes=[block])
                handles.put(block)

            @d.script("b", stream=stream, process="b")
            def b() -> None:
                d.launch("use", reads=[handles.get()])

            return d
    '''
    code, out, err = asked("received", textwrap.dedent(text), capsys)
    assert code == 2 and "of which GPU it is" in err and "say stream=" in err
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in out + err
