"""An answer about a design, told with the places of the same design where it is written a few lines higher or lower."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from fencepost.model.program import Place, Program

T = TypeVar("T")

Frames = tuple[Place, ...]

_SPOT = re.compile(r"[\w./-]+\.py:\d+")


def moved(value: T, old: Program, new: Program) -> T:
    """`value` with each place of `old`, and each `file:line` in its texts, as that of the same node in `new`."""
    frames: dict[Frames, Frames] = {}
    for before, after in zip(old.threads, new.threads, strict=True):
        for one, other in zip(before.nodes, after.nodes, strict=True):
            if 0 <= one.site < len(old.places) and 0 <= other.site < len(new.places):
                frames.setdefault(old.places[one.site], new.places[other.site])
    spots: dict[str, str] = {}
    for was, now in frames.items():
        for frame, same in zip(was, now, strict=False):
            spots.setdefault(f"{frame.file}:{frame.line}", f"{same.file}:{same.line}")

    def go(x: Any) -> Any:
        if isinstance(x, str):
            return _SPOT.sub(lambda match: spots.get(match.group(0), match.group(0)), x)
        if isinstance(x, msgspec.Struct):
            return msgspec.structs.replace(x, **{name: go(getattr(x, name)) for name in x.__struct_fields__})
        if isinstance(x, tuple):
            return frames[x] if x in frames and x else tuple(go(one) for one in x)
        return x

    return go(value)  # type: ignore[no-any-return]
