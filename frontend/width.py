"""How wide a report is printed: COLUMNS, else the terminal, else what its kind of report takes in a pipe."""

from __future__ import annotations

import os
import sys
from typing import TextIO

NARROWEST = 40
"""Columns below which no table can be read any more."""


def columns(otherwise: int = 100, out: TextIO | None = None) -> int:
    """Columns of a report that goes to `out` (default: standard output); `otherwise` where nothing says how wide it is.

    COLUMNS=0 counts as not set, as in other programs.
    """
    said = os.environ.get("COLUMNS", "")
    if said.isdigit() and int(said) > 0:
        return max(NARROWEST, int(said))
    target = sys.stdout if out is None else out
    if not target.isatty():
        return otherwise
    try:
        wide = os.get_terminal_size(target.fileno()).columns
    except (OSError, ValueError):  # a terminal of another kind, as in a notebook
        import shutil  # which brings all kinds of archives along

        wide = shutil.get_terminal_size((otherwise, 24)).columns
    return max(NARROWEST, wide or otherwise)
