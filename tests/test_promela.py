"""A foreign opinion: SPIN on bounded Promela instances of every small design gives the verdict that it declares.

SPIN checks an explicit model with semantics of its own (proofs/foreign/promela.py). What it finds is an access that
overlaps a conflicting one. Small is what `LARGEST` and `MEGABYTES` say; every other variant is skipped with its reason.
"""

from __future__ import annotations

import collections
import re
import shutil
import subprocess
from pathlib import Path

import fencepost as fp
import pytest
from fencepost.check import Case, build, cases, decide
from fencepost.cli import run
from fencepost.loader import load
from fencepost.model import events
from fencepost.model.answer import BOUNDED, MASKED, PROVED, REFUTED
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check as explore
from fencepost.proofs.foreign.promela import NotExported, promela
from fencepost.proofs.smt.engine import check
from fencepost.simulator.random_designs import stream

from smt_agreement import turns_of

COMPILER = shutil.which("tcc") or shutil.which("cc")
"""SPIN's checker of one design is compiled in 20 ms by tcc and in a second by others, and runs for less."""
TOOLS = pytest.mark.skipif(
    not shutil.which("spin") or COMPILER is None, reason="spin or a C compiler is absent (apt-get install spin tcc)"
)
TURNS = 3
LARGEST = 30
"""Most nodes of all threads together in a design that is called small."""
MEGABYTES = 24
"""Most memory of one search: so a design that needs more gives up alike on every machine."""
GAVE_UP = "gave up"


REVERSED = ("-DREVERSE", "-DT_REVERSE")
"""The same search, processes and choices in the opposite order: an error deep in one may be near in the other."""


def verdict(text: str, folder: Path, *options: str) -> str:
    """ "refuted" | "bounded", or "gave up" when the search was not complete."""
    assert COMPILER is not None
    (folder / "model.pml").write_text(text)
    for command in (
        ["spin", "-a", "model.pml"],
        [COMPILER, "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEGABYTES}", "-DVECTORSZ=16384", *options,
         "-o", "pan", "pan.c"],
    ):  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    done = subprocess.run(["./pan", "-E", "-m100000", "-w18"], cwd=folder, capture_output=True, text=True, check=False)
    if "assertion violated" in done.stdout:
        return REFUTED
    if re.search("max search depth too small|Search not completed|reached -DMEMLIM|out of memory", done.stdout + done.stderr):
        return GAVE_UP
    assert "errors: 0" in done.stdout, done.stdout + done.stderr
    return BOUNDED


def declared() -> list[Case]:
    """Every variant of designs/ whose verdict is declared."""
    return [case for case in cases(load(["designs"])) if case.expected is not None]


@TOOLS
@pytest.mark.parametrize("case", declared(), ids=lambda case: f"{case.design}-{case.title}")
def test_spin_agrees_on_small_designs(case: Case, tmp_path: Path) -> None:
    """A design that is declared refuted fails within the turns of the explorer's run, and every other one never does.

    Differences by definition (theory section 4): more turns than were asked for, and hazards that change no value.
    """
    (target,) = load([case.target])
    program = build(target, case.parameters)
    if sum(len(thread.nodes) for thread in program.threads) > LARGEST:
        pytest.skip(f"not small: more than {LARGEST} nodes")
    world = {"environment": case.environment, "platform": case.platform}

    def asked(turns: int, *options: str) -> str:
        return verdict(promela(program, turns, **world), tmp_path, *options)

    try:
        got = asked(TURNS)
    except NotExported as reason:
        pytest.skip(f"not exported: {reason}")
    if case.expected == REFUTED and got != REFUTED:
        answer = decide(case).answer
        assert answer is not None and answer.run is not None
        turns = turns_of(program, answer.run)
        assert turns > TURNS or got == GAVE_UP, "SPIN has no error within the turns of the explorer's run"
        got = asked(turns) if turns > TURNS else got
        got = asked(turns, *REVERSED) if got == GAVE_UP else got
    elif got == GAVE_UP:
        got = asked(TURNS - 1)
    if got == GAVE_UP:
        pytest.skip(f"not small: the search needs more than {MEGABYTES} MB")
    if case.expected == PROVED and got == REFUTED:
        answer = decide(case).answer
        assert answer is not None and any("access-level" in note for note in answer.notes), answer
        pytest.skip("has an access-level hazard, which SPIN cannot tell from others")
    assert got == (REFUTED if case.expected == REFUTED else BOUNDED)
    assert case.expected in (PROVED, REFUTED, MASKED)


PARTS = {
    "two names": (lambda b, n: (b["a"], b["b"]), BOUNDED),
    "one name": (lambda b, n: (b["a"], b["a"]), REFUTED),
    "a name and the whole": (lambda b, n: (b["a"], b), REFUTED),
    "spans apart": (lambda b, n: (b[0:4], b[4:8]), BOUNDED),
    "spans that share an element": (lambda b, n: (b[0:5], b[4:8]), REFUTED),
    "a name and a span": (lambda b, n: (b["a"], b[0:4]), REFUTED),
    "one row a turn": (lambda b, n: (b[n], b[n]), REFUTED),
    "the row of the turn before": (lambda b, n: (b[n], b[n - 1]), BOUNDED),
    "rows of other turns": (lambda b, n: (b[n], b[n + 5]), BOUNDED),
    "a row and any": (lambda b, n: (b[n], b[fp.ANY]), REFUTED),
    "parts of one part": (lambda b, n: (b["a"].view()["x"], b["a"].view()["y"]), BOUNDED),
    "parts of parts": (lambda b, n: (b["a"].view()["x"], b["b"].view()["x"]), BOUNDED),
    "a part of a part, and that part": (lambda b, n: (b["a"].view()["x"], b["a"]), REFUTED),
}
"""What a kernel writes and what another stream reads, unordered."""


@TOOLS
@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("block", [False, True], ids=["lives for ever", "allocated"])
def test_spin_knows_parts_of_memory(name: str, block: bool, tmp_path: Path) -> None:
    """Parts keep apart what names, spans and rows keep apart; the SMT engine says the same."""
    parts, expected = PARTS[name]

    def design() -> fp.Design:
        d = fp.Design("parts")
        ever = d.device("buffer")
        side = d.stream("side")

        @d.loop("host")
        def step(n: fp.Turn) -> None:
            buffer = d.empty("buffer of a turn") if block else ever
            written, read = parts(buffer, n)
            d.launch("fill", writes=[buffer])
            side.wait_stream(d.current_stream())
            d.launch("write", writes=[written])
            with side:
                d.launch("read", reads=[read])
            d.current_stream().wait_stream(side)

        return d

    program = program_of(design, {})
    assert verdict(promela(program, 2), tmp_path) == expected
    assert check(program, 2, strict=True).verdict == expected


@TOOLS
def test_spin_agrees_on_random_designs(tmp_path: Path) -> None:
    """Random designs over the whole language: what is proved has no error, what is refuted has one in so many turns.

    A write of the bytes that are there already is left out: the explorer is strict here, and SPIN lets it pass.
    """
    count: collections.Counter[tuple[str, str]] = collections.Counter()
    for design, program in stream(700_000, 60):
        if sum(len(thread.nodes) for thread in program.threads) > 20:
            continue
        try:
            answer = explore(program, strict=True, explain=False)
        except events.DesignError:
            continue
        turns = max(2, turns_of(program, answer.run)) if answer.run is not None else 2
        if turns > TURNS or any(hazard.value_changing is False for hazard in answer.hazards):
            continue
        try:
            text = promela(program, turns)
        except NotExported as error:  # by name: a lock that only keeps calls together
            assert "orders nothing" in str(error), error
            continue
        got = verdict(text, tmp_path)
        count[answer.verdict, got] += 1
        assert (answer.verdict, got) not in ((PROVED, REFUTED), (REFUTED, BOUNDED)), design.text
    assert count[PROVED, BOUNDED] >= 15 and count[REFUTED, REFUTED] >= 5, count


def test_the_command_writes_promela(capsys: pytest.CaptureFixture[str]) -> None:
    """The text for the variant that was asked for."""
    assert run(["export", "--promela", "designs/ring.py", "-k", "one buffer too few", "--steps", "2"]) == 0
    text = capsys.readouterr().out
    assert "proctype thread_0()" in text and "at most 2 turns" in text


def test_what_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the feature, exit code 2."""
    assert run(["export", "--promela", "designs/atom.py::deferred_output", "--steps", "40"]) == 2
    said = capsys.readouterr().err
    assert "cannot be written as Promela" in said and len(said.strip().splitlines()) == 1
