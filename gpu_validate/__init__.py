"""On a real GPU: gates, replay, attack, probes and evidence; torch and cuda-bindings are imported only when used."""

from __future__ import annotations

if __name__ != "fencepost.gpu_validate":  # a second copy of every class under another name would compare unequal to the first
    raise ImportError(f"this folder is the package fencepost.gpu_validate; it cannot be imported as {__name__}")
