"""Output that cannot be written, read or shown is one line, and an exit code that is no verdict's."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fencepost.width import NARROWEST, columns

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = (["check", "designs/ring.py", "-k", "depth equals"], ["show", "designs/ring.py::ring"], ["list", "designs"], ["--help"])
FENCEPOST = [sys.executable, "-m", "fencepost"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one[0])
def test_a_full_disk(command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*FENCEPOST, *command], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (2, "fencepost: standard output: No space left on device\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell closes the output")
def test_a_closed_output() -> None:
    text = f"exec {sys.executable} -m fencepost list designs >&-"
    done = subprocess.run(["sh", "-c", text], stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (2, "fencepost: standard output is closed\n")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes that close")
def test_a_reader_that_goes() -> None:
    """141, as other programs have it, and never 1: that is a refutation."""
    running = subprocess.Popen([*FENCEPOST, "show", "designs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert running.stdout is not None and running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    said = running.stderr.read()
    running.stderr.close()
    assert (running.wait(), said) == (141, "")


def test_an_output_that_knows_ascii_alone() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*FENCEPOST, *COMMANDS[0]], capture_output=True, cwd=ROOT, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u2500\u2500" in done.stdout and b"as declared" in done.stdout


@pytest.mark.parametrize(("said", "wide"), [("", 100), ("0", 100), ("-3", 100), ("x", 100), ("20", NARROWEST), ("80", 80), ("200", 200)])
def test_width(said: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS, where it says something; never narrower than what can be read."""
    monkeypatch.setenv("COLUMNS", said)
    assert columns(100, io.StringIO()) == wide
