"""Kernels, copies and fills: the operations that put an item on a stream."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.effects import Effect, Enqueue, JoinStream, NoteUse, Touch
from fencepost.model.operations.registry import Context, rule

HOST = ("pinned", "pageable")
"""Where the bytes live in the host's own memory."""


def accesses(operation: p.Operation) -> tuple[p.Access, ...]:
    """What a kernel, copy, fill or item() reads and writes; () of any other operation."""
    if isinstance(operation, p.Launch):
        return operation.accesses
    if isinstance(operation, p.Copy):
        return p.Access(operation.src, "r", harm=operation.src_harm), p.Access(operation.dst, "w", same_bytes=operation.same_bytes)
    if isinstance(operation, p.Memset):
        return (p.Access(operation.dst, "w"),)
    return (p.Access(operation.src, "r", harm=operation.harm),) if isinstance(operation, p.Item) else ()


def holds_host(operation: p.Copy, source: str, target: str) -> bool:
    """Whether the call returns only when its own item is done: between host and device it does unless told otherwise, within the device
    it never does (S33, S49). Within the host nothing is enqueued."""
    return not operation.non_blocking and not operation.raw and (source in HOST) != (target in HOST)


def _item(stream: p.Operand, touched: tuple[p.Access, ...], what: str, context: Context) -> tuple[Effect, ...]:
    """The item, and under launch blocking the wait that the environment adds (S113, S119, S120)."""
    environment = context.environment
    blocks = environment.blocking_kernels if what == "kernel" else what != "call" and environment.blocking_copies
    home = context.program.objects[stream.id] if isinstance(stream, (p.Obj, p.Slot)) else None
    blocks = blocks and not (isinstance(home, p.Stream) and home.is_agent)
    item = Enqueue(stream, touched, what)
    return (item, JoinStream(stream)) if blocks else (item,)


@rule(p.Launch, "launch", accesses="its reads and writes, while the kernel runs; pinned memory in place (S107)",
      edges="enqueue -> start; previous item of the stream -> start (S2, S4)", rules=("S2", "S4", "S107"))  # fmt: skip
def launch(operation: p.Launch, context: Context) -> tuple[Effect, ...]:
    """A kernel reads and writes at any time between its start and end. Raises `ValueError` as `Context.reach` does."""
    for access in operation.accesses:
        context.reach(access.target, False)
    return _item(operation.stream, operation.accesses, "kernel" if operation.kernel else "call", context)


@rule(p.Copy, "copy_", accesses="reads the source and writes the destination when the stream reaches the copy; a "
      "pageable source is read at the call (S47, platform switch)",
      edges="enqueue -> start; stream order; blocking copies between host and device, and pageable destinations: end -> the "
      "call's return (S33, S48); within the device nothing waits, within the host nothing is enqueued (S49); copy_ with non_blocking tells the host allocator (S54, S79), memcpy_async does not (S83)",
      rules=("S33", "S45", "S46", "S47", "S48", "S49", "S54", "S79", "S83"))  # fmt: skip
def copy(operation: p.Copy, context: Context) -> tuple[Effect, ...]:
    """`dst.copy_(src)` and cudaMemcpyAsync, by where the two sides live.

    Raises `ValueError` when a side was handed over and may live in places between which copies differ.
    """
    for side in (operation.src, operation.dst):
        context.reach(side, False)
    sources, targets = context.spaces(operation.src) or {""}, context.spaces(operation.dst) or {""}
    ways = sorted((_copy(operation, context, s, t) for s in sources for t in targets), key=len)
    # A note about memory that is not pinned is ignored when it is made (S54).
    if len({tuple(e for e in way if not isinstance(e, NoteUse)) for way in ways}) > 1:
        local = operation.src if len(sources) > 1 else operation.dst
        assert isinstance(local, p.Local)
        raise ValueError(
            f"copy_ in thread {context.thread.name!r}: {context.thread.locals[local.id].name!r} is handed over and may be "
            f"{' or '.join(sorted(sources if len(sources) > 1 else targets))} memory, which copies differently (S45-S49); "
            "hand them over through queues of their own"
        )
    return ways[-1]


def _copy(operation: p.Copy, context: Context, source: str, target: str) -> tuple[Effect, ...]:
    read, write = accesses(operation)
    if source in HOST and target in HOST:
        return (Touch((read, write)),)  # S49
    effects: tuple[Effect, ...]
    waits = holds_host(operation, source, target)
    if source == "pageable" and context.platform.pageable_h2d != "late":
        effects = (Touch((read,)), *_item(operation.stream, (write,), "copy", context))  # S47 V1
        waits = waits or context.platform.pageable_h2d == "blocking"  # S52
    else:
        effects = _item(operation.stream, (read, write), "copy", context)
        waits = waits or (target == "pageable" and context.platform.pageable_d2h == "blocking")  # S48
    if not operation.raw and operation.non_blocking:
        # A device side is ignored there: the host allocator answers "not mine" (S54).
        effects += tuple(
            NoteUse(side, operation.stream, "pinned")
            for side, space in ((operation.src, source), (operation.dst, target))
            if isinstance(side, p.Local) and space in ("pinned", "")
        )
    if waits and not any(isinstance(e, JoinStream) for e in effects):
        effects += (JoinStream(operation.stream),)
    return effects


@rule(p.Memset, "memset", accesses="writes the destination when the stream reaches it (S39)",
      edges="enqueue -> start; stream order", rules=("S39",))  # fmt: skip
def memset(operation: p.Memset, context: Context) -> tuple[Effect, ...]:
    """The Async form: asynchronous for every kind of target."""
    return _item(operation.stream, accesses(operation), "memset", context)


@rule(p.Item, "item", accesses="reads the tensor on the current stream; host memory at once, by the caller",
      edges="everything earlier in that stream -> the call's return (S33); host memory: none", rules=("S33",))  # fmt: skip
def item(operation: p.Item, context: Context) -> tuple[Effect, ...]:
    """Copy to the host and wait for that stream only; of host memory a load that no stream knows of.

    Raises `ValueError` when the tensor was handed over and may live on either side.
    """
    read = accesses(operation)
    spaces = context.spaces(operation.src)
    if spaces and spaces <= set(HOST):
        return (Touch(read),)
    if spaces & set(HOST):
        name = context.thread.locals[operation.src.id].name
        raise ValueError(
            f"item() in thread {context.thread.name!r}: {name!r} is handed over and may be {' or '.join(sorted(spaces))} memory, "
            "of which only the GPU's makes it wait (S33); hand them over through queues of their own"
        )
    return (Enqueue(operation.stream, read, "copy"), JoinStream(operation.stream))


@rule(p.RecordStream, "record_stream", edges="none at the call; at the last free, work queued on that stream until "
      "then -> reuse of the block (S64, S65)", rules=("S64", "S65", "S66", "S72"))  # fmt: skip
def record_stream(operation: p.RecordStream, context: Context) -> tuple[Effect, ...]:
    """Ignored for the owner stream and for memory that this process's caching allocator did not hand out (S72).

    Raises `ValueError` when the block was handed over and may be of this process or of another one.
    """
    homes = context.homes(operation.block)
    if homes and context.thread.process not in homes:
        return ()
    if len(homes) > 1:
        name = context.thread.locals[operation.block.id].name
        raise ValueError(
            f"record_stream in thread {context.thread.name!r}: {name!r} is handed over and may be of process "
            f"{' or '.join(map(repr, sorted(homes)))}, and is ignored unless it is of its own (S72); hand them over through queues of their own"
        )
    return (NoteUse(operation.block, operation.stream, "device"),)
