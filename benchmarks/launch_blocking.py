"""What CUDA_LAUNCH_BLOCKING=1 really blocks, by size of copy: wrong values of ten behind a 10 ms kernel, with and without."""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Run both processes and print the table."""
    from fencepost.gpu_validate.probes_process import child
    from fencepost.gpu_validate.probing import NotHere

    try:
        blocking = json.loads(child("launch_blocking", CUDA_LAUNCH_BLOCKING="1"))
        plain = json.loads(child("launch_blocking"))
    except NotHere as error:
        print(f"launch_blocking: {error}", file=sys.stderr)
        return 2
    print(f"kernel launch: {plain['kernel']['launch_ms']:.2f} ms, with CUDA_LAUNCH_BLOCKING=1 {blocking['kernel']['launch_ms']:.2f} ms")
    print(f"{'copy':<9} {'H2D, source rewritten':^27} {'D2H, read at once':^27}")
    print(f"{'':<9} {'unset':>13} {'blocking':>13} {'unset':>13} {'blocking':>13}")
    for size, row in blocking.items():
        if size != "kernel":
            other = plain[size]
            cells = [f"{r[k]}/{r['of']}" for k in ("h2d_wrong", "d2h_wrong") for r in (other, row)]
            print(f"{size:<9} " + " ".join(f"{cell:>13}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
