"""`feasible` and happens-before against a search over all timings of small random runs.

The search knows nothing of clocks or edges: it interleaves host calls and completions of items.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events import Player, execute, feasible, happens_before

S, T, E, F = (p.Obj(i) for i in range(4))
OBJECTS = (p.Stream("s"), p.Stream("t"), p.Event("e"), p.Event("f"))


class Call(NamedTuple):
    """One host call of a run. `items` are what it asks about; `item` what it enqueues, after the items `needs`."""

    thread: int
    objects: frozenset[p.Operand]
    answer: str | None = None
    items: frozenset[int] = frozenset()
    item: int | None = None
    needs: frozenset[int] = frozenset()


def random_program(rng: random.Random) -> p.Program:
    threads = []
    for name in "ab":
        nodes: list[p.Node] = []
        for index in range(5):
            following = index + 1 if index < 4 else p.END
            stream, event = rng.choice([S, T]), rng.choice([E, F])
            kind = rng.randrange(11)
            if kind < 3:
                question = p.StreamQuery(stream) if kind == 0 else p.EventQuery(event)
                nodes.append(p.Ask(question, (("yes", following), ("no", following))))
            else:
                operation = [
                    p.Launch("k", stream, ()), p.Record(event, stream), p.EventSync(event), p.StreamSync(stream),
                    p.StreamWaitEvent(stream, event), *[p.Host("h", ())] * 3,
                ][kind - 3]  # fmt: skip
                nodes.append(p.Do(operation, following))
        threads.append(p.Thread(name, "script", tuple(nodes), 0))
    return p.Program("random", OBJECTS, tuple(threads))


def random_run(rng: random.Random, program: p.Program) -> Run:
    player = Player(program)
    steps = []
    while live := [t for t in (0, 1) if not player.finished(t)]:
        t = rng.choice(live)
        answers = player.possible_answers(t)
        # "no" whenever it is possible: the interesting runs.
        steps.append(Step(t, player.pc(t), answers[-1] if answers else None))
        player.step(steps[-1])
    return Run(tuple(steps))


def calls_of(program: p.Program, run: Run) -> list[Call]:
    """What each call binds to, by the order of the calls."""
    tail: dict[p.Operand, frozenset[int]] = {S: frozenset(), T: frozenset()}
    capture: dict[p.Operand, frozenset[int]] = {E: frozenset(), F: frozenset()}
    calls = []
    for number, step in enumerate(run.steps):
        node = program.threads[step.thread].nodes[step.node]
        o = node.operation if isinstance(node, p.Do) else node.question
        objects = frozenset(x for x in (getattr(o, "stream", None), getattr(o, "event", None)) if x is not None)
        if isinstance(o, p.Launch):
            calls.append(Call(step.thread, objects, None, frozenset(), number, tail[o.stream]))
            tail[o.stream] |= {number}
            continue
        items: frozenset[int] = frozenset()
        answer = step.answer
        if isinstance(o, p.Record):
            capture[o.event] = tail[o.stream]
        elif isinstance(o, p.StreamWaitEvent):
            tail[o.stream] |= capture[o.event]
        elif isinstance(o, (p.EventSync, p.EventQuery)):
            items, answer = capture[o.event], answer or "yes"
        elif isinstance(o, (p.StreamSync, p.StreamQuery)):
            items, answer = tail[o.stream], answer or "yes"
        calls.append(Call(step.thread, objects, answer, items))
    return calls


State = tuple[frozenset[int], frozenset[int]]
"""Calls made, items ended."""


def timings(calls: list[Call]) -> set[State]:
    """The states from which the run can be finished, every wait and answer coming out as in the run."""
    needs = {c.item: c.needs for c in calls if c.item is not None}
    before = [
        {i for i in range(k) if calls[i].thread == c.thread or calls[i].objects & c.objects} for k, c in enumerate(calls)
    ]
    into: dict[State, list[State]] = {}
    work: list[State] = [(frozenset(), frozenset())]
    final = []
    while work:
        state = work.pop()
        made, ended = state
        if len(made) == len(calls):
            final.append(state)
        following = [
            (made | {k}, ended)
            for k, c in enumerate(calls)
            if k not in made
            and before[k] <= made
            and (c.answer is None or (c.items <= ended) == (c.answer == "yes"))
        ]
        following.extend((made, ended | {i}) for i in made if i in needs and i not in ended and needs[i] <= ended)
        for new in following:
            if new not in into:
                work.append(new)
            into.setdefault(new, []).append(state)
    good = set(final)
    while final:
        for state in into.get(final.pop(), ()):
            if state not in good:
                good.add(state)
                final.append(state)
    return good


@pytest.mark.parametrize("seed", range(3))
def test_feasible_is_exact_on_random_runs(seed: int) -> None:
    """Theory section 2 [T]: acyclic exactly when some timing gives the run."""
    rng = random.Random(seed)
    found = {True: 0, False: 0}
    for _ in range(600):
        program = random_program(rng)
        run = random_run(rng, program)
        expected = bool(timings(calls_of(program, run)))
        assert feasible(execute(program, run)) == expected, (program, run)
        found[expected] += 1
    assert min(found.values()) >= 3  # both kinds occurred


def test_no_timing_contradicts_happens_before() -> None:
    """Where the structure says "a ends before b starts", b cannot start in any timing before a has ended."""
    rng = random.Random(11)
    ordered = across = 0
    for _ in range(400):
        program = random_program(rng)
        run = random_run(rng, program)
        calls = calls_of(program, run)
        structure = execute(program, run)
        states = timings(calls)
        for a in structure.nodes:
            for b in structure.nodes:
                if a is b or not happens_before(a, b):
                    continue
                ordered += 1
                across += a.agent != b.agent
                for made, ended in states:
                    over = a.step in ended if a.stream is not None else a.step in made
                    begun = b.step in made and (b.stream is None or calls[b.step].needs <= ended)
                    assert over or not begun, (program, run, a, b)
    assert ordered > 400
    assert across > 100


def overlapping(program: p.Program, run: Run) -> set[tuple[int, int]]:
    """Pairs of steps whose accesses are under way together in some timing of some run with the same answers.

    Threads may stop early, and calls bind to whatever the order of calls in that run gives.
    """
    steps = [[k for k, s in enumerate(run.steps) if s.thread == t] for t in (0, 1)]
    found: set[tuple[int, int]] = set()
    nothing: frozenset[int] = frozenset()
    start = ((0, 0), nothing, ((), ()), {S: nothing, T: nothing}, {E: nothing, F: nothing})
    work: list[tuple[Any, ...]] = [start]
    seen = set()
    while work:
        at, ended, items, tail, capture = work.pop()
        key = (at, ended, items, tuple(tail.values()), tuple(capture.values()))
        if key in seen:
            continue
        seen.add(key)
        running = [i for i, needs in zip(*items, strict=True) if i not in ended and needs <= ended]
        under_way = list(running)
        for i in running:
            work.append((at, ended | {i}, items, tail, capture))
        for t in (0, 1):
            if at[t] == len(steps[t]):
                continue
            k = steps[t][at[t]]
            node = program.threads[t].nodes[run.steps[k].node]
            o = node.operation if isinstance(node, p.Do) else node.question
            new_items, new_tail, new_capture = items, tail, capture
            if isinstance(o, p.Host):
                under_way.append(k)
            elif isinstance(o, p.Launch):
                new_items = ((*items[0], k), (*items[1], tail[o.stream]))
                new_tail = {**tail, o.stream: tail[o.stream] | {k}}
            elif isinstance(o, p.Record):
                new_capture = {**capture, o.event: tail[o.stream]}
            elif isinstance(o, p.StreamWaitEvent):
                new_tail = {**tail, o.stream: tail[o.stream] | capture[o.event]}
            else:
                asked = capture[o.event] if isinstance(o, (p.EventSync, p.EventQuery)) else tail[o.stream]
                if (asked <= ended) != ((run.steps[k].answer or "yes") == "yes"):
                    continue
            moved = (at[0] + 1, at[1]) if t == 0 else (at[0], at[1] + 1)
            work.append((moved, ended, new_items, new_tail, new_capture))
        found |= {(i, k) for i in under_way for k in under_way if i < k}
    return found


def test_unordered_accesses_of_a_feasible_run_can_overlap() -> None:
    """Theory section 2: no edge is missing. What the structure leaves unordered really is under way together in some
    timing: of this run cut short after what comes before the two."""
    rng = random.Random(5)
    unordered = with_no = 0
    for _ in range(700):
        program = random_program(rng)
        run = random_run(rng, program)
        structure = execute(program, run)
        pairs = [
            (a.step, b.step)
            for n, b in enumerate(structure.nodes)
            for a in structure.nodes[:n]
            if not happens_before(a, b)
        ]
        if pairs and feasible(structure):
            unordered += len(pairs)
            with_no += any(s.answer == "no" for s in run.steps)
            missing = set(pairs) - overlapping(program, run)
            assert not missing, (program, run, missing)
    assert unordered > 300
    assert with_no > 50
