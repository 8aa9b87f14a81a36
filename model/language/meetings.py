"""Where streams and host threads meet on the device: flags in memory that streams wait for, and host functions with a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

from fencepost.model import program as p
from fencepost.model.language.errors import Fixed, fail
from fencepost.model.language.objects import Stream

if TYPE_CHECKING:
    from fencepost.model.language.blocks import Process
    from fencepost.model.language.design import Design

LARGEST = 2**31 - 1
"""Values of a device flag are compared as signed 32-bit numbers."""


class DeviceFlag(Fixed):
    """A word in memory that streams and host threads store to and wait for (S118); it starts as 0.

    On a stream: `s.write_value(f, v)`, `s.wait_value(f, v, reset=False)`. On the host: `f.store(v)`, `f.wait(v)`.
    """

    _asked = "wait(v) waits for a value"

    def __init__(self, design: Design, name: str, number: int) -> None:
        self._design, self._name, self._id = design, name, number

    def __repr__(self) -> str:
        return f"<device flag {self._name!r}>"

    def store(self, value: int) -> None:
        """A host store, now."""
        self._do("store", value, p.StoreFlag, None)

    def wait(self, value: int, reset: bool = False) -> None:
        """The host spins until the flag is at least `value`; `reset`: it then stores 0."""
        self._do("wait", value, p.WaitFlag, None, reset=reset)

    def _do(
        self, call: str, value: object, kind: type[p.StoreFlag] | type[p.WaitFlag], stream: Stream | None, reset: bool = False
    ) -> None:  # fmt: skip
        recording = self._design._running()
        self._design._own(self)
        lowest = 0 if kind is p.StoreFlag else 1
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= LARGEST:
            fail(
                f"{call}({value!r}) of device flag {self._name!r}: the value is a constant from {lowest} to {LARGEST} (a count that "
                "grows with the turns is not in the language; reset the flag instead)"
            )
        where = None if stream is None else stream._operand(recording)
        if kind is p.StoreFlag:
            recording.do(p.StoreFlag(self._id, value, where))
        else:
            recording.do(p.WaitFlag(self._id, value, where, bool(reset)))


class Callback(Fixed):
    """A host function with a body (cudaLaunchHostFunc, S103): each launch runs it once, in the order of its stream.

    The body runs on a driver thread of its own: after what the stream did before the launch, before what follows the launch
    in the stream. It takes locks, puts and gets like any host code (S106), and may not call CUDA (S104); that the driver may
    run several callbacks one after the other is no edge. Written down as two device flags and a thread.
    """

    def __init__(self, design: Design, name: str, stream: Stream, due: DeviceFlag, returned: DeviceFlag) -> None:
        self._design, self._name, self._stream = design, name, stream
        self._due, self._returned = due, returned
        self._thread: str | None = None

    def __repr__(self) -> str:
        return f"<callback {self._name!r}>"

    def launch(self) -> None:
        """Enqueue one run of the body on the callback's stream."""
        thread = self._design._running().tracer.name
        if self._thread not in (None, thread):
            fail(f"callback {self._name!r} is launched by the threads {self._thread!r} and {thread!r}; make one for each")
        self._thread = thread
        recording = self._design._running()
        if recording.capturing is not None:
            recording.capturing._calls_back(self._name, self._stream._operand(recording))
        with recording.as_one_call(f"callback {self._name!r}", self._stream._operand(recording)):
            self._stream.write_value(self._due, 1)
            self._stream.wait_value(self._returned, 1, reset=True)


class Meetings:
    """The methods of `Design` that this file stands for."""

    def device_flag(self: Any, name: str) -> DeviceFlag:
        """A word that streams and host threads store to and wait for."""
        return DeviceFlag(self, name, self._enter(p.DeviceFlag(name, self._process())))

    def callback(
        self: Any, name: str, stream: Stream, *, process: Union[Process, str, None] = None, calls_cuda: bool = False
    ) -> Callable[[Callable[[], None]], Callback]:  # fmt: skip
        """`@d.callback("notify", stream)` over a function: the body of a host function that `notify.launch()` enqueues.

        `calls_cuda`: to write down code that breaks the rule (S104) and waits for CUDA work in its callback.
        """
        if not isinstance(stream, Stream):
            fail(f"callback {name!r}: {stream!r} is no stream")
        if stream._depth is not None:
            fail(f"callback {name!r}: {stream.name!r} is a ring of streams; make a callback for each")
        due, returned = self.device_flag(f"{name} due"), self.device_flag(f"{name} returned")

        def make(body: Callable[[], None]) -> Callback:
            around = (p.WaitFlag(due._id, 1, None, True), p.StoreFlag(returned._id, 1))
            self._thread(name, "loop", None, process, around, calls_cuda, idle=True)(body)
            return Callback(self, name, stream, due, returned)

        return make
