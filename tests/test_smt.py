"""The bounded SMT engine on every variant of designs/, on small designs, as SMT-LIB text in other solvers, and on bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fencepost.check import Case, build, cases, decide
from fencepost.cli import run
from fencepost.designs import ring
from fencepost.loader import load
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import BOUNDED, REFUTED, UNKNOWN
from fencepost.model.language.build import program_of
from fencepost.model.operations.meetings import first_meeting
from fencepost.model.platform import environment, platform
from fencepost.proofs.check import check as explore
from fencepost.proofs.foreign.smtlib import smtlib
from fencepost.proofs.smt.engine import check

from program_writer import Writer, r, w
from smt_agreement import turns_of

ENGINES = ("ring", "vllm_v1", "vllm_v2", "tensorrt_llm", "atom", "sglang")
TURNS = {"atom::deferred_output": 2}
"""Turns for which the safe variants are asked; 3 where nothing else is said. No other counterexample needs fewer."""
LONGEST = 18
"""Turns of the longest counterexample among the variants, and one more."""


def declared() -> list[Case]:
    """Every declared variant of the engines and of the public cases."""
    return cases(load([f"designs/{engine}.py" for engine in ENGINES] + ["designs/cases"]))


@pytest.mark.parametrize("case", declared(), ids=lambda case: f"{case.design}-{case.title}")
def test_every_variant(case: Case) -> None:
    """What is refuted is found with the declared hazard, its run replayed; what is safe is bounded."""
    refuted = case.expected == REFUTED
    steps = LONGEST if refuted else TURNS.get(case.design, 3)
    outcome = decide(msgspec.structs.replace(case, engine="smt", steps=steps))
    assert outcome.answer is not None, outcome.error
    answer = outcome.answer
    meeting = first_meeting(outcome.program) if outcome.program is not None else None
    if meeting is not None:  # refused by name
        assert answer.verdict == UNKNOWN and meeting in (answer.reason or "")
        return
    assert answer.verdict == (REFUTED if refuted else BOUNDED), (answer.verdict, answer.bound, answer.reason)
    if refuted:
        assert answer.matches, [hazard.name for hazard in answer.hazards]
        assert answer.run is not None and outcome.program is not None
        world = {"platform": platform(case.platform), "environment": environment(case.environment)}
        structure = events.execute(outcome.program, answer.run, **world)  # type: ignore[arg-type]
        assert events.feasible(structure)
        shown = [events.hazard_of(structure, *pair).name for pair in events.conflicts(structure)]
        shown += [events.undefined_hazard(structure, read).name for read in events.undefined_reads(structure)]
        assert answer.hazards[0].name in shown


@pytest.mark.parametrize("depth", range(1, 6))
@pytest.mark.parametrize("outstanding", range(1, 6))
def test_the_ring_needs_as_many_turns_as_the_explorer_says(depth: int, outstanding: int) -> None:
    """Shortest first: the bound at which a hazard is found is the number of turns of a shortest run."""
    program = program_of(ring.ring, {"depth": depth, "outstanding": outstanding})
    exact = explore(program, explain=False)
    answer = check(program, 8)
    if depth >= outstanding:
        assert (answer.verdict, answer.bound) == (BOUNDED, 8)
    else:
        assert exact.run is not None and answer.run is not None
        assert answer.bound == turns_of(program, exact.run) == turns_of(program, answer.run) == depth + 1


def test_a_bound_below_the_counterexample_finds_nothing() -> None:
    """BOUNDED(K) says nothing about K + 1 turns."""
    program = program_of(ring.ring, {"depth": 3, "outstanding": 4})
    assert [check(program, steps).verdict for steps in (3, 4)] == [BOUNDED, REFUTED]


# ---------------------------------------------------------------- other solvers


def query(depth: int) -> str:
    """A query about the ring with two results outstanding."""
    return smtlib(program_of(ring.ring, {"depth": depth, "outstanding": 2}), 4)


@pytest.mark.parametrize(("depth", "expected"), [(1, "sat"), (2, "unsat")])
def test_the_exported_query_in_z3(depth: int, expected: str) -> None:
    """The text alone, through Z3's own reader and its default solver."""
    import z3

    solver = z3.Solver()
    solver.from_string(query(depth))
    assert str(solver.check()) == expected


@pytest.mark.parametrize(("depth", "expected"), [(1, "sat"), (2, "unsat")])
def test_the_exported_query_in_cvc5(depth: int, expected: str) -> None:
    """The text alone, in a solver that shares no code with Z3."""
    cvc5 = pytest.importorskip("cvc5")
    solver = cvc5.Solver()
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, query(depth), "query")
    answers = []
    while True:
        command = parser.nextCommand()
        if command.isNull():
            break
        answers.append(command.invoke(solver, parser.getSymbolManager()).strip())
    assert [a for a in answers if a in ("sat", "unsat", "unknown")] == [expected]


# ---------------------------------------------------------------- bad input, and what is not encoded


def test_without_z3_the_extra_is_named() -> None:
    """One line however many variants there are, exit code 2."""
    code = (
        "import sys; sys.modules['z3'] = None; from fencepost.cli import run; "
        "sys.exit(run(['check', 'designs/ring.py::hand_over', '--engine', 'smt', '--jobs', '1']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "fencepost[prove]" in result.stderr and len(result.stderr.strip().splitlines()) == 1


def test_a_time_out_is_reported_as_such() -> None:
    """UNKNOWN, and how many turns are done."""
    (target,) = load(["designs/atom.py::deferred_output"])
    program = build(target, {})
    answer = check(program, 40, seconds=0.6)
    assert answer.verdict == UNKNOWN and answer.reason is not None
    assert "gave up after 0.6 s" in answer.reason


def test_a_time_out_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turns that were decided before the solver gave up stand in the answer."""
    from fencepost.proofs.smt import engine

    ask = engine.Solver.check
    monkeypatch.setattr(
        engine.Solver, "check", lambda self, turns, *more: "unknown" if turns > 4 else ask(self, turns, *more)
    )
    answer = check(program_of(ring.ring, {"depth": 4, "outstanding": 4}), 8)
    assert (answer.verdict, answer.bound) == (UNKNOWN, 4)
    assert answer.reason is not None and answer.reason.endswith("; runs of at most 4 have none")


def test_a_time_out_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown, with what is done by then; exit code 3."""
    command = ["check", "designs/atom.py::deferred_output", "--set", "spec=true", "--engine", "smt", "--steps", "40", "--budget", "0.8"]
    assert run(command) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "the solver gave up after 0.8 s at" in said and "unknown" in said


def two_threads(*body: p.Operation, kind: str = "loop") -> p.Program:
    """A pinned buffer that a copy reads and the host rewrites, with these operations between."""
    x = Writer()
    buf = p.Obj(x.add(p.Memory("buf", "pinned")))
    s = p.Obj(x.add(p.Stream("s")))
    t = x.thread(kind)
    t.body = [p.Host("fill", (w(buf),)), p.Launch("use", s, (r(buf),)), *body]
    return x.program("small")


def test_what_is_not_encoded_is_named() -> None:
    """UNKNOWN with the feature, never a verdict."""
    program = two_threads()
    x = msgspec.structs.replace(program, objects=(*program.objects, p.Queue("q", 1, (("", ()),))))
    thread = x.threads[0]
    nodes = (*thread.nodes, p.Do(p.Put(2, "", (), edge=False), thread.entry))
    odd = msgspec.structs.replace(x, threads=(msgspec.structs.replace(thread, nodes=nodes, entry=len(nodes) - 1),))
    answer = check(odd, 2)
    assert answer.verdict == UNKNOWN and "a put that orders nothing" in (answer.reason or "")


def test_circles_within_a_turn_are_bounded_and_noted() -> None:
    """A thread that goes round within its turn: the rounds are bounded, and the answer says so."""
    program = two_threads()
    thread = program.threads[0]
    nodes = (*thread.nodes, p.Ask(p.Maybe("again"), (("yes", thread.entry), ("no", p.END))))
    last = next(i for i, n in enumerate(thread.nodes) if isinstance(n, p.Do) and n.next == p.END)
    nodes = tuple(msgspec.structs.replace(n, next=len(nodes) - 1) if i == last else n for i, n in enumerate(nodes))  # type: ignore[call-arg]
    again = msgspec.structs.replace(program, threads=(msgspec.structs.replace(thread, nodes=nodes),))
    answer = check(again, 1)
    assert answer.verdict == REFUTED and answer.bound == 1  # the second round refills while the first copies
    synced = two_threads(p.StreamSync(p.Obj(1)))
    thread = synced.threads[0]
    nodes = (*thread.nodes, p.Ask(p.Maybe("again"), (("yes", thread.entry), ("no", p.END))))
    last = next(i for i, n in enumerate(thread.nodes) if isinstance(n, p.Do) and n.next == p.END)
    nodes = tuple(msgspec.structs.replace(n, next=len(nodes) - 1) if i == last else n for i, n in enumerate(nodes))  # type: ignore[call-arg]
    answer = check(msgspec.structs.replace(synced, threads=(msgspec.structs.replace(thread, nodes=nodes),)), 2)
    assert answer.verdict == BOUNDED and any("rounds of each circle" in note for note in answer.notes)


def test_a_script_makes_one_turn() -> None:
    """Without loops every bound is the same question."""
    answer = check(two_threads(kind="script"), 7)
    assert (answer.verdict, answer.bound) == (BOUNDED, 7)
    assert check(two_threads(), 7).bound == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "designs/ring.py", "--steps", "3"], "--steps bounds the engines"),
        (["check", "designs/ring.py", "--engine", "smt", "--steps", "0"], "--steps"),
        (["export", "designs/ring.py::ring"], "--promela or --smt2"),
        (["export", "--promela", "--smt2", "designs/ring.py::ring"], "not both"),
        (["export", "--smt2", "designs/ring.py"], "the target holds 2"),
        (["export", "--smt2", "designs/ring.py::ring", "-k", "outstanding"], "export writes one design"),
        (["export", "--smt2", "designs/nothing.py"], "nothing.py"),
        (["export", "--promela", "designs/ring.py::ring", "-o", "/nowhere/x.pml"], "/nowhere/x.pml"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    """What, where, what to do; exit code 2."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err and "Traceback" not in captured.err and captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


def test_export_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same text as on standard output."""
    file = tmp_path / "query.smt2"
    command = ["export", "--smt2", "designs/ring.py::ring", "--set", "depth=1"]
    assert run([*command, "-o", str(file)]) == 0
    assert "lines" in capsys.readouterr().out
    assert run(command) == 0
    assert capsys.readouterr().out == file.read_text()


@pytest.mark.parametrize("tries", [{"OTHERS_EFFORT": 1}, {"FIRST": 1}, {"FIRST": 1, "OTHER": 1}], ids=str)
def test_how_hard_is_tried_changes_no_verdict(tries: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Giving up on further hazards, encoding fewer turns again, the other solver, and back to the first one."""
    from fencepost.proofs.smt import engine

    for name, effort in tries.items():
        monkeypatch.setattr(engine if hasattr(engine, name) else engine.Solver, name, effort)
    for depth, verdict in ((4, "bounded"), (3, "refuted")):
        answer = check(program_of(ring.ring, {"depth": depth, "outstanding": 4}), 6)
        assert (answer.verdict, answer.bound) == (verdict, 6 if verdict == "bounded" else 4), tries
