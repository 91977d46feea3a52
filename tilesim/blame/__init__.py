"""Causes before symptoms: what a failing run did before it failed, and which line is to blame.

`tilesim.blame.history` records the failing schedule once more; `diagnose` asks the diagnoses of
this package, each a function of the history and a finding, in their order.
"""
