"""How one call of a communicator is written down: on which stream, whom it tells, for whom it waits, what it keeps (S121-S134)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Union

from fencepost.model import program as p
from fencepost.model.language import objects
from fencepost.model.language.errors import Fixed, fail
from fencepost.model.language.objects import Event, Spec, Stream, Tensor
from fencepost.model.language.tracer import Frame, Recording
from fencepost.model.language.works import Work

if TYPE_CHECKING:
    from fencepost.model.language.design import Design

Version = Literal["new", "old"]
"""Of ProcessGroupNCCL (S122, S127). "new", the default: a call with async_op=False runs on the current stream itself, and the
work of an asynchronous one keeps references. "old": every call runs on the group's own stream and is awaited at once unless
it is asynchronous, and `record_stream` keeps the memory."""

Protocol = Literal["eager", "rendezvous"]
"""Whether who gives data away waits for who takes them. "eager", the default: never. "rendezvous", as large messages go: a
sender, a root and whoever reduces to a root end only when their peers have come and taken the data; that wait orders nothing."""

Data = Union[Tensor, Spec, Iterable[Union[Tensor, Spec]]]


class Calls(Fixed):
    """What all calls of a communicator share. Its ranks, its switches, and who has called it so far."""

    def __init__(
        self, design: Design, name: str, ranks: tuple[str, ...], version: Version, record_streams: bool | None,
        blocking_wait: bool, capacity: int | None, serial: bool, protocol: Protocol = "eager", several_threads: bool = False,
    ) -> None:  # fmt: skip
        if len(ranks) < 2 or len(set(ranks)) != len(ranks):
            fail(f"communicator {name!r} has the ranks {list(ranks)}; name two at least, each once")
        if version not in ("new", "old"):
            fail(f'communicator {name!r}: version={version!r}; it is "new" or "old"')
        self._design, self._name, self._ranks, self._version = design, name, ranks, version
        self._record_streams = version == "old" if record_streams is None else record_streams
        self._blocking_wait, self._capacity, self._serial = blocking_wait, capacity, serial
        self._rendezvous, self._several_threads = protocol == "rendezvous", several_threads
        self._streams: dict[tuple[str, str], tuple[p.Operand, str]] = {}
        self._captured: dict[tuple[str, str], Any] = {}
        """For each rank, and pair, the graph that its calls are captured in; None: they are not."""
        self._gpus: dict[str, int] = {}
        self._drivers: dict[tuple[str, str], str] = {}
        """For each rank, and pair that sends and receives, the thread that makes its device calls."""
        design._positive(name, "capacity", capacity)
        if protocol not in ("eager", "rendezvous"):
            fail(f'communicator {name!r}: protocol={protocol!r}; it is "eager" or "rendezvous"')
        if self._rendezvous and capacity is not None:
            fail(f"communicator {name!r}: with protocol=\"rendezvous\" no rank is ahead of another; leave capacity= out")

    def __repr__(self) -> str:
        return f"<communicator {self._name!r}>"

    def _call(
        self, kind: str, rank: str, match: object, reads: Data, writes: Data, signals: tuple[str, ...],
        awaits: tuple[str, ...], async_op: bool, time: float | None, peer: str | None = None, exchange: bool = False,
    ) -> Work:  # fmt: skip
        """One call of the group, on the stream that its version says, with what it keeps alive."""
        design = self._design
        apart = " (send)" if peer is not None else " (exchange)" if exchange else ""
        what = f"{self._name} {kind if peer is None or signals else 'recv'}"
        current = design._current(design._running(), *objects.tensors(_listed(reads), _listed(writes)))
        if not async_op and self._version == "new":
            self._meet(kind, what, rank, match, reads, writes, signals, awaits, current, time, apart)
            if self._blocking_wait:
                with design._running().implied():
                    current.record_event(design.event(f"{what} done")).synchronize()
            return Work(self, what, None, None)
        stream = self._own_stream(rank, peer, current)
        recording = design._running()
        tensors = _tensors(reads, writes)
        held: tuple[Tensor, ...] = ()
        with recording.implied():
            stream.wait_stream(current)
            if self._record_streams:
                for tensor in tensors:
                    tensor.record_stream(stream)
        if async_op and not self._record_streams:
            held = tuple(self._hold(tensor, kind) for tensor in tensors)
        self._meet(kind, what, rank, match, reads, writes, signals, awaits, stream, time, apart)
        event = stream.record_event(design.event(f"{what} done"))
        work = Work(self, what, event, stream, held)
        if not async_op:
            with recording.implied():
                work.wait()
        return work

    def _meet(
        self, kind: str, what: str, rank: str, match: object, reads: Data, writes: Data, signals: tuple[str, ...],
        awaits: tuple[str, ...], stream: Stream, time: float | None, apart: str = "",
    ) -> None:  # fmt: skip
        """What runs on the rank's stream. `apart`: calls that meet only their like, as they use a communicator of their own."""
        recording = self._design._running()
        pair = apart == " (send)"
        self._drive(rank, "" if not pair else (*signals, *awaits)[0], what or f"{self._name} {kind}", recording)
        operand = self._design._stream(stream, recording)
        accesses = objects.accesses(_listed(reads), _listed(writes), recording)
        tag = kind if match is None else f"{kind} {match}"
        last = self._in_order(rank, "" if not pair else (*signals, *awaits)[0], stream, operand)
        if last is not None:
            with recording.implied():
                stream.wait_event(last)
        if accesses:
            recording.do(p.Launch(what, operand, accesses, objects._time(time)))
        for other in signals:
            recording.do(p.Signal(self._channel(rank, other, apart), operand, tag))
        for other in awaits:
            recording.do(p.Await(self._channel(other, rank, apart), operand, tag))
        if self._rendezvous:
            # There is room for one signal: who gives goes on when the other has taken the first. That it waited is no edge.
            for other in signals:
                if apart or other not in awaits:
                    recording.do(p.Signal(self._channel(rank, other, apart), operand, f"{tag} is over"))
            for other in awaits:
                if apart or other not in signals:
                    recording.do(p.Await(self._channel(other, rank, apart), operand, f"{tag} is over"))
        # One that has its data proves that it was read: not what others read, nor that the rank has written its own part.
        if accesses and (awaits or len(signals) > 1 or any(a.mode == "w" for a in accesses)):
            # It goes on from what it began: whoever touches the result in between changes it.
            again = tuple(p.Access(a.target, "r") for a in accesses if a.mode == "w" and not any(_reads(a, b) for b in accesses))
            recording.do(p.Launch(f"{what} ends", operand, (*again, *accesses), None))
        if last is not None:
            stream.record_event(last)

    def _in_order(self, rank: str, peer: str, stream: Stream, operand: p.Operand) -> Event | None:
        """Calls meet in the order in which they are issued (S130), so they must run in that order: on one stream, or `serial`."""
        design = self._design
        graph = design._running().capturing
        if self._captured.setdefault((rank, peer), graph) is not graph or (graph is not None and self._serial):
            fail(
                f"communicator {self._name!r}: rank {rank!r} calls it in a graph and outside of that graph, or with serial=True, so the order of its "
                "calls is decided where the graph is replayed; make all calls in one graph, or none"
            )
        if graph is not None:
            return None  # where it runs is decided at each replay
        if self._serial:
            name = f"{self._name} last call of {rank}" + (f" with {peer}" if peer else "")
            return Event(design, name, design._made(p.Event(name, None, self._gpu(rank, stream), design._process())))
        known, other = self._streams.setdefault((rank, peer), (operand, stream.name))
        if known != operand:
            fail(
                f"communicator {self._name!r}: rank {rank!r} calls it on the streams {other!r} and {stream.name!r}, so its calls "
                "may run in another order than they are issued in; use one stream, or d.communicator(serial=True)"
            )
        return None

    def _hold(self, tensor: Tensor, kind: str) -> Tensor:
        """A reference of the work's, which outlives the scope of the call."""
        recording = self._design._running()
        held = tensor.view(f"{tensor.name} held by {kind}")
        assert held._life is not None
        recording.frames[-1].held.remove(held._life)
        frame: Frame = next(f for f in reversed(recording.frames) if f.kind != "scope")
        frame.held.append(held._life)
        return held

    def _gpu(self, rank: str, stream: Stream) -> int:
        """The GPU that a rank calls on: one communicator is of one device."""
        gpu = self._design._gpu_of(stream)
        if gpu >= 0 and self._gpus.setdefault(rank, gpu) != gpu:
            fail(
                f"communicator {self._name!r}: rank {rank!r} calls it on GPU {self._gpus[rank]} and on GPU {gpu}; a rank has one GPU (S121): "
                "make a communicator for each"
            )
        return gpu if gpu >= 0 else self._design._gpu(None)

    def _own_stream(self, rank: str, peer: str | None, current: Stream | None) -> Stream:
        design = self._design
        gpu = self._gpus.get(rank, design._gpu(None)) if current is None else self._gpu(rank, current)
        pair = "" if peer is None else f" and {peer}"
        name = f"{self._name} stream of {rank}{pair}"
        made = p.Stream(name, None, gpu, False, design._process())
        number = design._made(made)
        design._nameable.add(number)
        return Stream(design, name, number)

    def _drive(self, rank: str, peer: str, what: str, recording: Recording) -> None:
        """One communicator may not be driven by two threads at the same time (S133): refused, or a use of the communicator itself."""
        design, thread = self._design, recording.tracer.name
        if recording.tracer.kind == "setup":
            return  # over before any other thread starts
        if self._several_threads:
            name = f"{self._name} of {rank}" + (f" with {peer}" if peer else "")
            state = p.Obj(design._made(p.Memory(name, "pageable", None, 4096, 0, design._process())))
            recording.do(p.Host(f"{what} call", (p.Access(state, "r"), p.Access(state, "w"))))
            return
        known = self._drivers.setdefault((rank, peer), thread)
        if known != thread:
            fail(
                f"communicator {self._name!r}: rank {rank!r} is driven by the threads {known!r} and {thread!r}, and two may not drive one "
                "communicator at the same time (S133); let one thread make the calls, or say "
                f"d.communicator({self._name!r}, several_threads=True) to have it checked that their calls are ordered"
            )

    def _channel(self, one: str, other: str, apart: str) -> int:
        return self._design._made(p.Channel(f"{self._name} {one} -> {other}{apart}", 1 if self._rendezvous else self._capacity))

    def _mail(self, one: str, other: str, what: str = "") -> int:
        """The k-th call of a rank meets the k-th of every other: nobody is far ahead."""
        return self._design._made(p.Queue(f"{self._name} {one} to {other}{what}", MAIL, (("", ()),)))

    def _announce(self, rank: str) -> None:
        recording = self._design._running()
        ahead, key = recording.ahead, (self._name, rank)
        ahead[key] = ahead.get(key, 0) + 1
        if ahead[key] > 1:
            fail(
                f"communicator {self._name!r}: rank {rank!r} comes a second time before it waits for the others; call "
                "host_wait in between, nobody is more than one call ahead"
            )
        for other in self._others(rank):
            recording.do(p.Put(self._mail(rank, other), "", ()))

    def _rank(self, rank: str | None) -> str:
        mine = self._design._process() if rank is None else rank
        if mine not in self._ranks:
            known = ", ".join(self._ranks)
            if rank is None:
                fail(
                    f"communicator {self._name!r}: the thread's process is {mine!r}, which is no rank; give rank=, or make the "
                    f"thread in `with d.process(...)` of one of: {known}"
                )
            fail(f"communicator {self._name!r} has no rank {mine!r}; it has: {known}")
        return mine

    def _others(self, rank: str) -> tuple[str, ...]:
        return tuple(other for other in self._ranks if other != rank)

    def _is_root(self, root: str, rank: str) -> bool:
        return self._rank(root) == rank

    def _peer(self, rank: str, other: str) -> str:
        if self._rank(other) == rank:
            fail(f"communicator {self._name!r}: rank {rank!r} sends to or receives from itself; name another rank")
        return other

    def _from(self, root: str, rank: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Whom a rank tells and for whom it waits when data flow from the root."""
        return (self._others(rank), ()) if self._is_root(root, rank) else ((), (root,))


MAIL = 2
"""Room for what one host thread has told another that has not waited yet."""


def _listed(data: Data) -> tuple[Tensor | Spec, ...]:
    if not isinstance(data, (Tensor, Spec, list, tuple)):
        fail(f"{data!r} is no memory; a collective takes a tensor, or a list of them")
    return (data,) if isinstance(data, (Tensor, Spec)) else tuple(data)


def _tensors(reads: Data, writes: Data) -> list[Tensor]:
    """What a work keeps alive: each of the turn's tensors once. What lives for ever needs nobody, a pool's token has its own holder."""
    found: list[Tensor] = []
    for entry in (*_listed(reads), *_listed(writes)):
        tensor = entry.tensor if isinstance(entry, Spec) else entry
        if tensor._life is not None and tensor._pool is None and all(tensor._life is not other._life for other in found):
            found.append(tensor)
    return found


def _reads(write: p.Access, other: p.Access) -> bool:
    return other.mode == "r" and other.target == write.target
