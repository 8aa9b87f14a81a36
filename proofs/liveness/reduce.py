"""A smaller program with the same waits: what no other thread can notice is left out, and equal futures become one.

Nodes are merged by partition refinement (bisimulation), so the reduced program hangs iff the given one does. A run of it is
not a run of the given program; who needs one searches the given program.
"""

from __future__ import annotations

from collections.abc import Hashable

from fencepost.model import program as p
from fencepost.proofs.liveness.moves import SHARED
from fencepost.proofs.liveness.text import operations

QUERIES = (p.EventQuery, p.StreamQuery)
OPEN: tuple[Hashable, ...] = ("choice", "query")
"""What goes either way whatever the other threads do. Which way a query can go depends on what is known complete, though."""


def asks(program: p.Program) -> bool:
    """Whether a query is left in a program. In a reduced one: whether it matters to anybody's waiting which way a query goes."""
    return bool(operations(program, *QUERIES))


def reduced(program: p.Program) -> p.Program:
    """The program without places, with every thread reduced. One with ring cells that asks queries is given back as it is."""
    if _latest and _latest[0] is program:
        return _latest[1]
    _latest[:] = [program, _reduced(program)]
    return _latest[1]


_latest: list[p.Program] = []
"""The program that was reduced last, and what became of it: two questions are asked about it, one after the other."""


def _reduced(program: p.Program) -> p.Program:
    rings = any(isinstance(thing, p.Cell) and thing.depth is not None for thing in program.objects)
    if rings and asks(program):
        return program
    noticed = (*SHARED, p.Advance) if rings else SHARED  # a slot may be named by its cursor
    threads = tuple(_thread(thread, noticed) for thread in program.threads)
    return p.Program(program.name, tuple(_without_values(thing) for thing in program.objects), threads)


def _without_values(thing: p.Object) -> p.Object:
    """A queue or cell of which only is kept whether something is there, and its tag."""
    if isinstance(thing, p.Queue):
        return p.Queue(thing.name, thing.capacity, tuple((tag, ()) for tag, _ in thing.items), thing.process)
    return p.Cell(thing.name, (), thing.depth, thing.process) if isinstance(thing, p.Cell) else thing


def waited_on(program: p.Program) -> tuple[p.Object | None, ...]:
    """The objects that decide who can move; None stands for the others. Cursors only choose between the slots of ring cells."""
    kinds: tuple[type, ...] = (p.Queue, p.Cell, p.Pool, p.Lock, p.Flag, p.Counter)
    if any(isinstance(thing, p.Cell) and thing.depth is not None for thing in program.objects):
        kinds += (p.Cursor,)
    return tuple(thing if isinstance(thing, kinds) else None for thing in program.objects)


def _thread(thread: p.Thread, noticed: tuple[type, ...]) -> p.Thread:
    """`noticed`: operations that decide who can move."""
    links: dict[int, list[tuple[str, int]]] = {}
    keys: dict[int, Hashable] = {}
    for number, node in enumerate(thread.nodes):
        what = node.operation if isinstance(node, p.Do) else node.question
        if isinstance(node, p.Do):
            links[number] = [("", node.next)]
            keys[number] = _operation(node.operation) if isinstance(what, noticed) else None
        else:
            links[number] = list(node.branches)
            open_ = isinstance(what, (p.Maybe, p.EventQuery, p.StreamQuery)) or (
                isinstance(what, p.Choose) and not what.agreed
            )
            keys[number] = ("query" if isinstance(what, QUERIES) else "choice") if open_ else what
    skip = _followed(links, keys)
    links = {number: [(answer, skip[target]) for answer, target in found] for number, found in links.items()}
    entry = skip[thread.entry]
    if entry == p.END:
        return _idle(thread)
    links = {number: links[number] for number in sorted(_reached(entry, links))}
    classes = _refine(links, keys)
    while True:
        single = {
            number: found[0][1] for number, found in links.items()
            if keys[number] in OPEN and len({classes.get(target, p.END) for _, target in found}) == 1
            and found[0][1] != number
        }  # fmt: skip
        if not single:
            break
        links = {
            number: [(answer, _through(target, single)) for answer, target in found] for number, found in links.items()
            if number not in single
        }  # fmt: skip
        entry = _through(entry, single)
        if entry == p.END:
            return _idle(thread)
        classes = _refine(links, keys)
    return _built(thread, entry, links, keys, classes)


def _operation(operation: p.Operation) -> Hashable:
    """What of an operation decides who can move."""
    if isinstance(operation, p.Put):
        return p.Put(operation.queue, operation.tag, ())
    if isinstance(operation, p.Get):
        return p.Get(operation.queue, operation.tag, ())
    if isinstance(operation, p.Take):
        return p.Take(operation.pool, 0)
    if isinstance(operation, p.Give):
        return p.Give(operation.pool, p.Local(0))
    if isinstance(operation, p.CellSet):
        return p.CellSet(operation.cell, ())
    if isinstance(operation, p.CellGet):
        return p.CellGet(operation.cell, (), operation.take)
    return operation


def _followed(links: dict[int, list[tuple[str, int]]], keys: dict[int, Hashable]) -> dict[int, int]:
    """For each node the next one that others can notice, or where the thread chooses: itself, if it is one, or goes round for ever."""
    found = {p.END: p.END}
    for begin in links:
        way: dict[int, None] = {}
        number = begin
        while number not in found and keys[number] is None and number not in way:
            way[number] = None
            number = links[number][0][1]
        if number in way:
            around = list(way)
            found.update((one, one) for one in around[around.index(number) :])  # a circle
        end = found.setdefault(number, number)
        for one in way:
            found.setdefault(one, end)
    return found


def _reached(entry: int, links: dict[int, list[tuple[str, int]]]) -> set[int]:
    seen: set[int] = set()
    todo = [entry]
    while todo:
        number = todo.pop()
        if number != p.END and number not in seen:
            seen.add(number)
            todo += [target for _, target in links[number]]
    return seen


def _through(number: int, single: dict[int, int]) -> int:
    seen = set()
    while number in single and number not in seen:
        seen.add(number)
        number = single[number]
    return number


def _refine(links: dict[int, list[tuple[str, int]]], keys: dict[int, Hashable]) -> dict[int, int]:
    """Node -> class; nodes of one class do the same and go on to the same classes."""
    names: dict[Hashable, int] = {}
    classes = {number: names.setdefault(keys[number], len(names)) for number in links}
    while True:
        names = {}
        fresh = {}
        for number, found in links.items():
            if keys[number] in OPEN:
                ahead: Hashable = frozenset(classes.get(target, p.END) for _, target in found)
            else:
                ahead = tuple((answer, classes.get(target, p.END)) for answer, target in found)
            fresh[number] = names.setdefault((classes[number], ahead), len(names))
        if len(names) == len(set(classes.values())):
            return fresh
        classes = fresh


def _built(
    thread: p.Thread, entry: int, links: dict[int, list[tuple[str, int]]], keys: dict[int, Hashable],
    classes: dict[int, int],
) -> p.Thread:  # fmt: skip
    """One node for each class that the entry leads to."""
    first: dict[int, int] = {}
    for number, name in classes.items():
        first.setdefault(name, number)
    place: dict[int, int] = {}
    order: list[int] = []
    todo = [classes[entry]]
    while todo:
        name = todo.pop()
        if name in place:
            continue
        place[name] = len(order)
        order.append(name)
        todo += [classes[target] for _, target in links[first[name]] if target != p.END]
    nodes: list[p.Node] = []
    for name in order:
        number = first[name]
        found = [(answer, p.END if target == p.END else place[classes[target]]) for answer, target in links[number]]
        key = keys[number]
        if key == "query":
            nodes.append(p.Ask(thread.nodes[number].question, tuple(found)))  # type: ignore[union-attr]
        elif key == "choice":
            targets = sorted({target for _, target in found})
            options = tuple(str(k) for k in range(len(targets)))
            nodes.append(p.Ask(p.Choose(f"choice {len(nodes)}", options), tuple(zip(options, targets, strict=True))))
        elif isinstance(thread.nodes[number], p.Do):
            nodes.append(p.Do(key if key is not None else p.NewEvent(0), found[0][1]))  # type: ignore[arg-type]
        else:
            nodes.append(p.Ask(key, tuple(found)))  # type: ignore[arg-type]
    return p.Thread(thread.name, thread.kind, tuple(nodes), 0, (), thread.process, thread.idle)


def _idle(thread: p.Thread) -> p.Thread:
    """A thread that touches nothing others touch."""
    return p.Thread(thread.name, thread.kind, (p.Do(p.NewEvent(0), p.END),), 0, (), thread.process)
