"""Searching for a run of the machine that gets something wrong: guided by another engine's run, by Hypothesis, at random.

Whatever finds a run, the result is a script (simulator/machine_script.py): it is made small, run once more, and printed
as a replay string.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from fencepost.model import program as p
from fencepost.model.answer import Run
from fencepost.model.effects import MEETINGS
from fencepost.model.platform import environment as environment_named
from fencepost.model.platform import platform as platform_named
from fencepost.simulator.guide import Guide, plans
from fencepost.simulator.machine import Hardware, Machine, Outcome
from fencepost.simulator.machine_script import Follow, Random, Replay, ReplayError, Script, check_design, read_replay
from fencepost.simulator.machine_script import replay_string as string_of
from fencepost.simulator.machine_state import FOREVER, Waiting
from fencepost.simulator.machine_timing import PROFILES

EXTRA_TURNS = 2
"""Turns after the end of a guiding run: who lost a race of two writes shows only when somebody reads."""
EXTRA_STEPS = 400
LIMIT = 20000
"""Host steps of a run."""


class Found(msgspec.Struct, frozen=True):
    """A run with a wrong read. `examples`: runs that it took; `how` "guided" | "hypothesis" | "random" | "replay"."""

    outcome: Outcome
    replay: Replay
    text: str
    """The replay string."""
    examples: int
    how: str


class Searched(msgspec.Struct, frozen=True):
    """What a search came to. `found` None: no wrong read in `examples` runs, of `operations` operations in all."""

    found: Found | None
    examples: int
    operations: int
    faults: tuple[str, ...] = ()
    """What the design did that it must not do (`get` on an empty cell), each once."""
    blocked: tuple[str, ...] = ()
    """Threads that could never move again in some run."""
    waiting: tuple[str, ...] = ()
    """For each of them, and each stream, a sentence: what it waits for in the first such run."""


class World(msgspec.Struct, frozen=True):
    """What every run of a search has in common. Names as in fencepost.model.platform; `timing` a profile or None."""

    environment: str | None = None
    platform: str | None = None
    hardware: Hardware | None = None
    timing: str | None = None
    parameters: dict[str, Any] = {}
    """Of the design, only to be written into the replay string."""

    def machine(self, program: p.Program) -> Machine:
        """A machine for the design."""
        return Machine(program, platform_named(self.platform), environment_named(self.environment), self.hardware)

    def replay(self, turns: int, limit: int, script: Script, seed: int = 0) -> Replay:
        """The replay of a run in this world."""
        hardware = None if self.hardware is None else msgspec.structs.astuple(self.hardware)
        return Replay(parameters=self.parameters, environment=self.environment, platform=self.platform, hardware=hardware,
                      turns=turns, limit=limit, timing=self.timing, seed=seed, script=script)  # fmt: skip


def replay(program: p.Program, text: str) -> Found:
    """Run what a replay string says. The outcome may be free of wrong reads: a string replays any run.

    Raises `ReplayError` when the string is damaged, of another version, or of another design.
    """
    found, said = read_replay(text)
    check_design(program, found)
    hardware = None if said.hardware is None else Hardware(*said.hardware)
    world = World(said.environment, said.platform, hardware, said.timing, said.parameters)
    try:
        outcome = _follow(world.machine(program), said)
    except (KeyError, ValueError) as error:
        raise ReplayError(f"a run in a world that is not known here ({error}); search again without --replay") from None
    return Found(outcome, said, text.strip(), 1, "replay")


def _follow(machine: Machine, said: Replay) -> Outcome:
    profile = None if said.timing is None else PROFILES[said.timing]
    return machine.run(Follow(said.script), turns=said.turns, limit=said.limit, profile=profile, seed=said.seed)


BARE = World()


class Search:
    """A search over runs of one design in one world."""

    def __init__(self, program: p.Program, world: World = BARE) -> None:
        self.program, self.world = program, world
        self.machine = world.machine(program)
        self.examples = self.operations = 0
        self.faults: dict[str, None] = {}
        self.blocked: dict[str, None] = {}
        self.waiting: dict[tuple[str, bool], str] = {}

    def run(self, chooser: Any, turns: int, limit: int, seed: int) -> Outcome:
        """One run; `seed` is of the durations, in a timed world."""
        profile = None if self.world.timing is None else PROFILES[self.world.timing]
        outcome = self.machine.run(chooser, turns=turns, limit=limit, profile=profile, seed=seed)
        self.examples += 1
        self.operations += outcome.operations
        if outcome.fault is not None:
            self.faults[outcome.fault] = None
        for name in outcome.blocked:
            self.blocked[name] = None
        for one in outcome.waiting:
            self.waiting.setdefault((one.who, one.on_device), sentence(one))
        return outcome

    def searched(self, found: Found | None) -> Searched:
        """The result."""
        return Searched(found, self.examples, self.operations, tuple(self.faults), tuple(self.blocked), tuple(self.waiting.values()))

    def keep(self, outcome: Outcome, turns: int, limit: int, seed: int, how: str, examples: int | None = None) -> Found | None:
        """Make a run small and make sure that its string replays it; None when it does not."""
        examples = self.examples if examples is None else examples
        said = self.world.replay(turns, limit, outcome.script, seed)
        if not _follow(self.machine, said).observations:
            return None
        small = self.shrink(said)
        return Found(_follow(self.machine, small), small, string_of(self.program, small), examples, how)

    # ------------------------------------------------------------ guided

    def guided(self, run: Run, suspects: tuple[tuple[int | None, int], ...] = (), examples: int = 100) -> Found | None:
        """Take the steps of `run`, and hold back what has to be late (see `guide.plans`)."""
        limit = len(run.steps) + EXTRA_STEPS
        turns = max(_turns(self.program, run), default=0) + EXTRA_TURNS
        end = self.examples + examples
        for plan in plans(self.program, run, suspects):
            until = dict(plan.until)
            for _ in range(8):  # each time round one more query finds its work pending
                if self.examples >= end:
                    return None
                guide = Guide(run, plan.held, until, plan.torn)
                seed = self.examples
                outcome = self.run(guide, turns, limit, seed)
                if outcome.wrong is not None:
                    found = self.keep(outcome, turns, limit, seed, "guided")
                    if found is not None:
                        return found
                wanted = next(((q, w[-1]) for q, w in guide.early if until.get(w[-1], -1) < q), None)
                if wanted is None:
                    break
                until[wanted[1]] = wanted[0]
        return None

    # ------------------------------------------------------------ at random

    def random(self, examples: int, turns: int, seed: int = 0, limit: int = LIMIT) -> Found | None:
        """Adversarial runs from a seed: the fastest way to many of them."""
        for k in range(examples):
            most = turns if k % 2 else max(1, turns // 2)
            outcome = self.run(Random(f"{seed}/{k}"), most, limit, k)
            if outcome.wrong is not None:
                found = self.keep(outcome, most, limit, k, "random")
                if found is not None:
                    return found
        return None

    # ------------------------------------------------------------ Hypothesis

    def hypothesis(self, examples: int, turns: int, seed: int = 0, limit: int = LIMIT) -> Found | None:
        """Hypothesis draws scripts (`scripts`) and shrinks the first one that gets something wrong.

        Raises `ImportError` where Hypothesis is not installed.
        """
        import hypothesis
        from hypothesis import HealthCheck, Phase
        from hypothesis.errors import NoSuchExample

        said: dict[tuple[int, Script], Outcome] = {}
        first = 0

        def wrong(example: tuple[int, Script]) -> bool:
            nonlocal first
            outcome = self.run(Follow(example[1]), example[0], limit, seed)
            if outcome.wrong is not None:
                said[example] = outcome
                first = first or self.examples
            return outcome.wrong is not None

        settings = hypothesis.settings(
            max_examples=examples, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        try:
            example = hypothesis.find(scripts(self.program, turns), wrong, settings=settings, random=random.Random(seed))
        except NoSuchExample:
            return None
        return self.keep(said[example], example[0], limit, seed, "hypothesis", first)

    # ------------------------------------------------------------ shrinking

    def shrink(self, said: Replay) -> Replay:
        """The same wrong read with fewer stalls, fewer turns and fewer decisions.

        Nothing is left whose removal alone still gives a wrong read of the same memory.
        """
        goal = _follow(self.machine, said).wrong
        assert goal is not None

        def holds(candidate: Replay) -> bool:
            got = _follow(self.machine, candidate).wrong
            return got is not None and got.object == goal.object

        again = True
        while again:
            again = False
            for candidate in _smaller(said):
                if holds(candidate):
                    said, again = candidate, True
                    break
        return said


def _smaller(said: Replay) -> Iterator[Replay]:
    """Runs with something less."""
    script = said.script
    replace = msgspec.structs.replace

    def with_(**changes: Any) -> Replay:
        return replace(said, script=replace(script, **changes).trimmed())

    for turns in sorted({1, said.turns // 2, said.turns - 1}):
        if 0 < turns < said.turns:
            yield replace(said, turns=turns)
    stalls = script.stalls
    for k, (gap, delay, length) in enumerate(stalls):
        rest = stalls[k + 1 :]
        if rest:
            rest = ((rest[0][0] + gap + 1, rest[0][1], rest[0][2]), *rest[1:])
        yield with_(stalls=(*stalls[:k], *rest))
        if length:
            yield with_(stalls=(*stalls[:k], (gap, delay, 0), *stalls[k + 1 :]))
        if delay > 1:
            yield with_(stalls=(*stalls[:k], (gap, FOREVER, length), *stalls[k + 1 :]))
    for name in ("threads", "answers", "blocks", "parts", "engines", "releases"):
        values: tuple[Any, ...] = getattr(script, name)
        if values:
            yield with_(**{name: ()})
            yield with_(**{name: values[: len(values) // 2]})
        if len(values) > 40:
            continue
        for k, value in enumerate(values):
            yield with_(**{name: (*values[:k], *values[k + 1 :])})
            if name == "threads":
                if value[0]:
                    yield with_(threads=(*values[:k], (0, value[1]), *values[k + 1 :]))
            elif value:
                yield with_(**{name: (*values[:k], 0, *values[k + 1 :])})


def sentence(one: Waiting) -> str:
    """Who waits for what."""
    who = f"stream {one.who}, for step {one.turn} of {one.thread}," if one.on_device else f"{one.who}, in step {one.turn},"
    return f"{who} waits for ever for {one.what}"


def _turns(program: p.Program, run: Run) -> list[int]:
    """For each thread the turns that a run begins."""
    turns = [0] * len(program.threads)
    begun = [False] * len(program.threads)
    for step in run.steps:
        if step.stream is not None:
            continue
        begun[step.thread] = True
        node = program.threads[step.thread].nodes[step.node]
        after = node.next if isinstance(node, p.Do) else dict(node.branches)[step.answer or ""]
        if after == p.END:
            turns[step.thread] += 1
            begun[step.thread] = False
    return [t + b for t, b in zip(turns, begun, strict=True)]


def scripts(program: p.Program, turns: int) -> Any:
    """Strategy: (turns, script) pairs for a design. Shrinks to few turns, few stalls and few decisions."""
    from hypothesis import strategies as st

    def some(elements: Any, most: int) -> Any:
        return st.lists(elements, max_size=most).map(tuple)

    threads = len(program.threads)
    questions = [n.question for t in program.threads for n in t.nodes if isinstance(n, p.Ask)]
    open_ = [q for q in questions if isinstance(q, (p.Choose, p.Maybe))]
    options = max((len(q.options) if isinstance(q, p.Choose) else 2 for q in open_), default=0)
    operations = [n.operation for t in program.threads for n in t.nodes if isinstance(n, p.Do)]
    blocks = any(isinstance(o, (p.Alloc, p.Take)) for o in operations)
    items = sum(isinstance(o, (p.Launch, p.Copy, p.Memset, p.Item, p.Host, *MEETINGS)) for o in operations)
    delay = st.one_of(st.just(FOREVER), st.integers(1, 40))
    stall = st.tuples(st.integers(0, max(2, 2 * items)), delay, st.integers(0, 2))
    never: Any = st.just(())
    return st.tuples(
        st.integers(1, turns),
        st.builds(
            Script,
            threads=some(st.tuples(st.integers(0, threads - 1), st.integers(1, 12)), 24) if threads > 1 else never,
            answers=some(st.integers(0, options - 1), 24) if options > 1 else never,
            blocks=some(st.integers(0, 3), 24) if blocks else never,
            stalls=some(stall, 6),
            parts=some(st.integers(0, 2), 12) if _has_unknown_parts(program) else never,
            releases=some(st.integers(0, 2), 4),
        ),
    )


def _has_unknown_parts(program: p.Program) -> bool:
    return b'"Anything"' in msgspec.json.encode(program)


def suspects_of(hazards: Sequence[Any]) -> tuple[tuple[int | None, int], ...]:
    """The steps of the accesses of hazards (`model.answer.Hazard`), for `Search.guided`."""
    return tuple((None if h.first is None else h.first.index, h.second.index) for h in hazards)


def search(program: p.Program, world: World = BARE, *, examples: int = 500, turns: int = 8, seed: int = 0,
           run: Run | None = None, hazards: Sequence[Any] = (), progress: Callable[[str], None] | None = None) -> Searched:  # fmt: skip
    """Look for a wrong read in at most `examples` runs (shrinking aside): along `run` first when there is one, then most
    of what is left at random, which costs least, and the rest with Hypothesis, which varies what it drew before."""
    looking = Search(program, world)
    found = None
    if run is not None:
        found = looking.guided(run, suspects_of(hazards), min(examples, 200))
    left = examples - looking.examples
    if found is None and left > 1:
        if progress is not None:
            progress(f"{left} runs to go")
        found = looking.random(left - left // 5, turns, seed)
    left = examples - looking.examples
    if found is None and left > 0:
        if progress is not None:
            progress(f"{left} runs to go, drawn by Hypothesis")
        found = looking.hypothesis(left, turns, seed)
    return looking.searched(found)


def search_parameters(designs: Sequence[tuple[World, p.Program]], *, examples: int = 500, turns: int = 8,
                      seed: int = 0) -> tuple[int, Searched]:  # fmt: skip
    """Hypothesis chooses which of the designs (one per setting of the parameters, the simplest first) and its script.

    The result names the setting: the first in order that it could shrink to.
    """
    import hypothesis
    from hypothesis import HealthCheck, Phase
    from hypothesis import strategies as st
    from hypothesis.errors import NoSuchExample

    made: dict[int, Search] = {}
    drawn = first = 0

    def looking(number: int) -> Search:
        if number not in made:
            world, program = designs[number]
            made[number] = Search(program, world)
        return made[number]

    def wrong(example: tuple[int, tuple[int, Script]]) -> bool:
        nonlocal drawn, first
        drawn += 1
        number, (most, script) = example
        bad = looking(number).run(Follow(script), most, LIMIT, seed).wrong is not None
        if bad:
            first = first or drawn
        return bad

    strategy = st.integers(0, len(designs) - 1).flatmap(
        lambda number: st.tuples(st.just(number), scripts(designs[number][1], turns))
    )
    settings = hypothesis.settings(
        max_examples=examples, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    found, number = None, 0
    try:
        number, (most, script) = hypothesis.find(strategy, wrong, settings=settings, random=random.Random(seed))
        outcome = looking(number).run(Follow(script), most, LIMIT, seed)
        found = looking(number).keep(outcome, most, LIMIT, seed, "hypothesis", first)
    except NoSuchExample:
        pass
    total = sum(s.operations for s in made.values())
    faults = tuple(dict.fromkeys(fault for s in made.values() for fault in s.faults))
    blocked = tuple(dict.fromkeys(name for s in made.values() for name in s.blocked))
    waiting = tuple(dict.fromkeys(text for s in made.values() for text in s.waiting.values()))
    return number, Searched(found, drawn, total, faults, blocked, waiting)
