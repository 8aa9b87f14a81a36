"""An interrupt that a callback swallows reaches the command all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import gc, os, signal, sys, time
from fencepost.interrupts import keep_interrupts
keep_interrupts()
"""

FOREGROUND = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Whoever starts the tests may have SIGINT ignored, which is inherited."""

SWALLOWED = """
def callback(phase, info):
    if phase == "start":
        gc.callbacks.remove(callback)
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)  # the handler runs here at the latest, and the collector drops what it raises
gc.callbacks.append(callback)
try:
    gc.collect()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pass
except KeyboardInterrupt:
    print("interrupted")
"""

HALF_MADE = """
class Thing:
    def __del__(self):
        self.owner
def make():
    thing = Thing()
    signal.raise_signal(signal.SIGINT)
    time.sleep(0)
try:
    make()
except KeyboardInterrupt:
    print("interrupted")
"""

DESTRUCTOR = """
class Thing:
    def __del__(self):
        self.owner
del Thing
class Other:
    def __del__(self):
        self.owner
Other()
"""


@pytest.mark.parametrize("program", [SWALLOWED, HALF_MADE])
def test_the_interrupt_arrives_and_nothing_else_is_said(program: str) -> None:
    """Both with nothing on standard error."""
    done = subprocess.run([sys.executable, "-c", FOREGROUND + BEGIN + program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_without_an_interrupt_errors_of_destructors_are_told() -> None:
    """Only what comes after an interrupt is left out."""
    done = subprocess.run([sys.executable, "-c", BEGIN + DESTRUCTOR], capture_output=True, text=True, timeout=60, check=False)
    assert "AttributeError" in done.stderr


def test_an_ignored_interrupt_stays_ignored() -> None:
    """A command in the background of a shell has SIGINT ignored."""
    text = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + BEGIN + "print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "True\n"
