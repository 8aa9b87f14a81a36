"""Works: what a collective returns, its end on the group's stream and what it keeps alive until somebody waits (S123-S129)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.model import program as p
from fencepost.model.language.errors import Fixed, fail, question
from fencepost.model.language.objects import Event, Stream, Tensor

if TYPE_CHECKING:
    from fencepost.model.language.calls import Calls


class Work(Fixed):
    """What a collective returns: its end on the group's stream, and what it keeps alive until `wait` (S123-S129).

    A work that is never awaited lets go of its memory once the group's stream has finished it (S128): written down as
    `record_stream` on that stream, and a release at the end of the turn.
    """

    def __init__(self, group: Calls, what: str, event: Event | None, stream: Stream | None, held: tuple[Tensor, ...] = ()) -> None:
        self._group, self._what, self._event, self._stream, self._held = group, what, event, stream, held
        self._open = bool(held)
        if held:
            recording = group._design._running()
            recording.kept.append((f"the work of {what}", lambda: (self._open, len(self._held))))
            frame = next(f for f in reversed(recording.frames) if f.kind != "scope")
            if stream is not None:
                frame.endings.append(self._abandoned)

    def __repr__(self) -> str:
        return f"<work of {self._what}>"

    def wait(self, *, blocking: bool | None = None) -> None:
        """The current stream of the work's GPU waits for the end (S123); the host too when `blocking` (TORCH_NCCL_BLOCKING_WAIT, S124).

        What the work kept is let go here. Only the stream that waits is ordered (S126, S129).
        """
        design = self._group._design
        recording = design._running()
        if self._event is not None:
            stream = self._stream
            self._event.wait(design.current_stream(design._gpu_of(stream)) if stream is not None else None)
            if self._group._blocking_wait if blocking is None else blocking:
                self._event.synchronize()
        held, self._held, self._open = self._held, (), False
        for tensor in held:
            assert tensor._life is not None
            recording.release(tensor._life)

    @question
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
            with recording.implied():
                recording.at(p.RecordStream(tensor._operand(recording), self._stream._operand(recording)), site)
        self._open = False
