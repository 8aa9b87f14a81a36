"""The long campaign of the machine on the designs (`make soak`): a wrong value for each bug, none in many runs elsewhere; resumable.

`python tests/soak_machine.py --runs 10000` runs every variant of designs/ that has no hazard so often, with adversarial
decisions and every third time with an allocator that splits blocks, and reproduces every other one along the explorer's
run. The evidence file is written after each variant; a variant is done again only when its design or the machine changed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
EVIDENCE = HERE / "evidence" / "machine.json"
TURNS = 6
CHUNK = 2500
"""Runs between two looks at the clock of a variant."""


def machine_hash() -> str:
    """Ten digits that stand for the text of the machine."""
    import fencepost.simulator

    digest = hashlib.sha256()
    (folder,) = fencepost.simulator.__path__
    for file in sorted(Path(folder).glob("*.py")):
        if file.name.startswith(("machine", "guide", "search")):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:10]


def variants(targets: Sequence[str]) -> list[Any]:
    """The declared variants of the targets, by name."""
    from fencepost.check import cases
    from fencepost.loader import load

    return [case for case in cases(load(list(targets))) if case.expected is not None]


def name_of(case: Any) -> str:
    """How the evidence names a variant."""
    return f"{case.target.removeprefix(str(ROOT) + '/')} [{case.title}]"


def one(case: Any, runs: int, seed: int) -> dict[str, Any]:
    """What the machine makes of a variant."""
    import msgspec
    from fencepost.check import build, decide
    from fencepost.loader import load
    from fencepost.model.answer import REFUTED
    from fencepost.simulate import sentences
    from fencepost.simulator.machine import Hardware
    from fencepost.simulator.machine_script import design_hash
    from fencepost.simulator.search import Search, World, suspects_of

    begin = time.process_time()
    (target,) = load([case.target])
    program = build(target, case.parameters)
    world = World(case.environment, case.platform, parameters=case.parameters)
    row: dict[str, Any] = {"design": design_hash(program), "declared": case.expected, "date": str(datetime.date.today())}
    search = Search(program, world)
    if case.expected == REFUTED:
        outcome = decide(msgspec.structs.replace(case, explain=False))
        answer = outcome.answer
        found = None
        if answer is not None and answer.run is not None:
            found = search.guided(answer.run, suspects_of(answer.hazards))
        row["runs"] = search.examples
        if found is None:
            row["open"] = "declared refuted, and no wrong value along the explorer's run"
        else:
            row |= {"runs": found.examples, "wrong": sentences(found), "replay": found.text}
    else:
        split = msgspec.structs.replace(search.machine.hardware, allocator="split")
        searches = (search, Search(program, msgspec.structs.replace(world, hardware=split)))
        assert isinstance(split, Hardware)
        done = 0
        while done < runs and "open" not in row:
            now = min(CHUNK, runs - done)
            for which, share in ((searches[0], now - now // 3), (searches[1], now // 3)):
                found = which.random(share, TURNS, seed=seed + done)
                if found is not None:
                    row |= {"open": f"declared {case.expected}, and a value is wrong", "wrong": sentences(found), "replay": found.text}
                    break
            done += now
        row["runs"] = sum(s.examples for s in searches)
        row["operations"] = sum(s.operations for s in searches)
        faults = [*searches[0].faults, *searches[1].faults]
        if faults:
            row["open"] = faults[0]
    row["seconds"] = round(time.process_time() - begin, 2)
    return row


def load(path: Path) -> dict[str, Any]:
    """The evidence so far. Raises `ValueError` when the file is none."""
    if not path.exists():
        return {"campaign": "the machine on the designs", "variants": {}}
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        state["variants"].items()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is no evidence of this campaign; move it away, or name another with --evidence") from None
    return state


def page(state: dict[str, Any]) -> str:
    """The evidence for a reader."""
    rows = state["variants"]
    wrong = {k: v for k, v in rows.items() if v["declared"] == "refuted"}
    right = {k: v for k, v in rows.items() if v["declared"] != "refuted"}
    runs, operations = sum(v["runs"] for v in right.values()), sum(v.get("operations", 0) for v in right.values())
    seconds = sum(v["seconds"] for v in right.values())
    taken = sorted(v["runs"] for v in wrong.values())
    least = min((v["runs"] for v in right.values()), default=0)
    lines = [
        "# The machine on the designs", "", "Written by `make soak` (tests/soak_machine.py) from machine.json.", "",
        f"- variants without a hazard: {len(right)}, each at least {least:,} adversarial runs, no wrong value in "
        f"{sum('open' not in v for v in right.values())}",
        f"- {runs:,} runs, {operations:,} operations, {seconds:,.0f} s of one core ({operations / max(seconds, 1e-9):,.0f} operations a second)",
        f"- variants with a hazard: {len(wrong)}; runs until the wrong value: median {taken[len(taken) // 2] if taken else 0}, "
        f"most {taken[-1] if taken else 0}",
        f"- open: {sum('open' in v for v in rows.values())}", "", "## Wrong values", "",
    ]  # fmt: skip
    for name, row in sorted(rows.items()):
        if row["declared"] == "refuted" or "open" in row:
            lines += [f"### {name}", "", *(f"- {sentence}" for sentence in row.get("wrong", [])),
                      *([f"- OPEN: {row['open']}"] if "open" in row else []),
                      *([f"- `{row['replay']}`"] if "replay" in row else []), ""]  # fmt: skip
    lines += ["## Survived", "", *(f"- {name}: {row['runs']:,} runs" for name, row in sorted(right.items()) if "open" not in row)]
    return "\n".join(lines) + "\n"


def save(path: Path, state: dict[str, Any]) -> None:
    """Write both files; a half-written one never replaces a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for target, text in ((path, json.dumps(state, indent=1, sort_keys=True) + "\n"), (path.with_suffix(".md"), page(state))):
        half = target.with_name(target.name + ".half")
        half.write_text(text)
        half.replace(target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing; 1 when something is open."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", default=[str(ROOT / "designs")])
    parser.add_argument("--runs", type=int, default=10_000, help="of each variant without a hazard")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--evidence", type=Path, default=EVIDENCE)
    options = parser.parse_args(arguments)
    if options.runs < 1 or options.jobs < 1:
        print("--runs and --jobs are at least 1", file=sys.stderr)
        return 2
    from fencepost.check import build
    from fencepost.errors import InputError
    from fencepost.loader import load as load_target
    from fencepost.simulator.machine_script import design_hash

    try:
        state = load(options.evidence)
        cases = variants(options.targets)
    except (ValueError, InputError) as error:
        print(error, file=sys.stderr)
        return 2
    code = machine_hash()
    todo: list[tuple[Any, ...]] = []
    for number, case in enumerate(cases):
        row = state["variants"].get(name_of(case))
        (target,) = load_target([case.target])
        program = build(target, case.parameters)
        current = row is not None and (row["design"], row["machine"]) == (design_hash(program), code)
        if not current or "open" in row or (case.expected != "refuted" and row["runs"] < options.runs):
            # What is short comes first, so that an interrupted campaign has covered most.
            size = 0 if case.expected == "refuted" else sum(len(thread.nodes) for thread in program.threads)
            todo.append((size, number, case))
    if not options.targets or options.targets == [str(ROOT / "designs")]:
        names = {name_of(case) for case in cases}
        state["variants"] = {k: v for k, v in state["variants"].items() if k in names}
    print(f"{len(cases)} variants, {len(todo)} to do")
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        futures = {pool.submit(one, case, options.runs, options.seed): case for _, _, case in sorted(todo)}
        for done in concurrent.futures.as_completed(futures):
            row = {**done.result(), "machine": code}
            name = name_of(futures[done])
            state["variants"][name] = row
            save(options.evidence, state)
            print(f"{row['runs']:7,} runs {row['seconds']:7.1f} s  {name}{'  OPEN: ' + row['open'] if 'open' in row else ''}", flush=True)
    still = [name for name, row in state["variants"].items() if "open" in row]
    print(f"{len(still)} open" if still else "none open")
    return 1 if still else 0


if __name__ == "__main__":
    sys.exit(main())
