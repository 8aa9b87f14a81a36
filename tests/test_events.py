"""The concrete event structure on small designs written out by hand. Every test says why its answer is right."""

from __future__ import annotations

import typing

import pytest
from fencepost.model import effects
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events import DesignError, InvalidRun, Player, Structure, conflicts, execute, hazard_of
from fencepost.model.events.state import EVENT_EFFECTS
from fencepost.model.platform import environment, platform

LOCALS = (
    p.LocalInfo("x", p.MEMORY), p.LocalInfo("y", p.MEMORY), p.LocalInfo("e", p.EVENT), p.LocalInfo("i", p.INDEX, depth=2),
)  # fmt: skip
X, Y, E, K = range(4)


def thread(name: str, *nodes: p.Operation | p.Node, kind: str = "script") -> p.Thread:
    """Operations in a row; an `Ask` whose branches go to the next node is written as its question's answers."""
    table: list[p.Node] = []
    for index, node in enumerate(nodes):
        following = index + 1 if index + 1 < len(nodes) else p.END
        if isinstance(node, p.Ask):
            table.append(p.Ask(node.question, tuple((answer, following) for answer, _ in node.branches)))
        else:
            assert not isinstance(node, p.Do)
            table.append(p.Do(node, following))
    return p.Thread(name, kind, tuple(table), 0, LOCALS)


def ask(question: p.Question, *answers: str) -> p.Ask:
    return p.Ask(question, tuple((a, 0) for a in (answers or ("yes", "no"))))


def design(objects: list[p.Object], *threads: p.Thread) -> p.Program:
    return p.Program("t", tuple(objects), threads)


def played(program: p.Program, order: str, answers: str = "", blocks: dict[int, int] | None = None,
           env: str = "bare", plat: str = "cuda") -> Structure:  # fmt: skip
    """Play threads in the order of the digits; `answers` are taken in turn: y, n, or any option's first letter."""
    player = Player(program, platform(plat), environment(env))
    steps, left = [], list(answers)
    for index, digit in enumerate(order):
        t = int(digit)
        node = program.threads[t].nodes[player.pc(t)]
        answer = None
        if isinstance(node, p.Ask):
            letter = left.pop(0)
            answer = next(a for a, _ in node.branches if a.startswith(letter))
        steps.append(Step(t, player.pc(t), answer, (blocks or {}).get(index)))
        player.step(steps[-1])
    return execute(program, Run(tuple(steps)), platform=platform(plat), environment=environment(env))


def reads(*operands: p.Operand) -> tuple[p.Access, ...]:
    return tuple(p.Access(o, "r") for o in operands)


def writes(*operands: p.Operand, same: bool = False) -> tuple[p.Access, ...]:
    return tuple(p.Access(o, "w", same_bytes=same) for o in operands)


def names(structure: Structure) -> list[str]:
    return [hazard_of(structure, i, j).name for i, j in conflicts(structure)]


HOST, DEV, S, T, EV = (p.Obj(i) for i in range(5))
BASE: list[p.Object] = [
    p.Memory("host", "pinned"), p.Memory("dev", "device"), p.Stream("s"), p.Stream("t"), p.Event("ev"),
]  # fmt: skip
FILL = p.Host("fill", writes(HOST))
LOOK = p.Host("look", reads(HOST))
UP = p.Copy(DEV, HOST, S, non_blocking=True)
RECORD, SYNC = p.Record(EV, S), p.EventSync(EV)


def test_every_effect_is_covered() -> None:
    """An operation without a handler here would silently be skipped by the judge."""
    assert frozenset(typing.get_args(effects.Effect)) == EVENT_EFFECTS


# ---------------------------------------------------------------- streams and events


def test_refill_of_a_pinned_buffer_races_with_the_copy() -> None:
    """S45: the copy reads its source when it executes, after the call has returned."""
    s = played(design(BASE, thread("w", FILL, UP, FILL)), "000")
    (pair,) = conflicts(s)
    hazard = hazard_of(s, *pair)
    assert (hazard.name, hazard.value_changing) == ("WAR host", True)
    assert hazard.first is not None
    assert (hazard.first.agent, hazard.first.operation, hazard.first.on_device) == ("s", "copy_", True)
    assert (hazard.second.agent, hazard.second.operation, hazard.second.mode) == ("w", "fill", "w")


@pytest.mark.parametrize("wait", [[RECORD, SYNC], [p.StreamSync(S)], [p.DeviceSync()], [p.Item(DEV, S)]])
def test_each_host_wait_protects(wait: list[p.Operation]) -> None:
    """S23, S32, S33: after any of them the stream's earlier work is done."""
    s = played(design(BASE, thread("w", FILL, UP, *wait, FILL)), "0" * (3 + len(wait)))
    assert names(s) == []


def test_record_before_the_copy_does_not_protect() -> None:
    """S19: a record captures what is in the stream at the call, nothing later."""
    assert names(played(design(BASE, thread("w", RECORD, UP, SYNC, FILL)), "0000")) == ["WAR host"]


def test_record_forgets_the_earlier_capture() -> None:
    """S19: a re-record on another stream overwrites the capture, so the wait covers the other stream only."""
    assert names(played(design(BASE, thread("w", UP, RECORD, p.Record(EV, T), SYNC, FILL)), "00000")) == ["WAR host"]


def test_never_recorded_event_orders_nothing() -> None:
    """S18: synchronize returns at once, a query says yes and cannot say no."""
    program = design(BASE, thread("w", UP, SYNC, ask(p.EventQuery(EV)), FILL))
    assert names(played(program, "0000", "y")) == ["WAR host"]
    player = Player(program)
    player.step(Step(0, 0))
    player.step(Step(0, 1))
    assert player.possible_answers(0) == ("yes",)


def test_stream_waits() -> None:
    """S20, S22: work enqueued later on the waiting stream is ordered; work enqueued before the wait is not."""
    kernel = p.Launch("k", T, writes(DEV))
    assert names(played(design(BASE, thread("w", UP, kernel)), "00")) == ["WAW dev"]
    for wait in ([RECORD, p.StreamWaitEvent(T, EV)], [p.WaitStream(T, S)]):
        assert names(played(design(BASE, thread("w", UP, *wait, kernel)), "0" * (2 + len(wait)))) == []
        assert names(played(design(BASE, thread("w", UP, kernel, *wait)), "0" * (2 + len(wait)))) == ["WAW dev"]


def test_a_wait_binds_to_the_record_at_its_call() -> None:
    """S20: a later re-record does not move the wait, so it still protects."""
    kernel = p.Launch("k", T, writes(DEV))
    s = played(design(BASE, thread("w", UP, RECORD, p.StreamWaitEvent(T, EV), p.Record(EV, T), kernel)), "00000")
    assert names(s) == []


def test_waits_chain_through_an_idle_stream() -> None:
    """S2, S20: a wait is an item of its stream, so a record after it captures it even when no kernel lies between."""
    other = p.Obj(5)
    program = design(
        [*BASE, p.Event("second")],
        thread("w", UP, RECORD, p.StreamWaitEvent(T, EV), p.Record(other, T), p.EventSync(other), FILL),
    )
    assert names(played(program, "000000")) == []


def test_a_host_wait_orders_only_its_thread() -> None:
    """S35: what thread a waited for is unknown to thread b until something leads from a to b."""
    program = design([*BASE, p.Flag("go")], thread("a", UP, p.StreamSync(S), p.FlagSet(5)), thread("b", FILL))
    assert names(played(program, "0001")) == ["WAR host"]
    program = design(program.objects[:], program.threads[0], thread("b", p.FlagWait(5), FILL))  # type: ignore[arg-type]
    assert names(played(program, "00011")) == []


def test_one_hardware_queue_masks() -> None:
    """S115: with one queue the two streams' items run in issue order."""
    program = design(BASE, thread("w", UP, p.Launch("k", T, writes(DEV))))
    assert names(played(program, "00", env="one-hardware-queue")) == []


def test_launch_blocking_masks() -> None:
    """S113: each copy waits, so the refill comes after it."""
    assert names(played(design(BASE, thread("w", UP, FILL)), "00", env="launch-blocking")) == []


def test_pageable_source_is_read_at_the_call_or_late() -> None:
    """S47: by profile, a pageable source is staged during the call or read when the copy runs."""
    objects: list[p.Object] = [p.Memory("host", "pageable"), *BASE[1:]]
    program = design(objects, thread("w", UP, FILL))
    assert names(played(program, "00")) == []
    assert names(played(program, "00", plat="cuda-late-pageable")) == ["WAR host"]


def test_setup_comes_before_everything() -> None:
    """Setup threads end before the others start; until then no other thread is enabled."""
    program = design(BASE, thread("w", LOOK), thread("init", FILL, kind="setup"))
    assert names(played(program, "10")) == []
    with pytest.raises(InvalidRun, match="setup has not ended"):
        played(program, "0")


# ---------------------------------------------------------------- host objects


QUEUE: list[p.Object] = [*BASE, p.Queue("q", 1, (("", ()),))]
PUT, GET = p.Put(5, "", ()), p.Get(5, "", ())


def test_put_comes_before_its_get() -> None:
    """The item cannot be taken before it is there."""
    assert names(played(design(QUEUE, thread("a", FILL, PUT), thread("b", GET, LOOK)), "0011")) == []


def test_get_makes_room_for_a_later_put() -> None:
    """[T] get i -> put i + capacity: without it a ring behind a queue of capacity 1 looks like a race."""
    program = design(QUEUE, thread("a", PUT, PUT, FILL), thread("b", LOOK, GET))
    assert names(played(program, "01100")) == []
    with pytest.raises(InvalidRun, match="put on the full queue 'q'"):
        played(program, "00")


def test_a_put_does_not_come_after_the_next_get() -> None:
    """get i -> put i + C and no more: with room left the put needs no get."""
    objects: list[p.Object] = [*BASE, p.Queue("q", 2, (("", ()),))]
    program = design(objects, thread("a", PUT, PUT, FILL), thread("b", LOOK, GET))
    assert names(played(program, "01100")) == ["WAR host"]


def test_gets_are_ordered_among_each_other() -> None:
    """get i -> get i + 1, by whatever threads: the second getter took the item that the first one left."""
    objects: list[p.Object] = [*BASE, p.Queue("q", 2, (("", ()),))]
    program = design(objects, thread("a", PUT, PUT), thread("b", LOOK, GET), thread("c", GET, FILL))
    assert names(played(program, "001122")) == []


def test_full_test_has_an_edge_from_every_earlier_operation() -> None:
    """[T] "not full" after the get: only because the get has happened, so what came before the get is over."""
    program = design(QUEUE, thread("a", PUT, ask(p.QueueFull(5)), FILL), thread("b", LOOK, GET))
    assert names(played(program, "01100", "n")) == []
    assert Player(program).enabled(0)
    with pytest.raises(InvalidRun, match="answer can only be yes"):
        played(program, "00", "n")


@pytest.mark.parametrize(
    ("extra", "set_", "test", "answer"),
    [
        (p.Flag("f"), p.FlagSet(5), p.FlagIsSet(5), "y"),
        (p.Counter("c"), p.CounterAdd(5), p.CounterAtLeast(5, 1), "y"),
        (p.Cell("c", ()), p.CellSet(p.Obj(5), ()), p.CellEmpty(p.Obj(5)), "n"),
        (p.Lock("l"), p.Acquire(5), p.TryLock(5), "n"),
        (p.Queue("q", 2, (("", ()),)), PUT, p.QueueHolds(5, 1), "y"),
    ],
)
def test_every_test_comes_after_what_decided_it(
    extra: p.Object, set_: p.Operation, test: p.Question, answer: str
) -> None:
    """[T] theory section 2: flag load, count, cell, failed try-lock and queue count see only what has happened."""
    program = design([*BASE, extra], thread("a", FILL, set_), thread("b", ask(test), LOOK))
    assert names(played(program, "0011", answer)) == []
    other = "n" if answer == "y" else "y"
    assert names(played(program, "011", other)) == ["RAW host"]  # asked before: nothing orders the two
    with pytest.raises(InvalidRun, match="answer can only be"):
        played(program, "001", other)


def test_unlock_comes_before_the_next_lock() -> None:
    """Mutual exclusion in run order; the lock cannot be taken twice, nor unlocked by somebody else."""
    lock, unlock = p.Acquire(5), p.Unlock(5)
    program = design([*BASE, p.Lock("l")], thread("a", lock, FILL, unlock), thread("b", lock, LOOK, unlock))
    assert names(played(program, "000111")) == []
    with pytest.raises(InvalidRun, match="the lock 'l' is held"):
        played(program, "01")
    with pytest.raises(InvalidRun, match="does not hold"):
        played(design([*BASE, p.Lock("l")], thread("a", unlock)), "0")


def test_counter_wait_counts_turns() -> None:
    """A wait for turn + value passes once the counter is that high, after all earlier adds."""
    program = design([*BASE, p.Counter("c")], thread("a", FILL, p.CounterAdd(5)), thread("b", p.CounterWait(5, 1, True), LOOK))
    assert names(played(program, "0011")) == []
    with pytest.raises(InvalidRun, match="below 1"):
        played(program, "1")


def test_cell_hands_over_and_get_on_an_empty_cell_is_a_design_error() -> None:
    """Every earlier operation on a cell comes before the next one."""
    cell = p.Obj(5)
    program = design(
        [*BASE, p.Cell("c", (p.MEMORY,))],
        thread("a", FILL, p.CellSet(cell, (HOST,))),
        thread("b", p.CellGet(cell, (X,), take=True), p.Host("look", reads(p.Local(X)))),
    )
    assert names(played(program, "0011")) == []
    with pytest.raises(DesignError, match="empty cell 'c'"):
        played(program, "1")


def test_agreed_choices_agree() -> None:
    """Turn k of every thread that asks gets one answer; a private choice is free."""
    for agreed in (True, False):
        question = p.Choose("kind", ("a", "b"), agreed)
        program = design(BASE, thread("a", ask(question, "a", "b")), thread("b", ask(question, "a", "b")))
        player = Player(program)
        player.step(Step(0, 0, "b"))
        assert player.possible_answers(1) == (("b",) if agreed else ("a", "b"))


def test_wrong_steps_are_named() -> None:
    """A step at another node, of an ended thread, of no thread, with no such branch."""
    program = design(BASE, thread("a", ask(p.Maybe("m"), "yes")))
    for step, message in ((Step(0, 1), "is at node 0"), (Step(3, 0), "no thread 3"), (Step(0, 0, "no"), "no branch 'no'")):
        with pytest.raises(InvalidRun, match=message):
            execute(program, Run((step,)))
    with pytest.raises(InvalidRun, match="has ended"):
        execute(program, Run((Step(0, 0, "yes"), Step(0, 0, "yes"))))


def test_a_copied_player_is_independent() -> None:
    """Exploring one continuation must not leak clocks or state into another."""
    program = design(QUEUE, thread("a", FILL, UP, p.StreamSync(S), PUT, FILL), thread("b", GET, LOOK))
    player = Player(program)
    for node in range(2):
        player.step(Step(0, node))
    other = player.copy()
    before = [clock[:] for clock in player.clocks.now]
    for step in (Step(0, 2), Step(0, 3), Step(1, 0), Step(1, 1)):
        other.step(step)
    assert player.clocks.now == before
    assert (player.pc(0), other.pc(0), other.finished(1), player.enabled(1)) == (2, 4, True, False)
    assert len(player.nodes) == 2


# ---------------------------------------------------------------- rings, cursors, parts


def test_ring_slots() -> None:
    """Slot of turn n - 1 is another buffer than slot n while the depth is at least 2, the same one at depth 1."""
    for depth, expected in ((2, []), (1, ["WAR ring"])):
        ring, now, last = p.Memory("ring", "pinned", depth), p.Slot(0, p.Turn()), p.Slot(0, p.Turn(1))
        body = (p.Launch("k", S, reads(now)), p.Host("next", writes(last)))
        program = design([ring, *BASE[1:]], thread("w", *body, kind="loop"))
        assert names(played(program, "00")) == expected


def test_cursor_positions_and_queue_of_indices() -> None:
    """`advance` gives slot 0 first; `last` is the latest; an index keeps its slot on its way through a queue."""
    objects: list[p.Object] = [p.Memory("ring", "pinned", 2), p.Cursor("c", 2), p.Queue("q", 2, (("", (p.INDEX,)),))]
    a = thread("a", p.Advance(1, K), p.Put(2, "", (p.Var(K),)), p.Host("w", writes(p.Slot(0, p.Last(1)))),
               p.Advance(1, K), p.Host("w", writes(p.Slot(0, p.Var(K)))))  # fmt: skip
    b = thread("b", p.Get(2, "", (K,)), p.Host("r", reads(p.Slot(0, p.Var(K)))))
    s = played(design(objects, a, b), "0011000")
    assert [s.accesses[k].touched.key.number for k in range(3)] == [0, 0, 1]
    assert names(s) == ["WAR ring"]


@pytest.mark.parametrize(
    ("one", "two", "meet"),
    [
        (p.Named("a"), p.Named("b"), False), (p.Named("a"), p.Named("a"), True), (p.Span(0, 4), p.Span(4, 8), False),
        (p.Span(0, 5), p.Span(4, 8), True), (p.Span(0, 4), p.Named("a"), True), (p.Anything(), p.Named("a"), True),
        (p.At(p.Fixed(0)), p.At(p.Fixed(1)), False), (p.At(p.Fixed(1)), p.At(p.Fixed(1)), True), (None, p.Named("a"), True),
    ],
)  # fmt: skip
def test_parts(one: p.Part | None, two: p.Part | None, meet: bool) -> None:
    """Program's docstrings: like parts are comparable, everything else may overlap."""
    body = (p.Launch("k", S, reads(p.Obj(0, one))), p.Host("h", writes(p.Obj(0, two))))
    assert bool(conflicts(played(design(BASE, thread("w", *body)), "00"))) == meet


def test_a_view_of_a_part_narrows() -> None:
    """Disjoint parts stay disjoint whatever part of them is taken."""
    view = p.View(X, p.Obj(0, p.Named("rows")))
    for name, expected in (("rows", ["WAR host"]), ("cols", [])):
        body = (view, p.Launch("k", S, reads(p.Local(X, p.Span(0, 4)))), p.Host("h", writes(p.Obj(0, p.Named(name)))))
        assert names(played(design(BASE, thread("w", *body)), "000")) == expected
