"""Exploration of host-level nondeterminism with one bit per agent: exact for every number of steps."""
