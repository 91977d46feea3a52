"""The cluster barrier (SEMANTICS D.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilesim.ir.effects import Effect, JoinsCluster
from tilesim.ir.op import Op


@dataclass(frozen=True, kw_only=True)
class ClusterArrive(Op):
    """``barrier.cluster.arrive``: counts this warp's threads in the current round (D1-D4)."""

    mnemonic = "barrier.cluster.arrive"
    features = frozenset({"cluster"})
    sync = True

    sem: Literal["release", "relaxed"] = "release"
    aligned: bool = True

    def effects(self) -> tuple[Effect, ...]:
        return (JoinsCluster(arrives=True),)


@dataclass(frozen=True, kw_only=True)
class ClusterWait(Op):
    """``barrier.cluster.wait``: blocks until all live threads of the cluster have arrived (D2)."""

    mnemonic = "barrier.cluster.wait"
    features = frozenset({"cluster"})
    sync = True

    aligned: bool = True

    def effects(self) -> tuple[Effect, ...]:
        return (JoinsCluster(arrives=False),)
