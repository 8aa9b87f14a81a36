"""What a plan has on a real GPU: streams, pinned and mapped buffers, both caching allocators, and what each check must see.

GPU k of the design is GPU k of the host, where there is one; where there are fewer, several stand on one. Pinned memory is
used in place through a mapped view.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.device import MEBI, Device, Mapped
from fencepost.gpu_validate.gates import MEETING, NoGates
from fencepost.gpu_validate.layout import ELEMENTS, SCALE

POISON = -7
"""What a check holds that was never made."""
DIRT = (-11, -13)
"""What an earlier owner left in a block: another number in each trial, so that who reads it is found out."""
PAD = 16
"""Elements in front of a pinned block's contents, so that a foreign view does not start at the block's base (S84)."""


def elements(values: c.Values) -> list[int]:
    """One number for each element."""
    return [value for value, count in values for _ in range(count * SCALE)]


class TorchMemory:
    """Streams, buffers and checks of one plan on the device."""

    def __init__(self, device: Device, plan: c.Plan) -> None:
        self.device, self.plan = device, plan
        self.torch = device.torch
        self._place()
        self._make_streams()
        self._make_buffers()
        self._make_checks()
        self.tenants: dict[int, Any] = {}
        self.mapped: dict[int, Any] = {}
        self.freed: dict[int, int] = {}
        self.dirt = DIRT[0]
        self.events: list[Any] = []
        self.marks: dict[int, Any] = {}
        self.late: dict[int, tuple[int, Any]] = {}
        """Late items of a serial trial that have not run -> gate and end."""
        self.openers: dict[int, Callable[[], None]] = {}
        self.serial = False
        self.diverged = self.device_held = False
        self._set_stream = self.torch.cuda.set_stream
        if len(plan.words) > MEETING:
            raise c.Unsupported(f"the run has {len(plan.words)} words through which streams meet; there are {MEETING}")
        try:
            self.words = [device.gates.word() for _ in plan.words]
        except NoGates as error:
            raise c.Unsupported(str(error)) from None

    # ------------------------------------------------------------ made once

    def _place(self) -> None:
        """Which GPU stands for which."""
        wanted = sorted({s.gpu for s in self.plan.streams if s.gpu >= 0} | {0})
        whole = all(gpu < self.device.count for gpu in wanted)
        graphs = any(isinstance(line.call, c.GraphLaunch) for line in self.plan.lines)
        fold = graphs and len(wanted) > 1
        self.notes: tuple[str, ...] = ()
        if len(wanted) > 1 and (fold or not whole):
            why = "because they launch graphs" if fold and whole else f"there is {self.device.count}"
            self.notes = (f"{len(wanted)} GPUs of the design stand on fewer: {why}",)
        self.of = {gpu: 0 if fold else self.device.stand_in(gpu) for gpu in {s.gpu for s in self.plan.streams} | {0}}
        self.gpu = [self.of[s.gpu] for s in self.plan.streams]
        self.home = [self.of.get(buffer.gpu, 0) for buffer in self.plan.buffers]

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
        self.gpus = gpus = sorted({0, *gpus})
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
                gpu = self.home[number] if buffer.space == "device" else 0
                groups.setdefault((buffer.space, gpu), []).append(number)
        for (space, gpu), members in groups.items():
            content = torch.tensor([v for b in members for v in elements(self.plan.initial[b])], dtype=torch.int32)
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
        for line in c.flat(plan.lines):
            for check in c.checks_of(line.call):
                call = line.call
                if isinstance(call, (c.Read, c.Item)) or (isinstance(call, c.Copy) and self._lands_on_host(call)):
                    self.on_host.add(check.index)
                if check.expected is not None:
                    values = elements(check.expected)
                    n = 1 if isinstance(call, c.Item) else len(values)
                    self.expected[check.index, :n] = torch.tensor(values[:n], dtype=torch.int32)
        self.undefined = {k for k, (_, check) in plan.check_lines().items() if check.expected is None}
        self.host_seen = torch.empty_like(self.expected)
        self.host_expected = self.expected.clone()
        self.host_expected[[k for k in range(rows) if k not in self.on_host]] = POISON
        # What a GPU sees stays in its own memory: a copy to another one's waits, on the default stream, for both (S7).
        where = {
            check.index: self.gpu[stream]
            for line in c.flat(plan.lines) for check in c.checks_of(line.call)
            if check.index not in self.on_host and (stream := getattr(line.call, "stream", None)) is not None
        }  # fmt: skip
        self.seen_on: dict[int, Any] = {}
        self.expected_on: dict[int, Any] = {}
        for gpu in self.gpus:
            there = self.expected.clone()
            there[[k for k in range(rows) if where.get(k) != gpu]] = POISON
            self.expected_on[gpu] = there.to(f"cuda:{gpu}")
            self.seen_on[gpu] = torch.empty_like(self.expected_on[gpu])
        self.check_gpu = where

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
        self.dirt = DIRT[self.dirt == DIRT[0]]
        for block in held:
            block[: PAD + ELEMENTS].fill_(self.dirt)
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
        if range_.attributed and range_.buffer in self.tenants:
            return self.tenants[range_.buffer][PAD + start : PAD + stop]
        return self._foreign_view(range_.buffer)[start:stop]

    def _foreign_view(self, buffer: int) -> Any:
        """The block's contents as memory of another owner, which torch cannot attribute (S84)."""
        address = self._address(buffer)
        raw = (ctypes.c_char * (4 * ELEMENTS)).from_address(address)
        return self.torch.frombuffer(raw, dtype=self.torch.int32, count=ELEMENTS)

    def _address(self, buffer: int) -> int:
        """Where a block's contents begin. A raw pointer knows it after the block was freed, too."""
        tensor = self.tenants.get(buffer)
        return (self.freed[buffer] if tensor is None else int(tensor.data_ptr())) + 4 * PAD

    def _on_gpu(self, range_: c.Range, start: int, stop: int) -> Any:
        """The GPU's view of units of a buffer."""
        start, stop = start * SCALE, stop * SCALE
        found = self.fixed_device.get(range_.buffer)
        if found is not None:
            return found[start:stop]
        tensor = self.tenants.get(range_.buffer)
        if tensor is not None and self.plan.buffers[range_.buffer].space == "device":
            return tensor[PAD + start : PAD + stop]
        address = self._address(range_.buffer)
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
