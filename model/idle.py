"""Where a loop that is given work counts as waiting between two turns: before it has done anything in its turn."""

from __future__ import annotations

from collections.abc import Container

from fencepost.model import program as p

WAITING, WOKEN = " waiting", " woken"
"""What stands behind the name of a condition in those of its two queues: who waits there, and who was woken; a number may follow."""


def between_turns(program: p.Program, number: int, unnoticed: Container[int] = ()) -> frozenset[int]:
    """The nodes to which the thread of this number comes in no way that does anything but ask, and take and give back locks.

    So it waits for the first item of its turn also behind a lock that makes its get one step, and inside `wait` of a condition.
    `unnoticed`: nodes whose operations count as nothing, too.
    """
    thread = program.threads[number]
    seen: set[tuple[int, bool]] = set()
    todo = [(thread.entry, False)]
    while todo:
        at, works = todo.pop()
        if at == p.END or (at, works) in seen:
            continue
        seen.add((at, works))
        node = thread.nodes[at]
        if isinstance(node, p.Ask):
            todo += [(after, works) for _, after in node.branches]
        else:
            todo.append((node.next, works or not (at in unnoticed or _only_locks(program, thread, node))))
    return frozenset(at for at, _ in seen if (at, True) not in seen)


def _only_locks(program: p.Program, thread: p.Thread, node: p.Do) -> bool:
    """Whether the operation takes or gives back a lock, or tells a condition that the thread waits on it: then it lets go of the
    lock, waits, and takes the lock again."""
    if isinstance(node.operation, (p.Acquire, p.Unlock)):
        lock = program.objects[node.operation.lock]
        return isinstance(lock, p.Lock) and lock.count == 1 and not lock.semaphore
    if not isinstance(node.operation, p.Put) or node.operation.values:
        return False
    waits = node.operation.queue
    following: list[p.Operation] = []
    while len(following) < 3 and node.next != p.END:
        after = thread.nodes[node.next]
        if not isinstance(after, p.Do):
            return False
        following.append(after.operation)
        node = after
    match following:
        case [p.Unlock(lock=given), p.Get(queue=woken, locals=()), p.Acquire(lock=taken)]:
            # Of the user's own queues it would be a request, which others notice, and its answer.
            waiting, _, _ = program.objects[waits].name.rpartition(WAITING)
            return given == taken and bool(waiting) and program.objects[woken].name.startswith(waiting + WOKEN)
        case _:
            return False
