"""A plan on a real GPU, through PyTorch: streams, events, pinned and mapped buffers, both caching allocators, kernels.

One host thread makes all calls in the plan's order; where the design has several threads their order is the plan's. A
kernel is torch operations without temporaries, back to back on its stream: what each read observes goes into a slot of
its own and is compared at the end of the trial; what it writes is a value of its own. Pinned memory is used in place
through a mapped view. Processes of a design share this one process, and its GPUs stand
on one, each with streams of its own: what is tested is order, not where memory lies.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.device import MEBI, Device, Mapped, NoGpu
from fencepost.gpu_validate.layout import ELEMENTS, SCALE
from fencepost.gpu_validate.trial import Mismatch, Trial

POISON = -7
RETRIES = 4
PAD = 16
"""Elements in front of a pinned block's contents, so that a foreign view does not start at the block's base (S84)."""


def _elements(values: c.Values) -> list[int]:
    """One number for each element."""
    return [value for value, count in values for _ in range(count * SCALE)]


class TorchRun:
    """One plan made ready on the device. `trial()` runs it once."""

    def __init__(self, device: Device, plan: c.Plan) -> None:
        self.device, self.plan = device, plan
        self.torch = device.torch
        self.gpu = [device.gpu for _ in plan.streams]
        self._make_streams()
        self._make_buffers()
        self._make_checks()
        self.tenants: dict[int, Any] = {}
        self.host_views: dict[int, Any] = {}
        self.device_views: dict[int, Any] = {}
        self.mapped: dict[int, Any] = {}
        self.events: list[Any] = []
        self.tickets: dict[int, int] = {}
        self.diverged = self.device_held = False
        self._foreign: dict[int, Any] = {}
        self._set_stream = self.torch.cuda.set_stream
        self.calls = [self._compile(line.call) for line in plan.lines]
        self._warm_allocators()

    # ------------------------------------------------------------ made once

    def _make_streams(self) -> None:
        torch, plan = self.torch, self.plan
        defaults = [k for k, s in enumerate(plan.streams) if s.default]
        self.streams: list[Any] = []
        used: dict[int, int] = {}
        real_default: set[int] = set()
        for number, _ in enumerate(plan.streams):
            gpu = self.gpu[number]
            if number in defaults and gpu not in real_default:
                real_default.add(gpu)
                self.streams.append(torch.cuda.default_stream(gpu))
            else:
                used[gpu] = used.get(gpu, 0) + 1
                self.streams.append(self.device.stream(gpu, used[gpu]))
        gpus = sorted(set(self.gpu)) or [0]
        self.gpus = gpus
        self.helper = self.device.stream(gpus[0], 0)

    def _make_buffers(self) -> None:
        """Fixed buffers: slices of one slab for each kind of memory, with a slab of their initial content beside it."""
        torch = self.torch
        self.slabs: list[tuple[Any, Any]] = []
        self.fixed_host: dict[int, Any] = {}
        self.fixed_device: dict[int, Any] = {}
        groups: dict[tuple[str, int], list[int]] = {}
        for number, buffer in enumerate(self.plan.buffers):
            if not buffer.allocated:
                gpu = self.device.gpu
                groups.setdefault((buffer.space, gpu), []).append(number)
        for (space, gpu), members in groups.items():
            content = torch.tensor([v for b in members for v in _elements(self.plan.initial[b])], dtype=torch.int32)
            if space == "device":
                slab = torch.empty(len(content), dtype=torch.int32, device=f"cuda:{gpu}")
                content = content.to(slab.device)
            else:
                slab = torch.empty(len(content), dtype=torch.int32, pin_memory=space == "pinned")
            self.slabs.append((slab, content))
            mapped = None
            if space == "pinned":
                mapped = torch.as_tensor(Mapped(slab.data_ptr(), len(content)), device=f"cuda:{self.gpus[0]}")
            for place, b in enumerate(members):
                part = slice(place * ELEMENTS, (place + 1) * ELEMENTS)
                if space == "device":
                    self.fixed_device[b] = slab[part]
                else:
                    self.fixed_host[b] = slab[part]
                    if mapped is not None:
                        self.fixed_device[b] = mapped[part]

    def _make_checks(self) -> None:
        torch, plan = self.torch, self.plan
        rows = max(1, plan.checks)
        self.expected = torch.full((rows, ELEMENTS), POISON, dtype=torch.int32)
        self.on_host: set[int] = set()
        for line in plan.lines:
            for check in c.checks_of(line.call):
                call = line.call
                if isinstance(call, (c.Read, c.Item)) or (isinstance(call, c.Copy) and self._lands_on_host(call)):
                    self.on_host.add(check.index)
                if check.expected is not None:
                    values = _elements(check.expected)
                    n = 1 if isinstance(call, c.Item) else len(values)
                    self.expected[check.index, :n] = torch.tensor(values[:n], dtype=torch.int32)
        self.undefined = {k for k, (_, check) in plan.check_lines().items() if check.expected is None}
        self.host_seen = torch.empty_like(self.expected)
        self.host_expected = self.expected.clone()
        self.device_expected = self.expected.to(f"cuda:{self.gpus[0]}")
        self.host_expected[[k for k in range(rows) if k not in self.on_host]] = POISON
        if self.on_host:
            self.device_expected[sorted(self.on_host)] = POISON
        self.device_seen = torch.empty_like(self.device_expected)

    def _lands_on_host(self, call: c.Copy) -> bool:
        """Whether what a copy brought is looked at by the host: between host buffers, and in pageable memory."""
        return call.host or self.plan.buffers[call.dst.buffer].space == "pageable"

    def _elements(self, buffer: int) -> int:
        """Size of an allocation. A block that the run hands out again has a size of its own, so that the allocator's
        exact fit gives that block and no other."""
        info = self.plan.buffers[buffer]
        if info.space == "device":
            return ELEMENTS + PAD if info.label is None else (10 + 2 * (info.label % 64)) * MEBI // 4
        return ELEMENTS + PAD if info.label is None else 4096 << (info.label % 9)

    def _warm_allocators(self) -> None:
        """Make every block that the trials will need, all at once, and give them back."""
        torch = self.torch
        wanted: dict[tuple[int | None, int], int] = {}
        labels = False
        for line in self.plan.lines:
            if isinstance(line.call, c.Alloc):
                key = (line.call.stream, self._elements(line.call.buffer))
                label = self.plan.buffers[line.call.buffer].label
                labels = labels or (label is not None and line.call.stream is not None)
                wanted[key] = 1 if label is not None else wanted.get(key, 0) + 1
                if line.call.stream is None:
                    wanted[key] += 1  # locking pages is slow; the last block freed still comes first (S82)
        if labels:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self.blocks = wanted
        self._scribble()

    def _scribble(self) -> None:
        """Overwrite all blocks, so that what an earlier trial left there does not pass for this one's."""
        held = [self._new(size, stream) for (stream, size), count in self.blocks.items() for _ in range(count)]
        for block in held:
            block[: PAD + ELEMENTS].fill_(POISON)
        held.clear()

    def _new(self, elements: int, stream: int | None) -> Any:
        torch = self.torch
        if stream is None:
            return torch.empty(elements, dtype=torch.int32, pin_memory=True)
        self._set_stream(self.streams[stream])
        return torch.empty(elements, dtype=torch.int32, device=f"cuda:{self.gpu[stream]}")

    # ------------------------------------------------------------ memory

    def _host(self, range_: c.Range, start: int, stop: int) -> Any:
        """The host's view of units of a buffer."""
        start, stop = start * SCALE, stop * SCALE
        found = self.fixed_host.get(range_.buffer)
        if found is not None:
            return found[start:stop]
        if range_.attributed:
            return self.tenants[range_.buffer][PAD + start : PAD + stop]
        return self._foreign_view(range_.buffer)[start:stop]

    def _foreign_view(self, buffer: int) -> Any:
        """The block's contents as memory of another owner, which torch cannot attribute (S84)."""
        address = self.tenants[buffer].data_ptr() + 4 * PAD
        raw = (ctypes.c_char * (4 * ELEMENTS)).from_address(address)
        return self.torch.frombuffer(raw, dtype=self.torch.int32, count=ELEMENTS)

    def _on_gpu(self, range_: c.Range, start: int, stop: int) -> Any:
        """The GPU's view of units of a buffer."""
        start, stop = start * SCALE, stop * SCALE
        found = self.fixed_device.get(range_.buffer)
        if found is not None:
            return found[start:stop]
        tensor = self.tenants[range_.buffer]
        if self.plan.buffers[range_.buffer].space == "device":
            return tensor[PAD + start : PAD + stop] if len(tensor) > ELEMENTS else tensor[start:stop]
        address = tensor.data_ptr() + 4 * PAD
        view = self.mapped.get(address)
        if view is None:
            view = self.torch.as_tensor(Mapped(address, ELEMENTS), device=f"cuda:{self.gpus[0]}")
            self.mapped[address] = view
        return view[start:stop]

    def _side(self, range_: c.Range, start: int, stop: int) -> Any:
        """One side of a copy: a host tensor for host memory, so that torch and its allocators see what it is."""
        if self.plan.buffers[range_.buffer].space == "device":
            return self._on_gpu(range_, start, stop)
        return self._host(range_, start, stop)

    # ------------------------------------------------------------ calls

    def _compile(self, call: c.Call) -> Callable[[], None]:
        made: Callable[[], None] = getattr(self, "_" + type(call).__name__)(call)
        return made

    def _observe(self, check: c.Check) -> Callable[[], None]:
        """On the current stream: keep what the GPU sees there."""
        torch, on_gpu = self.torch, self._on_gpu
        parts = []
        at = 0
        for start, stop in check.range.spans:
            parts.append((start, stop, self.device_seen[check.index, at * SCALE : (at + stop - start) * SCALE]))
            at += stop - start
        range_ = check.range

        def run() -> None:
            for start, stop, slot in parts:
                torch.bitwise_or(on_gpu(range_, start, stop), 0, out=slot)

        return run

    def _look(self, check: c.Check) -> Callable[[], None]:
        """The host keeps what it sees there."""
        host = self._host
        parts = []
        at = 0
        for start, stop in check.range.spans:
            parts.append((start, stop, self.host_seen[check.index, at * SCALE : (at + stop - start) * SCALE]))
            at += stop - start
        range_ = check.range

        def run() -> None:
            for start, stop, slot in parts:
                slot.copy_(host(range_, start, stop))

        return run

    def _fill_gpu(self, fill: c.Fill) -> Callable[[], None]:
        torch, on_gpu, spans, range_ = self.torch, self._on_gpu, fill.range.spans, fill.range
        if fill.values is None:
            value = fill.value

            def run() -> None:
                for start, stop in spans:
                    on_gpu(range_, start, stop).fill_(value)

            return run
        constant = torch.tensor(_elements(fill.values), dtype=torch.int32, device=f"cuda:{self.gpus[0]}")

        def again() -> None:
            at = 0
            for start, stop in spans:
                torch.bitwise_or(constant[at * SCALE : (at + stop - start) * SCALE], 0, out=on_gpu(range_, start, stop))
                at += stop - start

        return again

    def _Write(self, call: c.Write) -> Callable[[], None]:
        host, range_, spans = self._host, call.fill.range, call.fill.range.spans
        if self.plan.buffers[range_.buffer].space == "device":
            raise c.Unsupported(f"host code cannot write device memory ({self.plan.buffers[range_.buffer].name!r})")
        value, values = call.fill.value, call.fill.values
        constant = None if values is None else self.torch.tensor(_elements(values), dtype=self.torch.int32)

        def run() -> None:
            at = 0
            for start, stop in spans:
                if constant is None:
                    host(range_, start, stop).fill_(value)
                else:
                    host(range_, start, stop).copy_(constant[at * SCALE : (at + stop - start) * SCALE])
                    at += stop - start

        return run

    def _Read(self, call: c.Read) -> Callable[[], None]:
        name = self.plan.buffers[call.check.range.buffer]
        if name.space == "device":
            raise c.Unsupported(f"host code cannot read device memory ({name.name!r})")
        return self._look(call.check)

    def _Kernel(self, call: c.Kernel) -> Callable[[], None]:
        stream = self.streams[call.stream]
        parts = [self._observe(check) for check in call.reads] + [self._fill_gpu(fill) for fill in call.fills]
        set_stream = self._set_stream

        def run() -> None:
            set_stream(stream)
            for part in parts:
                part()

        return run

    def _Copy(self, call: c.Copy) -> Callable[[], None]:
        side, set_stream, stream = self._side, self._set_stream, self.streams[call.stream]
        to_host = self._lands_on_host(call)
        passes = [(s, self._look(check) if to_host else self._observe(check)) for s, check in call.passes]
        dst, src, non_blocking = call.dst, call.src, call.non_blocking
        waits = not call.host and not call.non_blocking and not call.raw
        memcpy = self._raw_memcpy(call) if call.raw and not call.host else None

        def run() -> None:
            set_stream(stream)
            for segments, see in passes:
                for s in segments:
                    if memcpy is not None:
                        memcpy(side(dst, s.dst, s.dst + s.count), side(src, s.src, s.src + s.count), 4 * s.count * SCALE)
                    else:
                        side(dst, s.dst, s.dst + s.count).copy_(side(src, s.src, s.src + s.count), non_blocking)
                see()
            if waits:
                stream.synchronize()  # the copy itself has waited; what looked at its result must not lag

        return run

    def _raw_memcpy(self, call: c.Copy) -> Callable[[Any, Any, int], None]:
        try:
            from cuda.bindings import driver
        except ImportError:
            raise NoGpu("a raw memcpy needs the package cuda-bindings: pip install 'fencepost[gpu]'") from None
        handle = self.streams[call.stream].cuda_stream

        def memcpy(dst: Any, src: Any, size: int) -> None:
            (error,) = driver.cuMemcpyAsync(dst.data_ptr(), src.data_ptr(), size, handle)
            if int(error) != 0:
                raise RuntimeError(f"cuMemcpyAsync: {error!r}")

        return memcpy

    def _Memset(self, call: c.Memset) -> Callable[[], None]:
        set_stream, stream, on_gpu, range_ = self._set_stream, self.streams[call.stream], self._on_gpu, call.range

        def run() -> None:
            set_stream(stream)
            for start, stop in range_.spans:
                on_gpu(range_, start, stop).zero_()

        return run

    def _Item(self, call: c.Item) -> Callable[[], None]:
        set_stream, stream, on_gpu, range_ = self._set_stream, self.streams[call.stream], self._on_gpu, call.check.range
        slot = self.host_seen[call.check.index, :1]
        start = range_.spans[0][0]

        def run() -> None:
            set_stream(stream)
            slot.fill_(on_gpu(range_, start, start + 1)[0].item())

        return run

    def _Alloc(self, call: c.Alloc) -> Callable[[], None]:
        new, tenants, buffer, stream = self._new, self.tenants, call.buffer, call.stream
        elements = self._elements(buffer)

        def run() -> None:
            tenants[buffer] = new(elements, stream)

        return run

    def _Free(self, call: c.Free) -> Callable[[], None]:
        tenants, buffer = self.tenants, call.buffer
        return lambda: tenants.pop(buffer, None)

    def _RecordStream(self, call: c.RecordStream) -> Callable[[], None]:
        tenants, buffer, stream = self.tenants, call.buffer, self.streams[call.stream]

        def run() -> None:
            if tenants[buffer].is_cuda:
                tenants[buffer].record_stream(stream)

        return run

    def _NewEvent(self, call: c.NewEvent) -> Callable[[], None]:
        torch, number = self.torch, call.event

        def run() -> None:
            self.events[number] = torch.cuda.Event()

        return run

    def _Record(self, call: c.Record) -> Callable[[], None]:
        number, stream = call.event, self.streams[call.stream]
        return lambda: self.events[number].record(stream)

    def _EventSync(self, call: c.EventSync) -> Callable[[], None]:
        number = call.event
        return lambda: self.events[number].synchronize()

    def _StreamWaitEvent(self, call: c.StreamWaitEvent) -> Callable[[], None]:
        number, stream = call.event, self.streams[call.stream]
        return lambda: stream.wait_event(self.events[number])

    def _WaitStream(self, call: c.WaitStream) -> Callable[[], None]:
        stream, other = self.streams[call.stream], self.streams[call.other]
        return lambda: stream.wait_stream(other)

    def _StreamSync(self, call: c.StreamSync) -> Callable[[], None]:
        stream = self.streams[call.stream]
        return lambda: stream.synchronize()

    def _DeviceSync(self, call: c.DeviceSync) -> Callable[[], None]:
        whole = len(call.streams) == len(self.streams)
        mine = [self.streams[k] for k in call.streams]
        synchronize, gpus = self.torch.cuda.synchronize, self.gpus

        def run() -> None:
            if whole:
                for gpu in gpus:
                    synchronize(gpu)
            else:
                for stream in mine:
                    stream.synchronize()

        return run

    def _Query(self, call: c.Query) -> Callable[[], None]:
        watchdog = self.device.watchdog

        def run() -> None:
            thing = self.events[call.event] if call.event is not None else self.streams[call.stream or 0]
            if call.done:
                while not thing.query() and watchdog.fired is None:
                    pass
            elif thing.query():
                self.diverged = True

        return run

    def _Snapshot(self, call: c.Snapshot) -> Callable[[], None]:
        helper, torch = self.helper, self.torch

        def run() -> None:
            helper.wait_event(self.events[call.event])
            self.events[call.fresh] = torch.cuda.Event()
            self.events[call.fresh].record(helper)

        return run

    def _Shut(self, call: c.Shut) -> Callable[[], None]:
        gates, stream, gate = self.device.gates, self.streams[call.stream], call.gate

        def run() -> None:
            self.tickets[gate] = gates.shut(stream)

        return run

    def _Open(self, call: c.Open) -> Callable[[], None]:
        gates, gate = self.device.gates, call.gate
        return lambda: gates.open(self.tickets[gate])

    def _Settle(self, call: c.Settle) -> Callable[[], None]:
        torch, stream, watchdog = self.torch, self.streams[call.stream], self.device.watchdog

        def run() -> None:
            marker = torch.cuda.Event()
            marker.record(stream)
            while not marker.query():
                if watchdog.fired is not None:
                    self.device_held = True
                    break

        return run

    # ------------------------------------------------------------ a trial

    def _reset(self) -> None:
        torch = self.torch
        self._set_stream(torch.cuda.default_stream(self.gpus[0]))
        for slab, content in self.slabs:
            slab.copy_(content)
        self.host_seen.fill_(POISON)
        self.device_seen.fill_(POISON)
        self.events = [torch.cuda.Event() for _ in self.plan.events]
        self.tenants.clear()
        self.tickets.clear()
        self.diverged = self.device_held = False
        self._scribble()
        for gpu in self.gpus:
            torch.cuda.synchronize(gpu)

    def trial(self, *, serial: bool = False) -> Trial:
        """Run all calls once. `serial`: each ends before the next begins, and gates are left out.

        A trial in which the host was slow (pages being locked, say) is made again, at most RETRIES times.
        """
        for _ in range(RETRIES):
            found = self._once(serial)
            if not found.slow:
                return found
        return found

    def _once(self, serial: bool) -> Trial:
        torch, watchdog = self.torch, self.device.watchdog
        self._reset()
        calls, lines = self.calls, self.plan.lines
        held: int | None = None
        held_ms = 0.0
        watchdog.begin()
        try:
            for number, call in enumerate(calls):
                if serial and isinstance(lines[number].call, (c.Shut, c.Open, c.Settle)):
                    continue
                watchdog.reach(number)
                begin = time.perf_counter()
                call()
                if held is None and watchdog.fired is not None:
                    held, held_ms = number, 1e3 * (time.perf_counter() - begin)
                if serial:
                    torch.cuda.synchronize()
        finally:
            watchdog.end()
            self.device.gates.open_all()
            for gpu in self.gpus:
                torch.cuda.synchronize(gpu)
            self.tenants.clear()
        slow = False
        if held is not None:
            call_there = lines[held].call
            slow = not (c.may_wait(call_there) or isinstance(call_there, c.Settle))
            if isinstance(call_there, c.Settle):
                held = None
        return Trial(self._wrong(), held, self.device_held, self.diverged, False, held_ms, slow)

    def _wrong(self) -> tuple[Mismatch, ...]:
        self._set_stream(self.torch.cuda.default_stream(self.gpus[0]))
        found: list[Mismatch] = []
        for seen, expected in ((self.host_seen, self.host_expected), (self.device_seen, self.device_expected)):
            if self.torch.equal(seen, expected):
                continue
            different = seen != expected
            for check in different.any(1).nonzero().flatten().tolist():
                if check not in self.undefined:
                    at = int(different[check].nonzero()[0])
                    found.append(Mismatch(check, int(seen[check, at]), int(expected[check, at])))
        return tuple(sorted(found))
