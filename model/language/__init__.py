"""The language of designs: plain Python functions that read like the PyTorch code they stand for.

`Design` makes objects and threads; a body is traced eagerly, at its decorator, into a `Program`.
"""

from fencepost.model.language.blocks import Process
from fencepost.model.language.build import program_of
from fencepost.model.language.communicators import Communicator
from fencepost.model.language.composites import Agent, StreamPool
from fencepost.model.language.design import Design
from fencepost.model.language.errors import DesignError, DesignWarning
from fencepost.model.language.graphs import Graph
from fencepost.model.language.hosts import Cell, Counter, Cursor, Flag, Item, Lock, Pool, Queue
from fencepost.model.language.index import ANY, Handle, Index, Turn
from fencepost.model.language.meetings import Callback, DeviceFlag
from fencepost.model.language.objects import Event, Spec, Stream, Tensor, read, write
from fencepost.model.language.variants import Variant, accept, variant
from fencepost.model.language.works import Work

__all__ = [
    "ANY", "Agent", "Callback", "Cell", "Communicator", "Counter", "Cursor", "Design", "DesignError", "DesignWarning", "DeviceFlag", "Event",
    "Flag", "Graph", "Handle", "Index", "Item", "Lock", "Pool", "Process", "Queue", "Spec", "Stream", "StreamPool",
    "Tensor", "Turn", "Variant", "Work", "accept", "program_of", "read", "variant", "write",
]  # fmt: skip
