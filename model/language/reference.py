"""The reference page of the language, generated from signatures and docstrings: `python -m fencepost.model.language.reference`."""

from __future__ import annotations

import inspect
import re

from fencepost.model.language import (
    communicators,
    composites,
    graphs,
    hosts,
    meetings,
    objects,
    sharing,
    variants,
    works,
)
from fencepost.model.language.blocks import MaybeBlock, Process, Scope
from fencepost.model.language.design import Design
from fencepost.model.language.index import Handle, Turn

_INTRODUCTION = """\
# Reference: the language

Generated from signatures and docstrings (`python -m fencepost.model.language.reference`); `help(fencepost.Design)` says the same.
A first design stands in [README.md](../README.md), many more in `designs/` and `designs/cases/`. What each call accesses and
orders is in [reference.md](reference.md), the rules S1, S2, ... in [semantics.md](semantics.md).

## How a design is read

- A design function returns a `fp.Design`. Its parameters have annotations (`int`, `bool`, `str`, `float`) and defaults; each
  `@fp.variant` above it is a question with the answer that it must get.
- What is made outside of all bodies (buffers, rings, streams, events, queues) lives for ever. What is made in a body is of that turn: a
  reference that ends with the body unless a queue or cell takes it on.
- `@d.loop("name")` is a thread whose body is one turn and is run for ever, `@d.script("name")` a thread that runs once, and `@d.setup`
  runs before all threads start. Threads run beside each other; only what the body says orders them.
- A body is run with recording objects, once for every combination of the answers that it asks for. **What the program decides is
  asked of the design**: `d.choose("kind", ["decode", "prefill"])`, `with d.maybe("new requests"):`, `event.query()`, `queue.full()`. An
  ordinary `if` over the function's parameters is decided once, when the design is made.
- A body keeps no Python state between turns (a list that grows, a counter, a clock): it would be traced in another state than it
  runs in, and is refused with its line. State that lasts is a queue, cell, cursor, counter or flag of the design.
- References end where the text says so: at the end of the body, scope, `maybe` or iteration, at `x.release()`, or when a queue or cell lets
  go. **Binding a Python name again releases nothing here**, though in Python it frees what the name held: write `x.release()` there.
- Reads and writes are said by what they touch: `x.write()` and `x.read()` are the host's, now; `d.launch("forward", reads=[...],
  writes=[...])` is a kernel on the current stream; `y.copy_(x, non_blocking=True)` a copy as in PyTorch.
- Lists of accesses hold tensors or their parts, or `fp.read(x, harm=...)` and `fp.write(x, same_bytes=True)` where more is to be said.
- An argument `stream=None` is the current stream, as in PyTorch; `time=` is in seconds and only matters for costs.
"""

_SECTIONS: tuple[tuple[str, str, type], ...] = (
    ("The design", "d", Design),
    ("Process", "process", Process),
    ("Memory", "x", objects.Tensor),
    ("Stream", "s", objects.Stream),
    ("Pool of streams", "streams", composites.StreamPool),
    ("Event", "e", objects.Event),
    ("Queue", "q", hosts.Queue),
    ("Cell", "cell", hosts.Cell),
    ("Cursor", "cursor", hosts.Cursor),
    ("Pool of blocks or rows", "pool", hosts.Pool),
    ("Row or slot of a pool", "row", Handle),
    ("Turn", "n", Turn),
    ("Lock and semaphore", "lock", hosts.Lock),
    ("Condition", "cv", sharing.Condition),
    ("Flag", "flag", hosts.Flag),
    ("Counter", "counter", hosts.Counter),
    ("Block that may not run", "maybe", MaybeBlock),
    ("Scope", "scope", Scope),
    ("Graph", "graph", graphs.Graph),
    ("Flag in device memory", "word", meetings.DeviceFlag),
    ("Host function with a body", "callback", meetings.Callback),
    ("Communicator", "comm", communicators.Communicator),
    ("Work of a collective", "work", works.Work),
    ("Foreign agent", "agent", composites.Agent),
    ("Queue between processes", "ipc", sharing.IpcQueue),
    ("Collector of garbage", "collector", sharing.Collector),
)  # fmt: skip

_FUNCTIONS = (
    ("fp.variant", variants.variant),
    ("fp.accept", variants.accept),
    ("fp.read", objects.read),
    ("fp.write", objects.write),
)

_OPERATORS = {"__getitem__": "{name}[key]", "__enter__": "with {name}:"}


def _signature(function: object) -> str:
    """`(a: int, b: bool = True) -> bool`, without self and without annotations that say nothing."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [one.replace(annotation=_Text.of(one.annotation)) for one in signature.parameters.values() if one.name != "self"]
    answer = _Text.of(signature.return_annotation)
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty if answer == _Text("None") else answer))


class _Text(str):
    """An annotation that prints without quotes and without the modules that its names come from."""

    def __repr__(self) -> str:
        return str(self)

    @classmethod
    def of(cls, annotation: object) -> object:
        if annotation in (inspect.Parameter.empty, "Any"):
            return inspect.Parameter.empty
        return cls(re.sub(r"\b(?:hosts|p)\.", "", str(annotation).strip('"')).replace("'", '"'))


def _doc(thing: object) -> list[str]:
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    return [text, ""] if text else []


def _members(name: str, kind: type) -> list[str]:
    lines: list[str] = []
    for attribute, member in inspect.getmembers(kind):
        if attribute in _OPERATORS and member.__doc__:
            lines += [f"**`{_OPERATORS[attribute].format(name=name)}`**", "", *_doc(member)]
        elif attribute.startswith("_") or not (callable(member) or isinstance(member, property)):
            continue
        elif isinstance(member, property):
            lines += [f"**`{name}.{attribute}`** (a property)", "", *_doc(member)]
        else:
            lines += [f"**`{name}.{attribute}{_signature(member)}`**", "", *_doc(member)]
    return lines


def render() -> str:
    """Markdown for docs/language.md."""
    lines = [_INTRODUCTION]
    lines += ["## Functions", ""]
    for name, function in _FUNCTIONS:
        lines += [f"**`{name}{_signature(function)}`**", "", *_doc(function)]
    for title, name, kind in _SECTIONS:
        lines += [f"## {title}", "", *_doc(kind), *_members(name, kind)]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(render(), end="")
