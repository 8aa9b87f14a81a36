"""Real engines as designs, each variant with the verdict that it must get. Design files are code and are executed."""

from __future__ import annotations

if __name__ != "fencepost.designs":  # a second copy of every class under another name would compare unequal to the first
    raise ImportError(f"this folder is the package fencepost.designs; it cannot be imported as {__name__}")
