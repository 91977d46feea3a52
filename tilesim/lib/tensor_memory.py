"""Tensor memory for the time of a region, and one k tile of tcgen05.mma."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.arith.types import u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.region import region
from tilesim.ir.declarations import SharedTensor, View
from tilesim.ir.expr import Operand, Var, as_expr
from tilesim.ir.ops.tcgen05_mma import CtaGroup
from tilesim.ir.tensor_memory import TmemView
from tilesim.lib.opening import Barriers, initialise

#: findings name the kernel's lines, not the ones in this file
__tilesim_helper__ = True

#: K of one tcgen05.mma on 16-bit inputs
MMA_K = 16


class TensorMemory:
    """Columns of tensor memory that one warp allocates for the whole CTA and frees at the end.

    `allocated` does it around a region; `allocate`, `address` and `free` are its parts, for kernels
    that have something to do in between. With ``cta_group`` 2 the warp of that number in each CTA
    of a pair does it, for both.

    ::

        memory = TensorMemory(k, 128)
        with memory.allocated(pipe, results) as address:
            d = k.tcgen05.tensor(address, ts.f32, (128, 128))
            ...
    """

    called = "memory"

    def __init__(self, k: Builder, columns: int, *, warp: int = 0, cta_group: CtaGroup = 1) -> None:
        self._k = k
        self._columns = columns
        self._warp = warp
        self._group: CtaGroup = cta_group
        self._slot: SharedTensor = k.shared("tmem_address", u32, (1,))
        self._address: Var = k.var("tmem", dtype=u32)

    @property
    def recorder(self) -> Builder:
        """What records the statements of the kernel."""
        return self._k

    @region
    def allocated(self, *barriers: Barriers, publish: bool = True) -> Iterator[Var]:
        """A region in which the columns are there, at the address that it gives.

        Begins with a barrier of all threads, which also publishes the ``barriers``, initialised
        here. Ends with `free`: see there for ``publish``.
        """
        self.allocate()
        if barriers:
            initialise(self._k, *barriers)
        self._k.sync_threads()
        yield self.address()
        self.free(publish=publish)

    def allocate(self) -> None:
        """The warp's part; a barrier of all threads must follow before `address`."""
        with self._k.role(f"warp {self._warp}", self._warp):
            self._k.tcgen05.alloc(self._slot, self._columns, cta_group=self._group)
            self._k.tcgen05.relinquish_alloc_permit(cta_group=self._group)

    def address(self) -> Var:
        """Every thread reads the address."""
        self._k.mem.load(self._address, self._slot[0])
        return self._address

    def free(self, *, publish: bool = True) -> None:
        """All threads: the columns are not used any more, so the warp frees them.

        ``publish``: with the fence for loads and stores completed since the thread's last one. Not
        needed where each access was published when it was handed over.
        """
        k = self._k
        if publish:
            k.tcgen05.fence_before_thread_sync()
        if self._group == 1:
            k.sync_threads()
        else:
            k.cluster.sync()
        with k.role(f"warp {self._warp}", self._warp):
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.dealloc(self._address, self._columns, cta_group=self._group)


def multiply_tile(
    k: Builder, d: TmemView, a: View, b: View, *, first: Operand, cta_group: CtaGroup = 1
) -> None:
    """Issues ``d += a @ b.T`` for one k tile; ``first`` starts a new accumulation."""
    for start in range(0, a.shape[1], MMA_K):
        columns = slice(start, start + MMA_K)
        keep = as_expr(1) if start else as_expr(1) - as_expr(first)
        k.tcgen05.mma(d, a[:, columns], b[:, columns], accumulate=keep, cta_group=cta_group)
