"""Ranks that meet: soups of two or three threads with collectives, send and receive, and device flags with reset.

All ranks make the planned calls in the same order, now and then with a mistake: one left out, one twice, two swapped, another
root. What is around them is soup: accesses, events, pinned buffers, queues, allocators, queries. Most loops wait once a
turn, because a stream that nobody waits for is filled without bound behind a meeting that does not come.
"""

from __future__ import annotations

from typing import NamedTuple

from fencepost.simulator.random_designs_choices import Choices
from fencepost.simulator.random_designs_soup import Known, Soup
from fencepost.simulator.random_designs_text import Block, Body, Line, Text, Tree


class Call(NamedTuple):
    """A meeting that was planned: its kind, and the ranks that have a part of their own."""

    kind: str
    root: int = 0
    other: int = 1
    number: int = 0


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "scatter", "reduce", "gather")
ROOTED = ("broadcast", "scatter", "reduce", "gather")


class Meeting(Soup):
    """A soup whose threads are ranks."""

    def __init__(self, choices: Choices) -> None:
        self.home: list[str | None] = []
        self.mine: str | None = None
        self.homes = 85
        """Of 100 ranks, those with a stream of their own."""
        self.helped = -1
        """The rank whose last call another thread makes."""
        self.batons: list[str] = []
        self.called: list[str | None] = []
        """For each rank the stream that it calls on."""
        super().__init__(choices)

    def _threads(self) -> None:
        c = self.c
        self.agent = self.graph = self.group = None
        self.text.objects = [line for line in self.text.objects if not line.startswith(("nic = ", "graph = "))]
        self.left = c.one((1, 2, 3, 3))
        self.rank_0_cursor = self.cursor
        count = c.weighted(((75, 2), (25, 3)))
        self.ranks = [f"t{i}" for i in range(count)]
        self.loops = c.chance(50 if count == 2 else 20)
        self._before()
        self.own = [self._own_memory(i) for i in range(count)]
        self.home = [self._owned(i, f"r{i}", f'd.stream("r{i}")') if c.chance(self.homes) else None for i in range(count)]
        named = ", ".join(f'"{rank}"' for rank in self.ranks)
        self.plan = self._plan()
        self.words = {call.number: f"f{call.number}" for call in self.plan if call.kind in ("flag", "host flag", "flag to host")}
        if len(self.words) < len(self.plan):
            how = ['protocol="rendezvous"'] if c.chance(22) else [f"capacity={c.one((1, 2, 2, 3))}"] if c.chance(60) else []
            if c.chance(12):
                how, self.helped = [*how, "several_threads=True"], c.one(range(count))
            how += ['version="old"'] if c.chance(15) else []
            how += ["serial=True"] if c.chance(10) else []
            how += ["blocking_wait=True"] if c.chance(8) else []
            self.text.object("comm", f'd.communicator("comm", [{named}]{"".join(", " + one for one in how)})')
        for word in self.words.values():
            self.text.object(word, f'd.device_flag("{word}")')
            if c.chance(50):
                self.text.object(f"{word}_back", f'd.device_flag("{word}_back")')
        self.producers = {c.one(range(count))}
        self.consumers = {c.one(range(count))} | ({c.one(range(count))} if self.queue and self.two else set())
        self.reset = c.chance(80)
        self._around()
        wrong = c.one(range(count)) if c.chance(25) else -1
        kinds = ["loop" if self.loops else "script"] * count
        if self.helped >= 0:
            kinds.append(kinds[0])
            self.batons = [self.text.object(x, f'd.queue("{x}", capacity=1, item=())') for x in ("baton", "baton_back") if c.chance(60)]
        elif count == 2 and c.chance(10):
            kinds.append(c.one(("loop", "script")))  # somebody who is no rank
        for i, kind in enumerate(kinds):
            self.at, self.kind, self.once = i, kind, set()
            self._rank(i, kind, i == wrong)
        if c.chance(10):
            self.at, self.kind, self.once = -1, "setup", set()
            self.text.bodies.append(Body("setup", "prepare", self._body(2, Known())[0]))

    def _before(self) -> None:
        """What stands in front of the ranks' own objects."""

    def _around(self) -> None:
        """Objects and threads that stand in front of the ranks' threads."""

    def _owned(self, i: int, name: str, made: str) -> str:
        """An object of a rank."""
        return self.text.object(name, made)

    def _plan(self) -> list[Call]:
        return [self._planned(k) for k in range(self.c.weighted(((50, 1), (35, 2), (15, 3))))]

    def _arguments(self, i: int) -> str:
        """Of a thread's decorator."""
        return f"stream={self.mine}" if self.mine else ""

    def _stream(self, known: Known) -> str:
        """Mostly the rank's own."""
        home = [name for name in self.home if name]
        if home and self.c.chance(60):
            return self.mine if self.mine and self.c.chance(75) else self.c.one(home)
        return super()._stream(known)

    def _on_device(self, known: Known) -> str | None:
        """Mostly what the rank meets with."""
        if 0 <= self.at < len(self.own) and self.c.chance(45):
            return self._part(self.own[self.at if self.c.chance(80) else self.c.one(range(len(self.own)))], known)
        return super()._on_device(known)

    def _took(self, known: Known) -> tuple[Tree, Known]:
        return self._sync(known) if self.at else super()._took(known)

    def _own_memory(self, i: int) -> str:
        name, depth, space = f"x{i}", None, "device"
        self._owned(i, name, f'd.device("{name}")')
        self.memory.append((name, depth, space))
        return name

    def _planned(self, number: int) -> Call:
        c = self.c
        ranks = range(len(self.ranks))
        root = c.one(ranks)
        other = c.one([k for k in ranks if k != root])
        kind = c.weighted(
            (
                (36, "collective"), (13, "send"), (10, "exchange"), (5, "rendezvous"), (4, "barrier"), (18, "flag"), (7, "host flag"),
                (4, "flag to host"), (3, "host_barrier"),
            )
        )  # fmt: skip
        if kind == "exchange":
            kind = c.one(("exchange both", "exchange one", "exchange ring", "exchange twice"))
        return Call(c.one(COLLECTIVES) if kind == "collective" else kind, root, other, number)

    # ------------------------------------------------------------ a rank

    def _rank(self, i: int, kind: str, wrong: bool) -> None:
        c = self.c
        self.cursor = self.rank_0_cursor if i == 0 else None  # a cursor of two threads is not decided
        plain = [name for name, depth in self.streams if depth is None]
        rank = self._who(i)
        own = self.home[rank] if rank < len(self.home) else None
        self.mine = own or (c.one([plain[i % len(plain)], *plain]) if plain else None)
        if rank < i:
            self.mine = self.called[rank]
        self.called.append(self.mine)
        known = Known()
        tree: Tree = []
        calls = [call for call in self.plan if rank < len(self.ranks)]
        if rank == self.helped:
            calls = calls[:-1] if rank == i else calls[-1:]
        if wrong and calls:
            how = c.one(("omit", "omit", "twice", "swap", "root"))
            at = c.one(range(len(calls)))
            if how == "omit":
                del calls[at]
            elif how == "twice":
                calls.insert(at, calls[at])
            elif how == "swap":
                calls = calls[::-1]
            else:
                calls[at] = calls[at]._replace(root=calls[at].other, other=calls[at].root)
        for call in calls:
            if c.chance(35 if self.loops else 55):
                more, known = self._piece(known)
                tree += more
            tree += self._met_on_device(call, rank)
        if rank == self.helped:
            tree = self._handing_on(tree, rank == i)
        for _ in range(c.one((0, 1, 1) if self.loops else (0, 1, 1, 2)) if calls else 2):
            more, known = self._piece(known)
            tree += more
        if kind == "loop" and c.chance(85):
            where = self.mine or "d.current_stream()"
            event = self._event(known)
            ends = [Line(f"{where}.synchronize()"), Line("d.synchronize()")]
            tree.append(c.one(ends))
            if event is not None and c.chance(20):
                tree[-1:] = [Line(f"{event}.record({where})"), Line(f"{event}.synchronize()")]
        name = self.ranks[i] if i < len(self.ranks) else f"t{i}"
        self.text.bodies.append(Body(kind, name, tree, self._arguments(rank)))

    def _who(self, i: int) -> int:
        """The rank that a thread is of."""
        return self.helped if self.helped >= 0 and i == len(self.ranks) else i

    def _handing_on(self, tree: Tree, first: bool) -> Tree:
        """The rank's own thread tells the other that it is through, and waits until that one is."""
        there, back = (Line(f"{name}.{how}()", True) for name, how in (("baton", "put" if first else "get"), ("baton_back", "get" if first else "put")))
        before, after = ([there] if "baton" in self.batons else []), ([back] if "baton_back" in self.batons else [])
        return [*tree, *before, *after] if first else [*before, *tree, *after]

    def _data(self, i: int) -> str:
        """What a rank gives or gets: mostly its own."""
        if self.c.chance(75):
            return self.own[i]
        found = self._on_device(Known())
        return self.own[i] if found is None else found

    def _met_on_device(self, call: Call, i: int) -> Tree:
        if call.kind in ("flag", "host flag", "flag to host"):
            return self._by_flag(call, i)
        if call.kind == "send":
            return self._sent(call, i)
        if call.kind.startswith("exchange"):
            return self._exchanged(call, i)
        c = self.c
        rank = f'rank="{self.ranks[i]}"'
        if call.kind == "host_barrier":
            return [Line(f'comm.host_barrier("{self.ranks[i]}")')]
        if call.kind in ("rendezvous", "barrier"):
            return [Line(f"comm.{call.kind}({rank})")]
        x = self._data(i)
        out = x if c.chance(50) else self._data(i)
        root = f'root="{self.ranks[call.root]}", ' if call.kind in ROOTED else ""
        if call.kind in ("all_reduce", "broadcast", "reduce"):
            data = x
        elif call.kind in ("scatter", "gather"):
            at_root = i == call.root
            out = out if call.kind == "scatter" else x
            data = f"{out}, {x}" if at_root else out
        else:
            data = f"{out}, {x}"
        return self._worked(call, f"comm.{call.kind}({data}, {root}{rank}")

    def _worked(self, call: Call, text: str) -> Tree:
        """The call, and what becomes of its work."""
        c = self.c
        if not c.chance(35):
            return [Line(f"{text})")]
        work = self._fresh("work")
        tree: Tree = [Line(f"{work} = {text}, async_op=True)")]
        if c.chance(40):
            tree += self._inner(Known())
        end = c.weighted(((70, f"{work}.wait()"), (15, ""), (8, f"{work}.wait(blocking=True)"), (7, "ask")))
        if end == "ask":
            tree.append(Block(f"if {work}.is_completed():", self._inner(Known())))
        elif end:
            tree.append(Line(end, True))
        return tree

    def _sent(self, call: Call, i: int) -> Tree:
        rank = f'rank="{self.ranks[i]}"'
        if i == call.root:
            return self._worked(call, f'comm.send({self._data(i)}, "{self.ranks[call.other]}", {rank}')
        if i == call.other:
            return self._worked(call, f'comm.recv({self._data(i)}, "{self.ranks[call.root]}", {rank}')
        return []

    def _exchanged(self, call: Call, i: int) -> Tree:
        """Sends and receives as one call: in one direction, in both, in both with two tensors each, or all around."""
        kind, count = call.kind.partition(" ")[2], len(self.ranks)
        to, of = [call.other] * (i == call.root), [call.root] * (i == call.other)
        if kind in ("both", "twice"):
            to, of = [*to, *of], [*of, *to]
        if kind == "twice":
            to, of = to * 2, of * 2
        if kind == "ring":
            to, of = [(i + 1) % count], [(i - 1) % count]
        sends, recvs = (", ".join(f'({self._data(i)}, "{self.ranks[k]}")' for k in ranks) for ranks in (to, of))
        given = ", ".join(f"{what}=[{pairs}]" for what, pairs in (("sends", sends), ("recvs", recvs)) if pairs)
        return self._worked(call, f'comm.exchange({given}, rank="{self.ranks[i]}"') if given else []

    def _by_flag(self, call: Call, i: int) -> Tree:
        """One rank stores, another waits; with a way back in half of the cases."""
        c = self.c
        word = self.words[call.number]
        mine = self.mine or "d.current_stream()"
        there = c.one((mine, mine, self._stream(Known())))
        back = any(line.startswith(f"{word}_back =") for line in self.text.objects)
        reset = ", reset=True" if self.reset and c.chance(90) else ""
        if i == call.root:
            value = c.weighted(((85, 1), (15, 2)))
            store = f"{word}.store({value})" if call.kind == "host flag" else f"{there}.write_value({word}, {value})"
            tree: Tree = [Line(store)]
            if back:
                ends = [f"{mine}.wait_value({word}_back, 1{reset})"] * 2 + [f"{word}_back.wait(1{reset})"]
                tree.append(Line(c.one(ends), True))
            elif c.chance(15):
                tree.append(Line(c.one((f"{mine}.write_value({word}, 0)", f"{word}.store(0)")), True))
            return tree
        if i != call.other:
            return []
        value = c.weighted(((92, 1), (8, 2)))
        wait = f"{word}.wait({value}{reset})" if call.kind == "flag to host" else f"{there}.wait_value({word}, {value}{reset})"
        tree = [Line(wait)]
        if back:
            if c.chance(40):
                tree += self._inner(Known())
            tree.append(Line(c.one((f"{there}.write_value({word}_back, 1)", f"{mine}.write_value({word}_back, 1)",
                                    f"{word}_back.store(1)")), True))  # fmt: skip
        return tree


def meeting(choices: Choices) -> Text:
    """A random soup of ranks."""
    return Meeting(choices).text
