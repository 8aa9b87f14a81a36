"""The operational machine with values and time, Hypothesis strategies and random designs."""

from __future__ import annotations

if __name__ != "fencepost.simulator":  # a second copy of every class under another name would compare unequal to the first
    raise ImportError(f"this folder is the package fencepost.simulator; it cannot be imported as {__name__}")
