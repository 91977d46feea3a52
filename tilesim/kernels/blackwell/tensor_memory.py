"""What the kernels share: allocation of tensor memory, one k tile of tcgen05.mma."""

from __future__ import annotations

from tilesim.ir.builder import Builder
from tilesim.ir.expr import Operand, Var, as_expr
from tilesim.ir.memory import SharedTensor, View
from tilesim.ir.ops.tcgen05 import CtaGroup
from tilesim.ir.tmem import TmemView
from tilesim.ir.types import u32

#: findings name the kernel's lines, not the ones in this file
__tilesim_helper__ = True

#: K of one tcgen05.mma on 16-bit inputs
MMA_K = 16


class TensorMemory:
    """Columns that one warp allocates for the whole CTA and frees at the end."""

    def __init__(self, k: Builder, columns: int, *, warp: int = 0) -> None:
        self._k = k
        self._columns = columns
        self._warp = warp
        self._slot: SharedTensor = k.shared("tmem_address", u32, (1,))
        self._address: Var = k.var("tmem", dtype=u32)

    def allocate(self) -> None:
        """The warp's part; a barrier of all threads must follow before `address`."""
        with self._k.role(f"warp {self._warp}", self._warp):
            self._k.tcgen05.alloc(self._slot, self._columns)
            self._k.tcgen05.relinquish_alloc_permit()

    def address(self) -> Var:
        """Every thread reads the address."""
        self._k.mem.load(self._address, self._slot[0])
        return self._address

    def free(self) -> None:
        """All threads: nobody uses the columns any more, so the warp frees them."""
        k = self._k
        k.tcgen05.fence_before_thread_sync()
        k.sync_threads()
        with k.role(f"warp {self._warp}", self._warp):
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.dealloc(self._address, self._columns)


def multiply_tile(
    k: Builder, d: TmemView, a: View, b: View, *, first: Operand, cta_group: CtaGroup = 1
) -> None:
    """Issues ``d += a @ b.T`` for one k tile; ``first`` starts a new accumulation."""
    for start in range(0, a.shape[1], MMA_K):
        columns = slice(start, start + MMA_K)
        keep = as_expr(1) if start else as_expr(1) - as_expr(first)
        k.tcgen05.mma(d, a[:, columns], b[:, columns], accumulate=keep, cta_group=cta_group)
