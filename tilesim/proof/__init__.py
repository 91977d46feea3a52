"""The proof kernel: a small checker of `proved` that shares no code with what finds proofs.

`certify` executes a launch and checks the conditions of docs/soundness.md; `RULES` is the table of
what it enforces; a `Certificate` names a proof, and what spares work in checking it again. It
imports `tilesim.ir`, NumPy and the standard library only.
"""

from tilesim.proof.certificate import Certificate, fingerprint, read
from tilesim.proof.check import Answer, certify, same_so_far
from tilesim.proof.operands import Differs
from tilesim.proof.rules import RULES, NotCovered, Refuted, Rule

__all__ = [
    "RULES", "Answer", "Certificate", "Differs", "NotCovered", "Refuted", "Rule", "certify",
    "fingerprint", "read", "same_so_far",
]  # fmt: skip
