"""The 64-bit word of an mbarrier as it lies in shared memory.

============ ==========================================================
bits         what they hold
============ ==========================================================
63           parity of the phase that runs
62 .. 43     pending arrivals, negated, modulo 2^20
42           0
41 .. 21     tx-count, negated, two's complement of 21 bits
20 .. 1      arrivals that the next phase expects, negated, modulo 2^20
0            0
============ ==========================================================

PTX says what an mbarrier holds, and the ranges of it; the layout is opaque. `evidence` says what
it rests on here, for each architecture. The words of a trap or of a hung kernel are as the hardware
left them: ``mbarrier.inval`` does not change the word.
"""

from __future__ import annotations

from tilesim.records import dataclass

#: the greatest count of PTX (PTX ISA, "Contents of the mbarrier object")
MOST = (1 << 20) - 1

_SEEN = "dumps of an H200 of 19 barriers in known states"
_WRITTEN = (
    "inferred: ptxas writes a new barrier so (mbarrier.init) and finds a state's pending count "
    "there (mbarrier.pending_count); phase and tx-count are taken to lie as on sm_90"
)
#: sm_80 has another layout (31 bits of pending count, no tx-count), which is not read
_EVIDENCE = {
    (9, 0): _SEEN,
    (10, 0): _WRITTEN,
    (10, 3): _WRITTEN,
    (11, 0): _WRITTEN,
    (12, 0): _WRITTEN,
    (12, 1): _WRITTEN,
}


@dataclass(frozen=True)
class Mbarrier:
    """The state of an mbarrier.

    ``parity``: of the phase that runs: a wait for this parity waits, one for the other goes on.
    ``pending``: arrivals that this phase still lacks. ``expected``: arrivals of the next phase.
    ``tx``: bytes that this phase still lacks; below 0 if more have come than were expected.
    """

    parity: int
    pending: int
    expected: int
    tx: int


def decode(word: int, arch: tuple[int, int]) -> Mbarrier | None:
    """The mbarrier that a word is; None if it cannot be one, or if the layout of the architecture
    is not known (`evidence`)."""
    if arch not in _EVIDENCE or not 0 <= word < 1 << 64 or word & (1 | 1 << 42):
        return None
    tx = _negated(word >> 21, 21)
    found = Mbarrier(
        word >> 63, _negated(word >> 43, 20), _negated(word >> 1, 20), tx - (tx >> 20 << 21)
    )
    # an arrival takes from the pending count only, one that drops from both: pending <= expected
    if not found.pending <= found.expected or not found.expected or abs(found.tx) > MOST:
        return None
    return found


def evidence(arch: tuple[int, int]) -> str | None:
    """What the layout rests on for an architecture; None if it is not known there."""
    return _EVIDENCE.get(arch)


def _negated(word: int, bits: int) -> int:
    return -word % (1 << bits)
