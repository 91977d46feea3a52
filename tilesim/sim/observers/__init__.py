"""Observers: what judges the events of a run.

Races, phases, lifetimes, deadlocks and the certificate of a run are found here, as findings of
`tilesim.findings`. Pages of rules are there as well; causes and repairs are in `tilesim.mistakes`.
"""
