"""What a step costs: the greatest cycle ratio of the periodic event graph, as a figure and as break-even conditions.

With durations on the nodes, a cycle of total duration T and weight w forces a time per step of at least T / w, and where
nothing is shared the greatest such ratio is the time per step (Reiter 1968; Baccelli et al., Synchronization and
Linearity, theorem 2.29). The figure is found by Lawler's iteration over negative cycles (networkx), in exact fractions.
A wait is free while no cycle through it is above all cycles that are there without it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from fencepost.model import program as p
from fencepost.model.cost import Cost, Cycle, Timed, WaitCost
from fencepost.model.names import Names
from fencepost.model.platform import PLATFORMS, Platform
from fencepost.proofs.periodic.conditions import strategies
from fencepost.proofs.periodic.graph import Graph, Node, label, local_name
from fencepost.proofs.periodic.plan import Key
from fencepost.proofs.periodic.symbols import Refused, Region

MOST_CYCLES = 5_000
MOST_BETWEEN_RANKS = 1_000
"""Cycles up to which a design whose ranks meet is looked at: there every path through one rank is joined to each of the others."""
WAITS = (p.EventSync, p.StreamSync, p.DeviceSync, p.StreamWaitEvent, p.WaitStream, p.Item)

Edges = dict[tuple[int, int], int]
"""(source, target) -> least weight."""


class CostGraph:
    """A steady graph of a concrete program with durations: the edges as integers, the operations that take time."""

    def __init__(self, graph: Graph, durations: Mapping[str, float]) -> None:
        self.graph, self.program = graph, graph.program
        self.edges: Edges = {}
        for source, out in enumerate(graph.out):
            for target, weight in out:
                constant = weight.constant
                assert constant is not None
                key = (source, target)
                self.edges[key] = min(constant, self.edges.get(key, constant))
        self.names = self._named()
        unknown = set(durations) - set(self.names.values())
        if unknown:
            raise ValueError(
                f"no operation is called {sorted(unknown)[0]!r}; those that take time are: {', '.join(sorted(set(self.names.values())))}"
            )
        self.seconds: dict[int, Fraction | None] = {}
        for number, name in self.names.items():
            declared = getattr(graph.nodes[number].op.operation, "time", None)
            given = durations.get(name, declared)
            self.seconds[number] = None if given is None else Fraction(given)
        self.known = any(value is not None for value in self.seconds.values())

    def _named(self) -> dict[int, str]:
        """Names of the nodes that take time: what accesses memory or runs on the device, and declared waits."""
        found: dict[int, str] = {}
        used: Counter[str] = Counter()
        for node in self.graph.nodes:
            operation = node.op.operation
            works = node.agent[0] == "stream" and isinstance(operation, (p.Launch, p.Copy, p.Memset, p.Item))
            works = works and node.label == label(self.graph.names, node.op)
            host = node.agent[0] == "thread" and isinstance(operation, p.Host) and bool(operation.accesses or operation.time)
            copied = node.agent[0] == "thread" and isinstance(operation, (p.Copy, p.Item)) and self._on_host(operation, node)
            declared = node.agent[0] == "thread" and isinstance(operation, (p.EventSync, p.StreamSync, p.DeviceSync))
            declared = declared and bool(getattr(operation, "time", None)) and node.number in self._joins()
            if works or host or copied or declared:
                name = _short(self.graph.names, node)
                used[name] += 1
                found[node.number] = name if used[name] == 1 else f"{name} #{used[name]}"
        return found

    def _on_host(self, operation: p.Copy | p.Item, node: Node) -> bool:
        """Whether it is a copy or load within the host (S49)."""
        context = self.graph.contexts[node.op.thread]
        sides = (operation.src,) if isinstance(operation, p.Item) else (operation.src, operation.dst)
        return all(context.space(side) in ("pinned", "pageable") for side in sides)

    def _joins(self) -> set[int]:
        """Host nodes that wait for the device."""
        nodes = self.graph.nodes
        return {t for s, t in self.edges if nodes[s].agent[0] == "stream" and nodes[t].agent[0] == "thread"}

    def without(self, op: tuple[int, int]) -> Edges:
        """The edges without those by which the operation at (thread, node) waits for something on the device."""
        nodes = self.graph.nodes
        return {
            (s, t): w
            for (s, t), w in self.edges.items()
            if not (
                (nodes[t].op.thread, nodes[t].op.node) == op
                and nodes[s].agent[0] == "stream"
                and nodes[s].agent != nodes[t].agent
                and not self.names.get(t, "").startswith("\0")
            )
        }


def _spelled(name: str) -> str:
    """A name in a condition, quoted where it would be read as more than one."""
    return f"'{name}'" if any(part in name for part in (", ", " + ", " or ", " / ", " >= ")) else name


def _short(names: Names, node: Node) -> str:
    operation: Any = node.op.operation
    if isinstance(operation, p.Copy):
        return f"copy to {label(names, node.op).partition(' ')[2]}"
    if isinstance(operation, (p.Memset, p.Item)):
        target = operation.dst if isinstance(operation, p.Memset) else operation.src
        what = local_name(names, node.op.thread, target.id) if isinstance(target, p.Local) else names.name(target.id)
        return f"{type(operation).__name__.lower()} {what}"
    return label(names, node.op)


# ---------------------------------------------------------------- figures


def greatest_ratio(nodes: set[int], edges: Edges, seconds: Mapping[int, Fraction]) -> tuple[Fraction, list[int]] | None:
    """The greatest total duration over total weight of a cycle within `nodes`, and such a cycle; None without cycles.

    Raises `Refused` for a cycle of weight <= 0: its operations wait for each other for ever.
    """
    import networkx as nx

    inside = nx.DiGraph()
    inside.add_nodes_from(nodes)
    inside.add_weighted_edges_from((s, t, w) for (s, t), w in edges.items() if s in nodes and t in nodes)
    best: tuple[Fraction, list[int]] | None = None
    for component in nx.strongly_connected_components(inside):
        part = inside.subgraph(component).copy()
        if part.number_of_edges() == 0:
            continue
        found = _ratio(part, seconds)
        if best is None or found[0] > best[0]:
            best = found
    return best


def _ratio(part: Any, seconds: Mapping[int, Fraction]) -> tuple[Fraction, list[int]]:
    """Lawler: while some cycle is above the ratio, it gives the next one."""
    import networkx as nx

    size = part.number_of_nodes() + 1
    for _, _, data in part.edges(data=True):
        data["test"] = data["weight"] * size - 1  # negative cycle iff one of weight <= 0
    if nx.negative_edge_cycle(part, weight="test"):
        raise Refused("the design waits for ever: a circle of waits of no steps")
    cycle = [s for s, _ in nx.find_cycle(part, next(iter(part)))]
    ratio = _of(cycle, part, seconds)
    while True:
        for s, _, data in part.edges(data=True):
            data["reduced"] = ratio * data["weight"] - seconds.get(s, Fraction(0))
        found = _negative_cycle(part)
        if found is None:
            assert not nx.negative_edge_cycle(part, weight="reduced")
            return ratio, cycle
        cycle, ratio = found, _of(found, part, seconds)


def _negative_cycle(part: Any) -> list[int] | None:
    """A negative cycle by Bellman and Ford from all nodes at once. networkx (3.6.1) has one, which now and then says
    "Negative cycle is detected but not found"."""
    distance = dict.fromkeys(part, Fraction(0))
    before: dict[int, int] = {}
    last = None
    for _ in range(part.number_of_nodes()):
        last = None
        for s, t, data in part.edges(data=True):
            if distance[s] + data["reduced"] < distance[t]:
                distance[t], before[t], last = distance[s] + data["reduced"], s, t
        if last is None:
            return None
    for _ in range(part.number_of_nodes()):
        assert last is not None
        last = before[last]
    assert last is not None
    cycle = [last]
    while before[cycle[-1]] != last:
        cycle.append(before[cycle[-1]])
    return cycle[::-1]


def _of(cycle: list[int], part: Any, seconds: Mapping[int, Fraction]) -> Fraction:
    total = sum((seconds.get(s, Fraction(0)) for s in cycle), Fraction(0))
    weight = sum(part[s][t]["weight"] for s, t in zip(cycle, cycle[1:] + cycle[:1], strict=True))
    return Fraction(total, weight)


# ---------------------------------------------------------------- symbols


class Round:
    """A cycle as symbols: how often each operation occurs, over how many steps; `nodes` in order."""

    def __init__(self, nodes: tuple[int, ...], steps: int) -> None:
        self.nodes, self.steps = nodes, steps
        self.count = Counter(nodes)

    def above(self, other: Round) -> bool:
        """Whether it forces at least the other's time under all durations."""
        return all(self.count[n] * other.steps >= k * self.steps for n, k in other.count.items())


def decided_by(one: Round, others: list[Round]) -> bool:
    """Whether the greatest of the others is at least `one` under all durations: some average of them is."""
    if any(other.above(one) for other in others):
        return True
    if len(others) < 2:
        return False
    # Written as text: building the terms one by one would take longer than solving them.
    asserted = []
    for n, k in one.count.items():
        have = [(i, Fraction(other.count[n], other.steps)) for i, other in enumerate(others) if other.count[n]]
        wanted = Fraction(k, one.steps)
        if not have or max(much for _, much in have) < wanted:
            return False
        terms = " ".join(f"(* (/ {much.numerator} {much.denominator}) s{i})" for i, much in have)
        asserted.append(f"(assert (>= (+ 0 {terms}) (/ {wanted.numerator} {wanted.denominator})))")
    import z3

    shares = [f"s{i}" for i in range(len(others))]
    solver = z3.Solver()
    solver.from_string(
        "".join(f"(declare-const {share} Real)(assert (>= {share} 0))" for share in shares)
        + f"(assert (= 1 (+ {' '.join(shares)})))" + "".join(asserted)
    )  # fmt: skip
    return bool(solver.check() == z3.sat)


def rounds(nodes: int, edges: Edges, timed: set[int]) -> tuple[list[Round], bool]:
    """The cycles that decide under some durations, and whether all were looked at."""
    import networkx as nx

    reduced = _deciding(nodes, edges, timed)
    graph = nx.DiGraph()
    graph.add_nodes_from(timed)
    graph.add_weighted_edges_from((s, t, w) for (s, t), w in reduced.items())
    found: list[Round] = []
    complete = True
    for number, cycle in enumerate(itertools.islice(nx.simple_cycles(graph), MOST_CYCLES + 1)):
        if number == MOST_CYCLES:
            complete = False
            break
        steps = sum(reduced[s, t] for s, t in zip(cycle, cycle[1:] + cycle[:1], strict=True))
        one = Round(tuple(cycle), steps)
        if any(other.above(one) for other in found):
            continue
        found = [other for other in found if not one.above(other)] + [one]
    for one in sorted(found, key=lambda one: -len(one.count)):
        rest = [other for other in found if other is not one]
        if len(found) <= 60 and decided_by(one, rest):
            found = rest
    return found, complete


def plenty(timed: CostGraph, most: int) -> bool:
    """Whether more than so many cycles can decide: conditions that name them all are no help to anybody."""
    import networkx as nx

    graph = nx.DiGraph(list(_deciding(len(timed.graph.nodes), timed.edges, set(timed.names))))
    return next(itertools.islice(nx.simple_cycles(graph), most, None), None) is not None


def _deciding(nodes: int, edges: Edges, timed: set[int]) -> Edges:
    """Least weights between operations that take time, as far as a detour past another one for no more steps leaves them."""
    least = _between(nodes, edges, timed)
    reduced = dict(least)
    for (s, t), w in sorted(least.items(), key=lambda item: -item[1]):
        for via in timed - {s, t}:
            if (s, via) in reduced and (via, t) in reduced and reduced[s, via] + reduced[via, t] <= w:
                reduced.pop((s, t), None)
                break
    return reduced


def _between(nodes: int, edges: Edges, timed: set[int]) -> Edges:
    """Least weights between operations that take time, past those that take none."""
    out: dict[int, list[tuple[int, int]]] = {}
    for (s, t), w in edges.items():
        out.setdefault(s, []).append((t, w))
    least: Edges = {}
    for source in timed:
        best: dict[int, int] = {}
        work = [(t, w) for t, w in out.get(source, ())]
        while work:
            node, weight = work.pop()
            if node in best and best[node] <= weight:
                continue
            best[node] = weight
            if node in timed:
                continue
            work += [(t, weight + w) for t, w in out.get(node, ())]
        for target in timed:
            if target in best:
                least[source, target] = best[target]
    return least


# ---------------------------------------------------------------- the answer


def costs(
    program: p.Program, durations: Mapping[str, float] | None = None, platform: Platform = PLATFORMS["cuda"]
) -> list[Cost]:
    """The cost of a step, once for each way to fix the choices for good. `durations` in seconds override `time=`.

    Raises `Refused` when no way gives a determinate periodic design, `ValueError` for a name that no operation has.
    """
    found: list[Cost] = []
    why: str | None = None
    wrong: ValueError | None = None
    named: set[str] = set()
    for answers, graph in strategies(program, Region({}), platform, timing=True):
        if isinstance(graph, str):
            why = why or graph
            continue
        known = CostGraph(graph, {})
        if graph.meetings and plenty(known, MOST_BETWEEN_RANKS):
            why = why or f"more than {MOST_BETWEEN_RANKS} cycles between ranks can decide; `fencepost waits` computes what each wait adds"
            continue
        named |= set(known.names.values())
        mine = {name: value for name, value in (durations or {}).items() if name in known.names.values()}
        try:
            found.append(_cost(CostGraph(graph, mine), answers))
        except Refused as refused:
            why = why or str(refused)
        except ValueError as error:
            wrong = error
    if durations and not set(durations) <= named and named:
        missing = sorted(set(durations) - named)[0]
        raise ValueError(f"no operation is called {missing!r}; those that take time are: {', '.join(sorted(named))}")
    if wrong is not None and not found:
        raise wrong
    if not found:
        raise Refused(why or "nothing in the design is periodic")
    return found


def _cost(timed: CostGraph, answers: Mapping[Key, str]) -> Cost:
    graph, program = timed.graph, timed.program
    chosen = {n for n in timed.names if timed.seconds[n] is not None} if timed.known else set(timed.names)
    chosen = {n for n in chosen if timed.seconds[n] != 0}
    seconds = {n: timed.seconds[n] or Fraction(0) for n in timed.names}
    every = set(range(len(graph.nodes)))
    whole = greatest_ratio(every, timed.edges, seconds)
    symbolic, complete = rounds(len(graph.nodes), timed.edges, chosen)
    cycles = [_cycle(one, timed) for one in symbolic]
    if timed.known:
        cycles.sort(key=lambda one: -(one.ratio or 0.0))
    waits = [_wait(op, timed, symbolic, chosen, seconds, whole) for op in _waits(graph)]
    zero = tuple(sorted(name for n, name in timed.names.items() if timed.known and timed.seconds[n] is None))
    return Cost(
        program.name,
        ", ".join(f"{key[2] if len(key) > 2 else key[1]}: {answer}" for key, answer in answers.items()),
        tuple(Timed(name, _agent(graph, graph.nodes[n]), _float(timed.seconds[n]), (graph.nodes[n].op.thread, graph.nodes[n].op.node)) for n, name in timed.names.items()),
        tuple(cycles),
        float(whole[0]) if whole is not None and timed.known else None,
        tuple(_threads(timed, seconds)) if timed.known else (),
        tuple(_loads(timed, seconds)) if timed.known else (),
        tuple(one for one in waits if one is not None),
        zero,
        tuple((str(key[1]), str(key[2]), answer) for key, answer in answers.items() if key[0] in ("choose", "maybe")),
        () if complete else (f"more than {MOST_CYCLES} cycles; those shown are not all",),
    )


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _agent(graph: Graph, node: Node) -> str:
    if node.agent[0] == "thread":
        return graph.program.threads[node.agent[1]].name
    return graph.program.objects[node.agent[1]].name


def _place(program: p.Program, op: Any) -> str:
    site = getattr(program.threads[op.thread].nodes[op.node], "site", -1)
    if not 0 <= site < len(program.places) or not program.places[site]:
        return ""
    at = program.places[site][-1]
    return f"{at.file}:{at.line}"


def _waits(graph: Graph) -> list[Any]:
    """Operations that wait for the device."""
    return [op for op, _ in graph.effects if isinstance(op.operation, WAITS)]


def _cycle(one: Round, timed: CostGraph) -> Cycle:
    total = sum(((timed.seconds[n] or Fraction(0)) * k for n, k in one.count.items()), Fraction(0))
    return Cycle(
        tuple(timed.names[n] for n in one.nodes), one.steps, _passed(one, timed),
        float(total / one.steps) if timed.known else None,
    )  # fmt: skip


def _passed(one: Round, timed: CostGraph) -> tuple[str, ...]:
    """The waits without which the cycle would not be one of so few steps."""
    found = []
    for op in _waits(timed.graph):
        edges = timed.without((op.thread, op.node))
        if edges == timed.edges:
            continue
        least = _between(len(timed.graph.nodes), edges, set(one.nodes))
        steps = 0
        for s, t in zip(one.nodes, one.nodes[1:] + one.nodes[:1], strict=True):
            if (s, t) not in least:
                steps = one.steps + 1
                break
            steps += least[s, t]
        if steps > one.steps:
            found.append(_wait_name(timed, op))
    return tuple(dict.fromkeys(found))


def _wait_name(timed: CostGraph, op: Any) -> str:
    operation: Any = op.operation
    target = getattr(operation, "event", None) or getattr(operation, "other", None) or getattr(operation, "stream", None)
    program = timed.program
    what = "the device"
    if isinstance(target, p.Local):
        what = local_name(timed.graph.names, op.thread, target.id)
    elif target is not None:
        what = program.objects[target.id].name
    verb = "synchronize" if isinstance(operation, (p.EventSync, p.StreamSync, p.DeviceSync)) else "item"
    if isinstance(operation, (p.StreamWaitEvent, p.WaitStream)):
        return f"{program.objects[operation.stream.id].name}.wait({what})"
    return f"{what}.{verb}()"


def _terms(count: Mapping[int, int], names: Mapping[int, str], steps: int) -> str:
    text = " + ".join((f"{k} * " if k != 1 else "") + _spelled(names[n]) for n, k in count.items()) or "0"
    if steps == 1:
        return text
    return f"({text}) / {steps}" if len(count) > 1 else f"{text} / {steps}"


def _wait(
    op: Any, timed: CostGraph, with_it: list[Round], chosen: set[int], seconds: Mapping[int, Fraction], whole: Any
) -> WaitCost | None:
    """What one wait costs; None for one that makes no edge."""
    edges = timed.without((op.thread, op.node))
    if edges == timed.edges:
        return None
    without, _ = rounds(len(timed.graph.nodes), edges, chosen)
    free: dict[str, None] = {}
    otherwise: dict[str, None] = {}
    for one in with_it:
        if decided_by(one, without):
            continue
        ways, more = [], []
        for other in without:
            # Written against each other cycle, with what both share left out.
            left, right = (other.count, one.count)
            if other.steps == one.steps:
                left, right = other.count - one.count, one.count - other.count
            lower, upper = _terms(left, timed.names, other.steps), _terms(right, timed.names, one.steps)
            if not one.above(other):
                ways.append(f"{lower} >= {upper}")
            more.append(upper if not left else f"{upper} - ({lower})" if len(left) > 1 else f"{upper} - {lower}")
        ways.sort(key=lambda way: (way.count(" + ") + way.count(" / "), way))
        more.sort(key=lambda text: (text.count(" + ") + text.count(" / "), text))
        free.setdefault(" or ".join(ways) if ways else "never")
        more = more or [_terms(one.count, timed.names, one.steps)]
        otherwise.setdefault(f"min({', '.join(more)})" if len(more) > 1 else more[0])
    figures: tuple[float | None, float | None] = (None, None)
    if timed.known and whole is not None:
        cycle = whole[1]
        if all(edges.get(pair) == timed.edges[pair] for pair in zip(cycle, cycle[1:] + cycle[:1], strict=True)):
            rest = whole  # the cycle that decides is still there, and without edges no other one gets greater
        else:
            rest = greatest_ratio(set(range(len(timed.graph.nodes))), edges, seconds)
        less = rest[0] if rest is not None else Fraction(0)
        figures = (float(less), float(whole[0] - less))
    return WaitCost(
        _wait_name(timed, op), _place(timed.program, op), tuple(free), tuple(otherwise), figures[0], figures[1],
        (op.thread, op.node),
    )  # fmt: skip


def _threads(timed: CostGraph, seconds: Mapping[int, Fraction]) -> list[tuple[str, float]]:
    """Per thread the greatest ratio of the cycles that it depends on."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(timed.graph.nodes)))
    graph.add_edges_from(timed.edges)
    found = []
    for t, thread in enumerate(timed.program.threads):
        mine = {node.number for node in timed.graph.nodes if node.agent[:2] == ("thread", t)}
        before = set(mine)
        for node in mine:
            before |= nx.ancestors(graph, node)
        best = greatest_ratio(before, timed.edges, seconds)
        if mine and best is not None:
            found.append((thread.name, float(best[0])))
    return found


def _loads(timed: CostGraph, seconds: Mapping[int, Fraction]) -> list[tuple[str, float]]:
    """Seconds per step that copies of each direction take, for engines that are shared."""
    total: dict[str, Fraction] = {}
    for n in timed.names:
        node = timed.graph.nodes[n]
        operation = node.op.operation
        if node.agent[0] == "stream" and isinstance(operation, (p.Copy, p.Item)):
            context = timed.graph.contexts[node.op.thread]
            host = ("pinned", "pageable", "")
            source = context.space(operation.src) in host
            target = isinstance(operation, p.Item) or context.space(operation.dst) in host
            kind = "d2d" if not source and not target else "h2d" if source else "d2h"
            total[kind] = total.get(kind, Fraction(0)) + seconds[n]
    return [(f"copies {kind}", float(load)) for kind, load in sorted(total.items())]
