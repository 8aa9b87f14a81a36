"""The long campaign of the bounded SMT engine on random designs (`make soak`): against the explorer, seed after seed; resumable.

`python tests/soak_smt.py --at-least 5000` goes on where the evidence file ends. A disagreement is kept with its program, made
small; exit code 1 while one is open. `make test` has the same comparison on seeds of its own (tests/test_smt_random.py).
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import hashlib
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
EVIDENCE = HERE / "evidence" / "smt.json"
CAMPAIGN = "random designs: bounded SMT engine against explorer"
FIRST = 10_000_000
"""`make test` runs seeds below."""
CHUNK = 50
TURNS = 3


def sources() -> str:
    """Ten digits that stand for the text of model/ and proofs/, as they are imported, and of the generator."""
    import fencepost.model
    import fencepost.proofs

    digest = hashlib.sha256((HERE / "random_programs.py").read_bytes())
    for package in (fencepost.model, fencepost.proofs):
        folder = Path(package.__path__[0])
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:10]


def chunk(first: int) -> dict[str, Any]:
    """The designs of the seeds `first` to `first + CHUNK - 1`."""
    from random_oracle import minimise, show
    from random_programs import generate
    from smt_agreement import disagreement

    count: collections.Counter[str] = collections.Counter()
    wrong: list[dict[str, Any]] = []
    began = time.process_time()
    for seed in range(first, first + CHUNK):
        program = generate(random.Random(seed))
        try:
            what, bad = disagreement(program, TURNS)
        except Exception as error:  # an engine that breaks down is a finding, not the end of the campaign
            what, bad = "wrong", f"{type(error).__name__}: {error}"
            wrong.append({"seed": seed, "what": bad, "program": show(program)})
        else:
            if bad is not None:
                small = minimise(program, lambda candidate: disagreement(candidate, TURNS)[1] is not None)
                wrong.append({"seed": seed, "what": bad, "program": show(small)})
        count[what if bad is None else "wrong"] += 1
    return {"first": first, "count": dict(count), "wrong": wrong, "seconds": time.process_time() - began}


def load(path: Path) -> dict[str, Any]:
    """The evidence so far. Raises `ValueError` when the file is none."""
    new: dict[str, Any] = {
        "campaign": CAMPAIGN, "next_seed": FIRST, "designs": 0, "cpu_seconds": 0.0, "date": "", "designs_by_sources": {},
        "counts": {}, "disagreements": [],
    }  # fmt: skip
    if not path.exists():
        return new
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        if state["campaign"] == CAMPAIGN and not new.keys() - state.keys():
            return state
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is no evidence of this campaign; move it away, or name another with --evidence")


def enter(state: dict[str, Any], result: dict[str, Any], digest: str) -> None:
    """Add a chunk to the evidence."""
    state["next_seed"] = result["first"] + CHUNK
    state["designs"] += CHUNK
    state["cpu_seconds"] = round(state["cpu_seconds"] + result["seconds"], 1)
    state["date"] = str(datetime.date.today())
    state["designs_by_sources"][digest] = state["designs_by_sources"].get(digest, 0) + CHUNK
    for what, number in result["count"].items():
        state["counts"][what] = state["counts"].get(what, 0) + number
    state["disagreements"] += result["wrong"]


def recheck(state: dict[str, Any]) -> None:
    """Disagreements that the sources of today no longer have are kept as resolved."""
    from random_programs import generate
    from smt_agreement import disagreement

    for one in state["disagreements"]:
        try:
            bad = disagreement(generate(random.Random(one["seed"])), TURNS)[1]
        except Exception as error:  # still broken
            bad = f"{type(error).__name__}: {error}"
        one["resolved"] = bad is None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write; 1 while a disagreement is open."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--at-least", type=int, default=5000, help="designs in the evidence (default 5000)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="wall time of this call at most (default 3600)")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--evidence", type=Path, default=EVIDENCE)
    options = parser.parse_args(arguments)
    try:
        state = load(options.evidence)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    recheck(state)
    digest, began = sources(), time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(max(1, options.jobs), multiprocessing.get_context("spawn")) as pool:
        while state["designs"] < options.at_least and time.monotonic() - began < options.seconds:
            missing = -(-(options.at_least - state["designs"]) // CHUNK)
            firsts = [state["next_seed"] + CHUNK * k for k in range(min(4 * max(1, options.jobs), missing))]
            for result in pool.map(chunk, firsts):
                enter(state, result, digest)
                options.evidence.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
    options.evidence.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
    unsettled = [one for one in state["disagreements"] if not one.get("resolved")]
    rate = state["designs"] / max(state["cpu_seconds"], 0.1)
    print(f"{state['designs']} designs, {rate:.1f} a second of one core; disagreements open: {len(unsettled)}")
    for what, number in sorted(state["counts"].items(), key=lambda item: -item[1]):
        print(f"  {number:6d}  {what}")
    for one in unsettled:
        print(f"seed {one['seed']}: {one['what']}\n{one['program']}")
    return 1 if unsettled else 0


if __name__ == "__main__":
    sys.exit(main())
