"""Where streams meet on the machine: signals and awaits, device flags, and everything that is pending behind them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fencepost.model import program as p
from fencepost.model.platform import environment
from fencepost.simulator.machine import Machine, Outcome
from fencepost.simulator.machine_script import DEFAULTS, Follow, Random
from fencepost.simulator.machine_state import FOREVER

from program_writer import Writer, r, w


class Late(Follow):
    """Holds back work by its operation's name or class until nothing else can move; threads move in `order`."""

    def __init__(self, *names: str, order: str = "", delay: int = FOREVER, fresh: bool = False) -> None:
        super().__init__(DEFAULTS)
        self.names, self.delay, self.order, self.fresh = names, delay, list(order), fresh

    def stall(self, work: Any) -> tuple[int, int] | None:
        name = getattr(work.operation, "name", type(work.operation).__name__)
        return (self.delay, 0) if name in self.names else None

    def thread(self, candidates: list[Any]) -> int:
        """The first of the order that can move; each entry counts for one step, then the first candidate."""
        while self.order:
            wanted = self.order[0]
            found = [k for k, th in enumerate(candidates) if th.name == f"t{wanted}"]
            if not found:
                return 0
            self.order.pop(0)
            return found[0]
        return 0

    def block(self, thread: Any, node: int, options: list[Any]) -> int:
        return len(options) - 1 if self.fresh else 0


class Small(Writer):
    """Two buffers, three streams, a channel, a device flag and an event; threads are given as lists of operations."""

    def __init__(self, *threads: Any, capacity: int | None = None, kind: str = "script", gpu: int = 0) -> None:
        super().__init__()
        self.x, self.y = p.Obj(self.add(p.Memory("x", "device"))), p.Obj(self.add(p.Memory("y", "pinned")))
        self.a, self.b, self.c = (p.Obj(self.add(p.Stream(name, gpu=gpu))) for name in "abc")
        self.channel = self.add(p.Channel("channel", capacity))
        self.word = self.add(p.DeviceFlag("word"))
        self.e = p.Obj(self.add(p.Event("e")))
        for body in threads:
            made = self.thread(kind)
            made.body = body(self)

    def kernel(self, name: str, access: p.Access, stream: p.Operand) -> p.Operation:
        return p.Launch(name, stream, (access,))

    def run(self, chooser: Any, env: str | None = None, turns: int = 1, stop: bool = False) -> Outcome:
        outcome = Machine(self.program("meeting"), environment=environment(env)).run(chooser, turns=turns, stop=stop)
        assert outcome.fault is None
        return outcome


def wrongs(outcome: Outcome) -> list[tuple[str, str]]:
    return [(o.object, o.kind) for o in outcome.observations]


def sender(m: Small) -> list[Any]:
    return [m.kernel("produce", w(m.x), m.a), p.Signal(m.channel, m.a)]


def receiver(m: Small) -> list[Any]:
    return [p.Await(m.channel, m.b), m.kernel("consume", r(m.x), m.b)]


def hasty(m: Small) -> list[Any]:
    return [p.Signal(m.channel, m.a), m.kernel("produce", w(m.x), m.a)]


@pytest.mark.parametrize("order", ["", "10", "0101", "1010"])
def test_what_is_before_the_signal_is_before_what_follows_the_await(order: str) -> None:
    for held in ("produce", "consume", "Signal", "Await"):
        assert wrongs(Small(sender, receiver).run(Late(held, order=order))) == []


def test_what_is_behind_the_signal_is_not() -> None:
    assert wrongs(Small(hasty, receiver).run(Late("produce"))) == [("x", "stale")]
    assert wrongs(Small(hasty, receiver).run(Late("consume"))) == []


def test_an_await_is_no_edge_to_the_sender() -> None:
    """A root does not wait: what the receiver did before is not before the sender's next work."""

    def sends(m: Small) -> list[Any]:
        return [p.Signal(m.channel, m.a), m.kernel("overwrite", w(m.x), m.a)]

    def reads(m: Small) -> list[Any]:
        return [m.kernel("read", r(m.x), m.b), p.Await(m.channel, m.b)]

    assert wrongs(Small(sends, reads).run(Late("read", order="11"))) == [("x", "stale")]


def test_what_waits_is_pending_in_the_reference_too() -> None:
    """The consumer's call comes first; nothing has happened at that time, so nothing is undefined or stale."""
    outcome = Small(sender, receiver).run(Late(order="11"))
    assert outcome.ended == "done" and wrongs(outcome) == []


@pytest.mark.parametrize("how", ["event", "stream", "device"])
def test_hosts_wait_for_what_is_pending(how: str) -> None:
    def waits(m: Small) -> list[Any]:
        wait = {"event": p.EventSync(m.e), "stream": p.StreamSync(m.b), "device": p.DeviceSync()}[how]
        return [*receiver(m), p.Record(m.e, m.b), wait, p.Host("check", (r(m.y),))]

    def alone(m: Small) -> list[Any]:
        return waits(m)

    stuck = Small(alone).run(Late())
    assert stuck.ended == "blocked" and stuck.blocked == ["t0"]
    assert [(one.who, one.what) for one in stuck.waiting] == [
        ("t0", "the work in 'b'"), ("b", "a signal on 'channel'"),
    ]  # fmt: skip
    assert [one.step for one in stuck.waiting] == [3, 0]
    assert Small(sender, waits).run(Late("produce", order="1111")).ended == "done"


def asks(question: str) -> Any:
    def body(m: Small) -> list[Any]:
        asked = p.EventQuery(m.e) if question == "event" else p.StreamQuery(m.b)
        read = p.Host("look", (r(m.y),))
        return [p.Await(m.channel, m.b), m.kernel("fill", w(m.y), m.b), p.Record(m.e, m.b), (asked, {"yes": [read], "no": []})]

    return body


@pytest.mark.parametrize("question", ["event", "stream"])
def test_queries_of_what_is_pending_say_no(question: str) -> None:
    outcome = Small(asks(question), sender).run(Late(order="0000"))
    assert [s.answer for s in outcome.run.steps if s.answer] == ["no"]
    outcome = Small(asks(question), sender).run(Late(order="1100"))
    assert [s.answer for s in outcome.run.steps if s.answer] == ["yes"] and wrongs(outcome) == []
    for seed in range(60):
        assert wrongs(Small(asks(question), sender).run(Random(seed))) == []


def test_a_stream_that_waits_for_a_pending_record_is_pending_itself() -> None:
    """On that very record: a later one on another stream changes nothing."""

    def waits(m: Small) -> list[Any]:
        return [p.Await(m.channel, m.b), p.Record(m.e, m.b), p.StreamWaitEvent(m.c, m.e), p.Record(m.e, m.a),
                m.kernel("consume", r(m.x), m.c)]  # fmt: skip

    for held in ("produce", "consume"):
        assert wrongs(Small(waits, sender).run(Late(held, order="00000"))) == []
    stuck = Small(waits).run(Late())
    assert stuck.ended == "blocked" and not stuck.blocked
    assert [(one.who, one.on_device) for one in stuck.waiting] == [("b", True)]


def test_a_capacity_holds_the_stream_and_gives_no_edge() -> None:
    def twice(m: Small) -> list[Any]:
        return [p.Signal(m.channel, m.a), p.Signal(m.channel, m.a), m.kernel("overwrite", w(m.x), m.a)]

    def reads(m: Small) -> list[Any]:
        return [m.kernel("read", r(m.x), m.b), p.Await(m.channel, m.b)]

    stuck = Small(twice, capacity=1).run(Late())
    assert [one.what for one in stuck.waiting] == ["room in 'channel', which holds 1"]
    assert Small(twice, capacity=2).run(Late()).ended == "done"
    assert Small(twice).run(Late()).ended == "done"
    # The read has ended when the await makes room, because a stream is a queue; nothing else would show it.
    assert wrongs(Small(twice, reads, capacity=1).run(Late("read", order="11"))) == []


def test_room_is_no_edge_for_the_machine_s_other_streams() -> None:
    """The reader is on a stream of its own: room was made, and the read is late."""

    def twice(m: Small) -> list[Any]:
        return [p.Signal(m.channel, m.a), p.Signal(m.channel, m.a), m.kernel("overwrite", w(m.x), m.a)]

    def reads(m: Small) -> list[Any]:
        return [m.kernel("read", r(m.x), m.c), p.Await(m.channel, m.b)]

    assert wrongs(Small(twice, reads, capacity=1).run(Late("read", order="11"))) == [("x", "stale")]


def test_another_tag_at_the_head_never_matches() -> None:
    def one(m: Small) -> list[Any]:
        return [p.Signal(m.channel, m.a, "reduce")]

    def other(m: Small) -> list[Any]:
        return [p.Await(m.channel, m.b, "gather"), m.kernel("consume", r(m.x), m.b), p.StreamSync(m.b)]

    outcome = Small(one, other).run(Late())
    assert outcome.ended == "blocked" and outcome.blocked == ["t1"]
    assert outcome.waiting[-1].what == "'gather' on 'channel', where 'reduce' comes first"


def test_messages_keep_their_order() -> None:
    def both(m: Small) -> list[Any]:
        return [p.Signal(m.channel, m.a, "one"), m.kernel("produce", w(m.x), m.a), p.Signal(m.channel, m.a, "two")]

    def takes(m: Small) -> list[Any]:
        return [p.Await(m.channel, m.b, "one"), p.Await(m.channel, m.b, "two"), m.kernel("consume", r(m.x), m.b)]

    assert wrongs(Small(both, takes).run(Late("produce"))) == []

    def hurries(m: Small) -> list[Any]:
        return [p.Await(m.channel, m.b, "one"), m.kernel("consume", r(m.x), m.b), p.Await(m.channel, m.b, "two")]

    assert wrongs(Small(both, hurries).run(Late("produce"))) == [("x", "stale")]


# ---------------------------------------------------------------- flags


def stores(m: Small) -> list[Any]:
    return [m.kernel("produce", w(m.x), m.a), p.StoreFlag(m.word, 1, m.a)]


def waits(m: Small) -> list[Any]:
    return [p.WaitFlag(m.word, 1, m.b), m.kernel("consume", r(m.x), m.b)]


def test_a_store_is_before_what_its_wait_lets_through() -> None:
    for held in ("produce", "consume", "StoreFlag", "WaitFlag"):
        assert wrongs(Small(stores, waits).run(Late(held, order="11"))) == []
    stuck = Small(waits).run(Late())
    assert [(one.who, one.what) for one in stuck.waiting] == [("b", "'word' to be 1; it is 0")]


def test_a_host_stores_at_once_and_spins() -> None:
    def host(m: Small) -> list[Any]:
        return [p.Host("write", (w(m.y),)), p.StoreFlag(m.word, 2)]

    def reads(m: Small) -> list[Any]:
        return [p.WaitFlag(m.word, 1, m.b), m.kernel("read", r(m.y), m.b)]

    def spins(m: Small) -> list[Any]:
        return [p.WaitFlag(m.word, 2), p.Host("read", (r(m.y),))]

    for other in (reads, spins):
        for order in ("00", "11"):
            assert wrongs(Small(host, other).run(Late("write", order=order))) == []
    stuck = Small(spins).run(Late())
    assert stuck.blocked == ["t0"] and stuck.waiting[0].what == "'word' to be 2; it is 0" and stuck.waiting[0].step is None


def test_a_store_too_low_lets_nobody_through() -> None:
    def low(m: Small) -> list[Any]:
        return [p.StoreFlag(m.word, 1, m.a)]

    def high(m: Small) -> list[Any]:
        return [p.WaitFlag(m.word, 2, m.b), p.StreamSync(m.b)]

    assert Small(low, high).run(Late()).blocked == ["t1"]


def test_a_wait_resets_where_it_is_told_to() -> None:
    def twice(reset: bool) -> Any:
        return lambda m: [p.WaitFlag(m.word, 1, m.b, reset), p.WaitFlag(m.word, 1, m.b, reset), p.StreamSync(m.b)]

    assert Small(stores, twice(False)).run(Late()).ended == "done"
    assert Small(stores, twice(True)).run(Late()).blocked == ["t1"]

    def host(m: Small) -> list[Any]:
        return [p.WaitFlag(m.word, 1, None, True), p.WaitFlag(m.word, 1)]

    assert Small(stores, host).run(Late()).blocked == ["t1"]


def test_a_signal_can_be_lost() -> None:
    """Set and reset: a wait that looks late never sees it; one that looks in time does."""

    def pulse(m: Small) -> list[Any]:
        return [p.StoreFlag(m.word, 1, m.a), p.StoreFlag(m.word, 0, m.a)]

    def looks(m: Small) -> list[Any]:
        return [p.WaitFlag(m.word, 1, m.b), p.StreamSync(m.b)]

    assert Small(pulse, looks).run(Late(order="11")).ended == "done"
    assert Small(pulse, looks).run(Late("WaitFlag", order="11")).blocked == ["t1"]
    assert Small(pulse, looks).run(Late(order="00")).blocked == ["t1"]


def test_only_the_store_that_is_there_counts() -> None:
    """The second store overwrites the first one: what is before the first is not before the wait."""

    def one(m: Small) -> list[Any]:
        return [m.kernel("produce", w(m.x), m.a), p.StoreFlag(m.word, 1, m.a)]

    def two(m: Small) -> list[Any]:
        return [p.StoreFlag(m.word, 1, m.c)]

    assert wrongs(Small(one, two, waits).run(Late("produce"))) == [("x", "stale")]
    assert wrongs(Small(one, two, waits).run(Late("WaitFlag"))) == []


# ---------------------------------------------------------------- around


def test_one_hardware_queue_can_hang() -> None:
    """The await is in front of the signal that it waits for (S116)."""

    def both(m: Small) -> list[Any]:
        return [*receiver(m), *sender(m), p.StreamSync(m.b)]

    assert Small(both).run(Late()).ended == "done"
    assert Small(both).run(Late(), env="one-hardware-queue").blocked == ["t0"]


def test_a_noted_block_is_not_handed_out_while_its_use_is_pending() -> None:
    def body(noted: bool) -> Any:
        def uses(m: Small) -> list[Any]:
            t = m.threads[-1]
            first, second = t.local("first", p.MEMORY), t.local("second", p.MEMORY)
            note = [p.RecordStream(p.Local(first), m.b)] if noted else []
            return [p.Alloc(first, "device", m.a), m.kernel("fill", w(p.Local(first)), m.a), p.WaitStream(m.b, m.a),
                    p.Await(m.channel, m.b), m.kernel("use", r(p.Local(first)), m.b), *note, p.Drop(first),
                    p.Alloc(second, "device", m.a), m.kernel("fill again", w(p.Local(second)), m.a)]  # fmt: skip

        return uses

    def late(m: Small) -> list[Any]:
        return [p.Signal(m.channel, m.c)]

    assert wrongs(Small(body(True), late).run(Late(order="0" * 12))) == []
    assert wrongs(Small(body(False), late).run(Late("use", order="0" * 12))) == [("first", "stale")]


def test_the_same_stream_may_reuse_a_block_whose_use_is_pending() -> None:
    def uses(m: Small) -> list[Any]:
        t = m.threads[-1]
        first, second = t.local("first", p.MEMORY), t.local("second", p.MEMORY)
        return [p.Alloc(first, "device", m.a), p.Await(m.channel, m.a), m.kernel("fill", w(p.Local(first)), m.a),
                m.kernel("use", r(p.Local(first)), m.a), p.Drop(first), p.Alloc(second, "device", m.a),
                m.kernel("fill again", w(p.Local(second)), m.a), m.kernel("use again", r(p.Local(second)), m.a)]  # fmt: skip

    def late(m: Small) -> list[Any]:
        return [p.Signal(m.channel, m.c)]

    for held in ("fill", "use", "fill again", "nothing"):
        outcome = Small(uses, late).run(Late(held, order="0" * 12))
        assert outcome.ended == "done" and wrongs(outcome) == []
    blocks = [s.block for s in outcome.run.steps if s.block is not None]
    assert blocks == [0, 0]


def test_a_run_with_meetings_replays() -> None:
    made = Small(stores, waits, sender, receiver, asks("event"), capacity=1)
    machine = Machine(made.program("meeting"))
    for seed in range(40):
        one = machine.run(Random(seed), turns=2, stop=False)
        again = machine.run(Follow(one.script), turns=2, stop=False)
        assert msgspec.structs.asdict(one) == msgspec.structs.asdict(again)


def test_loops_meet_step_by_step() -> None:
    """An all-reduce of two ranks, each step after the other's: no timing breaks it, and without the awaits some does."""

    def rank(me: str, waits: bool) -> Any:
        def body(m: Small) -> list[Any]:
            mine, other = (m.x, m.y) if me == "a" else (m.y, m.x)
            there, here = (m.channel, m.back) if me == "a" else (m.back, m.channel)
            stream = m.a if me == "a" else m.b
            wait = [p.Await(here, stream)] if waits else []
            again = [p.Signal(there, stream, "done"), *([p.Await(here, stream, "done")] if waits else [])]
            return [m.kernel(f"write {me}", w(mine), stream), p.Signal(there, stream), *wait,
                    m.kernel(f"read {me}", r(other), stream), *again]  # fmt: skip

        return body

    class Pair(Small):
        back = 8

    def made(waits: bool) -> Machine:
        pair = Pair(kind="loop")
        pair.back = pair.add(p.Channel("back"))
        for me in "ab":
            pair.thread("loop").body = rank(me, waits)(pair)
        return Machine(pair.program("all-reduce"))

    machine = made(True)
    assert not any(machine.run(Random(seed), turns=4).observations for seed in range(150))
    machine = made(False)
    assert any(machine.run(Random(seed), turns=4).observations for seed in range(150))
