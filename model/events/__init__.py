"""The concrete event structure: plays a run of the whole design and judges it, independently of every engine.

`execute` plays the host steps on concrete host state and gives a `Structure`: the accesses with their vector clocks.
`conflicts`, `undefined_reads`, `feasible`, `value_change` and `hazard_of` judge it. `Player` is the same step by step.
"""

from fencepost.model.events.hazards import hazard_of, undefined_hazard
from fencepost.model.events.state import DesignError, InvalidRun, Player
from fencepost.model.events.structure import (
    Structure,
    conflicting,
    conflicts,
    execute,
    feasible,
    happens_before,
    undefined_reads,
)
from fencepost.model.events.values import value_change

__all__ = [
    "DesignError",
    "InvalidRun",
    "Player",
    "Structure",
    "conflicting",
    "conflicts",
    "execute",
    "feasible",
    "happens_before",
    "hazard_of",
    "undefined_hazard",
    "undefined_reads",
    "value_change",
]
