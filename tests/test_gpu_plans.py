"""Replays without a GPU: plans, schedules, layout, attacks and scripts, on the emulated GPU."""

from __future__ import annotations

import ast

import msgspec
import pytest
from fencepost.gpu_validate import plan as c
from fencepost.gpu_validate.arms import arms, planned, prepare
from fencepost.gpu_validate.compile import compile_run
from fencepost.gpu_validate.drive import attacks
from fencepost.gpu_validate.emulated import EmulatedRun
from fencepost.gpu_validate.files import Subject, design_hash, dump, parse
from fencepost.gpu_validate.layout import UNITS, place
from fencepost.gpu_validate.plan import Unsupported, expand, pack, without_gates
from fencepost.gpu_validate.schedule import Unforceable, follow, overtake
from fencepost.gpu_validate.script import listing, script
from fencepost.gpu_validate.table import attack, plan_attacks, replay
from fencepost.gpu_validate.trial import Mismatch, explain, wilson
from fencepost.model import program as p
from fencepost.model.answer import AccessInfo, Hazard, Run, Step
from fencepost.model.events import InvalidRun
from fencepost.model.events.parts import Row
from fencepost.model.platform import PLATFORMS
from fencepost.proofs.check import check


def refill(guard: bool = False, depth: int = 1) -> p.Program:
    """A pinned buffer (0) refilled every turn while copies (stream 2, to device memory 1) may be under way."""
    host = p.Slot(0, p.Turn(0)) if depth > 1 else p.Obj(0)
    event = p.Slot(3, p.Turn(0)) if depth > 1 else p.Obj(3)
    operations: list[p.Operation] = []
    if guard:
        operations.append(p.EventSync(event))
    operations += [
        p.Host("write", (p.Access(host, "w"),)),
        p.Copy(p.Obj(1), host, p.Obj(2), non_blocking=True),
    ]
    if guard:
        operations.append(p.Record(event, p.Obj(2)))
    operations.append(p.Launch("forward", p.Obj(2), (p.Access(p.Obj(1), "r"),)))
    nodes = tuple(p.Do(o, k + 1 if k + 1 < len(operations) else p.END) for k, o in enumerate(operations))
    ring = depth if depth > 1 else None
    objects = (p.Memory("lens", "pinned", ring), p.Memory("lens_gpu", "device"), p.Stream("main"), p.Event("prep", ring))
    return p.Program("refill", objects, (p.Thread("worker", "loop", nodes, 0),))


def recycled(record: bool = False) -> p.Program:
    """A device block of stream 0 read on stream 1, dropped, and handed out again."""
    operations: list[p.Operation] = [
        p.Alloc(0, "device", p.Obj(0)),
        p.Launch("fill", p.Obj(0), (p.Access(p.Local(0), "w"),)),
        p.WaitStream(p.Obj(1), p.Obj(0)),
        p.Copy(p.Obj(2), p.Local(0), p.Obj(1), non_blocking=True),
    ]
    if record:
        operations.append(p.RecordStream(p.Local(0), p.Obj(1)))
    operations.append(p.Drop(0))
    nodes = tuple(p.Do(o, k + 1 if k + 1 < len(operations) else p.END) for k, o in enumerate(operations))
    objects = (p.Stream("compute", default=True), p.Stream("copies"), p.Memory("landing", "pinned"))
    local = p.LocalInfo("ids", p.MEMORY)
    return p.Program("recycled", objects, (p.Thread("runner", "loop", nodes, 0, (local,)),))


def counterexample(program: p.Program) -> tuple[Run, Hazard]:
    answer = check(program)
    assert answer.verdict == "refuted" and answer.run is not None
    return answer.run, answer.hazards[0]


def subject(program: p.Program, fixed: p.Program | None = None) -> Subject:
    run, hazard = counterexample(program)
    return Subject("d", "v", program, "refuted", None, run, hazard, "fix" if fixed else None, fixed)


# ------------------------------------------------------------ arms


@pytest.mark.parametrize(
    ("program", "fixed"),
    [(refill(), refill(guard=True)), (refill(depth=2), refill(guard=True, depth=2)), (recycled(), recycled(record=True))],
)
def test_only_the_gated_arm_is_wrong(program: p.Program, fixed: p.Program) -> None:
    run, hazard = counterexample(program)
    found = arms(prepare(program, run, hazard, fixed), EmulatedRun, 3)
    assert [(arm.name, arm.wrong, arm.trials) for arm in found] == [
        ("ungated", 0, 3), ("gated", 3, 3), ("gated, fixed", 0, 3),
    ]  # fmt: skip


def test_the_host_waits_in_the_fixed_design_where_the_model_says() -> None:
    program = refill()
    run, hazard = counterexample(program)
    ready = prepare(program, run, hazard, refill(guard=True))
    fixed = arms(ready, EmulatedRun, 2)[2]
    assert fixed.held == 2 and fixed.held_at == ready.holds == "event.synchronize in step 1 of worker"


def test_a_fix_by_depth_waits_for_nothing() -> None:
    program = refill()
    run, hazard = counterexample(program)
    fixed = arms(prepare(program, run, hazard, refill(depth=8)), EmulatedRun, 2)[2]
    assert (fixed.wrong, fixed.held) == (0, 0)


def test_the_first_wrong_value_names_both_writers() -> None:
    program = refill()
    run, hazard = counterexample(program)
    plan = prepare(program, run, hazard, None).gated
    trial = EmulatedRun(plan).trial()
    text = explain(plan, trial.wrong[0])
    assert text == (
        "copy_ in step 0 of worker: lens_gpu held 'write' in step 1 of worker; "
        "it should have held 'write' in step 0 of worker"
    )


def test_a_serial_run_of_the_gated_plan_is_right() -> None:
    for program in (refill(), recycled()):
        run, hazard = counterexample(program)
        plan = prepare(program, run, hazard, None).gated
        assert not EmulatedRun(plan).trial(serial=True).wrong
        assert not EmulatedRun(without_gates(plan)).trial().wrong


def test_a_host_access_that_came_first_is_driven_the_other_way_round() -> None:
    """Thread 0 writes the buffer, thread 1 enqueues a copy of it; nothing orders them."""
    writer = p.Thread("writer", "script", (p.Do(p.Host("write", (p.Access(p.Obj(0), "w"),)), p.END),), 0)
    copier = p.Thread("copier", "script", (p.Do(p.Copy(p.Obj(1), p.Obj(0), p.Obj(2), True), p.END),), 0)
    program = p.Program(
        "two", (p.Memory("host", "pinned"), p.Memory("dev", "device"), p.Stream("s")), (writer, copier)
    )
    run = Run((Step(0, 0), Step(1, 0)))
    first = AccessInfo(0, "writer", "writer", False, "w", "write", 0)
    second = AccessInfo(1, "copier", "s", True, "r", "copy_", 0)
    plan, _ = planned(program, overtake(program, run, Hazard("RAW", "host", first, second)), PLATFORMS["cuda"])
    assert EmulatedRun(plan).trial().wrong
    assert not EmulatedRun(without_gates(plan)).trial().wrong


# ------------------------------------------------------------ what cannot be forced


def test_a_gate_that_would_deadlock_is_found_before_anything_runs() -> None:
    """In the guarded design the write waits for the copy: no order puts it first."""
    program = refill(guard=True)
    run = Run(tuple(Step(0, k) for k in (0, 1, 2, 3, 4, 0, 1)))
    first = AccessInfo(2, "worker", "main", True, "r", "copy_", 0)
    second = AccessInfo(6, "worker", "worker", False, "w", "write", 1)
    with pytest.raises(Unforceable, match="the gate would deadlock"):
        overtake(program, run, Hazard("WAR", "lens", first, second))


def test_a_run_of_another_version_is_refused_by_its_first_impossible_step() -> None:
    run, hazard = counterexample(refill())
    with pytest.raises(InvalidRun, match=r"step 3 \(worker"):
        prepare(refill(guard=True), run, hazard, None)
    longer = Run((*run.steps, Step(0, 77)))
    with pytest.raises(InvalidRun, match="the thread is at node"):
        prepare(refill(), longer, hazard, None)


def test_a_hazard_that_is_not_of_the_run_is_refused() -> None:
    run, hazard = counterexample(refill())
    assert hazard.first is not None
    host = msgspec.structs.replace(hazard.first, index=0)
    with pytest.raises(Unforceable):
        prepare(refill(), run, msgspec.structs.replace(hazard, first=host), None)
    with pytest.raises(Unsupported, match=r"step \d+ accesses no undefined bytes"):
        prepare(refill(), run, msgspec.structs.replace(hazard, first=None, kind="UNDEFINED"), None)


def test_a_kernel_on_pageable_memory_is_refused_by_name() -> None:
    program = p.Program(
        "x", (p.Memory("m", "pageable"), p.Stream("s")),
        (p.Thread("t", "script", (p.Do(p.Launch("k", p.Obj(1), (p.Access(p.Obj(0), "r"),)), p.END),), 0),),
    )  # fmt: skip
    with pytest.raises(Unsupported, match="pageable memory in place"):
        compile_run(program, Run((Step(0, 0),)))


def test_one_bad_subject_is_a_row_that_says_why() -> None:
    good = subject(refill())
    bad = msgspec.structs.replace(good, program=refill(guard=True))
    row = replay(bad, EmulatedRun, 1)
    assert row.error is not None and row.error.startswith("step ") and not row.arms
    assert replay(good, EmulatedRun, 1).error is None


# ------------------------------------------------------------ queries


def query_design() -> p.Program:
    """Copies into slot 0 while a query says that the last one is pending, else waits."""
    nodes: tuple[p.Node, ...] = (
        p.Ask(p.EventQuery(p.Obj(3)), (("yes", 1), ("no", 3))),
        p.Do(p.Host("write", (p.Access(p.Obj(0), "w"),)), 2),
        p.Do(p.Copy(p.Obj(1), p.Obj(0), p.Obj(2), True), 4),
        p.Do(p.Host("write anyway", (p.Access(p.Obj(0), "w"),)), 2),
        p.Do(p.Record(p.Obj(3), p.Obj(2)), p.END),
    )
    objects = (p.Memory("host", "pinned"), p.Memory("dev", "device"), p.Stream("s"), p.Event("e"))
    return p.Program("query", objects, (p.Thread("t", "loop", nodes, 0),))


def test_a_query_that_must_say_no_is_held_back() -> None:
    program = query_design()
    run, hazard = counterexample(program)
    plan = prepare(program, run, hazard, None).gated
    assert [line.call.done for line in plan.lines if isinstance(line.call, c.Query)] == [True, False]
    trial = EmulatedRun(plan).trial()
    assert trial.wrong and not trial.diverged
    assert EmulatedRun(without_gates(plan)).trial().diverged, "with nothing held back the query says yes"


# ------------------------------------------------------------ values and layout


def test_disjoint_parts_get_disjoint_units_and_the_whole_covers_them() -> None:
    a, b = (p.Named("a"),), (p.Named("b"),)
    spans = place([(), a, b, (Row(1),)])
    assert spans[()] == ((0, UNITS),)

    def units(path: tuple[object, ...]) -> set[int]:
        return {k for start, stop in spans[path] for k in range(start, stop)}  # type: ignore[index]

    assert not units(a) & units(b)
    assert units((Row(1),)) & units(a), "cut in different ways: they may overlap in the model, so here they do"


def test_spans_and_nested_parts() -> None:
    spans = place([(p.Span(0, 4),), (p.Span(2, 6),), (p.Named("x"), Row(0)), (p.Named("x"), Row(1)), (p.Named("x"),)])

    def units(*path: object) -> set[int]:
        return {k for start, stop in spans[path] for k in range(start, stop)}  # type: ignore[index]

    assert units(p.Span(0, 4)) & units(p.Span(2, 6))
    assert not units(p.Named("x"), Row(0)) & units(p.Named("x"), Row(1))
    assert units(p.Named("x"), Row(0)) < units(p.Named("x"))


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="129 parts"):
        place([(p.Named(str(k)),) for k in range(UNITS)])


def test_values_are_packed_and_expanded() -> None:
    values = [5, 5, 1, 5]
    assert pack(values) == ((5, 2), (1, 1), (5, 1)) and list(expand(pack(values))) == values


@pytest.mark.parametrize("wide_source", [True, False])
def test_a_copy_between_parts_of_unequal_size_reads_and_writes_all_of_both(wide_source: bool) -> None:
    """A row of a table and a whole buffer: every unit of the source is read, every unit of the target written."""
    part = p.Obj(1, p.Named("a"))
    src, dst = (p.Obj(0), part) if wide_source else (part, p.Obj(0))
    other = p.Obj(1, p.Named("b"))
    operations = [p.Copy(dst, src, p.Obj(2), True), p.Launch("read", p.Obj(2), (p.Access(dst, "r"), p.Access(other, "r")))]
    nodes = tuple(p.Do(o, k + 1 if k == 0 else p.END) for k, o in enumerate(operations))
    objects = (p.Memory("whole", "pinned"), p.Memory("table", "device"), p.Stream("s"))
    program = p.Program("copy", objects, (p.Thread("t", "script", nodes, 0),))
    plan = compile_run(program, Run((Step(0, 0), Step(0, 1))))
    copy = next(line.call for line in plan.lines if isinstance(line.call, c.Copy))
    read = sorted(k for passes, _ in copy.passes for s in passes for k in range(s.src, s.src + s.count))
    written = sorted({k for passes, _ in copy.passes for s in passes for k in range(s.dst, s.dst + s.count)})
    all_of = lambda spans: [k for start, stop in spans for k in range(start, stop)]  # noqa: E731
    assert sorted(set(read)) == all_of(copy.src.spans) and written == all_of(copy.dst.spans)
    assert not EmulatedRun(plan).trial().wrong


def test_same_bytes_leave_the_content() -> None:
    again = p.Host("again", (p.Access(p.Obj(0), "w", same_bytes=True),))
    read = p.Host("read", (p.Access(p.Obj(0), "r"),))
    nodes = (p.Do(p.Host("write", (p.Access(p.Obj(0), "w"),)), 1), p.Do(again, 2), p.Do(read, p.END))
    program = p.Program("same", (p.Memory("m", "pinned"),), (p.Thread("t", "script", nodes, 0),))
    plan = compile_run(program, Run((Step(0, 0), Step(0, 1), Step(0, 2))))
    ((_, check),) = plan.check_lines().values()
    assert check.expected is not None and plan.meaning[check.expected[0][0]] == "'write' in step 0 of t"
    assert not EmulatedRun(plan).trial().wrong


# ------------------------------------------------------------ attacks


def test_attacks_on_proofs_are_repelled_where_the_model_says() -> None:
    for program in (refill(guard=True), refill(guard=True, depth=2), recycled(record=True)):
        row = attack(Subject("d", "v", program, "proved"), plan_attacks(Subject("d", "v", program, "proved")), EmulatedRun)
        assert row.pairs and row.wrong == 0 and not row.skipped
        assert all(pair.unlike == 0 and pair.gates >= 3 for pair in row.pairs), row


def test_the_guard_is_what_holds_the_host() -> None:
    (first, *_) = [a for a in attacks(refill(guard=True)) if not isinstance(a, str)]
    assert first.what == "lens: copy_ of worker, then 'write' of worker"
    assert first.holds is not None and first.holds.startswith("event.synchronize")


@pytest.mark.parametrize("program", [refill(), refill(depth=3), recycled(), query_design()])
def test_an_attack_on_a_wrong_proof_shows_it(program: p.Program) -> None:
    """Were these proved, the attack would say that the proof is wrong."""
    wrong = Subject("d", "v", program, "proved")
    assert attack(wrong, plan_attacks(wrong), EmulatedRun).wrong > 0


# ------------------------------------------------------------ files, scripts, figures


def test_a_replay_file_carries_everything() -> None:
    one = subject(refill(), refill(guard=True))
    (read,) = parse(dump([one]), "x.json") or ()
    assert read == one and read.design_hash == design_hash(refill())
    assert parse(b'{"answers": []}', "x.json") is None
    assert parse(b"no json", "x.json") is None


def test_replay_files_of_another_version_and_damaged_ones_are_refused() -> None:
    with pytest.raises(ValueError, match="replay file of version 99"):
        parse(b'{"fencepost_replay": 99}', "x.json")
    with pytest.raises(ValueError, match="damaged replay file"):
        parse(b'{"fencepost_replay": 1, "subjects": [{}]}', "x.json")


def test_the_hash_ignores_where_the_text_stands() -> None:
    program = refill()
    moved = msgspec.structs.replace(program, places=((p.Place("x.py", 3),),))
    assert design_hash(program) == design_hash(moved) != design_hash(refill(guard=True))


@pytest.mark.parametrize("one", [subject(refill(), refill(guard=True)), subject(recycled(), recycled(record=True))])
def test_the_script_is_python_and_makes_every_call(one: Subject) -> None:
    text = script(one)
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {"as_it_is", "fixed", "main"} <= set(functions)
    assert one.run is not None and one.hazard is not None
    plan = prepare(one.program, one.run, one.hazard, None).gated
    body = ast.unparse(functions["as_it_is"])
    copies = sum(isinstance(line.call, c.Copy) for line in plan.lines)
    assert body.count(".copy_(") == copies
    assert body.count("shut(") == 1 and body.count("release(") == 1
    names = {node.id for node in ast.walk(functions["as_it_is"]) if isinstance(node, ast.Name)}
    made = {node.id for node in ast.walk(functions["as_it_is"]) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known = {"torch", "N", "gated", "helper"} | set(functions)
    assert names <= made | known, names - made - known


def test_the_listing_shows_gate_and_fix() -> None:
    lines = list(listing(subject(refill(), refill(guard=True))))
    assert any("shut(0" in line for line in lines) and any("e_prep.synchronize()" in line for line in lines)
    assert lines[-2] == "the model says that the host waits for the gate at event.synchronize in step 1 of worker"


def test_wilson_interval_against_the_textbook() -> None:
    low, high = wilson(10, 20)
    assert (round(low, 4), round(high, 4)) == (0.2993, 0.7007)  # Newcombe 1998: symmetric about one half
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)  # Newcombe 1998, table I


def test_explain_says_when_a_value_was_never_written() -> None:
    program = refill()
    run, hazard = counterexample(program)
    plan = prepare(program, run, hazard, None).gated
    assert "which nothing in this run wrote" in explain(plan, Mismatch(0, 99, 98))


def test_follow_finds_the_counterpart_behind_moved_synchronisation() -> None:
    program = refill()
    run, hazard = counterexample(program)
    schedule = overtake(program, run, hazard)
    other = follow(refill(guard=True), program, schedule)
    assert other.first is not None and other.second is not None and not other.notes
    assert other.holds is not None and other.first < other.holds < other.second
