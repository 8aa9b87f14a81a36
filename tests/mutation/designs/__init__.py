"""Small designs, each of which stands on few rules of the semantics: without one of them its answer is another one.

`scratch` is memory that one thread alone writes and reads: a conflict in every design, so that a proof says something.
"""

from __future__ import annotations

from mutation.declared import DESIGNS
from mutation.designs import (  # noqa: F401  each enters its designs
    allocators,
    cells,
    channels,
    communicators,
    composites,
    copies,
    device_flags,
    events,
    graphs,
    held_back,
    legacy,
    locks_flags,
    pending,
    pending_queries,
    platform,
    pools,
    queries,
    queues,
    reductions,
    rings,
    shared_queue,
    sharing,
    values,
)

__all__ = ["DESIGNS"]
