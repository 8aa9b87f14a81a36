"""Plans: a run of a design as the list of real calls that it stands for, with the value that every read must observe.

Plans are data: made by compile.py, run by device.py or emulated.py, written out by script.py.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Union

import msgspec
from fencepost.gpu_validate.layout import Spans
from fencepost.model.program import Data


class Unsupported(ValueError):
    """Something in the design that real calls are not written for. The text says what."""


class Buffer(Data, frozen=True):
    """`space` "pinned" | "pageable" | "device". `label`: for a block that the run hands out more than once."""

    name: str
    space: str
    gpu: int = 0
    allocated: bool = False
    label: int | None = None
    bytes: int = 4096


class StreamInfo(Data, frozen=True):
    """A stream of the plan. `default`: the process's default stream."""

    name: str
    gpu: int = 0
    default: bool = False
    process: str = ""


class Range(Data, frozen=True):
    """Elements of a buffer. `attributed=False`: seen through a view that the host allocator cannot attribute (S84)."""

    buffer: int
    spans: Spans
    attributed: bool = True


Values = tuple[tuple[int, int], ...]
"""Element values as (value, count) in order."""


def expand(values: Values) -> array[int]:
    """One number for each element.

    >>> expand(((7, 2), (1, 1))).tolist()
    [7, 7, 1]
    """
    found = array("i")
    for value, count in values:
        found.extend(array("i", [value]) * count)
    return found


def pack(elements: Iterable[int]) -> Values:
    """The inverse of `expand`."""
    return tuple((value, len(list(group))) for value, group in itertools.groupby(elements))


class Check(Data, frozen=True):
    """What a read must observe; None for undefined content."""

    index: int
    range: Range
    expected: Values | None


class Fill(Data, frozen=True):
    """A write: one value in all elements, or (`same_bytes`) the values that the elements have in the reference."""

    range: Range
    value: int
    values: Values | None = None


class Write(Data, frozen=True):
    """A host write."""

    fill: Fill


class Read(Data, frozen=True):
    """A host read."""

    check: Check


class Kernel(Data, frozen=True):
    """A kernel: reads, then writes. Pinned memory is read and written in place."""

    stream: int
    reads: tuple[Check, ...]
    fills: tuple[Fill, ...]


class Segment(Data, frozen=True):
    """One memcpy: element offsets and count."""

    dst: int
    src: int
    count: int


class Copy(Data, frozen=True):
    """`dst.copy_(src)`. `passes`: when the sizes differ, memcpys that read all of the source and write all of the target,
    each pass with what the target must hold behind it."""

    stream: int
    dst: Range
    src: Range
    non_blocking: bool
    raw: bool
    passes: tuple[tuple[tuple[Segment, ...], Check], ...]
    """Empty between two host buffers: then `whole` is done by the host."""
    host: bool = False


class Memset(Data, frozen=True):
    """`x.zero_()`."""

    stream: int
    range: Range


class Item(Data, frozen=True):
    """`x.item()` of the first element."""

    stream: int
    check: Check


class Alloc(Data, frozen=True):
    """A tensor from a caching allocator; `stream` None is pinned memory."""

    buffer: int
    stream: int | None


class Free(Data, frozen=True):
    """The last reference ends."""

    buffer: int


class RecordStream(Data, frozen=True):
    """`x.record_stream(s)`."""

    buffer: int
    stream: int


class NewEvent(Data, frozen=True):
    """`torch.cuda.Event()`."""

    event: int


class Record(Data, frozen=True):
    """`event.record(stream)`."""

    event: int
    stream: int


class EventSync(Data, frozen=True):
    """`event.synchronize()`."""

    event: int


class StreamWaitEvent(Data, frozen=True):
    """`stream.wait_event(event)`."""

    stream: int
    event: int


class WaitStream(Data, frozen=True):
    """`stream.wait_stream(other)`."""

    stream: int
    other: int


class StreamSync(Data, frozen=True):
    """`stream.synchronize()`."""

    stream: int


class DeviceSync(Data, frozen=True):
    """`torch.cuda.synchronize()` of the process on one GPU: its streams here, since a GPU may stand for several."""

    streams: tuple[int, ...]


class Query(Data, frozen=True):
    """`event.query()` or `stream.query()`, with the answer that the run has."""

    event: int | None
    stream: int | None
    done: bool


class Snapshot(Data, frozen=True):
    """`pool.give(after=event)`: a fresh event that completes with what `event` has captured now."""

    event: int
    fresh: int


class Shut(Data, frozen=True):
    """Shut gate number `gate` at the tail of the stream. `run`: the run itself says when it opens, not the hazard."""

    gate: int
    stream: int
    run: bool = False


class Open(Data, frozen=True):
    """Open the gate."""

    gate: int
    run: bool = False


class Settle(Data, frozen=True):
    """Wait until all that the stream holds now has run, but not longer than the watchdog's limit."""

    stream: int


class WriteWord(Data, frozen=True):
    """Store to a word: an item of the stream (cuStreamWriteValue32), or the host itself where `stream` is None."""

    stream: int | None
    word: int
    value: int


class WaitWord(Data, frozen=True):
    """Wait until a word is at least the value: an item of the stream (cuStreamWaitValue32), or the host spins."""

    stream: int | None
    word: int
    value: int


class Mark(Data, frozen=True):
    """A place of a stream that can be waited for."""

    mark: int
    stream: int


class Reach(Data, frozen=True):
    """Wait until the stream has come to the mark, but not longer than the watchdog's limit."""

    mark: int


class Runs(Data, frozen=True):
    """Here a late item of a stream runs, and ends. Only in a serial trial, which holds it back until then (`Line.late`)."""

    item: int


class GraphCapture(Data, frozen=True):
    """Capture a graph: what it reads and writes has its address from here on."""

    graph: str


class GraphLaunch(Data, frozen=True):
    """`graph.replay()`. `body`: the nodes as they were captured; `event`: stands for the end of the graph's last launch."""

    graph: str
    stream: int
    event: int
    body: tuple[Line, ...]


Call = Union[
    Write, Read, Kernel, Copy, Memset, Item, Alloc, Free, RecordStream, NewEvent, Record, EventSync, StreamWaitEvent,
    WaitStream, StreamSync, DeviceSync, Query, Snapshot, Shut, Open, Settle, WriteWord, WaitWord, Mark, Reach,
    Runs, GraphCapture, GraphLaunch,
]  # fmt: skip

JOINS = (EventSync, StreamSync, DeviceSync, Item)
"""Calls at which the host waits for the device by their nature (a blocking `Copy` is another)."""


class Line(Data, frozen=True):
    """One call, with the place in the run that it comes from. `op` is the operation in words."""

    call: Call
    step: int
    thread: str
    turn: int
    op: str
    busy: tuple[int, ...] = ()
    """Streams that still wait on the device once the step is over."""
    late: int | None = None
    """Number of a device item that waits on the device when its call is made, and runs later."""


class Plan(Data, frozen=True):
    """A run as real calls. `meaning`: who wrote a value, in words. `initial`: content of the fixed buffers, per buffer."""

    design: str
    buffers: tuple[Buffer, ...]
    streams: tuple[StreamInfo, ...]
    events: tuple[str, ...]
    lines: tuple[Line, ...]
    checks: int
    meaning: dict[int, str]
    initial: dict[int, Values]
    stream_numbers: tuple[tuple[tuple[int, int], int], ...]
    """(object and slot, number) of each stream."""
    notes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Words through which streams meet."""
    marks: int = 0
    moved: tuple[tuple[int, int], ...] = ()
    """Step of a host call that returns only when other threads have gone on, and the step at which it is made here."""
    undefined: tuple[int, ...] = ()
    """Checks of bytes that nothing in the run wrote: what an earlier owner of the block left there counts as wrong."""

    def check_lines(self) -> dict[int, tuple[Line, Check]]:
        """For each check the line that it belongs to."""
        return {check.index: (line, check) for line in flat(self.lines) for check in checks_of(line.call)}


def stream_of(call: Call) -> int:
    """The stream on which a device item is put."""
    assert isinstance(call, (Kernel, Copy, Memset, Item))
    return call.stream


def held_back(call: Call) -> bool:
    """Whether a call is there for the hazard's sake, and not part of the run."""
    return isinstance(call, Settle) or (isinstance(call, (Shut, Open)) and not call.run)


def flat(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, with the nodes of a graph in place of its launch."""
    for line in lines:
        if isinstance(line.call, GraphLaunch):
            yield from line.call.body
        else:
            yield line


def checks_of(call: Call) -> Iterator[Check]:
    """The checks of one call."""
    if isinstance(call, (Read, Item)):
        yield call.check
    elif isinstance(call, Kernel):
        yield from call.reads
    elif isinstance(call, Copy):
        for _, check in call.passes:
            yield check


def ranges_of(call: Call) -> list[Range]:
    """The memory that a call touches."""
    if isinstance(call, Copy):
        return [call.src, call.dst]
    if isinstance(call, Write):
        return [call.fill.range]
    if isinstance(call, Memset):
        return [call.range]
    fills = call.fills if isinstance(call, Kernel) else ()
    return [check.range for check in checks_of(call)] + [fill.range for fill in fills]


def may_wait(call: Call) -> bool:
    """Whether the host can wait for the device at this call: a copy with a pageable side waits by its size (S47, S48)."""
    host_spins = isinstance(call, WaitWord) and call.stream is None
    return host_spins or isinstance(call, (*JOINS, Query)) or (isinstance(call, Copy) and not call.host)


def with_gates(plan: Plan, gates: Sequence[tuple[int, int, int, int | None, bool]]) -> Plan:
    """The plan with gates. Each is (step in front of which it is shut, stream, step behind which it opens, stream of the
    access that must have run before it opens, whether to wait behind it for the late access); streams by plan's number.
    """
    before: dict[int, list[Line]] = {}
    behind: dict[int, list[Line]] = {}
    last = max((line.step for line in plan.lines), default=0)
    for number, (shut, stream, opens, settle, then) in enumerate(gates):
        before.setdefault(shut, []).append(Line(Shut(number, stream), shut, "", 0, "gate"))
        calls: list[Call] = [Open(number)] if settle is None else [Settle(settle), Open(number)]
        calls += [Settle(stream)] if then else []
        behind.setdefault(min(opens, last), []).extend(Line(call, opens, "", 0, "gate") for call in calls)
    lines: list[Line] = []
    steps = sorted({line.step for line in plan.lines} | set(before) | set(behind))
    of_step: dict[int, list[Line]] = {}
    for line in plan.lines:
        of_step.setdefault(line.step, []).append(line)
    for step in steps:
        lines += [*before.get(step, []), *of_step.get(step, []), *behind.get(step, [])]
    return msgspec.structs.replace(plan, lines=tuple(lines))


def without_gates(plan: Plan) -> Plan:
    """The same calls with nothing held back."""

    def free(lines: Iterable[Line]) -> Iterator[Line]:
        for line in lines:
            if isinstance(line.call, GraphLaunch):
                call = msgspec.structs.replace(line.call, body=tuple(free(line.call.body)))
                yield msgspec.structs.replace(line, call=call)
            elif not isinstance(line.call, (Shut, Open, Settle, Reach)):
                yield line

    return msgspec.structs.replace(plan, lines=tuple(free(plan.lines)))
