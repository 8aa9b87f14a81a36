"""Events, stream waits and host waits."""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.effects import (
    Effect,
    JoinDevice,
    JoinEvent,
    JoinStream,
    RecordEvent,
    StreamJoinsEvent,
    StreamJoinsStream,
)  # fmt: skip
from fencepost.model.operations.registry import Context, question_rule, rule


@rule(p.NewEvent, "event", edges="none: never recorded, so waits on it return at once (S17, S18)", rules=("S17", "S18"))
def new_event(operation: p.NewEvent, context: Context) -> tuple[Effect, ...]:
    """A fresh event object."""
    return (operation,)


@rule(p.Record, "record", edges="captures the work in the stream at the call, forgetting the earlier capture; only on the event's own device",
      rules=("S17", "S19", "S25"))  # fmt: skip
def record(operation: p.Record, context: Context) -> tuple[Effect, ...]:
    """`event.record(stream)`. Raises `ValueError` as `Context.recordable` does."""
    context.recordable(operation.event, operation.stream)
    return (RecordEvent(operation.event, operation.stream),)


@rule(p.EventSync, "event.synchronize", edges="latest capture at the call -> the call's return",
      rules=("S18", "S23", "S35"))  # fmt: skip
def event_sync(operation: p.EventSync, context: Context) -> tuple[Effect, ...]:
    """Host wait on the latest record."""
    return (JoinEvent(operation.event),)


@rule(p.StreamWaitEvent, "wait_event", edges="latest capture at the call -> later items of the stream",
      rules=("S18", "S20", "S21", "S29"))  # fmt: skip
def stream_wait_event(operation: p.StreamWaitEvent, context: Context) -> tuple[Effect, ...]:
    """A stream waits; the host does not."""
    return (StreamJoinsEvent(operation.stream, operation.event),)


@rule(p.WaitStream, "wait_stream", edges="everything in the other stream at the call -> later items of the stream",
      rules=("S22",))  # fmt: skip
def wait_stream(operation: p.WaitStream, context: Context) -> tuple[Effect, ...]:
    """Record a fresh event on the other stream, then wait on it."""
    return (StreamJoinsStream(operation.stream, operation.other),)


@rule(p.StreamSync, "stream.synchronize", edges="everything enqueued on the stream before -> the call's return",
      rules=("S32", "S35"))  # fmt: skip
def stream_sync(operation: p.StreamSync, context: Context) -> tuple[Effect, ...]:
    """Host wait on one stream."""
    return (JoinStream(operation.stream),)


@rule(p.DeviceSync, "synchronize", edges="everything enqueued on that GPU by the process before -> the call's return; implied by a "
      "free: only where the platform has free = synchronises (S38, S40)", rules=("S32", "S35", "S38", "S40"))  # fmt: skip
def device_sync(operation: p.DeviceSync, context: Context) -> tuple[Effect, ...]:
    """Host wait on all streams of one device."""
    if operation.implied and context.platform.free != "synchronises":
        return ()  # it may wait, and nobody may lean on it (S5)
    return (JoinDevice(operation.gpu, operation.process),)


question_rule(p.EventQuery, "event.query", edges="yes: as synchronize; no: the record call -> the query",
              answers="yes always; no unless the capture is known complete or there is none", rules=("S18", "S24"))  # fmt: skip
question_rule(p.StreamQuery, "stream.query", edges="yes: as stream.synchronize; no: the last enqueue -> the query",
              answers="yes always; no unless the stream is known idle", rules=("S34",))  # fmt: skip
