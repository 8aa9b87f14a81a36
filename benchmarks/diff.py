"""`fencepost diff` as whole processes, as a CI job pays for it: ATOM's design, unchanged, and with three changes between two commits.

    python benchmarks/diff.py     exit 1 when a target is missed or a comparison ends otherwise than it must
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from engines import ROOT, timed

SECONDS = 3.0
RUNS = 3
WAIT = "copies.wait_event(ready)"
"""The wait of ATOM's copies; without it they read before their sources are written."""

GUARD = "\n            copied.synchronize()\n"
"""The host's wait for them."""


def git(folder: Path, *arguments: str) -> None:
    """Run git in the folder, whatever the user's own settings are."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")
    subprocess.run(["git", *names, *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Print the figures."""
    text = (ROOT / "designs" / "atom.py").read_text()
    assert WAIT in text and GUARD in text
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, least and greatest of {RUNS} runs")
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git(folder, "init", "-q", "-b", "main")
        design = folder / "atom.py"
        design.write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "before")
        rows = [("two files, nothing changed", ["atom.py", "atom.py"], 0)]
        for number, (what, changed, wanted) in enumerate((
            ("a comment more", "# A comment.\n" + text, 0),
            ("a wait less, which loses proofs", text.replace(WAIT, "pass"), 1),
            ("a wait twice, which loses none", text.replace(GUARD, GUARD + GUARD[1:]), 0),
        )):
            git(folder, "checkout", "-qb", f"change{number}", "main")
            design.write_text(changed)
            git(folder, "commit", "-qam", what)
            rows.append((f"two commits, {what}", ["--git", f"main..change{number}", "atom.py"], wanted))
        for what, arguments, wanted in rows:
            runs = [timed([sys.executable, "-m", "fencepost", "diff", *arguments], 1, folder) for _ in range(RUNS)]
            seconds, codes = [run[0] for run in runs], {run[1] for run in runs}
            print(f"{what}: {min(seconds):.2f} to {max(seconds):.2f} s, exit {', '.join(map(str, codes))} (target <= {SECONDS:g} s, exit {wanted})")
            print(f"  {runs[-1][2]}")
            good = good and codes == {wanted} and max(seconds) <= SECONDS
    if not good:
        print("MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
