"""Reads of undefined bytes on a GPU: what an earlier owner of a block left, and what the next owner makes of a freed one.

Nothing has to be late here, so nothing is held back. Two kinds:

- A read of an allocated block in which nothing was written yet has no right value. What can be shown is that it sees
  what an earlier owner left: the blocks are filled with another number before each trial, and that number is seen.
- An access through a raw pointer to a freed block has the value that it had before the free, as long as nobody takes the
  block. The gated arm lets somebody: an allocation of that size behind the free, which fills its memory. A read then sees
  the new owner's value; after a write the new owner does.
"""

from __future__ import annotations

import msgspec
from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.layout import UNITS

NEW_OWNER = 0x0E110000
"""What the new owner of a freed block writes."""
WHOLE = ((0, UNITS),)


def shown(plan: c.Plan, step: int) -> tuple[c.Plan, c.Plan]:
    """The plan as it is, and the plan that shows the undefined access of a host step. Raises `Unsupported`."""
    lines = [(number, line) for number, one in enumerate(plan.lines) for line in c.flat([one]) if line.step == step]
    for number, line in lines:
        for range_ in c.ranges_of(line.call):
            freed = _freed(plan, range_.buffer, number)
            if freed is not None:
                return plan, _with_new_owner(plan, range_.buffer, freed, number)
    checks = tuple(check.index for _, line in lines for check in c.checks_of(line.call) if check.expected is None)
    if not checks:
        raise c.Unsupported(f"step {step} accesses no undefined bytes: it is not the hazard of this run")
    plan = msgspec.structs.replace(plan, undefined=checks)
    return plan, plan


def _freed(plan: c.Plan, buffer: int, before: int) -> int | None:
    """The line that freed a block, in front of a line."""
    return next((k for k in range(before) if plan.lines[k].call == c.Free(buffer)), None)


def _with_new_owner(plan: c.Plan, buffer: int, freed: int, access: int) -> c.Plan:
    info = plan.buffers[buffer]
    owner = next(line.call.stream for line in plan.lines if isinstance(line.call, c.Alloc) and line.call.buffer == buffer)
    taken = [line.call.buffer for line in plan.lines[freed:access] if isinstance(line.call, c.Alloc)]
    if info.label is not None and any(plan.buffers[b].label == info.label and plan.buffers[b].space == info.space for b in taken):
        return plan  # the run itself hands the block to somebody else
    # A size of its own, so that the allocator's exact fit gives that block and no other.
    labels = [b.label for b in plan.buffers if b.label is not None]
    label = info.label if info.label is not None else max(labels, default=-1) + 1
    buffers = list(plan.buffers)
    buffers[buffer] = msgspec.structs.replace(info, label=label)
    new = len(buffers)
    buffers.append(msgspec.structs.replace(info, name=f"another tensor, in the memory of {info.name}", label=label))
    value = NEW_OWNER + 1
    fill = c.Fill(c.Range(new, WHOLE), value)
    calls: list[c.Call] = [c.Alloc(new, owner)]
    calls += [c.Write(fill)] if owner is None else [c.Kernel(owner, (), (fill,)), c.Settle(owner)]
    at = plan.lines[freed]
    lines = [c.Line(call, at.step, at.thread, at.turn, "another tensor") for call in calls]
    check = c.Check(plan.checks, c.Range(new, WHOLE), ((value, UNITS),))
    look: list[c.Call] = [c.DeviceSync(tuple(range(len(plan.streams))))]
    look.append(c.Read(check) if owner is None else c.Kernel(owner, (check,), ()))
    last = plan.lines[-1]
    end = [c.Line(call, last.step, at.thread, at.turn, "another tensor's reader") for call in look]
    return msgspec.structs.replace(
        plan, buffers=tuple(buffers), lines=(*plan.lines[: freed + 1], *lines, *plan.lines[freed + 1 :], *end),
        checks=plan.checks + 1, meaning={**plan.meaning, value: "what the block's new owner wrote"},
        notes=(*plan.notes, f"an allocation of that size takes the freed memory of {info.name}, as any may"),
    )  # fmt: skip
