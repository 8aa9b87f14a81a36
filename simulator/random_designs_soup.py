"""Soups: few accesses of little memory, much synchronisation of every kind, in one to three threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fencepost.simulator.random_designs_choices import Choices
from fencepost.simulator.random_designs_text import Block, Body, Line, Text, Tree


class Known(NamedTuple):
    """What a body can name at this point: variables by kind. `memory` entries are (text, whether the host may access)."""

    events: tuple[str, ...] = ()
    memory: tuple[tuple[str, bool], ...] = ()
    indices: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


class Soup:
    """One soup. Methods that make lines return them with what is known behind them."""

    def __init__(self, choices: Choices) -> None:
        self.c = c = choices
        self.text = Text()
        self.left = c.one((2, 3, 4))
        """Accesses that may still be made: many would make every design unsafe."""
        self.number = 0
        self.once: set[str] = set()
        self.depth = c.one((None, None, 2, 3))
        self.parts, self.same = c.chance(20), c.chance(12)
        self.streams = [self._stream_object(i) for i in range(c.one((1, 2, 2, 3)))]
        self.memory = [self._memory_object(i) for i in range(c.one((1, 1, 2)))]
        self.events = [self._ring(f"e{i}", "event", 40) for i in range(c.one((1, 1, 0, 2)))]
        self.cursor = self.text.object("c", f'd.cursor("c", {self.depth})') if self.depth and c.chance(40) else None
        self.lock = self._some(25, "lock", c.one(('d.lock("lock")', 'd.lock("lock")', 'd.semaphore("lock", 2)')))
        self.flag = self._some(20, "flag", 'd.flag("flag")')
        self.counter = self._some(20, "counter", 'd.counter("counter")')
        self.queue = self._queue() if c.chance(60) else None
        self.cell_item = c.one((("event", "memory"), ("memory",), ("event",)))
        self.cell = self._ring("cell", "cell", 30, f"item={_kinds(self.cell_item)}") if c.chance(25) else None
        self.rows = self._some(15, "rows", f'd.pool("rows", size={c.one((1, 2))}, of="row")')
        self.pages_of = c.one(("pinned", "device"))
        self.pages = self._some(15, "pages", f'd.pool("pages", size={c.one((1, 2))}, of="{self.pages_of}")')
        self.alloc, self.queries = c.chance(35), c.chance(30)
        self.agent = self._some(8, "nic", 'd.agent("nic")')
        self.graph = self._some(8, "graph", 'd.graph("graph")')
        self.choose = c.one((None, None, "plain", "agreed", "maybe"))
        self._threads()

    def _some(self, percent: int, name: str, made: str) -> str | None:
        return self.text.object(name, made) if self.c.chance(percent) else None

    def _ring(self, name: str, what: str, percent: int, more: str = "") -> tuple[str, int | None]:
        depth = (self.depth or 2) if self.c.chance(percent) else None
        arguments = ", ".join(x for x in (f'"{name}"', f"depth={depth}" if depth else "", more) if x)
        return self.text.object(name, f"d.{what}({arguments})"), depth

    def _stream_object(self, i: int) -> tuple[str, int | None]:
        if self.c.chance(6):
            return self._ring(f"s{i}", "stream", 0, f"blocking=True{', several_threads=True' if self.c.chance(50) else ''}")
        gpu = "gpu=1" if i and self.c.chance(8) else "several_threads=True" if self.c.chance(8) else ""
        return self._ring(f"s{i}", "stream", 15, gpu)

    def _memory_object(self, i: int) -> tuple[str, int | None, str]:
        space = self.c.one(("pinned", "device", "device", "pageable", "managed"))
        more = "concurrent=False" if space == "managed" and self.c.chance(35) else ""
        more = "gpu=1" if space == "device" and self.c.chance(8) else more
        name, depth = self._ring(f"m{i}", space, 60 if self.depth else 0, more)
        return name, depth, space

    def _queue(self) -> str:
        c = self.c
        kinds = c.one((("event",), ("event", "memory"), ("memory",), ()))
        if self.cursor and c.chance(60):
            kinds = (*kinds, "index")
        self.capacity = c.one((1, 1, 2, 3))
        self.items: dict[str, tuple[str, ...]] = {"": kinds}
        item = _kinds(kinds)
        if c.chance(25):
            other = c.one(((), kinds))
            self.items = {"a": kinds, "b": other}
            item = f'{{"a": {_kinds(kinds)}, "b": {_kinds(other)}}}'
        self.two = c.chance(15)
        if self.two and len(self.items) > 1:
            item += ", several_threads=True"
        return self.text.object("q", f'd.queue("q", capacity={self.capacity}, item={item})')

    # ------------------------------------------------------------ threads

    def _threads(self) -> None:
        c = self.c
        kinds = ["loop"] + [c.one(("loop", "loop", "script")) for _ in range(c.one((0, 1, 1, 1, 2)))]
        live = len(kinds)
        group = live > 1 and c.chance(8)
        self.group = self.text.object("group", 'd.communicator("group", ["t0", "t1"])') if group else None
        if self.graph:
            self._captured()
        kinds += ["setup"] * c.chance(15)
        self.producers = {c.one(range(live))} | ({0} if c.chance(20) else set())
        self.consumers = {c.one(range(live))} | ({c.one(range(live))} if self.queue and self.two else set())
        for i, kind in enumerate(kinds):
            self.at, self.kind, self.once = i, kind, set()
            tree, _ = self._body(c.one((2, 3, 4)), Known())
            arguments = ""
            if c.chance(30) and self.streams[0][1] is None:
                arguments = f"stream={c.one([n for n, depth in self.streams if depth is None] or ['s0'])}"
            self.text.bodies.append(Body(kind, f"t{i}" if kind != "setup" else "prepare", tree, arguments))

    def _captured(self) -> None:
        """A setup that captures the graph."""
        self.at, self.kind = -1, "setup"
        target = self._on_device(Known())
        if target is None:
            self.graph = None
            return
        mode = self.c.one((f"reads=[{target}]", f"writes=[{target}]"))
        stream = self._stream(Known())
        body: Tree = [Line(f'd.launch("node", {mode}, stream={stream})')]
        if self.c.chance(30):
            body.append(Line(f'd.launch("next node", reads=[{target}], stream={stream})', True))
        self.text.bodies.append(Body("setup", "capture", [Block(f"with graph.capture({stream}):", body)]))

    def _body(self, size: int, known: Known) -> tuple[Tree, Known]:
        tree: Tree = []
        for _ in range(size):
            more, known = self._piece(known)
            tree += more
        return tree, known

    def _inner(self, known: Known, size: int = 1) -> Tree:
        """A body whose variables nobody knows behind it."""
        return self._body(size, known)[0]

    def _piece(self, known: Known) -> tuple[Tree, Known]:
        options: list[tuple[int, Callable[[Known], tuple[Tree, Known]]]] = [(6, self._access), (8, self._sync)]
        options += [(4, self._locked)] if self.lock and "lock" not in self.once else []
        options += [(4, self._flagged)] if self.flag else []
        options += [(4, self._counted)] if self.counter else []
        options += [(10, self._queued)] if self.queue else []
        options += [(6, self._celled)] if self.cell else []
        options += [(6, self._rowed)] if self.rows and "row" not in self.once else []
        options += [(6, self._paged)] if self.pages and "page" not in self.once else []
        options += [(6, self._allocated)] if self.alloc and "alloc" not in self.once else []
        options += [(4, self._chosen)] if self.choose and "choose" not in self.once else []
        options += [(3, self._queried)] if self.queries else []
        options += [(4, self._advanced)] if self.cursor else []
        options += [(1, self._took)] if any(depth for _, depth, _ in self.memory) else []
        options += [(5, self._posted)] if self.agent else []
        options += [(5, self._replayed)] if self.graph and self.kind == "loop" and self.at == 0 else []
        options += [(5, self._met)] if self.group and self.at in (0, 1) and "met" not in self.once else []
        options += [(1, self._below), (1, self._viewed), (1, self._scoped), (1, self._freed), (2, self._placed)]
        return self.c.weighted(options)(known)

    def _fresh(self, name: str) -> str:
        self.number += 1
        return f"{name}_{self.number}"

    # ------------------------------------------------------------ operands

    def _at(self, name: str, depth: int | None, known: Known) -> str:
        if depth is None:
            return name
        options = ["n", "n", self.c.one(("n - 1", "n + 1"))]
        if self.kind != "loop":
            options = [str(self.c.one(range(depth)))]
        if depth == self.depth and self.cursor:
            options += [i for i in known.indices for _ in range(3)] + ["c.last()"]
        if self.c.chance(3):
            options = [str(self.c.one(range(depth)))]
        return f"{name}[{self.c.one(options)}]"

    def _part(self, text: str, known: Known) -> str:
        options = [""]
        if self.parts:
            options += ['["x"]', '["y"]', "[0:2]", "[1:3]", "[2:4]", "[fp.ANY]"]
        options += [f"[{row}]" for row in known.rows for _ in range(5)]
        return text + self.c.one(options)

    def _memory(self, known: Known, host: bool) -> str | None:
        """Memory to access; by the host where `host`. None when there is none."""
        own = [text for text, hosted in known.memory if hosted or not host]
        if own and self.c.chance(60):
            return self._part(self.c.one(own), known)
        there = [m for m in self.memory if not host or m[2] != "device"]
        if not there:
            return self._part(self.c.one(own), known) if own else None
        name, depth, _ = self.c.one(there)
        return self._part(self._at(name, depth, known), known)

    def _on_device(self, known: Known) -> str | None:
        """Memory that a kernel may access."""
        there = [m for m in self.memory if m[2] != "pageable"]
        if known.memory and self.c.chance(60):
            return self._part(self.c.one(known.memory)[0], known)
        if not there:
            return None
        name, depth, _ = self.c.one(there)
        return self._part(self._at(name, depth, known), known)

    def _event(self, known: Known) -> str | None:
        if known.events and (not self.events or self.c.chance(60)):
            return self.c.one(known.events)
        return self._at(*self.c.one(self.events), known) if self.events else None

    def _stream(self, known: Known) -> str:
        return self._at(*self.c.one(self.streams), known)

    # ------------------------------------------------------------ accesses and synchronisation

    def _access(self, known: Known) -> tuple[Tree, Known]:
        if self.left <= 0:
            return self._sync(known)
        self.left -= 1
        c = self.c
        time = f", time={c.one(('1e-5', '1e-3'))}" if c.chance(8) else ""
        same = ", same_bytes=True" if self.same and c.chance(50) else ""
        stream = self._stream(known)
        kind = c.weighted(((35, "host"), (35, "kernel"), (5, "item"), (5, "fill"), (20, "copy")))
        made: str | None = None
        if kind == "host":
            target = self._memory(known, True)
            if target is not None and c.chance(45):
                harm = c.one(('harm="address"', 'harm="quality"')) if c.chance(12) else ""
                made = f"{target}.read({harm})"
            elif target is not None:
                made = f"{target}.write({same[2:]})"
        elif kind == "item":
            target = self._on_device(known)
            made = target and f"{target}.item(stream={stream})"
        elif kind == "fill":
            target = self._on_device(known)
            made = target and f"d.memset({target}, stream={stream})"
        elif kind == "copy":
            target, source = self._memory(known, False), self._memory(known, False)
            how = "" if c.chance(20) else "non_blocking=True, "
            strided = ", strided=True" if not same and c.chance(5) else ""
            made = f"{target}.copy_({source}, {how}stream={stream}{same}{strided}{time})"
            if c.chance(20):
                made = f"d.memcpy_async({target}, {source}, stream={stream}{same}{time})"
        if made is None:
            target = self._on_device(known) or self._memory(known, False)
            if target is None:
                return self._sync(known)
            wrapped = f"fp.write({target}{same})" if same else target
            mode = c.weighted(((45, f"reads=[{target}]"), (55, f"writes=[{wrapped}]")))
            if c.chance(15):
                mode = f"reads=[{target}], writes=[{wrapped}]"
            what = "launch"
            hosted = [name for name, _, space in self.memory if space != "device"]
            if c.chance(8) and any(target.startswith(name) for name in hosted):
                what = "host_function"
            made = f'd.{what}("kernel", {mode}, stream={stream}{time})'
        tree: Tree = [Line(made, True)]
        event = self._event(known)
        if c.chance(30):
            tree.append(Line(c.one((f"{stream}.synchronize()", "d.synchronize()")), True))
        elif event is not None and c.chance(40):
            tree.append(Line(f"{event}.record({stream})", True))
        return tree, known

    def _sync(self, known: Known) -> tuple[Tree, Known]:
        stream, event = self._stream(known), self._event(known)
        plain = [f"{stream}.synchronize()", f"{stream}.wait_stream({self._stream(known)})", "d.synchronize()"]
        if event is None or self.c.chance(20):
            return [Line(self.c.one(plain), True)], known
        made = self.c.weighted(
            (
                (30, f"{event}.record({stream})"), (25, f"{event}.synchronize()"), (20, f"{stream}.wait_event({event})"),
                (5, f"{event}.wait({stream})"),
            )
        )  # fmt: skip
        return [Line(made, True)], known

    def _freed(self, known: Known) -> tuple[Tree, Known]:
        """Memory that no allocator keeps is unmapped, and used again by whoever gets it next (S38, S40)."""
        if self.left <= 0:
            return self._sync(known)
        self.left -= 1
        name, depth, _ = self.c.one(self.memory)
        return [Line(f"d.free({self._at(name, depth, known)})", True)], known

    def _placed(self, known: Known) -> tuple[Tree, Known]:
        """Calls that name no stream: they go to the current one, of the GPU that their memory is of (S6, S16)."""
        c = self.c
        tree: Tree = [self._unplaced(known) for _ in range(c.one((1, 2, 2)))]
        for _ in range(c.weighted(((15, 0), (60, 1), (25, 2)))):
            tree = [Block(f"with {self._stream(known)}:", tree)]
            if c.chance(25):
                tree.append(self._unplaced(known))
        return tree, known

    def _unplaced(self, known: Known) -> Line:
        c = self.c
        target, event = self._on_device(known), self._event(known)
        kind = c.weighted(((40, "kernel"), (12, "copy"), (6, "fill"), (4, "item"), (38, "")))
        if kind and target is not None and self.left > 0:
            self.left -= 1
            source = self._memory(known, False)
            made = {
                "kernel": f'd.launch("kernel", {c.one(("reads", "writes"))}=[{target}])', "fill": f"d.memset({target})",
                "copy": f"{target}.copy_({source}, non_blocking=True)" if source else "", "item": f"{target}.item()",
            }[kind]  # fmt: skip
            if made:
                return Line(made, True)
        here = c.one(("d.current_stream()", "d.current_stream()", "d.current_stream(0)"))
        plain = [f"{here}.synchronize()", f"{here}.wait_stream({self._stream(known)})", f"{self._stream(known)}.wait_stream({here})"]
        if event is None or c.chance(25):
            return Line(c.one(plain), True)
        return Line(c.one((f"{event}.record()", f"{event}.record()", f"{event}.wait()", f"{here}.wait_event({event})")), True)

    def _locked(self, known: Known) -> tuple[Tree, Known]:
        self.once.add("lock")
        body = self._inner(known, self.c.one((1, 2)))
        self.once.discard("lock")
        if self.c.chance(30):
            return [Block("if lock.try_acquire():", [*body, Line("lock.release()")])], known
        return [Block("with lock:", body)], known

    def _flagged(self, known: Known) -> tuple[Tree, Known]:
        kind = self.c.weighted(((35, "set"), (20, "wait"), (10, "clear"), (35, "ask")))
        if kind == "set":
            return [Line("flag.set()", True)], known
        if kind == "wait":
            return [Line("flag.wait()", True), *([Line("flag.clear()", True)] if self.c.chance(50) else [])], known
        if kind == "clear":
            return [Line("flag.clear()", True)], known
        other = self._inner(known) if self.c.chance(40) else None
        return [Block("if flag.is_set():", self._inner(known), other)], known

    def _counted(self, known: Known) -> tuple[Tree, Known]:
        kind = self.c.weighted(((40, "add"), (25, "wait"), (15, "turn"), (20, "ask")))
        if kind == "add":
            return [Line("counter.add()", True)], known
        if kind == "wait":
            return [Line(f"counter.wait({self.c.one((1, 2))})", True)], known
        if kind == "turn" and self.kind == "loop":
            return [Line(f"counter.wait(n{self.c.one((' - 1', '', ' + 1'))})", True)], known
        return [Block(f"if counter >= {self.c.one((1, 2))}:", self._inner(known))], known

    # ------------------------------------------------------------ queues and cells

    def _item(self, kinds: tuple[str, ...], known: Known) -> tuple[Tree, list[str], Known]:
        """Preparation and values of an item."""
        c = self.c
        tree: Tree = []
        values: list[str] = []
        for kind in kinds:
            if kind == "event":
                event = self._event(known)
                if event is None or c.chance(75):
                    event = self._fresh("e")
                    tree.append(Line(f'{event} = d.event("{event}")'))
                    if c.chance(90):
                        tree.append(Line(f"{event}.record({self._stream(known)})", True))
                    if c.chance(10):
                        known = known._replace(events=(*known.events, event))
                values.append(event)
            elif kind == "memory":
                if not known.memory and self.alloc and "alloc" not in self.once and c.chance(60):
                    more, known = self._new_block(known)
                    tree += more
                if known.memory:
                    values.append(c.one(known.memory)[0])
                else:
                    name, depth, _ = c.one(self.memory)
                    values.append(self._at(name, depth, known))
            else:
                if not known.indices:
                    more, known = self._advanced(known)
                    tree += more
                values.append(c.one(known.indices))
        return tree, values, known

    def _received(self, kinds: tuple[str, ...], known: Known) -> tuple[list[str], Known]:
        names = [self._fresh("got") for _ in kinds]
        hosted = all(space != "device" for _, _, space in self.memory) and not self.alloc
        for name, kind in zip(names, kinds, strict=True):
            if kind == "event":
                known = known._replace(events=(*known.events, name))
            elif kind == "memory":
                known = known._replace(memory=(*known.memory, (name, hosted)))
            else:
                known = known._replace(indices=(*known.indices, name))
        return names, known

    def _use(self, names: list[str], kinds: tuple[str, ...], known: Known) -> Tree:
        """What is done with a received item."""
        c = self.c
        tree: Tree = []
        event = next((x for x, kind in zip(names, kinds, strict=True) if kind == "event"), None)
        if event is not None and c.chance(80):
            tree.append(Line(c.one((f"{event}.synchronize()", f"{self._stream(known)}.wait_event({event})")), True))
        tree += self._inner(known, c.one((0, 1, 1)))
        for x, kind in zip(names, kinds, strict=True):
            if kind == "memory" and c.chance(60):
                tree.append(Line(f"{x}.release()  # reference", True))
        return tree

    def _unpack(self, names: list[str], made: str, tagged: bool) -> Line:
        if not names:
            return Line(made)
        if len(names) == 1 and not tagged:
            return Line(f"{names[0]} = {made}")
        return Line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {made}")

    def _gets(self, known: Known, source: str) -> Tree:
        """Take an item and use it, by tag."""
        if "" in self.items:
            kinds = self.items[""]
            names, inner = self._received(kinds, known)
            return [self._unpack(names, source, False), *self._use(names, kinds, inner)]
        item = self._fresh("item")
        branches: list[Tree] = []
        for kinds in self.items.values():
            names, inner = self._received(kinds, known)
            head: Tree = [self._unpack(names, item, True)] if names else []
            branches.append([*head, *self._use(names, kinds, inner)])
        return [Line(f"{item} = {source}"), Block(f'if {item}.tag == "a":', branches[0], branches[1])]

    def _queued(self, known: Known) -> tuple[Tree, Known]:
        c = self.c
        tree: Tree = []
        if self.at in self.producers and "put" not in self.once and self.kind != "setup":
            self.once.add("put")
            puts: list[Tree] = []
            tags = list(self.items) if len(self.items) > 1 and c.chance(40) else [c.one(list(self.items))]
            for tag in tags:
                more, values, _ = self._item(self.items[tag], known)
                puts.append([*more, Line(f"q.put({', '.join([*([repr(tag)] if tag else []), *values])})")])
            if len(puts) > 1:
                tree.append(Block('if d.choose("tag", ["a", "b"]) == "a":', puts[0], puts[1]))
            else:
                tree += puts[0]
            if self.at not in self.consumers:
                return tree, known
        if self.at in self.consumers and "get" not in self.once and self.kind != "setup":
            self.once.add("get")
            if c.chance(6):
                name = self._fresh("item")
                return [*tree, Block(f"for {name} in q.drain():", self._inner(Known()))], known
            gets = self._gets(known, "q.get()")
            if c.chance(80 if self.at in self.producers else 20):
                ask = c.one(("q.full()", "q.full()", "not q.empty()", f"q.holds({c.one((1, self.capacity))})"))
                other = self._inner(known) if c.chance(25) else None
                return [*tree, Block(f"if {ask}:", gets, other)], known
            return [*tree, *gets], known
        if not tree:
            if c.chance(50):
                return [Block(f"if {c.one(('q.full()', 'q.empty()'))}:", self._inner(known))], known
            return self._sync(known)
        return tree, known

    def _celled(self, known: Known) -> tuple[Tree, Known]:
        assert self.cell is not None
        cell = self._at(*self.cell, known)
        kind = self.c.weighted(((40, "set"), (45, "get"), (15, "clear")))
        if kind == "set":
            more, values, _ = self._item(self.cell_item, known)
            return [*more, Line(f"{cell}.set({', '.join(values)})", True)], known
        if kind == "clear":
            return [Line(f"{cell}.clear()", True)], known
        names, inner = self._received(self.cell_item, known)
        how = self.c.one(("get", "take"))
        body: Tree = [self._unpack(names, f"{cell}.{how}()", False), *self._use(names, self.cell_item, inner)]
        return [Block(f"if not {cell}.empty():", body)], known

    # ------------------------------------------------------------ pools and allocators

    def _rowed(self, known: Known) -> tuple[Tree, Known]:
        self.once.add("row")
        row = self._fresh("row")
        inner = known._replace(rows=(*known.rows, row))
        tree: Tree = [Line(f"{row} = rows.take()"), *self._inner(inner, self.c.one((1, 2)))]
        event = self._event(known)
        after = f", after={event}" if event is not None and self.c.chance(40) else ""
        return [*tree, Line(self._given("rows", row, after))], known

    def _given(self, pool: str, token: str, after: str) -> str:
        """A token comes back, now and then by a call that may wait for the device (S38)."""
        return f"{pool}.free({token})" if not after and self.c.chance(20) else f"{pool}.give({token}{after})"

    def _paged(self, known: Known) -> tuple[Tree, Known]:
        self.once.add("page")
        page = self._fresh("page")
        inner = known._replace(memory=(*known.memory, (page, self.pages_of == "pinned")))
        tree: Tree = [Line(f'{page} = pages.take("{page}")'), *self._inner(inner, self.c.one((1, 2)))]
        event = self._event(known)
        after = f", after={event}" if event is not None and self.c.chance(40) else ""
        return [*tree, Line(self._given("pages", page, after))], known

    def _new_block(self, known: Known) -> tuple[Tree, Known]:
        self.once.add("alloc")
        c = self.c
        block = self._fresh("block")
        pinned = c.chance(50)
        stream = self._stream(known)
        made = f'd.empty_pinned("{block}")' if pinned else f'd.empty("{block}", stream={stream})'
        fill = f"{block}.write()" if pinned and c.chance(70) else f'd.launch("fill", writes=[{block}], stream={stream})'
        tree: Tree = [Line(f"{block} = {made}")]
        if c.chance(90):
            tree.append(Line(fill, True))
        return tree, known._replace(memory=(*known.memory, (block, pinned)))

    def _allocated(self, known: Known) -> tuple[Tree, Known]:
        c = self.c
        if c.chance(10):
            self.once.add("alloc")
            there = [m for m in self.memory if m[2] == "device"]
            if there:
                name, depth, _ = c.one(there)
                copied = self._fresh("cpu")
                source = self._at(name, depth, known)
                how = "" if c.chance(40) else "non_blocking=True, "
                made = f'{copied} = {source}.to_cpu("{copied}", {how}stream={self._stream(known)})'
                return [Line(made)], known._replace(memory=(*known.memory, (copied, True)))
        tree, inner = self._new_block(known)
        block = inner.memory[-1][0]
        tree += self._inner(inner)
        if c.chance(40):
            tree.append(Line(f"{block}.record_stream({self._stream(known)})", True))
        if c.chance(40):
            return [*tree, Line(f"{block}.release()  # reference", True)], known
        return tree, inner

    def _viewed(self, known: Known) -> tuple[Tree, Known]:
        own = [m for m in known.memory]
        if own and self.c.chance(70):
            base, hosted = self.c.one(own)
        else:
            name, depth, space = self.c.one(self.memory)
            base, hosted = self._at(name, depth, known), space != "device"
        view = self._fresh("view")
        how = self.c.weighted(((65, ""), (20, ", attributed=False"), (15, ", held=False")))
        inner = known._replace(memory=((view, hosted),))
        tree: Tree = [Line(f'{view} = {base}.view("{view}"{how})'), *self._inner(inner)]
        return [*tree, Line(f"{view}.release()  # reference", True)], known

    def _scoped(self, known: Known) -> tuple[Tree, Known]:
        return [Block(f'with d.scope("{self._fresh("call")}"):', self._inner(known, self.c.one((1, 2))))], known

    # ------------------------------------------------------------ questions

    def _chosen(self, known: Known) -> tuple[Tree, Known]:
        self.once.add("choose")
        if self.choose == "maybe":
            return [Block('with d.maybe("maybe"):', self._inner(known))], known
        agreed = ", agreed=True" if self.choose == "agreed" else ""
        ask = f'if d.choose("kind", ["x", "y"]{agreed}) == "x":'
        return [Block(ask, self._inner(known), self._inner(known))], known

    def _queried(self, known: Known) -> tuple[Tree, Known]:
        event = self._event(known)
        what = event if event is not None and self.c.chance(75) else self._stream(known)
        other = self._inner(known) if self.c.chance(40) else None
        return [Block(f"if {what}.query():", self._inner(known), other)], known

    def _advanced(self, known: Known) -> tuple[Tree, Known]:
        index = self._fresh("i")
        return [Line(f"{index} = c.advance()")], known._replace(indices=(*known.indices, index))

    def _took(self, known: Known) -> tuple[Tree, Known]:
        """The next slot of a ring, by a cursor of its own."""
        name, _, space = self.c.one([m for m in self.memory if m[1]])
        slot = self._fresh("slot")
        return [Line(f"{slot} = {name}.take()")], known._replace(memory=(*known.memory, (slot, space != "device")))

    def _posted(self, known: Known) -> tuple[Tree, Known]:
        """A transfer of an agent, outside of all streams; its handle is an event."""
        target = self._memory(known, False)
        if target is None or self.left <= 0:
            return self._sync(known)
        self.left -= 1
        event = self._event(known)
        after = self.c.one(("", f", after={self._stream(known)}", f", after={event}" if event else ""))
        mode = self.c.one((f"reads=[{target}]", f"writes=[{target}]"))
        handle = self._fresh("e")
        inner = known._replace(events=(*known.events, handle))
        return [Line(f'{handle} = nic.post("transfer", {mode}{after})')], inner

    def _replayed(self, known: Known) -> tuple[Tree, Known]:
        return [Line(f"graph.replay({self._stream(known)})", True)], known

    def _met(self, known: Known) -> tuple[Tree, Known]:
        self.once.add("met")
        return [Line(f'group.host_barrier("t{self.at}")')], known

    def _below(self, known: Known) -> tuple[Tree, Known]:
        if self.kind != "loop":
            return self._sync(known)
        ask = f"if n {self.c.one(('< 1', '< 2', '== 0', '>= 1', '>= 2'))}:"
        return [Block(ask, self._inner(known), self._inner(known) if self.c.chance(30) else None)], known


def _kinds(kinds: tuple[str, ...]) -> str:
    return "(" + "".join(f"fp.{kind.upper()}, " for kind in kinds).strip() + ")"


def soup(choices: Choices) -> Text:
    """A random soup."""
    return Soup(choices).text
