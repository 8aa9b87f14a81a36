"""`fencepost replay`, `attack` and `probe` without a GPU: dry runs, files, exit codes, bad input that is one line."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from fencepost.cli import run
from fencepost.gpu_validate.probes import PROFILE_VERSION, all_probes, switches
from fencepost.gpu_validate.probing import Measured
from fencepost.gpu_validate.skip import gpu_missing
from fencepost.model.platform import platform

DESIGN = """
import fencepost as fp


@fp.variant("guarded", fp.PROVED, guard=True)
@fp.variant("free", fp.REFUTED, hazard="WAR lens", fix="guarded", guard=False)
@fp.variant("pageable", fp.PROVED, space="pageable")
def refill(guard: bool = False, depth: int = 1, space: str = "pinned") -> fp.Design:
    d = fp.Design("refill")
    lens = getattr(d, space)("lens", depth=depth)
    device, event = d.device("lens_gpu"), d.event("prep")

    @d.loop("worker")
    def step(n: fp.Turn) -> None:
        if guard:
            event.synchronize()
        lens[n].write()
        device.copy_(lens[n], non_blocking=True)
        if guard:
            event.record()
        d.launch("forward", reads=[device])

    return d
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    monkeypatch.chdir(tmp_path)
    name = f"gpu_{request.node.name.split('[')[0]}.py"
    (tmp_path / name).write_text(DESIGN)
    return name


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a command ends with, exit code 2."""
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1, captured
    return captured.err


def test_dry_run_shows_the_plan_and_all_arms(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", target, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "shut(0, s_default)" in out and "e_prep.synchronize()" in out
    assert "gated            1 of 1" in out and "gated, fixed     0 of 1" in out
    assert "the host waited at event.synchronize in step 1 of worker (as the model says)" in out


def test_evidence_holds_hash_counts_and_versions(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", target, "--dry-run", "--json", "--evidence", "e.json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(Path("e.json").read_text())
    (row,) = found["rows"]
    assert found["fencepost_evidence"] == 1 and found["kind"] == "replay" and "emulated" in found["machine"]["devices"][0]
    assert len(row["hash"]) == 16 and row["hazard"] == "WAR lens" and row["fixed_variant"] == "guarded"
    assert [(arm["name"], arm["wrong"], arm["trials"]) for arm in row["arms"]] == [
        ("ungated", 0, 1), ("gated", 1, 1), ("gated, fixed", 0, 1),
    ]  # fmt: skip


def test_the_fixed_design_by_parameters(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", target, "-k", "free", "--dry-run", "--fixed", "depth=8"]) == 0
    assert "fixed design: depth=8" in capsys.readouterr().out
    assert run(["replay", f"{target}::refill", "--set", "depth=2", "--dry-run", "--fixed", "guard=true"]) == 0
    assert "gated, fixed     0 of 1" in capsys.readouterr().out
    assert "guards" in refused(capsys, "replay", target, "-k", "free", "--dry-run", "--fixed", "guards=true")


def test_a_fix_that_is_none_fails(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", target, "-k", "free", "--dry-run", "--fixed", "guard=false"]) == 1
    assert "gated, fixed     1 of 1" in capsys.readouterr().out


def test_a_replay_file_is_replayed_elsewhere(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", target, "--save", "r.json"]) == 0
    assert "1 counterexamples" in capsys.readouterr().err
    Path(target).unlink()
    assert run(["replay", "r.json", "--dry-run"]) == 0
    assert "WAR lens" in capsys.readouterr().out
    assert "is proved" in refused(capsys, "attack", "r.json", "--dry-run")


def test_the_script_is_written_and_is_python(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", target, "--script", "-"]) == 0
    ast.parse(capsys.readouterr().out)
    assert run(["replay", target, "--script", "s.py"]) == 0
    ast.parse(Path("s.py").read_text())


def test_attack_dry_run(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attack", target, "-k", "guarded", "--dry-run", "--evidence", "a.json"]) == 0
    out = capsys.readouterr().out
    assert "lens: copy_ of worker, then 'write' of worker: 0 of 3 wrong; host waits at event.synchronize" in out
    assert json.loads(Path("a.json").read_text())["rows"][0]["pairs"][0]["gates"] == 3


def test_bad_input_is_one_line(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing here is a counterexample to replay (verdicts: proved)" in refused(
        capsys, "replay", target, "-k", "guarded", "--dry-run"
    )
    assert "nothing here is a proof to attack" in refused(capsys, "attack", target, "-k", "free", "--dry-run")
    assert "--script writes one counterexample" not in refused(capsys, "replay", "missing.py", "--dry-run")
    Path("old.json").write_text('{"fencepost_replay": 7, "subjects": []}')
    assert "replay file of version 7" in refused(capsys, "replay", "old.json", "--dry-run")
    Path("bad.json").write_text('{"fencepost_replay": 1, "subjects": 3}')
    assert "damaged replay file" in refused(capsys, "replay", "bad.json", "--dry-run")
    assert "cannot write" in refused(capsys, "replay", target, "--save", "no/such/folder.json")
    assert "selects none" in refused(capsys, "probe", "-k", "no such rule", "--list")


def test_no_gpu_is_one_line(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    if gpu_missing() is None:
        pytest.skip("there is a GPU")
    for arguments in (["replay", target], ["attack", target, "-k", "guarded"], ["probe"]):
        assert "GPU" in (text := refused(capsys, *arguments)) or "PyTorch" in text


def test_a_run_of_another_version_is_told_by_its_first_step(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", target, "--save", "r.json"]) == 0
    content = json.loads(Path("r.json").read_text())
    content["subjects"][0]["program"] = content["subjects"][0]["fixed"]
    Path("r.json").write_text(json.dumps(content))
    capsys.readouterr()
    assert "refill [free]: step 3 (worker, node 0): the thread is at node" in refused(
        capsys, "replay", "r.json", "--dry-run", "--json"
    )


# ------------------------------------------------------------ probes and profiles


def test_at_least_35_rules_are_probed_and_each_names_its_rule() -> None:
    probes = all_probes()
    rules = {rule for one in probes for rule in one.rules.split(", ")}
    assert len(rules) >= 35 and all(rule[0] == "S" and rule[1:].isdigit() for rule in rules)
    assert len({(one.rules, one.what) for one in probes}) == len(probes)
    semantics = (Path(__file__).parents[1] / "docs" / "semantics.md").read_text()
    assert all(f"**{rule}.**" in semantics for rule in rules)


def test_list_of_probes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["probe", "--list", "-k", "S20"]) == 0
    assert len(capsys.readouterr().out.strip().splitlines()) == sum("S20" in one.rules for one in all_probes())


@pytest.mark.parametrize(
    ("h2d", "detail", "d2h", "expected"),
    [
        ("none", "1 KiB: returns; 4 MiB: blocks", "blocks", ("staged", "blocking")),
        ("none", "1 KiB: blocks; 4 MiB: blocks", "blocks", ("blocking", "blocking")),
        ("some", "1 KiB: returns", "by size", ("late", "late")),
    ],
)
def test_measurements_decide_the_switches(h2d: str, detail: str, d2h: str, expected: tuple[str, str]) -> None:
    results = [Measured("S47", "", "", "", h2d, True, detail), Measured("S48", "", "", "", d2h, True)]
    assert switches(results) == {"pageable_h2d": expected[0], "pageable_d2h": expected[1]}


def test_check_reads_a_profile(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    for h2d, verdict in (("staged", "proved"), ("late", "refuted")):
        content = {"fencepost_platform": PROFILE_VERSION, "name": "here", "pageable_h2d": h2d, "rules": []}
        Path("p.json").write_text(json.dumps(content))
        run(["check", target, "-k", "pageable", "--platform", "p.json", "--format", "json"])
        (answer,) = json.loads(capsys.readouterr().out)["answers"]
        assert answer["verdict"] == verdict


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no platform profile"),
        ('{"fencepost_platform": 9}', "version 9"),
        ('{"fencepost_platform": 1, "pageable_h2d": "soon"}', "pageable_h2d is 'soon'"),
    ],
)
def test_a_bad_profile_is_one_line(target: str, capsys: pytest.CaptureFixture[str], content: str, said: str) -> None:
    Path("p.json").write_text(content)
    assert said in refused(capsys, "check", target, "--platform", "p.json")
    assert "cannot read" in refused(capsys, "check", target, "--platform", "missing.json")


def test_kept_profiles_can_be_read() -> None:
    for path in sorted((Path(__file__).parents[1] / "gpu_validate" / "evidence").glob("profile*.json")):
        assert platform(str(path)).pageable_d2h in ("blocking", "late")
