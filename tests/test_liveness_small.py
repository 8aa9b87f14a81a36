"""Small designs whose hangs, and whose starvation, were derived by hand: one mechanism each, and often its near miss."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import fencepost as fp
import pytest
from fencepost.proofs.liveness import report
from fencepost.proofs.liveness.progress import findings
from fencepost.proofs.liveness.search import search

Build = Callable[[fp.Design], None]
CASES: list[tuple[str, Build, str | None, tuple[str, ...]]] = []
"""Name, design, the hang or None, what is told besides."""


def case(hang: str | None, *progress: str, **options: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a design, called with these options, with its verdict."""

    def add(build: Callable[..., None]) -> Callable[..., None]:
        label = build.__name__ + "".join(f" {key}={value}" for key, value in options.items())
        CASES.append((label, lambda d: build(d, **options), hang, progress))
        return build

    return add


# ---------------------------------------------------------------- locks and semaphores


@case(None, "starvation a")
def a_try_inside_a_lock(d: fp.Design) -> None:
    """Whoever tries never waits; but the other one, which holds b, can find a taken again each time."""
    a, b, data = d.lock("a"), d.lock("b"), d.pageable("data")

    @d.loop("tries")
    def tries() -> None:
        with a:
            if b.try_acquire():
                data.write()
                b.release()

    @d.loop("waits")
    def waits() -> None:
        with b, a:
            data.read()


@case(None)
def two_that_try(d: fp.Design) -> None:
    """Each lets go of what the other one waits for, and does something else before it takes it again."""
    a, b, data = d.lock("a"), d.lock("b"), d.pageable("data")

    def thread(first: fp.Lock, second: fp.Lock) -> Callable[[], None]:
        def body() -> None:
            with first:
                if second.try_acquire():
                    data.write()
                    second.release()
            data.read()

        return body

    d.loop("one")(thread(a, b))
    d.loop("two")(thread(b, a))


@case("no source a", others=False)
@case("deadlock a", others=True)
def a_lock_taken_twice(d: fp.Design, others: bool) -> None:
    a, data = d.lock("a"), d.pageable("data")

    @d.loop("one")
    def one() -> None:
        with a, a:
            data.write()

    if others:

        @d.loop("two")
        def two() -> None:
            with a:
                data.read()


@case("deadlock slots", threads=2, count=2)
@case(None, threads=2, count=3)
@case("deadlock slots", threads=3, count=3)
@case(None, "starvation slots", threads=3, count=4)
def two_tokens_each(d: fp.Design, threads: int, count: int) -> None:
    slots, data = d.semaphore("slots", count), d.pageable("data")

    def body() -> None:
        slots.acquire()
        slots.acquire()
        data.read()
        slots.release()
        slots.release()

    for number in range(threads):
        d.loop(f"thread {number}")(body)


@case("no source a")
def a_script_that_ends_with_the_lock(d: fp.Design) -> None:
    a, data = d.lock("a"), d.pageable("data")

    @d.script("first")
    def first() -> None:
        a.acquire()
        data.write()

    @d.script("second")
    def second() -> None:
        with a:
            data.read()


# ---------------------------------------------------------------- queues


@case("no source q")
def a_thread_that_fills_its_own_queue(d: fp.Design) -> None:
    q = d.queue("q", capacity=1, item=())

    @d.loop("one")
    def one() -> None:
        q.put()
        q.put()
        q.get()
        q.get()


@case(None, begins=True)
@case("deadlock q3", begins=False)
def three_in_a_ring(d: fp.Design, begins: bool) -> None:
    q1, q2, q3 = (d.queue(f"q{k}", capacity=1, item=()) for k in (1, 2, 3))

    @d.loop("a")
    def a() -> None:
        if begins:
            q1.put()
            q3.get()
        else:
            q3.get()
            q1.put()

    @d.loop("b")
    def b() -> None:
        q1.get()
        q2.put()

    @d.loop("c")
    def c() -> None:
        q2.get()
        q3.put()


@case(None, ahead=3)
@case("deadlock q1", ahead=4)
def bounded_both_ways(d: fp.Design, ahead: int) -> None:
    """One item in each queue and one in the hands of the worker: the fourth finds no room."""
    q1, q2 = (d.queue(f"q{k}", capacity=1, item=()) for k in (1, 2))

    @d.loop("client")
    def client() -> None:
        for _ in range(ahead):
            q1.put()
        for _ in range(ahead):
            q2.get()

    @d.loop("worker")
    def worker() -> None:
        q1.get()
        q2.put()


@case("no source ack")
def a_poll_for_two_where_one_comes(d: fp.Design) -> None:
    """Who polls waits for nothing, and still the other one is never answered."""
    q, ack = d.queue("q", capacity=2, item=()), d.queue("ack", capacity=1, item=())

    @d.loop("producer")
    def producer() -> None:
        q.put()
        ack.get()

    @d.loop("consumer")
    def consumer() -> None:
        if q.holds(2):
            q.get()
            q.get()
            ack.put()


@case("no source q")
def a_setup_that_waits_for_a_loop(d: fp.Design) -> None:
    q = d.queue("q", capacity=1, item=())

    @d.setup
    def setup() -> None:
        q.get()

    @d.loop("producer")
    def producer() -> None:
        q.put()


@case(None, idle=True)
@case("no source q", idle=False)
def a_worker_after_the_last_item(d: fp.Design, idle: bool) -> None:
    q = d.queue("q", capacity=1, item=())

    @d.script("producer")
    def producer() -> None:
        q.put()

    @d.loop("worker", idle=idle)
    def worker() -> None:
        q.get()


# ---------------------------------------------------------------- flags, counters, conditions, pools


@case("lost signal ready")
def set_and_cleared(d: fp.Design) -> None:
    ready = d.flag("ready")

    @d.script("one")
    def one() -> None:
        ready.set()
        ready.clear()

    @d.script("two")
    def two() -> None:
        ready.wait()


@case("no source made", adds=2)
@case(None, adds=3)
def a_counter_that_stops_short(d: fp.Design, adds: int) -> None:
    made = d.counter("made")

    @d.script("one")
    def one() -> None:
        for _ in range(adds):
            made.add()

    @d.script("two")
    def two() -> None:
        made.wait(3)


@case("no source go", way="one")
@case("no source go", way="all")
@case(None, way="predicate")
def two_scripts_that_wait_for_a_notify(d: fp.Design, way: str) -> None:
    """One notify is too few, and notify_all may come before somebody waits; whoever tests first does not wait in vain."""
    lock, ready = d.lock("lock"), d.flag("ready")
    go = d.condition("go", lock, waiters=2)

    def waits() -> None:
        with lock:
            if way != "predicate" or not ready.is_set():
                go.wait()

    d.script("one")(waits)
    d.script("two")(waits)

    @d.script("notifier")
    def notifier() -> None:
        with lock:
            ready.set()
            if way == "one":
                go.notify()
            else:
                go.notify_all()


@case("deadlock rows", size=2)
@case(None, size=3)
def two_rows_each(d: fp.Design, size: int) -> None:
    rows = d.pool("rows", size=size, of="row")

    def body() -> None:
        first, second = rows.take("first"), rows.take("second")
        rows.give(first)
        rows.give(second)

    d.loop("one")(body)
    d.loop("two")(body)


@case("deadlock word", stores="after the take")
@case(None, stores="before")
def a_token_behind_a_record_behind_a_flag(d: fp.Design, stores: str) -> None:
    rows, word, stream = d.pool("rows", size=1, of="row"), d.device_flag("word"), d.stream("s")
    used, there = d.event("used"), d.queue("there", capacity=1, item=())

    @d.script("first")
    def first() -> None:
        row = rows.take()
        stream.wait_value(word, 1)
        used.record(stream)
        rows.give(row, after=used)
        there.put()

    @d.script("second")
    def second() -> None:
        there.get()
        if stores == "before":
            word.store(1)
        rows.give(rows.take())
        if stores != "before":
            word.store(1)


@case(None, "lost signal word", "starvation word")
def two_hosts_and_one_flag(d: fp.Design) -> None:
    """One store for two that reset it: the other one may come first each time, and two stores may be one."""
    word = d.device_flag("word")

    def waits() -> None:
        word.wait(1, reset=True)

    d.loop("one")(waits)
    d.loop("two")(waits)

    @d.loop("stores")
    def stores() -> None:
        word.store(1)


# ---------------------------------------------------------------- device flags and graphs


@case("lost signal word", ordered=False)
@case(None, ordered=True)
def two_stores_for_two_waits(d: fp.Design, ordered: bool) -> None:
    word, stream = d.device_flag("word"), d.stream("s")

    @d.script("host")
    def host() -> None:
        stream.wait_value(word, 1, reset=True)
        word.store(1)
        if ordered:
            stream.synchronize()
        stream.wait_value(word, 1, reset=True)
        word.store(1)
        stream.synchronize()


@case("no source word", value=1)
@case(None, value=2)
def a_value_that_is_never_reached(d: fp.Design, value: int) -> None:
    word, stream = d.device_flag("word"), d.stream("s")

    @d.script("host")
    def host() -> None:
        stream.wait_value(word, 2)
        word.store(value)
        stream.synchronize()


@case("lost signal word")
def stored_and_taken_back(d: fp.Design) -> None:
    word = d.device_flag("word")

    @d.script("one")
    def one() -> None:
        word.store(1)
        word.store(0)

    @d.script("two")
    def two() -> None:
        word.wait(1)


@case("deadlock word", stores=1)
@case(None, stores=2)
def two_replays_of_a_wait(d: fp.Design, stores: int) -> None:
    """A wait in a graph resets its flag: each replay needs a store of its own."""
    word, stream, graph = d.device_flag("word"), d.stream("s"), d.graph("decode")

    @d.setup
    def capture() -> None:
        with graph.capture(stream):
            stream.wait_value(word, 1, reset=True)

    @d.loop("host", stream=stream)
    def host() -> None:
        for number in range(2):
            graph.replay()
            if number < stores:
                word.store(1)
                if stores == 2:
                    stream.synchronize()
        stream.synchronize()


@case("no source word", behind=True)
@case(None, behind=False)
def a_store_behind_its_own_wait(d: fp.Design, behind: bool) -> None:
    word, stream, other, graph = d.device_flag("word"), d.stream("s"), d.stream("t"), d.graph("decode")

    @d.setup
    def capture() -> None:
        with graph.capture(stream):
            stream.wait_value(word, 1, reset=True)

    @d.loop("host", stream=stream)
    def host() -> None:
        graph.replay()
        (stream if behind else other).write_value(word, 1)
        stream.synchronize()


@case("deadlock first", crossed=True)
@case(None, crossed=False)
def two_streams_that_wait_for_each_other(d: fp.Design, crossed: bool) -> None:
    first, s, t, done = d.device_flag("first"), d.stream("s"), d.stream("t"), d.event("done")

    @d.loop("host")
    def host() -> None:
        s.wait_value(first, 1, reset=True)
        done.record(s)
        if crossed:
            t.wait_event(done)
        t.write_value(first, 1)
        t.synchronize()
        s.synchronize()


@case("deadlock word", first="wait")
@case(None, first="store")
def a_host_that_stores_after_it_waited(d: fp.Design, first: str) -> None:
    word, stream, done = d.device_flag("word"), d.stream("s"), d.event("done")

    @d.loop("host")
    def host() -> None:
        stream.wait_value(word, 1, reset=True)
        done.record(stream)
        if first == "wait":
            done.synchronize()
        word.store(1)
        done.synchronize()


@case("no source word")
def a_store_behind_a_query_that_never_says_yes(d: fp.Design) -> None:
    word, stream, done = d.device_flag("word"), d.stream("s"), d.event("done")

    @d.setup
    def enqueue() -> None:
        stream.wait_value(word, 1)
        done.record(stream)

    @d.loop("host")
    def host() -> None:
        if done.query():
            word.store(1)


@case(None, way="polls")
@case("deadlock word", way="waits")
def a_query_in_place_of_a_wait(d: fp.Design, way: str) -> None:
    """Who only asks goes on to the store."""
    word, stream, done = d.device_flag("word"), d.stream("s"), d.event("done")

    @d.loop("host")
    def host() -> None:
        stream.wait_value(word, 1, reset=True)
        done.record(stream)
        if way == "waits":
            done.synchronize()
        else:
            done.query()
        word.store(1)
        stream.synchronize()


@case("deadlock word", blocking=True)
@case(None, blocking=False)
def work_on_the_legacy_stream(d: fp.Design, blocking: bool) -> None:
    """S11: work on the legacy stream comes behind that of blocking streams, and so behind their waits."""
    word, stream, data = d.device_flag("word"), d.stream("s", blocking=blocking), d.device("data")

    @d.loop("host")
    def host() -> None:
        stream.wait_value(word, 1, reset=True)
        d.launch("kernel", writes=[data], stream=d.default_stream())
        d.default_stream().synchronize()
        word.store(1)
        stream.synchronize()


@case("deadlock word", apart=False)
@case(None, "lost signal word", apart=True)
def a_device_wait_in_one_process(d: fp.Design, apart: bool) -> None:
    """Synchronising the device waits for the streams of one's own process."""
    word, names = d.device_flag("word"), ("p", "q") if apart else ("p", "p")
    for name in dict.fromkeys(names):
        with d.process(name):
            if name == names[0]:
                stream = d.stream("s")

    @d.loop("one", process=names[0])
    def one() -> None:
        stream.wait_value(word, 1, reset=True)
        stream.synchronize()

    @d.loop("two", process=names[1])
    def two() -> None:
        d.synchronize()
        word.store(1)
        d.synchronize()


@case("deadlock told", depends=True)
@case(None, "over-wait copied", depends=False)
def a_late_wait_for_a_shared_event(d: fp.Design, depends: bool) -> None:
    """Case 52: a late wait is bound to the next record. That is a hang when the next step needs what the waiter would tell."""
    copy, copied, told = d.stream("copy"), d.event("copied"), d.device_flag("told")
    ids, results = d.device("ids"), d.queue("results", capacity=1, item=())

    @d.setup
    def begin() -> None:
        told.store(1)

    @d.loop("worker")
    def worker() -> None:
        if depends:
            copy.wait_value(told, 1, reset=True)
        d.launch("sample", writes=[ids], stream=copy)
        copied.record(copy)
        results.put()

    @d.loop("output thread")
    def output() -> None:
        results.get()
        copied.synchronize()
        if depends:
            told.store(1)


# ---------------------------------------------------------------- callbacks, the interpreter lock, the collector


@case("deadlock notify returned", lock="held")
@case(None, lock="released")
def a_wait_for_a_callback_under_the_interpreter_lock(d: fp.Design, lock: str) -> None:
    gil, stream, state = d.lock("GIL"), d.stream("s"), d.pageable("state")

    @d.callback("notify", stream)
    def notify() -> None:
        with gil:
            state.read()

    @d.loop("main")
    def main() -> None:
        with gil:
            state.write()
            notify.launch()
            free: AbstractContextManager[object] = gil.released() if lock == "released" else nullcontext()
            with free:
                stream.synchronize()


@case("deadlock notify returned", first="wait")
@case(None, first="put")
def a_callback_that_waits_for_the_host(d: fp.Design, first: str) -> None:
    stream, q = d.stream("s"), d.queue("q", capacity=1, item=())

    @d.callback("notify", stream)
    def notify() -> None:
        q.get()

    @d.loop("main")
    def main() -> None:
        notify.launch()
        if first == "put":
            q.put()
        stream.synchronize()
        if first == "wait":
            q.put()


@case(None, garbage=2, turns="one")
@case("deadlock lock", garbage=3, turns="one")
@case("deadlock lock", garbage=1, turns="many")
def a_finaliser_that_takes_the_mutators_lock(d: fp.Design, garbage: int, turns: str) -> None:
    """One in the hands of the collector, one in its queue: the third is put under the lock that the finaliser needs.

    That may be in a later turn: the mutator may have the lock again before the finaliser has had it once.
    """
    lock, data = d.lock("lock"), d.pageable("data")

    def finalise(_x: fp.Tensor) -> None:
        with lock:
            data.write()

    collector = d.collector("GC", finaliser=finalise)

    def mutate() -> None:
        with lock:
            for number in range(garbage):
                collector.unreachable(d.empty(f"array {number}"))

    (d.loop if turns == "many" else d.script)("mutator")(mutate)


# ---------------------------------------------------------------- collectives


def ranks(d: fp.Design, body: Callable[[str], None], kind: str = "loop") -> None:
    """The same body on two ranks, each a process with a GPU of its own."""
    for number, name in enumerate(("r0", "r1")):
        with d.process(name, gpu=number):

            def run(name: str = name) -> Callable[[], None]:
                return lambda: body(name)

            (d.loop if kind == "loop" else d.script)(name)(run())


@case(None, blocking=False)
@case("deadlock X r1 -> r0", blocking=True)
def two_groups_in_two_orders(d: fp.Design, blocking: bool) -> None:
    """Each group has a stream of its own, so that only hosts that wait in between stop each other."""
    groups = [d.communicator(name, ("r0", "r1"), blocking_wait=blocking) for name in ("X", "Y")]
    data = {(name, k): d.device(f"data {k} of {name}", gpu=int(name[1])) for name in ("r0", "r1") for k in (0, 1)}

    def body(name: str) -> None:
        works = []
        for k in (0, 1) if name == "r0" else (1, 0):
            works.append(groups[k].all_reduce(data[name, k], async_op=True))
            if blocking:
                works[-1].wait()
        d.synchronize()

    ranks(d, body)


@case("collective mismatch g r0 -> r1")
def one_group_in_two_orders(d: fp.Design) -> None:
    group = d.communicator("g", ("r0", "r1"))
    data = {name: d.device(f"data of {name}", gpu=int(name[1])) for name in ("r0", "r1")}

    def body(name: str) -> None:
        for what in ("reduce", "send") if name == "r0" else ("send", "reduce"):
            if what == "reduce":
                group.all_reduce(data[name])
            else:
                group.broadcast(data[name], root="r0")
        d.synchronize()

    ranks(d, body)


@case("collective mismatch g r1 -> r0", matches=False)
@case(None, matches=True)
def sizes_that_differ(d: fp.Design, matches: bool) -> None:
    group = d.communicator("g", ("r0", "r1"))
    data = {name: d.device(f"data of {name}", gpu=int(name[1])) for name in ("r0", "r1")}

    def body(name: str) -> None:
        group.all_reduce(data[name], match="4 MB" if matches else name)
        d.synchronize()

    ranks(d, body)


@case("collective mismatch g r1 -> r0")
def a_rank_that_may_skip_its_only_call(d: fp.Design) -> None:
    group = d.communicator("g", ("r0", "r1"))
    data = {name: d.device(f"data of {name}", gpu=int(name[1])) for name in ("r0", "r1")}

    def body(name: str) -> None:
        if name == "r0" or d.choose("r1 has work", ["yes", "no"]) == "yes":
            group.all_reduce(data[name])
        d.synchronize()

    ranks(d, body, "script")


@case(None, meets=False)
@case("deadlock g r1 -> r0", meets=True)
def two_calls_against_one(d: fp.Design, meets: bool) -> None:
    """The calls of different turns meet, unless the hosts meet in each turn: then one waits on its device, the other for it."""
    group, hosts = d.communicator("g", ("r0", "r1")), d.communicator("hosts", ("r0", "r1"))
    data = {name: d.device(f"data of {name}", gpu=int(name[1])) for name in ("r0", "r1")}

    def body(name: str) -> None:
        for _ in range(2 if name == "r0" else 1):
            group.all_reduce(data[name])
        d.synchronize()
        if meets:
            hosts.host_barrier()

    ranks(d, body)


@case(None, protocol="eager")
@case("deadlock g r0 -> r1 (send)", protocol="rendezvous")
def both_send_first(d: fp.Design, protocol: str) -> None:
    group = d.communicator("g", ("r0", "r1"), protocol=protocol)  # type: ignore[arg-type]
    data = {name: d.device(f"data of {name}", gpu=int(name[1])) for name in ("r0", "r1")}
    got = {name: d.device(f"got by {name}", gpu=int(name[1])) for name in ("r0", "r1")}

    def body(name: str) -> None:
        other = "r1" if name == "r0" else "r0"
        group.send(data[name], other)
        d.synchronize()
        group.recv(got[name], other)
        d.synchronize()

    ranks(d, body)


@case(None, way="exchange")
@case(None, way="one of them receives first")
def both_send_and_go_on(d: fp.Design, way: str) -> None:
    group = d.communicator("g", ("r0", "r1"), protocol="rendezvous")
    data = {name: d.device(f"data of {name}", gpu=int(name[1])) for name in ("r0", "r1")}
    got = {name: d.device(f"got by {name}", gpu=int(name[1])) for name in ("r0", "r1")}

    def body(name: str) -> None:
        other = "r1" if name == "r0" else "r0"
        if way == "exchange":
            group.exchange(sends=[(data[name], other)], recvs=[(got[name], other)]).wait()
        elif name == "r0":
            group.send(data[name], other)
            group.recv(got[name], other)
        else:
            group.recv(got[name], other)
            group.send(data[name], other)
        d.synchronize()

    ranks(d, body)


@case("collective mismatch g r0 -> r1 (send)")
def a_call_that_nobody_answers(d: fp.Design) -> None:
    """Eager: nobody waits, and the call is wrong all the same."""
    group = d.communicator("g", ("r0", "r1"), capacity=2)
    data = d.device("data", gpu=0)

    def body(name: str) -> None:
        if name == "r0":
            group.send(data, "r1")
        d.synchronize()

    ranks(d, body, "script")


# ---------------------------------------------------------------- the verdicts


@pytest.mark.parametrize(("build", "hang", "progress"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_verdict(build: Build, hang: str | None, progress: tuple[str, ...]) -> None:
    d = fp.Design("small")
    build(d)
    program = d.build()
    found = search(program)
    assert found.bounded is None
    bounds = set[str]()
    hangs = [one.partition(" - ")[0] for one in report.hangs(program, found)]
    assert hangs == ([] if hang is None else [hang])
    if hang is None:
        assert tuple(one.partition(" - ")[0] for one in findings(program, bounds=bounds)) == progress
        assert not bounds
