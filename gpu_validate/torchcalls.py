"""The calls of a plan, made through PyTorch: each becomes a function of no arguments, its operands looked up beforehand.

A kernel is torch operations without temporaries, back to back on its stream: what each read observes goes into a slot of
its own and is compared at the end of the trial; what it writes is a value of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.device import NoGpu
from fencepost.gpu_validate.layout import SCALE
from fencepost.gpu_validate.torchgraph import TorchGraph
from fencepost.gpu_validate.torchmemory import TorchMemory, elements


class TorchCalls(TorchMemory):
    """What each kind of call does."""

    def _make_graphs(self) -> None:
        """One captured graph for each graph of the plan; a launch with a gate inside has one of its own."""
        self.graphs: dict[int, TorchGraph] = {}
        launches = [line.call for line in self.plan.lines if isinstance(line.call, c.GraphLaunch)]
        groups: dict[object, list[c.GraphLaunch]] = {}
        for number, launch in enumerate(launches):
            gated = any(isinstance(line.call, c.Shut) for line in launch.body)
            groups.setdefault((launch.graph, number if gated else None), []).append(launch)
        for members in groups.values():
            graph = TorchGraph(self, members)
            self.graphs.update((id(member), graph) for member in members)

    # ------------------------------------------------------------ calls

    def _compile(self, call: c.Call) -> Callable[[], None]:
        made: Callable[[], None] = getattr(self, "_" + type(call).__name__)(call)
        return made

    def _near(self, range_: c.Range, stream: int) -> bool:
        """Whether kernels of a stream can use the memory as they are. Other GPUs' memory, and pinned memory on others than
        GPU 0, they reach by copies of their own instead: a view of it would be a copy that nobody asked for."""
        space = self.plan.buffers[range_.buffer].space
        return self.gpu[stream] == (self.home[range_.buffer] if space == "device" else 0)

    def _pointed(self, range_: c.Range, start: int, stop: int) -> Any:
        """Memory as a copy by address sees it."""
        device = self.plan.buffers[range_.buffer].space == "device"
        return self._on_gpu(range_, start, stop) if device else self._host(range_, start, stop)

    def _observe(self, check: c.Check, stream: int) -> Callable[[], None]:
        """On the current stream: keep what the GPU sees there."""
        torch, on_gpu = self.torch, self._on_gpu
        if not self._near(check.range, stream):
            return self._observe_far(check, stream)
        seen = self.seen_on[self.gpu[stream]]
        parts = []
        at = 0
        for start, stop in check.range.spans:
            parts.append((start, stop, seen[check.index, at * SCALE : (at + stop - start) * SCALE]))
            at += stop - start
        range_ = check.range

        def run() -> None:
            for start, stop, slot in parts:
                torch.bitwise_or(on_gpu(range_, start, stop), 0, out=slot)

        return run

    def _observe_far(self, check: c.Check, stream: int) -> Callable[[], None]:
        memcpy, pointed, spans = self._memcpy_on(self.streams[stream]), self._pointed, check.range.spans
        seen = self.seen_on[self.gpu[stream]]

        def run() -> None:
            at = 0
            for start, stop in spans:
                size = (stop - start) * SCALE
                memcpy(seen[check.index, at : at + size], pointed(check.range, start, stop), 4 * size)
                at += size

        return run

    def _fill_far(self, range_: c.Range, values: list[int], stream: int) -> Callable[[], None]:
        memcpy, pointed = self._memcpy_on(self.streams[stream]), self._pointed
        constant = self.torch.tensor(values, dtype=self.torch.int32, device=f"cuda:{self.gpu[stream]}")

        def run() -> None:
            at = 0
            for start, stop in range_.spans:
                size = (stop - start) * SCALE
                memcpy(pointed(range_, start, stop), constant[at : at + size], 4 * size)
                at += size

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

    def _fill_gpu(self, fill: c.Fill, stream: int) -> Callable[[], None]:
        torch, on_gpu, spans, range_ = self.torch, self._on_gpu, fill.range.spans, fill.range
        if not self._near(range_, stream):
            size = SCALE * sum(stop - start for start, stop in spans)
            return self._fill_far(range_, [fill.value] * size if fill.values is None else elements(fill.values), stream)
        if fill.values is None:
            value = fill.value

            def run() -> None:
                for start, stop in spans:
                    on_gpu(range_, start, stop).fill_(value)

            return run
        constant = torch.tensor(elements(fill.values), dtype=torch.int32, device=f"cuda:{self.gpu[stream]}")

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
        constant = None if values is None else self.torch.tensor(elements(values), dtype=self.torch.int32)

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
        parts = [self._observe(check, call.stream) for check in call.reads]
        parts += [self._fill_gpu(fill, call.stream) for fill in call.fills]
        set_stream = self._set_stream

        def run() -> None:
            set_stream(stream)
            for part in parts:
                part()

        return run

    def _Copy(self, call: c.Copy) -> Callable[[], None]:
        side, set_stream, stream = self._side, self._set_stream, self.streams[call.stream]
        to_host = self._lands_on_host(call)
        passes = [(s, self._look(check) if to_host else self._observe(check, call.stream)) for s, check in call.passes]
        dst, src, non_blocking = call.dst, call.src, call.non_blocking
        waits = not call.host and not call.non_blocking and not call.raw
        devices = [self.home[r.buffer] for r in (dst, src) if self.plan.buffers[r.buffer].space == "device"]
        # Between GPUs by address, too: what torch's own copy adds around it the language writes down (S136).
        far = any(gpu != self.gpu[call.stream] for gpu in devices)
        memcpy = self._raw_memcpy(call) if (call.raw or far) and not call.host else None

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
        return self._memcpy_on(self.streams[call.stream])

    def _memcpy_on(self, stream: Any) -> Callable[[Any, Any, int], None]:
        """cuMemcpyAsync on a stream: (target, source, bytes), which no allocator sees."""
        try:
            from cuda.bindings import driver
        except ImportError:
            raise NoGpu("a raw memcpy needs the package cuda-bindings: pip install 'fencepost[gpu]'") from None
        handle = stream.cuda_stream

        def memcpy(dst: Any, src: Any, size: int) -> None:
            (error,) = driver.cuMemcpyAsync(dst.data_ptr(), src.data_ptr(), size, handle)
            if int(error) != 0:
                raise RuntimeError(f"cuMemcpyAsync: {error!r}")

        return memcpy

    def _Memset(self, call: c.Memset) -> Callable[[], None]:
        set_stream, stream, on_gpu, range_ = self._set_stream, self.streams[call.stream], self._on_gpu, call.range
        zeros = None
        if not self._near(range_, call.stream):
            zeros = self._fill_far(range_, [0] * (SCALE * sum(stop - start for start, stop in range_.spans)), call.stream)

        def run() -> None:
            set_stream(stream)
            if zeros is not None:
                zeros()
                return
            for start, stop in range_.spans:
                on_gpu(range_, start, stop).zero_()

        return run

    def _Item(self, call: c.Item) -> Callable[[], None]:
        set_stream, stream, on_gpu, range_ = self._set_stream, self.streams[call.stream], self._on_gpu, call.check.range
        if not self._near(range_, call.stream):
            raise c.Unsupported("item() of memory of another GPU than the stream's")
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
        tenants, freed, buffer = self.tenants, self.freed, call.buffer

        def run() -> None:
            tensor = tenants.pop(buffer, None)
            if tensor is not None:
                freed[buffer] = tensor.data_ptr()

        return run

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

    def _WriteWord(self, call: c.WriteWord) -> Callable[[], None]:
        stream = None if call.stream is None else self.streams[call.stream]
        return self.write_word(call, stream)

    def write_word(self, call: c.WriteWord, stream: Any) -> Callable[[], None]:
        """A store to a word, by a stream or (None) the host."""
        gates, word, set_stream = self.device.gates, self.words[call.word], self._set_stream

        def run() -> None:
            if stream is not None:
                set_stream(stream)
            gates.store(word, call.value, stream)

        return run

    def _WaitWord(self, call: c.WaitWord) -> Callable[[], None]:
        gates, word, value, watchdog = self.device.gates, self.words[call.word], call.value, self.device.watchdog
        if call.stream is not None:
            stream, set_stream = self.streams[call.stream], self._set_stream

            def wait() -> None:
                set_stream(stream)
                gates.wait(word, value, stream)

            return wait

        def spin() -> None:
            while gates.load(word) < value and watchdog.fired is None:
                pass

        return spin

    def _Mark(self, call: c.Mark) -> Callable[[], None]:
        stream, mark = self.streams[call.stream], call.mark

        def run() -> None:
            self.marks[mark] = self.torch.cuda.Event()
            self.marks[mark].record(stream)

        return run

    def _Reach(self, call: c.Reach) -> Callable[[], None]:
        watchdog, mark = self.device.watchdog, call.mark

        def run() -> None:
            while not self.marks[mark].query():
                if watchdog.fired is not None:
                    self.device_held = True
                    break

        return run

    def _Runs(self, call: c.Runs) -> Callable[[], None]:
        gates, watchdog, item = self.device.gates, self.device.watchdog, call.item

        def run() -> None:
            if item not in self.late:
                return  # nothing but a serial trial holds it back
            gate, end = self.late.pop(item)
            gates.open(gate)
            while not end.query() and watchdog.fired is None:
                pass

        return run

    def held_late(self, call: c.Call, item: int, make: Callable[[], None]) -> None:
        """Make the call of a late item behind a gate, which opens where the item runs."""
        stream = self.streams[c.stream_of(call)]
        self._set_stream(stream)
        gate = self.device.gates.shut(stream)
        make()
        end = self.torch.cuda.Event()
        end.record(stream)
        self.late[item] = (gate, end)

    def _GraphCapture(self, call: c.GraphCapture) -> Callable[[], None]:
        graphs = {id(g): g for g in self.graphs.values() if g.launches[0].graph == call.graph}

        def run() -> None:
            for graph in graphs.values():
                graph.capture()

        return run

    def _GraphLaunch(self, call: c.GraphLaunch) -> Callable[[], None]:
        graph, stream, gates = self.graphs[id(call)], self.streams[call.stream], self.device.gates
        parts = {id(g) for g in self.graphs.values() if g.launches[0].graph == call.graph}
        # CUDA orders the launches of one captured graph (S93); where a gate has a capture of its own, an event does.
        ordered, event = len(parts) > 1, call.event

        def run() -> None:
            if ordered:
                stream.wait_event(self.events[event])
            graph.launch(stream, not self.serial)
            if ordered:
                self.events[event].record(stream)
            for gate, key in graph.gates.items():
                self.openers[gate] = partial(gates.arm, key, False)

        return run

    def _Shut(self, call: c.Shut) -> Callable[[], None]:
        gates, stream, gate, set_stream = self.device.gates, self.streams[call.stream], call.gate, self._set_stream

        def run() -> None:
            set_stream(stream)
            self.openers[gate] = partial(gates.open, gates.shut(stream))

        return run

    def _Open(self, call: c.Open) -> Callable[[], None]:
        gate = call.gate
        return lambda: self.openers[gate]()

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
