"""Which synchronisations are needed, redundant, replaceable, wider than needed or useless: on the engines and on small designs."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import fencepost as fp
import pytest
from fencepost.check import build, cases
from fencepost.cli import run
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.answer import PROVED
from fencepost.model.events import execute, value_change
from fencepost.model.language.build import program_of
from fencepost.proofs.check import check
from fencepost.proofs.waits.catalogue import BOUND, HOLD, USE, synchronisations, without
from fencepost.proofs.waits.classify import CONDITIONAL, NEEDED, REDUNDANT, USELESS, Finding, Waits, _telling, waits
from fencepost.proofs.waits.sufficient import beyond_needed, joined, minimal, minimal_sufficient, narrowed
from fencepost.report.waits import Told

ROOT = Path(__file__).resolve().parent.parent


def program(target: str, **parameters: object) -> p.Program:
    """The program of a design under parameters."""
    (found,) = load([str(ROOT / target)])
    return build(found, parameters)


def variant(target: str, label: str) -> p.Program:
    """The program of a declared variant."""
    (found,) = load([str(ROOT / target)])
    (case,) = [case for case in cases([found]) if case.label == label]
    return build(found, case.parameters)


def found(answer: Waits, text: str, number: int = 0) -> Finding:
    """The finding whose synchronisation reads like `text`, the `number`-th of them."""
    told = Told(answer)
    return [f for f in answer.findings if text in told.text(answer.syncs[f.sync])][number]


def evidence(answer: Waits) -> None:
    """Every set is proved with a certificate, and every needed wait has a run that goes wrong on the concrete structure."""
    assert answer.proofs and all(one.verdict == PROVED and one.certificate.checked for one in answer.proofs)  # type: ignore[union-attr]
    for finding in answer.findings:
        if finding.kind == NEEDED:
            assert finding.run is not None and finding.program is not None
            structure = execute(finding.program, finding.run)
            hazard = finding.breaks[0]
            assert hazard.value_changing
            from fencepost.model.events import conflicts, undefined_reads

            changed = any(value_change(structure, *pair)[0] for pair in conflicts(structure))
            # A reference that is no longer held may be used after the free.
            assert changed or (hazard.kind == "UNDEFINED" and undefined_reads(structure))


# ---------------------------------------------------------------- the enumeration of minimal sets


def test_minimal_sets_against_all_subsets() -> None:
    """The tree finds what trying every subset finds."""
    import itertools
    import random

    for seed in range(60):
        rng = random.Random(seed)
        universe = list(range(rng.randrange(1, 7)))
        wanted = [frozenset(rng.sample(universe, rng.randrange(0, len(universe) + 1))) for _ in range(rng.randrange(1, 4))]

        def safe(gone: frozenset[int], wanted: list[frozenset[int]] = wanted) -> bool:
            return any(not gone & one for one in wanted)

        every = [
            frozenset(kept)
            for k in range(len(universe) + 1)
            for kept in itertools.combinations(universe, k)
            if safe(frozenset(universe) - frozenset(kept))
        ]
        family = minimal_sufficient(universe, safe)
        assert set(family.sets) == set(minimal(every)) and family.complete and not family.unsure
    both = joined([minimal_sufficient([0, 1], lambda gone: len(gone) < 2), minimal_sufficient([1, 2], lambda gone: 1 not in gone)])
    assert both.sets == (frozenset({1}),)


def test_minimal_sets_beside_what_others_need() -> None:
    """What stays in any case changes only which sets are minimal beside it; sets that are guessed change nothing."""
    import itertools
    import random

    for seed in range(80):
        rng = random.Random(seed)
        universe = list(range(rng.randrange(1, 7)))
        wanted = [frozenset(rng.sample(universe, rng.randrange(0, len(universe) + 1))) for _ in range(rng.randrange(1, 4))]
        given = frozenset(rng.sample(universe, rng.randrange(0, len(universe))))
        seeds = [frozenset(rng.sample(universe, rng.randrange(0, len(universe) + 1))) for _ in range(2)]

        def safe(gone: frozenset[int], wanted: list[frozenset[int]] = wanted) -> bool:
            return any(not gone & one for one in wanted)

        narrow = narrowed(universe, safe)
        needed = frozenset(k for k in universe if not safe(frozenset({k})))
        every = [
            frozenset(kept) | given
            for k in range(len(universe) + 1)
            for kept in itertools.combinations(universe, k)
            if safe(frozenset(universe) - frozenset(kept) - given)
        ]
        family = beyond_needed(universe, safe, narrow, needed, given, seeds)
        assert {one | given for one in family.sets} == set(minimal(every)) and family.complete and not family.unsure


def test_as_many_proofs_as_tell() -> None:
    """Each synchronisation that may go is gone in one of the sets that are proved."""
    sets = [frozenset({0, k}) for k in range(1, 9)]
    assert _telling(sets) == sets[:2] and _telling([frozenset({1})]) == [frozenset({1})] and _telling([]) == []


def test_an_open_answer_is_never_a_proof() -> None:
    """What was not decided stays in the sets, and they say so."""
    family = minimal_sufficient([0, 1], lambda gone: None if 1 in gone else True)
    assert family.sets == (frozenset({1}),) and family.unsure


# ---------------------------------------------------------------- the engines


def test_tensorrt_llm_waits() -> None:
    """#15849, V2: W2 alone is needed, and does the work of W1 and W3; with a second preparation W3 is needed, too."""
    answer = waits(variant("designs/tensorrt_llm.py::v2_manager", "W1 + W2 + W3 (#14674)"))
    evidence(answer)
    w1, w2, w3 = (f for f in answer.findings if ".synchronize()" in Told(answer).text(answer.syncs[f.sync]) and "prep" in Told(answer).text(answer.syncs[f.sync]))  # fmt: skip
    assert (w1.kind, w2.kind, w3.kind) == (REDUNDANT, NEEDED, REDUNDANT)
    assert w1.covered_by == (w2.sync,) and w3.covered_by == (w2.sync,)
    assert {h.name for h in w2.breaks} == {"WAR host_kv_cache_block_offsets"}
    second = waits(
        variant("designs/tensorrt_llm.py::v2_manager", "W1 + W2 + W3, another preparation enqueued between W2 and W3"),
        details=False,
    )
    kinds = [f.kind for f in second.findings if ".synchronize()" in Told(second).text(second.syncs[f.sync]) and "prep event" in Told(second).text(second.syncs[f.sync])]  # fmt: skip
    assert kinds == [REDUNDANT, NEEDED, NEEDED]


def test_tensorrt_llm_end_state() -> None:
    """Snapshots held to the prep event: the one wait before the preparation is needed, one in the loop is redundant."""
    held = {"snapshot": "raw kernel", "hold": "prep event", "wait_in_prepare": True, "prep_depth": 1}
    answer = waits(program("designs/tensorrt_llm.py::v2_manager", **held), details=False)
    evidence(answer)
    assert found(answer, "prep event.").kind == NEEDED
    # Nothing allocates pinned memory between the drop and that wait, so that the wait makes the holds redundant.
    assert {f.kind for f in answer.findings if answer.syncs[f.sync].kind == HOLD} == {REDUNDANT}
    with_loop = waits(program("designs/tensorrt_llm.py::v2_manager", **held, w2=True, w3=True), details=False)
    kinds = [f.kind for f in with_loop.findings if "prep event." in Told(with_loop).text(with_loop.syncs[f.sync])]
    assert len(kinds) == 3 and NEEDED not in kinds[1:]
    v1 = waits(program("designs/tensorrt_llm.py::v1_manager", w1=True, snapshot=True, prep_depth=1))
    evidence(v1)
    assert [h.name for h in found(v1, "prep event.").breaks] == ["WAR prep buffers"]
    table_only = waits(program("designs/tensorrt_llm.py::v1_manager", w1=True, snapshot=True, prep_depth=0))
    assert found(table_only, "prep event.").kind == REDUNDANT


def test_vllm_v1_waits() -> None:
    """The last stage's guard may go while the wait for the ids stays; #24527 covers too little, and the report says what."""
    pipeline = waits(variant("designs/vllm_v1.py::pipeline", "vllm#47644: the guard exists whenever steps overlap"))
    evidence(pipeline)
    first, last = found(pipeline, "prepare_inputs_event pp0"), found(pipeline, "prepare_inputs_event pp1")
    ids = found(pipeline, "transfer_event")
    assert first.kind == NEEDED and [h.name for h in first.breaks] == ["WAR input_ids pp0"]
    assert last.kind == CONDITIONAL and last.alternatives == ((ids.sync,),)
    assert ids.kind == CONDITIONAL and ids.alternatives == ((last.sync,),)
    assert [h.name for h in last.breaks] == ["WAR input_ids pp1"]
    small = waits(variant("designs/vllm_v1.py::async_scheduling", "vllm#24527: the guard covers _prepare_inputs only"))
    guard = found(small, "prepare_inputs_event")
    assert [(m.object, m.why) for m in guard.missed] == [("block_table", "before")]
    assert {h.name for h in small.bad} == {"WAR block_table"} and not small.proofs
    eagle = waits(
        variant("designs/vllm_v1.py::async_scheduling", "EAGLE in 0.33.0: backup_next_token_ids is written outside the guard")
    )
    assert [(m.object, m.why) for m in found(eagle, "prepare_inputs_event").missed] == [("backup_next_token_ids", "behind")]


def test_vllm_29288_which_guards_may_go() -> None:
    """With an event of its own around the drafter's buffer both guards are needed: neither covers the other's buffer."""
    answer = waits(
        variant("designs/vllm_v1.py::async_scheduling", "EAGLE with an event of its own around backup_next_token_ids"),
        details=False,
    )
    evidence(answer)
    guards = [f for f in answer.findings if "event.synchronize()" in Told(answer).text(answer.syncs[f.sync])]
    needed = {h.name for f in guards if f.kind == NEEDED for h in f.breaks}
    spare = [f for f in guards if f.kind != NEEDED]
    # The drafter's wait lies behind everything of the step before, so it can stand in for nothing that comes earlier.
    assert "WAR block_table" in needed and "WAR query_start_loc" in needed
    for finding in spare:
        assert finding.kind in (CONDITIONAL, REDUNDANT)


def test_sglang_barrier() -> None:
    """After the launch the barrier is needed; on all of forward it is wider than needed: the reads-done event is enough."""
    answer = waits(variant("designs/sglang.py::shared_rows", "barrier after the launch (#31687)"))
    evidence(answer)
    assert found(answer, "schedule.wait_event(reads done)").kind == NEEDED
    wide = waits(program("designs/sglang.py::shared_rows", barrier="after launch", covers="all of forward"))
    barrier = found(wide, "schedule.wait_stream(forward)")
    finer = [one for one in barrier.weaker if one.how == "finer event"]
    assert barrier.kind == NEEDED and len(finer) == 1
    assert check(finer[0].program, explain=False).verdict == PROVED
    late = waits(variant("designs/sglang.py::shared_rows", "barrier on all of forward"))
    assert not [one for one in found(late, "schedule.wait_stream(forward)").weaker if one.how == "finer event"]


def test_atom_holds_and_record_stream() -> None:
    """Holding the source beside the event and record_stream replace each other; without both the block races."""
    both = program("designs/atom.py::deferred_output", spec=False, held=("ids", "logprobs"), recorded=("ids", "logprobs"))
    answer = waits(both, details=False)
    evidence(answer)
    hold = found(answer, "logprobs held by queue")
    recorded = found(answer, "logprobs.record_stream")
    assert hold.kind == recorded.kind == CONDITIONAL
    assert hold.alternatives == ((recorded.sync,),) and recorded.alternatives == ((hold.sync,),)
    assert [h.name for h in hold.breaks] == ["WAR logprobs"]
    # Without spec decode the ids also live in a cell until just after the wait: three that replace each other.
    ids = [found(answer, text) for text in ("ids held by queue", "ids held by cell", "ids.record_stream")]
    assert [f.kind for f in ids] == [CONDITIONAL] * 3
    assert set(ids[2].alternatives) == {(ids[0].sync,), (ids[1].sync,)}


def test_bounded_queue() -> None:
    """The room that a put waits for is what protects the slot of a ring that is handed over."""
    answer = waits(variant("designs/ring.py::hand_over", "a ring of 3 behind a queue of capacity 1"))
    evidence(answer)
    bound = [f for f in answer.findings if answer.syncs[f.sync].kind == BOUND]
    assert [f.kind for f in bound] == [NEEDED] and bound[0].breaks[0].name == "WAR slot"
    assert found(answer, "default.synchronize()").kind == NEEDED


# ---------------------------------------------------------------- small designs


def test_useless_ones() -> None:
    """Waits on an event never recorded, record_stream on the owner, an event nobody waits for, a stream for itself."""

    def design() -> fp.Design:
        d = fp.Design("useless")
        host, device = d.pinned("host"), d.device("device")
        never, unused, own = d.event("never recorded"), d.event("never awaited"), d.event("own")
        side = d.stream("side")
        idle = d.stream("idle")

        @d.loop("worker")
        def step() -> None:
            never.synchronize()
            host.write()
            device.copy_(host, non_blocking=True)
            own.record()
            d.current_stream().wait_event(own)
            d.current_stream().wait_stream(idle)
            tensor = d.empty("tensor")
            d.launch("fill", reads=[device], writes=[tensor])
            tensor.record_stream(d.current_stream())
            unused.record()
            side.wait_stream(d.current_stream())
            d.current_stream().synchronize()

        return d

    answer = waits(program_of(design, {}))
    evidence(answer)
    why = {Told(answer).text(answer.syncs[f.sync]): f.why for f in answer.findings if f.kind == USELESS}
    assert "S18" in why["never recorded.synchronize()"]
    assert "S2" in why["default.wait_event(own)"]
    assert "idle" in why["default.wait_stream(idle)"]
    assert "S64" in why["tensor.record_stream(default)"]
    assert "nothing comes after it on side" in why["side.wait_stream(default)"]
    assert found(answer, "default.synchronize()").kind == NEEDED
    names = {Told(answer).operation(nodes[0]).split(" (")[0] for nodes in answer.unwaited}
    assert names == {"never awaited.record(default)"}


def test_later_place_and_earlier_record() -> None:
    """A wait at the top of a turn whose write comes late; a record behind work that nobody has to wait for."""

    def design() -> fp.Design:
        d = fp.Design("late write")
        host, device, other = d.pinned("host"), d.device("device"), d.device("other")
        event = d.event("done")

        @d.loop("worker")
        def step() -> None:
            event.synchronize()
            d.launch("independent", writes=[other])
            host.write()
            device.copy_(host, non_blocking=True)
            d.launch("forward", reads=[device], writes=[other])
            event.record()

        return d

    answer = waits(program_of(design, {}))
    evidence(answer)
    (finding,) = answer.findings
    assert finding.kind == NEEDED and {one.how for one in finding.weaker} == {"later", "earlier record"}
    for one in finding.weaker:
        assert check(one.program, explain=False).verdict == PROVED
        assert "write" in Told(answer).operation(one.at) or "copy_" in Told(answer).operation(one.at)


def test_blocking_copies_and_locks() -> None:
    """A blocking copy that nobody relies on; one that the host reads behind; a lock that orders two threads."""

    def design() -> fp.Design:
        d = fp.Design("blocking")
        host, device = d.pinned("host"), d.device("device")
        shared = d.pinned("shared")
        lock = d.lock("lock")

        @d.loop("worker")
        def step() -> None:
            d.launch("forward", writes=[device])
            host.copy_(device)
            host.read()
            lock.acquire()
            shared.write()
            lock.release()

        @d.loop("other")
        def other() -> None:
            lock.acquire()
            shared.read()
            lock.release()

        return d

    answer = waits(program_of(design, {}))
    evidence(answer)
    assert found(answer, "host.copy_(device)").kind == NEEDED
    assert {f.kind for f in answer.findings if "lock.acquire" in Told(answer).text(answer.syncs[f.sync])} == {NEEDED}


def test_the_edge_goes_and_everything_else_stays() -> None:
    """Taking an edge away changes no control flow: the runs of a program are runs of the edited one, node by node."""
    whole = variant("designs/vllm_v2.py::uva_pool", "2 in flight, 2 slots: async scheduling, one stage")
    syncs = synchronisations(whole)
    edited = without(whole, syncs)
    for before, after in zip(whole.threads, edited.threads, strict=True):
        for old, new in zip(before.nodes, after.nodes, strict=False):
            if isinstance(old, p.Ask):
                assert old == new
            else:
                assert isinstance(new, p.Do) and (old.next == new.next or isinstance(new.operation, p.View))
    assert check(whole, explain=False).verdict == PROVED
    assert check(edited, explain=False).verdict == "refuted"


def test_two_hundred_waits() -> None:
    """Many waits are one table that fits a screen, and none of them is decided twice."""

    def design() -> fp.Design:
        d = fp.Design("many")
        host, device = d.pinned("host"), d.device("device")
        event = d.event("event")

        @d.loop("worker")
        def step() -> None:
            for _ in range(100):
                event.synchronize()
                d.current_stream().wait_event(event)
            host.write()
            device.copy_(host, non_blocking=True)
            event.record()

        return d

    answer = waits(program_of(design, {}), details=False)
    assert len(answer.findings) == 2  # one line of the text is one synchronisation, however often the body passes it

    lines = "\n".join(f"        event{k}.synchronize()" for k in range(200))
    events = "\n".join(f"    event{k} = d.event('event {k}')" for k in range(200))
    records = "\n".join(f"        event{k}.record()" for k in range(200))
    text = textwrap.dedent("""
        import fencepost as fp


        def many() -> fp.Design:
            d = fp.Design("many")
            host, device = d.pinned("host"), d.device("device")
        {events}

            @d.loop("worker")
            def step():
        {lines}
                host.write()
                device.copy_(host, non_blocking=True)
        {records}

            return d
    """).replace("{events}", events).replace("{lines}", lines).replace("{records}", records)  # fmt: skip
    namespace: dict[str, object] = {}
    path = ROOT / "build" / "many_waits_design.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert namespace == {}
    try:
        (target,) = load([str(path)])
        many = waits(build(target, {}), details=False, seconds=600)
    finally:
        path.unlink()
    assert len(many.findings) == 200
    assert not many.complete and {f.kind for f in many.findings} == {CONDITIONAL}  # each of them alone is enough
    assert all(len(f.alternatives[0]) == 1 for f in many.findings)


# ---------------------------------------------------------------- the commands


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that a reviewer reads, and the same as JSON."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(ROOT)
    assert run(["waits", "designs/vllm_v1.py::pooling", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "needed" in text and "vllm_v1.py:175" in text and "without it: WAR query_start_loc" in text
    assert "alone: proved, certificate" in text and all(len(line) <= 100 for line in text.splitlines())
    assert run(["waits", "designs/vllm_v1.py::pooling", "--jobs", "1", "--format", "json"]) == 0
    (design,) = json.loads(capsys.readouterr().out)["designs"]
    assert [s["class"] for s in design["synchronisations"]].count("needed") == 2
    assert design["sufficient"][0]["verdict"] == "proved" and design["complete"]
    assert [bool(s["run"]) for s in design["synchronisations"]] == [s["class"] == "needed" for s in design["synchronisations"]]
    assert run(["waits", "designs/vllm_v1.py::pooling", "--jobs", "1", "-v"]) == 0
    text = capsys.readouterr().out
    assert "[3] a shortest run without it, WAR query_start_loc:" in text and "(taken away)" in text
    assert "in steps with chunk: unfinished chunk" in " ".join(text.split())


def test_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait with its bad run; a record with what it covers and misses; an access with what orders it."""
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.chdir(ROOT)
    line = {name: number for number, text in enumerate((ROOT / "designs/vllm_v1.py").read_text().splitlines(), 1) for name in ("prepare_inputs_event.record()", "query_start_loc.write()") if text.strip() == name}  # fmt: skip
    at = line["prepare_inputs_event.record()"]
    assert run(["why", f"designs/vllm_v1.py:{at}", "-k", "EAGLE in", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "covers   block_table_gpu.copy_(block_table, non_blocking)" in text
    assert "misses   backup_next_token_ids_gpu.copy_(backup_next_token_ids, non_blocking)" in text
    assert "waited   prepare_inputs_event.synchronize()" in text and "needed" in text
    assert run(["why", f"designs/vllm_v1.py:{line['query_start_loc.write()']}", "-k", "24527", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "ordered  query_start_loc: behind query_start_loc_gpu.copy_" in text
    guard = next(n for n, t in enumerate((ROOT / "designs/sglang.py").read_text().splitlines(), 1) if "schedule.wait_event(reads_done)" in t)  # fmt: skip
    assert run(["why", f"designs/sglang.py:{guard}", "--jobs", "1"]) == 0
    text = capsys.readouterr().out
    assert "rests" in text and "a shortest run that goes wrong without it" in text and "[2]" in text
    assert run(["why", "designs/vllm_v1.py:112", "--jobs", "1"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "it may go while transfer_event.synchronize() (vllm_v1.py:127) stays" in text


def test_why_a_record_covers_what_its_stream_waited_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of another stream, through the wait that brings it, and through an event recorded in the same turn."""
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.chdir(ROOT)
    text = (ROOT / "designs/vllm_v2.py").read_text().splitlines()
    at = next(n for n, one in enumerate(text, 1) if one.strip() == "copy_event.record(output_copy_stream)" and n > 100)
    assert run(["why", f"designs/vllm_v2.py:{at}", "-k", "2 in flight, 2 slots: async scheduling, one stage", "--jobs", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "covers launch sample (reads temperature[temperature slot]) (vllm_v2.py:278), through output_copy_stream.wait_stream(main pp0)" in said


def test_many_alike_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of which any one is enough, and rows that the same is said about, stand together; -v tells each for itself."""
    monkeypatch.setenv("COLUMNS", "80")
    text = textwrap.dedent("""
        import fencepost as fp

        def many() -> fp.Design:
            d = fp.Design("many")
            host, device, done = d.pinned("host"), d.device("device"), d.event("done")
            items, others = d.queue("items", capacity=1), d.queue("others", capacity=1)

            @d.loop("worker")
            def step() -> None:
                WAITS
                host.write()
                device.copy_(host, non_blocking=True)
                done.record()
                items.put()
                others.put()

            @d.loop("other")
            def other() -> None:
                items.get()
                others.get()

            return d
    """)
    (tmp_path / "many.py").write_text(text.replace("WAITS", ("\n" + " " * 8).join(["done.synchronize()"] * 5)))
    assert run(["waits", str(tmp_path / "many.py"), "--jobs", "1"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("any one of these 5 is enough, the others may go") == 1 and text.count("without all of them: WAR host") == 1
    assert text.count("each: cost: nothing by itself") == 1 and text.count("waits for room") == 3
    assert run(["waits", str(tmp_path / "many.py"), "--jobs", "1", "-v"]) == 0
    assert capsys.readouterr().out.count("it may go while [") == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["waits", "nowhere.py"], "no such file"),
        (["waits", "designs/ring.py", "-k", "no such label"], "selects none"),
        (["waits", "designs/ring.py", "--format", "xml"], "no format 'xml' for waits"),
        (["why", "designs/ring.py"], "write the place as FILE:LINE"),
        (["why", "designs/ring.py:1"], "no operation of a design stands there; the nearest lines are"),
        (["why", "nowhere.py:3"], "no such file"),
        (["waits", "designs/ring.py::ring", "--set", "depth=two"], "is int, not 'two'"),
    ],
)
def test_bad_input(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit 2."""
    monkeypatch.chdir(ROOT)
    assert run(arguments) == 2
    err = capsys.readouterr().err.strip()
    assert says in err and "\n" not in err and "Traceback" not in err


def test_kinds_are_listed() -> None:
    """Every kind of synchronisation of the engines is in the catalogue."""
    kinds = {s.kind for s in synchronisations(variant("designs/sglang.py::shared_rows", "barrier after the launch (#31687)"))}
    assert kinds == {"host wait", "stream wait", HOLD, USE}
    moved = synchronisations(variant("designs/vllm_v2.py::pruned_video", "as released: .item() between the two takes"))
    assert "blocking copy" in {s.kind for s in moved}
