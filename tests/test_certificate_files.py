"""Certificates: written, checked from their files by both solvers, and refused when anything in them was tampered with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fencepost.cli import run
from fencepost.designs import ring
from fencepost.model.language.build import program_of
from fencepost.model.platform import platform
from fencepost.model.program import Program
from fencepost.proofs.certificates import files, obligations, solvers, writing

from certificate_tampering import (
    HAND_OVER,
    TAMPERED,
    checked,
    edit_lines,
    edit_manifest,
    original,
    report_of,
    without_last,
)

CUDA = platform(None)
CVC5 = pytest.mark.skipif(not solvers.installed("cvc5"), reason="cvc5 is not installed (extra cvc5)")

RING = (ring.ring, {"depth": 3, "outstanding": 2, "reader_after_event": True})


def programs() -> list[tuple[str, Program]]:
    """Small proved designs of several kinds: rings, hand-overs, step kinds, blocks of the caching allocator."""
    from fencepost.check import build, cases
    from fencepost.loader import load

    wanted = {
        "vllm_v1": ("vllm#48901",), "vllm_v2": ("empty steps interleaved", "a ring of 2 events, 2 slots"),
        "sglang": ("2 records, one unprocessed launch", "recorded by forwards alone"),
        "atom": ("pop, drop, synchronize adjacent", "no spec decode: ids not held"),
        "tensorrt_llm": ("W1 alone (#14128)",),
    }  # fmt: skip
    found = []
    for engine, labels in wanted.items():
        for case in cases(load([f"designs/{engine}.py"])):
            if case.expected == "proved" and any(case.title.startswith(label) or case.title.endswith(label) for label in labels):
                (target,) = load([case.target])
                found.append((f"{engine}: {case.title}", build(target, case.parameters)))
    return found


def written(where: Path, design: tuple[Callable[..., Any], dict[str, Any]]) -> str:
    """The folder of a design's certificate."""
    writing.write_certificate(str(where), program_of(*design), CUDA)
    return str(where)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two certificates that the tests tamper with copies of."""
    top = tmp_path_factory.mktemp("certificates")
    (top / "hand-over").mkdir()
    for name, content in original().items():
        (top / "hand-over" / name).write_bytes(content)
    return {"hand-over": str(top / "hand-over"), "ring": written(top / "ring", RING)}


@pytest.mark.parametrize(("name", "program"), programs(), ids=lambda x: x if isinstance(x, str) else "")
def test_a_certificate_is_verified(name: str, program: Program, tmp_path: Path) -> None:
    """By each solver that is there, from the files alone."""
    writing.write_certificate(str(tmp_path), program, CUDA)
    use = [solver for solver in solvers.SOLVERS if solvers.installed(solver)]
    report = checked(str(tmp_path), *use)
    assert report.verified, (report.failures, report.open)
    assert report.states > 0
    assert {s.solver for s in report.solved} == set(use)
    assert all(s.status == solvers.UNSAT for s in report.solved)
    assert report.manifest.reach.at
    assert not report.manifest.reach.unsure


@CVC5
@pytest.mark.parametrize("name", ["hand-over", "ring"])
def test_cvc5_checks_a_certificate_in_a_fresh_process(name: str, originals: dict[str, str]) -> None:
    """No state of the process that wrote it, and no Z3."""
    command = [sys.executable, "-m", "fencepost", "verify", originals[name], "--solver", "cvc5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "100"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("VERIFIED")
    assert "cvc5" in done.stdout
    assert "unsat" in done.stdout
    assert "z3" not in done.stdout
    assert "trusted" in done.stdout


def test_the_file_is_complete_smt_lib(originals: dict[str, str]) -> None:
    """A solver's own reader accepts the file as it stands, and every check in it says unsat."""
    import z3

    text = Path(originals["hand-over"], "class-0.smt2").read_text()
    context = z3.Context()
    said = z3.Z3_eval_smtlib2_string(context.ref(), text).split()
    assert len(said) >= 3
    assert set(said) == {"unsat"}


# ---------------------------------------------------------------- tampering


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_fails_and_is_named(what: str) -> None:
    """Each kind of change is refused, with a message that names what was changed."""
    report = report_of(what)
    assert not report.verified
    assert any(TAMPERED[what][1] in failure for failure in report.failures), report.failures


def test_another_designs_relation_fails(originals: dict[str, str], tmp_path: Path) -> None:
    """The obligations of another design are true and prove nothing about this one."""
    folder = tmp_path / "copy"
    shutil.copytree(originals["ring"], folder)
    shutil.copy(Path(originals["hand-over"], "class-0.smt2"), folder / "class-0.smt2")
    report = checked(str(folder))
    assert any("Inv" in failure for failure in report.failures), report.failures
    assert any("the file lacks it" in failure for failure in report.failures), report.failures


def test_a_weaker_set_fails(originals: dict[str, str], tmp_path: Path) -> None:
    """A minimal set with a bit less covers states that are not reachable: one obligation or the other notices."""
    folder = tmp_path / "copy"
    shutil.copytree(originals["hand-over"], folder)
    text = (folder / "class-0.smt2").read_text()
    sets = obligations.read_sets(text)
    name, masks = next((n, m) for n, m in sets.items() if m[0] > 1)
    old, new = obligations.holds(masks[0]), obligations.holds(1)
    lines = [line.replace(old, new) if line.startswith(f"(define-fun inv_{name} ") else line for line in text.splitlines()]
    (folder / "class-0.smt2").write_text("\n".join(lines) + "\n")
    report = checked(str(folder))
    assert any("Inv => no hazard" in f or "Inv & step" in f for f in report.failures), report.failures


def test_both_solvers_find_what_a_removed_state_breaks(originals: dict[str, str], tmp_path: Path) -> None:
    """The verdict is not one solver's."""
    folder = tmp_path / "copy"
    shutil.copytree(originals["ring"], folder)
    edit_lines(without_last("(define-fun inv_"))(folder)
    use = [solver for solver in solvers.SOLVERS if solvers.installed(solver)]
    report = checked(str(folder), *use)
    for solver in use:
        assert any(f"Inv & step => Inv', {solver}" in failure for failure in report.failures)


# ---------------------------------------------------------------- bad input


def verify_says(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `fencepost verify`."""
    code = run(["verify", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_bad_folders_are_one_line(originals: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing folder or file, another version, and a damaged manifest: one line, exit code 2."""
    code, _, error = verify_says(capsys, str(tmp_path / "nothing"))
    assert (code, error.count("\n")) == (2, 1)
    assert "no such folder" in error

    def broken(name: str, change: Callable[[Path], None], message: str) -> None:
        folder = tmp_path / name
        shutil.copytree(originals["ring"], folder)
        change(folder)
        code, _, error = verify_says(capsys, str(folder))
        assert (code, error.count("\n")) == (2, 1), error
        assert message in error
        assert "Traceback" not in error

    broken("version", edit_manifest(lambda d: d.update(fencepost_certificate=99)), f"version 99, this fencepost reads version {files.CERTIFICATE_VERSION}")
    broken("schema", edit_manifest(lambda d: d.update(program_schema=99)), "schema version 99")
    broken("file", lambda folder: (folder / "class-0.smt2").unlink(), "class-0.smt2: No such file")
    broken("program", lambda folder: (folder / files.PROGRAM).unlink(), "program.json: No such file")
    broken("damaged", lambda folder: (folder / files.MANIFEST).write_text("{"), "not the manifest")
    broken("shape", edit_manifest(lambda d: d.pop("pairs")), "damaged")
    broken("outside", edit_manifest(lambda d: d["classes"][0].update(file="../x.smt2")), "outside of the folder")
    broken("node", edit_manifest(lambda d: d["program"]["program"]["threads"][0].update(entry=99)), "damaged program")


def test_text_that_is_no_invariant_is_named(originals: dict[str, str], tmp_path: Path) -> None:
    """What stands for the invariant has to be a disjunction of bit sets and nothing else."""
    folder = tmp_path / "copy"
    shutil.copytree(originals["ring"], folder)
    edit_lines(lambda lines: [line.replace("Bool (and", "Bool (xor") for line in lines])(folder)
    report = checked(str(folder))
    assert any("no disjunction of bit sets" in failure for failure in report.failures)


def test_a_missing_second_solver_is_said(
    originals: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without cvc5 the certificate is checked by z3 alone; asking for cvc5 by name is an input error."""
    monkeypatch.setattr(solvers, "installed", lambda solver: solver == "z3")
    code, out, error = verify_says(capsys, originals["ring"])
    assert code == 0
    assert "going on with z3 alone" in error
    assert "cvc5" not in out
    code, _, error = verify_says(capsys, originals["ring"], "--solver", "cvc5")
    assert code == 2
    assert "fencepost[cvc5]" in error


HARD = """(set-logic QF_BV)
(declare-const b (_ BitVec 128))
(assert (= (bvmul ((_ zero_extend 64) ((_ extract 63 0) b)) ((_ zero_extend 64) ((_ extract 127 64) b))) #xd5ba8a9f8e4c3b7a1f0e9d8c7b6a5955))
(assert (bvugt ((_ extract 63 0) b) #x0000000000000001))
(assert (bvugt ((_ extract 127 64) b) #x0000000000000001))
"""


@pytest.mark.parametrize("solver", solvers.SOLVERS)
def test_a_solver_reports_a_time_out(solver: str) -> None:
    """Factoring takes longer than a twentieth of a second."""
    if not solvers.installed(solver):
        pytest.skip(f"{solver} is not installed")
    assert solvers.solve(solver, HARD, 0.05).status == solvers.TIMEOUT


def test_a_time_out_is_no_failure_and_no_success(
    originals: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3, and what the solver did not decide is named; the rest is still checked."""
    real = solvers.solve

    def slow(solver: str, text: str, seconds: float) -> solvers.Result:
        return solvers.Result(solver, solvers.TIMEOUT, None, seconds) if "(not (inv_" in text else real(solver, text, seconds)

    monkeypatch.setattr(solvers, "solve", slow)
    code, out, _ = verify_says(capsys, originals["ring"], "--solver", "z3", "--timeout", "7")
    assert code == 3
    assert out.startswith("NOT DECIDED")
    assert "time-out after 7 s" in " ".join(out.split())


# ---------------------------------------------------------------- the command line


def test_check_writes_and_verify_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One folder for each proof; a refuted variant has none, and that is said."""
    where = tmp_path / "proofs"
    assert run(["check", "designs/ring.py::hand_over", "--certificate", str(where)]) == 0
    said = capsys.readouterr()
    assert len(list(where.iterdir())) == 2
    assert said.err.count("no certificate for") == 2
    assert "the answer is refuted" in said.err
    code, out, _ = verify_says(capsys, str(where))
    assert code == 0
    assert out.count("VERIFIED") == 2
    assert "a ring of 6 behind a queue of capacity 4" in out
    assert "capacity=4" in out


def test_certificates_are_not_written_over_other_things(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with anything else in it, and a file, are refused before the check."""
    (tmp_path / "mine").write_text("x")
    for where in (tmp_path, tmp_path / "mine"):
        assert run(["check", "designs/ring.py::hand_over", "--certificate", str(where)]) == 2
        assert "--certificate" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "x"


def test_no_certificate_for_a_hazard(tmp_path: Path) -> None:
    """The certificate's own search finds the race, whatever anybody else said."""
    program = program_of(ring.hand_over, {"depth": 2, "capacity": 1})
    with pytest.raises(writing.NoCertificate, match="slot: read at"):
        writing.write_certificate(str(tmp_path / "x"), program, CUDA)
    assert not (tmp_path / "x").exists()


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda data: None, None),
        (lambda data: data["parameters"].update(depth=6), "with depth=6, capacity=1 gives another one"),
        (lambda data: data.update(variant="a ring of 6 behind a queue of capacity 4"), "declares no 'a ring of 6"),
    ],
    ids=["as written", "a parameter", "the variant"],
)
def test_labels_are_compared_with_the_design(
    change: Callable[[dict[str, Any]], Any], wrong: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parameters, variant and name are labels, and said to be; `--against` traces the design and compares them."""
    folder = tmp_path / "certificate"
    program = program_of(*HAND_OVER)
    label = "a ring of 3 behind a queue of capacity 1"
    writing.write_certificate(str(folder), program, CUDA, variant=label, parameters=HAND_OVER[1])
    edit_manifest(change)(folder)
    assert run(["verify", str(folder), "--solver", "z3"]) == 0
    assert "not checked here" in " ".join(capsys.readouterr().out.split())
    assert run(["verify", str(folder), "--solver", "z3", "--against", "designs/ring.py"]) == (0 if wrong is None else 1)
    said = " ".join(capsys.readouterr().out.split())
    assert wrong is None or wrong in said
    assert ("FAILS" in said) == (wrong is not None)


def test_a_target_that_is_none(originals: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    assert run(["verify", originals["ring"], "--against", "designs/nothing.py"]) == 2
    assert "designs/nothing.py" in capsys.readouterr().err
