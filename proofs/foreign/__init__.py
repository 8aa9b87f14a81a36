"""Exports to foreign checkers: Promela for SPIN, SMT-LIB for any solver."""
