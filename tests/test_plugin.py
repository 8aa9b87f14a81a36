"""The pytest plugin and the assertions, in suites as a user would write them, run by a pytest of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import fencepost as fp
import pytest

ROOT = Path(__file__).resolve().parent.parent

DESIGN = '''
import fencepost as fp


@fp.variant("no wait", fp.REFUTED, hazard="WAR staging", fix="a wait", wait=False)
@fp.variant("a wait", fp.PROVED, wait=True)
def loop(wait: bool = True, steps: int = 1) -> fp.Design:
    d = fp.Design("loop")
    staging, target, copied = d.pinned("staging"), d.device("target"), d.event("copied")

    @d.loop("worker")
    def step(n):
        if wait:
            copied.synchronize()
        staging.write()
        target.copy_(staging, non_blocking=True)
        copied.record()

    return d
'''


def loop(wait: bool = True) -> fp.Design:
    """One pinned buffer, refilled every step, with or without a wait for its copy."""
    d = fp.Design("loop")
    staging, target, copied = d.pinned("staging"), d.device("target"), d.event("copied")

    @d.loop("worker")
    def step(n: Any) -> None:
        if wait:
            copied.synchronize()
        staging.write()
        target.copy_(staging, non_blocking=True)
        copied.record()

    return d


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, in `folder`, without this repository's configuration."""
    command = [sys.executable, "-m", "pytest", "--rootdir", str(folder), "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "COLUMNS": "100", **(env or {})}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A project with one file of designs and an ini file."""
    (tmp_path / "engine_designs").mkdir()
    (tmp_path / "engine_designs" / "staging.py").write_text(DESIGN)
    (tmp_path / "engine_designs" / "helpers.py").write_text("DEPTH = 2\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfencepost_designs = engine_designs\n")
    return tmp_path


# ---------------------------------------------------------------- assertions


def test_assert_proved_returns_the_answer() -> None:
    answer = fp.assert_proved(loop)
    assert (answer.verdict, answer.engine) == (fp.PROVED, "explore")
    assert fp.assert_proved(loop().build()).verdict == fp.PROVED
    assert fp.assert_proved((loop, {"wait": True})).verdict == fp.PROVED
    assert fp.assert_proved(f"{ROOT}/designs/ring.py::ring", depth=2, outstanding=2).parameters["depth"] == 2


def test_assert_proved_shows_run_and_regression_test() -> None:
    with pytest.raises(fp.VerdictError) as raised:
        fp.assert_proved(loop, wait=False)
    assert not isinstance(raised.value, fp.Inconclusive)
    text = str(raised.value)
    assert "is refuted: WAR staging" in text
    assert "[1]" in text and "[2]" in text and "thread worker" in text
    pasted = text.split("A regression test to paste:")[1]
    body = "\n".join(line[4:] for line in pasted.splitlines())
    scope: dict[str, Any] = {}
    exec(body, scope)
    with pytest.raises(fp.VerdictError, match="WAR staging"):
        scope["test_loop_war_staging"]()


def test_assert_refuted() -> None:
    assert fp.assert_refuted(loop, hazard="WAR staging", wait=False).hazards[0].object == "staging"
    assert fp.assert_refuted(loop, wait=False).verdict == fp.REFUTED
    with pytest.raises(fp.VerdictError, match="proved, not refuted by WAR staging"):
        fp.assert_refuted(loop, hazard="WAR staging")
    with pytest.raises(fp.VerdictError, match="refuted by WAR staging, not by RAW staging"):
        fp.assert_refuted(loop, hazard="RAW staging", wait=False)


def two_waits(early: bool = True, late: bool = True) -> fp.Design:
    """Two waits for the same copy: either may go, not both."""
    d = fp.Design("two waits")
    staging, target, copied = d.pinned("staging"), d.device("target"), d.event("copied")

    @d.loop("worker")
    def step(n: Any) -> None:
        if early:
            copied.synchronize()
        staging.write()
        target.copy_(staging, non_blocking=True)
        copied.record()
        if late:
            copied.synchronize()

    return d


def test_assert_removal_safe() -> None:
    assert fp.assert_removal_safe(two_waits, (two_waits, {"early": False})).verdict == fp.PROVED
    with pytest.raises(fp.VerdictError, match=r"not safe.*WAR staging; before it was proved"):
        fp.assert_removal_safe((two_waits, {"early": False}), (two_waits, {"early": False, "late": False}))
    with pytest.raises(fp.VerdictError, match="nothing was removed"):
        fp.assert_removal_safe(two_waits, two_waits)
    # What was refuted before may stay refuted: the change lost nothing.
    refuted = {"early": False, "late": False}
    fp.assert_removal_safe((two_waits, refuted), (loop, {"wait": True}))


def test_inconclusive_is_neither() -> None:
    for assertion in (fp.assert_proved, fp.assert_refuted):
        with pytest.raises(fp.Inconclusive, match="budget"):
            assertion(f"{ROOT}/designs/ring.py::ring", depth=200, outstanding=200, budget=1e-9)
    with pytest.raises(fp.Inconclusive, match="masked: the environment 'launch-blocking'"):
        fp.assert_proved(loop, wait=False, environment="launch-blocking")


def test_what_is_no_design_is_said_in_one_line() -> None:
    for wrong, text in ((3, "3 is no design"), (f"{ROOT}/designs/ring.py::nothing", "no design function"), ("x.py", "x.py")):
        with pytest.raises(Exception, match=text) as raised:
            fp.assert_proved(wrong)
        assert "\n" not in str(raised.value)
    with pytest.raises(Exception, match="no parameter 'waits'"):
        fp.assert_proved(loop, waits=True)


class UnderUnittest(unittest.TestCase):
    """The assertions need no pytest."""

    def test_plain_functions(self) -> None:
        fp.assert_proved(loop)
        with self.assertRaises(AssertionError):
            fp.assert_proved(loop, wait=False)


# ---------------------------------------------------------------- the plugin


def test_folders_of_designs_are_one_test_per_variant(suite: Path) -> None:
    done = run(suite, "-v", "engine_designs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "staging.py::loop[no wait] PASSED" in done.stdout
    assert "staging.py::loop[a wait] PASSED" in done.stdout
    assert "2 answers in 2 tests: 1 proved, 1 refuted" in done.stdout


def test_an_injected_removal_is_caught(suite: Path) -> None:
    file = suite / "engine_designs" / "staging.py"
    file.write_text(file.read_text().replace("            copied.synchronize()", "            pass"))
    done = run(suite, "engine_designs")
    assert done.returncode == 1
    assert "REFUTED, but declared proved" in done.stdout
    assert "WAR staging" in done.stdout and "stream" in done.stdout
    assert "collect.py" not in done.stdout


SUITE = '''
import fencepost as fp
import pytest
from engine_designs.staging import loop


def test_proved():
    fp.assert_proved(loop)


@pytest.mark.fencepost(budget=1e-9)
def test_open():
    fp.assert_proved("fencepost.designs.ring:ring", depth=200, outstanding=200)


def test_engines(check):
    assert check(loop, wait=False).verdict == fp.REFUTED
'''


def test_fixture_marker_and_reports(suite: Path) -> None:
    (suite / "test_it.py").write_text(SUITE)
    done = run(suite, "test_it.py", "-rs", "--junitxml=out.xml", "--fencepost-report=answers", "--fencepost-inconclusive=skip")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed, 1 skipped" in done.stdout
    assert "inconclusive: ring::ring" in done.stdout and "unknown: budget" in done.stdout
    cases = {case.get("name"): case for case in ElementTree.parse(suite / "out.xml").iter("testcase")}
    found = {p.get("name"): p.get("value") for p in cases["test_engines[explore]"].iter("property")}
    assert found["fencepost.verdict"] == "refuted loop [wait=false]"
    assert found["fencepost.hazard"] == "WAR staging"
    written = json.loads((suite / "answers" / "test_it.py_test_engines_explore_.json").read_text())
    assert written["answers"][0]["verdict"] == "refuted"
    failing = run(suite, "test_it.py")
    assert failing.returncode == 1 and "1 failed, 2 passed" in failing.stdout


def test_lanes_are_a_report_section(suite: Path) -> None:
    (suite / "test_it.py").write_text(SUITE)
    (suite / "conftest.py").write_text(
        "def pytest_runtest_logreport(report):\n"
        "    for title, text in report.sections:\n"
        "        print(title, 'worker' in text, '[2]' in text)\n"
    )
    done = run(suite, "test_it.py", "-k", "engines", "-s")
    assert "fencepost: loop [wait=false] True True" in done.stdout


@pytest.mark.parametrize(
    "options",
    [("-n", "2"), ("-q",), ("-p", "no:fencepost", "-o", "fencepost_designs=")],
    ids=["xdist", "quiet", "without the plugin"],
)
def test_works_under(suite: Path, options: tuple[str, ...]) -> None:
    (suite / "test_it.py").write_text("import fencepost as fp\nfrom engine_designs.staging import loop\n\n\n"
                                      "def test_proved():\n    fp.assert_proved(loop)\n")  # fmt: skip
    done = run(suite, "test_it.py", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("1 answers in 1 tests: 1 proved" in done.stdout) == (options == ("-n", "2"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--fencepost-engine=oracle",), "no engine 'oracle'"),
        (("--fencepost-inconclusive=perhaps",), "neither fail nor skip"),
        (("-o", "fencepost_budget=soon"), "'soon' is no float"),
        (("-o", "fencepost_budget=-1"), "ini key fencepost_budget: -1.0; give more than 0 seconds"),
        (("--fencepost-budget=nan",), "--fencepost-budget: nan; give more than 0 seconds"),
        (("--fencepost-steps=0",), "--fencepost-steps: 0; give a whole number, at least 1"),
        (("--fencepost-examples=0",), "--fencepost-examples: 0; give a whole number, at least 1"),
        (("--fencepost-replay=nonsense",), "'nonsense' is no replay string"),
        (("-o", "fencepost_designs=nowhere"), "nowhere does not exist"),
    ],
)
def test_bad_options_stop_before_the_first_test(suite: Path, options: tuple[str, ...], text: str) -> None:
    done = run(suite, *options)
    assert done.returncode == 4
    assert text in done.stderr and "Traceback" not in done.stderr


def test_a_bad_marker_stops_before_the_first_test(suite: Path) -> None:
    (suite / "test_it.py").write_text(
        "import pytest\n\n\n@pytest.mark.fencepost(budgets=1)\ndef test_it():\n    pass\n"
    )
    done = run(suite, "test_it.py")
    assert done.returncode == 4
    assert "marker fencepost does not take budgets" in done.stdout + done.stderr


def test_a_file_that_does_not_import_is_a_collection_error_of_one_line(suite: Path) -> None:
    (suite / "engine_designs" / "broken.py").write_text("import nothing_of_this_name\n")
    done = run(suite, "engine_designs")
    assert done.returncode == 2
    assert "broken.py:1: ModuleNotFoundError: No module named 'nothing_of_this_name'" in done.stdout


def test_the_plugin_imports_nothing_heavy() -> None:
    probe = (
        "import pytest, sys; before = set(sys.modules)\nimport fencepost.plugin\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"fencepost", "contextvars", "_contextvars"}
    # Nor at the end of a run that decides nothing.
    probe = (
        "import pytest, sys, pathlib, tempfile\nfolder = pathlib.Path(tempfile.mkdtemp())\n"
        "(folder / 'test_x.py').write_text('def test_x(): pass')\n"
        "pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:xdist', '--rootdir', str(folder), str(folder)])\n"
        "print('HEAVY', *[n for n in ('msgspec', 'click', 'z3', 'networkx', 'torch') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.splitlines()[-1] == "HEAVY"
