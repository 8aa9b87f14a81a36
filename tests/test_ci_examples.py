"""The workflow example and the pre-commit hook, run on a real repository with a real branch: a wrong removal is stopped."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from test_diff import BOTH_GONE, DESIGN, ONE_GONE, git

ROOT = Path(__file__).resolve().parent.parent
yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra `test`")

ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose origin has the design on main, with a branch `change` checked out: what a pull request sees."""
    origin = tmp_path / "origin"
    (origin / "designs").mkdir(parents=True)
    (origin / "designs" / "staging.py").write_text(DESIGN)
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "before")
    git(tmp_path, "clone", "-q", "origin", "clone")
    git(tmp_path / "clone", "checkout", "-qb", "change")
    return tmp_path / "clone"


def steps() -> dict[str, str]:
    """Name -> script of the workflow's steps that run one."""
    workflow = yaml.safe_load((ROOT / "docs" / "ci" / "github-actions.yml").read_text())
    (job,) = workflow["jobs"].values()
    return {step["name"]: step["run"] for step in job["steps"] if "run" in step}


def run_step(script: str, clone: Path) -> subprocess.CompletedProcess[str]:
    environment = {**ENVIRONMENT, "GITHUB_BASE_REF": "main", "GITHUB_STEP_SUMMARY": str(clone.parent / "summary.md")}
    return subprocess.run(["bash", "-e", "-c", script], cwd=clone, env=environment, capture_output=True, text=True)


def change(clone: Path, text: str) -> None:
    (clone / "designs" / "staging.py").write_text(text)
    git(clone, "commit", "-qam", "a wait less")


def test_workflow_stops_a_wrong_removal_at_the_right_line(clone: Path) -> None:
    change(clone, BOTH_GONE)
    done = run_step(steps()["No proof may be lost"], clone)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("::error")]
    match = re.match(r"::error file=(.*?),line=(\d+),", line)
    assert match is not None
    source = (clone / match[1]).read_text().splitlines()
    assert source[int(match[2]) - 1].strip() == "staging.write()"
    summary = run_step(steps()["Summary of the pull request"], clone)
    assert summary.returncode == 1
    assert "a proof was lost" in (clone.parent / "summary.md").read_text()
    # The declared verdict no longer holds either.
    assert run_step(steps()["Declared variants"], clone).returncode == 1


def test_workflow_passes_a_right_removal(clone: Path) -> None:
    change(clone, ONE_GONE)
    for name, script in steps().items():
        if name != "Install":
            done = run_step(script, clone)
            assert done.returncode == 0, (name, done.stdout + done.stderr)
    assert "nothing got worse" in (clone.parent / "summary.md").read_text()


def hook(name: str) -> str:
    """The entry of a hook that this repository offers, with the arguments that its comment recommends."""
    (found,) = [h for h in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()) if h["id"] == name]
    return str(found["entry"])


@pytest.mark.skipif(shutil.which("pre-commit", path=ENVIRONMENT["PATH"]) is None, reason="pre-commit is not installed")
def test_pre_commit_stops_a_wrong_removal(clone: Path) -> None:
    # The hook's own entry, without the environment that pre-commit would build for `language: python`.
    local = {"id": "fencepost-diff", "name": "d", "entry": f"{hook('fencepost-diff')} designs/", "language": "system"}
    config = {"repos": [{"repo": "local", "hooks": [{**local, "pass_filenames": False}]}]}
    (clone / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(clone, "add", ".pre-commit-config.yaml")
    environment = {**ENVIRONMENT, "PRE_COMMIT_HOME": str(clone.parent / "cache")}
    installed = subprocess.run(["pre-commit", "install"], cwd=clone, env=environment, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stdout + installed.stderr

    def commit(text: str) -> subprocess.CompletedProcess[str]:
        (clone / "designs" / "staging.py").write_text(text)
        command = ["git", "commit", "-qam", "a wait less"]
        return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)

    wrong = commit(BOTH_GONE)
    assert wrong.returncode != 0
    assert "WAR staging" in wrong.stdout + wrong.stderr
    right = commit(ONE_GONE)
    assert right.returncode == 0, right.stdout + right.stderr


def test_the_check_hook_takes_file_names(clone: Path) -> None:
    done = run_step(f"{hook('fencepost-check')} designs/staging.py", clone)
    assert done.returncode == 0, done.stdout + done.stderr
