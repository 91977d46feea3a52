"""Steps on tensor memory (family ``tensor``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mma:
    """tcgen05.mma: reads a word, writes a slot of tensor memory (a ring of ``slots``)."""

    word: int
    slot: int
    stages: int = 1
    slots: int = 1


@dataclass(frozen=True)
class Cp:
    """tcgen05.cp from a word to lanes of all four quarters of a slot."""

    word: int
    slot: int
    stages: int = 1
    slots: int = 1


@dataclass(frozen=True)
class Ld:
    """tcgen05.ld of the warp's lanes of a slot."""

    slot: int
    slots: int = 1


@dataclass(frozen=True)
class St:
    """tcgen05.st to the warp's lanes of a slot."""

    slot: int
    slots: int = 1


@dataclass(frozen=True)
class TensorWait:
    """tcgen05.wait::ld or, for ``stores``, wait::st."""

    stores: bool = False


@dataclass(frozen=True)
class TensorFence:
    """tcgen05.fence::before_thread_sync or, if not ``before``, after_thread_sync."""

    before: bool


@dataclass(frozen=True)
class TensorCommit:
    """tcgen05.commit, to the CTAs of the ranks in ``mask``."""

    barrier: int
    mask: int | None = None
    stages: int = 1
