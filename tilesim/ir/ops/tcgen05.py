"""Fifth-generation tensor core instructions and tensor memory (PTX 9.7.16; SEMANTICS section G)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tilesim.ir.effects import (
    AllocatesTmem,
    Arrives,
    Commits,
    Effect,
    FreesTmem,
    Orders,
    Reads,
    UsesFragment,
    UsesTmem,
    WaitsGroup,
    Writes,
)
from tilesim.ir.expr import Const, Expr
from tilesim.ir.memory import Fragment, Mbar, SharedTensor, View
from tilesim.ir.op import Op
from tilesim.ir.tmem import CELL, COLUMNS, TmemView
from tilesim.ir.types import DType, bf16, e4m3, e5m2, f16, f32, s8, s32, tf32, u8, u32

CtaGroup = Literal[1, 2]
Kind = Literal["f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"]
LoadShape = Literal["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"]
CopyShape = Literal["128x256b", "4x256b", "128x128b", "64x128b", "32x128b"]
CopyMulticast = Literal["warpx2::02_13", "warpx2::01_23", "warpx4"]

#: bytes of one row of A or B that an instruction consumes, for every dense kind (G15)
ROW_BYTES = 32
INPUTS: dict[Kind, tuple[DType, ...]] = {
    "f16": (f16, bf16), "tf32": (tf32,), "f8f6f4": (e4m3, e5m2), "i8": (s8, u8),
    "mxf8f6f4": (e4m3, e5m2), "mxf4": (u8,), "mxf4nvf4": (u8,),
}  # fmt: skip
ACCUMULATORS: dict[Kind, tuple[DType, ...]] = {
    "f16": (f32,), "tf32": (f32,), "f8f6f4": (f32,), "i8": (s32,),
    "mxf8f6f4": (f32,), "mxf4": (f32,), "mxf4nvf4": (f32,),
}  # fmt: skip
#: scale factors per row and instruction of the block-scaled kinds (``.scale_vec``)
SCALE_VECTORS: dict[Kind, tuple[int, ...]] = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (4, 2)}
#: lanes and columns per ``.x1`` of tcgen05.ld/st, and registers per thread (G13)
LOAD_SHAPES: dict[LoadShape, tuple[int, int, int]] = {
    "32x32b": (32, 1, 1), "16x64b": (16, 2, 1), "16x128b": (16, 4, 2), "16x256b": (16, 8, 4),
    "16x32bx2": (32, 1, 1),
}  # fmt: skip
_MAX_REGISTERS = 128
#: rows of shared memory, bytes per row of tcgen05.cp, and the multicast it must have
COPY_SHAPES: dict[CopyShape, tuple[int, int, tuple[CopyMulticast | None, ...]]] = {
    "128x256b": (128, 32, (None,)),
    "4x256b": (4, 32, (None,)),
    "128x128b": (128, 16, (None,)),
    "64x128b": (64, 16, ("warpx2::02_13", "warpx2::01_23")),
    "32x128b": (32, 16, ("warpx4",)),
}


@dataclass(frozen=True, kw_only=True)
class Tcgen05Alloc(Op):
    """Allocates ``columns`` of tensor memory and writes their address to shared memory (G4-G6).

    Executed by one whole warp (with cta_group 2: one in each CTA of the pair); blocks until the
    columns are free. The store to ``dst`` is an ordinary one: others need a barrier to read it.
    """

    mnemonic = "tcgen05.alloc"
    features = frozenset({"tcgen05"})
    sync = True

    dst: View
    columns: int
    cta_group: CtaGroup = 1

    def verify(self) -> Iterator[str]:
        columns = self.columns
        if columns < 32 or columns > COLUMNS or columns & (columns - 1):
            yield f"tmem-lifetime: {columns} columns are no power of two from 32 to {COLUMNS} (G4)"
        own = isinstance(self.dst.tensor, SharedTensor) and self.dst.cta is None
        if not own or self.dst.size != 1 or self.dst.dtype != u32:
            yield f"the address is written to one u32 of the CTA's shared memory, not to {self.dst}"

    def effects(self) -> tuple[Effect, ...]:
        return (AllocatesTmem(self.columns), Writes(self.dst))


@dataclass(frozen=True, kw_only=True)
class Tcgen05Dealloc(Op):
    """Frees what one tcgen05.alloc returned (G8, G9); every use must be complete."""

    mnemonic = "tcgen05.dealloc"
    features = frozenset({"tcgen05"})
    sync = True

    address: Expr
    columns: int
    cta_group: CtaGroup = 1

    def effects(self) -> tuple[Effect, ...]:
        return (FreesTmem(self.address, self.columns),)


@dataclass(frozen=True, kw_only=True)
class Tcgen05RelinquishAllocPermit(Op):
    """The CTA will allocate no more, so that CTAs on the same SM can (G7)."""

    mnemonic = "tcgen05.relinquish_alloc_permit"
    features = frozenset({"tcgen05"})
    sync = True

    cta_group: CtaGroup = 1

    def effects(self) -> tuple[Effect, ...]:
        return (Orders(self.mnemonic),)


@dataclass(frozen=True, kw_only=True)
class Tcgen05Mma(Op):
    """``d (+)= a @ b`` asynchronously, issued by one thread (G11, G14-G20).

    ``a``: shared or tensor memory (rows, K), ``b``: shared memory (N, K), with ``a_trans`` /
    ``b_trans`` (K, rows); K fills 32 bytes. ``accumulate`` is PTX's enable-input-d. Rows are 64 or
    128. With cta_group 2 every view names the part of the executing CTA, and the peer has its part
    at the same addresses: its own rows of A and D, and its own half of the rows of B.

    ``d`` is (rows, N). 64 rows of a single CTA lie in lanes 0-15, 32-47, 64-79 and 96-111; a pair
    with 64 rows each puts columns N/2.. into lanes 64-127, so its ``d`` is (128, N/2).

    Block-scaled kinds read one scale factor byte per block of K from tensor memory: that of row
    ``r`` lies in lane ``r % 32`` of every quarter, column ``r // 32``, from byte ``scale_id`` on.
    """

    mnemonic = "tcgen05.mma"
    features = frozenset({"tcgen05"})

    d: TmemView
    a: View | TmemView
    b: View
    kind: Kind
    accumulate: Expr = Const(1)
    cta_group: CtaGroup = 1
    a_trans: bool = False
    b_trans: bool = False
    scale_a: TmemView | None = None
    scale_b: TmemView | None = None
    scale_vec: int = 1
    scale_id: int = 0

    @property
    def rows(self) -> int:
        """Rows of A and D in one CTA."""
        return self.a.shape[1] if self.a_trans else self.a.shape[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K) of the instruction, over both CTAs of a pair."""
        n = self.b.shape[1] if self.b_trans else self.b.shape[0]
        k = self.a.shape[0] if self.a_trans else self.a.shape[1]
        packed = 2 if self.kind in ("mxf4", "mxf4nvf4") else 1
        return self.rows * self.cta_group, n * self.cta_group, k * packed

    @property
    def block_scaled(self) -> bool:
        """Whether the kind has scale factors."""
        return self.kind in SCALE_VECTORS

    def verify(self) -> Iterator[str]:
        for name, operand in (("A", self.a), ("B", self.b)):
            if len(operand.shape) != 2:
                yield f"{name} has shape {tuple(operand.shape)}, a matrix is needed"
                return
        yield from self._type_problems()
        yield from self._shape_problems()
        yield from self._scale_problems()

    def _type_problems(self) -> Iterator[str]:
        inputs = INPUTS[self.kind]
        for name, operand in (("A", self.a), ("B", self.b)):
            if operand.dtype not in inputs:
                yield f"kind::{self.kind} has no {operand.dtype} inputs ({name})"
        if self.kind == "f16" and self.a.dtype != self.b.dtype:
            yield f"A is {self.a.dtype}, B is {self.b.dtype}"
        if self.d.dtype not in ACCUMULATORS[self.kind]:
            yield f"kind::{self.kind} does not accumulate in {self.d.dtype}"
        for view in (self.a, self.b):
            if isinstance(view, View) and (
                not isinstance(view.tensor, SharedTensor) or view.cta is not None
            ):
                yield f"{view} must be in the executing CTA's shared memory (G14)"
        if isinstance(self.a, TmemView) and self.a_trans:
            yield "A in tensor memory cannot be transposed"

    def _shape_problems(self) -> Iterator[str]:
        m, n, _ = self.shape
        group = self.cta_group
        depth_a = self.a.shape[0] if self.a_trans else self.a.shape[1]
        depth_b = self.b.shape[0] if self.b_trans else self.b.shape[1]
        expected = ROW_BYTES * 8 // self.a.dtype.bits
        if depth_a != expected or depth_b != expected:
            yield f"A has K = {depth_a}, B {depth_b}, kind::{self.kind} needs {expected} (G15)"
        rows = (128,) if self.block_scaled and group == 1 else (64, 128)
        if self.rows not in rows:
            yield f"{self.rows} rows per CTA, kind::{self.kind} has {_either(rows)} (G15)"
        step = 8 * group if self.kind != "i8" else 16 * group
        small = self.kind == "i8" and group == 1 and n in (8, 24)
        if not (8 * group <= n <= 256) or (n % step and not small):
            yield f"N = {n} is not a size of kind::{self.kind}.cta_group::{group} (G15)"
        d = (128, n // 2) if group == 2 and self.rows == 64 else (self.rows, n)
        if self.d.shape != d:
            yield f"D is {self.d.shape}, M = {m} and N = {n} need {d} (G14)"

    def _scale_problems(self) -> Iterator[str]:
        scales = (self.scale_a, self.scale_b)
        if not self.block_scaled:
            if any(s is not None for s in scales):
                yield f"kind::{self.kind} has no scale factors"
            return
        if any(s is None for s in scales):
            yield f"kind::{self.kind} needs scale_a and scale_b in tensor memory (G14)"
        if self.scale_vec not in SCALE_VECTORS[self.kind]:
            allowed = _either(SCALE_VECTORS[self.kind])
            yield f"scale_vec::{self.scale_vec}X: kind::{self.kind} has {allowed}"
        elif self.scale_id % self.scale_vec or not 0 <= self.scale_id <= 4 - self.scale_vec:
            yield f"scale factor id {self.scale_id} with scale_vec::{self.scale_vec}X"

    def effects(self) -> tuple[Effect, ...]:
        a: Effect = (
            Reads(self.a, "async", asynchronous=True)
            if isinstance(self.a, View)
            else UsesTmem(self.a, "mma")
        )
        scales = tuple(UsesTmem(s, "mma") for s in (self.scale_a, self.scale_b) if s is not None)
        b = Reads(self.b, "async", asynchronous=True)
        return (a, b, *scales, UsesTmem(self.d, "mma", write=True))


def _either(numbers: tuple[int, ...]) -> str:
    return " or ".join(map(str, numbers))


@dataclass(frozen=True, kw_only=True)
class Tcgen05Cp(Op):
    """Copies rows of shared memory to lanes of tensor memory, issued by one thread (G16, G18).

    ``multicast`` repeats the rows in other quarters of the lanes. ``dst`` names the lanes of the
    first copy.
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
        if not isinstance(self.src.tensor, SharedTensor) or self.src.cta is not None:
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
        return (source, UsesTmem(self.dst, "cp", write=True))


@dataclass(frozen=True, kw_only=True)
class Tcgen05Shift(Op):
    """Moves the 32-byte rows of 32 lanes down by one lane, issued by one thread (G18)."""

    mnemonic = "tcgen05.shift"
    features = frozenset({"tcgen05", "tcgen05.shift"})

    dst: TmemView
    cta_group: CtaGroup = 1

    def verify(self) -> Iterator[str]:
        if self.dst.shape[0] != 32 or self.dst.columns != 8:
            yield f"{self.dst.name} is {self.dst.shape}, tcgen05.shift moves 32 rows of 32 bytes"

    def effects(self) -> tuple[Effect, ...]:
        return (UsesTmem(self.dst, "shift", write=True),)


@dataclass(frozen=True, kw_only=True)
class Tcgen05Ld(Op):
    """Loads the warp's lanes of tensor memory into its part of a fragment (G12, G13, G21).

    ``src``: 32 lanes of ``.32x32b`` and ``.16x32bx2``, 16 of the others. ``half_split`` is the
    column distance of lanes 16-31 in ``.16x32bx2``. Asynchronous: `Tcgen05Wait` completes it.
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
        return (UsesTmem(self.src, "ld"), UsesFragment(self.dst, write=True, asynchronous=True))


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

    def effects(self) -> tuple[Effect, ...]:
        return (UsesFragment(self.src), UsesTmem(self.dst, "st", write=True))


def _load_problems(
    view: TmemView, fragment: Fragment, shape: LoadShape, half_split: int
) -> Iterator[str]:
    lanes, columns, registers = LOAD_SHAPES[shape]
    count, rest = divmod(view.columns, columns)
    if view.shape[0] != lanes:
        yield f"{view.name} has {view.shape[0]} lanes, .{shape} accesses {lanes} (G13)"
    if rest or count & (count - 1) or not count >= 1 or count * registers > _MAX_REGISTERS:
        yield (
            f"{view.columns} columns: .{shape}.xN accesses {columns} x N, N a power of two up to "
            f"{_MAX_REGISTERS // registers} (G13)"
        )
    if fragment.warp_shape != view.shape or fragment.dtype != view.dtype:
        yield (
            f"{view.name} is {view.shape} {view.dtype}, a warp's part of {fragment.name} is "
            f"{fragment.warp_shape} {fragment.dtype}"
        )
    if half_split and shape != "16x32bx2":
        yield f".{shape} has no half-split offset"


@dataclass(frozen=True, kw_only=True)
class Tcgen05Wait(Op):
    """``tcgen05.wait::ld`` / ``::st``: the warp's earlier loads or stores are complete (G28)."""

    mnemonic = "tcgen05.wait"
    features = frozenset({"tcgen05"})

    kind: Literal["ld", "st"]

    def effects(self) -> tuple[Effect, ...]:
        return (WaitsGroup("tcgen05.ld" if self.kind == "ld" else "tcgen05.st", 0),)


@dataclass(frozen=True, kw_only=True)
class Tcgen05Commit(Op):
    """Arrives once on ``mbar`` when the thread's earlier mma, cp and shift are complete (G26).

    ``multicast``: on the same barrier of every CTA in the mask, by cluster rank.
    """

    mnemonic = "tcgen05.commit"
    features = frozenset({"tcgen05"})
    sync = True

    mbar: Mbar
    multicast: Expr | None = None
    cta_group: CtaGroup = 1

    def verify(self) -> Iterator[str]:
        if self.multicast is not None and self.mbar.cta is not None:
            yield "a multicast commit names the barrier of the executing CTA (G26)"

    def effects(self) -> tuple[Effect, ...]:
        arrives = Arrives(self.mbar, Const(1), asynchronous=True, multicast=self.multicast)
        return (Commits("tcgen05"), arrives)


@dataclass(frozen=True, kw_only=True)
class Tcgen05Fence(Op):
    """``tcgen05.fence::before_thread_sync`` / ``::after_thread_sync`` (G22)."""

    mnemonic = "tcgen05.fence"
    features = frozenset({"tcgen05"})

    side: Literal["before_thread_sync", "after_thread_sync"]

    def effects(self) -> tuple[Effect, ...]:
        return (Orders(f"{self.mnemonic}::{self.side}"),)
