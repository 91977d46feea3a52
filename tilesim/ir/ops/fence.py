"""Memory and proxy fences (SEMANTICS H.3)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from tilesim.ir.effects import Crosses, Effect, Orders, Scope, Side
from tilesim.ir.op import Op
from tilesim.records import dataclass

FenceScope = Scope
_SPACES: dict[str | None, tuple[Side, ...]] = {
    None: ("async.shared", "async.global"), "global": ("async.global",),
    "shared::cta": ("async.own",), "shared::cluster": ("async.shared",),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FenceProxyAsync(Op):
    """``fence.proxy.async``: orders generic-proxy and async-proxy accesses of this thread (H9).

    ``space`` restricts it to one state space; None covers all.
    """

    mnemonic = "fence.proxy.async"
    features = frozenset({"tma"})
    call = "fence.proxy_async(space)"
    ptx = "fence.proxy.async{.space};"
    fault = "proxy fence dropped"

    space: Literal["global", "shared::cta", "shared::cluster"] | None = None

    def effects(self) -> tuple[Effect, ...]:
        return (Crosses(self.mnemonic, "generic", _SPACES[self.space]),)


@dataclass(frozen=True, kw_only=True)
class FenceProxyAsyncGeneric(Op):
    """The one-way pair for cluster hand-overs (H10): ``release`` before, ``acquire`` after."""

    mnemonic = "fence.proxy.async::generic"
    features = frozenset({"tma"})
    call = "fence.proxy_async_generic"
    ptx = "fence.proxy.async::generic.{sem}.sync_restrict::{restricted}.cluster;"
    fault = "proxy fence dropped"

    sem: Literal["release", "acquire"]

    @property
    def restricted(self) -> str:
        """The state space of the objects whose operations it is about."""
        return "shared::cta" if self.sem == "release" else "shared::cluster"

    def effects(self) -> tuple[Effect, ...]:
        """Half a fence for shared memory: the release, of the executing CTA's, begins what the
        acquire of the cluster's ends."""
        if self.sem == "release":
            return (Crosses(self.mnemonic, "generic", ("half.own",)),)
        return (Crosses(self.mnemonic, "half", ("async.shared",)),)


@dataclass(frozen=True, kw_only=True)
class FenceProxyAlias(Op):
    """``fence.proxy.alias``: orders accesses to one memory at different addresses, such as those of
    ``multimem`` and ordinary ones (PTX 8.6). It synchronises no threads (H11).

    Here both are accesses to one memory, which are ordered as others are: that the fence is missing
    is not found.
    """

    mnemonic = "fence.proxy.alias"
    call = "fence.proxy_alias"
    ptx = "fence.proxy.alias;"

    def effects(self) -> tuple[Effect, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class Fence(Op):
    """``fence.acq_rel`` or ``fence.sc`` (H3): makes neighbouring relaxed operations synchronise."""

    mnemonic = "fence"
    sync = True
    call = "fence.memory(sem, scope)"
    ptx = "fence{.sem}.{scope};"
    synonyms = MappingProxyType({
        "membar.cta": "fence.sc.cta", "membar.gl": "fence.sc.gpu", "membar.sys": "fence.sc.sys",
    })  # fmt: skip
    fault = "memory fence dropped"

    sem: Literal["acq_rel", "sc", "acquire", "release"] = "acq_rel"
    scope: Scope = "cta"

    def effects(self) -> tuple[Effect, ...]:
        acquires, releases = self.sem != "release", self.sem != "acquire"
        return (Orders(self.mnemonic, acquires, releases, self.scope, sc=self.sem == "sc"),)


@dataclass(frozen=True, kw_only=True)
class FenceSyncRestrict(Op):
    """``fence.sync_restrict``: a one-way fence for shared memory, ``release`` or ``acquire``.

    The pair makes relaxed operations of cluster scope on shared memory, and the cluster barrier,
    release or acquire, and orders only accesses to shared memory: what was written to global memory
    is not handed over (H18).
    """

    mnemonic = "fence.sync_restrict"
    features = frozenset({"cluster"})
    sync = True
    call = "fence.sync_restrict"
    ptx = "fence.{sem}.sync_restrict::{restricted}.cluster;"
    fault = "memory fence dropped"

    sem: Literal["release", "acquire"]

    @property
    def restricted(self) -> str:
        """The state space of the objects that it is about: the releasing side owns them."""
        return "shared::cta" if self.sem == "release" else "shared::cluster"

    def effects(self) -> tuple[Effect, ...]:
        acquires = self.sem == "acquire"
        return (Orders(self.mnemonic, acquires, not acquires, "cluster", in_shared=True),)
