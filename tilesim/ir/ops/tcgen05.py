"""Fifth-generation tensor cores: tensor memory, commits, fences, and moving data (PTX 9.7.16).

Rules: SEMANTICS section G; cp, shift, ld and st, which move data, are in PTX 9.7.16.8-9. Products
are in `tcgen05_mma`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from tilesim.arith.types import u32
from tilesim.ir.declarations import Fragment, Mbar, View
from tilesim.ir.effects import (
    AllocatesTmem,
    Arrives,
    Commits,
    Effect,
    FreesTmem,
    Gathers,
    Issues,
    OrdersTmem,
    Reads,
    RelinquishesTmem,
    UsesFragment,
    UsesTmem,
    WaitsGroup,
    Writes,
)
from tilesim.ir.expr import Const, Expr
from tilesim.ir.op import Inputs, Op
from tilesim.ir.ops import tcgen05_mma as layouts
from tilesim.ir.ops.tcgen05_mma import CopyMulticast, CopyShape, CtaGroup, LoadShape
from tilesim.ir.tensor_memory import CELL, COLUMNS, TmemView
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane


def _column_problems(columns: int) -> Iterator[str]:
    """What is wrong with a number of columns that are allocated, or freed."""
    if columns < 32 or columns > COLUMNS or columns & (columns - 1):
        yield f"tmem-lifetime: {columns} columns are not a power of two from 32 to {COLUMNS} (G4)"


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


# --------------------------------------------------------------- cp, shift, ld, st (PTX 9.7.16.8-9)


#: lanes and columns per ``.x1`` of tcgen05.ld/st, and registers per thread (G13)
LOAD_SHAPES: dict[LoadShape, tuple[int, int, int]] = {
    "32x32b": (32, 1, 1), "16x64b": (16, 2, 1), "16x128b": (16, 4, 2), "16x256b": (16, 8, 4),
    "16x32bx2": (16, 1, 1),
}  # fmt: skip
_MAX_REGISTERS = 128
#: rows of a warp's fragment that .16x32bx2 moves: two accesses of 16 lanes
SPLIT_ROWS = 32
#: rows of shared memory, bytes per row of tcgen05.cp, and the multicast it must have
COPY_SHAPES: dict[CopyShape, tuple[int, int, tuple[CopyMulticast | None, ...]]] = {
    "128x256b": (128, 32, (None,)),
    "4x256b": (4, 32, (None,)),
    "128x128b": (128, 16, (None,)),
    "64x128b": (64, 16, ("warpx2::02_13", "warpx2::01_23")),
    "32x128b": (32, 16, ("warpx4",)),
}


@dataclass(frozen=True, kw_only=True)
class Tcgen05Cp(Op):
    """Copies rows of shared memory to lanes of tensor memory, issued by one thread (G16, G18).

    ``multicast`` repeats the rows in other quarters of the lanes: ``warpx4`` in all four,
    ``warpx2::02_13`` rows 0-63 in lanes 64-127 too, ``warpx2::01_23`` rows 0-31 in lanes 0-31 and
    32-63, rows 32-63 in the others. ``dst`` names the rows once, by the address of the first.
    ``.4x256b`` writes row ``r`` to the same lane of quarter ``r``: 32 lanes further than row 0.
    """

    mnemonic = "tcgen05.cp"
    features = frozenset({"tcgen05"})

    dst: TmemView
    src: View
    shape: CopyShape
    multicast: CopyMulticast | None = None
    cta_group: CtaGroup = 1

    def verify(self) -> Iterator[str]:
        rows, width, multicasts = COPY_SHAPES[self.shape]
        if self.src.space != "shared" or self.src.remote:
            yield f"{self.src} must be in the executing CTA's shared memory (G16)"
        if self.src.nbytes != rows * width:
            yield f"{self.src} has {self.src.nbytes} bytes, .{self.shape} copies {rows * width}"
        if self.dst.shape[0] != rows or self.dst.columns != width * 8 // CELL:
            yield f"{self.dst.name} is {self.dst.shape}, .{self.shape} has {rows} x {width} bytes"
        if self.multicast not in multicasts:
            need = " or ".join(f".{m}" for m in multicasts if m) or "no multicast"
            yield f".{self.shape} needs {need}"

    def effects(self) -> tuple[Effect, ...]:
        source = Reads(self.src, "async", asynchronous=True)
        layout = layouts.copied(self.dst, self.shape, self.multicast)
        issues = Issues("tcgen05", pair=self.cta_group == 2)
        return (issues, source, UsesTmem(self.dst, "cp", write=True, layout=layout))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        """What the lanes of each CTA get."""
        import numpy as np

        count = self.dst.shape[0]
        lanes = layouts.copied_rows(count, self.multicast)
        parts = (inputs.part(self.src, cta) for cta in range(self.cta_group))
        rows = (np.ascontiguousarray(p).view(np.uint8).reshape(count, -1) for p in parts)
        return tuple(part[lanes] for part in rows)


@dataclass(frozen=True, kw_only=True)
class Tcgen05Shift(Op):
    """Moves the 32-byte rows of 32 lanes down by one lane, issued by one thread (G18).

    Lane ``i`` gets what lane ``i + 1`` had; the last keeps its own. The first lane is a multiple of
    32.
    """

    mnemonic = "tcgen05.shift"
    features = frozenset({"tcgen05", "tcgen05.shift"})

    dst: TmemView
    cta_group: CtaGroup = 1

    def verify(self) -> Iterator[str]:
        if self.dst.shape[0] != 32 or self.dst.columns != 8:
            yield f"{self.dst.name} is {self.dst.shape}, tcgen05.shift moves 32 rows of 32 bytes"

    def effects(self) -> tuple[Effect, ...]:
        layout = layouts.shifted(self.dst)
        moves = UsesTmem(self.dst, "shift", write=True, layout=layout, keeps=Const(1))
        return (Issues("tcgen05", pair=self.cta_group == 2), moves)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        """The lanes of each CTA, each with what the next one had."""
        import numpy as np

        parts = (inputs.part(self.dst, cta) for cta in range(self.cta_group))
        return tuple(np.concatenate([part[1:], part[-1:]]) for part in parts)


@dataclass(frozen=True, kw_only=True)
class Tcgen05Ld(Op):
    """Loads the warp's lanes of tensor memory into its part of a fragment (G12, G13, G21).

    ``src``: 32 lanes of ``.32x32b``, 16 of the others. ``.16x32bx2`` loads 16 lanes twice: rows
    0-15 of the fragment from ``src``, rows 16-31 from the same lanes ``half_split`` columns
    further. A view that is not packed has 16-bit elements and takes ``.pack::16b``. Asynchronous:
    `Tcgen05Wait` completes it.
    """

    mnemonic = "tcgen05.ld"
    features = frozenset({"tcgen05"})

    dst: Fragment
    src: TmemView
    shape: LoadShape = "32x32b"
    half_split: int = 0

    def verify(self) -> Iterator[str]:
        yield from _load_problems(self.src, self.dst, self.shape, self.half_split)

    def effects(self) -> tuple[Effect, ...]:
        layout = layouts.loaded(self.src, self.shape, self.half_split)
        loads = UsesTmem(self.src, "ld", layout=layout)
        fills = UsesFragment(self.dst, write=True, asynchronous=True, value=self.src)
        return (Gathers(None, "G13", whole=True), loads, fills)


@dataclass(frozen=True, kw_only=True)
class Tcgen05St(Op):
    """Stores the warp's part of a fragment to its lanes of tensor memory; see `Tcgen05Ld`."""

    mnemonic = "tcgen05.st"
    features = frozenset({"tcgen05"})

    dst: TmemView
    src: Fragment
    shape: LoadShape = "32x32b"
    half_split: int = 0

    def verify(self) -> Iterator[str]:
        yield from _load_problems(self.dst, self.src, self.shape, self.half_split)
        if self.shape == "16x32bx2" and abs(self.half_split) < self.dst.columns:
            yield (
                f"the halves of {self.dst.name} are {self.half_split} columns apart and have "
                f"{self.dst.columns}: both would be stored to the same columns"
            )

    def effects(self) -> tuple[Effect, ...]:
        layout = layouts.loaded(self.dst, self.shape, self.half_split)
        stores = UsesTmem(self.dst, "st", write=True, layout=layout, value=self.src)
        return (Gathers(None, "G13", whole=True), UsesFragment(self.src), stores)


def _load_problems(
    view: TmemView, fragment: Fragment, shape: LoadShape, half_split: int
) -> Iterator[str]:
    lanes, columns, registers = LOAD_SHAPES[shape]
    if not view.packed and view.dtype.bits < CELL:
        columns *= 2
        if view.dtype.bits != 16:
            yield f"{view.name}: tcgen05.ld packs and st unpacks only 16-bit elements"
    count, rest = divmod(view.columns, columns)
    if view.shape[0] != lanes:
        yield f"{view.name} has {view.shape[0]} lanes, .{shape} accesses {lanes} (G13)"
    if rest or count & (count - 1) or not count >= 1 or count * registers > _MAX_REGISTERS:
        yield (
            f"{view.columns} columns: .{shape}.xN accesses {columns} x N, N a power of two up to "
            f"{_MAX_REGISTERS // registers} (G13)"
        )
    part = (SPLIT_ROWS if shape == "16x32bx2" else view.shape[0], view.shape[1])
    if fragment.warp_shape != part or fragment.dtype != view.dtype:
        yield (
            f"{view.name} is {view.shape} {view.dtype}, for which .{shape} needs a warp's part of "
            f"{part}; that of {fragment.name} is {fragment.warp_shape} {fragment.dtype}"
        )
    if half_split and shape != "16x32bx2":
        yield f".{shape} has no half-split offset"
