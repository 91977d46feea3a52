"""Steps of warpgroups (family ``wgmma``): a warp that has some is a whole warpgroup.

Its waits and its arrivals of all lanes are those of four warps; what one lane does, a lane of its
first warp does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WgFence:
    """wgmma.fence."""


@dataclass(frozen=True)
class WgMma:
    """wgmma.mma_async: reads a word, adds to an accumulator."""

    word: int
    acc: int
    stages: int = 1


@dataclass(frozen=True)
class WgCommit:
    """wgmma.commit_group."""


@dataclass(frozen=True)
class WgWait:
    """wgmma.wait_group."""

    pending: int = 0


@dataclass(frozen=True)
class WgUse:
    """Ordinary instructions on the registers of an accumulator."""

    acc: int
