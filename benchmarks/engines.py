"""Whole processes, as a user and a CI job pay for them: all designs of the engines, and one small design.

    python benchmarks/engines.py     exit 1 when a target is missed or a variant's verdict is not the declared one
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fencepost.loader import load

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("vllm_v1", "vllm_v2", "tensorrt_llm", "atom", "sglang")
MEETING = ("tensor_parallel", "attention_data_parallel", "ell_across_ranks")
"""Designs whose ranks meet in collectives: several times the work of the others, and timed with them and without."""
ALL_SECONDS = 3.0
"""For the variants of all other designs."""
SMALL_MILLISECONDS = 200.0
"""Above the start of the bare interpreter."""

SMALL = """from __future__ import annotations
import fencepost as fp


@fp.variant("guarded", fp.PROVED)
def small() -> fp.Design:
    d = fp.Design("small")
    host, device, copied = d.pinned("host"), d.device("device"), d.event("copied")

    @d.loop("worker")
    def step() -> None:
        copied.synchronize()
        host.write()
        device.copy_(host, non_blocking=True)
        copied.record()

    return d
"""


def timed(command: list[str], runs: int, folder: Path = ROOT) -> tuple[float, int, str]:
    """The least wall seconds of a whole process in the folder over `runs`, its exit code and the last line that it printed."""
    best, code, line = float("inf"), 0, ""
    # A first run writes the bytecode of what is imported, as it does for a user.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(runs):
        started = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
        best = min(best, time.perf_counter() - started)
        code = done.returncode
        line = ((done.stdout.strip() or done.stderr.strip()).splitlines() or [""])[-1]
    return best, code, line


def main() -> int:
    """Print both figures."""
    fencepost = [sys.executable, "-m", "fencepost", "check"]
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    files = [str(ROOT / "designs" / f"{name}.py") for name in ENGINES]
    alone = [target.spelling for target in load(files) if target.spelling.partition("::")[2] not in MEETING]
    seconds, code, line = timed([*fencepost, *alone], 5)
    good = code == 0 and seconds <= ALL_SECONDS
    print(f"the five engines, each rank by itself: {seconds:.2f} s, exit {code} (target <= {ALL_SECONDS:g} s)")
    print(f"  {line}")
    seconds, code, line = timed([*fencepost, *files], 2)
    good = good and code == 0
    print(f"with the ranks that meet in collectives: {seconds:.2f} s, exit {code}")
    print(f"  {line}")
    bare, _, _ = timed([sys.executable, "-c", ""], 15)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.py"
        path.write_text(SMALL)
        small, small_code, line = timed([*fencepost, str(path)], 15)
    over = (small - bare) * 1000
    print(f"one small design: {small * 1000:.0f} ms, bare interpreter {bare * 1000:.0f} ms, over it {over:.0f} ms, "
          f"exit {small_code} (target <= {SMALL_MILLISECONDS:g} ms over it)")  # fmt: skip
    print(f"  {line}")
    good = good and small_code == 0 and over <= SMALL_MILLISECONDS
    if not good:
        print("MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
