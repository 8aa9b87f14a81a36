"""A plan on a real GPU, through PyTorch: one host thread makes all calls in the plan's order, trial after trial.

Where the design has several threads their order is the plan's. Processes of a design share this one process: what is
tested is order, not where memory lies.
"""

from __future__ import annotations

import time

from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.device import Device
from fencepost.gpu_validate.gates import NEVER
from fencepost.gpu_validate.torchcalls import TorchCalls
from fencepost.gpu_validate.torchmemory import POISON
from fencepost.gpu_validate.trial import Mismatch, Trial

RETRIES = 4


class TorchRun(TorchCalls):
    """One plan made ready on the device. `trial()` runs it once."""

    def __init__(self, device: Device, plan: c.Plan) -> None:
        super().__init__(device, plan)
        self._make_graphs()
        self.calls = [self._compile(line.call) for line in plan.lines]
        self._warm_allocators()

    # ------------------------------------------------------------ a trial

    def _reset(self) -> None:
        torch = self.torch
        self._set_stream(torch.cuda.default_stream(self.gpus[0]))
        for slab, content in self.slabs:
            slab.copy_(content)
        self.host_seen.fill_(POISON)
        for seen in self.seen_on.values():
            seen.fill_(POISON)
        for graph in self.graphs.values():
            graph.reset()
        self.events = [torch.cuda.Event() for _ in self.plan.events]
        self.tenants.clear()
        self.freed.clear()
        self.openers.clear()
        self.marks.clear()
        self.late.clear()
        for word in self.words:
            self.device.gates.store(word, 0)
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
        self.serial = serial
        calls, lines = self.calls, self.plan.lines
        held: int | None = None
        held_ms = 0.0
        watchdog.begin()
        try:
            for number, call in enumerate(calls):
                if serial and c.held_back(lines[number].call):
                    continue
                watchdog.reach(number)
                begin = time.perf_counter()
                late = lines[number].late if serial else None
                if late is None:
                    call()
                else:
                    self.held_late(lines[number].call, late, call)
                if held is None and watchdog.fired is not None:
                    held, held_ms = number, 1e3 * (time.perf_counter() - begin)
                if serial and self.words:
                    for k, stream in enumerate(self.streams):
                        if k not in lines[number].busy:
                            stream.synchronize()
                elif serial:
                    torch.cuda.synchronize()
        finally:
            watchdog.end()
            self.device.gates.open_all()
            self._release()
            for gpu in self.gpus:
                torch.cuda.synchronize(gpu)
            self.tenants.clear()
        slow = False
        if held is not None:
            call_there = lines[held].call
            slow = not (c.may_wait(call_there) or isinstance(call_there, (c.Settle, c.Reach)))
            if isinstance(call_there, (c.Settle, c.Reach)):
                held = None
        return Trial(self._wrong(), held, self.device_held, self.diverged, False, held_ms, slow)

    def _release(self) -> None:
        """Let everything pass that still waits for a word, and come to rest."""
        if not self.words:
            return
        markers = []
        for stream in self.streams:
            markers.append(self.torch.cuda.Event())
            markers[-1].record(stream)
        while not all(marker.query() for marker in markers):
            for word in self.words:
                self.device.gates.store(word, NEVER)

    def _wrong(self) -> tuple[Mismatch, ...]:
        self._set_stream(self.torch.cuda.default_stream(self.gpus[0]))
        found: list[Mismatch] = []
        for check in self.plan.undefined:
            seen = (self.host_seen if check in self.on_host else self.seen_on[self.check_gpu[check]])[check]
            if bool((seen == self.dirt).any()):
                found.append(Mismatch(check, self.dirt, 0))
        on_gpus = [(self.seen_on[gpu], self.expected_on[gpu]) for gpu in self.gpus]
        for seen, expected in ((self.host_seen, self.host_expected), *on_gpus):
            if self.torch.equal(seen, expected):
                continue
            different = seen != expected
            for check in different.any(1).nonzero().flatten().tolist():
                if check not in self.undefined:
                    at = int(different[check].nonzero()[0])
                    found.append(Mismatch(check, int(seen[check, at]), int(expected[check, at])))
        return tuple(sorted(found))
