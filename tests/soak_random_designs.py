"""The long campaign on random designs (`make soak`): every engine against the explorer, sliced against unsliced; resumable.

`python tests/soak_random_designs.py --hours 1 --at-least 20000` goes on where the evidence file ends, seed after seed,
until both are reached, and writes the file every hundred designs. Counts are kept per version of the sources. Every design is
decided and compared with the machine, some with the searches without slicing and without reduction, and each with two of
random_cross.py's further comparisons in turn.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import hashlib
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
EVIDENCE = HERE / "evidence" / "random_designs.json"
CHUNK = 100
FIRST = 1_000_000
"""`make test` runs the seeds from 0 on, the campaign those from here on."""
STATES = 1000
"""States that the explorer may store for one design; beyond, it is counted as "budget"."""
PATIENCE = 180
"""Seconds after which one design counts as a hang."""
FAMILIES = ("platform", "meetings", "alone", "platform")
"""Of four seeds."""
CAMPAIGN = "random designs: explorer, machine, event structure, certificates, SMT, liveness, plain Python; sliced and unsliced"


def sources() -> str:
    """Ten digits that stand for the text of model/, proofs/ and simulator/, as they are imported."""
    import fencepost.model
    import fencepost.proofs
    import fencepost.simulator

    h = hashlib.sha256()
    for package in (fencepost.model, fencepost.proofs, fencepost.simulator):
        folder = Path(package.__path__[0])
        for file in sorted(folder.rglob("*.py")):
            h.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return h.hexdigest()[:10]


class Hang(Exception):
    """One design took longer than `PATIENCE`."""


def _alarm(number: int, frame: Any) -> None:
    raise Hang(f"not decided after {PATIENCE} s")


def chunk(first: int) -> dict[str, Any]:
    """The designs of the seeds `first` to `first + CHUNK - 1`."""
    from fencepost.simulator.random_designs import generate

    from random_cross import CHECKS, examine

    names = list(CHECKS)
    count: collections.Counter[str] = collections.Counter()
    families: collections.Counter[str] = collections.Counter()
    uses: collections.Counter[str] = collections.Counter()
    tries: collections.Counter[str] = collections.Counter()
    wrong: list[dict[str, Any]] = []
    designs = 0
    started = time.process_time()
    signal.signal(signal.SIGALRM, _alarm)
    for seed in range(first, first + CHUNK):
        family = FAMILIES[seed % len(FAMILIES)]
        design = generate(seed, family)
        try:
            program = design.program()
        except ValueError:
            count["refused by the language"] += 1
            continue
        except Exception as error:  # nor is a tracer that does
            wrong.append({"seed": seed, "what": f"{type(error).__name__}: {error}", "text": design.text, "world": None})
            continue
        designs += 1
        families[family] += 1
        uses.update(design.features)
        signal.alarm(PATIENCE)
        try:
            checks = [names[(seed // len(FAMILIES) + k) % len(names)] for k in (0, 3)]
            result = examine(design.text, program, seed, count, checks=checks, states=STATES, runs=30, sliced=0.4)
        except Exception as error:  # an engine that breaks down is a finding, not the end of the campaign
            wrong.append({"seed": seed, "what": f"{type(error).__name__}: {error}", "text": design.text, "world": None})
            continue
        finally:
            signal.alarm(0)
        if result.tries is not None:
            tries[str(result.tries)] += 1
        if result.wrong is not None:
            world = [one.name for one in result.world]
            wrong.append({"seed": seed, "what": result.wrong, "text": design.text, "world": world})
    return {
        "designs": designs, "count": dict(count), "uses": dict(uses), "tries": dict(tries), "wrong": wrong, "families": dict(families),
        "seconds": time.process_time() - started,
    }  # fmt: skip


def empty() -> dict[str, Any]:
    """Evidence before the first design."""
    return {
        "campaign": CAMPAIGN, "designs_by_generator": {}, "designs_by_family": {}, "next_seed": FIRST, "designs": 0,
        "cpu_seconds": 0.0, "designs_by_sources": {}, "counts": {}, "features": {}, "tries": {}, "disagreements": [], "days": [],
    }  # fmt: skip


def load(path: Path) -> dict[str, Any]:
    """The evidence so far. Raises `ValueError` when the file is none."""
    if not path.exists():
        return empty()
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        if state["campaign"] == empty()["campaign"] and not empty().keys() - state.keys():
            return state
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is no evidence of this campaign; move it away, or name another with --evidence")


def enter(state: dict[str, Any], first: int, result: dict[str, Any], digest: str) -> None:
    """Add a chunk to the evidence."""
    state["next_seed"] = first + CHUNK
    state["designs"] += result["designs"]
    state["cpu_seconds"] = round(state["cpu_seconds"] + result["seconds"], 1)
    from fencepost.simulator.random_designs import VERSION

    for by, key in ((state["designs_by_sources"], digest), (state["designs_by_generator"], str(VERSION))):
        by[key] = by.get(key, 0) + result["designs"]
    for name, key in (("counts", "count"), ("features", "uses"), ("tries", "tries"), ("designs_by_family", "families")):
        for what, number in result[key].items():
            state[name][what] = state[name].get(what, 0) + number
    state["disagreements"] += result["wrong"]
    today = datetime.date.today().isoformat()
    if today not in state["days"]:
        state["days"].append(today)


def recheck(state: dict[str, Any], digest: str) -> None:
    """Look again at what was open: what the sources of today agree on is resolved, and stays listed as such."""
    from fencepost.simulator.random_designs import trace

    from random_cross import CHECKS, examine

    open_ = []
    for one in state["disagreements"]:
        try:
            wrong = examine(one["text"], trace(one["text"]), one["seed"], checks=CHECKS, states=STATES, runs=30, sliced=1.0).wrong
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong is None:
            state.setdefault("resolved", []).append({"seed": one["seed"], "what": one["what"], "with_sources": digest})
        else:
            open_.append({**one, "what": wrong})
    state["disagreements"] = open_


def rate(state: dict[str, Any]) -> float:
    """Designs a second of one core."""
    return float(state["designs"] / state["cpu_seconds"]) if state["cpu_seconds"] else 0.0


def page(state: dict[str, Any]) -> str:
    """The evidence for a reader."""
    counts = state["counts"]
    lines = [
        "# Random designs: the campaign", "", "Written by `make soak` (tests/soak_random_designs.py) from random_designs.json.", "",
        f"- designs: {state['designs']:,} (seeds {FIRST:,} to {state['next_seed'] - 1:,}), on {', '.join(state['days'])}",
        f"- rate: {rate(state):.1f} designs a second of one core, {state['cpu_seconds'] / 60:.0f} minutes of CPU in all",
        f"- disagreements open: {len(state['disagreements'])}; found and resolved on the way: {len(state.get('resolved', []))}",
        "- designs by version of the sources (SHA-256 over model/, proofs/, simulator/): "
        + ", ".join(f"{k}: {v:,}" for k, v in state["designs_by_sources"].items()),
        "- designs by family: " + ", ".join(f"{k}: {v:,}" for k, v in state["designs_by_family"].items()),
        "- designs by version of the generator: " + ", ".join(f"{k}: {v:,}" for k, v in state["designs_by_generator"].items()),
        "", "## Answers", "", *(f"- {k}: {v:,}" for k, v in sorted(counts.items(), key=lambda x: -x[1])), "",
        "## What the designs use", "",
        *(f"- {k}: {v:,} ({100 * v / max(state['designs'], 1):.0f} %)" for k, v in sorted(state["features"].items(), key=lambda x: -x[1])),
    ]  # fmt: skip
    if state.get("resolved"):
        lines += ["", "## Resolved", ""]
        lines += [f"- seed {one['seed']}: {one['what']} (with sources {one['with_sources']})" for one in state["resolved"]]
    for one in state["disagreements"]:
        lines += ["", f"## Open: seed {one['seed']}: {one['what']} ({one['world']})", "", "```python", one["text"].rstrip(), "```"]
    return "\n".join(lines) + "\n"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write both files; a half-written one never replaces a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for target, text in ((path, json.dumps(state, indent=1) + "\n"), (path.with_suffix(".md"), page(state))):
        half = target.with_name(target.name + ".half")
        half.write_text(text)
        half.replace(target)


def seeds(first: int) -> Iterator[int]:
    """Chunks without end."""
    while True:
        yield first
        first += CHUNK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until time and count are reached; 1 when something is open."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0, help="wall time of this call (default 1)")
    parser.add_argument("--at-least", type=int, default=20_000, help="designs in the evidence, whatever the time")
    parser.add_argument("--at-most", type=int, default=None, help="stop at so many designs in the evidence")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--evidence", type=Path, default=EVIDENCE)
    options = parser.parse_args(arguments)
    if options.hours < 0 or options.jobs < 1:
        print("--hours is not negative and --jobs is at least 1", file=sys.stderr)
        return 2
    try:
        state = load(options.evidence)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    digest = sources()
    recheck(state, digest)
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        coming = seeds(state["next_seed"])
        running = collections.deque((first, pool.submit(chunk, first)) for first, _ in zip(coming, range(options.jobs)))  # noqa: B905
        try:
            while running:
                first, future = running.popleft()
                enter(state, first, future.result(), digest)
                save(options.evidence, state)
                enough = state["designs"] >= options.at_least and time.monotonic() - began >= 3600 * options.hours
                if not enough and (options.at_most is None or state["designs"] < options.at_most):
                    after = next(coming)
                    running.append((after, pool.submit(chunk, after)))
                print(f"{state['designs']} designs, {rate(state):.1f} a second of CPU, {len(state['disagreements'])} open", flush=True)
        except KeyboardInterrupt:
            print(f"stopped; {options.evidence} keeps {state['designs']} designs, call again to go on")
            return 130
    print(f"{options.evidence}: {state['designs']} designs, {len(state['disagreements'])} disagreements open")
    return 1 if state["disagreements"] else 0


if __name__ == "__main__":
    sys.exit(main())
