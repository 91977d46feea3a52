"""Schedulers: which schedules of a kernel are run."""
