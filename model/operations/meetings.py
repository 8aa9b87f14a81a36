"""Where streams meet: signals and awaits of channels, and flags in memory that streams wait for."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.effects import Effect
from fencepost.model.operations.registry import Context, rule


@rule(p.Signal, "signal", edges="the stream's earlier items and the call -> what follows the k-th await",
      enabled="at once; with a capacity, when the channel has room (that it had to wait is no edge)", rules=("S130", "S131"))  # fmt: skip
def signal(operation: p.Signal, context: Context) -> tuple[Effect, ...]:
    """One rank's arrival at a meeting, as one peer sees it."""
    return (operation,)


@rule(p.Await, "await", edges="the k-th signal of the channel -> later items of the stream",
      enabled="when the k-th signal has come, with the same tag", rules=("S130", "S131"))  # fmt: skip
def wait_for_signal(operation: p.Await, context: Context) -> tuple[Effect, ...]:
    """What a rank's result needs from one peer."""
    return (operation,)


@rule(p.StoreFlag, "store to a device flag", edges="as an item of its stream, or of the calling thread", rules=("S118",))
def store_flag(operation: p.StoreFlag, context: Context) -> tuple[Effect, ...]:
    """cuStreamWriteValue32, or a host store to mapped memory."""
    return (operation,)


@rule(p.WaitFlag, "wait for a device flag", edges="the store that the wait saw -> what follows in the stream or thread",
      enabled="while the flag is at least the value", rules=("S118",))  # fmt: skip
def wait_flag(operation: p.WaitFlag, context: Context) -> tuple[Effect, ...]:
    """cuStreamWaitValue32 (at least), or a host that spins on mapped memory."""
    return (operation,)


def first_meeting(program: p.Program) -> str | None:
    """What an engine that knows no meetings says when it refuses a program: the first channel or device flag that is used."""
    for thread in program.threads:
        for node in thread.nodes:
            o = node.operation if isinstance(node, p.Do) else None
            if isinstance(o, (p.Signal, p.Await)):
                return f"collectives and send/recv (channel {program.objects[o.channel].name!r})"
            if isinstance(o, (p.StoreFlag, p.WaitFlag)):
                return f"device flags ({program.objects[o.flag].name!r})"
    return None


def open_channels(program: p.Program) -> frozenset[int]:
    """Channels whose order of messages the streams themselves do not fix: several streams signal, or several await.

    Their signals and awaits are steps of a run (`Step.stream`), as stores to a device flag and waits for one are. Of one
    sender and one receiver every order of execution gives the same messages to the same awaits, so those run as soon as
    they can, and no step says when.
    """
    users: dict[tuple[type, int], set[tuple[int, int]]] = {}
    for thread in program.threads:
        for node in thread.nodes:
            if isinstance(node, p.Do) and isinstance(node.operation, (p.Signal, p.Await)):
                o = node.operation
                stream, slots = o.stream, range(getattr(program.objects[o.stream.id], "depth", None) or 1)
                if isinstance(stream, p.Slot) and isinstance(stream.index, p.Fixed):
                    slots = range(stream.index.slot, stream.index.slot + 1)
                users.setdefault((type(o), o.channel), set()).update((stream.id, slot) for slot in slots)
    return frozenset(channel for (_, channel), who in users.items() if len(who) > 1)
