"""Meetings of devices in the exploration: what collectives order and what they do not, and what is pending behind them."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable

import pytest
from fencepost.model import answer as a
from fencepost.model import events
from fencepost.model import program as p
from fencepost.proofs.check import check
from fencepost.proofs.explore.locations import locations
from fencepost.proofs.explore.search import Budget, Search
from fencepost.proofs.explore.setting import Setting

from program_writer import ThreadWriter, Tree, Writer, r, w
from random_oracle import campaign, decide, every_run, show
from random_rendezvous import Chain, generate

Body = Callable[["Ranks", int, ThreadWriter], Tree]


class Ranks:
    """Some ranks with a stream and a process each, a channel for each ordered pair, and memory that all can reach."""

    def __init__(self, body: Body, n: int = 2, kind: str = "loop", capacity: int | None = None) -> None:
        self.n = n
        self.w = x = Writer()
        self.streams = [p.Obj(x.add(p.Stream(f"s{i}", gpu=i, process=f"rank{i}"))) for i in range(n)]
        self.side = [p.Obj(x.add(p.Stream(f"side{i}", gpu=i, process=f"rank{i}"))) for i in range(n)]
        self.events = [p.Obj(x.add(p.Event(f"e{i}", gpu=i, process=f"rank{i}"))) for i in range(n)]
        self.mem = [p.Obj(x.add(p.Memory(f"m{i}", "device", gpu=i))) for i in range(n)]
        self.host = [p.Obj(x.add(p.Memory(f"h{i}", "pinned"))) for i in range(n)]
        self.flag = x.add(p.DeviceFlag("flag"))
        self.channels = {(b, c): x.add(p.Channel(f"{b}>{c}", capacity)) for b in range(n) for c in range(n) if b != c}
        for i in range(n):
            t = x.thread(kind)
            t.body = body(self, i, t)

    def needs(self, kind: str, root: int = 0) -> list[tuple[int, int]]:
        """From whose start there is an edge to whose end (theory section 2, collectives)."""
        others = [k for k in range(self.n) if k != root]
        found = {"broadcast": [(root, k) for k in others], "reduce": [(k, root) for k in others], "send": [(root, others[0])]}
        return found.get(kind) or [(b, c) for b in range(self.n) for c in range(self.n) if b != c]

    def meet(self, me: int, kind: str = "all", root: int = 0, tag: str = "") -> Tree:
        """This rank's part of a collective on its stream."""
        pairs = self.needs(kind, root)
        return [
            *(p.Signal(self.channels[b, c], self.streams[me], tag) for b, c in pairs if b == me),
            *(p.Await(self.channels[b, c], self.streams[me], tag) for b, c in pairs if c == me),
        ]

    def run(self, me: int, *accesses: p.Access) -> p.Operation:
        return p.Launch("k", self.streams[me], accesses)

    def program(self) -> p.Program:
        return self.w.program("ranks")


def verdict(ranks: Ranks | p.Program, **options: object) -> tuple[str, set[str]]:
    """Verdict and names of the hazards; a refutation's run is played again."""
    program = ranks if isinstance(ranks, p.Program) else ranks.program()
    answer = check(program, explain=False, **options)  # type: ignore[arg-type]
    if answer.run is not None:
        structure = events.execute(program, answer.run)
        assert events.feasible(structure) and (events.conflicts(structure) or events.undefined_reads(structure))
    return answer.verdict, {h.name for h in answer.hazards}


# ---------------------------------------------------------------- what collectives order


@pytest.mark.parametrize("kind, safe", [("all", True), ("reduce", True), ("broadcast", False), ("send", False)])
def test_rank_0_reads_what_rank_1_wrote_before(kind: str, safe: bool) -> None:
    """Ordered where rank 0's result needs rank 1's data: a broadcast from rank 0 and a send by it do not wait for rank 1."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        mine = x.run(me, w(x.mem[1])) if me == 1 else None
        use = x.run(me, r(x.mem[1])) if me == 0 else None
        return [*([mine] if mine else []), *x.meet(me, kind), *([use] if use else [])]

    found, names = verdict(Ranks(body, kind="script"))
    assert found == (a.PROVED if safe else a.REFUTED)
    assert safe or names & {"RAW m1", "WAR m1"}


@pytest.mark.parametrize("again", [False, True])
def test_a_loop_needs_a_second_meeting(again: bool) -> None:
    """Rank 0 reads rank 1's memory behind the all-reduce; only a second one keeps the next turn's write away."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        use = [x.run(me, w(x.mem[1]))] if me == 1 else []
        late = [x.run(me, r(x.mem[1]))] if me == 0 else []
        return [*use, *x.meet(me), *late, *(x.meet(me) if again else []), p.StreamSync(x.streams[me])]

    assert verdict(Ranks(body))[0] == (a.PROVED if again else a.REFUTED)


def test_a_full_rendezvous_would_be_a_wrong_proof() -> None:
    """The root's write behind a broadcast races with what the others read before they join it."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        if me == 0:
            return [*x.meet(0, "broadcast"), x.run(0, w(x.mem[0]))]
        return [x.run(me, r(x.mem[0])), *x.meet(me, "broadcast")]

    found, names = verdict(Ranks(body, kind="script"))
    assert found == a.REFUTED and names <= {"WAR m0", "RAW m0"}


def test_a_reduce_orders_towards_the_root_only() -> None:
    """What the root does before a reduce says nothing to the others behind it."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        return [x.run(0, w(x.mem[0])), *x.meet(0, "reduce")] if me == 0 else [*x.meet(me, "reduce"), x.run(me, r(x.mem[0]))]

    assert verdict(Ranks(body, n=3, kind="script"))[0] == a.REFUTED


def test_an_edge_through_a_third_rank() -> None:
    """1 sends to 0, which then broadcasts: rank 2 comes after rank 1's prefix, though no channel joins them."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        first = [p.Signal(x.channels[1, 0], x.streams[1])] if me == 1 else [p.Await(x.channels[1, 0], x.streams[0])] if me == 0 else []
        use = [x.run(1, w(x.mem[1]))] if me == 1 else []
        late = [x.run(2, r(x.mem[1]))] if me == 2 else []
        return [*use, *first, *x.meet(me, "broadcast"), *late]

    assert verdict(Ranks(body, n=3, kind="script")) == (a.PROVED, set())


def test_a_mismatched_tag_is_a_wait_that_never_ends() -> None:
    """The access behind it never runs, so it is no hazard; and nothing is proved where something never happens."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        if me == 0:
            return [x.run(0, w(x.mem[0])), *x.meet(0, tag="all_reduce"), x.run(0, w(x.host[0])), p.StreamSync(x.streams[0])]
        return [*x.meet(1, tag="all_gather"), x.run(1, r(x.mem[0])), x.run(1, w(x.host[0]))]

    answer = check(Ranks(body, kind="script").program(), explain=False)
    assert answer.verdict == a.UNKNOWN and "never ends" in (answer.reason or "")


@pytest.mark.parametrize("n", [2, 3])
def test_ranks_in_a_loop(n: int) -> None:
    """All-reduce of every rank's buffer, which its host refills when its own stream says that it is free."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        return [
            p.EventSync(x.events[me]), p.Host("fill", (w(x.host[me]),)), x.run(me, r(x.host[me]), w(x.mem[me])),
            p.Record(x.events[me], x.streams[me]), *x.meet(me), x.run(me, r(x.mem[me])), p.StreamSync(x.streams[me]),
        ]  # fmt: skip

    assert verdict(Ranks(body, n)) == (a.PROVED, set())


# ---------------------------------------------------------------- pending work and the host


def _refill(wait: str) -> Body:
    """Rank 0 reads a pinned buffer behind a receive; its host refills it once `wait` says so."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        if me == 1:
            return [p.Signal(x.channels[1, 0], x.streams[1]), p.StreamSync(x.streams[1])]
        s, e = x.streams[0], x.events[0]
        fill, use = p.Host("fill", (w(x.host[0]),)), [p.Await(x.channels[1, 0], s), x.run(0, r(x.host[0]))]
        made, got = t.local("made", p.EVENT), t.local("got", p.EVENT)
        if wait == "event":
            return [p.EventSync(e), fill, *use, p.Record(e, s)]
        if wait == "event too early":
            return [p.EventSync(e), fill, use[0], p.Record(e, s), use[1]]
        if wait == "recorded again":  # the record of the side stream replaces the one that matters
            return [p.EventSync(e), fill, *use, p.Record(e, s), p.Record(e, x.side[0])]
        if wait == "query":
            return [(p.EventQuery(e), {"yes": [fill, *use, p.Record(e, s)], "no": []})]
        if wait == "stream query":
            return [(p.StreamQuery(s), {"yes": [fill, *use], "no": []})]
        if wait == "side":
            return [p.EventSync(e), fill, *use, p.WaitStream(x.side[0], s), p.Record(e, x.side[0])]
        if wait == "side event":
            done = p.Obj(x.w.add(p.Event("done", process="rank0")))
            return [p.EventSync(e), fill, *use, p.Record(done, s), p.StreamWaitEvent(x.side[0], done), p.Record(e, x.side[0])]
        if wait == "device":
            return [fill, *use, p.DeviceSync(0, "rank0")]
        if wait == "queue":
            q = x.w.add(p.Queue("q", 1, (("", (p.EVENT,)),)))
            return [fill, *use, p.NewEvent(made), p.Record(p.Local(made), s), p.Put(q, "", (p.Local(made),)),
                    p.Get(q, "", (got,)), p.EventSync(p.Local(got))]  # fmt: skip
        assert wait == "nothing"
        return [fill, *use]

    return body


SAFE = ("event", "query", "stream query", "side", "side event", "device", "queue")


@pytest.mark.parametrize("wait", [*SAFE, "event too early", "recorded again", "nothing"])
def test_refill_behind_a_receive(wait: str) -> None:
    """Every wait for the pending record holds the host back; one for another record does not."""
    found, names = verdict(Ranks(_refill(wait), capacity=1))
    assert (found, names) == (a.PROVED, set()) if wait in SAFE else found == a.REFUTED and names <= {"WAR h0", "RAW h0"}


def test_a_wait_that_binds_before_another_thread_records_again() -> None:
    """synchronize waits for the record at its call, however often others record the event meanwhile (S23)."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        s, e = x.streams[0], x.events[0]
        if me == 0:
            return [p.Await(x.channels[1, 0], s), x.run(0, r(x.host[0])), p.Record(e, s), p.EventSync(e), p.Host("fill", (w(x.host[0]),))]
        return [p.Record(e, x.side[0]), p.Signal(x.channels[1, 0], x.streams[1])]

    # Recorded again before the call, it waits for the new record: refuted, with that order.
    assert verdict(Ranks(body, kind="script"))[0] == a.REFUTED


def test_stream_synchronize_does_not_wait_for_later_work() -> None:
    """Called while an await is pending; another thread's read, enqueued behind, is not covered though it runs before."""
    x = Writer()
    s, u = p.Obj(x.add(p.Stream("s"))), p.Obj(x.add(p.Stream("u")))
    c, h = x.add(p.Channel("c")), p.Obj(x.add(p.Memory("h", "pinned")))
    one, two = x.thread("script"), x.thread("script")
    one.body = [p.Await(c, s), p.StreamSync(s), p.Host("fill", (w(h),))]
    two.body = [p.Launch("k", s, (r(h),)), p.Signal(c, u)]
    assert verdict(x.program("late"))[0] == a.REFUTED


def test_queries_of_pending_work_say_no() -> None:
    """A branch that needs a yes while nobody has signalled is never reached; it would race."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        if me == 1:
            return [x.run(1, r(x.mem[0]))]
        s = x.streams[0]
        yes: Tree = [x.run(0, w(x.mem[0]))]
        return [p.Await(x.channels[1, 0], s), p.Record(x.events[0], s), (p.EventQuery(x.events[0]), {"yes": yes, "no": []})]

    answer = check(Ranks(body, kind="script").program(), explain=False)
    assert answer.verdict == a.UNKNOWN and "never reached" in (answer.reason or "")


def test_a_block_behind_a_pending_use() -> None:
    """record_stream keeps a block while its use waits on the device; without it the next owner may overwrite it."""

    def body(noted: bool) -> Body:
        def made(x: Ranks, me: int, t: ThreadWriter) -> Tree:
            if me == 1:
                return [p.Signal(x.channels[1, 0], x.streams[1]), p.StreamSync(x.streams[1])]
            b, s, side = t.local("b", p.MEMORY), x.streams[0], x.side[0]
            return [
                p.Alloc(b, "device", s), x.run(0, w(p.Local(b))), p.EventSync(x.events[0]), p.WaitStream(side, s),
                p.Await(x.channels[1, 0], side), p.Launch("use", side, (r(p.Local(b)),)), p.Record(x.events[0], side),
                *([p.RecordStream(p.Local(b), side)] if noted else []), p.Drop(b),
            ]  # fmt: skip

        return made

    assert verdict(Ranks(body(True), capacity=1)) == (a.PROVED, set())
    found, names = verdict(Ranks(body(False), capacity=1))
    assert found == a.REFUTED and names <= {"WAR b", "RAW b"}


def test_a_token_behind_a_pending_record() -> None:
    """give(after=e) of a row whose reader waits on the device: the next taker comes after it."""

    def body(after: bool) -> Body:
        def made(x: Ranks, me: int, t: ThreadWriter) -> Tree:
            if me == 1:
                return [p.Signal(x.channels[1, 0], x.streams[1]), p.StreamSync(x.streams[1])]
            pool = x.w.add(p.Pool("rows", 2, "row"))
            row, s, e = t.local("row", p.HANDLE, pool=pool), x.streams[0], x.events[0]
            there = p.Obj(x.host[0].id, p.At(p.Var(row)))
            return [
                p.Take(pool, row), p.Host("fill", (w(there),)), p.Await(x.channels[1, 0], s), x.run(0, r(there)),
                p.Record(e, s), p.Give(pool, p.Local(row), e if after else None),
            ]  # fmt: skip

        return made

    assert verdict(Ranks(body(True), capacity=1)) == (a.PROVED, set())
    assert verdict(Ranks(body(False), capacity=1))[0] == a.REFUTED


# ---------------------------------------------------------------- device flags


def _flags(reset: bool, *, host: bool = False, late: bool = False) -> p.Program:
    """A writer stores a flag behind its kernel; a reader waits for it, perhaps with a reset, twice or in a loop."""
    x = Writer()
    one, two = p.Obj(x.add(p.Stream("one"))), p.Obj(x.add(p.Stream("two")))
    flag, mem = x.add(p.DeviceFlag("flag")), p.Obj(x.add(p.Memory("mem", "pinned")))
    a_, b_ = x.thread("script"), x.thread("script")
    kernel, store = p.Launch("k", one, (w(mem),)), p.StoreFlag(flag, 1, one)
    a_.body = [store, kernel] if late else [kernel, store]
    wait, use = (p.WaitFlag(flag, 1, None, reset), p.Host("look", (r(mem),))) if host else (p.WaitFlag(flag, 1, two, reset), p.Launch("use", two, (r(mem),)))
    b_.body = [wait, use]
    return x.program("flags")


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_a_store_is_before_what_its_wait_lets_go(host: bool, reset: bool) -> None:
    """Device to device and device to a spinning host; a store before the kernel covers nothing."""
    assert verdict(_flags(reset, host=host)) == (a.PROVED, set())
    assert verdict(_flags(reset, host=host, late=True))[0] == a.REFUTED


def test_a_host_store_releases_the_device() -> None:
    """What the host wrote before the store is there when the stream goes on; what it writes later races."""
    for late in (False, True):
        x = Writer()
        s, flag, mem = p.Obj(x.add(p.Stream("s"))), x.add(p.DeviceFlag("flag")), p.Obj(x.add(p.Memory("mem", "pinned")))
        t, u = x.thread("script"), x.thread("script")
        fill = p.Host("fill", (w(mem),))
        t.body = [p.StoreFlag(flag, 1), fill] if late else [fill, p.StoreFlag(flag, 1)]
        u.body = [p.WaitFlag(flag, 1, s), p.Launch("use", s, (r(mem),))]
        assert verdict(x.program("released"))[0] == (a.REFUTED if late else a.PROVED)


def test_a_flag_names_its_latest_store_only() -> None:
    """Two writers store the same value: a wait may see either, and says nothing about the other's kernel."""
    x = Writer()
    one, two, s = (p.Obj(x.add(p.Stream(n))) for n in ("one", "two", "s"))
    flag, mem = x.add(p.DeviceFlag("flag")), p.Obj(x.add(p.Memory("mem", "device")))
    for stream, accesses in ((one, (w(mem),)), (two, ())):
        x.thread("script").body = [p.Launch("k", stream, accesses), p.StoreFlag(flag, 1, stream)]
    x.thread("script").body = [p.WaitFlag(flag, 1, s), p.Launch("use", s, (r(mem),))]
    assert verdict(x.program("two stores"))[0] == a.REFUTED


def test_a_flag_without_reset_is_stale_in_the_next_turn() -> None:
    """The ring of a mailbox: the wait must reset what it saw, or the next turn reads before its writer stored."""
    for reset in (False, True):
        x = Writer()
        one, two = p.Obj(x.add(p.Stream("one"))), p.Obj(x.add(p.Stream("two")))
        there, back = x.add(p.DeviceFlag("there")), x.add(p.DeviceFlag("back"))
        mem = p.Obj(x.add(p.Memory("mem", "device")))
        t, u = x.thread(), x.thread()
        t.body = [p.Launch("k", one, (w(mem),)), p.StoreFlag(there, 1, one), p.WaitFlag(back, 1, one, True), p.StreamSync(one)]
        u.body = [p.WaitFlag(there, 1, two, reset), p.Launch("use", two, (r(mem),)), p.StoreFlag(back, 1, two), p.StreamSync(two)]
        assert verdict(x.program("mailbox")) == (a.PROVED, set()) if reset else verdict(x.program("mailbox"))[0] == a.REFUTED


def test_a_reset_loses_a_signal() -> None:
    """A reset behind the wait, as an operation of its own, may overwrite the next store: the second wait may never end.

    Where it ends it saw the second store, so that the read behind it comes after the kernel.
    """
    x = Writer()
    one, two = p.Obj(x.add(p.Stream("one"))), p.Obj(x.add(p.Stream("two")))
    flag, mem = x.add(p.DeviceFlag("flag")), p.Obj(x.add(p.Memory("mem", "device")))
    t, u = x.thread("script"), x.thread("script")
    t.body = [p.StoreFlag(flag, 1, one), p.Launch("k", one, (w(mem),)), p.StoreFlag(flag, 1, one)]
    u.body = [p.WaitFlag(flag, 1, two), p.StoreFlag(flag, 0, two), p.WaitFlag(flag, 1, two), p.Launch("use", two, (r(mem),))]
    assert verdict(x.program("lost")) == (a.PROVED, set())
    t.body = [p.StoreFlag(flag, 1, one), p.StoreFlag(flag, 1, one), p.Launch("k", one, (w(mem),))]
    assert verdict(x.program("too early"))[0] == a.REFUTED


# ---------------------------------------------------------------- bounds, environments, and nothing for nothing


def test_an_unbounded_mailbox_is_unknown_by_name() -> None:
    """The root of a broadcast runs ahead for ever; with a capacity it cannot."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        use = [x.run(me, w(x.mem[0]))] if me == 0 else []
        return [*use, *x.meet(me, "broadcast"), p.StreamSync(x.streams[me])]

    answer = check(Ranks(body).program(), explain=False)
    assert answer.verdict == a.UNKNOWN and "unbounded mailbox" in (answer.reason or "") and "'0>1'" in (answer.reason or "")
    answer = check(Ranks(body, capacity=2).program(), explain=False)
    assert "unbounded" not in (answer.reason or "")


def test_unbounded_pending_work_is_unknown_by_name() -> None:
    """A host that never waits runs ahead of its stream for ever."""

    def body(x: Ranks, me: int, t: ThreadWriter) -> Tree:
        return [x.run(me, w(x.mem[me])), *x.meet(me)]

    answer = check(Ranks(body).program(), explain=False)
    assert answer.verdict == a.UNKNOWN and "unbounded pending work" in (answer.reason or "") and "'s" in (answer.reason or "")


def test_launch_blocking_waits_inside_the_call() -> None:
    """The host is blocked by the kernel behind the receive: no overlap is left, so the hazard is masked."""
    found, _ = verdict(Ranks(_refill("nothing"), capacity=1), environment="launch-blocking")
    assert found == a.MASKED
    assert verdict(Ranks(_refill("nothing"), capacity=1))[0] == a.REFUTED


def test_designs_without_meetings_pay_nothing() -> None:
    """No pending state is kept, and no meeting code is chosen."""
    x = Writer()
    s, mem = p.Obj(x.add(p.Stream("s"))), p.Obj(x.add(p.Memory("m", "pinned")))
    x.thread().body = [p.Host("fill", (w(mem),)), p.Launch("k", s, (r(mem),))]
    setting = Setting(x.program("plain"))
    search = Search(setting, locations(setting.program)[0])
    assert setting.meetings is None and search.device is None and search.start().meet is None
    assert search.run(Budget()).hazards


# ---------------------------------------------------------------- against random concrete runs

COUNT = 40


@pytest.mark.parametrize("part", range(4))
def test_random_meetings(part: int) -> None:
    """No proof that a run of the concrete event structure contradicts, and no search that finds something else."""
    count, found = campaign(generate, range(part * 100_000, part * 100_000 + COUNT))
    assert found is None, found
    assert count["proved"] >= COUNT / 5 and count["refuted"] >= COUNT / 8


@pytest.mark.parametrize("part", range(3))
def test_chains_against_every_interleaving(part: int) -> None:
    """Of small programs all runs are played: none contradicts a proof, and almost every bad one is found."""
    count: collections.Counter[str] = collections.Counter()
    for seed in range(part * 100_000, part * 100_000 + 60):
        program = Chain(random.Random(seed)).w.program("chain")
        decision = decide(program, states=2000)
        count[decision.word] += 1
        if decision.word in ("proved", "unknown"):
            bad = every_run(program, depth=40, limit=250)
            assert bad is None or decision.word != "proved", f"seed {seed}: {bad}\n{show(program)}"
            count["missed"] += bad is not None
    assert count["proved"] >= 20 and count["refuted"] >= 5 and count["missed"] <= 2
