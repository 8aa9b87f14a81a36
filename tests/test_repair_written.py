"""What `repair` offers can be written: its lines, put into the text of the design, give a design that is proved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fencepost.check import build, cases
from fencepost.loader import load
from fencepost.model.answer import PROVED
from fencepost.proofs.check import check
from fencepost.proofs.waits import offer
from fencepost.proofs.waits.repair import repair

from repair_writer import Unreadable, program_with

ROOT = Path(__file__).resolve().parent.parent

REFUTED = [
    ("designs/vllm_v1.py::pipeline", "no guard without async"),  # a body of two threads
    ("designs/vllm_v1.py::async_scheduling", "vllm#24527"),
    ("designs/vllm_v2.py::uva_pool", "3 in flight, 2 slots"),  # a cursor moves with its ring
    ("designs/vllm_v2.py::pruned_video", "the .item() between the two takes removed"),  # one line, twice in a turn
    ("designs/tensorrt_llm.py::v2_manager", "W2 dropped, iterations with an ADP dummy"),  # a helper of several calls
    ("designs/sglang.py::shared_rows", "barrier on the reads-done event"),
    ("designs/sglang.py::publish_ready", "re-recorded"),
    ("designs/atom.py::deferred_output", "no spec decode: logprobs not held"),  # record_stream beside a call
    ("designs/atom.py::staging", "no gate, middle chunks"),
    ("designs/cases/pinned_source.py::case_2_vllm_34866", "before"),
    ("designs/cases/recycled_device_memory.py::case_23_xla_979", "before"),
]
"""Refuted variants whose additions stand in helpers, in bodies of several threads, in loops of the text, beside rings."""


def test_every_addition_in_the_text_is_proved() -> None:
    """The line, the call and the names that a set tells are enough to write it, and the language takes it."""
    count: Counter[str] = Counter()
    for target, label in REFUTED:
        (found,) = load([str(ROOT / target)])
        case = next(case for case in cases([found]) if case.label is not None and label in case.label and case.expected == "refuted")
        assert found.function is not None
        for one in repair(build(found, case.parameters), most=12).repairs:
            try:
                program = program_with(found.function, case.parameters, one.additions)
            except Unreadable:
                count["not for this writer"] += 1
                continue
            told = [f"{a.text} at {a.place}" for a in one.additions]
            assert check(program, explain=False).verdict == PROVED, (target, label, told)
            for addition in one.additions:
                count[addition.family] += 1
    assert sum(count.values()) - count["not for this writer"] >= 40 and len(count) >= 10, count


FURTHER = [
    ("designs/cases/event_objects.py::case_c27_sglang_14214", offer.HANDED, "get() before the wait for written, put() behind its record"),
    ("designs/cases/kv_blocks.py::case_c22_vllm_20139", offer.HANDED, "get() and default.wait_event(access done) before next owner"),
    ("designs/cases/graphs.py::case_34_onnxruntime_32121", offer.KEPT, "source not given back"),
    ("designs/cases/graphs.py::case_36_pytorch_193402", offer.KEPT, "workspace not given back"),
]
"""No wait mends these: one needs an order of host calls, which a hand-over makes, or a block has to stay with its graph."""


@pytest.mark.parametrize(("target", "family", "text"), FURTHER)
def test_where_no_wait_is_enough(target: str, family: str, text: str) -> None:
    """One addition, first of all; written into the text it is proved and hangs nobody."""
    (found,) = load([str(ROOT / target)])
    case = next(case for case in cases([found]) if case.expected == "refuted")
    assert found.function is not None
    first = repair(build(found, case.parameters)).repairs[0]
    assert [a.family for a in first.additions] == [family] and text in first.additions[0].text
    written = check(program_with(found.function, case.parameters, first.additions), explain=False)
    assert written.verdict == PROVED and not written.stops


def test_a_wrong_line_is_noticed() -> None:
    """The same words at another line do not mend: what is compared is what was written."""
    (found,) = load([str(ROOT / "designs/vllm_v1.py::async_scheduling")])
    case = next(case for case in cases([found]) if case.label is not None and "vllm#24527" in case.label)
    assert found.function is not None
    fixes = repair(build(found, case.parameters), most=12).repairs
    (wait,) = next(one.additions for one in fixes if one.additions[0].text == "prepare_inputs_event.synchronize() before write")
    file, _, line = wait.place.rpartition(":")
    from fencepost.proofs.waits.repair import Addition

    later = Addition(wait.family, wait.text, f"{file}:{int(line) + 1}")
    assert check(program_with(found.function, case.parameters, (wait,)), explain=False).verdict == PROVED
    assert check(program_with(found.function, case.parameters, (later,)), explain=False).verdict != PROVED
    with pytest.raises(Unreadable):
        program_with(found.function, case.parameters, (Addition("?", "something else", wait.place),))
