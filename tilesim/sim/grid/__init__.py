"""Whole grids from a few clusters: which take the same steps, and what all of them access."""
