"""Ctrl-C that cannot get lost: an interrupt that a callback or a destructor swallows is raised again."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_AFTER = 0.05
"""Seconds until a swallowed interrupt is raised again, by when the callback that swallowed it has returned."""


def keep_interrupts() -> None:
    """For the process of a command: each Ctrl-C reaches the command, wherever it comes.

    Python drops what is raised in a callback of the garbage collector or a `__del__`, also KeyboardInterrupt, and libraries
    have such callbacks (Hypothesis and Z3 here). What destructors say of objects half made when it came is not for the user.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored, as in the background of a shell, or somebody else's
    interrupted = False
    before = sys.unraisablehook

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    def hook(unraisable: UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            import _thread
            import threading

            again = threading.Timer(AGAIN_AFTER, _thread.interrupt_main)
            again.daemon = True
            again.start()
        elif not interrupted:
            before(unraisable)

    signal.signal(signal.SIGINT, handler)
    sys.unraisablehook = hook
