"""The grid: how deep must a ring of host buffers be when at most so many results are outstanding?

These small designs are the common core of the engines beside them, with depth and lead as free parameters. The bounds
that they must reproduce are D >= C for a reader that the resolving event covers, D >= C + 1 for one behind it, no
finite depth once one kind of step resolves without a wait, and D >= C + 2 behind a bounded hand-over.
"""

from __future__ import annotations

import fencepost as fp


@fp.variant("one buffer, every result awaited at once", fp.PROVED, depth=1, outstanding=1)
@fp.variant("depth equals the results outstanding", fp.PROVED, depth=2, outstanding=2)
@fp.variant(
    "one buffer too few",
    fp.REFUTED,
    hazard="WAR slot",
    fix="depth equals the results outstanding",
    depth=1,
    outstanding=2,
)
@fp.variant("8 outstanding, 8 deep", fp.PROVED, depth=8, outstanding=8)
@fp.variant("8 outstanding, 7 deep", fp.REFUTED, hazard="WAR slot", fix="8 outstanding, 8 deep", depth=7, outstanding=8)
@fp.variant(
    "a reader behind the event, depth equals the results outstanding",
    fp.REFUTED,
    hazard="WAR slot",
    fix="a reader behind the event, one deeper",
    depth=2,
    outstanding=2,
    reader_after_event=True,
)
@fp.variant("a reader behind the event, one deeper", fp.PROVED, depth=3, outstanding=2, reader_after_event=True)
@fp.variant(
    "encoder-only steps, 2 deep",
    fp.REFUTED,
    hazard="WAR slot",
    fix="depth equals the results outstanding",
    depth=2,
    outstanding=2,
    encoder_only=True,
)
@fp.variant(
    "encoder-only steps, 16 deep",
    fp.REFUTED,
    hazard="WAR slot",
    fix="depth equals the results outstanding",
    depth=16,
    outstanding=2,
    encoder_only=True,
)
def ring(
    depth: int = 2, outstanding: int = 2, reader_after_event: bool = False, encoder_only: bool = False
) -> fp.Design:
    """A pinned ring of `depth` slots, rewritten at step n when the result of step n - `outstanding` is known.

    A kernel reads the slot in place (S107). The host puts each step's event into the queue of results and, once
    `outstanding` of them are in it, waits for the oldest; so C = `outstanding` is the number of steps whose result
    may be unknown, the one being prepared included. Safe iff `depth` >= C; with `reader_after_event`, a kernel that
    reads the slot behind the resolving event, iff `depth` >= C + 1, as only the next step's event covers it. With
    `encoder_only` a step may also be of a kind that resolves at once (its event is never recorded: S18): no depth is
    enough.
    """
    d = fp.Design("ring")
    slots = d.pinned("slot", depth=depth)
    results = d.queue("batch_queue", capacity=outstanding, item=(fp.EVENT,))

    @d.loop("engine")
    def step(n: fp.Turn) -> None:
        slots[n].write()
        d.launch("forward", reads=[slots[n]])
        done = d.event("done")
        if not encoder_only or d.choose("kind", ["sampling", "encoder only"]) == "sampling":
            done.record()
            if reader_after_event:
                d.launch("propose", reads=[slots[n]])
        results.put(done)
        if results.full():
            oldest = results.get()
            oldest.synchronize()

    return d


@fp.variant("a ring of 3 behind a queue of capacity 1", fp.PROVED, depth=3, capacity=1)
@fp.variant(
    "a ring of 2 behind a queue of capacity 1",
    fp.REFUTED,
    hazard="WAR slot",
    fix="a ring of 3 behind a queue of capacity 1",
    depth=2,
    capacity=1,
)
@fp.variant("a ring of 6 behind a queue of capacity 4", fp.PROVED, depth=6, capacity=4)
@fp.variant(
    "a ring of 5 behind a queue of capacity 4",
    fp.REFUTED,
    hazard="WAR slot",
    fix="a ring of 6 behind a queue of capacity 4",
    depth=5,
    capacity=4,
)
def hand_over(depth: int = 3, capacity: int = 1) -> fp.Design:
    """One thread fills a pinned ring and hands the slots over through a bounded queue to one that copies them.

    The bound is `depth` >= `capacity` + 2: besides the items in the queue there is the one that the consumer holds
    and the one that the producer fills. What protects the slot is an edge that is easily forgotten: the `get` of item
    i happens before the `put` of item i + `capacity`. Without it a ring of 3 behind a queue of capacity 1 looks like
    a race.
    """
    d = fp.Design("hand-over")
    slots = d.pinned("slot", depth=depth)
    on_device = d.device("batch")
    items = d.queue("items", capacity=capacity, item=(fp.INDEX,))
    slot = d.cursor("slot index", depth)

    @d.loop("producer")
    def produce() -> None:
        i = slot.advance()
        slots[i].write()
        items.put(i)

    @d.loop("consumer")
    def consume() -> None:
        i = items.get()
        on_device.copy_(slots[i], non_blocking=True)
        d.current_stream().synchronize()

    return d
