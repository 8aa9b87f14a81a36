"""The rest of the platform: soups of ranks with callbacks, conditions, IPC, ordered memory, collectors, graphs, peers, agents.

Each design has two to four *themes* on top of what ranks and soups have, so that most pairs of them occur together:
collectives inside a captured graph, callbacks of ranks that are processes, agents beside device flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from fencepost.simulator.random_designs_choices import Choices
from fencepost.simulator.random_designs_meetings import Call, Meeting
from fencepost.simulator.random_designs_soup import Known
from fencepost.simulator.random_designs_text import Block, Body, Line, Text, Tree

THEMES = (
    "callback", "callback", "condition", "released", "ipc", "ordered", "ordered", "collector", "may fail", "peer", "graph", "graph",
    "agent", "memcpy", "hosts", "work", "processes", "processes", "streams",
)  # fmt: skip
"""What a design may be about; what stands there twice is drawn twice as often."""


class Whole(Meeting):
    """A soup of ranks, with themes."""

    def __init__(self, choices: Choices) -> None:
        self.themes = {choices.one(THEMES) for _ in range(choices.one((2, 2, 3, 3, 4)))}
        self.gpus: dict[str, int] = {}
        self.callback_of = self.graph_of = -1
        self.graphs = 0
        self.replayers: set[int] = set()
        self.inside = ""
        """"callback": a body that may not call CUDA."""
        super().__init__(choices)

    # ------------------------------------------------------------ objects

    def _before(self) -> None:
        c, x = self.c, self.text
        self.loops = self.loops and c.chance(60)
        self.processes = "processes" in self.themes
        if self.processes:
            self.homes = 100
            for i in range(len(self.ranks)):
                gpu = i % 2 if c.chance(60) else 0
                x.object(f"p{i}", f'd.process("t{i}"{f", gpu={gpu}" if gpu else ""})')
                self.gpus[f"r{i}"] = self.gpus[f"x{i}"] = self.gpus[f"v{i}"] = gpu
                self._owned(i, f"v{i}", f'd.stream("v{i}")')
        if "memcpy" in self.themes:
            # Before the first thread; one thread alone uses both.
            one = c.one(range(len(self.ranks)))
            self.legacy_of = {one} if self.processes or c.chance(55) else set(range(4))
            several = ", several_threads=True" if len(self.legacy_of) > 1 else ""
            self._owned(one, "legacy", f'd.stream("legacy", blocking=True{several})')
        if "streams" in self.themes:
            x.object("torch", f'd.torch_streams("torch", size={c.one((1, 2))})')
            for name in ("u0", "u1", "u2"):
                x.object(name, "torch.stream()")
                self.streams.append((name, None))

    def _owned(self, i: int, name: str, made: str) -> str:
        if not self.processes:
            return self.text.object(name, made)
        shared = ""
        if name.startswith("x"):
            others = ", ".join(f'"{rank}"' for k, rank in enumerate(self.ranks) if k != i)
            self.open = self.c.chance(60)
            shared = f".shared_with({others})" if self.open else ""
        self.text.objects += [f"with p{i}:", f"    {name} = {made}{shared}"]
        return name

    def _plan(self) -> list[Call]:
        calls = [self._planned(k) for k in range(self.c.weighted(((35, 0), (45, 1), (20, 2))))]
        return calls

    def _planned(self, number: int) -> Call:
        if "hosts" in self.themes and self.c.chance(50):
            root = self.c.one(range(len(self.ranks)))
            other = self.c.one([k for k in range(len(self.ranks)) if k != root])
            return Call(self.c.one(("host_announce", "host_broadcast", "host_gather", "host_barrier")), root, other, number)
        return super()._planned(number)

    def _arguments(self, i: int) -> str:
        made = super()._arguments(i)
        return f"{made}{', ' if made else ''}process=p{i}" if self.processes and i < len(self.ranks) else made

    def _around(self) -> None:
        """Objects of the themes, and the threads that they bring."""
        c, x, themes = self.c, self.text, self.themes
        ranks = range(len(self.ranks))
        self.at, self.kind, self.once = -1, "setup", set()
        if "condition" in themes or "released" in themes:
            x.object("mutex", 'd.lock("mutex")')
        if "condition" in themes:
            self.waiters = 2 if len(ranks) == 3 and c.chance(50) else 1
            self.waiting = {(c.one(ranks) + k) % len(ranks) for k in range(self.waiters)}
            fifo = ", fifo=True" if c.chance(40) else ""
            x.object("cond", f'd.condition("cond", mutex{f", waiters={self.waiters}{fifo}" if self.waiters > 1 else ""})')
            x.object("ready", 'd.flag("ready")')
        if "ipc" in themes:
            x.object("ipc", f'd.ipc_queue("ipc"{c.one(("", ", capacity=2"))})')
            self.sender = c.one(ranks)
            self.receiver = c.one([k for k in ranks if k != self.sender])
        if "ordered" in themes:
            self.gives = c.one(ranks) if c.chance(40) else -1
            self.frees = c.one([k for k in ranks if k != self.gives])
            if self.gives >= 0:
                x.object("handed", f'd.queue("handed", capacity={c.one((1, 2))}, item=(fp.EVENT, fp.MEMORY))')
        if "peer" in themes:
            x.object("far", 'd.device("far", gpu=1)')
            x.object("g1", 'd.stream("g1", gpu=1)')
            x.object("e_far", 'd.event("e_far", gpu=1)')
            self.gpus["g1"] = self.gpus["e_far"] = 1
            self.streams.append(("g1", None))
            self.events.append(("e_far", None))
        if "agent" in themes:
            self.agent = x.object("nic", f'd.agent("nic"{c.one(("", ", queues=2"))})')
        if "work" in themes:
            x.object("works", 'd.queue("works", capacity=1, item=(fp.EVENT,))')
            self.starts = c.one(ranks)
            self.ends = c.one(ranks)
            if not any(line.startswith("comm = ") for line in x.objects):
                named = ", ".join(f'"{rank}"' for rank in self.ranks)
                x.object("comm", f'd.communicator("comm", [{named}], capacity=2)')
        if "collector" in themes:
            stream = c.one([name for name, depth in self.streams if depth is None] or [""])
            ends = [f"lambda x: x.record_stream({stream})", f"lambda x: {stream}.synchronize()",
                    f'lambda x: d.launch("finalise", reads=[x], stream={stream})'] if stream else []  # fmt: skip
            more = [f"capacity={c.one((1, 2))}"] if c.chance(60) else []
            more += [f"finaliser={c.one(ends)}"] if ends and c.chance(45) else []
            x.object("garbage", f'd.collector("garbage"{"".join(", " + one for one in more)})')
            self.litters = c.one(ranks)
        if "callback" in themes:
            self._callback(c.one(ranks))
        if "graph" in themes:
            self.graph_of = c.one(ranks)
            self.replayers = {self.graph_of} | ({c.one(ranks)} if c.chance(30) else set())
            self.baked = c.chance(45)
            for chance in (75, 45):
                if c.chance(chance):
                    self._capture(None)

    # ------------------------------------------------------------ pieces

    def _piece(self, known: Known) -> tuple[Tree, Known]:
        if self.inside == "callback":
            return self._host_only(known)
        options: list[tuple[int, Callable[[Known], tuple[Tree, Known]]]] = []
        themes, i = self.themes, self.at

        def may(theme: str, once: str, here: bool, weight: int, make: Callable[[Known], tuple[Tree, Known]]) -> None:
            if theme in themes and here and once not in self.once:
                options.append((weight, make))

        live = self.kind != "setup"
        may("condition", "mutex", live, 5, self._conditioned)
        may("released", "mutex", live, 4, self._released)
        may("ipc", "ipc", live and i in (getattr(self, "sender", -1), getattr(self, "receiver", -1)), 8, self._interprocess)
        may("ordered", "ordered", live, 7, self._ordered)
        may("peer", "", True, 4, self._peer)
        may("collector", "litter", live and i == getattr(self, "litters", -1), 7, self._littered)
        may("memcpy", "", i in getattr(self, "legacy_of", ()), 4, self._on_legacy)
        may("callback", "callback", i == self.callback_of >= 0, 7, self._called_back)
        may("graph", "", i in self.replayers and self.graphs > 0, 7, self._replays)
        may("work", "work", live and i in (getattr(self, "starts", -1), getattr(self, "ends", -1)), 6, self._handed_work)
        if options and self.c.chance(55):
            return self.c.weighted(options)(known)
        return super()._piece(known)

    def _rank(self, i: int, kind: str, wrong: bool) -> None:
        super()._rank(i, kind, wrong)
        body = self.text.bodies[-1]
        self._failing(body.tree)

    def _failing(self, tree: Tree) -> None:
        """Records that fail where nobody looks, and those on another device, which always do (S25)."""
        for at, one in enumerate(tree):
            if isinstance(one, Block):
                self._failing(one.body)
                self._failing(one.other or [])
                continue
            found = re.fullmatch(r"(\w+)(\[.*\])?\.record\((\w+)(\[.*\])?\)", one.text)
            if found is None:
                continue
            event, stream = found.group(1), found.group(3)
            elsewhere = self.gpus.get(event, 0) != self.gpus.get(stream, 0) and (event in self.gpus or re.fullmatch(r"e\d", event))
            if elsewhere and self.c.chance(15):
                continue  # refused
            if elsewhere or ("may fail" in self.themes and self.c.chance(60)):
                tree[at] = one._replace(text=f"{one.text[:-1]}, may_fail=True)")

    def _stream(self, known: Known) -> str:
        """A stream of another process is not there."""
        rank = self._who(self.at)
        if self.processes and 0 <= rank < len(self.ranks):
            return self.c.one((f"r{rank}", f"r{rank}", f"v{rank}"))
        found = super()._stream(known)
        if not self.processes or not re.fullmatch(r"r\d", found):
            return found
        return next((name for name, depth in self.streams if depth is None), found)

    def _on_device(self, known: Known) -> str | None:
        return self._mapped(super()._on_device(known))

    def _memory(self, known: Known, host: bool) -> str | None:
        found = self._mapped(super()._memory(known, host))
        if found is None and not host:  # what belongs to no process
            name, depth, _ = self.memory[0]
            return self._at(name, depth, known)
        return found

    def _mapped(self, found: str | None) -> str | None:
        """Memory of another process is used only where it is mapped."""
        if found is None or not self.processes:
            return found
        owner = re.fullmatch(r"x(\d)(\[.*\])?", found)
        at = self._who(self.at)
        if owner is None or int(owner.group(1)) == at:
            return found
        line = next(line for line in self.text.objects if line.startswith(f"    x{owner.group(1)} = "))
        if "shared_with" in line and 0 <= at < len(self.ranks):
            return found
        return f"x{at}" if 0 <= at < len(self.own) else None

    # ------------------------------------------------------------ threads and processes

    def _host_only(self, known: Known) -> tuple[Tree, Known]:
        """What a callback may do: no CUDA."""
        c = self.c
        options = ["access", "access"]
        options += ["flag"] if self.flag else []
        options += ["counter"] if self.counter else []
        options += ["mutex"] * 2 if "condition" in self.themes and "mutex" not in self.once else []
        options += ["word"] if self.words else []
        options += ["post"] if "called" not in self.once else []
        kind = c.one(options)
        if kind == "access":
            target = self._memory(Known(), True)
            if target is None or self.left <= 0:
                return [], known
            self.left -= 1
            return [Line(f"{target}.{c.one(('read', 'write'))}()", True)], known
        if kind == "flag":
            return [Line("flag.set()", True)], known
        if kind == "counter":
            return [Line("counter.add()", True)], known
        if kind == "mutex":
            return [Block("with mutex:", [Line("ready.set()", True), Line(c.one(("cond.notify()", "cond.notify_all()")))])], known
        if kind == "word":
            word = c.one(list(self.words.values()))
            return [Line(f"{word}.store({c.one((1, 1, 2))})", True)], known
        self.once.add("called")
        return [Line("called.put()", True)], known

    def _callback(self, rank: int) -> None:
        c = self.c
        streams = [name for name in (self.home[rank], self.home[rank], *(n for n, depth in self.streams if depth is None)) if name]
        if not streams:
            return
        self.callback_of = rank
        self.text.object("called", 'd.queue("called", capacity=1, item=())')
        stream = c.one(streams)
        before = self.at, self.kind, self.once, self.cursor
        self.at, self.kind, self.once, self.cursor = -1, "callback", set(), None
        self.inside = "callback"
        tree = self._body(c.one((1, 1, 2)), Known())[0]
        self.inside = ""
        rules = ", calls_cuda=True" if c.chance(12) else ""
        home = f", process=p{rank}" if self.processes else ""
        if rules:
            tree.append(Line(c.one((f"{stream}.synchronize()", "d.synchronize()")), True))
        self.at, self.kind, self.once, self.cursor = before
        self.posts = any(isinstance(one, Line) and one.text == "called.put()" for one in tree)
        self.text.bodies.append(Body("callback", "notify", tree, f"stream={stream}{home}{rules}", False))

    def _called_back(self, known: Known) -> tuple[Tree, Known]:
        self.once.add("callback")
        tree: Tree = [Line("notify.launch()")]
        if getattr(self, "posts", False):
            tree += self._inner(known) if self.c.chance(40) else []
            ask = self.c.chance(25)
            tree += [Block("if not called.empty():", [Line("called.get()")])] if ask else [Line("called.get()")]
        return tree, known

    def _conditioned(self, known: Known) -> tuple[Tree, Known]:
        c = self.c
        self.once.add("mutex")
        inner = self._inner(known) if c.chance(50) else []
        self.once.discard("mutex")
        if self.at in self.waiting:
            wait: Tree = [Line("cond.wait()")]
            test: Tree = [Block("if not ready.is_set():", wait)] if c.chance(75) else wait
            again: Tree = [Line("ready.clear()", True)] if c.chance(60) else []
            return [Block("with mutex:", [*test, *again, *inner])], known
        notify = Line(c.one(("cond.notify()", "cond.notify()", "cond.notify_all()")))
        told: Tree = [Line("ready.set()", True)] if c.chance(85) else []
        if c.chance(15):
            return [*told, Block("with mutex:", [notify])], known
        return [Block("with mutex:", [*inner, *told, notify])], known

    def _released(self, known: Known) -> tuple[Tree, Known]:
        self.once.add("mutex")
        inner = self._inner(known, self.c.one((1, 2)))
        around = self._inner(known) if self.c.chance(60) else []
        self.once.discard("mutex")
        return [Block("with mutex:", [*around, Block("with mutex.released():", inner)])], known

    def _interprocess(self, known: Known) -> tuple[Tree, Known]:
        c = self.c
        self.once.add("ipc")
        if self.at == self.sender:
            feeder = "feeder=True" if c.chance(25) else ""
            if c.chance(75):
                block = self._fresh("block")
                stream = self.mine or self._stream(known)
                tree: Tree = [Line(f'{block} = d.empty("{block}", stream={stream})')]
                if c.chance(85):
                    tree.append(Line(f'd.launch("fill", writes=[{block}], stream={stream})', True))
                tree.append(Line(f"ipc.put({block}{', ' if feeder else ''}{feeder})"))
                inner = known._replace(memory=(*known.memory, (block, False)))
                if c.chance(40):
                    tree += self._inner(inner)
                if c.chance(40):
                    return [*tree, Line(f"{block}.release()  # reference", True)], known
                return tree, inner
            target = self._on_device(known)
            if target is None or "[" in target:
                return self._sync(known)
            return [Line(f"ipc.put({target}{', ' if feeder else ''}{feeder})")], known
        got = self._fresh("got")
        opened = "opened=True" if c.chance(20) else ""
        stream = self.mine or self._stream(known)
        tree = [Line(f"{got} = ipc.get({opened})"), Line(f'd.launch("use", reads=[{got}], stream={stream})', True)]
        if c.chance(35):
            tree += self._inner(known._replace(memory=(*known.memory, (got, False))))
        return [*tree, *([Line(f"{got}.release()  # reference", True)] if c.chance(40) else [])], known

    def _littered(self, known: Known) -> tuple[Tree, Known]:
        """A block that becomes garbage."""
        self.once.add("litter")
        tree, inner = self._new_block(known)
        block = inner.memory[-1][0]
        if self.c.chance(70):
            tree += self._inner(inner)
        if self.c.chance(30):
            tree.append(Line(f"{block}.record_stream({self._stream(known)})", True))
        return [*tree, Line(f"garbage.unreachable({block})")], known

    # ------------------------------------------------------------ memory in the order of streams, copies

    def _ordered(self, known: Known) -> tuple[Tree, Known]:
        c = self.c
        self.once.add("ordered")
        if self.gives >= 0 and self.at == self.frees:
            sent, got = self._fresh("e"), self._fresh("got")
            where = self.mine or self._stream(known)
            tree: Tree = [Line(f"{sent}, {got} = handed.get()")]
            tree.append(Line(c.one((f"{where}.wait_event({sent})", f"{sent}.synchronize()")), True))
            tree.append(Line(f'd.launch("use", reads=[{got}], stream={where})', True))
            return [*tree, Line(f"{got}.free_async({where if c.chance(80) else self._stream(known)})")], known
        block = self._fresh("block")
        where = self.mine or self._stream(known)
        tree = [Line(f'{block} = d.malloc_async("{block}", stream={where})')]
        if c.chance(80):
            tree.append(Line(f'd.launch("fill", writes=[{block}], stream={where})', True))
        if self.gives >= 0 and self.at == self.gives:
            sent = self._fresh("e")
            tree += [Line(f'{sent} = d.event("{sent}")'), Line(f"{sent}.record({where})", True)]
            return [*tree, Line(f"handed.put({sent}, {block})"), Line(f"{block}.release()  # reference")], known
        inner = known._replace(memory=(*known.memory, (block, False)))
        pointer = self._fresh("raw") if c.chance(25) else ""
        if pointer:
            tree.append(Line(f'{pointer} = {block}.view("{pointer}", held=False)'))
        other = self._stream(known)
        if c.chance(50):
            tree += [Line(f"{other}.wait_stream({where})", True), Line(f'd.launch("use", reads=[{block}], stream={other})', True)]
        tree += [one for one in self._inner(inner) if isinstance(one, Line)] if c.chance(30) else []
        if c.chance(50):
            tree.append(Line(f"{where}.wait_stream({other})", True))
        tree.append(Line(f"{block}.free_async({c.one((where, where, other))})"))
        if pointer:
            tree.append(Line(f'd.launch("late", reads=[{pointer}], stream={c.one((where, other))})', True))
        return tree, known

    def _unplaced(self, known: Known) -> Line:
        """Memory of another GPU goes to the current stream of that one."""
        if "peer" not in self.themes or self.inside or not self.c.chance(55):
            return super()._unplaced(known)
        far = [f'd.launch("kernel", {self.c.one(("reads", "writes"))}=[far])'] * 3 if self.left > 0 else []
        self.left -= bool(far)
        made = self.c.one((*far, "d.current_stream(1).synchronize()", "d.current_stream(1).wait_stream(d.current_stream(0))",
                           "e_far.wait()", "d.current_stream(0).wait_stream(d.current_stream(1))", "e_far.record(d.current_stream(1))"))  # fmt: skip
        return Line(made, True)

    def _peer(self, known: Known) -> tuple[Tree, Known]:
        c = self.c
        if c.chance(35):
            tree, known = self._placed(known)
            return [Block(f"with {c.one(('g1', 'g1', self._stream(known)))}:", tree)], known
        if c.chance(30):
            made = ["e_far.record(g1)", "e_far.record(g1)", f"{self._stream(known)}.wait_event(e_far)", "e_far.synchronize()"]
            made += ["e0.record(g1, may_fail=True)"] if ("e0", None) in self.events else []
            return [Line(c.one(made), True)], known
        near = [name for name, depth in self.streams if depth is None and name != "g1" and not self.gpus.get(name)]
        target = self._on_device(known)
        if not near or target is None or self.left <= 0:
            return self._sync(known)
        self.left -= 1
        stream = c.one(near)
        if c.chance(50):
            return [Line(f"d.peer_copy(far, {target}, source={stream}, target=g1)", True)], known
        return [Line(f"d.peer_copy({target}, far, source=g1, target={stream})", True)], known

    def _on_legacy(self, known: Known) -> tuple[Tree, Known]:
        c = self.c
        target, source = self._memory(known, False), self._memory(known, False)
        kind = c.one(("memcpy", "memcpy", "kernel", "sync"))
        if target is None or source is None or self.left <= 0 or kind == "sync":
            return [Line("legacy.synchronize()", True)], known
        self.left -= 1
        if kind == "memcpy":
            return [Line(f"d.memcpy({target}, {source})", True)], known
        there = self._on_device(known)
        if there is None:
            return self._sync(known)
        return [Line(f'd.launch("kernel", writes=[{there}], stream=legacy)', True)], known

    # ------------------------------------------------------------ graphs

    def _capture(self, call: Tree | None) -> str | None:
        """A setup that captures a graph: some nodes, on a fork perhaps, and a call of ranks. None when there is nothing to capture."""
        c = self.c
        before = self.at, self.kind, self.once, self.mine
        at = max(self.graph_of, 0)
        self.at, self.kind, self.once = at, "setup", set()
        stream = self.home[at] or next((name for name, depth in self.streams if depth is None), None)
        name = f"graph{self.graphs}"
        tree: Tree = []
        first: Tree = []
        blocks: list[str] = []
        if stream is not None:
            if self.baked and c.chance(60):
                block = self._fresh("block")
                pinned = c.chance(50)
                first.append(Line(f'{block} = d.empty_pinned("{block}")' if pinned else f'{block} = d.empty("{block}", stream={stream})'))
                blocks.append(block)
            if call is None and c.chance(45):
                tree += self._private(stream)
            tree += self._nodes(stream, blocks) if call is None or c.chance(50) else []
            if c.chance(25) and tree:
                side = c.one([n for n, depth in self.streams if depth is None and n != stream and not self.gpus.get(n)] or [stream])
                if side != stream and not self.gpus.get(stream):
                    tree = [*tree, Line(f"{side}.wait_stream({stream})"), *self._nodes(side, blocks), Line(f"{stream}.wait_stream({side})")]
            tree += call or []
            if call is not None and c.chance(30):
                tree += self._nodes(stream, blocks)
        self.at, self.kind, self.once, self.mine = before
        if not tree or stream is None:
            return None
        shared = f", pool=graph{c.one(range(self.graphs))}" if self.graphs and c.chance(60) else ""
        self.graphs += 1
        several = ", several_threads=True" if len(self.replayers) > 1 else ""
        self.text.object(name, f'd.graph("{name}"{shared}{several})')
        last: Tree = []
        if blocks and c.chance(50):
            self.text.object(f"{name}_keeps", f'd.cell("{name}_keeps", item=(fp.MEMORY,))')
            last.append(Line(f"{name}_keeps.set({blocks[0]})", True))
        arguments = f"process=p{at}" if self.processes else ""
        whole: Tree = [*first, Block(f"with {name}.capture({stream}):", tree), *last]
        kind, label = ("script", f"capture {name}") if c.chance(8) else ("setup", f"capture {name}")
        self.text.bodies.append(Body(kind, label, whole, arguments))
        return name

    def _private(self, stream: str) -> Tree:
        """Memory of the graph's own, given back inside the capture perhaps, so that later allocations get it (S74, S96)."""
        c = self.c
        tree: Tree = []
        for _ in range(c.one((1, 1, 2))):
            block = self._fresh("inner")
            made = f'd.empty("{block}", stream={stream})' if c.chance(75) else f'd.empty_pinned("{block}")'
            tree += [Line(f"{block} = {made}"), Line(f'd.launch("node", writes=[{block}], stream={stream})', True)]
            if c.chance(70):
                tree.append(Line(f'd.launch("node", reads=[{block}], stream={stream})', True))
            if c.chance(20):
                tree.append(Line(f"{block}.record_stream({self._stream(Known())})", True))
            if c.chance(65):
                tree.append(Line(f"{block}.release()  # reference", True))
        return tree

    def _nodes(self, stream: str, blocks: list[str]) -> Tree:
        c = self.c
        tree: Tree = []
        for _ in range(c.one((1, 1, 2))):
            target = blocks[0] if blocks and c.chance(60) else self._on_device(Known())
            if target is None or re.search(r"\[(n|i_|c\.|got)", target):
                continue
            mode = c.one((f"reads=[{target}]", f"writes=[{target}]"))
            made = f'd.launch("node", {mode}, stream={stream})'
            if c.chance(15):
                made = f"d.memset({target}, stream={stream})"
            tree.append(Line(made, True))
        return tree

    def _replays(self, known: Known) -> tuple[Tree, Known]:
        stream = self._stream(known) if self.c.chance(40) else (self.mine or self._stream(known))
        return [Line(f"graph{self.c.one(range(self.graphs))}.replay({stream})", True)], known

    def _met_on_device(self, call: Call, i: int) -> Tree:
        c = self.c
        if call.kind in ("host_announce", "host_broadcast", "host_gather"):
            return self._met_on_host(call, i)
        tree = super()._met_on_device(call, i)
        lines = [one.text for one in tree if isinstance(one, Line)]
        fits = tree and len(lines) == len(tree) and not any(re.search(r"barrier|\bf\d\w*\.|blocking=True|is_completed", line) for line in lines)
        if "graph" in self.themes and self.graph_of == i and fits and c.chance(55):
            name = self._capture(tree)
            if name is not None:
                return [Line(f"{name}.replay({self.mine or self._stream(Known())})")]
        return tree

    # ------------------------------------------------------------ hosts of ranks, works

    def _met_on_host(self, call: Call, i: int) -> Tree:
        rank = f'"{self.ranks[i]}"'
        if call.kind == "host_announce":
            between = self._inner(Known()) if self.c.chance(60) else []
            return [Line(f"comm.host_announce({rank})"), *between, Line(f"comm.host_wait({rank})")]
        return [Line(f'comm.{call.kind}("{self.ranks[call.root]}", {rank})')]

    def _handed_work(self, known: Known) -> tuple[Tree, Known]:
        """A work that another thread, or the same one later, waits for."""
        self.once.add("work")
        work = self._fresh("work")
        tree: Tree = []
        if self.at == self.starts:
            to = next(rank for k, rank in enumerate(self.ranks) if k != self.at)
            data = self.own[self.at] if self.at < len(self.own) else None
            if data is None:
                return self._sync(known)
            tree += [Line(f'{work} = comm.send({data}, "{to}", rank="{self.ranks[self.at]}", async_op=True)')]
            tree += [Line(f"works.put(*{work}.hand_over())")]
        if self.at == self.ends:
            tree += self._inner(known) if self.c.chance(40) else []
            tree += [Line(f"comm.work(works.get()).wait({self.c.one(('', '', 'blocking=True'))})")]
        return tree, known


def whole(choices: Choices) -> Text:
    """A random soup of ranks with more of the platform."""
    return Whole(choices).text
