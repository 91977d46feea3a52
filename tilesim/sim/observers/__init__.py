"""Observers: what judges the events of a run."""
