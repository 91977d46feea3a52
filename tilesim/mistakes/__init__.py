"""Mistakes in barrier code: one table of how each is injected, mended, and found as a cause.

`tilesim.mistakes.table` has the rows. The modules beside it have one topic each: faults that inject
mistakes into a right program, edits that mend a wrong one, and diagnoses that say what a finding
comes from.
"""
