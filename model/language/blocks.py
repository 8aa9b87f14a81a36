"""`with` blocks: processes, scopes that hold references, and blocks that may not run."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from fencepost.model import program as p
from fencepost.model.language.errors import DesignError, fail, shown, text_of, user_frame
from fencepost.model.language.fingerprints import Known, fingerprint
from fencepost.model.language.purity import State
from fencepost.model.language.tracer import CutRun, Frame, user_frames
from fencepost.model.language.used_after import statements, used_after

if TYPE_CHECKING:
    from fencepost.model.language.design import Design
    from fencepost.model.language.objects import Tensor


class Process:
    """What is made inside `with d.process(name, gpu=k):` belongs to that process and its GPU."""

    def __init__(self, design: Design, name: str, gpu: int) -> None:
        self._design, self.name, self.gpu = design, name, gpu

    def __repr__(self) -> str:
        return f"<process {self.name!r}>"

    def __enter__(self) -> Process:
        if self._design._recording is not None:
            fail(f"process {self.name!r} is entered in a body; a thread is of one process: @d.loop(name, process=...)")
        self._design._processes.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._design._processes.pop()


class Scope:
    """The frame of a Python call: what is made or received in it is released at its end."""

    def __init__(self, design: Design, name: str) -> None:
        self._design, self._frame = design, Frame("scope", name)

    def __enter__(self) -> Scope:
        self._design._running().frames.append(self._frame)
        return self

    def keep(self, *tensors: Tensor) -> None:
        """The call returns these: the scope around this one holds them from its end on."""
        frames = self._design._running().frames
        if self._frame not in frames:
            fail("keep() after the end of its scope")
        for tensor in tensors:
            life = tensor._life
            if life is None or life not in self._frame.held:
                fail(f"keep({tensor!r}): this scope does not hold it")
            life.check(self._design._running())
            self._frame.held.remove(life)
            frames[frames.index(self._frame) - 1].held.append(life)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        recording = self._design._recording
        if recording is None or isinstance(error, CutRun):
            return
        if error is not None and recording.frames[-1] is not self._frame:
            return  # a maybe in it was left by the error, which is what the user has to see
        recording.leave(self._frame)


class MaybeBlock:
    """A block that may not run. The tracer runs it once and lets the thread go past it as well.

    It is a scope: what is made in it is released at its end. Nothing that follows may depend on whether it ran.
    """

    def __init__(self, design: Design, name: str) -> None:
        self._design, self._name, self._frame = design, name, Frame("maybe", name)
        self._outside: State | None = None

    def __bool__(self) -> bool:
        fail(f"maybe {self._name!r} is a block: with d.maybe({self._name!r}):; ask with d.choose")

    def __enter__(self) -> None:
        recording = self._design._running()
        user = user_frame()
        assert user is not None
        self._text, self._block = _block_at(user)
        looked_at = recording.looked_at()
        self._outside = None if looked_at else recording.tracer.state.current()
        self._before = {} if looked_at else _variables()
        self._advances, self._held = dict(recording.advances), recording.alive()
        self._memory = (dict(recording.counts), dict(recording.below))
        self._locks, self._kept = recording.locks(), recording.remembered()
        recording.begin_maybe(p.Maybe(self._name))
        recording.frames.append(self._frame)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        recording = self._design._recording
        if recording is None or error is not None:
            if isinstance(error, Exception) and not isinstance(error, (CutRun, DesignError)):
                fail(
                    f"{type(error).__name__} ({error}) leaves maybe {self._name!r}; what follows would not be traced: catch it in the block, or "
                    "ask with `if d.choose(...)` instead",
                    self._text,
                )
            return
        recording.leave(self._frame)
        for _, life in self._held:
            if life.dead is not None:
                fail(
                    f"maybe {self._name!r} releases {life.name!r}, which is made outside of the block; ask with d.choose, "
                    "or release it behind the block",
                    self._text,
                )
        recording.same_memory(self._kept, f"maybe {self._name!r}", self._text)
        recording.same_locks(self._locks, f"maybe {self._name!r}", "in a run without it", self._text)
        recording.end_maybe()
        recording.counts, recording.below = self._memory  # the same names and questions follow when it does not run
        for cursor, count in recording.advances.items():
            before = self._advances.get(cursor, 0)
            recording.uncertain |= {(cursor, advances) for advances in range(before, count)}
        if self._outside is None:
            return
        frames = user_frames()
        running = [frame.f_code for frame in frames]
        own = {name for _, name in self._before}  # of the body and its helpers: told apart below
        for code, name in self._outside.changed():
            if name not in own or code not in running:
                self._changed(name)
        for (depth, name), value in _variables().items():
            known = self._before.get((depth, name))
            if known == value:
                continue
            object_ = frames[depth].f_locals[name]
            changed_inside = known is not None and known[0] == value[0] and not _plain(object_)
            if changed_inside or depth < len(frames) - 1 or self._block.uses(name):
                self._changed(name)
        gone = [name for depth, name in self._before if depth == len(frames) - 1 and name not in frames[depth].f_locals]
        for name in gone:
            if self._block.uses(name):
                self._changed(name)

    def _changed(self, name: str) -> NoReturn:
        fail(
            f"maybe {self._name!r} changes {name!r}, and what follows uses it though the block may not have run; "
            "ask with d.choose or keep the outcome in a d.cell",
            self._text,
        )


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float, str, bytes, type(None)))


def _variables() -> dict[tuple[int, str], tuple[Any, ...]]:
    """The variables of the body and of its helpers down to the block, by how deep the frame is."""
    known: Known = {}
    return {
        (depth, name): (id(value), fingerprint(value, known=known))
        for depth, frame in enumerate(user_frames())
        for name, value in frame.f_locals.items()
        if not name.startswith(".")
    }


class _Block:
    """The text of a maybe block and of the function around it."""

    def __init__(self, function: ast.AST, block: ast.With) -> None:
        self._function, self._with = function, block
        self._used: dict[str, bool] = {}

    def uses(self, name: str) -> bool:
        """Whether what follows may use the variable as the block left it."""
        if name not in self._used:
            self._used[name] = used_after(self._function, self._with, name)
        return self._used[name]


_blocks: dict[tuple[str, int], tuple[list[str], str, _Block]] = {}


def _block_at(frame: FrameType) -> tuple[str, _Block]:
    """Place and text of the `with` that the frame is entering.

    The same place is read once. Raises `DesignError` as `_read_block` does.
    """
    file, line, _ = text_of(frame)
    lines = linecache.getlines(file)
    known = _blocks.get((file, line))
    if known is None or known[0] is not lines:
        known = _blocks[file, line] = (lines, *_read_block(file, line, lines))
    return known[1:]


def _read_block(file: str, line: int, lines: list[str]) -> tuple[str, _Block]:
    """Place and text of the `with` that the frame is entering.

    Raises `DesignError` when the block can be left other than through its end: the tracer would not see what follows.
    """
    if not lines:
        fail("the source of this maybe block cannot be read; put the design into a file")
    found: tuple[ast.With, ast.AST] | None = None
    for function, node in statements(file):
        if isinstance(node, ast.With) and any(
            item.context_expr.lineno <= line <= (item.context_expr.end_lineno or 0) for item in node.items
        ):
            found = (node, function)  # the innermost one comes last
    if found is None:
        fail("write a maybe block as `with d.maybe(name):`")
    block, function = found
    for statement in block.body:
        for bad in _exits(statement, False):
            word = type(bad).__name__.lower()
            fail(
                f"{word} leaves a maybe block; what follows would not be traced: ask with `if d.choose(...)` instead",
                shown(file, getattr(bad, "lineno", line)),
            )
    return shown(file, line), _Block(function, block)


def _exits(node: ast.AST, in_loop: bool) -> Iterator[ast.AST]:
    """Statements below that leave the block."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return
    if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) or (
        isinstance(node, (ast.Break, ast.Continue)) and not in_loop
    ):
        yield node
        return
    if isinstance(node, (ast.For, ast.While)):
        for statement in node.body:
            yield from _exits(statement, True)
        for statement in node.orelse:
            yield from _exits(statement, in_loop)
        return
    for inner in ast.iter_child_nodes(node):
        yield from _exits(inner, in_loop)
