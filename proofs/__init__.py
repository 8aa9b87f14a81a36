"""Engines and what stands around them: exploration, certificates, the answer to one design."""

from __future__ import annotations

if __name__ != "fencepost.proofs":  # a second copy of every class under another name would compare unequal to the first
    raise ImportError(f"this folder is the package fencepost.proofs; it cannot be imported as {__name__}")
