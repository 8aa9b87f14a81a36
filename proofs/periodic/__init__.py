"""Periodic event graphs: exact conditions over parameters, and what a step costs (theory: exact conditions)."""
