"""`repair` finds the published fix, or a cheaper one, for the bugs that the engines' designs stand for; each set is proved."""

from __future__ import annotations

import collections
import json
import random
import sys
from pathlib import Path

import fencepost as fp
import pytest
from fencepost.check import build, cases
from fencepost.cli import run
from fencepost.engines import Question, ask
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.answer import PROVED, REFUTED
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check
from fencepost.proofs.waits import offer
from fencepost.proofs.waits.repair import Repair, repair

import random_programs
import random_rendezvous

ROOT = Path(__file__).resolve().parent.parent


def variant(target: str, label: str) -> p.Program:
    """The program of the first declared variant whose label contains the text."""
    (found,) = load([str(ROOT / target)])
    case = next(case for case in cases([found]) if case.label is not None and label in case.label)
    return build(found, case.parameters)


PUBLISHED = [
    ("vllm#47644: an event around the preparation", "designs/vllm_v1.py::pipeline", "no guard without async", [(offer.HOST_NEW, "before write of worker pp0, a new event recorded behind copy input_ids pp0")]),
    ("vllm#48901: a wait on the early return", "designs/vllm_v1.py::pooling", "before vllm#48901", [(offer.SYNC, "main.synchronize() before write")]),
    ("vllm#34866: the dummy takes part in both ends", "designs/vllm_v1.py::async_scheduling", "before vllm#34866", [(offer.BOTH, "prepare_inputs_event.synchronize() before write, prepare_inputs_event.record() also behind")]),
    ("vllm#25279: the guard moves in front of the state update", "designs/vllm_v1.py::async_scheduling", "vllm#24527", [(offer.HOST, "prepare_inputs_event.synchronize() before write")]),
    ("vllm#29288: an event of its own", "designs/vllm_v1.py::async_scheduling", "EAGLE in 0.33.0", [(offer.HOST_NEW, "a new event recorded behind copy backup_next_token_ids")]),
    ("vllm#53176: a ring of events", "designs/vllm_v2.py::encoder_only", "no wait, 2 slots", [(offer.HOST_RING, "a new ring of 2 events recorded behind apply write")]),
    ("vllm#53057: a single event", "designs/vllm_v2.py::encoder_only", "no wait, 2 slots", [(offer.HOST_NEW, "a new event recorded behind apply write")]),
    ("vLLM V2: as many slots as batches in flight", "designs/vllm_v2.py::uva_pool", "3 in flight, 2 slots", [(offer.SLOT, "temperature: 3 slots instead of 2"), (offer.SLOT, "num_blocks pp0: 3 slots instead of 2")]),
    ("TensorRT-LLM#14128: W1", "designs/tensorrt_llm.py::v1_manager", "no event, table filled in place", [(offer.HOST, "if not prep event.empty(): prep event.get().synchronize() before write")]),
    ("TensorRT-LLM#15546: a fresh snapshot", "designs/tensorrt_llm.py::v1_manager", "no event, table filled in place", [(offer.FRESH, "reads a fresh pinned snapshot of host_kv_cache_block_offsets")]),
    ("TensorRT-LLM#14674: a wait in the tail (one is enough)", "designs/tensorrt_llm.py::v2_manager", "W1 alone (#14128)", [(offer.HOISTED, "prepare_inputs.synchronize() before the block 'terminate the ADP dummy'")]),
    ("TensorRT-LLM#16088: snapshots held to an event", "designs/tensorrt_llm.py::v2_manager", "dropped at return", [(offer.HOLD, "copy_idx snapshot held in prep event"), (offer.HOLD, "block offsets snapshot held in prep event")]),
    ("sglang#31687: the barrier behind the launch", "designs/sglang.py::shared_rows", "barrier at the loop top only (#26380)", [(offer.STREAM, "schedule.wait_event(reads done) before rewrite rows of finished requests")]),
    ("sglang#31687: one wait, behind the record", "designs/sglang.py::shared_rows", "no barrier", [(offer.STREAM, "schedule.wait_event(reads done) behind its record")]),
    ("sglang#36661: the record kept longer (beside its event)", "designs/sglang.py::batch_records", "no records", [(offer.HOLD, "batch tensors held in result_queue")]),
    ("sglang#34076: record_stream on the gather's indices", "designs/sglang.py::mixed_chunk", "live as long as the record ring", [(offer.USE, "record_stream(forward) behind relay gather")]),
    ("sglang#30435: the old capture first", "designs/sglang.py::publish_ready", "re-recorded", [(offer.CHAIN, "schedule.wait_event(publish_ready) before its record")]),
    ("tokenspeed#376: a fresh buffer", "designs/sglang.py::sampling_parameters", "one pinned buffer", [(offer.FRESH, "reads a fresh pinned snapshot of sampling parameters")]),
    ("ATOM#2654: the source held beside the copy's event", "designs/atom.py::deferred_output", "no spec decode: logprobs not held", [(offer.HOLD, "logprobs held in token_ids_cpu")]),
    ("ATOM#2654, first revision: record_stream", "designs/atom.py::deferred_output", "no spec decode: logprobs not held", [(offer.USE, "logprobs.record_stream(async_copy_stream)")]),
    ("ATOM: the evicted entry's event is waited for", "designs/atom.py::ell_held_in_pending", "evicted beyond 4 entries", [(offer.DRAIN, "wait for the event that")]),
    ("a ring behind a bounded queue: one slot more", "designs/ring.py::hand_over", "a ring of 2 behind a queue of capacity 1", [(offer.SLOT, "slot: 3 slots instead of 2")]),
    ("ATOM: the staging gate", "designs/atom.py::staging", "no gate, middle chunks return without a wait", [(offer.HOST_NEW, "a new event recorded behind copy staging")]),
]  # fmt: skip
"""What was published, the variant that has the bug, and the additions that are the published fix."""


def is_published(found: Repair, wanted: list[tuple[str, str]]) -> bool:
    """Whether a set consists of exactly the wanted additions."""
    left = list(found.additions)
    for family, text in wanted:
        match = next((one for one in left if one.family == family and text in one.text), None)
        if match is None:
            return False
        left.remove(match)
    return not left


_FOUND: dict[tuple[str, str], object] = {}


@pytest.mark.parametrize(("bug", "target", "label", "wanted"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_published_fixes(bug: str, target: str, label: str, wanted: list[tuple[str, str]]) -> None:
    """The published fix is among the sets, and every set is proved on a program that differs from the design."""
    program = variant(target, label)
    if (target, label) not in _FOUND:
        _FOUND[target, label] = repair(program, most=12)
    found = _FOUND[target, label]
    assert any(is_published(one, wanted) for one in found.repairs), [one.additions for one in found.repairs]  # type: ignore[attr-defined]
    prices = [one.price for one in found.repairs]  # type: ignore[attr-defined]
    assert prices == sorted(prices)
    for one in found.repairs:  # type: ignore[attr-defined]
        assert one.answer.verdict == PROVED and one.answer.certificate.checked
        assert one.program != program and all(addition.place for addition in one.additions)


def test_a_repair_is_decided_anew() -> None:
    """The program of a set gets the same verdict and the same certificate from a check of its own."""
    found = repair(variant("designs/vllm_v1.py::async_scheduling", "vllm#24527"))
    for one in found.repairs:
        again = check(one.program, explain=False)
        assert again.verdict == PROVED and again.certificate == one.answer.certificate
    moved = next(one for one in found.repairs if one.additions[0].family == offer.HOST)
    assert moved.spare == ("vllm_v1.py:294",)  # the guard of #24527 itself: the fix moves it


def test_atom_hold_before_record_stream() -> None:
    """Both suffice; the hold comes first: it records no event and keeps no block longer than the wait that is there."""
    found = repair(variant("designs/atom.py::deferred_output", "no spec decode: logprobs not held"), most=3)
    assert [one.additions[0].family for one in found.repairs[:2]] == [offer.HOLD, offer.USE]
    assert [len(one.additions) for one in found.repairs[:2]] == [1, 1]


def test_nothing_to_mend() -> None:
    """A safe design needs nothing; a wait that exists already is offered before a new event."""
    assert repair(variant("designs/vllm_v1.py::pooling", "vllm#48901: every")).repairs == ()


def test_additions_of_two_hazards() -> None:
    """Two unrelated buffers are mended by one set that names both places."""

    def design() -> fp.Design:
        d = fp.Design("two buffers")
        one, two, device = d.pinned("one"), d.pinned("two"), d.device("device")

        @d.loop("worker")
        def step() -> None:
            one.write()
            device["a"].copy_(one, non_blocking=True)
            two.write()
            device["b"].copy_(two, non_blocking=True)

        return d

    found = repair(program_of(design, {}))
    assert {h.name for h in found.hazards} == {"WAR one", "WAR two"}
    fresh = next(one for one in found.repairs if one.additions[0].family == offer.FRESH)
    assert len(fresh.additions) == 2 and len({a.place for a in fresh.additions}) == 2
    # A device table that a kernel fills may hold more than one turn writes: it is never doubled behind one's back.
    assert not any("device" in a.text and a.family == offer.SLOT for one in found.repairs for a in one.additions)


def line(text: str) -> str:
    """`file:line` of the line of this file that holds the text, as reports name it."""
    (found,) = [k for k, one in enumerate(Path(__file__).read_text().splitlines(), 1) if one.strip() == text]
    return f"{Path(__file__).name}:{found}"


def offered(found: object, family: str) -> list[tuple[str, str]]:
    """(text, place) of the additions of all sets that consist of one family."""
    return [(a.text, a.place) for one in found.repairs if {a.family for a in one.additions} == {family} for a in one.additions]  # type: ignore[attr-defined]


def test_a_helper_that_several_calls_share() -> None:
    """What is meant wherever the line runs is one addition at the line; what is meant of one call stands beside the call."""

    def design() -> fp.Design:
        d = fp.Design("helper")
        one, two, device = d.pinned("one"), d.pinned("two"), d.device("device")
        side = d.stream("side")

        def send(source: fp.Tensor, part: str) -> None:
            source.write()  # of both
            device[part].copy_(source, non_blocking=True)  # of both

        @d.loop("worker")
        def step() -> None:
            send(one, "a")  # the first
            with side:
                send(two, "b")  # the second
            side.synchronize()

        return d

    found = repair(program_of(design, {}), most=12)
    assert [h.name for h in found.hazards] == ["WAR one"]
    assert offered(found, offer.FRESH)[0] == (
        "copy one -> device, copy two -> device each read a fresh pinned snapshot of one, two",
        line("device[part].copy_(source, non_blocking=True)  # of both"),
    )
    (text, place), *_ = offered(found, offer.HOST_NEW)
    first = line('send(one, "a")  # the first')
    assert f"recorded behind copy one -> device ({first})" in text
    assert place == line("source.write()  # of both")
    assert offered(found, offer.SYNC)[0] == ("default.synchronize() before write", line("source.write()  # of both"))


def test_a_loop_of_one_line() -> None:
    """What is meant of one round of a loop in the text says so; a snapshot is taken in every round."""

    def design() -> fp.Design:
        d = fp.Design("rounds")
        pairs = [(d.pinned(f"host {i}"), d.device(f"device {i}")) for i in range(2)]

        @d.loop("worker")
        def step() -> None:
            for host, device in pairs: host.write(); device.copy_(host, non_blocking=True)  # fmt: skip # noqa: E701, E702

        return d

    found = repair(program_of(design, {}), most=12)
    (fresh,) = [one for one in found.repairs if one.additions[0].family == offer.FRESH]
    assert [a.text for a in fresh.additions] == [
        "copy host 0 -> device 0, copy host 1 -> device 1 each read a fresh pinned snapshot of host 0, host 1"
    ]
    texts = [text for text, _ in offered(found, offer.HOST_NEW)]
    assert texts and all("; not for copy host " in text and text.endswith(" on the same line") for text in texts)


def test_tokens_come_back_behind_an_event() -> None:
    """The published fix of the arena: the chunk is tagged with an event that is recorded already."""
    found = repair(variant("designs/cases/recycled_device_memory.py::case_19_onnxruntime_32342", "before: no tag"))
    assert [(a.family, a.text) for a in found.repairs[0].additions] == [(offer.GIVEN, "chunk.give(chunk, after=used)")]
    new = repair(variant("designs/cases/further.py::freetensor_566", "before"))
    assert new.repairs[0].additions[0].text.startswith("buffer.give(buffer, after=reader done), a new event recorded behind consume")


def test_what_nobody_can_write_is_not_offered() -> None:
    """No record on the queue of an agent (S25 is of streams), nor on another GPU's stream; a new event is of its stream's GPU."""
    found = repair(variant("designs/cases/destinations.py::case_25_torch_xpu_ops_4349", "before, copies on an engine"), most=12)
    assert found.repairs and not any("recorded behind d2h" in a.text for one in found.repairs for a in one.additions)

    def design() -> fp.Design:
        d = fp.Design("two GPUs")
        host, here, there = d.pinned("host"), d.device("here"), d.device("there", gpu=1)
        other, done = d.stream("other", gpu=1), d.event("done")

        @d.loop("worker")
        def step() -> None:
            done.synchronize()
            host.write()
            here.copy_(host, non_blocking=True)
            done.record()
            there.copy_(host, non_blocking=True, stream=other)

        return d

    found = repair(program_of(design, {}), most=12)
    assert not any("done.record() also" in a.text and "reader" not in a.text for one in found.repairs for a in one.additions)
    (new,) = [one for one in found.repairs if one.additions[0].family == offer.HOST_NEW]
    assert [o.gpu for o in new.program.objects if isinstance(o, p.Event) and o.name == "reader done"] == [1]


def test_offers_that_are_not_decided_are_told() -> None:
    """Where nothing is found and an offer stayed open, the answer is open."""

    def design() -> fp.Design:
        d = fp.Design("rows")
        rows, host, device = d.pool("row", size=2, of="row"), d.pinned("host", depth=2), d.device("device")
        items = d.queue("items", capacity=1, item=(fp.HANDLE,))

        @d.loop("producer")
        def produce() -> None:
            row = rows.take()
            host[row].write()
            items.put(row)

        @d.loop("consumer")
        def consume() -> None:
            row = items.get()
            device.copy_(host[row], non_blocking=True)
            rows.give(row)

        return d

    found = repair(program_of(design, {}))
    assert found.hazards and (found.repairs or found.open)


NOTHING = """
import fencepost as fp


@fp.variant("before: everybody writes", fp.REFUTED, hazard="WAW table", fix="after: a lock")
@fp.variant("after: a lock", fp.PROVED, locked=True)
def table(locked: bool = False) -> fp.Design:
    d = fp.Design("table")
    rows, lock, out = d.pageable("table"), d.lock("table lock"), d.device("out")
    side = d.stream("side")

    @d.script("loader")
    def load() -> None:
        if locked:
            lock.acquire()
        rows.write()
        if locked:
            lock.release()

    @d.loop("server")
    def serve() -> None:
        if locked:
            lock.acquire()
        rows.write()
        rows.read()
        if locked:
            lock.release()

    return d
"""
"""No addition of a wait orders two host threads of which one runs once."""


def test_why_nothing_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was tried and what stays, and what the declared fix changes: nobody takes silence for an answer."""
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "table.py"
    file.write_text(NOTHING)
    assert run(["repair", f"{file}::table", "--jobs", "1"]) == 1
    text = capsys.readouterr().out
    flat = " ".join(text.split())
    assert "nothing that the platform offers as an addition fits these two accesses" in flat
    assert "the design declares as its fix 'after: a lock'" in flat and "came: table lock.acquire()" in flat
    assert all(len(line) <= 80 for line in text.splitlines())
    assert run(["repair", f"{file}::table", "--jobs", "1", "--format", "json"]) == 1
    (design,) = json.loads(capsys.readouterr().out)["designs"]
    assert design["declared_fix"]["label"] == "after: a lock" and design["declared_fix"]["parameters"] == {"locked": True}


def test_what_is_not_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """Kinds that were tried are named with what they leave; a wait for ever mends nothing."""
    from fencepost.check import Case
    from fencepost.report.repair import write_repairs

    def design() -> fp.Design:
        d = fp.Design("both ways")
        host, out, go = d.pageable("host"), d.device("out"), d.flag("go")

        @d.loop("one")
        def one() -> None:
            host.write()

        @d.script("other")
        def other() -> None:
            out.copy_(host, non_blocking=True)
            go.wait()

        return d

    found = repair(program_of(design, {}))
    assert found.hazards and not found.repairs
    write_repairs(Case("here", "both ways", {}), found, sys.stdout)
    text = " ".join(capsys.readouterr().out.split())
    assert "no set of additions was found" in text
    for family, why in found.short:
        assert family in text and why in text


def test_a_set_has_nothing_that_it_does_not_need() -> None:
    """An addition of one kind beside another that is enough by itself is no set."""
    found = repair(variant("designs/sglang.py::shared_rows", "barrier on the reads-done event"), most=12)
    texts = [frozenset(a.text for a in one.additions) for one in found.repairs]
    assert frozenset({"reads done.record() also behind model"}) in texts
    assert not any(a < b for a in texts for b in texts)
    assert not any(a.family == offer.BOTH for one in found.repairs for a in one.additions)


def test_random_sets_hold_on_the_machine() -> None:
    """Sets of random designs, some with collectives: no run of the machine contradicts one, and none needs less."""
    count: collections.Counter[str] = collections.Counter()
    makers = {"threads": random_programs.generate, "ranks": random_rendezvous.generate}
    for family, seed in (("threads", 3_005), ("threads", 3_013), ("ranks", 3_001), ("ranks", 3_004)):  # 3,004: one waits for the event of another
        found = repair(makers[family](random.Random(seed)), seconds=15.0, most=12)
        sets = [frozenset((a.family, a.text, a.place) for a in one.additions) for one in found.repairs]
        assert not any(a < b for a in sets for b in sets)
        for one in found.repairs:
            answer = ask(one.program, Question(engine="simulate", examples=5, seed=seed, explain=False))
            assert answer.verdict != REFUTED, f"seed {seed}: {[a.text for a in one.additions]}"
            count[family] += 1
    assert min(count["threads"], count["ranks"]) >= 5, count


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One screen; JSON; exit codes."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)
    assert run(["repair", "designs/vllm_v1.py::async_scheduling", "-k", "24527", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "refuted, WAR block_table" in " ".join(text.split()) and "vllm_v1.py:292" in text and "proved: certificate" in text
    assert "then the wait at vllm_v1.py:294 may go" in text
    assert len(text.splitlines()) <= 40 and all(len(line) <= 100 for line in text.splitlines())
    assert run(["repair", "designs/ring.py::ring", "--set", "depth=1", "--set", "outstanding=2", "--format", "json"]) == 0
    (design,) = json.loads(capsys.readouterr().out)["designs"]
    assert design["hazards"] == ["WAR slot"] and design["repairs"][0]["additions"][0]["family"] == offer.SLOT
    assert run(["repair", "designs/ring.py::ring", "--set", "depth=3"]) == 0
    assert "nothing to repair" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["repair", "nowhere.py"], "no such file"),
        (["repair", "designs/ring.py::ring", "--environment", "moon"], "no environment named 'moon'"),
        (["repair", "designs/ring.py", "--format", "markdown"], "no format 'markdown' for repair"),
        (["repair", "designs/ring.py::ring", "--set", "depht=1"], "has no parameter 'depht'"),
    ],
)
def test_bad_input(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit 2."""
    monkeypatch.chdir(ROOT)
    assert run(arguments) == 2
    err = capsys.readouterr().err.strip()
    assert says in err and "\n" not in err
