"""Reports from answers made by hand: what a reader sees must not depend on an engine."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence

import msgspec
import pytest
from fencepost.check import Case, Outcome, code_of, exit_code, matches, unused_acceptances
from fencepost.model import program as p
from fencepost.model.answer import (
    BOUNDED,
    MASKED,
    PROVED,
    REFUTED,
    UNKNOWN,
    AccessInfo,
    Answer,
    Certificate,
    Hazard,
    Protection,
    Run,
    Step,
)  # fmt: skip
from fencepost.report import text as report
from fencepost.report import write
from fencepost.report.lanes import MOST_ROWS, lanes
from fencepost.report.words import Words, missing_edge
from fencepost.show import Shown

HOST, DEVICE, EVENT, STREAM, QUEUE = range(5)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest-xdist tells its workers its own width."""
    monkeypatch.setenv("COLUMNS", "120")


def refill(guard: bool) -> p.Program:
    """A pinned buffer refilled every turn, copied to the device, with an event guard or without."""
    write = p.Host("write", (p.Access(p.Obj(HOST), "w"),))
    copy = p.Copy(p.Obj(DEVICE), p.Obj(HOST), p.Obj(STREAM), non_blocking=True)
    launch = p.Launch("forward", p.Obj(STREAM), (p.Access(p.Obj(DEVICE), "r"),))
    operations: list[p.Operation] = [write, copy, launch]
    if guard:
        operations = [p.EventSync(p.Obj(EVENT)), write, copy, p.Record(p.Obj(EVENT), p.Obj(STREAM)), launch]
    last = len(operations) - 1
    nodes = tuple(p.Do(o, p.END if i == last else i + 1, i) for i, o in enumerate(operations))
    return p.Program(
        "refill",
        (
            p.Memory("seq_lens", "pinned"),
            p.Memory("seq_lens_gpu", "device"),
            p.Event("prep"),
            p.Stream("default", default=True),
            p.Queue("batch_queue", 2, (("", (p.EVENT,)),)),
        ),
        (p.Thread("worker", "loop", nodes, 0),),
        places=tuple((p.Place("engine.py", 10 + i, "step"),) for i in range(len(operations))),
    )


COPY = AccessInfo(1, "worker", "default", True, "r", "copy_", 0, (p.Place("engine.py", 11, "step"),))
REFILL = AccessInfo(3, "worker", "worker", False, "w", "write", 1, (p.Place("engine.py", 10, "step"),))
WAR = Hazard("WAR", "seq_lens", COPY, REFILL, True)
RUN = Run((Step(0, 0), Step(0, 1), Step(0, 2), Step(0, 0)), late=(1,))


def refuted(**changes: object) -> Answer:
    answer = Answer(
        "engine::refill", REFUTED, hazards=(WAR,), run=RUN, fixes=("prep.synchronize() before the refill",),
        masked_by=("launch-blocking",), notes=("full() is always true",), lints=("prep is never recorded",),
        parameters={"guard": False}, seconds=0.012,
    )  # fmt: skip
    return msgspec.structs.replace(answer, **changes)


def proved(**changes: object) -> Answer:
    answer = Answer(
        "engine::refill", PROVED, protections=(Protection("seq_lens", ("prep.synchronize()",), 1),),
        assumptions=("free of a pinned block synchronises",), certificate=Certificate("ab12", 7, True),
    )  # fmt: skip
    return msgspec.structs.replace(answer, **changes)


def outcome(answer: Answer | None, *, error: str | None = None, guard: bool = False, **case: object) -> Outcome:
    asked = msgspec.structs.replace(Case("engine.py::refill", "engine::refill", {"guard": guard}), **case)
    if answer is not None:
        answer = msgspec.structs.replace(answer, expected=asked.expected)
        answer = msgspec.structs.replace(answer, matches=matches(answer, asked))
    return Outcome(asked, answer, refill(guard), error)


def text(outcomes: Sequence[Outcome], format: str = "text", **options: bool) -> str:
    out = io.StringIO()
    write(outcomes, format, out, **options)
    return out.getvalue()


# ---------------------------------------------------------------- text


def test_a_refutation_shows_lanes_accesses_missing_edge_fix_and_mask() -> None:
    shown = text([outcome(refuted())])
    sentence = "host thread worker writes pinned seq_lens in step 1 (write) while copy_ of step 0 on stream default may"
    assert sentence in " ".join(shown.split())
    assert "engine.py:11" in shown and "engine.py:10" in shown
    assert "thread worker" in shown and "stream default" in shown
    assert re.search(r"\[1\] seq_lens_gpu\.copy_\(seq_lens, non_blocking\)", shown)
    assert re.search(r"1 +\[2\] seq_lens\.write\(\) +\[1\] may still run", shown)
    for part in ("prep.synchronize() before the refill", "launch-blocking", "full() is always true", "never recorded"):
        assert part in shown
    assert "fencepost check engine.py::refill --set guard=false" in shown


def test_a_refutation_fits_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    steps = tuple(Step(0, i % 3) for i in range(300))
    late = msgspec.structs.replace(REFILL, index=297, step=99)
    answer = refuted(run=Run(steps), hazards=(msgspec.structs.replace(WAR, second=late),))
    shown = text([outcome(answer)])
    assert len(shown.splitlines()) < 60
    assert "[2] seq_lens.write()" in shown and "more" in shown
    assert len(lanes(refill(False), answer).rows) <= MOST_ROWS


@pytest.mark.parametrize("width", ["40", "72", "200"])
def test_lines_fit_columns(monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = text([outcome(refuted()), outcome(proved(), guard=True)], verbose=True).splitlines()
    assert max(map(len, lines)) <= int(width)


def test_the_table_of_a_pipe_is_the_one_that_rich_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    long = " ".join(f"word{n}" * (n % 3 + 1) for n in range(20))
    outcomes = [
        outcome(refuted(), label=label, design=f"engine::{design}", expected=expected)
        for design, label, expected in (
            ("refill", None, None), ("refill", long, REFUTED), ("refill", "x" * 150, PROVED), ("other", "\u5bbd " * 40, UNKNOWN),
            ("other", "short", None),
        )
    ] + [outcome(None, error="no answer")]  # fmt: skip
    drawn = 0
    for width in range(30, 180, 7):
        monkeypatch.setenv("COLUMNS", str(width))
        plain = text(outcomes)
        with monkeypatch.context() as patch:
            patch.setattr(report, "_plain_table", lambda *_: None)
            assert plain == text(outcomes)
        drawn += report._plain_table(outcomes, report.console_for(io.StringIO())) is not None
    assert drawn > 5


def test_a_pipe_gets_no_escapes_and_no_trailing_table_borders() -> None:
    assert "\x1b" not in text([outcome(refuted()), outcome(proved())], verbose=True)


def test_no_color_is_honoured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured, plain = Terminal(), Terminal()
    write([outcome(refuted())], "text", coloured)
    monkeypatch.setenv("NO_COLOR", "1")
    write([outcome(refuted())], "text", plain)
    assert re.search("\x1b\\[[0-9;]*3[0-9]m", coloured.getvalue())
    assert not re.search("\x1b\\[[0-9;]*3[0-9]m", plain.getvalue())


def test_a_proof_shows_what_protects_assumptions_and_certificate() -> None:
    shown = text([outcome(proved(), guard=True)])
    assert re.search(r"seq_lens +prep\.synchronize\(\) +1", shown)
    assert "free of a pinned block synchronises" in shown
    assert "ab12, 7 states, checked by the separate checker" in shown


def test_an_unchecked_certificate_is_called_so() -> None:
    assert "NOT CHECKED" in text([outcome(proved(certificate=Certificate("ab12", 7, False)))])


def test_text_of_users_is_not_taken_for_markup() -> None:
    assert "[bold]x[/bold]" in text([outcome(proved(), label="[bold]x[/bold]", expected=PROVED)])


def test_an_answer_that_is_not_as_declared_stands_out() -> None:
    shown = text([outcome(refuted(), label="guarded", expected=PROVED)])
    assert "DECLARED proved" in shown and "but declared proved" in shown and "1 not as declared" in shown


def test_bounded_and_unknown_say_how_far_and_why() -> None:
    shown = text([outcome(proved(verdict=BOUNDED, bound=7)), outcome(proved(verdict=UNKNOWN, reason="budget ended"))])
    assert "bounded(7)" in shown and "budget ended" in shown


def test_a_recycled_block_names_both_owners() -> None:
    second = msgspec.structs.replace(REFILL, tenant="logits")
    first = msgspec.structs.replace(COPY, tenant="ids")
    sentence = missing_edge(Hazard("WAR", "ids", first, second, True, new_owner="logits"))
    assert "logits (in the block that ids had)" in sentence and "its bytes as ids" in sentence


def test_undefined_bytes_need_no_first_access() -> None:
    second = msgspec.structs.replace(REFILL, mode="r", operation="read")
    assert "never written, or freed before" in missing_edge(Hazard("UNDEFINED", "x", None, second))


# ---------------------------------------------------------------- other formats


def test_json_is_the_documented_document() -> None:
    document = json.loads(text([outcome(refuted(), label="free", expected=REFUTED, hazard="WAR seq_lens")], "json"))
    assert document["fencepost_answers"] == 1
    (answer,) = document["answers"]
    assert answer["verdict"] == "refuted" and answer["matches"] is True and answer["parameters"] == {"guard": False}
    hazard = answer["hazards"][0]
    assert (hazard["kind"], hazard["object"], hazard["value_changing"]) == ("WAR", "seq_lens", True)
    assert hazard["first"]["agent"] == "default" and hazard["first"]["places"][0]["line"] == 11


def test_markdown_escapes_what_would_break_its_table() -> None:
    shown = text([outcome(refuted(), label="a | b <c>", expected=REFUTED)], "markdown")
    assert "a \\| b &lt;c&gt;" in shown
    assert all(line.startswith("|") for line in shown.splitlines()[:3])


def test_github_annotates_failures_at_their_line() -> None:
    shown = text([outcome(refuted()), outcome(proved())], "github")
    assert shown.startswith("::error file=engine.py,line=10,title=engine%3A%3Arefill")
    assert shown.count("::error") == 1


# ---------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (outcome(proved()), 0),
        (outcome(refuted()), 1),
        (outcome(refuted(accepted=("WAR seq_lens",))), 0),
        (outcome(proved(hangs=("deadlock batch_queue",))), 1),
        (outcome(proved(verdict=UNKNOWN)), 3),
        (outcome(proved(verdict=BOUNDED)), 3),
        (outcome(proved(verdict=MASKED)), 3),
        (outcome(None, error="engine.py:3: no"), 2),
        (outcome(refuted(), expected=REFUTED), 0),
        (outcome(refuted(), expected=REFUTED, hazard="WAR seq_lens"), 0),
        (outcome(refuted(), expected=REFUTED, hazard="WAR other"), 1),
        (outcome(refuted(), expected=PROVED), 1),
        (outcome(proved(verdict=MASKED), expected=MASKED), 0),
        (outcome(proved(verdict=UNKNOWN), expected=PROVED), 1),
        (outcome(proved(hangs=("deadlock batch_queue",)), expected=PROVED), 1),
        (outcome(proved(hangs=("deadlock batch_queue",)), expected=PROVED, hang="deadlock batch_queue"), 0),
        (outcome(proved(), expected=PROVED, hang="deadlock batch_queue"), 1),
    ],
)
def test_exit_code_of_one_answer(made: Outcome, code: int) -> None:
    assert code_of(made) == code


def test_exit_codes_combine_in_the_order_2_1_3_0() -> None:
    fine, bad, unclear, none = (
        outcome(proved()), outcome(refuted()), outcome(proved(verdict=UNKNOWN)), outcome(None, error="x"),
    )  # fmt: skip
    assert exit_code([fine]) == 0 and exit_code([]) == 0
    assert exit_code([fine, unclear]) == 3
    assert exit_code([unclear, bad, fine]) == 1
    assert exit_code([bad, none]) == 2
    assert exit_code([bad], ["an unused acceptance"]) == 2


def test_an_acceptance_that_nothing_needs_is_an_error() -> None:
    def accepting(hazard: str, answer: Answer) -> Outcome:
        made = outcome(answer)
        program = msgspec.structs.replace(refill(False), accepted=(p.Accept(hazard, "known"),))
        return msgspec.structs.replace(made, program=program)

    assert unused_acceptances([accepting("WAR seq_lens", refuted())]) == []
    assert unused_acceptances([accepting("WAR seq_lens", proved()), accepting("WAR seq_lens", refuted())]) == []
    assert "WAR ghost" in unused_acceptances([accepting("WAR ghost", refuted())])[0]
    assert unused_acceptances([accepting("WAR ghost", proved(verdict=UNKNOWN))]) == []


# ---------------------------------------------------------------- show, words


def test_show_says_what_each_wait_orders_and_what_it_does_not() -> None:
    lines = list(Shown(refill(True), width=100).lines())
    wait = next(number for number, line in enumerate(lines) if line.startswith("  prep.synchronize()"))
    rest = "\n".join(lines[wait:])
    assert "for prep.record(default) in worker" in rest
    assert "orders: copy reads seq_lens; writes seq_lens_gpu (engine.py:12)" in rest
    assert "does not order: forward reads seq_lens_gpu (engine.py:14): enqueued after it" in rest
    assert "before: write writes seq_lens (engine.py:11)" in rest


def test_show_of_a_wait_on_an_event_that_nobody_records() -> None:
    program = refill(True)
    thread = program.threads[0]
    nodes = tuple(
        msgspec.structs.replace(node, operation=p.Unlock(0))
        if isinstance(node, p.Do) and isinstance(node.operation, p.Record)
        else node
        for node in thread.nodes
    )
    changed = msgspec.structs.replace(program, threads=(msgspec.structs.replace(thread, nodes=nodes),))
    assert any("never recorded (S18)" in line for line in Shown(changed).lines())


def test_every_operation_and_question_has_words() -> None:
    from typing import get_args

    from fencepost.report import words

    assert set(words._OPERATIONS) == set(get_args(p.Operation))
    assert set(words._QUESTIONS) == set(get_args(p.Question))


def test_indices_are_numbers_where_turn_and_depth_are_known() -> None:
    ring = p.Program("x", (p.Memory("ring", "pinned", depth=3),), (p.Thread("t", "loop", (), 0),))
    slot = p.Slot(0, p.Turn(-1), p.Named("rows"))
    assert Words(ring).operand(slot, ring.threads[0]) == 'ring[n-1]["rows"]'
    assert Words(ring).operand(slot, ring.threads[0], turn=0) == 'ring[2]["rows"]'
