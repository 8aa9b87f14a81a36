"""A counterexample as text: the plan for a dry run, and a standalone PyTorch script that can be pasted into an issue."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator

from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.arms import prepare
from fencepost.gpu_validate.files import Subject
from fencepost.gpu_validate.layout import ELEMENTS, SCALE, UNITS
from fencepost.gpu_validate.schedule import Unforceable
from fencepost.model.platform import platform as platform_of


class _Names:
    """Python identifiers for a plan's buffers, streams and events."""

    def __init__(self, plan: c.Plan) -> None:
        self.plan = plan
        used: set[str] = {"torch", "see", "look", "gpu", "shut", "release", "settle", "gated", "foreign", "memcpy_async"}
        self.buffers = [_identifier(b.name, used) for b in plan.buffers]
        self.streams = [_identifier("s_" + s.name, used) for s in plan.streams]
        self.events = [_identifier("e_" + e, used) for e in plan.events]


def _identifier(text: str, used: set[str]) -> str:
    base = re.sub(r"\W+", "_", text).strip("_") or "x"
    if base[0].isdigit() or keyword.iskeyword(base):
        base = "_" + base
    name, number = base, 2
    while name in used:
        name, number = f"{base}_{number}", number + 1
    used.add(name)
    return name


def _slice(start: int, stop: int) -> str:
    return "" if (start, stop) == (0, UNITS) else f"[{start * SCALE}:{stop * SCALE}]"


class _Writer:
    """Statements for one plan."""

    def __init__(self, plan: c.Plan) -> None:
        self.plan = plan
        self.names = _Names(plan)

    def statements(self, call: c.Call) -> list[str]:
        """Python lines for one call; kernels and copies begin with their stream."""
        found: list[str] = getattr(self, "_" + type(call).__name__)(call)
        return found

    def _view(self, range_: c.Range, start: int, stop: int) -> str:
        """As torch sees the buffer: a host tensor for host memory."""
        name = self.names.buffers[range_.buffer]
        if not range_.attributed:
            name = f"foreign({name})"
        return name + _slice(start, stop)

    def _on_gpu(self, range_: c.Range, start: int, stop: int) -> str:
        if self.plan.buffers[range_.buffer].space == "device":
            return self.names.buffers[range_.buffer] + _slice(start, stop)
        return f"gpu({self.names.buffers[range_.buffer]})" + _slice(start, stop)

    def _observe(self, check: c.Check, host: bool) -> list[str]:
        at, lines = 0, []
        for start, stop in check.range.spans:
            view = (self._view if host else self._on_gpu)(check.range, start, stop)
            lines.append(f"{'look' if host else 'see'}({check.index}, {at * SCALE}, {view})")
            at += stop - start
        return lines

    def _put(self, fill: c.Fill, host: bool) -> list[str]:
        lines = []
        values = c.expand(fill.values) if fill.values is not None else None
        at = 0
        for start, stop in fill.range.spans:
            view = self._view if host else self._on_gpu
            if values is None:
                lines.append(f"{view(fill.range, start, stop)}.fill_({fill.value:#x})")
                continue
            for value, count in c.pack(values[at : at + stop - start]):
                lines.append(f"{view(fill.range, start, start + count)}.fill_({value:#x})  # the same bytes again")
                start += count
            at += stop - start
        return lines

    def _in(self, stream: int, lines: list[str]) -> list[str]:
        return [f"with torch.cuda.stream({self.names.streams[stream]}):", *("    " + line for line in lines)]

    def _Write(self, call: c.Write) -> list[str]:
        return self._put(call.fill, True)

    def _Read(self, call: c.Read) -> list[str]:
        return self._observe(call.check, True)

    def _Kernel(self, call: c.Kernel) -> list[str]:
        lines = [line for check in call.reads for line in self._observe(check, False)]
        lines += [line for fill in call.fills for line in self._put(fill, False)]
        return self._in(call.stream, lines or ["pass"])

    def _Copy(self, call: c.Copy) -> list[str]:
        landed = call.host or self.plan.buffers[call.dst.buffer].space == "pageable"
        lines: list[str] = []
        for segments, check in call.passes:
            for s in segments:
                dst = self._view(call.dst, s.dst, s.dst + s.count)
                src = self._view(call.src, s.src, s.src + s.count)
                if call.raw and not call.host:
                    lines.append(f"memcpy_async({dst}, {src})")
                else:
                    lines.append(f"{dst}.copy_({src}, non_blocking={call.non_blocking})")
            lines += self._observe(check, landed)
        if not call.host and not call.non_blocking and not call.raw:
            lines.append("torch.cuda.current_stream().synchronize()  # as the copy did; for what looked at its result")
        return self._in(call.stream, lines)

    def _Memset(self, call: c.Memset) -> list[str]:
        return self._in(call.stream, [f"{self._on_gpu(call.range, a, b)}.zero_()" for a, b in call.range.spans])

    def _Item(self, call: c.Item) -> list[str]:
        start = call.check.range.spans[0][0] * SCALE
        name = self._on_gpu(call.check.range, 0, UNITS)
        return self._in(call.stream, [f"look({call.check.index}, 0, torch.tensor([{name}[{start}].item()], dtype=torch.int32))"])

    def _Alloc(self, call: c.Alloc) -> list[str]:
        info, name = self.plan.buffers[call.buffer], self.names.buffers[call.buffer]
        size = ELEMENTS if info.label is None else (10 + 2 * (info.label % 64)) * 262144
        if call.stream is None:
            size = ELEMENTS + 16 if info.label is None else 4096 << (info.label % 9)
            lines = [f"{name}_block = torch.empty({size}, dtype=torch.int32, pin_memory=True)"]
            return [*lines, f"{name} = {name}_block[16:{16 + ELEMENTS}]"]
        lines = [f"{name}_block = torch.empty({size}, dtype=torch.int32, device='cuda')"]
        return [*self._in(call.stream, lines), f"{name} = {name}_block[:{ELEMENTS}]"]

    def _Free(self, call: c.Free) -> list[str]:
        name = self.names.buffers[call.buffer]
        return [f"del {name}, {name}_block"]

    def _RecordStream(self, call: c.RecordStream) -> list[str]:
        if self.plan.buffers[call.buffer].space != "device":
            return []
        return [f"{self.names.buffers[call.buffer]}_block.record_stream({self.names.streams[call.stream]})"]

    def _NewEvent(self, call: c.NewEvent) -> list[str]:
        return [f"{self.names.events[call.event]} = torch.cuda.Event()"]

    def _Record(self, call: c.Record) -> list[str]:
        return [f"{self.names.events[call.event]}.record({self.names.streams[call.stream]})"]

    def _EventSync(self, call: c.EventSync) -> list[str]:
        return [f"{self.names.events[call.event]}.synchronize()"]

    def _StreamWaitEvent(self, call: c.StreamWaitEvent) -> list[str]:
        return [f"{self.names.streams[call.stream]}.wait_event({self.names.events[call.event]})"]

    def _WaitStream(self, call: c.WaitStream) -> list[str]:
        return [f"{self.names.streams[call.stream]}.wait_stream({self.names.streams[call.other]})"]

    def _StreamSync(self, call: c.StreamSync) -> list[str]:
        return [f"{self.names.streams[call.stream]}.synchronize()"]

    def _DeviceSync(self, call: c.DeviceSync) -> list[str]:
        return [f"{self.names.streams[k]}.synchronize()" for k in call.streams]

    def _Query(self, call: c.Query) -> list[str]:
        name = self.names.events[call.event] if call.event is not None else self.names.streams[call.stream or 0]
        if call.done:
            return [f"while not {name}.query():", "    pass"]
        return [f"assert not {name}.query() or not gated  # in this run the query says no"]

    def _Snapshot(self, call: c.Snapshot) -> list[str]:
        fresh = self.names.events[call.fresh]
        return [f"helper.wait_event({self.names.events[call.event]})", f"{fresh}.record(helper)"]

    def _WriteWord(self, call: c.WriteWord) -> list[str]:
        stream = "None" if call.stream is None else self.names.streams[call.stream]
        return [f"write_word({call.word}, {call.value}, {stream})  # {self.plan.words[call.word]}"]

    def _WaitWord(self, call: c.WaitWord) -> list[str]:
        stream = "None" if call.stream is None else self.names.streams[call.stream]
        return [f"wait_word({call.word}, {call.value}, {stream})  # {self.plan.words[call.word]}"]

    def _Mark(self, call: c.Mark) -> list[str]:
        return [f"marks[{call.mark}] = torch.cuda.Event()", f"marks[{call.mark}].record({self.names.streams[call.stream]})"]

    def _Reach(self, call: c.Reach) -> list[str]:
        return [f"reach({call.mark})"]

    def _Runs(self, call: c.Runs) -> list[str]:
        return []  # a script has no serial arm

    def _GraphCapture(self, call: c.GraphCapture) -> list[str]:
        return []

    def _GraphLaunch(self, call: c.GraphLaunch) -> list[str]:
        """Node by node: what a check keeps and what a write writes differ from launch to launch."""
        stream, event = self.names.streams[call.stream], self.names.events[call.event]
        lines = [f"{stream}.wait_event({event})  # graph {call.graph!r}, launched node by node"]
        lines += [text for line in call.body for text in self.statements(line.call)]
        return [*lines, f"{event}.record({stream})"]

    def _Shut(self, call: c.Shut) -> list[str]:
        return ["if gated:", f"    shut({call.gate}, {self.names.streams[call.stream]})"]

    def _Open(self, call: c.Open) -> list[str]:
        return [f"release({call.gate})"]

    def _Settle(self, call: c.Settle) -> list[str]:
        return [f"settle({self.names.streams[call.stream]})"]


def listing(subject: Subject) -> Iterator[str]:
    """The plan of a counterexample, one call a line, with the gates."""
    if subject.run is None or subject.hazard is None:
        raise Unforceable("there is no counterexample to replay")
    ready = prepare(subject.program, subject.run, subject.hazard, subject.fixed, platform_of(subject.platform))
    yield f"{subject.title}: {subject.hazard.name}"
    yield from _lines(ready.gated)
    if ready.fixed is not None:
        yield f"fixed design [{subject.fixed_variant}]"
        yield from _lines(ready.fixed)
        if ready.holds:
            yield f"the model says that the host waits for the gate at {ready.holds}"
    yield ""


def _lines(plan: c.Plan) -> Iterator[str]:
    writer = _Writer(plan)
    for line in plan.lines:
        for number, text in enumerate(writer.statements(line.call)):
            if text.lstrip().startswith(("see(", "look(", "if gated")):
                continue
            who = f"{line.thread} {line.turn}" if line.thread and number == 0 else ""
            yield f"  {who:<22.22} {text}"
        if isinstance(line.call, c.Read):
            yield f"  {line.thread + ' ' + str(line.turn):<22.22} read {writer.names.buffers[line.call.check.range.buffer]}"


HEADER = '''"""{title}: {hazard}.

A standalone reproduction, written by fencepost. It holds one operation back with a stream memory operation
(cuStreamWaitValue32), lets the host go on as it may, opens, and compares what every read observed with what it would
have observed with no overlap. Needs PyTorch with CUDA and cuda-bindings; the gate opens by itself after 0.1 s.
"""

import os

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # gated streams need queues of their own

import ctypes
import threading
import time

import torch
from cuda.bindings import driver

TRIALS = {trials}
N = {elements}

words = torch.zeros(4096, dtype=torch.int32, pin_memory=True)
turn = 0
shut_gates = {{}}
used = []


def shut(gate, stream):
    """Hold the stream here until `release`."""
    code, address = driver.cuMemHostGetDevicePointer(words.data_ptr(), 0)
    (code,) = driver.cuStreamWaitValue32(stream.cuda_stream, int(address) + 4 * gate, turn, 0)  # word >= turn
    assert int(code) == 0, code
    shut_gates[gate] = timer = threading.Timer(0.1, release, (gate,))
    timer.daemon = True
    timer.start()


def release(gate):
    timer = shut_gates.pop(gate, None)
    if timer is not None:
        timer.cancel()
        ctypes.c_int32.from_address(words.data_ptr() + 4 * gate).value = turn


def settle(stream):
    """Wait until the stream is empty, unless it waits for a gate itself."""
    event = torch.cuda.Event()
    event.record(stream)
    while not event.query() and shut_gates:
        pass


met = torch.zeros(1024, dtype=torch.int32, pin_memory=True)
marks = {{}}


def met_address(word):
    code, address = driver.cuMemHostGetDevicePointer(met.data_ptr(), 0)
    return int(address) + 4 * word


def met_word(word):
    return ctypes.c_int32.from_address(met.data_ptr() + 4 * word)


def write_word(word, value, stream):
    """Streams meet through words: this one stores (cuStreamWriteValue32), or the host does."""
    if stream is None:
        met_word(word).value = value
    else:
        (code,) = driver.cuStreamWriteValue32(stream.cuda_stream, met_address(word), value, 0)
        assert int(code) == 0, code


def wait_word(word, value, stream):
    """The stream goes on once the word is at least the value, or the host does."""
    if stream is None:
        end = time.perf_counter() + 0.1
        while met_word(word).value < value and time.perf_counter() < end:
            pass
    else:
        (code,) = driver.cuStreamWaitValue32(stream.cuda_stream, met_address(word), value, 0)
        assert int(code) == 0, code


def reach(mark):
    """Wait until the stream has come to the mark, but not for ever: it may be held back itself."""
    end = time.perf_counter() + 0.05
    while not marks[mark].query() and time.perf_counter() < end:
        pass


def let_pass():
    """What still waits for a word waits no longer: the trial is over."""
    done = torch.cuda.Event()
    for stream in used:
        done.record(stream)
        while not done.query():
            met.fill_(0x3FFFFFFF)


class Mapped:
    def __init__(self, tensor):
        self.__cuda_array_interface__ = {{"shape": tuple(tensor.shape), "typestr": "<i4",
                                          "data": (tensor.data_ptr(), False), "version": 3}}


def gpu(tensor):
    """Pinned memory as kernels see it in place."""
    return tensor if tensor.is_cuda else torch.as_tensor(Mapped(tensor), device="cuda")


def foreign(tensor):
    """A view that torch cannot attribute to the block."""
    raw = (ctypes.c_char * (4 * N)).from_address(tensor.data_ptr())
    return torch.frombuffer(raw, dtype=torch.int32, count=N)


def memcpy_async(dst, src):
    """cudaMemcpyAsync, which no allocator sees."""
    stream = torch.cuda.current_stream().cuda_stream
    (code,) = driver.cuMemcpyAsync(dst.data_ptr(), src.data_ptr(), 4 * len(src), stream)
    assert int(code) == 0, code


def see(check, at, view):
    """A kernel that keeps what it reads."""
    torch.bitwise_or(view, 0, out=seen[check, at : at + len(view)])


def look(check, at, view):
    """The host keeps what it reads."""
    host_seen[check, at : at + len(view)].copy_(view)


def table(rows):
    values = torch.full((max(1, len(rows)), N), -7, dtype=torch.int32)
    for number, row in enumerate(rows):
        at = 0
        for value, count in row:
            values[number, at : at + count] = value
            at += count
    return values

'''

FOOTER = '''

def main():
    global turn, seen, host_seen
    helper = torch.cuda.Stream()
    for name, run, expected, wrote, reads in ({arms}):
        want = table(expected)
        for gated in (False, True):
            wrong, first, held = 0, None, 0.0
            for trial in range(-1, TRIALS):  # the first one warms up: it loads the kernels
                turn += 1
                met.zero_()
                seen = torch.full(want.shape, -7, dtype=torch.int32, device="cuda")
                host_seen = torch.full(want.shape, -7, dtype=torch.int32)
                begin = time.perf_counter()
                run(gated and trial >= 0, helper)
                took = time.perf_counter() - begin
                for gate in list(shut_gates):
                    release(gate)
                let_pass()
                torch.cuda.synchronize()
                if trial < 0:
                    continue
                held += took > 0.05
                got = torch.where(host_seen != -7, host_seen, seen.cpu())
                bad = ((got != want) & (got != -7) & (want != -7)).any(1).nonzero().flatten().tolist()
                wrong += bool(bad)
                if bad and first is None:
                    k = bad[0]
                    at = int((got[k] != want[k]).nonzero()[0])
                    first = (f"{{reads[k]}} held {{wrote.get(int(got[k, at]), 'something else')}}; it should have held "
                             f"{{wrote.get(int(want[k, at]), '?')}}")
            print(f"{{name}}, {{'gated' if gated else 'ungated'}}: {{wrong}} of {{TRIALS}} wrong; host held in {{int(held)}}")
            if first:
                print(f"    {{first}}")


if __name__ == "__main__":
    main()
'''


def script(subject: Subject, trials: int = 50) -> str:
    """A standalone script for one counterexample and its fixed design. Raises `Unforceable`, `Unsupported`."""
    if subject.run is None or subject.hazard is None:
        raise Unforceable("there is no counterexample to replay")
    ready = prepare(subject.program, subject.run, subject.hazard, subject.fixed, platform_of(subject.platform))
    text = HEADER.format(
        title=subject.title.replace('"', "'"), hazard=subject.hazard.name, trials=trials, elements=ELEMENTS
    )
    arms = []
    for name, function, plan in (("as it is", "as_it_is", ready.gated), ("fixed", "fixed", ready.fixed)):
        if plan is not None:
            text += _function(function, plan)
            arms.append(f'("{name}", {function}, {function.upper()}_EXPECTED, {function.upper()}_WROTE, {function.upper()}_READS)')
    return text + FOOTER.format(arms=", ".join(arms) + ",")


def _function(name: str, plan: c.Plan) -> str:
    writer = _Writer(plan)
    names = writer.names
    checks = plan.check_lines()
    upper = name.upper()
    rows = []
    for k in range(plan.checks):
        expected = checks[k][1].expected if k in checks else None
        item = k in checks and isinstance(checks[k][0].call, c.Item)
        scaled = [] if expected is None else [(v, n * SCALE) for v, n in expected]
        rows.append([(scaled[0][0], 1)] if item and scaled else scaled)
    out = [f"\n{upper}_EXPECTED = {rows!r}", f"{upper}_WROTE = {plan.meaning!r}"]
    reads = [
        f"{checks[k][0].op} in step {checks[k][0].turn} of {checks[k][0].thread}: "
        f"{plan.buffers[checks[k][1].range.buffer].name}" if k in checks else ""
        for k in range(plan.checks)
    ]  # fmt: skip
    out.append(f"{upper}_READS = {reads!r}\n\n\ndef {name}(gated, helper):")
    default_used = False
    for number, stream in enumerate(plan.streams):
        if stream.default and not default_used:
            default_used = True
            out.append(f"    {names.streams[number]} = torch.cuda.default_stream()")
        else:
            out.append(f"    {names.streams[number]} = torch.cuda.Stream()")
    for number, event in enumerate(names.events):
        out.append(f"    {event} = torch.cuda.Event()  # {plan.events[number]}")
    for number, buffer in enumerate(plan.buffers):
        if buffer.allocated:
            continue
        where = {"pinned": "pin_memory=True", "device": "device='cuda'", "pageable": "device='cpu'"}[buffer.space]
        out.append(f"    {names.buffers[number]} = torch.empty(N, dtype=torch.int32, {where})")
        at = 0
        for value, count in plan.initial[number]:
            out.append(f"    {names.buffers[number]}{_slice(at, at + count)}.fill_({value:#x})")
            at += count
    if plan.words:
        out.append(f"    used[:] = [{', '.join(names.streams)}]")
    out.append("    torch.cuda.synchronize()")
    step = None
    for line in plan.lines:
        if line.step != step and line.thread and not isinstance(line.call, c.Runs):
            out.append(f"    # {line.thread}, step {line.turn}: {line.op}")
            step = line.step
        out += ["    " + text for text in writer.statements(line.call)]
    return "\n".join(out) + "\n"
