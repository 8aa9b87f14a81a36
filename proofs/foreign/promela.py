"""A bounded instance of a program as a Promela model for SPIN: a foreign opinion with semantics of its own.

Streams are processes that run items one after the other; a race monitor counts who is inside an access. What must end
before an item, a wait or a "yes" is a vector of counts, one per stream: so many items of that stream. Nothing of
happens-before is used, and nothing of the other engines beyond what an operation lowers to (model/operations).
"""

from __future__ import annotations

from fencepost.model import program as p
from fencepost.model.operations import Context, lower
from fencepost.proofs.foreign.promela_effects import EFFECTS, Effects
from fencepost.proofs.foreign.promela_instance import LARGEST, PAD, NotExported, overlap, spelled
from fencepost.proofs.foreign.promela_words import comment, counter_of, inline, label, word_of

__all__ = ["NotExported", "promela"]


def promela(program: p.Program, steps: int, *, environment: str | None = None, platform: str | None = None) -> str:
    """The model of all runs with at most `steps` turns per loop thread; an assertion fails where an access races, reads
    what nobody wrote, or gets from an empty cell. Raises `NotExported`, and `ValueError` on an unknown name."""
    return _Model(program, steps, environment, platform).text()


class _Model(Effects):
    """One model in the making."""

    # ------------------------------------------------------------ the whole

    def text(self) -> str:
        """The Promela text."""
        threads = [self._thread(t, thread) for t, thread in enumerate(self.program.threads)]
        parts = [self._head(), self._queues(), *self._stream_processes(), *threads]
        text = "\n".join(parts) + "\n"
        for used in range(self.width + 1):
            text = text.replace(f"{PAD}{used}>", ", -1" * (self.width - used))
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
            inline("copy_vec(to, from)", [f"to.c[{s}] = from.c[{s}]" for s in every]),
            inline("join_vec(to, from)",
                    [f"if :: from.c[{s}] > to.c[{s}] -> to.c[{s}] = from.c[{s}] :: else fi" for s in every]),
            inline("zero_vec(to)", [f"to.c[{s}] = 0" for s in every]),
            self._start("read", "writers"),
            self._start("write", "writers", "readers", "repeaters"),
            self._start("repeat", "writers"),
        ]  # fmt: skip
        if len(self.paths) > 1:
            lines.append("/* a location's parts: " + comment(", ".join(map(spelled, self.paths))) + " */")
        if many["block"]:
            size, block = many["block"], self.block("v")
            lines += [
                f"byte refs[{size}]; short owner[{size}]; byte noted[{size}]; bit given_up[{size}]; "
                f"bit written[{size * len(self.paths)}];",
                f"Vec over[{size}]; byte next_block = 0;",
                inline("hold(v)", [f"if :: {self.held('v')} -> refs[{block}]++ :: else fi"]),
                inline("let_go(v)", [
                    f"if :: {self.held('v')} -> refs[{block}]--; "
                    f"if :: refs[{block}] == 0 -> given_up[{block}] = 1; "
                    f"zero_vec(over[{block}]); "
                    + "; ".join(
                        f"if :: (noted[{block}] & {1 << s}) -> "
                        f"join_vec(over[{block}], tail[{s}]) :: else fi" for s in every)
                    + " :: else fi :: else fi"]),
            ]  # fmt: skip
        else:
            lines += [inline("hold(v)", ["skip"]), inline("let_go(v)", ["skip"])]
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
                lines.append(f"short word_{i};  /* {comment(o.name)} */")
            elif isinstance(o, p.Pool):
                lines.append(f"bit taken_{i}[{o.size}]; Vec back_{i}[{o.size}];")
        if many["cell"]:
            lines.append(f"bit cell_full[{many['cell']}];")
            lines += [f"short cell_{v}[{many['cell']}];" for v in range(self.values)]
        for name, number in self.agreed.items():
            lines.append(f"byte agreed_{number}[{self.steps}];  /* {comment(name)} */")
        return "\n".join(lines)

    def _start(self, word: str, *others: str) -> str:
        """Nobody is inside who must not be: at the same place, or at one that shares bytes with it."""
        many = len(self.paths)
        if many == 1:
            free = " && ".join(f"{other}[l] == 0" for other in others)
            return inline(f"start_{word}(l)", [f"assert({free})"])
        ways = []
        for i, path in enumerate(self.paths):
            near = [f"{other}[l + {k - i}] == 0".replace("+ -", "- ") for other in others
                    for k, one in enumerate(self.paths) if overlap(path, one)]  # fmt: skip
            ways.append(f":: (l) % {many} == {i} -> assert({' && '.join(near)})")
        return inline(f"start_{word}(l)", [f"if {' '.join(ways)} fi"])

    def _queues(self) -> str:
        lines = []
        for i, o in enumerate(self.program.objects):
            if isinstance(o, p.Queue):
                if o.capacity > LARGEST:
                    raise NotExported(f"a capacity of {o.capacity} (queue {o.name!r}; at most {LARGEST})")
                fields = ", ".join(["byte", *["short"] * self.values])
                lines.append(f"chan queue_{i} = [{o.capacity}] of {{ {fields} }};  /* {comment(o.name)} */")
            elif isinstance(o, p.Channel):
                most = max(self.signals_of(i), 1)
                if most > LARGEST:
                    raise NotExported(f"more than {LARGEST} signals within {self.steps} turns")
                size = most if o.capacity is None else min(o.capacity, most)
                lines.append(f"chan channel_{i} = [{size}] of {{ byte }};  /* {comment(o.name)} */")
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
            check = [f"start_{word_of(a)}({loc})" for a, loc in used]
            enter = [f"{counter_of(a)}[{loc}]++" for a, loc in used]
            leave = [f"{counter_of(a)}[{loc}]--" for a, loc in used]
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
                body.append(f"  goto {label(node.next)};")
            else:
                body += ["  " + line for line in self._ask(node)]
        locals_ = [f"short v{i} = -1;" for i in range(len(thread.locals))]
        choices = [f"byte chosen_{i};" for i in self.chosen.values()]
        declared = " ".join(["short n, x, y;", "Vec w;", *[f"short y{i};" for i in range(self.values)], "byte tag;", *locals_, *choices])
        ends = [f"let_go(v{i}); v{i} = -1" if x.kind == p.MEMORY else f"v{i} = -1" for i, x in enumerate(thread.locals)]
        ends += [f"chosen_{i} = 0" for i in self.chosen.values()]
        again = f"if :: n < {self.steps} -> goto {label(thread.entry)} :: else -> skip fi" if thread.kind == "loop" else "skip"
        after = "setups_done++" if thread.kind == "setup" else "skip"
        return "\n".join([
            f"proctype thread_{t}() {{  /* {comment(thread.name)} */",
            f"  {declared}",
            "  skip;" if thread.kind == "setup" else "  AFTER_SETUP;",
            f"  goto {label(thread.entry)};" if thread.entry != p.END else "  goto TURN_ENDS;",
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
            handler = EFFECTS.get(type(effect))
            if handler is None:
                raise NotExported(f"the operation {type(effect).__name__}")
            now, after = handler(self, effect)
            pieces += now
            later += after
        return [f"atomic {{ {'; '.join(pieces)} }}" if pieces else "skip", *later]

    # ------------------------------------------------------------ questions

    def _ask(self, node: p.Ask) -> list[str]:
        q = node.question
        branches = dict(node.branches)
        if isinstance(q, p.Choose):
            return self._choose(q, branches)
        if isinstance(q, p.QueueTag):
            fields = "".join(f", y{i}" for i in range(self.values))
            ways = [f":: tag == {self._tag(q.queue, a)} -> goto {label(n)}" for a, n in node.branches]
            return [f"queue_{q.queue} ? <tag{fields}>;", f"if {' '.join(ways)} fi;"]
        if isinstance(q, p.Maybe):
            return [f"if {' '.join(f':: true -> goto {label(n)}' for n in branches.values())} fi;"]
        if isinstance(q, (p.EventQuery, p.StreamQuery)):
            what = self.event(q.event) if isinstance(q, p.EventQuery) else self._own(q.stream)
            test = f"READY({what})"
        else:
            test = self._test(q)
        yes, no = (f"goto {label(branches[a])}" if a in branches else "false" for a in ("yes", "no"))
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
        ways = [f":: ({where} == 0 || {where} == {numbers[a]}) -> {where} = {numbers[a]}; goto {label(n)}" for a, n in branches.items()]
        return [f"atomic {{ if {' '.join(ways)} fi }};"]
