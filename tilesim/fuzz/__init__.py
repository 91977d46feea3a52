"""Fault injection and campaigns: many configurations of a kernel, checked in parallel."""

from tilesim.mistakes.table import FAULTS, Mutant, mutants

__all__ = ["FAULTS", "Mutant", "mutants"]
