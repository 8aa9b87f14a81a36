"""The simulated machine: operations a second on one core, and runs until the explorer's run shows its wrong value.

    python benchmarks/machine.py     exit 1 when a target is missed

An operation is a host step or a device item. Rates are by CPU time, over adversarial runs of every variant of the engines.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import msgspec
from fencepost.check import build, cases, decide
from fencepost.loader import load
from fencepost.model.answer import REFUTED
from fencepost.model.platform import environment, platform
from fencepost.simulator.machine import Machine
from fencepost.simulator.machine_script import Random
from fencepost.simulator.search import Search, World, suspects_of

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("ring", "vllm_v1", "vllm_v2", "tensorrt_llm", "atom", "sglang")
RATE = 50_000
EXAMPLES = 20
RUNS, TURNS = 40, 12


def main() -> int:
    """Print the rate for each file of designs and over all, and the runs that guided reproduction took."""
    slow: list[float] = []
    operations = 0
    seconds = 0.0
    examples: list[int] = []
    missed: list[str] = []
    for name in ENGINES:
        mine, spent = 0, 0.0
        for case in cases(load([str(ROOT / "designs" / f"{name}.py")])):
            (target,) = load([case.target])
            machine = Machine(build(target, case.parameters), platform(case.platform), environment(case.environment))
            begin = time.process_time()
            mine += sum(machine.run(Random(seed), turns=TURNS, stop=False).operations for seed in range(RUNS))
            spent += time.process_time() - begin
            if case.expected == REFUTED:
                outcome = decide(msgspec.structs.replace(case, explain=False))
                assert outcome.answer is not None and outcome.answer.run is not None and outcome.program is not None
                search = Search(outcome.program, World(case.environment, case.platform))
                found = search.guided(outcome.answer.run, suspects_of(outcome.answer.hazards))
                examples.append(search.examples if found is None else found.examples)
                if found is None:
                    missed.append(f"{case.design} [{case.title}]")
        print(f"{name:14}{mine / spent:12,.0f} operations/s   ({mine:,} operations)", flush=True)
        slow.append(mine / spent)
        operations += mine
        seconds += spent
    rate, median = operations / seconds, statistics.median(examples)
    print(f"{'all':14}{rate:12,.0f} operations/s   (target {RATE:,}; slowest file {min(slow):,.0f})")
    print(f"guided reproduction of {len(examples)} hazards: median {median:g} runs, most {max(examples)} (target < {EXAMPLES})")
    for title in missed:
        print(f"  NOT reproduced: {title}")
    return 0 if rate >= RATE and median < EXAMPLES and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
