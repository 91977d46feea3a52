"""Warpgroup matrix multiply-accumulate (PTX 9.7.15; SEMANTICS section F)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilesim.arith.types import (
    DType,
    bf16,
    e4m3,
    e5m2,
    f16,
    f32,
    numpy_dtype,
    s8,
    s32,
    tf32,
    truncated,
    u8,
)
from tilesim.ir.declarations import Fragment, View, extents, rows_of
from tilesim.ir.effects import (
    Commits,
    Effect,
    FencesFragments,
    GathersWarps,
    Issues,
    Reads,
    UsesFragment,
    WaitsGroup,
)
from tilesim.ir.expr import Const, Expr
from tilesim.ir.op import Inputs, Op
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane

#: K of one instruction and legal accumulators per input type (F9)
K_OF: dict[DType, int] = {f16: 16, bf16: 16, tf32: 8, e4m3: 32, e5m2: 32, s8: 32, u8: 32}
ACCUMULATORS: dict[DType, tuple[DType, ...]] = {
    f16: (f16, f32), bf16: (f32,), tf32: (f32,), e4m3: (f16, f32), e5m2: (f16, f32),
    s8: (s32,), u8: (s32,),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WgmmaFence(Op):
    """Orders register accesses before the following mma_async (F3)."""

    mnemonic = "wgmma.fence"
    call = "wgmma.fence"
    ptx = "wgmma.fence.sync.aligned;"
    fault = "wgmma fence dropped"
    features = frozenset({"wgmma"})

    def effects(self) -> tuple[Effect, ...]:
        return (GathersWarps(), FencesFragments())


@dataclass(frozen=True, kw_only=True)
class WgmmaMmaAsync(Op):
    """``acc (+)= a @ b`` asynchronously, m64nNkK per warpgroup (F1-F9).

    ``acc``: warpgroup fragment (64, N). ``a``: shared view (64, K), or (K, 64) when ``a_trans``,
    or K columns of a warpgroup fragment of 64 rows, from ``a_column`` on. ``b``: shared view (N, K)
    (K-major), or (K, N) when ``b_trans``. Shared views may be in blocks of w columns: transposed
    (rows / w, K, w), each also (rows / 8, 8, columns / w, w) of its rows and columns in memory.
    ``accumulate`` false ignores the old value of ``acc`` (scale-d 0).
    """

    mnemonic = "wgmma.mma_async"
    call = "wgmma.mma_async(acc, a, b, *, accumulate, a_trans, b_trans, a_column)"
    features = frozenset({"wgmma"})

    acc: Fragment
    a: View | Fragment
    b: View
    accumulate: Expr = Const(1)
    a_trans: bool = False
    b_trans: bool = False
    a_column: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K) of the instruction."""
        k = K_OF.get(self.b.dtype, 0)
        return self.acc.shape[0], self.acc.shape[1], k

    def verify(self) -> Iterator[str]:
        kind = self.b.dtype
        if kind not in K_OF:
            yield f"wgmma has no {kind} inputs (F9)"
            return
        m, n, k = self.shape
        if self.acc.distribution != "warpgroup":
            yield f"the accumulator {self.acc.name} must be a warpgroup fragment (F1)"
        if m != 64:
            yield f"accumulator has {m} rows, one wgmma computes 64 (F9)"
        integer = kind in (s8, u8)
        if n % 8 or not 8 <= n <= 256 or (integer and n > 32 and n % 16):
            yield f"N = {n} is not a wgmma size for {kind} (F9)"
        if self.acc.dtype not in ACCUMULATORS[kind]:
            yield f"{kind} inputs do not accumulate in {self.acc.dtype} (F9)"
        if self.a.dtype.bits != kind.bits:
            yield f"A is {self.a.dtype}, B is {kind}"
        if (self.a_trans or self.b_trans) and kind.bits != 16:
            yield f"transposed operands exist for 16-bit types only, not {kind} (F9)"
        yield from self._verify_a(k)
        if extents(tuple(self.b.shape), transposed=self.b_trans) != (n, k):
            b_shape = (k, n) if self.b_trans else (n, k)
            yield f"B is {tuple(self.b.shape)}, expected {b_shape} (F9)"
        for operand in (self.a, self.b):
            if isinstance(operand, View):
                if operand.space != "shared":
                    yield f"{operand.tensor.name} must be in shared memory (F9)"
                elif operand.remote:
                    yield f"{operand.tensor.name} must be in the executing CTA's shared memory"
            elif operand.distribution != "warpgroup":
                yield f"A fragment {operand.name} must be a warpgroup fragment (F9)"

    def _verify_a(self, k: int) -> Iterator[str]:
        """What is wrong with the extents of A."""
        expected = (64, k)
        found = extents(tuple(self.a.shape), transposed=self.a_trans)
        if isinstance(self.a, Fragment):
            rows, columns = self.a.shape
            if self.a_column % k or not 0 <= self.a_column < max(columns, 1):
                yield (
                    f"A is {k} columns of {self.a.name} from column {self.a_column} on, which is "
                    f"no multiple of {k} below {columns}"
                )
                return
            found = (rows, min(columns - self.a_column, k))
        elif self.a_column:
            yield "a_column is for an A in registers; index the view instead"
        if found != expected:
            a_shape = (k, 64) if self.a_trans else expected
            yield f"A is {tuple(self.a.shape)}, expected {a_shape} (F9)"

    def effects(self) -> tuple[Effect, ...]:
        uses = UsesFragment(
            self.acc, write=True, asynchronous=True, product=self.shape, keeps=self.accumulate
        )
        a: Effect = (
            Reads(self.a, "async", asynchronous=True)
            if isinstance(self.a, View)
            else UsesFragment(self.a, asynchronous=True)
        )
        b = Reads(self.b, "async", asynchronous=True)
        return (GathersWarps(), uses, a, b, Issues("wgmma"))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        """One warp's part of the accumulator: 16 rows."""
        import numpy as np

        wide = np.int32 if self.acc.dtype is s32 else np.float32
        if isinstance(self.a, Fragment):
            a = inputs.tile(self.a)[:, self.a_column : self.a_column + self.shape[2]]
        else:
            first = 16 * inputs.quarter
            a = rows_of(inputs.memory(self.a), transposed=self.a_trans)[first : first + 16]
        b = rows_of(inputs.memory(self.b), transposed=self.b_trans)
        a = truncated(a, self.a.dtype).astype(wide, copy=False)
        b = truncated(b, self.b.dtype).astype(wide, copy=False)
        product = a @ b.T
        if inputs.lanes(self.accumulate)[0]:
            product = product + inputs.tile(self.acc).astype(wide, copy=False)
        return (product.astype(numpy_dtype(self.acc.dtype), copy=False),)


@dataclass(frozen=True, kw_only=True)
class WgmmaCommitGroup(Op):
    """Closes the warpgroup's wgmma group (F5)."""

    mnemonic = "wgmma.commit_group"
    call = "wgmma.commit_group"
    ptx = "wgmma.commit_group.sync.aligned;"
    features = frozenset({"wgmma"})

    def effects(self) -> tuple[Effect, ...]:
        return (GathersWarps(), Commits("wgmma"))


@dataclass(frozen=True, kw_only=True)
class WgmmaWaitGroup(Op):
    """Blocks until at most ``pending`` newest wgmma groups of the warpgroup are unfinished (F5)."""

    mnemonic = "wgmma.wait_group"
    call = "wgmma.wait_group(pending)"
    ptx = "wgmma.wait_group.sync.aligned {pending};"
    features = frozenset({"wgmma"})

    pending: int = 0

    def verify(self) -> Iterator[str]:
        if not 0 <= self.pending <= 7:
            yield f"pending group count {self.pending} is outside 0..7"

    def effects(self) -> tuple[Effect, ...]:
        return (GathersWarps(), WaitsGroup("wgmma", self.pending))
