"""`fencepost diff` as whole processes, as a CI job pays for it: ATOM's design, unchanged, with a comment more, with a wait less.

    python benchmarks/diff.py     exit 1 when a target is missed or a comparison ends otherwise than it must
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from engines import ROOT, timed

SECONDS = 3.0
WAIT = "copies.wait_event(ready)"
"""The wait of ATOM's copies; without it they read before their sources are written."""

GUARD = "\n            copied.synchronize()\n"
"""The host's wait for them."""


def main() -> int:
    """Print the figures."""
    path = ROOT / "designs" / "atom.py"
    text = path.read_text()
    assert WAIT in text and GUARD in text
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for what, changed, wanted in (
            ("nothing changed", text, 0),
            ("a comment more", "# A comment.\n" + text, 0),
            ("a wait less, which loses proofs", text.replace(WAIT, "pass"), 1),
            ("a wait twice, which loses none", text.replace(GUARD, GUARD + GUARD[1:]), 0),
        ):
            after = Path(folder) / "atom.py"
            after.write_text(changed)
            seconds, code, line = timed([sys.executable, "-m", "fencepost", "diff", str(path), str(after)], 3)
            print(f"{what}: {seconds:.2f} s, exit {code} (target <= {SECONDS:g} s, exit {wanted})")
            print(f"  {line}")
            good = good and code == wanted and seconds <= SECONDS
    if not good:
        print("MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
