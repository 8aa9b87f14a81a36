"""A design with one object of each kind, for bodies that keep Python state."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import fencepost as fp
import pytest

LATE = 9
"""The turn in which the bodies below do something else: none of the first few."""


class Kit:
    """A design with one object of each kind, and a decorator for its only thread."""

    def __init__(self) -> None:
        self.d = d = fp.Design("kit")
        self.host, self.gpu = d.pinned("host"), d.device("gpu")
        self.ring = d.pinned("ring", depth=3)
        self.event, self.flag, self.lock = d.event("event"), d.flag("flag"), d.lock("lock")
        self.counter, self.queue = d.counter("counter"), d.queue("queue", 2, item=(fp.EVENT,))
        self.cell, self.rows = d.cell("cell"), d.pool("rows", 2, of="row")

    def turn(self, number: int) -> None:
        """One that copies safely, but the LATE-th."""
        self.host.write()
        self.gpu.copy_(self.host, non_blocking=number == LATE)

    def refuses(self, body: Callable[..., Any], match: str) -> None:
        with pytest.raises(fp.DesignError, match=match) as caught:
            self.d.loop("worker")(body)
        text = str(caught.value)
        assert "\n" not in text and re.match(r"\S*python_\w+\.py:\d+: ", text), text


TOTAL = [0]


def bump() -> int:
    """How often it was called."""
    TOTAL[0] += 1
    return TOTAL[0]
