"""CUDA graphs in a plan: which host steps are the launch of one captured graph, and the launch as one call.

The language lowers a replay to the operations that the graph holds (S91, S92), between a wait for the graph's last launch
and a record of this one (S93). Here they become one launch again. A host cannot come between the nodes of a real launch,
so a schedule is first brought into an order in which nothing does. What cannot be put that way is replayed operation by
operation, and a note says so.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.compile import compile_run
from fencepost.gpu_validate.schedule import Gate, Schedule
from fencepost.model import program as p
from fencepost.model.answer import Hazard, Run, Step
from fencepost.model.events import InvalidRun, Player
from fencepost.model.platform import PLATFORMS, Platform

LAUNCHED = " launched"
"""The language's event between launches of graph "g" is named "g launched"."""
_NODES = (
    p.Launch, p.Copy, p.Memset, p.Record, p.StreamWaitEvent, p.WaitStream, p.CellGet, p.Signal, p.Await, p.StoreFlag,
    p.WaitFlag,
)  # fmt: skip
_CALLS = (c.Kernel, c.Copy, c.Memset, c.Record, c.StreamWaitEvent, c.WaitStream, c.Shut, c.WriteWord, c.WaitWord, c.Mark)


class Site(NamedTuple):
    """A place of a thread that launches a graph: its nodes from the wait for the last launch to the record of this one."""

    graph: str
    thread: int
    nodes: tuple[int, ...]
    event: int


def sites(program: p.Program) -> list[Site]:
    """All places that launch a graph."""
    found = []
    for number, thread in enumerate(program.threads):
        for index, node in enumerate(thread.nodes):
            site = _site(program, number, index, node)
            if site is not None:
                found.append(site)
    return found


def _site(program: p.Program, number: int, index: int, node: p.Node) -> Site | None:
    o = node.operation if isinstance(node, p.Do) else None
    if not isinstance(o, p.StreamWaitEvent) or not isinstance(o.event, p.Obj):
        return None
    event = program.objects[o.event.id]
    if not isinstance(event, p.Event) or not event.name.endswith(LAUNCHED):
        return None
    nodes = [index]
    while isinstance(node, p.Do) and len(nodes) < 10_000:
        index = node.next
        if index == p.END:
            return None
        node = program.threads[number].nodes[index]
        if not isinstance(node, p.Do) or not isinstance(node.operation, _NODES):
            return None
        nodes.append(index)
        if node.operation == p.Record(o.event, o.stream):
            return Site(event.name[: -len(LAUNCHED)], number, tuple(nodes), o.event.id)
    return None


class Whole(NamedTuple):
    """A run in which nothing comes between the nodes of a launch. `moved`: for each old step the new one; `launches`: the
    sites with the step at which each begins."""

    run: Run
    moved: tuple[int, ...]
    launches: tuple[tuple[int, Site], ...]


def whole(program: p.Program, run: Run, platform: Platform = PLATFORMS["cuda"]) -> Whole | str:
    """Every launch made at its first node, and made to the end. A text, saying why, where the run does not allow that."""
    starts = {(site.thread, site.nodes[0]): site for site in sites(program)}
    steps: list[Step] = []
    moved = [0] * len(run.steps)
    launches: list[tuple[int, Site]] = []
    ahead: dict[int, list[int]] = {}  # thread -> new steps of its launch that the run makes later
    for number, step in enumerate(run.steps):
        if step.stream is None and ahead.get(step.thread):
            moved[number] = ahead[step.thread].pop(0)
            if steps[moved[number]].node != step.node:
                return "the run leaves the launch of a graph in the middle"
            continue
        moved[number] = len(steps)
        site = starts.get((step.thread, step.node)) if step.stream is None else None
        if site is None:
            steps.append(step)
            continue
        launches.append((len(steps), site))
        ahead[step.thread] = list(range(len(steps) + 1, len(steps) + len(site.nodes)))
        steps += [step, *(Step(step.thread, node) for node in site.nodes[1:])]
    made = Run(tuple(steps))
    if made != run:
        try:
            Player(program, platform, keep=False).play(made)
        except InvalidRun as error:
            return f"the run interleaves other calls with the nodes of a graph, and allows no other order ({error})"
    return Whole(made, tuple(moved), tuple(launches))


def in_one_call(program: p.Program, run: Run, hazard: Hazard, platform: Platform) -> tuple[Run, Hazard]:
    """The counterexample with launches in one call each: the accesses may then come in the other order."""
    if hazard.first is None or not sites(program):
        return run, hazard
    i, j = hazard.first.index, hazard.second.index
    made = whole(program, run, platform)
    if isinstance(made, str) or not (0 <= i < len(made.moved) and 0 <= j < len(made.moved)):
        return run, hazard
    first = msgspec.structs.replace(hazard.first, index=made.moved[i])
    second = msgspec.structs.replace(hazard.second, index=made.moved[j])
    if first.index > second.index:
        first, second = second, first
    return made.run, msgspec.structs.replace(hazard, first=first, second=second)


def planned(program: p.Program, schedule: Schedule, platform: Platform) -> tuple[c.Plan, Schedule]:
    """The plan of a schedule, with gates and with graphs launched; the schedule in the order that the plan has."""
    made: Whole | str | None = whole(program, schedule.run, platform) if sites(program) else None
    note = made if isinstance(made, str) else None
    if isinstance(made, Whole):
        after = _moved(schedule, made)
        if any(gate.after < gate.before for gate in after.gates):
            note = "the held operation comes after the launch of the graph that overtakes it"
        else:
            schedule = after
    if isinstance(made, Whole) and note is None:
        steps = {start + k for start, site in made.launches for k in range(len(site.nodes))}
        launched = _launched(_gated(program, schedule, platform, frozenset(steps)), made)
        if isinstance(launched, c.Plan):
            return launched, _as_driven(schedule, launched)
        note = launched
    plan = _gated(program, schedule, platform, frozenset())
    if note is not None:
        plan = msgspec.structs.replace(plan, notes=(*plan.notes, f"graphs are replayed operation by operation: {note}"))
    return plan, _as_driven(schedule, plan)


def _gated(program: p.Program, schedule: Schedule, platform: Platform, graph_steps: frozenset[int]) -> c.Plan:
    plan = compile_run(program, schedule.run, platform, schedule.labels, graph_steps)
    schedule = _as_driven(schedule, plan)
    numbers = dict(plan.stream_numbers)
    gates = [
        (gate.before, numbers[gate.stream], gate.after, None if gate.settle is None else numbers[gate.settle], gate.then)
        for gate in schedule.gates
    ]
    return c.with_gates(plan, gates)


def _as_driven(schedule: Schedule, plan: c.Plan) -> Schedule:
    """Host calls that return late are made late: steps as the plan has them."""
    moved = dict(plan.moved)

    def at(step: int | None) -> int | None:
        return None if step is None else moved.get(step, step)

    gates = tuple(gate._replace(after=moved.get(gate.after, gate.after)) for gate in schedule.gates)
    holds = at(schedule.holds)
    stays = [moved.get(step, step) for step in schedule.stays]
    if stays:
        holds = min(stays) if holds is None else min(holds, *stays)
    return schedule._replace(gates=gates, first=at(schedule.first), second=at(schedule.second), holds=holds, stays=())


def _moved(schedule: Schedule, made: Whole) -> Schedule:
    def at(step: int | None) -> int | None:
        return None if step is None else made.moved[step]

    ends = {start + len(site.nodes) - 1: start for start, site in made.launches}

    def gate(one: Gate) -> Gate:
        opens = made.moved[one.after]
        # Behind the launch, when it opens at one of its nodes.
        end = next((end for end, start in ends.items() if start <= opens <= end), opens)
        return one._replace(before=made.moved[one.before], after=end)

    return schedule._replace(
        run=made.run, gates=tuple(map(gate, schedule.gates)), first=at(schedule.first), second=at(schedule.second),
        holds=at(schedule.holds), stays=tuple(made.moved[step] for step in schedule.stays), labels={made.moved[step]: label for step, label in schedule.labels.items()},
    )  # fmt: skip


def _launched(plan: c.Plan, made: Whole) -> c.Plan | str:
    """The plan with each launch as one call; a text where that cannot be."""
    of_step = {start + k: (start, site) for start, site in made.launches for k in range(len(site.nodes))}
    lines: list[c.Line] = []
    inside: dict[int, list[c.Line]] = {}
    for line in plan.lines:
        if line.step not in of_step or isinstance(line.call, (c.Open, c.Settle, c.Reach, c.Runs)):
            lines.append(line)
            continue
        start, _ = of_step[line.step]
        if start not in inside:
            inside[start] = []
            lines.append(line)  # the place of the launch
        inside[start].append(line)
    calls: dict[int, c.GraphLaunch] = {}
    marks: set[int] = set()
    branches: dict[int, int] = {}
    for start, site in made.launches:
        first, last = inside[start][0].call, inside[start][-1].call
        if not isinstance(first, c.StreamWaitEvent) or not isinstance(last, c.Record):
            return f"graph {site.graph!r} has calls around its nodes that are none of its own"
        # Inside of a graph no mark can be waited for: what the run releases there, and what is late there, is eager.
        nodes = tuple(line for line in inside[start][1:-1] if not isinstance(line.call, c.Mark))
        marks |= {line.call.mark for line in inside[start] if isinstance(line.call, c.Mark)}
        wrong = next((line.op for line in nodes if not isinstance(line.call, _CALLS)), None)
        if wrong is not None:
            return f"graph {site.graph!r} holds {wrong}, which a graph cannot"
        for line in nodes:
            stream = getattr(line.call, "stream", None)
            if isinstance(stream, int) and stream != last.stream:
                branches[stream] = last.stream
        calls[start] = c.GraphLaunch(site.graph, last.stream, last.event, nodes)
    shapes: dict[str, set[object]] = {}
    for one in calls.values():
        if not any(isinstance(line.call, c.Shut) for line in one.body):
            shapes.setdefault(one.graph, set()).add(shape(one))
    for graph, kinds in shapes.items():
        if len(kinds) > 1:
            return f"the launches of graph {graph!r} are not alike"
    done: list[c.Line] = []
    for line in lines:
        if line.step in of_step and line is inside[of_step[line.step][0]][0]:
            start, site = of_step[line.step]
            busy = tuple(sorted({k for one in inside[start] for k in one.busy}))
            done.append(c.Line(calls[start], line.step, line.thread, line.turn, f"replay of graph {site.graph!r}", busy))
        elif isinstance(line.call, c.Reach) and line.call.mark in marks:
            continue
        elif isinstance(line.call, c.Settle) and line.call.stream in branches:
            done.append(msgspec.structs.replace(line, call=c.Settle(branches[line.call.stream])))
        else:
            done.append(line)
    return msgspec.structs.replace(plan, lines=tuple(_with_captures(plan, done)))


def _with_captures(plan: c.Plan, lines: list[c.Line]) -> list[c.Line]:
    """Each graph is captured as soon as all memory whose address it holds is there (S92)."""
    bodies: dict[str, list[c.Line]] = {}
    for line in lines:
        if isinstance(line.call, c.GraphLaunch):
            bodies.setdefault(line.call.graph, []).extend(line.call.body)
    for graph, body in bodies.items():
        needs = {r.buffer for line in body for r in c.ranges_of(line.call) if plan.buffers[r.buffer].allocated}
        at = 1 + max((k for k, x in enumerate(lines) if isinstance(x.call, c.Alloc) and x.call.buffer in needs), default=-1)
        near = lines[at] if at < len(lines) else lines[-1]
        lines.insert(at, c.Line(c.GraphCapture(graph), near.step, near.thread, near.turn, f"capture of graph {graph!r}", near.busy))
    return lines


def shape(launch: c.GraphLaunch) -> object:
    """What must be alike in two launches of one captured graph: nodes, addresses and order, not the values."""

    def of(call: c.Call) -> object:
        stream = getattr(call, "stream", None)
        where = "origin" if stream == launch.stream else stream
        others = tuple(getattr(call, name, None) for name in ("event", "gate", "word", "value"))
        second = getattr(call, "other", None)
        second = "origin" if second == launch.stream else second
        segments = tuple(s for s, _ in call.passes) if isinstance(call, c.Copy) else ()
        return (type(call).__name__, where, second, others, tuple(c.ranges_of(call)), segments)

    return tuple(of(line.call) for line in launch.body)
