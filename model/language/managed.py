"""Managed memory of devices without concurrent access: the host must stay away while any kernel runs (S110, S111).

Where the device attribute concurrentManagedAccess is 1, the default, managed memory is memory that both sides may access, and
races are the program's. Where it is 0, `d.managed(..., concurrent=False)`, a host access to *any* managed memory of the process
while *any* of its kernels runs is a fault. That is written down as accesses of one more piece of memory, "all managed memory":
every kernel of the process reads it, and host code that touches managed memory writes its own part of it, so that a host access
and a kernel conflict and two host accesses, or two kernels, do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from fencepost.model import program as p
from fencepost.model.language.errors import fail

if TYPE_CHECKING:
    from fencepost.model.language.design import Design
    from fencepost.model.language.objects import Tensor
    from fencepost.model.language.tracer import Recording


def exclusive(design: Design, name: str) -> None:
    """From now on the process's managed memory and its kernels exclude each other. Before the first thread: it concerns all."""
    process = design._process()
    if design._threads:
        fail(f"managed memory {name!r} with concurrent=False is made after the first thread; make it before, its rule applies to all")
    if process not in design._exclusive:
        what = "all managed memory" if not process else f"all managed memory of {process}"
        design._exclusive[process] = design._made(p.Memory(what, "managed", None, 4096, 0, process))


def stays(design: Design, tensor: Tensor, process: str) -> None:
    """Refuse its use in another process: whose kernels keep whom away there is not modelled."""
    if tensor._id is None or tensor._space != "managed":
        return
    home = design._objects[tensor._id].process
    if home != process and (home in design._exclusive or process in design._exclusive):
        who = f"process {process!r}" if process else "a thread outside of all processes"
        fail(
            f"managed memory {tensor.name!r} is made {f'in process {home!r}' if home else 'outside of all processes'} and used by {who}, and "
            "concurrent=False speaks of one process's kernels (S111); make it in the process that uses it"
        )


def by_kernel(operation: p.Launch, recording: Recording) -> p.Launch:
    """A kernel, and what it keeps the host away from. Agents run no kernels; a copy is none (errs on missed bugs)."""
    design = recording.tracer.design
    token = design._exclusive.get(design._process())
    stream = design._objects[operation.stream.id] if isinstance(operation.stream, (p.Obj, p.Slot)) else None
    if token is None or (isinstance(stream, p.Stream) and stream.is_agent):
        return operation
    if any(isinstance(one.target, p.Obj) and one.target.id == token for one in operation.accesses):
        return operation  # a host function, or a node of a graph that is replayed
    return msgspec.structs.replace(operation, accesses=(*operation.accesses, p.Access(p.Obj(token), "r")))


def by_host(design: Design, tensors: Iterable[Tensor], who: str) -> tuple[p.Access, ...]:
    """What host code by `who` (a thread, or the host functions of a stream, S112) adds to its accesses to these."""
    token = design._exclusive.get(design._process())
    if token is None or not any(tensor._space == "managed" for tensor in tensors):
        return ()
    return (p.Access(p.Obj(token, p.Named(who)), "w"),)


def handed_over(design: Design, tensor: Tensor, where: str) -> None:
    """What is received has no name, so nobody could tell that it is managed."""
    if tensor._space == "managed" and design._process() in design._exclusive:
        fail(
            f"{where}: managed memory {tensor.name!r} of a device without concurrent access cannot be handed over (S111); use it by its "
            "name, and hand over an index of its ring"
        )
