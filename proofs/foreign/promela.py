"""A bounded instance of a program as a Promela model for SPIN: a foreign opinion with semantics of its own.

Streams are processes that run items one after the other; a race monitor counts who is inside an access. What must end
before an item, a wait or a "yes" is a vector of counts, one per stream: so many items of that stream. Nothing of
happens-before is used, and nothing of the other engines beyond what an operation lowers to (model/operations).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Union

from fencepost.model import effects as e
from fencepost.model import program as p
from fencepost.model.operations import Context, lower
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named

_PAD = "<pad "
"""Stands for the unused locations of a stream item until the widest item is known."""

LARGEST = 250
"""Most slots, events or items of one kind: SPIN counts them in bytes."""

REFERENCES = 8000
"""Most pairs of a location and a part: a reference to one is a short."""

Piece = Union[p.Named, p.Span, p.Anything, int]
"""A part with its index known; an int is the row `buf[r]`."""


class NotExported(ValueError):
    """A feature that the Promela model does not have; the text names it."""


def promela(program: p.Program, steps: int, *, environment: str | None = None, platform: str | None = None) -> str:
    """The model of all runs with at most `steps` turns per loop thread; an assertion fails where an access races, reads
    what nobody wrote, or gets from an empty cell. Raises `NotExported`, and `ValueError` on an unknown name."""
    return _Model(program, steps, environment, platform).text()


class _Model:
    """One model in the making."""

    def __init__(self, program: p.Program, steps: int, environment: str | None, platform: str | None) -> None:
        self.program = program
        self.steps = steps
        self.environment = environment_named(environment)
        self.platform = platform_named(platform)
        self.fifos = self._fifos()
        self.streams = max(len(set(self.fifos.values())), 1)
        self.lanes = {key: k for k, key in enumerate(self.fifos)} if self.environment.one_queue else {}
        """With one hardware queue, for each stream slot the number of what is kept of its own last item (S116)."""
        self.base: dict[int, int] = {}
        """First location, event or cell of an object; of a pool of memory the first location."""
        self.sites: list[tuple[p.Access, ...]] = []
        """Accesses of each kind of stream item."""
        self.meets: dict[int, list[str]] = {}
        """Kinds of items at which a stream may have to wait for others: what it does when it can."""
        self.tags: dict[str, int] = {}
        self.agreed: dict[str, int] = {}
        self.options: dict[str, int] = {}
        self.counts = self._count()
        self.rows = self._rows()
        self.paths = self._paths()
        """All parts of memory that a reference may name, as tuples of pieces; the whole is the first."""
        if self.counts["location"] * len(self.paths) > REFERENCES:
            raise NotExported(f"more than {REFERENCES} parts of memory within {self.steps} turns")
        self.width = 1
        """Most locations in one stream item."""
        self.values = max([len(kinds) for o in program.objects for kinds in _kinds(o)], default=0)

    def _fifos(self) -> dict[tuple[int, int], int]:
        numbers: dict[Any, int] = {}
        result = {}
        for i, o in enumerate(self.program.objects):
            if isinstance(o, p.Stream):
                for slot in range(o.depth or 1):
                    shared: Any = (o.gpu, o.process) if self.environment.one_queue else (i, slot)
                    result[i, slot] = numbers.setdefault(shared, len(numbers))
        return result

    def _count(self) -> dict[str, int]:
        """How many of everything there are at most; and where each object begins."""
        many = {"location": 0, "event": 0, "cell": 0, "token": 0, "block": 0, "item": 1}
        for i, o in enumerate(self.program.objects):
            depth = getattr(o, "depth", None) or 1
            if isinstance(o, p.Pool):
                many["token"] += o.size
                if o.of != "row":
                    self.base[i] = many["location"]
                    many["location"] += o.size
                continue
            kind = {p.Memory: "location", p.Event: "event", p.Cell: "cell"}.get(type(o))
            if kind is not None:
                self.base[i] = many[kind]
                many[kind] += depth
        for thread in self.program.threads:
            turns = self.steps if thread.kind == "loop" else 1
            for node in thread.nodes:
                if isinstance(node, p.Do):
                    many["event"] += turns * isinstance(node.operation, p.NewEvent)
                    many["block"] += turns * isinstance(node.operation, p.Alloc)
                    many["item"] += turns * isinstance(node.operation, (p.Launch, p.Copy, p.Memset, p.Item, *e.MEETINGS))
        many["location"] += many["block"]
        for kind, number in many.items():
            if number > LARGEST:
                raise NotExported(f"more than {LARGEST} {kind}s within {self.steps} turns")
        return many

    # ------------------------------------------------------------ parts of memory

    def _rows(self) -> range:
        """The rows `buf[r]` that there are at most: an index of a cursor or pool is below its size, a turn below the bound."""
        least, most = 0, 1
        for o in self.program.objects:
            most = max(most, o.size if isinstance(o, p.Pool) else o.depth if isinstance(o, p.Cursor) else 1)
        for found in _parts(self.program.threads):
            if isinstance(found, p.At):
                index = found.index
                offset = index.slot if isinstance(index, p.Fixed) else index.offset
                least = min(least, offset)
                most = max(most, offset + (self.steps if isinstance(index, p.Turn) else most))
        return range(least, most)

    def _pieces(self, part: p.Part) -> list[Piece]:
        return list(self.rows) if isinstance(part, p.At) else [part]

    def _paths(self) -> list[tuple[Piece, ...]]:
        """Views may narrow, and every use of one may narrow once more."""
        views: dict[Piece, None] = {}
        uses: dict[Piece, None] = {}
        for part in _parts(self.program.threads):
            uses.update(dict.fromkeys(self._pieces(part)))
        for thread in self.program.threads:
            for node in thread.nodes:
                if isinstance(node, p.Do) and isinstance(node.operation, (p.View, p.Put, p.CellSet)):
                    for part in _parts(node.operation):
                        views.update(dict.fromkeys(self._pieces(part)))
        paths: dict[tuple[Piece, ...], None] = {(): None}
        paths.update(dict.fromkeys((piece,) for piece in uses))
        paths.update(dict.fromkeys((view, piece) for view in views for piece in uses))
        return list(paths)

    def _narrowed(self, reference: str, part: p.Part | None) -> str:
        """The reference to a part of what `reference` names."""
        if part is None:
            return reference
        number = {path: i for i, path in enumerate(self.paths)}
        at = "0"
        if isinstance(part, p.At):
            index = part.index
            at = f"n + {index.offset}" if isinstance(index, p.Turn) else self.index(index, self.rows.stop)
            at = f"({at} - {self.rows.start})".replace("- -", "+ ")
        first = self._pieces(part)[0]
        if not any(len(path) > 1 for path in self.paths):
            return f"({reference} + 4 * ({number[(first,)]} + {at}))"
        # The reference may name a part itself: what narrows it once more depends on which.
        moved = "0"
        for path, i in number.items():
            inner = number.get((*path, first))
            if inner is not None:
                moved = f"(({reference} / 4) % {len(self.paths)} == {i} -> {inner - i} + {at} : {moved})"
        return f"({reference} + 4 * {moved})"

    # ------------------------------------------------------------ the whole

    def text(self) -> str:
        """The Promela text."""
        threads = [self._thread(t, thread) for t, thread in enumerate(self.program.threads)]
        parts = [self._head(), self._queues(), *self._stream_processes(), *threads]
        text = "\n".join(parts) + "\n"
        for used in range(self.width + 1):
            text = text.replace(f"{_PAD}{used}>", ", -1" * (self.width - used))
        return text

    def _head(self) -> str:
        many, n = self.counts, self.streams
        static_events = many["event"] - self.steps_of(p.NewEvent)
        places = max(many["location"] * len(self.paths), 1)
        setups = sum(t.kind == "setup" for t in self.program.threads)
        every = range(n)
        lines = [
            f"/* {self.program.name}: at most {self.steps} turns of every loop thread. */",
            "/* spin -a THIS; cc -O2 -DSAFETY -DVECTORSZ=65536 -o pan pan.c; ./pan -E -m1000000: an error is a hazard */",
            f"#define READY(v) ({' && '.join(f'done[{s}] >= v.c[{s}]' for s in every)})",
            f"typedef Vec {{ byte c[{n}] }};",
            f"byte done[{n}]; byte sent[{n}];",
            f"Vec tail[{n}];",
            *([f"Vec last[{len(self.lanes)}];  /* of each stream, where they share a hardware queue */"] if self.lanes else []),
            f"Vec event[{max(many['event'], 1)}]; byte next_event = {static_events};",
            f"byte readers[{places}]; byte writers[{places}];",
            f"byte repeaters[{places}];  /* writes of the bytes that are there already */",
            "byte setups_done = 0;",
            f"#define AFTER_SETUP (setups_done == {setups})",
            _inline("copy_vec(to, from)", [f"to.c[{s}] = from.c[{s}]" for s in every]),
            _inline("join_vec(to, from)",
                    [f"if :: from.c[{s}] > to.c[{s}] -> to.c[{s}] = from.c[{s}] :: else fi" for s in every]),
            _inline("zero_vec(to)", [f"to.c[{s}] = 0" for s in every]),
            self._start("read", "writers"),
            self._start("write", "writers", "readers", "repeaters"),
            self._start("repeat", "writers"),
        ]  # fmt: skip
        if len(self.paths) > 1:
            lines.append("/* a location's parts: " + _comment(", ".join(map(_spelled, self.paths))) + " */")
        if many["block"]:
            size, block = many["block"], self.block("v")
            lines += [
                f"byte refs[{size}]; short owner[{size}]; byte noted[{size}]; bit given_up[{size}]; "
                f"bit written[{size * len(self.paths)}];",
                f"Vec over[{size}]; byte next_block = 0;",
                _inline("hold(v)", [f"if :: {self.held('v')} -> refs[{block}]++ :: else fi"]),
                _inline("let_go(v)", [
                    f"if :: {self.held('v')} -> refs[{block}]--; "
                    f"if :: refs[{block}] == 0 -> given_up[{block}] = 1; "
                    f"zero_vec(over[{block}]); "
                    + "; ".join(
                        f"if :: (noted[{block}] & {1 << s}) -> "
                        f"join_vec(over[{block}], tail[{s}]) :: else fi" for s in every)
                    + " :: else fi :: else fi"]),
            ]  # fmt: skip
        else:
            lines += [_inline("hold(v)", ["skip"]), _inline("let_go(v)", ["skip"])]
        for i, o in enumerate(self.program.objects):
            if isinstance(o, p.Cursor):
                lines.append(f"byte cursor_{i} = {o.depth - 1};")
            elif isinstance(o, p.Lock):
                lines.append(f"byte lock_{i} = {o.count};")
            elif isinstance(o, p.Flag):
                lines.append(f"bit flag_{i};")
            elif isinstance(o, p.Counter):
                lines.append(f"short counter_{i};")
            elif isinstance(o, p.DeviceFlag):
                lines.append(f"short word_{i};  /* {_comment(o.name)} */")
            elif isinstance(o, p.Pool):
                lines.append(f"bit taken_{i}[{o.size}]; Vec back_{i}[{o.size}];")
        if many["cell"]:
            lines.append(f"bit cell_full[{many['cell']}];")
            lines += [f"short cell_{v}[{many['cell']}];" for v in range(self.values)]
        for name, number in self.agreed.items():
            lines.append(f"byte agreed_{number}[{self.steps}];  /* {_comment(name)} */")
        return "\n".join(lines)

    def _start(self, word: str, *others: str) -> str:
        """Nobody is inside who must not be: at the same place, or at one that shares bytes with it."""
        many = len(self.paths)
        if many == 1:
            free = " && ".join(f"{other}[l] == 0" for other in others)
            return _inline(f"start_{word}(l)", [f"assert({free})"])
        ways = []
        for i, path in enumerate(self.paths):
            near = [f"{other}[l + {k - i}] == 0".replace("+ -", "- ") for other in others
                    for k, one in enumerate(self.paths) if _overlap(path, one)]  # fmt: skip
            ways.append(f":: (l) % {many} == {i} -> assert({' && '.join(near)})")
        return _inline(f"start_{word}(l)", [f"if {' '.join(ways)} fi"])

    def block(self, reference: str) -> str:
        """Number of the block that a reference names."""
        return f"{reference} / {4 * len(self.paths)} - {self.counts['location'] - self.counts['block']}"

    def held(self, reference: str) -> str:
        """Whether the reference keeps a block alive."""
        first = 4 * len(self.paths) * (self.counts["location"] - self.counts["block"])
        return f"({reference} >= {first} && ({reference} & 2) == 0)"

    def steps_of(self, kind: type) -> int:
        """How often operations of a kind run at most."""
        return sum(
            (self.steps if t.kind == "loop" else 1)
            for t in self.program.threads for node in t.nodes
            if isinstance(node, p.Do) and isinstance(node.operation, kind)
        )  # fmt: skip

    def signals_of(self, channel: int) -> int:
        """How many signals a channel gets at most."""
        return sum(
            (self.steps if t.kind == "loop" else 1)
            for t in self.program.threads for node in t.nodes
            if isinstance(node, p.Do) and isinstance(node.operation, p.Signal) and node.operation.channel == channel
        )  # fmt: skip

    def _queues(self) -> str:
        lines = []
        for i, o in enumerate(self.program.objects):
            if isinstance(o, p.Queue):
                fields = ", ".join(["byte", *["short"] * self.values])
                lines.append(f"chan queue_{i} = [{o.capacity}] of {{ {fields} }};  /* {_comment(o.name)} */")
            elif isinstance(o, p.Channel):
                most = max(self.signals_of(i), 1)
                if most > LARGEST:
                    raise NotExported(f"more than {LARGEST} signals within {self.steps} turns")
                size = most if o.capacity is None else min(o.capacity, most)
                lines.append(f"chan channel_{i} = [{size}] of {{ byte }};  /* {_comment(o.name)} */")
        fields = ", ".join(["byte", *["byte"] * self.streams, *["short"] * self.width])
        lines.append(f"chan strm[{self.streams}] = [{self.counts['item']}] of {{ {fields} }};")
        return "\n".join(lines)

    def _stream_processes(self) -> list[str]:
        locs = [f"l{i}" for i in range(self.width)]
        needs = [f"need.c[{s}]" for s in range(self.streams)]
        names = ", ".join(["site", *needs, *locs])
        start, end = [], []
        for number, accesses in enumerate(self.sites):
            used = [(a, locs[i]) for i, a in enumerate(accesses)]
            check = [f"start_{_word(a)}({loc})" for a, loc in used]
            enter = [f"{_counter(a)}[{loc}]++" for a, loc in used]
            leave = [f"{_counter(a)}[{loc}]--" for a, loc in used]
            start.append(f":: site == {number} -> {'; '.join([*check, *enter, *self.meets.get(number, [])]) or 'skip'}")
            end.append(f":: site == {number} -> {'; '.join(leave) or 'skip'}")
        if not start:  # streams, and nothing is ever enqueued: a choice needs a branch
            start, end = [":: else -> skip"], [":: else -> skip"]
        text = [
            "proctype runs(byte s) {",
            f"  byte site; Vec need; short {', '.join(locs)};",
            f"end_idle: do :: strm[s] ? {names} ->",
            "    atomic { READY(need);",
            "      if",
            *("      " + line for line in start),
            "      fi }",
            "    atomic { if",
            *("      " + line for line in end),
            "      fi; done[s]++ }",
            "  od }",
            "init { atomic { "
            + "; ".join([f"run runs({s})" for s in range(self.streams)] + [f"run thread_{t}()" for t in range(len(self.program.threads))])
            + " } }",
        ]
        return ["\n".join(text)]

    # ------------------------------------------------------------ a thread

    def _thread(self, t: int, thread: p.Thread) -> str:
        self.t, self.thread = t, thread
        self.context = Context(self.program, thread, self.platform, self.environment)
        names = {n.question.name for n in thread.nodes if isinstance(n, p.Ask) and isinstance(n.question, p.Choose)}
        self.chosen = {name: i for i, name in enumerate(sorted(names))}
        body: list[str] = []
        for n, node in enumerate(thread.nodes):
            body.append(f"N{n}:")
            if isinstance(node, p.Do):
                body += [f"  {line};" for line in self._do(node.operation)]
                body.append(f"  goto {_label(node.next)};")
            else:
                body += ["  " + line for line in self._ask(node)]
        locals_ = [f"short v{i} = -1;" for i in range(len(thread.locals))]
        choices = [f"byte chosen_{i};" for i in self.chosen.values()]
        declared = " ".join(["short n, x, y;", "Vec w;", *[f"short y{i};" for i in range(self.values)], "byte tag;", *locals_, *choices])
        ends = [f"let_go(v{i}); v{i} = -1" if x.kind == p.MEMORY else f"v{i} = -1" for i, x in enumerate(thread.locals)]
        ends += [f"chosen_{i} = 0" for i in self.chosen.values()]
        again = f"if :: n < {self.steps} -> goto {_label(thread.entry)} :: else -> skip fi" if thread.kind == "loop" else "skip"
        after = "setups_done++" if thread.kind == "setup" else "skip"
        return "\n".join([
            f"proctype thread_{t}() {{  /* {_comment(thread.name)} */",
            f"  {declared}",
            "  skip;" if thread.kind == "setup" else "  AFTER_SETUP;",
            f"  goto {_label(thread.entry)};" if thread.entry != p.END else "  goto TURN_ENDS;",
            *body,
            f"TURN_ENDS: atomic {{ {'; '.join([*ends, 'n++', after])} }};",
            f"  {again}",
            "}",
        ])  # fmt: skip

    def _do(self, operation: p.Operation) -> list[str]:
        """Statements of one host step: what is atomic, then what waits or lasts."""
        pieces: list[str] = []
        later: list[str] = []
        for effect in lower(operation, self.context):
            handler = _EFFECTS.get(type(effect))
            if handler is None:
                raise NotExported(f"the operation {type(effect).__name__}")
            now, after = handler(self, effect)
            pieces += now
            later += after
        return [f"atomic {{ {'; '.join(pieces)} }}" if pieces else "skip", *later]

    # ------------------------------------------------------------ operands

    def index(self, index: p.Index, depth: int) -> str:
        """An index, modulo the ring's depth."""
        if isinstance(index, p.Turn):
            return f"((n + {index.offset + 64 * depth}) % {depth})"
        if isinstance(index, p.Fixed):
            return str(index.slot % depth)
        if isinstance(index, p.Last):
            own = getattr(self.program.objects[index.cursor], "depth", depth)
            return f"(((cursor_{index.cursor} + {index.offset + 64 * own}) % {own}) % {depth})"
        own = self.thread.locals[index.local].depth
        value = f"v{index.local}"
        if own:
            return f"((({value} + {index.offset + 64 * own}) % {own}) % {depth})"
        return f"(({value} + {index.offset + 64 * depth}) % {depth})"

    def slot(self, operand: p.Operand) -> str:
        """Number of an object's slot within all of its kind."""
        if isinstance(operand, p.Obj):
            return str(self.base[operand.id])
        assert isinstance(operand, p.Slot)
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        return f"({self.base[operand.id]} + {self.index(operand.index, depth)})"

    def memory(self, operand: p.Operand) -> str:
        """A reference: four times the place, plus 1 if the allocator cannot attribute it, plus 2 for a raw pointer. A place
        is the location times the number of parts, plus the part."""
        whole = f"v{operand.id}" if isinstance(operand, p.Local) else f"({4 * len(self.paths)} * {self.slot(operand)})"
        return self._narrowed(whole, operand.part)

    def event(self, operand: p.Operand) -> str:
        """Number of an event."""
        return f"event[v{operand.id}]" if isinstance(operand, p.Local) else f"event[{self.slot(operand)}]"

    def stream(self, operand: p.Operand) -> str:
        """Number of a stream's FIFO."""
        if isinstance(operand, p.Obj):
            return str(self.fifos[operand.id, 0])
        assert isinstance(operand, p.Slot)
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        if self.environment.one_queue:
            return str(self.fifos[operand.id, 0])
        return f"({self.fifos[operand.id, 0]} + {self.index(operand.index, depth)})"

    def _own(self, operand: p.Operand) -> str:
        """What must end before the stream itself has ended: in a shared hardware queue not what others have behind that."""
        if not self.lanes:
            return f"tail[{self.stream(operand)}]"
        assert isinstance(operand, (p.Obj, p.Slot))
        first = self.lanes[operand.id, 0]
        if isinstance(operand, p.Obj):
            return f"last[{first}]"
        depth = getattr(self.program.objects[operand.id], "depth", None) or 1
        return f"last[{first} + {self.index(operand.index, depth)}]"

    def _is_last(self, operand: p.Operand, queue: str = "x") -> list[str]:
        """With one hardware queue: the stream's own last item is what the queue has come to."""
        return [f"copy_vec({self._own(operand)}, tail[{queue}])"] if self.lanes else []

    def value(self, operand: p.Operand | p.Index) -> str:
        """What an item holds of an operand."""
        if isinstance(operand, p.Local):
            return self._narrowed(f"v{operand.id}", operand.part)
        if isinstance(operand, (p.Obj, p.Slot)):
            if isinstance(self.program.objects[operand.id], p.Event):
                return self.slot(operand)
            return self.memory(operand)
        if isinstance(operand, p.Var):
            own = self.thread.locals[operand.local].depth
            return self.index(operand, own) if own else f"(v{operand.local} + {operand.offset})"
        if isinstance(operand, p.Last):
            return self.index(operand, getattr(self.program.objects[operand.cursor], "depth", 1))
        return f"(n + {operand.offset})" if isinstance(operand, p.Turn) else str(operand.slot)

    # ------------------------------------------------------------ device effects

    def _val(self, accesses: tuple[p.Access, ...]) -> list[str]:
        """In the order of the calls: a block is read only after some of what is read was written for its owner."""
        if not self.counts["block"]:
            return []
        result = []
        many = len(self.paths)
        first = many * (self.counts["location"] - self.counts["block"])
        for a in sorted(accesses, key=lambda a: a.mode == "w"):
            if isinstance(a.target, p.Local):
                v = self.memory(a.target)
                place = f"{v} / 4 - {first}"
                if a.mode == "w":
                    what = "skip" if a.same_bytes else f"written[{place}] = 1"
                elif many == 1:
                    what = f"assert(written[{place}])"
                else:
                    ways = []
                    for i, path in enumerate(self.paths):
                        near = [f"written[{place} + {k - i}]" for k, one in enumerate(self.paths) if _overlap(path, one)]
                        ways.append(f":: ({v} / 4) % {many} == {i} -> assert({' || '.join(near)})".replace("+ -", "- "))
                    what = f"if {' '.join(ways)} fi"
                result.append(f"if :: {self.held(v)} -> {what} :: else fi")
        return result

    def touch(self, x: e.Touch) -> tuple[list[str], list[str]]:
        """A host access begins with the call and lasts."""
        locs = [f"({self.memory(a.target)} / 4)" for a in x.accesses]
        begin = [f"start_{_word(a)}({loc})" for a, loc in zip(x.accesses, locs, strict=True)]
        enter = [f"{_counter(a)}[{loc}]++" for a, loc in zip(x.accesses, locs, strict=True)]
        leave = [f"{_counter(a)}[{loc}]--" for a, loc in zip(x.accesses, locs, strict=True)]
        return [*self._val(x.accesses), *begin, *enter], [f"atomic {{ {'; '.join(leave)} }}"] if leave else []

    def enqueue(self, x: e.Enqueue) -> tuple[list[str], list[str]]:
        """An item at the tail."""
        return self._item(x.stream, x.accesses), []

    def _item(self, stream: p.Operand, accesses: tuple[p.Access, ...], *meets: str) -> list[str]:
        number = len(self.sites)
        self.sites.append(accesses)
        if meets:
            self.meets[number] = list(meets)
        self.width = max(self.width, len(accesses))
        locs = [f"{self.memory(a.target)} / 4" for a in accesses]
        return [
            *self._val(accesses),
            f"x = {self.stream(stream)}",
            f"strm[x] ! {', '.join([str(number), *(f'tail[x].c[{s}]' for s in range(self.streams)), *locs])}{_PAD}{len(locs)}>",
            "sent[x]++; zero_vec(tail[x]); tail[x].c[x] = sent[x]",
            *self._is_last(stream),
        ]

    def _tag_of(self, tag: str) -> int:
        return self.tags.setdefault(tag, len(self.tags))

    def signal(self, x: p.Signal) -> tuple[list[str], list[str]]:
        """An item that waits for room in the channel."""
        return self._item(x.stream, (), f"channel_{x.channel} ! {self._tag_of(x.tag)}"), []

    def wait_for_signal(self, x: p.Await) -> tuple[list[str], list[str]]:
        """An item that waits until the oldest signal is there and has its tag."""
        return self._item(x.stream, (), f"channel_{x.channel} ? {self._tag_of(x.tag)}"), []

    def store_flag(self, x: p.StoreFlag) -> tuple[list[str], list[str]]:
        """Overwrite the word."""
        store = f"word_{x.flag} = {x.value}"
        return ([store], []) if x.stream is None else (self._item(x.stream, (), store), [])

    def wait_flag(self, x: p.WaitFlag) -> tuple[list[str], list[str]]:
        """Wait until the word is high enough."""
        wait = [f"word_{x.flag} >= {x.value}", *([f"word_{x.flag} = 0"] if x.reset else [])]
        return (wait, []) if x.stream is None else (self._item(x.stream, (), *wait), [])

    def record(self, x: e.RecordEvent) -> tuple[list[str], list[str]]:
        """What must end before the event is complete: what the stream's tail needs."""
        return [f"x = {self.stream(x.stream)}; copy_vec({self.event(x.event)}, tail[x])", *self._is_last(x.stream)], []

    def join_event(self, x: e.JoinEvent) -> tuple[list[str], list[str]]:
        """Snapshot at the call, then wait."""
        return [f"copy_vec(w, {self.event(x.event)})"], ["READY(w)"]

    def join_stream(self, x: e.JoinStream) -> tuple[list[str], list[str]]:
        """Snapshot at the call, then wait."""
        return [f"copy_vec(w, {self._own(x.stream)})"], ["READY(w)"]

    def join_device(self, x: e.JoinDevice) -> tuple[list[str], list[str]]:
        """All streams of the process on that GPU."""
        found = []
        for (i, _), fifo in self.fifos.items():
            stream = self.program.objects[i]
            if isinstance(stream, p.Stream) and (stream.gpu, stream.process) == (x.gpu, x.process):
                found.append(f"join_vec(w, tail[{fifo}])")
        return ["zero_vec(w)", *dict.fromkeys(found)], ["READY(w)"]

    def stream_waits_event(self, x: e.StreamJoinsEvent) -> tuple[list[str], list[str]]:
        """Later items need what the event captured."""
        return [
            f"x = {self.stream(x.stream)}; join_vec(tail[x], {self.event(x.event)})",
            *([f"join_vec({self._own(x.stream)}, {self.event(x.event)})"] if self.lanes else []),
        ], []

    def stream_waits_stream(self, x: e.StreamJoinsStream) -> tuple[list[str], list[str]]:
        """Later items need what the other stream's tail needs."""
        return [
            f"x = {self.stream(x.stream)}; y = {self.stream(x.other)}; join_vec(tail[x], tail[y])",
            *self._is_last(x.other, "y"),
            *([f"join_vec({self._own(x.stream)}, {self._own(x.other)})"] if self.lanes else []),
        ], []

    def note_use(self, x: e.NoteUse) -> tuple[list[str], list[str]]:
        """S64, S79, S84: the allocator is told, unless the stream owns the block."""
        if not self.counts["block"] or not isinstance(x.block, p.Local):
            return ["skip"], []
        v = self.memory(x.block)
        block = self.block(v)
        right = f"owner[{block}] >= 0 && owner[{block}] != x" if x.space == "device" else f"owner[{block}] < 0 && ({v} & 1) == 0"
        tell = f"noted[{block}] = noted[{block}] | (1 << x)"
        return [
            f"x = {self.stream(x.stream)}",
            f"if :: {self.held(v)} -> if :: ({right}) -> {tell} :: else fi :: else fi",
        ], []

    # ------------------------------------------------------------ host operations

    def set_local(self, local: int, value: str) -> str:
        """Assign; the old reference ends."""
        old = f"let_go(v{local}); " if self.thread.locals[local].kind == p.MEMORY else ""
        return f"{old}v{local} = {value}"

    def alloc(self, x: p.Alloc) -> tuple[list[str], list[str]]:
        """A fresh block, or one that was given up and whose noted streams have caught up."""
        if self.environment.one_queue and x.stream is not None and len(self.fifos) > self.streams:
            raise NotExported("allocations under one hardware queue")
        mine = "-1" if x.stream is None else self.stream(x.stream)
        first = self.counts["location"] - self.counts["block"]
        again = " ".join(
            f":: (given_up[{i}] && owner[{i}] == y && READY(over[{i}])) -> x = {i}" for i in range(self.counts["block"])
        )
        return [
            f"y = {mine}; if :: true -> x = next_block; next_block++ {again} fi",
            "owner[x] = y; refs[x] = 1; noted[x] = 0; given_up[x] = 0",
            *(f"written[x * {len(self.paths)} + {i}] = 0" for i in range(len(self.paths))),
            self.set_local(x.local, f"{4 * len(self.paths)} * ({first} + x)"),
        ], []

    def view(self, x: p.View) -> tuple[list[str], list[str]]:
        """Another reference."""
        flags = (0 if x.attributed else 1) + (0 if x.held else 2)
        return [f"y = {self.memory(x.base)} | {flags}" if flags else f"y = {self.memory(x.base)}", "hold(y)",
                self.set_local(x.local, "y")], []  # fmt: skip

    def drop(self, x: p.Drop) -> tuple[list[str], list[str]]:
        """The reference ends."""
        return [self.set_local(x.local, "-1")], []

    def new_event(self, x: p.NewEvent) -> tuple[list[str], list[str]]:
        """A fresh event."""
        return [self.set_local(x.local, "next_event"), "next_event++"], []

    def advance(self, x: p.Advance) -> tuple[list[str], list[str]]:
        """The next position."""
        depth = getattr(self.program.objects[x.cursor], "depth", 1)
        return [f"cursor_{x.cursor} = (cursor_{x.cursor} + 1) % {depth}", self.set_local(x.local, f"cursor_{x.cursor}")], []

    def _tag(self, queue: int, tag: str) -> int:
        found = self.program.objects[queue]
        assert isinstance(found, p.Queue)
        return [name for name, _ in found.items].index(tag)

    def _held(self, values: tuple[p.Operand | p.Index, ...], kinds: tuple[str, ...]) -> list[str]:
        return [f"y{i} = {self.value(v)}" + (f"; hold(y{i})" if k == p.MEMORY else "")
                for i, (v, k) in enumerate(zip(values, kinds, strict=True))]  # fmt: skip

    def _item_kinds(self, queue: int, tag: str) -> tuple[str, ...]:
        found = self.program.objects[queue]
        assert isinstance(found, p.Queue)
        return dict(found.items)[tag]

    def put(self, x: p.Put) -> tuple[list[str], list[str]]:
        """Wait for room, then append."""
        if not x.edge:
            raise NotExported("a put that orders nothing")
        kinds = self._item_kinds(x.queue, x.tag)
        pad = ["-1"] * (self.values - len(kinds))
        message = ", ".join([str(self._tag(x.queue, x.tag)), *(f"y{i}" for i in range(len(kinds))), *pad])
        return [f"nfull(queue_{x.queue})", *self._held(x.values, kinds), f"queue_{x.queue} ! {message}"], []

    def _receive(self, locals_: tuple[int, ...], kinds: tuple[str, ...]) -> list[str]:
        result = []
        for i, kind in enumerate(kinds):
            if i < len(locals_):
                result.append(self.set_local(locals_[i], f"y{i}"))
            elif kind == p.MEMORY:
                result.append(f"let_go(y{i})")
        return result

    def get(self, x: p.Get) -> tuple[list[str], list[str]]:
        """Wait for the item of that tag at the head."""
        tag = self._tag(x.queue, x.tag)
        fields = "".join(f", y{i}" for i in range(self.values))
        return [f"queue_{x.queue} ? {tag}{fields}", *self._receive(x.locals, self._item_kinds(x.queue, x.tag))], []

    def _cell_kinds(self, cell: p.Operand) -> tuple[str, ...]:
        assert isinstance(cell, (p.Obj, p.Slot))
        found = self.program.objects[cell.id]
        assert isinstance(found, p.Cell)
        return found.item

    def _empty_cell(self, kinds: tuple[str, ...]) -> str:
        drops = [f"x = cell_{i}[y]; let_go(x)" for i, kind in enumerate(kinds) if kind == p.MEMORY]
        reset = [f"cell_{i}[y] = 0" for i in range(len(kinds))]
        return f"if :: cell_full[y] -> {'; '.join([*drops, *reset, 'cell_full[y] = 0'])} :: else fi"

    def cell_set(self, x: p.CellSet) -> tuple[list[str], list[str]]:
        """Store; the old item loses its references."""
        kinds = self._cell_kinds(x.cell)
        store = [f"cell_{i}[y] = y{i}" for i in range(len(kinds))]
        return [*self._held(x.values, kinds), f"y = {self.slot(x.cell)}", self._empty_cell(kinds), *store, "cell_full[y] = 1"], []

    def cell_get(self, x: p.CellGet) -> tuple[list[str], list[str]]:
        """Copy, or move, the item into locals."""
        kinds = self._cell_kinds(x.cell)
        load = [f"y{i} = cell_{i}[y]" for i in range(len(kinds))]
        keep = [f"hold(y{i})" for i, kind in enumerate(kinds) if kind == p.MEMORY]
        empty = [f"cell_{i}[y] = 0" for i in range(len(kinds))]
        move = [*empty, "cell_full[y] = 0"] if x.take else keep
        return [f"y = {self.slot(x.cell)}", "assert(cell_full[y])", *load, *move, *self._receive(x.locals, kinds)], []

    def cell_clear(self, x: p.CellClear) -> tuple[list[str], list[str]]:
        """Empty the cell."""
        return [f"y = {self.slot(x.cell)}", self._empty_cell(self._cell_kinds(x.cell))], []

    def take(self, x: p.Take) -> tuple[list[str], list[str]]:
        """Any free token, once the work that its return named is over."""
        pool = self.program.objects[x.pool]
        assert isinstance(pool, p.Pool)
        free = " ".join(
            f":: (!taken_{x.pool}[{i}] && READY(back_{x.pool}[{i}])) -> taken_{x.pool}[{i}] = 1; x = {i}"
            for i in range(pool.size)
        )
        token = "x" if pool.of == "row" else f"{4 * len(self.paths)} * ({self.base[x.pool]} + x)"
        return [f"if {free} fi", self.set_local(x.local, token)], []

    def give(self, x: p.Give) -> tuple[list[str], list[str]]:
        """The token is free."""
        after = f"zero_vec(back_{x.pool}[x])" if x.after is None else f"copy_vec(back_{x.pool}[x], {self.event(x.after)})"
        token = self.value(x.token)
        if x.pool in self.base:
            token = f"{token} / {4 * len(self.paths)} - {self.base[x.pool]}"
        return [f"x = {token}; taken_{x.pool}[x] = 0; {after}"], []

    def acquire(self, x: p.Acquire) -> tuple[list[str], list[str]]:
        """Wait until it is free."""
        if not x.edge:
            raise NotExported("an acquire that orders nothing")
        return [f"lock_{x.lock} > 0", f"lock_{x.lock}--"], []

    def flag_wait(self, x: p.FlagWait) -> tuple[list[str], list[str]]:
        """Wait until it is set."""
        if not x.edge:
            raise NotExported("a wait for a flag that orders nothing")
        return [f"flag_{x.flag}"], []

    def counter_wait(self, x: p.CounterWait) -> tuple[list[str], list[str]]:
        """Wait until it is high enough."""
        if not x.edge:
            raise NotExported("a wait for a counter that orders nothing")
        return [f"counter_{x.counter} >= {x.value}" + (" + n" if x.per_turn else "")], []

    # ------------------------------------------------------------ questions

    def _ask(self, node: p.Ask) -> list[str]:
        q = node.question
        branches = dict(node.branches)
        if isinstance(q, p.Choose):
            return self._choose(q, branches)
        if isinstance(q, p.QueueTag):
            fields = "".join(f", y{i}" for i in range(self.values))
            ways = [f":: tag == {self._tag(q.queue, a)} -> goto {_label(n)}" for a, n in node.branches]
            return [f"queue_{q.queue} ? <tag{fields}>;", f"if {' '.join(ways)} fi;"]
        if isinstance(q, p.Maybe):
            return [f"if {' '.join(f':: true -> goto {_label(n)}' for n in branches.values())} fi;"]
        if isinstance(q, (p.EventQuery, p.StreamQuery)):
            what = self.event(q.event) if isinstance(q, p.EventQuery) else self._own(q.stream)
            test = f"READY({what})"
        else:
            test = self._test(q)
        yes, no = (f"goto {_label(branches[a])}" if a in branches else "false" for a in ("yes", "no"))
        if isinstance(q, p.TryLock):
            yes = f"lock_{q.lock}--; {yes}"
        return [f"atomic {{ if :: {test} -> {yes} :: else -> {no} fi }};"]

    def _test(self, q: p.Question) -> str:
        if isinstance(q, (p.QueueFull, p.QueueHolds)):
            found = self.program.objects[q.queue]
            assert isinstance(found, p.Queue)
            return f"len(queue_{q.queue}) >= {q.count if isinstance(q, p.QueueHolds) else found.capacity}"
        if isinstance(q, p.CellEmpty):
            return f"!cell_full[{self.slot(q.cell)}]"
        if isinstance(q, p.FlagIsSet):
            return f"flag_{q.flag}"
        if isinstance(q, p.CounterAtLeast):
            return f"counter_{q.counter} >= {q.value}"
        if isinstance(q, p.TryLock):
            return f"lock_{q.lock} > 0"
        if isinstance(q, p.TurnBelow):
            return f"n < {q.value}"
        raise NotExported(f"the question {type(q).__name__}")

    def _choose(self, q: p.Choose, branches: dict[str, int]) -> list[str]:
        if q.agreed:
            where = f"agreed_{self.agreed.setdefault(q.name, len(self.agreed))}[n]"
        else:
            where = f"chosen_{self.chosen[q.name]}"
        numbers = {a: self.options.setdefault(a, len(self.options) + 1) for a in branches}
        ways = [f":: ({where} == 0 || {where} == {numbers[a]}) -> {where} = {numbers[a]}; goto {_label(n)}" for a, n in branches.items()]
        return [f"atomic {{ if {' '.join(ways)} fi }};"]


def _parts(found: object) -> Iterator[p.Part]:
    """All parts that data mentions."""
    if isinstance(found, (p.Obj, p.Slot, p.Local)):
        if found.part is not None:
            yield found.part
    elif isinstance(found, p.Data):
        for name in type(found).__struct_fields__:
            yield from _parts(getattr(found, name))
    elif isinstance(found, tuple):
        for one in found:
            yield from _parts(one)


def _overlap(a: tuple[Piece, ...], b: tuple[Piece, ...]) -> bool:
    """Whether two parts may share a byte: names, rows and spans keep apart among themselves, all else may overlap."""
    for x, y in zip(a, b):  # noqa: B905  a shorter path is the larger part
        if isinstance(x, p.Named) and isinstance(y, p.Named):
            apart = x != y
        elif isinstance(x, p.Span) and isinstance(y, p.Span):
            apart = x.stop <= y.start or y.stop <= x.start
        else:
            apart = isinstance(x, int) and isinstance(y, int) and x != y
        if apart:
            return False
        if x != y or isinstance(x, p.Anything):
            return True
    return True


def _spelled(path: tuple[Piece, ...]) -> str:
    return ".".join(
        f"[{x}]" if isinstance(x, int) else x.name if isinstance(x, p.Named)
        else f"[{x.start}:{x.stop}]" if isinstance(x, p.Span) else "any" for x in path
    ) or "whole"  # fmt: skip


def _kinds(found: p.Object) -> list[tuple[str, ...]]:
    if isinstance(found, p.Queue):
        return [kinds for _, kinds in found.items]
    return [found.item] if isinstance(found, p.Cell) else []


def _inline(head: str, statements: list[str]) -> str:
    return f"inline {head} {{ {'; '.join(statements)} }}"


def _word(access: p.Access) -> str:
    return "read" if access.mode == "r" else "repeat" if access.same_bytes else "write"


def _counter(access: p.Access) -> str:
    return {"read": "readers", "write": "writers", "repeat": "repeaters"}[_word(access)]


def _label(node: int) -> str:
    return "TURN_ENDS" if node == p.END else f"N{node}"


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


_EFFECTS: dict[type, Callable[[_Model, Any], tuple[list[str], list[str]]]] = {
    e.Touch: _Model.touch,
    e.Enqueue: _Model.enqueue,
    e.RecordEvent: _Model.record,
    e.JoinEvent: _Model.join_event,
    e.JoinStream: _Model.join_stream,
    e.JoinDevice: _Model.join_device,
    e.StreamJoinsEvent: _Model.stream_waits_event,
    e.StreamJoinsStream: _Model.stream_waits_stream,
    e.NoteUse: _Model.note_use,
    p.Alloc: _Model.alloc,
    p.View: _Model.view,
    p.Drop: _Model.drop,
    p.NewEvent: _Model.new_event,
    p.Advance: _Model.advance,
    p.Put: _Model.put,
    p.Get: _Model.get,
    p.CellSet: _Model.cell_set,
    p.CellGet: _Model.cell_get,
    p.CellClear: _Model.cell_clear,
    p.Take: _Model.take,
    p.Give: _Model.give,
    p.Acquire: _Model.acquire,
    p.Unlock: lambda _m, x: ([f"lock_{x.lock}++"], []),
    p.FlagSet: lambda _m, x: ([f"flag_{x.flag} = 1"], []),
    p.FlagClear: lambda _m, x: ([f"flag_{x.flag} = 0"], []),
    p.FlagWait: _Model.flag_wait,
    p.CounterAdd: lambda _m, x: ([f"counter_{x.counter} = counter_{x.counter} + {x.amount}"], []),
    p.CounterWait: _Model.counter_wait,
    p.Signal: _Model.signal,
    p.Await: _Model.wait_for_signal,
    p.StoreFlag: _Model.store_flag,
    p.WaitFlag: _Model.wait_flag,
}
