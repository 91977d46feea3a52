"""Memory and proxy fences (SEMANTICS H.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilesim.ir.effects import Effect, Orders
from tilesim.ir.op import Op

FenceScope = Literal["cta", "cluster", "gpu", "sys"]


@dataclass(frozen=True, kw_only=True)
class FenceProxyAsync(Op):
    """``fence.proxy.async``: orders generic-proxy and async-proxy accesses of this thread (H9).

    ``space`` restricts it to one state space; None covers all.
    """

    mnemonic = "fence.proxy.async"
    features = frozenset({"tma"})

    space: Literal["global", "shared::cta", "shared::cluster"] | None = None

    def effects(self) -> tuple[Effect, ...]:
        return (Orders(self.mnemonic),)


@dataclass(frozen=True, kw_only=True)
class FenceProxyAsyncGeneric(Op):
    """The one-way pair for cluster hand-overs (H10): ``release`` before, ``acquire`` after."""

    mnemonic = "fence.proxy.async::generic"
    features = frozenset({"tma"})

    sem: Literal["release", "acquire"]

    def effects(self) -> tuple[Effect, ...]:
        return (Orders(self.mnemonic),)


@dataclass(frozen=True, kw_only=True)
class Fence(Op):
    """``fence.acq_rel`` or ``fence.sc`` (H3): makes neighbouring relaxed operations synchronise."""

    mnemonic = "fence"
    sync = True

    sem: Literal["acq_rel", "sc", "acquire", "release"] = "acq_rel"
    scope: FenceScope = "cta"

    def effects(self) -> tuple[Effect, ...]:
        return (Orders(self.mnemonic),)
