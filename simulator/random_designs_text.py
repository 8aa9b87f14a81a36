"""The text of a random design: objects, threads and their bodies as trees of lines, and what a text uses."""

from __future__ import annotations

import re
from typing import NamedTuple, Union


class Line(NamedTuple):
    """One statement. `free`: it can be left out without another line missing it."""

    text: str
    free: bool = False


class Block(NamedTuple):
    """A compound statement: `head` ends with a colon; `other` is the body of its `else`."""

    head: str
    body: list[Union[Line, Block]]
    other: list[Union[Line, Block]] | None = None


Tree = list[Union[Line, Block]]


class Body(NamedTuple):
    """A thread: "loop" | "script" | "setup", its name, further arguments of the decorator, whether it takes the turn."""

    kind: str
    name: str
    tree: Tree
    arguments: str = ""
    turn: bool = True


class Text:
    """A design in the making."""

    def __init__(self) -> None:
        self.objects: list[str] = []
        self.bodies: list[Body] = []

    def object(self, name: str, made: str) -> str:
        """Enter `name = made`; the name."""
        self.objects.append(f"{name} = {made}")
        return name

    def render(self, title: str) -> str:
        """The text."""
        lines = [f'"""{title}"""', "import fencepost as fp", "", "", "def design():", f'    d = fp.Design("{title}")']
        lines += [f"    {line}" for line in self.objects]
        for body in self.bodies:
            arguments = ", ".join(x for x in (f'"{body.name}"' if body.kind != "setup" else "", body.arguments) if x)
            decorator = f"@d.{body.kind}({arguments})" if arguments else f"@d.{body.kind}"
            takes = "n" if body.turn and _uses_turn(body.tree) else ""
            lines += ["", f"    {decorator}", f"    def {body.name.replace(' ', '_')}({takes}):"]
            lines += _rendered(body.tree, 8)
        return "\n".join([*lines, "", "    return d"]) + "\n"


def _rendered(tree: Tree, indent: int) -> list[str]:
    lines: list[str] = []
    space = " " * indent
    for one in tree:
        if isinstance(one, Line):
            lines.append(space + one.text)
            continue
        lines += [space + one.head, *_rendered(one.body, indent + 4)]
        if one.other:
            lines += [f"{space}else:", *_rendered(one.other, indent + 4)]
    return lines or [space + "pass"]


def _uses_turn(tree: Tree) -> bool:
    return any(re.search(r"\bn\b", line) for line in _rendered(tree, 0))


def free_lines(tree: Tree) -> list[tuple[Tree, int]]:
    """Where the lines are that can be left out."""
    found = []
    for at, one in enumerate(tree):
        if isinstance(one, Block):
            found += free_lines(one.body) + (free_lines(one.other) if one.other else [])
        elif one.free:
            found.append((tree, at))
    return found


_USES = {
    "pinned memory": r"d\.pinned\(",
    "pageable memory": r"d\.pageable\(",
    "device memory": r"d\.device\(",
    "managed memory": r"d\.managed\(",
    "managed memory, exclusive": r"concurrent=False",
    "free": r"d\.free\(",
    "free of a token": r"(rows|pages)\.free\(",
    "call on the current stream": r"d\.launch\([^=]*=\[[^\]]*\]\)|\.record\(\)|d\.current_stream\(",
    "current stream of a GPU": r"current_stream\(\d",
    "stream made current": r"with (s\d|r\d|u\d|g1|legacy)\w*(\[[^\]]*\])?:",
    "memory of a second GPU": r"d\.device\([^)]*gpu=1",
    "ring of memory": r"d\.(pinned|device|pageable|managed)\([^)]*depth=",
    "ring of streams": r"d\.stream\([^)]*depth=",
    "ring of events": r"d\.event\([^)]*depth=",
    "ring of cells": r"d\.cell\([^)]*depth=",
    "kernel": r"d\.launch\(",
    "copy": r"\.copy_\(",
    "blocking copy": r"\.copy_\((?!.*non_blocking=True)",
    "raw copy": r"d\.memcpy_async\(",
    "fill": r"d\.memset\(",
    "item": r"\.item\(",
    "to_cpu": r"\.to_cpu\(",
    "host access": r"\.(read|write)\(|d\.host\(",
    "part": r"\[\"|\[fp\.ANY\]|\[\d+:\d+\]",
    "row of a pool": r"\[row\d*\]",
    "same bytes": r"same_bytes=True",
    "harm": r"harm=",
    "duration": r"time=",
    "second GPU": r"gpu=1",
    "second process": r"d\.process\(",
    "record": r"\.record\(|record_event\(",
    "event.synchronize": r"(e|got)\w*(\[[^\]]*\])?\.synchronize\(",
    "wait_event": r"wait_event\(|\.wait\((s\d|d\.)",
    "wait_stream": r"wait_stream\(",
    "stream.synchronize": r"(s\d\w*(\[[^\]]*\])?|stream\(\))\.synchronize\(",
    "synchronize": r"d\.synchronize\(",
    "event.query": r"e\w*(\[[^\]]*\])?\.query\(",
    "stream.query": r"(s\d\w*(\[[^\]]*\])?|stream\(\))\.query\(",
    "event of the turn": r"        \w+ = d\.event\(",
    "device block": r"d\.empty\(",
    "pinned block": r"d\.empty_pinned\(",
    "record_stream": r"record_stream\(",
    "view": r"\.view\(",
    "view that is not attributed": r"attributed=False",
    "release": r"\.release\(\)  # reference",
    "scope": r"d\.scope\(",
    "queue": r"d\.queue\(",
    "tagged queue": r"item=\{",
    "drain": r"\.drain\(",
    "full, holds, empty": r"\.(full|holds|empty)\(",
    "cell": r"d\.cell\(",
    "cursor": r"d\.cursor\(",
    "ring.take": r"slot\w* = \w+\.take\(\)",
    "pool of rows": r"of=\"row\"",
    "pool of memory": r"d\.pool\([^)]*of=\"(device|pinned)\"",
    "give after": r"after=",
    "lock": r"d\.lock\(",
    "semaphore": r"d\.semaphore\(",
    "try-lock": r"try_acquire",
    "flag": r"d\.flag\(",
    "counter": r"d\.counter\(",
    "counter per turn": r"\.wait\(n",
    "choice": r"d\.choose\(",
    "agreed choice": r"agreed=True",
    "maybe": r"d\.maybe\(",
    "turn compared": r"n (<|==|>=) \d",
    "view that holds nothing": r"held=False",
    "strided copy": r"strided=True",
    "blocking stream": r"(?<!non_)blocking=True",
    "blocking stream of several threads": r"blocking=True, several_threads=True",
    "host function": r"d\.host_function\(",
    "agent": r"nic\.post\(",
    "graph": r"graph\.replay\(",
    "host barrier": r"host_barrier\(",
    "all-to-all collective": r"\.(all_reduce|all_gather|reduce_scatter|all_to_all)\(",
    "collective of a root": r"\.(broadcast|scatter|reduce|gather)\(",
    "send and recv": r"(?s)\.send\(.*\.recv\(|\.recv\(.*\.send\(",
    "barrier on the device": r"\.(rendezvous|barrier)\(",
    "asynchronous work": r"async_op=True",
    "work is awaited": r"work_\d+\.wait\(",
    "work is asked": r"is_completed\(",
    "capacity of a communicator": r"communicator\(.*capacity=",
    "stream of several threads": r"d\.stream\([^\n]*(?<!blocking=True, )several_threads=True",
    "items of several kinds for several threads": r"d\.queue\([^\n]*several_threads=True",
    "graph of several threads": r"d\.graph\([^)]*several_threads=True",
    "condition that wakes the first": r"fifo=True",
    "exchange": r"\.exchange\(",
    "protocol rendezvous": r"protocol=\"rendezvous\"",
    "communicator of several threads": r"communicator\(.*several_threads=True",
    "flag stored by a stream": r"\.write_value\(",
    "flag awaited by a stream": r"\.wait_value\(",
    "flag stored by a host": r"f\d\w*\.store\(",
    "flag awaited by a host": r"f\d\w*\.wait\(",
    "flag with reset": r"reset=True",
    "callback": r"notify\.launch\(",
    "callback that calls CUDA": r"calls_cuda=True",
    "condition": r"cond\.wait\(",
    "released lock": r"\.released\(\)",
    "IPC": r"ipc\.put\(",
    "IPC from a feeder": r"feeder=True",
    "IPC, already open": r"opened=True",
    "memory in stream order": r"\.free_async\(",
    "ordered memory handed over": r"handed\.get\(",
    "collector": r"\.unreachable\(",
    "collector with a finaliser": r"finaliser=",
    "record that may fail": r"may_fail=True",
    "record on another device": r"e\d\.record\(g1, may_fail",
    "peer copy": r"d\.peer_copy\(",
    "cudaMemcpy": r"d\.memcpy\(",
    "captured graph": r"graph\d+\.replay\(",
    "captured meeting": r"(?s)\.capture\([^@]*(comm\.|_value\()",
    "captured block": r"(?s)= d\.empty\w*\([^@]*\.capture\(",
    "block made in a capture": r"(?s)\.capture\([^@]*= d\.empty",
    "graphs that share a pool": r"pool=graph\d",
    "captured fork": r"(?s)\.capture\([^@]*wait_stream",
    "capture in a script": r"(?s)@d\.script\(\"capture",
    "agent with two queues": r"queues=2",
    "ranks are processes": r"process=p\d",
    "memory shared with processes": r"shared_with\(",
    "host announcement": r"host_announce\(",
    "host broadcast or gather": r"host_(broadcast|gather)\(",
    "work handed over": r"hand_over\(",
    "pool of streams": r"torch_streams\(",
    "setup": r"@d\.setup",
    "script": r"@d\.script",
    "several threads": r"(?s)@d\..*@d\.",
    "three threads": r"(?s)@d\..*@d\..*@d\.",
}
FEATURES = tuple(_USES)
"""What a random design may use."""

_PATTERNS = {name: re.compile(pattern) for name, pattern in _USES.items()}


def features_of(text: str) -> tuple[str, ...]:
    """The features that a text uses."""
    return tuple(name for name, pattern in _PATTERNS.items() if pattern.search(text))
