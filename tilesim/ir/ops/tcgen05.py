"""Fifth-generation tensor core instructions and tensor memory (PTX 9.7.16; SEMANTICS section G).

Here are allocation and synchronisation; products are in `tcgen05_mma`, what moves data in
`tcgen05_data`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tilesim.arith.types import u32
from tilesim.ir.effects import (
    AllocatesTmem,
    Arrives,
    Commits,
    Effect,
    FreesTmem,
    Gathers,
    OrdersTmem,
    RelinquishesTmem,
    WaitsGroup,
    Writes,
)
from tilesim.ir.expr import Const, Expr
from tilesim.ir.memory import Mbar, View
from tilesim.ir.op import Op
from tilesim.ir.ops.tcgen05_shapes import CtaGroup
from tilesim.ir.tmem import COLUMNS


def _column_problems(columns: int) -> Iterator[str]:
    """What is wrong with a number of columns that are allocated, or freed."""
    if columns < 32 or columns > COLUMNS or columns & (columns - 1):
        yield f"tmem-lifetime: {columns} columns are no power of two from 32 to {COLUMNS} (G4)"


@dataclass(frozen=True, kw_only=True)
class Tcgen05Alloc(Op):
    """Allocates ``columns`` of tensor memory and writes their address to shared memory (G4-G6).

    Executed by one whole warp (with cta_group 2: one in each CTA of the pair); blocks until the
    columns are free. The store to ``dst`` is an ordinary one: others need a barrier to read it.
    """

    mnemonic = "tcgen05.alloc"
    ptx = (
        "tcgen05.alloc.cta_group::{cta_group}.sync.aligned.shared::cta.b32 "
        "[{dst:1*b32}], {columns};"
    )
    features = frozenset({"tcgen05"})
    sync = True

    dst: View
    columns: int
    cta_group: CtaGroup = 1

    def verify(self) -> Iterator[str]:
        yield from _column_problems(self.columns)
        own = self.dst.space == "shared" and not self.dst.remote
        if not own or self.dst.size != 1 or self.dst.dtype != u32:
            yield f"the address is written to one u32 of the CTA's shared memory, not to {self.dst}"

    def effects(self) -> tuple[Effect, ...]:
        allocates = AllocatesTmem(self.columns, self.cta_group == 2)
        return (Gathers(None, "G4", whole=True), allocates, Writes(self.dst, value=allocates))


@dataclass(frozen=True, kw_only=True)
class Tcgen05Dealloc(Op):
    """Frees what one tcgen05.alloc returned (G8, G9); every use must be complete."""

    mnemonic = "tcgen05.dealloc"
    ptx = "tcgen05.dealloc.cta_group::{cta_group}.sync.aligned.b32 {address:r}, {columns};"
    features = frozenset({"tcgen05"})
    sync = True

    address: Expr
    columns: int
    cta_group: CtaGroup = 1

    def verify(self) -> Iterator[str]:
        yield from _column_problems(self.columns)

    def effects(self) -> tuple[Effect, ...]:
        frees = FreesTmem(self.address, self.columns, self.cta_group == 2)
        return (Gathers(None, "G8", whole=True), frees)


@dataclass(frozen=True, kw_only=True)
class Tcgen05RelinquishAllocPermit(Op):
    """The CTA will allocate no more, so that CTAs on the same SM can (G7)."""

    mnemonic = "tcgen05.relinquish_alloc_permit"
    ptx = "tcgen05.relinquish_alloc_permit.cta_group::{cta_group}.sync.aligned;"
    features = frozenset({"tcgen05"})
    sync = True

    cta_group: CtaGroup = 1

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(None, "G7", whole=True), RelinquishesTmem(self.cta_group == 2))


@dataclass(frozen=True, kw_only=True)
class Tcgen05Wait(Op):
    """``tcgen05.wait::ld`` / ``::st``: the warp's earlier loads or stores are complete (G28)."""

    mnemonic = "tcgen05.wait"
    ptx = "tcgen05.wait::{kind}.sync.aligned;"
    features = frozenset({"tcgen05"})

    kind: Literal["ld", "st"]

    def effects(self) -> tuple[Effect, ...]:
        group: Literal["tcgen05.ld", "tcgen05.st"]
        group = "tcgen05.ld" if self.kind == "ld" else "tcgen05.st"
        return (Gathers(None, "G28", whole=True), WaitsGroup(group, 0))


@dataclass(frozen=True, kw_only=True)
class Tcgen05Commit(Op):
    """Arrives once on ``mbar`` when the thread's earlier mma, cp and shift are complete (G26).

    ``multicast``: on the same barrier of every CTA in the mask, by cluster rank.
    """

    mnemonic = "tcgen05.commit"
    ptx = (
        "tcgen05.commit.cta_group::{cta_group}.mbarrier::arrive::one.shared::cluster"
        "{.multicast=multicast::cluster}.b64 [{mbar}]{,multicast:h};"
    )
    features = frozenset({"tcgen05"})
    sync = True

    mbar: Mbar
    multicast: Expr | None = None
    cta_group: CtaGroup = 1

    def verify(self) -> Iterator[str]:
        if self.multicast is not None and self.mbar.remote:
            yield "a multicast commit names the barrier of the executing CTA (G26)"

    def effects(self) -> tuple[Effect, ...]:
        arrives = Arrives(
            self.mbar, Const(1), asynchronous=True, group="tcgen05", multicast=self.multicast
        )
        return (Commits("tcgen05"), arrives)


@dataclass(frozen=True, kw_only=True)
class Tcgen05Fence(Op):
    """``tcgen05.fence::before_thread_sync`` / ``::after_thread_sync`` (G22)."""

    mnemonic = "tcgen05.fence"
    ptx = "tcgen05.fence::{side};"
    fault = "tcgen05 fence dropped"
    features = frozenset({"tcgen05"})

    side: Literal["before_thread_sync", "after_thread_sync"]

    def effects(self) -> tuple[Effect, ...]:
        return (OrdersTmem(before=self.side == "before_thread_sync"),)
