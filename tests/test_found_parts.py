"""Parts of views of parts, whose spans are counted from the view's start; bytes that only readers of another allocator could read; what is
declared never to run and runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fencepost as fp
import pytest
from fencepost.check import cases, code_of, decide
from fencepost.engines import Question, ask
from fencepost.loader import load
from fencepost.model.platform import Platform
from fencepost.proofs.certificates.invariant import Limits
from fencepost.proofs.certificates.writing import hazard
from fencepost.proofs.check import check
from fencepost.proofs.periodic.conditions import condition
from fencepost.proofs.periodic.decide import spelled
from fencepost.report.summary import headline


def agreed(build: Callable[..., fp.Design], **parameters: object) -> tuple[str, set[str]]:
    """Verdict and hazards of the explorer, which no other engine contradicts; the certificates' own code finds a hazard exactly where one is."""
    program = fp.program_of(build, parameters)
    answer = ask(program, Question("all", steps=3, examples=60, seed=1), None)
    found = hazard(program, Platform("cuda"), Limits(20_000, 60.0))
    assert (found is None) == (answer.verdict == fp.PROVED)
    return answer.verdict, {one.name for one in answer.hazards}


# ---------------------------------------------------------------- spans of views of spans


def nest(start: int, stop: int, how: str = "view") -> fp.Design:
    """A reads a part of a view of a part, B writes a part of the whole."""
    d = fp.Design("nest")
    buf, q, cell = d.pinned("buf"), d.queue("q", 2, item=(fp.MEMORY,)), d.cell("cell", item=(fp.MEMORY,))

    @d.loop("A")
    def a() -> None:
        buf[start:stop].write()

    @d.loop("B")
    def b() -> None:
        if how == "view":
            buf[64:128].view("y")[0:10].read()
        elif how == "queue":
            q.put(buf[64:128])
            q.get()[0:10].read()
        elif how == "cell":
            cell.set(buf[64:128])
            cell.get()[0:10].read()
        elif how == "twice":
            buf[32:256].view("y")[32:96].view("z")[0:10].read()
        elif how == "behind the end":
            buf[64:74].view("y")[0:100].read()

    return d


@pytest.mark.parametrize("how", ["view", "queue", "cell", "twice", "behind the end"])
def test_a_span_of_a_span_is_one(how: str) -> None:
    """Bytes 64 to 74 are read. What lies behind was a false REFUTED: the spans were compared as if they could not be."""
    assert agreed(nest, start=74, stop=80, how=how) == (fp.PROVED, set())
    assert agreed(nest, start=0, stop=64, how=how) == (fp.PROVED, set())
    verdict, hazards = agreed(nest, start=73, stop=80, how=how)
    assert verdict == fp.REFUTED and "RAW buf" in hazards


def written_in_part(stop: int) -> fp.Design:
    """A block's part is written through a view, and read as a part of the whole."""
    d = fp.Design("written in part")
    s = d.stream("s")

    @d.loop("worker", stream=s)
    def worker() -> None:
        x = d.empty("x", bytes=128)
        d.launch("fill", writes=[x[64:128].view("y")[0:stop]])
        d.launch("use", reads=[x[64:74]])

    return d


def test_what_a_view_does_not_write_is_undefined() -> None:
    """A part of a view counted as the whole view, so that the last byte that nobody wrote was proved to be defined."""
    assert check(fp.program_of(written_in_part, {"stop": 10})).verdict == fp.PROVED
    answer = check(fp.program_of(written_in_part, {"stop": 9}))
    assert (answer.verdict, {one.kind for one in answer.hazards}) == (fp.REFUTED, {"UNDEFINED"})


def in_rotation(depth: int, start: int = 70) -> fp.Design:
    """Read on the device through a view, three steps in flight."""
    d = fp.Design("in rotation")
    s, buf, done = d.stream("s"), d.pinned("buf", depth=depth, bytes=128), d.event("done", depth=3)

    @d.loop("worker", stream=s)
    def worker(n: fp.Turn) -> None:
        done[n].synchronize()
        buf[n][start:80].write()
        d.launch("use", reads=[buf[n][64:128].view("y")[0:10]])
        done[n].record()

    return d


def test_conditions_count_spans_of_views_from_the_start() -> None:
    """It said "always safe" of a race: the view's part was compared as if it began at the buffer's start."""
    assert spelled(condition(in_rotation, ["depth"]).safe, ("depth",)) == "depth >= 3"
    assert spelled(condition(in_rotation, ["depth"], {"start": 74}).safe, ("depth",)) == "always"
    for depth in (2, 3):
        assert check(fp.program_of(in_rotation, {"depth": depth})).verdict == (fp.REFUTED if depth < 3 else fp.PROVED)


def rows(how: str) -> fp.Design:
    """Each thread takes a row of a buffer, and uses it through a view or a reference that was handed over."""
    d = fp.Design("rows")
    buf, there, pool, s = d.pinned("buf"), d.device("there"), d.pool("pool", 2, of="row"), d.stream("s")
    q = d.queue("q", 2, item=(fp.MEMORY, fp.HANDLE))

    @d.loop("A")
    def a() -> None:
        row = pool.take()
        view = buf[row].view("view")
        view[0:4].write() if how == "parts" else view.write()
        if how == "early":
            pool.give(row)
        if how in ("queue", "early"):
            q.put(buf[row], row)
        else:
            pool.give(row)

    @d.loop("B", stream=s)
    def b() -> None:
        if how in ("queue", "early"):
            got, row = q.get()
            there.copy_(got[2:6])
        else:
            row = pool.take()
            view = buf[row].view("view")
            there.copy_(view[2:6], non_blocking=how == "late")
        if how != "early":
            pool.give(row)

    return d


@pytest.mark.parametrize(("how", "verdict"), [
    ("parts", fp.PROVED), ("whole", fp.PROVED), ("queue", fp.PROVED), ("late", fp.REFUTED), ("early", fp.REFUTED),
])  # fmt: skip
def test_views_of_rows(how: str, verdict: str) -> None:
    """Was UNKNOWN: the explorer took each row's view for one of the guessed row."""
    assert agreed(rows, how=how)[0] == verdict


# ---------------------------------------------------------------- bytes that nobody reads


def written_twice(how: str) -> fp.Design:
    """Two streams write a block of one of them unordered, and blocks are read."""
    d = fp.Design("written twice")
    s, o, q = d.stream("s"), d.stream("o"), d.queue("q", 1, item=(fp.MEMORY,))

    @d.loop("worker", stream=s)
    def worker() -> None:
        x = d.empty("x", stream=o)
        d.launch("one", writes=[x], stream=s)
        d.launch("two", writes=[x], stream=o)
        of = o if how == "of the same stream" else s
        z = d.empty("z", stream=of)
        d.launch("fill", writes=[z], stream=of)
        if how == "handed over":
            q.put(z)
            z = q.get()
        elif how == "view":
            z = z.view("v")
        elif how == "handed over itself":
            q.put(x)
            z = q.get()
        d.launch("use", reads=[z], stream=of)

    return d


@pytest.mark.parametrize("how", ["of another stream", "handed over", "view"])
def test_a_write_that_only_another_allocators_blocks_readers_could_see(how: str) -> None:
    """Was UNKNOWN: any reader of any block counted. S62, S71: blocks of a stream go to its own allocations alone."""
    assert agreed(written_twice, how=how) == (fp.PROVED, set())
    answer = check(fp.program_of(written_twice, {"how": how}))
    assert any(note.startswith("WAW x: unordered, but access-level only") for note in answer.notes)


@pytest.mark.parametrize("how", ["of the same stream", "handed over itself"])
def test_a_write_that_a_reader_of_the_same_allocator_sees(how: str) -> None:
    assert agreed(written_twice, how=how)[0] == fp.REFUTED


# ---------------------------------------------------------------- never=


def test_what_is_declared_never_to_run_and_runs_is_not_as_declared(tmp_path: Path) -> None:
    """A branch that comes alive again was a note alone, and the row passed."""
    file = tmp_path / "alive.py"
    file.write_text('''
import fencepost as fp

@fp.variant("runs", fp.PROVED, never=("s.synchronize()",))
def alive() -> fp.Design:
    d = fp.Design("alive")
    s, host, there = d.stream("s"), d.pinned("host"), d.device("there")

    @d.loop("worker", stream=s)
    def worker():
        host.write()
        there.copy_(host, non_blocking=True)
        s.synchronize()

    return d
''')
    (case,) = cases(load([str(file)]))
    outcome = decide(case)
    assert outcome.answer is not None and outcome.answer.verdict == fp.PROVED and outcome.answer.matches is False
    assert code_of(outcome) == 1
    assert headline(outcome).endswith("PROVED, but declared proved, never s.synchronize()")
    assert "s.synchronize() runs, though it is declared never to run" in outcome.answer.notes
