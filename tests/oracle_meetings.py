"""The oracle's side of communicators, device flags, callbacks, and what threads and processes share: written for running."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any


class Stop(BaseException):
    """Ends a thread when the run is over."""


class Work:
    def __init__(self, group: Communicator, event: Any = None, stream: Any = None, held: Any = ()) -> None:
        self.group, self.event, self.stream, self.held = group, event, stream, list(held)
        self.open = bool(self.held) and stream is not None
        if self.open:
            group.d._mine().works.append(self)

    def wait(self, *, blocking: bool | None = None) -> None:
        if self.event is not None:
            self.event.wait(None if self.stream is None else self.group.d.current_stream(self.stream.gpu))
            if self.group.blocking if blocking is None else blocking:
                self.event.synchronize()
        for tensor in self.held:
            tensor.release()
        self.held, self.open = [], False

    def is_completed(self) -> bool:
        return bool(self.event.query())

    def hand_over(self) -> Any:
        self.open = False
        return (self.event, *self.held)


class Communicator:
    def __init__(
        self, design: Any, name: str, ranks: Any, version: str, record_streams: Any, blocking: bool, serial: bool, protocol: str,
        several: bool,
    ) -> None:  # fmt: skip
        self.d, self.name, self.ranks, self.version = design, name, tuple(ranks), version
        self.record_streams = version == "old" if record_streams is None else record_streams
        self.blocking, self.serial, self.protocol, self.several = blocking, serial, protocol, several
        self.lines: dict[str, Any] = {}
        self.gpus: dict[str, int] = {}
        """The GPU that each rank calls on."""

    def _me(self, rank: str | None) -> str:
        return self.d._mine().process.name if rank is None else rank

    def _mail(self, one: str, other: str, what: str = "") -> Any:
        name = f"{self.name} {one} to {other}{what}"
        return self.lines.setdefault(name, self.d.queue(name, 2))

    def _others(self, rank: str) -> list[str]:
        return [other for other in self.ranks if other != rank]

    def _run(self, kind: str, me: str, reads: Any, writes: Any, to: Any, of: Any, match: Any, stream: Any, pair: str) -> None:
        world, tag = self.d.world, kind if match is None else f"{kind} {match}"
        shown = f"{self.name} {'recv' if pair and of else kind}"
        last = None
        if self.several and self.d._bodies[threading.current_thread().name][0] != "setup":
            itself = f"{self.name} of {me}" + (f" with {pair}" if pair else "")
            world.do("Host", f"{shown} call", tuple((mode, itself, False, "value") for mode in "rw"), None)
        if self.serial and self.d._hooks.graph is None:
            last = f"{self.name} last call of {me}" + (f" with {pair}" if pair else "")
            world.do("StreamWaitEvent", stream.text, last)
        accesses = self.d._accesses(reads, writes)
        end = " (send)" if pair else " (exchange)" if kind == "exchange" else ""
        if accesses:
            world.do("Launch", shown, stream.text, accesses, None, True)
        for other in to:
            world.do("Signal", f"{self.name} {me} -> {other}{end}", stream.text, tag)
        for other in of:
            world.do("Await", f"{self.name} {other} -> {me}{end}", stream.text, tag)
        if self.protocol == "rendezvous":
            one_way = (lambda other: True) if end else (lambda other: not (other in to and other in of))
            for other in filter(one_way, to):
                world.do("Signal", f"{self.name} {me} -> {other}{end}", stream.text, f"{tag} is over")
            for other in filter(one_way, of):
                world.do("Await", f"{self.name} {other} -> {me}{end}", stream.text, f"{tag} is over")
        if accesses and (of or len(to) > 1 or any(mode == "w" for mode, *_ in accesses)):
            read = {text for mode, text, *_ in accesses if mode == "r"}
            again = tuple(("r", text, False, "value") for mode, text, *_ in accesses if mode == "w" and text not in read)
            world.do("Launch", f"{shown} ends", stream.text, (*again, *accesses), None, True)
        if last is not None:
            world.do("Record", last, stream.text)

    def _call(self, kind: str, rank: Any, reads: Any, writes: Any, to: Any, of: Any, match: Any, async_op: bool, pair: str = "") -> Work:
        me, said = self._me(rank), [*self.d._said(reads), *self.d._said(writes)]
        homes = {one.tensor.gpu for one in said if one.tensor.space in ("device", "")}
        current = self.d.current_stream(homes.pop() if len(homes) == 1 else None)
        self.gpus.setdefault(me, current.gpu)
        if self.version == "new" and not async_op:
            self._run(kind, me, reads, writes, to, of, match, current, pair)
            if self.blocking:
                current.record_event(self.d.event("done")).synchronize()
            return Work(self)
        stream = self.stream(me, pair)
        stream.wait_stream(current)
        fresh = list({id(one.tensor): one.tensor for one in said if "#" in one.tensor.text}.values())
        held = []
        if self.record_streams:
            for x in fresh:
                x.record_stream(stream)
        elif async_op:
            for x in fresh:
                view = x.view()
                self.d._mine().frames[-1].remove(view)
                self.d._mine().frames[0].append(view)
                held.append(view)
        self._run(kind, me, reads, writes, to, of, match, stream, pair)
        work = Work(self, stream.record_event(self.d.event("done")), stream, held)
        if not async_op:
            work.wait()
        return work

    def stream(self, rank: str | None = None, peer: str = "") -> Any:
        me = self._me(rank)
        made = type(self.d.current_stream())(self.d, f"{self.name} stream of {me}" + (f" and {peer}" if peer else ""))
        made.gpu = self.gpus.get(me, self.d._mine().process.gpu)
        return made

    def _all(self, kind: str, rank: Any, reads: Any, writes: Any, match: Any, async_op: bool) -> Work:
        others = self._others(self._me(rank))
        return self._call(kind, rank, reads, writes, others, others, match, async_op)

    def all_reduce(self, x, *, rank=None, match=None, async_op=False, time=None):  # type: ignore
        return self._all("all_reduce", rank, x, x, match, async_op)

    def all_gather(self, out, x, *, rank=None, match=None, async_op=False, time=None):  # type: ignore
        return self._all("all_gather", rank, x, out, match, async_op)

    def reduce_scatter(self, out, x, *, rank=None, match=None, async_op=False, time=None):  # type: ignore
        return self._all("reduce_scatter", rank, x, out, match, async_op)

    def all_to_all(self, out, x, *, rank=None, match=None, async_op=False, time=None):  # type: ignore
        return self._all("all_to_all", rank, x, out, match, async_op)

    def broadcast(self, x, *, root, rank=None, match=None, async_op=False, time=None):  # type: ignore
        me = self._me(rank)
        if me == root:
            return self._call(f"broadcast from {root}", rank, x, (), self._others(me), (), match, async_op)
        return self._call(f"broadcast from {root}", rank, (), x, (), (root,), match, async_op)

    def scatter(self, out, x=None, *, root, rank=None, match=None, async_op=False, time=None):  # type: ignore
        me = self._me(rank)
        if me == root:
            return self._call(f"scatter from {root}", rank, x, out, self._others(me), (), match, async_op)
        return self._call(f"scatter from {root}", rank, (), out, (), (root,), match, async_op)

    def reduce(self, x, *, root, rank=None, match=None, async_op=False, time=None):  # type: ignore
        me = self._me(rank)
        if me == root:
            return self._call(f"reduce to {root}", rank, x, x, (), self._others(me), match, async_op)
        return self._call(f"reduce to {root}", rank, x, (), (root,), (), match, async_op)

    def gather(self, x, out=None, *, root, rank=None, match=None, async_op=False, time=None):  # type: ignore
        me = self._me(rank)
        if me == root:
            return self._call(f"gather to {root}", rank, x, out, (), self._others(me), match, async_op)
        return self._call(f"gather to {root}", rank, x, (), (root,), (), match, async_op)

    def send(self, x, to, *, rank=None, match=None, async_op=False, time=None):  # type: ignore
        return self._call("send", rank, x, (), (to,), (), match, async_op, to)

    def recv(self, x, source, *, rank=None, match=None, async_op=False, time=None):  # type: ignore
        return self._call("send", rank, (), x, (), (source,), match, async_op, source)

    def exchange(self, sends=(), recvs=(), *, rank=None, match=None, async_op=False, time=None):  # type: ignore
        to, of = [other for _, other in sends], [other for _, other in recvs]
        return self._call("exchange", rank, [x for x, _ in sends], [x for x, _ in recvs], to, of, match, async_op)

    def rendezvous(self, stream=None, *, rank=None, match=None):  # type: ignore
        me = self._me(rank)
        others = self._others(me)
        self._run("rendezvous", me, (), (), others, others, match, stream or self.d.current_stream(), "")

    def barrier(self, *, rank=None, match=None):  # type: ignore
        self._all("barrier", rank, (), (), match, False)
        self.d.current_stream().synchronize()

    def work(self, event: Any, *held: Any) -> Work:
        return Work(self, event, None, held)

    def host_announce(self, rank: str | None = None) -> None:
        for other in self._others(self._me(rank)):
            self._mail(self._me(rank), other).put()

    def host_wait(self, rank: str | None = None) -> None:
        for other in self._others(self._me(rank)):
            self._mail(other, self._me(rank)).get()

    def host_barrier(self, rank: str | None = None) -> None:
        self.host_announce(rank)
        self.host_wait(rank)

    def host_broadcast(self, root: str, rank: str | None = None) -> None:
        me = self._me(rank)
        for other in self._others(me) if me == root else ():
            self._mail(me, other, " broadcast").put()
        if me != root:
            self._mail(root, me, " broadcast").get()

    def host_gather(self, root: str, rank: str | None = None) -> None:
        me = self._me(rank)
        for other in self._others(me) if me == root else ():
            self._mail(other, me, " gather").get()
        if me != root:
            self._mail(me, root, " gather").put()


class DeviceFlag:
    """No device runs here: a host that waits for a flag goes on at once."""

    def __init__(self, design: Any, name: str) -> None:
        self.d, self.name = design, name

    def store(self, value: int) -> None:
        self.d.world.do("StoreFlag", self.name, value, None)

    def wait(self, value: int, reset: bool = False) -> None:
        self.d.world.do("WaitFlag", self.name, value, None, reset)


class Callback:
    def __init__(self, design: Any, stream: Any, due: DeviceFlag, returned: DeviceFlag) -> None:
        self.d, self.stream, self.due, self.returned = design, stream, due, returned

    def launch(self) -> None:
        self.stream.write_value(self.due, 1)
        self.stream.wait_value(self.returned, 1, reset=True)


class Condition:
    def __init__(self, design: Any, name: str, lock: Any, waiters: int, fifo: bool) -> None:
        self.d, self.name, self.lock, self.fifo = design, name, lock, fifo and waiters > 1
        names = [""] if waiters == 1 else [f" {k}" for k in range(waiters)]
        if self.fifo:
            shared = design.queue(f"{name} waiting", waiters, {k.strip(): () for k in names})
            self.places = [(shared, design.queue(f"{name} woken{k}", 1)) for k in names]
        else:
            self.places = [(design.queue(f"{name} waiting{k}", 1), design.queue(f"{name} woken{k}", 1)) for k in names]
        self.mine: dict[str, int] = {}

    def wait(self) -> None:
        mine = self.mine.setdefault(threading.current_thread().name, len(self.mine))
        waiting, woken = self.places[mine]
        waiting.put(tag=str(mine)) if self.fifo else waiting.put()
        self.lock.release()
        woken.get()
        self.lock.acquire()

    def notify(self) -> None:
        """The first place in a ring, begun anywhere, at which somebody waits."""
        count, mine = len(self.places), self.d._mine()
        if self.fifo:
            self.oldest()
            return
        first = 0
        if count > 1:
            asked = sum(1 for one in mine.choices if one.startswith(f"{self.name} wakes")) + 1
            name = f"{self.name} wakes" + (f" ({asked})" if asked > 1 else "")
            first = int(self.d.choose(name, [str(k) for k in range(count)]))
        for k in range(count):
            waiting, woken = self.places[(first + k) % count]
            if waiting.holds(1):
                waiting.get()
                woken.put()
                return

    def oldest(self) -> bool:
        waiting = self.places[0][0]
        if not waiting.holds(1):
            return False
        self.places[int(waiting.get().tag)][1].put()
        return True

    def notify_all(self) -> None:
        if self.fifo:
            all(self.oldest() for _ in self.places)  # until nobody waits
            return
        for waiting, woken in self.places:
            if waiting.holds(1):
                waiting.get()
                woken.put()


class Collector:
    def __init__(self, garbage: Any) -> None:
        self.garbage = garbage

    def unreachable(self, x: Any) -> None:
        self.garbage.put(x)
        if x.held:
            x.release()


class IpcQueue:
    def __init__(self, design: Any, name: str, capacity: int, gpu: int | None) -> None:
        self.d, self.queue, self.gpu = design, design.queue(name, capacity, ("event", "memory")), gpu
        self.got: list[Any] = []

    def put(self, x: Any, *, feeder: bool = False) -> None:
        self.gpu = x.gpu if x.gpu is not None else self.d._mine().process.gpu
        stream = self.d.default_stream(self.gpu) if feeder else self.d.current_stream(self.gpu)
        self.queue.put(stream.record_event(self.d.event("sent")), x)

    def get(self, *, opened: bool = False) -> Any:
        sent, tensor = self.queue.get()
        if not opened:
            sent.wait(self.d.current_stream(self.gpu))
        tensor.imported = None if opened else self  # of one that was open already nobody knows who is its last
        if opened:
            for other in self.got:
                other.imported = None
        self.got = [*[one for one in self.got if one.held], tensor]
        return tensor


class Meetings:
    """Methods of the executing `Design`."""

    def communicator(
        self: Any, name: str, ranks: Any, *, version: str = "new", record_streams: Any = None, blocking_wait: bool = False,
        capacity: Any = None, serial: bool = False, protocol: str = "eager", several_threads: bool = False,
    ) -> Communicator:  # fmt: skip
        return Communicator(self, name, ranks, version, record_streams, blocking_wait, serial, protocol, several_threads)

    def device_flag(self: Any, name: str) -> DeviceFlag:
        return DeviceFlag(self, name)

    def callback(self: Any, name: str, stream: Any, *, process: Any = None, calls_cuda: bool = False) -> Callable[[Callable[[], None]], Callback]:
        due, returned = DeviceFlag(self, f"{name} due"), DeviceFlag(self, f"{name} returned")

        def make(body: Callable[[], None]) -> Callback:
            def around() -> None:
                due.wait(1, reset=True)
                body()
                self._drop(self._mine().frames[0])
                self._mine().frames[0].clear()
                returned.store(1)

            self._thread(name, "loop", None, process)(around)
            return Callback(self, stream, due, returned)

        return make

    def condition(self: Any, name: str, lock: Any, waiters: int = 1, fifo: bool = False) -> Condition:
        return Condition(self, name, lock, waiters, fifo)

    def collector(self: Any, name: str, *, capacity: int = 1, stream: Any = None, process: Any = None, finaliser: Any = None) -> Collector:
        garbage = self.queue(f"{name} garbage", capacity, ("memory",))

        def collect() -> None:
            tensor = garbage.get()
            if finaliser is not None:
                finaliser(tensor)

        self._thread(name, "loop", stream, process)(collect)
        return Collector(garbage)

    def ipc_queue(self: Any, name: str, capacity: int = 1, gpu: int | None = None) -> IpcQueue:
        return IpcQueue(self, name, capacity, gpu)

    def malloc_async(self: Any, name: str, *, bytes: int = 4096, stream: Any = None) -> Any:
        where = stream or self.current_stream()
        pool = f"memory pool of {where.text.partition(chr(91))[0]}"
        tensor = self.empty(name, bytes=bytes, stream=types.SimpleNamespace(text=pool, gpu=where.gpu))
        self.world.do("Launch", f"malloc {name}", where.text, (("w", tensor.text, False, "value"),), None, False)
        tensor.name = name
        return tensor


def free_async(tensor: Any, stream: Any) -> None:
    design = tensor.d
    where = stream or design.current_stream()
    accesses = (("r", tensor.text, False, "value"), ("w", tensor.text, False, "value"))
    tensor.record_stream(where)
    design.world.do("Launch", f"free {tensor.name}", where.text, accesses, None, False)
    tensor.release()


@contextlib.contextmanager
def released(lock: Any) -> Iterator[None]:
    lock.release()
    yield
    lock.acquire()
