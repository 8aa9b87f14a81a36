"""Plans: the disputes of the engines as tables, implications, margins, what no depth saves, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fencepost.cli import run
from fencepost.loader import load
from fencepost.plan import Plan, plan
from fencepost.report.plan import at, cell, columns_of

ROOT = Path(__file__).resolve().parent.parent


def made(target: str, *overs: str, sets: tuple[str, ...] = ()) -> Plan:
    """The plan of one design."""
    (found,) = load([str(ROOT / target)])
    return plan(found, overs, sets, jobs=1)


def verdicts(found: Plan) -> dict[tuple[tuple[str, ...], str], bool]:
    """((kept waits), value of the axis) -> proved."""
    return {
        (tuple(w for w in found.waits if w in kept), str(found.split(setting)[1])): combination.proved
        for (kept, setting), combination in found.table.items()
    }


def test_the_dispute_of_15849() -> None:
    """After #15546 the event is redundant for V1's table, needed for depth-1 prep buffers, needed for V2 and DSv4."""
    v1 = made("designs/tensorrt_llm.py::v1_manager", "w1,prep_depth=0..2", sets=("snapshot=true",))
    assert verdicts(v1) == {
        ((), "0"): True, ((), "1"): False, ((), "2"): True,
        (("w1",), "0"): True, (("w1",), "1"): True, (("w1",), "2"): True,
    }  # fmt: skip
    assert cell(at(v1, (frozenset(), ()), 1), v1) == "WAR prep buffers"
    v2 = made("designs/tensorrt_llm.py::v2_manager", "w1,w2,w3")
    assert [tuple(sorted(kept)) for kept in v2.minimal[()]] == [("w2",)]
    assert set(v2.implies) == {("w2", "w1"), ("w2", "w3"), ("w3", "w1")}
    dsv4 = made("designs/tensorrt_llm.py::dsv4_manager", "w1,w2,w3")
    assert [tuple(sorted(kept)) for kept in dsv4.minimal[()]] == [("w2",)]
    assert not dsv4.table[frozenset(), ()].proved and ("w2", "w3") in dsv4.implies
    end = ("snapshot=raw kernel", "hold=prep event", "prep_depth=1")
    moved = made("designs/tensorrt_llm.py::v2_manager", "w1,w2,w3,wait_in_prepare", sets=end)
    assert ("wait_in_prepare",) in [tuple(sorted(kept)) for kept in moved.minimal[()]]
    assert not moved.table[frozenset(), ()].proved
    second = made("designs/tensorrt_llm.py::v2_manager", "w1,w2,w3", sets=("second_preparation=true",))
    assert [tuple(sorted(kept)) for kept in second.minimal[()]] == [("w2", "w3")]
    assert ("w2", "w3") not in second.implies


def test_one_event_or_a_ring() -> None:
    """V2 encoder-only: E = 1 is safe at every depth, a ring of E needs E slots, and no wait is saved by no depth."""
    found = made("designs/vllm_v2.py::encoder_only", "events=0..3,depth=1..4")
    assert found.axis == "depth" and columns_of(found) == [1, 2, 3, 4]
    for (_, setting), combination in found.table.items():
        events, depth = dict(setting)["events"], dict(setting)["depth"]
        assert combination.proved == (events > 0 and depth >= events)
    assert found.lost == ((frozenset(), (("events", 0),)),)
    assert found.margin((("events", 2), ("depth", 4)), frozenset()) == 2
    assert found.margin((("events", 1), ("depth", 2)), frozenset()) is None  # the table does not go lower than safe
    assert found.memory((("events", 1), ("depth", 3)), frozenset()) == 2 * 4096


def test_the_place_of_the_barrier() -> None:
    """SGLang: the place decides, and the finer event is as good as the whole stream while every read precedes it."""
    found = made("designs/sglang.py::shared_rows", "barrier,covers", sets=("late_read=false",))
    assert {dict(setting)["barrier"] for (_, setting), c in found.table.items() if c.proved} == {"after launch"}
    late = made("designs/sglang.py::shared_rows", "barrier,covers", sets=("late_read=true",))
    safe = [dict(setting) for (_, setting), c in late.table.items() if c.proved]
    assert safe == [{"barrier": "after launch", "covers": "all of forward"}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["designs/ring.py", "--over", "depht=1..2"], "no design of the targets has a parameter 'depht'"),
        (["designs/ring.py::ring", "--over", "depht=1..2"], "has no parameter 'depht'"),
        (["designs/ring.py::ring", "--over", "depth"], "write depth=1..4 or depth=a,b"),
        (["designs/ring.py::ring", "--over", "depth=1..two"], "is int, not '1..two'"),
        (["designs/ring.py::ring", "--over", "depth=1..9999"], "more than 1024 values"),
        (["designs/ring.py::ring", "--over", "depth=1..60,outstanding=1..60"], "asks for 3600 combinations"),
        (["designs/ring.py::ring", "--over", "depth=2..1"], "an empty range"),
        (["designs/ring.py::ring", "--over", "depth=1,depth=2"], "parameter 'depth' is given twice"),
        (["designs/ring.py::ring", "--over", "depth=1..2", "--set", "depth=1"], "'depth' is an axis of --over, too"),
        (["designs/ring.py::ring", "--over", ","], "plan needs open points"),
        (["nowhere.py", "--over", "w"], "no such file"),
    ],
)
def test_bad_input(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit 2."""
    monkeypatch.chdir(ROOT)
    assert run(["plan", *arguments]) == 2
    err = capsys.readouterr().err.strip()
    assert says in err and "\n" not in err


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of #15849 for V2 on one screen; JSON; exit codes."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)
    assert run(["plan", "designs/tensorrt_llm.py::v2_manager", "--over", "w1,w2,w3", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "w2             proved*" in text and "w2 implies w3" in text and len(text.splitlines()) < 25
    assert run(["plan", "designs/ring.py::ring", "--over", "encoder_only,depth=1..3", "--jobs", "1", "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["designs"]
    assert len(found["combinations"]) == 6 and found["lost"] == [{"waits": ["encoder_only"], "parameters": {}}]
    assert run(["plan", "designs/vllm_v2.py::encoder_only", "--over", "depth=1..2", "--jobs", "1"]) == 1
    capsys.readouterr()


def test_15849_as_one_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All three managers: one command, one table, which wait implies which."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)
    assert run(["plan", "designs/tensorrt_llm.py", "--over", "w1,w2,w3,prep_depth=1..2", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    heads = [line.strip() for line in text.splitlines() if line.startswith("  tensorrt_llm::")]
    assert heads == [f"tensorrt_llm::{name}_manager" for name in ("v1", "v2", "dsv4")]
    rows = [line for line in text.splitlines() if line.startswith("    w1 + w2 + w3")]
    assert len(rows) == 2 and all("proved" in line for line in rows)
    assert text.count("w2 implies w3") == 2 and all(len(line) <= 100 for line in text.splitlines())


def test_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is broken at 80 columns: letters stand for hazards that do not fit, and a list says for which."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    assert run(["plan", "designs/tensorrt_llm.py", "--over", "w1,w2,prep_depth=1..2", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert {"  tensorrt_llm::dsv4_manager", "  b  WAR host_kv_cache_block_offsets", "  d  WAR scratch begin, end, slot"} <= set(lines)
    (row,) = [line for line in lines if line.startswith("    no wait") and "refuted: a, b   " in line]
    assert row.split() == ["no", "wait", "refuted:", "a,", "b", "refuted:", "b"]
    assert run(["plan", "designs/vllm_v2.py::encoder_only", "--over", "events=1..2,depth=1..2", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "WAR write_indices" in text and "refuted" not in text  # it fits: no letters
