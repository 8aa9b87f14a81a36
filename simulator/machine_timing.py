"""Durations for timed runs: what operations declare (`time=`), else a profile's figures, in nanoseconds."""

from __future__ import annotations

import random

import msgspec
from fencepost.model import program as p
from fencepost.simulator.machine_state import HostThread, Ref, Work

SECOND = 1_000_000_000
"""Nanoseconds."""


class Profile(msgspec.Struct, frozen=True):
    """Durations in nanoseconds where a design gives none; bandwidths in bytes per microsecond.

    `jitter` 0.2: every duration is drawn from 0.8 to 1.2 times its figure.
    """

    name: str
    call: int = 5_000
    """One host step: a call from Python."""
    touch: int = 2_000
    """Host code that accesses memory."""
    kernel: int = 10_000
    copy: int = 5_000
    """A copy, beside its bytes."""
    host_link: int = 25_000
    """Between host and device: 25 GB/s."""
    device_link: int = 1_000_000
    jitter: float = 0.2


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("typical"),
        Profile("declared", call=0, touch=0, kernel=0, copy=0, host_link=0, device_link=0, jitter=0.0),
    )
}
""""typical": orders of magnitude of a server GPU. "declared": only what the design says; everything else takes no time."""


class Clockwork:
    """Durations of one run."""

    def __init__(self, profile: Profile, sizes: dict[str, int], seed: int) -> None:
        self.profile, self.sizes = profile, sizes
        self.random = random.Random(seed)

    def _about(self, time: float) -> int:
        jitter = self.profile.jitter
        return int(time * (1 + jitter * (2 * self.random.random() - 1))) if jitter else int(time)

    def call(self, th: HostThread) -> int:
        """What one host step costs its thread, waiting aside."""
        operation = th.node.operation
        time = None
        if isinstance(operation, (p.EventSync, p.StreamSync, p.DeviceSync)):
            time = operation.time
        return self._about(self.profile.call if time is None else time * SECOND)

    def host(self, work: Work) -> int:
        """Host code."""
        time = getattr(work.operation, "time", None)
        return self._about(self.profile.touch if time is None else time * SECOND)

    def device(self, work: Work) -> int:
        """A device item: a kernel's figure, or a copy's with its bytes."""
        time = getattr(work.operation, "time", None)
        if time is not None:
            return self._about(time * SECOND)
        profile = self.profile
        if work.what == "kernel":
            return self._about(profile.kernel)
        link = profile.host_link if work.what in ("h2d", "d2h") else profile.device_link
        refs = [ref for ref, _ in work.reads] + [ref for ref, _, _ in work.writes]
        moved = min((self._bytes(ref) for ref in refs), default=0)
        return self._about(profile.copy + (moved * 1000 / link if link else 0))

    def _bytes(self, ref: Ref) -> int:
        """Of a block or a whole buffer; a part counts as its share of a span, else as the whole."""
        return self.sizes.get(ref.name.partition("[")[0], 4096)
