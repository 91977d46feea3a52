"""The proof kernel: a small checker of `proved` that shares no code with what finds proofs.

`certify` in `check` executes a launch and checks the conditions of docs/soundness.md; `rules` has
the table of what is enforced; a `Certificate` names a proof, and what spares work in checking it
again. It imports `tilesim.ir`, NumPy and the standard library only.
"""
