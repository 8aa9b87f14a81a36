"""The page of theorems, docs/proofs.md, generated: `python -m fencepost.proofs_page > docs/proofs.md`.

Each entry is a design with parameters left free; the condition on them is proved anew when the page is made, and beside
it stand what the explorer says on a grid, the time, and the command that gives a certificate at the boundary.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from fencepost import condition
from fencepost.condition import Result, decide, fixed, integer_parameters
from fencepost.loader import load
from fencepost.proofs.periodic.decide import spelled
from fencepost.report.condition import TRUSTED, domain_text, never_lines


class Theorem(NamedTuple):
    """A theorem: what it is about, the design (a file under designs/ and a function), free and given parameters; `boundary`
    the least safe values of an example."""

    about: str
    target: str
    over: str
    given: tuple[str, ...] = ()
    boundary: str = ""
    remark: str = ""


THEOREMS = (
    Theorem("vLLM V2: depth of a slot pool", "vllm_v2.py::uva_pool", "depth,batch_queue_size", (), "depth=3 batch_queue_size=3"),
    Theorem(
        "vLLM V2: several takes a step", "vllm_v2.py::uva_pool", "depth,takes,batch_queue_size", (),
        "depth=4 takes=2 batch_queue_size=2",
    ),
    Theorem(
        "vLLM V2: steps without tokens between the others", "vllm_v2.py::uva_pool", "depth,batch_queue_size",
        ("empty_steps=true",), "depth=3 batch_queue_size=3 empty_steps=true",
        "A step without tokens takes a slot, launches no reader, and is waited for by nobody; in any order of the two kinds.",
    ),
    Theorem(
        "vLLM V2: steps without tokens, several takes a step", "vllm_v2.py::uva_pool", "depth,takes,batch_queue_size",
        ("empty_steps=true",), "depth=4 takes=2 batch_queue_size=2 empty_steps=true",
    ),
    Theorem(
        "vLLM V2: pruned video, two takes in some kinds of step only", "vllm_v2.py::pruned_video", "depth,batch_queue_size",
        ("item_between=false",), "depth=4 batch_queue_size=2 item_between=false",
        "The most takes in any window of outstanding steps, whatever the order of the kinds.",
    ),
    Theorem(
        "vLLM V2: pruned video as released, an .item() between the two takes", "vllm_v2.py::pruned_video",
        "depth,batch_queue_size", (), "depth=2 batch_queue_size=2",
    ),
    Theorem(
        "vLLM V2: a reader behind the resolving event", "vllm_v2.py::uva_pool", "depth,batch_queue_size", ("speculator=true",),
        "depth=3 batch_queue_size=2 speculator=true",
    ),
    Theorem(
        "several takes, the first read again behind the event", "bounds.py::pool", "depth,takes,outstanding",
        ("late_reader=first take",), "depth=9 takes=3 outstanding=2 late_reader='first take'",
    ),
    Theorem(
        "several takes, the last read again behind the event", "bounds.py::pool", "depth,takes,outstanding",
        ("late_reader=last take",), "depth=7 takes=3 outstanding=2 late_reader='last take'",
        "Between the two: which of a step's slots the late reader uses decides.",
    ),
    Theorem("two takes with a wait between them", "bounds.py::wait_between_takes", "depth,outstanding", (), "depth=2 outstanding=2"),
    Theorem("two takes without that wait", "bounds.py::wait_between_takes", "depth,outstanding", ("waits=false",), "depth=4 outstanding=2 waits=false"),
    Theorem(
        "vLLM V2: a ring of events, no wait for results", "vllm_v2.py::encoder_only", "depth,takes,events", (),
        "depth=4 takes=2 events=2",
    ),
    Theorem("vLLM V2: encoder-only steps without a wait", "vllm_v2.py::encoder_only", "depth", ("events=0",)),
    Theorem(
        "vLLM V2: two kinds of step, a guard in each", "vllm_v2.py::mixed_steps", "depth,events", ("guarded=every step",),
        "depth=2 events=2 guarded='every step'", "Each kind takes one slot, whatever the order of the kinds.",
    ),
    Theorem("one kind of step without a wait", "ring.py::ring", "depth,outstanding", ("encoder_only=true",)),
    Theorem("vLLM V1: the pipeline without its guard", "vllm_v1.py::pipeline", "batch_queue_size", ("stages=2",), "batch_queue_size=1 stages=2"),
    Theorem("vLLM V1: unguarded, every return path waits", "bounds.py::unguarded", "outstanding", (), "outstanding=1"),
    Theorem("vLLM V1: unguarded, one return path does not wait", "bounds.py::unguarded", "outstanding", ("every_path_waits=false",)),
    Theorem("TensorRT-LLM: tables and preparation buffers by turns", "tensorrt_llm.py::v1_manager", "table_depth,prep_depth", (), "table_depth=2 prep_depth=2"),
    Theorem("TensorRT-LLM: preparation buffers beside fresh snapshots", "tensorrt_llm.py::v1_manager", "prep_depth", ("snapshot=true",), "prep_depth=2 snapshot=true"),
    Theorem("TensorRT-LLM: W1, waits before writes at the top of an iteration", "bounds.py::page_table", "depth,lag", (), "depth=1 lag=1"),
    Theorem("TensorRT-LLM: W2 and W3, waits before writes in its tail", "bounds.py::page_table", "depth,lag", ("writes=in the tail",), "depth=1 lag=0 writes='in the tail'"),
    Theorem(
        "TensorRT-LLM: W2 and W3 in the loop of the V2 manager", "tensorrt_llm.py::v2_manager", "prep_depth",
        ("w2=true", "w3=true"), "prep_depth=2 w2=true w3=true",
    ),
    Theorem("TensorRT-LLM: W1 alone in that loop", "tensorrt_llm.py::v2_manager", "prep_depth", ("w1=true",)),
    Theorem("ATOM: the landing ring of ell", "bounds.py::ell_ring", "depth,generation", (), "depth=2 generation=2"),
    Theorem("ATOM: staging sets, every step produces output", "atom.py::staging", "depth", ("chunks=false",), "depth=2 chunks=false"),
    Theorem("ATOM: staging sets, middle chunks return without a wait", "atom.py::staging", "depth"),
    Theorem(
        "ATOM: staging sets, a gate in front of each write", "atom.py::staging", "depth", ("gate=true",), "depth=1 gate=true",
    ),
    Theorem("SGLang: the ring of batch records", "sglang.py::batch_records", "records,unprocessed", (), "records=2 unprocessed=1"),
    Theorem(
        "SGLang: the ring of batch records, written after the launch", "sglang.py::batch_records", "records,unprocessed",
        ("drop=after launch",), "records=1 unprocessed=1 drop='after launch'",
    ),
    Theorem("two streams in rotation", "bounds.py::rotation", "depth", (), "depth=2", "Not upward closed: 3 slots race where 2 do not."),
    Theorem("streams in rotation", "bounds.py::rotation", "depth,streams", (), "depth=3 streams=3"),
    Theorem("streams in rotation whose results are waited for", "bounds.py::rotation_with_results", "depth,outstanding,streams", (), "depth=3 outstanding=4 streams=3"),
    Theorem("a hand-over through a bounded queue", "ring.py::hand_over", "depth,capacity", (), "depth=3 capacity=1"),
)  # fmt: skip


PATIENCE = 60.0
"""Seconds for one question to the solver, so that a busy machine changes no answer; each takes less than two on an idle one."""


def prove(theorem: Theorem, designs: str, grid: int | None = 0) -> tuple[Result, float]:
    """The condition of a theorem, and the CPU seconds that it took without the grid. `designs`: their folder."""
    (target,) = load([os.path.join(designs, theorem.target)])
    names = integer_parameters(target, [theorem.over])
    parameters = fixed(target, names, theorem.given)
    begin = time.process_time()
    result = decide(target, names, parameters, grid=0, timeout=PATIENCE)
    seconds = time.process_time() - begin
    return (result if grid == 0 else decide(target, names, parameters, grid=grid, timeout=PATIENCE)), seconds


def statement(result: Result) -> str:
    """The condition in one line."""
    found = result.condition
    text = spelled(found.safe, found.names)
    said = {"always": "always safe", "never": "never safe"}.get(text, f"safe iff `{text}`")
    if found.verdict != "exact":
        said = f"UNKNOWN: proved safe if `{text}`"
    return f"{said}, for all `{domain_text(found.domain, found.names)}`"


def lines(designs: str, grid: int | None = None) -> Iterator[str]:
    """The page, line by line."""
    yield from (
        "# Theorems",
        "",
        "Generated by `python -m fencepost.proofs_page`. Each condition holds for **all** values of the parameters, not for a",
        "grid. It is the set of safe values: what it names is proved safe, and every other value has a hazard. How:",
        "",
        "1. The design function is called with stand-ins for its integers, which take down what a value decides; so one trace",
        "   stands for all values of a region, and regions are added until they cover every integer.",
        "2. The program is read as a periodic event graph: an edge of weight w joins step n to step n + w, with w a polynomial in",
        "   the parameters. Shortest walks give the distance from which on one access is ordered before another.",
        "3. With choices, what is proved holds under every choice; what is refuted, under some choice made for good.",
        "4. Z3 proves both halves about the readable inequality: it implies that no two conflicting accesses are unordered, and",
        "   its negation implies that some are.",
        "",
        "The explorer, which knows none of this, is asked about a grid of values (`agree`). CPU seconds are those of the proof, on",
        "the machine that made the page. A certificate for single values is written by `fencepost check TARGET --set ...",
        "--certificate DIR` and checked by `fencepost verify DIR`; the values at the boundary are given with each theorem.",
        "",
        f"{TRUSTED[0].upper()}{TRUSTED[1:]}.",
        "",
    )
    for theorem in THEOREMS:
        result, seconds = prove(theorem, designs, grid)
        given = "".join(f" --set {_quoted(text)}" for text in theorem.given)
        yield f"## {theorem.about}"
        yield ""
        yield f"**{statement(result)}**"
        yield ""
        found = result.condition
        for domain, safe, _ in found.elsewhere:
            text = spelled(safe, found.names)
            said = {"always": "always safe", "never": "never safe"}.get(text, f"safe iff `{text}`")
            yield f"- where `{domain_text(domain, found.names)}`: {said}"
        for note in found.notes:
            yield f"- {note}"
        for line in never_lines(found):
            yield f"- {line}"
        for reason in found.reasons:
            yield f"- {reason}"
        if theorem.remark:
            yield f"- {theorem.remark}"
        yield f"- `fencepost condition designs/{theorem.target} --over {theorem.over}{given}`"
        if theorem.boundary:
            sets = " ".join(f"--set {_quoted(part)}" for part in _words(theorem.boundary))
            yield f"- certificate at the boundary: `fencepost check designs/{theorem.target} {sets} --certificate DIR`"
        for text in result.assumptions:
            yield f"- assumes: {text}"
        if result.grid:
            agree = sum(1 for point in result.grid if point.agrees)
            yield f"- agree: {agree} of {len(result.grid)} values; {seconds:.2f} s"
        yield ""


def _words(text: str) -> list[str]:
    import shlex

    return shlex.split(text)


def _quoted(text: str) -> str:
    name, _, value = text.partition("=")
    return f"'{name}={value}'" if " " in value else text


if __name__ == "__main__":
    here = os.path.join(os.path.dirname(os.path.realpath(__file__)), os.pardir, "designs")
    condition.GRID_SECONDS = 600.0  # the page waits for the whole grid
    for row in lines(os.path.relpath(here)):
        sys.stdout.write(row + "\n")
        sys.stdout.flush()
