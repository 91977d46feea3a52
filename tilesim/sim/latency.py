"""The latency model of the ``timed`` policy, in cycles.

It is a documented model, not a measurement of one chip: its purpose is a plausible order of
events. Verdicts never depend on it (a certificate covers every schedule). What a warp needs to
issue an instruction is in its definition (`Op.cycles`).
"""

from __future__ import annotations

#: cycles from issue to first byte, and bytes per cycle, of the copy engines
COPY_LATENCY = 650
COPY_BYTES_PER_CYCLE = 64
#: multiply-adds per cycle of one SM's tensor core on 16-bit inputs
MMA_PER_CYCLE = 4096


def copy_cycles(nbytes: int) -> int:
    """Cycles from issue to completion of a bulk copy of ``nbytes``."""
    return COPY_LATENCY + nbytes // COPY_BYTES_PER_CYCLE


def mma_cycles(m: int, n: int, k: int) -> int:
    """Cycles of a matrix multiply-accumulate."""
    return max(1, m * n * k // MMA_PER_CYCLE)
