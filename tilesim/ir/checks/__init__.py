"""The verifier's checks, one module per part of a program.

A check is a function ``Program -> Iterator[Diagnostic]``; `tilesim.ir.verify` runs them all.
"""
