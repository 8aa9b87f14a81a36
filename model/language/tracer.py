"""The eager tracer: runs a body once for each combination of answers to the questions it asks.

A body is a plain Python function. While one runs, the design's `Recording` takes down its operations and questions; the
answers come from a prefix that the search replays, then from the first option each time. Depth first, until all
combinations were seen. Each run is repeated: a body that does something else the second time depends on more
than its answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from fencepost.model import program as p
from fencepost.model.language import impure
from fencepost.model.language.errors import Text, end_of, fail, is_own, own_files, raised, shown, text_of
from fencepost.model.language.fingerprints import forget
from fencepost.model.language.graph import Asked, Cut, Did, Drained, Entry, MaybeBegan, MaybeEnded, Merger
from fencepost.model.language.managed import by_kernel
from fencepost.model.language.purity import State
from fencepost.model.operations.device import accesses, holds_host

if TYPE_CHECKING:
    from fencepost.model.language.design import Design
    from fencepost.model.language.graphs import Graph
    from fencepost.model.language.objects import Stream

MAX_QUESTIONS = 400
"""Most questions that one turn may ask."""

MAX_STEPS = 20_000
"""Most operations and questions in one turn: more is a loop that does not end."""

WARN_RUNS = 2**12
"""From more combinations of answers than 12 independent questions have, the tracer warns."""

MAX_RUNS = 2**16
"""Most combinations of answers."""

TWICE = 64
"""Combinations that are traced twice; of those behind them every sixteenth is. The others are compared with the runs that
they share answers with, from which a body that keeps state differs soon enough."""

CURE = "a body may depend on nothing but the answers to its questions; keep what lasts in a d.cell or d.cursor"

CUDA = (p.Alloc, p.EventSync, p.DeviceSync)
"""Operations that call CUDA without naming a stream."""

_SPACES = {"device", "pinned", "pageable", "managed"}
NO_ITEM = (p.StreamSync, p.Alloc, p.RecordStream)
"""Operations that name a stream and enqueue nothing on it."""

running: list[Design] = []
"""The design whose body is being traced; several only when a body calls a design function."""

SiteKey = tuple[int, ...]
"""Identity of the code and instruction of each frame, one after the other."""
LocalKey = tuple[str, str, int, str, Any, "int | None"]
"""Name, kind, occurrence, origin (where it comes from), depth or what decides it, pool."""


_CACHE = 0
"""The opcode of a cache entry, from Python 3.11 on."""
_BEHIND = sys.version_info >= (3, 12)
"""Whether a frame that goes through a generator may be said to be at the instruction or behind it, as it was specialised or not."""


_written: dict[SiteKey, tuple[tuple[CodeType, ...], tuple[Text, ...]]] = {}
"""The code and the text of the frames of a place: all variants of a design share them."""
_MANY = 100_000


class Sites:
    """Numbers the places of operations in the text in order of first appearance."""

    def __init__(self) -> None:
        self._known: dict[SiteKey, int] = {}
        self._calls: dict[tuple[int, int], int] = {}
        self._keep: list[CodeType] = []
        """An id names a code object only while it lives."""
        self.frames: list[tuple[Text, ...]] = []
        """For each site file, line and function of the user's frames, from the body down."""

    def number(self, inside: int = 2) -> int:
        """The site of the call that is being made, whose innermost frames, `inside` of them, are surely the language's own. The user's
        frames end at the tracer's own call of the body."""
        frame: FrameType | None = sys._getframe(inside)
        steps: list[int] = []
        known = own_files
        while frame is not None:
            code = frame.f_code
            if code is _CALL:
                break
            file = code.co_filename
            if not (known[file] if file in known else is_own(file)):
                steps.append(id(code))
                steps.append(frame.f_lasti if not _BEHIND else self._call(code, frame.f_lasti))
            frame = frame.f_back
        key = tuple(steps)
        site = self._known.get(key)
        if site is None:
            found = _written.get(key)
            if found is None:
                if len(_written) >= _MANY:
                    _written.clear()
                users = user_frames()
                found = _written[key] = (tuple([user.f_code for user in users]), tuple(map(text_of, users)))
            self._keep += found[0]
            site = self._enter(key, found[1])
        return site

    def _call(self, code: CodeType, last: int) -> int:
        """The instruction that a frame is at, where the interpreter may say one of the cache entries behind it."""
        found = self._calls.get((id(code), last))
        if found is None:
            text, at = code.co_code, last
            while at > 0 and text[at] == _CACHE:
                at -= 2
            found = self._calls[id(code), last] = at
            self._keep.append(code)
        return found

    def end_of(self, body: Callable[..., Any], first: bool = False) -> int:
        """The site of what happens when the body's frame is gone: its last line; or (`first`) before it is there."""
        code = body.__code__
        key = (id(code), -2 if first else -1)
        site = self._known.get(key)
        if site is None:
            self._keep.append(code)
            text = (code.co_filename, code.co_firstlineno, code.co_name) if first else end_of(code)
            site = self._enter(key, (text,))
        return site

    def place(self, site: int) -> str:
        """`path:line` of the site's innermost frame."""
        if not 0 <= site < len(self.frames) or not self.frames[site]:
            return "<unknown>:0"
        file, line, _ = self.frames[site][-1]
        return shown(file, line)

    def _enter(self, key: SiteKey, frames: tuple[Text, ...]) -> int:
        site = self._known[key] = len(self.frames)
        self.frames.append(frames)
        return site


class Life:
    """One value made or received in a turn: which local it is, and why it can no longer be used."""

    others: tuple[tuple[str, Life | None], ...] = ()
    """What else refers to the same bytes, in words; None where it is out of this turn's hands."""
    gpu: int | None = None
    received = False
    """Whether it came out of a queue or cell: it may be the same as any other."""
    interprocess = True
    """Of an event that is made here: whether another process may get it."""
    bytes: int | None = None
    """Of device memory, where it is known; of an event that was recorded here."""

    def __init__(self, recording: Recording, operand: p.Local, kind: str, name: str) -> None:
        self.recording, self.operand, self.local, self.kind, self.name = recording, operand, operand.id, kind, name
        self.dead: str | int | None = None
        """Why it can no longer be used: words, or the site of its release."""

    def check(self, current: Recording) -> int:
        """The local's number. Raises `DesignError` when the value belongs to another turn or is gone."""
        if self.recording is not current:
            if self.recording.tracer is current.tracer:
                fail(f"{self.name!r} was made in an earlier turn; a Python variable kept it: {CURE}")
            fail(f"{self.name!r} was made in thread {self.recording.tracer.name!r}; hand it over through a queue or a cell")
        if self.dead is not None:
            sites = current.tracer.sites
            why = self.dead if isinstance(self.dead, str) else f"its release at {sites.place(self.dead)}"
            fail(f"{self.name!r} is used after {why}")
        return self.local


class Frame:
    """A scope that holds references: the body's, a `d.scope`, a `maybe` block or one iteration of a drain loop."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.held: list[Life] = []
        self.endings: list[Callable[[int | None], None]] = []
        """What to do before it lets go of what it holds; called with the site, or None for the current place."""
        self.ended = False


class CutRun(BaseException):
    """Ends a run from inside: what follows is known from other runs. No error, and not to be caught by a body."""


class Recording:
    """One run of a body: what it did and asked, and what it holds."""

    def __init__(self, tracer: Tracer, prefix: list[int], expected: list[int], repeats: bool = False) -> None:
        self.tracer, self.prefix, self.expected, self.repeats = tracer, prefix, expected, repeats
        self.design = design = tracer.design
        self._table = tracer.table
        self.thread = get_ident()
        self.entries: list[int] = []
        self.path: list[tuple[int, int]] = []
        """Index of the answer and number of options of each question that branches."""
        self.asked_at: list[int] = []
        """Position in `entries` of each of these questions."""
        self.choices: dict[str, tuple[tuple[str, ...], int]] = {}
        self.below: dict[int, bool] = {}
        """Answers to `n < c` so far."""
        self.counts: dict[tuple[str, str], int] = {}
        self.advances: dict[int, int] = {}
        """Per cursor, how often it advanced in this turn."""
        self.frames = [Frame("body", tracer.name)]
        self.streams: list[Stream] = []
        self.usual: Stream | None = tracer.default
        """The current stream outside of all `with stream:`, once it was asked for."""
        self.uncertain: set[tuple[int, int]] = set()
        """Cursors, with a number of advances, after which a `maybe` block advanced them."""
        self.drains = 0
        self.steps = 0
        self.over = False
        self.capturing: Graph | None = None
        """The graph whose capture is going on."""
        self.aside = False
        """Whether the call does on the side what is taken down now: nobody wrote it down."""
        self._ordering = False
        self.calling: str | None = None
        """The lock of the call that is being taken down, on a stream on which each call takes one."""
        self.held: dict[int, int] = {}
        """How often each lock was taken in this turn and not given back."""
        self.kept: list[tuple[str, Callable[[], Any]]] = []
        """What the language itself remembers of values of this turn: what of, and a snapshot of it."""
        self._plain = tracer.calls_cuda and not (design._exclusive or design._one_call or design._blocking)
        """Whether an operation outside of a capture is taken down as it is; no body changes that."""
        self.ahead: dict[tuple[str, str], int] = {}
        """How often each (communicator, rank) came in this turn and has not waited."""

    # ------------------------------------------------------------ what the language's objects call

    def do(self, operation: p.Operation, again: bool = False, enqueues: bool = True) -> None:
        """Take down an operation at the user's current place, or give it to the graph that is being captured.

        `again`: it is a captured node, in which all is that is to be added; `enqueues`: a copy puts something on its stream (S49).
        """
        if self._plain and self.capturing is None:
            self._take_down(operation)
            return
        if self.tracer.design._exclusive and not again and isinstance(operation, p.Launch) and operation.kernel:
            operation = by_kernel(operation, self)
        if self.capturing is not None and enqueues and self.capturing._take(operation, self):
            self.step()
            return
        if enqueues and not self.tracer.calls_cuda and (isinstance(operation, CUDA) or getattr(operation, "stream", None) is not None):
            fail(f"callback {self.tracer.name!r}: a host function may not call CUDA (S104); hand the work to a thread of its own")
        if self.tracer.design._one_call and enqueues and not self.calling and not isinstance(operation, NO_ITEM):
            stream = getattr(operation, "stream", None)
            if stream is not None and stream.id in self.tracer.design._one_call and self.tracer.kind != "setup":
                self._do_alone(operation, stream, again)
                return
        lock: int | None = None
        if self.tracer.design._blocking and enqueues and not self._ordering:
            self._ordering = True
            with self.implied():
                lock = self.tracer.design._legacy_edges(operation, self)
            self._ordering = False
        self._take_down(operation)
        if lock is not None:
            with self.implied():
                self._take_down(p.Unlock(lock))

    def _do_alone(self, operation: p.Operation, stream: p.Operand, again: bool) -> None:
        """Enqueue on a stream on which each call is one step; a call that is known to wait does so when it has enqueued, any other in it."""
        enqueued = self._without_its_wait(operation)
        with self.as_one_call("", stream):
            self.do(enqueued, again)
        if enqueued is not operation:
            with self.implied():
                self._take_down(p.StreamSync(stream))

    def _without_its_wait(self, operation: p.Operation) -> p.Operation:
        """What a call that waits for its own item enqueues (S33, S49). The operation as it is where it waits for none, or may."""
        if isinstance(operation, p.Item) and self._space(operation.src) == "device":
            return p.Launch("item", operation.stream, accesses(operation), operation.time, False)
        if isinstance(operation, p.Copy):
            source, target = self._space(operation.src), self._space(operation.dst)
            if {source, target} <= _SPACES and holds_host(operation, source, target):
                return msgspec.structs.replace(operation, raw=True)  # of a blocking copy no allocator is told either (S79, S83)
        return operation

    def may_hold_host(self, operation: p.Copy) -> bool:
        """Whether the copy waits for its own item, as far as is known where its two sides live."""
        source, target = self._space(operation.src), self._space(operation.dst)
        return not operation.non_blocking and (not {source, target} <= _SPACES or holds_host(operation, source, target))

    def _space(self, operand: p.Operand) -> str:
        """Where the memory lives, as far as that is known here; else what no space is called."""
        if isinstance(operand, p.Local):
            return str(list(self.tracer.locals)[operand.id][3])
        thing = self.tracer.design._objects[operand.id]
        return thing.space if isinstance(thing, p.Memory) else ""

    def as_one_call(self, what: str, stream: p.Operand) -> OneCall:
        """What is enqueued on the stream in `with` is one call: no other thread's items come between (S2, S93, S103)."""
        design = self.tracer.design
        if what and self.tracer.kind != "setup" and (self.tracer.name, what) not in design._long_calls.setdefault(stream.id, []):
            design._long_calls[stream.id].append((self.tracer.name, what))
        return OneCall(self, design._lock_of_calls(stream.id) if self.tracer.kind != "setup" else None, enqueues=True)

    def alone(self, doing: str | None) -> OneCall:
        """What is taken down in `with` is one call among those of other threads that do the same, named by `doing`; None: no others do."""
        return OneCall(self, doing)

    def _take_down(self, operation: p.Operation) -> None:
        self.step()
        entries, expected = self.entries, self.expected
        at = len(entries)
        if at < len(expected):
            number = expected[at]
            known = self._table[number]
            if type(known) is Did and known.operation == operation and known.implied == self.aside:
                entries.append(number)  # a replay: the place is known, and dear to find
                return
        self._enter(Did(operation, self.tracer.sites.number(3), self.aside))

    def at(self, operation: p.Operation, site: int | None) -> None:
        """Take down an operation at a known place; None: the current one."""
        if site is None:
            self.do(operation)
            return
        known = self._expected()
        if type(known) is Did and known.site == site and known.operation == operation and known.implied == self.aside:
            self.entries.append(self.expected[len(self.entries)])
        else:
            self._enter(Did(operation, site, self.aside))

    @contextmanager
    def implied(self) -> Iterator[None]:
        """What is taken down meanwhile is what a call does on the side."""
        before, self.aside = self.aside, True
        try:
            yield
        finally:
            self.aside = before

    def _expected(self) -> Entry | None:
        """What an earlier run with the same answers so far did next."""
        at = len(self.entries)
        return self._table[self.expected[at]] if at < len(self.expected) and not self.over else None

    def step(self) -> None:
        """Count one call of the language; a turn that never ends is an error."""
        if self.over:
            raise CutRun  # the body caught the first one
        self.steps += 1
        if self.steps > MAX_STEPS:
            fail(f"more than {MAX_STEPS} operations in one turn of {self.tracer.name!r}; does a loop of the body ever end?")

    def ask(self, question: p.Question, options: tuple[str, ...] = ("yes", "no")) -> str:
        """The answer that this run gives to the question."""
        if self.capturing is not None:
            fail("a question during a capture: the graph is captured once, and asking a stream or event is illegal (S99)")
        if not self.tracer.calls_cuda and isinstance(question, (p.EventQuery, p.StreamQuery)):
            fail(f"callback {self.tracer.name!r}: a host function may not call CUDA (S104), not even a query")
        self.step()
        answer = options[self._branch(len(options))]
        known = self._expected()
        if isinstance(known, Asked) and known.answer == answer and known.question == question:
            self.entries.append(self.expected[len(self.entries)])
            return answer
        self._enter(Asked(question, options, answer, self.tracer.sites.number()))
        return answer

    def yes(self, question: p.Question) -> bool:
        """The answer to a yes-no question."""
        return self.ask(question) == "yes"

    def local(self, name: str, kind: str, origin: str, depth: Any = None, pool: int | None = None) -> Life:
        """A new value of this turn, held by the innermost scope."""
        called = (name, kind)
        occurrence = self.counts.get(called, 0)
        self.counts[called] = occurrence + 1
        life = Life(self, self.tracer.local((name, kind, occurrence, origin, depth, pool)), kind, name)
        frame = self.frames[-1]
        if frame.kind == "scope" and kind != p.MEMORY:
            # Only memory is reference counted. Other values die with what may not have happened, not with a scope.
            frame = next(f for f in reversed(self.frames) if f.kind != "scope")
        frame.held.append(life)
        return life

    def locks(self) -> dict[Any, int]:
        """How often each lock is held, and each communicator's rank is ahead of its waits."""
        return {key: count for kept in (self.held, self.ahead) for key, count in kept.items() if count}

    def same_locks(self, before: dict[Any, int], what: str, otherwise: str, place: str | None = None) -> None:
        """Raise `DesignError` where a block takes or gives back a lock that is given back or taken outside of it."""
        now = self.locks()
        for key in sorted({*before, *now}, key=str):
            change = now.get(key, 0) - before.get(key, 0)
            if not change:
                continue
            if isinstance(key, tuple):
                fail(f"{what}: communicator {key[0]!r}: rank {key[1]!r} comes to a meeting and waits outside of it; call both in it", place)
            thing = self.tracer.design._objects[key]
            if isinstance(thing, p.Lock) and not thing.semaphore:
                does, does_not = ("takes", "gives it back") if change > 0 else ("gives back", "takes it")
                fail(f"{what} {does} lock {thing.name!r} and {does_not} outside of it, where it may not be held {otherwise}; do both in it", place)

    def remembered(self) -> list[tuple[str, Any]]:
        """Snapshots of what the language remembers."""
        return [(what, look()) for what, look in self.kept]

    def same_memory(self, before: list[tuple[str, Any]], block: str, place: str | None = None) -> None:
        """Raise `DesignError` where a block hands over or ends what is decided about again outside of it."""
        for (what, then), (_, look) in zip(before, self.kept, strict=False):
            if then != look():
                fail(f"{block} hands over or ends {what}, which is made outside of it; ask with d.choose instead", place)

    def alive(self) -> list[tuple[Frame, Life]]:
        """What the open scopes hold."""
        return [(frame, life) for frame in self.frames for life in frame.held if life.dead is None]

    def release(self, life: Life) -> None:
        """`x.release()`: the reference ends now."""
        life.check(self)
        self.do(p.Drop(life.local))
        life.dead = self.tracer.sites.number()

    def leave(self, frame: Frame, site: int | None = None) -> None:
        """The scope ends: what it still holds is dropped, the latest first."""
        assert self.frames[-1] is frame, "scopes end in the reverse order"
        self.frames.pop()
        frame.ended = True
        for ending in frame.endings:
            ending(site)
        what = self._end_of(frame) if frame.held else ""
        for life in reversed(frame.held):
            if life.dead is None:
                if life.kind == p.MEMORY:
                    self.at(p.Drop(life.local), site)
                life.dead = what

    @staticmethod
    def _end_of(frame: Frame) -> str:
        """What ends the values that the frame held, in words."""
        if frame.kind == "body":
            return "the end of the turn"
        if frame.kind == "scope":
            return f"the end of scope {frame.name!r}"
        if frame.kind == "maybe":
            return f"the end of maybe {frame.name!r}, which may not have run"
        return "the end of its iteration of the drain loop"

    # ------------------------------------------------------------ maybe and drain

    def begin_maybe(self, question: p.Question) -> None:
        """The block of a `maybe` begins; it runs when the answer is "yes"."""
        if self.capturing is not None:
            fail("a maybe during a capture: the graph is captured once, with the block or without it; capture one graph for each")
        self.step()
        self._enter(MaybeBegan(question, self.tracer.sites.number()))

    def looked_at(self) -> bool:
        """Whether an earlier run came here with the same answers, and went through the block that begins now: it was looked at then, and
        this run only has to do the same again."""
        if self.repeats:
            return True
        inside = 0
        for number in self.expected[len(self.entries) :]:
            entry = self._table[number]
            if isinstance(entry, MaybeBegan):
                inside += 1
            elif isinstance(entry, MaybeEnded):
                inside -= 1
                if inside == 0:
                    return True
        return False

    def end_maybe(self) -> None:
        """The block of the innermost `maybe` ended."""
        self._enter(MaybeEnded())

    def drain_head(self, queue: int, visit: int, same: bool) -> bool:
        """Whether a drain loop goes on. The run is cut when the loop comes back to its head with nothing changed (`same`),
        otherwise at the third visit: then the first two tell whether what happened in the loop matters."""
        if self.capturing is not None:
            fail("a drain during a capture: the graph is captured once, with as many items as there were; drain before it")
        self.step()
        site = self.tracer.sites.number()
        if visit == 2 or same:
            self._enter(Cut(self.drains, site))
            self.over = True
            raise CutRun
        more = self._branch(2) == 0
        self._enter(Drained(queue, self.drains, visit, more, site))
        return more

    # ------------------------------------------------------------

    def _enter(self, entry: Entry) -> None:
        if not self.over:
            self.entries.append(self.tracer.intern(entry))

    def _branch(self, options: int) -> int:
        at = len(self.path)
        if at >= MAX_QUESTIONS:
            fail(
                f"more than {MAX_QUESTIONS} questions in one turn of {self.tracer.name!r}; a body that polls until "
                "something holds never ends: wait with an operation, use drain(), or end the turn (also after a condition's wait) and ask in the next"
            )
        answer = self.prefix[at] if at < len(self.prefix) else 0
        if answer >= options:
            fail(f"thread {self.tracer.name!r} asks other questions when its body runs again; {CURE}")
        self.path.append((answer, options))
        self.asked_at.append(len(self.entries))
        return answer


class OneCall:
    """A lock around what is one call, where other threads make such calls, too; it orders nothing.

    Locks and waits are taken down here and not in a generator: the frames of `contextlib` would count as the user's.
    """

    def __init__(self, recording: Recording, name: str | None, enqueues: bool = False) -> None:
        """`name`: of the lock, None for none; `enqueues`: the call enqueues on a stream on which each call takes the lock."""
        self._recording, self._name, self._enqueues = recording, name, enqueues

    def _lock(self, name: str, kind: type[p.Acquire] | type[p.Unlock]) -> None:
        lock = self._recording.tracer.design._made(p.Lock(name))
        with self._recording.implied():
            self._recording._take_down(p.Acquire(lock, False) if kind is p.Acquire else p.Unlock(lock))

    def __enter__(self) -> None:
        if self._name is not None:
            self._lock(self._name, p.Acquire)
            if self._enqueues:
                self._recording.calling = self._name

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._name is not None:
            if self._enqueues:
                self._recording.calling = None
            if error is None:
                self._lock(self._name, p.Unlock)


class Tracer:
    """Traces one body into a thread."""

    def __init__(
        self, design: Design, name: str, kind: str, body: Callable[..., Any], default: Stream | None,
        around: tuple[p.Operation, p.Operation] | None = None,
    ) -> None:  # fmt: skip
        self.design, self.name, self.kind, self.body, self.default = design, name, kind, body, default
        self.around, self.calls_cuda = around, True
        """Of the body of a host function: what its driver thread does before and after; and whether it may call CUDA (S104)."""
        self.sites = design._sites
        self.locals: dict[LocalKey, p.Local] = {}
        self.table: list[Entry] = []
        self._entries: dict[Entry, int] = {}
        self.state: State
        """What the body can reach, as it was before its first run."""
        self.captures = False
        """Whether the body captures a graph; then it may do nothing else."""
        self.implied: tuple[int, ...] = ()
        """The nodes of what its calls do on the side."""

    def intern(self, entry: Entry) -> int:
        """Equal entries get one number, so that runs are compared by lists of integers."""
        number = self._entries.get(entry)
        if number is None:
            number = self._entries[entry] = len(self.table)
            self.table.append(entry)
        return number

    def local(self, key: LocalKey) -> p.Local:
        """The local that this value is; the same object in all runs, which makes their operations cheap to compare."""
        known = self.locals.get(key)
        if known is None:
            known = self.locals[key] = p.Local(len(self.locals))
        return known

    def trace(self, arguments: tuple[Any, ...]) -> tuple[tuple[p.Node, ...], int]:
        """All runs of the body, merged: nodes and entry. Raises `DesignError` for a body that is none."""
        if not running:
            forget()
        self.state = State(self.body)
        impure.check(self.state, self.name)
        runs: list[list[int]] = []
        prefix: list[int] = []
        expected: list[int] = []
        while True:
            recording = self._run(prefix, expected, arguments)
            runs.append(recording.entries)
            self._compare()  # each: a later run may put back what it finds changed
            if len(runs) <= TWICE or len(runs) % 16 == 0:
                self._again(recording, arguments)
            path = list(recording.path)
            while path and path[-1][0] + 1 == path[-1][1]:
                path.pop()
            if not path:
                break
            prefix = [answer for answer, _ in path]
            prefix[-1] += 1
            expected = recording.entries[: recording.asked_at[len(prefix) - 1]]
            if len(runs) >= MAX_RUNS:
                fail(
                    f"more than {MAX_RUNS} combinations of answers in one turn of {self.name!r}; use d.maybe for blocks "
                    "that may not run, it traces them once",
                    self._body_place(),
                )
        if len(runs) > WARN_RUNS:
            self.design._warn(
                f"{self._body_place()}: {len(runs)} combinations of answers in one turn of {self.name!r}; use d.maybe for "
                "blocks that may not run, it traces them once"
            )
        self._compare()
        merger = Merger(runs, self.table, self._impure, self._depends)
        nodes, entry = merger.nodes(merger.build())
        self.implied = tuple(sorted(merger.implied))
        if not nodes and not self.captures:
            fail(f"the body of {self.name!r} does nothing; remove the thread or write what it does", self._body_place())
        return nodes, entry

    def _again(self, recording: Recording, arguments: tuple[Any, ...]) -> None:
        """The same answers must give the same run."""
        again = self._run([answer for answer, _ in recording.path], recording.entries, arguments, repeats=True)
        if again.entries != recording.entries or again.path != recording.path:
            self._compare()  # says more, where it tells
            at = next(
                (i for i, (a, b) in enumerate(zip(recording.entries, again.entries, strict=False)) if a != b),
                min(len(recording.entries), len(again.entries)),
            )
            self._impure(self._site(recording.entries, at), self._site(again.entries, at))

    def _run(self, prefix: list[int], expected: list[int], arguments: tuple[Any, ...], repeats: bool = False) -> Recording:
        recording = Recording(self, prefix, expected, repeats)
        self.design._recording = recording
        if not running:
            raised.clear()
        caught = len(raised)
        running.append(self.design)
        try:
            if self.around is not None:
                recording.at(self.around[0], self.sites.end_of(self.body, first=True))
            result = _call_body(self.body, arguments)
            if len(raised) > caught:
                raise raised[caught]  # the body caught it
            if recording.over:
                fail(
                    f"the body of {self.name!r} catches the exception by which a run ends; catch Exception at most, and do not return "
                    "or break from a finally block",
                    self._body_place(),
                )
            if result is not None and (hasattr(result, "__next__") or hasattr(result, "__await__")):
                what = "a generator" if hasattr(result, "__next__") else "a coroutine (async def)"
                if hasattr(result, "close"):
                    result.close()  # or the interpreter complains that nobody awaited it
                fail(f"the body of {self.name!r} is {what}; write a plain function", self._body_place())
            for (group, rank), count in recording.ahead.items():
                if count > 0 and self.kind == "loop":
                    fail(
                        f"communicator {group!r}: rank {rank!r} comes in every turn of {self.name!r} and does not wait for the "
                        "others; call host_wait as often",
                        self._body_place(),
                    )
            recording.leave(recording.frames[-1], self.sites.end_of(self.body))
            if self.around is not None:
                recording.at(self.around[1], self.sites.end_of(self.body))
        except CutRun:
            pass
        except RecursionError:
            fail(f"the body of {self.name!r} calls itself without end; end the turn and go on in the next", self._body_place())
        finally:
            recording.over = True
            running.pop()
            self.design._recording = None
        return recording

    def _compare(self) -> None:
        changed = self.state.changes()
        if changed:
            fail(f"the body of {self.name!r} changes {changed[0]!r}, which lives on; {CURE}", self._body_place())

    def _site(self, entries: list[int], at: int) -> int:
        return getattr(self.table[entries[at]], "site", -1) if at < len(entries) else -1

    def _body_place(self) -> str:
        code = self.body.__code__
        return shown(code.co_filename, code.co_firstlineno)

    def _impure(self, site: int, other: int) -> NoReturn:
        known = next((s for s in (other, site) if s >= 0), None)
        place = self._body_place() if known is None else self.sites.place(known)
        fail(f"the body of {self.name!r} does not do the same when it runs again with the same answers; {CURE}", place)

    def _depends(self, site: int, what: str) -> NoReturn:
        fail(
            f"what follows depends on what happened in {what}; ask with d.choose or keep the outcome in a d.cell",
            self.sites.place(site),
        )


def user_frames() -> list[FrameType]:
    """The user's frames of the run that is going on, from the body down."""
    frame: FrameType | None = sys._getframe(1)
    found: list[FrameType] = []
    while frame is not None and frame.f_code is not _CALL:
        if not is_own(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _call_body(body: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return body(*arguments)


_CALL = _call_body.__code__
