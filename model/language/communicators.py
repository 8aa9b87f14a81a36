"""Communicators: what several ranks do together, on their hosts and on their devices (S121-S134).

A collective is written down as the platform runs it. On rank p's stream: an item that begins (its accesses), a `Signal` to
every rank whose result needs p's data, an `Await` from every rank whose data p's result needs, an item that ends (the same
accesses: the kernel lasts from the first to the last). So the edges are exactly the directional ones of the theory: all
pairs for all-reduce, all-gather, reduce-scatter, all-to-all and barriers, root to rank for broadcast and scatter, rank to
root for reduce and gather, sender to receiver. The k-th call of a rank meets the k-th of every other (S130); kind, root and
`match=` form the tag, and calls of different tags are a collective mismatch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Union

from fencepost.model import program as p
from fencepost.model.language import objects
from fencepost.model.language.blocks import Process
from fencepost.model.language.errors import fail
from fencepost.model.language.objects import Event, Spec, Stream, Tensor
from fencepost.model.language.tracer import Frame

if TYPE_CHECKING:
    from fencepost.model.language.design import Design

Version = Literal["new", "old"]
"""Of ProcessGroupNCCL (S122, S127). "new", the default: a call with async_op=False runs on the current stream itself, and the
work of an asynchronous one keeps references. "old": every call runs on the group's own stream and is awaited at once unless
it is asynchronous, and `record_stream` keeps the memory."""

Data = Union[Tensor, Spec, Iterable[Union[Tensor, Spec]]]


class Work:
    """What a collective returns: its end on the group's stream, and what it keeps alive until `wait` (S123-S129).

    A work that is never awaited lets go of its memory once the group's stream has finished it (S128): written down as
    `record_stream` on that stream, and a release at the end of the turn.
    """

    def __init__(self, group: Communicator, what: str, event: Event | None, stream: Stream | None, held: tuple[Tensor, ...] = ()) -> None:
        self._group, self._what, self._event, self._stream, self._held = group, what, event, stream, held
        self._open = bool(held)
        if held:
            recording = group._design._running()
            frame = next(f for f in reversed(recording.frames) if f.kind != "scope")
            if stream is not None:
                frame.endings.append(self._abandoned)

    def __repr__(self) -> str:
        return f"<work of {self._what}>"

    def wait(self, *, blocking: bool | None = None) -> None:
        """The current stream waits for the end; the host does too when `blocking` (TORCH_NCCL_BLOCKING_WAIT, wait(timeout), S124).

        What the work kept is let go here. Only the stream that waits is ordered (S126, S129).
        """
        design = self._group._design
        recording = design._running()
        if self._event is not None:
            self._event.wait()
            if self._group._blocking_wait if blocking is None else blocking:
                self._event.synchronize()
        held, self._held, self._open = self._held, (), False
        for tensor in held:
            assert tensor._life is not None
            recording.release(tensor._life)

    def is_completed(self) -> bool:
        """A query of the end (S125); a call that ran on the current stream itself cannot be asked."""
        if self._event is None:
            fail(f"{self._what} ran on the current stream: there is no work to ask; use async_op=True or an event")
        return self._event.query()

    def hand_over(self) -> tuple[Any, ...]:
        """The end's event and the references, for a queue or cell: `q.put(*work.hand_over())`; `comm.work(*q.get())` waits later."""
        if self._event is None:
            fail(f"{self._what} ran on the current stream: there is nothing to hand over")
        self._open = False
        return (self._event, *self._held)

    def _abandoned(self, site: int | None) -> None:
        """The turn ends and nobody has waited."""
        if not self._open:
            return
        assert self._stream is not None
        recording = self._group._design._running()
        for tensor in self._held:
            recording.at(p.RecordStream(tensor._operand(recording), self._stream._operand(recording)), site)
        self._open = False


class Communicator:
    """Ranks that meet. A call's rank is `rank=`, or the process of the thread that calls.

    Device calls take the current stream as PyTorch does; `async_op=True` runs on the group's own stream, one for each rank
    (S121, S134), and a pair of ranks that sends and receives has streams of its own. `match`: what ranks must agree on besides
    kind and root (sizes, types). `capacity`: how many calls a rank may be ahead of a peer that it does not need, before its
    stream waits; None: any number, which is only decided where something else bounds it. Calls of one rank on several
    streams need `serial=True`: NCCL runs the calls of one communicator one after the other, which is then an edge.

    A sender and a root do not wait for receivers, so hangs that only a rendezvous shows are not found (errs on missed bugs); nor
    are hidden waits for kernels that spin (S132), unless they are written down, and two threads that drive one communicator
    (S133) are not refused.
    """

    def __init__(
        self, design: Design, name: str, ranks: tuple[str, ...], version: Version, record_streams: bool | None,
        blocking_wait: bool, capacity: int | None, serial: bool,
    ) -> None:  # fmt: skip
        if len(ranks) < 2 or len(set(ranks)) != len(ranks):
            fail(f"communicator {name!r} has the ranks {list(ranks)}; name two at least, each once")
        if version not in ("new", "old"):
            fail(f'communicator {name!r}: version={version!r}; it is "new" or "old"')
        self._design, self._name, self._ranks, self._version = design, name, ranks, version
        self._record_streams = version == "old" if record_streams is None else record_streams
        self._blocking_wait, self._capacity, self._serial = blocking_wait, capacity, serial
        self._streams: dict[tuple[str, str], tuple[p.Operand, str]] = {}
        design._positive(name, "capacity", capacity)

    def __repr__(self) -> str:
        return f"<communicator {self._name!r}>"

    # ------------------------------------------------------------ collectives

    def all_reduce(
        self, x: Data, *, rank: str | None = None, match: object = None, async_op: bool = False, time: float | None = None
    ) -> Work:  # fmt: skip
        """Every rank's `x` becomes the sum of all, in place."""
        mine = self._rank(rank)
        everybody = self._others(mine)
        return self._call("all_reduce", mine, match, x, x, everybody, everybody, async_op, time)

    def all_gather(
        self, out: Data, x: Data, *, rank: str | None = None, match: object = None, async_op: bool = False,
        time: float | None = None,
    ) -> Work:  # fmt: skip
        """`out` of every rank becomes all ranks' `x`."""
        mine = self._rank(rank)
        everybody = self._others(mine)
        return self._call("all_gather", mine, match, x, out, everybody, everybody, async_op, time)

    def reduce_scatter(
        self, out: Data, x: Data, *, rank: str | None = None, match: object = None, async_op: bool = False,
        time: float | None = None,
    ) -> Work:  # fmt: skip
        """`out` of each rank becomes its share of the sum of all ranks' `x`."""
        mine = self._rank(rank)
        everybody = self._others(mine)
        return self._call("reduce_scatter", mine, match, x, out, everybody, everybody, async_op, time)

    def all_to_all(
        self, out: Data, x: Data, *, rank: str | None = None, match: object = None, async_op: bool = False,
        time: float | None = None,
    ) -> Work:  # fmt: skip
        """`out` of each rank becomes its shares of all ranks' `x`."""
        mine = self._rank(rank)
        everybody = self._others(mine)
        return self._call("all_to_all", mine, match, x, out, everybody, everybody, async_op, time)

    def broadcast(
        self, x: Data, *, root: str, rank: str | None = None, match: object = None, async_op: bool = False,
        time: float | None = None,
    ) -> Work:  # fmt: skip
        """`x` of every rank becomes the root's. The root waits for nobody."""
        mine = self._rank(rank)
        at_root = self._is_root(root, mine)
        reads, writes = (x, ()) if at_root else ((), x)
        return self._call(f"broadcast from {root}", mine, match, reads, writes, *self._from(root, mine), async_op, time)

    def scatter(
        self, out: Data, x: Data | None = None, *, root: str, rank: str | None = None, match: object = None,
        async_op: bool = False, time: float | None = None,
    ) -> Work:  # fmt: skip
        """`out` of each rank becomes its share of the root's `x`. The root waits for nobody."""
        mine = self._rank(rank)
        if self._is_root(root, mine) != (x is not None):
            fail(f"communicator {self._name!r}: scatter takes x at the root ({root!r}) and nowhere else; this is {mine!r}")
        return self._call(f"scatter from {root}", mine, match, x or (), out, *self._from(root, mine), async_op, time)

    def reduce(
        self, x: Data, *, root: str, rank: str | None = None, match: object = None, async_op: bool = False,
        time: float | None = None,
    ) -> Work:  # fmt: skip
        """The root's `x` becomes the sum of all. Only the root waits."""
        mine = self._rank(rank)
        signals, awaits = self._from(root, mine)
        writes = x if self._is_root(root, mine) else ()
        return self._call(f"reduce to {root}", mine, match, x, writes, awaits, signals, async_op, time)

    def gather(
        self, x: Data, out: Data | None = None, *, root: str, rank: str | None = None, match: object = None,
        async_op: bool = False, time: float | None = None,
    ) -> Work:  # fmt: skip
        """The root's `out` becomes all ranks' `x`. Only the root waits."""
        mine = self._rank(rank)
        if self._is_root(root, mine) != (out is not None):
            fail(f"communicator {self._name!r}: gather takes out at the root ({root!r}) and nowhere else; this is {mine!r}")
        signals, awaits = self._from(root, mine)
        return self._call(f"gather to {root}", mine, match, x, out or (), awaits, signals, async_op, time)

    def rendezvous(self, stream: Stream | None = None, *, rank: str | None = None, match: object = None) -> None:
        """All ranks' streams (by default the current ones) meet, with no data; the hosts go on."""
        mine = self._rank(rank)
        everybody = self._others(mine)
        where = stream or self._design.current_stream()
        self._meet("rendezvous", "", mine, match, (), (), everybody, everybody, where, None)

    def barrier(self, *, rank: str | None = None, match: object = None) -> None:
        """All ranks' current streams meet, and the calling thread waits for its stream (S124)."""
        mine = self._rank(rank)
        everybody = self._others(mine)
        self._call("barrier", mine, match, (), (), everybody, everybody, False, None)
        self._design.current_stream().synchronize()

    # ------------------------------------------------------------ from one rank to another

    def send(
        self, x: Data, to: str, *, rank: str | None = None, match: object = None, async_op: bool = False,
        time: float | None = None,
    ) -> Work:  # fmt: skip
        """The k-th send to a rank meets its k-th `recv` from here. The sender's stream does not wait for the receiver."""
        mine = self._rank(rank)
        return self._call("send", mine, match, x, (), (self._peer(mine, to),), (), async_op, time, peer=to)

    def recv(
        self, x: Data, source: str, *, rank: str | None = None, match: object = None, async_op: bool = False,
        time: float | None = None,
    ) -> Work:  # fmt: skip
        """`x` becomes what `source` sends here."""
        mine = self._rank(rank)
        return self._call("send", mine, match, (), x, (), (self._peer(mine, source),), async_op, time, peer=source)

    # ------------------------------------------------------------ works and streams

    def stream(self, rank: str | None = None) -> Stream:
        """The group's own stream of a rank (S121), for a wait or an `x.record_stream`."""
        return self._own_stream(self._rank(rank), None)

    def work(self, event: Event, *held: Tensor) -> Work:
        """The work that `hand_over` put into a queue or cell, to be awaited here; this place's references go with `wait`."""
        objects._event(event, f"work of {self._name}")
        return Work(self, f"a work of {self._name}", event, None, held)

    # ------------------------------------------------------------ hosts

    def host_barrier(self, rank: str | None = None) -> None:
        """The calling thread goes on when all ranks have come (a host edge between all pairs)."""
        self._announce(self._rank(rank))
        self.host_wait(rank)

    def host_announce(self, rank: str | None = None) -> None:
        """The first half of a barrier: the rank has come and does not wait."""
        self._announce(self._rank(rank))

    def host_wait(self, rank: str | None = None) -> None:
        """The second half: wait until all others have come as often as this rank waits."""
        mine = self._rank(rank)
        recording = self._design._running()
        for other in self._others(mine):
            recording.do(p.Get(self._mail(other, mine), "", ()))
        key = (self._name, mine)
        recording.ahead[key] = recording.ahead.get(key, 0) - 1

    def host_broadcast(self, root: str, rank: str | None = None) -> None:
        """The root's thread tells all others, which wait for it. It waits for nobody until it is two calls ahead."""
        mine = self._rank(rank)
        recording = self._design._running()
        if self._is_root(root, mine):
            for other in self._others(mine):
                recording.do(p.Put(self._mail(mine, other, " broadcast"), "", (), False))  # that it had to wait is no edge
        else:
            recording.do(p.Get(self._mail(root, mine, " broadcast"), "", ()))

    def host_gather(self, root: str, rank: str | None = None) -> None:
        """All others tell the root's thread, which waits for them."""
        mine = self._rank(rank)
        recording = self._design._running()
        if self._is_root(root, mine):
            for other in self._others(mine):
                recording.do(p.Get(self._mail(other, mine, " gather"), "", ()))
        else:
            recording.do(p.Put(self._mail(mine, root, " gather"), "", (), False))

    # ------------------------------------------------------------

    def _call(
        self, kind: str, rank: str, match: object, reads: Data, writes: Data, signals: tuple[str, ...],
        awaits: tuple[str, ...], async_op: bool, time: float | None, peer: str | None = None,
    ) -> Work:  # fmt: skip
        """One call of the group, on the stream that its version says, with what it keeps alive."""
        design = self._design
        what = f"{self._name} {kind if peer is None or signals else 'recv'}"
        current = design.current_stream()
        if not async_op and self._version == "new":
            self._meet(kind, what, rank, match, reads, writes, signals, awaits, current, time, peer is not None)
            if self._blocking_wait:
                current.record_event(design.event(f"{what} done")).synchronize()
            return Work(self, what, None, None)
        stream = self._own_stream(rank, peer)
        stream.wait_stream(current)
        tensors = _tensors(reads, writes)
        held: tuple[Tensor, ...] = ()
        if self._record_streams:
            for tensor in tensors:
                tensor.record_stream(stream)
        elif async_op:
            held = tuple(self._hold(tensor, kind) for tensor in tensors)
        self._meet(kind, what, rank, match, reads, writes, signals, awaits, stream, time, peer is not None)
        event = stream.record_event(design.event(f"{what} done"))
        work = Work(self, what, event, stream, held)
        if not async_op:
            work.wait()
        return work

    def _meet(
        self, kind: str, what: str, rank: str, match: object, reads: Data, writes: Data, signals: tuple[str, ...],
        awaits: tuple[str, ...], stream: Stream, time: float | None, pair: bool = False,
    ) -> None:  # fmt: skip
        recording = self._design._running()
        operand = self._design._stream(stream, recording)
        accesses = objects.accesses(_listed(reads), _listed(writes), recording)
        tag = kind if match is None else f"{kind} {match}"
        last = self._in_order(rank, "" if not pair else (*signals, *awaits)[0], stream, operand)
        if last is not None:
            stream.wait_event(last)
        if accesses:
            recording.do(p.Launch(what, operand, accesses, objects._time(time)))
        for other in signals:
            recording.do(p.Signal(self._channel(rank, other, pair), operand, tag))
        for other in awaits:
            recording.do(p.Await(self._channel(other, rank, pair), operand, tag))
        if accesses and (awaits or len(signals) > 1):  # one that has its data proves that it was read, not what others read
            # It goes on from what it began: whoever touches the result in between changes it.
            again = tuple(p.Access(a.target, "r") for a in accesses if a.mode == "w" and not any(_reads(a, b) for b in accesses))
            recording.do(p.Launch(f"{what} ends", operand, (*again, *accesses), None))
        if last is not None:
            stream.record_event(last)

    def _in_order(self, rank: str, peer: str, stream: Stream, operand: p.Operand) -> Event | None:
        """Calls meet in the order in which they are issued (S130), so they must run in that order: on one stream, or `serial`."""
        design = self._design
        if design._running().capturing is not None:
            return None  # where it runs is decided at each replay
        if self._serial:
            name = f"{self._name} last call of {rank}" + (f" with {peer}" if peer else "")
            return Event(design, name, design._made(p.Event(name, None, design._gpu(None), design._process())))
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

    def _own_stream(self, rank: str, peer: str | None) -> Stream:
        design = self._design
        pair = "" if peer is None else f" and {peer}"
        name = f"{self._name} stream of {rank}{pair}"
        made = p.Stream(name, None, design._gpu(None), False, design._process())
        return Stream(design, name, design._made(made))

    def _channel(self, one: str, other: str, pair: bool) -> int:
        name = f"{self._name} {one} -> {other}" + (" (send)" if pair else "")
        return self._design._made(p.Channel(name, self._capacity))

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


class Communicators:
    """The methods of `Design` that this file stands for."""

    def communicator(
        self: Any, name: str, ranks: Iterable[str | Process], *, version: Version = "new", record_streams: bool | None = None,
        blocking_wait: bool = False, capacity: int | None = None, serial: bool = False,
    ) -> Communicator:  # fmt: skip
        """A process group: the names of its ranks, which are those of processes or are passed as `rank=`.

        `version` of ProcessGroupNCCL: "new" (default) or "old", see S122 and S127; `record_streams` overrides how memory is kept
        (TORCH_NCCL_AVOID_RECORD_STREAMS); `blocking_wait`: every `wait` holds the host (TORCH_NCCL_BLOCKING_WAIT, S124).
        `capacity`: how many calls a rank may be ahead of a peer that it does not need, before its stream waits (None: any
        number). `serial`: for a rank whose calls are on several streams; the library then runs each after the one before.
        """
        if isinstance(ranks, str) or not isinstance(ranks, Iterable):
            fail(f"communicator {name!r}: ranks={ranks!r}; give a list of the ranks' names")
        names = tuple(rank.name if isinstance(rank, Process) else rank for rank in ranks)
        if not all(isinstance(one, str) and one for one in names):
            fail(f"communicator {name!r} has the ranks {list(names)}; a rank is a name or a process")
        return Communicator(self, self._fresh(name), names, version, record_streams, blocking_wait, capacity, serial)
