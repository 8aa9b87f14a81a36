"""The table: every edge rule, access rule and allocator rule, where it lives, how it is switched off, who notices.

Sources are rules of docs/semantics.md (S...), theory (sections of the shared theory) or the language. [T]: found by trial
against an operational machine. `red` names the designs of tests/mutation/designs that must not get their answer.
"""

from __future__ import annotations

from mutation.rules import (
    certificates,
    events,
    events_meetings,
    explorer_device,
    explorer_hosts,
    explorer_meetings,
    explorer_memory,
    explorer_search,
    language,
    lowering,
    machine,
    machine_meetings,
    shared_queue,
)
from mutation.switching import Rule

FILES = (
    lowering, language, explorer_device, explorer_hosts, explorer_memory, explorer_search, explorer_meetings, events,
    shared_queue, events_meetings, machine, machine_meetings,
    certificates,
)  # fmt: skip
RULES: tuple[Rule, ...] = tuple(rule for file in FILES for rule in file.RULES)
"""The table."""
