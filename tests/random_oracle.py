"""An oracle for programs that knows nothing of the explorer: concrete runs; and what the two disagree about.

`find_bad_run` plays random runs, and all short runs of a tiny program, on the concrete event structure. `disagreement`
decides a program and compares with it, and with the explorer's own searches without slicing or without reduction.
"""

from __future__ import annotations

import argparse
import collections
import random
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events.structure import Structure
from fencepost.model.platform import BARE, ENVIRONMENTS, PLATFORMS, Environment, Platform

if TYPE_CHECKING:
    from fencepost.proofs.explore.search import Reach

World = tuple[Platform, Environment]
BARE_CUDA: World = (PLATFORMS["cuda"], BARE)


def random_world(rng: random.Random) -> World:
    """Mostly the bare CUDA platform."""
    if rng.random() < 0.8:
        return BARE_CUDA
    return rng.choice(list(PLATFORMS.values())), rng.choice((BARE, *ENVIRONMENTS.values()))


def random_run(
    program: p.Program, rng: random.Random, steps: int, world: World = BARE_CUDA
) -> tuple[events.Player, list[Step]]:
    """Play one random run. Raises `events.DesignError` where the design gets from an empty cell."""
    player = events.Player(program, *world)
    done: list[Step] = []
    threads = list(range(len(program.threads)))
    labels = 0
    last = 0
    stick = rng.choice((0.0, 0.5, 0.8, 0.9))
    weights = [rng.choice((1, 1, 5)) for _ in threads]
    again = rng.choice((0.3, 0.9))
    while len(done) < steps:
        movable = [t for t in threads if player.enabled(t)]
        device = player.device_steps()
        if device and (not movable or rng.random() < 0.4):
            done.append(rng.choice(device))
            player.step(done[-1])
            continue
        if not movable:
            break
        t = last if last in movable and rng.random() < stick else rng.choices(movable, [weights[x] for x in movable])[0]
        last = t
        node = player.node(t)
        answers = player.possible_answers(t)
        if isinstance(node, p.Ask) and not answers:
            break
        block = None
        if isinstance(node, p.Do) and isinstance(node.operation, (p.Alloc, p.Take)):
            free, fresh = block_choices(player, t)
            if free and (not fresh or rng.random() < again):
                block = rng.choice(free)
            else:
                block, labels = labels, labels + 1
        step = Step(t, player.pc(t), rng.choice(answers) if answers else None, block)
        player.step(step)
        done.append(step)
    return player, done


def block_choices(player: events.Player, t: int) -> tuple[tuple[int, ...], bool]:
    """Blocks or tokens that the thread's allocation or take may get again, and whether a new one is possible."""
    node = player.node(t)
    assert isinstance(node, p.Do)
    fresh = True
    if isinstance(node.operation, p.Take):
        pool = player.program.objects[node.operation.pool]
        fresh = player.pools[node.operation.pool].made < pool.size  # type: ignore[union-attr]
    return player.possible_blocks(t), fresh


def every_run(program: p.Program, depth: int, limit: int, world: World = BARE_CUDA) -> tuple[str, list[Step]] | None:
    """The first bad run among all runs of at most `depth` host steps, `limit` of them at most."""
    stack: list[tuple[events.Player, list[Step]]] = [(events.Player(program, *world), [])]
    while stack and limit > 0:
        player, done = stack.pop()
        options: list[Step] = list(player.device_steps()) if len(done) < depth else []
        for t in range(len(program.threads)) if len(done) < depth else ():
            if not player.enabled(t):
                continue
            node, pc = player.node(t), player.pc(t)
            if isinstance(node, p.Ask):
                options += [Step(t, pc, answer) for answer in player.possible_answers(t)]
            elif isinstance(node.operation, (p.Alloc, p.Take)):
                free, fresh = block_choices(player, t)
                options += [Step(t, pc, None, b) for b in (*free, *((len(done),) if fresh else ()))]
            else:
                options.append(Step(t, pc))
        if not options:
            limit -= 1
            bad = verdict_of(player, done)
            if bad is not None:
                return bad, done
        for step in options:
            after = player.copy()
            try:
                after.step(step)
            except events.InvalidRun:
                continue
            stack.append((after, [*done, step]))
    return None


def verdict_of(player: events.Player, done: list[Step]) -> str | None:
    """What is wrong in a played run, or None."""
    structure = Structure(player, Run(tuple(done)))
    undefined = events.undefined_reads(structure)
    pairs = events.conflicts(structure)
    if not undefined and not pairs:
        return None
    if not events.feasible(structure):
        return None
    if undefined:
        return "UNDEFINED"
    for first, second in pairs[:40]:
        if events.value_change(structure, first, second)[0]:
            one, two = structure.accesses[first].touched, structure.accesses[second].touched
            return ("W" if two.write else "R") + "A" + ("W" if one.write else "R")
    return None


def find_bad_run(
    program: p.Program, rng: random.Random, runs: int = 60, steps: int = 50, world: World = BARE_CUDA
) -> tuple[str, list[Step]] | None:
    """A feasible run with a value-changing hazard or an undefined read; None if none turned up.

    Tries random runs; of a tiny program also all short ones.
    """
    size = sum(len(t.nodes) for t in program.threads)
    if size <= 12:
        bad = every_run(program, 12 if size > 8 else 14, runs * 5, world)
        if bad is not None:
            return bad
    for k in range(runs):
        try:
            player, done = random_run(program, rng, steps if k % 3 else steps // 2, world)
        except events.InvalidRun:
            continue  # an empty cell, or an answer that the start of its thread makes impossible
        bad = verdict_of(player, done)
        if bad is not None:
            return bad, done
    return None


# ---------------------------------------------------------------- the explorer, and comparing


Pairs = frozenset[tuple[str, Any]]
"""Hazards at one location: (kind, the two operations, each as (thread, node))."""


class Decision(msgspec.Struct):
    """What the explorer says. `word`: a verdict, "design error" or "budget"; `reason` for an unknown; hazards by location."""

    word: str
    reason: str = ""
    pairs: dict[str, Pairs] = {}


def pairs_of(program: p.Program, reach: Reach) -> Pairs:
    """The hazards of a search, of what it is about.

    Where streams meet, a signal that is always in time leaves its receivers' items nothing to be late for, so of a read and a
    write that nothing orders a search may see only one of the two orders: there a pair has no order.
    """
    meets = any(isinstance(o, (p.Channel, p.DeviceFlag)) for o in program.objects)
    found: set[tuple[str, Any]] = set()
    for one in reach.hazards:
        if one.kind == "UNDEFINED":  # of what was done before it nothing is said
            found.add((one.kind, one.second))
        elif meets:
            found.add(("RW" if one.kind == "WR" else one.kind, tuple(sorted(((-1, -1) if x is None else x) for x in (one.first, one.second)))))
        else:
            found.add((one.kind, (one.first, one.second)))
    return frozenset(found)


def decide(program: p.Program, states: int = 1500, seconds: float = 10.0, world: World = BARE_CUDA) -> Decision:
    """As `check`, without the explanations and the vacuity test (a proof that says nothing is no wrong proof)."""
    from fencepost.proofs.check import Checker
    from fencepost.proofs.explore import certify
    from fencepost.proofs.explore.compile import Unsupported
    from fencepost.proofs.explore.locations import locations
    from fencepost.proofs.explore.search import Budget, OutOfBudget
    from fencepost.proofs.explore.state import Beyond

    checker = Checker(program, *world, Budget(states, seconds), False, (), False)
    try:
        try:
            checker._explore(None)
        except Beyond as error:
            checker.unsure.append(str(error))
            checker.unbounded = True
        for location in locations(program):
            checker._location(location)
    except events.DesignError as error:
        return Decision("design error", str(error))
    except OutOfBudget as error:
        return Decision("budget", str(error))
    except Unsupported as error:
        return Decision("unsupported", str(error))
    pairs = {repr(s.location): pairs_of(program, reach) for s, reach in checker.reached}
    if checker._refuting():
        return Decision("refuted", "", {} if checker.unbounded else pairs)
    if checker.unbounded:
        return Decision("unsupported", checker.unsure[0])
    if checker.unsure:
        return Decision("unknown", checker.unsure[0], pairs)
    for search, reach in checker.reached:
        certify.recompute(search, reach)
    return Decision("proved", "", pairs)


def pairs_found(
    program: p.Program, sliced: bool, reduce: bool, states: int = 5000, world: World = BARE_CUDA
) -> dict[str, Pairs] | None:
    """Hazards by location, found by one variant of the search; None when the budget ends."""
    from fencepost.proofs.explore.locations import locations
    from fencepost.proofs.explore.search import Budget, OutOfBudget, Search
    from fencepost.proofs.explore.setting import Setting

    setting, budget = Setting(program, *world), Budget(states, 5.0)
    found: dict[str, Pairs] = {}
    try:
        for location in (None, *locations(program)):
            reach = Search(setting, location, sliced, reduce).run(budget)
            found[repr(location)] = pairs_of(program, reach)
    except OutOfBudget:
        return None
    return found


OUT_OF_BUDGET = "out of budget"


def other_search(program: p.Program, told: dict[str, Pairs], sliced: bool, reduce: bool, world: World) -> str | None:
    """What the search without slicing, or without reduction, finds otherwise; None when it is the same.

    The search that lists hazards for an answer ends a path at the first hazard of an access, and does not follow all
    interleavings: what it told is part of what the others found, and not nothing where they found something.
    """
    mine, other = pairs_found(program, True, True, world=world), pairs_found(program, sliced, reduce, world=world)
    if mine is None or other is None:
        return OUT_OF_BUDGET
    for where, plain in other.items():
        which = "SLICED" if not sliced else "REDUCED"
        if mine[where] != plain:
            alone = sorted(mine[where] - plain, key=str), sorted(plain - mine[where], key=str)
            return f"{which} DIFFERS at {where}: alone {alone[0]}, plain alone {alone[1]}"
        listed = told.get(where, frozenset())
        if bool(listed) != bool(plain) or listed - plain:
            return f"LISTED DIFFERS at {where}: {sorted(listed, key=str)}, plain {sorted(plain, key=str)}"
    return None


def disagreement(
    program: p.Program, rng: random.Random, count: collections.Counter[str], runs: int = 60, states: int = 1500,
    world: World | None = None,
) -> str | None:  # fmt: skip
    """Decide, compare with the oracle and with the other searches; what disagrees, or None. Without a world: one of many."""
    world = world or random_world(rng)
    decision = decide(program, states, world=world)
    count[decision.word] += 1
    if decision.word in ("proved", "unknown"):
        bad = find_bad_run(program, rng, runs, world=world)
        if bad is not None:
            count[f"{decision.word}, but a run is bad"] += 1
        if bad is not None and decision.word == "proved":
            return f"WRONG PROOF: {bad[0]}"
    if decision.word == "design error" and not reaches_error(program, rng, world):
        count["design error that no random run reaches"] += 1
    if decision.word in ("budget", "design error", "unsupported") or not decision.pairs:
        return None
    for sliced, reduce in ((False, True), (True, False)):
        if rng.random() < 0.6:
            continue
        wrong = other_search(program, decision.pairs, sliced, reduce, world)
        if wrong == OUT_OF_BUDGET:
            count["variant out of budget"] += 1
        elif wrong is not None:
            return wrong
    if decision.word == "unknown":
        return "UNKNOWN: " + decision.reason
    return None


def reaches_error(program: p.Program, rng: random.Random, world: World) -> bool:
    """Whether some random run gets from an empty cell."""
    for _ in range(200):
        try:
            random_run(program, rng, 40, world)
        except events.DesignError:
            return True
        except events.InvalidRun:
            continue
    return False


# ---------------------------------------------------------------- making small


def _reachable(thread: p.Thread) -> p.Thread:
    """The thread without nodes that cannot be reached."""
    order: list[int] = []
    todo = [thread.entry]
    while todo:
        n = todo.pop()
        if n < 0 or n in order:
            continue
        order.append(n)
        node = thread.nodes[n]
        todo += [node.next] if isinstance(node, p.Do) else [x for _, x in node.branches]
    number = {n: i for i, n in enumerate(order)} | {p.END: p.END}
    nodes: list[p.Node] = []
    for n in order:
        node = thread.nodes[n]
        if isinstance(node, p.Do):
            nodes.append(msgspec.structs.replace(node, next=number[node.next]))
        else:
            nodes.append(msgspec.structs.replace(node, branches=tuple((a, number[x]) for a, x in node.branches)))
    return msgspec.structs.replace(thread, nodes=tuple(nodes), entry=number[thread.entry])


def _without(thread: p.Thread, node: int, instead: int) -> p.Thread:
    """The thread with every edge to `node` redirected."""
    go = lambda n: instead if n == node else n  # noqa: E731
    nodes = tuple(
        msgspec.structs.replace(n, next=go(n.next)) if isinstance(n, p.Do)
        else msgspec.structs.replace(n, branches=tuple((a, go(x)) for a, x in n.branches))
        for n in thread.nodes
    )  # fmt: skip
    return _reachable(msgspec.structs.replace(thread, nodes=nodes, entry=go(thread.entry)))


def smaller(program: p.Program) -> list[p.Program]:
    """Programs with one thing less."""
    result: list[p.Program] = []
    threads = program.threads

    def put(t: int, thread: p.Thread | None) -> None:
        changed = (*threads[:t], *([thread] if thread is not None else []), *threads[t + 1 :])
        result.append(msgspec.structs.replace(program, threads=changed))

    for t, _thread in enumerate(threads):
        if len(threads) > 1:
            put(t, None)
    for t, thread in enumerate(threads):
        for i, node in enumerate(thread.nodes):
            for instead in [node.next] if isinstance(node, p.Do) else sorted({x for _, x in node.branches}):
                put(t, _without(thread, i, instead))
    for i, found in enumerate(program.objects):
        if getattr(found, "depth", None) in (3, 4):
            objects = (*program.objects[:i], msgspec.structs.replace(found, depth=2), *program.objects[i + 1 :])  # type: ignore[call-arg]
            result.append(msgspec.structs.replace(program, objects=objects))
    return result


def minimise(program: p.Program, still: Callable[[p.Program], bool]) -> p.Program:
    """Delete while the predicate holds."""
    again = True
    while again:
        again = False
        for candidate in smaller(program):
            try:
                good = any(t.entry != p.END for t in candidate.threads) and still(candidate)
            except Exception:
                good = False
            if good:
                program, again = candidate, True
                break
    return program


def show(program: p.Program) -> str:
    """The program as text: objects, then each thread's nodes."""
    lines = [f"  {i}: {o}" for i, o in enumerate(program.objects)]
    for t in program.threads:
        lines.append(f"  thread {t.name} {t.kind} entry {t.entry} locals {[(x.name, x.kind, x.depth, x.pool) for x in t.locals]}")
        for i, n in enumerate(t.nodes):
            what = n.operation if isinstance(n, p.Do) else n.question
            lines.append(f"    {i}: {what} -> {n.next if isinstance(n, p.Do) else n.branches}")
    return "\n".join(lines)


def campaign(
    generate: Callable[[random.Random], p.Program], seeds: Iterable[int], *, runs: int = 25, states: int = 600
) -> tuple[collections.Counter[str], str | None]:
    """What became of the programs of these seeds, and the first disagreement with its smallest program, if there is one."""
    count: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        program = generate(random.Random(seed))
        what = disagreement(program, random.Random(seed), count, runs=runs, states=states)
        if what is None or what.startswith("UNKNOWN"):
            continue
        head = what.split(":")[0].split(" at ")[0]

        def still(candidate: p.Program, head: str = head, seed: int = seed) -> bool:
            found = disagreement(candidate, random.Random(seed), collections.Counter())
            return found is not None and found.startswith(head)

        return count, f"seed {seed}: {what}\n{show(minimise(program, still))}"
    return count, None


def main(generate: Callable[[random.Random], p.Program] | None = None) -> int:
    """A long campaign of random programs: counts, and every disagreement made small."""
    if generate is None:
        from random_programs import generate

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--unknown", action="store_true", help="minimise unknown answers too")
    options = parser.parse_args()
    count: collections.Counter[str] = collections.Counter()
    kinds: collections.Counter[str] = collections.Counter()
    bad = 0
    for seed in range(options.seed, options.seed + options.count):
        if seed % 100 == 99:
            print(f"-- {seed}", flush=True)
        program = generate(random.Random(seed))
        started = time.time()
        try:
            what = disagreement(program, random.Random(seed), count, options.runs)
        except Exception as error:  # a crash is a disagreement too
            what = f"CRASH {type(error).__name__}: {error}"
        if time.time() - started > 30:
            print(f"seed {seed} took {time.time() - started:.0f} s", flush=True)
        if what is None:
            continue
        kind = what.split(":")[0].split(" at ")[0]
        if kind == "UNKNOWN":
            kind = "UNKNOWN " + what.split(", ")[-1][:70]
        kinds[kind] += 1
        count[kind] += 1
        if kind.startswith("UNKNOWN") and not (options.unknown and kinds[kind] <= 3):
            continue
        if kinds[kind] > 6:
            continue
        bad += 1

        def still(candidate: p.Program, head: str = what.split(":")[0].split(" at ")[0], kind: str = kind, seed: int = seed) -> bool:
            got = disagreement(candidate, random.Random(seed), collections.Counter(), 200 if head == "WRONG PROOF" else 20)
            if got is None or got.split(":")[0].split(" at ")[0] != head:
                return False
            return head != "UNKNOWN" or "UNKNOWN " + got.split(", ")[-1][:70] == kind

        small = program if head_is_crash(what) else minimise(program, still)
        print(f"\n=== seed {seed} {program.name}: {what}\n{show(small)}", flush=True)
    print("\n".join(f"{n:6} {k}" for k, n in sorted(count.items())))
    return 1 if bad else 0


def head_is_crash(what: str) -> bool:
    """Whether a crash is reported, which is not made smaller."""
    return what.startswith("CRASH")
