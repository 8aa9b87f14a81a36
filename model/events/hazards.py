"""Hazards of a played run, with all that a report says about the two accesses."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.answer import AccessInfo, Hazard
from fencepost.model.events.parts import Key
from fencepost.model.events.structure import Structure, late
from fencepost.model.events.values import value_change
from fencepost.model.operations import RULES


def hazard_of(structure: Structure, first: int, second: int, changes: tuple[bool | None, str] | None = None) -> Hazard:
    """The hazard of two accesses that `conflicts` found (indices into `structure.accesses`, in either order).

    `changes`: what `value_change` says of them, where somebody asked already.
    """
    first, second = min(first, second), max(first, second)
    one, two = structure.accesses[first].touched, structure.accesses[second].touched
    kind = "WAW" if one.write and two.write else "RAW" if one.write else "WAR"
    harm = one.harm if kind == "WAR" else two.harm
    a, b = access_info(structure, first), access_info(structure, second)
    return Hazard(
        kind,
        object_name(structure, one.key, one.tenant),
        a,
        b,
        (changes or value_change(structure, first, second))[0],
        harm,
        b.tenant if one.tenant != two.tenant else None,
        late(structure, first, second),
    )


def undefined_hazard(structure: Structure, index: int) -> Hazard:
    """The hazard of an access that `undefined_reads` found."""
    touched = structure.accesses[index].touched
    info = access_info(structure, index)
    owner = touched.tenant if touched.freed is None else touched.freed
    return Hazard("UNDEFINED", object_name(structure, touched.key, owner), None, info, True, touched.harm)


def object_name(structure: Structure, key: Key, tenant: int | None) -> str:
    """Memory's or pool's name; for an allocated block the name of the tensor that owned it."""
    if tenant is not None:
        return structure.tenants[tenant].name
    return structure.program.objects[key.id].name


def access_info(structure: Structure, index: int) -> AccessInfo:
    """Who makes an access, where and when. `index` of the result is the step's position in the run."""
    access = structure.accesses[index]
    node = structure.nodes[access.node]
    program = structure.program
    thread = program.threads[node.thread]
    done = thread.nodes[structure.run.steps[node.step].node]
    assert isinstance(done, p.Do)
    operation = done.operation
    named = isinstance(operation, (p.Host, p.Launch))
    touched = access.touched
    return AccessInfo(
        index=node.step,
        thread=thread.name,
        agent=thread.name if node.stream is None else _stream_name(program, node.stream),
        on_device=node.stream is not None,
        mode="w" if touched.write else "r",
        operation=operation.name if named else RULES[type(operation)].name,  # type: ignore[union-attr]
        step=node.turn,
        places=program.places[done.site] if 0 <= done.site < len(program.places) else (),
        harm=touched.harm,
        tenant=None if touched.tenant is None else structure.tenants[touched.tenant].name,
    )


def _stream_name(program: p.Program, stream: tuple[int, int]) -> str:
    found = program.objects[stream[0]]
    assert isinstance(found, p.Stream)
    return found.name if found.depth is None else f"{found.name}[{stream[1]}]"
