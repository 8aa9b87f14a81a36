"""A foreign opinion: SPIN on bounded Promela instances of small designs gives the verdict that they declare.

SPIN checks an explicit model with semantics of its own (proofs/foreign/promela.py). What it finds is an access that
overlaps a conflicting one, so designs whose proof notes an access-level hazard are not compared.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from fencepost.check import Case, build, cases
from fencepost.cli import run
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.answer import BOUNDED, REFUTED
from fencepost.proofs.foreign.promela import NotExported, promela
from fencepost.proofs.smt.engine import check

from random_programs import generate

TOOLS = pytest.mark.skipif(
    not shutil.which("spin") or not shutil.which("cc"), reason="spin or cc is absent (apt-get install spin gcc)"
)
TURNS = 3
SMALL = ("ring", "cases/slots", "cases/streams")
LARGEST = 14
"""Most nodes of all threads together in a design that is called small."""


def verdict(text: str, folder: Path) -> str:
    """ "refuted" | "bounded", or "gave up" when the search was not complete."""
    (folder / "model.pml").write_text(text)
    for command in (
        ["spin", "-a", "model.pml"],
        ["cc", "-O0", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=1000", "-DVECTORSZ=16384", "-o", "pan", "pan.c"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    try:
        done = subprocess.run(
            ["./pan", "-E", "-m200000"], cwd=folder, capture_output=True, text=True, check=False, timeout=60
        )
    except subprocess.TimeoutExpired:
        return "gave up"
    if "assertion violated" in done.stdout:
        return REFUTED
    assert "errors: 0" in done.stdout, done.stdout
    incomplete = "max search depth too small" in done.stdout or "Search not completed" in done.stdout
    return "gave up" if incomplete else BOUNDED


def small() -> list[Case]:
    """Declared variants with few nodes, one of each verdict for each design."""
    chosen: dict[str, list[Case]] = {}
    for case in cases(load([f"designs/{name}.py" for name in SMALL])):
        (target,) = load([case.target])
        program = build(target, case.parameters)
        if sum(len(thread.nodes) for thread in program.threads) <= LARGEST:
            kept = chosen.setdefault(case.target, [])
            if case.expected not in [one.expected for one in kept]:
                kept.append(case)
    return [case for kept in chosen.values() for case in kept]


@TOOLS
@pytest.mark.parametrize("case", small(), ids=lambda case: f"{case.design}-{case.title}")
def test_spin_agrees_on_small_designs(case: Case, tmp_path: Path) -> None:
    """Refuted where the SMT engine finds a run within so many turns, else without an error."""
    (target,) = load([case.target])
    program = build(target, case.parameters)
    world = {"environment": case.environment, "platform": case.platform}
    try:
        text = promela(program, TURNS, **world)
    except NotExported as reason:
        pytest.skip(f"not exported: {reason}")
    bounded = check(program, TURNS, **world)  # type: ignore[arg-type]
    assert bounded.verdict in (REFUTED, BOUNDED)
    if bounded.verdict == BOUNDED and any("access-level" in note for note in bounded.notes):
        pytest.skip("has an access-level hazard, which SPIN cannot tell from others")
    got = verdict(text, tmp_path)
    assert got == bounded.verdict
    assert case.expected != REFUTED or got == REFUTED or (bounded.bound or 0) == TURNS


def exported(seed: int) -> p.Program | None:
    """A random design that can be written as Promela and is small enough for SPIN."""
    program = generate(random.Random(seed))
    try:
        promela(program, 2)
    except NotExported:
        return None
    return program if sum(len(thread.nodes) for thread in program.threads) <= LARGEST else None


@TOOLS
@pytest.mark.parametrize("seed", [seed for seed in range(700_000, 700_060) if exported(seed)][:6])
def test_spin_agrees_on_random_designs(seed: int, tmp_path: Path) -> None:
    """Two turns of random designs: SPIN and the SMT engine say the same about accesses that overlap."""
    program = exported(seed)
    assert program is not None
    bounded = check(program, 2, strict=True)
    got = verdict(promela(program, 2), tmp_path)
    if got != "gave up" and not any("access-level" in note for note in bounded.notes):
        assert got == bounded.verdict, bounded.hazards


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
