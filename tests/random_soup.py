"""Random programs with few accesses and much synchronisation of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
from fencepost.model import program as p

from program_writer import Tree, Writer, r, w


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
