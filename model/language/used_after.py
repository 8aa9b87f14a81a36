"""Whether a variable may be read behind a block of the text before it is certainly set again."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Union

from fencepost.model.language.errors import text_of

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_TRIES = {"Try", "TryStar"}
"""`except*` is newer than Python 3.10."""
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where statements have others in them."""
_BY_TEXT = {"locals", "vars", "eval", "exec", "dir"}
Flow = tuple[bool, bool]
"""Of some text and a name: whether it may read the name before it sets it, and whether it surely sets it or returns. An exception, a
break and a continue count as if the text behind them were run, and as setting nothing."""


def used_after(function: ast.AST, block: ast.With | ast.For, name: str) -> bool:
    """Whether the name may be read after the block before it is certainly set again; also by what is defined elsewhere in the function
    and may be called after it."""
    inside = {id(n) for s in block.body for n in ast.walk(s)}
    for node in ast.walk(function):
        if isinstance(node, _SCOPES) and node is not function and id(node) not in inside and name in _free(node):
            return True
    reads, _ = _behind(function, block, name)
    return reads


class Loop:
    """The text of a `for` statement and of the function around it."""

    def __init__(self, frame: FrameType, function: ast.AST, loop: ast.For) -> None:
        self._frame, self._function, self._loop = frame, function, loop

    def forgets(self, frame: FrameType, name: str) -> bool:
        """Whether it is a variable of the function around it that each iteration sets before it reads it, and that nothing behind the
        loop reads as the last iteration left it."""
        code = frame.f_code
        if frame is not self._frame or name not in code.co_varnames or name in code.co_cellvars:
            return False
        return _forgotten(self._function, self._loop, name)


@functools.lru_cache(maxsize=4096)  # the text alone decides
def _forgotten(function: ast.AST, loop: ast.For, name: str) -> bool:
    return not _sequence([loop.target, *loop.body], name)[0] and not used_after(function, loop, name)


def loop_at(frame: FrameType) -> Loop | None:
    """The `for` statement that the frame is at the head of, the only one there; None where its text cannot be told."""
    file, line, _ = text_of(frame)
    found = [
        (function, one) for function, one in statements(file)
        if isinstance(one, ast.For) and one.iter.lineno <= line <= (one.iter.end_lineno or 0)
    ]  # fmt: skip
    return Loop(frame, *found[0]) if len(found) == 1 else None


Statement = tuple[ast.AST, Union[ast.With, ast.For]]
_files: dict[str, tuple[list[str], list[Statement]]] = {}


def statements(file: str) -> list[Statement]:
    """The `with` and `for` statements of a source file, each with the function around it, an outer one before those in it."""
    lines = linecache.getlines(file)
    known = _files.get(file)
    if known is None or known[0] is not lines:
        tree = ast.parse("".join(lines))
        known = _files[file] = (lines, list(_statements(tree, tree)))
    return known[1]


def _statements(node: ast.AST, function: ast.AST) -> Iterator[Statement]:
    for field in _BLOCKS:
        for child in getattr(node, field, ()):
            inside = child if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
            if isinstance(child, (ast.With, ast.For)):
                yield inside, child
            yield from _statements(child, inside)


def _behind(node: ast.AST, block: ast.With | ast.For, name: str) -> Flow:
    """The flow from the end of the block to the end of `node`, which contains it."""
    for field in _BLOCKS:
        inner = getattr(node, field, None)
        if not isinstance(inner, list):
            continue
        for at, child in enumerate(inner):
            if child is block:
                ended = _maybe(_sequence(getattr(block, "orelse", ()), name))
                return _around(node, field, _then(ended, _sequence(inner[at + 1 :], name)), name)
            if any(n is block for n in ast.walk(child)):
                first = _behind(child, block, name)
                rest: Flow = (False, False) if field in ("handlers", "cases") else _sequence(inner[at + 1 :], name)
                return _around(node, field, _then(first, rest), name)
    return True, False  # not found where statements are: nothing is known


def _around(node: ast.AST, field: str, flow: Flow, name: str) -> Flow:
    """What may follow in the same statement when the flow in one of its parts has ended."""
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and field == "body":
        again, _ = _flow(node, name)  # another iteration, or none
        if any(isinstance(n, (ast.Break, ast.Continue)) for n in ast.walk(node)):
            return flow[0] or again, False  # what follows in the loop may be left out
        return flow[0] or (not flow[1] and again), flow[1]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return flow[0], False  # who is entered may end the block early
    if type(node).__name__ in _TRIES:
        parts: Any = node
        if field == "body":
            handled = [_flow(handler, name) for handler in parts.handlers]
            flow = _either(_then(flow, _sequence(parts.orelse, name)), *handled)
        last = _sequence(parts.finalbody, name) if field != "finalbody" else (False, False)
        return flow[0] or last[0], flow[1] or last[1]
    return flow


def _then(first: Flow, second: Flow) -> Flow:
    return first[0] or (not first[1] and second[0]), first[1] or second[1]


def _sequence(nodes: Sequence[ast.AST], name: str) -> Flow:
    found: Flow = (False, False)
    for node in nodes:
        found = _then(found, _flow(node, name))
    return found


def _maybe(flow: Flow) -> Flow:
    """Text that may not run."""
    return flow[0], False


def _either(*flows: Flow) -> Flow:
    return any(f[0] for f in flows), all(f[1] for f in flows)


def _flow(node: ast.AST, name: str) -> Flow:
    """What a statement or expression does with the name, in the order in which it is run."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            return node.id == name or node.id in _BY_TEXT, False
        return isinstance(node.ctx, ast.Del) and node.id == name, node.id == name  # what is not set cannot be deleted
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        now: list[ast.AST] = [*node.decorator_list]
        if isinstance(node, ast.ClassDef):
            now += [*node.bases, *(keyword.value for keyword in node.keywords)]
        else:
            now += ast.iter_child_nodes(node.args)
            now += [node.returns] if node.returns is not None else []
        return _then(_sequence(now, name), (False, node.name == name))
    if isinstance(node, ast.arg):
        return _sequence([node.annotation] if node.annotation is not None else [], name)
    if isinstance(node, ast.Dict):
        return _sequence([part for pair in zip(node.keys, node.values, strict=True) for part in pair if part is not None], name)
    if isinstance(node, ast.Lambda):
        return _sequence([d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None], name)
    if isinstance(node, _COMPREHENSIONS):
        first, *others = node.generators
        own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        rest: list[ast.AST] = [first.target, *first.ifs, *(n for g in others for n in (g.iter, g.target, *g.ifs))]
        rest += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return _then(_flow(first.iter, name), (False, False) if name in own else _maybe(_sequence(rest, name)))
    if isinstance(node, ast.AugAssign):
        target = node.target
        read: Flow = (isinstance(target, ast.Name) and target.id == name, False)
        placed = (False, False) if read[0] or isinstance(target, ast.Name) else _flow(target, name)
        return _then(_then(_then(read, placed), _flow(node.value, name)), (False, isinstance(target, ast.Name) and target.id == name))
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        if node.value is None:
            return (False, False) if isinstance(node.target, ast.Name) else _flow(node.target, name)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return _then(_flow(node.value, name), _sequence(targets, name))
    if isinstance(node, (ast.If, ast.IfExp)):
        branches = [node.body, node.orelse]
        return _then(_flow(node.test, name), _either(*(_sequence(b if isinstance(b, list) else [b], name) for b in branches)))
    if isinstance(node, ast.BoolOp):
        return _then(_flow(node.values[0], name), _maybe(_sequence(node.values[1:], name)))
    if isinstance(node, ast.Compare):
        return _then(_sequence([node.left, node.comparators[0]], name), _maybe(_sequence(node.comparators[1:], name)))
    if isinstance(node, (ast.For, ast.AsyncFor)):
        turn = _then(_flow(node.target, name), _sequence(node.body, name))
        return _then(_flow(node.iter, name), _maybe(_then(_maybe(turn), _sequence(node.orelse, name))))
    if isinstance(node, ast.While):
        return _then(_flow(node.test, name), _maybe(_then(_maybe(_sequence(node.body, name)), _sequence(node.orelse, name))))
    if type(node).__name__ in _TRIES:
        parts: Any = node
        tried = _sequence(parts.body, name)
        handled = [_flow(handler, name) for handler in parts.handlers]
        whole = _either(_then(tried, _sequence(parts.orelse, name)), *handled)
        last = _sequence(parts.finalbody, name)
        return whole[0] or last[0], whole[1] or last[1]
    if isinstance(node, ast.ExceptHandler):
        caught = _flow(node.type, name) if node.type is not None else (False, False)
        return _then(_then(caught, (False, node.name == name)), _sequence(node.body, name))
    if isinstance(node, (ast.With, ast.AsyncWith)):
        entered = _sequence([part for item in node.items for part in (item.context_expr, item.optional_vars) if part is not None], name)
        return _then(entered, _maybe(_sequence(node.body, name)))  # who is entered may end the block early
    if isinstance(node, ast.Match):
        cases = [_then((_says(c.pattern, name), name in _captured(c.pattern)), _sequence([*([c.guard] if c.guard else []), *c.body], name)) for c in node.cases]
        final = node.cases[-1]
        fits = final.guard is None and isinstance(final.pattern, ast.MatchAs) and final.pattern.pattern is None  # `case _` fits whatever it is
        return _then(_flow(node.subject, name), _either(*cases) if fits else _maybe(_either(*cases)))
    if isinstance(node, ast.Assert):
        return _then(_flow(node.test, name), _maybe(_flow(node.msg, name)) if node.msg is not None else (False, False))
    if isinstance(node, ast.Return):
        return node.value is not None and _flow(node.value, name)[0], True
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return False, any((alias.asname or alias.name.partition(".")[0]) == name for alias in node.names)
    return _sequence(list(ast.iter_child_nodes(node)), name)


def _says(pattern: ast.AST, name: str) -> bool:
    """Whether a pattern compares with what the name holds."""
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(pattern))


def _captured(pattern: ast.AST) -> set[str]:
    """The names that a pattern sets."""
    found = {getattr(n, "name", None) for n in ast.walk(pattern)} | {getattr(n, "rest", None) for n in ast.walk(pattern)}
    return {one for one in found if isinstance(one, str)}


def _free(scope: ast.AST) -> set[str]:
    """The names that a function or class reads or sets in the function around it."""
    loads: set[str] = set()
    stores: set[str] = set()
    outer: set[str] = set()
    for node in _within(scope):
        if isinstance(node, ast.Name):
            (loads if isinstance(node.ctx, ast.Load) else stores).add(node.id)
        elif isinstance(node, (ast.Nonlocal, ast.Global)):
            outer |= set(node.names)
        elif isinstance(node, ast.arg):
            stores.add(node.arg)
        elif isinstance(node, _SCOPES):
            loads |= _free(node)
            if not isinstance(node, ast.Lambda):
                stores.add(node.name)
    return outer | loads if isinstance(scope, ast.ClassDef) else outer | (loads - stores)


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, and the scopes in it without what is in them."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, _SCOPES):
            todo += ast.iter_child_nodes(node)
