"""Fault injection and campaigns: many configurations of a kernel, checked in parallel.

The faults themselves are in `tilesim.mistakes`, the random programs of Hypothesis in
`tilesim.strategies`.
"""

from tilesim.mistakes.table import FAULTS, Mutant, mutants

__all__ = ["FAULTS", "Mutant", "mutants"]
