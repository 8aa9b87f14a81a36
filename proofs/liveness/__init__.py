"""Liveness: states from which some thread waits for ever, whatever the others do (theory: liveness)."""
