"""Hangs of devices: channels, device flags and what is pending behind them; over-waits, starvation and livelock; random programs."""

from __future__ import annotations

import random
from collections.abc import Callable

import fencepost as fp
import pytest
from fencepost.model import program as p
from fencepost.model.answer import Answer, Step
from fencepost.model.events import InvalidRun, Player
from fencepost.proofs.liveness.progress import findings
from fencepost.proofs.liveness.report import hangs, name, sentence
from fencepost.proofs.liveness.search import Hang, Liveness, _search, search

from random_meetings import meetings

S, T = p.Obj(0), p.Obj(1)
"""Two streams; what follows them in `OBJECTS` is numbered below."""
FLAG, EVENT, THERE, BACK, NARROW = 2, p.Obj(3), 4, 5, 6
OBJECTS: tuple[p.Object, ...] = (
    p.Stream("s"), p.Stream("t"), p.DeviceFlag("flag"), p.Event("event"), p.Channel("there"), p.Channel("back"),
    p.Channel("narrow", 1),
)  # fmt: skip


def thread(title: str, *operations: p.Operation, kind: str = "loop") -> p.Thread:
    """A thread that runs the operations one after the other."""
    last = len(operations) - 1
    nodes = tuple(p.Do(one, n + 1 if n < last else p.END) for n, one in enumerate(operations))
    return p.Thread(title, kind, nodes, 0)


def of(*threads: p.Thread) -> tuple[p.Program, Liveness]:
    """A program of `OBJECTS` and what the search finds."""
    program = p.Program("test", OBJECTS, threads)
    return program, search(program)


def hang_of(*threads: p.Thread) -> str | None:
    """The name of the hang, whose run the concrete event structure can play; None when every wait can end."""
    program, found = of(*threads)
    assert found.bounded is None
    if found.hang is None:
        return None
    replay(program, found.hang)
    return name(program, found.hang)


def replay(program: p.Program, hang: Hang) -> None:
    """Play the run: every waiter waits at its end, streams as threads."""
    player = Player(program)
    player.play(hang.run)
    heads = {program.objects[stream[0]].name for stream, _ in player.waiting_heads()}
    for waiter in hang.waiters:
        if waiter.item is not None:
            assert waiter.stream in heads
            continue
        assert player.pc(waiter.thread) == waiter.node
        if player.enabled(waiter.thread):  # it can make its call, and stays in it
            inside = player.copy()
            inside.step(Step(waiter.thread, waiter.node))
            assert inside.is_inside(waiter.thread)


def both(stream: p.Obj, mine: int, other: int, tag: str = "all_reduce") -> tuple[p.Operation, ...]:
    """One rank's side of a collective of two."""
    return (p.Signal(mine, stream, tag), p.Await(other, stream, tag))


def test_ranks_that_meet_do_not_hang() -> None:
    assert hang_of(thread("one", *both(S, THERE, BACK), p.StreamSync(S)), thread("two", *both(T, BACK, THERE), p.StreamSync(T))) is None


def test_without_a_host_wait_the_pending_work_grows_and_the_answer_is_bounded() -> None:
    _, found = of(thread("one", *both(S, THERE, BACK)), thread("two", *both(T, BACK, THERE)))
    assert found.hang is None and "grows without bound" in str(found.bounded)


def test_a_collective_that_a_rank_never_calls_is_a_verdict() -> None:
    """Whatever else grows without bound: nobody can end the wait."""
    assert hang_of(thread("one", *both(S, THERE, BACK)), thread("two", p.Host("idle", ()))) == "collective mismatch back"
    program, found = of(thread("one", *both(S, THERE, BACK), kind="script"), thread("two", p.Signal(BACK, T, ""), kind="script"))
    assert found.hang is not None and name(program, found.hang) == "collective mismatch back"


def test_another_kind_in_front_is_a_mismatch_with_both_tags() -> None:
    program, found = of(
        thread("one", *both(S, THERE, BACK), p.StreamSync(S)),
        thread("two", *both(T, BACK, THERE, "broadcast"), p.StreamSync(T)),
    )
    assert found.hang is not None
    text = sentence(program, found.hang)
    assert text.startswith("collective mismatch back - one waits for stream s since step 0")
    assert "stream s waits for the signal 'all_reduce' of back since step 0 of one, where the signal 'broadcast' came instead" in text


def test_two_groups_in_two_orders_are_a_deadlock_only_where_hosts_wait() -> None:
    """S132: the first host waits for the second's group and the other way round."""
    objects = (*OBJECTS, p.Channel("there 2"), p.Channel("back 2"), p.Stream("s 2"), p.Stream("t 2"))
    two = len(OBJECTS)
    s2, t2 = p.Obj(two + 2), p.Obj(two + 3)
    first, second = both(S, THERE, BACK), both(s2, two, two + 1)
    third, fourth = both(T, BACK, THERE), both(t2, two + 1, two)
    program = p.Program("t", objects, (
        thread("one", *first, p.StreamSync(S), *second, p.StreamSync(s2)),
        thread("two", *fourth, p.StreamSync(t2), *third, p.StreamSync(T)),
    ))  # fmt: skip
    found = search(program)
    assert found.hang is not None and name(program, found.hang).startswith("deadlock ")
    replay(program, found.hang)
    program = p.Program("t", objects, (
        thread("one", *first, *second, p.StreamSync(S), p.StreamSync(s2)),
        thread("two", *fourth, *third, p.StreamSync(t2), p.StreamSync(T)),
    ))  # fmt: skip
    assert search(program) == Liveness(None, search(program).states)


def test_a_wait_in_front_of_the_store_of_the_same_stream_or_thread() -> None:
    assert hang_of(thread("one", p.StoreFlag(FLAG, 1, S), p.WaitFlag(FLAG, 1, S, True), p.StreamSync(S))) is None
    assert hang_of(thread("one", p.WaitFlag(FLAG, 1, S, True), p.StoreFlag(FLAG, 1, S), p.StreamSync(S))) == "no source flag"
    assert hang_of(thread("one", p.WaitFlag(FLAG, 1, S, True), p.StoreFlag(FLAG, 1, T), p.StreamSync(S))) is None
    assert hang_of(thread("one", p.WaitFlag(FLAG, 1, S, True), p.StreamSync(S), p.StoreFlag(FLAG, 1, T))) == "deadlock flag"
    assert hang_of(thread("one", p.WaitFlag(FLAG, 2, S), p.StoreFlag(FLAG, 1, T), p.StreamSync(S))) == "no source flag"


def test_a_set_unordered_with_its_reset_is_a_lost_signal() -> None:
    """vllm-ascend#4233: the second store meets a flag that the first wait has not reset yet."""
    once: tuple[p.Operation, ...] = (p.WaitFlag(FLAG, 1, S, True), p.Launch("replay", S, ()), p.StoreFlag(FLAG, 1, T))
    assert hang_of(thread("host", *once, *once, p.StreamSync(S))) == "lost signal flag"
    assert hang_of(thread("host", *once, p.StreamSync(S), *once, p.StreamSync(S))) is None


def test_a_signal_may_be_lost_although_nobody_waits_for_ever() -> None:
    """The sender goes on: told apart, and only of flags that their waits reset."""

    def told(reset: bool, store: p.Operation, *more: p.Operation) -> list[str]:
        program, found = of(thread("sender", store, *more), thread("receiver", p.WaitFlag(FLAG, 1, S, reset), p.StreamSync(S)))
        assert found.hang is None
        return [one.partition(" - ")[0] for one in findings(program)]

    assert told(True, p.StoreFlag(FLAG, 1)) == ["lost signal flag"]
    assert told(True, p.StoreFlag(FLAG, 1, T), p.StreamSync(T)) == ["lost signal flag"]
    assert told(False, p.StoreFlag(FLAG, 1)) == []
    back = len(OBJECTS)
    objects = (*OBJECTS, p.DeviceFlag("back"))
    ordered = (
        thread("sender", p.StoreFlag(FLAG, 1), p.WaitFlag(back, 1, None, True)),
        thread("receiver", p.WaitFlag(FLAG, 1, S, True), p.StoreFlag(back, 1, S), p.StreamSync(S)),
    )
    assert findings(p.Program("ordered", objects, ordered)) == ()


def test_a_rank_that_nobody_listens_to() -> None:
    program, found = of(thread("root", p.Signal(THERE, S, "broadcast"), p.StreamSync(S), kind="script"))
    assert found.hang is None
    assert hangs(program, found) == ("collective mismatch there - root comes to it, and nobody ever awaits it",)


def test_a_lost_signal_of_hosts() -> None:
    d = fp.Design("hosts")
    ready, go = d.flag("ready"), d.queue("go", capacity=2, item=())

    @d.loop("sender")
    def sender() -> None:
        go.put()
        ready.set()

    @d.loop("receiver")
    def receiver() -> None:
        go.get()
        ready.wait()
        ready.clear()

    program = d.build()
    found = search(program)
    assert found.hang is None  # the sender goes on setting it

    d = fp.Design("hosts")
    ready, go = d.flag("ready"), d.queue("go", capacity=2, item=())

    @d.script("sender")
    def twice() -> None:
        for _ in range(2):
            go.put()
            ready.set()

    @d.loop("receiver")
    def waits() -> None:
        go.get()
        ready.wait()
        ready.clear()

    program = d.build()
    found = search(program)
    assert found.hang is not None and name(program, found.hang) == "lost signal ready"


def test_everything_behind_a_wait_is_pending() -> None:
    """Records, what other streams were told, host waits, and tokens that come back behind a record."""
    held: p.Operation = p.WaitFlag(FLAG, 1, S, True)
    release: p.Operation = p.StoreFlag(FLAG, 1)
    record = p.Record(EVENT, S)
    assert hang_of(thread("one", held, record, p.EventSync(EVENT), release)) == "deadlock flag"
    assert hang_of(thread("one", held, record, release, p.EventSync(EVENT))) is None
    assert hang_of(thread("one", record, held, p.EventSync(EVENT), release)) is None
    assert hang_of(thread("one", held, record, p.StreamWaitEvent(T, EVENT), p.StreamSync(T), release)) == "deadlock flag"
    assert hang_of(thread("one", held, p.WaitStream(T, S), p.StoreFlag(FLAG, 1, T), p.StreamSync(S))) == "deadlock flag"
    assert hang_of(thread("one", held, p.DeviceSync(0, ""), release)) == "deadlock flag"
    assert hang_of(thread("one", held, p.Record(EVENT, T), p.EventSync(EVENT), release, p.StreamSync(S))) is None


@pytest.mark.parametrize("released", [True, False])
def test_a_token_behind_a_pending_record_is_not_free(released: bool) -> None:
    objects = (*OBJECTS, p.Pool("rows", 1, "row"))
    pool = len(OBJECTS)
    locals_ = (p.LocalInfo("row", p.HANDLE, 0, None, pool), p.LocalInfo("row", p.HANDLE, 1, None, pool))
    give = p.Give(pool, p.Local(0), EVENT)
    start: tuple[p.Operation, ...] = (p.Take(pool, 0), p.WaitFlag(FLAG, 1, S, True), p.Record(EVENT, S), give)
    store: tuple[p.Operation, ...] = (p.StoreFlag(FLAG, 1),)
    rest: tuple[p.Operation, ...] = (p.Take(pool, 1), p.Give(pool, p.Local(1)), p.StreamSync(S))
    operations = (*start, *store, *rest) if released else (*start, *rest, *store)
    one = thread("one", *operations)
    program = p.Program("t", objects, (p.Thread("one", "loop", one.nodes, 0, locals_),))
    found = search(program)
    assert (found.hang is None) == released
    if found.hang is not None:
        assert name(program, found.hang) == "deadlock flag"


def test_a_channel_with_capacity_holds_the_sender_back() -> None:
    sender = thread("sender", p.Signal(NARROW, S, ""), p.StreamSync(S))
    assert hang_of(sender, thread("receiver", p.Await(NARROW, T, ""), p.StreamSync(T))) is None
    assert hang_of(sender, thread("receiver", p.Host("idle", ()))) == "collective mismatch narrow"


def test_a_query_of_pending_work_only_says_no() -> None:
    """The host would go on for ever where the answer could be yes."""

    def asks(*before: p.Operation) -> p.Thread:
        nodes: list[p.Node] = [p.Do(one, n + 1) for n, one in enumerate(before)]
        n = len(nodes)
        nodes += [
            p.Ask(p.EventQuery(EVENT), (("yes", n + 1), ("no", n + 2))),
            p.Do(p.StoreFlag(FLAG, 1), n + 2),
            p.Do(p.StreamSync(S), p.END),
        ]
        return p.Thread("one", "loop", tuple(nodes), 0)

    assert hang_of(asks(p.WaitFlag(FLAG, 1, S), p.Record(EVENT, S))) == "deadlock flag"
    assert hang_of(asks(p.Record(EVENT, S), p.EventSync(EVENT), p.WaitFlag(FLAG, 1, S))) is None  # known complete: only yes


# ---------------------------------------------------------------- over-waits, starvation, livelock


def progress_of(build: Callable[[fp.Design], None]) -> list[str]:
    """Names of what is reported apart; there is no hang."""
    d = fp.Design("test")
    build(d)
    program = d.build()
    assert search(program).hang is None
    return [one.partition(" - ")[0] for one in findings(program)]


def results(outstanding: int, events: str, threads: int = 1) -> Callable[[fp.Design], None]:
    """Results in a queue, each with the event of its copy: one event for all, one per slot, or one per step."""

    def build(d: fp.Design) -> None:
        ids, copy = d.device("ids"), d.stream("copy")
        shared, ring = d.event("copied"), d.event("copied ring", depth=outstanding)
        queue = d.queue("results", capacity=outstanding, item=(fp.EVENT,))

        @d.loop("worker")
        def worker(n: fp.Turn) -> None:
            d.launch("sample", writes=[ids], stream=copy)
            copied = {"one": shared, "ring": ring[n]}[events] if events != "per step" else d.event("fresh")
            copied.record(copy)
            queue.put(copied)
            if threads == 1 and queue.full():
                (done,) = (queue.get(),)
                done.synchronize()

        if threads == 2:

            @d.loop("reader")
            def reader() -> None:
                queue.get().synchronize()

    return build


def test_an_event_that_was_recorded_again_makes_its_waiters_wait_too_long() -> None:
    """vllm#39115: the wait is bound to the latest record at the call (S20, S23), not to the one of its own step."""
    assert progress_of(results(1, "one")) == []  # waited for before it is recorded again
    assert progress_of(results(2, "one")) == ["over-wait copied"]
    assert progress_of(results(2, "per step")) == []
    assert progress_of(results(2, "ring")) == []
    assert progress_of(results(1, "one", threads=2)) == ["over-wait copied"]
    assert progress_of(results(1, "per step", threads=2)) == []
    assert progress_of(results(1, "ring", threads=2)) == ["over-wait copied ring"]  # one slot, handed over before it is read


def preempting(deferred: bool) -> Callable[[fp.Design], None]:
    """vllm#49674: a preempted block comes back when a later step's output is processed, and no step comes without a block."""

    def build(d: fp.Design) -> None:
        free, running = d.queue("free", capacity=2, item=()), d.queue("running", capacity=2, item=())
        late = d.queue("late", capacity=2, item=())

        @d.setup
        def blocks() -> None:
            free.put()
            free.put()

        @d.loop("scheduler")
        def step() -> None:
            if not free.empty():
                free.get()
                running.put()
                for _ in late.drain():
                    free.put()
            elif not running.empty():
                running.get()
                (late if deferred else free).put()

    return build


def test_who_can_change_the_answer_polls_too() -> None:
    assert progress_of(preempting(True)) == ["livelock free"]
    assert progress_of(preempting(False)) == []


@pytest.mark.parametrize("begins", [True, False])
def test_two_threads_that_poll_for_each_other(begins: bool) -> None:
    def build(d: fp.Design) -> None:
        there, back = d.queue("there", capacity=1, item=()), d.queue("back", capacity=1, item=())

        if begins:

            @d.setup
            def begin() -> None:
                there.put()

        @d.loop("one")
        def one() -> None:
            if not there.empty():
                there.get()
                back.put()

        @d.loop("two")
        def two() -> None:
            if not back.empty():
                back.get()
                there.put()

    assert progress_of(build) == ([] if begins else ["livelock there"])


def test_idle_polling_is_no_livelock() -> None:
    """Who could change the answer has ended, or asks for nothing."""

    def build(d: fp.Design) -> None:
        items, stop = d.queue("items", capacity=2, item=()), d.flag("stop")

        @d.script("main")
        def main() -> None:
            items.put()
            stop.set()

        @d.loop("reader")
        def reader() -> None:
            if not stop.is_set() and not items.empty():
                items.get()

    assert progress_of(build) == []


@pytest.mark.parametrize("takers", [1, 2])
def test_a_waiter_that_can_be_passed_over_for_ever(takers: int) -> None:
    def build(d: fp.Design) -> None:
        rows = d.pool("rows", size=1, of="row")
        for number in range(takers):

            @d.loop(f"worker {number}")
            def worker() -> None:
                row = rows.take()
                rows.give(row)

    assert progress_of(build) == (["starvation rows"] if takers > 1 else [])


def test_a_livelock_stops_a_design_and_the_others_do_not() -> None:
    told = ("over-wait e - x", "starvation p - x")
    assert Answer("d", "proved", progress=told).stops == ()
    assert Answer("d", "proved", progress=(*told, "livelock q - x"), hangs=("deadlock q - x",)).stops == (
        "deadlock q - x",
        "livelock q - x",
    )


# ---------------------------------------------------------------- random programs

STATES, STEPS = 600, 50


def stuck_by_chance(program: p.Program, rng: random.Random) -> bool:
    """Whether a random run ends where nothing can move although somebody waits."""
    player = Player(program)
    for _ in range(STEPS):
        able = [t for t in range(len(program.threads)) if not player.finished(t) and player.enabled(t)]
        moves: list[int | Step] = [*able, *player.device_steps()]
        if not moves:
            return bool(player.waiting_heads()) or any(not player.finished(t) for t in range(len(program.threads)))
        move = rng.choice(moves)
        if isinstance(move, Step):
            player.step(move)
            continue
        node = player.node(move)
        answers = player.possible_answers(move) if isinstance(node, p.Ask) else (None,)
        if answers:
            player.step(Step(move, player.pc(move), rng.choice(answers)))
    return False


@pytest.mark.parametrize("block", range(4))
def test_hangs_of_random_programs_are_real_and_none_is_missed(block: int) -> None:
    """With and without what keeps the search small, and against random runs of the concrete event structure."""
    hanging = 0
    for seed in range(block * 30, block * 30 + 30):
        program = meetings(random.Random(seed))
        small, whole = _search(program, STATES, True), _search(program, STATES, False)
        hanging += whole.hang is not None
        if small.bounded is None and whole.bounded is None:
            assert (small.hang is None) == (whole.hang is None), seed
        for found in (small, whole):
            if found.hang is not None:
                try:
                    replay(program, found.hang)
                except InvalidRun as stop:  # what a query may say follows from more than liveness keeps
                    assert "answer can only be" in str(stop), seed
        if small.hang is None and small.bounded is None:
            for run in range(4):
                assert not stuck_by_chance(program, random.Random(1000 * seed + run)), (seed, run)
    assert hanging
