"""Locations that need no search: one agent alone makes all accesses, and an agent is serial.

Two items of one stream are ordered (S2), two steps of one host thread by program order, so accesses by a single stream
or a single thread never form a hazard, whatever else the design does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.proofs.explore.locations import Location, references

if TYPE_CHECKING:
    from fencepost.proofs.explore.setting import Setting

Direct = tuple["dict[int | None, list[tuple[int, e.Touch | e.Enqueue]]]", "set[int | None]"]


def sole_agent(setting: Setting, location: Location) -> tuple[str, bool] | None:
    """The one stream or thread that accesses the location, and whether two of its accesses conflict; else None.

    Only for memory that no reference travels to: whoever holds one might access it, too.
    """
    program = setting.program
    if location.kind != "memory":
        return None
    accessed, referenced = _direct(setting)
    if location.id in referenced:
        return None
    agents: set[tuple[str, str]] = set()
    writes = count = 0
    repeated = False
    for t, effect in accessed.get(location.id, ()):
        if isinstance(effect, e.Touch):
            agents.add(("thread", program.threads[t].name))
        elif type(effect.stream) is p.Obj:
            agents.add(("stream", program.objects[effect.stream.id].name))
        else:
            return None  # a ring of streams is several agents
        mine = [x for x in effect.accesses if type(x.target) is not p.Local and x.target.id == location.id]
        writes += sum(x.mode == "w" for x in mine)
        count += 1
        repeated = repeated or program.threads[t].kind == "loop"
    if len(agents) != 1:
        return None
    kind, name = next(iter(agents))
    return f"{kind} {name}", bool(writes) and (count > 1 or repeated)


def _direct(setting: Setting) -> Direct:
    """For each object the effects that access it by name, with their threads; and the objects that a reference is made to."""
    if setting.direct is None:
        accessed: dict[int | None, list[tuple[int, e.Touch | e.Enqueue]]] = {}
        referenced: set[int | None] = set()
        for (t, i), effects in setting.lowered.items():
            node = setting.program.threads[t].nodes[i]
            assert isinstance(node, p.Do)
            referenced |= {kept.id for kept in references(node.operation) if (type(kept) is p.Obj or type(kept) is p.Slot)}
            for effect in effects:
                if type(effect) is e.Touch or type(effect) is e.Enqueue:
                    for id_ in {x.target.id for x in effect.accesses if type(x.target) is not p.Local}:
                        accessed.setdefault(id_, []).append((t, effect))
        setting.direct = accessed, referenced
    return setting.direct
