"""Seeded random programs, and an oracle for them that knows nothing of the explorer: random concrete runs.

`generate(random.Random(seed))` writes `fencepost.model.program` data directly, no language in between. Half the programs
are a working pattern in which one thing may be broken, half are a soup with few accesses and much synchronisation, so
that about half of all are safe. `find_bad_run` plays random runs on the concrete event structure.

A long campaign: `python tests/random_programs.py --count N --seed S` (prints every disagreement, minimised).
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events.structure import Structure
from fencepost.model.platform import BARE, ENVIRONMENTS, PLATFORMS, Environment, Platform

Tree = list[Any]
"""A body: operations, and (question, {answer: body}) pairs; the branches of a question meet again behind it."""

# ---------------------------------------------------------------- writing programs


class Writer:
    """Objects and threads of a program in the making."""

    def __init__(self) -> None:
        self.objects: list[p.Object] = []
        self.threads: list[ThreadWriter] = []

    def add(self, found: p.Object) -> int:
        """Enter an object; its id."""
        self.objects.append(found)
        return len(self.objects) - 1

    def thread(self, kind: str = "loop") -> ThreadWriter:
        """A new thread."""
        made = ThreadWriter(f"t{len(self.threads)}", kind)
        self.threads.append(made)
        return made

    def program(self, name: str) -> p.Program:
        """The finished program."""
        return p.Program(name, tuple(self.objects), tuple(t.finish() for t in self.threads if t.body))


class ThreadWriter:
    """One thread: its locals and the tree of its body."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind
        self.locals: list[p.LocalInfo] = []
        self.body: Tree = []

    def local(self, name: str, kind: str, depth: int | None = None, pool: int | None = None) -> int:
        """A new local; its id."""
        same = sum(1 for x in self.locals if x.name == name)
        self.locals.append(p.LocalInfo(name, kind, same, depth, pool))
        return len(self.locals) - 1

    def finish(self) -> p.Thread:
        """The node table."""
        nodes: list[p.Node] = []
        entry = flatten(self.body, nodes, p.END)
        return p.Thread(self.name, self.kind, tuple(nodes), entry, tuple(self.locals))


def flatten(tree: Tree, nodes: list[p.Node], following: int) -> int:
    """Append the nodes of `tree`; the entry node."""
    for one in reversed(tree):
        if isinstance(one, tuple):
            question, answers = one
            branches = tuple((a, flatten(body, nodes, following)) for a, body in answers.items())
            nodes.append(p.Ask(question, branches))
        else:
            nodes.append(p.Do(one, following))
        following = len(nodes) - 1
    return following


def r(target: p.Operand) -> p.Access:
    """A read."""
    return p.Access(target, "r")


def w(target: p.Operand, same_bytes: bool = False) -> p.Access:
    """A write."""
    return p.Access(target, "w", same_bytes)


# ---------------------------------------------------------------- soup


class Soup:
    """Few accesses of little memory, much synchronisation of every kind."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.w = Writer()
        self.left = rng.choice((2, 2, 3, 4))
        depth = rng.choice((None, None, 2, 3))
        self.depth = depth
        self.parts = rng.random() < 0.2
        self.same = rng.random() < 0.12
        gpus = rng.random() < 0.15
        self.streams = [
            self.w.add(p.Stream(f"s{i}", rng.choice((None, None, None, depth, 2)), gpu=i % 2 if gpus else 0))
            for i in range(rng.choice((1, 2, 2, 3)))
        ]
        self.memory = [
            self.w.add(p.Memory(f"m{i}", rng.choice(("pinned", "device", "device", "pageable")), rng.choice((depth, depth, None))))
            for i in range(rng.choice((1, 1, 2)))
        ]  # fmt: skip
        self.events = [
            self.w.add(p.Event(f"e{i}", rng.choice((None, depth, 2)))) for i in range(rng.choice((0, 1, 1, 2)))
        ]
        feature = lambda chance: rng.random() < chance  # noqa: E731
        self.cursor = self.w.add(p.Cursor("c", depth)) if depth and feature(0.4) else None
        self.lock = self.w.add(p.Lock("lock", rng.choice((1, 1, 2)), False)) if feature(0.25) else None
        if self.lock is not None and self.w.objects[self.lock].count == 2:  # type: ignore[union-attr]
            self.w.objects[self.lock] = p.Lock("lock", 2, True)
        self.flag = self.w.add(p.Flag("flag")) if feature(0.2) else None
        self.counter = self.w.add(p.Counter("counter")) if feature(0.15) else None
        self.queue = self._queue() if feature(0.6) else None
        self.cell = self.w.add(p.Cell("cell", (p.EVENT, p.MEMORY), rng.choice((None, depth)))) if feature(0.25) else None
        self.pool = self.w.add(p.Pool("rows", rng.choice((1, 2)), "row")) if feature(0.15) else None
        self.tokens = self.w.add(p.Pool("bufs", rng.choice((1, 2)), rng.choice(("device", "pinned")))) if feature(0.15) else None  # fmt: skip
        self.alloc = feature(0.35)
        self.queries = feature(0.3)
        self.choose = rng.choice((None, None, "plain", "agreed", "maybe"))
        count = rng.choice((1, 2, 2, 2, 3))
        kinds = ["loop"] * count
        for i in range(1, count):
            kinds[i] = rng.choice(("loop", "loop", "script"))
        if feature(0.15):
            kinds.append("setup")
        if feature(0.05):
            kinds.append("setup")
        self.producers = {rng.randrange(len(kinds))} | ({0} if feature(0.2) else set())
        self.consumer = rng.choice([i for i, k in enumerate(kinds) if k != "setup"])
        for i, kind in enumerate(kinds):
            self._thread(i, kind)

    def _queue(self) -> int:
        index = self.depth if self.cursor is not None else None
        kinds = self.rng.choice(((p.EVENT,), (p.EVENT, p.MEMORY), (p.MEMORY,), ()))
        if index and self.rng.random() < 0.6:
            kinds = (*kinds, p.INDEX)
        tags: tuple[tuple[str, tuple[str, ...]], ...] = (("", kinds),)
        if self.rng.random() < 0.25:
            tags = (("a", kinds), ("b", self.rng.choice(((), kinds))))
        return self.w.add(p.Queue("q", self.rng.choice((1, 1, 2, 3)), tags))

    # ---- a thread

    def _thread(self, number: int, kind: str) -> None:
        self.t = self.w.thread(kind)
        self.number = number
        self.once: set[str] = set()
        self.t.body = self._body(self.rng.choice((2, 3, 4)), {"event": [], "memory": [], "index": [], "row": []})

    def _body(self, size: int, known: dict[str, list[int]]) -> Tree:
        body: Tree = []
        mine = {k: v[:] for k, v in known.items()}
        for _ in range(size):
            body += self._piece(mine)
        return body

    def _piece(self, known: dict[str, list[int]]) -> Tree:
        options: list[tuple[float, Callable[[dict[str, list[int]]], Tree]]] = [(3, self._access), (4, self._sync)]
        options += [(2, self._locked)] if self.lock is not None else []
        options += [(2, self._flagged)] if self.flag is not None else []
        options += [(2, self._counted)] if self.counter is not None else []
        options += [(5, self._queued)] if self.queue is not None else []
        options += [(3, self._celled)] if self.cell is not None else []
        options += [(3, self._rows)] if self.pool is not None and "row" not in self.once else []
        options += [(3, self._tokens)] if self.tokens is not None and "token" not in self.once else []
        options += [(3, self._allocated)] if self.alloc and "alloc" not in self.once else []
        options += [(2, self._chosen)] if self.choose is not None and "choose" not in self.once else []
        options += [(1, self._queried)] if self.queries else []
        options += [(2, self._advanced)] if self.cursor is not None else []
        options += [(0.5, self._below), (0.5, self._viewed)]
        make = self.rng.choices([o for _, o in options], [x for x, _ in options])[0]
        return make(known)

    def _branch(self, known: dict[str, list[int]]) -> Tree:
        """A piece whose locals nobody knows behind it."""
        return self._piece({k: v[:] for k, v in known.items()})

    # ---- operands

    def _slot(self, oid: int, known: dict[str, list[int]]) -> p.Operand:
        depth = getattr(self.w.objects[oid], "depth", None)
        if depth is None:
            return p.Obj(oid)
        options: list[p.Index] = [p.Turn(0), p.Turn(0), p.Turn(self.rng.choice((-1, 1)))]
        if depth == self.depth and self.cursor is not None:
            options += [p.Var(i, self.rng.choice((0, 0, 0, 1, -1))) for i in known["index"] for _ in range(3)]
            options += [p.Last(self.cursor)]
        if self.rng.random() < 0.02:
            options = [p.Fixed(self.rng.randrange(depth))]
        return p.Slot(oid, self.rng.choice(options))

    def _part(self, known: dict[str, list[int]]) -> p.Part | None:
        options: list[p.Part | None] = [None]
        if self.parts:
            options += [p.Named("x"), p.Named("y"), p.Span(0, 2), p.Span(1, 3), p.Span(2, 4), p.Anything()]
        if known["row"]:
            options += [p.At(p.Var(i)) for i in known["row"] for _ in range(5)]
        if self.cursor is not None and self.parts:
            options += [p.At(p.Var(i)) for i in known["index"] for _ in range(3)]
        return self.rng.choice(options)

    def _memory(self, known: dict[str, list[int]]) -> p.Operand:
        if known["memory"] and self.rng.random() < 0.6:
            return p.Local(self.rng.choice(known["memory"]), self._part(known))
        operand = self._slot(self.rng.choice(self.memory), known)
        return msgspec.structs.replace(operand, part=self._part(known))

    def _event(self, known: dict[str, list[int]]) -> p.Operand | None:
        if known["event"] and (not self.events or self.rng.random() < 0.6):
            return p.Local(self.rng.choice(known["event"]))
        return self._slot(self.rng.choice(self.events), known) if self.events else None

    def _stream(self, known: dict[str, list[int]]) -> p.Operand:
        return self._slot(self.rng.choice(self.streams), known)

    # ---- pieces

    def _access(self, known: dict[str, list[int]]) -> Tree:
        if self.left <= 0:
            return self._sync(known)
        self.left -= 1
        rng, stream = self.rng, self._stream(known)
        target = self._memory(known)
        same = self.same and rng.random() < 0.5
        access = r(target) if rng.random() < 0.45 else w(target, same)
        space = "" if isinstance(target, p.Local) else self.w.objects[target.id].space  # type: ignore[union-attr]
        kind = rng.random()
        made: Tree
        if kind < 0.35:
            made = [p.Host("host", (access,))]
        elif kind < 0.7 and space != "pageable":
            extra = (r(target),) if rng.random() < 0.15 else ()
            made = [p.Launch("kernel", stream, (access, *extra))]
        elif kind < 0.75 and access.mode == "r":
            made = [p.Item(target, stream)]
        elif kind < 0.8 and access.mode == "w" and space != "pageable":
            made = [p.Memset(target, stream)]
        else:
            dst, src = (self._memory(known), target) if access.mode == "r" else (target, self._memory(known))
            made = [p.Copy(dst, src, stream, rng.random() < 0.8, rng.random() < 0.2, same_bytes=same)]
        if rng.random() < 0.3:
            made.append(rng.choice((p.StreamSync(stream), p.DeviceSync(rng.choice((0, 0, 1))))))
        elif rng.random() < 0.4 and self._event(known) is not None:
            made.append(p.Record(self._event(known), stream))  # type: ignore[arg-type]
        return made

    def _sync(self, known: dict[str, list[int]]) -> Tree:
        rng, stream, event = self.rng, self._stream(known), self._event(known)
        kind = rng.random()
        if event is None or kind < 0.2:
            return [rng.choice((p.StreamSync(stream), p.WaitStream(stream, self._stream(known)), p.DeviceSync()))]
        if kind < 0.5:
            return [p.Record(event, stream)]
        if kind < 0.75:
            return [p.EventSync(event)]
        return [p.StreamWaitEvent(stream, event)]

    def _locked(self, known: dict[str, list[int]]) -> Tree:
        assert self.lock is not None
        if "lock" in self.once:
            return self._access(known)
        self.once.add("lock")
        body: Tree = self._body(self.rng.choice((1, 2)), known)
        self.once.discard("lock")
        if self.rng.random() < 0.3:
            return [(p.TryLock(self.lock), {"yes": [*body, p.Unlock(self.lock)], "no": []})]
        return [p.Acquire(self.lock), *body, p.Unlock(self.lock)]

    def _flagged(self, known: dict[str, list[int]]) -> Tree:
        assert self.flag is not None
        kind = self.rng.random()
        if kind < 0.35:
            return [p.FlagSet(self.flag)]
        if kind < 0.55:
            return [p.FlagWait(self.flag), *([p.FlagClear(self.flag)] if self.rng.random() < 0.5 else [])]
        if kind < 0.65:
            return [p.FlagClear(self.flag)]
        yes, no = self._branch(known), self._branch(known)
        return [(p.FlagIsSet(self.flag), {"yes": yes if kind < 0.85 else [], "no": no if kind > 0.8 else []})]

    def _counted(self, known: dict[str, list[int]]) -> Tree:
        assert self.counter is not None
        kind = self.rng.random()
        if kind < 0.4 and self.t.kind != "loop":
            return [p.CounterAdd(self.counter)]
        if kind < 0.6:
            return [p.CounterAdd(self.counter), *self._piece(known)]
        if kind < 0.8:
            return [p.CounterWait(self.counter, self.rng.choice((1, 2)))]
        return [(p.CounterAtLeast(self.counter, self.rng.choice((1, 2))), {"yes": self._branch(known), "no": []})]

    def _item(self, kinds: tuple[str, ...], known: dict[str, list[int]]) -> tuple[Tree, tuple[Any, ...]] | None:
        """Preparation and values of an item."""
        made: Tree = []
        values: list[Any] = []
        for kind in kinds:
            if kind == p.EVENT:
                if self.rng.random() < 0.75 or self._event(known) is None:
                    e = self.t.local("e", p.EVENT)
                    made.append(p.NewEvent(e))
                    if self.rng.random() < 0.9:
                        made.append(p.Record(p.Local(e), self._stream(known)))
                    if self.rng.random() < 0.1:
                        known["event"].append(e)
                    values.append(p.Local(e))
                else:
                    values.append(self._event(known))
            elif kind == p.MEMORY:
                if known["memory"]:
                    values.append(p.Local(self.rng.choice(known["memory"])))
                elif self.alloc and self.rng.random() < 0.5:
                    more, m = self._new_block(known)
                    made += more
                    values.append(p.Local(m))
                else:
                    values.append(self._slot(self.rng.choice(self.memory), known))
            elif kind == p.INDEX:
                if not known["index"]:
                    made += self._advanced(known)
                values.append(p.Var(self.rng.choice(known["index"])))
        return made, tuple(values)

    def _receive(self, kinds: tuple[str, ...], known: dict[str, list[int]]) -> tuple[int, ...]:
        got = []
        for kind in kinds:
            local = self.t.local("got", kind, self.depth if kind == p.INDEX else None)
            known[kind].append(local)
            got.append(local)
        return tuple(got)

    def _queued(self, known: dict[str, list[int]]) -> Tree:
        assert self.queue is not None
        queue = self.w.objects[self.queue]
        assert isinstance(queue, p.Queue)
        rng, q = self.rng, self.queue
        made: Tree = []
        if self.number in self.producers and "put" not in self.once:
            self.once.add("put")
            options = list(queue.items) if rng.random() < 0.3 else [rng.choice(queue.items)]
            puts: list[Tree] = []
            for tag, kinds in options:
                more, values = self._item(kinds, {k: v[:] for k, v in known.items()})  # type: ignore[misc]
                puts.append([*more, p.Put(q, tag, values)])
            if len(puts) > 1:
                made.append((p.Choose("tag", ("0", "1")), {str(i): x for i, x in enumerate(puts)}))
            else:
                made += puts[0]
            if self.number != self.consumer:
                return made
        if self.number == self.consumer and "get" not in self.once:
            self.once.add("get")
            gets: dict[str, Tree] = {}
            for tag, kinds in queue.items:
                inner = {k: v[:] for k, v in known.items()}
                locals_ = self._receive(kinds, inner)
                body: Tree = [p.Get(q, tag, locals_)]
                event = next((x for x, k in zip(locals_, kinds, strict=True) if k == p.EVENT), None)
                if event is not None and rng.random() < 0.8:
                    body.append(rng.choice((p.EventSync(p.Local(event)), p.StreamWaitEvent(self._stream(inner), p.Local(event)))))  # fmt: skip
                body += self._body(rng.choice((0, 1, 1)), inner)
                body += [p.Drop(x) for x, k in zip(locals_, kinds, strict=True) if k == p.MEMORY and rng.random() < 0.8]
                gets[tag] = body
            get: Tree = gets[""] if "" in gets else [(p.QueueTag(q), gets)]
            if rng.random() < (0.8 if self.number in self.producers else 0.2):
                question = rng.choice((p.QueueFull(q), p.QueueFull(q), p.QueueHolds(q, rng.choice((1, queue.capacity)))))
                return [*made, (question, {"yes": get, "no": self._branch(known) if rng.random() < 0.25 else []})]
            return [*made, *get]
        return made or self._access(known)

    def _celled(self, known: dict[str, list[int]]) -> Tree:
        assert self.cell is not None
        cell = self._slot(self.cell, known)
        kind = self.rng.random()
        if kind < 0.45:
            more, values = self._item((p.EVENT, p.MEMORY), known)  # type: ignore[misc]
            return [*more, p.CellSet(cell, values)]
        if kind < 0.55:
            return [p.CellClear(cell)]
        inner = {k: v[:] for k, v in known.items()}
        locals_ = self._receive((p.EVENT, p.MEMORY), inner)
        body: Tree = [p.CellGet(cell, locals_, self.rng.random() < 0.6)]
        if self.rng.random() < 0.8:
            body.append(p.EventSync(p.Local(locals_[0])))
        body += self._body(1, inner)
        body += [p.Drop(locals_[1])] if self.rng.random() < 0.8 else []
        return [(p.CellEmpty(cell), {"no": body, "yes": self._branch(known) if self.rng.random() < 0.3 else []})]

    def _rows(self, known: dict[str, list[int]]) -> Tree:
        assert self.pool is not None
        self.once.add("row")
        row = self.t.local("row", p.HANDLE, pool=self.pool)
        inner = {**known, "row": [row]}
        target = msgspec.structs.replace(self._slot(self.memory[0], inner), part=p.At(p.Var(row)))
        stream = self._stream(inner)
        body: Tree = [p.Take(self.pool, row)]
        body += [self.rng.choice((p.Host("row", (w(target),)), p.Launch("row", stream, (w(target),))))] if self.rng.random() < 0.8 else []  # fmt: skip
        body += self._body(self.rng.choice((0, 1, 2)), inner)
        event = self._event(inner)
        if event is not None and self.rng.random() < 0.6:
            return [*body, p.Record(event, stream), p.Give(self.pool, p.Local(row), event)]
        return [*body, p.StreamSync(stream), p.Give(self.pool, p.Local(row))]

    def _tokens(self, known: dict[str, list[int]]) -> Tree:
        assert self.tokens is not None
        self.once.add("token")
        token = self.t.local("buf", p.MEMORY, pool=self.tokens)
        inner = {**known, "memory": [token]}
        body: Tree = [p.Take(self.tokens, token), *self._body(self.rng.choice((1, 2)), inner)]
        event = self._event(inner)
        if event is not None and self.rng.random() < 0.6:
            stream = self._stream(inner)
            return [*body, p.Record(event, stream), p.Give(self.tokens, p.Local(token), event)]
        return [*body, p.Give(self.tokens, p.Local(token))]

    def _new_block(self, known: dict[str, list[int]]) -> tuple[Tree, int]:
        local = self.t.local("block", p.MEMORY)
        stream = self._slot(self.streams[0], known)
        pinned = self.rng.random() < 0.4
        made: Tree = [p.Alloc(local, "pinned" if pinned else "device", None if pinned else stream)]
        if self.rng.random() < 0.9:
            target = p.Local(local)
            made.append(p.Launch("fill", stream, (w(target),)) if self.rng.random() < 0.6 else p.Host("fill", (w(target),)))
        return made, local

    def _allocated(self, known: dict[str, list[int]]) -> Tree:
        self.once.add("alloc")
        made, local = self._new_block(known)
        inner = {**known, "memory": [local]}
        other = self._stream(inner)
        if self.rng.random() < 0.7:
            self.left = max(self.left, 1)
        made += self._body(self.rng.choice((1, 2)), inner)
        if self.rng.random() < 0.5:
            made.append(p.RecordStream(p.Local(local), other))
        if self.rng.random() < 0.3:
            view = self.t.local("view", p.MEMORY)
            made += [p.View(view, p.Local(local), self.rng.random() < 0.5), p.Drop(local)]
            inner = {**known, "memory": [view]}
            made += self._body(1, inner)
            local = view
        return [*made, p.Drop(local)] if self.rng.random() < 0.8 else made

    def _viewed(self, known: dict[str, list[int]]) -> Tree:
        view = self.t.local("view", p.MEMORY)
        base = self._memory(known)
        return [p.View(view, base, self.rng.random() < 0.7), *self._body(1, {**known, "memory": [view]}), p.Drop(view)]

    def _chosen(self, known: dict[str, list[int]]) -> Tree:
        self.once.add("choose")
        if self.choose == "maybe":
            return [(p.Maybe("maybe"), {"yes": self._branch(known), "no": []})]
        agreed = self.choose == "agreed"
        return [(p.Choose("kind", ("x", "y"), agreed), {"x": self._branch(known), "y": self._branch(known)})]

    def _queried(self, known: dict[str, list[int]]) -> Tree:
        event = self._event(known)
        question: p.Question = p.StreamQuery(self._stream(known))
        if event is not None and self.rng.random() < 0.75:
            question = p.EventQuery(event)
        no = self._branch(known) if self.rng.random() < 0.4 else []
        return [(question, {"yes": self._branch(known), "no": no})]

    def _advanced(self, known: dict[str, list[int]]) -> Tree:
        assert self.cursor is not None and self.depth is not None
        local = self.t.local("i", p.INDEX, self.depth)
        known["index"].append(local)
        return [p.Advance(self.cursor, local)]

    def _below(self, known: dict[str, list[int]]) -> Tree:
        first = self._branch(known) if self.rng.random() < 0.5 else []
        return [(p.TurnBelow(self.rng.choice((1, 2))), {"yes": first, "no": self._branch(known) if not first else []})]


# ---------------------------------------------------------------- patterns


def refill(rng: random.Random) -> Writer:
    """A host buffer that a loop refills while earlier copies may still read it, with one of many guards."""
    x = Writer()
    depth, capacity = rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 3))
    buf = x.add(p.Memory("buf", "pinned", depth))
    dev = x.add(p.Memory("dev", "device"))
    s = p.Obj(x.add(p.Stream("s")))
    side = p.Obj(x.add(p.Stream("side")))
    t = x.thread()
    by_cursor = rng.random() < 0.4
    slot = p.Slot(buf, p.Turn(0))
    body: Tree = []
    index = t.local("i", p.INDEX, depth)
    if by_cursor:
        cursor = x.add(p.Cursor("c", depth))
        body.append(p.Advance(cursor, index))
        slot = p.Slot(buf, p.Var(index))
    guard = rng.choice(("ring", "queue", "queue", "query", "stream", "wait"))
    event = x.add(p.Event("e", rng.choice((None, depth))))
    ev = p.Slot(event, slot.index) if x.objects[event].depth else p.Obj(event)  # type: ignore[union-attr]
    copy = p.Copy(p.Obj(dev), slot, s, True)
    kernel = p.Launch("k", side, (r(p.Obj(dev)),)) if rng.random() < 0.3 else p.Launch("k", s, (r(p.Obj(dev)),))
    write = p.Host("fill", (w(slot),))
    if guard == "ring":
        body += [p.EventSync(ev), write, copy, p.Record(ev, s), kernel]
    elif guard == "query":
        body += [(p.EventQuery(ev), {"yes": [write, copy, p.Record(ev, s), kernel], "no": []})]
    elif guard == "stream":
        body += [write, copy, kernel, p.StreamSync(s)]
    elif guard == "wait":
        body += [write, copy, p.WaitStream(side, s), kernel, p.Record(ev, side), p.EventSync(ev)]
    else:
        q = x.add(p.Queue("q", capacity, (("", (p.EVENT, p.INDEX)),)))
        e, got, i = t.local("e", p.EVENT), t.local("got", p.EVENT), t.local("gi", p.INDEX, depth)
        if not by_cursor:
            x.objects[q] = p.Queue("q", capacity, (("", (p.EVENT,)),))
        values: tuple[Any, ...] = (p.Local(e), p.Var(index)) if by_cursor else (p.Local(e),)
        take: Tree = [p.Get(q, "", (got, i) if by_cursor else (got,)), p.EventSync(p.Local(got))]
        if by_cursor and rng.random() < 0.5:
            take.append(p.Host("look", (r(p.Slot(buf, p.Var(i))),)))
        no: Tree = [p.Host("look", (r(p.Obj(dev)),))] if rng.random() < 0.1 else []
        body += [write, copy, p.NewEvent(e), p.Record(p.Local(e), s), *([kernel] if rng.random() < 0.5 else [])]
        body += [p.Put(q, "", values)]
        full = rng.choice((p.QueueFull(q), p.QueueFull(q), p.QueueHolds(q, capacity)))
        if rng.random() < 0.3:
            body = [(p.Maybe("work"), {"yes": body, "no": []})]
        body.append((full, {"yes": take, "no": no}))
    t.body = body
    return x


def handover(rng: random.Random) -> Writer:
    """A producer and a consumer thread with a queue between them, and one of many ways back."""
    x = Writer()
    depth, capacity = rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 3))
    buf = x.add(p.Memory("buf", rng.choice(("pinned", "device")), depth))
    one = p.Obj(x.add(p.Stream("s1", gpu=0)))
    two = p.Obj(x.add(p.Stream("s2", gpu=rng.choice((0, 1)))))
    a, b = x.thread(), x.thread()
    slot = p.Slot(buf, p.Turn(0))
    by = rng.choice(("turn", "turn", "reference"))
    kinds = (p.EVENT, p.MEMORY) if by == "reference" else (p.EVENT,)
    q = x.add(p.Queue("q", capacity, (("", kinds),)))
    e = a.local("e", p.EVENT)
    fill = p.Host("fill", (w(slot),)) if rng.random() < 0.4 else p.Launch("fill", one, (w(slot),))
    a.body = [fill, p.NewEvent(e), p.Record(p.Local(e), one)]
    a.body.append(p.Put(q, "", (p.Local(e), slot) if by == "reference" else (p.Local(e),)))
    got, ref = b.local("got", p.EVENT), b.local("ref", p.MEMORY)
    source: p.Operand = p.Local(ref) if by == "reference" else slot
    wait = rng.choice((p.EventSync(p.Local(got)), p.StreamWaitEvent(two, p.Local(got))))
    use = p.Launch("use", two, (r(source),)) if rng.random() < 0.6 else p.Host("use", (r(source),))
    b.body = [p.Get(q, "", (got, ref) if by == "reference" else (got,)), wait, use]
    back = rng.choice(("none", "queue", "counter", "stream", "flag", "lock", "event"))
    if back == "queue":
        ack = x.add(p.Queue("ack", 1 + capacity, (("", (p.EVENT,)),)))
        f, g = b.local("f", p.EVENT), a.local("g", p.EVENT)
        b.body += [p.NewEvent(f), p.Record(p.Local(f), two), p.Put(ack, "", (p.Local(f),))]
        first = rng.choice((0, 1, 2))
        waiting: Tree = [p.Get(ack, "", (g,)), rng.choice((p.EventSync(p.Local(g)), p.StreamWaitEvent(one, p.Local(g))))]
        a.body = [(p.TurnBelow(first), {"yes": [], "no": waiting}), *a.body] if first else [*a.body, *waiting]
    elif back == "counter":
        done = x.add(p.Counter("done"))
        b.body += [p.StreamSync(two), p.CounterAdd(done)]
        a.body = [p.CounterWait(done, rng.choice((-1, 0, 1)) + 1 - depth, True), *a.body]
    elif back == "stream":
        b.body += [p.StreamSync(two)]
    elif back == "flag":
        flag = x.add(p.Flag("flag"))
        b.body += [p.StreamSync(two), p.FlagSet(flag)]
        a.body += [p.FlagWait(flag), p.FlagClear(flag)]
    elif back == "lock":
        lock = x.add(p.Lock("lock"))
        a.body = [p.Acquire(lock), *a.body[:3], p.StreamSync(one), p.Unlock(lock), *a.body[3:]]
        b.body = [*b.body[:1], p.Acquire(lock), *b.body[1:], p.StreamSync(two), p.Unlock(lock)]
    elif back == "event":
        ring = x.add(p.Event("done", depth))
        b.body += [p.Record(p.Slot(ring, p.Turn(0)), two)]
        a.body = [rng.choice((p.EventSync(p.Slot(ring, p.Turn(0))), p.StreamWaitEvent(one, p.Slot(ring, p.Turn(0))))), *a.body]
    return x


def blocks(rng: random.Random) -> Writer:
    """A block of a caching allocator that another stream, or another thread, uses."""
    x = Writer()
    main, side = p.Obj(x.add(p.Stream("main"))), p.Obj(x.add(p.Stream("side")))
    host = p.Obj(x.add(p.Memory("host", rng.choice(("pinned", "pageable")))))
    pinned = rng.random() < 0.4
    a = x.thread()
    block = a.local("block", p.MEMORY)
    tensor = p.Local(block)
    body: Tree = [p.Alloc(block, "pinned" if pinned else "device", None if pinned else main)]
    body += [p.Host("fill", (w(tensor),)) if pinned else p.Launch("fill", main, (w(tensor),))]
    body += [p.WaitStream(side, main)]
    raw = rng.random() < 0.3
    dev = p.Obj(x.add(p.Memory("dev", "device")))
    used: p.Operation = p.Copy(dev, tensor, side, True, raw) if pinned or rng.random() < 0.5 else p.Launch("use", side, (r(tensor),))
    if not pinned and rng.random() < 0.3:
        used = p.Copy(host, tensor, side, rng.random() < 0.7)
    release: Tree = rng.choice(([], [p.RecordStream(tensor, side)], [p.WaitStream(main, side)], [p.StreamSync(side)]))
    if rng.random() < 0.5:
        kinds = (p.EVENT, p.MEMORY)
        capacity = rng.choice((1, 2))
        q = x.add(p.Queue("q", capacity, (("", kinds),)))
        b = x.thread() if rng.random() < 0.6 else a
        e, got, ref = a.local("e", p.EVENT), b.local("got", p.EVENT), b.local("ref", p.MEMORY)
        body += [p.NewEvent(e), p.Record(p.Local(e), main), p.Put(q, "", (p.Local(e), tensor)), p.Drop(block)]
        used = p.Launch("use", side, (r(p.Local(ref)),))
        release = [p.RecordStream(p.Local(ref), side)] if release else []
        take: Tree = [p.Get(q, "", (got, ref))]
        take += [rng.choice((p.StreamWaitEvent(side, p.Local(got)), p.EventSync(p.Local(got)))), used, *release]
        take += [p.Drop(ref)]
        if b is a:
            body.append((p.QueueFull(q), {"yes": take, "no": []}))
        else:
            b.body = take
    else:
        body += [used, *release, p.Drop(block)]
    a.body = body
    return x


def rows(rng: random.Random) -> Writer:
    """Rows of one buffer, handed out by a finite pool."""
    x = Writer()
    s, side = p.Obj(x.add(p.Stream("s"))), p.Obj(x.add(p.Stream("side")))
    table = x.add(p.Memory("table", "pinned"))
    pool = x.add(p.Pool("rows", rng.choice((1, 2, 3)), "row"))
    q = x.add(p.Queue("q", rng.choice((1, 2)), (("", (p.EVENT, p.HANDLE)),)))
    t = x.thread()
    b = x.thread() if rng.random() < 0.5 else t
    row, e = t.local("row", p.HANDLE, pool=pool), t.local("e", p.EVENT)
    got, back = b.local("got", p.EVENT), b.local("back", p.HANDLE, pool=pool)
    there = p.Obj(table, p.At(p.Var(row)))
    t.body = [p.Take(pool, row), p.Host("fill", (w(there),)), p.Launch("use", s, (r(there),))]
    t.body += [p.NewEvent(e), p.Record(p.Local(e), s)]
    if rng.random() < 0.3:
        t.body += [p.Give(pool, p.Local(row), p.Local(e) if rng.random() < 0.6 else None)]
        return x
    t.body += [p.Put(q, "", (p.Local(e), p.Local(row)))]
    give = rng.choice(([p.EventSync(p.Local(got)), p.Give(pool, p.Local(back))], [p.Give(pool, p.Local(back), p.Local(got))]))
    use = [p.Launch("late", side, (r(p.Obj(table, p.At(p.Var(back)))),))] if rng.random() < 0.2 else []
    take: Tree = [p.Get(q, "", (got, back)), *use, *give]
    if b is t:
        t.body.append((p.QueueFull(q), {"yes": take, "no": []}))
    else:
        b.body = take
    return x


PATTERNS = (refill, handover, blocks, rows)


def _deletions(tree: Tree) -> list[tuple[Tree, int]]:
    result = [(tree, i) for i, one in enumerate(tree) if not isinstance(one, (p.Put, p.Get, p.Alloc, p.NewEvent, p.Take, p.Advance, p.Unlock, p.Acquire, p.Give, p.View, tuple))]  # fmt: skip
    for one in tree:
        if isinstance(one, tuple):
            for body in one[1].values():
                result += _deletions(body)
    return result


def generate(rng: random.Random) -> p.Program:
    """A random program."""
    if rng.random() < 0.5:
        return Soup(rng).w.program("soup")
    make = rng.choice(PATTERNS)
    writer = make(rng)
    if rng.random() < 0.5:
        where, at = rng.choice([d for t in writer.threads for d in _deletions(t.body)])
        del where[at]
    return writer.program(make.__name__)


# ---------------------------------------------------------------- oracle


World = tuple[Platform, Environment]
BARE_CUDA: World = (PLATFORMS["cuda"], BARE)


def random_world(rng: random.Random) -> World:
    """Mostly the bare CUDA platform."""
    if rng.random() < 0.8:
        return BARE_CUDA
    return rng.choice(list(PLATFORMS.values())), rng.choice((BARE, *ENVIRONMENTS.values()))


def random_run(
    program: p.Program, rng: random.Random, steps: int, world: World = BARE_CUDA
) -> tuple[events.Player, list[Step]]:
    """Play one random run. Raises `events.DesignError` where the design gets from an empty cell."""
    player = events.Player(program, *world)
    done: list[Step] = []
    threads = list(range(len(program.threads)))
    labels = 0
    last = 0
    stick = rng.choice((0.0, 0.5, 0.8, 0.9))
    weights = [rng.choice((1, 1, 5)) for _ in threads]
    again = rng.choice((0.3, 0.9))
    while len(done) < steps:
        movable = [t for t in threads if player.enabled(t)]
        if not movable:
            break
        t = last if last in movable and rng.random() < stick else rng.choices(movable, [weights[x] for x in movable])[0]
        last = t
        node = player.node(t)
        answers = player.possible_answers(t)
        if isinstance(node, p.Ask) and not answers:
            break
        block = None
        if isinstance(node, p.Do) and isinstance(node.operation, (p.Alloc, p.Take)):
            free, fresh = block_choices(player, t)
            if free and (not fresh or rng.random() < again):
                block = rng.choice(free)
            else:
                block, labels = labels, labels + 1
        step = Step(t, player.pc(t), rng.choice(answers) if answers else None, block)
        player.step(step)
        done.append(step)
    return player, done


def block_choices(player: events.Player, t: int) -> tuple[tuple[int, ...], bool]:
    """Blocks or tokens that the thread's allocation or take may get again, and whether a new one is possible."""
    node = player.node(t)
    assert isinstance(node, p.Do)
    fresh = True
    if isinstance(node.operation, p.Take):
        pool = player.program.objects[node.operation.pool]
        fresh = player.pools[node.operation.pool].made < pool.size  # type: ignore[union-attr]
    return player.possible_blocks(t), fresh


def every_run(program: p.Program, depth: int, limit: int, world: World = BARE_CUDA) -> tuple[str, list[Step]] | None:
    """The first bad run among all runs of at most `depth` host steps, `limit` of them at most."""
    stack: list[tuple[events.Player, list[Step]]] = [(events.Player(program, *world), [])]
    while stack and limit > 0:
        player, done = stack.pop()
        options: list[Step] = []
        for t in range(len(program.threads)) if len(done) < depth else ():
            if not player.enabled(t):
                continue
            node, pc = player.node(t), player.pc(t)
            if isinstance(node, p.Ask):
                options += [Step(t, pc, answer) for answer in player.possible_answers(t)]
            elif isinstance(node.operation, (p.Alloc, p.Take)):
                free, fresh = block_choices(player, t)
                options += [Step(t, pc, None, b) for b in (*free, *((len(done),) if fresh else ()))]
            else:
                options.append(Step(t, pc))
        if not options:
            limit -= 1
            bad = verdict_of(player, done)
            if bad is not None:
                return bad, done
        for step in options:
            after = player.copy()
            try:
                after.step(step)
            except events.InvalidRun:
                continue
            stack.append((after, [*done, step]))
    return None


def verdict_of(player: events.Player, done: list[Step]) -> str | None:
    """What is wrong in a played run, or None."""
    structure = Structure(player, Run(tuple(done)))
    undefined = events.undefined_reads(structure)
    pairs = events.conflicts(structure)
    if not undefined and not pairs:
        return None
    if not events.feasible(structure):
        return None
    if undefined:
        return "UNDEFINED"
    for first, second in pairs[:40]:
        if events.value_change(structure, first, second)[0]:
            one, two = structure.accesses[first].touched, structure.accesses[second].touched
            return ("W" if two.write else "R") + "A" + ("W" if one.write else "R")
    return None


def find_bad_run(
    program: p.Program, rng: random.Random, runs: int = 60, steps: int = 50, world: World = BARE_CUDA
) -> tuple[str, list[Step]] | None:
    """A feasible run with a value-changing hazard or an undefined read; None if none turned up.

    Tries random runs; of a tiny program also all short ones.
    """
    size = sum(len(t.nodes) for t in program.threads)
    if size <= 12:
        bad = every_run(program, 12 if size > 8 else 14, runs * 5, world)
        if bad is not None:
            return bad
    for k in range(runs):
        try:
            player, done = random_run(program, rng, steps if k % 3 else steps // 2, world)
        except events.InvalidRun:
            continue  # an empty cell, or an answer that the start of its thread makes impossible
        bad = verdict_of(player, done)
        if bad is not None:
            return bad, done
    return None


# ---------------------------------------------------------------- the explorer, and comparing


class Decision(msgspec.Struct):
    """What the explorer says. `word`: a verdict, "design error" or "budget"; `reason` for an unknown."""

    word: str
    reason: str = ""
    kinds: dict[str, frozenset[str]] = {}


def decide(program: p.Program, states: int = 1500, seconds: float = 10.0, world: World = BARE_CUDA) -> Decision:
    """As `check`, without the explanations and the vacuity test (a proof that says nothing is no wrong proof)."""
    from fencepost.proofs.check import Checker
    from fencepost.proofs.explore import certify
    from fencepost.proofs.explore.compile import Unsupported
    from fencepost.proofs.explore.locations import locations
    from fencepost.proofs.explore.search import Budget, OutOfBudget

    checker = Checker(program, *world, Budget(states, seconds), False, (), False)
    try:
        checker._explore(None)
        for location in locations(program):
            checker._location(location)
    except events.DesignError as error:
        return Decision("design error", str(error))
    except OutOfBudget as error:
        return Decision("budget", str(error))
    except Unsupported as error:
        return Decision("unsupported", str(error))
    kinds = {repr(s.location): frozenset(h.kind for h in reach.hazards) for s, reach in checker.reached}
    if checker._refuting():
        return Decision("refuted", "", kinds)
    if checker.unsure:
        return Decision("unknown", checker.unsure[0], kinds)
    for search, reach in checker.reached:
        certify.check(search, reach)
    return Decision("proved", "", kinds)


def kinds_found(
    program: p.Program, sliced: bool, reduce: bool, states: int = 5000, world: World = BARE_CUDA
) -> dict[str, frozenset[str]] | None:
    """Hazard kinds per location by another variant of the search; None when the budget ends."""
    from fencepost.proofs.explore.locations import locations
    from fencepost.proofs.explore.search import Budget, OutOfBudget, Search
    from fencepost.proofs.explore.setting import Setting

    setting, budget = Setting(program, *world), Budget(states, 5.0)
    found: dict[str, frozenset[str]] = {}
    try:
        for location in (None, *locations(program)):
            reach = Search(setting, location, sliced, reduce).run(budget)
            found[repr(location)] = frozenset(h.kind for h in reach.hazards)
    except OutOfBudget:
        return None
    return found


def disagreement(
    program: p.Program, rng: random.Random, count: collections.Counter[str], runs: int = 60, states: int = 1500
) -> str | None:
    """Decide, compare with the oracle and with the other searches; what disagrees, or None."""
    world = random_world(rng)
    decision = decide(program, states, world=world)
    count[decision.word] += 1
    if decision.word in ("proved", "unknown"):
        bad = find_bad_run(program, rng, runs, world=world)
        if bad is not None:
            count[f"{decision.word}, but a run is bad"] += 1
        if bad is not None and decision.word == "proved":
            return f"WRONG PROOF: {bad[0]}"
    if decision.word == "design error" and not reaches_error(program, rng, world):
        count["design error that no random run reaches"] += 1
    if decision.word in ("budget", "design error", "unsupported"):
        return None
    for sliced, reduce in ((False, True), (True, False)):
        if rng.random() < 0.6:
            continue
        other = kinds_found(program, sliced, reduce, world=world)
        if other is None:
            count["variant out of budget"] += 1
        elif other != decision.kinds:
            where = next(k for k in other if other[k] != decision.kinds.get(k))
            which = "sliced" if not sliced else "reduced"
            return f"{which.upper()} DIFFERS at {where}: {sorted(decision.kinds[where])}, plain {sorted(other[where])}"
    if decision.word == "unknown":
        return "UNKNOWN: " + decision.reason
    return None


def reaches_error(program: p.Program, rng: random.Random, world: World) -> bool:
    """Whether some random run gets from an empty cell."""
    for _ in range(200):
        try:
            random_run(program, rng, 40, world)
        except events.DesignError:
            return True
        except events.InvalidRun:
            continue
    return False


# ---------------------------------------------------------------- making small


def _reachable(thread: p.Thread) -> p.Thread:
    """The thread without nodes that cannot be reached."""
    order: list[int] = []
    todo = [thread.entry]
    while todo:
        n = todo.pop()
        if n < 0 or n in order:
            continue
        order.append(n)
        node = thread.nodes[n]
        todo += [node.next] if isinstance(node, p.Do) else [x for _, x in node.branches]
    number = {n: i for i, n in enumerate(order)} | {p.END: p.END}
    nodes: list[p.Node] = []
    for n in order:
        node = thread.nodes[n]
        if isinstance(node, p.Do):
            nodes.append(msgspec.structs.replace(node, next=number[node.next]))
        else:
            nodes.append(msgspec.structs.replace(node, branches=tuple((a, number[x]) for a, x in node.branches)))
    return msgspec.structs.replace(thread, nodes=tuple(nodes), entry=number[thread.entry])


def _without(thread: p.Thread, node: int, instead: int) -> p.Thread:
    """The thread with every edge to `node` redirected."""
    go = lambda n: instead if n == node else n  # noqa: E731
    nodes = tuple(
        msgspec.structs.replace(n, next=go(n.next)) if isinstance(n, p.Do)
        else msgspec.structs.replace(n, branches=tuple((a, go(x)) for a, x in n.branches))
        for n in thread.nodes
    )  # fmt: skip
    return _reachable(msgspec.structs.replace(thread, nodes=nodes, entry=go(thread.entry)))


def smaller(program: p.Program) -> list[p.Program]:
    """Programs with one thing less."""
    result: list[p.Program] = []
    threads = program.threads

    def put(t: int, thread: p.Thread | None) -> None:
        changed = (*threads[:t], *([thread] if thread is not None else []), *threads[t + 1 :])
        result.append(msgspec.structs.replace(program, threads=changed))

    for t, _thread in enumerate(threads):
        if len(threads) > 1:
            put(t, None)
    for t, thread in enumerate(threads):
        for i, node in enumerate(thread.nodes):
            for instead in [node.next] if isinstance(node, p.Do) else sorted({x for _, x in node.branches}):
                put(t, _without(thread, i, instead))
    for i, found in enumerate(program.objects):
        if getattr(found, "depth", None) in (3, 4):
            objects = (*program.objects[:i], msgspec.structs.replace(found, depth=2), *program.objects[i + 1 :])  # type: ignore[call-arg]
            result.append(msgspec.structs.replace(program, objects=objects))
    return result


def minimise(program: p.Program, still: Callable[[p.Program], bool]) -> p.Program:
    """Delete while the predicate holds."""
    again = True
    while again:
        again = False
        for candidate in smaller(program):
            try:
                good = any(t.entry != p.END for t in candidate.threads) and still(candidate)
            except Exception:
                good = False
            if good:
                program, again = candidate, True
                break
    return program


def show(program: p.Program) -> str:
    """The program as text: objects, then each thread's nodes."""
    lines = [f"  {i}: {o}" for i, o in enumerate(program.objects)]
    for t in program.threads:
        lines.append(f"  thread {t.name} {t.kind} entry {t.entry} locals {[(x.name, x.kind, x.depth, x.pool) for x in t.locals]}")
        for i, n in enumerate(t.nodes):
            what = n.operation if isinstance(n, p.Do) else n.question
            lines.append(f"    {i}: {what} -> {n.next if isinstance(n, p.Do) else n.branches}")
    return "\n".join(lines)


def main() -> int:
    """A long campaign."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--unknown", action="store_true", help="minimise unknown answers too")
    options = parser.parse_args()
    count: collections.Counter[str] = collections.Counter()
    kinds: collections.Counter[str] = collections.Counter()
    bad = 0
    for seed in range(options.seed, options.seed + options.count):
        if seed % 100 == 99:
            print(f"-- {seed}", flush=True)
        program = generate(random.Random(seed))
        started = time.time()
        try:
            what = disagreement(program, random.Random(seed), count, options.runs)
        except Exception as error:  # a crash is a disagreement too
            what = f"CRASH {type(error).__name__}: {error}"
        if time.time() - started > 30:
            print(f"seed {seed} took {time.time() - started:.0f} s", flush=True)
        if what is None:
            continue
        kind = what.split(":")[0].split(" at ")[0]
        if kind == "UNKNOWN":
            kind = "UNKNOWN " + what.split(", ")[-1][:70]
        kinds[kind] += 1
        count[kind] += 1
        if kind.startswith("UNKNOWN") and not (options.unknown and kinds[kind] <= 3):
            continue
        if kinds[kind] > 6:
            continue
        bad += 1

        def still(candidate: p.Program, head: str = what.split(":")[0].split(" at ")[0], kind: str = kind, seed: int = seed) -> bool:
            got = disagreement(candidate, random.Random(seed), collections.Counter(), 200 if head == "WRONG PROOF" else 20)
            if got is None or got.split(":")[0].split(" at ")[0] != head:
                return False
            return head != "UNKNOWN" or "UNKNOWN " + got.split(", ")[-1][:70] == kind

        small = program if head_is_crash(what) else minimise(program, still)
        print(f"\n=== seed {seed} {program.name}: {what}\n{show(small)}", flush=True)
    print("\n".join(f"{n:6} {k}" for k, n in sorted(count.items())))
    return 1 if bad else 0


def head_is_crash(what: str) -> bool:
    """Whether a crash is reported, which is not made smaller."""
    return what.startswith("CRASH")


if __name__ == "__main__":
    sys.exit(main())
