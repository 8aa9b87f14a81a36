"""fencepost: may this synchronisation go, and is this buffer deep enough?

Public names are loaded when they are first used: importing `fencepost.model` runs this file first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if __name__ != "fencepost":
    raise ImportError(f"this folder is the package fencepost, not {__name__!r}; install it and `import fencepost`")

if TYPE_CHECKING:
    from fencepost.assertions import Inconclusive, VerdictError, assert_proved, assert_refuted, assert_removal_safe
    from fencepost.model.answer import BOUNDED, MASKED, PROVED, REFUTED, UNKNOWN
    from fencepost.model.language import (
        ANY,
        Agent,
        Callback,
        Cell,
        Communicator,
        Counter,
        Cursor,
        Design,
        DesignError,
        DesignWarning,
        DeviceFlag,
        Event,
        Flag,
        Graph,
        Handle,
        Index,
        Item,
        Lock,
        Pool,
        Process,
        Queue,
        Stream,
        StreamPool,
        Tensor,
        Turn,
        Work,
        accept,
        program_of,
        read,
        variant,
        write,
    )
    from fencepost.model.program import EVENT, HANDLE, INDEX, MEMORY, Program

_HOMES = {
    "fencepost.assertions": (
        "Inconclusive", "VerdictError", "assert_proved", "assert_refuted", "assert_removal_safe",
    ),
    "fencepost.model.answer": ("BOUNDED", "MASKED", "PROVED", "REFUTED", "UNKNOWN"),
    "fencepost.model.language": (
        "ANY", "Agent", "Callback", "Cell", "Communicator", "Counter", "Cursor", "Design", "DesignError", "DesignWarning",
        "DeviceFlag", "Event", "Flag", "Graph", "Handle", "Index", "Item", "Lock", "Pool", "Process", "Queue", "Stream",
        "StreamPool", "Tensor", "Turn", "Work", "accept", "program_of", "read", "variant", "write",
    ),
    "fencepost.model.program": ("EVENT", "HANDLE", "INDEX", "MEMORY", "Program"),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ANY", "BOUNDED", "EVENT", "HANDLE", "INDEX", "MASKED", "MEMORY", "PROVED", "REFUTED", "UNKNOWN", "Agent", "Callback",
    "Cell", "Communicator", "Counter", "Cursor", "Design", "DesignError", "DesignWarning", "DeviceFlag", "Event", "Flag",
    "Graph", "Handle", "Inconclusive", "Index", "Item", "Lock", "Pool", "Process", "Program", "Queue", "Stream",
    "StreamPool", "Tensor", "Turn", "VerdictError", "Work", "accept", "assert_proved", "assert_refuted",
    "assert_removal_safe", "program_of", "read", "variant", "write",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
