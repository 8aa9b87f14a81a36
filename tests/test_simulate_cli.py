"""`fencepost simulate`: what it prints, its exit codes, and bad input that is one line."""

from __future__ import annotations

import json
import sys

import fencepost as fp
import pytest
from fencepost.cli import run
from fencepost.engines import Question, ask
from fencepost.model.answer import REFUTED, UNKNOWN

RING = "designs/ring.py::ring"


def said(capsys, *arguments):
    code = run(["simulate", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def replay_of(text: str) -> str:
    return next(word for word in text.split() if word.startswith("fencepost-run:"))


def test_a_wrong_value_is_shown_beside_the_right_one(capsys):
    code, out, err = said(capsys, RING, "-k", "one buffer too few")
    flat = " ".join(out.split())
    assert code == 0 and not err
    assert "wrong value (WAR slot), as declared" in flat
    assert "stream default, for step 0 of engine, reads slot[0]" in flat
    assert "what write wrote in step 1 of engine instead of what write wrote in step 0 of engine" in flat
    assert "held back: forward, step 0 of engine" in flat


def test_the_printed_string_replays_the_run(capsys):
    _, out, _ = said(capsys, RING, "-k", "one buffer too few")
    code, again, _ = said(capsys, RING, "--replay", replay_of(out))
    assert code == 1 and "reads slot[0]" in again and "held back: forward" in again


def test_nothing_found_proves_nothing(capsys):
    code, out, _ = said(capsys, RING, "-k", "depth equals the results outstanding", "--examples", "40")
    assert code == 0 and "no wrong value in 40 runs, as declared" in " ".join(out.split())
    code, out, _ = said(capsys, RING, "--set", "depth=2", "--examples", "40")
    assert code == 3 and "simulation proves nothing" in " ".join(out.split())


def test_what_is_not_as_declared_fails(capsys, tmp_path):
    (tmp_path / "wrongly_declared.py").write_text(
        "import fencepost as fp\n"
        "@fp.variant('said to be safe', fp.PROVED)\n"
        "def unsafe() -> fp.Design:\n"
        "    d = fp.Design('unsafe')\n"
        "    x, y = d.pinned('x'), d.device('y')\n"
        "    @d.loop('t')\n"
        "    def step():\n"
        "        x.write()\n"
        "        y.copy_(x, non_blocking=True)\n"
        "    return d\n"
    )
    code, out, _ = said(capsys, str(tmp_path / "wrongly_declared.py"))
    assert code == 1 and "BUT DECLARED proved" in " ".join(out.split())
    assert run(["check", str(tmp_path / "wrongly_declared.py"), "--engine", "simulate"]) == 1


def test_a_declared_proof_is_neither_confirmed_nor_contradicted(capsys):
    """`check --engine simulate` found nothing: exit code 3, and nothing counts as not declared. A refutation that it misses does."""
    arguments = ["check", RING, "--engine", "simulate", "--steps", "2"]
    assert run([*arguments, "-k", "depth equals the results outstanding"]) == 3
    out = capsys.readouterr().out
    assert "no wrong value in 500 runs" in " ".join(out.split()) and "0 not as declared" in out
    assert run([*arguments, "-k", "8 outstanding, 7 deep", "--budget", "0.001"]) in (0, 1)  # by what 2 turns can show


def test_who_waits_for_ever_is_said(capsys, tmp_path):
    (tmp_path / "hangs.py").write_text(
        "import fencepost as fp\n"
        "def hangs() -> fp.Design:\n"
        "    d = fp.Design('hangs')\n"
        "    x, s, f = d.pinned('x'), d.stream('s'), d.device_flag('f')\n"
        "    @d.script('t')\n"
        "    def step():\n"
        "        s.wait_value(f, 1)\n"
        "        d.launch('k', writes=[x], stream=s)\n"
        "        s.synchronize()\n"
        "        x.read()\n"
        "    return d\n"
    )
    code, out, _ = said(capsys, str(tmp_path / "hangs.py"), "--unguided", "--examples", "5")
    words = " ".join(out.split())
    assert code == 3 and "t, in step 0, waits for ever for the work in 's'" in words
    assert "stream s, for step 0 of t, waits for ever for 'f' to be 1; it is 0" in words


def test_hypothesis_chooses_parameters(capsys):
    code, out, _ = said(capsys, RING, "--over", "depth=1..4", "--set", "outstanding=3", "--examples", "300")
    assert code == 1 and "wrong value (WAR slot)" in out and "(Hypothesis)" in " ".join(out.split())
    code, again, _ = said(capsys, RING, "--replay", replay_of(out))
    assert code == 1 and "outstanding=3" in again


def test_several_designs_end_with_a_summary(capsys):
    code, out, _ = said(capsys, "designs/ring.py::hand_over", "--examples", "30")
    assert code == 0 and "4 designs: 2 with a wrong value, 2 without; 0 not as declared" in out


def test_unguided_searches_find_it_too(capsys):
    code, out, _ = said(capsys, RING, "-k", "one buffer too few", "--unguided", "--seed", "7")
    assert code == 0 and "(at random)" in out


def test_json_is_answers(capsys):
    code, out, _ = said(capsys, RING, "-k", "one buffer too few", "--format", "json")
    (answer,) = json.loads(out)["answers"]
    assert code == 0 and answer["verdict"] == REFUTED and answer["engine"] == "simulate" and answer["matches"]
    assert any(note.startswith("replay: fencepost-run:") for note in answer["notes"])


def test_the_engine_answers_as_the_others_do():
    from fencepost.designs.ring import ring

    answer = ask(fp.program_of(ring, {"depth": 1, "outstanding": 2}), Question("simulate", examples=50))
    assert answer.verdict == REFUTED and answer.hazards[0].name == "WAR slot" and answer.run is not None
    answer = ask(fp.program_of(ring, {"depth": 2, "outstanding": 2}), Question("simulate", examples=20))
    assert answer.verdict == UNKNOWN and answer.reason is not None and "20 runs" in answer.reason


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((RING, "--examples", "0"), "--examples 0: at least 1"),
        ((RING, "--steps", "-2"), "--steps -2: at least 1"),
        ((RING, "--timing", "sundial"), "no timing 'sundial'; there are: typical, declared"),
        ((RING, "--format", "markdown"), "no format 'markdown'"),
        ((RING, "--replay", "nonsense"), "not a replay string"),
        ((RING, "--replay", "fencepost-run:99:0123456789:AAAA"), "version 99"),
        ((RING, "--over", "depth=5..1"), "depth"),
        (("designs/ring.py", "--replay", "REPLAY"), "needs one design"),
        (("designs/ring.py::hand_over", "--replay", "REPLAY"), "another design"),
        ((RING, "--replay", "REPLAY", "--set", "depth=3"), "takes no --set"),
        (("nowhere.py",), "no such file"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(capsys, arguments, words):
    if "REPLAY" in arguments:
        _, out, _ = said(capsys, RING, "-k", "one buffer too few")
        arguments = [replay_of(out) if a == "REPLAY" else a for a in arguments]
    code, out, err = said(capsys, *arguments)
    assert code == 2 and not out
    assert len(err.strip().splitlines()) == 1 and words in err and "Traceback" not in err


def test_a_changed_design_refuses_the_string(capsys, tmp_path):
    text = (
        "import fencepost as fp\n"
        "def design(depth: int = 1) -> fp.Design:\n"
        "    d = fp.Design('changing')\n"
        "    x, y = d.pinned('x'), d.device('y')\n"
        "    @d.loop('t')\n"
        "    def step():\n"
        "        x.write()\n"
        "        y.copy_(x, non_blocking=True)\n"
        "    return d\n"
    )
    (tmp_path / "before_edit.py").write_text(text)
    (tmp_path / "after_edit.py").write_text(text.replace("non_blocking=True", "non_blocking=False"))
    code, out, _ = said(capsys, str(tmp_path / "before_edit.py"))
    assert code == 1
    code, out, err = said(capsys, str(tmp_path / "after_edit.py"), "--replay", replay_of(out))
    assert code == 2 and "another design" in err and "parameter" in err and not out


def test_a_negative_duration_is_one_line(capsys, tmp_path):
    program = tmp_path / "negative.json"
    made = fp.program_of(_timed, {})
    from fencepost.model.program import to_json

    program.write_bytes(to_json(made).replace(b'"time":0.5', b'"time":-0.5'))
    code, out, err = said(capsys, str(program), "--unguided")
    assert code == 2 and not out and len(err.strip().splitlines()) == 1 and "time=-0.5; a duration" in err


def _timed():
    d = fp.Design("timed")
    x = d.device("x")

    @d.script("t")
    def main():
        d.launch("k", writes=[x], time=0.5)

    return d


def test_without_hypothesis_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    code, out, err = said(capsys, RING, "--set", "depth=2", "--examples", "10")
    assert code == 2 and not out and "pip install 'fencepost[simulate]'" in err
    code, out, err = said(capsys, RING, "--over", "depth=1..2", "--examples", "10")
    assert code == 2 and not out and "pip install 'fencepost[simulate]'" in err
