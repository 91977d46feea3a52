"""``wgmma.wait_group`` waits for the own warpgroup: an operand that two warpgroups share is free
only when both have waited.

Both kernels compute C = A @ B.T with two warpgroups that hold 64 rows of A each and share one
k tile of B, which is refilled for every step.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import (
    Fragment,
    GlobalTensor,
    Mbarriers,
    SharedTensor,
    TensorMap,
    View,
    ds,
)
from tilesim.ir.expr import Expr
from tilesim.kernels.hopper.operands import multiply_tile, product_f32
from tilesim.kernels.registry import Case

ROWS, BLOCK_N, BLOCK_K = 64, 64, 64
WARPS = 8
GROUPS = 2
#: rows of the B tile that one warp copies
SHARE = BLOCK_N // WARPS


@dataclass(frozen=True)
class _Operands:
    """Declarations of both kernels: A is loaded once, B tile by tile."""

    B: GlobalTensor
    C: GlobalTensor
    a_map: TensorMap
    a: SharedTensor
    b: SharedTensor
    full: Mbarriers
    acc: Fragment

    def part(self, k: Builder) -> View:
        """The rows of the B tile in shared memory that the executing warp fills."""
        return self.b[ds(k.warp_id * SHARE, SHARE), :]

    def source(self, k: Builder, kt: int | Expr) -> View:
        """The same rows of k tile ``kt`` in global memory."""
        return self.B[ds(k.warp_id * SHARE, SHARE), ds(kt * BLOCK_K, BLOCK_K)]


def _start(k: Builder, iterations: int) -> _Operands:
    """Declares the operands and loads all of A."""
    A = k.tensor("A", bf16, (ROWS * GROUPS, BLOCK_K * iterations))
    ops = _Operands(
        B=k.tensor("B", bf16, (BLOCK_N, BLOCK_K * iterations)),
        C=k.tensor("C", f32, (ROWS * GROUPS, BLOCK_N)),
        a_map=k.tensor_map(A, (ROWS * GROUPS, BLOCK_K), swizzle=128),
        a=k.shared("sA", bf16, (iterations, ROWS * GROUPS, BLOCK_K), swizzle=128),
        b=k.shared("sB", bf16, (BLOCK_N, BLOCK_K), swizzle=128),
        full=k.mbarriers("full"),
        acc=k.fragment("acc", f32, (ROWS, BLOCK_N), "warpgroup"),
    )
    with k.one_thread():
        k.mbarrier.init(ops.full, 1)
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(ops.full, iterations * ops.a_map.box_bytes)
        for kt in range(iterations):
            k.tma.load(ops.a_map, ops.a[kt], (0, kt * BLOCK_K), ops.full)
    return ops


@kernel(warps=WARPS, family="bugs", reference=product_f32)
def refill_by_cp_async(k: Builder, *, iterations: int = 3, fixed: bool = False) -> None:
    """Triton #11047, #11050 (B063).

    After ``wgmma.wait_group 0`` a warpgroup issues the ``cp.async`` of the next tile of B. The
    compiler takes the wait for everybody's and adds no barrier, but the other warpgroup's wgmma may
    still read the tile.

    Fix: ``__syncthreads`` between the wait and the copy.
    """
    ops = _start(k, iterations)
    for group in range(GROUPS):
        with k.role(f"warpgroup{group}", range(4 * group, 4 * group + 4)):
            k.mbarrier.wait(ops.full, 0)
            k.tile.fill(ops.acc, 0.0)
            k.cp_async.copy(ops.part(k), ops.source(k, 0))
            with k.loop(iterations, name="kt") as kt:
                k.cp_async.wait_all()
                k.fence.proxy_async("shared::cta")
                k.bar.sync(1, 32 * WARPS, aligned=False)
                multiply_tile(k, ops.acc, ops.a[kt, ROWS * group : ROWS * (group + 1)], ops.b[:, :])
                k.wgmma.wait_group(0)
                if fixed:
                    k.bar.sync(1, 32 * WARPS, aligned=False)
                with k.if_(kt + 1 < iterations):
                    k.cp_async.copy(ops.part(k), ops.source(k, kt + 1))  # BUG: still read
            k.tile.store(ops.C[ROWS * group : ROWS * (group + 1)], ops.acc)


@kernel(warps=WARPS, family="bugs", reference=product_f32)
def refill_by_stores(k: Builder, *, iterations: int = 3, fixed: bool = False) -> None:
    """tilelang #2613 (B065).

    An operand that is not pipelined is stored to shared memory at the top of the loop by all
    threads. There is a barrier between the stores and the wgmma, but none between a warpgroup's
    wait and the next stores, so these overwrite what the slower warpgroup still multiplies.

    Fix: ``__syncthreads`` at the end of the loop.
    """
    ops = _start(k, iterations)
    b = k.fragment("b", bf16, (SHARE, BLOCK_K))
    for group in range(GROUPS):
        with k.role(f"warpgroup{group}", range(4 * group, 4 * group + 4)):
            k.mbarrier.wait(ops.full, 0)
            k.tile.fill(ops.acc, 0.0)
            with k.loop(iterations, name="kt") as kt:
                k.tile.load(b, ops.source(k, kt))
                k.tile.store(ops.part(k), b)  # BUG: the other warpgroup may still multiply
                k.fence.proxy_async("shared::cta")
                k.bar.sync(1, 32 * WARPS, aligned=False)
                multiply_tile(k, ops.acc, ops.a[kt, ROWS * group : ROWS * (group + 1)], ops.b[:, :])
                k.wgmma.wait_group(0)
                if fixed:
                    k.bar.sync(1, 32 * WARPS, aligned=False)
            k.tile.store(ops.C[ROWS * group : ROWS * (group + 1)], ops.acc)


_RACE = frozenset({"race"})

CASES = (
    Case(refill_by_cp_async, {}, "bugs", "failed", _RACE, source="B063"),
    Case(refill_by_cp_async, {"fixed": True}, "bugs", "proved", source="B063"),
    Case(refill_by_stores, {}, "bugs", "failed", _RACE, source="B065"),
    Case(
        refill_by_stores,
        {"iterations": 1},
        "bugs",
        "proved",
        source="B065",
        note="a single k tile is never overwritten",
    ),
    Case(refill_by_stores, {"fixed": True}, "bugs", "proved", source="B065"),
)
