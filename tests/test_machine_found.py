"""What the machine and the explorer disagreed about once, each as the small design that showed it, with the right verdict."""

from __future__ import annotations

import fencepost as fp
import pytest
from fencepost.engines import Question, ask
from fencepost.model.answer import PROVED, REFUTED, UNKNOWN


def handed_over_source() -> fp.Design:
    """S47: a pageable source is staged before the call returns, also when it came through a queue."""
    d = fp.Design("handed over source")
    x, y = d.pageable("x"), d.device("y")
    q = d.queue("q", capacity=1, item=(fp.MEMORY,))

    @d.loop("t")
    def step() -> None:
        x.write()
        q.put(x)
        y.copy_(q.get(), non_blocking=True)

    return d


def handed_over_target() -> fp.Design:
    """S48: a copy to a pageable target returns when it is done, also when that came through a queue."""
    d = fp.Design("handed over target")
    x, y = d.device("x"), d.pageable("y")
    q = d.queue("q", capacity=1, item=(fp.MEMORY,))

    @d.loop("t")
    def step() -> None:
        d.launch("k", writes=[x])
        q.put(y)
        q.get().copy_(x, non_blocking=True)
        y.read()

    return d


def handed_over_between_host_buffers(cell: bool = False) -> fp.Design:
    """S49: host-to-host copies run at the call, whatever the current stream still has to do. This was called proved."""
    d = fp.Design("handed over between host buffers")
    x, y = d.pinned("x"), d.pinned("y")
    q = d.cell("c", item=(fp.MEMORY,)) if cell else d.queue("q", capacity=1, item=(fp.MEMORY,))

    @d.loop("t")
    def step() -> None:
        d.launch("k", writes=[x])
        if cell:
            q.set(y)
        else:
            q.put(y)
        got = q.get()
        got.copy_(x, non_blocking=True)
        d.current_stream().synchronize()
        got.read()

    return d


@pytest.mark.parametrize(
    "design, parameters, verdict",
    [
        (handed_over_source, {}, PROVED),
        (handed_over_target, {}, PROVED),
        (handed_over_between_host_buffers, {}, REFUTED),
        (handed_over_between_host_buffers, {"cell": True}, REFUTED),
    ],
)
def test_both_engines_say_what_is_right(design, parameters, verdict):
    program = fp.program_of(design, parameters)
    assert ask(program, Question()).verdict == verdict
    simulated = ask(program, Question("simulate", examples=120))
    assert simulated.verdict == (REFUTED if verdict == REFUTED else UNKNOWN)


def test_memory_of_two_kinds_through_one_queue_is_refused():
    def design() -> fp.Design:
        d = fp.Design("two kinds")
        x, y, z = d.pageable("x"), d.pinned("y"), d.device("z")
        q = d.queue("q", capacity=2, item=(fp.MEMORY,))

        @d.loop("t")
        def step() -> None:
            q.put(x)
            q.put(y)
            z.copy_(q.get(), non_blocking=True)
            q.get()

        return d

    with pytest.raises(ValueError, match="may be pageable or pinned memory, which copies differently"):
        ask(fp.program_of(lambda: design(), {}), Question())
