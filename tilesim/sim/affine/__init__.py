"""One run for all iterations, clusters and values of parameters.

The state and the accesses of a run are compared as linear functions of the number of an iteration,
of a cluster or of a parameter. Where a decision may come out differently, nothing is skipped or
claimed. Other schedules of the same launch are the business of `tilesim.sim.schedulers`.
"""
