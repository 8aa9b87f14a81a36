"""The families whose growth is measured, built straight as program data: no tracer between the clock and the explorer.

`ring`: results outstanding, one slot per result. `kinds`: the same with two kinds of step. `copies`: one guarded
buffer, event and stream, S times in one thread (the family that `spin/` has in Promela).
"""

from __future__ import annotations

from fencepost.model import program as p

BUFFER, DEVICE, STREAM, RESULTS, CURSOR = range(5)
"""Object numbers of `ring` and `kinds`."""


def _objects(depth: int, outstanding: int, tags: tuple[str, ...]) -> tuple[p.Object, ...]:
    return (
        p.Memory("slot", "pinned", depth=depth),
        p.Memory("on_device", "device"),
        p.Stream("compute", default=True),
        p.Queue("results", outstanding, tuple((tag, (p.EVENT,) if tag != "none" else ()) for tag in tags)),
    )


def _loop(name: str, objects: tuple[p.Object, ...], nodes: list[p.Node], locals_: tuple[p.LocalInfo, ...]) -> p.Program:
    return p.Program(name, objects, (p.Thread("engine", "loop", tuple(nodes), 0, locals_),))


_EVENTS = (p.LocalInfo("done", p.EVENT), p.LocalInfo("oldest", p.EVENT))


def _fill(index: p.Index) -> list[p.Operation]:
    """The host fills a slot, a kernel reads it in place (S107)."""
    slot = p.Slot(BUFFER, index)
    return [
        p.Host("fill", (p.Access(slot, "w"),)),
        p.Launch("forward", p.Obj(STREAM), (p.Access(slot, "r"), p.Access(p.Obj(DEVICE), "w"))),
    ]


def ring(depth: int, outstanding: int) -> p.Program:
    """A ring rewritten at step n when the result of step n - `outstanding` is known; safe iff depth >= outstanding."""
    operations = [
        *_fill(p.Turn(0)),
        p.NewEvent(0),
        p.Record(p.Local(0), p.Obj(STREAM)),
        p.Put(RESULTS, "", (p.Local(0),)),
    ]
    nodes: list[p.Node] = [p.Do(operation, i + 1) for i, operation in enumerate(operations)]
    at = len(nodes)
    nodes += [
        p.Ask(p.QueueFull(RESULTS), (("yes", at + 1), ("no", p.END))),
        p.Do(p.Get(RESULTS, "", (1,)), at + 2),
        p.Do(p.EventSync(p.Local(1)), p.END),
    ]
    return _loop("ring", _objects(depth, outstanding, ("",)), nodes, _EVENTS)


def kinds(depth: int, outstanding: int, second: str) -> p.Program:
    """`ring` with a second kind of step, chosen freely each turn.

    `second` says what that kind does: "waits" fills a slot and hands over its event under another tag (safe iff depth
    >= outstanding); "idle" takes no slot and hands over nothing (safe iff depth >= outstanding: a window may hold the
    first kind only); "encoder" fills a slot and hands over nothing (a race at every depth).
    """
    other = "waits" if second == "waits" else "none"
    nodes: list[p.Node] = [p.Ask(p.Choose("kind", ("sample", second)), ((("sample", 1), (second, 7))))]

    def straight(operations: list[p.Operation], end: int) -> None:
        for k, operation in enumerate(operations):
            nodes.append(p.Do(operation, len(nodes) + 1 if k + 1 < len(operations) else end))

    fill = [p.Advance(CURSOR, 2), *_fill(p.Var(2))]
    hand: list[p.Operation] = [p.NewEvent(0), p.Record(p.Local(0), p.Obj(STREAM))]
    full = {"waits": 13, "encoder": 11, "idle": 8}[second]
    straight([*fill, *hand, p.Put(RESULTS, "sample", (p.Local(0),))], full)
    if second == "waits":
        straight([*fill, *hand, p.Put(RESULTS, "waits", (p.Local(0),))], full)
    elif second == "encoder":
        straight([*fill, p.Put(RESULTS, "none", ())], full)
    else:
        straight([p.Put(RESULTS, "none", ())], full)
    assert len(nodes) == full
    nodes += [
        p.Ask(p.QueueFull(RESULTS), (("yes", full + 1), ("no", p.END))),
        p.Ask(p.QueueTag(RESULTS), (("sample", full + 2), (other, full + 4))),
        p.Do(p.Get(RESULTS, "sample", (1,)), full + 3),
        p.Do(p.EventSync(p.Local(1)), p.END),
    ]
    if second == "waits":
        nodes += [p.Do(p.Get(RESULTS, "waits", (1,)), full + 5), p.Do(p.EventSync(p.Local(1)), p.END)]
    else:
        nodes.append(p.Do(p.Get(RESULTS, "none", ()), p.END))
    objects = (*_objects(depth, outstanding, ("sample", other)), p.Cursor("slot index", depth))
    locals_ = (*_EVENTS, p.LocalInfo("i", p.INDEX, depth=depth))
    return _loop(f"kinds {second}", objects, nodes, locals_)


def copies(count: int) -> p.Program:
    """One pinned buffer, copied on its own stream and guarded by its own event, `count` times in one loop; safe."""
    objects: list[p.Object] = []
    operations: list[p.Operation] = []
    for i in range(count):
        host = len(objects)
        device, stream, event = host + 1, host + 2, host + 3
        objects += [p.Memory(f"host{i}", "pinned"), p.Memory(f"device{i}", "device"), p.Stream(f"copy{i}"), p.Event(f"copied{i}")]  # fmt: skip
        operations += [
            p.EventSync(p.Obj(event)),
            p.Host("fill", (p.Access(p.Obj(host), "w"),)),
            p.Copy(p.Obj(device), p.Obj(host), p.Obj(stream), non_blocking=True),
            p.Record(p.Obj(event), p.Obj(stream)),
        ]
    nodes: list[p.Node] = [p.Do(o, i + 1 if i + 1 < len(operations) else p.END) for i, o in enumerate(operations)]
    return _loop(f"copies {count}", tuple(objects), nodes, ())
