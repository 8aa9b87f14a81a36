"""Certificates of designs whose streams meet: their own relation against the explorer, with and without stretches, and as files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fencepost as fp
import pytest
from fencepost.check import build, cases
from fencepost.cli import run
from fencepost.loader import load
from fencepost.model import program as p
from fencepost.model.platform import platform
from fencepost.proofs.certificates import files, verifying
from fencepost.proofs.certificates.footprint import Class, Footprint
from fencepost.proofs.certificates.invariant import Limits, TooLarge
from fencepost.proofs.certificates.machine import Machine
from fencepost.proofs.certificates.world import Unsupported
from fencepost.proofs.certificates.writing import hazard, write_certificate
from fencepost.proofs.check import check
from fencepost.proofs.explore.search import Budget

from program_writer import r, w
from random_meetings import meetings

CUDA = platform(None)
S, T, X, Y = (p.Obj(k) for k in range(4))
FLAG, EVENT, CHANNEL, BACK = 4, p.Obj(5), 6, 7
OBJECTS: tuple[p.Object, ...] = (
    p.Stream("s"), p.Stream("t"), p.Memory("x", "device"), p.Memory("y", "pinned"), p.DeviceFlag("flag"), p.Event("event"),
    p.Channel("channel", 1), p.Channel("back", 1),
)  # fmt: skip


def found(*threads: tuple[p.Operation, ...]) -> str | None:
    """The class of the hazard of loops that run these operations; None when the certificate's relation has none."""
    made = []
    for number, operations in enumerate(threads):
        last = len(operations) - 1
        nodes = tuple(p.Do(one, n + 1 if n < last else p.END) for n, one in enumerate(operations))
        made.append(p.Thread(f"thread {number}", "loop", nodes, 0))
    result = hazard(p.Program("test", OBJECTS, tuple(made)), CUDA)
    plain = hazard(p.Program("test", OBJECTS, tuple(made)), CUDA, reduce=False)
    assert (result is None) == (plain is None)
    return None if result is None else result[0]


WRITE, READ = p.Launch("write", S, (w(X),)), p.Launch("read", T, (r(X),))
HOST = p.Host("fill", (w(Y),))
COPY = p.Copy(X, Y, S, True)


def test_a_signal_orders_what_is_behind_its_await_and_nothing_else() -> None:
    there, back = (p.Signal(CHANNEL, S), p.Await(BACK, S)), (p.Await(CHANNEL, T), p.Signal(BACK, T))
    one, two = p.StreamSync(S), p.StreamSync(T)
    assert found((WRITE, *there, one), (back[0], READ, back[1], two)) is None
    assert found((there[0], WRITE, there[1], one), (back[0], READ, back[1], two)) == "x"  # behind the signal
    assert found((WRITE, *there, one), (READ, *back, two)) == "x"  # in front of the await
    assert found((WRITE, there[0], one), (back[0], READ, two)) == "x"  # nothing comes back: room is no edge


def test_a_flag_orders_by_the_store_that_is_in_it() -> None:
    ends = (p.StreamSync(S), p.StreamSync(T))
    assert found((WRITE, p.StoreFlag(FLAG, 1, S), p.WaitFlag(FLAG, 1, T, True), READ, *ends)) is None
    assert found((p.StoreFlag(FLAG, 1, S), WRITE, p.WaitFlag(FLAG, 1, T, True), READ, *ends)) == "x"
    # The host's store may be the one that is seen.
    assert found((WRITE, p.StoreFlag(FLAG, 1, S), p.StoreFlag(FLAG, 1), p.WaitFlag(FLAG, 1, T, True), READ, *ends)) == "x"
    # Without a reset it is still set from the turn before.
    assert found((WRITE, p.StoreFlag(FLAG, 1, S), p.WaitFlag(FLAG, 1, T), READ, *ends)) == "x"


def test_a_host_that_waits_for_a_pending_record_is_ordered_by_it() -> None:
    store = (p.WaitFlag(FLAG, 1, S, True), COPY, p.Record(EVENT, S), p.StoreFlag(FLAG, 1))
    assert found((HOST, *store, p.EventSync(EVENT))) is None
    held, end = store[0], (HOST, p.StreamSync(S))
    assert found((held, COPY, p.Record(EVENT, S), p.StoreFlag(FLAG, 1), p.EventSync(EVENT), *end)) is None
    assert found((held, p.Record(EVENT, S), COPY, p.StoreFlag(FLAG, 1), p.EventSync(EVENT), *end)) == "y"
    assert found((held, COPY, p.Record(EVENT, T), p.StoreFlag(FLAG, 1), p.EventSync(EVENT), *end)) == "y"
    assert found((HOST, *store, p.StreamSync(S))) is None
    assert found((held, COPY, p.StoreFlag(FLAG, 1), p.StreamSync(T), *end)) == "y"
    assert found((HOST, *store, p.StreamWaitEvent(T, EVENT), p.StreamSync(T))) is None
    assert found((HOST, *store, p.WaitStream(T, S), p.StreamSync(T))) is None
    assert found((HOST, *store, p.DeviceSync(0, ""))) is None


def test_a_slice_keeps_whatever_decides_what_is_pending() -> None:
    """Only work on other memory is left out."""
    operations = (p.WaitFlag(FLAG, 1, S, True), WRITE, p.Record(EVENT, T), HOST, p.StoreFlag(FLAG, 1), p.StreamSync(S))
    nodes = tuple(p.Do(one, n + 1 if n < 5 else p.END) for n, one in enumerate(operations))
    footprint = Footprint(p.Program("test", OBJECTS, (p.Thread("t", "loop", nodes, 0),)), CUDA)
    assert footprint.slice(Class("memory", 2)) == tuple((0, n) for n in (0, 1, 2, 4, 5))
    assert footprint.slice(Class("memory", 3)) == tuple((0, n) for n in (0, 2, 3, 4, 5))


def freed(noted: bool) -> fp.Design:
    """A block whose use on a side stream is pending when it is freed."""
    d = fp.Design("freed")
    side, flag = d.stream("side"), d.device_flag("flag")

    @d.loop("worker")
    def worker() -> None:
        side.wait_value(flag, 1, reset=True)
        x = d.empty("x")
        d.launch("fill", writes=[x])
        done = d.event("filled")
        done.record()
        side.wait_event(done)
        d.launch("use", reads=[x], stream=side)
        if noted:
            x.record_stream(side)
        x.release()
        again = d.empty("again")
        d.launch("fill again", writes=[again])
        d.launch("use again", reads=[again])
        again.release()
        flag.store(1)
        side.synchronize()

    return d


@pytest.mark.parametrize("noted", [True, False])
def test_a_free_waits_for_noted_work_that_is_pending(noted: bool) -> None:
    program = freed(noted).build()
    result = hazard(program, CUDA)
    assert (result is None) == noted
    assert (check(program, explain=False).verdict == "proved") == noted


def test_pending_work_without_bound_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="pending in stream 's' grows without bound"):
        found((p.WaitFlag(FLAG, 1, S, True), WRITE), (p.StoreFlag(FLAG, 1),))


@pytest.mark.parametrize("block", range(2))
def test_random_programs_agree_with_the_explorer(block: int) -> None:
    """Another relation, another reduction: the same answer."""
    decided = {"proved": 0, "refuted": 0}
    for seed in range(3000 + block * 30, 3000 + block * 30 + 30):
        program = meetings(random.Random(seed), blocks=seed % 2 == 1)
        try:
            result = hazard(program, CUDA, Limits(500, 60.0))
        except (Unsupported, TooLarge):
            continue
        try:
            answer = check(program, budget=Budget(600, 60.0), explain=False).verdict
        except ValueError:
            continue
        if answer in decided:
            decided[answer] += 1
            assert (result is None) == (answer == "proved"), (seed, answer, result)
    assert min(decided.values()) >= 2, decided


def test_stretches_lose_nothing() -> None:
    decided = {True: 0, False: 0}
    for seed in range(4000, 4020):
        program = meetings(random.Random(seed))
        try:
            result, plain = hazard(program, CUDA, Limits(500, 60.0)), hazard(program, CUDA, Limits(800, 60.0), reduce=False)
        except (Unsupported, TooLarge):
            continue
        decided[result is None] += 1
        assert (result is None) == (plain is None), (seed, result, plain)
    assert min(decided.values()) >= 2, decided


def test_two_ranks_of_an_engine_verify_from_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Obligations, slices, pairs and runs with collectives; and a verdict that the relation of the certificate finds itself."""
    target = "designs/vllm_v2.py::tensor_parallel"
    for case in cases(load([target])):
        if case.title not in ("2 slots: what a rank's sampler reads behind it", "2 slots, logits gathered at the output rank alone"):
            continue
        (design,) = load([case.target])
        assert (hazard(build(design, case.parameters), CUDA) is None) == (case.expected == "proved"), case.title
    title = "3 slots: what a rank's sampler reads behind it"
    assert run(["check", target, "-k", title, "--certificate", str(tmp_path / "proof")]) == 0
    capsys.readouterr()
    assert run(["verify", str(tmp_path / "proof"), "--solver", "z3"]) == 0
    assert "VERIFIED" in capsys.readouterr().out


# ---------------------------------------------------------------- what is called and never runs

BEHIND = (3, 4)
"""Nodes behind the second wait of `stuck`: called, and pending for ever."""


def stuck() -> p.Program:
    """One turn runs; the second waits for a store that never comes, and what is enqueued behind it stays pending."""
    first = (p.Launch("fill", S, (w(X),)), p.Launch("use", S, (r(X),)))
    operations = (*first, p.WaitFlag(FLAG, 1, S), *first, p.Host("end", (w(Y),)), p.Host("again", (r(Y),)))
    last = len(operations) - 1
    nodes = tuple(p.Do(one, n + 1 if n < last else p.END) for n, one in enumerate(operations))
    return p.Program("stuck", OBJECTS, (p.Thread("t", "script", nodes, 0),))


def verified(folder: Path) -> list[str]:
    """What fails of a certificate."""
    manifest = files.load_manifest(str(folder))
    report = verifying.verify(str(folder), manifest, verifying.read_program(str(folder), manifest), use=("z3",))
    assert not report.open
    return report.failures


def test_what_is_pending_for_ever_is_named_and_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The operations are reached, as they are called; their accesses stand in the list of what never occurs."""
    manifest = write_certificate(str(tmp_path), stuck(), CUDA)
    stay = {access.name for access in manifest.accesses if access.node in BEHIND}
    assert len(stay) == 2
    assert {name for name in manifest.reach.never if " " not in name} == stay
    assert all(f"0.{n}" in manifest.reach.at for n in BEHIND)
    assert not manifest.reach.unsure
    assert verified(tmp_path) == []
    assert run(["verify", str(tmp_path), "--solver", "z3"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for n in BEHIND:
        assert f"never executes 0.{n} on s: called, and pending for ever" in said


def hides(data: dict[str, Any]) -> None:
    data["reach"]["at"].pop("0.1.0")
    data["reach"]["never"].append("0.1.0")


def hides_a_host_access(data: dict[str, Any]) -> None:
    data["reach"]["at"].pop("0.6.0")
    data["reach"]["never"].append("0.6.0")


def repeats(data: dict[str, Any]) -> None:
    data["reach"]["never"].append("0.1.0")


def forgets(data: dict[str, Any]) -> None:
    data["reach"]["never"].remove("0.3.0")


def claims(data: dict[str, Any]) -> None:
    data["reach"]["never"].remove("0.3.0")
    data["reach"]["at"]["0.3.0"] = 0


@pytest.mark.parametrize(("change", "message"), [
    (hides, "reach: 0.1.0 is listed as never occurring, and it can occur"),
    (hides_a_host_access, "reach: 0.6.0 is listed as never occurring, and it can occur"),
    (repeats, "reach: something is listed twice"),
    (forgets, "reach: 0.3.0 has no run and is not in the list"),
    (claims, "reach: run 0 does not reach 0.3.0"),
])  # fmt: skip
def test_a_false_list_of_what_never_runs_fails(change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path) -> None:
    write_certificate(str(tmp_path), stuck(), CUDA)
    path = tmp_path / files.MANIFEST
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    failures = verified(tmp_path)
    assert any(message in failure for failure in failures), failures


def test_pending_work_that_runs_has_to_be_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relation of a class that loses what was pending is noticed: control and the runs make these accesses."""
    store = (p.WaitFlag(FLAG, 1, S, True), COPY, p.Record(EVENT, S), p.StoreFlag(FLAG, 1), p.EventSync(EVENT), HOST)
    nodes = tuple(p.Do(one, n + 1 if n < 5 else p.END) for n, one in enumerate(store))
    program = p.Program("held", OBJECTS, (p.Thread("t", "loop", nodes, 0),))
    plain = Machine.pend

    def loses(self: Machine, w: Any, s: int, t: int, n: int, which: int, accesses: tuple[p.Access, ...]) -> None:
        plain(self, w, s, t, n, which, accesses if self.cls is None else ())

    write_certificate(str(tmp_path / "right"), program, CUDA)
    assert verified(tmp_path / "right") == []
    monkeypatch.setattr(Machine, "pend", loses)
    write_certificate(str(tmp_path / "wrong"), program, CUDA)
    failures = verified(tmp_path / "wrong")
    assert any("class y: access 0.1.0 can never be the witness" in failure for failure in failures), failures
