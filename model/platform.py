"""Platform profiles (what vendors disagree on) and environments (constraints that a debug run adds)."""

from __future__ import annotations

import msgspec
from fencepost.model.program import Data


class Platform(Data, frozen=True):
    """Switches of a platform profile; every default is the documented or measured behaviour of CUDA.

    `pageable_h2d`: "staged" (bytes are read before the call returns, S47 V1) | "late" (S47 V2) | "blocking" (S52).
    `pageable_d2h`: "blocking" (S48) | "late".
    `free`: "orders nothing" (what a free waits for is no edge, S38, S40) | "synchronises" (the host waits for the device).
    `rerecord`: "defined" (an event is recorded anew while its last record is outstanding, S19) | "undefined" (S30: decided as
    if defined, and said as an assumption).
    """

    name: str
    pageable_h2d: str = "staged"
    pageable_d2h: str = "blocking"
    free: str = "orders nothing"
    rerecord: str = "defined"


class Environment(Data, frozen=True):
    """Constraints on schedules. Under one, "no hazard" is MASKED, never PROVED (theory: environments)."""

    name: str
    blocking_kernels: bool = False
    blocking_copies: bool = False
    one_queue: bool = False
    about: str = ""

    def blocks(self, other: Environment) -> bool:
        """Whether every schedule of this one is one of the other: calls wait here where they wait there, and maybe elsewhere."""
        return (
            self.blocking_kernels >= other.blocking_kernels
            and self.blocking_copies >= other.blocking_copies
            and self.one_queue == other.one_queue
        )


PLATFORMS = {
    p.name: p
    for p in (
        Platform("cuda"),
        Platform("cuda-late-pageable", pageable_h2d="late", pageable_d2h="late"),
        Platform("cuda-synchronising-free", free="synchronises"),
        Platform("rocm", pageable_h2d="blocking", pageable_d2h="blocking", rerecord="undefined"),
    )
}

BARE = Environment("bare")
ENVIRONMENTS = {
    e.name: e
    for e in (
        BARE,
        Environment("launch-blocking-kernels", blocking_kernels=True, about="each kernel launch waits (S113, S120)"),
        Environment("launch-blocking", blocking_kernels=True, blocking_copies=True, about="kernels and copies (S113)"),
        Environment("one-hardware-queue", one_queue=True, about="all streams of a GPU share one queue (S115-S117)"),
        Environment("serial-copy-engine", about="copies do not overlap, in any arbitration order (S61)"),
    )
}


SWITCHES: dict[str, tuple[str, ...]] = {
    "pageable_h2d": ("staged", "late", "blocking"),
    "pageable_d2h": ("blocking", "late"),
    "free": ("orders nothing", "synchronises"),
    "rerecord": ("defined", "undefined"),
}
"""What each switch can be, the default first."""


class _ProfileFile(msgspec.Struct):
    fencepost_platform: int
    name: str = "measured"
    pageable_h2d: str = "staged"
    pageable_d2h: str = "blocking"
    free: str = "orders nothing"
    rerecord: str = "defined"


def read_platform(path: str) -> Platform:
    """A profile that `fencepost probe --profile` wrote. Raises `ValueError` (one line, naming the file)."""
    try:
        with open(path, "rb") as stream:
            found = msgspec.json.decode(stream.read(), type=_ProfileFile)
    except OSError as error:
        raise ValueError(f"{path}: cannot read the platform profile ({error.strerror})") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: no platform profile ({error}); write one with `fencepost probe --profile`") from None
    if found.fencepost_platform != 1:
        raise ValueError(f"{path}: platform profile of version {found.fencepost_platform}, this fencepost reads version 1")
    for what, known in SWITCHES.items():
        if getattr(found, what) not in known:
            raise ValueError(f"{path}: {what} is {getattr(found, what)!r}; it can be: {', '.join(known)}")
    return Platform(found.name, found.pageable_h2d, found.pageable_d2h, found.free, found.rerecord)


def platform(name: str | None) -> Platform:
    """Profile by name, or of a profile's file (*.json); None is "cuda". Raises `ValueError` that lists the names."""
    if name is not None and name.endswith(".json"):
        return read_platform(name)
    return PLATFORMS[_known(name or "cuda", list(PLATFORMS), "platform")]


def environment(name: str | None) -> Environment:
    """Environment by name; None is "bare". Raises `ValueError` that lists the names."""
    return ENVIRONMENTS[_known(name or "bare", list(ENVIRONMENTS), "environment")]


def _known(name: str, names: list[str], what: str) -> str:
    if name not in names:
        raise ValueError(f"no {what} named {name!r}; there are: {', '.join(names)}")
    return name
