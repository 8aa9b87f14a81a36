"""Run the doctests of every module of the package, by import (one module, one name); exit 1 when one fails."""

from __future__ import annotations

import doctest
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def module_names(root: Path = ROOT) -> Iterator[str]:
    """Import names of all modules: folder X at the top is `fencepost.X`, `frontend` is `fencepost` itself."""
    for init in sorted(root.glob("*/__init__.py")):
        folder = init.parent
        if folder.name in ("tests", "benchmarks"):
            continue
        top = ["fencepost"] if folder.name == "frontend" else ["fencepost", folder.name]
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            elif parts[-1] == "__main__":
                continue
            yield ".".join([*top, *parts])


def main() -> int:
    """Import every module and run its doctests. Returns the exit code."""
    attempted = failed = modules = 0
    for name in module_names():
        result = doctest.testmod(importlib.import_module(name))
        modules += 1
        attempted += result.attempted
        failed += result.failed
    print(f"doctests: {attempted} examples in {modules} modules, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
