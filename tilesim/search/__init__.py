"""Checks: the first run, and what a verdict needs beside it: more schedules, plans of chance,
classes of clusters.

`checking` is one check, `options` what the caller asks for, `extent` what is said of its reach.
"""
