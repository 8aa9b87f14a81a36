"""A design on the machine, with typical durations and fixed choices: what its turns come to be, and how long they take.

Where timing or the first turns decide a test, the design is no periodic event graph. Once every thread makes the same turn
again and again, each such test is replaced by the answer that it has in those turns, the branches not taken are left out,
and what remains may be one: its break-evens hold for steps that go that way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from fencepost.model import program as p
from fencepost.model.operations import Context
from fencepost.model.platform import PLATFORMS, Platform

if TYPE_CHECKING:
    from fencepost.simulator.machine import Outcome

TURNS = 24
"""Turns that the machine makes; the last `SAME` of each thread must be alike."""

SAME = 4
MOST_CHOICES = 6

Said = Mapping[tuple[str, str], str]
"""(thread, or "" where all threads agree; name of the choice) -> answer."""

Turn = dict[int, "str | None"]
"""Node of a turn -> its answer."""


def choices(program: p.Program) -> Iterator[Said]:
    """The first ways to fix the choices for good."""
    options: dict[tuple[str, str], tuple[str, ...]] = {}
    for thread in program.threads:
        for node in thread.nodes:
            if isinstance(node, p.Ask) and isinstance(node.question, (p.Choose, p.Maybe)):
                options.setdefault(_key(thread, node.question), tuple(answer for answer, _ in node.branches))
    for answers in itertools.islice(itertools.product(*options.values()), MOST_CHOICES):
        yield dict(zip(options, answers, strict=True))


def _key(thread: p.Thread, question: p.Choose | p.Maybe) -> tuple[str, str]:
    return ("" if isinstance(question, p.Choose) and question.agreed else thread.name, question.name)


def run(
    program: p.Program, said: Said, platform: Platform = PLATFORMS["cuda"], device: float = 1.0, turns: int = TURNS
) -> Outcome | None:
    """A run with typical durations, work of the device `device` times as long; None where the machine cannot run it."""
    from fencepost.simulator.machine import Machine, Unsupported
    from fencepost.simulator.machine_script import DEFAULTS, Follow
    from fencepost.simulator.machine_state import Origin
    from fencepost.simulator.machine_timing import PROFILES

    class Fixed(Follow):
        """Answers the choices as said."""

        def answer(self, thread: Any, node: int, options: tuple[str, ...]) -> int:
            own = program.threads[thread.index]
            at = own.nodes[node]
            if not isinstance(at, p.Ask):
                return 0  # a free that may wait for the device
            question: Any = at.question
            wanted = said.get(_key(own, question))
            return options.index(wanted) if wanted in options else 0

    class Timed(Machine):
        """Of a timed run nobody asks where a wrong value came from."""

        def origin(self, value: int) -> Origin:
            return Origin(None, "", 0, 0, "")

    try:
        machine = Timed(program, platform)
    except Unsupported:
        return None
    typical = PROFILES["typical"]
    profile = msgspec.structs.replace(
        typical, jitter=0.0, kernel=int(typical.kernel * device), copy=int(typical.copy * device),
        host_link=max(1, int(typical.host_link / device)), device_link=max(1, int(typical.device_link / device)),
    )  # fmt: skip
    outcome = machine.run(Fixed(DEFAULTS), turns=turns, limit=2_000 * turns, profile=profile, stop=False)
    return None if outcome.ended in ("blocked", "fault") else outcome


def typical(program: p.Program, platform: Platform, scale: float) -> Callable[[int, bool, p.Operation], float]:
    """Nanoseconds of (thread, the host's call or the device's work, operation), as `run` has them; `scale` for the device."""
    from fencepost.simulator.machine_timing import PROFILES, SECOND

    profile = PROFILES["typical"]
    contexts = [Context(program, thread, platform) for thread in program.threads]
    host = ("pinned", "pageable", "managed")

    def size(thread: p.Thread, operand: p.Operand) -> int:
        if not isinstance(operand, p.Local):
            return int(getattr(program.objects[operand.id], "bytes", 4096))
        sizes = [
            node.operation.bytes
            for node in thread.nodes
            if isinstance(node, p.Do) and isinstance(node.operation, p.Alloc) and node.operation.local == operand.id
        ]
        return max(sizes, default=4096)

    def duration(t: int, called: bool, op: p.Operation) -> float:
        time = getattr(op, "time", None)
        if called:
            if isinstance(op, (p.EventSync, p.StreamSync, p.DeviceSync)):
                return float(profile.call if time is None else time * SECOND)
            touches = isinstance(op, p.Host) and bool(op.accesses)
            return float(profile.call + ((profile.touch if time is None else time * SECOND) if touches else 0))
        if time is not None:
            return float(time * SECOND * scale)
        if not isinstance(op, (p.Copy, p.Item)):
            return profile.kernel * scale
        ends = [op.src, op.dst] if isinstance(op, p.Copy) else [op.src]
        linked = isinstance(op, p.Item) or any(contexts[t].space(one) in host for one in ends)
        moved = min(size(program.threads[t], one) for one in ends)
        return (profile.copy + moved * 1000 / (profile.host_link if linked else profile.device_link)) * scale

    return duration


def per_step(
    program: p.Program, said: Said, platform: Platform = PLATFORMS["cuda"], device: float = 1.0
) -> float | None:  # fmt: skip
    """Nanoseconds per step once the hosts and the device have both done it; None where no thread got that far.

    Where a host runs ahead of the device without end its own turns say nothing: then what one half of the run takes to be
    done with.
    """
    outcome = run(program, said, platform, device)
    host = None if outcome is None else per_turn(outcome)
    if outcome is None or host is None or outcome.time - max(starts[-1] for starts in outcome.starts if starts) <= 2 * host:
        return host
    shorter = run(program, said, platform, device, TURNS // 2)
    if shorter is None or shorter.ended != outcome.ended:
        return host
    return max(host, (outcome.time - shorter.time) / (TURNS - TURNS // 2))


def per_turn(outcome: Outcome) -> float | None:
    """Nanoseconds per turn of the slowest loop, over the second half of the run; None where no thread got that far."""
    found = [
        (starts[-1] - starts[len(starts) // 2]) / (len(starts) - 1 - len(starts) // 2)
        for starts in outcome.starts
        if len(starts) >= 2 * SAME
    ]
    return max(found, default=None)


def turns_of(program: p.Program, outcome: Outcome) -> list[Turn] | None:
    """For each loop its steady turn; None where there is none."""
    found: list[Turn] = []
    for t, thread in enumerate(program.threads):
        turns: list[list[tuple[int, str | None]]] = []
        for step in outcome.run.steps:
            if step.thread == t and step.stream is None:
                if step.node == thread.entry:
                    turns.append([])
                if turns:
                    turns[-1].append((step.node, step.answer))
        whole = turns[:-1][-SAME:]
        if thread.kind != "loop":
            found.append({})
        elif len(whole) < SAME or any(turn != whole[0] for turn in whole) or len(dict(whole[0])) != len(whole[0]):
            return None  # not alike, or round within the turn
        else:
            found.append(dict(whole[0]))
    return found


KEPT = (p.QueueFull, p.QueueHolds, p.TurnBelow)
"""Tests that a periodic event graph knows, with the turn from which on they have their answer."""


def straight(program: p.Program, turns: list[Turn]) -> p.Program:
    """The program with each other question of the steady turns replaced by its answer. Nodes keep their numbers."""
    threads = []
    for thread, turn in zip(program.threads, turns, strict=True):
        nodes = list(thread.nodes)
        for i, answer in turn.items():
            node = nodes[i]
            if isinstance(node, p.Ask) and not isinstance(node.question, KEPT):
                nodes[i] = p.Do(p.Host("(answered)", ()), dict(node.branches)[str(answer)], node.site)
        threads.append(msgspec.structs.replace(thread, nodes=tuple(nodes)))
    return msgspec.structs.replace(program, threads=tuple(threads))


def told(program: p.Program, said: Said, turns: list[Turn]) -> str:
    """The choices and the tests with their answers, in one line."""
    from fencepost.report.words import Words

    words = Words(program)
    found = {f"{name}: {answer}": None for (_, name), answer in said.items()}
    for thread, turn in zip(program.threads, turns, strict=True):
        for i, answer in turn.items():
            node = thread.nodes[i]
            if isinstance(node, p.Ask) and not isinstance(node.question, (*KEPT, p.Choose, p.Maybe)):
                found.setdefault(f"{words.node(node, thread).removesuffix('?')}: {answer}")
    return ", ".join(found)
