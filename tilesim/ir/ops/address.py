"""Addresses between state spaces: ``mapa``, ``cvta``, ``isspacep`` (SEMANTICS J)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tilesim.arith.types import s32, s64, u32, u64
from tilesim.ir.addresses import RANK_SHIFT, SHARED_WINDOW, WINDOW, peer_address
from tilesim.ir.effects import Defines, Effect
from tilesim.ir.expr import Base, Const, Expr, Special, Var
from tilesim.ir.op import Op
from tilesim.records import dataclass

#: what a generic address is converted from and to
ConvertedSpace = Literal["shared", "shared::cta", "shared::cluster", "global"]
_RANK = Special("cluster_rank")
#: a mask of the bits that a rank may have; generic addresses have others above them
_MOST_RANKS = 0xFFF
_WINDOW = Base(WINDOW, "global")


def _wide(result: Var) -> Iterator[str]:
    if result.dtype not in (s64, u64):
        yield f"a generic address has 64 bits, {result} is of type {result.dtype}"


@dataclass(frozen=True, kw_only=True)
class Mapa(Op):
    """``mapa.shared::cluster``: the address in CTA ``cta`` of the cluster that corresponds to the
    shared memory ``address`` here (J2)."""

    mnemonic = "mapa.shared::cluster"
    features = frozenset({"cluster"})
    call = "mem.mapa"
    ptx = "mapa.shared::cluster.u32 {result}, {address:r}, {cta:r};"
    data = frozenset({"address", "cta"})

    result: Var
    address: Expr
    cta: Expr

    def verify(self) -> Iterator[str]:
        if self.result.dtype not in (s32, u32):
            yield f"the result has 32 bits, {self.result} is of type {self.result.dtype}"

    def effects(self) -> tuple[Effect, ...]:
        return (Defines(self.result, peer_address(self.address, self.cta)),)


@dataclass(frozen=True, kw_only=True)
class MapaGeneric(Op):
    """``mapa.u64``: as ``mapa.shared::cluster``, from and to generic addresses (J2)."""

    mnemonic = "mapa"
    features = frozenset({"cluster"})
    call = "mem.mapa_generic"
    ptx = "mapa.u64 {result:l}, {address:l}, {cta:r};"
    data = frozenset({"address", "cta"})

    result: Var
    address: Expr
    cta: Expr

    def verify(self) -> Iterator[str]:
        yield from _wide(self.result)

    def effects(self) -> tuple[Effect, ...]:
        near = peer_address(self.address - _WINDOW, self.cta)
        return (Defines(self.result, near + _WINDOW),)


@dataclass(frozen=True, kw_only=True)
class Getctarank(Op):
    """``getctarank``: the rank of the CTA in whose shared memory ``address`` lies (J2)."""

    mnemonic = "getctarank"
    features = frozenset({"cluster"})
    call = "mem.getctarank"
    ptx = "getctarank.shared::cluster.u32 {result:r}, {address:r};"
    also = ("getctarank.u64 {result:r}, {address:l};",)
    data = frozenset({"address"})

    result: Var
    address: Expr

    def effects(self) -> tuple[Effect, ...]:
        return (Defines(self.result, self.address >> RANK_SHIFT & _MOST_RANKS),)


@dataclass(frozen=True, kw_only=True)
class Cvta(Op):
    """``cvta``: the generic address of what lies at ``address`` in ``space`` (J3)."""

    mnemonic = "cvta"
    call = "mem.cvta"
    ptx = "cvta{.space}.u64 {result:l}, {address:l};"
    data = frozenset({"address"})

    result: Var
    address: Expr
    space: ConvertedSpace

    def verify(self) -> Iterator[str]:
        yield from _wide(self.result)

    def effects(self) -> tuple[Effect, ...]:
        near = self.space != "global"
        return (Defines(self.result, self.address + _WINDOW if near else self.address),)


@dataclass(frozen=True, kw_only=True)
class CvtaTo(Op):
    """``cvta.to``: the address in ``space`` of what lies at the generic ``address``, which must be
    there (J3)."""

    mnemonic = "cvta.to"
    call = "mem.cvta_to"
    ptx = "cvta.to{.space}.u64 {result:l}, {address:l};"
    data = frozenset({"address"})

    result: Var
    address: Expr
    space: ConvertedSpace

    def effects(self) -> tuple[Effect, ...]:
        near = self.space != "global"
        return (Defines(self.result, self.address - _WINDOW if near else self.address),)


@dataclass(frozen=True, kw_only=True)
class Isspacep(Op):
    """``isspacep``: whether the generic ``address`` is in ``space`` (J4)."""

    mnemonic = "isspacep"
    call = "mem.isspacep"
    ptx = "isspacep{.space} {result:p}, {address:l};"
    data = frozenset({"address"})

    result: Var
    address: Expr
    space: ConvertedSpace

    def effects(self) -> tuple[Effect, ...]:
        window = self.address >> RANK_SHIFT
        first = SHARED_WINDOW >> RANK_SHIFT
        inside: Expr = window.eq(_RANK + first)
        if self.space not in ("shared", "shared::cta"):
            inside = (self.address >> _WINDOW_BITS).eq(SHARED_WINDOW >> _WINDOW_BITS)
        if self.space == "global":
            inside = inside.eq(Const(0))
        return (Defines(self.result, inside),)


#: generic addresses that agree from this bit on are in one window
_WINDOW_BITS = SHARED_WINDOW.bit_length() - 1
