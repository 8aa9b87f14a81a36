"""`fencepost diff`: two targets, two commits of a real repository, and what stops a wrong removal in CI."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fencepost.cli import run
from fencepost.diff.changes import changes
from fencepost.diff.compare import _verdict
from fencepost.diff.side import _only_libraries
from fencepost.model.answer import Answer
from fencepost.model.language import program_of

ROOT = Path(__file__).resolve().parent.parent

DESIGN = '''"""The staging loop of an engine."""

import fencepost as fp


@fp.variant("one buffer", fp.PROVED)
def loop(depth: int = 1) -> fp.Design:
    d = fp.Design("loop")
    staging, target, copied = d.pinned("staging"), d.device("target"), d.event("copied")
    d.models("engine/runner.py", "Runner.step", "main")

    @d.loop("worker")
    def step(n):
        copied.synchronize()
        staging.write()
        target.copy_(staging, non_blocking=True)
        copied.record()
        copied.synchronize()

    return d
'''

WAIT = "        copied.synchronize()\n"


def git(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *names, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout

@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the design on main, and a branch `change` checked out."""
    (tmp_path / "designs_of_engine").mkdir()
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "runner.py").write_text("# the engine\n")
    (tmp_path / "designs_of_engine" / "staging.py").write_text(DESIGN)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "before")
    git(tmp_path, "checkout", "-qb", "change")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commit(repository: Path, text: str) -> None:
    (repository / "designs_of_engine" / "staging.py").write_text(text)
    git(repository, "commit", "-qam", "after")


def diff(*arguments: str) -> tuple[int, str]:
    """(exit code, output) of `fencepost diff`; each side is built in a process of its own all the same."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run(["diff", *arguments])
    return code, out.getvalue()


BOTH_GONE = DESIGN.replace(WAIT, "")
ONE_GONE = DESIGN.replace(WAIT, "", 1)


# ---------------------------------------------------------------- verdicts


def test_a_wrong_removal_loses_a_proof(repository: Path) -> None:
    commit(repository, BOTH_GONE)
    code, text = diff("--git", "main..change", "designs_of_engine/")
    assert code == 1
    assert "proved" in text and "refuted (WAR staging)" in text
    assert "- worker: copied.synchronize() (designs_of_engine/staging.py:14)" in text
    assert "designs_of_engine/staging.py:14" in text  # where the host now overtakes the copy


def test_a_right_removal_passes_and_says_what_the_buffer_rests_on(repository: Path) -> None:
    commit(repository, ONE_GONE)
    code, text = diff("--git", "main..change", "designs_of_engine/")
    assert code == 0
    assert "went" in text and "1 variant, 1 changed: 1 not worse" in text


def test_the_working_tree_and_what_is_staged(repository: Path) -> None:
    (repository / "designs_of_engine" / "staging.py").write_text(BOTH_GONE)
    assert diff("--git", "main", "designs_of_engine/staging.py::loop")[0] == 1
    assert diff("--staged", "designs_of_engine/")[0] == 0  # not staged yet
    git(repository, "add", ".")
    assert diff("--staged", "designs_of_engine/")[0] == 1


def test_an_engine_that_changes_under_its_design_is_no_silent_pass(repository: Path) -> None:
    (repository / "engine" / "runner.py").write_text("# the engine, without its wait\n")
    git(repository, "commit", "-qam", "engine only")
    code, text = diff("--git", "main...change", "designs_of_engine/")
    assert code == 3
    assert "engine/runner.py changed, and the design that stands for it did not" in " ".join(text.split())


def test_a_variant_that_goes_takes_its_proof_along(repository: Path) -> None:
    commit(repository, DESIGN.replace('"one buffer", fp.PROVED', '"another", fp.PROVED').replace("depth: int = 1", "d: int = 1"))
    code, text = diff("--git", "main..change", "designs_of_engine/")
    assert code == 3
    assert "the variant is gone; it was proved" in text


def test_an_accepted_hazard_is_honoured_and_listed(repository: Path) -> None:
    accepted = BOTH_GONE.replace('d.models(', 'd.accept("WAR staging", because="the reader copes")\n    d.models(')
    commit(repository, accepted)
    code, text = diff("--git", "main..change", "designs_of_engine/")
    assert code == 0
    assert "WAR staging: accepted" in text


def test_fail_on_filters_by_harm(repository: Path) -> None:
    commit(repository, BOTH_GONE)
    code, text = diff("--git", "main..change", "designs_of_engine/", "--fail-on", "address,shape")
    assert code == 0
    assert "WAR staging: harm value is not among --fail-on address,shape" in text


def test_two_files_and_two_parameters(repository: Path) -> None:
    (repository / "old.py").write_text(DESIGN)
    (repository / "new.py").write_text(BOTH_GONE)
    assert diff("old.py", "new.py")[0] == 1
    (repository / "one.py").write_text(ONE_GONE)
    code, text = diff("one.py", "new.py")
    assert code == 1 and "ordered by copied.synchronize()" in text
    assert diff("new.py", "old.py")[0] == 0
    ring = f"{ROOT}/designs/ring.py::ring"
    code, text = diff(ring, "--before", "depth=2", "--after", "depth=1")
    assert code == 1
    assert "~ memory slot: depth 2 -> 1" in text
    code, text = diff(ring, "--before", "depth=2", "--after", "depth=3")
    assert code == 0
    assert re.search(r"slot: .*margin 0\s+->.*margin 1", " ".join(text.split()))


COSTLY = """import fencepost as fp


def loop(guard: bool = True, copy: float | None = None, slots: int = 1) -> fp.Design:
    d = fp.Design("loop")
    staging, target, copied = d.pinned("staging", depth=slots), d.device("target"), d.event("copied")

    @d.loop("worker")
    def step(n):
        if guard:
            copied.synchronize()
        d.host("prepare", writes=[staging[n]], time=1e-3)
        target.copy_(staging[n], non_blocking=True, time=copy)
        copied.record()
        d.host("sample", time=4e-3)

    return d


def locked() -> fp.Design:
    d = fp.Design("locked")
    lock = d.lock("lock")

    @d.loop("worker")
    def step(n):
        with lock:
            d.host("prepare")

    return d
"""


def test_change_of_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("z3")
    pytest.importorskip("networkx")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "costly.py").write_text(COSTLY)

    def cost(*arguments: str) -> tuple[list[tuple[str, str, str]], str]:
        _, text = diff("costly.py::loop", *arguments, "--format", "json")
        (pair,) = json.loads(text)["pairs"]
        return [(row["what"], row["before"], row["after"]) for row in pair["cost"]], pair["cost_open"]

    # The copy is hidden behind sampling: the wait costs nothing, and goes for nothing.
    cheap, _ = cost("--before", "guard=true", "--after", "guard=false", "--set", "copy=2e-3")
    assert not any(what == "time per step" for what, _, _ in cheap)
    assert any(what == "copied.synchronize()" and new == "-" for what, _, new in cheap)
    # A copy of 7 ms is longer than all the host does besides: 1 + 7 ms with the wait, 7 ms of copies alone without it.
    dear, _ = cost("--before", "guard=true", "--after", "guard=false", "--set", "copy=7e-3")
    assert ("time per step", "8 ms", "7 ms") in dear
    assert ("critical cycle", "copy to target + prepare staging", "copy to target") in dear
    assert any(what == "copied.synchronize()" and old.startswith("costs 1 ms; free while") for what, old, _ in dear)
    # The same design costs the same; what costs the same is not listed.
    assert cost("--before", "slots=1", "--after", "slots=2", "--set", "copy=7e-3") == ([], "")
    _, text = diff("costly.py::loop", "--before", "guard=true", "--after", "guard=false", "--set", "copy=7e-3")
    assert "time per step: 8 ms  ->  7 ms" in text


def test_few_costs_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("z3")
    pytest.importorskip("networkx")
    from fencepost.diff.costs import Costs
    from fencepost.model.platform import PLATFORMS

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(COSTLY, names)
    one, two = (program_of(names["loop"], {"guard": guard, "copy": 7e-3}) for guard in (True, False))
    costs = Costs(PLATFORMS["cuda"], most=1)
    assert costs.change(one, two)[0] and costs.change(one, two) == costs.change(one, two)  # asked again: remembered
    assert costs.change(two, one) == ((), "not compared, other variants that changed were; fencepost cost tells")
    rows, why = Costs(PLATFORMS["cuda"]).change(one, program_of(names["locked"], {}))
    assert not rows and why.startswith("after: ")


def test_what_is_explained(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ordered the accesses before, and what closes the hazard: once for each set of changes and hazards."""
    from fencepost.diff import decide

    second = DESIGN.replace("@fp.variant(", '@fp.variant("again", fp.PROVED, depth=1)\n@fp.variant(')
    commit(repository, second)
    git(repository, "branch", "-f", "main")
    asked: list[str] = []
    explained = decide.explained

    def spy(case: Any, program: Any, what: str, about: Any) -> Any:
        asked.append(what)
        return explained(case, program, what, about)

    monkeypatch.setattr(decide, "explained", spy)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    commit(repository, second + "# a comment more\n")
    assert diff("--git", "main..change", "designs_of_engine/")[0] == 0
    assert not asked  # nothing changed
    commit(repository, second.replace(WAIT, ""))
    code, text = diff("--git", "main..change", "designs_of_engine/")
    assert code == 1 and "fix         default.synchronize()" in text
    assert sorted(asked) == ["closing", "protecting"]


@pytest.mark.parametrize("name", ["designs/ring.py", "designs/vllm_v1.py", "designs/atom.py::ell_held_in_pending"])
def test_what_is_explained_later_is_what_an_answer_explains(name: str) -> None:
    """A comparison decides first and explains what it tells: in the words of an answer that is explained at once."""
    from fencepost.check import build, cases
    from fencepost.diff.decide import decided, explained
    from fencepost.loader import load
    from fencepost.model.answer import PROVED
    from fencepost.proofs.check import check

    targets = load([f"{ROOT}/{name}"])
    by_name = {target.spelling: target for target in targets}
    seen = set()
    for case in cases(targets)[::3]:
        program = build(by_name[case.target], case.parameters)
        found = decided(msgspec.structs.replace(case, explain=False), program)
        whole = check(program, environment=case.environment, platform=case.platform, never=case.never, masks=False)
        assert found.outcome.answer is not None and not found.outcome.answer.fixes and not found.outcome.answer.protections
        if whole.verdict == PROVED:
            assert explained(case, program, "protecting", None) == whole.protections
            one = whole.protections[0].object
            assert [p.object for p in explained(case, program, "protecting", [one])] == [one]
        if whole.hazards:
            assert explained(case, program, "closing", found.best) == whole.fixes
        seen.add((whole.verdict, bool(whole.fixes)))
    assert ("proved", False) in seen


def test_what_changed_alike_is_explained_once(repository: Path) -> None:
    """Two variants whose text changed in the same way: what protects is told of one, and JSON says so of the other."""
    two = DESIGN.replace("@fp.variant(", '@fp.variant("again", fp.PROVED, depth=1)\n@fp.variant(')
    commit(repository, two)
    git(repository, "branch", "-f", "main")
    commit(repository, two.replace(WAIT, "", 1))
    code, text = diff("--git", "main..change", "designs_of_engine/", "--format", "json")
    told, other = json.loads(text)["pairs"]
    assert code == 0 and told["changes"] == other["changes"]
    assert told["rests_open"] == "" and other["rests_open"] == f"not compared, {told['variant']} changed alike and was"
    assert told["after"]["protections"] and not other["after"]["protections"]


def test_an_acceptance_that_is_new_is_listed(repository: Path) -> None:
    """Accepting a hazard that was there makes `check` green: the comparison says who accepts what, and since when."""
    commit(repository, BOTH_GONE)
    git(repository, "branch", "-f", "main")
    accepted = BOTH_GONE.replace("d.models(", 'd.accept("WAR staging", because="the reader copes")\n    d.models(')
    commit(repository, accepted)
    range_ = ("--git", "main..change", "designs_of_engine/")
    code, text = diff(*range_)
    assert code == 0
    assert "came        + acceptance of WAR staging: the reader copes" in text
    assert "WAR staging: accepted with this change, because: the reader copes" in text
    assert "1 changed: 1 not worse; accepted with this change: WAR staging" in text
    (pair,) = json.loads(diff(*range_, "--format", "json")[1])["pairs"]
    assert pair["accepts"] == ["WAR staging"]
    assert diff(*range_, "--format", "markdown")[1].startswith("### fencepost: nothing got worse, and a hazard was accepted\n")
    assert "::notice" in diff(*range_, "--format", "github")[1]
    # It is no change of the design: an engine that changed under it is still told.
    (repository / "engine" / "runner.py").write_text("# the engine, without its wait\n")
    git(repository, "commit", "-qam", "engine")
    assert diff(*range_)[0] == 3
    # An acceptance of long ago is none of this change, and one that went is listed.
    git(repository, "branch", "-f", "main")
    commit(repository, "# A comment.\n" + accepted)
    assert "accepted with" not in diff(*range_)[1]
    commit(repository, BOTH_GONE)
    assert "went        - acceptance of WAR staging" in diff(*range_)[1]


def test_places_are_written_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the root of the tree, in changes, hazards, protections and fixes; what lies elsewhere with its whole path."""
    (tmp_path / "inside" / "deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    (tmp_path / "inside" / "deep" / "one.py").write_text(DESIGN)
    (tmp_path / "inside" / "deep" / "two.py").write_text(ONE_GONE)
    (tmp_path / "outside" / "three.py").write_text(BOTH_GONE)
    spot = re.compile(r"[\w./-]+\.py:\d+")
    for after, code, spelled in (("deep/two.py", 0, "deep/two.py"), (f"{tmp_path}/outside/three.py", 1, f"{tmp_path}/outside/three.py")):
        found, text = diff("deep/one.py", after, "--format", "json")
        assert found == code
        (pair,) = json.loads(text)["pairs"]
        before, now = json.dumps(pair["before"]), json.dumps(pair.pop("after"))
        assert {place.rpartition(":")[0] for place in spot.findall(now)} == {spelled}
        assert f'"file": "{spelled}"' in now or code == 0
        pair.pop("before")
        assert {place.rpartition(":")[0] for place in spot.findall(json.dumps(pair) + before)} <= {"deep/one.py", spelled}


def test_a_declared_refutation_is_no_loss() -> None:
    assert diff(f"{ROOT}/designs/sglang.py", f"{ROOT}/designs/sglang.py")[0] == 0


def test_files_that_are_new_gone_or_renamed(repository: Path) -> None:
    """Named as targets, each is on one side only; a renamed one is the same design, also beside another function of its name."""
    folder = repository / "designs_of_engine"
    (folder / "other.py").write_text(DESIGN)
    git(repository, "add", ".")
    commit(repository, DESIGN)
    git(repository, "branch", "-f", "main")
    git(repository, "mv", "designs_of_engine/staging.py", "designs_of_engine/renamed.py")
    (folder / "fresh.py").write_text(BOTH_GONE.replace("def loop", "def fresh").replace("fp.PROVED", 'fp.REFUTED, hazard="WAR staging"'))
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "renamed, and one that is new")
    code, text = diff("--git", "main..change", "designs_of_engine/")
    assert code == 0 and "gone" not in text, text
    code, text = diff("--git", "main..change", "designs_of_engine/fresh.py")
    assert code == 0 and "fresh::fresh" in text and "WAR staging" in text
    code, text = diff("--git", "main..change", "designs_of_engine/staging.py")
    assert code == 3 and "the variant is gone; it was proved" in text


TWO_COPIES = '''import fencepost as fp


@fp.variant("bug", fp.REFUTED, hazard="WAR a", first=False)
def loop(first: bool = False, second: bool = True) -> fp.Design:
    d = fp.Design("loop")
    a, b, x, y, s, o = d.pinned("a"), d.pinned("b"), d.device("x"), d.device("y"), d.stream("s"), d.stream("o")

    @d.loop("worker")
    def step():
        a.write()
        b.write()
        x.copy_(a, non_blocking=True, stream=s, harm="quality")
        y.copy_(b, non_blocking=True, stream=o, harm="address")
        if first:
            s.synchronize()
        if second:
            o.synchronize()

    return d
'''


@pytest.mark.parametrize("accepted", ["", '    d.accept("WAR a", because="quality alone")\n'])
def test_a_race_of_another_harm_under_a_known_name_is_new(repository: Path, accepted: str) -> None:
    one = TWO_COPIES.replace("y.copy_(b,", "y.copy_(a,").replace("        b.write()\n", "")
    one = one.replace("\n\n    @d.loop", f"\n{accepted}\n    @d.loop")
    (repository / "one.py").write_text(one)
    (repository / "two.py").write_text(one.replace("if second:", "if False:"))
    code, text = diff("one.py", "two.py", "--fail-on", "address,value")
    assert (code, "accepted" in text) == ((0, True) if accepted else (1, False)), text


def test_another_hazard_that_is_declared_is_no_renamed_one(repository: Path) -> None:
    (repository / "one.py").write_text(TWO_COPIES)
    other = TWO_COPIES.replace('hazard="WAR a", first=False', 'hazard="WAR b", first=True').replace("if second:", "if False:")
    (repository / "two.py").write_text(other)
    code, text = diff("one.py", "two.py")
    assert code == 1 and "new: WAR b" in text


def test_what_is_proved_now_is_no_worse_than_what_was_unknown() -> None:
    unknown, proved = Answer("loop", "unknown", reason="budget ended"), Answer("loop", "proved")
    assert _verdict(unknown, proved, (), False) == ("fine", [])
    assert _verdict(proved, unknown, (), False)[0] == "open"


def test_memory_that_is_renamed_in_a_declared_refutation(repository: Path) -> None:
    """No proof was lost: the declaration names the same hazard by its new name."""
    refuted = BOTH_GONE.replace("fp.PROVED", 'fp.REFUTED, hazard="WAR staging"')
    assert refuted != BOTH_GONE
    commit(repository, refuted)
    git(repository, "branch", "-f", "main")
    commit(repository, refuted.replace('"WAR staging"', '"WAR stage"').replace('"staging"', '"stage"'))
    code, text = diff("--git", "main..change", "designs_of_engine/")
    assert code == 0 and "WAR stage: declared, instead of WAR staging" in text, text


def test_many_variants_that_are_the_same_are_counted() -> None:
    """A reader looks for what changed."""
    from fencepost.diff.compare import FINE, OPEN, Pair
    from fencepost.report.diff import write

    found = [Pair("a::b", f"variant {number}", None, None, OPEN if number == 7 else FINE, because=("why",)) for number in range(40)]
    out = io.StringIO()
    write(found, ("before", "after"), "text", out)
    table = out.getvalue().partition("a::b [")[0]
    assert "variant 7" in table and "variant 8" not in table and "and 39 variants that are the same on both sides" in table


# ---------------------------------------------------------------- changes


def test_moved_is_neither_went_nor_came(tmp_path: Path) -> None:
    def programs(texts: list[str]) -> list[object]:
        made = []
        for number, text in enumerate(texts):
            path = tmp_path / f"design_{number}.py"
            path.write_text(text)
            scope: dict[str, object] = {"__name__": f"design_{number}"}
            exec(compile(text, str(path), "exec"), scope)
            made.append(program_of(scope["loop"], {}))  # type: ignore[arg-type]
        return made

    moved = ONE_GONE.replace("        copied.synchronize()\n", "").replace(
        "        staging.write()\n", "        staging.write()\n        copied.synchronize()\n"
    )
    before, after = programs([ONE_GONE, moved])
    (change,) = changes(before, after)  # type: ignore[arg-type]
    assert (change.kind, change.synchronisation) == ("moved", True)
    before, after = programs([DESIGN, ONE_GONE])
    (change,) = changes(before, after)  # type: ignore[arg-type]
    assert (change.kind, change.text) == ("went", "copied.synchronize()")


# ---------------------------------------------------------------- formats


def test_formats(repository: Path) -> None:
    commit(repository, BOTH_GONE)
    code, text = diff("--git", "main..change", "designs_of_engine/", "--format", "json")
    document = json.loads(text)
    assert (code, document["fencepost_diff"]) == (1, 1)
    (pair,) = document["pairs"]
    assert pair["judged"] == "worse" and pair["lost"][0]["name"] == "WAR staging"
    assert pair["before"]["verdict"] == "proved" and pair["after"]["verdict"] == "refuted"
    code, text = diff("--git", "main..change", "designs_of_engine/", "--format", "markdown")
    assert text.startswith("### fencepost: a proof was lost") and "<details open>" in text
    code, text = diff("--git", "main..change", "designs_of_engine/", "--format", "github")
    (line,) = [line for line in text.splitlines() if line.startswith("::error")]
    assert "file=designs_of_engine/staging.py,line=14," in line
    assert "went: copied.synchronize(), designs_of_engine/staging.py:14" in line


def test_ten_annotations_of_each_kind_and_the_rest_counted() -> None:
    from fencepost.diff.compare import OPEN, Pair
    from fencepost.report.diff import write

    found = [Pair("a::b", f"variant {number}", None, None, OPEN, because=("why",)) for number in range(25)]
    out = io.StringIO()
    write(found, ("before", "after"), "github", out)
    warnings = [line for line in out.getvalue().splitlines() if line.startswith("::warning")]
    assert len(warnings) == 10
    assert "and 16 more" in warnings[-1]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--git", "main..nowhere", "designs_of_engine/"), "no revision 'nowhere'"),
        (("--git", "--upload-pack=x..main", "designs_of_engine/"), "no revision"),
        (("--git", "", "designs_of_engine/"), "--git '': there is no BASE; write BASE..HEAD"),
        (("--git", "..change", "designs_of_engine/"), "there is no BASE"),
        (("--git", "...", "designs_of_engine/"), "there is no BASE"),
        (("--git", "main..main", "designs_of_engine/"), "so nothing is compared; name another BASE"),
        (("--git", "main...main", "designs_of_engine/"), "so nothing is compared; name another BASE"),
        (("--git", "main", "designs_of_engine/neither.py"), "neither.py: no such file"),
        (("designs_of_engine/staging.py",), "diff takes BEFORE and AFTER, not 1 targets"),
        (("a.py", "b.py", "c.py"), "not 3 targets"),
        (("nowhere.py", "designs_of_engine/staging.py"), "fencepost: nowhere.py: no such file"),
        (("designs_of_engine/", "designs_of_engine/", "--fail-on", "noise"), "no harm 'noise'"),
        (("--staged", "--git", "main", "designs_of_engine/"), "exclude each other"),
        (("--git", "main", "/"), "not in the repository"),
        (("designs_of_engine/staging.py::loop", "--before", "width=2"), "width"),
    ],
)
def test_bad_input_is_one_line(
    repository: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    assert run(["diff", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1 and "Traceback" not in error


def test_a_design_that_does_not_load_on_one_side(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(repository, DESIGN.replace("import fencepost as fp", "import fencepost as fp\nimport nothing_such"))
    assert run(["diff", "--git", "main..change", "designs_of_engine/"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "staging.py:4: ModuleNotFoundError" in error
    assert git(repository, "rev-parse", "change")[:12] in error


def test_designs_whose_parameters_differ(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = DESIGN.replace('"one buffer", fp.PROVED', '"shallow", fp.PROVED, depth=1')
    (repository / "one.py").write_text(one)
    (repository / "two.py").write_text(one.replace("depth", "rings").replace("shallow", "wide"))
    assert run(["diff", "one.py", "two.py"]) == 2
    error = capsys.readouterr().err
    assert "parameters differ: 'depth' is set only in one.py" in error and error.count("\n") == 1


HELPED = DESIGN.replace("import fencepost as fp", "import fencepost as fp\nfrom engine import slots\nfrom beside import AGAIN").replace(
    WAIT, "        for _ in range(AGAIN * slots()):\n            copied.synchronize()\n"
)


def test_a_side_that_is_forked_is_as_one_that_is_started(repository: Path) -> None:
    """Modules of the tree, by its root and beside the design, are each side's own, and nothing that a design prints gets out."""
    (repository / "engine" / "__init__.py").write_text("def slots():\n    print('slots')\n    return 1\n")
    (repository / "designs_of_engine" / "beside.py").write_text("AGAIN = 1\n")
    git(repository, "add", ".")
    commit(repository, HELPED)
    (repository / "designs_of_engine" / "beside.py").write_text("AGAIN = 0\n")
    git(repository, "commit", "-qam", "no waits any more")
    arguments = ("diff", "--git", "change~1..change", "designs_of_engine/staging.py", "--format", "json")
    started = diff(*arguments[1:])
    done = subprocess.run([sys.executable, "-m", "fencepost", *arguments], cwd=repository, capture_output=True, text=True)
    assert started[0] == done.returncode == 1 and not done.stderr

    def without_seconds(text: str) -> str:
        return re.sub(r'"seconds": [^,}]*', "", text)

    assert without_seconds(started[1]) == without_seconds(done.stdout)
    assert json.loads(done.stdout)["pairs"][0]["after"]["verdict"] == "refuted"
    # This process holds modules that a tree may have of its own; one that has only begun does not.
    assert not _only_libraries()
    begun = "import fencepost.cli, fencepost.diff.compare as c, fencepost.diff.side as s; print(s._only_libraries())"
    done = subprocess.run([sys.executable, "-c", begun], cwd=repository, capture_output=True, text=True)
    assert done.stdout.strip() == str("fork" in multiprocessing.get_all_start_methods())


@pytest.mark.parametrize(
    ("line", "says"), [("os._exit(7)", "exit code 7"), ("os.write(2, b'no more of this\\n'); os._exit(7)", "no more of this")]
)
def test_a_design_that_ends_its_process(repository: Path, line: str, says: str) -> None:
    commit(repository, DESIGN.replace("import fencepost as fp", f"import os\n\nimport fencepost as fp\n\n{line}"))
    after = git(repository, "rev-parse", "change")[:12]
    code, text = diff("--git", "main..change", "designs_of_engine/")
    assert code == 2 and f"{after}: the process that builds it ended: {says}" in text
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "diff", "--git", "main..change", "designs_of_engine/"],
        cwd=repository, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr == text


def test_two_hundred_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    many = DESIGN.replace(WAIT, WAIT * 200, 1)
    (tmp_path / "many.py").write_text(many)
    (tmp_path / "fewer.py").write_text(many.replace(WAIT * 200, WAIT * 199))
    code, text = diff("many.py", "fewer.py")
    assert code == 0
    assert text.count("  went ") == 1


def test_a_variant_that_only_moved_is_decided_once(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lines more above the design: one answer for both sides, told with the lines of each."""
    from fencepost.diff import decide

    asked: list[str] = []
    decided = decide.decided

    def spy(case: Any, program: Any) -> Any:
        asked.append(case.title)
        return decided(case, program)

    monkeypatch.setattr(decide, "decided", spy)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    commit(repository, BOTH_GONE)
    git(repository, "branch", "-f", "main")
    commit(repository, "\n\n" + BOTH_GONE)
    code, text = diff("--git", "main..change", "designs_of_engine/", "--format", "json")
    assert code == 0
    pairs = json.loads(text)["pairs"]
    assert sorted(asked) == sorted(pair["variant"] for pair in pairs)
    refuted = [pair for pair in pairs if pair["after"]["verdict"] == "refuted"]
    for pair in refuted:
        old, new = (pair[side]["hazards"][0]["second"]["places"][-1]["line"] for side in ("before", "after"))
        assert new == old + 2
    assert refuted and not any(pair["changes"] for pair in pairs)


def test_a_hang_whose_lines_moved_is_no_new_one(tmp_path: Path) -> None:
    """A hang is known by its name; its sentence has lines, which move."""
    hanging = textwrap.dedent(
        """
        import fencepost as fp

        def hangs() -> fp.Design:
            d = fp.Design("hangs")
            full = d.queue("full", capacity=1, item=(fp.EVENT,))
            x = d.pinned("x")

            @d.loop("worker")
            def step() -> None:
                x.write()
                full.put(d.event("e"))

            return d
        """
    )
    (tmp_path / "one.py").write_text(hanging)
    (tmp_path / "two.py").write_text("\n\n" + hanging)
    code, text = diff(str(tmp_path / "one.py"), str(tmp_path / "two.py"))
    (row,) = (line for line in text.splitlines() if "two::hangs" in line)
    assert code == 0 and row.split()[-1] == "same", text
