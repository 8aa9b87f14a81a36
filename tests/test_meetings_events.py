"""Meetings of devices on the concrete event structure: channels, device flags, and what is pending behind them."""

from __future__ import annotations

import pytest
from fencepost.model import events
from fencepost.model import program as p
from fencepost.model.answer import Run, Step
from fencepost.model.events import InvalidRun, Player, Structure
from fencepost.model.operations.meetings import open_channels

from program_writer import Writer, r, w


class Small:
    """Two streams, two channels, a device flag and some memory; scripts of one turn."""

    def __init__(self, capacity: int | None = None) -> None:
        self.w = Writer()
        self.a, self.b = p.Obj(self.w.add(p.Stream("a"))), p.Obj(self.w.add(p.Stream("b")))
        self.ab, self.ba = self.w.add(p.Channel("a to b", capacity)), self.w.add(p.Channel("b to a", capacity))
        self.flag = self.w.add(p.DeviceFlag("flag"))
        self.x, self.y = p.Obj(self.w.add(p.Memory("x", "pinned"))), p.Obj(self.w.add(p.Memory("y", "device")))
        self.e, self.f = p.Obj(self.w.add(p.Event("e"))), p.Obj(self.w.add(p.Event("f")))

    def script(self, *operations: object) -> None:
        self.w.thread("script").body = list(operations)

    def program(self) -> p.Program:
        return self.w.program("small")


def play(program: p.Program, order: str, answers: str = "") -> tuple[Player, Run]:
    """Digits are host steps of that thread; letters are steps of the device, by the stream's name."""
    player, steps, left = Player(program), [], list(answers)
    names = {o.name: i for i, o in enumerate(program.objects) if isinstance(o, p.Stream)}
    for one in order:
        if one.isdigit():
            thread = int(one)
            asks = isinstance(player.node(thread), p.Ask)
            step = Step(thread, player.pc(thread), {"y": "yes", "n": "no"}[left.pop(0)] if asks else None)
        else:
            step = next(s for s in player.device_steps() if s.stream == (names[one], 0))
        player.step(step)
        steps.append(step)
    return player, Run(tuple(steps))


def hazards(program: p.Program, order: str, answers: str = "") -> list[str]:
    """Names of the hazards of that run, which must be feasible and playable again."""
    player, run = play(program, order, answers)
    structure = Structure(player, run)
    assert events.feasible(structure)
    assert events.conflicts(structure) == events.conflicts(events.execute(program, run))
    return [events.hazard_of(structure, i, j).name for i, j in events.conflicts(structure)]


def use(stream: p.Operand, *accesses: p.Access) -> p.Operation:
    return p.Launch("k", stream, accesses)


def test_an_await_comes_after_the_signals_stream_prefix() -> None:
    """b reads what a wrote before its signal: ordered, whoever calls first. What a does later is not."""
    s = Small()
    s.script(use(s.a, w(s.y)), p.Signal(s.ab, s.a), use(s.a, w(s.x)))
    s.script(p.Await(s.ab, s.b), use(s.b, r(s.y)), use(s.b, r(s.x)))
    for order in ("000111", "110001", "111000", "101010"):
        assert hazards(s.program(), order) in (["WAR x"], ["RAW x"])


def test_a_pending_item_has_not_happened() -> None:
    """Behind an await that nobody answers nothing runs; the structure has no such access."""
    s = Small()
    s.script(p.Await(s.ab, s.b), use(s.b, w(s.x)), p.Host("look", (r(s.x),)))
    player, run = play(s.program(), "000")
    structure = Structure(player, run)
    assert len(structure.nodes) == 1 and not events.conflicts(structure)
    assert player.waiting_heads() == (((s.b.id, 0), p.Await(s.ab, s.b)),)


def test_another_tag_is_never_met() -> None:
    """A collective mismatch: the await stays at the head."""
    s = Small()
    s.script(p.Signal(s.ab, s.a, "all_reduce"))
    s.script(p.Await(s.ab, s.b, "broadcast"), use(s.b, w(s.x)))
    player, _ = play(s.program(), "011")
    assert player.waiting_heads() and not player.nodes


def test_calls_that_wait_for_a_pending_record() -> None:
    """synchronize is called, and returns with the edge when the signal has come; a query can only say no."""
    s = Small()
    s.script(p.Await(s.ab, s.b), use(s.b, r(s.x)), p.Record(s.e, s.b), (p.EventQuery(s.e), {"yes": [], "no": []}),
             p.EventSync(s.e), p.Host("fill", (w(s.x),)))  # fmt: skip
    s.script(use(s.a, w(s.y)), p.Signal(s.ab, s.a), use(s.a, w(s.y)))
    program = s.program()
    player, _ = play(program, "000")
    assert player.possible_answers(0) == ("no",)
    player, _ = play(program, "00000", "n")
    assert not player.enabled(0) and player.is_inside(0) and player.pc(0) == play(program, "0000", "n")[0].pc(0)
    with pytest.raises(InvalidRun, match="inside a call"):
        player.step(Step(0, player.pc(0)))
    assert hazards(program, "00000110", "n") == []


def test_a_wait_binds_to_the_record_of_its_call() -> None:
    """The event is recorded again while synchronize waits: it returns with the first record, which b's read precedes."""
    for again, expected in ((False, []), (True, [])):
        s = Small()
        s.script(p.Await(s.ab, s.b), use(s.b, r(s.x)), p.Record(s.e, s.b), p.EventSync(s.e), p.Host("fill", (w(s.x),)))
        s.script(*([p.Record(s.e, s.a)] if again else []), p.Signal(s.ab, s.a))
        assert hazards(s.program(), "0000" + "1" * (1 + again) + "0") == expected
    # Recorded again before the call: it waits for the new record, which says nothing about b. (The write runs first here.)
    assert hazards(s.program(), "0001001") == ["RAW x"]


def test_stream_synchronize_waits_for_what_was_there_at_the_call() -> None:
    """Another thread's later item on the same stream is not waited for."""
    s = Small()
    s.script(p.Await(s.ab, s.b), p.StreamSync(s.b), p.Host("fill", (w(s.x),)))
    s.script(use(s.b, r(s.x)), p.Signal(s.ab, s.a))
    assert hazards(s.program(), "00110") == ["WAR x"]  # called before the read was enqueued
    assert hazards(s.program(), "01010") == []  # called after


def test_a_stream_waits_for_the_pending_record_itself() -> None:
    """wait_event on a pending record holds the stream until that record, not until a later one."""
    s = Small()
    c = p.Obj(s.w.add(p.Stream("c")))
    s.script(p.Await(s.ab, s.b), use(s.b, r(s.y)), p.Record(s.e, s.b), p.StreamWaitEvent(c, s.e), use(c, w(s.y)))
    s.script(p.Record(s.e, s.a), p.Signal(s.ab, s.a))
    assert hazards(s.program(), "0000011") == []
    player, _ = play(s.program(), "000001")
    assert not player.nodes  # still pending though the event was recorded again and that record is complete
    s = Small()
    c = p.Obj(s.w.add(p.Stream("c")))
    s.script(p.Await(s.ab, s.b), use(s.b, r(s.y)), p.WaitStream(c, s.b), use(c, w(s.y)))
    s.script(p.Signal(s.ab, s.a))
    assert hazards(s.program(), "00001") == [] and hazards(s.program(), "10000") == []


def test_a_capacity_holds_the_signal_back_and_orders_nothing() -> None:
    """a's second signal waits for b's first await; what b did before that await is not ordered before a's next item."""
    s = Small(capacity=1)
    s.script(p.Signal(s.ab, s.a), p.Signal(s.ab, s.a), use(s.a, w(s.x)))
    s.script(use(s.b, r(s.x)), p.Await(s.ab, s.b))
    player, _ = play(s.program(), "000")
    assert not player.nodes
    assert hazards(s.program(), "00011") == ["WAR x"]


def test_a_device_flag_carries_its_latest_store_only() -> None:
    """b waits; a's store and the host's: whichever was stored last is what the wait comes after."""
    s = Small()
    s.script(use(s.a, w(s.x)), p.StoreFlag(s.flag, 1, s.a))
    s.script(p.StoreFlag(s.flag, 1))
    s.script(p.WaitFlag(s.flag, 1, s.b), use(s.b, r(s.x)))
    assert hazards(s.program(), "00a22b") == []
    assert hazards(s.program(), "00a1" + "22b") == ["RAW x"]
    assert hazards(s.program(), "001a" + "22b") == []


def test_a_reset_is_a_store() -> None:
    """After a wait that resets, the next wait waits for another store; a store before the reset is lost."""
    s = Small()
    s.script(p.StoreFlag(s.flag, 1, s.a), p.StoreFlag(s.flag, 1, s.a))
    s.script(p.WaitFlag(s.flag, 1, s.b, True), p.WaitFlag(s.flag, 1, s.b, True))
    player, _ = play(s.program(), "0011aa")
    assert [step.stream for step in player.device_steps()] == [(s.b.id, 0)]
    player, _ = play(s.program(), "0011aab")
    assert player.device_steps() == () and len(player.waiting_heads()) == 1  # lost
    player, _ = play(s.program(), "0011abab")
    assert player.waiting_heads() == ()


def test_a_host_spins_on_a_device_flag() -> None:
    """The thread waits for the value and comes after the store; a store of its own releases the device."""
    s = Small()
    s.script(use(s.a, w(s.x)), p.StoreFlag(s.flag, 2, s.a))
    s.script(p.WaitFlag(s.flag, 2, None, True), p.Host("look", (r(s.x),)), p.StoreFlag(s.flag, 1))
    s.script(p.WaitFlag(s.flag, 1, s.b), use(s.b, w(s.x)))
    player, _ = play(s.program(), "00")
    assert not player.enabled(1) and "below 2" in player._why_not(1)
    assert hazards(s.program(), "00a" + "111" + "22b") == []
    program = s.program()
    wait = program.threads[2].entry
    with pytest.raises(InvalidRun, match="still waits"):
        play(program, "22")[0].step(Step(2, wait, stream=(s.b.id, 0)))
    with pytest.raises(InvalidRun, match="no such item"):
        play(program, "22")[0].step(Step(2, wait, stream=(s.a.id, 0)))


def test_a_noted_use_that_is_pending_keeps_the_block() -> None:
    """A free with a pending noted use: the block comes back when the record is complete, and its reader is before."""
    s = Small()
    thread = s.w.thread("script")
    one, two = thread.local("one", p.MEMORY), thread.local("two", p.MEMORY)
    thread.body = [
        p.Alloc(one, "device", s.a), use(s.a, w(p.Local(one))), p.WaitStream(s.b, s.a), p.Await(s.ab, s.b),
        use(s.b, r(p.Local(one))), p.RecordStream(p.Local(one), s.b), p.Drop(one), p.Alloc(two, "device", s.a),
        use(s.a, w(p.Local(two))),
    ]  # fmt: skip
    s.script(p.Signal(s.ba, s.b), p.Signal(s.ab, p.Obj(s.w.add(p.Stream("c")))))
    program = s.program()

    def until(node: int, signalled: bool) -> tuple[Player, list[Step]]:
        player, steps = Player(program), []
        while player.pc(0) != node:
            steps.append(Step(0, player.pc(0), block=0 if player.pc(0) == program.threads[0].entry else None))
            player.step(steps[-1])
        while signalled and not player.finished(1):
            steps.append(Step(1, player.pc(1)))
            player.step(steps[-1])
        return player, steps

    allocation = next(i for i, n in enumerate(program.threads[0].nodes) if isinstance(n, p.Do) and n.operation == thread.body[7])
    player, _ = until(allocation, False)
    assert player.possible_blocks(0) == ()
    with pytest.raises(InvalidRun, match="pending"):
        player.step(Step(0, allocation, block=0))
    player, steps = until(allocation, True)
    assert player.possible_blocks(0) == (0,)
    for step in (Step(0, allocation, block=0), Step(0, program.threads[0].nodes[allocation].next)):  # type: ignore[union-attr]
        player.step(step)
        steps.append(step)
    assert not events.conflicts(Structure(player, Run(tuple(steps))))


def test_same_stream_reuse_queues_behind() -> None:
    """A device block may come back while its own stream is pending: the new owner's uses are behind the old one's."""
    s = Small()
    thread = s.w.thread("script")
    one, two = thread.local("one", p.MEMORY), thread.local("two", p.MEMORY)
    thread.body = [
        p.Await(s.ab, s.a), p.Alloc(one, "device", s.a), use(s.a, w(p.Local(one))), p.Drop(one),
        p.Alloc(two, "device", s.a), use(s.a, w(p.Local(two))),
    ]  # fmt: skip
    s.script(p.Signal(s.ab, s.b))
    program = s.program()
    player = Player(program)
    while not player.finished(0):
        node = player.node(0)
        player.step(Step(0, player.pc(0), block=0 if isinstance(node, p.Do) and isinstance(node.operation, p.Alloc) else None))
    assert not player.nodes
    player.step(Step(1, player.pc(1)))
    assert [node.accesses[0].tenant for node in player.nodes] == [0, 1]
    assert not events.conflicts(Structure(player, Run(())))


def test_a_token_comes_back_with_its_pending_event() -> None:
    """give(after=e) while e's record is pending: nobody can take the token yet."""
    s = Small()
    pool = s.w.add(p.Pool("rows", 1, "row"))
    thread = s.w.thread("script")
    row = thread.local("row", p.HANDLE, pool=pool)
    thread.body = [p.Take(pool, row), p.Await(s.ab, s.a), p.Record(s.e, s.a), p.Give(pool, p.Local(row), s.e), p.Take(pool, row)]
    s.script(p.Signal(s.ab, s.b))
    player, _ = play(s.program(), "0000")
    assert not player.enabled(0)
    player, _ = play(s.program(), "00001")
    assert player.enabled(0)


def test_several_receivers_take_in_turn() -> None:
    """Who gets the second message comes after who got the first: otherwise it would have got the first itself."""
    s = Small()
    c = p.Obj(s.w.add(p.Stream("c")))
    s.script(p.Signal(s.ab, s.a), p.Signal(s.ab, s.a))
    s.script(use(s.b, w(s.x)), p.Await(s.ab, s.b))
    s.script(p.Await(s.ab, c), use(c, r(s.x)))
    program = s.program()
    assert open_channels(program) == {s.ab}
    assert hazards(program, "00aa" + "11b" + "22c") == []
    assert hazards(program, "00aa" + "1122" + "cb") == ["RAW x"]


def test_a_no_before_the_meeting_is_feasible() -> None:
    """The record stands behind an await that has been answered: no is still possible, until the thread knows."""
    s = Small()
    s.script(p.Await(s.ab, s.b), p.Record(s.e, s.b), (p.EventQuery(s.e), {"yes": [], "no": []}),
             p.EventSync(s.e), (p.EventQuery(s.e), {"yes": [], "no": []}))  # fmt: skip
    s.script(p.Signal(s.ab, s.a))
    program = s.program()
    assert play(program, "100")[0].possible_answers(0) == ("yes", "no")
    assert hazards(program, "1000", "n") == []
    assert play(program, "10000", "n")[0].possible_answers(0) == ("yes",)


def test_a_copied_player_keeps_its_pending_work() -> None:
    """Exploring one continuation must not release the other's streams."""
    s = Small()
    s.script(p.Await(s.ab, s.b), use(s.b, r(s.x)), p.StreamSync(s.b))
    s.script(p.Signal(s.ab, s.a))
    player, _ = play(s.program(), "000")
    other = player.copy()
    other.step(Step(1, other.pc(1)))
    assert other.finished(0) and len(other.nodes) == 1
    assert player.is_inside(0) and not player.nodes and len(player.waiting_heads()) == 1
