"""Fault injection and campaigns: many configurations of a kernel, checked in parallel."""

from tilesim.fuzz import catalogue
from tilesim.fuzz.faults import FAULTS, Mutant, mutants

__all__ = ["FAULTS", "Mutant", "catalogue", "mutants"]
