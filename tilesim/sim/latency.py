"""The latency model of the ``timed`` policy, in cycles.

It is a documented model, not a measurement of one chip: its purpose is a plausible order of
events. Verdicts never depend on it (a certificate covers every schedule).
"""

from __future__ import annotations

from tilesim.ir.op import Op

#: cycles a warp needs to issue an instruction, where it differs from `ISSUE`
ISSUE = 4
_ISSUE: dict[str, int] = {
    "ld": 30,
    "st": 8,
    "atom": 200,
    "tile.load": 60,
    "tile.store": 40,
    "tile.map": 40,
    "tile.zip": 20,
    "tile.cast": 20,
    "tile.reduce": 60,
    "barrier.sync": 20,
    "mbarrier.wait": 12,
    "cp.async.bulk.tensor.load": 16,
    "cp.async.bulk.tensor.store": 16,
}

#: cycles from issue to first byte, and bytes per cycle, of the copy engines
COPY_LATENCY = 650
COPY_BYTES_PER_CYCLE = 64
#: multiply-adds per cycle of one SM's tensor core on 16-bit inputs
MMA_PER_CYCLE = 4096


def issue_cycles(op: Op) -> int:
    """Cycles the warp is busy with ``op``."""
    return _ISSUE.get(op.mnemonic, ISSUE)


def copy_cycles(nbytes: int) -> int:
    """Cycles from issue to completion of a bulk copy of ``nbytes``."""
    return COPY_LATENCY + nbytes // COPY_BYTES_PER_CYCLE


def mma_cycles(m: int, n: int, k: int) -> int:
    """Cycles of a matrix multiply-accumulate."""
    return max(1, m * n * k // MMA_PER_CYCLE)
