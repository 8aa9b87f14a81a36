"""A plan's CUDA graph, really captured and really launched, through torch.cuda.CUDAGraph.

A captured kernel has its arguments baked in (S92), and yet each launch must write values of its own and keep what it
sees apart. So the graph counts its launches in device memory: its kernels take the row of that number from tables of
values, and keep what they read in the row of their check. Copies and fills are memcpy and memset nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.layout import SCALE

if TYPE_CHECKING:
    from fencepost.gpu_validate.torchcalls import TorchCalls


def launched(call: c.WriteWord | c.WaitWord) -> int:
    """The stream of an item of a graph."""
    assert call.stream is not None
    return call.stream


class TorchGraph:
    """Launches of one shape of a graph. `launches`: in the order of the plan; all are alike but for checks and values."""

    def __init__(self, run: TorchCalls, launches: list[c.GraphLaunch]) -> None:
        self.run, self.torch = run, run.torch
        self.launches = launches
        self.device = f"cuda:{run.gpus[0]}"
        self.origin = run.device.stream(run.gpus[0], -1)
        self.count = self.torch.zeros(1, dtype=self.torch.int64, device=self.device)
        self.gates: dict[int, int] = {}
        self.baked = any(run.plan.buffers[r.buffer].allocated for x in launches[0].body for r in c.ranges_of(x.call))
        self.graph: Any = None
        self.parts = [self._node(number) for number in range(len(launches[0].body))]
        self.events: dict[int, Any] = {}

    # ------------------------------------------------------------ nodes

    def _node(self, number: int) -> Callable[[], None]:
        """What puts a node on the captured streams. The tables hold a row for each launch."""
        calls = [launch.body[number].call for launch in self.launches]
        call, run = calls[0], self.run
        if isinstance(call, c.Kernel):
            kernels = [x for x in calls if isinstance(x, c.Kernel)]
            parts = [self._observe([x.reads[k] for x in kernels]) for k in range(len(call.reads))]
            parts += [self._fill([x.fills[k] for x in kernels]) for k in range(len(call.fills))]
            return self._on(call.stream, parts)
        if isinstance(call, c.Copy):
            copies = [x for x in calls if isinstance(x, c.Copy)]
            parts = []
            for k, (segments, _) in enumerate(call.passes):
                parts.append(self._memcpy(call, segments))
                parts.append(self._observe([x.passes[k][1] for x in copies]))
            return self._on(call.stream, parts)
        if isinstance(call, c.Memset):
            target = call.range
            return self._on(call.stream, [lambda: [run._on_gpu(target, a, b).zero_() for a, b in target.spans]])
        if isinstance(call, c.Record):
            return self._record(call)
        if isinstance(call, c.StreamWaitEvent):
            waits = call
            return lambda: self._stream(waits.stream).wait_event(self.events[waits.event])
        if isinstance(call, c.WaitStream):
            joins = call
            return lambda: self._stream(joins.stream).wait_stream(self._stream(joins.other))
        if isinstance(call, c.WriteWord):
            word = call
            return lambda: run.write_word(word, self._stream(launched(word)))()
        if isinstance(call, c.WaitWord):
            waited = call
            return lambda: run.device.gates.wait(run.words[waited.word], waited.value, self._stream(launched(waited)))
        assert isinstance(call, c.Shut)
        return self._gate(call)

    def _stream(self, number: int) -> Any:
        """The stream that stands for one of the plan's during the capture."""
        return self.origin if number == self.launches[0].stream else self.run.streams[number]

    def _on(self, stream: int, parts: Sequence[Callable[[], object]]) -> Callable[[], None]:
        def node() -> None:
            self.run._set_stream(self._stream(stream))
            for part in parts:
                part()

        return node

    def _observe(self, checks: list[c.Check]) -> Callable[[], None]:
        torch, run, range_ = self.torch, self.run, checks[0].range
        rows = torch.tensor([check.index for check in checks], dtype=torch.int64, device=self.device)
        row = torch.zeros(1, dtype=torch.int64, device=self.device)

        def part() -> None:
            torch.index_select(rows, 0, self.count, out=row)
            at = 0
            for start, stop in range_.spans:
                size = (stop - start) * SCALE
                run.seen_on[0][:, at : at + size].index_copy_(0, row, run._on_gpu(range_, start, stop).unsqueeze(0))
                at += size

        return part

    def _fill(self, fills: list[c.Fill]) -> Callable[[], None]:
        torch, run, range_ = self.torch, self.run, fills[0].range
        units = sum(stop - start for start, stop in range_.spans)
        values = [((f.value, units),) if f.values is None else f.values for f in fills]
        table = torch.tensor([[v for v, n in one for _ in range(n * SCALE)] for one in values], dtype=torch.int32)
        table = table.to(self.device)
        row = torch.zeros((1, units * SCALE), dtype=torch.int32, device=self.device)

        def part() -> None:
            torch.index_select(table, 0, self.count, out=row)
            at = 0
            for start, stop in range_.spans:
                size = (stop - start) * SCALE
                run._on_gpu(range_, start, stop).copy_(row[0, at : at + size])
                at += size

        return part

    def _memcpy(self, call: c.Copy, segments: tuple[c.Segment, ...]) -> Callable[[], None]:
        run = self.run

        def part() -> None:
            memcpy = run._memcpy_on(self._stream(call.stream))
            for s in segments:
                size = 4 * s.count * SCALE
                memcpy(run._side(call.dst, s.dst, s.dst + s.count), run._side(call.src, s.src, s.src + s.count), size)

        return part

    def _record(self, call: c.Record) -> Callable[[], None]:
        def node() -> None:
            self.events[call.event] = self.torch.cuda.Event()
            self.events[call.event].record(self._stream(call.stream))

        return node

    def _gate(self, call: c.Shut) -> Callable[[], None]:
        def node() -> None:
            stream = self._stream(call.stream)
            self.run._set_stream(stream)
            self.gates[call.gate] = self.run.device.gates.capture(stream)

        return node

    # ------------------------------------------------------------ capture and launch

    def nodes(self) -> None:
        """Put all nodes on their streams, once."""
        for part in self.parts:
            part()
        self.run._set_stream(self.origin)
        self.count.add_(1)

    def capture(self) -> None:
        """Capture, unless that was done and no address can have changed."""
        if self.graph is not None and not self.baked:
            return
        graph = self.torch.cuda.CUDAGraph()
        self.run._set_stream(self.origin)
        graph.capture_begin(capture_error_mode="relaxed")
        try:
            self.nodes()
        finally:
            self.run._set_stream(self.origin)
            graph.capture_end()
        self.graph = graph

    def reset(self) -> None:
        """Back to the first launch, on the current stream."""
        self.count.zero_()

    def launch(self, stream: Any, gated: bool) -> None:
        """Launch it. `gated`: its gates are shut for this launch."""
        for key in self.gates.values():
            self.run.device.gates.arm(key, gated)
        self.run._set_stream(stream)
        self.graph.replay()
