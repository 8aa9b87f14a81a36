"""Bounded SMT: the times of every start and end are variables, and Z3 finds the interleaving."""
