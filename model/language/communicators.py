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
from typing import Any

from fencepost.model import program as p
from fencepost.model.language import objects
from fencepost.model.language.blocks import Process
from fencepost.model.language.calls import Calls, Data, Protocol, Version
from fencepost.model.language.errors import fail
from fencepost.model.language.objects import Event, Spec, Stream, Tensor
from fencepost.model.language.works import Work


class Communicator(Calls):
    """Ranks that meet. A call's rank is `rank=`, or the process of the thread that calls.

    Device calls take the current stream as PyTorch does; `async_op=True` runs on the group's own stream, one for each rank
    (S121, S134), and a pair of ranks that sends and receives has streams of its own. `match`: what ranks must agree on besides
    kind and root (sizes, types). `capacity`: how many calls a rank may be ahead of a peer that it does not need, before its
    stream waits; None: any number, which is only decided where something else bounds it. Calls of one rank on several
    streams need `serial=True`: NCCL runs the calls of one communicator one after the other, which is then an edge.

    `protocol`: "eager" (default), a sender and a root do not wait for receivers; "rendezvous", they do, and hangs that only this
    shows are found. Device calls of one rank by two threads are refused (S133), unless `several_threads=True`: then each call also
    uses the communicator itself, as host memory, so that two calls that nothing orders are a hazard of that name.
    Hidden waits for kernels that spin (S132) are not found unless they are written down (errs on missed bugs).
    """

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
        return self._call(f"scatter from {root}", mine, match, () if x is None else x, out, *self._from(root, mine), async_op, time)

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
        return self._call(f"gather to {root}", mine, match, x, () if out is None else out, awaits, signals, async_op, time)

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
        """The k-th send to a rank meets its k-th `recv` from here. Whether the sender's stream waits for the receiver is the
        communicator's `protocol` (by default it does not)."""
        mine = self._rank(rank)
        return self._call("send", mine, match, x, (), (self._peer(mine, to),), (), async_op, time, peer=to)

    def recv(
        self, x: Data, source: str, *, rank: str | None = None, match: object = None, async_op: bool = False,
        time: float | None = None,
    ) -> Work:  # fmt: skip
        """`x` becomes what `source` sends here."""
        mine = self._rank(rank)
        return self._call("send", mine, match, (), x, (), (self._peer(mine, source),), async_op, time, peer=source)

    def exchange(
        self, sends: Iterable[tuple[Tensor | Spec, str]] = (), recvs: Iterable[tuple[Tensor | Spec, str]] = (), *,
        rank: str | None = None, match: object = None, async_op: bool = False, time: float | None = None,
    ) -> Work:  # fmt: skip
        """Sends and receives as one call (batch_isend_irecv, ncclGroupStart/End): pairs of a tensor and a rank.

        It runs on the group's own stream and meets exchanges alone. None of its parts waits for another one, so two ranks that
        send to each other go on under either protocol.
        """
        mine = self._rank(rank)
        given, taken = (self._pairs(mine, what, pairs) for what, pairs in (("sends", sends), ("recvs", recvs)))
        if not given and not taken:
            fail(f"communicator {self._name!r}: an exchange of nothing; give sends=[(tensor, rank)] or recvs=[(tensor, rank)]")
        reads, writes = [x for x, _ in given], [x for x, _ in taken]
        to, of = (tuple(other for _, other in pairs) for pairs in (given, taken))
        return self._call("exchange", mine, match, reads, writes, to, of, async_op, time, exchange=True)

    def _pairs(self, rank: str, what: str, pairs: Any) -> list[tuple[Tensor | Spec, str]]:
        found: list[Any] = list(pairs) if isinstance(pairs, (list, tuple)) else [None]
        for pair in found:
            if not isinstance(pair, tuple) or len(pair) != 2:
                fail(f"communicator {self._name!r}: {what}={pairs!r}; give a list of pairs, each of a tensor and a rank")
            self._peer(rank, pair[1])
        return found
    # ------------------------------------------------------------ works and streams

    def stream(self, rank: str | None = None) -> Stream:
        """The group's own stream of a rank (S121), for a wait or an `x.record_stream`. The rank's GPU is that of its calls."""
        mine = self._rank(rank)
        known = self._gpus.get(mine)
        return self._own_stream(mine, None, self._design.current_stream(known) if self._design._recording is not None else None)

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


class Communicators:
    """The methods of `Design` that this file stands for."""

    def communicator(
        self: Any, name: str, ranks: Iterable[str | Process], *, version: Version = "new", record_streams: bool | None = None,
        blocking_wait: bool = False, capacity: int | None = None, serial: bool = False, protocol: Protocol = "eager",
        several_threads: bool = False,
    ) -> Communicator:  # fmt: skip
        """A process group: the names of its ranks, which are those of processes or are passed as `rank=`.

        `version` of ProcessGroupNCCL: "new" (default) or "old", see S122 and S127; `record_streams` overrides how memory is kept
        (TORCH_NCCL_AVOID_RECORD_STREAMS); `blocking_wait`: every `wait` holds the host (TORCH_NCCL_BLOCKING_WAIT, S124).
        `capacity`: how many calls a rank may be ahead of a peer that it does not need, before its stream waits (None: any
        number). `serial`: for a rank whose calls are on several streams; the library then runs each after the one before.
        `protocol`: whether a sender or root waits until its receivers have taken the data: "eager" (default, it does not) or
        "rendezvous". `several_threads`: check that the calls of a rank's threads are ordered (S133) instead of refusing them.
        """
        if isinstance(ranks, str) or not isinstance(ranks, Iterable):
            fail(f"communicator {name!r}: ranks={ranks!r}; give a list of the ranks' names")
        names = tuple(rank.name if isinstance(rank, Process) else rank for rank in ranks)
        if not all(isinstance(one, str) and one for one in names):
            fail(f"communicator {name!r} has the ranks {list(names)}; a rank is a name or a process")
        return Communicator(
            self, self._fresh(name), names, version, record_streams, blocking_wait, capacity, serial, protocol, several_threads
        )
