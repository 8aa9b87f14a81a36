"""Certificates: written, checked from their files by both solvers, and refused when anything in them was tampered with."""

from __future__ import annotations

import json
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
from fencepost.proofs.certificates import files, obligations, solvers, verifying, writing

CUDA = platform(None)
CVC5 = pytest.mark.skipif(not solvers.installed("cvc5"), reason="cvc5 is not installed (extra cvc5)")

HAND_OVER = (ring.hand_over, {"depth": 3, "capacity": 1})
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


def checked(directory: str, *use: str) -> verifying.Report:
    """What `verify` says of a folder."""
    manifest = files.load_manifest(directory)
    program = verifying.read_program(directory, manifest)
    return verifying.verify(directory, manifest, program, use=use or ("z3",))


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two certificates that the tests tamper with copies of."""
    top = tmp_path_factory.mktemp("certificates")
    return {"hand-over": written(top / "hand-over", HAND_OVER), "ring": written(top / "ring", RING)}


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


def edit_manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """A change of the manifest's JSON."""

    def apply(folder: Path) -> None:
        data = json.loads((folder / files.MANIFEST).read_text())
        change(data)
        (folder / files.MANIFEST).write_text(json.dumps(data))

    return apply


def edit_lines(change: Callable[[list[str]], list[str]], name: str = "class-0.smt2") -> Callable[[Path], None]:
    """A change of an SMT-LIB file's lines."""

    def apply(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines()
        after = change(lines[:])
        assert after != lines, "nothing was tampered with"
        (folder / name).write_text("\n".join(after) + "\n")

    return apply


def without_last(start: str) -> Callable[[list[str]], list[str]]:
    """Leave out the last line that starts so."""

    def change(lines: list[str]) -> list[str]:
        at = max(k for k, line in enumerate(lines) if line.startswith(start))
        return lines[:at] + lines[at + 1 :]

    return change


def edge_added(lines: list[str]) -> list[str]:
    """An update claims that a bit is set: an edge of happens-before that the program does not have."""
    at = max(k for k, line in enumerate(lines) if line.startswith("(define-fun u") and "(bvor" in line)
    start = lines[at].index("(bvor")
    depth = 0
    for stop in range(start, len(lines[at])):
        depth += {"(": 1, ")": -1}.get(lines[at][stop], 0)
        if depth == 0:
            break
    lines[at] = lines[at][:start] + "#b1" + lines[at][stop + 1 :]
    return lines


def guard_strengthened(lines: list[str]) -> list[str]:
    """A step may happen only when all bits are set."""
    at = max(k for k, line in enumerate(lines) if "(not (inv_" in line)
    lines[at] = lines[at].replace("(and (inv_", "(and (= (bvnot b) (bvxor b b)) (inv_", 1)
    return lines


def bit_too_many(lines: list[str]) -> list[str]:
    """A set with a bit that no state has."""
    at = max(k for k, line in enumerate(lines) if line.startswith("(define-fun inv_") and "Bool (= " in line)
    lines[at] = lines[at].replace("Bool (= ((_ extract 0 0) b) #b1)", "Bool (and (= ((_ extract 0 0) b) #b1) (= ((_ extract 90 90) b) #b1))")
    return lines


def trans_false(lines: list[str]) -> list[str]:
    """No step at all: everything is closed under it."""
    begin = lines.index(f"; {obligations.OBLIGATIONS[1]}") + 2
    stop = begin + lines[begin:].index("(check-sat)")
    return [*lines[:begin], "(assert false)", *lines[stop:]]


def check_dropped(lines: list[str]) -> list[str]:
    """An access is not checked any more."""
    at = max(k for k, line in enumerate(lines) if line.startswith("(and (inv_") and "(not (inv_" not in line)
    return lines[:at] + lines[at + 1 :]


def other_program(folder: Path) -> None:
    """The proof of a design in front of another design: one slot fewer."""
    for name in (files.PROGRAM, files.MANIFEST):
        text = (folder / name).read_text()
        assert '"depth":3' in text
        (folder / name).write_text(text.replace('"depth":3', '"depth":2'))


def remove(key: str, at: int = -1) -> Callable[[Path], None]:
    """Leave out one entry of a list of the manifest."""
    return edit_manifest(lambda data: data[key].pop(at))


def reach_dropped(data: dict[str, Any]) -> None:
    data["reach"]["at"].pop("0.1")


def reach_claimed_never(data: dict[str, Any]) -> None:
    data["reach"]["at"].pop("0.1")
    data["reach"]["never"].append("0.1")


def access_claimed_never(data: dict[str, Any]) -> None:
    access = data["accesses"][0]
    name = f"{access['thread']}.{access['node']}.{access['which']}"
    data["reach"]["at"].pop(name)
    data["reach"]["never"].append(name)


def pair_claimed_never(data: dict[str, Any]) -> None:
    pair = " ".join(data["pairs"][0])
    data["reach"]["at"].pop(pair)
    data["reach"]["never"].append(pair)


def run_shortened(data: dict[str, Any]) -> None:
    for one in data["reach"]["runs"]:
        one["steps"] = one["steps"][:2]


def run_impossible(data: dict[str, Any]) -> None:
    data["reach"]["runs"][0]["steps"].insert(0, data["reach"]["runs"][0]["steps"][-1])


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a state removed": (edit_lines(without_last("(define-fun inv_")), "Inv & step => Inv'"),
    "an edge of happens-before added": (edit_lines(edge_added), "relation (update)"),
    "a step removed": (edit_lines(without_last("(and (inv_")), "the file lacks it"),
    "a guard strengthened": (edit_lines(guard_strengthened), "relation (edge)"),
    "trans = false": (edit_lines(trans_false), "relation (edge)"),
    "a bit that no state has": (edit_lines(bit_too_many), "bits that no state has"),
    "a check dropped": (edit_lines(check_dropped), "hazard check"),
    "an access dropped": (remove("accesses"), "accesses: the manifest lacks"),
    "a pair dropped": (remove("pairs"), "conflict pairs: the manifest lacks"),
    "a class dropped": (remove("classes"), "classes: the manifest lacks"),
    "a slice operation dropped": (edit_manifest(lambda d: d["classes"][0]["slice"].pop(0)), "slice: the manifest lacks"),
    "an access dropped from a class": (edit_manifest(lambda d: d["classes"][0]["accesses"].pop()), "accesses: the manifest lacks"),
    "a class without its file": (edit_manifest(lambda d: d["classes"][0].update(file=None)), "no obligations"),
    "an assumption added": (edit_manifest(lambda d: d["assumptions"].append("kernels are instant")), "assumptions: "),
    "another environment": (edit_manifest(lambda d: d.update(environment="launch-blocking")), "environment: "),
    "other rules": (edit_manifest(lambda d: d.update(rules="0" * 16)), "rules: "),
    "another name": (edit_manifest(lambda d: d.update(design="other")), "design: the manifest says 'other'"),
    "another number of states": (edit_manifest(lambda d: d["classes"][0].update(states=1)), "the manifest says 1"),
    "another design": (other_program, "class slot"),
    "a spared pair added": (edit_manifest(lambda d: d["spared"].append("nothing reads: w of slot")), "spared pairs: "),
    "an operation without a run": (edit_manifest(reach_dropped), "reach: 0.1 has no run"),
    "an operation said never to run": (edit_manifest(reach_claimed_never), "it can occur"),
    "an access said never to be made": (edit_manifest(access_claimed_never), "it can occur"),
    "a pair said never to meet": (edit_manifest(pair_claimed_never), "it can occur"),
    "a run cut short": (edit_manifest(run_shortened), "does not reach"),
    "a run that cannot happen": (edit_manifest(run_impossible), "cannot happen"),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_fails_and_is_named(what: str, originals: dict[str, str], tmp_path: Path) -> None:
    """Each kind of change is refused, with a message that names what was changed."""
    folder = tmp_path / "copy"
    shutil.copytree(originals["hand-over"], folder)
    change, message = TAMPERED[what]
    change(folder)
    report = checked(str(folder))
    assert not report.verified
    assert any(message in failure for failure in report.failures), report.failures


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
    assert "a label: nothing checks it" in " ".join(capsys.readouterr().out.split())
    assert run(["verify", str(folder), "--solver", "z3", "--against", "designs/ring.py"]) == (0 if wrong is None else 1)
    said = " ".join(capsys.readouterr().out.split())
    assert wrong is None or wrong in said
    assert ("FAILS" in said) == (wrong is not None)


def test_a_target_that_is_none(originals: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    assert run(["verify", originals["ring"], "--against", "designs/nothing.py"]) == 2
    assert "designs/nothing.py" in capsys.readouterr().err
