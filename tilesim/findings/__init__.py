"""Findings as data, and the documentation of each rule.

What finds them is in `tilesim.sim.observers`, what causes them in `tilesim.mistakes`, and how they
are printed in `tilesim.report`.
"""
