"""What is played, searched or compared once for several questions says what each question alone is told."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest
from fencepost.designs import atom
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events.structure import late
from fencepost.model.events.values import UNKNOWN_PART, Contents, Observation, run_nodes, val
from fencepost.model.language.build import program_of
from fencepost.model.platform import BARE, PLATFORMS
from fencepost.proofs import edits
from fencepost.proofs.check import Checker
from fencepost.proofs.explain import Explainer
from fencepost.proofs.explore import complete as completing
from fencepost.proofs.explore.complete import Completions, Playing, complete
from fencepost.proofs.explore.locations import locations
from fencepost.proofs.explore.search import Budget, Found, OutOfBudget, Search
from fencepost.proofs.explore.setting import Setting
from fencepost.proofs.explore.state import Unsupported
from fencepost.proofs.explore.watch import watching

from random_meetings import meetings
from random_programs import generate

CUDA = PLATFORMS["cuda"]


def programs(count: int, seed: int) -> Iterator[p.Program]:
    """An engine with several hazards, then random programs, some in which streams meet."""
    yield program_of(atom.deferred_output, {"held": (), "spec": False, "clean": "forget"})
    for k in range(count):
        rng = random.Random(seed + k)
        yield meetings(rng) if k % 4 == 3 else generate(rng)


def hazards(program: p.Program) -> Iterator[tuple[Setting, list[Found]]]:
    """The hazards of each location."""
    setting = Setting(program)
    for location in locations(program):
        with contextlib.suppress(OutOfBudget, Unsupported):
            yield setting, Search(setting, location).run(Budget(states=2_000)).hazards


def state(playing: Playing | None) -> object:
    """What a judge looks at."""
    if playing is None:
        return None
    player = playing.player
    return playing.run, playing.begun, player.nodes, player.tenants, player.false_queries, player.clocks.now


@pytest.mark.parametrize("kept", [completing.KEPT, 3])
def test_paths_played_together(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path gives the run that it gives alone, in whatever order they are asked for and again."""
    monkeypatch.setattr(completing, "KEPT", kept)
    several = 0
    for program in programs(60, 100):
        for setting, found in hazards(program):
            paths = [one.steps for one in found if one.kind not in ("EMPTY", "TWICE")]
            together = Completions(program, CUDA, BARE, setting.lowered, paths)
            order = paths * 2
            random.Random(len(paths)).shuffle(order)
            for path in order:
                assert state(together.complete(path)) == state(complete(program, path, CUDA, BARE))
            several += len(set(paths)) > 1
    assert several > 5


def at_random(program: p.Program, rng: random.Random, length: int) -> events.Structure:
    """A run of so many steps, or to where no thread can move; the steps of the device first."""
    player, steps = events.Player(program), []
    while len(steps) < length:
        device = player.device_steps()
        threads = [t for t in range(len(program.threads)) if player.enabled(t)]
        if not device and not threads:
            break
        t = rng.choice(threads) if threads else 0
        answers = player.possible_answers(t)
        step = device[0] if device else Step(t, player.pc(t), rng.choice(answers) if answers else None)
        try:
            player.copy().step(step)
        except events.InvalidRun:
            break
        player.step(step)
        steps.append(step)
    return events.Structure(player, Run(tuple(steps)))


def both_orders(structure: events.Structure, first: int, second: int) -> bool | None:
    """Whether some reader of the run observes other content when two accesses swap: everything is run, in both orders."""
    a, b = structure.accesses[first].node, structure.accesses[second].node
    nodes = structure.nodes
    saved = val(structure)[1].saved
    before = [n for n, x in enumerate(nodes) if any(events.happens_before(x, nodes[one]) for one in (a, b))]
    rest = [n for n in range(len(nodes)) if n not in before and n not in (a, b)]
    seen: list[dict[int, Observation]] = []
    for middle in ((a, b), (b, a)):
        seen.append({})
        run_nodes(structure, [*before, *middle, *rest], Contents(saved), seen[-1])
    return seen[0] != seen[1]


def test_two_accesses_at_a_time() -> None:
    """`conflicting` picks the pairs of `conflicts`, and what swapping two accesses changes shows in a few buffers."""
    changed = {True: 0, False: 0}
    for number, program in enumerate(programs(400, 500)):
        structure = at_random(program, random.Random(number), 60)
        pairs = [(i, j) for j in range(len(structure.accesses)) for i in range(j) if events.conflicting(structure, i, j)]
        assert sorted(pairs) == events.conflicts(structure)
        for pair in random.Random(number).sample(pairs, min(len(pairs), 12)):
            changes, why = events.value_change(structure, *pair)
            if why == UNKNOWN_PART or late(structure, *pair):
                continue
            assert (changes is True) == both_orders(structure, *pair), (pair, why)
            changed[changes is True] += 1
    assert min(changed.values()) > 100, changed


def synchronisations(program: p.Program) -> list[tuple[int, int]]:
    return [
        (t, i) for t, thread in enumerate(program.threads) for i, node in enumerate(thread.nodes)
        if isinstance(node, p.Do) and isinstance(node.operation, edits.SYNCHRONISATIONS)
    ]  # fmt: skip


def test_what_tells_nothing_is_not_needed() -> None:
    """A proof stands without each synchronisation that changed no state of it; a search of the edited program says the same."""
    told = {True: 0, False: 0}
    for program in [generate(random.Random(900 + seed)) for seed in range(100)]:
        setting = Setting(program)
        for location in locations(program):
            try:
                search = Search(setting, location, proof=True)
                nodes = [at for at in synchronisations(program) if at[1] not in search.passed[at[0]]]
                watched, telling = watching(search, nodes)
                if watched.run(Budget(states=300)).hazards or not nodes:
                    continue
            except (OutOfBudget, Unsupported):
                continue
            for at in nodes:
                try:
                    hazards = Search(Setting(edits.without(program, *at)), location, proof=True).run(Budget(states=600)).hazards
                except (OutOfBudget, Unsupported):
                    continue
                assert at in telling or not hazards, (program.name, location, at)
                told[at in telling] += 1
    assert min(told.values()) > 20, told


def test_what_closes_a_hazard_is_decided_for_each() -> None:
    """Additions that leave a hazard which is known are left out: those that remain are the ones that a search finds clean."""
    closed = open_ = 0
    for program in programs(90, 1_300):
        checker = Checker(program, CUDA, BARE, Budget(states=2_000), False, (), explain=False)
        with contextlib.suppress(events.DesignError):
            if checker.answer().verdict == "refuted":
                where, judged = Explainer(checker.setting), checker.best
                assert judged is not None
                own = [
                    text for text, operation, (t, n) in where._candidates(judged)
                    if edits.writable(program, t, operation)
                    and where.clean(edits.insert_before(program, t, edits.before_call(program.threads[t], n), operation), judged.location)
                ]  # fmt: skip
                assert where.fixes(judged) == own[:3]
                closed += bool(own)
                open_ += not own and bool(where._candidates(judged))
    assert closed > 10 and open_ > 5, (closed, open_)
