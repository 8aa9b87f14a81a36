"""The command line: targets, parameters, exit codes, and bad input that is one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from fencepost.cli import NOT_BUILT, run
from fencepost.engines import ENGINES_NOT_BUILT

GOOD = """
from __future__ import annotations
from typing import Literal, Optional
import fencepost as fp


@fp.variant("guarded", fp.PROVED, guard=True)
@fp.variant("free", fp.REFUTED, hazard="WAR lens", fix="guarded", guard=False)
def refill(guard: bool = False, depth: int = 1) -> fp.Design:
    d = fp.Design("refill")
    lens, device, event = d.pinned("lens"), d.device("lens_gpu"), d.event("prep")

    @d.loop("worker")
    def step(n):
        if guard:
            event.synchronize()
        lens.write()
        device.copy_(lens, non_blocking=True)
        if guard:
            event.record()
        d.launch("forward", reads=[device], writes=[])

    return d


def typed(kind: Literal["a", "b"], size: Optional[int] = None, names: tuple[str, ...] = ()) -> fp.Design:
    return refill(True)


def _private() -> fp.Design:
    return refill()


def helper(x: int) -> int:
    return x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory; every test's file has its own name, as modules stay imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return name


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Result:
    capsys.readouterr()
    code = run(list(arguments))
    return Result(code, *capsys.readouterr())


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refused command prints."""
    result = call(capsys, *arguments)
    assert result.code == 2, (result.out, result.err)
    lines = result.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("fencepost: "), result.err
    assert "Traceback" not in result.err + result.out
    return lines[0]


# ---------------------------------------------------------------- check, list, show


def test_declared_variants_as_declared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "check", write(folder, "good_a.py", GOOD) + "::refill")
    assert result.code == 0, result.out + result.err
    assert "guarded" in result.out and "WAR lens" in result.out and "all as declared" in result.out


def test_a_variant_that_is_not_as_declared_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = GOOD.replace('"WAR lens"', '"WAR something_else"')
    result = call(capsys, "check", write(folder, "wrong_reason.py", text) + "::refill")
    assert result.code == 1
    assert "DECLARED" in result.out and "1 not as declared" in result.out


def test_set_asks_an_undeclared_question(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write(folder, "good_b.py", GOOD) + "::refill"
    assert call(capsys, "check", target, "--set", "guard=true").code == 0
    result = call(capsys, "check", target, "--set", "guard=no")
    assert result.code == 1 and "[1]" in result.out and "[2]" in result.out
    over = call(capsys, "check", target, "--over", "guard=true,false", "--over", "depth=1..2", "--format", "json")
    answers = json.loads(over.out)["answers"]
    assert [answer["parameters"] for answer in answers] == [
        {"guard": guard, "depth": depth} for guard in (True, False) for depth in (1, 2)
    ]
    assert over.code == 1 and all(answer["expected"] is None for answer in answers)


def test_keyword_selects_variants(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write(folder, "good_c.py", GOOD) + "::refill"
    result = call(capsys, "check", target, "-k", "GUARD", "--format", "json")
    assert [answer["variant"] for answer in json.loads(result.out)["answers"]] == ["guarded"]
    assert "selects none" in refused(capsys, "check", target, "-k", "nothing like it")


def test_worker_processes_give_the_same_answers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write(folder, "good_d.py", GOOD) + "::refill"
    one, two = (call(capsys, "check", target, "--jobs", jobs, "--format", "json") for jobs in ("1", "2"))
    strip = [
        [{key: value for key, value in answer.items() if key != "seconds"} for answer in json.loads(r.out)["answers"]]
        for r in (one, two)
    ]
    assert strip[0] == strip[1] and one.code == two.code == 0


def test_list_names_designs_parameters_and_variants(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "list", write(folder, "good_e.py", GOOD))
    assert result.code == 0
    assert "good_e.py::refill" in result.out and "good_e.py::typed" in result.out
    assert "guarded: proved" in result.out and "free: refuted, WAR lens" in result.out
    assert "kind: 'a' | 'b'" in result.out and "size: int | None = None" in result.out
    assert "_private" not in result.out and "helper" not in result.out


def test_show_prints_what_was_understood(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "show", write(folder, "good_f.py", GOOD) + "::refill", "--set", "guard=true")
    assert result.code == 0
    assert "prep.synchronize()" in result.out and "does not order: forward" in result.out


def test_a_program_goes_through_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write(folder, "good_g.py", GOOD) + "::refill"
    data = call(capsys, "show", target, "--set", "guard=false", "--json").out
    (folder / "program.json").write_text(data)
    result = call(capsys, "check", "program.json")
    assert result.code == 1 and "WAR lens" in result.out
    assert call(capsys, "show", "program.json").out == call(capsys, "show", target, "--set", "guard=false").out


def test_module_and_folder_targets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "good_h.py", GOOD)
    write(folder, "just_a_helper.py", "x = 1\n")
    assert call(capsys, "check", "good_h:refill").code == 0
    assert call(capsys, "list", ".").out.count("good_h.py::refill") == 1
    assert "no default" in refused(capsys, "check", ".")  # `typed` needs its kind


def test_a_file_that_is_imported_already_is_not_imported_again(folder: Path) -> None:
    from fencepost.loader import load

    write(folder, "counted_once.py", GOOD)
    (first,) = load(["counted_once.py::refill"])
    (second,) = load(["counted_once:refill"])
    (third,) = load([str(folder / "counted_once.py") + "::refill"])
    assert first.function is second.function is third.function


def test_a_file_named_like_a_module_does_not_replace_it(folder: Path) -> None:
    import queue

    from fencepost.loader import load

    write(folder, "queue.py", GOOD)
    assert load(["queue.py::refill"])[0].function is not None
    assert sys.modules["queue"] is queue


def test_designs_of_the_package_are_loaded_under_their_own_name() -> None:
    import fencepost.designs
    from fencepost.loader import load

    path = Path(next(iter(fencepost.designs.__path__))) / "ring.py"
    functions = [target.function for target in load([str(path)])]
    assert functions and all(f is not None and f.__module__ == "fencepost.designs.ring" for f in functions)


# ---------------------------------------------------------------- bad input: one line, exit 2


@pytest.mark.parametrize("name", ENGINES_NOT_BUILT)
def test_an_engine_that_is_not_there_yet(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert f"engine {name!r} is not built yet" in refused(capsys, "check", "x.py", "--engine", name)


@pytest.mark.parametrize("name", NOT_BUILT)
def test_a_command_that_is_not_there_yet(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert f"fencepost {name} is not built yet" in refused(capsys, name, "x.py")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "x.py", "--engine", "magic"], "no engine 'magic'"),
        (["check", "x.py", "--format", "sarif"], "no format 'sarif'"),
        (["check", "x.py", "--environment", "moon"], "no environment named 'moon'"),
        (["check", "x.py", "--platform", "moon"], "no platform named 'moon'"),
        (["check"], "Missing argument"),
        (["check", "x.py", "--jobs", "0"], "--jobs"),
        (["check", "x.py", "--budget", "nan"], "'nan' is no number"),
        (["check", "x.py", "--budget", "0"], "not in the range x>0"),
        (["waits", "x.py", "--budget", "nan"], "'nan' is no number"),
        (["check", "x.py", "--engine", "smt", "--steps", str(10**20)], "not in the range 1<=x<=10000"),
        (["simulate", "x.py", "--steps", str(10**20)], "at most 10000"),
        (["check", "x.py", "--unheard-of"], "--unheard-of"),
        (["chekc", "x.py"], "no command 'chekc'"),
        (["check", "missing.py"], "missing.py: no such file"),
        (["check", "missing.json"], "missing.json: no such file"),
        (["check", "missing"], "no such target"),
        (["check", "no_such_module_anywhere:f"], "no module of this name"),
    ],
)
def test_usage(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert said in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "deep=3"], "no parameter 'deep'; it has: guard, depth"),
        (["--set", "depth=two"], "parameter 'depth' of"),
        (["--set", "guard=2"], "is bool, not '2'"),
        (["--set", "depth"], "name=value"),
        (["--set", "depth=1", "--over", "depth=1..3"], "given twice"),
        (["--over", "depth=3..1"], "empty range"),
    ],
)
def test_parameters(folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    write(folder, "good_p.py", GOOD)
    line = refused(capsys, "check", "good_p.py::refill", *options)
    assert said in line
    assert "good_p.py:7" in line or "--" in line


def test_literal_optional_and_tuple_parameters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write(folder, "good_q.py", GOOD) + "::typed"
    given = ["--set", "kind=b", "--set", "size=none", "--set", "names=x,y", "--format", "json"]
    result = call(capsys, "check", target, *given)
    assert json.loads(result.out)["answers"][0]["parameters"] == {"kind": "b", "size": None, "names": ["x", "y"]}
    assert "'a' | 'b'" in refused(capsys, "check", target, "--set", "kind=c")


def test_options_for_one_design_need_one_design(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "need one design" in refused(capsys, "check", write(folder, "good_r.py", GOOD), "--set", "guard=true")


BODIES = {
    "endless questions": ("while d.choose('again', ['yes', 'no']) == 'yes':\n                pass", ""),
    "python state": ("seen.append(n)\n            if len(seen) > 1:\n                m.write()\n            m.read()", ""),
    "capacity zero": ("m.write()", "d.queue('q', capacity=0, item=(fp.MEMORY,))"),
    "a queue that nobody can look through": ("m.write()", "d.queue('q', capacity=10**30, item=(fp.MEMORY,))"),
    "no Exception": ("class Skip(BaseException): pass\n            raise Skip('as a test library does')", ""),
    "depth zero": ("m.write()", "d.pinned('other', depth=0)"),
    "another design": ("fp.Design('stranger').pinned('x').write()", ""),
    "after release": ("t = d.empty('t')\n            t.release()\n            d.launch('k', reads=[t], writes=[])", ""),
    "an exception": ("raise RuntimeError('as the user wrote it')", ""),
    "a value that is none": ("int('many')", ""),
    "an exit": ("raise SystemExit(0)", ""),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_design_is_one_line_with_file_and_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    body, before = BODIES[name]
    file = f"bad_{name.replace(' ', '_')}.py"
    text = f"""
    import fencepost as fp

    def bad() -> fp.Design:
        d = fp.Design("bad")
        m = d.pinned("m")
        seen = []
        {before or "pass"}

        @d.loop("worker")
        def step(n):
            {body}

        return d
    """
    (folder / file).write_text(textwrap.dedent(text))
    result = call(capsys, "check", file)
    assert result.code == 2, result.out
    (line,) = result.err.splitlines()
    assert f"{file}:" in line and "Traceback" not in line, line
    assert line.split(f"{file}:")[1].split(":")[0].isdigit(), line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", ":1: syntax error"),
        ("import fencepost as fp\nimport not_there_at_all\n", ":2: ModuleNotFoundError"),
        ("x = 1\ny = 1 / 0\n", ":2: ZeroDivisionError"),
        ("raise SystemExit(0)\n", ":1: SystemExit"),
        ("class Skip(BaseException): pass\nraise Skip('no torch')\n", ":2: Skip: no torch"),
        ("x = 1\0\n", ".py: syntax error: source code string cannot contain null bytes"),
        ("import json\njson.loads('')\n", ":2: JSONDecodeError: Expecting value"),
        ("x = 1\nx = int('many')\n", ":2: ValueError: invalid literal for int() with base 10: 'many'"),
        ("x = 1\n", "no design in this file"),
        *(
            (f"import fencepost as fp\n@fp.variant({given})\ndef bad() -> fp.Design:\n    return fp.Design('bad')\n", f":2: {said}")
            for given, said in (
                ("3, fp.PROVED", "the label of a variant is text"),
                ("' ', fp.PROVED", "the label of a variant is text"),
                ("'a', fp.REFUTED, hazard='BLA m'", "variant 'a': hazard='BLA m'; write kind and object"),
                ("'a', fp.REFUTED, hazard='WAR'", "variant 'a': hazard='WAR'; write kind and object"),
                ("'a', fp.PROVED, environment='moon'", "variant 'a': no environment named 'moon'; there are: bare, "),
                ("'a', fp.PROVED, platform='moon'", "variant 'a': no platform named 'moon'; there are: cuda, "),
                ("'a', fp.REFUTED, fix='b'", "variant 'a' names the fix 'b', which is no variant of "),
            )
        ),
    ],
)
def test_a_file_that_does_not_import(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    name = f"unimportable_{abs(hash(text))}.py"
    write(folder, name, text)
    line = refused(capsys, "check", name)
    assert name in line and said in line


NEVER = """
import fencepost as fp

@fp.variant("declared", fp.PROVED, never=("{name}",))
def design() -> fp.Design:
    d = fp.Design("never")
    m, flag = d.pinned("m"), d.flag("set by nobody")

    @d.loop("worker")
    def step():
        m.write()
        if flag.is_set():
            d.host("fallback", reads=[m])
        m.read()

    return d
"""


def test_never_names_operations_that_there_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no operation has is refused; an operation that runs all the same is told."""
    write(folder, "never_a.py", NEVER.format(name="fallback"))
    assert "fallback never runs, as declared" in call(capsys, "check", "never_a.py", "-v").out
    write(folder, "never_b.py", NEVER.format(name="fallbak"))
    result = call(capsys, "check", "never_b.py")
    assert result.code == 2
    assert "never_b.py:4: variant 'declared': never='fallbak' names no operation; there are: write, fallback, read" in result.err
    write(folder, "never_c.py", NEVER.format(name="read"))
    assert "never reached: fallback" in call(capsys, "check", "never_c.py", "-v").out
    write(folder, "never_d.py", NEVER.format(name="fallback").replace('"fallback",)', '"fallback", "read")'))
    assert "read runs, though it is declared never to run" in call(capsys, "check", "never_d.py", "-v").out


@pytest.mark.parametrize("data", ['{"fencepost_program": 99, "program": {}}', "{}", "not json", "[1]", ""])
def test_json_that_is_not_ours(folder: Path, capsys: pytest.CaptureFixture[str], data: str) -> None:
    (folder / "p.json").write_text(data)
    assert "p.json" in refused(capsys, "check", "p.json")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"capacity":1', '"capacity":0', "'results': capacity=0; it is at least 1"),
        ('"capacity":1', '"capacity":99999999999999999999', "'results': capacity=99999999999999999999; it is at most 1,000,000"),
        ('"next":1', '"next":9999', "goes on at node 9999"),
        ('"next":1', '"next":0', "never ends"),
        ('"type":"Obj","id":0', '"type":"Obj","id":77', "object 77 of"),
        ('"event":{"type":"Obj","id":1', '"event":{"type":"Obj","id":0', "'m' is used as an event"),
        ('"kind":"loop"', '"kind":"lop"', "unknown kind 'lop'"),
    ],
)
def test_json_that_leads_nowhere(
    folder: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, said: str
) -> None:
    text = """
    import fencepost as fp

    def whole() -> fp.Design:
        d = fp.Design("whole")
        m, done = d.pinned("m"), d.event("done")
        results = d.queue("results", capacity=1, item=(fp.EVENT,))

        @d.loop("worker")
        def step(n):
            done.synchronize()
            m.write()
            done.record()
        return d
    """
    (folder / "whole.py").write_text(textwrap.dedent(text))
    whole = call(capsys, "show", "whole.py", "--json").out
    assert before in whole, whole
    (folder / "damaged.json").write_text(whole.replace(before, after, 1))
    line = refused(capsys, "check", "damaged.json")
    assert line.startswith("fencepost: damaged.json: damaged program (") and said in line


def test_one_bad_design_does_not_hide_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = "\n\ndef worse() -> fp.Design:\n    raise RuntimeError('no')\n"
    result = call(capsys, "check", write(folder, "mixed.py", GOOD.split("def typed")[0] + more))
    assert result.code == 2
    assert "guarded" in result.out and "1 without an answer" in result.out
    assert "mixed.py:" in result.err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version").out.startswith("fencepost ")
    assert call(capsys, "check", "--help").code == 0
    assert call(capsys).code == 2


# ---------------------------------------------------------------- processes


def test_the_command_is_installed() -> None:
    done = subprocess.run([sys.executable, "-m", "fencepost", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("fencepost ")


SLOW = """
import time
import fencepost as fp
from {good} import refill


@fp.variant("quick", fp.PROVED, wait=0)
@fp.variant("slow", fp.PROVED, wait=60)
def slow(wait: int) -> fp.Design:
    if wait:
        open("started", "w").close()
    time.sleep(wait)
    return refill(True)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupting_prints_the_table_so_far(folder: Path, jobs: str) -> None:
    write(folder, "good_slow.py", GOOD)
    write(folder, "slow.py", SLOW.format(good="good_slow"))
    command = [sys.executable, "-m", "fencepost", "check", "slow.py", "--jobs", jobs]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background inherits "ignore"
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (folder / "started").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "quick" in out and "1 answer" in out
    assert "interrupted; 1 of 2" in err and "Traceback" not in err


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_terminated_command_leaves_no_workers(folder: Path) -> None:
    write(folder, "good_term.py", GOOD)
    write(folder, "term.py", SLOW.format(good="good_term"))
    command = [sys.executable, "-m", "fencepost", "check", "term.py", "--jobs", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder) as process:
        deadline = time.monotonic() + 120
        while not (folder / "started").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        # The pipes close only when the last worker, which has them too, is gone.
        process.communicate(timeout=120)
    assert process.returncode == 143


def test_the_example_of_the_readme(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).resolve().parent.parent / "README.md").read_text()
    example = readme.split("```python\n")[1].split("```")[0]
    (folder / "engine.py").write_text(example)
    result = call(capsys, "check", "engine.py")
    assert result.code == 0, result.out + result.err
    assert "1 proved, 1 refuted; all as declared" in result.out
    for command in ("list", "show"):
        assert call(capsys, command, "engine.py").code == 0
    over = call(capsys, "check", "engine.py::input_prep", "--over", "batch_queue_size=1..8", "--format", "json")
    verdicts = [answer["verdict"] for answer in json.loads(over.out)["answers"]]
    assert verdicts == ["proved"] + ["refuted"] * 7  # with one result outstanding its wait protects the buffer
