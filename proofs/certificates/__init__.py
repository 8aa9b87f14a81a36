"""Certificates: a proof as files that other code and other solvers check (theory: certificates)."""
