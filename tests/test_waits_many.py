"""Many synchronisations, little time: what is decided is told, what is not is said; questions that are saved change nothing."""

from __future__ import annotations

import itertools
import json
import random
import textwrap
from pathlib import Path

import fencepost as fp
import pytest
from fencepost.check import build, cases
from fencepost.cli import run
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.answer import PROVED
from fencepost.model.language.build import program_of
from fencepost.proofs.waits.catalogue import HOST, Sync, synchronisations
from fencepost.proofs.waits.classify import NEEDED, OPEN, REDUNDANT, waits
from fencepost.proofs.waits.decide import TIME_ENDED, Oracle, judge_location
from fencepost.proofs.waits.static import Text, missed
from fencepost.proofs.waits.sufficient import minimal_sufficient

ROOT = Path(__file__).resolve().parent.parent


def many(count: int) -> p.Program:
    """One loop with so many buffers, each with an event of its own."""

    def design() -> fp.Design:
        d = fp.Design("many")
        buffers = [(d.pinned(f"b{i}"), d.device(f"g{i}"), d.event(f"e{i}")) for i in range(count)]

        @d.loop("worker")
        def step() -> None:
            for b, g, done in buffers:
                done.synchronize()
                b.write()
                g.copy_(b, non_blocking=True)
                done.record()

        return d

    return program_of(design, {})


def test_every_one_of_thirty() -> None:
    """Each wait is needed for its own buffer, and all of them together are proved."""
    answer = waits(many(30))
    kinds, objects = [f.kind for f in answer.findings], [f.breaks[0].object for f in answer.findings]
    assert kinds == [NEEDED] * 30 and objects == [f"b{i}" for i in range(30)]
    verdicts, complete, left = [one.verdict for one in answer.proofs], answer.complete, (*answer.open, *answer.cut)
    assert verdicts == [PROVED] and complete and not left
    # Few questions: whole, all but one, without one; not one for each pair of wait and buffer.
    asked = answer.asked
    assert asked <= 30 * 4


def test_two_hundred_in_no_time() -> None:
    """When the time ends, what is decided stands, and nothing is called redundant that an open object may need."""
    answer = waits(many(200), seconds=1.5)
    kinds = [f.kind for f in answer.findings]
    assert len(kinds) == 200 and set(kinds) <= {NEEDED, OPEN} and OPEN in kinds
    whys, proofs = [text.partition(": ")[2] for text in answer.open], len(answer.proofs)
    assert whys and set(whys) == {TIME_ENDED} and not proofs
    runs = [f.run is not None for f in answer.findings if f.kind == NEEDED]
    assert all(runs)


def test_the_command_says_what_is_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3, the open objects in one line, JSON with all of them."""
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "many.py"
    path.write_text(
        textwrap.dedent(
            """
            import fencepost as fp
            def many() -> fp.Design:
                d = fp.Design("many")
                bufs = [(d.pinned(f"b{i}"), d.device(f"g{i}"), d.event(f"e{i}")) for i in range(120)]
                @d.loop("w")
                def step(n):
                    for b, g, e in bufs:
                        e.synchronize()
                        b.write()
                        g.copy_(b, non_blocking=True)
                        e.record()
                return d
            """
        )
    )
    assert run(["waits", str(path), "--budget", "0.3", "--jobs", "1"]) == 3
    text = capsys.readouterr().out
    assert f"more: {TIME_ENDED}" in " ".join(text.split()) and "not decided" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert run(["waits", str(path), "--budget", "0.3", "--jobs", "1", "--format", "json"]) == 3
    (design,) = json.loads(capsys.readouterr().out)["designs"]
    assert design["open"] and len(design["synchronisations"]) == 120


def test_redundant_only_where_nothing_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open location takes the word "redundant" from all that may matter to it."""
    from fencepost.proofs.waits import decide, questions

    def design() -> fp.Design:
        d = fp.Design("two")
        a, b, out = d.pinned("a"), d.pinned("b"), d.device("out")

        @d.loop("worker")
        def step() -> None:
            a.write()
            b.write()
            out["a"].copy_(a, non_blocking=True)
            out["b"].copy_(b, non_blocking=True)
            d.current_stream().synchronize()
            d.synchronize()

        return d

    program = program_of(design, {})
    whole = waits(program, details=False)
    kinds = [f.kind for f in whole.findings]
    assert kinds == ["conditional", "conditional"]
    begun = questions._begun

    def cut(oracle: Oracle, location: decide.Location) -> questions.Begun:
        if location.label(oracle.program) == "b":
            oracle._known.pop(location, None)
            return questions.Begun(None, {}, {}, 0)
        return begun(oracle, location)

    monkeypatch.setattr(questions, "_begun", cut)
    part = waits(program, details=False)
    kinds, open_ = [f.kind for f in part.findings], part.open
    assert kinds == [OPEN, OPEN] and open_ == (f"b: {TIME_ENDED}",)


# ---------------------------------------------------------------- questions that are saved


def test_a_guess_changes_no_set() -> None:
    """Whatever is guessed to be enough, the minimal sets are the same."""
    for seed in range(150):
        rng = random.Random(seed)
        universe = list(range(rng.randrange(1, 7)))
        wanted = [frozenset(rng.sample(universe, rng.randrange(0, len(universe) + 1))) for _ in range(rng.randrange(1, 4))]

        def safe(gone: frozenset[int], wanted: list[frozenset[int]] = wanted) -> bool:
            return any(not gone & one for one in wanted)

        plain = minimal_sufficient(universe, safe)
        for guess in itertools.chain([frozenset(universe), frozenset[int]()], wanted, [frozenset(rng.sample(universe, len(universe) // 2))]):
            guessed = minimal_sufficient(universe, safe, guess)
            assert set(guessed.sets) == set(plain.sets) and guessed.complete and not guessed.unsure


@pytest.mark.parametrize(
    ("target", "label"),
    [
        ("designs/tensorrt_llm.py::v2_manager", "W1 + W2 + W3 (#14674)"),
        ("designs/vllm_v1.py::async_scheduling", None),
        ("designs/atom.py::release_at_pop", None),
        ("designs/ring.py::hand_over", None),
    ],
)
def test_what_an_exploration_used_is_enough(target: str, label: str | None) -> None:
    """Without all that told an exploration nothing new the location is safe; decided by a search of its own."""
    (found,) = load([str(ROOT / target)])
    case = next(c for c in cases([found]) if c.expected == PROVED and label in (None, c.label))
    program = build(found, case.parameters)
    syncs = synchronisations(program)
    oracle = Oracle(program, syncs)
    used = 0
    for location in oracle.locations:
        core = oracle.core(location)
        if core is not None:
            used += 1
            rest = oracle.relevant(location) - core
            assert judge_location(oracle.edited(rest), location, oracle.platform, oracle.environment).safe is True
            assert oracle.verdict(location, ()).safe is True
    assert used


def test_few_waits_gone_in_the_numbering_of_the_whole() -> None:
    """A search in the setting of the whole program finds what one in its own setting finds."""
    (found,) = load([str(ROOT / "designs/vllm_v1.py::async_scheduling")])
    case = next(c for c in cases([found]) if c.expected == PROVED)
    program = build(found, case.parameters)
    syncs: list[Sync] = synchronisations(program)
    oracle = Oracle(program, syncs)
    oracle.setting(frozenset())
    shared = 0
    for k, sync in enumerate(syncs):
        gone = frozenset((k,))
        shared += oracle._like_whole(gone) is not None
        assert (oracle._like_whole(gone) is not None) == (sync.kind in ("host wait", "stream wait"))
        for location in oracle.locations:
            mine = oracle.verdict(location, gone)
            own = judge_location(oracle.edited(gone), location, oracle.platform, oracle.environment)
            assert mine.safe == own.safe
            assert [j.hazard for j in mine.hazards[:1]] == [j.hazard for j in own.hazards[:1]]
    assert shared


def test_missed_says_nothing_that_the_wait_orders() -> None:
    """What a redundant wait is said not to cover are pairs that are hazards without any wait and that it does not order."""
    (found,) = load([str(ROOT / "designs/tensorrt_llm.py::v2_manager")])
    (case,) = [c for c in cases([found]) if c.label == "W1 + W2 + W3 (#14674)"]
    answer = waits(build(found, case.parameters))
    text = Text(answer.program)
    looked = 0
    for finding in answer.findings:
        alone = {frozenset(pair[1:]) for pair in finding.protects}
        assert not {frozenset((m.access, m.other)) for m in finding.missed} & alone
        if finding.kind == REDUNDANT and answer.syncs[finding.sync].kind == HOST:
            looked += len(missed(text, answer.syncs[finding.sync]))
    assert looked  # the text alone would say more


def test_a_late_wait_does_not_cover_what_stands_before_it() -> None:
    """A wait behind the write that somebody meant it for: another one orders that, and the report says so."""

    def design() -> fp.Design:
        d = fp.Design("late")
        a, b, out = d.pinned("a"), d.pinned("b"), d.device("out")
        one, two = d.event("one"), d.event("two")

        @d.loop("worker")
        def step() -> None:
            one.synchronize()
            a.write()
            two.synchronize()
            b.write()
            out["a"].copy_(a, non_blocking=True)
            one.record()
            out["b"].copy_(b, non_blocking=True)
            two.record()

        return d

    answer = waits(program_of(design, {}))
    first, second = answer.findings
    kinds, said = (first.kind, second.kind), [*first.missed, *second.missed]
    assert kinds == (NEEDED, NEEDED)
    assert not said  # each is needed: nothing is said of what it was never for

    def moved() -> fp.Design:
        d = fp.Design("moved")
        a, out = d.pinned("a"), d.device("out")
        one = d.event("one")

        @d.loop("worker")
        def step() -> None:
            d.current_stream().synchronize()
            a.write()
            one.synchronize()
            out.copy_(a, non_blocking=True)
            one.record()

        return d

    answer = waits(program_of(moved, {}))
    whole, late = answer.findings
    kinds, told = (whole.kind, late.kind), [(m.object, m.why) for m in late.missed]
    assert kinds == (NEEDED, REDUNDANT) and told == [("a", "before")]
